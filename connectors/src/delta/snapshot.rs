//! One version of a table.

use std::collections::BTreeMap;

use arrow::array::types::Int64Type;
use arrow::array::{Array, AsArray, RecordBatch};
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

/// Which version is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionChoice {
    Latest,
    Exactly(u64),
    /// The latest one at or before so many milliseconds since 1970.
    AsOf(i64),
}

/// One version of a table.
pub(super) struct TableSnapshot {
    pub(super) engine: TableEngine,
    pub(super) snapshot: SnapshotRef,
    pub(super) shown: String,
}

/// A file of a version of a table, as its log describes it.
#[derive(Debug)]
pub(super) struct LoggedFile {
    /// As the log writes it.
    pub(super) path: String,
    pub(super) bytes: u64,
    /// Milliseconds since 1970.
    pub(super) modified: i64,
    /// By the names of columns in the log; `None` is null.
    pub(super) partition: BTreeMap<String, Option<String>>,
    /// What it says of its values, as JSON.
    pub(super) statistics: Option<String>,
    /// The rows that were deleted of it.
    pub(super) deleted: Option<DeletionVectorDescriptor>,
}

/// What a reader must know of a table's protocol, and does.
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
    /// Finds a version of a table. `None`: there is no table.
    pub(super) fn find(
        io: &StorageClient,
        place: &TablePlace,
        choice: VersionChoice,
    ) -> Result<Option<Self>> {
        let shown = place.root.shown.clone();
        if place.root.is_web() {
            let fault = Fault::new(
                codes::UNSUPPORTED,
                "a Delta table needs listings, and a web server gives no listings",
            );
            return Err(fault
                .file(&shown)
                .hint("use s3://, gs:// or az://, or copy the table"));
        }
        if !place.has_log(io)? {
            return Ok(None);
        }
        let engine = TableEngine::new(io, place);
        let snapshot = open(&engine, place, choice).map_err(|error| {
            match (choice, kernel_fault(error, &shown)) {
                (VersionChoice::Latest, fault) => fault,
                (_, fault) if fault.code() != codes::CORRUPT => fault,
                (VersionChoice::Exactly(version), fault) => {
                    let fault = Fault::new(
                        codes::NO_INPUT,
                        format!("the table has no version {version}"),
                    )
                    .cause(fault);
                    fault
                        .file(&shown)
                        .hint("name a later one that the log still has, or leave `version` out")
                }
                (VersionChoice::AsOf(_), fault) => {
                    let fault =
                        Fault::new(codes::NO_INPUT, "the table has no version that is so old")
                            .cause(fault);
                    fault
                        .file(&shown)
                        .hint("name a later time, or leave `timestamp` out")
                }
            }
        });
        match snapshot {
            // The directory of a log is there before the first commit.
            Err(fault) if choice == VersionChoice::Latest && fault.code() == codes::NO_INPUT => {
                Ok(None)
            }
            snapshot => Ok(Some(TableSnapshot {
                engine,
                snapshot: snapshot?,
                shown,
            })),
        }
    }

    /// Finds a version of a table that can be read.
    pub(super) fn open(
        io: &StorageClient,
        place: &TablePlace,
        choice: VersionChoice,
    ) -> Result<Self> {
        let found = TableSnapshot::find(io, place, choice)?;
        let found = found.ok_or_else(|| no_table_fault(&place.root.shown))?;
        let protocol = found.snapshot.table_configuration().protocol();
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
                let fault = Fault::new(codes::UNSUPPORTED, message).file(&found.shown);
                Err(fault.hint("turn the feature off in the program that wrote the table, or export it to Parquet"))
            }
            None => Ok(found),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.snapshot.version()
    }

    /// A fault for what the kernel answered.
    pub(super) fn fault(&self, error: KernelError) -> Fault {
        kernel_fault(error, &self.shown)
    }

    /// Calls back with each file of the version.
    pub(super) fn for_each_file(
        &self,
        mut found: impl FnMut(LoggedFile) -> Result<()>,
    ) -> Result<()> {
        let scan = self
            .snapshot
            .clone()
            .scan_builder()
            .without_row_transforms()
            .build();
        let scan = scan.map_err(|error| self.fault(error))?;
        for part in scan
            .scan_metadata(&self.engine)
            .map_err(|error| self.fault(error))?
        {
            let part = part.map_err(|error| self.fault(error))?;
            let (data, selected) = part.scan_files.into_parts();
            let data =
                ArrowEngineData::try_from_engine_data(data).map_err(|error| self.fault(error))?;
            let rows: RecordBatch = data.into();
            for row in 0..rows.num_rows() {
                if selected.get(row).copied().unwrap_or(true) {
                    let file = logged_file(&rows, row).map_err(|error| self.fault(error))?;
                    file.map_or(Ok(()), &mut found)?;
                }
            }
        }
        Ok(())
    }
}

