//! Writing CSV.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::csv::WriterBuilder;
use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_contract::{EncodedPiece, FileLayout, FileWriter, Sink, SinkFormat};
use forebay_model::{Fault, RECORD_BYTES_MAX, Result, codes};

use crate::files::packed::TextCompression;
use crate::files::readable::{
    has_text_form, no_form_fault, readable_column, record_too_long_fault,
};

use super::config::CsvSink;
use super::records::DELIMITER_LINE;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The configured sink.
#[derive(Debug)]
pub(super) struct CsvEncoder {
    config: CsvSink,
}

impl SinkFormat for CsvSink {
    fn sink(self) -> Arc<dyn Sink> {
        Arc::new(CsvEncoder::new(self))
    }
}

impl CsvEncoder {
    pub(super) fn new(config: CsvSink) -> Self {
        CsvEncoder { config }
    }

    /// The part of a piece's fields that are marked.
    fn marked_fields(&self, columns: usize) -> MarkedFields {
        match (self.config.null_text.is_empty(), columns) {
            (false, _) => MarkedFields::None,
            (true, 1) => MarkedFields::Nulls,
            (true, _) => MarkedFields::EmptyTexts,
        }
    }

    /// Rows in the types that the writer writes exactly. Fields that are marked are counted.
    fn readable(&self, batch: &RecordBatch, marked: &mut usize) -> Result<RecordBatch> {
        let marks = self.marked_fields(batch.num_columns());
        let mut fields = Vec::with_capacity(batch.num_columns());
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let column = readable_column(column)
                .and_then(|column| match marks {
                    MarkedFields::None => self.without_null_texts(column),
                    MarkedFields::EmptyTexts => Ok(with_marks(column, marked)),
                    MarkedFields::Nulls => {
                        *marked += column.logical_null_count();
                        Ok(column)
                    }
                })
                .map_err(|fault| fault.column(field.name()))?;
            fields.push(Field::new(field.name(), column.data_type().clone(), true));
            columns.push(column);
        }
        let readable = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        check_record_lengths(&readable)?;
        Ok(readable)
    }

    /// Refuses texts that would be read back as null.
    fn without_null_texts(&self, column: ArrayRef) -> Result<ArrayRef> {
        let null = self.config.null_text.as_str();
        let is_null = |text: Option<&str>| text == Some(null);
        let Some(texts) = column.as_string_opt::<i32>() else {
            return Ok(column);
        };
        if !texts.iter().any(is_null) {
            return Ok(column);
        }
        let message =
            format!("the text `{null}` is written as null is, and would be read back as null");
        Err(Fault::new(codes::BAD_ROW, message).hint(
            "choose another `null_text`, such as `\\N`, and name it in the `nulls` of what reads \
             the files; or make such texts null before they are written: `derive: { name: \
             \"nullif(name, '')\" }`",
        ))
    }
}

/// Fields for which a mark stands until their record is written, since the writer does not tell empty texts from null: it
/// writes both in quotes in files of one column, and without in others.
#[derive(Clone, Copy)]
enum MarkedFields {
    /// None: null has a text of its own.
    None,
    /// Empty texts, which are then written in quotes.
    EmptyTexts,
    /// Nulls, which are then written as blank lines.
    Nulls,
}

impl MarkedFields {
    /// The text for a mark.
    fn written(self) -> &'static [u8] {
        match self {
            MarkedFields::EmptyTexts => b"\"\"",
            MarkedFields::None | MarkedFields::Nulls => b"",
        }
    }
}

/// A mark. Neither of its characters is one of Unicode's.
const FIELD_MARK: &str = "\u{fdd0}\u{fdd1}";

/// A column whose empty texts are marked.
fn with_marks(column: ArrayRef, marked: &mut usize) -> ArrayRef {
    let Some(texts) = column.as_string_opt::<i32>() else {
        return column;
    };
    let empty = texts.iter().filter(|text| *text == Some("")).count();
    if empty == 0 {
        return column;
    }
    *marked += empty;
    let mark = |text: Option<&'_ str>| {
        text.map(|text| {
            if text.is_empty() {
                FIELD_MARK.to_owned()
            } else {
                text.to_owned()
            }
        })
    };
    Arc::new(texts.iter().map(mark).collect::<StringArray>())
}

