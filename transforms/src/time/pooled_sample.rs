//! Statistics of a few numbers in order of time.

use std::ops::RangeInclusive;

use super::SeriesStatistic;
use super::pooled_table::PooledCell;

/// Distances whose fourth powers are far from both ends of the doubles.
const NEAR_DISTANCES: RangeInclusive<f64> = 1e-70..=1e70;

/// A statistic of all values in these cells; `None` where there are too few of them.
pub(super) fn statistic_of_cells(
    statistic: SeriesStatistic,
    ddof: u8,
    cells: &[PooledCell],
) -> Option<f64> {
    let count = count_of_cells(cells);
    match statistic {
        SeriesStatistic::Count => return Some(count as f64),
        SeriesStatistic::Sum => return Some(sum_of_cells(cells)),
        _ if count == 0 => return None,
        _ => {}
    }
    match statistic {
        SeriesStatistic::Mean => Some(sum_of_cells(cells) / count as f64),
        SeriesStatistic::Min => cells.iter().map(|cell| cell.min).reduce(f64::min),
        SeriesStatistic::Max => cells.iter().map(|cell| cell.max).reduce(f64::max),
        SeriesStatistic::Var => Some(CellVariance::of(cells, ddof)?.variance()),
        SeriesStatistic::Std => Some(CellVariance::of(cells, ddof)?.deviation()),
        _ => None,
    }
}

fn count_of_cells(cells: &[PooledCell]) -> u64 {
    cells.iter().map(|cell| cell.count).sum()
}

fn sum_of_cells(cells: &[PooledCell]) -> f64 {
    neumaier_sum(cells.iter().map(|cell| cell.sum))
}

/// Variance of all values in some cells.
struct CellVariance {
    /// The variance, measured in the unit.
    scaled: f64,
    /// See [`unit_of`].
    unit: f64,
}

impl CellVariance {
    /// `None` where there are too few values.
    fn of(cells: &[PooledCell], ddof: u8) -> Option<CellVariance> {
        let count = count_of_cells(cells);
        let freedom = degrees_of_freedom(count, ddof)?;
        let mean = sum_of_cells(cells) / count as f64;
        let distances = cells.iter().map(|cell| (cell.mean - mean).abs());
        let deviations = cells.iter().map(|cell| cell.var.sqrt());
        let unit = unit_of(distances.chain(deviations));
        let squares = cells.iter().map(|cell| cell_squares(cell, mean, unit));
        Some(CellVariance {
            scaled: neumaier_sum(squares) / freedom,
            unit,
        })
    }

    fn variance(&self) -> f64 {
        self.scaled * self.unit * self.unit
    }

    fn deviation(&self) -> f64 {
        self.scaled.sqrt() * self.unit
    }
}

/// Squared distances of the values of a cell from a mean of all values, in a unit.
fn cell_squares(cell: &PooledCell, mean: f64, unit: f64) -> f64 {
    let distance = (cell.mean - mean) / unit;
    cell.count as f64 * (cell.var / unit / unit + distance * distance)
}

/// The divisor of a variance; `None` where there are too few values.
fn degrees_of_freedom(count: u64, ddof: u8) -> Option<f64> {
    let freedom = count.checked_sub(u64::from(ddof))?;
    (freedom > 0).then_some(freedom as f64)
}

/// The power of two in which distances are measured before they are raised to powers: 1, unless fourth powers of the
/// largest one leave the doubles.
fn unit_of(distances: impl Iterator<Item = f64>) -> f64 {
    let largest = distances.fold(0.0, f64::max);
    if largest == 0.0 || !largest.is_finite() || NEAR_DISTANCES.contains(&largest) {
        return 1.0;
    }
    // The bits of the exponent alone.
    f64::from_bits(largest.to_bits() & (0x7ff << 52)).max(f64::MIN_POSITIVE)
}

/// One number for each time.
pub(super) struct PooledSample<'a> {
    pub times: &'a [i64],
    pub values: &'a [f64],
    /// The row's own time.
    pub now: i64,
    /// Ticks per unit of time.
    pub unit: f64,
    pub ddof: u8,
}

