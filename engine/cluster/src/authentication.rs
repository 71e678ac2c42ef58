//! Proof that both sides of a connection know the cluster's token, without showing it.
//!
//! ```text
//! coordinator -> worker  nonce C
//! worker -> coordinator  nonce W, HMAC(token, "worker", C, W, channel, version)
//! coordinator -> worker  with every request: C, W, count, HMAC(session, path, count)
//!                        where session = HMAC(token, "session", C, W, channel, version)
//! ```
//!
//! The worker proves itself first: a process that took a worker's address learns nothing that serves elsewhere.
//! `channel` is what both ends see of the connection: with TLS the coordinator's certificate, else the worker's
//! address. So a process in between that passes the messages on is refused. The worker keeps nothing for a
//! coordinator that has not proved itself: whether a nonce is its own shows in the nonce.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use forebay_model::{Fault, Result, codes};
use futures::future::{BoxFuture, Either, Ready, ready};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::transport::server::TlsConnectInfo;
use tower::{Layer, Service};

use crate::connections::{LimitedBody, WorkerConnectInfo, count_until_end};
use crate::protocol::protocol_version;
use crate::security::{ClusterSecurity, fingerprint};
use crate::token::constant_time_eq;

/// Path of the request for a worker's proof.
const PROVE: &str = "/forebay.Worker/Prove";

/// Path that any client may request, for the version of a worker: peers of other versions cannot
/// prove anything.
pub const OPEN: &str = "GetWorkerInfo";

const COORDINATOR_NONCE: HeaderName = HeaderName::from_static("forebay-nonce");
const WORKER_NONCE: HeaderName = HeaderName::from_static("forebay-session");
const COUNT: HeaderName = HeaderName::from_static("forebay-count");
const PROOF: HeaderName = HeaderName::from_static("forebay-proof");

/// Bytes of a plan, and of what is sent beside it, at most.
const PLAN_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of sessions whose requests a worker remembers.
const SESSIONS_MAX: usize = 1024;

/// Maximum number of requests of a session that may overtake an earlier one.
const BEFORE_MAX: usize = 4096;

/// Random bytes of a nonce; of a worker's nonce, as many again show whose it is.
const NONCE_BYTES: usize = 32;
const WORKER_NONCE_BYTES: usize = 2 * NONCE_BYTES;

type Nonce = [u8; NONCE_BYTES];
type WorkerNonce = [u8; WORKER_NONCE_BYTES];
type Mac = [u8; 32];

fn nonce() -> Result<Nonce> {
    let mut nonce = [0; NONCE_BYTES];
    let failed = |_| Fault::new(codes::STORAGE, "the system gives no random bytes");
    SystemRandom::new().fill(&mut nonce).map_err(failed)?;
    Ok(nonce)
}

/// A keyed digest of parts: their lengths are part of it, so no two lists of parts are the same text.
fn hmac_parts(key: &hmac::Key, parts: &[&[u8]]) -> Mac {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut mac = Mac::default();
    mac.copy_from_slice(context.sign().as_ref());
    mac
}

