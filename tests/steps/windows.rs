//! Windows over series: the same bits on all three ways and for any cut; gaps; leakage.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use serde_json::Value;

use crate::support::TestDirectory;
use crate::support::series::{self, DemandRow, FileOrder};

/// Everything that has a window, and what stands before and behind windows.
pub const SPEC: &str = r#"
version: 1
name: windows
params: { data: { type: path }, out: { type: path } }
sources:
  demand: { parquet: { path: "${data}" }, time: day, keys: [store, item], duplicates: allow }
  items: { csv: { path: items.csv } }
steps:
  joined:
    from: demand
    do:
      - drop: [pad]
      - join: { with: items, on: [item], how: left, cardinality: many_to_one }
      - filter: "price < 140"
  features:
    from: joined
    do:
      - lag: { columns: [qty, units, open, day], by: [1, 7], gaps: count_rows }
      - lag: { columns: [qty, units], by: [1d, 7d] }
      - lag: { columns: [qty], by: [5d], as_of: 10d }
      - rolling:
          columns: [qty, units]
          compute:
            - mean
            - sum
            - std
            - var
            - min
            - max
            - median
            - quantile: 0.9
            - count
            - skew
            - kurtosis
            - first
            - last
            - n_unique
            - slope
            - zero_share
            - since_nonzero
          over: [7d, 28d]
          gap: 1d
      - rolling: { columns: [open], compute: [mean, sum], over: [14d], closed: both }
      - rolling: { columns: [qty], compute: [mean, std, median], over: [5, 90], min_periods: 50%, gap: 2, gaps: count_rows }
      - rolling:
          columns: [units]
          compute: [sum, std]
          over: [9]
          min_periods: 2
          closed: neither
          gaps: { complete: { every: 1d, fill: zero } }
      - expanding: { columns: [qty], compute: [mean, std, max, median, n_unique, skew], gap: 1d }
      - ewm: { columns: [qty], compute: [mean, std], span: 7, gap: 1, gaps: count_rows }
      - ewm: { columns: [qty], compute: [mean], half_life: 3d }
      - seasonal_rolling: { columns: [qty], compute: [mean, std], season: 7d, over: [4], gap: 7d }
      - seasonal_index: { columns: [qty], period: day_of_week, gap: 1d, shrink: { strength: 3 } }
      - diff: { columns: [units], by: [1], gaps: count_rows }
      - pct_change: { columns: [price], by: [1d] }
      - fill_forward: { columns: [units], suffix: _filled }
      - interpolate: { columns: [qty], suffix: _line }
      - pooled: { columns: [qty, units], compute: [mean, std, max], by: [category], over: [7d], gap: 1d }
      - pooled: { columns: [units], compute: [median, slope], over: [28d], aggregate: sum }
      - rolling: { columns: [qty_lag_1d], compute: [mean, max], over: [7d] }
      - lag: { columns: [qty_line], by: [2d] }
      - standardize: { columns: [qty_mean_7d], by: [store], suffix: _z }
      - min_max: { columns: [qty_ewm_mean_half_life3d], suffix: _scaled }
  east: { from: joined, do: [{ filter: "store < 'b'" }] }
  west: { from: joined, do: [{ filter: "store >= 'b'" }] }
  both:
    union: [east, west]
    do:
      - lag: { columns: [units], by: [1, 3d], gaps: count_rows }
      - expanding: { columns: [qty], compute: [mean, last] }
      - derive: { twice: "qty_expanding_mean * 2" }
      - rolling: { columns: [twice], compute: [std], over: [10d] }
      - interpolate: { columns: [qty] }
sinks:
  table: { from: features, parquet: { path: "${out}/table" } }
  both: { from: both, parquet: { path: "${out}/both" } }
"#;

fn rows() -> Vec<DemandRow> {
    series::demand(11, 130)
}

pub fn workshop(spec: &str) -> TestDirectory {
    let shop = TestDirectory::new();
    shop.write("items.csv", "item,category\n1,toys\n2,toys\n7,food\n");
    shop.write("spec.yaml", spec);
    shop
}

