//! Trains the model over all rows, and those of groups whose rows have changed.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use forebay_model::{ContentId, Fault, IdBuilder, Result, codes};
use forebay_run::{GroupFallback, GroupTrainingReport, TrainingContext, TrainingOutput, TrainingReport};
use forebay_storage::{EpochReport, Event};
use forebay_threads::{lock, parallel_map};
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::boost::{Booster, BoostingOptions, BoostingState};
use super::config::BoostingConfig;
use super::encode::{decode_ensembles, encode_ensembles};
use super::histogram::GradientSums;
use super::matrix::BinnedMatrix;
use super::model::{BoostingCard, ErrorSums, GroupModelCard};
use super::partitions::{GroupDivider, GroupRows, RowShape};
use super::rows::{GroupName, LabelPolicy, ReadRows, read_rows};
use super::table::FeatureTable;
use super::tree::TreeEnsemble;
use crate::train::file::{MODEL_FILE, Predictor, write_boosted_model};
use crate::train::tensors::TensorFile;

/// Changes whenever the same configuration and rows would give another model.
pub const VERSION: u32 = 1;

/// Groups whose models are kept together while a training is on its way.
const PART_GROUPS: usize = 64;

/// Rounds between checkpoints of the model over all rows.
const CHECKPOINT_ROUNDS: u64 = 50;

/// How often progress is told.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Points of the loss curve at most.
const CURVE_POINTS_MAX: usize = 200;

/// Reasons that a report tells at most.
const REASONS_MAX: usize = 100;

/// Bytes of a row while trees are grown over it, beside its features: bins apart, what it has of results,
/// derivatives twice, its number twice, label and weight.
const ROW_STATE_BYTES: u64 = 8 + 16 + 8 + 8;

/// A model and what is known of it.
struct TrainedModel {
    card: GroupModelCard,
    ensemble: TreeEnsemble,
    losses: Vec<f64>,
}

/// What became of a group.
enum GroupOutcome {
    Trained(TrainedModel),
    Reused(TrainedModel),
    Fallback { reason: String, errors: ErrorSums },
}

pub fn run(config: &BoostingConfig, course: &TrainingContext<'_>) -> Result<TrainingOutput> {
    let features = &course.rows.features;
    if features.dense.is_empty() && features.categorical.is_empty() {
        let fault = Fault::new(codes::EMPTY, "there is nothing to learn from: no column is a number");
        return Err(fault.hint("name columns under `dense` or `categorical`"));
    }
    BoostingRun::new(config, course)?.run()
}

struct BoostingRun<'a> {
    config: &'a BoostingConfig,
    course: &'a TrainingContext<'a>,
    options: BoostingOptions,
    shape: RowShape,
    identity: Value,
    /// Models of earlier runs, by id.
    known: Mutex<HashMap<String, TrainedModel>>,
    /// Parts of this training that are kept already.
    parts: u64,
    began: Instant,
    told: Instant,
    skipped: u64,
}

