//! The columns of CSV files, and their types.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;

use crate::files::drift::FileSchemas;
use crate::files::list::ListedFile;
use crate::files::survey::inspect_parallel;
use crate::files::{ColumnTypes, MissingColumnPolicy, SchemaPolicy, rows};

use super::{CsvSource, header, reader};

/// Files to look at for the types of columns, at most.
const FILES_MAX: usize = 16;

/// The columns of all files: as declared, or those of the first file with inferred types.
pub(super) fn fields(
    config: &CsvSource,
    io: &StorageClient,
    files: &[ListedFile],
) -> Result<Fields> {
    let headers = match (&config.columns, config.header) {
        (Some(columns), false) => return Ok(declared_fields(columns)),
        _ => inspect_parallel(files, |file| {
            header::open_records(config, &rows::open(io, file)?).map(|opened| opened.names)
        })?,
    };
    // A file without any byte has no header, no rows, and nothing to say.
    let known = || {
        files
            .iter()
            .zip(&headers)
            .filter(|(_, names)| !names.is_empty())
    };
    if let Some(columns) = &config.columns {
        let faults = known().flat_map(|(file, names)| {
            let missing = columns.0.iter().filter(|(name, _)| {
                config.missing == MissingColumnPolicy::Fault && !names.contains(name)
            });
            missing.map(|(name, _)| missing_column_fault(&file.path, name, names))
        });
        return match Fault::combine(faults.collect()) {
            Some(fault) => Err(fault),
            None => Ok(declared_fields(columns)),
        };
    }
    let mut schemas = FileSchemas::default();
    for (file, names) in known() {
        schemas.add(
            &file.path,
            names
                .iter()
                .map(|name| Field::new(name, DataType::Utf8, true))
                .collect(),
        );
    }
    let policy = SchemaPolicy {
        missing: config.missing,
        added: config.added,
        ..SchemaPolicy::default()
    };
    let merged = schemas.merge(&policy)?;
    if merged.is_empty() {
        return Err(
            Fault::new(codes::NO_INPUT, "the files are empty: there are no columns")
                .file(files.first().map_or("", |file| file.path.as_str())),
        );
    }
    infer_types(config, io, &files[..files.len().min(FILES_MAX)], &merged)
}

fn declared_fields(columns: &ColumnTypes) -> Fields {
    columns
        .0
        .iter()
        .map(|(name, of)| Field::new(name, of.data_type(), true))
        .collect()
}

fn missing_column_fault(path: &str, name: &str, names: &[String]) -> Fault {
    let fault = Fault::new(
        codes::SCHEMA_DRIFT,
        format!("the file has no column `{name}`"),
    )
    .file(path)
    .column(name);
    fault.suggest(name, names.iter().map(String::as_str), "its columns are")
}

/// Looks at the first rows: the first type that all of their values have.
fn infer_types(
    config: &CsvSource,
    io: &StorageClient,
    files: &[ListedFile],
    fields: &Fields,
) -> Result<Fields> {
    let rules = config.text_rules();
    let formats = config
        .time_formats()
        .map_err(|error| error.into_fault("csv"))?;
    let candidates = |field: &Arc<Field>| match formats.get(field.name()) {
        Some(format) => vec![format.data_type()],
        None => candidate_types(),
    };
    let mut possible: Vec<Vec<DataType>> = fields.iter().map(candidates).collect();
    let mut seen = vec![false; fields.len()];
    let mut rows_left = config.infer_rows;
    for file in files {
        if rows_left == 0 {
            break;
        }
        let file = rows::open(io, file)?;
        let wanted: Vec<_> = fields.iter().cloned().collect();
        for batch in reader::rows(config, &file, &wanted, rows_left.min(8192))?.1 {
            let batch = batch?;
            let batch = batch.slice(0, batch.num_rows().min(rows_left));
            rows_left -= batch.num_rows();
            for (i, field) in fields.iter().enumerate() {
                let Some(column) = batch.column_by_name(field.name()) else {
                    continue;
                };
                seen[i] |= column.null_count() < column.len();
                if formats.contains_key(field.name()) {
                    continue;
                }
                let texts = column.as_string::<i32>();
                possible[i].retain(|candidate| rules.all_read(texts, candidate));
            }
            if rows_left == 0 {
                break;
            }
        }
    }
    let choose = |(i, field): (usize, &Arc<Field>)| {
        let found = possible[i]
            .first()
            .filter(|_| seen[i] || formats.contains_key(field.name()))
            .cloned()
            .unwrap_or(DataType::Utf8);
        Field::new(field.name(), found, true)
    };
    Ok(fields.iter().enumerate().map(choose).collect())
}

/// Types that texts are tried as, the narrowest first.
fn candidate_types() -> Vec<DataType> {
    let time = |unit, zone: Option<&str>| DataType::Timestamp(unit, zone.map(Arc::from));
    vec![
        DataType::Int64,
        DataType::UInt64,
        DataType::Float64,
        DataType::Boolean,
        DataType::Date32,
        time(TimeUnit::Microsecond, None),
        time(TimeUnit::Nanosecond, None),
        time(TimeUnit::Microsecond, Some("UTC")),
        time(TimeUnit::Nanosecond, Some("UTC")),
    ]
}
