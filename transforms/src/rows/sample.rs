//! `sample`: a share of the rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, RowChange, StringColumn, codes, type_words};
use forebay_plan::{
    BindScope, ColumnKernel, ConfiguredTransform, FilterOp, LearningFilter, MapOp, PlanOp,
    StepChange, StepFacts, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::filter::{FilterScope, first_scored, passing_from, scored_rows};
use crate::shared::bad_value;

/// Keeps a share of the rows, or of those for which a condition is true, chosen by the hash of key columns.
///
/// Rows of equal keys are kept together, in each run and on each machine: `by: [user]` keeps users as a whole. With
/// `of`, rows for which the condition is not true all stay: `of: "clicked = 0"` thins out the rows without a click, and
/// a step for each class gives each its share. Keys are hashed (xxh3) as their text, independently of a split by hash;
/// null is a key. The share of the rows is `share` on average over the keys. `weight` adds a column of `float64` that
/// makes up for it: `1 / share` in the rows of the condition, else 1. It tells the condition: keep it out of the
/// features where the condition is about the label.
///
/// Samples are to learn from, unless `when: always`: rows that are scored all stay, with the weight 1, as for `filter`.
/// Removed rows are counted as `unsampled`. Learns nothing, holds nothing. A share that is not above 0 and at most 1 is
/// a fault. Follows Spark's `sampleBy` and the negative down-sampling of click models.
///
/// ```yaml
/// - sample: { share: 0.5, by: [store, date], of: "qty = 0", weight: weight }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn sample(share),
    example = r#"sample(0.1).by(["user"]).of("clicked = 0").weight("weight")"#
)]
pub struct RowSample {
    /// The share of the keys that is kept, above 0 and at most 1.
    pub share: f64,
    /// Columns whose values are the key of a row; where left out, the keys and the time that the source declares.
    #[serde(default)]
    pub by: Option<Vec<String>>,
    /// The condition of the rows that are sampled; where left out, all are.
    #[serde(default)]
    #[schemars(extend("format" = "sql"))]
    pub of: Option<String>,
    /// The name of a column of weights; none is written where left out.
    #[serde(default)]
    pub weight: Option<String>,
    /// Changes which keys are kept.
    #[serde(default)]
    pub seed: u64,
    /// The rows that the step is for.
    #[serde(default = "learning")]
    pub when: FilterScope,
    /// The time from which on rows are scored, and pass. Set where an artifact is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[setters(skip)]
    pub history_until: Option<String>,
}

fn learning() -> FilterScope {
    FilterScope::Learning
}

impl ConfiguredTransform for RowSample {
    const NAME: &'static str = "sample";
}

impl Transform for RowSample {
    fn facts(&self) -> StepFacts {
        let learning_filter = match (self.when, &self.weight) {
            (FilterScope::Always, _) => None,
            (FilterScope::Learning, None) => Some(LearningFilter::RowsOnly),
            (FilterScope::Learning, Some(_)) => Some(LearningFilter::WithColumns),
        };
        StepFacts {
            learning_filter,
            ..StepFacts::default()
        }
    }

    fn change(&self, config: &mut Value, change: &StepChange<'_>) {
        let StepChange::PassScoredRows { from } = change else {
            return;
        };
        if self.when != FilterScope::Learning {
            return;
        }
        match from {
            Some(from) => config["history_until"] = Value::from(*from),
            None => config["share"] = Value::from(1.0),
        }
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            let message = format!("`share` {} is not above 0 and at most 1", self.share);
            return Err(bad_value(message).field("share"));
        }
        let mut share = self.share;
        let mut scored_from = None;
        if let Some(until) = &self.history_until {
            match &scope.series.time {
                Some(time) => {
                    scored_from = Some((time.clone(), first_scored(until, scope.field(time)?)?));
                }
                // Rows that do not tell their time may be scored.
                None => share = 1.0,
            }
        }
        let mut keys = self.key_columns(scope)?;
        let mut condition_reads = Vec::new();
        let mut condition = None;
        if share == 1.0 {
            // All rows pass, whatever they hold: scored ones need no columns for that.
            keys.clear();
        } else if let Some(sql) = &self.of {
            let compiled = scope.sql.condition(sql, scope.schema)?;
            condition_reads = compiled.reads;
            condition = Some(compiled.kernel);
        }
        let sampler = Arc::new(RowSampler {
            share,
            seed: self.seed,
            keys: keys.len(),
            condition,
        });
        let reads = keys.into_iter().chain(condition_reads.clone());
        let mut ops = vec![self.filter_op(reads.collect(), sampler.clone(), scored_from.clone())];
        // Weights come last: they may replace a column that the condition reads.
        if let Some(name) = &self.weight {
            ops.push(weight_op(name, condition_reads, sampler, scored_from));
        }
        Ok(ops)
    }
}

