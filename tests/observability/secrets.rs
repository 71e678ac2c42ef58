//! Secrets stay where they are used: in requests to the service that they are for. Here they are planted in every place
//! that takes one, and everything that the program prints, logs, writes and sends elsewhere is searched for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::web_recorder::WebRecorder;
use crate::support::{ProgramOutput, TestDirectory};

/// The word in every planted secret.
const PLANTED: &str = "planted-";

/// A key of a service account, as Google hands it out.
const GOOGLE_KEY: &str = r#"{"type": "service_account", "client_email": "a@b", "private_key_id": "planted-31",
"private_key": "-----BEGIN PRIVATE KEY-----\nplanted-32\n-----END PRIVATE KEY-----\n"}"#;

/// Variables that hold nothing but a secret.
const VARIABLES: [(&str, &str); 22] = [
    ("AWS_SESSION_TOKEN_OF_ANOTHER_PROGRAM", "planted-01"),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "planted-02"),
    ("AZURE_STORAGE_ACCOUNT_KEY", "cGxhbnRlZC0wMw=="),
    ("AZURE_STORAGE_SAS_TOKEN", "sv=2022&sig=planted-04"),
    ("AZURE_CLIENT_SECRET", "planted-05"),
    ("AZURE_STORAGE_TOKEN", "planted-06"),
    ("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY),
    ("MLFLOW_TRACKING_USERNAME", "planted-08"),
    ("MLFLOW_TRACKING_PASSWORD", "planted-09"),
    ("MLFLOW_TRACKING_TOKEN", "planted-10"),
    ("OPENLINEAGE_API_KEY", "planted-11"),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=Bearer%20planted-12",
    ),
    ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=planted-13"),
    (
        "FOREBAY_TOKEN",
        "planted-14-planted-14-planted-14-planted-14",
    ),
    ("HTTP_PROXY", "http://planted-15:planted-16@127.0.0.1:9"),
    ("HTTPS_PROXY", "http://planted-17:planted-18@127.0.0.1:9"),
    ("http_proxy", "http://planted-19:planted-20@127.0.0.1:9"),
    ("https_proxy", "http://planted-21:planted-22@127.0.0.1:9"),
    ("ALL_PROXY", "http://planted-23:planted-24@127.0.0.1:9"),
    ("NO_PROXY", "127.0.0.1,localhost"),
    ("no_proxy", "127.0.0.1,localhost"),
    ("RUST_LOG", "debug"),
];

/// A URL with a user and a password in it.
fn with_user(url: &str, number: u32) -> String {
    url.replace(
        "://",
        &format!("://planted-{number}-user:planted-{number}-word@"),
    )
}

fn plant(command: &mut Command) {
    command.envs(VARIABLES);
    command
        .env("FOREBAY_RETRY_SECONDS", "0")
        .env("AWS_MAX_ATTEMPTS", "2");
}

/// Fails if a text holds a planted secret.
#[track_caller]
fn expect_none(text: &str, origin: &str) {
    let Some(position) = text.find(PLANTED).or_else(|| text.find("cGxhbnRlZC0wMw==")) else {
        return;
    };
    let around: String = text[..position].chars().rev().take(200).collect();
    let around: String = around.chars().rev().collect();
    panic!(
        "{origin} shows {}: ...{around}",
        &text[position..(position + 12).min(text.len())]
    );
}

#[track_caller]
fn expect_none_printed(call: &ProgramOutput, origin: &str) {
    expect_none(&call.stdout, &format!("the output of {origin}"));
    expect_none(&call.stderr, &format!("the log of {origin}"));
}

/// Searches all files below a directory, hidden ones too.
fn expect_none_below(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            expect_none_below(&path);
        } else if let Ok(bytes) = std::fs::read(&path) {
            expect_none(
                &String::from_utf8_lossy(&bytes),
                &path.display().to_string(),
            );
        }
    }
}

/// A job with everything that runs tell others: a training that is tracked, rules, a deadline with a webhook.
fn spec(webhook: &str) -> String {
    format!(
        "version: 1\nname: planted\nsources:\n  demand: {{ parquet: {{ path: \"s3://lake/demand\" }}, time: date, \
         keys: [store_id, item_id] }}\nsteps:\n  f:\n    from: demand\n    do:\n      - filter: \"qty IS NOT NULL AND price IS NOT NULL\"\n      \
         - profile: {{}}\n      - standardize: {{ columns: [price] }}\nsinks:\n  t: {{ from: f, parquet: {{ path: out }} }}\n  \
         u: {{ from: f, csv: {{ path: \"s3://lake/rows\" }} }}\n  net: {{ from: f, train: {{ path: net, model: linear, \
         label: qty, dense: [price], epochs: 1, batch_rows: 256 }} }}\ndeadline: {{ by: 1s, webhook: \"{webhook}\" }}\n"
    )
}

