//! The main job: generate, run, look, apply, serve.

use arrow::compute::{concat_batches, filter_record_batch, is_not_null};
use forebay::prelude::*;
use forebay::run::StorageClient;
use serde_json::Value;

use crate::support::{TestDirectory, ready_made, real_data};

/// Runs a ready-made spec, then checks the promises that hold for every pipeline.
fn whole_job(
    shop: &TestDirectory,
    spec: &str,
    params: &[(&str, &str)],
    sources: &[(&str, String)],
    label: Option<&str>,
) -> Value {
    let spec = ready_made(spec);
    let mut args = vec!["run", &spec, "--json", "--memory", "256MiB"];
    let params: Vec<String> = params
        .iter()
        .map(|(name, value)| format!("--param={name}={value}"))
        .collect();
    let out = format!("--param=out={}", shop.at("out"));
    args.extend(params.iter().map(String::as_str));
    args.push(&out);
    let first = shop.forebay(&args).expect(0).summary();
    assert_eq!(first["status"], "done");
    assert_eq!(first["nothing_new"], false);
    let written = first["passes"].as_array().unwrap().last().unwrap().clone();
    let count = |name: &str| written[name].as_i64().unwrap();
    assert_eq!(
        count("rows_in") + count("rows_expanded"),
        count("rows_out") + count("rows_filtered")
    );

    // The same command again has nothing to do and gives the same artifact.
    let again = shop.forebay(&args).expect(0).summary();
    assert_eq!(again["nothing_new"], true);
    assert_eq!(again["artifact"], first["artifact"]);

    // Applying the artifact to the same rows gives the same rows; those without a label are scored, too.
    let artifact = first["artifact_path"].as_str().unwrap();
    let applied = shop.at("applied");
    let mut args = vec![
        "apply",
        artifact,
        "--output",
        &applied,
        "--json",
        "--state",
        "other-state",
    ];
    let sources: Vec<String> = sources
        .iter()
        .map(|(name, path)| format!("--source={name}={path}"))
        .collect();
    args.extend(sources.iter().map(String::as_str));
    shop.forebay(&args).expect(0);
    let mut scored = shop.rows("applied");
    let written = shop.rows("out");
    let labels = label.map(|label| scored.column_by_name(label).cloned());
    match labels {
        Some(Some(labels)) => {
            scored = filter_record_batch(&scored, &is_not_null(&labels).unwrap()).unwrap();
            assert_eq!(scored, written);
        }
        // The label is not written.
        Some(None) => assert!(scored.num_rows() > written.num_rows()),
        None => assert_eq!(scored, written),
    }

    // Every command that looks at things works.
    let shown = shop.forebay(&["show", artifact]).expect(0);
    assert!(shown.stdout.contains("artifact"), "{}", shown.stdout);
    let (state, _) = artifact.rsplit_once("/artifacts/").unwrap();
    let pipeline = first["pipeline"].as_str().unwrap();
    let newest = shop
        .forebay(&["show", "--pipeline", pipeline, "--state", state, "--json"])
        .expect(0)
        .summary();
    assert_eq!(
        (&newest["artifact"], &newest["artifact_path"]),
        (&first["artifact"], &first["artifact_path"])
    );
    assert!(
        newest["committed_at"].as_str().unwrap().ends_with('Z'),
        "{newest}"
    );
    let none = shop
        .forebay(&["show", "--pipeline", "other", "--state", state, "--json"])
        .expect(65)
        .summary();
    assert_eq!(none["fault"]["code"], "FB0402");
    let same = shop.forebay(&["diff", artifact, artifact]).expect(0);
    assert_eq!(same.stdout, "no differences\n");
    first
}

/// Serves rows of a source through the library: batches and single rows get the run's own bits.
fn serve(shop: &TestDirectory, artifact: &str, source: &std::path::Path) {
    let io = StorageClient::new().unwrap();
    let place = io.resolve(&shop.at(artifact)).unwrap();
    let artifact = Artifact::load(&io, &place).unwrap();
    let model = Forebay::new().model(&artifact, None).unwrap();
    let all = crate::support::read(source);
    let expected = shop.rows("out");
    let pieces: Vec<_> = [(0, 1), (1, 7), (8, all.num_rows() - 8)]
        .map(|(from, rows)| model.apply(&all.slice(from, rows)).unwrap())
        .into_iter()
        .collect();
    let served = concat_batches(&pieces[0].schema(), &pieces).unwrap();
    assert_eq!(served.num_rows(), expected.num_rows());
    for (index, field) in served.schema().fields().iter().enumerate() {
        assert_eq!(
            served.column(index),
            expected.column(index),
            "{}",
            field.name()
        );
    }
}

#[test]
fn demand() {
    let shop = TestDirectory::new();
    let data = shop.demand("data", 500);
    let first = whole_job(
        &shop,
        "demand.yaml",
        &[("history", &data)],
        &[("demand", data.clone())],
        Some("qty"),
    );
    // A batch alone does not hold the rows that windows look back at.
    let place = StorageClient::new()
        .unwrap()
        .resolve(&shop.at(first["artifact_path"].as_str().unwrap()))
        .unwrap();
    let artifact = Artifact::load(&StorageClient::new().unwrap(), &place).unwrap();
    let fault = Forebay::new().model(&artifact, None).err().unwrap();
    assert!(
        fault
            .to_string()
            .contains("`windows.lag` needs the rows before"),
        "{fault}"
    );
}

#[test]
fn clicks() {
    let shop = TestDirectory::new();
    let data = shop.clicks("data", 700);
    let first = whole_job(
        &shop,
        "clicks.yaml",
        &[("log", &data)],
        &[("clicks", data.clone())],
        None,
    );
    serve(
        &shop,
        first["artifact_path"].as_str().unwrap(),
        &shop.path("data"),
    );
}

#[test]
fn flights_with_weather() {
    let Some(data) = real_data("flights") else {
        return;
    };
    let shop = TestDirectory::new();
    let at = |what: &str| data.join(what).display().to_string();
    let root = data.display().to_string();
    let sources = [
        ("flights", at("flights/*.parquet")),
        ("weather", at("weather/*.parquet")),
    ];
    let summary = whole_job(
        &shop,
        "flights.yaml",
        &[("data", &root)],
        &sources,
        Some("arr_delay"),
    );
    assert_eq!(summary["outputs"][0]["rows"], 327_346); // 9,430 of 336,776 flights never arrived.
}

#[test]
fn taxi() {
    let Some(data) = real_data("taxi") else {
        return;
    };
    let shop = TestDirectory::new();
    let root = data.display().to_string();
    let sources = [("trips", data.join("taxi/taxi.csv").display().to_string())];
    let summary = whole_job(&shop, "taxi.yaml", &[("data", &root)], &sources, None);
    assert_eq!(summary["outputs"][0]["rows"], 15_002);
}
