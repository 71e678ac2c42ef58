//! The whole job on stores other than S3, and what is said where credentials are missing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::delta_log::{commits, sorted};
use crate::support::google_server::{
    AUDIENCE, GoogleServer, PUBLIC_BUCKET, SUBJECT_TOKEN, TOKEN, TOKEN_SECONDS,
};
use crate::support::request_failures::{ObservedRequest, RequestFailure, request_chance};
use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, content, ready_made};

/// The arguments of a run of `demand.yaml` on a bucket, which is given as in `gs://lake`.
fn bucket_args(bucket: &str) -> Vec<String> {
    let places = [
        "--param=history=B/demand",
        "--param=out=B/out",
        "--state=B/state",
    ];
    let mut args = vec!["run".to_owned(), ready_made("demand.yaml")];
    args.extend(["--json", "--memory=256MiB", "--threads=2"].map(str::to_owned));
    args.extend(places.map(|place| place.replace('B', bucket)));
    args
}

fn run(mut command: impl FnMut(&[&str]) -> Command, bucket: &str) -> ProgramOutput {
    let args = bucket_args(bucket);
    command(&args.iter().map(String::as_str).collect::<Vec<_>>())
        .watched()
        .into()
}

/// The summary and the rows of the job on local files.
fn local_result(shop: &TestDirectory, data: &str) -> Value {
    let params = [
        format!("--param=history={data}"),
        "--param=out=local".to_owned(),
    ];
    let args = [
        "run",
        &ready_made("demand.yaml"),
        "--json",
        "--memory=256MiB",
        &params[0],
        &params[1],
    ];
    shop.forebay(&args).expect(0).summary()
}

#[test]
fn sources_state_and_sinks_on_google_cloud_storage() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    shop.demand("buckets/lake/demand", 500);
    let server = GoogleServer::start(&shop.path("buckets"));
    let first = run(|args| server.command(&shop, args), "gs://lake")
        .expect(0)
        .summary();
    assert_eq!(first["nothing_new"], false);
    let again = run(|args| server.command(&shop, args), "gs://lake")
        .expect(0)
        .summary();
    assert_eq!(again["nothing_new"], true);
    assert!(server.tokens_given() >= 2, "{}", server.tokens_given());
    let local = local_result(&shop, &shop.at("buckets/lake/demand"));
    assert_eq!(local["artifact"], first["artifact"]);
    assert!(shop.visible("buckets/lake/out") == shop.rows("local"));
    for (name, bytes) in content(&shop.path("buckets")) {
        assert!(
            !String::from_utf8_lossy(&bytes).contains(TOKEN),
            "a token is in {name}"
        );
    }
    // A bucket of which nothing is known.
    let call = run(|args| server.command(&shop, args), "gs://nowhere").expect(78);
    assert!(
        call.stderr.contains("the bucket `nowhere` does not exist"),
        "{}",
        call.stderr
    );
}

/// A spec that copies a source to a sink.
fn table_spec(source: &str, sink: &str) -> String {
    format!(
        "version: 1\nname: table\nsources: {{ rows: {{ {source} }} }}\nsinks: {{ out: {{ from: rows, {sink} }} }}\n"
    )
}

/// Writes a Delta table on a store by two runs that add rows, and reads it back.
fn write_and_read_table(shop: &TestDirectory, bucket: &str, command: impl Fn(&[&str]) -> Command) {
    let table = format!("{bucket}/table");
    shop.write(
        "writes.yaml",
        &table_spec(
            "csv: { path: rows.csv }",
            &format!("delta: {{ path: \"{table}\", mode: append }}"),
        ),
    );
    shop.write(
        "reads.yaml",
        &table_spec(
            &format!("delta: {{ path: \"{table}\" }}"),
            "parquet: { path: read }",
        ),
    );
    let run = |file: &str| {
        ProgramOutput::from(command(&["run", file, "--json"]).watched())
            .expect(0)
            .summary()
    };
    for (rows, expected) in [("a\n1\n2\n", 2), ("a\n3\n", 3)] {
        shop.write("rows.csv", rows);
        run("writes.yaml");
        // The same run again adds nothing.
        run("writes.yaml");
        assert_eq!(run("reads.yaml")["outputs"][0]["rows"], expected);
    }
}

