//! A read-only server of pages about the runs of a state directory: `forebay ui`.
//!
//! ```text
//! connection -> guard (token, host) -> pages -> history (records of runs) -> crate::page
//! ```

mod guard;
mod history;
mod pages;
mod report_file;
mod service;
mod steps;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::routing::get;
use axum::{Router, middleware};
use forebay_model::Result;
use forebay_run::{ClusterToken, Session};
use forebay_storage::{CancellationToken, start_runtime};
use tokio::sync::Semaphore;

use self::history::RunHistory;
use self::service::UiService;
use crate::serve::{ConnectionLimits, HttpListener};

/// Threads that read requests and write answers.
const NETWORK_THREADS: usize = 2;

/// Pages that are made at a time; other requests wait.
const PAGES_MAX: usize = 4;

/// Limits on connections. A page is small, and a browser opens a few connections.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 64,
    idle: Duration::from_secs(75),
    drain: Duration::from_secs(2),
};

/// Time for cutting connections that did not end.
const CUT_WITHIN: Duration = Duration::from_millis(500);

/// A server of pages.
pub(crate) struct UiServer {
    service: Arc<UiService>,
}

impl UiServer {
    /// A server of the state directory of a session. Without a token, it answers requests to this machine alone.
    pub fn new(session: Session, token: Option<ClusterToken>) -> Result<UiServer> {
        let history = RunHistory::new(session.io().clone(), session.state()?);
        let service = UiService {
            history,
            session,
            token,
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
            previews: Arc::new(Semaphore::new(1)),
        };
        Ok(UiServer {
            service: Arc::new(service),
        })
    }

    /// Serves until `ended` is set and the requests that had begun are answered.
    pub fn serve(self, listener: TcpListener, ended: &CancellationToken) -> Result<()> {
        let runtime = start_runtime("forebay-ui", NETWORK_THREADS)?;
        let connections = HttpListener {
            tls: None,
            router: router(&self.service),
            limits: LIMITS,
            is_draining: Arc::new(AtomicBool::new(false)),
            open_connections: None,
        };
        let served = runtime.block_on(connections.serve(listener, ended));
        runtime.shutdown_timeout(CUT_WITHIN);
        served
    }
}

fn router(service: &Arc<UiService>) -> Router {
    Router::new()
        .route("/", get(pages::index))
        .route("/page.js", get(pages::script))
        .route("/pipelines/{pipeline}", get(pages::pipeline))
        .route("/pipelines/{pipeline}/graph", get(pages::pipeline_graph))
        .route("/pipelines/{pipeline}/steps/{step}", get(pages::step_rows))
        .route(
            "/pipelines/{pipeline}/steps/{step}/profile",
            get(pages::step_profile),
        )
        .route("/runs/{run}", get(pages::run))
        .route("/runs/{run}/report", get(pages::run_report))
        .route("/runs/{run}/steps", get(pages::run_steps))
        .route("/runs/{run}/steps/{step}", get(pages::run_step_rows))
        .route(
            "/runs/{run}/steps/{step}/profile",
            get(pages::run_step_profile),
        )
        .fallback(pages::missing)
        .layer(middleware::from_fn_with_state(
            service.clone(),
            guard::guard,
        ))
        .with_state(service.clone())
}
