//! Windows over values of any type give what windows over the numbers of these values give.

#![allow(clippy::unwrap_used)] // Only tests are here.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::array::{Array, ArrayRef, Int64Array, StringArray};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Int64Type};
use forebay_model::TimeDistance;
use forebay_window::{
    ClosedEnds, DuplicateCheck, GapHandling, InputRows, PeriodFill, SeriesFrame, SeriesLength,
    WindowEngine, WindowFunction, WindowInput, WindowOutput, WindowPlan, WindowStat, WordEncoding,
};

const ROWS: i64 = 3000;

fn text(number: i64) -> String {
    "long text ".repeat(number as usize % 3) + &number.to_string()
}

fn functions(input: usize, data_type: &DataType) -> Vec<WindowOutput> {
    let rolling = |stat| WindowFunction::Window {
        frame: SeriesFrame::Rolling {
            over: SeriesLength::Ticks(9),
            gap: SeriesLength::Ticks(1),
            closed: ClosedEnds::Right,
        },
        stat,
        min_periods: 1,
    };
    let expanding = |stat| WindowFunction::Window {
        frame: SeriesFrame::Expanding {
            gap: SeriesLength::Rows(1),
        },
        stat,
        min_periods: 1,
    };
    let copies = [
        WindowFunction::Lag {
            by: SeriesLength::Rows(2),
            as_of: None,
        },
        WindowFunction::Lag {
            by: SeriesLength::Ticks(4),
            as_of: Some(TimeDistance::Ticks(3)),
        },
        WindowFunction::LastValid { limit: Some(3) },
        rolling(WindowStat::First),
        rolling(WindowStat::Last),
        expanding(WindowStat::First),
        expanding(WindowStat::Last),
    ];
    let counts = [
        rolling(WindowStat::Count),
        rolling(WindowStat::Unique),
        expanding(WindowStat::Unique),
    ];
    let output = |compute, data_type: &DataType| WindowOutput {
        input,
        compute,
        data_type: data_type.clone(),
    };
    let copies = copies.map(|compute| output(compute, data_type));
    let counts = counts.map(|compute| output(compute, &DataType::Int64));
    copies.into_iter().chain(counts).collect()
}

fn plan(gaps: GapHandling) -> WindowPlan {
    let input = |data_type, keep| WindowInput { data_type, keep };
    let mut all = functions(0, &DataType::Int64);
    all.extend(functions(1, &DataType::Utf8));
    WindowPlan {
        time: DataType::Int64,
        keys: vec![DataType::Int64],
        inputs: vec![
            input(DataType::Int64, WordEncoding::Bits),
            input(DataType::Utf8, WordEncoding::Values),
        ],
        functions: all,
        gaps,
        duplicates: DuplicateCheck::default(),
    }
}

/// Rows of 60 series, in order of their times.
fn columns() -> [ArrayRef; 4] {
    let numbers: Vec<Option<i64>> = (0..ROWS)
        .map(|row| (row % 7 != 3).then_some(row * row % 97))
        .collect();
    let texts: Vec<Option<String>> = numbers.iter().map(|number| number.map(text)).collect();
    [
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row % 60))),
        Arc::new(Int64Array::from_iter_values(
            (0..ROWS).map(|row| row / 60 * 2),
        )),
        Arc::new(Int64Array::from(numbers)),
        Arc::new(StringArray::from(texts)),
    ]
}

/// Outputs of pushes of so many rows; between pushes, the state is evicted, or stored and read again.
fn run(plan: &WindowPlan, rows: usize, parts: usize, stored: bool) -> Vec<ArrayRef> {
    let plan = Arc::new(plan.clone());
    let [keys, times, numbers, texts] = columns();
    let emit = vec![true; plan.functions.len()];
    let mut engine = WindowEngine::in_parts(plan.clone(), parts);
    let mut outputs: Vec<Vec<ArrayRef>> = vec![Vec::new(); emit.len()];
    for first in (0..ROWS as usize).step_by(rows) {
        let length = rows.min(ROWS as usize - first);
        let pushed = engine.push(
            &InputRows {
                keys: &[keys.slice(first, length)],
                time: &times.slice(first, length),
                inputs: &[numbers.slice(first, length), texts.slice(first, length)],
                rows: length,
            },
            &emit,
        );
        for (all, column) in outputs.iter_mut().zip(pushed.unwrap()) {
            all.push(column);
        }
        engine.rest().unwrap();
        if stored {
            let mut state = Vec::new();
            engine.encode(&mut state).unwrap();
            engine = WindowEngine::decode(plan.clone(), parts, &mut state.as_slice()).unwrap();
        }
    }
    let concat_all = |columns: &Vec<ArrayRef>| {
        let columns: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
        concat(&columns).unwrap()
    };
    outputs.iter().map(concat_all).collect()
}

