//! A version of a table.

use std::collections::BTreeMap;

use arrow::array::types::Int64Type;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::datatypes::Int32Type;
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::history_manager::{HistoryCommitType, latest_version_as_of};
use delta_kernel::snapshot::SnapshotRef;
use delta_kernel::table_features::TableFeature;
use delta_kernel::{KernelError, KernelResult, Snapshot};
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;

use super::engine::TableEngine;
use super::place::{TablePlace, kernel_fault, no_table_fault};

const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;

/// Milliseconds since 1970 of a time as people write it.
pub(super) fn parse_time(text: &str) -> std::result::Result<i64, String> {
    let nanos =
        string_to_timestamp_nanos(text).map_err(|error| format!("`{text}` is no time: {error}"))?;
    Ok(nanos.div_euclid(NANOSECONDS_PER_MILLISECOND))
}

/// Choice of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionChoice {
    Latest,
    Exactly(u64),
    /// The latest version at or before a time in milliseconds since 1970.
    AsOf(i64),
}

impl VersionChoice {
    /// The fault of a version that cannot be read. A log that is in order may lack the version: `newest` is the newest one
    /// that it has.
    fn explain(self, fault: Fault, newest: Option<u64>, table_name: &str) -> Fault {
        // A log that was cleaned up has lost its first versions: the reader reports a missing table for each of them.
        let is_missing = fault.code() == codes::NO_INPUT && newest.is_some();
        if fault.code() != codes::CORRUPT && !is_missing {
            return fault;
        }
        let (message, hint) = match (self, newest) {
            (VersionChoice::Latest, _) => return fault,
            (VersionChoice::Exactly(version), Some(newest)) if version > newest => (
                format!("the table has no version {version}: its newest is {newest}"),
                "name an earlier one, or leave `version` out".to_owned(),
            ),
            (VersionChoice::Exactly(version), Some(newest)) => (
                format!("the table has no version {version} in its log any more"),
                format!(
                    "a log is cleaned up in time: name a later one, up to {newest}, or leave \
                     `version` out"
                ),
            ),
            (VersionChoice::Exactly(version), None) => (
                format!("the table has no version {version}"),
                "name a later one that the log still has, or leave `version` out".to_owned(),
            ),
            (VersionChoice::AsOf(_), _) => (
                "the table has no version that is so old".to_owned(),
                "name a later time, or leave `timestamp` out".to_owned(),
            ),
        };
        let missing = Fault::new(codes::NO_INPUT, message).cause(fault);
        missing.file(table_name).hint(hint)
    }
}

/// A version of a table.
pub(super) struct TableSnapshot {
    pub(super) engine: TableEngine,
    pub(super) snapshot: SnapshotRef,
    pub(super) shown: String,
}

/// A file of a version of a table, as its log describes it.
#[derive(Debug)]
pub(super) struct LoggedFile {
    /// Path of the file in the log.
    pub(super) path: String,
    pub(super) bytes: u64,
    /// Milliseconds since 1970.
    pub(super) modified: i64,
    /// Partition values by the names of columns in the log; `None` is null.
    pub(super) partition: BTreeMap<String, Option<String>>,
    /// Statistics of the file's values, as JSON.
    pub(super) statistics: Option<String>,
    /// The rows that were deleted of it.
    pub(super) deleted: Option<DeletionVectorDescriptor>,
}

/// True for features of a table's protocol that this reader supports.
fn is_supported(feature: &TableFeature) -> bool {
    use TableFeature::*;
    matches!(
        feature,
        ColumnMapping
            | DeletionVectors
            | TimestampWithoutTimezone
            | TypeWidening
            | TypeWideningPreview
            | V2Checkpoint
            | VacuumProtocolCheck
    )
}

