//! Whole pipelines against numbers worked out by hand from the peers' definitions, in the versions
//! that stand beside them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Float32Type, Float64Type, Int32Type, Int64Type};
use parquet::arrow::ArrowWriter;

use crate::support::TestDirectory;

/// Runs steps over one file with these columns.
pub fn run<const N: usize>(columns: [(&str, ArrayRef); N], steps: &str) -> RecordBatch {
    let shop = TestDirectory::new();
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    std::fs::create_dir(shop.path("data")).unwrap();
    let file = std::fs::File::create(shop.path("data/a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let steps: String = steps
        .lines()
        .map(|line| format!("      {}\n", line.trim()))
        .collect();
    let spec = format!(
        "version: 1\nname: test\nsources:\n  data:\n    parquet: {{ path: data }}\nsteps:\n  features:\n    \
         from: data\n    do:\n{steps}sinks:\n  table: {{ from: features, parquet: {{ path: out }} }}\n"
    );
    shop.write("spec.yaml", &spec);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    shop.rows("out")
}

pub fn numbers(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

pub fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

pub fn doubles(rows: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    rows[name].as_primitive::<Float64Type>().iter().collect()
}

pub fn ids(rows: &RecordBatch, name: &str) -> Vec<i64> {
    rows[name].as_primitive::<Int64Type>().values().to_vec()
}

fn buckets(rows: &RecordBatch, name: &str) -> Vec<i32> {
    rows[name].as_primitive::<Int32Type>().values().to_vec()
}

#[track_caller]
fn assert_close(actual: &[Option<f64>], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.iter().zip(expected) {
        assert!(
            (actual.unwrap() - expected).abs() <= 1e-12 * expected.abs(),
            "{actual:?}, not {expected}"
        );
    }
}

/// `numpy` 2.1: `x = np.array([2, 4, 4, 4, 5, 5, 7, 9.]); (x - x.mean()) / x.std(ddof=0)`; mean 5, std 2.
/// The same from `sklearn.preprocessing.StandardScaler` 1.5 and `tft.scale_to_z_score` 1.16.
#[test]
fn standardize_divides_by_the_population_deviation() {
    let x = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
    let rows = run(
        [
            ("x", numbers(&x)),
            (
                "n",
                Arc::new(Int64Array::from(vec![2, 4, 4, 4, 5, 5, 7, 9])),
            ),
        ],
        "- standardize: { columns: [x], suffix: _0 }
         - standardize: { columns: [x], ddof: 1, suffix: _1 }
         - standardize: { columns: [n] }",
    );
    let expected = [-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0];
    assert_close(&doubles(&rows, "x_0"), &expected);
    // Integers give 32 bits, as in tf.Transform.
    let narrow: Vec<f64> = rows["n"]
        .as_primitive::<Float32Type>()
        .values()
        .iter()
        .map(|x| f64::from(*x))
        .collect();
    assert_eq!(narrow, expected);
    // pandas 2.2: `(x - x.mean()) / x.std()`, whose ddof is 1: the variance is 32 / 7.
    let deviation = (32.0f64 / 7.0).sqrt();
    assert_close(&doubles(&rows, "x_1"), &x.map(|x| (x - 5.0) / deviation));
}

/// tft 1.16, `scale_to_z_score`: where the variance is 0, x - mean; Spark's StandardScaler gives 0.
#[test]
fn standardize_without_variance() {
    let steps = "- standardize: { columns: [x], suffix: _c }
                 - standardize: { columns: [x], zero_variance: zero, suffix: _0 }";
    let rows = run([("x", numbers(&[3.0, 3.0, 3.0]))], steps);
    assert_close(&doubles(&rows, "x_c"), &[0.0; 3]);
    assert_close(&doubles(&rows, "x_0"), &[0.0; 3]);
}

/// tft 1.16, `scale_to_z_score_per_key`; pandas 2.2:
/// `x.groupby(k).transform(lambda g: (g - g.mean()) / g.std(ddof=0))`. Key a: mean 2, std 1; b: 10 +- 4.
#[test]
fn standardize_per_key() {
    let x = [1.0, 6.0, 3.0, 14.0, 5.0];
    let rows = run(
        [("x", numbers(&x)), ("k", texts(&["a", "b", "a", "b", "c"]))],
        "- standardize: { columns: [x], by: [k] }",
    );
    // A key with one value has no variance: x - mean.
    assert_close(&doubles(&rows, "x"), &[-1.0, -1.0, 1.0, 1.0, 0.0]);
}

/// tft 1.16, `scale_by_min_max`: (x - min) / (max - min) * (hi - lo) + lo; where min equals max,
/// sigmoid(x) * (hi - lo) + lo. sigmoid(2) = 0.8807970779778823.
#[test]
fn min_max_and_its_sigmoid() {
    let rows = run(
        [
            ("x", numbers(&[1.0, 2.0, 5.0])),
            ("flat", numbers(&[2.0, 2.0, 2.0])),
        ],
        "- min_max: { columns: [x], lo: -1, hi: 1 }
         - min_max: { columns: [flat], suffix: _01 }
         - min_max: { columns: [flat], lo: -1, hi: 1, suffix: _11 }
         - min_max: { columns: [flat], zero_range: lower, suffix: _lower }
         - min_max: { columns: [flat], zero_range: middle, suffix: _middle }",
    );
    assert_close(&doubles(&rows, "x"), &[-1.0, -0.5, 1.0]);
    assert_close(&doubles(&rows, "flat_01"), &[0.880_797_077_977_882_3; 3]);
    assert_close(&doubles(&rows, "flat_11"), &[0.761_594_155_955_764_6; 3]);
    // scikit-learn 1.5 gives the lower end, Spark 3.5 the middle of the range.
    assert_close(&doubles(&rows, "flat_lower"), &[0.0; 3]);
    assert_close(&doubles(&rows, "flat_middle"), &[0.5; 3]);
}

/// tft 1.16, `compute_and_apply_vocabulary`: count descending, ties in reverse byte order.
/// d: 3; then c, b (2 each); then e, a (1 each).
#[test]
fn vocabulary_breaks_ties_in_reverse_byte_order() {
    let words = ["d", "a", "b", "c", "d", "c", "b", "d", "e"];
    let rows = run(
        [("w", texts(&words))],
        "- vocabulary: { columns: [w], suffix: _tft }
         - vocabulary: { columns: [w], order: count_then_value, suffix: _spark }
         - vocabulary: { columns: [w], order: value, suffix: _sklearn }
         - vocabulary: { columns: [w], min_count: 2, suffix: _frequent }
         - vocabulary: { columns: [w], top_k: 2, default: 9, suffix: _top }
         - vocabulary: { columns: [w], min_count: 2, reserved: [pad], oov_buckets: 1, suffix: _oov }",
    );
    // d a b c d c b d e
    assert_eq!(ids(&rows, "w_tft"), [0, 4, 2, 1, 0, 1, 2, 0, 3]);
    assert_eq!(ids(&rows, "w_spark"), [0, 3, 1, 2, 0, 2, 1, 0, 4]); // pyspark 3.5, StringIndexer.
    assert_eq!(ids(&rows, "w_sklearn"), [3, 0, 1, 2, 3, 2, 1, 3, 4]); // sklearn 1.5, OrdinalEncoder.
    assert_eq!(ids(&rows, "w_frequent"), [0, -1, 2, 1, 0, 1, 2, 0, -1]); // Out of vocabulary: -1.
    assert_eq!(ids(&rows, "w_top"), [0, 9, 9, 1, 0, 1, 9, 0, 9]);
    // One bucket: the id after the vocabulary, here after pad, d, c, b.
    assert_eq!(ids(&rows, "w_oov"), [1, 4, 3, 2, 1, 2, 3, 1, 4]);
}

/// Several buckets: tf.Transform takes V + hash % buckets (its hash is another one). Equal words get
/// equal ids, all of them in V .. V + buckets.
#[test]
fn words_out_of_vocabulary_share_buckets() {
    let rare: Vec<String> = (0..200).map(|word| format!("rare{word}")).collect();
    let words: Vec<&str> = ["often"; 5]
        .into_iter()
        .chain(rare.iter().map(String::as_str))
        .collect();
    let rows = run(
        [("w", texts(&words))],
        "- vocabulary: { columns: [w], min_count: 2, oov_buckets: 4 }",
    );
    let ids = ids(&rows, "w");
    assert!(ids[..5].iter().all(|id| *id == 0));
    let mut used = ids[5..].to_vec();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used, [1, 2, 3, 4]);
}

/// tft 1.16, `apply_buckets` with boundaries 1, 3: `np.searchsorted([1, 3], x, side='right')`, which is
/// [0, 1, 1, 2, 2]; a value on a boundary belongs above it.
#[test]
fn buckets_hold_their_lower_edge() {
    let x = [0.5, 1.0, 2.0, 3.0, f64::NAN];
    let rows = run(
        [("x", numbers(&x))],
        "- apply_buckets: { columns: [x], boundaries: [1, 3] }",
    );
    assert_eq!(buckets(&rows, "x"), [0, 1, 1, 2, 2]);
}

/// tft 1.16, `bucketize` of 1..8 into 4: boundaries sorted[floor(8 * k / 4)] are 3, 5, 7, so that
/// each bucket holds two values.
#[test]
fn bucketize_cuts_at_ranks() {
    let x = [8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 4.0];
    let rows = run(
        [("x", numbers(&x))],
        "- bucketize: { columns: [x], q: 4, suffix: _sampled }
         - bucketize: { columns: [x], q: 4, exact: true, suffix: _exact }",
    );
    assert_eq!(buckets(&rows, "x_sampled"), [3, 0, 3, 0, 2, 1, 2, 1]);
    assert_eq!(buckets(&rows, "x_exact"), [3, 0, 3, 0, 2, 1, 2, 1]);
}

/// tft 1.16, `apply_buckets_with_interpolation`, boundaries 3, 5, 7 of 1..8: below the first 0, at or
/// above the last 1, linear in between: (i + (x - b[i]) / (b[i + 1] - b[i])) / 2; NaN 0.5.
#[test]
fn quantiles_interpolate_between_boundaries() {
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, f64::NAN];
    let rows = run([("x", numbers(&x))], "- quantiles: { columns: [x], q: 4 }");
    assert_close(
        &doubles(&rows, "x"),
        &[0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 0.5],
    );
}

/// sklearn 1.5, `RobustScaler` of 1, 2, 3, 4, 10: `np.percentile` gives 2, 3, 4, so (x - 3) / 2.
#[test]
fn robust_scale_uses_linear_quartiles() {
    let rows = run(
        [("x", numbers(&[10.0, 1.0, 2.0, 3.0, 4.0]))],
        "- robust_scale: { columns: [x] }",
    );
    assert_close(&doubles(&rows, "x"), &[3.5, -1.0, -0.5, 0.0, 0.5]);
}

/// sklearn 1.5, `SimpleImputer`: mean of 1, 2, 6 is 3, median 2. tf.Transform counts NaN as missing, too.
#[test]
fn impute_fills_null_and_nan() {
    let x: ArrayRef = Arc::new(Float64Array::from(vec![
        Some(1.0),
        None,
        Some(2.0),
        Some(f64::NAN),
        Some(6.0),
    ]));
    let steps = "- impute: { columns: [x], with: mean, suffix: _mean }
                 - impute: { columns: [x], with: median, suffix: _median, indicator: true }
                 - impute: { columns: [x], with: { constant: 0 }, suffix: _0 }";
    let rows = run([("x", x)], steps);
    assert_close(&doubles(&rows, "x_mean"), &[1.0, 3.0, 2.0, 3.0, 6.0]);
    assert_close(&doubles(&rows, "x_median"), &[1.0, 2.0, 2.0, 2.0, 6.0]);
    assert_close(&doubles(&rows, "x_0"), &[1.0, 0.0, 2.0, 0.0, 6.0]);
    assert_eq!(rows["x"].null_count(), 1);
}
