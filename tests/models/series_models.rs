//! Models of single series: their forecasts go on from the last value of each, and the backtest scores them.

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};

use crate::support::TestDirectory;

/// Monthly passengers of airlines from 1949 to 1959 (Box and Jenkins 1976, series G).
const PASSENGERS: [u32; 132] = [
    112, 118, 132, 129, 121, 135, 148, 148, 136, 119, 104, 118, 115, 126, 141, 135, 125, 149, 170,
    170, 158, 133, 114, 140, 145, 150, 178, 163, 172, 178, 199, 199, 184, 162, 146, 166, 171, 180,
    193, 181, 183, 218, 230, 242, 209, 191, 172, 194, 196, 196, 236, 235, 229, 243, 264, 272, 237,
    211, 180, 201, 204, 188, 235, 227, 234, 264, 302, 293, 259, 229, 203, 229, 242, 233, 267, 269,
    270, 315, 364, 347, 312, 274, 237, 278, 284, 277, 317, 313, 318, 374, 413, 405, 355, 306, 271,
    306, 315, 301, 356, 348, 355, 422, 465, 467, 404, 347, 305, 336, 340, 318, 362, 348, 363, 435,
    491, 505, 404, 359, 310, 337, 360, 342, 406, 396, 420, 472, 548, 559, 463, 407, 362, 405,
];

/// Forecasts of statsforecast 2.1.1 after these months: `auto_theta(passengers, 12, model="STM")`.
const EXPECTED: [f64; 3] = [411.3703, 402.2747, 462.8828];

const SPEC: &str = r#"
version: 1
name: air
sources:
  flights: { csv: { path: "flights.csv" }, time: month, keys: [line] }
steps:
  months:
    from: flights
    do:
      - future_rows: { horizon: 3mo, every: 1mo }
label: { column: passengers, horizon: 3mo }
SPLIT
sinks:
  theta: { from: months, train: { path: out/theta, model: theta, TRAIN } }
  forecast: { from: months, predict: { model: theta, path: out/forecast, season: 1y } }
"#;

/// Settings of the training where nothing else is said.
const TRAIN: &str = "by: [line], time: month, every: 1mo, season: 1y";

fn write_spec(shop: &TestDirectory, train: &str, split: &str) {
    let text = SPEC.replace("TRAIN", train).replace("SPLIT", split);
    shop.write("spec.yaml", &text);
}

/// Writes rows of a line, a month of which is counted from January 1949, and a value.
fn write_rows(shop: &TestDirectory, rows: &[(&str, usize, u32)]) {
    let mut text = "month,line,passengers\n".to_owned();
    for (line, month, value) in rows {
        let year = 1949 + month / 12;
        text += &format!("{year}-{:02}-01,{line},{value}\n", month % 12 + 1);
    }
    shop.write("flights.csv", &text);
}

/// All months of one line.
fn passengers(line: &str) -> Vec<(&str, usize, u32)> {
    let months = PASSENGERS.iter().enumerate();
    months.map(|(month, value)| (line, month, *value)).collect()
}

/// Predictions of a line, step by step.
fn predictions(rows: &RecordBatch, line: &str) -> Vec<f64> {
    numbers_of(rows, line, "prediction")
}

/// Numbers of a column in the rows of a line, step by step.
fn numbers_of(rows: &RecordBatch, line: &str, column: &str) -> Vec<f64> {
    let lines = cast(rows.column_by_name("line").unwrap(), &DataType::Utf8).unwrap();
    let values = cast(rows.column_by_name(column).unwrap(), &DataType::Float64).unwrap();
    let values = values.as_primitive::<Float64Type>();
    let mut of_line = Vec::new();
    for (row, name) in lines.as_string::<i32>().iter().enumerate() {
        if name == Some(line) {
            of_line.push(values.value(row));
        }
    }
    of_line
}

#[track_caller]
fn assert_close(values: &[f64], expected: &[f64]) {
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        assert!(
            (value - expected).abs() < 1e-5 * expected,
            "{value}, not {expected}"
        );
    }
}

