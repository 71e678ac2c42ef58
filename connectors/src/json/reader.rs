//! JSON lines as batches.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use forebay_model::{Fault, RECORD_BYTES_MAX, RECORDS_BYTES_TARGET, Result, codes};

use crate::files::rows::{BatchIterator, InputFile};
use crate::files::stream::{self, BUFFER_BYTES};
use crate::files::texts::{first_inexact_float, normalize_integers};

/// All wanted columns count as there: an object without the field gives null. Types that were inferred hold all digits
/// of the values, or the row is a fault.
pub(super) fn rows(
    file: &InputFile,
    wanted: &[FieldRef],
    batch_rows: usize,
    is_inferred: bool,
) -> Result<(Vec<String>, BatchIterator)> {
    let lines = JsonLineReader::open(file, wanted, batch_rows, is_inferred)?;
    Ok((
        wanted.iter().map(|field| field.name().clone()).collect(),
        Box::new(lines),
    ))
}

/// The lines of a file.
pub(super) struct JsonLineReader {
    stream: BufReader<Box<dyn Read + Send>>,
    path: Arc<str>,
    schema: SchemaRef,
    is_inferred: bool,
    batch_rows: usize,
    first_row: u64,
    is_from_start: bool,
    /// The lines of one batch, and where each of them ends.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl JsonLineReader {
    pub(super) fn open(
        file: &InputFile,
        wanted: &[FieldRef],
        batch_rows: usize,
        is_inferred: bool,
    ) -> Result<JsonLineReader> {
        let stream = file.stream()?;
        let fields: Fields = wanted
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        Ok(JsonLineReader {
            stream: BufReader::with_capacity(BUFFER_BYTES, stream),
            path: file.path.clone(),
            schema: Arc::new(Schema::new(fields)),
            is_inferred,
            batch_rows,
            first_row: file.first_row(0),
            is_from_start: file.is_from_start(),
            text: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// The next line.
    pub(super) fn line(&mut self) -> Result<Option<&[u8]>> {
        self.batch_rows = 1;
        self.fill()?;
        self.first_row += self.ends.len() as u64;
        Ok(self.ends.first().map(|end| &self.text[..*end]))
    }

    /// Takes in lines for one batch; blank ones are no rows.
    fn fill(&mut self) -> Result<()> {
        self.text.clear();
        self.ends.clear();
        while self.ends.len() < self.batch_rows && self.text.len() < RECORDS_BYTES_TARGET {
            let start = self.text.len();
            let mut limited = (&mut self.stream).take(RECORD_BYTES_MAX as u64);
            let read = limited
                .read_until(b'\n', &mut self.text)
                .map_err(|error| stream::stream_fault(&self.path, error))?;
            if read == 0 {
                break;
            }
            if read == RECORD_BYTES_MAX && self.text.last() != Some(&b'\n') {
                let row = self.first_row + self.ends.len() as u64;
                return Err(stream::record_length_fault()
                    .file(self.path.as_ref())
                    .rows([row]));
            }
            if self.is_from_start
                && self.first_row == 0
                && self.ends.is_empty()
                && self.text.starts_with(b"\xef\xbb\xbf")
            {
                self.text.drain(..3);
            }
            match self.text[start..].iter().all(u8::is_ascii_whitespace) {
                true => self.text.truncate(start),
                false => self.ends.push(self.text.len()),
            }
        }
        Ok(())
    }

    fn bad(&self, row: usize, message: impl Into<String>) -> Fault {
        Fault::new(codes::BAD_ROW, message)
            .file(self.path.as_ref())
            .rows([self.first_row + row as u64])
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        self.fill()?;
        let rows = self.ends.len();
        if rows == 0 {
            return Ok(None);
        }
        let batch = match self.schema.fields().is_empty() {
            true => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)?
            }
            false => self
                .decode(&self.text, &self.schema, rows)
                .map_err(|error| self.culprit(error))?,
        };
        self.first_row += rows as u64;
        Ok(Some(batch))
    }

    /// The line, and the column where one column alone fails.
    fn culprit(&self, error: ArrowError) -> Fault {
        let mut start = 0;
        for (row, end) in self.ends.iter().enumerate() {
            let line = &self.text[start..*end];
            start = *end;
            let Err(error) = self.decode(line, &self.schema, 1) else {
                continue;
            };
            let fault = self
                .bad(row, "the line cannot be read as the columns' types")
                .cause(error);
            let alone = |field: &&FieldRef| {
                self.decode(line, &Arc::new(Schema::new(vec![(*field).clone()])), 1)
                    .is_err()
            };
            let columns: Vec<&FieldRef> = self.schema.fields().iter().filter(alone).collect();
            return match columns.as_slice() {
                [one] if self.schema.fields().len() > 1 => fault.column(one.name()),
                _ => fault,
            };
        }
        Fault::new(codes::BAD_ROW, "the lines cannot be read")
            .file(self.path.as_ref())
            .cause(error)
    }
}

impl JsonLineReader {
    /// Numbers are decoded as text where that tells more: the decoder cuts off what integers do not hold.
    fn decode(
        &self,
        text: &[u8],
        schema: &SchemaRef,
        rows: usize,
    ) -> Result<RecordBatch, ArrowError> {
        let is_text = |of: &DataType| of.is_integer() || (self.is_inferred && of.is_floating());
        let texts = schema.fields().iter().map(|field| {
            Arc::new(
                field
                    .as_ref()
                    .clone()
                    .with_data_type(numbers_as_text(field.data_type(), &is_text)),
            )
        });
        let batch = decode(
            text,
            &Arc::new(Schema::new(texts.collect::<Fields>())),
            rows,
        )?;
        let columns = schema.fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, column)| text_to_numbers(column, field.data_type()));
        RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?)
    }
}

