//! `log1p`: the logarithm of 1 + x.

use forebay_model::Result;
use forebay_plan::{Columns, Configured, Map, Op, Scope, Transform};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{float_type, map_doubles, replaced};

/// The natural logarithm of `1 + x`, accurate near 0.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. As in
/// numpy, -1 gives -inf and what is below gives NaN. Null stays null. Learns nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log1p {
    /// Columns of numbers.
    pub columns: Columns,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

impl Configured for Log1p {
    const NAME: &'static str = "log1p";
}

impl Transform for Log1p {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        let each = scope.numeric_columns(&self.columns)?.into_iter().map(|field| {
            let out = float_type(field.data_type());
            Op::Map(Map::new([field.name()], [replaced(field, &self.suffix, out.clone())], move |inputs, _| {
                inputs.iter().map(|column| map_doubles(column, &out, f64::ln_1p)).collect()
            }))
        });
        Ok(each.collect())
    }
}
