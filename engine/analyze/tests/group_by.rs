//! One row per key: the same bits for any budget and division of rows, compared with lists of rows per key.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests are here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{SortOptions, cast, concat_batches};
use arrow::datatypes::*;
use arrow::row::{RowConverter, SortField};
use forebay_analyze::{GroupByAnalyzer, GroupByState};
use forebay_model::*;

const ROWS: usize = 2_000;

/// Numbers that look like chance.
fn chance(row: usize, salt: u64) -> u64 {
    let number = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ salt << 7);
    (number ^ number >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 24
}

fn rows<T>(of: impl Fn(usize) -> T) -> Vec<T> {
    (0..ROWS).map(of).collect()
}

/// Key columns by name.
fn key(name: &str) -> ArrayRef {
    let word = |row: usize| match chance(row, 1) % 90 {
        0 => None,
        word => Some(format!(
            "{}{word}\0{}",
            "long ".repeat(word as usize % 9),
            word % 4
        )),
    };
    match name {
        "text" => Arc::new(StringArray::from(rows(word))),
        "words" => cast(
            &key("text"),
            &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        )
        .unwrap(),
        "binary" => cast(&key("text"), &DataType::Binary).unwrap(),
        "i64" => Arc::new(Int64Array::from(rows(|row| match chance(row, 2) % 70 {
            0 => None,
            value => Some((value as i64 - 30) << 55),
        }))),
        "u8" => Arc::new(UInt8Array::from(rows(|row| {
            (!chance(row, 3).is_multiple_of(30)).then(|| chance(row, 3) as u8)
        }))),
        "i32" => Arc::new(Int32Array::from(rows(|row| chance(row, 4) as i32 % 5))),
        "f64" => Arc::new(Float64Array::from(rows(|row| {
            let other_nan = f64::from_bits(0xfff8_0000_0000_0001);
            [
                Some(-0.0),
                Some(0.0),
                Some(f64::NAN),
                Some(other_nan),
                None,
                Some(-2.5),
                Some(1e300),
            ][chance(row, 5) as usize % 7]
        }))),
        "flag" => Arc::new(BooleanArray::from(rows(|row| {
            [None, Some(true), Some(false)][chance(row, 6) as usize % 3]
        }))),
        "date" => Arc::new(Date32Array::from(rows(|row| {
            Some((chance(row, 7) % 40) as i32 - 20)
        }))),
        "decimal" => Arc::new(
            Decimal128Array::from(rows(|row| Some(i128::from(chance(row, 8) % 9) - 4)))
                .with_precision_and_scale(9, 2)
                .unwrap(),
        ),
        _ => panic!("no key {name}"),
    }
}

/// A few large numbers, and many small ones, with all that is no number.
fn doubles() -> Vec<Option<f64>> {
    rows(|row| match chance(row, 11) % 40 {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(-0.0),
        3 => Some(1e300 * (chance(row, 12) % 3) as f64),
        4 => Some(-1e300),
        5 => Some(5e-324),
        _ => Some((chance(row, 12) % 100_000) as f64 / 97.0 - 500.0),
    })
}

fn integers() -> Vec<Option<i64>> {
    rows(|row| match chance(row, 13) % 50 {
        0 => None,
        1 => Some(i64::MAX >> 6),
        2 => Some(i64::MIN >> 6),
        _ => Some(chance(row, 14) as i64 % 1000 - 400),
    })
}

fn texts() -> Vec<Option<String>> {
    rows(|row| (!chance(row, 15).is_multiple_of(7)).then(|| format!("{:x}", chance(row, 16) % 500)))
}

