//! A server that speaks the XML protocol of Google Cloud Storage, and gives tokens as a machine's metadata service does.

use std::collections::BTreeMap;
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
use serde_json::Value;
use tokio::net::TcpListener;

use crate::support::TestDirectory;
use crate::support::request_failures::FailureInjector;
use crate::support::s3_server::{StoreResponse, md5_text, serve};

/// What tokens begin with.
pub const TOKEN: &str = "token-not-for-anyone-to-see-";

/// Objects of this bucket are given without a token.
pub const PUBLIC_BUCKET: &str = "public";

/// A token is renewed four minutes before its end, so this one for each request.
pub const TOKEN_SECONDS: u64 = 240;

/// The token of another provider that is exchanged for one of Google, and for whom it is meant.
pub const SUBJECT_TOKEN: &str = "subject-not-for-anyone-to-see";
pub const AUDIENCE: &str =
    "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/lake";

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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let state = Arc::new(ServerState {
            root: root.to_owned(),
            objects: S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap()).build(),
            tokens: AtomicU64::new(0),
            writers: tokio::sync::Mutex::default(),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let failures: Arc<FailureInjector> = Arc::default();
        let serving = state.clone();
        let failing = failures.clone();
        runtime.spawn(serve(listener, move |connection, request| {
            let failures = failing.clone();
            let state = serving.clone();
            async move {
                failures
                    .answer(connection, request, |request| state.serve(request))
                    .await
            }
        }));
        GoogleServer {
            _runtime: runtime,
            host,
            failures,
            state,
        }
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
        match path.as_str() {
            "/subject-token" if request.headers().contains_key("metadata-flavor") => {
                return Response::new(whole_body(format!(
                    r#"{{"access_token": "{SUBJECT_TOKEN}"}}"#
                )));
            }
            "/v1/token" => return self.exchange_token(request).await,
            "/v1/account:generateAccessToken" => return self.account_token(request).await,
            _ => {}
        }
        let is_public = path.starts_with(&format!("/{PUBLIC_BUCKET}/"))
            && ["GET", "HEAD"].contains(&request.method().as_str());
        let is_known = |value: &HeaderValue| {
            value
                .to_str()
                .is_ok_and(|value| value.starts_with("Bearer "))
        };
        let token = request
            .headers()
            .get(AUTHORIZATION)
            .filter(|value| is_known(value));
        if !is_public
            && !token.is_some_and(|value| value.to_str().is_ok_and(|value| value.contains(TOKEN)))
        {
            return error(StatusCode::UNAUTHORIZED, "AuthenticationRequired");
        }
        let _writer = match request.method().as_str() {
            "GET" | "HEAD" => None,
            _ => Some(self.writers.lock().await),
        };
        let file = self.root.join(
            percent_encoding::percent_decode_str(&path)
                .decode_utf8_lossy()
                .trim_matches('/'),
        );
        if let Some(wanted) = request.headers().get(&GENERATION_MATCH) {
            let there = std::fs::read(&file).map_or(0, |bytes| generation(&bytes));
            if wanted.to_str().ok() != Some(&there.to_string()) {
                return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
            }
        }
        let is_part = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("partNumber"));
        let wanted_etag = request.headers().get("if-match").cloned();
        let mut request = request;
        for name in [&AUTHORIZATION, &GENERATION_MATCH] {
            request.headers_mut().remove(name);
        }
        let mut answer = Service::call(&self.objects, request).await.unwrap();
        let content = if answer.status().is_success() && !is_part {
            std::fs::read(&file).ok()
        } else {
            None
        };
        if let Some(content) = content {
            describe(&content, answer.headers_mut());
            if wanted_etag.is_some_and(|wanted| Some(&wanted) != answer.headers().get(ETAG)) {
                return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
            }
        }
        answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
    }

    fn serve_token(&self, request: &Request<Incoming>) -> StoreResponse {
        if request
            .headers()
            .get("metadata-flavor")
            .is_none_or(|flavor| flavor != "Google")
        {
            return error(StatusCode::FORBIDDEN, "MissingMetadataFlavor");
        }
        let token = self.next_token();
        Response::new(whole_body(format!(
            r#"{{"access_token": "{token}", "expires_in": {TOKEN_SECONDS}, "token_type": "Bearer"}}"#
        )))
    }

    /// What Google's security token service does.
    async fn exchange_token(&self, request: Request<Incoming>) -> StoreResponse {
        let form = request.into_body().collect().await.unwrap().to_bytes();
        let pairs = std::str::from_utf8(&form)
            .unwrap()
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let decode = |text: &str| {
            percent_encoding::percent_decode_str(text)
                .decode_utf8_lossy()
                .into_owned()
        };
        let form: BTreeMap<&str, String> =
            pairs.map(|(name, value)| (name, decode(value))).collect();
        let is = |name: &str, value: &str| form.get(name).is_some_and(|given| given == value);
        let exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
        if !is("grant_type", exchange)
            || !is("audience", AUDIENCE)
            || !is("subject_token", SUBJECT_TOKEN)
        {
            return error(StatusCode::BAD_REQUEST, "invalid_grant");
        }
        let token = self.next_token();
        Response::new(whole_body(format!(
            r#"{{"access_token": "{token}", "expires_in": {TOKEN_SECONDS}}}"#
        )))
    }

    /// What Google does that gives tokens of service accounts.
    async fn account_token(&self, request: Request<Incoming>) -> StoreResponse {
        let bearer = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let is_known = bearer.starts_with(&format!("Bearer {TOKEN}"));
        let asked: Value =
            serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes())
                .unwrap();
        if !is_known
            || asked["lifetime"] != format!("{TOKEN_SECONDS}s")
            || !asked["scope"].is_array()
        {
            return error(StatusCode::FORBIDDEN, "PERMISSION_DENIED");
        }
        let token = self.next_token();
        Response::new(whole_body(format!(
            r#"{{"accessToken": "{token}", "expireTime": "2030-01-01T00:00:00Z"}}"#
        )))
    }

    fn next_token(&self) -> String {
        format!("{TOKEN}{}", self.tokens.fetch_add(1, Ordering::SeqCst))
    }
}

/// Google's name of a content.
fn generation(content: &[u8]) -> u64 {
    let sum = Md5::digest(content);
    sum.iter()
        .take(7)
        .fold(1, |number, byte| number << 8 | u64::from(*byte))
}

/// What every answer tells of an object.
fn describe(content: &[u8], headers: &mut HeaderMap) {
    headers.insert(
        ETAG,
        HeaderValue::from_str(&format!("\"{}\"", md5_text(content))).unwrap(),
    );
    headers.insert(GENERATION.clone(), HeaderValue::from(generation(content)));
}

fn whole_body(text: String) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn error(status: StatusCode, code: &str) -> StoreResponse {
    let body = whole_body(format!(
        "<Error><Code>{code}</Code><Message>no</Message></Error>"
    ));
    Response::builder().status(status).body(body).unwrap()
}
