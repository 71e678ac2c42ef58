//! Queries on workers: the same rows as without them, whichever worker is lost.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use serde_json::Value;

use crate::support::series::{self, FileOrder};
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::runs::{WorkerProcess, certificates, events, workers_option};

/// Steps that queries read: rows of a history, of a pass over it, with windows in order of time, and with statistics.
const STEPS: &str = r#"
version: 1
name: queries
params: { out: { type: path } }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  sales:
    from: demand
    do:
      - filter: "qty > 0"
      - derive: { revenue: "qty * price" }
      - standardize: { columns: [price], suffix: _z }
      - select: [date, store_id, item_id, category, qty, price, price_z, revenue]
  stores:
    from: sales
    do:
      - aggregate: { by: [store_id], compute: { total: { sum: revenue }, rows: { count: qty } } }
  lagged:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d, 7d] }
"#;

const QUERIES: [(&str, &str); 17] = [
    (
        "grouped",
        "SELECT store_id, category, SUM(revenue) AS total, AVG(price_z) AS price, STDDEV(price) AS spread, \
         SUM(revenue) FILTER (WHERE qty > 2) AS more, COUNT(*) AS n, COUNT(DISTINCT item_id) AS items, MAX(date) AS latest FROM sales GROUP BY store_id, category",
    ),
    (
        "whole",
        "SELECT COUNT(*) AS n, SUM(revenue) AS total, MIN(item_id) AS first FROM sales",
    ),
    ("counted", "SELECT COUNT(*) AS n FROM sales"),
    (
        "joined",
        "SELECT s.item_id, s.date, s.qty, t.total, t.\"rows\" FROM sales s JOIN stores t ON s.store_id = t.store_id \
         WHERE s.qty > 3",
    ),
    (
        "outer_joined",
        "SELECT s.item_id, s.store_id, t.n FROM sales s LEFT JOIN (SELECT item_id, COUNT(*) AS n FROM sales \
         WHERE qty > 4 GROUP BY item_id) t ON s.item_id = t.item_id",
    ),
    (
        "windowed",
        "SELECT store_id, item_id, date, SUM(qty) OVER (PARTITION BY store_id, item_id ORDER BY date) AS running, \
         ROW_NUMBER() OVER (PARTITION BY store_id ORDER BY date, item_id) AS number, \
         RANK() OVER (ORDER BY qty DESC) AS place, \
         LAG(qty) OVER (PARTITION BY store_id, item_id ORDER BY date) AS before FROM sales",
    ),
    (
        // Many rows tie.
        "windowed_ties",
        "SELECT store_id, item_id, qty, ROW_NUMBER() OVER (PARTITION BY category ORDER BY qty) AS number, \
         LEAD(item_id) OVER (PARTITION BY store_id ORDER BY category) AS after, \
         FIRST_VALUE(price) OVER (PARTITION BY category ORDER BY qty ROWS 2 PRECEDING) AS earlier, \
         SUM(revenue) OVER (PARTITION BY store_id) AS whole, \
         AVG(price) OVER (PARTITION BY store_id ORDER BY qty ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS near, \
         DENSE_RANK() OVER (PARTITION BY category ORDER BY qty) AS place, COUNT(*) OVER () AS n FROM sales",
    ),
    (
        "distinct_rows",
        "SELECT DISTINCT store_id, category FROM sales",
    ),
    (
        "top",
        "SELECT item_id, SUM(revenue) AS total FROM sales GROUP BY item_id ORDER BY total DESC LIMIT 5",
    ),
    (
        "paged",
        "SELECT store_id, item_id, date FROM sales ORDER BY date DESC, item_id LIMIT 7 OFFSET 11",
    ),
    (
        "united",
        "SELECT store_id, qty FROM sales WHERE qty > 5 UNION ALL SELECT store_id, \"rows\" AS qty FROM stores \
         UNION ALL SELECT store_id, 0 AS qty FROM stores",
    ),
    (
        "united_once",
        "SELECT store_id FROM sales UNION SELECT store_id FROM stores",
    ),
    (
        "nested",
        "WITH best AS (SELECT store_id, MAX(qty) AS most FROM sales GROUP BY store_id) \
         SELECT s.item_id, s.date, b.most FROM sales s JOIN best b ON s.store_id = b.store_id AND s.qty = b.most \
         WHERE s.qty >= (SELECT AVG(qty) FROM sales)",
    ),
    (
        "among",
        "SELECT item_id, date FROM sales WHERE item_id IN (SELECT item_id FROM sales WHERE qty > 6) \
         AND store_id NOT IN (SELECT store_id FROM stores WHERE total < 100)",
    ),
    (
        "crossed",
        "SELECT a.store_id, b.store_id AS other FROM stores a CROSS JOIN stores b WHERE a.total < b.total",
    ),
    (
        "over_windows",
        "SELECT item_id, SUM(qty_lag_1d) AS lag_1, COUNT(qty_lag_7d) AS n FROM lagged GROUP BY item_id",
    ),
    ("constant", "SELECT 1 AS one, 'a' AS letter"),
];

