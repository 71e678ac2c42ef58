//! Compares findings with naive computations of the same numbers.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type, UInt64Type};
use forebay_analyze::laws::{check_laws, compute_finding};
use forebay_analyze::*;
use forebay_model::{AnyAnalyzer, Finding, codes};
use proptest::prelude::*;

const BUDGET: usize = 64 << 20;

fn batch(columns: &[ArrayRef]) -> RecordBatch {
    let named = columns
        .iter()
        .enumerate()
        .map(|(i, column)| (format!("c{i}"), column.clone(), true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

fn ask(analyzer: &dyn AnyAnalyzer, columns: &[ArrayRef]) -> Finding {
    compute_finding(analyzer, &[batch(columns)], BUDGET).unwrap()
}

fn floats(values: impl Into<Vec<f64>>) -> ArrayRef {
    Arc::new(Float64Array::from(values.into()))
}

fn number(finding: &Finding, column: &str) -> f64 {
    finding.number(column).unwrap().unwrap()
}

fn tokens(finding: &Finding) -> Vec<(String, u64)> {
    let tokens = finding.column("token").unwrap().as_string::<i32>();
    let counts = finding
        .column("count")
        .unwrap()
        .as_primitive::<UInt64Type>();
    tokens
        .iter()
        .zip(counts)
        .map(|(token, count)| (token.unwrap().to_string(), count.unwrap()))
        .collect()
}

#[test]
fn a_small_number_beside_large_ones_is_not_lost() {
    let moments = ask(&ColumnMoments, &[floats([1e15, 3.0, -1e15, 1e300, -1e300])]);
    assert_eq!(number(&moments, "sum"), 3.0);
    assert_eq!(number(&moments, "mean"), 0.6);
    let moments = ask(
        &ColumnMoments,
        &[floats([1e15 + 1.0, 1e15 + 2.0, 1e15 + 3.0])],
    );
    assert_eq!(number(&moments, "var"), 2.0 / 3.0);
}

#[test]
fn equal_values_have_no_variance() {
    for value in [0.1, 1e-320, f64::MAX, -7.25e100] {
        let moments = ask(&ColumnMoments, &[floats(vec![value; 1001])]);
        assert_eq!(
            (number(&moments, "mean"), number(&moments, "var")),
            (value, 0.0)
        );
    }
}

#[test]
fn what_is_missing_and_infinite() {
    let column = Float64Array::from(vec![
        Some(1.0),
        None,
        Some(f64::NAN),
        Some(f64::INFINITY),
        Some(-2.0),
    ]);
    let moments = ask(&ColumnMoments, &[Arc::new(column)]);
    let counts = ["count", "nulls", "nans", "infinities"].map(|name| number(&moments, name));
    assert_eq!(counts, [3.0, 1.0, 1.0, 1.0]);
    assert_eq!(
        ["sum", "mean", "min", "max"].map(|name| number(&moments, name)),
        [f64::INFINITY, f64::INFINITY, -2.0, f64::INFINITY]
    );
    assert!(number(&moments, "var").is_nan());
    let empty = ask(&ColumnMoments, &[floats([f64::NAN])]);
    assert!(
        ["sum", "mean", "var", "min", "max"]
            .iter()
            .all(|name| empty.number(name).unwrap().is_none())
    );
}

#[test]
fn integers_are_summed_without_rounding() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX, 5]));
    let moments = ask(&ColumnMoments, &[column]);
    assert_eq!(number(&moments, "sum"), 4.0);
    let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX; 4]));
    let moments = ask(&ColumnMoments, &[unsigned]);
    assert_eq!(
        (number(&moments, "mean"), number(&moments, "var")),
        (u64::MAX as f64, 0.0)
    );
}

#[test]
fn overflowing_sums_still_have_a_mean() {
    let moments = ask(&ColumnMoments, &[floats([f64::MAX, f64::MAX])]);
    assert_eq!(
        (number(&moments, "sum"), number(&moments, "mean")),
        (f64::INFINITY, f64::MAX)
    );
}