fn hmac_key(secret: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

fn encode_header(bytes: &[u8]) -> HeaderValue {
    // Base64 is visible ASCII.
    HeaderValue::from_str(&BASE64_STANDARD.encode(bytes)).unwrap_or(HeaderValue::from_static(""))
}

/// Decodes a header of exactly `N` bytes.
fn decode_header<const N: usize>(headers: &HeaderMap, name: &HeaderName) -> Option<[u8; N]> {
    let text = headers.get(name)?.as_bytes();
    // Checked before anything is decoded: a header may be long.
    if text.len() > 4 * N.div_ceil(3) {
        return None;
    }
    BASE64_STANDARD.decode(text).ok()?.try_into().ok()
}

/// Identity of a connection that both ends see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelBinding(Vec<u8>);

impl ChannelBinding {
    fn tls(certificate: &[u8]) -> ChannelBinding {
        ChannelBinding([b"tls ", certificate].concat())
    }

    fn tcp(worker: SocketAddr) -> ChannelBinding {
        ChannelBinding(format!("tcp {worker}").into_bytes())
    }

    /// Binding as seen by a coordinator that has reached this address.
    pub fn of_coordinator(
        security: &ClusterSecurity,
        worker: SocketAddr,
    ) -> Result<ChannelBinding> {
        let certificate = security.own_certificate()?;
        Ok(certificate.map_or_else(
            || ChannelBinding::tcp(worker),
            |certificate| ChannelBinding::tls(&certificate),
        ))
    }

    /// Binding as seen by the worker that received a request.
    fn of_request(request: &Request<Body>, has_tls: bool) -> Option<ChannelBinding> {
        if has_tls {
            let info = request
                .extensions()
                .get::<TlsConnectInfo<WorkerConnectInfo>>()?;
            return Some(ChannelBinding::tls(&fingerprint(
                info.peer_certs()?.first()?,
            )));
        }
        let info = request.extensions().get::<WorkerConnectInfo>()?;
        info.local.map(ChannelBinding::tcp)
    }
}

/// The two nonces of a connection and its binding.
struct Handshake {
    coordinator: Nonce,
    worker: WorkerNonce,
    channel: ChannelBinding,
}

impl Handshake {
    fn mac(&self, token: &hmac::Key, purpose: &str) -> Mac {
        let version = protocol_version();
        let parts = [
            purpose.as_bytes(),
            &self.coordinator,
            &self.worker,
            &self.channel.0,
            version.as_bytes(),
        ];
        hmac_parts(token, &parts)
    }

    fn session(&self, token: &hmac::Key) -> hmac::Key {
        hmac_key(&self.mac(token, "session"))
    }
}

fn request_mac(session: &hmac::Key, path: &str, count: u64) -> Mac {
    hmac_parts(
        session,
        &[b"request", path.as_bytes(), &count.to_be_bytes()],
    )
}

/// A coordinator's end of a connection whose worker has proved itself: every request carries a proof.
#[derive(Clone)]
pub struct AuthenticatedChannel<C = Channel> {
    channel: C,
    session: Arc<ProofSession>,
}

struct ProofSession {
    key: hmac::Key,
    coordinator: HeaderValue,
    worker: HeaderValue,
    count: AtomicU64,
}

/// Reason why a worker's proof failed.
pub enum ProofFailure<E = tonic::transport::Error> {
    Fault(Fault),
    Transport(E),
    /// The peer answers, but does not know the token.
    Stranger,
}

impl<C: Service<Request<Body>, Response = Response<Body>>> AuthenticatedChannel<C> {
    /// Requires the worker at the other end to prove that it knows the token.
    pub async fn new(
        mut channel: C,
        secret: &[u8],
        binding: ChannelBinding,
    ) -> Result<AuthenticatedChannel<C>, ProofFailure<C::Error>> {
        let token = hmac_key(secret);
        let coordinator = nonce().map_err(ProofFailure::Fault)?;
        let request = Request::post(PROVE)
            .header(COORDINATOR_NONCE, encode_header(&coordinator))
            .body(Body::empty());
        let request = request
            .map_err(|error| ProofFailure::Fault(Fault::internal("a request").cause(error)))?;
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .map_err(ProofFailure::Transport)?;
        let answer = channel
            .call(request)
            .await
            .map_err(ProofFailure::Transport)?;
        let worker =
            decode_header(answer.headers(), &WORKER_NONCE).ok_or(ProofFailure::Stranger)?;
        let proof: Mac = decode_header(answer.headers(), &PROOF).ok_or(ProofFailure::Stranger)?;
        let handshake = Handshake {
            coordinator,
            worker,
            channel: binding,
        };
        if !constant_time_eq(&handshake.mac(&token, "worker"), &proof) {
            return Err(ProofFailure::Stranger);
        }
        let session = ProofSession {
            key: handshake.session(&token),
            coordinator: encode_header(&coordinator),
            worker: encode_header(&worker),
            count: AtomicU64::new(0),
        };
        Ok(AuthenticatedChannel {
            channel,
            session: Arc::new(session),
        })
    }
}

impl<C: Service<Request<Body>, Response = Response<Body>>> Service<Request<Body>>
    for AuthenticatedChannel<C>
{
    type Response = Response<Body>;
    type Error = C::Error;
    type Future = C::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let session = &self.session;
        let count = session.count.fetch_add(1, Ordering::Relaxed);
        let proof = encode_header(&request_mac(&session.key, request.uri().path(), count));
        let headers = request.headers_mut();
        headers.insert(COORDINATOR_NONCE, session.coordinator.clone());
        headers.insert(WORKER_NONCE, session.worker.clone());
        headers.insert(COUNT, HeaderValue::from(count));
        headers.insert(PROOF, proof);
        self.channel.call(request)
    }
}

