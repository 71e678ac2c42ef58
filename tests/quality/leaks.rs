//! Features that know the future are refused by `check`, whatever brings them; those that do not are not.

use std::collections::BTreeMap;

use forebay::connectors::{BuiltInConnectors, trainers};
use forebay::model::codes;
use forebay::prelude::*;
use forebay::run::{
    ConnectorRegistry, FeatureColumn, FeatureFacts, StepStrategy, Trainer, TrainingContext,
    TrainingOutput,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::TestDirectory;

/// Eighty days of three items with a price, a changing table of prices, and one of what items are.
fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    let mut history = String::from("item,day,shipped,y,price\n");
    let mut prices = String::from("item,day,listed\n");
    for number in 0..80 {
        let date = |day: u32| format!("2024-{:02}-{:02}", 1 + day / 28, 1 + day % 28);
        for item in ["a", "b", "c"] {
            let y = (number * 7) % 11 + item.len() as u32;
            let day = date(number);
            let shipped = date((number * 31) % 80);
            history += &format!("{item},{day},{shipped},{y},1.5\n");
            prices += &format!("{item},{day},2.5\n");
        }
    }
    shop.write("history.csv", &history);
    shop.write("prices.csv", &prices);
    shop.write("items.csv", "item,area\na,1\nb,2\nc,3\n");
    shop
}

/// A spec whose step `f` has these transforms, beside other steps, and whose model takes `z`.
fn spec(others: &str, transforms: &str) -> String {
    let transforms: String = transforms
        .lines()
        .map(|line| format!("      {line}\n"))
        .collect();
    format!(
        "version: 1\nname: leaks\nsources:\n  h: {{ csv: {{ path: history.csv }}, time: day, keys: [item] }}\n  \
         prices: {{ csv: {{ path: prices.csv }}, time: day, keys: [item] }}\n  items: {{ csv: {{ path: items.csv }} }}\n\
         steps:\n{others}  f:\n    from: h\n    do:\n{transforms}label: {{ column: y, horizon: 7d }}\nsinks:\n  n: {{ from: \
         f, train: {{ path: out, model: gbdt, dense: [z], categorical: [], rounds: 3 }} }}\n"
    )
}

/// A week's total by its begin.
const WEEKS: &str = "  w:\n    from: h\n    do:\n      - aggregate: { by: [item], every: 1w, time: day, compute: { m: \
                     { sum: y } } }\n";

/// What makes `z` of a column `m`, which the label's horizon keeps from.
const LAGGED: &str = "- lag: { columns: [m], by: [7d] }\n- rename: { m_lag_7d: z }\n- drop: [m]";

/// The encoding of the item by its labels as `z`.
fn encoded(settings: &str) -> String {
    format!("- derive: {{ z: item }}\n- target_encoding: {{ columns: [z], label: y, {settings} }}")
}

/// What a function that is given whole series makes of the label.
fn by_series(settings: &str) -> String {
    let code = "code: 'def f(batch): return batch', function: f, interpreter: sh";
    let columns = "columns: [y], returns: { m: float64 }";
    format!("- python: {{ {code}, {columns}, by: series{settings} }}\n{LAGGED}")
}

/// Forecasts of the label as `z`, by models that know values up to `horizon` before.
fn forecast(horizon: &str) -> String {
    format!(
        "- forecast_feature: {{ columns: [y], horizon: {horizon}, every: 1d }}\n\
         - rename: {{ y_theta_{horizon}: z }}"
    )
}

fn query(text: &str) -> String {
    format!("  q:\n    sql: \"{text}\"\n")
}

/// A feature that is refused: a name, other steps, transforms, and a word of the fault.
type RefusedFeature = (&'static str, String, String, &'static str);

