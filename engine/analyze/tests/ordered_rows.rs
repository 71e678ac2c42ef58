//! Learners of all rows in their order: the laws, the size of their batches, and the rows that they take.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;
use forebay_analyze::laws::{check_laws, compute_finding};
use forebay_analyze::{LearnedRows, OrderedBatches, OrderedRows, RowLearner};
use forebay_model::{
    AdmittedMemory, Analyzer, AnalyzerInput, Finding, MemoryRequest, MemoryScratch, Result,
    ScratchSpace, SpillWriter, codes,
};
use serde_json::{Value, json};

/// Writes down all values of all batches.
#[derive(Debug)]
struct WrittenRows {
    types: Vec<DataType>,
    batch_rows: usize,
    required: Option<usize>,
}

impl RowLearner for WrittenRows {
    fn kind(&self) -> &'static str {
        "written_rows"
    }

    fn config(&self) -> Value {
        json!({ "required": self.required })
    }

    fn types(&self) -> &[DataType] {
        &self.types
    }

    fn required_column(&self) -> Option<usize> {
        self.required
    }

    fn batch_rows(&self) -> usize {
        self.batch_rows
    }

    fn learn(&self, batches: &mut OrderedBatches<'_>) -> Result<Vec<u8>> {
        let mut text = String::new();
        for columns in batches {
            let columns = columns?;
            for row in 0..columns[0].len() {
                for column in &columns {
                    text.push_str(&array_value_to_string(column, row)?);
                    text.push(',');
                }
            }
            text.push(';');
        }
        Ok(text.into_bytes())
    }

    fn finding(&self, learned: LearnedRows) -> Result<Finding> {
        let text = String::from_utf8_lossy(&learned.bytes).into_owned();
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
        let rows: ArrayRef = Arc::new(Float64Array::from(vec![learned.rows as f64]));
        Finding::of([("text", texts), ("rows", rows)])
    }
}

/// Learns so many zeros.
#[derive(Debug)]
struct Zeros {
    types: Vec<DataType>,
    count: usize,
}

impl RowLearner for Zeros {
    fn kind(&self) -> &'static str {
        "zeros"
    }

    fn config(&self) -> Value {
        json!({ "count": self.count })
    }

    fn types(&self) -> &[DataType] {
        &self.types
    }

    fn batch_rows(&self) -> usize {
        8
    }

    fn learn(&self, _batches: &mut OrderedBatches<'_>) -> Result<Vec<u8>> {
        Ok(vec![0; self.count])
    }

    fn finding(&self, learned: LearnedRows) -> Result<Finding> {
        let bytes: ArrayRef = Arc::new(Float64Array::from(vec![learned.bytes.len() as f64]));
        Finding::of([("bytes", bytes)])
    }
}

fn written(batch_rows: usize, required: Option<usize>) -> OrderedRows<WrittenRows> {
    OrderedRows(WrittenRows {
        types: vec![DataType::Float64, DataType::Utf8],
        batch_rows,
        required,
    })
}

fn rows(count: usize) -> RecordBatch {
    let numbers = (0..count).map(|row| (row % 7 != 3).then_some(row as f64 / 3.0));
    let texts = (0..count).map(|row| (row % 5 != 1).then(|| "x".repeat(row % 90)));
    let numbers: ArrayRef = Arc::new(numbers.collect::<Float64Array>());
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]).unwrap()
}

#[test]
fn learners_of_rows_keep_the_laws() {
    for count in [0, 1, 10, 2_000] {
        for required in [None, Some(0), Some(1)] {
            let analyzer = written(64, required);
            check_laws(&analyzer, &[rows(count)], count as u64).unwrap();
        }
    }
}

