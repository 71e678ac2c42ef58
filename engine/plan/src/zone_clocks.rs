//! Clocks of columns of times, and steps of their calendars.

use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::common::DataFusionError;
use forebay_model::{CalendarSpan, ColumnClock};

/// The clock of a column of times. Fails for other columns.
pub(crate) fn clock_of(data_type: &DataType) -> Result<ColumnClock, DataFusionError> {
    let clock = ColumnClock::of(data_type);
    let clock = clock.map_err(|fault| DataFusionError::External(Box::new(fault)))?;
    clock.ok_or_else(|| DataFusionError::Internal("a local time that is none".to_owned()))
}

/// True for times in a zone whose clock changes.
pub(crate) fn has_calendar(data_type: &DataType) -> bool {
    if !matches!(data_type, DataType::Timestamp(_, Some(_))) {
        return false;
    }
    let clock = ColumnClock::of(data_type).ok().flatten();
    clock.is_some_and(|clock| !clock.has_even_days())
}

/// The tick an interval later: months and days by the calendar, then the exact rest.
pub(crate) fn moved_tick(
    clock: &ColumnClock,
    time: i64,
    length: IntervalMonthDayNano,
) -> Option<i64> {
    let span = CalendarSpan {
        months: length.months.into(),
        days: length.days.into(),
        ticks: 0,
    };
    let day = clock.later(time, span)?;
    let nanoseconds = i128::from(day) * clock.tick() + i128::from(length.nanoseconds);
    i64::try_from(nanoseconds.div_euclid(clock.tick())).ok()
}
