//! Functions of SQL on times that are wrong, without a word, at the ends of their range.
//!
//! `date_trunc` wraps around within a day of the first time that a type holds. `date_bin` computes in nanoseconds, and
//! gives null for times that these do not hold, as `date_part` does for years beyond the calendar. All are refused
//! instead. `date_trunc` refuses times that nanoseconds do not hold, such as 9999-12-31: days and longer units of these
//! are computed here.
//!
//! `date_trunc` leads the hours of a day whose midnight there is twice, as each autumn in Havana, to both. All of them
//! belong to the first one.
//!
//! `to_unixtime` and `to_timestamp_seconds`, `_millis` and `_micros` cut digits of times toward 1970, so that half a
//! second before and half a second after are one. So does `date_trunc` with constants, to milliseconds and
//! microseconds. A time lies in the tick that began last, as casts have it.
//!
//! `to_timestamp` makes 1970 of NaN, and of numbers beyond nanoseconds the last time that these hold. Such numbers are
//! refused. So is a bin of a time of day that began on the day before, which is negative.
//!
//! `to_date` takes whole numbers as days since 1970, as casts do, and 20240101 for a day of the year 57385. Numbers beyond
//! the calendar are refused. Dates in milliseconds lie in the day and in the second that began last, and so do numbers
//! with fractions.
//!
//! `to_date`, `to_time`, `to_timestamp` and kin drop parts of texts, and take a second 60, with a format, too. Such texts
//! are refused.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use forebay_model::{CalendarSpan, tick_nanoseconds, type_label};

use crate::cut_texts::refuse_cut_texts;
use crate::day_counts::{days_of_dates, days_of_numbers, floored_numbers};
use crate::formatted_texts::refuse_cut_by_formats;
use crate::function_guard::{FunctionGuard, argument_columns};
use crate::local_times::placed;
use crate::zone_clocks::clock_of;

/// Nanoseconds of the longest unit by which `date_trunc` divides ticks.
const DAY_NANOSECONDS: i128 = 86_400 * 1_000_000_000;

const SECOND_NANOSECONDS: i128 = 1_000_000_000;
const MILLISECOND_NANOSECONDS: i128 = 1_000_000;
const MICROSECOND_NANOSECONDS: i128 = 1_000;

/// A Monday, in days since 1970.
const FIRST_MONDAY: i64 = -3;

/// The functions by name.
pub(crate) const CHECKED_TIMES: [(&str, &dyn FunctionGuard); 11] = [
    ("date_bin", &LostTimes),
    ("date_part", &LostTimes),
    ("date_trunc", &TruncatedTimes),
    ("to_date", &CountedDays),
    ("to_time", &TimesOfDay),
    ("to_timestamp", &TimesOfFloats),
    ("to_timestamp_micros", &WholeTicks(TimeUnit::Microsecond)),
    ("to_timestamp_millis", &WholeTicks(TimeUnit::Millisecond)),
    ("to_timestamp_nanos", &WholeTicks(TimeUnit::Nanosecond)),
    ("to_timestamp_seconds", &WholeTicks(TimeUnit::Second)),
    ("to_unixtime", &WholeTicks(TimeUnit::Second)),
];

/// Refuses times within a day of the first one that their type holds, and gives each day one midnight.
struct TruncatedTimes;

impl FunctionGuard for TruncatedTimes {
    fn before(&self, name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        for column in argument_columns(arguments)? {
            if !is_timestamp(&column) {
                continue;
            }
            let tick = tick_nanoseconds(column.data_type()).unwrap_or(1);
            let day_ticks = i64::try_from(DAY_NANOSECONDS / tick).unwrap_or(1);
            let first_safe = i64::MIN + day_ticks;
            let ticks = cast(&column, &DataType::Int64)?;
            let mut ticks = ticks.as_primitive::<Int64Type>().iter().flatten();
            if let Some(time) = ticks.find(|time| *time < first_safe) {
                return Err(far_time(name, time, &column));
            }
        }
        Ok(())
    }