/// All functions over the three value columns.
fn results() -> Vec<GroupResult> {
    use GroupFunction as F;
    let of = |function, value| GroupResult { function, value };
    let numbers = [
        F::Count,
        F::Sum,
        F::Mean,
        F::Var { ddof: 1 },
        F::Std { ddof: 0 },
    ];
    let any = [
        F::Min,
        F::Max,
        F::First,
        F::Last,
        F::NUnique,
        F::ApproxNUnique,
    ];
    let mut all = vec![
        of(F::CountRows, 0),
        of(F::FirstRow, 0),
        of(F::LastRow, 0),
        of(F::Count, 2),
    ];
    all.extend([
        of(F::WeightedMean { weight: 1 }, 0),
        of(F::FirstBy { time: 1 }, 2),
        of(F::LastBy { time: 1 }, 0),
    ]);
    all.extend([
        of(F::TopK { k: 3 }, 2),
        of(
            F::List {
                limit: 4,
                truncate: true,
            },
            2,
        ),
    ]);
    let shares = [0.0, 0.25, 0.5, 0.99, 1.0];
    all.extend(
        shares
            .map(|q| of(F::Quantile { q }, 0))
            .into_iter()
            .chain([of(F::Quantile { q: 0.5 }, 1)]),
    );
    for value in 0..3 {
        all.extend(
            numbers
                .into_iter()
                .filter(|_| value < 2)
                .chain(any)
                .map(|function| of(function, value)),
        );
    }
    all
}

fn computed(
    spec: &Arc<GroupBy>,
    columns: &[ArrayRef],
    budget_bytes: usize,
    parts: usize,
    batch: usize,
) -> RecordBatch {
    let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch { budget_bytes });
    let part = |part: usize| {
        let mut state = GroupByState::new(spec, &scratch).unwrap();
        let mut from = ROWS * part / parts;
        while from < ROWS * (part + 1) / parts {
            let rows = batch.min(ROWS * (part + 1) / parts - from);
            let columns: Vec<ArrayRef> = columns
                .iter()
                .map(|column| column.slice(from, rows))
                .collect();
            state.update(&columns, rows, from as u64).unwrap();
            from += rows;
        }
        state
    };
    let mut state = part(parts - 1);
    (0..parts - 1).for_each(|other| state.merge(part(other)).unwrap());
    let mut groups = state.into_sorted().unwrap();
    let mut batches = Vec::new();
    while let Some(columns) = groups.next_columns().unwrap() {
        let named = columns
            .into_iter()
            .enumerate()
            .map(|(place, column)| (place.to_string(), column, true));
        batches.push(RecordBatch::try_from_iter_with_nullable(named).unwrap());
    }
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// The rows of each key, in the order of keys.
fn rows_by_key(keys: &[ArrayRef]) -> Vec<Vec<usize>> {
    let last = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let keys: Vec<ArrayRef> = keys
        .iter()
        .map(|key| canonical_keys(&cast(key, &logical_type(key.data_type())).unwrap()).unwrap())
        .collect();
    let fields = keys
        .iter()
        .map(|key| SortField::new_with_options(key.data_type().clone(), last))
        .collect();
    let encoded = RowConverter::new(fields)
        .unwrap()
        .convert_columns(&keys)
        .unwrap();
    let mut groups: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    (0..ROWS).for_each(|row| {
        groups
            .entry(encoded.row(row).data().to_vec())
            .or_default()
            .push(row)
    });
    groups.into_values().collect()
}

