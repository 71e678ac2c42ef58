//! The interface of trainers: sinks that turn the rows of a step into a model.

use std::sync::Arc;

use bytes::Bytes;
use forebay_feed::{BatchFeatures, FeedConfig};
use forebay_model::{ContentId, Fault, RefitPolicy, Result, ScratchSpace};
use forebay_storage::Event;
use serde_json::Value;

use crate::feature_facts::{FeatureFacts, StepStrategy, batch_facts};
use crate::feed_source::FeedSource;
use crate::label_kind::LabelKind;
use crate::part_context::PartContext;
use crate::step_columns::StepColumns;
use crate::training_report::TrainingReport;

/// Reads a file of a model by its name; `None` if there is none.
pub type ReadModelFile<'a> = &'a dyn Fn(&str) -> Result<Option<Bytes>>;

/// Callback for the result of a part, by its number.
pub type TakePartFn<'t> = &'t mut dyn FnMut(usize, &[u8]) -> Result<()>;

/// A training that continues the model of the run before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmStart {
    /// The share of the rows of the run before that is learned from again.
    pub replay: f64,
}

/// A configured training: takes mini-batches and returns a model.
pub trait Trainer: std::fmt::Debug + Send + Sync {
    /// Location of the model; the state directory if `None`.
    fn path(&self) -> Option<&str>;

    /// Columns and shape of batches. Rows (`from`, `split`) are defined by the pipeline.
    fn feed(&self) -> FeedConfig;

    /// The part of the split that the model is validated on, where the configuration names one.
    fn validation(&self) -> Option<&str>;

    /// The kind of labels that it learns.
    fn label_kind(&self) -> LabelKind {
        LabelKind::Numbers
    }

    /// True if it multiplies numbers by weights, so that the order of their values and the distances between them count.
    fn weighs_numbers(&self) -> bool {
        false
    }

    /// Columns that predict in place of a model, so that they must hold the label of other times in its own units.
    fn label_columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// Columns by whose values rows are divided among models of their own.
    fn group_columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// The quantiles that the model predicts in addition to its point forecast, in ascending order.
    fn quantiles(&self) -> Vec<f64> {
        Vec::new()
    }

    /// True if its quantiles are ends of intervals that are found from errors on the validation rows, which are errors
    /// of one step.
    fn has_intervals(&self) -> bool {
        false
    }

    /// Facts for the checks of a plan, such as that of leaks. They follow from the columns of
    /// batches, from the columns of groups and labels, and from the strategy.
    fn feature_facts(&self) -> FeatureFacts {
        let mut extra = self.group_columns();
        extra.extend(self.label_columns());
        FeatureFacts {
            extra,
            strategy: self.step_strategy(),
            ..batch_facts(&self.feed())
        }
    }

    /// Everything that determines the model besides its rows.
    fn identity(&self) -> Result<Value>;

    /// Fails if this machine lacks a requirement of the training. Called before any other work.
    fn check_ready(&self) -> Result<()> {
        Ok(())
    }

    /// Division of the horizon's steps, where features need only be known one step ahead; `None`
    /// for one model of the whole horizon.
    fn step_strategy(&self) -> Option<StepStrategy> {
        None
    }

    /// Fails where models for each step cannot be trained, as far as the configuration names columns.
    fn check_steps(&self, _columns: &StepColumns) -> Result<()> {
        Ok(())
    }

    /// When a new model is trained; `None` means in each run. Until then the model of an earlier run stays in force.
    fn refit(&self) -> Result<Option<RefitPolicy>> {
        Ok(None)
    }

    /// Settings for continuing the model of the run before; `None` if it starts without one.
    fn warm_start(&self) -> Option<WarmStart> {
        None
    }

    /// Reason why it cannot continue an earlier model, given the model's files and the columns of
    /// batches.
    fn refuse_start(
        &self,
        _files: ReadModelFile<'_>,
        _features: &BatchFeatures,
    ) -> Result<Option<String>> {
        Ok(None)
    }

    /// Learns from the rows.
    fn train(&self, context: &TrainingContext<'_>) -> Result<TrainingOutput>;

    /// Trains a part from [`TrainingContext::train_on_workers`], on a worker.
    fn train_part(&self, _part: &[u8], _context: &PartContext<'_>) -> Result<Vec<u8>> {
        Err(Fault::internal("a trainer without parts"))
    }
}

/// Inputs of a training.
pub struct TrainingContext<'a> {
    /// The rows to learn from.
    pub rows: &'a FeedSource,
    /// The rows to validate on.
    pub validation: Option<&'a FeedSource>,
    /// Number of steps ahead for which each column is known, for a model for each step of the
    /// horizon.
    pub steps: Option<StepColumns>,
    /// Columns that hold values of the label at earlier times in its own units: each is a forecast.
    pub naive: Vec<String>,
    /// Threads to use; the model must not depend on them.
    pub threads: usize,
    /// The memory limit of the process.
    pub memory_bytes: u64,
    /// Description of the model's origin, to be stored with it.
    pub origin: Value,
    /// Services of the run.
    pub services: &'a dyn TrainingServices,
}

/// Services of a run for one of its trainings. Trainers reach them through [`TrainingContext`].
pub trait TrainingServices: Sync {
    /// The name of the sink.
    fn sink(&self) -> &str;

    /// Rows to learn from with other columns.
    fn feed_columns(&self, config: FeedConfig) -> Result<FeedSource>;

