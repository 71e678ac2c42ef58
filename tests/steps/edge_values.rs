//! Values at the edges of their types: far times, large ids, both zeros, and distances that overflow.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Float32Array, Float64Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt64Array,
};
use arrow::datatypes::{
    Date32Type, Float64Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use parquet::arrow::ArrowWriter;

use crate::steps::peer_values::{doubles, ids, numbers, run, texts};
use crate::support::TestDirectory;

/// A NaN with other bits than that of the language.
const OTHER_NAN: f64 = f64::from_bits(0xfff8_0000_0000_0007);

/// 0001-01-01, 1969-12-31T23:00, 1970-01-01T00:30, 2016-05-22T06:45, 9999-12-31T23:59:59 in seconds: pandas 2.2,
/// `pd.Series(np.array([...], dtype="datetime64[s]")).dt.floor("1h")`.
const TIMES: [i64; 5] = [
    -62_135_596_800,
    -3_600,
    1_800,
    1_463_899_500,
    253_402_300_799,
];
const HOURS: [i64; 5] = [-62_135_596_800, -3_600, 0, 1_463_896_800, 253_402_297_200];
/// Mondays: 0001-01-01 was one, and so was 9999-12-27.
const WEEKS: [i64; 5] = [
    -62_135_596_800,
    -259_200,
    -259_200,
    1_463_356_800,
    253_401_868_800,
];

fn starts(time: ArrayRef, every: &str) -> ArrayRef {
    let rows = run(
        [("t", time)],
        &format!("- aggregate: {{ time: t, every: {every}, compute: {{ n: {{ count: '*' }} }} }}"),
    );
    let counts: i64 = ids(&rows, "n").iter().sum();
    assert_eq!(counts, TIMES.len() as i64);
    rows["t"].clone()
}

fn distinct(starts: [i64; 5], per_second: i64) -> Vec<Option<i64>> {
    let mut starts: Vec<Option<i64>> = starts
        .iter()
        .map(|start| Some(start * per_second))
        .collect();
    starts.dedup();
    starts
}

#[test]
fn buckets_of_time_reach_as_far_as_times_do() {
    for (every, expected) in [("1h", HOURS), ("1w", WEEKS)] {
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(TIMES.to_vec()));
        let found = starts(seconds, every);
        // Parquet has no seconds: they come back as milliseconds.
        let found: Vec<_> = match found.as_primitive_opt::<TimestampSecondType>() {
            Some(found) => found.iter().collect(),
            None => found
                .as_primitive::<TimestampMillisecondType>()
                .iter()
                .map(|t| t.map(|t| t / 1000))
                .collect(),
        };
        assert_eq!(found, distinct(expected, 1), "s {every}");
        let times = TIMES.map(|time| time * 1_000);
        let found = starts(
            Arc::new(TimestampMillisecondArray::from(times.to_vec())),
            every,
        );
        assert!(
            found
                .as_primitive::<TimestampMillisecondType>()
                .iter()
                .eq(distinct(expected, 1_000)),
            "ms {every}"
        );
        let times = TIMES.map(|time| time * 1_000_000);
        let zoned = TimestampMicrosecondArray::from(times.to_vec()).with_timezone("UTC");
        let found = starts(Arc::new(zoned), every);
        assert!(
            found
                .as_primitive::<TimestampMicrosecondType>()
                .iter()
                .eq(distinct(expected, 1_000_000)),
            "us {every}"
        );
    }
    let near = [-5_400, -1, 0, 3_599, 9_000_000_000].map(|time: i64| time * 1_000_000_000);
    let found = starts(
        Arc::new(TimestampNanosecondArray::from(near.to_vec())),
        "1h",
    );
    let expected =
        [-7_200, -3_600, 0, 9_000_000_000 / 3_600 * 3_600].map(|time| Some(time * 1_000_000_000));
    assert!(
        found
            .as_primitive::<TimestampNanosecondType>()
            .iter()
            .eq(expected)
    );
    // 0001-01-01 and 9999-12-31 are 719,162 days before and 2,932,896 days after 1970-01-01.
    let days: ArrayRef = Arc::new(Date32Array::from(vec![
        -719_162, -719_156, -1, 4, 2_932_896,
    ]));
    let found = starts(days, "7d");
    let expected = [-719_166, -719_159, -7, 0, 2_932_895].map(Some);
    assert!(
        found.as_primitive::<Date32Type>().iter().eq(expected),
        "{found:?}"
    );
}

