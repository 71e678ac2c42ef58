//! `filter`: keeps the rows for which a condition is true.

use forebay_model::Result;
use forebay_plan::{BindScope, ConfiguredTransform, FilterOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps the rows for which a SQL condition is true; false and null remove the row.
///
/// Columns stay as they are. Learns nothing, holds nothing. NaN compares as in SQL: it equals
/// itself and is above all numbers; -0.0 equals 0.0. Removed rows are counted as `filtered`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(transparent)]
#[schemars(extend("format" = "sql"))]
#[setters(fn filter(condition), example = r#"filter("qty IS NOT NULL")"#)]
pub struct FilterRows(pub String);

impl ConfiguredTransform for FilterRows {
    const NAME: &'static str = "filter";
}

impl Transform for FilterRows {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let condition = scope.sql.condition(&self.0, scope.schema)?;
        Ok(vec![PlanOp::Keep(FilterOp {
            reads: condition.reads,
            kernel: condition.kernel,
            condition: condition.logical,
        })])
    }
}
