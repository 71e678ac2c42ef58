//! Answers of a server's routes in one process, without a network.

use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::ipc::writer::StreamWriter;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use forebay_run::SessionOptions;
use forebay_storage::{StorageClient, start_runtime};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prost::Message;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use super::formats::ARROW_STREAM;
use super::grpc_messages::*;
use super::service::ServeService;
use super::{FeatureServer, ServeLimits, ServeOptions, router};
use crate::Forebay;
use crate::metrics::{CommandMetrics, ServeMetrics};

/// Path of the call that computes rows.
const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// Bytes before a message of gRPC.
const PREFIX_BYTES: usize = 5;

/// Time after which a test that waits has failed.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A server of a small artifact.
struct TestServer {
    router: Router,
    service: Arc<ServeService>,
    runtime: Runtime,
    directory: TempDir,
}

/// An answer that has been read.
struct TestAnswer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

fn limits() -> ServeLimits {
    ServeLimits {
        request_bytes: 1 << 20,
        request_rows: 100_000,
        in_flight_bytes: 8 << 20,
        in_flight_requests: 64,
        connections: 64,
        queue_rows: 100_000,
        batch_rows: 4096,
        batch_delay: Duration::ZERO,
        timeout: Duration::from_secs(60),
        idle: Duration::from_secs(60),
        drain: Duration::from_secs(1),
    }
}

/// Steps of the served pipeline.
const SHOP_STEPS: &str = "{ standardize: { columns: [price] } }";

/// A directory with the rows of the shop.
fn shop_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut rows = "id,price\n".to_owned();
    for id in 0..100 {
        writeln!(rows, "{id},{}.5", id % 10).unwrap();
    }
    std::fs::write(directory.path().join("rows.csv"), rows).unwrap();
    directory
}

/// Fits the pipeline `shop` with these steps. Returns the directory of its artifact.
fn fit_shop(directory: &TempDir, steps: &str) -> String {
    let path = |name: &str| directory.path().join(name).display().to_string();
    let spec = format!(
        "version: 1\nname: shop\nsources:\n  shop: {{ csv: {{ path: \"{}\" }} }}\n\
         steps:\n  features:\n    from: shop\n    do: [{steps}]\n\
         sinks: {{ table: {{ from: features, parquet: {{ path: \"{}\" }} }} }}\n",
        path("rows.csv"),
        path("table")
    );
    std::fs::write(path("spec.yaml"), spec).unwrap();
    let options = SessionOptions::default().state(path("state")).threads(2);
    let forebay = Forebay::new().with_options(options);
    let params: [(&str, &str); 0] = [];
    let pipeline = forebay.read_spec(path("spec.yaml"), params).unwrap();
    forebay.fit(&pipeline).unwrap().artifact_path.unwrap()
}

/// Settings of a server of an artifact, a model or a pipeline.
fn serve_options(directory: &TempDir, path: String, limits: ServeLimits) -> ServeOptions {
    ServeOptions {
        path,
        state: directory.path().join("state").display().to_string(),
        name: None,
        node: None,
        with_features: false,
        forecast: false,
        prediction: "prediction".to_owned(),
        bounds: (None, None),
        follow_every: Duration::from_secs(60),
        keep_versions: 1,
        shadow: None,
        log: None,
        threads: 1,
        memory_bytes: 1 << 30,
        limits,
        token: None,
        tls: None,
    }
}

impl TestServer {
    /// Serves the artifact of a fit.
    fn start(limits: ServeLimits) -> TestServer {
        let directory = shop_directory();
        let artifact = fit_shop(&directory, SHOP_STEPS);
        TestServer::of(directory, artifact, limits)
    }

    /// Serves the newest artifact of the pipeline `shop`.
    fn following(limits: ServeLimits) -> TestServer {
        let directory = shop_directory();
        fit_shop(&directory, SHOP_STEPS);
        TestServer::of(directory, "shop".to_owned(), limits)
    }

    fn of(directory: TempDir, path: String, limits: ServeLimits) -> TestServer {
        let options = serve_options(&directory, path, limits);
        TestServer::with_options(directory, options)
    }

    fn with_options(directory: TempDir, options: ServeOptions) -> TestServer {
        let metrics = CommandMetrics::<ServeMetrics>::new(None, None).unwrap();
        let server =
            FeatureServer::load(&StorageClient::new().unwrap(), options, &metrics).unwrap();
        TestServer {
            router: router(&server.service),
            service: server.service,
            runtime: start_runtime("serve-test", 2).unwrap(),
            directory,
        }
    }

    /// Sends a request; the answer is that of the task.
    fn send(&self, request: Request<Body>) -> JoinHandle<TestAnswer> {
        let router = self.router.clone();
        self.runtime.spawn(async move {
            let response: Response<Body> = router.oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let collected = body.collect().await.unwrap();
            TestAnswer {
                status: parts.status.as_u16(),
                headers: parts.headers,
                trailers: collected.trailers().cloned().unwrap_or_default(),
                body: collected.to_bytes(),
            }
        })
    }

    fn call(&self, request: Request<Body>) -> TestAnswer {
        let answer = self.send(request);
        self.runtime.block_on(answer).unwrap()
    }

