//! `dedupe`: one row for each key.

use std::sync::Arc;

use datafusion::common::{Column, DataFusionError};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use forebay_model::{Fault, Result, codes};
use forebay_plan::{Configured, Gather, Op, Scope, Transform};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps one row for each key, the first or the last in the order of the data.
///
/// Columns stay as they are and rows keep their order. Null is a key of its own. Takes a pass of
/// its own, whose memory grows with the number of keys; it spills.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dedupe {
    /// The key columns; where left out, all columns.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Which row of a key is kept.
    #[serde(default)]
    pub keep: Keep,
}

/// Which row of a key is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
}

impl Configured for Dedupe {
    const NAME: &'static str = "dedupe";
}

impl Transform for Dedupe {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        let faults = self.keys.iter().filter_map(|key| scope.field(key).err()).collect();
        if let Some(fault) = Fault::all(faults) {
            return Err(fault);
        }
        let names: Vec<String> = scope.schema.fields().iter().map(|field| field.name().clone()).collect();
        let keys = if self.keys.is_empty() { names.clone() } else { self.keys.clone() };
        let first = self.keep == Keep::First;
        Ok(vec![Op::Gather(Gather {
            others: Vec::new(),
            alone: false,
            schema: Arc::new(scope.schema.clone()),
            lower: Arc::new(move |mut inputs| {
                let input = inputs.pop().ok_or_else(|| Fault::internal("a gather was given no input"))?;
                let plan = || -> Result<_, DataFusionError> {
                    let keys: Vec<Expr> = keys.iter().map(|key| column(key)).collect();
                    let row = column(Gather::ROW);
                    let all: Vec<Expr> = names.iter().map(|name| column(name)).chain([row.clone()]).collect();
                    let order = keys.iter().map(|key| key.clone().sort(true, false));
                    let order = order.chain([row.clone().sort(first, false)]).collect();
                    LogicalPlanBuilder::from(input)
                        .distinct_on(keys, all, Some(order))?
                        .sort([row.sort(true, false)])?
                        .project(names.iter().map(|name| column(name).alias(name)).collect::<Vec<_>>())?
                        .build()
                };
                plan().map_err(|error| Fault::new(codes::INTERNAL, "rows cannot be deduplicated").cause(error))
            }),
        })])
    }
}

/// A column by its exact name.
pub(super) fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}