/// Fails unless a run ends with this code and says these words.
#[track_caller]
fn assert_run(shop: &TestDirectory, train: &str, code: i32, words: &str) {
    write_spec(shop, train, "");
    let said = shop.forebay(&["run", "spec.yaml"]).expect(code).stderr;
    assert!(said.contains(words), "no `{words}` in {said}");
}

#[test]
fn forecasts_go_on_from_the_last_value_of_each_series() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    rows.extend([("b", 129, 3), ("b", 130, 9), ("b", 131, 7)]);
    // The order of rows does not matter.
    rows.reverse();
    write_rows(&shop, &rows);
    write_spec(&shop, TRAIN, "");
    let call = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let forecast = shop.rows("out/forecast");
    assert_close(&predictions(&forecast, "a"), &EXPECTED);
    assert_eq!(predictions(&forecast, "b"), [7.0; 3]);
    let groups = &call.summary()["models"][0]["groups"];
    assert_eq!(groups["trained"], 1);
    assert_eq!(groups["fallbacks"], 1);

    // A model is fitted to the rows that came since.
    rows.push(("a", 132, 417));
    rows.push(("b", 132, 8));
    write_rows(&shop, &rows);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let forecast = shop.rows("out/forecast");
    let renewed = predictions(&forecast, "a");
    // `auto_theta(passengers[:133], 12, model="STM")` gives 406.83 within 0.1 %.
    assert!((renewed[0] - 406.8252).abs() < 0.01, "{}", renewed[0]);
}

#[test]
fn exponential_smoothing_selects_a_form_for_each_series() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    // A line.
    rows.extend((120..132).map(|month| ("b", month, 400 - month as u32)));
    rows.extend([("c", 130, 9), ("c", 131, 7)]);
    write_rows(&shop, &rows);
    let text = spec_with_model("ets");
    shop.write("spec.yaml", &text);
    let call = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let groups = &call.summary()["models"][0]["groups"];
    assert_eq!(groups["trained"], 2);
    assert_eq!(groups["fallbacks"], 1);
    assert_eq!(groups["forms"]["M,A,M"], 1);
    let forecast = shop.rows("out/forecast");
    let of_a = predictions(&forecast, "a");
    // Of an independent program in Python, by the same likelihood.
    for (value, expected) in of_a.iter().zip([412.8876, 408.4390, 470.1121]) {
        assert!((value - expected).abs() < 0.05, "{value}, not {expected}");
    }
    for (value, expected) in predictions(&forecast, "b")
        .iter()
        .zip([268.0, 267.0, 266.0])
    {
        assert!((value - expected).abs() < 0.05, "{value}, not {expected}");
    }
    assert_eq!(predictions(&forecast, "c"), [7.0; 3]);

    // The number of threads changes no bit.
    shop.write("spec.yaml", &text.replace("out/", "single/"));
    let options = [
        "run",
        "spec.yaml",
        "--threads",
        "1",
        "--state",
        "single/state",
    ];
    shop.forebay(&options).expect(0);
    assert_eq!(predictions(&shop.rows("single/forecast"), "a"), of_a);
}

#[test]
fn a_variant_is_chosen_for_each_series() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    rows.extend([("b", 130, 9), ("b", 131, 7)]);
    write_rows(&shop, &rows);
    write_spec(&shop, &format!("{TRAIN}, variant: auto"), "");
    let call = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let groups = &call.summary()["models"][0]["groups"];
    assert_eq!(groups["forms"]["optimized"], 1);
    // Least squares, by an independent program in Python. `AutoTheta(12)` of statsforecast 2.1.1 chooses the same
    // variant, and gives 412.7119, 404.6405 and 466.8109.
    let forecast = predictions(&shop.rows("out/forecast"), "a");
    assert_close(&forecast, &[412.7415, 404.6923, 466.8966]);
    // A curve comes from its file.
    write_spec(&shop, &format!("{TRAIN}, variant: dynamic"), "");
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let forecast = predictions(&shop.rows("out/forecast"), "a");
    assert_close(&forecast, &[411.3657, 402.2737, 462.8886]);
    shop.write("spec.yaml", &spec_with_model("ets, variant: auto"));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(78).stderr;
    assert!(said.contains("choose `model: theta`"), "{said}");
}