#[test]
fn any_budget_and_division_gives_the_same_bits_and_what_lists_of_rows_give() {
    let cases: &[&[&str]] = &[
        &["words"],
        &["text"],
        &["i64"],
        &["f64"],
        &["flag"],
        &["u8", "i32"],
        &["words", "binary", "f64"],
        &["i64", "date", "decimal", "flag", "u8"],
        // Five words.
        &[
            "i64", "f64", "text", "date", "decimal", "binary", "u8", "i32",
        ],
        // Eight words.
        &[
            "i64", "f64", "i64", "f64", "words", "date", "i64", "u8", "f64",
        ],
        // More words than keys are packed into, and more codes than are packed into many words.
        &[
            "date", "i64", "f64", "i64", "f64", "i64", "f64", "i64", "words", "f64",
        ],
        &[
            "text", "words", "binary", "decimal", "text", "words", "binary", "decimal", "text",
        ],
    ];
    let doubles = doubles();
    let integers = integers();
    let texts = texts();
    let values: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(doubles.clone())),
        Arc::new(Int64Array::from(integers.clone())),
        Arc::new(StringArray::from(texts.clone())),
    ];
    for names in cases {
        let keys: Vec<ArrayRef> = names.iter().map(|name| key(name)).collect();
        let spec = Arc::new(GroupBy {
            value_names: Vec::new(),
            keys: keys
                .iter()
                .map(|key| GroupKey {
                    data_type: logical_type(key.data_type()),
                    bucket: None,
                })
                .collect(),
            values: values
                .iter()
                .map(|column| column.data_type().clone())
                .collect(),
            results: results(),
        });
        let columns = [keys.clone(), values.clone()].concat();
        let whole = computed(&spec, &columns, 1 << 28, 1, ROWS);
        for (budget_bytes, parts, batch) in [
            (1 << 28, 3, 700),
            (60_000, 1, 500),
            (30_000, 4, 333),
            (1 << 12, 2, 1000),
        ] {
            let other = computed(&spec, &columns, budget_bytes, parts, batch);
            assert!(
                whole == other,
                "{names:?}: {budget_bytes} bytes, {parts} parts, {batch} rows per batch"
            );
        }
        let groups = rows_by_key(&keys);
        assert_eq!(whole.num_rows(), groups.len(), "{names:?}");
        for (group, rows) in groups.iter().enumerate() {
            let mut at = names.len();
            let mut next = || {
                at += 1;
                whole.column(at - 1)
            };
            let mut int = || next().as_primitive::<Int64Type>().value(group);
            assert_eq!(int(), rows.len() as i64, "{names:?} {group}");
            let mut row = || next().as_primitive::<UInt64Type>().value(group) as usize;
            assert_eq!(
                (row(), row()),
                (rows[0], rows[rows.len() - 1]),
                "{names:?} {group}"
            );
            let own: Vec<&String> = rows.iter().filter_map(|row| texts[*row].as_ref()).collect();
            assert_eq!(
                next().as_primitive::<Int64Type>().value(group),
                own.len() as i64,
                "{names:?} {group}"
            );

            next(); // The weighted mean has a test of its own.
            let times = |of: &dyn Fn(usize) -> bool| {
                let timed = rows
                    .iter()
                    .copied()
                    .filter(|row| integers[*row].is_some() && of(*row));
                timed.collect::<Vec<usize>>()
            };
            let text = times(&|row| texts[row].is_some())
                .into_iter()
                .min_by_key(|row| integers[*row]);
            let column = next().as_string::<i32>();
            let found = column.is_valid(group).then(|| column.value(group));
            assert_eq!(
                found,
                text.and_then(|row| texts[row].as_deref()),
                "{names:?} {group}"
            );
            // Of equal maxima `max_by_key` takes the last.
            let is_number = |row: usize| doubles[row].is_some_and(|value| !value.is_nan());
            let number = times(&is_number)
                .into_iter()
                .max_by_key(|row| integers[*row]);
            let column = next().as_primitive::<Float64Type>();
            let found = column
                .is_valid(group)
                .then(|| column.value(group).to_bits());
            assert_eq!(
                found,
                number.and_then(|row| doubles[row]).map(f64::to_bits),
                "{names:?} {group}"
            );
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            own.iter()
                .for_each(|text| *counts.entry(text).or_default() += 1);
            let mut frequent: Vec<(&str, usize)> = counts.into_iter().collect();
            frequent.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let frequent: Vec<&str> = frequent.into_iter().take(3).map(|(text, _)| text).collect();
            let listed: Vec<&str> = own.iter().take(4).map(|text| text.as_str()).collect();
            for expected in [frequent, listed] {
                let column = next().as_list::<i32>();
                assert_eq!(
                    column.is_null(group),
                    expected.is_empty(),
                    "{names:?} {group}"
                );
                let found = column.value(group);
                let found: Vec<&str> = found.as_string::<i32>().iter().flatten().collect();
                assert_eq!(found, expected, "{names:?} {group}");
            }

            let own: Vec<f64> = rows
                .iter()
                .filter_map(|row| doubles[*row])
                .filter(|x| !x.is_nan())
                .collect();
            let whole: Vec<f64> = rows
                .iter()
                .filter_map(|row| integers[*row])
                .map(|value| value as f64)
                .collect();
            for (own, q) in [0.0, 0.25, 0.5, 0.99, 1.0]
                .map(|q| (&own, q))
                .into_iter()
                .chain([(&whole, 0.5)])
            {
                let column = next().as_primitive::<Float64Type>();
                let found = column.is_valid(group).then(|| column.value(group));
                assert_eq!(found, quantile(own, q), "{names:?} {group} {q}");
            }
            check_numbers(&own, &mut next, group);
            let bits = |x: &f64| (x + 0.0).to_bits();
            let mut double = || {
                let column = next().as_primitive::<Float64Type>();
                column.is_valid(group).then(|| column.value(group))
            };
            let least = own.iter().copied().reduce(f64::min);
            let greatest = own.iter().copied().reduce(f64::max);
            assert_eq!((double(), double()), (least, greatest), "{names:?} {group}");
            assert_eq!(
                double().map(f64::to_bits),
                own.first().copied().map(f64::to_bits),
                "{names:?} {group}"
            );
            assert_eq!(
                double().map(f64::to_bits),
                own.last().copied().map(f64::to_bits),
                "{names:?} {group}"
            );
            let kinds: BTreeSet<u64> = own.iter().map(bits).collect();
            // So few values are counted exactly by sketches, too.
            let mut counted = || next().as_primitive::<Int64Type>().value(group);
            assert_eq!(
                (counted(), counted()),
                (kinds.len() as i64, kinds.len() as i64),
                "{names:?} {group}"
            );

            let own: Vec<i64> = rows.iter().filter_map(|row| integers[*row]).collect();
            let mut int = || {
                let column = next();
                (!column.is_null(group)).then(|| column.as_primitive::<Int64Type>().value(group))
            };
            let sum = own
                .iter()
                .map(|value| i128::from(*value))
                .reduce(|a, b| a + b)
                .map(|sum| i64::try_from(sum).unwrap());
            assert_eq!(
                (int(), int()),
                (Some(own.len() as i64), sum),
                "{names:?} {group}"
            );
            (0..3).for_each(|_| assert!(next().len() == groups.len()));
            let mut int = || {
                let column = next();
                (!column.is_null(group)).then(|| column.as_primitive::<Int64Type>().value(group))
            };
            assert_eq!(
                (int(), int()),
                (own.iter().min().copied(), own.iter().max().copied()),
                "{names:?} {group}"
            );
            assert_eq!(
                (int(), int()),
                (own.first().copied(), own.last().copied()),
                "{names:?} {group}"
            );
            let kinds = Some(own.iter().collect::<BTreeSet<_>>().len() as i64);
            assert_eq!((int(), int()), (kinds, kinds), "{names:?} {group}");

            let own: Vec<&String> = rows.iter().filter_map(|row| texts[*row].as_ref()).collect();
            let mut text = || {
                let column = next().as_string::<i32>();
                column
                    .is_valid(group)
                    .then(|| column.value(group).to_owned())
            };
            let owned = |text: Option<&&String>| text.map(|text| (*text).clone());
            assert_eq!(
                (text(), text()),
                (owned(own.iter().min()), owned(own.iter().max())),
                "{names:?} {group}"
            );
            assert_eq!(
                (text(), text()),
                (owned(own.first()), owned(own.last())),
                "{names:?} {group}"
            );
            let kinds = own.iter().collect::<BTreeSet<_>>().len() as i64;
            let mut counted = || next().as_primitive::<Int64Type>().value(group);
            assert_eq!((counted(), counted()), (kinds, kinds), "{names:?} {group}");
        }
    }
}

