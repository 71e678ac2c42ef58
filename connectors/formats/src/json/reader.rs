//! JSON lines as batches.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use forebay_model::{
    EXAMPLES_MAX, Fault, NameIndex, RECORD_BYTES_MAX, Result, TextRules, UnfitValues, ValueExample,
    codes, plain_integers, shorten, type_words,
};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::files::OnReadError;
use crate::files::input_file::InputFile;
use crate::files::rows::{BatchIterator, FIELD_BYTES, FileBatch};
use crate::files::stream::{self, BUFFER_BYTES};
use crate::files::texts::unfit_values;

use super::JsonSource;
use super::known_fields::{KnownFields, UnreadableField};
use super::one_pass::OnePassDecoder;
use super::surrogates::unescape_surrogates;
use super::unfit::{UnfitKind, empty_objects, unfit_kinds};

/// The mark that some programs put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The ways out where a value is not of its column's type.
const UNFIT_VALUE_HINT: &str = "declare the column's type under `columns`, or set `on_error: \
                                missing` to make such values null";

/// Reads the rows of a file. All requested columns count as present: an object without the field
/// gives null. A field that is not among `known_schema` is a fault.
pub(super) fn rows(
    file: &InputFile,
    known_schema: Option<&SchemaRef>,
    requested: &[FieldRef],
    batch_rows: usize,
    config: &JsonSource,
) -> Result<(Vec<String>, BatchIterator)> {
    let lines = open_lines(file, known_schema, requested, batch_rows, config)?;
    Ok((
        requested.iter().map(|field| field.name().clone()).collect(),
        Box::new(lines),
    ))
}

fn open_lines(
    file: &InputFile,
    known_schema: Option<&SchemaRef>,
    requested: &[FieldRef],
    batch_rows: usize,
    config: &JsonSource,
) -> Result<JsonLineReader> {
    let mut lines = JsonLineReader::open(file, requested, batch_rows, config.text_rules())?;
    lines.known = known_schema.cloned();
    lines.on_error = config.on_error.clone();
    lines.takes_fractions = config.takes_fractions();
    lines.set_decoded(lines.schema.fields().iter().map(decoded_field).collect());
    Ok(lines)
}

