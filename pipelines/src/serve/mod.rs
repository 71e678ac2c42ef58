//! A server of features and predictions: `forebay serve`.
//!
//! ```text
//! connection -> guard -> protocol -> RecordBatch -> ServeService -> BatchQueue -> ServedModel
//!                                                      |  VersionSet: which version answers
//!                                                      |  ShadowVersions, RequestLog
//! ```
//!
//! Each protocol has a file, and turns its request into a batch of columns. [`service::ServeService`] chooses the version,
//! and [`batch_queue::BatchQueue`] computes the answer on threads of its own.

mod admin;
mod batch_queue;
mod body;
mod drift;
mod error;
mod feast;
mod feast_columns;
mod formats;
mod grpc;
mod grpc_compression;
mod grpc_messages;
mod guard;
mod invocations;
mod limits;
mod listener;
mod location;
mod model;
mod open_inference;
mod openapi;
mod operator;
mod refusal;
mod request_log;
mod rows;
mod service;
mod shadow;
mod tensor;
mod tensor_json;
#[cfg(test)]
mod tests;
mod tls;
mod turns;
mod versions;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use axum::{Router, middleware};
use forebay_model::{Fault, Result, codes};
use forebay_run::ClusterToken;
use forebay_storage::{CancellationToken, StorageClient, start_runtime};
use forebay_threads::start_thread;
use tokio::sync::Semaphore;

use self::batch_queue::BatchQueue;
pub(crate) use self::feast::FACTS_VIEW;
pub(crate) use self::limits::ServeLimits;
pub(crate) use self::listener::{ConnectionLimits, HttpListener};
use self::model::AnswerOptions;
pub(crate) use self::model::{ServedModel, short_id};
use self::refusal::error_response;
use self::request_log::RequestLog;
use self::service::{PERMIT_BYTES, ServeService};
use self::shadow::ShadowVersions;
pub(crate) use self::tls::ServeTls;
use self::versions::VersionSet;
use crate::metrics::{CommandMetrics, ServeMetrics};

/// Threads that read requests and write answers.
const NETWORK_THREADS: usize = 2;

/// Share of the memory that the states of series of a version may take.
const STATE_SHARE: u64 = 8;

/// Time for cutting connections that did not end.
const CUT_WITHIN: Duration = Duration::from_millis(500);

/// Settings of a server.
pub(crate) struct ServeOptions {
    /// An artifact, a model, or the name of a pipeline.
    pub path: String,
    /// The state directory in which pipelines' artifacts lie.
    pub state: String,
    /// Name in the protocols; that of the pipeline when left out.
    pub name: Option<String>,
    /// The step whose columns an artifact's answers have.
    pub node: Option<String>,
    pub with_features: bool,
    /// Answers series with forecasts of their whole horizon.
    pub forecast: bool,
    /// Name of the column of predictions.
    pub prediction: String,
    /// Least and greatest prediction.
    pub bounds: (Option<f64>, Option<f64>),
    /// Time between two looks for a newer version.
    pub follow_every: Duration,
    /// Earlier versions that are kept for a rollback.
    pub keep_versions: usize,
    pub shadow: Option<ShadowOptions>,
    pub log: Option<LogOptions>,
    pub threads: usize,
    pub memory_bytes: u64,
    pub limits: ServeLimits,
    pub token: Option<ClusterToken>,
    pub tls: Option<ServeTls>,
}

/// A second version.
pub(crate) struct ShadowOptions {
    pub path: String,
    /// Share of the keys that it answers.
    pub share: f64,
}

/// A log of requests.
pub(crate) struct LogOptions {
    pub directory: PathBuf,
    /// Share of the requests.
    pub share: f64,
}

/// A loaded server.
pub(crate) struct FeatureServer {
    service: Arc<ServeService>,
    options: ServeOptions,
}

