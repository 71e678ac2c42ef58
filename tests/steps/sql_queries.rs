//! What SQL in a spec may do: read, by values that parameters give, with the same answer every time.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int16Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::{Float64Type, Int16Type, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::steps::edge_values::write;
use crate::steps::peer_values::texts;
use crate::support::{ProgramOutput, TestDirectory};

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    let n = Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
    write(
        &shop,
        "data.parquet",
        [("name", texts(&["it's", "b", "x' OR '1'='1"])), ("n", n)],
    );
    shop
}

/// A spec whose step has this input and does this.
fn spec(input: &str, steps: &str) -> String {
    format!(
        "version: 1\nname: queries\nparams:\n  text: {{ type: string, default: b }}\n  number: {{ type: integer, default: 2 \
         }}\n  day: {{ type: date, default: 2016-05-22 }}\n  moment: {{ type: timestamp, default: \
         '2016-05-22T06:30:00' }}\nsources:\n  data: {{ parquet: {{ path: data.parquet }} }}\nsteps:\n  out:\n    \
         {input}\n    do: [{steps}]\nsinks:\n  table: {{ from: out, parquet: {{ path: out }} }}\n"
    )
}

fn refused(call: &ProgramOutput, parts: &[&str]) {
    assert_eq!(call.code, 78, "{}", call.stderr);
    parts.iter().for_each(|part| {
        assert!(
            call.stderr.contains(part),
            "no `{part}` in:\n{}",
            call.stderr
        )
    });
}

#[test]
fn a_query_reads_and_does_nothing_else() {
    let shop = shop();
    let target = shop.at("stolen.csv");
    for query in [
        &format!("COPY data TO '{target}' STORED AS CSV"),
        &format!("COPY (SELECT 1) TO '{target}'"),
        "CREATE TABLE t AS SELECT * FROM data",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "INSERT INTO data VALUES ('a', 1)",
        "DELETE FROM data",
        "DROP TABLE data",
        "SET datafusion.execution.batch_size = 1",
        "EXPLAIN SELECT * FROM data",
        "EXPLAIN ANALYZE SELECT * FROM data",
        "SHOW TABLES",
        "SELECT * FROM data; SELECT * FROM data",
        "SELECT * INTO t FROM data",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM generate_series(1, 3)",
    ] {
        shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
        for command in ["check", "run"] {
            let call = shop.forebay(&[command, "spec.yaml"]);
            assert_eq!(call.code, 78, "{command} {query}: {}", call.stderr);
        }
        assert!(!shop.path("stolen.csv").exists(), "{query}");
    }
    shop.write(
        "spec.yaml",
        &spec(
            "sql: \"SELECT name, MAX(n) AS n FROM data GROUP BY name ORDER BY n LIMIT 2\"",
            "",
        ),
    );
    shop.forebay(&["check", "spec.yaml"]).expect(0);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(
        shop.rows("out")["n"].as_primitive::<Int64Type>().values(),
        &[1, 2]
    );
}

/// The second column of the file cannot be read.
#[test]
fn columns_that_a_query_does_not_use_are_not_read() {
    let shop = TestDirectory::new();
    let names = (0..2_000).map(|row| format!("name {}", row * 7_919 % 2_003));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2_000));
    write(&shop, "data.parquet", [("n", numbers), ("name", names)]);
    let path = shop.path("data.parquet");
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let (begin, length) = reader.metadata().row_group(0).column(1).byte_range();
    let end = (begin + length) as usize;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[end - 64..end].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    for (query, expected) in [
        ("SELECT SUM(n) AS n FROM data", 1_999_000),
        ("SELECT COUNT(*) AS n FROM data", 2_000),
        (
            "SELECT COUNT(*) AS n FROM data a JOIN data b ON a.n = b.n + 1",
            1_999,
        ),
    ] {
        shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
        shop.forebay(&["run", "spec.yaml"]).expect(0);
        let out = shop.visible("out");
        let counts = out["n"].as_primitive::<Int64Type>().values();
        assert_eq!(counts, &[expected], "{query}");
    }
    let query = "SELECT MAX(name) AS name FROM data";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    assert_ne!(shop.forebay(&["run", "spec.yaml"]).code, 0);
}

