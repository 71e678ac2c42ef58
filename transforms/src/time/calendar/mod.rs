//! `calendar`: holidays, business days, paydays and seasons of a date.

mod day_numbers;
mod days;
mod events;
mod fourier;
mod holidays;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Date32Array, Int32Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use chrono::Datelike;
use forebay_model::{Fault, Result, codes};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::bad_value;

use day_numbers::date_of_day;
pub(crate) use days::refuse_lost_times;
use days::{BusinessCalendar, days_of, last_of_month};
pub use events::EventTable;
pub use fourier::FourierTerms;
use holidays::HolidayCalendar;

/// Facts of the calendar about dates, which are known ahead of time.
///
/// In: columns of dates or timestamps; those with a time zone count in its local time. Out, for each of `parts`:
/// `<column>_<part>`; for `fourier`, `<column>_sin_<period>_<n>` and `_cos_`, `float32`, of the time since 1970-01-01; for
/// `events`, `<column>_days_since_<kind>` and `<column>_days_until_<kind>`, `int32`. Null stays null. Learns nothing but
/// the days of events, which are held in memory.
///
/// Holidays are the public ones of `country` (`DE`, or `DE-BY` of a subdivision: 250 countries, from 1990 to 2040 or as
/// long as they are known), with the days under `holidays`. A date beyond the known years is a fault. Dates of holidays
/// that follow the moon are estimates where they lie ahead. Business days are those that are neither holidays nor
/// `weekend`. A payday (`payday: [15, 31]`) is that day of the month, or its last, or the business day before where it is
/// none. The holidays are those of the package `holidays` 0.109 of Python.
///
/// Business days are no unit of a length, since each calendar has its own. `business_day_number` makes them a time: of its
/// column, `5t` is five business days in every step that takes a length. `business_day_date` is its inverse, and has the
/// dates of `future_rows` with that time.
///
/// ```yaml
/// - calendar: { columns: [date], country: DE, parts: [is_holiday, days_until_holiday, business_day_of_month] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn calendar(columns),
    example = r#"calendar(["date"]).country("DE").parts([CalendarFact::IsHoliday])"#
)]
pub struct CalendarFeatures {
    /// Columns of dates or timestamps.
    pub columns: ColumnSelector,
    /// The facts.
    #[serde(default)]
    pub parts: Vec<CalendarFact>,
    /// The country whose public holidays count, by its code of ISO 3166: `DE`, or `DE-BY`.
    #[serde(default)]
    pub country: Option<String>,
    /// Further holidays.
    #[serde(default)]
    pub holidays: Vec<HolidayDate>,
    /// Days of the week without business; Saturday and Sunday when left out.
    #[serde(default = "saturday_and_sunday")]
    pub weekend: Vec<DayOfWeek>,
    /// Days of the month on which wages are paid; 31 is the last one.
    #[serde(default)]
    pub payday: Vec<u32>,
    /// Fourier terms.
    #[serde(default)]
    pub fourier: Vec<FourierTerms>,
    /// Events of another step or source.
    #[serde(default)]
    pub events: Option<EventTable>,
}

/// A fact about a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarFact {
    /// The name of the holiday; null on other days.
    Holiday,
    /// True on a holiday.
    IsHoliday,
    /// Days since the last holiday, 0 on one; null before all.
    DaysSinceHoliday,
    /// Days until the next holiday, 0 on one; null after all.
    DaysUntilHoliday,
    /// True on a day that is neither a holiday nor of the weekend.
    IsBusinessDay,
    /// Business days of the month up to the day, which counts.
    BusinessDayOfMonth,
    /// Business days of the month that follow.
    BusinessDaysLeft,
    /// Business days from 1970-01-01 up to the day: 1 more than that of the business day before. Null on other days. It is a
    /// time whose steps are business days.
    BusinessDayNumber,
    /// The date of a number of business days. Its columns are whole numbers.
    BusinessDayDate,
    /// True on the first day of a month.
    IsMonthStart,
    /// True on the last day of a month.
    IsMonthEnd,
    /// True on the first day of a quarter.
    IsQuarterStart,
    /// True on the last day of a quarter.
    IsQuarterEnd,
    /// The ISO 8601 week, 1 to 53.
    WeekOfYear,
    /// Days since the last payday, 0 on one.
    DaysSincePayday,
    /// Days until the next payday, 0 on one.
    DaysUntilPayday,
}

