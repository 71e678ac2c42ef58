//! Runs from Python, and their sessions.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use forebay::model::{BATCH_ROWS_DEFAULT, Fault, Pipeline, codes};
use forebay::present::{explain, units};
use forebay::run::{
    Cluster, DeadlineSpec, EventListener, ForecastFormat, Interval, LocalWorkers, PreviewOptions,
    StorageClient,
};
use forebay::settings::{Settings, local_worker_memory};
use forebay::{
    Artifact, Backfill, Event, Forebay, IgnoreEvents, ScoringRequest, Session, SessionOptions,
    TrainedModel,
};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::arrow_c::{Table, reader};
use crate::fault::IntoPyResult;
use crate::spec_source::SpecSource;
use crate::workers::{LaunchedWorkers, cluster_options};

/// Interval at which Python's signals are checked while Rust works.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Interval between two checks whether work has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Settings of a session.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineRequest {
    pub state: Option<String>,
    pub memory: Option<MemorySize>,
    pub threads: Option<usize>,
    #[serde(default)]
    pub run_id: Option<String>,
    /// Addresses of workers, or a mapping with them.
    #[serde(default)]
    pub workers: Option<Value>,
    #[serde(default)]
    pub local_workers: Option<usize>,
    #[serde(default)]
    pub deadline: Option<String>,
    #[serde(default)]
    pub allow_empty: bool,
}

/// Bytes, or a size such as `4GiB`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum MemorySize {
    Bytes(u64),
    Text(String),
}

impl MemorySize {
    fn bytes(&self) -> Result<u64, Fault> {
        match self {
            MemorySize::Bytes(bytes) => Ok(*bytes),
            MemorySize::Text(text) => units::parse_bytes(text)
                .map_err(|wrong| Fault::new(codes::BAD_VALUE, format!("`memory`: {wrong}"))),
        }
    }
}

/// A session, and the worker processes that end with it.
pub(crate) struct PySession {
    pub session: Session,
    _workers: Option<LocalWorkers>,
}

impl MachineRequest {
    /// A session that reports to `listener`. Missing options are those of the environment and the
    /// settings files.
    pub fn session(
        &self,
        listener: Arc<dyn EventListener>,
        launched: Option<&LaunchedWorkers>,
    ) -> Result<PySession, Fault> {
        let settings = Settings::load()?;
        let memory = self.memory.as_ref().map(MemorySize::bytes).transpose()?;
        let memory_bytes = settings.memory_bytes(memory)?.value;
        let threads = settings.threads(self.threads)?.value;
        let options = SessionOptions {
            threads,
            memory_bytes,
            batch_rows: BATCH_ROWS_DEFAULT,
            state: settings.state(self.state.as_deref()).value,
            run_id: self.run_id.clone(),
        };
        let mut session = Forebay::new()
            .with_options(options)
            .with_listener(listener.clone())
            .session()?
            .allowing_empty(self.allow_empty);
        if let Some(deadline) = &self.deadline {
            session = session.with_deadline(&DeadlineSpec::parse(deadline)?)?;
        }
        let launched = launched.map(LaunchedWorkers::options).transpose()?;
        let (local, cluster) = match (&self.workers, self.local_workers) {
            _ if launched.is_some() => (None, launched),
            (Some(_), Some(_)) => {
                let message = "`workers` and `local_workers` exclude each other";
                return Err(Fault::new(codes::BAD_VALUE, message).hint("give one of them"));
            }
            (Some(workers), None) => (None, Some(cluster_options(workers.clone())?)),
            (None, Some(count)) if count > 0 => {
                // One share of the memory is the coordinator's.
                let local = LocalWorkers::start(
                    count,
                    (threads / count).max(1),
                    local_worker_memory(memory_bytes, count)?,
                    &[],
                )?;
                let mut options = cluster_options(json!(local.addresses()))?;
                options.security = local.security().clone();
                options.local = Some(local.processes().clone());
                (Some(local), Some(options))
            }
            _ => (None, None),
        };
        if let Some(options) = cluster {
            session = session.with_cluster(Cluster::new(options, listener)?)?;
        }
        Ok(PySession {
            session,
            _workers: local,
        })
    }
}

