//! A server is killed, as by `kill -9`, while facts are appended: the next one has each fact that was acknowledged.
//!
//! The quick form kills a few servers, the long one a hundred:
//!
//! ```text
//! FOREBAY_KILLS=100 cargo test -p forebay --test forebay serving::kills::
//! ```

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Float32Type;
use arrow::util::display::array_value_to_string;
use serde_json::{Value, json};

use crate::support::TestDirectory;

/// Servers that the quick form kills.
const KILLS: u64 = 6;

/// Longest time from the first fact of a server to its end, in milliseconds.
const LIFE_MILLISECONDS: u64 = 150;

/// Days of the history, which count from 0.
const HISTORY_DAYS: i64 = 30;

/// Time after which a server that does not answer has failed the test.
const ANSWER_MAX: Duration = Duration::from_secs(60);

const SPEC: &str = "version: 1\nname: shop\nsources:\n  sales:\n    \
     csv: { path: data.csv, columns: { day: date, item: string, qty: int64 } }\n    \
     time: day\n    keys: [item]\nsteps:\n  features:\n    from: sales\n    do:\n      \
     - lag: { columns: [qty], by: [1d] }\n      \
     - expanding: { columns: [qty], compute: [count, sum], gap: 1d }\n\
     serving: { from: features }\n\
     sinks: { table: { from: features, parquet: { path: out } } }\n";

/// A model of rows of the future, whose forecasts begin after the last fact of each series.
const FORECAST_SPEC: &str = "version: 1\nname: forecasts\nsources:\n  sales:\n    \
     csv: { path: data.csv, columns: { day: date, item: string, qty: int64 } }\n    \
     time: day\n    keys: [item]\nsteps:\n  features:\n    from: sales\n    do:\n      \
     - future_rows: { horizon: 2d, every: 1d, after: series }\n      \
     - lag: { columns: [qty], by: [1d, 2d] }\n\
     label: { column: qty, horizon: 2d }\n\
     serving: { from: features }\n\
     sinks:\n  trees: { from: features, train: { path: trees, model: gbdt, strategy: per_step, \
     rounds: 8, leaves: 4, min_leaf_rows: 2, categorical: [], dense: [qty_lag_1d, qty_lag_2d] } }\n";

/// The series of forecasts, in the order of published ones.
const ITEMS: [&str; 2] = ["a", "b"];

/// A running server. It is killed at the end of a test that fails.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(shop: &TestDirectory, path: &str) -> Server {
        let words = ["serve", path, "--listen=127.0.0.1:0", "--memory=256MiB"];
        let mut child = shop
            .command(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let (_, address) = line.trim().rsplit_once(" at ").unwrap();
        let address = address.to_owned();
        Server { child, address }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn date_of(day: i64) -> String {
    let first = jiff::civil::date(2024, 1, 1);
    first
        .checked_add(jiff::Span::new().days(day))
        .unwrap()
        .to_string()
}

/// The row of a day, whose quantity is the number of the day.
fn row_of(day: i64) -> Value {
    json!({ "rows": [{ "day": date_of(day), "item": "a", "qty": day }] })
}

/// Quantity of an item on a day.
fn quantity_of(item: &str, day: i64) -> i64 {
    let step = if item == "a" { 5 } else { 3 };
    day * step % 7
}

/// The facts of a day, one of each series.
fn facts_of(day: i64) -> Value {
    let mut rows = Vec::new();
    for item in ITEMS {
        rows.push(json!({ "day": date_of(day), "item": item, "qty": quantity_of(item, day) }));
    }
    json!({ "rows": rows })
}

/// Status and body of an answer; `None` where the server ended before the answer was whole.
fn post(address: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).ok()?))
}

/// Appends the facts of one day after the other, until the server ends. Returns the last day that was acknowledged.
fn append_days(address: &str, first: i64, facts_of_day: fn(i64) -> Value) -> Option<i64> {
    let mut acknowledged = None;
    for day in first.. {
        match post(address, "/rows", &facts_of_day(day)) {
            Some((200, _)) => acknowledged = Some(day),
            Some((status, body)) => panic!("day {day}: {status}: {body}"),
            None => break,
        }
    }
    acknowledged
}