/// A spec whose model has these settings beside those of the training.
fn spec_with_model(model: &str) -> String {
    SPEC.replace("model: theta, TRAIN", &format!("model: {model}, {TRAIN}"))
        .replace("SPLIT", "")
}

#[test]
fn an_ensemble_combines_methods() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    rows.extend([("b", 129, 3), ("b", 130, 9), ("b", 131, 7)]);
    write_rows(&shop, &rows);
    // The forecasts of `ets` are those that the test for it expects, those of `seasonal_naive` the year before.
    let of_ets = [412.8876, 408.4390, 470.1121];
    let naive = [360.0, 342.0, 406.0];
    shop.write("spec.yaml", &spec_with_model("ensemble, of: [theta, ets]"));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let forecast = predictions(&shop.rows("out/forecast"), "a");
    for (value, (of_theta, of_ets)) in forecast.iter().zip(EXPECTED.iter().zip(of_ets)) {
        let mean = (of_theta + of_ets) / 2.0;
        assert!((value - mean).abs() < 0.05, "{value}, not {mean}");
    }
    let median = "ensemble, of: [ets, theta, seasonal_naive], weights: median";
    shop.write("spec.yaml", &spec_with_model(median));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let forecast = shop.rows("out/forecast");
    assert_close(&predictions(&forecast, "a"), &EXPECTED);
    // Three months are too few for the other methods.
    assert_eq!(predictions(&forecast, "b"), [7.0; 3]);

    let learned = "ensemble, of: [ets, theta, seasonal_naive], weights: nnls, horizon: 12mo";
    shop.write("spec.yaml", &spec_with_model(learned));
    let call = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let groups = &call.summary()["models"][0]["groups"];
    let mut weights = Vec::new();
    for method in ["theta", "ets", "seasonal_naive"] {
        weights.push(groups["weights"][method].as_f64().unwrap());
    }
    // Of an independent program in Python, over the years 1957 to 1959.
    for (weight, expected) in weights.iter().zip([0.0, 0.9908, 0.0092]) {
        assert!((weight - expected).abs() < 5e-3, "{weights:?}");
    }
    let forecast = predictions(&shop.rows("out/forecast"), "a");
    let members = EXPECTED.iter().zip(of_ets).zip(naive);
    for (value, ((of_theta, of_ets), naive)) in forecast.iter().zip(members) {
        let expected = weights[0] * of_theta + weights[1] * of_ets + weights[2] * naive;
        assert!((value - expected).abs() < 0.05, "{value}, not {expected}");
    }
}

#[test]
fn intervals_are_as_wide_as_errors_of_folds() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    rows.extend((0..132).map(|month| ("flat", month, 7)));
    write_rows(&shop, &rows);
    let intervals = "theta, intervals: { levels: [50] }, horizon: 3mo, folds: 5";
    shop.write("spec.yaml", &spec_with_model(intervals));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let forecast = shop.rows("out/forecast");
    assert_close(&predictions(&forecast, "a"), &EXPECTED);
    let low = numbers_of(&forecast, "a", "prediction_q25");
    let high = numbers_of(&forecast, "a", "prediction_q75");
    for (value, (low, high)) in EXPECTED.iter().zip(low.iter().zip(&high)) {
        assert!(high > value, "{high}");
        assert!((high - value - (value - low)).abs() < 1e-2, "{low} {high}");
    }
    // A series that does not change has no errors, and does not count.
    assert_eq!(numbers_of(&forecast, "flat", "prediction_q75"), [7.0; 3]);

    for (model, words) in [
        (
            "theta, intervals: { levels: [95] }, horizon: 3mo",
            "need 19 errors",
        ),
        ("theta, intervals: { levels: [80] }", "`horizon` is missing"),
        (
            "theta, intervals: { levels: [80, 10] }, horizon: 3mo",
            "ascending order",
        ),
        (
            "theta, intervals: { levels: [80] }, horizon: 3mo, reconcile: { by: [[]] }",
            "`intervals` or `reconcile` out",
        ),
        (
            "theta, horizon: 3mo, reconcile: { by: [[], []] }",
            "the level `[]` is there twice",
        ),
    ] {
        shop.write("spec.yaml", &spec_with_model(model));
        let said = shop.forebay(&["run", "spec.yaml"]).expect(78).stderr;
        assert!(said.contains(words), "no `{words}` in {said}");
    }
}

