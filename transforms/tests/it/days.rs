//! What a day is: lengths of the calendar in columns with and without zones, each against values that the rule gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::harness::*;
use arrow::array::*;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use forebay_model::{CalendarSpan, ColumnClock, TimeBucket, codes};
use forebay_plan::SqlCompiler;
use serde_json::{Value, json};

/// Times of a zone in seconds, each as it is written there.
fn times(zone: &str, texts: &[&str]) -> TimestampSecondArray {
    let data_type = DataType::Timestamp(TimeUnit::Second, Some(zone.into()));
    let clock = ColumnClock::of(&data_type).unwrap().unwrap();
    let seconds = texts
        .iter()
        .map(|text| (clock.read(text).unwrap() / 1_000_000_000) as i64);
    TimestampSecondArray::from_iter_values(seconds).with_timezone(zone)
}

fn dates(texts: &[&str]) -> Date32Array {
    let clock = ColumnClock::of(&DataType::Date32).unwrap().unwrap();
    let days = texts
        .iter()
        .map(|text| (clock.read(text).unwrap() / 86_400_000_000_000) as i32);
    Date32Array::from_iter_values(days)
}

fn numbers<const N: usize>(values: [f64; N]) -> Float64Array {
    let values = values.map(|value| (!value.is_nan()).then_some(value));
    Float64Array::from(values.to_vec())
}

const N: f64 = f64::NAN;

/// Numbers 1, 2, ... at times, and a column that a step adds.
fn check_column(step: Value, time: impl Array + Clone + 'static, name: &str, expected: ArrayRef) {
    let rows = time.len();
    let values = Float64Array::from_iter_values((1..=rows).map(|row| row as f64));
    let input = vec![col("t", time), col("y", values)];
    let mut output = input.clone();
    output.push((name.to_owned(), expected));
    check(step, input, output);
}

fn series(step: &str, config: Value) -> Value {
    let mut config = config;
    config["columns"] = json!(["y"]);
    config["time"] = json!("t");
    config["keys"] = json!([]);
    json!({ step: config })
}

#[test]
fn lags_of_months_follow_the_calendar() {
    let ends = dates(&[
        "2023-01-31",
        "2023-02-28",
        "2023-03-31",
        "2023-04-30",
        "2023-06-30",
    ]);
    let lag = |by: &str| series("lag", json!({ "by": [by] }));
    check_column(
        lag("1mo"),
        ends.clone(),
        "y_lag_1mo",
        Arc::new(numbers([N, 1.0, 2.0, 3.0, N])),
    );
    check_column(
        lag("1q"),
        ends.clone(),
        "y_lag_1q",
        Arc::new(numbers([N, N, N, 1.0, 3.0])),
    );
    let thirtieth = dates(&["2024-01-30", "2024-02-29", "2024-03-30", "2024-04-30"]);
    check_column(
        lag("1mo"),
        thirtieth,
        "y_lag_1mo",
        Arc::new(numbers([N, 1.0, 2.0, 3.0])),
    );
    let years = dates(&["2023-02-28", "2024-02-28", "2024-02-29", "2025-02-28"]);
    // The row of 28 February is there, a year before that of 2025.
    check_column(
        lag("1y"),
        years,
        "y_lag_1y",
        Arc::new(numbers([N, 1.0, 1.0, 2.0])),
    );
    // A series of days: a month before 28 February is 28 January, which is missing, and not another day.
    let days = dates(&[
        "2023-01-27",
        "2023-01-29",
        "2023-01-30",
        "2023-01-31",
        "2023-02-27",
        "2023-02-28",
    ]);
    check_column(
        lag("1mo"),
        days,
        "y_lag_1mo",
        Arc::new(numbers([N, N, N, N, 1.0, N])),
    );
}

#[test]
fn windows_of_months_hold_as_many_month_ends() {
    let ends = dates(&[
        "2023-01-31",
        "2023-02-28",
        "2023-03-31",
        "2023-04-30",
        "2023-05-31",
    ]);
    let step = series("rolling", json!({ "compute": ["sum"], "over": ["3mo"] }));
    let expected = numbers([1.0, 3.0, 6.0, 9.0, 12.0]);
    check_column(step, ends, "y_sum_3mo", Arc::new(expected));
}

