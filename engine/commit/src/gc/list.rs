//! All files below a place, those too that no reader looks at.

use std::path::Path;
use std::time::{Duration, SystemTime};

use forebay_model::{Fault, Result};
use forebay_storage::{StorageClient, StorageLocation};

use crate::output::ATTEMPT;

/// A file below some place.
pub struct ListedObject {
    /// Below the place, with `/` between its parts.
    pub path: String,
    pub bytes: u64,
    pub written: SystemTime,
}

/// All files below a place, and attempts without any, in the order of their paths. What vanishes meanwhile
/// is left out.
pub fn list_files(io: &StorageClient, place: &StorageLocation) -> Result<Vec<ListedObject>> {
    let mut found = Vec::new();
    match &place.local {
        Some(local) => descend(local, "", &mut found).map_err(|error| {
            Fault::disk("the directory cannot be listed", error).file(local.display().to_string())
        })?,
        None => {
            for object in io.list(place)? {
                let Some(rest) = object.location.prefix_match(&place.path) else {
                    continue;
                };
                let path = rest
                    .map(|part| part.as_ref().to_owned())
                    .collect::<Vec<_>>()
                    .join("/");
                let millis = object.last_modified.timestamp_millis().max(0) as u64;
                let written = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
                found.push(ListedObject {
                    path,
                    bytes: object.size,
                    written,
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn descend(folder: &Path, above: &str, found: &mut Vec<ListedObject>) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if above.is_empty() {
            name
        } else {
            format!("{above}/{name}")
        };
        // Of links it tells the link itself.
        let Ok(meta) = entry.metadata() else { continue };
        let before = found.len();
        if meta.is_dir() {
            descend(&entry.path(), &path, found)?;
        }
        // A run that was killed may have had no time to put anything into its directory.
        let is_bare = meta.is_dir() && found.len() == before && path.contains(ATTEMPT);
        if !meta.is_dir() || is_bare {
            let bytes = if is_bare { 0 } else { meta.len() };
            found.push(ListedObject {
                path,
                bytes,
                written: meta.modified()?,
            });
        }
    }
    Ok(())
}

/// Whether a name is that of a file on its way to another name: `name#3`.
pub fn is_staged(name: &str) -> bool {
    let after = name.rsplit_once('#').map(|(_, after)| after);
    after.is_some_and(|after| !after.is_empty() && after.bytes().all(|byte| byte.is_ascii_digit()))
}
