//! Scores of forecasts: from sums over rows to the measures that people compare.

use std::ops::AddAssign;

use serde::Serialize;

/// Sums over rows that were forecast and whose value came. They add up over any division of the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ErrorSums {
    pub rows: u64,
    /// Sum of the absolute errors.
    pub absolute: f64,
    /// Sum of the errors: forecast less value.
    pub signed: f64,
    /// Sum of the squared errors.
    pub squared: f64,
    /// Sum of the absolute values.
    pub values: f64,
    /// Sum of the values.
    pub actual: f64,
    /// Sum of the forecasts.
    pub predicted: f64,
    /// Sum of the pinball losses of each quantile.
    pub pinball: Vec<f64>,
    /// Values at or below each quantile.
    pub below: Vec<u64>,
    /// Values inside each central interval.
    pub inside: Vec<u64>,
    /// Sum of the Winkler scores of each central interval.
    pub winkler: Vec<f64>,
    /// Sum of the absolute errors by the sum of both magnitudes.
    pub symmetric: f64,
    /// Rows whose value is not 0.
    pub nonzero_rows: u64,
    /// Sum of the absolute errors by the absolute values, of these rows.
    pub percentage: f64,
    /// Rows of series that have a scale.
    pub scaled_rows: u64,
    /// Sum of the absolute errors by the scale of the series.
    pub scaled: f64,
    /// Sum of the squared errors by the squared scale of the series.
    pub scaled_squared: f64,
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

/// Accuracy of forecasts. The errors are forecast less value.
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
    /// The mean error, in units of the label.
    pub mean_error: Option<f64>,
    /// The standard deviation of the errors around their mean, in units of the label.
    pub error_deviation: Option<f64>,
    /// The symmetric mean absolute percentage error: the mean of `|e| / (|y| + |f|)`, from 0 to 1; 0 where both are 0.
    pub smape: Option<f64>,
    /// The mean absolute percentage error: the mean of `|e| / |y|`, as a fraction, of rows whose value is not 0.
    pub mape: Option<f64>,
    /// Rows that it leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub zero_rows: u64,
    /// The mean absolute scaled error: errors by the mean absolute error of the seasonal naive forecast of the values before
    /// the first fold, one season ahead (Hyndman and Koehler, 2006). Rows of series without such an error do not count.
    pub mase: Option<f64>,
    /// The root mean squared scaled error: the root of the mean of squared errors, each by the mean squared error of that
    /// naive forecast.
    pub rmsse: Option<f64>,
    /// Rows that these two leave out: the naive forecast of their series has no error before the first fold, as for a
    /// series of zeros.
    #[serde(skip_serializing_if = "is_zero")]
    pub unscaled_rows: u64,
    /// The scaled continuous ranked probability score of the quantiles: twice the mean pinball loss over them, by the mean
    /// absolute value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crps: Option<f64>,
    /// One less the mean absolute error by that of the naive forecast: above 0 where it is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<f64>,
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
    /// The share of values at or below the forecast, which is near the quantile where forecasts are calibrated.
    pub calibration: Option<f64>,
}

/// The score of a central interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct IntervalScore {
    /// The share of values that should lie inside.
    pub level: f64,
    /// The share of values that did, its ends included.
    pub coverage: Option<f64>,
    /// The mean Winkler score: the width, and `2 / (1 - level)` times the distance of values outside (Winkler, 1972).
    pub winkler: Option<f64>,
}

impl ErrorSums {
    pub fn add(&mut self, other: &ErrorSums) {
        self.rows += other.rows;
        self.absolute += other.absolute;
        self.signed += other.signed;
        self.squared += other.squared;
        self.values += other.values;
        self.actual += other.actual;
        self.predicted += other.predicted;
        add_each(&mut self.pinball, &other.pinball);
        add_each(&mut self.below, &other.below);
        add_each(&mut self.inside, &other.inside);
        add_each(&mut self.winkler, &other.winkler);
        self.symmetric += other.symmetric;
        self.nonzero_rows += other.nonzero_rows;
        self.percentage += other.percentage;
        self.scaled_rows += other.scaled_rows;
        self.scaled += other.scaled;
        self.scaled_squared += other.scaled_squared;
    }

