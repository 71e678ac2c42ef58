//! Trainings as runs of MLflow, through its REST API: <https://mlflow.org/docs/latest/api_reference/rest-api.html>.

mod client;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use forebay_connectors::MlflowTracking;
use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};
use forebay_run::{ModelReport, RunReport};
use forebay_storage::{Event, EventListener, StorageClient, WebClient};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use self::client::{TrackedRun, TrackingClient};
use super::outbox::Outbox;
use super::{ObservedSession, RunObserver};

/// Bytes of a parameter at most: what all servers take.
const PARAMETER_BYTES_MAX: usize = 500;

/// Tells MLflow of trainings. A training that an earlier run did is not told again.
pub(super) struct MlflowObserver {
    /// What flags say, which comes before what sinks say.
    flags: MlflowTracking,
    /// What the environment says, which comes after that.
    environment: MlflowTracking,
    out: Outbox<TrackingMessage>,
    /// Where requests go out, and warnings.
    service: OnceLock<(StorageClient, Arc<dyn EventListener>)>,
    state: Mutex<TrackingState>,
}

#[derive(Default)]
struct TrackingState {
    pipeline: String,
    /// The name that the user gave to the run.
    run_id: Option<String>,
    /// The id of the pass at work: that of the training, where it trains.
    pass: String,
    /// By sink: those that are tracked.
    tracked: BTreeMap<String, TrackedSink>,
    /// Sinks whose trainings have been told of.
    begun: BTreeMap<String, ()>,
}

/// A sink whose training is tracked.
#[derive(Clone)]
struct TrackedSink {
    server: String,
    experiment: String,
    parameters: Vec<(String, String)>,
}

/// What the thread that speaks to servers is told.
enum TrackingMessage {
    Begin(TrackedRun),
    Metrics {
        sink: String,
        step: u64,
        millis: i64,
        values: Vec<(String, f64)>,
    },
    /// All trainings of the run ended, and how.
    End {
        status: &'static str,
        millis: i64,
        tags: Vec<(String, Vec<(String, String)>)>,
    },
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn now_millis() -> i64 {
    Timestamp::now().as_millisecond()
}

impl MlflowObserver {
    /// Tracking as flags, sinks and the environment ask for it. A URI in the environment that names no server belongs to
    /// other programs.
    pub fn new(uri: Option<&str>, experiment: Option<&str>) -> Result<MlflowObserver> {
        let is_server = |url: &str| ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        if uri.is_some_and(|uri| !is_server(uri)) {
            let fault = Fault::new(codes::BAD_VALUE, "the address of MLflow is no http:// or https:// URL");
            return Err(fault.hint("start a server: `mlflow server`, and write `--mlflow http://127.0.0.1:5000`"));
        }
        let flags = MlflowTracking { uri: uri.map(str::to_owned), experiment: experiment.map(str::to_owned) };
        let environment = MlflowTracking {
            uri: variable("MLFLOW_TRACKING_URI").filter(|uri| is_server(uri)),
            experiment: variable("MLFLOW_EXPERIMENT_NAME"),
        };
        let (service, state) = (OnceLock::new(), Mutex::default());
        Ok(MlflowObserver { flags, environment, out: Outbox::new(), service, state })
    }

    /// How a training is tracked, if it is; fails where its sink asks for that and nothing names a server.
    fn tracking(&self, pipeline: &Pipeline, sink: &PipelineSink) -> Result<Option<TrackedSink>> {
        let asked = sink.config.get("mlflow").filter(|asked| !asked.is_null());
        let own: MlflowTracking = match asked.map(MlflowTracking::deserialize) {
            Some(own) => own.map_err(|error| Fault::internal("tracking of a training").cause(error))?,
            None => MlflowTracking::default(),
        };
        let [flags, environment] = [&self.flags, &self.environment];
        let server = flags.uri.as_ref().or(own.uri.as_ref()).or(environment.uri.as_ref());
        let Some(server) = server.cloned() else {
            let message = format!("the training `{}` is not tracked: nothing names a server of MLflow", sink.name);
            return if asked.is_some() { Err(Fault::new(codes::MISSING_FIELD, message)) } else { Ok(None) };
        };
        let experiment = flags.experiment.as_ref().or(own.experiment.as_ref()).or(environment.experiment.as_ref());
        let experiment = experiment.unwrap_or(&pipeline.name).clone();
        Ok(Some(TrackedSink { server, experiment, parameters: parameters(&sink.config) }))
    }

    /// Starts to send, once.
    fn start(&self) -> Result<()> {
        let Some((io, watch)) = self.service.get() else { return Ok(()) };
        let token =
            variable("MLFLOW_TRACKING_TOKEN").map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        let web = WebClient::new(io, "MLflow", token.into_iter().collect())?;
        let mut client = TrackingClient::new(web);
        self.out.start(watch, move |messages| client.handle(messages))
    }

    fn warn(&self, fault: &Fault) {
        if let Some((_, watch)) = self.service.get() {
            watch.on_event(Event::Warning { message: fault.message().to_owned() });
        }
    }

