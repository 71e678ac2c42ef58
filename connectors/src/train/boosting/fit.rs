//! Fits the models of a group of rows: that of the point forecast, and one for each quantile.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use forebay_feed::FeatureField;
use forebay_model::{ContentId, Fault, IdBuilder, Result, codes};
use forebay_threads::lock;
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::boost::{Booster, BoostingState};
use super::config::{BoostedOutput, BoostingConfig};
use super::earlier_trees::EarlierTrees;
use super::grow::FeatureGain;
use super::histogram::GradientSums;
use super::intervals::{IntervalBound, PointErrors, bound_value};
use super::loss::Objective;
use super::matrix::BinnedMatrix;
use super::model::{ErrorSums, GroupModelCard};
use super::partitions::GroupRows;
use super::steps::StepFeatures;
use super::table::{FeatureTable, RowFeatures};
use super::tree::TreeEnsemble;
use crate::train::group_names::GroupName;

/// A model and its description.
#[derive(Debug, Clone)]
pub struct FittedModel {
    pub card: GroupModelCard,
    pub ensemble: TreeEnsemble,
    /// Mean loss of each round on the rows of training; empty for a model of an earlier run or of a
    /// worker.
    pub losses: Vec<f64>,
}

/// The models of a group, one for each output.
pub struct FittedGroup {
    pub models: Vec<FittedModel>,
    /// True if all models were trained by an earlier run.
    pub reused: bool,
}

/// Threads of a run.
#[derive(Clone, Copy)]
pub struct FitThreads {
    /// Threads of each group.
    pub each: usize,
    /// Groups that are fitted at once.
    pub groups: usize,
}

/// The rows of a group; those to learn from as bins, too.
#[derive(Clone, Copy)]
struct BinnedRows<'a> {
    rows: &'a GroupRows,
    matrix: &'a BinnedMatrix,
}

/// Callbacks while a model is fitted.
pub trait FitWatch {
    /// State of this model from an earlier run.
    fn resume(&mut self, _id: &str) -> Result<Option<BoostingState>> {
        Ok(None)
    }

    /// Called after each round; fails when the run should stop.
    fn after_round(&mut self, id: &str, state: &BoostingState) -> Result<()>;

    /// Called with each model that is done.
    fn fitted(&mut self, _model: &FittedModel) -> Result<()> {
        Ok(())
    }
}

/// Fits models with one configuration.
pub struct ModelFitter<'a> {
    config: &'a BoostingConfig,
    pub outputs: Vec<BoostedOutput>,
    /// Columns and names of groups of the models.
    columns: Value,
    /// Index of the column with the scale of intervals among the numbers of a row.
    scale_number: Option<usize>,
    /// Bytes that the histograms of all models that are fitted at once may hold.
    histogram_bytes_max: u64,
    /// The training that this one continues, and the trees of each output of its model.
    earlier: Option<(ContentId, Vec<EarlierTrees>)>,
    /// Models of earlier runs, by id.
    known: Mutex<HashMap<String, FittedModel>>,
}