#[test]
fn lags_of_days_follow_local_days() {
    // pandas: `df.y.shift(freq=DateOffset(days=1))` at the same local time.
    let berlin = times(
        "Europe/Berlin",
        &[
            "2024-03-30",
            "2024-03-31",
            "2024-04-01T00:00:00",
            "2024-04-01T01:00:00",
            "2024-04-02",
        ],
    );
    let lag = |by: &str| series("lag", json!({ "by": [by] }));
    check_column(
        lag("1d"),
        berlin.clone(),
        "y_lag_1d",
        Arc::new(numbers([N, 1.0, 2.0, N, 3.0])),
    );
    // 24 hours are another length: the 1st at 01:00 is 24 hours after midnight of the 31st.
    check_column(
        lag("24h"),
        berlin,
        "y_lag_24h",
        Arc::new(numbers([N, 1.0, N, 2.0, 3.0])),
    );
    // The 4th has no midnight.
    let sao_paulo = times(
        "America/Sao_Paulo",
        &[
            "2018-11-02",
            "2018-11-03",
            "2018-11-04",
            "2018-11-05",
            "2018-11-06",
        ],
    );
    let expected = numbers([N, 1.0, 2.0, 3.0, 4.0]);
    check_column(lag("1d"), sao_paulo, "y_lag_1d", Arc::new(expected));
    // The clock moves by half an hour.
    let lord_howe = times(
        "Australia/Lord_Howe",
        &["2024-04-06", "2024-04-07", "2024-04-08"],
    );
    check_column(
        lag("1d"),
        lord_howe,
        "y_lag_1d",
        Arc::new(numbers([N, 1.0, 2.0])),
    );
    let pooled =
        json!({ "pooled": { "columns": ["y"], "compute": ["sum"], "over": ["1d"], "time": "t" } });
    let days = times("Europe/Berlin", &["2024-10-26", "2024-10-27", "2024-10-28"]);
    check_column(
        pooled,
        days,
        "y_all_sum_1d",
        Arc::new(numbers([1.0, 2.0, 3.0])),
    );
}

#[test]
fn buckets_begin_at_local_midnight() {
    let step = |every: &str| json!({ "aggregate": { "by": [], "time": "t", "every": every, "compute": { "n": { "count": "*" } } } });
    let hours: Vec<String> = (0..48)
        .map(|hour| format!("2024-03-{}T{:02}:30:00", 30 + hour / 24, hour % 24))
        .collect();
    let hours: Vec<&str> = hours
        .iter()
        .map(String::as_str)
        .filter(|text| !text.contains("31T02"))
        .collect();
    let input = vec![col("t", times("Europe/Berlin", &hours))];
    for (every, starts, counts) in [
        ("1d", vec!["2024-03-30", "2024-03-31"], vec![24, 23]),
        ("1w", vec!["2024-03-25"], vec![47]),
        ("1mo", vec!["2024-03-01"], vec![47]),
        ("1q", vec!["2024-01-01"], vec![47]),
        ("1y", vec!["2024-01-01"], vec![47]),
    ] {
        let expected = vec![
            col("t", times("Europe/Berlin", &starts)),
            col("n", Int64Array::from(counts)),
        ];
        check(step(every), input.clone(), expected);
    }
    let input = vec![col(
        "t",
        dates(&["2024-01-31", "2024-02-01", "2024-02-29", "2024-03-01"]),
    )];
    let expected = vec![
        col("t", dates(&["2024-01-01", "2024-02-01", "2024-03-01"])),
        col("n", Int64Array::from(vec![1, 2, 1])),
    ];
    check(step("1mo"), input, expected);
}

#[test]
fn months_are_refused_where_one_length_is_needed() {
    let input = || vec![col("t", dates(&["2024-01-31"])), col("y", numbers([1.0]))];
    for step in [
        series("ewm", json!({ "compute": ["mean"], "half_life": "1mo" })),
        series("rolling", json!({ "compute": ["slope"], "over": ["3mo"] })),
    ] {
        let fault = check_fault(step, input(), codes::BAD_VALUE);
        assert!(fault.to_string().contains("differs in length"), "{fault}");
    }
    let ticks = vec![
        col("t", Int64Array::from(vec![1])),
        col("y", numbers([1.0])),
    ];
    check_fault(
        series("lag", json!({ "by": ["1mo"] })),
        ticks,
        codes::BAD_VALUE,
    );
}

/// Nanoseconds of each unit.
const UNITS: [(TimeUnit, i128); 4] = [
    (TimeUnit::Second, 1_000_000_000),
    (TimeUnit::Millisecond, 1_000_000),
    (TimeUnit::Microsecond, 1_000),
    (TimeUnit::Nanosecond, 1),
];

const DAY: i128 = 86_400_000_000_000;

