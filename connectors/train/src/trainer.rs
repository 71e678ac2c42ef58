//! The training itself: step after step, epoch after epoch.

use std::time::{Duration, Instant};

use forebay_contract::{ModelClasses, TrainingContext, TrainingOutput};
use forebay_feed::{Feed, FeedBatch, FeedStats, LoadCounts};
use forebay_model::{Fault, Result, codes};
use forebay_storage::{EpochReport, Event, MemoryBudget, TrainingUnit};

use super::adam::StepSchedule;
use super::config::{LossFunction, TrainConfig};
use super::engine::{StepResult, TrainingEngine};
use super::file::write_model;
use super::model_input::ModelInput;
use super::row_changes::RowsRead;
use super::rows::{
    count_again, counted_rows, evaluate, model_input, model_shape, sample_scale, training_bytes,
};
use super::scale::InputScale;
use super::start::EarlierNetwork;
use super::state::TrainingState;

/// Changes whenever the same configuration and rows would give another model.
pub const VERSION: u32 = 1;

/// The version of trainings that standardise numbers and labels. Version 1 had no scales.
pub const VERSION_STANDARDIZED: u32 = 2;

/// Points of the loss curve at most.
const CURVE_POINTS_MAX: u64 = 200;

/// The share of the learning rate at which a training continues an earlier model: AdamW starts
/// again, and its first steps have the full length for any gradient.
const CONTINUED_RATE: f64 = 0.25;

/// Interval of reports of steps.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A training with the configuration for its rows.
pub struct PreparedTraining {
    /// The configuration.
    pub config: TrainConfig,
    /// True if numbers and labels are standardised.
    standardizes: bool,
    /// The classes whose ranks are the labels; `None` of labels that are numbers.
    classes: Option<ModelClasses>,
}

impl PreparedTraining {
    /// Prepares the training of a configuration.
    pub fn new(config: &TrainConfig, context: &TrainingContext<'_>) -> PreparedTraining {
        PreparedTraining {
            config: config.for_rows(context.rows.rows(), context.earlier_id().is_some()),
            standardizes: config.standardizes(),
            classes: None,
        }
    }

    /// The training of a model of these classes.
    pub fn with_classes(self, classes: ModelClasses) -> PreparedTraining {
        PreparedTraining {
            classes: Some(classes),
            ..self
        }
    }

    /// Results of a row.
    fn outputs(&self) -> usize {
        self.classes.as_ref().map_or(1, ModelClasses::count)
    }
}

/// Trains from the beginning, or from the last checkpoint. `engine` creates the engine that
/// computes the steps.
pub fn run<E: TrainingEngine>(
    prepared: &PreparedTraining,
    context: &TrainingContext<'_>,
    engine: impl FnOnce(&TrainingState) -> Result<E>,
) -> Result<TrainingOutput> {
    let config = &prepared.config;
    let rows = context.rows.rows();
    let state = match context.checkpoint()? {
        Some(bytes) => TrainingState::decode(&bytes)?,
        None => begin(prepared, context)?,
    };
    let steps = rows.div_ceil(u64::from(config.rows_per_batch())) * u64::from(config.epoch_count());
    let engine = engine(&state)?;
    let mut training = TrainingLoop {
        config,
        context,
        state,
        engine,
        steps,
        lately: RecentLoss::default(),
        skipped_rows: 0,
    };
    training.state.progress.learned.rows = rows;
    training.state.progress.learned.validation_rows =
        context.validation.map_or(0, |fed| fed.rows());
    training.state.progress.learned.batch_rows = u64::from(config.rows_per_batch());
    training.state.progress.learned.parameters = training.state.parameters.len() as u64;
    training.run()?;
    training.count_changes()?;
    let TrainingState {
        shape,
        parameters,
        best,
        progress,
        ..
    } = training.state;
    let parameters = best.unwrap_or(parameters);
    let parameters = match &progress.scale {
        Some(scale) => scale.data_parameters(&shape, &parameters),
        None => parameters,
    };
    let classes = prepared.classes.as_ref();
    let learned = &progress.learned;
    let files = write_model(config, context, &shape, &parameters, classes, learned)?;
    let rows_of = |read: &Option<RowsRead>| read.as_ref().map_or(0, |read| read.rows);
    Ok(TrainingOutput {
        files,
        rows_learned: rows_of(&progress.learn),
        rows_validated: rows_of(&progress.validate),
        learned: progress.learned,
    })
}

