//! Facts of the trainings and the feed of a pipeline that decide which columns their models take.

use std::collections::BTreeMap;

use forebay_contract::{FeatureFacts, StepStrategy};
use forebay_model::{Pipeline, PipelineSink};

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
