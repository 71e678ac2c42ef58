//! CSV rows as batches.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BinaryBuilder, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use forebay_model::{Fault, NameIndex, Result, TextRules, TimeFormat, UnfitValues, codes};

use crate::files::input_file::InputFile;
use crate::files::rows::{BatchIterator, FIELD_BYTES, FileBatch};
use crate::files::texts::{ColumnTexts, unfit_values};

use super::CsvSource;
use super::config::QuotedNulls;
use super::faults::{self, RecordPlace};
use super::header::CsvRecords;
use super::opened::open_records;
use super::records::{CsvRecord, FieldKind};

/// Fields of a batch that have a place before they are read. Each further one makes its column grow.
const FIELDS_BEGUN: usize = 1 << 18;

/// The names of a file's columns, and its rows. Fields are read as text and then converted:
/// that way a value that does not fit is known by its row.
pub(super) fn rows(
    config: &CsvSource,
    file: &InputFile,
    requested: &[FieldRef],
    batch_rows: usize,
) -> Result<(Vec<String>, BatchIterator)> {
    let opened = open_records(config, file)?;
    let names = opened.names.clone();
    if names.is_empty() {
        return Ok((names, Box::new(std::iter::empty())));
    }
    let index = NameIndex::new(names.iter().map(String::as_str));
    let columns = requested
        .iter()
        .filter_map(|field| Some((index.get(field.name())?, field.clone())))
        .collect();
    let rows = CsvBatchReader {
        opened,
        columns,
        nulls: NullFields::of(config),
        rules: config.text_rules(),
        formats: config
            .time_formats()
            .map_err(|error| error.into_fault("csv"))?,
        config: config.clone(),
        whole: file.whole(),
        file: file.clone(),
        batch_rows,
        first_row: file.first_row(u64::from(config.header)),
    };
    Ok((names, Box::new(rows)))
}

struct CsvBatchReader {
    opened: CsvRecords,
    /// Requested columns, and the indexes of their fields in a record.
    columns: Vec<(usize, FieldRef)>,
    nulls: NullFields,
    rules: TextRules,
    formats: BTreeMap<String, TimeFormat>,
    config: CsvSource,
    /// The whole file, for faults.
    whole: InputFile,
    file: InputFile,
    batch_rows: usize,
    first_row: u64,
}

/// Fields that stand for null.
struct NullFields {
    /// True if an empty field is null.
    empty: bool,
    words: Vec<String>,
    in_quotes: QuotedNulls,
}

impl NullFields {
    fn of(config: &CsvSource) -> Self {
        let words = config.null_texts();
        NullFields {
            empty: words.iter().any(String::is_empty),
            words,
            in_quotes: config.quoted_null_fields(),
        }
    }

    /// True if a field of a column, of texts or not, stands for null.
    fn contains(&self, field: &[u8], kind: FieldKind, is_text: bool) -> bool {
        let is_quoted_text = match kind {
            FieldKind::Null => return true,
            FieldKind::Quoted => is_text,
            FieldKind::Plain => false,
        };
        if is_quoted_text {
            match self.in_quotes {
                QuotedNulls::All => {}
                QuotedNulls::Words if !field.is_empty() => {}
                QuotedNulls::Words | QuotedNulls::None => return false,
            }
        }
        // Comparing an empty field with the empty word took a third of the time of reading a file.
        if field.is_empty() {
            self.empty
        } else {
            self.words.iter().any(|word| word.as_bytes() == field)
        }
    }
}

impl CsvBatchReader {
    /// The next record; false at the end of the file.
    fn read(&mut self, record: &mut CsvRecord, row: u64) -> Result<bool> {
        let is_there = match self.opened.first.take() {
            Some(first) => {
                *record = first;
                true
            }
            None => self
                .opened
                .records
                .read(record)
                .map_err(|error| faults::record_fault(self.place(row), &self.opened, error))?,
        };
        let columns = self.opened.names.len();
        if is_there && record.len() != columns {
            let record_place = self.place(row);
            return Err(faults::field_count_fault(
                record_place,
                columns,
                record.len(),
            ));
        }
        Ok(is_there)
    }

