//! CSV rows as batches.

use std::io::BufReader;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::csv::ReaderBuilder;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use forebay_model::{Fault, Result, codes};
use regex::Regex;

use crate::files::rows::{Batches, OpenFile};
use crate::files::stream::{self, BUFFER_BYTES};

use super::{Csv, header};

/// The names of a file's columns, and its rows. Fields are read as text and then converted:
/// that way a value that does not fit is known by its row.
pub(super) fn rows(
    config: &Csv,
    file: &OpenFile,
    wanted: &[FieldRef],
    batch_rows: usize,
) -> Result<(Vec<String>, Batches)> {
    let opened = header::open(config, file)?;
    let names = opened.names;
    if names.is_empty() {
        return Ok((names, Box::new(std::iter::empty())));
    }
    let texts: Fields = names.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
    let there: Vec<(usize, FieldRef)> = wanted
        .iter()
        .filter_map(|field| names.iter().position(|name| name == field.name()).map(|at| (at, field.clone())))
        .collect();
    let mut builder = ReaderBuilder::new(Arc::new(Schema::new(texts)))
        .with_header(config.header)
        .with_delimiter(config.delimiter())
        .with_batch_size(batch_rows)
        .with_projection(there.iter().map(|(at, _)| *at).collect());
    if config.nulls != [""] {
        builder = builder.with_null_regex(one_of(&config.nulls)?);
    }
    let path = file.path.clone();
    let reader = builder
        .build_buffered(BufReader::with_capacity(BUFFER_BYTES, opened.stream))
        .map_err(|error| unreadable(&path, config.header, error))?;
    let fields: Vec<FieldRef> = there.into_iter().map(|(_, field)| field).collect();
    let header = config.header;
    let mut first_row = 0;
    let batches = reader.map(move |batch| {
        let batch = batch.map_err(|error| unreadable(&path, header, error))?;
        let arrays = batch.columns().iter().zip(&fields);
        let arrays = arrays.map(|(text, field)| {
            convert(text, field.data_type()).map_err(|(row, message)| {
                Fault::new(codes::BAD_ROW, message)
                    .file(path.as_ref())
                    .column(field.name())
                    .rows([first_row + row as u64])
                    .hint("declare the column's type under `columns`, or add the value to `nulls`")
            })
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        first_row += batch.num_rows() as u64;
        let named =
            fields.iter().zip(&arrays).map(|(field, array)| Field::new(field.name(), array.data_type().clone(), true));
        let schema = Arc::new(Schema::new(named.collect::<Fields>()));
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    });
    Ok((names, Box::new(batches)))
}

fn one_of(nulls: &[String]) -> Result<Regex> {
    let words: Vec<String> = nulls.iter().map(|null| regex::escape(null)).collect();
    Regex::new(&format!("^(?:{})$", words.join("|")))
        .map_err(|error| Fault::new(codes::BAD_VALUE, "`nulls` is too long").cause(error))
}

/// Text as another type, or the first row that is not of that type.
fn convert(text: &ArrayRef, data_type: &DataType) -> std::result::Result<ArrayRef, (usize, String)> {
    if text.data_type() == data_type {
        return Ok(text.clone());
    }
    let lenient = CastOptions { safe: true, ..CastOptions::default() };
    let cast = cast_with_options(text, data_type, &lenient).map_err(|error| (0, error.to_string()))?;
    if cast.null_count() == text.null_count() {
        return Ok(cast);
    }
    let row = (0..text.len()).find(|row| text.is_valid(*row) && cast.is_null(*row)).unwrap_or(0);
    let value = text.as_string_opt::<i32>().map_or("", |text| text.value(row));
    Err((row, format!("`{}` is not of type {data_type}", shortened(value))))
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}

fn unreadable(path: &str, header: bool, error: ArrowError) -> Fault {
    match error {
        ArrowError::IoError(_, error) => stream::broken(path, error),
        ArrowError::CsvError(text) => {
            // Records are counted from 1, and the header is one of them.
            let record =
                text.split("line ").nth(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""));
            let row = record
                .and_then(|record| record.parse::<u64>().ok())
                .map(|record| record.saturating_sub(1 + u64::from(header)));
            let fault = Fault::new(codes::BAD_ROW, "a row cannot be read").file(path).rows(row);
            fault.cause(ArrowError::CsvError(text))
        }
        other => Fault::new(codes::BAD_ROW, "a row cannot be read").file(path).cause(other),
    }
}
