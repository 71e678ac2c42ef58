//! Random plans and rows.

use forebay_window::{Closed, Compute, Decay, EwmStat, Fill, Frame, Function, Gaps, Length, Stat};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn length() -> impl Strategy<Value = Length> {
    prop_oneof![(0..6u64).prop_map(Length::Rows), (0..9i64).prop_map(Length::Ticks)]
}

/// Two lengths of one kind.
fn lengths() -> impl Strategy<Value = (Length, Length)> {
    prop_oneof![
        3 => (0..9u64, 0..4u64).prop_map(|(a, b)| (Length::Rows(a), Length::Rows(b))),
        3 => (0..12i64, 0..5i64).prop_map(|(a, b)| (Length::Ticks(a), Length::Ticks(b))),
        1 => (0..12i64).prop_map(|a| (Length::Ticks(a), Length::ZERO)),
        1 => (50..90u64, 0..4u64).prop_map(|(a, b)| (Length::Rows(a), Length::Rows(b))),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let closed = select(vec![Closed::Right, Closed::Left, Closed::Both, Closed::Neither]);
    prop_oneof![
        3 => (lengths(), closed).prop_map(|((over, gap), closed)| Frame::Rolling { over, gap, closed }),
        2 => length().prop_map(|gap| Frame::Expanding { gap }),
        1 => (lengths(), 0..5u64).prop_map(|((season, gap), over)| {
            let season = match season {
                Length::Rows(rows) => Length::Rows(rows % 8 + 1),
                Length::Ticks(ticks) => Length::Ticks(ticks + 1),
            };
            Frame::Seasonal { season, over, gap }
        }),
    ]
}

fn stat() -> impl Strategy<Value = Stat> {
    let unit = || select(vec![None, Some(1), Some(3)]);
    prop_oneof![
        select(vec![Stat::Count, Stat::Sum, Stat::Mean, Stat::Min, Stat::Max, Stat::Skew, Stat::Kurtosis]),
        select(vec![Stat::First, Stat::Last, Stat::Unique, Stat::ZeroShare]),
        (0..3u8).prop_map(|ddof| Stat::Var { ddof }),
        (0..3u8).prop_map(|ddof| Stat::Std { ddof }),
        select(vec![0.0, 0.25, 0.5, 0.9, 1.0]).prop_map(Stat::Quantile),
        unit().prop_map(|unit| Stat::Slope { unit }),
        unit().prop_map(|unit| Stat::SinceNonzero { unit }),
    ]
}

fn compute() -> impl Strategy<Value = Compute> {
    let flag = any::<bool>;
    prop_oneof![
        2 => (length(), select(vec![None, None, Some(0), Some(2), Some(i64::MAX)]))
            .prop_map(|(by, as_of)| Compute::Lag { by, as_of }),
        1 => length().prop_map(|by| Compute::Diff { by }),
        1 => length().prop_map(|by| Compute::PctChange { by }),
        8 => (frame(), stat(), 0..4u64)
            .prop_map(|(frame, stat, min_periods)| Compute::Window { frame, stat, min_periods }),
        2 => (
            select(vec![Decay::Alpha(0.3), Decay::Alpha(1.0), Decay::HalfLife(2.5)]),
            (flag(), flag()),
            select(vec![EwmStat::Mean, EwmStat::Var, EwmStat::Std]),
            length(),
            0..4u64,
        )
            .prop_map(|(decay, (adjust, ignore_na), stat, gap, min_periods)| Compute::Ewm {
                decay, adjust, ignore_na, stat, gap, min_periods
            }),
        2 => (length(), 0..4u64, select(vec![0.0, 0.0, 2.5]), select(vec![None, Some(PARENT)])).prop_map(
            |(gap, min_periods, strength, parent)| Compute::SeasonalIndex {
                slot: SLOT, gap, min_periods, strength, parent
            }
        ),
        1 => select(vec![None, Some(0), Some(3)]).prop_map(|limit| Compute::LastValid { limit }),
        1 => select(vec![None, Some(0), Some(3)]).prop_map(|limit| Compute::LastValidTime { limit }),
    ]
}

/// A function of any input; of bits only if supported.
pub fn any_function() -> impl Strategy<Value = Function> {
    (compute(), 0..3usize).prop_map(|(compute, input)| {
        let copies = match &compute {
            Compute::Lag { .. } | Compute::Diff { .. } | Compute::LastValid { .. } | Compute::LastValidTime { .. } => {
                true
            }
            Compute::Window { stat, .. } => matches!(stat, Stat::First | Stat::Last | Stat::Count | Stat::Unique),
            _ => false,
        };
        function(if copies { input } else { input % 2 }, compute)
    })
}

pub fn any_gaps() -> impl Strategy<Value = Gaps> {
    let fill = select(vec![Fill::Null, Fill::Zero, Fill::Forward]);
    prop_oneof![
        3 => Just(Gaps::CountRows),
        1 => Just(Gaps::Warn { every: 2 }),
        3 => fill.prop_map(|fill| Gaps::Complete { every: 2, fill }),
    ]
}

/// Rows of a few series, each in time order; all times are even.
pub fn any_rows(max: usize) -> impl Strategy<Value = Vec<Row>> {
    let number = prop_oneof![
        4 => -9.0..9.0f64,
        4 => select(vec![0.0, 1.0, 2.0, 3.0]),
        1 => select(vec![0.1, -0.0, f64::NAN, 7.5]),
        2 => (0..100).prop_map(|x| 1e9 + f64::from(x) / 64.0),
    ];
    let series = prop_oneof![4 => (Just(Some(0u8)), 0..2i64), 2 => (prop::option::of(0..3u8), 0..2i64)];
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
                Row { series, time: *clock, number, small, bits, slot }
            })
            .collect()
    })
}