#[test]
fn functions_that_change_from_run_to_run_are_refused_by_name() {
    let shop = shop();
    for (call, name) in [
        ("random()", "random"),
        ("uuid()", "uuid"),
        ("now()", "now"),
        ("current_timestamp", "current_timestamp"),
        ("CURRENT_DATE()", "current_date"),
        ("today()", "today"),
        ("current_time", "current_time"),
    ] {
        for (input, steps) in [
            (
                &format!("sql: \"SELECT n, CAST({call} AS VARCHAR) AS t FROM data\""),
                String::new(),
            ),
            (
                &"sql: \"SELECT n FROM data WHERE n IN (SELECT n FROM data WHERE CALL IS NULL)\""
                    .replace("CALL", call),
                String::new(),
            ),
            (
                &"from: data".to_owned(),
                format!("{{ derive: {{ t: \"{call}\" }} }}"),
            ),
            (
                &"from: data".to_owned(),
                format!("{{ filter: \"{call} IS NOT NULL\" }}"),
            ),
        ] {
            shop.write("spec.yaml", &spec(input, &steps));
            for command in ["check", "run"] {
                refused(
                    &shop.forebay(&[command, "spec.yaml"]),
                    &["FB0110", &format!("uses `{name}`"), "run to run", "hint"],
                );
            }
        }
    }
}

#[test]
fn a_parameter_is_a_value_and_no_more() {
    let shop = shop();
    let names = |args: &[&str]| -> Vec<String> {
        shop.forebay(&[&["run", "spec.yaml", "--allow-empty"], args].concat())
            .expect(0);
        let rows = shop.rows("out");
        rows["name"]
            .as_string::<i32>()
            .iter()
            .map(|name| name.unwrap().to_owned())
            .collect()
    };
    for (input, steps) in [
        ("from: data", "{ filter: \"name = '${text}'\" }"),
        (
            "sql: \"SELECT name, n FROM data WHERE name = '${text}' -- ${text}\"",
            "",
        ),
    ] {
        shop.write("spec.yaml", &spec(input, steps));
        for text in ["b", "it's", "x' OR '1'='1"] {
            assert_eq!(names(&[&format!("--param=text={text}")]), [text], "{input}");
        }
        assert!(names(&["--param=text=' OR TRUE --"]).is_empty());
    }
    // Outside of quotes: numbers, dates, moments and names.
    shop.write(
        "spec.yaml",
        &spec(
            "from: data",
            "{ filter: \"${text} > ${number} AND ${day} < ${moment} AND 1 -${number} < 100\" }",
        ),
    );
    assert_eq!(names(&["--param=text=n"]), ["x' OR '1'='1"]);
    assert_eq!(names(&["--param=text=n", "--param=number=-7"]).len(), 3);
    for text in ["n > 0 OR n", "1; DROP TABLE data", "", "a.b", "'b'"] {
        let call = shop.forebay(&["check", "spec.yaml", &format!("--param=text={text}")]);
        refused(
            &call,
            &["FB0110", "`${text}` stands outside of quotes", "spec.yaml:"],
        );
    }
    // Text that is no SQL holds values as they are.
    shop.write(
        "spec.yaml",
        &spec(
            "from: data",
            "{ vocabulary: { columns: [name], reserved: [\"${text}\"] } }",
        ),
    );
    shop.forebay(&["run", "spec.yaml", "--param=text=a'b"])
        .expect(0);
}

/// The row with a number.
fn row_of(rows: &RecordBatch, n: i64) -> usize {
    let numbers = rows["n"].as_primitive::<Int64Type>().values();
    numbers.iter().position(|number| *number == n).unwrap()
}