    /// The text of the metrics page.
    fn metrics(&self) -> String {
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        String::from_utf8(self.call(request).body.to_vec()).unwrap()
    }

    /// Number of newer versions with an outcome.
    fn switches(&self, outcome: &str) -> u64 {
        let switches = &self.service.metrics.switches;
        switches.with_label_values(&[outcome]).get()
    }

    /// Number of answers by protocol and status.
    fn requests(&self, protocol: &str, status: &str) -> u64 {
        let requests = &self.service.metrics.requests;
        requests.with_label_values(&[protocol, status]).get()
    }

    /// Lets the queue believe that some requests are being read, for which those in it wait.
    fn announce_requests(&self) {
        self.service.metrics.in_flight.add(8);
    }

    /// Waits until so many rows wait for a thread.
    fn wait_for_queue(&self, rows: i64) {
        let begin = Instant::now();
        while self.service.metrics.queue_rows.get() != rows {
            assert!(begin.elapsed() < WAIT_MAX, "{rows} rows never wait");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl TestAnswer {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).or_else(|| self.trailers.get(name));
        value.map_or("", |value| value.to_str().unwrap())
    }

    fn error(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        body["error"].as_str().unwrap().to_owned()
    }
}

fn prices(rows: usize) -> Vec<f64> {
    (0..rows).map(|row| row as f64 / 4.0).collect()
}

fn http_request(rows: usize) -> Request<Body> {
    let prices = serde_json::to_string(&prices(rows)).unwrap();
    let body = format!(
        "{{\"inputs\": [{{\"name\": \"price\", \"datatype\": \"FP64\", \"shape\": [{rows}], \
         \"data\": {prices}}}, {{\"name\": \"id\", \"datatype\": \"INT64\", \"shape\": [{rows}], \
         \"data\": {:?}}}]}}",
        vec![1; rows]
    );
    let request = Request::post("/v2/models/shop/infer");
    request.body(Body::from(body)).unwrap()
}

fn arrow_request(stream: Vec<u8>) -> Request<Body> {
    let request = Request::post("/apply").header("content-type", ARROW_STREAM);
    request.body(Body::from(stream)).unwrap()
}

fn arrow_stream(rows: usize) -> Vec<u8> {
    let price: ArrayRef = Arc::new(Float64Array::from(prices(rows)));
    let id: ArrayRef = Arc::new(Int64Array::from(vec![1; rows]));
    let rows = RecordBatch::try_from_iter([("price", price), ("id", id)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), rows.schema_ref()).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap()
}

fn input_tensor(name: &str, datatype: &str, rows: usize) -> InferInputTensor {
    InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: vec![rows as i64],
        ..InferInputTensor::default()
    }
}

fn infer_message(rows: usize) -> Vec<u8> {
    let mut raw_prices = Vec::new();
    for price in prices(rows) {
        raw_prices.extend(price.to_le_bytes());
    }
    let request = ModelInferRequest {
        model_name: "shop".to_owned(),
        inputs: vec![
            input_tensor("price", "FP64", rows),
            input_tensor("id", "INT64", rows),
        ],
        raw_input_contents: vec![raw_prices.into(), vec![0; rows * 8].into()],
        ..ModelInferRequest::default()
    };
    request.encode_to_vec()
}

/// A call of one message, which is sent as these bytes of an encoding.
fn grpc_request(message: &[u8], encoding: Option<&str>) -> Request<Body> {
    let mut body = vec![u8::from(encoding.is_some())];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    let mut request = Request::post(INFER)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(encoding) = encoding {
        request = request
            .header("grpc-encoding", encoding)
            .header("grpc-accept-encoding", "identity, deflate, gzip, zstd");
    }
    request.body(Body::from(body)).unwrap()
}

fn packed(message: &[u8], encoding: &str) -> Vec<u8> {
    let level = flate2::Compression::default();
    let mut packed = Vec::new();
    match encoding {
        "gzip" => flate2::read::GzEncoder::new(message, level).read_to_end(&mut packed),
        "deflate" => flate2::read::ZlibEncoder::new(message, level).read_to_end(&mut packed),
        _ => return zstd::encode_all(message, 3).unwrap(),
    }
    .unwrap();
    packed
}

fn unpacked(message: &[u8], encoding: &str) -> Vec<u8> {
    let mut unpacked = Vec::new();
    match encoding {
        "gzip" => flate2::read::GzDecoder::new(message).read_to_end(&mut unpacked),
        "deflate" => flate2::read::ZlibDecoder::new(message).read_to_end(&mut unpacked),
        _ => return zstd::decode_all(message).unwrap(),
    }
    .unwrap();
    unpacked
}

