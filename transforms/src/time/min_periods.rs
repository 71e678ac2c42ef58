//! Fewest values of a window.

use std::borrow::Cow;
use std::fmt;

use forebay_model::Result;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shared::bad_value;

/// Fewest values of a window: a count (`14`), or a share of its rows (`50%`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MinPeriods {
    /// So many values.
    Count(u64),
    /// So many percent of the rows that the window can hold, rounded up.
    Percent(f64),
}

impl MinPeriods {
    /// The count for a window that can hold `rows` rows, if their number is fixed.
    pub(super) fn resolve_count(self, rows: Option<u64>) -> Result<u64> {
        match (self, rows) {
            (MinPeriods::Count(count), Some(rows)) if count > rows => Err(bad_value(format!(
                "`min_periods` is {count}, and the window holds {rows} rows at most"
            ))),
            (MinPeriods::Count(count), _) => Ok(count),
            (MinPeriods::Percent(percent), Some(rows)) => {
                Ok((percent * rows as f64 / 100.0).ceil() as u64)
            }
            (MinPeriods::Percent(percent), None) => Err(bad_value(format!(
                "`min_periods: {percent}%` needs to know how many rows a window of time holds"
            ))
            .hint("declare the period in `gaps`, such as `error: { every: 1d }`, or give a count")),
        }
    }
}

impl From<u64> for MinPeriods {
    fn from(count: u64) -> Self {
        MinPeriods::Count(count)
    }
}

impl Serialize for MinPeriods {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            MinPeriods::Count(count) => serializer.serialize_u64(*count),
            MinPeriods::Percent(percent) => serializer.collect_str(&format_args!("{percent}%")),
        }
    }
}

impl<'de> Deserialize<'de> for MinPeriods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MinPeriodsVisitor;

        impl Visitor<'_> for MinPeriodsVisitor {
            type Value = MinPeriods;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of values (14) or a share of the rows (50%)")
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<MinPeriods, E> {
                Ok(MinPeriods::Count(count))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<MinPeriods, E> {
                let percent = text
                    .strip_suffix('%')
                    .and_then(|number| number.parse::<f64>().ok());
                let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
                percent.map(MinPeriods::Percent).ok_or_else(|| {
                    E::custom(format!(
                        "`{text}` is neither a number of values (14) nor a share of the rows (50%)"
                    ))
                })
            }
        }

        deserializer.deserialize_any(MinPeriodsVisitor)
    }
}

impl JsonSchema for MinPeriods {
    fn schema_name() -> Cow<'static, str> {
        "MinPeriods".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": "^[0-9.]+%$",
            "description": "A number of values (14), or a share of the rows that the window can \
                            hold (50%).",
        })
    }
}