/// Records with a text in the place of marks. A text that has the characters of a mark is refused.
fn without_marks(records: Vec<u8>, marked: usize, written: &[u8]) -> Result<Vec<u8>> {
    if marked == 0 {
        return Ok(records);
    }
    let mark = FIELD_MARK.as_bytes();
    let mut quoted = Vec::with_capacity(records.len());
    let mut copied = 0;
    let mut replaced_count = 0;
    for at in memchr::memmem::find_iter(&records, mark) {
        quoted.extend_from_slice(&records[copied..at]);
        quoted.extend_from_slice(written);
        copied = at + mark.len();
        replaced_count += 1;
    }
    quoted.extend_from_slice(&records[copied..]);
    if replaced_count == marked {
        return Ok(quoted);
    }
    let message = "a text has the characters U+FDD0 and U+FDD1 beside an empty text or null";
    Err(Fault::new(codes::BAD_ROW, message).hint("choose a `null_text`, such as `\\N`"))
}

/// Refuses records that a source does not read.
fn check_record_lengths(batch: &RecordBatch) -> Result<()> {
    if batch.get_array_memory_size() <= RECORD_BYTES_MAX {
        return Ok(());
    }
    let texts: Vec<_> = batch
        .columns()
        .iter()
        .filter_map(|column| column.as_string_opt::<i32>())
        .collect();
    let length = |row: usize| -> usize { texts.iter().map(|texts| texts.value(row).len()).sum() };
    match (0..batch.num_rows()).find(|row| length(*row) > RECORD_BYTES_MAX / 2) {
        Some(row) => Err(record_too_long_fault(length(row))),
        None => Ok(()),
    }
}

/// Refuses names at the beginning of a file that sources take for something else: a byte order mark, or a line that
/// names the delimiter.
fn check_header(schema: &Schema) -> Result<()> {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let is_delimiter_line = match names.as_slice() {
        [name] => name
            .as_bytes()
            .strip_prefix(DELIMITER_LINE)
            .is_some_and(|delimiter| delimiter.len() == 1),
        [name, second] => name.as_bytes() == DELIMITER_LINE && second.is_empty(),
        _ => false,
    };
    let Some(first) = names.first() else {
        return Ok(());
    };
    if !is_delimiter_line && !first.starts_with(BYTE_ORDER_MARK) {
        return Ok(());
    }
    let message = format!(
        "a CSV file that begins with the name `{}` is read in another way",
        first.escape_debug()
    );
    Err(Fault::new(codes::UNSUPPORTED, message)
        .column(*first)
        .hint("rename the column, or write another one before it"))
}

impl Sink for CsvEncoder {
    fn path(&self) -> &str {
        &self.config.path
    }

    fn extension(&self) -> &'static str {
        match self.config.compression {
            TextCompression::None => "csv",
            TextCompression::Gzip => "csv.gz",
            TextCompression::Zstd => "csv.zst",
        }
    }

    fn layout(&self) -> FileLayout {
        FileLayout {
            partition_by: self.config.partition_by.clone(),
            sort_by: Vec::new(),
            file_bytes_target: self.config.file_bytes_target,
            group_rows_max: self.config.group_rows_max,
            is_plain: true,
        }
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        check_header(schema)?;
        let mut fields = schema.fields().iter();
        match fields.find(|field| !has_text_form(field.data_type())) {
            Some(field) => Err(no_form_fault(field.name(), field.data_type(), "CSV")),
            None => Ok(()),
        }
    }

    fn encode_piece(
        &self,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        _: usize,
    ) -> Result<EncodedPiece> {
        self.check_schema(schema)?;
        let marks = self.marked_fields(schema.fields().len());
        let null_text = match marks {
            MarkedFields::Nulls => FIELD_MARK.to_owned(),
            MarkedFields::None | MarkedFields::EmptyTexts => self.config.null_text.clone(),
        };
        let mut writer = WriterBuilder::new()
            .with_header(false)
            .with_null(null_text)
            .build(Vec::new());
        let mut marked = 0;
        for batch in batches {
            writer
                .write(&self.readable(batch, &mut marked)?)
                .map_err(|error| Fault::internal("rows cannot be written as CSV").cause(error))?;
        }
        let records = without_marks(writer.into_inner(), marked, marks.written())?;
        self.config.compression.encode(records)
    }

    fn open_writer(
        &self,
        schema: &SchemaRef,
        out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn FileWriter>> {
        self.check_schema(schema)?;
        let header = RecordBatch::new_empty(schema.clone());
        let mut writer = WriterBuilder::new().with_header(true).build(Vec::new());
        writer
            .write(&header)
            .map_err(|error| Fault::internal("a header cannot be written as CSV").cause(error))?;
        self.config
            .compression
            .open_writer(out, writer.into_inner())
    }
}
