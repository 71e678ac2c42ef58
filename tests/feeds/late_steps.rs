//! Feeds and trainings of a step that only adds learned transforms to rows that are written for a step before.

use serde_json::Value;

use crate::nights::changed_history::NightlyFixture;
use crate::support::{TestDirectory, content};

/// Windows in one step, and what is learned in another.
const SPEC: &str = r#"
version: 1
name: nights
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  windows:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d, 7d] }
      - rolling: { columns: [qty], compute: [mean], over: [7d], gap: 1d }
  features:
    from: windows
    do:
      - filter: "qty_lag_7d IS NOT NULL AND qty IS NOT NULL"
      - standardize: { columns: [price, qty_mean_7d] }
      - vocabulary: { columns: [category], min_count: 2 }
      - select: [date, price, qty_mean_7d, qty_lag_1d, category, qty]
SPLIT
sinks:
SINKS
"#;

const TRAIN: &str = "  net: { from: features, train: { path: net, model: linear, label: qty, missing: 0, batch_rows: 256 } }";

const SPLIT: &str =
    "split: { train: \"date < DATE '2016-05-06'\", validation: \"date >= DATE '2016-05-06'\" }";

fn shop(split: &str, sinks: &str, days: usize) -> NightlyFixture {
    let sinks = format!("{sinks}\n{TRAIN}");
    let nights = NightlyFixture::with_spec(&SPEC.replace("SPLIT", split).replace("SINKS", &sinks));
    (0..days).for_each(|day| nights.show(day));
    nights
}

fn run(shop: &TestDirectory, args: &[&str]) -> Value {
    shop.forebay(&[&["run", "spec.yaml", "--json"], args].concat())
        .expect(0)
        .summary()
}

