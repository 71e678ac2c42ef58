//! Trains the models over all rows, and those of groups whose rows have changed.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use forebay_contract::{
    BaselineReport, ColumnImportance, FeedSource, NaiveBaseline, TrainingContext, TrainingOutput,
    TrainingReport,
};
use forebay_feed::{BatchFeatures, LoadCounts};
use forebay_model::{Fault, Result, RowChange, codes};
use forebay_storage::{Event, TrainingUnit};
use forebay_threads::parallel_map;
use serde_json::json;

use super::boost::BoostingState;
use super::checkpoint::{RoundState, decode_state, encode_state};
use super::column_fallback::ColumnFallback;
use super::config::{BoostedOutput, BoostingConfig};
use super::constant_columns::constant_columns;
use super::encode::{decode_ensembles, encode_ensembles};
use super::fallback::GroupFallbacks;
use super::fallback_kind::GroupFallbackKind;
use super::fit::{FitThreads, FitWatch, FittedGroup, FittedModel, ModelFitter};
use super::gathered_rows::RowGathering;
use super::importance::{MeasuredTrees, ShuffledColumns, column_gains};
use super::learn_rows::{FitRows, LearnRows};
use super::loss::BoostingLoss;
use super::memory::{TrainingMemory, check_memory, feature_block_bytes, training_bytes};
use super::model::{BoostingCard, GroupModelCard};
use super::part::{decode_fits, encode_part};
use super::partitions::{DividedGroups, GroupDivider, GroupRows, RowShape};
use super::rows::{LabelPolicy, ReadRows, read_rows};
use super::sample::{sample_group, take_sample};
use super::start::earlier_trees;
use super::steps::{StepFeatures, StepModels};
use super::summary::{GroupOutcome, GroupResult, TrainingSummary};
use super::table::{FeatureTable, RowFeatures};
use super::training_files::TrainingFiles;
use crate::constants::warn_of_constants;
use crate::file::{MODEL_FILE, Predictor, write_boosted_model};
use crate::group_names::{GroupName, group_text};
use crate::metrics::RankSums;
use crate::only_epoch::report_only_epoch;
use crate::row_changes::{RowsRead, validation_step};
use crate::rows::naive_places;
use crate::tensors::TensorFile;

/// Number of groups whose models are stored together during a training.
const PART_GROUPS: usize = 64;

/// Parts for each slot of a worker, so that none waits long for the last ones.
const PARTS_PER_SLOT: usize = 4;

/// Rounds between checkpoints of a model over all rows.
pub const CHECKPOINT_ROUNDS: u64 = 50;

/// Interval of progress reports.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(1);

pub fn run(config: &BoostingConfig, context: &TrainingContext<'_>) -> Result<TrainingOutput> {
    check_features(&context.rows.features)?;
    BoostingRun::new(config, context)?.run()
}

/// Refuses to learn from no columns.
pub fn check_features(features: &BatchFeatures) -> Result<()> {
    if !features.dense.is_empty() || !features.categorical.is_empty() {
        return Ok(());
    }
    let fault = Fault::new(
        codes::EMPTY,
        "there is nothing to learn from: no column is a number",
    );
    Err(fault.hint("name columns under `dense` or `categorical`"))
}

/// Refuses to learn from rows of which none counts.
pub fn check_weights(rows: &dyn LearnRows) -> Result<()> {
    if (0..rows.rows()).any(|row| rows.weight(row) != 0.0) {
        return Ok(());
    }
    let fault = Fault::new(
        codes::EMPTY,
        "no row counts: all are left out or have weight 0",
    );
    Err(fault.hint("look at `weight`, and at what `non_finite: skip` leaves out"))
}

struct BoostingRun<'a> {
    config: &'a BoostingConfig,
    context: &'a TrainingContext<'a>,
    fitter: ModelFitter<'a>,
    /// Assignment of the horizon's steps to models, if there are several.
    steps: Option<StepModels>,
    shape: RowShape,
    /// Parts of this training that are kept already.
    parts: u64,
    began: Instant,
    told: Instant,
    /// Rows that are left out.
    skipped: u64,
    /// Rows to learn from and rows to validate on, as they were read.
    learn: RowsRead,
    validate: RowsRead,
    /// The ranks of validation rows, where the label is a probability and the rows count.
    ranks: Option<RankSums>,
}

/// Judgement of a model, beside its losses.
struct ModelQuality {
    baseline: Option<BaselineReport>,
    importance: Vec<ColumnImportance>,
}

/// All rows of a training, as one read divides them.
struct DividedRows<'a> {
    /// The samples of all rows.
    learn: RowGathering<'a>,
    validate: FeatureTable,
    groups: GroupDivider,
    /// Groups above, of all levels.
    parents: GroupDivider,
    /// Number of columns by which the widest groups above differ from the groups.
    levels: usize,
}

