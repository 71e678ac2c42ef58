//! Laws: equal rows give equal bits for any batches, any carry and any requested outputs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use std::sync::Arc;

use common::random::{any_function, any_gaps, any_rows};
use common::*;
use forebay_window::{
    ClosedEnds, GapHandling, SeriesFrame, SeriesLength, WindowEngine, WindowFunction, WindowPlan,
    WindowStat,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Action between two pieces of input.
#[derive(Debug, Clone, Copy)]
enum InterimAction {
    Nothing,
    /// Hold the piece and push it together with the next one.
    Wait,
    /// Evict series.
    Rest,
    /// Encode and decode the state.
    Carry,
}

/// Pushes rows in pieces.
fn in_pieces(
    plan: &Arc<WindowPlan>,
    rows: &[SeriesTestRow],
    emit: &[bool],
    pieces: &[(usize, InterimAction)],
    engine_parts: usize,
) -> (Vec<arrow::array::ArrayRef>, Vec<u8>) {
    let table = table(rows, true);
    let mut engine = WindowEngine::in_parts(plan.clone(), engine_parts);
    let mut parts = Vec::new();
    let mut waiting = Vec::new();
    let mut start = 0;
    let mut pieces = pieces.iter().cycle();
    while start < rows.len() {
        let &(size, then) = pieces.next().unwrap();
        let size = size.min(rows.len() - start);
        waiting.push(table.slice(start, size));
        start += size;
        if matches!(then, InterimAction::Wait) && start < rows.len() {
            continue;
        }
        let outputs = push_all(&waiting, &mut engine, emit).unwrap();
        assert!(outputs.len() == waiting.len());
        parts.extend(outputs);
        waiting.clear();
        match then {
            InterimAction::Nothing | InterimAction::Wait => {}
            InterimAction::Rest => {
                engine.rest().unwrap();
            }
            InterimAction::Carry => {
                engine =
                    WindowEngine::decode(plan.clone(), engine_parts, &mut &encoded(&engine)[..])
                        .unwrap()
            }
        }
    }
    (joined(&parts), encoded(&engine))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn batching_and_state_round_trips_change_no_bit(
        functions in prop::collection::vec(any_function(), 1..6),
        gaps in any_gaps(),
        rows in any_rows(150),
        pieces in prop::collection::vec((1..60usize, select(vec![InterimAction::Nothing, InterimAction::Wait, InterimAction::Rest, InterimAction::Carry])), 1..8),
        emit in prop::collection::vec(any::<bool>(), 6),
        parts in 1..4usize,
    ) {
        let plan = Arc::new(plan(functions, gaps));
        let all = vec![true; plan.functions.len()];
        let (whole, state) = in_pieces(&plan, &rows, &all, &[(usize::MAX, InterimAction::Nothing)], 1);
        let (cut, cut_state) = in_pieces(&plan, &rows, &all, &pieces, parts);
        prop_assert_eq!(&whole, &cut);
        prop_assert!(state == cut_state);
        let emit = &emit[..plan.functions.len()];
        let (some, some_state) = in_pieces(&plan, &rows, emit, &pieces, parts);
        let wanted: Vec<_> = whole.iter().zip(emit).filter(|(_, wanted)| **wanted).map(|(output, _)| output.clone()).collect();
        prop_assert_eq!(&wanted, &some);
        prop_assert!(state == some_state);
    }
}

#[test]
fn a_fault_names_its_batch_and_the_row_there() {
    let plan = Arc::new(plan(
        vec![function(
            NUMBER,
            WindowFunction::Diff {
                by: SeriesLength::Rows(1),
            },
        )],
        GapHandling::CountRows,
    ));
    let mut rows: Vec<SeriesTestRow> = short_series(6);
    rows.sort_by_key(|row| row.time);
    // A late row of a series that had rows on all days before.
    let late = rows.len() - 550;
    rows[late].time = 0;
    for parts in [1, 3] {
        let table = table(&rows, true);
        let batches = [
            table.slice(0, 100),
            table.slice(100, 50),
            table.slice(150, rows.len() - 150),
        ];
        let mut engine = WindowEngine::in_parts(plan.clone(), parts);
        let (batch, fault) = push_all(&batches, &mut engine, &[true]).unwrap_err();
        assert_eq!(
            (batch, fault.site().rows.as_slice()),
            (2, [late as u64 - 150].as_slice())
        );
    }
}

/// A hundred series begin every day with six rows each; some return much later.
fn short_series(days: i64) -> Vec<SeriesTestRow> {
    let day = |time: i64| {
        let now =
            (time - 5..=time).flat_map(|begun| (0..100).map(move |number| begun * 100 + number));
        let back = (time >= 50 && time % 10 == 0)
            .then_some(time * 50)
            .into_iter();
        now.chain(back).map(move |series| SeriesTestRow {
            series: (Some((series % 7) as u8), series),
            time,
            number: Some((series % 5) as f64),
            small: Some((series % 3) as i32),
            bits: Some(time),
            slot: Some(time % 7),
        })
    };
    (0..days).flat_map(day).collect()
}

#[test]
fn series_that_ended_take_little_memory() {
    let day = SeriesLength::Ticks(1);
    let window = |over| SeriesFrame::Rolling {
        over: SeriesLength::Ticks(over),
        gap: day,
        closed: ClosedEnds::Right,
    };
    let window = |over, stat| WindowFunction::Window {
        frame: window(over),
        stat,
        min_periods: 1,
    };
    let computes = [
        WindowFunction::Lag {
            by: SeriesLength::Ticks(7),
            as_of: None,
        },
        window(7, WindowStat::Mean),
        window(28, WindowStat::Std { ddof: 1 }),
        WindowFunction::Window {
            frame: SeriesFrame::Expanding { gap: day },
            stat: WindowStat::Mean,
            min_periods: 1,
        },
        WindowFunction::SeasonalIndex {
            slot: SLOT,
            gap: day,
            min_periods: 1,
            strength: 0.0,
            parent: None,
        },
    ];
    let plan = Arc::new(plan(
        computes
            .into_iter()
            .map(|compute| function(NUMBER, compute))
            .collect(),
        GapHandling::CountRows,
    ));
    let emit = vec![true; plan.functions.len()];
    let rows = short_series(300);
    let all = table(&rows, false);
    let mut awake = WindowEngine::new(plan.clone());
    let mut settled = WindowEngine::new(plan.clone());
    for start in (0..rows.len()).step_by(1000) {
        let piece = all.slice(start, 1000.min(rows.len() - start));
        assert_eq!(
            piece.push(&mut awake, &emit).unwrap(),
            piece.push(&mut settled, &emit).unwrap()
        );
        settled.settle(1 << 20).unwrap();
    }
    assert!(encoded(&awake) == encoded(&settled));
    assert_eq!(awake.series(), settled.series());
    let before = awake.bytes() / awake.series();
    let after = settled.bytes() / settled.series();
    assert!(
        after < 200 && after * 4 < before,
        "a series takes {after} bytes, and took {before}"
    );
}
