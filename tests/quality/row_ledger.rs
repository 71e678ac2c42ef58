//! Rows are counted: what each step removes, adds or changes is in the summary, and the sum holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, ListBuilder, RecordBatch, StringArray,
    StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type};
use arrow::util::display::array_value_to_string;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use crate::limits::memory::TRANSFORMS;
use crate::support::{ProgramOutput, TestDirectory, has_pyarrow};

const ROWS: &str =
    "k,x,s,day\n1,1,7,2024-01-01\n1,2,b,2024-01-02\n2,3,x,2024-01-03\n3,,9,2024-01-04\n";
const OTHERS: &str = "k,y\n1,10\n1,11\n2,12\n4,13\n";
const EVENTS: &str = "k,day,e\n1,2024-01-02,5\n2,2024-01-02,\n3,2024-01-06,7\n";
const NAMES: &str = "k,name\n1,one\n2,two\n";

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.write("a.csv", ROWS);
    shop.write("b.csv", OTHERS);
    shop.write("c.csv", NAMES);
    shop.write("d.csv", EVENTS);
    shop
}

/// A spec with this step and this sink.
fn spec(shop: &TestDirectory, step: &str, sink: &str) {
    let text = format!(
        "version: 1\nname: test\nsources:\n  a: {{ csv: {{ path: a.csv }}, time: day, keys: [k] }}\n  \
         b: {{ csv: {{ path: b.csv }} }}\n  c: {{ csv: {{ path: c.csv }} }}\n  \
         d: {{ csv: {{ path: d.csv }}, time: day, keys: [k] }}\nsteps:\n  f: {step}\n\
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

/// Windows over -1, -1, an infinity and 1, in the order of days.
const INFINITE_WINDOWS: &str = "{ derive: { h: \"1.0 / (k - 2)\" } }, \
     { rolling: { columns: [h], compute: [mean, std, max], over: [2], keys: [], gaps: count_rows } }, \
     { ewm: { columns: [h], compute: [std], alpha: 0.5, keys: [], gaps: count_rows, dtype: float32 } }";

/// The last two windows hold the infinity: it is their mean, and they have no deviation.
const INFINITE_WINDOW_CHANGES: [&str; 4] = [
    "f.derive made_not_finite h 1",
    "f.rolling made_not_finite h_mean_2 2",
    "f.rolling nulled h_std_2 2",
    "f.ewm nulled h_ewm_std_alpha0.5 2",
];

#[test]
fn every_step_reports_the_rows_and_values_that_it_changes() {
    let from_a = |steps: &str| format!("{{ from: a, do: [ {steps} ] }}");
    let deep = " + 1".repeat(80);
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
                "{ aggregate: { compute: { l: { list: { column: k, limit: 3, beyond: truncate } }, \
                 n: { count: k } } } }",
            ),
            [4, 0, 1, 3],
            &["f.aggregate grouped 3", "f.aggregate beyond_limit l 1"],
        ),
        // The weights of 1 sum to 0; 3 has no value.
        (
            from_a(
                "{ derive: { w: \"x * 2.0 - 3.0\" } }, \
                 { aggregate: { by: [k], compute: { m: { weighted_mean: { column: x, weight: w } } } } }",
            ),
            [4, 0, 3, 1],
            &["f.aggregate grouped 1", "f.aggregate nulled m 1"],
        ),
        (
            from_a(
                "{ derive: { h: \"x * 1e308\" } }, \
                 { aggregate: { compute: { n: { sum: h }, s: { mean: h }, m: { min: h } } } }",
            ),
            [4, 0, 1, 3],
            &[
                "f.derive made_not_finite h 2",
                "f.aggregate grouped 3",
                "f.aggregate made_not_finite n 1",
                "f.aggregate made_not_finite s 1",
            ],
        ),
        (
            from_a(
                "{ derive: { h: \"1.0 / (k - 2)\" } }, \
                 { aggregate: { by: [k], compute: { n: { sum: h }, s: { std: h }, m: { max: h } } } }",
            ),
            [4, 0, 3, 1],
            &[
                "f.derive made_not_finite h 1",
                "f.aggregate grouped 1",
                "f.aggregate made_not_finite n 1",
            ],
        ),
        (
            from_a("{ filter: \"x > 100\" }, { aggregate: { compute: { n: { count: x } } } }"),
            [4, 1, 1, 4],
            &["f.filter filtered 4", "f.aggregate empty_total 1"],
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
            &["f.join multiplied 2", "f.join no_match 1"],
        ),
        (
            from_a("{ join: { with: c, on: [k] } }"),
            [4, 0, 4, 0],
            &["f.join no_match 1"],
        ),
        (
            from_a("{ join: { with: c, on: [k], strategy: shuffle } }"),
            [4, 0, 4, 0],
            &["f.join no_match 1"],
        ),
        (
            from_a("{ join: { with: c, on: [k] } }, { filter: \"name IS NOT NULL\" }"),
            [4, 0, 3, 1],
            &["f.join no_match 1", "f.filter filtered 1"],
        ),
        (
            from_a("{ as_of_join: { with: d, on: [k], tolerance: 1d } }"),
            [4, 0, 4, 0],
            &["f.as_of_join no_match 2"],
        ),
        (
            from_a("{ as_of_join: { with: d, on: [k], direction: nearest, tolerance: 1d } }"),
            [4, 0, 4, 0],
            &["f.as_of_join no_match 1"],
        ),
        (
            from_a("{ fill_forward: { columns: [x], keys: [] } }"),
            [4, 0, 4, 0],
            &["f.fill_forward imputed x 1"],
        ),
        (
            from_a("{ fill_forward: { columns: [x], keys: [], suffix: _filled } }"),
            [4, 0, 4, 0],
            &["f.fill_forward imputed x_filled 1"],
        ),
        (
            from_a(
                "{ derive: { y: \"CASE WHEN s <> 'b' THEN x END\" } }, { interpolate: { columns: [y], keys: [] } }",
            ),
            [4, 0, 4, 0],
            &["f.interpolate imputed y 1"],
        ),
        (
            from_a(
                "{ ordinal: { columns: [s], categories: [b, x], unknown: missing, suffix: _id } }",
            ),
            [4, 0, 4, 0],
            &["f.ordinal nulled s_id 2"],
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
            from_a("{ derive: { i: \"try_cast(s as int) * 2\" } }"),
            [4, 0, 4, 0],
            &["f.derive nulled i 2"],
        ),
        (
            from_a("{ derive: { i: \"coalesce(try_cast(s as int), 0)\" } }"),
            [4, 0, 4, 0],
            &["f.derive nulled try_cast(s as int32) 2"],
        ),
        (
            from_a("{ derive: { i: \"CASE WHEN k = 1 THEN try_cast(s as int) END\" } }"),
            [4, 0, 4, 0],
            &["f.derive nulled try_cast(s as int32) 1"],
        ),
        (
            from_a("{ derive: { i: \"try_cast(k * 100 as tinyint) IS NULL\" } }"),
            [4, 0, 4, 0],
            &["f.derive nulled try_cast(k * Int64(100) as int8) 2"],
        ),
        (
            from_a("{ derive: { x: \"coalesce(x, 0)\", i: \"ifnull(try_cast(s as int), k)\" } }"),
            [4, 0, 4, 0],
            &[
                "f.derive imputed x 1",
                "f.derive nulled try_cast(s as int32) 2",
            ],
        ),
        // The column is null in no row.
        (
            from_a("{ derive: { i: \"try_cast(s as int) = 7 OR k < 3\" } }"),
            [4, 0, 4, 0],
            &["f.derive nulled try_cast(s as int32) 2"],
        ),
        (
            from_a(&format!(
                "{{ derive: {{ i: \"try_cast(s as int){deep}\" }} }}"
            )),
            [4, 0, 4, 0],
            &["f.derive nulled i 2"],
        ),
        (
            from_a(&format!(
                "{{ derive: {{ i: \"coalesce(try_cast(s as int), 0){deep}\" }} }}"
            )),
            [4, 0, 4, 0],
            &["f.derive nulled try_cast(s as int32) 2"],
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
            from_a("{ vocabulary: { columns: [k], top_k: 1 } }"),
            [4, 0, 4, 0],
            &["f.vocabulary unknown k 2"],
        ),
        (
            from_a("{ vocabulary: { columns: [s], top_k: 1, oov_buckets: 3, suffix: _id } }"),
            [4, 0, 4, 0],
            &["f.vocabulary unknown s_id 3"],
        ),
        // The only token has the id of the others, too.
        (
            from_a("{ vocabulary: { columns: [k], top_k: 1, default: 0, dtype: int32 } }"),
            [4, 0, 4, 0],
            &["f.vocabulary unknown k 2"],
        ),
        (
            from_a("{ ordinal: { columns: [s], categories: [b, x], unknown: { value: 1 } } }"),
            [4, 0, 4, 0],
            &["f.ordinal unknown s 2"],
        ),
        (
            from_a("{ one_hot: { columns: [s], categories: [b, x] } }"),
            [4, 0, 4, 0],
            &["f.one_hot unknown s 2"],
        ),
        (
            from_a("{ one_hot: { columns: [s], categories: [b, x], as: columns } }"),
            [4, 0, 4, 0],
            &["f.one_hot unknown s_b 2"],
        ),
        (
            from_a("{ one_hot: { columns: [k], columns_max: 1, as: columns } }"),
            [4, 0, 4, 0],
            &["f.one_hot unknown k_0 2"],
        ),
        (
            from_a("{ multi_hot: { columns: [s], delimiter: \"|\", categories: [\"7\"] } }"),
            [4, 0, 4, 0],
            &["f.multi_hot unknown s 3"],
        ),
        (
            from_a("{ group_rare: { columns: [k], min_count: 2 } }"),
            [4, 0, 4, 0],
            &["f.group_rare unknown k 2"],
        ),
        (
            from_a("{ frequency_encoding: { columns: [k], min_count: 2 } }"),
            [4, 0, 4, 0],
            &["f.frequency_encoding unknown k 2"],
        ),
        (
            from_a("{ derive: { h: \"x / 2.0\" } }, { cast: { columns: { h: int64 } } }"),
            [4, 0, 4, 0],
            &["f.cast fraction_cut h 2"],
        ),
        (
            from_a("{ derive: { h: \"k - 2.5\" } }, { log1p: { columns: [h] } }"),
            [4, 0, 4, 0],
            &["f.log1p made_not_finite h 2"],
        ),
        (
            from_a(
                "{ derive: { z: \"x - 1\" } }, { pct_change: { columns: [z], by: [1], gaps: count_rows } }",
            ),
            [4, 0, 4, 0],
            &["f.pct_change made_not_finite z_pct_change_1 1"],
        ),
        (
            from_a(
                "{ derive: { z: \"x * 0\" } }, { pct_change: { columns: [z], by: [1], gaps: count_rows } }",
            ),
            [4, 0, 4, 0],
            &["f.pct_change nulled z_pct_change_1 1"],
        ),
        (
            from_a(
                "{ derive: { z: \"CASE WHEN k = 1 THEN -9223372036854775807 ELSE 9223372036854775807 END\" } }, \
                 { diff: { columns: [z], by: [1], keys: [], gaps: count_rows } }",
            ),
            [4, 0, 4, 0],
            &["f.diff nulled z_diff_1 1"],
        ),
        (
            from_a(INFINITE_WINDOWS),
            [4, 0, 4, 0],
            &INFINITE_WINDOW_CHANGES,
        ),
        (
            from_a("{ derive: { q: \"1.0 / (k - 2)\" } }"),
            [4, 0, 4, 0],
            &["f.derive made_not_finite q 1"],
        ),
        (
            from_a(
                "{ derive: { lat: \"k * 45.5\" } }, { distance: { from: [lat, k], to: [k, k], name: km, bearing: b } }",
            ),
            [4, 0, 4, 0],
            &[
                "f.distance made_not_finite km 2",
                "f.distance made_not_finite b 2",
            ],
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
        assert_eq!(sum(&workers), *rows, "{step}, on a worker");
        assert_eq!(changes(&workers), *expected, "{step}, on a worker");
    }
}