impl<'a> BoostingRun<'a> {
    fn new(
        config: &'a BoostingConfig,
        context: &'a TrainingContext<'a>,
    ) -> Result<BoostingRun<'a>> {
        let features = &context.rows.features;
        let shape = RowShape::new(features);
        let columns = json!([features.dense, features.categorical, config.by]);
        let (steps, of_steps) = match &context.steps {
            Some(columns) => {
                let (models, of_models) =
                    StepModels::divide(columns, features, &config.whole_columns())?;
                (Some(models), of_models)
            }
            None => (None, Vec::new()),
        };
        let mut run = BoostingRun {
            config,
            context,
            fitter: ModelFitter::new(config, columns, &of_steps, context.memory_bytes)?,
            steps,
            shape,
            parts: 0,
            began: Instant::now(),
            told: Instant::now(),
            skipped: 0,
            learn: RowsRead::default(),
            validate: RowsRead::default(),
            ranks: None,
        };
        if let Some(training) = context.earlier_id()
            && let Some(trees) = earlier_trees(context)?
        {
            run.fitter.continue_from(training, trees)?;
        }
        run.recall()?;
        Ok(run)
    }

    /// Loads models of the published training, and those that a run of this training has finished.
    fn recall(&mut self) -> Result<()> {
        // What is there may be of another kind or version: then it is trained again.
        let published = self.context.published_file(MODEL_FILE)?;
        if let Some(Ok(predictor)) = published.map(|bytes| Predictor::read(&bytes))
            && let Some((card, model)) = predictor.into_boosted()
        {
            self.fitter.remember(card.models, model.into_ensembles())?;
        }
        while let Some(bytes) = self.context.finished_part(self.parts)? {
            self.parts += 1;
            let words = TensorFile::read(&bytes)?.words;
            let cards: Vec<GroupModelCard> = serde_json::from_str(&words).map_err(|error| {
                Fault::new(codes::CORRUPT, "a part of a training cannot be read").cause(error)
            })?;
            self.fitter
                .remember(cards, decode_ensembles(&bytes, self.shape.features())?)?;
        }
        Ok(())
    }

    fn run(mut self) -> Result<TrainingOutput> {
        let learn_rows = self.context.rows.rows();
        let validation_rows = self.context.validation.map_or(0, |fed| fed.rows());
        let limit = self.context.memory_bytes / 2;
        let is_grouped = !self.config.by.is_empty();
        let over_all_limit = if is_grouped { limit / 4 * 3 } else { limit };
        let sampled_rows = (
            self.config.sampled_rows(learn_rows),
            self.config.sampled_rows(validation_rows),
        );
        let memory_bytes = self.context.memory_bytes;
        let memory =
            TrainingMemory::within(over_all_limit, self.shape, sampled_rows, 0, memory_bytes)?;

        let rows = self.read_all(memory, limit - memory.bytes, learn_rows + validation_rows)?;
        let gathered = rows.learn.finish()?;
        let learn = gathered.learn();
        let validate = rows.validate;
        self.warn_of_constants(learn)?;
        check_weights(learn)?;

        self.check_interval_rows(&validate)?;

        let over_all = self.train_over_all(FitRows {
            learn,
            validate: &validate,
        })?;
        let column = self.fallback_column(learn)?;
        let baseline = self.baseline(&over_all, &validate);
        let mut fallbacks = GroupFallbacks::new(over_all, column, &self.config.fallback);
        let is_ranked = self.config.loss == BoostingLoss::Logistic && validation_rows > 0;
        if is_ranked {
            self.ranks = Some(RankSums::default());
        }
        if is_ranked && !is_grouped {
            let models = std::mem::take(&mut fallbacks.over_all);
            self.rank_rows(&validate, &|number, _, features| {
                models[number].ensemble.predict(features)
            });
            fallbacks.over_all = models;
        }
        let shuffled = self.shuffled_importance(&fallbacks.over_all, &validate)?;
        // Frees memory for the rows of groups.
        drop(gathered);
        drop(validate);
        let groups = if is_grouped {
            let groups = rows.groups.finish()?;
            let parents = rows.parents.finish()?;
            Some(self.train_all_groups(groups, parents, &mut fallbacks, limit)?)
        } else {
            None
        };
        let ranks = self.ranks.take();
        let summary = TrainingSummary::new(fallbacks, groups, ranks);
        let importance = match shuffled {
            Some(importance) => importance,
            None => column_gains(&self.context.rows.features, &point_gains(&summary.models)),
        };
        let quality = ModelQuality {
            baseline,
            importance,
        };
        self.finish(learn_rows, validation_rows, summary, quality)
    }

    /// Fails where there are too few validation rows for intervals.
    fn check_interval_rows(&self, validate: &FeatureTable) -> Result<()> {
        let Some(intervals) = &self.config.intervals else {
            return Ok(());
        };
        let counts = |row: &usize| validate.weight(*row) > 0.0;
        let rows = (0..validate.rows()).filter(counts).count() as u64;
        let rows_min = intervals.rows_min();
        if rows >= rows_min {
            return Ok(());
        }
        let message = format!(
            "`intervals` needs {rows_min} validation rows for its widest level, and {rows} count"
        );
        Err(Fault::new(codes::EMPTY, message)
            .hint("make the part `validation` of the split larger, or lower the greatest level"))
    }

    /// Importance of columns by the models over all rows; `None` where groups have models of their own, whose rows are
    /// not at hand together.
    fn shuffled_importance(
        &self,
        over_all: &[FittedModel],
        validation: &FeatureTable,
    ) -> Result<Option<Vec<ColumnImportance>>> {
        if !self.config.by.is_empty() {
            return Ok(None);
        }
        let features = &self.context.rows.features;
        let mut importance = column_gains(features, &point_gains(over_all));
        let mut points = Vec::new();
        for (model, output) in over_all.iter().zip(&self.fitter.outputs) {
            if output.quantile.is_none() {
                points.push((output.objective, &model.ensemble));
            }
        }
        let shuffled = ShuffledColumns {
            trees: MeasuredTrees::Points(points),
            validation,
        };
        shuffled.measure(features, &mut importance, self.context.threads)?;
        Ok(Some(importance))
    }

    /// Temporary files of the rows that the model over all rows learns from.
    fn files(&self) -> TrainingFiles<'a> {
        TrainingFiles {
            scratch: self.context.scratch(),
            stop: self.context,
            block_bytes: feature_block_bytes(self.context.memory_bytes),
        }
    }

    /// Reads all rows once: each goes to the sample of all rows, to its group, and to the groups above it. Of the rows of
    /// groups, `held_max` bytes stay in memory.
    fn read_all(
        &mut self,
        memory: TrainingMemory,
        held_max: u64,
        row_count: u64,
    ) -> Result<DividedRows<'a>> {
        let scratch = self.context.scratch();
        let is_grouped = !self.config.by.is_empty();
        let held_max = if is_grouped { held_max } else { 0 };
        let bytes = if is_grouped {
            row_count * self.shape.bytes()
        } else {
            0
        };
        let levels = match self.config.fallback {
            GroupFallbackKind::Parent => self.config.by.len() - 1,
            _ => 0,
        };
        // Rows of groups above go to those of each level, too.
        let share = held_max / (1 + levels as u64);
        let parent_bytes = bytes * levels as u64;
        let parent_share = share * levels as u64;
        let learn_rows = self.config.sampled_rows(self.context.rows.rows());
        let files = memory.on_disk.then(|| self.files());
        let mut rows = DividedRows {
            learn: RowGathering::new(self.shape, learn_rows, files)?,
            validate: FeatureTable::new(self.shape.numbers, self.shape.ids),
            groups: GroupDivider::new(self.shape, bytes, share, scratch.as_ref())?,
            parents: GroupDivider::new(self.shape, parent_bytes, parent_share, scratch.as_ref())?,
            levels,
        };
        self.read_feed(self.context.rows, false, &mut rows)?;
        if let Some(validation) = self.context.validation {
            self.read_feed(validation, true, &mut rows)?;
        }
        Ok(rows)
    }

    fn read_feed(
        &mut self,
        fed: &FeedSource,
        validate: bool,
        rows: &mut DividedRows<'_>,
    ) -> Result<()> {
        let config = self.config;
        let policy = LabelPolicy {
            objective: Some(config.objective()?),
            non_finite: config.non_finite,
        };
        let row_count = fed.rows();
        let mut next_row = 0;
        let mut sampled = 0;
        let mut counts = LoadCounts::default();
        read_rows(fed, self.context, policy, &mut |read: ReadRows| {
            counts.add(&read.counts);
            let position = (next_row, row_count);
            if validate {
                take_sample(
                    &mut rows.validate,
                    &read.table,
                    position,
                    config.sample_rows,
                );
            } else {
                sampled += rows
                    .learn
                    .take_sample(&read.table, position, config.sample_rows)?;
            }
            next_row += read.table.rows() as u64;
            for level in 1..=rows.levels {
                rows.parents.add(&read, validate, level)?;
            }
            if !config.by.is_empty() {
                rows.groups.add(&read, validate, config.by.len())?;
            }
            Ok(())
        })?;
        if validate {
            sampled = rows.validate.rows() as u64;
        }
        self.skipped += counts.values.skipped;
        self.count_rows(validate, next_row, sampled, &counts);
        Ok(())
    }

    /// Warns of features from which trees learn nothing.
    fn warn_of_constants(&self, rows: &dyn LearnRows) -> Result<()> {
        let features = &self.context.rows.features;
        let constants = constant_columns(rows, &features.dense, &features.categorical)?;
        warn_of_constants(self.context, &constants, "all rows");
        Ok(())
    }

    fn fallback_column(&self, rows: &dyn LearnRows) -> Result<Option<ColumnFallback>> {
        let GroupFallbackKind::Column(column) = &self.config.fallback else {
            return Ok(None);
        };
        let dense = &self.context.rows.features.dense;
        ColumnFallback::new(column, dense, &self.fitter.outputs, rows).map(Some)
    }

    /// Trains the groups, after those above them that predict for small ones.
    fn train_all_groups(
        &mut self,
        groups: DividedGroups,
        parents: DividedGroups,
        fallbacks: &mut GroupFallbacks,
        limit: u64,
    ) -> Result<Vec<GroupResult>> {
        let ranks = self.ranks.take();
        let parents_limit = limit.saturating_sub(groups.held_bytes());
        let mut trained_parents = self.train_parents(&groups, parents, fallbacks, parents_limit)?;
        self.borrow_bounds(
            &mut trained_parents,
            &fallbacks.over_all,
            "groups above others",
        );
        for parent in trained_parents {
            if let GroupOutcome::Fitted(fitted) = parent.outcome {
                fallbacks.parents.insert(parent.name, fitted.models);
            }
        }
        // Rows of groups above others are those of the groups: they are ranked once.
        self.ranks = ranks;
        let mut trained = self.train_groups(groups, &|_| true, fallbacks, limit)?;
        self.borrow_bounds(&mut trained, &fallbacks.over_all, "groups");
        Ok(trained)
    }

    /// Gives groups with too few validation rows for intervals the widths of the model over all rows, and says so.
    fn borrow_bounds(&self, groups: &mut [GroupResult], over_all: &[FittedModel], kind: &str) {
        let Some(intervals) = &self.config.intervals else {
            return;
        };
        let rows_min = intervals.rows_min();
        let mut borrowing = 0_u64;
        for group in groups.iter_mut() {
            let GroupOutcome::Fitted(fitted) = &mut group.outcome else {
                continue;
            };
            let mut borrows = false;
            let outputs = self.fitter.outputs.iter().zip(over_all);
            for (model, (output, whole)) in fitted.models.iter_mut().zip(outputs) {
                if output.bound.is_some() && model.card.validation_rows < rows_min {
                    model.ensemble.base = whole.ensemble.base;
                    model.card.scale = whole.card.scale;
                    borrows = true;
                }
            }
            borrowing += u64::from(borrows);
        }
        if borrowing > 0 {
            let message = format!(
                "{borrowing} of {} {kind} of `{}` have fewer than {rows_min} validation rows: \
                 their intervals are as wide as those of the model over all rows; give the \
                 validation part more rows for intervals of their own",
                groups.len(),
                self.context.sink()
            );
            self.context.emit(Event::Warning { message });
        }
    }

    /// Counts `rows` that were read and are not left out, of which `sampled` are those of the model over all rows.
    fn count_rows(&mut self, validate: bool, rows: u64, sampled: u64, counts: &LoadCounts) {
        let features = &self.context.rows.features;
        let sink = self.context.sink();
        let step = if validate {
            validation_step(sink)
        } else {
            sink.to_owned()
        };
        let policy = self.config.non_finite.feed_policy();
        let mut read = RowsRead::new(rows, &step, features, counts, policy);
        // Groups have samples of their own.
        if self.config.by.is_empty() {
            let unsampled = rows.saturating_sub(sampled);
            read.changes.record(&step, RowChange::Unsampled, unsampled);
            read.rows = sampled;
        }
        if validate {
            self.validate = read;
        } else {
            self.learn = read;
        }
    }

    /// Losses on the validation rows of the constant that all models begin with, and of columns that predict by themselves.
    fn baseline(&self, over_all: &[FittedModel], rows: &FeatureTable) -> Option<BaselineReport> {
        let objective = self.fitter.outputs.first()?.objective;
        let base = over_all.first()?.ensemble.base;
        let naive = naive_places(&self.context.rows.features.dense, &self.context.naive);
        let mut constant = 0.0;
        let mut total = 0.0;
        let mut losses = vec![0.0; naive.len()];
        for row in 0..rows.rows() {
            let label = rows.labels[row];
            let weight = f64::from(rows.weight(row));
            total += weight;
            constant += weight * objective.value(base, label);
            for ((_, index), loss) in naive.iter().zip(&mut losses) {
                let value = rows.row(row).dense[*index];
                let result = if value.is_nan() {
                    base
                } else {
                    objective.result(value)
                };
                *loss += weight * objective.value(result, label);
            }
        }
        let naive = naive.into_iter().zip(losses);
        let naive = naive.map(|((column, _), loss)| NaiveBaseline {
            column,
            loss: loss / total,
        });
        (total > 0.0).then(|| BaselineReport {
            loss: f64::NAN,
            constant: constant / total,
            naive: naive.min_by(|a, b| a.loss.total_cmp(&b.loss)),
        })
    }

    /// Adds the results of the point forecasts for some rows to the ranks, where these are counted.
    fn rank_rows(
        &mut self,
        rows: &FeatureTable,
        result: &dyn Fn(usize, &BoostedOutput, RowFeatures<'_>) -> f64,
    ) {
        let Some(ranks) = &mut self.ranks else {
            return;
        };
        let points = self.fitter.outputs.iter().enumerate();
        for (number, output) in points.filter(|(_, output)| output.quantile.is_none()) {
            // A row counts once for each step that it could be predicted for.
            let times = output
                .features
                .as_ref()
                .map_or(1, |features| features.steps) as f64;
            for row in 0..rows.rows() {
                let value = result(number, output, rows.row(row));
                let weight = times * f64::from(rows.weight(row));
                ranks.add(value as f32, f64::from(rows.labels[row]), weight);
            }
        }
    }

    /// Adds the validation rows of groups to the ranks, where these are counted.
    fn rank_groups(
        &mut self,
        groups: &[(u32, GroupRows)],
        names: &[GroupName],
        outcomes: &[GroupOutcome],
        fallbacks: &GroupFallbacks,
    ) {
        if self.ranks.is_none() {
            return;
        }
        for ((number, rows), outcome) in groups.iter().zip(outcomes) {
            let name = &names[*number as usize];
            match outcome {
                GroupOutcome::Fitted(FittedGroup { models, .. }) => {
                    let sampled = sample_group(rows, self.config.sample_rows);
                    let rows = &sampled.as_ref().unwrap_or(rows).validate;
                    self.rank_rows(rows, &|number, _, features| {
                        models[number].ensemble.predict(features)
                    });
                }
                GroupOutcome::Fallback { .. } => {
                    self.rank_rows(&rows.validate, &|number, output, features| {
                        fallbacks.result(output, number, name, features)
                    });
                }
            }
        }
    }

    /// Trains the groups above those that have too few rows: of each the nearest that has enough.
    fn train_parents(
        &mut self,
        groups: &DividedGroups,
        above: DividedGroups,
        fallbacks: &GroupFallbacks,
        limit: u64,
    ) -> Result<Vec<GroupResult>> {
        let min_rows = self.config.group_rows_min();
        let mut large_parents: HashSet<&[Option<String>]> = HashSet::new();
        for (name, rows) in above.names.iter().zip(&above.rows) {
            if *rows >= min_rows {
                large_parents.insert(name);
            }
        }
        let mut parents: HashSet<GroupName> = HashSet::new();
        for (name, rows) in groups.names.iter().zip(&groups.rows) {
            if *rows >= min_rows {
                continue;
            }
            let mut names_above = (1..name.len()).rev().map(|length| &name[..length]);
            if let Some(parent) = names_above.find(|parent| large_parents.contains(parent)) {
                parents.insert(parent.to_vec());
            }
        }
        drop(large_parents);
        if parents.is_empty() {
            return Ok(Vec::new());
        }
        self.train_groups(above, &|name| parents.contains(name), fallbacks, limit)
    }

    /// Trains those groups that satisfy `is_trained`, within `limit` bytes; returns them in order of
    /// their names.
    fn train_groups(
        &mut self,
        mut divided: DividedGroups,
        is_trained: &dyn Fn(&GroupName) -> bool,
        fallbacks: &GroupFallbacks,
        limit: u64,
    ) -> Result<Vec<GroupResult>> {
        let mut groups = Vec::new();
        let slots = self.context.worker_slots()?;
        for part in 0..divided.parts() {
            let bytes = divided.part_bytes(part);
            let mut group_rows = divided.take_part(part)?;
            group_rows.retain(|(number, _)| is_trained(&divided.names[*number as usize]));
            if let Some(slots) = slots {
                let outcomes =
                    self.train_on_workers(&group_rows, &divided.names, fallbacks, slots)?;
                self.rank_groups(&group_rows, &divided.names, &outcomes, fallbacks);
                groups.extend(group_results(&divided, &group_rows, outcomes));
                continue;
            }
            let side_by_side =
                self.side_by_side(&group_rows, limit.saturating_sub(bytes), &divided.names)?;
            for chunk in group_rows.chunks(PART_GROUPS) {
                let outcomes = self.train_chunk(chunk, &divided.names, fallbacks, side_by_side)?;
                self.keep_part(&outcomes)?;
                self.rank_groups(chunk, &divided.names, &outcomes, fallbacks);
                groups.extend(group_results(&divided, chunk, outcomes));
                let done = groups.len() as u64;
                let group_count = divided.names.len() as u64;
                self.tell(
                    done,
                    group_count,
                    fallbacks
                        .over_all
                        .first()
                        .map_or(0.0, |model| model.card.learned_loss),
                );
            }
        }
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(groups)
    }

    /// Number of groups of a part that are trained at once.
    fn side_by_side(
        &self,
        groups: &[(u32, GroupRows)],
        limit: u64,
        names: &[GroupName],
    ) -> Result<usize> {
        let Some((number, rows)) = groups.iter().max_by_key(|(_, rows)| self.group_bytes(rows))
        else {
            return Ok(1);
        };
        let largest = self.group_bytes(rows);
        let name = group_text(&names[*number as usize]);
        check_memory(largest, limit, "the group ", &name)?;
        let groups_at_once = limit / largest.max(1);
        Ok((groups_at_once.min(self.context.threads as u64) as usize).max(1))
    }

    /// Bytes of the training of a group. Its rows are held already; those that a model is trained on are sampled from
    /// them.
    fn group_bytes(&self, rows: &GroupRows) -> u64 {
        let learn = rows.learn.rows() as u64;
        let validate = rows.validate.rows() as u64;
        training_bytes(self.shape, learn, validate)
    }

    fn train_over_all(&mut self, rows: FitRows<'_>) -> Result<Vec<FittedModel>> {
        let context = self.context;
        let rounds = u64::from(self.config.rounds);
        let checkpoint = self.checkpoint()?;
        let parts = self.parts;
        let rounds_told = self.told;
        let rate = self.config.learning_rate;
        let mut watch = OverAllWatch {
            context,
            rounds,
            checkpoint,
            told: rounds_told,
            parts,
            rate,
        };
        let fitted = self.fitter.fit(
            &Vec::new(),
            rows,
            FitThreads {
                each: context.threads,
                groups: 1,
            },
            &mut watch,
        );
        (self.told, self.parts) = (watch.told, watch.parts);
        Ok(fitted
            .map_err(|fault| fault.note("in the model over all rows"))?
            .models)
    }

    /// Checkpoint of the models over all rows from an earlier run: the id of a model, and its
    /// state.
    fn checkpoint(&self) -> Result<Option<(String, BoostingState)>> {
        let Some(bytes) = self.context.checkpoint()? else {
            return Ok(None);
        };
        let stored = decode_state(&bytes, self.shape.features())?;
        let Some(ensemble) = stored.ensembles.into_iter().next() else {
            return Ok(None);
        };
        let state = BoostingState {
            ensemble,
            best: stored.best,
            losses: stored.losses,
            stopped: stored.stopped,
            gains: stored.gains,
        };
        Ok(Some((stored.id, state)))
    }

    fn train_chunk(
        &self,
        groups: &[(u32, GroupRows)],
        names: &[GroupName],
        fallbacks: &GroupFallbacks,
        side_by_side: usize,
    ) -> Result<Vec<GroupOutcome>> {
        parallel_map(side_by_side, groups.len(), &|at| {
            let (number, rows) = &groups[at];
            self.train_group(&names[*number as usize], rows, fallbacks)
        })
    }

    fn train_group(
        &self,
        name: &GroupName,
        rows: &GroupRows,
        fallbacks: &GroupFallbacks,
    ) -> Result<GroupOutcome> {
        self.context.check()?;
        let count = rows.learn.rows() as u64;
        let min_rows = self.config.group_rows_min();
        if count < min_rows {
            let reason = format!("{count} rows are fewer than `min_rows: {min_rows}`");
            return Ok(self.fallback(name, rows, fallbacks, reason));
        }
        let sampled = sample_group(rows, self.config.sample_rows);
        let rows = sampled.as_ref().unwrap_or(rows);
        let threads = FitThreads {
            each: 1,
            groups: self.context.threads.max(1),
        };
        match self.fitter.fit_group(
            name,
            rows.fit_rows(),
            threads,
            &mut GroupWatch {
                context: self.context,
            },
        )? {
            Ok(fitted) => Ok(GroupOutcome::Fitted(fitted)),
            Err(reason) => Ok(self.fallback(name, rows, fallbacks, reason)),
        }
    }

    /// A group that others predict for.
    fn fallback(
        &self,
        name: &GroupName,
        rows: &GroupRows,
        fallbacks: &GroupFallbacks,
        reason: String,
    ) -> GroupOutcome {
        let (predicted_by, errors) = fallbacks.errors(&self.fitter, name, &rows.validate);
        GroupOutcome::Fallback {
            reason,
            predicted_by,
            errors,
        }
    }

    /// Trains groups on workers, but for those that have too few rows or a model already.
    fn train_on_workers(
        &mut self,
        groups: &[(u32, GroupRows)],
        names: &[GroupName],
        fallbacks: &GroupFallbacks,
        slots: usize,
    ) -> Result<Vec<GroupOutcome>> {
        let mut outcomes: Vec<Option<GroupOutcome>> = Vec::with_capacity(groups.len());
        let mut remote = Vec::new();
        for (at, (number, rows)) in groups.iter().enumerate() {
            let name = &names[*number as usize];
            if self.is_trained_here(name, rows)? {
                outcomes.push(Some(self.train_group(name, rows, fallbacks)?));
            } else {
                outcomes.push(None);
                remote.push(at);
            }
        }
        let groups_per_part = remote
            .len()
            .div_ceil(slots.max(1) * PARTS_PER_SLOT)
            .clamp(1, PART_GROUPS);
        let chunks: Vec<&[usize]> = remote.chunks(groups_per_part).collect();
        let steps: Vec<StepFeatures> = self.fitter.step_features();
        let mut encoded = chunks
            .iter()
            .map(|chunk| self.encode_groups(groups, names, chunk, &steps));
        let context = self.context;
        let mut parts = self.parts;
        context.train_on_workers(&mut encoded, &mut |part, bytes| {
            let fits = decode_fits(bytes, self.shape.features())?;
            let chunk = chunks.get(part).filter(|chunk| chunk.len() == fits.len());
            let chunk = chunk.ok_or_else(|| Fault::internal("a worker trained other groups"))?;
            let trained: Vec<&FittedModel> = fits.iter().flatten().flatten().collect();
            if !trained.is_empty() {
                save_part(context, parts, &trained)?;
                parts += 1;
            }
            for (at, fit) in chunk.iter().zip(fits) {
                let (number, rows) = &groups[*at];
                let name = &names[*number as usize];
                outcomes[*at] = Some(match fit {
                    Ok(models) => GroupOutcome::Fitted(FittedGroup {
                        models,
                        reused: false,
                    }),
                    Err(reason) => self.fallback(name, rows, fallbacks, reason),
                });
            }
            Ok(())
        })?;
        self.parts = parts;
        let mut all_outcomes = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            let missing = || Fault::internal("a group that no worker trained");
            all_outcomes.push(outcome.ok_or_else(missing)?);
        }
        Ok(all_outcomes)
    }

    /// True for a group that takes no time: one that others predict for, or whose rows have not changed.
    fn is_trained_here(&self, name: &GroupName, rows: &GroupRows) -> Result<bool> {
        if (rows.learn.rows() as u64) < self.config.group_rows_min() {
            return Ok(true);
        }
        let sampled = sample_group(rows, self.config.sample_rows);
        let rows = sampled.as_ref().unwrap_or(rows);
        self.fitter.knows(name, rows.fit_rows())
    }

    /// The sampled rows of some groups, by their positions, as a part for a worker.
    fn encode_groups(
        &self,
        groups: &[(u32, GroupRows)],
        names: &[GroupName],
        positions: &[usize],
        steps: &[StepFeatures],
    ) -> Result<Vec<u8>> {
        let mut samples = Vec::with_capacity(positions.len());
        for at in positions {
            samples.push(sample_group(&groups[*at].1, self.config.sample_rows));
        }
        let mut named = Vec::with_capacity(positions.len());
        for (at, sample) in positions.iter().zip(&samples) {
            let (number, rows) = &groups[*at];
            named.push((&names[*number as usize], sample.as_ref().unwrap_or(rows)));
        }
        encode_part(self.fitter.columns(), steps, self.shape, named)
    }

    /// Stores models that a later run of this training need not train again.
    fn keep_part(&mut self, outcomes: &[GroupOutcome]) -> Result<()> {
        let trained = outcomes.iter().filter_map(|outcome| match outcome {
            GroupOutcome::Fitted(FittedGroup {
                models,
                reused: false,
            }) => Some(models),
            _ => None,
        });
        let trained: Vec<&FittedModel> = trained.flatten().collect();
        if trained.is_empty() {
            return Ok(());
        }
        save_part(self.context, self.parts, &trained)?;
        self.parts += 1;
        Ok(())
    }

    fn tell(&mut self, round: u64, rounds: u64, loss: f64) {
        if self.told.elapsed() >= REPORT_INTERVAL {
            self.told = Instant::now();
            self.context.emit(step_event(
                self.context,
                self.config.learning_rate,
                (round, rounds, TrainingUnit::Group),
                loss,
            ));
        }
    }

    fn finish(
        self,
        rows: u64,
        validation_rows: u64,
        summary: TrainingSummary,
        quality: ModelQuality,
    ) -> Result<TrainingOutput> {
        let ModelQuality {
            baseline,
            importance,
        } = quality;
        let epoch = summary.epoch(self.config, &self.fitter.outputs);
        let baseline = baseline.and_then(|baseline| {
            let loss = epoch.validation.get("loss").copied()?;
            Some(BaselineReport { loss, ..baseline })
        });
        report_only_epoch(self.context, &epoch, self.began, self.skipped);
        if let Some(report) = summary
            .groups
            .as_ref()
            .filter(|report| report.fallbacks > 0)
        {
            let message = format!(
                "{} of {} groups of `{}` have no model of their own: {} predicts for them; to \
                 train them, lower `min_rows`, or group by fewer columns",
                report.fallbacks,
                report.groups,
                self.context.sink(),
                self.config.fallback.in_words()
            );
            self.context.emit(Event::Warning { message });
        }
        let learned = TrainingReport {
            start: None,
            rows,
            changes: self.learn.changes,
            validation_rows,
            validation_changes: self.validate.changes,
            parameters: summary.parameters(),
            epochs: vec![epoch],
            best_epoch: 0,
            batch_rows: 0,
            baseline,
            curve: summary.curve,
            step_models: self.steps.as_ref().map(|steps| steps.count() as u64),
            groups: summary.groups,
            importance,
        };
        let models = summary.models;
        let card = BoostingCard {
            loss: self.config.loss,
            tweedie_power: self.config.tweedie_power,
            quantile: self.config.quantile,
            quantiles: self.config.predicted_quantiles(),
            intervals: self.config.intervals.is_some(),
            classes: None,
            by: self.config.by.clone(),
            steps: self.steps.clone(),
            recursive: self.config.is_recursive(),
            fallback: summary.column,
            models: models.iter().map(|model| model.card.clone()).collect(),
        };
        let files = write_boosted_model(
            self.context,
            self.config.non_finite,
            card,
            &learned,
            |words| encode_ensembles(models.iter().map(|model| &model.ensemble), words),
        )?;
        Ok(TrainingOutput {
            files,
            learned,
            rows_learned: self.learn.rows,
            rows_validated: self.validate.rows,
        })
    }
}