#[test]
fn compressed_messages_are_read_and_answered_alike() {
    let server = TestServer::start(limits());
    let message = infer_message(1000);
    let plain = server.call(grpc_request(&message, None));
    assert_eq!(plain.header("grpc-status"), "0");
    assert_eq!(plain.header("grpc-encoding"), "");
    let expected = &plain.body[PREFIX_BYTES..];
    let response = ModelInferResponse::decode(expected).unwrap();
    assert_eq!(response.raw_output_contents[0].len(), 8000);
    for encoding in ["gzip", "deflate", "zstd"] {
        let request = grpc_request(&packed(&message, encoding), Some(encoding));
        let answer = server.call(request);
        assert_eq!(answer.header("grpc-status"), "0", "{encoding}");
        assert_eq!(answer.header("grpc-encoding"), encoding);
        assert_eq!(answer.body[0], 1);
        let length = u32::from_be_bytes(answer.body[1..PREFIX_BYTES].try_into().unwrap());
        let body = &answer.body[PREFIX_BYTES..];
        assert_eq!(length as usize, body.len());
        assert!(body.len() < expected.len());
        assert_eq!(unpacked(body, encoding), expected, "{encoding}");
        // A client that reads no such answers gets a plain one, and a small one is not worth it.
        let mut request = grpc_request(&packed(&message, encoding), Some(encoding));
        request.headers_mut().remove("grpc-accept-encoding");
        assert_eq!(server.call(request).body, plain.body);
        let small = packed(&infer_message(1), encoding);
        let answer = server.call(grpc_request(&small, Some(encoding)));
        assert_eq!(answer.header("grpc-status"), "0");
        assert_eq!(answer.body[0], 0);
    }
}

#[test]
fn messages_that_unpack_to_too_much_or_cannot_be_unpacked_are_refused() {
    let server = TestServer::start(limits());
    let free = server.service.request_memory.available_permits();
    let large = vec![0; 2 << 20];
    for encoding in ["gzip", "deflate", "zstd"] {
        let answer = server.call(grpc_request(&packed(&large, encoding), Some(encoding)));
        // RESOURCE_EXHAUSTED.
        assert_eq!(answer.header("grpc-status"), "8", "{encoding}");
        let answer = server.call(grpc_request(b"no such bytes", Some(encoding)));
        // INVALID_ARGUMENT.
        assert_eq!(answer.header("grpc-status"), "3", "{encoding}");
    }
    let answer = server.call(grpc_request(b"anything", Some("snappy")));
    // UNIMPLEMENTED.
    assert_eq!(answer.header("grpc-status"), "12");
    assert_eq!(
        answer.header("grpc-accept-encoding"),
        "gzip,deflate,zstd,identity"
    );
    assert_eq!(server.service.request_memory.available_permits(), free);
}

#[test]
fn a_full_queue_refuses_requests_with_429() {
    let server = TestServer::start(ServeLimits {
        queue_rows: 2,
        batch_delay: Duration::from_secs(1),
        ..limits()
    });
    server.announce_requests();
    let waiting = server.send(http_request(2));
    server.wait_for_queue(2);
    let refused = server.call(http_request(1));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.error(), "2 rows wait for an answer already");
    let refused = server.call(grpc_request(&infer_message(1), None));
    // RESOURCE_EXHAUSTED.
    assert_eq!(refused.header("grpc-status"), "8");
    let answer = server.runtime.block_on(waiting).unwrap();
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    // There is room again.
    assert_eq!(server.call(http_request(1)).status, 200);
}

#[test]
fn bodies_beyond_the_memory_for_requests_are_refused_with_429() {
    let server = TestServer::start(limits());
    let free = server.service.request_memory.clone();
    let permits = free.available_permits() as u32;
    let reserved = free.try_acquire_many_owned(permits).unwrap();
    let refused = server.call(http_request(1));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.error(), "the memory for requests is taken");
    drop(reserved);
    assert_eq!(server.call(http_request(1)).status, 200);
}

#[test]
fn files_wait_for_their_turn_while_others_are_answered() {
    let server = TestServer::start(ServeLimits {
        timeout: Duration::from_secs(1),
        ..limits()
    });
    let turns = server.service.decoding.clone();
    let permits = turns.available_permits() as u32;
    let reserved = turns.try_acquire_many_owned(permits).unwrap();
    let waiting = server.send(arrow_request(arrow_stream(3)));
    assert_eq!(server.call(http_request(1)).status, 200);
    assert_eq!(server.runtime.block_on(waiting).unwrap().status, 504);
    drop(reserved);
    let answer = server.call(arrow_request(arrow_stream(3)));
    assert_eq!(answer.status, 200, "{:?}", answer.body);
}

/// The answer to rows of JSON for the shop.
fn apply_json(server: &TestServer, body: &str) -> TestAnswer {
    let request = Request::post("/apply").body(Body::from(body.to_owned()));
    server.call(request.unwrap())
}

