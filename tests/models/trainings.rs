//! Trainings: models that learn what there is to learn, the same to the bit however they are run, killed
//! and taken up again; what they predict; and what cannot be trained on.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Field, Float32Type};
use forebay::plan::{BindScope, MapOp, PlanOp};
use forebay::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, content, ready_made};

/// Clicks, steps over them, and a sink that trains.
fn spec(shop: &TestDirectory, steps: &str, train: &str) -> String {
    let data = if shop.path("clicks").exists() {
        shop.at("clicks")
    } else {
        shop.clicks("clicks", 400)
    };
    shop.write(
        "spec.yaml",
        &format!(
            r#"
version: 1
name: clicks
sources:
  clicks: {{ parquet: {{ path: "{data}" }} }}
steps:
  features:
    from: clicks
    fit_on: train
    do:
      - impute: {{ columns: [f1, f2], with: median }}
      - log1p: {{ columns: [f1, f2] }}
      - standardize: {{ columns: [f1, f2] }}
      - vocabulary: {{ columns: [c6], min_count: 2, oov_buckets: 1 }}
      - derive: {{ y: "CAST(3 * f1 - 2 * f2 + 1 AS REAL)" }}
{steps}
      - select: [f1, f2, c6, y]
split: {{ by_hash: {{ keys: [f1], parts: {{ train: 0.8, validation: 0.2 }} }} }}
sinks:
  net: {{ from: features, train: {{ path: out/net, label: y, {train} }} }}
"#
        ),
    )
}

const LINEAR: &str =
    "model: linear, batch_rows: 512, epochs: 8, learning_rate: 0.3, weight_decay: 0";

/// Small and with everything that a training can have.
const MLP: &str = "model: mlp, hidden: [8, 4], embeddings: { c6: 3 }, batch_rows: 512, epochs: 2, seed: 5, \
                   clip_norm: 1.0, warmup_steps: 3, patience_epochs: 2, checkpoint_steps: 3";

fn run(shop: &TestDirectory, more: &[&str]) -> ProgramOutput {
    shop.forebay(&[&["run", "spec.yaml", "--json"], more].concat())
}

fn model(summary: &Value) -> &Value {
    &summary["models"][0]
}

fn last_epoch(summary: &Value) -> &Value {
    model(summary)["epochs"].as_array().unwrap().last().unwrap()
}

fn of(summary: &Value, metric: &str) -> f64 {
    last_epoch(summary)["validation"][metric]
        .as_f64()
        .unwrap_or_else(|| panic!("no {metric} in {summary}"))
}

fn events<'a>(call: &'a ProgramOutput, name: &'a str) -> impl Iterator<Item = Value> + 'a {
    let all = call
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(move |event| event["event"] == name)
}

fn model_bytes(shop: &TestDirectory) -> Vec<u8> {
    std::fs::read(shop.path("out/net/model.safetensors")).unwrap()
}

#[test]
fn models_learn_what_there_is_to_learn() {
    let shop = TestDirectory::new();
    spec(&shop, "", LINEAR);
    let linear = run(&shop, &[]).expect(0);
    let summary = linear.summary();
    // The label is 3.6 wide: the model knows it but for a few hundredths.
    assert!(
        of(&summary, "rmse") < 0.15 && of(&summary, "mae") < 0.1,
        "{}",
        last_epoch(&summary)
    );
    assert_eq!(events(&linear, "training_epoch").count(), 8);
    let curve = model(&summary)["curve"].as_array().unwrap();
    assert!(curve[0][1].as_f64().unwrap() > 100.0 * curve.last().unwrap()[1].as_f64().unwrap());

    // Odds of a side: no line is wrong by much.
    spec(
        &shop,
        r#"      - derive: { side: "CASE WHEN y > 1 THEN 1 ELSE 0 END" }
      - drop: [y]
      - rename: { side: y }"#,
        "model: logistic, batch_rows: 512, epochs: 6, learning_rate: 0.1",
    );
    let summary = run(&shop, &[]).expect(0).summary();
    assert!(
        of(&summary, "auc") > 0.99 && of(&summary, "log_loss") < 0.2,
        "{}",
        last_epoch(&summary)
    );

    // A product and a category are beyond lines, and not beyond layers.
    let bent = r#"      - derive: { z: "CAST(f1 * f2 + CASE WHEN c6 % 2 = 0 THEN 2 ELSE -2 END AS REAL)" }
      - drop: [y]
      - rename: { z: y }"#;
    spec(&shop, bent, LINEAR);
    let lines = of(&run(&shop, &[]).expect(0).summary(), "rmse");
    spec(
        &shop,
        bent,
        "model: mlp, hidden: [32, 16], batch_rows: 256, epochs: 12, learning_rate: 0.01, weight_decay: 0",
    );
    let layers = of(&run(&shop, &[]).expect(0).summary(), "rmse");
    assert!(layers < 0.5 * lines, "{layers} is not much below {lines}");
}