    fn computed(
        &self,
        name: &str,
        arguments: &ScalarFunctionArgs,
    ) -> Result<Option<ColumnarValue>, DataFusionError> {
        let columns = argument_columns(arguments)?;
        let [_, times] = columns.as_slice() else {
            return Ok(None);
        };
        if !is_timestamp(times) || !has_far_times(times)? {
            return Ok(None);
        }
        let Some(span) = unit_of(&columns)?.and_then(|unit| calendar_span(&unit)) else {
            return Ok(None);
        };
        let starts = bucket_starts(name, times, span)?;
        let is_constant = matches!(arguments.args.get(1), Some(ColumnarValue::Scalar(_)));
        Ok(Some(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&starts, 0)?)
        } else {
            ColumnarValue::Array(starts)
        }))
    }

    fn corrected(
        &self,
        columns: &[ArrayRef],
        result: ColumnarValue,
    ) -> Result<ColumnarValue, DataFusionError> {
        let result = floored_constant(columns, result)?;
        let data_type = result.data_type();
        let is_zoned = matches!(data_type, DataType::Timestamp(_, Some(_)));
        let has_unit_of_days = unit_of(columns)?.is_some_and(|unit| calendar_span(&unit).is_some());
        if !is_zoned || !has_unit_of_days || clock_of(&data_type)?.has_even_days() {
            return Ok(result);
        }
        Ok(match result {
            ColumnarValue::Array(times) => ColumnarValue::Array(placed(&times, &data_type)?),
            ColumnarValue::Scalar(time) => {
                let time = placed(&time.to_array()?, &data_type)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&time, 0)?)
            }
        })
    }

    fn checks_result(&self) -> bool {
        true
    }
}

/// The unit of a call of `date_trunc`.
fn unit_of(columns: &[ArrayRef]) -> Result<Option<String>, DataFusionError> {
    let Some(unit) = columns.first().filter(|unit| !unit.is_empty()) else {
        return Ok(None);
    };
    let unit = cast(unit, &DataType::Utf8)?;
    Ok(Some(unit.as_string::<i32>().value(0).to_ascii_lowercase()))
}

/// The length of a unit that begins at midnight; `None` of others.
fn calendar_span(unit: &str) -> Option<CalendarSpan> {
    Some(match unit {
        "day" => CalendarSpan::days(1),
        "week" => CalendarSpan::days(7),
        "month" => CalendarSpan::months(1),
        "quarter" => CalendarSpan::months(3),
        "year" => CalendarSpan::months(12),
        _ => return None,
    })
}

/// True if nanoseconds do not hold all of some times.
fn has_far_times(times: &ArrayRef) -> Result<bool, DataFusionError> {
    let tick = tick_nanoseconds(times.data_type()).unwrap_or(1);
    let tick = i64::try_from(tick).unwrap_or(1);
    let near_ticks = i64::MIN / tick..=i64::MAX / tick;
    let ticks = cast(times, &DataType::Int64)?;
    let mut ticks = ticks.as_primitive::<Int64Type>().iter().flatten();
    Ok(ticks.any(|time| !near_ticks.contains(&time)))
}

/// The midnights at which the days, weeks, months, quarters or years of times begin.
fn bucket_starts(
    name: &str,
    times: &ArrayRef,
    span: CalendarSpan,
) -> Result<ArrayRef, DataFusionError> {
    let clock = clock_of(times.data_type())?;
    let ticks = cast(times, &DataType::Int64)?;
    let mut starts = Vec::with_capacity(times.len());
    for time in ticks.as_primitive::<Int64Type>() {
        let Some(time) = time else {
            starts.push(None);
            continue;
        };
        let start = clock.bucket_start(time, span, FIRST_MONDAY);
        starts.push(Some(start.ok_or_else(|| far_time(name, time, times))?));
    }
    Ok(cast(&Int64Array::from(starts), times.data_type())?)
}

/// The result of `date_trunc` of a constant, a unit back where the function has cut it toward 1970.
fn floored_constant(
    columns: &[ArrayRef],
    result: ColumnarValue,
) -> Result<ColumnarValue, DataFusionError> {
    let ColumnarValue::Scalar(constant) = &result else {
        return Ok(result);
    };
    let Some(time) = columns.get(1).filter(|time| is_timestamp(time)) else {
        return Ok(result);
    };
    let unit_nanoseconds = match unit_of(columns)?.as_deref() {
        Some("millisecond") => MILLISECOND_NANOSECONDS,
        Some("microsecond") => MICROSECOND_NANOSECONDS,
        _ => return Ok(result),
    };
    let cut_time = first_tick(&constant.to_array()?)?;
    let Some((time, cut_time)) = first_tick(time)?.zip(cut_time) else {
        return Ok(result);
    };
    if cut_time <= time {
        return Ok(result);
    }
    let data_type = constant.data_type();
    let tick = tick_nanoseconds(&data_type).unwrap_or(1);
    let unit_ticks = i64::try_from(unit_nanoseconds / tick).unwrap_or(1);
    let floored = Int64Array::from(vec![cut_time - unit_ticks]);
    let floored = cast(&floored, &data_type)?;
    Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
        &floored, 0,
    )?))
}

