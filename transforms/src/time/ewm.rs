//! `ewm`: exponentially weighted statistics.

use std::borrow::Cow;
use std::fmt;

use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use forebay_window::{EwmDecay, EwmStat, WindowFunction, WordEncoding};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::length::LengthSpec;
use super::naming::FeatureNamer;
use super::windows::{WindowOpBuilder, require_not_empty};
use super::{FeatureNaming, FloatType, GapPolicy};
use crate::shared::bad_value;

/// Exponentially weighted statistics of everything up to the row, or up to `gap` before it.
///
/// In: columns of numbers. Out, for each statistic: `<column>_ewm_<statistic>_<decay>`, such as
/// `qty_ewm_mean_alpha0.3` or `qty_ewm_mean_half_life7d`. Exactly one of `alpha`, `span`, `com` and
/// `half_life` says how fast the past fades: `alpha = 2 / (span + 1) = 1 / (1 + com) = 1 -
/// exp(-ln 2 / half_life)` by rows; a half-life of time fades by the time between rows. Null and
/// NaN are no values: they fade the past (unless `ignore_na`) and repeat the last result. Null
/// before `min_periods` values. State per series: some 60 bytes, and 16 for each row in the gap.
/// Follows pandas' `ewm`; `std` and `var` are those of `bias=False`.
///
/// ```yaml
/// - ewm: { columns: [qty], compute: [mean], half_life: 7d, gap: 1d }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn ewm(columns),
    example = r#"ewm(["qty"]).compute([EwmStatistic::Mean]).half_life("7d").gap("1d")"#
)]
pub struct EwmWindow {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Which statistics.
    pub compute: Vec<EwmStatistic>,
    /// The weight of the newest value, above 0 and at most 1.
    #[serde(default)]
    pub alpha: Option<f64>,
    /// The span in rows, at least 1.
    #[serde(default)]
    pub span: Option<f64>,
    /// The centre of mass in rows, at least 0.
    #[serde(default)]
    pub com: Option<f64>,
    /// The half-life in rows (`7`, `3.5`) or time (`7d`).
    #[serde(default)]
    pub half_life: Option<HalfLife>,
    /// Divides weights by their sum, which counts at the beginning of a series.
    #[serde(default = "yes")]
    pub adjust: bool,
    /// Lets missing values leave no trace in the weights.
    #[serde(default)]
    pub ignore_na: bool,
    /// How far before the row it ends.
    #[serde(default)]
    pub gap: Option<LengthSpec>,
    /// How many values it takes.
    #[serde(default = "one")]
    pub min_periods: u64,
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
    /// The type that comes out.
    #[serde(default)]
    pub dtype: FloatType,
}

/// What is computed with fading weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EwmStatistic {
    /// The mean.
    Mean,
    /// The standard deviation, corrected for bias.
    Std,
    /// The variance, corrected for bias.
    Var,
}

/// The length after which a value counts half.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HalfLife {
    /// A number of rows.
    Rows(f64),
    /// A length of time.
    Time(LengthSpec),
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

impl ConfiguredTransform for EwmWindow {
    const NAME: &'static str = "ewm";
}

