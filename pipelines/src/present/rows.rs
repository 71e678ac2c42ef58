//! Rows as a table, CSV or JSON.

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{Fault, Result, logical_type};
use std::ops::Range;
use std::sync::Arc;

use super::printable::printable;
use super::{output_columns, units};

/// Characters of a value that a table shows.
const VALUE_CHARS_MAX: usize = 32;

/// A table with names, types and values; numbers stand to the right. Columns that do not fit beside each other
/// in a terminal stand in blocks of their own below.
pub fn table(batches: &[RecordBatch]) -> Result<String> {
    let Some(first) = batches.first() else {
        return Ok("no rows\n".to_owned());
    };
    let mut columns: Vec<Vec<String>> = first
        .schema()
        .fields()
        .iter()
        .map(|field| vec![printable(field.name()), type_name(field.data_type())])
        .collect();
    let options = FormatOptions::default().with_null("null");
    for batch in batches {
        for (texts, column) in columns.iter_mut().zip(batch.columns()) {
            let values = ArrayFormatter::try_new(column.as_ref(), &options)?;
            texts.extend((0..column.len()).map(|row| shortened(&values.value(row).to_string())));
        }
    }
    let numeric: Vec<bool> = first
        .columns()
        .iter()
        .map(|column| column.data_type().is_numeric())
        .collect();
    let widths: Vec<usize> = columns
        .iter()
        .map(|texts| {
            texts
                .iter()
                .map(|text| text.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let lines = columns.first().map_or(0, Vec::len);
    let cell = |column: usize, line: usize| match (
        &columns[column][line],
        widths[column],
        numeric[column],
    ) {
        (text, width, true) => format!("{text:>width$}"),
        (text, width, false) => format!("{text:width$}"),
    };
    let mut out = String::new();
    for (number, block) in blocks(&widths, output_columns().unwrap_or(usize::MAX))
        .into_iter()
        .enumerate()
    {
        if number > 0 {
            out.push('\n');
        }
        for line in 0..lines {
            let cells = block.clone().map(|column| cell(column, line));
            out += cells.collect::<Vec<_>>().join("  ").trim_end();
            out.push('\n');
        }
    }
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    out += &format!("{}\n", units::rows(rows as u64));
    Ok(out)
}

/// Columns that fit beside each other; the others stand below.
fn blocks(widths: &[usize], columns: usize) -> Vec<Range<usize>> {
    let (mut blocks, mut from, mut width) = (Vec::new(), 0, 0);
    for (column, own) in widths.iter().enumerate() {
        if column > from && width + 2 + own > columns {
            blocks.push(from..column);
            (from, width) = (column, 0);
        }
        width += if column == from { *own } else { own + 2 };
    }
    blocks.push(from..widths.len());
    blocks
}

/// CSV with a header.
pub(crate) fn csv(batches: &[RecordBatch]) -> Result<String> {
    let mut bytes = Vec::new();
    let mut writer = arrow::csv::WriterBuilder::new()
        .with_header(true)
        .build(&mut bytes);
    for batch in batches {
        writer.write(&flat(&plain(batch)?)?)?;
    }
    drop(writer);
    text(bytes)
}

/// The same with vectors and lists as text, such as `[1.0, 0.0]`.
fn flat(batch: &RecordBatch) -> Result<RecordBatch> {
    let options = FormatOptions::default();
    let (mut fields, mut columns): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if !column.data_type().is_nested() {
            columns.push(column.clone());
            fields.push(field.as_ref().clone());
            continue;
        }
        let values = ArrayFormatter::try_new(column.as_ref(), &options)?;
        let texts = (0..column.len())
            .map(|row| column.is_valid(row).then(|| values.value(row).to_string()));
        columns.push(Arc::new(texts.collect::<StringArray>()));
        fields.push(Field::new(field.name(), DataType::Utf8, true));
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// One JSON object per row; nulls are written.
pub(crate) fn json(batches: &[RecordBatch]) -> Result<String> {
    let mut bytes = Vec::new();
    let builder = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = builder.build::<_, arrow::json::writer::LineDelimited>(&mut bytes);
    for batch in batches {
        writer.write(&plain(batch)?)?;
    }
    writer.finish()?;
    drop(writer);
    text(bytes)
}

/// Arrow's IPC stream.
pub(crate) fn arrow_stream(batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let batches = batches.iter().map(plain).collect::<Result<Vec<_>>>()?;
    if let Some(first) = batches.first() {
        let mut writer = StreamWriter::try_new(&mut bytes, &first.schema())?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()?;
    }
    Ok(bytes)
}

/// Arrow's IPC file.
pub(crate) fn arrow_file(batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let batches = batches.iter().map(plain).collect::<Result<Vec<_>>>()?;
    if let Some(first) = batches.first() {
        let mut writer = FileWriter::try_new(&mut bytes, &first.schema())?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()?;
    }
    Ok(bytes)
}

/// The same without dictionaries.
fn plain(batch: &RecordBatch) -> Result<RecordBatch> {
    let (mut fields, mut columns): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let data_type = logical_type(column.data_type());
        columns.push(cast(column, &data_type)?);
        fields.push(Field::new(field.name(), data_type, true));
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| Fault::internal("rows are not text").cause(error))
}

/// A type as specs call it.
pub fn type_name(data_type: &DataType) -> String {
    match logical_type(data_type) {
        DataType::Utf8 => "string".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Timestamp(..) => "timestamp".to_owned(),
        DataType::FixedSizeList(item, width) => {
            format!("{} x {width}", type_name(item.data_type()))
        }
        other => other.to_string().to_lowercase(),
    }
}

fn shortened(text: &str) -> String {
    let line = printable(text);
    if line.chars().count() > VALUE_CHARS_MAX {
        line.chars().take(VALUE_CHARS_MAX - 3).collect::<String>() + "..."
    } else {
        line
    }
}