    pub fn score(&self, quantiles: &ForecastQuantiles) -> ForecastScore {
        let rows = self.rows as f64;
        let mut quantile_scores = Vec::new();
        for (number, quantile) in quantiles.0.iter().enumerate() {
            let Some(pinball) = self.pinball.get(number) else {
                break;
            };
            let below = self.below.get(number);
            quantile_scores.push(QuantileScore {
                quantile: *quantile,
                pinball: quotient(*pinball, rows),
                calibration: below.and_then(|below| quotient(*below as f64, rows)),
            });
        }
        let mut interval_scores = Vec::new();
        for (number, interval) in quantiles.intervals().into_iter().enumerate() {
            let inside = self.inside.get(number);
            let winkler = self.winkler.get(number);
            interval_scores.push(IntervalScore {
                level: interval.level,
                coverage: inside.and_then(|inside| quotient(*inside as f64, rows)),
                winkler: winkler.and_then(|winkler| quotient(*winkler, rows)),
            });
        }
        let scaled_rows = self.scaled_rows as f64;
        let losses: f64 = self.pinball.iter().sum();
        let mean_losses = quotient(losses, self.pinball.len() as f64);
        let mean_error = quotient(self.signed, rows);
        let mean_square = quotient(self.squared, rows);
        let variance = mean_error.zip(mean_square);
        // Rounding may put the mean of equal squares below the square of their mean.
        let variance = variance.map(|(mean, square)| (square - mean * mean).max(0.0));
        ForecastScore {
            rows: self.rows,
            wmape: quotient(self.absolute, self.values),
            rmse: mean_square.map(f64::sqrt),
            mae: quotient(self.absolute, rows),
            bias: quotient(self.signed, self.values),
            mean_error,
            error_deviation: variance.map(f64::sqrt),
            smape: quotient(self.symmetric, rows),
            mape: quotient(self.percentage, self.nonzero_rows as f64),
            zero_rows: self.rows.saturating_sub(self.nonzero_rows),
            mase: quotient(self.scaled, scaled_rows),
            rmsse: quotient(self.scaled_squared, scaled_rows).map(f64::sqrt),
            unscaled_rows: self.rows.saturating_sub(self.scaled_rows),
            crps: mean_losses.and_then(|losses| quotient(2.0 * losses, self.values)),
            skill: None,
            quantiles: quantile_scores,
            intervals: interval_scores,
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A quotient; `None` where the divisor is not above 0.
fn quotient(sum: f64, divisor: f64) -> Option<f64> {
    (divisor > 0.0).then(|| sum / divisor)
}

/// Adds sums to those of the same position, and appends those that are more.
fn add_each<T: Copy + Default + AddAssign>(sums: &mut Vec<T>, others: &[T]) {
    sums.resize(others.len().max(sums.len()), T::default());
    for (sum, other) in sums.iter_mut().zip(others) {
        *sum += *other;
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
        // Errors 1 and -3.
        assert_eq!(
            (score.mean_error, score.error_deviation),
            (Some(-1.0), Some(2.0))
        );
        // No row is of a series with a scale.
        assert_eq!((score.mase, score.unscaled_rows), (None, 2));
        // Nor is a value known that is not 0.
        assert_eq!((score.mape, score.zero_rows), (None, 2));
        let score = ErrorSums::default().score(&none);
        assert_eq!((score.rows, score.wmape, score.rmse), (0, None, None));
    }

    /// Values of utilsforecast 0.2.17 for training values 1, 3, 2, 4, 3, 5, values 4, 6, and forecasts 5, 5 of 4 to 6.
    #[test]
    fn measures_are_those_of_utilsforecast() {
        let scale = 9.0 / 5.0 - 0.2;
        let squared_scale = (4.0 + 1.0 + 4.0 + 1.0 + 4.0) / 5.0;
        let sums = ErrorSums {
            rows: 2,
            absolute: 2.0,
            signed: 0.0,
            squared: 2.0,
            values: 10.0,
            symmetric: 1.0 / 9.0 + 1.0 / 11.0,
            nonzero_rows: 2,
            percentage: 1.0 / 4.0 + 1.0 / 6.0,
            scaled_rows: 2,
            scaled: 2.0 / scale,
            scaled_squared: 2.0 / squared_scale,
            // Quantiles 0.1, 0.5 and 0.9 at 4, 5 and 6.
            pinball: vec![0.2, 1.0, 0.2],
            below: vec![1, 1, 2],
            inside: vec![2],
            winkler: vec![4.0],
            ..ErrorSums::default()
        };
        let score = sums.score(&ForecastQuantiles(vec![0.1, 0.5, 0.9]));
        let close = |actual: Option<f64>, expected: f64| (actual.unwrap() - expected).abs() < 1e-6;
        assert!(close(score.mase, 0.625), "{:?}", score.mase);
        assert_eq!(score.unscaled_rows, 0);
        assert!(close(score.rmsse, 0.597_614), "{:?}", score.rmsse);
        assert!(close(score.smape, 0.101_010), "{:?}", score.smape);
        assert!(close(score.mape, 0.208_333), "{:?}", score.mape);
        assert_eq!(score.zero_rows, 0);
        let calibrations = score.quantiles.iter().map(|quantile| quantile.calibration);
        assert!(calibrations.eq([Some(0.5), Some(0.5), Some(1.0)]));
        assert!(close(score.crps, 0.093_333), "{:?}", score.crps);
        assert_eq!(score.intervals[0].winkler, Some(2.0));
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
                pinball: Some(0.25),
                calibration: None
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