/// Of the part that is learned from, the last rows show none of their values; new rows do not either.
#[test]
fn values_that_no_learned_row_had_are_counted() {
    let shop = TestDirectory::new();
    shop.write(
        "rows.csv",
        "k,x,day\na,1,2024-01-01\nb,2,2024-01-02\nc,3,2024-01-03\nd,4,2024-01-04\n",
    );
    shop.write(
        "new.csv",
        "k,x,day\na,5,2024-01-05\ne,6,2024-01-05\nc,,2024-01-06\n",
    );
    let columns = "columns: { k: string, x: float64, day: date }";
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: test\nsources: {{ a: {{ csv: {{ path: rows.csv, {columns} }} }} }}\n\
             split: {{ train: \"day < DATE '2024-01-03'\", validation: \"day >= DATE '2024-01-03'\" }}\n\
             steps:\n  f: {{ from: a, fit_on: train, do: [ {{ max_abs: {{ columns: [x], by: [k] }} }}, {{ \
             vocabulary: {{ columns: [k] }} }} ] }}\n\
             sinks: {{ t: {{ from: f, parquet: {{ path: out }} }} }}\n"
        ),
    );
    let learned = run(&shop, &[]).summary();
    assert_eq!(
        changes(&learned),
        ["f.max_abs unknown x 2", "f.vocabulary unknown k 2"]
    );
    let again = ["run", "spec.yaml", "--state=other"];
    let text = shop.forebay(&again).expect(0).stdout;
    let line = "  `k`: 2 neither learned nor listed (f.vocabulary)\n";
    assert!(text.contains(line), "{text}");
    let artifact = learned["artifact_path"].as_str().unwrap();
    let words = [
        "apply",
        artifact,
        "--source=a=new.csv",
        "--output=applied",
        "--json",
    ];
    let applied = shop.forebay(&words).expect(0).summary();
    // A missing value has no key to be learned.
    assert_eq!(
        changes(&applied),
        ["f.max_abs unknown x 1", "f.vocabulary unknown k 2"]
    );
}