impl EwmWindow {
    /// The decay, its word in names, and the length that a gap has to go with.
    fn decay(&self, windows: &mut WindowOpBuilder<'_>) -> Result<(EwmDecay, String, LengthSpec)> {
        let within = |value: f64, is_within: bool, name: &str, range: &str| {
            if is_within {
                Ok(())
            } else {
                Err(bad_value(format!("`{name}: {value}` is not {range}")))
            }
        };
        let (alpha, word) = match (self.alpha, self.span, self.com, self.half_life) {
            (Some(alpha), None, None, None) => {
                within(
                    alpha,
                    alpha > 0.0 && alpha <= 1.0,
                    "alpha",
                    "above 0 and at most 1",
                )?;
                (alpha, format!("alpha{alpha}"))
            }
            (None, Some(span), None, None) => {
                within(span, span >= 1.0, "span", "at least 1")?;
                (2.0 / (span + 1.0), format!("span{span}"))
            }
            (None, None, Some(com), None) => {
                within(com, com >= 0.0, "com", "at least 0")?;
                (1.0 / (1.0 + com), format!("com{com}"))
            }
            (None, None, None, Some(HalfLife::Rows(rows))) => {
                within(rows, rows > 0.0, "half_life", "above 0")?;
                (
                    1.0 - (-std::f64::consts::LN_2 / rows).exp(),
                    format!("half_life{rows}"),
                )
            }
            (None, None, None, Some(HalfLife::Time(length))) => {
                if length.is_zero() {
                    return Err(bad_value(format!("`half_life: {length}` is not above 0")));
                }
                if !self.adjust {
                    return Err(bad_value(
                        "`adjust: false` does not go with a half-life of time",
                    ));
                }
                let ticks = length.ticks(&windows.time)?;
                return Ok((
                    EwmDecay::HalfLife(ticks as f64),
                    format!("half_life{length}"),
                    length,
                ));
            }
            _ => {
                return Err(bad_value(
                    "exactly one of `alpha`, `span`, `com` and `half_life` has to be given",
                ));
            }
        };
        windows.count_rows();
        Ok((EwmDecay::Alpha(alpha), word, LengthSpec::Rows(1)))
    }
}

impl Transform for EwmWindow {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        require_not_empty(&self.compute, "compute")?;
        let mut windows = WindowOpBuilder::new(
            scope,
            Self::NAME,
            &self.time,
            &self.keys,
            self.gaps.as_ref(),
        )?;
        let time = windows.time.clone();
        let fields = scope.numeric_columns(&self.columns)?;
        let names = FeatureNamer::new(self.names, fields.len(), &time, self.gaps.as_ref());
        let (decay, word, length) = self.decay(&mut windows)?;
        let gap = windows.gap(self.gap, length, "half_life")?;
        for field in fields {
            let input = windows.add_input(field, WordEncoding::Number);
            for statistic in &self.compute {
                let (stat, of) = match statistic {
                    EwmStatistic::Mean => (EwmStat::Mean, "mean"),
                    EwmStatistic::Std => (EwmStat::Std, "std"),
                    EwmStatistic::Var => (EwmStat::Var, "var"),
                };
                let name =
                    names.column_name(field.name(), format!("ewm_{of}_{word}"), |names| {
                        let lag = names.periods(self.gap.unwrap_or(LengthSpec::Rows(0)))?;
                        Ok(format!("exponentially_weighted_{of}_lag{lag}_{word}"))
                    })?;
                let adjust = self.adjust;
                let ignore_na = self.ignore_na;
                let min_periods = self.min_periods;
                let compute = WindowFunction::Ewm {
                    decay,
                    adjust,
                    ignore_na,
                    stat,
                    gap,
                    min_periods,
                };
                windows.add_output(input, compute, name, self.dtype.data_type());
            }
        }
        windows.finish()
    }
}

impl From<f64> for HalfLife {
    fn from(rows: f64) -> Self {
        HalfLife::Rows(rows)
    }
}

impl From<&'static str> for HalfLife {
    fn from(length: &'static str) -> Self {
        HalfLife::Time(length.into())
    }
}

impl Serialize for HalfLife {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            HalfLife::Rows(rows) => serializer.serialize_f64(*rows),
            HalfLife::Time(length) => length.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for HalfLife {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HalfLifeVisitor;

        impl Visitor<'_> for HalfLifeVisitor {
            type Value = HalfLife;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of rows (7) or a length of time (7d)")
            }

            fn visit_u64<E: Error>(self, rows: u64) -> Result<HalfLife, E> {
                Ok(HalfLife::Rows(rows as f64))
            }

            fn visit_i64<E: Error>(self, rows: i64) -> Result<HalfLife, E> {
                Ok(HalfLife::Rows(rows as f64))
            }

            fn visit_f64<E: Error>(self, rows: f64) -> Result<HalfLife, E> {
                Ok(HalfLife::Rows(rows))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<HalfLife, E> {
                text.parse().map(HalfLife::Time).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(HalfLifeVisitor)
    }
}

impl JsonSchema for HalfLife {
    fn schema_name() -> Cow<'static, str> {
        "HalfLife".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "description": "A number of rows (7, 3.5), or a length of time such as `7d`.",
        })
    }
}
