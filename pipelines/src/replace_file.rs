//! Files that other programs read at any moment.

use std::path::Path;

use forebay_model::{Fault, Result};

/// Replaces a file in one step; its permissions stay. `failed` is what a fault says.
pub(crate) fn replace_file(path: &Path, content: impl AsRef<[u8]>, failed: &str) -> Result<()> {
    let beside = path.with_extension(format!("{}.writing", std::process::id()));
    let keep_permissions = || match std::fs::metadata(path) {
        Ok(known) => std::fs::set_permissions(&beside, known.permissions()),
        Err(_) => Ok(()),
    };
    let written = std::fs::write(&beside, content).and_then(|()| keep_permissions());
    let written = written.and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // There is nothing there where it could not be made.
        let _ = std::fs::remove_file(&beside);
        Fault::disk(failed, error).file(path.display().to_string())
    })
}
