//! `max_abs`: division by the greatest absolute value.

use forebay_contract::NumberExpr;
use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{KeyedMoments, MomentScaler, scale_by_moments};

/// `x / max(|x|)`, over all values or for each key: 0 stays 0, and what was seen comes out in [-1, 1].
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`, computed
/// in doubles and rounded once. State: about 6 KiB per column; with `by`, some 300 bytes per key,
/// spilled beyond the budget.
///
/// Null stays null and NaN stays NaN; neither counts. An infinity in the data makes all finite values 0; `clip` first.
/// Values beyond what was learned come out beyond [-1, 1]. Where all values are 0, nothing was seen, or a key was never
/// seen, x stays unchanged; null is a key of its own. Follows scikit-learn's `MaxAbsScaler`.
///
/// ```yaml
/// - max_abs: { columns: [price], suffix: _scaled }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn max_abs(columns), example = r#"max_abs(["price"]).by(["category"])"#)]
pub struct MaxAbs {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Key columns: the greatest absolute value is taken for each of their values.
    #[serde(default)]
    pub by: Vec<String>,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

impl ConfiguredTransform for MaxAbs {
    const NAME: &'static str = "max_abs";
}

#[derive(Clone, Copy)]
struct MaxAbsScaler {
    divisor: f64,
}

impl MaxAbsScaler {
    fn of(learned: &KeyedMoments) -> MaxAbsScaler {
        let min = learned.min.unwrap_or(0.0);
        let max = learned.max.unwrap_or(0.0);
        let greatest = min.abs().max(max.abs());
        let divisor = if greatest > 0.0 { greatest } else { 1.0 };
        MaxAbsScaler { divisor }
    }
}

impl MomentScaler for MaxAbsScaler {
    const MOMENTS: Option<&'static [&'static str]> = Some(&["min", "max"]);

    #[inline]
    fn scale(self, x: f64) -> f64 {
        x / self.divisor
    }

    fn portable(self) -> NumberExpr {
        NumberExpr::Input / self.divisor
    }
}

impl Transform for MaxAbs {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let unseen = MaxAbsScaler { divisor: 1.0 };
        let mut ops = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            ops.push(scale_by_moments(
                scope,
                field,
                &self.by,
                &self.suffix,
                |learned: &KeyedMoments| Ok(MaxAbsScaler::of(learned)),
                unseen,
            )?);
        }
        Ok(ops)
    }
}