#[test]
fn large_ids_are_the_ones_that_were_sent_or_are_refused() {
    let server = TestServer::start(limits());
    // A float in another row does not change an integer.
    let rows = r#"[{ "id": 9007199254740993, "price": 1 }, { "id": 1e3, "price": 2.5 }]"#;
    let answer = json_of(&apply_json(&server, rows));
    assert_eq!(answer["rows"][0]["id"], 9_007_199_254_740_993_i64);
    assert_eq!(answer["rows"][1]["id"], 1000);
    let refused = apply_json(&server, r#"[{ "id": 9007199254740992.0, "price": 1 }]"#);
    assert_eq!(refused.status, 400);
    let text = refused.error();
    assert!(text.contains("send integers"), "{text}");
}

#[test]
fn wrong_methods_have_errors_of_json() {
    let server = TestServer::start(limits());
    let request = Request::get("/apply").body(Body::empty()).unwrap();
    let refused = server.call(request);
    assert_eq!(refused.status, 405);
    assert_eq!(refused.header("allow"), "POST");
    assert_eq!(
        refused.error(),
        "`/apply` does not take the method GET; see /openapi.json"
    );
}

#[test]
fn damaged_files_are_refused_with_their_fault() {
    let server = TestServer::start(limits());
    let whole = arrow_stream(3);
    for damaged in [b"no stream".to_vec(), whole[..whole.len() - 40].to_vec()] {
        let refused = server.call(arrow_request(damaged));
        assert_eq!(refused.status, 400);
        assert!(refused.error().contains("(FB02"), "{}", refused.error());
    }
}

#[test]
fn large_bodies_are_answered_as_small_ones_are() {
    let server = TestServer::start(limits());
    let rows = 20_000;
    let answer = server.call(http_request(rows));
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let outputs = answer["outputs"].as_array().unwrap();
    assert!(outputs.iter().all(|output| output["shape"][0] == rows));
}

#[test]
fn requests_beyond_their_number_are_refused_with_429() {
    let server = TestServer::start(ServeLimits {
        in_flight_requests: 1,
        batch_delay: Duration::from_secs(1),
        ..limits()
    });
    server.announce_requests();
    let waiting = server.send(http_request(1));
    server.wait_for_queue(1);
    let refused = server.call(http_request(1));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.error(), "1 requests are being answered already");
    // Probes and the operator are answered in any case: eight requests are announced, and one waits.
    let metrics = server.metrics();
    let in_flight = "serve_in_flight_requests{pipeline=\"shop\"} 9\n";
    assert!(metrics.contains(in_flight), "{metrics}");
    let probe = Request::get("/v2/health/ready").body(Body::empty());
    assert_eq!(server.call(probe.unwrap()).status, 200);
    assert_eq!(server.runtime.block_on(waiting).unwrap().status, 200);
}

#[test]
fn a_request_that_is_alone_does_not_wait_for_others() {
    let server = TestServer::start(ServeLimits {
        batch_delay: Duration::from_secs(60),
        ..limits()
    });
    let begin = Instant::now();
    assert_eq!(server.call(http_request(1)).status, 200);
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn answers_that_take_too_long_end_with_504() {
    let server = TestServer::start(ServeLimits {
        timeout: Duration::from_millis(50),
        batch_delay: Duration::from_secs(1),
        ..limits()
    });
    server.announce_requests();
    let late = server.call(http_request(1));
    assert_eq!(late.status, 504);
    assert_eq!(late.error(), "no answer within 50 ms");
    assert_eq!(late.header("retry-after"), "");
    let late = server.call(grpc_request(&infer_message(1), None));
    // DEADLINE_EXCEEDED.
    assert_eq!(late.header("grpc-status"), "4");
    // Requests whose time is over leave the queue, and are not counted as answered.
    server.wait_for_queue(0);
    assert_eq!(server.service.metrics.rows.get(), 0);
    assert_eq!(server.requests("open_inference", "504"), 1);
    assert_eq!(server.requests("grpc", "grpc_4"), 1);
}

/// The files with routes of HTTP.
const ROUTED: [&str; 5] = [
    include_str!("admin.rs"),
    include_str!("feast.rs"),
    include_str!("invocations.rs"),
    include_str!("open_inference.rs"),
    include_str!("rows.rs"),
];

/// Checks that references in a document lead to something in it.
fn check_references(part: &Value, document: &Value) {
    match part {
        Value::Object(fields) => {
            if let Some(path) = fields.get("$ref").and_then(Value::as_str) {
                let pointer = path.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{path}");
            }
            fields
                .values()
                .for_each(|field| check_references(field, document));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| check_references(item, document)),
        _ => {}
    }
}

#[test]
fn the_openapi_document_has_all_routes() {
    let server = TestServer::start(limits());
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let answer = server.call(request);
    assert_eq!(answer.status, 200);
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    check_references(&document, &document);
    let paths = document["paths"].as_object().unwrap();
    let mut routes = 0;
    for text in ROUTED {
        for route in text.split(".route(").skip(1) {
            let (path, _) = route.trim_start()[1..].split_once('"').unwrap();
            let path = path.replace("{model}", "shop");
            // The root of the protocol may end with a slash.
            if path != "/v2/" {
                assert!(paths.contains_key(&path), "{path}");
                routes += 1;
            }
        }
    }
    assert_eq!(routes, paths.len());
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(operation["summary"].is_string(), "{method} {path}");
            assert!(operation["responses"]["200"].is_object(), "{method} {path}");
            let declared = operation["parameters"].as_array().map_or(0, Vec::len);
            assert_eq!(declared, path.matches('{').count(), "{method} {path}");
            // The server has each route of the document.
            let path = path.replace("{version}", &server.service.versions.ids()[0]);
            let request = Request::builder().method(method.to_uppercase().as_str());
            let answer = server.call(request.uri(&path).body(Body::empty()).unwrap());
            assert_ne!(answer.status, 405, "{method} {path}");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!text.contains("there is nothing at"), "{method} {path}");
        }
    }
}

