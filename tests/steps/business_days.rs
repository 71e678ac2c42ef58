//! Business days, which are no unit of a length: each place that takes one refuses them, and says how to count them.

use arrow::array::AsArray;
use arrow::datatypes::DataType;

use crate::support::TestDirectory;

/// A spec with a length in each place that takes one.
const SPEC: &str = "\
version: 1
name: rates
sources:
  history: { csv: { path: history.csv }, time: day, keys: [rate], lookback: 3d }
  plans: { csv: { path: plans.csv }, time: day, keys: [rate] }
steps:
  features:
    from: history
    fit_on: train
    refit: 11d
    do:
      - future_rows: { horizon: 4d, every: 1d, active_within: 30d }
      - lag: { columns: [value], by: [5d] }
      - rolling: { columns: [value], compute: [mean], over: [6d], gap: 8d }
      - seasonal_rolling: { columns: [value], compute: [mean], season: 1w, over: [2], gap: 7d }
      - expect: [{ fresh: { day: 20000d } }]
      - as_of_join: { with: plans, on: [rate], columns: [plan], tolerance: 13d }
      - diff: { columns: [value], by: [15d], gaps: { error: { every: 48h } } }
      - pooled: { columns: [value], by: [rate], compute: [mean], over: [16d], gap: 17d }
      - ewm: { columns: [value], compute: [mean], half_life: 12d, gap: 10d }
      - calendar: { columns: [day], fourier: [{ period: 365.25d, order: 1 }] }
      - standardize: { columns: [value_lag_5d] }
  largest:
    sql: SELECT rate, day, max(value) AS top FROM history GROUP BY rate, day
    data_age: { top: 19d }
  buckets:
    from: history
    do:
      - aggregate: { by: [rate], time: day, every: 2w, compute: { total: { sum: value } } }
label: { column: value, horizon: 4d }
split: { by_time: { column: day, parts: [train, validation], ends: [last 9d], embargo: 2d } }
sinks:
  sums: { from: buckets, parquet: { path: sums } }
  largest: { from: largest, parquet: { path: largest } }
  theta:
    from: features
    train: { path: theta, model: theta, by: [rate], time: day, every: 24h, season: 14d }
  forecast: { from: features, predict: { model: theta, path: forecast, season: 21d } }
";

/// The remedy where a step counts steps of its time.
const STEPS: &str = "business days are no unit, since each calendar has its own";

/// The remedy where days of the calendar are counted.
const CIVIL: &str = "business days are no unit here, where all days count";

/// Each place with a length, as it stands in the spec, and the remedy for business days.
const PLACES: [(&str, &str); 26] = [
    ("lookback: 3d", CIVIL),
    ("refit: 11d", CIVIL),
    ("horizon: 4d, every", STEPS),
    ("every: 1d, active", STEPS),
    ("active_within: 30d", STEPS),
    ("by: [5d]", STEPS),
    ("over: [6d]", STEPS),
    ("gap: 8d", STEPS),
    ("season: 1w", STEPS),
    ("day: 20000d", STEPS),
    ("tolerance: 13d", STEPS),
    ("by: [15d]", STEPS),
    ("every: 48h", STEPS),
    ("over: [16d]", STEPS),
    ("gap: 17d", STEPS),
    ("top: 19d", STEPS),
    ("half_life: 12d", STEPS),
    ("gap: 10d", STEPS),
    ("period: 365.25d", CIVIL),
    ("every: 2w", STEPS),
    ("horizon: 4d }", STEPS),
    ("ends: [last 9d]", CIVIL),
    ("embargo: 2d", CIVIL),
    ("every: 24h", STEPS),
    ("season: 14d", STEPS),
    ("season: 21d", STEPS),
];

/// The place with `5bd` for its length.
fn with_business_days(template: &str) -> String {
    let begin = template
        .find(|letter: char| letter.is_ascii_digit())
        .unwrap();
    let end = template[begin..]
        .find([',', ']', ' '])
        .map_or(template.len(), |length| begin + length);
    format!("{}5bd{}", &template[..begin], &template[end..])
}

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    let rows: String = (1..29)
        .map(|day| format!("2024-02-{day:02},usd,{day}.5\n"))
        .collect();
    shop.write("history.csv", &format!("day,rate,value\n{rows}"));
    shop.write("plans.csv", &format!("day,rate,plan\n{rows}"));
    shop.write("spec.yaml", SPEC);
    shop
}

#[test]
fn each_place_with_a_length_says_how_business_days_are_counted() {
    let shop = shop();
    shop.forebay(&["check", "spec.yaml"]).expect(0);
    for (place, remedy) in PLACES {
        assert_eq!(SPEC.matches(place).count(), 1, "{place}");
        let changed = SPEC.replace(place, &with_business_days(place));
        shop.write("spec.yaml", &changed);
        let call = shop.forebay(&["check", "spec.yaml"]);
        let stderr = call.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            call.code == 78 && stderr.contains("5bd") && stderr.contains(remedy),
            "{place}: {stderr}"
        );
    }
}

#[test]
fn intervals_of_business_days_are_refused() {
    let shop = shop();
    let span = ["--from", "2024-02-01", "--to", "2024-02-15"];
    let call = shop.forebay(&[&["backfill", "spec.yaml", "--every", "5bd"], &span[..]].concat());
    assert_ne!(call.code, 0);
    let stderr = call.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        stderr.contains("intervals of business days would leave rows of other days out"),
        "{stderr}"
    );
}

/// A forecast of business days, whose numbers are its time.
const NUMBERED: &str = "\
version: 1
name: numbered
sources:
  history: { csv: { path: history.csv }, keys: [rate] }
steps:
  features:
    from: history
    do:
      - calendar: { columns: [day], holidays: [2024-06-03], parts: [business_day_number] }
      - rename: { day_business_day_number: number }
      - filter: number IS NOT NULL
      - future_rows: { horizon: 3t, every: 1t, time: number }
      - calendar: { columns: [number], holidays: [2024-06-03], parts: [business_day_date] }
label: { column: value, horizon: 3t }
sinks:
  theta:
    from: features
    train: { path: theta, model: theta, by: [rate], time: number, every: 1t, season: 5t }
  forecast:
    from: features
    predict: { model: theta, path: forecast, season: 5t }
  days: { from: features, split: future, parquet: { path: days } }
";

#[test]
fn numbers_of_business_days_are_a_time() {
    let shop = TestDirectory::new();
    // Rows of Saturdays and Sundays are there, too, and count for nothing.
    let rows: String = (1..32)
        .map(|day| format!("2024-05-{day:02},usd,{day}\n"))
        .collect();
    shop.write("history.csv", &format!("day,rate,value\n{rows}"));
    shop.write("spec.yaml", NUMBERED);
    shop.forebay(&["check", "spec.yaml"]).expect(0);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(shop.visible("forecast").num_rows(), 3);
    let days = shop.visible("days");
    let dates = days.column_by_name("number_business_day_date").unwrap();
    let texts = arrow::compute::cast(dates, &DataType::Utf8).unwrap();
    let texts: Vec<&str> = texts.as_string::<i32>().iter().flatten().collect();
    // 31 May 2024 is a Friday, and 3 June a holiday of this calendar.
    assert_eq!(texts, ["2024-06-04", "2024-06-05", "2024-06-06"]);
    // Folds cut off rows of the source, which has no such time.
    let call = shop.forebay(&["backtest", "spec.yaml", "--folds", "2"]);
    assert!(
        call.code == 78 && call.stderr.contains("is computed by a step"),
        "{}",
        call.stderr
    );
}