fn open(
    engine: &TableEngine,
    place: &TablePlace,
    choice: VersionChoice,
) -> KernelResult<SnapshotRef> {
    let version = match choice {
        VersionChoice::Latest => None,
        VersionChoice::Exactly(version) => Some(version),
        VersionChoice::AsOf(time) => {
            let latest = Snapshot::builder_for(place.url.as_str()).build(engine)?;
            Some(
                latest_version_as_of(&latest, engine, time, HistoryCommitType::Recreatable)?
                    .version,
            )
        }
    };
    let builder = Snapshot::builder_for(place.url.as_str());
    match version {
        Some(version) => builder.at_version(version).build(engine),
        None => builder.build(engine),
    }
}

/// The file of a row of the kernel's answer.
fn logged_file(rows: &RecordBatch, row: usize) -> KernelResult<Option<LoggedFile>> {
    let missing = |name: &str| KernelError::missing_column(name);
    let column = |name: &str| rows.column_by_name(name).ok_or_else(|| missing(name));
    let text = |array: &dyn Array| -> KernelResult<Option<String>> {
        let texts = array
            .as_string_opt::<i32>()
            .ok_or_else(|| KernelError::unexpected_column_type("text"))?;
        Ok(texts.is_valid(row).then(|| texts.value(row).to_owned()))
    };
    let long = |name: &str| -> KernelResult<i64> {
        let longs = column(name)?
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(|| missing(name))?;
        if longs.is_valid(row) {
            Ok(longs.value(row))
        } else {
            Err(KernelError::missing_data(name))
        }
    };
    let Some(path) = text(column("path")?)? else {
        return Ok(None);
    };
    let constants = column("fileConstantValues")?
        .as_struct_opt()
        .ok_or_else(|| missing("fileConstantValues"))?;
    let values = constants
        .column_by_name("partitionValues")
        .and_then(|values| values.as_map_opt());
    let values = values.ok_or_else(|| missing("partitionValues"))?;
    let mut partition = BTreeMap::new();
    if values.is_valid(row) {
        let entries = values.value(row);
        let both = entries
            .column(0)
            .as_string_opt::<i32>()
            .zip(entries.column(1).as_string_opt::<i32>());
        let (keys, values) = both.ok_or_else(|| missing("partitionValues"))?;
        for (key, value) in keys.iter().zip(values) {
            partition.insert(key.unwrap_or_default().to_owned(), value.map(str::to_owned));
        }
    }
    let vector = column("deletionVector")?
        .as_struct_opt()
        .ok_or_else(|| missing("deletionVector"))?;
    let part = |name: &str| vector.column_by_name(name).ok_or_else(|| missing(name));
    let deleted = match text(part("storageType")?)? {
        Some(kind) if vector.is_valid(row) => {
            let int = |name: &str| -> KernelResult<Option<i32>> {
                let ints = part(name)?
                    .as_primitive_opt::<Int32Type>()
                    .ok_or_else(|| missing(name))?;
                Ok(ints.is_valid(row).then(|| ints.value(row)))
            };
            let rows = part("cardinality")?
                .as_primitive_opt::<Int64Type>()
                .ok_or_else(|| missing("cardinality"))?;
            let place = text(part("pathOrInlineDv")?)?
                .ok_or_else(|| KernelError::missing_data("pathOrInlineDv"))?;
            let bytes =
                int("sizeInBytes")?.ok_or_else(|| KernelError::missing_data("sizeInBytes"))?;
            Some(DeletionVectorDescriptor::try_new(
                kind.parse()?,
                place,
                int("offset")?,
                bytes,
                rows.value(row),
            )?)
        }
        _ => None,
    };
    let bytes = u64::try_from(long("size")?).map_err(|_| KernelError::missing_data("size"))?;
    let (modified, statistics) = (long("modificationTime")?, text(column("stats")?)?);
    Ok(Some(LoggedFile {
        path,
        bytes,
        modified,
        partition,
        statistics,
        deleted,
    }))
}
