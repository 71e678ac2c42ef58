//! Specs that are right in every part, and met in combinations that once failed.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Int8Array, Int32Array, Int64Array, NullArray,
    RecordBatch, TimestampMillisecondArray, TimestampNanosecondArray, UInt8Array, UInt16Array,
    UInt64Array,
};
use arrow::datatypes::{DataType, Float32Type, Int64Type};

use crate::steps::edge_values::write;
use crate::steps::peer_values::texts;
use crate::support::TestDirectory;

/// Runs steps over the sources `here` and `there`, whose time is `t`.
fn run(shop: &TestDirectory, steps: &str) -> RecordBatch {
    let spec = format!(
        "version: 1\nname: test\nsources:\n  here: {{ parquet: {{ path: here.parquet }}, time: t }}\n  there: {{ parquet: \
         {{ path: there.parquet }}, time: t }}\nsteps:\n{steps}\nsinks:\n  table: {{ from: out, parquet: {{ path: out }} \
         }}\n"
    );
    shop.write("spec.yaml", &spec);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    shop.rows("out")
}

fn integers(rows: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    let column = arrow::compute::cast(&rows[name], &DataType::Int64).unwrap();
    column.as_primitive::<Int64Type>().iter().collect()
}

fn days(days: &[i32]) -> ArrayRef {
    Arc::new(Date32Array::from(days.to_vec()))
}

fn prices(shop: &TestDirectory) {
    write(
        shop,
        "here.parquet",
        [("k", texts(&["a", "b", "a"])), ("t", days(&[3, 3, 9]))],
    );
    let price = Arc::new(Int64Array::from(vec![10, 11, 20, 21, 30])) as ArrayRef;
    write(
        shop,
        "there.parquet",
        [
            ("k", texts(&["a", "a", "b", "b", "a"])),
            ("t", days(&[1, 1, 2, 2, 8])),
            ("price", price),
        ],
    );
}

#[test]
fn an_as_of_join_meets_rows_that_were_gathered() {
    let shop = TestDirectory::new();
    prices(&shop);
    let join =
        "  out: { from: here, do: [{ as_of_join: { with: other, on: [k], columns: [price] } }] }";
    for (other, expected) in [
        (
            "from: there\n    do: [{ aggregate: { by: [k], time: t, every: 1d, compute: { price: { sum: price } } } }]",
            [21, 41, 30],
        ),
        (
            "from: there\n    do: [{ dedupe: { keys: [k, t] } }]",
            [10, 20, 30],
        ),
        (
            "sql: \"SELECT k, t, MAX(price) AS price FROM there GROUP BY k, t\"",
            [11, 21, 30],
        ),
        (
            "from: days\n    do: [{ derive: { price: \"price + 1\" } }]",
            [12, 22, 31],
        ),
    ] {
        let days =
            "  days: { sql: \"SELECT k, t, MAX(price) AS price FROM there GROUP BY k, t\" }\n"
                .replace("{ sql", "\n    sql")
                .replace(" }", "");
        let rows = run(&shop, &format!("{days}  other:\n    {other}\n{join}"));
        assert_eq!(integers(&rows, "price"), expected.map(Some), "{other}");
    }
    // A gather over such a join, and a statistic of it.
    let rows = run(
        &shop,
        "  other: { from: there, do: [{ dedupe: { keys: [k, t] } }] }\n  joined:\n    from: here\n    do:\n      - \
         as_of_join: { with: other, on: [k], columns: [price] }\n      - min_max: { columns: [price], suffix: _z }\n  \
         out: { from: joined, do: [{ aggregate: { by: [k], compute: { n: { sum: price }, z: { max: price_z } } } }] }",
    );
    assert_eq!(integers(&rows, "n"), [Some(40), Some(20)]);
    assert_eq!(
        rows["z"].as_primitive::<Float32Type>().values(),
        &[1.0, 0.5]
    );
}

