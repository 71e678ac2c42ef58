//! Learning from nothing, from the rows of other parts and from the answer: what is refused, and what is said.

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use serde_json::Value;

use crate::support::{ProgramOutput, TestDirectory};

/// The number of days of the data, from 2024-01-01 on.
const DAYS: usize = 60;

/// Two items over some days. `empty` has no value, and `y` is 2 x + 1.
fn items(shop: &TestDirectory) {
    let mut text = String::from("day,item,x,y,kind,empty\n");
    for day in 0..DAYS {
        let date = format!("2024-{:02}-{:02}", 1 + day / 28, 1 + day % 28);
        for (number, item) in ["a", "b"].iter().enumerate() {
            let x = ((day * 7 + number * 3) % 11) as f64 - 5.0;
            let y = 2.0 * x + 1.0;
            let kind = ["r", "s", "t"][(day + number) % 3];
            text += &format!("{date},{item},{x:.1},{y:.1},{kind},\n");
        }
    }
    shop.write("items.csv", &text);
}

const SOURCE: &str = "  items: { csv: { path: items.csv, columns: { day: date, item: string, x: float64, y: float64, kind: string, \
                      empty: float64 } }, time: day, keys: [item] }\n";

const HALVES: &str =
    "split: { train: \"day < DATE '2024-02-01'\", validation: \"day >= DATE '2024-02-01'\" }\n";

const TABLE: &str = "sinks: { table: { from: f, parquet: { path: out } } }\n";

/// Writes a spec whose step `f` has these fields, beside other sections.
fn spec(shop: &TestDirectory, fields: &str, steps: &[&str], sections: &str) {
    let mut text =
        format!("version: 1\nname: t\nsources:\n{SOURCE}steps:\n  f:\n    from: items\n");
    text += fields;
    if !steps.is_empty() {
        text += "    do:\n";
        for step in steps {
            text += &format!("      - {step}\n");
        }
    }
    shop.write("spec.yaml", &(text + sections));
}

fn check(shop: &TestDirectory) -> ProgramOutput {
    shop.forebay(&["check", "spec.yaml"])
}

fn run(shop: &TestDirectory) -> ProgramOutput {
    shop.forebay(&["run", "spec.yaml", "--json"])
}

fn warnings(summary: &Value) -> Vec<String> {
    let all = summary["warnings"].as_array().cloned().unwrap_or_default();
    all.iter()
        .map(|warning| warning.as_str().unwrap().to_owned())
        .collect()
}

fn says(warnings: &[String], words: &[&str]) -> bool {
    warnings
        .iter()
        .any(|warning| words.iter().all(|word| warning.contains(word)))
}

/// Each kind of step that learns, with a column that it learns.
const LEARNING_STEPS: [(&str, &str); 21] = [
    ("standardize: { columns: [x] }", "x"),
    ("standardize: { columns: [x], by: [item] }", "x"),
    ("min_max: { columns: [x] }", "x"),
    ("robust_scale: { columns: [x] }", "x"),
    ("quantiles: { columns: [x] }", "x"),
    ("bucketize: { columns: [x], q: 4 }", "x"),
    ("impute: { columns: [x], with: mean }", "x"),
    ("impute: { columns: [x], with: median }", "x"),
    ("vocabulary: { columns: [kind] }", "kind"),
    ("vocabulary: { columns: [kind], stable: true }", "kind"),
    ("ordinal: { columns: [kind], unknown: missing }", "kind"),
    ("one_hot: { columns: [kind] }", "kind"),
    ("max_abs: { columns: [x] }", "x"),
    ("winsorize: { columns: [x] }", "x"),
    ("normal_quantiles: { columns: [x] }", "x"),
    ("power: { columns: [x] }", "x"),
    ("g_and_h: { columns: [x] }", "x"),
    ("knn_impute: { columns: [x] }", "x"),
    ("group_rare: { columns: [kind], min_count: 2 }", "kind"),
    ("frequency_encoding: { columns: [kind] }", "kind"),
    (
        "target_encoding: { columns: [kind], label: x, fold_by: [day] }",
        "x",
    ),
];