fn refused_features() -> Vec<RefusedFeature> {
    let joined = |join: &str| format!("{join}\n{LAGGED}");
    let by_day = joined("- join: { with: q, on: [item, day], columns: [m] }");
    let moved = "  w:\n    from: h\n    do:\n      - derive: { day: \"CAST(day - INTERVAL '7' DAY AS DATE)\", m: y }\n      \
                 - select: [item, day, m]\n";
    let last = "  w:\n    from: h\n    do:\n      - dedupe: { keys: [item], keep: last }\n      - derive: { m: y }\n";
    let mean = "  w:\n    from: h\n    do:\n      - aggregate: { by: [item], compute: { m: { mean: y } } }\n";
    vec![
        (
            "what a program makes of a row",
            String::new(),
            "- derive: { z: \"CAST(y AS DOUBLE)\" }\n- command: { run: [cat], columns: [z], returns: { z: float64 }, nullable: [z] }".to_owned(),
            "ends with its row",
        ),
        (
            "what a function makes of whole series",
            String::new(),
            by_series(""),
            "looks_ahead",
        ),
        (
            "the total of a week, as of its begin",
            WEEKS.to_owned(),
            joined("- as_of_join: { with: w, on: [item], columns: [m] }"),
            "ends 1d before its row",
        ),
        (
            "the total of a week, by its begin",
            WEEKS.to_owned(),
            joined("- derive: { week: \"CAST(date_trunc('week', day) AS DATE)\" }\n- join: { with: w, on: [item, week], right_on: [item, day], columns: [m] }"),
            "ends 1d before its row",
        ),
        (
            "dates that were moved, then joined",
            moved.to_owned(),
            joined("- join: { with: w, on: [item, day], columns: [m] }"),
            "ends with its row",
        ),
        (
            "dates that were moved, then joined by a shuffle",
            moved.to_owned(),
            joined("- join: { with: w, on: [item, day], columns: [m], strategy: shuffle }"),
            "ends with its row",
        ),
        (
            "dates that were moved, in pairs",
            moved.to_owned(),
            joined("- join: { with: w, on: [item, day], columns: [m], cardinality: many_to_many }"),
            "ends with its row",
        ),
        (
            "dates of an unknown distance",
            String::new(),
            "- derive: { other: \"CASE WHEN price > 1 THEN day + INTERVAL '9 days' ELSE day END\" }\n- cast: { columns: { other: date } }\n- join: { with: h, on: [item, other], right_on: [item, day], columns: [y], prefix: m }\n- lag: { columns: [my], by: [7d] }\n- rename: { my_lag_7d: z }".to_owned(),
            "ends after its row",
        ),
        (
            "the row before, by a lag of the time",
            String::new(),
            "- lag: { columns: [day], by: [1], gaps: count_rows }\n- join: { with: h, on: [item, day_lag_1], right_on: [item, day], columns: [y], prefix: z_ }\n- rename: { z_y: z }".to_owned(),
            "ends after its row",
        ),
        (
            "a mean over all time by item",
            mean.to_owned(),
            joined("- join: { with: w, on: [item], columns: [m] }"),
            "ends after its row",
        ),
        (
            "the last row of an item, as of",
            last.to_owned(),
            joined("- as_of_join: { with: w, on: [item], columns: [m] }"),
            "ends after its row",
        ),
        (
            "the next row",
            String::new(),
            joined("- as_of_join: { with: prices, on: [item], columns: [listed], direction: forward }\n- rename: { listed: m }"),
            "ends after its row",
        ),
        (
            "a window in another order",
            String::new(),
            "- lag: { columns: [y], by: [7d], time: shipped }\n- rename: { y_lag_7d: z }".to_owned(),
            "ends after its row",
        ),
        (
            "a filling from later rows, pooled",
            String::new(),
            "- interpolate: { columns: [price] }\n- pooled: { columns: [price], compute: [mean], by: [item], over: [7d], gap: 7d }\n- rename: { price_item_mean_7d: z }".to_owned(),
            "ends after its row",
        ),
        (
            "a query that leads",
            query("SELECT *, lead(y, 7) OVER (PARTITION BY item ORDER BY day) AS m FROM h"),
            by_day.clone(),
            "ends after its row",
        ),
        (
            "a query that lags by less than nothing",
            query("SELECT *, lag(y, -7) OVER (PARTITION BY item ORDER BY day) AS m FROM h"),
            by_day.clone(),
            "ends after its row",
        ),
        (
            "a centred mean",
            query("SELECT *, avg(y) OVER (PARTITION BY item ORDER BY day ROWS BETWEEN 3 PRECEDING AND 3 FOLLOWING) AS m FROM h"),
            by_day.clone(),
            "ends after its row",
        ),
        (
            "a frame in descending order",
            query("SELECT *, sum(y) OVER (PARTITION BY item ORDER BY day DESC) AS m FROM h"),
            by_day.clone(),
            "ends after its row",
        ),
        (
            "a partition of all time",
            query("SELECT *, avg(y) OVER (PARTITION BY item) AS m FROM h"),
            by_day.clone(),
            "ends after its row",
        ),
        (
            "a subquery over all rows",
            query("SELECT *, y - (SELECT avg(y) FROM h) AS m FROM h"),
            by_day.clone(),
            "ends after its row",
        ),
        (
            "groups of a query by week",
            query("SELECT item, CAST(date_trunc('week', day) AS DATE) AS day, sum(y) AS m FROM h GROUP BY item, CAST(date_trunc('week', day) AS DATE)"),
            joined("- as_of_join: { with: q, on: [item], columns: [m] }"),
            "ends 1d before its row",
        ),
        (
            "pairs of rows of any distance",
            query("SELECT a.item, a.day, max(b.y) AS m FROM h AS a JOIN h AS b ON a.item = b.item AND b.day >= a.day GROUP BY a.item, a.day"),
            by_day,
            "ends after its row",
        ),
        (
            "labels of other folds",
            String::new(),
            encoded("fold_by: [item, day]"),
            "cross_fit: time",
        ),
        (
            "labels of yesterday",
            String::new(),
            encoded("cross_fit: time"),
            "ends 1d before its row",
        ),
        (
            "labels that end too late",
            String::new(),
            encoded("cross_fit: time, gap: 6d"),
            "ends 6d before its row",
        ),
        (
            "forecasts of models that know too much",
            String::new(),
            forecast("6d"),
            "ends 6d before its row",
        ),
    ]
}

