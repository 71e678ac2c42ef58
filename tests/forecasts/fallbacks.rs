//! Groups without a model of their own, behind a forecast: what predicts for them, in the units of the label.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use serde_json::Value;

use crate::forecasts::quantiles::{SeriesDay, date, numbers, series_days, spec, values_by_day};
use crate::support::TestDirectory;

/// A group for each series: those of one store have few rows.
const BY_SERIES: &str = "by: [store_id, item_id]\n      min_rows: 24";

fn forecast(rows: &RecordBatch) -> BTreeMap<SeriesDay, f64> {
    series_days(rows)
        .into_iter()
        .zip(numbers(rows, "prediction").into_iter().map(Option::unwrap))
        .collect()
}

/// The series without a model of their own, with what predicts for them.
fn without_models(summary: &Value) -> BTreeMap<(String, String), String> {
    let reasons = summary["models"][0]["groups"]["fallback_reasons"]
        .as_array()
        .unwrap()
        .iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    reasons
        .map(|of| {
            (
                (text(&of["group"][0]), text(&of["group"][1])),
                text(&of["predicted_by"]),
            )
        })
        .collect()
}

struct Shop {
    shop: TestDirectory,
    until: String,
    /// The first day of the store whose series are young.
    opened: String,
}

impl Shop {
    fn new() -> Shop {
        let shop = TestDirectory::new();
        let days = shop.days("history");
        Shop {
            until: date(&days, 33),
            opened: date(&days, 25),
            shop,
        }
    }

    fn spec(&self, train: &str) {
        spec(&self.shop, "history", &self.until, train, "");
        let text = std::fs::read_to_string(self.shop.path("spec.yaml")).unwrap();
        let opened = format!(
            "qty IS NOT NULL AND (store_id <> 'CA_1' OR date >= DATE '{}')",
            self.opened
        );
        self.shop
            .write("spec.yaml", &text.replace("qty IS NOT NULL", &opened));
    }

    fn run(&self, train: &str) -> (Value, BTreeMap<SeriesDay, f64>) {
        self.spec(train);
        let summary = self
            .shop
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(0)
            .summary();
        (summary, forecast(&self.shop.rows("out/forecast")))
    }
}

#[test]
fn a_small_group_is_predicted_by_the_group_above() {
    let shop = Shop::new();
    let (summary, found) = shop.run(&format!("{BY_SERIES}\n      fallback: parent"));
    let groups = &summary["models"][0]["groups"];
    let without = without_models(&summary);
    assert!(
        groups["trained"].as_u64().unwrap() > 5 && without.len() > 1,
        "{groups}"
    );
    let above = without
        .iter()
        .filter(|((store, _), by)| **by == format!("the model of `{store}`"))
        .count();
    assert!(
        above > 0 && groups["parents"].as_u64().unwrap() as usize <= above,
        "{groups}"
    );
    // What the stores' own models predict, and the model over all rows where a store is too small.
    let (_, of_stores) = shop.run("by: [store_id]\n      min_rows: 24");
    let (_, of_all) = shop.run("");
    let mut differ = 0;
    for (key, value) in &found {
        let expected = match without.get(&(key.0.clone(), key.1.clone())) {
            Some(by) if by.contains("all rows") => of_all[key],
            Some(_) => of_stores[key],
            None => {
                differ += usize::from(*value != of_stores[key]);
                continue;
            }
        };
        assert_eq!(*value, expected, "{key:?}");
    }
    assert!(
        differ > 10,
        "{differ} forecasts are those of models of their own"
    );
}

#[test]
fn a_small_group_is_predicted_by_the_season_before() {
    let shop = Shop::new();
    let train = format!(
        "{BY_SERIES}\n      fallback: {{ column: qty_lag_7d }}\n      quantiles: [0.1, 0.9]"
    );
    let (summary, found) = shop.run(&train);
    let without = without_models(&summary);
    assert!(
        without.values().all(|by| by == "the column `qty_lag_7d`") && without.len() > 1,
        "{without:?}"
    );
    let (_, of_all) = shop.run("");
    let came = values_by_day(&crate::support::read(&shop.shop.path("history")));
    let mut seasonal = 0;
    for (key, value) in found
        .iter()
        .filter(|(key, _)| without.contains_key(&(key.0.clone(), key.1.clone())))
    {
        match came.get(&(key.0.clone(), key.1.clone(), key.2 - 7)) {
            Some(before) => {
                seasonal += 1;
                assert_eq!(value, before, "{key:?}");
            }
            None => assert_eq!(value, &of_all[key], "{key:?}"),
        }
    }
    assert!(
        seasonal > 5,
        "{seasonal} forecasts repeat the season before"
    );
    shop.spec(&train);
    let text = shop
        .shop
        .forebay(&["run", "spec.yaml", "--state=again"])
        .expect(0)
        .stdout;
    assert!(
        text.contains("fewer than `min_rows: 24`; the column `qty_lag_7d` predicts"),
        "{text}"
    );
}