#[test]
fn a_model_has_the_same_bits_however_it_is_trained_and_is_trained_once() {
    let shop = TestDirectory::new();
    spec(&shop, "", MLP);
    let first = run(&shop, &["--threads", "1"]).expect(0).summary();
    let bytes = model_bytes(&shop);
    let again = run(&shop, &["--threads", "2", "--signal-nothing-new"])
        .expect(99)
        .summary();
    assert_eq!(model(&again)["reused"], true);
    assert_eq!(
        model(&again)["epochs"],
        model(&first)["epochs"],
        "a model that stands tells how it was trained"
    );
    for more in [["--threads", "3"], ["--batch-rows", "100"]] {
        let other = run(
            &shop,
            &[&more[..], &["--state", &format!("state{}", more[0])]].concat(),
        )
        .expect(0)
        .summary();
        assert_eq!(model(&other)["reused"], false);
        assert_eq!(model(&other)["id"], model(&first)["id"]);
        assert!(model_bytes(&shop) == bytes, "{more:?} gives another model");
    }
    // How often it is checkpointed changes nothing, another seed does.
    spec(
        &shop,
        "",
        &MLP.replace("checkpoint_steps: 3", "checkpoint_steps: 1"),
    );
    assert_eq!(model(&run(&shop, &[]).expect(0).summary())["reused"], true);
    spec(&shop, "", &MLP.replace("seed: 5", "seed: 6"));
    let other = run(&shop, &[]).expect(0).summary();
    assert_ne!(model(&other)["id"], model(&first)["id"]);
    assert!(model_bytes(&shop) != bytes);
    // In another directory it is the same model, and this one stays what it is.
    spec(&shop, "", MLP);
    let spec_text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write("spec.yaml", &spec_text.replace("out/net", "out/elsewhere"));
    let elsewhere = run(&shop, &[]).expect(0).summary();
    assert_eq!(
        (&model(&elsewhere)["id"], &model(&elsewhere)["reused"]),
        (&model(&first)["id"], &Value::Bool(false))
    );
    assert!(std::fs::read(shop.path("out/elsewhere/model.safetensors")).unwrap() == bytes);
    // What is in use stays when the cache is cleaned.
    shop.forebay(&["cache", "gc", "--older-than", "0s"])
        .expect(0);
    shop.forebay(&["cache", "verify"]).expect(0);
    run(&shop, &["--signal-nothing-new"]).expect(99);
    spec(&shop, "", &MLP.replace("seed: 5", "seed: 6"));
    run(&shop, &["--signal-nothing-new"]).expect(99);
    // A file that readers lost is shown again, and a model that is gone is trained again.
    std::fs::remove_file(shop.path("out/net/model.safetensors")).unwrap();
    assert_eq!(model(&run(&shop, &[]).expect(0).summary())["reused"], true);
    assert!(shop.path("out/net/model.safetensors").exists());
    std::fs::remove_dir_all(shop.root("out/net").join("_data")).unwrap();
    assert_eq!(model(&run(&shop, &[]).expect(0).summary())["reused"], false);
}