impl<'a> ModelFitter<'a> {
    pub fn new(
        config: &'a BoostingConfig,
        columns: Value,
        steps: &[StepFeatures],
        memory_bytes: u64,
    ) -> Result<ModelFitter<'a>> {
        let outputs = config.outputs(steps)?;
        let scale_number = match &config.intervals {
            Some(intervals) => {
                let dense: Vec<FeatureField> = serde_json::from_value(columns[0].clone())
                    .map_err(|error| Fault::internal("columns of a model").cause(error))?;
                intervals.scale_number(&dense)?
            }
            None => None,
        };
        Ok(ModelFitter {
            config,
            outputs,
            columns,
            scale_number,
            histogram_bytes_max: memory_bytes / 4,
            earlier: None,
            known: Mutex::default(),
        })
    }

    /// Adds trees to those of an earlier training, of which there is one model for each output.
    pub fn continue_from(&mut self, training: ContentId, trees: Vec<EarlierTrees>) -> Result<()> {
        if trees.len() != self.outputs.len() {
            return Err(Fault::internal(
                "a training continues a model of other outputs",
            ));
        }
        self.earlier = Some((training, trees));
        Ok(())
    }

    /// Columns and names of groups of the models.
    pub fn columns(&self) -> &Value {
        &self.columns
    }

    /// The features of the models for the horizon's steps, where there is more than one.
    pub fn step_features(&self) -> Vec<StepFeatures> {
        let mut features: Vec<StepFeatures> = self
            .outputs
            .iter()
            .filter_map(|output| output.features.clone())
            .collect();
        features.dedup();
        features
    }

    /// Models of earlier runs, which need not be fitted again.
    pub fn remember(
        &mut self,
        cards: Vec<GroupModelCard>,
        ensembles: Vec<TreeEnsemble>,
    ) -> Result<()> {
        let models = cards.into_iter().zip(ensembles);
        let models = models.map(|(card, ensemble)| FittedModel {
            card,
            ensemble,
            losses: Vec::new(),
        });
        lock(&self.known)?.extend(models.map(|model| (model.card.id.clone(), model)));
        Ok(())
    }

    /// Fits the models of a group.
    pub fn fit(
        &self,
        group: &GroupName,
        rows: &GroupRows,
        threads: FitThreads,
        watch: &mut dyn FitWatch,
    ) -> Result<FittedGroup> {
        let digest = digest_rows(rows);
        let mut matrix = None;
        let mut point_errors = None;
        let mut fitted = FittedGroup {
            models: Vec::new(),
            reused: true,
        };
        for (number, output) in self.outputs.iter().enumerate() {
            let id = self.model_id(output, group, rows, digest).to_string();
            let twin = || {
                fitted
                    .models
                    .iter()
                    .find(|model| model.card.id == id)
                    .cloned()
            };
            let earlier_model = lock(&self.known)?.remove(&id).or_else(twin);
            let mut model = match (earlier_model, output.bound) {
                (Some(model), _) => model,
                (None, Some(bound)) => {
                    let point = point_model(&fitted.models, bound)?;
                    let errors = match &point_errors {
                        Some(errors) => errors,
                        None => point_errors.insert(PointErrors::new(
                            bound.point,
                            &point.ensemble,
                            &rows.validate,
                            self.scale_number,
                        )),
                    };
                    fit_bound(output, bound, id, errors, rows)?
                }
                (None, None) => {
                    fitted.reused = false;
                    let matrix = match &matrix {
                        Some(matrix) => matrix,
                        None => {
                            let binned = BinnedMatrix::new(&rows.learn, threads.each);
                            let limit = self.histogram_bytes_max / threads.groups as u64;
                            check_histograms(self.config, &binned, rows.learn.rows(), limit)?;
                            matrix.insert(binned)
                        }
                    };
                    let earlier = self.earlier.as_ref();
                    let earlier = earlier.and_then(|(_, trees)| trees.get(number).cloned());
                    let model = self.fit_output(
                        (output, earlier),
                        id,
                        BinnedRows { rows, matrix },
                        threads.each,
                        watch,
                    )?;
                    watch.fitted(&model)?;
                    model
                }
            };
            if output.bound.is_none() {
                // Intervals that follow lie around this point forecast.
                point_errors = None;
            }
            (model.card.group, model.card.quantile) = (group.clone(), output.quantile);
            fitted.models.push(model);
        }
        Ok(fitted)
    }

    /// True if all models of a group are trained already. Ends of intervals take no training.
    pub fn knows(&self, group: &GroupName, rows: &GroupRows) -> Result<bool> {
        let digest = digest_rows(rows);
        let models = lock(&self.known)?;
        let is_known =
            |output| models.contains_key(&self.model_id(output, group, rows, digest).to_string());
        let mut trained = self.outputs.iter().filter(|output| output.bound.is_none());
        Ok(trained.all(is_known))
    }

    /// Fits the models of a group, or returns the reason why it has none.
    pub fn fit_group(
        &self,
        group: &GroupName,
        rows: &GroupRows,
        threads: FitThreads,
        watch: &mut dyn FitWatch,
    ) -> Result<Result<FittedGroup, String>> {
        match catch_unwind(AssertUnwindSafe(|| self.fit(group, rows, threads, watch))) {
            Ok(Err(fault)) if fault.code() == codes::NOT_FINITE => {
                Ok(Err(fault.message().to_owned()))
            }
            Ok(fitted) => fitted.map(Ok),
            Err(_) => Ok(Err("its training panicked".to_owned())),
        }
    }

    fn model_id(
        &self,
        output: &BoostedOutput,
        group: &GroupName,
        rows: &GroupRows,
        digest: u128,
    ) -> ContentId {
        let mut id = IdBuilder::new("boosted trees");
        id.json(&json!([
            output.identity,
            self.columns,
            group,
            rows.learn.rows(),
            rows.validate.rows()
        ]));
        id.bytes(&digest.to_le_bytes());
        if let Some((training, _)) = &self.earlier {
            id.text("continued").id(*training);
        }
        id.finish()
    }

    /// Grows the trees of an output, after those of an earlier model if there are any.
    fn fit_output(
        &self,
        (output, earlier): (&BoostedOutput, Option<EarlierTrees>),
        id: String,
        BinnedRows { rows, matrix }: BinnedRows<'_>,
        threads: usize,
        watch: &mut dyn FitWatch,
    ) -> Result<FittedModel> {
        let mut options = self.config.options(output.objective);
        if let Some(earlier) = &earlier {
            let trees = earlier.ensemble.trees.len() as u32;
            options.rounds = trees.saturating_add(self.config.added_rounds_max());
        }
        let labels = &rows.learn.labels;
        let weights = &rows.learn.weights;
        let mut booster = Booster::new(
            options,
            matrix,
            labels,
            weights,
            Some(&rows.validate),
            threads,
        );
        if let Some(features) = &output.features {
            booster.take_only(features.allowed.clone());
        }
        match (watch.resume(&id)?, earlier) {
            (Some(state), _) => booster.resume(state, &rows.learn),
            (None, Some(earlier)) => booster.continue_from(earlier, &rows.learn),
            (None, None) => {}
        }
        while !booster.is_done() {
            booster.round();
            watch.after_round(&id, &booster.state)?;
        }
        let BoostingState {
            ensemble,
            losses,
            gains,
            ..
        } = booster.finish();
        if !is_finite(&ensemble) {
            let fault = Fault::new(codes::NOT_FINITE, "its trees are not finite");
            return Err(fault.hint("lower `learning_rate`, or scale the label"));
        }
        let last = ensemble.trees.len().checked_sub(1);
        let card = GroupModelCard {
            group: GroupName::new(),
            quantile: output.quantile,
            id,
            rows: rows.learn.rows() as u64,
            validation_rows: rows.validate.rows() as u64,
            learned_loss: last
                .and_then(|last| losses.get(last))
                .copied()
                .unwrap_or_default(),
            errors: sum_errors(output.objective, &ensemble, &rows.validate),
            gains: gains_by_feature(&gains, rows.learn.features()),
            scale: None,
        };
        Ok(FittedModel {
            card,
            ensemble,
            losses,
        })
    }

    /// The errors on rows of the models of another group.
    pub fn errors_of(&self, models: &[FittedModel], rows: &FeatureTable) -> Vec<ErrorSums> {
        let mut errors = Vec::with_capacity(models.len());
        for (number, output) in self.outputs.iter().enumerate().take(models.len()) {
            let mut sums = ErrorSums::default();
            for row in 0..rows.rows() {
                sums.add(
                    output.objective,
                    model_result(models, output, number, rows.row(row)),
                    rows.labels[row],
                    f64::from(rows.weight(row)),
                );
            }
            errors.push(sums);
        }
        errors
    }
}