#[test]
fn a_table_on_google_cloud_storage_is_committed_once() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let server = GoogleServer::start(&shop.path("buckets"));
    // Commits are made, and their answers are lost.
    server.failures.inject_failures(|asked| {
        (asked.method != "GET" && asked.nth == 0).then_some(RequestFailure::Cut { landed: true })
    });
    write_and_read_table(&shop, "gs://lake", |args| server.command(&shop, args));
    assert!(server.failures.stop_failures() >= 6);
    assert_eq!(commits(&shop.path("buckets/lake/table")).len(), 2);
}

/// A way in which requests go wrong.
struct FailureCase {
    name: &'static str,
    /// How often it does at least, in a job that writes to the store.
    least: u64,
    rule: fn(&ObservedRequest) -> Option<RequestFailure>,
}

fn failure_cases() -> [FailureCase; 5] {
    let case = |name, least, rule| FailureCase { name, least, rule };
    [
        case("one of ten refused", 4, |asked| {
            (request_chance(5, asked) < 0.1).then_some(RequestFailure::Refused(503))
        }),
        case("every second refused", 20, |asked| {
            (request_chance(6, asked) < 0.5).then_some(RequestFailure::Refused(503))
        }),
        case("bodies cut", 10, |asked| {
            (asked.method == "GET" && (asked.nth == 0 || request_chance(7, asked) < 0.3))
                .then_some(RequestFailure::CutBody)
        }),
        case("connections refused", 4, |asked| {
            (request_chance(8, asked) < 0.2).then_some(RequestFailure::Cut { landed: false })
        }),
        case("answers of writes lost", 4, |asked| {
            (asked.method != "GET" && asked.nth == 0)
                .then_some(RequestFailure::Cut { landed: true })
        }),
    ]
}

#[test]
fn a_job_on_google_cloud_storage_survives_failures() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    shop.demand("buckets/lake/demand", 500);
    let server = GoogleServer::start(&shop.path("buckets"));
    let local = local_result(&shop, &shop.at("buckets/lake/demand"));
    let forget = || forget_results(&shop);
    for FailureCase { name, least, rule } in failure_cases() {
        forget();
        server.failures.inject_failures(rule);
        let call = run(|args| server.command(&shop, args), "gs://lake");
        let fired = server.failures.stop_failures();
        assert!(fired >= least, "{name}: only {fired} failures");
        assert_eq!(
            local["artifact"],
            call.expect(0).summary()["artifact"],
            "{name}"
        );
        assert!(
            shop.visible("buckets/lake/out") == shop.rows("local"),
            "{name}: other rows"
        );
    }
    // Failures without end: a fault that names the object, and nothing that readers see.
    for (method, part) in [
        ("GET", "demand"),
        ("PUT", "state"),
        ("PUT", "_data"),
        ("PUT", "_manifest.json"),
    ] {
        forget();
        server.failures.inject_failures(move |asked| {
            (asked.method == method && asked.target.contains(&encoded(part)))
                .then_some(RequestFailure::Refused(503))
        });
        let call = run(
            |args| few_attempts(server.command(&shop, args)),
            "gs://lake",
        )
        .expect(75);
        assert!(server.failures.stop_failures() >= 4, "{method} {part}");
        let fault = call.summary()["fault"].take();
        assert_eq!(fault["code"], "FB0401", "{method} {part}: {fault}");
        assert!(
            fault["file"].as_str().unwrap().contains("gs://lake/"),
            "{method} {part}: {fault}"
        );
        assert!(
            !shop.path("buckets/lake/out/_manifest.json").exists(),
            "{method} {part}"
        );
        let resumed = run(|args| server.command(&shop, args), "gs://lake")
            .expect(0)
            .summary();
        assert_eq!(local["artifact"], resumed["artifact"], "{method} {part}");
        assert!(
            shop.visible("buckets/lake/out") == shop.rows("local"),
            "{method} {part}"
        );
    }
    // An object that is replaced between its listing and its reading.
    forget();
    let mut days: Vec<_> = std::fs::read_dir(shop.path("buckets/lake/demand"))
        .unwrap()
        .map(|day| day.unwrap().path())
        .collect();
    days.sort();
    let victim = days[2].clone();
    let whole = std::fs::read(&days[2]).unwrap();
    let other = std::fs::read(&days[3]).unwrap();
    let name = victim.file_name().unwrap().to_str().unwrap().to_owned();
    let mut is_first = true;
    let key = encoded(&name);
    let victim_path = victim.clone();
    server.failures.inject_failures(move |asked| {
        let hit =
            asked.method == "GET" && asked.target.contains(&key) && std::mem::take(&mut is_first);
        let victim_path = victim_path.clone();
        let other = other.clone();
        hit.then(|| {
            RequestFailure::After(Box::new(move || {
                std::fs::write(victim_path, other).unwrap()
            }))
        })
    });
    let call = run(|args| server.command(&shop, args), "gs://lake").expect(75);
    assert_eq!(server.failures.stop_failures(), 1);
    let fault = call.summary()["fault"].take();
    assert_eq!(fault["code"], "FB0208", "{fault}");
    assert!(fault["file"].as_str().unwrap().ends_with(&name), "{fault}");
    assert!(!shop.path("buckets/lake/out/_manifest.json").exists());
    std::fs::write(&victim, &whole).unwrap();
    run(|args| server.command(&shop, args), "gs://lake").expect(0);
    assert!(shop.visible("buckets/lake/out") == shop.rows("local"));
}

