//! The columns of JSON files, and their types.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use arrow::json::reader::infer_json_schema_from_iterator;
use forebay_model::{Fault, Result, codes};
use forebay_storage::Io;
use serde_json::Value;

use crate::files::list::Listed;
use crate::files::rows;
use crate::files::texts::all_are;

use super::reader::{Lines, decode, with_texts};

/// Files to look at for the types of columns, at most.
const FILES_MAX: usize = 16;

/// The columns that the first rows have.
pub(super) fn fields(io: &Io, files: &[Listed], rows_max: usize) -> Result<Fields> {
    let first = files.first().map_or("", |file| file.path.as_str());
    let unreadable = |error| match error {
        ArrowError::ExternalError(error) if error.is::<Fault>() => match error.downcast::<Fault>() {
            Ok(fault) => *fault,
            Err(_) => Fault::internal("a fault is no fault"),
        },
        error => Fault::new(codes::BAD_ROW, "the first rows cannot be read")
            .file(first)
            .cause(error)
            .hint("each line must be one JSON object"),
    };
    let external = |fault: Fault| ArrowError::ExternalError(Box::new(fault));
    let mut sample = Sample::new(io, files, rows_max);
    let values = std::iter::from_fn(|| match sample.line() {
        Ok(line) => line.map(|line| {
            serde_json::from_slice::<Value>(&line).map_err(|error| ArrowError::JsonError(error.to_string()))
        }),
        Err(fault) => Some(Err(external(fault))),
    });
    let schema = infer_json_schema_from_iterator(values).map_err(unreadable)?;
    if schema.fields().is_empty() {
        return Err(Fault::new(codes::NO_INPUT, "the files are empty: there are no columns").file(first));
    }
    schema.fields().iter().map(|field| settled(field, io, files, rows_max)).collect()
}

/// A column with the type that holds all of its values. What is null in all of the sample is read as text.
fn settled(field: &FieldRef, io: &Io, files: &[Listed], rows_max: usize) -> Result<FieldRef> {
    let texts = with_texts(field.data_type(), &DataType::is_floating);
    if texts == *field.data_type() {
        let of = if texts == DataType::Null { DataType::Utf8 } else { texts };
        return Ok(Arc::new(field.as_ref().clone().with_data_type(of)));
    }
    // A number that is no integer was taken for a float: its digits tell whether it is one.
    let alone = Arc::new(Schema::new(vec![Field::new(field.name(), texts, true)]));
    let mut sample = Sample::new(io, files, rows_max);
    let mut columns: Vec<ArrayRef> = Vec::new();
    while let Some(line) = sample.line()? {
        columns.push(decode(&line, &alone, 1)?.column(0).clone());
    }
    let columns: Vec<&dyn Array> = columns.iter().map(|column| column.as_ref()).collect();
    let of = held(field.data_type(), &concat(&columns)?);
    Ok(Arc::new(field.as_ref().clone().with_data_type(of)))
}

/// The type that holds numbers that were taken for floats, by their texts.
fn held(of: &DataType, texts: &ArrayRef) -> DataType {
    let inside = |field: &FieldRef, texts: &ArrayRef| {
        Arc::new(field.as_ref().clone().with_data_type(held(field.data_type(), texts)))
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
            let fits = |candidate: &DataType| all_are(texts, candidate);
            [DataType::UInt64, DataType::Float64].into_iter().find(fits).unwrap_or(DataType::Utf8)
        }
        other => other.clone(),
    }
}

/// The first lines of some files.
struct Sample<'a> {
    io: &'a Io,
    files: std::slice::Iter<'a, Listed>,
    open: Option<Lines>,
    rows_left: usize,
}

impl<'a> Sample<'a> {
    fn new(io: &'a Io, files: &'a [Listed], rows_max: usize) -> Self {
        Sample { io, files: files[..files.len().min(FILES_MAX)].iter(), open: None, rows_left: rows_max }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>> {
        while self.rows_left > 0 {
            let Some(open) = &mut self.open else {
                let Some(file) = self.files.next() else { return Ok(None) };
                self.open = Some(Lines::open(&rows::open(self.io, &file.path)?, &[], 1, false)?);
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