/// Checks that a server has the facts of all days up to the last acknowledged one. Returns the last day that it has: one
/// that was not acknowledged may be there, too.
fn check_facts(address: &str, acknowledged: i64) -> i64 {
    let mut newest = acknowledged;
    let (status, answer) = post(address, "/apply", &row_of(newest + 1)).unwrap();
    let answer = if status == 200 {
        answer
    } else {
        // A row is later than the newest fact of its series.
        newest += 1;
        let (status, answer) = post(address, "/apply", &row_of(newest + 1)).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let features = &answer["rows"][0];
    let expected = [
        ("qty_lag_1d", newest),
        ("qty_expanding_count", newest + 1),
        ("qty_expanding_sum", newest * (newest + 1) / 2),
    ];
    for (name, value) in expected {
        assert_eq!(
            features[name].as_f64(),
            Some(value as f64),
            "{name}: {answer}"
        );
    }
    newest
}

/// The forecasts of all series.
fn forecasts(address: &str) -> Vec<Value> {
    let series: Vec<Value> = ITEMS.iter().map(|item| json!({ "item": item })).collect();
    let (status, answer) = post(address, "/apply", &json!({ "rows": series })).unwrap();
    assert_eq!(status, 200, "{answer}");
    answer["rows"].as_array().unwrap().clone()
}

/// Checks that forecasts begin after the last acknowledged fact, or after one that was not acknowledged, for all series
/// alike. Returns its day.
fn check_forecasts(address: &str, acknowledged: i64) -> i64 {
    let rows = forecasts(address);
    let known_until = rows[0]["known_until"].as_str().unwrap().to_owned();
    let days = [acknowledged, acknowledged + 1];
    let newest = days.into_iter().find(|day| date_of(*day) == known_until);
    let newest = newest.unwrap_or_else(|| panic!("{known_until} after {acknowledged}"));
    for row in &rows {
        // Facts of one request are there together or not at all.
        assert_eq!(row["known_until"], known_until.as_str(), "{row}");
        let days = [date_of(newest + 1), date_of(newest + 2)];
        assert_eq!(row["day"], json!(days), "{row}");
    }
    newest
}

/// Number of servers to kill.
fn kill_count() -> u64 {
    let kills = std::env::var("FOREBAY_KILLS").ok();
    kills.and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

/// Kills servers while facts are appended. Each next server has to pass the check. Returns the last acknowledged day.
fn kill_servers(
    shop: &TestDirectory,
    path: &str,
    facts_of_day: fn(i64) -> Value,
    check: fn(&str, i64) -> i64,
) -> i64 {
    let mut newest = HISTORY_DAYS - 1;
    for _ in 0..kill_count() {
        let mut server = Server::start(shop, path);
        newest = check(&server.address, newest);
        let life = Duration::from_millis(fastrand::u64(..LIFE_MILLISECONDS));
        let address = server.address.clone();
        let appending = std::thread::spawn(move || append_days(&address, newest + 1, facts_of_day));
        std::thread::sleep(life);
        server.kill();
        newest = appending.join().unwrap().unwrap_or(newest);
    }
    newest
}

#[test]
fn no_acknowledged_fact_is_lost_by_kills() {
    let shop = TestDirectory::new();
    let mut history = "day,item,qty\n".to_owned();
    for day in 0..HISTORY_DAYS {
        writeln!(history, "{},a,{day}", date_of(day)).unwrap();
    }
    shop.write("data.csv", &history);
    shop.write("spec.yaml", SPEC);
    let run = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let artifact = run.summary()["artifact_path"].as_str().unwrap().to_owned();
    let newest = kill_servers(&shop, &artifact, row_of, check_facts);
    let server = Server::start(&shop, &artifact);
    let newest = check_facts(&server.address, newest);
    assert!(newest >= HISTORY_DAYS, "no fact was acknowledged");
}

/// Rows of all series for some days.
fn sales(days: std::ops::Range<i64>) -> String {
    let mut text = "day,item,qty\n".to_owned();
    for day in days {
        for item in ITEMS {
            writeln!(text, "{},{item},{}", date_of(day), quantity_of(item, day)).unwrap();
        }
    }
    text
}

#[test]
fn forecasts_go_on_from_acknowledged_facts_after_kills() {
    let shop = TestDirectory::new();
    shop.write("data.csv", &sales(0..HISTORY_DAYS));
    shop.write("spec.yaml", FORECAST_SPEC);
    shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let newest = kill_servers(&shop, "trees", facts_of, check_forecasts);
    let server = Server::start(&shop, "trees");
    let newest = check_forecasts(&server.address, newest);
    assert!(newest >= HISTORY_DAYS, "no fact was acknowledged");
    // The forecasts are those of a program that reads all facts from a file.
    shop.write("all.csv", &sales(0..newest + 1));
    let words = [
        "predict",
        "trees",
        "--source=sales=all.csv",
        "--output=scored",
    ];
    shop.forebay(&words).expect(0);
    let scored = shop.visible("scored");
    let predictions = scored.column_by_name("prediction").unwrap();
    let predictions = predictions.as_primitive::<Float32Type>();
    let items = scored.column_by_name("item").unwrap();
    for (item, row) in ITEMS.iter().zip(forecasts(&server.address)) {
        let mut expected = Vec::new();
        for index in 0..scored.num_rows() {
            if array_value_to_string(items, index).unwrap() == *item {
                expected.push(predictions.value(index));
            }
        }
        let mut served = Vec::new();
        for value in row["prediction"].as_array().unwrap() {
            served.push(value.as_f64().unwrap() as f32);
        }
        assert_eq!(served, expected, "{item}");
    }
}