/// Checks that the histograms of a tree take no more than `limit` bytes: each leaf has one of each feature while the tree
/// grows.
pub fn check_histograms(
    config: &BoostingConfig,
    matrix: &BinnedMatrix,
    rows: usize,
    limit: u64,
) -> Result<()> {
    let leaves = (config.leaves as usize).min(rows / config.min_leaf_rows as usize + 1);
    let bins: usize = matrix
        .columns
        .iter()
        .map(|column| column.bins.count())
        .sum();
    let needed = (leaves * bins * size_of::<GradientSums>()) as u64;
    if needed <= limit {
        return Ok(());
    }
    let needed = needed.div_ceil(1 << 20);
    let limit = limit >> 20;
    let message =
        format!("the histograms of {leaves} leaves would hold {needed} MiB, and may hold {limit}");
    Err(Fault::new(codes::MEMORY, message).hint(
        "lower `leaves`, give categorical columns fewer ids (`min_count`, \
         `hash_bucket`), or raise --memory",
    ))
}

/// The point forecast that an interval lies around, among the models before that of its end.
fn point_model(models: &[FittedModel], bound: IntervalBound) -> Result<&FittedModel> {
    let index = models.len().checked_sub(bound.position);
    let point = index.and_then(|index| models.get(index));
    point.ok_or_else(|| Fault::internal("an interval without a point forecast"))
}