/// A holiday of a spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a date (`2024-12-24`), or `date` and `name`")]
pub enum HolidayDate {
    /// A date.
    Date(String),
    /// A date with a name.
    Named {
        /// The date.
        date: String,
        /// The name.
        name: String,
    },
}

impl From<&str> for HolidayDate {
    fn from(date: &str) -> Self {
        HolidayDate::Date(date.to_owned())
    }
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DayOfWeek {
    /// Monday.
    Monday,
    /// Tuesday.
    Tuesday,
    /// Wednesday.
    Wednesday,
    /// Thursday.
    Thursday,
    /// Friday.
    Friday,
    /// Saturday.
    Saturday,
    /// Sunday.
    Sunday,
}

fn saturday_and_sunday() -> Vec<DayOfWeek> {
    vec![DayOfWeek::Saturday, DayOfWeek::Sunday]
}

impl CalendarFact {
    fn name(self) -> &'static str {
        match self {
            CalendarFact::Holiday => "holiday",
            CalendarFact::IsHoliday => "is_holiday",
            CalendarFact::DaysSinceHoliday => "days_since_holiday",
            CalendarFact::DaysUntilHoliday => "days_until_holiday",
            CalendarFact::IsBusinessDay => "is_business_day",
            CalendarFact::BusinessDayOfMonth => "business_day_of_month",
            CalendarFact::BusinessDaysLeft => "business_days_left",
            CalendarFact::BusinessDayNumber => "business_day_number",
            CalendarFact::BusinessDayDate => "business_day_date",
            CalendarFact::IsMonthStart => "is_month_start",
            CalendarFact::IsMonthEnd => "is_month_end",
            CalendarFact::IsQuarterStart => "is_quarter_start",
            CalendarFact::IsQuarterEnd => "is_quarter_end",
            CalendarFact::WeekOfYear => "week_of_year",
            CalendarFact::DaysSincePayday => "days_since_payday",
            CalendarFact::DaysUntilPayday => "days_until_payday",
        }
    }

    fn data_type(self) -> DataType {
        match self {
            CalendarFact::Holiday => DataType::Utf8,
            CalendarFact::IsHoliday
            | CalendarFact::IsBusinessDay
            | CalendarFact::IsMonthStart
            | CalendarFact::IsMonthEnd
            | CalendarFact::IsQuarterStart
            | CalendarFact::IsQuarterEnd => DataType::Boolean,
            CalendarFact::BusinessDayDate => DataType::Date32,
            _ => DataType::Int32,
        }
    }

    /// True if it depends on holidays.
    fn needs_holidays(self) -> bool {
        matches!(
            self,
            CalendarFact::Holiday
                | CalendarFact::IsHoliday
                | CalendarFact::DaysSinceHoliday
                | CalendarFact::DaysUntilHoliday
        )
    }

    /// True if it depends on paydays.
    fn needs_paydays(self) -> bool {
        matches!(
            self,
            CalendarFact::DaysSincePayday | CalendarFact::DaysUntilPayday
        )
    }

    /// True if the years of the table of holidays bound it.
    fn is_bounded(self) -> bool {
        let counts_business = matches!(
            self,
            CalendarFact::IsBusinessDay
                | CalendarFact::BusinessDayOfMonth
                | CalendarFact::BusinessDaysLeft
                | CalendarFact::BusinessDayNumber
        );
        counts_business || self.needs_holidays() || self.needs_paydays()
    }
}

impl ConfiguredTransform for CalendarFeatures {
    const NAME: &'static str = "calendar";
}