/// The bytes of a state that is merged of those of so many parts, each of which is written and read
/// as a large one.
fn merged_bytes(
    analyzer: &GroupByAnalyzer,
    columns: &[ArrayRef],
    budget_bytes: usize,
    parts: usize,
) -> Vec<u8> {
    let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch { budget_bytes });
    let mut merged = Analyzer::zero(analyzer, &scratch).unwrap();
    for part in 0..parts {
        let from = ROWS * part / parts;
        let rows = ROWS * (part + 1) / parts - from;
        let mut slices = Vec::new();
        for column in columns {
            slices.push(column.slice(from, rows));
        }
        let input = AnalyzerInput {
            columns: &slices,
            rows,
            keys: None,
        };
        let mut state = Analyzer::zero(analyzer, &scratch).unwrap();
        Analyzer::update(analyzer, &mut state, &input).unwrap();
        let mut bytes = Vec::new();
        Analyzer::encode(analyzer, &mut state, &mut bytes).unwrap();
        let large = Analyzer::decode_large(analyzer, &mut bytes.as_slice(), &scratch).unwrap();
        Analyzer::merge(analyzer, &mut merged, large).unwrap();
    }
    let mut bytes = Vec::new();
    Analyzer::encode(analyzer, &mut merged, &mut bytes).unwrap();
    bytes
}