/// A name as requests to Google's store have it.
fn encoded(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Removes output and state from the bucket `lake`.
fn forget_results(shop: &TestDirectory) {
    for dir in ["out", "state"] {
        let _ = std::fs::remove_dir_all(shop.path("buckets/lake").join(dir));
    }
}

/// The program with little patience.
fn few_attempts(mut command: Command) -> Command {
    command.env("AWS_MAX_ATTEMPTS", "4");
    command
}

#[test]
fn a_job_on_google_cloud_storage_survives_kills() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    shop.demand("buckets/lake/demand", 500);
    let server = GoogleServer::start(&shop.path("buckets"));
    let local = local_result(&shop, &shop.at("buckets/lake/demand"));
    for moment in [
        "put gs://lake/state/states",
        "have put gs://lake/state/states",
        "put gs://lake/out/_data",
        "have put gs://lake/state/passes",
        "put gs://lake/out/_manifest.json",
        "have put gs://lake/out/_manifest.json",
    ] {
        forget_results(&shop);
        let killed = |args: &[&str]| {
            let mut command = server.command(&shop, args);
            command.env("FOREBAY_KILL_ON", moment);
            command
        };
        let call = run(killed, "gs://lake");
        assert_eq!(
            call.code, -1,
            "{moment}: it was not killed: {}",
            call.stderr
        );
        let shown = shop.path("buckets/lake/out/_manifest.json").exists();
        assert_eq!(
            shown,
            moment.starts_with("have put gs://lake/out"),
            "{moment}"
        );
        assert!(
            !shown || shop.visible("buckets/lake/out") == shop.rows("local"),
            "{moment}"
        );
        let resumed = run(|args| server.command(&shop, args), "gs://lake")
            .expect(0)
            .summary();
        assert_eq!(local["artifact"], resumed["artifact"], "{moment}");
        assert!(
            shop.visible("buckets/lake/out") == shop.rows("local"),
            "{moment}"
        );
    }
}