#[test]
fn secrets_are_sent_to_their_services_alone() {
    let (shop, server) = S3Server::over_demand();
    let answers = |_: &crate::support::web_recorder::RecordedRequest| (200, "{}".to_owned());
    let services = [(); 4].map(|()| WebRecorder::start(answers));
    let [mlflow, lineage, traces, hook] = &services;
    // A webhook's secret is its path.
    let webhook = format!("{}/services/planted-40?token=planted-41", hook.url);
    shop.write("spec.yaml", &spec(&webhook));
    let run = |args: &[&str], code: Option<i32>| {
        let mut command = server.command(&shop, args);
        plant(&mut command);
        command
            .env("AWS_ENDPOINT_URL", with_user(&server.endpoint, 50))
            .env("MLFLOW_TRACKING_URI", with_user(&mlflow.url, 51))
            .env("OPENLINEAGE_URL", with_user(&lineage.url, 52))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", with_user(&traces.url, 53));
        let call = ProgramOutput::from(command.watched());
        if let Some(code) = code {
            assert_eq!(
                call.code, code,
                "{args:?}\n{}\n{}",
                call.stdout, call.stderr
            );
        }
        expect_none_printed(&call, &format!("{args:?}"));
    };
    run(&["check", "spec.yaml"], Some(0));
    run(&["explain", "spec.yaml"], Some(0));
    run(&["explain", "spec.yaml", "--json"], None);
    run(
        &[
            "run",
            "spec.yaml",
            "--json",
            "--metrics-file=metrics.prom",
            "--report=run.html",
        ],
        Some(0),
    );
    run(
        &[
            "run",
            "spec.yaml",
            "--lineage=lineage.json",
            "--state=other",
        ],
        Some(0),
    );
    run(
        &[
            "run",
            "spec.yaml",
            "--local-workers=1",
            "--memory=512MiB",
            "--state=s3://lake/state",
        ],
        Some(0),
    );
    run(&["preview", "spec.yaml"], Some(0));
    run(&["profile", "spec.yaml", "--report=profile.html"], Some(0));
    run(&["report", "spec.yaml", "report.html"], Some(0));
    run(&["show", "--pipeline=planted"], Some(0));
    run(&["doctor"], None);
    std::fs::remove_file(shop.path("spec.yaml")).unwrap();
    expect_none_below(&shop.path(""));
    // What services are told of runs, but for what proves to them who sends it.
    for (service, name) in services
        .iter()
        .zip(["MLflow", "OpenLineage", "traces", "the webhook"])
    {
        for request in service.requests() {
            expect_none(
                &String::from_utf8_lossy(&request.body),
                &format!("a message to {name}"),
            );
        }
    }
    assert!(!lineage.requests().is_empty(), "no lineage was sent");
    assert!(!traces.requests().is_empty(), "no traces were sent");
}

