//! Holidays of countries, and those that a spec lists.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use chrono::NaiveDate;
use flate2::read::ZlibDecoder;
use forebay_model::{Fault, Result, codes};

use super::day_numbers::{day_of_date, year_of_day};
use crate::shared::bad_value;

/// Public holidays by country and subdivision; `transforms/holidays/make.py` describes the format.
const TABLE: &[u8] = include_bytes!("../../../holidays/holidays.txt.zz");

/// Most bytes of the table as text.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// Holidays by day, and the years for which they are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HolidayCalendar {
    /// The name of each holiday by its day since 1970-01-01.
    pub days: BTreeMap<i32, String>,
    /// The country's code and its first and last year; `None` of listed days alone, which are all that there are.
    pub known: Option<KnownYears>,
}

/// Years for which the holidays of a country are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownYears {
    pub code: String,
    pub first: i32,
    pub last: i32,
}

impl HolidayCalendar {
    /// Refuses a day whose holidays are not known: it is not a day without one.
    pub fn check_day(&self, day: i32) -> Result<()> {
        let Some(years) = &self.known else {
            return Ok(());
        };
        let year = year_of_day(day);
        if (years.first..=years.last).contains(&year) {
            return Ok(());
        }
        let message = format!(
            "holidays of {} are known from {} to {}, and a row is of {year}",
            years.code, years.first, years.last
        );
        Err(Fault::new(codes::BAD_ROW, message).hint(
            "list the holidays of other years under `holidays`, without `country`, or filter such \
             rows",
        ))
    }

    /// True if a day is a holiday.
    pub fn holds(&self, day: i32) -> bool {
        self.days.contains_key(&day)
    }

    /// The last holiday at or before a day.
    pub fn before(&self, day: i32) -> Option<i32> {
        self.days.range(..=day).next_back().map(|(day, _)| *day)
    }

    /// The first holiday at or after a day.
    pub fn after(&self, day: i32) -> Option<i32> {
        self.days.range(day..).next().map(|(day, _)| *day)
    }

    /// Adds a listed day.
    pub fn add(&mut self, date: &str, name: Option<&str>) -> Result<()> {
        let parsed: NaiveDate = date.parse().map_err(|_| {
            bad_value(format!("`{date}` is not a date")).hint("write it as 2024-12-24")
        })?;
        let name = name.unwrap_or("holiday").to_owned();
        self.days.insert(day_of_date(parsed), name);
        Ok(())
    }

    /// The public holidays of a country (`DE`) or a subdivision of one (`DE-BE`).
    pub fn of_country(code: &str) -> Result<HolidayCalendar> {
        let table = table()?;
        let code = code.to_uppercase();
        let country = code.split('-').next().unwrap_or_default();
        let Some(national) = table.calendars.get(country) else {
            return Err(unknown_calendar(&code, country, table));
        };
        let mut calendar = national.read(country, &table.names)?;
        if code != country {
            let Some(subdivision) = table.calendars.get(&code) else {
                return Err(unknown_calendar(&code, country, table));
            };
            subdivision.apply(&table.names, &mut calendar.days)?;
            calendar.known = Some(KnownYears {
                code,
                first: subdivision.first,
                last: subdivision.last,
            });
        }
        Ok(calendar)
    }
}

fn unknown_calendar(code: &str, country: &str, table: &HolidayTable) -> Fault {
    let prefix = format!("{country}-");
    let subdivisions: Vec<&str> = table
        .calendars
        .keys()
        .filter(|name| name.starts_with(&prefix))
        .map(String::as_str)
        .collect();
    let fault = bad_value(format!("the holidays of `{code}` are not known"));
    if subdivisions.is_empty() {
        fault.hint("write the code of ISO 3166-1, such as `DE`, or list days under `holidays`")
    } else {
        fault.hint(format!("its subdivisions are {}", subdivisions.join(", ")))
    }
}

/// All calendars; the holidays of each are read when they are asked for.
struct HolidayTable {
    names: Vec<String>,
    calendars: BTreeMap<String, CalendarText>,
}

/// A calendar of the table.
struct CalendarText {
    first: i32,
    last: i32,
    holidays: String,
}

impl CalendarText {
    fn read(&self, code: &str, names: &[String]) -> Result<HolidayCalendar> {
        let mut days = BTreeMap::new();
        self.apply(names, &mut days)?;
        let years = KnownYears {
            code: code.to_owned(),
            first: self.first,
            last: self.last,
        };
        Ok(HolidayCalendar {
            days,
            known: Some(years),
        })
    }

