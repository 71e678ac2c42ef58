//! Naive oracle: computes every output from the full list of entries.

use std::collections::{BTreeMap, BTreeSet};

use forebay_window::{
    ClosedEnds, EwmDecay, EwmStat, GapHandling, PeriodFill, SeriesFrame, SeriesLength,
    WindowFunction, WindowOutput, WindowPlan, WindowStat,
};

use super::*;

/// One entry of a series: a row or a missing period.
#[derive(Debug, Clone)]
struct OracleEntry {
    time: i64,
    numbers: [Option<f64>; 5],
    bits: [Option<i64>; 5],
}

/// An expected number, and the magnitude of the numbers it was computed from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OracleValue {
    None,
    Number(f64, f64),
    Bits(i64),
}

fn valid(value: Option<f64>) -> Option<f64> {
    value.filter(|value| !value.is_nan())
}

fn entry(row: &SeriesTestRow) -> OracleEntry {
    let parent = row.small.map(|value| f64::from(value) / 4.0);
    OracleEntry {
        time: row.time,
        numbers: [
            valid(row.number),
            row.small.map(f64::from),
            None,
            None,
            parent,
        ],
        bits: [None, None, row.bits, row.slot, None],
    }
}

/// The outputs of all functions for all rows, by function.
pub fn expected(plan: &WindowPlan, rows: &[SeriesTestRow]) -> Vec<Vec<OracleValue>> {
    let slots: BTreeSet<usize> = plan
        .functions
        .iter()
        .filter_map(|function| match function.compute {
            WindowFunction::SeasonalIndex { slot, .. } => Some(slot),
            _ => None,
        })
        .collect();
    let mut series: BTreeMap<(Option<u8>, i64), Vec<OracleEntry>> = BTreeMap::new();
    let mut out = vec![Vec::new(); plan.functions.len()];
    for row in rows {
        let entries = series.entry(row.series).or_default();
        if let (GapHandling::Complete { every, fill }, Some(last)) =
            (plan.gaps, entries.last().cloned())
        {
            let every = every.span().ticks;
            let mut time = last.time + every;
            while time < row.time {
                let mut filler = match fill {
                    PeriodFill::Null => OracleEntry {
                        time,
                        numbers: [None; 5],
                        bits: [None; 5],
                    },
                    PeriodFill::Zero => {
                        let zero = Some(0.0);
                        let bits = [None, None, Some(0), Some(0), None];
                        OracleEntry {
                            time,
                            numbers: [zero, zero, None, None, zero],
                            bits,
                        }
                    }
                    PeriodFill::Forward => OracleEntry {
                        time,
                        ..last.clone()
                    },
                };
                slots.iter().for_each(|&slot| filler.bits[slot] = None);
                entries.push(filler);
                time += every;
            }
        }
        entries.push(entry(row));
        for (function, out) in plan.functions.iter().zip(&mut out) {
            out.push(value(function, entries));
        }
    }
    out
}

fn word(entry: &OracleEntry, input: usize) -> OracleValue {
    match (entry.numbers[input], entry.bits[input]) {
        (Some(number), _) => OracleValue::Number(number, number.abs()),
        (None, Some(bits)) => OracleValue::Bits(bits),
        (None, None) => OracleValue::None,
    }
}

/// The entry `by` before the last one.
fn before(entries: &[OracleEntry], by: SeriesLength, as_of: i64) -> Option<&OracleEntry> {
    let own = entries.len() - 1;
    match by {
        SeriesLength::Rows(rows) => own.checked_sub(rows as usize).map(|at| &entries[at]),
        SeriesLength::Ticks(ticks) => {
            let target = entries[own].time - ticks;
            entries
                .iter()
                .rfind(|entry| entry.time <= target && target - entry.time <= as_of)
        }
        SeriesLength::Calendar(_) => unreachable!("calendars have a test of their own"),
    }
}

/// Number of entries up to `gap` before the last one.
fn count_up_to(entries: &[OracleEntry], gap: SeriesLength) -> usize {
    let own = entries.len() - 1;
    match gap {
        SeriesLength::Rows(rows) => entries.len().saturating_sub(rows as usize),
        SeriesLength::Ticks(ticks) => entries
            .iter()
            .filter(|entry| entry.time <= entries[own].time - ticks)
            .count(),
        SeriesLength::Calendar(_) => unreachable!("calendars have a test of their own"),
    }
}

