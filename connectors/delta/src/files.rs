//! The files of a version of a table, as spans know them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, BooleanBufferBuilder};
use arrow::datatypes::{FieldRef, Schema};
use delta_kernel::Engine;
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use forebay_formats::{FileStamp, KeptRows, ListedFile, StoredNames, TableFiles, hive};
use forebay_model::{
    ColumnExtent, ContentId, Fault, FileRange, IdBuilder, NameIndex, Result, codes,
};
use forebay_storage::StorageClient;

use super::columns::TableColumns;
use super::engine::TableEngine;
use super::place::{TablePlace, decode, kernel_fault};
use super::snapshot::{LoggedFile, TableSnapshot};
use super::statistics::FileStatistics;

/// Maximum number of rows of a file whose number is not in the log.
const ROWS_MAX: u64 = 1 << 32;

/// Facts about a file that are kept while its table is read.
#[derive(Debug)]
struct FileEntry {
    bytes: u64,
    /// Stored rows, including deleted ones, where the log records them.
    rows: Option<u64>,
    deleted: Option<DeletionVectorDescriptor>,
}

/// A version of a table, while it is read.
pub(super) struct OpenTable {
    place: TablePlace,
    columns: TableColumns,
    version: u64,
    files: HashMap<String, FileEntry>,
    /// Nulls of each column in all files, as the log counts them: deleted rows are among them.
    null_counts: Vec<Option<u64>>,
    /// Kept rows of the file that was requested last: its spans follow each other.
    latest_kept: Mutex<Option<(String, Arc<KeptRows>)>>,
}

impl fmt::Debug for OpenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenTable({})", self.place.root.shown)
    }
}

/// A file with the log's facts about its rows.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) listed: ListedFile,
    pub(super) modified: i64,
    pub(super) piece: FileRange,
    /// Extents of the watched columns that are in the file.
    pub(super) extents: Vec<Option<ColumnExtent>>,
}

impl OpenTable {
    pub(super) fn new(table_place: TablePlace, columns: TableColumns, version: u64) -> OpenTable {
        OpenTable {
            place: table_place,
            null_counts: vec![Some(0); columns.fields.len()],
            columns,
            version,
            files: HashMap::new(),
            latest_kept: Mutex::default(),
        }
    }

    pub(super) fn columns(&self) -> &TableColumns {
        &self.columns
    }

    /// The nulls of columns in all files that were read from the log; `None` where a file does not count them.
    pub(super) fn null_counts_of(&self, columns: &[FieldRef]) -> Vec<Option<u64>> {
        let names = self
            .columns
            .fields
            .iter()
            .map(|field| field.name().as_str());
        let index = NameIndex::new(names);
        let null_count = |column: &FieldRef| *self.null_counts.get(index.get(column.name())?)?;
        columns.iter().map(null_count).collect()
    }

    /// Reads the files of a version from its log, in the order in which they were written: new files come last, and
    /// the spans of the others do not change. `paths` limits them to some, by their paths below the table.
    pub(super) fn read_files(
        &mut self,
        io: &StorageClient,
        table: &TableSnapshot,
        watch: &[String],
        paths: Option<&BTreeSet<String>>,
    ) -> Result<Vec<TableFile>> {
        let mut files = Vec::new();
        table.for_each_file(|file| {
            if let Some(paths) = paths
                && !paths.contains(&decode(&file.path)?)
            {
                return Ok(());
            }
            files.push(self.table_file(io, file, watch)?);
            Ok(())
        })?;
        files.sort_by(|a, b| {
            (a.modified, &a.listed.relative).cmp(&(b.modified, &b.listed.relative))
        });
        Ok(files)
    }

    /// Describes a file of the log, and records it among the files of the table.
    fn table_file(
        &mut self,
        io: &StorageClient,
        file: LoggedFile,
        watch: &[String],
    ) -> Result<TableFile> {
        let statistics = FileStatistics::parse(file.statistics.as_deref());
        let file_place = self.place.file(io, &file.path)?;
        let partition = self.folder_values(&file);
        let deleted_rows = match &file.deleted {
            Some(deleted) => deleted.cardinality.unsigned_abs(),
            None => 0,
        };
        let piece = FileRange {
            path: file_place.path.clone(),
            relative: file_place.relative.clone(),
            row_groups: None,
            row_range: None,
            byte_range: None,
            first_row: 0,
            rows: statistics
                .num_records
                .map(|rows| rows.saturating_sub(deleted_rows)),
            bytes: file.bytes,
            fingerprint: fingerprint(&file_place.relative, &file, &partition),
            partition,
            extents: Vec::new(),
        };
        let mut extents = Vec::with_capacity(watch.len());
        for column in watch {
            extents.push(self.logged_extent(&statistics, column));
        }
        self.count_nulls(&statistics);
        // The log names a file once and for all.
        let stamp = FileStamp::logged(file.bytes, file.modified.to_string());
        let listed = ListedFile {
            path: file_place.path.clone(),
            relative: file_place.relative,
            stamp,
            etag: None,
        };
        let entry = FileEntry {
            bytes: file.bytes,
            rows: statistics.num_records,
            deleted: file.deleted,
        };
        self.files.insert(file_place.path, entry);
        Ok(TableFile {
            listed,
            modified: file.modified,
            piece,
            extents,
        })
    }