    fn state(&self) -> MutexGuard<'_, TrackingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of a training, once; false where it is not tracked.
    fn begin_training(&self, sink: &str) -> bool {
        let mut state = self.state();
        let Some(TrackedSink { server, experiment, parameters }) = state.tracked.get(sink).cloned() else {
            return false;
        };
        if state.begun.insert(sink.to_owned(), ()).is_some() {
            return true;
        }
        let mut tags = vec![
            ("mlflow.source.name".to_owned(), "forebay".to_owned()),
            ("forebay.pipeline".to_owned(), state.pipeline.clone()),
            ("forebay.sink".to_owned(), sink.to_owned()),
        ];
        tags.extend(state.run_id.as_ref().map(|id| ("forebay.run_id".to_owned(), id.clone())));
        let run = TrackedRun {
            server,
            sink: sink.to_owned(),
            training: state.pass.clone(),
            experiment,
            millis: now_millis(),
            parameters,
            tags,
        };
        drop(state);
        self.out.send(TrackingMessage::Begin(run));
        true
    }

    fn metrics(&self, sink: &str, step: u64, values: Vec<(String, f64)>) {
        if self.begin_training(sink) {
            let sink = sink.to_owned();
            self.out.send(TrackingMessage::Metrics { sink, step, millis: now_millis(), values });
        }
    }
}

impl RunObserver for MlflowObserver {
    fn begin(&self, observed: &ObservedSession<'_>) -> Result<()> {
        self.state().run_id = observed.run_id.map(str::to_owned);
        let _ = self.service.set((observed.session.io().clone(), observed.watch.clone()));
        Ok(())
    }

    fn run_begins(&self, pipeline: &Pipeline, _interval: Option<&forebay_model::Interval>) {
        let mut state = self.state();
        state.pipeline.clone_from(&pipeline.name);
        state.begun.clear();
        state.tracked.clear();
        let mut faults = Vec::new();
        for sink in &pipeline.trainings {
            match self.tracking(pipeline, sink) {
                Ok(tracked) => state.tracked.extend(tracked.map(|tracked| (sink.name.clone(), tracked))),
                Err(fault) => faults.push(fault),
            }
        }
        let is_tracked = !state.tracked.is_empty();
        drop(state);
        if is_tracked && let Err(fault) = self.start() {
            faults.push(fault);
        }
        faults.iter().for_each(|fault| self.warn(fault));
    }

    fn on_event(&self, event: &Event) {
        match event {
            Event::PassStarted { id, .. } => self.state().pass.clone_from(id),
            Event::TrainingResumed { sink, .. } => {
                self.begin_training(sink);
            }
            Event::TrainingStep { sink, step, loss, learning_rate, .. } => {
                let values = [("loss", *loss), ("learning_rate", *learning_rate)];
                self.metrics(sink, *step, values.map(|(name, value)| (name.to_owned(), value)).into());
            }
            Event::TrainingEpoch { sink, epoch, wait_seconds, starved_steps, .. } => {
                let own = [
                    ("epoch_loss", epoch.loss),
                    ("wait_seconds", *wait_seconds),
                    ("starved_steps", *starved_steps as f64),
                ];
                let mut values: Vec<(String, f64)> = own.map(|(name, value)| (name.to_owned(), value)).into();
                values.extend(epoch.validation.iter().map(|(name, value)| (format!("validation_{name}"), *value)));
                self.metrics(sink, epoch.step, values);
            }
            _ => {}
        }
    }

    fn run_ends(&self, ended: Result<&RunReport, &Fault>) {
        let status = match ended {
            Ok(_) => "FINISHED",
            Err(fault) if fault.code() == codes::INTERRUPTED => "KILLED",
            Err(_) => "FAILED",
        };
        let models = ended.map(|report| report.models.as_slice()).unwrap_or_default();
        let artifact = ended.ok().and_then(|report| report.artifact.as_deref());
        let tags = models.iter().map(|model| (model.sink.clone(), model_tags(model, artifact))).collect();
        self.out.send(TrackingMessage::End { status, millis: now_millis(), tags });
    }

    fn finish(&self) {
        self.out.close();
    }
}

fn model_tags(model: &ModelReport, artifact: Option<&str>) -> Vec<(String, String)> {
    let learned = &model.learned;
    let mut tags = vec![
        ("forebay.model".to_owned(), model.id.clone()),
        ("forebay.path".to_owned(), model.path.clone()),
        ("forebay.rows".to_owned(), learned.rows.to_string()),
        ("forebay.validation_rows".to_owned(), learned.validation_rows.to_string()),
        ("forebay.parameters".to_owned(), learned.parameters.to_string()),
        ("forebay.best_epoch".to_owned(), learned.best_epoch.to_string()),
    ];
    tags.extend(artifact.map(|id| ("forebay.artifact".to_owned(), id.to_owned())));
    tags
}

/// The fields of a training's configuration as texts.
fn parameters(config: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields = config.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, value)| !value.is_null() && *name != "mlflow");
    let field = |(name, value): (&String, &Value)| {
        let text = text(value);
        let end = (0..=PARAMETER_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        (name.clone(), text[..end].to_owned())
    };
    fields.map(field).collect()
}
