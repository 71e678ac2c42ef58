//! The clock of a column of times: civil time in its zone, and steps of the calendar.

use std::ops::RangeInclusive;
use std::str::FromStr;

use arrow::array::timezone::Tz;
use arrow::datatypes::DataType;
use chrono::{
    DateTime, Datelike, Days, LocalResult, Months, NaiveDate, NaiveDateTime, NaiveTime, Offset,
    TimeDelta, TimeZone, Timelike,
};

use crate::text_values::CivilTime;
use crate::{CalendarSpan, Fault, Result, codes, is_utc_name, tick_nanoseconds};

/// Days since 1970-01-01 of the years 1 to 9999. A whole number beyond them, such as 20240101, is a date as it is
/// written, and no count of days.
pub const CALENDAR_DAYS: RangeInclusive<i64> = -719_162..=2_932_896;

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// Seconds of a civil day.
const DAY_SECONDS: i64 = 86_400;

/// Hours before a local time that the clock skips at which the offset before the change holds for certain.
const BEFORE_CHANGE_HOURS: i64 = 26;

/// Civil time in the zone of a column, and steps of its calendar. Columns without a zone, dates among them, have the
/// calendar and days of 24 hours.
///
/// A step is taken in civil time: a day later is the same time of the next day. A local time that the clock skips
/// becomes the one as much later as the clock skips; of a local time that there is twice, it is the first. Offsets are
/// those of the table of zones with which Arrow casts, so that SQL and windows agree on each day.
#[derive(Debug, Clone, Copy)]
pub struct ColumnClock {
    /// `None` where all days have 24 hours and begin at a multiple of them.
    zone: Option<Tz>,
    has_even_days: bool,
    /// Nanoseconds per tick.
    tick: i128,
}

/// The place of a time in its month, by the clock of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceInMonth {
    /// Months since the beginning of the year 0.
    pub month: i64,
    /// Day of the month, from 1.
    pub day: u32,
    /// True if it is the last day of the month.
    pub is_last_day: bool,
    /// Whole seconds since midnight.
    pub second_of_day: u32,
    /// Nanoseconds beside them.
    pub nanosecond: u32,
}

impl ColumnClock {
    /// The clock of a column; `None` where times are integers. Fails for a zone that is not known.
    pub fn of(data_type: &DataType) -> Result<Option<ColumnClock>> {
        let Some(tick) = tick_nanoseconds(data_type) else {
            return Ok(None);
        };
        let name = match data_type {
            DataType::Timestamp(_, Some(name)) if !is_utc_name(name) => name,
            _ => {
                return Ok(Some(ColumnClock {
                    zone: None,
                    has_even_days: true,
                    tick,
                }));
            }
        };
        let zone = Tz::from_str(name).map_err(|error| {
            let message = format!("the time zone `{name}` is not known");
            Fault::new(codes::BAD_VALUE, message)
                .hint(
                    "name a zone of the IANA database, such as Europe/Berlin, or an offset such as \
                     +02:00",
                )
                .cause(error)
        })?;
        Ok(Some(ColumnClock {
            zone: Some(zone),
            has_even_days: name.starts_with(['+', '-']),
            tick,
        }))
    }

    /// True if all days last 24 hours.
    pub fn has_even_days(&self) -> bool {
        self.has_even_days
    }

    /// Nanoseconds per tick.
    pub fn tick(&self) -> i128 {
        self.tick
    }

    /// The civil time of a tick; `None` beyond the calendar, some 262,000 years.
    pub fn local(&self, time: i64) -> Option<NaiveDateTime> {
        let instant = self.utc(time)?;
        let Some(zone) = &self.zone else {
            return Some(instant);
        };
        let offset = zone.offset_from_utc_datetime(&instant).fix();
        instant.checked_add_offset(offset)
    }

    /// The civil day of a tick, counted from 1970; `None` beyond the calendar.
    pub fn day(&self, time: i64) -> Option<i64> {
        let seconds = self.local(time)?.and_utc().timestamp();
        Some(seconds.div_euclid(DAY_SECONDS))
    }

    /// The civil time of a tick in UTC.
    fn utc(&self, time: i64) -> Option<NaiveDateTime> {
        let nanoseconds = i128::from(time) * self.tick;
        let seconds = i64::try_from(nanoseconds.div_euclid(SECOND)).ok()?;
        let subsecond = nanoseconds.rem_euclid(SECOND) as u32;
        Some(DateTime::from_timestamp(seconds, subsecond)?.naive_utc())
    }

