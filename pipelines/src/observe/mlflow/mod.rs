//! Trainings as runs of MLflow, through its REST API: <https://mlflow.org/docs/latest/api_reference/rest-api.html>.

mod client;
mod tracking_message;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_connectors::MlflowTracking;
use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};
use forebay_run::{ModelReport, RunReport, TrackedRun, TrackedTrainings, TrainingTracker};
use forebay_storage::{Event, WebClient};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use self::client::TrackingClient;
use self::tracking_message::{NewTraining, TrackingMessage};
use super::outbox::Outbox;

/// Maximum bytes of a parameter: the lowest limit of all servers.
const PARAMETER_BYTES_MAX: usize = 500;

/// Reports the trainings of a session's runs to MLflow. A training that an earlier run did is not
/// reported again.
pub(crate) struct MlflowTracker {
    /// Settings of flags, which take precedence over those of sinks.
    flags: MlflowTracking,
    /// Settings of the environment, which apply last.
    environment: MlflowTracking,
}

/// The trainings of a run that are tracked.
struct RunTrainings {
    pipeline: String,
    /// The name that the user gave to the run.
    run_id: Option<String>,
    /// Tracked trainings by sink.
    tracked: BTreeMap<String, TrackedSink>,
    out: Outbox<TrackingMessage>,
    state: Mutex<TrackingState>,
}

#[derive(Default)]
struct TrackingState {
    /// Id of the current pass: that of the training, if it trains.
    pass: String,
    /// Sinks whose trainings have been reported.
    begun: BTreeSet<String>,
}

/// A sink whose training is tracked.
struct TrackedSink {
    server: String,
    experiment: String,
    parameters: Vec<(String, String)>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

fn now_millis() -> i64 {
    Timestamp::now().as_millisecond()
}

impl MlflowTracker {
    /// Tracking as sinks and the environment request it. A URI in the environment that names no
    /// server belongs to other programs.
    pub fn new() -> MlflowTracker {
        let environment = MlflowTracking {
            uri: variable("MLFLOW_TRACKING_URI").filter(|uri| is_server(uri)),
            experiment: variable("MLFLOW_EXPERIMENT_NAME"),
        };
        MlflowTracker {
            flags: MlflowTracking::default(),
            environment,
        }
    }

    /// Adds the settings of flags.
    pub fn with_flags(self, uri: Option<&str>, experiment: Option<&str>) -> Result<MlflowTracker> {
        if uri.is_some_and(|uri| !is_server(uri)) {
            let fault = Fault::new(
                codes::BAD_VALUE,
                "the address of MLflow is no http:// or https:// URL",
            );
            return Err(fault.hint(
                "start a server: `mlflow server`, and write `--mlflow http://127.0.0.1:5000`",
            ));
        }
        let flags = MlflowTracking {
            uri: uri.map(str::to_owned),
            experiment: experiment.map(str::to_owned),
        };
        Ok(MlflowTracker { flags, ..self })
    }

    /// Tracking of a training; `None` if it is not tracked. Fails if its sink requests it and no
    /// server is named.
    fn tracking(&self, pipeline: &Pipeline, sink: &PipelineSink) -> Result<Option<TrackedSink>> {
        let config = sink.config.get("mlflow").filter(|config| !config.is_null());
        let tracking: MlflowTracking = match config.map(MlflowTracking::deserialize) {
            Some(parsed) => {
                parsed.map_err(|error| Fault::internal("tracking of a training").cause(error))?
            }
            None => MlflowTracking::default(),
        };
        let [flags, environment] = [&self.flags, &self.environment];
        let server = flags
            .uri
            .as_ref()
            .or(tracking.uri.as_ref())
            .or(environment.uri.as_ref());
        let Some(server) = server.cloned() else {
            let message = format!(
                "the training `{}` is not tracked: nothing names a server of MLflow",
                sink.name
            );
            return if config.is_some() {
                Err(Fault::new(codes::MISSING_FIELD, message))
            } else {
                Ok(None)
            };
        };
        let experiment = flags
            .experiment
            .as_ref()
            .or(tracking.experiment.as_ref())
            .or(environment.experiment.as_ref());
        let experiment = experiment.unwrap_or(&pipeline.name).clone();
        Ok(Some(TrackedSink {
            server,
            experiment,
            parameters: parameters(&sink.config),
        }))
    }
}

fn is_server(url: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
}

impl TrainingTracker for MlflowTracker {
    fn begin(&self, run: &TrackedRun<'_>) -> Option<Arc<dyn TrackedTrainings>> {
        let mut tracked = BTreeMap::new();
        let mut faults = Vec::new();
        for sink in &run.pipeline.trainings {
            match self.tracking(run.pipeline, sink) {
                Ok(sink_tracking) => tracked
                    .extend(sink_tracking.map(|sink_tracking| (sink.name.clone(), sink_tracking))),
                Err(fault) => faults.push(fault),
            }
        }
        let trainings = RunTrainings {
            pipeline: run.pipeline.name.clone(),
            run_id: run.run_id.map(str::to_owned),
            tracked,
            out: Outbox::new(),
            state: Mutex::default(),
        };
        let is_tracked = !trainings.tracked.is_empty();
        if is_tracked && let Err(fault) = trainings.start(run) {
            faults.push(fault);
        }
        for fault in faults {
            run.watch.on_event(Event::Warning {
                message: fault.message().to_owned(),
            });
        }
        is_tracked.then(|| Arc::new(trainings) as _)
    }
}

impl RunTrainings {
    /// Starts to send.
    fn start(&self, run: &TrackedRun<'_>) -> Result<()> {
        let token = variable("MLFLOW_TRACKING_TOKEN")
            .map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        let web = WebClient::new(run.io, "MLflow", token.into_iter().collect())?;
        let mut client = TrackingClient::new(web);
        self.out
            .start(run.watch, move |messages| client.handle(messages))
    }