#[test]
fn newer_versions_are_served_where_they_answer_as_the_current_one() {
    let server = TestServer::following(limits());
    // A request that newer versions have to answer.
    assert_eq!(server.call(http_request(3)).status, 200);
    let first = server.service.versions.ids();
    let refused = [
        "{ standardize: { columns: [id] } }, { drop: [price] }",
        "{ filter: \"price > 5\" }, { standardize: { columns: [price] } }",
    ];
    for (number, steps) in refused.into_iter().enumerate() {
        fit_shop(&server.directory, steps);
        server.service.follow();
        assert_eq!(server.service.versions.ids(), first, "{steps}");
        assert_eq!(server.switches("refused"), number as u64 + 1, "{steps}");
    }
    let more = "{ standardize: { columns: [price] } }, { derive: { twice: \"price * 2\" } }";
    fit_shop(&server.directory, more);
    server.service.follow();
    assert_eq!(server.switches("switched"), 1);
    let ids = server.service.versions.ids();
    assert_eq!(ids[1..], first);
    assert_eq!(server.call(http_request(3)).status, 200);
    let request = Request::post("/versions/rollback").body(Body::empty());
    assert_eq!(server.call(request.unwrap()).status, 200);
    // The version that was left is not followed again.
    server.service.follow();
    assert_eq!(server.service.versions.ids(), first);
    assert_eq!(server.switches("rolled_back"), 1);
}

#[test]
fn the_metrics_page_has_what_operators_watch() {
    let server = TestServer::start(limits());
    assert_eq!(server.call(http_request(2)).status, 200);
    let text = server.metrics();
    let samples = [
        "requests_total{",
        "request_seconds_bucket{",
        "rows_total",
        "missing_keys_total",
        "queue_rows",
        "batch_requests_bucket",
        "in_flight_requests",
        "connections",
        "facts_total",
        "state_age_seconds",
        "state_bytes",
        "drift{column=\"price\"",
        "drift_missing{column=\"price\"",
        "version{",
        "shadow_rows_total",
        "log_rows_total",
    ];
    for sample in samples {
        let line = format!("\nforebay_serve_{sample}");
        assert!(text.contains(&line), "{sample}: {text}");
    }
    let labels = "protocol=\"open_inference\",status=\"200\"";
    assert!(text.contains(labels), "{text}");
}

#[test]
fn the_drift_of_requests_from_the_fit_is_a_metric() {
    let server = TestServer::start(limits());
    let metric = "forebay_serve_drift{column=\"price\"";
    assert!(!server.metrics().contains(metric));
    // The prices of the fit have the mean 5 and the variance 8.25; those of the request are 0, 0.25, ... 9.75.
    assert_eq!(server.call(http_request(40)).status, 200);
    let text = server.metrics();
    let line = text.lines().find(|line| line.starts_with(metric)).unwrap();
    let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((value - -0.125 / 8.25f64.sqrt()).abs() < 1e-9, "{line}");
    let missing = "forebay_serve_drift_missing{column=\"price\"";
    let line = text.lines().find(|line| line.starts_with(missing)).unwrap();
    assert!(line.ends_with(" 0"), "{line}");
    // No step has learned from `id`.
    assert!(!text.contains("forebay_serve_drift{column=\"id\""));
}

/// Runs a pipeline that trains a model of rows of the future, 3 days ahead, with steps behind them. Returns the directory of
/// the model.
fn train_forecaster(directory: &TempDir, steps: &str, train: &str) -> String {
    write_forecaster(directory, steps, train);
    run_forecaster(directory);
    directory.path().join("trees").display().to_string()
}

/// Writes the pipeline of a forecaster, and its rows.
fn write_forecaster(directory: &TempDir, steps: &str, train: &str) {
    let path = |name: &str| directory.path().join(name).display().to_string();
    let mut rows = "day,item,qty\n".to_owned();
    for day in 1..=28 {
        for item in 0..3 {
            writeln!(
                rows,
                "2024-02-{day:02},i{item},{}.5",
                1000 + (day * 7 + item) % 11
            )
            .unwrap();
        }
    }
    std::fs::write(path("sales.csv"), rows).unwrap();
    let spec = format!(
        "version: 1\nname: shop\nsources:\n  sales:\n    \
         csv: {{ path: \"{}\", columns: {{ day: date, item: string, qty: float64 }} }}\n    \
         time: day\n    keys: [item]\n\
         steps:\n  features:\n    from: sales\n    do:\n      \
         - future_rows: {{ horizon: 3d, every: 1d }}\n      \
         {steps}\n\
         label: {{ column: qty, horizon: 3d }}\nserving: {{ from: features }}\n\
         sinks:\n  trees:\n    from: features\n    train: {{ path: \"{}\", model: gbdt, \
         rounds: 4, leaves: 4, min_leaf_rows: 2, categorical: [], {train} }}\n",
        path("sales.csv"),
        path("trees")
    );
    std::fs::write(path("spec.yaml"), spec).unwrap();
}