/// A window holds the rows of its frame and nothing of those before it.
#[test]
fn numbers_that_leave_a_window_leave_its_sums() {
    let shop = TestDirectory::new();
    let passing = [1e200, f64::INFINITY, f64::NAN, 1e12];
    let values = passing.map(|value| [value, 1.0, 2.0, 4.0]).concat();
    let n = Arc::new(Int64Array::from_iter_values(0..values.len() as i64)) as ArrayRef;
    let x = Arc::new(Float64Array::from(values)) as ArrayRef;
    write(&shop, "data.parquet", [("n", n), ("x", x)]);
    let query = "SELECT n, sum(x) OVER w AS total, avg(x) OVER w AS mean, var_pop(x) OVER w AS var, \
                 stddev(x) OVER w AS std FROM data \
                 WINDOW w AS (ORDER BY n ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = shop.rows("out");
    let column = |name: &str| rows[name].as_primitive::<Float64Type>().clone();
    for n in [3, 7, 11, 15] {
        let row = row_of(&rows, n);
        assert_eq!(column("total").value(row), 7.0, "row {n}");
        assert_eq!(column("mean").value(row), 7.0 / 3.0, "row {n}");
        assert_eq!(column("var").value(row), 14.0 / 9.0, "row {n}");
        let std = column("std").value(row);
        assert!(
            (std - (7.0_f64 / 3.0).sqrt()).abs() < 1e-15,
            "row {n}: {std}"
        );
    }
    // The variance of 1e200 and 1 is beyond doubles; its root is not.
    let row = row_of(&rows, 1);
    assert_eq!(column("var").value(row), f64::INFINITY);
    assert!((column("std").value(row) / 1e200 - 0.5_f64.sqrt()).abs() < 1e-15);
}

/// Lines are those of scaled values, also if squares leave the doubles; pairs with a NaN are ignored.
#[test]
fn lines_through_huge_values_are_those_of_scaled_ones() {
    let shop = TestDirectory::new();
    let scales = [1.0, 1e200, 1e-200];
    let mut groups = Vec::new();
    let mut xs = Vec::new();
    let mut ys = Vec::new();
    for (group, scale) in scales.iter().enumerate() {
        for (x, y) in [(1.0, 3.0), (2.0, 5.0), (4.0, 9.0), (f64::NAN, 1.0)] {
            groups.push(group as i64);
            xs.push(x * scale);
            ys.push(y * scale);
        }
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("n", Arc::new(Int64Array::from(groups))),
        ("x", Arc::new(Float64Array::from(xs))),
        ("y", Arc::new(Float64Array::from(ys))),
    ];
    write(&shop, "data.parquet", columns);
    let query = "SELECT n, corr(y, x) AS corr, regr_slope(y, x) AS slope, \
                 regr_intercept(y, x) AS base, regr_r2(y, x) AS r2, \
                 regr_avgx(y, x) AS mean, covar_pop(y, x) AS covar, \
                 regr_sxy(y, x) AS sxy FROM data GROUP BY n";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = shop.rows("out");
    for (group, scale) in scales.into_iter().enumerate() {
        let row = row_of(&rows, group as i64);
        let square = scale * scale;
        for (name, expected) in [
            ("corr", 1.0),
            ("slope", 2.0),
            ("base", scale),
            ("r2", 1.0),
            ("mean", 7.0 / 3.0 * scale),
            ("covar", 28.0 / 9.0 * square),
            ("sxy", 28.0 / 3.0 * square),
        ] {
            let value = rows[name].as_primitive::<Float64Type>().value(row);
            let is_near = (value / expected - 1.0).abs() < 1e-13;
            // The covariance of the largest and of the smallest values is no double itself.
            assert!(is_near || value == expected, "{name} of {scale}: {value}");
        }
    }
    let query = "SELECT n, max(slope) AS slope FROM (SELECT n, regr_slope(y, x) OVER \
                 (PARTITION BY n ORDER BY x ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS slope \
                 FROM data) AS slopes GROUP BY n";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    shop.forebay(&["run", "spec.yaml", "--state=windows"])
        .expect(0);
    let rows = shop.rows("out");
    for slope in rows["slope"].as_primitive::<Float64Type>().values() {
        assert!((slope / 2.0 - 1.0).abs() < 1e-13, "{slope}");
    }
}

