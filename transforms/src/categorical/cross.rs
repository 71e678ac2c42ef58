//! `cross`: several categories as one, hashed into buckets.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_model::{Result, StringColumn};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::shared::{bad_value, gather_ids, scaled_hash};

/// Several columns as one category: the bucket of the hash of their values together.
///
/// In: two or more columns of text, integers, booleans, dates (as their text). Out: one `int64`
/// column, 0 to `buckets - 1`. The hash is the xxh3 with `seed` of the xxh3 of each value in
/// order, so that ("ab", "c") and ("a", "bc") differ. Null where any of them is null. Learns
/// nothing. One column, or 0 buckets, is a fault.
///
/// ```yaml
/// - cross: { columns: [store, category], buckets: 1000, name: store_category }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn cross(columns, buckets), example = r#"cross(["store_id", "item_id"], 1000)"#)]
pub struct FeatureCross {
    /// The columns that are crossed; their order counts.
    pub columns: ColumnSelector,
    /// How many buckets.
    pub buckets: u32,
    /// Changes which values share a bucket.
    #[serde(default)]
    pub seed: u64,
    /// What the new column is called; where left out, the columns' names joined by `_x_`.
    #[serde(default)]
    pub name: Option<String>,
}

impl ConfiguredTransform for FeatureCross {
    const NAME: &'static str = "cross";
}

impl Transform for FeatureCross {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let buckets = u64::from(self.buckets);
        let seed = self.seed;
        let fields = scope.typed_columns(&self.columns, "a category", |field| {
            !field.data_type().is_nested()
        })?;
        if buckets == 0 || fields.len() < 2 {
            return Err(bad_value(
                "`cross` needs two columns and one bucket at least",
            ));
        }
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let name = self.name.clone().unwrap_or_else(|| names.join("_x_"));
        let output = Field::new(
            name,
            DataType::Int64,
            fields.iter().any(|field| field.is_nullable()),
        );
        Ok(vec![PlanOp::Map(MapOp::new(
            names,
            [output],
            move |inputs, rows| hash_columns(inputs, rows, buckets, seed),
        ))])
    }
}

/// The bucket of the values of each row together; null where one of them is.
pub(super) fn hash_columns(
    inputs: &[ArrayRef],
    rows: usize,
    buckets: u64,
    seed: u64,
) -> Result<Vec<ArrayRef>> {
    let mut hashes = Vec::with_capacity(inputs.len());
    let mut nulls = None;
    for column in inputs {
        let texts = StringColumn::of(column)?;
        let column_hashes =
            gather_ids::<UInt64Type>(&texts, |text| Ok(Some(xxh3_64(text.as_bytes()))))?;
        nulls = NullBuffer::union(nulls.as_ref(), column_hashes.nulls());
        hashes.push(column_hashes);
    }
    let mut bytes = Vec::with_capacity(8 * hashes.len());
    let mut values = Vec::with_capacity(rows);
    for row in 0..rows {
        bytes.clear();
        for column in &hashes {
            bytes.extend_from_slice(&column.value(row).to_le_bytes());
        }
        values.push(scaled_hash(&bytes, seed, buckets) as i64);
    }
    Ok(vec![Arc::new(Int64Array::new(values.into(), nulls))])
}
