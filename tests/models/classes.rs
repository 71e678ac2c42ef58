//! Models of classes: probabilities and the most probable class, classes that were not learned, and what is refused.

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Int64Type};
use forebay::prelude::*;
use serde_json::{Value, json};

use crate::forecasts::quantiles::{columns, date};
use crate::support::{ProgramOutput, TestDirectory};

/// Rows whose class follows from `x` but for every thirteenth; 300 to learn from, and 100 to validate on. `code` numbers
/// the classes of `kind`; `late` has a class in four validation rows that no other row has.
fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    let mut text = "day,x,z,kind,code,late\n".to_owned();
    for row in 0..400 {
        let x = row * 37 % 100;
        let (kind, code) = match x {
            _ if row % 13 == 0 => ("green", -2),
            0..50 => ("red", 10),
            50..80 => ("green", -2),
            _ => ("blue", 3),
        };
        let is_late = row >= 300 && row % 25 == 0;
        let late = if is_late { "grey" } else { kind };
        let day = row / 20 + 1;
        let z = row % 7;
        text += &format!("2024-01-{day:02},{x},{z},{kind},{code},{late}\n");
    }
    shop.write("rows.csv", &text);
    shop
}

fn spec(shop: &TestDirectory, train: &str) {
    let columns = "day: date, x: float64, z: float64, kind: string, code: int64, late: string";
    shop.write(
        "spec.yaml",
        &format!(
            r#"
version: 1
name: kinds
sources: {{ rows: {{ csv: {{ path: rows.csv, columns: {{ {columns} }} }} }} }}
split: {{ train: "day < DATE '2024-01-16'", validation: "day >= DATE '2024-01-16'" }}
sinks:
  trees:
    from: rows
    train: {{ path: out/trees, model: gbdt, dense: [x, z], rounds: 20, leaves: 4, min_leaf_rows: 5, {train} }}
"#
        ),
    );
}

/// A network over standardised numbers.
fn network_spec(shop: &TestDirectory, train: &str) {
    let columns = "day: date, x: float64, z: float64, kind: string, code: int64, late: string";
    shop.write(
        "spec.yaml",
        &format!(
            r#"
version: 1
name: kinds
sources: {{ rows: {{ csv: {{ path: rows.csv, columns: {{ {columns} }} }} }} }}
steps:
  features:
    from: rows
    fit_on: train
    do: [{{ derive: {{ id: "CAST(z AS BIGINT)" }} }}, {{ standardize: {{ columns: [x, z] }} }}]
split: {{ train: "day < DATE '2024-01-16'", validation: "day >= DATE '2024-01-16'" }}
sinks:
  net: {{ from: features, train: {{ path: out/net, dense: [x, z], categorical: [id], {train} }} }}
"#
        ),
    );
}

fn run(shop: &TestDirectory, options: &[&str]) -> ProgramOutput {
    shop.forebay(&[&["run", "spec.yaml", "--json"], options].concat())
}

fn model(summary: &Value) -> &Value {
    &summary["models"][0]
}

/// Predictions of the validation rows by boosted trees, with the column of their classes.
fn predictions(shop: &TestDirectory, label: &str) -> RecordBatch {
    predictions_of(shop, "out/trees", label)
}

/// Predictions of the validation rows, with the column of their classes.
fn predictions_of(shop: &TestDirectory, model: &str, label: &str) -> RecordBatch {
    let args = [
        "predict",
        model,
        "--source",
        "rows.csv",
        "--split",
        "validation",
        "--columns",
        label,
        "--output",
        "out/predicted",
    ];
    shop.forebay(&args).expect(0);
    shop.rows("out/predicted")
}

fn probabilities(rows: &RecordBatch, class: &str) -> Vec<f64> {
    let name = format!("prediction_{class}");
    let column = rows
        .column_by_name(&name)
        .unwrap_or_else(|| panic!("no `{name}` in {}", rows.schema()));
    let values = column.as_primitive::<Float32Type>().values().iter();
    values.map(|value| f64::from(*value)).collect()
}

