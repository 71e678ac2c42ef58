//! Files that other programs read at any moment.

use std::path::Path;

use forebay_model::{Fault, Result};

/// Replaces a file in one step; its name ends as it does. `failed` is what a fault says.
pub(crate) fn replace_file(path: &Path, content: &str, failed: &str) -> Result<()> {
    let beside = path.with_extension(format!("{}.writing", std::process::id()));
    let written = std::fs::write(&beside, content).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| Fault::disk(failed, error).file(path.display().to_string()))
}
