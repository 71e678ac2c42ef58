//! Files that other programs read at any moment.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::path::{Path, PathBuf};

use forebay_model::{Fault, Result};

/// Replaces a file in one step and keeps its permissions. `failed` is the message of the fault.
/// Missing directories of a new file are made, as those of outputs are.
///
/// A link stays a link: the file it leads to is replaced. A device (`/dev/null`, a terminal) or a pipe is written to: to
/// rename a file over it would take it from all other programs.
pub(crate) fn replace_file(path: &Path, content: impl AsRef<[u8]>, failed: &str) -> Result<()> {
    let replaced = match std::fs::metadata(path) {
        Ok(existing) if existing.is_file() => {
            replace_existing(path, content.as_ref(), existing.permissions())
        }
        Ok(_) => write_in_place(path, content.as_ref()),
        Err(_) => write_new(path, content.as_ref()),
    };
    replaced.map_err(|error| Fault::disk(failed, error).file(path.display().to_string()))
}

fn write_new(path: &Path, content: &[u8]) -> std::io::Result<()> {
    // A file name alone has an empty parent.
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
    {
        std::fs::create_dir_all(parent)?;
    }
    write_and_rename(path, content, None)
}

fn replace_existing(path: &Path, content: &[u8], permissions: Permissions) -> std::io::Result<()> {
    let target: PathBuf = std::fs::canonicalize(path)?;
    write_and_rename(&target, content, Some(permissions))
}

/// Writes to a device or pipe, which has no earlier content that a reader could see in part.
fn write_in_place(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut device: File = OpenOptions::new().write(true).open(path)?;
    device.write_all(content)
}

fn write_and_rename(
    path: &Path,
    content: &[u8],
    permissions: Option<Permissions>,
) -> std::io::Result<()> {
    let unfinished = path.with_extension(format!("{}.writing", std::process::id()));
    let renamed = write_with_permissions(&unfinished, content, permissions)
        .and_then(|()| std::fs::rename(&unfinished, path));
    if renamed.is_err() {
        // There is nothing to remove where the file could not be made.
        let _ = std::fs::remove_file(&unfinished);
    }
    renamed
}

fn write_with_permissions(
    path: &Path,
    content: &[u8],
    permissions: Option<Permissions>,
) -> std::io::Result<()> {
    std::fs::write(path, content)?;
    match permissions {
        Some(permissions) => std::fs::set_permissions(path, permissions),
        None => Ok(()),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    use forebay_model::codes;

    use super::*;

    #[test]
    fn a_link_leads_to_the_new_content() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let link = folder.path().join("link");
        std::fs::write(&target, "old").unwrap();
        std::fs::set_permissions(&target, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        replace_file(&link, "new", "not written").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "new");
        let mode = std::fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_pipe_is_written_to_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(status.unwrap().success());
        let mut received = String::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| replace_file(&pipe, "rows", "not written"));
            File::open(&pipe)
                .unwrap()
                .read_to_string(&mut received)
                .unwrap();
            writer.join().unwrap().unwrap();
        });
        assert_eq!(received, "rows");
        let file_type = std::fs::symlink_metadata(&pipe).unwrap().file_type();
        assert!(file_type.is_fifo());
    }

    #[test]
    fn missing_directories_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("pages/2024/run.html");
        replace_file(&page, "rows", "not written").unwrap();
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "rows");
        // A file in place of a directory is named as such.
        let below_file = page.join("run.html");
        let fault = replace_file(&below_file, "rows", "not written").unwrap_err();
        assert_eq!(fault.code(), codes::ACCESS, "{fault}");
    }

    #[test]
    fn a_directory_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(replace_file(folder.path(), "rows", "not written").is_err());
        assert!(folder.path().is_dir());
    }
}