#[test]
fn forecasts_of_levels_add_up() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    let mut sums = Vec::new();
    for (month, value) in PASSENGERS.iter().enumerate() {
        let other = 300 + month as u32 * 7 % 50;
        rows.push(("b", month, other));
        sums.push(("total", month, value + other));
    }
    write_rows(&shop, &sums);
    shop.write("spec.yaml", &spec_with_model("theta"));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let total = predictions(&shop.rows("out/forecast"), "total");

    write_rows(&shop, &rows);
    let run = |method: &str, horizon: &str, code: i32| {
        let levels = format!("reconcile: {{ by: [[]], method: {method} }}, horizon: {horizon}");
        shop.write("spec.yaml", &spec_with_model(&format!("theta, {levels}")));
        shop.forebay(&["run", "spec.yaml"]).expect(code).stderr
    };
    run("bottom_up", "3mo", 0);
    let forecast = shop.rows("out/forecast");
    let of_a = predictions(&forecast, "a");
    let of_b = predictions(&forecast, "b");
    assert_close(&of_a, &EXPECTED);
    run("ols", "3mo", 0);
    let forecast = shop.rows("out/forecast");
    let sums = of_a.iter().zip(&of_b).zip(&total);
    let reconciled = predictions(&forecast, "a");
    for (value, ((of_a, of_b), total)) in reconciled.iter().zip(sums) {
        // The difference of the total is divided evenly by the three series.
        let expected = of_a + (total - of_a - of_b) / 3.0;
        assert!((value - expected).abs() < 1e-3, "{value}, not {expected}");
    }
    run("mint_shrink", "3mo", 0);
    assert_eq!(predictions(&shop.rows("out/forecast"), "a").len(), 3);
    let said = run("ols", "2mo", 65);
    assert!(
        said.contains("2 steps ahead that were reconciled"),
        "{said}"
    );
}

#[test]
fn levels_that_are_no_groups_are_refused() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    rows.push(("b", 100, 7));
    write_rows(&shop, &rows);
    for (levels, code, words) in [
        ("{ by: [] }, horizon: 3mo", 78, "`by` has no level"),
        ("{ by: [[item]] }, horizon: 3mo", 78, "name it under `by`"),
        (
            "{ by: [[line]] }, horizon: 3mo",
            78,
            "fewer columns than `by`",
        ),
        ("{ by: [[]] }", 78, "`horizon` is missing"),
        ("{ by: [[]] }, horizon: 3mo", 65, "end at different times"),
    ] {
        let model = format!("theta, reconcile: {levels}");
        shop.write("spec.yaml", &spec_with_model(&model));
        let said = shop.forebay(&["run", "spec.yaml"]).expect(code).stderr;
        assert!(said.contains(words), "no `{words}` in {said}");
    }
}

#[test]
fn ensembles_that_combine_nothing_are_refused() {
    let shop = TestDirectory::new();
    write_rows(&shop, &passengers("a"));
    for (model, words) in [
        ("ensemble, of: [ets]", "two methods or more"),
        ("ensemble, of: [ets, ets]", "named twice"),
        ("ets, of: [ets, theta]", "choose `model: ensemble`"),
        (
            "ensemble, of: [ets, theta], weights: nnls",
            "`horizon` is missing",
        ),
        ("ensemble, of: [ets, theta], folds: 2", "`folds` are what"),
        (
            "ensemble, of: [ets, theta], weights: nnls, horizon: 10d",
            "whole steps of `every: 1mo`",
        ),
        (
            "ensemble, of: [ets, seasonal_naive], variant: auto",
            "variants of the theta method",
        ),
    ] {
        shop.write("spec.yaml", &spec_with_model(model));
        let said = shop.forebay(&["run", "spec.yaml"]).expect(78).stderr;
        assert!(said.contains(words), "no `{words}` in {said}");
    }
}