/// A shop whose spec has all queries as steps, and a sink for each of them.
fn shop(queries: &[(&str, &str)]) -> TestDirectory {
    let shop = TestDirectory::new();
    shop.demand("history", 97);
    let steps: String = queries
        .iter()
        .map(|(name, sql)| format!("  {name}: {{ sql: {} }}\n", quoted(sql)))
        .collect();
    let sink = |name: &str| {
        format!("  {name}: {{ from: {name}, parquet: {{ path: \"${{out}}/{name}\" }} }}\n")
    };
    let sinks: String = queries.iter().map(|(name, _)| sink(name)).collect();
    shop.write("spec.yaml", &format!("{STEPS}{steps}sinks:\n{sinks}"));
    shop
}

fn quoted(sql: &str) -> String {
    format!("\"{}\"", sql.replace('"', "\\\""))
}

fn run(shop: &TestDirectory, name: &str, args: &[&str]) -> ProgramOutput {
    let out = format!("--param=out={name}");
    let state = format!("--state=state-{name}");
    let options = [
        "run",
        "spec.yaml",
        "--json",
        "--memory=256MiB",
        "--threads=2",
        &out,
        &state,
    ];
    let mut command = shop.command(&[&options[..], args].concat());
    command.env("FOREBAY_RANGE_BYTES", "4000").watched().into()
}

fn rows(shop: &TestDirectory, name: &str, queries: &[(&str, &str)]) -> Vec<RecordBatch> {
    queries
        .iter()
        .map(|(query, _)| shop.visible(&format!("{name}/{query}")))
        .collect()
}

fn on(workers: &[&WorkerProcess]) -> String {
    workers_option(workers)
}

/// How often a worker read a table of a query.
fn reads(shop: &TestDirectory, log: &str) -> usize {
    let log = std::fs::read_to_string(shop.path(log)).unwrap();
    log.lines()
        .filter(|line| line.starts_with("read spans of a query"))
        .count()
}

#[test]
fn queries_give_the_same_rows_on_any_number_of_workers() {
    let shop = shop(&QUERIES);
    run(&shop, "here", &[]).expect(0);
    let expected = rows(&shop, "here", &QUERIES);
    for ((name, _), rows) in QUERIES.iter().zip(&expected) {
        assert!(rows.num_rows() > 0, "{name} has no rows to compare");
    }
    for count in [1, 3] {
        let logs: Vec<String> = (0..count)
            .map(|worker| format!("steps-{count}-{worker}"))
            .collect();
        let start =
            |log: &String| WorkerProcess::start(&shop, &[], &[("FOREBAY_KILL_LOG", &shop.at(log))]);
        let workers: Vec<WorkerProcess> = logs.iter().map(start).collect();
        let workers = on(&workers.iter().collect::<Vec<_>>());
        let name = format!("on{count}");
        let call = run(&shop, &name, &[&workers]).expect(0);
        for ((query, _), (found, expected)) in QUERIES
            .iter()
            .zip(rows(&shop, &name, &QUERIES).iter().zip(&expected))
        {
            assert!(found == expected, "{query} on {count} workers");
        }
        // Each worker took part, and no attempt failed.
        let each: Vec<usize> = logs.iter().map(|log| reads(&shop, log)).collect();
        assert!(each.iter().all(|reads| *reads > 0), "{each:?}");
        assert_eq!(events(&call, "warning").count(), 0, "{}", call.stdout);
        // What is committed is not computed again.
        let again = run(&shop, &name, &[&workers]).expect(0);
        let passes = again.summary()["passes"].clone();
        assert!(
            passes
                .as_array()
                .unwrap()
                .iter()
                .all(|pass| pass["reused"] == true),
            "{passes}"
        );
        assert_eq!(
            logs.iter().map(|log| reads(&shop, log)).collect::<Vec<_>>(),
            each
        );
    }
}