/// The state before the first step.
fn begin(prepared: &PreparedTraining, context: &TrainingContext<'_>) -> Result<TrainingState> {
    let config = &prepared.config;
    let earlier = EarlierNetwork::of(context)?;
    let shape = model_shape(
        config,
        context,
        earlier.as_ref().map(|earlier| &earlier.shape),
        prepared.outputs(),
    )?;
    let mut state = TrainingState::initial(shape, config.seed);
    if let Some(classes) = &prepared.classes {
        state.progress.class_weights = vec![0.0; classes.count()];
    }
    if let Some(earlier) = &earlier {
        earlier.copy_to(&mut state.parameters);
    }
    if prepared.standardizes {
        let scale = sample_scale(context, config, &state.shape)?;
        if earlier.is_some() {
            scale.standardize_parameters(&state.shape, &mut state.parameters);
        } else if let Some(bias) = state.parameters.layers.last_mut() {
            // The model predicts the mean label of the sample for mean inputs.
            *bias = 0.0;
        }
        state.progress.scale = Some(scale);
    }
    Ok(state)
}

struct TrainingLoop<'a, E> {
    config: &'a TrainConfig,
    context: &'a TrainingContext<'a>,
    state: TrainingState,
    engine: E,
    /// Number of steps of all epochs.
    steps: u64,
    lately: RecentLoss,
    /// Rows of this epoch so far that do not count.
    skipped_rows: u64,
}

/// Time of the last progress report, and the losses since then.
struct RecentLoss {
    at: Instant,
    sums: (f64, f64),
}

impl Default for RecentLoss {
    fn default() -> RecentLoss {
        RecentLoss {
            at: Instant::now(),
            sums: (0.0, 0.0),
        }
    }
}

