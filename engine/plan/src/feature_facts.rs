//! Facts of the trainings and the feed of a pipeline that decide which columns their models take.

use std::collections::BTreeMap;

use forebay_model::{Pipeline, PipelineSink};

/// Facts of a training or a feed that decide which columns its model takes. The type that owns the
/// configuration gives them: the plan reads no setting of a trainer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureFacts {
    /// Features that are numbers, as names or patterns; all columns of numbers if `None`.
    pub dense: Option<Vec<String>>,
    /// Features that are ids, as names or patterns; all columns of ids if `None`.
    pub categorical: Option<Vec<String>>,
    /// Columns that the model takes in addition to its features, such as those of its groups.
    pub extra: Vec<String>,
    /// The predicted column; that of the pipeline's label if `None`.
    pub label: Option<String>,
    /// The column with the weight of each row.
    pub weight: Option<String>,
    /// True if missing numbers are replaced by a value.
    pub replaces_missing: bool,
    /// Division of the horizon among models; `None` if features are known for all of it.
    pub strategy: Option<StepStrategy>,
}

/// Facts of the feed of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedFacts {
    /// The step or source whose rows are delivered, where the configuration names one.
    pub from: Option<String>,
    /// Its columns.
    pub features: FeatureFacts,
}

/// Facts of the readers of a pipeline's rows that make batches of them: its trainings and its feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReaderFacts {
    /// Facts of each training by its name. A training whose configuration cannot be read has none:
    /// its own checks refuse it, and its rows are not judged.
    pub trainings: BTreeMap<String, FeatureFacts>,
    /// Facts of the feed; `None` without a feed that can be read.
    pub feed: Option<FeedFacts>,
}

impl ReaderFacts {
    /// Strategy of a training; `None` if its features are known for the whole horizon.
    pub fn strategy(&self, training: &PipelineSink) -> Option<StepStrategy> {
        self.trainings.get(&training.name)?.strategy
    }

    /// Strategy by which the rows of a feed are judged: they may have what a training on them may
    /// have.
    pub fn feed_strategy(&self, pipeline: &Pipeline, from: &str) -> Option<StepStrategy> {
        for training in &pipeline.trainings {
            if training.from == from && self.strategy(training).is_some() {
                return Some(StepStrategy::PerStep);
            }
        }
        None
    }
}

/// Division of the horizon's steps by a training, where its features need only be known one step
/// ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStrategy {
    /// A model for each step.
    PerStep,
    /// One model, whose predictions of a step are values of the label for the next.
    Recursive,
}

impl StepStrategy {
    /// Word of the setting.
    pub(crate) fn word(self) -> &'static str {
        match self {
            StepStrategy::PerStep => "per_step",
            StepStrategy::Recursive => "recursive",
        }
    }
}
