//! Days of a zone in whole jobs: intervals, splits and rows of the future.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use forebay_model::{CalendarSpan, ColumnClock};
use parquet::arrow::ArrowWriter;
use serde_json::Value;

use crate::support::TestDirectory;

const HOUR: i64 = 3_600_000_000;

/// 2024-03-29 00:00 in Berlin; two days later, the clock goes forward.
const FIRST: i64 = 1_711_666_800_000_000;

fn write(shop: &TestDirectory, name: &str, times: impl Array + 'static) {
    let rows = times.len();
    let times: ArrayRef = Arc::new(times);
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["a"; rows]));
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values(
        (0..rows).map(|row| row as f64),
    ));
    let table = RecordBatch::try_from_iter([("t", times), ("k", keys), ("y", values)]).unwrap();
    let file = std::fs::File::create(shop.path(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, table.schema(), None).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
}

/// Six local days of hours in Berlin, from the 29th of March on: the third has 23 hours.
fn hours(shop: &TestDirectory) {
    let times = (0..6 * 24 - 1).map(|hour| FIRST + hour * HOUR);
    let times = TimestampMicrosecondArray::from_iter_values(times).with_timezone("Europe/Berlin");
    write(shop, "hours.parquet", times);
}

fn spec(source: &str, steps: &str, sink: &str, rest: &str) -> String {
    format!(
        "version: 1\nname: days\nsources:\n  s: {{ parquet: {{ path: {source} }}, time: t, keys: [k] }}\n\
         steps:\n  f: {{ from: s, do: [ {steps} ] }}\nsinks:\n  table: {{ from: f, {sink} parquet: {{ path: out }} }}\n{rest}"
    )
}

