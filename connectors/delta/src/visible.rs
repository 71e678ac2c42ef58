//! Queries about a table by its path, outside of any run.

use forebay_model::Result;
use forebay_storage::StorageClient;

use super::place::TablePlace;
use super::snapshot::{TableSnapshot, VersionChoice};

/// True if a path is that of a Delta table.
pub fn has_delta_log(io: &StorageClient, path: &str) -> Result<bool> {
    let table_place = TablePlace::new(io, path)?;
    // A web server gives no listings.
    if table_place.root.is_web() {
        Ok(false)
    } else {
        table_place.has_log(io)
    }
}

/// True if rows of files of a version of a Delta table are deleted.
pub fn has_deleted_rows(io: &StorageClient, path: &str, version: Option<u64>) -> Result<bool> {
    let table_place = TablePlace::new(io, path)?;
    let table = TableSnapshot::open(
        io,
        &table_place,
        version.map_or(VersionChoice::Latest, VersionChoice::Exactly),
    )?;
    let mut has_deleted = false;
    table.for_each_file(|file| {
        has_deleted |= file.deleted.is_some();
        Ok(())
    })?;
    Ok(has_deleted)
}
