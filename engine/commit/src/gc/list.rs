//! Lists all files below a location, including those that readers ignore.

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

/// All files below a location, and attempts without any, in the order of their paths. Entries that
/// vanish meanwhile are left out.
pub fn list_files(io: &StorageClient, location: &StorageLocation) -> Result<Vec<ListedObject>> {
    let mut objects = Vec::new();
    match &location.local {
        Some(local) => descend(local, "", &mut objects).map_err(|error| {
            Fault::disk("the directory cannot be listed", error).file(local.display().to_string())
        })?,
        None => {
            for object in io.list(location)? {
                let Some(tail) = object.location.prefix_match(&location.path) else {
                    continue;
                };
                let path = tail
                    .map(|part| part.as_ref().to_owned())
                    .collect::<Vec<_>>()
                    .join("/");
                let millis = object.last_modified.timestamp_millis().max(0) as u64;
                let written = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
                objects.push(ListedObject {
                    path,
                    bytes: object.size,
                    written,
                });
            }
        }
    }
    objects.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(objects)
}

fn descend(folder: &Path, above: &str, objects: &mut Vec<ListedObject>) -> std::io::Result<()> {
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
        // For a link, this is the metadata of the link itself.
        let Ok(meta) = entry.metadata() else { continue };
        let count_before = objects.len();
        if meta.is_dir() {
            descend(&entry.path(), &path, objects)?;
        }
        // A run that was killed may have had no time to put anything into its directory.
        let is_bare = meta.is_dir() && objects.len() == count_before && path.contains(ATTEMPT);
        if !meta.is_dir() || is_bare {
            let bytes = if is_bare { 0 } else { meta.len() };
            objects.push(ListedObject {
                path,
                bytes,
                written: meta.modified()?,
            });
        }
    }
    Ok(())
}

/// True for the name of a file that is written under another name first: `name#3`.
pub fn is_staged(name: &str) -> bool {
    let suffix = name.rsplit_once('#').map(|(_, suffix)| suffix);
    suffix.is_some_and(|suffix| {
        !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_digit())
    })
}