#[test]
fn a_statistic_of_no_rows_is_refused() {
    let shop = TestDirectory::new();
    items(&shop);
    let empty =
        "split: { train: \"day < DATE '2020-04-01'\", validation: \"day >= DATE '2020-04-01'\" }\n";
    for (step, column) in LEARNING_STEPS {
        spec(
            &shop,
            "    fit_on: train\n",
            &[step],
            &(empty.to_owned() + TABLE),
        );
        let refused = run(&shop).expect(65);
        for word in [
            "FB0204",
            "no rows",
            "`train`",
            &format!("`{column}`"),
            "allow_empty",
        ] {
            assert!(refused.stderr.contains(word), "{step}: {}", refused.stderr);
        }
        let kind = step.split(':').next().unwrap();
        assert!(
            refused.stderr.contains(&format!("f.{kind}")),
            "{}",
            refused.stderr
        );
        let allowed = "    fit_on: train\n    allow_empty: true\n";
        spec(&shop, allowed, &[step], &(empty.to_owned() + TABLE));
        let summary = run(&shop).expect(0).summary();
        assert!(
            says(&warnings(&summary), &["no rows", column]),
            "{step}: {summary}"
        );
    }
    // All rows of a source without rows; a statistic that was committed is refused, too.
    spec(
        &shop,
        "",
        &["filter: \"x > 100\"", "min_max: { columns: [x] }"],
        TABLE,
    );
    for _ in 0..2 {
        let refused = run(&shop).expect(65);
        assert!(
            refused.stderr.contains("no rows: the step has none"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_statistic_of_no_values_is_told() {
    let shop = TestDirectory::new();
    items(&shop);
    for step in ["standardize", "quantiles", "robust_scale"] {
        let step = format!("{step}: {{ columns: [empty] }}");
        spec(
            &shop,
            "    fit_on: train\n",
            &[&step],
            &(HALVES.to_owned() + TABLE),
        );
        let summary = run(&shop).expect(0).summary();
        let words = ["`empty`", "missing in all", "rows of the part `train`"];
        assert!(says(&warnings(&summary), &words), "{step}: {summary}");
    }
    spec(
        &shop,
        "    fit_on: train\n",
        &["standardize: { columns: [x] }"],
        &(HALVES.to_owned() + TABLE),
    );
    assert_eq!(
        warnings(&run(&shop).expect(0).summary()),
        Vec::<String>::new()
    );
}

/// One infinity decides what scalers make of all other values.
#[test]
fn statistics_of_infinite_values_are_told() {
    let shop = TestDirectory::new();
    items(&shop);
    let infinite = "derive: { z: \"CASE WHEN x = 5.0 THEN 1e308 * 10.0 ELSE x END\" }";
    let step_of = |transform: &str, column: &str| match transform {
        "impute" => format!("impute: {{ columns: [{column}], with: mean }}"),
        "standardize_by" => format!("standardize: {{ columns: [{column}], by: [item] }}"),
        other => format!("{other}: {{ columns: [{column}] }}"),
    };
    for transform in [
        "min_max",
        "max_abs",
        "standardize",
        "standardize_by",
        "impute",
    ] {
        let kind = transform.trim_end_matches("_by");
        for (column, expected) in [("z", 1), ("x", 0)] {
            spec(&shop, "", &[infinite, &step_of(transform, column)], TABLE);
            let summary = run(&shop).expect(0).summary();
            let words = format!("`f.{kind}` learns from infinite values of `{column}`");
            let mut matching = warnings(&summary);
            matching.retain(|warning| warning.contains(&words));
            assert_eq!(
                matching.len(),
                expected,
                "{transform} of {column}: {summary}"
            );
        }
    }
    // Order statistics take an infinity for a large value.
    spec(
        &shop,
        "",
        &[infinite, "robust_scale: { columns: [z] }"],
        TABLE,
    );
    let summary = run(&shop).expect(0).summary();
    let warning_texts = warnings(&summary);
    assert!(
        !warning_texts
            .iter()
            .any(|warning| warning.contains("infinite")),
        "{summary}"
    );
}

#[test]
fn the_label_is_no_feature() {
    let shop = TestDirectory::new();
    items(&shop);
    let train = |fields: &str| {
        format!(
            "{HALVES}sinks: {{ n: {{ from: f, train: {{ path: o, model: linear, {fields} }} }} }}\n"
        )
    };
    let ids = "vocabulary: { columns: [kind] }";
    let cases = [
        (train("label: y, dense: [y, x]"), "dense"),
        (
            train("label: kind, dense: [x], categorical: [kind]"),
            "categorical",
        ),
        (train("dense: [y, x]") + "label: { column: y }\n", "dense"),
        (
            "feed: { from: f, label: y, dense: [x, y] }\n".to_owned() + TABLE,
            "dense",
        ),
        // The label of the pipeline is no feature of a training for another one either, nor does a label choose a model.
        (
            train("label: x, dense: [y]") + "label: { column: y }\n",
            "dense",
        ),
        (train("label: x") + "label: { column: y }\n", "dense"),
        (
            train("label: y, dense: [x], by: [y]").replace("linear", "gbdt"),
            "by",
        ),
        // The label of one training is no feature of another by default.
        (
            format!(
                "{HALVES}sinks:\n  n: {{ from: f, train: {{ path: o, model: linear, label: y }} }}\n  m: {{ from: f, train: {{ path: p, model: \
                 linear, label: x, dense: [y] }} }}\n"
            ),
            "dense",
        ),
        // A feed that names no label takes no column that a training predicts.
        (
            train("label: y, dense: [x]") + "feed: { from: f }\n",
            "dense",
        ),
    ];
    for (sections, list) in cases {
        let sections = if sections.contains("split:") {
            sections
        } else {
            HALVES.to_owned() + &sections
        };
        spec(&shop, "    fit_on: train\n", &[ids], &sections);
        let refused = check(&shop).expect(78);
        for word in ["FB0115", "label", &format!("`{list}`")] {
            assert!(
                refused.stderr.contains(word),
                "{sections}: {}",
                refused.stderr
            );
        }
    }
    let sections = train("label: y, dense: [x]") + "label: { column: y }\nfeed: { from: f }\n";
    spec(&shop, "    fit_on: train\n", &["drop: [empty]"], &sections);
    check(&shop).expect(0);
    let fed = shop.forebay(&["feed", "spec.yaml", "--rows=16"]).expect(0);
    assert!(fed.stdout.contains("label"), "{}", fed.stdout);
    // An epoch without a batch is no success.
    let unfilled = shop.forebay(&["feed", "spec.yaml"]).expect(65).stderr;
    for words in ["FB0204", "no batch is delivered", "`batch_rows`"] {
        assert!(unfilled.contains(words), "{unfilled}");
    }
    let empty = sections.replace("{ from: f }", "{ from: f, last: short }");
    spec(&shop, "", &["drop: [empty]", "filter: \"x > 99\""], &empty);
    let empty = shop.forebay(&["feed", "spec.yaml"]).expect(65).stderr;
    assert!(empty.contains("there are no rows to deliver"), "{empty}");
}

#[test]
fn a_first_spec_declares_its_label() {
    let shop = TestDirectory::new();
    items(&shop);
    let new = shop.forebay(&["new", "items.csv", "--label", "y", "--out", "new.yaml"]);
    new.expect(0);
    let text = std::fs::read_to_string(shop.path("new.yaml")).unwrap();
    assert!(text.contains("\nlabel:"), "{text}");
    shop.forebay(&["check", "new.yaml"]).expect(0);
}

#[test]
fn a_copy_of_the_label_is_named() {
    let shop = TestDirectory::new();
    items(&shop);
    let train = "model: gbdt, label: y, dense: [x, z], rounds: 3, min_leaf_rows: 2";
    let sections =
        format!("{HALVES}sinks: {{ n: {{ from: f, train: {{ path: o, {train} }} }} }}\n");
    spec(&shop, "", &["derive: { z: \"2 * x + 1\" }"], &sections);
    let summary = run(&shop).expect(0).summary();
    let told = warnings(&summary);
    assert!(says(&told, &["`z`", "equals the label `y`"]), "{told:?}");
    assert!(!says(&told, &["`x`", "equals the label"]), "{told:?}");
}

#[test]
fn features_with_one_value_are_named() {
    for (model, rows) in [
        ("model: gbdt, rounds: 3, min_leaf_rows: 2", "all rows"),
        ("model: linear", "all of the first"),
    ] {
        let shop = TestDirectory::new();
        items(&shop);
        let train = format!("{model}, label: y, dense: [x, one]");
        let sections =
            format!("{HALVES}sinks: {{ n: {{ from: f, train: {{ path: o, {train} }} }} }}\n");
        spec(&shop, "", &["derive: { one: \"x * 0.0\" }"], &sections);
        let warnings = warnings(&run(&shop).expect(0).summary());
        let words = format!("`n` have one value in {rows}");
        let of_constants = [words.as_str(), "`one`"];
        assert!(says(&warnings, &of_constants), "{warnings:?}");
        assert!(!says(&warnings, &["have one value", "`x`"]), "{warnings:?}");
    }
}

#[test]
fn a_copy_of_the_label_is_named_before_a_run_and_by_feeds() {
    let shop = TestDirectory::new();
    items(&shop);
    let feed = "feed: { from: f, label: y, dense: [x, z], batch_rows: 16, last: short }\n";
    let train =
        "sinks: { n: { from: f, train: { path: o, model: gbdt, label: y, dense: [x, z] } } }\n";
    for sections in [feed.to_owned() + TABLE, train.to_owned()] {
        spec(&shop, "", &["derive: { z: \"2 * x + 1\" }"], &sections);
        let check_text = check(&shop).expect(0).stderr;
        assert!(check_text.contains("`z`"), "{check_text}");
        assert!(check_text.contains("equals the label `y`"), "{check_text}");
        assert!(!check_text.contains("`x`"), "{check_text}");
    }
    spec(
        &shop,
        "",
        &["derive: { z: \"2 * x + 1\" }"],
        &(feed.to_owned() + TABLE),
    );
    let fed = shop.forebay(&["feed", "spec.yaml"]).expect(0).stderr;
    assert!(
        fed.contains("`z` of the feed equals the label `y`"),
        "{fed}"
    );
    assert_eq!(fed.matches("equals the label").count(), 1, "{fed}");
    spec(
        &shop,
        "",
        &["derive: { z: \"2 * x\" }"],
        &(feed.to_owned() + TABLE),
    );
    let check_text = check(&shop).expect(0).stderr;
    assert!(!check_text.contains("equals the label"), "{check_text}");
}

/// The label belongs to the last step of a sequence; its values at steps before that are no copies.
#[test]
fn a_copy_of_the_label_in_sequences_is_named_by_feeds() {
    let shop = TestDirectory::new();
    items(&shop);
    let feed = "feed: { from: f, label: y, dense: [x, z, past], batch_rows: 16, last: short, \
                series: { steps: 3, within: 7d } }\n";
    let steps = [
        "lag: { columns: [y], by: [1d] }",
        "derive: { z: \"2 * x + 1\", past: \"coalesce(y_lag_1d, 0)\" }",
    ];
    spec(&shop, "", &steps, &(feed.to_owned() + TABLE));
    run(&shop).expect(0);
    let fed = shop.forebay(&["feed", "spec.yaml"]).expect(0).stderr;
    assert!(
        fed.contains("`z` of the feed equals the label `y`"),
        "{fed}"
    );
    assert_eq!(fed.matches("equals the label").count(), 1, "{fed}");
}

#[test]
fn an_empty_part_of_a_split_by_hash_is_told() {
    let shop = TestDirectory::new();
    items(&shop);
    let split =
        "split: { by_hash: { keys: [item], parts: { train: 0.5, validation: 0.3, test: 0.2 } } }\n";
    spec(
        &shop,
        "    fit_on: train\n    allow_empty: true\n",
        &["standardize: { columns: [x] }"],
        &(split.to_owned() + TABLE),
    );
    let warning_texts = warnings(&run(&shop).expect(0).summary());
    assert!(
        says(&warning_texts, &["of the split has none of the 120 rows"]),
        "{warning_texts:?}"
    );
}

/// Rows that a step computes of all rows are counted where that step has left them, in a run that does not compute them
/// again, too.
#[test]
fn empty_parts_behind_steps_over_all_rows_are_told() {
    let split =
        "split: { by_hash: { keys: [item], parts: { train: 0.5, validation: 0.3, test: 0.2 } } }\n";
    for step in [
        "dedupe: { keys: [day, item] }",
        "aggregate: { by: [day, item], compute: { x: { sum: x } } }",
    ] {
        let shop = TestDirectory::new();
        items(&shop);
        spec(
            &shop,
            "    fit_on: train\n    allow_empty: true\n",
            &[step, "standardize: { columns: [x] }"],
            &(split.to_owned() + TABLE),
        );
        for _ in 0..2 {
            let warned = warnings(&run(&shop).expect(0).summary());
            assert!(
                says(&warned, &["of the split has none of the 120 rows of `f`"]),
                "{step}: {warned:?}"
            );
        }
    }
}

#[test]
fn parts_that_overlap_or_leave_rows_out_are_told() {
    let shop = TestDirectory::new();
    items(&shop);
    // The split, words of `check` and words of a run's summary.
    type Case = (
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    );
    let cases: [Case; 7] = [
        (
            "split: { train: \"day >= DATE '2024-02-01'\", validation: \"day < DATE '2024-02-01'\" }\n",
            &[
                "`train` of the split is later than `validation`",
                "begins at 2024-02-01",
            ],
            &["later than `validation`", "ends at 2024-01-31"],
        ),
        (
            "split: { train: \"day < DATE '2024-02-01'\", validation: \"day >= DATE '2024-01-20'\" }\n",
            &[
                "overlap",
                "`day` from 2024-01-20 to 2024-01-31",
                "`train` and `validation`",
            ],
            &["overlap", "18 of 120 rows", "`train` and `validation`"],
        ),
        (
            "split: { train: \"day < DATE '2024-01-10'\", validation: \"day >= DATE '2024-02-01'\" }\n",
            &["leaves rows out", "`day` from 2024-01-10 to 2024-01-31"],
            &["38 of 120 rows", "in no part"],
        ),
        (
            "split: { train: \"item = 'a'\", validation: \"item IN ('b', 'a')\" }\n",
            &["overlap", "`item` a"],
            &["overlap", "60 of 120 rows"],
        ),
        // Two columns: only the rows tell.
        (
            "split: { train: \"x < 0 OR y > 5\", validation: \"x >= -1\" }\n",
            &[],
            &["overlap", "of 120 rows"],
        ),
        (
            "split: { train: \"x + 1 < 100\", validation: \"x + 1 >= 100\" }\n",
            &[],
            &["the part `validation`", "none of the 120 rows"],
        ),
        (HALVES, &[], &[]),
    ];
    for (split, checked, counted) in cases {
        spec(
            &shop,
            "    fit_on: train\n",
            &["standardize: { columns: [x] }"],
            &(split.to_owned() + TABLE),
        );
        let check = check(&shop).expect(0);
        for word in checked {
            assert!(check.stderr.contains(word), "{split}: {}", check.stderr);
        }
        assert_eq!(
            checked.is_empty(),
            !check.stderr.contains("warning"),
            "{}",
            check.stderr
        );
        let told = warnings(&run(&shop).expect(0).summary());
        assert!(
            counted.is_empty() || says(&told, counted),
            "{split}: {told:?}"
        );
        assert!(!counted.is_empty() || told.is_empty(), "{split}: {told:?}");
    }
}

/// A row whose columns of the split are null is in no part, unless a condition takes it.
#[test]
fn rows_without_a_value_of_the_split_are_told() {
    let shop = TestDirectory::new();
    shop.write(
        "rows.csv",
        "n,day\n1,2024-01-01\n2,\n3,2024-02-01\n4,\n5,2024-02-02\n",
    );
    let cases: [(&str, &[&str]); 4] = [
        (
            HALVES,
            &[
                "2 of 5 rows of `f` are in no part",
                "unless a condition says `IS NULL`",
            ],
        ),
        (
            "split: { train: \"day < DATE '2024-02-01' OR day IS NULL\", validation: \"day >= DATE '2024-02-01'\" }\n",
            &[],
        ),
        // An embargo takes rows with a time out of all parts, too.
        (
            "split: { by_time: { column: day, parts: [train, validation], ends: [\"2024-02-01\"], embargo: 7d } }\n",
            &[
                "2 of 5 rows of `f` have no `day`",
                "in no part of the split",
            ],
        ),
        (
            "split: { by_time: { column: day, parts: [train, validation], ends: [\"2024-02-02\"], embargo: 7d } }\n",
            &[
                "2 of 5 rows of `f` have no `day`",
                "in no part of the split",
            ],
        ),
    ];
    for (split, words) in cases {
        shop.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: t\n\
                 sources: {{ r: {{ csv: {{ path: rows.csv, columns: {{ n: float64, day: date }} }} }} }}\n\
                 steps: {{ f: {{ from: r, fit_on: train, do: [ {{ min_max: {{ columns: [n] }} }} ] }} }}\n\
                 {split}{TABLE}"
            ),
        );
        let call = shop.forebay(&["run", "spec.yaml", "--json", "--allow-empty"]);
        let warnings = warnings(&call.expect(0).summary());
        if words.is_empty() {
            assert!(!says(&warnings, &["in no part"]), "{split}: {warnings:?}");
        } else {
            assert!(says(&warnings, words), "{split}: {warnings:?}");
        }
    }
}

#[test]
fn learning_from_all_parts_and_scaling_ids_are_told() {
    let shop = TestDirectory::new();
    items(&shop);
    let steps = [
        "vocabulary: { columns: [kind] }",
        "standardize: { columns: [kind] }",
    ];
    spec(&shop, "", &steps, &(HALVES.to_owned() + TABLE));
    let check_text = check(&shop).expect(0).stderr;
    for word in [
        "`f.standardize`",
        "all parts of the split",
        "fit_on: train",
        "ids of `f.vocabulary`",
    ] {
        assert!(check_text.contains(word), "{check_text}");
    }
    let summary = run(&shop).expect(0).summary();
    assert!(
        says(&warnings(&summary), &["all parts of the split"]),
        "{summary}"
    );
    // Windows compute with values, and copy them.
    let lagged = "lag: { columns: [kind], by: [1d] }";
    for (window, is_told) in [
        (
            "rolling: { columns: [kind_lag_1d], compute: [mean], over: [7d] }",
            true,
        ),
        (
            "ewm: { columns: [kind], compute: [mean], alpha: 0.5, gaps: count_rows }",
            true,
        ),
        ("diff: { columns: [kind], by: [1d] }", true),
        ("impute: { columns: [kind], with: median }", true),
        ("impute: { columns: [kind], with: mode }", false),
        (
            "rolling: { columns: [kind], compute: [count, n_unique], over: [7d] }",
            false,
        ),
    ] {
        let steps = ["vocabulary: { columns: [kind] }", lagged, window];
        spec(&shop, "", &steps, TABLE);
        let check_text = check(&shop).expect(0).stderr;
        assert_eq!(
            check_text.contains("ids of `f.vocabulary`"),
            is_told,
            "{window}: {check_text}"
        );
    }
    // Ids of another step, which a join by time brings.
    let steps = [
        "drop: [kind]",
        "as_of_join: { with: g, on: [item], columns: [kind], prefix: g_ }",
        "standardize: { columns: [g_kind] }",
    ];
    spec(&shop, "", &steps, TABLE);
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let other = "steps:\n  g: { from: items, do: [vocabulary: { columns: [kind] }, select: [item, day, kind]] }\n";
    shop.write("spec.yaml", &text.replace("steps:\n", other));
    let check_text = check(&shop).expect(0).stderr;
    assert!(
        check_text.contains("holds ids of `g.vocabulary`"),
        "{check_text}"
    );
    // Ids as keys of statistics are no numbers.
    let steps = [
        "vocabulary: { columns: [kind] }",
        "standardize: { columns: [x], by: [kind] }",
    ];
    spec(
        &shop,
        "    fit_on: train\n",
        &steps,
        &(HALVES.to_owned() + TABLE),
    );
    assert_eq!(check(&shop).expect(0).stderr, "");
}

/// Weights of ids mean nothing; trees take ids apart.
#[test]
fn ids_that_are_weighed_as_numbers_are_told() {
    let shop = TestDirectory::new();
    items(&shop);
    let lagged = "lag: { columns: [kind], by: [1d] }";
    let missing = "missing: 0";
    for (model, columns, is_told) in [
        ("linear", "dense: [x, kind]", Some("`kind`")),
        ("mlp", "dense: [x, \"kin*\"]", Some("`kind`, `kind_lag_1d`")),
        // Columns that are not named: a lag of ids is a number.
        ("linear", missing, Some("`kind_lag_1d`")),
        (
            "linear",
            "dense: [x], categorical: [kind, kind_lag_1d]",
            None,
        ),
        ("gbdt", "dense: [x, kind]", None),
    ] {
        let sections = format!(
            "{HALVES}sinks: {{ n: {{ from: f, train: {{ path: o, model: {model}, label: y, {columns} }} }} }}\n"
        );
        let steps = ["vocabulary: { columns: [kind] }", lagged];
        spec(&shop, "    fit_on: train\n", &steps, &sections);
        let check_text = check(&shop).expect(0).stderr;
        let Some(names) = is_told else {
            let no_ids = !check_text.contains("multiplies ids");
            assert!(no_ids, "{model} {columns}: {check_text}");
            continue;
        };
        let words = format!("`n` multiplies ids of `f.vocabulary` by weights ({names})");
        assert!(
            check_text.contains(&words) && check_text.contains("under `categorical`"),
            "{model} {columns}: {check_text}"
        );
    }
    // One column for each id is no id.
    let steps = [
        "vocabulary: { columns: [kind] }",
        "one_hot: { columns: [kind] }",
    ];
    let train = "model: linear, label: y, dense: [x, kind]";
    let sections =
        format!("{HALVES}sinks: {{ n: {{ from: f, train: {{ path: o, {train} }} }} }}\n");
    spec(&shop, "    fit_on: train\n", &steps, &sections);
    let check_text = check(&shop).expect(0).stderr;
    assert!(!check_text.contains("multiplies ids"), "{check_text}");
}

/// Ids under other names and of other steps are ids; what is computed of them or counted is not.
#[test]
fn ids_are_followed_to_where_they_are_weighed() {
    let shop = TestDirectory::new();
    items(&shop);
    let with_ids = "vocabulary: { columns: [kind] }";
    let brought = "join: { with: g, on: [item, day], columns: [kind], prefix: g_ }";
    let pairs = "join: { with: g, on: [item], columns: [kind], prefix: g_, \
                 cardinality: many_to_many }";
    let of_pairs = "standardize: { columns: [g_kind] }";
    let of_copy = "standardize: { columns: [z] }";
    let grouped = "aggregate: { by: [kind], compute: { n: { count: \"*\" } } }";
    let averaged = "aggregate: { by: [item], compute: { z: { mean: kind } } }";
    let latest = "aggregate: { by: [item], compute: { z: { last: kind } } }";
    for (from, steps, made_by) in [
        ("items", vec!["drop: [kind]", brought, of_pairs], Some("g")),
        ("items", vec!["drop: [kind]", pairs, of_pairs], Some("g")),
        (
            "items",
            vec![with_ids, "rename: { kind: z }", of_copy],
            Some("f"),
        ),
        (
            "items",
            vec![with_ids, "derive: { z: kind }", of_copy],
            Some("f"),
        ),
        (
            "items",
            vec![with_ids, "derive: { z: \"coalesce(kind, 0)\" }", of_copy],
            Some("f"),
        ),
        (
            "items",
            vec![with_ids, "derive: { z: \"kind * 2\" }", of_copy],
            None,
        ),
        (
            "items",
            vec![
                with_ids,
                "cast: { columns: { kind: float64 } }",
                "rename: { kind: z }",
                of_copy,
            ],
            Some("f"),
        ),
        (
            "items",
            vec![
                with_ids,
                "dedupe: { keys: [item] }",
                "rename: { kind: z }",
                of_copy,
            ],
            Some("f"),
        ),
        (
            "items",
            vec![with_ids, grouped, "standardize: { columns: [kind] }"],
            Some("f"),
        ),
        (
            "items",
            vec![with_ids, grouped, "standardize: { columns: [n] }"],
            None,
        ),
        ("items", vec![with_ids, averaged], Some("f")),
        ("items", vec![with_ids, latest, of_copy], Some("f")),
        ("q", vec![of_copy], Some("g")),
        ("q", vec!["standardize: { columns: [n] }"], None),
    ] {
        spec(&shop, "", &steps, TABLE);
        let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
        let text = text.replace("from: items", &format!("from: {from}"));
        let others = format!(
            "steps:\n  g: {{ from: items, do: [{{ {with_ids} }}, {{ select: [item, day, kind] }}] }}\n  \
             q: {{ sql: \"SELECT kind AS z, count(*) AS n FROM g WHERE item = 'a' GROUP BY kind\" }}\n"
        );
        shop.write("spec.yaml", &text.replace("steps:\n", &others));
        let check_text = check(&shop).expect(0).stderr;
        let Some(node) = made_by else {
            assert!(!check_text.contains("holds ids"), "{steps:?}: {check_text}");
            continue;
        };
        let words = format!("which holds ids of `{node}.vocabulary`");
        assert!(check_text.contains(&words), "{steps:?}: {check_text}");
    }
}

#[test]
fn joins_that_find_nothing_are_told() {
    let shop = TestDirectory::new();
    items(&shop);
    shop.write(
        "other.csv",
        "key,day,z\nA,2030-01-01,1.5\nB,2030-02-01,2.5\n",
    );
    shop.write(
        "same.csv",
        "key,day,z\na,2023-12-01,1.5\nA,2030-02-01,2.5\n",
    );
    let joins = [
        "join: { with: other, on: [item], right_on: [key], columns: [z] }",
        "join: { with: other, on: [item], right_on: [key], how: inner, columns: [z] }",
        "join: { with: other, on: [item], right_on: [key], how: semi }",
        "join: { with: other, on: [item], right_on: [key], how: anti }",
        "join: { with: other, on: [item], right_on: [key], how: anti, strategy: shuffle }",
        "join: { with: other, on: [item], right_on: [key], strategy: shuffle, columns: [z] }",
        "join: { with: other, on: [item], right_on: [key], cardinality: many_to_many, columns: [z] }",
        "as_of_join: { with: other, on: [item], right_on: [key], columns: [z] }",
    ];
    for (other, is_told) in [("other", true), ("same", false)] {
        for join in joins {
            let join = join.replace("with: other", &format!("with: {other}"));
            spec(&shop, "", &[&join], TABLE);
            let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
            let source = format!(
                "  {other}: {{ csv: {{ path: {other}.csv, columns: {{ key: string, day: date, z: float64 }} }}, time: day }}\nsteps:"
            );
            shop.write("spec.yaml", &text.replacen("steps:", &source, 1));
            let is_shared = join.contains("how: inner") || join.starts_with("as_of");
            for more in [&[][..], &["--local-workers=2"]] {
                if !more.is_empty() && !is_shared {
                    continue;
                }
                let args = [
                    &[
                        "run",
                        "spec.yaml",
                        "--json",
                        "--allow-empty",
                        "--state",
                        "st",
                    ][..],
                    more,
                ]
                .concat();
                let summary = shop.forebay(&args).expect(0).summary();
                let told = warnings(&summary);
                let words = ["finds no row", "runs from a to b", "runs from A to B"];
                assert_eq!(says(&told, &words), is_told, "{join} {more:?}: {told:?}");
                std::fs::remove_dir_all(shop.path("st")).unwrap();
                shop.remove_output("out");
            }
        }
    }
}

/// Rows of a line, `y = 2 x + 1`, with x between -2 and 2; `odds` is 1 where y is above 1.
fn line(shop: &TestDirectory, rows: usize) {
    let mut text = String::from("n,x,y,odds,noise\n");
    for row in 0..rows {
        let x = (row * 7919 % 4001) as f64 / 1000.0 - 2.0;
        let noise = (row * 104_729 % 1009) as f64 / 1009.0;
        let odds = u8::from(x + noise > 0.5);
        text += &format!("{row},{x:.3},{:.3},{odds},{noise:.3}\n", 2.0 * x + 1.0);
    }
    shop.write("line.csv", &text);
}

fn line_spec(shop: &TestDirectory, train: &str) {
    let columns = "{ n: int64, x: float64, y: float64, odds: int64, noise: float64 }";
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: t\nsources: {{ line: {{ csv: {{ path: line.csv, columns: {columns} }} }} }}\n\
             steps: {{ f: {{ from: line }} }}\n\
             split: {{ by_hash: {{ keys: [n], parts: {{ train: 0.8, validation: 0.2 }} }} }}\n\
             sinks: {{ m: {{ from: f, train: {{ path: o, {train} }} }} }}\n"
        ),
    );
}

