//! Location and layout of an output.
//!
//! ```text
//! on a local disk
//!   out/features/part-00000-1c291ca3d5f0.parquet            what readers see, and nothing else
//!   out/.features.forebay/_manifest.json                    names the files; replaced in one step
//!   out/.features.forebay/_data/<shard id>/part-00000.parquet.data   immutable, whole before it has this name
//!
//! in a bucket
//!   out/features/_manifest.json
//!   out/features/_data/<shard id>/part-00000.parquet
//! ```
//!
//! The *root* of an output holds its manifest and data. On a local disk it is a hidden directory
//! next to the visible one: a tool that reads `out/features`, also recursively, finds each row
//! once. Its data files end in `.data`, so that a recursive pattern above it (`out/**/*.parquet`)
//! does not find them either.

use std::path::{Path, PathBuf};

use forebay_model::{Fault, Result, codes};
use forebay_storage::{StorageClient, StorageLocation};

/// Bytes of a name in the path of an output at most: file systems take 255, and a root has a longer name.
const NAME_BYTES_MAX: usize = 240;

/// The end of the name of a root.
const ROOT_SUFFIX: &str = ".forebay";

/// Suffix of data files on local disks, after their extension.
pub const DATA_SUFFIX: &str = ".data";

/// The root of the output that readers find at `path`.
pub fn output_root(io: &StorageClient, path: &str) -> Result<StorageLocation> {
    let visible = io.resolve(path)?;
    let Some(local) = &visible.local else {
        return Ok(visible);
    };
    // The root lies on the disk that a link leads to: its files are linked into the visible directory.
    let visible = match std::fs::canonicalize(local) {
        Ok(real) if local.is_symlink() => io.resolve(&real.display().to_string())?,
        _ => visible,
    };
    check_name_lengths(&visible)?;
    let name = visible
        .local
        .as_ref()
        .and_then(|local| local.file_name()?.to_str());
    let root = name.and_then(|name| visible.sibling(&format!(".{name}{ROOT_SUFFIX}")));
    root.ok_or_else(|| {
        let fault = Fault::new(
            codes::BAD_VALUE,
            format!("`{path}` cannot be the directory of an output"),
        );
        fault.hint("name a directory below another one, in UTF-8")
    })
}

/// Refuses a local path of which a part is longer than file systems take, with what is written around it.
pub fn check_name_lengths(location: &StorageLocation) -> Result<()> {
    let Some(local) = &location.local else {
        return Ok(());
    };
    let Some(long) = local.iter().find(|part| part.len() > NAME_BYTES_MAX) else {
        return Ok(());
    };
    let message = format!(
        "a name in the path has {} bytes, and {NAME_BYTES_MAX} is the most",
        long.len()
    );
    let fault = Fault::new(codes::BAD_VALUE, message).file(&location.shown);
    Err(fault.hint("choose a shorter name"))
}

/// Path at which readers see the output of a root.
pub fn visible_location(root: &StorageLocation) -> StorageLocation {
    let name = root.local.as_ref().and_then(|local| visible_name(local));
    name.and_then(|name| root.sibling(&name))
        .unwrap_or_else(|| root.clone())
}

/// The visible directory of a root on a local disk; `None` for data that no reader sees.
pub fn visible_directory(root: &Path) -> Option<PathBuf> {
    Some(root.with_file_name(visible_name(root)?))
}

fn visible_name(root: &Path) -> Option<String> {
    let name = root.file_name()?.to_str()?;
    Some(
        name.strip_prefix('.')?
            .strip_suffix(ROOT_SUFFIX)?
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_lies_beside_what_readers_see() {
        let folder = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap().with_base(folder.path());
        for (path, root, visible) in [
            ("out/features", "out/.features.forebay", "out/features"),
            ("out", ".out.forebay", "out"),
            ("out/", ".out.forebay", "out"),
            ("s3://lake/out", "s3://lake/out", "s3://lake/out"),
        ] {
            let found = output_root(&io, path).unwrap();
            assert_eq!(
                (&*found.shown, &*visible_location(&found).shown),
                (root, visible),
                "{path}"
            );
            assert_eq!(
                found
                    .join("x")
                    .local
                    .map(|local| local.starts_with(folder.path())),
                found.local.map(|_| true)
            );
        }
        assert!(output_root(&io, "/").is_err());
    }
}
