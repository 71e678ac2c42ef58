//! Nanoseconds per value of the analyzers' hot loops: `cargo run --release --example throughput`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Instant;

use arrow::array::*;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_analyze::*;
use forebay_model::{AnalyzerInput, AnyAnalyzer, MemoryScratch, RowKeys, ScratchSpace};

const ROWS: usize = 4 << 20;
const BATCH_ROWS: usize = 8192;

fn measure(name: &str, analyzer: &dyn AnyAnalyzer, columns: &[ArrayRef]) {
    measure_within(256 << 20, name, analyzer, columns);
}

fn measure_within(
    budget_bytes: usize,
    name: &str,
    analyzer: &dyn AnyAnalyzer,
    columns: &[ArrayRef],
) {
    let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch { budget_bytes });
    let keys = RowKeys::sequence(7, 0, ROWS);
    let mut update_ns = f64::INFINITY;
    let mut finish_ns = f64::INFINITY;
    for _ in 0..3 {
        let mut state = analyzer.zero(&scratch).unwrap();
        let start = Instant::now();
        for at in (0..ROWS).step_by(BATCH_ROWS) {
            let columns: Vec<ArrayRef> = columns
                .iter()
                .map(|column| column.slice(at, BATCH_ROWS))
                .collect();
            let keys = Some(&keys.as_slice()[at..at + BATCH_ROWS]);
            analyzer
                .update(
                    &mut state,
                    &AnalyzerInput {
                        columns: &columns,
                        rows: BATCH_ROWS,
                        keys,
                    },
                )
                .unwrap();
        }
        update_ns = update_ns.min(start.elapsed().as_nanos() as f64);
        let start = Instant::now();
        std::hint::black_box(analyzer.finish(state).unwrap());
        finish_ns = finish_ns.min(start.elapsed().as_nanos() as f64);
    }
    println!(
        "{name:<36} {:8.2} ns/value, finish {:10.3} ms",
        update_ns / ROWS as f64,
        finish_ns / 1e6
    );
}

/// Accumulators of groups in any order, as queries hold them.
fn measure_groups<S: Default>(
    name: &str,
    groups: usize,
    numbers: &[f64],
    mut push: impl FnMut(&mut S, f64),
) {
    let order: Vec<usize> = RowKeys::sequence(3, 0, ROWS)
        .as_slice()
        .iter()
        .map(|key| *key as usize % groups)
        .collect();
    let mut push_ns = f64::INFINITY;
    for _ in 0..3 {
        let mut sums: Vec<S> = Vec::new();
        sums.resize_with(groups, S::default);
        let start = Instant::now();
        for (group, number) in order.iter().zip(numbers) {
            push(&mut sums[*group], *number);
        }
        push_ns = push_ns.min(start.elapsed().as_nanos() as f64);
        std::hint::black_box(sums);
    }
    let name = format!("{name} of {groups} groups");
    println!("{name:<36} {:8.2} ns/value", push_ns / ROWS as f64);
}

fn push_pair(pairs: &mut PairMoments, x: f64) {
    pairs.push(x, 0.7 * x);
}