/// The lines of a file.
pub(super) struct JsonLineReader {
    file: InputFile,
    stream: BufReader<Box<dyn Read + Send>>,
    path: Arc<str>,
    schema: SchemaRef,
    /// Types in which the decoder returns the columns; they are converted to those of the schema.
    decoded: SchemaRef,
    /// The decoded types, with numbers in the place of texts that stand for them where a text is no number.
    value_types: Fields,
    rules: TextRules,
    /// True if integers may be written with a point.
    takes_fractions: bool,
    /// Treatment of values that are not of their column's type.
    on_error: OnReadError,
    /// The source's columns, where others are faults.
    known: Option<SchemaRef>,
    /// The fields that are read and, where others are faults, all fields of the source's columns.
    fields: KnownFields,
    /// The faster decoder, where it has the columns' types.
    one_pass: Option<OnePassDecoder>,
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
        requested: &[FieldRef],
        batch_rows: usize,
        rules: TextRules,
    ) -> Result<JsonLineReader> {
        let stream = file.stream()?;
        let fields: Fields = requested
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(JsonLineReader {
            file: file.clone(),
            stream: BufReader::with_capacity(BUFFER_BYTES, stream),
            path: file.path.clone(),
            decoded: schema.clone(),
            value_types: Fields::empty(),
            schema,
            rules,
            takes_fractions: false,
            on_error: OnReadError::default(),
            known: None,
            fields: KnownFields::default(),
            one_pass: None,
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

    /// Sets the types in which the decoder returns the columns.
    fn set_decoded(&mut self, fields: Fields) {
        self.value_types = if self.rules.is_inferred {
            let columns = self.schema.fields().iter().zip(&fields);
            let value_fields = columns.map(|(field, decoded)| value_field(field, decoded));
            value_fields.collect()
        } else {
            fields.clone()
        };
        self.decoded = Arc::new(Schema::new(fields));
        self.fields = match &self.known {
            Some(known) => self.known_fields(known),
            None => KnownFields::new(&self.value_types),
        };
        let known_fields = self.known.as_ref().map(|schema| schema.fields());
        self.one_pass = OnePassDecoder::new(self.decoded.fields(), &self.value_types, known_fields);
    }

    /// True if the decoder meets all fields that are known, so that it can refuse others.
    fn decodes_all(&self, known_schema: &SchemaRef) -> bool {
        let index = NameIndex::of_fields(self.schema.fields());
        let mut fields = known_schema.fields().iter();
        fields.all(|field| index.contains(field.name()))
    }

    fn known_fields(&self, known_schema: &SchemaRef) -> KnownFields {
        let index = NameIndex::of_fields(&self.value_types);
        let mut fields = Vec::with_capacity(known_schema.fields().len());
        for field in known_schema.fields() {
            fields.push(match index.get(field.name()) {
                Some(position) => self.value_types[position].clone(),
                // The values of columns that are not read may be any.
                None => decoded_field(field),
            });
        }
        KnownFields::new(&fields.into())
    }

    /// The next line.
    pub(super) fn line(&mut self) -> Result<Option<&[u8]>> {
        self.batch_rows = 1;
        self.fill()?;
        self.first_row += self.ends.len() as u64;
        Ok(self.ends.first().map(|end| &self.text[..*end]))
    }

    /// Reads lines for one batch; blank lines are not rows.
    fn fill(&mut self) -> Result<()> {
        self.text.clear();
        self.ends.clear();
        let bytes_target = self.file.records_bytes_target();
        // One long line must not keep its memory.
        self.text.shrink_to(2 * bytes_target);
        let row_bytes = FIELD_BYTES * self.decoded.fields().len();
        while self.ends.len() < self.batch_rows
            && self.text.len() + row_bytes * self.ends.len() < bytes_target
        {
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
                && self.text.starts_with(BYTE_ORDER_MARK)
            {
                self.text.drain(..BYTE_ORDER_MARK.len());
            }
            if self.text[start..].iter().all(u8::is_ascii_whitespace) {
                self.text.truncate(start)
            } else {
                unescape_surrogates(&mut self.text, start);
                self.ends.push(self.text.len())
            }
        }
        Ok(())
    }

    fn bad(&self, row: usize, message: impl Into<String>) -> Fault {
        self.placed(row, Fault::new(codes::BAD_ROW, message))
    }

    fn placed(&self, row: usize, fault: Fault) -> Fault {
        self.locate(self.first_row + row as u64, fault)
    }

    /// A fault with file, row and line.
    pub(super) fn locate(&self, row: u64, fault: Fault) -> Fault {
        let fault = fault.file(self.path.as_ref()).rows([row]);
        match self.line_of(row) {
            Some(line) => fault.note(format!("the row is line {line} of the file")),
            None => fault,
        }
    }

    /// The line of the file that is a row, from 1: blank lines are no rows.
    fn line_of(&self, row: u64) -> Option<u64> {
        let stream = self.file.whole().stream().ok()?;
        let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
        let mut text = Vec::new();
        let mut rows = 0;
        for line in 1.. {
            text.clear();
            let mut limited = (&mut stream).take(RECORD_BYTES_MAX as u64);
            if limited.read_until(b'\n', &mut text).ok()? == 0 {
                return None;
            }
            let content = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
            rows += u64::from(!content.iter().all(u8::is_ascii_whitespace));
            if rows > row {
                return Some(line);
            }
        }
        None
    }

    fn batch(&mut self) -> Result<Option<FileBatch>> {
        self.fill()?;
        let rows = self.ends.len();
        if rows == 0 {
            return Ok(None);
        }
        let reservation = self
            .file
            .reserve_records(self.text.len(), self.first_row, true)?;
        let batch = if self.schema.fields().is_empty() && self.known.is_none() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let columns = Vec::new();
            RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?.into()
        } else if let Some(batch) = self.decode_in_one_pass(rows) {
            batch
        } else {
            let batch = self.decode_batch(rows)?;
            let batch = self.null_texts_for_numbers(batch, rows)?;
            self.refuse_unreadable_fields()?;
            batch
        };
        drop(reservation);
        self.first_row += rows as u64;
        Ok(Some(batch))
    }

    /// Decodes the lines at hand where nothing is wrong with them, else returns `None`: all fields are known, there once
    /// in each object, and of their columns' kinds.
    fn decode_in_one_pass(&mut self, rows: usize) -> Option<FileBatch> {
        let decoder = self.one_pass.as_mut()?;
        let columns = decoder.decode(&self.text, &self.ends)?;
        let mut unfit = Vec::new();
        let batch = self.convert(&columns, &self.schema, rows, &mut unfit);
        let rows = batch.ok()?;
        Some(FileBatch { rows, unfit })
    }

    fn decode_batch(&mut self, rows: usize) -> Result<FileBatch> {
        let mut error = match self.decode_lines(rows) {
            Ok(batch) => return Ok(batch),
            Err(error) => error,
        };
        // Fields that are always null or empty are read as texts, also where they are objects.
        if self.write_empty_objects() {
            error = match self.decode_lines(rows) {
                Ok(batch) => return Ok(batch),
                Err(error) => error,
            };
        }
        let unfit = self.null_unfit_kinds();
        if unfit.is_empty() {
            return Err(self.culprit(error));
        }
        match self.decode_lines(rows) {
            Ok(mut batch) => {
                batch.unfit.extend(unfit);
                Ok(batch)
            }
            Err(error) => Err(self.culprit(error)),
        }
    }

    /// Makes texts in the place of numbers null, where the source says so.
    fn null_texts_for_numbers(&mut self, batch: FileBatch, rows: usize) -> Result<FileBatch> {
        let mut columns = self.value_types.iter();
        let makes_null = columns.any(|field| self.on_error.makes_null(field.name()));
        if !makes_null || !self.has_text_for_number() {
            return Ok(batch);
        }
        let unfit = self.null_unfit_kinds();
        if unfit.is_empty() {
            return Ok(batch);
        }
        let decoded = self.decode_lines(rows);
        let mut batch = decoded.map_err(|error| self.culprit(error))?;
        batch.unfit.extend(unfit);
        Ok(batch)
    }

    fn has_text_for_number(&self) -> bool {
        let mut start = 0;
        for end in &self.ends {
            let unreadable = self.fields.first_unreadable(&self.text[start..*end], false);
            if matches!(unreadable, Some(UnreadableField::Text { .. })) {
                return true;
            }
            start = *end;
        }
        false
    }

    /// Decodes the lines at hand.
    fn decode_lines(&self, rows: usize) -> Result<FileBatch, ArrowError> {
        let mut unfit = Vec::new();
        let is_strict = self.is_strict();
        let rows = self.decode(&self.text, &self.schema, rows, is_strict, &mut unfit)?;
        Ok(FileBatch { rows, unfit })
    }

    /// Replaces values of another kind than their column has, where these become null.
    fn null_unfit_kinds(&mut self) -> Vec<UnfitValues> {
        let mut unfit: Vec<UnfitValues> = Vec::new();
        let value_fields = self.value_types.iter();
        let columns: Vec<FieldRef> = value_fields
            .filter(|field| self.on_error.makes_null(field.name()))
            .cloned()
            .collect();
        if columns.is_empty() {
            return unfit;
        }
        let mut text = Vec::with_capacity(self.text.len());
        let mut ends = Vec::with_capacity(self.ends.len());
        let mut start = 0;
        for (row, end) in self.ends.iter().enumerate() {
            let line = &self.text[start..*end];
            start = *end;
            let is_json = serde_json::from_slice::<IgnoredAny>(line).is_ok();
            let kinds = if is_json {
                unfit_kinds(line, &columns)
            } else {
                Vec::new()
            };
            let mut copied = 0;
            for UnfitKind { column, bytes } in kinds {
                text.extend_from_slice(&line[copied..bytes.start]);
                text.extend_from_slice(b"null");
                copied = bytes.end;
                let values = StringArray::from(vec![plain_value(&line[bytes])]);
                let row = self.first_row + row as u64;
                add_unfit(
                    &mut unfit,
                    unfit_values(&column, &values, &[0], &self.path, row),
                );
            }
            text.extend_from_slice(&line[copied..]);
            ends.push(text.len());
        }
        self.text = text;
        self.ends = ends;
        unfit
    }

    /// True if the decoder refuses fields that it does not know: it meets all fields that are known.
    fn is_strict(&self) -> bool {
        self.known
            .as_ref()
            .is_some_and(|fields| self.decodes_all(fields))
    }

    /// Refuses fields that one object has twice, of which the decoder takes the last one, texts that the decoder would
    /// take for numbers, and fields that are not known, where others are faults.
    fn refuse_unreadable_fields(&self) -> Result<()> {
        if self.fields.is_empty() {
            return Ok(());
        }
        let mut start = 0;
        for (row, end) in self.ends.iter().enumerate() {
            if let Some(fault) = self.unreadable_field_fault(row, &self.text[start..*end]) {
                return Err(fault);
            }
            start = *end;
        }
        Ok(())
    }

    /// The fault for the first field of a line that is not read.
    fn unreadable_field_fault(&self, row: usize, line: &[u8]) -> Option<Fault> {
        match self.fields.first_unreadable(line, self.known.is_some())? {
            UnreadableField::Unknown(path) => Some(self.added_field_fault(row, &path)),
            UnreadableField::Repeated(path) => {
                let message = format!("one object has the field `{path}` twice");
                let fault = self.bad(row, message).column(path);
                Some(
                    fault
                        .hint("name each field of an object once: one of its values would be lost"),
                )
            }
            UnreadableField::Text { path, value } => {
                let value = shorten(&plain_value(value.as_bytes()));
                let message =
                    format!("`{value}` is a string, and the first rows have numbers there");
                let fault = self.bad(row, message).column(path);
                Some(fault.hint(UNFIT_VALUE_HINT))
            }
        }
    }

    fn added_field_fault(&self, row: usize, path: &str) -> Fault {
        let message = format!("the field `{path}` is not among those of the first rows");
        self.placed(row, Fault::new(codes::SCHEMA_DRIFT, message))
            .column(path)
            .hint(
                "set `infer_rows` to look at more rows, `added: include` to look at all rows \
                 before they are read, or `added: ignore` to leave the field out",
            )
    }

    /// Writes empty objects as texts where columns have texts; returns false if there are none. What becomes of one does
    /// not depend on the lines that are read with it.
    fn write_empty_objects(&mut self) -> bool {
        let mut text = Vec::with_capacity(self.text.len());
        let mut ends = Vec::with_capacity(self.ends.len());
        let mut start = 0;
        let mut is_changed = false;
        for end in &self.ends {
            let line = &self.text[start..*end];
            start = *end;
            let mut copied = 0;
            if serde_json::from_slice::<IgnoredAny>(line).is_ok() {
                for bytes in empty_objects(line, self.schema.fields()) {
                    text.extend_from_slice(&line[copied..bytes.start]);
                    text.extend_from_slice(br#""{}""#);
                    copied = bytes.end;
                    is_changed = true;
                }
            }
            text.extend_from_slice(&line[copied..]);
            ends.push(text.len());
        }
        if is_changed {
            self.text = text;
            self.ends = ends;
        }
        is_changed
    }

    /// Values of a column that became null.
    fn lost_values(&self, column: &str, conversion: ColumnConversion) -> UnfitValues {
        let example = |(row, value): (usize, String)| ValueExample {
            file: self.path.to_string(),
            row: self.first_row + row as u64,
            value: shorten(&value),
        };
        UnfitValues {
            column: column.to_owned(),
            count: conversion.lost_count,
            examples: conversion.lost.into_iter().map(example).collect(),
        }
    }

    /// The column of a line that alone cannot be decoded. Columns are tried together: a line of many columns is decoded
    /// a few times.
    fn only_unfit_column(&self, line: &[u8]) -> Option<&FieldRef> {
        let columns = self.schema.fields();
        let is_unfit = |columns: &[FieldRef]| {
            let schema = Arc::new(Schema::new(columns.to_vec()));
            let decoded = self.decode(line, &schema, 1, false, &mut Vec::new());
            !columns.is_empty() && decoded.is_err()
        };
        let mut fit = 0;
        let mut unfit = columns.len();
        if !is_unfit(columns) {
            return None;
        }
        // The first `fit` columns can be decoded, and the first `unfit` ones cannot.
        while unfit - fit > 1 {
            let middle = fit + (unfit - fit) / 2;
            if is_unfit(&columns[fit..middle]) {
                unfit = middle;
            } else {
                fit = middle;
            }
        }
        (!is_unfit(&columns[unfit..])).then(|| &columns[fit])
    }

    /// The fault for the first value of a line that is of another kind than its column.
    fn unfit_kind_fault(&self, row: usize, line: &[u8]) -> Option<Fault> {
        let unfit = unfit_kinds(line, &self.value_types).into_iter().next()?;
        let (_, field) = self.schema.column_with_name(&unfit.column)?;
        let value = &line[unfit.bytes];
        let message = format!(
            "`{}` is {}, and `{}` is {}",
            shorten(&plain_value(value)),
            kind_words(value),
            unfit.column,
            type_words(field.data_type())
        );
        let fault = self.bad(row, message).column(unfit.column);
        Some(fault.hint(
            "correct the value, leave the column out of `columns`, or set `on_error: missing` to \
             make such values null",
        ))
    }

    /// The line, and the column where one column alone fails.
    fn culprit(&self, error: ArrowError) -> Fault {
        let mut start = 0;
        for (row, end) in self.ends.iter().enumerate() {
            let line = &self.text[start..*end];
            start = *end;
            let is_strict = self.is_strict();
            let decoded = self.decode(line, &self.schema, 1, is_strict, &mut Vec::new());
            let Err(error) = decoded else {
                continue;
            };
            if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
                return self.placed(row, line_fault(line, error));
            }
            if let Some(fault) = self.unreadable_field_fault(row, line) {
                return fault;
            }
            if let Some(fault) = self.unfit_kind_fault(row, line) {
                return fault;
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
                    .hint(
                        "declare the types under `columns`, or set `infer_rows` to look at more \
                         rows",
                    ),
            };
            return match self.only_unfit_column(line) {
                Some(column) => fault.column(column.name()),
                None => fault,
            };
        }
        Fault::new(codes::BAD_ROW, "the lines cannot be read")
            .file(self.path.as_ref())
            .cause(error)
    }

    /// Decodes objects as some of the columns. Numbers, dates and times are decoded as texts, which
    /// hold more: the decoder truncates what their types do not hold.
    fn decode(
        &self,
        text: &[u8],
        schema: &SchemaRef,
        rows: usize,
        is_strict: bool,
        unfit: &mut Vec<UnfitValues>,
    ) -> Result<RecordBatch, ArrowError> {
        let is_whole = schema.fields().len() == self.decoded.fields().len();
        let decoded = if is_whole {
            self.decoded.clone()
        } else {
            let decoded_fields = self.decoded.fields();
            let index = NameIndex::of_fields(decoded_fields);
            let decoded_as = |field: &FieldRef| match index.get(field.name()) {
                Some(position) => decoded_fields[position].clone(),
                None => decoded_field(field),
            };
            let fields = schema.fields().iter().map(decoded_as);
            Arc::new(Schema::new(fields.collect::<Fields>()))
        };
        let batch = decode(text, &decoded, rows, is_strict)?;
        self.convert(batch.columns(), schema, rows, unfit)
    }

    /// Decoded columns in the types of a schema.
    fn convert(
        &self,
        decoded: &[ArrayRef],
        schema: &SchemaRef,
        rows: usize,
        unfit: &mut Vec<UnfitValues>,
    ) -> Result<RecordBatch, ArrowError> {
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (field, column) in schema.fields().iter().zip(decoded) {
            let mut conversion = ColumnConversion {
                rules: self.rules,
                takes_fractions: self.takes_fractions,
                makes_null: self.on_error.makes_null(field.name()),
                lost: Vec::new(),
                lost_count: 0,
            };
            columns.push(conversion.convert(column, field.data_type())?);
            if conversion.lost_count > 0 {
                unfit.push(self.lost_values(field.name(), conversion));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
    }
}

/// Counts further values of a column.
fn add_unfit(columns: &mut Vec<UnfitValues>, values: UnfitValues) {
    match columns
        .iter_mut()
        .find(|listed| listed.column == values.column)
    {
        None => columns.push(values),
        Some(listed) => {
            listed.count += values.count;
            listed.examples.extend(values.examples);
            listed.examples.truncate(EXAMPLES_MAX);
        }
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
    } else if error.to_string().starts_with("number out of range") {
        (
            "a number of the line is beyond the range of floats",
            "declare its column as `string` under `columns`",
        )
    } else {
        (
            "the line is not valid JSON",
            "each line must be one JSON object",
        )
    };
    Fault::new(codes::BAD_ROW, message).cause(error).hint(hint)
}

/// A value of JSON as people write it: a text without its quotes.
fn plain_value(value: &[u8]) -> String {
    serde_json::from_slice::<String>(value)
        .unwrap_or_else(|_| String::from_utf8_lossy(value).into_owned())
}

/// The kind of a value of JSON.
fn kind_words(value: &[u8]) -> &'static str {
    match value.first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "true or false",
        _ => "a number",
    }
}

fn value_field(field: &FieldRef, decoded: &FieldRef) -> FieldRef {
    let of = value_type(field.data_type(), decoded.data_type());
    Arc::new(decoded.as_ref().clone().with_data_type(of))
}

/// A decoded type in which texts that stand for numbers are numbers.
fn value_type(of: &DataType, decoded: &DataType) -> DataType {
    match (of, decoded) {
        (DataType::Struct(fields), DataType::Struct(decoded)) => {
            let columns = fields.iter().zip(decoded);
            let value_fields = columns.map(|(field, decoded)| value_field(field, decoded));
            DataType::Struct(value_fields.collect())
        }
        (DataType::List(item), DataType::List(decoded)) => {
            DataType::List(value_field(item, decoded))
        }
        (of, DataType::Utf8) if of.is_numeric() => of.clone(),
        _ => decoded.clone(),
    }
}

fn decoded_field(field: &FieldRef) -> FieldRef {
    let of = decoded_type(field.data_type());
    Arc::new(field.as_ref().clone().with_data_type(of))
}

/// The type that a column is decoded as: text, where it holds more than the type.
fn decoded_type(of: &DataType) -> DataType {
    let is_text = |of: &DataType| {
        of.is_integer()
            || of.is_floating()
            || matches!(of, DataType::Date32 | DataType::Timestamp(..))
    };
    numbers_as_text(of, &is_text)
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

/// Conversion of a column that was decoded to the type that it has.
struct ColumnConversion {
    rules: TextRules,
    takes_fractions: bool,
    /// True if values that are not of the type become null.
    makes_null: bool,
    /// The first of them, with their rows.
    lost: Vec<(usize, String)>,
    lost_count: u64,
}

impl ColumnConversion {
    fn convert(&mut self, column: &ArrayRef, of: &DataType) -> Result<ArrayRef, ArrowError> {
        if column.data_type() == of {
            return Ok(column.clone());
        }
        match (column.data_type(), of) {
            (DataType::Struct(_), DataType::Struct(fields)) => {
                let objects = column.as_struct();
                let columns = fields.iter().zip(objects.columns());
                let columns = columns
                    .map(|(field, column)| self.convert(column, field.data_type()))
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
                let lost_before = self.lost.len();
                let values = self.convert(lists.values(), field.data_type())?;
                for (row, _) in self.lost.iter_mut().skip(lost_before) {
                    // The last list that begins at or before the value.
                    let ends = &lists.offsets()[1..];
                    *row = ends.partition_point(|end| *end as usize <= *row);
                }
                Ok(Arc::new(ListArray::try_new(
                    field.clone(),
                    lists.offsets().clone(),
                    values,
                    lists.nulls().cloned(),
                )?))
            }
            (DataType::Utf8, _) => self.convert_texts(column.as_string::<i32>(), of),
            (from, _) => Err(ArrowError::JsonError(format!(
                "{} cannot be read as {}",
                type_words(from),
                type_words(of)
            ))),
        }
    }

    fn convert_texts(
        &mut self,
        texts: &StringArray,
        of: &DataType,
    ) -> Result<ArrayRef, ArrowError> {
        let takes_fractions = of.is_integer() && self.takes_fractions;
        let whole = takes_fractions.then(|| plain_integers(texts));
        let texts = whole.as_ref().unwrap_or(texts);
        if self.makes_null {
            let read = self.rules.read(texts, of);
            self.lost_count += read.lost.len() as u64;
            let missing = EXAMPLES_MAX.saturating_sub(self.lost.len());
            let first = read.lost.iter().take(missing);
            self.lost
                .extend(first.map(|row| (*row, texts.value(*row).to_owned())));
            return Ok(read.values);
        }
        self.rules.read_all(texts, of).map_err(|row| {
            let problem = self.rules.problem(texts.value(row), of);
            let fault = Fault::new(codes::BAD_ROW, problem).hint(UNFIT_VALUE_HINT);
            ArrowError::ExternalError(Box::new(fault))
        })
    }
}

impl Iterator for JsonLineReader {
    type Item = Result<FileBatch>;

    fn next(&mut self) -> Option<Result<FileBatch>> {
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
    let unread = text.get(read..).unwrap_or_default();
    let batch = decoder
        .flush()?
        .unwrap_or_else(|| RecordBatch::new_empty(schema.clone()));
    if batch.num_rows() != rows || !unread.iter().all(u8::is_ascii_whitespace) {
        return Err(ArrowError::JsonError(
            "a line must hold one object".to_owned(),
        ));
    }
    Ok(batch)
}

/// A value without the nulls in its lists: Arrow takes a list that begins with one for a list of numbers or texts.
pub(super) fn without_listed_nulls(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .filter(|item| !item.is_null())
                .map(without_listed_nulls)
                .collect(),
        ),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (name, without_listed_nulls(value)))
                .collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, TimeUnit};
    use bytes::Bytes;
    use forebay_storage::StorageClient;

    use super::*;
    use crate::files::blob::FileHandle;
    use crate::files::{ColumnType, ReadErrorPolicy};

    /// Draws that are the same in each run.
    struct Draws {
        state: u64,
        /// Factor by which rare draws are rarer.
        rarity: usize,
    }

    impl Draws {
        fn below(&mut self, end: usize) -> usize {
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 33) as usize % end
        }

        /// True once in so many draws, or more rarely.
        fn is_rare(&mut self, draws: usize) -> bool {
            self.below(draws * self.rarity) == 0
        }

        /// One of the first three texts, rarely one of the others.
        fn pick(&mut self, texts: &[&str]) -> String {
            let end = if self.is_rare(60) { texts.len() } else { 3 };
            texts[self.below(end)].to_owned()
        }
    }

    fn fields() -> Fields {
        let field = |name: &str, of: DataType| Field::new(name, of, true);
        let list = |of: DataType| DataType::List(Arc::new(Field::new("item", of, true)));
        let deep = DataType::Struct(Fields::from(vec![field("f", DataType::Float64)]));
        let object = DataType::Struct(Fields::from(vec![
            field("n", DataType::Int64),
            field("a longer name", DataType::Utf8),
            field("deep", deep),
        ]));
        Fields::from(vec![
            field("id", DataType::Int64),
            field("x", DataType::Float64),
            field("text", DataType::Utf8),
            field("flag", DataType::Boolean),
            field("at", DataType::Timestamp(TimeUnit::Microsecond, None)),
            field("e", DataType::Utf8),
            field("o", object.clone()),
            field("words", list(DataType::Utf8)),
            field("objects", list(object)),
            field("rows", list(list(DataType::Int64))),
        ])
    }

    fn drawn_value(draws: &mut Draws, of: &DataType) -> String {
        if draws.is_rare(12) {
            return "null".to_owned();
        }
        if draws.is_rare(150) {
            return draws.pick(&["{}", "[]", "[null]", "[1,{}]", "{\"z\":[]}", "nul", "\"1\""]);
        }
        match of {
            DataType::Int64 => {
                draws.pick(&["0", "-7", "42", "1.0", "1e3", "007", "\"5\"", "-", "1 2"])
            }
            DataType::Float64 => {
                draws.pick(&["1.5", "-0.25e-3", "3", "1e400", "NaN", "\"1.5\"", "1..5"])
            }
            DataType::Boolean => draws.pick(&["true", "false", "true", "\"true\"", "1", "tru"]),
            DataType::Timestamp(..) => draws.pick(&[
                "\"2024-01-01T00:00:00\"",
                "\"2024-05-06 07:08:09.5\"",
                "\"2024-05-06\"",
                "\"x\"",
                "5",
            ]),
            DataType::List(item) => {
                let count = draws.below(4);
                let items: Vec<String> = (0..count)
                    .map(|_| drawn_value(draws, item.data_type()))
                    .collect();
                format!(
                    "[{}]",
                    items.join(draws.pick(&[",", ",", ", ", " "]).as_str())
                )
            }
            DataType::Struct(fields) => drawn_object(draws, fields),
            _ => draws.pick(&[
                "\"plain\"",
                "\"a text of more bytes than are looked through before a search begins, with é\"",
                "\"\\\"\\\\ \\/\\n\\u00e4\"",
                "\"\"",
                "\"\\ud83d\\ude00\"",
                "12.50",
                "true",
                "\"tab\tin it\"",
                "\"\\ud83d\"",
                "\"\\x\"",
            ]),
        }
    }

    fn drawn_object(draws: &mut Draws, fields: &Fields) -> String {
        let mut members = Vec::new();
        for field in fields {
            if draws.is_rare(8) {
                continue;
            }
            let name = if draws.is_rare(40) {
                // The first letter as an escape.
                let (first, more) = field.name().split_at(1);
                format!("\\u{:04x}{more}", u32::from(first.as_bytes()[0]))
            } else {
                field.name().clone()
            };
            let colon = draws.pick(&[":", ":", ": ", " : ", ""]);
            let value = drawn_value(draws, field.data_type());
            members.push(format!("\"{name}\"{colon}{value}"));
        }
        if draws.is_rare(40) && !members.is_empty() {
            let repeated = members[draws.below(members.len())].clone();
            members.push(repeated);
        }
        if draws.is_rare(40) {
            members.push("\"new\":{\"a\":[1,\"}\"],\"a\":2}".to_owned());
        }
        if members.len() > 1 && draws.is_rare(5) {
            let count = members.len();
            members.swap(draws.below(count), draws.below(count));
        }
        let comma = draws.pick(&[",", ",", " , ", ",,", " "]);
        format!("{{{}}}", members.join(&comma))
    }

    /// Lines, some of them damaged.
    fn drawn_text(draws: &mut Draws) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..=draws.below(6) {
            let object = drawn_object(draws, &fields());
            text.extend_from_slice(object.as_bytes());
            let end = draws.pick(&["\n", "\n", "\r\n", "", "\n \n", " {}\n"]);
            text.extend_from_slice(end.as_bytes());
        }
        if draws.is_rare(6) {
            let at = draws.below(text.len());
            text[at] = b"{}[],:\"\\u0tn-.\n\xff"[draws.below(16)];
        }
        text
    }

    type Batches = Vec<std::result::Result<(RecordBatch, Vec<UnfitValues>), String>>;

    /// All batches up to the first fault.
    fn batches(mut lines: JsonLineReader, in_one_pass: bool) -> Batches {
        let mut batches = Vec::new();
        loop {
            if !in_one_pass {
                // It is made again where the decoded types change.
                lines.one_pass = None;
            }
            match lines.next() {
                None => return batches,
                Some(Ok(batch)) => batches.push(Ok((batch.rows, batch.unfit))),
                Some(Err(fault)) => {
                    batches.push(Err(format!("{fault:?}")));
                    return batches;
                }
            }
        }
    }

    fn is_begun_in_one_pass(mut lines: JsonLineReader) -> bool {
        lines.fill().unwrap();
        let rows = lines.ends.len();
        lines.decode_in_one_pass(rows).is_some()
    }

    #[test]
    fn one_pass_reads_what_the_slower_decoder_reads() {
        const DOCUMENTS: usize = 2000;
        let io = StorageClient::new().unwrap();
        let schema = Arc::new(Schema::new(fields()));
        let all: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        let some = vec![all[0].clone(), all[6].clone(), all[9].clone()];
        let default_source = JsonSource::default();
        let missing = JsonSource {
            on_error: ReadErrorPolicy::Missing.into(),
            ..JsonSource::default()
        };
        let declared = JsonSource::default().column("id", ColumnType::Int64);
        let settings = [
            (&default_source, Some(&schema), &all),
            (&default_source, Some(&schema), &some),
            (&default_source, None, &all),
            (&missing, Some(&schema), &all),
            (&declared, None, &all),
        ];
        let mut fast_count = 0;
        let mut fault_count = 0;
        for document in 0..DOCUMENTS {
            let mut draws = Draws {
                state: document as u64,
                rarity: [1, 8][document % 2],
            };
            let text = drawn_text(&mut draws);
            let shown = String::from_utf8_lossy(&text).into_owned();
            let file = InputFile {
                path: Arc::from("drawn.jsonl"),
                size: text.len() as u64,
                blob: FileHandle::Memory(Bytes::from(text)),
                part: None,
                memory: io.read_memory().clone(),
            };
            let (config, known, wanted) = settings[document / 2 % settings.len()];
            let open = || open_lines(&file, known, wanted, 3, config).unwrap();
            let fast = batches(open(), true);
            assert!(
                fast == batches(open(), false),
                "document {document}: {shown}"
            );
            fast_count += usize::from(is_begun_in_one_pass(open()));
            fault_count += usize::from(fast.last().is_some_and(std::result::Result::is_err));
        }
        assert!(fast_count > DOCUMENTS / 4, "{fast_count} in one pass");
        assert!(fault_count > DOCUMENTS / 10, "{fault_count} faults");
    }
}