#[test]
fn a_window_that_waits_for_a_statistic_does_not_hold_up_what_does_not_read_it() {
    let shop = TestDirectory::new();
    prices(&shop);
    // In no order of time: rows are sorted for each window.
    let value = Arc::new(Int64Array::from(vec![7, 1, 2])) as ArrayRef;
    let k = texts(&["a", "a", "b"]);
    let c = texts(&["x", "x", "y"]);
    write(
        &shop,
        "here.parquet",
        [("k", k), ("c", c), ("t", days(&[9, 3, 3])), ("v", value)],
    );
    let window = "      - ordinal: { columns: [k], suffix: _i }\n      - interpolate: { columns: [k_i], keys: [c] }\n";
    let rows = run(
        &shop,
        &format!(
            "  out:\n    from: here\n    do:\n{window}      - as_of_join: {{ with: there, on: [k], columns: [price] }}\n      \
             - min_max: {{ columns: [price] }}"
        ),
    );
    let expected: Vec<f32> = [30.0, 11.0, 21.0]
        .map(|price: f64| ((price - 11.0) / 19.0) as f32)
        .to_vec();
    assert_eq!(
        rows["price"].as_primitive::<Float32Type>().values(),
        &expected[..]
    );
    let sums = "      - aggregate: { by: [k], compute: { n: { sum: v } } }";
    let rows = run(
        &shop,
        &format!("  out:\n    from: here\n    do:\n{window}{sums}"),
    );
    assert_eq!(integers(&rows, "n"), [Some(8), Some(2)]);
}

fn vectors(rows: &RecordBatch, name: &str) -> Vec<Vec<f32>> {
    let list = rows[name].as_fixed_size_list();
    (0..list.len())
        .map(|row| {
            list.value(row)
                .as_primitive::<Float32Type>()
                .values()
                .to_vec()
        })
        .collect()
}

#[test]
fn learned_vectors_go_through_all_steps() {
    let shop = TestDirectory::new();
    prices(&shop);
    let a = vec![1.0, 0.0];
    let b = vec![0.0, 1.0];
    for coded in [
        "one_hot: { columns: [k], suffix: _v }",
        "multi_hot: { columns: [k], delimiter: '|', suffix: _v }",
    ] {
        let coded = format!("  coded: {{ from: there, do: [{{ {coded} }}] }}\n");
        for (last, expected) in [
            (
                "from: coded\n    do: [{ dedupe: { keys: [k] } }]",
                vec![&a, &b],
            ),
            (
                "from: coded\n    do: [{ aggregate: { by: [k], compute: { k_v: { first: k_v } } } }]",
                vec![&a, &b],
            ),
            (
                "sql: \"SELECT k, k_v FROM coded WHERE t > DATE '1970-01-03' ORDER BY k\"",
                vec![&a],
            ),
            (
                "sql: \"SELECT c.k, c.k_v FROM (SELECT * FROM coded WHERE price < 11) c\"\n    do: [{ drop: [k] }]",
                vec![&a],
            ),
            (
                "from: here\n    do: [{ join: { with: keys, on: [k], columns: [k_v] } }]",
                vec![&a, &b, &a],
            ),
        ] {
            let keys = "  keys: { from: coded, do: [{ dedupe: { keys: [k] } }] }\n";
            let rows = run(&shop, &format!("{coded}{keys}  out:\n    {last}"));
            assert_eq!(
                vectors(&rows, "k_v").iter().collect::<Vec<_>>(),
                expected,
                "{last}"
            );
        }
        // What an artifact holds of them is applied.
        let summary = shop
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(0)
            .summary();
        let artifact = summary["artifact_path"].as_str().unwrap();
        let sources = ["--source=here=here.parquet", "--source=there=there.parquet"];
        shop.forebay(&[
            "apply",
            artifact,
            sources[0],
            sources[1],
            "--output=applied",
            "--state=other",
        ])
        .expect(0);
        assert_eq!(
            vectors(&shop.rows("applied"), "k_v"),
            vectors(&shop.rows("out"), "k_v")
        );
    }
}

#[test]
fn a_column_without_a_type_is_a_column_of_nulls() {
    let shop = TestDirectory::new();
    let nothing = Arc::new(NullArray::new(2)) as ArrayRef;
    write(
        &shop,
        "here.parquet",
        [
            ("x", nothing),
            ("t", days(&[1, 2])),
            ("n", Arc::new(Int64Array::from(vec![1, 2]))),
        ],
    );
    write(&shop, "there.parquet", [("t", days(&[1]))]);
    let rows = run(
        &shop,
        "  out:\n    from: here\n    do:\n      - ordinal: { columns: [x], suffix: _id }\n      - vocabulary: { columns: [x], \
         suffix: _token }\n      - standardize: { columns: [n], by: [x] }",
    );
    assert_eq!(integers(&rows, "x_id"), [None, None]);
    // The same from a CSV file whose column is empty.
    shop.write("a.csv", "x,n\n,1\n,2\n");
    shop.write(
        "spec.yaml",
        "version: 1\nname: csv\nsources:\n  data: { csv: { path: a.csv } }\nsteps:\n  out: { from: data, do: [{ ordinal: { \
         columns: [x], suffix: _id } }] }\nsinks:\n  table: { from: out, parquet: { path: csv-out } }\n",
    );
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(integers(&shop.rows("csv-out"), "x_id"), [None, None]);
}

