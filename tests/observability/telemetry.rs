//! What runs tell other systems: traces, lineage, the course of trainings, metrics of all commands.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

use forebay::run::{TrackedRun, TrackedTrainings, TrainingTracker};
use forebay::{Forebay, SessionOptions};
use prost::Message;
use serde_json::Value;

use crate::observability::prometheus_metrics::samples;
use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::web_recorder::{RecordedRequest, WebRecorder};
use crate::support::{ProgramOutput, TestDirectory, ready_made};
use crate::workers::runs::WorkerProcess;

const SPEC: &str = r#"
version: 1
name: told
sources:
  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id] }
steps:
  known:
    from: demand
    do: [profile: {}]
  features:
    from: known
    do:
      - expect: [{ not_null: [qty], policy: warn }, { rows: { min: 1 } }]
      - derive: { total: "qty * price" }
      - standardize: { columns: [price] }
sinks: { out: { from: features, parquet: { path: out } } }
"#;

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write("spec.yaml", SPEC);
    shop
}

fn run(mut command: Command) -> ProgramOutput {
    command.watched().into()
}

fn events(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The messages of OTLP, as far as they are looked at.
mod otlp {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct Request {
        #[prost(message, repeated, tag = "1")]
        pub resources: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub scopes: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ScopeSpans {
        #[prost(message, repeated, tag = "2")]
        pub spans: Vec<Span>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub trace: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub id: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub name: String,
        #[prost(int32, tag = "6")]
        pub kind: i32,
        #[prost(fixed64, tag = "7")]
        pub start: u64,
        #[prost(fixed64, tag = "8")]
        pub end: u64,
        #[prost(message, repeated, tag = "9")]
        pub attributes: Vec<KeyValue>,
        #[prost(message, optional, tag = "15")]
        pub status: Option<Status>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Status {
        #[prost(string, tag = "2")]
        pub message: String,
        #[prost(int32, tag = "3")]
        pub code: i32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct KeyValue {
        #[prost(string, tag = "1")]
        pub key: String,
        #[prost(message, optional, tag = "2")]
        pub value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct AnyValue {
        #[prost(string, optional, tag = "1")]
        pub text: Option<String>,
        #[prost(int64, optional, tag = "3")]
        pub integer: Option<i64>,
    }

    impl Span {
        pub fn text(&self, key: &str) -> Option<String> {
            let found = self
                .attributes
                .iter()
                .find(|attribute| attribute.key == key)?;
            found.value.clone()?.text
        }

        pub fn integer(&self, key: &str) -> Option<i64> {
            let found = self
                .attributes
                .iter()
                .find(|attribute| attribute.key == key)?;
            found.value.clone()?.integer
        }
    }
}

/// The spans that a collector got, after a check of what all of them have in common.
fn spans(collector: &WebRecorder) -> Vec<otlp::Span> {
    let mut spans = Vec::new();
    for request in collector.requests() {
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/v1/traces")
        );
        assert_eq!(
            request.header("content-type"),
            Some("application/x-protobuf")
        );
        for resource in otlp::Request::decode(request.body.as_slice())
            .unwrap()
            .resources
        {
            let names = resource.resource.unwrap().attributes;
            assert!(
                names.iter().any(|name| name.key == "service.name"),
                "{names:?}"
            );
            spans.extend(resource.scopes.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let trace = spans[0].trace.clone();
    assert_eq!(trace.len(), 16);
    for span in &spans {
        assert!(
            span.trace == trace && span.id.len() == 8 && span.start <= span.end,
            "{span:?}"
        );
    }
    spans
}

/// Whether a span lies in another one.
fn lies_in(spans: &[otlp::Span], span: &otlp::Span, parent: &str) -> bool {
    let parent = spans
        .iter()
        .find(|other| other.id == span.parent && other.name.starts_with(parent));
    parent.is_some_and(|parent| parent.start <= span.start && span.end <= parent.end)
}

#[test]
fn passes_tasks_and_requests_are_spans() {
    let (shop, server) = S3Server::over_demand();
    let collector = WebRecorder::start(|_| (200, String::new()));
    let spec = ready_made("demand.yaml");
    let places =
        ["history=s3://lake/demand", "out=s3://lake/out"].map(|place| format!("--param={place}"));
    let mut command = server.command(
        &shop,
        &[
            "run",
            &spec,
            &places[0],
            &places[1],
            "--state=s3://lake/state",
        ],
    );
    command
        .args(["--local-workers=1", "--memory=512MiB"])
        .arg(format!("--traces={}", collector.url));
    command.env(
        "TRACEPARENT",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    );
    command
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
        .env("OTEL_SERVICE_NAME", "night");
    run(command).expect(0);
    let requests = collector.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.header("api-key") == Some("a b")),
        "{:?}",
        requests[0].headers
    );
    let spans = spans(&collector);
    let (root, inner): (Vec<_>, Vec<_>) =
        spans.iter().partition(|span| span.name.starts_with("run "));
    assert_eq!(root.len(), 1);
    assert_eq!(root[0].trace[..4], [0x4b, 0xf9, 0x2f, 0x35]);
    assert_eq!(root[0].parent, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    let named = |name: &str| {
        inner
            .iter()
            .filter(|span| span.name.starts_with(name))
            .copied()
            .collect::<Vec<_>>()
    };
    let passes = [named("learn"), named("write")].concat();
    assert!(
        passes.len() > 1 && passes.iter().all(|pass| lies_in(&spans, pass, "run ")),
        "{passes:?}"
    );
    let tasks = named("task ");
    assert!(!tasks.is_empty());
    for task in &tasks {
        assert_eq!(
            task.text("forebay.task.outcome").as_deref(),
            Some("done"),
            "{task:?}"
        );
        assert!(
            lies_in(&spans, task, "learn") || lies_in(&spans, task, "write"),
            "{task:?}"
        );
    }
    let asked: Vec<_> = inner.iter().filter(|span| span.kind == 3).collect();
    let sum = |key: &str| {
        asked
            .iter()
            .filter_map(|span| span.integer(key))
            .sum::<i64>()
    };
    assert!(
        asked.iter().any(|span| span.name == "PUT") && asked.iter().any(|span| span.name == "GET")
    );
    assert!(sum("http.response.body.size") > 10_000 && sum("http.request.body.size") > 10_000);
    for span in &asked {
        let path = span.text("url.path").unwrap();
        assert!(path.contains("lake") && !path.contains('?'), "{path}");
        assert!(
            span.integer("http.response.status_code").is_some(),
            "{span:?}"
        );
    }
    // What the worker asks for lies in the spans of its tasks, which lie in those of the coordinator.
    let work = named("work ");
    let of_worker: Vec<_> = asked
        .iter()
        .filter(|span| work.iter().any(|work| work.id == span.parent))
        .collect();
    for span in &of_worker {
        let own = work.iter().find(|work| work.id == span.parent).unwrap();
        assert!(
            own.start <= span.start && tasks.iter().any(|task| task.id == own.parent),
            "{span:?}"
        );
    }
    let reads = of_worker.iter().filter(|span| {
        let is_history = span.text("url.path").unwrap().contains("lake/demand/");
        span.name == "GET" && is_history && span.text("http.request.header.range").is_some()
    });
    assert!(reads.count() >= 2, "{of_worker:?}");
    let states = of_worker.iter().filter(|span| {
        span.name == "PUT" && span.text("url.path").unwrap().contains("lake/state/")
    });
    assert!(
        states.count() >= tasks.len(),
        "each task keeps what it has learned or written"
    );
    let known: Vec<_> = [&work[..], &passes, &tasks]
        .concat()
        .iter()
        .map(|span| span.id.clone())
        .collect();
    let orphans = asked
        .iter()
        .filter(|span| !known.contains(&span.parent) && span.parent != root[0].id);
    assert_eq!(orphans.count(), 0, "each request lies in a span");
}

#[test]
fn what_workers_do_lies_in_the_tasks_of_the_coordinator() {
    let shop = shop();
    let collector = WebRecorder::start(|_| (200, String::new()));
    let other = WebRecorder::start(|_| (200, String::new()));
    let traces = format!("--traces={}", collector.url);
    let mut worker = WorkerProcess::start(&shop, &[&traces], &[]);
    let run = |more: &[&str]| {
        let args = [
            "run",
            "spec.yaml",
            "--workers",
            &worker.address,
            "--memory=256MiB",
        ];
        shop.forebay(&[&args[..], more].concat()).expect(0);
    };
    run(&[&traces]);
    // Of a coordinator that does not trace, nothing is told.
    run(&["--state=untold"]);
    worker.signal("-TERM");
    assert_eq!(worker.end(), 0);
    let spans = spans(&collector);
    let named = |name: &str| {
        spans
            .iter()
            .filter(|span| span.name.starts_with(name))
            .collect::<Vec<_>>()
    };
    let tasks = named("task ");
    let work = named("work ");
    assert!(
        !work.is_empty() && work.len() == tasks.len(),
        "{} tasks, {} of the worker",
        tasks.len(),
        work.len()
    );
    for span in work {
        let task = tasks
            .iter()
            .find(|task| task.id == span.parent)
            .unwrap_or_else(|| panic!("no task of {span:?}"));
        assert_eq!(task.name.replace("task ", "work "), span.name);
        assert!(task.start <= span.start && span.kind == 2, "{span:?}");
        assert_eq!(
            span.text("forebay.worker").as_deref(),
            Some(worker.address.as_str())
        );
        assert_eq!(span.text("forebay.task.outcome").as_deref(), Some("done"));
        assert!(
            lies_in(&spans, task, "learn") || lies_in(&spans, task, "write"),
            "{task:?}"
        );
    }
    let rows = |prefix: &str| {
        named(prefix)
            .iter()
            .filter_map(|span| span.integer("forebay.rows"))
            .sum::<i64>()
    };
    assert!(rows("work ") > 0 && rows("work ") == rows("task "));

    // A worker that does not trace does what it is told, and one whose collector is away does, too.
    for args in [&[][..], &["--traces=http://127.0.0.1:9"][..]] {
        let mut worker = WorkerProcess::start(&shop, args, &[]);
        let traces = format!("--traces={}", other.url);
        shop.remove_output("out");
        let call = [
            "run",
            "spec.yaml",
            "--workers",
            &worker.address,
            "--memory=256MiB",
            &traces,
            "--state=other",
        ];
        shop.forebay(&call).expect(0);
        worker.signal("-TERM");
        assert_eq!(worker.end(), 0);
        std::fs::remove_dir_all(shop.path("other")).unwrap();
    }
    shop.forebay(&["worker", "--listen=127.0.0.1:0", "--traces=nowhere"])
        .expect(78);
}

#[test]
fn a_trace_tells_of_a_failure_and_its_absence_fails_no_run() {
    let shop = shop();
    shop.write("spec.yaml", &SPEC.replace("min: 1 ", "min: 1000000 "));
    let collector = WebRecorder::start(|_| (200, String::new()));
    let mut command = shop.command(&["run", "spec.yaml"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url);
    run(command).expect(65);
    let spans = spans(&collector);
    let root = spans.iter().find(|span| span.name == "run told").unwrap();
    let status = root.status.clone().unwrap();
    assert!(
        status.code == 2 && status.message.contains("rows"),
        "{status:?}"
    );
    assert_eq!(root.text("error.type").as_deref(), Some("FB0216"));

    // No collector takes them.
    shop.write("spec.yaml", SPEC);
    let call = shop
        .forebay(&["run", "spec.yaml", "--traces=http://127.0.0.1:9", "--json"])
        .expect(0);
    let told = events(&call.stdout);
    let warnings = told
        .iter()
        .filter(|event| event["message"] == "the collector of traces cannot be reached");
    assert_eq!(warnings.count(), 1, "{}", call.stdout);
    shop.forebay(&["run", "spec.yaml", "--traces=nowhere"])
        .expect(78);
    let mut off = shop.command(&["run", "spec.yaml", "--json"]);
    off.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        .env("OTEL_SDK_DISABLED", "true");
    assert!(!run(off).expect(0).stdout.contains("collector"));
}

#[test]
fn lineage_names_inputs_outputs_and_where_columns_come_from() {
    let shop = shop();
    let mut command = shop.command(&[
        "run",
        "spec.yaml",
        "--lineage=told/events.jsonl",
        "--run-id=tonight",
    ]);
    command.env(
        "OPENLINEAGE_PARENT_ID",
        "airflow/nightly.features/0197a2c5-3b1c-7000-8000-000000000001",
    );
    command.env("OPENLINEAGE_NAMESPACE", "shops");
    let summary: ProgramOutput = run(command).expect(0);
    assert!(summary.stdout.contains("out:"), "{}", summary.stdout);
    let read = || events(&std::fs::read_to_string(shop.path("told/events.jsonl")).unwrap());
    let told = read();
    assert_eq!(
        told.iter()
            .map(|event| &event["eventType"])
            .collect::<Vec<_>>(),
        ["START", "COMPLETE"]
    );
    assert_eq!(told[0]["run"]["runId"], told[1]["run"]["runId"]);
    let complete = &told[1];
    assert_eq!(
        (&complete["job"]["namespace"], &complete["job"]["name"]),
        (&"shops".into(), &"told".into())
    );
    assert_eq!(
        complete["run"]["facets"]["parent"]["job"]["name"],
        "nightly.features"
    );
    let input = &complete["inputs"][0];
    assert_eq!(
        (&input["namespace"], &input["name"]),
        (&"file".into(), &shop.at("data").into())
    );
    let rows = shop.visible("out").num_rows();
    let quality = &input["inputFacets"]["dataQualityMetrics"];
    assert_eq!(quality["rowCount"], rows);
    assert_eq!(quality["columnMetrics"]["store_id"]["nullCount"], 0);
    assert!(
        quality["columnMetrics"]["price"]["quantiles"]["0.5"]
            .as_f64()
            .unwrap()
            > 0.0,
        "{quality}"
    );
    let rules = input["inputFacets"]["dataQualityAssertions"]["assertions"]
        .as_array()
        .unwrap();
    assert_eq!(rules.len(), 2, "{rules:?}");
    assert!(
        rules
            .iter()
            .any(|rule| rule["assertion"] == "not_null" && rule["column"] == "qty"),
        "{rules:?}"
    );
    let fields = input["facets"]["schema"]["fields"].as_array().unwrap();
    assert!(
        fields.iter().any(|field| field["name"] == "qty"),
        "{fields:?}"
    );
    let output = &complete["outputs"][0];
    assert_eq!(output["name"], shop.at("out"));
    assert_eq!(output["outputFacets"]["outputStatistics"]["rowCount"], rows);
    let origins = &output["facets"]["columnLineage"]["fields"]["total"]["inputFields"];
    let mut origins: Vec<&str> = origins
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["field"].as_str().unwrap())
        .collect();
    origins.sort_unstable();
    assert_eq!(origins, ["price", "qty"]);

    // One that fails, to a service; the same run has the same id.
    let service = WebRecorder::start(|_| (201, String::new()));
    shop.write("spec.yaml", &SPEC.replace("min: 1 ", "min: 1000000 "));
    let mut command = shop.command(&["run", "spec.yaml", "--run-id=tonight"]);
    command
        .env("OPENLINEAGE_URL", &service.url)
        .env("OPENLINEAGE_API_KEY", "secret");
    run(command).expect(65);
    let requests = service.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.path == "/api/v1/lineage")
    );
    assert!(
        requests
            .iter()
            .all(|request| request.header("authorization") == Some("Bearer secret"))
    );
    let told: Vec<Value> = requests.iter().map(RecordedRequest::json).collect();
    assert_eq!(
        told.iter()
            .map(|event| &event["eventType"])
            .collect::<Vec<_>>(),
        ["START", "FAIL"]
    );
    assert_eq!(told[0]["run"]["runId"], complete["run"]["runId"]);
    let message = told[1]["run"]["facets"]["errorMessage"]["message"]
        .as_str()
        .unwrap();
    assert!(
        message.starts_with("FB") && message.contains("rows"),
        "{message}"
    );
    let rules = told[1]["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
        .as_array()
        .unwrap();
    let held: Vec<bool> = rules
        .iter()
        .map(|rule| rule["success"].as_bool().unwrap())
        .collect();
    assert_eq!(held, [false, false], "{rules:?}");
}

/// Clicks, and a sink that trains.
const TRAINING: &str = r#"
version: 1
name: clicks
sources:
  clicks: { parquet: { path: clicks } }
steps:
  features:
    from: clicks
    fit_on: train
    do:
      - impute: { columns: [f1, f2], with: median }
      - standardize: { columns: [f1, f2] }
      - derive: { y: "CAST(3 * f1 - 2 * f2 + 1 AS REAL)" }
      - select: [f1, f2, y]
split: { by_hash: { keys: [f1], parts: { train: 0.8, validation: 0.2 } } }
sinks:
  net: { from: features, train: { path: net, label: y, model: linear, batch_rows: 512, epochs: 3, learning_rate: 0.1 } }
"#;

#[test]
fn trainings_write_event_files_for_tensorboard() {
    let shop = TestDirectory::new();
    shop.clicks("clicks", 400);
    shop.write("spec.yaml", TRAINING);
    let summary = shop
        .forebay(&["run", "spec.yaml", "--tensorboard=board", "--json"])
        .expect(0)
        .summary();
    let model = &summary["models"][0];
    let directory = shop
        .path("board/net")
        .join(&model["id"].as_str().unwrap()[..12]);
    let files: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1);
    assert!(
        files[0]
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("events.out.tfevents.")
    );
    let scalars = scalars(&std::fs::read(&files[0]).unwrap());
    let losses: Vec<f64> = scalars["epoch/loss"]
        .iter()
        .map(|(_, loss)| *loss)
        .collect();
    let expected = model["epochs"].as_array().unwrap();
    assert_eq!(losses.len(), 3);
    for (loss, epoch) in losses.iter().zip(expected) {
        assert!(
            (loss - epoch["loss"].as_f64().unwrap()).abs() <= 1e-6 * loss.abs(),
            "{loss} of {epoch}"
        );
    }
    let steps: Vec<i64> = scalars["validation/rmse"]
        .iter()
        .map(|(step, _)| *step)
        .collect();
    assert_eq!(
        steps,
        expected
            .iter()
            .map(|epoch| epoch["step"].as_i64().unwrap())
            .collect::<Vec<_>>()
    );

    // A training that an earlier run did is not told of again.
    shop.forebay(&["run", "spec.yaml", "--tensorboard=again"])
        .expect(0);
    assert!(!shop.path("again").exists());
}

/// The scalars of an event file by tag, with their steps, after a check of all records.
fn scalars(mut bytes: &[u8]) -> BTreeMap<String, Vec<(i64, f64)>> {
    #[derive(Clone, PartialEq, Message)]
    struct Event {
        #[prost(int64, tag = "2")]
        step: i64,
        #[prost(string, tag = "3")]
        version: String,
        #[prost(message, optional, tag = "5")]
        summary: Option<Summary>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Summary {
        #[prost(message, repeated, tag = "1")]
        values: Vec<Scalar>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Scalar {
        #[prost(string, tag = "1")]
        tag: String,
        #[prost(float, tag = "2")]
        value: f32,
    }
    let mut scalars: BTreeMap<String, Vec<(i64, f64)>> = BTreeMap::new();
    let mut version = None;
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let event = Event::decode(&bytes[12..12 + length]).unwrap();
        version.get_or_insert(event.version);
        for scalar in event.summary.into_iter().flat_map(|summary| summary.values) {
            scalars
                .entry(scalar.tag)
                .or_default()
                .push((event.step, f64::from(scalar.value)));
        }
        bytes = &bytes[length + 16..];
    }
    assert_eq!(version.as_deref(), Some("brain.Event:2"));
    scalars
}

/// A server that takes everything as one of MLflow does.
fn mlflow_server() -> WebRecorder {
    WebRecorder::start(|request| match request.path.split('?').next().unwrap() {
        "/api/2.0/mlflow/experiments/get-by-name" => (
            404,
            r#"{"error_code":"RESOURCE_DOES_NOT_EXIST"}"#.to_owned(),
        ),
        "/api/2.0/mlflow/experiments/create" => (200, r#"{"experiment_id":"7"}"#.to_owned()),
        "/api/2.0/mlflow/runs/create" => (200, r#"{"run":{"info":{"run_id":"r1"}}}"#.to_owned()),
        _ => (200, "{}".to_owned()),
    })
}

#[test]
fn trainings_are_tracked_in_mlflow() {
    let shop = TestDirectory::new();
    shop.clicks("clicks", 400);
    shop.write("spec.yaml", TRAINING);
    let server = mlflow_server();
    let mut command = shop.command(&["run", "spec.yaml", "--json", "--run-id=tonight"]);
    command
        .env("MLFLOW_TRACKING_URI", &server.url)
        .env("MLFLOW_EXPERIMENT_NAME", "nights & days");
    command.env("MLFLOW_TRACKING_TOKEN", "secret");
    let summary = run(command).expect(0).summary();
    let requests = server.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.header("authorization") == Some("Bearer secret"))
    );
    let asked = |path: &str| {
        let path = format!("/api/2.0/mlflow/{path}");
        let asked = requests
            .iter()
            .filter(move |request| request.path.split('?').next() == Some(&path));
        asked
            .map(|request| (request.path.clone(), request.json()))
            .collect::<Vec<_>>()
    };
    assert!(
        asked("experiments/get-by-name")[0]
            .0
            .ends_with("experiment_name=nights%20%26%20days")
    );
    assert_eq!(asked("experiments/create")[0].1["name"], "nights & days");
    let created = asked("runs/create").remove(0).1;
    assert_eq!(
        (&created["experiment_id"], &created["run_name"]),
        (&"7".into(), &"net".into())
    );
    let tags = |body: &Value| -> BTreeMap<String, String> {
        let tags = body["tags"].as_array().into_iter().flatten();
        tags.map(|tag| {
            (
                tag["key"].as_str().unwrap().to_owned(),
                tag["value"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
    };
    assert_eq!(tags(&created)["forebay.run_id"], "tonight");
    assert_eq!(
        tags(&created)["forebay.training"],
        summary["models"][0]["id"].as_str().unwrap()
    );
    let batches = asked("runs/log-batch");
    let all = |kind: &str| -> Vec<Value> {
        batches
            .iter()
            .flat_map(|(_, body)| body[kind].as_array().cloned().unwrap_or_default())
            .collect()
    };
    let parameters: BTreeMap<String, Value> = all("params")
        .into_iter()
        .map(|one| {
            (
                one["key"].as_str().unwrap().to_owned(),
                one["value"].clone(),
            )
        })
        .collect();
    assert_eq!(
        (&parameters["model"], &parameters["batch_rows"]),
        (&"linear".into(), &"512".into())
    );
    let metrics = all("metrics");
    let losses: Vec<&Value> = metrics
        .iter()
        .filter(|metric| metric["key"] == "epoch_loss")
        .collect();
    let expected = summary["models"][0]["epochs"].as_array().unwrap();
    assert_eq!(losses.len(), expected.len());
    for (loss, epoch) in losses.iter().zip(expected) {
        assert_eq!(
            (&loss["value"], &loss["step"]),
            (&epoch["loss"], &epoch["step"])
        );
    }
    assert_eq!(
        tags(&batches.last().unwrap().1)["forebay.artifact"],
        summary["artifact"].as_str().unwrap()
    );
    let ended = asked("runs/update").pop().unwrap().1;
    assert_eq!(
        (&ended["run_id"], &ended["status"]),
        (&"r1".into(), &"FINISHED".into())
    );

    // The spec names the server: it comes before the environment, and the model is the same.
    let named = format!(
        "batch_rows: 512, mlflow: {{ uri: \"{}\", experiment: of the spec }}",
        server.url
    );
    shop.write(
        "named.yaml",
        &TRAINING
            .replace("batch_rows: 512", &named)
            .replace("path: net", "path: tracked"),
    );
    let before = server.requests().len();
    let mut command = shop.command(&["run", "named.yaml", "--json", "--state=named"]);
    command
        .env("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        .env("MLFLOW_EXPERIMENT_NAME", "of the environment");
    let again = run(command).expect(0).summary();
    assert_eq!(again["models"][0]["id"], summary["models"][0]["id"]);
    let told = server.requests().split_off(before);
    let created = told
        .iter()
        .find(|request| request.path.ends_with("experiments/create"))
        .unwrap();
    assert_eq!(created.json()["name"], "of the spec");
    assert!(
        told.iter()
            .all(|request| !String::from_utf8_lossy(&request.body).contains("mlflow.uri"))
    );
    assert!(
        told.iter()
            .any(|request| request.path.ends_with("runs/update")),
        "{}",
        told.len()
    );
    // Tracked elsewhere, nothing is trained again, and so nothing is told.
    let before = server.requests().len();
    shop.forebay(&[
        "run",
        "named.yaml",
        "--mlflow-experiment=other",
        "--state=named",
    ])
    .expect(0);
    assert_eq!(server.requests().len(), before);
    let wrong = [
        (
            "mlflow: { uri: \"postgres://x\" }",
            "no http:// or https:// URL",
        ),
        (
            "mlflow: { uri: \"https://me:secret@mlflow/x\" }",
            "a spec holds no password",
        ),
        ("mlflow: { url: x }", "uri"),
    ];
    for (text, says) in wrong {
        shop.write(
            "wrong.yaml",
            &TRAINING.replace("batch_rows: 512", &format!("batch_rows: 512, {text}")),
        );
        let call = shop.forebay(&["check", "wrong.yaml"]).expect(78);
        assert!(call.stderr.contains(says), "{}", call.stderr);
    }
    // Nothing names a server.
    let text = "batch_rows: 512, seed: 3, mlflow: { experiment: x }";
    shop.write("nowhere.yaml", &TRAINING.replace("batch_rows: 512", text));
    let call = shop
        .forebay(&["run", "nowhere.yaml", "--state=nowhere", "--json"])
        .expect(0);
    assert!(
        call.stdout.contains("nothing names a server of MLflow"),
        "{}",
        call.stdout
    );

    // A server that is not there.
    let call = shop
        .forebay(&[
            "run",
            "spec.yaml",
            "--mlflow=http://127.0.0.1:9",
            "--state=other",
            "--json",
        ])
        .expect(0);
    assert!(
        call.stdout.contains("MLflow cannot be reached"),
        "{}",
        call.stdout
    );
}

#[test]
fn programs_track_trainings_as_their_specs_say() {
    let shop = TestDirectory::new();
    shop.clicks("clicks", 400);
    let server = mlflow_server();
    let tracked = format!(
        "batch_rows: 512, mlflow: {{ uri: \"{}\", experiment: of the spec }}",
        server.url
    );
    let spec = TRAINING
        .replace("batch_rows: 512", &tracked)
        .replace("path: clicks", &format!("path: {}", shop.at("clicks")));
    let begin = |number: usize| {
        let path = shop.write(
            "spec.yaml",
            &spec.replace(
                "path: net",
                &format!("path: {}", shop.at(&format!("net{number}"))),
            ),
        );
        let options = SessionOptions::default()
            .threads(2)
            .memory_bytes(512 << 20)
            .state(shop.at(&format!("state{number}")));
        let forebay = Forebay::new().with_options(options);
        let pipeline = forebay.read_spec(path, [] as [(&str, &str); 0]).unwrap();
        (forebay, pipeline)
    };
    let told = |before: usize, id: &str, status: &str| {
        let told = server.requests().split_off(before);
        let of = |path: &str| -> Vec<Value> {
            told.iter()
                .filter(|request| request.path.ends_with(path))
                .map(RecordedRequest::json)
                .collect()
        };
        assert_eq!(of("experiments/create")[0]["name"], "of the spec");
        let created = of("runs/create");
        assert!(
            created.len() == 1 && created[0]["tags"].to_string().contains(id),
            "{created:?}"
        );
        assert!(
            of("runs/log-batch")
                .iter()
                .any(|batch| batch.to_string().contains("epoch_loss"))
        );
        // When the run has ended, all is told.
        let updates = of("runs/update");
        assert_eq!(updates.last().unwrap()["status"], status);
    };
    let (forebay, pipeline) = begin(0);
    let report = forebay.run(&pipeline).unwrap();
    told(0, &report.models[0].id, "FINISHED");
    let (forebay, pipeline) = begin(1);
    let before = server.requests().len();
    let report = forebay.session().unwrap().run(&pipeline).unwrap();
    told(before, &report.models[0].id, "FINISHED");
    // A session of another program does with trainings what that likes.
    struct Silent;
    impl TrainingTracker for Silent {
        fn begin(&self, run: &TrackedRun<'_>) -> Option<Arc<dyn TrackedTrainings>> {
            assert_eq!(run.pipeline.trainings.len(), 1);
            None
        }
    }
    let (forebay, pipeline) = begin(2);
    let before = server.requests().len();
    forebay
        .session()
        .unwrap()
        .with_training_tracker(Arc::new(Silent))
        .run(&pipeline)
        .unwrap();
    assert_eq!(server.requests().len(), before);
}

fn scrape(address: &str) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    samples(answer.split_once("\r\n\r\n").unwrap().1)
}

#[test]
fn workers_feeds_and_backfills_have_metrics() {
    let shop = shop();
    let mut command = shop.command(&[
        "worker",
        "--listen=127.0.0.1:0",
        "--threads=1",
        "--memory=128MiB",
    ]);
    command.args(["--metrics=127.0.0.1:0", "--metrics-file=worker.prom"]);
    command
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(shop.path("worker.err")).unwrap());
    let mut worker = WorkerProcess::of(command);
    let told = std::fs::File::open(shop.path("worker.err")).unwrap();
    let line = BufReader::new(told).lines().next().unwrap().unwrap();
    let address = line
        .strip_prefix("metrics at http://")
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .unwrap();
    let before = scrape(address);
    assert_eq!(
        (
            before["forebay_worker_slots"],
            before["forebay_worker_tasks_total{outcome=\"done\"}"]
        ),
        (1.0, 0.0)
    );
    let args = [
        "run",
        "spec.yaml",
        "--workers",
        &worker.address,
        "--metrics-file=run.prom",
        "--memory=256MiB",
    ];
    shop.forebay(&args).expect(0);
    let after = scrape(address);
    let done = after["forebay_worker_tasks_total{outcome=\"done\"}"];
    assert!(
        done > 0.0 && after["forebay_worker_rows_read_total"] > 0.0,
        "{after:?}"
    );
    assert_eq!(after["forebay_worker_tasks_running"], 0.0);
    let read = |name: &str| samples(&std::fs::read_to_string(shop.path(name)).unwrap());
    let run = read("run.prom");
    assert_eq!(
        run["forebay_tasks_total{outcome=\"done\",pipeline=\"told\"}"],
        done
    );
    assert_eq!(run["forebay_tasks_running{pipeline=\"told\"}"], 0.0);
    worker.signal("-TERM");
    assert_eq!(worker.end(), 0);
    assert_eq!(
        read("worker.prom")["forebay_worker_tasks_total{outcome=\"done\"}"],
        done
    );

    let filter = "- filter: \"qty IS NOT NULL AND price IS NOT NULL\"\n      - standardize";
    let spec = SPEC
        .replace("- standardize", filter)
        .replace("path: out", "path: fed");
    shop.write(
        "feed.yaml",
        &format!("{spec}feed: {{ label: qty, batch_rows: 100, last: short }}\n"),
    );
    shop.forebay(&["run", "feed.yaml"]).expect(0);
    let rows = shop.visible("fed").num_rows() as f64;
    shop.forebay(&["feed", "feed.yaml", "--metrics-file=feed.prom", "--show=0"])
        .expect(0);
    let feed = read("feed.prom");
    assert_eq!(feed["forebay_feed_rows_total{pipeline=\"told\"}"], rows);
    assert_eq!(
        feed["forebay_feed_batches_total{pipeline=\"told\"}"],
        (rows / 100.0).ceil()
    );

    shop.write("spec.yaml", &SPEC.replace("path: out", "path: by_day"));
    let days = [
        "backfill",
        "spec.yaml",
        "--from=2016-05-10",
        "--to=2016-05-13",
    ];
    let more = [
        "--metrics-file=days.prom",
        "--lineage=days.jsonl",
        "--state=other",
    ];
    shop.forebay(&[&days[..], &more[..]].concat()).expect(0);
    let backfill = read("days.prom");
    assert_eq!(backfill["forebay_intervals{pipeline=\"told\"}"], 3.0);
    assert_eq!(backfill["forebay_run_success{pipeline=\"told\"}"], 1.0);
    let told = events(&std::fs::read_to_string(shop.path("days.jsonl")).unwrap());
    let starts: Vec<&Value> = told
        .iter()
        .map(|event| &event["run"]["facets"]["nominalTime"]["nominalStartTime"])
        .collect();
    let days = [
        "2016-05-10",
        "2016-05-10",
        "2016-05-11",
        "2016-05-11",
        "2016-05-12",
        "2016-05-12",
    ];
    assert_eq!(
        starts,
        days.map(|day| Value::from(format!("{day}T00:00:00Z")))
            .iter()
            .collect::<Vec<_>>()
    );
}
