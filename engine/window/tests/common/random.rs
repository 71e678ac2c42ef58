//! Random plans and rows.

use forebay_model::TimeDistance;
use forebay_window::{
    ClosedEnds, EwmDecay, EwmStat, GapHandling, PeriodFill, SeriesFrame, SeriesLength,
    WindowFunction, WindowOutput, WindowStat,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn length() -> impl Strategy<Value = SeriesLength> {
    prop_oneof![
        (0..6u64).prop_map(SeriesLength::Rows),
        (0..9i64).prop_map(SeriesLength::Ticks)
    ]
}

/// Two lengths of one kind.
fn lengths() -> impl Strategy<Value = (SeriesLength, SeriesLength)> {
    prop_oneof![
        3 => (0..9u64, 0..4u64).prop_map(|(a, b)| (SeriesLength::Rows(a), SeriesLength::Rows(b))),
        3 => (0..12i64, 0..5i64).prop_map(|(a, b)| (SeriesLength::Ticks(a), SeriesLength::Ticks(b))),
        1 => (0..12i64).prop_map(|a| (SeriesLength::Ticks(a), SeriesLength::ZERO)),
        1 => (50..90u64, 0..4u64).prop_map(|(a, b)| (SeriesLength::Rows(a), SeriesLength::Rows(b))),
    ]
}

fn frame() -> impl Strategy<Value = SeriesFrame> {
    let closed = select(vec![
        ClosedEnds::Right,
        ClosedEnds::Left,
        ClosedEnds::Both,
        ClosedEnds::Neither,
    ]);
    prop_oneof![
        3 => (lengths(), closed).prop_map(|((over, gap), closed)| SeriesFrame::Rolling { over, gap, closed }),
        2 => length().prop_map(|gap| SeriesFrame::Expanding { gap }),
        1 => (lengths(), 0..5u64).prop_map(|((season, gap), over)| {
            let season = match season {
                SeriesLength::Rows(rows) => SeriesLength::Rows(rows % 8 + 1),
                SeriesLength::Ticks(ticks) => SeriesLength::Ticks(ticks + 1),
                calendar @ SeriesLength::Calendar(_) => calendar,
            };
            SeriesFrame::Seasonal { season, over, gap }
        }),
    ]
}

fn stat() -> impl Strategy<Value = WindowStat> {
    let unit = || select(vec![None, Some(1), Some(3)]);
    prop_oneof![
        select(vec![
            WindowStat::Count,
            WindowStat::Sum,
            WindowStat::Mean,
            WindowStat::Min,
            WindowStat::Max,
            WindowStat::Skew,
            WindowStat::Kurtosis
        ]),
        select(vec![
            WindowStat::First,
            WindowStat::Last,
            WindowStat::Unique,
            WindowStat::ZeroShare
        ]),
        (0..3u8).prop_map(|ddof| WindowStat::Var { ddof }),
        (0..3u8).prop_map(|ddof| WindowStat::Std { ddof }),
        select(vec![0.0, 0.25, 0.5, 0.9, 1.0]).prop_map(WindowStat::Quantile),
        unit().prop_map(|unit| WindowStat::Slope { unit }),
        unit().prop_map(|unit| WindowStat::SinceNonzero { unit }),
    ]
}

fn compute() -> impl Strategy<Value = WindowFunction> {
    let flag = any::<bool>;
    prop_oneof![
        2 => (length(), select(vec![None, None, Some(0), Some(2), Some(i64::MAX)])).prop_map(|(by, as_of)| {
            let as_of = as_of.map(TimeDistance::Ticks);
            WindowFunction::Lag { by, as_of }
        }),
        1 => length().prop_map(|by| WindowFunction::Diff { by }),
        1 => length().prop_map(|by| WindowFunction::PctChange { by }),
        8 => (frame(), stat(), 0..4u64)
            .prop_map(|(frame, stat, min_periods)| WindowFunction::Window { frame, stat, min_periods }),
        2 => (
            select(vec![EwmDecay::Alpha(0.3), EwmDecay::Alpha(1.0), EwmDecay::HalfLife(2.5)]),
            (flag(), flag()),
            select(vec![EwmStat::Mean, EwmStat::Var, EwmStat::Std]),
            length(),
            0..4u64,
        )
            .prop_map(|(decay, (adjust, ignore_na), stat, gap, min_periods)| WindowFunction::Ewm {
                decay, adjust, ignore_na, stat, gap, min_periods
            }),
        2 => (length(), 0..4u64, select(vec![0.0, 0.0, 2.5]), select(vec![None, Some(PARENT)])).prop_map(
            |(gap, min_periods, strength, parent)| WindowFunction::SeasonalIndex {
                slot: SLOT, gap, min_periods, strength, parent
            }
        ),
        1 => select(vec![None, Some(0), Some(3)]).prop_map(|limit| WindowFunction::LastValid { limit }),
        1 => select(vec![None, Some(0), Some(3)]).prop_map(|limit| WindowFunction::LastValidTime { limit }),
    ]
}

/// A function of any input; of bits only if supported.
pub fn any_function() -> impl Strategy<Value = WindowOutput> {
    (compute(), 0..3usize).prop_map(|(compute, input)| {
        let copies = match &compute {
            WindowFunction::Lag { .. }
            | WindowFunction::Diff { .. }
            | WindowFunction::LastValid { .. }
            | WindowFunction::LastValidTime { .. } => true,
            WindowFunction::Window { stat, .. } => {
                matches!(
                    stat,
                    WindowStat::First | WindowStat::Last | WindowStat::Count | WindowStat::Unique
                )
            }
            _ => false,
        };
        function(if copies { input } else { input % 2 }, compute)
    })
}

pub fn any_gaps() -> impl Strategy<Value = GapHandling> {
    let fill = select(vec![
        PeriodFill::Null,
        PeriodFill::Zero,
        PeriodFill::Forward,
    ]);
    prop_oneof![
        3 => Just(GapHandling::CountRows),
        1 => Just(GapHandling::Warn { every: 2.into() }),
        3 => fill.prop_map(|fill| GapHandling::Complete { every: 2.into(), fill }),
    ]
}

/// Rows of a few series, each in time order; all times are even.
pub fn any_rows(max: usize) -> impl Strategy<Value = Vec<SeriesTestRow>> {
    let number = prop_oneof![
        4 => -9.0..9.0f64,
        4 => select(vec![0.0, 1.0, 2.0, 3.0]),
        1 => select(vec![0.1, -0.0, f64::NAN, 7.5]),
        2 => (0..100).prop_map(|x| 1e9 + f64::from(x) / 64.0),
    ];
    let series =
        prop_oneof![4 => (Just(Some(0u8)), 0..2i64), 2 => (prop::option::of(0..3u8), 0..2i64)];
    let step = select(vec![0, 2, 2, 2, 2, 2, 2, 4, 6, 40]);
    let value = (
        prop::option::weighted(0.85, number),
        prop::option::weighted(0.85, prop_oneof![Just(0), -3..4i32]),
        prop::option::weighted(0.85, prop_oneof![any::<i64>(), 0..3i64]),
        prop::option::weighted(0.9, 0..4i64),
    );
    prop::collection::vec((series, step, value), 0..max).prop_map(|rows| {
        let mut clocks = std::collections::BTreeMap::new();
        rows.into_iter()
            .map(|(series, step, (number, small, bits, slot))| {
                let clock = clocks.entry(series).or_insert(-20);
                *clock += step;
                let bits = bits.filter(|&bits| bits != i64::MIN);
                SeriesTestRow {
                    series,
                    time: *clock,
                    number,
                    small,
                    bits,
                    slot,
                }
            })
            .collect()
    })
}
