//! Statistics of a few numbers in order of time.

use super::SeriesStatistic;
use super::pooled_table::PooledCell;

/// A statistic of all values in these cells; `None` where there are too few of them.
pub(super) fn statistic_of_cells(
    statistic: SeriesStatistic,
    ddof: u8,
    cells: &[PooledCell],
) -> Option<f64> {
    let count: u64 = cells.iter().map(|cell| cell.count).sum();
    let n = count as f64;
    let sum = || neumaier_sum(cells.iter().map(|cell| cell.sum));
    match statistic {
        SeriesStatistic::Count => return Some(n),
        SeriesStatistic::Sum => return Some(sum()),
        _ if count == 0 => return None,
        _ => {}
    }
    match statistic {
        SeriesStatistic::Mean => Some(sum() / n),
        SeriesStatistic::Min => cells.iter().map(|cell| cell.min).reduce(f64::min),
        SeriesStatistic::Max => cells.iter().map(|cell| cell.max).reduce(f64::max),
        SeriesStatistic::Var | SeriesStatistic::Std => {
            let mean = sum() / n;
            let spread = |cell: &PooledCell| {
                cell.count as f64 * (cell.var + (cell.mean - mean) * (cell.mean - mean))
            };
            let freedom = count
                .checked_sub(u64::from(ddof))
                .filter(|freedom| *freedom > 0)?;
            let var = neumaier_sum(cells.iter().map(spread)) / freedom as f64;
            Some(if statistic == SeriesStatistic::Var {
                var
            } else {
                var.sqrt()
            })
        }
        _ => None,
    }
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
            SeriesStatistic::ZeroShare => {
                Some(values.iter().filter(|value| **value == 0.0).count() as f64 / n)
            }
            SeriesStatistic::NUnique => Some(self.sorted().chunk_by(|a, b| a == b).count() as f64),
            SeriesStatistic::Var => self.var(mean),
            SeriesStatistic::Std => self.var(mean).map(f64::sqrt),
            SeriesStatistic::Skew => {
                let (m2, m3) = (self.moment(mean, 2), self.moment(mean, 3));
                let skew = if m2 == 0.0 {
                    0.0
                } else {
                    (n * (n - 1.0)).sqrt() / (n - 2.0) * m3 / m2.powf(1.5)
                };
                (n >= 3.0).then_some(skew)
            }
            SeriesStatistic::Kurtosis => {
                let (m2, m4) = (self.moment(mean, 2), self.moment(mean, 4));
                let kurtosis = match m2 == 0.0 {
                    // As in `rolling`, which follows pandas.
                    true => -3.0,
                    false => {
                        let raw = (n * n - 1.0) * m4 / (m2 * m2) - 3.0 * (n - 1.0) * (n - 1.0);
                        raw / ((n - 2.0) * (n - 3.0))
                    }
                };
                (n >= 4.0).then_some(kurtosis)
            }
            SeriesStatistic::Slope => {
                let places: Vec<f64> = self.times.iter().map(|time| self.ago(*time)).collect();
                let middle = neumaier_sum(places.iter().copied()) / n;
                let spread = neumaier_sum(places.iter().map(|x| (x - middle) * (x - middle)));
                let along = neumaier_sum(
                    places
                        .iter()
                        .zip(values)
                        .map(|(x, y)| (x - middle) * (y - mean)),
                );
                (spread > 0.0).then(|| -along / spread)
            }
            SeriesStatistic::SinceNonzero => {
                let last = values
                    .iter()
                    .zip(self.times)
                    .rfind(|(value, _)| **value != 0.0)?;
                Some(self.ago(*last.1))
            }
        }
    }

    /// Units of time before the row.
    fn ago(&self, time: i64) -> f64 {
        (i128::from(self.now) - i128::from(time)) as f64 / self.unit
    }

    fn moment(&self, mean: f64, power: i32) -> f64 {
        neumaier_sum(self.values.iter().map(|value| (value - mean).powi(power)))
            / self.values.len() as f64
    }

    fn var(&self, mean: f64) -> Option<f64> {
        let freedom = self
            .values
            .len()
            .checked_sub(usize::from(self.ddof))
            .filter(|freedom| *freedom > 0)?;
        Some(
            neumaier_sum(
                self.values
                    .iter()
                    .map(|value| (value - mean) * (value - mean)),
            ) / freedom as f64,
        )
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn quantile(&self, q: f64) -> f64 {
        let sorted = self.sorted();
        let rank = q * (sorted.len() - 1) as f64;
        let (low, part) = (rank.floor() as usize, rank.fract());
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
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
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