impl<E: TrainingEngine> TrainingLoop<'_, E> {
    fn run(&mut self) -> Result<()> {
        if self.state.progress.stopped {
            return Ok(());
        }
        if self.state.progress.step > 0 {
            let sink = self.context.sink().to_owned();
            let step = self.state.progress.step;
            let steps = self.steps;
            self.context
                .emit(Event::TrainingResumed { sink, step, steps });
        }
        let mut feed_config = self.context.rows.config(self.config.seed)?;
        let batch_rows = self.config.rows_per_batch();
        // The feed has the memory that parameters, their copies and results leave.
        feed_config.memory_max = Some(
            self.context
                .memory_bytes
                .saturating_sub(training_bytes(&self.state.shape, batch_rows)),
        );
        feed_config.epochs = u64::from(self.config.epoch_count());
        feed_config.batch_rows = batch_rows;
        feed_config.cursor = self.state.progress.cursor.clone();
        feed_config.allocator = self
            .engine
            .slot_allocator()
            .unwrap_or(feed_config.allocator);
        // Its feed reads all rows of the first epoch if it begins with the first of them.
        let begins = self.state.progress.cursor.is_none();
        let mut feed = Feed::start(feed_config)?;
        let mut epoch_began = Instant::now();
        self.lately = RecentLoss::default();
        while let Some(batch) = feed.next() {
            let batch = batch?;
            let epoch = batch.epoch();
            let rate = self.train_batch(batch)?;
            self.report_progress(epoch, rate);
            let ended = feed.cursor().epoch > epoch;
            self.state.progress.cursor = Some(feed.cursor().clone());
            if ended {
                self.finish_steps()?;
                if begins && epoch == 0 {
                    self.state.progress.learn = Some(self.rows_read(&feed.first_epoch_counts()));
                }
                let stats = feed.take_stats();
                self.end_epoch(
                    epoch,
                    rate,
                    &stats,
                    std::mem::replace(&mut epoch_began, Instant::now()),
                )?;
            }
            let stop = self.context.check();
            let step = self.state.progress.step;
            let due =
                step.is_multiple_of(self.config.checkpoint_steps) || self.state.progress.stopped;
            // A stopped training saves its last step, too. After the last step of all, the model is
            // published instead.
            if (due || stop.is_err()) && step < self.steps {
                self.finish_steps()?;
                self.context.save_checkpoint(&self.state.encode()?)?;
            }
            stop?;
            if self.state.progress.stopped {
                break;
            }
        }
        Ok(())
    }

    /// Trains on a batch; returns the learning rate.
    fn train_batch(&mut self, mut batch: FeedBatch) -> Result<f64> {
        let rows = model_input(&batch);
        let counted = counted_rows(&rows);
        self.skipped_rows += rows.rows as u64 - counted;
        if batch.epoch() == 0 {
            self.count_labels(&rows);
            self.state.progress.rows_learned += counted;
        }
        if let Some(scale) = &self.state.progress.scale {
            scale.standardize_batch(&mut batch)?;
        } else if self.state.progress.step == 0 && self.context.earlier_id().is_none() {
            set_bias(
                &mut self.state,
                &model_input(&batch),
                self.config.loss_function(),
            );
        }
        self.state.progress.step += 1;
        let mut pace = StepSchedule::at_step(self.config, self.state.progress.step, self.steps);
        if self.context.earlier_id().is_some() {
            pace.rate *= CONTINUED_RATE;
        }
        self.engine.step(&mut self.state, batch, pace)?;
        self.take_results()?;
        Ok(pace.rate)
    }

    /// The rows of the first epoch, of which these values were changed.
    fn rows_read(&self, counts: &LoadCounts) -> RowsRead {
        let rows = self.state.progress.rows_learned;
        let features = &self.context.rows.features;
        let policy = self.config.non_finite.feed_policy();
        RowsRead::new(rows, self.context.sink(), features, counts, policy)
    }

    /// Reports the rows that the training left out and the values that it changed.
    fn count_changes(&mut self) -> Result<()> {
        let learn = match self.state.progress.learn.take() {
            Some(learn) => learn,
            None => count_again(self.context, self.config)?,
        };
        // A checkpoint of an earlier version holds no counts.
        if self.state.progress.validate.is_none()
            && let Some(fed) = self.context.validation
        {
            let (_, read) = evaluate(fed, self.context, self.config, &self.state)?;
            self.state.progress.validate = Some(read);
        }
        let progress = &mut self.state.progress;
        progress.learned.changes = learn.changes.clone();
        progress.learn = Some(learn);
        if let Some(validate) = &progress.validate {
            progress.learned.validation_changes = validate.changes.clone();
        }
        Ok(())
    }

    /// Adds the labels of a batch to the sum of the labels of training.
    fn count_labels(&mut self, rows: &ModelInput<'_>) {
        let progress = &mut self.state.progress;
        let (sum, total) = &mut progress.labels;
        for (row, label) in rows.labels.iter().enumerate() {
            let weight = f64::from(rows.weight(row));
            // Rows that do not count may hold anything.
            if weight > 0.0 {
                *sum += weight * f64::from(*label);
                *total += weight;
                // Of numbers, there are no weights by class.
                if let Some(of_class) = progress.class_weights.get_mut(*label as usize) {
                    *of_class += weight;
                }
            }
        }
    }

    /// Waits for all steps so far: then the state is that after the last of them.
    fn finish_steps(&mut self) -> Result<()> {
        self.engine.finish_steps(&mut self.state)?;
        self.take_results()
    }

    /// Records the results of finished steps.
    fn take_results(&mut self) -> Result<()> {
        while let Some(result) = self.engine.next_result() {
            self.record_result(result)?;
        }
        Ok(())
    }

    fn record_result(
        &mut self,
        StepResult {
            step,
            loss,
            weight,
            strange,
        }: StepResult,
    ) -> Result<()> {
        if let Some(label) = strange {
            let message = format!("the label {label} is not between 0 and 1, as probabilities are");
            let hint = "derive a label of 0 and 1, or choose `loss: squared_error`";
            let column = self
                .context
                .rows
                .features
                .label
                .as_ref()
                .map_or("", |label| &label.column);
            return Err(Fault::new(codes::BAD_ROW, message)
                .column(column)
                .hint(hint));
        }
        let progress = &mut self.state.progress;
        if weight > 0.0 {
            if !loss.is_finite() {
                let message =
                    format!("the loss is not finite at step {step}: the training has diverged");
                let hint = "lower `learning_rate`, set `clip_norm: 1.0`, or bring the features \
                            to one scale (`standardize`)";
                return Err(Fault::new(codes::NOT_FINITE, message).hint(hint));
            }
            let unit = progress.scale.as_ref().map_or(1.0, InputScale::loss_unit);
            for sums in [
                &mut progress.epoch,
                &mut progress.stretch,
                &mut self.lately.sums,
            ] {
                *sums = (sums.0 + loss * unit * weight, sums.1 + weight);
            }
        }
        if step.is_multiple_of(self.steps.div_ceil(CURVE_POINTS_MAX)) || step == self.steps {
            let (lost, weight) = std::mem::take(&mut progress.stretch);
            if weight > 0.0 {
                progress.learned.curve.push((step, lost / weight));
            }
        }
        Ok(())
    }

    fn report_progress(&mut self, epoch: u64, learning_rate: f64) {
        if self.lately.at.elapsed() < REPORT_INTERVAL || self.lately.sums.1 == 0.0 {
            return;
        }
        let (lost, weight) = std::mem::take(&mut self.lately).sums;
        let sink = self.context.sink().to_owned();
        let loss = lost / weight;
        let step = self.state.progress.step;
        let steps = self.steps;
        self.context.emit(Event::TrainingStep {
            sink,
            epoch,
            step,
            steps,
            loss,
            learning_rate,
            unit: TrainingUnit::Step,
        });
    }

    fn end_epoch(
        &mut self,
        epoch: u64,
        learning_rate: f64,
        stats: &FeedStats,
        began: Instant,
    ) -> Result<()> {
        let context = self.context;
        let config = self.config;
        MemoryBudget::new(context.memory_bytes).check()?;
        let (lost, weight) = std::mem::take(&mut self.state.progress.epoch);
        if weight == 0.0 {
            let fault = Fault::new(codes::EMPTY, "no row counts: all of them have weight 0");
            return Err(fault.hint("look at `weight`, and at what `non_finite: skip` leaves out"));
        }
        if !self.state.parameters.are_finite() {
            let fault = Fault::new(
                codes::NOT_FINITE,
                format!("the model is not finite after epoch {epoch}"),
            );
            return Err(fault.hint("lower `learning_rate`, or set `clip_norm: 1.0`"));
        }
        let state = &self.state;
        let evaluated = context
            .validation
            .map(|fed| evaluate(fed, context, config, state));
        let mut metrics = None;
        if let Some((measured, read)) = evaluated.transpose()? {
            if self.state.progress.validate.is_none() {
                warn_of_unknown_classes(context, measured.unknown_rows());
            }
            // Without a row of a learned class, there is no loss to report or to wait for.
            metrics = Some(measured).filter(|measured| measured.has_rows());
            self.state.progress.validate.get_or_insert(read);
        }
        let validation = metrics
            .as_ref()
            .map(|metrics| metrics.finish())
            .unwrap_or_default();
        let step = self.state.progress.step;
        let report = EpochReport {
            epoch,
            step,
            loss: lost / weight,
            learning_rate,
            rounds: None,
            validation,
        };
        let progress = &mut self.state.progress;
        let (labels, total) = progress.labels;
        let baseline = metrics
            .as_ref()
            .filter(|_| total > 0.0)
            .map(|metrics| metrics.baseline(labels / total));
        progress.learned.epochs.push(report.clone());
        match (config.patience_epochs, &metrics) {
            (Some(patience), Some(metrics)) => {
                if progress.best_loss.is_none_or(|best| metrics.loss() < best) {
                    progress.best_loss = Some(metrics.loss());
                    progress.waited = 0;
                    progress.learned.best_epoch = epoch;
                    progress.learned.baseline = baseline;
                    self.state.best = Some(self.state.parameters.clone());
                } else {
                    progress.waited += 1;
                    progress.stopped = progress.waited >= patience;
                }
            }
            _ => {
                progress.learned.best_epoch = epoch;
                progress.learned.baseline = baseline;
            }
        }
        context.emit(Event::TrainingEpoch {
            sink: context.sink().to_owned(),
            epoch: report,
            seconds: began.elapsed().as_secs_f64(),
            wait_seconds: stats.consumer_wait.as_secs_f64(),
            starved_steps: stats.starved_steps,
            bottleneck: stats.bottleneck().name(),
            non_finite: stats.times.found.non_finite,
            // Counts of the feed include rows of the next epoch that were read ahead.
            skipped_rows: std::mem::take(&mut self.skipped_rows),
        });
        Ok(())
    }
}