#[test]
fn defaults_train_small_data() {
    let shop = TestDirectory::new();
    line(&shop, 5000);
    for (train, metric, most) in [
        ("model: linear, label: y, dense: [x]", "rmse", 0.1),
        ("model: mlp, label: y, dense: [x]", "rmse", 0.3),
        ("model: logistic, label: odds, dense: [x]", "log_loss", 0.35),
    ] {
        line_spec(&shop, train);
        let call = run(&shop).expect(0);
        let summary = call.summary();
        let epochs = summary["models"][0]["epochs"].as_array().unwrap();
        let last = epochs.last().unwrap();
        assert!(last["step"].as_u64().unwrap() >= 1000, "{last}");
        let found = last["validation"][metric].as_f64().unwrap();
        assert!(found < most, "{train}: {last}");
        assert_eq!(warnings(&summary), Vec::<String>::new());
    }
    let text = shop
        .forebay(&["run", "spec.yaml", "--state", "again"])
        .expect(0);
    assert!(text.stdout.contains("steps in"), "{}", text.stdout);
}

/// Numbers of several scales and with offsets, an id, and labels that are exactly linear in them: in units of each scale,
/// without and with an offset.
fn scaled_labels(shop: &TestDirectory, rows: usize, scales: &[f64]) -> Vec<String> {
    let mut labels = Vec::new();
    let mut header = String::from("n,a,b,c,k");
    for number in 0..2 * scales.len() {
        labels.push(format!("y{number}"));
        header += &format!(",y{number}");
    }
    let mut text = header + "\n";
    for row in 0..rows {
        let a = (row * 7919 % 1000) as f64 / 500.0 - 1.0;
        let b = (row * 104_729 % 997) as f64 / 498.5 - 1.0;
        let c = (row * 31 % 101) as f64 / 50.5 - 1.0;
        let k = row % 7;
        let label = a - 0.5 * b + 0.25 * c + 0.2 * k as f64 - 0.6;
        text += &format!("{row},{},{},{c},{k}", 1e4 + 1e3 * a, 1e-3 * b);
        for scale in scales {
            text += &format!(",{},{}", scale * label, scale * (label + 5.0));
        }
        text += "\n";
    }
    shop.write("scaled.csv", &text);
    labels
}