    /// The civil time of a tick, where the first instant of a day whose midnight the clock skips counts as midnight: by it,
    /// days of a calendar begin equally far from each other.
    pub fn calendar_time(&self, time: i64) -> Option<NaiveDateTime> {
        let local = self.local(time)?;
        let midnight = local.date().and_time(NaiveTime::MIN);
        let may_be_first = self.zone.is_some() && local.time() != NaiveTime::MIN;
        if may_be_first && self.instant(midnight) == Some(time) {
            return Some(midnight);
        }
        Some(local)
    }

    /// The civil time that the clock skips and whose instant is this one, where there is such a time.
    pub fn skipped_time(&self, time: i64) -> Option<NaiveDateTime> {
        let zone = self.zone.filter(|_| !self.has_even_days)?;
        let instant = self.utc(time)?;
        let earlier_instant = instant.checked_sub_signed(TimeDelta::hours(BEFORE_CHANGE_HOURS))?;
        let offset_before = zone.offset_from_utc_datetime(&earlier_instant).fix();
        if offset_before == zone.offset_from_utc_datetime(&instant).fix() {
            return None;
        }
        let civil = instant.checked_add_offset(offset_before)?;
        let resolved = self.resolve(civil)?;
        (resolved.is_skipped && resolved.tick == time).then_some(civil)
    }

    /// The civil time of a tick, or that which the clock skips, if it alone has a time of day.
    fn civil_time_at(&self, time: i64, time_of_day: Option<i64>) -> Option<NaiveDateTime> {
        let local = self.local(time)?;
        if time_of_day.is_none_or(|nanoseconds| nanoseconds == nanoseconds_of_day(local)) {
            return Some(local);
        }
        let skipped = self.skipped_time(time);
        let skipped = skipped.filter(|civil| time_of_day == Some(nanoseconds_of_day(*civil)));
        Some(skipped.unwrap_or(local))
    }

    /// The tick of a civil time: the one at or before it, where the column is coarser.
    pub fn instant(&self, local: NaiveDateTime) -> Option<i64> {
        Some(self.resolve(local)?.tick)
    }

    fn resolve(&self, local: NaiveDateTime) -> Option<ResolvedTime> {
        let resolved = match &self.zone {
            Some(zone) => resolve_in(zone, local)?,
            None => ResolvedInstant {
                instant: local,
                is_skipped: false,
            },
        };
        let instant = resolved.instant.and_utc();
        let nanoseconds =
            i128::from(instant.timestamp()) * SECOND + i128::from(instant.timestamp_subsec_nanos());
        Some(ResolvedTime {
            tick: i64::try_from(nanoseconds.div_euclid(self.tick)).ok()?,
            is_skipped: resolved.is_skipped,
        })
    }

    /// The instant of a written time in nanoseconds since 1970: of a local time, unless it has an offset. `None` for
    /// texts that are neither a date nor a timestamp of ISO 8601.
    pub fn read(&self, text: &str) -> Option<i128> {
        let written = CivilTime::parse(text.trim())?;
        let seconds = match (&self.zone, written.offset_seconds) {
            (_, Some(offset)) => written.seconds() - offset,
            (None, None) => written.seconds(),
            (Some(zone), None) => {
                let local = DateTime::from_timestamp(written.seconds(), 0)?.naive_utc();
                resolve_in(zone, local)?.instant.and_utc().timestamp()
            }
        };
        Some(i128::from(seconds) * SECOND + i128::from(written.nanosecond))
    }

    /// True if a written time has an offset, and so is an instant in any zone.
    pub fn has_offset(text: &str) -> bool {
        let written = CivilTime::parse(text.trim());
        written.is_some_and(|written| written.offset_seconds.is_some())
    }

    /// The time a span later; `None` beyond the calendar or the column.
    pub fn later(&self, time: i64, span: CalendarSpan) -> Option<i64> {
        self.moved(time, span, 1)
    }

    /// The time a span earlier; `None` beyond the calendar or the column.
    pub fn earlier(&self, time: i64, span: CalendarSpan) -> Option<i64> {
        self.moved(time, span, -1)
    }

