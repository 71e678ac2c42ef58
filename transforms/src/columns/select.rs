//! `select`: keeps columns, in the order given.

use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps these columns, in this order, and drops all others. Rows stay as they are.
///
/// ```yaml
/// - select: [date, store, item, "qty*"]
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(transparent)]
#[setters(fn select(columns), example = r#"select(["date", "item_id", "type:number"])"#)]
pub struct SelectColumns(pub ColumnSelector);

impl ConfiguredTransform for SelectColumns {
    const NAME: &'static str = "select";
}

impl Transform for SelectColumns {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let fields = scope.columns(&self.0)?;
        Ok(vec![PlanOp::keep_columns(
            fields.iter().map(|field| field.name()),
        )])
    }
}