#[test]
fn values_of_any_type_are_copied_and_counted_as_numbers_are() {
    let complete = GapHandling::Complete {
        every: TimeDistance::Ticks(1),
        fill: PeriodFill::Forward,
    };
    for gaps in [GapHandling::CountRows, complete] {
        let plan = plan(gaps);
        for (rows, parts, stored) in [
            (ROWS as usize, 1, false),
            (100, 1, false),
            (100, 3, true),
            (170, 1, true),
        ] {
            let outputs = run(&plan, rows, parts, stored);
            let (numbers, texts) = outputs.split_at(outputs.len() / 2);
            for (function, (number, other)) in plan.functions.iter().zip(numbers.iter().zip(texts))
            {
                let expected: ArrayRef = if *other.data_type() == DataType::Utf8 {
                    let numbers = number.as_primitive::<Int64Type>().iter();
                    let texts = numbers.map(|number| number.map(text));
                    Arc::new(StringArray::from_iter(texts))
                } else {
                    number.clone()
                };
                assert_eq!(other, &expected, "{function:?} {rows} {parts} {stored}");
                assert!(other.null_count() < other.len());
            }
        }
    }
}

#[test]
fn states_hold_the_same_bytes_however_rows_were_pushed() {
    let plan = Arc::new(plan(GapHandling::CountRows));
    let state = |rows: usize, parts: usize| {
        let [keys, times, numbers, texts] = columns();
        let mut engine = WindowEngine::in_parts(plan.clone(), parts);
        for first in (0..ROWS as usize).step_by(rows) {
            let length = rows.min(ROWS as usize - first);
            let rows = InputRows {
                keys: &[keys.slice(first, length)],
                time: &times.slice(first, length),
                inputs: &[numbers.slice(first, length), texts.slice(first, length)],
                rows: length,
            };
            let emit = vec![true; plan.functions.len()];
            engine.push(&rows, &emit).unwrap();
        }
        let mut state = Vec::new();
        engine.encode(&mut state).unwrap();
        state
    };
    let whole = state(ROWS as usize, 1);
    assert_eq!(state(100, 1), whole);
    assert_eq!(state(31, 4), whole);
}

/// Each text occurs once, and only the last ones of the series are needed.
#[test]
fn values_that_no_series_holds_are_dropped() {
    let lag = WindowOutput {
        input: 0,
        compute: WindowFunction::Lag {
            by: SeriesLength::Rows(1),
            as_of: None,
        },
        data_type: DataType::Utf8,
    };
    let plan = WindowPlan {
        inputs: vec![WindowInput {
            data_type: DataType::Utf8,
            keep: WordEncoding::Values,
        }],
        functions: vec![lag],
        ..plan(GapHandling::CountRows)
    };
    let mut engine = WindowEngine::new(Arc::new(plan));
    let mut before = None;
    for push in 0..100i64 {
        let texts: Vec<String> = (0..10)
            .map(|row| format!("{push} {row} {}", "x".repeat(30_000)))
            .collect();
        let lags = engine
            .push(
                &InputRows {
                    keys: &[Arc::new(Int64Array::from_iter_values(0..10))],
                    time: &(Arc::new(Int64Array::from(vec![push; 10])) as ArrayRef),
                    inputs: &[Arc::new(StringArray::from(texts.clone()))],
                    rows: 10,
                },
                &[true],
            )
            .unwrap();
        if let Some(before) = before.replace(texts) {
            let expected: ArrayRef = Arc::new(StringArray::from(before));
            assert_eq!(&lags[0], &expected);
        }
    }
    assert!(engine.bytes() < 20 << 20, "{} bytes", engine.bytes());
}