#[test]
fn models_learn_labels_of_any_scale_by_default() {
    let shop = TestDirectory::new();
    let labels = scaled_labels(&shop, 5000, &[1e-3, 1.0, 300.0, 1e6]);
    let mut columns = String::from("n: int64, a: float64, b: float64, c: float64, k: int64");
    let mut sinks = String::new();
    let kinds = [("linear", 0.02), ("mlp", 0.2)];
    for label in &labels {
        columns += &format!(", {label}: float64");
        for (kind, _) in kinds {
            sinks += &format!(
                "  {kind}_{label}: {{ from: f, train: {{ path: {kind}/{label}, model: {kind}, \
                 label: {label}, dense: [a, b, c], categorical: [k] }} }}\n"
            );
        }
    }
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: t\n\
             sources: {{ s: {{ csv: {{ path: scaled.csv, columns: {{ {columns} }} }} }} }}\n\
             steps: {{ f: {{ from: s }} }}\n\
             split: {{ by_hash: {{ keys: [n], parts: {{ train: 0.8, validation: 0.2 }} }} }}\n\
             sinks:\n{sinks}"
        ),
    );
    let summary = run(&shop).expect(0).summary();
    let models = summary["models"].as_array().unwrap();
    assert_eq!(models.len(), kinds.len() * labels.len());
    for model in models {
        let sink = model["sink"].as_str().unwrap();
        let kind = kinds.iter().find(|(kind, _)| sink.starts_with(kind));
        let last = model["epochs"].as_array().unwrap().last().unwrap();
        let wmape = last["validation"]["wmape"].as_f64().unwrap();
        assert!(wmape < kind.unwrap().1, "{sink}: {last}");
    }
}