/// Runs the spec; gives the rows of its sinks by id, and what was said.
fn run(
    shop: &TestDirectory,
    data: &str,
    number: usize,
    options: &[&str],
) -> ([arrow::array::RecordBatch; 2], String) {
    let data = format!("--param=data={data}");
    let out = format!("--param=out=out{number}");
    let state = format!("--state=state{number}");
    let args = ["run", "spec.yaml", &data, &out, &state, "--json"];
    let call = shop.forebay(&[&args[..], options].concat()).expect(0);
    let table = |name: &str| series::by_id(&shop.rows(&format!("out{number}/{name}")));
    ([table("table"), table("both")], call.stdout)
}

#[test]
fn three_ways_give_the_same_bits() {
    let shop = workshop(SPEC);
    let rows = rows();
    let runs = [
        (
            FileOrder::Time,
            1,
            1_000_000,
            "1",
            "8192",
            "follow each other in time",
        ),
        (
            FileOrder::Time,
            7,
            37,
            "2",
            "1000",
            "follow each other in time",
        ),
        (
            FileOrder::Time,
            50,
            10,
            "7",
            "100",
            "follow each other in time",
        ),
        (
            FileOrder::Key,
            1,
            1_000_000,
            "2",
            "1",
            "follow each other in time",
        ),
        (
            FileOrder::Key,
            7,
            37,
            "1",
            "1000",
            "follow each other by key",
        ),
        (
            FileOrder::Key,
            50,
            1000,
            "7",
            "8192",
            "follow each other by key",
        ),
        (
            FileOrder::Shuffled,
            1,
            1_000_000,
            "1",
            "1000",
            "follow each other in time",
        ),
        (FileOrder::Shuffled, 7, 37, "7", "50", "overlap in time"),
        (
            FileOrder::Shuffled,
            50,
            1000,
            "2",
            "8192",
            "overlap in time",
        ),
        (
            FileOrder::Backward,
            7,
            1000,
            "2",
            "100",
            "follow each other in time",
        ),
    ];
    let mut known: Option<[arrow::array::RecordBatch; 2]> = None;
    for (number, (order, files, group_rows, threads, batch_rows, why)) in
        runs.into_iter().enumerate()
    {
        let data = series::write_in_order(
            &shop,
            &format!("data{number}"),
            &rows,
            order,
            files,
            group_rows,
        );
        let what =
            format!("{order:?} in {files} files, {threads} threads, {batch_rows} rows per batch");
        let args = [
            "explain",
            "spec.yaml",
            &format!("--param=data={data}"),
            "--param=out=out",
            "--format=json",
        ];
        let explained: Value = serde_json::from_str(&shop.forebay(&args).expect(0).stdout).unwrap();
        let passes = explained["passes"].as_array().unwrap().iter();
        let mut windows = passes.flat_map(|pass| pass["windows"].as_array().unwrap());
        let lag = windows
            .find(|window| window["step"] == "features.lag")
            .unwrap();
        assert_eq!(lag["why"], format!("reads spans that {why}"), "{what}");
        let options = [
            "--threads",
            threads,
            "--batch-rows",
            batch_rows,
            "--memory=256MiB",
        ];
        let (tables, said) = run(&shop, &data, number, &options);
        // A span tells nothing of the order inside it.
        let warns =
            |line: &str| line.contains("`features.lag`") && line.contains("rows come in no order");
        let fell = said.lines().any(warns);
        assert_eq!(
            fell,
            order == FileOrder::Backward || order == FileOrder::Shuffled && files == 1,
            "{what}\n{said}"
        );
        match &known {
            None => known = Some(tables),
            Some(known) => {
                for (known, found) in known.iter().zip(&tables) {
                    assert_eq!(known.schema(), found.schema(), "{what}");
                    for (field, (a, b)) in known
                        .schema()
                        .fields()
                        .iter()
                        .zip(known.columns().iter().zip(found.columns()))
                    {
                        assert!(
                            a == b,
                            "{what}: other bits in {}: {a:?} {b:?}",
                            field.name()
                        );
                    }
                }
            }
        }
        std::fs::remove_dir_all(data).unwrap();
    }
    let [table, both] = known.unwrap();
    assert_eq!(
        table.num_rows(),
        rows.iter().filter(|row| row.price < 140.0).count()
    );
    assert_eq!(both.num_rows(), table.num_rows());
}