/// Warns of validation rows whose class no row of the training has.
fn warn_of_unknown_classes(context: &TrainingContext<'_>, rows: u64) {
    if rows == 0 {
        return;
    }
    let message = format!(
        "{rows} validation rows of `{}` are left out: no row that it learns from has their class; \
         split so that each class is among the rows to learn from",
        context.sink()
    );
    context.emit(Event::Warning { message });
}

/// Sets the biases so that the model predicts the shares of the classes in its first batch for any inputs.
fn set_class_biases(state: &mut TrainingState, rows: &ModelInput<'_>) {
    // One row more of each class: a batch may lack some.
    let mut weights = vec![1.0; state.shape.outputs];
    for (row, label) in rows.labels.iter().enumerate() {
        let weight = f64::from(rows.weight(row));
        if weight > 0.0
            && let Some(of_class) = weights.get_mut(*label as usize)
        {
            *of_class += weight;
        }
    }
    let total: f64 = weights.iter().sum();
    // The biases of the last layer come last.
    let biases = state.parameters.layers.iter_mut().rev();
    for (bias, weight) in biases.zip(weights.iter().rev()) {
        *bias = (weight / total).ln() as f32;
    }
}

/// Sets the bias so that the model predicts the mean label of its first batch for any inputs.
fn set_bias(state: &mut TrainingState, rows: &ModelInput<'_>, loss: LossFunction) {
    if loss == LossFunction::Softmax {
        set_class_biases(state, rows);
        return;
    }
    let mut sum = 0.0;
    let mut weight = 0.0;
    for (row, label) in rows.labels.iter().enumerate() {
        let of_row = f64::from(rows.weight(row));
        sum += of_row * f64::from(*label);
        weight += of_row;
    }
    if weight == 0.0 {
        return;
    }
    let mean = sum / weight;
    let bias = match loss {
        LossFunction::SquaredError => mean,
        LossFunction::Logistic => {
            let share = mean.clamp(1e-6, 1.0 - 1e-6);
            (share / (1.0 - share)).ln()
        }
        LossFunction::Softmax => 0.0,
    };
    if let Some(last) = state.parameters.layers.last_mut() {
        *last = bias as f32;
    }
}
