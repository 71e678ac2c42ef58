//! Functions that are given whole series, in whole jobs: in any order of rows, in little memory and on workers.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Field, Float64Type};
use forebay::plan::{BindScope, PlanOp, SeriesOp};
use forebay::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::support::series::{self, DemandRow, FileOrder};
use crate::support::{ProgramOutput, TestDirectory};

/// The rows of a series that come later, and the sum of their quantities.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LaterRows {}

impl ConfiguredTransform for LaterRows {
    const NAME: &'static str = "later_rows";
}

impl Transform for LaterRows {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        Ok(vec![PlanOp::Series(SeriesOp {
            time: scope.series.time.clone(),
            keys: scope.series.keys.clone().unwrap_or_default(),
            reads: vec!["qty".to_owned()],
            writes: vec![
                Field::new("later", DataType::Float64, false),
                Field::new("rows_later", DataType::Int64, false),
            ],
            kernel: Arc::new(later_rows),
            looks_ahead: true,
            behind: None,
            code: None,
        })])
    }
}

fn later_rows(inputs: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
    let quantities = inputs[0].as_primitive::<Float64Type>();
    let mut sums = vec![0.0; rows];
    let mut sum = 0.0;
    for row in (0..rows).rev() {
        sums[row] = sum;
        if quantities.is_valid(row) && !quantities.value(row).is_nan() {
            sum += quantities.value(row);
        }
    }
    let counts = Int64Array::from_iter_values((0..rows as i64).rev());
    Ok(vec![Arc::new(Float64Array::from(sums)), Arc::new(counts)])
}

/// The sum and the number of the later rows of each row's series, by the ids of the rows.
fn expected_later(rows: &[DemandRow]) -> (Vec<Option<f64>>, Vec<Option<f64>>) {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| (row.day, row.id));
    let mut series: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    let mut later_sums: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for row in rows.iter().rev() {
        let (sum, count) = series.entry(row.series()).or_default();
        later_sums.insert(row.id, (*sum, *count));
        *count += 1.0;
        if let Some(qty) = row.qty.filter(|qty| !qty.is_nan()) {
            *sum += qty;
        }
    }
    let sums = later_sums.values().map(|(sum, _)| Some(*sum)).collect();
    let counts = later_sums.values().map(|(_, count)| Some(*count)).collect();
    (sums, counts)
}

fn later_spec(root: &str, out: &str) -> String {
    format!(
        "version: 1\nname: series\nsources:\n  demand:\n    parquet: {{ path: {root}/data }}\n    time: day\n    keys: \
         [store, item]\n    duplicates: allow\nsteps:\n  f:\n    from: demand\n    do:\n      - later_rows: {{}}\nsinks:\n  \
         t: {{ from: f, parquet: {{ path: {root}/{out} }} }}\n"
    )
}

#[test]
fn series_are_whole_in_any_order_of_rows() {
    let rows = series::demand(5, 90);
    let (sums, counts) = expected_later(&rows);
    for order in [
        FileOrder::Time,
        FileOrder::Key,
        FileOrder::Shuffled,
        FileOrder::Backward,
    ] {
        let shop = TestDirectory::new();
        series::write_in_order(&shop, "data", &rows, order, 7, 40);
        for threads in [1, 3] {
            let out = format!("out{threads}");
            let root = shop.at("");
            let mut forebay = Forebay::new();
            forebay.registry.register::<LaterRows>();
            let pipeline = forebay::spec::parse(
                &later_spec(&root, &out),
                "spec.yaml",
                &Default::default(),
                &forebay.spec_catalog(),
            )
            .unwrap();
            let options = SessionOptions {
                threads,
                memory_bytes: 1 << 30,
                batch_rows: 64,
                state: format!("{root}/state{threads}"),
                run_id: None,
            };
            let session = forebay.with_options(options).session();
            session.unwrap().run(&pipeline).unwrap();
            let written = shop.visible(&out);
            let case = format!("{order:?}, {threads} threads");
            // The rows stay where they are.
            let source = shop.rows("data");
            assert_eq!(
                written.column_by_name("id"),
                source.column_by_name("id"),
                "{case}"
            );
            let written = series::by_id(&written);
            assert_eq!(series::numbers(&written, "later"), sums, "{case}");
            assert_eq!(series::numbers(&written, "rows_later"), counts, "{case}");
        }
    }
}

