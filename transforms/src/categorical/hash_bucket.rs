//! `hash_bucket`: categories to buckets without learning.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Int64Type};
use forebay_model::{Result, StringColumn};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vocabulary::with_element_type;
use crate::shared::{
    bad_value, each_element, element_field, gather_ids, is_text_or_list, output_name, scaled_hash,
};

/// The bucket of a category's hash, 0 to `buckets - 1`.
///
/// In: text, integers, booleans, dates (as their text), or lists of these. Out: `int64`, in lists
/// where the input has lists. The 64-bit xxh3 of the text with `seed`, scaled by a multiplication,
/// so that no bucket is favoured. Null stays null; the empty string is a value. Learns nothing; a
/// value keeps its bucket for ever. 0 buckets are a fault.
///
/// ```yaml
/// - hash_bucket: { columns: [item], buckets: 1000, suffix: _bucket }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn hash_bucket(columns, buckets), example = r#"hash_bucket(["user_id"], 1 << 20)"#)]
pub struct HashBucket {
    /// Columns of categories.
    pub columns: ColumnSelector,
    /// How many buckets.
    pub buckets: u32,
    /// Changes which values share a bucket.
    #[serde(default)]
    pub seed: u64,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

impl ConfiguredTransform for HashBucket {
    const NAME: &'static str = "hash_bucket";
}

impl Transform for HashBucket {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let (buckets, seed) = (u64::from(self.buckets), self.seed);
        if buckets == 0 {
            return Err(bad_value("`buckets` is 0"));
        }
        let fields =
            scope.typed_columns(&self.columns, "text or a list of text", is_text_or_list)?;
        let each = fields.into_iter().map(|field| {
            let out = element_field(field.data_type()).map_or(DataType::Int64, |_| {
                with_element_type(field.data_type(), &DataType::Int64)
            });
            let output = Field::new(
                output_name(field.name(), &self.suffix),
                out,
                field.is_nullable(),
            );
            let bucket =
                move |text: &str| Ok(Some(scaled_hash(text.as_bytes(), seed, buckets) as i64));
            PlanOp::Map(MapOp::new([field.name()], [output], move |inputs, _| {
                let of_values = |values: &ArrayRef| {
                    Ok(
                        Arc::new(gather_ids::<Int64Type>(&StringColumn::of(values)?, bucket)?)
                            as ArrayRef,
                    )
                };
                inputs
                    .iter()
                    .map(|column| each_element(column, of_values))
                    .collect()
            }))
        });
        Ok(each.collect())
    }
}
