//! `bag_of_tokens`: counts of tokens by the buckets of their hashes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use forebay_model::{Result, StringColumn};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform, admit_output,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::categorical::{vector_array, vector_field};
use crate::shared::{bad_value, each_element, element_field, gather_ids, output_name, scaled_hash};

/// The number of a list's tokens in each of `buckets` buckets, by their hashes.
///
/// In: lists of strings (or of integers, ...: as their text), such as those of `ngrams`. Out: a fixed-size list of
/// `float32`, one count per bucket. The bucket of a token is that of `hash_bucket` with the same `buckets` and `seed`
/// (xxh3); with `signed`, another bit of a hash decides whether it counts 1 or -1, so that collisions cancel on
/// average. Null, an empty list and null elements count nothing. Learns nothing. 0 buckets, or more than 65,536, are a
/// fault. Follows scikit-learn's `HashingVectorizer` with `norm=None`, and `FeatureHasher`, whose hash is another one.
///
/// ```yaml
/// - bag_of_tokens: { columns: [tags], buckets: 256, suffix: _bag }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn bag_of_tokens(columns, buckets),
    example = r#"bag_of_tokens(["title_words"], 256).signed(true)"#
)]
pub struct BagOfTokens {
    /// Columns of lists of tokens.
    pub columns: ColumnSelector,
    /// Number of buckets, 1 to 65,536.
    pub buckets: u32,
    /// Changes which tokens share a bucket.
    #[serde(default)]
    pub seed: u64,
    /// Counts half of the tokens as -1.
    #[serde(default)]
    pub signed: bool,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

const BUCKETS_MAX: u32 = 1 << 16;

impl ConfiguredTransform for BagOfTokens {
    const NAME: &'static str = "bag_of_tokens";
}

impl Transform for BagOfTokens {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(1..=BUCKETS_MAX).contains(&self.buckets) {
            let message = format!(
                "`buckets` {} is not between 1 and {BUCKETS_MAX}",
                self.buckets
            );
            return Err(bad_value(message));
        }
        let is_list = |field: &Field| {
            element_field(field.data_type()).is_some_and(|element| !element.data_type().is_nested())
        };
        let mut ops = Vec::new();
        for field in scope.typed_columns(&self.columns, "a list of strings", is_list)? {
            let name = output_name(field.name(), &self.suffix);
            let output = vector_field(&name, self.buckets as usize)?;
            let config = self.clone();
            ops.push(PlanOp::Map(MapOp::new(
                [field.name()],
                [output],
                move |inputs, _| {
                    let mut outputs = Vec::new();
                    for input in inputs {
                        outputs.push(config.bags(input)?);
                    }
                    Ok(outputs)
                },
            )));
        }
        Ok(ops)
    }
}

impl BagOfTokens {
    fn bags(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let codes = each_element(column, |tokens| self.token_codes(tokens))?;
        let item = Field::new_list_field(DataType::Int64, true);
        let codes = cast(&codes, &DataType::LargeList(item.into()))?;
        let codes: &LargeListArray = codes.as_list();
        let width = self.buckets as usize;
        // An `explode` before may have made many rows of a chunk.
        admit_output(size_of::<f32>() * width * codes.len())?;
        let mut counts = vec![0.0_f32; width * codes.len()];
        for (row, bag) in counts.chunks_exact_mut(width).enumerate() {
            if codes.is_null(row) {
                continue;
            }
            let tokens = codes.value(row);
            for code in tokens.as_primitive::<Int64Type>().iter().flatten() {
                let count = if code < 0 { -1.0 } else { 1.0 };
                let bucket = if code < 0 { !code } else { code };
                bag[bucket as usize] += count;
            }
        }
        vector_array(counts, width, codes.len())
    }

    /// The bucket of each token, with inverted bits for one that counts -1.
    fn token_codes(&self, tokens: &ArrayRef) -> Result<ArrayRef> {
        let buckets = u64::from(self.buckets);
        let code = |token: &str| {
            let bucket = scaled_hash(token.as_bytes(), self.seed, buckets) as i64;
            let is_negative = self.signed && scaled_hash(token.as_bytes(), !self.seed, 2) == 1;
            Ok(Some(if is_negative { !bucket } else { bucket }))
        };
        let codes = gather_ids::<Int64Type>(&StringColumn::of(tokens)?, code)?;
        Ok(Arc::new(codes))
    }
}
