//! Boosted trees: values of a slow reference, the same bits however they are trained, models of groups that stand
//! while their rows do, and what cannot be trained on.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, SystemTime};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, content};

/// Clicks in four groups `g`, of which the last has few rows; `steps` may change them.
fn spec(shop: &TestDirectory, steps: &str, train: &str) {
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
    do:
      - impute: {{ columns: [f1, f2], with: median }}
      - vocabulary: {{ columns: [c6], min_count: 2, oov_buckets: 1 }}
      - derive:
          a: "CAST(LEAST(f1, 40) AS REAL)"
          b: "CAST(CASE WHEN f2 > 30 THEN NULL ELSE f2 END AS REAL)"
          g: "CASE WHEN f1 % 97 = 5 THEN 'rare' ELSE CONCAT('g', CAST(CAST(f2 AS BIGINT) % 3 AS VARCHAR)) END"
      - derive: {{ y: "CAST(LEAST(f1, 20) * 2 + CASE WHEN c6 % 2 = 0 THEN 9 ELSE 1 END + COALESCE(b, 50) AS REAL)" }}
{steps}
      - select: [f1, f2, a, b, c6, g, y]
split: {{ by_hash: {{ keys: [f1, f2], parts: {{ train: 0.8, validation: 0.2 }} }} }}
sinks:
  trees: {{ from: features, train: {{ path: out/trees, model: gbdt, label: y, dense: [a, b], categorical: [c6], {train} }} }}
"#
        ),
    );
}

const SMALL: &str = "rounds: 12, leaves: 8, patience_rounds: 5";
const BY_GROUP: &str = "rounds: 6, leaves: 6, by: [g], min_rows: 150";

fn run(shop: &TestDirectory, more: &[&str]) -> ProgramOutput {
    shop.forebay(&[&["run", "spec.yaml", "--json"], more].concat())
}

fn model(summary: &Value) -> &Value {
    &summary["models"][0]
}