/// A type in which numbers that `is_text` are strings.
pub(super) fn numbers_as_text(of: &DataType, is_text: &dyn Fn(&DataType) -> bool) -> DataType {
    let inside = |field: &FieldRef| {
        Arc::new(
            field
                .as_ref()
                .clone()
                .with_data_type(numbers_as_text(field.data_type(), is_text)),
        )
    };
    match of {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inside).collect()),
        DataType::List(field) => DataType::List(inside(field)),
        other if is_text(other) => DataType::Utf8,
        other => other.clone(),
    }
}

/// What was decoded, in the type that it has.
fn text_to_numbers(column: &ArrayRef, of: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == of {
        return Ok(column.clone());
    }
    let whole: ArrayRef = match column.as_string_opt::<i32>() {
        Some(texts) if of.is_integer() => Arc::new(normalize_integers(texts)),
        Some(texts) if of.is_floating() => match first_inexact_float(texts) {
            Some(row) => {
                return Err(ArrowError::JsonError(format!(
                    "a float cannot hold {}",
                    texts.value(row)
                )));
            }
            None => column.clone(),
        },
        _ => column.clone(),
    };
    cast_with_options(
        &whole,
        of,
        &CastOptions {
            safe: false,
            ..CastOptions::default()
        },
    )
}

impl Iterator for JsonLineReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.batch().transpose()
    }
}

/// Decodes objects. Columns of strings take numbers, too, with all of their digits.
pub(super) fn decode(
    text: &[u8],
    schema: &SchemaRef,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let decoder = ReaderBuilder::new(schema.clone())
        .with_batch_size(rows)
        .with_coerce_primitive(true);
    let mut decoder = decoder.build_decoder()?;
    let read = decoder.decode(text)?;
    if decoder.has_partial_record() {
        return Err(ArrowError::JsonError("the object has no end".to_owned()));
    }
    let rest = text.get(read..).unwrap_or_default();
    let batch = decoder
        .flush()?
        .unwrap_or_else(|| RecordBatch::new_empty(schema.clone()));
    if batch.num_rows() != rows || !rest.iter().all(u8::is_ascii_whitespace) {
        return Err(ArrowError::JsonError(
            "a line must hold one object".to_owned(),
        ));
    }
    Ok(batch)
}
