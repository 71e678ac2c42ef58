//! Days as numbers: days since 1970-01-01.

use chrono::{Datelike, Days, NaiveDate};

/// A date as days since 1970-01-01.
pub(super) fn day_of_date(date: NaiveDate) -> i32 {
    let days = date.signed_duration_since(NaiveDate::default()).num_days();
    // Dates of the calendar lie within 96 million days.
    i32::try_from(days).unwrap_or(i32::MAX)
}

/// The date of a day since 1970-01-01.
pub(super) fn date_of_day(day: i32) -> NaiveDate {
    let distance = Days::new(u64::from(day.unsigned_abs()));
    let date = if day < 0 {
        NaiveDate::default().checked_sub_days(distance)
    } else {
        NaiveDate::default().checked_add_days(distance)
    };
    date.unwrap_or(NaiveDate::MAX)
}

/// The year of a day since 1970-01-01.
pub(super) fn year_of_day(day: i32) -> i32 {
    date_of_day(day).year()
}