/// A program that returns what it gets shows that rows come back to their places, also from disk and from workers.
#[test]
fn rows_of_series_come_back_to_their_places() {
    let step = "command: { run: [cat], columns: [qty, pad], by: series, returns: { qty: float64, pad: string }, nullable: \
                [qty] }";
    let random = series::demand(11, 90);
    let even = even_rows();
    let cases: [(&[DemandRow], usize, &[&str], bool); 3] = [
        (&random, 0, &["--threads=3"], false),
        (&even, 10_000, &["--threads=2", "--memory=64MiB"], true),
        (&random, 0, &["--local-workers=2", "--memory=512MiB"], false),
    ];
    for (rows, pad, options, spills) in cases {
        let shop = TestDirectory::new();
        write_shuffled(&shop, rows, pad);
        shop.write("spec.yaml", &spec(step, ""));
        let summary = run_divided(&shop, options);
        let spilled_bytes = summary["spilled_bytes"].as_u64().unwrap();
        assert!(!spills || spilled_bytes > 0, "{options:?}: {summary}");
        let written = shop.rows("out");
        let source = shop.rows("data");
        for column in ["id", "day", "store", "item"] {
            assert_eq!(
                written.column_by_name(column),
                source.column_by_name(column),
                "{options:?}"
            );
        }
        let quantities = series::numbers(&source, "qty");
        assert_eq!(series::numbers(&written, "qty"), quantities, "{options:?}");
    }
}

/// The summary of a run whose workers divide even few rows.
fn run_divided(shop: &TestDirectory, options: &[&str]) -> Value {
    call_divided(shop, options).expect(0).summary()
}

fn call_divided(shop: &TestDirectory, options: &[&str]) -> ProgramOutput {
    let args = [&["run", "spec.yaml", "--json"], options].concat();
    let mut command = shop.command(&args);
    let output = command.env("FOREBAY_RANGE_BYTES", "1000").output();
    ProgramOutput::from(output.unwrap())
}

/// True if the `python3` of the path has pandas and pyarrow.
fn has_pandas() -> bool {
    let status = Command::new("python3")
        .args(["-c", "import pandas, pyarrow"])
        .stderr(std::process::Stdio::null())
        .status();
    let has_pandas = status.is_ok_and(|status| status.success());
    if !has_pandas {
        let _ = writeln!(std::io::stderr(), "skipped: `python3` has no pandas");
    }
    has_pandas
}

/// A spec with this step, behind which the padding of rows is dropped.
fn spec(step: &str, rest: &str) -> String {
    format!(
        "version: 1\nname: series\nsources:\n  demand:\n    parquet: {{ path: data }}\n    time: day\n    keys: [store, \
         item]\n    duplicates: allow\nsteps:\n  f:\n    from: demand\n    do:\n      - {step}\n      - drop: [pad]\n{rest}\
         sinks:\n  t: {{ from: f, parquet: {{ path: out }} }}\n"
    )
}

/// Forty series of sixty days each.
fn even_rows() -> Vec<DemandRow> {
    let mut rows = Vec::new();
    for day in 0..60 {
        for item in 0..40 {
            rows.push(DemandRow {
                id: i64::from(day) * 40 + item,
                day: 16_000 + day,
                store: "a",
                item: Some(item),
                qty: Some(((i64::from(day) * 7 + item) % 9) as f64),
                units: None,
                open: None,
                price: 1.0,
            });
        }
    }
    rows
}

/// Writes rows without an order in files of several row groups, each row with so many bytes more.
fn write_shuffled(shop: &TestDirectory, rows: &[DemandRow], pad: usize) {
    let rows = series::rows_in_order(rows, FileOrder::Shuffled, 3);
    series::write(shop, "data", &series::table(&rows, pad), 7, 50);
}

const MODULE: &str = "\
def smooth(frame):
    assert frame['day'].is_monotonic_increasing
    qty = frame['qty']
    return {
        'mean': qty.rolling(3, min_periods=1).mean(),
        'share': qty / qty.sum(),
        'place': list(range(len(frame))),
    }