/// Runs the pipeline of a forecaster.
fn run_forecaster(directory: &TempDir) {
    let path = |name: &str| directory.path().join(name).display().to_string();
    let options = SessionOptions::default().state(path("state")).threads(2);
    let forebay = Forebay::new().with_options(options);
    let params: [(&str, &str); 0] = [];
    let pipeline = forebay.read_spec(path("spec.yaml"), params).unwrap();
    forebay.run(&pipeline).unwrap();
}

/// A request of the Open Inference Protocol for some items.
fn items_request(items: &[&str]) -> Request<Body> {
    let inputs = serde_json::json!([
        { "name": "item", "datatype": "BYTES", "shape": [items.len()], "data": items }
    ]);
    let request = Request::post("/v2/models/shop/infer");
    let body = serde_json::json!({ "inputs": inputs }).to_string();
    request.body(Body::from(body)).unwrap()
}

fn json_of(answer: &TestAnswer) -> Value {
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn series_are_answered_with_their_whole_horizon() {
    let directory = tempfile::tempdir().unwrap();
    let trees = train_forecaster(
        &directory,
        "- lag: { columns: [qty], by: [1d, 3d] }",
        "strategy: per_step, dense: [qty_lag_1d, qty_lag_3d]",
    );
    let server = TestServer::of(directory, trees, limits());
    let request = Request::get("/v2/models/shop").body(Body::empty()).unwrap();
    let metadata = json_of(&server.call(request));
    assert_eq!(metadata["platform"], "forebay_model");
    let item = serde_json::json!([{ "name": "item", "datatype": "BYTES", "shape": [-1] }]);
    assert_eq!(metadata["inputs"], item);
    let answer = json_of(&server.call(items_request(&["i2", "i0"])));
    let output = |answer: &Value, name: &str| -> Value {
        let outputs = answer["outputs"].as_array().unwrap();
        let output = outputs.iter().find(|output| output["name"] == name);
        output
            .unwrap_or_else(|| panic!("no output `{name}`"))
            .clone()
    };
    let data = |answer: &Value, name: &str| output(answer, name)["data"].clone();
    assert_eq!(data(&answer, "item"), serde_json::json!(["i2", "i0"]));
    assert_eq!(output(&answer, "day")["shape"], serde_json::json!([2, 3]));
    let days = ["2024-02-29", "2024-03-01", "2024-03-02"];
    assert_eq!(
        data(&answer, "day"),
        serde_json::json!([days, days].concat())
    );
    assert_eq!(data(&answer, "step"), serde_json::json!([1, 2, 3, 1, 2, 3]));
    assert_eq!(output(&answer, "prediction")["datatype"], "FP32");
    let predictions = data(&answer, "prediction");
    let predictions = predictions.as_array().unwrap();
    assert_eq!(predictions.len(), 6);
    // Each series has the forecast that it has alone.
    let alone = json_of(&server.call(items_request(&["i0"])));
    assert_eq!(
        data(&alone, "prediction").as_array().unwrap(),
        &predictions[3..]
    );
    // The same as a table.
    let body = r#"{ "rows": [{ "item": "i0" }] }"#;
    let request = Request::post("/apply").body(Body::from(body)).unwrap();
    let rows = json_of(&server.call(request));
    assert_eq!(rows["rows"][0]["day"], serde_json::json!(days));
    // A new fact moves the forecasts of all series.
    let body = r#"{ "rows": [{ "item": "i0", "day": "2024-02-29", "qty": 3.5 }] }"#;
    let request = Request::post("/rows").body(Body::from(body)).unwrap();
    assert_eq!(json_of(&server.call(request))["rows"], 1);
    let moved = json_of(&server.call(items_request(&["i0"])));
    let days = ["2024-03-01", "2024-03-02", "2024-03-03"];
    assert_eq!(data(&moved, "day"), serde_json::json!(days));
    assert_eq!(
        data(&moved, "known_until"),
        serde_json::json!(["2024-02-29"])
    );
    let unknown = server.call(items_request(&["i0", "i9"]));
    assert_eq!(unknown.status, 400);
    assert!(unknown.error().contains("`item` i9"), "{}", unknown.error());
}

/// A request of Feast for the forecasts of some items.
fn online_request(items: &[&str]) -> Request<Body> {
    let body = serde_json::json!({
        "entities": { "item": items },
        "features": ["shop:prediction", "shop:day", "shop:known_until"],
    });
    let request = Request::post("/get-online-features");
    request.body(Body::from(body.to_string())).unwrap()
}

#[test]
fn each_protocol_describes_series_and_their_steps() {
    let directory = tempfile::tempdir().unwrap();
    let trees = train_forecaster(
        &directory,
        "- lag: { columns: [qty], by: [1d, 3d] }",
        "strategy: per_step, dense: [qty_lag_1d, qty_lag_3d]",
    );
    let server = TestServer::of(directory, trees, limits());
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let document = json_of(&server.call(request));
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["Row"]["required"], serde_json::json!(["item"]));
    let prediction = serde_json::json!({
        "type": ["array", "null"],
        "items": { "type": ["number", "null"] },
        "minItems": 3,
        "maxItems": 3,
    });
    assert_eq!(schemas["Answer"]["properties"]["prediction"], prediction);
    // Facts have more columns than requests.
    let mut facts: Vec<&str> = Vec::new();
    for name in schemas["Fact"]["required"].as_array().unwrap() {
        facts.push(name.as_str().unwrap());
    }
    facts.sort_unstable();
    assert_eq!(facts, ["day", "item", "qty"]);
    // A feature of Feast has a list for each entity.
    let answer = json_of(&server.call(online_request(&["i2", "i0"])));
    let result = |index: usize| answer["results"][index].clone();
    let days = ["2024-02-29", "2024-03-01", "2024-03-02"];
    assert_eq!(result(2)["values"], serde_json::json!([days, days]));
    assert_eq!(
        result(2)["statuses"],
        serde_json::json!(["PRESENT", "PRESENT"])
    );
    assert_eq!(
        result(3)["values"],
        serde_json::json!(["2024-02-28", "2024-02-28"])
    );
    let body = r#"{ "instances": [{ "item": "i0" }] }"#;
    let request = Request::post("/invocations").header("content-type", "application/json");
    let invoked = json_of(&server.call(request.body(Body::from(body)).unwrap()));
    assert_eq!(
        invoked["predictions"][0]["prediction"],
        result(1)["values"][1]
    );
}