/// A command with its spec and settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandRequest {
    spec: Option<SpecSource>,
    machine: MachineRequest,
    command: PyCommand,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum PyCommand {
    Run {
        interval: Option<(String, String)>,
    },
    Backfill {
        from: String,
        to: String,
        every: String,
        beside: Option<usize>,
    },
    Fit {},
    Check {},
    Explain {
        interval: Option<(String, String)>,
    },
    Preview {
        step: Option<String>,
        rows: usize,
        condition: Option<String>,
        sample_rows: u64,
    },
    Collect {
        step: String,
    },
    Predict(PredictRequest),
}

/// Arguments of a prediction, as in [`ScoringRequest`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PredictRequest {
    model: String,
    sources: BTreeMap<String, String>,
    output: String,
    format: ForecastFormat,
    columns: Vec<String>,
    split: Option<String>,
    name: Option<String>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    interval: Option<(String, String)>,
    rows_from: Option<String>,
    whole_history: bool,
}

/// Result of a command.
enum Answer {
    Json(String),
    Rows(Table),
}

fn interval((from, to): &(String, String)) -> Interval {
    Interval {
        from: from.clone(),
        to: to.clone(),
    }
}

fn as_json(value: &impl Serialize) -> Result<Answer, Fault> {
    let text =
        serde_json::to_string(value).map_err(|error| Fault::internal("an answer").cause(error))?;
    Ok(Answer::Json(text))
}

impl CommandRequest {
    fn pipeline(&self) -> Result<Pipeline, Fault> {
        self.spec
            .as_ref()
            .ok_or_else(|| Fault::internal("a command without a spec"))?
            .pipeline()
    }