impl RowSample {
    /// The columns whose values are the key of a row.
    fn key_columns(&self, scope: &BindScope<'_>) -> Result<Vec<String>> {
        let columns: Vec<String> = match &self.by {
            Some(columns) => columns.clone(),
            None => {
                let keys = scope.series.keys.iter().flatten();
                keys.chain(&scope.series.time).cloned().collect()
            }
        };
        if columns.is_empty() {
            let message = "`sample` needs columns by which rows are chosen";
            let hint = "set `by` to columns that identify a row or a user, or declare `keys` and \
                        `time` at the source";
            return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
        }
        for column in &columns {
            let field = scope.field(column)?;
            if field.data_type().is_nested() {
                let words = type_words(field.data_type());
                let message = format!("`{column}` is {words}, by which no rows are chosen");
                return Err(Fault::new(codes::COLUMN_TYPE, message).column(column));
            }
        }
        Ok(columns)
    }

    fn filter_op(
        &self,
        mut reads: Vec<String>,
        sampler: Arc<RowSampler>,
        scored_from: Option<(String, i64)>,
    ) -> PlanOp {
        let mut kernel: ColumnKernel = Arc::new(move |inputs: &[ArrayRef], rows: usize| {
            Ok(vec![Arc::new(sampler.keeps(inputs, rows)?) as ArrayRef])
        });
        if let Some((time, first)) = scored_from {
            reads.insert(0, time);
            kernel = passing_from(first, kernel);
        }
        PlanOp::Keep(FilterOp {
            reads,
            kernel,
            condition: None,
            learning: self.when == FilterScope::Learning,
            reason: RowChange::Unsampled,
            valued: Vec::new(),
        })
    }
}

/// Writes the weight of each row.
fn weight_op(
    name: &str,
    mut reads: Vec<String>,
    sampler: Arc<RowSampler>,
    scored_from: Option<(String, i64)>,
) -> PlanOp {
    let output = Field::new(name, DataType::Float64, false);
    let mut first = None;
    if let Some((time, first_tick)) = scored_from {
        reads.insert(0, time);
        first = Some(first_tick);
    }
    PlanOp::Map(MapOp::new(reads, [output], move |inputs, rows| {
        let weights = sampler.weights(inputs, rows, first)?;
        Ok(vec![Arc::new(weights) as ArrayRef])
    }))
}

/// Chooses rows by their keys.
struct RowSampler {
    share: f64,
    seed: u64,
    /// Number of the columns with keys, which come first.
    keys: usize,
    condition: Option<ColumnKernel>,
}

impl RowSampler {
    /// Marks the rows that stay.
    fn keeps(&self, inputs: &[ArrayRef], rows: usize) -> Result<BooleanArray> {
        let Some((keys, condition_inputs)) = inputs.split_at_checked(self.keys) else {
            return Err(Fault::internal("a sample without its keys"));
        };
        let is_sampled = self.sampled_rows(condition_inputs, rows)?;
        let positions = self.key_positions(keys, rows)?;
        let mut keeps = Vec::with_capacity(rows);
        for (position, is_sampled) in positions.iter().zip(is_sampled) {
            keeps.push(!is_sampled || *position < self.share);
        }
        Ok(BooleanArray::from(keeps))
    }

    /// The weight of each row; 1 for those from a time on, which is the first input then.
    fn weights(
        &self,
        inputs: &[ArrayRef],
        rows: usize,
        first_scored: Option<i64>,
    ) -> Result<Float64Array> {
        let mut condition_inputs = inputs;
        let mut scored = BooleanArray::from(vec![false; rows]);
        if let Some(first) = first_scored {
            let Some((time, others)) = inputs.split_first() else {
                return Err(Fault::internal("a sample without the time of its rows"));
            };
            scored = scored_rows(first, time)?;
            condition_inputs = others;
        }
        let is_sampled = self.sampled_rows(condition_inputs, rows)?;
        let mut weights = Vec::with_capacity(rows);
        for (row, is_sampled) in is_sampled.into_iter().enumerate() {
            let is_weighted = is_sampled && !scored.value(row);
            weights.push(if is_weighted { 1.0 / self.share } else { 1.0 });
        }
        Ok(Float64Array::from(weights))
    }

    /// True for the rows of which a share is kept.
    fn sampled_rows(&self, inputs: &[ArrayRef], rows: usize) -> Result<Vec<bool>> {
        let Some(condition) = &self.condition else {
            return Ok(vec![true; rows]);
        };
        let holds = condition(inputs, rows)?;
        let holds = holds.first().and_then(|holds| holds.as_boolean_opt());
        Ok(match holds {
            Some(holds) => holds.iter().map(|holds| holds == Some(true)).collect(),
            None => vec![false; rows],
        })
    }

    /// A number in [0, 1) for the key of each row, evenly distributed over keys.
    fn key_positions(&self, keys: &[ArrayRef], rows: usize) -> Result<Vec<f64>> {
        // A split by hash begins with its seed: the same keys are then at other places.
        let mut hashes = vec![xxh3_64_with_seed(b"sample", self.seed); rows];
        for column in keys {
            let of_value = |text: Option<&str>| text.map_or(1, |text| xxh3_64(text.as_bytes()));
            let values = StringColumn::of(column)?.map(of_value)?;
            for (hash, value) in hashes.iter_mut().zip(values) {
                *hash = xxh3_64_with_seed(&value.to_le_bytes(), *hash);
            }
        }
        // The upper 53 bits are exact in a double.
        let scale = 1.0 / (1_u64 << 53) as f64;
        Ok(hashes
            .iter()
            .map(|hash| (hash >> 11) as f64 * scale)
            .collect())
    }
}