/// A state reads 32 to 128 runs at once, depending on its memory, and merges others into fewer.
#[test]
fn many_runs_merge_to_the_bytes_of_one() {
    use GroupFunction as F;
    let columns: Vec<ArrayRef> = vec![
        key("words"),
        key("i64"),
        Arc::new(Float64Array::from(doubles())),
        Arc::new(Int64Array::from(integers())),
        Arc::new(StringArray::from(texts())),
    ];
    let types: Vec<DataType> = columns
        .iter()
        .map(|column| logical_type(column.data_type()))
        .collect();
    let (keys, values) = types.split_at(2);
    let keys = keys.iter().map(|data_type| GroupKey {
        data_type: data_type.clone(),
        bucket: None,
    });
    let mut results = results();
    // Positions of rows are no results of states that are kept.
    results.retain(|result| !matches!(result.function, F::FirstRow | F::LastRow));
    let spec = Arc::new(GroupBy {
        value_names: Vec::new(),
        keys: keys.collect(),
        values: values.to_vec(),
        results,
    });
    let analyzer = GroupByAnalyzer::new(&spec).unwrap();
    let expected = merged_bytes(&analyzer, &columns, 1 << 30, 1);
    for budget_bytes in [1 << 12, 256 << 20, 1 << 30] {
        let bytes = merged_bytes(&analyzer, &columns, budget_bytes, 150);
        assert!(bytes == expected, "{budget_bytes} bytes");
    }
}

/// Texts as views, and as dictionaries with values that no row has, that occur twice, and that are null.
fn text_layouts(texts: &[Option<String>]) -> Vec<ArrayRef> {
    let plain = StringArray::from(texts.to_vec());
    let words: Vec<Option<&str>> = [Some(""), Some("zzz"), None]
        .into_iter()
        .chain(plain.iter())
        .collect();
    let place = |text: Option<&str>| {
        words
            .iter()
            .rposition(|word| *word == text)
            .map(|place| place as i32)
    };
    let key =
        |(row, text): (usize, Option<&str>)| place(text).filter(|_| text.is_some() || row % 2 == 0);
    let keys: Int32Array = plain.iter().enumerate().map(key).collect();
    let dictionary =
        |values: ArrayRef| Arc::new(DictionaryArray::new(keys.clone(), values)) as ArrayRef;
    let words: ArrayRef = Arc::new(StringArray::from(words));
    let views = cast(&words, &DataType::Utf8View).unwrap();
    let plain: ArrayRef = Arc::new(plain);
    vec![
        plain.clone(),
        cast(&plain, &DataType::Utf8View).unwrap(),
        dictionary(words),
        dictionary(views),
    ]
}

