//! The strength of a season, which decides on a seasonal difference.

use stlrs::Stl;

/// Strength above which a series gets a seasonal difference: that of `forecast::nsdiffs` of R.
const STRENGTH_MAX: f64 = 0.64;

/// Seasons at the end of a series that are looked at.
const SEASONS_MAX: usize = 10;

/// Length of the smoother of the season in seasons.
const SEASONAL_LENGTH: usize = 11;

/// `max(0, 1 - var(remainder) / var(season + remainder))` of a decomposition by loess (Wang, Smith and Hyndman, 2006;
/// Cleveland et al., 1990), as mlforecast's `AutoSeasonalDifferences` computes it: 0 of fewer than two seasons.
pub(super) fn seasonal_strength(values: &[f64], season: usize) -> f64 {
    let first = values.len().saturating_sub(SEASONS_MAX * season);
    let values = &values[first..];
    if season < 2 || values.len() < 2 * season {
        return 0.0;
    }
    let trend = 1.5 * season as f64 / (1.0 - 1.5 / SEASONAL_LENGTH as f64);
    let trend = trend.ceil() as usize;
    let decomposed = Stl::params()
        .seasonal_length(SEASONAL_LENGTH)
        .seasonal_degree(0)
        .trend_length(trend + 1 - trend % 2)
        .inner_loops(5)
        .outer_loops(0)
        .fit(values, season);
    let Ok(decomposed) = decomposed else {
        return 0.0;
    };
    let seasonal = decomposed.seasonal();
    let remainder = decomposed.remainder();
    let without_trend: Vec<f64> = seasonal
        .iter()
        .zip(remainder)
        .map(|(season, remainder)| season + remainder)
        .collect();
    let whole = variance(&without_trend);
    if whole == 0.0 {
        return 0.0;
    }
    (1.0 - variance(remainder) / whole).max(0.0)
}

/// True if a series gets a seasonal difference.
pub(super) fn needs_seasonal_difference(values: &[f64], season: usize) -> bool {
    seasonal_strength(values, season) > STRENGTH_MAX
}

fn variance(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    squares.sum::<f64>() / (count - 1.0).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::AIR_PASSENGERS;
    use super::*;

    #[test]
    fn passengers_have_a_season() {
        assert!(needs_seasonal_difference(&AIR_PASSENGERS, 12));
        assert!(!needs_seasonal_difference(&AIR_PASSENGERS[..23], 12));
        let line: Vec<f64> = (0..100).map(f64::from).collect();
        assert!(!needs_seasonal_difference(&line, 12));
        assert!(!needs_seasonal_difference(&[5.0; 48], 12));
    }
}