";

/// Compares what was written with pandas' `groupby`.
const COMPARISON: &str = "\
import glob
import pandas as pd

def rows(folder):
    files = sorted(glob.glob(folder + '/*.parquet'))
    return pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)

source, written = rows('data'), rows('out')
assert list(written['id']) == list(source['id'])
ordered = source.sort_values('day', kind='stable')
groups = ordered.groupby(['store', ordered['item'].fillna(-1)])
expected = pd.DataFrame({
    'mean': groups['qty'].transform(lambda qty: qty.rolling(3, min_periods=1).mean()),
    'share': groups['qty'].transform(lambda qty: qty / qty.sum()),
    'place': groups.cumcount(),
}).loc[source.index]
columns = ['mean', 'share', 'place']
pd.testing.assert_frame_equal(written[columns], expected, check_dtype=False, check_exact=True)
";

/// Runs a comparison, which fails where rows differ.
fn compare(shop: &TestDirectory, comparison: &str) {
    shop.write("compare.py", comparison);
    let compared = Command::new("python3")
        .arg("compare.py")
        .current_dir(shop.path(""))
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&compared.stderr);
    assert!(compared.status.success(), "{messages}");
}

/// The step of the function of the module.
const SMOOTH: &str = "python: { function: 'shapes:smooth', frames: pandas, columns: [day, qty, pad], by: series, returns: { mean: \
                      float64, share: float64, place: int64 }, nullable: [mean, share] }";

/// The results of series stay in the state directory where a run fails later.
#[test]
fn workers_take_no_results_of_other_code() {
    if !has_pandas() {
        return;
    }
    let shop = TestDirectory::new();
    write_shuffled(&shop, &series::demand(11, 90), 0);
    let checked =
        "python: { function: 'shapes:checked', columns: [place], returns: { place: int64 } }";
    shop.write(
        "spec.yaml",
        &spec(&format!("{SMOOTH}\n      - {checked}"), ""),
    );
    let failing = "\ndef checked(batch):\n    raise ValueError('not yet')\n";
    shop.write("shapes.py", &format!("{MODULE}{failing}"));
    let options = ["--local-workers=2", "--memory=512MiB"];
    let refused = call_divided(&shop, &options).expect(65);
    let messages = format!("{}{}", refused.stdout, refused.stderr);
    assert!(messages.contains("not yet"), "{messages}");
    let module = MODULE.replace("rolling(3", "rolling(4");
    let passing = "\ndef checked(batch):\n    return batch['place']\n";
    shop.write("shapes.py", &format!("{module}{passing}"));
    run_divided(&shop, &options);
    compare(&shop, &COMPARISON.replace("rolling(3", "rolling(4"));
}

#[test]
fn a_function_of_python_is_given_whole_series() {
    if !has_pandas() {
        return;
    }
    // The rows, the bytes by which each is larger, options, and whether rows are spilled.
    let random = series::demand(11, 90);
    let even = even_rows();
    let cases: [(&[DemandRow], usize, &[&str], bool); 4] = [
        (&random, 0, &["--threads=1"], false),
        (&random, 0, &["--threads=4"], false),
        (&even, 10_000, &["--threads=2", "--memory=64MiB"], true),
        (&random, 0, &["--local-workers=2", "--memory=512MiB"], false),
    ];
    for (rows, pad, options, spills) in cases {
        let shop = TestDirectory::new();
        write_shuffled(&shop, rows, pad);
        shop.write("shapes.py", MODULE);
        shop.write("spec.yaml", &spec(SMOOTH, ""));
        let summary = run_divided(&shop, options);
        let spilled_bytes = summary["spilled_bytes"].as_u64().unwrap();
        assert!(!spills || spilled_bytes > 0, "{options:?}: {summary}");
        compare(&shop, COMPARISON);
        // Another function computes them again.
        let written = shop.visible("out");
        shop.write("shapes.py", &MODULE.replace("rolling(3", "rolling(4"));
        run_divided(&shop, options);
        let changed = shop.visible("out");
        for (column, is_changed) in [("id", false), ("mean", true), ("share", false)] {
            assert_eq!(
                changed.column_by_name(column) != written.column_by_name(column),
                is_changed,
                "{options:?}: {column}"
            );
        }
    }
}

