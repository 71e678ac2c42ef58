//! JSON lines as batches.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::infer_json_schema_from_iterator;
use forebay_model::{
    Fault, RECORD_BYTES_MAX, RECORDS_BYTES_TARGET, Result, TextRules, codes, plain_integers,
};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::files::rows::{BatchIterator, InputFile};
use crate::files::stream::{self, BUFFER_BYTES};

use super::known_fields::KnownFields;

/// All wanted columns count as there: an object without the field gives null. A field that is not among `known` is a
/// fault.
pub(super) fn rows(
    file: &InputFile,
    known: Option<&SchemaRef>,
    wanted: &[FieldRef],
    batch_rows: usize,
    rules: TextRules,
) -> Result<(Vec<String>, BatchIterator)> {
    let mut lines = JsonLineReader::open(file, wanted, batch_rows, rules)?;
    lines.known = known.cloned();
    lines.set_decoded(lines.schema.fields().iter().map(decoded_field).collect());
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
    /// The types that the decoder gives, of which those of the schema are made.
    decoded: SchemaRef,
    rules: TextRules,
    /// The source's columns, where others are faults.
    known: Option<SchemaRef>,
    /// The fields of the source's columns, where the decoder does not see all of them.
    unread: Option<KnownFields>,
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
        rules: TextRules,
    ) -> Result<JsonLineReader> {
        let stream = file.stream()?;
        let fields: Fields = wanted
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(JsonLineReader {
            stream: BufReader::with_capacity(BUFFER_BYTES, stream),
            path: file.path.clone(),
            decoded: schema.clone(),
            schema,
            rules,
            known: None,
            unread: None,
            batch_rows,
            first_row: file.first_row(0),
            is_from_start: file.is_from_start(),
            text: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// The file, and the row that comes next.
    pub(super) fn place(&self) -> (Arc<str>, u64) {
        (self.path.clone(), self.first_row)
    }

    /// Sets the types that the decoder gives.
    fn set_decoded(&mut self, fields: Fields) {
        self.decoded = Arc::new(Schema::new(fields));
        self.unread = match &self.known {
            Some(known) if !self.decodes_all(known) => Some(self.known_fields(known)),
            _ => None,
        };
    }

    /// True if the decoder meets all fields that are known, so that it can refuse others.
    fn decodes_all(&self, known: &SchemaRef) -> bool {
        known
            .fields()
            .iter()
            .all(|field| self.schema.index_of(field.name()).is_ok())
    }

    fn known_fields(&self, known: &SchemaRef) -> KnownFields {
        let decoded = |field: &FieldRef| match self.decoded.fields().find(field.name()) {
            Some((_, decoded)) => decoded.clone(),
            None => field.clone(),
        };
        KnownFields::new(&known.fields().iter().map(decoded).collect())
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
            if self.text[start..].iter().all(u8::is_ascii_whitespace) {
                self.text.truncate(start)
            } else {
                self.ends.push(self.text.len())
            }
        }
        Ok(())
    }

    fn bad(&self, row: usize, message: impl Into<String>) -> Fault {
        self.placed(row, Fault::new(codes::BAD_ROW, message))
    }

    fn placed(&self, row: usize, fault: Fault) -> Fault {
        fault
            .file(self.path.as_ref())
            .rows([self.first_row + row as u64])
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        self.fill()?;
        let rows = self.ends.len();
        if rows == 0 {
            return Ok(None);
        }
        let batch = if self.schema.fields().is_empty() && self.known.is_none() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)?
        } else {
            self.decode_batch(rows)?
        };
        self.refuse_unread_fields()?;
        self.first_row += rows as u64;
        Ok(Some(batch))
    }

    fn decode_batch(&mut self, rows: usize) -> Result<RecordBatch> {
        let error = match self.decode(&self.text, &self.schema, rows, self.is_strict()) {
            Ok(batch) => return Ok(batch),
            Err(error) => error,
        };
        // Fields that are always null or empty are read as texts, in whatever form they come.
        if !self.follow_empty_objects() {
            return Err(self.culprit(error));
        }
        self.decode(&self.text, &self.schema, rows, self.is_strict())
            .map_err(|error| self.culprit(error))
    }

    /// True if the decoder refuses fields that it does not know.
    fn is_strict(&self) -> bool {
        self.known.is_some() && self.unread.is_none()
    }

    /// Refuses fields that are not known, where the decoder does not see all that are.
    fn refuse_unread_fields(&self) -> Result<()> {
        let Some(known) = &self.unread else {
            return Ok(());
        };
        let mut start = 0;
        for (row, end) in self.ends.iter().enumerate() {
            if let Some(path) = known.first_unknown(&self.text[start..*end]) {
                return Err(self.added_field_fault(row, &path));
            }
            start = *end;
        }
        Ok(())
    }

    fn added_field_fault(&self, row: usize, path: &str) -> Fault {
        let message = format!("the field `{path}` is not among those of the first rows");
        self.placed(row, Fault::new(codes::SCHEMA_DRIFT, message))
            .column(path)
            .hint(
                "set `infer_rows` to look at more rows, `added: include` to look at all rows before they are read, or \
                 `added: ignore` to leave the field out",
            )
    }

    /// Decodes empty objects where the lines have them instead of texts; false where nothing changes.
    fn follow_empty_objects(&mut self) -> bool {
        let mut start = 0;
        let values = self.ends.iter().map(|end| {
            let line = &self.text[start..*end];
            start = *end;
            serde_json::from_slice::<Value>(line)
                .map_err(|error| ArrowError::JsonError(error.to_string()))
        });
        let Ok(inferred) = infer_json_schema_from_iterator(values) else {
            return false;
        };
        let fields = self.schema.fields().iter().map(|field| {
            let of = match inferred.fields().find(field.name()) {
                Some((_, form)) => decoded_as_form(field.data_type(), form.data_type()),
                None => decoded_type(field.data_type()),
            };
            Arc::new(field.as_ref().clone().with_data_type(of))
        });
        let fields: Fields = fields.collect();
        if fields == *self.decoded.fields() {
            return false;
        }
        self.set_decoded(fields);
        true
    }

    /// The line, and the column where one column alone fails.
    fn culprit(&self, error: ArrowError) -> Fault {
        let known = self.known.as_ref().map(|known| self.known_fields(known));
        let mut start = 0;
        for (row, end) in self.ends.iter().enumerate() {
            let line = &self.text[start..*end];
            start = *end;
            let Err(error) = self.decode(line, &self.schema, 1, self.is_strict()) else {
                continue;
            };
            if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
                return self.placed(row, line_fault(line, error));
            }
            if let Some(path) = known.as_ref().and_then(|known| known.first_unknown(line)) {
                return self.added_field_fault(row, &path);
            }
            let fault = match error {
                ArrowError::ExternalError(error) if error.is::<Fault>() => {
                    match error.downcast::<Fault>() {
                        Ok(fault) => self.placed(row, *fault),
                        Err(error) => self.bad(row, error.to_string()),
                    }
                }
                error => self
                    .bad(row, "the line cannot be read as the columns' types")
                    .cause(error)
                    .hint("declare the types under `columns`, or set `infer_rows` to look at more rows"),
            };
            let alone = |field: &&FieldRef| {
                self.decode(
                    line,
                    &Arc::new(Schema::new(vec![(*field).clone()])),
                    1,
                    false,
                )
                .is_err()
            };
            let columns: Vec<&FieldRef> = self.schema.fields().iter().filter(alone).collect();
            return match columns.as_slice() {
                [column] => fault.column(column.name()),
                _ => fault,
            };
        }
        Fault::new(codes::BAD_ROW, "the lines cannot be read")
            .file(self.path.as_ref())
            .cause(error)
    }

    /// Decodes objects as some of the columns. Numbers, dates and times are decoded as texts, which tell more: the
    /// decoder cuts off what their types do not hold.
    fn decode(
        &self,
        text: &[u8],
        schema: &SchemaRef,
        rows: usize,
        is_strict: bool,
    ) -> Result<RecordBatch, ArrowError> {
        let decoded_as = |field: &FieldRef| match self.decoded.fields().find(field.name()) {
            Some((_, decoded)) => decoded.clone(),
            None => decoded_field(field),
        };
        let is_whole = schema.fields().len() == self.decoded.fields().len();
        let decoded = if is_whole {
            self.decoded.clone()
        } else {
            let fields = schema.fields().iter().map(decoded_as);
            Arc::new(Schema::new(fields.collect::<Fields>()))
        };
        let batch = decode(text, &decoded, rows, is_strict)?;
        let columns = schema.fields().iter().zip(batch.columns());
        let columns = columns
            .map(|(field, column)| to_column_type(column, field.data_type(), self.rules))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
    }
}

