//! Models for the steps of the horizon: each takes the columns that are known so far ahead.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::UInt32Type;
use forebay_contract::StepColumns;
use forebay_feed::BatchFeatures;
use forebay_model::{Fault, Result, codes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tensors::invalid_model_fault;

/// Division of the steps of a horizon among models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForecastStrategy {
    /// One model predicts all steps. Its features end before the label's `horizon`.
    #[default]
    Direct,
    /// A model for each step, of the features that are known so far ahead: the first may take the lag of a day, the
    /// second that of two days. Steps with the same features share a model. The features need only be known one step
    /// ahead.
    PerStep,
    /// One model that looks one step ahead and predicts the steps in sequence: its prediction for a
    /// step is the label of that step in lags and windows of the next. All other columns that
    /// features look at have to be known for the whole horizon, and the history must be in order of
    /// time. The label is a number with a fraction.
    Recursive,
}

impl ForecastStrategy {
    pub(super) fn is_default(&self) -> bool {
        *self == ForecastStrategy::default()
    }
}

/// Assignment of steps to models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepModels {
    /// Number of the model of each step, from the first on.
    models: Vec<u32>,
}

/// The features of one model among those of the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFeatures {
    /// For each feature of a row, true if the model takes it.
    pub allowed: Arc<[bool]>,
    /// Number of steps that it predicts.
    pub steps: u64,
}

/// Fails where columns are not known for all steps.
pub(super) fn check_whole_columns(columns: &StepColumns, whole: &[&str]) -> Result<()> {
    let steps_known = |column: &str| columns.known.get(column).copied().unwrap_or(0);
    let Some(column) = whole
        .iter()
        .find(|column| steps_known(column) < columns.steps)
    else {
        return Ok(());
    };
    let message = format!(
        "`{column}` is known for {} of {} steps, and decides about the models of all",
        steps_known(column),
        columns.steps
    );
    let fault = Fault::new(codes::LEAKAGE, message).column(*column);
    Err(fault.hint(
        "name a key, a column that `future_rows` carries on, one under the label's `known`, or a \
         window that ends before the horizon",
    ))
}

impl StepModels {
    /// Divides the steps of a horizon into runs with the same features. The columns in `whole` must be known for all
    /// steps.
    pub fn divide(
        columns: &StepColumns,
        features: &BatchFeatures,
        whole: &[&str],
    ) -> Result<(StepModels, Vec<StepFeatures>)> {
        check_whole_columns(columns, whole)?;
        let steps_known = |column: &str| columns.known.get(column).copied().unwrap_or(0);
        let mut models = Vec::new();
        let mut step_features: Vec<StepFeatures> = Vec::new();
        for step in 1..=columns.steps {
            let fields = features.dense.iter().chain(&features.categorical);
            let allowed: Arc<[bool]> = fields
                .flat_map(|field| {
                    std::iter::repeat_n(steps_known(&field.column) >= step, field.width as usize)
                })
                .collect();
            if !allowed.contains(&true) {
                let fault = Fault::new(
                    codes::BAD_VALUE,
                    format!("no feature is known {step} steps ahead"),
                );
                return Err(fault.hint(
                    "add lags or windows that end as far back as the horizon, or shorten it",
                ));
            }
            match step_features.last_mut() {
                Some(last) if last.allowed == allowed => last.steps += 1,
                _ => step_features.push(StepFeatures { allowed, steps: 1 }),
            }
            models.push(step_features.len() as u32 - 1);
        }
        Ok((StepModels { models }, step_features))
    }

    /// Steps of the horizon.
    pub fn step_count(&self) -> u64 {
        self.models.len() as u64
    }

    /// Number of the model that predicts a step, counted from 1.
    pub fn model_of(&self, step: u64) -> usize {
        let index = step.saturating_sub(1) as usize;
        self.models.get(index).map_or(0, |model| *model as usize)
    }