#[test]
fn extremes_of_texts_are_the_same_in_all_layouts() {
    use GroupFunction as F;
    let of = |function| GroupResult { function, value: 0 };
    let word = |row: usize| match chance(row, 21) % 9 {
        0 => None,
        1 => Some("é".repeat(chance(row, 22) as usize % 4)),
        2 => Some("\u{10ffff}".to_owned()),
        _ => Some(format!("{:x}", chance(row, 22) % 300)),
    };
    let texts: Vec<Option<String>> = rows(word);
    let none: Vec<Option<String>> = vec![None; ROWS];
    for (texts, names) in [
        (&texts, &[][..]),
        (&texts, &["flag"]),
        (&none, &[]),
        (&none, &["flag"]),
    ] {
        let keys: Vec<ArrayRef> = names.iter().map(|name| key(name)).collect();
        let spec = Arc::new(GroupBy {
            value_names: Vec::new(),
            keys: keys
                .iter()
                .map(|key| GroupKey {
                    data_type: key.data_type().clone(),
                    bucket: None,
                })
                .collect(),
            values: vec![DataType::Utf8],
            results: [F::Min, F::Max, F::NUnique, F::Count].map(of).to_vec(),
        });
        let groups = if keys.is_empty() {
            vec![(0..ROWS).collect()]
        } else {
            rows_by_key(&keys)
        };
        let own = |rows: &Vec<usize>| {
            rows.iter()
                .filter_map(|row| texts[*row].clone())
                .collect::<BTreeSet<_>>()
        };
        let own: Vec<BTreeSet<String>> = groups.iter().map(own).collect();
        for column in text_layouts(texts) {
            for batch in [1, 600, ROWS] {
                let label = format!("{names:?} {} {batch}", column.data_type());
                let columns = [keys.clone(), vec![column.clone()]].concat();
                let found = computed(&spec, &columns, 1 << 28, 2, batch);
                let texts =
                    |place: usize| found.column(keys.len() + place).as_string::<i32>().iter();
                assert!(
                    texts(0).eq(own.iter().map(|own| own.first().map(String::as_str))),
                    "{label}"
                );
                assert!(
                    texts(1).eq(own.iter().map(|own| own.last().map(String::as_str))),
                    "{label}"
                );
                let kinds = found.column(keys.len() + 2).as_primitive::<Int64Type>();
                assert!(
                    kinds
                        .values()
                        .iter()
                        .eq(&own.iter().map(|own| own.len() as i64).collect::<Vec<_>>()),
                    "{label}"
                );
            }
        }
    }
}

