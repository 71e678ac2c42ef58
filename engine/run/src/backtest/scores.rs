//! Scores of forecasts: from sums over rows to the measures that people compare.

use serde::Serialize;

/// Sums over rows that were forecast and whose value came. They add up over any division of the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ErrorSums {
    pub rows: u64,
    /// Of the absolute errors.
    pub absolute: f64,
    /// Of the errors: forecast less value.
    pub signed: f64,
    /// Of the squared errors.
    pub squared: f64,
    /// Of the absolute values.
    pub values: f64,
    /// Of the pinball losses of each quantile.
    pub pinball: Vec<f64>,
    /// Values inside each central interval.
    pub inside: Vec<u64>,
}

/// The quantiles of a forecast, in ascending order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ForecastQuantiles(pub Vec<f64>);

/// A central interval: from a quantile to the one as far from the other end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CentralInterval {
    /// The share of values that should lie inside.
    pub level: f64,
    /// The places of its ends among the quantiles.
    pub low: usize,
    pub high: usize,
}

impl ForecastQuantiles {
    /// The central intervals, the widest first.
    pub fn intervals(&self) -> Vec<CentralInterval> {
        let mirrored = |low: f64| {
            self.0
                .iter()
                .position(|high| (low + high - 1.0).abs() < 1e-9)
        };
        let below = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, quantile)| **quantile < 0.5);
        let interval = |(low, quantile): (usize, &f64)| {
            let level = ((1.0 - 2.0 * quantile) * 1e9).round() / 1e9;
            Some(CentralInterval {
                level,
                low,
                high: mirrored(*quantile)?,
            })
        };
        below.filter_map(interval).collect()
    }
}

/// How good forecasts were. The errors are forecast less value.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ForecastScore {
    /// Rows that were forecast and whose value came.
    pub rows: u64,
    /// Weighted mean absolute percentage error: the sum of absolute errors by the sum of absolute values, as a fraction
    /// (Kolassa and Schütz, 2007). `None` where all values are 0.
    pub wmape: Option<f64>,
    /// The root of the mean squared error, in units of the label.
    pub rmse: Option<f64>,
    /// The mean absolute error, in units of the label.
    pub mae: Option<f64>,
    /// The sum of errors by the sum of absolute values: above 0 where forecasts are too high.
    pub bias: Option<f64>,
    /// Per quantile of the forecast.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<QuantileScore>,
    /// Per central interval between two quantiles, the widest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<IntervalScore>,
}

/// The score of a quantile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct QuantileScore {
    /// The quantile.
    pub quantile: f64,
    /// The mean pinball loss (Koenker and Bassett, 1978), in units of the label.
    pub pinball: Option<f64>,
}

/// The score of a central interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct IntervalScore {
    /// The share of values that should lie inside.
    pub level: f64,
    /// The share of values that did, its ends included.
    pub coverage: Option<f64>,
}

impl ErrorSums {
    pub fn add(&mut self, other: &ErrorSums) {
        self.rows += other.rows;
        self.absolute += other.absolute;
        self.signed += other.signed;
        self.squared += other.squared;
        self.values += other.values;
        self.pinball
            .resize(other.pinball.len().max(self.pinball.len()), 0.0);
        self.pinball
            .iter_mut()
            .zip(&other.pinball)
            .for_each(|(sum, own)| *sum += own);
        self.inside
            .resize(other.inside.len().max(self.inside.len()), 0);
        self.inside
            .iter_mut()
            .zip(&other.inside)
            .for_each(|(sum, own)| *sum += own);
    }

    pub fn score(&self, quantiles: &ForecastQuantiles) -> ForecastScore {
        let by = |sum: f64, of: f64| (of > 0.0).then(|| sum / of);
        let rows = self.rows as f64;
        let of_quantile = |(quantile, pinball): (&f64, &f64)| QuantileScore {
            quantile: *quantile,
            pinball: by(*pinball, rows),
        };
        let of_interval = |(interval, inside): (CentralInterval, &u64)| IntervalScore {
            level: interval.level,
            coverage: by(*inside as f64, rows),
        };
        ForecastScore {
            rows: self.rows,
            wmape: by(self.absolute, self.values),
            rmse: by(self.squared, rows).map(f64::sqrt),
            mae: by(self.absolute, rows),
            bias: by(self.signed, self.values),
            quantiles: quantiles
                .0
                .iter()
                .zip(&self.pinball)
                .map(of_quantile)
                .collect(),
            intervals: quantiles
                .intervals()
                .into_iter()
                .zip(&self.inside)
                .map(of_interval)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_of_sums() {
        // Forecasts 3, 1 of values 2, 4.
        let mut sums = ErrorSums {
            rows: 1,
            absolute: 1.0,
            signed: 1.0,
            squared: 1.0,
            values: 2.0,
            ..Default::default()
        };
        let other = ErrorSums {
            rows: 1,
            absolute: 3.0,
            signed: -3.0,
            squared: 9.0,
            values: 4.0,
            ..Default::default()
        };
        sums.add(&other);
        let none = ForecastQuantiles::default();
        let score = sums.score(&none);
        assert_eq!(
            (score.rows, score.wmape, score.mae),
            (2, Some(4.0 / 6.0), Some(2.0))
        );
        assert_eq!(
            (score.rmse, score.bias),
            (Some(5f64.sqrt()), Some(-2.0 / 6.0))
        );
        let score = ErrorSums::default().score(&none);
        assert_eq!((score.rows, score.wmape, score.rmse), (0, None, None));
    }

    #[test]
    fn intervals_lie_between_quantiles_as_far_from_both_ends() {
        let quantiles = ForecastQuantiles(vec![0.05, 0.1, 0.25, 0.5, 0.9, 0.95]);
        let found: Vec<(f64, usize, usize)> = quantiles
            .intervals()
            .iter()
            .map(|interval| (interval.level, interval.low, interval.high))
            .collect();
        assert_eq!(found, [(0.9, 0, 5), (0.8, 1, 4)]);
        let mut sums = ErrorSums {
            rows: 4,
            pinball: vec![1.0; 6],
            inside: vec![4, 3],
            ..Default::default()
        };
        sums.add(&sums.clone());
        let score = sums.score(&quantiles);
        assert_eq!(
            score.quantiles[3],
            QuantileScore {
                quantile: 0.5,
                pinball: Some(0.25)
            }
        );
        let coverage: Vec<Option<f64>> = score
            .intervals
            .iter()
            .map(|interval| interval.coverage)
            .collect();
        assert_eq!(coverage, [Some(1.0), Some(0.75)]);
    }
}
