//! Retries of storage: their budget is a time, not a number of attempts.
//!
//! The store itself sends requests that fail again for a while, with growing pauses of random
//! lengths, and reads bodies that are cut on from where they ended. Requests that it does not
//! repeat (answers to listings, conditional writes whose outcome is in doubt), and requests whose
//! signature grows old, are started again here until the time is up.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result as Outcome, codes};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::read_scheduler::ReadScheduler;
use super::requests::OpenRequest;
use super::stores::is_refreshable;
use super::usage::UsageCounters;
use crate::io::error::{FailedRequest, find_cause, is_session_expired};

/// Seconds of retries, where `FOREBAY_RETRY_SECONDS` is not set.
const RETRY_SECONDS_DEFAULT: f64 = 180.0;

/// Time for which the store may send the same request again: S3 refuses signatures that are fifteen
/// minutes old.
const SIGNATURE_AGE_MAX: Duration = Duration::from_secs(120);

/// Maximum number of attempts, where `AWS_MAX_ATTEMPTS` is not set: pauses would take far longer.
const ATTEMPTS_MAX: usize = 100_000;

/// Maximum ratio of a pause to the one before it.
const BACKOFF_BASE: f64 = 3.0;

/// Number and duration of attempts.
#[derive(Debug, Clone, Copy)]
pub struct RetryBudget {
    /// Attempts at most, the first one among them.
    pub attempts_max: usize,
    /// Time after the first attempt from which on no further attempt is made.
    pub budget: Duration,
}

/// A variable of the environment, if it is set to something; a fault where it is not what is expected.
pub fn parse_env<T: std::str::FromStr>(
    name: &str,
    expected: &str,
    good: impl Fn(&T) -> bool,
) -> Outcome<Option<T>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let parsed = text
        .to_str()
        .and_then(|text| text.trim().parse().ok())
        .filter(good);
    let bad = || {
        Fault::new(
            codes::BAD_VALUE,
            format!("{name} is `{}`, not {expected}", text.display()),
        )
    };
    parsed
        .map(Some)
        .ok_or_else(|| bad().hint(format!("unset {name}, or correct it")))
}

/// Seconds that a run waits for a lock of another process, where `FOREBAY_LOCK_SECONDS` is not set.
const LOCK_SECONDS_DEFAULT: f64 = 600.0;

/// Time that a run waits for a lock of another process, from `FOREBAY_LOCK_SECONDS`.
pub fn lock_wait_max() -> Outcome<Duration> {
    let seconds = parse_env("FOREBAY_LOCK_SECONDS", "a number of seconds", |seconds| {
        (0.0..1e6).contains(seconds)
    })?;
    Ok(Duration::from_secs_f64(
        seconds.unwrap_or(LOCK_SECONDS_DEFAULT),
    ))
}

impl RetryBudget {
    /// Reads `AWS_MAX_ATTEMPTS` and `FOREBAY_RETRY_SECONDS`.
    pub fn from_env() -> Outcome<Self> {
        let seconds = parse_env("FOREBAY_RETRY_SECONDS", "a number of seconds", |seconds| {
            (0.0..1e6).contains(seconds)
        })?;
        let attempts = parse_env(
            "AWS_MAX_ATTEMPTS",
            "a number of attempts, 1 or more",
            |attempts| *attempts > 0,
        )?;
        let budget = Duration::from_secs_f64(seconds.unwrap_or(RETRY_SECONDS_DEFAULT));
        Ok(RetryBudget {
            attempts_max: attempts.unwrap_or(ATTEMPTS_MAX),
            budget,
        })
    }

    /// The first pause: a tenth of a second of three minutes.
    fn first_pause(&self) -> Duration {
        (self.budget / 1800).max(Duration::from_millis(1))
    }

    fn pause_max(&self) -> Duration {
        (self.budget / 12).max(self.first_pause())
    }

    pub fn retry_config(&self) -> RetryConfig {
        let init_backoff = self.first_pause();
        let max_backoff = self.pause_max();
        let backoff = BackoffConfig {
            init_backoff,
            max_backoff,
            base: BACKOFF_BASE,
        };
        let retry_timeout = self.budget.min(SIGNATURE_AGE_MAX);
        RetryConfig {
            backoff,
            max_retries: self.attempts_max - 1,
            retry_timeout,
        }
    }