#[test]
fn vocabulary_orders() {
    let words: ArrayRef = Arc::new(StringArray::from(vec![
        Some("b"),
        Some("a"),
        None,
        Some("c"),
        Some("c"),
        Some(""),
    ]));
    let order = |order, min_count, top_k| {
        tokens(&ask(
            &TokenVocabulary {
                min_count,
                top_k,
                order,
            },
            std::slice::from_ref(&words),
        ))
        .into_iter()
        .map(|t| t.0)
        .collect::<Vec<_>>()
    };
    assert_eq!(
        order(VocabularyOrder::CountThenReverse, 1, None),
        ["c", "b", "a", ""]
    );
    assert_eq!(
        order(VocabularyOrder::CountThenValue, 1, None),
        ["c", "", "a", "b"]
    );
    assert_eq!(order(VocabularyOrder::Value, 1, None), ["", "a", "b", "c"]);
    assert_eq!(order(VocabularyOrder::Value, 1, Some(2)), ["", "c"]);
    assert_eq!(order(VocabularyOrder::CountThenReverse, 2, None), ["c"]);
    assert_eq!(
        order(VocabularyOrder::CountThenReverse, 1, Some(0)),
        Vec::<String>::new()
    );
}

#[test]
fn lists_count_their_elements() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("x"), Some("y")]);
    lists.append_null();
    lists.append_value([Some("x"), None]);
    lists.append_value(Vec::<Option<&str>>::new());
    let lists: ArrayRef = Arc::new(lists.finish());
    let found = tokens(&ask(&TokenVocabulary::default(), &[lists.slice(0, 4)]));
    assert_eq!(found, [("x".to_string(), 2), ("y".to_string(), 1)]);
    check_laws(&TokenVocabulary::default(), &[batch(&[lists])], 3).unwrap();
}

#[test]
fn too_long_a_token_is_a_fault() {
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat((1 << 20) + 1)]));
    let fault =
        compute_finding(&TokenVocabulary::default(), &[batch(&[words])], BUDGET).unwrap_err();
    assert_eq!(fault.code(), codes::LIMIT);
}

#[test]
fn many_tokens_spill_and_compact() {
    // About 30,000 tokens of some 12 bytes on a budget of 16 KiB: some two hundred spills, several compactions.
    let words: Vec<String> = (0..60_000u64)
        .map(|i| format!("token-{}", i * i % 39_989))
        .collect();
    let mut expected: HashMap<&str, u64> = HashMap::new();
    words
        .iter()
        .for_each(|word| *expected.entry(word).or_default() += 1);
    let column: ArrayRef = Arc::new(StringArray::from(words.clone()));
    let batches: Vec<RecordBatch> = (0..60)
        .map(|i| batch(&[column.slice(i * 1000, 1000)]))
        .collect();
    for (top_k, order) in [
        (None, VocabularyOrder::CountThenReverse),
        (Some(7000), VocabularyOrder::CountThenValue),
    ] {
        let analyzer = TokenVocabulary {
            top_k,
            order,
            ..TokenVocabulary::default()
        };
        let spilled = compute_finding(&analyzer, &batches, 16 << 10).unwrap();
        let held = compute_finding(&analyzer, &batches, BUDGET).unwrap();
        assert_eq!(spilled, held);
        let found = tokens(&held);
        assert_eq!(found.len(), expected.len().min(top_k.unwrap_or(usize::MAX)));
        assert!(
            found
                .iter()
                .all(|(token, count)| expected[token.as_str()] == *count)
        );
    }
    check_laws(&TokenVocabulary::default(), &batches[..8], 5).unwrap();
    check_laws(
        &ExactQuantiles {
            ask: QuantileRequest::Buckets(4),
        },
        &[batch(&[floats(
            (0..9000).map(f64::from).collect::<Vec<_>>(),
        )])],
        5,
    )
    .unwrap();
}

#[test]
fn one_dictionary_over_many_batches_and_a_change() {
    let column = |words: &[&str]| {
        Arc::new(
            words
                .iter()
                .copied()
                .collect::<DictionaryArray<Int32Type>>(),
        ) as ArrayRef
    };
    let first = column(&["a", "b", "a", "a"]);
    let second = column(&["b", "z"]);
    let batches = [first.slice(0, 2), first.slice(2, 2), second.clone(), first]
        .map(|column| batch(&[column]));
    let found = tokens(&compute_finding(&TokenVocabulary::default(), &batches, BUDGET).unwrap());
    assert_eq!(
        found,
        [
            ("a".to_string(), 6),
            ("b".to_string(), 3),
            ("z".to_string(), 1)
        ]
    );
}