fn frame(entries: &[OracleEntry], frame: SeriesFrame) -> Vec<usize> {
    let own = entries.len() - 1;
    match frame {
        SeriesFrame::Expanding { gap } => (0..count_up_to(entries, gap)).collect(),
        SeriesFrame::Rolling { over, gap, closed } => {
            // Abscissas: row numbers or times.
            let (place, width): (Box<dyn Fn(usize) -> i64>, i64) = match over {
                SeriesLength::Rows(rows) => (Box::new(|at| at as i64), rows as i64),
                SeriesLength::Ticks(ticks) => (Box::new(|at| entries[at].time), ticks),
                SeriesLength::Calendar(_) => unreachable!("calendars have a test of their own"),
            };
            let gap = match gap {
                SeriesLength::Rows(rows) => rows as i64,
                SeriesLength::Ticks(ticks) => ticks,
                SeriesLength::Calendar(_) => unreachable!("calendars have a test of their own"),
            };
            let end = place(own) - gap;
            let within = |at: &usize| {
                let at = place(*at);
                let after = at > end - width
                    || (at == end - width && matches!(closed, ClosedEnds::Left | ClosedEnds::Both));
                let before = at < end
                    || (at == end && matches!(closed, ClosedEnds::Right | ClosedEnds::Both));
                after && before
            };
            (0..=own).filter(within).collect()
        }
        SeriesFrame::Seasonal { season, over, gap } => {
            let turn = |turn: u64| match (season, gap) {
                (SeriesLength::Rows(season), SeriesLength::Rows(gap)) => {
                    own.checked_sub((gap + turn * season) as usize)
                }
                (SeriesLength::Ticks(season), gap) => {
                    let gap = if let SeriesLength::Ticks(gap) = gap {
                        gap
                    } else {
                        0
                    };
                    let target = entries[own].time - gap - turn as i64 * season;
                    (0..=own).rfind(|&at| entries[at].time == target)
                }
                _ => unreachable!(),
            };
            (0..over).rev().filter_map(turn).collect()
        }
    }
}

fn value(function: &WindowOutput, entries: &[OracleEntry]) -> OracleValue {
    let input = function.input;
    let own = entries.last().unwrap();
    let number = |number: f64, scale: f64| {
        if number.is_nan() {
            OracleValue::None
        } else {
            OracleValue::Number(number, scale)
        }
    };
    match &function.compute {
        WindowFunction::Lag { by, as_of } => {
            before(entries, *by, as_of.map_or(0, |older| older.span().ticks))
                .map_or(OracleValue::None, |e| word(e, input))
        }
        WindowFunction::Diff { by } => {
            let Some(before) = before(entries, *by, 0) else {
                return OracleValue::None;
            };
            match (word(own, input), word(before, input)) {
                (OracleValue::Number(a, _), OracleValue::Number(b, _)) => {
                    number(a - b, a.abs() + b.abs())
                }
                // The two least integers stand for nulls.
                (OracleValue::Bits(a), OracleValue::Bits(b)) => a
                    .checked_sub(b)
                    .filter(|difference| *difference > -i64::MAX)
                    .map_or(OracleValue::None, OracleValue::Bits),
                _ => OracleValue::None,
            }
        }
        WindowFunction::PctChange { by } => {
            match before(entries, *by, 0).map(|e| (own.numbers[input], e.numbers[input])) {
                Some((Some(a), Some(b))) => number(a / b - 1.0, (a / b).abs() + 1.0),
                _ => OracleValue::None,
            }
        }
        WindowFunction::LastValid { limit } => {
            last_valid(entries, input, *limit).map_or(OracleValue::None, |e| word(e, input))
        }
        WindowFunction::LastValidTime { limit } => last_valid(entries, input, *limit)
            .map_or(OracleValue::None, |e| OracleValue::Bits(e.time)),
        WindowFunction::Ewm {
            decay,
            adjust,
            ignore_na,
            stat,
            gap,
            min_periods,
        } => {
            let end = count_up_to(entries, *gap);
            ewm(
                &entries[..end],
                input,
                *decay,
                *adjust,
                *ignore_na,
                *stat,
                *min_periods,
            )
        }
        WindowFunction::SeasonalIndex {
            slot,
            gap,
            min_periods,
            strength,
            parent,
        } => {
            let parent = parent.and_then(|parent| own.numbers[parent]).unwrap_or(1.0);
            let end = count_up_to(entries, *gap);
            let values: Vec<(i64, f64)> = entries[..end]
                .iter()
                .filter_map(|e| e.bits[*slot].zip(e.numbers[input]))
                .collect();
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            let all: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
            let ours: Vec<f64> = values
                .iter()
                .filter(|(slot_, _)| Some(*slot_) == own.bits[*slot])
                .map(|(_, value)| *value)
                .collect();
            let size = all.iter().map(|value| value.abs()).sum::<f64>() / mean(&all).abs();
            if ours.is_empty() || (ours.len() as u64) < *min_periods || mean(&all) == 0.0 {
                return if *strength > 0.0 {
                    number(parent, parent.abs())
                } else {
                    OracleValue::None
                };
            }
            let n = ours.len() as f64;
            let index = mean(&ours) / mean(&all);
            // Rounding decides if values cancel.
            let scale = (1.0 + size) * (1.0 + index.abs());
            number((n * index + strength * parent) / (n + strength), scale)
        }
        WindowFunction::Window {
            frame: of,
            stat,
            min_periods,
        } => {
            let places = frame(entries, *of);
            stat_of(entries, input, &places, *stat, *min_periods)
        }
    }
}