    /// The time a span after the last one of a series of days or months. A series with a `time_of_day` goes on at it, also
    /// behind a day on which the clock skips it; one with a `month_day` goes on that day of the month, or on the last day
    /// of a shorter one.
    pub fn continued(
        &self,
        time: i64,
        span: CalendarSpan,
        month_day: Option<u32>,
        time_of_day: Option<i64>,
    ) -> Option<i64> {
        if !span.is_calendar() {
            return time.checked_add(span.ticks);
        }
        let local = self.civil_time_at(time, time_of_day)?;
        let mut date = plus_days(plus_months(local.date(), span.months)?, span.days)?;
        if let Some(day) = month_day {
            let last = u32::from(date.num_days_in_month());
            date = date.with_day(day.min(last))?;
        }
        let moved = self.instant(date.and_time(local.time()))?;
        moved.checked_add(span.ticks)
    }

    /// True if the clock skips a whole date, as in Apia in 2011. The date before it is then the nearest one for steps
    /// back, since a step must never lead to the time that it begins at.
    fn skips_date(&self, date: NaiveDate) -> Option<bool> {
        let noon = self.instant(date.and_hms_opt(12, 0, 0)?)?;
        Some(self.local(noon)?.date() != date)
    }

    fn moved(&self, time: i64, span: CalendarSpan, sign: i64) -> Option<i64> {
        let moved = if span.is_calendar() {
            let local = self.local(time)?;
            let months = span.months.checked_mul(sign)?;
            let days = span.days.checked_mul(sign)?;
            let date = plus_days(plus_months(local.date(), months)?, days)?;
            let moved = self.resolve(date.and_time(local.time()))?;
            let is_back = months < 0 || days < 0;
            if is_back && moved.is_skipped && self.skips_date(date)? {
                self.instant(date.pred_opt()?.and_time(local.time()))?
            } else {
                moved.tick
            }
        } else {
            time
        };
        moved.checked_add(span.ticks.checked_mul(sign)?)
    }

    /// Number of spans from one time to another, where it is a whole one: so many spans after the first time lies the
    /// second, or so many before the second lies the first. The day of a month that is longer than the other, and a time
    /// of day that the clock skips at the other, are told by one of both alone.
    pub fn steps(&self, from: i64, to: i64, span: CalendarSpan) -> Option<i64> {
        let start = self.local(from)?.date();
        let end = self.local(to)?.date();
        let estimate = if span.months > 0 {
            let months = |date: NaiveDate| i64::from(date.year()) * 12 + i64::from(date.month0());
            (months(end) - months(start)) / span.months
        } else if span.days > 0 {
            end.signed_duration_since(start).num_days() / span.days
        } else {
            return None;
        };
        (estimate - 1..=estimate + 1)
            .filter(|count| *count >= 0)
            .find(|count| {
                let spans = span.times(*count);
                self.later(from, spans) == Some(to) || self.earlier(to, spans) == Some(from)
            })
    }

    /// The time of a missing step: `count` steps after the first time, of `steps` to the second. Months keep the greater
    /// of both days, or the end where both are the last of their month.
    pub fn step_between(
        &self,
        (from, to): (i64, i64),
        span: CalendarSpan,
        count: i64,
        steps: i64,
    ) -> Option<i64> {
        let start = self.local(from)?;
        let end = self.local(to)?;
        if span.months > 0 && is_month_end(start.date()) && is_month_end(end.date()) {
            let counted_end = self.local(self.later(from, span.times(count))?)?;
            let last = counted_end.date().num_days_in_month();
            let date = counted_end.date().with_day(u32::from(last))?;
            return self.instant(date.and_time(start.time()));
        }
        if self.later(from, span.times(steps)) == Some(to) {
            self.later(from, span.times(count))
        } else {
            self.earlier(to, span.times(steps - count))
        }
    }

    /// True if days of the column begin at other times than in UTC.
    pub fn has_zone(&self) -> bool {
        self.zone.is_some()
    }

    /// The place of a time in its month.
    pub fn place_in_month(&self, time: i64) -> Option<PlaceInMonth> {
        let local = self.calendar_time(time)?;
        let date = local.date();
        let time_of_day = local.time();
        Some(PlaceInMonth {
            month: i64::from(date.year()) * 12 + i64::from(date.month0()),
            day: date.day(),
            is_last_day: is_month_end(date),
            second_of_day: time_of_day.num_seconds_from_midnight(),
            nanosecond: time_of_day.nanosecond(),
        })
    }

    /// The day of the month of a time, and the number of days of its month.
    pub fn day_of_month(&self, time: i64) -> Option<(u32, u32)> {
        let date = self.local(time)?.date();
        Some((date.day(), date.num_days_in_month().into()))
    }