fn texts(rows: &RecordBatch, name: &str) -> Vec<String> {
    let column = cast(rows.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
    let values = column.as_string::<i32>().iter();
    values.map(|value| value.unwrap().to_owned()).collect()
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-5
}

const KINDS: [&str; 3] = ["blue", "green", "red"];

#[test]
fn classes_are_predicted_with_their_probabilities() {
    let shop = shop();
    spec(&shop, "loss: softmax, label: kind");
    shop.forebay(&["check", "spec.yaml"]).expect(0);
    let summary = run(&shop, &[]).expect(0).summary();
    let metrics = &model(&summary)["epochs"][0]["validation"];
    let names: Vec<&String> = metrics.as_object().unwrap().keys().collect();
    assert_eq!(names, ["accuracy", "log_loss", "loss"]);
    let metric = |name: &str| metrics[name].as_f64().unwrap();
    assert!(metric("accuracy") > 0.85, "{metrics}");
    let constant = model(&summary)["baseline"]["constant"].as_f64().unwrap();
    assert!(metric("log_loss") < constant / 2.0, "{metrics}, {constant}");
    assert_eq!(model(&summary)["importance"][0]["column"], "x");

    let rows = predictions(&shop, "kind");
    assert_eq!(
        columns(&rows),
        [
            "kind",
            "prediction",
            "prediction_blue",
            "prediction_green",
            "prediction_red"
        ]
    );
    assert_eq!(rows.num_rows(), 100);
    let of_classes = KINDS.map(|class| probabilities(&rows, class));
    let kinds = texts(&rows, "kind");
    let mut right = 0;
    let mut lost = 0.0;
    for (row, predicted) in texts(&rows, "prediction").iter().enumerate() {
        let of_row = of_classes.each_ref().map(|column| column[row]);
        assert!(is_near(of_row.iter().sum(), 1.0), "{of_row:?}");
        let class = KINDS.iter().position(|class| class == predicted).unwrap();
        assert!(of_row.iter().all(|share| *share <= of_row[class]));
        right += usize::from(*predicted == kinds[row]);
        let label = KINDS.iter().position(|class| *class == kinds[row]).unwrap();
        lost -= of_row[label].ln();
    }
    assert!(is_near(metric("accuracy"), right as f64 / 100.0));
    assert!(
        is_near(metric("log_loss"), lost / 100.0),
        "{metrics}, {lost}"
    );

    // From Rust, over rows at hand.
    let session = Forebay::new().session().unwrap();
    let trained = TrainedModel::load(session.io(), &shop.at("out/trees")).unwrap();
    let classes = trained.classes().unwrap();
    assert_eq!(classes.names(), KINDS);
    assert_eq!(trained.columns(), ["x", "z"]);
}

/// Log loss and accuracy of predictions of `kind`, of which each row's probabilities sum to 1.
fn measured(rows: &RecordBatch) -> (f64, f64) {
    let of_classes = KINDS.map(|class| probabilities(rows, class));
    let kinds = texts(rows, "kind");
    let mut right = 0;
    let mut lost = 0.0;
    for (row, predicted) in texts(rows, "prediction").iter().enumerate() {
        let of_row = of_classes.each_ref().map(|column| column[row]);
        assert!(is_near(of_row.iter().sum(), 1.0), "{of_row:?}");
        right += usize::from(*predicted == kinds[row]);
        let label = KINDS.iter().position(|class| *class == kinds[row]).unwrap();
        lost -= of_row[label].ln();
    }
    let count = rows.num_rows() as f64;
    (lost / count, right as f64 / count)
}

#[test]
fn networks_predict_classes_with_their_probabilities() {
    for network in [
        "model: linear",
        "model: mlp, hidden: [16], epochs: 200, batch_rows: 64",
    ] {
        let shop = shop();
        network_spec(&shop, &format!("{network}, loss: softmax, label: kind"));
        shop.forebay(&["check", "spec.yaml"]).expect(0);
        let summary = run(&shop, &["--threads", "2"]).expect(0).summary();
        let epochs = model(&summary)["epochs"].as_array().unwrap();
        let metrics = &epochs.last().unwrap()["validation"];
        let names: Vec<&String> = metrics.as_object().unwrap().keys().collect();
        assert_eq!(names, ["accuracy", "log_loss", "loss"]);
        let metric = |name: &str| metrics[name].as_f64().unwrap();
        assert!(
            metric("accuracy") > 0.8 && metric("log_loss") < 0.6,
            "{network}: {metrics}"
        );
        let constant = model(&summary)["baseline"]["constant"].as_f64().unwrap();
        assert!((0.9..1.2).contains(&constant), "{constant}");

        let rows = predictions_of(&shop, "out/net", "kind");
        let (log_loss, accuracy) = measured(&rows);
        assert!(
            is_near(metric("log_loss"), log_loss),
            "{metrics}, {log_loss}"
        );
        assert!(
            is_near(metric("accuracy"), accuracy),
            "{metrics}, {accuracy}"
        );

        // The bits do not depend on threads.
        let file = shop.path("out/net/model.safetensors");
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        run(&shop, &["--threads", "1", "--state", "other-state"]).expect(0);
        assert!(std::fs::read(&file).unwrap() == bytes, "{network}");

        // Whole numbers are classes in another order.
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        network_spec(&shop, &format!("{network}, loss: softmax, label: code"));
        run(&shop, &[]).expect(0);
        let by_number = predictions_of(&shop, "out/net", "code");
        assert_eq!(
            columns(&by_number),
            [
                "code",
                "prediction",
                "prediction_-2",
                "prediction_3",
                "prediction_10"
            ]
        );
        let predicted = by_number.column_by_name("prediction").unwrap();
        assert_eq!(predicted.data_type(), &DataType::Int64);

        shop.forebay(&["export", "out/net", "net.onnx", "--without-steps"])
            .expect(0);
        let file = std::fs::read(shop.path("net.onnx")).unwrap();
        let file = String::from_utf8_lossy(&file);
        assert!(file.contains("ArgMax") && file.contains("class of `code`"));
    }
}

#[test]
fn networks_leave_out_validation_rows_of_unknown_classes() {
    let shop = shop();
    network_spec(&shop, "model: linear, loss: softmax, label: late");
    let call = run(&shop, &[]).expect(0);
    let summary = call.summary();
    let change = json!({ "step": "net.validation", "change": "unknown_class", "count": 4 });
    assert_eq!(model(&summary)["validation_changes"], json!([change]));
    let words = format!("{}{}", call.stdout, call.stderr);
    assert!(words.contains("4 validation rows of `net`"), "{words}");
    let rows = predictions_of(&shop, "out/net", "late");
    assert_eq!(rows.num_rows(), 100);
    assert!(rows.column_by_name("prediction_grey").is_none());
}

/// A loss of no rows ends no training, and is not reported.
#[test]
fn networks_train_on_where_all_validation_rows_have_unknown_classes() {
    let shop = shop();
    let rows = std::fs::read_to_string(shop.path("rows.csv")).unwrap();
    let mut text = String::new();
    for (number, line) in rows.lines().enumerate() {
        let (columns, class) = line.rsplit_once(',').unwrap();
        // The header, and 300 rows to learn from.
        let class = if number > 300 { "grey" } else { class };
        text += &format!("{columns},{class}\n");
    }
    shop.write("rows.csv", &text);
    let train = "model: linear, loss: softmax, label: late, epochs: 3, patience_epochs: 1";
    network_spec(&shop, train);
    let summary = run(&shop, &[]).expect(0).summary();
    let change = json!({ "step": "net.validation", "change": "unknown_class", "count": 100 });
    assert_eq!(model(&summary)["validation_changes"], json!([change]));
    let epochs = model(&summary)["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 3);
    assert!(model(&summary)["baseline"].is_null(), "{summary}");
}

#[test]
fn settings_that_do_not_suit_networks_of_classes_are_refused() {
    let shop = shop();
    for (train, code, words) in [
        (
            "model: logistic, loss: softmax, label: kind",
            "FB0104",
            "`loss` is for `model: mlp`",
        ),
        (
            "model: mlp, loss: softmax, label: kind, device: cuda",
            "FB0104",
            "on the processor",
        ),
        (
            "model: mlp, loss: softmax, label: kind, start: last",
            "FB0104",
            "begins with nothing",
        ),
        (
            "model: mlp, loss: softmax, label: x",
            "FB0108",
            "the training learns classes",
        ),
        (
            "model: mlp, label: kind",
            "FB0108",
            "the training learns numbers",
        ),
    ] {
        network_spec(&shop, train);
        for command in ["check", "run"] {
            let call = shop.forebay(&[command, "spec.yaml"]).expect(78);
            for word in [code, words] {
                assert!(
                    call.stderr.contains(word),
                    "{train}: {word}: {}",
                    call.stderr
                );
            }
        }
    }
}

#[test]
fn whole_numbers_are_classes_in_another_order() {
    let shop = shop();
    spec(&shop, "loss: softmax, label: kind");
    run(&shop, &[]).expect(0);
    let by_text = predictions(&shop, "kind");
    spec(&shop, "loss: softmax, label: code");
    run(&shop, &[]).expect(0);
    let by_number = predictions(&shop, "code");
    assert_eq!(
        columns(&by_number),
        [
            "code",
            "prediction",
            "prediction_-2",
            "prediction_3",
            "prediction_10"
        ]
    );
    let predicted = by_number.column_by_name("prediction").unwrap();
    let predicted: Vec<i64> = predicted.as_primitive::<Int64Type>().values().to_vec();
    let texts = texts(&by_text, "prediction");
    for (code, kind) in [("3", "blue"), ("-2", "green"), ("10", "red")] {
        let pairs = probabilities(&by_number, code)
            .into_iter()
            .zip(probabilities(&by_text, kind));
        for (of_number, of_text) in pairs {
            assert!((of_number - of_text).abs() < 1e-3, "{of_number}, {of_text}");
        }
        for (number, text) in predicted.iter().zip(&texts) {
            assert_eq!(number.to_string() == code, text == kind);
        }
    }
}

#[test]
fn the_model_has_the_same_bits_on_any_number_of_threads() {
    let shop = shop();
    spec(&shop, "loss: softmax, label: kind");
    let first = run(&shop, &["--threads", "1"]).expect(0).summary();
    let file = shop.path("out/trees/model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let again = run(&shop, &["--signal-nothing-new"]).expect(99).summary();
    assert_eq!(model(&again)["id"], model(&first)["id"]);
    std::fs::remove_dir_all(shop.path("out")).unwrap();
    let other = run(&shop, &["--threads", "2", "--state", "other-state"]);
    let other = other.expect(0).summary();
    assert_eq!(model(&other)["reused"], false);
    assert!(std::fs::read(&file).unwrap() == bytes);
}

#[test]
fn validation_rows_of_unknown_classes_are_counted_and_left_out() {
    let shop = shop();
    spec(&shop, "loss: softmax, label: late");
    let call = run(&shop, &[]).expect(0);
    let summary = call.summary();
    let change = json!({ "step": "trees.validation", "change": "unknown_class", "count": 4 });
    assert_eq!(model(&summary)["validation_changes"], json!([change]));
    assert_eq!(model(&summary)["validation_rows"], 100);
    let words = format!("{}{}", call.stdout, call.stderr);
    assert!(
        words.contains("4 validation rows") && words.contains("`grey`"),
        "{words}"
    );
    let rows = predictions(&shop, "late");
    assert_eq!(rows.num_rows(), 100);
    assert!(rows.column_by_name("prediction_grey").is_none());
}

#[test]
fn labels_and_settings_that_do_not_suit_a_loss_are_refused() {
    let shop = shop();
    for (train, code, words) in [
        ("label: kind", "FB0108", "the training learns numbers"),
        (
            "loss: softmax, label: x",
            "FB0108",
            "the training learns classes",
        ),
        (
            "loss: softmax, label: kind, by: [z]",
            "FB0104",
            "one model over all rows",
        ),
        (
            "loss: softmax, label: kind, quantiles: [0.5]",
            "FB0104",
            "no quantiles",
        ),
        (
            "loss: softmax, label: kind, start: last",
            "FB0104",
            "grows all trees",
        ),
        (
            "loss: softmax, label: kind, intervals: { levels: [80] }",
            "FB0104",
            "no intervals",
        ),
    ] {
        spec(&shop, train);
        for command in ["check", "run"] {
            let call = shop.forebay(&[command, "spec.yaml"]).expect(78);
            for word in [code, words] {
                assert!(
                    call.stderr.contains(word),
                    "{train}: {word}: {}",
                    call.stderr
                );
            }
        }
    }
}

/// The runtimes themselves are compared in `pipelines/python/tests/test_export.py`.
#[test]
fn models_of_classes_are_exported() {
    let shop = shop();
    spec(&shop, "loss: softmax, label: kind");
    run(&shop, &[]).expect(0);
    shop.forebay(&["export", "out/trees", "trees.onnx"])
        .expect(0);
    let file = std::fs::read(shop.path("trees.onnx")).unwrap();
    let file = String::from_utf8_lossy(&file);
    for word in [
        "Softmax",
        "ArgMax",
        "prediction_blue",
        "prediction_green",
        "prediction_red",
        "class of `kind`",
    ] {
        assert!(file.contains(word), "no `{word}`");
    }
    shop.forebay(&["export", "out/trees", "trees.txt"])
        .expect(0);
    let text = std::fs::read_to_string(shop.path("trees.txt")).unwrap();
    for line in [
        "num_class=3",
        "num_tree_per_iteration=3",
        "objective=multiclass num_class:3",
    ] {
        assert!(text.lines().any(|other| other == line), "no `{line}`");
    }
    let trees = text.lines().filter(|line| line.starts_with("Tree="));
    assert!(trees.count().is_multiple_of(3));

    let args = ["export", "out/trees", "step.onnx", "--step", "1"];
    let call = shop.forebay(&args).expect(78);
    assert!(call.stderr.contains("FB0104"), "{}", call.stderr);
}

#[test]
fn predictions_of_classes_have_no_bounds() {
    let shop = shop();
    spec(&shop, "loss: softmax, label: kind");
    run(&shop, &[]).expect(0);
    let args = [
        "predict",
        "out/trees",
        "--source",
        "rows.csv",
        "--output",
        "out/p",
    ];
    let call = shop
        .forebay(&[&args[..], &["--min", "0"]].concat())
        .expect(78);
    assert!(call.stderr.contains("FB0104"), "{}", call.stderr);
    assert!(call.stderr.contains("predicts classes"), "{}", call.stderr);
}

#[test]
fn forecasts_are_of_numbers() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    crate::forecasts::quantiles::spec(&shop, "history", &date(&days, 33), "loss: softmax", "");
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let class = "- derive: { sold: \"CASE WHEN qty > 2 THEN 'many' ELSE 'few' END\" }";
    let text = text
        .replace("- future_rows", &format!("{class}\n      - future_rows"))
        .replace("      label: qty\n", "      label: sold\n");
    shop.write("spec.yaml", &text);
    let call = shop.forebay(&["run", "spec.yaml"]).expect(78);
    assert!(
        call.stderr.contains("FB0113") && call.stderr.contains("a forecast is of numbers"),
        "{}",
        call.stderr
    );
}
