//! `group_rare`: one category for all that are rare.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Int32Type, UInt64Type};
use forebay_analyze::{ColumnCounts, TokenVocabulary, VocabularyOrder};
use forebay_contract::{KeptTexts, PortableMap};
use forebay_model::{Fault, Finding, Result, StringColumn, TextRef};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    RowMark, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{
    DictionaryCache, TokenIndex, bad_value, finding_at, mark_values, output_field,
};

/// Rare categories, and those that were never seen, become one category.
///
/// In: strings, integers, booleans, dates (as their text). Out: `string`. A category stays if it has `min_count`
/// values and `min_share` of all values that are not null, and is among the `top_k` most frequent ones (ties in byte
/// order); at least one of the three is needed. Null stays null and is never counted; the empty string is a category.
/// A category that is itself called like `other` joins the rare ones. Nothing seen: every value is `other`. State:
/// the distinct values with exact counts, spilled beyond the budget; those that stay have to fit memory. Follows
/// feature_engine's `RareLabelEncoder`, and `min_frequency` and `max_categories` of scikit-learn's `OneHotEncoder`.
///
/// ```yaml
/// - group_rare: { columns: [item], min_share: 0.01, other: seldom }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn group_rare(columns),
    example = r#"group_rare(["city"]).min_count(100).other("elsewhere")"#
)]
pub struct GroupRare {
    /// Columns of categories; each is counted by itself.
    pub columns: ColumnSelector,
    /// Categories seen less often are rare.
    #[serde(default)]
    pub min_count: Option<u64>,
    /// Categories with a smaller share of the values are rare; a number from 0 to 1.
    #[serde(default)]
    pub min_share: Option<f64>,
    /// All but so many of the most frequent categories are rare.
    #[serde(default)]
    pub top_k: Option<usize>,
    /// The category that rare ones become.
    #[serde(default = "other")]
    pub other: String,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn other() -> String {
    "other".to_owned()
}

impl ConfiguredTransform for GroupRare {
    const NAME: &'static str = "group_rare";
}

impl Transform for GroupRare {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.min_count.is_none() && self.min_share.is_none() && self.top_k.is_none() {
            return Err(bad_value(
                "`group_rare` needs `min_count`, `min_share` or `top_k`",
            ));
        }
        if let Some(share) = self.min_share
            && !(share > 0.0 && share <= 1.0)
        {
            return Err(bad_value(format!(
                "`min_share` {share} is not above 0 and at most 1"
            )));
        }
        let fields = scope.typed_columns(&self.columns, "a category", |field| {
            !field.data_type().is_nested()
        })?;
        let mut ops = Vec::new();
        for field in fields {
            ops.push(self.column_op(field));
        }
        Ok(ops)
    }
}

impl GroupRare {
    fn column_op(&self, field: &Field) -> PlanOp {
        let output = output_field(field, &self.suffix, DataType::Utf8);
        // Categories of a share are so few: only those are ranked.
        let of_share = self.min_share.map(|share| (1.0 / share).ceil() as usize);
        let tally = TokenVocabulary {
            min_count: self.min_count.unwrap_or(1).max(1),
            top_k: self.top_k.into_iter().chain(of_share).min(),
            order: VocabularyOrder::CountThenValue,
        };
        let requests = [
            AnalyzerRequest::new(tally, [field.name()]),
            AnalyzerRequest::new(ColumnCounts, [field.name()]),
        ];
        let min_share = self.min_share.unwrap_or(0.0);
        let other = self.other.clone();
        let map = MapOp::fitted([field.name()], [output], requests, move |findings| {
            let values = value_count(finding_at(findings, 1)?)?;
            // A share that is written as 0.07 is 7 / 100 to the last bit, and 0.07 * 100 is not 7.
            let is_frequent = |count: u64| count as f64 / values as f64 >= min_share;
            let texts = frequent_texts(finding_at(findings, 0)?, is_frequent, &other)?;
            let other_id = texts.len() as i32 - 1;
            let tokens = Arc::new(TokenIndex::new(texts.clone())?);
            let all_tokens = tokens.clone();
            let other = other.clone();
            let cache = DictionaryCache::<Int32Type>::default();
            let grouping = LoweredMap::new(move |inputs, _| {
                let ids = cache.gather(&StringColumn::of(&inputs[0])?, |text| {
                    let position = tokens.find(text).map(|position| position as i32);
                    Ok(Some(position.unwrap_or(other_id)))
                })?;
                let grouped = DictionaryArray::<Int32Type>::try_new(ids.clone(), texts.clone())?;
                let ids: ArrayRef = Arc::new(ids);
                let marks = mark_values::<Int32Type>(&ids, |id| id == other_id)?;
                let grouped: ArrayRef = Arc::new(grouped);
                Ok(vec![grouped, marks])
            });
            Ok(grouping.portable(move || {
                let mut texts = all_tokens.to_texts();
                // That of all others is the last one.
                texts.pop();
                let other = other.clone();
                PortableMap::Texts(KeptTexts { texts, other })
            }))
        });
        PlanOp::Map(map.marking([RowMark::Unknown]))
    }
}

/// Number of values that are not null.
pub(super) fn value_count(counts: &Finding) -> Result<u64> {
    let rows = counts.column("rows")?.as_primitive::<UInt64Type>();
    let nulls = counts.column("nulls")?.as_primitive::<UInt64Type>();
    Ok(rows.value(0).saturating_sub(nulls.value(0)))
}

/// The tokens with frequent counts, and `other` behind them.
fn frequent_texts(
    finding: &Finding,
    is_frequent: impl Fn(u64) -> bool,
    other: &str,
) -> Result<ArrayRef> {
    let tokens = finding.column("token")?;
    let counts = finding.column("count")?.as_primitive::<UInt64Type>();
    let texts = TextRef::new(tokens).ok_or_else(|| Fault::internal("a vocabulary is not text"))?;
    let mut frequent = StringBuilder::new();
    for (position, text) in texts.iter().enumerate() {
        let stays = is_frequent(counts.value(position));
        if let Some(text) = text.filter(|text| stays && *text != other) {
            frequent.append_value(text);
        }
    }
    frequent.append_value(other);
    Ok(Arc::new(frequent.finish()))
}
