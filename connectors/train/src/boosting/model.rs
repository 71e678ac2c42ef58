//! Boosted trees of all groups: their stored form, and their predictions.

use std::collections::{BTreeMap, HashMap};

use arrow::array::{ArrayRef, BooleanArray, Float32Array};
use forebay_contract::{ModelClasses, Predictions};
use forebay_feed::BatchFeatures;
use forebay_model::{Fault, Result, codes};
use serde::{Deserialize, Serialize};

use super::column_fallback::ColumnFallback;
use super::encode::{FeatureCounts, decode_ensembles};
use super::importance::split_columns;
use super::intervals::{IntervalScale, bound_value};
use super::loss::{BoostingLoss, Objective};
use super::rows::feature_table;
use super::steps::StepModels;
use super::tree::TreeEnsemble;
use crate::class_loss::softmax;
use crate::group_names::{GroupName, group_columns, group_name};
use crate::network::ModelShape;
use crate::tensors::invalid_model_fault;

/// Description of boosted trees in their file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoostingCard {
    /// The loss that was minimised.
    pub loss: BoostingLoss,
    /// The power of the variance, where the loss has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tweedie_power: Option<f64>,
    /// The quantile, where the loss has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<f64>,
    /// Quantiles that are predicted in addition to the point forecast.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<f64>,
    /// True if the quantiles are ends of intervals: the bases of their models are distances to the point forecast.
    #[serde(default, skip_serializing_if = "is_false")]
    pub intervals: bool,
    /// The classes of the label, where it is one: each has a model, in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ModelClasses>,
    /// The columns that name groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// Model of each step of the horizon, where there is a model for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepModels>,
    /// True if predictions of a step are values of the label for the next.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recursive: bool,
    /// The column that predicts for groups without a model, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<ColumnFallback>,
    /// The models: first those over all rows, then those of groups; of each, those of the first steps come first, and of
    /// each of these, the point forecast comes before the quantiles.
    pub models: Vec<GroupModelCard>,
}

impl BoostingCard {
    /// Number of models of a group for a step of the horizon: one for each class, or for the point forecast and each
    /// quantile.
    fn outputs(&self) -> usize {
        match &self.classes {
            Some(classes) => classes.count(),
            None => 1 + self.quantiles.len(),
        }
    }

    /// Objectives of the point forecast and of the quantiles; none of classes.
    fn objectives(&self) -> Result<Vec<Objective>> {
        let power = self.tweedie_power.unwrap_or(1.5);
        let point = Objective::new(self.loss, power, self.quantile.unwrap_or(0.5));
        match (&self.classes, point) {
            (None, Some(point)) => {
                let mut objectives = vec![point];
                for quantile in &self.quantiles {
                    objectives.push(Objective::Quantile(*quantile));
                }
                Ok(objectives)
            }
            (Some(classes), None) if classes.is_sound() && self.is_plain() => Ok(Vec::new()),
            _ => Err(invalid_model_fault()),
        }
    }

    /// True if one model serves all rows and steps, and predicts no quantiles.
    fn is_plain(&self) -> bool {
        self.quantiles.is_empty() && self.by.is_empty() && self.steps.is_none() && !self.recursive
    }

    /// The columns that predictions for all steps of the horizon depend on: those that name groups, and those that trees
    /// split by. The models of the last step take the columns that the models of all steps take.
    pub fn decisive_columns(&self, features: &BatchFeatures) -> Vec<String> {
        let outputs = self.outputs();
        let models = outputs * self.steps.as_ref().map_or(1, StepModels::count);
        let mut gains = Vec::new();
        for models_of_group in self.models.chunks(models.max(1)) {
            let last_step = models_of_group.iter().rev().take(outputs);
            gains.extend(last_step.map(|model| model.gains.as_slice()));
        }
        let mut columns = split_columns(features, &gains);
        columns.extend(self.by.iter().cloned());
        columns
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A model of one output.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupModelCard {
    /// The values that name its group; none of the model over all rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: GroupName,
    /// The quantile that it predicts; none of the point forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<f64>,
    /// Id of everything that determines it.
    pub id: String,
    /// Rows that it learned from.
    pub rows: u64,
    /// Rows that it was validated on.
    pub validation_rows: u64,
    /// The mean loss on the rows that it learned from, after its last tree.
    pub learned_loss: f64,
    /// Sums over the validation rows.
    pub errors: ErrorSums,
    /// Loss that splits by each feature took away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<f64>,
    /// Scale of the distance to the point forecast, for an end of an interval that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<IntervalScale>,
}

/// Sums over rows from which metrics are computed. Those of several groups add up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSums {
    /// Weights.
    pub weight: f64,
    /// Losses.
    pub loss: f64,
    /// Squares of errors.
    pub square: f64,
    /// Absolute errors.
    pub absolute: f64,
    /// Absolute labels.
    pub labels: f64,
}

impl ErrorSums {
    /// Adds one row.
    pub fn add(&mut self, objective: Objective, output: f64, label: f32, weight: f64) {
        let error = f64::from(objective.prediction(output)) - f64::from(label);
        self.weight += weight;
        self.loss += weight * objective.value(output, label);
        self.square += weight * error * error;
        self.absolute += weight * error.abs();
        self.labels += weight * f64::from(label).abs();
    }

