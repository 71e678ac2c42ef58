//! Trains a model of classes over all rows.

use std::time::Instant;

use forebay_contract::{
    BaselineReport, ColumnImportance, ModelClasses, TrainingContext, TrainingOutput, TrainingReport,
};
use forebay_feed::LoadCounts;
use forebay_model::{ContentId, Fault, IdBuilder, Result, RowChange, codes};
use forebay_storage::{EpochReport, Event, TrainingUnit};
use serde_json::json;

use super::checkpoint::{RoundState, decode_state, encode_state};
use super::class_boost::{ClassBooster, ClassBoostingState, fill_row_scores, log_priors};
use super::config::BoostingConfig;
use super::constant_columns::constant_columns;
use super::encode::encode_ensembles;
use super::fit::{check_histograms, digest_rows, gains_by_feature, is_finite};
use super::gathered_rows::{GatheredRows, RowGathering};
use super::importance::{MeasuredTrees, ShuffledColumns, column_gains};
use super::learn_rows::{FitRows, LearnRows};
use super::memory::{TrainingMemory, feature_block_bytes};
use super::model::{BoostingCard, ErrorSums, GroupModelCard};
use super::partitions::RowShape;
use super::rows::{LabelPolicy, ReadRows, read_rows};
use super::sample::take_sample;
use super::summary::curve;
use super::table::FeatureTable;
use super::trainer::{
    CHECKPOINT_ROUNDS, REPORT_INTERVAL, check_features, check_weights, step_event,
};
use super::training_files::TrainingFiles;
use super::tree::TreeEnsemble;
use crate::class_errors::ClassErrors;
use crate::classes::{ClassLabels, ClassNumbers, SortedClasses, refuse_single_class};
use crate::constants::warn_of_constants;
use crate::file::write_boosted_model;
use crate::group_names::GroupName;
use crate::only_epoch::report_only_epoch;
use crate::row_changes::{RowsRead, validation_step};

/// Bytes of a class for each row to learn from: score, probability, and a row number of its tree.
const LEARN_CLASS_BYTES: u64 = 8 + 8 + 4;

/// Bytes of a class for each validation row: its score.
const VALIDATION_CLASS_BYTES: u64 = 8;

/// Trains on the rows of a context.
pub fn run(config: &BoostingConfig, context: &TrainingContext<'_>) -> Result<TrainingOutput> {
    check_features(&context.rows.features)?;
    let training = ClassTraining {
        config,
        context,
        shape: RowShape::new(&context.rows.features),
        began: Instant::now(),
        skipped: 0,
        learn: RowsRead::default(),
        validate: RowsRead::default(),
    };
    training.run()
}

struct ClassTraining<'a> {
    config: &'a BoostingConfig,
    context: &'a TrainingContext<'a>,
    shape: RowShape,
    began: Instant,
    /// Rows that are left out.
    skipped: u64,
    /// Rows to learn from and rows to validate on, as they were read.
    learn: RowsRead,
    validate: RowsRead,
}

/// Validation rows whose class no row of the training has.
#[derive(Debug, Default)]
struct UnknownClasses {
    rows: u64,
    /// The class of the first of them.
    first: Option<String>,
}

impl UnknownClasses {
    /// The rows of known classes, with their labels.
    fn leave_out(&mut self, read: &ReadRows, classes: &SortedClasses) -> Result<FeatureTable> {
        let mut table = FeatureTable::new(read.table.numbers, read.table.ids);
        for (row, class) in labels_of(read)?.texts().enumerate() {
            let Some(label) = classes.rank_of(class) else {
                self.rows += 1;
                self.first.get_or_insert_with(|| class.to_owned());
                continue;
            };
            table.push_row(&read.table, row);
            if let Some(last) = table.labels.last_mut() {
                *last = label;
            }
        }
        Ok(table)
    }
}

fn labels_of(read: &ReadRows) -> Result<&ClassLabels> {
    let labels = read.classes.as_ref();
    labels.ok_or_else(|| Fault::internal("rows without classes"))
}

impl<'a> ClassTraining<'a> {
    fn run(mut self) -> Result<TrainingOutput> {
        let learn_rows = self.config.sampled_rows(self.context.rows.rows());
        let validation_rows = self.context.validation.map_or(0, |fed| fed.rows());
        let validation_rows = self.config.sampled_rows(validation_rows);
        let memory = self.memory((learn_rows, validation_rows), 0)?;
        let (mut learn, classes) = self.read_learn_rows(memory)?;
        check_weights(learn.learn())?;
        refuse_single_class(self.label(), &classes.classes)?;
        let class_bytes = learn_rows * LEARN_CLASS_BYTES + validation_rows * VALIDATION_CLASS_BYTES;
        let class_bytes = class_bytes * classes.classes.count() as u64;
        if self
            .memory((learn_rows, validation_rows), class_bytes)?
            .on_disk
        {
            // Once the classes are counted, there may be too many of them.
            learn = learn.spill(self.shape, self.files())?;
        }
        let validate = self.read_validation_rows(&classes)?;
        let rows = FitRows {
            learn: learn.learn(),
            validate: &validate,
        };

        let id = self.model_id(rows, &classes.classes)?.to_string();
        let state = self.boost(&id, rows, classes.classes.count())?;
        self.finish(id, classes.classes, rows, &state)
    }