    /// The partition columns of a file with their values, as folders name them.
    fn folder_values(&self, file: &LoggedFile) -> Vec<(String, String)> {
        let mut values = Vec::new();
        for column in &self.columns.partitions {
            let logged = file.partition.get(self.columns.logged_name(column));
            // The log has an empty text for null, too.
            let value = logged
                .and_then(|value| value.as_deref())
                .filter(|value| !value.is_empty())
                .unwrap_or(hive::NULL);
            values.push((column.clone(), value.to_owned()));
        }
        values
    }

    fn logged_extent(&self, statistics: &FileStatistics, column: &str) -> Option<ColumnExtent> {
        let data_type = self.columns.data_type(column)?;
        statistics.extent(self.columns.logged_name(column), data_type)
    }

    /// Adds the nulls of a file. A file that does not count them leaves the sum unknown.
    fn count_nulls(&mut self, statistics: &FileStatistics) {
        for (field, total) in self.columns.fields.iter().zip(&mut self.null_counts) {
            let nulls = statistics.nulls(self.columns.logged_name(field.name()));
            *total = (*total).zip(nulls).map(|(total, nulls)| total + nulls);
        }
    }

    /// True if rows of a file were deleted.
    pub(super) fn has_deleted_rows(&self, path: &str) -> bool {
        self.files
            .get(path)
            .is_some_and(|file| file.deleted.is_some())
    }
}

/// Id of the rows of a file. It does not depend on the version of the table, since other versions
/// may have the same file.
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

    fn unlike_log_fault(&self, path: &str, stored_bytes: Option<u64>) -> Fault {
        let version = self.version;
        let Some(stored_bytes) = stored_bytes else {
            let message =
                format!("version {version} of the Delta table names a file that is not there");
            return Fault::new(codes::NOT_FOUND, message).file(path).hint(
                "restore the file, or repair the table (`FSCK REPAIR TABLE`); \
                 a VACUUM removes files of old versions: read a later one",
            );
        };
        let logged_bytes = self.size(path).unwrap_or_default();
        let message = format!(
            "version {version} of the Delta table says that the file has {logged_bytes} bytes, \
             and it has {stored_bytes}"
        );
        let fault = Fault::new(codes::CORRUPT, message).file(path);
        fault.hint("restore the file: files of Delta tables are never written twice")
    }

    fn stored_names<'f>(&'f self, file: &'f Schema) -> StoredNames<'f> {
        Box::new(self.columns.stored_names(file))
    }

    fn with_table_names(&self, column: &str, values: &ArrayRef) -> Result<ArrayRef> {
        self.columns.with_table_names(column, values)
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
        if let Some((_, kept_rows)) = latest.filter(|(of, _)| of == path) {
            return Ok(Some(kept_rows));
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
        let mut bits = BooleanBufferBuilder::new(length as usize);
        bits.append_n(length as usize, true);
        for row in rows.iter() {
            bits.set_bit(row as usize, false);
        }
        let kept_rows = Arc::new(KeptRows::new(bits.finish()));
        if let Ok(mut latest) = self.latest_kept.lock() {
            *latest = Some((path.to_owned(), kept_rows.clone()));
        }
        Ok(Some(kept_rows))
    }
}

/// Stored bytes of each column of a table, estimated from files whose footers were read.
pub(super) fn column_bytes<'f>(
    fields: impl Iterator<Item = &'f str>,
    in_files: &BTreeMap<String, u64>,
    seen: u64,
    bytes_total: u64,
) -> Vec<u64> {
    let seen = u128::from(seen.max(1));
    let mut column_bytes = Vec::new();
    for field in fields {
        let bytes = in_files.get(field).copied().unwrap_or_default();
        let estimate = u128::from(bytes) * u128::from(bytes_total) / seen;
        column_bytes.push(estimate as u64);
    }
    column_bytes
}