impl TableSnapshot {
    /// Finds a version of a table; `None` if there is no table.
    pub(super) fn find(
        io: &StorageClient,
        table_place: &TablePlace,
        choice: VersionChoice,
    ) -> Result<Option<Self>> {
        let table_name = table_place.root.shown.clone();
        if table_place.root.is_web() {
            let fault = Fault::new(
                codes::UNSUPPORTED,
                "a Delta table needs listings, and a web server gives no listings",
            );
            return Err(fault
                .file(&table_name)
                .hint("use s3://, gs:// or az://, or copy the table"));
        }
        if !table_place.has_log(io)? {
            return Ok(None);
        }
        let engine = TableEngine::new(io, table_place);
        let snapshot = match open(&engine, table_place, choice) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let fault = kernel_fault(error, &table_name);
                // The directory of a log is there before the first commit.
                if choice == VersionChoice::Latest && fault.code() == codes::NO_INPUT {
                    return Ok(None);
                }
                let newest = if choice == VersionChoice::Latest {
                    None
                } else {
                    open(&engine, table_place, VersionChoice::Latest).ok()
                };
                let newest = newest.map(|snapshot| snapshot.version());
                return Err(choice.explain(fault, newest, &table_name));
            }
        };
        Ok(Some(TableSnapshot {
            engine,
            snapshot,
            shown: table_name,
        }))
    }

    /// Finds a version of a table that can be read.
    pub(super) fn open(
        io: &StorageClient,
        table_place: &TablePlace,
        choice: VersionChoice,
    ) -> Result<Self> {
        let latest = TableSnapshot::find(io, table_place, choice)?;
        let table_snapshot = latest.ok_or_else(|| no_table_fault(&table_place.root.shown))?;
        let protocol = table_snapshot.snapshot.table_configuration().protocol();
        let unknown = protocol
            .reader_features()
            .into_iter()
            .flatten()
            .find(|feature| !is_supported(feature));
        match unknown {
            Some(feature) => {
                let message = format!(
                    "the Delta table needs the reader feature `{feature}`, which Forebay lacks"
                );
                let fault = Fault::new(codes::UNSUPPORTED, message).file(&table_snapshot.shown);
                Err(fault.hint(
                    "turn the feature off in the program that wrote the table, or \
                     export it to Parquet",
                ))
            }
            None => Ok(table_snapshot),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.snapshot.version()
    }

    /// Fault for an error of the kernel.
    pub(super) fn fault(&self, error: KernelError) -> Fault {
        kernel_fault(error, &self.shown)
    }

    /// Stored bytes of the commits and checkpoints of the version.
    fn log_bytes(&self) -> u64 {
        let listed = &self.snapshot.log_segment().listed;
        let commits = listed.ascending_commit_files.iter();
        let files = commits
            .chain(&listed.ascending_compaction_files)
            .chain(&listed.checkpoint_parts);
        files.fold(0, |bytes: u64, file| {
            bytes.saturating_add(file.location.size)
        })
    }

    /// Calls back with each file of the version.
    pub(super) fn for_each_file(
        &self,
        mut on_file: impl FnMut(LoggedFile) -> Result<()>,
    ) -> Result<()> {
        let scan = self
            .snapshot
            .clone()
            .scan_builder()
            .without_row_transforms()
            .build()
            .map_err(|error| self.fault(error))?;
        let log_bytes = self.log_bytes();
        let parts = scan
            .scan_metadata(&self.engine)
            .map_err(|error| self.fault(error))?;
        for part in parts {
            let part = part.map_err(|error| self.fault(error))?;
            let (data, selected) = part.scan_files.into_parts();
            let data =
                ArrowEngineData::try_from_engine_data(data).map_err(|error| self.fault(error))?;
            let rows: RecordBatch = data.into();
            let decoded_bytes = rows.get_array_memory_size() as u64;
            let reserved = self.engine.reserve_list(decoded_bytes, log_bytes);
            let _reservation = reserved.map_err(|fault| fault.file(&self.shown))?;
            for row in 0..rows.num_rows() {
                // The kernel cuts the selection where all further rows are selected.
                if !selected.get(row).copied().unwrap_or(true) {
                    continue;
                }
                let file = logged_file(&rows, row).map_err(|error| self.fault(error))?;
                if let Some(file) = file {
                    on_file(file)?;
                }
            }
        }
        Ok(())
    }
}

fn open(
    engine: &TableEngine,
    table_place: &TablePlace,
    choice: VersionChoice,
) -> KernelResult<SnapshotRef> {
    let version = match choice {
        VersionChoice::Latest => None,
        VersionChoice::Exactly(version) => Some(version),
        VersionChoice::AsOf(time) => {
            let latest = Snapshot::builder_for(table_place.url.as_str()).build(engine)?;
            Some(
                latest_version_as_of(&latest, engine, time, HistoryCommitType::Recreatable)?
                    .version,
            )
        }
    };
    let builder = Snapshot::builder_for(table_place.url.as_str());
    match version {
        Some(version) => builder.at_version(version).build(engine),
        None => builder.build(engine),
    }
}

/// The file in a row of the kernel's scan; `None` for a row of another action.
fn logged_file(rows: &RecordBatch, row: usize) -> KernelResult<Option<LoggedFile>> {
    let action = ScanRow { rows, row };
    let Some(path) = action.text("path")? else {
        return Ok(None);
    };
    let bytes = action.long("size")?;
    let bytes = u64::try_from(bytes).map_err(|_| KernelError::missing_data("size"))?;
    Ok(Some(LoggedFile {
        path,
        bytes,
        modified: action.long("modificationTime")?,
        partition: action.partition()?,
        statistics: action.text("stats")?,
        deleted: action.deleted()?,
    }))
}

