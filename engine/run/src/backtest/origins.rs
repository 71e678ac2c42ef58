//! The times from which a backtest forecasts.

use arrow::datatypes::Field;
use forebay_model::{
    CalendarSpan, ColumnClock, Fault, Result, TimeLength, business_days_hint, codes,
    parse_duration, tick_nanoseconds, type_words,
};
use jiff::SignedDuration;

use crate::leak_check::time_text;

/// The time from which a fold forecasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForecastOrigin {
    /// Rows at or after this time are not known.
    pub known_before: String,
    /// Time from this origin to the end of the times known today. `None` where times are whole
    /// numbers.
    pub behind: Option<SignedDuration>,
}

/// The known times and the forecast of a pipeline, in ticks and spans of the time column.
pub(super) struct KnownTimes<'a> {
    pub time: &'a Field,
    /// The first known time.
    pub first: i64,
    /// The first time after all that is known.
    pub end: i64,
    /// Length of a forecast.
    pub horizon: CalendarSpan,
}

impl KnownTimes<'_> {
    /// `folds` origins with a distance of `every`, of which the last leaves exactly the horizon to compare with. In order
    /// of time.
    pub fn origins(&self, folds: usize, every: Option<&str>) -> Result<Vec<ForecastOrigin>> {
        let every = match every {
            Some(text) => self.span_of(text)?,
            None => self.horizon,
        };
        if every <= CalendarSpan::default() {
            return Err(Fault::new(
                codes::BAD_VALUE,
                "the distance of folds is not above 0",
            ));
        }
        let clock = ColumnClock::of(self.time.data_type())?;
        let back = |fold: usize| {
            let times = (folds - 1 - fold) as i64;
            let span = self.horizon.plus(every.times(times));
            // Each is counted from the end.
            let origin = match &clock {
                Some(clock) => clock.earlier(self.end, span),
                None => self.end.checked_sub(span.ticks),
            };
            (span, origin)
        };
        let (span, first) = back(0);
        if first.is_none_or(|first| first <= self.first) {
            let history_ticks = i128::from(self.end) - i128::from(self.first);
            let message = format!(
                "{folds} folds reach {} back, and the history has {}: the first would know nothing",
                self.length_text(i128::from(self.ticks_of(span))),
                self.length_text(history_ticks)
            );
            return Err(Fault::new(codes::BAD_VALUE, message)
                .hint("take fewer folds, or a smaller distance"));
        }
        let origin = |fold: usize| {
            let (span, origin) = back(fold);
            let origin = origin.ok_or_else(|| Fault::internal("an origin beyond the calendar"))?;
            let behind = if span.months > 0 {
                self.end.saturating_sub(origin)
            } else {
                self.ticks_of(span)
            };
            let nanoseconds =
                tick_nanoseconds(self.time.data_type()).map(|tick| i128::from(behind) * tick);
            let behind_text = nanoseconds.map(SignedDuration::from_nanos_i128);
            Ok(ForecastOrigin {
                known_before: time_text(origin, self.time)?,
                behind: behind_text,
            })
        };
        (0..folds).map(origin).collect()
    }

    /// The ticks of a span, with days of 24 hours.
    fn ticks_of(&self, span: CalendarSpan) -> i64 {
        span.most_ticks(tick_nanoseconds(self.time.data_type()).unwrap_or(1))
    }

    fn span_of(&self, text: &str) -> Result<CalendarSpan> {
        let wrong = |problem: &str| {
            let message = format!("`{text}` is no distance of folds: {problem}");
            let fault = Fault::new(codes::BAD_VALUE, message);
            match business_days_hint(text) {
                Some(hint) => fault.hint(hint),
                None => fault,
            }
        };
        let Some(tick) = tick_nanoseconds(self.time.data_type()) else {
            let steps = text
                .strip_suffix('t')
                .unwrap_or(text)
                .parse()
                .map_err(|_| wrong("times are whole numbers, so it is one, too"))?;
            return Ok(CalendarSpan::ticks(steps));
        };
        if let Ok(length @ TimeLength::Calendar { .. }) = text.parse() {
            return Ok(length
                .distance(self.time.name(), self.time.data_type())?
                .span());
        }
        let length = parse_duration(text).ok_or_else(|| wrong("write 28d, 12h or 2w"))?;
        let nanoseconds = length.as_nanos() as i128;
        if nanoseconds % tick != 0 {
            return Err(wrong(&format!(
                "`{}` is {}",
                self.time.name(),
                type_words(self.time.data_type())
            )));
        }
        let ticks = i64::try_from(nanoseconds / tick).map_err(|_| wrong("it is too long"))?;
        Ok(CalendarSpan::ticks(ticks))
    }

    /// A number of ticks, for people.
    fn length_text(&self, ticks: i128) -> String {
        match tick_nanoseconds(self.time.data_type()) {
            Some(tick) => {
                let hours = ticks * tick / 3_600_000_000_000;
                if hours % 24 == 0 {
                    format!("{} days", hours / 24)
                } else {
                    format!("{hours} hours")
                }
            }
            None => ticks.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, TimeUnit};

    use super::*;

    #[test]
    fn origins_leave_the_horizon_to_compare_with() {
        let time = Field::new("day", DataType::Date32, true);
        let known = KnownTimes {
            time: &time,
            first: 0,
            end: 100,
            horizon: CalendarSpan::ticks(7),
        };
        let origins = known.origins(3, Some("14d")).unwrap_or_default();
        let texts: Vec<&str> = origins
            .iter()
            .map(|origin| origin.known_before.as_str())
            .collect();
        // 65, 79 and 93 days after 1970-01-01.
        assert_eq!(texts, ["1970-03-07", "1970-03-21", "1970-04-04"]);
        assert_eq!(origins[0].behind, Some(SignedDuration::from_hours(35 * 24)));
        let next_to_each_other = known.origins(2, None).unwrap_or_default();
        assert_eq!(next_to_each_other[0].known_before, "1970-03-28");
        for (folds, every) in [(8, "14d"), (2, "0d"), (2, "12h"), (2, "soon")] {
            assert!(
                known.origins(folds, Some(every)).is_err(),
                "{folds} folds every {every}"
            );
        }
    }

    #[test]
    fn origins_are_local_days() {
        let zone = DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into()));
        let time = Field::new("t", zone, true);
        let known = KnownTimes {
            time: &time,
            first: 0,
            // Midnight of 2024-04-03 in Berlin, after the clock went forward on 31 March.
            end: 1_712_095_200,
            horizon: CalendarSpan::days(1),
        };
        let origins = known.origins(2, Some("3d")).unwrap_or_default();
        let texts: Vec<&str> = origins
            .iter()
            .map(|origin| origin.known_before.as_str())
            .collect();
        assert_eq!(
            texts,
            ["2024-03-30T00:00:00+01:00", "2024-04-02T00:00:00+02:00"]
        );
        assert_eq!(origins[0].behind, Some(SignedDuration::from_hours(4 * 24)));
        let months = known.origins(2, Some("1mo")).unwrap_or_default();
        assert_eq!(months[0].known_before, "2024-03-02T00:00:00+01:00");
    }

    #[test]
    fn whole_numbers_as_times() {
        let time = Field::new("week", DataType::Int32, true);
        let known = KnownTimes {
            time: &time,
            first: 1,
            end: 50,
            horizon: CalendarSpan::ticks(4),
        };
        let origins = known.origins(2, Some("10")).unwrap_or_default();
        assert_eq!(
            origins[0],
            ForecastOrigin {
                known_before: "36".to_owned(),
                behind: None
            }
        );
        let steps = known.origins(2, Some("10t")).unwrap_or_default();
        assert_eq!(steps, origins);
        assert!(known.origins(2, Some("10d")).is_err());
        let refused = known.origins(2, Some("10bd")).err();
        let hint = refused.as_ref().and_then(Fault::hint_text);
        assert!(hint.is_some_and(|hint| hint.ends_with("write `10t`")));
    }
}