/// A column of times, far and near.
fn drawn(unit: TimeUnit, zone: Option<&str>, seed: u64) -> ArrayRef {
    let tick = UNITS.iter().find(|(known, _)| *known == unit).unwrap().1;
    let mut state = seed;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        i128::from(state >> 1)
    };
    let mut ticks: Vec<i64> = vec![i64::MIN + 1, i64::MAX, 0, -1];
    // The years 1, 1677, 2262, 9999 and 10000, and times between.
    for seconds in [
        -62_135_596_800_i128,
        -9_223_372_037,
        9_223_372_036,
        253_402_300_799,
        253_402_300_800,
    ] {
        ticks.extend(i64::try_from(seconds * 1_000_000_000 / tick));
    }
    for _ in 0..8 {
        let seconds = next() % 253_402_300_799 - 62_135_596_800;
        ticks.extend(i64::try_from(
            (seconds * 1_000_000_000 + next() % 1_000_000_000) / tick,
        ));
        ticks.push(next() as i64);
    }
    ticks.sort_unstable();
    ticks.dedup();
    let column = Int64Array::from(ticks);
    arrow::compute::cast(&column, &DataType::Timestamp(unit, zone.map(Into::into))).unwrap()
}

/// Nanoseconds since 1970 of each value of a column of times or dates.
fn nanoseconds(column: &ArrayRef) -> Vec<Option<i128>> {
    let (tick, ticks) = match column.data_type() {
        DataType::Date32 => (DAY, arrow::compute::cast(column, &DataType::Int32).unwrap()),
        DataType::Timestamp(unit, _) => (
            UNITS.iter().find(|(known, _)| known == unit).unwrap().1,
            column.clone(),
        ),
        other => panic!("{other} is no time"),
    };
    let ticks = arrow::compute::cast(&ticks, &DataType::Int64).unwrap();
    let ticks = ticks.as_primitive::<arrow::datatypes::Int64Type>();
    ticks
        .iter()
        .map(|tick_count| tick_count.map(|count| i128::from(count) * tick))
        .collect()
}

/// True if a condition holds at a time, in nanoseconds since 1970.
type HoldsAt = fn(i128) -> bool;

