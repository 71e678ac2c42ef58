//! Rows of the future: their features are those that are computed once their days have come, and nothing else
//! changes because of them.

use std::collections::BTreeMap;

use arrow::array::{Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::Value;

use crate::support::{ProgramOutput, TestDirectory, real_data};

/// Windows of bounded and unbounded reach, by time and by rows, a join with a plan, a calendar, scalers and ids.
const STEPS: &str = r#"
      - join: { with: plan, on: [date, item_id], columns: [planned] }
      - date_parts: { columns: [date], parts: [day_of_week, month] }
      - lag: { columns: [qty], by: [7d, 14d] }
      - rolling: { columns: [qty], compute: [mean, std, max], over: [7d, 14d], gap: 7d }
      - expanding: { columns: [qty], compute: [mean], gap: 7d }
      - ewm: { columns: [qty], compute: [mean], half_life: 5d, gap: 7d }
      - derive: { known: "coalesce(qty_lag_7d, -1)" }
      - standardize: { columns: [qty_mean_7d, planned] }
      - vocabulary: { columns: [item_id], oov_buckets: 1 }
      - drop: [price, promotion, event]
"#;

/// Steps in front of the rows of the future, and steps behind a plan and a calendar: windows on both sides of the rows of
/// the future, or of a filter for learning, and one that such a filter reads alone.
const DIVIDED: [(&str, &str); 4] = [
    (
        "      - rolling: { columns: [price], compute: [mean], over: [7d] }\n",
        "      - lag: { columns: [qty], by: [7d] }
      - lag: { columns: [price_mean_7d], by: [7d] }
      - drop: [price, promotion, event, price_mean_7d]
",
    ),
    (
        "",
        "      - lag: { columns: [qty], by: [7d] }
      - filter: { sql: \"price > 0\", when: learning }
      - rolling: { columns: [qty], compute: [mean], over: [7d], gap: 7d }
      - drop: [price, promotion, event]
",
    ),
    (
        "",
        "      - lag: { columns: [price], by: [8d] }
      - lag: { columns: [qty], by: [7d] }
      - filter: { sql: \"price_lag_8d IS NOT NULL\", when: learning }
      - drop: [price, promotion, event, price_lag_8d]
",
    ),
    (
        "",
        "      - forecast_feature: { columns: [qty], horizon: 7d, every: 1d, season: 7d }
      - forecast_feature: { columns: [qty], horizon: 7d, every: 1d, refit: 14d, model: ets }
      - drop: [price, promotion, event]
",
    ),
];

/// Demand whose days come one by one, a plan of all days, and the two outputs.
struct FutureFixture {
    shop: TestDirectory,
    days: Vec<String>,
}

impl FutureFixture {
    fn new(future: &str, steps: &str) -> Self {
        let shop = TestDirectory::new();
        let days = shop.days("all");
        std::fs::create_dir(shop.path("history")).unwrap();
        let fixture = FutureFixture { shop, days };
        fixture.spec(future, steps, "");
        fixture
    }

    fn spec(&self, future: &str, steps: &str, sinks: &str) {
        let first = date_of(&self.days[20]);
        let text = format!(
            r#"
version: 1
name: future
params:
  out: {{ type: string, default: out }}
sources:
  demand: {{ parquet: {{ path: history }}, time: date, keys: [store_id, item_id] }}
  all: {{ parquet: {{ path: all }} }}
steps:
  plan:
    sql: "SELECT date, item_id, CAST(max(price) AS DOUBLE) AS planned FROM \"all\" GROUP BY date, item_id"
  features:
    from: demand
    fit_on: train
    do:
{future}{steps}
split: {{ train: "date < DATE '{first}'", later: "date >= DATE '{first}'" }}
label: {{ column: qty, horizon: 7d, known: [planned, date_month, date_day_of_week, category, department] }}
sinks:
  table: {{ from: features, parquet: {{ path: "${{out}}/table" }} }}
{sinks}
"#
        );
        self.shop.write("spec.yaml", &text);
    }

    fn show(&self, days: std::ops::Range<usize>) {
        for name in &self.days[days] {
            std::fs::copy(
                self.shop.path("all").join(name),
                self.shop.path("history").join(name),
            )
            .unwrap();
        }
    }

    fn run(&self, more: &[&str]) -> ProgramOutput {
        self.shop
            .forebay(&[&["run", "spec.yaml", "--json"], more].concat())
    }
}

fn date_of(name: &str) -> String {
    let stem = name.split('.').next().unwrap();
    stem[stem.len() - 10..].to_owned()
}

const FUTURE: &str =
    "      - future_rows: { horizon: 7d, every: 1d, carry: [category, department] }";
const AHEAD: &str =
    "  ahead: { from: features, split: future, parquet: { path: \"${out}/ahead\" } }";

/// Rows by date, store and item, each column as text that tells all bits of a number.
fn by_key(rows: &RecordBatch, keys: &[&str], skip: &str) -> BTreeMap<Vec<String>, Vec<String>> {
    let options = FormatOptions::default().with_null("null");
    let texts = |name: &str| {
        let column = rows.column_by_name(name).unwrap();
        let text = ArrayFormatter::try_new(column, &options).unwrap();
        (0..rows.num_rows())
            .map(|row| text.value(row).to_string())
            .collect::<Vec<_>>()
    };
    let schema = rows.schema();
    let names = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .filter(|name| *name != skip);
    let columns: Vec<Vec<String>> = names.map(texts).collect();
    let keys: Vec<Vec<String>> = keys.iter().map(|key| texts(key)).collect();
    let row = |columns: &[Vec<String>], row: usize| {
        columns.iter().map(|column| column[row].clone()).collect()
    };
    (0..rows.num_rows())
        .map(|at| (row(&keys, at), row(&columns, at)))
        .collect()
}

#[test]
fn features_of_the_future_are_those_of_its_days_once_they_have_come() {
    let fixture = FutureFixture::new(FUTURE, STEPS);
    fixture.spec(FUTURE, STEPS, AHEAD);
    fixture.show(0..26);
    let mut compared = 0;
    let mut before: Option<RecordBatch> = None;
    for (night, more) in [
        (26, "--threads=2"),
        (27, "--local-workers=2"),
        (33, "--threads=1"),
    ] {
        fixture.show(0..night);
        fixture.run(&[more]).expect(0);
        let table = fixture.shop.visible("out/table");
        let future_rows = fixture.shop.visible("out/ahead");
        let series = by_key(&table, &["store_id", "item_id"], "qty").len();
        assert_eq!(future_rows.num_rows(), 7 * series);
        assert_eq!(
            future_rows.column_by_name("qty").unwrap().null_count(),
            future_rows.num_rows()
        );
        if night == 33 {
            // One whole run comes to the same bits as night by night.
            fixture
                .run(&["--param=out=whole", "--state=whole-state", "--threads=3"])
                .expect(0);
            assert!(
                fixture.shop.visible("whole/ahead") == future_rows,
                "night {night}"
            );
        }
        let known = by_key(&table, &["date", "store_id", "item_id"], "qty");
        for (key, row) in before
            .iter()
            .flat_map(|future_rows| by_key(future_rows, &["date", "store_id", "item_id"], "qty"))
        {
            if let Some(come) = known.get(&key) {
                assert_eq!(*come, row, "{key:?} before night {night}");
                compared += 1;
            }
        }
        before = Some(future_rows);
    }
    assert!(compared > 7 * 50, "{compared} rows were compared");
}

#[test]
fn windows_of_the_future_are_those_of_its_history() {
    // The plan and the calendar.
    let planned: Vec<&str> = STEPS.lines().take(3).collect();
    for (front, behind) in DIVIDED {
        let future = format!("{front}{FUTURE}");
        let steps = format!("{}\n{behind}", planned.join("\n"));
        let fixture = FutureFixture::new(&future, &steps);
        fixture.spec(&future, &steps, AHEAD);
        fixture.show(0..26);
        fixture.run(&["--threads=2"]).expect(0);
        let future_rows = fixture.shop.visible("out/ahead");
        fixture.show(0..33);
        fixture.run(&["--threads=1"]).expect(0);
        let table = fixture.shop.visible("out/table");
        let come = by_key(&table, &["date", "store_id", "item_id"], "qty");
        let mut compared = 0;
        for (key, row) in by_key(&future_rows, &["date", "store_id", "item_id"], "qty") {
            if let Some(come) = come.get(&key) {
                assert_eq!(*come, row, "{key:?}: {behind}");
                compared += 1;
            }
        }
        assert!(compared > 50, "{compared} rows were compared: {behind}");
    }
}

#[test]
fn the_known_rows_know_nothing_of_rows_of_the_future() {
    let fixture = FutureFixture::new(FUTURE, STEPS);
    fixture.show(0..30);
    fixture.spec(FUTURE, STEPS, AHEAD);
    let with = fixture.run(&[]).expect(0).summary();
    let table = fixture.shop.visible("out/table");
    // What is written and learned has the same names as without the step.
    fixture.spec("", STEPS, "");
    let without = fixture.run(&["--signal-nothing-new"]).expect(99).summary();
    assert!(fixture.shop.visible("out/table") == table);
    assert!(with["outputs"][0]["rows"] == without["outputs"][0]["rows"]);
    // A new day is all that is read of the history, and no row of it is written anew.
    fixture.spec(FUTURE, STEPS, AHEAD);
    fixture.show(30..31);
    let night = fixture.run(&[]).expect(0).summary();
    let pass = |summary: &Value, rows: u64| {
        let passes = summary["passes"].as_array().unwrap().clone();
        passes
            .into_iter()
            .find(|pass| pass["work"] == "write" && pass["rows_out"] == rows)
            .unwrap()
    };
    let table = pass(&night, night["outputs"][0]["rows"].as_u64().unwrap());
    let ahead = pass(&night, night["outputs"][1]["rows"].as_u64().unwrap());
    assert!(
        table["rows_in"].as_u64().unwrap() - table["rows_kept"].as_u64().unwrap() < 5 * 60,
        "{table}"
    );
    assert_eq!(ahead["rows_in"], ahead["rows_out"], "{ahead}");
}

#[test]
fn rows_of_the_future_begin_where_an_interval_ends() {
    let fixture = FutureFixture::new(FUTURE, STEPS);
    fixture.spec(FUTURE, STEPS, AHEAD);
    // All days are there; a run of an interval sees only those before its end. The plan has no `time`: it does not end.
    fixture.show(0..40);
    for days in [[21, 27], [27, 30]] {
        let [from, to] = days.map(|day| date_of(&fixture.days[day]));
        fixture.run(&["--interval", &from, &to]).expect(0);
    }
    let ahead = fixture.shop.visible("out/ahead");
    std::fs::remove_dir_all(fixture.shop.path("history")).unwrap();
    std::fs::create_dir(fixture.shop.path("history")).unwrap();
    fixture.show(0..30);
    fixture
        .run(&["--param=out=whole", "--state=whole-state"])
        .expect(0);
    assert!(ahead.num_rows() > 0 && fixture.shop.visible("whole/ahead") == ahead);
}

#[test]
fn rows_that_are_sorted_and_united_have_a_future_too() {
    // An as-of join sorts the known rows and those of the future together, here and on workers.
    let steps = "
      - as_of_join: { with: changes, columns: [listed] }
      - lag: { columns: [qty], by: [7d] }
      - drop: [price, promotion, event]
";
    let fixture = FutureFixture::new(FUTURE, steps);
    fixture.spec(FUTURE, steps, AHEAD);
    let text = std::fs::read_to_string(fixture.shop.path("spec.yaml")).unwrap();
    let changes = "SELECT date, store_id, item_id, price AS listed FROM \\\"all\\\" WHERE EXTRACT(DAY FROM date) % 3 = 0";
    let text = text.replace(
        "  features:",
        &format!("  changes:\n    sql: \"{changes}\"\n  features:"),
    );
    let text = text
        .replace("known: [planned,", "known: [listed,")
        .replace("date_month, date_day_of_week, ", "");
    fixture.shop.write("spec.yaml", &text);
    fixture.show(0..30);
    fixture.run(&[]).expect(0);
    let ahead = by_key(
        &fixture.shop.visible("out/ahead"),
        &["date", "store_id", "item_id"],
        "qty",
    );
    fixture
        .run(&[
            "--param=out=away",
            "--state=away-state",
            "--local-workers=2",
        ])
        .expect(0);
    assert!(fixture.shop.visible("away/ahead") == fixture.shop.visible("out/ahead"));
    fixture.show(30..37);
    fixture.run(&[]).expect(0);
    let known = by_key(
        &fixture.shop.visible("out/table"),
        &["date", "store_id", "item_id"],
        "qty",
    );
    let both: Vec<_> = ahead
        .iter()
        .filter_map(|(key, row)| Some((row, known.get(key)?)))
        .collect();
    assert!(
        both.len() > 7 * 30 && both.iter().all(|(row, come)| row == come),
        "{} rows",
        both.len()
    );

    // A history in two sources.
    let shop = TestDirectory::new();
    shop.write("a.csv", "at,who,y\n1,a,1\n1,b,2\n2,a,3\n");
    shop.write("b.csv", "at,who,y\n3,b,4\n4,a,5\n");
    let source = |name: &str| {
        format!("  {name}: {{ csv: {{ path: {name}.csv }}, time: at, keys: [who] }}\n")
    };
    let text = format!(
        "version: 1\nname: united\nsources:\n{}{}steps:\n  ahead:\n    union: [a, b]\n    do:\n      \
         - future_rows: {{ horizon: 2t, every: 1t }}\n      - lag: {{ columns: [y], by: [2t, 3t] }}\n\
         sinks:\n  out: {{ from: ahead, split: future, parquet: {{ path: out }} }}\n",
        source("a"),
        source("b")
    );
    shop.write("spec.yaml", &text);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = by_key(
        &shop.visible("out"),
        &["at", "who", "y", "y_lag_2t", "y_lag_3t"],
        "",
    )
    .into_keys();
    let rows: Vec<String> = rows.map(|row| row.join(" ")).collect();
    assert_eq!(
        rows,
        [
            "5 a null null 3",
            "5 b null 4 null",
            "6 a null 5 null",
            "6 b null null 4"
        ]
    );
}

#[test]
fn series_begin_and_end_when_they_are_told_to() {
    let shop = TestDirectory::new();
    // Hours of two series with calendars of their own, one that has ended, and one row without a time.
    shop.write(
        "rows.csv",
        "at,who,what,y\n1,a,x,1\n2,a,x,2\n3,a,x,3\n1,b,z,4\n2,b,z,5\n-90,c,x,6\n,a,x,7\n",
    );
    let spec = |more: &str| {
        let text = format!(
            "version: 1\nname: ends\nsources:\n  rows: {{ csv: {{ path: rows.csv }}, time: at, keys: [who] }}\n\
             steps:\n  ahead:\n    from: rows\n    do:\n      - future_rows: {{ horizon: 4t, every: 2t, {more} }}\n\
             sinks:\n  out: {{ from: ahead, split: future, parquet: {{ path: out }} }}\n"
        );
        shop.write("spec.yaml", &text);
        let summary = shop
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(0)
            .summary();
        let rows = shop.visible("out");
        let shown = by_key(&rows, &["at", "who", "what", "y"], "").into_keys();
        (shown.map(|row| row.join(" ")).collect::<Vec<_>>(), summary)
    };
    let (rows, summary) = spec("carry: [what], active_within: 10t");
    assert_eq!(
        rows,
        ["5 a x null", "5 b z null", "7 a x null", "7 b z null"]
    );
    let counted = &summary["future"][0];
    assert_eq!(
        (&counted["series"], &counted["ended"], &counted["steps"]),
        (&2.into(), &1.into(), &2.into())
    );
    let (rows, _) = spec("carry: [what], after: series");
    let expected = [
        "-86 c x null",
        "-88 c x null",
        "4 b z null",
        "5 a x null",
        "6 b z null",
        "7 a x null",
    ];
    assert_eq!(rows, expected);
    let (rows, _) = spec("active_within: 0t");
    assert_eq!(rows, ["5 a null null", "7 a null null"]);

    let fails = |more: &str, says: &str| {
        let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
        shop.write(
            "wrong.yaml",
            &text.replace("horizon: 4t, every: 2t, active_within: 0t", more),
        );
        let call = shop.forebay(&["run", "wrong.yaml"]);
        assert!(
            call.code != 0 && call.stderr.contains(says),
            "{}",
            call.stderr
        );
    };
    fails("horizon: 5t, every: 2t", "is not a multiple of");
    fails("horizon: 4t, every: 2t, keys: [absent]", "absent");
    fails("horizon: 4, every: 2t", "number of rows");
}

#[test]
fn features_of_the_future_of_real_series() {
    let Some(data) = real_data("m4/m4_hourly.parquet") else {
        return;
    };
    let shop = TestDirectory::new();
    // Series with calendars of their own, once without their last day.
    let windows = "
      - lag: { columns: [value], by: [24h, 168h], time: timestamp, keys: [series_id] }
      - rolling: { columns: [value], compute: [mean, std, median], over: [24h, 168h], gap: 24h, time: timestamp, keys: [series_id] }";
    let text = format!(
        r#"
version: 1
name: hours
sources:
  m4: {{ parquet: {{ path: "{}" }}, time: timestamp, keys: [series_id] }}
steps:
  seen:
    sql: >-
      SELECT m4.* FROM m4 JOIN (SELECT series_id AS id, max("timestamp") AS last FROM m4 GROUP BY series_id) AS ends
      ON m4.series_id = ends.id WHERE m4."timestamp" <= ends.last - INTERVAL '24 hours'
  ahead:
    from: seen
    do:
      - future_rows: {{ horizon: 24h, every: 1h, carry: [category], after: series, time: timestamp, keys: [series_id] }}{windows}
  come:
    from: m4
    do:{windows}
sinks:
  out: {{ from: ahead, split: future, parquet: {{ path: out }} }}
  table: {{ from: come, parquet: {{ path: table }} }}
"#,
        data.join("m4/m4_hourly.parquet").display()
    );
    shop.write("spec.yaml", &text);
    shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let ahead = by_key(&shop.visible("out"), &["series_id", "timestamp"], "value");
    let come = by_key(&shop.visible("table"), &["series_id", "timestamp"], "value");
    assert_eq!(ahead.len(), 24 * 414);
    assert!(ahead.iter().all(|(key, row)| come.get(key) == Some(row)));
}

/// A row that is dated too late moves the rows of the future of all series.
#[test]
fn a_last_time_that_most_series_do_not_reach_is_named() {
    let shop = TestDirectory::new();
    let warnings_with = |last: &str, after: &str| {
        let mut rows = String::from("day,item,qty\n");
        for item in ["a", "b", "c"] {
            for day in 1..=9 {
                rows += &format!("2024-03-0{day},{item},{day}\n");
            }
        }
        shop.write("sales.csv", &format!("{rows}{last}"));
        let spec = format!(
            "version: 1\nname: late\nsources:\n  sales: {{ csv: {{ path: sales.csv }}, time: day, keys: [item] }}\n\
             steps:\n  f:\n    from: sales\n    do:\n\
             \x20     - future_rows: {{ horizon: 2d, every: 1d, after: {after} }}\n\
             sinks:\n  out: {{ from: f, split: future, parquet: {{ path: out }} }}\n"
        );
        shop.write("spec.yaml", &spec);
        let summary = shop
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(0)
            .summary();
        summary["warnings"].to_string()
    };
    let late = "2024-03-20,a,5\n";
    let warnings = warnings_with(late, "data");
    let words = "2 of 3 series end before 2024-03-20";
    assert!(warnings.contains(words), "{warnings}");
    assert!(warnings.contains("ends at 2024-03-09"), "{warnings}");
    for (last, after) in [("", "data"), (late, "series")] {
        let warnings = warnings_with(last, after);
        assert!(!warnings.contains("series end before"), "{warnings}");
    }
}

/// From the end of a short month, the end of a longer one is a month away.
#[test]
fn ends_of_months_are_one_step_apart() {
    for (days, horizon, every) in [
        (["01-31", "02-29", "03-31"], "3mo", "1mo"),
        (["01-30", "02-29", "03-30"], "3mo", "1mo"),
        (["03-31", "06-30", "09-30"], "2q", "1q"),
        (["06-30", "09-30", "12-31"], "2q", "1q"),
    ] {
        let shop = TestDirectory::new();
        let mut rows = String::from("day,item,qty\n");
        for item in ["a", "b"] {
            for day in days {
                rows += &format!("2024-{day},{item},1\n");
            }
        }
        shop.write("sales.csv", &rows);
        let spec = format!(
            "version: 1\nname: ends\nsources:\n  sales: {{ csv: {{ path: sales.csv }}, time: day, keys: [item] }}\n\
             steps:\n  f:\n    from: sales\n    do:\n\
             \x20     - future_rows: {{ horizon: {horizon}, every: {every} }}\n\
             sinks:\n  out: {{ from: f, split: future, parquet: {{ path: out }} }}\n"
        );
        shop.write("spec.yaml", &spec);
        let run = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
        let warnings = run.summary()["warnings"].to_string();
        assert!(!warnings.contains("further apart"), "{days:?}: {warnings}");
    }
}

/// Steps of days behind weekly rows lead to days that never have rows.
#[test]
fn steps_shorter_than_the_distance_of_all_rows_are_named() {
    let shop = TestDirectory::new();
    let warnings_with = |last: &str, every: &str| {
        let mut rows = String::from("day,item,qty\n");
        for item in ["a", "b"] {
            for day in ["01", "08", "15"] {
                rows += &format!("2024-03-{day},{item},{day}\n");
            }
        }
        shop.write("sales.csv", &format!("{rows}{last}"));
        let spec = format!(
            "version: 1\nname: weekly\nsources:\n  sales: {{ csv: {{ path: sales.csv }}, time: day, keys: [item] }}\n\
             steps:\n  f:\n    from: sales\n    do:\n\
             \x20     - future_rows: {{ horizon: 4w, every: {every} }}\n\
             sinks:\n  out: {{ from: f, split: future, parquet: {{ path: out }} }}\n"
        );
        shop.write("spec.yaml", &spec);
        let summary = shop
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(0)
            .summary();
        summary["warnings"].to_string()
    };
    let warnings = warnings_with("", "1d");
    let words = "the last two times of all 2 series with more than one are further apart than `every`, \
                 as 2024-03-08 and 2024-03-15 are";
    assert!(warnings.contains(words), "{warnings}");
    // Weekly steps, and a series that has rows of neighbouring days; one with a single row tells nothing.
    for (last, every) in [
        ("2024-03-15,c,1\n", "1w"),
        ("2024-03-14,c,1\n2024-03-15,c,1\n", "1d"),
    ] {
        let warnings = warnings_with(last, every);
        assert!(!warnings.contains("further apart"), "{warnings}");
    }
}
