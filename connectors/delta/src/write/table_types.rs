//! The types of tables, and values in them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Date64Type, Field, FieldRef, Schema, SchemaRef, TimeUnit,
    TimestampNanosecondType,
};
use arrow::util::display::array_value_to_string;
use forebay_formats::{find_type, plain_layout};
use forebay_model::{Fault, Result, codes, logical_type, type_words};

const NANOSECONDS_PER_TICK: i64 = 1000;
const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// The type that a column has in a table; `None` where tables have none for it.
pub(super) fn table_type(data_type: &DataType) -> Option<DataType> {
    let part = |field: &FieldRef| -> Option<FieldRef> {
        let field_type = table_type(field.data_type())?;
        Some(Arc::new(Field::new(
            field.name(),
            field_type,
            field.is_nullable(),
        )))
    };
    Some(match logical_type(data_type) {
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Timestamp(_, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.map(|_| "UTC".into()))
        }
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::List(item) => {
            DataType::List(part(&item)?)
        }
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(part).collect::<Option<_>>()?)
        }
        DataType::Map(entries, sorted) => DataType::Map(part(&entries)?, sorted),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if scale >= 0 && precision <= DECIMAL128_MAX_PRECISION =>
        {
            DataType::Decimal128(precision, scale)
        }
        same @ (DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Utf8
        | DataType::Binary) => same,
        _ => return None,
    })
}

/// A schema in the types of tables.
pub(super) fn table_schema(schema: &Schema) -> Result<SchemaRef> {
    let field = |field: &FieldRef| match table_type(field.data_type()) {
        Some(data_type) => Ok(Field::new(field.name(), data_type, true)),
        None => {
            let message = format!(
                "a Delta table has no type for `{}`, which is {}",
                field.name(),
                type_words(field.data_type())
            );
            let fault = Fault::new(codes::UNSUPPORTED, message).column(field.name());
            Err(fault.hint("cast the column before it is written, or leave it out"))
        }
    };
    Ok(Arc::new(Schema::new(
        schema
            .fields()
            .iter()
            .map(field)
            .collect::<Result<Vec<_>>>()?,
    )))
}

/// The values of a column in the type that it has in the table. Values that it cannot hold are a fault.
pub(super) fn to_table_type(values: &ArrayRef, of_table: &DataType) -> Result<ArrayRef> {
    if logical_type(values.data_type()) == *of_table {
        return Ok(values.clone());
    }
    let plain = plain_layout(values.data_type());
    if plain != *values.data_type() {
        return to_table_type(&cast(values, &plain)?, of_table);
    }
    if let Some(times) = values.as_primitive_opt::<TimestampNanosecondType>() {
        let finer = times
            .iter()
            .flatten()
            .find(|time| time % NANOSECONDS_PER_TICK != 0);
        if let Some(time) = finer {
            let message =
                format!("a Delta table holds microseconds, and a time has more digits: {time} ns");
            return Err(
                Fault::new(codes::BAD_ROW, message).hint("round the times before they are written")
            );
        }
    }
    if let Some(dates) = values.as_primitive_opt::<Date64Type>()
        && let Some(millis) = dates
            .iter()
            .flatten()
            .find(|millis| millis % MILLISECONDS_PER_DAY != 0)
    {
        let message = format!(
            "a value of type {} is no whole day: {millis} ms",
            DataType::Date64
        );
        return Err(Fault::new(codes::BAD_ROW, message)
            .hint("cast the column to a timestamp before it is written"));
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let stored = cast_with_options(values, of_table, &strict).map_err(|error| {
        let message = format!("a value does not fit into the type {of_table} of a Delta table");
        Fault::new(codes::BAD_ROW, message)
            .cause(error)
            .hint("filter or clip the values before they are written")
    })?;
    if values.data_type().is_nested() && find_type(values.data_type(), has_more_digits).is_some() {
        refuse_cut_values(values, &stored)?;
    }
    Ok(stored)
}

/// True for types of which a table holds some values with fewer digits.
fn has_more_digits(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Date64
    )
}

/// Refuses values of lists, structs and maps that do not come back equal from the types of a table.
fn refuse_cut_values(values: &ArrayRef, stored: &ArrayRef) -> Result<()> {
    let back = cast(stored, values.data_type())?;
    if back.as_ref() == values.as_ref() {
        return Ok(());
    }
    let cut = (0..values.len()).find(|row| back.slice(*row, 1) != values.slice(*row, 1));
    let value = array_value_to_string(values, cut.unwrap_or(0))?;
    let message = format!(
        "a Delta table holds microseconds and whole days, and a value has more digits: {value}"
    );
    Err(Fault::new(codes::BAD_ROW, message)
        .hint("round the times inside of the column before they are written"))
}