    /// Memory of the training of these rows, of which classes take `class_bytes` bytes.
    fn memory(&self, rows: (u64, u64), class_bytes: u64) -> Result<TrainingMemory> {
        let memory_bytes = self.context.memory_bytes;
        TrainingMemory::within(
            memory_bytes / 2,
            self.shape,
            rows,
            class_bytes,
            memory_bytes,
        )
    }

    /// Temporary files of the rows to learn from.
    fn files(&self) -> TrainingFiles<'a> {
        TrainingFiles {
            scratch: self.context.scratch(),
            stop: self.context,
            block_bytes: feature_block_bytes(self.context.memory_bytes),
        }
    }

    /// The label's column.
    fn label(&self) -> &str {
        let label = self.context.rows.features.label.as_ref();
        label.map_or("", |label| &label.column)
    }

    fn policy(&self) -> LabelPolicy {
        LabelPolicy {
            objective: None,
            non_finite: self.config.non_finite,
        }
    }

    fn empty_table(&self) -> FeatureTable {
        FeatureTable::new(self.shape.numbers, self.shape.ids)
    }

    /// The rows to learn from, and their classes, which are those of all rows where a sample is taken.
    fn read_learn_rows(
        &mut self,
        memory: TrainingMemory,
    ) -> Result<(GatheredRows<'a>, SortedClasses)> {
        let fed = self.context.rows;
        let row_count = fed.rows();
        let sample_rows = self.config.sample_rows;
        let label = self.label();
        let files = memory.on_disk.then(|| self.files());
        let learn_rows = self.config.sampled_rows(row_count);
        let mut sample = RowGathering::new(self.shape, learn_rows, files)?;
        let mut numbers = ClassNumbers::default();
        let mut counts = LoadCounts::default();
        let mut rows = 0;
        let mut sampled = 0;
        read_rows(
            fed,
            self.context,
            self.policy(),
            &mut |mut read: ReadRows| {
                counts.add(&read.counts);
                read.table.labels = numbers.add(label, labels_of(&read)?)?;
                sampled += sample.take_sample(&read.table, (rows, row_count), sample_rows)?;
                rows += read.table.rows() as u64;
                Ok(())
            },
        )?;
        let mut sample = sample.finish()?;
        let classes = numbers.sort();
        classes.rank(sample.labels_mut());
        let features = &self.context.rows.features;
        let learn = sample.learn();
        let constants = constant_columns(learn, &features.dense, &features.categorical)?;
        warn_of_constants(self.context, &constants, "all rows");

        let step = self.context.sink().to_owned();
        self.skipped += counts.values.skipped;
        self.learn = self.count_rows(&step, rows, sampled, &counts);
        Ok((sample, classes))
    }

    /// The rows to validate on. Those of classes that were not learned are left out, and counted.
    fn read_validation_rows(&mut self, classes: &SortedClasses) -> Result<FeatureTable> {
        let mut sample = self.empty_table();
        let Some(fed) = self.context.validation else {
            return Ok(sample);
        };
        let row_count = fed.rows();
        let sample_rows = self.config.sample_rows;
        let mut unknown = UnknownClasses::default();
        let mut counts = LoadCounts::default();
        let mut rows = 0;
        read_rows(fed, self.context, self.policy(), &mut |read: ReadRows| {
            counts.add(&read.counts);
            let table = unknown.leave_out(&read, classes)?;
            take_sample(&mut sample, &table, (rows, row_count), sample_rows);
            rows += table.rows() as u64;
            Ok(())
        })?;
        let step = validation_step(self.context.sink());
        let sampled = sample.rows() as u64;
        self.skipped += counts.values.skipped;
        self.validate = self.count_rows(&step, rows, sampled, &counts);
        self.validate
            .changes
            .record(&step, RowChange::UnknownClass, unknown.rows);
        self.warn_of_unknown(&unknown);
        Ok(sample)
    }

    /// Counts rows of learned classes, of which some are sampled.
    fn count_rows(&self, step: &str, rows: u64, sampled: u64, counts: &LoadCounts) -> RowsRead {
        let features = &self.context.rows.features;
        let policy = self.config.non_finite.feed_policy();
        let mut read = RowsRead::new(sampled, step, features, counts, policy);
        let unsampled = rows.saturating_sub(sampled);
        read.changes.record(step, RowChange::Unsampled, unsampled);
        read
    }

    fn warn_of_unknown(&self, unknown: &UnknownClasses) {
        let Some(class) = &unknown.first else {
            return;
        };
        let message = format!(
            "{} validation rows of `{}` are left out: no row that it learns from has their class, \
             such as `{class}`; split so that each class is among the rows to learn from",
            unknown.rows,
            self.context.sink()
        );
        self.context.emit(Event::Warning { message });
    }

    /// Id of everything that determines the trees.
    fn model_id(&self, rows: FitRows<'_>, classes: &ModelClasses) -> Result<ContentId> {
        let features = &self.context.rows.features;
        let mut id = IdBuilder::new("boosted classes");
        id.json(&json!([
            self.config.model_identity()?,
            features.dense,
            features.categorical,
            classes,
            rows.learn.rows(),
            rows.validate.rows()
        ]));
        let digest = digest_rows(rows)?;
        id.bytes(&digest.to_le_bytes());
        Ok(id.finish())
    }

    /// Grows the trees, from the last checkpoint on if there is one.
    fn boost(&self, id: &str, rows: FitRows<'_>, classes: usize) -> Result<ClassBoostingState> {
        let context = self.context;
        let blocks = rows.learn.bin(context.threads)?;
        let blocks = blocks.as_ref();
        check_histograms(self.config, blocks, context.memory_bytes / 4)?;
        let mut booster = ClassBooster::new(self.config, classes, blocks, rows, context.threads);
        let rounds = u64::from(self.config.rounds);
        if let Some(state) = self.checkpoint(id, classes)? {
            context.emit(Event::TrainingResumed {
                sink: context.sink().to_owned(),
                step: state.losses.len() as u64,
                steps: rounds,
            });
            booster.resume(state)?;
        }
        let mut reported = Instant::now();
        while !booster.is_done() {
            let grown = booster.round();
            let round = booster.state.losses.len() as u64;
            let stop = context.check();
            if round.is_multiple_of(CHECKPOINT_ROUNDS) || stop.is_err() {
                context.save_checkpoint(&encode_classes(id, &booster.state)?)?;
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                let loss = booster.state.losses.last().copied().unwrap_or_default();
                let progress = (round, rounds, TrainingUnit::Round);
                context.emit(step_event(
                    context,
                    self.config.learning_rate,
                    progress,
                    loss,
                ));
            }
            stop?;
            grown?;
        }
        let state = booster.finish();
        if !state.ensembles.iter().all(is_finite) {
            let fault = Fault::new(codes::NOT_FINITE, "its trees are not finite");
            return Err(fault.hint("lower `learning_rate`"));
        }
        Ok(state)
    }

    /// State of these trees that an earlier run left.
    fn checkpoint(&self, id: &str, classes: usize) -> Result<Option<ClassBoostingState>> {
        let Some(bytes) = self.context.checkpoint()? else {
            return Ok(None);
        };
        let stored = decode_state(&bytes, self.shape.features())?;
        if stored.id != id || stored.ensembles.len() != classes {
            return Ok(None);
        }
        Ok(Some(ClassBoostingState {
            ensembles: stored.ensembles,
            best: stored.best,
            losses: stored.losses,
            stopped: stored.stopped,
            gains: stored.gains,
        }))
    }

    /// Report of the training, as one epoch.
    fn epoch(
        &self,
        rows: FitRows<'_>,
        state: &ClassBoostingState,
        errors: &ClassErrors,
    ) -> Result<EpochReport> {
        let rounds = state.ensembles.first().map_or(0, |first| first.trees.len());
        let loss = match rounds.checked_sub(1) {
            Some(last) => state.losses.get(last).copied().unwrap_or_default(),
            None => class_errors(&state.ensembles, rows.learn)?.loss(),
        };
        Ok(EpochReport {
            epoch: 0,
            step: (rounds * state.ensembles.len()) as u64,
            loss,
            learning_rate: self.config.learning_rate,
            rounds: Some(rounds as u64),
            validation: errors.metrics(),
        })
    }

    fn finish(
        self,
        id: String,
        classes: ModelClasses,
        rows: FitRows<'_>,
        state: &ClassBoostingState,
    ) -> Result<TrainingOutput> {
        let context = self.context;
        let errors = class_errors(&state.ensembles, rows.validate)?;
        let epoch = self.epoch(rows, state, &errors)?;
        report_only_epoch(context, &epoch, self.began, self.skipped);
        let mut models = Vec::with_capacity(state.ensembles.len());
        for gains in &state.gains {
            models.push(GroupModelCard {
                group: GroupName::new(),
                quantile: None,
                id: id.clone(),
                rows: rows.learn.rows() as u64,
                validation_rows: rows.validate.rows() as u64,
                learned_loss: epoch.loss,
                errors: error_sums(&errors),
                gains: gains_by_feature(gains, rows.learn.features()),
                scale: None,
            });
        }
        let learned = TrainingReport {
            start: None,
            rows: context.rows.rows(),
            changes: self.learn.changes.clone(),
            validation_rows: context.validation.map_or(0, |fed| fed.rows()),
            validation_changes: self.validate.changes.clone(),
            parameters: tree_numbers(&state.ensembles),
            epochs: vec![epoch],
            best_epoch: 0,
            batch_rows: 0,
            baseline: baseline(rows, classes.count(), &errors),
            curve: curve(&state.losses),
            step_models: None,
            groups: None,
            importance: self.importance(&models, &state.ensembles, rows.validate)?,
        };
        let card = BoostingCard {
            loss: self.config.loss,
            tweedie_power: None,
            quantile: None,
            quantiles: Vec::new(),
            intervals: false,
            classes: Some(classes),
            by: Vec::new(),
            steps: None,
            recursive: false,
            fallback: None,
            models,
        };
        let files =
            write_boosted_model(context, self.config.non_finite, card, &learned, |words| {
                encode_ensembles(state.ensembles.iter(), words)
            })?;
        Ok(TrainingOutput {
            files,
            learned,
            rows_learned: self.learn.rows,
            rows_validated: self.validate.rows,
        })
    }

    /// Importance of the columns for all classes together.
    fn importance(
        &self,
        models: &[GroupModelCard],
        ensembles: &[TreeEnsemble],
        validation: &FeatureTable,
    ) -> Result<Vec<ColumnImportance>> {
        let features = &self.context.rows.features;
        let mut gains = Vec::with_capacity(models.len());
        for model in models {
            gains.push(model.gains.as_slice());
        }
        let mut importance = column_gains(features, &gains);
        let shuffled = ShuffledColumns {
            trees: MeasuredTrees::Classes(ensembles.iter().collect()),
            validation,
        };
        shuffled.measure(features, &mut importance, self.context.threads)?;
        Ok(importance)
    }
}

