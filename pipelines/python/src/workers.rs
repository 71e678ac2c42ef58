//! Workers that read and apply for a loader.

use std::path::PathBuf;
use std::time::Duration;

use forebay::model::{Fault, codes};
use forebay::run::{ClusterOptions, ClusterSecurity, RunCredentials, TlsFiles, WorkerSet};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::fault::IntoPyResult;

/// Timeouts of workers, equal to those of the command line.
const LEASE: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(60);

/// Reads `["host:port"]`, or a mapping with `addresses`, `token_file`, and `tls_ca`, `tls_cert`, `tls_key` and
/// `tls_name`. Where there is no file, the token is that of the variable FOREBAY_TOKEN, else this user's.
pub(crate) fn cluster_options(description: Value) -> Result<ClusterOptions, Fault> {
    let mut settings = match description {
        Value::Object(settings) => settings,
        addresses => Map::from_iter([("addresses".to_owned(), addresses)]),
    };
    let bad = |message: String| {
        Fault::new(codes::BAD_VALUE, message).hint("give `workers=[\"host:port\"]`")
    };
    let addresses = settings.remove("addresses").unwrap_or_default();
    let workers: Vec<String> = serde_json::from_value(addresses)
        .map_err(|error| bad("`workers` are no list of addresses".to_owned()).cause(error))?;
    let mut text = |name: &str| match settings.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(bad(format!("`{name}` of `workers` is {other}, not a text"))),
    };
    let token_file = text("token_file")?.map(PathBuf::from);
    let name = text("tls_name")?;
    let tls = match (text("tls_ca")?, text("tls_cert")?, text("tls_key")?) {
        (Some(ca), Some(cert), Some(key)) => Some(TlsFiles {
            ca: PathBuf::from(ca),
            cert: PathBuf::from(cert),
            key: PathBuf::from(key),
            name,
        }),
        (None, None, None) => None,
        _ => {
            return Err(bad(
                "`tls_ca`, `tls_cert` and `tls_key` of `workers` belong together".to_owned(),
            ));
        }
    };
    if let Some(unknown) = settings.keys().next() {
        return Err(bad(format!("`workers` has no `{unknown}`")));
    }
    Ok(ClusterOptions {
        workers,
        security: ClusterSecurity::new(tls, token_file.as_deref())?,
        lease: LEASE,
        grace: GRACE,
        local: None,
        launched: None,
    })
}

/// The workers that a launcher of the Python half starts for one run, and their credentials.
#[pyclass(frozen, name = "WorkerSet")]
pub(crate) struct LaunchedWorkers {
    credentials: RunCredentials,
    set: WorkerSet,
}

#[pymethods]
impl LaunchedWorkers {
    #[new]
    fn new(py: Python<'_>) -> PyResult<LaunchedWorkers> {
        Ok(LaunchedWorkers {
            credentials: RunCredentials::new().into_py_result(py)?,
            set: WorkerSet::default(),
        })
    }

    /// The line that each worker reads from its standard input.
    fn credentials(&self, py: Python<'_>) -> PyResult<String> {
        self.credentials.to_line().into_py_result(py)
    }

    /// Sets the addresses of the workers that run now.
    fn replace(&self, addresses: Vec<String>) {
        self.set.replace(addresses);
    }

    /// Reports that no worker will come any more, and why.
    fn end(&self, reason: String) {
        self.set.end(reason);
    }
}

impl LaunchedWorkers {
    /// Options of the cluster of the run.
    pub fn options(&self) -> Result<ClusterOptions, Fault> {
        Ok(ClusterOptions {
            workers: Vec::new(),
            security: ClusterSecurity::of_run(&self.credentials)?,
            lease: LEASE,
            grace: GRACE,
            local: None,
            launched: Some(self.set.clone()),
        })
    }
}
