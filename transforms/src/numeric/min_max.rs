//! `min_max`: the range of the data onto a given range.

use forebay_contract::NumberExpr;
use forebay_model::{Result, scaled_distance};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{KeyedMoments, MomentScaler, bad_value, scale_by_moments};

/// `(x - min) / (max - min) * (hi - lo) + lo`, over all values or for each key.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`, computed
/// in doubles and rounded once. State: about 6 KiB per column; with `by`, some 300 bytes per key,
/// spilled beyond the budget.
///
/// Null stays null and NaN stays NaN; neither counts. An infinity in the data is its minimum or
/// maximum and gives 0 times the range or NaN; `clip` first. Values outside the range that was
/// learned come out outside `lo..hi`. Where min equals max, nothing was seen, or a key was never
/// seen, `zero_range` decides. `lo >= hi` is a fault.
/// Follows tf.Transform's `scale_by_min_max`.
///
/// ```yaml
/// - min_max: { columns: [price], suffix: _scaled }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn min_max(columns), example = r#"min_max(["price"]).lo(-1.0).hi(1.0)"#)]
pub struct MinMax {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// What the minimum becomes.
    #[serde(default)]
    pub lo: f64,
    /// What the maximum becomes.
    #[serde(default = "one")]
    pub hi: f64,
    /// Key columns: statistics are taken for each of their values.
    #[serde(default)]
    pub by: Vec<String>,
    /// What comes out where min equals max.
    #[serde(default)]
    pub zero_range: ZeroRange,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// What comes out where min equals max.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroRange {
    /// `1 / (1 + exp(-x))` scaled into the range, as in tf.Transform.
    #[default]
    Sigmoid,
    /// `(x - min) * (hi - lo) + lo`: the lower end for what was seen, as in scikit-learn.
    Lower,
    /// The middle of the range, as in Spark.
    Middle,
}

impl ConfiguredTransform for MinMax {
    const NAME: &'static str = "min_max";
}

#[derive(Clone, Copy)]
enum MinMaxScaler {
    Range(f64, f64),
    Sigmoid,
    Shift(f64),
    Middle,
}

impl MinMaxScaler {
    fn of(learned: &KeyedMoments, zero_range: ZeroRange) -> MinMaxScaler {
        match (learned.min, learned.max) {
            (Some(min), Some(max)) if min < max => MinMaxScaler::Range(min, max),
            (min, _) => MinMaxScaler::of_one_value(zero_range, min.unwrap_or(0.0)),
        }
    }

    fn of_one_value(zero_range: ZeroRange, value: f64) -> MinMaxScaler {
        match zero_range {
            ZeroRange::Sigmoid => MinMaxScaler::Sigmoid,
            ZeroRange::Lower => MinMaxScaler::Shift(value),
            ZeroRange::Middle => MinMaxScaler::Middle,
        }
    }
}

/// A scaler onto a range.
#[derive(Clone, Copy)]
struct RangeScaler {
    scaler: MinMaxScaler,
    lo: f64,
    hi: f64,
}

impl MomentScaler for RangeScaler {
    const MOMENTS: Option<&'static [&'static str]> = Some(&["min", "max"]);

    #[inline]
    fn scale(self, x: f64) -> f64 {
        let RangeScaler { scaler, lo, hi } = self;
        match scaler {
            MinMaxScaler::Range(min, max) => scaled_distance(x, min, min, max) * (hi - lo) + lo,
            MinMaxScaler::Sigmoid => 1.0 / (1.0 + (-x).exp()) * (hi - lo) + lo,
            MinMaxScaler::Shift(min) => (x - min) * (hi - lo) + lo,
            MinMaxScaler::Middle if x.is_nan() => x,
            MinMaxScaler::Middle => (lo + hi) / 2.0,
        }
    }

    fn portable(self) -> NumberExpr {
        let RangeScaler { scaler, lo, hi } = self;
        let input = NumberExpr::Input;
        match scaler {
            MinMaxScaler::Range(min, max) => (input - min) / (max - min) * (hi - lo) + lo,
            MinMaxScaler::Sigmoid => input.sigmoid() * (hi - lo) + lo,
            // Ranges of one value have the form of others, as keys need it.
            MinMaxScaler::Shift(min) => (input - min) / 1.0 * (hi - lo) + lo,
            // A missing value times 0 stays missing.
            MinMaxScaler::Middle => (input - 0.0) / 1.0 * 0.0 + (lo + hi) / 2.0,
        }
    }
}

impl Transform for MinMax {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let lo = self.lo;
        let hi = self.hi;
        let zero_range = self.zero_range;
        if lo >= hi || !lo.is_finite() || !hi.is_finite() {
            return Err(bad_value(format!("`lo` {lo} is not below `hi` {hi}")));
        }
        let fields = scope.numeric_columns(&self.columns)?;
        // Keys that were never seen are scaled as a range of one value.
        let onto_range = move |scaler: MinMaxScaler| RangeScaler { scaler, lo, hi };
        let unseen = onto_range(MinMaxScaler::of_one_value(zero_range, 0.0));
        let mut ops = Vec::with_capacity(fields.len());
        for field in fields {
            ops.push(scale_by_moments(
                scope,
                field,
                &self.by,
                &self.suffix,
                move |learned: &KeyedMoments| Ok(onto_range(MinMaxScaler::of(learned, zero_range))),
                unseen,
            )?);
        }
        Ok(ops)
    }
}