    fn execute(&self, session: &Session) -> Result<Answer, Fault> {
        match &self.command {
            PyCommand::Run { interval: None } => as_json(&session.run(&self.pipeline()?)?),
            PyCommand::Run {
                interval: Some(bounds),
            } => as_json(&session.run_interval(&self.pipeline()?, &interval(bounds))?),
            PyCommand::Backfill {
                from,
                to,
                every,
                beside,
            } => {
                let backfill = Backfill {
                    beside: *beside,
                    ..Backfill::between(from, to)?.every(every)?
                };
                let pipeline = self.pipeline()?;
                let mut intervals = Vec::new();
                backfill
                    .plan(session, &pipeline)?
                    .run(session, &pipeline, &mut |outcome| {
                        intervals.push(outcome);
                        Ok(())
                    })?;
                let nothing_new = intervals.iter().all(|outcome| outcome.skipped);
                let mut summary = json!({
                    "pipeline": pipeline.name,
                    "nothing_new": nothing_new,
                    "intervals": intervals,
                });
                if let Some(remainder) = backfill.remainder() {
                    summary["remainder"] = json!(remainder);
                }
                as_json(&summary)
            }
            PyCommand::Fit {} => as_json(&session.fit(&self.pipeline()?)?),
            PyCommand::Check {} => {
                let warnings = session.check(&self.pipeline()?)?;
                as_json(&warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
            }
            PyCommand::Explain { interval: bounds } => {
                let explained =
                    session.explain(&self.pipeline()?, bounds.as_ref().map(interval).as_ref())?;
                let text = explain::plain(&explained);
                as_json(&json!({ "text": text, "explanation": explained }))
            }
            PyCommand::Preview {
                step,
                rows,
                condition,
                sample_rows,
            } => {
                let step = step.clone();
                let condition = condition.clone();
                let options = PreviewOptions {
                    step,
                    rows: *rows,
                    condition,
                    sample_rows: *sample_rows,
                    ..PreviewOptions::default()
                };
                let preview = session.preview(&self.pipeline()?, &options)?;
                let schema = preview
                    .batches
                    .first()
                    .map_or_else(|| Arc::new(Schema::empty()), |batch| batch.schema());
                Ok(Answer::Rows(Table::new(concat_batches(
                    &schema,
                    &preview.batches,
                )?)))
            }
            PyCommand::Collect { step } => {
                let rows = session.rows(&self.pipeline()?, step)?;
                let no_rows = rows.schema().clone();
                let batches = rows.collect::<Result<Vec<_>, _>>()?;
                let schema = batches.first().map_or(no_rows, RecordBatch::schema);
                Ok(Answer::Rows(Table::new(concat_batches(&schema, &batches)?)))
            }
            PyCommand::Predict(wanted) => {
                let model = TrainedModel::load(session.io(), &wanted.model)?;
                as_json(&model.score(session, &wanted.scoring(&model.artifact)?)?)
            }
        }
    }
}

impl PredictRequest {
    fn scoring(&self, artifact: &Artifact) -> Result<ScoringRequest, Fault> {
        let source_names: Vec<&str> = artifact
            .pipeline
            .sources
            .iter()
            .map(|source| source.name.as_str())
            .collect();
        if let Some(unknown) = self
            .sources
            .keys()
            .find(|name| !source_names.contains(&name.as_str()))
        {
            let fault = Fault::new(
                codes::UNKNOWN_NAME,
                format!("the pipeline has no source `{unknown}`"),
            );
            return Err(fault.hint(format!("it has: {}", source_names.join(", "))));
        }
        if let Some(missing) = source_names
            .iter()
            .find(|name| !self.sources.contains_key(**name))
        {
            let fault = Fault::new(
                codes::MISSING_FIELD,
                format!("where is the source `{missing}`?"),
            );
            return Err(fault.hint(format!(
                "give `sources={{\"{missing}\": PATH}}`: a model does not hold paths"
            )));
        }
        Ok(ScoringRequest {
            sources: self.sources.clone(),
            output: self.output.clone(),
            format: self.format,
            columns: self.columns.clone(),
            split: self.split.clone(),
            name: self.name.clone(),
            bounds: (self.minimum, self.maximum),
            interval: self.interval.as_ref().map(interval),
            rows_from: self.rows_from.clone(),
            whole_history: self.whole_history,
        })
    }
}

/// Events that have not been passed to Python; progress is summed.
#[derive(Default)]
struct EventQueue {
    events: Mutex<Vec<Event>>,
}

impl EventListener for EventQueue {
    fn on_event(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        match (events.last_mut(), event) {
            (
                Some(Event::Progress { rows, bytes }),
                Event::Progress {
                    rows: more_rows,
                    bytes: more_bytes,
                },
            ) => {
                *rows += more_rows;
                *bytes += more_bytes;
            }
            (
                Some(Event::Worked { done, planned }),
                Event::Worked {
                    done: more_done,
                    planned: more_planned,
                },
            ) => {
                *done += more_done;
                *planned += more_planned;
            }
            (_, event) => events.push(event),
        }
    }
}

impl EventQueue {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Passes the events to `hear`, as JSON.
    fn tell(&self, py: Python<'_>, hear: &Py<PyAny>) -> PyResult<()> {
        for event in self.take() {
            let text = serde_json::to_string(&event)
                .map_err(|error| Fault::internal("an event").cause(error));
            hear.call1(py, (text.into_py_result(py)?,))?;
        }
        Ok(())
    }
}

/// Does work on a thread of its own, while this one looks for Ctrl-C and calls `look`; where one of them raises, `stop`
/// is called, and the work waited for.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    stop: impl Fn(),
    work: impl FnOnce() -> T + Send,
    look: impl Fn() -> PyResult<()>,
) -> PyResult<T> {
    std::thread::scope(|scope| {
        let working = std::thread::Builder::new().spawn_scoped(scope, work);
        let working = working.map_err(Fault::refused_thread).into_py_result(py)?;
        let mut interrupted = None;
        let mut looked = Instant::now();
        while !working.is_finished() {
            py.detach(|| std::thread::sleep(LOOK_EVERY));
            if interrupted.is_some() || looked.elapsed() < SIGNALS_EVERY {
                continue;
            }
            looked = Instant::now();
            if let Err(error) = py.check_signals().and_then(|()| look()) {
                stop();
                interrupted = Some(error);
            }
        }
        let done = working
            .join()
            .map_err(|_| pyo3::exceptions::PyRuntimeError::new_err("a thread panicked"))?;
        interrupted.map_or_else(|| look().map(|()| done), Err)
    })
}