    /// Adds the rows of another sum.
    pub fn merge(&mut self, other: ErrorSums) {
        self.weight += other.weight;
        self.loss += other.loss;
        self.square += other.square;
        self.absolute += other.absolute;
        self.labels += other.labels;
    }

    /// The sums if each row counts `count` times.
    pub fn times(&self, count: u64) -> ErrorSums {
        let count = count as f64;
        ErrorSums {
            weight: self.weight * count,
            loss: self.loss * count,
            square: self.square * count,
            absolute: self.absolute * count,
            labels: self.labels * count,
        }
    }

    /// Metrics by name; none of no rows.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let measures = [
            ("loss", self.loss / self.weight),
            ("rmse", (self.square / self.weight).sqrt()),
            ("mae", self.absolute / self.weight),
            ("wmape", self.absolute / self.labels),
        ];
        let finite = measures.into_iter().filter(|(_, value)| value.is_finite());
        finite
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// The trees of one output, and the meaning of their sum.
#[derive(Debug, Clone, Copy)]
pub struct ModelOutput<'a> {
    pub objective: Objective,
    /// None of the point forecast
    pub quantile: Option<f64>,
    /// True of the end of an interval: the result is its distance to the point forecast.
    pub around_point: bool,
    /// Scale of that distance, if it has one.
    pub scale: Option<IntervalScale>,
    pub ensemble: &'a TreeEnsemble,
}

/// Boosted trees that can predict.
#[derive(Debug)]
pub struct BoostedModel {
    /// Objectives of the outputs of each model: the point forecast, then the quantiles. None of a model of classes.
    objectives: Vec<Objective>,
    /// True if each ensemble is that of a class.
    of_classes: bool,
    /// True if the quantiles are ends of intervals around the point forecast.
    intervals: bool,
    steps: Option<StepModels>,
    /// Trees of the models, in the order of the card.
    ensembles: Vec<TreeEnsemble>,
    /// Scales of intervals, in the order of the card.
    scales: Vec<Option<IntervalScale>>,
    /// Models by group, in the order of the card. Groups above others have fewer values in their names.
    groups: HashMap<GroupName, usize>,
    fallback: Option<ColumnFallback>,
}

impl BoostedModel {
    /// Reads a model from the bytes of its file and its card.
    pub fn read(bytes: &[u8], card: &BoostingCard, shape: &ModelShape) -> Result<BoostedModel> {
        let features = FeatureCounts {
            numbers: shape.dense_width(),
            ids: shape.ids(),
        };
        let ensembles = decode_ensembles(bytes, features)?;
        card.steps.iter().try_for_each(StepModels::check)?;
        let objectives = card.objectives()?;
        let outputs = card.outputs() * card.steps.as_ref().map_or(1, StepModels::count);
        let is_whole =
            ensembles.len() == card.models.len() && ensembles.len().is_multiple_of(outputs);
        if !is_whole || ensembles.is_empty() {
            return Err(invalid_model_fault());
        }
        let scales: Vec<Option<IntervalScale>> =
            card.models.iter().map(|model| model.scale).collect();
        if scales
            .iter()
            .flatten()
            .any(|scale| scale.number >= features.numbers)
        {
            return Err(invalid_model_fault());
        }
        let groups = card.models.iter().step_by(outputs).enumerate().skip(1);
        let groups = groups
            .map(|(number, model)| (model.group.clone(), number))
            .collect();
        // A model of classes has no groups: one ensemble of each class is all of it.
        if card.classes.is_some() && ensembles.len() != outputs {
            return Err(invalid_model_fault());
        }
        let fallback = card.fallback.clone();
        let steps = card.steps.clone();
        Ok(BoostedModel {
            objectives,
            of_classes: card.classes.is_some(),
            intervals: card.intervals,
            steps,
            ensembles,
            scales,
            groups,
            fallback,
        })
    }