/// Gains by feature of each model of the point forecast.
fn point_gains(models: &[FittedModel]) -> Vec<&[f64]> {
    let points = models.iter().filter(|model| model.card.quantile.is_none());
    points.map(|model| model.card.gains.as_slice()).collect()
}

/// Outcomes of groups, with their names.
fn group_results<'d>(
    divided: &'d DividedGroups,
    groups: &'d [(u32, GroupRows)],
    outcomes: Vec<GroupOutcome>,
) -> impl Iterator<Item = GroupResult> + 'd {
    groups.iter().zip(outcomes).map(|((number, _), outcome)| {
        let number = *number as usize;
        GroupResult {
            name: divided.names[number].clone(),
            rows: divided.rows[number],
            outcome,
        }
    })
}

/// Keeps checkpoints of the models over all rows, and reports their progress.
struct OverAllWatch<'a> {
    context: &'a TrainingContext<'a>,
    rounds: u64,
    checkpoint: Option<(String, BoostingState)>,
    told: Instant,
    parts: u64,
    rate: f64,
}

impl FitWatch for OverAllWatch<'_> {
    fn resume(&mut self, id: &str) -> Result<Option<BoostingState>> {
        let Some((_, state)) = self.checkpoint.take_if(|(state_id, _)| state_id == id) else {
            return Ok(None);
        };
        let sink = self.context.sink().to_owned();
        let step = state.losses.len() as u64;
        self.context.emit(Event::TrainingResumed {
            sink,
            step,
            steps: self.rounds,
        });
        Ok(Some(state))
    }

    fn after_round(&mut self, id: &str, state: &BoostingState) -> Result<()> {
        let round = state.losses.len() as u64;
        let stop = self.context.check();
        if round.is_multiple_of(CHECKPOINT_ROUNDS) || stop.is_err() {
            self.context.save_checkpoint(&encode_ensemble(id, state)?)?;
        }
        if self.told.elapsed() >= REPORT_INTERVAL {
            self.told = Instant::now();
            let loss = state.losses.last().copied().unwrap_or_default();
            let progress = (round, self.rounds, TrainingUnit::Round);
            self.context
                .emit(step_event(self.context, self.rate, progress, loss));
        }
        stop
    }

    fn fitted(&mut self, model: &FittedModel) -> Result<()> {
        save_part(self.context, self.parts, &[model])?;
        self.parts += 1;
        Ok(())
    }
}

