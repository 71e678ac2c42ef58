//! Deviations of values of any magnitude: they are doubles also where their squares are none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use std::sync::Arc;

use common::*;
use forebay_window::{
    ClosedEnds, EwmDecay, EwmStat, GapHandling, SeriesFrame, SeriesLength, WindowEngine,
    WindowFunction, WindowPlan, WindowStat,
};

/// A statistic, and the power of the values' unit that it has.
const STATS: [(WindowStat, u32); 4] = [
    (WindowStat::Std { ddof: 1 }, 1),
    (WindowStat::Var { ddof: 0 }, 2),
    (WindowStat::Skew, 0),
    (WindowStat::Kurtosis, 0),
];

/// Windows over deviations, and the power of the values' unit that each of them has.
fn windows() -> Vec<(WindowFunction, u32)> {
    let by_rows = SeriesFrame::Rolling {
        over: SeriesLength::Rows(7),
        gap: SeriesLength::Rows(0),
        closed: ClosedEnds::Right,
    };
    let by_time = SeriesFrame::Rolling {
        over: SeriesLength::Ticks(4),
        gap: SeriesLength::Ticks(0),
        closed: ClosedEnds::Right,
    };
    let expanding = SeriesFrame::Expanding {
        gap: SeriesLength::Rows(0),
    };
    let mut windows = Vec::new();
    for frame in [by_rows, by_time, expanding] {
        for (stat, power) in STATS {
            let window = WindowFunction::Window {
                frame,
                stat,
                min_periods: 1,
            };
            windows.push((window, power));
        }
    }
    for (stat, power) in [(EwmStat::Mean, 1), (EwmStat::Std, 1), (EwmStat::Var, 2)] {
        let ewm = WindowFunction::Ewm {
            decay: EwmDecay::Alpha(0.4),
            adjust: true,
            ignore_na: false,
            stat,
            gap: SeriesLength::Rows(0),
            min_periods: 1,
        };
        windows.push((ewm, power));
    }
    windows
}

/// A series with missing and equal values, and several rows at some times.
fn rows(factor: f64) -> Vec<SeriesTestRow> {
    let numbers: Vec<Option<f64>> = (0..60)
        .map(|row: i64| match row {
            0..5 | 40..50 => Some(3.0 * factor),
            _ if row % 11 == 7 => None,
            _ => Some(((row * 37) % 19 - 9) as f64 * factor),
        })
        .collect();
    let mut rows = one_series(&numbers);
    for (time, row) in rows.iter_mut().enumerate() {
        row.time = time as i64 - i64::from(time % 3 == 2);
    }
    rows
}

fn window_plan() -> WindowPlan {
    let functions = windows()
        .into_iter()
        .map(|(window, _)| function(NUMBER, window))
        .collect();
    plan(functions, GapHandling::CountRows)
}

/// The outputs where the state is stored and read again after some rows.
fn stored_outputs(factor: f64, rows_before: usize) -> Vec<Vec<Option<f64>>> {
    let plan = Arc::new(window_plan());
    let emit = vec![true; plan.functions.len()];
    let rows = rows(factor);
    let rows_table = table(&rows, false);
    let mut engine = WindowEngine::new(plan.clone());
    let first = rows_table
        .slice(0, rows_before)
        .push(&mut engine, &emit)
        .unwrap();
    let mut engine = WindowEngine::decode(plan, 1, &mut &encoded(&engine)[..]).unwrap();
    let second = rows_table
        .slice(rows_before, rows.len() - rows_before)
        .push(&mut engine, &emit)
        .unwrap();
    joined(&[first, second]).iter().map(doubles).collect()
}

#[test]
fn deviations_have_the_unit_of_their_values_at_any_magnitude() {
    let plan = window_plan();
    let expected: Vec<Vec<Option<f64>>> = outputs(&plan, &rows(1.0)).iter().map(doubles).collect();
    for bits in [100, 260, 664, 1000, -100, -300, -664, -1000] {
        let factor = 2f64.powi(bits);
        let moved: Vec<Vec<Option<f64>>> =
            outputs(&plan, &rows(factor)).iter().map(doubles).collect();
        for (column, (window, power)) in windows().into_iter().enumerate() {
            for (row, number) in expected[column].iter().enumerate() {
                let mut number = *number;
                for _ in 0..power {
                    number = number.map(|number| number * factor);
                }
                let other = moved[column][row];
                let is_near = match (number, other) {
                    (Some(number), Some(other)) => {
                        // Statistics without a unit may be 0 but for rounding.
                        let scale = if power == 0 { 1.0 } else { number.abs() };
                        number == other || (number - other).abs() <= 1e-9 * scale
                    }
                    _ => number == other,
                };
                assert!(
                    is_near,
                    "2^{bits}, {window:?}, row {row}: {other:?}, not {number:?}"
                );
            }
        }
        for rows_before in [1, 30, 45] {
            assert_eq!(
                stored_outputs(factor, rows_before),
                moved,
                "2^{bits}, {rows_before} rows before"
            );
        }
    }
}