/// Rows that are too few for a split make trees of one number.
#[test]
fn trees_without_a_split_are_told() {
    let shop = TestDirectory::new();
    for (rows, train, is_constant) in [
        (20, "model: gbdt, label: y, dense: [x]", true),
        (
            20,
            "model: gbdt, label: y, dense: [x], min_leaf_rows: 2",
            false,
        ),
        (
            20,
            "model: gbdt, label: y, dense: [x], quantiles: [0.1, 0.9]",
            true,
        ),
        (
            500,
            "model: gbdt, label: y, dense: [x], quantiles: [0.1, 0.9]",
            false,
        ),
        (500, "model: gbdt, label: y, dense: [x]", false),
        (20, "model: linear, label: y, dense: [x]", false),
    ] {
        line(&shop, rows);
        line_spec(&shop, train);
        let warning_texts = warnings(&run(&shop).expect(0).summary());
        let is_told = says(
            &warning_texts,
            &["`m` predicts the same for all rows", "`min_leaf_rows`"],
        );
        assert_eq!(
            is_told, is_constant,
            "{rows} rows, {train}: {warning_texts:?}"
        );
    }
}

#[test]
fn a_model_that_is_no_better_than_a_constant_is_told() {
    let shop = TestDirectory::new();
    line(&shop, 2000);
    for train in [
        "model: linear, label: y, dense: [noise], epochs: 1, batch_rows: 8192",
        "model: gbdt, label: y, dense: [noise], rounds: 1, leaves: 2",
    ] {
        line_spec(&shop, train);
        let call = run(&shop).expect(0);
        let told = warnings(&call.summary());
        assert!(
            says(&told, &["`m`", "no better than a constant"]),
            "{train}: {told:?}"
        );
    }
}

