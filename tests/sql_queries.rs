//! What SQL in a spec may do: read, by values that parameters give, with the same answer every time.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;

use crate::exact_values::write;
use crate::semantics::texts;
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