#[test]
fn quantiles_of_few_rows_are_exact() {
    let values: Vec<f64> = (0..1000).map(|i| f64::from(i * 7919 % 1000)).collect();
    for ask_for in [
        QuantileRequest::Buckets(4),
        QuantileRequest::Probabilities(vec![0.0, 0.5, 0.999, 1.0]),
    ] {
        let sampled = ask(
            &SampledQuantiles {
                epsilon: 0.05,
                ask: ask_for.clone(),
            },
            &[floats(values.clone())],
        );
        assert_eq!(
            sampled,
            ask(&ExactQuantiles { ask: ask_for }, &[floats(values.clone())])
        );
    }
    let found = ask(
        &ExactQuantiles {
            ask: QuantileRequest::Buckets(4),
        },
        &[floats(values.clone())],
    );
    assert_eq!(found.numbers("boundary").unwrap(), [250.0, 500.0, 750.0]);
    let found = ask(
        &ExactQuantiles {
            ask: QuantileRequest::Probabilities(vec![0.5]),
        },
        &[floats(values)],
    );
    assert_eq!(found.numbers("value").unwrap(), [499.5]);
    let none = ask(
        &ExactQuantiles {
            ask: QuantileRequest::Buckets(4),
        },
        &[floats([])],
    );
    assert_eq!(none.rows(), 0);
}

#[test]
fn sampled_ranks_are_near() {
    let values: Vec<f64> = (0..200_000)
        .map(|i| f64::from(i * 7919 % 200_000))
        .collect();
    let analyzer = SampledQuantiles {
        epsilon: 0.02,
        ask: QuantileRequest::Buckets(100),
    };
    assert_eq!(analyzer.sample_rows(), 18136);
    let found = ask(&analyzer, &[floats(values)]);
    for (k, boundary) in found.numbers("boundary").unwrap().into_iter().enumerate() {
        assert!((boundary / 200_000.0 - (k + 1) as f64 / 100.0).abs() <= 0.02);
    }
}

#[test]
fn too_large_a_sample_is_a_fault() {
    let fault = compute_finding(
        &SampledQuantiles {
            epsilon: 1e-4,
            ask: QuantileRequest::Buckets(2),
        },
        &[],
        BUDGET,
    )
    .unwrap_err();
    assert_eq!(fault.code(), codes::MEMORY);
}

fn weighted(ask: QuantileRequest) -> [Box<dyn AnyAnalyzer>; 2] {
    let weight = "w".to_owned();
    let sampled = SampledWeightedQuantiles {
        epsilon: 0.1,
        ask: ask.clone(),
        weight: weight.clone(),
    };
    [
        Box::new(ExactWeightedQuantiles { ask, weight }),
        Box::new(sampled),
    ]
}

