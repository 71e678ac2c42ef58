//! Serves `GET /metrics`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_model::{Fault, Result, codes};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::metrics_text::MetricsText;

/// Connections that are answered at a time; others wait.
const CONNECTIONS_MAX: usize = 16;

/// Maximum duration of a connection in seconds.
const CONNECTION_SECONDS: u64 = 10;

/// Pause of accepting connections after one that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The text format of Prometheus.
pub(super) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A server that ends with this value.
pub(super) struct MetricsServer {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MetricsServer {
    /// Listens at an address; port 0 takes a free one.
    pub fn start(
        address: &str,
        metrics: Arc<dyn MetricsText>,
        runtime: &Handle,
    ) -> Result<MetricsServer> {
        let failed = |error| {
            let fault = Fault::new(
                codes::STORAGE,
                format!("metrics cannot be served at {address}"),
            );
            fault
                .cause(error)
                .hint("give another address to `--metrics`, such as 127.0.0.1:9464")
        };
        let listener = crate::cli::bind_listener(address)?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        drop(entered);
        let task = runtime.spawn(serve(listener, metrics));
        Ok(MetricsServer { address, task })
    }
}

async fn serve(listener: TcpListener, metrics: Arc<dyn MetricsText>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // A connection that broke before it was taken says nothing about the next. Where there are no descriptors
            // left, none is accepted for a while.
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let metrics = metrics.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let answer = respond(&request, metrics.as_ref());
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer);
            let limit = Duration::from_secs(CONNECTION_SECONDS);
            // The client sees the failure of its connection; the server goes on.
            let _ = tokio::time::timeout(limit, connection).await;
            drop(permit);
        });
    }
}

fn respond(request: &Request<Incoming>, metrics: &dyn MetricsText) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => match metrics.text() {
            Ok(text) => (StatusCode::OK, text),
            Err(fault) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{}\n", fault.message()),
            ),
        },
        (&Method::GET, "/") => (StatusCode::OK, "see /metrics\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "see /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        hyper::header::HeaderValue::from_static(TEXT_FORMAT),
    );
    response
}
