//! The files of a version of a table, as spans know them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::BooleanBufferBuilder;
use arrow::datatypes::Schema;
use delta_kernel::Engine;
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use forebay_model::{ColumnExtent, ContentId, Fault, FileRange, IdBuilder, Result, codes};
use forebay_storage::StorageClient;

use crate::files::hive;
use crate::files::list::ListedFile;
use crate::files::stamp::FileStamp;
use crate::parquet::{KeptRows, TableFiles};

use super::columns::TableColumns;
use super::engine::TableEngine;
use super::place::{TablePlace, kernel_fault};
use super::snapshot::{LoggedFile, TableSnapshot};
use super::statistics::FileStatistics;

/// Rows of a file at most, where the log does not tell how many there are.
const ROWS_MAX: u64 = 1 << 32;

/// What is remembered of a file while its table is read.
#[derive(Debug)]
struct FileEntry {
    bytes: u64,
    /// Stored rows, deleted ones among them, where the log tells.
    rows: Option<u64>,
    deleted: Option<DeletionVectorDescriptor>,
}

/// A version of a table, while it is read.
pub(super) struct OpenTable {
    place: TablePlace,
    columns: TableColumns,
    files: HashMap<String, FileEntry>,
    /// Nulls of each column in all files, as the log counts them: deleted rows are among them.
    null_counts: Vec<Option<u64>>,
    /// Those of the file that was asked for last: its spans follow each other.
    latest_kept: Mutex<Option<(String, Arc<KeptRows>)>>,
}

impl fmt::Debug for OpenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenTable({})", self.place.root.shown)
    }
}

/// A file, and what the log tells of its rows.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) listed: ListedFile,
    pub(super) modified: i64,
    pub(super) piece: FileRange,
    /// Extents of the watched columns that are in the file.
    pub(super) extents: Vec<Option<ColumnExtent>>,
}

impl OpenTable {
    pub(super) fn new(place: TablePlace, columns: TableColumns) -> OpenTable {
        OpenTable {
            place,
            null_counts: vec![Some(0); columns.fields.len()],
            columns,
            files: HashMap::new(),
            latest_kept: Mutex::default(),
        }
    }

    pub(super) fn columns(&self) -> &TableColumns {
        &self.columns
    }

    /// The nulls of a column in all files that were read from the log; `None` where a file does not count them.
    pub(super) fn null_count(&self, column: &str) -> Option<u64> {
        let fields = &self.columns.fields;
        let place = fields.iter().position(|field| field.name() == column)?;
        self.null_counts.get(place).copied().flatten()
    }

    /// Reads the files of a version from its log, in the order in which they were written: new files come last, and
    /// the spans of the others stay what they were.
    pub(super) fn read_files(
        &mut self,
        io: &StorageClient,
        table: &TableSnapshot,
        watch: &[String],
    ) -> Result<Vec<TableFile>> {
        let mut found = Vec::new();
        table.for_each_file(|file| {
            found.push(self.table_file(io, file, watch)?);
            Ok(())
        })?;
        found.sort_by(|a, b| {
            (a.modified, &a.listed.relative).cmp(&(b.modified, &b.listed.relative))
        });
        Ok(found)
    }

    fn table_file(
        &mut self,
        io: &StorageClient,
        file: LoggedFile,
        watch: &[String],
    ) -> Result<TableFile> {
        let statistics = FileStatistics::parse(file.statistics.as_deref());
        let place = self.place.file(io, &file.path)?;
        let partition = self.columns.partitions.iter().map(|column| {
            let value = file
                .partition
                .get(self.columns.logged_name(column))
                .cloned()
                .flatten();
            (
                column.clone(),
                value
                    .filter(|value| !value.is_empty())
                    .unwrap_or_else(|| hive::NULL.to_owned()),
            )
        });
        let partition: Vec<(String, String)> = partition.collect();
        let removed = file
            .deleted
            .as_ref()
            .map_or(0, |deleted| deleted.cardinality.unsigned_abs());
        let piece = FileRange {
            path: place.path.clone(),
            relative: place.relative.clone(),
            row_groups: None,
            row_range: None,
            byte_range: None,
            first_row: 0,
            rows: statistics
                .num_records
                .map(|rows| rows.saturating_sub(removed)),
            bytes: file.bytes,
            fingerprint: fingerprint(&place.relative, &file, &partition),
            partition,
            extents: Vec::new(),
        };
        let extent = |column: &String| {
            statistics.extent(
                self.columns.logged_name(column),
                self.columns.data_type(column)?,
            )
        };
        let extents = watch.iter().map(extent).collect();
        for (field, total) in self.columns.fields.iter().zip(&mut self.null_counts) {
            let nulls = statistics.nulls(self.columns.logged_name(field.name()));
            *total = (*total).zip(nulls).map(|(total, nulls)| total + nulls);
        }
        // The log names a file once and for all.
        let stamp = FileStamp {
            size: file.bytes,
            version: file.modified.to_string(),
            strong: true,
            node: None,
        };
        let listed = ListedFile {
            path: place.path.clone(),
            relative: place.relative,
            stamp,
            etag: None,
        };
        let entry = FileEntry {
            bytes: file.bytes,
            rows: statistics.num_records,
            deleted: file.deleted,
        };
        self.files.insert(place.path, entry);
        Ok(TableFile {
            listed,
            modified: file.modified,
            piece,
            extents,
        })
    }