    /// Does something once.
    pub async fn try_once<T>(
        &self,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, FailedRequest> {
        let failed = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        let done = FAILED.scope(failed.clone(), work).await;
        done.map_err(|error| FailedRequest {
            error,
            attempts: failed.load(Ordering::Relaxed),
            waited: begun.elapsed(),
        })
    }

    /// Does something, again where a connection failed, the server was not able to, or credentials expired.
    pub async fn retry<T, F>(&self, work: impl Fn() -> F) -> Result<T, FailedRequest>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let begun = Instant::now();
        let mut pause = self.first_pause();
        let mut attempts = 0;
        loop {
            let failed = match self.try_once(work()).await {
                Ok(done) => return Ok(done),
                Err(failed) => failed,
            };
            let may_pass = is_retryable(&failed);
            attempts += failed.attempts;
            let waited = begun.elapsed();
            if attempts >= self.attempts_max || waited + pause >= self.budget || !may_pass {
                return Err(FailedRequest {
                    attempts,
                    waited,
                    ..failed
                });
            }
            tokio::time::sleep(pause).await;
            let longest = pause
                .mul_f64(BACKOFF_BASE)
                .min(self.pause_max())
                .as_secs_f64();
            let shortest = self.first_pause().as_secs_f64().min(longest);
            pause = Duration::from_secs_f64(shortest + (longest - shortest) * fastrand::f64());
        }
    }
}

/// True if another attempt may succeed.
fn is_retryable(failed: &FailedRequest) -> bool {
    let unanswered = find_cause::<HttpError>(&failed.error).is_some();
    let unable = failed.attempts > 0 && matches!(failed.error, object_store::Error::Generic { .. });
    unanswered || unable || (is_session_expired(&failed.error) && is_refreshable())
}
tokio::task_local! {
    /// Requests that failed during the present operation.
    static FAILED: Arc<AtomicUsize>;
}

/// Connects as usual, and counts requests and failures: the store reports only the last error.
#[derive(Debug)]
pub struct CountingConnector {
    connector: ReqwestConnector,
    counters: Arc<UsageCounters>,
    scheduler: Arc<ReadScheduler>,
}

impl CountingConnector {
    pub fn new(counters: &Arc<UsageCounters>, scheduler: &Arc<ReadScheduler>) -> Self {
        let counters = counters.clone();
        let scheduler = scheduler.clone();
        CountingConnector {
            connector: ReqwestConnector::default(),
            counters,
            scheduler,
        }
    }
}

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let counters = self.counters.clone();
        let scheduler = self.scheduler.clone();
        Ok(HttpClient::new(CountingService {
            client: self.connector.connect(options)?,
            counters,
            scheduler,
        }))
    }
}

#[derive(Debug)]
struct CountingService {
    client: HttpClient,
    counters: Arc<UsageCounters>,
    scheduler: Arc<ReadScheduler>,
}

