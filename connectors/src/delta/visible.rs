//! What is asked of a table by its path, outside of any run.

use forebay_model::Result;
use forebay_storage::StorageClient;

use super::place::TablePlace;
use super::snapshot::{TableSnapshot, VersionChoice};

/// Whether a path is that of a Delta table.
pub fn has_delta_log(io: &StorageClient, path: &str) -> Result<bool> {
    let place = TablePlace::new(io, path)?;
    // A web server gives no listings.
    if place.root.is_web() {
        Ok(false)
    } else {
        place.has_log(io)
    }
}

/// Whether rows of files of a version of a Delta table are deleted.
pub fn has_deleted_rows(io: &StorageClient, path: &str, version: Option<u64>) -> Result<bool> {
    let place = TablePlace::new(io, path)?;
    let table = TableSnapshot::open(
        io,
        &place,
        version.map_or(VersionChoice::Latest, VersionChoice::Exactly),
    )?;
    let mut found = false;
    table.for_each_file(|file| {
        found |= file.deleted.is_some();
        Ok(())
    })?;
    Ok(found)
}