#[test]
fn killed_trainings_go_on_and_come_to_the_same_model() {
    let shop = TestDirectory::new();
    spec(&shop, "", MLP);
    // Files that are old enough to be taken note of.
    for file in std::fs::read_dir(shop.path("clicks")).unwrap() {
        let file = std::fs::File::options()
            .write(true)
            .open(file.unwrap().path())
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600))
            .unwrap();
    }
    // Afterwards nothing but the training is left to do: what is noted of files is.
    run(&shop, &[]).expect(0);
    let again = || {
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        for dir in ["passes", "checkpoints"] {
            let _ = std::fs::remove_dir_all(shop.path(".forebay").join(dir));
        }
    };
    again();
    let job = |name: &str, value: String| -> std::process::Output {
        shop.command(&["run", "spec.yaml", "--json"])
            .env(name, value)
            .watched()
    };
    let calm: ProgramOutput = job("FOREBAY_KILL_LOG", shop.at("steps")).into();
    calm.expect(0);
    let expected = content(&shop.path("out/net"));
    let steps = std::fs::read_to_string(shop.path("steps")).unwrap();
    let steps: Vec<&str> = steps.lines().collect();
    let of_training = |step: &&str| {
        ["checkpoints/", "out/net", "passes/"]
            .iter()
            .any(|part| step.contains(part))
    };
    let moments: Vec<usize> = (0..steps.len())
        .filter(|at| of_training(&steps[*at]))
        .collect();
    let checkpoints = moments
        .iter()
        .filter(|at| steps[**at].starts_with("have named") && steps[**at].contains("checkpoints/"));
    assert!(checkpoints.count() >= 3, "{steps:?}");
    let chosen = if std::env::var_os("FOREBAY_KILLS").is_some() {
        1
    } else {
        4
    };
    for (nth, moment) in moments
        .iter()
        .enumerate()
        .filter(|(nth, _)| nth % chosen == 1 % chosen)
    {
        let step = format!("moment {nth}, step {moment}: {}", steps[*moment]);
        again();
        let killed = job("FOREBAY_KILL_AT", moment.to_string());
        assert_eq!(killed.status.signal(), Some(9), "{step}");
        let shown = shop.path("out/.net.forebay/_manifest.json").exists();
        assert!(
            !shown || shop.path("out/.net.forebay/_data").exists(),
            "{step}: what shows is not there"
        );
        let left = std::fs::read_dir(shop.path(".forebay/checkpoints")).map_or(0, |files| {
            files
                .filter(|file| {
                    file.as_ref()
                        .is_ok_and(|file| !file.file_name().to_string_lossy().contains('#'))
                })
                .count()
        });
        let resumed: ProgramOutput = job("FOREBAY_NO_KILL", String::new()).into();
        let resumed = resumed.expect(0);
        let trained = model(&resumed.summary())["reused"] == false;
        let goes_on = events(&resumed, "training_resumed").count();
        assert_eq!(
            goes_on,
            usize::from(trained && left > 0),
            "{step}: a checkpoint is not gone on from"
        );
        assert!(
            content(&shop.path("out/net")) == expected,
            "{step}: another model"
        );
        assert!(
            std::fs::read_dir(shop.path(".forebay/checkpoints")).map_or(0, Iterator::count) == 0,
            "{step}"
        );
    }
}

/// Marks the rows in which a column is null: a transform that a program registers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NullMarks {
    column: String,
}

impl ConfiguredTransform for NullMarks {
    const NAME: &'static str = "null_marks";
}

impl Transform for NullMarks {
    fn bind(&self, _: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let output = Field::new("is_null", DataType::Boolean, false);
        Ok(vec![PlanOp::Map(MapOp::new(
            [&self.column],
            [output],
            |inputs, _| {
                let nulls = (0..inputs[0].len()).map(|row| Some(inputs[0].is_null(row)));
                Ok(vec![Arc::new(nulls.collect::<BooleanArray>()) as ArrayRef])
            },
        ))])
    }
}