/// `explain` shows the stages and their exchanges, for so many workers as are named.
#[test]
fn explain_shows_the_stages_of_a_query() {
    let shop = shop(&QUERIES[..4]);
    let explained = |args: &[&str]| {
        let args = [
            &["explain", "spec.yaml", "--param=out=out", "--threads=6"],
            args,
        ]
        .concat();
        shop.forebay(&args).expect(0).stdout
    };
    let alone = explained(&[]);
    assert!(
        alone.contains("workers as one distributed query") && !alone.contains("Stage 1"),
        "{alone}"
    );
    let text = explained(&["--local-workers=3"]);
    for part in [
        "DistributedExec",
        "Stage 1 ── tasks=3",
        "NetworkShuffleExec",
        "SpanScanExec: sales",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let json = explained(&["--workers=a:1,b:1", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let stages = json["passes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|pass| pass["stages"].as_str());
    let stages: Vec<&str> = stages.collect();
    assert!(
        stages.len() == 4 && stages.iter().all(|stages| stages.contains("tasks=2")),
        "{stages:?}"
    );
}

/// Workers learn the statistics of rows that a gather made, also where the coordinator alone could make them.
#[test]
fn workers_learn_from_gathered_rows() {
    for gather in [
        "sql: \"SELECT store_id, item_id, date, price FROM demand WHERE qty > 0\"",
        "do: [{ dedupe: { keys: [store_id, date] } }]",
        "do: [{ aggregate: { by: [item_id, date], compute: { price: { mean: price } } } }]",
    ] {
        let shop = TestDirectory::new();
        shop.demand("history", 97);
        let from = if gather.starts_with("do") {
            "from: demand, "
        } else {
            ""
        };
        let spec = format!(
            r#"
version: 1
name: gathered
params: {{ out: {{ type: path }} }}
sources:
  demand: {{ parquet: {{ path: history }}, time: date, keys: [store_id, item_id] }}
steps:
  gathered: {{ {from}{gather} }}
  features:
    from: gathered
    do:
      - standardize: {{ columns: [price] }}
      - bucketize: {{ columns: [price], q: 4, suffix: _bucket }}
      - vocabulary: {{ columns: [item_id] }}
sinks:
  table: {{ from: features, parquet: {{ path: "${{out}}/table" }} }}
"#
        );
        shop.write("spec.yaml", &spec);
        let here = run(&shop, "here", &[]).expect(0).summary();
        let call = run(&shop, "there", &["--local-workers=2"]).expect(0);
        assert_eq!(call.summary()["artifact"], here["artifact"], "{gather}");
        assert!(
            shop.visible("there/table") == shop.visible("here/table"),
            "{gather}: workers come to something else"
        );
        let lines = pass_lines(&call, "learn ");
        assert!(
            lines.iter().any(|line| line.contains("worker_moved")),
            "{gather}: no worker learned: {lines:?}"
        );
    }
}

/// The lines of the events of a pass, by the begin of its name.
pub(super) fn pass_lines<'c>(call: &'c ProgramOutput, name: &str) -> Vec<&'c str> {
    let begin = format!("\"label\":\"{name}");
    let lines = call
        .stdout
        .lines()
        .skip_while(|line| !(line.contains("pass_started") && line.contains(&begin)));
    lines
        .take_while(|line| !line.contains("pass_done"))
        .collect()
}

/// The rows of a query come in no order of time.
#[test]
fn workers_group_rows_of_a_query() {
    let shop = TestDirectory::new();
    shop.demand("history", 97);
    shop.write(
        "spec.yaml",
        r#"
version: 1
name: grouped
params: { out: { type: path } }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  sold: { sql: "SELECT store_id, item_id, date, qty, price FROM demand WHERE qty > 0" }
  totals:
    from: sold
    do:
      - aggregate:
          by: [store_id]
          compute: { price: { mean: price }, spread: { std: price }, first: { first: item_id }, high: { max: qty } }
sinks:
  table: { from: totals, parquet: { path: "${out}/table" } }
"#,
    );
    let here = run(&shop, "here", &[]).expect(0).summary();
    let call = run(&shop, "there", &["--local-workers=2"]).expect(0);
    assert!(shop.visible("there/table") == shop.visible("here/table"));
    let there = call.summary();
    assert_eq!(
        there["passes"][1]["rows_in"], here["passes"][1]["rows_in"],
        "{there}"
    );
    let lines = pass_lines(&call, "gather totals");
    assert!(
        lines.iter().any(|line| line.contains("worker_moved")),
        "no worker grouped: {lines:?}"
    );
    let explained = shop.forebay(&["explain", "spec.yaml", "--param=out=out", "--json"]);
    let explained: Value = serde_json::from_str(&explained.expect(0).stdout).unwrap();
    assert_eq!(explained["passes"][1]["runs_on"], "workers");
    let why = explained["passes"][1]["why"].as_str().unwrap();
    assert!(!why.contains("at once"), "{why}");
}

/// A worker knows the statistics and windows of the rows that it groups.
#[test]
fn workers_group_rows_behind_statistics_and_windows() {
    let shop = TestDirectory::new();
    shop.demand("history", 97);
    shop.write(
        "spec.yaml",
        r#"
version: 1
name: grouped
params: { out: { type: path } }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  totals:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d] }
      - standardize: { columns: [price] }
      - aggregate: { by: [store_id], compute: { price: { mean: price }, total: { sum: qty_lag_1d } } }
sinks:
  table: { from: totals, parquet: { path: "${out}/table" } }
"#,
    );
    run(&shop, "here", &[]).expect(0);
    let call = run(&shop, "there", &["--local-workers=2"]).expect(0);
    assert!(shop.visible("there/table") == shop.visible("here/table"));
    let lines = pass_lines(&call, "gather ");
    assert!(
        lines.iter().any(|line| line.contains("worker_moved")),
        "no worker grouped: {lines:?}"
    );
}

