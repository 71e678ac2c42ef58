//! Kernels over the values of one window: doubles by their bits, with NaN for missing values.
//!
//! Results depend on the values alone: sums run in a fixed number of lanes, aligned to the start of the window.

use crate::special_words::{NO_BITS, NO_NUMBER};
use crate::stats::DistanceUnit;

/// Lanes of a sum: independent additions use vector units and hide latency.
const LANES: usize = 4;

/// Sums of powers of deviations from here on have lost nothing; smaller ones may have lost all. 2^-900.
const POWERS_MIN: f64 = f64::from_bits((1023 - 900) << 52);

type SumLanes = [f64; LANES];

/// Passes the values to `take` by lanes; the last lanes are padded with missing values.
#[inline(always)]
fn by_lanes(values: &[u64], mut take: impl FnMut(SumLanes)) {
    let (chunks, remainder) = values.as_chunks::<LANES>();
    for chunk in chunks {
        take(chunk.map(f64::from_bits));
    }
    match *remainder {
        [a] => take([a, NO_NUMBER, NO_NUMBER, NO_NUMBER].map(f64::from_bits)),
        [a, b] => take([a, b, NO_NUMBER, NO_NUMBER].map(f64::from_bits)),
        [a, b, c] => take([a, b, c, NO_NUMBER].map(f64::from_bits)),
        _ => {}
    }
}

/// `number`, or zero if `value` is missing.
#[inline(always)]
fn or_zero(number: f64, value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { number }
}

#[inline(always)]
fn plus(a: SumLanes, b: SumLanes) -> SumLanes {
    std::array::from_fn(|lane| a[lane] + b[lane])
}

#[inline(always)]
fn fold(lanes: SumLanes) -> f64 {
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

/// Count and sum. `whole` predicts that no value is missing; the result has the same bits either way.
#[inline]
pub(crate) fn sums(values: &[u64], whole: bool) -> (f64, f64) {
    if !whole {
        return sums_with_missing(values);
    }
    let mut sums = [0.0; LANES];
    let (chunks, remainder) = values.as_chunks::<LANES>();
    for chunk in chunks {
        sums = plus(sums, chunk.map(f64::from_bits));
    }
    remainder
        .iter()
        .enumerate()
        .for_each(|(lane, &word)| sums[lane] += f64::from_bits(word));
    let sum = fold(sums);
    if sum.is_nan() {
        sums_with_missing(values)
    } else {
        (values.len() as f64, sum)
    }
}

/// Count and sum with missing values.
fn sums_with_missing(values: &[u64]) -> (f64, f64) {
    let mut counts = [0.0; LANES];
    let mut sums = [0.0; LANES];
    by_lanes(values, |lanes| {
        for lane in 0..LANES {
            counts[lane] += or_zero(1.0, lanes[lane]);
            sums[lane] += or_zero(lanes[lane], lanes[lane]);
        }
    });
    (fold(counts), fold(sums))
}

/// Count, sum, and the sum of squared deviations from the mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub count: f64,
    pub sum: f64,
    /// The squared deviations, measured in `unit`.
    pub squares: f64,
    /// A power of two: 1, unless doubles do not hold the squares of the deviations.
    pub unit: f64,
}

/// Count, sum and squared deviations of values of any magnitude. For `whole` see [`sums`].
#[inline]
pub(crate) fn spread(values: &[u64], whole: bool) -> Spread {
    let (count, sum, squares) = squared_deviations(values, whole);
    if holds_powers(squares) {
        return Spread {
            count,
            sum,
            squares,
            unit: 1.0,
        };
    }
    measured_spread(values, count, sum, squares)
}

/// True for a sum of powers of deviations that is neither beyond the doubles nor so small that powers were lost.
#[inline(always)]
pub(crate) fn holds_powers(sum: f64) -> bool {
    (POWERS_MIN..=f64::MAX).contains(&sum)
}

/// The spread of values whose squared deviations may have left the doubles.
#[cold]
pub(crate) fn measured_spread(values: &[u64], count: f64, sum: f64, squares: f64) -> Spread {
    let mut spread = Spread {
        count,
        sum,
        squares,
        unit: 1.0,
    };
    let Some((centre, unit)) = centre_and_unit(values) else {
        return spread;
    };
    let mut ones = 0.0;
    let mut squares = 0.0;
    for value in numbers(values) {
        let distance = unit.distance(value, centre);
        ones += distance;
        squares += distance * distance;
    }
    spread.squares = clamp_to_zero(squares - ones * ones / count);
    spread.unit = unit.value();
    spread
}