/// The first of some times, as a number.
fn first_tick(times: &ArrayRef) -> Result<Option<i64>, DataFusionError> {
    let ticks = cast(times, &DataType::Int64)?;
    Ok(ticks.as_primitive::<Int64Type>().iter().next().flatten())
}

/// Refuses results that are null where no time is.
struct LostTimes;

impl FunctionGuard for LostTimes {
    fn behind(
        &self,
        name: &str,
        columns: &[ArrayRef],
        result: &ArrayRef,
    ) -> Result<(), DataFusionError> {
        refuse_days_before(name, result)?;
        if result.null_count() == 0 {
            return Ok(());
        }
        for column in columns {
            let is_time = is_timestamp(column) || is_date(column);
            let is_per_row = is_time && column.len() == result.len();
            if !is_per_row {
                continue;
            }
            let lost = (0..result.len()).find(|row| result.is_null(*row) && column.is_valid(*row));
            if let Some(row) = lost {
                let day_or_tick = match column.data_type() {
                    DataType::Date32 => cast(column, &DataType::Int32)?,
                    _ => column.clone(),
                };
                let ticks = cast(&day_or_tick, &DataType::Int64)?;
                let time = ticks.as_primitive::<Int64Type>().value(row);
                return Err(far_time(name, time, column));
            }
        }
        Ok(())
    }

    fn checks_result(&self) -> bool {
        true
    }
}

/// Fails if a result is a time of day before midnight.
fn refuse_days_before(name: &str, result: &ArrayRef) -> Result<(), DataFusionError> {
    let ticks = match result.data_type() {
        DataType::Time32(_) => cast(&cast(result, &DataType::Int32)?, &DataType::Int64)?,
        DataType::Time64(_) => cast(result, &DataType::Int64)?,
        _ => return Ok(()),
    };
    let mut ticks = ticks.as_primitive::<Int64Type>().iter().flatten();
    if ticks.any(|tick| tick < 0) {
        return Err(DataFusionError::Execution(format!(
            "`{name}` has no bin for a time of day whose bin began on the day before: let the \
             origin be the first time of day of a bin"
        )));
    }
    Ok(())
}

/// Refuses floats of seconds that nanoseconds since 1970 do not hold.
struct TimesOfFloats;

impl FunctionGuard for TimesOfFloats {
    fn before(&self, name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        let columns = argument_columns(arguments)?;
        refuse_cut_text(&columns, &DataType::Timestamp(TimeUnit::Nanosecond, None))?;
        let Some(seconds) = columns.first() else {
            return Ok(());
        };
        if !seconds.data_type().is_floating() {
            return Ok(());
        }
        let seconds = cast(seconds, &DataType::Float64)?;
        let nanoseconds_held = i64::MIN as f64..i64::MAX as f64;
        let mut seconds = seconds.as_primitive::<Float64Type>().iter().flatten();
        let beyond = seconds.find(|second| !nanoseconds_held.contains(&(second * 1e9)));
        match beyond {
            Some(second) => Err(DataFusionError::Execution(format!(
                "`{name}` cannot make a time of {second} seconds: nanoseconds hold the years 1677 \
                 to 2262"
            ))),
            None => Ok(()),
        }
    }
}

/// Refuses texts that the function cuts. Behind them may stand formats, which say what of a text is read.
fn refuse_cut_text(columns: &[ArrayRef], of: &DataType) -> Result<(), DataFusionError> {
    match columns {
        [texts] => refuse_cut_texts(texts, of),
        [texts, formats @ ..] => refuse_cut_by_formats(texts, formats, of),
        [] => Ok(()),
    }
}

/// Refuses texts that are no time of day.
struct TimesOfDay;