#[test]
fn models_behind_transforms_of_a_program_are_exported() {
    let shop = TestDirectory::new();
    let train = format!("dense: [f1, f2], categorical: [], {LINEAR}");
    let yaml = spec(&shop, "      - null_marks: { column: f1 }", &train);
    let options = SessionOptions::default()
        .memory_bytes(1 << 30)
        .state(shop.at("state"));
    let forebay = Forebay::new()
        .with_options(options)
        .with_transform::<NullMarks>();
    let pipeline = forebay::spec::parse(
        &std::fs::read_to_string(yaml).unwrap(),
        "spec.yaml",
        &BTreeMap::new(),
        &forebay.spec_catalog(),
    );
    let mut pipeline = pipeline.unwrap();
    pipeline.trainings[0].config["path"] = shop.at("out/net").into();
    let session = forebay.session().unwrap();
    session.run(&pipeline).unwrap();
    let model = TrainedModel::load(session.io(), &shop.at("out/net")).unwrap();
    let fault = model.to_onnx(&ModelPart::default()).unwrap_err();
    assert!(fault.message().contains("`null_marks`"), "{fault}");
    let model = model.with_transforms_of(&forebay);
    assert!(!model.to_onnx(&ModelPart::default()).unwrap().is_empty());
}

fn session(shop: &TestDirectory, state: &str) -> Session {
    let options = SessionOptions {
        threads: 2,
        memory_bytes: 1 << 30,
        batch_rows: 300,
        state: shop.at(state),
        run_id: None,
    };
    Forebay::new().with_options(options).session().unwrap()
}

#[test]
fn predictions_are_those_that_the_model_was_validated_with() {
    let shop = TestDirectory::new();
    spec(&shop, "", &MLP.replace("patience_epochs: 2, ", ""));
    let summary = run(&shop, &[]).expect(0).summary();
    let args = [
        "predict",
        "out/net",
        "--source",
        "clicks",
        "--columns",
        "y,f1",
        "--split",
        "validation",
    ];
    shop.forebay(&[&args[..], &["--output", "out/some"]].concat())
        .expect(0);
    let some = shop.rows("out/some");
    let names: Vec<&String> = some
        .schema_ref()
        .fields()
        .iter()
        .map(|field| field.name())
        .collect();
    assert_eq!(names, ["y", "f1", "prediction"]);
    let floats = |name: &str| {
        some.column_by_name(name)
            .unwrap()
            .as_primitive::<Float32Type>()
            .clone()
    };
    let labels = floats("y");
    let predictions = floats("prediction");
    let squares = labels
        .values()
        .iter()
        .zip(predictions.values())
        .map(|(a, b)| f64::from(a - b).powi(2));
    let rmse = (squares.sum::<f64>() / some.num_rows() as f64).sqrt();
    assert!(
        (rmse - of(&summary, "rmse")).abs() < 1e-6 * rmse,
        "{rmse} is not {}",
        of(&summary, "rmse")
    );

    // From Rust, over a dataset and over rows at hand.
    let session = session(&shop, "state");
    let model = TrainedModel::load(session.io(), &shop.at("out/net")).unwrap();
    let sources = BTreeMap::from([("clicks".to_owned(), shop.at("clicks"))]);
    let scoring = ScoringRequest {
        sources,
        output: shop.at("out/all"),
        ..ScoringRequest::default()
    };
    let report = model.score(&session, &scoring).unwrap();
    assert_eq!(report.outputs[0].rows, 6000);
    let all = shop.rows("out/all");
    let scored = all
        .column_by_name("prediction")
        .unwrap()
        .as_primitive::<Float32Type>()
        .clone();
    assert_eq!(model.predict(&all).unwrap().point, scored);
    assert!(
        model.score(&session, &scoring).unwrap().nothing_new,
        "the same model over the same rows is nothing new"
    );
    let origin = &model.card().origin;
    assert_eq!(
        (origin.from.as_str(), &origin.artifact),
        ("features", &model.artifact.id.to_string())
    );
}

#[test]
fn the_builder_gives_the_same_training() {
    let shop = TestDirectory::new();
    let yaml = spec(&shop, "", LINEAR);
    let from_yaml = forebay::spec::parse(
        &std::fs::read_to_string(yaml).unwrap(),
        "spec.yaml",
        &BTreeMap::new(),
        &Forebay::new().spec_catalog(),
    );
    let from_yaml = from_yaml.unwrap();
    let train = TrainConfig {
        path: Some(shop.at("out/net")),
        label: Some("y".into()),
        batch_rows: Some(512),
        epochs: Some(8),
        learning_rate: Some(0.3),
        weight_decay: 0.0,
        ..TrainConfig::default()
    };
    let pipeline = PipelineBuilder::new("clicks");
    let clicks = pipeline.source("clicks", ParquetSource::at("clicks"));
    pipeline.train("net", pipeline.step("features", &clicks).name(), train);
    let mut built = pipeline.build().unwrap();
    let trainings = std::mem::take(&mut built.trainings);
    let built = Pipeline {
        trainings,
        ..from_yaml.clone()
    };
    let first = session(&shop, "state").run(&built).unwrap();
    assert!(!first.models[0].reused);
    let mut same = from_yaml;
    same.trainings[0].config["path"] = shop.at("out/net").into();
    assert!(session(&shop, "state").run(&same).unwrap().nothing_new);
}