fn metric(summary: &Value, name: &str) -> f64 {
    model(summary)["epochs"][0]["validation"][name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {summary}"))
}

fn predictions(shop: &TestDirectory, out: &str, more: &[&str]) -> RecordBatch {
    let args = [
        "predict",
        "out/trees",
        "--source",
        "clicks",
        "--columns",
        "a,b,c6,g,y",
        "--output",
        out,
    ];
    shop.forebay(&[&args[..], more].concat()).expect(0);
    shop.rows(out)
}

fn numbers(rows: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    let column = cast(rows.column_by_name(name).unwrap(), &DataType::Float64).unwrap();
    column.as_primitive::<Float64Type>().iter().collect()
}

fn model_bytes(shop: &TestDirectory) -> Vec<u8> {
    std::fs::read(shop.path("out/trees/model.safetensors")).unwrap()
}

/// The best split of rows by one of the features, and the mean labels of its sides, found by trying all.
fn best_stump(features: &[Vec<Option<f64>>], labels: &[f64], side_min: usize) -> Vec<f64> {
    let mean =
        |rows: &[usize]| rows.iter().map(|row| labels[*row]).sum::<f64>() / rows.len() as f64;
    let error = |rows: &[usize]| {
        let middle = mean(rows);
        rows.iter()
            .map(|row| (labels[*row] - middle).powi(2))
            .sum::<f64>()
    };
    let mut best: Option<(f64, Vec<f64>)> = None;
    for feature in features {
        let mut values: Vec<f64> = feature.iter().flatten().copied().collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        for value in values {
            for missing_left in [false, true] {
                let left = |row: &usize| feature[*row].map_or(missing_left, |own| own <= value);
                let (left, right): (Vec<usize>, Vec<usize>) = (0..labels.len()).partition(left);
                if left.len() < side_min || right.len() < side_min {
                    continue;
                }
                let lost = error(&left) + error(&right);
                if best.as_ref().is_none_or(|(least, _)| lost < *least) {
                    let sides = [mean(&left), mean(&right)];
                    let mut predicted = vec![sides[1]; labels.len()];
                    left.iter().for_each(|row| predicted[*row] = sides[0]);
                    best = Some((lost, predicted));
                }
            }
        }
    }
    best.unwrap().1
}

#[test]
fn a_tree_of_two_leaves_makes_the_best_split_of_all() {
    let shop = TestDirectory::new();
    // Few values, so that each has a bin of its own.
    let steps = r#"      - derive: { a2: "CAST(ROUND(a / 4) AS REAL)", b2: "CAST(ROUND(b / 3) AS REAL)" }
      - drop: [a, b]
      - rename: { a2: a, b2: b }"#;
    for label in [
        "y",
        "CAST(COALESCE(b, -100) AS REAL)",
        "CAST(ABS(a - 4) AS REAL)",
    ] {
        let steps = format!(
            "{steps}\n      - derive: {{ z: \"{label}\" }}\n      - drop: [y]\n      - rename: {{ z: y }}"
        );
        spec(
            &shop,
            &steps,
            "rounds: 1, leaves: 2, learning_rate: 1.0, min_leaf_rows: 30",
        );
        let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
        // All rows are learned from, and no category.
        let text = text
            .replace("train: 0.8, validation: 0.2", "some: 0.8, rest: 0.2")
            .replace("[c6], r", "[], r");
        shop.write("spec.yaml", &text);
        run(&shop, &[]).expect(0);
        let rows = predictions(&shop, "out/p", &[]);
        let labels: Vec<f64> = numbers(&rows, "y").into_iter().flatten().collect();
        let expected = best_stump(&[numbers(&rows, "a"), numbers(&rows, "b")], &labels, 30);
        for (row, (found, expected)) in numbers(&rows, "prediction")
            .into_iter()
            .flatten()
            .zip(&expected)
            .enumerate()
        {
            assert!(
                (found - expected).abs() < 1e-4 * expected.abs().max(1.0),
                "{label}, row {row}: {found}, {expected}"
            );
        }
    }
}

#[test]
fn trees_learn_with_every_loss_and_stop_at_the_best_round() {
    let shop = TestDirectory::new();
    spec(&shop, "", "rounds: 120, leaves: 16, learning_rate: 0.2");
    let summary = run(&shop, &[]).expect(0).summary();
    assert!(
        metric(&summary, "wmape") < 0.03,
        "{}",
        model(&summary)["epochs"]
    );
    // The trees are those that the validation rows were judged by.
    let rows = predictions(&shop, "out/p", &["--split", "validation"]);
    let pairs = numbers(&rows, "y")
        .into_iter()
        .flatten()
        .zip(numbers(&rows, "prediction").into_iter().flatten());
    let rmse =
        (pairs.map(|(y, found)| (y - found).powi(2)).sum::<f64>() / rows.num_rows() as f64).sqrt();
    assert!((rmse / metric(&summary, "rmse") - 1.0).abs() < 1e-6);
    // A label that is nothing but noise: the first rounds are the best.
    let noise = r#"      - derive: { n: "CAST(SIN(f1 * 7919.0 + f2 * 104729.0) AS REAL)" }
      - drop: [y]
      - rename: { n: y }"#;
    spec(
        &shop,
        noise,
        "rounds: 200, patience_rounds: 3, min_leaf_rows: 1",
    );
    let trees = model(&run(&shop, &[]).expect(0).summary())["epochs"][0]["step"]
        .as_u64()
        .unwrap();
    assert!(trees < 100, "{trees} trees of noise");
    for loss in [
        "absolute_error",
        "poisson",
        "tweedie",
        "quantile, quantile: 0.9",
        "quantile, quantile: 0.1",
    ] {
        spec(
            &shop,
            "",
            &format!("rounds: 80, leaves: 8, learning_rate: 0.2, loss: {loss}"),
        );
        let summary = run(&shop, &[]).expect(0).summary();
        let rows = predictions(&shop, "out/p", &["--split", "validation"]);
        let pairs = numbers(&rows, "y")
            .into_iter()
            .flatten()
            .zip(numbers(&rows, "prediction").into_iter().flatten());
        let below = pairs.filter(|(y, found)| y <= found).count() as f64 / rows.num_rows() as f64;
        match loss.split_once("quantile: ") {
            Some((_, share)) => assert!(
                (below - share.parse::<f64>().unwrap()).abs() < 0.1,
                "{loss}: {below}"
            ),
            None => assert!(
                metric(&summary, "wmape") < 0.06,
                "{loss}: {}",
                model(&summary)["epochs"]
            ),
        }
    }
    let side = r#"      - derive: { side: "CASE WHEN y > 60 THEN 1 ELSE 0 END" }
      - drop: [y]
      - rename: { side: y }"#;
    spec(&shop, side, "rounds: 40, loss: logistic");
    assert!(metric(&run(&shop, &[]).expect(0).summary(), "loss") < 0.1);
    let rows = predictions(&shop, "out/p", &[]);
    assert!(
        numbers(&rows, "prediction")
            .into_iter()
            .flatten()
            .all(|share| (0.0..=1.0).contains(&share))
    );
}

#[test]
fn trees_have_the_same_bits_however_they_are_trained_and_are_trained_once() {
    let shop = TestDirectory::new();
    for train in [SMALL, BY_GROUP] {
        spec(&shop, "", train);
        let first = run(&shop, &["--threads", "1"]).expect(0).summary();
        let bytes = model_bytes(&shop);
        assert_eq!(
            model(&run(&shop, &["--signal-nothing-new"]).expect(99).summary())["id"],
            model(&first)["id"]
        );
        for more in [["--threads", "2"], ["--batch-rows", "100"]] {
            std::fs::remove_dir_all(shop.path("out")).unwrap();
            let state = format!("state-{}", more[0]);
            let other = run(&shop, &[&more[..], &["--state", &state]].concat())
                .expect(0)
                .summary();
            assert_eq!(
                (&model(&other)["id"], &model(&other)["reused"]),
                (&model(&first)["id"], &Value::Bool(false))
            );
            assert!(model_bytes(&shop) == bytes, "{more:?} gives other trees");
        }
    }
}

/// 200,000 rows of 30 numbers: their training holds 37 MB in memory, of the 32 MiB that half of 64 MiB are.
#[test]
fn trees_have_the_same_bits_where_their_rows_do_not_fit_into_memory() {
    const ROWS: usize = 200_000;
    const FILES: usize = 20;
    const NUMBERS: usize = 30;
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("rows")).unwrap();
    // A file is read as a whole: several of them fit one after another.
    for file in 0..FILES {
        let mut rows = String::from("n\n");
        for row in file * ROWS / FILES..(file + 1) * ROWS / FILES {
            rows.push_str(&format!("{row}\n"));
        }
        shop.write(&format!("rows/{file:02}.csv"), &rows);
    }
    let mut numbers = String::new();
    for number in 0..NUMBERS {
        let factor = 2 * number + 3;
        numbers.push_str(&format!(
            "          x{number}: \"CAST(CASE WHEN n % {factor} = 1 THEN NULL \
             ELSE (n * {factor}) % 1009 / 7.0 END AS REAL)\"\n"
        ));
    }
    let yaml = format!(
        r#"
version: 1
name: wide
sources:
  rows: {{ csv: {{ path: "{}/*.csv" }} }}
steps:
  features:
    from: rows
    do:
      - derive:
{numbers}          c: "CONCAT('c', CAST(n % 17 AS VARCHAR))"
          y: "CAST(n % 1009 / 10.0 + CASE WHEN n % 17 < 5 THEN 7 ELSE 0 END AS REAL)"
      - vocabulary: {{ columns: [c] }}
split: {{ by_hash: {{ keys: [n], parts: {{ train: 0.8, validation: 0.2 }} }} }}
sinks:
  trees:
    from: features
    train:
      path: out/trees
      model: gbdt
      label: y
      dense: ["x*"]
      categorical: [c]
      rounds: 3
      leaves: 8
"#,
        shop.at("rows")
    );
    shop.write("spec.yaml", &yaml);
    let held = run(&shop, &["--memory=1GiB", "--state=held"]).expect(0);
    let bytes = model_bytes(&shop);
    std::fs::remove_dir_all(shop.path("out")).unwrap();
    let spilled = run(&shop, &["--memory=64MiB", "--state=spilled"]).expect(0);
    assert!(model_bytes(&shop) == bytes, "the trees are others");
    // The numbers of the rows to learn from, of 4 bytes, and a bin of each.
    let feature_bytes = (ROWS / 2 * NUMBERS * 5) as u64;
    let spilled_bytes = |output: &ProgramOutput| output.summary()["spilled_bytes"].as_u64();
    assert!(spilled_bytes(&spilled) > Some(feature_bytes));
    assert!(spilled_bytes(&held).unwrap_or(0) < feature_bytes);
}

