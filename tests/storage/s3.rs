//! The whole job on a server that speaks S3 over HTTP: sources, state and sinks in a bucket.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;

use crate::support::request_failures::RequestFailure;
use crate::support::s3_server::{S3Server, SECRET};
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, content, ready_made};

/// Runs `demand.yaml` on the bucket `lake`.
fn run(server: &S3Server, shop: &TestDirectory, state: &str) -> ProgramOutput {
    command(server, shop, state).watched().into()
}

fn command(server: &S3Server, shop: &TestDirectory, state: &str) -> Command {
    let spec = ready_made("demand.yaml");
    let args = [
        "run",
        &spec,
        "--param=history=s3://lake/demand",
        "--param=out=s3://lake/out",
        "--json",
    ];
    server.command(
        shop,
        &[
            &args[..],
            &["--state", state, "--memory=256MiB", "--threads=2"],
        ]
        .concat(),
    )
}

#[test]
fn sources_state_and_sinks_in_a_bucket() {
    let (shop, server) = S3Server::over_demand();
    let data = shop.at("buckets/lake/demand");
    let first = run(&server, &shop, "s3://lake/state").expect(0).summary();
    let newest = [
        "show",
        "--pipeline=demand",
        "--state=s3://lake/state",
        "--json",
    ];
    let newest = server.forebay(&shop, &newest).expect(0).summary();
    assert_eq!(newest["artifact_path"], first["artifact_path"]);
    assert_eq!(first["nothing_new"], false);
    let again = run(&server, &shop, "s3://lake/state").expect(0).summary();
    assert_eq!(again["nothing_new"], true);

    // The same artifact and rows as from local files.
    let local = [
        "run",
        &ready_made("demand.yaml"),
        "--json",
        "--memory=256MiB",
    ];
    let params = [
        format!("--param=history={data}"),
        "--param=out=local".to_owned(),
    ];
    let local = shop
        .forebay(&[&local[..], &[&params[0], &params[1]]].concat())
        .expect(0)
        .summary();
    assert_eq!(local["artifact"], first["artifact"]);
    assert!(shop.visible("buckets/lake/out") == shop.rows("local"));

    // Credentials are nowhere: not in specs, plans, artifacts, records or what was printed.
    for (name, bytes) in content(&shop.path("buckets"))
        .into_iter()
        .chain(content(&shop.path(".forebay")))
    {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(SECRET), "the secret is in {name}");
    }
    assert!(!first.to_string().contains(SECRET));
}

#[test]
fn a_busy_server_is_asked_again_and_a_dead_one_is_named() {
    let (shop, server) = S3Server::over_demand();
    let mut left = 5;
    server.inject_failures(move |_| {
        left -= i32::from(left > 0);
        (left > 0).then_some(RequestFailure::Refused(503))
    });
    let busy = run(&server, &shop, "state").expect(0).summary();
    assert_eq!(
        (server.stop_failures(), &busy["nothing_new"]),
        (4, &false.into())
    );

    let mut gone = S3Server::start(&shop.path("buckets"));
    gone.endpoint = "http://127.0.0.1:9".to_owned();
    // Few attempts: pauses are random, and many of them may outlast its patience.
    let call: ProgramOutput = command(&gone, &shop, "state2")
        .env("AWS_MAX_ATTEMPTS", "4")
        .watched()
        .into();
    let call = call.expect(75);
    assert_eq!(call.summary()["fault"]["code"], "FB0401");
    // Whether the bucket of the output is there is asked first.
    assert!(
        call.stderr.contains("s3://lake/out") && call.stderr.contains("in 4 attempts"),
        "{}",
        call.stderr
    );

    // A bucket that is not there is the user's to mend, and says so.
    let spec = ready_made("demand.yaml");
    let args = [
        "run",
        &spec,
        "--param=history=s3://nowhere/demand",
        "--param=out=out",
        "--json",
    ];
    let call = server.forebay(&shop, &args);
    assert_ne!(call.code, 0);
    assert!(
        call.stderr.contains("s3://nowhere/demand"),
        "{}",
        call.stderr
    );
}