#[test]
fn both_zeros_are_one_key_everywhere() {
    let x = [0.0, -0.0, 1.0, f64::NAN, OTHER_NAN, -0.0];
    let columns = || {
        [
            ("x", numbers(&x)),
            (
                "n",
                Arc::new(Int64Array::from_iter_values(0..6)) as ArrayRef,
            ),
        ]
    };
    let bits = |rows: &RecordBatch| -> Vec<u64> {
        rows["x"]
            .as_primitive::<Float64Type>()
            .values()
            .iter()
            .map(|x| x.to_bits())
            .collect()
    };
    let keys = [0, 1f64.to_bits(), f64::NAN.to_bits()];
    let rows = run(
        columns(),
        "- aggregate: { by: [x], compute: { n: { sum: n }, m: { count: '*' } } }",
    );
    assert_eq!(
        (bits(&rows), ids(&rows, "n"), ids(&rows, "m")),
        (keys.to_vec(), vec![6, 2, 7], vec![3, 1, 2])
    );
    let rows = run(
        columns(),
        "- aggregate: { compute: { kinds: { n_unique: x } } }",
    );
    assert_eq!(ids(&rows, "kinds"), [2], "NaN is no value");
    for (keep, kept) in [("first", [0, 2, 3]), ("last", [2, 4, 5])] {
        let rows = run(
            columns(),
            &format!("- dedupe: {{ keys: [x], keep: {keep} }}"),
        );
        assert_eq!(ids(&rows, "n"), kept, "{keep}");
    }
    // Keys are no rows: the first row of a key keeps its zero and its NaN.
    for (values, expected) in [
        ([-0.0, 0.0, 1.0], vec![-0.0, 1.0]),
        ([0.0, -0.0, 0.0], vec![0.0]),
        ([OTHER_NAN, f64::NAN, -0.0], vec![OTHER_NAN, -0.0]),
        ([2.0, 1.0, 2.0], vec![2.0, 1.0]),
    ] {
        let rows = run([("x", numbers(&values))], "- dedupe: {}");
        let expected: Vec<u64> = expected.into_iter().map(f64::to_bits).collect();
        assert_eq!(bits(&rows), expected, "{values:?}");
    }
    let rows = run(
        columns(),
        "- ordinal: { columns: [x], suffix: _id }
         - vocabulary: { columns: [x], suffix: _token }
         - hash_bucket: { columns: [x], buckets: 1000, suffix: _hash }
         - standardize: { columns: [n], by: [x], suffix: _z }
         - filter: \"x = 0\"",
    );
    assert_eq!(ids(&rows, "n"), [0, 1, 5], "SQL sees one zero");
    for made in ["x_id", "x_token", "x_hash"] {
        let made = ids(&rows, made);
        assert!(made.iter().all(|id| *id == made[0]), "{made:?}");
    }
    // Mean 2, variance 14 / 3: 0, 1 and 5 are one group. A column in time order is one series for a lag.
    let deviation = (14.0f64 / 3.0).sqrt();
    for (found, n) in doubles_of(&rows, "n_z").into_iter().zip([0.0, 1.0, 5.0]) {
        assert!((found - (n - 2.0) / deviation).abs() < 1e-6, "{found}");
    }
    let rows = run(
        columns(),
        "- lag: { columns: [n], by: [1], keys: [x], time: n, gaps: count_rows }",
    );
    let lagged: Vec<_> = rows["n_lag_1"].as_primitive::<Int64Type>().iter().collect();
    assert_eq!(lagged, [None, Some(0), None, None, Some(3), Some(1)]);
}

fn doubles_of(rows: &RecordBatch, name: &str) -> Vec<f64> {
    let column = arrow::compute::cast(&rows[name], &arrow::datatypes::DataType::Float64).unwrap();
    column.as_primitive::<Float64Type>().values().to_vec()
}