fn last_valid(entries: &[OracleEntry], input: usize, limit: Option<u64>) -> Option<&OracleEntry> {
    let reach = limit.map_or(entries.len(), |limit| {
        (limit as usize + 1).min(entries.len())
    });
    entries[entries.len() - reach..]
        .iter()
        .rfind(|entry| word(entry, input) != OracleValue::None)
}

fn ewm(
    entries: &[OracleEntry],
    input: usize,
    decay: EwmDecay,
    adjust: bool,
    ignore_na: bool,
    stat: EwmStat,
    min_periods: u64,
) -> OracleValue {
    // Explicit weight of each value.
    let mut values: Vec<(f64, f64)> = Vec::new();
    let mut faded = 1.0;
    for (at, entry) in entries.iter().enumerate() {
        let value = entry.numbers[input];
        if values.is_empty() {
            values.extend(value.map(|value| (1.0, value)));
            continue;
        }
        if value.is_none() && ignore_na {
            continue;
        }
        faded *= match decay {
            EwmDecay::Alpha(alpha) => 1.0 - alpha,
            EwmDecay::HalfLife(half_life) => {
                0.5f64.powf((entry.time - entries[at - 1].time) as f64 / half_life)
            }
        };
        if let Some(value) = value {
            values.iter_mut().for_each(|(weight, _)| *weight *= faded);
            let new = match decay {
                _ if adjust => 1.0,
                EwmDecay::Alpha(alpha) => alpha,
                EwmDecay::HalfLife(_) => 1.0 - faded,
            };
            values.push((new, value));
            if !adjust {
                let all: f64 = values.iter().map(|(weight, _)| weight).sum();
                values.iter_mut().for_each(|(weight, _)| *weight /= all);
            }
            faded = 1.0;
        }
    }
    if (values.len() as u64) < min_periods.max(1) {
        return OracleValue::None;
    }
    let weights: f64 = values.iter().map(|(weight, _)| weight).sum();
    let mean = values
        .iter()
        .map(|(weight, value)| weight * value)
        .sum::<f64>()
        / weights;
    let size = values
        .iter()
        .map(|(_, value)| value.abs())
        .fold(0.0, f64::max);
    let biased = values
        .iter()
        .map(|(weight, value)| weight * (value - mean).powi(2))
        .sum::<f64>()
        / weights;
    let squares: f64 = values.iter().map(|(weight, _)| weight * weight).sum();
    let rest = weights * weights - squares;
    let variance = if values.len() > 1 && rest > 0.0 {
        weights * weights / rest * biased
    } else {
        f64::NAN
    };
    // If one value has nearly all weight, rounding decides whether there is a variance.
    let unclear = values.len() > 1 && rest < 1e-9 * weights * weights;
    match stat {
        EwmStat::Mean => OracleValue::Number(mean, size),
        _ if unclear => OracleValue::Number(f64::NAN, f64::NAN),
        EwmStat::Var | EwmStat::Std if variance.is_nan() => OracleValue::None,
        EwmStat::Var => OracleValue::Number(variance, size * size),
        EwmStat::Std => OracleValue::Number(variance.sqrt(), size),
    }
}