/// numpy 2.4.6, `np.quantile(x, q, weights=w, method="inverted_cdf")`.
#[test]
fn weighted_quantiles_as_numpy() {
    let probabilities = vec![0.0, 0.1, 0.25, 0.375, 0.5, 0.5625, 0.75, 0.8, 1.0];
    for analyzer in weighted(QuantileRequest::Probabilities(probabilities)) {
        let found = ask(
            &*analyzer,
            &[
                floats([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
                floats([0.0, 3.0, 1.0, 0.5, 2.0, 1.5]),
            ],
        );
        assert_eq!(
            found.numbers("value").unwrap(),
            [2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0]
        );
    }
    let probabilities = vec![0.0, 0.25, 0.5, 0.5000001, 0.6875, 0.7, 0.9375, 0.95, 1.0];
    for analyzer in weighted(QuantileRequest::Probabilities(probabilities)) {
        // numpy refuses NaN: rows without a value or a weight are ignored here.
        let found = ask(
            &*analyzer,
            &[
                floats([10.0, 7.0, 8.0, f64::NAN, 7.0, -3.0, f64::INFINITY, 99.0]),
                floats([1.0, 2.0, 4.0, 9.0, 1.0, 8.0, 0.0, f64::NAN]),
            ],
        );
        assert_eq!(
            found.numbers("value").unwrap(),
            [-3.0, -3.0, -3.0, 7.0, 7.0, 8.0, 8.0, 10.0, 10.0]
        );
    }
}

/// tfx_bsl 1.21.0, whose `QuantilesSketch` computes tf.Transform's `quantiles(weights=)`: `GetQuantiles(4)` without its ends.
#[test]
fn weighted_boundaries_as_tf_transform() {
    let cases: [(&[f64], &[f64], &[f64]); 3] = [
        (
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            &[1.0, 3.0, 1.0, 0.5, 2.0, 0.5],
            &[2.0, 3.0, 5.0],
        ),
        (&[1.0, 2.0, 3.0], &[1.0, 2.0, 1.0], &[2.0, 2.0, 3.0]),
        (
            &[8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 4.0],
            &[0.25; 8],
            &[3.0, 5.0, 7.0],
        ),
    ];
    for (values, weights, boundaries) in cases {
        for analyzer in weighted(QuantileRequest::Buckets(4)) {
            let found = ask(&*analyzer, &[floats(values), floats(weights)]);
            assert_eq!(found.numbers("boundary").unwrap(), boundaries);
        }
    }
}

/// Weights that are whole numbers stand for as many rows, and equal weights for none.
#[test]
fn weighted_boundaries_are_those_of_repeated_rows() {
    let values: Vec<f64> = (0..100).map(|i| f64::from(i * 37 % 50)).collect();
    let weights: Vec<f64> = (0..100).map(|i| f64::from(i % 4)).collect();
    let mut repeated = Vec::new();
    for (value, weight) in values.iter().zip(&weights) {
        repeated.extend(std::iter::repeat_n(*value, *weight as usize));
    }
    for buckets in [2, 3, 7, 10] {
        let request = || QuantileRequest::Buckets(buckets);
        let expected = ask(
            &ExactQuantiles { ask: request() },
            &[floats(repeated.clone())],
        );
        for analyzer in weighted(request()) {
            let columns = [floats(values.clone()), floats(weights.clone())];
            assert_eq!(ask(&*analyzer, &columns), expected, "{analyzer:?}");
        }
        let expected = ask(
            &ExactQuantiles { ask: request() },
            &[floats(values.clone())],
        );
        for analyzer in weighted(request()) {
            let columns = [floats(values.clone()), floats(vec![0.3; 100])];
            assert_eq!(ask(&*analyzer, &columns), expected, "{analyzer:?}");
        }
    }
}

/// A twentieth of the rows has nearly all weight. Samples of 2,902 draws are within 5 % of the weight.
#[test]
fn sampled_weighted_ranks_are_near() {
    const ROWS: usize = 40_000;
    let mut values = Vec::with_capacity(ROWS);
    let mut weights = Vec::with_capacity(ROWS);
    for row in 0..ROWS {
        values.push((row * 7919 % ROWS) as f64);
        let is_heavy = row % 20 == 3;
        weights.push(if is_heavy {
            1000.0
        } else {
            0.1 + (row % 7) as f64
        });
    }
    let mut rows: Vec<(f64, f64)> = values
        .iter()
        .copied()
        .zip(weights.iter().copied())
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = weights.iter().sum();
    let analyzer = SampledWeightedQuantiles {
        epsilon: 0.05,
        ask: QuantileRequest::Buckets(100),
        weight: "w".to_owned(),
    };
    assert_eq!(analyzer.sample_rows(), 2902);
    let found = ask(&analyzer, &[floats(values), floats(weights)]);
    let boundaries = found.numbers("boundary").unwrap();
    assert_eq!(boundaries.len(), 99);
    for (k, boundary) in boundaries.into_iter().enumerate() {
        let share = (k + 1) as f64 / 100.0;
        let below: f64 = rows
            .iter()
            .filter(|row| row.0 < boundary)
            .map(|row| row.1)
            .sum();
        let up_to: f64 = rows
            .iter()
            .filter(|row| row.0 <= boundary)
            .map(|row| row.1)
            .sum();
        assert!(below / total <= share + 0.05, "{share}: {}", below / total);
        assert!(up_to / total >= share - 0.05, "{share}: {}", up_to / total);
    }
}

#[test]
fn numbers_that_are_no_weights_are_faults() {
    for weight in [-1.0, f64::INFINITY, -5e-324, 1e-201, 1e201] {
        for analyzer in weighted(QuantileRequest::Buckets(2)) {
            let columns = [floats([1.0, f64::NAN, 2.0]), floats([1.0, -3.0, weight])];
            let batch = batch(&columns);
            let fault = compute_finding(&*analyzer, &[batch], BUDGET).unwrap_err();
            assert_eq!(fault.code(), codes::BAD_ROW, "{fault}");
            assert_eq!(fault.site().column.as_deref(), Some("w"));
            assert_eq!(fault.site().rows, [2]);
            assert!(fault.has_input_rows());
        }
    }
    // Without a weight there is nothing.
    for analyzer in weighted(QuantileRequest::Probabilities(vec![0.5])) {
        let found = ask(&*analyzer, &[floats([1.0, 2.0]), floats([0.0, f64::NAN])]);
        assert_eq!(found.column("value").unwrap().null_count(), 1);
    }
}

#[test]
fn distinct_counts_are_near() {
    for n in [0u64, 1, 10, 1000, 100_000] {
        let integers: ArrayRef = Arc::new(UInt64Array::from_iter_values(
            (0..2 * n).map(|i| i % n.max(1)),
        ));
        let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..n).map(|i| i.to_string())));
        for column in [integers, text] {
            let estimate = number(&ask(&DistinctCount::default(), &[column]), "estimate");
            // Four standard errors.
            assert!(
                (estimate - n as f64).abs() <= 4.0 * 0.0082 * n as f64,
                "{estimate} of {n}"
            );
        }
    }
}

