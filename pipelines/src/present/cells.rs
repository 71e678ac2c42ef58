//! Texts of values as tables show them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    StringArray, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{Result, logical_type, ticks};

/// The words that Arrow puts into the place of a length of time of more milliseconds than 64 bits hold.
const NO_LENGTH: &str = "<invalid>";

/// Words for a value that has no text.
const NO_TEXT: &str = "beyond the calendar";

/// Texts of the values of a column. Times beyond the calendar are told in their unit, since 1970-01-01 or midnight, as
/// `7 us`.
pub struct CellTexts<'c> {
    column: &'c ArrayRef,
    values: ArrayFormatter<'c>,
}

impl<'c> CellTexts<'c> {
    /// The texts of a column.
    pub fn new(column: &'c ArrayRef) -> Result<Self> {
        let values = ArrayFormatter::try_new(column.as_ref(), &options())?;
        Ok(CellTexts { column, values })
    }

    /// The text of a row.
    pub fn text(&self, row: usize) -> String {
        match self.values.value(row).try_to_string() {
            Ok(text) if !text.contains(NO_LENGTH) => text,
            _ => far_text(&self.column.slice(row, 1)).unwrap_or_else(|_| NO_TEXT.to_owned()),
        }
    }
}

fn options() -> FormatOptions<'static> {
    // Errors of values inside of others are errors, and no texts.
    FormatOptions::default()
        .with_null("null")
        .with_display_error(false)
}

/// The text of the only value of a column, with times as texts.
fn far_text(value: &ArrayRef) -> Result<String> {
    let texts = times_as_texts(value)?;
    let texts = ArrayFormatter::try_new(texts.as_ref(), &options())?;
    Ok(texts.value(0).try_to_string()?)
}

/// A column with texts in the place of times, at any depth of lists, structs and maps.
fn times_as_texts(column: &ArrayRef) -> Result<ArrayRef> {
    let unit = match column.data_type() {
        DataType::Date32 => "days",
        DataType::Date64 => "ms",
        DataType::Timestamp(unit, _)
        | DataType::Duration(unit)
        | DataType::Time32(unit)
        | DataType::Time64(unit) => unit_text(*unit),
        DataType::List(item) => return list_of_texts::<i32>(column, item),
        DataType::LargeList(item) => return list_of_texts::<i64>(column, item),
        DataType::FixedSizeList(item, length) => {
            let list = column.as_fixed_size_list();
            let items = times_as_texts(list.values())?;
            let field = field_of(item, &items);
            let nulls = list.nulls().cloned();
            let rows = list.len();
            let texts =
                FixedSizeListArray::try_new_with_length(field, *length, items, nulls, rows)?;
            return Ok(Arc::new(texts));
        }
        DataType::Struct(fields) => return struct_of_texts(column.as_struct(), fields),
        DataType::Map(entries, is_sorted) => {
            let map = column.as_map();
            let DataType::Struct(fields) = entries.data_type() else {
                return Ok(Arc::clone(column));
            };
            let begin = first_offset(map.value_offsets());
            let end = last_offset(map.value_offsets());
            let texts = struct_of_texts(&map.entries().slice(begin, end - begin), fields)?;
            let field = field_of(entries, &texts);
            let lengths = (0..map.len()).map(|row| map.value_length(row) as usize);
            let offsets = OffsetBuffer::from_lengths(lengths);
            let nulls = map.nulls().cloned();
            let texts = texts.as_struct().clone();
            let texts = MapArray::try_new(field, offsets, texts, nulls, *is_sorted)?;
            return Ok(Arc::new(texts));
        }
        DataType::Dictionary(..) => {
            let plain = cast(column, &logical_type(column.data_type()))?;
            return times_as_texts(&plain);
        }
        _ => return Ok(Arc::clone(column)),
    };
    let values = ArrayFormatter::try_new(column.as_ref(), &options())?;
    let numbers = ticks(column)?;
    let mut texts = Vec::with_capacity(column.len());
    for (row, number) in numbers.iter().enumerate() {
        let Some(number) = number else {
            texts.push(None);
            continue;
        };
        texts.push(Some(match values.value(row).try_to_string() {
            Ok(text) if text != NO_LENGTH => text,
            _ => format!("{number} {unit}"),
        }));
    }
    Ok(Arc::new(StringArray::from(texts)))
}

fn list_of_texts<O: OffsetSizeTrait>(column: &ArrayRef, item: &FieldRef) -> Result<ArrayRef> {
    let list = column.as_list::<O>();
    // A slice of lists has the values of the whole column.
    let begin = first_offset(list.value_offsets());
    let end = last_offset(list.value_offsets());
    let items = times_as_texts(&list.values().slice(begin, end - begin))?;
    let field = field_of(item, &items);
    let lengths = (0..list.len()).map(|row| list.value_length(row).as_usize());
    let offsets = OffsetBuffer::<O>::from_lengths(lengths);
    let texts = GenericListArray::try_new(field, offsets, items, list.nulls().cloned())?;
    Ok(Arc::new(texts))
}

