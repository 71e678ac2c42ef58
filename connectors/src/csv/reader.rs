//! CSV rows as batches.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BinaryBuilder, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use csv::ByteRecord;
use forebay_model::{Fault, RECORDS_BYTES_TARGET, Result, TextRules, codes};

use crate::files::rows::{BatchIterator, InputFile};
use crate::files::texts::{ColumnTexts, TimeFormat};

use super::CsvSource;
use super::header::{self, CsvRecords, field_count_fault, record_fault};

/// The names of a file's columns, and its rows. Fields are read as text and then converted:
/// that way a value that does not fit is known by its row.
pub(super) fn rows(
    config: &CsvSource,
    file: &InputFile,
    wanted: &[FieldRef],
    batch_rows: usize,
) -> Result<(Vec<String>, BatchIterator)> {
    let opened = header::open_records(config, file)?;
    let names = opened.names.clone();
    if names.is_empty() {
        return Ok((names, Box::new(std::iter::empty())));
    }
    let columns = wanted
        .iter()
        .filter_map(|field| {
            names
                .iter()
                .position(|name| name == field.name())
                .map(|at| (at, field.clone()))
        })
        .collect();
    let rows = CsvBatchReader {
        opened,
        columns,
        nulls: NullFields::of(&config.nulls),
        rules: config.text_rules(),
        formats: config
            .time_formats()
            .map_err(|error| error.into_fault("csv"))?,
        path: file.path.clone(),
        batch_rows,
        first_row: file.first_row(u64::from(config.header)),
    };
    Ok((names, Box::new(rows)))
}

struct CsvBatchReader {
    opened: CsvRecords,
    /// Wanted columns, and where their fields stand in a record.
    columns: Vec<(usize, FieldRef)>,
    nulls: NullFields,
    rules: TextRules,
    formats: BTreeMap<String, TimeFormat>,
    path: Arc<str>,
    batch_rows: usize,
    first_row: u64,
}

/// Fields that stand for null.
struct NullFields {
    /// Whether an empty field does.
    empty: bool,
    words: Vec<String>,
}

impl NullFields {
    fn of(nulls: &[String]) -> Self {
        NullFields {
            empty: nulls.iter().any(String::is_empty),
            words: nulls.to_vec(),
        }
    }

    fn contains(&self, field: &[u8]) -> bool {
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
    fn read(&mut self, record: &mut ByteRecord, row: u64) -> Result<bool> {
        self.opened.start.mark_start();
        let found = match self.opened.first.take() {
            Some(first) => {
                *record = first;
                true
            }
            None => self
                .opened
                .records
                .read_byte_record(record)
                .map_err(|error| record_fault(&self.path, row, error))?,
        };
        let columns = self.opened.names.len();
        match found && record.len() != columns {
            true => Err(field_count_fault(&self.path, row, columns, record.len())),
            false => Ok(found),
        }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut fields: Vec<BinaryBuilder> =
            self.columns.iter().map(|_| BinaryBuilder::new()).collect();
        let mut record = ByteRecord::new();
        let (mut rows, mut bytes) = (0, 0);
        while rows < self.batch_rows && bytes < RECORDS_BYTES_TARGET {
            let row = self.first_row + rows as u64;
            if !self.read(&mut record, row)? {
                break;
            }
            for ((at, _), fields) in self.columns.iter().zip(&mut fields) {
                let field = &record[*at];
                fields.append_option((!self.nulls.contains(field)).then_some(field));
            }
            rows += 1;
            bytes += record.as_slice().len();
        }
        if rows == 0 {
            return Ok(None);
        }
        let arrays = fields
            .iter_mut()
            .zip(&self.columns)
            .map(|(fields, (_, field))| {
                let texts = self.texts(fields.finish(), field)?;
                self.converted(texts, field)
            });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        self.first_row += rows as u64;
        let named = self.columns.iter().zip(&arrays);
        let fields = named
            .map(|((_, field), array)| Field::new(field.name(), array.data_type().clone(), true));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::new(fields.collect::<Fields>()));
        Ok(Some(RecordBatch::try_new_with_options(
            schema, arrays, &options,
        )?))
    }

    /// The fields of a column as text.
    fn texts(&self, fields: BinaryArray, column: &FieldRef) -> Result<StringArray> {
        StringArray::try_from_binary(fields.clone()).map_err(|error| {
            let fault =
                Fault::new(codes::BAD_ROW, "the value is not valid UTF-8").file(self.path.as_ref());
            let fault = fault
                .column(column.name())
                .hint("set `encoding`, such as `windows-1252` or `utf-16`");
            let mut rows = (self.first_row..).zip(&fields);
            match rows.find_map(|(row, field)| Some((row, std::str::from_utf8(field?).err()?))) {
                Some((row, error)) => fault.rows([row]).cause(error),
                None => fault.cause(error),
            }
        })
    }

    /// Texts as a column's type.
    fn converted(&self, texts: StringArray, field: &FieldRef) -> Result<ArrayRef> {
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
        let problem = column.problem(texts.value(*row), field.data_type());
        Err(Fault::new(codes::BAD_ROW, problem)
            .file(self.path.as_ref())
            .column(field.name())
            .rows([self.first_row + *row as u64])
            .hint(
                "declare the column's type under `columns`, or add the value to `nulls`; to make such values null, \
                 declare `string` and `cast` with `on_error: missing`",
            ))
    }
}

impl Iterator for CsvBatchReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.batch().transpose()
    }
}