#[test]
fn examples_are_the_values_with_the_least_hashes() {
    let examples = |column: &ArrayRef| -> Vec<String> {
        let found = ask(&DistinctCount::default(), std::slice::from_ref(column));
        serde_json::from_str(
            found
                .column("examples")
                .unwrap()
                .as_string::<i32>()
                .value(0),
        )
        .unwrap()
    };
    let check = |column: ArrayRef, values: Vec<(Vec<u8>, String)>| {
        let mut hashed: Vec<(u64, String)> = values
            .into_iter()
            .map(|(bytes, text)| (xxhash_rust::xxh3::xxh3_64(&bytes), text))
            .collect();
        hashed.sort();
        hashed.dedup();
        let least: Vec<String> = hashed.into_iter().take(5).map(|(_, text)| text).collect();
        assert_eq!(examples(&column), least, "{}", column.data_type());
    };
    let of_text = |text: &str| (text.as_bytes().to_vec(), text.to_owned());
    let whole = || (0..1000).map(|row: i64| row % 300 - 50);
    check(
        Arc::new(Int64Array::from_iter_values(whole())),
        whole()
            .map(|value| (value.to_le_bytes().to_vec(), value.to_string()))
            .collect(),
    );
    check(
        Arc::new(UInt64Array::from_iter_values(
            (0..9).map(|row| u64::MAX - row),
        )),
        (0..9)
            .map(|row| {
                (
                    (u64::MAX - row).to_le_bytes().to_vec(),
                    (u64::MAX - row).to_string(),
                )
            })
            .collect(),
    );
    // Missing values are no examples, and zeros of both signs are one.
    check(
        Arc::new(Float64Array::from(vec![
            Some(-0.0),
            None,
            Some(f64::NAN),
            Some(0.0),
            Some(2.5),
        ])),
        [(0.0_f64, "0.0"), (2.5, "2.5")]
            .map(|(value, text)| (value.to_le_bytes().to_vec(), text.to_owned()))
            .to_vec(),
    );
    check(
        Arc::new(Float32Array::from(vec![0.1, f32::INFINITY])),
        [(0.1_f32, "0.1"), (f32::INFINITY, "inf")]
            .map(|(value, text)| (f64::from(value).to_le_bytes().to_vec(), text.to_owned()))
            .to_vec(),
    );
    check(
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        ["true", "false"].map(of_text).to_vec(),
    );
    check(
        Arc::new(Date32Array::from(vec![0, 1, 365])),
        ["1970-01-01", "1970-01-02", "1971-01-01"]
            .map(of_text)
            .to_vec(),
    );
    let words: Vec<String> = (0..100).map(|row| format!("word {row}")).collect();
    check(
        Arc::new(StringArray::from(words.clone())),
        words.iter().map(|word| of_text(word)).collect(),
    );
    // A long text is cut between two letters.
    let long: ArrayRef = Arc::new(StringArray::from(vec!["\u{e9}".repeat(1000)]));
    assert_eq!(examples(&long), [format!("{}...", "\u{e9}".repeat(126))]);
    assert_eq!(
        examples(&(Arc::new(Int64Array::from(vec![None, None])) as ArrayRef)),
        Vec::<String>::new()
    );
}

