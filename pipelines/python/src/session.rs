//! Runs from Python, and what sessions need.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay::model::{BATCH_ROWS_DEFAULT, Fault, Pipeline, codes};
use forebay::run::machine_bytes;
use forebay::{Forebay, IgnoreEvents, RunReport, Session, SessionOptions};
use pyo3::prelude::*;

use crate::fault::IntoPyResult;

/// How often Python's signals are looked at while Rust works.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// What decides how a session works.
#[derive(Clone)]
pub(crate) struct PySessionOptions {
    pub state: String,
    pub memory_bytes: Option<u64>,
    pub threads: Option<usize>,
}

impl PySessionOptions {
    pub fn session(&self) -> Result<Session, Fault> {
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        if threads == 0 {
            return Err(Fault::new(codes::BAD_VALUE, "`threads` must be at least 1"));
        }
        let memory_bytes = self.memory_bytes.unwrap_or_else(|| machine_bytes().map_or(1 << 30, |bytes| bytes / 2));
        let options = SessionOptions {
            threads,
            memory_bytes,
            batch_rows: BATCH_ROWS_DEFAULT,
            state: self.state.clone(),
            run_id: None,
        };
        Forebay::standard().session(options, Arc::new(IgnoreEvents))
    }
}

/// Reads a spec.
pub(crate) fn pipeline(spec: &str, params: &BTreeMap<String, String>) -> Result<Pipeline, Fault> {
    let text = std::fs::read_to_string(Path::new(spec)).map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { codes::NOT_FOUND } else { codes::STORAGE };
        Fault::new(code, "the spec cannot be read").file(spec).cause(error)
    })?;
    forebay::spec::parse(&text, spec, params, &Forebay::standard().spec_catalog())
}

/// Does work on a thread of its own, while this one looks for Ctrl-C; `stop` is then called, and the
/// work waited for.
pub(crate) fn interruptible<T: Send>(py: Python<'_>, stop: impl Fn(), work: impl FnOnce() -> T + Send) -> PyResult<T> {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        let mut interrupted = None;
        while !working.is_finished() {
            py.detach(|| std::thread::sleep(SIGNALS_EVERY.min(Duration::from_millis(5))));
            if interrupted.is_none()
                && let Err(error) = py.check_signals()
            {
                stop();
                interrupted = Some(error);
            }
        }
        let done = working.join().map_err(|_| pyo3::exceptions::PyRuntimeError::new_err("a thread panicked"))?;
        interrupted.map_or(Ok(done), Err)
    })
}

fn run_reported(
    py: Python<'_>,
    spec: &str,
    params: BTreeMap<String, String>,
    machine: &PySessionOptions,
    work: impl Fn(&Session, &Pipeline) -> Result<RunReport, Fault> + Send + Sync,
) -> PyResult<String> {
    let session = machine.session().into_py_result(py)?;
    let pipeline = pipeline(spec, &params).into_py_result(py)?;
    let stop = || session.interrupt().flag().store(true, Ordering::Relaxed);
    let report = interruptible(py, stop, || work(&session, &pipeline))?.into_py_result(py)?;
    serde_json::to_string(&report).map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

/// Learns, commits the artifact and writes all sinks; the report as JSON.
#[pyfunction]
#[pyo3(signature = (spec, params, state, memory_bytes=None, threads=None))]
pub(crate) fn run(
    py: Python<'_>,
    spec: &str,
    params: BTreeMap<String, String>,
    state: String,
    memory_bytes: Option<u64>,
    threads: Option<usize>,
) -> PyResult<String> {
    run_reported(py, spec, params, &PySessionOptions { state, memory_bytes, threads }, Session::run)
}

/// Learns and commits the artifact; the report as JSON.
#[pyfunction]
#[pyo3(signature = (spec, params, state, memory_bytes=None, threads=None))]
pub(crate) fn fit(
    py: Python<'_>,
    spec: &str,
    params: BTreeMap<String, String>,
    state: String,
    memory_bytes: Option<u64>,
    threads: Option<usize>,
) -> PyResult<String> {
    run_reported(py, spec, params, &PySessionOptions { state, memory_bytes, threads }, Session::fit)
}
