//! A server that speaks the XML protocol of Google Cloud Storage, and gives tokens as a machine's metadata service does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{AUTHORIZATION, ETAG, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::Service;
use md5::{Digest, Md5};
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;

use crate::bucket::{StoreResponse, md5_text, serve};
use crate::request_failures::FailureInjector;
use crate::support::TestDirectory;

/// What tokens begin with.
pub const TOKEN: &str = "token-not-for-anyone-to-see-";

/// Objects of this bucket are given without a token.
pub const PUBLIC_BUCKET: &str = "public";

/// A token is renewed four minutes before its end, so this one after a second.
const TOKEN_SECONDS: u64 = 241;

static GENERATION: HeaderName = HeaderName::from_static("x-goog-generation");
static GENERATION_MATCH: HeaderName = HeaderName::from_static("x-goog-if-generation-match");

/// A server over a folder, in which each folder is a bucket.
pub struct GoogleServer {
    /// Serves as long as it lives.
    _runtime: tokio::runtime::Runtime,
    /// Host and port.
    pub host: String,
    pub failures: Arc<FailureInjector>,
    state: Arc<ServerState>,
}

struct ServerState {
    root: PathBuf,
    /// The protocol of S3, of which Google's is a variant.
    objects: S3Service,
    tokens: AtomicU64,
    /// Conditions are looked at and changes made by one writer at a time.
    writers: tokio::sync::Mutex<()>,
}

impl GoogleServer {
    pub fn start(root: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let state = Arc::new(ServerState {
            root: root.to_owned(),
            objects: S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap()).build(),
            tokens: AtomicU64::new(0),
            writers: tokio::sync::Mutex::default(),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let failures: Arc<FailureInjector> = Arc::default();
        let (serving, failing) = (state.clone(), failures.clone());
        runtime.spawn(serve(listener, move |connection, request| {
            let (failures, state) = (failing.clone(), serving.clone());
            async move { failures.answer(connection, request, |request| state.serve(request)).await }
        }));
        GoogleServer { _runtime: runtime, host, failures, state }
    }

    /// The program, on a machine whose service account may use the buckets.
    pub fn command(&self, shop: &TestDirectory, args: &[&str]) -> Command {
        let mut command = shop.command(args);
        command
            .env("GOOGLE_BASE_URL", format!("http://{}", self.host))
            .env("GCE_METADATA_HOST", &self.host)
            .env("HOME", shop.path("home"))
            .env("AWS_MAX_ATTEMPTS", "40")
            .env("FOREBAY_RETRY_SECONDS", "30");
        command
    }

    /// Number of tokens that were given.
    pub fn tokens_given(&self) -> u64 {
        self.state.tokens.load(Ordering::SeqCst)
    }
}

impl ServerState {
    async fn serve(&self, request: Request<Incoming>) -> StoreResponse {
        let path = request.uri().path().to_owned();
        if path.starts_with("/computeMetadata/") {
            return self.serve_token(&request);
        }
        let is_public =
            path.starts_with(&format!("/{PUBLIC_BUCKET}/")) && ["GET", "HEAD"].contains(&request.method().as_str());
        let is_known = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.starts_with("Bearer "));
        let token = request.headers().get(AUTHORIZATION).filter(|value| is_known(value));
        if !is_public && !token.is_some_and(|value| value.to_str().is_ok_and(|value| value.contains(TOKEN))) {
            return error(StatusCode::UNAUTHORIZED, "AuthenticationRequired");
        }
        let _writer = match request.method().as_str() {
            "GET" | "HEAD" => None,
            _ => Some(self.writers.lock().await),
        };
        let file = self.root.join(percent_encoding::percent_decode_str(&path).decode_utf8_lossy().trim_matches('/'));
        if let Some(wanted) = request.headers().get(&GENERATION_MATCH) {
            let there = std::fs::read(&file).map_or(0, |bytes| generation(&bytes));
            if wanted.to_str().ok() != Some(&there.to_string()) {
                return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
            }
        }
        let is_part = request.uri().query().is_some_and(|query| query.contains("partNumber"));
        let wanted_etag = request.headers().get("if-match").cloned();
        let mut request = request;
        for name in [&AUTHORIZATION, &GENERATION_MATCH] {
            request.headers_mut().remove(name);
        }
        let mut answer = Service::call(&self.objects, request).await.unwrap();
        let content = if answer.status().is_success() && !is_part { std::fs::read(&file).ok() } else { None };
        if let Some(content) = content {
            describe(&content, answer.headers_mut());
            if wanted_etag.is_some_and(|wanted| Some(&wanted) != answer.headers().get(ETAG)) {
                return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
            }
        }
        answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
    }

    fn serve_token(&self, request: &Request<Incoming>) -> StoreResponse {
        if request.headers().get("metadata-flavor").is_none_or(|flavor| flavor != "Google") {
            return error(StatusCode::FORBIDDEN, "MissingMetadataFlavor");
        }
        let number = self.tokens.fetch_add(1, Ordering::SeqCst);
        let token =
            format!(r#"{{"access_token": "{TOKEN}{number}", "expires_in": {TOKEN_SECONDS}, "token_type": "Bearer"}}"#);
        Response::new(whole_body(token))
    }
}

/// Google's name of a content.
fn generation(content: &[u8]) -> u64 {
    let sum = Md5::digest(content);
    sum.iter().take(7).fold(1, |number, byte| number << 8 | u64::from(*byte))
}

/// What every answer tells of an object.
fn describe(content: &[u8], headers: &mut HeaderMap) {
    headers.insert(ETAG, HeaderValue::from_str(&format!("\"{}\"", md5_text(content))).unwrap());
    headers.insert(GENERATION.clone(), HeaderValue::from(generation(content)));
}

fn whole_body(text: String) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

fn error(status: StatusCode, code: &str) -> StoreResponse {
    let body = whole_body(format!("<Error><Code>{code}</Code><Message>no</Message></Error>"));
    Response::builder().status(status).body(body).unwrap()
}