#[test]
fn histogram_bins_are_half_open() {
    let column = Float64Array::from(vec![
        Some(-1.0),
        Some(0.0),
        Some(0.5),
        Some(1.0),
        Some(9.0),
        Some(f64::NAN),
        None,
    ]);
    let found = ask(
        &Histogram {
            edges: vec![0.0, 1.0, 2.0],
        },
        &[Arc::new(column)],
    );
    let counts = found
        .column("count")
        .unwrap()
        .as_primitive::<UInt64Type>()
        .values()
        .to_vec();
    assert_eq!(counts, [1, 2, 1, 1, 1, 1]);
}

#[test]
fn moments_by_key_are_moments() {
    let values: Vec<f64> = (0..500)
        .map(|i| f64::from(i).sin() * 10f64.powi(i % 9))
        .collect();
    let shops: ArrayRef = Arc::new(
        (0..500)
            .map(|i| ["n", "s", ""][i % 3])
            .collect::<DictionaryArray<Int32Type>>(),
    );
    let days: ArrayRef = Arc::new(Date32Array::from_iter(
        (0..500).map(|i| (i % 5 > 0).then_some(i % 5)),
    ));
    let analyzer = GroupedMoments {
        keys: vec![DataType::Date32, DataType::Utf8],
    };
    let found = ask(
        &analyzer,
        &[floats(values.clone()), days.clone(), shops.clone()],
    );
    assert_eq!(found.rows(), 15);
    let small = compute_finding(
        &analyzer,
        &[batch(&[floats(values.clone()), days, shops])],
        2048,
    )
    .unwrap();
    assert_eq!(found, small);
    let keys = found.column("key1").unwrap();
    let names = found.column("key2").unwrap().as_string::<i32>();
    assert_eq!(keys.data_type(), &DataType::Date32);
    assert!(keys.is_null(0) && names.value(0).is_empty());
    // Row 4 is the second date's second shop: i % 5 == 1 and "n", where i % 3 == 0.
    let group: Vec<f64> = (0..500)
        .filter(|i| i % 5 == 1 && i % 3 == 0)
        .map(|i| values[i])
        .collect();
    let alone = ask(&ColumnMoments, &[floats(group)]);
    for name in ["mean", "var", "min", "max"] {
        let column = found.column(name).unwrap().as_primitive::<Float64Type>();
        assert_eq!(column.value(4), number(&alone, name), "{name}");
    }
}

#[test]
fn latest_rows_are_those_of_the_greatest_times() {
    let rows = 600;
    let time = |row: i32| (row % 9 > 0).then_some((row * 7919) % 3000);
    let shops = || (0..rows).map(|row| ["n", "s", "w", ""][row as usize % 4]);
    let times = Date32Array::from_iter((0..rows).map(time));
    let prices =
        Float64Array::from_iter((0..rows).map(|row| (row % 5 > 0).then(|| f64::from(row) * 0.1)));
    let flags = BooleanArray::from_iter((0..rows).map(|row| Some(row % 2 == 0)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(shops())),
        Arc::new(times),
        Arc::new(prices),
        Arc::new(flags),
    ];
    let values = vec![DataType::Float64, DataType::Boolean];
    let analyzer = LatestRows {
        keys: vec![DataType::Utf8],
        time: DataType::Date32,
        values,
        month_days: false,
        times_of_day: false,
    };
    let found = ask(&analyzer, &columns);
    assert_eq!(
        found,
        compute_finding(&analyzer, &[batch(&columns)], 2048).unwrap()
    );
    assert_eq!(
        found.column("value1").unwrap().data_type(),
        &DataType::Float64
    );
    assert_eq!(
        found.column("value2").unwrap().data_type(),
        &DataType::Boolean
    );
    let keys = found.column("key1").unwrap().as_string::<i32>().clone();
    assert_eq!(
        keys.iter().flatten().collect::<Vec<_>>(),
        ["", "n", "s", "w"]
    );
    for (row, key) in keys.iter().flatten().enumerate() {
        let of_key = shops()
            .enumerate()
            .filter(|(_, shop)| *shop == key)
            .map(|(row, _)| row as i32);
        let latest = of_key
            .filter(|row| time(*row).is_some())
            .max_by_key(|row| time(*row))
            .unwrap();
        assert_eq!(
            found
                .column("time")
                .unwrap()
                .as_primitive::<Int64Type>()
                .value(row),
            i64::from(time(latest).unwrap())
        );
        let earlier = shops()
            .enumerate()
            .filter(|(_, shop)| *shop == key)
            .filter_map(|(row, _)| time(row as i32))
            .filter(|earlier| Some(*earlier) < time(latest));
        let previous = found.column("previous").unwrap();
        let previous = previous.as_primitive::<Int64Type>().value(row);
        assert_eq!(previous, i64::from(earlier.max().unwrap()));
        let price = found
            .column("value1")
            .unwrap()
            .as_primitive::<Float64Type>();
        let expected = (latest % 5 > 0).then(|| f64::from(latest) * 0.1);
        assert_eq!(price.is_valid(row).then(|| price.value(row)), expected);
        assert_eq!(
            found.column("value2").unwrap().as_boolean().value(row),
            latest % 2 == 0
        );
    }
}