impl FeatureServer {
    /// Loads the served model or artifact.
    pub fn load(
        io: &StorageClient,
        options: ServeOptions,
        metrics: &CommandMetrics<ServeMetrics>,
    ) -> Result<FeatureServer> {
        io.read_memory()
            .set_limit(options.memory_bytes, options.threads);
        let answers = AnswerOptions {
            node: options.node.clone(),
            with_features: options.with_features,
            forecast: options.forecast,
            prediction: options.prediction.clone(),
            bounds: options.bounds,
            state_bytes: usize::try_from(options.memory_bytes / STATE_SHARE).ok(),
        };
        let load = |path: &str| {
            VersionSet::load(
                io,
                path,
                &options.state,
                answers.clone(),
                options.keep_versions,
            )
        };
        let versions = load(&options.path)?;
        let current = versions.current();
        metrics.name_pipeline(&current.pipeline);
        let shadow = match &options.shadow {
            None => None,
            Some(shadow) => {
                let second = load(&shadow.path)?;
                check_shadow(&current, &second.current(), shadow.share)?;
                Some(ShadowVersions::new(second, shadow.share))
            }
        };
        let counts = metrics.shared();
        let log = match &options.log {
            None => None,
            Some(log) => Some(RequestLog::start(&log.directory, log.share, &counts)?),
        };
        let permits = options.limits.in_flight_bytes / PERMIT_BYTES;
        let service = ServeService {
            name: options
                .name
                .clone()
                .unwrap_or_else(|| current.pipeline.clone()),
            versions,
            shadow,
            limits: options.limits.clone(),
            reader: io.clone(),
            page: metrics.page(io, options.memory_bytes),
            token: options.token.clone(),
            queue: BatchQueue::start(options.threads, &options.limits, &counts)?,
            log,
            request_memory: Arc::new(Semaphore::new(permits)),
            requests: Arc::new(Semaphore::new(options.limits.in_flight_requests)),
            decoding: Arc::new(Semaphore::new(options.threads.max(1))),
            appending: Arc::new(Semaphore::new(1)),
            is_draining: Arc::new(AtomicBool::new(false)),
            metrics: counts,
        };
        service.show_version();
        Ok(FeatureServer {
            service: Arc::new(service),
            options,
        })
    }

    /// Name in the protocols.
    pub fn name(&self) -> &str {
        &self.service.name
    }

    /// The version that answers.
    pub fn current(&self) -> Arc<ServedModel> {
        self.service.versions.current()
    }

    /// Serves until `ended` is set and the requests that had begun are answered.
    pub fn serve(self, listener: TcpListener, ended: &CancellationToken) -> Result<()> {
        let runtime = start_runtime("forebay-http", NETWORK_THREADS)?;
        let tls = self.options.tls.as_ref();
        let tls = tls.map(ServeTls::acceptor).transpose()?;
        let limits = &self.service.limits;
        let connections = HttpListener {
            tls,
            router: router(&self.service),
            limits: ConnectionLimits {
                connections: limits.connections,
                idle: limits.idle,
                drain: limits.drain,
            },
            is_draining: self.service.is_draining.clone(),
            open_connections: Some(self.service.metrics.connections.clone()),
        };
        let (stop, stopped) = channel::<()>();
        let service = self.service.clone();
        let every = self.options.follow_every;
        let follower = start_thread("forebay-follow", move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                service.follow();
            }
        })?;
        let served = runtime.block_on(connections.serve(listener, ended));
        drop(stop);
        let _ = follower.join();
        // Connections of clients that do not end are cut. What they hold must go before the log is closed.
        runtime.shutdown_timeout(CUT_WITHIN);
        served
    }
}

/// The newest version at a path, for descriptions of it.
pub(crate) fn described_model(
    io: &StorageClient,
    path: &str,
    state: &str,
    forecast: bool,
) -> Result<Arc<ServedModel>> {
    let options = AnswerOptions {
        forecast,
        prediction: "prediction".to_owned(),
        ..AnswerOptions::default()
    };
    Ok(VersionSet::load(io, path, state, options, 0)?.current())
}

/// Refuses a second version whose answers cannot stand for those of the first.
fn check_shadow(served: &ServedModel, second: &ServedModel, share: f64) -> Result<()> {
    if share == 0.0 {
        return Ok(());
    }
    if served.keys.is_empty() {
        let fault = Fault::new(
            codes::MISSING_FIELD,
            "`--split` divides requests by key, and the source declares no keys",
        );
        return Err(fault.hint("add `keys` to the source in the spec, and run it again"));
    }
    for field in served.outputs().fields() {
        let other = second.outputs().field_with_name(field.name()).ok();
        if other.is_none_or(|other| other.data_type() != field.data_type()) {
            let message = format!(
                "the second version has no column `{}` of the served version's type",
                field.name()
            );
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .column(field.name())
                .hint("leave `--split` out to compare the answers without giving them"));
        }
    }
    Ok(())
}

fn router(service: &Arc<ServeService>) -> Router {
    Router::new()
        .merge(open_inference::routes())
        .merge(grpc::routes())
        .merge(rows::routes())
        .merge(invocations::routes())
        .merge(feast::routes())
        .merge(admin::routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(
            service.clone(),
            guard::guard,
        ))
        .with_state(service.clone())
}

async fn wrong_method(request: axum::extract::Request) -> http::Response<axum::body::Body> {
    let message = format!(
        "`{}` does not take the method {}; see /openapi.json",
        request.uri().path(),
        request.method()
    );
    error_response(&error::ServeError::wrong_method(message))
}

async fn unknown_path(request: axum::extract::Request) -> http::Response<axum::body::Body> {
    let path = request.uri().path();
    let message = format!("there is nothing at `{path}`; see /openapi.json");
    error_response(&error::ServeError::not_found(message))
}
