//! Binds pipelines with the facts of their trainings and their feed.

use std::collections::BTreeMap;

use forebay_contract::batch_facts;
use forebay_feed::FeedConfig;
use forebay_model::{Dataset, Pipeline, Result};
use forebay_plan::{BoundPipeline, FeedFacts, PartialBinding, ReaderFacts, bind, bind_all};

use crate::session::Session;

impl Session {
    /// Binds a pipeline without findings of an earlier run. The fault lacks the problems of the
    /// readers of its steps.
    pub(crate) fn bind_steps(
        &self,
        pipeline: &Pipeline,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Result<BoundPipeline> {
        let readers = self.reader_facts(pipeline);
        bind(pipeline, &self.registry, &self.sql, datasets, &readers)
    }

    /// Binds the correct parts of a pipeline, and reports all problems.
    pub(crate) fn bind_partly(
        &self,
        pipeline: &Pipeline,
        datasets: &BTreeMap<String, Dataset>,
    ) -> PartialBinding {
        let readers = self.reader_facts(pipeline);
        bind_all(pipeline, &self.registry, &self.sql, datasets, &readers)
    }

    /// Facts of the trainings and the feed of a pipeline. A configuration that cannot be read gives
    /// none: its own checks refuse it.
    pub(crate) fn reader_facts(&self, pipeline: &Pipeline) -> ReaderFacts {
        let mut readers = ReaderFacts::default();
        for training in &pipeline.trainings {
            if let Ok(trainer) = self.trainer(training) {
                let facts = trainer.feature_facts();
                readers.trainings.insert(training.name.clone(), facts);
            }
        }
        if pipeline.feed.is_some()
            && let Ok(config) = FeedConfig::from_pipeline(pipeline)
        {
            readers.feed = Some(FeedFacts {
                features: batch_facts(&config),
                from: config.from,
            });
        }
        readers
    }
}