/// A name, other steps and transforms of a feature that is known in time.
type SoundFeature = (&'static str, String, String);

fn sound_features() -> Vec<SoundFeature> {
    let joined = |join: &str| format!("{join}\n{LAGGED}");
    let by_day = joined("- join: { with: q, on: [item, day], columns: [m] }");
    let ended =
        format!("{WEEKS}      - derive: {{ day: \"CAST(day + INTERVAL '6 days' AS DATE)\" }}\n");
    let known_at =
        format!("{WEEKS}      - derive: {{ end: \"CAST(day + INTERVAL '6 days' AS DATE)\" }}\n");
    vec![
        (
            "the total of a week, as of its end",
            ended,
            joined("- as_of_join: { with: w, on: [item], columns: [m] }"),
        ),
        (
            "the total of a week, once it is known",
            known_at,
            joined("- as_of_join: { with: w, on: [item], columns: [m], known_at: end }"),
        ),
        (
            "the total of a week before",
            WEEKS.to_owned(),
            "- as_of_join: { with: w, on: [item], columns: [m] }\n- lag: { columns: [m], by: [14d] }\n- rename: { m_lag_14d: z }".to_owned(),
        ),
        (
            "the same day of another table",
            String::new(),
            joined("- join: { with: prices, on: [item, day], columns: [listed] }\n- rename: { listed: m }"),
        ),
        (
            "a day of another table that is moved into the past",
            "  w:\n    from: h\n    do:\n      - derive: { day: \"CAST(day + INTERVAL '7' DAY AS DATE)\", z: y }\n      - select: [item, day, z]\n".to_owned(),
            "- join: { with: w, on: [item, day], columns: [z] }".to_owned(),
        ),
        (
            "what an item is",
            String::new(),
            "- join: { with: items, on: [item], columns: [area] }\n- rename: { area: z }".to_owned(),
        ),
        (
            "rows of a query",
            query("SELECT item, day, y * 2 AS m FROM h WHERE price > 0 ORDER BY day"),
            by_day.clone(),
        ),
        (
            "groups of a query by day",
            query("SELECT item, day, sum(y) AS m FROM h GROUP BY item, day"),
            by_day.clone(),
        ),
        (
            "frames of a query that end with the row",
            query("SELECT *, avg(y) OVER (PARTITION BY item ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS m FROM h"),
            by_day.clone(),
        ),
        (
            "a join of a query by day",
            query("SELECT h.item, h.day, listed AS m FROM h JOIN prices ON h.item = prices.item AND h.day = prices.day"),
            by_day.clone(),
        ),
        (
            "a declared age",
            format!(
                "{}    data_age: {{ m: 0d }}\n",
                query("SELECT a.item, a.day, max(b.y) AS m FROM h AS a JOIN h AS b ON a.item = b.item AND b.day <= a.day GROUP BY a.item, a.day")
            ),
            by_day,
        ),
        (
            "what a function makes of the rows of a series so far",
            String::new(),
            by_series(", looks_ahead: none"),
        ),
        (
            "labels that end before the prediction",
            String::new(),
            encoded("cross_fit: time, gap: 7d"),
        ),
        (
            "forecasts of models that were fitted before the prediction",
            String::new(),
            forecast("7d"),
        ),
    ]
}

#[test]
fn features_of_later_rows_are_refused() {
    let shop = shop();
    let mut wrong = Vec::new();
    for (name, others, transforms, word) in refused_features() {
        shop.write("spec.yaml", &spec(&others, &transforms));
        let call = shop.forebay(&["check", "spec.yaml"]);
        let is_refused = call.code == 78 && call.stderr.contains("error[FB0115]: `z` in sink `n`");
        if !is_refused || !call.stderr.contains(word) {
            wrong.push(format!("{name}: exit {}\n{}", call.code, call.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn features_of_earlier_rows_are_not() {
    let shop = shop();
    let mut wrong = Vec::new();
    for (name, others, transforms) in sound_features() {
        shop.write("spec.yaml", &spec(&others, &transforms));
        let call = shop.forebay(&["check", "spec.yaml"]);
        if call.code != 0 {
            wrong.push(format!("{name}: exit {}\n{}", call.code, call.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Rows of weeks are predicted from rows of weeks: each is known at its end.
#[test]
fn rows_of_buckets_look_back_at_rows_of_buckets() {
    let shop = shop();
    let text = "version: 1\nname: weeks\nsources:\n  h: { csv: { path: history.csv }, time: day, keys: [item] }\nsteps:\n  \
                f:\n    from: h\n    do:\n      - aggregate: { by: [item], every: 1w, time: day, compute: { y: { sum: y } } \
                }\n      - lag: { columns: [y], by: [2w], time: day, keys: [item] }\nlabel: { column: y, horizon: 2w }\n\
                sinks:\n  n: { from: f, train: { path: out, model: gbdt, dense: [y_lag_2w], categorical: [], rounds: 3 } }\n";
    shop.write("spec.yaml", text);
    shop.forebay(&["check", "spec.yaml"]).expect(0);
    shop.forebay(&["check", "spec.yaml", "--perturb-future", "--memory=256MiB"])
        .expect(0);
}

/// Only what a model takes must be known: the other columns of its step may be anything.
#[test]
fn columns_that_no_model_takes_need_not_be_known() {
    let shop = shop();
    let check = |sinks: &str, code: i32| {
        let text = spec(
            "",
            "- lag: { columns: [y], by: [7d] }\n- rename: { y_lag_7d: z }",
        );
        let (before, _) = text.split_once("sinks:\n").unwrap();
        shop.write("spec.yaml", &format!("{before}{sinks}"));
        shop.forebay(&["check", "spec.yaml"]).expect(code).stderr
    };
    let net = "  n: { from: f, train: { path: out/n, model: gbdt, dense: [z], categorical: [], rounds: 3 } }\n";
    let table = "  t: { from: f, parquet: { path: out/t } }\n";
    check(&format!("sinks:\n{net}"), 0);
    check(&format!("sinks:\n{net}{table}"), 0);
    let all = check(&format!("sinks:\n{table}"), 78);
    assert!(
        all.contains("`price`") && all.contains("`shipped`"),
        "{all}"
    );
    let taken = net.replace("dense: [z]", "dense: [z, price]");
    let taken = check(&format!("sinks:\n{taken}"), 78);
    assert!(taken.contains("`price` in sink `n`"), "{taken}");
    // Without a list, a model takes all numbers.
    let default = net.replace("dense: [z], ", "");
    let default = check(&format!("sinks:\n{default}"), 78);
    assert!(
        default.contains("`price` in sink `n`") && !default.contains("shipped"),
        "{default}"
    );
    // What names the groups of models is taken, too.
    let grouped = net.replace("dense: [z]", "dense: [z], by: [price]");
    let grouped = check(&format!("sinks:\n{grouped}"), 78);
    assert!(grouped.contains("`price` in sink `n`"), "{grouped}");
    // A feed takes what it delivers.
    let feed = "feed: { from: f, dense: [price], batch_rows: 4 }\n";
    let fed = check(&format!("sinks:\n{net}{feed}"), 78);
    assert!(fed.contains("`price` in the feed"), "{fed}");
    check(&format!("sinks:\n{net}{}", feed.replace("price", "z")), 0);
}

/// A table beside a feed of the same rows, and the rows that the feed itself stands for, repeat no
/// fault.
#[test]
fn a_column_that_is_known_too_late_is_reported_once() {
    let shop = shop();
    let text = spec(
        "",
        "- derive: { v: \"2 * price\", w: \"price + y\" }\n- derive: { x: \"y + 1\" }",
    );
    let (before, _) = text.split_once("sinks:\n").unwrap();
    let table = "sinks:\n  t: { from: f, parquet: { path: out/t } }\n";
    let feed = "feed: { from: f, dense: [v, x], batch_rows: 4 }\n";
    shop.write("spec.yaml", &format!("{before}{table}{feed}"));
    for command in ["check", "feed", "run"] {
        let refused = shop.forebay(&[command, "spec.yaml"]).expect(78).stderr;
        assert_eq!(
            refused.matches("error[FB0115]").count(),
            2,
            "{command}: {refused}"
        );
        for column in ["`v` in the feed", "`x` in the feed"] {
            assert!(refused.contains(column), "{command}: {refused}");
        }
        assert!(!refused.contains("FB0105"), "{command}: {refused}");
    }
    // Of many causes, those of one source share a fault, which explains each column.
    let text = spec(
        "",
        "- derive: { w: y }\n- as_of_join: { with: prices, on: [item], columns: [listed] }",
    );
    let (before, _) = text.split_once("sinks:\n").unwrap();
    shop.write("spec.yaml", &format!("{before}{table}"));
    let refused = shop.forebay(&["check", "spec.yaml"]).expect(78).stderr;
    assert_eq!(refused.matches("error[FB0115]").count(), 2, "{refused}");
    for column in ["price", "shipped", "w"] {
        assert!(
            refused.contains(&format!("note: `{column}` ends with its row")),
            "{refused}"
        );
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_check_knows_the_columns_that_each_trainer_takes() {
    let mut formats = trainers().iter();
    let format = formats.find(|format| format.name == "train").unwrap();
    let labelled = FeatureFacts {
        label: Some("y".to_owned()),
        ..FeatureFacts::default()
    };
    let weighted = FeatureFacts {
        weight: Some("share".to_owned()),
        ..labelled.clone()
    };
    let cases = [
        (
            json!({ "model": "mlp", "label": "y", "weight": "share", "missing": 0.0 }),
            FeatureFacts {
                replaces_missing: true,
                ..weighted.clone()
            },
        ),
        (json!({ "model": "linear" }), FeatureFacts::default()),
        (
            json!({ "model": "gbdt", "strategy": "direct" }),
            FeatureFacts::default(),
        ),
        (
            json!({ "model": "gbdt", "label": "y", "weight": "share", "strategy": "per_step" }),
            FeatureFacts {
                strategy: Some(StepStrategy::PerStep),
                ..weighted
            },
        ),
        (
            json!({ "model": "gbdt", "strategy": "recursive" }),
            FeatureFacts {
                strategy: Some(StepStrategy::Recursive),
                ..FeatureFacts::default()
            },
        ),
        (
            json!({ "model": "gbdt", "by": ["store", "item"], "fallback": { "column": "y_lag_7d" } }),
            FeatureFacts {
                extra: names(&["store", "item", "y_lag_7d"]),
                ..FeatureFacts::default()
            },
        ),
        (
            json!({ "model": "theta", "label": "y", "by": ["item"], "time": "day", "every": "1d" }),
            FeatureFacts {
                dense: Some(Vec::new()),
                categorical: Some(Vec::new()),
                extra: names(&["item"]),
                ..labelled
            },
        ),
    ];
    for (config, expected) in cases {
        let facts = |config: Value| {
            let config = format.fill_defaults(config).unwrap();
            let trainer = BuiltInConnectors.trainer("train", &config).unwrap();
            trainer.feature_facts()
        };
        assert_eq!(facts(config.clone()), expected, "{config}");
        if config["model"] == "theta" {
            continue;
        }
        let mut with_features = config;
        with_features["dense"] = json!(["price", "y_lag_7d"]);
        with_features["categorical"] = json!(["city"]);
        let expected = FeatureFacts {
            dense: Some(names(&["price", "y_lag_7d"])),
            categorical: Some(names(&["city"])),
            ..expected
        };
        assert_eq!(facts(with_features), expected);
    }
}

/// A trainer whose settings have names of their own.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MeanTrainer {
    path: String,
    target: String,
    inputs: Vec<String>,
}

impl ConnectorConfig for MeanTrainer {
    const NAME: &'static str = "mean";
}

impl TrainerFormat for MeanTrainer {}

impl Trainer for MeanTrainer {
    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn feed(&self) -> FeedConfig {
        let inputs = self.inputs.iter();
        FeedConfig {
            dense: Some(
                inputs
                    .map(|input| FeatureColumn::from(input.as_str()))
                    .collect(),
            ),
            categorical: Some(Vec::new()),
            label: Some(FeatureColumn::from(self.target.as_str())),
            ..FeedConfig::default()
        }
    }

    fn validation(&self) -> Option<&str> {
        None
    }

    fn identity(&self) -> Result<Value> {
        Ok(json!(["mean", self.target, self.inputs]))
    }

    fn train(&self, _: &TrainingContext<'_>) -> Result<TrainingOutput> {
        Err(Fault::internal("a check trains nothing"))
    }
}

#[test]
fn a_trainer_of_another_crate_says_which_columns_it_takes() {
    let shop = shop();
    let text = spec(
        "",
        "- lag: { columns: [y], by: [7d] }\n- rename: { y_lag_7d: z }",
    );
    let (steps, _) = text.split_once("sinks:\n").unwrap();
    let history = shop.at("history.csv");
    let folder = history.trim_end_matches("history.csv");
    let steps = steps.replace("path: ", &format!("path: {folder}"));
    let options = SessionOptions::default().state(shop.at("state"));
    let program = Forebay::new()
        .with_options(options)
        .with_trainer::<MeanTrainer>();
    let check = |inputs: &str| {
        let out = shop.at("out");
        let sink =
            format!("  n: {{ from: f, mean: {{ path: {out}, target: y, inputs: {inputs} }} }}\n");
        let pipeline = forebay::spec::parse(
            &format!("{steps}sinks:\n{sink}"),
            "spec.yaml",
            &BTreeMap::new(),
            &program.spec_catalog(),
        );
        program.check(&pipeline.unwrap())
    };
    // `price` is known too late, and the model does not take it.
    check("[z]").unwrap();
    let fault = check("[z, price]").unwrap_err();
    assert_eq!(fault.code(), codes::LEAKAGE);
    assert!(fault.to_string().contains("`price` in sink `n`"), "{fault}");
}
