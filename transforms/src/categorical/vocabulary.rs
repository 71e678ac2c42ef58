//! `vocabulary`: categories to ids by frequency.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListBuilder, StringBuilder};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Int8Type, Int32Type, Int64Type};
use forebay_analyze::{TokenVocabulary as Tally, VocabularyOrder, continue_vocabulary};
use forebay_contract::{PortableMap, TextIds};
use forebay_model::{Fault, Finding, Result, StringColumn, TextRef, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, GrowingOutput, LoweredMap,
    MapOp, PlanOp, RowMark, StepFacts, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{
    DictionaryCache, RowTexts, TokenIndex, bad_value, each_element, element_field, finding_at,
    gather_ids, is_text_or_list, mark_values, output_name, scaled_hash,
};
use crate::time::hide_helper_columns;

/// Categories to ids: the most frequent first, out-of-vocabulary values last or `default`.
///
/// In: strings, integers, booleans, dates (as their text), or lists of these. Out: `int64` or `int32`
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
/// With `joint`, the columns have one vocabulary, of the tokens of all of them: a station has the same id as origin and
/// as destination.
///
/// Follows tf.Transform's `compute_and_apply_vocabulary`, and with `joint` NVTabular's `Categorify` of groups of
/// columns.
///
/// ```yaml
/// - vocabulary: { columns: [item], min_count: 2, oov_buckets: 1, suffix: _id }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn vocabulary(columns), example = r#"vocabulary(["item_id", "store_id"]).min_count(5).oov_buckets(1)"#)]
pub struct VocabularyEncoder {
    /// Columns; each has a vocabulary of its own, unless they have a joint one.
    pub columns: ColumnSelector,
    /// Counts the tokens of all columns together, and gives equal tokens one id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joint: bool,
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
    fn facts(&self) -> StepFacts {
        StepFacts {
            has_stable_ids: self.stable,
            ..StepFacts::default()
        }
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.dtype == IdType::Int32 && i32::try_from(self.default).is_err() {
            return Err(bad_value(format!(
                "`default` {} does not fit int32",
                self.default
            )));
        }
        let fields = scope.typed_columns(
            &self.columns,
            "a string or a list of strings",
            is_text_or_list,
        )?;
        if self.joint {
            return self.bind_joint(scope, &fields);
        }
        fields
            .into_iter()
            .map(|field| self.column_op(field, field.name()))
            .collect()
    }
}

impl VocabularyEncoder {
    /// Settings that move the ids of tokens, besides their order.
    fn numbering_scheme(&self) -> String {
        format!(
            "reserved {:?}, {} other ids",
            self.reserved, self.oov_buckets
        )
    }

    /// One vocabulary of several columns, whose tokens are counted in a column of their own.
    fn bind_joint(&self, scope: &BindScope<'_>, fields: &[&Field]) -> Result<Vec<PlanOp>> {
        if self.stable {
            let fault = bad_value("a joint vocabulary does not keep ids").field("stable");
            return Err(fault.hint("leave out `stable`, or `joint`"));
        }
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let counted = format!("__tokens_{}", names.join("_"));
        let mut ops = vec![tokens_op(&names, &counted)];
        let mut outputs = Vec::new();
        for field in fields {
            ops.push(self.column_op(field, &counted)?);
            outputs.push(output_name(field.name(), &self.suffix));
        }
        ops.push(hide_helper_columns(scope, outputs));
        Ok(ops)
    }

    /// The ids of a column by the vocabulary of the `counted` one.
    fn column_op(&self, field: &Field, counted: &str) -> Result<PlanOp> {
        let mut data_type = self.dtype.data_type();
        if element_field(field.data_type()).is_some() {
            data_type = with_element_type(field.data_type(), &data_type);
        }
        let name = output_name(field.name(), &self.suffix);
        let output = Field::new(name, data_type, field.is_nullable());
        let tally = Tally {
            min_count: self.min_count.max(1),
            top_k: self.top_k,
            order: self.order.of_tokens(),
        };
        let mut request = AnalyzerRequest::new(tally, [counted]).row_columns(["token"]);
        if self.stable {
            request = request.continuing(continue_vocabulary, self.numbering_scheme());
        }
        let config = self.clone();
        let encoded = MapOp::fitted([field.name()], [output], [request], move |findings| {
            config.lookup(finding_at(findings, 0)?)
        });
        Ok(PlanOp::Map(encoded.marking([RowMark::Unknown])))
    }

    /// Looks up the ids of tokens.
    fn lookup(&self, finding: &Finding) -> Result<LoweredMap> {
        let tokens = with_reserved(finding, &self.reserved)?;
        let seen = tokens.len() as i64;
        let id_count = seen + i64::from(self.oov_buckets);
        if self.dtype == IdType::Int32 && id_count > i64::from(i32::MAX) {
            let message = format!("{seen} tokens are too many for int32 ids");
            return Err(Fault::new(codes::LIMIT, message));
        }
        let buckets = u64::from(self.oov_buckets);
        let reserved = self.reserved.len() as i64;
        let mut ids = TokenIds {
            tokens: Arc::new(tokens),
            reserved,
            shift: 0,
            others: seen,
            buckets,
            default: self.default,
        };
        if self.stable {
            // Ids of other values stay where they are while tokens are added.
            ids.shift = buckets as i64;
            ids.others = reserved;
        }
        let portable_ids = ids.clone();
        let lookup = match self.dtype {
            IdType::Int64 => lookup_kernel::<Int64Type>(ids, |id| id),
            IdType::Int32 => lookup_kernel::<Int32Type>(ids, |id| id as i32),
        };
        // Other runtimes have no hash of ours: one bucket needs none.
        if buckets > 1 {
            return Ok(lookup);
        }
        Ok(lookup.portable(move || PortableMap::Ids(portable_ids.to_texts())))
    }
}

/// Ids of tokens, and of other values.
#[derive(Clone)]
struct TokenIds {
    tokens: Arc<TokenIndex>,
    /// Tokens that have the first ids
    reserved: i64,
    /// Added to the ids of the tokens behind the reserved ones
    shift: i64,
    /// The first id of other values
    others: i64,
    /// Ids of other values; with none, they get the default
    buckets: u64,
    default: i64,
}

impl TokenIds {
    fn id(&self, text: &str) -> i64 {
        match self.tokens.find(text).map(i64::from) {
            Some(id) if id < self.reserved => id,
            Some(id) => id + self.shift,
            None if self.buckets == 0 => self.default,
            None => self.others + scaled_hash(text.as_bytes(), 0, self.buckets) as i64,
        }
    }

    /// Marks the values that are out of vocabulary, given their ids.
    fn mark_others<T: ArrowPrimitiveType<Native: Into<i64>>>(
        &self,
        column: &ArrayRef,
        ids: &ArrayRef,
    ) -> Result<ArrayRef> {
        let tokens = self.reserved..self.tokens.len() as i64;
        if self.buckets == 0 && tokens.contains(&self.default) {
            // A token has the id of all others, too.
            let is_other = each_element(column, |values| {
                let texts = StringColumn::of(values)?;
                let marks = gather_ids::<Int8Type>(&texts, |text| {
                    Ok(Some(i8::from(self.tokens.find(text).is_none())))
                })?;
                Ok(Arc::new(marks) as ArrayRef)
            })?;
            return mark_values::<Int8Type>(&is_other, |is_other| is_other == 1);
        }
        let ids_of_others = if self.buckets == 0 {
            self.default..=self.default
        } else {
            self.others..=self.others + self.buckets as i64 - 1
        };
        mark_values::<T>(ids, |id| {
            let id: i64 = id.into();
            ids_of_others.contains(&id)
        })
    }

    /// The ids for runtimes without a hash.
    fn to_texts(&self) -> TextIds {
        let tokens = self.tokens.to_texts();
        TextIds {
            ids: tokens.iter().map(|token| self.id(token)).collect(),
            tokens,
            default: Some(if self.buckets == 0 {
                self.default
            } else {
                self.others
            }),
        }
    }
}

/// Writes a list of the texts of several columns.
fn tokens_op(columns: &[&str], output: &str) -> PlanOp {
    let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
    let output = Field::new(output, DataType::List(item), true);
    PlanOp::Map(MapOp::new(
        columns.iter().copied(),
        [output],
        |inputs, rows| {
            let mut columns = Vec::with_capacity(inputs.len());
            for input in inputs {
                columns.push(RowTexts::of(input)?);
            }
            let mut lists = ListBuilder::new(StringBuilder::new());
            let mut list_bytes = GrowingOutput::default();
            for row in 0..rows {
                for column in &columns {
                    for position in column.of_row(row) {
                        if let Some(text) = column.text(position)? {
                            list_bytes.grow(text.len() + size_of::<i32>())?;
                            lists.values().append_value(text);
                        }
                    }
                }
                lists.append(true);
            }
            Ok(vec![Arc::new(lists.finish()) as ArrayRef])
        },
    ))
}

/// A kernel of ids, and of marks of the values that are out of vocabulary.
fn lookup_kernel<T: ArrowPrimitiveType<Native: Into<i64>>>(
    token_ids: TokenIds,
    to_native: fn(i64) -> T::Native,
) -> LoweredMap {
    let memo = DictionaryCache::<T>::default();
    LoweredMap::new(move |inputs, _| {
        let [column] = inputs else {
            return Err(Fault::internal("a vocabulary received other columns"));
        };
        let ids = each_element(column, |values| {
            let texts = StringColumn::of(values)?;
            let ids = memo.gather(&texts, |text| Ok(Some(to_native(token_ids.id(text)))))?;
            Ok(Arc::new(ids) as ArrayRef)
        })?;
        let marks = token_ids.mark_others::<T>(column, &ids)?;
        Ok(vec![ids, marks])
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
    let mut indexed = StringBuilder::with_capacity(
        tokens.len() + reserved.len(),
        tokens.get_buffer_memory_size(),
    );
    for token in reserved {
        indexed.append_value(token);
    }
    // A reserved token that occurs in the data keeps its reserved id.
    for token in text.iter().flatten() {
        if !reserved
            .iter()
            .any(|reserved_token| reserved_token == token)
        {
            indexed.append_value(token);
        }
    }
    TokenIndex::new(Arc::new(indexed.finish()))
}