/// Values of groups of some numbers of distinct values, each value twice, and their exact and estimated numbers.
#[test]
fn estimates_are_near_the_exact_numbers_of_distinct_values() {
    let counts = [1, 10, 1_000, 1_023, 3_000, 20_000, 100_000_u64];
    let mut group_of = Vec::new();
    let mut value_of = Vec::new();
    for (group, count) in counts.into_iter().enumerate() {
        group_of.extend((0..2 * count).map(|_| group as i64));
        value_of.extend((0..2 * count).map(|row| row % count));
    }
    let groups: ArrayRef = Arc::new(Int64Array::from(group_of));
    let values: [ArrayRef; 3] = [
        Arc::new(UInt64Array::from(value_of.clone())),
        Arc::new(Float64Array::from_iter_values(
            value_of.iter().map(|value| *value as f64 / 7.0),
        )),
        Arc::new(StringArray::from_iter_values(
            value_of.iter().map(|value| format!("item {value}")),
        )),
    ];
    for values in values {
        let spec = Arc::new(GroupBy {
            value_names: Vec::new(),
            keys: vec![GroupKey {
                data_type: DataType::Int64,
                bucket: None,
            }],
            values: vec![values.data_type().clone()],
            results: [GroupFunction::NUnique, GroupFunction::ApproxNUnique]
                .map(|function| GroupResult { function, value: 0 })
                .to_vec(),
        });
        let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch {
            budget_bytes: 1 << 20,
        });
        let mut state = GroupByState::new(&spec, &scratch).unwrap();
        for from in (0..values.len()).step_by(8_192) {
            let rows = 8_192.min(values.len() - from);
            state
                .update(
                    &[groups.slice(from, rows), values.slice(from, rows)],
                    rows,
                    from as u64,
                )
                .unwrap();
        }
        let columns = state
            .into_sorted()
            .unwrap()
            .next_columns()
            .unwrap()
            .unwrap();
        let numbers = |column: usize| {
            columns[column]
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        };
        assert_eq!(numbers(1), counts.map(|count| count as i64));
        for (count, estimate) in counts.into_iter().zip(numbers(2)) {
            // Four standard errors.
            let most = if count <= 1_023 {
                0.0
            } else {
                4.0 * 0.0163 * count as f64
            };
            let error = (estimate as f64 - count as f64).abs();
            assert!(
                error <= most,
                "{}: {estimate} of {count}",
                values.data_type()
            );
        }
    }
}

/// The quantile of sorted values.
fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = sorted.len().checked_sub(1)? as f64 * q;
    let lower = sorted[place.floor() as usize];
    let upper = sorted[place.ceil() as usize];
    Some(lerp(lower, upper, place - place.floor()))
}

/// Count, sum, mean, variance and deviation, as the analyzer of one column computes them.
fn check_numbers<'a>(own: &[f64], next: &mut impl FnMut() -> &'a ArrayRef, group: usize) {
    let mut moment = forebay_analyze::MomentAccumulator::default();
    own.iter().for_each(|value| moment.push(*value));
    assert_eq!(
        next().as_primitive::<Int64Type>().value(group),
        own.len() as i64
    );
    let [sum, mean, _] = moment.results();
    for expected in [sum, mean, moment.variance(1), moment.deviation(0)] {
        let column = next().as_primitive::<Float64Type>();
        let found = column
            .is_valid(group)
            .then(|| column.value(group).to_bits());
        assert_eq!(found, expected.map(f64::to_bits));
    }
}

/// The rows of a state whose keys are whole rows, if its keys have them in their order.
fn rows_of_keys(state: &GroupByState) -> Option<Vec<ArrayRef>> {
    if !state.holds_first_rows().unwrap() {
        return None;
    }
    let mut batches = Vec::new();
    let visited = state.for_each_key(|columns| {
        let columns = columns.into_iter().enumerate();
        let named = columns.map(|(number, column)| (number.to_string(), column, true));
        batches.push(RecordBatch::try_from_iter_with_nullable(named).unwrap());
        Ok(())
    });
    visited.unwrap();
    let rows = concat_batches(&batches[0].schema(), &batches).unwrap();
    Some(rows.columns().to_vec())
}

/// The state of the first row of each key, of parts of rows that are merged in the order of `parts`.
fn first_rows(columns: &[ArrayRef], budget_bytes: usize, parts: &[Range<usize>]) -> GroupByState {
    let keys = columns.iter().map(|column| GroupKey {
        data_type: logical_type(column.data_type()),
        bucket: None,
    });
    let spec = Arc::new(GroupBy {
        value_names: Vec::new(),
        keys: keys.collect(),
        values: Vec::new(),
        results: vec![GroupResult {
            function: GroupFunction::FirstRow,
            value: 0,
        }],
    });
    let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch { budget_bytes });
    let mut merged = GroupByState::new(&spec, &scratch).unwrap();
    for part in parts {
        let mut state = GroupByState::new(&spec, &scratch).unwrap();
        let mut from = part.start;
        while from < part.end {
            let rows = (part.end - from).min(300);
            let slices = columns.iter().map(|column| column.slice(from, rows));
            let slices: Vec<ArrayRef> = slices.collect();
            state.update(&slices, rows, from as u64).unwrap();
            from += rows;
        }
        merged.merge(state).unwrap();
    }
    merged
}