impl CalendarFeatures {
    fn business_calendar(&self) -> Result<BusinessCalendar> {
        let mut holidays = match &self.country {
            Some(code) => HolidayCalendar::of_country(code)?,
            None => HolidayCalendar::default(),
        };
        for holiday in &self.holidays {
            match holiday {
                HolidayDate::Date(date) => holidays.add(date, None)?,
                HolidayDate::Named { date, name } => holidays.add(date, Some(name))?,
            }
        }
        let mut weekend = [false; 7];
        for day in &self.weekend {
            weekend[*day as usize] = true;
        }
        if weekend.iter().all(|is_free| *is_free) {
            return Err(bad_value("`weekend` lists all days of the week"));
        }
        Ok(BusinessCalendar { holidays, weekend })
    }

    fn check(&self) -> Result<()> {
        if self.parts.is_empty() && self.fourier.is_empty() && self.events.is_none() {
            return Err(bad_value(
                "`calendar` says neither `parts` nor `fourier` nor `events`",
            ));
        }
        let has_holidays = self.country.is_some() || !self.holidays.is_empty();
        if let Some(part) = self.parts.iter().find(|part| part.needs_holidays())
            && !has_holidays
        {
            return Err(bad_value(format!("`{}` needs holidays", part.name()))
                .hint("name the `country`, such as `country: DE`, or list days under `holidays`"));
        }
        if let Some(part) = self.parts.iter().find(|part| part.needs_paydays())
            && self.payday.is_empty()
        {
            return Err(bad_value(format!("`{}` needs `payday`", part.name()))
                .hint("list the days of the month: `payday: [15, 31]`"));
        }
        let is_alone = self.parts.len() == 1 && self.fourier.is_empty() && self.events.is_none();
        if self.takes_numbers() && !is_alone {
            let message = "`business_day_date` takes whole numbers, and all else takes dates";
            return Err(bad_value(message).hint("write it in a step `calendar` of its own"));
        }
        if let Some(day) = self.payday.iter().find(|day| !(1..=31).contains(*day)) {
            return Err(bad_value(format!(
                "`payday: {day}` is not a day of the month from 1 to 31"
            )));
        }
        Ok(())
    }
}

impl Transform for CalendarFeatures {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        self.check()?;
        let calendar = Arc::new(self.business_calendar()?);
        let fields = if self.takes_numbers() {
            scope.typed_columns(&self.columns, "a whole number", |field| {
                field.data_type().is_integer() && *field.data_type() != DataType::UInt64
            })?
        } else {
            scope.typed_columns(&self.columns, "a date or timestamp", |field| {
                matches!(
                    field.data_type(),
                    DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
                )
            })?
        };
        let mut ops = Vec::new();
        for field in fields {
            for part in &self.parts {
                ops.push(self.fact_op(field, *part, &calendar));
            }
            for terms in &self.fourier {
                ops.extend(terms.ops(field)?);
            }
            if let Some(events) = &self.events {
                ops.extend(events.ops(scope, field)?);
            }
        }
        Ok(ops)
    }
}

impl CalendarFeatures {
    /// True if the columns are numbers of business days.
    fn takes_numbers(&self) -> bool {
        self.parts.contains(&CalendarFact::BusinessDayDate)
    }

    fn fact_op(
        &self,
        field: &Field,
        part: CalendarFact,
        calendar: &Arc<BusinessCalendar>,
    ) -> PlanOp {
        let name = format!("{}_{}", field.name(), part.name());
        let written = Field::new(name, part.data_type(), true);
        let facts = DayFacts {
            part,
            calendar: calendar.clone(),
            payday: self.payday.clone(),
        };
        PlanOp::Map(MapOp::new([field.name()], [written], move |columns, _| {
            let Some(column) = columns.first() else {
                return Err(Fault::internal("a calendar of no column"));
            };
            if part == CalendarFact::BusinessDayDate {
                return Ok(vec![facts.dates_of(column)?]);
            }
            Ok(vec![facts.of(&days_of(column)?)?])
        }))
    }
}

/// One fact about days.
struct DayFacts {
    part: CalendarFact,
    calendar: Arc<BusinessCalendar>,
    payday: Vec<u32>,
}