/// Sums over rows for the trees of each class.
fn class_errors(ensembles: &[TreeEnsemble], rows: &dyn LearnRows) -> Result<ClassErrors> {
    let mut errors = ClassErrors::default();
    let mut scores = vec![0.0; ensembles.len()];
    rows.for_each_block(&mut |_, block| {
        for (row, label) in block.labels.iter().enumerate() {
            fill_row_scores(ensembles, block, row, &mut scores);
            errors.add(&scores, *label as usize, f64::from(block.weight(row)));
        }
        Ok(())
    })?;
    Ok(errors)
}

/// The sums that a model's file has.
fn error_sums(errors: &ClassErrors) -> ErrorSums {
    ErrorSums {
        weight: errors.weight,
        loss: errors.lost,
        ..ErrorSums::default()
    }
}

/// The loss on the validation rows, and that of the shares of the classes; `None` if no row counts.
fn baseline(rows: FitRows<'_>, classes: usize, errors: &ClassErrors) -> Option<BaselineReport> {
    let priors = log_priors(rows.learn, classes);
    let mut constant = ClassErrors::default();
    for (row, label) in rows.validate.labels.iter().enumerate() {
        let weight = f64::from(rows.validate.weight(row));
        constant.add(&priors, *label as usize, weight);
    }
    (errors.weight > 0.0).then(|| BaselineReport {
        loss: errors.loss(),
        constant: constant.loss(),
        naive: None,
    })
}