#[test]
fn what_predicts_in_place_of_a_model_has_the_units_of_the_label() {
    let shop = Shop::new();
    let refused = |train: &str, steps: &str, more: &str, words: &[&str]| {
        spec(&shop.shop, "history", &shop.until, train, more);
        let text = std::fs::read_to_string(shop.shop.path("spec.yaml")).unwrap();
        shop.shop.write(
            "spec.yaml",
            &text.replace("split:", &format!("{steps}\nsplit:")),
        );
        let call = shop.shop.forebay(&["run", "spec.yaml"]);
        for word in words {
            assert!(
                call.stderr.contains(word),
                "no `{word}` in:\n{}",
                call.stderr
            );
        }
        call.expect(78);
    };
    let by_lag = format!("{BY_SERIES}\n      fallback: {{ column: qty_lag_7d }}");
    let logarithm = "      - log1p: { columns: [qty_lag_7d] }";
    refused(
        &by_lag,
        logarithm,
        "",
        &[
            "`features.log1p` changes `qty_lag_7d`",
            "units of the label",
        ],
    );
    refused(
        &by_lag,
        "      - log1p: { columns: [qty] }",
        "",
        &["`features.log1p` changes the label `qty`"],
    );
    let other = by_lag.replace("qty_lag_7d", "qty_lag_70d");
    refused(&other, "", "", &["qty_lag_70d"]);
    let price = by_lag.replace("qty_lag_7d", "price");
    refused(
        &price,
        "",
        "",
        &["`price` does not hold values of the label"],
    );
    refused(
        "fallback: { column: qty_lag_7d }",
        "",
        "",
        &["`fallback` is for groups"],
    );
    refused(
        "by: [store_id]\n      fallback: parent",
        "",
        "",
        &["several columns under `by`"],
    );
    let deadline = "deadline: { ladder: [naive] }";
    refused(
        "",
        "      - log1p: { columns: [qty] }",
        deadline,
        &["changes the label `qty` behind `future_rows`"],
    );
    let call = shop.shop.forebay(&["backtest", "spec.yaml"]);
    assert!(
        call.code == 78 && call.stderr.contains("the forecast would be in its units"),
        "{}",
        call.stderr
    );

    // Values that are only filled in stay values of the label.
    spec(&shop.shop, "history", &shop.until, &by_lag, "");
    let text = std::fs::read_to_string(shop.shop.path("spec.yaml")).unwrap();
    let filled = "      - impute: { columns: [qty_lag_7d], with: { constant: 0 } }\nsplit:";
    shop.shop
        .write("spec.yaml", &text.replace("split:", filled));
    shop.shop.forebay(&["run", "spec.yaml"]).expect(0);
}

impl Shop {
    /// Runs a spec with trees, a theta model, and a forecast whose settings are `predict`.
    fn run_both(&self, train: &str, predict: &str) -> (Value, BTreeMap<SeriesDay, f64>) {
        self.spec_of_both(train, predict);
        let call = self.shop.forebay(&["run", "spec.yaml", "--json"]);
        let summary = call.expect(0).summary();
        (summary, forecast(&self.shop.rows("out/forecast")))
    }

    fn spec_of_both(&self, train: &str, predict: &str) {
        self.spec_with_theta(train, "", predict);
    }

    /// A spec of both models, with more settings of the theta model.
    fn spec_with_theta(&self, train: &str, theta: &str, predict: &str) {
        self.spec(train);
        let text = std::fs::read_to_string(self.shop.path("spec.yaml")).unwrap();
        let one_model = "  forecast: { from: features, predict: { model: trees,";
        let both = format!(
            "  theta:\n    from: features\n    train: {{ path: out/theta, model: theta, \
             by: [store_id, item_id], time: date, every: 1d, season: 7d{theta} }}\n  \
             forecast: {{ from: features, predict: {{ {predict},"
        );
        assert_eq!(text.matches(one_model).count(), 1, "{text}");
        self.shop
            .write("spec.yaml", &text.replace(one_model, &both));
    }
}