#[test]
fn files_of_a_web_server_are_read() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets").join(PUBLIC_BUCKET)).unwrap();
    shop.demand(&format!("buckets/{PUBLIC_BUCKET}/demand"), 500);
    let server = GoogleServer::start(&shop.path("buckets"));
    let folder = shop.path("buckets").join(PUBLIC_BUCKET).join("demand");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let spec = |paths: &[String], out: &str| {
        let paths = serde_json::to_string(paths).unwrap();
        format!(
            "version: 1\nname: web\nsources: {{ demand: {{ parquet: {{ paths: {paths} }} }} }}\n\
             steps: {{ scaled: {{ from: demand, do: [ standardize: {{ columns: [price] }} ] }} }}\n\
             sinks: {{ table: {{ from: scaled, parquet: {{ path: {out} }} }} }}\n"
        )
    };
    let url = |name: &String| format!("http://{}/{PUBLIC_BUCKET}/demand/{name}", server.host);
    let local = |name: &String| folder.join(name).display().to_string();
    shop.write(
        "web.yaml",
        &spec(&names.iter().map(url).collect::<Vec<_>>(), "web"),
    );
    shop.write(
        "local.yaml",
        &spec(&names.iter().map(local).collect::<Vec<_>>(), "local"),
    );
    shop.forebay(&["run", "web.yaml"]).expect(0);
    shop.forebay(&["run", "local.yaml"]).expect(0);
    assert!(shop.rows("web") == shop.rows("local"));
    let patient = |attempts: &str| {
        let _ = std::fs::remove_dir_all(shop.path(".forebay"));
        for dir in ["web", ".web.forebay"] {
            let _ = std::fs::remove_dir_all(shop.path(dir));
        }
        let mut command = shop.command(&["run", "web.yaml", "--json"]);
        command
            .env("AWS_MAX_ATTEMPTS", attempts)
            .env("FOREBAY_RETRY_SECONDS", "30");
        ProgramOutput::from(command.watched())
    };
    for FailureCase { name, least, rule } in failure_cases() {
        server.failures.inject_failures(rule);
        let call = patient("40");
        let fired = server.failures.stop_failures();
        // Nothing is written there.
        assert!(
            fired
                >= if name.contains("writes") {
                    0
                } else {
                    least.min(1)
                },
            "{name}: only {fired} failures"
        );
        call.expect(0);
        assert!(shop.rows("web") == shop.rows("local"), "{name}");
    }
    server
        .failures
        .inject_failures(|asked| (asked.method == "GET").then_some(RequestFailure::Refused(503)));
    let fault = patient("4").expect(75).summary()["fault"].take();
    assert!(server.failures.stop_failures() >= 4);
    assert!(
        fault["code"] == "FB0401" && fault["file"].as_str().unwrap().contains(&server.host),
        "{fault}"
    );
    assert!(!shop.path(".web.forebay/_manifest.json").exists());

    let server_url = format!("http://{}/{PUBLIC_BUCKET}", server.host);
    for (paths, out, says) in [
        (
            format!("{server_url}/demand/*.parquet"),
            "out",
            "no listings",
        ),
        (format!("{server_url}/demand/"), "out", "no listings"),
        (
            format!("{server_url}/demand/missing.parquet"),
            "out",
            "no file matches",
        ),
        (url(&names[0]), "https://example.org/out", "only read"),
    ] {
        shop.write("bad.yaml", &spec(std::slice::from_ref(&paths), out));
        let call = shop.forebay(&["run", "bad.yaml"]);
        assert!(
            call.code != 0 && call.stderr.contains(says),
            "{paths}: {}",
            call.stderr
        );
    }
    let table = format!("delta: {{ path: \"{server_url}/table\" }}");
    shop.write("bad.yaml", &table_spec(&table, "parquet: { path: out }"));
    let call = shop.forebay(&["run", "bad.yaml"]).expect(78);
    assert!(call.stderr.contains("no listings"), "{}", call.stderr);
}

