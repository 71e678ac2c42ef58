//! Fits the models of a group of rows: that of the point forecast, and one for each quantile.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use forebay_feed::FeatureField;
use forebay_model::{ContentId, Fault, IdBuilder, Result, codes};
use forebay_threads::lock;
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::bin_blocks::BinBlocks;
use super::boost::{Booster, BoostingState};
use super::config::{BoostedOutput, BoostingConfig};
use super::earlier_trees::EarlierTrees;
use super::grow::FeatureGain;
use super::histogram::GradientSums;
use super::intervals::{IntervalBound, PointErrors, bound_value};
use super::learn_rows::{FitRows, LearnRows};
use super::loss::Objective;
use super::model::{ErrorSums, GroupModelCard};
use super::steps::StepFeatures;
use super::table::{FeatureTable, RowFeatures};
use super::tree::TreeEnsemble;
use crate::group_names::GroupName;

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
    rows: FitRows<'a>,
    blocks: &'a dyn BinBlocks,
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
        rows: FitRows<'_>,
        threads: FitThreads,
        watch: &mut dyn FitWatch,
    ) -> Result<FittedGroup> {
        let digest = digest_rows(rows)?;
        let mut binned: Option<Box<dyn BinBlocks + '_>> = None;
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
                            rows.validate,
                            self.scale_number,
                        )),
                    };
                    fit_bound(output, bound, id, errors, rows)?
                }
                (None, None) => {
                    fitted.reused = false;
                    let blocks = match &binned {
                        Some(blocks) => blocks,
                        None => {
                            let blocks = rows.learn.bin(threads.each)?;
                            let limit = self.histogram_bytes_max / threads.groups as u64;
                            check_histograms(self.config, blocks.as_ref(), limit)?;
                            binned.insert(blocks)
                        }
                    };
                    let earlier = self.earlier.as_ref();
                    let earlier = earlier.and_then(|(_, trees)| trees.get(number).cloned());
                    let model = self.fit_output(
                        (output, earlier),
                        id,
                        BinnedRows {
                            rows,
                            blocks: blocks.as_ref(),
                        },
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
    pub fn knows(&self, group: &GroupName, rows: FitRows<'_>) -> Result<bool> {
        let digest = digest_rows(rows)?;
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
        rows: FitRows<'_>,
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
        rows: FitRows<'_>,
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
        BinnedRows { rows, blocks }: BinnedRows<'_>,
        threads: usize,
        watch: &mut dyn FitWatch,
    ) -> Result<FittedModel> {
        let mut options = self.config.options(output.objective);
        if let Some(earlier) = &earlier {
            let trees = earlier.ensemble.trees.len() as u32;
            options.rounds = trees.saturating_add(self.config.added_rounds_max());
        }
        let labels = rows.learn.labels();
        let weights = rows.learn.weights();
        let mut booster = Booster::new(
            options,
            blocks,
            labels,
            weights,
            Some(rows.validate),
            threads,
        );
        if let Some(features) = &output.features {
            booster.take_only(features.allowed.clone());
        }
        match (watch.resume(&id)?, earlier) {
            (Some(state), _) => booster.resume(state, rows.learn)?,
            (None, Some(earlier)) => booster.continue_from(earlier, rows.learn)?,
            (None, None) => {}
        }
        while !booster.is_done() {
            let round = booster.round();
            // A round that was stopped leaves the trees before it, which are kept.
            watch.after_round(&id, &booster.state)?;
            round?;
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
            errors: sum_errors(output.objective, &ensemble, rows.validate),
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
pub fn check_histograms(config: &BoostingConfig, blocks: &dyn BinBlocks, limit: u64) -> Result<()> {
    let leaves_max = blocks.rows() / config.min_leaf_rows as usize + 1;
    let leaves = (config.leaves as usize).min(leaves_max);
    let bins: usize = blocks.bins().iter().map(|bins| bins.count()).sum();
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
    rows: FitRows<'_>,
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
        let validate = rows.validate;
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

/// Digest of the values of rows to learn from and rows to validate on.
pub fn digest_rows(rows: FitRows<'_>) -> Result<u128> {
    let mut hasher = Xxh3::new();
    rows.learn.digest(&mut hasher)?;
    rows.validate.digest(&mut hasher)?;
    Ok(hasher.digest128())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use forebay_model::MemoryScratch;

    use super::*;
    use crate::boosting::BoostingLoss;
    use crate::boosting::class_boost::ClassBooster;
    use crate::boosting::encode::encode_ensembles;
    use crate::boosting::gathered_rows::{GatheredRows, RowGathering};
    use crate::boosting::partitions::RowShape;
    use crate::boosting::training_files::{StopCheck, TrainingFiles};
    use crate::random::UniformGenerator;

    const ROWS: usize = 4000;

    /// A run that stops after so many checks.
    struct Checks(AtomicUsize);

    impl Checks {
        fn allowed(checks: usize) -> Checks {
            Checks(AtomicUsize::new(checks))
        }

        fn files(&self, block_bytes: u64) -> TrainingFiles<'_> {
            TrainingFiles {
                scratch: Arc::new(MemoryScratch::default()),
                stop: self,
                block_bytes,
            }
        }
    }

    impl StopCheck for Checks {
        fn check(&self) -> Result<()> {
            let before = self.0.load(Ordering::Relaxed);
            let Some(after) = before.checked_sub(1) else {
                return Err(Fault::new(codes::INTERRUPTED, "the run was stopped"));
            };
            self.0.store(after, Ordering::Relaxed);
            Ok(())
        }
    }

    /// Never stops a training.
    struct QuietWatch;

    impl FitWatch for QuietWatch {
        fn after_round(&mut self, _: &str, _: &BoostingState) -> Result<()> {
            Ok(())
        }
    }

    fn shape(weighted: bool) -> RowShape {
        RowShape {
            numbers: 5,
            ids: 3,
            weighted,
        }
    }

    /// Rows with missing numbers and ids, a constant number, and ids that fill two bytes; labels from 0 on.
    fn drawn_rows(seed: u64, rows: usize, weighted: bool) -> FeatureTable {
        let mut generator = UniformGenerator::new(seed);
        let mut table = FeatureTable::new(5, 3);
        for row in 0..rows {
            let [a, b, c, d] = [(); 4].map(|()| generator.next_value());
            let missing = if c > 0.6 { f32::NAN } else { b };
            let count = (a * 7.0).floor();
            table.dense.extend([a, missing, count, 1.0, b * b * 100.0]);
            let few = if d < -0.8 { -1 } else { row as i32 % 3 };
            let many = ((c + 1.0) * 20.0) as i32;
            table.categories.extend([few, many, row as i32 * 7 % 330]);
            let signal = if few == 1 { 2.0 } else { b.abs() };
            let label = signal * (1.0 + count.abs()) + (many % 5) as f32 + c.abs();
            table.labels.push((label * 4.0).floor() / 4.0);
            if weighted {
                table.weights.push(if d > 0.9 { 0.0 } else { a + 1.5 });
            }
        }
        table
    }

    /// The rows as a training reads them: some at a time.
    fn gathered<'f>(
        rows: &FeatureTable,
        sample_rows: Option<u64>,
        files: Option<TrainingFiles<'f>>,
    ) -> GatheredRows<'f> {
        let row_count = rows.rows() as u64;
        let shape = shape(!rows.weights.is_empty());
        let mut gathering = RowGathering::new(shape, row_count, files).unwrap();
        for first in (0..rows.rows()).step_by(97) {
            let mut piece = FeatureTable::new(rows.numbers, rows.ids);
            for row in first..(first + 97).min(rows.rows()) {
                piece.push_row(rows, row);
            }
            let position = (first as u64, row_count);
            gathering
                .take_sample(&piece, position, sample_rows)
                .unwrap();
        }
        gathering.finish().unwrap()
    }

    fn fitted(
        config: &BoostingConfig,
        learn: &dyn LearnRows,
        validate: &FeatureTable,
        steps: &[StepFeatures],
        threads: usize,
    ) -> Result<Vec<FittedModel>> {
        let fitter = ModelFitter::new(config, json!([[], [], []]), steps, 1 << 30)?;
        let rows = FitRows { learn, validate };
        let threads = FitThreads {
            each: threads,
            groups: 1,
        };
        Ok(fitter
            .fit(&Vec::new(), rows, threads, &mut QuietWatch)?
            .models)
    }

    /// The models with their cards, as a file has them.
    fn model_bytes(models: &[FittedModel]) -> Vec<u8> {
        let cards: Vec<&GroupModelCard> = models.iter().map(|model| &model.card).collect();
        let words = serde_json::to_string(&cards).unwrap();
        encode_ensembles(models.iter().map(|model| &model.ensemble), words).unwrap()
    }

    fn config(loss: BoostingLoss) -> BoostingConfig {
        BoostingConfig {
            loss,
            rounds: 6,
            leaves: 12,
            min_leaf_rows: 5,
            learning_rate: 0.3,
            ..BoostingConfig::default()
        }
    }

    /// Configurations, and whether rows weigh.
    fn settings() -> Vec<(BoostingConfig, bool)> {
        let deep = BoostingConfig {
            leaves: 200,
            min_leaf_rows: 1,
            ..config(BoostingLoss::SquaredError)
        };
        let stump = BoostingConfig {
            leaves: 2,
            l2: 3.0,
            ..config(BoostingLoss::Logistic)
        };
        let quantile = BoostingConfig {
            quantile: Some(0.7),
            ..config(BoostingLoss::Quantile)
        };
        let quantiles = BoostingConfig {
            quantiles: vec![0.1, 0.9],
            sample_rows: Some(1234),
            ..config(BoostingLoss::Poisson)
        };
        let sampled = BoostingConfig {
            sample_rows: Some(700),
            patience_rounds: 1,
            ..config(BoostingLoss::AbsoluteError)
        };
        vec![
            (deep, true),
            (stump, true),
            (quantile, false),
            (quantiles, true),
            (sampled, false),
            (config(BoostingLoss::Tweedie), false),
            (config(BoostingLoss::SquaredError), false),
        ]
    }

    #[test]
    fn models_are_the_same_on_disk_and_in_memory() {
        for (number, (config, weighted)) in settings().into_iter().enumerate() {
            let mut rows = drawn_rows(number as u64, ROWS, weighted);
            let mut validate = drawn_rows(number as u64 + 100, 500, weighted);
            if config.loss == BoostingLoss::Logistic {
                for label in rows.labels.iter_mut().chain(&mut validate.labels) {
                    *label = if *label > 2.0 { 1.0 } else { 0.0 };
                }
            }
            let held = gathered(&rows, config.sample_rows, None);
            let held_models = fitted(&config, held.learn(), &validate, &[], 1).unwrap();
            assert!(
                held_models
                    .iter()
                    .all(|model| !model.ensemble.trees.is_empty())
            );
            // Blocks of three rows, of some, of more than those that come together, and of all.
            for (block_bytes, threads) in [(100, 1), (1000, 3), (10_000, 1), (1 << 20, 2)] {
                let checks = Checks::allowed(usize::MAX);
                let files = Some(checks.files(block_bytes));
                let spilled = gathered(&rows, config.sample_rows, files);
                assert!(matches!(spilled, GatheredRows::Spilled(_)));
                let models = fitted(&config, spilled.learn(), &validate, &[], threads).unwrap();
                assert!(
                    model_bytes(&models) == model_bytes(&held_models),
                    "{config:?} in blocks of {block_bytes} bytes"
                );
                let losses = |models: &[FittedModel]| -> Vec<Vec<f64>> {
                    models.iter().map(|model| model.losses.clone()).collect()
                };
                assert_eq!(losses(&models), losses(&held_models));
            }
        }
    }

    #[test]
    fn models_of_steps_are_the_same_on_disk_and_in_memory() {
        let rows = drawn_rows(7, ROWS, false);
        let validate = drawn_rows(8, 500, false);
        let mut steps = Vec::new();
        for first in 0..3 {
            steps.push(StepFeatures {
                allowed: (0..8).map(|feature| feature >= first * 2).collect(),
                steps: 1,
            });
        }
        let config = config(BoostingLoss::SquaredError);
        let held = gathered(&rows, None, None);
        let checks = Checks::allowed(usize::MAX);
        let spilled = gathered(&rows, None, Some(checks.files(3000)));
        let held_models = fitted(&config, held.learn(), &validate, &steps, 1).unwrap();
        let models = fitted(&config, spilled.learn(), &validate, &steps, 2).unwrap();
        assert_eq!(models.len(), 3);
        assert!(model_bytes(&models) == model_bytes(&held_models));
    }

    #[test]
    fn classes_are_the_same_on_disk_and_in_memory() {
        let mut rows = drawn_rows(9, ROWS, true);
        for label in &mut rows.labels {
            *label = (*label as i32 % 3) as f32;
        }
        let config = config(BoostingLoss::Softmax);
        let checks = Checks::allowed(usize::MAX);
        let held = gathered(&rows, None, None);
        let spilled = gathered(&rows, None, None);
        let spilled = spilled.spill(shape(true), checks.files(5000)).unwrap();
        let states = [&held, &spilled].map(|gathered| {
            let learn = gathered.learn();
            let blocks = learn.bin(2).unwrap();
            let rows = FitRows {
                learn,
                validate: &rows,
            };
            let mut first = ClassBooster::new(&config, 3, blocks.as_ref(), rows, 2);
            first.round().unwrap();
            // A state continues with the same bits.
            let mut booster = ClassBooster::new(&config, 3, blocks.as_ref(), rows, 2);
            booster.resume(first.state.clone()).unwrap();
            while !booster.is_done() {
                booster.round().unwrap();
            }
            booster.finish()
        });
        assert!(
            states[0]
                .ensembles
                .iter()
                .all(|trees| !trees.trees.is_empty())
        );
        assert_eq!(states[0], states[1]);
    }

    #[test]
    fn trees_are_added_to_earlier_ones_with_the_same_bits() {
        let rows = drawn_rows(10, ROWS, true);
        let validate = drawn_rows(11, 500, true);
        let config = config(BoostingLoss::SquaredError);
        let checks = Checks::allowed(usize::MAX);
        let held = gathered(&rows, None, None);
        let spilled = gathered(&rows, None, Some(checks.files(2000)));
        let first = fitted(&config, held.learn(), &validate, &[], 1).unwrap();
        let earlier = || EarlierTrees {
            ensemble: first[0].ensemble.clone(),
            gains: vec![(0, 1.5)],
        };
        let states = [&held, &spilled].map(|gathered| {
            let mut options = config.options(Objective::SquaredError);
            options.rounds = 9;
            let learn = gathered.learn();
            let blocks = learn.bin(1).unwrap();
            let labels = learn.labels();
            let weights = learn.weights();
            let validation = Some(&validate);
            let mut booster =
                Booster::new(options, blocks.as_ref(), labels, weights, validation, 1);
            booster.continue_from(earlier(), learn).unwrap();
            while !booster.is_done() {
                booster.round().unwrap();
            }
            booster.finish()
        });
        assert_eq!(states[0], states[1]);
    }

    #[test]
    fn bins_of_sampled_rows_are_the_same_on_disk_and_in_memory() {
        // Bounds are computed from every second row.
        let rows = drawn_rows(12, 250_001, false);
        let checks = Checks::allowed(usize::MAX);
        let spilled = gathered(&rows, None, Some(checks.files(100_000)));
        let held_bins = rows.bin(2).unwrap();
        let bins = spilled.learn().bin(2).unwrap();
        assert_eq!(bins.bins(), held_bins.bins());
    }

    #[test]
    fn a_training_on_disk_stops_between_blocks() {
        let rows = drawn_rows(13, ROWS, false);
        let validate = FeatureTable::new(5, 3);
        let config = config(BoostingLoss::SquaredError);
        // Blocks of 100 rows: 40 checks for each read of all.
        let run = |checks: &Checks| {
            let spilled = gathered(&rows, None, Some(checks.files(3200)));
            let models = fitted(&config, spilled.learn(), &validate, &[], 1);
            models.map(|models| model_bytes(&models))
        };
        let enough = Checks::allowed(usize::MAX);
        let whole = run(&enough).unwrap();
        let needed = usize::MAX - enough.0.load(Ordering::Relaxed);
        // At least one read a level of each of 6 trees.
        assert!(needed > 6 * 4 * 40, "{needed} checks");
        for allowed in [0, 1, 39, 100, needed / 2, needed - 1] {
            let fault = run(&Checks::allowed(allowed)).unwrap_err();
            assert_eq!(fault.code(), codes::INTERRUPTED, "after {allowed} checks");
        }
        assert!(run(&Checks::allowed(needed)).unwrap() == whole);
    }
}