/// A time before 1970 lies in the second that began last, as in Spark's `unix_timestamp` and in DuckDB's
/// `floor(epoch(t))`.
#[test]
fn seconds_since_1970_are_those_that_began() {
    let shop = TestDirectory::new();
    // The ends of the years 1 and 9999 among them.
    let times = [-500, 500, -1_000, -62_135_596_800_000, 253_402_300_799_999];
    let expected = [-1, 0, -1, -62_135_596_800, 253_402_300_799];
    let n = Arc::new(Int64Array::from_iter_values(0..times.len() as i64)) as ArrayRef;
    let t = Arc::new(TimestampMillisecondArray::from(times.to_vec())) as ArrayRef;
    write(&shop, "data.parquet", [("n", n), ("t", t)]);
    let query = "SELECT n, to_unixtime(t) AS s, \
                 to_unixtime(TIMESTAMP '1969-12-31 23:59:59.5') AS c FROM data";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = shop.rows("out");
    for (n, second) in expected.into_iter().enumerate() {
        let row = row_of(&rows, n as i64);
        let value = rows["s"].as_primitive::<Int64Type>().value(row);
        assert_eq!(value, second, "time {}", times[n]);
        assert_eq!(rows["c"].as_primitive::<Int64Type>().value(row), -1);
    }
}

/// A pair with a null or NaN is left out by all statistics of pairs, `regr_count` among them, in groups and in windows;
/// `count` of one column counts NaN.
#[test]
fn pairs_are_counted_where_both_are_numbers() {
    let shop = TestDirectory::new();
    let y = vec![Some(1.0), Some(f64::NAN), None, Some(4.0), None];
    let x = vec![Some(1.0), Some(2.0), Some(3.0), None, None];
    let n = Arc::new(Int64Array::from(vec![0, 0, 0, 0, 1])) as ArrayRef;
    let y = Arc::new(Float64Array::from(y)) as ArrayRef;
    let x = Arc::new(Float64Array::from(x)) as ArrayRef;
    write(&shop, "data.parquet", [("n", n), ("y", y), ("x", x)]);
    let query = "SELECT n, CAST(regr_count(y, x) AS BIGINT) AS pairs, \
                 CAST(regr_count(y, x) FILTER (WHERE n < 0) AS BIGINT) AS negative, \
                 CAST(count(y) AS BIGINT) AS ys, regr_avgx(y, x) AS mean FROM data GROUP BY n";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = shop.rows("out");
    for (n, pairs, ys, mean) in [(0, 1, 3, Some(1.0)), (1, 0, 0, None)] {
        let row = row_of(&rows, n);
        for (name, expected) in [("pairs", pairs), ("negative", 0), ("ys", ys)] {
            let column = rows[name].as_primitive::<Int64Type>();
            assert_eq!(column.null_count(), 0, "{name}");
            assert_eq!(column.value(row), expected, "{name} of {n}");
        }
        let means = rows["mean"].as_primitive::<Float64Type>();
        assert_eq!(means.is_valid(row).then(|| means.value(row)), mean);
    }
    let query = "SELECT n, max(CAST(pairs AS BIGINT)) AS pairs FROM (SELECT n, regr_count(y, x) OVER \
                 (PARTITION BY n ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS pairs \
                 FROM data) AS counts GROUP BY n";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    shop.forebay(&["run", "spec.yaml", "--state=windows"])
        .expect(0);
    let rows = shop.rows("out");
    for (n, pairs) in [(0, 1), (1, 0)] {
        let row = row_of(&rows, n);
        assert_eq!(rows["pairs"].as_primitive::<Int64Type>().value(row), pairs);
    }
}

