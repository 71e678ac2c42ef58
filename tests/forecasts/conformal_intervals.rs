//! Conformal intervals: their widths are those of the formula, by model and step, and they hold the share they say.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, Float64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, UInt32Type};
use parquet::arrow::ArrowWriter;

use crate::support::{ProgramOutput, TestDirectory};

/// 2016-04-09.
const FIRST_DAY: i32 = 16_900;

/// The last day is 2016-08-06.
const DAYS: i32 = 120;

const SPEC: &str = r#"
version: 1
name: bands
sources:
  sales: { parquet: { path: "sales.parquet" }, time: date, keys: [item] }
steps:
  features:
    from: sales
    do:
      - future_rows: { horizon: 5d, every: 1d }
BEHIND      - lag: { columns: [qty], by: [LAGS] }
SPLIT
label: { column: qty, horizon: 5d }
sinks:
  trees:
    from: features
    train:
      path: out/trees
      model: gbdt
      rounds: 30
      leaves: 6
      dense: [FEATURES]
      categorical: []
      TRAIN
  forecast: { from: features, predict: { model: trees, path: out/forecast, season: 7d } }
"#;

/// Training up to 2016-06-27, and 40 days of validation.
const SPLIT: &str =
    "split: { train: \"date < DATE '2016-06-28'\", validation: \"date >= DATE '2016-06-28'\" }";

/// A spec, and its settings that differ.
struct BandSpec<'a> {
    behind: &'a str,
    lags: &'a [u32],
    /// Features that the steps behind the rows of the future add.
    features: &'a [&'a str],
    split: &'a str,
    train: &'a str,
}

impl BandSpec<'_> {
    fn direct(train: &str) -> BandSpec<'_> {
        BandSpec {
            behind: "",
            lags: &[5, 7],
            features: &[],
            split: SPLIT,
            train,
        }
    }

    fn write(&self, shop: &TestDirectory) {
        let lags: Vec<String> = self.lags.iter().map(|lag| format!("{lag}d")).collect();
        let lag_features = lags.iter().map(|lag| format!("qty_lag_{lag}"));
        let further_features = self.features.iter().map(|name| (*name).to_owned());
        let features: Vec<String> = lag_features.chain(further_features).collect();
        let behind = match self.behind {
            "" => String::new(),
            step => format!("      - {step}\n"),
        };
        let text = SPEC
            .replace("BEHIND", &behind)
            .replace("LAGS", &lags.join(", "))
            .replace("SPLIT", self.split)
            .replace("FEATURES", &features.join(", "))
            .replace("TRAIN", self.train);
        shop.write("spec.yaml", &text);
    }
}

