//! `frequency_encoding`: categories to the number of their rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, UInt64Type};
use forebay_analyze::{ColumnCounts, TokenVocabulary, VocabularyOrder};
use forebay_contract::{CategoryNumbers, PortableMap};
use forebay_model::{Result, StringColumn};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    RowMark, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::group_rare::value_count;
use crate::shared::{DictionaryCache, TokenIndex, finding_at, mark_values, output_field};

/// The frequency of a category: its share of all values, or its count.
///
/// In: strings, integers, booleans, dates (as their text). Out: `float64` for shares, `int64` for counts. Null stays
/// null and is never counted; the empty string is a category. A category that was never seen gives 0, and so does
/// every value where nothing was seen. State: the distinct values with exact counts, spilled beyond the budget; those
/// of at least `min_count` have to fit memory. Follows category_encoders' `CountEncoder`, feature_engine's
/// `CountFrequencyEncoder` and the counts of NVTabular's `JoinGroupby`.
///
/// ```yaml
/// - frequency_encoding: { columns: [item], suffix: _share }
/// - frequency_encoding: { columns: [store], compute: count, suffix: _rows }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn frequency_encoding(columns),
    example = r#"frequency_encoding(["city"]).compute(CategoryFrequency::Count)"#
)]
pub struct FrequencyEncoding {
    /// Columns of categories; each is counted by itself.
    pub columns: ColumnSelector,
    /// Which number is written.
    #[serde(default)]
    pub compute: CategoryFrequency,
    /// Categories seen less often give 0, as those that were never seen.
    #[serde(default = "one")]
    pub min_count: u64,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn one() -> u64 {
    1
}

/// A number for the frequency of a category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CategoryFrequency {
    /// The count divided by the number of values that are not null.
    #[default]
    Share,
    /// The number of values.
    Count,
}

impl ConfiguredTransform for FrequencyEncoding {
    const NAME: &'static str = "frequency_encoding";
}

impl Transform for FrequencyEncoding {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
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

impl FrequencyEncoding {
    fn column_op(&self, field: &Field) -> PlanOp {
        let out_type = match self.compute {
            CategoryFrequency::Share => DataType::Float64,
            CategoryFrequency::Count => DataType::Int64,
        };
        let tally = TokenVocabulary {
            min_count: self.min_count.max(1),
            top_k: None,
            order: VocabularyOrder::CountThenValue,
        };
        let mut requests = vec![AnalyzerRequest::new(tally, [field.name()])];
        if self.compute == CategoryFrequency::Share {
            requests.push(AnalyzerRequest::new(ColumnCounts, [field.name()]));
        }
        let compute = self.compute;
        let output = output_field(field, &self.suffix, out_type);
        let map = MapOp::fitted([field.name()], [output], requests, move |findings| {
            let vocabulary = finding_at(findings, 0)?;
            let tokens = Arc::new(TokenIndex::from_finding(vocabulary)?);
            let counts = vocabulary.column("count")?;
            let counts = counts.as_primitive::<UInt64Type>().clone();
            // A count is a share of 1.
            let (map, whole) = match compute {
                CategoryFrequency::Count => {
                    let map = lookup::<Int64Type>(&tokens, &counts, |count| count as i64);
                    (map, 1)
                }
                CategoryFrequency::Share => {
                    let values = value_count(finding_at(findings, 1)?)?;
                    let map = lookup::<Float64Type>(&tokens, &counts, |count| {
                        count as f64 / values as f64
                    });
                    (map, values)
                }
            };
            Ok(map.portable(move || {
                let numbers = counts.values().iter();
                PortableMap::CategoryNumbers(CategoryNumbers {
                    tokens: tokens.to_texts(),
                    numbers: numbers.map(|count| *count as f64 / whole as f64).collect(),
                    default: 0.0,
                    missing: f64::NAN,
                })
            }))
        });
        PlanOp::Map(map.marking([RowMark::Unknown]))
    }
}

/// A kernel that looks up a number of each category's count, 0 for categories without one, and marks these.
fn lookup<T: ArrowPrimitiveType>(
    tokens: &Arc<TokenIndex>,
    counts: &UInt64Array,
    number: impl Fn(u64) -> T::Native,
) -> LoweredMap {
    let numbers: Vec<T::Native> = counts.values().iter().map(|count| number(*count)).collect();
    let tokens = tokens.clone();
    let cache = DictionaryCache::<T>::default();
    LoweredMap::new(move |inputs, _| {
        let of_text = |text: &str| {
            let position = tokens.find(text);
            let number = position.and_then(|position| numbers.get(position as usize));
            Ok(Some(number.copied().unwrap_or_default()))
        };
        let gathered = cache.gather(&StringColumn::of(&inputs[0])?, of_text)?;
        let gathered: ArrayRef = Arc::new(gathered);
        let marks = mark_values::<T>(&gathered, |number| number == T::Native::default())?;
        Ok(vec![gathered, marks])
    })
}