fn main() {
    let random = RowKeys::sequence(1, 0, ROWS);
    let uniform: Vec<f64> = random
        .as_slice()
        .iter()
        .map(|&key| (key >> 11) as f64 / (1u64 << 53) as f64)
        .collect();
    let doubles: ArrayRef = Arc::new(Float64Array::from_iter_values(
        uniform.iter().map(|x| x * 2000.0 - 1000.0),
    ));
    let holes: ArrayRef = Arc::new(Float64Array::from_iter(
        uniform.iter().map(|&x| (x > 0.1).then_some(x)),
    ));
    let floats = cast(&doubles, &DataType::Float32).unwrap();
    let float_holes = cast(&holes, &DataType::Float32).unwrap();
    let integers = cast(&doubles, &DataType::Int64).unwrap();
    let large: ArrayRef = Arc::new(Int64Array::from_iter_values(
        random.as_slice().iter().map(|&key| key as i64),
    ));
    let skewed = |n: f64| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            uniform
                .iter()
                .map(|x| format!("item-{:07}", (x * x * n) as u64)),
        ))
    };
    let items = skewed(30_000.0);
    let many = skewed(3_000_000.0);
    let coded = cast(
        &items,
        &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
    )
    .unwrap();
    let views = cast(&items, &DataType::Utf8View).unwrap();

    measure(
        "moments f64",
        &ColumnMoments,
        std::slice::from_ref(&doubles),
    );
    measure("moments f64, 10 % null", &ColumnMoments, &[holes]);
    measure("moments f32", &ColumnMoments, std::slice::from_ref(&floats));
    measure("moments f32, 10 % null", &ColumnMoments, &[float_holes]);
    measure(
        "moments i64, small",
        &ColumnMoments,
        std::slice::from_ref(&integers),
    );
    measure("moments i64, large", &ColumnMoments, &[large]);
    measure("counts", &ColumnCounts, std::slice::from_ref(&floats));
    measure(
        "vocabulary, dictionary 30 k",
        &TokenVocabulary::default(),
        std::slice::from_ref(&coded),
    );
    measure(
        "vocabulary, plain, 30 k",
        &TokenVocabulary::default(),
        std::slice::from_ref(&items),
    );
    measure(
        "vocabulary, views, 30 k",
        &TokenVocabulary::default(),
        &[views],
    );
    measure(
        "vocabulary, plain, 1.5 M",
        &TokenVocabulary::default(),
        std::slice::from_ref(&many),
    );
    measure_within(
        16 << 20,
        "the same in 16 MiB",
        &TokenVocabulary::default(),
        std::slice::from_ref(&many),
    );
    let top = TokenVocabulary {
        top_k: Some(1000),
        ..TokenVocabulary::default()
    };
    measure("vocabulary, plain, 1.5 M, top 1000", &top, &[many]);
    measure(
        "vocabulary, integers",
        &TokenVocabulary::default(),
        &[integers],
    );
    let quantiles = |epsilon| SampledQuantiles {
        epsilon,
        ask: QuantileRequest::Buckets(100),
    };
    measure(
        "quantiles f32, epsilon 0.01",
        &quantiles(0.01),
        std::slice::from_ref(&floats),
    );
    measure(
        "quantiles f32, epsilon 0.002",
        &quantiles(0.002),
        std::slice::from_ref(&floats),
    );
    measure(
        "exact quantiles f32",
        &ExactQuantiles {
            ask: QuantileRequest::Buckets(100),
        },
        std::slice::from_ref(&floats),
    );
    let exact = ExactQuantiles {
        ask: QuantileRequest::Buckets(100),
    };
    measure_within(
        16 << 20,
        "the same in 16 MiB",
        &exact,
        std::slice::from_ref(&floats),
    );
    measure(
        "distinct count f32",
        &DistinctCount::default(),
        std::slice::from_ref(&floats),
    );
    measure(
        "distinct count, dictionary",
        &DistinctCount::default(),
        std::slice::from_ref(&coded),
    );
    measure(
        "histogram f32, 5 edges",
        &Histogram {
            edges: vec![-500.0, -1.0, 0.0, 1.0, 500.0],
        },
        std::slice::from_ref(&floats),
    );
    let by_key = GroupedMoments {
        keys: vec![DataType::Utf8],
    };
    measure(
        "moments by key, f64, dictionary 30 k",
        &by_key,
        &[doubles, coded.clone()],
    );
    measure(
        "moments by key, f32, dictionary 30 k",
        &by_key,
        &[floats.clone(), coded],
    );
    measure(
        "moments by key, f32, plain 30 k",
        &by_key,
        &[floats, items.clone()],
    );
    let pairs = CategoryAssociation {
        types: [DataType::Utf8, DataType::Utf8],
    };
    // Values that follow from the first, and values that have nothing to do with it.
    let of_items: ArrayRef = Arc::new(StringArray::from_iter_values(
        uniform
            .iter()
            .map(|x| format!("shelf {}", (x * x * 3_000.0) as u64)),
    ));
    let of_none: ArrayRef = Arc::new(StringArray::from_iter_values(
        random
            .as_slice()
            .iter()
            .map(|key| format!("shop {}", key % 2_000)),
    ));
    let dictionary = |of: &ArrayRef| {
        cast(
            of,
            &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        )
        .unwrap()
    };
    let first = dictionary(&items);
    measure(
        "pairs, dictionary 30 k x 3 k, dependent",
        &pairs,
        &[first.clone(), dictionary(&of_items)],
    );
    measure(
        "pairs, dictionary 30 k x 2 k",
        &pairs,
        &[first, dictionary(&of_none)],
    );
    measure(
        "pairs, plain 30 k x 3 k, dependent",
        &pairs,
        &[items, of_items],
    );
    for groups in [1, 1000, 300_000] {
        measure_groups("sums", groups, &uniform, SumAccumulator::push);
        measure_groups("moments", groups, &uniform, MomentAccumulator::push);
        measure_groups("moments of pairs", groups, &uniform, push_pair);
    }
}
