//! Models of single series as a training of a run.

use forebay_contract::{Trainer, TrainingContext, TrainingOutput};
use forebay_feed::{FeatureColumn, FeedConfig, FeedOrder};
use forebay_model::{Fault, Result};
use serde_json::{Value, json};

use super::config::SeriesModelConfig;
use super::intervals::SeriesIntervals;
use super::trainer;

impl Trainer for SeriesModelConfig {
    fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    fn feed(&self) -> FeedConfig {
        let mut columns = self.by.clone();
        columns.push(self.time.clone());
        FeedConfig {
            dense: Some(Vec::new()),
            categorical: Some(Vec::new()),
            label: self.label.as_deref().map(FeatureColumn::from),
            order: FeedOrder::Sequential,
            beside: columns,
            ..FeedConfig::default()
        }
    }

    fn group_columns(&self) -> Vec<String> {
        self.by.clone()
    }

    fn validation(&self) -> Option<&str> {
        self.validation.as_deref()
    }

    fn quantiles(&self) -> Vec<f64> {
        let intervals = self.intervals.as_ref();
        intervals.map_or_else(Vec::new, SeriesIntervals::quantiles)
    }

    fn identity(&self) -> Result<Value> {
        let same = SeriesModelConfig {
            path: None,
            label: None,
            validation: None,
            ..self.clone()
        };
        let config = serde_json::to_value(same)
            .map_err(|error| Fault::internal("a training").cause(error))?;
        Ok(json!({ "trainer": "models of series", "version": super::VERSION, "config": config }))
    }

    fn train(&self, context: &TrainingContext<'_>) -> Result<TrainingOutput> {
        trainer::run(self, context)
    }
}