/// A worker's end: requests without a proof never reach the service, and their bodies are not read.
#[derive(Clone)]
pub struct AuthLayer(Arc<AuthContext>);

struct AuthContext {
    token: hmac::Key,
    /// Marks the nonces of this process.
    own: hmac::Key,
    has_tls: bool,
    sessions: Mutex<SessionTable>,
}

/// Coordinators that have proved themselves.
#[derive(Default)]
struct SessionTable {
    requests: BTreeMap<WorkerNonce, ReplayWindow>,
    next_turn: u64,
}

/// Window of the received requests of a session, which refuses replays.
#[derive(Default)]
struct ReplayWindow {
    /// All requests before this one have arrived, or are no longer expected.
    next: u64,
    /// Received requests that overtook `next`.
    later: BTreeSet<u64>,
    /// Grows with each request of all sessions: the session with the smallest is forgotten first.
    turn: u64,
}

impl ReplayWindow {
    /// True if a request is new.
    fn accept(&mut self, count: u64) -> bool {
        if count < self.next || !self.later.insert(count) {
            return false;
        }
        if self.later.len() > BEFORE_MAX
            && let Some(first) = self.later.first()
        {
            self.next = *first;
        }
        while self.later.remove(&self.next) {
            self.next += 1;
        }
        true
    }
}

impl AuthLayer {
    pub fn new(security: &ClusterSecurity) -> Result<AuthLayer> {
        Ok(AuthLayer(Arc::new(AuthContext {
            token: hmac_key(security.secret()),
            own: hmac_key(&nonce()?),
            has_tls: security.has_tls(),
            sessions: Mutex::default(),
        })))
    }

    /// Proves to a coordinator that this worker knows the token.
    fn prove(&self, request: &Request<Body>) -> Result<Response<Body>, Status> {
        let strange = || Status::invalid_argument("this is no request for a proof");
        let coordinator =
            decode_header(request.headers(), &COORDINATOR_NONCE).ok_or_else(strange)?;
        let channel = ChannelBinding::of_request(request, self.0.has_tls).ok_or_else(strange)?;
        let random = nonce().map_err(|fault| Status::unavailable(fault.to_string()))?;
        let worker = self.worker_nonce(random, &coordinator);
        let handshake = Handshake {
            coordinator,
            worker,
            channel,
        };
        let mut answer = Response::new(Body::empty());
        answer
            .headers_mut()
            .insert(WORKER_NONCE, encode_header(&worker));
        answer.headers_mut().insert(
            PROOF,
            encode_header(&handshake.mac(&self.0.token, "worker")),
        );
        Ok(answer)
    }

    fn worker_nonce(&self, random: Nonce, coordinator: &Nonce) -> WorkerNonce {
        let mut nonce = [0; WORKER_NONCE_BYTES];
        nonce[..NONCE_BYTES].copy_from_slice(&random);
        nonce[NONCE_BYTES..].copy_from_slice(&hmac_parts(&self.0.own, &[&random, coordinator]));
        nonce
    }

