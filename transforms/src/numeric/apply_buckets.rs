//! `apply_buckets`: buckets between given boundaries.

use arrow::datatypes::DataType;
use forebay_contract::PortableMap;
use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buckets::bucket_indices;
use crate::shared::{bad_value, output_field};

/// The index of the bucket between given boundaries: the number of boundaries that are not above
/// x.
///
/// In: columns of numbers. Out: `int32`, 0 to the number of boundaries. Null stays null, NaN goes
/// into the last bucket, infinities into the first and the last. Learns nothing. Boundaries that
/// are not increasing are a fault. Follows tf.Transform's `apply_buckets`.
///
/// ```yaml
/// - apply_buckets: { columns: [price], boundaries: [1, 2, 5], suffix: _bucket }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn apply_buckets(columns, boundaries),
    example = r#"apply_buckets(["age"], [18.0, 30.0, 65.0])"#
)]
pub struct ApplyBuckets {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Increasing.
    pub boundaries: Vec<f64>,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

impl ConfiguredTransform for ApplyBuckets {
    const NAME: &'static str = "apply_buckets";
}

impl Transform for ApplyBuckets {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !self.boundaries.iter().is_sorted_by(|a, b| a < b)
            || self.boundaries.iter().any(|x| x.is_nan())
        {
            return Err(bad_value("`boundaries` are not increasing"));
        }
        let each = scope
            .numeric_columns(&self.columns)?
            .into_iter()
            .map(|field| {
                let boundaries = self.boundaries.clone();
                let output = output_field(field, &self.suffix, DataType::Int32);
                let map = MapOp::new([field.name()], [output], move |inputs, _| {
                    inputs
                        .iter()
                        .map(|column| bucket_indices(column, &boundaries))
                        .collect()
                });
                PlanOp::Map(map.portable(PortableMap::Bins(self.boundaries.clone())))
            });
        Ok(each.collect())
    }
}
