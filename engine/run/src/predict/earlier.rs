//! Forecasts of runs without trainings: the newest model, with the artifact of its own features.

use std::sync::Arc;

use forebay_commit::{Artifact, Manifest, StateStore};
use forebay_contract::PredictConfig;
use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};

use super::ensemble_record::EnsembleRecord;
use super::ensemble_report::EnsembleReport;
use super::forecast_training::training_named;
use super::{ForecastMember, ForecastPlan};
use crate::model_place::model_location;
use crate::previous_artifact::PreviousArtifact;
use crate::session::Session;

impl Session {
    /// The forecasts of a run without trainings.
    pub(crate) fn plan_earlier_forecasts(
        &self,
        pipeline: &Pipeline,
        store: &StateStore,
    ) -> Result<Vec<ForecastPlan>> {
        let mut plans = Vec::with_capacity(pipeline.predictions.len());
        for sink in &pipeline.predictions {
            let plan = self.plan_earlier_forecast(pipeline, store, sink);
            plans.push(plan.map_err(|fault| fault.at(sink.at.as_ref()))?);
        }
        Ok(plans)
    }

    fn plan_earlier_forecast(
        &self,
        pipeline: &Pipeline,
        store: &StateStore,
        sink: &PipelineSink,
    ) -> Result<ForecastPlan> {
        let config = self.predict_config(sink)?;
        let mut members = Vec::new();
        for name in config.models() {
            let training = training_named(pipeline, name);
            let training =
                training.ok_or_else(|| Fault::internal("a forecast without a training"))?;
            members.push(self.earlier_member(pipeline, store, training)?);
        }
        let learned = if config.learned_ensemble().is_some() {
            Some(self.earlier_weights(pipeline, store, sink, &config)?)
        } else {
            None
        };
        self.plan_with_members(pipeline, sink, &config, members, learned.as_ref())
    }

    /// The weights of an ensemble that an earlier run has learned.
    fn earlier_weights(
        &self,
        pipeline: &Pipeline,
        store: &StateStore,
        sink: &PipelineSink,
        config: &PredictConfig,
    ) -> Result<EnsembleReport> {
        let record = EnsembleRecord::load(&self.io, store.root(), &pipeline.name)?;
        let learned = record.newest(&sink.name);
        let learned = learned.filter(|learned| learned.is_of(&config.member_names()));
        learned.cloned().ok_or_else(|| {
            let message = format!(
                "no earlier run has learned the weights of `{}`, and this one may not",
                sink.name
            );
            Fault::new(codes::NOT_FOUND, message)
                .hint("give the first run more time, or add `naive` to the ladder")
        })
    }

    /// The newest model of a training, with the artifact of its features.
    fn earlier_member(
        &self,
        pipeline: &Pipeline,
        store: &StateStore,
        training: &PipelineSink,
    ) -> Result<ForecastMember> {
        let out = model_location(self, pipeline, training, store)?;
        let Some(visible) = Manifest::read(&self.io, &out)? else {
            let message = format!(
                "no earlier run has trained `{}`, and this one may not",
                training.name
            );
            return Err(Fault::new(codes::NOT_FOUND, message)
                .file(&out.shown)
                .hint("give the first run more time, or add `naive` to the ladder"));
        };
        let files = out.join(&visible.data);
        let location = files.join("artifact");
        let artifact = Artifact::load(&self.io, &location)?;
        let earlier = PreviousArtifact::of(self, artifact, location)?;
        let artifact_id = earlier.artifact.id;
        self.forecast_member(&training.name, files, artifact_id, Some(Arc::new(earlier)))
    }
}
