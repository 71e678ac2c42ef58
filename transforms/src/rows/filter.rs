//! `filter`: keeps the rows for which a condition is true.

use forebay_model::Result;
use forebay_plan::{Configured, Keep, Op, Scope, Transform};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps the rows for which a SQL condition is true; false and null remove the row.
///
/// Columns stay as they are. Learns nothing, holds nothing. NaN compares as in SQL: it equals
/// itself and is above all numbers; -0.0 equals 0.0. Removed rows are counted as `filtered`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("format" = "sql"))]
pub struct Filter(pub String);

impl Configured for Filter {
    const NAME: &'static str = "filter";
}

impl Transform for Filter {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        let condition = scope.sql.condition(&self.0, scope.schema)?;
        Ok(vec![Op::Keep(Keep {
            reads: condition.reads,
            kernel: condition.kernel,
            condition: Some(condition.logical),
        })])
    }
}