/// Stores and services that cannot be reached are named without the secrets in their addresses.
#[test]
fn faults_show_no_secrets() {
    let shop = TestDirectory::new();
    // Port 9 of this machine refuses connections.
    let dead = "http://127.0.0.1:9";
    let sources = [
        "s3://bucket/data",
        "gs://bucket/data",
        "az://container/data",
        "https://127.0.0.1:9/a.csv?sig=planted-60",
        "https://planted-61:planted-62@127.0.0.1:9/a.csv",
        "s3://planted-63:planted-64@bucket/data",
        "http://127.0.0.1:9/planted.csv",
    ];
    for source in sources {
        let kind = if source.contains(".csv") {
            "csv"
        } else {
            "parquet"
        };
        let text = format!(
            "version: 1\nname: s\nsources: {{ a: {{ {kind}: {{ path: \"{source}\" }} }} }}\n\
             sinks: {{ t: {{ from: a, parquet: {{ path: out }} }} }}\n"
        );
        shop.write("spec.yaml", &text);
        let calls: [&[&str]; 6] = [
            &["check", "spec.yaml"],
            &["run", "spec.yaml", "--json"],
            &[
                "run",
                "spec.yaml",
                "--traces=http://planted-65:planted-66@127.0.0.1:9",
            ],
            &[
                "run",
                "spec.yaml",
                "--mlflow=http://planted-67:planted-68@127.0.0.1:9",
            ],
            &["profile", source],
            &["doctor"],
        ];
        for args in calls {
            let mut command = shop.command(args);
            plant(&mut command);
            command
                .env("AWS_ENDPOINT_URL", with_user(dead, 70))
                .env("AWS_ACCESS_KEY_ID", "key")
                .env("AWS_SECRET_ACCESS_KEY", "planted-71")
                .env("GOOGLE_BASE_URL", with_user(dead, 72))
                .env("AZURE_STORAGE_ACCOUNT_NAME", "account")
                .env("AZURE_STORAGE_ENDPOINT", with_user(dead, 73))
                .env("MLFLOW_TRACKING_URI", with_user(dead, 74))
                .env("OPENLINEAGE_URL", with_user(dead, 75))
                .env("OTEL_EXPORTER_OTLP_ENDPOINT", with_user(dead, 76));
            let call = ProgramOutput::from(command.watched());
            expect_none_printed(&call, &format!("{args:?}"));
        }
    }
    std::fs::remove_file(shop.path("spec.yaml")).unwrap();
    expect_none_below(&shop.path(""));
}

const SMALL: &str = "version: 1\nname: small\nsources: { days: { csv: { path: a.csv } } }\n\
                     steps: { scaled: { from: days, do: [ standardize: { columns: [price] } ] } }\n\
                     sinks: { table: { from: scaled, parquet: { path: out } } }\n";

/// The token and the lines of the private key of a cluster.
fn secrets_of(token: &str, key: &str) -> Vec<String> {
    let lines = key.lines().filter(|line| !line.contains("PRIVATE KEY"));
    let secrets = lines.chain([token.trim()]).map(str::to_owned);
    secrets.filter(|secret| secret.len() >= 16).collect()
}

#[track_caller]
fn expect_no_secret(secrets: &[String], text: &str, origin: &str) {
    for secret in secrets {
        assert!(!text.contains(secret.as_str()), "{origin} shows a secret");
    }
}

/// Searches all files below a directory but for those of the credentials themselves.
fn expect_no_secret_below(secrets: &[String], directory: &Path, credentials: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path == credentials {
            continue;
        }
        if path.is_dir() {
            expect_no_secret_below(secrets, &path, credentials);
        } else if let Ok(bytes) = std::fs::read(&path) {
            let text = String::from_utf8_lossy(&bytes);
            expect_no_secret(secrets, &text, &path.display().to_string());
        }
    }
}

/// Starts a process whose log goes to a file, and returns its first line.
fn start_logged(shop: &TestDirectory, mut command: Command, log: &str) -> (Child, String) {
    let log = std::fs::File::create(shop.path(log)).unwrap();
    let mut child = command
        .env("RUST_LOG", "debug")
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    // The process goes on when nothing reads what it prints.
    std::mem::forget(output);
    (child, line.trim().to_owned())
}

fn end(mut child: Child) {
    let id = child.id().to_string();
    let status = Command::new("kill").args(["-TERM", &id]).status();
    assert!(status.unwrap().success());
    child.wait().unwrap();
}

