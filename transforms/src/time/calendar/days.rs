//! Days of rows as numbers, and facts about a day.

use arrow::array::{Array, ArrayRef};
use chrono::{Datelike, NaiveDate, NaiveDateTime, Weekday};
use forebay_model::{CALENDAR_DAYS, ColumnClock, Fault, Result, codes, ticks, type_label};

use super::day_numbers::{date_of_day, day_of_date};
use super::holidays::HolidayCalendar;

/// The local day of each row; `None` for null. Times beyond the calendar are refused.
pub(super) fn days_of(column: &ArrayRef) -> Result<Vec<Option<i32>>> {
    let times = civil_times(column)?.into_iter();
    let days = times.map(|time| time.map(|time| day_of_date(time.date())));
    Ok(days.collect())
}

/// The civil time of each row; `None` for null. Times beyond the calendar are refused.
pub(super) fn civil_times(column: &ArrayRef) -> Result<Vec<Option<NaiveDateTime>>> {
    let clock = ColumnClock::of(column.data_type())?
        .ok_or_else(|| Fault::internal("a calendar of integers"))?;
    let times = ticks(column)?;
    let mut civil_times = Vec::with_capacity(times.len());
    for time in times.iter() {
        let civil = time.and_then(|time| clock.local(time));
        if let Some(time) = time.filter(|_| civil.is_none()) {
            return Err(beyond_calendar_fault(time, column));
        }
        civil_times.push(civil);
    }
    Ok(civil_times)
}

/// A fault for a time of a column that no calendar has.
fn beyond_calendar_fault(tick: i64, column: &ArrayRef) -> Fault {
    let message = format!(
        "the time {tick} (ticks of {}) lies beyond the years of the calendar, {} to {}",
        type_label(column.data_type()),
        NaiveDate::MIN.year(),
        NaiveDate::MAX.year()
    );
    Fault::new(codes::BAD_ROW, message).hint("`filter` such rows, or make their times null")
}

/// Refuses times of which an operation gave null, since they lie beyond the calendar.
pub(crate) fn refuse_lost_times(times: &ArrayRef, parts: &ArrayRef) -> Result<()> {
    if parts.null_count() == times.null_count() {
        return Ok(());
    }
    let numbers = ticks(times)?;
    let lost = (0..times.len()).find(|row| parts.is_null(*row) && numbers.is_valid(*row));
    match lost {
        Some(row) => Err(beyond_calendar_fault(numbers.value(row), times)),
        None => Ok(()),
    }
}

/// Days that are no business days.
#[derive(Debug, Clone)]
pub(super) struct BusinessCalendar {
    pub holidays: HolidayCalendar,
    /// True for days of the week without business, from Monday.
    pub weekend: [bool; 7],
}

impl BusinessCalendar {
    /// True if a day is neither a holiday nor of the weekend.
    pub fn is_business_day(&self, day: i32) -> bool {
        !self.is_weekend(day) && !self.holidays.holds(day)
    }

    fn is_weekend(&self, day: i32) -> bool {
        let weekday: Weekday = date_of_day(day).weekday();
        self.weekend[weekday.num_days_from_monday() as usize]
    }

    /// Business days of the month up to a day, which counts.
    pub fn business_day_of_month(&self, day: i32) -> i32 {
        let first = day - date_of_day(day).day0() as i32;
        (first..=day)
            .filter(|day| self.is_business_day(*day))
            .count() as i32
    }

    /// Business days of the month after a day.
    pub fn business_days_left(&self, day: i32) -> i32 {
        let last = last_of_month(day);
        (day + 1..=last)
            .filter(|day| self.is_business_day(*day))
            .count() as i32
    }

    /// Business days from 1970-01-01 up to a day, which does not count; of earlier days, less than zero. A business day
    /// has the number after that of the business day before it.
    pub fn business_day_number(&self, day: i32) -> i32 {
        let holidays = if day < 0 {
            -self.holidays_of_business(day, 0)
        } else {
            self.holidays_of_business(0, day)
        };
        self.working_days_until(day) - holidays
    }

