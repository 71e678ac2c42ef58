//! Rows as a table, CSV or JSON.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Schema};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{Fault, Result, check_times_have_texts, logical_type, type_label};
use std::ops::Range;
use std::sync::Arc;

use super::cells::CellTexts;
use super::printable::printable;
use super::{output_columns, units};

/// Characters of a value that a table shows.
const VALUE_CHARS_MAX: usize = 32;

/// Digits of floating-point numbers in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberDigits {
    /// As many as tell the number from all others.
    All,
    /// Six significant ones, and all of the part before the point.
    Six,
}

/// A table with names, types and values; numbers are aligned to the right. Columns that do not fit
/// next to each other in a terminal follow below in separate blocks.
pub fn table(batches: &[RecordBatch]) -> Result<String> {
    table_of(batches, NumberDigits::All)
}

/// A table like [`table`], with numbers to six digits.
pub fn short_table(batches: &[RecordBatch]) -> Result<String> {
    table_of(batches, NumberDigits::Six)
}

/// Each row as lines of a name and a value, in full.
pub(crate) fn expanded(batches: &[RecordBatch]) -> Result<String> {
    let mut out = String::new();
    let mut number = 0_u64;
    for batch in batches {
        let schema = batch.schema();
        let names: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| printable(field.name()))
            .collect();
        let width = names.iter().map(|name| name.chars().count()).max();
        let width = width.unwrap_or(0);
        for row in 0..batch.num_rows() {
            number += 1;
            out += &format!("row {}\n", units::grouped(number));
            for (name, column) in names.iter().zip(batch.columns()) {
                let value = printable(&CellTexts::new(column)?.text(row));
                out += &format!("  {name:width$}  {value}\n");
            }
        }
    }
    out += &format!("{}\n", units::rows(number));
    Ok(out)
}

/// Names, types and values of the columns, with numbers to six digits.
pub(crate) fn short_columns(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>> {
    column_texts(batches, NumberDigits::Six)
}

/// Names, types and values of the columns.
fn column_texts(batches: &[RecordBatch], digits: NumberDigits) -> Result<Vec<Vec<String>>> {
    let mut columns: Vec<Vec<String>> = Vec::new();
    let Some(first) = batches.first() else {
        return Ok(columns);
    };
    for field in first.schema().fields() {
        columns.push(vec![printable(field.name()), type_label(field.data_type())]);
    }
    for batch in batches {
        for (texts, column) in columns.iter_mut().zip(batch.columns()) {
            if digits == NumberDigits::Six && column.data_type().is_floating() {
                texts.extend(short_numbers(column)?);
                continue;
            }
            let values = CellTexts::new(column)?;
            for row in 0..column.len() {
                texts.push(shortened(&values.text(row)));
            }
        }
    }
    Ok(columns)
}

fn table_of(batches: &[RecordBatch], digits: NumberDigits) -> Result<String> {
    let Some(first) = batches.first() else {
        return Ok("no rows\n".to_owned());
    };
    let mut columns = column_texts(batches, digits)?;
    let mut widths: Vec<usize> = Vec::with_capacity(columns.len());
    for (texts, column) in columns.iter_mut().zip(first.columns()) {
        let width = texts.iter().map(|text| text.chars().count()).max();
        let width = width.unwrap_or(0);
        let is_number = column.data_type().is_numeric();
        for text in texts {
            *text = if is_number {
                format!("{text:>width$}")
            } else {
                format!("{text:width$}")
            };
        }
        widths.push(width);
    }
    let lines = columns.first().map_or(0, Vec::len);
    let mut out = String::new();
    let blocks = blocks(&widths, output_columns().unwrap_or(usize::MAX));
    for (number, block) in blocks.into_iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        for line in 0..lines {
            let columns = &columns[block.clone()];
            let cells: Vec<&str> = columns.iter().map(|texts| texts[line].as_str()).collect();
            out += cells.join("  ").trim_end();
            out.push('\n');
        }
    }
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    out += &format!("{}\n", units::rows(rows as u64));
    Ok(out)
}

/// The numbers of a column to six digits.
fn short_numbers(column: &ArrayRef) -> Result<Vec<String>> {
    let numbers = cast(column, &DataType::Float64)?;
    let numbers = numbers.as_primitive::<Float64Type>();
    let texts = numbers.iter().map(|number| match number {
        Some(number) => six_digits(number),
        None => "null".to_owned(),
    });
    Ok(texts.collect())
}

/// A number with six significant digits, and all of the part before the point.
pub(crate) fn six_digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return format!("{number:?}");
    }
    let exponent = number.abs().log10().floor();
    let decimals = (5.0 - exponent).clamp(0.0, 330.0) as usize;
    let rounded = format!("{number:.decimals$}");
    let rounded: f64 = rounded.parse().unwrap_or(number);
    format!("{rounded:?}")
}