/// The end of an interval around a point forecast with these errors.
fn fit_bound(
    output: &BoostedOutput,
    bound: IntervalBound,
    id: String,
    errors: &PointErrors,
    rows: &GroupRows,
) -> Result<FittedModel> {
    let offset = bound.offset(errors);
    let ensemble = TreeEnsemble {
        // With too few errors, that of the model over all rows replaces it.
        base: offset.unwrap_or_default(),
        trees: Vec::new(),
    };
    if !is_finite(&ensemble) {
        let fault = Fault::new(codes::NOT_FINITE, "errors of its forecasts are not finite");
        return Err(fault.hint("lower `learning_rate`, or name another `scale` of `intervals`"));
    }
    let mut sums = ErrorSums::default();
    if let Some(offset) = offset {
        let validate = &rows.validate;
        for (row, point) in errors.predicted.iter().enumerate() {
            sums.add(
                output.objective,
                f64::from(bound_value(*point, offset, errors.scale, validate.row(row))),
                validate.labels[row],
                f64::from(validate.weight(row)),
            );
        }
    }
    let card = GroupModelCard {
        group: GroupName::new(),
        quantile: output.quantile,
        id,
        rows: rows.learn.rows() as u64,
        validation_rows: errors.count(),
        learned_loss: 0.0,
        errors: sums,
        gains: Vec::new(),
        scale: errors.scale,
    };
    Ok(FittedModel {
        card,
        ensemble,
        losses: Vec::new(),
    })
}

/// The result of an output for a row, by the models of a group.
pub fn model_result(
    models: &[FittedModel],
    output: &BoostedOutput,
    number: usize,
    features: RowFeatures<'_>,
) -> f64 {
    let FittedModel { card, ensemble, .. } = &models[number];
    let Some(bound) = &output.bound else {
        return ensemble.predict(features);
    };
    let point = &models[number - bound.position].ensemble;
    let prediction = bound.point.prediction(point.predict(features));
    f64::from(bound_value(prediction, ensemble.base, card.scale, features))
}

/// Sum of the gains of all trees for each feature.
pub fn gains_by_feature(gains_of_trees: &[Vec<FeatureGain>], features: usize) -> Vec<f64> {
    let mut sums = vec![0.0; features];
    for (feature, gain) in gains_of_trees.iter().flatten() {
        sums[*feature as usize] += f64::from(*gain);
    }
    sums
}

fn digest_rows(rows: &GroupRows) -> u128 {
    digest_tables([&rows.learn, &rows.validate])
}

/// Digest of the values of rows to learn from and rows to validate on.
pub fn digest_tables(tables: [&FeatureTable; 2]) -> u128 {
    let mut hasher = Xxh3::new();
    for table in tables {
        hasher.update(bytemuck::cast_slice(&table.dense));
        hasher.update(bytemuck::cast_slice(&table.categories));
        hasher.update(bytemuck::cast_slice(&table.labels));
        hasher.update(bytemuck::cast_slice(&table.weights));
    }
    hasher.digest128()
}

fn sum_errors(objective: Objective, ensemble: &TreeEnsemble, rows: &FeatureTable) -> ErrorSums {
    let mut sums = ErrorSums::default();
    for row in 0..rows.rows() {
        let output = ensemble.predict(rows.row(row));
        sums.add(
            objective,
            output,
            rows.labels[row],
            f64::from(rows.weight(row)),
        );
    }
    sums
}

/// True if all numbers of an ensemble are finite.
pub fn is_finite(ensemble: &TreeEnsemble) -> bool {
    let mut leaves = ensemble.trees.iter().flat_map(|tree| &tree.leaves);
    ensemble.base.is_finite() && leaves.all(|leaf| leaf.is_finite())
}
