//! The whole job on a server that speaks S3 over HTTP: sources, state and sinks in a bucket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;

use crate::support::{Call, Workshop, content, ready_made};

const SECRET: &str = "not-for-anybody-to-see";

/// A server over a folder, in which each folder is a bucket.
struct Server {
    /// Serves as long as it lives.
    _runtime: tokio::runtime::Runtime,
    endpoint: String,
    /// How many of the next requests are answered with 503.
    busy: Arc<AtomicU64>,
}

impl Server {
    fn start(root: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
        service.set_auth(SimpleAuth::from_single("key", SECRET));
        let service = service.build();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let busy = Arc::new(AtomicU64::new(0));
        let left = busy.clone();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (service, left) = (service.clone(), left.clone());
                tokio::spawn(async move {
                    let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let busy =
                            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
                        let answer = (!busy).then(|| Service::call(&service, request));
                        async move {
                            match answer {
                                Some(answer) => answer.await,
                                None => {
                                    let mut refused = http::Response::new(s3s::Body::empty());
                                    *refused.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                                    Ok(refused)
                                }
                            }
                        }
                    });
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), answer).await;
                });
            }
        });
        Server { _runtime: runtime, endpoint, busy }
    }

    fn forebay(&self, shop: &Workshop, args: &[&str]) -> Call {
        let mut command = shop.command(args);
        command
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.output().unwrap().into()
    }
}

/// Runs `demand.yaml` on the bucket `lake`.
fn run(server: &Server, shop: &Workshop, state: &str) -> Call {
    let spec = ready_made("demand.yaml");
    let args = ["run", &spec, "--param=history=s3://lake/demand", "--param=out=s3://lake/out", "--json"];
    server.forebay(shop, &[&args[..], &["--state", state, "--memory=256MiB", "--threads=2"]].concat())
}

#[test]
fn sources_state_and_sinks_in_a_bucket() {
    let shop = Workshop::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let data = shop.demand("buckets/lake/demand", 500);
    let server = Server::start(&shop.path("buckets"));
    let first = run(&server, &shop, "s3://lake/state").expect(0).summary();
    assert_eq!(first["nothing_new"], false);
    let again = run(&server, &shop, "s3://lake/state").expect(0).summary();
    assert_eq!(again["nothing_new"], true);

    // The same artifact and rows as from local files.
    let local = ["run", &ready_made("demand.yaml"), "--json", "--memory=256MiB"];
    let params = [format!("--param=history={data}"), "--param=out=local".to_owned()];
    let local = shop.forebay(&[&local[..], &[&params[0], &params[1]]].concat()).expect(0).summary();
    assert_eq!(local["artifact"], first["artifact"]);
    assert!(shop.visible("buckets/lake/out") == shop.rows("local/current"));

    // Credentials are nowhere: not in specs, plans, artifacts, records or what was printed.
    for (name, bytes) in content(&shop.path("buckets")).into_iter().chain(content(&shop.path(".forebay"))) {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(SECRET), "the secret is in {name}");
    }
    assert!(!first.to_string().contains(SECRET));
}

#[test]
fn a_busy_server_is_asked_again_and_a_dead_one_is_named() {
    let shop = Workshop::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    shop.demand("buckets/lake/demand", 500);
    let server = Server::start(&shop.path("buckets"));
    server.busy.store(5, Ordering::Relaxed);
    let mut busy = run(&server, &shop, "state").expect(0).summary();
    assert_eq!(server.busy.load(Ordering::Relaxed), 0, "the fault did not fire");
    assert_eq!(busy["nothing_new"].take(), false);

    let gone = Server { endpoint: "http://127.0.0.1:9".to_owned(), ..Server::start(&shop.path("buckets")) };
    let call = run(&gone, &shop, "state2").expect(75);
    assert_eq!(call.summary()["fault"]["code"], "FB0401");
    assert!(call.stderr.contains("s3://lake/demand"), "{}", call.stderr);

    // A bucket that is not there is the user's to mend, and says so.
    let spec = ready_made("demand.yaml");
    let args = ["run", &spec, "--param=history=s3://nowhere/demand", "--param=out=out", "--json"];
    let call = server.forebay(&shop, &args);
    assert_ne!(call.code, 0);
    assert!(call.stderr.contains("s3://nowhere/demand"), "{}", call.stderr);
}
