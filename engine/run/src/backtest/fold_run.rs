//! Runs within a run, each with the rows before the origin of a fold.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_contract::PredictConfig;
use forebay_execute::SourceInput;
use forebay_model::{Fault, Interval, Pipeline, PipelineSink, Result, TimeCutoff};
use forebay_plan::BoundPipeline;
use forebay_storage::{Event, EventListener, IgnoreEvents};

use super::origins::ForecastOrigin;
use super::{FoldTimes, path_in};
use crate::predict::future_of;
use crate::session::{Session, SessionOptions};

/// Runs of folds of a pipeline. What they write is temporary.
pub(super) struct FoldRuns<'a> {
    /// The session of these runs. Their events are not those of the run around them.
    pub session: Session,
    /// Receiver of their warnings.
    listener: Arc<dyn EventListener>,
    pipeline: &'a Pipeline,
    /// The purpose, which the names of the pipelines of folds end with.
    purpose: &'static str,
}

impl<'a> FoldRuns<'a> {
    /// Runs within a run of `session`.
    pub fn new(session: &Session, pipeline: &'a Pipeline, purpose: &'static str) -> FoldRuns<'a> {
        let options = SessionOptions {
            run_id: None,
            ..session.options.clone()
        };
        FoldRuns {
            session: Session {
                deadline: None,
                tracker: None,
                watch: Arc::new(IgnoreEvents),
                ..session.for_inner_run(options)
            },
            listener: session.watch.clone(),
            pipeline,
            purpose,
        }
    }

    /// Trains the models that forecasts name with the rows before an origin, and publishes the forecasts.
    pub fn forecast(
        &self,
        origin: &ForecastOrigin,
        fold: usize,
        forecasts: Vec<PipelineSink>,
        scratch: &Path,
    ) -> Result<()> {
        self.session.interrupt.check()?;
        let mut names = Vec::new();
        for sink in &forecasts {
            let config = self.session.predict_config(sink)?;
            names.extend(config.models().into_iter().map(str::to_owned));
        }
        let mut pipeline = self.pipeline.learning_anew();
        pipeline.name = format!("{}.{}", self.pipeline.name, self.purpose);
        pipeline.deadline = None;
        pipeline.sinks.clear();
        pipeline.predictions = forecasts;
        pipeline
            .trainings
            .retain(|training| names.contains(&training.name));
        for (number, training) in pipeline.trainings.iter_mut().enumerate() {
            training.set_path(path_in(scratch, &format!("models/{fold}/{number}")));
        }
        let session = Session {
            as_of: Some(TimeCutoff::before(&origin.known_before)),
            watch: Arc::new(FoldWarnings {
                inner: self.listener.clone(),
                known_before: origin.known_before.clone(),
            }),
            ..self.session.clone()
        };
        session.run(&pipeline)?;
        Ok(())
    }
}

impl Session {
    /// Refuses folds of a run that would know nothing, before it trains.
    pub(crate) fn check_folds(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        inputs: &BTreeMap<String, SourceInput>,
        interval: Option<&Interval>,
    ) -> Result<()> {
        for sink in &pipeline.predictions {
            let config = self.predict_config(sink)?;
            let ensemble = config.learned_ensemble();
            let ensemble =
                ensemble.map(|ensemble| (ensemble.fold_count(), ensemble.every.as_deref()));
            let levels = config.reconcile.as_ref();
            let levels = levels.filter(|levels| levels.learns());
            let levels = levels.map(|levels| (levels.fold_count(), levels.every.as_deref()));
            for (folds, every) in ensemble.into_iter().chain(levels) {
                let times = FoldTimes {
                    folds,
                    every,
                    until: None,
                    known_before: self.known_before(interval),
                };
                let future = future_of(bound, &sink.from)?;
                let origins = self.fold_origins(inputs, bound, future, &times);
                origins.map_err(|fault| fault.at(sink.at.as_ref()))?;
            }
        }
        Ok(())
    }

    /// The end of what a run knows: that of its interval, or of the session.
    pub(super) fn known_before(&self, interval: Option<&Interval>) -> Option<TimeCutoff> {
        match interval {
            Some(interval) => Some(TimeCutoff::before(&interval.to)),
            None => self.as_of.clone(),
        }
    }
}

/// A sink that publishes a forecast in a directory.
pub(super) fn forecast_sink(
    sink: &PipelineSink,
    name: String,
    config: PredictConfig,
    directory: &Path,
) -> Result<PipelineSink> {
    let config = PredictConfig {
        path: directory.display().to_string(),
        ..config
    };
    let config =
        serde_json::to_value(config).map_err(|error| Fault::internal("a forecast").cause(error))?;
    Ok(PipelineSink {
        name,
        config,
        ..sink.clone()
    })
}

/// Forwards the warnings of a run with the rows of a fold.
struct FoldWarnings {
    inner: Arc<dyn EventListener>,
    known_before: String,
}

impl EventListener for FoldWarnings {
    fn on_event(&self, event: Event) {
        match event {
            Event::Warning { message } => {
                let message = format!("with the rows before {}: {message}", self.known_before);
                self.inner.on_event(Event::Warning { message });
            }
            Event::Spilled { .. } => self.inner.on_event(event),
            _ => {}
        }
    }
}
