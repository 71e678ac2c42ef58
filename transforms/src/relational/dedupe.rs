//! `dedupe`: one row for each key.

use std::sync::Arc;

use forebay_model::{Fault, Result};
use forebay_plan::{BindScope, ConfiguredTransform, GatherBy, GatherOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps one row for each key, the first or the last in the order of the data.
///
/// Columns stay as they are and rows keep their order. Null is a key of its own, -0.0 and 0.0 are
/// one key, and so are all NaN. Takes a pass of its own, which reads the keys first, spilling
/// those that memory cannot hold, and then the rows.
///
/// ```yaml
/// - dedupe: { keys: [store, item, date], keep: last }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn dedupe(), example = r#"dedupe().keys(["order_id"]).keep(DedupeKeep::Last)"#)]
pub struct Dedupe {
    /// The key columns; where left out, all columns.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Which row of a key is kept.
    #[serde(default)]
    pub keep: DedupeKeep,
}

/// Which row of a key is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DedupeKeep {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
}

impl ConfiguredTransform for Dedupe {
    const NAME: &'static str = "dedupe";
}

impl Transform for Dedupe {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let faults = self
            .keys
            .iter()
            .filter_map(|key| scope.field(key).err())
            .collect();
        if let Some(fault) = Fault::combine(faults) {
            return Err(fault);
        }
        let names = scope
            .schema
            .fields()
            .iter()
            .map(|field| field.name().clone());
        let keys = if self.keys.is_empty() {
            names.collect()
        } else {
            self.keys.clone()
        };
        Ok(vec![PlanOp::Gather(GatherOp {
            others: Vec::new(),
            alone: false,
            schema: Arc::new(scope.schema.clone()),
            lower: GatherBy::OnePerKey {
                keys,
                last: self.keep == DedupeKeep::Last,
            },
            query: None,
        })])
    }
}
