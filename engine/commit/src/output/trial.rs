//! Trial of an output's directories: a run that cannot write its output says so before it computes anything.

use std::path::Path;

use forebay_model::{Fault, Result};
use forebay_storage::{StorageClient, StorageLocation};

use crate::output_layout::{visible_directory, visible_location};

/// Directories below a root in which files are made.
const INNER: [&str; 3] = [super::DATA, super::TABLE_DATA, "_delta_log"];

/// Makes a file without a name in each directory of an output that is there, or in the nearest one above that is. Such a
/// file leaves nothing behind, also where the process is killed. In a bucket, an upload is begun and aborted.
pub fn try_writing(io: &StorageClient, out: &StorageLocation) -> Result<()> {
    let Some(root) = &out.local else {
        return io.try_upload(out);
    };
    let inner = INNER.map(|name| root.join(name));
    let visible = visible_directory(root);
    let existing = inner.iter().chain(&visible).filter(|path| path.exists());
    for directory in std::iter::once(nearest_existing(root)).chain(existing.map(|path| &**path)) {
        tempfile::tempfile_in(directory).map_err(|error| {
            Fault::disk("the output cannot be written", error).file(visible_location(out).shown)
        })?;
    }
    Ok(())
}

/// The path, or the nearest one above it that exists.
fn nearest_existing(path: &Path) -> &Path {
    let mut ancestors = path.ancestors();
    ancestors
        .find(|ancestor| ancestor.symlink_metadata().is_ok())
        .unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output_layout::output_root;
    use forebay_model::codes;

    #[test]
    fn a_trial_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap().with_base(folder.path());
        std::fs::write(folder.path().join("file"), "").unwrap();
        std::fs::create_dir(folder.path().join("there")).unwrap();
        for path in ["new/deep/out", "there", "out"] {
            try_writing(&io, &output_root(&io, path).unwrap()).unwrap();
        }
        let fault = try_writing(&io, &output_root(&io, "file/out").unwrap()).unwrap_err();
        assert_eq!(fault.code(), codes::ACCESS, "{fault}");
        assert_eq!(fault.site().file.as_deref(), Some("file/out"));
        let mut left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["file", "there"]);
        assert_eq!(
            std::fs::read_dir(folder.path().join("there"))
                .unwrap()
                .count(),
            0
        );
    }
}
