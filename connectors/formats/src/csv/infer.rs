//! The columns of CSV files, and their types.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use forebay_model::{Fault, NameIndex, Result, codes};
use forebay_storage::StorageClient;

use crate::files::drift::FileSchemas;
use crate::files::list::ListedFile;
use crate::files::survey::inspect_parallel;
use crate::files::texts::check_format_columns;
use crate::files::{ColumnTypes, MissingColumnPolicy, SchemaPolicy, rows};

use super::opened::open_records;
use super::{CsvSource, reader};

/// Maximum number of files that are read for the types of columns.
const FILES_MAX: usize = 16;

/// The columns of all files: as declared, or those of the first file with inferred types.
pub(super) fn fields(
    config: &CsvSource,
    io: &StorageClient,
    files: &[ListedFile],
) -> Result<Fields> {
    let fields = with_time_formats(config, &known_fields(config, io, files)?)?;
    config.on_error.check_columns(&fields)?;
    Ok(fields)
}

/// The columns as their formats give them: a column that is declared as the texts that it is becomes a date or a time.
fn with_time_formats(config: &CsvSource, fields: &Fields) -> Result<Fields> {
    let formats = config
        .time_formats()
        .map_err(|error| error.into_fault("csv"))?;
    check_format_columns(formats.keys(), fields)?;
    let mut formatted = Vec::with_capacity(fields.len());
    for field in fields {
        formatted.push(match formats.get(field.name()) {
            Some(format) => Arc::new(field.as_ref().clone().with_data_type(format.data_type())),
            None => field.clone(),
        });
    }
    Ok(formatted.into())
}

fn known_fields(config: &CsvSource, io: &StorageClient, files: &[ListedFile]) -> Result<Fields> {
    if let Some(columns) = &config.columns
        && !config.header
    {
        return Ok(declared_fields(columns));
    }
    let headers = inspect_parallel(files, |file| {
        open_records(config, &rows::open(io, file)?).map(|opened| opened.names)
    })?;
    if let Some(columns) = &config.columns {
        let mut faults = Vec::new();
        if config.missing == MissingColumnPolicy::Fault {
            for (file, names) in files.iter().zip(&headers) {
                faults.extend(missing_column_faults(&file.path, columns, names));
            }
        }
        return match Fault::combine(faults) {
            Some(fault) => Err(fault),
            None => Ok(declared_fields(columns)),
        };
    }
    let mut schemas = FileSchemas::default();
    for (file, names) in files.iter().zip(&headers) {
        // A file without any byte has no header, no rows, and nothing to say.
        if names.is_empty() {
            continue;
        }
        let texts = names
            .iter()
            .map(|name| Field::new(name, DataType::Utf8, true));
        schemas.add(&file.path, texts.collect());
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
    let fields = columns.0.iter();
    fields
        .map(|(name, of)| Field::new(name, of.data_type(), true))
        .collect()
}

/// Faults of declared columns that the header of a file does not name. A file without any byte has
/// no header.
fn missing_column_faults(path: &str, columns: &ColumnTypes, names: &[String]) -> Vec<Fault> {
    let mut faults = Vec::new();
    if names.is_empty() {
        return faults;
    }
    let index = NameIndex::new(names.iter().map(String::as_str));
    for name in columns.names() {
        if !index.contains(name) {
            faults.push(missing_column_fault(path, name, names));
        }
    }
    faults
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

/// Infers types from the first rows: the first type that fits all values of a column.
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
    // A field in quotes may stand for null in columns that turn out to be no texts.
    let sampled = config.clone().quoted_nulls(true);
    let mut possible: Vec<Vec<DataType>> = fields.iter().map(candidates).collect();
    let mut seen = vec![false; fields.len()];
    let mut rows_left = config.infer_rows;
    let first_path = files.first().map_or("", |file| file.path.as_str());
    for file in files {
        if rows_left == 0 {
            break;
        }
        let file = rows::open(io, file)?;
        let file_fields: Vec<_> = fields.iter().cloned().collect();
        for batch in reader::rows(&sampled, &file, &file_fields, rows_left.min(8192))?.1 {
            let batch = batch?.rows;
            let batch = batch.slice(0, batch.num_rows().min(rows_left));
            rows_left -= batch.num_rows();
            let index = NameIndex::of_fields(batch.schema_ref().fields());
            for (i, field) in fields.iter().enumerate() {
                let Some(position) = index.get(field.name()) else {
                    continue;
                };
                let column = batch.column(position);
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
    let has_rows = rows_left < config.infer_rows;
    if !has_rows && config.infer_rows > 0 && !io.allows_empty() {
        return Err(no_rows_fault(first_path, fields));
    }
    let choose = |(i, field): (usize, &Arc<Field>)| {
        let data_type = possible[i]
            .first()
            .filter(|_| seen[i] || formats.contains_key(field.name()))
            .cloned()
            .unwrap_or(DataType::Utf8);
        Field::new(field.name(), data_type, true)
    };
    Ok(fields.iter().enumerate().map(choose).collect())
}

/// Fault for files with a header alone: nothing says of which types their columns are.
fn no_rows_fault(path: &str, fields: &Fields) -> Fault {
    let message = "the files have a header and no rows, from which the types of columns are taken";
    let name = fields.first().map_or("day", |field| field.name().as_str());
    Fault::new(codes::NO_INPUT, message)
        .file(path)
        .hint(format!(
            "declare the types of all columns, such as `columns: {{ {name}: string }}`, to read no \
             rows, or run with `--allow-empty`, which takes them for strings"
        ))
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