/// A fault for a line that is not one JSON object.
pub(super) fn line_fault(line: &[u8], error: serde_json::Error) -> Fault {
    let (message, hint) = if line.trim_ascii_start().starts_with(b"[") {
        (
            "the file is a JSON array, and not one object per line",
            "write its objects as lines, as `jq -c '.[]'` does",
        )
    } else if error.is_eof() {
        (
            "the line ends inside of an object: each object must be on a line of its own",
            "write objects as lines, as `jq -c .` does",
        )
    } else {
        (
            "the line is not valid JSON",
            "each line must be one JSON object",
        )
    };
    Fault::new(codes::BAD_ROW, message).cause(error).hint(hint)
}

fn decoded_field(field: &FieldRef) -> FieldRef {
    let of = decoded_type(field.data_type());
    Arc::new(field.as_ref().clone().with_data_type(of))
}

/// The type that a column is decoded as: texts, where these tell more.
fn decoded_type(of: &DataType) -> DataType {
    let is_text = |of: &DataType| {
        of.is_integer()
            || of.is_floating()
            || matches!(of, DataType::Date32 | DataType::Timestamp(..))
    };
    numbers_as_text(of, &is_text)
}

/// The type that a column is decoded as where some lines have it in a form: empty objects are no texts.
fn decoded_as_form(of: &DataType, form: &DataType) -> DataType {
    let inside = |field: &FieldRef, form: Option<&DataType>| {
        let of = match form {
            Some(form) => decoded_as_form(field.data_type(), form),
            None => decoded_type(field.data_type()),
        };
        Arc::new(field.as_ref().clone().with_data_type(of))
    };
    match (of, form) {
        (DataType::Utf8, DataType::Struct(fields)) if fields.is_empty() => form.clone(),
        (DataType::Struct(fields), DataType::Struct(form)) => {
            let fields = fields.iter().map(|field| {
                let form = form.find(field.name());
                inside(field, form.map(|(_, form)| form.data_type()))
            });
            DataType::Struct(fields.collect())
        }
        (DataType::List(field), DataType::List(form)) => {
            DataType::List(inside(field, Some(form.data_type())))
        }
        _ => decoded_type(of),
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

/// A column that was decoded, in the type that it has.
fn to_column_type(
    column: &ArrayRef,
    of: &DataType,
    rules: TextRules,
) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == of {
        return Ok(column.clone());
    }
    match (column.data_type(), of) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let objects = column.as_struct();
            let columns = fields.iter().zip(objects.columns());
            let columns = columns
                .map(|(field, column)| to_column_type(column, field.data_type(), rules))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                columns,
                objects.nulls().cloned(),
                objects.len(),
            )?))
        }
        (DataType::List(_), DataType::List(field)) => {
            let lists = column.as_list::<i32>();
            let values = to_column_type(lists.values(), field.data_type(), rules)?;
            Ok(Arc::new(ListArray::try_new(
                field.clone(),
                lists.offsets().clone(),
                values,
                lists.nulls().cloned(),
            )?))
        }
        (DataType::Struct(_), DataType::Utf8) => {
            let text = |row| column.is_valid(row).then_some("{}");
            let texts = (0..column.len()).map(text).collect::<StringArray>();
            Ok(Arc::new(texts))
        }
        (DataType::Utf8, _) => {
            let texts = column.as_string::<i32>();
            let whole = of.is_integer().then(|| plain_integers(texts));
            let texts = whole.as_ref().unwrap_or(texts);
            rules.read_all(texts, of).map_err(|row| {
                let problem = rules.problem(texts.value(row), of);
                let fault = Fault::new(codes::BAD_ROW, problem).hint(
                    "declare the column's type under `columns`; to make such values null, declare `string` and `cast` \
                     with `on_error: missing`",
                );
                ArrowError::ExternalError(Box::new(fault))
            })
        }
        (from, _) => Err(ArrowError::JsonError(format!(
            "{from} cannot be read as {of}"
        ))),
    }
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
    is_strict: bool,
) -> Result<RecordBatch, ArrowError> {
    let decoder = ReaderBuilder::new(schema.clone())
        .with_batch_size(rows)
        .with_strict_mode(is_strict)
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