/// Squares of equal steps have a short tail below: rows beyond its end, and of a new item.
#[test]
fn values_beyond_what_was_learned_are_counted() {
    let shop = TestDirectory::new();
    let mut rows = "k,x,part\n".to_owned();
    for row in 0..200 {
        let share = f64::from(row) / 200.0;
        rows += &format!("a,{},1\n", share * share);
    }
    shop.write("rows.csv", &(rows + "b,-5,2\na,-6,2\n"));
    let steps = "{ g_and_h: { columns: [x], suffix: _normal } }, { spline: { columns: [x], suffix: _curve } }, \
                 { normal_quantiles: { columns: [x], suffix: _rank } }, { bucketize: { columns: [x], q: 4, by: [k] } }";
    let expected = [
        "f.g_and_h clipped x_normal 2",
        "f.spline clipped x_curve 2",
        "f.normal_quantiles clipped x_rank 2",
        "f.bucketize unknown x 1",
    ];
    check_learned_part(&shop, "", steps, &expected);
}

/// A target of a series that was not learned takes the numbers of the others.
#[test]
fn targets_of_series_that_were_not_learned_are_counted() {
    let shop = TestDirectory::new();
    let mut rows = "k,day,x,part\n".to_owned();
    for day in 1..=9 {
        rows += &format!("a,2024-01-0{day},{day},1\n");
    }
    shop.write("rows.csv", &(rows + "b,2024-01-09,3,2\na,2024-01-10,4,2\n"));
    let steps = "{ target: { column: x, do: [{ scale: robust }] } }";
    let expected = ["f.target unknown 1"];
    check_learned_part(&shop, ", time: day, keys: [k]", steps, &expected);
}