    /// True if a request comes from a coordinator that knows the token.
    fn admits(&self, request: &Request<Body>) -> bool {
        let headers = request.headers();
        let Some(coordinator) = decode_header::<NONCE_BYTES>(headers, &COORDINATOR_NONCE) else {
            return false;
        };
        let Some(worker) = decode_header::<WORKER_NONCE_BYTES>(headers, &WORKER_NONCE) else {
            return false;
        };
        let count_text = headers.get(COUNT).and_then(|count| count.to_str().ok());
        let Some(count) = count_text.and_then(|text| text.parse().ok()) else {
            return false;
        };
        let Some(proof) = decode_header::<32>(headers, &PROOF) else {
            return false;
        };
        let Some(channel) = ChannelBinding::of_request(request, self.0.has_tls) else {
            return false;
        };
        let Some(random) = worker.first_chunk() else {
            return false;
        };
        if !constant_time_eq(&self.worker_nonce(*random, &coordinator), &worker) {
            return false;
        }
        let session = Handshake {
            coordinator,
            worker,
            channel,
        }
        .session(&self.0.token);
        constant_time_eq(&request_mac(&session, request.uri().path(), count), &proof)
            && self.is_first_use(worker, count)
    }

    fn is_first_use(&self, worker: WorkerNonce, count: u64) -> bool {
        let mut sessions = self
            .0
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let SessionTable {
            requests,
            next_turn,
        } = &mut *sessions;
        *next_turn += 1;
        let session = requests.entry(worker).or_default();
        session.turn = *next_turn;
        let is_new = session.accept(count);
        if requests.len() > SESSIONS_MAX {
            let oldest = requests
                .iter()
                .min_by_key(|(_, session)| session.turn)
                .map(|(worker, _)| *worker);
            oldest.map(|oldest| requests.remove(&oldest));
        }
        is_new
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = AuthService<S>;

    fn layer(&self, inner: S) -> AuthService<S> {
        AuthService {
            inner,
            guard: self.clone(),
        }
    }
}

/// A service behind a guard.
#[derive(Clone)]
pub struct AuthService<S> {
    inner: S,
    guard: AuthLayer,
}

impl<S> Service<Request<Body>> for AuthService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<
        Ready<Result<Response<Body>, S::Error>>,
        BoxFuture<'static, Result<Response<Body>, S::Error>>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        if path == PROVE {
            let answer = self.guard.prove(&request);
            return Either::Left(ready(Ok(answer.unwrap_or_else(Status::into_http))));
        }
        let method = path.rsplit('/').next().unwrap_or_default();
        let is_open = method == OPEN;
        let bytes_max = bytes_max(method);
        let info = request.extensions().get::<WorkerConnectInfo>();
        let connection = info.and_then(|info| info.connection.clone());
        if self.guard.admits(&request) {
            if let Some(connection) = &connection {
                connection.prove();
            }
        } else if !is_open {
            let answer = Status::unauthenticated(
                "this request carries no proof that its sender knows the cluster's token",
            );
            return Either::Left(ready(Ok(answer.into_http())));
        }
        let active = connection.map(|connection| connection.begin_request());
        let request = request.map(|body| LimitedBody::limit(body, bytes_max));
        let answer = self.inner.call(request);
        Either::Right(Box::pin(async move {
            let answer = answer.await?;
            Ok(count_until_end(answer, active))
        }))
    }
}