/// Reads a request of the Python half, which has checked it.
pub(crate) fn request<'a, T: Deserialize<'a>>(py: Python<'_>, text: &'a str) -> PyResult<T> {
    let read = serde_json::from_str(text);
    read.map_err(|error| Fault::new(codes::BAD_VALUE, format!("an argument is wrong: {error}")))
        .into_py_result(py)
}

fn answer(
    py: Python<'_>,
    text: &str,
    listener: Option<Py<PyAny>>,
    launched: Option<&LaunchedWorkers>,
) -> PyResult<Answer> {
    let command_request: CommandRequest = request(py, text)?;
    let events = Arc::new(EventQueue::default());
    let heard: Arc<dyn EventListener> = match listener {
        Some(_) => events.clone(),
        None => Arc::new(IgnoreEvents),
    };
    let session = py
        .detach(|| command_request.machine.session(heard, launched))
        .into_py_result(py)?;
    let stop = || {
        session
            .session
            .interrupt()
            .flag()
            .store(true, Ordering::Relaxed)
    };
    let look = || {
        listener
            .as_ref()
            .map_or(Ok(()), |hear| events.tell(py, hear))
    };
    let done = interruptible(py, stop, || command_request.execute(&session.session), look)?;
    match &command_request.spec {
        Some(spec) => spec.result_of(py, done),
        None => done.into_py_result(py),
    }
}

/// Executes a request; returns the result as JSON. `listener` is called with each event, as JSON; `launched` holds the
/// workers that a launcher starts for the run.
#[pyfunction]
#[pyo3(signature = (request, listener=None, launched=None))]
pub(crate) fn execute(
    py: Python<'_>,
    request: &str,
    listener: Option<Py<PyAny>>,
    launched: Option<PyRef<'_, LaunchedWorkers>>,
) -> PyResult<String> {
    match answer(py, request, listener, launched.as_deref())? {
        Answer::Json(text) => Ok(text),
        Answer::Rows(_) => Err(Fault::internal("rows instead of a report")).into_py_result(py),
    }
}

/// The rows that a request computes.
#[pyfunction]
pub(crate) fn rows(py: Python<'_>, request: &str) -> PyResult<Table> {
    match answer(py, request, None, None)? {
        Answer::Rows(table) => Ok(table),
        Answer::Json(_) => Err(Fault::internal("a report instead of rows")).into_py_result(py),
    }
}

/// Keeps the rows of a table in the state directory of a session; returns the path for a source.
#[pyfunction]
pub(crate) fn keep_table(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    machine: &str,
) -> PyResult<String> {
    let machine: MachineRequest = request(py, machine)?;
    let rows = reader(table)?;
    let session = py
        .detach(|| machine.session(Arc::new(IgnoreEvents), None))
        .into_py_result(py)?
        .session;
    let stop = || session.interrupt().flag().store(true, Ordering::Relaxed);
    interruptible(py, stop, || session.keep_table(rows), || Ok(()))?.into_py_result(py)
}

/// The artifact of a directory.
pub(crate) fn load_artifact(path: &str) -> Result<Artifact, Fault> {
    let io = StorageClient::new()?;
    Artifact::load(&io, &io.resolve(path)?)
}