/// No value is cut to the type of the first query of a union, or of the first branch of a `CASE`.
#[test]
fn values_of_several_types_stay_whole() {
    let shop = TestDirectory::new();
    let n = Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef;
    let x = Arc::new(Float64Array::from(vec![1.5, 2.5])) as ArrayRef;
    write(&shop, "data.parquet", [("n", n), ("x", x)]);
    for (query, expected) in [
        (
            "SELECT CASE WHEN n = 1 THEN n ELSE x END AS v FROM data",
            [1.0, 2.5].as_slice(),
        ),
        (
            "SELECT n AS v FROM data UNION ALL SELECT x FROM data",
            [1.0, 1.5, 2.0, 2.5].as_slice(),
        ),
        (
            "SELECT sum(CASE WHEN n = 1 THEN n ELSE x END) AS v FROM data",
            [3.5].as_slice(),
        ),
    ] {
        shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
        shop.forebay(&["run", "spec.yaml"]).expect(0);
        let rows = shop.rows("out");
        let values = rows["v"].as_primitive::<Float64Type>().values().to_vec();
        assert_eq!(values, expected, "{query}");
    }
}

/// Integers of queries do not wrap around.
#[test]
fn integers_that_do_not_fit_are_faults() {
    let shop = TestDirectory::new();
    let small = Arc::new(Int16Array::from(vec![Some(200), None])) as ArrayRef;
    let n = Arc::new(Int64Array::from(vec![1 << 62, 5])) as ArrayRef;
    write(&shop, "data.parquet", [("small", small), ("n", n)]);
    for query in [
        "SELECT small * small AS v FROM data",
        "SELECT n + n AS v FROM data",
        "SELECT -n - n - 1 AS v FROM data",
        "SELECT n FROM data WHERE n * 4 > 0",
        "SELECT -(n - 9223372036854775807 - 6) AS v FROM data",
        "SELECT n << 2 AS v FROM data",
        "SELECT n >> 64 AS v FROM data",
        "SELECT max(n * 3) AS v FROM data GROUP BY small",
        "SELECT sum(n) + 0 AS v FROM (SELECT n FROM data UNION ALL SELECT n FROM data)",
        "SELECT small, sum(n * 1) AS v FROM data, (VALUES (1), (2)) AS t(k) GROUP BY small",
        "SELECT sum(n) OVER (ORDER BY k) AS v FROM data, (VALUES (1), (2)) AS t(k)",
    ] {
        shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
        let call = shop.forebay(&["run", "spec.yaml"]);
        assert_eq!(call.code, 65, "{query}: {}", call.stderr);
        for word in ["FB0210", "verflow", "wider type"] {
            assert!(call.stderr.contains(word), "{query}: {}", call.stderr);
        }
    }
    let query = "SELECT sum(n) AS total FROM data";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = shop.rows("out");
    let total = rows["total"].as_primitive::<Int64Type>().values();
    assert_eq!(total, &[(1 << 62) + 5]);
    let query = "SELECT small + small AS twice, n - 5 AS less, n * CAST(4 AS DOUBLE) AS wide \
                 FROM data ORDER BY n + 1 LIMIT 2";
    shop.write("spec.yaml", &spec(&format!("sql: \"{query}\""), ""));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = shop.rows("out");
    let twice = rows["twice"].as_primitive::<Int16Type>();
    assert_eq!(twice.iter().collect::<Vec<_>>(), [None, Some(400)]);
    let less = rows["less"].as_primitive::<Int64Type>().values();
    assert_eq!(less, &[0, (1 << 62) - 5]);
}
