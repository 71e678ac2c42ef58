//! Checks the laws of every analyzer on awkward data.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{cast, concat_batches, take};
use arrow::datatypes::{DataType, Schema};
use forebay_analyze::laws::{check_laws, compute_finding};
use forebay_analyze::*;
use forebay_model::{
    Analyzer, AnalyzerInput, AnyAnalyzer, Finding, GroupBy, GroupFunction, GroupKey, GroupResult,
    KeySample, MemoryScratch, Result, RowKeys, ScratchSpace, logical_type,
};
use proptest::prelude::*;

fn awkward() -> impl Strategy<Value = f64> {
    prop_oneof![
        5 => -1000.0..1000.0f64,
        2 => Just(1e15),
        2 => Just(3.0),
        2 => Just(0.1),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 5e-324, -1e-310]),
        1 => prop::sample::select(vec![f64::MAX, f64::MIN, f64::MIN_POSITIVE]),
        1 => any::<f64>(),
    ]
}

fn number_columns() -> impl Strategy<Value = Vec<ArrayRef>> {
    let floats = prop::collection::vec(prop::option::weighted(0.9, awkward()), 0..300);
    let integers = prop::collection::vec(
        prop::option::weighted(
            0.9,
            prop_oneof![any::<i64>(), -9..9i64, Just(i64::MIN), Just(i64::MAX)],
        ),
        0..300,
    );
    (floats, integers).prop_map(|(floats, integers)| {
        let small: Vec<Option<f32>> = floats.iter().map(|x| x.map(|x| x as f32)).collect();
        let bytes: Vec<Option<i8>> = integers.iter().map(|x| x.map(|x| x as i8)).collect();
        let unsigned: Vec<Option<u64>> = integers.iter().map(|x| x.map(|x| x as u64)).collect();
        let flags: Vec<Option<bool>> = integers.iter().map(|x| x.map(|x| x > 0)).collect();
        vec![
            Arc::new(Float64Array::from(floats)) as ArrayRef,
            Arc::new(Float32Array::from(small)),
            Arc::new(Int64Array::from(integers)),
            Arc::new(Int8Array::from(bytes)),
            Arc::new(UInt64Array::from(unsigned)),
            Arc::new(BooleanArray::from(flags)),
        ]
    })
}

fn words(rows: usize) -> impl Strategy<Value = Vec<Option<String>>> {
    let word = prop_oneof![
        4 => "[a-c]{0,2}".boxed(),
        2 => "[a-z\u{e9}\u{4e16}\0]{0,24}".boxed(),
        1 => "[0-9]{60,90}".boxed(),
    ];
    prop::collection::vec(prop::option::weighted(0.9, word), 0..rows)
}

fn layouts(words: &[Option<String>]) -> Vec<ArrayRef> {
    let plain: ArrayRef = Arc::new(StringArray::from(words.to_vec()));
    let dictionary = |key| DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
    let others = [
        DataType::LargeUtf8,
        DataType::Utf8View,
        dictionary(DataType::Int32),
        dictionary(DataType::UInt16),
    ];
    let others: Vec<ArrayRef> = others
        .iter()
        .map(|layout| cast(&plain, layout).unwrap())
        .collect();
    [vec![plain], others].concat()
}

fn batch(columns: &[ArrayRef]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns
            .iter()
            .enumerate()
            .map(|(i, c)| (format!("c{i}"), c.clone(), true)),
    )
    .unwrap()
}

fn state_bytes(analyzer: &dyn AnyAnalyzer, columns: &[ArrayRef]) -> Vec<u8> {
    let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
    let mut state = analyzer.zero(&scratch).unwrap();
    let rows = columns[0].len();
    let keys = RowKeys::sequence(1, 0, rows);
    analyzer
        .update(
            &mut state,
            &AnalyzerInput {
                columns,
                rows,
                keys: Some(keys.as_slice()),
            },
        )
        .unwrap();
    let mut bytes = Vec::new();
    analyzer.encode(&mut state, &mut bytes).unwrap();
    bytes
}

