//! The training itself: step after step, epoch after epoch.

use std::time::{Duration, Instant};

use forebay_feed::{Feed, FeedBatch, FeedStats};
use forebay_model::{Fault, Result, codes};
use forebay_run::{TrainingContext, TrainingOutput};
use forebay_storage::{EpochReport, Event, MemoryBudget, TrainingUnit};

use super::compute::ModelInput;
use super::config::{LossFunction, TrainConfig};
use super::engine::{StepResult, StepSchedule, TrainingEngine};
use super::file::write_model;
use super::rows::{evaluate, model_input, model_shape, training_bytes};
use super::start::EarlierNetwork;
use super::state::TrainingState;

/// Changes whenever the same configuration and rows would give another model.
pub const VERSION: u32 = 1;

/// Points of the loss curve at most.
const CURVE_POINTS_MAX: u64 = 200;

/// The share of the learning rate at which a training goes on from an earlier model: AdamW begins anew, and its first
/// steps have the full length whatever the gradient.
const CONTINUED_RATE: f64 = 0.25;

/// How often a step is told.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration for the rows of a training.
pub fn config_for(config: &TrainConfig, course: &TrainingContext<'_>) -> TrainConfig {
    config.for_rows(course.rows.rows(), course.earlier_id().is_some())
}

/// Trains from the beginning, or from the last checkpoint. `config` is that of [`config_for`], and `engine` makes what
/// computes the steps.
pub fn run<E: TrainingEngine>(
    config: &TrainConfig,
    course: &TrainingContext<'_>,
    engine: impl FnOnce(&TrainingState) -> Result<E>,
) -> Result<TrainingOutput> {
    let rows = course.rows.rows();
    let state = match course.checkpoint()? {
        Some(bytes) => TrainingState::decode(&bytes)?,
        None => begin(config, course)?,
    };
    let steps = rows.div_ceil(u64::from(config.rows_per_batch())) * u64::from(config.epoch_count());
    let engine = engine(&state)?;
    let mut training = TrainingLoop {
        config,
        course,
        state,
        engine,
        steps,
        lately: RecentLoss::default(),
    };
    training.state.progress.learned.rows = rows;
    training.state.progress.learned.validation_rows = course.validation.map_or(0, |fed| fed.rows());
    training.state.progress.learned.batch_rows = u64::from(config.rows_per_batch());
    training.state.progress.learned.parameters = training.state.parameters.len() as u64;
    training.run()?;
    let TrainingState {
        shape,
        parameters,
        best,
        progress,
        ..
    } = training.state;
    let parameters = best.unwrap_or(parameters);
    let files = write_model(config, course, &shape, &parameters, &progress.learned)?;
    Ok(TrainingOutput {
        files,
        learned: progress.learned,
    })
}

/// The state before the first step.
fn begin(config: &TrainConfig, course: &TrainingContext<'_>) -> Result<TrainingState> {
    let earlier = EarlierNetwork::of(course)?;
    let shape = model_shape(
        config,
        course,
        earlier.as_ref().map(|earlier| &earlier.shape),
    )?;
    let mut state = TrainingState::initial(shape, config.seed);
    if let Some(earlier) = earlier {
        earlier.copy_to(&mut state.parameters);
    }
    Ok(state)
}

struct TrainingLoop<'a, E> {
    config: &'a TrainConfig,
    course: &'a TrainingContext<'a>,
    state: TrainingState,
    engine: E,
    /// Of all epochs.
    steps: u64,
    lately: RecentLoss,
}

