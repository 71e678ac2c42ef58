//! Trains the models over all rows, and those of groups whose rows have changed.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};
use forebay_run::{
    BaselineReport, NaiveBaseline, Trainer, TrainingContext, TrainingOutput, TrainingReport,
};
use forebay_storage::{Event, TrainingUnit};
use forebay_threads::parallel_map;
use serde_json::json;

use super::boost::BoostingState;
use super::config::{BoostedOutput, BoostingConfig};
use super::encode::{decode_ensembles, encode_ensembles};
use super::fallback::{ColumnFallback, GroupFallbackKind, GroupFallbacks, group_text};
use super::fit::{FitThreads, FitWatch, FittedGroup, FittedModel, ModelFitter};
use super::loss::BoostingLoss;
use super::model::{BoostingCard, GroupModelCard};
use super::part::{decode_fits, encode_part};
use super::partitions::{DividedGroups, GroupDivider, GroupRows, RowShape};
use super::rows::{GroupName, LabelPolicy, ReadRows, read_rows};
use super::sample::{sample_group, take_sample};
use super::steps::{StepFeatures, StepModels};
use super::summary::{GroupOutcome, GroupResult, TrainingSummary};
use super::table::{FeatureTable, RowFeatures};
use crate::train::file::{MODEL_FILE, Predictor, write_boosted_model};
use crate::train::metrics::RankSums;
use crate::train::rows::naive_places;
use crate::train::tensors::TensorFile;

/// Changes whenever the same configuration and rows would give another model.
pub const VERSION: u32 = 3;

/// Groups whose models are kept together while a training is on its way.
const PART_GROUPS: usize = 64;

/// Parts for each slot of a worker, so that none waits long for the last ones.
const PARTS_PER_SLOT: usize = 4;

/// Rounds between checkpoints of a model over all rows.
const CHECKPOINT_ROUNDS: u64 = 50;

/// How often progress is told.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of a row while trees are grown over it, beside its features: bins apart, what it has of results,
/// derivatives twice, its number twice, label and weight.
const ROW_STATE_BYTES: u64 = 8 + 16 + 8 + 8;

pub fn run(config: &BoostingConfig, course: &TrainingContext<'_>) -> Result<TrainingOutput> {
    let features = &course.rows.features;
    if features.dense.is_empty() && features.categorical.is_empty() {
        let fault = Fault::new(
            codes::EMPTY,
            "there is nothing to learn from: no column is a number",
        );
        return Err(fault.hint("name columns under `dense` or `categorical`"));
    }
    BoostingRun::new(config, course)?.run()
}

struct BoostingRun<'a> {
    config: &'a BoostingConfig,
    course: &'a TrainingContext<'a>,
    fitter: ModelFitter<'a>,
    /// Which models predict which steps of the horizon, where there is more than one.
    steps: Option<StepModels>,
    shape: RowShape,
    /// Parts of this training that are kept already.
    parts: u64,
    began: Instant,
    told: Instant,
    skipped: u64,
    /// The ranks of validation rows, where the label is a probability and the rows count.
    ranks: Option<RankSums>,
}