impl<'a> BoostingRun<'a> {
    fn new(config: &'a BoostingConfig, course: &'a TrainingContext<'a>) -> Result<BoostingRun<'a>> {
        let features = &course.rows.features;
        let width = |fields: &[forebay_feed::FeatureField]| fields.iter().map(|field| field.width as usize).sum();
        let shape = RowShape {
            numbers: width(&features.dense),
            ids: width(&features.categorical),
            weighted: features.weight.is_some(),
        };
        let identity = json!([config.model_identity()?, features.dense, features.categorical, config.by]);
        let mut run = BoostingRun {
            config,
            course,
            options: config.options(),
            shape,
            identity,
            known: Mutex::default(),
            parts: 0,
            began: Instant::now(),
            told: Instant::now(),
            skipped: 0,
        };
        run.recall()?;
        Ok(run)
    }

    /// Takes models of the published training, and those that a run of this training has finished.
    fn recall(&mut self) -> Result<()> {
        let mut known = HashMap::new();
        let mut keep = |cards: Vec<GroupModelCard>, ensembles: Vec<TreeEnsemble>| {
            for (card, ensemble) in cards.into_iter().zip(ensembles) {
                known.insert(card.id.clone(), TrainedModel { card, ensemble, losses: Vec::new() });
            }
        };
        // What is there may be of another kind or version: then it is trained again.
        let published = self.course.published_file(MODEL_FILE)?;
        if let Some(Ok(predictor)) = published.map(|bytes| Predictor::read(&bytes))
            && let Some((card, model)) = predictor.into_boosted()
        {
            keep(card.models, model.into_ensembles());
        }
        while let Some(bytes) = self.course.finished_part(self.parts)? {
            self.parts += 1;
            let words = TensorFile::read(&bytes)?.words;
            let cards: Vec<GroupModelCard> = serde_json::from_str(&words)
                .map_err(|error| Fault::new(codes::CORRUPT, "a part of a training cannot be read").cause(error))?;
            keep(cards, decode_ensembles(&bytes, (self.shape.numbers, self.shape.ids))?);
        }
        self.known = Mutex::new(known);
        Ok(())
    }

    fn run(mut self) -> Result<TrainingOutput> {
        let limit = self.course.memory_bytes / 2;
        let (learn_rows, validation_rows) =
            (self.course.rows.rows(), self.course.validation.map_or(0, |fed| fed.rows()));
        let sample = |rows: u64| self.config.sample_rows.map_or(rows, |sample| rows.min(sample));
        let needed = self.training_bytes(sample(learn_rows), sample(validation_rows));
        let grouped = !self.config.by.is_empty();
        self.check_memory(needed, if grouped { limit / 4 * 3 } else { limit }, "the model over all rows", "")?;

        // One read: each row goes to the sample of all rows and to its group.
        let bytes = (learn_rows + validation_rows) * self.shape.bytes();
        let scratch = self.course.scratch();
        let held_max = if grouped { limit - needed } else { 0 };
        let bytes = if grouped { bytes } else { 0 };
        let mut divider = GroupDivider::new(self.shape, bytes, held_max, scratch.as_ref())?;
        let mut all = GroupRows {
            learn: FeatureTable::new(self.shape.numbers, self.shape.ids),
            validate: FeatureTable::new(self.shape.numbers, self.shape.ids),
        };
        let policy = LabelPolicy { objective: self.options.objective, non_finite: self.config.non_finite };
        let feeds = [Some((self.course.rows, false)), self.course.validation.map(|fed| (fed, true))];
        for (fed, validate) in feeds.into_iter().flatten() {
            let (mut row, rows) = (0, fed.rows());
            let mut skipped = 0;
            let table = if validate { &mut all.validate } else { &mut all.learn };
            read_rows(fed, self.course, policy, &mut |read: ReadRows| {
                skipped += read.skipped;
                take_sample(table, &read.table, (row, rows), self.config.sample_rows);
                row += read.table.rows() as u64;
                if grouped { divider.add(&read, validate) } else { Ok(()) }
            })?;
            self.skipped += skipped;
        }
        if all.learn.rows() == 0 || (0..all.learn.rows()).all(|row| all.learn.weight(row) == 0.0) {
            let fault = Fault::new(codes::EMPTY, "no row counts: all are left out or have weight 0");
            return Err(fault.hint("look at `weight`, and at what `non_finite: skip` leaves out"));
        }

        let over_all = self.train_over_all(&all)?;
        drop(all);
        let mut groups = Vec::new();
        if grouped {
            let mut divided = divider.finish()?;
            for part in 0..divided.parts() {
                let held = divided.part_bytes(part);
                let own = divided.take_part(part)?;
                let side_by_side = self.side_by_side(&own, limit.saturating_sub(held), &divided.names)?;
                for chunk in own.chunks(PART_GROUPS) {
                    let outcomes = self.train_chunk(chunk, &divided.names, &over_all, side_by_side)?;
                    self.keep_part(&outcomes)?;
                    for ((number, _), outcome) in chunk.iter().zip(outcomes) {
                        let number = *number as usize;
                        groups.push((divided.names[number].clone(), divided.rows[number], outcome));
                    }
                    let done = (groups.len() as u64, divided.names.len() as u64);
                    self.tell(done, over_all.card.learned_loss);
                }
            }
            groups.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.finish(learn_rows, validation_rows, over_all, groups)
    }

    /// Bytes that training one model takes, rows included.
    fn training_bytes(&self, learn: u64, validate: u64) -> u64 {
        let row = self.shape.bytes();
        let bins = (self.shape.numbers + 2 * self.shape.ids) as u64;
        // Bins are made of one column at a time, of two bytes each.
        learn * (row + bins + ROW_STATE_BYTES) + validate * (row + 8)
    }

    fn check_memory(&self, needed: u64, limit: u64, what: &str, group: &str) -> Result<()> {
        if needed <= limit {
            return Ok(());
        }
        let message =
            format!("{what}{group} would hold {} MiB, and may hold {}", needed.div_ceil(1 << 20), limit >> 20);
        Err(Fault::new(codes::MEMORY, message)
            .hint("let it learn from fewer rows (`sample_rows`), name fewer columns, or raise --memory"))
    }

    /// Each leaf of a tree has a histogram of each feature while the tree grows.
    fn check_histograms(&self, matrix: &BinnedMatrix, rows: usize, threads: usize) -> Result<()> {
        let leaves = self.options.leaves.min(rows / self.options.limits.leaf_rows_min as usize + 1);
        let bins: usize = matrix.columns.iter().map(|column| column.bins.count()).sum();
        let needed = (leaves * bins * size_of::<GradientSums>()) as u64;
        // Groups are trained side by side on one thread each.
        let side_by_side = if threads == 1 { self.course.threads.max(1) as u64 } else { 1 };
        let limit = self.course.memory_bytes / 4 / side_by_side;
        if needed <= limit {
            return Ok(());
        }
        let (needed, limit) = (needed.div_ceil(1 << 20), limit >> 20);
        let message = format!("the histograms of {leaves} leaves would hold {needed} MiB, and may hold {limit}");
        Err(Fault::new(codes::MEMORY, message)
            .hint("lower `leaves`, give categorical columns fewer ids (`min_count`, `hash_bucket`), or raise --memory"))
    }

    /// How many groups of a part are trained at once.
    fn side_by_side(&self, groups: &[(u32, GroupRows)], limit: u64, names: &[GroupName]) -> Result<usize> {
        let rows = |(_, rows): &(u32, GroupRows)| (rows.learn.rows() as u64, rows.validate.rows() as u64);
        // Rows are held already; those that a model is trained on are sampled from them.
        let own = |group| self.training_bytes(rows(group).0, rows(group).1);
        let Some(largest) = groups.iter().max_by_key(|group| own(group)) else { return Ok(1) };
        self.check_memory(own(largest), limit, "the group ", &group_text(&names[largest.0 as usize]))?;
        let together = limit / own(largest).max(1);
        Ok((together.min(self.course.threads as u64) as usize).max(1))
    }

    fn model_id(&self, group: &GroupName, rows: &GroupRows) -> ContentId {
        let mut id = IdBuilder::new("boosted trees");
        id.json(&json!([self.identity, group, rows.learn.rows(), rows.validate.rows()]));
        let mut hasher = Xxh3::new();
        for table in [&rows.learn, &rows.validate] {
            hasher.update(bytemuck::cast_slice(&table.dense));
            hasher.update(bytemuck::cast_slice(&table.categories));
            hasher.update(bytemuck::cast_slice(&table.labels));
            hasher.update(bytemuck::cast_slice(&table.weights));
        }
        id.bytes(&hasher.digest128().to_le_bytes());
        id.finish()
    }

    fn take_known(&self, id: ContentId) -> Result<Option<TrainedModel>> {
        Ok(lock(&self.known)?.remove(&id.to_string()))
    }

    fn train_over_all(&mut self, rows: &GroupRows) -> Result<TrainedModel> {
        let id = self.model_id(&Vec::new(), rows);
        if let Some(known) = self.take_known(id)? {
            return Ok(known);
        }
        let (course, options) = (self.course, self.options);
        let rounds = u64::from(options.rounds);
        let state = self.checkpoint()?;
        if let Some(state) = &state {
            let (sink, step) = (course.sink().to_owned(), state.losses.len() as u64);
            course.emit(Event::TrainingResumed { sink, step, steps: rounds });
        }
        let mut told = self.told;
        let model = self.boost(id, Vec::new(), rows, state, course.threads, &mut |state| {
            let round = state.losses.len() as u64;
            let stop = course.check();
            if round.is_multiple_of(CHECKPOINT_ROUNDS) || stop.is_err() {
                course.save_checkpoint(&encode_state(state)?)?;
            }
            if told.elapsed() >= REPORT_INTERVAL {
                told = Instant::now();
                course.emit(step_event(
                    course,
                    options,
                    (round, rounds),
                    state.losses.last().copied().unwrap_or_default(),
                ));
            }
            stop
        })?;
        self.told = told;
        if !is_finite(&model.ensemble) {
            let fault = Fault::new(codes::NOT_FINITE, "the trees are not finite");
            return Err(fault.hint("lower `learning_rate`, or scale the label"));
        }
        self.save(std::iter::once(&model))?;
        Ok(model)
    }

    /// How far an earlier run came with the model over all rows.
    fn checkpoint(&self) -> Result<Option<BoostingState>> {
        let Some(bytes) = self.course.checkpoint()? else { return Ok(None) };
        let fault = |error| Fault::new(codes::CORRUPT, "a checkpoint cannot be read").cause(error);
        let words = TensorFile::read(&bytes)?.words;
        let (losses, best, stopped) = serde_json::from_str(&words).map_err(fault)?;
        let ensembles = decode_ensembles(&bytes, (self.shape.numbers, self.shape.ids))?;
        Ok(ensembles.into_iter().next().map(|ensemble| BoostingState { ensemble, best, losses, stopped }))
    }

    /// Trains one model.
    fn boost(
        &self,
        id: ContentId,
        group: GroupName,
        rows: &GroupRows,
        state: Option<BoostingState>,
        threads: usize,
        progress: &mut dyn FnMut(&BoostingState) -> Result<()>,
    ) -> Result<TrainedModel> {
        let matrix = BinnedMatrix::new(&rows.learn, threads);
        self.check_histograms(&matrix, rows.learn.rows(), threads)?;
        let weights = (rows.learn.labels.as_slice(), rows.learn.weights.as_slice());
        let mut booster = Booster::new(self.options, &matrix, weights, Some(&rows.validate), threads);
        if let Some(state) = state {
            booster.resume(state, &rows.learn);
        }
        while !booster.is_done() {
            booster.round();
            progress(&booster.state)?;
        }
        let state = booster.finish();
        let trees = state.ensemble.trees.len();
        let card = GroupModelCard {
            group,
            id: id.to_string(),
            rows: rows.learn.rows() as u64,
            validation_rows: rows.validate.rows() as u64,
            learned_loss: trees.checked_sub(1).and_then(|last| state.losses.get(last)).copied().unwrap_or_default(),
            errors: self.errors(&state.ensemble, &rows.validate),
        };
        Ok(TrainedModel { card, ensemble: state.ensemble, losses: state.losses })
    }

    fn errors(&self, ensemble: &TreeEnsemble, rows: &FeatureTable) -> ErrorSums {
        let mut sums = ErrorSums::default();
        for row in 0..rows.rows() {
            let output = ensemble.predict(rows.row(row));
            sums.add(self.options.objective, output, rows.labels[row], f64::from(rows.weight(row)));
        }
        sums
    }

    fn train_chunk(
        &self,
        groups: &[(u32, GroupRows)],
        names: &[GroupName],
        over_all: &TrainedModel,
        side_by_side: usize,
    ) -> Result<Vec<GroupOutcome>> {
        parallel_map(side_by_side, groups.len(), &|at| {
            let (number, rows) = &groups[at];
            self.train_group(&names[*number as usize], rows, over_all)
        })
    }

    fn train_group(&self, name: &GroupName, rows: &GroupRows, over_all: &TrainedModel) -> Result<GroupOutcome> {
        self.course.check()?;
        let fallback = |reason: String| {
            Ok(GroupOutcome::Fallback { reason, errors: self.errors(&over_all.ensemble, &rows.validate) })
        };
        let (count, min_rows) = (rows.learn.rows() as u64, self.config.min_rows());
        if count < min_rows {
            return fallback(format!("{count} rows are fewer than `min_rows: {min_rows}`"));
        }
        let sampled = sample_group(rows, self.config.sample_rows);
        let rows = sampled.as_ref().unwrap_or(rows);
        let id = self.model_id(name, rows);
        if let Some(known) = self.take_known(id)? {
            return Ok(GroupOutcome::Reused(known));
        }
        let mut check = |_: &BoostingState| self.course.check();
        match catch_unwind(AssertUnwindSafe(|| self.boost(id, name.clone(), rows, None, 1, &mut check))) {
            Ok(model) => match model? {
                model if is_finite(&model.ensemble) => Ok(GroupOutcome::Trained(model)),
                _ => fallback("its trees are not finite".to_owned()),
            },
            Err(_) => fallback("its training panicked".to_owned()),
        }
    }

    /// Keeps what a run that goes on after this one need not train again.
    fn keep_part(&mut self, outcomes: &[GroupOutcome]) -> Result<()> {
        let trained = outcomes.iter().filter_map(|outcome| match outcome {
            GroupOutcome::Trained(model) => Some(model),
            _ => None,
        });
        let trained: Vec<&TrainedModel> = trained.collect();
        if trained.is_empty() { Ok(()) } else { self.save(trained.into_iter()) }
    }

    fn save<'m>(&mut self, models: impl Iterator<Item = &'m TrainedModel> + Clone) -> Result<()> {
        let cards: Vec<&GroupModelCard> = models.clone().map(|model| &model.card).collect();
        let words = serde_json::to_string(&cards).map_err(|error| Fault::internal("a training").cause(error))?;
        let bytes = encode_ensembles(models.map(|model| &model.ensemble), words)?;
        self.course.save_part(self.parts, &bytes)?;
        self.parts += 1;
        Ok(())
    }

    fn tell(&mut self, done: (u64, u64), loss: f64) {
        if self.told.elapsed() >= REPORT_INTERVAL {
            self.told = Instant::now();
            self.course.emit(step_event(self.course, self.options, done, loss));
        }
    }

    fn finish(
        self,
        rows: u64,
        validation_rows: u64,
        over_all: TrainedModel,
        groups: Vec<(GroupName, u64, GroupOutcome)>,
    ) -> Result<TrainingOutput> {
        let grouped = !self.config.by.is_empty();
        let mut report = GroupTrainingReport { groups: groups.len() as u64, ..GroupTrainingReport::default() };
        let mut errors = if grouped { ErrorSums::default() } else { over_all.card.errors };
        let (mut lost, mut learned) = (0.0, 0);
        let curve = curve(&over_all.losses);
        let mut models = vec![over_all];
        for (group, rows, outcome) in groups {
            match outcome {
                GroupOutcome::Fallback { reason, errors: own } => {
                    errors.merge(own);
                    report.fallbacks += 1;
                    if report.fallback_reasons.len() < REASONS_MAX {
                        report.fallback_reasons.push(GroupFallback { group, rows, reason });
                    }
                }
                GroupOutcome::Trained(model) => {
                    report.trained += 1;
                    errors.merge(model.card.errors);
                    models.push(model);
                }
                GroupOutcome::Reused(model) => {
                    report.reused += 1;
                    errors.merge(model.card.errors);
                    models.push(model);
                }
            }
        }
        for model in models.iter().skip(usize::from(grouped && models.len() > 1)) {
            lost += model.card.learned_loss * model.card.rows as f64;
            learned += model.card.rows;
        }
        let trees = models.iter().map(|model| model.ensemble.trees.len() as u64).sum();
        let numbers = models.iter().flat_map(|model| &model.ensemble.trees);
        let parameters = numbers.map(|tree| (tree.nodes.len() + tree.leaves.len()) as u64).sum();
        let epoch = EpochReport {
            epoch: 0,
            step: trees,
            loss: lost / learned.max(1) as f64,
            learning_rate: self.options.learning_rate,
            validation: errors.metrics(),
        };
        self.course.emit(Event::TrainingEpoch {
            sink: self.course.sink().to_owned(),
            epoch: epoch.clone(),
            seconds: self.began.elapsed().as_secs_f64(),
            wait_seconds: 0.0,
            starved_steps: 0,
            bottleneck: "training",
            non_finite: 0,
            skipped_rows: self.skipped,
        });
        if report.fallbacks > 0 {
            let message = format!(
                "{} of {} groups of `{}` have no model of their own: the model over all rows predicts for them",
                report.fallbacks,
                report.groups,
                self.course.sink()
            );
            self.course.emit(Event::Warning { message });
        }
        let learned = TrainingReport {
            rows,
            validation_rows,
            parameters,
            epochs: vec![epoch],
            best_epoch: 0,
            curve,
            groups: grouped.then_some(report),
        };
        let card = BoostingCard {
            loss: self.config.loss,
            tweedie_power: self.config.tweedie_power,
            quantile: self.config.quantile,
            by: self.config.by.clone(),
            models: models.iter().map(|model| model.card.clone()).collect(),
        };
        let files = write_boosted_model(self.course, self.config.non_finite, card, &learned, |words| {
            encode_ensembles(models.iter().map(|model| &model.ensemble), words)
        })?;
        Ok(TrainingOutput { files, learned })
    }
}

fn encode_state(state: &BoostingState) -> Result<Vec<u8>> {
    let words = serde_json::to_string(&(&state.losses, state.best, state.stopped));
    let words = words.map_err(|error| Fault::internal("a training").cause(error))?;
    encode_ensembles(std::iter::once(&state.ensemble), words)
}

fn step_event(course: &TrainingContext<'_>, options: BoostingOptions, (step, steps): (u64, u64), loss: f64) -> Event {
    let (sink, learning_rate) = (course.sink().to_owned(), options.learning_rate);
    Event::TrainingStep { sink, epoch: 0, step, steps, loss, learning_rate }
}

/// Appends evenly spaced rows so that a sample of all of them has so many. `at` is the number of the first row, and how
/// many there are in all.
fn take_sample(sample: &mut FeatureTable, rows: &FeatureTable, at: (u64, u64), sample_rows: Option<u64>) {
    let (first, all) = at;
    let Some(wanted) = sample_rows.filter(|wanted| *wanted < all) else { return sample.append(rows) };
    let reached = |row: u64| u128::from(row) * u128::from(wanted) / u128::from(all);
    for row in 0..rows.rows() {
        let number = first + row as u64;
        if reached(number + 1) > reached(number) {
            sample.push_row(rows, row);
        }
    }
}

/// The sample of a group's rows, where it has more.
fn sample_group(rows: &GroupRows, sample_rows: Option<u64>) -> Option<GroupRows> {
    let wanted = sample_rows? as usize;
    if rows.learn.rows().max(rows.validate.rows()) <= wanted {
        return None;
    }
    let sample = |table: &FeatureTable| {
        let mut sample = FeatureTable::new(table.numbers, table.ids);
        take_sample(&mut sample, table, (0, table.rows() as u64), sample_rows);
        sample
    };
    Some(GroupRows { learn: sample(&rows.learn), validate: sample(&rows.validate) })
}

fn is_finite(ensemble: &TreeEnsemble) -> bool {
    let mut leaves = ensemble.trees.iter().flat_map(|tree| &tree.leaves);
    ensemble.base.is_finite() && leaves.all(|leaf| leaf.is_finite())
}

fn group_text(group: &GroupName) -> String {
    let values: Vec<&str> = group.iter().map(|value| value.as_deref().unwrap_or("null")).collect();
    format!("`{}`", values.join(", "))
}

fn curve(losses: &[f64]) -> Vec<(u64, f64)> {
    let step = losses.len().div_ceil(CURVE_POINTS_MAX).max(1);
    let last = losses.len().saturating_sub(1);
    let wanted = |round: &usize| (*round + 1).is_multiple_of(step) || *round == last;
    (0..losses.len()).filter(wanted).map(|round| (round as u64 + 1, losses[round])).collect()
}