/// The last value, and the unit of the distances from it; `None` if all values are equal, or one is infinite.
fn centre_and_unit(values: &[u64]) -> Option<(f64, DistanceUnit)> {
    // Many windows have one value only, and need no distances.
    let (first, others) = values.split_first()?;
    if others.iter().all(|word| word == first) {
        return None;
    }
    let centre = last(values)?;
    let mut largest = 0.0;
    for value in numbers(values) {
        if value.is_infinite() {
            return None;
        }
        largest = f64::max(largest, (value - centre).abs());
    }
    (largest > 0.0).then(|| (centre, DistanceUnit::of(largest)))
}

/// The values that are not missing.
fn numbers(values: &[u64]) -> impl Iterator<Item = f64> + Clone {
    values
        .iter()
        .map(|&word| f64::from_bits(word))
        .filter(|value| !value.is_nan())
}

/// Count, sum, and sum of squared deviations from the mean.
///
/// Computed from deviations from one of the values. Since that value is among them, cancellation is small, and
/// equal values give exactly zero. For `whole` see [`sums`].
#[inline]
fn squared_deviations(values: &[u64], whole: bool) -> (f64, f64, f64) {
    if !whole {
        return squared_deviations_with_missing(values);
    }
    let Some(centre) = values.last().map(|&word| f64::from_bits(word)) else {
        return (0.0, 0.0, 0.0);
    };
    let mut sums = [0.0; LANES];
    let mut ones = [0.0; LANES];
    let mut squares = [0.0; LANES];
    let (chunks, remainder) = values.as_chunks::<LANES>();
    for chunk in chunks {
        let values = chunk.map(f64::from_bits);
        let distances = values.map(|value| value - centre);
        sums = plus(sums, values);
        ones = plus(ones, distances);
        squares = plus(squares, distances.map(|distance| distance * distance));
    }
    for (lane, &word) in remainder.iter().enumerate() {
        let value = f64::from_bits(word);
        let distance = value - centre;
        sums[lane] += value;
        ones[lane] += distance;
        squares[lane] += distance * distance;
    }
    let sum = fold(sums);
    if sum.is_nan() {
        squared_deviations_with_missing(values)
    } else {
        finish_deviations(values.len() as f64, sum, ones, squares)
    }
}

/// Like `squared_deviations`, for values with missing ones.
fn squared_deviations_with_missing(values: &[u64]) -> (f64, f64, f64) {
    let Some(centre) = last(values) else {
        return (0.0, 0.0, 0.0);
    };
    let mut counts = [0.0; LANES];
    let mut sums = [0.0; LANES];
    let mut ones = [0.0; LANES];
    let mut squares = [0.0; LANES];
    by_lanes(values, |lanes| {
        for lane in 0..LANES {
            let value = lanes[lane];
            let distance = or_zero(value - centre, value);
            counts[lane] += or_zero(1.0, value);
            sums[lane] += or_zero(value, value);
            ones[lane] += distance;
            squares[lane] += distance * distance;
        }
    });
    finish_deviations(fold(counts), fold(sums), ones, squares)
}

#[inline(always)]
fn finish_deviations(count: f64, sum: f64, ones: SumLanes, squares: SumLanes) -> (f64, f64, f64) {
    let ones = fold(ones);
    (
        count,
        sum,
        clamp_to_zero(fold(squares) - ones * ones / count),
    )
}

/// The last value that is not missing.
#[inline(always)]
fn last(values: &[u64]) -> Option<f64> {
    values
        .iter()
        .rev()
        .map(|&word| f64::from_bits(word))
        .find(|value| !value.is_nan())
}

/// Clamps negative rounding errors to zero; NaN stays.
#[inline(always)]
fn clamp_to_zero(value: f64) -> f64 {
    if value < 0.0 { 0.0 } else { value }
}

/// Sums of squared, cubed and fourth-power deviations from the mean, measured in any unit: statistics of more than the
/// squares have none.
pub(crate) fn moments(values: &[u64], count: f64) -> [f64; 3] {
    let powers = centred_moments(values, count).map_or([0.0; 3], |(_, _, powers)| powers);
    if holds_powers(powers[2]) {
        return powers;
    }
    measured_moments(values, count).unwrap_or(powers)
}

/// The moments of values whose fourth powers may have left the doubles; `None` if all values are equal, or one is
/// infinite.
#[cold]
pub(crate) fn measured_moments(values: &[u64], count: f64) -> Option<[f64; 3]> {
    let (centre, unit) = centre_and_unit(values)?;
    let distances = numbers(values).map(|value| unit.distance(value, centre));
    let mean = distances.clone().sum::<f64>() / count;
    Some(powers_about(mean, distances))
}

/// The last value, the mean of the distances from it, and the sums of squared, cubed and fourth-power deviations from the
/// mean; `None` without values.
pub(crate) fn centred_moments(values: &[u64], count: f64) -> Option<(f64, f64, [f64; 3])> {
    let centre = last(values)?;
    let distances = || {
        values
            .iter()
            .map(|&word| f64::from_bits(word))
            .filter(|x| !x.is_nan())
            .map(|x| x - centre)
    };
    let mean = distances().sum::<f64>() / count;
    Some((centre, mean, powers_about(mean, distances())))
}

