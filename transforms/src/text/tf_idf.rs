//! `tf_idf`: counts of tokens, weighted by how rare the tokens are.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field, UInt32Type, UInt64Type};
use forebay_analyze::{ColumnCounts, TokenVocabulary, VocabularyOrder};
use forebay_model::{Finding, Result, StringColumn};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, GrowingOutput, LoweredMap,
    MapOp, PlanOp, Transform, admit_output,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::categorical::{vector_array, vector_field};
use crate::shared::{
    RowTexts, TokenIndex, element_field, finding_at, gather_ids, large_lists, output_name,
};
use crate::time::hide_helper_columns;

/// The counts of a row's tokens, each times a weight that is greater the fewer rows have the token:
/// `ln((1 + rows) / (1 + rows with the token)) + 1`.
///
/// In: lists of strings (or of integers, ...: as their text), such as those of `ngrams`. Out: a fixed-size list of
/// `float32`, one place per learned token in byte order, divided by its norm. Null, an empty list, null elements and
/// unknown tokens give zeros; a null row does not count, one with an empty list does. More than 65,536 tokens are a
/// fault. State: the distinct tokens with exact counts, spilled beyond the budget. Follows scikit-learn's
/// `TfidfVectorizer`; with `counts: share` and `norm: none` tf.Transform's `tfidf`.
///
/// ```yaml
/// - tf_idf: { columns: [tags], min_count: 5, top_k: 1000, suffix: _weights }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn tf_idf(columns),
    example = r#"tf_idf(["title_words"]).counts(TokenCounts::Share).norm(TokenNorm::None)"#
)]
pub struct TfIdf {
    /// Columns of lists of tokens.
    pub columns: ColumnSelector,
    /// Tokens of fewer rows give no place.
    #[serde(default = "one")]
    pub min_count: u64,
    /// At most so many tokens: those of the most rows, of equal numbers of rows the first in byte order.
    #[serde(default)]
    pub top_k: Option<usize>,
    /// The number that the weight multiplies.
    #[serde(default)]
    pub counts: TokenCounts,
    /// Counts one row more that has every token, so that no weight is infinite; else the weight is
    /// `ln(rows / rows with the token) + 1`.
    #[serde(default = "yes")]
    pub smooth: bool,
    /// The length of a row's vector that divides it.
    #[serde(default)]
    pub norm: TokenNorm,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

/// The number of a token in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenCounts {
    /// The number of times that the row has the token.
    #[default]
    Count,
    /// `1 + ln(count)`, as scikit-learn has with `sublinear_tf=True`.
    Logarithm,
    /// The count divided by the number of the row's elements.
    Share,
}

/// The length of a vector of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenNorm {
    /// The root of the sum of squares.
    #[default]
    L2,
    /// The sum.
    L1,
    /// 1: the vector stays as it is.
    None,
}

impl ConfiguredTransform for TfIdf {
    const NAME: &'static str = "tf_idf";
}

impl Transform for TfIdf {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let is_list = |field: &Field| {
            element_field(field.data_type()).is_some_and(|element| !element.data_type().is_nested())
        };
        let mut ops = Vec::new();
        let mut outputs = Vec::new();
        for field in scope.typed_columns(&self.columns, "a list of strings", is_list)? {
            let output = output_name(field.name(), &self.suffix);
            let distinct = format!("__distinct_{}", field.name());
            ops.push(distinct_op(field.name(), &distinct));
            ops.push(self.weights_op(field.name(), &distinct, &output)?);
            outputs.push(output);
        }
        // The distinct tokens are columns only to be counted.
        ops.push(hide_helper_columns(scope, outputs));
        Ok(ops)
    }
}

impl TfIdf {
    fn weights_op(&self, column: &str, distinct: &str, output: &str) -> Result<PlanOp> {
        let vocabulary = TokenVocabulary {
            min_count: self.min_count.max(1),
            top_k: self.top_k,
            order: VocabularyOrder::Value,
        };
        let requests = [
            AnalyzerRequest::new(vocabulary, [distinct]),
            AnalyzerRequest::new(ColumnCounts, [distinct]),
        ];
        let field = vector_field(output, 0)?;
        let output = output.to_owned();
        let config = self.clone();
        let map = MapOp::fitted([column], [field], requests, move |findings| {
            let tokens = finding_at(findings, 0)?;
            let weighing = TokenWeighing {
                config: config.clone(),
                weights: config.token_weights(tokens, finding_at(findings, 1)?)?,
                tokens: TokenIndex::from_finding(tokens)?,
            };
            let field = vector_field(&output, weighing.weights.len())?;
            let lowered = LoweredMap::unary(move |lists: &ArrayRef| weighing.vectors(lists));
            Ok(lowered.fields(vec![field]))
        });
        Ok(PlanOp::Map(map))
    }

