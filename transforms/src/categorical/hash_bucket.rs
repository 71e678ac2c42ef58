//! `hash_bucket`: categories to buckets without learning.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Int64Type};
use forebay_contract::{PortableMap, TextBuckets};
use forebay_model::{Result, StringColumn, logical_type};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vocabulary::with_element_type;
use crate::shared::{
    bad_value, each_element, element_field, farm_fingerprint, gather_ids, is_text_or_list, murmur3,
    output_name, scaled_hash,
};

/// The bucket of a category's hash, 0 to `buckets - 1`.
///
/// In: strings, integers, booleans, dates (as their text), or lists of these. Out: `int64`, in lists
/// where the input has lists. The 64-bit xxh3 of the text with `seed`, scaled by a multiplication,
/// so that no bucket is favoured. Null stays null; the empty string is a value. Learns nothing; a
/// value keeps its bucket for ever. 0 buckets are a fault.
///
/// `hash: murmur3` takes the remainder of the 32-bit MurmurHash3 (x86) of the text instead: the buckets of onnxruntime, so
/// that `forebay export` writes the step into a file of ONNX. Its `seed` ends at 4,294,967,295. Among very many buckets,
/// the first ones are favoured by one value in 2^32 each.
///
/// `hash: farm` takes the remainder of FarmHash's 64-bit fingerprint, which has no `seed`: the buckets of TensorFlow, and of
/// tf.Transform's `hash_strings` without a key.
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
    /// Changes which values share a bucket; `farm` has none.
    #[serde(default)]
    pub seed: u64,
    /// The hash function.
    #[serde(default, skip_serializing_if = "BucketHash::is_default")]
    pub hash: BucketHash,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// A hash function for buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BucketHash {
    /// The 64-bit xxh3.
    #[default]
    Xxh3,
    /// The 32-bit MurmurHash3 (x86), which onnxruntime has.
    Murmur3,
    /// FarmHash's 64-bit fingerprint, which TensorFlow has.
    Farm,
}

impl BucketHash {
    fn is_default(&self) -> bool {
        *self == BucketHash::default()
    }
}

impl ConfiguredTransform for HashBucket {
    const NAME: &'static str = "hash_bucket";
}

impl Transform for HashBucket {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.buckets == 0 {
            return Err(bad_value("`buckets` is 0"));
        }
        let hash = self.text_hash()?;
        let fields = scope.typed_columns(
            &self.columns,
            "a string or a list of strings",
            is_text_or_list,
        )?;
        let mut ops = Vec::with_capacity(fields.len());
        for field in fields {
            ops.push(PlanOp::Map(self.bucket_map(field, hash)));
        }
        Ok(ops)
    }
}

/// The bucket of a text.
#[derive(Clone, Copy)]
enum TextHash {
    Xxh3 { seed: u64, buckets: u64 },
    Murmur3(TextBuckets),
    Farm { buckets: u64 },
}

impl TextHash {
    fn bucket(self, text: &str) -> i64 {
        match self {
            TextHash::Xxh3 { seed, buckets } => scaled_hash(text.as_bytes(), seed, buckets) as i64,
            TextHash::Murmur3(TextBuckets { seed, buckets }) => {
                i64::from(murmur3(text.as_bytes(), seed) % buckets)
            }
            TextHash::Farm { buckets } => (farm_fingerprint(text.as_bytes()) % buckets) as i64,
        }
    }
}

impl HashBucket {
    fn text_hash(&self) -> Result<TextHash> {
        match self.hash {
            BucketHash::Xxh3 => Ok(TextHash::Xxh3 {
                seed: self.seed,
                buckets: u64::from(self.buckets),
            }),
            BucketHash::Murmur3 => {
                let seed = u32::try_from(self.seed).map_err(|_| {
                    let message = format!(
                        "`seed: {}` is above {}, the greatest of `hash: murmur3`",
                        self.seed,
                        u32::MAX
                    );
                    bad_value(message).field("seed")
                })?;
                Ok(TextHash::Murmur3(TextBuckets {
                    seed,
                    buckets: self.buckets,
                }))
            }
            BucketHash::Farm if self.seed != 0 => {
                let fault = bad_value("`hash: farm` has no `seed`").field("seed");
                Err(fault.hint("leave out `seed`, or `hash`"))
            }
            BucketHash::Farm => Ok(TextHash::Farm {
                buckets: u64::from(self.buckets),
            }),
        }
    }

    fn bucket_map(&self, field: &Field, hash: TextHash) -> MapOp {
        let mut out = DataType::Int64;
        if element_field(field.data_type()).is_some() {
            out = with_element_type(field.data_type(), &out);
        }
        let name = output_name(field.name(), &self.suffix);
        let output = Field::new(name, out, field.is_nullable());
        let map = MapOp::new([field.name()], [output], move |inputs, _| {
            let mut columns = Vec::with_capacity(inputs.len());
            for column in inputs {
                columns.push(each_element(column, |values| hash_texts(values, hash))?);
            }
            Ok(columns)
        });
        match hash {
            // Other runtimes write numbers as other texts, or hash their bytes.
            TextHash::Murmur3(buckets) if logical_type(field.data_type()) == DataType::Utf8 => {
                map.portable(PortableMap::Buckets(buckets))
            }
            TextHash::Murmur3(_) => map.portable_instead("hash a column of texts"),
            TextHash::Xxh3 { .. } | TextHash::Farm { .. } => {
                map.portable_instead("set `hash: murmur3`, which onnxruntime has, and train again")
            }
        }
    }
}

/// The bucket of each text.
fn hash_texts(values: &ArrayRef, hash: TextHash) -> Result<ArrayRef> {
    let texts = StringColumn::of(values)?;
    let ids = gather_ids::<Int64Type>(&texts, |text| Ok(Some(hash.bucket(text))))?;
    Ok(Arc::new(ids))
}