impl PooledSample<'_> {
    /// A statistic; `None` where there are too few values.
    pub fn of(&self, statistic: SeriesStatistic) -> Option<f64> {
        let values = self.values;
        let n = values.len() as f64;
        match statistic {
            SeriesStatistic::Count => return Some(n),
            SeriesStatistic::Sum => return Some(neumaier_sum(values.iter().copied())),
            SeriesStatistic::NUnique if values.is_empty() => return Some(0.0),
            _ if values.is_empty() => return None,
            _ => {}
        }
        let mean = neumaier_sum(values.iter().copied()) / n;
        match statistic {
            SeriesStatistic::Count | SeriesStatistic::Sum => None,
            SeriesStatistic::Mean => Some(mean),
            SeriesStatistic::Min => values.iter().copied().reduce(f64::min),
            SeriesStatistic::Max => values.iter().copied().reduce(f64::max),
            SeriesStatistic::First => values.first().copied(),
            SeriesStatistic::Last => values.last().copied(),
            SeriesStatistic::Median => Some(self.quantile(0.5)),
            SeriesStatistic::Quantile(q) => Some(self.quantile(q)),
            SeriesStatistic::ZeroShare => Some(self.zeros() as f64 / n),
            SeriesStatistic::NUnique => Some(self.sorted().chunk_by(|a, b| a == b).count() as f64),
            SeriesStatistic::Var => {
                let unit = self.unit(mean);
                self.var(mean, unit).map(|var| var * unit * unit)
            }
            SeriesStatistic::Std => {
                let unit = self.unit(mean);
                self.var(mean, unit).map(|var| var.sqrt() * unit)
            }
            SeriesStatistic::Skew => self.skew(n, mean),
            SeriesStatistic::Kurtosis => self.kurtosis(n, mean),
            SeriesStatistic::Slope => self.slope(n, mean),
            SeriesStatistic::SinceNonzero => self.since_nonzero(),
        }
    }

    /// Number of values that are 0.
    fn zeros(&self) -> usize {
        let mut zeros = 0;
        for value in self.values {
            if *value == 0.0 {
                zeros += 1;
            }
        }
        zeros
    }

    /// Units of time since the last value that is not 0.
    fn since_nonzero(&self) -> Option<f64> {
        let mut pairs = self.values.iter().zip(self.times);
        let (_, time) = pairs.rfind(|(value, _)| **value != 0.0)?;
        Some(self.ago(*time))
    }

    fn skew(&self, n: f64, mean: f64) -> Option<f64> {
        if n < 3.0 {
            return None;
        }
        let unit = self.unit(mean);
        let m2 = self.moment(mean, unit, 2);
        let m3 = self.moment(mean, unit, 3);
        if m2 == 0.0 {
            return Some(0.0);
        }
        Some((n * (n - 1.0)).sqrt() / (n - 2.0) * m3 / m2.powf(1.5))
    }

    fn kurtosis(&self, n: f64, mean: f64) -> Option<f64> {
        if n < 4.0 {
            return None;
        }
        let unit = self.unit(mean);
        let m2 = self.moment(mean, unit, 2);
        let m4 = self.moment(mean, unit, 4);
        if m2 == 0.0 {
            // As in `rolling`, which follows pandas.
            return Some(-3.0);
        }
        let raw = (n * n - 1.0) * m4 / (m2 * m2) - 3.0 * (n - 1.0) * (n - 1.0);
        Some(raw / ((n - 2.0) * (n - 3.0)))
    }

    /// Change of the values in a unit of time, by least squares.
    fn slope(&self, n: f64, mean: f64) -> Option<f64> {
        let ages: Vec<f64> = self.times.iter().map(|time| self.ago(*time)).collect();
        let mean_age = neumaier_sum(ages.iter().copied()) / n;
        let spread = neumaier_sum(ages.iter().map(|x| (x - mean_age) * (x - mean_age)));
        let pairs = ages.iter().zip(self.values);
        let covariance = neumaier_sum(pairs.map(|(x, y)| (x - mean_age) * (y - mean)));
        // Ages grow into the past: the slope over time has the other sign.
        (spread > 0.0).then(|| -covariance / spread)
    }

    /// Units of time before the row.
    fn ago(&self, time: i64) -> f64 {
        (i128::from(self.now) - i128::from(time)) as f64 / self.unit
    }

    /// The unit of the distances from the mean.
    fn unit(&self, mean: f64) -> f64 {
        unit_of(self.values.iter().map(|value| (value - mean).abs()))
    }

    fn moment(&self, mean: f64, unit: f64, power: i32) -> f64 {
        let distances = self.values.iter().map(|value| (value - mean) / unit);
        neumaier_sum(distances.map(|distance| distance.powi(power))) / self.values.len() as f64
    }

    /// The variance of the values, measured in a unit.
    fn var(&self, mean: f64, unit: f64) -> Option<f64> {
        let freedom = degrees_of_freedom(self.values.len() as u64, self.ddof)?;
        let distances = self.values.iter().map(|value| (value - mean) / unit);
        let squares = neumaier_sum(distances.map(|distance| distance * distance));
        Some(squares / freedom)
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn quantile(&self, q: f64) -> f64 {
        let sorted = self.sorted();
        let rank = q * (sorted.len() - 1) as f64;
        let low = rank.floor() as usize;
        let part = rank.fract();
        let high = (low + 1).min(sorted.len() - 1);
        if part == 0.0 {
            sorted[low]
        } else {
            sorted[low] + (sorted[high] - sorted[low]) * part
        }
    }
}

