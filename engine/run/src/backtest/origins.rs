//! The times from which a backtest forecasts.

use arrow::datatypes::Field;
use forebay_model::{Fault, Result, codes, tick_nanoseconds};
use jiff::SignedDuration;

use crate::deadline::parse_duration;
use crate::leak_check::time_text;

/// The time from which a fold forecasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForecastOrigin {
    /// Rows at or after this time are not known.
    pub known_before: String,
    /// How long this is before the end of what is known today. `None` where times are whole numbers.
    pub behind: Option<SignedDuration>,
}

/// The known times and the forecast of a pipeline, in ticks of the time column.
pub(super) struct KnownTimes<'a> {
    pub time: &'a Field,
    /// The first known time.
    pub first: i64,
    /// The first time after all that is known.
    pub end: i64,
    /// How far a forecast goes.
    pub horizon: i64,
}

impl KnownTimes<'_> {
    /// `folds` origins with a distance of `every`, of which the last leaves exactly the horizon to compare with. In order
    /// of time.
    pub fn origins(&self, folds: usize, every: Option<&str>) -> Result<Vec<ForecastOrigin>> {
        let every = match every {
            Some(text) => self.ticks_of(text)?,
            None => self.horizon,
        };
        if every <= 0 {
            return Err(Fault::new(
                codes::BAD_VALUE,
                "the distance of folds is not above 0",
            ));
        }
        let span = i128::from(self.horizon) + (folds as i128 - 1) * i128::from(every);
        if i128::from(self.end) - span <= i128::from(self.first) {
            let known = i128::from(self.end) - i128::from(self.first);
            let message = format!(
                "{folds} folds reach {} back, and the history has {}: the first would know nothing",
                self.length_text(span),
                self.length_text(known)
            );
            return Err(Fault::new(codes::BAD_VALUE, message)
                .hint("take fewer folds, or a smaller distance"));
        }
        let origin = |fold: usize| {
            let behind = self.horizon + (folds - 1 - fold) as i64 * every;
            let nanoseconds =
                tick_nanoseconds(self.time.data_type()).map(|tick| i128::from(behind) * tick);
            let behind_text = nanoseconds.map(SignedDuration::from_nanos_i128);
            Ok(ForecastOrigin {
                known_before: time_text(self.end - behind, self.time)?,
                behind: behind_text,
            })
        };
        (0..folds).map(origin).collect()
    }

    fn ticks_of(&self, text: &str) -> Result<i64> {
        let wrong = |what: &str| {
            Fault::new(
                codes::BAD_VALUE,
                format!("`{text}` is no distance of folds: {what}"),
            )
        };
        let Some(tick) = tick_nanoseconds(self.time.data_type()) else {
            return text
                .parse()
                .map_err(|_| wrong("times are whole numbers, so it is one, too"));
        };
        let length = parse_duration(text).ok_or_else(|| wrong("write 28d, 12h or 2w"))?;
        let nanoseconds = length.as_nanos() as i128;
        if nanoseconds % tick != 0 {
            return Err(wrong(&format!(
                "`{}` is {}",
                self.time.name(),
                self.time.data_type()
            )));
        }
        i64::try_from(nanoseconds / tick).map_err(|_| wrong("it is too long"))
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
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn origins_leave_the_horizon_to_compare_with() {
        let time = Field::new("day", DataType::Date32, true);
        let known = KnownTimes {
            time: &time,
            first: 0,
            end: 100,
            horizon: 7,
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
    fn whole_numbers_as_times() {
        let time = Field::new("week", DataType::Int32, true);
        let known = KnownTimes {
            time: &time,
            first: 1,
            end: 50,
            horizon: 4,
        };
        let origins = known.origins(2, Some("10")).unwrap_or_default();
        assert_eq!(
            origins[0],
            ForecastOrigin {
                known_before: "36".to_owned(),
                behind: None
            }
        );
        assert!(known.origins(2, Some("10d")).is_err());
    }
}
