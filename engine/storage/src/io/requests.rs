//! Requests to object stores as they end, for traces.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use forebay_model::TraceContext;
use forebay_threads::current_span;

tokio::task_local! {
    /// Span that a request is sent for, where another thread sends it.
    static READ_FOR: Option<TraceContext>;
}

/// Sends requests for a span, on any thread.
pub async fn send_for<T>(span: Option<TraceContext>, requests: impl Future<Output = T>) -> T {
    READ_FOR.scope(span, requests).await
}

/// A request that was sent once; a repeated one is another request.
#[derive(Debug, Clone)]
pub struct StorageRequest {
    /// Span that it was sent for.
    pub span: Option<TraceContext>,
    /// The method of HTTP.
    pub method: String,
    /// The server.
    pub host: String,
    /// The path of the object, without a query: that may hold a signature.
    pub path: String,
    /// The requested range of bytes, as in the request, if not all.
    pub range: Option<String>,
    /// HTTP status of the answer; `None` if there was none.
    pub status: Option<u16>,
    /// Bytes of the request's body.
    pub bytes_written: u64,
    /// Bytes of the answer's body.
    pub bytes_read: u64,
    /// Time at which it was sent.
    pub began: SystemTime,
    /// Time until its answer was read, or the read was abandoned.
    pub took: Duration,
}

/// Receiver of requests that ended. Called from many threads; must not block.
pub trait RequestListener: Send + Sync + std::fmt::Debug {
    /// Handles a request that ended.
    fn on_request(&self, request: StorageRequest);
}

/// A request in flight. Dropping it reports it to the listener.
#[derive(Debug)]
pub struct OpenRequest {
    listener: Arc<dyn RequestListener>,
    request: StorageRequest,
    began: Instant,
}

impl OpenRequest {
    pub fn new(
        listener: Arc<dyn RequestListener>,
        request: &object_store::client::HttpRequest,
    ) -> OpenRequest {
        let header = |name| {
            request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let request = StorageRequest {
            span: READ_FOR
                .try_with(|span| *span)
                .ok()
                .flatten()
                .or_else(current_span),
            method: request.method().to_string(),
            host: request.uri().host().unwrap_or_default().to_owned(),
            path: request.uri().path().to_owned(),
            range: header(http::header::RANGE),
            status: None,
            bytes_written: request.body().content_length() as u64,
            bytes_read: 0,
            began: SystemTime::now(),
            took: Duration::ZERO,
        };
        OpenRequest {
            listener,
            request,
            began: Instant::now(),
        }
    }

    pub fn answered(&mut self, status: u16) {
        self.request.status = Some(status);
    }

    pub fn count_read(&mut self, bytes: u64) {
        self.request.bytes_read += bytes;
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.request.took = self.began.elapsed();
        self.listener.on_request(self.request.clone());
    }
}