/// A label that is a column, a little of another, and nothing of a third.
#[test]
fn the_importance_of_columns_is_told() {
    let shop = TestDirectory::new();
    let steps = r#"      - derive: { z: "CAST(COALESCE(a, 3) * 10 + COALESCE(b, 5) / 4 AS REAL)" }
      - drop: [y]
      - rename: { z: y }"#;
    let importance = |train: &str| {
        spec(&shop, steps, train);
        let summary = run(&shop, &["--report=page.html"]).expect(0).summary();
        model(&summary)["importance"].as_array().unwrap().clone()
    };
    let columns = importance("rounds: 20, leaves: 8");
    let gains: Vec<f64> = columns
        .iter()
        .map(|column| column["gain"].as_f64().unwrap())
        .collect();
    assert_eq!(columns[0]["column"], "a");
    assert!(gains[0] > 0.8, "{gains:?}");
    assert!(gains.is_sorted_by(|one, next| one >= next), "{gains:?}");
    assert!((gains.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{gains:?}");
    let shuffled = columns[0]["shuffled"].as_f64().unwrap();
    assert!(
        shuffled > 5.0,
        "without `a` the loss is many times as large, not {shuffled}"
    );
    let page = std::fs::read_to_string(shop.path("page.html")).unwrap();
    assert!(page.contains("Importance of columns"));
    let text = shop.forebay(&["run", "spec.yaml"]).expect(0).stdout;
    assert!(text.contains("gain by column: a "), "{text}");
    // The rows of groups are not at hand together.
    let of_groups = importance(BY_GROUP);
    assert_eq!(of_groups[0]["column"], "a");
    assert!(of_groups.iter().all(|column| column["shuffled"].is_null()));
}

/// The values of `g`, and how the predictions of each differ.
fn by_group(rows: &RecordBatch, other: &RecordBatch) -> BTreeMap<String, bool> {
    let groups = cast(rows.column_by_name("g").unwrap(), &DataType::Utf8).unwrap();
    let column = |rows: &RecordBatch| {
        rows.column_by_name("prediction")
            .unwrap()
            .as_primitive::<Float32Type>()
            .clone()
    };
    let some = column(rows);
    let others = column(other);
    let mut differ = BTreeMap::new();
    for row in 0..rows.num_rows() {
        *differ
            .entry(groups.as_string::<i32>().value(row).to_owned())
            .or_default() |= some.value(row).to_bits() != others.value(row).to_bits();
    }
    differ
}

#[test]
fn groups_have_models_of_their_own_which_stand_while_their_rows_do() {
    let shop = TestDirectory::new();
    spec(&shop, "", &BY_GROUP.replace("by: [g], min_rows: 150", ""));
    run(&shop, &[]).expect(0);
    let alone = predictions(&shop, "out/alone", &[]);
    spec(&shop, "", BY_GROUP);
    let summary = run(&shop, &[]).expect(0).summary();
    let groups = &model(&summary)["groups"];
    assert_eq!(
        [&groups["groups"], &groups["trained"], &groups["fallbacks"]],
        [4, 3, 1],
        "{groups}"
    );
    assert_eq!(
        groups["fallback_reasons"][0]["group"],
        serde_json::json!(["rare"])
    );
    assert!(
        groups["fallback_reasons"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("min_rows")
    );
    let first = predictions(&shop, "out/first", &[]);
    let differ = by_group(&first, &alone);
    assert_eq!(
        differ.values().copied().collect::<Vec<_>>(),
        [true, true, true, false],
        "{differ:?}"
    );

    // Rows of one group change: its model is trained again, and that over all rows; the others stand.
    let changed = r#"      - derive: { z: "CAST(CASE WHEN g = 'g1' THEN y + 100 ELSE y END AS REAL)" }
      - drop: [y]
      - rename: { z: y }"#;
    spec(&shop, changed, BY_GROUP);
    let summary = run(&shop, &[]).expect(0).summary();
    let groups = &model(&summary)["groups"];
    assert_eq!(
        [&groups["trained"], &groups["reused"], &groups["fallbacks"]],
        [1, 2, 1],
        "{groups}"
    );
    let second = predictions(&shop, "out/second", &[]);
    let differ = by_group(&first, &second);
    assert_eq!(
        differ.values().copied().collect::<Vec<_>>(),
        [false, true, false, true],
        "{differ:?}"
    );
    // The same without what stood.
    let bytes = model_bytes(&shop);
    std::fs::remove_dir_all(shop.path("out")).unwrap();
    let anew = run(&shop, &["--state", "anew"]).expect(0).summary();
    assert_eq!(model(&anew)["groups"]["trained"], 3);
    assert!(
        model_bytes(&shop) == bytes,
        "models that stand are not those that would be trained"
    );
    // Another configuration trains all.
    spec(&shop, changed, &BY_GROUP.replace("leaves: 6", "leaves: 5"));
    let text = shop.forebay(&["run", "spec.yaml"]).expect(0);
    let text = format!("{}{}", text.stdout, text.stderr);
    assert!(
        text.contains("4 groups: 3 trained, 0 unchanged, 1 without a model of their own"),
        "{text}"
    );
    assert!(
        text.contains("rare: ") && text.contains("fewer than `min_rows: 150`"),
        "{text}"
    );

    // A group that was not there is predicted by the model over all rows.
    let narrow = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write(
        "spec.yaml",
        &narrow.replace(
            "      - select:",
            "      - filter: \"g <> 'g2'\"\n      - select:",
        ),
    );
    run(&shop, &[]).expect(0);
    let from_all = predictions(&shop, "out/unknown", &[]);
    assert!(
        from_all.num_rows() > 0 && from_all.column_by_name("prediction").unwrap().null_count() == 0
    );
}

#[test]
fn a_killed_training_goes_on_without_training_finished_groups_again() {
    let shop = TestDirectory::new();
    spec(&shop, "", BY_GROUP);
    // Files that are old enough to be taken note of.
    for file in std::fs::read_dir(shop.path("clicks")).unwrap() {
        let file = std::fs::File::options()
            .write(true)
            .open(file.unwrap().path())
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600))
            .unwrap();
    }
    run(&shop, &[]).expect(0);
    let again = || {
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        for dir in ["passes", "checkpoints"] {
            let _ = std::fs::remove_dir_all(shop.path(".forebay").join(dir));
        }
    };
    let job = |name: &str, value: String| {
        shop.command(&["run", "spec.yaml", "--json"])
            .env(name, value)
            .watched()
    };
    again();
    let calm: ProgramOutput = job("FOREBAY_KILL_LOG", shop.at("steps")).into();
    calm.expect(0);
    let expected = content(&shop.path("out/trees"));
    let steps = std::fs::read_to_string(shop.path("steps")).unwrap();
    let kept = |step: &&str| step.starts_with("have named") && step.contains("checkpoints/");
    let parts: Vec<usize> = steps
        .lines()
        .enumerate()
        .filter(|(_, step)| kept(step))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(
        parts.len(),
        2,
        "the model over all rows, and those of the groups: {steps}"
    );
    for (finished, moment) in parts.iter().enumerate() {
        again();
        let killed = job("FOREBAY_KILL_AT", (moment + 1).to_string());
        assert_eq!(killed.status.signal(), Some(9));
        let resumed: ProgramOutput = job("FOREBAY_NO_KILL", String::new()).into();
        let summary = resumed.expect(0).summary();
        let groups = &model(&summary)["groups"];
        let counts = if finished == 0 { [3, 0] } else { [0, 3] };
        assert_eq!(
            [&groups["trained"], &groups["reused"]],
            counts,
            "killed after part {finished}"
        );
        let models = |files: &[(String, Vec<u8>)]| -> Vec<(String, Vec<u8>)> {
            files
                .iter()
                .filter(|(name, _)| name.ends_with("model.safetensors"))
                .cloned()
                .collect()
        };
        assert!(
            models(&content(&shop.path("out/trees"))) == models(&expected),
            "other trees after part {finished}"
        );
        assert!(
            std::fs::read_dir(shop.path(".forebay/checkpoints")).map_or(0, Iterator::count) == 0
        );
    }
}

#[test]
fn what_trees_cannot_be_trained_on_says_why() {
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
        assert!(!shop.path("out/.trees.forebay/_manifest.json").exists());
    };
    fails(
        "",
        "epochs: 3",
        "FB0102",
        78,
        &["no field `epochs`", "`rounds`"],
    );
    fails(
        "",
        "loss: quantile",
        "FB0104",
        78,
        &["`loss: quantile` needs `quantile`"],
    );
    fails(
        "",
        "loss: poisson, quantile: 0.5",
        "FB0104",
        78,
        &["`quantile` is for"],
    );
    fails("", "min_rows: 5", "FB0104", 78, &["add `by`"]);
    fails("", "leaves: 1", "FB0104", 78, &["leaves"]);
    fails("", "by: [gg]", "FB0107", 78, &["gg", "`g`"]);
    let label = |expression: &str| {
        format!(
            "      - derive: {{ z: \"{expression}\" }}\n      - drop: [y]\n      - rename: {{ z: y }}"
        )
    };
    fails(
        &label("CASE WHEN f1 < 3 THEN NULL ELSE y END"),
        SMALL,
        "FB0206",
        65,
        &["values of `y` are missing"],
    );
    let nan = label("CASE WHEN f1 < 3 THEN CAST('NaN' AS REAL) ELSE y END");
    fails(&nan, SMALL, "FB0205", 65, &["`y` has", "not finite"]);
    fails(
        &label("CAST(-1.0 AS REAL)"),
        &format!("{SMALL}, loss: poisson"),
        "FB0206",
        65,
        &["is negative"],
    );
    fails(
        &label("CAST(2.0 AS REAL)"),
        &format!("{SMALL}, loss: logistic"),
        "FB0206",
        65,
        &["between 0 and 1"],
    );

    // Rows without a label can be left out, if the spec says so.
    spec(&shop, &nan, &format!("{SMALL}, non_finite: skip"));
    let call = run(&shop, &[]).expect(0);
    assert!(
        call.stdout.contains("skipped_rows") && !call.stdout.contains("\"skipped_rows\":0"),
        "{}",
        call.stdout
    );
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write("spec.yaml", &text.replace("model: gbdt", "model: forest"));
    let call = shop.forebay(&["run", "spec.yaml"]).expect(78);
    assert!(
        call.stderr.contains("gbdt") && call.stderr.contains("mlp"),
        "{}",
        call.stderr
    );
    // Half a model is none.
    let file = shop.path("out/trees/model.safetensors");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let call = shop
        .forebay(&[
            "predict",
            "out/trees",
            "--source",
            "clicks",
            "--output",
            "out/p",
        ])
        .expect(65);
    assert!(call.stderr.contains("FB0203"), "{}", call.stderr);
}