proptest! {
    /// Integers below 2^30, scaled by a power of two: sums are exact in i128.
    #[test]
    fn moments_of_scaled_integers(
        values in prop::collection::vec(-(1i64 << 30)..(1i64 << 30), 1..500),
        scale in -60i32..60,
    ) {
        let n = values.len() as i128;
        let sum: i128 = values.iter().map(|&x| i128::from(x)).sum();
        let squares: i128 = values.iter().map(|&x| i128::from(x) * i128::from(x)).sum();
        let unit = 2f64.powi(scale);
        let scaled: Vec<f64> = values.iter().map(|&x| x as f64 * unit).collect();
        let found = ask(&ColumnMoments, &[floats(scaled)]);
        prop_assert_eq!(number(&found, "sum"), sum as f64 * unit);
        let near = |a: f64, b: f64| (a - b).abs() <= 2.0 * f64::EPSILON * b.abs();
        prop_assert!(near(number(&found, "mean"), sum as f64 / n as f64 * unit));
        let spread = (n * squares - sum * sum) as f64 / (n * n) as f64 * unit * unit;
        prop_assert!(near(number(&found, "var"), spread));
        let integers: ArrayRef = Arc::new(Int64Array::from(values));
        let plain = ask(&ColumnMoments, &[integers]);
        prop_assert_eq!(number(&plain, "var") * unit * unit, number(&found, "var"));
    }

    #[test]
    fn exact_boundaries(values in prop::collection::vec(-50..50i32, 1..300), buckets in 1u32..20) {
        let column: ArrayRef = Arc::new(Int32Array::from(values.clone()));
        let found = compute_finding(&ExactQuantiles { ask: QuantileRequest::Buckets(buckets) }, &[batch(&[column])], 1 << 10).unwrap();
        let mut sorted = values;
        sorted.sort_unstable();
        let n = sorted.len() as u32;
        let expected: Vec<f64> = (1..buckets).map(|k| f64::from(sorted[(n * k / buckets) as usize])).collect();
        prop_assert_eq!(found.numbers("boundary").unwrap(), expected);
    }
}

#[test]
fn deviations_are_doubles_where_squares_are_none() {
    let values = [1.0, -1.0, 2.0, 3.0];
    let mut plain = MomentAccumulator::default();
    values.iter().for_each(|value| plain.push(*value));
    for factor in [2f64.powi(664), 2f64.powi(-664), 2f64.powi(1000)] {
        let mut moved = MomentAccumulator::default();
        values.iter().for_each(|value| moved.push(value * factor));
        for ddof in [0, 1] {
            let expected = plain.deviation(ddof).unwrap() * factor;
            assert_eq!(moved.deviation(ddof), Some(expected), "{factor:e}");
        }
        assert_eq!(plain.deviation(0), plain.variance(0).map(f64::sqrt));
        let x = floats(values.map(|value| value * factor));
        let y = floats(values.map(|value| 5.0 - value / 3.0));
        let correlation = ask(&ColumnCorrelation, &[x, y]);
        let correlation = number(&correlation, "correlation");
        assert!((correlation + 1.0).abs() < 1e-15, "{correlation}");
    }
}

#[test]
fn removed_values_leave_nothing() {
    let mut moments = MomentAccumulator::default();
    let passing = [1e200, f64::INFINITY, f64::NAN, -1e-200];
    for value in passing.into_iter().chain([1.0, 2.0, 4.0]) {
        moments.push(value);
    }
    passing.iter().for_each(|value| moments.remove(*value));
    assert_eq!(moments.count(), 3);
    assert_eq!(moments.total(), Some(7.0));
    assert_eq!(moments.mean(), Some(7.0 / 3.0));
    assert_eq!(moments.variance(0), Some(14.0 / 9.0));
}