/// A sum with the lost digits carried along (Neumaier).
fn neumaier_sum(values: impl Iterator<Item = f64>) -> f64 {
    let mut sum = 0.0f64;
    let mut lost = 0.0f64;
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        sum = next;
    }
    if lost.is_finite() { sum + lost } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell of one value.
    fn cell(value: f64) -> PooledCell {
        PooledCell {
            time: 0,
            count: 1,
            sum: value,
            mean: value,
            var: 0.0,
            min: value,
            max: value,
        }
    }

    /// A statistic of values at one time.
    fn statistic_of(values: &[f64; 4], statistic: SeriesStatistic) -> f64 {
        let sample = PooledSample {
            times: &[0; 4],
            values,
            now: 0,
            unit: 1.0,
            ddof: 1,
        };
        sample.of(statistic).unwrap_or(f64::NAN)
    }

    #[test]
    fn deviations_have_the_unit_of_their_values_at_any_magnitude() {
        let values = [1.0, -1.0, 2.0, 3.0];
        for factor in [2f64.powi(664), 2f64.powi(-664)] {
            let far = values.map(|value| value * factor);
            let std = statistic_of(&values, SeriesStatistic::Std) * factor;
            assert_eq!(statistic_of(&far, SeriesStatistic::Std), std);
            let cells = far.map(cell);
            let of_cells = statistic_of_cells(SeriesStatistic::Std, 1, &cells);
            assert_eq!(of_cells, Some(std));
            for statistic in [SeriesStatistic::Skew, SeriesStatistic::Kurtosis] {
                let near = statistic_of(&values, statistic);
                assert!((statistic_of(&far, statistic) - near).abs() < 1e-12);
            }
            let var = statistic_of(&far, SeriesStatistic::Var);
            assert_eq!(var, if factor > 1.0 { f64::INFINITY } else { 0.0 });
        }
    }

    #[test]
    fn an_empty_window_counts_nothing_and_has_no_mean() {
        let sample = PooledSample {
            times: &[],
            values: &[],
            now: 0,
            unit: 1.0,
            ddof: 1,
        };
        for statistic in [
            SeriesStatistic::Count,
            SeriesStatistic::Sum,
            SeriesStatistic::NUnique,
        ] {
            assert_eq!(sample.of(statistic), Some(0.0), "{statistic:?}");
        }
        assert_eq!(sample.of(SeriesStatistic::Mean), None);
    }
}