/// Patterns among features stand for the columns that match, but for the label.
#[test]
fn features_are_chosen_by_patterns() {
    let shop = TestDirectory::new();
    let train = |dense: &str| format!("dense: [{dense}], categorical: [], {LINEAR}");
    spec(&shop, "", &train("f1, f2"));
    let named = run(&shop, &[]).expect(0).summary();
    for dense in ["\"f*\"", "\"type:float\"", "f1, \"f*\""] {
        spec(&shop, "", &train(dense));
        shop.forebay(&["check", "spec.yaml"]).expect(0);
        let chosen = run(&shop, &["--state=other"]).expect(0).summary();
        assert_eq!(last_epoch(&chosen), last_epoch(&named), "{dense}");
        std::fs::remove_dir_all(shop.path("other")).unwrap();
    }
    spec(&shop, "", &train("\"g*\""));
    for command in ["check", "run"] {
        let call = shop.forebay(&[command, "spec.yaml"]).expect(78);
        assert!(
            call.stderr.contains("no column matches `g*`"),
            "{}",
            call.stderr
        );
    }
}

#[test]
fn stopping_early_takes_the_best_epoch() {
    let shop = TestDirectory::new();
    // With such a learning rate, the model leaves again what it has found.
    let train = "model: linear, batch_rows: 512, epochs: 40, learning_rate: 3.0, decay: constant, patience_epochs: 2";
    spec(&shop, "", train);
    let summary = run(&shop, &[]).expect(0).summary();
    let epochs = model(&summary)["epochs"].as_array().unwrap();
    let losses: Vec<f64> = epochs
        .iter()
        .map(|epoch| epoch["validation"]["loss"].as_f64().unwrap())
        .collect();
    let best = losses
        .iter()
        .copied()
        .enumerate()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap();
    assert!(epochs.len() < 40, "{losses:?}");
    assert_eq!(model(&summary)["best_epoch"], best.0, "{losses:?}");
    assert_eq!(epochs.len(), best.0 + 3);
    shop.forebay(&[
        "predict",
        "out/net",
        "--source",
        "clicks",
        "--split",
        "validation",
        "--output",
        "out/p",
    ])
    .expect(0);
    let rows = shop.rows("out/p");
    let column = |name: &str| {
        rows.column_by_name(name)
            .unwrap()
            .as_primitive::<Float32Type>()
            .clone()
    };
    let squares = column("y")
        .values()
        .iter()
        .zip(column("prediction").values())
        .map(|(a, b)| f64::from(a - b).powi(2))
        .sum::<f64>();
    assert!(
        (squares / rows.num_rows() as f64 / best.1 - 1.0).abs() < 1e-5,
        "the model is not that of the best epoch"
    );
}

