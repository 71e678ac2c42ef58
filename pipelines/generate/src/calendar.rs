//! Days, and the holidays that people shop for.

use std::fmt;
use std::str::FromStr;

use forebay_model::{Fault, Result, codes};

/// A day of the Gregorian calendar, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CalendarDay(pub i32);

impl CalendarDay {
    /// The day of a date. Howard Hinnant, "chrono-compatible low-level date algorithms".
    pub(crate) const fn of(year: i32, month: u32, day: u32) -> CalendarDay {
        let y = if month <= 2 { year - 1 } else { year };
        let era = y.div_euclid(400);
        let of_era = y.rem_euclid(400);
        let month = month as i32;
        let of_year =
            (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day as i32 - 1;
        CalendarDay(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
    }

    /// Year, month and day.
    pub(crate) fn date(self) -> (i32, u32, u32) {
        let z = self.0 + 719_468;
        let era = z.div_euclid(146_097);
        let of_era = z.rem_euclid(146_097);
        let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * years + years / 4 - years / 100);
        let part = (5 * of_year + 2) / 153;
        let day = of_year - (153 * part + 2) / 5 + 1;
        let month = if part < 10 { part + 3 } else { part - 9 };
        (
            years + era * 400 + i32::from(month <= 2),
            month as u32,
            day as u32,
        )
    }

    /// 0 is Monday.
    pub(crate) fn weekday(self) -> usize {
        (self.0 + 3).rem_euclid(7) as usize
    }

    /// Weeks since the one of 1969-12-29; they start on Mondays.
    pub(crate) fn week(self) -> i32 {
        (self.0 + 3).div_euclid(7)
    }

    /// The n-th given weekday of a month, from 1.
    fn nth(year: i32, month: u32, weekday: usize, n: i32) -> CalendarDay {
        let first = CalendarDay::of(year, month, 1);
        CalendarDay(first.0 + (weekday as i32 - first.weekday() as i32).rem_euclid(7) + 7 * (n - 1))
    }

    /// Easter Sunday, by the anonymous Gregorian algorithm (Meeus, "Astronomical Algorithms", chapter 8).
    fn easter(year: i32) -> CalendarDay {
        let a = year % 19;
        let b = year / 100;
        let c = year % 100;
        let h = (19 * a + b - b / 4 - (b - (b + 8) / 25 + 1) / 3 + 15) % 30;
        let l = (32 + 2 * (b % 4) + 2 * (c / 4) - h - c % 4) % 7;
        let m = (a + 11 * h + 22 * l) / 451;
        let sum = h + l - 7 * m + 114;
        CalendarDay::of(year, (sum / 31) as u32, (sum % 31 + 1) as u32)
    }

    /// The event of this day, as an index into [`EVENTS`].
    pub(crate) fn event(self) -> Option<usize> {
        let (year, month, day) = self.date();
        let fixed = match (month, day) {
            (1, 1) => Some(0),
            (2, 14) => Some(2),
            (3, 17) => Some(4),
            (5, 5) => Some(6),
            (7, 4) => Some(10),
            (10, 31) => Some(13),
            (11, 11) => Some(14),
            (12, 25) => Some(16),
            _ => None,
        };
        let moving = || {
            let monday = 0;
            let thursday = 3;
            let sunday = 6;
            match month {
                2 if self == CalendarDay::nth(year, 2, sunday, 1) => Some(1),
                2 if self == CalendarDay::nth(year, 2, monday, 3) => Some(3),
                3 | 4 if self == CalendarDay::easter(year) => Some(5),
                5 if self == CalendarDay::nth(year, 5, sunday, 2) => Some(7),
                5 if self.weekday() == monday && day > 24 => Some(8),
                6 if self == CalendarDay::nth(year, 6, sunday, 3) => Some(9),
                9 if self == CalendarDay::nth(year, 9, monday, 1) => Some(11),
                10 if self == CalendarDay::nth(year, 10, monday, 2) => Some(12),
                11 if self == CalendarDay::nth(year, 11, thursday, 4) => Some(15),
                _ => None,
            }
        };
        fixed.or_else(moving)
    }
}

/// The names of events, and how the logarithm of demand changes on the day.
pub(crate) const EVENTS: [(&str, f64); 17] = [
    ("NewYear", -0.25),
    ("SuperBowl", 0.18),
    ("ValentinesDay", 0.08),
    ("PresidentsDay", 0.06),
    ("StPatricksDay", 0.04),
    ("Easter", -0.12),
    ("CincoDeMayo", 0.05),
    ("MothersDay", 0.05),
    ("MemorialDay", 0.03),
    ("FathersDay", 0.05),
    ("IndependenceDay", 0.02),
    ("LaborDay", 0.12),
    ("ColumbusDay", 0.03),
    ("Halloween", -0.06),
    ("VeteransDay", 0.02),
    ("Thanksgiving", -0.45),
    // Nearly everything is closed.
    ("Christmas", -7.0),
];

impl fmt::Display for CalendarDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl FromStr for CalendarDay {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        let fault = || {
            Fault::new(codes::BAD_VALUE, format!("`{text}` is not a date"))
                .hint("write it as 2016-05-22")
        };
        let parts: Vec<&str> = text.split('-').collect();
        let [year, month, day] = parts[..] else {
            return Err(fault());
        };
        if (year.len(), month.len(), day.len()) != (4, 2, 2) {
            return Err(fault());
        }
        let year = digits(year).ok_or_else(fault)? as i32;
        let month = digits(month).ok_or_else(fault)?;
        let day = digits(day).ok_or_else(fault)?;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(fault());
        }
        let calendar_day = CalendarDay::of(year, month, day);
        // A day that the month does not have becomes one of the next month.
        if calendar_day.date() == (year, month, day) {
            Ok(calendar_day)
        } else {
            Err(fault())
        }
    }
}

