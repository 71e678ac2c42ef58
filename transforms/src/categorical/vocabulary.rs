//! `vocabulary`: categories to ids by frequency.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringBuilder};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Int32Type, Int64Type};
use forebay_analyze::{TokenVocabulary as Tally, VocabularyOrder, continue_vocabulary};
use forebay_model::{Fault, Finding, Result, StringColumn, TextRef, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{
    DictionaryCache, TokenIndex, bad_value, each_element, element_field, finding_at,
    is_text_or_list, output_name, scaled_hash,
};

/// Categories to ids: the most frequent first, out-of-vocabulary values last or `default`.
///
/// In: text, integers, booleans, dates (as their text), or lists of these. Out: `int64` or `int32`
/// ids, in lists where the input has lists. Reserved tokens take 0, 1, ...; then come the tokens
/// seen, by count descending, ties in reverse byte order; then `oov_buckets` ids by a hash
/// (xxh3) of the text. Null stays null and is never counted; the empty string is a token.
/// State: the distinct tokens with exact counts, spilled beyond the budget; the vocabulary itself
/// has to fit memory. Nothing seen: every value is out of vocabulary.
///
/// With `stable`, ids hold still from run to run: the state directory keeps all tokens that got an id, in the order of
/// their ids. Tokens keep their ids, also those that are no longer seen, and new tokens follow, also where late data
/// brings them to an earlier interval. The ids of `oov_buckets` then come before those of tokens.
///
/// Follows tf.Transform's `compute_and_apply_vocabulary`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn vocabulary(columns), example = r#"vocabulary(["item_id", "store_id"]).min_count(5).oov_buckets(1)"#)]
pub struct VocabularyEncoder {
    /// Columns; each has a vocabulary of its own.
    pub columns: ColumnSelector,
    /// Tokens seen less often are out of vocabulary.
    #[serde(default = "one")]
    pub min_count: u64,
    /// At most so many tokens after `min_count`: the most frequent ones. Equally frequent ones are taken in the `order`
    /// of ids, for `value` in byte order.
    #[serde(default)]
    pub top_k: Option<usize>,
    /// Tokens that take the first ids, in this order, whether they occur or not.
    #[serde(default)]
    pub reserved: Vec<String>,
    /// So many ids after the vocabulary for out-of-vocabulary values; 0 gives `default` instead.
    #[serde(default)]
    pub oov_buckets: u32,
    /// The id of out-of-vocabulary values where `oov_buckets` is 0.
    #[serde(default = "minus_one")]
    pub default: i64,
    /// The order of ids.
    #[serde(default)]
    pub order: TokenOrder,
    /// Keeps the ids of earlier runs, and gives new tokens the ids after them. `top_k` then limits the tokens of one
    /// run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stable: bool,
    /// The type of ids.
    #[serde(default)]
    pub dtype: IdType,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn one() -> u64 {
    1
}

fn minus_one() -> i64 {
    -1
}

/// The order of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "VocabularyOrder")]
pub enum TokenOrder {
    /// Count descending, ties by bytes descending: tf.Transform's.
    #[default]
    CountThenReverse,
    /// Count descending, ties by bytes ascending: Spark's.
    CountThenValue,
    /// Bytes ascending: scikit-learn's.
    Value,
}

impl TokenOrder {
    pub(crate) fn of_tokens(self) -> VocabularyOrder {
        match self {
            TokenOrder::CountThenReverse => VocabularyOrder::CountThenReverse,
            TokenOrder::CountThenValue => VocabularyOrder::CountThenValue,
            TokenOrder::Value => VocabularyOrder::Value,
        }
    }
}

/// The type of ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdType {
    /// 32 bits; a vocabulary that is larger is a fault.
    Int32,
    /// 64 bits.
    #[default]
    Int64,
}

impl IdType {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            IdType::Int32 => DataType::Int32,
            IdType::Int64 => DataType::Int64,
        }
    }
}

impl ConfiguredTransform for VocabularyEncoder {
    const NAME: &'static str = "vocabulary";
}

