//! Loops over the values of one window: numbers by their bits, missing ones NaN.
//!
//! What comes out depends on the values alone: sums run in a fixed number of lanes that start with
//! the window.

/// Lanes of sums: independent additions, for vector units and against their latency.
const LANES: usize = 4;

/// Count and sum.
#[inline]
pub(crate) fn sums(values: &[u64]) -> (f64, f64) {
    let (mut count, mut sum) = ([0u64; LANES], [0.0; LANES]);
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut add = |lane: usize, word: u64| {
        let value = f64::from_bits(word);
        let missing = value.is_nan();
        sum[lane] += if missing { 0.0 } else { value };
        count[lane] += u64::from(!missing);
    };
    for chunk in chunks {
        for (lane, &word) in chunk.iter().enumerate() {
            add(lane, word);
        }
    }
    for (lane, &word) in rest.iter().enumerate() {
        add(lane, word);
    }
    (count.iter().sum::<u64>() as f64, fold(sum))
}

fn fold(lanes: [f64; LANES]) -> f64 {
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

/// The sum of squares of the distances from the mean.
#[inline]
pub(crate) fn squares(values: &[u64], count: f64, mean: f64) -> f64 {
    let [ones, squares] = powers(values, mean);
    if one_value(values, count, ones, squares) {
        return 0.0;
    }
    // The mean was rounded; take out what that added.
    positive(squares - ones * ones / count)
}

/// Zero for what rounding took below it; NaN stays.
fn positive(value: f64) -> f64 {
    if value < 0.0 { 0.0 } else { value }
}

/// The sums of squares, cubes and fourth powers of the distances from the mean.
#[inline]
pub(crate) fn moments(values: &[u64], count: f64, mean: f64) -> [f64; 3] {
    let [ones, squares, cubes, fourths] = powers(values, mean);
    if one_value(values, count, ones, squares) {
        return [0.0; 3];
    }
    let shift = ones / count;
    [
        positive(squares - ones * ones / count),
        cubes - 3.0 * shift * squares + 2.0 * count * shift * shift * shift,
        fourths - 4.0 * shift * cubes + 6.0 * shift * shift * squares - 3.0 * count * shift.powi(4),
    ]
}

/// The sums of the first powers of the distances from `centre`.
#[inline(always)]
fn powers<const POWERS: usize>(values: &[u64], centre: f64) -> [f64; POWERS] {
    let mut sums = [[0.0; LANES]; POWERS];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut add = |lane: usize, word: u64| {
        let distance = f64::from_bits(word) - centre;
        let distance = if f64::from_bits(word).is_nan() { 0.0 } else { distance };
        let mut power = distance;
        for sum in &mut sums {
            sum[lane] += power;
            power *= distance;
        }
    };
    for chunk in chunks {
        for (lane, &word) in chunk.iter().enumerate() {
            add(lane, word);
        }
    }
    for (lane, &word) in rest.iter().enumerate() {
        add(lane, word);
    }
    sums.map(fold)
}

/// Whether all values are the same, though their rounded mean is another one: only then do all
/// distances have about the same size and sign.
#[inline]
fn one_value(values: &[u64], count: f64, ones: f64, squares: f64) -> bool {
    squares > 0.0 && ones * ones >= 0.99 * count * squares && {
        let mut values = values.iter().map(|&word| f64::from_bits(word)).filter(|value| !value.is_nan());
        let first = values.next();
        values.all(|value| Some(value) == first)
    }
}

/// How many kept bits are not missing.
pub(crate) fn count_bits(values: &[u64]) -> f64 {
    values.iter().filter(|&&word| word != crate::words::NO_BITS).count() as f64
}

/// How many values are zero.
#[inline]
pub(crate) fn zeros(values: &[u64]) -> f64 {
    values.iter().map(|&word| u64::from(f64::from_bits(word) == 0.0)).sum::<u64>() as f64
}

/// The least value; infinity where there is none.
#[inline]
pub(crate) fn least(values: &[u64]) -> f64 {
    extreme(values, f64::INFINITY, |value, other| value < other)
}

/// The greatest value; minus infinity where there is none.
#[inline]
pub(crate) fn greatest(values: &[u64]) -> f64 {
    extreme(values, f64::NEG_INFINITY, |value, other| value > other)
}

#[inline(always)]
fn extreme(values: &[u64], none: f64, beats: impl Fn(f64, f64) -> bool) -> f64 {
    let mut best = [none; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut look = |lane: usize, word: u64| {
        let value = f64::from_bits(word);
        // False for NaN.
        best[lane] = if beats(value, best[lane]) { value } else { best[lane] };
    };
    for chunk in chunks {
        for (lane, &word) in chunk.iter().enumerate() {
            look(lane, word);
        }
    }
    for (lane, &word) in rest.iter().enumerate() {
        look(lane, word);
    }
    // One zero for both signs.
    best.into_iter().reduce(|a, b| if beats(b, a) { b } else { a }).unwrap_or(none) + 0.0
}