#[test]
fn what_fails_in_a_series_names_it() {
    if !has_pandas() {
        return;
    }
    let shop = TestDirectory::new();
    write_shuffled(&shop, &even_rows(), 0);
    let module = "def fails(frame):\n    if frame['item'][0] == 7:\n        raise ValueError('not this one')\n    \
                  return frame['qty']\n\ndef short(frame):\n    return frame['qty'][1:]\n";
    shop.write("shapes.py", module);
    let cases = [
        ("fails", "ValueError: not this one"),
        ("fails", "the series is store = a, item = 7"),
        ("short", "has 59 rows for a batch of 60"),
    ];
    for (function, words) in cases {
        let step = format!(
            "python: {{ function: 'shapes:{function}', frames: pandas, columns: [item, qty], by: series, returns: {{ y: \
             float64 }} }}"
        );
        shop.write("spec.yaml", &spec(&step, ""));
        let refused = shop.forebay(&["run", "spec.yaml"]).expect(65);
        for words in ["FB0219", "spec.yaml:13", words] {
            assert!(
                refused.stderr.contains(words),
                "{words}: {}",
                refused.stderr
            );
        }
    }
}

/// A step whose function is never called: its interpreter is none.
fn uncalled(settings: &str) -> String {
    format!(
        "python: {{ function: f, code: 'def f(batch): return batch', interpreter: sh, {settings} }}"
    )
}

#[test]
fn a_series_that_does_not_fit_is_named() {
    let shop = TestDirectory::new();
    write_shuffled(&shop, &even_rows(), 10_000);
    for (by, words) in [
        ("[store]", "the series store = a is given"),
        ("[]", "the only series"),
    ] {
        let step = uncalled(&format!(
            "columns: [qty, pad], returns: {{ y: float64 }}, by: {by}"
        ));
        shop.write("spec.yaml", &spec(&step, ""));
        let refused = shop
            .forebay(&["run", "spec.yaml", "--memory=64MiB", "--threads=2"])
            .expect(78);
        for words in ["FB0301", "--memory", words] {
            assert!(
                refused.stderr.contains(words),
                "{words}: {}",
                refused.stderr
            );
        }
    }
}

#[test]
fn series_of_a_step_are_checked() {
    let shop = TestDirectory::new();
    write_shuffled(&shop, &even_rows(), 0);
    // The settings of the step, sections of the spec, the code, and words of the fault.
    let cases = [
        (
            "columns: [qty], returns: { y: float64 }, looks_ahead: none",
            "",
            "FB0104",
            "`looks_ahead` is said of whole series",
        ),
        (
            "columns: [qty], returns: { y: float64 }, by: [shop]",
            "",
            "FB0107",
            "`shop`",
        ),
        (
            "columns: [qty], returns: { item: int64 }, by: series",
            "",
            "FB0109",
            "returns `item`",
        ),
        (
            "columns: [qty], returns: { y: float64 }, by: series",
            "serving: { from: f }\n",
            "FB0113",
            "is given whole series",
        ),
    ];
    for (settings, rest, code, words) in cases {
        shop.write("spec.yaml", &spec(&uncalled(settings), rest));
        let refused = shop.forebay(&["check", "spec.yaml"]).expect(78);
        for words in [code, words] {
            assert!(
                refused.stderr.contains(words),
                "{settings}: {words}: {}",
                refused.stderr
            );
        }
    }
    // A function of whole series has no other batches, and is not called.
    let step = uncalled("columns: [qty], returns: { y: float64 }, by: series");
    shop.write("spec.yaml", &spec(&step, ""));
    shop.forebay(&["check", "spec.yaml", "--functions"])
        .expect(0);
    // Without keys there are no series.
    let text = spec(&step, "").replace("    keys: [store, item]\n", "");
    shop.write("spec.yaml", &text);
    let refused = shop.forebay(&["check", "spec.yaml"]).expect(78);
    assert!(refused.stderr.contains("FB0103"), "{}", refused.stderr);
}