fn stat_of(
    entries: &[OracleEntry],
    input: usize,
    places: &[usize],
    stat: WindowStat,
    min_periods: u64,
) -> OracleValue {
    let own = entries.len() - 1;
    let there: Vec<usize> = places
        .iter()
        .copied()
        .filter(|&at| word(&entries[at], input) != OracleValue::None)
        .collect();
    if (there.len() as u64) < min_periods {
        return OracleValue::None;
    }
    let number = |number: f64, scale: f64| {
        if number.is_nan() {
            OracleValue::None
        } else {
            OracleValue::Number(number, scale)
        }
    };
    match stat {
        WindowStat::Count => return OracleValue::Number(there.len() as f64, 0.0),
        WindowStat::First => {
            return there
                .first()
                .map_or(OracleValue::None, |&at| word(&entries[at], input));
        }
        WindowStat::Last => {
            return there
                .last()
                .map_or(OracleValue::None, |&at| word(&entries[at], input));
        }
        WindowStat::Unique => {
            let words: BTreeSet<u64> = there
                .iter()
                .map(|&at| match word(&entries[at], input) {
                    OracleValue::Number(number, _) => (number + 0.0).to_bits(),
                    OracleValue::Bits(bits) => bits as u64,
                    OracleValue::None => unreachable!(),
                })
                .collect();
            return OracleValue::Number(words.len() as f64, 0.0);
        }
        _ => {}
    }
    let values: Vec<f64> = there
        .iter()
        .filter_map(|&at| entries[at].numbers[input])
        .collect();
    let n = values.len() as f64;
    if values.is_empty() {
        return if stat == WindowStat::Sum {
            OracleValue::Number(0.0, 0.0)
        } else {
            OracleValue::None
        };
    }
    // Deviations from the first value are exact if values lie close together.
    let sum: f64 = values.iter().sum();
    let size: f64 = values.iter().map(|value| value.abs()).sum();
    let near: Vec<f64> = values.iter().map(|value| value - values[0]).collect();
    let mean = near.iter().sum::<f64>() / n;
    let moment = |power: i32| {
        near.iter()
            .map(|value| (value - mean).powi(power))
            .sum::<f64>()
    };
    let constant = values.iter().all(|value| *value == values[0]);
    match stat {
        WindowStat::Sum => number(sum, size),
        WindowStat::Mean => number(sum / n, size / n),
        WindowStat::Var { ddof } if n > f64::from(ddof) => {
            number(moment(2) / (n - f64::from(ddof)), 0.0)
        }
        WindowStat::Std { ddof } if n > f64::from(ddof) => {
            number((moment(2) / (n - f64::from(ddof))).sqrt(), 0.0)
        }
        WindowStat::Min => number(values.iter().copied().fold(f64::INFINITY, f64::min), 0.0),
        WindowStat::Max => number(
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            0.0,
        ),
        WindowStat::Quantile(q) => {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let rank = q * (n - 1.0);
            let low = sorted[rank.floor() as usize];
            let high = sorted[rank.ceil() as usize];
            let share = rank - rank.floor();
            number(
                if share == 0.0 || low == high {
                    low
                } else {
                    low + share * (high - low)
                },
                low.abs() + high.abs(),
            )
        }
        WindowStat::Skew if n >= 3.0 && constant && values[0].is_finite() => number(0.0, 0.0),
        WindowStat::Skew if n >= 3.0 => number(
            (n * (n - 1.0)).sqrt() / (n - 2.0) * (moment(3) / n) / (moment(2) / n).powf(1.5),
            1.0,
        ),
        WindowStat::Kurtosis if n >= 4.0 && constant && values[0].is_finite() => number(-3.0, 0.0),
        WindowStat::Kurtosis if n >= 4.0 => {
            let excess = (n + 1.0) * (moment(4) / n) / (moment(2) / n).powi(2) - 3.0 * (n - 1.0);
            number((n - 1.0) / ((n - 2.0) * (n - 3.0)) * excess, 10.0)
        }
        WindowStat::ZeroShare => number(
            values.iter().filter(|value| **value == 0.0).count() as f64 / n,
            1.0,
        ),
        WindowStat::Slope { unit } => {
            let x: Vec<f64> = there
                .iter()
                .map(|&at| match unit {
                    None => at as f64,
                    Some(unit) => (entries[at].time - entries[0].time) as f64 / unit as f64,
                })
                .collect();
            let x_mean = x.iter().sum::<f64>() / n;
            let both: f64 = x
                .iter()
                .zip(&near)
                .map(|(x, y)| (x - x_mean) * (y - mean))
                .sum();
            let squares: f64 = x.iter().map(|x| (x - x_mean).powi(2)).sum();
            if x.iter().all(|place| *place == x[0]) {
                OracleValue::None
            } else {
                number(both / squares, size)
            }
        }
        WindowStat::SinceNonzero { unit } => {
            let Some(&at) = there
                .iter()
                .rfind(|&&at| entries[at].numbers[input] != Some(0.0))
            else {
                return OracleValue::None;
            };
            match unit {
                None => number((own - at) as f64, 0.0),
                Some(unit) => number(
                    (entries[own].time - entries[at].time) as f64 / unit as f64,
                    0.0,
                ),
            }
        }
        _ => OracleValue::None,
    }
}
