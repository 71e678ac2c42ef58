//! Fits the models of a group of rows: that of the point forecast, and one for each quantile.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use forebay_model::{ContentId, Fault, IdBuilder, Result, codes};
use forebay_threads::lock;
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::boost::{Booster, BoostingState};
use super::config::{BoostedOutput, BoostingConfig};
use super::histogram::GradientSums;
use super::loss::Objective;
use super::matrix::BinnedMatrix;
use super::model::{ErrorSums, GroupModelCard};
use super::partitions::GroupRows;
use super::rows::GroupName;
use super::steps::StepFeatures;
use super::table::FeatureTable;
use super::tree::TreeEnsemble;

/// A model and what is known of it.
#[derive(Debug, Clone)]
pub struct FittedModel {
    pub card: GroupModelCard,
    pub ensemble: TreeEnsemble,
    /// The mean loss of each round on the rows that it learned from; none of a model that was there already.
    pub losses: Vec<f64>,
}

/// The models of a group, one for each output.
pub struct FittedGroup {
    pub models: Vec<FittedModel>,
    /// Whether all of them were there already.
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

/// The rows of a group, and those that a model learns from in bins.
#[derive(Clone, Copy)]
struct BinnedRows<'a> {
    rows: &'a GroupRows,
    matrix: &'a BinnedMatrix,
}

/// What is done while a model is fitted.
pub trait FitWatch {
    /// How far an earlier run came with this model.
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
    /// What models are of: columns and the names of groups.
    columns: Value,
    /// Bytes that the histograms of all models that are fitted at once may hold.
    histogram_bytes_max: u64,
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
        Ok(ModelFitter {
            config,
            outputs,
            columns,
            histogram_bytes_max: memory_bytes / 4,
            known: Mutex::default(),
        })
    }

    /// What models are of: columns and the names of groups.
    pub fn columns(&self) -> &Value {
        &self.columns
    }

    /// The features of the models for the horizon's steps, where there is more than one.
    pub fn step_features(&self) -> Vec<StepFeatures> {
        let mut all: Vec<StepFeatures> = self
            .outputs
            .iter()
            .filter_map(|output| output.features.clone())
            .collect();
        all.dedup();
        all
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
        let mut fitted = FittedGroup {
            models: Vec::new(),
            reused: true,
        };
        for output in &self.outputs {
            let id = self.model_id(output, group, rows, digest).to_string();
            let twin = || {
                fitted
                    .models
                    .iter()
                    .find(|model| model.card.id == id)
                    .cloned()
            };
            let mut model = match lock(&self.known)?.remove(&id).or_else(twin) {
                Some(known) => known,
                None => {
                    fitted.reused = false;
                    let matrix = match &matrix {
                        Some(matrix) => matrix,
                        None => {
                            let made = BinnedMatrix::new(&rows.learn, threads.each);
                            self.check_histograms(&made, rows.learn.rows(), threads.groups)?;
                            matrix.insert(made)
                        }
                    };
                    let model = self.fit_output(
                        output,
                        id,
                        BinnedRows { rows, matrix },
                        threads.each,
                        watch,
                    )?;
                    watch.fitted(&model)?;
                    model
                }
            };
            (model.card.group, model.card.quantile) = (group.clone(), output.quantile);
            fitted.models.push(model);
        }
        Ok(fitted)
    }

    /// Whether all models of a group are there already.
    pub fn knows(&self, group: &GroupName, rows: &GroupRows) -> Result<bool> {
        let digest = digest_rows(rows);
        let known = lock(&self.known)?;
        let is_known =
            |output| known.contains_key(&self.model_id(output, group, rows, digest).to_string());
        Ok(self.outputs.iter().all(is_known))
    }

    /// Fits the models of a group, or says why it has none.
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
        id.finish()
    }

    fn fit_output(
        &self,
        output: &BoostedOutput,
        id: String,
        BinnedRows { rows, matrix }: BinnedRows<'_>,
        threads: usize,
        watch: &mut dyn FitWatch,
    ) -> Result<FittedModel> {
        let options = self.config.options(output.objective);
        let (labels, weights) = (&rows.learn.labels, &rows.learn.weights);
        let mut booster = Booster::new(
            options,
            matrix,
            labels,
            weights,
            Some(&rows.validate),
            threads,
        );
        if let Some(own) = &output.features {
            booster.take_only(own.allowed.clone());
        }
        if let Some(state) = watch.resume(&id)? {
            booster.resume(state, &rows.learn);
        }
        while !booster.is_done() {
            booster.round();
            watch.after_round(&id, &booster.state)?;
        }
        let BoostingState {
            ensemble, losses, ..
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
        };
        Ok(FittedModel {
            card,
            ensemble,
            losses,
        })
    }

    /// The errors on rows of the models of another group.
    pub fn errors_of(&self, models: &[FittedModel], rows: &FeatureTable) -> Vec<ErrorSums> {
        let models = models.iter().zip(&self.outputs);
        models
            .map(|(model, output)| sum_errors(output.objective, &model.ensemble, rows))
            .collect()
    }

    /// Each leaf of a tree has a histogram of each feature while the tree grows.
    fn check_histograms(
        &self,
        matrix: &BinnedMatrix,
        rows: usize,
        side_by_side: usize,
    ) -> Result<()> {
        let leaves =
            (self.config.leaves as usize).min(rows / self.config.min_leaf_rows as usize + 1);
        let bins: usize = matrix
            .columns
            .iter()
            .map(|column| column.bins.count())
            .sum();
        let needed = (leaves * bins * size_of::<GradientSums>()) as u64;
        let limit = self.histogram_bytes_max / side_by_side as u64;
        if needed <= limit {
            return Ok(());
        }
        let (needed, limit) = (needed.div_ceil(1 << 20), limit >> 20);
        let message = format!(
            "the histograms of {leaves} leaves would hold {needed} MiB, and may hold {limit}"
        );
        Err(Fault::new(codes::MEMORY, message)
            .hint("lower `leaves`, give categorical columns fewer ids (`min_count`, `hash_bucket`), or raise --memory"))
    }
}

fn digest_rows(rows: &GroupRows) -> u128 {
    let mut hasher = Xxh3::new();
    for table in [&rows.learn, &rows.validate] {
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

fn is_finite(ensemble: &TreeEnsemble) -> bool {
    let mut leaves = ensemble.trees.iter().flat_map(|tree| &tree.leaves);
    ensemble.base.is_finite() && leaves.all(|leaf| leaf.is_finite())
}