#[test]
fn missing_credentials_are_named_with_the_variables_to_set() {
    let shop = TestDirectory::new();
    shop.write(
        "key.json",
        r#"{"type": "external_account", "secret": "hidden-word"}"#,
    );
    shop.write("broken.json", "hidden-word");
    shop.write(
        "program.json",
        r#"{"type": "external_account", "audience": "a", "subject_token_type": "t", "token_url": "https://sts",
            "credential_source": {"executable": {"command": "hidden-word"}}}"#,
    );
    let program = std::fs::read_to_string(shop.path("program.json")).unwrap();
    let amazon = r#"{"environment_id": "aws1", "url": "http://169.254.169.254/hidden-word"}"#;
    shop.write(
        "aws.json",
        &program.replace(r#"{"executable": {"command": "hidden-word"}}"#, amazon),
    );
    struct Case {
        bucket: &'static str,
        variables: &'static [(&'static str, &'static str)],
        says: &'static [&'static str],
    }
    let case = |bucket, variables, says| Case {
        bucket,
        variables,
        says,
    };
    let cases = [
        case(
            "gs://lake",
            &[],
            &[
                "no credentials for the bucket `lake`",
                "GOOGLE_APPLICATION_CREDENTIALS",
            ],
        ),
        case(
            "gs://lake",
            &[("GOOGLE_APPLICATION_CREDENTIALS", "nowhere.json")],
            &["cannot be read", "nowhere.json"],
        ),
        case(
            "gs://lake",
            &[("GOOGLE_APPLICATION_CREDENTIALS", "broken.json")],
            &["not a JSON object", "broken.json"],
        ),
        case(
            "gs://lake",
            &[("GOOGLE_APPLICATION_CREDENTIALS", "key.json")],
            &["external_account", "`audience`"],
        ),
        case(
            "gs://lake",
            &[("GOOGLE_APPLICATION_CREDENTIALS", "program.json")],
            &["`file` or a `url`", "program.json"],
        ),
        case(
            "gs://lake",
            &[("GOOGLE_APPLICATION_CREDENTIALS", "aws.json")],
            &["`file` or a `url`", "aws.json"],
        ),
        case(
            "gs://lake",
            &[("GOOGLE_SERVICE_ACCOUNT", "key.json")],
            &["GOOGLE_APPLICATION_CREDENTIALS"],
        ),
        case(
            "az://lake",
            &[],
            &[
                "no credentials for the container `lake`",
                "AZURE_STORAGE_ACCOUNT_KEY",
            ],
        ),
        case(
            "az://lake",
            &[
                ("AZURE_CLIENT_SECRET", "hidden-word"),
                ("AZURE_CLIENT_ID", "me"),
            ],
            &["AZURE_CLIENT_SECRET is set, and AZURE_TENANT_ID is not"],
        ),
        case(
            "az://lake",
            &[("AZURE_STORAGE_ACCOUNT_KEY", "aGlkZGVu")],
            &["AZURE_STORAGE_ACCOUNT_NAME", "not configured"],
        ),
        case(
            "az://lake",
            &[("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=hidden-word")],
            &["names no account"],
        ),
    ];
    for Case {
        bucket,
        variables,
        says,
    } in cases
    {
        let args = bucket_args(bucket);
        let mut command = shop.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        // Nothing listens there: no machine of a cloud.
        command
            .env("GCE_METADATA_HOST", "127.0.0.1:9")
            .env("AZURE_MSI_ENDPOINT", "http://127.0.0.1:9")
            .env("HOME", shop.path("home"))
            .envs(variables.iter().copied());
        let call = ProgramOutput::from(command.watched()).expect(78);
        for word in says {
            assert!(
                call.stderr.contains(word),
                "{variables:?}: no `{word}` in {}",
                call.stderr
            );
        }
        assert!(!call.stderr.contains("hidden-word"), "{}", call.stderr);
    }
}

