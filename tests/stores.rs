//! The whole job on stores other than S3, and what is said where credentials are missing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::google_server::{GoogleServer, PUBLIC_BUCKET, TOKEN};
use crate::request_failures::{ObservedRequest, RequestFailure, request_chance};
use crate::support::{ProgramOutput, TestDirectory, content, ready_made};
use crate::watched::WatchedCommand;

/// The arguments of a run of `demand.yaml` on a bucket, which is given as in `gs://lake`.
fn bucket_args(bucket: &str) -> Vec<String> {
    let places = ["--param=history=B/demand", "--param=out=B/out", "--state=B/state"];
    let mut args = vec!["run".to_owned(), ready_made("demand.yaml")];
    args.extend(["--json", "--memory=256MiB", "--threads=2"].map(str::to_owned));
    args.extend(places.map(|place| place.replace('B', bucket)));
    args
}

fn run(mut command: impl FnMut(&[&str]) -> Command, bucket: &str) -> ProgramOutput {
    let args = bucket_args(bucket);
    command(&args.iter().map(String::as_str).collect::<Vec<_>>()).watched().into()
}

/// The summary and the rows of the job on local files.
fn local_result(shop: &TestDirectory, data: &str) -> Value {
    let params = [format!("--param=history={data}"), "--param=out=local".to_owned()];
    let args = ["run", &ready_made("demand.yaml"), "--json", "--memory=256MiB", &params[0], &params[1]];
    shop.forebay(&args).expect(0).summary()
}