#[test]
fn files_are_read_without_asking_for_them_first() {
    let (shop, server) = S3Server::over_demand();
    let asked: Arc<Mutex<BTreeMap<(String, String), u64>>> = Arc::default();
    let seen = asked.clone();
    server.inject_failures(move |request| {
        let file = request
            .target
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned();
        if file.contains("/lake/demand/") {
            *seen
                .lock()
                .unwrap()
                .entry((request.method.clone(), file))
                .or_default() += 1;
        }
        None
    });
    let summary = run(&server, &shop, "state").expect(0).summary();
    server.stop_failures();
    let asked = asked.lock().unwrap();
    assert!(asked.keys().all(|(method, _)| method == "GET"), "{asked:?}");
    // The footer once, and each of the passes.
    let reads = summary["passes"].as_array().unwrap().len() as u64;
    assert!(
        asked.values().all(|count| *count <= 1 + reads),
        "{reads} passes: {asked:?}"
    );
    let storage = &summary["storage"];
    assert!(
        storage["requests"].as_u64().unwrap() >= asked.values().sum(),
        "{storage}"
    );
    let bytes: u64 = std::fs::read_dir(shop.path("buckets/lake/demand"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(
        storage["bytes_read"].as_u64().unwrap() > bytes / 2,
        "{storage}"
    );
    assert!(
        storage["bytes_written"].as_u64().unwrap() > 0
            && storage["wait_seconds"].as_f64().unwrap() > 0.0
    );
    assert_eq!(storage["retries"], 0);
}

/// A history of many columns: each with a mean, a variance and a vocabulary that does not fit into JSON.
#[test]
fn two_thousand_columns_take_few_requests() {
    const COLUMNS: usize = 2000;
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake/wide")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    for day in 0..4 {
        let numbers: ArrayRef = Arc::new(Float64Array::from_iter_values(
            (0..400).map(|row| f64::from(row * 7 + day)),
        ));
        let words = (0..400).map(|row| format!("word {}", (row * 7 + day) % 399));
        let words: ArrayRef = Arc::new(StringArray::from_iter_values(words));
        let columns = (0..COLUMNS).map(|column| match column % 2 {
            0 => (format!("number_{column}"), numbers.clone()),
            _ => (format!("word_{column}"), words.clone()),
        });
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = std::fs::File::create(
            shop.path(&format!("buckets/lake/wide/2026-01-0{}.parquet", day + 1)),
        );
        let mut writer = ArrowWriter::try_new(file.unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    let spec = shop.write(
        "wide.yaml",
        "version: 1\nname: wide\nsources:\n  wide: { parquet: { path: \"s3://lake/wide/*.parquet\" } }\nsteps:\n  \
         known:\n    from: wide\n    do:\n      - standardize: { columns: [\"number_*\"] }\n      - vocabulary: { columns: \
         [\"word_*\"] }\n",
    );
    let asked: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let seen = asked.clone();
    server.inject_failures(move |request| {
        *seen
            .lock()
            .unwrap()
            .entry(request.method.to_string())
            .or_default() += 1;
        None
    });
    let fit = || {
        server
            .forebay(
                &shop,
                &[
                    "fit",
                    &spec,
                    "--json",
                    "--state=s3://lake/state",
                    "--threads=2",
                ],
            )
            .expect(0)
    };
    let first = fit().summary();
    let puts = std::mem::take(&mut *asked.lock().unwrap());
    assert!(puts["PUT"] < 50, "{puts:?}");
    // The next run finds all of them.
    let again = fit().summary();
    assert_eq!(
        (&again["artifact"], &again["nothing_new"]),
        (&first["artifact"], &true.into())
    );
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    assert!(
        asked["GET"] + asked.get("HEAD").unwrap_or(&0) < 50,
        "{asked:?}"
    );
    // The artifact has the same findings as one that was learned from local files.
    let data = format!("path: \"{}/*.parquet\"", shop.at("buckets/lake/wide"));
    let local = std::fs::read_to_string(&spec)
        .unwrap()
        .replace("path: \"s3://lake/wide/*.parquet\"", &data);
    shop.write("local.yaml", &local);
    let local = shop
        .forebay(&["fit", "local.yaml", "--json", "--state=local"])
        .expect(0)
        .summary();
    assert_eq!(local["artifact"], first["artifact"]);
    let files = content(&shop.path("local"))
        .into_iter()
        .map(|(name, _)| name)
        .collect::<Vec<_>>();
    assert!(files.len() < 50, "{files:?}");
    let shown = shop
        .forebay(&[
            "show",
            &format!("local/artifacts/{}", first["artifact"].as_str().unwrap()),
        ])
        .expect(0);
    assert!(shown.stdout.contains("word_1999"), "{}", shown.stdout);
}