#[test]
fn a_small_group_is_predicted_by_another_training() {
    let shop = Shop::new();
    let (summary, predicted) = shop.run_both(BY_SERIES, "model: trees, fallback: theta");
    let without = without_models(&summary);
    assert!(without.len() > 1, "{without:?}");
    let (_, of_trees) = shop.run_both(BY_SERIES, "model: trees");
    let (_, of_theta) = shop.run_both(BY_SERIES, "model: theta");
    assert_eq!(predicted.len(), of_trees.len());
    let mut changed = 0;
    for (key, value) in &predicted {
        let expected = if without.contains_key(&(key.0.clone(), key.1.clone())) {
            changed += usize::from(of_theta[key] != of_trees[key]);
            &of_theta
        } else {
            &of_trees
        };
        assert_eq!(*value, expected[key], "{key:?}");
    }
    assert!(changed > 3, "{changed} forecasts are others than before");
}

#[test]
fn an_ensemble_is_the_weighted_mean_of_its_models() {
    let shop = Shop::new();
    let (_, of_trees) = shop.run_both("", "model: trees");
    let (_, of_theta) = shop.run_both("", "model: theta");
    let ensemble = "model: trees, ensemble: { with: [theta], weights: [3, 1] }";
    let (_, predicted) = shop.run_both("", ensemble);
    assert_eq!(predicted.len(), of_trees.len());
    let mut compared = 0;
    for (key, value) in &predicted {
        let trees = of_trees[key];
        let theta = of_theta[key];
        // Bounds are of what is written: a forecast at the bound may have been less.
        if trees > 0.0 && theta > 0.0 {
            let expected = (0.75 * trees + 0.25 * theta) as f32;
            assert_eq!(*value, f64::from(expected), "{key:?}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared} forecasts are above the bound");
}

#[test]
fn models_that_do_not_go_together_are_refused() {
    let shop = Shop::new();
    let ensemble = "model: trees, ensemble: { with: [theta] }";
    for (train, predict, words) in [
        (
            "",
            "model: trees, fallback: theta",
            "one model for all rows",
        ),
        (BY_SERIES, "model: trees, fallback: thetta", "thetta"),
        (
            BY_SERIES,
            "model: trees, fallback: trees",
            "no fallback of itself",
        ),
        (
            "",
            "model: trees, ensemble: { with: [] }",
            "two models or more",
        ),
        (
            "",
            "model: trees, ensemble: { with: [theta, theta] }",
            "`theta` is named twice",
        ),
        (
            "",
            "model: trees, ensemble: { with: [theta], weights: [1] }",
            "2 models, and 1 weights",
        ),
        (
            "",
            "model: trees, ensemble: { with: [theta], weights: [0, 0] }",
            "one of them is above 0",
        ),
        (
            "",
            "model: trees, ensemble: { with: [theta], combine: median, weights: [1, 1] }",
            "a median has no weights",
        ),
        (
            "quantiles: [0.1, 0.9]",
            ensemble,
            "other quantiles than `trees`: none in place of [0.1, 0.9]",
        ),
        ("refit: 7d", ensemble, "has a `refit`"),
    ] {
        shop.spec_of_both(train, predict);
        let call = shop.shop.forebay(&["check", "spec.yaml"]);
        assert!(
            call.code == 78 && call.stderr.contains(words),
            "{predict}: {}",
            call.stderr
        );
    }
}

/// Ends of intervals of the theta model, on folds of three days.
const THETA_INTERVALS: &str = ", horizon: 3d, folds: 2, intervals: { levels: [80] }";

const ENDS: [&str; 2] = ["prediction_q10", "prediction_q90"];

/// The point forecast and both ends of the interval of each series and day.
fn intervals(rows: &RecordBatch) -> BTreeMap<SeriesDay, [f64; 3]> {
    let [low, high] = ENDS.map(|name| numbers(rows, name));
    let points = numbers(rows, "prediction");
    let mut of_rows = BTreeMap::new();
    for (row, key) in series_days(rows).into_iter().enumerate() {
        let values = [points[row], low[row], high[row]];
        of_rows.insert(key, values.map(Option::unwrap));
    }
    of_rows
}

impl Shop {
    /// Point forecasts and intervals of a spec whose models both have some.
    fn run_intervals(&self, train: &str, predict: &str) -> BTreeMap<SeriesDay, [f64; 3]> {
        self.spec_with_theta(train, THETA_INTERVALS, predict);
        self.shop.forebay(&["run", "spec.yaml"]).expect(0);
        intervals(&self.shop.rows("out/forecast"))
    }
}

/// Trees of quantiles and intervals of the same quantiles go together.
#[test]
fn an_ensemble_combines_the_ends_of_intervals() {
    let shop = Shop::new();
    for train in ["intervals: { levels: [80] }", "quantiles: [0.1, 0.9]"] {
        let of_trees = shop.run_intervals(train, "model: trees");
        let of_theta = shop.run_intervals(train, "model: theta");
        for (combine, weights) in [
            ("mean, weights: [3, 1]", [0.75, 0.25]),
            ("median", [0.5, 0.5]),
        ] {
            let ensemble =
                format!("model: trees, ensemble: {{ with: [theta], combine: {combine} }}");
            let predicted = shop.run_intervals(train, &ensemble);
            assert_eq!(predicted.len(), of_trees.len());
            let mut compared = 0;
            for (key, values) in &predicted {
                let trees = of_trees[key];
                let theta = of_theta[key];
                assert!(values[1] <= values[2], "{key:?}: {values:?}");
                for (number, value) in values.iter().enumerate() {
                    // Bounds are of what is written: a value at the bound may have been less.
                    if trees[number] > 0.0 && theta[number] > 0.0 {
                        let expected = weights[0] * trees[number] + weights[1] * theta[number];
                        let difference = (value - expected).abs();
                        assert!(
                            difference <= 1e-5 * expected.max(1.0),
                            "{train}, {combine}, {key:?}: {values:?}, not {expected}"
                        );
                        compared += 1;
                    }
                }
            }
            assert!(compared > 30, "{compared} values are above the bound");
        }
    }
}

/// A row has all its values from one model.
#[test]
fn a_fallback_has_intervals_of_its_own() {
    let shop = Shop::new();
    let train = format!("{BY_SERIES}\n      intervals: {{ levels: [80] }}");
    shop.spec_with_theta(&train, THETA_INTERVALS, "model: trees, fallback: theta");
    let call = shop.shop.forebay(&["run", "spec.yaml", "--json"]);
    let without = without_models(&call.expect(0).summary());
    let predicted = intervals(&shop.shop.rows("out/forecast"));
    let of_trees = shop.run_intervals(&train, "model: trees");
    let of_theta = shop.run_intervals(&train, "model: theta");
    let mut replaced = 0;
    for (key, values) in &predicted {
        let expected = if without.contains_key(&(key.0.clone(), key.1.clone())) {
            replaced += 1;
            of_theta[key]
        } else {
            of_trees[key]
        };
        assert_eq!(*values, expected, "{key:?}");
    }
    assert!(replaced > 3, "{replaced} rows have the fallback");
}

#[test]
fn intervals_of_other_levels_are_refused_with_both() {
    let shop = Shop::new();
    for (train, theta, words) in [
        (
            "intervals: { levels: [90] }",
            THETA_INTERVALS,
            "[0.1, 0.9] in place of [0.05, 0.95]",
        ),
        ("", THETA_INTERVALS, "[0.1, 0.9] in place of none"),
        (
            "intervals: { levels: [80] }",
            "",
            "none in place of [0.1, 0.9]",
        ),
        (
            "quantiles: [0.1, 0.5, 0.9]",
            THETA_INTERVALS,
            "[0.1, 0.9] in place of [0.1, 0.5, 0.9]",
        ),
    ] {
        let by_series = format!("{BY_SERIES}\n      {train}");
        for (train, predict) in [
            (train, "model: trees, ensemble: { with: [theta] }"),
            (by_series.as_str(), "model: trees, fallback: theta"),
        ] {
            shop.spec_with_theta(train, theta, predict);
            let call = shop.shop.forebay(&["check", "spec.yaml"]);
            assert!(
                call.code == 78 && call.stderr.contains(words),
                "{train}, {theta}, {predict}: {}",
                call.stderr
            );
        }
    }
}