    fn state(&self) -> MutexGuard<'_, TrackingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a training, once; false if it is not tracked.
    fn begin_training(&self, sink: &str) -> bool {
        let Some(TrackedSink {
            server,
            experiment,
            parameters,
        }) = self.tracked.get(sink)
        else {
            return false;
        };
        let mut state = self.state();
        if !state.begun.insert(sink.to_owned()) {
            return true;
        }
        let training = state.pass.clone();
        drop(state);
        let mut tags = vec![
            ("mlflow.source.name".to_owned(), "forebay".to_owned()),
            ("forebay.pipeline".to_owned(), self.pipeline.clone()),
            ("forebay.sink".to_owned(), sink.to_owned()),
        ];
        tags.extend(
            self.run_id
                .as_ref()
                .map(|id| ("forebay.run_id".to_owned(), id.clone())),
        );
        let training = NewTraining {
            server: server.clone(),
            sink: sink.to_owned(),
            training,
            experiment: experiment.clone(),
            millis: now_millis(),
            parameters: parameters.clone(),
            tags,
        };
        self.out.send(TrackingMessage::Begin(training));
        true
    }

    fn metrics(&self, sink: &str, step: u64, values: Vec<(String, f64)>) {
        if self.begin_training(sink) {
            let sink = sink.to_owned();
            self.out.send(TrackingMessage::Metrics {
                sink,
                step,
                millis: now_millis(),
                values,
            });
        }
    }
}

impl TrackedTrainings for RunTrainings {
    fn on_event(&self, event: &Event) {
        match event {
            Event::PassStarted { id, .. } => self.state().pass.clone_from(id),
            Event::TrainingResumed { sink, .. } => {
                self.begin_training(sink);
            }
            Event::TrainingStep {
                sink,
                step,
                loss,
                learning_rate,
                ..
            } => {
                let values = [("loss", *loss), ("learning_rate", *learning_rate)];
                self.metrics(
                    sink,
                    *step,
                    values.map(|(name, value)| (name.to_owned(), value)).into(),
                );
            }
            Event::TrainingEpoch {
                sink,
                epoch,
                wait_seconds,
                starved_steps,
                ..
            } => {
                let metrics = [
                    ("epoch_loss", epoch.loss),
                    ("wait_seconds", *wait_seconds),
                    ("starved_steps", *starved_steps as f64),
                ];
                let mut values: Vec<(String, f64)> =
                    metrics.map(|(name, value)| (name.to_owned(), value)).into();
                values.extend(
                    epoch
                        .validation
                        .iter()
                        .map(|(name, value)| (format!("validation_{name}"), *value)),
                );
                self.metrics(sink, epoch.step, values);
            }
            _ => {}
        }
    }

    fn end(&self, ended: Result<&RunReport, &Fault>) {
        let status = match ended {
            Ok(_) => "FINISHED",
            Err(fault) if fault.code() == codes::INTERRUPTED => "KILLED",
            Err(_) => "FAILED",
        };
        let models = ended
            .map(|report| report.models.as_slice())
            .unwrap_or_default();
        let artifact = ended.ok().and_then(|report| report.artifact.as_deref());
        let tags = models
            .iter()
            .map(|model| (model.sink.clone(), model_tags(model, artifact)))
            .collect();
        self.out.send(TrackingMessage::End {
            status,
            millis: now_millis(),
            tags,
        });
        self.out.close();
    }
}

fn model_tags(model: &ModelReport, artifact: Option<&str>) -> Vec<(String, String)> {
    let learned = &model.learned;
    let mut tags = vec![
        ("forebay.model".to_owned(), model.id.clone()),
        ("forebay.path".to_owned(), model.path.clone()),
        ("forebay.rows".to_owned(), learned.rows.to_string()),
        (
            "forebay.validation_rows".to_owned(),
            learned.validation_rows.to_string(),
        ),
        (
            "forebay.parameters".to_owned(),
            learned.parameters.to_string(),
        ),
        (
            "forebay.best_epoch".to_owned(),
            learned.best_epoch.to_string(),
        ),
    ];
    tags.extend(artifact.map(|id| ("forebay.artifact".to_owned(), id.to_owned())));
    tags
}

/// The fields of a training's configuration as texts.
fn parameters(config: &Value) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    for (name, value) in config.as_object().into_iter().flatten() {
        if value.is_null() || name == "mlflow" {
            continue;
        }
        let mut text = match value.as_str() {
            Some(text) => text.to_owned(),
            None => value.to_string(),
        };
        // MLflow refuses longer values.
        text.truncate(text.floor_char_boundary(PARAMETER_BYTES_MAX));
        parameters.push((name.clone(), text));
    }
    parameters
}