#[test]
fn columns_of_the_step_are_no_features() {
    let shop = TestDirectory::new();
    write_rows(&shop, &passengers("a"));
    let future = "      - future_rows: { horizon: 3mo, every: 1mo }\n";
    // The lag is known one month ahead, so that models with features could not take it.
    let lag = "      - lag: { columns: [passengers], by: [1mo] }\n";
    let text = SPEC
        .replace("TRAIN", TRAIN)
        .replace("SPLIT", "")
        .replace(future, &format!("{future}{lag}"));
    shop.write("spec.yaml", &text);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_close(&predictions(&shop.rows("out/forecast"), "a"), &EXPECTED);
    let dense = format!("{TRAIN}, dense: [passengers_lag_1mo]");
    assert_run(&shop, &dense, 78, "has no field `dense`");
}

#[test]
fn a_validation_part_is_compared_with_and_gone_over() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    rows.extend([("a", 132, 417), ("a", 133, 391), ("a", 134, 419)]);
    write_rows(&shop, &rows);
    let split = "split: { train: \"month < DATE '1960-01-01'\", \
                 validation: \"month >= DATE '1960-01-01'\" }";
    write_spec(&shop, TRAIN, split);
    let call = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let validation = &call.summary()["models"][0]["epochs"][0]["validation"];
    let errors = [411.3703 - 417.0, 402.2747 - 391.0, 462.8828 - 419.0_f64];
    let absolute: f64 = errors.iter().map(|error| error.abs()).sum();
    let mean = validation["mae"].as_f64().unwrap();
    assert!((mean - absolute / 3.0).abs() < 1e-3, "{mean}");
    // April to June 1960: the recursion of the model, computed with numpy, goes on over the three months.
    let forecast = predictions(&shop.rows("out/forecast"), "a");
    assert_close(&forecast, &[407.9524, 411.0441, 467.7457]);
}

#[test]
fn a_backtest_fits_each_fold() {
    let shop = TestDirectory::new();
    write_rows(&shop, &passengers("a"));
    write_spec(&shop, TRAIN, "");
    let call = shop
        .forebay(&["backtest", "spec.yaml", "--folds", "3", "--json"])
        .expect(0);
    let forecast = &call.summary()["backtest"]["forecasts"][0];
    let names: Vec<&str> = forecast["forecasters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|forecaster| forecaster["forecaster"].as_str().unwrap())
        .collect();
    assert_eq!(names[..2], ["theta", "seasonal_naive"]);
}

#[test]
fn steps_without_a_row_are_counted() {
    let shop = TestDirectory::new();
    let mut rows = passengers("a");
    rows.retain(|(_, month, _)| ![40, 41, 90].contains(month));
    write_rows(&shop, &rows);
    let words = "3 steps of 1 series have no row";
    assert_run(&shop, TRAIN, 0, words);
}

#[test]
fn series_that_cannot_be_told_are_refused() {
    let shop = TestDirectory::new();
    write_rows(&shop, &[passengers("a"), passengers("b")].concat());
    let whole = "time: month, every: 1mo";
    assert_run(&shop, whole, 78, "name all columns that tell series apart");
    let weeks = "by: [line], time: month, every: 1w";
    assert_run(
        &shop,
        weeks,
        65,
        "is no whole number of steps of `every: 1w`",
    );
    assert_run(&shop, "by: [line], every: 1mo", 78, "`time` is missing");
    assert_run(&shop, "by: [line], time: month", 78, "`every` is missing");
    let odd = "by: [line], time: month, every: 1q, season: 1mo";
    assert_run(&shop, odd, 78, "whole steps of `every: 1q`");
    let other = "by: [line], time: month, every: 1mo, rounds: 3";
    assert_run(&shop, other, 78, "rounds");
}