    /// The weight of each token of a vocabulary, whose counts are numbers of rows.
    fn token_weights(&self, tokens: &Finding, rows: &Finding) -> Result<Vec<f64>> {
        let nulls = rows.number("nulls")?.unwrap_or(0.0);
        let rows = rows.number("rows")?.unwrap_or(0.0) - nulls;
        let added = if self.smooth { 1.0 } else { 0.0 };
        let counts = tokens.column("count")?.as_primitive::<UInt64Type>();
        let weight = |count: &u64| ((rows + added) / (*count as f64 + added)).ln() + 1.0;
        Ok(counts.values().iter().map(weight).collect())
    }

    fn token_number(&self, count: usize, elements: usize) -> f64 {
        let count = count as f64;
        match self.counts {
            TokenCounts::Count => count,
            TokenCounts::Logarithm => 1.0 + count.ln(),
            TokenCounts::Share => count / elements as f64,
        }
    }

    fn length(&self, values: &[(u32, f64)]) -> f64 {
        let length: f64 = match self.norm {
            TokenNorm::None => 1.0,
            TokenNorm::L1 => values.iter().map(|(_, value)| value.abs()).sum(),
            TokenNorm::L2 => {
                let squares: f64 = values.iter().map(|(_, value)| value * value).sum();
                squares.sqrt()
            }
        };
        if length == 0.0 { 1.0 } else { length }
    }
}

/// A learned vocabulary with its weights.
struct TokenWeighing {
    config: TfIdf,
    tokens: TokenIndex,
    weights: Vec<f64>,
}

impl TokenWeighing {
    /// A vector for each list of tokens.
    fn vectors(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let lists = large_lists(column)?;
        let texts = StringColumn::of(lists.values())?;
        let ids = gather_ids::<UInt32Type>(&texts, |text| Ok(self.tokens.find(text)))?;
        let width = self.weights.len();
        admit_output(size_of::<f32>() * width * lists.len())?;
        let mut vectors = vec![0.0_f32; lists.len() * width];
        let mut row_ids: Vec<u32> = Vec::new();
        let mut values = Vec::new();
        for (row, ends) in lists.offsets().windows(2).enumerate() {
            if lists.is_null(row) {
                continue;
            }
            let elements = ends[0] as usize..ends[1] as usize;
            let length = elements.len();
            row_ids.clear();
            for element in elements {
                if ids.is_valid(element) {
                    row_ids.push(ids.value(element));
                }
            }
            row_ids.sort_unstable();
            values.clear();
            for same in row_ids.chunk_by(|id, next| id == next) {
                let id = same[0];
                let number = self.config.token_number(same.len(), length);
                values.push((id, number * self.weights[id as usize]));
            }
            let norm = self.config.length(&values);
            for (id, value) in &values {
                vectors[row * width + *id as usize] = (value / norm) as f32;
            }
        }
        vector_array(vectors, width, lists.len())
    }
}

/// Writes the distinct tokens of each list, in the order in which they come first.
fn distinct_op(column: &str, output: &str) -> PlanOp {
    let item = Field::new_list_field(DataType::Utf8, true);
    let output = Field::new(output, DataType::List(Arc::new(item)), true);
    PlanOp::Map(MapOp::new([column], [output], |inputs, _| {
        let mut outputs = Vec::with_capacity(inputs.len());
        for input in inputs {
            outputs.push(distinct_tokens(input)?);
        }
        Ok(outputs)
    }))
}

fn distinct_tokens(column: &ArrayRef) -> Result<ArrayRef> {
    let texts = RowTexts::of(column)?;
    let mut distinct = ListBuilder::new(StringBuilder::new());
    let mut list_bytes = GrowingOutput::default();
    let mut seen = HashSet::new();
    for row in 0..column.len() {
        if column.is_null(row) {
            distinct.append_null();
            continue;
        }
        seen.clear();
        for position in texts.of_row(row) {
            if let Some(text) = texts.text(position)?
                && seen.insert(text)
            {
                list_bytes.grow(text.len() + size_of::<i32>())?;
                distinct.values().append_value(text);
            }
        }
        distinct.append(true);
    }
    Ok(Arc::new(distinct.finish()))
}
