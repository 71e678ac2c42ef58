//! What goes wrong between a store and those who ask it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};

use crate::support::s3_server::StoreResponse;

/// A request, as a failure rule sees it.
#[derive(Debug, Clone)]
pub struct ObservedRequest {
    pub method: String,
    /// Bucket and key, and what follows.
    pub target: String,
    /// How often the same was asked before.
    pub nth: u64,
    /// Connections are counted from 0.
    pub connection: u64,
}

/// What goes wrong with a request.
pub enum RequestFailure {
    /// It is not done, and answered so.
    Refused(u16),
    /// It is not done, and answered with a status and an error code of S3.
    Says(u16, &'static str),
    /// The connection ends without an answer.
    Cut { landed: bool },
    /// The answer never comes.
    Silent { landed: bool },
    /// The connection ends in the middle of the answer's body.
    CutBody,
    /// The body comes slowly.
    Slow,
    /// Something happens first.
    After(Box<dyn FnOnce() + Send>),
}

type FailureRule = Box<dyn FnMut(&ObservedRequest) -> Option<RequestFailure> + Send>;

/// Lets requests go wrong as a rule says.
#[derive(Default)]
pub struct FailureInjector {
    rule: Mutex<Option<FailureRule>>,
    asked: Mutex<BTreeMap<(String, String), u64>>,
    fired: AtomicU64,
    /// Slow bodies whose reader did not wait for the end.
    given_up: Arc<AtomicU64>,
}

/// A number from 0 to 1 for each request, whatever the order in which requests come.
pub fn request_chance(seed: u64, asked: &ObservedRequest) -> f64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ asked.nth;
    // The keys of attempts differ from run to run, those of all that is kept do not.
    for byte in asked.method.bytes().chain(asked.target.bytes()) {
        x = (x ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

impl FailureInjector {
    /// From now on, things go wrong as a rule says.
    pub fn inject_failures(
        &self,
        rule: impl FnMut(&ObservedRequest) -> Option<RequestFailure> + Send + 'static,
    ) {
        self.fired.store(0, Ordering::SeqCst);
        self.asked.lock().unwrap().clear();
        *self.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// Nothing goes wrong any more. Tells how many times something did.
    pub fn stop_failures(&self) -> u64 {
        *self.rule.lock().unwrap() = None;
        self.failure_count()
    }

    pub fn failure_count(&self) -> u64 {
        self.fired.load(Ordering::SeqCst)
    }

    /// Number of slow bodies whose reader did not wait for the end.
    pub fn abandoned_bodies(&self) -> u64 {
        self.given_up.load(Ordering::SeqCst)
    }

    fn next_failure(&self, connection: u64, request: &Request<Incoming>) -> Option<RequestFailure> {
        let method = request.method().to_string();
        let target = request.uri().to_string();
        let nth = {
            let mut asked = self.asked.lock().unwrap();
            let nth = asked.entry((method.clone(), target.clone())).or_default();
            std::mem::replace(nth, *nth + 1)
        };
        let asked = ObservedRequest {
            method,
            target,
            nth,
            connection,
        };
        // Counted under the lock, before the test can remove the rule: a rule may end a process that the test awaits.
        let mut rule = self.rule.lock().unwrap();
        let trouble = rule.as_mut().and_then(|rule| rule(&asked));
        self.fired
            .fetch_add(u64::from(trouble.is_some()), Ordering::SeqCst);
        trouble
    }

    /// The answer of a server, or what goes wrong instead.
    pub async fn answer<A: Future<Output = StoreResponse>>(
        &self,
        connection: u64,
        request: Request<Incoming>,
        serve: impl FnOnce(Request<Incoming>) -> A,
    ) -> std::io::Result<StoreResponse> {
        match self.next_failure(connection, &request) {
            None => Ok(serve(request).await),
            Some(RequestFailure::Refused(status)) => {
                Ok(empty_response(StatusCode::from_u16(status).unwrap()))
            }
            Some(RequestFailure::Says(status, code)) => {
                let text = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
                let body = Full::new(Bytes::from(text))
                    .map_err(|never| match never {})
                    .boxed_unsync();
                Ok(Response::builder().status(status).body(body).unwrap())
            }
            Some(RequestFailure::After(first)) => {
                tokio::task::spawn_blocking(first).await.unwrap();
                Ok(serve(request).await)
            }
            Some(RequestFailure::Cut { landed }) => {
                if landed {
                    serve(request).await;
                }
                Err(connection_cut())
            }
            Some(RequestFailure::Silent { landed }) => {
                if landed {
                    serve(request).await;
                }
                std::future::pending().await
            }
            Some(RequestFailure::CutBody) => {
                let (parts, body) = serve(request).await.into_parts();
                let whole = body.collect().await?.to_bytes();
                let half = vec![
                    Ok(Frame::data(whole.slice(..whole.len() / 2))),
                    Err(connection_cut()),
                ];
                Ok(Response::from_parts(
                    parts,
                    BodyExt::boxed_unsync(StreamBody::new(futures::stream::iter(half))),
                ))
            }
            Some(RequestFailure::Slow) => {
                let (parts, body) = serve(request).await.into_parts();
                let whole = body.collect().await?.to_bytes();
                let dripping = SlowBody {
                    rest: whole,
                    given_up: self.given_up.clone(),
                };
                let drops = futures::stream::unfold(dripping, |mut body| async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    let drop = body.rest.split_to(body.rest.len().min(100));
                    (!drop.is_empty()).then(|| (Ok(Frame::data(drop)), body))
                });
                Ok(Response::from_parts(
                    parts,
                    BodyExt::boxed_unsync(StreamBody::new(drops)),
                ))
            }
        }
    }
}

pub fn empty_response(status: StatusCode) -> StoreResponse {
    let mut answer = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

fn connection_cut() -> std::io::Error {
    std::io::Error::other("the connection is cut")
}

/// What is left of a slow body.
struct SlowBody {
    rest: Bytes,
    given_up: Arc<AtomicU64>,
}

impl Drop for SlowBody {
    fn drop(&mut self) {
        self.given_up
            .fetch_add(u64::from(!self.rest.is_empty()), Ordering::SeqCst);
    }
}