    /// The start of the bucket of a time, at midnight: buckets of months are counted from January 1970, those of days
    /// from a day, which is given in days since 1970-01-01.
    pub fn bucket_start(&self, time: i64, span: CalendarSpan, first_day: i64) -> Option<i64> {
        let date = self.local(time)?.date();
        let start = if span.months > 0 {
            let months = (i64::from(date.year()) - 1970) * 12 + i64::from(date.month0());
            plus_months(date.with_day(1)?, -months.rem_euclid(span.months))?
        } else {
            let day = date.signed_duration_since(NaiveDate::default()).num_days();
            plus_days(date, -(day - first_day).rem_euclid(span.days.max(1)))?
        };
        self.instant(start.and_time(NaiveTime::MIN))
    }
}

/// The tick of a civil time.
struct ResolvedTime {
    tick: i64,
    /// True if the clock skips the civil time.
    is_skipped: bool,
}

/// The instant of a local time, as if it were in UTC.
struct ResolvedInstant {
    instant: NaiveDateTime,
    is_skipped: bool,
}

fn resolve_in(zone: &Tz, local: NaiveDateTime) -> Option<ResolvedInstant> {
    let mut is_skipped = false;
    let offset = match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) => offset.fix(),
        LocalResult::Ambiguous(earliest, latest) => {
            // The first of both has the greater offset.
            let first_offset = earliest.fix();
            let second_offset = latest.fix();
            if first_offset.local_minus_utc() >= second_offset.local_minus_utc() {
                first_offset
            } else {
                second_offset
            }
        }
        LocalResult::None => {
            is_skipped = true;
            let time_before_change =
                local.checked_sub_signed(TimeDelta::hours(BEFORE_CHANGE_HOURS))?;
            zone.offset_from_utc_datetime(&time_before_change).fix()
        }
    };
    Some(ResolvedInstant {
        instant: local.checked_sub_offset(offset)?,
        is_skipped,
    })
}

/// Nanoseconds of a civil time since its midnight.
pub fn nanoseconds_of_day(civil: NaiveDateTime) -> i64 {
    let time = civil.time();
    let seconds = i64::from(time.num_seconds_from_midnight());
    seconds * 1_000_000_000 + i64::from(time.nanosecond())
}

fn is_month_end(date: NaiveDate) -> bool {
    date.day() == u32::from(date.num_days_in_month())
}

fn plus_months(date: NaiveDate, months: i64) -> Option<NaiveDate> {
    let count = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
    if months < 0 {
        date.checked_sub_months(count)
    } else {
        date.checked_add_months(count)
    }
}

