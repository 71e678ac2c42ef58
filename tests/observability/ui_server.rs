//! `forebay ui`: the pages of the runs of a state directory, over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::s3_server::S3Server;
use crate::support::{TestDirectory, content};

const SPEC: &str = r#"
version: 1
name: looked_at
sources:
  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - expect: [{ sql: "qty < 1000" }, { rows: { min: 1000000 }, policy: warn }]
      - standardize: { columns: [price] }
sinks: { out: { from: features, parquet: { path: out } } }
"#;

/// Time after which a server that does not answer has failed.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A server that ends with this.
struct UiServer {
    child: Child,
    address: String,
}

impl Drop for UiServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl UiServer {
    fn start(shop: &TestDirectory, args: &[&str]) -> UiServer {
        UiServer::of_command(shop.command(&[&["ui"], args].concat()))
    }

    fn of_command(mut command: Command) -> UiServer {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().rsplit(':').next().unwrap().to_owned();
        UiServer {
            child,
            address: format!("127.0.0.1:{port}"),
        }
    }

    /// The answer to a request, with its head, and with `/` as it is.
    fn answer(&self, request: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        write!(
            stream,
            "{request} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.replace("&#x2f;", "/")
    }

    fn get(&self, path: &str) -> String {
        self.answer(&format!("GET {path}"), "Host: localhost\r\n")
    }
}

/// The first link of a page that begins so.
fn link(page: &str, start: &str) -> String {
    let start = format!("href=\"{start}");
    let (_, behind) = page.split_once(&start).unwrap_or_else(|| panic!("{page}"));
    let end = behind.split('"').next().unwrap();
    format!("{}{end}", start.trim_start_matches("href=\""))
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}

#[test]
fn the_runs_of_a_state_directory_have_pages() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write("spec.yaml", SPEC);
    shop.forebay(&["run", "spec.yaml", "--state=state"])
        .expect(0);
    shop.forebay(&[
        "run",
        "spec.yaml",
        "--state=state",
        "--run-id=second",
        "--report=second.html",
    ])
    .expect(0);
    let broken = SPEC.replace("qty < 1000", "qty < 1");
    shop.write("broken.yaml", &broken);
    shop.forebay(&["run", "broken.yaml", "--state=state"])
        .expect(65);
    let rows = forebay::present::units::grouped(shop.visible("out").num_rows() as u64);

    let mut server = UiServer::start(&shop, &["--state=state", "--listen=127.0.0.1:0"]);
    let index = server.get("/");
    assert_contains(
        &index,
        &[
            "200 OK",
            "content-security-policy: default-src 'none'",
            "No run goes on",
            "looked_at",
            "nothing new",
            "failed",
            &rows,
            "Seconds, by run",
        ],
    );
    // The pipeline, and its latest run, which failed.
    let pipeline = server.get(&link(&index, "/pipelines/"));
    assert_contains(&pipeline, &["200 OK", "Rows, by run", "1 of 2"]);
    let failed = server.get(&link(&pipeline, "/runs/"));
    assert_contains(
        &failed,
        &[
            "200 OK",
            "Why it failed",
            "FB0216",
            "Rules that do not hold",
        ],
    );
    assert!(!failed.contains("nothing new"), "{failed}");
    // The first run is the last one of the table.
    let (_, last) = pipeline.rsplit_once("href=\"/runs/").unwrap();
    let first = server.get(&format!("/runs/{}", last.split('"').next().unwrap()));
    assert_contains(
        &first,
        &[
            "complete",
            &rows,
            "rows: at least 1000000",
            "Passes",
            "Memory",
        ],
    );
    // The second run has written a page, which runs with the script of the server.
    let (report, _) = pipeline.split_once("/report\"").unwrap();
    let (_, report) = report.rsplit_once("href=\"").unwrap();
    let report = format!("{report}/report");
    let parts = ["200 OK", "found nothing new", "<script src=\"/page.js\""];
    assert_contains(&server.get(&report), &parts);
    std::fs::write(shop.path("second.html"), "of another program").unwrap();
    let parts = ["404 Not Found", "second.html"];
    assert_contains(&server.get(&report), &parts);
    let graph = server.get("/pipelines/looked_at/graph");
    let price = "data-sink=\"sink out\" data-origins=\"[[&quot;demand&quot;,&quot;price&quot;]]\"";
    assert_contains(&graph, &["200 OK", "(parquet)", "<svg", price]);
    let rows_of_features = "/pipelines/looked_at/steps/features";
    assert_contains(&graph, &[rows_of_features]);
    for path in [rows_of_features, "/pipelines/looked_at/steps/demand"] {
        let parts = ["200 OK", "The first 20 of ", "price", "class=\"spark\""];
        assert_contains(&server.get(path), &parts);
    }
    assert_contains(&server.get("/page.js"), &["200 OK", "text/javascript"]);
    steps_are_computed_on_demand(&shop, &server, &first, &rows);

