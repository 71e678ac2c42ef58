//! Boosted trees as a training of a run.

use forebay_contract::{
    LabelKind, PartContext, ReadModelFile, StepColumns, StepStrategy, Trainer, TrainingContext,
    TrainingOutput, WarmStart, is_pattern,
};
use forebay_feed::{
    BatchFeatures, CategoricalType, FeatureColumn, FeatureField, FeedConfig, FeedOrder, NonFinite,
};
use forebay_model::{RefitPolicy, Result};
use serde_json::{Value, json};

use super::config::BoostingConfig;
use super::fallback_kind::GroupFallbackKind;
use super::steps::{ForecastStrategy, StepModels, check_whole_columns};
use super::{class_trainer, part, start, trainer};
use crate::config::MISSING_ID;
use crate::refit::training_refit;

impl Trainer for BoostingConfig {
    fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    fn feed(&self) -> FeedConfig {
        let features = |names: &Vec<String>| {
            names
                .iter()
                .map(|name| FeatureColumn::from(name.as_str()))
                .collect()
        };
        FeedConfig {
            dense: self.dense.as_ref().map(features),
            categorical: self.categorical.as_ref().map(features),
            label: self.label.as_deref().map(FeatureColumn::from),
            weight: self.weight.as_deref().map(FeatureColumn::from),
            missing_id: Some(MISSING_ID),
            categorical_type: CategoricalType::I32,
            non_finite: NonFinite::Fail,
            cache: self.cache.clone(),
            order: FeedOrder::Sequential,
            beside: self.by.clone(),
            missing_numbers: true,
            label_as_is: self.learns_classes(),
            ..FeedConfig::default()
        }
    }

    fn label_kind(&self) -> LabelKind {
        if self.learns_classes() {
            LabelKind::Classes
        } else {
            LabelKind::Numbers
        }
    }

    fn group_columns(&self) -> Vec<String> {
        self.by.clone()
    }

    fn validation(&self) -> Option<&str> {
        self.validation.as_deref()
    }

    fn label_columns(&self) -> Vec<String> {
        match &self.fallback {
            GroupFallbackKind::Column(column) => vec![column.clone()],
            GroupFallbackKind::AllRows | GroupFallbackKind::Parent => Vec::new(),
        }
    }

    fn quantiles(&self) -> Vec<f64> {
        self.predicted_quantiles()
    }

    fn has_intervals(&self) -> bool {
        self.intervals.is_some()
    }

    fn step_strategy(&self) -> Option<StepStrategy> {
        match self.strategy {
            ForecastStrategy::Direct => None,
            ForecastStrategy::PerStep => Some(StepStrategy::PerStep),
            ForecastStrategy::Recursive => Some(StepStrategy::Recursive),
        }
    }

    fn check_steps(&self, columns: &StepColumns) -> Result<()> {
        let Some(dense) = &self.dense else {
            return check_whole_columns(columns, &self.whole_columns());
        };
        let Some(categorical) = &self.categorical else {
            return check_whole_columns(columns, &self.whole_columns());
        };
        if dense.iter().chain(categorical).any(|name| is_pattern(name)) {
            return check_whole_columns(columns, &self.whole_columns());
        }
        let fields = |names: &[String]| names.iter().map(FeatureField::new).collect();
        let features = BatchFeatures {
            dense: fields(dense),
            categorical: fields(categorical),
            ..BatchFeatures::default()
        };
        StepModels::divide(columns, &features, &self.whole_columns()).map(drop)
    }

    fn identity(&self) -> Result<Value> {
        let mut identity = self.model_identity()?;
        identity["by"] = json!([self.by, self.group_rows_min(), self.fallback]);
        if !self.strategy.is_default() {
            identity["strategy"] = json!(self.strategy);
        }
        if let Some(intervals) = &self.intervals {
            identity["intervals"] = json!(intervals);
        }
        Ok(identity)
    }

    fn refit(&self) -> Result<Option<RefitPolicy>> {
        training_refit(self.refit.as_deref())
    }

    fn warm_start(&self) -> Option<WarmStart> {
        self.start.warm_start(self.replay)
    }

    fn refuse_start(
        &self,
        files: ReadModelFile<'_>,
        features: &BatchFeatures,
    ) -> Result<Option<String>> {
        start::refuse(self, files, features)
    }

    fn train(&self, course: &TrainingContext<'_>) -> Result<TrainingOutput> {
        if self.learns_classes() {
            class_trainer::run(self, course)
        } else {
            trainer::run(self, course)
        }
    }

    fn train_part(&self, part: &[u8], context: &PartContext<'_>) -> Result<Vec<u8>> {
        part::train_part(self, part, context)
    }
}