/// The answer to a request over a connection of its own.
fn request(address: &str, head: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{head} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Credentials between processes: of workers, of a server of rows, and of workers that a launcher starts.
#[test]
fn tokens_and_keys_of_processes_are_shown_nowhere() {
    let shop = TestDirectory::new();
    shop.write("a.csv", "price,day\n1,2020-01-01\n2,2020-01-02\n");
    shop.write("small.yaml", SMALL);
    let call = shop.forebay(&["certificates", "ours"]).expect(0);
    let read = |name: &str| std::fs::read_to_string(shop.path(name)).unwrap();
    let secrets = secrets_of(&read("ours/token"), &read("ours/key.pem"));
    assert!(secrets.len() >= 3);
    let mut printed = vec![("certificates", call.stdout + &call.stderr)];

    let credentials = [
        "--token-file=ours/token",
        "--tls-ca=ours/ca.pem",
        "--tls-cert=ours/cert.pem",
        "--tls-key=ours/key.pem",
    ];
    let mut worker = shop.command(&["worker", "--listen=127.0.0.1:0", "--threads=1"]);
    worker.arg("--memory=128MiB").args(credentials);
    let (worker, line) = start_logged(&shop, worker, "worker.log");
    let workers = format!("--workers={}", line.strip_prefix("listening at ").unwrap());
    let mut run = shop.command(&["run", "small.yaml", "--json", "--state=state", &workers]);
    run.args(credentials)
        .args(["--tls-name=forebay-run", "--memory=256MiB"])
        .env("RUST_LOG", "debug");
    let call = ProgramOutput::from(run.watched()).expect(0);
    let artifact = call.summary()["artifact_path"].as_str().unwrap().to_owned();
    printed.push(("a run on workers", call.stdout + &call.stderr));
    end(worker);

    let mut server = shop.command(&["serve", &artifact, "--listen=127.0.0.1:0", "--log=rows"]);
    server.args(["--token-file=ours/token", "--log-share=100%"]);
    let (server, line) = start_logged(&shop, server, "server.log");
    let (_, address) = line.rsplit_once(' ').unwrap();
    let token = read("ours/token");
    let body = r#"{"rows": [{"price": 1, "day": "2020-01-01"}]}"#;
    for (head, token) in [
        ("POST /apply", token.trim()),
        ("POST /apply", "planted-80"),
        ("POST /apply?token=planted-81", token.trim()),
        ("GET /metrics", token.trim()),
        ("GET /planted-82", token.trim()),
        ("GET /openapi.json", token.trim()),
    ] {
        let answer = request(address, head, token, body);
        assert!(answer.starts_with("HTTP/1.1 "), "{head}: {answer}");
        expect_no_secret(&secrets, &answer, head);
        assert!(!answer.contains("planted-80") && !answer.contains("planted-81"));
    }
    end(server);
    expect_none(&read("server.log"), "the log of a server");

    let mut pages = shop.command(&["ui", "--listen=127.0.0.1:0", "--state=state"]);
    pages.arg("--token-file=ours/token");
    let (pages, line) = start_logged(&shop, pages, "pages.log");
    let (_, address) = line.rsplit_once("http://").unwrap();
    for (head, token) in [
        ("GET /", token.trim()),
        ("GET /", "planted-83"),
        ("GET /?token=planted-84", token.trim()),
        ("GET /planted-85", "planted-86"),
    ] {
        let answer = request(address, head, token, "");
        assert!(answer.starts_with("HTTP/1.1 "), "{head}: {answer}");
        expect_no_secret(&secrets, &answer, head);
        for number in [83, 84, 86] {
            let planted = format!("planted-{number}");
            assert!(!answer.contains(&planted), "{head}: {answer}");
        }
    }
    end(pages);
    expect_none(&read("pages.log"), "the log of the pages");
    for (origin, text) in &printed {
        expect_no_secret(&secrets, text, origin);
    }
    expect_no_secret_below(&secrets, &shop.path(""), &shop.path("ours"));

    // A launcher that takes the credentials of a run and starts nothing.
    std::fs::create_dir(shop.path("bin")).unwrap();
    let launcher = "#!/bin/sh\nread -r line\nprintf '%s' \"$line\" > captured\n\
                    echo '{\"end\": \"no room\"}'\ncat > /dev/null\n";
    shop.write("bin/python3", launcher);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(shop.path("bin/python3"), mode).unwrap();
    let path = std::env::var("PATH").unwrap();
    let args = [
        "run",
        "small.yaml",
        "--json",
        "--state=other",
        "--grace-seconds=1",
    ];
    let mut run = shop.command(&args);
    run.arg("--on=ray://head:10001?workers=2")
        .args(["--memory=256MiB", "--report=run.html"])
        .env("PATH", format!("{}:{path}", shop.at("bin")))
        .env("RUST_LOG", "debug");
    let call = ProgramOutput::from(run.watched());
    let captured: Value = serde_json::from_str(&read("captured")).unwrap();
    let credentials = captured["credentials"].as_str().unwrap();
    let credentials: Value = serde_json::from_str(credentials).unwrap();
    let part = |name: &str| credentials[name].as_str().unwrap().to_owned();
    let secrets = secrets_of(&part("token"), &part("key"));
    assert!(secrets.len() >= 3);
    expect_no_secret(&secrets, &(call.stdout + &call.stderr), "run --on");
    expect_no_secret_below(&secrets, &shop.path(""), &shop.path("captured"));
}