#[test]
fn requests_give_values_of_the_future() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    write_forecaster(
        &directory,
        "- as_of_join: { with: plans, columns: [list], tolerance: 0d }\n      \
         - lag: { columns: [qty], by: [3d] }",
        "strategy: per_step, dense: [qty_lag_3d, list]",
    );
    // Plans end with the first day of the horizon.
    let mut plans = "day,item,list\n".to_owned();
    for item in 0..3 {
        for day in 1..=29 {
            writeln!(plans, "2024-02-{day:02},i{item},{}", (day * 7 + item) % 11).unwrap();
        }
    }
    std::fs::write(path("plans.csv"), plans).unwrap();
    let spec = std::fs::read_to_string(path("spec.yaml")).unwrap();
    let source = format!(
        "sources:\n  plans:\n    csv: {{ path: \"{}\", columns: {{ day: date, item: string, \
         list: float64 }} }}\n    time: day\n    keys: [item]\n",
        path("plans.csv")
    );
    let spec = spec.replace("sources:\n", &source);
    let spec = spec.replace(
        "horizon: 3d }\nserving",
        "horizon: 3d, known: [list] }\nserving",
    );
    std::fs::write(path("spec.yaml"), spec).unwrap();
    run_forecaster(&directory);
    let trees = path("trees");
    let server = TestServer::of(directory, trees, limits());
    let request = Request::get("/v2/models/shop").body(Body::empty()).unwrap();
    let metadata = json_of(&server.call(request));
    let mut inputs = Vec::new();
    for input in metadata["inputs"].as_array().unwrap() {
        inputs.push(input["name"].as_str().unwrap());
    }
    assert_eq!(inputs, ["item", "day", "list"]);
    let missing = server.call(items_request(&["i0"]));
    assert_eq!(missing.status, 400);
    let error = missing.error();
    assert!(error.contains("is of 2024-03-01"), "{error}");
    let rows = serde_json::json!([
        { "item": "i0", "day": "2024-03-01", "list": 4 },
        { "item": "i0", "day": "2024-03-02", "list": 2.5 },
    ]);
    let body = serde_json::json!({ "rows": rows }).to_string();
    let request = Request::post("/apply").body(Body::from(body)).unwrap();
    let answer = json_of(&server.call(request));
    assert_eq!(answer["rows"].as_array().unwrap().len(), 2);
    let predictions = answer["rows"][1]["prediction"].as_array().unwrap();
    assert!(predictions.iter().all(Value::is_f64), "{predictions:?}");
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let document = json_of(&server.call(request));
    let row = &document["components"]["schemas"]["Row"];
    assert_eq!(row["required"], serde_json::json!(["item"]));
    assert_eq!(
        row["properties"]["list"],
        serde_json::json!({ "type": ["number", "null"] })
    );
    // The horizon of the next run ends behind the values of that request.
    let first = server.service.versions.ids();
    let path = server.directory.path().join("sales.csv");
    let mut rows = std::fs::read_to_string(&path).unwrap();
    for item in 0..3 {
        writeln!(rows, "2024-02-29,i{item},1001.5").unwrap();
    }
    std::fs::write(&path, rows).unwrap();
    run_forecaster(&server.directory);
    server.service.follow();
    assert_eq!(server.switches("refused"), 0);
    assert_ne!(server.service.versions.ids(), first);
}

#[test]
fn the_drift_of_facts_is_that_of_a_server_of_forecasts() {
    let directory = tempfile::tempdir().unwrap();
    let trees = train_forecaster(
        &directory,
        "- lag: { columns: [qty], by: [1d, 3d] }\n      \
         - standardize: { columns: [qty], suffix: _scaled }",
        "strategy: per_step, dense: [qty_lag_1d, qty_lag_3d]",
    );
    let server = TestServer::of(directory, trees, limits());
    let metric = "forebay_serve_drift{column=\"qty\"";
    assert_eq!(server.call(items_request(&["i0"])).status, 200);
    assert!(!server.metrics().contains(metric));
    let body = r#"{ "rows": [{ "item": "i0", "day": "2024-02-29", "qty": 3.5 }] }"#;
    let request = Request::post("/rows").body(Body::from(body)).unwrap();
    assert_eq!(server.call(request).status, 200);
    let text = server.metrics();
    let line = text.lines().find(|line| line.starts_with(metric)).unwrap();
    let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(value < -100.0, "{line}");
}