/// Columns that fit next to each other; the others follow below.
pub(super) fn blocks(widths: &[usize], columns: usize) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut from = 0;
    let mut width = 0;
    for (column, column_width) in widths.iter().enumerate() {
        if column > from && width + 2 + column_width > columns {
            blocks.push(from..column);
            (from, width) = (column, 0);
        }
        width += if column == from {
            *column_width
        } else {
            column_width + 2
        };
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
        let rows = plain(batch)?;
        check_times_have_texts(&rows)?;
        writer.write(&flat(&rows)?)?;
    }
    drop(writer);
    text(bytes)
}

/// The batch with vectors and lists as text, such as `[1.0, 0.0]`.
fn flat(batch: &RecordBatch) -> Result<RecordBatch> {
    let options = FormatOptions::default();
    let mut fields: Vec<Field> = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
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
        let rows = plain(batch)?;
        check_times_have_texts(&rows)?;
        writer.write(&rows)?;
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
        for batch in batches.iter() {
            writer.write(batch)?;
        }
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
        for batch in batches.iter() {
            writer.write(batch)?;
        }
        writer.finish()?;
    }
    Ok(bytes)
}

/// The batch without dictionaries.
fn plain(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut fields: Vec<Field> = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
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

fn shortened(text: &str) -> String {
    let line = printable(text);
    if line.chars().count() > VALUE_CHARS_MAX {
        line.chars().take(VALUE_CHARS_MAX - 3).collect::<String>() + "..."
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array, TimestampMicrosecondArray};
    use forebay_model::codes;

    use super::*;

    /// Arrow's writer would put the words of an error into their place, with quotes in them.
    #[test]
    fn times_without_a_text_are_no_values() {
        let rows_of = |tick: i64| {
            let times = TimestampMicrosecondArray::from(vec![tick]).with_timezone("UTC");
            let times: ArrayRef = Arc::new(times);
            RecordBatch::try_from_iter_with_nullable([("t", times, true)]).unwrap()
        };
        for write in [json, csv] {
            assert!(write(&[rows_of(0)]).unwrap().contains("1970-01-01"));
            let fault = write(&[rows_of(i64::MAX)]).unwrap_err();
            assert_eq!(fault.code(), codes::BAD_ROW);
            assert_eq!(fault.site().column.as_deref(), Some("t"));
        }
    }

    #[test]
    fn tables_tell_times_beyond_the_calendar() {
        let times = TimestampMicrosecondArray::from(vec![0, i64::MAX]);
        let times: ArrayRef = Arc::new(times);
        let rows = RecordBatch::try_from_iter_with_nullable([("t", times, true)]).unwrap();
        let rows = [rows];
        let far = "9223372036854775807 us";
        for text in [
            table(&rows).unwrap(),
            short_table(&rows).unwrap(),
            expanded(&rows).unwrap(),
        ] {
            assert!(text.contains(far), "{text}");
            assert!(text.contains("1970-01-01T00:00:00"), "{text}");
            assert!(!text.contains("ERROR"), "{text}");
        }
    }

    #[test]
    fn numbers_have_six_digits() {
        let cases = [
            (0.0, "0.0"),
            (4.0, "4.0"),
            (3.48, "3.48"),
            (2.285_714_285_714_285_6, "2.28571"),
            (-0.428_571_428_571_428_55, "-0.428571"),
            (0.000_012_345_678, "1.23457e-5"),
            (999_999.7, "1000000.0"),
            (12_345_678.9, "12345679.0"),
            (1e300, "1e300"),
            (1e-300, "1e-300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, expected) in cases {
            assert_eq!(six_digits(number), expected);
        }
    }

    #[test]
    fn rows_are_shown_short_or_in_full() {
        let batch = RecordBatch::try_from_iter_with_nullable([
            (
                "mean",
                Arc::new(Float64Array::from(vec![Some(1.0 / 3.0), None])) as ArrayRef,
                true,
            ),
            (
                "x",
                Arc::new(Float32Array::from(vec![0.1, 2.0])) as ArrayRef,
                true,
            ),
        ]);
        let batches = [batch.unwrap()];
        assert_eq!(
            short_table(&batches).unwrap(),
            "    mean        x\n float64  float32\n0.333333      0.1\n    null      2.0\n2 rows\n"
        );
        assert_eq!(
            expanded(&batches).unwrap(),
            "row 1\n  mean  0.3333333333333333\n  x     0.1\nrow 2\n  mean  null\n  x     \
             2.0\n2 rows\n"
        );
    }
}