/// Sums of the squares, cubes and fourth powers of what distances differ from their mean.
fn powers_about(mean: f64, distances: impl Iterator<Item = f64>) -> [f64; 3] {
    distances.fold([0.0; 3], |[squares, cubes, fourths], distance| {
        let distance = distance - mean;
        let square = distance * distance;
        [
            squares + square,
            cubes + square * distance,
            fourths + square * square,
        ]
    })
}

/// Count, sum and sum of squared deviations of values that come one by one: the bits of [`squared_deviations`] whose
/// centre is the last of the first values.
#[derive(Debug)]
pub(crate) struct LaneSums {
    /// Values so far, also missing ones: it chooses the lane of the next one.
    length: usize,
    centre: Option<f64>,
    counts: SumLanes,
    sums: SumLanes,
    ones: SumLanes,
    squares: SumLanes,
    /// True if two values differ.
    has_distances: bool,
    has_infinities: bool,
}

impl LaneSums {
    /// The sums of the first values.
    pub fn of(values: &[u64]) -> LaneSums {
        let mut sums = LaneSums::of_count(0.0);
        sums.centre = last(values);
        values
            .iter()
            .for_each(|&word| sums.add(f64::from_bits(word)));
        sums
    }

    /// The sums of words that are no numbers: only their count is known.
    pub fn of_count(count: f64) -> LaneSums {
        LaneSums {
            length: 0,
            centre: None,
            counts: [count, 0.0, 0.0, 0.0],
            sums: [0.0; LANES],
            ones: [0.0; LANES],
            squares: [0.0; LANES],
            has_distances: false,
            has_infinities: false,
        }
    }

    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        let lane = self.length % LANES;
        self.length += 1;
        if value.is_nan() {
            return;
        }
        let distance = value - *self.centre.get_or_insert(value);
        self.has_distances |= distance != 0.0;
        self.has_infinities |= value.is_infinite();
        self.counts[lane] += 1.0;
        self.sums[lane] += value;
        self.ones[lane] += distance;
        self.squares[lane] += distance * distance;
    }

    /// Counts a word that is no number.
    pub fn count_word(&mut self, is_there: bool) {
        self.counts[0] += f64::from(u8::from(is_there));
    }

    /// Number of values.
    pub fn count(&self) -> f64 {
        fold(self.counts)
    }

    /// True if the values have a spread that sums of powers in the unit 1 may not hold.
    pub fn has_finite_distances(&self) -> bool {
        self.has_distances && !self.has_infinities
    }

    /// Count, sum and squared deviations of the values so far, which are `values`.
    pub fn totals(&self, values: &[u64]) -> Spread {
        let count = self.count();
        let mut spread = Spread {
            count,
            sum: 0.0,
            squares: 0.0,
            unit: 1.0,
        };
        if self.centre.is_none() {
            return spread;
        }
        let sum = fold(self.sums);
        let (_, _, squares) = finish_deviations(count, sum, self.ones, self.squares);
        spread.sum = sum;
        spread.squares = squares;
        if holds_powers(squares) || !self.has_finite_distances() {
            return spread;
        }
        measured_spread(values, count, sum, squares)
    }
}

/// Number of words of `ValidityBits` encoding that are not missing.
pub(crate) fn count_bits(values: &[u64]) -> f64 {
    values.iter().filter(|&&word| word != NO_BITS).count() as f64
}

/// Number of zeros.
#[inline]
pub(crate) fn zeros(values: &[u64]) -> f64 {
    values
        .iter()
        .map(|&word| u64::from(f64::from_bits(word) == 0.0))
        .sum::<u64>() as f64
}

/// The minimum; infinity if there are no values.
#[inline]
pub(crate) fn minimum(values: &[u64]) -> f64 {
    extreme(values, f64::INFINITY, |value, other| value < other)
}

/// The maximum; minus infinity if there are no values.
#[inline]
pub(crate) fn maximum(values: &[u64]) -> f64 {
    extreme(values, f64::NEG_INFINITY, |value, other| value > other)
}

#[inline(always)]
fn extreme(values: &[u64], missing: f64, beats: impl Fn(f64, f64) -> bool) -> f64 {
    let mut best = [missing; LANES];
    by_lanes(values, |lanes| {
        for lane in 0..LANES {
            // False for NaN.
            best[lane] = if beats(lanes[lane], best[lane]) {
                lanes[lane]
            } else {
                best[lane]
            };
        }
    });
    // Normalizes -0.0 to 0.0.
    best.into_iter()
        .reduce(|a, b| if beats(b, a) { b } else { a })
        .unwrap_or(missing)
        + 0.0
}
