//! A server that speaks S3 over HTTP, and what goes wrong between it and those who ask it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use md5::{Digest, Md5};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;

use crate::support::{ProgramOutput, TestDirectory};
use crate::watched::WatchedCommand;

pub const SECRET: &str = "not-for-anybody-to-see";

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
/// The answer of a store.
pub type StoreResponse = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// A server over a folder, in which each folder is a bucket.
pub struct S3Server {
    /// Serves as long as it lives.
    _runtime: tokio::runtime::Runtime,
    pub endpoint: String,
    shared: Arc<S3ServerState>,
}

struct S3ServerState {
    root: PathBuf,
    service: S3Service,
    rule: Mutex<Option<FailureRule>>,
    asked: Mutex<BTreeMap<(String, String), u64>>,
    fired: AtomicU64,
    /// Slow bodies whose reader did not wait for the end.
    given_up: Arc<AtomicU64>,
    /// Conditions are looked at and changes made by one writer at a time.
    writers: tokio::sync::Mutex<()>,
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

/// The MD5 sum of a content, by which stores name it.
pub fn md5_text(content: &[u8]) -> String {
    Md5::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Answers the requests of all connections, which are counted from 0.
pub async fn serve<A>(listener: TcpListener, answer: impl Fn(u64, Request<Incoming>) -> A + Clone + Send + 'static)
where
    A: Future<Output = std::io::Result<StoreResponse>> + Send + 'static,
{
    let mut connection = 0;
    while let Ok((socket, _)) = listener.accept().await {
        let (answer, number) = (answer.clone(), connection);
        connection += 1;
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(number, request));
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

impl S3Server {
    pub fn start(root: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
        service.set_auth(SimpleAuth::from_single("key", SECRET));
        let shared = Arc::new(S3ServerState {
            root: root.to_owned(),
            service: service.build(),
            rule: Mutex::default(),
            asked: Mutex::default(),
            fired: AtomicU64::new(0),
            given_up: Arc::default(),
            writers: tokio::sync::Mutex::default(),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let serving = shared.clone();
        runtime.spawn(serve(listener, move |connection, request| answer(serving.clone(), connection, request)));
        S3Server { _runtime: runtime, endpoint, shared }
    }

    /// A workshop with a bucket `lake` and demand in it, and a server over it.
    pub fn over_demand() -> (TestDirectory, S3Server) {
        let shop = TestDirectory::new();
        std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
        shop.demand("buckets/lake/demand", 500);
        let server = S3Server::start(&shop.path("buckets"));
        (shop, server)
    }

    /// From now on, things go wrong as a rule says.
    pub fn inject_failures(&self, rule: impl FnMut(&ObservedRequest) -> Option<RequestFailure> + Send + 'static) {
        self.shared.fired.store(0, Ordering::SeqCst);
        self.shared.asked.lock().unwrap().clear();
        *self.shared.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// Nothing goes wrong any more. Tells how many times something did.
    pub fn stop_failures(&self) -> u64 {
        *self.shared.rule.lock().unwrap() = None;
        self.failure_count()
    }

    pub fn failure_count(&self) -> u64 {
        self.shared.fired.load(Ordering::SeqCst)
    }

    /// Number of slow bodies whose reader did not wait for the end.
    pub fn abandoned_bodies(&self) -> u64 {
        self.shared.given_up.load(Ordering::SeqCst)
    }

    /// The program, with this server as its storage and little patience.
    pub fn command(&self, shop: &TestDirectory, args: &[&str]) -> Command {
        let mut command = shop.command(args);
        command
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_MAX_ATTEMPTS", "40")
            .env("FOREBAY_RETRY_SECONDS", "30");
        command
    }

    pub fn forebay(&self, shop: &TestDirectory, args: &[&str]) -> ProgramOutput {
        self.command(shop, args).watched().into()
    }
}

impl S3ServerState {
    fn next_failure(&self, connection: u64, request: &Request<Incoming>) -> Option<RequestFailure> {
        let (method, target) = (request.method().to_string(), request.uri().to_string());
        let nth = {
            let mut asked = self.asked.lock().unwrap();
            let nth = asked.entry((method.clone(), target.clone())).or_default();
            std::mem::replace(nth, *nth + 1)
        };
        let asked = ObservedRequest { method, target, nth, connection };
        // Counted under the lock, before the test can remove the rule: a rule may end a process that the test awaits.
        let mut rule = self.rule.lock().unwrap();
        let trouble = rule.as_mut().and_then(|rule| rule(&asked));
        self.fired.fetch_add(u64::from(trouble.is_some()), Ordering::SeqCst);
        trouble
    }

    /// What the server answers. It leaves the conditions of reads to others.
    async fn serve_request(&self, request: Request<Incoming>) -> StoreResponse {
        let wanted = request.headers().get(header::IF_MATCH).cloned().filter(|_| request.method() == "GET");
        let writer = match request.method().as_str() {
            "GET" | "HEAD" => None,
            _ => Some(self.writers.lock().await),
        };
        let (bucket, is_listing) = (
            request.uri().path().trim_matches('/').to_owned(),
            request.method() == "GET" && request.uri().query().is_some_and(|query| query.contains("list-type=2")),
        );
        let answer = Service::call(&self.service, request).await.unwrap();
        drop(writer);
        if is_listing {
            let (mut parts, body) = answer.into_parts();
            let text = String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap();
            parts.headers.remove(header::CONTENT_LENGTH);
            let body = Full::new(Bytes::from(self.with_etags(&bucket, &text))).map_err(|never| match never {});
            return Response::from_parts(parts, body.boxed_unsync());
        }
        if answer.status().is_success() && wanted.is_some() && wanted.as_ref() != answer.headers().get(header::ETAG) {
            return empty_response(StatusCode::PRECONDITION_FAILED);
        }
        answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
    }
}

impl S3ServerState {
    /// A listing with the etags of files that were laid there; those of uploads are kept elsewhere.
    fn with_etags(&self, bucket: &str, listing: &str) -> String {
        let mut with = String::with_capacity(listing.len() * 2);
        let mut objects = listing.split("<Contents>");
        with.extend(objects.next());
        for object in objects {
            with.push_str("<Contents>");
            let key = object.split("<Key>").nth(1).and_then(|rest| rest.split("</Key>").next()).unwrap_or_default();
            let is_source = ["demand/", "in/"].iter().any(|folder| key.starts_with(folder));
            if let Some(bytes) = is_source.then(|| std::fs::read(self.root.join(bucket).join(key)).ok()).flatten() {
                with.push_str(&format!("<ETag>&quot;{}&quot;</ETag>", md5_text(&bytes)));
            }
            with.push_str(object);
        }
        with
    }
}

fn empty_response(status: StatusCode) -> StoreResponse {
    let mut answer = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

fn connection_cut() -> std::io::Error {
    std::io::Error::other("the connection is cut")
}

async fn answer(
    shared: Arc<S3ServerState>,
    connection: u64,
    request: Request<Incoming>,
) -> std::io::Result<StoreResponse> {
    match shared.next_failure(connection, &request) {
        None => Ok(shared.serve_request(request).await),
        Some(RequestFailure::Refused(status)) => Ok(empty_response(StatusCode::from_u16(status).unwrap())),
        Some(RequestFailure::Says(status, code)) => {
            let text = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
            let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
            Ok(Response::builder().status(status).body(body).unwrap())
        }
        Some(RequestFailure::After(first)) => {
            tokio::task::spawn_blocking(first).await.unwrap();
            Ok(shared.serve_request(request).await)
        }
        Some(RequestFailure::Cut { landed }) => {
            if landed {
                shared.serve_request(request).await;
            }
            Err(connection_cut())
        }
        Some(RequestFailure::Silent { landed }) => {
            if landed {
                shared.serve_request(request).await;
            }
            std::future::pending().await
        }
        Some(RequestFailure::CutBody) => {
            let (parts, body) = shared.serve_request(request).await.into_parts();
            let whole = body.collect().await?.to_bytes();
            let half = vec![Ok(Frame::data(whole.slice(..whole.len() / 2))), Err(connection_cut())];
            Ok(Response::from_parts(parts, BodyExt::boxed_unsync(StreamBody::new(futures::stream::iter(half)))))
        }
        Some(RequestFailure::Slow) => {
            let (parts, body) = shared.serve_request(request).await.into_parts();
            let whole = body.collect().await?.to_bytes();
            let dripping = SlowBody { rest: whole, given_up: shared.given_up.clone() };
            let drops = futures::stream::unfold(dripping, |mut body| async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let drop = body.rest.split_to(body.rest.len().min(100));
                (!drop.is_empty()).then(|| (Ok(Frame::data(drop)), body))
            });
            Ok(Response::from_parts(parts, BodyExt::boxed_unsync(StreamBody::new(drops))))
        }
    }
}

/// What is left of a slow body.
struct SlowBody {
    rest: Bytes,
    given_up: Arc<AtomicU64>,
}

impl Drop for SlowBody {
    fn drop(&mut self) {
        self.given_up.fetch_add(u64::from(!self.rest.is_empty()), Ordering::SeqCst);
    }
}