    /// Whether rows of a file were deleted.
    pub(super) fn has_deleted_rows(&self, path: &str) -> bool {
        self.files
            .get(path)
            .is_some_and(|file| file.deleted.is_some())
    }
}

/// The id of the rows that a file gives. The version of the table has no part in it: another one may have the same file.
fn fingerprint(relative: &str, file: &LoggedFile, partition: &[(String, String)]) -> ContentId {
    let mut id = IdBuilder::new("delta file");
    id.text(relative)
        .bytes(&file.bytes.to_le_bytes())
        .bytes(&file.modified.to_le_bytes());
    for (column, value) in partition {
        id.text(column).text(value);
    }
    if let Some(deleted) = &file.deleted {
        id.text(&deleted.storage_type.to_string())
            .text(&deleted.path_or_inline_dv);
        id.bytes(&deleted.offset.unwrap_or(-1).to_le_bytes())
            .bytes(&deleted.cardinality.to_le_bytes());
    }
    id.finish()
}

impl TableFiles for OpenTable {
    fn size(&self, path: &str) -> Option<u64> {
        self.files.get(path).map(|file| file.bytes)
    }

    fn stored_column(&self, file: &Schema, column: &str) -> Option<String> {
        self.columns.stored_name(file, column)
    }

    fn kept_rows(&self, io: &StorageClient, path: &str) -> Result<Option<Arc<KeptRows>>> {
        let Some(file) = self.files.get(path) else {
            return Ok(None);
        };
        let Some(deleted) = &file.deleted else {
            return Ok(None);
        };
        let latest = self
            .latest_kept
            .lock()
            .ok()
            .and_then(|latest| latest.clone());
        if let Some((_, kept)) = latest.filter(|(of, _)| of == path) {
            return Ok(Some(kept));
        }
        let storage = TableEngine::new(io, &self.place).storage_handler();
        let rows = deleted
            .read(storage, &self.place.url)
            .map_err(|error| kernel_fault(error, path))?;
        let length = rows.max().map_or(0, |last| last.saturating_add(1));
        // What it takes in memory depends on the last row alone: that is checked before it is believed.
        if length > file.rows.unwrap_or(ROWS_MAX) {
            let message = format!(
                "the deletion vector names row {}, which the file does not have",
                length - 1
            );
            return Err(Fault::new(codes::CORRUPT, message).file(path));
        }
        let mut kept = BooleanBufferBuilder::new(length as usize);
        kept.append_n(length as usize, true);
        rows.iter()
            .for_each(|row| kept.set_bit(row as usize, false));
        let kept = Arc::new(KeptRows::new(kept.finish()));
        if let Ok(mut latest) = self.latest_kept.lock() {
            *latest = Some((path.to_owned(), kept.clone()));
        }
        Ok(Some(kept))
    }
}

/// Stored bytes of each column of a table, estimated from files whose footers were read.
pub(super) fn column_bytes<'f>(
    fields: impl Iterator<Item = &'f str>,
    in_files: &BTreeMap<String, u64>,
    seen: u64,
    all: u64,
) -> Vec<u64> {
    let scaled =
        |bytes: u64| (u128::from(bytes) * u128::from(all) / u128::from(seen.max(1))) as u64;
    fields
        .map(|field| in_files.get(field).map_or(0, |bytes| scaled(*bytes)))
        .collect()
}