fn finding(analyzer: &dyn AnyAnalyzer, columns: &[ArrayRef]) -> Finding {
    compute_finding(analyzer, &[batch(columns)], 64 << 20).unwrap()
}

/// Weights, some of which are missing or 0.
fn weights() -> impl Strategy<Value = Vec<Option<f64>>> {
    let weight = prop_oneof![
        5 => 0.0..10.0f64,
        2 => Just(1.0),
        1 => prop::sample::select(vec![0.0, -0.0, f64::NAN]),
        1 => prop::sample::select(vec![1e-200, 1e200, 1e-16, 1e16]),
    ]
    // A drawn weight may be too small to be one.
    .prop_map(|weight: f64| if weight.abs() < 1e-200 { 0.0 } else { weight });
    prop::collection::vec(prop::option::weighted(0.9, weight), 0..300)
}

fn of_numbers() -> Vec<Box<dyn AnyAnalyzer>> {
    let buckets = || QuantileRequest::Buckets(10);
    vec![
        Box::new(ColumnMoments),
        Box::new(ColumnCounts),
        Box::new(ValueShape),
        Box::new(TokenVocabulary::default()),
        Box::new(SampledQuantiles {
            epsilon: 0.1,
            ask: buckets(),
        }),
        Box::new(SampledQuantiles {
            epsilon: 0.5,
            ask: QuantileRequest::Probabilities(vec![0.25, 0.5]),
        }),
        Box::new(ExactQuantiles {
            ask: QuantileRequest::Buckets(10),
        }),
        Box::new(SampledStatistic(PowerFit {
            family: PowerFamily::YeoJohnson,
            epsilon: 0.5,
        })),
        Box::new(SampledStatistic(PowerFit {
            family: PowerFamily::BoxCox,
            epsilon: 0.1,
        })),
        Box::new(SampledStatistic(ColumnClusters {
            clusters: 5,
            epsilon: 0.5,
        })),
        Box::new(DistinctCount::default()),
        Box::new(DistinctCount { precision: 4 }),
        Box::new(Histogram {
            edges: vec![-3.0, 0.0, 0.5, 1e15],
        }),
    ]
}

fn of_words() -> Vec<Box<dyn AnyAnalyzer>> {
    vec![
        Box::new(ColumnCounts),
        Box::new(ValueShape),
        Box::new(TokenVocabulary::default()),
        Box::new(TokenVocabulary {
            min_count: 2,
            top_k: Some(3),
            order: VocabularyOrder::Value,
        }),
        Box::new(DistinctCount { precision: 8 }),
        Box::new(KeyRange {
            keys: vec![DataType::Utf8],
        }),
    ]
}

/// Lists of numbers, and bytes.
fn of_lists(rows: usize) -> Vec<ArrayRef> {
    let mut lists = ListBuilder::new(Float64Builder::new());
    let mut bytes = BinaryBuilder::new();
    for row in 0..rows {
        let length = row % 9;
        lists.append_option(
            (row % 7 != 3).then(|| (0..length).map(move |place| Some((row % 40 + place) as f64))),
        );
        bytes.append_option((row % 5 != 2).then(|| vec![(row % 60) as u8; length * 3]));
    }
    vec![Arc::new(lists.finish()), Arc::new(bytes.finish())]
}

/// The groups of rows, with a finding of all of them: without one the laws of findings would have nothing to compare.
#[derive(Debug)]
struct FoundGroups(GroupByAnalyzer);

impl Analyzer for FoundGroups {
    type State = GroupByState;

