//! Many rows of a series at one time: what their windows are, what they cost, and that they are counted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use std::sync::Arc;

use common::oracle::{OracleValue, expected};
use common::*;
use forebay_model::{DuplicateRows, codes};
use forebay_window::{
    ClosedEnds, DuplicateCheck, GapHandling, SeriesFrame, SeriesLength, WindowEngine,
    WindowFunction, WindowPlan, WindowStat,
};

/// All statistics of a window of three ticks that ends `gap` ticks before its row.
fn windows_by_time(gap: i64) -> Vec<WindowFunction> {
    let frame = SeriesFrame::Rolling {
        over: SeriesLength::Ticks(3),
        gap: SeriesLength::Ticks(gap),
        closed: ClosedEnds::Right,
    };
    let stats = [
        WindowStat::Count,
        WindowStat::Sum,
        WindowStat::Mean,
        WindowStat::Var { ddof: 1 },
        WindowStat::Std { ddof: 0 },
        WindowStat::Skew,
        WindowStat::Kurtosis,
        WindowStat::Min,
        WindowStat::Max,
        WindowStat::Quantile(0.3),
        WindowStat::Unique,
        WindowStat::First,
        WindowStat::Last,
        WindowStat::ZeroShare,
        WindowStat::Slope { unit: None },
        WindowStat::Slope { unit: Some(1) },
        WindowStat::SinceNonzero { unit: None },
        WindowStat::SinceNonzero { unit: Some(2) },
    ];
    let window = |stat| WindowFunction::Window {
        frame,
        stat,
        min_periods: 1,
    };
    stats.into_iter().map(window).collect()
}

fn plan_of(functions: Vec<WindowFunction>, policy: DuplicateRows) -> Arc<WindowPlan> {
    let functions = functions
        .into_iter()
        .map(|compute| function(NUMBER, compute))
        .collect();
    Arc::new(WindowPlan {
        duplicates: DuplicateCheck {
            policy,
            keys: vec!["name".into(), "number".into()],
            time: "day".into(),
        },
        ..plan(functions, GapHandling::CountRows)
    })
}

/// `series` series over six days, with `ties` rows a day each; their rows alternate.
fn tied_rows(series: i64, ties: i64) -> Vec<SeriesTestRow> {
    let mut rows = Vec::new();
    for time in 0..6 {
        for tie in 0..ties {
            for number in 0..series {
                let value = (time * 31 + tie * 7 + number * 3) % 11 - 2;
                let is_missing = (tie + time) % 9 == 4;
                rows.push(SeriesTestRow {
                    series: (Some(1), number),
                    time,
                    number: (!is_missing).then_some(value as f64),
                    small: Some(value as i32),
                    bits: Some(value),
                    slot: Some(time),
                });
            }
        }
    }
    rows
}

/// Entries that are read for the windows of some rows, pushed in pieces.
fn entries_read(functions: &[WindowFunction], rows: &[SeriesTestRow], piece: usize) -> u64 {
    let plan = plan_of(functions.to_vec(), DuplicateRows::Allow);
    let emit = vec![true; plan.functions.len()];
    let mut engine = WindowEngine::new(plan);
    let rows_table = table(rows, false);
    for start in (0..rows.len()).step_by(piece) {
        rows_table
            .slice(start, piece.min(rows.len() - start))
            .push(&mut engine, &emit)
            .unwrap();
    }
    engine.tied_entries_read()
}

#[test]
fn the_cost_of_rows_at_one_time_is_linear() {
    for gap in [0, 1] {
        let functions = windows_by_time(gap);
        for (series, piece) in [(1, 1000), (7, 100), (7, 3)] {
            let few = entries_read(&functions, &tied_rows(series, 40), piece);
            let many = entries_read(&functions, &tied_rows(series, 160), piece);
            assert!(
                few > 0 && many < 6 * few,
                "gap {gap}, {series} series: {few} entries for 40 rows a day, {many} for 160"
            );
        }
    }
}

#[test]
fn windows_of_tied_rows_match_the_oracle() {
    for gap in [0, 1] {
        let rows = tied_rows(2, 17);
        let plan = plan_of(windows_by_time(gap), DuplicateRows::Allow);
        let outputs = outputs(&plan, &rows);
        let expected = expected(&plan, &rows);
        for ((function, output), expected) in plan.functions.iter().zip(&outputs).zip(&expected) {
            for (row, (number, expected)) in doubles(output).iter().zip(expected).enumerate() {
                let is_near = match (number, expected) {
                    (None, OracleValue::None) => true,
                    (Some(number), OracleValue::Number(expected, scale)) => {
                        (number - expected).abs() <= 1e-9 * expected.abs().max(*scale).max(1e-3)
                    }
                    _ => false,
                };
                assert!(
                    is_near,
                    "{function:?}, row {row}: {number:?}, not {expected:?}"
                );
            }
        }
    }
}

#[test]
fn duplicates_are_counted_once_however_rows_come() {
    let rows = tied_rows(5, 4);
    let rows_table = table(&rows, true);
    // All but the first row of each series and day.
    let duplicates = 5 * 6 * 3;
    let plan = plan_of(windows_by_time(0), DuplicateRows::Warn);
    let emit = vec![true; plan.functions.len()];
    for (piece, parts) in [(1, 1), (3, 1), (7, 3), (1000, 2)] {
        let mut engine = WindowEngine::in_parts(plan.clone(), parts);
        let mut counted = 0;
        for start in (0..rows.len()).step_by(piece) {
            let batch = rows_table.slice(start, piece.min(rows.len() - start));
            push_all(&[batch], &mut engine, &emit).unwrap();
            counted += engine.duplicates();
            engine = WindowEngine::decode(plan.clone(), parts, &mut &encoded(&engine)[..]).unwrap();
        }
        assert_eq!(counted, duplicates, "{piece} rows a push, {parts} parts");
    }
    // Rows that only warm up windows do not count.
    let mut engine = WindowEngine::new(plan.clone());
    rows_table
        .push(&mut engine, &vec![false; emit.len()])
        .unwrap();
    assert_eq!(engine.duplicates(), 0);
}

#[test]
fn duplicates_are_refused_with_examples() {
    let rows = tied_rows(3, 2);
    let rows_table = table(&rows, true);
    let plan = plan_of(windows_by_time(0), DuplicateRows::Error);
    let emit = vec![true; plan.functions.len()];
    for parts in [1, 3] {
        let mut engine = WindowEngine::in_parts(plan.clone(), parts);
        // The first rows of all series, then the rows that repeat them and those of the next day.
        let first = rows_table.slice(0, 3);
        push_all(&[first], &mut engine, &emit).unwrap();
        let second = rows_table.slice(3, 9);
        let (batch, fault) = push_all(&[second], &mut engine, &emit).unwrap_err();
        assert!(engine.refused_duplicates());
        assert_eq!((batch, fault.code()), (0, codes::OUT_OF_ORDER));
        assert_eq!(fault.site().rows, [0]);
        let message = fault.message();
        let begin = "6 rows so far have the same keys and the same time as a row before them: \
                     2 rows of name name 1, number 0, day 0; ";
        assert!(message.starts_with(begin), "{message}");
        let hint = fault.hint_text().unwrap();
        assert!(
            hint.contains("a key is missing where `keys: [name, number]`"),
            "{hint}"
        );
    }
}
