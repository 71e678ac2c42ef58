//! Results that are not defined although there are enough values: null as missing ones, and counted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Int64Type};
use common::*;
use forebay_window::{
    ClosedEnds, DuplicateCheck, EwmDecay, EwmStat, GapHandling, InputRows, SeriesFrame,
    SeriesLength, WindowEngine, WindowFunction, WindowInput, WindowOutput, WindowPlan, WindowStat,
    WordEncoding, count_undefined, run_sequentially,
};

/// A window of the last two rows.
const TWO_ROWS: SeriesFrame = SeriesFrame::Rolling {
    over: SeriesLength::Rows(2),
    gap: SeriesLength::Rows(0),
    closed: ClosedEnds::Right,
};

/// A window of the last two ticks.
const TWO_TICKS: SeriesFrame = SeriesFrame::Rolling {
    over: SeriesLength::Ticks(2),
    gap: SeriesLength::Ticks(0),
    closed: ClosedEnds::Right,
};

const EXPANDING: SeriesFrame = SeriesFrame::Expanding {
    gap: SeriesLength::Rows(0),
};

fn statistic(frame: SeriesFrame, stat: WindowStat) -> WindowFunction {
    WindowFunction::Window {
        frame,
        stat,
        min_periods: 1,
    }
}

fn ewm(stat: EwmStat) -> WindowFunction {
    WindowFunction::Ewm {
        decay: EwmDecay::Alpha(0.5),
        adjust: true,
        ignore_na: false,
        stat,
        gap: SeriesLength::Rows(0),
        min_periods: 1,
    }
}

fn seasonal_index(strength: f64) -> WindowFunction {
    WindowFunction::SeasonalIndex {
        slot: SLOT,
        gap: SeriesLength::Rows(0),
        min_periods: 1,
        strength,
        parent: None,
    }
}

/// Checks the number of undefined results of each window, in doubles and in single precision, in one partition and in
/// several, and with the rows in another order.
fn check(rows: &[SeriesTestRow], expected: &[(WindowFunction, u64)]) {
    for data_type in [DataType::Float64, DataType::Float32] {
        let mut functions = Vec::new();
        for (compute, _) in expected {
            let mut output = function(NUMBER, compute.clone());
            output.data_type = data_type.clone();
            functions.push(output);
        }
        let plan = Arc::new(plan(functions, GapHandling::CountRows));
        let emit = vec![true; plan.functions.len()];
        for parts in [1, 3] {
            let mut engine = WindowEngine::in_parts(plan.clone(), parts);
            let outputs = table(rows, false).push(&mut engine, &emit).unwrap();
            for (output, (compute, count)) in outputs.iter().zip(expected) {
                let values = doubles(output);
                assert_eq!(count_undefined(output), *count, "{compute:?}: {values:?}");
                let last_first = UInt32Array::from_iter_values((0..rows.len() as u32).rev());
                let reversed = take(output, &last_first, None).unwrap();
                assert_eq!(count_undefined(&reversed), *count, "{compute:?}, reversed");
            }
        }
    }
}

#[test]
fn undefined_results_are_told_from_missing_ones() {
    let infinity = f64::INFINITY;
    let numbers = [Some(infinity), Some(-infinity), Some(0.0), Some(0.0), None];
    let one_row = SeriesLength::Rows(1);
    let mut expected = vec![
        (
            WindowFunction::Lag {
                by: one_row,
                as_of: None,
            },
            0,
        ),
        (WindowFunction::Diff { by: one_row }, 0),
        // Infinities by each other, and 0 by 0.
        (WindowFunction::PctChange { by: one_row }, 2),
        (ewm(EwmStat::Mean), 4),
        (ewm(EwmStat::Std), 4),
        (seasonal_index(0.0), 4),
        (statistic(EXPANDING, WindowStat::Mean), 4),
        (statistic(EXPANDING, WindowStat::Std { ddof: 1 }), 4),
        (statistic(EXPANDING, WindowStat::Slope { unit: None }), 4),
        (statistic(EXPANDING, WindowStat::Quantile(0.5)), 1),
    ];
    for frame in [TWO_ROWS, TWO_TICKS] {
        expected.extend([
            (statistic(frame, WindowStat::Count), 0),
            (statistic(frame, WindowStat::Sum), 1),
            (statistic(frame, WindowStat::Mean), 1),
            (statistic(frame, WindowStat::Std { ddof: 1 }), 2),
            // A single infinity has no variance, too.
            (statistic(frame, WindowStat::Var { ddof: 0 }), 3),
            (statistic(frame, WindowStat::Skew), 0),
            (statistic(frame, WindowStat::Max), 0),
            (statistic(frame, WindowStat::Quantile(0.5)), 1),
            (statistic(frame, WindowStat::Slope { unit: None }), 2),
        ]);
    }
    check(&one_series(&numbers), &expected);
}