#[async_trait::async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let counter = FAILED.try_with(Arc::clone).unwrap_or_default();
        let counters = self.counters.clone();
        counters.count_request(request.body().content_length() as u64);
        let count = {
            let counters = counters.clone();
            move || {
                counters.count_failure();
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut open = counters
            .listener
            .get()
            .map(|listener| OpenRequest::new(listener.clone(), &request));
        let answer = self
            .client
            .execute(request)
            .await
            .inspect_err(|_| count())?;
        let (parts, body) = answer.into_parts();
        if let Some(open) = &mut open {
            open.answered(parts.status.as_u16());
        }
        if parts.status.is_server_error() || matches!(parts.status.as_u16(), 408 | 429) {
            count();
        }
        if matches!(parts.status.as_u16(), 429 | 503) {
            self.scheduler.refuse();
        }
        let body = limited_body(body, answer_bytes_max(&parts));
        let body = http_body_util::BodyExt::map_frame(body, move |frame| {
            let bytes = frame.data_ref().map_or(0, bytes::Bytes::len);
            counters.count_read(bytes);
            if let Some(open) = &mut open {
                open.count_read(bytes as u64);
            }
            frame
        });
        let body = http_body_util::BodyExt::map_err(body, move |error| {
            count();
            error
        });
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// Bytes of an answer that has no length, such as a listing, at most: a page of one has less. It is held in memory.
const UNSIZED_BYTES_MAX: usize = 32 << 20;

/// Bytes of an answer that says what went wrong, at most.
const FAILURE_BYTES_MAX: usize = 1 << 20;

/// Bytes of an answer's body at most. A body of a known length is an object, or a part of one that was asked for.
fn answer_bytes_max(parts: &http::response::Parts) -> usize {
    if parts.status.is_client_error() || parts.status.is_server_error() {
        FAILURE_BYTES_MAX
    } else if parts.headers.contains_key(http::header::CONTENT_LENGTH) {
        usize::MAX
    } else {
        UNSIZED_BYTES_MAX
    }
}

/// A body that fails once it is longer than so many bytes.
fn limited_body(body: HttpResponseBody, bytes_max: usize) -> HttpResponseBody {
    let limited = http_body_util::Limited::new(body, bytes_max);
    let body = http_body_util::BodyExt::map_err(limited, move |error| {
        match error.downcast::<HttpError>() {
            Ok(error) => *error,
            Err(_) => {
                let message = format!("the answer has no end after {} MiB", bytes_max >> 20);
                HttpError::new(HttpErrorKind::Decode, std::io::Error::other(message))
            }
        }
    });
    HttpResponseBody::new(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, has_length: bool) -> http::response::Parts {
        let mut answer = http::Response::builder().status(status);
        if has_length {
            answer = answer.header("content-length", "5");
        }
        answer.body(()).unwrap().into_parts().0
    }

    #[test]
    fn answers_without_end_fail() {
        assert_eq!(answer_bytes_max(&answer(206, true)), usize::MAX);
        assert_eq!(answer_bytes_max(&answer(200, false)), UNSIZED_BYTES_MAX);
        assert_eq!(answer_bytes_max(&answer(403, true)), FAILURE_BYTES_MAX);
        let body = || HttpResponseBody::from(bytes::Bytes::from_static(b"12345"));
        let read = |bytes_max| {
            let body = limited_body(body(), bytes_max);
            let read = http_body_util::BodyExt::collect(body);
            futures::FutureExt::now_or_never(read).unwrap()
        };
        assert_eq!(read(5).unwrap().to_bytes(), "12345");
        let error = read(4).unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Decode);
    }

    fn refused() -> object_store::Error {
        let source = HttpError::new(
            object_store::client::HttpErrorKind::Connect,
            std::io::Error::other("refused"),
        );
        object_store::Error::Generic {
            store: "S3",
            source: Box::new(source),
        }
    }

    fn count_tries(
        retry: RetryBudget,
        error: impl Fn() -> object_store::Error,
    ) -> (u32, FailedRequest) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let tries = std::cell::Cell::new(0);
        let failed = runtime.block_on(retry.retry(|| {
            tries.set(tries.get() + 1);
            let error = error();
            async { Err::<(), _>(error) }
        }));
        (tries.get(), failed.unwrap_err())
    }

    #[test]
    fn refused_connections_are_retried_until_the_time_budget() {
        let (tries, failed) = count_tries(
            RetryBudget {
                attempts_max: ATTEMPTS_MAX,
                budget: Duration::from_millis(60),
            },
            refused,
        );
        assert!(tries > 5, "{tries}");
        assert!(
            failed.waited >= Duration::from_millis(40),
            "{:?}",
            failed.waited
        );
    }

    #[test]
    fn permanent_errors_are_not_retried() {
        let retry = RetryBudget {
            attempts_max: ATTEMPTS_MAX,
            budget: Duration::from_secs(180),
        };
        let denied = || object_store::Error::PermissionDenied {
            path: "a".to_owned(),
            source: "no".into(),
        };
        assert_eq!(count_tries(retry, denied).0, 1);
    }
}