    /// Fails when the run should stop.
    fn check(&self) -> Result<()>;

    /// Passes an event to the run's listener.
    fn emit(&self, event: Event);

    /// Checkpoint of this training that an earlier run left.
    fn checkpoint(&self) -> Result<Option<Vec<u8>>>;

    /// Keeps how far the run has come.
    fn save_checkpoint(&self, checkpoint: &[u8]) -> Result<()>;

    /// A part that an earlier run finished; parts count from 0.
    fn finished_part(&self, part: u64) -> Result<Option<Vec<u8>>>;

    /// Keeps a finished part until the model is published.
    fn save_part(&self, part: u64, bytes: &[u8]) -> Result<()>;

    /// A file of the model that is published at the location of this one.
    fn published_file(&self, name: &str) -> Result<Option<Bytes>>;

    /// The training that this one continues.
    fn earlier_id(&self) -> Option<ContentId>;

    /// A file of the model that the training continues.
    fn earlier_file(&self, name: &str) -> Result<Option<Bytes>>;

    /// Temporary files within the limits of the run.
    fn scratch(&self) -> Arc<dyn ScratchSpace>;

    /// Number of parts that workers can train at the same time; `None` without workers.
    fn worker_slots(&self) -> Result<Option<usize>>;

    /// Trains parts on workers, and passes on the result of each as soon as it is available.
    fn train_on_workers(
        &self,
        parts: &mut dyn Iterator<Item = Result<Vec<u8>>>,
        take: TakePartFn<'_>,
    ) -> Result<()>;
}

impl TrainingContext<'_> {
    /// The inputs with other rows, such as those with other labels.
    pub fn with_rows<'r>(
        &'r self,
        rows: &'r FeedSource,
        validation: Option<&'r FeedSource>,
    ) -> TrainingContext<'r> {
        TrainingContext {
            rows,
            validation,
            steps: self.steps.clone(),
            naive: self.naive.clone(),
            threads: self.threads,
            memory_bytes: self.memory_bytes,
            origin: self.origin.clone(),
            services: self.services,
        }
    }

    /// The name of the sink.
    pub fn sink(&self) -> &str {
        self.services.sink()
    }

    /// Rows to learn from with other columns; rows (`from`, `split`) are defined by the pipeline.
    pub fn feed_columns(&self, config: FeedConfig) -> Result<FeedSource> {
        self.services.feed_columns(config)
    }

    /// Fails when the run should stop.
    pub fn check(&self) -> Result<()> {
        self.services.check()
    }

    /// Passes an event to the run's listener.
    pub fn emit(&self, event: Event) {
        self.services.emit(event);
    }

    /// Checkpoint of this training that an earlier run left.
    pub fn checkpoint(&self) -> Result<Option<Vec<u8>>> {
        self.services.checkpoint()
    }

    /// Keeps how far this run has come.
    pub fn save_checkpoint(&self, checkpoint: &[u8]) -> Result<()> {
        self.services.save_checkpoint(checkpoint)
    }

    /// A part of a training that an earlier run finished; parts count from 0.
    pub fn finished_part(&self, part: u64) -> Result<Option<Vec<u8>>> {
        self.services.finished_part(part)
    }

    /// Keeps a part that is finished, until the model is published. All parts before it are kept.
    pub fn save_part(&self, part: u64, bytes: &[u8]) -> Result<()> {
        self.services.save_part(part, bytes)
    }

    /// A file of the model that is published at the location of this one; `None` if there is none.
    pub fn published_file(&self, name: &str) -> Result<Option<Bytes>> {
        self.services.published_file(name)
    }

    /// The training that this one continues.
    pub fn earlier_id(&self) -> Option<ContentId> {
        self.services.earlier_id()
    }

    /// A file of the model that the training continues; `None` if it continues none.
    pub fn earlier_file(&self, name: &str) -> Result<Option<Bytes>> {
        self.services.earlier_file(name)
    }

    /// Temporary files within the limits of the run.
    pub fn scratch(&self) -> Arc<dyn ScratchSpace> {
        self.services.scratch()
    }

    /// Number of parts that workers can train at the same time; `None` without workers.
    pub fn worker_slots(&self) -> Result<Option<usize>> {
        self.services.worker_slots()
    }

    /// Trains parts on workers, and passes on the result of each as soon as it is available. A part
    /// holds all inputs of its training, as its trainer encodes them. One that an interrupted run
    /// has trained is not trained again.
    pub fn train_on_workers(
        &self,
        parts: &mut dyn Iterator<Item = Result<Vec<u8>>>,
        take: TakePartFn<'_>,
    ) -> Result<()> {
        self.services.train_on_workers(parts, take)
    }
}

/// Output of a training.
pub struct TrainingOutput {
    /// The model's files by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// Course and result of the training.
    pub learned: TrainingReport,
    /// Number of the rows that it learned from, as it counted them.
    pub rows_learned: u64,
    /// Number of the rows that it was validated on, as it counted them.
    pub rows_validated: u64,
}

impl TrainingOutput {
    /// Refuses counts of rows that do not add up.
    pub fn check_sums(&self) -> Result<()> {
        let learned = &self.learned;
        learned.changes.check_sum(learned.rows, self.rows_learned)?;
        learned
            .validation_changes
            .check_sum(learned.validation_rows, self.rows_validated)
    }
}