    for path in [
        "/runs/0",
        "/runs/..%2f..%2fspec",
        "/pipelines/none",
        "/pipelines/none/graph",
        "/pipelines/none/steps/features",
        "/pipelines/looked_at/steps/none",
        "/pipelines/looked_at/steps/none/profile",
        "/runs/0/steps",
        "/runs/0/steps/features/profile",
        "/nowhere",
    ] {
        assert_contains(&server.get(path), &["404 Not Found", "Not here"]);
    }
    let post = server.answer("POST /", "Host: localhost\r\nContent-Length: 0\r\n");
    assert_contains(&post, &["405 Method Not Allowed"]);
    // The name of another site that leads to this machine.
    let stranger = server.answer("GET /", "Host: evil.example\r\n");
    assert_contains(&stranger, &["403 Forbidden"]);
    assert!(!stranger.contains("looked_at"), "{stranger}");

    // A connection that waits delays the end no longer than a few seconds.
    let _waiting = TcpStream::connect(&server.address).unwrap();
    let asked = Instant::now();
    let process = server.child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &process]).status();
    assert!(sent.unwrap().success());
    let mut status = None;
    while status.is_none() && asked.elapsed() < Duration::from_secs(8) {
        std::thread::sleep(Duration::from_millis(20));
        status = server.child.try_wait().unwrap();
    }
    assert_eq!(status.and_then(|status| status.code()), Some(0));
}

/// Rows and profiles of the steps of a run with this page, whose output has so many rows.
fn steps_are_computed_on_demand(
    shop: &TestDirectory,
    server: &UiServer,
    run_page: &str,
    rows: &str,
) {
    let state = shop.path("state");
    let state_before = content(&state);
    let steps = link(run_page, "/runs/");
    assert!(steps.ends_with("/steps"), "{steps}");
    let rows_of_run = format!("{steps}/features");
    let profile_of_run = format!("{rows_of_run}/profile");
    let list = server.get(&steps);
    assert_contains(&list, &["200 OK", "<svg", &rows_of_run, &profile_of_run]);
    let page = server.get(&rows_of_run);
    assert_contains(
        &page,
        &[
            "200 OK",
            "The first 20 of ",
            &profile_of_run,
            "the run begun at",
        ],
    );
    for path in [
        profile_of_run.as_str(),
        "/pipelines/looked_at/steps/features/profile",
        "/pipelines/looked_at/steps/demand/profile",
    ] {
        let profile_rows = format!("{rows} rows");
        let parts = [
            "200 OK",
            "the first 100,000 rows of each source",
            "class=\"column\"",
            "median",
            "price",
            &profile_rows,
        ];
        assert_contains(&server.get(path), &parts);
    }
    // The findings are those of the run: the standardized prices of all rows have the mean 0.
    assert_contains(&server.get(&profile_of_run), &["std 1"]);
    assert!(
        content(&state) == state_before,
        "the server writes into the state directory"
    );

    // Without its data or its artifact, a page says so.
    std::fs::rename(shop.path("data"), shop.path("moved")).unwrap();
    for path in [&rows_of_run, &profile_of_run] {
        let parts = ["200 OK", "Why the rows cannot be computed", "data"];
        assert_contains(&server.get(path), &parts);
    }
    std::fs::rename(shop.path("moved"), shop.path("data")).unwrap();
    let artifacts = state.join("artifacts");
    std::fs::rename(&artifacts, shop.path("artifacts")).unwrap();
    for path in [&steps, &rows_of_run, &profile_of_run] {
        assert_contains(
            &server.get(path),
            &["200 OK", "The run has left no artifact"],
        );
    }
    std::fs::rename(shop.path("artifacts"), &artifacts).unwrap();
}