/// A query over each kind of exchange.
const LOSSES: [(&str, &str); 2] = [QUERIES[0], QUERIES[3]];

#[test]
fn a_query_starts_again_where_a_worker_is_lost() {
    let shop = shop(&LOSSES);
    run(&shop, "here", &[]).expect(0);
    let expected = rows(&shop, "here", &LOSSES);
    let calm = [
        WorkerProcess::start(&shop, &[], &[]),
        WorkerProcess::start(&shop, &[], &[]),
    ];
    for (number, (moment, how)) in [
        ("read spans of a query", "kill"),
        ("have read rows of a query", "kill"),
        ("have read rows of a query", "stop"),
        ("have read rows of a query", "panic"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut doomed = WorkerProcess::start(
            &shop,
            &[],
            &[("FOREBAY_KILL_ON", moment), ("FOREBAY_KILL_WITH", how)],
        );
        let name = format!("lost{number}");
        let call = run(
            &shop,
            &name,
            &[&on(&[&doomed, &calm[0], &calm[1]]), "--lease-seconds=2"],
        );
        if how == "panic" {
            // A panic is a fault of the query, and not of the worker.
            assert_eq!(call.expect(70).summary()["fault"]["code"], "FB0901");
            continue;
        }
        let call = call.expect(0);
        assert!(
            rows(&shop, &name, &LOSSES) == expected,
            "{moment}: other rows"
        );
        let lost: Vec<Value> = events(&call, "worker_lost").collect();
        assert!(
            lost.iter().any(|event| event["worker"] == doomed.address),
            "{moment}: {lost:?}"
        );
        assert!(
            call.stdout.contains("starts again"),
            "{moment}: {}",
            call.stdout
        );
        if how == "stop" {
            assert!(doomed.is_stopped());
            doomed.signal("-CONT");
        } else {
            assert_eq!(doomed.end(), -9);
        }
    }
}

#[test]
fn a_query_without_workers_can_go_on_later() {
    let shop = shop(&LOSSES);
    run(&shop, "here", &[]).expect(0);
    let expected = rows(&shop, "here", &LOSSES);
    let doomed = WorkerProcess::start(
        &shop,
        &[],
        &[("FOREBAY_KILL_ON", "have read rows of a query")],
    );
    let call = run(&shop, "gone", &[&on(&[&doomed]), "--grace-seconds=1"]).expect(75);
    assert_eq!(call.summary()["fault"]["code"], "FB0501");
    let calm = WorkerProcess::start(&shop, &[], &[]);
    run(&shop, "gone", &[&on(&[&calm])]).expect(0);
    assert!(rows(&shop, "gone", &LOSSES) == expected);
}

#[test]
fn a_query_that_ends_each_worker_is_given_up() {
    let shop = shop(&LOSSES[..1]);
    let poison = [("FOREBAY_KILL_ON", "have read rows of a query")];
    let doomed: Vec<WorkerProcess> = (0..6)
        .map(|_| WorkerProcess::start(&shop, &[], &poison))
        .collect();
    let workers = on(&doomed.iter().collect::<Vec<_>>());
    let call = run(&shop, "poison", &[&workers, "--grace-seconds=1"]).expect(75);
    assert_eq!(call.summary()["fault"]["code"], "FB0501", "{}", call.stdout);
}

#[test]
fn faults_of_queries_are_the_same_on_workers() {
    let workers = |shop: &TestDirectory| [0, 1].map(|_| WorkerProcess::start(shop, &[], &[]));
    for (name, sql) in [
        (
            "divided",
            "SELECT store_id, SUM(qty / (qty - qty)) AS nothing FROM sales GROUP BY store_id",
        ),
        (
            "cast",
            "SELECT store_id, MAX(CAST(item_id AS BIGINT)) AS number FROM sales GROUP BY store_id",
        ),
        (
            "overflown",
            "SELECT store_id, SUM(CAST(qty + 300 AS TINYINT)) AS small FROM sales GROUP BY store_id",
        ),
    ] {
        let shop = shop(&[(name, sql)]);
        let here = run(&shop, "here", &[]).summary()["fault"].clone();
        let workers = workers(&shop);
        let there =
            run(&shop, "there", &[&on(&[&workers[0], &workers[1]])]).summary()["fault"].clone();
        assert!(here["code"].is_string(), "{name} is no fault");
        for part in ["code", "message", "hint", "step", "pass"] {
            assert_eq!(here[part], there[part], "{name}: {part}\n{here}\n{there}");
        }
    }
    // Of rows that a worker reads, with the place.
    let shop = shop(&[(
        "copied",
        "SELECT store_id, MAX(number) AS most FROM parsed GROUP BY store_id",
    )]);
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let step = "  parsed:\n    from: demand\n    do: [ derive: { number: \"CAST(item_id AS BIGINT)\" } ]\n  copied:";
    shop.write(
        "spec.yaml",
        &spec.replace("  copied: { sql", &format!("{step} {{ sql")),
    );
    let here = run(&shop, "here", &[]).summary()["fault"].clone();
    let workers = workers(&shop);
    let there = run(&shop, "there", &[&on(&[&workers[0], &workers[1]])]).summary()["fault"].clone();
    assert!(here["file"].is_string(), "{here}");
    for part in ["code", "message", "hint", "step", "pass"] {
        assert_eq!(here[part], there[part], "{part}\n{here}\n{there}");
    }
    assert!(there["file"].is_string(), "{there}");
}

/// Rows that windows see in order of time, key by key, or sorted by a shuffle: a query reads them on workers, too.
#[test]
fn queries_read_windows_in_each_order_of_rows() {
    let shop = TestDirectory::new();
    let spec = "version: 1\nname: windows\nparams: { data: { type: path }, out: { type: path } }\n\
                sources: { demand: { parquet: { path: \"${data}\" }, time: day, keys: [store, item], duplicates: allow } }\n\
                steps:\n  features:\n    from: demand\n    do:\n      - lag: { columns: [qty], by: [1d] }\n      \
                - rolling: { columns: [units], compute: [mean], over: [7d] }\n  sums:\n    sql: \"SELECT store, \
                SUM(qty_lag_1d) AS lag, AVG(units_mean_7d) AS mean, COUNT(*) AS n FROM features GROUP BY store\"\n\
                sinks: { sums: { from: sums, parquet: { path: \"${out}/sums\" } } }\n";
    shop.write("spec.yaml", spec);
    let workers = [0, 1].map(|_| WorkerProcess::start(&shop, &[], &[]));
    let workers = on(&[&workers[0], &workers[1]]);
    let rows_of = |name: &str, data: &str, args: &[&str]| {
        let data = format!("--param=data={data}");
        run(&shop, name, &[&[data.as_str()], args].concat()).expect(0);
        shop.visible(&format!("{name}/sums"))
    };
    for (number, order) in [
        FileOrder::Time,
        FileOrder::Key,
        FileOrder::Backward,
        FileOrder::Shuffled,
    ]
    .into_iter()
    .enumerate()
    {
        let data = series::write_in_order(
            &shop,
            &format!("data{number}"),
            &series::demand(5, 60),
            order,
            7,
            37,
        );
        let here = rows_of(&format!("here{number}"), &data, &[]);
        let there = rows_of(&format!("there{number}"), &data, &[&workers]);
        assert_eq!(here, there, "files {number}");
        assert_eq!(here.num_rows(), 3);
    }
}

/// Workers prove to each other that they belong to the cluster: by certificates and by the token.
/// Texts of 200 bytes in no order, 72 MB of them.
fn texts(shop: &TestDirectory) {
    std::fs::create_dir(shop.path("texts")).unwrap();
    let mut random = 1_u64;
    for file in 0..4 {
        let mut text = || {
            let mut digits = String::new();
            while digits.len() < 200 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                digits += &format!("{random:020}");
            }
            digits
        };
        let texts: StringArray = (0..90_000).map(|_| Some(text())).collect();
        let rows = RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap();
        let out = std::fs::File::create(shop.path(&format!("texts/{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(out, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }
}

#[test]
fn a_query_that_does_not_fit_into_workers_runs_on_the_coordinator() {
    let shop = TestDirectory::new();
    texts(&shop);
    shop.write(
        "spec.yaml",
        "version: 1\nname: texts\nparams: { out: { type: path } }\nsources: { data: { parquet: { path: texts } } }\n\
         steps: { joined: { sql: \"SELECT a.text FROM data a JOIN data b ON a.text = b.text\" } }\n\
         sinks: { joined: { from: joined, parquet: { path: \"${out}/joined\" } } }\n",
    );
    let run = |name: &str, more: &[&str]| -> ProgramOutput {
        let out = format!("--param=out={name}");
        let state = format!("--state=state-{name}");
        let options = [
            "run",
            "spec.yaml",
            "--json",
            "--memory=1GiB",
            "--threads=2",
            &out,
            &state,
        ];
        shop.command(&[&options[..], more].concat())
            .env("FOREBAY_RANGE_BYTES", "4000")
            .watched()
            .into()
    };
    run("here", &[]).expect(0);
    let small = [0, 1].map(|_| WorkerProcess::start(&shop, &[], &[]));
    let call = run("there", &[&on(&[&small[0], &small[1]])]).expect(0);
    let warned = events(&call, "warning").any(|event| {
        event["message"]
            .as_str()
            .unwrap()
            .contains("memory of workers")
    });
    assert!(warned, "{}", call.stdout);
    assert!(shop.visible("there/joined") == shop.visible("here/joined"));
}

#[test]
fn workers_exchange_rows_over_proved_connections() {
    let shop = shop(&LOSSES);
    run(&shop, "here", &[]).expect(0);
    let expected = rows(&shop, "here", &LOSSES);
    let ours = certificates(&shop, "ours");
    let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
    let token = format!("--token-file={}", shop.write("token", "river\n"));
    let secrets = [&ours[..], &[&token]].concat();
    let workers = [0, 1, 2].map(|_| WorkerProcess::start(&shop, &secrets, &[]));
    let workers = on(&workers.iter().collect::<Vec<_>>());
    // Their certificates name no address.
    let call = run(
        &shop,
        "tls",
        &[&[workers.as_str(), "--tls-name=forebay"], &secrets[..]].concat(),
    )
    .expect(0);
    assert_eq!(events(&call, "warning").count(), 0, "{}", call.stdout);
    assert!(rows(&shop, "tls", &LOSSES) == expected);
}

/// A query that aborts the processes that run it is refused, and does not wait for other workers.
#[test]
fn queries_that_abort_own_workers_are_refused() {
    let queries = &QUERIES[..1];
    let shop = shop(queries);
    let options = [
        "run",
        "spec.yaml",
        "--json",
        "--memory=256MiB",
        "--threads=2",
        "--local-workers=2",
        "--grace-seconds=3600",
        "--param=out=aborted",
        "--state=state-aborted",
    ];
    let mut command = shop.command(&options);
    command
        .env("FOREBAY_RANGE_BYTES", "4000")
        .env("FOREBAY_KILL_ON", "read spans of a query")
        .env("FOREBAY_KILL_WITH", "abort");
    let call = ProgramOutput::from(command.watched()).expect(65);
    let fault = call.summary()["fault"].clone();
    assert_eq!(fault["code"], "FB0503", "{fault}");
    assert!(call.stdout.contains("signal: 6"), "{}", call.stdout);
}