#[test]
fn undefined_results_of_rows_that_tie_are_counted() {
    let infinity = f64::INFINITY;
    let numbers = [Some(infinity), Some(-infinity), Some(0.0), Some(0.0), None];
    let mut rows = one_series(&numbers);
    for row in &mut rows {
        row.time = 0;
    }
    let expected = [
        (statistic(TWO_TICKS, WindowStat::Sum), 4),
        (statistic(TWO_TICKS, WindowStat::Std { ddof: 1 }), 4),
        (statistic(TWO_TICKS, WindowStat::Skew), 3),
        (statistic(TWO_TICKS, WindowStat::Quantile(0.5)), 1),
        (statistic(TWO_TICKS, WindowStat::Slope { unit: None }), 4),
        // All at one time: too few points for a slope.
        (statistic(TWO_TICKS, WindowStat::Slope { unit: Some(1) }), 0),
    ];
    check(&rows, &expected);
}

#[test]
fn shares_of_nothing_are_undefined() {
    let rows = one_series(&[Some(0.0), Some(0.0), None, Some(2.0)]);
    // With a weight of the parent, its index takes the place.
    check(&rows, &[(seasonal_index(0.0), 2), (seasonal_index(1.0), 0)]);
}

/// Checks the differences between neighbours of a column of 64-bit integers, and the number of those that do not fit.
fn check_differences(column: ArrayRef, expected: &[Option<i64>], count: u64) {
    let plan = Arc::new(WindowPlan {
        time: DataType::Int64,
        keys: vec![DataType::Int64],
        inputs: vec![WindowInput {
            data_type: column.data_type().clone(),
            keep: WordEncoding::Bits,
        }],
        functions: vec![WindowOutput {
            input: 0,
            compute: WindowFunction::Diff {
                by: SeriesLength::Rows(1),
            },
            data_type: DataType::Int64,
        }],
        gaps: GapHandling::CountRows,
        duplicates: DuplicateCheck::default(),
    });
    let rows = column.len();
    let key: ArrayRef = Arc::new(Int64Array::from(vec![1; rows]));
    let time: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let batches = [InputRows {
        keys: &[key],
        time: &time,
        inputs: &[column],
        rows,
    }];
    for parts in [1, 3] {
        let mut engine = WindowEngine::in_parts(plan.clone(), parts);
        let mut outputs = engine
            .push_all(&batches, &[true], &run_sequentially)
            .unwrap();
        let output = outputs.remove(0).remove(0);
        let differences: Vec<Option<i64>> = output.as_primitive::<Int64Type>().iter().collect();
        assert_eq!(differences, expected, "in {parts} parts");
        assert_eq!(count_undefined(&output), count, "in {parts} parts");
    }
}

#[test]
fn differences_that_do_not_fit_are_counted() {
    let most = i64::MAX;
    let values = [Some(most), Some(0), Some(-1), Some(most), None, Some(1)];
    let expected = [None, None, Some(-1), None, None, None];
    check_differences(Arc::new(Int64Array::from_iter(values)), &expected, 2);

    let values = [Some(most - 1), Some(0), Some(most), Some(-1), Some(-most)];
    let expected = [None, Some(1 - most), Some(most), None, Some(1 - most)];
    check_differences(Arc::new(Int64Array::from_iter(values)), &expected, 1);

    let values = [Some(u64::MAX), Some(1), Some(u64::MAX), Some(u64::MAX - 1)];
    let expected = [None, None, None, Some(-1)];
    check_differences(Arc::new(UInt64Array::from_iter(values)), &expected, 2);
}