/// A small pipeline: one window.
fn one_window_spec(step: &str, rest: &str) -> String {
    format!(
        "version: 1\nname: small\nparams: {{ data: {{ type: path }} }}\nsources:\n  demand:\n    parquet: {{ path: \
         \"${{data}}\" }}\n    time: day\n    keys: [store, item]\n    duplicates: allow\nsteps:\n  features:\n    from: demand\n    do:\n      \
         - drop: [pad]\n      - {step}\n{rest}sinks:\n  table: {{ from: features, parquet: {{ path: out }} }}\n"
    )
}

#[test]
fn windows_beyond_memory_are_sorted() {
    // As many series as rows: what windows remember of them is more than the least memory allows.
    let rows: Vec<DemandRow> = (0..200_000)
        .map(|id| DemandRow {
            id,
            day: 16_000 + (id / 100_000) as i32,
            store: "a",
            item: Some(id),
            qty: Some(id as f64),
            units: None,
            open: None,
            price: 1.0,
        })
        .collect();
    let step = "rolling: { columns: [id, qty], compute: [mean, median, slope], over: [5, 28d], gaps: count_rows }";
    let shop = workshop(&one_window_spec(step, ""));
    let data = series::write_in_order(&shop, "data", &rows, FileOrder::Time, 4, 1_000_000);
    let mut known = None;
    for (memory, state, sorted) in [
        ("--memory=2GiB", "--state=a", false),
        ("--memory=80MiB", "--state=b", true),
    ] {
        let args = [
            "run",
            "spec.yaml",
            &format!("--param=data={data}"),
            memory,
            "--json",
            state,
            "--threads=2",
        ];
        let said = shop.forebay(&args).expect(0).stdout;
        assert_eq!(
            said.contains("so one thread goes on with all of it"),
            sorted,
            "{said}"
        );
        assert_eq!(
            said.contains("series outgrow the memory, so they are sorted first"),
            sorted,
            "{said}"
        );
        let table = shop.rows("out");
        // Or else the next run would keep what is there.
        shop.remove_output("out");
        assert!(
            *known.get_or_insert_with(|| table.clone()) == table,
            "other bits with {memory}"
        );
    }
}

#[test]
fn series_that_have_ended_need_no_sort() {
    // Each day 4,000 series begin, and each has two rows: awake they would be more than memory allows.
    let day =
        |day: i64| (4000 * (day - 1).max(0)..4000 * (day + 1)).map(move |item| (day as i32, item));
    let row = |((day, item), id): ((i32, i64), i64)| DemandRow {
        id,
        day: 16_000 + day,
        store: "a",
        item: Some(item),
        qty: Some((item % 9) as f64),
        units: None,
        open: None,
        price: 1.0,
    };
    let rows: Vec<DemandRow> = (0..25).flat_map(day).zip(0..).map(row).collect();
    let step = "expanding: { columns: [qty], compute: [mean, std, median, skew, slope], gap: 1d }\n      \
                - rolling: { columns: [qty], compute: [mean], over: [5, 28], gaps: count_rows }\n      \
                - seasonal_index: { columns: [qty], period: day_of_week, gap: 1d }";
    let shop = workshop(&one_window_spec(step, ""));
    let data = series::write_in_order(&shop, "data", &rows, FileOrder::Time, 25, 1_000_000);
    let mut known = None;
    for (memory, state) in [
        ("--memory=2GiB", "--state=a"),
        ("--memory=64MiB", "--state=b"),
    ] {
        let args = [
            "run",
            "spec.yaml",
            &format!("--param=data={data}"),
            memory,
            "--json",
            state,
            "--threads=2",
        ];
        let said = shop.forebay(&args).expect(0).stdout;
        assert!(!said.contains("outgrow"), "{said}");
        let table = shop.rows("out");
        shop.remove_output("out");
        assert!(
            *known.get_or_insert_with(|| table.clone()) == table,
            "other bits with {memory}"
        );
    }
}

/// Two series of days: one whole, one that lacks the third and fourth day.
fn with_gap(shop: &TestDirectory) -> String {
    let days = [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("b", 0),
        ("b", 1),
        ("b", 4),
    ];
    let each = days.iter().zip(0..).map(|((store, day), id)| DemandRow {
        id,
        day: 16_000 + day,
        store,
        item: Some(1),
        qty: Some(f64::from(day + 1)),
        units: None,
        open: None,
        price: 1.0,
    });
    series::write_in_order(
        shop,
        "data",
        &each.collect::<Vec<_>>(),
        FileOrder::Time,
        1,
        4,
    )
}