fn first_offset<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
    offsets.first().map_or(0, |offset| offset.as_usize())
}

fn last_offset<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
    offsets.last().map_or(0, |offset| offset.as_usize())
}

fn struct_of_texts(values: &StructArray, fields: &Fields) -> Result<ArrayRef> {
    let mut texts = Vec::with_capacity(fields.len());
    let mut text_fields = Vec::with_capacity(fields.len());
    for (field, column) in fields.iter().zip(values.columns()) {
        let text = times_as_texts(column)?;
        text_fields.push(field_of(field, &text));
        texts.push(text);
    }
    let nulls = values.nulls().cloned();
    let fields = Fields::from(text_fields);
    let texts = StructArray::try_new_with_length(fields, texts, nulls, values.len())?;
    Ok(Arc::new(texts))
}

/// A field of the name of another one, and of the type of a column.
fn field_of(field: &FieldRef, column: &ArrayRef) -> FieldRef {
    let data_type = column.data_type().clone();
    Arc::new(Field::clone(field).with_data_type(data_type))
}

fn unit_text(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, DurationSecondArray, Int64Array, Int64Builder, ListArray, MapBuilder,
        Time32SecondArray, TimestampMicrosecondArray, TimestampMicrosecondBuilder,
        TimestampSecondArray,
    };
    use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

    use super::*;

    /// Maps of times by their positions.
    fn map_of_times(maps: &[&[i64]]) -> MapArray {
        let keys = Int64Builder::new();
        let mut builder = MapBuilder::new(None, keys, TimestampMicrosecondBuilder::new());
        for times in maps {
            for (position, time) in times.iter().enumerate() {
                builder.keys().append_value(position as i64);
                builder.values().append_value(*time);
            }
            builder.append(true).unwrap();
        }
        builder.finish()
    }

    #[test]
    fn values_beyond_the_calendar_are_told_in_their_unit() {
        let far = TimestampMicrosecondArray::from(vec![Some(0), None, Some(i64::MAX)]);
        let zoned = far.clone().with_timezone("Europe/Berlin");
        let listed = ListArray::from_iter_primitive::<TimestampMicrosecondType, _, _>([
            Some([Some(0), Some(i64::MIN), None]),
            None,
            Some([None, Some(i64::MAX), Some(0)]),
        ]);
        let map = map_of_times(&[&[0, i64::MIN], &[i64::MAX]]);
        let field = Field::new("t", far.data_type().clone(), true);
        let fields = Fields::from(vec![field]);
        let columns: Vec<ArrayRef> = vec![Arc::new(far.clone())];
        let parts = StructArray::new(fields, columns, None);
        let max = i64::MAX;
        let min = i64::MIN;
        let cases: [(ArrayRef, Vec<String>); 10] = [
            (
                Arc::new(far),
                vec![
                    "1970-01-01T00:00:00".to_owned(),
                    "null".to_owned(),
                    format!("{max} us"),
                ],
            ),
            (
                Arc::new(zoned),
                vec![
                    "1970-01-01T01:00:00+01:00".to_owned(),
                    "null".to_owned(),
                    format!("{max} us"),
                ],
            ),
            (
                Arc::new(listed),
                vec![
                    format!("[1970-01-01T00:00:00, {min} us, null]"),
                    "null".to_owned(),
                    format!("[null, {max} us, 1970-01-01T00:00:00]"),
                ],
            ),
            (
                Arc::new(map),
                vec![
                    format!("{{0: 1970-01-01T00:00:00, 1: {min} us}}"),
                    format!("{{0: {max} us}}"),
                ],
            ),
            (
                Arc::new(parts),
                vec![
                    "{t: 1970-01-01T00:00:00}".to_owned(),
                    "{t: null}".to_owned(),
                    format!("{{t: {max} us}}"),
                ],
            ),
            (
                Arc::new(Date32Array::from(vec![0, i32::MIN])),
                vec!["1970-01-01".to_owned(), format!("{} days", i32::MIN)],
            ),
            (
                Arc::new(TimestampSecondArray::from(vec![min])),
                vec![format!("{min} s")],
            ),
            (
                Arc::new(Time32SecondArray::from(vec![-1])),
                vec!["-1 s".to_owned()],
            ),
            (
                Arc::new(DurationSecondArray::from(vec![max])),
                vec![format!("{max} s")],
            ),
            (
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some([
                    Some(max),
                ])])),
                vec![format!("[{max}]")],
            ),
        ];
        for (column, expected) in cases {
            let texts = CellTexts::new(&column).unwrap();
            let texts: Vec<String> = (0..column.len()).map(|row| texts.text(row)).collect();
            assert_eq!(texts, expected);
        }
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert_eq!(CellTexts::new(&number).unwrap().text(0), "1");
    }
}