/// Runs steps that learn from the rows with `part = 1`, and compares the changes of all rows.
fn check_learned_part(shop: &TestDirectory, source: &str, steps: &str, expected: &[&str]) {
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: test\nsources: {{ a: {{ csv: {{ path: rows.csv }}{source} }} }}\n\
             split: {{ train: \"part = 1\", validation: \"part = 2\" }}\n\
             steps:\n  f: {{ from: a, fit_on: train, do: [ {steps} ] }}\n\
             sinks: {{ t: {{ from: f, parquet: {{ path: out }} }} }}\n"
        ),
    );
    let summary = run(shop, &[]).summary();
    assert_eq!(changes(&summary), expected);
}

#[test]
fn casts_of_queries_are_named_since_they_count_nothing() {
    let shop = shop();
    let query = "SELECT k, try_cast(s AS int) AS n FROM a WHERE try_cast(s AS double) IS NULL";
    spec(&shop, &format!("{{ sql: \"{query}\" }}"), "");
    let named =
        "`f.sql` computes `try_cast(a.s as int32)`: values that it turns to null are not counted";
    let summary = run(&shop, &[]).summary();
    assert_eq!(changes(&summary), ["f.sql queried_away 2"]);
    let warnings = summary["warnings"].to_string();
    assert!(warnings.contains(named), "{summary}");
    // A condition removes rows, which are counted.
    assert!(!warnings.contains("float64"), "{summary}");
    let checked = shop.forebay(&["check", "spec.yaml"]).expect(0).stderr;
    assert!(checked.contains(named), "{checked}");
}

/// Rows that are out of order are sorted before their windows are computed.
#[test]
fn windows_over_sorted_rows_count_as_others_do() {
    let shop = shop();
    let mut lines: Vec<&str> = ROWS.lines().collect();
    lines[1..].reverse();
    shop.write("a.csv", &(lines.join("\n") + "\n"));
    let step = format!("{{ from: a, do: [ {INFINITE_WINDOWS} ] }}");
    spec(&shop, &step, "");
    let summary = run(&shop, &[]).summary();
    assert_eq!(sum(&summary), [4, 0, 4, 0], "{summary}");
    assert_eq!(changes(&summary), INFINITE_WINDOW_CHANGES);
    let workers = run(&shop, &["--state=other", "--local-workers=1"]).summary();
    assert_eq!(changes(&workers), INFINITE_WINDOW_CHANGES, "on a worker");
}

/// Steps of transforms that need other settings than in [`TRANSFORMS`] to change rows or values, or to take nulls.
const HOSTILE_STEPS: &[(&str, &str)] = &[
    (
        "command",
        "{ command: { run: [cat], columns: [x], returns: { x: float64 }, nullable: [x] } }",
    ),
    ("dedupe", "{ dedupe: { keys: [series] } }"),
    (
        "estimator",
        "{ estimator: { function: Count, columns: [x], returns: { x: float64 }, nullable: [x], frames: arrow, code: \
         \"class Count:\\n  rows = 0\\n  def partial_fit(self, batch):\\n    self.rows += batch.num_rows\\n  \
         def transform(self, batch):\\n    return batch['x']\" } }",
    ),
    (
        "expect",
        "{ expect: [{ not_null: [word], policy: quarantine, at_most: 50% }] }",
    ),
    (
        "ordinal",
        "{ ordinal: { columns: [word], categories: [w1, w2], unknown: missing } }",
    ),
    // Of a difference, the first rows have no target.
    (
        "target",
        "{ target: { column: x, do: [{ scale: robust }] } }",
    ),
    (
        "python",
        "{ python: { function: f, columns: [x], returns: { x: float64 }, nullable: [x], code: \"def f(batch): return \
         batch['x']\" } }",
    ),
];

/// Transforms that give other values to all rows: the new values are what they are for. Values that become null or are no
/// longer finite are counted all the same.
const REWRITING: &[&str] = &[
    "apply_buckets",
    "bag_of_tokens",
    "bucketize",
    "frequency_encoding",
    "g_and_h",
    "group_rare",
    "hash_bucket",
    "k_bins",
    "log1p",
    "max_abs",
    "min_max",
    "multi_hot",
    "ngrams",
    "normal_quantiles",
    "normalize",
    "normalize_text",
    "one_hot",
    "ordinal",
    "power",
    "quantiles",
    "robust_scale",
    "spline",
    "standardize",
    "target",
    "target_encoding",
    "tf_idf",
    "vocabulary",
];