/// Variables that stores know, which are set to nothing.
const EMPTY: &str = "AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL_STS AWS_DEFAULT_REGION AWS_SESSION_TOKEN \
    AWS_VIRTUAL_HOSTED_STYLE_REQUEST AWS_S3_EXPRESS AWS_IMDSV1_FALLBACK AWS_METADATA_ENDPOINT AWS_UNSIGNED_PAYLOAD \
    AWS_CHECKSUM_ALGORITHM AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_CONTAINER_CREDENTIALS_FULL_URI \
    AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE AWS_WEB_IDENTITY_TOKEN_FILE AWS_ROLE_ARN AWS_ROLE_SESSION_NAME \
    AWS_SKIP_SIGNATURE AWS_COPY_IF_NOT_EXISTS AWS_CONDITIONAL_PUT AWS_DISABLE_TAGGING AWS_REQUEST_PAYER \
    AWS_SERVER_SIDE_ENCRYPTION AWS_SSE_KMS_KEY_ID AWS_SSE_BUCKET_KEY_ENABLED AWS_SSE_CUSTOMER_KEY_BASE64 AWS_BUCKET \
    AWS_PROXY_URL AWS_PROXY_CA_CERTIFICATE AWS_PROXY_EXCLUDES AWS_TIMEOUT AWS_CONNECT_TIMEOUT AWS_USER_AGENT \
    AWS_HTTP1_ONLY AWS_HTTP2_ONLY AWS_POOL_IDLE_TIMEOUT AWS_POOL_MAX_IDLE_PER_HOST AWS_ALLOW_INVALID_CERTIFICATES \
    AWS_PROFILE AWS_SHARED_CREDENTIALS_FILE AWS_EC2_METADATA_DISABLED AWS_MAX_ATTEMPTS \
    GOOGLE_SERVICE_ACCOUNT GOOGLE_SERVICE_ACCOUNT_PATH GOOGLE_SERVICE_ACCOUNT_KEY SERVICE_ACCOUNT GOOGLE_BUCKET \
    GOOGLE_BUCKET_NAME GOOGLE_APPLICATION_CREDENTIALS GOOGLE_SKIP_SIGNATURE GOOGLE_PROXY_URL GOOGLE_TIMEOUT \
    GOOGLE_ALLOW_INVALID_CERTIFICATES GCE_METADATA_ROOT GCE_METADATA_IP \
    AZURE_STORAGE_ACCESS_KEY AZURE_STORAGE_MASTER_KEY AZURE_STORAGE_SAS_KEY AZURE_STORAGE_SAS_TOKEN AZURE_STORAGE_TOKEN \
    AZURE_CLIENT_ID AZURE_CLIENT_SECRET AZURE_TENANT_ID AZURE_AUTHORITY_HOST AZURE_STORAGE_USE_EMULATOR \
    AZURE_MSI_ENDPOINT AZURE_IDENTITY_ENDPOINT IDENTITY_ENDPOINT AZURE_OBJECT_ID AZURE_MSI_RESOURCE_ID \
    AZURE_FEDERATED_TOKEN_FILE AZURE_USE_FABRIC_ENDPOINT AZURE_USE_AZURE_CLI AZURE_SKIP_SIGNATURE \
    AZURE_CONTAINER_NAME AZURE_DISABLE_TAGGING AZURE_STORAGE_CONNECTION_STRING AZURE_PROXY_URL AZURE_TIMEOUT";

fn without_values(mut command: Command) -> Command {
    EMPTY.split_whitespace().for_each(|name| {
        command.env(name, "");
    });
    command
}

