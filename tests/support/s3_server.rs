//! A server that speaks S3 over HTTP.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use md5::{Digest, Md5};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;

use crate::support::request_failures::{FailureInjector, empty_response};
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};

pub const SECRET: &str = "not-to-be-seen";

/// The answer of a store.
pub type StoreResponse = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// A server over a folder, in which each folder is a bucket.
pub struct S3Server {
    /// Serves as long as it lives.
    _runtime: tokio::runtime::Runtime,
    pub endpoint: String,
    pub failures: Arc<FailureInjector>,
}

struct S3ServerState {
    root: PathBuf,
    service: S3Service,
    /// Conditions are looked at and changes made by one writer at a time.
    writers: tokio::sync::Mutex<()>,
}

/// The MD5 sum of a content, by which stores name it.
pub fn md5_text(content: &[u8]) -> String {
    Md5::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Answers the requests of all connections, which are counted from 0.
pub async fn serve<A>(
    listener: TcpListener,
    answer: impl Fn(u64, Request<Incoming>) -> A + Clone + Send + 'static,
) where
    A: Future<Output = std::io::Result<StoreResponse>> + Send + 'static,
{
    let mut connection = 0;
    while let Ok((socket, _)) = listener.accept().await {
        let answer = answer.clone();
        let number = connection;
        connection += 1;
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(number, request));
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

impl Deref for S3Server {
    type Target = FailureInjector;

    fn deref(&self) -> &FailureInjector {
        &self.failures
    }
}

impl S3Server {
    pub fn start(root: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
        service.set_auth(SimpleAuth::from_single("key", SECRET));
        let failures: Arc<FailureInjector> = Arc::default();
        let shared = Arc::new(S3ServerState {
            root: root.to_owned(),
            service: service.build(),
            writers: tokio::sync::Mutex::default(),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let failing = failures.clone();
        runtime.spawn(serve(listener, move |connection, request| {
            let failures = failing.clone();
            let shared = shared.clone();
            async move {
                failures
                    .answer(connection, request, |request| shared.serve_request(request))
                    .await
            }
        }));
        S3Server {
            _runtime: runtime,
            endpoint,
            failures,
        }
    }

    /// A workshop with a bucket `lake` and demand in it, and a server over it.
    pub fn over_demand() -> (TestDirectory, S3Server) {
        let shop = TestDirectory::new();
        std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
        shop.demand("buckets/lake/demand", 500);
        let server = S3Server::start(&shop.path("buckets"));
        (shop, server)
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
    /// What the server answers. It leaves the conditions of reads to others.
    async fn serve_request(&self, request: Request<Incoming>) -> StoreResponse {
        let wanted = request
            .headers()
            .get(header::IF_MATCH)
            .cloned()
            .filter(|_| request.method() == "GET");
        let writer = match request.method().as_str() {
            "GET" | "HEAD" => None,
            _ => Some(self.writers.lock().await),
        };
        let bucket = request.uri().path().trim_matches('/').to_owned();
        let is_listing = request.method() == "GET"
            && request
                .uri()
                .query()
                .is_some_and(|query| query.contains("list-type=2"));
        let answer = Service::call(&self.service, request).await.unwrap();
        drop(writer);
        if is_listing {
            let (mut parts, body) = answer.into_parts();
            let text = String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap();
            parts.headers.remove(header::CONTENT_LENGTH);
            let body = Full::new(Bytes::from(self.with_etags(&bucket, &text)))
                .map_err(|never| match never {});
            return Response::from_parts(parts, body.boxed_unsync());
        }
        if answer.status().is_success()
            && wanted.is_some()
            && wanted.as_ref() != answer.headers().get(header::ETAG)
        {
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
            let key = object
                .split("<Key>")
                .nth(1)
                .and_then(|rest| rest.split("</Key>").next())
                .unwrap_or_default();
            let is_source = ["demand/", "in/"]
                .iter()
                .any(|folder| key.starts_with(folder));
            if let Some(bytes) = is_source
                .then(|| std::fs::read(self.root.join(bucket).join(key)).ok())
                .flatten()
            {
                with.push_str(&format!("<ETag>&quot;{}&quot;</ETag>", md5_text(&bytes)));
            }
            with.push_str(object);
        }
        with
    }
}
