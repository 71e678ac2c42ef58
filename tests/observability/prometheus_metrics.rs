//! Metrics for Prometheus: of a run that is at work, and of one that has ended.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::support::TestDirectory;

const SPEC: &str = r#"
version: 1
name: measured
sources:
  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id], ready: { marker: marker, timeout: 60s } }
steps:
  features:
    from: demand
    do:
      - expect: [{ not_null: [qty], policy: warn }, { rows: { min: 1 } }]
      - standardize: { columns: [price] }
sinks: { out: { from: features, parquet: { path: out } } }
"#;

/// Samples by name and labels, after a check of the text format.
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut types = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            assert!(
                types.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{name} is declared twice"
            );
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            let kind = types
                .get(family)
                .unwrap_or_else(|| panic!("{family} has no type"));
            assert_eq!(
                kind == "counter",
                family.ends_with("_total"),
                "{family} is a {kind}"
            );
            samples.insert(name.to_owned(), value.parse().unwrap());
        }
    }
    samples
}

/// The same without the label of the pipeline, which all samples have.
fn without_pipeline(samples: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let name = |name: String| {
        assert!(
            name.contains("pipeline=\"measured\""),
            "{name} names no pipeline"
        );
        name.replace("{pipeline=\"measured\"}", "")
            .replace("pipeline=\"measured\",", "")
            .replace(",pipeline=\"measured\"", "")
    };
    samples
        .into_iter()
        .map(|(sample, value)| (name(sample), value))
        .collect()
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_run_tells_what_it_does_and_how_it_ended() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write("spec.yaml", SPEC);
    let args = [
        "run",
        "spec.yaml",
        "--metrics=127.0.0.1:0",
        "--metrics-file=run.prom",
        "--memory=256MiB",
        "--json",
    ];
    let mut command = shop.command(&args);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    BufReader::new(child.stderr.as_mut().unwrap())
        .read_line(&mut told)
        .unwrap();
    let address = told
        .trim()
        .strip_prefix("metrics at http://")
        .and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address
        .unwrap_or_else(|| panic!("no address in {told}"))
        .to_owned();
    // It waits for the marker.
    let answer = get(&address, "/metrics");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("text/plain; version=0.0.4"),
        "{answer}"
    );
    let at_work = samples(answer.split_once("\r\n\r\n").unwrap().1);
    let at_work = without_pipeline(at_work);
    assert_eq!(at_work["forebay_memory_limit_bytes"], f64::from(256 << 20));
    assert_eq!(
        (
            at_work["forebay_run_success"],
            at_work["forebay_run_end_timestamp_seconds"]
        ),
        (0.0, 0.0)
    );
    assert!(
        at_work["forebay_resident_memory_bytes"] > 1e6
            && at_work["forebay_run_start_timestamp_seconds"] > 1.6e9
    );
    assert!(get(&address, "/other").starts_with("HTTP/1.1 404"));
    shop.write("marker", "");
    assert!(child.wait().unwrap().success());
    let ended = without_pipeline(samples(
        &std::fs::read_to_string(shop.path("run.prom")).unwrap(),
    ));
    let rows = shop.visible("out").num_rows() as f64;
    assert_eq!(
        (
            ended["forebay_run_success"],
            ended["forebay_run_nothing_new"]
        ),
        (1.0, 0.0)
    );
    assert_eq!(ended["forebay_output_rows{sink=\"out\"}"], rows);
    assert!(ended["forebay_rows_read_total"] >= rows && ended["forebay_bytes_read_total"] > 0.0);
    assert_eq!(
        ended["forebay_expectation_holds{rule=\"rows: at least 1\",step=\"features.expect\"}"],
        1.0
    );
    assert!(ended["forebay_run_duration_seconds"] > 0.0);
    assert_eq!(ended["forebay_pass"], ended["forebay_passes"]);

    // One that fails, and one with nothing new.
    shop.forebay(&["run", "spec.yaml", "--metrics-file=again.prom"])
        .expect(0);
    let again = without_pipeline(samples(
        &std::fs::read_to_string(shop.path("again.prom")).unwrap(),
    ));
    assert_eq!(again["forebay_run_nothing_new"], 1.0);
    shop.write("spec.yaml", &SPEC.replace("min: 1 ", "min: 1000000 "));
    shop.forebay(&["run", "spec.yaml", "--metrics-file=again.prom"])
        .expect(65);
    let failed = without_pipeline(samples(
        &std::fs::read_to_string(shop.path("again.prom")).unwrap(),
    ));
    assert!(
        failed["forebay_run_success"] == 0.0 && failed["forebay_run_end_timestamp_seconds"] > 0.0
    );
    assert_eq!(
        failed["forebay_expectation_holds{rule=\"rows: at least 1000000\",step=\"features.expect\"}"],
        0.0
    );
    let call = shop.forebay(&["run", "spec.yaml", "--metrics=nowhere"]);
    assert!(
        call.code == 78 && call.stderr.contains("host:port"),
        "{}",
        call.stderr
    );
}

