//! Decodes damaged window states: a fault or outputs, never a panic, never much memory.

#![allow(clippy::unwrap_used)] // Only tests are here.

mod common;

use std::sync::Arc;

use common::*;
use forebay_fuzz::{CountingAllocator, FuzzTarget, fuzz};
use forebay_window::{
    ClosedEnds, EwmDecay, EwmStat, GapHandling, SeriesFrame, SeriesLength, WindowEngine,
    WindowFunction, WindowPlan, WindowStat,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn plans() -> Vec<Arc<WindowPlan>> {
    let window = |frame, stat| WindowFunction::Window {
        frame,
        stat,
        min_periods: 1,
    };
    let rolling = |over, gap| SeriesFrame::Rolling {
        over,
        gap,
        closed: ClosedEnds::Right,
    };
    let computes = || {
        vec![
            WindowFunction::Lag {
                by: SeriesLength::Rows(3),
                as_of: None,
            },
            WindowFunction::Diff {
                by: SeriesLength::Ticks(2),
            },
            window(
                rolling(SeriesLength::Rows(4), SeriesLength::Rows(1)),
                WindowStat::Mean,
            ),
            window(
                rolling(SeriesLength::Ticks(9), SeriesLength::Ticks(1)),
                WindowStat::Quantile(0.5),
            ),
            window(
                rolling(SeriesLength::Ticks(5), SeriesLength::ZERO),
                WindowStat::Unique,
            ),
            window(
                SeriesFrame::Expanding {
                    gap: SeriesLength::Rows(1),
                },
                WindowStat::Std { ddof: 1 },
            ),
            window(
                SeriesFrame::Seasonal {
                    season: SeriesLength::Ticks(7),
                    over: 2,
                    gap: SeriesLength::ZERO,
                },
                WindowStat::Max,
            ),
            WindowFunction::SeasonalIndex {
                slot: SLOT,
                gap: SeriesLength::Ticks(1),
                min_periods: 1,
                strength: 0.0,
                parent: None,
            },
            WindowFunction::Ewm {
                decay: EwmDecay::Alpha(0.5),
                adjust: true,
                ignore_na: false,
                stat: EwmStat::Std,
                gap: SeriesLength::ZERO,
                min_periods: 1,
            },
        ]
    };
    let plan = |computes: Vec<WindowFunction>| {
        Arc::new(plan(
            computes
                .into_iter()
                .map(|compute| function(NUMBER, compute))
                .collect(),
            GapHandling::CountRows,
        ))
    };
    let mut plans: Vec<Arc<WindowPlan>> = computes()
        .into_iter()
        .map(|compute| plan(vec![compute]))
        .collect();
    plans.push(plan(computes()));
    plans
}

fn rows(times: std::ops::Range<i64>) -> Vec<SeriesTestRow> {
    let row = |time: i64| {
        (0..3).map(move |series| SeriesTestRow {
            series: (Some(series as u8), series),
            time,
            number: (time % 5 != 0).then_some(time as f64 / 4.0),
            small: Some((time % 3) as i32),
            bits: Some(time),
            slot: Some(time % 7),
        })
    };
    times.flat_map(row).collect()
}

#[test]
fn carries() {
    let plans = plans();
    let all = |plan: &WindowPlan| vec![true; plan.functions.len()];
    let seed = |(number, plan): (usize, &Arc<WindowPlan>)| {
        let mut engine = WindowEngine::new(plan.clone());
        table(&rows(0..20), false)
            .push(&mut engine, &all(plan))
            .unwrap();
        [vec![number as u8], encoded(&engine)].concat()
    };
    let later = table(&rows(20..24), false);
    fuzz!(
        FuzzTarget::new("carries").seeds(plans.iter().enumerate().map(seed)),
        |bytes: &[u8]| {
            let Some((number, mut rest)) = bytes.split_first() else {
                return;
            };
            let plan = &plans[usize::from(*number) % plans.len()];
            let Ok(mut engine) = WindowEngine::decode(plan.clone(), 2, &mut rest) else {
                return;
            };
            // Evicted series are decoded when their next rows arrive.
            if later.push(&mut engine, &all(plan)).is_ok() {
                let mut stable = Vec::new();
                let _ = engine.encode(&mut stable);
            }
        }
    );
}

/// Bytes before the first series in the state of one series with two entries: version, plan, gaps, series, hash.
const BEFORE_SERIES: usize = 1 + 8 + 1 + 1 + 16;

fn two_entries(plan: &Arc<WindowPlan>) -> Vec<u8> {
    let mut engine = WindowEngine::new(plan.clone());
    table(&one_series(&[Some(1.0), Some(2.0)]), false)
        .push(&mut engine, &[true])
        .unwrap();
    encoded(&engine)
}

/// Memory grows with the bytes read, not with the claimed length.
#[test]
fn a_length_alone_takes_no_memory() {
    let plan = &plans()[0];
    let mut bytes = two_entries(plan);
    bytes.splice(
        BEFORE_SERIES..BEFORE_SERIES + 1,
        [0xff, 0xff, 0xff, 0xff, 0x0f],
    );
    FuzzTarget::new("carries")
        .seeds([bytes])
        .replay(&|bytes: &[u8]| {
            assert!(WindowEngine::decode(plan.clone(), 1, &mut &bytes[..]).is_err());
        });
}

/// Windows read only entries that exist.
#[test]
fn a_series_has_the_entries_that_it_counts() {
    let plan = &plans()[0];
    let mut bytes = two_entries(plan);
    let count = &mut bytes[BEFORE_SERIES + 1];
    assert_eq!(*count, 2);
    *count = 20;
    let mut engine = WindowEngine::decode(plan.clone(), 1, &mut &bytes[..]).unwrap();
    let mut later = one_series(&[Some(3.0); 5]);
    later.drain(..3);
    let fault = table(&later, false).push(&mut engine, &[true]).unwrap_err();
    assert_eq!(fault.code(), forebay_model::codes::CORRUPT);
}