    /// The model of a group, or of the nearest group above it.
    fn model_of(&self, name: &GroupName) -> Option<usize> {
        (1..=name.len())
            .rev()
            .find_map(|values| self.groups.get(&name[..values]).copied())
    }

    /// The outputs of one model: that of a group, or the one over all rows, for a step of the horizon from 1 on.
    pub fn outputs(&self, group: Option<&GroupName>, step: u64) -> Result<Vec<ModelOutput<'_>>> {
        let group_model = match group {
            None => 0,
            Some(name) => self.model_for_export(name)?,
        };
        let step_models = self.steps.as_ref().map_or(1, StepModels::count);
        let step_model = self.steps.as_ref().map_or(0, |steps| steps.model_of(step));
        let output_count = self.objectives.len();
        let first = (group_model * step_models + step_model) * output_count;
        let mut outputs = Vec::new();
        for (number, objective) in self.objectives.iter().enumerate() {
            let quantile = match objective {
                Objective::Quantile(quantile) if number > 0 => Some(*quantile),
                _ => None,
            };
            outputs.push(ModelOutput {
                objective: *objective,
                quantile,
                around_point: self.intervals && number > 0,
                scale: self.scales[first + number],
                ensemble: &self.ensembles[first + number],
            });
        }
        Ok(outputs)
    }

    /// The model that predicts for a group. A column that predicts for groups without one is no model.
    fn model_for_export(&self, name: &GroupName) -> Result<usize> {
        match self.model_of(name) {
            Some(model) => Ok(model),
            None if self.fallback.is_none() => Ok(0),
            None => {
                let message = "the group has no model: a column predicts for it";
                Err(Fault::new(codes::UNSUPPORTED, message).hint("name a group with a model"))
            }
        }
    }

    /// Marks the rows of groups with a model of their own, or of a group above; `None` where there are no groups. Columns
    /// come in the order that [`BoostedModel::predict`] takes.
    pub fn rows_of_groups(
        &self,
        features: &BatchFeatures,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<Option<BooleanArray>> {
        let columns = match (&self.steps, columns.split_last()) {
            (Some(_), Some((_, columns))) => columns,
            _ => columns,
        };
        let names = columns
            .get(features.dense.len() + features.categorical.len()..)
            .unwrap_or(&[]);
        if names.is_empty() {
            return Ok(None);
        }
        let names = group_columns(names)?;
        let mut has_model = Vec::with_capacity(rows);
        for row in 0..rows {
            has_model.push(self.model_of(&group_name(&names, row)).is_some());
        }
        Ok(Some(BooleanArray::from(has_model)))
    }

    /// Trees of the models, in the order of the card.
    pub fn ensembles(&self) -> &[TreeEnsemble] {
        &self.ensembles
    }

    /// The trees, in the order of the card.
    pub fn into_ensembles(self) -> Vec<TreeEnsemble> {
        self.ensembles
    }

    /// Predictions for rows, whose columns come in the order of [`BatchFeatures::columns`]; that of the horizon's steps
    /// comes last where there is a model for each.
    pub fn predict(
        &self,
        features: &BatchFeatures,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<Predictions> {
        if self.of_classes {
            return self.predict_classes(features, columns, rows);
        }
        let (columns, of_step) = match (&self.steps, columns.split_last()) {
            (Some(steps), Some((step_column, columns))) => (columns, steps.of_rows(step_column)?),
            _ => (columns, Vec::new()),
        };
        let models = self.steps.as_ref().map_or(1, StepModels::count);
        let table = feature_table(features, columns, rows)?;
        let names = columns
            .get(features.dense.len() + features.categorical.len()..)
            .unwrap_or(&[]);
        let names = group_columns(names)?;
        let mut last: Option<(GroupName, Option<usize>)> = None;
        let outputs = self.objectives.len();
        let mut predicted: Vec<Vec<f32>> = vec![Vec::with_capacity(rows); outputs];
        for row in 0..rows {
            let model = if names.is_empty() {
                Some(0)
            } else {
                let name = group_name(&names, row);
                match last.take_if(|(last_name, _)| *last_name == name) {
                    Some(group) => last.insert(group).1,
                    None => {
                        let model = self.model_of(&name);
                        last.insert((name, model)).1
                    }
                }
            };
            let features = table.row(row);
            let step = of_step.get(row).copied().unwrap_or(0) * outputs;
            let first = model.unwrap_or(0) * models * outputs + step;
            let mut point = 0.0;
            for (number, output) in predicted.iter_mut().enumerate() {
                let fallback = self.fallback.as_ref().filter(|_| model.is_none());
                let column_value =
                    fallback.and_then(|column| column.predict(step + number, features));
                let ensemble = &self.ensembles[first + number];
                let value = match column_value {
                    Some(value) => value,
                    None if self.intervals && number > 0 => {
                        let scale = self.scales[first + number];
                        bound_value(point, ensemble.base, scale, features)
                    }
                    None => self.objectives[number].prediction(ensemble.predict(features)),
                };
                if number == 0 {
                    point = value;
                }
                output.push(value);
            }
        }
        let mut predicted = predicted.into_iter().map(Float32Array::from);
        let point = predicted.next().ok_or_else(invalid_model_fault)?;
        Ok(Predictions {
            point,
            quantiles: predicted.collect(),
            probabilities: Vec::new(),
        })
    }

    /// Probabilities of the classes for rows.
    fn predict_classes(
        &self,
        features: &BatchFeatures,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<Predictions> {
        let table = feature_table(features, columns, rows)?;
        let mut point = Vec::with_capacity(rows);
        let mut predicted: Vec<Vec<f32>> = vec![Vec::with_capacity(rows); self.ensembles.len()];
        let mut scores = vec![0.0; self.ensembles.len()];
        for row in 0..rows {
            for (score, ensemble) in scores.iter_mut().zip(&self.ensembles) {
                *score = ensemble.predict(table.row(row));
            }
            softmax(&mut scores);
            let mut greatest = 0.0_f32;
            for (column, probability) in predicted.iter_mut().zip(&scores) {
                let probability = *probability as f32;
                greatest = greatest.max(probability);
                column.push(probability);
            }
            point.push(greatest);
        }
        Ok(Predictions {
            point: Float32Array::from(point),
            quantiles: Vec::new(),
            probabilities: predicted.into_iter().map(Float32Array::from).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Float64Array;
    use forebay_feed::FeatureField;

    use super::*;
    use crate::boosting::encode::encode_ensembles;

    fn features() -> BatchFeatures {
        BatchFeatures {
            dense: vec![FeatureField::new("x")],
            ..BatchFeatures::default()
        }
    }

    fn card(classes: ModelClasses) -> BoostingCard {
        BoostingCard {
            loss: BoostingLoss::Softmax,
            tweedie_power: None,
            quantile: None,
            quantiles: Vec::new(),
            intervals: false,
            classes: Some(classes),
            by: Vec::new(),
            steps: None,
            recursive: false,
            fallback: None,
            models: vec![GroupModelCard::default(); 2],
        }
    }

    /// Reads a model of classes with the shares 1/4 and 3/4 in all rows.
    fn read(card: &BoostingCard) -> Result<BoostedModel> {
        let shape = ModelShape {
            dense: features().dense,
            embeddings: Vec::new(),
            hidden: Vec::new(),
            added: false,
            outputs: 1,
        };
        let mut ensembles = Vec::new();
        for share in [0.25_f64, 0.75] {
            ensembles.push(TreeEnsemble {
                base: share.ln() + 7.0,
                trees: Vec::new(),
            });
        }
        let bytes = encode_ensembles(ensembles.iter(), "{}".to_owned())?;
        BoostedModel::read(&bytes, card, &shape)
    }

    #[test]
    fn each_class_has_the_probability_of_its_trees() {
        let model = read(&card(ModelClasses::Integers(vec![3, 5]))).unwrap();
        let column: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
        let predicted = model.predict(&features(), &[column], 2).unwrap();
        assert!(predicted.quantiles.is_empty());
        assert_eq!(predicted.probabilities.len(), 2);
        for (column, share) in predicted.probabilities.iter().zip([0.25_f32, 0.75]) {
            assert!(
                column
                    .values()
                    .iter()
                    .all(|value| (value - share).abs() < 1e-6)
            );
        }
        assert_eq!(predicted.point, predicted.probabilities[1]);
    }

    #[test]
    fn classes_that_the_file_does_not_hold_are_refused() {
        let sound = card(ModelClasses::Integers(vec![3, 5]));
        let others = [
            card(ModelClasses::Integers(vec![5, 3])),
            card(ModelClasses::Integers(vec![3, 4, 5])),
            BoostingCard {
                classes: None,
                ..sound.clone()
            },
            BoostingCard {
                loss: BoostingLoss::Logistic,
                ..sound.clone()
            },
            BoostingCard {
                by: vec!["store".to_owned()],
                ..sound.clone()
            },
            BoostingCard {
                models: vec![GroupModelCard::default(); 4],
                ..sound
            },
        ];
        for card in others {
            assert!(read(&card).is_err(), "{card:?}");
        }
    }
}
