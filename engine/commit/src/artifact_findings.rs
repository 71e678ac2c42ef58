//! Findings in an artifact: short ones as JSON, long ones in Parquet files.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    UInt64Array,
};
use arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef, UInt64Type};
use bytes::Bytes;
use forebay_model::{FINDING_JSON_ROWS_MAX, Fault, Finding, Result};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use serde_json::{Map, Value, json};

use crate::artifact_parts::{LearnedFinding, corrupt_fault, simple_types};

/// Long findings up to which each has a file of its own.
const FINDING_FILES_MAX: usize = 16;

/// Rows of a finding that shares a file, and of such a file, at most.
const GROUPED_FINDING_ROWS_MAX: usize = 1 << 16;
const GROUPED_FILE_ROWS_MAX: usize = 1 << 20;

/// The file of the findings of which this one is the first.
pub fn finding_file(first: usize) -> String {
    format!("findings/{first}.parquet")
}

/// Divides the findings that are not in `artifact.json` into files, in the order of the first finding of each.
pub fn group_findings(findings: &[LearnedFinding], tables: &[Option<Value>]) -> Vec<Vec<usize>> {
    let long: Vec<usize> = (0..findings.len())
        .filter(|index| tables[*index].is_none())
        .collect();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    // The group that the next finding with the same columns joins, and its rows.
    let mut open: Vec<(SchemaRef, usize, usize)> = Vec::new();
    for index in &long {
        let table = findings[*index].finding.table();
        let rows = table.num_rows();
        if long.len() <= FINDING_FILES_MAX || !(1..=GROUPED_FINDING_ROWS_MAX).contains(&rows) {
            groups.push(vec![*index]);
            continue;
        }
        match open
            .iter_mut()
            .find(|(schema, ..)| *schema == table.schema())
        {
            Some((_, group, group_rows)) if *group_rows + rows <= GROUPED_FILE_ROWS_MAX => {
                groups[*group].push(*index);
                *group_rows += rows;
            }
            slot => {
                let opened = (table.schema(), groups.len(), rows);
                match slot {
                    Some(slot) => *slot = opened,
                    None => open.push(opened),
                }
                groups.push(vec![*index]);
            }
        }
    }
    groups
}

/// A short table of simple columns as `{column: {type, values}}`; numbers keep their bits.
pub fn finding_json(finding: &Finding) -> Option<Value> {
    let table = finding.table();
    if table.num_rows() > FINDING_JSON_ROWS_MAX {
        return None;
    }
    let mut columns = Map::new();
    for (field, column) in table.schema_ref().fields().iter().zip(table.columns()) {
        let values: Vec<Value> = match field.data_type() {
            DataType::Float64 => column
                .as_primitive::<Float64Type>()
                .iter()
                .map(number_json)
                .collect(),
            DataType::UInt64 => column
                .as_primitive::<UInt64Type>()
                .iter()
                .map(|v| json!(v))
                .collect(),
            DataType::Int64 => column
                .as_primitive::<Int64Type>()
                .iter()
                .map(|v| json!(v))
                .collect(),
            DataType::Utf8 => column.as_string::<i32>().iter().map(|v| json!(v)).collect(),
            DataType::Boolean => column.as_boolean().iter().map(|v| json!(v)).collect(),
            _ => return None,
        };
        let (name, _) = simple_types()
            .into_iter()
            .find(|(_, data_type)| data_type == field.data_type())?;
        columns.insert(
            field.name().clone(),
            json!({ "type": name, "values": values }),
        );
    }
    Some(Value::Object(columns))
}

/// A number, or the name of one that JSON does not have.
fn number_json(value: Option<f64>) -> Value {
    match value {
        None => Value::Null,
        Some(value) if value.is_nan() => "nan".into(),
        Some(value) if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.into(),
        Some(value) => json!(value),
    }
}

pub fn finding_from_json(value: &Value) -> Result<Finding> {
    let broken = || corrupt_fault("a finding of the artifact cannot be read");
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    for (name, column) in value.as_object().ok_or_else(broken)? {
        let values = column["values"].as_array().ok_or_else(broken)?.iter();
        let array: ArrayRef = match column["type"].as_str() {
            Some("float64") => Arc::new(
                values
                    .map(|value| match value.as_str() {
                        Some("nan") => Some(f64::NAN),
                        Some("inf") => Some(f64::INFINITY),
                        Some("-inf") => Some(f64::NEG_INFINITY),
                        _ => value.as_f64(),
                    })
                    .collect::<Float64Array>(),
            ),
            Some("uint64") => Arc::new(values.map(Value::as_u64).collect::<UInt64Array>()),
            Some("int64") => Arc::new(values.map(Value::as_i64).collect::<Int64Array>()),
            Some("string") => Arc::new(values.map(Value::as_str).collect::<StringArray>()),
            Some("boolean") => Arc::new(values.map(Value::as_bool).collect::<BooleanArray>()),
            _ => return Err(broken()),
        };
        columns.push((name, array));
    }
    Finding::of(columns)
}

/// A file of findings with the same columns.
pub fn findings_parquet<'f>(findings: impl Iterator<Item = &'f Finding>) -> Result<Vec<u8>> {
    let fault = |error| Fault::internal("a finding cannot be written").cause(error);
    let mut findings = findings.peekable();
    let Some(schema) = findings.peek().map(|first| first.table().schema()) else {
        return Ok(Vec::new());
    };
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, None).map_err(fault)?;
    for finding in findings {
        writer.write(finding.table()).map_err(fault)?;
        writer.flush().map_err(fault)?;
    }
    writer.close().map_err(fault)?;
    Ok(bytes)
}

/// File of findings in memory.
pub struct FindingFile {
    bytes: Bytes,
    metadata: ArrowReaderMetadata,
}

impl FindingFile {
    fn broken(error: parquet::errors::ParquetError) -> Fault {
        corrupt_fault("a finding of the artifact is broken").cause(error)
    }

    pub fn open(bytes: Bytes) -> Result<Self> {
        let metadata =
            ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new()).map_err(Self::broken)?;
        Ok(FindingFile { bytes, metadata })
    }

    /// The finding of a row group, or of the whole file.
    pub fn finding(&self, row_group: Option<usize>) -> Result<Finding> {
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.bytes.clone(),
            self.metadata.clone(),
        );
        if let Some(row_group) = row_group {
            if row_group >= self.metadata.metadata().num_row_groups() {
                return Err(corrupt_fault(
                    "a finding of the artifact is missing from its file",
                ));
            }
            builder = builder.with_row_groups(vec![row_group]);
        }
        let schema = builder.schema().clone();
        let batches = builder
            .build()
            .map_err(Self::broken)?
            .collect::<Result<Vec<RecordBatch>, _>>()?;
        Ok(Finding::new(arrow::compute::concat_batches(
            &schema, &batches,
        )?))
    }
}