#[test]
fn a_state_directory_in_a_bucket_has_pages() {
    let (shop, bucket) = S3Server::over_demand();
    let spec = SPEC
        .replace("path: data", "path: \"s3://lake/demand\"")
        .replace("path: out", "path: \"s3://lake/out\"");
    shop.write("spec.yaml", &spec);
    let state = "--state=s3://lake/state";
    bucket
        .forebay(&shop, &["run", "spec.yaml", state])
        .expect(0);
    let state_before = content(&shop.path("buckets/lake/state"));
    let server =
        UiServer::of_command(bucket.command(&shop, &["ui", state, "--listen=127.0.0.1:0"]));
    let index = server.get("/");
    assert_contains(&index, &["200 OK", "looked_at", "complete"]);
    let run = server.get(&link(&index, "/runs/"));
    assert_contains(&run, &["200 OK", "Passes"]);
    let steps = link(&run, "/runs/");
    for view in ["", "/profile"] {
        let page = server.get(&format!("{steps}/features{view}"));
        assert_contains(&page, &["200 OK", "price", "the run begun at"]);
    }
    assert!(
        content(&shop.path("buckets/lake/state")) == state_before,
        "the server writes into the bucket"
    );
}

#[test]
fn beyond_this_machine_pages_need_a_token() {
    let shop = TestDirectory::new();
    let call = shop.forebay(&["ui", "--listen=0.0.0.0:0"]);
    assert_ne!(call.code, 0);
    assert!(call.stderr.contains("--token-file"), "{}", call.stderr);

    shop.write("token", "open-sesame\n");
    let server = UiServer::start(&shop, &["--listen=0.0.0.0:0", "--token-file=token"]);
    // The password of the browser is the token: `me:open-sesame`.
    let cases = [
        ("", "401 Unauthorized"),
        ("Authorization: Bearer open\r\n", "401 Unauthorized"),
        ("Authorization: Bearer open-sesame\r\n", "200 OK"),
        ("Authorization: Basic bWU6b3Blbi1zZXNhbWU=\r\n", "200 OK"),
        ("Authorization: Basic bWU6b3Blbg==\r\n", "401 Unauthorized"),
    ];
    for (header, expected) in cases {
        for path in ["/", "/page.js"] {
            let headers = format!("Host: elsewhere\r\n{header}");
            let answer = server.answer(&format!("GET {path}"), &headers);
            assert_contains(&answer, &[expected]);
            if expected.starts_with("401") {
                assert_contains(&answer, &["www-authenticate: Basic"]);
                assert!(!answer.contains("<html"), "{answer}");
            }
        }
    }

    // The variable counts beyond this machine, where no file is given.
    for (listen, expected) in [("0.0.0.0:0", "401 Unauthorized"), ("127.0.0.1:0", "200 OK")] {
        let listen = format!("--listen={listen}");
        let mut command = shop.command(&["ui", &listen]);
        command.env("FOREBAY_TOKEN", "open-sesame");
        assert_contains(&UiServer::of_command(command).get("/"), &[expected]);
    }
}
