//! How long storage is asked again before that becomes a fault.
//!
//! Most of it is the store's own: requests that fail are sent again with growing pauses, and bodies
//! that are cut are read on from where they ended. What it does not repeat (the answers to listings,
//! conditional writes whose outcome is in doubt) is repeated here, inside the same budget.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::fault::{Failed, among};

/// How often and how long something is tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Attempts at most, the first one among them.
    pub attempts_max: usize,
    /// From the first attempt on; after it there is no further one.
    pub budget: Duration,
}

impl Patience {
    /// From `AWS_MAX_ATTEMPTS` and `FOREBAY_RETRY_SECONDS`.
    pub fn from_env() -> Self {
        fn given<T: std::str::FromStr>(name: &str) -> Option<T> {
            std::env::var(name).ok()?.parse().ok()
        }
        let seconds = given("FOREBAY_RETRY_SECONDS").filter(|seconds| (0.0..1e6).contains(seconds)).unwrap_or(180.0);
        let attempts_max = given("AWS_MAX_ATTEMPTS").unwrap_or(16).max(1);
        Patience { attempts_max, budget: Duration::from_secs_f64(seconds) }
    }

    /// The first pause: a tenth of a second of three minutes.
    fn pause(&self) -> Duration {
        self.budget / 1800
    }

    pub fn retries(&self) -> RetryConfig {
        let backoff = BackoffConfig { init_backoff: self.pause(), max_backoff: self.budget / 12, base: 2.0 };
        RetryConfig { backoff, max_retries: self.attempts_max - 1, retry_timeout: self.budget }
    }

    /// Does something once.
    pub async fn counted<T>(&self, work: impl Future<Output = object_store::Result<T>>) -> Result<T, Failed> {
        let failed = Arc::new(AtomicUsize::new(0));
        let done = FAILED.scope(failed.clone(), work).await;
        done.map_err(|error| Failed { error, attempts: failed.load(Ordering::Relaxed) })
    }

    /// Does something, again where a connection failed.
    pub async fn tried<T, F>(&self, work: impl Fn() -> F) -> Result<T, Failed>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let (begun, mut pause, mut attempts) = (Instant::now(), self.pause(), 0);
        loop {
            let failed = match self.counted(work()).await {
                Ok(done) => return Ok(done),
                Err(failed) => failed,
            };
            attempts += failed.attempts;
            let spent = attempts >= self.attempts_max || begun.elapsed() >= self.budget;
            if spent || among::<HttpError>(&failed.error).is_none() {
                return Err(Failed { attempts, ..failed });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.budget / 12);
        }
    }
}

tokio::task_local! {
    /// Requests that failed during the present operation.
    static FAILED: Arc<AtomicUsize>;
}

/// Connects as usual, and counts what fails: the store tells only the last error.
#[derive(Debug, Default)]
pub(super) struct Counted(ReqwestConnector);

impl HttpConnector for Counted {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Counting(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Counting(HttpClient);

#[async_trait::async_trait]
impl HttpService for Counting {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let counter = FAILED.try_with(Arc::clone).unwrap_or_default();
        let count = move || counter.fetch_add(1, Ordering::Relaxed);
        let answer = self.0.execute(request).await.inspect_err(|_| {
            count();
        })?;
        let (parts, body) = answer.into_parts();
        if parts.status.is_server_error() || matches!(parts.status.as_u16(), 408 | 429) {
            count();
        }
        let body = http_body_util::BodyExt::map_err(body, move |error| {
            count();
            error
        });
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}