#[test]
fn windows_are_learned_from_the_output_that_holds_them() {
    let shop = TestDirectory::new();
    let data = shop.demand("data", 500);
    let text = format!(
        r#"
version: 1
name: demand
sources:
  demand: {{ parquet: {{ path: "{data}" }}, time: date, keys: [store_id, item_id] }}
steps:
  features:
    from: demand
    do:
      - lag: {{ columns: [qty], by: [1d, 7d] }}
      - filter: "qty_lag_7d IS NOT NULL AND qty_lag_1d IS NOT NULL AND qty IS NOT NULL"
      - select: [date, store_id, item_id, qty, qty_lag_1d, qty_lag_7d]
label: {{ column: qty, horizon: 1d }}
sinks:
  table: {{ from: features, parquet: {{ path: out/table }} }}
  net: {{ from: features, train: {{ path: out/net, batch_rows: 512, epochs: 2 }} }}
"#
    );
    shop.write("spec.yaml", &text);
    let summary = run(&shop, &[]).expect(0).summary();
    let rows = model(&summary)["rows"].as_u64().unwrap();
    assert_eq!(rows, summary["outputs"][0]["rows"].as_u64().unwrap());
    assert!(rows > 1000 && model(&summary)["validation_rows"] == 0);
    // What predicts needs the history that the windows reach, and nothing but the model's directory else.
    std::fs::remove_dir_all(shop.path(".forebay")).unwrap();
    let call = shop.forebay(&[
        "predict",
        "out/net",
        "--source",
        "data",
        "--output",
        "out/p",
        "--columns",
        "qty",
    ]);
    call.expect(0);
    assert_eq!(shop.rows("out/p").num_rows() as u64, rows);
    // A run for an interval learns from what the output shows then.
    shop.write("intervals.yaml", &text.replace("out/", "out/of_intervals_"));
    for days in [["2016-05-01", "2016-05-08"], ["2016-05-08", "2016-05-15"]] {
        let args = [
            "run",
            "intervals.yaml",
            "--json",
            "--interval",
            days[0],
            days[1],
        ];
        let summary = shop.forebay(&args).expect(0).summary();
        let visible = shop.visible("out/of_intervals_table").num_rows() as u64;
        assert_eq!(model(&summary)["rows"].as_u64().unwrap(), visible);
    }
    // A sink for the rows is not required: without one, the run writes them itself.
    let alone = text
        .replace("  table:", "  # table:")
        .replace("out/net", "out/alone");
    shop.write("alone.yaml", &alone);
    let told = shop
        .forebay(&["explain", "alone.yaml", "--state", "alone"])
        .expect(0)
        .stdout;
    for words in [
        "1 training",
        "sink `net` learns from `features`",
        "what `net.all` writes",
        "training 2",
    ] {
        assert!(told.contains(words), "`{words}` is missing:\n{told}");
    }
    let call = ["run", "alone.yaml", "--json", "--state", "alone"];
    let summary = shop.forebay(&call).expect(0).summary();
    assert_eq!(
        (&model(&summary)["rows"], &summary["outputs"][0]["sink"]),
        (&rows.into(), &"net.all".into())
    );
    assert_eq!(shop.forebay(&call).expect(0).summary()["nothing_new"], true);
    let costs = std::fs::read_to_string(shop.path("alone/costs/demand.json")).unwrap();
    assert!(
        costs.contains("train net"),
        "what a training costs is known to the next forecast: {costs}"
    );
    let parts =
        "split: { train: \"date < '2016-05-10'\", validation: \"date >= '2016-05-10'\" }\nlabel:";
    shop.write(
        "parts.yaml",
        &alone
            .replace("label:", parts)
            .replace("[date, store_id,", "[store_id,"),
    );
    let summary = shop
        .forebay(&["run", "parts.yaml", "--json", "--state", "parts"])
        .expect(0)
        .summary();
    let model = model(&summary);
    let counted = ["rows", "validation_rows"].map(|count| model[count].as_u64().unwrap());
    assert!(
        counted[0] > 0 && counted[1] > 0 && counted[0] + counted[1] == rows,
        "{model}"
    );

    // Leakage is refused of features that are trained on as of those that are written.
    shop.write(
        "spec.yaml",
        &text
            .replace("horizon: 1d", "horizon: 3d")
            .replace("  table:", "  # table:"),
    );
    let late = shop.forebay(&["run", "spec.yaml"]).expect(78);
    assert!(late.stderr.contains("FB0115"), "{}", late.stderr);
}