#[test]
fn variables_that_are_set_to_nothing_count_as_unset() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    shop.demand("buckets/lake/demand", 500);
    let local = local_result(&shop, &shop.at("buckets/lake/demand"));
    let google = GoogleServer::start(&shop.path("buckets"));
    let amazon = S3Server::start(&shop.path("buckets"));
    let calls = [
        run(
            |args| without_values(google.command(&shop, args)),
            "gs://lake",
        ),
        run(
            |args| {
                let mut command = without_values(amazon.command(&shop, args));
                // By its other name: the first one is set to nothing.
                command.env("AWS_ENDPOINT", &amazon.endpoint);
                command
            },
            "s3://lake",
        ),
    ];
    for call in calls {
        assert_eq!(call.expect(0).summary()["artifact"], local["artifact"]);
        forget_results(&shop);
    }
    // Nothing listens where the account is said to be: its variables were understood.
    let azure = |args: &[&str]| {
        let mut command = without_values(shop.command(args));
        command
            .env("AZURE_STORAGE_ACCOUNT_NAME", "lake")
            .env("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
            .env("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9")
            .env("FOREBAY_RETRY_SECONDS", "0.1");
        command
    };
    let fault = run(azure, "az://lake").expect(75).summary()["fault"].take();
    assert!(
        fault["code"] == "FB0401" && fault["file"].as_str().unwrap().starts_with("az://lake"),
        "{fault}"
    );
    // Without the variables that name a place, there is nothing but what is missing.
    for (bucket, variable) in [
        ("s3://lake", "AWS_ACCESS_KEY_ID"),
        ("gs://lake", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://lake", "AZURE_"),
    ] {
        let nothing = |args: &[&str]| {
            let mut command = without_values(shop.command(args));
            for name in [
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_REGION",
                "FOREBAY_RETRY_SECONDS",
            ] {
                command.env(name, "");
            }
            // Nothing listens there: no machine of a cloud.
            command
                .env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
                .env("GCE_METADATA_HOST", "127.0.0.1:9")
                .env("AZURE_MSI_ENDPOINT", "http://127.0.0.1:9")
                .env("HOME", shop.path("home"));
            command
        };
        let call = run(nothing, bucket).expect(78);
        assert!(
            call.stderr.contains("there are no credentials") && call.stderr.contains(variable),
            "{}",
            call.stderr
        );
    }
    let said = ProgramOutput::from(without_values(shop.command(&["doctor"])).watched())
        .expect(0)
        .stdout;
    assert!(
        said.matches("the default endpoint, no credentials in the environment")
            .count()
            == 3,
        "{said}"
    );
}

#[test]
fn tokens_of_other_providers_are_exchanged_for_those_of_google() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    shop.demand("buckets/lake/demand", 500);
    let server = GoogleServer::start(&shop.path("buckets"));
    let local = local_result(&shop, &shop.at("buckets/lake/demand"));
    let url = |path: &str| format!("http://{}{path}", server.host);
    shop.write("subject-token", &format!("{SUBJECT_TOKEN}\n"));
    let file = serde_json::json!({ "file": shop.at("subject-token") });
    let from_url = serde_json::json!({
        "url": url("/subject-token"), "headers": { "Metadata-Flavor": "Google" },
        "format": { "type": "json", "subject_token_field_name": "access_token" },
    });
    for (source, impersonates) in [(file.clone(), false), (from_url, true)] {
        let mut key = serde_json::json!({
            "type": "external_account", "audience": AUDIENCE, "token_url": url("/v1/token"),
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": source,
        });
        if impersonates {
            key["service_account_impersonation_url"] =
                url("/v1/account:generateAccessToken").into();
            key["service_account_impersonation"] =
                serde_json::json!({ "token_lifetime_seconds": TOKEN_SECONDS });
        }
        shop.write("key.json", &key.to_string());
        let before = server.tokens_given();
        let call = run(
            |args| {
                let mut command = server.command(&shop, args);
                // No metadata service: the only tokens are those that were exchanged.
                command
                    .env("GCE_METADATA_HOST", "127.0.0.1:9")
                    .env("GOOGLE_APPLICATION_CREDENTIALS", "key.json");
                command
            },
            "gs://lake",
        );
        assert_eq!(call.expect(0).summary()["artifact"], local["artifact"]);
        // They are renewed: these are too old at once.
        let given = server.tokens_given() - before;
        assert!(given >= 2, "{given}");
        for (name, bytes) in content(&shop.path("buckets")) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(
                !text.contains(TOKEN) && !text.contains(SUBJECT_TOKEN),
                "a token is in {name}"
            );
        }
        forget_results(&shop);
    }
    // A token that is refused, and one that is not there.
    shop.write("subject-token", "another");
    let mut key = serde_json::json!({
        "type": "external_account", "audience": AUDIENCE, "token_url": url("/v1/token"),
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": file,
    });
    shop.write("key.json", &key.to_string());
    let refused = |code: i32| {
        let external = |args: &[&str]| {
            let mut command = server.command(&shop, args);
            command
                .env("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
                .env("FOREBAY_RETRY_SECONDS", "1");
            command
        };
        run(external, "gs://lake").expect(code).stderr
    };
    let said = refused(78);
    assert!(
        said.contains("refused a token: 400") && !said.contains("another"),
        "{said}"
    );
    key["credential_source"]["file"] = shop.at("nowhere").into();
    shop.write("key.json", &key.to_string());
    let said = refused(78);
    assert!(said.contains("nowhere cannot be read"), "{said}");
}

/// Azurite, Microsoft's own emulator, where `FOREBAY_AZURITE` names its program `azurite-blob`.
struct Azurite {
    process: Child,
    /// Host and port.
    host: String,
}