    fn place(&self, row: u64) -> RecordPlace<'_> {
        RecordPlace {
            config: &self.config,
            file: &self.whole,
            row: Some(row),
        }
    }

    fn batch(&mut self) -> Result<Option<FileBatch>> {
        let column_count = self.columns.len().max(1);
        let rows_begun = (FIELDS_BEGUN / column_count).clamp(1, self.batch_rows.max(1));
        let mut fields = Vec::with_capacity(self.columns.len());
        for _ in &self.columns {
            fields.push(BinaryBuilder::with_capacity(rows_begun, 0));
        }
        let mut record = CsvRecord::default();
        let bytes_target = self.file.records_bytes_target();
        let mut rows = 0;
        let mut bytes = 0;
        // Those of long records last until the batch is made.
        let mut reservations = Vec::new();
        while rows < self.batch_rows && bytes < bytes_target {
            let row = self.first_row + rows as u64;
            if !self.read(&mut record, row)? {
                break;
            }
            let record_bytes = record.bytes();
            let may_wait = reservations.is_empty();
            reservations.extend(self.file.reserve_records(record_bytes, row, may_wait)?);
            for ((at, column), fields) in self.columns.iter().zip(&mut fields) {
                let (field, kind) = record.field(*at);
                let is_text = *column.data_type() == DataType::Utf8;
                let is_null = self.nulls.contains(field, kind, is_text);
                fields.append_option((!is_null).then_some(field));
            }
            rows += 1;
            bytes += record_bytes + FIELD_BYTES * column_count;
        }
        if rows == 0 {
            return Ok(None);
        }
        let mut unfit = Vec::new();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (fields, (_, field)) in fields.iter_mut().zip(&self.columns) {
            let texts = self.texts(fields.finish(), field)?;
            arrays.push(self.converted(texts, field, &mut unfit)?);
        }
        self.first_row += rows as u64;
        let named = self.columns.iter().zip(&arrays);
        let fields = named
            .map(|((_, field), array)| Field::new(field.name(), array.data_type().clone(), true));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::new(fields.collect::<Fields>()));
        let rows = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        Ok(Some(FileBatch { rows, unfit }))
    }

    /// The fields of a column as text.
    fn texts(&self, fields: BinaryArray, column: &FieldRef) -> Result<StringArray> {
        StringArray::try_from_binary(fields.clone()).map_err(|error| {
            let mut rows = (self.first_row..).zip(&fields);
            let bad = rows.find_map(|(row, field)| Some((row, std::str::from_utf8(field?).err()?)));
            let row = bad.map(|(row, _)| row);
            let fault = Fault::new(codes::BAD_ROW, "the value is not valid UTF-8");
            let fault = match bad {
                Some((_, error)) => fault.cause(error),
                None => fault.cause(error),
            };
            let record_place = RecordPlace {
                row,
                ..self.place(0)
            };
            record_place
                .locate(fault)
                .column(column.name())
                .hint("set `encoding`, such as `windows-1252` or `utf-16`")
        })
    }

    /// Texts as a column's type.
    fn converted(
        &self,
        texts: StringArray,
        field: &FieldRef,
        unfit: &mut Vec<UnfitValues>,
    ) -> Result<ArrayRef> {
        if *field.data_type() == DataType::Utf8 {
            return Ok(Arc::new(texts));
        }
        let column = ColumnTexts {
            rules: self.rules,
            format: self.formats.get(field.name()),
        };
        let read = column.read(&texts, field.data_type());
        let Some(row) = read.lost.first() else {
            return Ok(read.values);
        };
        if self.config.on_error.makes_null(field.name()) {
            unfit.push(unfit_values(
                field.name(),
                &texts,
                &read.lost,
                &self.whole.path,
                self.first_row,
            ));
            return Ok(read.values);
        }
        let value = texts.value(*row);
        let fault = Fault::new(codes::BAD_ROW, column.problem(value, field.data_type()));
        let record_place = self.place(self.first_row + *row as u64);
        let fault = record_place.locate(fault).column(field.name()).hint(
            "declare the column's type under `columns`, add the value to `nulls`, or set \
             `on_error: missing` to make such values null",
        );
        Err(record_place.dialect_hint(fault))
    }
}

impl Iterator for CsvBatchReader {
    type Item = Result<FileBatch>;

    fn next(&mut self) -> Option<Result<FileBatch>> {
        self.batch().transpose()
    }
}