#[test]
fn sources_state_and_sinks_on_google_cloud_storage() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    shop.demand("buckets/lake/demand", 500);
    let server = GoogleServer::start(&shop.path("buckets"));
    let first = run(|args| server.command(&shop, args), "gs://lake").expect(0).summary();
    assert_eq!(first["nothing_new"], false);
    let again = run(|args| server.command(&shop, args), "gs://lake").expect(0).summary();
    assert_eq!(again["nothing_new"], true);
    assert!(server.tokens_given() >= 2, "{}", server.tokens_given());
    let local = local_result(&shop, &shop.at("buckets/lake/demand"));
    assert_eq!(local["artifact"], first["artifact"]);
    assert!(shop.visible("buckets/lake/out") == shop.rows("local"));
    for (name, bytes) in content(&shop.path("buckets")) {
        assert!(!String::from_utf8_lossy(&bytes).contains(TOKEN), "a token is in {name}");
    }
    // A bucket of which nothing is known.
    let call = run(|args| server.command(&shop, args), "gs://nowhere").expect(78);
    assert!(call.stderr.contains("the bucket `nowhere` does not exist"), "{}", call.stderr);
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
        case("one of ten refused", 4, |asked| (request_chance(5, asked) < 0.1).then_some(RequestFailure::Refused(503))),
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
            (asked.method != "GET" && asked.nth == 0).then_some(RequestFailure::Cut { landed: true })
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
        assert_eq!(local["artifact"], call.expect(0).summary()["artifact"], "{name}");
        assert!(shop.visible("buckets/lake/out") == shop.rows("local"), "{name}: other rows");
    }
    // Failures without end: a fault that names the object, and nothing that readers see.
    for (method, part) in [("GET", "demand"), ("PUT", "state"), ("PUT", "_data"), ("PUT", "_manifest.json")] {
        forget();
        server.failures.inject_failures(move |asked| {
            (asked.method == method && asked.target.contains(&encoded(part))).then_some(RequestFailure::Refused(503))
        });
        let call = run(|args| few_attempts(server.command(&shop, args)), "gs://lake").expect(75);
        assert!(server.failures.stop_failures() >= 4, "{method} {part}");
        let fault = call.summary()["fault"].take();
        assert_eq!(fault["code"], "FB0401", "{method} {part}: {fault}");
        assert!(fault["file"].as_str().unwrap().contains("gs://lake/"), "{method} {part}: {fault}");
        assert!(!shop.path("buckets/lake/out/_manifest.json").exists(), "{method} {part}");
        let resumed = run(|args| server.command(&shop, args), "gs://lake").expect(0).summary();
        assert_eq!(local["artifact"], resumed["artifact"], "{method} {part}");
        assert!(shop.visible("buckets/lake/out") == shop.rows("local"), "{method} {part}");
    }
    // An object that is replaced between its listing and its reading.
    forget();
    let mut days: Vec<_> =
        std::fs::read_dir(shop.path("buckets/lake/demand")).unwrap().map(|day| day.unwrap().path()).collect();
    days.sort();
    let (victim, whole, other) = (days[2].clone(), std::fs::read(&days[2]).unwrap(), std::fs::read(&days[3]).unwrap());
    let name = victim.file_name().unwrap().to_str().unwrap().to_owned();
    let (mut is_first, key, place) = (true, encoded(&name), victim.clone());
    server.failures.inject_failures(move |asked| {
        let hit = asked.method == "GET" && asked.target.contains(&key) && std::mem::take(&mut is_first);
        let (place, other) = (place.clone(), other.clone());
        hit.then(|| RequestFailure::After(Box::new(move || std::fs::write(place, other).unwrap())))
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
        assert_eq!(call.code, -1, "{moment}: it was not killed: {}", call.stderr);
        let shown = shop.path("buckets/lake/out/_manifest.json").exists();
        assert_eq!(shown, moment.starts_with("have put gs://lake/out"), "{moment}");
        assert!(!shown || shop.visible("buckets/lake/out") == shop.rows("local"), "{moment}");
        let resumed = run(|args| server.command(&shop, args), "gs://lake").expect(0).summary();
        assert_eq!(local["artifact"], resumed["artifact"], "{moment}");
        assert!(shop.visible("buckets/lake/out") == shop.rows("local"), "{moment}");
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
    shop.write("web.yaml", &spec(&names.iter().map(url).collect::<Vec<_>>(), "web"));
    shop.write("local.yaml", &spec(&names.iter().map(local).collect::<Vec<_>>(), "local"));
    shop.forebay(&["run", "web.yaml"]).expect(0);
    shop.forebay(&["run", "local.yaml"]).expect(0);
    assert!(shop.rows("web") == shop.rows("local"));
    let patient = |attempts: &str| {
        let _ = std::fs::remove_dir_all(shop.path(".forebay"));
        for dir in ["web", ".web.forebay"] {
            let _ = std::fs::remove_dir_all(shop.path(dir));
        }
        let mut command = shop.command(&["run", "web.yaml", "--json"]);
        command.env("AWS_MAX_ATTEMPTS", attempts).env("FOREBAY_RETRY_SECONDS", "30");
        ProgramOutput::from(command.watched())
    };
    for FailureCase { name, least, rule } in failure_cases() {
        server.failures.inject_failures(rule);
        let call = patient("40");
        let fired = server.failures.stop_failures();
        // Nothing is written there.
        assert!(fired >= if name.contains("writes") { 0 } else { least.min(1) }, "{name}: only {fired} failures");
        call.expect(0);
        assert!(shop.rows("web") == shop.rows("local"), "{name}");
    }
    server.failures.inject_failures(|asked| (asked.method == "GET").then_some(RequestFailure::Refused(503)));
    let fault = patient("4").expect(75).summary()["fault"].take();
    assert!(server.failures.stop_failures() >= 4);
    assert!(fault["code"] == "FB0401" && fault["file"].as_str().unwrap().contains(&server.host), "{fault}");
    assert!(!shop.path(".web.forebay/_manifest.json").exists());

    let server_url = format!("http://{}/{PUBLIC_BUCKET}", server.host);
    for (paths, out, says) in [
        (format!("{server_url}/demand/*.parquet"), "out", "no listings"),
        (format!("{server_url}/demand/"), "out", "no listings"),
        (format!("{server_url}/demand/missing.parquet"), "out", "no file matches"),
        (url(&names[0]), "https://example.org/out", "only read"),
    ] {
        shop.write("bad.yaml", &spec(std::slice::from_ref(&paths), out));
        let call = shop.forebay(&["run", "bad.yaml"]);
        assert!(call.code != 0 && call.stderr.contains(says), "{paths}: {}", call.stderr);
    }
}

#[test]
fn missing_credentials_are_named_with_the_variables_to_set() {
    let shop = TestDirectory::new();
    shop.write("key.json", r#"{"type": "external_account", "secret": "hidden-word"}"#);
    shop.write("broken.json", "hidden-word");
    struct Case {
        bucket: &'static str,
        variables: &'static [(&'static str, &'static str)],
        says: &'static [&'static str],
    }
    let case = |bucket, variables, says| Case { bucket, variables, says };
    let cases = [
        case("gs://lake", &[], &["no credentials for the bucket `lake`", "GOOGLE_APPLICATION_CREDENTIALS"]),
        case("gs://lake", &[("GOOGLE_APPLICATION_CREDENTIALS", "nowhere.json")], &["cannot be read", "nowhere.json"]),
        case("gs://lake", &[("GOOGLE_APPLICATION_CREDENTIALS", "broken.json")], &["not a JSON object", "broken.json"]),
        case("gs://lake", &[("GOOGLE_APPLICATION_CREDENTIALS", "key.json")], &["external_account", "service account"]),
        case("az://lake", &[], &["no credentials for the container `lake`", "AZURE_STORAGE_ACCOUNT_KEY"]),
        case(
            "az://lake",
            &[("AZURE_CLIENT_SECRET", "hidden-word"), ("AZURE_CLIENT_ID", "me")],
            &["AZURE_CLIENT_SECRET is set, and AZURE_TENANT_ID is not"],
        ),
        case(
            "az://lake",
            &[("AZURE_STORAGE_ACCOUNT_KEY", "aGlkZGVu")],
            &["AZURE_STORAGE_ACCOUNT_NAME", "not configured"],
        ),
        case("az://lake", &[("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=hidden-word")], &["names no account"]),
    ];
    for Case { bucket, variables, says } in cases {
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
            assert!(call.stderr.contains(word), "{variables:?}: no `{word}` in {}", call.stderr);
        }
        assert!(!call.stderr.contains("hidden-word"), "{}", call.stderr);
    }
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
    const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    /// A signature with that key, valid until 2099, to fill the containers with.
    const SIGNATURE: &str = "sv=2019-12-12&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&spr=https%2Chttp&sig=0inStVod1SiNNw%2FCJ4fRrpJIdRZAadbisT7bZCD4KQs%3D";

    fn start(shop: &TestDirectory) -> Option<Azurite> {
        let program = std::env::var_os("FOREBAY_AZURITE")?;
        let mut process = Command::new(program)
            .args(["--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", "0"])
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
        Some(Azurite { process, host: listening.unwrap() })
    }

    /// Creates a container or a blob.
    fn create(&self, path: &str, query: &str, body: &[u8]) {
        let mut socket = TcpStream::connect(&self.host).unwrap();
        let (account, signature, length) = (Azurite::ACCOUNT, Azurite::SIGNATURE, body.len());
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
        let (account, key) = (Azurite::ACCOUNT, Azurite::KEY);
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
        azurite.create(&format!("lake/demand/{name}"), "", &std::fs::read(file.path()).unwrap());
    }
    let first = run(|args| azurite.command(&shop, args), "az://lake").expect(0).summary();
    assert_eq!(first["nothing_new"], false);
    let again = run(|args| azurite.command(&shop, args), "az://lake").expect(0).summary();
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
    assert!(shop.rows("back") == shop.rows("local"));
    let call = run(|args| azurite.command(&shop, args), "az://nowhere").expect(78);
    assert!(call.stderr.contains("the bucket `nowhere` does not exist"), "{}", call.stderr);
}