fn write_pass(summary: &Value) -> &Value {
    summary["passes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pass| pass["work"] == "write")
        .unwrap()
}

#[test]
fn a_training_reads_the_step_before_and_learns_from_the_same_rows() {
    for split in ["", SPLIT] {
        let whole = shop(
            split,
            "  table: { from: features, parquet: { path: out } }",
            30,
        );
        let late = shop(
            split,
            "  table: { from: windows, parquet: { path: out } }",
            30,
        );
        let alone = shop(split, "", 30);
        let expected = run(&whole.shop, &[]);
        for nights in [&late, &alone] {
            let found = run(&nights.shop, &[]);
            for field in ["rows", "validation_rows", "parameters"] {
                assert_eq!(
                    found["models"][0][field], expected["models"][0][field],
                    "{split} {field}"
                );
            }
            // The same rows in another order: they lie in other blocks.
            let loss =
                |summary: &Value| summary["models"][0]["epochs"][0]["loss"].as_f64().unwrap();
            assert!(
                (loss(&found) / loss(&expected) - 1.0).abs() < 0.01,
                "{} {}",
                loss(&found),
                loss(&expected)
            );
            assert!(expected["models"][0]["rows"].as_u64().unwrap() > 100);
        }
        // Nothing more is written where the step before is.
        assert!(!late.shop.path(".forebay/rows").exists());
        let written: Vec<String> = content(&alone.shop.path(".forebay/rows"))
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(
            written.iter().any(|name| name.contains("/train/")),
            !split.is_empty(),
            "{written:?}"
        );
        let explained = late
            .shop
            .forebay(&["explain", "spec.yaml"])
            .expect(0)
            .stdout;
        assert!(explained.contains("table"), "{explained}");
    }
}

/// Rules and profiles of the training's own step are checked and learned, and change neither rows nor model.
#[test]
fn rules_and_profiles_may_stand_among_late_steps() {
    let plain = shop(SPLIT, "", 30);
    let checked = shop(SPLIT, "", 30);
    let rules = "    from: windows\n    do:\n      - profile: { columns: [qty] }\n      - expect:\n          - { not_null: \
                 [qty], policy: warn }\n          - { drift: { columns: [qty, price], of: validation, against: train, js: \
                 0.9 }, policy: warn }\n";
    let spec = std::fs::read_to_string(checked.shop.path("spec.yaml")).unwrap();
    checked.shop.write(
        "spec.yaml",
        &spec.replace("    from: windows\n    do:\n", rules),
    );
    let expected = run(&plain.shop, &[]);
    let outcome = run(&checked.shop, &[]);
    assert_eq!(
        outcome["expectations"].as_array().unwrap().len(),
        3,
        "{outcome}"
    );
    for field in ["rows", "validation_rows", "epochs"] {
        assert_eq!(
            outcome["models"][0][field], expected["models"][0][field],
            "{field}"
        );
    }
    assert_eq!(run(&checked.shop, &[])["nothing_new"], true);
}

/// The step before has columns that no feature may be made of; the training's own step drops them.
#[test]
fn a_label_is_kept_from_the_features_alone() {
    let label = "label: { column: qty, horizon: 1d, known: [price] }";
    let nights = shop(label, "", 30);
    let text = std::fs::read_to_string(nights.shop.path("spec.yaml")).unwrap();
    let text = text.replace(", category, qty]", ", qty]").replace(
        "      - vocabulary: { columns: [category], min_count: 2 }\n",
        "",
    );
    nights.shop.write("spec.yaml", &text);
    assert_eq!(run(&nights.shop, &[])["models"][0]["reused"], false);
    nights
        .shop
        .write("spec.yaml", &text.replace(", qty]", ", promotion, qty]"));
    let said = nights.shop.forebay(&["run", "spec.yaml"]).expect(78).stderr;
    assert!(
        said.contains("`promotion` in sink `net` uses data that is known too late"),
        "{said}"
    );
}

#[test]
fn what_is_learned_anew_changes_no_written_row() {
    for sinks in ["  table: { from: windows, parquet: { path: out } }", ""] {
        let nights = shop("", sinks, 30);
        run(&nights.shop, &[]);
        nights.show(30);
        let summary = run(&nights.shop, &[]);
        let pass = write_pass(&summary);
        let [rows, kept] = ["rows_in", "rows_kept"].map(|field| pass[field].as_u64().unwrap());
        assert!(kept > rows / 2, "{kept} of {rows} rows stand: {summary}");
        assert_eq!(summary["models"][0]["reused"], false);
        let again = nights
            .shop
            .forebay(&["run", "spec.yaml", "--json", "--signal-nothing-new"])
            .expect(99)
            .summary();
        assert_eq!(again["models"][0]["id"], summary["models"][0]["id"]);
    }
}

#[test]
fn a_feed_gives_the_rows_of_the_step() {
    for split in ["", SPLIT] {
        let feed = "  table: { from: FROM, parquet: { path: out } }";
        let whole = shop(split, &feed.replace("FROM", "features"), 20);
        let late = shop(split, &feed.replace("FROM", "windows"), 20);
        let mut found = Vec::new();
        for nights in [&whole, &late] {
            run(&nights.shop, &[]);
            let part = if split.is_empty() {
                ""
            } else {
                ", split: train"
            };
            let spec = std::fs::read_to_string(nights.shop.path("spec.yaml")).unwrap();
            let own = format!(
                "feed: {{ from: features, label: qty, order: sequential, missing: 0{part} }}\n"
            );
            nights.shop.write("fed.yaml", &format!("{spec}{own}"));
            let args = ["feed", "fed.yaml", "--rows=64", "--show=1000"];
            let shown = nights.shop.forebay(&args).expect(0).stdout;
            assert!(shown.contains("from the output of `table`"), "{shown}");
            // Each batch with its first rows; what follows tells times.
            let begin = shown.find("step 0:").unwrap_or_else(|| panic!("{shown}"));
            let batches: Vec<&str> = shown[begin..]
                .lines()
                .take_while(|line| line.starts_with("step ") || line.starts_with("  "))
                .collect();
            found.push(batches.join("\n"));
        }
        assert!(found[0].lines().count() > 20, "{}", found[0]);
        assert_eq!(found[0], found[1], "{split}");
    }
}
