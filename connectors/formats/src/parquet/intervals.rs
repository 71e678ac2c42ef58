//! Lengths of time of the type `INTERVAL`: months, days and milliseconds.
//!
//! The decoder reads months alone or days and milliseconds alone, as the schema of Arrow in the file says. A file without
//! that schema, as DuckDB writes it, may have all of them: such columns are refused, since the months would be lost.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields, IntervalUnit, Schema, SchemaRef};
use forebay_model::{Fault, Result, codes};
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::ParquetMetaData;

use crate::files::nested_types::{find_type, replace_types};

/// The type of lengths that are not read.
const UNREADABLE: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The schema of a file in which lengths that may have months and days are told from others.
pub(super) fn with_whole_intervals(schema: &SchemaRef, metadata: &ParquetMetaData) -> SchemaRef {
    let notes = metadata.file_metadata().key_value_metadata();
    let mut notes = notes.into_iter().flatten();
    let is_told = notes.any(|note| note.key == ARROW_SCHEMA_META_KEY);
    let mut fields = schema.fields().iter();
    let has_interval = |field: &FieldRef| find_type(field.data_type(), is_interval).is_some();
    if is_told || !fields.any(has_interval) {
        return schema.clone();
    }
    let fields: Fields = schema
        .fields()
        .iter()
        .map(|field| replace_types(field, unreadable_interval))
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// True for lengths of months, days and nanoseconds, which Parquet neither holds nor reads.
pub(super) fn is_whole_interval(data_type: &DataType) -> bool {
    *data_type == UNREADABLE
}

fn unreadable_interval(data_type: &DataType) -> Option<DataType> {
    is_interval(data_type).then_some(UNREADABLE)
}

/// Refuses columns of lengths whose months would be lost. `file` is one that has them.
pub(super) fn refuse_whole_intervals(fields: &[FieldRef], file: &str) -> Result<()> {
    let is_unreadable =
        |field: &&FieldRef| find_type(field.data_type(), is_whole_interval).is_some();
    match fields.iter().find(is_unreadable) {
        None => Ok(()),
        Some(field) => {
            let message = format!(
                "`{}` is a length of months, days and milliseconds, which is not read",
                field.name()
            );
            let fault = Fault::new(codes::UNSUPPORTED, message);
            Err(fault.file(file).column(field.name()).hint(
                "name the other columns under `columns`, or write the length as a number of days",
            ))
        }
    }
}