fn numbers(rows: &RecordBatch, name: &str) -> Vec<i64> {
    let column = rows.column_by_name(name).unwrap();
    let column = match column.data_type() {
        DataType::Date32 => cast(column, &DataType::Int32).unwrap(),
        _ => column.clone(),
    };
    let column = cast(&column, &DataType::Int64).unwrap();
    column.as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn intervals_are_local_days() {
    let shop = TestDirectory::new();
    hours(&shop);
    shop.write(
        "spec.yaml",
        &spec("hours.parquet", "{ derive: { x: y } }", "", ""),
    );
    for (from, to, rows) in [
        ("2024-03-31", "2024-04-01", 48..71),
        ("2024-03-31T22:00:00Z", "2024-04-01T00:00:00Z", 71..73),
    ] {
        let args = ["run", "spec.yaml", "--json", "--interval", from, to];
        shop.forebay(&args).expect(0);
        let visible_rows = numbers(&shop.visible("out"), "x");
        assert_eq!(visible_rows, rows.collect::<Vec<i64>>(), "{from} to {to}");
        shop.remove_output("out");
    }
}

#[test]
fn splits_by_date_are_those_of_local_midnight() {
    let shop = TestDirectory::new();
    hours(&shop);
    let split = "split: { by_time: { column: t, parts: [train, test], ends: [2024-04-01], embargo: 1d } }\n";
    for (part, rows) in [("train", 0..48), ("test", 71..143)] {
        let sink = format!("split: {part},");
        shop.write(
            "spec.yaml",
            &spec("hours.parquet", "{ derive: { x: y } }", &sink, split),
        );
        shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
        let visible_rows = numbers(&shop.visible("out"), "x");
        assert_eq!(visible_rows, rows.collect::<Vec<i64>>(), "{part}");
        shop.remove_output("out");
    }
}

/// The rows of the future of a series of dates.
fn future(dates: &[&str], config: &str) -> Result<Vec<String>, Value> {
    let shop = TestDirectory::new();
    let clock = ColumnClock::of(&DataType::Date32).unwrap().unwrap();
    let days = dates
        .iter()
        .map(|text| (clock.read(text).unwrap() / 86_400_000_000_000) as i32);
    write(&shop, "dates.parquet", Date32Array::from_iter_values(days));
    let step = format!("{{ future_rows: {config} }}");
    shop.write(
        "spec.yaml",
        &spec("dates.parquet", &step, "split: future,", ""),
    );
    let call = shop.forebay(&["run", "spec.yaml", "--json"]);
    if call.code != 0 {
        return Err(call.summary()["fault"].take());
    }
    let days = numbers(&shop.visible("out"), "t").into_iter();
    Ok(days
        .map(|day| {
            jiff::civil::date(1970, 1, 1)
                .saturating_add(jiff::Span::new().days(day))
                .to_string()
        })
        .collect())
}

#[test]
fn rows_of_the_future_keep_the_day_of_the_month() {
    let months = "{ horizon: 3mo, every: 1mo }";
    for (dates, config, expected) in [
        (
            vec!["2023-01-31", "2023-02-28"],
            months,
            vec!["2023-03-31", "2023-04-30", "2023-05-31"],
        ),
        (
            vec!["2023-01-28", "2023-02-28"],
            months,
            vec!["2023-03-28", "2023-04-28", "2023-05-28"],
        ),
        (
            vec!["2024-01-30", "2024-02-29"],
            months,
            vec!["2024-03-30", "2024-04-30", "2024-05-30"],
        ),
        (
            vec!["2024-08-31", "2024-11-30"],
            "{ horizon: 2q, every: 1q }",
            vec!["2025-02-28", "2025-05-31"],
        ),
        (
            vec!["2023-02-28", "2024-02-29"],
            "{ horizon: 1y, every: 1y }",
            vec!["2025-02-28"],
        ),
    ] {
        assert_eq!(future(&dates, config).unwrap(), expected, "{dates:?}");
    }
    let fault = future(&["2024-01-15", "2024-02-16"], months).unwrap_err();
    assert!(
        fault["message"]
            .as_str()
            .unwrap()
            .contains("different days of the month"),
        "{fault}"
    );
}

#[test]
fn rows_of_the_future_keep_their_local_time() {
    for (zone, first) in [
        ("America/Sao_Paulo", "2018-11-01"),
        // The clock skips the time of the second day, after which the rows go on.
        ("America/Sao_Paulo", "2018-11-03"),
        ("Asia/Beirut", "2024-03-30"),
        ("Africa/Cairo", "2024-04-25"),
        ("Asia/Pyongyang", "2018-05-03T23:30:00"),
        ("Europe/Berlin", "2024-03-30T02:30:00"),
        ("Australia/Lord_Howe", "2024-04-04"),
        ("Europe/Berlin", "2024-10-25"),
    ] {
        let shop = TestDirectory::new();
        let data_type = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
        let clock = ColumnClock::of(&data_type).unwrap().unwrap();
        let first = (clock.read(first).unwrap() / 1_000) as i64;
        let day = |count| clock.later(first, CalendarSpan::days(count)).unwrap();
        let known = TimestampMicrosecondArray::from_iter_values((0..2).map(day));
        write(&shop, "days.parquet", known.with_timezone(zone));
        let step = "{ future_rows: { horizon: 5d, every: 1d } }";
        shop.write(
            "spec.yaml",
            &spec("days.parquet", step, "split: future,", ""),
        );
        shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
        let expected: Vec<i64> = (2..7).map(day).collect();
        assert_eq!(numbers(&shop.visible("out"), "t"), expected, "{zone}");
    }
}

/// 4 November 2018 began at 01:00 in São Paulo: two days before it is the midnight of the 2nd.
#[test]
fn series_that_ended_two_days_ago_go_on_where_the_last_day_has_no_midnight() {
    let shop = TestDirectory::new();
    let zone = "America/Sao_Paulo";
    let data_type = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
    let clock = ColumnClock::of(&data_type).unwrap().unwrap();
    let rows = [
        ("a", "2018-11-03"),
        ("a", "2018-11-04"),
        ("b", "2018-11-02"),
        ("c", "2018-11-01"),
    ];
    let times = rows.map(|(_, day)| (clock.read(day).unwrap() / 1_000) as i64);
    let times = TimestampMicrosecondArray::from_iter_values(times).with_timezone(zone);
    let keys = StringArray::from_iter_values(rows.map(|(key, _)| key));
    let columns: [(&str, ArrayRef); 2] = [("t", Arc::new(times)), ("k", Arc::new(keys))];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(shop.path("days.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, table.schema(), None).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
    let step = "{ future_rows: { horizon: 1d, every: 1d, active_within: 2d } }";
    shop.write(
        "spec.yaml",
        &spec("days.parquet", step, "split: future,", ""),
    );
    shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let future = shop.visible("out");
    let keys = future.column_by_name("k").unwrap().as_string::<i32>();
    assert_eq!(keys.iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
}

/// Rows that no test of values needs, so that the columns of the sink are those of the source.
#[test]
fn local_days_in_queries() {
    let shop = TestDirectory::new();
    hours(&shop);
    let text = "version: 1\nname: days\nsources:\n  s: { parquet: { path: hours.parquet } }\nsteps:\n  f:\n    sql: |\n      \
                SELECT count(*) AS n, count(*) FILTER (WHERE t >= TIMESTAMP '2024-03-31T00:00:00Z') AS utc\n      \
                FROM s WHERE t >= DATE '2024-03-31' AND t < '2024-04-01'\n\
                sinks:\n  table: { from: f, parquet: { path: out } }\n";
    shop.write("spec.yaml", text);
    shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let rows = shop.visible("out");
    assert_eq!(
        numbers(&rows, "n"),
        Int64Array::from(vec![23]).values().to_vec()
    );
    assert_eq!(numbers(&rows, "utc"), [22]);
}

/// The first day of so many local days in Berlin is the 25th of March.
fn local_days(shop: &TestDirectory, count: i64) {
    let data_type = DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()));
    let clock = ColumnClock::of(&data_type).unwrap().unwrap();
    let day = |number| clock.later(FIRST, CalendarSpan::days(number - 4)).unwrap();
    let times = TimestampMicrosecondArray::from_iter_values((0..count).map(day));
    write(
        shop,
        "berlin.parquet",
        times.clone().with_timezone("Europe/Berlin"),
    );
    write(shop, "utc.parquet", times.with_timezone("UTC"));
}

/// 24 hours are less than a day where the clock went back within it.
#[test]
fn a_lag_of_hours_does_not_pass_a_horizon_of_a_day_where_clocks_change() {
    let shop = TestDirectory::new();
    local_days(&shop, 12);
    for (file, lag, horizon, is_known) in [
        ("berlin", "24h", "1d", false),
        ("berlin", "1d", "24h", false),
        ("berlin", "47h", "2d", false),
        ("berlin", "720h", "1mo", false),
        ("berlin", "1d", "1d", true),
        ("berlin", "7d", "1w", true),
        ("berlin", "24h", "24h", true),
        ("berlin", "48h", "1d", true),
        ("berlin", "2d", "24h", true),
        ("berlin", "1mo", "1mo", true),
        ("utc", "24h", "1d", true),
        ("utc", "1d", "24h", true),
        ("utc", "720h", "1mo", false),
        ("utc", "744h", "1mo", true),
    ] {
        let step = format!("{{ lag: {{ columns: [y], by: [{lag}] }} }}");
        let label = format!("label: {{ column: y, horizon: {horizon} }}\n");
        let source = format!("{file}.parquet");
        shop.write("spec.yaml", &spec(&source, &step, "", &label));
        let call = shop.forebay(&["check", "spec.yaml"]);
        let text = format!("{file}: {lag} with a horizon of {horizon}: {}", call.stderr);
        assert_eq!(call.code == 0, is_known, "{text}");
        assert_eq!(call.stderr.contains("FB0115"), !is_known, "{text}");
    }
}

#[test]
fn the_period_of_local_days_is_a_day() {
    let shop = TestDirectory::new();
    local_days(&shop, 12);
    let period = |file: &str| {
        let args = ["profile", file, "--time", "t", "--keys", "k", "--json"];
        let profile = shop.forebay(&args).expect(0).summary()["profile"].clone();
        let series = &profile["series"];
        (
            series["period"].as_str().unwrap().to_owned(),
            series["gaps"].as_u64().unwrap(),
            series["rows_per_period"].as_f64().unwrap(),
        )
    };
    assert_eq!(period("berlin.parquet"), ("1d".to_owned(), 0, 1.0));
    // By the clock of another zone, the days before and after the change begin at different hours.
    assert_eq!(period("utc.parquet").0, "1h");
    hours(&shop);
    assert_eq!(period("hours.parquet"), ("1h".to_owned(), 0, 1.0));
}

#[test]
fn the_period_of_months_is_a_month() {
    let shop = TestDirectory::new();
    let of_days = |days: &[&str]| -> String {
        let rows = days.iter().map(|day| format!("{day},a,1\n"));
        "t,k,y\n".to_owned() + &rows.collect::<String>()
    };
    for (name, days, period, gaps) in [
        (
            "months.csv",
            ["2024-01-31", "2024-02-29", "2024-04-30"],
            "1mo",
            1,
        ),
        (
            "quarters.csv",
            ["2024-01-01", "2024-04-01", "2024-07-01"],
            "1q",
            0,
        ),
        (
            "years.csv",
            ["2020-02-29", "2021-02-28", "2023-02-28"],
            "1y",
            1,
        ),
        (
            "weeks.csv",
            ["2024-01-01", "2024-01-08", "2024-01-22"],
            "7d",
            1,
        ),
    ] {
        shop.write(name, &of_days(&days));
        let args = ["profile", name, "--time", "t", "--keys", "k", "--json"];
        let profile = shop.forebay(&args).expect(0).summary()["profile"].clone();
        assert_eq!(profile["series"]["period"], period, "{name}");
        assert_eq!(profile["series"]["gaps"], gaps, "{name}");
        let proposal = shop.forebay(&["new", name, "--label", "y"]).expect(0);
        if period == "1mo" {
            assert!(!proposal.stdout.contains("31d"), "{}", proposal.stdout);
        }
    }
}

/// In Cairo the clock skips midnight of 26 April 2024: that day begins at one.
#[test]
fn the_period_of_days_is_a_day_where_the_clock_skips_a_midnight() {
    let shop = TestDirectory::new();
    let zone = jiff::tz::TimeZone::get("Africa/Cairo").unwrap();
    let first = jiff::civil::date(2024, 4, 23);
    let starts = (0..8).map(|day| {
        let date = first.checked_add(jiff::Span::new().days(day)).unwrap();
        zone.to_timestamp(date.at(0, 0, 0, 0))
            .unwrap()
            .as_microsecond()
    });
    let times = TimestampMicrosecondArray::from_iter_values(starts).with_timezone("Africa/Cairo");
    write(&shop, "cairo.parquet", times);
    let args = [
        "profile",
        "cairo.parquet",
        "--time",
        "t",
        "--keys",
        "k",
        "--json",
    ];
    let profile = shop.forebay(&args).expect(0).summary()["profile"].clone();
    assert_eq!(profile["series"]["period"], "1d");
    assert_eq!(profile["series"]["gaps"], 0);
}

/// A query over windows of the rows whose frames have a length, and the counts of the rows in them.
fn framed(shop: &TestDirectory, source: &str, frame: &str) -> Result<Vec<i64>, String> {
    let query = format!(
        "SELECT t, count(y) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN {frame}) AS n FROM s ORDER BY t"
    );
    let text = format!(
        "version: 1\nname: frames\nsources:\n  s: {{ parquet: {{ path: {source} }}, time: t, keys: [k] }}\n\
         steps:\n  f: {{ sql: \"{query}\" }}\nsinks:\n  table: {{ from: f, parquet: {{ path: out }} }}\n"
    );
    shop.write("spec.yaml", &text);
    let run = shop.forebay(&["run", "spec.yaml"]);
    if run.code != 0 {
        return Err(run.stderr);
    }
    let counts = numbers(&shop.visible("out"), "n");
    shop.remove_output("out");
    Ok(counts)
}

/// The query engine finds no bound in an hour that is skipped or repeated: such rows are faults, and others are counted
/// by the calendar.
#[test]
fn frames_of_queries_are_of_the_calendar_or_faults() {
    let shop = TestDirectory::new();
    hours(&shop);
    local_days(&shop, 12);
    let day = "INTERVAL '1 day' PRECEDING AND CURRENT ROW";
    for frame in [
        day,
        "INTERVAL '1' DAY PRECEDING AND INTERVAL '1 hour' PRECEDING",
        "CURRENT ROW AND INTERVAL '1 day' FOLLOWING",
        "INTERVAL '2 days 1 hour' PRECEDING AND CURRENT ROW",
    ] {
        let fault = framed(&shop, "hours.parquet", frame).unwrap_err();
        for word in ["Europe/Berlin", "skips or has twice", "in hours", "rolling"] {
            assert!(fault.contains(word), "{frame}: {fault}");
        }
    }
    let exact = framed(
        &shop,
        "hours.parquet",
        "INTERVAL '24 hours' PRECEDING AND CURRENT ROW",
    );
    let exact = exact.unwrap();
    assert!(exact[24..].iter().all(|count| *count == 25), "{exact:?}");
    // Local midnights are there once each.
    let counts = framed(&shop, "berlin.parquet", day).unwrap();
    assert_eq!(counts[0], 1);
    assert_eq!(counts[1..], [2; 11]);
    let counts = framed(
        &shop,
        "berlin.parquet",
        "CURRENT ROW AND INTERVAL '1 month' FOLLOWING",
    );
    let expected: Vec<i64> = (1..=12).rev().collect();
    assert_eq!(counts.unwrap(), expected);
}