impl FunctionGuard for TimesOfDay {
    fn before(&self, _name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        let columns = argument_columns(arguments)?;
        refuse_cut_text(&columns, &DataType::Time64(TimeUnit::Nanosecond))
    }
}

/// Counts the ticks of a unit that began since 1970, before the function cuts digits. Texts with finer digits are refused.
struct WholeTicks(TimeUnit);

impl WholeTicks {
    fn nanoseconds(&self) -> i128 {
        match self.0 {
            TimeUnit::Second => SECOND_NANOSECONDS,
            TimeUnit::Millisecond => MILLISECOND_NANOSECONDS,
            TimeUnit::Microsecond => MICROSECOND_NANOSECONDS,
            TimeUnit::Nanosecond => 1,
        }
    }
}

impl FunctionGuard for WholeTicks {
    fn before(&self, _name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        let columns = argument_columns(arguments)?;
        refuse_cut_text(&columns, &DataType::Timestamp(self.0, None))
    }

    fn prepared(
        &self,
        mut arguments: ScalarFunctionArgs,
    ) -> Result<ScalarFunctionArgs, DataFusionError> {
        let unit = self.nanoseconds();
        if let Some(time) = arguments.args.first_mut() {
            *time = match &*time {
                ColumnarValue::Array(times) => ColumnarValue::Array(whole_ticks(times, unit)?),
                ColumnarValue::Scalar(constant) => {
                    let ticks = whole_ticks(&constant.to_array()?, unit)?;
                    ColumnarValue::Scalar(ScalarValue::try_from_array(&ticks, 0)?)
                }
            };
        }
        Ok(arguments)
    }
}

/// Takes dates in milliseconds and numbers for days, before the function cuts digits or gives a day beyond the calendar.
/// Texts with a time of day are refused.
struct CountedDays;

impl FunctionGuard for CountedDays {
    fn before(&self, _name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        refuse_cut_text(&argument_columns(arguments)?, &DataType::Date32)
    }

    fn prepared(
        &self,
        mut arguments: ScalarFunctionArgs,
    ) -> Result<ScalarFunctionArgs, DataFusionError> {
        if let [date] = arguments.args.as_mut_slice() {
            *date = match &*date {
                ColumnarValue::Array(values) => ColumnarValue::Array(counted_days(values)?),
                ColumnarValue::Scalar(constant) => {
                    let days = counted_days(&constant.to_array()?)?;
                    ColumnarValue::Scalar(ScalarValue::try_from_array(&days, 0)?)
                }
            };
        }
        Ok(arguments)
    }
}

/// Dates in milliseconds and numbers as days. Other columns stay as they are.
fn counted_days(values: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
    let data_type = values.data_type();
    if *data_type == DataType::Date64 {
        return days_of_dates(values, false);
    }
    if !data_type.is_numeric() {
        return Ok(values.clone());
    }
    days_of_numbers(&whole_numbers(values)?, false)
}

/// Numbers as whole ones, each the last one that is not above it.
fn whole_numbers(numbers: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
    match numbers.data_type() {
        whole if whole.is_integer() => {
            let strict = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            Ok(cast_with_options(numbers, &DataType::Int64, &strict)?)
        }
        DataType::Float16 => floored_numbers(&cast(numbers, &DataType::Float32)?),
        _ => floored_numbers(numbers),
    }
}

/// Times of finer units as ticks of a unit, as integers, and numbers with fractions as whole ones. Other columns stay as
/// they are.
fn whole_ticks(times: &ArrayRef, unit_nanoseconds: i128) -> Result<ArrayRef, DataFusionError> {
    let data_type = times.data_type();
    if data_type.is_floating() || data_type.is_decimal() {
        return whole_numbers(times);
    }
    if !is_timestamp(times) && *times.data_type() != DataType::Date64 {
        return Ok(times.clone());
    }
    let tick = tick_nanoseconds(times.data_type()).unwrap_or(1);
    if tick >= unit_nanoseconds {
        return Ok(times.clone());
    }
    let unit_ticks = i64::try_from(unit_nanoseconds / tick).unwrap_or(1);
    let ticks = cast(times, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let whole: Int64Array = ticks.unary(|time| time.div_euclid(unit_ticks));
    Ok(Arc::new(whole))
}

fn is_date(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::Date32 | DataType::Date64)
}

fn is_timestamp(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::Timestamp(..))
}

