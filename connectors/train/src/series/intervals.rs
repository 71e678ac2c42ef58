//! Conformal intervals around forecasts of series: their widths are ranks of errors of folds.

use forebay_model::{ConfigResult, Fault, Result, codes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::boosting::{ForecastIntervals, IntervalMethod};

/// Hides digits that binary numbers add to shares of whole percentages.
const ROUNDING: f64 = 1e-9;

/// Intervals around the forecasts, which hold as large a share of the values as they say.
///
/// Folds are forecast from the values before them, in units of the mean seasonal difference of each series. Of the `n`
/// errors of a step, of all series and folds, that with the rank `ceil((n + 1) * level)` is the distance of both ends
/// from the forecast, in the same unit (Lei et al. 2018; by step: Stankeviciute et al. 2021).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeriesIntervals {
    /// Percentages of the values that should lie inside, in ascending order, such as `[80, 95]`. The ends of 80 are the
    /// columns `prediction_q10` and `prediction_q90`.
    pub levels: Vec<f64>,
}

/// Description of intervals in the file of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesIntervalCard {
    /// The quantiles that the ends stand for, in ascending order.
    pub quantiles: Vec<f64>,
    /// Distances of both ends from the forecast, in units of the series: those of each step for each level, in ascending
    /// order of levels.
    pub widths: Vec<Vec<f64>>,
}

impl SeriesIntervals {
    /// Checks the configuration. The error names the wrong field of the training.
    pub(super) fn check(&self) -> ConfigResult<()> {
        self.as_forecast_intervals().check()
    }

    /// The quantiles that the ends of the intervals stand for, in ascending order.
    pub(super) fn quantiles(&self) -> Vec<f64> {
        self.as_forecast_intervals().quantiles()
    }

    fn as_forecast_intervals(&self) -> ForecastIntervals {
        ForecastIntervals {
            levels: self.levels.clone(),
            by: IntervalMethod::default(),
            scale: None,
        }
    }

    /// The widths by the errors of each step, without sign.
    pub(super) fn widths(&self, mut errors_by_step: Vec<Vec<f64>>) -> Result<SeriesIntervalCard> {
        for errors in &mut errors_by_step {
            errors.sort_unstable_by(f64::total_cmp);
        }
        let mut widths = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            let mut of_level = Vec::with_capacity(errors_by_step.len());
            for errors in &errors_by_step {
                let rank = ((errors.len() + 1) as f64 * level / 100.0 - ROUNDING).ceil();
                let width = errors.get((rank as usize).saturating_sub(1));
                of_level.push(*width.ok_or_else(|| few_errors_fault(*level, errors.len()))?);
            }
            widths.push(of_level);
        }
        Ok(SeriesIntervalCard {
            quantiles: self.quantiles(),
            widths,
        })
    }
}

fn few_errors_fault(level: f64, errors: usize) -> Fault {
    let needed = (level / (100.0 - level) - ROUNDING).ceil();
    let message =
        format!("intervals of {level} need {needed} errors of each step, and there are {errors}");
    Fault::new(codes::BAD_VALUE, message)
        .field("intervals")
        .hint("raise `folds`, each of which gives an error of each series, or leave the level out")
}

impl SeriesIntervalCard {
    /// The ends of all intervals around a forecast for a step, from 1 on, in the order of their quantiles. Steps beyond
    /// those of the folds have the widths of the last one.
    pub(super) fn ends(&self, forecast: f64, unit: f64, step: u64) -> Vec<f64> {
        let mut distances = Vec::with_capacity(self.widths.len());
        for widths in &self.widths {
            let position = (step as usize).min(widths.len()).saturating_sub(1);
            distances.push(widths.get(position).copied().unwrap_or(0.0) * unit);
        }
        let lower_ends = distances.iter().rev().map(|distance| forecast - distance);
        let upper_ends = distances.iter().map(|distance| forecast + distance);
        lower_ends.chain(upper_ends).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(levels: &[f64]) -> SeriesIntervals {
        SeriesIntervals {
            levels: levels.to_vec(),
        }
    }

    #[test]
    fn widths_are_ranks_of_errors() {
        // Of nine errors, 80 % is the eighth: ceil(10 * 0.8). Of four, it is the fourth.
        let nine: Vec<f64> = (1..=9).rev().map(f64::from).collect();
        let four = vec![10.0, 40.0, 20.0, 30.0];
        let card = intervals(&[50.0, 80.0]).widths(vec![nine, four]).unwrap();
        assert_eq!(card.quantiles, [0.1, 0.25, 0.75, 0.9]);
        assert_eq!(card.widths, [[5.0, 30.0], [8.0, 40.0]]);
        assert_eq!(card.ends(100.0, 2.0, 1), [84.0, 90.0, 110.0, 116.0]);
        assert_eq!(card.ends(100.0, 1.0, 2), [60.0, 70.0, 130.0, 140.0]);
        assert_eq!(card.ends(100.0, 1.0, 9), card.ends(100.0, 1.0, 2));
    }

    #[test]
    fn levels_need_errors() {
        let errors = vec![vec![1.0, 2.0, 3.0]];
        let few = intervals(&[80.0]).widths(errors.clone()).unwrap_err();
        assert!(few.to_string().contains("need 4 errors"), "{few}");
        assert!(intervals(&[75.0]).widths(errors).is_ok());
        assert!(intervals(&[]).check().is_err());
        assert!(intervals(&[101.0]).check().is_err());
    }
}