/// Rows with nulls, negative numbers, numbers that are no latitude, and equal words.
fn hostile_rows(shop: &TestDirectory) -> RecordBatch {
    const ROWS: i64 = 40;
    let x = |row: i64| match row % 8 {
        0 => None,
        1 => Some(-2.5),
        2 => Some(0.0),
        3 => Some(95.0),
        4 => Some(1000.0),
        _ => Some(row as f64 / 10.0),
    };
    let word = |row: i64| (row % 7 != 0).then(|| format!("w{}", row % 5));
    let mut list = ListBuilder::new(StringBuilder::new());
    for row in 0..ROWS {
        list.append_value([Some(format!("a{}", row % 3)), Some("b".to_owned())]);
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                (0..ROWS).map(|row| row * 3_600_000_000),
            )),
        ),
        (
            "series",
            Arc::new(StringArray::from_iter_values(
                (0..ROWS).map(|row| format!("s{}", row % 4)),
            )),
        ),
        (
            "word",
            Arc::new((0..ROWS).map(word).collect::<StringArray>()),
        ),
        ("n", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        ("x", Arc::new((0..ROWS).map(x).collect::<Float64Array>())),
        ("list", Arc::new(list.finish())),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let file = std::fs::File::create(shop.path("rows.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    batch
}

/// True for a number that is NaN or infinite.
fn is_not_finite(column: &ArrayRef, row: usize) -> bool {
    match column.data_type() {
        DataType::Float32 => !column.as_primitive::<Float32Type>().value(row).is_finite(),
        DataType::Float64 => !column.as_primitive::<Float64Type>().value(row).is_finite(),
        _ => false,
    }
}

/// Changes of the values of a column that rows with the same ids show.
fn seen_changes(
    column_before: &ArrayRef,
    column_after: &ArrayRef,
    pairs: &[(usize, usize)],
) -> BTreeMap<&'static str, u64> {
    let mut changes = BTreeMap::new();
    let same_type = column_before.data_type() == column_after.data_type();
    for (row_before, row) in pairs {
        let was_valid = column_before.is_valid(*row_before);
        let is_valid = column_after.is_valid(*row);
        let change = match (was_valid, is_valid) {
            (true, false) => Some("nulled"),
            (false, true) => Some("imputed"),
            (true, true) if is_not_finite(column_after, *row) => Some("made_not_finite"),
            (true, true) if same_type => {
                let value_before = array_value_to_string(column_before, *row_before).unwrap();
                let value = array_value_to_string(column_after, *row).unwrap();
                (value_before != value).then_some("moved")
            }
            _ => None,
        };
        if let Some(change) = change {
            *changes.entry(change).or_default() += 1;
        }
    }
    changes
}

/// The changes of a column in the ledger. Those to another value count as one.
fn ledger_changes(summary: &Value, column: &str) -> BTreeMap<&'static str, u64> {
    let mut changes = BTreeMap::new();
    let entries = summary["outputs"][0]["changes"].as_array();
    for entry in entries.into_iter().flatten() {
        if entry["column"] != column {
            continue;
        }
        let change = match entry["change"].as_str().unwrap() {
            // Rows do not show which values a step has learned.
            "unknown" => continue,
            "nulled" => "nulled",
            "imputed" => "imputed",
            "made_not_finite" => "made_not_finite",
            _ => "moved",
        };
        *changes.entry(change).or_default() += entry["count"].as_u64().unwrap();
    }
    changes
}