/// Ends the training of a group when the run should stop.
struct GroupWatch<'a> {
    context: &'a TrainingContext<'a>,
}

impl FitWatch for GroupWatch<'_> {
    fn after_round(&mut self, _: &str, _: &BoostingState) -> Result<()> {
        self.context.check()
    }
}

fn save_part(context: &TrainingContext<'_>, part: u64, models: &[&FittedModel]) -> Result<()> {
    let cards: Vec<&GroupModelCard> = models.iter().map(|model| &model.card).collect();
    let words = serde_json::to_string(&cards)
        .map_err(|error| Fault::internal("a training").cause(error))?;
    context.save_part(
        part,
        &encode_ensembles(models.iter().map(|model| &model.ensemble), words)?,
    )
}

fn encode_ensemble(id: &str, state: &BoostingState) -> Result<Vec<u8>> {
    let round_state = RoundState {
        losses: &state.losses,
        best: state.best,
        stopped: state.stopped,
        gains: &state.gains,
    };
    encode_state(id, &round_state, std::iter::once(&state.ensemble))
}

/// Progress of a training: a step of so many, and its loss.
pub fn step_event(
    context: &TrainingContext<'_>,
    learning_rate: f64,
    (step, steps, unit): (u64, u64, TrainingUnit),
    loss: f64,
) -> Event {
    Event::TrainingStep {
        sink: context.sink().to_owned(),
        epoch: 0,
        step,
        steps,
        loss,
        learning_rate,
        unit,
    }
}