#[test]
fn batches_have_a_fixed_size() {
    // Ten rows of which one has no number (3) and two no text (1 and 6), in two batches of five. A few last rows are part of
    // the batch before.
    let halves = [rows(10).slice(0, 5), rows(10).slice(5, 5)];
    for (required, sizes) in [
        (None, vec![4, 6]),
        (Some(0), vec![4, 5]),
        (Some(1), vec![4, 4]),
    ] {
        let analyzer = written(4, required);
        let finding = compute_finding(&analyzer, &halves, 1 << 20).unwrap();
        let text = text(&finding);
        // Two values for each row.
        let written_sizes: Vec<usize> = text
            .split_terminator(';')
            .map(|batch| batch.matches(',').count() / 2)
            .collect();
        assert_eq!(written_sizes, sizes, "{text}");
        let count: usize = sizes.iter().sum();
        assert_eq!(finding.number("rows").unwrap(), Some(count as f64));
    }
}

/// Counts the most bytes that are requested at once.
struct CountedScratch {
    scratch: MemoryScratch,
    bytes_max: AtomicUsize,
}

impl ScratchSpace for CountedScratch {
    fn budget_bytes(&self) -> usize {
        self.scratch.budget_bytes()
    }

    fn create(&self) -> Result<Box<dyn SpillWriter>> {
        self.scratch.create()
    }

    fn admit(&self, request: MemoryRequest) -> Result<AdmittedMemory> {
        self.bytes_max.fetch_max(request.now, Ordering::Relaxed);
        Ok(AdmittedMemory::default())
    }
}

/// A few long rows among many short ones make one batch larger than the average.
#[test]
fn memory_is_requested_for_the_largest_batch() {
    let long_bytes = 1 << 20;
    let counted = Arc::new(CountedScratch {
        scratch: MemoryScratch {
            budget_bytes: 1 << 20,
        },
        bytes_max: AtomicUsize::new(0),
    });
    let scratch: Arc<dyn ScratchSpace> = counted.clone();
    let analyzer = OrderedRows(WrittenRows {
        types: vec![DataType::Utf8],
        batch_rows: 8,
        required: None,
    });
    let mut state = Analyzer::zero(&analyzer, &scratch).unwrap();
    let lengths = (0..800).map(|row| if row / 4 == 100 { long_bytes } else { 1 });
    let texts: ArrayRef = Arc::new(
        lengths
            .map(|length| Some("x".repeat(length)))
            .collect::<StringArray>(),
    );
    let input = AnalyzerInput {
        columns: &[texts],
        rows: 800,
        keys: None,
    };
    Analyzer::update(&analyzer, &mut state, &input).unwrap();
    Analyzer::condense(&analyzer, &mut state).unwrap();
    let requested_bytes = counted.bytes_max.load(Ordering::Relaxed);
    assert!(requested_bytes >= 4 * 3 * long_bytes, "{requested_bytes}");
}

/// More could neither be read from a state nor be a value of a finding.
#[test]
fn results_that_no_state_holds_are_refused() {
    for (count, is_held) in [(1 << 10, true), ((1 << 30) + 1, false)] {
        let analyzer = OrderedRows(Zeros {
            types: vec![DataType::Float64, DataType::Utf8],
            count,
        });
        match compute_finding(&analyzer, &[rows(3)], 1 << 20) {
            Ok(_) => assert!(is_held, "{count}"),
            Err(fault) => {
                assert!(!is_held, "{fault:?}");
                assert_eq!(fault.code(), codes::LIMIT);
            }
        }
    }
}

#[test]
fn layouts_of_texts_do_not_matter() {
    let plain = rows(30);
    let expected = compute_finding(&written(8, None), std::slice::from_ref(&plain), 1 << 20);
    let expected = text(&expected.unwrap());
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    for layout in [DataType::LargeUtf8, DataType::Utf8View, dictionary] {
        let texts = cast(plain.column(1), &layout).unwrap();
        let columns = [("n", plain.column(0).clone(), true), ("t", texts, true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let finding = compute_finding(&written(8, None), &[batch], 1 << 20).unwrap();
        assert_eq!(text(&finding), expected, "{layout}");
    }
}

fn text(finding: &Finding) -> String {
    array_value_to_string(finding.column("text").unwrap(), 0).unwrap()
}
