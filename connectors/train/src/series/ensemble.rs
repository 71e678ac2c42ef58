//! Ensembles: several methods for each series, and the combination of their forecasts.

use forebay_model::median;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::method::SeriesMethod;

/// Combination of the forecasts of an ensemble.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnsembleWeights {
    /// The mean.
    #[default]
    Mean,
    /// The median of each step.
    Median,
    /// Weights of least squares that are not negative and add up to one, over the errors of folds of all series. Each
    /// series counts in units of its seasonal differences.
    Nnls,
}

impl EnsembleWeights {
    /// True of the default.
    pub(super) fn is_mean(&self) -> bool {
        *self == EnsembleWeights::Mean
    }
}

/// Description of an ensemble in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnsembleCard {
    /// The methods.
    pub of: Vec<SeriesMethod>,
    /// The weight of each method; none of a median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<f64>>,
}

impl EnsembleCard {
    /// The combination of a value of each method, such as its forecast or its error. Methods without one do not count.
    pub(super) fn combine(&self, values: &[Option<f64>]) -> f64 {
        let mut present = Vec::with_capacity(values.len());
        let mut weighted = 0.0;
        let mut total = 0.0;
        for (position, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            present.push(*value);
            if let Some(weights) = &self.weights {
                let weight = weights.get(position).copied().unwrap_or(0.0);
                weighted += weight * value;
                total += weight;
            }
        }
        if self.weights.is_none() {
            return median(&mut present);
        }
        if total > 0.0 {
            return weighted / total;
        }
        // Only methods without a weight have a value of this series.
        present.iter().sum::<f64>() / present.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_combined(weights: Option<&[f64]>, values: [Option<f64>; 3], expected: f64) {
        let card = EnsembleCard {
            of: Vec::new(),
            weights: weights.map(<[f64]>::to_vec),
        };
        let value = card.combine(&values);
        assert!((value - expected).abs() < 1e-12, "{value}, not {expected}");
    }

    #[test]
    fn methods_without_a_forecast_do_not_count() {
        let third = 1.0 / 3.0;
        let mean: &[f64] = &[third, third, third];
        assert_combined(Some(mean), [Some(1.0), Some(2.0), Some(6.0)], 3.0);
        assert_combined(Some(mean), [Some(1.0), None, Some(6.0)], 3.5);
        let learned: &[f64] = &[0.25, 0.75, 0.0];
        assert_combined(Some(learned), [Some(1.0), Some(2.0), Some(6.0)], 1.75);
        assert_combined(Some(learned), [Some(1.0), None, Some(6.0)], 1.0);
        assert_combined(Some(learned), [None, None, Some(6.0)], 6.0);
        assert_combined(None, [Some(1.0), Some(2.0), Some(6.0)], 2.0);
        assert_combined(None, [Some(1.0), None, Some(6.0)], 3.5);
        assert_combined(None, [None, Some(4.0), None], 4.0);
    }
}