#[test]
fn the_ready_made_forecast_runs_and_predicts() {
    let shop = TestDirectory::new();
    let spec = ready_made("forecast.yaml");
    let data = shop.demand("data", 2000);
    let params = [
        format!("--param=history={data}"),
        format!("--param=out={}", shop.at("out")),
    ];
    let more = ["--param=train_until=2016-05-15", "--param=epochs=1"];
    let call = shop
        .forebay(&[&["run", &spec, "--json", &params[0], &params[1]], &more[..]].concat())
        .expect(0);
    assert!(
        of(&call.summary(), "wmape") < 1.5,
        "{}",
        last_epoch(&call.summary())
    );
    let args = [
        "predict",
        "out/net",
        "--source",
        "data",
        "--output",
        "out/p",
        "--columns",
        "date,qty",
        "--split",
    ];
    shop.forebay(&[&args[..], &["validation"]].concat())
        .expect(0);
    let scored = shop.rows("out/p");
    let labels = scored.column_by_name("qty").unwrap();
    let without_label = labels.null_count() as u64;
    assert!(without_label > 0, "rows without a label are scored, too");
    assert_eq!(
        Some(scored.num_rows() as u64 - without_label),
        model(&call.summary())["validation_rows"].as_u64()
    );
}

#[test]
fn what_cannot_be_trained_on_says_why() {
    let shop = TestDirectory::new();
    let fails = |steps: &str, train: &str, code: &str, exit: i32, words: &[&str]| {
        spec(&shop, steps, train);
        let call = shop.forebay(&["run", "spec.yaml"]);
        for word in words.iter().chain([&code]) {
            assert!(
                call.stderr.contains(word),
                "`{word}` is missing:\n{}",
                call.stderr
            );
        }
        call.expect(exit);
        assert!(!shop.path("out/.net.forebay/_manifest.json").exists());
    };
    // What is seen before anything is read.
    fails(
        "",
        "hidden: [4]",
        "FB0104",
        78,
        &["`hidden` is for `model: mlp`"],
    );
    fails("", "epochs: 0", "FB0104", 78, &["epochs"]);
    fails("", "model: forest", "FB0104", 78, &["mlp"]);
    fails("", "validation: test", "FB0105", 78, &["no part `test`"]);
    fails("", "dense: [f1, f9]", "FB0107", 78, &["no column `f9`"]);
    let late = shop.forebay(&["run", "spec.yaml", "--json"]);
    assert!(
        events(&late, "pass_started").next().is_none(),
        "{}",
        late.stdout
    );
    fails(
        "",
        "patience_epochs: 1, learning_rate: -1",
        "FB0104",
        78,
        &["learning_rate"],
    );
    spec(&shop, "", LINEAR);
    let inside = std::fs::read_to_string(shop.path("spec.yaml"))
        .unwrap()
        .replace("path: out/net", "path: clicks");
    shop.write("inside.yaml", &inside);
    let clash = shop.forebay(&["run", "inside.yaml"]).expect(78);
    assert!(clash.stderr.contains("FB0114"), "{}", clash.stderr);
    // Labels.
    fails(
        "      - drop: [y]\n      - derive: { y: \"c6\" }\n      - drop: [y]\n      - rename: { c6: y }",
        "categorical: [c6]",
        "FB01",
        78,
        &[],
    );
    let null = r#"      - derive: { n: "CASE WHEN f1 < 0 THEN NULL ELSE y END" }
      - drop: [y]
      - rename: { n: y }"#;
    fails(
        null,
        "epochs: 1",
        "FB0206",
        65,
        &["values of `y` are missing", "clicks"],
    );
    fails(
        "",
        "model: logistic",
        "FB0206",
        65,
        &["is not between 0 and 1"],
    );
    // Features.
    let nan = r#"      - derive: { g: "CASE WHEN f1 < 0 THEN CAST('NaN' AS REAL) ELSE f1 END" }
      - drop: [f1]
      - rename: { g: f1 }"#;
    let by_f2 = "epochs: 1, batch_rows: 512";
    fails(nan, by_f2, "FB0205", 65, &["`f1` has", "not finite"]);
    fails(
        "",
        "model: mlp, epochs: 9, learning_rate: 1e30, batch_rows: 512",
        "FB0205",
        65,
        &["learning_rate"],
    );
    fails(
        "",
        "model: mlp, hidden: [60000, 60000]",
        "FB0301",
        78,
        &["hidden"],
    );
    fails(
        "",
        "model: mlp, embeddings: { c7: 4 }",
        "FB0107",
        78,
        &["c7"],
    );

    // Where the spec says what becomes of them, they are counted.
    for (word, counted) in [("skip", "skipped_rows"), ("zero", "non_finite")] {
        spec(&shop, nan, &format!("{by_f2}, non_finite: {word}"));
        let call = run(&shop, &["--state", word]).expect(0);
        let epoch = events(&call, "training_epoch").next().unwrap();
        assert!(epoch[counted].as_u64().unwrap() > 0, "{epoch}");
        assert_eq!(epoch["skipped_rows"] == 0, word == "zero");
        let out = format!("out/{word}");
        shop.forebay(&["predict", "out/net", "--source", "clicks", "--output", &out])
            .expect(0);
        let rows = shop.rows(&out);
        let nulls = rows.column_by_name("prediction").unwrap().null_count();
        let nans = rows
            .column_by_name("f1")
            .unwrap()
            .as_primitive::<Float32Type>()
            .iter()
            .flatten();
        assert_eq!(
            nulls,
            if word == "skip" {
                nans.filter(|value| value.is_nan()).count()
            } else {
                0
            }
        );
    }
}

