//! Networks as a training of a run.

use forebay_contract::{
    LabelKind, ReadModelFile, Trainer, TrainingContext, TrainingOutput, WarmStart,
};
use forebay_device::{Accelerator, Precision};
use forebay_feed::{BatchFeatures, CategoricalType, FeatureColumn, FeedConfig};
use forebay_model::{Fault, RefitPolicy, Result, codes};
use serde_json::Value;

use super::class_rows::ClassRows;
use super::config::{MISSING_ID, TrainConfig};
use super::device::{self, DeviceEngine};
use super::engine::HostEngine;
use super::place::TrainingDevice;
use super::refit::training_refit;
use super::trainer::{self, PreparedTraining};
use super::{choose, start};

impl TrainConfig {
    /// Trains on a device of the caller, which must compute the same as the processor:
    /// [`check_accelerator`](super::check_accelerator) checks that. `device` is ignored.
    pub fn train_on<D: Accelerator>(
        &self,
        course: &TrainingContext<'_>,
        device: &D,
        precision: Precision,
    ) -> Result<TrainingOutput> {
        let prepared = PreparedTraining::new(self, course);
        trainer::run(&prepared, course, |_| {
            Ok(DeviceEngine::new(&prepared.config, device, precision))
        })
    }

    /// Trains a model of classes, on the processor.
    fn train_classes(&self, context: &TrainingContext<'_>) -> Result<TrainingOutput> {
        let ranked = ClassRows::read(context)?;
        let context = context.with_rows(&ranked.rows, ranked.validation.as_ref());
        let prepared = PreparedTraining::new(self, &context);
        let prepared = prepared.with_classes(ranked.classes.classes.clone());
        trainer::run(&prepared, &context, |state| {
            let threads = context.threads;
            Ok(HostEngine::new(&prepared.config, &state.shape, threads))
        })
    }

    /// The version of the training.
    fn trainer_version(&self) -> u32 {
        if self.standardizes() {
            trainer::VERSION_STANDARDIZED
        } else {
            trainer::VERSION
        }
    }
}

impl Trainer for TrainConfig {
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
            missing: self.missing,
            missing_id: Some(MISSING_ID),
            categorical_type: CategoricalType::I32,
            non_finite: self.non_finite.feed_policy(),
            window_rows: self.window_rows,
            cache: self.cache.clone(),
            batch_rows: Some(self.rows_per_batch()),
            last: Some(forebay_feed::RemainderPolicy::Short),
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

    fn weighs_numbers(&self) -> bool {
        true
    }

    fn validation(&self) -> Option<&str> {
        self.validation.as_deref()
    }

    fn identity(&self) -> Result<Value> {
        // Neither the location of the model, nor the cache of its rows, nor the interval of
        // checkpoints, nor its tracking, nor the time of the next one changes it; the kind of
        // device does, but not the way in which it was requested.
        let same = TrainConfig {
            path: None,
            cache: None,
            checkpoint_steps: TrainConfig::default().checkpoint_steps,
            device: TrainingDevice::Cpu,
            precision: None,
            mlflow: None,
            refit: None,
            ..self.with_fixed_defaults()
        };
        let config = serde_json::to_value(same)
            .map_err(|error| Fault::internal("a training").cause(error))?;
        let version = self.trainer_version();
        let mut identity = serde_json::json!({ "trainer": version, "config": config });
        if let Some(precision) = choose::gpu_precision(self)? {
            identity["device"] =
                serde_json::json!({ "cuda": precision, "version": device::VERSION });
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

    fn check_ready(&self) -> Result<()> {
        choose::gpu_precision(self).map(drop)
    }

    fn train(&self, course: &TrainingContext<'_>) -> Result<TrainingOutput> {
        if self.patience_epochs.is_some() && course.validation.is_none() {
            return Err(Fault::new(
                codes::MISSING_FIELD,
                "`patience_epochs` needs rows to validate on",
            )
            .hint(
                "declare a part `validation` under `split:`, or name one: `validation: <part>`",
            ));
        }
        if self.learns_classes() {
            return self.train_classes(course);
        }
        choose::train_where_chosen(self, course)
    }
}