#[test]
fn gaps_are_what_the_spec_says() {
    let values = |gaps: &str, expected: [Option<f64>; 7]| {
        let shop = workshop(&one_window_spec(
            &format!("lag: {{ columns: [qty], by: [2], gaps: {gaps} }}"),
            "",
        ));
        let data = with_gap(&shop);
        let call = shop
            .forebay(&[
                "run",
                "spec.yaml",
                &format!("--param=data={data}"),
                "--json",
            ])
            .expect(0);
        let found = series::numbers(&series::by_id(&shop.rows("out")), "qty_lag_2");
        assert_eq!(found, expected, "{gaps}");
        call.stdout
    };
    let whole = [None, None, Some(1.0), Some(2.0)];
    let with = |last: Option<f64>| [whole[0], whole[1], whole[2], whole[3], None, None, last];
    values("count_rows", with(Some(1.0)));
    values("{ complete: { every: 1d } }", with(None));
    values("{ complete: { every: 1d, fill: zero } }", with(Some(0.0)));
    values(
        "{ complete: { every: 1d, fill: forward } }",
        with(Some(2.0)),
    );
    let said = values("{ warn: { every: 1d } }", with(Some(1.0)));
    assert!(
        said.contains("1 steps from one row of a series to the next were not the declared period"),
        "{said}"
    );

    let shop = workshop(&one_window_spec(
        "lag: { columns: [qty], by: [2], gaps: { error: { every: 1d } } }",
        "",
    ));
    let data = with_gap(&shop);
    let call = shop
        .forebay(&["run", "spec.yaml", &format!("--param=data={data}")])
        .expect(65);
    assert!(
        call.stderr.contains(
            "error[FB0213]: a series goes from 2013-10-23 to 2013-10-26, not to the next period"
        ),
        "{}",
        call.stderr
    );
    // The row in its file, whichever row group it lies in.
    assert!(call.stderr.contains(", row 6"), "{}", call.stderr);
    assert!(!shop.path("out").exists());

    let shop = workshop(&one_window_spec("lag: { columns: [qty], by: [2] }", ""));
    let call = shop
        .forebay(&[
            "run",
            "spec.yaml",
            &format!("--param=data={}", with_gap(&shop)),
        ])
        .expect(78);
    assert!(call.stderr.contains("gaps"), "{}", call.stderr);
}

#[test]
fn leakage_is_refused_with_its_path() {
    let shop = workshop(&one_window_spec(
        "rolling: { columns: [qty], compute: [mean], over: [7d], gap: 2d }\n      - rolling: { columns: [qty_mean_7d], \
         compute: [max], over: [7d] }\n      - lag: { columns: [units], by: [1d] }\n      - drop: [units, open]",
        "label: { column: qty, horizon: 2d, known: [price] }\n",
    ));
    let call = shop
        .forebay(&[
            "explain",
            "spec.yaml",
            &format!("--param=data={}", with_gap(&shop)),
        ])
        .expect(78);
    let expected = "\
error[FB0115]: `id` in sink `table` uses data that is known too late: `qty` is predicted 2d ahead; `id` (demand)
  --> spec.yaml:21:3
   |
21 |   table: { from: features, parquet: { path: out } }
   |   ^^^^^
hint: let its window end earlier (`gap`), lag it, drop it before the sink, or list it under the label's `known`
note: its data ends with its row, and has to end 2d before

error[FB0115]: `units_lag_1d` in sink `table` uses data that is known too late: `qty` is predicted 2d ahead; \
`units_lag_1d` (features.lag) <- `units` (demand)
  --> spec.yaml:21:3
   |
21 |   table: { from: features, parquet: { path: out } }
   |   ^^^^^
hint: let its window end earlier (`gap`), lag it, drop it before the sink, or list it under the label's `known`
note: its data ends 1d before its row, and has to end 2d before

2 problems were found
";
    assert_eq!(call.stderr, expected);
}

/// Counts the rows that are read.
#[derive(Default)]
struct ReadRowCounter(std::sync::atomic::AtomicU64);