/// Every transform of the reference, new ones among them: where a row keeps its id, values of its columns that became
/// null, are no longer finite, were filled in or are others are in the ledger, by column.
#[test]
fn no_transform_changes_values_without_an_entry() {
    let shop = TestDirectory::new();
    let rows = hostile_rows(&shop);
    for (name, step) in TRANSFORMS {
        if ["estimator", "python"].contains(name) && !has_pyarrow() {
            continue;
        }
        let hostile = HOSTILE_STEPS.iter().find(|(other, _)| other == name);
        let step = hostile.map_or(*step, |(_, step)| *step);
        let spec = format!(
            "version: 1\nname: job\nsources:\n  rows: {{ parquet: {{ path: rows.parquet }}, time: time, keys: [series] }}\n\
             steps:\n  small: {{ from: rows, do: [{{ filter: \"n < 20\" }}, {{ select: [n, word] }}, {{ rename: {{ word: joined }} }}] }}\n\
             \x20 f: {{ from: rows, do: [{step}] }}\nsinks: {{ t: {{ from: f, parquet: {{ path: out }} }} }}\n"
        );
        shop.write("spec.yaml", &spec);
        let summary = run(&shop, &[&format!("--state=state_{name}")]).summary();
        let [rows_in, added, rows_out, removed] = sum(&summary);
        assert_eq!(rows_in + added, rows_out + removed, "{name}: {summary}");
        let written = shop.rows("out");
        shop.remove_output("out");
        assert_eq!(written.num_rows() as u64, rows_out, "{name}");
        let Some(ids) = written.column_by_name("id").filter(|_| added == 0) else {
            continue;
        };
        // The id of a row of the source is its number.
        let ids = ids.as_primitive::<Int64Type>().values().iter();
        let pairs: Vec<(usize, usize)> = ids
            .enumerate()
            .map(|(row, id)| (*id as usize, row))
            .collect();
        for (field, column_before) in rows.schema().fields().iter().zip(rows.columns()) {
            let Some(column_after) = written.column_by_name(field.name()) else {
                continue;
            };
            let mut seen = seen_changes(column_before, column_after, &pairs);
            let mut counted = ledger_changes(&summary, field.name());
            if REWRITING.contains(name) {
                seen.remove("moved");
                seen.remove("imputed");
                // Some of the new values are ends of what was learned.
                counted.remove("moved");
            }
            assert_eq!(seen, counted, "`{}` of {name}: {summary}", field.name());
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
fn intervals_of_a_backfill_have_their_sums() {
    let shop = shop();
    let steps =
        "{ from: a, do: [ { filter: \"k < 3\" }, { clip: { columns: [x], min: 2, max: 2 } } ] }";
    spec(&shop, steps, "");
    let period = [
        "backfill",
        "spec.yaml",
        "--from=2024-01-02",
        "--to=2024-01-04",
    ];
    let text = shop.forebay(&period).expect(0).stdout;
    let lines = "2024-01-02 .. 2024-01-03: 1 row\n  t:\n  4 rows in - ";
    assert!(text.contains(lines), "{text}");
    assert!(text.contains("outside of the interval = 1 out\n"), "{text}");
    assert!(text.contains("moved to a bound (f.clip)\n"), "{text}");
    let again = [&period[..], &["--state=other", "--json"]].concat();
    let shop = self::shop();
    spec(&shop, steps, "");
    let summary = shop.forebay(&again).expect(0).summary();
    let intervals = summary["intervals"].as_array().unwrap();
    assert_eq!(intervals.len(), 2, "{summary}");
    for interval in intervals {
        let [rows_in, added, rows_out, removed] = sum(interval);
        assert_eq!(rows_in + added, rows_out + removed, "{interval}");
        assert_eq!(rows_out, interval["rows"].as_u64().unwrap());
        assert!(!changes(interval).is_empty(), "{interval}");
    }
}

/// Three columns, two sources and several spans of rows: values are counted by column, with the first of them.
#[test]
fn values_that_a_source_reads_as_null_are_counted_with_the_first_of_them() {
    let shop = TestDirectory::new();
    let mut text = "k,x,day\n".to_owned();
    for row in 0..5000 {
        let x = if row % 1000 == 999 { "n\"/a" } else { "1" };
        text += &format!(
            "{row},\"{}\",2024-01-0{}\n",
            x.replace('"', "\"\""),
            row % 9 + 1
        );
    }
    shop.write("a.csv", &(text + "9,8,x\n"));
    shop.write(
        "b.jsonl",
        "{\"k\":1,\"y\":1}\n{\"k\":2,\"y\":\"?\"}\n{\"k\":3,\"y\":[2]}\n",
    );
    shop.write(
        "spec.yaml",
        "version: 1\nname: test\nsources:\n  a: { csv: { path: a.csv, infer_rows: 10, on_error: missing } }\n  \
         b: { json: { path: b.jsonl, infer_rows: 1, on_error: { y: missing } } }\nsinks:\n  \
         t: { from: a, parquet: { path: out } }\n  u: { from: b, parquet: { path: other } }\n",
    );
    let summary = run(&shop, &[]).summary();
    let entries = |output: usize| {
        summary["outputs"][output]["changes"]
            .as_array()
            .unwrap()
            .clone()
    };
    let shown = |entry: &Value| {
        let examples = entry["examples"].as_array().unwrap().iter();
        let examples: Vec<String> = examples
            .map(|example| {
                let file = example["file"].as_str().unwrap();
                let file = file.rsplit('/').next().unwrap();
                format!(
                    "{} {} {file}",
                    example["value"].as_str().unwrap(),
                    example["row"]
                )
            })
            .collect();
        let column = entry["column"].as_str().unwrap();
        let step = entry["step"].as_str().unwrap();
        format!(
            "{step} {column} {}: {}",
            entry["count"],
            examples.join(", ")
        )
    };
    let all: Vec<String> = entries(0).iter().map(shown).collect();
    assert_eq!(
        all,
        [
            "a x 5: n\"/a 999 a.csv, n\"/a 1999 a.csv, n\"/a 2999 a.csv",
            "a day 1: x 5000 a.csv",
        ]
    );
    let others: Vec<String> = entries(1).iter().map(shown).collect();
    assert_eq!(others, ["b y 2: ? 1 b.jsonl, [2] 2 b.jsonl"]);
    let text = shop.forebay(&["run", "spec.yaml"]).expect(0).stdout;
    assert!(
        text.contains("`x`: 5 made null (a), such as `n\\\"/a` in row 999 of "),
        "{text}"
    );
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

/// Rows to learn from and to validate on, some without a price and one with an infinite weight.
fn training_shop() -> TestDirectory {
    let shop = TestDirectory::new();
    let mut text = "day,y,price,w\n".to_owned();
    for row in 0..300 {
        let price = if row % 10 == 0 {
            String::new()
        } else {
            (row % 7).to_string()
        };
        let weight = if row == 5 { "inf" } else { "1" };
        text += &format!("2024-01-{:02},{},{price},{weight}\n", row / 10 + 1, row % 5);
    }
    shop.write("rows.csv", &text);
    shop
}

/// The changes of a training, its rows to learn from, and the changes of its validation.
fn training_changes(
    shop: &TestDirectory,
    training: &str,
    options: &[&str],
) -> (Value, ProgramOutput) {
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: t\nsources: {{ r: {{ csv: {{ path: rows.csv, columns: {{ day: date, y: int64, price: float64, w: float64 }} }} }} }}\n\
             split: {{ train: \"day < DATE '2024-01-21'\", validation: \"day >= DATE '2024-01-21'\" }}\n\
             sinks: {{ net: {{ from: r, train: {{ path: net, label: y, dense: [{training} }} }} }}\n"
        ),
    );
    let output = run(shop, options);
    (output.summary()["models"][0].clone(), output)
}

#[test]
fn trainings_count_the_values_and_rows_that_they_change() {
    let network = "price], missing: 0, epochs: 3, model: linear";
    let imputed = |step: &str, count: u64| json!([{ "step": step, "column": "price", "change": "imputed", "count": count }]);
    let shop = training_shop();
    let (model, _) = training_changes(&shop, network, &[]);
    assert_eq!(
        (&model["rows"], &model["changes"]),
        (&json!(200), &imputed("net", 20))
    );
    assert_eq!(model["validation_changes"], imputed("net.validation", 10));
    // The counts are those of the model, by whatever run.
    let (again, output) = training_changes(&shop, network, &[]);
    assert_eq!(
        (&again["reused"], &again["changes"]),
        (&json!(true), &model["changes"])
    );
    let passes = output.summary()["passes"].clone();
    let trained = passes
        .as_array()
        .unwrap()
        .iter()
        .find(|pass| pass["work"] == "train")
        .unwrap();
    assert_eq!(trained["changes"], model["changes"]);
    let (workers, _) = training_changes(&shop, network, &["--state=other", "--local-workers=1"]);
    assert_eq!(workers["changes"], model["changes"]);
    let arguments = [
        "run",
        "spec.yaml",
        "--metrics-file=metrics.prom",
        "--report=page.html",
    ];
    let text = shop.forebay(&arguments).expect(0).stdout;
    for line in [
        "  `price`: 20 filled in (net)\n",
        "  `price`: 10 filled in (net.validation)\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let metrics = std::fs::read_to_string(shop.path("metrics.prom")).unwrap();
    for sample in [
        "reason=\"imputed\",sink=\"net\",step=\"net\"} 20\n",
        "reason=\"imputed\",sink=\"net.validation\",step=\"net.validation\"} 10\n",
        "reason=\"out\",sink=\"net\",step=\"\"} 200\n",
    ] {
        assert!(metrics.contains(sample), "{sample}: {metrics}");
    }
    let page = std::fs::read_to_string(shop.path("page.html")).unwrap();
    for text in [
        "Rows of net",
        "Rows of net (validation)",
        "values filled in",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn trainings_count_the_rows_that_they_leave_out() {
    let change =
        |change: &str, count: u64| json!({ "step": "net", "change": change, "count": count });
    for (training, expected) in [
        (
            "price], weight: w, non_finite: skip, model: gbdt, rounds: 2",
            json!([change("not_finite", 1)]),
        ),
        (
            "price], weight: w, non_finite: zero, model: gbdt, rounds: 2",
            json!([change("zeroed", 1)]),
        ),
        (
            "price], model: gbdt, rounds: 2, sample_rows: 50",
            json!([change("unsampled", 150)]),
        ),
        (
            "price], missing: 0, weight: w, non_finite: skip, epochs: 2, model: linear",
            json!([change("not_finite", 1), { "step": "net", "column": "price", "change": "imputed", "count": 20 }]),
        ),
    ] {
        let (model, _) = training_changes(&training_shop(), training, &[]);
        assert_eq!(model["changes"], expected, "{training}");
        assert_eq!(model["rows"], 200, "{training}");
    }
}

#[test]
fn feeds_and_forecasts_count_the_values_that_they_fill() {
    let shop = training_shop();
    shop.write(
        "feed.yaml",
        "version: 1\nname: f\nsources: { r: { csv: { path: rows.csv, columns: { day: date, y: int64, price: float64, w: float64 } } } }\n\
         sinks: { t: { from: r, parquet: { path: out } } }\nfeed: { dense: [price], label: y, missing: 0, batch_rows: 128 }\n",
    );
    let fed = shop
        .forebay(&["feed", "feed.yaml", "--json", "--metrics-file=feed.prom"])
        .expect(0)
        .summary();
    assert_eq!(
        (&fed["filled"], &fed["dropped_rows"]),
        (&json!({ "price": 30 }), &json!(44))
    );
    let text = shop.forebay(&["feed", "feed.yaml"]).expect(0).stdout;
    assert!(
        text.contains("filled      30 missing values of `price`\n"),
        "{text}"
    );
    assert!(
        text.contains("left out    44 rows that do not fill a step"),
        "{text}"
    );
    let metrics = std::fs::read_to_string(shop.path("feed.prom")).unwrap();
    assert!(
        metrics.contains("feed_filled_values_total{pipeline=\"f\"} 30\n"),
        "{metrics}"
    );
    shop.demand("data", 2000);
    shop.write(
        "forecast.yaml",
        "version: 1\nname: p\nsources: { d: { parquet: { path: data }, time: date, keys: [store_id, item_id] } }\n\
         steps: { f: { from: d, do: [ { filter: \"qty IS NOT NULL\" }, { select: [store_id, item_id, date, qty] }, \
         { future_rows: { horizon: 7d, every: 1d } }, { lag: { columns: [qty], by: [400d, 7d] } } ] } }\n\
         label: { column: qty, horizon: 7d }\nsinks:\n  \
         net: { from: f, train: { path: net, model: linear, label: qty, missing: 0, epochs: 1, dense: [qty_lag_400d, qty_lag_7d] } }\n  \
         p: { from: f, predict: { model: net, where: future, path: forecast } }\n",
    );
    let forecast = shop
        .forebay(&["run", "forecast.yaml", "--json"])
        .expect(0)
        .summary()["forecasts"][0]
        .clone();
    let filled = forecast["changes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["column"] == "qty_lag_400d");
    let filled = filled.unwrap();
    assert_eq!(
        (&filled["change"], &filled["count"]),
        (&json!("imputed"), &forecast["rows"])
    );
    let text = shop.forebay(&["run", "forecast.yaml"]).expect(0).stdout;
    assert!(text.contains("`qty_lag_400d`: "), "{text}");
}

/// A query that does not read a file whose rows are not known says so.
#[test]
fn rows_that_a_query_did_not_read_are_told() {
    let shop = TestDirectory::new();
    shop.write("a.csv", "k,x\n1,1\n2,2\n");
    shop.write("b.csv", "k\n1\n2\n3\n");
    shop.write(
        "spec.yaml",
        "version: 1\nname: q\nsources: { a: { csv: { path: a.csv } }, b: { csv: { path: b.csv } } }\n\
         steps: { f: { sql: \"SELECT k FROM b WHERE (SELECT count(*) FROM a WHERE false) = 0\" } }\n\
         sinks: { t: { from: f, parquet: { path: out } } }\n",
    );
    let summary = run(&shop, &["--report=page.html"]).summary();
    assert_eq!(sum(&summary), [0, 3, 3, 0]);
    assert_eq!(changes(&summary), ["f.sql uncounted 3"]);
    let text = shop.forebay(&["run", "spec.yaml"]).expect(0).stdout;
    assert!(
        text.contains("the rows in are not known: a step ended before it had read files"),
        "{text}"
    );
    let page = std::fs::read_to_string(shop.path("page.html")).unwrap();
    assert!(page.contains("the rows in are not known"));
}

/// Rows without a time are left out of each interval, and would never be written.
#[test]
fn rows_without_a_time_are_told_where_an_interval_leaves_them_out() {
    let shop = TestDirectory::new();
    shop.write("a.csv", "k,day\n1,2024-01-01\n2,\n3,2024-01-03\n4,\n");
    let spec = |source: &str, output: &str| {
        let text = format!(
            "version: 1\nname: test\nsources: {{ a: {{ {source} }} }}\n\
             steps: {{ f: {{ from: a, do: [ {{ derive: {{ {output}_k: \"k + 1\" }} }} ] }} }}\n\
             sinks: {{ t: {{ from: f, parquet: {{ path: {output} }} }} }}\n"
        );
        shop.write("spec.yaml", &text);
    };
    spec("csv: { path: a.csv }", "rows");
    run(&shop, &[]);
    let rows = "parquet: { path: rows }, time: day, keys: [k]";
    spec(rows, "whole");
    let words = "2 rows of source `a` have no `day`, and so no interval";
    let whole = run(&shop, &["--state=whole.state"]).summary();
    assert_eq!(sum(&whole), [4, 0, 4, 0], "{whole}");
    assert!(!whole["warnings"].to_string().contains(words), "{whole}");
    spec(rows, "days");
    let days = [
        "--state=days.state",
        "--interval",
        "2024-01-01",
        "2024-01-03",
    ];
    let part = run(&shop, &days).summary();
    assert_eq!(sum(&part), [4, 0, 1, 3], "{part}");
    assert!(part["warnings"].to_string().contains(words), "{part}");
}