    /// Days from 1970-01-01 up to a day that are not of the weekend.
    fn working_days_until(&self, day: i32) -> i32 {
        let in_week = self.weekend.iter().filter(|is_free| !**is_free).count() as i32;
        let days_in_last_week = day.rem_euclid(DAYS_OF_WEEK);
        let working_days = (day - days_in_last_week..day).filter(|day| !self.is_weekend(*day));
        day.div_euclid(DAYS_OF_WEEK) * in_week + working_days.count() as i32
    }

    /// Holidays between two days, the second of which does not count, that are not of the weekend.
    fn holidays_of_business(&self, from: i32, to: i32) -> i32 {
        let holidays = self.holidays.days.range(from..to);
        holidays.filter(|(day, _)| !self.is_weekend(**day)).count() as i32
    }

    /// The business day with a number; `None` beyond the calendar.
    pub fn day_of_number(&self, number: i32) -> Option<i32> {
        let mut first = i32::try_from(*CALENDAR_DAYS.start()).ok()?;
        let mut last = i32::try_from(*CALENDAR_DAYS.end()).ok()?;
        if number < self.business_day_number(first) || number >= self.business_day_number(last) {
            return None;
        }
        // Of the days with the number, the last one is the business day: those before it are free.
        while last - first > 1 {
            let middle = first + (last - first) / 2;
            if self.business_day_number(middle) > number {
                last = middle;
            } else {
                first = middle;
            }
        }
        Some(first)
    }

    /// The payday of the month of a day: a day of the month, or the last of a shorter one; a day without business moves it
    /// to the business day before.
    fn payday(&self, day: i32, day_of_month: u32) -> i32 {
        let first = day - date_of_day(day).day0() as i32;
        let nominal = first + day_of_month.saturating_sub(1) as i32;
        let nominal = nominal.min(last_of_month(day));
        let earliest = nominal - DAYS_SEARCHED;
        let mut payday = nominal;
        while payday > earliest && !self.is_business_day(payday) {
            payday -= 1;
        }
        payday
    }

    /// The last payday at or before a day.
    pub fn payday_before(&self, day: i32, days_of_month: &[u32]) -> Option<i32> {
        let month_before = day - date_of_day(day).day0() as i32 - 1;
        let paydays = self.paydays([month_before, day], days_of_month);
        paydays.filter(|payday| *payday <= day).max()
    }

    /// The next payday at or after a day.
    pub fn payday_after(&self, day: i32, days_of_month: &[u32]) -> Option<i32> {
        let next_month = last_of_month(day) + 1;
        let paydays = self.paydays([day, next_month], days_of_month);
        paydays.filter(|payday| *payday >= day).min()
    }

    fn paydays<'a>(
        &'a self,
        months: [i32; 2],
        days_of_month: &'a [u32],
    ) -> impl Iterator<Item = i32> + 'a {
        months.into_iter().flat_map(move |month| {
            days_of_month
                .iter()
                .map(move |day| self.payday(month, *day))
        })
    }
}

const DAYS_OF_WEEK: i32 = 7;

/// Days that are looked through for a business day.
const DAYS_SEARCHED: i32 = 31;

