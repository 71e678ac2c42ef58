//! A server is killed, as by `kill -9`, while facts are appended: the next one has each fact that was acknowledged.
//!
//! The quick form kills a few servers, the long one a hundred:
//!
//! ```text
//! FOREBAY_KILLS=100 cargo test -p forebay --test forebay serve_kill::
//! ```

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

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

/// A running server. It is killed at the end of a test that fails.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(shop: &TestDirectory, artifact: &str) -> Server {
        let words = ["serve", artifact, "--listen=127.0.0.1:0", "--memory=256MiB"];
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
fn append_days(address: &str, first: i64) -> Option<i64> {
    let mut acknowledged = None;
    for day in first.. {
        match post(address, "/rows", &row_of(day)) {
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

#[test]
fn no_acknowledged_fact_is_lost_by_kills() {
    let kills = std::env::var("FOREBAY_KILLS").ok();
    let kills = kills.and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let shop = TestDirectory::new();
    let mut history = "day,item,qty\n".to_owned();
    for day in 0..HISTORY_DAYS {
        writeln!(history, "{},a,{day}", date_of(day)).unwrap();
    }
    shop.write("data.csv", &history);
    shop.write("spec.yaml", SPEC);
    let run = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let artifact = run.summary()["artifact_path"].as_str().unwrap().to_owned();
    let mut newest = HISTORY_DAYS - 1;
    for _ in 0..kills {
        let mut server = Server::start(&shop, &artifact);
        newest = check_facts(&server.address, newest);
        let life = Duration::from_millis(fastrand::u64(..LIFE_MILLISECONDS));
        let address = server.address.clone();
        let appending = std::thread::spawn(move || append_days(&address, newest + 1));
        std::thread::sleep(life);
        server.kill();
        newest = appending.join().unwrap().unwrap_or(newest);
    }
    let server = Server::start(&shop, &artifact);
    let newest = check_facts(&server.address, newest);
    assert!(newest >= HISTORY_DAYS, "no fact was acknowledged");
}