#[test]
fn models_and_checkpoints_that_do_not_fit_say_so() {
    let shop = TestDirectory::new();
    spec(&shop, "", LINEAR);
    run(&shop, &[]).expect(0);
    // A dataset without a column that the features are made of.
    let spec_text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let narrow = spec_text
        .replace("select: [f1, f2, c6, y]", "select: [f2, c6, y]")
        .replace("net:", "table:");
    let narrow =
        narrow.split("train: {").next().unwrap().to_owned() + "parquet: { path: out/narrow } }\n";
    let narrow = narrow.replace("name: clicks", "name: narrow");
    shop.write("narrow.yaml", &narrow);
    shop.forebay(&["run", "narrow.yaml"]).expect(0);
    let call = shop
        .forebay(&[
            "predict",
            "out/net",
            "--source",
            "out/narrow",
            "--output",
            "out/p",
        ])
        .expect(78);
    assert!(
        call.stderr.contains("FB0107") && call.stderr.contains("f1"),
        "{}",
        call.stderr
    );
    let call = shop
        .forebay(&[
            "predict", "out/net", "--source", "clicks", "--output", "out/p", "--name", "y",
        ])
        .expect(78);
    assert!(call.stderr.contains("FB0109"), "{}", call.stderr);

    // A checkpoint of another training, under this one's name.
    let of = |train: &str, at: usize| {
        spec(&shop, "", train);
        let killed = shop
            .command(&["run", "spec.yaml"])
            .env("FOREBAY_KILL_AT", at.to_string())
            .watched();
        assert_eq!(killed.status.signal(), Some(9));
        std::fs::read_dir(shop.path(".forebay/checkpoints"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path()
    };
    spec(&shop, "", MLP);
    let calm = shop
        .command(&["run", "spec.yaml"])
        .env("FOREBAY_KILL_LOG", shop.path("steps"))
        .watched();
    assert!(calm.status.success());
    let steps = std::fs::read_to_string(shop.path("steps")).unwrap();
    let at = steps
        .lines()
        .position(|step| step.starts_with("have named") && step.contains("checkpoints/"))
        .unwrap();
    let first = of(&MLP.replace("seed: 5", "seed: 7"), at);
    let bytes = std::fs::read(&first).unwrap();
    std::fs::remove_file(&first).unwrap();
    let second = of(&MLP.replace("seed: 5", "seed: 8"), at);
    let own = std::fs::read(&second).unwrap();
    std::fs::write(&second, &bytes).unwrap();
    let call = shop.forebay(&["run", "spec.yaml"]).expect(65);
    assert!(call.stderr.contains("FB0215"), "{}", call.stderr);
    // One that is cut short is none.
    std::fs::write(&second, &own[..own.len() / 2]).unwrap();
    let anew = run(&shop, &[]).expect(0);
    assert_eq!(events(&anew, "training_resumed").count(), 0);
    // Half a model is none either.
    let file = shop.path("out/net/model.safetensors");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let call = shop
        .forebay(&[
            "predict", "out/net", "--source", "clicks", "--output", "out/p",
        ])
        .expect(65);
    assert!(call.stderr.contains("FB0203"), "{}", call.stderr);
}