/// Writes a file with these columns.
pub fn write<const N: usize>(shop: &TestDirectory, name: &str, columns: [(&str, ArrayRef); N]) {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let file = std::fs::File::create(shop.path(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn joins_and_queries_have_one_zero() {
    let shop = TestDirectory::new();
    let time = |days: &[i32]| Arc::new(Date32Array::from(days.to_vec())) as ArrayRef;
    write(
        &shop,
        "here.parquet",
        [
            ("k", numbers(&[-0.0, OTHER_NAN, 2.0])),
            ("day", time(&[5, 5, 5])),
        ],
    );
    let ages = Arc::new(Int64Array::from(vec![10, 20])) as ArrayRef;
    write(
        &shop,
        "there.parquet",
        [
            ("k", numbers(&[0.0, f64::NAN])),
            ("day", time(&[1, 1])),
            ("age", ages),
        ],
    );
    let spec = |step: &str| {
        format!(
            "version: 1\nname: zeros\nsources:\n  here: {{ parquet: {{ path: here.parquet }}, time: day }}\n  there: {{ \
             parquet: {{ path: there.parquet }}, time: day }}\nsteps:\n  out:\n    {step}\nsinks:\n  table: {{ from: \
             out, parquet: {{ path: out }} }}\n"
        )
    };
    for step in [
        "{ from: here, do: [{ join: { with: there, on: [k], columns: [age] } }] }",
        "{ from: here, do: [{ as_of_join: { with: there, on: [k], columns: [age] } }] }",
        "sql: \"SELECT h.k, t.age FROM here h LEFT JOIN there t ON h.k * 1.0 = t.k ORDER BY t.age\"",
    ] {
        let step = step
            .strip_prefix("{ ")
            .and_then(|rest| rest.strip_suffix(" }"))
            .map_or(step.to_owned(), |fields| {
                fields.replacen(", do:", "\n    do:", 1)
            });
        shop.write("spec.yaml", &spec(&step));
        shop.forebay(&["run", "spec.yaml"]).expect(0);
        let rows = shop.rows("out");
        let met: Vec<_> = rows["age"].as_primitive::<Int64Type>().iter().collect();
        assert_eq!(met, [Some(10), Some(20), None], "{step}");
    }
    // What a query computes may be the other zero.
    shop.write("spec.yaml", &spec("sql: \"SELECT k * -1 AS k, COUNT(*) AS n FROM (SELECT k FROM here UNION ALL SELECT k FROM there) GROUP BY k * -1 ORDER BY k\""));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let rows = shop.rows("out");
    assert_eq!(ids(&rows, "n"), [1, 2, 2], "-2, 0, NaN");
    assert_eq!(
        rows["k"].as_primitive::<Float64Type>().value(1).to_bits(),
        0
    );
}

/// sklearn 1.5: `KBinsDiscretizer(n_bins=4, encode="ordinal", strategy="quantile").fit_transform(x)`; edges are
/// [0, 0, 1, 5, 5], of which [0, 1, 5] remain, and [1] lies between the first and the last.
#[test]
fn bins_by_quantile_end_with_the_least_and_the_greatest() {
    let x = [0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 5.0, 5.0, 5.0];
    let steps = "- k_bins: { columns: [x], bins: 4, strategy: quantile, exact: true }";
    let bins = |x: &[f64]| -> Vec<i32> {
        let rows = run([("x", numbers(x))], steps);
        rows["x"]
            .as_primitive::<arrow::datatypes::Int32Type>()
            .values()
            .to_vec()
    };
    // np.percentile(x, [0, 25, 50, 75, 100]) is [0, 0, 1, 5, 5].
    assert_eq!(bins(&x), [0, 0, 0, 1, 1, 1, 1, 1, 1]);
    // [1, 1.75, 2.5, 3.25, 4]: all edges remain.
    assert_eq!(bins(&[1.0, 2.0, 3.0, 4.0]), [0, 1, 2, 3]);
    // [7, 7, 7, 7, 9]: the bins are one, from 7 to 9.
    assert_eq!(bins(&[7.0, 7.0, 7.0, 7.0, 9.0]), [0; 5]);
    assert_eq!(bins(&[3.0, 3.0]), [0; 2]);
}

/// numpy 2.1: `np.median([-1.7e308, 1.7e308])` is 0.0; half of each, as their distance overflows.
#[test]
fn nothing_between_two_numbers_is_infinite() {
    let x = [-1.7e308, 1.7e308];
    let day: ArrayRef = Arc::new(Date32Array::from(vec![1, 2]));
    let rows = run(
        [("x", numbers(&x)), ("day", day), ("gap", Arc::new(Float64Array::from(vec![Some(-1.7e308), None])))],
        "- impute: { columns: [gap], with: median, suffix: _filled }
         - rolling: { columns: [x], compute: [median], over: [2], keys: [], time: day, gaps: count_rows }
         - expanding: { columns: [x], compute: [median], keys: [], time: day }
         - min_max: { columns: [x], suffix: _scaled }
         - robust_scale: { columns: [x], exact: true, suffix: _robust }
         - k_bins: { columns: [x], bins: 4, suffix: _bin }
         - quantiles: { columns: [x], q: 2, exact: true, suffix: _rank }",
    );
    assert_eq!(doubles(&rows, "x_median_2")[1], Some(0.0));
    assert_eq!(doubles(&rows, "x_expanding_median")[1], Some(0.0));
    assert_eq!(doubles(&rows, "x_scaled"), [Some(0.0), Some(1.0)]);
    // The quartiles are -0.85e308 and 0.85e308, so that both ends are one range away from the median.
    for (found, expected) in doubles(&rows, "x_robust").into_iter().zip([-1.0, 1.0]) {
        assert!((found.unwrap() - expected).abs() < 1e-12, "{found:?}");
    }
    assert_eq!(
        rows["x_bin"]
            .as_primitive::<arrow::datatypes::Int32Type>()
            .values()
            .to_vec(),
        [0, 3]
    );
}

/// numpy 2.1: `np.median([5.0, inf])` is inf, and `np.median([-inf, 5.0])` is -inf.
#[test]
fn the_middle_of_a_number_and_an_infinity_is_the_infinity() {
    for infinity in [f64::INFINITY, f64::NEG_INFINITY] {
        let day: ArrayRef = Arc::new(Date32Array::from(vec![1, 2, 3]));
        let gap: ArrayRef = Arc::new(Float64Array::from(vec![Some(5.0), Some(infinity), None]));
        let rows = run(
            [("x", numbers(&[5.0, infinity, infinity])), ("day", day), ("gap", gap)],
            "- impute: { columns: [gap], with: median, suffix: _filled }
             - robust_scale: { columns: [gap], exact: true, suffix: _exact }
             - robust_scale: { columns: [gap], suffix: _sampled }
             - rolling: { columns: [x], compute: [median], over: [2], keys: [], time: day, gaps: count_rows }
             - expanding: { columns: [x], compute: [median], keys: [], time: day }",
        );
        assert_eq!(doubles(&rows, "gap_filled")[2], Some(infinity));
        assert_eq!(doubles(&rows, "x_median_2")[1], Some(infinity));
        assert_eq!(doubles(&rows, "x_expanding_median")[1], Some(infinity));
        // Quartiles and median are all infinite, so that only the median is taken off.
        for column in ["gap_exact", "gap_sampled"] {
            let found = doubles(&rows, column);
            assert_eq!(found[0], Some(-infinity), "{column}");
            assert!(found[1].is_some_and(f64::is_nan), "{column}");
        }
    }
}

#[test]
fn ids_that_do_not_fit_are_named() {
    let shop = TestDirectory::new();
    let large: ArrayRef = Arc::new(UInt64Array::from(vec![1, u64::MAX, 3]));
    let label: ArrayRef = Arc::new(Float32Array::from(vec![0.0, 1.0, 2.0]));
    write(&shop, "data.parquet", [("id", large), ("y", label)]);
    let spec = |kind: &str| {
        format!(
            "version: 1\nname: ids\nsources:\n  data: {{ parquet: {{ path: data.parquet }} }}\nsinks:\n  table: {{ \
             from: data, parquet: {{ path: out }} }}\nfeed: {{ label: y, dense: [], categorical: [id], \
             categorical_type: {kind} }}\n"
        )
    };
    for kind in ["i64", "i32"] {
        shop.write("spec.yaml", &spec(kind));
        let call = shop
            .forebay(&["feed", "spec.yaml", "--rows", "2", "--last", "short"])
            .expect(65);
        for part in ["18446744073709551615", "`id`", "row 1"] {
            assert!(call.stderr.contains(part), "{kind}: {}", call.stderr);
        }
    }
}

#[test]
fn windows_say_which_value_they_cannot_keep() {
    let shop = TestDirectory::new();
    let day: ArrayRef = Arc::new(Date32Array::from(vec![1, 2]));
    let least: ArrayRef = Arc::new(UInt64Array::from(vec![1 << 63, 5]));
    write(&shop, "data.parquet", [("x", least), ("day", day)]);
    shop.write(
        "spec.yaml",
        "version: 1\nname: lags\nsources:\n  data: { parquet: { path: data.parquet }, time: day, keys: [] }\nsteps:\n  \
         out: { from: data, do: [{ lag: { columns: [x], by: [1], keys: [], gaps: count_rows } }] }\nsinks:\n  table: { from: out, parquet: \
         { path: out } }\n",
    );
    let call = shop.forebay(&["run", "spec.yaml"]).expect(65);
    assert!(
        call.stderr.contains("9223372036854775808"),
        "{}",
        call.stderr
    );
}

/// Slots beyond the signed integers are slots.
#[test]
fn unsigned_slots_are_told_apart() {
    let day: ArrayRef = Arc::new(Date32Array::from(vec![1, 2, 3, 4]));
    let slot: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 1, u64::MAX, 1]));
    let rows = run(
        [
            ("x", numbers(&[1.0, 5.0, 3.0, 7.0])),
            ("day", day),
            ("slot", slot),
            ("s", texts(&["a"; 4])),
        ],
        "- seasonal_index: { columns: [x], period: { expression: slot }, keys: [s], time: day }",
    );
    let _: &StringArray = rows["s"].as_string();
    assert!(doubles(&rows, "x_seasonal_index")[2].is_some());
}
