//! Texts as intervals of days and milliseconds.
//!
//! Arrow takes a month for 30 days, and a year for 360. Such texts are no values of the type here.

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::compute::{CastOptions, cast, cast_with_options, nullif};
use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DataFusionError;
use forebay_model::shorten;

/// Names of units that no number of days is equal to, as Arrow reads them.
const UNITS_OF_MONTHS: [&str; 18] = [
    "c",
    "cent",
    "cents",
    "century",
    "centuries",
    "dec",
    "decs",
    "decade",
    "decades",
    "y",
    "yr",
    "yrs",
    "year",
    "years",
    "mon",
    "mons",
    "month",
    "months",
];

/// The intervals of texts. With safe options, texts with months are null.
pub(crate) fn day_times_of_texts(
    column: &ArrayRef,
    options: &CastOptions<'_>,
) -> Result<ArrayRef, DataFusionError> {
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let counts = texts.iter().map(|text| text.map(counts_months));
    let with_months: BooleanArray = counts.collect();
    let first = with_months.iter().position(|row| row == Some(true));
    if !options.safe
        && let Some(row) = first
    {
        return Err(DataFusionError::Execution(format!(
            "`{}` is no interval of days: months and years have no fixed number of days. \
             `Interval(MonthDayNano)` has them",
            shorten(texts.value(row))
        )));
    }
    let of_days = nullif(texts, &with_months)?;
    let target = DataType::Interval(IntervalUnit::DayTime);
    Ok(cast_with_options(&of_days, &target, options)?)
}

/// True for a text that has a unit of months.
fn counts_months(text: &str) -> bool {
    text.split(|letter: char| !letter.is_alphabetic())
        .any(|word| UNITS_OF_MONTHS.contains(&word.to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;
    use arrow::datatypes::IntervalDayTimeType;

    use super::*;

    #[test]
    fn months_are_no_days() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("1 day 2 hours"),
            None,
            Some("1 month"),
            Some("1.5 days"),
            Some("1YEAR"),
            Some("5 m"),
        ]));
        let mut options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let error = day_times_of_texts(&texts, &options).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("`1 month` is no interval"), "{message}");
        options.safe = true;
        let intervals = day_times_of_texts(&texts, &options).unwrap();
        let intervals = intervals.as_primitive::<IntervalDayTimeType>();
        let parts = intervals.iter().map(|interval| {
            let interval = interval?;
            Some((interval.days, interval.milliseconds))
        });
        let parts: Vec<Option<(i32, i32)>> = parts.collect();
        let hour = 3_600_000;
        let expected = [
            Some((1, 2 * hour)),
            None,
            None,
            Some((1, 12 * hour)),
            None,
            Some((0, hour / 12)),
        ];
        assert_eq!(parts, expected);
    }
}