/// The last day of the month of a day.
pub(super) fn last_of_month(day: i32) -> i32 {
    let date = date_of_day(day);
    day - date.day() as i32 + i32::from(date.num_days_in_month())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> i32 {
        day_of_date(text.parse().unwrap())
    }

    fn calendar(holidays: &[&str]) -> BusinessCalendar {
        let mut calendar = HolidayCalendar::default();
        for holiday in holidays {
            calendar.add(holiday, None).unwrap();
        }
        BusinessCalendar {
            holidays: calendar,
            weekend: [false, false, false, false, false, true, true],
        }
    }

    /// Values of `numpy.busday_count` and of pandas' `CustomBusinessDay`.
    #[test]
    fn business_days_are_those_of_pandas() {
        let calendar = calendar(&["2024-12-25", "2024-12-26"]);
        assert!(calendar.is_business_day(day("2024-12-24")));
        assert!(!calendar.is_business_day(day("2024-12-25")));
        assert!(!calendar.is_business_day(day("2024-12-28")));
        assert_eq!(calendar.business_day_of_month(day("2024-12-01")), 0);
        assert_eq!(calendar.business_day_of_month(day("2024-12-02")), 1);
        assert_eq!(calendar.business_day_of_month(day("2024-12-24")), 17);
        assert_eq!(calendar.business_day_of_month(day("2024-12-31")), 20);
        assert_eq!(calendar.business_days_left(day("2024-12-24")), 3);
        assert_eq!(calendar.business_days_left(day("2024-12-31")), 0);
    }

    /// Values of `Timestamp + n * CustomBusinessDay(holidays=...)` of pandas 3.1.1.
    #[test]
    fn numbers_count_the_business_days_of_pandas() {
        let calendar = calendar(&["2024-12-25", "2024-12-26", "2025-01-01", "1969-12-25"]);
        for (from, count, to) in [
            ("2024-12-24", 1, "2024-12-27"),
            ("2024-12-24", 5, "2025-01-03"),
            ("2024-12-20", -3, "2024-12-17"),
            ("2025-01-02", -4, "2024-12-24"),
            ("2024-02-28", 2, "2024-03-01"),
            ("1969-12-24", 1, "1969-12-26"),
            ("1970-01-02", -7, "1969-12-23"),
            ("2024-12-23", 260, "2025-12-25"),
            ("2000-01-03", 6000, "2023-01-02"),
        ] {
            let number = calendar.business_day_number(day(from)) + count;
            assert_eq!(
                calendar.day_of_number(number),
                Some(day(to)),
                "{from} {count}"
            );
            assert_eq!(calendar.business_day_number(day(to)), number, "{to}");
        }
        assert_eq!(calendar.business_day_number(day("1970-01-01")), 0);
        assert_eq!(calendar.day_of_number(i32::MAX), None);
        assert_eq!(calendar.day_of_number(i32::MIN), None);
    }

    #[test]
    fn each_business_day_has_the_number_after_the_one_before() {
        for weekend in [[false; 7], [false, false, false, false, true, true, false]] {
            let mut calendar = calendar(&["1969-12-30", "1970-01-01", "1970-01-06"]);
            calendar.weekend = weekend;
            let days = day("1969-11-01")..day("1970-03-01");
            let days: Vec<i32> = days.filter(|day| calendar.is_business_day(*day)).collect();
            for pair in days.windows(2) {
                let first = calendar.business_day_number(pair[0]);
                assert_eq!(calendar.business_day_number(pair[1]), first + 1, "{pair:?}");
                assert_eq!(calendar.day_of_number(first), Some(pair[0]), "{pair:?}");
            }
        }
    }

    #[test]
    fn paydays_move_to_the_business_day_before() {
        let calendar = calendar(&["2024-05-31"]);
        let paydays = [15, 31];
        // 31 May is a holiday: 30 May. 15 June is a Saturday: 14 June.
        assert_eq!(
            calendar.payday_after(day("2024-05-16"), &paydays),
            Some(day("2024-05-30"))
        );
        assert_eq!(
            calendar.payday_after(day("2024-05-31"), &paydays),
            Some(day("2024-06-14"))
        );
        assert_eq!(
            calendar.payday_before(day("2024-06-01"), &paydays),
            Some(day("2024-05-30"))
        );
        assert_eq!(calendar.payday_after(day("2024-05-16"), &[]), None);
    }

    #[test]
    fn days_have_dates() {
        for text in ["1969-12-31", "1970-01-01", "2024-02-29", "1900-01-01"] {
            assert_eq!(date_of_day(day(text)).to_string(), text);
        }
        assert_eq!(last_of_month(day("2024-02-03")), day("2024-02-29"));
        assert_eq!(last_of_month(day("2023-12-31")), day("2023-12-31"));
    }
}