/// Other processes merge the groups of a share: each row is chosen once, whatever the order of
/// states.
#[test]
fn positions_pass_through_shares() {
    const SHARES: usize = 3;
    let columns = [key("words"), key("i64")];
    let mut expected: Vec<u64> = Vec::new();
    for rows in rows_by_key(&columns) {
        expected.push(rows[0] as u64);
    }
    expected.sort_unstable();
    for budget_bytes in [1 << 10, 1 << 28] {
        let mut written: Vec<Vec<Vec<u8>>> = Vec::new();
        for part in [700..ROWS, 0..1, 1..700] {
            let mut state = first_rows(&columns, budget_bytes, &[part]);
            let mut shares = vec![Vec::<u8>::new(); SHARES];
            let mut writers: Vec<&mut dyn Write> = Vec::new();
            for share in &mut shares {
                writers.push(share);
            }
            state.encode_placed(&mut writers).unwrap();
            written.push(shares);
        }
        let mut chosen: Vec<u64> = Vec::new();
        for share in 0..SHARES {
            let mut merged = first_rows(&columns, budget_bytes, &[]);
            for shares in &written {
                merged.add_placed(&mut shares[share].as_slice()).unwrap();
            }
            merged
                .for_each_unordered(|results| {
                    chosen.extend_from_slice(results[0].as_primitive::<UInt64Type>().values());
                    Ok(())
                })
                .unwrap();
        }
        chosen.sort_unstable();
        assert_eq!(chosen, expected, "a budget of {budget_bytes} bytes");
    }
}

#[test]
fn keys_in_memory_are_the_first_rows_in_their_order() {
    let cases: &[&[&str]] = &[
        &["words"],
        &["i64"],
        &["u8", "i32"],
        &["text", "words", "flag", "date", "u8"],
        &["i64", "u8", "i64", "words", "i64", "date", "i64", "flag"],
        &["i64"; 9],
    ];
    let large = 1 << 28;
    let in_order = [0..700, 700..ROWS];
    for names in cases {
        let columns: Vec<ArrayRef> = names.iter().map(|name| key(name)).collect();
        let mut first: Vec<u32> = Vec::new();
        for rows in rows_by_key(&columns) {
            first.push(rows[0] as u32);
        }
        first.sort_unstable();
        let first = UInt32Array::from(first);
        let mut expected = Vec::new();
        for column in &columns {
            let column = cast(column, &logical_type(column.data_type())).unwrap();
            expected.push(arrow::compute::take(&column, &first, None).unwrap());
        }
        let state = first_rows(&columns, large, &in_order);
        assert_eq!(rows_of_keys(&state), Some(expected), "{names:?}");
        // Groups of later rows have the lower numbers, and spilled groups have none.
        let state = first_rows(&columns, large, &[700..ROWS, 0..700]);
        assert_eq!(rows_of_keys(&state), None, "{names:?}");
        let state = first_rows(&columns, 1 << 10, &in_order);
        assert_eq!(rows_of_keys(&state), None, "{names:?}");
    }
    // The zeros and the NaN of keys are not those of all rows, and other values are decoded from bytes.
    for name in ["f64", "binary", "decimal"] {
        let columns = [key("i64"), key(name)];
        let state = first_rows(&columns, large, &in_order);
        assert_eq!(rows_of_keys(&state), None, "{name}");
    }
    // Doubles without them are those of rows.
    let doubles: ArrayRef = Arc::new(Float64Array::from(rows(|row| {
        (row % 7 > 0).then_some((row % 50) as f64 - 3.0)
    })));
    let state = first_rows(&[doubles], large, &in_order);
    assert!(rows_of_keys(&state).is_some());
}