    /// Adds the holidays to those of the country, and takes away those that it lacks.
    fn apply(&self, names: &[String], days: &mut BTreeMap<i32, String>) -> Result<()> {
        let mut day = 0;
        for word in self.holidays.split_ascii_whitespace() {
            let (distance, name) = word.split_once(':').ok_or_else(damaged)?;
            day += distance.parse::<i32>().map_err(|_| damaged())?;
            if name == "-" {
                days.remove(&day);
                continue;
            }
            let number: usize = name.trim_end_matches('e').parse().map_err(|_| damaged())?;
            let name = names.get(number).ok_or_else(damaged)?;
            days.insert(day, name.clone());
        }
        Ok(())
    }
}

fn damaged() -> Fault {
    Fault::internal("the table of holidays is damaged")
}

fn table() -> Result<&'static HolidayTable> {
    static READ: LazyLock<Option<HolidayTable>> = LazyLock::new(read_table);
    READ.as_ref().ok_or_else(damaged)
}

fn read_table() -> Option<HolidayTable> {
    let mut text = String::new();
    let mut decoder = ZlibDecoder::new(TABLE).take(TABLE_BYTES_MAX);
    decoder.read_to_string(&mut text).ok()?;
    let (names, calendars) = text.split_once("\n\n")?;
    let mut table = HolidayTable {
        names: names.lines().map(str::to_owned).collect(),
        calendars: BTreeMap::new(),
    };
    let mut lines = calendars.lines();
    while let Some(head) = lines.next() {
        // Codes of subdivisions may have spaces.
        let mut words = head.rsplitn(3, ' ');
        let last = words.next()?.parse().ok()?;
        let first = words.next()?.parse().ok()?;
        let code = words.next()?.to_owned();
        let calendar = CalendarText {
            first,
            last,
            holidays: lines.next()?.to_owned(),
        };
        table.calendars.insert(code, calendar);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use chrono::Datelike;

    use super::*;

    fn name_on(calendar: &HolidayCalendar, date: &str) -> Option<String> {
        let date: NaiveDate = date.parse().unwrap();
        calendar.days.get(&day_of_date(date)).cloned()
    }

    /// Days of the package `holidays` 0.109.
    #[test]
    fn holidays_are_those_of_countries_and_their_parts() {
        let germany = HolidayCalendar::of_country("DE").unwrap();
        assert!(name_on(&germany, "2024-12-25").is_some());
        assert!(name_on(&germany, "2024-03-29").is_some(), "Good Friday");
        assert!(name_on(&germany, "2024-11-01").is_none());
        let bavaria = HolidayCalendar::of_country("de-by").unwrap();
        assert!(name_on(&bavaria, "2024-11-01").is_some(), "All Saints");
        assert!(name_on(&bavaria, "2024-12-25").is_some());
        let states = HolidayCalendar::of_country("US").unwrap();
        assert!(name_on(&states, "2024-07-04").is_some());
        assert!(name_on(&states, "2024-11-28").is_some(), "Thanksgiving");
    }

    #[test]
    fn unknown_places_and_years_are_faults() {
        assert!(HolidayCalendar::of_country("XX").is_err());
        assert!(HolidayCalendar::of_country("DE-XX").is_err());
        let spain = HolidayCalendar::of_country("ES").unwrap();
        let known = spain.known.clone().unwrap();
        let before = NaiveDate::from_ymd_opt(known.first - 1, 12, 31).unwrap();
        assert!(spain.check_day(day_of_date(before)).is_err());
        let first = NaiveDate::from_ymd_opt(known.first, 1, 1).unwrap();
        assert!(spain.check_day(day_of_date(first)).is_ok());
        assert_eq!(before.year() + 1, known.first);
    }

    #[test]
    fn listed_days_need_no_country() {
        let mut calendar = HolidayCalendar::default();
        calendar.add("2024-12-24", Some("Christmas Eve")).unwrap();
        calendar.add("2024-12-31", None).unwrap();
        assert_eq!(name_on(&calendar, "2024-12-31").as_deref(), Some("holiday"));
        assert!(calendar.add("24.12.2024", None).is_err());
        assert!(calendar.check_day(0).is_ok());
    }
}
