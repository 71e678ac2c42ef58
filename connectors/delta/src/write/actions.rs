//! The actions of a commit, as the log writes them.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use delta_kernel::actions::Metadata;
use forebay_model::Result;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::snapshot::LoggedFile;

use super::config::DeltaMode;
use super::schema::{WrittenColumns, schema_text};

/// Characters that are not escaped in paths of URLs and that our own paths often have.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b'=');

/// Milliseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The action that describes a commit.
pub(super) fn commit_info(
    time: i64,
    mode: DeltaMode,
    partition_by: &[String],
    predicate: Option<&str>,
) -> Value {
    let name = match mode {
        DeltaMode::Append => "Append",
        DeltaMode::Overwrite => "Overwrite",
    };
    let mut parameters = json!({ "mode": name, "partitionBy": json!(partition_by).to_string() });
    if let Some(predicate) = predicate {
        parameters["predicate"] = json!(predicate);
    }
    json!({ "commitInfo": {
        "timestamp": time,
        "operation": "WRITE",
        "operationParameters": parameters,
        "isBlindAppend": mode == DeltaMode::Append,
        "engineInfo": concat!("forebay/", env!("CARGO_PKG_VERSION")),
        "txnId": Uuid::new_v4().to_string(),
    } })
}

/// The action that describes a commit which only changes the division of rows over files.
pub(super) fn optimize_info(time: i64) -> Value {
    json!({ "commitInfo": {
        "timestamp": time,
        "operation": "OPTIMIZE",
        "operationParameters": {},
        "engineInfo": concat!("forebay/", env!("CARGO_PKG_VERSION")),
        "txnId": Uuid::new_v4().to_string(),
    } })
}

/// The protocol and the metadata of a table that is made.
pub(super) fn new_table(time: i64, columns: &WrittenColumns) -> Result<[Value; 2]> {
    let protocol = if columns.has_local_times() {
        json!({
            "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"],
            "writerFeatures": ["appendOnly", "invariants", "timestampNtz"],
        })
    } else {
        json!({ "minReaderVersion": 1, "minWriterVersion": 2 })
    };
    let metadata = json!({
        "id": Uuid::new_v4().to_string(),
        "format": { "provider": "parquet", "options": {} },
        "schemaString": schema_text(&columns.fields)?,
        "partitionColumns": columns.partition_by,
        "configuration": {},
        "createdTime": time,
    });
    Ok([
        json!({ "protocol": protocol }),
        json!({ "metaData": metadata }),
    ])
}

/// The metadata of a table with another schema.
pub(super) fn changed_metadata(
    metadata: &Metadata,
    schema: &str,
    partition_by: &[String],
) -> Value {
    let mut changed = json!({
        "id": metadata.id(),
        "format": { "provider": metadata.format_provider(), "options": metadata.format_options() },
        "schemaString": schema,
        "partitionColumns": partition_by,
        "configuration": metadata.configuration(),
    });
    let optional = [
        ("name", metadata.name().map(Value::from)),
        ("description", metadata.description().map(Value::from)),
        ("createdTime", metadata.created_time().map(Value::from)),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            changed[key] = value;
        }
    }
    json!({ "metaData": changed })
}

/// The transaction of an application: it is committed once.
pub(super) fn transaction(app_id: &str, version: u64, time: i64) -> Value {
    json!({ "txn": { "appId": app_id, "version": version, "lastUpdated": time } })
}

/// Action that removes a file from the table.
pub(super) fn remove(file: &LoggedFile, time: i64, data_change: bool) -> Value {
    let mut remove = json!({
        "path": file.path,
        "deletionTimestamp": time,
        "dataChange": data_change,
        "extendedFileMetadata": true,
        "partitionValues": file.partition,
        "size": file.bytes,
    });
    if let Some(deleted) = &file.deleted {
        let mut vector = json!({
            "storageType": deleted.storage_type.to_string(),
            "pathOrInlineDv": deleted.path_or_inline_dv,
            "sizeInBytes": deleted.size_in_bytes,
            "cardinality": deleted.cardinality,
        });
        if let Some(offset) = deleted.offset {
            vector["offset"] = json!(offset);
        }
        remove["deletionVector"] = vector;
    }
    json!({ "remove": remove })
}

/// A file to add.
#[derive(Debug, Clone)]
pub(super) struct AddedFile {
    /// Relative to the table.
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) partition: BTreeMap<String, Option<String>>,
    /// Statistics, as JSON.
    pub(super) statistics: String,
}

/// Adds a file to the table. Readers order the files of a commit by `modified`.
pub(super) fn add(file: &AddedFile, modified: i64, data_change: bool) -> Value {
    json!({ "add": {
        "path": utf8_percent_encode(&file.path, PATH).to_string(),
        "partitionValues": file.partition,
        "size": file.bytes,
        "modificationTime": modified,
        "dataChange": data_change,
        "stats": file.statistics,
    } })
}

/// The text of a commit.
pub(super) fn commit_text(actions: &[Value]) -> String {
    actions.iter().map(|action| format!("{action}\n")).collect()
}