/// Operations on times, each with the least and the most that its result may lie after its input. A zone adds a day.
#[test]
fn far_times_are_kept_or_refused() {
    let expressions = [
        ("t + INTERVAL '1 day'", DAY, DAY),
        ("t - INTERVAL '1 day'", -DAY, -DAY),
        ("t + INTERVAL '1 month'", 28 * DAY, 31 * DAY),
        ("t - INTERVAL '3 hours'", -DAY / 8, -DAY / 8),
        ("date_trunc('day', t)", -DAY, 0),
        ("date_trunc('month', t)", -31 * DAY, 0),
        ("date_bin(INTERVAL '1 day', t)", -DAY, 0),
        ("CAST(t AS DATE)", -DAY, 0),
        ("arrow_cast(t, 'Timestamp(Nanosecond, None)')", 0, 0),
        ("arrow_cast(t, 'Timestamp(Second, None)')", -DAY, DAY),
        (
            "arrow_cast(t, 'Timestamp(Microsecond, Some(\"Asia/Tokyo\"))')",
            0,
            0,
        ),
        ("coalesce(t, TIMESTAMP '2024-01-01')", 0, 0),
    ];
    let conditions: [(&str, HoldsAt); 3] = [
        ("t < TIMESTAMP '2024-01-01 00:00:00'", |from| {
            from < 1_704_067_200_000_000_000
        }),
        ("t >= DATE '1600-01-01'", |from| {
            from >= -11_676_096_000_000_000_000
        }),
        ("t < DATE '9999-01-01'", |from| {
            from < 253_370_764_800_000_000_000
        }),
    ];
    let (mut kept, mut refused, mut wrapped) = (0, 0, Vec::new());
    for (unit, tick) in UNITS {
        for zone in [
            None,
            Some("UTC"),
            Some("Europe/Berlin"),
            Some("+05:30"),
            Some("Pacific/Apia"),
        ] {
            let all = drawn(unit, zone, 7);
            let slack = if zone.is_some_and(|zone| zone != "UTC") {
                26 * DAY / 24
            } else {
                0
            };
            let schema = Schema::new(vec![Field::new("t", all.data_type().clone(), true)]);
            let sql = SqlCompiler::default();
            // Rows one by one: a fault of one says nothing of another.
            for (text, least, most) in expressions {
                let compiled = sql.expression(text, &schema).unwrap();
                for row in 0..all.len() {
                    let column = all.slice(row, 1);
                    let from = nanoseconds(&column)[0].unwrap();
                    let Ok(output) = (compiled.kernel)(&[column], 1) else {
                        refused += 1;
                        continue;
                    };
                    // A time without a zone is local to the zone that it is cast to.
                    let slack = if text.contains("Asia/Tokyo") {
                        DAY
                    } else {
                        slack
                    };
                    let near = from + least - slack - tick..=from + most + slack + tick;
                    match nanoseconds(&output[0])[0] {
                        Some(to) if near.contains(&to) => kept += 1,
                        other => wrapped
                            .push(format!("{text} of {from} ({unit:?}, {zone:?}): {other:?}")),
                    }
                }
            }
            for (text, holds) in conditions {
                // Nanoseconds do not hold the year 1600.
                let Ok(compiled) = sql.condition(text, &schema) else {
                    refused += 1;
                    continue;
                };
                for row in 0..all.len() {
                    let column = all.slice(row, 1);
                    let from = nanoseconds(&column)[0].unwrap();
                    let Ok(output) = (compiled.kernel)(&[column], 1) else {
                        refused += 1;
                        continue;
                    };
                    let output = output[0].as_boolean();
                    if output.is_valid(0) && output.value(0) == holds(from) {
                        kept += 1;
                    } else {
                        wrapped.push(format!("{text} of {from} ({unit:?}, {zone:?})"));
                    }
                }
            }
            for bucket in buckets(tick) {
                for row in 0..all.len() {
                    let column = all.slice(row, 1);
                    let from = nanoseconds(&column)[0].unwrap();
                    let Ok(output) = bucket.starts(&column) else {
                        refused += 1;
                        continue;
                    };
                    let to = nanoseconds(&output)[0].unwrap();
                    if (from - 367 * DAY..=from).contains(&to) {
                        kept += 1;
                    } else {
                        wrapped.push(format!("{bucket:?} of {from} ({unit:?}, {zone:?}): {to}"));
                    }
                }
            }
            // Series over all rows.
            for by in ["1d", "1mo", "1h", "5000y"] {
                let lag = json!({ "lag": { "columns": ["t"], "by": [by], "time": "t", "keys": [], "as_of": true } });
                match run_one(lag, &all) {
                    Err(_) => refused += 1,
                    Ok(output) => {
                        let times = nanoseconds(&all);
                        let lagged = nanoseconds(output.columns().last().unwrap());
                        let is_earlier = times.iter().zip(&lagged).all(|(time, lag)| lag < time);
                        if is_earlier {
                            kept += 1;
                        } else {
                            wrapped.push(format!("lag {by} ({unit:?}, {zone:?})"));
                        }
                    }
                }
                let window = json!({ "rolling": {
                    "columns": ["y"], "compute": ["count"], "over": [by], "time": "t", "keys": [],
                } });
                let output = run_one(window, &all).unwrap();
                let counts = output
                    .columns()
                    .last()
                    .unwrap()
                    .as_primitive::<arrow::datatypes::Int64Type>()
                    .clone();
                assert!(
                    counts
                        .values()
                        .iter()
                        .enumerate()
                        .all(|(row, count)| (1..=row as i64 + 1).contains(count))
                );
            }
        }
    }
    assert!(
        kept > 4_000 && refused > 0,
        "{kept} kept, {refused} refused"
    );
    assert!(
        wrapped.is_empty(),
        "{} wrapped, such as\n{}",
        wrapped.len(),
        wrapped[..wrapped.len().min(40)].join("\n")
    );
}

/// Buckets of days, months and hours.
fn buckets(tick: i128) -> [TimeBucket; 4] {
    let calendar = |span| TimeBucket::Calendar { span, first_day: 0 };
    [
        calendar(CalendarSpan::days(1)),
        calendar(CalendarSpan::months(1)),
        calendar(CalendarSpan::months(12)),
        TimeBucket::Even {
            length: DAY / 24 / tick,
            origin: 0,
        },
    ]
}

/// Runs a step over a column of times and a number beside it.
fn run_one(step: Value, times: &ArrayRef) -> forebay_model::Result<RecordBatch> {
    let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0; times.len()]));
    let table =
        RecordBatch::try_from_iter_with_nullable([("t", times.clone(), true), ("y", values, true)]);
    let sources = BTreeMap::from([("this", table.unwrap())]);
    run(&[("out", "this", vec![step])], &sources, usize::MAX)
}