    fn kind(&self) -> &'static str {
        Analyzer::kind(&self.0)
    }

    fn version(&self) -> u32 {
        Analyzer::version(&self.0)
    }

    fn config(&self) -> serde_json::Value {
        Analyzer::config(&self.0)
    }

    fn order_free(&self) -> bool {
        Analyzer::order_free(&self.0)
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<GroupByState> {
        Analyzer::zero(&self.0, scratch)
    }

    fn update(&self, state: &mut GroupByState, input: &AnalyzerInput<'_>) -> Result<()> {
        Analyzer::update(&self.0, state, input)
    }

    fn merge(&self, state: &mut GroupByState, later: GroupByState) -> Result<()> {
        Analyzer::merge(&self.0, state, later)
    }

    fn encode(&self, state: &mut GroupByState, out: &mut dyn Write) -> Result<()> {
        Analyzer::encode(&self.0, state, out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<GroupByState> {
        Analyzer::decode(&self.0, input, scratch)
    }

    fn decode_large(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<GroupByState> {
        Analyzer::decode_large(&self.0, input, scratch)
    }

    fn divisible_bytes(&self, state: &GroupByState) -> Option<u64> {
        Analyzer::divisible_bytes(&self.0, state)
    }

    fn encode_shares(
        &self,
        state: &mut GroupByState,
        shares: &mut [&mut dyn Write],
    ) -> Result<Option<KeySample>> {
        Analyzer::encode_shares(&self.0, state, shares)
    }

    fn spill(&self, state: &mut GroupByState) -> Result<()> {
        Analyzer::spill(&self.0, state)
    }

    fn finish(&self, state: GroupByState) -> Result<Finding> {
        let mut groups = state.into_sorted()?;
        let mut batches = Vec::new();
        while let Some(columns) = groups.next_columns()? {
            batches.push(batch(&columns));
        }
        let Some(first) = batches.first() else {
            return Ok(Finding::new(RecordBatch::new_empty(Schema::empty().into())));
        };
        Ok(Finding::new(concat_batches(&first.schema(), &batches)?))
    }

    fn size_bytes(&self, state: &GroupByState) -> usize {
        Analyzer::size_bytes(&self.0, state)
    }
}

/// Groups by the first columns, with all functions of the three columns behind them: numbers, numbers, texts.
fn groups(columns: &[ArrayRef], functions: &[(GroupFunction, usize)]) -> FoundGroups {
    let (keys, values) = columns.split_at(columns.len() - 3);
    let types = |columns: &[ArrayRef]| {
        columns
            .iter()
            .map(|column| logical_type(column.data_type()))
            .collect::<Vec<_>>()
    };
    let keys = types(keys)
        .into_iter()
        .map(|data_type| GroupKey {
            data_type,
            bucket: None,
        })
        .collect();
    let results = functions
        .iter()
        .map(|&(function, value)| GroupResult { function, value })
        .collect();
    FoundGroups(
        GroupByAnalyzer::new(&Arc::new(GroupBy {
            value_names: Vec::new(),
            keys,
            values: types(values),
            results,
        }))
        .unwrap(),
    )
}

/// Functions whose states are divided by keys: those that count distinct values are not.
fn divided_functions() -> Vec<(GroupFunction, usize)> {
    use GroupFunction as F;
    let numbers = [
        F::Sum,
        F::Mean,
        F::Var { ddof: 1 },
        F::WeightedMean { weight: 1 },
    ];
    let any = [F::Count, F::Min, F::Max, F::ApproxNUnique];
    let numbers = numbers.into_iter().map(|function| (function, 0));
    numbers
        .chain((0..3).flat_map(|value| any.map(|function| (function, value))))
        .chain([(F::CountRows, 0)])
        .collect()
}

/// Functions of the order of rows.
fn ordered_functions() -> Vec<(GroupFunction, usize)> {
    use GroupFunction as F;
    let any = [
        F::First,
        F::Last,
        F::FirstBy { time: 1 },
        F::LastBy { time: 1 },
        F::List {
            limit: 3,
            truncate: true,
        },
        F::List {
            limit: 10_000,
            truncate: false,
        },
    ];
    (0..3)
        .flat_map(|value| any.map(|function| (function, value)))
        .collect()
}

/// Functions of distinct values.
fn distinct_functions() -> Vec<(GroupFunction, usize)> {
    use GroupFunction as F;
    let any = [F::NUnique, F::TopK { k: 1 }, F::TopK { k: 4 }];
    let numbers = [(F::Quantile { q: 0.3 }, 0), (F::First, 2)];
    (0..3)
        .flat_map(|value| any.map(|function| (function, value)))
        .chain(numbers)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn analyzers_of_numbers(columns in number_columns(), seed in any::<u64>()) {
        for column in &columns {
            for analyzer in of_numbers() {
                check_laws(&*analyzer, &[batch(std::slice::from_ref(column))], seed)
                    .map_err(|law| TestCaseError::fail(format!("{analyzer:?} {}: {law}", column.data_type())))?;
            }
        }
    }

    #[test]
    fn analyzers_of_words(words in words(2000), seed in any::<u64>()) {
        for column in layouts(&words) {
            for analyzer in of_words() {
                check_laws(&*analyzer, &[batch(std::slice::from_ref(&column))], seed)
                    .map_err(|law| TestCaseError::fail(format!("{analyzer:?} {}: {law}", column.data_type())))?;
            }
            let first = FirstRows { most: 3, files: Arc::new(FileRowKeys::new([(seed, 1 << 40)])) };
            check_laws(&first, &[batch(std::slice::from_ref(&column))], seed).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn counts_of_parts(flags in prop::collection::vec(prop::array::uniform2(any::<Option<bool>>()), 0..300), seed in any::<u64>()) {
        let part = |at: usize| Arc::new(flags.iter().map(|row| row[at]).collect::<BooleanArray>()) as ArrayRef;
        check_laws(&PartCounts, &[batch(&[part(0), part(1)])], seed).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn moments_by_key(columns in number_columns(), words in words(300), seed in any::<u64>()) {
        for (value, key) in [(0, 2), (2, 5), (1, 3)] {
            for text in layouts(&words) {
                let rows = columns[value].len().min(columns[key].len()).min(text.len());
                let data: Vec<ArrayRef> = [&columns[value], &columns[key], &text].map(|c| c.slice(0, rows)).to_vec();
                let keys = vec![data[1].data_type().clone(), data[2].data_type().clone()];
                let quantiles = GroupedQuantiles::new(&keys, &[0.25, 0.5]).unwrap();
                check_laws(&quantiles, &[batch(&data)], seed)
                    .map_err(|law| TestCaseError::fail(format!("{quantiles:?}: {law}")))?;
                let analyzer = GroupedMoments { keys };
                check_laws(&analyzer, &[batch(&data)], seed)
                    .map_err(|law| TestCaseError::fail(format!("{analyzer:?}: {law}")))?;
                let plain = cast(&data[2], &DataType::Utf8).unwrap();
                let other = [data[0].clone(), data[1].clone(), plain];
                prop_assert_eq!(state_bytes(&analyzer, &data), state_bytes(&analyzer, &other));
            }
        }
    }

    #[test]
    fn latest_rows_by_key(columns in number_columns(), words in words(300), seed in any::<u64>()) {
        for text in layouts(&words) {
            // Keys that recur, times, and numbers that are carried on.
            let rows = columns[3].len().min(columns[0].len()).min(text.len());
            let data: Vec<ArrayRef> = [&text, &columns[3], &columns[0]].map(|c| c.slice(0, rows)).to_vec();
            let analyzer = LatestRows {
                keys: vec![data[0].data_type().clone()],
                time: DataType::Int8,
                values: vec![DataType::Float64],
                month_days: seed % 2 == 0,
                times_of_day: seed % 3 == 0,
            };
            check_laws(&analyzer, &[batch(&data)], seed)
                .map_err(|law| TestCaseError::fail(format!("{analyzer:?}: {law}")))?;
            let plain = cast(&data[0], &DataType::Utf8).unwrap();
            let other = [plain, data[1].clone(), data[2].clone()];
            prop_assert_eq!(state_bytes(&analyzer, &data), state_bytes(&analyzer, &other));
        }
    }

    #[test]
    fn several_columns(columns in number_columns(), seed in any::<u64>()) {
        for chosen in [vec![0], vec![0, 1, 3], vec![2, 4, 5, 1]] {
            let rows = chosen.iter().map(|index| columns[*index].len()).min().unwrap_or(0);
            let data: Vec<ArrayRef> = chosen.iter().map(|index| columns[*index].slice(0, rows)).collect();
            let analyzer = ColumnCovariance { columns: data.len() };
            check_laws(&analyzer, &[batch(&data)], seed).map_err(TestCaseError::fail)?;
            for rows_max in [1, 20, 400] {
                let analyzer = SampledRows { columns: data.len(), rows_max };
                check_laws(&analyzer, &[batch(&data)], seed).map_err(TestCaseError::fail)?;
            }
        }
    }

    #[test]
    fn pairs_of_columns(columns in number_columns(), words in words(300), seed in any::<u64>()) {
        for (first, second) in [(0, 1), (0, 3), (2, 4), (3, 5), (2, 2)] {
            let rows = columns[first].len().min(columns[second].len());
            let data = [&columns[first], &columns[second]].map(|column| column.slice(0, rows));
            check_laws(&ColumnCorrelation, &[batch(&data)], seed).map_err(TestCaseError::fail)?;
        }
        for text in layouts(&words) {
            for other in [&columns[3], &columns[5]] {
                let rows = text.len().min(other.len());
                let data = [&text, other].map(|column| column.slice(0, rows));
                let analyzer = CategoryAssociation { types: [text.data_type().clone(), other.data_type().clone()] };
                check_laws(&analyzer, &[batch(&data)], seed).map_err(TestCaseError::fail)?;
                let turned = [data[1].clone(), data[0].clone()];
                let analyzer = CategoryAssociation { types: [other.data_type().clone(), text.data_type().clone()] };
                check_laws(&analyzer, &[batch(&turned)], seed).map_err(TestCaseError::fail)?;
            }
        }
    }

    #[test]
    fn weighted_quantiles(columns in number_columns(), weights in weights(), seed in any::<u64>()) {
        let weights: ArrayRef = Arc::new(Float64Array::from(weights));
        for column in &columns {
            let rows = column.len().min(weights.len());
            let data = [column, &weights].map(|column| column.slice(0, rows));
            for ask in [QuantileRequest::Buckets(10), QuantileRequest::Probabilities(vec![0.9, 0.0, 0.5])] {
                let weight = "w".to_owned();
                let exact = ExactWeightedQuantiles { ask: ask.clone(), weight: weight.clone() };
                check_laws(&exact, &[batch(&data)], seed)
                    .map_err(|law| TestCaseError::fail(format!("{exact:?}: {law}")))?;
                // Samples of 30 draws, and of 726 rows, which are all of them.
                for epsilon in [0.5, 0.1] {
                    let sampled = SampledWeightedQuantiles { epsilon, ask: ask.clone(), weight: weight.clone() };
                    check_laws(&sampled, &[batch(&data)], seed)
                        .map_err(|law| TestCaseError::fail(format!("{sampled:?}: {law}")))?;
                }
                let whole = SampledWeightedQuantiles { epsilon: 0.1, ask: ask.clone(), weight };
                prop_assert_eq!(finding(&whole, &data), finding(&exact, &data));
            }
        }
    }

    #[test]
    fn weighted_quantiles_by_key(columns in number_columns(), weights in weights(), words in words(300), seed in any::<u64>()) {
        let weights: ArrayRef = Arc::new(Float64Array::from(weights));
        for text in layouts(&words) {
            let rows = columns[0].len().min(weights.len()).min(text.len());
            let data: Vec<ArrayRef> =
                [&text, &columns[0], &weights, &text].map(|column| column.slice(0, rows)).to_vec();
            let functions = [0.0, 0.3, 1.0].map(|q| (GroupFunction::WeightedQuantile { q, weight: 1 }, 0));
            let analyzer = groups(&data, &functions);
            check_laws(&analyzer, &[batch(&data)], seed)
                .map_err(|law| TestCaseError::fail(format!("{analyzer:?}: {law}")))?;
            let data = [&columns[0], &weights, &text].map(|column| column.slice(0, rows));
            let keys = [text.data_type().clone()];
            let analyzer = GroupedQuantiles::weighted(&keys, "w", &[0.25, 0.5]).unwrap();
            check_laws(&analyzer, &[batch(&data)], seed)
                .map_err(|law| TestCaseError::fail(format!("{analyzer:?}: {law}")))?;
        }
    }

    #[test]
    fn series(columns in number_columns(), words in words(300), seed in any::<u64>()) {
        for (time, value) in [(3, 0), (2, 2)] {
            for text in layouts(&words) {
                let rows = columns[time].len().min(columns[value].len()).min(text.len());
                let data: Vec<ArrayRef> =
                    [&columns[time], &columns[value], &text].map(|column| column.slice(0, rows)).to_vec();
                let analyzer = SeriesShape { keys: vec![text.data_type().clone()], has_value: true, in_local_time: false };
                check_laws(&analyzer, &[batch(&data)], seed).map_err(TestCaseError::fail)?;
                let analyzer = SeriesShape { keys: vec![text.data_type().clone()], has_value: false, in_local_time: false };
                let data = [data[0].clone(), data[2].clone()];
                check_laws(&analyzer, &[batch(&data)], seed).map_err(TestCaseError::fail)?;
            }
        }
    }

    /// Days at the beginning and the end of months, of which some series have months alone.
    #[test]
    fn series_of_months(
        days in prop::collection::vec(prop::sample::select(vec![0, 31, 59, 90, 30, 58, 89, 88]), 0..200),
        words in words(300),
        seed in any::<u64>(),
    ) {
        for text in layouts(&words) {
            let rows = days.len().min(text.len());
            let days: ArrayRef = Arc::new(Date32Array::from(days[..rows].to_vec()));
            let data = [days, text.slice(0, rows)];
            let analyzer = SeriesShape { keys: vec![text.data_type().clone()], has_value: false, in_local_time: false };
            check_laws(&analyzer, &[batch(&data)], seed).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn examples_of_lists_and_bytes(rows in 0..300_usize, seed in any::<u64>()) {
        for column in of_lists(rows) {
            check_laws(&ColumnExamples, &[batch(&[column])], seed).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn layouts_do_not_matter(words in words(400)) {
        for analyzer in of_words() {
            let all: Vec<_> = layouts(&words).iter().map(|c| state_bytes(&*analyzer, std::slice::from_ref(c))).collect();
            prop_assert!(all.iter().all(|bytes| bytes == &all[0]), "{analyzer:?}");
        }
    }

    #[test]
    fn widths_do_not_matter(values in prop::collection::vec(prop::option::of(any::<i8>()), 0..200)) {
        let narrow: ArrayRef = Arc::new(Int8Array::from(values));
        let floats = cast(&narrow, &DataType::Float32).unwrap();
        for (from, to) in [(&narrow, DataType::Int64), (&narrow, DataType::Int16), (&floats, DataType::Float64)] {
            let wide = cast(from, &to).unwrap();
            prop_assert_eq!(state_bytes(&ColumnMoments, std::slice::from_ref(from)), state_bytes(&ColumnMoments, &[wide]));
        }
        prop_assert_eq!(state_bytes(&ColumnMoments, &[narrow]), state_bytes(&ColumnMoments, &[floats]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5))]

    #[test]
    fn groups_of_rows(columns in number_columns(), words in words(900), seed in any::<u64>()) {
        let texts = layouts(&words);
        // Rows repeat the numbers, so that states outgrow their memory.
        let rows = if columns[0].is_empty() || columns[2].is_empty() { 0 } else { words.len() };
        let repeated = |column: &ArrayRef| -> ArrayRef {
            let places: UInt32Array = (0..rows as u32).map(|row| row % column.len() as u32).collect();
            take(column, &places, None).unwrap()
        };
        for (place, keys) in [vec![], vec![3], vec![2], vec![0], vec![5, 2, 1]].into_iter().enumerate() {
            let text = texts[place].slice(0, rows);
            // A key of few values, as numbers or as texts; times with ties.
            let keys = keys.into_iter().map(|key| repeated(&columns[key]));
            let keys: Vec<ArrayRef> = keys.chain((place > 2).then(|| text.clone())).collect();
            let values = [repeated(&columns[0]), repeated(&columns[3]), text];
            let data = [keys, values.to_vec()].concat();
            for functions in [divided_functions(), ordered_functions(), distinct_functions()] {
                let analyzer = groups(&data, &functions);
                check_laws(&analyzer, &[batch(&data)], seed)
                    .map_err(|law| TestCaseError::fail(format!("{analyzer:?}: {law}")))?;
            }
        }
    }
}