/// The first and the last tick of an interval, in the unit that the column has in the table.
pub(super) fn table_ticks(data_type: &DataType, first: i64, last: i64) -> (i64, i64) {
    match data_type {
        DataType::Timestamp(unit, _) => {
            let per_tick: i128 = match unit {
                TimeUnit::Second => 1_000_000_000,
                TimeUnit::Millisecond => 1_000_000,
                TimeUnit::Microsecond => NANOSECONDS_PER_TICK.into(),
                TimeUnit::Nanosecond => 1,
            };
            let start = i128::from(first) * per_tick;
            // The last tick may span several ticks of the table.
            let end = i128::from(last) * per_tick + per_tick - 1;
            (tick_at(start), tick_at(end))
        }
        DataType::Date64 => (
            first.div_euclid(MILLISECONDS_PER_DAY),
            last.div_euclid(MILLISECONDS_PER_DAY),
        ),
        _ => (first, last),
    }
}

/// The tick of a table that holds a time in nanoseconds; the outermost one for times beyond them.
fn tick_at(nanoseconds: i128) -> i64 {
    let tick = nanoseconds.div_euclid(NANOSECONDS_PER_TICK.into());
    tick.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date64Array, DictionaryArray, Int8Array, Int64Array, ListArray, StructArray,
        TimestampNanosecondArray, UInt8Array,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Int8Type;

    use super::*;

    #[test]
    fn values_keep_their_meaning_or_are_refused() {
        let bytes: ArrayRef = Arc::new(UInt8Array::from(vec![Some(255), None]));
        let wide = to_table_type(&bytes, &table_type(bytes.data_type()).unwrap()).unwrap();
        assert_eq!(
            wide.as_primitive::<arrow::datatypes::Int16Type>().value(0),
            255
        );
        let times = |nanos| Arc::new(TimestampNanosecondArray::from(vec![nanos])) as ArrayRef;
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(table_type(times(1).data_type()), Some(micros.clone()));
        let kept = to_table_type(&times(-3000), &micros).unwrap();
        assert_eq!(
            kept.as_primitive::<arrow::datatypes::TimestampMicrosecondType>()
                .value(0),
            -3
        );
        assert_eq!(
            to_table_type(&times(1), &micros).unwrap_err().code(),
            codes::BAD_ROW
        );
        let same: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(Arc::ptr_eq(
            &same,
            &to_table_type(&same, &DataType::Int64).unwrap()
        ));
        assert_eq!(table_type(&DataType::UInt64), None);
    }

    /// In lists, structs and dictionaries as in columns of their own.
    #[test]
    fn digits_inside_of_columns_are_held_or_refused() {
        for (nanosecond, is_held) in [(-3_000, true), (-3_001, false)] {
            let times: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![
                Some(1_000),
                None,
                Some(nanosecond),
            ]));
            let item = Arc::new(Field::new_list_field(times.data_type().clone(), true));
            let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
            let list = ListArray::new(item, offsets, times.clone(), None);
            let field = Field::new("at", times.data_type().clone(), true);
            let record = StructArray::new(vec![field].into(), vec![times.clone()], None);
            let keys = Int8Array::from(vec![Some(2), None, Some(0)]);
            let keyed = DictionaryArray::<Int8Type>::new(keys, times);
            let columns: [ArrayRef; 3] = [Arc::new(list), Arc::new(record), Arc::new(keyed)];
            for column in columns {
                let stored = table_type(column.data_type()).unwrap();
                let stored_values = to_table_type(&column, &stored);
                match stored_values {
                    Ok(values) => {
                        assert!(is_held, "{}", column.data_type());
                        assert_eq!(values.data_type(), &stored);
                    }
                    Err(fault) => {
                        assert!(!is_held, "{}: {fault}", column.data_type());
                        assert_eq!(fault.code(), codes::BAD_ROW);
                    }
                }
            }
        }
        let clock: ArrayRef = Arc::new(Date64Array::from(vec![1]));
        let field = Field::new("day", DataType::Date64, true);
        let record: ArrayRef = Arc::new(StructArray::new(vec![field].into(), vec![clock], None));
        let stored = table_type(record.data_type()).unwrap();
        let refused = to_table_type(&record, &stored).unwrap_err();
        assert_eq!(refused.code(), codes::BAD_ROW);
    }

    #[test]
    fn intervals_are_told_in_microseconds() {
        let time = |unit| DataType::Timestamp(unit, None);
        for (data_type, ticks, expected) in [
            (time(TimeUnit::Second), (-1, 1), (-1_000_000, 1_999_999)),
            (time(TimeUnit::Microsecond), (-1, 1), (-1, 1)),
            (time(TimeUnit::Nanosecond), (-1000, 1999), (-1, 1)),
            (time(TimeUnit::Second), (0, i64::MAX), (0, i64::MAX)),
            (DataType::Date64, (0, MILLISECONDS_PER_DAY - 1), (0, 0)),
            (DataType::Int32, (3, 7), (3, 7)),
        ] {
            assert_eq!(
                table_ticks(&data_type, ticks.0, ticks.1),
                expected,
                "{data_type}"
            );
        }
    }
}
