//! `drop`: removes columns.

use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::bad_value;

/// Removes these columns; all others stay as they are. To remove every column is a fault.
///
/// ```yaml
/// - drop: [event]
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(transparent)]
#[schemars(rename = "Drop")]
#[setters(fn drop_columns(columns), example = r#"drop_columns(["comment", "tmp_*"])"#)]
pub struct DropColumns(pub ColumnSelector);

impl ConfiguredTransform for DropColumns {
    const NAME: &'static str = "drop";
}

impl Transform for DropColumns {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let dropped = scope.columns(&self.0)?;
        let names = scope.schema.fields().iter().map(|field| field.name());
        let remaining = names.filter(|name| !dropped.iter().any(|field| field.name() == *name));
        let remaining: Vec<_> = remaining.collect();
        if remaining.is_empty() {
            return Err(bad_value("no column would be left"));
        }
        Ok(vec![PlanOp::keep_columns(remaining)])
    }
}