#[test]
fn apply_and_predict_write_metrics_of_their_outputs() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write(
        "spec.yaml",
        r#"
version: 1
name: measured
sources:
  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - filter: "qty IS NOT NULL AND price IS NOT NULL"
      - standardize: { columns: [price] }
sinks:
  table: { from: features, parquet: { path: table } }
  net: { from: features, train: { path: net, label: qty, dense: [price], model: linear, epochs: 1, batch_rows: 512 } }
"#,
    );
    let summary = shop
        .forebay(&["run", "spec.yaml", "--json"])
        .expect(0)
        .summary();
    let artifact = summary["artifact_path"].as_str().unwrap();
    let rows = shop.visible("table").num_rows() as f64;
    let cases = [
        (
            vec![
                "apply",
                artifact,
                "--source=data",
                "--sink=table",
                "--output=applied",
            ],
            "table",
        ),
        (
            vec!["predict", "net", "--source=data", "--output=predicted"],
            "predictions",
        ),
    ];
    for (args, sink) in cases {
        let file = format!("--metrics-file={}.prom", args[0]);
        shop.forebay(&[&args[..], &[&file]].concat()).expect(0);
        let text = std::fs::read_to_string(shop.path(&format!("{}.prom", args[0]))).unwrap();
        let ended = without_pipeline(samples(&text));
        assert_eq!(ended["forebay_run_success"], 1.0, "{args:?}");
        assert_eq!(
            ended[&format!("forebay_output_rows{{sink=\"{sink}\"}}")],
            rows,
            "{args:?}"
        );
        assert!(ended["forebay_rows_read_total"] >= rows, "{args:?}");
    }
    // One that fails writes them, too, and names the pipeline that it knows.
    let args = [
        "apply",
        artifact,
        "--source=nowhere",
        "--output=applied",
        "--metrics-file=failed.prom",
    ];
    assert_ne!(shop.forebay(&args).code, 0);
    let failed = without_pipeline(samples(
        &std::fs::read_to_string(shop.path("failed.prom")).unwrap(),
    ));
    assert!(
        failed["forebay_run_success"] == 0.0 && failed["forebay_run_end_timestamp_seconds"] > 0.0
    );
    // Metrics are served, too; an address that is none is refused before anything is read.
    let call = shop.forebay(&[
        "predict",
        "net",
        "--source=data",
        "--output=other",
        "--metrics=nowhere",
    ]);
    assert!(
        call.code == 78 && call.stderr.contains("host:port"),
        "{}",
        call.stderr
    );
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_exist() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write("spec.yaml", SPEC);
    shop.write("marker", "");
    shop.forebay(&["run", "spec.yaml", "--metrics-file=run.prom"])
        .expect(0);
    let text = std::fs::read_to_string(shop.path("run.prom")).unwrap();
    // Families without a sample are not written: trainings, workers of a run that has none. Other commands have others.
    let source = ["run", "process", "worker", "feed"].map(|file| {
        let path = format!("pipelines/src/metrics/{file}.rs");
        std::fs::read_to_string(crate::support::repository().join(path)).unwrap()
    });
    let source = source.concat();
    for file in ["alerts.yaml", "dashboard.json", "README.md"] {
        let place = crate::support::repository()
            .join("pipelines/monitoring")
            .join(file);
        let content = std::fs::read_to_string(place).unwrap();
        let is_letter = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
        for name in content
            .split(|c| !is_letter(c))
            .filter(|word| word.starts_with("forebay_") && !word.ends_with('_'))
        {
            let declared = format!("\"{}\"", name.trim_start_matches("forebay_"));
            let is_known = text.contains(&format!("# TYPE {name} ")) || source.contains(&declared);
            assert!(is_known, "{file} names `{name}`, which no command tells");
        }
    }
    // Each panel shows the pipelines that are chosen, and says which line is whose.
    let dashboard = std::fs::read_to_string(
        crate::support::repository().join("pipelines/monitoring/dashboard.json"),
    );
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard.unwrap()).unwrap();
    let targets = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut expressions = 0;
    for target in targets {
        let expression = target["expr"].as_str().unwrap();
        let legend = target["legendFormat"].as_str().unwrap();
        let chosen = expression.matches("{pipeline=~\"$pipeline\"}").count();
        assert!(
            chosen > 0 && chosen == expression.matches("forebay_").count(),
            "{expression}"
        );
        assert!(legend.contains("{{pipeline}}"), "{legend} of {expression}");
        expressions += 1;
    }
    assert!(expressions >= 28, "{expressions} expressions");
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    assert_eq!(
        variables
            .map(|known| known["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["source", "pipeline"]
    );
}