fn plus_days(date: NaiveDate, days: i64) -> Option<NaiveDate> {
    let count = Days::new(days.unsigned_abs());
    if days < 0 {
        date.checked_sub_days(count)
    } else {
        date.checked_add_days(count)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    fn clock(zone: Option<&str>) -> ColumnClock {
        let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        ColumnClock::of(&data_type).unwrap().unwrap()
    }

    /// A time of the zone in microseconds.
    fn at(clock: &ColumnClock, text: &str) -> i64 {
        (clock.read(text).unwrap() / 1_000) as i64
    }

    #[test]
    fn steps_are_those_of_the_calendar() {
        let month = CalendarSpan::months(1);
        let day = CalendarSpan::days(1);
        // Values of pandas' `DateOffset` where it has them, and of the rule for gaps and overlaps.
        for (zone, from, span, count, expected) in [
            (None, "2024-01-31", month, 1, "2024-02-29"),
            (None, "2024-01-31", month, 2, "2024-03-31"),
            (None, "2024-02-29", month, 12, "2025-02-28"),
            (None, "2024-02-29", month, 48, "2028-02-29"),
            (None, "2024-11-30", month, 3, "2025-02-28"),
            (None, "2024-11-30", month, 6, "2025-05-30"),
            (
                None,
                "2024-01-15T06:30:00",
                month,
                -1,
                "2023-12-15T06:30:00",
            ),
            (
                Some("Europe/Berlin"),
                "2024-03-30",
                day,
                1,
                "2024-03-30T23:00:00Z",
            ),
            (
                Some("Europe/Berlin"),
                "2024-03-30",
                day,
                2,
                "2024-03-31T22:00:00Z",
            ),
            (
                Some("Europe/Berlin"),
                "2024-03-30T02:30:00",
                day,
                1,
                "2024-03-31T03:30:00+02:00",
            ),
            (
                Some("Europe/Berlin"),
                "2024-10-26T02:30:00",
                day,
                1,
                "2024-10-27T02:30:00+02:00",
            ),
            (
                Some("Europe/Berlin"),
                "2024-10-28",
                day,
                -1,
                "2024-10-27T00:00:00+02:00",
            ),
            (
                Some("Europe/Berlin"),
                "2024-02-29T00:00:00",
                month,
                1,
                "2024-03-29T00:00:00+01:00",
            ),
            (
                Some("America/Sao_Paulo"),
                "2018-11-03",
                day,
                1,
                "2018-11-04T01:00:00-02:00",
            ),
            (
                Some("America/Sao_Paulo"),
                "2018-11-03",
                day,
                2,
                "2018-11-05T00:00:00-02:00",
            ),
            (
                Some("America/New_York"),
                "2024-11-02",
                day,
                2,
                "2024-11-04T00:00:00-05:00",
            ),
            (
                Some("Australia/Lord_Howe"),
                "2024-04-06",
                day,
                1,
                "2024-04-06T13:00:00Z",
            ),
            (
                Some("Australia/Lord_Howe"),
                "2024-04-06",
                day,
                2,
                "2024-04-07T13:30:00Z",
            ),
            (
                Some("+05:30"),
                "2024-01-31T01:00:00",
                month,
                1,
                "2024-02-29T01:00:00+05:30",
            ),
            (
                Some("Pacific/Apia"),
                "2011-12-29T12:00:00",
                day,
                1,
                "2011-12-31T12:00:00+14:00",
            ),
            // The date before 31 December is the 29th there, and never the row itself.
            (Some("Pacific/Apia"), "2011-12-31", day, -1, "2011-12-29"),
            (Some("Pacific/Apia"), "2012-01-01", day, -2, "2011-12-29"),
            (
                Some("Pacific/Apia"),
                "2012-01-30T12:00:00",
                month,
                -1,
                "2011-12-29T12:00:00",
            ),
            (
                Some("Pacific/Kwajalein"),
                "1993-08-22",
                day,
                -1,
                "1993-08-20",
            ),
        ] {
            let clock = clock(zone);
            let moved = clock.later(at(&clock, from), span.times(count));
            assert_eq!(moved, Some(at(&clock, expected)), "{from} {zone:?} {count}");
        }
    }

    #[test]
    fn series_go_on_at_their_time_of_day_behind_a_day_on_which_the_clock_skips_it() {
        let day = CalendarSpan::days(1);
        let month = CalendarSpan::months(1);
        for (zone, last, span, month_day, time_of_day, expected) in [
            (
                "America/Sao_Paulo",
                "2018-11-04T01:00:00",
                day,
                None,
                "00:00",
                "2018-11-05",
            ),
            (
                "America/Sao_Paulo",
                "2018-11-04T01:00:00",
                day,
                None,
                "01:00",
                "2018-11-05T01:00:00",
            ),
            (
                "America/Sao_Paulo",
                "2018-11-04T01:00:00",
                day,
                None,
                "",
                "2018-11-05T01:00:00",
            ),
            (
                "America/Sao_Paulo",
                "2018-11-03",
                day,
                None,
                "00:00",
                "2018-11-04T01:00:00",
            ),
            (
                "Asia/Beirut",
                "2024-03-31T01:00:00",
                day,
                None,
                "00:00",
                "2024-04-01",
            ),
            (
                "Africa/Cairo",
                "2024-04-26T01:00:00",
                day,
                None,
                "00:00",
                "2024-04-27",
            ),
            (
                "Asia/Pyongyang",
                "2018-05-05",
                day,
                None,
                "23:30",
                "2018-05-05T23:30:00",
            ),
            (
                "Antarctica/Troll",
                "2024-03-31T03:30:00",
                day,
                None,
                "01:30",
                "2024-04-01T01:30:00",
            ),
            (
                "Europe/Berlin",
                "2024-03-31T03:30:00",
                day,
                None,
                "02:30",
                "2024-04-01T02:30:00",
            ),
            (
                "America/Asuncion",
                "2023-10-01T01:00:00",
                month,
                Some(1),
                "00:00",
                "2023-11-01",
            ),
            (
                "America/Asuncion",
                "2023-09-01",
                month,
                Some(1),
                "00:00",
                "2023-10-01T01:00:00",
            ),
            (
                "Asia/Beirut",
                "2024-02-29",
                month,
                Some(31),
                "00:00",
                "2024-03-31T01:00:00",
            ),
            (
                "Asia/Beirut",
                "2024-03-31T01:00:00",
                month,
                Some(31),
                "00:00",
                "2024-04-30",
            ),
        ] {
            let clock = clock(Some(zone));
            let parts = time_of_day.split_once(':');
            let nanoseconds = parts.map(|(hours, minutes)| {
                let hours: i64 = hours.parse().unwrap();
                let minutes: i64 = minutes.parse().unwrap();
                (hours * 60 + minutes) * 60_000_000_000
            });
            let last = at(&clock, last);
            let next_time = clock.continued(last, span, month_day, nanoseconds);
            assert_eq!(next_time, Some(at(&clock, expected)), "{zone} {expected}");
        }
        let berlin = clock(Some("Europe/Berlin"));
        for (time, skipped) in [
            ("2024-03-31T03:00:00", Some("2024-03-31T02:00:00")),
            ("2024-03-31T03:59:00", Some("2024-03-31T02:59:00")),
            ("2024-03-31T04:00:00", None),
            ("2024-03-31T01:59:00", None),
            ("2024-10-27T02:30:00", None),
        ] {
            let civil = berlin.skipped_time(at(&berlin, time));
            let civil = civil.map(|civil| civil.format("%Y-%m-%dT%H:%M:%S").to_string());
            assert_eq!(civil.as_deref(), skipped, "{time}");
        }
    }

    #[test]
    fn steps_between_times_are_whole_or_none() {
        let month = CalendarSpan::months(1);
        let day = CalendarSpan::days(1);
        for (zone, from, to, span, expected) in [
            (None, "2024-01-31", "2024-02-29", month, Some(1)),
            (None, "2024-02-29", "2024-03-31", month, Some(1)),
            (None, "2024-01-31", "2024-04-30", month, Some(3)),
            (None, "2024-01-30", "2024-02-29", month, Some(1)),
            (None, "2024-01-30", "2024-02-28", month, None),
            (
                None,
                "2024-01-31",
                "2024-04-30",
                CalendarSpan::months(3),
                Some(1),
            ),
            (
                None,
                "2024-01-31",
                "2024-03-31",
                CalendarSpan::months(3),
                None,
            ),
            (
                Some("America/Sao_Paulo"),
                "2018-11-03",
                "2018-11-04T01:00:00",
                day,
                Some(1),
            ),
            (
                Some("America/Sao_Paulo"),
                "2018-11-04T01:00:00",
                "2018-11-05",
                day,
                Some(1),
            ),
            (
                Some("America/Sao_Paulo"),
                "2018-11-03",
                "2018-11-05",
                day,
                Some(2),
            ),
            (
                Some("Europe/Berlin"),
                "2024-03-31",
                "2024-04-01",
                day,
                Some(1),
            ),
            (
                Some("Europe/Berlin"),
                "2024-03-31",
                "2024-04-01T01:00:00",
                day,
                None,
            ),
        ] {
            let clock = clock(zone);
            let steps = clock.steps(at(&clock, from), at(&clock, to), span);
            assert_eq!(steps, expected, "{from} to {to}");
        }
    }

    #[test]
    fn missing_steps_lie_where_the_series_has_them() {
        let clock = clock(None);
        for (from, to, count, steps, expected) in [
            ("2024-01-31", "2024-04-30", 1, 3, "2024-02-29"),
            ("2024-02-29", "2024-04-30", 1, 2, "2024-03-31"),
            ("2024-01-15", "2024-03-15", 1, 2, "2024-02-15"),
            ("2024-02-28", "2024-04-30", 1, 2, "2024-03-30"),
        ] {
            let pair = (at(&clock, from), at(&clock, to));
            let step = clock.step_between(pair, CalendarSpan::months(1), count, steps);
            assert_eq!(step, Some(at(&clock, expected)), "{from} to {to}");
        }
    }

    #[test]
    fn times_beyond_the_calendar_are_refused() {
        let seconds = DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into()));
        let clock = ColumnClock::of(&seconds).unwrap().unwrap();
        assert_eq!(clock.later(i64::MAX, CalendarSpan::days(1)), None);
        assert_eq!(clock.earlier(i64::MIN, CalendarSpan::months(1)), None);
        assert_eq!(clock.later(i64::MAX, CalendarSpan::ticks(1)), None);
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, Some("Asia/Tokyo".into()));
        let clock = ColumnClock::of(&nanoseconds).unwrap().unwrap();
        assert_eq!(clock.later(i64::MAX, CalendarSpan::days(1)), None);
        assert_eq!(
            clock.later(i64::MIN, CalendarSpan::days(1)),
            Some(i64::MIN + 86_400_000_000_000)
        );
    }
}
