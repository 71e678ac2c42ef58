//! Checks that a run may write to a table, and finds the changes of the table's columns that it
//! needs.

use delta_kernel::schema::StructField;
use delta_kernel::table_features::ColumnMappingMode;
use forebay_model::{Fault, Result, codes};
use serde_json::Value;

use crate::snapshot::TableSnapshot;

use super::actions;
use super::config::{AddedTableColumns, DeltaMode, DeltaSink};
use super::schema::WrittenColumns;

/// The latest version of the protocol whose features are listed by name.
const WRITER_VERSION_MAX: i32 = 7;

/// Features without requirements for a writer that adds and removes whole files, or whose
/// conditions are checked here.
const FEATURES: [&str; 15] = [
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
];

/// Prefixes of keys by which a schema requires a writer to compute or check values.
const COLUMN_RULES: [&str; 3] = [
    "delta.invariants",
    "delta.generationExpression",
    "delta.identity.",
];

/// Settings of a table that restrict writers.
const CONSTRAINTS: &str = "delta.constraints.";
const APPEND_ONLY: &str = "delta.appendOnly";

/// Refuses a table that the run cannot write. Returns the action that adds the columns that the
/// table lacks, if there are some and they may be added.
pub(super) fn check_writable(
    table: &TableSnapshot,
    columns: &WrittenColumns,
    config: &DeltaSink,
) -> Result<Option<Value>> {
    check_features(table, config.mode)?;
    check_columns(table, columns, config.added_columns)
}

fn check_features(table: &TableSnapshot, mode: DeltaMode) -> Result<()> {
    let configuration = table.snapshot.table_configuration();
    let protocol = configuration.protocol();
    if protocol.min_writer_version() > WRITER_VERSION_MAX {
        let version = protocol.min_writer_version();
        let message = format!("the Delta table needs writer version {version}");
        return Err(unwritable_fault(table, message));
    }
    for feature in protocol.writer_features().into_iter().flatten() {
        let feature = feature.to_string();
        if !FEATURES.contains(&feature.as_str()) {
            let message = format!(
                "the Delta table needs the writer feature `{feature}`, which Forebay lacks"
            );
            return Err(unwritable_fault(table, message));
        }
    }
    if configuration.column_mapping_mode() != ColumnMappingMode::None {
        let message = "the Delta table maps columns, so Forebay can only read it".to_owned();
        return Err(unwritable_fault(table, message));
    }
    let settings = configuration.metadata().configuration();
    if let Some(key) = settings.keys().find(|key| key.starts_with(CONSTRAINTS)) {
        let rule = key.trim_start_matches(CONSTRAINTS);
        let message = format!("the Delta table has the constraint `{rule}`");
        return Err(unwritable_fault(table, message));
    }
    let append_only = settings
        .get(APPEND_ONLY)
        .is_some_and(|set| set.eq_ignore_ascii_case("true"));
    if mode == DeltaMode::Overwrite && append_only {
        let message = "rows may only be added to the Delta table, and the sink replaces them";
        let fault = Fault::new(codes::UNSUPPORTED, message).file(&table.shown);
        return Err(fault.hint("write `mode: append`, or write to another table"));
    }
    for field in table.snapshot.schema().fields() {
        let mut keys = field.metadata.keys();
        if let Some(rule) = keys.find(|key| is_column_rule(key)) {
            let name = field.name();
            let message = format!("the column `{name}` of the Delta table has a rule, `{rule}`");
            return Err(unwritable_fault(table, message));
        }
    }
    Ok(())
}

fn is_column_rule(key: &str) -> bool {
    COLUMN_RULES.iter().any(|rule| key.starts_with(rule))
}

/// The fault of a table with something that only other programs write.
fn unwritable_fault(table: &TableSnapshot, message: String) -> Fault {
    let fault = Fault::new(codes::UNSUPPORTED, message).file(&table.shown);
    fault.hint("write to another table, or turn it off in the program that made the table")
}

fn check_columns(
    table: &TableSnapshot,
    columns: &WrittenColumns,
    policy: AddedTableColumns,
) -> Result<Option<Value>> {
    let of_table = table.snapshot.schema();
    let partitions = table
        .snapshot
        .table_configuration()
        .logical_partition_columns();
    let refused = |message: String, hint: &str| {
        Err(Fault::new(codes::SCHEMA_DRIFT, message)
            .file(&table.shown)
            .hint(hint))
    };
    if partitions != columns.partition_by.as_slice() {
        let message = format!(
            "the Delta table is partitioned by {:?}, and the sink by {:?}",
            partitions, columns.partition_by
        );
        return refused(
            message,
            "write the `partition_by` of the table, or write to another table",
        );
    }
    let missing = of_table
        .fields()
        .filter(|field| columns.fields.field(field.name()).is_none());
    let missing: Vec<&str> = missing.map(|field| field.name().as_str()).collect();
    if !missing.is_empty() {
        let message = format!(
            "the Delta table has columns that the rows lack: {}",
            names(&missing)
        );
        return refused(message, "add them to the rows, or write to another table");
    }
    for field in columns.fields.fields() {
        let Some(table_field) = of_table.field(field.name()) else {
            continue;
        };
        if table_field.data_type() != field.data_type() {
            let message = format!(
                "the column `{}` is {} in the Delta table, and {} in the rows",
                field.name(),
                table_field.data_type(),
                field.data_type()
            );
            let fault = Fault::new(codes::SCHEMA_DRIFT, message)
                .file(&table.shown)
                .column(field.name());
            return Err(fault.hint("cast the column, or write to another table"));
        }
        if !table_field.is_nullable() {
            return refused(
                format!(
                    "the column `{}` of the Delta table must not be null, which Forebay cannot \
                     promise",
                    field.name()
                ),
                "let the table's column be nullable, or write to another table",
            );
        }
    }
    let added = columns
        .fields
        .fields()
        .map(StructField::name)
        .filter(|name| of_table.field(name.as_str()).is_none());
    let added: Vec<&str> = added.map(String::as_str).collect();
    match (added.is_empty(), policy) {
        (true, _) => Ok(None),
        (false, AddedTableColumns::Refuse) => refused(
            format!(
                "the rows have columns that the Delta table lacks: {}",
                names(&added)
            ),
            "drop them, write `added_columns: add`, or write to another table",
        ),
        (false, AddedTableColumns::Add) => {
            let schema = columns.with_added(of_table.fields(), &added)?;
            if columns.has_local_times() && !knows_local_times(table) {
                return refused(
                    "the Delta table does not know timestamps without a zone, which the rows have"
                        .to_owned(),
                    "cast them to timestamps in UTC, or write to another table",
                );
            }
            Ok(Some(actions::changed_metadata(
                table.snapshot.table_configuration().metadata(),
                &schema,
                partitions,
            )))
        }
    }
}

fn knows_local_times(table: &TableSnapshot) -> bool {
    let protocol = table.snapshot.table_configuration().protocol();
    protocol
        .writer_features()
        .into_iter()
        .flatten()
        .any(|feature| feature.to_string() == "timestampNtz")
}

fn names(columns: &[&str]) -> String {
    columns
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
