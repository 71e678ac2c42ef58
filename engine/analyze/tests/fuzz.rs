//! Decodes damaged states: a fault or a finding, never a panic, never much memory.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::DataType;
use forebay_analyze::*;
use forebay_fuzz::{CountingAllocator, FuzzTarget, fuzz};
use forebay_model::{AnalyzerInput, AnyAnalyzer, MemoryScratch, RowKeys, ScratchSpace};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn analyzers() -> Vec<Box<dyn AnyAnalyzer>> {
    vec![
        Box::new(ColumnMoments),
        Box::new(ColumnCounts),
        Box::new(TokenVocabulary::default()),
        Box::new(TokenVocabulary {
            min_count: 2,
            top_k: Some(3),
            order: VocabularyOrder::Value,
        }),
        Box::new(SampledQuantiles {
            epsilon: 0.1,
            ask: QuantileRequest::Buckets(10),
        }),
        Box::new(ExactQuantiles {
            ask: QuantileRequest::Buckets(10),
        }),
        Box::new(DistinctCount::default()),
        Box::new(DistinctCount { precision: 4 }),
        Box::new(ColumnExamples),
        Box::new(Histogram {
            edges: vec![-3.0, 0.0, 0.5, 1e15],
        }),
        Box::new(GroupedMoments {
            keys: vec![DataType::Int64, DataType::Utf8],
        }),
        Box::new(LatestRows {
            keys: vec![DataType::Float64],
            time: DataType::Int64,
            values: vec![DataType::Utf8],
            month_days: false,
            times_of_day: false,
        }),
        Box::new(LatestRows {
            keys: vec![DataType::Float64],
            time: DataType::Date32,
            values: vec![DataType::Utf8],
            month_days: true,
            times_of_day: false,
        }),
        Box::new(LatestRows {
            keys: vec![DataType::Float64],
            time: DataType::Date32,
            values: vec![DataType::Utf8],
            month_days: false,
            times_of_day: true,
        }),
        Box::new(ColumnCovariance { columns: 1 }),
        Box::new(SampledRows {
            columns: 1,
            rows_max: 20,
        }),
        Box::new(SampledStatistic(ColumnClusters {
            clusters: 3,
            epsilon: 0.5,
        })),
    ]
}

/// The encoded state of each analyzer over a few rows, after the analyzer's number.
fn seeds() -> Vec<Vec<u8>> {
    let numbers: ArrayRef = Arc::new(Float64Array::from_iter(
        (0..60).map(|i| (i % 7 != 0).then_some(f64::from(i) / 8.0)),
    ));
    let whole: ArrayRef = Arc::new(Int64Array::from_iter_values((0..60).map(|i| i * i)));
    let words: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..60).map(|i| format!("a word {}", i % 9)),
    ));
    let columns = [
        vec![numbers.clone()],
        vec![words.clone()],
        vec![numbers, whole, words],
    ];
    let mut seeds = Vec::new();
    for (number, analyzer) in analyzers().iter().enumerate() {
        for columns in &columns {
            let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
            let keys = RowKeys::sequence(1, 0, 60);
            let mut state = analyzer.zero(&scratch).unwrap();
            let input = AnalyzerInput {
                columns,
                rows: 60,
                keys: Some(keys.as_slice()),
            };
            let takes = if matches!(analyzer.kind(), "key_moments" | "latest_rows") {
                3
            } else {
                1
            };
            if columns.len() == takes && analyzer.update(&mut state, &input).is_ok() {
                let mut bytes = vec![number as u8];
                analyzer.encode(&mut state, &mut bytes).unwrap();
                seeds.push(bytes);
            }
        }
    }
    seeds
}

#[test]
fn states() {
    let analyzers = analyzers();
    assert!(seeds().len() > analyzers.len());
    fuzz!(
        FuzzTarget::new("states").seeds(seeds()),
        |bytes: &[u8]| {
            let Some((number, mut rest)) = bytes.split_first() else {
                return;
            };
            let analyzer = &analyzers[usize::from(*number) % analyzers.len()];
            let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
            let Ok(mut state) = analyzer.decode(&mut rest, &scratch) else {
                return;
            };
            analyzer.size_bytes(&state);
            // Decoded states encode and decode again.
            let mut stable = Vec::new();
            if analyzer.encode(&mut state, &mut stable).is_ok()
                && let Ok(again) = analyzer.decode(&mut stable.as_slice(), &scratch)
            {
                let _ = analyzer.merge(&mut state, again);
            }
            let Ok(finding) = analyzer.finish(state) else {
                return;
            };
            let _ = analyzer.index(&finding);
        }
    );
}