fn far_time(name: &str, time: i64, column: &ArrayRef) -> DataFusionError {
    let label = type_label(column.data_type());
    DataFusionError::Execution(format!(
        "`{name}` cannot compute with the time {time} (ticks of {label}): it is too far from \
         1970"
    ))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Date64Array, Float64Array, Time64MicrosecondArray, TimestampNanosecondArray,
        TimestampSecondArray,
    };
    use forebay_model::{Result as FaultResult, codes};

    use super::*;
    use crate::column_results::{rows_over, values_over};

    /// The values of an expression over a column.
    fn values(expression: &str, column: &ArrayRef) -> FaultResult<ArrayRef> {
        values_over(expression, "t", column)
    }

    fn ticks(values: &ArrayRef) -> Vec<i64> {
        let ticks = cast(values, &DataType::Int64).unwrap();
        ticks.as_primitive::<Int64Type>().values().to_vec()
    }

    /// Rows of a condition over a column of times.
    fn rows(condition: &str, times: &ArrayRef) -> Vec<usize> {
        rows_over(condition, "t", times)
    }

    /// Nanoseconds begin in September 1677 and end in April 2262: no other year begins and ends in them.
    #[test]
    fn years_are_compared_where_they_do_not_begin_or_end_in_the_unit() {
        let seconds = [-9_223_372_036, 0, 1_704_067_200, 9_223_372_036];
        let nanoseconds = seconds.map(|second: i64| second * 1_000_000_000);
        let plain = TimestampNanosecondArray::from(nanoseconds.to_vec());
        let zoned = plain.clone().with_timezone("Europe/Berlin");
        let columns: [ArrayRef; 2] = [Arc::new(plain), Arc::new(zoned)];
        for times in columns {
            for (condition, expected) in [
                ("date_part('year', t) <= 9999", vec![0, 1, 2, 3]),
                ("date_part('year', t) < 9999", vec![0, 1, 2, 3]),
                ("date_part('year', t) <> 9999", vec![0, 1, 2, 3]),
                ("9999 >= date_part('year', t)", vec![0, 1, 2, 3]),
                ("date_part('year', t) BETWEEN 1 AND 9999", vec![0, 1, 2, 3]),
                ("date_part('year', t) > 1", vec![0, 1, 2, 3]),
                ("date_part('year', t) = 1677", vec![0]),
                ("date_part('year', t) = 2262", vec![3]),
                ("date_part('year', t) <= 2262", vec![0, 1, 2, 3]),
                ("date_part('year', t) > 1677", vec![1, 2, 3]),
                ("date_part('year', t) IN (1677, 2024)", vec![0, 2]),
                ("date_part('year', t) NOT IN (1, 2024)", vec![0, 1, 3]),
                ("EXTRACT(YEAR FROM t) IS DISTINCT FROM 2262", vec![0, 1, 2]),
                ("date_part('year', t) = 9999", vec![]),
            ] {
                let label = type_label(times.data_type());
                assert_eq!(rows(condition, &times), expected, "{condition} of {label}");
            }
        }
    }

    /// Constants and columns are cut alike, before 1970 as after it.
    #[test]
    fn times_lie_in_the_tick_that_began_last() {
        let nanoseconds = [-1_500_001, -1, 0, 1, 1_999_999];
        let times: ArrayRef = Arc::new(TimestampNanosecondArray::from(nanoseconds.to_vec()));
        let expected_millis = [-2, -1, 0, 0, 1];
        let expected_micros = [-1_501, -1, 0, 0, 1_999];
        let millis = values("to_timestamp_millis(t)", &times).unwrap();
        assert_eq!(ticks(&millis), expected_millis);
        let micros = values("to_timestamp_micros(t)", &times).unwrap();
        assert_eq!(ticks(&micros), expected_micros);
        let seconds = values("to_timestamp_seconds(t)", &times).unwrap();
        assert_eq!(ticks(&seconds), [-1, -1, 0, 0, 0]);
        let finer = values("to_timestamp_micros(to_timestamp_millis(t))", &times).unwrap();
        assert_eq!(ticks(&finer), expected_millis.map(|tick| tick * 1_000));
        for (row, nanosecond) in nanoseconds.into_iter().enumerate() {
            let constant = format!("arrow_cast({nanosecond}, 'Timestamp(Nanosecond, None)')");
            for (unit, expected) in [
                ("millisecond", expected_millis[row] * 1_000_000),
                ("microsecond", expected_micros[row] * 1_000),
            ] {
                let cut_constant = values(&format!("date_trunc('{unit}', {constant})"), &times);
                assert_eq!(ticks(&cut_constant.unwrap())[0], expected, "{nanosecond}");
                let cut_column = values(&format!("date_trunc('{unit}', t)"), &times);
                assert_eq!(ticks(&cut_column.unwrap())[row], expected, "{nanosecond}");
            }
        }
    }

    #[test]
    fn numbers_that_are_no_times_are_refused() {
        for second in [f64::NAN, f64::INFINITY, -1e10, 9.3e9] {
            let seconds: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), Some(second)]));
            let refused = values("to_timestamp(t)", &seconds).unwrap_err();
            assert_eq!(refused.code(), codes::BAD_ROW, "{second}");
        }
        let seconds: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), None, Some(-9e9)]));
        let times = values("to_timestamp(t)", &seconds).unwrap();
        assert_eq!(times.null_count(), 1);
        assert_eq!(ticks(&times)[0], 500_000_000);
    }

    #[test]
    fn bins_of_times_of_day_begin_on_the_day() {
        let minute = 60_000_000;
        let times: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![
            30 * minute,
            765 * minute,
        ]));
        let bins = values("date_bin(INTERVAL '1 hour', t)", &times).unwrap();
        assert_eq!(ticks(&bins), [0, 720 * minute]);
        let origin = "arrow_cast('12:45:00', 'Time64(Microsecond)')";
        let refused = values(&format!("date_bin(INTERVAL '1 hour', t, {origin})"), &times);
        assert_eq!(refused.unwrap_err().code(), codes::BAD_ROW);
    }

    /// Local times, of which nanoseconds hold the two in the middle.
    const TIMES: [&str; 4] = [
        "0001-03-15T12:34:56",
        "1969-12-31T23:59:59",
        "2024-02-29T12:34:56",
        "9999-12-31T23:59:59",
    ];

    /// Expressions over these times, and their values. There is none where that is in the year 10000.
    const MOVES: [(&str, [&str; 4]); 12] = [
        (
            "date_trunc('hour', t)",
            [
                "0001-03-15T12:00:00",
                "1969-12-31T23:00:00",
                "2024-02-29T12:00:00",
                "9999-12-31T23:00:00",
            ],
        ),
        (
            "date_trunc('day', t)",
            ["0001-03-15", "1969-12-31", "2024-02-29", "9999-12-31"],
        ),
        (
            "date_trunc('week', t)",
            ["0001-03-12", "1969-12-29", "2024-02-26", "9999-12-27"],
        ),
        (
            "date_trunc('month', t)",
            ["0001-03-01", "1969-12-01", "2024-02-01", "9999-12-01"],
        ),
        (
            "date_trunc('quarter', t)",
            ["0001-01-01", "1969-10-01", "2024-01-01", "9999-10-01"],
        ),
        (
            "date_trunc('year', t)",
            ["0001-01-01", "1969-01-01", "2024-01-01", "9999-01-01"],
        ),
        (
            "t + INTERVAL '1 day'",
            [
                "0001-03-16T12:34:56",
                "1970-01-01T23:59:59",
                "2024-03-01T12:34:56",
                "",
            ],
        ),
        (
            "t + INTERVAL '1 year'",
            [
                "0002-03-15T12:34:56",
                "1970-12-31T23:59:59",
                "2025-02-28T12:34:56",
                "",
            ],
        ),
        (
            "t - INTERVAL '1 month'",
            [
                "0001-02-15T12:34:56",
                "1969-11-30T23:59:59",
                "2024-01-29T12:34:56",
                "9999-11-30T23:59:59",
            ],
        ),
        (
            "t - INTERVAL '36 hours'",
            [
                "0001-03-14T00:34:56",
                "1969-12-30T11:59:59",
                "2024-02-28T00:34:56",
                "9999-12-30T11:59:59",
            ],
        ),
        (
            "date_bin(INTERVAL '15 minutes', t)",
            [
                "0001-03-15T12:30:00",
                "1969-12-31T23:45:00",
                "2024-02-29T12:30:00",
                "9999-12-31T23:45:00",
            ],
        ),
        (
            "date_bin(INTERVAL '1 month', t)",
            ["0001-03-01", "1969-12-01", "2024-02-01", "9999-12-01"],
        ),
    ];

    /// Parts of these times.
    const PARTS: [(&str, [i64; 4]); 11] = [
        ("year", [1, 1969, 2024, 9999]),
        ("quarter", [1, 4, 1, 4]),
        ("month", [3, 12, 2, 12]),
        ("week", [11, 1, 9, 52]),
        ("day", [15, 31, 29, 31]),
        ("doy", [74, 365, 60, 365]),
        ("dow", [4, 3, 4, 5]),
        ("isodow", [4, 3, 4, 5]),
        ("hour", [12, 23, 12, 23]),
        ("minute", [34, 59, 34, 59]),
        ("second", [56, 59, 56, 59]),
    ];

    /// A column of one local time; `None` where its type does not hold it.
    fn column_of_time(text: &str, data_type: &DataType) -> Option<ArrayRef> {
        let clock = clock_of(data_type).unwrap();
        let tick = i64::try_from(clock.read(text).unwrap() / clock.tick()).ok()?;
        Some(cast(&Int64Array::from(vec![tick]), data_type).unwrap())
    }

    fn is_near(row: usize) -> bool {
        row == 1 || row == 2
    }

    #[test]
    fn operations_keep_the_times_of_all_years_or_refuse_them() {
        let mut kept_far = 0;
        for unit in [
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ] {
            for zone in [None, Some("UTC"), Some("Europe/Berlin")] {
                let data_type = DataType::Timestamp(unit, zone.map(Into::into));
                let clock = clock_of(&data_type).unwrap();
                for (row, text) in TIMES.into_iter().enumerate() {
                    let Some(column) = column_of_time(text, &data_type) else {
                        assert!(!is_near(row));
                        continue;
                    };
                    for (expression, expected) in MOVES {
                        // Bins are counted in UTC.
                        let is_local = expression.starts_with("date_bin") && !clock.has_even_days();
                        if is_local || expected[row].is_empty() {
                            continue;
                        }
                        let context = format!("{expression} of {text} in {data_type}");
                        let Ok(moved) = values(expression, &column) else {
                            let is_truncated = ["day", "week", "month", "quarter", "year"]
                                .iter()
                                .any(|unit| {
                                    expression.starts_with(&format!("date_trunc('{unit}'"))
                                });
                            assert!(!is_near(row) && !is_truncated, "{context} is refused");
                            continue;
                        };
                        let expected = clock.read(expected[row]).unwrap();
                        // Bins of some units are nanoseconds.
                        let tick = clock_of(moved.data_type()).unwrap().tick();
                        let nanoseconds = i128::from(ticks(&moved)[0]) * tick;
                        assert_eq!(nanoseconds, expected, "{context}");
                        kept_far += usize::from(!is_near(row));
                    }
                    for (part, expected) in PARTS {
                        let expression = format!("date_part('{part}', t)");
                        let value = values(&expression, &column).unwrap();
                        let context = format!("{part} of {text} in {data_type}");
                        assert_eq!(ticks(&value)[0], expected[row], "{context}");
                    }
                }
            }
        }
        assert!(kept_far > 120, "{kept_far} kept");
    }

    /// A column of one date, in days or in milliseconds.
    fn column_of_date(text: &str, data_type: &DataType) -> ArrayRef {
        let days = column_of_time(&text[..10], &DataType::Date32).unwrap();
        cast(&days, data_type).unwrap()
    }

    #[test]
    fn operations_keep_the_dates_of_all_years_or_refuse_them() {
        for data_type in [DataType::Date32, DataType::Date64] {
            for (row, text) in TIMES.into_iter().enumerate() {
                let column = column_of_date(text, &data_type);
                for (expression, expected) in MOVES {
                    let expected = expected[row].get(..10).unwrap_or_default();
                    // Dates have no hours, and no bins.
                    let has_hours =
                        expression.contains("hour") || expression.starts_with("date_bin");
                    if expected.is_empty() || has_hours {
                        continue;
                    }
                    let context = format!("{expression} of {text} in {data_type}");
                    let moved = values(expression, &column);
                    let moved = moved.unwrap_or_else(|fault| panic!("{context}: {fault:?}"));
                    let moved = cast(&moved, &DataType::Date32).unwrap();
                    let expected = column_of_date(expected, &DataType::Date32);
                    assert_eq!(days(&moved), days(&expected), "{context}");
                }
                for (part, expected) in &PARTS[..8] {
                    let value = values(&format!("date_part('{part}', t)"), &column).unwrap();
                    assert_eq!(ticks(&value)[0], expected[row], "{part} of {text}");
                }
            }
        }
    }

    fn days(dates: &ArrayRef) -> Vec<i64> {
        let days = cast(dates, &DataType::Int32).unwrap();
        ticks(&days)
    }

    /// Days beyond the calendar, some 262,000 years, and dates in milliseconds that no day holds.
    #[test]
    fn dates_beyond_the_calendar_are_refused() {
        let beyond: [ArrayRef; 4] = [
            Arc::new(Date32Array::from(vec![i32::MAX])),
            Arc::new(Date32Array::from(vec![i32::MIN])),
            Arc::new(Date64Array::from(vec![i64::MAX])),
            Arc::new(Date64Array::from(vec![i64::MIN])),
        ];
        for column in beyond {
            for expression in [
                "date_trunc('day', t)",
                "date_trunc('year', t)",
                "date_part('year', t)",
                "date_part('dow', t)",
                "t + INTERVAL '1 day'",
                "t - INTERVAL '1 month'",
                "CAST(t AS VARCHAR)",
                "to_char(t, '%Y')",
            ] {
                let context = format!("{expression} of {}", column.data_type());
                assert!(values(expression, &column).is_err(), "{context}");
            }
        }
        let milliseconds: ArrayRef = Arc::new(Date64Array::from(vec![i64::MAX]));
        assert!(values("to_date(t)", &milliseconds).is_err());
        let seconds = TimestampSecondArray::from(vec![253_370_764_800]);
        let seconds: ArrayRef = Arc::new(seconds);
        for series in ["range", "generate_series"] {
            let expression = format!("{series}(t, t + INTERVAL '1 day', INTERVAL '1 day')");
            assert!(values(&expression, &seconds).is_err(), "{series}");
        }
    }

    /// The time and the day of a date in milliseconds began last, before 1970 as after it.
    #[test]
    fn dates_in_milliseconds_are_cut_to_the_tick_that_began_last() {
        let day = 86_400_000;
        let column: ArrayRef = Arc::new(Date64Array::from(vec![-day - 1, -1, 0, 1, day]));
        let dates = values("to_date(t)", &column).unwrap();
        assert_eq!(days(&dates), [-2, -1, 0, 0, 1]);
        let seconds = values("to_unixtime(t)", &column).unwrap();
        assert_eq!(ticks(&seconds), [-86_401, -1, 0, 0, 86_400]);
    }

    #[test]
    fn fractions_lie_in_the_tick_that_began_last() {
        let numbers = [-1.5, -0.5, 0.5, 1.0];
        let expected = [-2, -1, 0, 1];
        let floats: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
        let decimals = cast(&floats, &DataType::Decimal128(10, 2)).unwrap();
        let singles = cast(&floats, &DataType::Float32).unwrap();
        for column in [floats, singles, decimals] {
            let label = type_label(column.data_type());
            let dates = values("to_date(t)", &column).unwrap();
            assert_eq!(days(&dates), expected, "{label}");
            for function in ["to_timestamp_seconds", "to_timestamp_millis"] {
                let times = values(&format!("{function}(t)"), &column).unwrap();
                assert_eq!(ticks(&times), expected, "{function} of {label}");
            }
        }
    }

    /// A number is a count of days since 1970, and 20240101 is a date as it is written.
    #[test]
    fn numbers_beyond_the_calendar_are_no_dates() {
        for number in [20_240_101, 2_932_897, -719_163] {
            let whole: ArrayRef = Arc::new(Int64Array::from(vec![number]));
            let real: ArrayRef = Arc::new(Float64Array::from(vec![number as f64]));
            for column in [whole, real] {
                let refused = values("to_date(t)", &column).unwrap_err();
                assert_eq!(refused.code(), codes::BAD_ROW, "{number}");
            }
        }
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(2_932_896), None]));
        let dates = values("to_date(t)", &whole).unwrap();
        assert_eq!(dates.null_count(), 1);
        assert_eq!(days(&dates)[0], 2_932_896);
    }
}
