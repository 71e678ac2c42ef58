//! `select`: keeps columns, in the order given.

use forebay_model::Result;
use forebay_plan::{Columns, Configured, Op, Scope, Transform};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps these columns, in this order, and drops all others. Rows stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Select(pub Columns);

impl Configured for Select {
    const NAME: &'static str = "select";
}

impl Transform for Select {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        let fields = scope.columns(&self.0)?;
        Ok(vec![Op::Project(fields.iter().map(|field| (field.name().clone(), field.name().clone())).collect())])
    }
}
