//! Forecasts of runs that train nothing: the newest model, with what its own features are made with.

use forebay_commit::{Artifact, Manifest, StateStore};
use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};

use super::{ForecastModel, ForecastPlan, LoadedModel};
use crate::degradation::PreviousArtifact;
use crate::session::Session;
use crate::training::model_location;

impl Session {
    /// The forecasts of a run that trains nothing.
    pub(crate) fn plan_earlier_forecasts(
        &self,
        pipeline: &Pipeline,
        store: &StateStore,
    ) -> Result<Vec<ForecastPlan>> {
        let plan = |sink: &PipelineSink| -> Result<ForecastPlan> {
            let config = self.predict_config(sink)?;
            let training = pipeline
                .trainings
                .iter()
                .find(|training| training.name == config.model);
            let training =
                training.ok_or_else(|| Fault::internal("a forecast without a training"))?;
            let out = model_location(self, pipeline, training, store)?;
            let missing = || {
                let message = format!(
                    "no earlier run has trained `{}`, and this one may not",
                    training.name
                );
                let hint = "give the first run more time, or add `naive` to the ladder";
                Fault::new(codes::NOT_FOUND, message)
                    .file(&out.shown)
                    .hint(hint)
            };
            let visible = Manifest::read(&self.io, &out)?.ok_or_else(missing)?;
            let files = out.join(&visible.data);
            let predictor = self
                .connectors
                .predictor(&|name: &str| self.io.get(&files.join(name)))?;
            let place = files.join("artifact");
            let earlier = PreviousArtifact::of(self, Artifact::load(&self.io, &place)?, place)?;
            let model = LoadedModel::new(predictor, Some(&files));
            let model = ForecastModel {
                model,
                artifact: earlier.artifact.id.to_string(),
            };
            let plan = self.plan_forecast(pipeline, sink, &config, model)?;
            Ok(ForecastPlan {
                earlier: Some(earlier),
                ..plan
            })
        };
        pipeline
            .predictions
            .iter()
            .map(|sink| plan(sink).map_err(|fault| fault.at(sink.at.as_ref())))
            .collect()
    }
}