#[test]
fn series_are_split_between_versions_and_logged_with_their_steps() {
    let directory = tempfile::tempdir().unwrap();
    let trees = train_forecaster(
        &directory,
        "- lag: { columns: [qty], by: [1d, 3d] }",
        "strategy: per_step, dense: [qty_lag_1d, qty_lag_3d]",
    );
    let shadow = super::ShadowOptions {
        path: trees.clone(),
        share: 0.5,
    };
    let log = super::LogOptions {
        directory: directory.path().join("log"),
        share: 1.0,
    };
    let options = ServeOptions {
        shadow: Some(shadow),
        log: Some(log),
        ..serve_options(&directory, trees, limits())
    };
    let server = TestServer::with_options(directory, options);
    let items = ["i0", "i1", "i2"];
    let split = json_of(&server.call(online_request(&items)));
    for (row, item) in items.iter().enumerate() {
        let alone = json_of(&server.call(online_request(&[*item])));
        let values = &split["results"][1]["values"][row];
        assert_eq!(alone["results"][1]["values"][0], *values, "{item}");
    }
    // The log is written when its server ends.
    let TestServer {
        router,
        service,
        runtime,
        directory,
    } = server;
    drop(router);
    drop(runtime);
    drop(service);
    let mut rows = 0;
    for entry in std::fs::read_dir(directory.path().join("log/answers")).unwrap() {
        let file = std::fs::File::open(entry.unwrap().path()).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let predictions = batch.column_by_name("prediction").unwrap();
            let predictions = predictions.as_fixed_size_list();
            assert_eq!(predictions.value_length(), 3);
            rows += batch.num_rows();
        }
    }
    assert_eq!(rows, 6);
}

#[test]
fn a_newer_state_may_lack_series_that_began_with_facts() {
    let directory = tempfile::tempdir().unwrap();
    let steps = "- lag: { columns: [qty], by: [1d, 3d] }";
    let training = "strategy: per_step, dense: [qty_lag_1d, qty_lag_3d]";
    let trees = train_forecaster(&directory, steps, training);
    let server = TestServer::of(directory, trees, limits());
    let first = server.service.versions.ids();
    let body = r#"{ "rows": [{ "item": "i9", "day": "2024-03-05", "qty": 1000 }] }"#;
    let request = Request::post("/rows").body(Body::from(body)).unwrap();
    assert_eq!(server.call(request).status, 200);
    let first_answer = json_of(&server.call(online_request(&["i9"])));
    // The next run has a day more of the others, and no row of the new series.
    let path = server.directory.path().join("sales.csv");
    let mut rows = std::fs::read_to_string(&path).unwrap();
    for item in 0..3 {
        writeln!(rows, "2024-02-29,i{item},1001.5").unwrap();
    }
    std::fs::write(&path, rows).unwrap();
    run_forecaster(&server.directory);
    server.service.follow();
    assert_eq!(server.switches("refused"), 0);
    assert_ne!(server.service.versions.ids(), first);
    let moved = json_of(&server.call(online_request(&["i9"])));
    assert_eq!(
        moved["results"][2]["values"],
        first_answer["results"][2]["values"]
    );
}

#[test]
fn models_of_all_steps_answer_series_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let lags = "- lag: { columns: [qty], by: [3d] }";
    let trees = train_forecaster(&directory, lags, "dense: [qty_lag_3d]");
    let options = ServeOptions {
        forecast: true,
        ..serve_options(&directory, trees, limits())
    };
    let server = TestServer::with_options(directory, options);
    let body = r#"{ "rows": [{ "item": "i2" }] }"#;
    let request = Request::post("/apply").body(Body::from(body)).unwrap();
    let answer = json_of(&server.call(request));
    assert_eq!(answer["rows"][0]["step"], serde_json::json!([1, 2, 3]));
    let predictions = answer["rows"][0]["prediction"].as_array().unwrap();
    assert!(predictions.iter().all(Value::is_f64), "{predictions:?}");
}

#[test]
fn transformed_targets_are_answered_in_the_units_of_the_rows() {
    let directory = tempfile::tempdir().unwrap();
    let steps = "- target: { column: qty, do: [log1p] }\n      - lag: { columns: [qty], by: [3d] }";
    let trees = train_forecaster(&directory, steps, "dense: [qty_lag_3d]");
    let server = TestServer::of(directory, trees, limits());
    let answer = json_of(&server.call(items_request(&["i0", "i1"])));
    let outputs = answer["outputs"].as_array().unwrap();
    let prediction = outputs.iter().find(|output| output["name"] == "prediction");
    let predictions = prediction.unwrap()["data"].as_array().unwrap();
    assert_eq!(predictions.len(), 6);
    for prediction in predictions {
        let prediction = prediction.as_f64().unwrap();
        assert!((900.0..1100.0).contains(&prediction), "{prediction}");
    }
}