/// A row of the kernel's scan, which describes one action of the log.
struct ScanRow<'r> {
    rows: &'r RecordBatch,
    row: usize,
}

impl<'r> ScanRow<'r> {
    fn column(&self, name: &str) -> KernelResult<&'r ArrayRef> {
        let column = self.rows.column_by_name(name);
        column.ok_or_else(|| KernelError::missing_column(name))
    }

    fn record(&self, name: &str) -> KernelResult<&'r StructArray> {
        let record = self.column(name)?.as_struct_opt();
        record.ok_or_else(|| KernelError::missing_column(name))
    }

    fn text(&self, name: &str) -> KernelResult<Option<String>> {
        text_at(self.column(name)?, self.row)
    }

    fn long(&self, name: &str) -> KernelResult<i64> {
        let numbers = self.column(name)?.as_primitive_opt::<Int64Type>();
        let numbers = numbers.ok_or_else(|| KernelError::missing_column(name))?;
        if numbers.is_null(self.row) {
            return Err(KernelError::missing_data(name));
        }
        Ok(numbers.value(self.row))
    }

    fn partition(&self) -> KernelResult<BTreeMap<String, Option<String>>> {
        let missing = || KernelError::missing_column("partitionValues");
        let constants = self.record("fileConstantValues")?;
        let maps = constants
            .column_by_name("partitionValues")
            .and_then(|values| values.as_map_opt())
            .ok_or_else(missing)?;
        let mut partition = BTreeMap::new();
        if maps.is_null(self.row) {
            return Ok(partition);
        }
        let entries = maps.value(self.row);
        let keys = entries.column(0).as_string_opt::<i32>();
        let keys = keys.ok_or_else(missing)?;
        let values = entries.column(1).as_string_opt::<i32>();
        let values = values.ok_or_else(missing)?;
        for (key, value) in keys.iter().zip(values) {
            let key = key.unwrap_or_default();
            partition.insert(key.to_owned(), value.map(str::to_owned));
        }
        Ok(partition)
    }

    fn deleted(&self) -> KernelResult<Option<DeletionVectorDescriptor>> {
        let vectors = self.record("deletionVector")?;
        let kind = text_at(part(vectors, "storageType")?, self.row)?;
        // A null record may have parts that are not null.
        let Some(kind) = kind.filter(|_| vectors.is_valid(self.row)) else {
            return Ok(None);
        };
        let cardinality = part(vectors, "cardinality")?.as_primitive_opt::<Int64Type>();
        let cardinality = cardinality.ok_or_else(|| KernelError::missing_column("cardinality"))?;
        let path = text_at(part(vectors, "pathOrInlineDv")?, self.row)?;
        let bytes = int_at(vectors, "sizeInBytes", self.row)?;
        let vector = DeletionVectorDescriptor::try_new(
            kind.parse()?,
            path.ok_or_else(|| KernelError::missing_data("pathOrInlineDv"))?,
            int_at(vectors, "offset", self.row)?,
            bytes.ok_or_else(|| KernelError::missing_data("sizeInBytes"))?,
            cardinality.value(self.row),
        )?;
        Ok(Some(vector))
    }
}

fn part<'r>(record: &'r StructArray, name: &str) -> KernelResult<&'r ArrayRef> {
    let part = record.column_by_name(name);
    part.ok_or_else(|| KernelError::missing_column(name))
}

fn text_at(array: &ArrayRef, row: usize) -> KernelResult<Option<String>> {
    let texts = array.as_string_opt::<i32>();
    let texts = texts.ok_or_else(|| KernelError::unexpected_column_type("text"))?;
    if texts.is_null(row) {
        return Ok(None);
    }
    Ok(Some(texts.value(row).to_owned()))
}

fn int_at(record: &StructArray, name: &str, row: usize) -> KernelResult<Option<i32>> {
    let numbers = part(record, name)?.as_primitive_opt::<Int32Type>();
    let numbers = numbers.ok_or_else(|| KernelError::missing_column(name))?;
    if numbers.is_null(row) {
        return Ok(None);
    }
    Ok(Some(numbers.value(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_not_there_is_told_from_no_table() {
        let unreadable = || Fault::new(codes::CORRUPT, "the log cannot be read");
        let no_table = || no_table_fault("t");
        for (version, fault, newest, expected) in [
            (9, unreadable(), Some(4), "no version 9: its newest is 4"),
            (2, no_table(), Some(4), "no version 2 in its log any more"),
            (2, unreadable(), None, "no version 2"),
            (2, no_table(), None, "there is no Delta table here"),
        ] {
            let explained = VersionChoice::Exactly(version).explain(fault, newest, "t");
            let said = explained.message();
            assert!(said.contains(expected), "{version}: {said}");
        }
    }
}
