//! `dedupe`: one row for each key.

use std::sync::Arc;

use datafusion::common::{Column, DataFusionError};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlanBuilder, lit};
use forebay_model::{Fault, Result, codes};
use forebay_plan::{Configured, Gather, Op, Scope, Transform};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The position of a row among those of its key, from 1.
const NUMBER: &str = "__number";

/// Keeps one row for each key, the first or the last in the order of the data.
///
/// Columns stay as they are and rows keep their order. Null is a key of its own. Takes a pass of
/// its own, which sorts and spills.
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
                    // Numbering sorted rows streams, and the sorts spill; a hash of all keys would
                    // hold every column of every key.
                    let row = column(Gather::ROW);
                    let number = row_number()
                        .partition_by(keys.iter().map(|key| column(key)).collect())
                        .order_by(vec![row.clone().sort(first, false)])
                        .build()?
                        .alias(NUMBER);
                    LogicalPlanBuilder::from(input)
                        .window([number])?
                        .filter(column(NUMBER).eq(lit(1u64)))?
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
