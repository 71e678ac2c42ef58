//! Seasons of a series: the test for one, and its indices by classical decomposition.

/// The 95 % quantile of the standard normal distribution: a one-sided test at 5 %.
const NORMAL_95: f64 = 1.644_853_626_951_472_2;

/// Least index of a season by which values are divided.
pub const INDEX_MIN: f64 = 0.01;

/// Indices of a season, from the first value of the series on.
#[derive(Debug, Clone, PartialEq)]
pub struct SeasonIndices {
    /// True if values are products with the index; else they are sums.
    pub multiplicative: bool,
    /// One for each step of the season.
    pub indices: Vec<f64>,
}

impl SeasonIndices {
    /// The season of some values, where the test finds one. It is multiplicative unless a value is not above zero, or
    /// an index is below 0.01.
    pub fn find(values: &[f64], steps: usize) -> Option<SeasonIndices> {
        if !is_seasonal(values, steps) {
            return None;
        }
        if values.iter().all(|value| *value > 0.0) {
            let season = decompose(values, steps, true);
            if season.indices.iter().all(|index| *index >= INDEX_MIN) {
                return Some(season);
            }
        }
        Some(decompose(values, steps, false))
    }

    /// Index of a value by its position.
    pub fn index(&self, position: usize) -> f64 {
        self.indices[position % self.indices.len()]
    }

    /// A value without its season.
    pub fn remove(&self, value: f64, position: usize) -> f64 {
        if self.multiplicative {
            value / self.index(position)
        } else {
            value - self.index(position)
        }
    }
}

/// True if the autocorrelation at the lag of the season is significant, as in Fiorucci et al. (2016, section 3): its
/// variance is that of Bartlett's formula.
fn is_seasonal(values: &[f64], steps: usize) -> bool {
    if steps < 2 || values.len() < 2 * steps {
        return false;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let deviations: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let variance: f64 = deviations
        .iter()
        .map(|deviation| deviation * deviation)
        .sum();
    if variance <= 0.0 {
        return false;
    }
    let mut squares = 0.0;
    let mut correlation: f64 = 0.0;
    for lag in 1..=steps {
        squares += correlation * correlation;
        let pairs = deviations.iter().zip(&deviations[lag..]);
        correlation = pairs.map(|(value, shifted)| value * shifted).sum::<f64>() / variance;
    }
    correlation.abs() > NORMAL_95 * ((1.0 + 2.0 * squares) / count).sqrt()
}

/// Means of values by their position in the season, after a centred moving average of one season is taken away.
pub fn decompose(values: &[f64], steps: usize, multiplicative: bool) -> SeasonIndices {
    let mut sums = vec![0.0; steps];
    let mut counts = vec![0.0; steps];
    let half = steps / 2;
    for position in half..values.len() - half {
        let trend = centred_mean(values, position, steps);
        let detrended = if multiplicative {
            values[position] / trend
        } else {
            values[position] - trend
        };
        sums[position % steps] += detrended;
        counts[position % steps] += 1.0;
    }
    let mut indices: Vec<f64> = sums
        .iter()
        .zip(&counts)
        .map(|(sum, count)| sum / count)
        .collect();
    let mean = indices.iter().sum::<f64>() / steps as f64;
    for index in &mut indices {
        if multiplicative {
            *index /= mean;
        } else {
            *index -= mean;
        }
    }
    SeasonIndices {
        multiplicative,
        indices,
    }
}

/// Mean of a season around a position. One of an even number of steps has half of both ends.
fn centred_mean(values: &[f64], position: usize, steps: usize) -> f64 {
    let half = steps / 2;
    let first = position - half;
    let last = position + half;
    let sum: f64 = values[first..=last].iter().sum();
    if steps.is_multiple_of(2) {
        (sum - (values[first] + values[last]) / 2.0) / steps as f64
    } else {
        sum / steps as f64
    }
}