/// Bytes of the messages of a request at most, by its method: plans are long, and all others are short.
fn bytes_max(method: &str) -> u64 {
    match method {
        OPEN => 4 << 10,
        "ExecuteTask" => 1 << 20,
        _ => PLAN_BYTES_MAX,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn guard(token: &str) -> AuthLayer {
        AuthLayer(Arc::new(AuthContext {
            token: hmac_key(token.as_bytes()),
            own: hmac_key(&nonce().unwrap()),
            has_tls: false,
            sessions: Mutex::default(),
        }))
    }

    fn here() -> SocketAddr {
        "127.0.0.1:7400".parse().unwrap()
    }

    fn request(path: &str, at: SocketAddr, headers: &[(HeaderName, HeaderValue)]) -> Request<Body> {
        let mut request = Request::post(path).body(Body::empty()).unwrap();
        headers
            .iter()
            .for_each(|(name, value)| drop(request.headers_mut().insert(name, value.clone())));
        request.extensions_mut().insert(WorkerConnectInfo {
            local: Some(at),
            connection: None,
        });
        request
    }

    /// The nonces of a connection to a worker, and what the worker proved.
    fn handshake(worker: &AuthLayer, at: SocketAddr) -> (Handshake, Mac) {
        let coordinator = nonce().unwrap();
        let answer = worker
            .prove(&request(
                PROVE,
                at,
                &[(COORDINATOR_NONCE, encode_header(&coordinator))],
            ))
            .unwrap();
        let nonce = decode_header(answer.headers(), &WORKER_NONCE).unwrap();
        let channel = ChannelBinding::tcp(here());
        (
            Handshake {
                coordinator,
                worker: nonce,
                channel,
            },
            decode_header(answer.headers(), &PROOF).unwrap(),
        )
    }

    fn signed(
        handshake: &Handshake,
        token: &str,
        path: &str,
        count: u64,
    ) -> [(HeaderName, HeaderValue); 4] {
        let session = handshake.session(&hmac_key(token.as_bytes()));
        [
            (COORDINATOR_NONCE, encode_header(&handshake.coordinator)),
            (WORKER_NONCE, encode_header(&handshake.worker)),
            (COUNT, HeaderValue::from(count)),
            (PROOF, encode_header(&request_mac(&session, path, count))),
        ]
    }

    /// Response of a service in this process, which sees the address at which it was reached.
    async fn asked<C>(channel: &mut C, path: &str) -> Response<Body>
    where
        C: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    {
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .unwrap();
        channel.call(request(path, here(), &[])).await.unwrap()
    }

    /// A worker as its coordinators reach it: at `at`.
    fn reached(
        guard: AuthLayer,
        at: SocketAddr,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible> {
        let served = tower::service_fn(|_: Request<Body>| async {
            let mut answer = Response::new(Body::empty());
            answer
                .headers_mut()
                .insert("served", HeaderValue::from_static("yes"));
            Ok::<_, Infallible>(answer)
        });
        let mut served = guard.layer(served);
        tower::service_fn(move |mut request: Request<Body>| {
            request.extensions_mut().insert(WorkerConnectInfo {
                local: Some(at),
                connection: None,
            });
            served.call(request)
        })
    }

    fn is_served(answer: &Response<Body>) -> bool {
        answer.headers().contains_key("served")
    }

    /// True if a method takes a message of some bytes.
    async fn takes(method: &str, bytes: usize) -> bool {
        let message = Body::new("x".repeat(bytes));
        let mut message = LimitedBody::limit(message, bytes_max(method));
        let frame = std::future::poll_fn(|context| {
            http_body::Body::poll_frame(std::pin::Pin::new(&mut message), context)
        });
        frame.await.is_some_and(|frame| frame.is_ok())
    }

    #[test]
    fn messages_are_limited_by_their_method() {
        futures::executor::block_on(async {
            for (method, bytes) in [
                (OPEN, 4 << 10),
                ("ExecuteTask", 1 << 20),
                ("CoordinatorChannel", 64 << 20),
                ("Unknown", 64 << 20),
            ] {
                assert!(takes(method, bytes).await, "{method}");
                assert!(!takes(method, bytes + 1).await, "{method}");
            }
        });
    }

    #[test]
    fn every_request_but_that_for_the_version_carries_a_proof() {
        futures::executor::block_on(async {
            let mut bare = reached(guard("river"), here());
            assert!(is_served(
                &asked(&mut bare, "/worker.Service/GetWorkerInfo").await
            ));
            for path in [
                "/worker.Service/ExecuteTask",
                "/worker.Service/CoordinatorChannel",
                "/",
                PROVE,
            ] {
                assert!(!is_served(&asked(&mut bare, path).await), "{path}");
            }
            let proved =
                AuthenticatedChannel::new(bare, b"river", ChannelBinding::tcp(here())).await;
            let mut proved = proved.map_err(|_| "not proved").unwrap();
            for _ in 0..3 {
                assert!(is_served(
                    &asked(&mut proved, "/worker.Service/ExecuteTask").await
                ));
            }
            // The same worker after a restart: proofs to the process before it are no longer valid.
            proved.channel = reached(guard("river"), here());
            assert!(!is_served(
                &asked(&mut proved, "/worker.Service/ExecuteTask").await
            ));
        });
    }

    #[test]
    fn a_coordinator_sends_an_imposter_only_a_nonce() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tell = seen.clone();
        let imposter = tower::service_fn(move |request: Request<Body>| {
            tell.lock().unwrap().push(request.headers().clone());
            let mut answer = Response::new(Body::empty());
            answer
                .headers_mut()
                .insert(WORKER_NONCE, encode_header(&[7; WORKER_NONCE_BYTES]));
            answer.headers_mut().insert(PROOF, encode_header(&[7; 32]));
            async { Ok::<_, Infallible>(answer) }
        });
        let proved = futures::executor::block_on(AuthenticatedChannel::new(
            imposter,
            b"river",
            ChannelBinding::tcp(here()),
        ));
        assert!(matches!(proved, Err(ProofFailure::Stranger)));
        let seen = seen.lock().unwrap();
        let names: Vec<_> = seen.iter().flat_map(|headers| headers.keys()).collect();
        assert_eq!(names, [&COORDINATOR_NONCE]);
        // Nor is a worker believed that is reached by way of another address, or knows another token.
        let elsewhere = "127.0.0.1:9".parse().unwrap();
        for (token, at) in [("lake", here()), ("", here()), ("river", elsewhere)] {
            let worker = reached(guard(token), at);
            let proved = futures::executor::block_on(AuthenticatedChannel::new(
                worker,
                b"river",
                ChannelBinding::tcp(here()),
            ));
            assert!(
                matches!(proved, Err(ProofFailure::Stranger)),
                "{token} {at}"
            );
        }
    }

    #[test]
    fn proofs_need_the_token_and_count_once() {
        let worker = guard("river");
        let (known, proof) = handshake(&worker, here());
        assert_eq!(known.mac(&hmac_key(b"river"), "worker"), proof);
        assert_ne!(known.mac(&hmac_key(b"lake"), "worker"), proof);
        let admits = |token: &str, path: &str, count: u64, shown: &str| {
            worker.admits(&request(shown, here(), &signed(&known, token, path, count)))
        };
        assert!(admits("river", "/x", 0, "/x"));
        assert!(!admits("lake", "/x", 1, "/x"));
        assert!(!admits("", "/x", 1, "/x"));
        // The proof of one request is none of another one, and serves once.
        assert!(!admits("river", "/x", 1, "/y"));
        assert!(!admits("river", "/x", 0, "/x"));
        assert!(admits("river", "/x", 2, "/x") && admits("river", "/x", 1, "/x"));
        assert!(!admits("river", "/x", 2, "/x") && !admits("river", "/x", 1, "/x"));
        // Another process's nonce; another address; no headers; a part of them.
        assert!(!guard("river").admits(&request("/x", here(), &signed(&known, "river", "/x", 7))));
        let elsewhere = "127.0.0.1:7401".parse().unwrap();
        assert!(!worker.admits(&request("/x", elsewhere, &signed(&known, "river", "/x", 7))));
        assert!(!worker.admits(&request("/x", here(), &[])));
        assert!(!worker.admits(&request(
            "/x",
            here(),
            &signed(&known, "river", "/x", 7)[..3]
        )));
    }

    #[test]
    fn relayed_proofs_are_refused() {
        let worker = guard("river");
        // A process at another address requests a proof from the worker, and passes it on.
        let (known, proof) = handshake(&worker, "127.0.0.1:9".parse().unwrap());
        assert_ne!(known.mac(&hmac_key(b"river"), "worker"), proof);
    }

    #[test]
    fn sessions_and_requests_that_are_remembered_are_bounded() {
        let worker = guard("river");
        for number in 0..SESSIONS_MAX as u64 + 50 {
            let mut nonce = [0; WORKER_NONCE_BYTES];
            nonce[..8].copy_from_slice(&number.to_be_bytes());
            assert!(worker.is_first_use(nonce, 0));
        }
        assert_eq!(
            worker.0.sessions.lock().unwrap().requests.len(),
            SESSIONS_MAX
        );
        let mut requests = ReplayWindow::default();
        assert!((1..3 * BEFORE_MAX as u64).all(|count| requests.accept(count)));
        assert!(requests.later.len() <= BEFORE_MAX && !requests.accept(0));
    }
}
