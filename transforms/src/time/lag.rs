//! `lag`: values of earlier rows.

use std::borrow::Cow;
use std::fmt;

use forebay_model::{Result, TimeDistance};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use forebay_window::WindowFunction;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::length::LengthSpec;
use super::naming::FeatureNamer;
use super::windows::{WindowOpBuilder, require_not_empty};
use super::{FeatureNaming, GapPolicy};
use crate::shared::bad_value;

/// The value that a series had some rows or some time ago.
///
/// In: columns of any type. Out, for each length: `<column>_lag_<by>` in
/// the column's own type. By rows it is the value so many rows before; by time that of the row
/// exactly so long before (the last one, if there are several), with `as_of` of the latest row at
/// or before that. Null where there is no such row, or its value is null or NaN. State per series:
/// some 16 bytes for each row that the longest lag reaches back over; with `as_of: true`, by time,
/// for all of them. Texts, decimals and nested values are held once each besides. A row without a time is a fault, and so is a 64-bit value with the bits of the least
/// integer, which stand for a missing one here.
///
/// ```yaml
/// - lag: { columns: [qty], by: [7d, 28d] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn lag(columns), example = r#"lag(["qty"]).by(["7d", "28d"])"#)]
pub struct SeriesLag {
    /// Columns of any type.
    pub columns: ColumnSelector,
    /// How far back, in rows or time.
    pub by: Vec<LengthSpec>,
    /// Takes the latest row at or before the time: `true`, or how much older it may be at most
    /// (inclusive). Lengths of time only.
    #[serde(default)]
    pub as_of: LagTolerance,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The columns that tell series apart, where the source does not declare them; `[]` makes all
    /// rows one series.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// Meaning of missing periods; required where rows are counted.
    #[serde(default)]
    pub gaps: Option<GapPolicy>,
    /// How the new columns are called.
    #[serde(default)]
    pub names: FeatureNaming,
}

/// Allows values that are older than asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LagTolerance {
    /// It is exactly so old.
    #[default]
    Exact,
    /// It may be as old as it is.
    Any,
    /// It may be so much older.
    Within(LengthSpec),
}

impl ConfiguredTransform for SeriesLag {
    const NAME: &'static str = "lag";
}

impl Transform for SeriesLag {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        require_not_empty(&self.by, "by")?;
        let mut windows = WindowOpBuilder::new(
            scope,
            Self::NAME,
            &self.time,
            &self.keys,
            self.gaps.as_ref(),
        )?;
        let time = windows.time.clone();
        let fields = windows.copyable_columns(&self.columns)?;
        let names = FeatureNamer::new(self.names, fields.len(), &time, self.gaps.as_ref());
        let as_of = match self.as_of {
            LagTolerance::Exact => None,
            LagTolerance::Any => Some(TimeDistance::Ticks(i64::MAX)),
            LagTolerance::Within(tolerance) => Some(tolerance.distance(&time)?),
        };
        for field in fields {
            for length in &self.by {
                let by = windows.lookback_length(*length)?;
                if as_of.is_some() && length.is_rows() {
                    return Err(bad_value(format!(
                        "`as_of` goes with lengths of time, and `by: {length}` is rows"
                    )));
                }
                let name = names.column_name(field.name(), format!("lag_{length}"), |names| {
                    Ok(format!("lag{}", names.periods(*length)?))
                })?;
                windows.add_copy(field, name, WindowFunction::Lag { by, as_of });
            }
        }
        windows.finish()
    }
}

impl From<bool> for LagTolerance {
    fn from(any: bool) -> Self {
        if any {
            LagTolerance::Any
        } else {
            LagTolerance::Exact
        }
    }
}

impl From<&'static str> for LagTolerance {
    fn from(within: &'static str) -> Self {
        LagTolerance::Within(within.into())
    }
}

impl Serialize for LagTolerance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LagTolerance::Exact => serializer.serialize_bool(false),
            LagTolerance::Any => serializer.serialize_bool(true),
            LagTolerance::Within(length) => length.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for LagTolerance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LagToleranceVisitor;

        impl Visitor<'_> for LagToleranceVisitor {
            type Value = LagTolerance;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a length of time")
            }

            fn visit_bool<E: Error>(self, any: bool) -> Result<LagTolerance, E> {
                Ok(any.into())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<LagTolerance, E> {
                text.parse().map(LagTolerance::Within).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(LagToleranceVisitor)
    }
}

impl JsonSchema for LagTolerance {
    fn schema_name() -> Cow<'static, str> {
        "AsOf".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["boolean", "string"],
            "description": "`true`, or how much older the value may be at most, such as `3d`.",
        })
    }
}