#[test]
fn boosted_probabilities_have_their_own_metrics() {
    let shop = TestDirectory::new();
    line(&shop, 2000);
    for weight in ["", ", weight: n"] {
        line_spec(
            &shop,
            &format!("model: gbdt, loss: logistic, label: odds, dense: [x], rounds: 20{weight}"),
        );
        let summary = run(&shop).expect(0).summary();
        let epoch = &summary["models"][0]["epochs"][0];
        let metrics = epoch["validation"].as_object().unwrap();
        let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
        assert_eq!(names, ["auc", "log_loss", "loss"], "{epoch}");
        assert!(metrics["auc"].as_f64().unwrap() > 0.9, "{epoch}");
        assert!(epoch["rounds"].as_u64().unwrap() <= 20, "{epoch}");
    }
    let text = shop
        .forebay(&["run", "spec.yaml", "--state", "again"])
        .expect(0);
    assert!(text.stdout.contains("rounds: loss"), "{}", text.stdout);
    assert!(!text.stdout.contains("epoch 0"), "{}", text.stdout);
}

#[test]
fn the_area_under_the_curve_is_that_of_the_predictions() {
    let shop = TestDirectory::new();
    line(&shop, 1000);
    line_spec(
        &shop,
        "model: gbdt, loss: logistic, label: odds, dense: [x], rounds: 5",
    );
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let sinks = "sinks: { v: { from: f, split: validation, parquet: { path: rows } }, ";
    shop.write("spec.yaml", &text.replace("sinks: { ", sinks));
    let summary = run(&shop).expect(0).summary();
    let told = &summary["models"][0]["epochs"][0]["validation"]["auc"];
    shop.forebay(&[
        "predict",
        "o",
        "--source",
        "line=line.csv",
        "--output",
        "predicted",
    ])
    .expect(0);
    let predicted = shop.visible("predicted");
    let held = shop.visible("rows");
    let keys = |batch: &arrow::array::RecordBatch| -> Vec<i64> {
        let column = batch.column_by_name("n").unwrap();
        column
            .as_primitive::<arrow::datatypes::Int64Type>()
            .values()
            .to_vec()
    };
    let wanted = keys(&held);
    let scores = arrow::compute::cast(
        predicted.column_by_name("prediction").unwrap(),
        &arrow::datatypes::DataType::Float64,
    )
    .unwrap();
    let scores = scores.as_primitive::<Float64Type>().values().to_vec();
    let labels = predicted.column_by_name("odds").unwrap();
    let labels = labels
        .as_primitive::<arrow::datatypes::Int64Type>()
        .values()
        .to_vec();
    let rows: Vec<(f64, i64)> = keys(&predicted)
        .iter()
        .zip(scores.iter().zip(labels))
        .filter(|(key, _)| wanted.contains(key))
        .map(|(_, (score, label))| (*score, label))
        .collect();
    let mut right = 0.0;
    let mut pairs = 0.0;
    for (one, _) in rows.iter().filter(|(_, label)| *label == 1) {
        for (zero, _) in rows.iter().filter(|(_, label)| *label == 0) {
            pairs += 1.0;
            right += match one.total_cmp(zero) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    let told = told.as_f64().unwrap();
    assert!(
        (told - right / pairs).abs() < 1e-4,
        "{told} and {}",
        right / pairs
    );
}

/// True if the last row of the output, which is of the last day, has no pooled mean.
fn last_mean_is_null(shop: &TestDirectory) -> bool {
    let rows = shop.visible("out");
    rows["x_all_mean_7d"].is_null(rows.num_rows() - 1)
}

/// A window over many series is computed from the rows of the part that its step is fitted on, also
/// for rows of later parts.
#[test]
fn pooled_windows_of_one_part_are_told() {
    let shop = TestDirectory::new();
    items(&shop);
    let pooled = "pooled: { columns: [x], compute: [mean], over: [7d], gap: 1d }";
    let sections = HALVES.to_owned() + TABLE;
    spec(&shop, "    fit_on: train\n", &[pooled], &sections);
    let words = "windows of `f.pooled` hold rows of `train` alone";
    let checked = check(&shop).expect(0).stderr;
    assert!(checked.contains(words), "{checked}");
    assert!(checked.contains("`validation`"), "{checked}");
    let summary = run(&shop).expect(0).summary();
    assert!(says(&warnings(&summary), &[words]), "{summary}");
    assert!(last_mean_is_null(&shop));
    // Without a part, windows reach over both; a part by a hash has rows of all times.
    spec(&shop, "", &[pooled], &sections);
    let checked = check(&shop).expect(0).stderr;
    assert!(!checked.contains("warning"), "{checked}");
    run(&shop).expect(0);
    assert!(!last_mean_is_null(&shop));
    let by_hash = "split: { by_hash: { keys: [item], parts: { train: 0.5, validation: 0.5 } } }\n";
    let sections = by_hash.to_owned() + TABLE;
    spec(&shop, "    fit_on: train\n", &[pooled], &sections);
    let checked = check(&shop).expect(0).stderr;
    assert!(!checked.contains("windows of"), "{checked}");
}

fn training_of(features: &str) -> String {
    let train = format!("train: {{ path: o, model: mlp, label: y, {features} }}");
    format!("{HALVES}sinks: {{ n: {{ from: f, {train} }} }}\n")
}

fn feed_of(features: &str) -> String {
    format!("{HALVES}feed: {{ from: f, {features} }}\n{TABLE}")
}

/// A column of a type that no batch holds is refused by `check`, and not by the first batch.
#[test]
fn texts_and_times_are_no_features() {
    let shop = TestDirectory::new();
    items(&shop);
    let steps = [
        "derive: { at: \"CAST(day AS TIMESTAMP)\", tenth: \"CAST(x AS DECIMAL(5, 1))\" }",
        "vocabulary: { columns: [item] }",
    ];
    let cases: [(&str, &[&str]); 5] = [
        (
            "dense: [kind], categorical: []",
            &["`kind` is a string, and not a number"],
        ),
        (
            "dense: [at], categorical: []",
            &["`at` is", "and not a number"],
        ),
        (
            "dense: [x], categorical: [kind]",
            &["`kind` is a string, and not an id", "vocabulary"],
        ),
        ("dense: [y], categorical: [x]", &["`x` is", "and not an id"]),
        ("dense: [x, tenth], categorical: [item]", &[]),
    ];
    for (features, words) in cases {
        for sections in [training_of(features), feed_of(features)] {
            if features.contains("dense: [y]") && sections.contains("label: y") {
                continue;
            }
            spec(&shop, "    fit_on: train\n", &steps, &sections);
            let code = if words.is_empty() { 0 } else { 78 };
            let checked = check(&shop).expect(code);
            for word in words {
                assert!(
                    checked.stderr.contains(word),
                    "{sections}: {}",
                    checked.stderr
                );
            }
        }
    }
}
