//! Rows are counted: what each step removes, adds or changes is in the summary, and the sum holds.

use serde_json::{Value, json};

use crate::support::{ProgramOutput, TestDirectory};

const ROWS: &str =
    "k,x,s,day\n1,1,7,2024-01-01\n1,2,b,2024-01-02\n2,3,x,2024-01-03\n3,,9,2024-01-04\n";
const OTHERS: &str = "k,y\n1,10\n1,11\n2,12\n4,13\n";
const NAMES: &str = "k,name\n1,one\n2,two\n";

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.write("a.csv", ROWS);
    shop.write("b.csv", OTHERS);
    shop.write("c.csv", NAMES);
    shop
}

/// A spec with this step and this sink.
fn spec(shop: &TestDirectory, step: &str, sink: &str) {
    let text = format!(
        "version: 1\nname: test\nsources:\n  a: {{ csv: {{ path: a.csv }}, time: day, keys: [k] }}\n  \
         b: {{ csv: {{ path: b.csv }} }}\n  c: {{ csv: {{ path: c.csv }} }}\nsteps:\n  f: {step}\n\
         split: {{ train: \"day < DATE '2024-01-03'\", validation: \"day >= DATE '2024-01-03'\" }}\n\
         sinks: {{ t: {{ from: f, {sink}parquet: {{ path: out }} }} }}\n"
    );
    shop.write("spec.yaml", &text);
}

fn run(shop: &TestDirectory, options: &[&str]) -> ProgramOutput {
    let arguments = [&["run", "spec.yaml", "--json"], options].concat();
    shop.forebay(&arguments).expect(0)
}

/// The rows in, added, out and removed of the only output.
fn sum(summary: &Value) -> [u64; 4] {
    let output = &summary["outputs"][0];
    ["rows_in", "rows_added", "rows_out", "rows_removed"]
        .map(|name| output[name].as_u64().unwrap_or_default())
}

/// The changes of the only output: step, reason and count, with the column of a change of values.
fn changes(summary: &Value) -> Vec<String> {
    let entries = summary["outputs"][0]["changes"].as_array();
    let entries = entries.into_iter().flatten().map(|entry| {
        let column = entry["column"].as_str().map(|column| format!(" {column}"));
        format!(
            "{} {}{} {}",
            entry["step"].as_str().unwrap(),
            entry["change"].as_str().unwrap(),
            column.unwrap_or_default(),
            entry["count"]
        )
    });
    entries.collect()
}

#[test]
fn every_step_reports_the_rows_and_values_that_it_changes() {
    let from_a = |steps: &str| format!("{{ from: a, do: [ {steps} ] }}");
    let cases: &[(String, [u64; 4], &[&str])] = &[
        (from_a("{ select: [k, x] }"), [4, 0, 4, 0], &[]),
        (
            from_a("{ filter: \"x > 1\" }"),
            [4, 0, 2, 2],
            &["f.filter filtered 2"],
        ),
        (
            from_a("{ dedupe: { keys: [k] } }"),
            [4, 0, 3, 1],
            &["f.dedupe duplicate 1"],
        ),
        (
            from_a("{ filter: \"x >= 1\" }, { dedupe: { keys: [k] } }, { filter: \"k = 2\" }"),
            [4, 0, 1, 3],
            &["f.filter filtered 2", "f.dedupe duplicate 1"],
        ),
        (
            from_a("{ aggregate: { by: [k], compute: { n: { sum: x } } } }"),
            [4, 0, 3, 1],
            &["f.aggregate grouped 1"],
        ),
        (
            from_a("{ dedupe: { keys: [k] } }, { aggregate: { compute: { n: { sum: k } } } }"),
            [4, 0, 1, 3],
            &["f.dedupe duplicate 1", "f.aggregate grouped 2"],
        ),
        (
            from_a(
                "{ derive: { l: \"CASE WHEN k = 1 THEN make_array(k, k, k) ELSE NULL END\" } }, { explode: { column: l } }",
            ),
            [4, 4, 6, 2],
            &["f.explode empty_list 2", "f.explode exploded 4"],
        ),
        (
            from_a("{ join: { with: c, on: [k], how: inner } }"),
            [4, 0, 3, 1],
            &["f.join unmatched 1"],
        ),
        (
            from_a("{ join: { with: c, on: [k], how: semi } }"),
            [4, 0, 3, 1],
            &["f.join unmatched 1"],
        ),
        (
            from_a("{ join: { with: c, on: [k], how: anti, strategy: shuffle } }"),
            [4, 0, 1, 3],
            &["f.join matched 3"],
        ),
        (
            from_a("{ join: { with: b, on: [k], how: inner, cardinality: many_to_many } }"),
            [4, 2, 5, 1],
            &["f.join unmatched 1", "f.join multiplied 2"],
        ),
        (
            from_a("{ join: { with: b, on: [k], cardinality: many_to_many } }"),
            [4, 2, 6, 0],
            &["f.join multiplied 2"],
        ),
        (
            from_a("{ expect: [ { not_null: [x], policy: quarantine, at_most: 50% } ] }"),
            [4, 0, 3, 1],
            &["f.expect quarantined 1"],
        ),
        (
            from_a("{ cast: { columns: { s: int32 }, on_error: missing } }"),
            [4, 0, 4, 0],
            &["f.cast nulled s 2"],
        ),
        (
            from_a("{ impute: { columns: [x], with: { constant: 0 } } }"),
            [4, 0, 4, 0],
            &["f.impute imputed x 1"],
        ),
        (
            from_a("{ clip: { columns: [x], min: 2, max: 2 } }"),
            [4, 0, 4, 0],
            &["f.clip clipped x 2"],
        ),
        (
            "{ sql: \"SELECT k, count(*) AS n FROM a GROUP BY k\" }".to_owned(),
            [4, 0, 3, 1],
            &["f.sql queried_away 1"],
        ),
        (
            "{ sql: \"SELECT a.k FROM a JOIN a AS other ON a.day >= other.day\" }".to_owned(),
            [4, 6, 10, 0],
            &["f.sql queried 6"],
        ),
        (
            "{ from: a, do: [ { future_rows: { horizon: 2d, every: 1d } } ] }".to_owned(),
            [4, 0, 4, 0],
            &[],
        ),
    ];
    for (step, rows, expected) in cases {
        let shop = shop();
        spec(&shop, step, "");
        let first = run(&shop, &[]).summary();
        assert_eq!(sum(&first), *rows, "{step}: {first}");
        assert_eq!(changes(&first), *expected, "{step}");
        // Committed results keep their counts.
        let again = run(&shop, &[]).summary();
        assert_eq!(again["nothing_new"], json!(true), "{step}");
        assert_eq!(
            first["outputs"][0]["changes"],
            again["outputs"][0]["changes"]
        );
        assert_eq!(sum(&again), *rows, "{step}, once more");
        let workers = run(&shop, &["--state=other", "--local-workers=1"]).summary();
        if step.contains("sql") {
            // Workers read for themselves, and a text format does not tell its rows.
            let rows = rows[2];
            assert_eq!(changes(&workers), [format!("f.sql uncounted {rows}")]);
        } else {
            assert_eq!(sum(&workers), *rows, "{step}, on a worker");
        }
    }
}