    /// Number of models.
    pub fn count(&self) -> usize {
        self.models.last().map_or(0, |last| *last as usize + 1)
    }

    /// Fails where models do not follow each other.
    pub fn check(&self) -> Result<()> {
        let follows = |pair: &[u32]| pair[1] == pair[0] || Some(pair[1]) == pair[0].checked_add(1);
        let is_whole = self.models.first() == Some(&0) && self.models.windows(2).all(follows);
        is_whole.then_some(()).ok_or_else(invalid_model_fault)
    }

    /// The model of each row, given the steps of rows.
    pub fn of_rows(&self, steps: &ArrayRef) -> Result<Vec<usize>> {
        let steps = steps.as_primitive_opt::<UInt32Type>();
        let steps =
            steps.ok_or_else(|| Fault::internal("steps of the horizon that are no numbers"))?;
        let model = |row: usize| {
            let step = if steps.is_valid(row) {
                steps.value(row)
            } else {
                0
            };
            let model = (step as usize)
                .checked_sub(1)
                .and_then(|step| self.models.get(step));
            model.map(|model| *model as usize).ok_or_else(|| {
                let message = format!(
                    "the model has {} steps, and a row lies {step} steps ahead",
                    self.models.len()
                );
                Fault::new(codes::BAD_VALUE, message)
                    .hint("train the model again: the horizon has changed")
            })
        };
        (0..steps.len()).map(model).collect()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::UInt32Array;
    use forebay_feed::FeatureField;

    use super::*;

    fn features(columns: &[&str]) -> BatchFeatures {
        BatchFeatures {
            dense: columns
                .iter()
                .map(|name| FeatureField::new(*name))
                .collect(),
            ..BatchFeatures::default()
        }
    }

    fn columns(known: &[(&str, u64)]) -> StepColumns {
        StepColumns {
            steps: 4,
            known: known
                .iter()
                .map(|(name, ahead)| ((*name).to_owned(), *ahead))
                .collect(),
        }
    }

    #[test]
    fn steps_with_the_same_features_share_a_model() {
        let known = columns(&[("near", 1), ("far", 4), ("middle", 3), ("unknown", 0)]);
        let (models, of_models) = StepModels::divide(
            &known,
            &features(&["near", "far", "middle", "unknown"]),
            &["far"],
        )
        .unwrap();
        let allowed: Vec<Vec<bool>> = of_models.iter().map(|own| own.allowed.to_vec()).collect();
        let expected = [
            vec![true, true, true, false],
            vec![false, true, true, false],
            vec![false, true, false, false],
        ];
        assert_eq!(allowed, expected);
        assert_eq!(
            of_models.iter().map(|own| own.steps).collect::<Vec<_>>(),
            [1, 2, 1]
        );
        assert_eq!((models.count(), models.check().is_ok()), (3, true));
        let steps: ArrayRef = Arc::new(UInt32Array::from(vec![4, 1, 2, 3]));
        assert_eq!(models.of_rows(&steps).unwrap(), [2, 0, 1, 1]);
        for step in [Some(0), Some(5), None] {
            let steps: ArrayRef = Arc::new(UInt32Array::from(vec![step]));
            assert_eq!(models.of_rows(&steps).unwrap_err().code(), codes::BAD_VALUE);
        }
    }

    #[test]
    fn what_is_not_known_far_enough_ahead_is_refused() {
        let known = columns(&[("near", 1), ("far", 4)]);
        let fault = |own: &[&str], whole: &[&str]| {
            StepModels::divide(&known, &features(own), whole).unwrap_err()
        };
        assert_eq!(fault(&["near"], &[]).code(), codes::BAD_VALUE);
        assert_eq!(fault(&["far"], &["near"]).code(), codes::LEAKAGE);
        for broken in [
            vec![],
            vec![1, 2],
            vec![0, 2],
            vec![0, 1, 0],
            vec![0, u32::MAX],
        ] {
            assert!(StepModels { models: broken }.check().is_err());
        }
    }
}