impl<'a> BoostingRun<'a> {
    fn new(config: &'a BoostingConfig, course: &'a TrainingContext<'a>) -> Result<BoostingRun<'a>> {
        let features = &course.rows.features;
        let width = |fields: &[forebay_feed::FeatureField]| {
            fields.iter().map(|field| field.width as usize).sum()
        };
        let shape = RowShape {
            numbers: width(&features.dense),
            ids: width(&features.categorical),
            weighted: features.weight.is_some(),
        };
        let columns = json!([features.dense, features.categorical, config.by]);
        let (steps, of_steps) = match &course.steps {
            Some(columns) => {
                let (models, of_models) =
                    StepModels::divide(columns, features, &config.whole_columns())?;
                (Some(models), of_models)
            }
            None => (None, Vec::new()),
        };
        let mut run = BoostingRun {
            config,
            course,
            fitter: ModelFitter::new(config, columns, &of_steps, course.memory_bytes)?,
            steps,
            shape,
            parts: 0,
            began: Instant::now(),
            told: Instant::now(),
            skipped: 0,
            ranks: None,
        };
        run.recall()?;
        Ok(run)
    }

    /// Takes models of the published training, and those that a run of this training has finished.
    fn recall(&mut self) -> Result<()> {
        // What is there may be of another kind or version: then it is trained again.
        let published = self.course.published_file(MODEL_FILE)?;
        if let Some(Ok(predictor)) = published.map(|bytes| Predictor::read(&bytes))
            && let Some((card, model)) = predictor.into_boosted()
        {
            self.fitter.remember(card.models, model.into_ensembles())?;
        }
        while let Some(bytes) = self.course.finished_part(self.parts)? {
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
        let limit = self.course.memory_bytes / 2;
        let (learn_rows, validation_rows) = (
            self.course.rows.rows(),
            self.course.validation.map_or(0, |fed| fed.rows()),
        );
        let sample = |rows: u64| {
            self.config
                .sample_rows
                .map_or(rows, |sample| rows.min(sample))
        };
        let needed = training_bytes(self.shape, sample(learn_rows), sample(validation_rows));
        let grouped = !self.config.by.is_empty();
        check_memory(
            needed,
            if grouped { limit / 4 * 3 } else { limit },
            "the model over all rows",
            "",
        )?;

        // One read: each row goes to the sample of all rows and to its group.
        let bytes = (learn_rows + validation_rows) * self.shape.bytes();
        let scratch = self.course.scratch();
        let held_max = if grouped { limit - needed } else { 0 };
        let bytes = if grouped { bytes } else { 0 };
        // Rows of groups above go to those of each level, too.
        let levels = if self.config.fallback == GroupFallbackKind::Parent {
            self.config.by.len() - 1
        } else {
            0
        };
        let share = held_max / (1 + levels as u64);
        let mut divider = GroupDivider::new(self.shape, bytes, share, scratch.as_ref())?;
        let above = bytes * levels as u64;
        let mut parents =
            GroupDivider::new(self.shape, above, share * levels as u64, scratch.as_ref())?;
        let mut all = GroupRows {
            learn: FeatureTable::new(self.shape.numbers, self.shape.ids),
            validate: FeatureTable::new(self.shape.numbers, self.shape.ids),
        };
        let policy = LabelPolicy {
            objective: self.config.objective(),
            non_finite: self.config.non_finite,
        };
        let feeds = [
            Some((self.course.rows, false)),
            self.course.validation.map(|fed| (fed, true)),
        ];
        for (fed, validate) in feeds.into_iter().flatten() {
            let (mut row, rows) = (0, fed.rows());
            let mut skipped = 0;
            let table = if validate {
                &mut all.validate
            } else {
                &mut all.learn
            };
            read_rows(fed, self.course, policy, &mut |read: ReadRows| {
                skipped += read.skipped;
                take_sample(table, &read.table, (row, rows), self.config.sample_rows);
                row += read.table.rows() as u64;
                (1..=levels).try_for_each(|level| parents.add(&read, validate, level))?;
                if grouped {
                    divider.add(&read, validate, self.config.by.len())
                } else {
                    Ok(())
                }
            })?;
            self.skipped += skipped;
        }
        if all.learn.rows() == 0 || (0..all.learn.rows()).all(|row| all.learn.weight(row) == 0.0) {
            let fault = Fault::new(
                codes::EMPTY,
                "no row counts: all are left out or have weight 0",
            );
            return Err(fault.hint("look at `weight`, and at what `non_finite: skip` leaves out"));
        }

        let over_all = self.train_over_all(&all)?;
        let column = match &self.config.fallback {
            GroupFallbackKind::Column(column) => {
                let dense = &self.course.rows.features.dense;
                Some(ColumnFallback::new(
                    column,
                    dense,
                    &self.fitter.outputs,
                    &all.learn,
                )?)
            }
            GroupFallbackKind::AllRows | GroupFallbackKind::Parent => None,
        };
        let baseline = self.baseline(&over_all, &all.validate);
        let mut fallbacks = GroupFallbacks::new(over_all, column, &self.config.fallback);
        let is_ranked = self.config.loss == BoostingLoss::Logistic && validation_rows > 0;
        if is_ranked && !grouped {
            self.ranks = Some(RankSums::default());
            let models = std::mem::take(&mut fallbacks.over_all);
            self.rank_rows(&all.validate, &|number, _, features| {
                models[number].ensemble.predict(features)
            });
            fallbacks.over_all = models;
        }
        drop(all);
        let mut groups = Vec::new();
        if grouped {
            let (divided, above) = (divider.finish()?, parents.finish()?);
            let limit = limit.saturating_sub(divided.held_bytes());
            for GroupResult { name, outcome, .. } in
                self.train_parents(&divided, above, &fallbacks, limit)?
            {
                if let GroupOutcome::Fitted(fitted) = outcome {
                    fallbacks.parents.insert(name, fitted.models);
                }
            }
            let limit = self.course.memory_bytes / 2;
            // Rows of groups above others are those of the groups.
            self.ranks = is_ranked.then(RankSums::default);
            groups = self.train_groups(divided, &|_| true, &fallbacks, limit)?;
        }
        let groups = grouped.then_some(groups);
        let ranks = self.ranks.take();
        let summary = TrainingSummary::new(fallbacks, groups, ranks);
        self.finish(learn_rows, validation_rows, summary, baseline)
    }

    /// Losses on the validation rows of the constant that all models begin with, and of columns that predict by themselves.
    fn baseline(&self, over_all: &[FittedModel], rows: &FeatureTable) -> Option<BaselineReport> {
        let objective = self.fitter.outputs.first()?.objective;
        let base = over_all.first()?.ensemble.base;
        let naive = naive_places(&self.course.rows.features.dense, &self.course.naive);
        let mut constant = 0.0;
        let mut total = 0.0;
        let mut losses = vec![0.0; naive.len()];
        for row in 0..rows.rows() {
            let label = rows.labels[row];
            let weight = f64::from(rows.weight(row));
            total += weight;
            constant += weight * objective.value(base, label);
            for ((_, place), loss) in naive.iter().zip(&mut losses) {
                let value = rows.row(row).dense[*place];
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
            let times = output.features.as_ref().map_or(1, |own| own.steps) as f64;
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
        let rows: HashMap<&GroupName, u64> =
            above.names.iter().zip(above.rows.iter().copied()).collect();
        let small = groups
            .names
            .iter()
            .zip(&groups.rows)
            .filter(|(_, rows)| **rows < min_rows);
        let nearest = small.filter_map(|(name, _)| {
            let parents = (1..name.len()).rev().map(|values| name[..values].to_vec());
            parents
                .into_iter()
                .find(|parent| rows.get(parent).is_some_and(|rows| *rows >= min_rows))
        });
        let wanted: HashSet<GroupName> = nearest.collect();
        drop(rows);
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.train_groups(above, &|name| wanted.contains(name), fallbacks, limit)
    }

    /// Trains those of the groups that are wanted, within so many bytes; gives them in order of their names.
    fn train_groups(
        &mut self,
        mut divided: DividedGroups,
        wanted: &dyn Fn(&GroupName) -> bool,
        fallbacks: &GroupFallbacks,
        limit: u64,
    ) -> Result<Vec<GroupResult>> {
        let mut groups = Vec::new();
        let slots = self.course.worker_slots()?;
        for part in 0..divided.parts() {
            let held = divided.part_bytes(part);
            let mut own = divided.take_part(part)?;
            own.retain(|(number, _)| wanted(&divided.names[*number as usize]));
            if let Some(slots) = slots {
                let outcomes = self.train_on_workers(&own, &divided.names, fallbacks, slots)?;
                self.rank_groups(&own, &divided.names, &outcomes, fallbacks);
                groups.extend(group_results(&divided, &own, outcomes));
                continue;
            }
            let side_by_side =
                self.side_by_side(&own, limit.saturating_sub(held), &divided.names)?;
            for chunk in own.chunks(PART_GROUPS) {
                let outcomes = self.train_chunk(chunk, &divided.names, fallbacks, side_by_side)?;
                self.keep_part(&outcomes)?;
                self.rank_groups(chunk, &divided.names, &outcomes, fallbacks);
                groups.extend(group_results(&divided, chunk, outcomes));
                let (done, all) = (groups.len() as u64, divided.names.len() as u64);
                self.tell(
                    done,
                    all,
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

    /// How many groups of a part are trained at once.
    fn side_by_side(
        &self,
        groups: &[(u32, GroupRows)],
        limit: u64,
        names: &[GroupName],
    ) -> Result<usize> {
        let rows =
            |(_, rows): &(u32, GroupRows)| (rows.learn.rows() as u64, rows.validate.rows() as u64);
        // Rows are held already; those that a model is trained on are sampled from them.
        let own = |group| training_bytes(self.shape, rows(group).0, rows(group).1);
        let Some(largest) = groups.iter().max_by_key(|group| own(group)) else {
            return Ok(1);
        };
        check_memory(
            own(largest),
            limit,
            "the group ",
            &group_text(&names[largest.0 as usize]),
        )?;
        let together = limit / own(largest).max(1);
        Ok((together.min(self.course.threads as u64) as usize).max(1))
    }

    fn train_over_all(&mut self, rows: &GroupRows) -> Result<Vec<FittedModel>> {
        let course = self.course;
        let rounds = u64::from(self.config.rounds);
        let checkpoint = self.checkpoint()?;
        let (parts, told, rate) = (self.parts, self.told, self.config.learning_rate);
        let mut watch = OverAllWatch {
            course,
            rounds,
            checkpoint,
            told,
            parts,
            rate,
        };
        let fitted = self.fitter.fit(
            &Vec::new(),
            rows,
            FitThreads {
                each: course.threads,
                groups: 1,
            },
            &mut watch,
        );
        (self.told, self.parts) = (watch.told, watch.parts);
        Ok(fitted
            .map_err(|fault| fault.note("in the model over all rows"))?
            .models)
    }

    /// How far an earlier run came with which model over all rows.
    fn checkpoint(&self) -> Result<Option<(String, BoostingState)>> {
        let Some(bytes) = self.course.checkpoint()? else {
            return Ok(None);
        };
        let fault = |error| Fault::new(codes::CORRUPT, "a checkpoint cannot be read").cause(error);
        let words = TensorFile::read(&bytes)?.words;
        let (id, losses, best, stopped) = serde_json::from_str(&words).map_err(fault)?;
        let ensembles = decode_ensembles(&bytes, self.shape.features())?;
        Ok(ensembles.into_iter().next().map(|ensemble| {
            (
                id,
                BoostingState {
                    ensemble,
                    best,
                    losses,
                    stopped,
                },
            )
        }))
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
        self.course.check()?;
        let (count, min_rows) = (rows.learn.rows() as u64, self.config.group_rows_min());
        if count < min_rows {
            let reason = format!("{count} rows are fewer than `min_rows: {min_rows}`");
            return Ok(self.fallback(name, rows, fallbacks, reason));
        }
        let sampled = sample_group(rows, self.config.sample_rows);
        let rows = sampled.as_ref().unwrap_or(rows);
        let threads = FitThreads {
            each: 1,
            groups: self.course.threads.max(1),
        };
        match self.fitter.fit_group(
            name,
            rows,
            threads,
            &mut GroupWatch {
                course: self.course,
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
        let mut away = Vec::new();
        for (at, (number, rows)) in groups.iter().enumerate() {
            let name = &names[*number as usize];
            let sampled = sample_group(rows, self.config.sample_rows);
            let is_small = (rows.learn.rows() as u64) < self.config.group_rows_min();
            let is_here = is_small || self.fitter.knows(name, sampled.as_ref().unwrap_or(rows))?;
            outcomes.push(if is_here {
                Some(self.train_group(name, rows, fallbacks)?)
            } else {
                None
            });
            if !is_here {
                away.push(at);
            }
        }
        let each = away
            .len()
            .div_ceil(slots.max(1) * PARTS_PER_SLOT)
            .clamp(1, PART_GROUPS);
        let chunks: Vec<&[usize]> = away.chunks(each).collect();
        let steps: Vec<StepFeatures> = self.fitter.step_features();
        let encode = |chunk: &&[usize]| {
            let sampled: Vec<_> = chunk
                .iter()
                .map(|at| sample_group(&groups[*at].1, self.config.sample_rows))
                .collect();
            let own = chunk.iter().zip(&sampled).map(|(at, sampled)| {
                let (number, rows) = &groups[*at];
                (&names[*number as usize], sampled.as_ref().unwrap_or(rows))
            });
            encode_part(self.fitter.columns(), &steps, self.shape, own.collect())
        };
        let (course, mut kept) = (self.course, self.parts);
        course.train_on_workers(&mut chunks.iter().map(encode), &mut |part, bytes| {
            let fits = decode_fits(&bytes, self.shape.features())?;
            let chunk = chunks.get(part).filter(|chunk| chunk.len() == fits.len());
            let chunk = chunk.ok_or_else(|| Fault::internal("a worker trained other groups"))?;
            let trained: Vec<&FittedModel> = fits
                .iter()
                .filter_map(|fit| fit.as_ref().ok())
                .flatten()
                .collect();
            if !trained.is_empty() {
                save_part(course, kept, &trained)?;
                kept += 1;
            }
            for (at, fit) in chunk.iter().zip(fits) {
                let (number, rows) = &groups[*at];
                outcomes[*at] = Some(match fit {
                    Ok(models) => GroupOutcome::Fitted(FittedGroup {
                        models,
                        reused: false,
                    }),
                    Err(reason) => self.fallback(&names[*number as usize], rows, fallbacks, reason),
                });
            }
            Ok(())
        })?;
        self.parts = kept;
        let missing = || Fault::internal("a group that no worker trained");
        outcomes
            .into_iter()
            .map(|outcome| outcome.ok_or_else(missing))
            .collect()
    }

    /// Keeps what a run that goes on after this one need not train again.
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
        save_part(self.course, self.parts, &trained)?;
        self.parts += 1;
        Ok(())
    }

    fn tell(&mut self, round: u64, rounds: u64, loss: f64) {
        if self.told.elapsed() >= REPORT_INTERVAL {
            self.told = Instant::now();
            self.course.emit(step_event(
                self.course,
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
        baseline: Option<BaselineReport>,
    ) -> Result<TrainingOutput> {
        let epoch = summary.epoch(self.config, &self.fitter.outputs);
        let baseline = baseline.and_then(|baseline| {
            let loss = epoch.validation.get("loss").copied()?;
            Some(BaselineReport { loss, ..baseline })
        });
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
        if let Some(report) = summary
            .groups
            .as_ref()
            .filter(|report| report.fallbacks > 0)
        {
            let message = format!(
                "{} of {} groups of `{}` have no model of their own: {} predicts for them",
                report.fallbacks,
                report.groups,
                self.course.sink(),
                self.config.fallback.in_words()
            );
            self.course.emit(Event::Warning { message });
        }
        let learned = TrainingReport {
            start: None,
            rows,
            validation_rows,
            parameters: summary.parameters(),
            epochs: vec![epoch],
            best_epoch: 0,
            batch_rows: 0,
            baseline,
            curve: summary.curve,
            step_models: self.steps.as_ref().map(|steps| steps.count() as u64),
            groups: summary.groups,
        };
        let models = summary.models;
        let card = BoostingCard {
            loss: self.config.loss,
            tweedie_power: self.config.tweedie_power,
            quantile: self.config.quantile,
            quantiles: self.config.quantiles.clone(),
            by: self.config.by.clone(),
            steps: self.steps.clone(),
            recursive: self.config.recursive(),
            fallback: summary.column,
            models: models.iter().map(|model| model.card.clone()).collect(),
        };
        let files = write_boosted_model(
            self.course,
            self.config.non_finite,
            card,
            &learned,
            |words| encode_ensembles(models.iter().map(|model| &model.ensemble), words),
        )?;
        Ok(TrainingOutput { files, learned })
    }
}

/// Bytes that training one model takes, rows included.
fn training_bytes(shape: RowShape, learn: u64, validate: u64) -> u64 {
    let row = shape.bytes();
    let bins = (shape.numbers + 2 * shape.ids) as u64;
    // Bins are made of one column at a time, of two bytes each.
    learn * (row + bins + ROW_STATE_BYTES) + validate * (row + 8)
}

fn check_memory(needed: u64, limit: u64, what: &str, group: &str) -> Result<()> {
    if needed <= limit {
        return Ok(());
    }
    let message = format!(
        "{what}{group} would hold {} MiB, and may hold {}",
        needed.div_ceil(1 << 20),
        limit >> 20
    );
    Err(Fault::new(codes::MEMORY, message).hint(
        "let it learn from fewer rows (`sample_rows`), name fewer columns, or raise --memory",
    ))
}

/// Fails where training a group takes more memory than this.
pub fn check_group_memory(
    shape: RowShape,
    rows: &GroupRows,
    limit: u64,
    name: &GroupName,
) -> Result<()> {
    let needed = training_bytes(shape, rows.learn.rows() as u64, rows.validate.rows() as u64);
    check_memory(needed, limit, "the group ", &group_text(name))
}

/// What became of groups, with their names.
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

/// Keeps how far models over all rows have come, and tells of it.
struct OverAllWatch<'a> {
    course: &'a TrainingContext<'a>,
    rounds: u64,
    checkpoint: Option<(String, BoostingState)>,
    told: Instant,
    parts: u64,
    rate: f64,
}

impl FitWatch for OverAllWatch<'_> {
    fn resume(&mut self, id: &str) -> Result<Option<BoostingState>> {
        let Some((_, state)) = self.checkpoint.take_if(|(known, _)| known == id) else {
            return Ok(None);
        };
        let (sink, step) = (self.course.sink().to_owned(), state.losses.len() as u64);
        self.course.emit(Event::TrainingResumed {
            sink,
            step,
            steps: self.rounds,
        });
        Ok(Some(state))
    }

    fn after_round(&mut self, id: &str, state: &BoostingState) -> Result<()> {
        let round = state.losses.len() as u64;
        let stop = self.course.check();
        if round.is_multiple_of(CHECKPOINT_ROUNDS) || stop.is_err() {
            self.course.save_checkpoint(&encode_state(id, state)?)?;
        }
        if self.told.elapsed() >= REPORT_INTERVAL {
            self.told = Instant::now();
            let loss = state.losses.last().copied().unwrap_or_default();
            let progress = (round, self.rounds, TrainingUnit::Round);
            self.course
                .emit(step_event(self.course, self.rate, progress, loss));
        }
        stop
    }

    fn fitted(&mut self, model: &FittedModel) -> Result<()> {
        save_part(self.course, self.parts, &[model])?;
        self.parts += 1;
        Ok(())
    }
}

/// Ends the training of a group when the run should stop.
struct GroupWatch<'a> {
    course: &'a TrainingContext<'a>,
}

impl FitWatch for GroupWatch<'_> {
    fn after_round(&mut self, _: &str, _: &BoostingState) -> Result<()> {
        self.course.check()
    }
}

fn save_part(course: &TrainingContext<'_>, part: u64, models: &[&FittedModel]) -> Result<()> {
    let cards: Vec<&GroupModelCard> = models.iter().map(|model| &model.card).collect();
    let words = serde_json::to_string(&cards)
        .map_err(|error| Fault::internal("a training").cause(error))?;
    course.save_part(
        part,
        &encode_ensembles(models.iter().map(|model| &model.ensemble), words)?,
    )
}

fn encode_state(id: &str, state: &BoostingState) -> Result<Vec<u8>> {
    let words = serde_json::to_string(&(id, &state.losses, state.best, state.stopped));
    let words = words.map_err(|error| Fault::internal("a training").cause(error))?;
    encode_ensembles(std::iter::once(&state.ensemble), words)
}

fn step_event(
    course: &TrainingContext<'_>,
    learning_rate: f64,
    (step, steps, unit): (u64, u64, TrainingUnit),
    loss: f64,
) -> Event {
    Event::TrainingStep {
        sink: course.sink().to_owned(),
        epoch: 0,
        step,
        steps,
        loss,
        learning_rate,
        unit,
    }
}