/// A number from -1 to 1, from the next state of a generator.
fn noise(seed: &mut u64) -> f64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Writes series: `value` has an item's number, a day, the value of the day before, and a noise from -1 to 1.
fn sales(shop: &TestDirectory, items: usize, value: &dyn Fn(usize, i32, f64, f64) -> f64) {
    let mut series = Vec::new();
    for item in 0..items {
        let mut seed = item as u64 + 1;
        // Neighbouring seeds begin alike.
        for _ in 0..10 {
            noise(&mut seed);
        }
        let mut last = 0.0;
        let mut values = Vec::new();
        for day in 0..DAYS {
            last = value(item, day, last, noise(&mut seed));
            values.push(last);
        }
        series.push(values);
    }
    let mut days = Vec::new();
    let mut names = Vec::new();
    let mut quantities = Vec::new();
    for day in 0..DAYS {
        for (item, values) in series.iter().enumerate() {
            days.push(FIRST_DAY + day);
            names.push(format!("item {item}"));
            quantities.push(values[day as usize]);
        }
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("date", Arc::new(Date32Array::from(days))),
        ("item", Arc::new(StringArray::from(names))),
        ("qty", Arc::new(Float64Array::from(quantities))),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(shop.path("sales.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

/// Weeks with noise around a level.
fn weeks(item: usize, day: i32, _: f64, noise: f64) -> f64 {
    let level = 50.0 + item as f64;
    level + 3.0 * f64::from(day % 7) + 4.0 * noise
}

fn numbers(rows: &RecordBatch, name: &str) -> Vec<f64> {
    let column = rows
        .column_by_name(name)
        .unwrap_or_else(|| panic!("no `{name}` in {}", rows.schema()));
    let column = cast(column, &DataType::Float64).unwrap();
    column.as_primitive::<Float64Type>().values().to_vec()
}

fn texts(rows: &RecordBatch, name: &str) -> Vec<String> {
    let column = cast(rows.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
    let texts = column.as_string::<i32>().iter();
    texts.map(|text| text.unwrap().to_owned()).collect()
}

/// The absolute error with the rank `ceil((n + 1) * level)`: MAPIE's and Lei et al.'s (2018) split conformal width.
fn half_width(absolute_errors: &[f64], percent: usize) -> f64 {
    let mut ascending = absolute_errors.to_vec();
    ascending.sort_by(f64::total_cmp);
    let rank = ((ascending.len() + 1) * percent).div_ceil(100);
    ascending[rank - 1]
}

/// Half the width of the interval of 80 % of each series' forecast for one of the steps.
fn widths_of_series(rows: &RecordBatch) -> BTreeMap<String, f64> {
    let low = numbers(rows, "prediction_q10");
    let high = numbers(rows, "prediction_q90");
    let widths = low.iter().zip(&high).map(|(low, high)| (high - low) / 2.0);
    texts(rows, "item").into_iter().zip(widths).collect()
}

/// Runs a spec with a model for each item.
fn run_groups(shop: &TestDirectory, train: &str) -> ProgramOutput {
    let train = format!("by: [item]\n      min_rows: 50\n      {train}");
    BandSpec::direct(&train).write(shop);
    shop.forebay(&["run", "spec.yaml", "--json"]).expect(0)
}

/// Fails unless a run ends with this code and says these words.
#[track_caller]
fn assert_run(shop: &TestDirectory, spec: &BandSpec<'_>, code: i32, words: &str) {
    spec.write(shop);
    let said = shop.forebay(&["run", "spec.yaml"]).expect(code).stderr;
    assert!(said.contains(words), "no `{words}` in {said}");
}

#[test]
fn ends_lie_at_the_rank_of_split_conformal_prediction() {
    let shop = TestDirectory::new();
    sales(&shop, 10, &weeks);
    BandSpec::direct("").write(&shop);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let without = numbers(&shop.rows("out/forecast"), "prediction");

    BandSpec::direct("intervals: { levels: [80, 95] }").write(&shop);
    let call = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let metrics = &call.summary()["models"][0]["epochs"][0]["validation"];
    let forecast = shop.rows("out/forecast");
    assert_eq!(numbers(&forecast, "prediction"), without);

    let by_hand = [
        "predict",
        "out/trees",
        "--source=sales.parquet",
        "--output=by_hand",
        "--split=validation",
        "--columns=qty",
    ];
    shop.forebay(&by_hand).expect(0);
    let validated = shop.rows("by_hand");
    let point = numbers(&validated, "prediction");
    // A model takes labels as 32-bit numbers.
    let values: Vec<f64> = numbers(&validated, "qty")
        .into_iter()
        .map(|value| f64::from(value as f32))
        .collect();
    assert_eq!(values.len(), 10 * 40);
    let errors: Vec<f64> = values
        .iter()
        .zip(&point)
        .map(|(value, point)| (value - point).abs())
        .collect();
    let expected_end = |point: f64, offset: f64| f64::from((point + offset) as f32);
    for (percent, low, high) in [
        (80, "prediction_q10", "prediction_q90"),
        (95, "prediction_q2.5", "prediction_q97.5"),
    ] {
        let width = half_width(&errors, percent);
        for rows in [&validated, &forecast] {
            let ends = numbers(rows, low).into_iter().zip(numbers(rows, high));
            for (point, (low, high)) in numbers(rows, "prediction").into_iter().zip(ends) {
                assert_eq!(low, expected_end(point, -width));
                assert_eq!(high, expected_end(point, width));
            }
        }
        let inside = errors.iter().filter(|error| **error <= width).count();
        assert!(inside * 100 >= percent * errors.len(), "{inside}");
    }
    let ends = numbers(&validated, "prediction_q90");
    let losses = values.iter().zip(&ends).map(|(value, end)| {
        let error = value - end;
        (0.9 * error).max(-0.1 * error)
    });
    let pinball = losses.sum::<f64>() / values.len() as f64;
    let reported = metrics["pinball_q90"].as_f64().unwrap();
    assert!(
        (reported / pinball - 1.0).abs() < 1e-6,
        "{reported}, {pinball}"
    );

    // Threads change no bit.
    shop.forebay(&["run", "spec.yaml", "--state=slow", "--threads=1"])
        .expect(0);
    assert!(shop.rows("out/forecast") == forecast);
}

#[test]
fn forecasts_of_past_days_hold_the_share_that_intervals_say() {
    let shop = TestDirectory::new();
    sales(&shop, 40, &weeks);
    BandSpec::direct("intervals: { levels: [50, 80], by: conformal }").write(&shop);
    let call = shop.forebay(&["backtest", "spec.yaml", "--folds=3", "--json"]);
    let summary = call.expect(0).summary();
    let forecast = &summary["backtest"]["forecasts"][0];
    let model = &forecast["forecasters"][0];
    let score = &model["overall"];
    assert_eq!(score["rows"], 40 * 5 * 3);
    for (number, level) in [(0, 0.8), (1, 0.5)] {
        let interval = &score["intervals"][number];
        assert_eq!(interval["level"], level);
        let coverage = interval["coverage"].as_f64().unwrap();
        assert!((coverage - level).abs() < 0.08, "{level}: {coverage}");

        // The judgement beside the level, of all steps and of each.
        let judged = &forecast["coverage"][number];
        assert_eq!(judged["level"], level);
        assert_eq!(judged["coverage"], interval["coverage"]);
        assert_eq!(judged["holds"], (coverage - level).abs() <= 0.03 + 1e-9);
        let steps = judged["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 5);
        for (position, step) in steps.iter().enumerate() {
            let scored = &model["steps"][position];
            assert_eq!(step["step"], scored["step"]);
            assert_eq!(step["rows"], 40 * 3);
            assert_eq!(step["coverage"], scored["intervals"][number]["coverage"]);
            let of_step = step["coverage"].as_f64().unwrap();
            assert_eq!(step["holds"], (of_step - level).abs() <= 0.03 + 1e-9);
        }
    }
}

#[test]
fn intervals_widen_with_the_steps_that_have_models_of_their_own() {
    let shop = TestDirectory::new();
    // The errors of a forecast of an autoregression grow with the steps.
    sales(&shop, 40, &|_, _, last, noise| 0.9 * last + noise);
    let spec = BandSpec {
        lags: &[1, 2, 3, 4, 5],
        ..BandSpec::direct("strategy: per_step\n      intervals: { levels: [80] }")
    };
    spec.write(&shop);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = shop.rows("out/forecast");
    let low = numbers(&rows, "prediction_q10");
    let high = numbers(&rows, "prediction_q90");
    let steps = rows.column_by_name("step").unwrap();
    let steps = steps.as_primitive::<UInt32Type>().values();
    let mut widths = BTreeMap::new();
    for (row, step) in steps.iter().enumerate() {
        let width = high[row] - low[row];
        let of_step = widths.entry(*step).or_insert(width);
        assert!((*of_step - width).abs() < 1e-4, "{step}: {width}");
    }
    let widths: Vec<f64> = widths.into_values().collect();
    assert_eq!(widths.len(), 5);
    assert!(widths[1] > widths[0], "{widths:?}");
    // By the formula of an autoregression, 1.85 times as wide; the errors of the trees come on top of all steps.
    assert!(widths[4] > 1.3 * widths[0], "{widths:?}");
}

#[test]
fn groups_have_widths_of_their_own_or_those_of_all_rows() {
    let shop = TestDirectory::new();
    sales(&shop, 3, &|item, _, _, noise| {
        100.0 + 4.0_f64.powi(item as i32) * noise
    });
    let groups = run_groups(&shop, "").summary()["models"][0]["groups"].clone();
    assert_eq!(groups["trained"], 3);

    // Intervals leave trees as they are.
    let call = run_groups(&shop, "intervals: { levels: [80] }");
    let groups = call.summary()["models"][0]["groups"].clone();
    assert_eq!(groups["trained"], 0, "{groups}");
    assert_eq!(groups["reused"], 3, "{groups}");
    let own_widths = widths_of_series(&shop.rows("out/forecast"));
    // Noise is four times as large from item to item.
    assert!(
        own_widths["item 1"] > 2.5 * own_widths["item 0"],
        "{own_widths:?}"
    );
    assert!(
        own_widths["item 2"] > 2.5 * own_widths["item 1"],
        "{own_widths:?}"
    );

    // A width for 98 % needs 49 errors, and a group has 40 days of validation.
    let call = run_groups(&shop, "intervals: { levels: [80, 98] }");
    let words = "3 of 3 groups of `trees` have fewer than 49 validation rows";
    let said = format!("{}{}", call.stdout, call.stderr);
    assert!(said.contains(words), "no `{words}` in {said}");
    let shared_widths = widths_of_series(&shop.rows("out/forecast"));
    for width in shared_widths.values() {
        assert!(
            (width / shared_widths["item 0"] - 1.0).abs() < 1e-3,
            "{shared_widths:?}"
        );
    }
    assert!(shared_widths["item 0"] > own_widths["item 0"]);
}

/// Series of even numbers vary by 1 around their level, the others by 16.
fn amplitude(item: usize) -> f64 {
    if item.is_multiple_of(2) { 1.0 } else { 16.0 }
}

/// The share of values inside their intervals of 80 %, of the series with an amplitude.
fn coverage(rows: &RecordBatch, of_amplitude: f64) -> f64 {
    let values = numbers(rows, "qty");
    let low = numbers(rows, "prediction_q10");
    let high = numbers(rows, "prediction_q90");
    let mut count = 0_u32;
    let mut inside = 0_u32;
    for (row, name) in texts(rows, "item").iter().enumerate() {
        let item: usize = name.trim_start_matches("item ").parse().unwrap();
        if amplitude(item) == of_amplitude {
            count += 1;
            inside += u32::from((low[row]..=high[row]).contains(&values[row]));
        }
    }
    f64::from(inside) / f64::from(count)
}

#[test]
fn widths_follow_the_scale_of_each_row() {
    let shop = TestDirectory::new();
    sales(&shop, 40, &|item, _, _, noise| {
        100.0 + amplitude(item) * noise
    });
    let predict = [
        "predict",
        "out/trees",
        "--source=sales.parquet",
        "--output=by_hand",
        "--split=validation",
        "--columns=item,qty,qty_std_14d",
    ];
    let deviation = BandSpec {
        behind: "rolling: { columns: [qty], compute: [std], over: [14d], gap: 5d }",
        features: &["qty_std_14d"],
        ..BandSpec::direct("intervals: { levels: [80] }")
    };
    deviation.write(&shop);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    shop.forebay(&predict).expect(0);
    let one_width = shop.rows("by_hand");
    // 80 % of all values are all of the one kind and 60 % of the other.
    assert!(coverage(&one_width, 1.0) > 0.99);
    assert!(coverage(&one_width, 16.0) < 0.7);

    let spec = BandSpec {
        train: "intervals: { levels: [80], scale: qty_std_14d }",
        ..deviation
    };
    spec.write(&shop);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    shop.forebay(&predict).expect(0);
    let rows = shop.rows("by_hand");
    for amplitude in [1.0, 16.0] {
        let share = coverage(&rows, amplitude);
        assert!((share - 0.8).abs() < 0.05, "{amplitude}: {share}");
    }

    // By the formula of Lei et al. (2018, section 5.2): features are 32-bit numbers, and so are labels.
    let point = numbers(&rows, "prediction");
    let values = numbers(&rows, "qty");
    let scales: Vec<f64> = numbers(&rows, "qty_std_14d")
        .into_iter()
        .map(|scale| f64::from(scale as f32))
        .collect();
    let mut errors = Vec::new();
    for (row, scale) in scales.iter().enumerate() {
        let value = f64::from(values[row] as f32);
        errors.push((value - point[row]).abs() / scale);
    }
    let width = half_width(&errors, 80);
    let low = numbers(&rows, "prediction_q10");
    let high = numbers(&rows, "prediction_q90");
    for (row, scale) in scales.iter().enumerate() {
        assert_eq!(low[row], f64::from((point[row] - width * scale) as f32));
        assert_eq!(high[row], f64::from((point[row] + width * scale) as f32));
    }
    let forecast = widths_of_series(&shop.rows("out/forecast"));
    assert!(
        forecast["item 1"] > 5.0 * forecast["item 0"],
        "{forecast:?}"
    );

    let unlisted = BandSpec {
        features: &[],
        ..spec
    };
    assert_run(&shop, &unlisted, 78, "name it under `dense`, too");
}

#[test]
fn intervals_that_could_not_hold_are_refused() {
    let shop = TestDirectory::new();
    sales(&shop, 4, &weeks);
    for (train, words) in [
        ("intervals: { levels: [95, 80] }", "ascending order"),
        ("intervals: { levels: [] }", "ascending order"),
        ("intervals: { levels: [0.8, 100] }", "100 is no percentage"),
        (
            "intervals: { levels: [80] }\n      quantiles: [0.5]",
            "leave one of the two out",
        ),
        (
            "intervals: { levels: [80] }\n      strategy: recursive",
            "errors that grow with the steps",
        ),
        (
            "intervals: { levels: [80] }\n      loss: logistic",
            "predicts a probability",
        ),
        (
            "intervals: { levels: [80] }\n      loss: quantile\n      quantile: 0.9",
            "predicts an end of an interval",
        ),
    ] {
        assert_run(&shop, &BandSpec::direct(train), 78, words);
    }
    let train = "intervals: { levels: [95] }";
    let without_split = BandSpec {
        split: "",
        ..BandSpec::direct(train)
    };
    assert_run(
        &shop,
        &without_split,
        78,
        "`intervals` needs validation rows",
    );
    let one_day = BandSpec {
        split: "split: { train: \"date < DATE '2016-08-06'\", validation: \"date >= DATE '2016-08-06'\" }",
        ..BandSpec::direct(train)
    };
    assert_run(
        &shop,
        &one_day,
        65,
        "needs 19 validation rows for its widest level, and 4 count",
    );

    // Differences of the horizon are known for all of it; those of a day are added up.
    let summed = BandSpec {
        behind: "target: { column: qty, do: [{ difference: 1d }] }",
        ..BandSpec::direct(train)
    };
    assert_run(&shop, &summed, 78, "`target` adds up differences");
    let known_ahead = BandSpec {
        behind: "target: { column: qty, do: [{ difference: 5d }, { scale: standard }] }",
        ..BandSpec::direct(train)
    };
    assert_run(&shop, &known_ahead, 0, "");
}