/// When it was told last how the training goes, and the losses since then.
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
            let (sink, step, steps) = (
                self.course.sink().to_owned(),
                self.state.progress.step,
                self.steps,
            );
            self.course
                .emit(Event::TrainingResumed { sink, step, steps });
        }
        let mut feed_config = self.course.rows.config(self.config.seed)?;
        feed_config.memory_max = Some(
            self.course
                .memory_bytes
                .saturating_sub(training_bytes(&self.state.shape)),
        );
        feed_config.epochs = u64::from(self.config.epoch_count());
        feed_config.batch_rows = self.config.rows_per_batch();
        feed_config.cursor = self.state.progress.cursor.clone();
        feed_config.allocator = self
            .engine
            .slot_allocator()
            .unwrap_or(feed_config.allocator);
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
                let stats = feed.take_stats();
                self.end_epoch(
                    epoch,
                    rate,
                    &stats,
                    std::mem::replace(&mut epoch_began, Instant::now()),
                )?;
            }
            let stop = self.course.check();
            let step = self.state.progress.step;
            let due =
                step.is_multiple_of(self.config.checkpoint_steps) || self.state.progress.stopped;
            if (due || stop.is_err()) && step < self.steps {
                self.finish_steps()?;
                self.course.save_checkpoint(&self.state.encode()?)?;
            }
            stop?;
            if self.state.progress.stopped {
                break;
            }
        }
        Ok(())
    }

    /// One batch; gives the learning rate.
    fn train_batch(&mut self, batch: FeedBatch) -> Result<f64> {
        if batch.epoch() == 0 {
            self.count_labels(&model_input(&batch));
        }
        if self.state.progress.step == 0 && self.course.earlier_id().is_none() {
            set_bias(
                &mut self.state,
                &model_input(&batch),
                self.config.loss_function(),
            );
        }
        self.state.progress.step += 1;
        let mut pace = StepSchedule::at_step(self.config, self.state.progress.step, self.steps);
        if self.course.earlier_id().is_some() {
            pace.rate *= CONTINUED_RATE;
        }
        self.engine.step(&mut self.state, batch, pace)?;
        self.take_results()?;
        Ok(pace.rate)
    }

    /// Adds the labels of a batch to those of the rows that are learned from.
    fn count_labels(&mut self, rows: &ModelInput<'_>) {
        let (sum, total) = &mut self.state.progress.labels;
        for (row, label) in rows.labels.iter().enumerate() {
            let weight = f64::from(rows.weight(row));
            // Rows that do not count may hold anything.
            if weight > 0.0 {
                *sum += weight * f64::from(*label);
                *total += weight;
            }
        }
    }

    /// Waits for all steps so far: then the state is that after the last of them.
    fn finish_steps(&mut self) -> Result<()> {
        self.engine.finish_steps(&mut self.state)?;
        self.take_results()
    }

    /// Takes note of what steps came to.
    fn take_results(&mut self) -> Result<()> {
        while let Some(told) = self.engine.next_result() {
            self.record_result(told)?;
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
                .course
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
                let hint = "lower `learning_rate`, set `clip_norm: 1.0`, or bring the features to one scale (`standardize`)";
                return Err(Fault::new(codes::NOT_FINITE, message).hint(hint));
            }
            for sums in [
                &mut progress.epoch,
                &mut progress.stretch,
                &mut self.lately.sums,
            ] {
                *sums = (sums.0 + loss * weight, sums.1 + weight);
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
        let (sink, loss) = (self.course.sink().to_owned(), lost / weight);
        let (step, steps) = (self.state.progress.step, self.steps);
        self.course.emit(Event::TrainingStep {
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
        let (course, config) = (self.course, self.config);
        MemoryBudget::new(course.memory_bytes).check()?;
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
        let (shape, parameters) = (&self.state.shape, &self.state.parameters);
        let evaluated = course
            .validation
            .map(|fed| evaluate(fed, course, config, shape, parameters));
        let metrics = evaluated.transpose()?;
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
        course.emit(Event::TrainingEpoch {
            sink: course.sink().to_owned(),
            epoch: report,
            seconds: began.elapsed().as_secs_f64(),
            wait_seconds: stats.consumer_wait.as_secs_f64(),
            starved_steps: stats.starved_steps,
            bottleneck: stats.bottleneck().name(),
            non_finite: stats.times.found.non_finite,
            skipped_rows: stats.times.found.skipped,
        });
        Ok(())
    }
}

/// The model begins with the mean label of its first batch, whatever its inputs.
fn set_bias(state: &mut TrainingState, rows: &ModelInput<'_>, loss: LossFunction) {
    let (mut sum, mut weight) = (0.0, 0.0);
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
    };
    if let Some(last) = state.parameters.layers.last_mut() {
        *last = bias as f32;
    }
}
