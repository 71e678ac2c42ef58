//! `rename`: other names for columns.

use forebay_model::{Fault, Result};
use forebay_plan::{BindScope, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Other names for columns, old to new. Columns keep their places; names may be exchanged. Two
/// columns of one name are a fault.
///
/// ```yaml
/// - rename: { qty: quantity }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(transparent)]
#[setters(fn rename(names), example = r#"rename([("qty", "quantity")])"#)]
pub struct RenameColumns(pub IndexMap<String, String>);

impl ConfiguredTransform for RenameColumns {
    const NAME: &'static str = "rename";
}

impl Transform for RenameColumns {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let faults = self
            .0
            .keys()
            .filter_map(|old| scope.field(old).err())
            .collect();
        if let Some(fault) = Fault::combine(faults) {
            return Err(fault);
        }
        let names = scope.schema.fields().iter().map(|field| field.name());
        let pairs = names.map(|name| (name.clone(), self.0.get(name).unwrap_or(name).clone()));
        Ok(vec![PlanOp::Project(pairs.collect())])
    }
}