impl forebay::EventListener for ReadRowCounter {
    fn on_event(&self, event: forebay::Event) {
        if let forebay::Event::Progress { rows, .. } = event {
            self.0.fetch_add(rows, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[test]
fn windows_over_the_same_series_share_a_sort() {
    use forebay::prelude::*;
    let rows = rows();
    // Steps behind `drop`, and how often the rows are read: once to be written, the others to be sorted.
    let cases = [
        (
            "lag: { columns: [qty], by: [1d] }
      - rolling: { columns: [units], compute: [mean, std], over: [7d] }
      - derive: { weekday: \"date_part('dow', day)\" }
      - drop: [price]
      - seasonal_index: { columns: [qty], period: { expression: weekday } }
      - expanding: { columns: [qty], compute: [mean] }",
            2,
        ),
        // The second one reads what the first one gives.
        (
            "lag: { columns: [qty], by: [1d] }\n      - rolling: { columns: [qty_lag_1d], compute: [mean], over: [7d] }",
            3,
        ),
        // Rows go, a column becomes another one, and series are told apart by other keys.
        (
            "lag: { columns: [qty], by: [1d] }\n      - filter: \"price < 140\"\n      - diff: { columns: [qty], by: [1d] }",
            3,
        ),
        (
            "lag: { columns: [qty], by: [1d] }\n      - derive: { qty: \"qty + 1\" }\n      - diff: { columns: [qty], by: [1d] }",
            3,
        ),
        (
            "lag: { columns: [qty], by: [1d] }\n      - lag: { columns: [qty], by: [2d], keys: [store] }",
            3,
        ),
    ];
    for (steps, times) in cases {
        let shop = workshop("");
        let data =
            series::write_in_order(&shop, "data", &rows, series::FileOrder::Shuffled, 7, 1_000);
        let text =
            one_window_spec(steps, "").replace("path: out", &format!("path: {:?}", shop.at("out")));
        let pipeline = {
            let forebay = Forebay::new();
            let params = [("data".to_owned(), data)].into();
            forebay::spec::parse(&text, "spec.yaml", &params, &forebay.spec_catalog()).unwrap()
        };
        let counter = std::sync::Arc::new(ReadRowCounter::default());
        let state = shop.at("state");
        let options = SessionOptions {
            threads: 2,
            memory_bytes: 1 << 30,
            batch_rows: 1000,
            state,
            run_id: None,
        };
        Forebay::new()
            .with_options(options)
            .with_listener(counter.clone())
            .session()
            .unwrap()
            .run(&pipeline)
            .unwrap();
        assert_eq!(
            counter.0.load(std::sync::atomic::Ordering::Relaxed),
            times * rows.len() as u64,
            "{steps}"
        );
    }
}

/// Values of a column by day.
fn by_day(dir: &TestDirectory, out: &str, column: &str) -> BTreeMap<String, Option<String>> {
    let rows = dir.visible(out);
    let texts = |name: &str| {
        let column = cast(rows.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
        let texts = column.as_string::<i32>().iter();
        texts
            .map(|text| text.map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let days = texts("day").into_iter().map(Option::unwrap);
    days.zip(texts(column)).collect()
}

#[test]
fn windows_behind_a_union_see_the_rows_of_all_inputs() {
    // In order of time, and in none.
    for (first, second) in [
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]),
        ([2, 5, 1, 4, 3], [10, 6, 8, 7, 9]),
    ] {
        let dir = TestDirectory::new();
        std::fs::create_dir(dir.path("data")).unwrap();
        for (name, days) in [("a", first), ("b", second)] {
            let lines = days.map(|day| format!("2024-01-{day:02},x,{day}\n"));
            let text = format!("day,item,qty\n{}", lines.concat());
            dir.write(&format!("data/{name}.csv"), &text);
        }
        let source = |name: &str, file: &str| {
            format!(
                "  {name}:\n    csv: {{ path: \"data/{file}.csv\", \
                 columns: {{ day: date, item: string, qty: float64 }} }}\n    \
                 time: day\n    keys: [item]\n"
            )
        };
        let spec = format!(
            "version: 1\nname: union\nsources:\n{}{}{}steps:\n  \
             early: {{ from: a, do: [{{ lag: {{ columns: [qty], by: [1d] }} }}] }}\n  \
             late: {{ from: b, do: [{{ lag: {{ columns: [qty], by: [1d] }} }}] }}\n  \
             union: {{ union: [early, late], do: [{{ lag: {{ columns: [qty], by: [2d] }} }}] }}\n  \
             whole: {{ from: every, do: [{{ lag: {{ columns: [qty], by: [2d] }} }}] }}\n\
             sinks:\n  of_union: {{ from: union, parquet: {{ path: of_union }} }}\n  \
             of_whole: {{ from: whole, parquet: {{ path: of_whole }} }}\n",
            source("a", "a"),
            source("b", "b"),
            source("every", "*"),
        );
        dir.write("spec.yaml", &spec);
        dir.forebay(&["run", "spec.yaml", "--threads=2"]).expect(0);
        let lags = by_day(&dir, "of_union", "qty_lag_2d");
        assert_eq!(lags.len(), 10);
        assert_eq!(lags, by_day(&dir, "of_whole", "qty_lag_2d"), "{first:?}");
    }
}

#[test]
fn windows_that_inputs_of_a_union_share_meet_their_rows_once() {
    // Rows of one time do not tell by their order that they come again.
    for (duplicates, days) in [
        ("", ["05", "05", "05"]),
        (", duplicates: allow", ["05", "05", "05"]),
        ("", ["05", "06", "07"]),
    ] {
        let dir = TestDirectory::new();
        let rows = ["x", "y", "z"].into_iter().zip(days);
        let lines: String = rows
            .map(|(item, day)| format!("2024-01-{day},{item},1\n"))
            .collect();
        dir.write("sales.csv", &format!("day,item,qty\n{lines}"));
        let spec = format!(
            "version: 1\nname: shared\nsources:\n  sales:\n    \
             csv: {{ path: sales.csv, columns: {{ day: date, item: string, qty: float64 }} }}\n    \
             time: day\n    keys: [item]{}\n\
             steps:\n  windows:\n    from: sales\n    \
             do: [{{ rolling: {{ columns: [qty], compute: [count], over: [7d] }} }}]\n  \
             first: {{ from: windows, do: [{{ filter: \"item = 'x'\" }}] }}\n  \
             others: {{ from: windows, do: [{{ filter: \"item <> 'x'\" }}] }}\n  \
             both: {{ union: [first, others] }}\n\
             sinks: {{ table: {{ from: both, parquet: {{ path: out }} }} }}\n",
            duplicates.replace(", ", "\n    ")
        );
        dir.write("spec.yaml", &spec);
        dir.forebay(&["run", "spec.yaml"]).expect(0);
        let table = dir.visible("out");
        let counts = cast(
            table.column_by_name("qty_count_7d").unwrap(),
            &DataType::Int64,
        );
        let counts = counts.unwrap();
        let counts = counts.as_primitive::<arrow::datatypes::Int64Type>();
        assert_eq!(counts.values().to_vec(), [1, 1, 1], "{duplicates} {days:?}");
    }
}

/// -0.0 and 0.0 are one series, also where rows are sorted.
#[test]
fn series_of_floats_are_sorted() {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("data")).unwrap();
    shop.write(
        "data/a.csv",
        "k,day,x\n0.0,2024-01-01,1\n-0.0,2024-01-03,3\n",
    );
    shop.write(
        "data/b.csv",
        "k,day,x\n-0.0,2024-01-02,2\n1.5,2024-01-02,7\n",
    );
    let text = "version: 1\nname: floats\nsources:\n  d: { csv: { path: data }, time: day, keys: [k] }\nsteps:\n  f:\n    from: \
                d\n    do:\n      - lag: { columns: [x], by: [1], gaps: count_rows }\nsinks:\n  t: { from: f, parquet: { path: \
                out } }\n";
    shop.write("spec.yaml", text);
    let called = shop.forebay(&["run", "spec.yaml"]).expect(0);
    let messages = format!("{}{}", called.stdout, called.stderr);
    assert!(messages.contains("sorted first"), "{messages}");
    let lagged = series::numbers(&shop.rows("out"), "x_lag_1");
    assert_eq!(lagged, [None, Some(2.0), Some(1.0), None]);
}