impl Transform for VocabularyEncoder {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.dtype == IdType::Int32 && i32::try_from(self.default).is_err() {
            return Err(bad_value(format!(
                "`default` {} does not fit int32",
                self.default
            )));
        }
        let fields =
            scope.typed_columns(&self.columns, "text or a list of text", is_text_or_list)?;
        fields
            .into_iter()
            .map(|field| self.column_op(field))
            .collect()
    }
}

impl VocabularyEncoder {
    /// What moves the ids of tokens beside their order.
    fn numbering_scheme(&self) -> String {
        format!(
            "reserved {:?}, {} other ids",
            self.reserved, self.oov_buckets
        )
    }

    fn column_op(&self, field: &Field) -> Result<PlanOp> {
        let id = self.dtype.data_type();
        let output = element_field(field.data_type())
            .map_or(id.clone(), |_| with_element_type(field.data_type(), &id));
        let output = Field::new(
            output_name(field.name(), &self.suffix),
            output,
            field.is_nullable(),
        );
        let tally = Tally {
            min_count: self.min_count.max(1),
            top_k: self.top_k,
            order: self.order.of_tokens(),
        };
        let config = self.clone();
        let request = AnalyzerRequest::new(tally, [field.name()]);
        let request = if self.stable {
            request.continuing(continue_vocabulary, self.numbering_scheme())
        } else {
            request
        };
        Ok(PlanOp::Map(MapOp::fitted(
            [field.name()],
            [output],
            [request],
            move |findings| {
                let tokens = with_reserved(finding_at(findings, 0)?, &config.reserved)?;
                let (seen, buckets, default) = (
                    tokens.len() as i64,
                    u64::from(config.oov_buckets),
                    config.default,
                );
                if config.dtype == IdType::Int32
                    && seen + i64::from(config.oov_buckets) > i64::from(i32::MAX)
                {
                    return Err(Fault::new(
                        codes::LIMIT,
                        format!("{seen} tokens are too many for int32 ids"),
                    ));
                }
                // The first id of tokens that were seen, and the first for other values.
                let reserved = config.reserved.len() as i64;
                let (moved, others) = if config.stable {
                    (buckets as i64, reserved)
                } else {
                    (0, seen)
                };
                let id = move |text: &str| match tokens.find(text).map(i64::from) {
                    Some(id) if id < reserved => id,
                    Some(id) => id + moved,
                    None if buckets == 0 => default,
                    None => others + scaled_hash(text.as_bytes(), 0, buckets) as i64,
                };
                Ok(match config.dtype {
                    IdType::Int64 => lookup_kernel::<Int64Type>(id),
                    IdType::Int32 => lookup_kernel::<Int32Type>(move |text| id(text) as i32),
                })
            },
        )))
    }
}

fn lookup_kernel<T: ArrowPrimitiveType>(
    id: impl Fn(&str) -> T::Native + Send + Sync + 'static,
) -> LoweredMap {
    let memo = DictionaryCache::<T>::default();
    LoweredMap::unary(move |column| {
        each_element(column, |values| {
            Ok(
                Arc::new(memo.gather(&StringColumn::of(values)?, |text| Ok(Some(id(text))))?)
                    as ArrayRef,
            )
        })
    })
}

/// The list type with other elements.
pub(crate) fn with_element_type(list: &DataType, element: &DataType) -> DataType {
    let item = Arc::new(Field::new_list_field(element.clone(), true));
    match list {
        DataType::LargeList(_) => DataType::LargeList(item),
        DataType::FixedSizeList(_, width) => DataType::FixedSizeList(item, *width),
        _ => DataType::List(item),
    }
}

/// The tokens of a finding after the reserved ones, which come once.
fn with_reserved(finding: &Finding, reserved: &[String]) -> Result<TokenIndex> {
    if reserved.is_empty() {
        return TokenIndex::from_finding(finding);
    }
    let tokens = finding.column("token")?;
    let text = TextRef::new(tokens).ok_or_else(|| Fault::internal("a vocabulary is not text"))?;
    let mut all = StringBuilder::with_capacity(
        tokens.len() + reserved.len(),
        tokens.get_buffer_memory_size(),
    );
    reserved.iter().for_each(|token| all.append_value(token));
    text.iter()
        .flatten()
        .filter(|token| !reserved.iter().any(|known| known == token))
        .for_each(|token| {
            all.append_value(token);
        });
    TokenIndex::new(Arc::new(all.finish()))
}
