//! Dates, times and lengths of time that have no text.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::{
    CALENDAR_DAYS, DAY_NANOSECONDS, Fault, Result, codes, tick_nanoseconds, ticks, type_words,
};

/// The words that Arrow puts into the place of a length of time of more milliseconds than 64 bits hold.
const NO_LENGTH: &str = "<invalid>";

/// Fails if a date, a time or a length of some rows has no text, since it lies beyond the calendar, some 262,000 years, is no
/// time of a day, or is too long. Arrow's writer of JSON puts the words of an error into the place of such a value.
pub fn check_times_have_texts(rows: &RecordBatch) -> Result<()> {
    for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
        check_column(column).map_err(|fault| fault.column(field.name()))?;
    }
    Ok(())
}

fn check_column(column: &ArrayRef) -> Result<()> {
    if !has_times(column.data_type()) || is_near(column)? {
        return Ok(());
    }
    let inner_columns = inner_columns(column);
    if !inner_columns.is_empty() {
        return inner_columns.iter().try_for_each(check_column);
    }
    let options = FormatOptions::default();
    let values = ArrayFormatter::try_new(column.as_ref(), &options)?;
    for row in 0..column.len() {
        if column.is_null(row) {
            continue;
        }
        match values.value(row).try_to_string() {
            Ok(text) if text == NO_LENGTH => return Err(no_text(column)),
            Ok(_) => {}
            Err(error) => return Err(no_text(column).cause(error)),
        }
    }
    Ok(())
}

fn no_text(column: &ArrayRef) -> Fault {
    let of = type_words(column.data_type());
    let fault = Fault::new(codes::BAD_ROW, format!("a value of {of} has no text"));
    fault.hint("filter such rows out, or cast the column to a number")
}

/// The columns of the items of lists and maps, and of the fields of structs: their texts show what has none.
fn inner_columns(column: &ArrayRef) -> Vec<ArrayRef> {
    match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let first = list.value_offsets()[0] as usize;
            let end = list.value_offsets()[list.len()] as usize;
            vec![list.values().slice(first, end - first)]
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let first = list.value_offsets()[0] as usize;
            let end = list.value_offsets()[list.len()] as usize;
            vec![list.values().slice(first, end - first)]
        }
        DataType::FixedSizeList(..) => vec![column.as_fixed_size_list().values().clone()],
        DataType::ListView(_) => vec![column.as_list_view::<i32>().values().clone()],
        DataType::LargeListView(_) => vec![column.as_list_view::<i64>().values().clone()],
        DataType::Map(..) => column.as_map().entries().columns().to_vec(),
        DataType::Struct(_) => column.as_struct().columns().to_vec(),
        _ => Vec::new(),
    }
}

/// True for types that hold dates, times, or lengths in units of which 64 bits hold more than have a text, at any depth.
fn has_times(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(TimeUnit::Second | TimeUnit::Millisecond) => true,
        DataType::Dictionary(_, values) => has_times(values),
        DataType::RunEndEncoded(_, values) => has_times(values.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => has_times(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_times(field.data_type())),
        _ => false,
    }
}

/// True for a column of dates or times that lie in the years 1 to 9999. The bounds tell it without a look at each value.
fn is_near(column: &ArrayRef) -> Result<bool> {
    let Some(tick) = tick_nanoseconds(column.data_type()) else {
        return Ok(false);
    };
    let times = ticks(column)?;
    let Some((first, last)) = min(&times).zip(max(&times)) else {
        return Ok(true);
    };
    let day = DAY_NANOSECONDS / tick;
    let first_near = i128::from(*CALENDAR_DAYS.start()) * day;
    let last_near = i128::from(*CALENDAR_DAYS.end()) * day;
    Ok(i128::from(first) >= first_near && i128::from(last) <= last_near)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Date32Array, DurationMillisecondArray, DurationSecondArray, Int64Array, ListArray,
        Time32SecondArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampSecondArray,
    };
    use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

    use super::*;
    use crate::type_label;

    fn rows(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap()
    }

    #[test]
    fn values_beyond_the_calendar_or_the_day_are_named() {
        let far = TimestampMicrosecondArray::from(vec![Some(0), None, Some(i64::MAX)]);
        let zoned = far.clone().with_timezone("Europe/Berlin");
        let times = Time64MicrosecondArray::from(vec![0, 86_400_000_000]);
        let far_times = [Some(0), Some(i64::MIN)];
        let listed =
            ListArray::from_iter_primitive::<TimestampMicrosecondType, _, _>([Some(far_times)]);
        let columns: [ArrayRef; 9] = [
            Arc::new(far),
            Arc::new(zoned),
            Arc::new(listed),
            Arc::new(times),
            Arc::new(Time32SecondArray::from(vec![-1])),
            Arc::new(Date32Array::from(vec![i32::MIN])),
            Arc::new(TimestampSecondArray::from(vec![i64::MIN])),
            Arc::new(DurationSecondArray::from(vec![Some(1), Some(i64::MAX)])),
            Arc::new(DurationMillisecondArray::from(vec![i64::MIN])),
        ];
        for column in columns {
            let label = type_label(column.data_type());
            let fault = check_times_have_texts(&rows(column)).expect_err(&label);
            assert_eq!(fault.code(), codes::BAD_ROW, "{label}");
            assert_eq!(fault.site().column.as_deref(), Some("c"), "{label}");
        }
    }

    #[test]
    fn other_values_pass() {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(i64::MAX)])]);
        let columns: [ArrayRef; 7] = [
            Arc::new(Int64Array::from(vec![i64::MAX])),
            Arc::new(list),
            Arc::new(Date32Array::from(vec![
                Some(-719_162),
                None,
                Some(2_932_896),
            ])),
            // The year 10000, which writers know.
            Arc::new(Date32Array::from(vec![2_932_897])),
            Arc::new(Time32SecondArray::from(vec![0, 86_399])),
            Arc::new(TimestampSecondArray::from(vec![None, Some(-1)])),
            Arc::new(DurationMillisecondArray::from(vec![None, Some(i64::MAX)])),
        ];
        for column in columns {
            let label = type_label(column.data_type());
            assert!(check_times_have_texts(&rows(column)).is_ok(), "{label}");
        }
    }
}
