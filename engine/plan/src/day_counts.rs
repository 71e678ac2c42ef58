//! Days of dates in milliseconds, and of numbers; times of day of whole numbers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::compute::kernels::cmp::gt;
use arrow::compute::{CastOptions, cast, cast_with_options, nullif};
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::util::display::array_value_to_string;
use datafusion::common::DataFusionError;
use forebay_model::CALENDAR_DAYS;

const DAY_MILLISECONDS: i64 = 86_400_000;

/// Dates in milliseconds as days: each lies in the day that began last. With `is_try`, dates that days do not hold are
/// null.
pub(crate) fn days_of_dates(dates: &ArrayRef, is_try: bool) -> Result<ArrayRef, DataFusionError> {
    let checked = CastOptions {
        safe: is_try,
        ..CastOptions::default()
    };
    let ticks = cast(dates, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let days: Int64Array = ticks.unary(|tick| tick.div_euclid(DAY_MILLISECONDS));
    let days = cast_with_options(&days, &DataType::Int32, &checked)?;
    Ok(cast(&days, &DataType::Date32)?)
}

/// Whole numbers as days since 1970. With `is_try`, numbers beyond the calendar are null.
pub(crate) fn days_of_numbers(
    numbers: &ArrayRef,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let days = cast(numbers, &DataType::Int64)?;
    let ticks = days.as_primitive::<Int64Type>();
    let mut beyond = Vec::with_capacity(numbers.len());
    for row in 0..numbers.len() {
        let is_day = ticks.is_valid(row) && CALENDAR_DAYS.contains(&ticks.value(row));
        beyond.push(numbers.is_valid(row) && !is_day);
    }
    let Some(row) = beyond.iter().position(|is_beyond| *is_beyond) else {
        return Ok(cast(&days, &DataType::Date32)?);
    };
    if !is_try {
        let number = array_value_to_string(numbers, row)?;
        return Err(DataFusionError::Execution(format!(
            "{number} is no day of the years 1 to 9999: whole numbers count days since 1970-01-01"
        )));
    }
    let within = nullif(&days, &BooleanArray::from(beyond))?;
    Ok(cast(&within, &DataType::Date32)?)
}

/// Whole numbers as dates in milliseconds: 32 bits count days since 1970, as Arrow has it, and 64 bits milliseconds. With
/// `is_try`, numbers that are no days of the calendar are null.
pub(crate) fn dates_of_numbers(
    numbers: &ArrayRef,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    if *numbers.data_type() == DataType::Int32 {
        let days = days_of_numbers(numbers, is_try)?;
        return Ok(cast(&days, &DataType::Date64)?);
    }
    let ticks = cast(numbers, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let mut beyond = Vec::with_capacity(numbers.len());
    for row in 0..numbers.len() {
        let tick = ticks.value(row);
        let is_midnight = tick.rem_euclid(DAY_MILLISECONDS) == 0;
        let is_day = is_midnight && CALENDAR_DAYS.contains(&tick.div_euclid(DAY_MILLISECONDS));
        beyond.push(numbers.is_valid(row) && !is_day);
    }
    let Some(row) = beyond.iter().position(|is_beyond| *is_beyond) else {
        return Ok(cast(numbers, &DataType::Date64)?);
    };
    if !is_try {
        let number = array_value_to_string(numbers, row)?;
        return Err(DataFusionError::Execution(format!(
            "{number} is no day of the years 1 to 9999: whole numbers of 64 bits count \
             milliseconds from 1970-01-01 to the midnight of a day"
        )));
    }
    let within = nullif(numbers, &BooleanArray::from(beyond))?;
    Ok(cast(&within, &DataType::Date64)?)
}

/// Whole numbers as ticks of a time of day since midnight. With `is_try`, numbers beyond the day are null.
pub(crate) fn times_of_numbers(
    numbers: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let day_ticks = match target {
        DataType::Time32(TimeUnit::Second) => 86_400,
        DataType::Time32(_) => 86_400_000,
        DataType::Time64(TimeUnit::Microsecond) => 86_400_000_000,
        _ => 86_400_000_000_000,
    };
    let ticks = cast(numbers, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let mut beyond = Vec::with_capacity(numbers.len());
    for row in 0..numbers.len() {
        let is_within = ticks.is_valid(row) && (0..day_ticks).contains(&ticks.value(row));
        beyond.push(numbers.is_valid(row) && !is_within);
    }
    let Some(row) = beyond.iter().position(|is_beyond| *is_beyond) else {
        return Ok(cast(numbers, target)?);
    };
    if !is_try {
        let number = array_value_to_string(numbers, row)?;
        return Err(DataFusionError::Execution(format!(
            "{number} is no time of day: whole numbers count the ticks of {target} since midnight"
        )));
    }
    let within = nullif(numbers, &BooleanArray::from(beyond))?;
    Ok(cast(&within, target)?)
}

/// Numbers with fractions as the whole numbers at or below them. Numbers that 64 bits do not hold are refused.
pub(crate) fn floored_numbers(numbers: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let cut_numbers = cast_with_options(numbers, &DataType::Int64, &strict)?;
    // The cast cuts toward zero.
    let back = cast_with_options(&cut_numbers, numbers.data_type(), &strict)?;
    let is_above = gt(&back, numbers)?;
    let cut_numbers = cut_numbers.as_primitive::<Int64Type>();
    let mut floored = Vec::with_capacity(cut_numbers.len());
    for (number, is_above) in cut_numbers.iter().zip(&is_above) {
        floored.push(number.map(|number| number - i64::from(is_above == Some(true))));
    }
    Ok(Arc::new(Int64Array::from(floored)))
}