impl DayFacts {
    /// The fact for each day; each different day is looked at once.
    fn of(&self, days: &[Option<i32>]) -> Result<ArrayRef> {
        let mut numbers: HashMap<i32, Option<i32>> = HashMap::new();
        if self.part == CalendarFact::Holiday {
            for day in days.iter().flatten() {
                self.calendar.holidays.check_day(*day)?;
            }
            let name = |day: &i32| self.calendar.holidays.days.get(day).map(String::as_str);
            let names = days.iter().map(|day| day.as_ref().and_then(name));
            return Ok(Arc::new(names.collect::<StringArray>()));
        }
        let mut values = Vec::with_capacity(days.len());
        for day in days {
            let Some(day) = day else {
                values.push(None);
                continue;
            };
            let value = match numbers.get(day) {
                Some(value) => *value,
                None => {
                    let value = self.number(*day)?;
                    numbers.insert(*day, value);
                    value
                }
            };
            values.push(value);
        }
        if self.part.data_type() == DataType::Boolean {
            let truths = values.iter().map(|value| value.map(|value| value != 0));
            return Ok(Arc::new(truths.collect::<BooleanArray>()));
        }
        Ok(Arc::new(Int32Array::from(values)))
    }

    /// The date of each number of business days; each different number is looked up once.
    fn dates_of(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let numbers = cast(column, &DataType::Int64)?;
        let mut dates: HashMap<i64, i32> = HashMap::new();
        let mut values = Vec::with_capacity(numbers.len());
        for number in numbers.as_primitive::<Int64Type>() {
            let Some(number) = number else {
                values.push(None);
                continue;
            };
            let date = match dates.get(&number) {
                Some(date) => *date,
                None => {
                    let date = self.date_of(number)?;
                    dates.insert(number, date);
                    date
                }
            };
            values.push(Some(date));
        }
        Ok(Arc::new(Date32Array::from(values)))
    }

    fn date_of(&self, number: i64) -> Result<i32> {
        let small = i32::try_from(number).ok();
        let day = small.and_then(|number| self.calendar.day_of_number(number));
        let Some(day) = day else {
            let message = format!("the business day {number} lies beyond the years 1 to 9999");
            return Err(Fault::new(codes::BAD_ROW, message)
                .hint("`business_day_date` takes numbers of `business_day_number`"));
        };
        self.calendar.holidays.check_day(day)?;
        Ok(day)
    }

    fn number(&self, day: i32) -> Result<Option<i32>> {
        let calendar = &self.calendar;
        if self.part.is_bounded() {
            calendar.holidays.check_day(day)?;
        }
        let date = date_of_day(day);
        let since = |earlier: Option<i32>| earlier.map(|earlier| day - earlier);
        Ok(match self.part {
            CalendarFact::Holiday | CalendarFact::BusinessDayDate => None,
            CalendarFact::IsHoliday => Some(i32::from(calendar.holidays.holds(day))),
            CalendarFact::DaysSinceHoliday => since(calendar.holidays.before(day)),
            CalendarFact::DaysUntilHoliday => calendar.holidays.after(day).map(|next| next - day),
            CalendarFact::IsBusinessDay => Some(i32::from(calendar.is_business_day(day))),
            CalendarFact::BusinessDayOfMonth => Some(calendar.business_day_of_month(day)),
            CalendarFact::BusinessDaysLeft => Some(calendar.business_days_left(day)),
            CalendarFact::BusinessDayNumber if !calendar.is_business_day(day) => None,
            CalendarFact::BusinessDayNumber => Some(calendar.business_day_number(day)),
            CalendarFact::IsMonthStart => Some(i32::from(date.day() == 1)),
            CalendarFact::IsMonthEnd => Some(i32::from(day == last_of_month(day))),
            CalendarFact::IsQuarterStart => Some(i32::from(
                date.day() == 1 && date.month0().is_multiple_of(3),
            )),
            CalendarFact::IsQuarterEnd => Some(i32::from(
                day == last_of_month(day) && date.month().is_multiple_of(3),
            )),
            CalendarFact::WeekOfYear => Some(date.iso_week().week() as i32),
            CalendarFact::DaysSincePayday => since(calendar.payday_before(day, &self.payday)),
            CalendarFact::DaysUntilPayday => calendar
                .payday_after(day, &self.payday)
                .map(|next| next - day),
        })
    }
}