/// Numbers in all trees.
fn tree_numbers(ensembles: &[TreeEnsemble]) -> u64 {
    let trees = ensembles.iter().flat_map(|ensemble| &ensemble.trees);
    trees
        .map(|tree| (tree.nodes.len() + tree.leaves.len()) as u64)
        .sum()
}

fn encode_classes(id: &str, state: &ClassBoostingState) -> Result<Vec<u8>> {
    let round_state = RoundState {
        losses: &state.losses,
        best: state.best,
        stopped: state.stopped,
        gains: &state.gains,
    };
    encode_state(id, &round_state, state.ensembles.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_the_entropy_of_the_classes() {
        let labels = vec![0.0, 1.0, 1.0, 1.0];
        let table = FeatureTable {
            labels,
            ..FeatureTable::new(0, 0)
        };
        let rows = FitRows {
            learn: &table,
            validate: &table,
        };
        let ensembles = vec![TreeEnsemble::default(); 2];
        let errors = class_errors(&ensembles, rows.validate).unwrap();
        let baseline = baseline(rows, 2, &errors).unwrap();
        let entropy = -(0.25 * f64::ln(0.25) + 0.75 * f64::ln(0.75));
        assert!((baseline.constant - entropy).abs() < 1e-12);
        assert!((baseline.loss - f64::ln(2.0)).abs() < 1e-12);
    }
}