#[test]
fn parts_and_intervals_are_counted() {
    let shop = shop();
    let steps = "{ from: a, do: [ { dedupe: { keys: [k, day] } }, { filter: \"k < 3\" } ] }";
    spec(&shop, steps, "split: train, ");
    let part = run(&shop, &[]).summary();
    assert_eq!(sum(&part), [4, 0, 2, 2]);
    assert_eq!(changes(&part), ["f.filter filtered 1", " other_part 1"]);
    let shop = self::shop();
    spec(&shop, "{ from: a, do: [ { filter: \"k < 3\" } ] }", "");
    let night = run(&shop, &["--interval", "2024-01-02", "2024-01-04"]).summary();
    let [rows_in, _, rows_out, removed] = sum(&night);
    assert_eq!(rows_out, 2, "{night}");
    assert_eq!(rows_in, rows_out + removed, "{night}");
}

#[test]
fn the_sum_is_shown_to_people_and_to_prometheus() {
    let shop = shop();
    let steps = "{ from: a, do: [ { cast: { columns: { s: int32 }, on_error: missing } }, { dedupe: { keys: [k] } } ] }";
    spec(&shop, steps, "");
    let arguments = [
        "run",
        "spec.yaml",
        "--metrics-file=metrics.prom",
        "--report=page.html",
    ];
    let shown = shop.forebay(&arguments).expect(0).stdout;
    let line = "  4 rows in - 1 duplicates dropped (f.dedupe) = 3 out\n";
    assert!(shown.contains(line), "{shown}");
    let line = "  `s`: 2 made null (f.cast)\n";
    assert!(shown.contains(line), "{shown}");
    assert!(shown.contains("(gather): 4 rows in, 3 gathered"), "{shown}");
    let metrics = std::fs::read_to_string(shop.path("metrics.prom")).unwrap();
    for sample in [
        "reason=\"in\",sink=\"t\",step=\"\"} 4\n",
        "reason=\"duplicate\",sink=\"t\",step=\"f.dedupe\"} 1\n",
        "reason=\"nulled\",sink=\"t\",step=\"f.cast\"} 2\n",
        "reason=\"out\",sink=\"t\",step=\"\"} 3\n",
    ] {
        assert!(metrics.contains(sample), "{sample}: {metrics}");
    }
    let page = std::fs::read_to_string(shop.path("page.html")).unwrap();
    for text in ["Rows of t", "duplicates dropped", "values made null"] {
        assert!(page.contains(text), "{text}");
    }
}