/// pandas 2.2: `pd.merge_asof(here, there, on="t", by="k")` after bringing both sides to one unit and type.
#[test]
fn as_of_joins_compare_units_zones_and_widths() {
    let shop = TestDirectory::new();
    let fine = [1_000_000_000_i64, 5_000_000_001, 9_999_999_999];
    let coarse = [1_000_i64, 5_000, 10_000];
    let nanoseconds = || TimestampNanosecondArray::from(fine.to_vec());
    let milliseconds = || TimestampMillisecondArray::from(coarse.to_vec());
    let times: [(ArrayRef, ArrayRef); 4] = [
        (Arc::new(nanoseconds()), Arc::new(milliseconds())),
        (
            Arc::new(nanoseconds().with_timezone("UTC")),
            Arc::new(milliseconds().with_timezone("UTC")),
        ),
        (
            Arc::new(nanoseconds().with_timezone("+02:00")),
            Arc::new(milliseconds().with_timezone("UTC")),
        ),
        (
            Arc::new(nanoseconds()),
            Arc::new(TimestampNanosecondArray::from(
                coarse.map(|t| t * 1_000_000).to_vec(),
            )),
        ),
    ];
    let keys: [(ArrayRef, ArrayRef); 7] = [
        (texts(&["a"; 3]), texts(&["a"; 3])),
        (
            Arc::new(Int8Array::from(vec![7; 3])),
            Arc::new(Int8Array::from(vec![7; 3])),
        ),
        (
            Arc::new(UInt8Array::from(vec![7; 3])),
            Arc::new(UInt8Array::from(vec![7; 3])),
        ),
        (
            Arc::new(UInt16Array::from(vec![7; 3])),
            Arc::new(Int64Array::from(vec![7; 3])),
        ),
        (
            Arc::new(Int32Array::from(vec![7; 3])),
            Arc::new(UInt8Array::from(vec![7; 3])),
        ),
        (
            Arc::new(UInt64Array::from(vec![u64::MAX; 3])),
            Arc::new(UInt64Array::from(vec![u64::MAX; 3])),
        ),
        (
            Arc::new(Int64Array::from(vec![7; 3])),
            Arc::new(UInt64Array::from(vec![7; 3])),
        ),
    ];
    let id = || Arc::new(Int64Array::from(vec![0, 1, 2])) as ArrayRef;
    let check = |key: &(ArrayRef, ArrayRef), time: &(ArrayRef, ArrayRef)| {
        write(
            &shop,
            "here.parquet",
            [("k", key.0.clone()), ("t", time.0.clone())],
        );
        write(
            &shop,
            "there.parquet",
            [("k", key.1.clone()), ("t", time.1.clone()), ("id", id())],
        );
        let steps = "  out:\n    from: here\n    do:\n      - as_of_join: { with: there, on: [k], columns: [id] }\n      - \
                     as_of_join: { with: there, on: [k], columns: [id], suffix: _near, tolerance: 1ms, direction: nearest }\n      \
                     - as_of_join: { with: there, on: [k], columns: [id], suffix: _late, direction: forward, exact: false }";
        let rows = run(&shop, steps);
        let what = format!(
            "{} {} {} {}",
            key.0.data_type(),
            key.1.data_type(),
            time.0.data_type(),
            time.1.data_type()
        );
        assert_eq!(integers(&rows, "id"), [Some(0), Some(1), Some(1)], "{what}");
        assert_eq!(
            integers(&rows, "id_near"),
            [Some(0), Some(1), Some(2)],
            "{what}"
        );
        assert_eq!(
            integers(&rows, "id_late"),
            [Some(1), Some(2), Some(2)],
            "{what}"
        );
    };
    times.iter().for_each(|time| check(&keys[0], time));
    keys[1..].iter().for_each(|key| check(key, &times[0]));
    // -1 is no key of unsigned ones, though its bits are.
    write(
        &shop,
        "here.parquet",
        [
            ("k", Arc::new(Int64Array::from(vec![-1]))),
            ("t", days(&[1])),
        ],
    );
    write(
        &shop,
        "there.parquet",
        [
            ("k", Arc::new(UInt64Array::from(vec![u64::MAX]))),
            ("t", days(&[1])),
            ("id", Arc::new(Int64Array::from(vec![0]))),
        ],
    );
    let rows = run(
        &shop,
        "  out: { from: here, do: [{ as_of_join: { with: there, on: [k], columns: [id] } }] }",
    );
    assert_eq!(integers(&rows, "id"), [None]);
}
