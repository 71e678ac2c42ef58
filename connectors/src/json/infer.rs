//! The columns of JSON files, and their types.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use arrow::json::reader::infer_json_schema_from_iterator;
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use serde_json::Value;

use crate::files::list::ListedFile;
use crate::files::rows;
use crate::files::texts::all_parse_as;

use super::reader::{JsonLineReader, decode, numbers_as_text};

/// Files to look at for the types of columns, at most.
const FILES_MAX: usize = 16;

/// The columns that the first rows have.
pub(super) fn fields(io: &StorageClient, files: &[ListedFile], rows_max: usize) -> Result<Fields> {
    let first = files.first().map_or("", |file| file.path.as_str());
    let unreadable = |error| match error {
        ArrowError::ExternalError(error) if error.is::<Fault>() => {
            match error.downcast::<Fault>() {
                Ok(fault) => *fault,
                Err(_) => Fault::internal("a fault is no fault"),
            }
        }
        error => Fault::new(codes::BAD_ROW, "the first rows cannot be read")
            .file(first)
            .cause(error)
            .hint("each line must be one JSON object"),
    };
    let external = |fault: Fault| ArrowError::ExternalError(Box::new(fault));
    let mut sample = JsonSample::new(io, files, rows_max);
    let values = std::iter::from_fn(|| match sample.next_line() {
        Ok(line) => line.map(|line| {
            serde_json::from_slice::<Value>(&line)
                .map_err(|error| ArrowError::JsonError(error.to_string()))
        }),
        Err(fault) => Some(Err(external(fault))),
    });
    let schema = infer_json_schema_from_iterator(values).map_err(unreadable)?;
    if schema.fields().is_empty() {
        return Err(
            Fault::new(codes::NO_INPUT, "the files are empty: there are no columns").file(first),
        );
    }
    schema
        .fields()
        .iter()
        .map(|field| resolve_field_type(field, io, files, rows_max))
        .collect()
}

/// A column with the type that holds all of its values. What is null in all of the sample is read as text.
fn resolve_field_type(
    field: &FieldRef,
    io: &StorageClient,
    files: &[ListedFile],
    rows_max: usize,
) -> Result<FieldRef> {
    let texts = numbers_as_text(field.data_type(), &DataType::is_floating);
    if texts == *field.data_type() {
        let of = if texts == DataType::Null {
            DataType::Utf8
        } else {
            texts
        };
        return Ok(Arc::new(field.as_ref().clone().with_data_type(of)));
    }
    // A number that is no integer was taken for a float: its digits tell whether it is one.
    let alone = Arc::new(Schema::new(vec![Field::new(field.name(), texts, true)]));
    let mut sample = JsonSample::new(io, files, rows_max);
    let mut columns: Vec<ArrayRef> = Vec::new();
    while let Some(line) = sample.next_line()? {
        columns.push(decode(&line, &alone, 1)?.column(0).clone());
    }
    let columns: Vec<&dyn Array> = columns.iter().map(|column| column.as_ref()).collect();
    let of = exact_type(field.data_type(), &concat(&columns)?);
    Ok(Arc::new(field.as_ref().clone().with_data_type(of)))
}

/// The type that holds numbers that were taken for floats, by their texts.
fn exact_type(of: &DataType, texts: &ArrayRef) -> DataType {
    let inside = |field: &FieldRef, texts: &ArrayRef| {
        Arc::new(
            field
                .as_ref()
                .clone()
                .with_data_type(exact_type(field.data_type(), texts)),
        )
    };
    match of {
        DataType::Struct(fields) => match texts.as_struct_opt() {
            Some(texts) => {
                let fields = fields.iter().zip(texts.columns());
                DataType::Struct(fields.map(|(field, texts)| inside(field, texts)).collect())
            }
            None => of.clone(),
        },
        DataType::List(field) => match texts.as_list_opt::<i32>() {
            Some(texts) => DataType::List(inside(field, texts.values())),
            None => of.clone(),
        },
        of if of.is_floating() => {
            let fits = |candidate: &DataType| all_parse_as(texts, candidate);
            [DataType::UInt64, DataType::Float64]
                .into_iter()
                .find(fits)
                .unwrap_or(DataType::Utf8)
        }
        other => other.clone(),
    }
}

/// The first lines of some files.
struct JsonSample<'a> {
    io: &'a StorageClient,
    files: std::slice::Iter<'a, ListedFile>,
    open: Option<JsonLineReader>,
    rows_left: usize,
}

impl<'a> JsonSample<'a> {
    fn new(io: &'a StorageClient, files: &'a [ListedFile], rows_max: usize) -> Self {
        JsonSample {
            io,
            files: files[..files.len().min(FILES_MAX)].iter(),
            open: None,
            rows_left: rows_max,
        }
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        while self.rows_left > 0 {
            let Some(open) = &mut self.open else {
                let Some(file) = self.files.next() else {
                    return Ok(None);
                };
                self.open = Some(JsonLineReader::open(
                    &rows::open(self.io, file)?,
                    &[],
                    1,
                    false,
                )?);
                continue;
            };
            match open.line()? {
                Some(line) => {
                    self.rows_left -= 1;
                    return Ok(Some(line.to_vec()));
                }
                None => self.open = None,
            }
        }
        Ok(None)
    }
}