impl Azurite {
    /// The account that every emulator has, and its key.
    const ACCOUNT: &str = "devstoreaccount1";
    const KEY: &str =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    /// A signature with that key, valid until 2099, to fill the containers with.
    const SIGNATURE: &str = "sv=2019-12-12&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&spr=https%2Chttp&sig=0inStVod1SiNNw%2FCJ4fRrpJIdRZAadbisT7bZCD4KQs%3D";

    fn start(shop: &TestDirectory) -> Option<Azurite> {
        let program = std::env::var_os("FOREBAY_AZURITE")?;
        let mut process = Command::new(program)
            .args([
                "--skipApiVersionCheck",
                "--blobHost",
                "127.0.0.1",
                "--blobPort",
                "0",
            ])
            .args(["--location", &shop.at("azurite")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let listening = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let url = line.split("successfully listens on ").nth(1)?;
            Some(url.trim().trim_start_matches("http://").to_owned())
        });
        // It ends when its output is closed, and waits when that is not read.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Azurite {
            process,
            host: listening.unwrap(),
        })
    }

    /// Creates a container or a blob.
    fn create(&self, path: &str, query: &str, body: &[u8]) {
        let mut socket = TcpStream::connect(&self.host).unwrap();
        let account = Azurite::ACCOUNT;
        let signature = Azurite::SIGNATURE;
        let length = body.len();
        let head = format!(
            "PUT /{account}/{path}?{query}{signature} HTTP/1.1\r\nHost: {}\r\nx-ms-version: 2021-08-06\r\n\
             x-ms-blob-type: BlockBlob\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
            self.host
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(body).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{path}: {answer}");
    }

    /// The program, with the emulator as its account.
    fn command(&self, shop: &TestDirectory, args: &[&str]) -> Command {
        let account = Azurite::ACCOUNT;
        let key = Azurite::KEY;
        let endpoint = format!("http://{}/{account}", self.host);
        let mut command = shop.command(args);
        command
            .env(
                "AZURE_STORAGE_CONNECTION_STRING",
                format!("AccountName={account};AccountKey={key};BlobEndpoint={endpoint}"),
            )
            .env("FOREBAY_RETRY_SECONDS", "30");
        command
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn sources_state_and_sinks_on_azure() {
    let shop = TestDirectory::new();
    let Some(azurite) = Azurite::start(&shop) else {
        eprintln!("skipped: FOREBAY_AZURITE does not name the emulator's program");
        return;
    };
    shop.demand("demand", 500);
    azurite.create("lake", "restype=container&", &[]);
    for file in std::fs::read_dir(shop.path("demand")).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        azurite.create(
            &format!("lake/demand/{name}"),
            "",
            &std::fs::read(file.path()).unwrap(),
        );
    }
    let first = run(|args| azurite.command(&shop, args), "az://lake")
        .expect(0)
        .summary();
    assert_eq!(first["nothing_new"], false);
    let again = run(|args| azurite.command(&shop, args), "az://lake")
        .expect(0)
        .summary();
    assert_eq!(again["nothing_new"], true);
    let local = local_result(&shop, &shop.at("demand"));
    assert_eq!(local["artifact"], first["artifact"]);
    // What was written is read back.
    shop.write(
        "back.yaml",
        "version: 1\nname: back\nsources: { written: { parquet: { path: \"az://lake/out/_data/**/*.parquet\" } } }\n\
         steps: { rows: { from: written, do: [] } }\n\
         sinks: { table: { from: rows, parquet: { path: back } } }\n",
    );
    ProgramOutput::from(azurite.command(&shop, &["run", "back.yaml"]).watched()).expect(0);
    // A listing gives shards in the order of their ids.
    assert!(sorted(&shop.rows("back")) == sorted(&shop.rows("local")));
    write_and_read_table(&shop, "az://lake", |args| azurite.command(&shop, args));
    let call = run(|args| azurite.command(&shop, args), "az://nowhere").expect(78);
    assert!(
        call.stderr.contains("the bucket `nowhere` does not exist"),
        "{}",
        call.stderr
    );
}