/// A number without a sign.
fn digits(text: &str) -> Option<u32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_there_and_back() {
        assert_eq!(CalendarDay::of(1970, 1, 1), CalendarDay(0));
        assert_eq!(CalendarDay::of(2000, 3, 1), CalendarDay(11_017));
        assert_eq!(CalendarDay::of(2016, 5, 22), CalendarDay(16_943));
        let mut before = CalendarDay(-70_000).date();
        for number in -69_999..100_000 {
            let date = CalendarDay(number).date();
            assert!(before < date);
            assert_eq!(CalendarDay::of(date.0, date.1, date.2), CalendarDay(number));
            before = date;
        }
    }

    #[test]
    fn text_is_strict() {
        assert_eq!(
            "2016-05-22".parse::<CalendarDay>().unwrap(),
            CalendarDay(16_943)
        );
        assert_eq!(CalendarDay(16_943).to_string(), "2016-05-22");
        for text in [
            "2016-02-30",
            "2016-5-22",
            "20160522",
            "",
            "2016-13-01",
            "+016-01-01",
            "2016-05-22-1",
        ] {
            assert!(text.parse::<CalendarDay>().is_err(), "{text}");
        }
    }

    #[test]
    fn events_of_one_year() {
        let found: Vec<(String, &str)> = (CalendarDay::of(2015, 1, 1).0
            ..CalendarDay::of(2016, 1, 1).0)
            .filter_map(|number| {
                CalendarDay(number)
                    .event()
                    .map(|event| (CalendarDay(number).to_string(), EVENTS[event].0))
            })
            .collect();
        let dates: Vec<&str> = found.iter().map(|(date, _)| &date[5..]).collect();
        assert_eq!(
            dates,
            [
                "01-01", "02-01", "02-14", "02-16", "03-17", "04-05", "05-05", "05-10", "05-25",
                "06-21", "07-04", "09-07", "10-12", "10-31", "11-11", "11-26", "12-25"
            ]
        );
        let mut names: Vec<&str> = found.iter().map(|(_, name)| *name).collect();
        names.dedup();
        assert_eq!(names.len(), EVENTS.len());
        assert_eq!(CalendarDay::of(2016, 5, 22).weekday(), 6);
    }
}
