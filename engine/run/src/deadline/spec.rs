//! Deadlines as people write them.

use std::time::Duration;

use forebay_model::{Fault, Result, codes, parse_duration};
use jiff::civil::Time;
use jiff::{Timestamp, ToSpan, Zoned};

/// A deadline: a time of day, an instant, or a length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineSpec(DeadlineKind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeadlineKind {
    /// The next such time after the run begins, by the machine's clock.
    TimeOfDay(Time),
    Instant(Timestamp),
    /// A length of time after the begin of the run.
    After(Duration),
}

impl DeadlineSpec {
    /// Reads `06:30`, `2026-11-21T06:30:00Z`, `45m` or `2h30m`.
    pub fn parse(text: &str) -> Result<DeadlineSpec> {
        let text = text.trim();
        let kind = match text.parse::<Timestamp>() {
            Ok(instant) => Some(DeadlineKind::Instant(instant)),
            Err(_) if text.contains(':') => text.parse::<Time>().ok().map(DeadlineKind::TimeOfDay),
            Err(_) => parse_duration(text).map(DeadlineKind::After),
        };
        kind.map(DeadlineSpec).ok_or_else(|| {
            let message = format!("`{text}` is no deadline");
            Fault::new(codes::BAD_VALUE, message).hint(
                "write a time of day (06:30), an instant with its zone \
                     (2026-11-21T06:30:00Z), or a length (45m)",
            )
        })
    }

    /// The instant of the deadline for a run that begins at `now`.
    pub fn resolve(&self, now: &Zoned) -> Result<Timestamp> {
        let far =
            |error| Fault::new(codes::BAD_VALUE, "the deadline leaves the calendar").cause(error);
        match self.0 {
            DeadlineKind::Instant(instant) => Ok(instant),
            DeadlineKind::After(length) => now.timestamp().checked_add(length).map_err(far),
            DeadlineKind::TimeOfDay(time) => {
                let today = now
                    .date()
                    .to_datetime(time)
                    .to_zoned(now.time_zone().clone())
                    .map_err(far)?;
                if today > *now {
                    return Ok(today.timestamp());
                }
                let tomorrow = now
                    .date()
                    .checked_add(1.day())
                    .map_err(far)?
                    .to_datetime(time);
                Ok(tomorrow
                    .to_zoned(now.time_zone().clone())
                    .map_err(far)?
                    .timestamp())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_as_people_write_them() {
        let now: Zoned = "2026-11-21T05:00:00+01:00[+01:00]".parse().unwrap();
        let cases = [
            ("06:30", "2026-11-21T05:30:00Z"),
            ("05:00", "2026-11-22T04:00:00Z"),
            ("04:59:30", "2026-11-22T03:59:30Z"),
            ("2026-11-21T06:30:00Z", "2026-11-21T06:30:00Z"),
            ("2020-01-01T00:00:00+02:00", "2019-12-31T22:00:00Z"),
            ("45m", "2026-11-21T04:45:00Z"),
            ("1h30m", "2026-11-21T05:30:00Z"),
            ("0s", "2026-11-21T04:00:00Z"),
        ];
        for (text, expect) in cases {
            assert_eq!(
                DeadlineSpec::parse(text)
                    .unwrap()
                    .resolve(&now)
                    .unwrap()
                    .to_string(),
                expect,
                "{text}"
            );
        }
        for text in [
            "",
            "soon",
            "1mo",
            "1y",
            "25:00",
            "6",
            "m",
            "1x",
            "2026-11-21",
            "-5m",
            "99999999999999999999s",
        ] {
            assert!(DeadlineSpec::parse(text).is_err(), "{text}");
        }
        assert!(
            DeadlineSpec::parse("1000000w")
                .unwrap()
                .resolve(&now)
                .is_err()
        );
    }
}
