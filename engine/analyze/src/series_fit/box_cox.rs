//! The exponent of the transformation of Box and Cox that suits a series.

/// Bounds of exponents, those of coreforecast. Below 0 the transformation has an upper bound, beyond which a prediction
/// has no inverse.
const EXPONENT_BOUNDS: [f64; 2] = [0.0, 2.0];

/// Width of the interval at which the search ends.
const TOLERANCE: f64 = 1e-9;

/// The exponent that makes the transformed values most likely normal (Box and Cox, 1964). A series with a value of 0
/// or less is left as it is: 1.
pub(super) fn likelihood_exponent(values: &[f64]) -> f64 {
    let is_positive = values.iter().all(|value| *value > 0.0);
    if !is_positive || values.len() < 2 {
        return 1.0;
    }
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let sum_of_logarithms: f64 = logarithms.iter().sum();
    let count = values.len() as f64;
    let cost = |exponent: f64| {
        let transformed: Vec<f64> = logarithms
            .iter()
            .map(|logarithm| transformed(*logarithm, exponent))
            .collect();
        let (_, variance) = mean_and_variance(&transformed, 0);
        count / 2.0 * variance.ln() - (exponent - 1.0) * sum_of_logarithms
    };
    golden_section_minimum(cost, EXPONENT_BOUNDS)
}

/// The exponent that makes the standard deviations of seasons most alike relative to the means raised to one less the
/// exponent (Guerrero, 1993), over the last whole seasons. Fewer than two seasons and a value give 1.
pub(super) fn guerrero_exponent(values: &[f64], season: usize) -> f64 {
    let season = season.max(2);
    if values.len() <= 2 * season {
        return 1.0;
    }
    let whole = values.len() % season;
    let mut seasons = Vec::new();
    for season_values in values[whole..].chunks_exact(season) {
        let (mean, variance) = mean_and_variance(season_values, 1);
        if mean > 0.0 {
            seasons.push((mean, variance.sqrt()));
        }
    }
    if seasons.len() < 2 {
        return 1.0;
    }
    let cost = |exponent: f64| {
        let ratios: Vec<f64> = seasons
            .iter()
            .map(|(mean, deviation)| deviation / mean.powf(1.0 - exponent))
            .collect();
        let (mean, variance) = mean_and_variance(&ratios, 1);
        if mean == 0.0 {
            0.0
        } else {
            variance.sqrt() / mean
        }
    };
    golden_section_minimum(cost, EXPONENT_BOUNDS)
}

fn transformed(logarithm: f64, exponent: f64) -> f64 {
    if exponent == 0.0 {
        logarithm
    } else {
        (exponent * logarithm).exp_m1() / exponent
    }
}

/// The mean, and the variance with a divisor of `n - ddof`.
fn mean_and_variance(values: &[f64], ddof: usize) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let divisor = values.len().saturating_sub(ddof).max(1);
    (mean, squares / divisor as f64)
}

/// The place of the minimum of a function that falls and then rises, by golden section (Kiefer, 1953).
pub(crate) fn golden_section_minimum(
    cost: impl Fn(f64) -> f64,
    [mut low, mut high]: [f64; 2],
) -> f64 {
    let ratio = (5.0_f64.sqrt() - 1.0) / 2.0;
    let mut lower = high - ratio * (high - low);
    let mut upper = low + ratio * (high - low);
    let mut cost_lower = cost(lower);
    let mut cost_upper = cost(upper);
    while high - low > TOLERANCE {
        if cost_lower < cost_upper {
            high = upper;
            upper = lower;
            cost_upper = cost_lower;
            lower = high - ratio * (high - low);
            cost_lower = cost(lower);
        } else {
            low = lower;
            lower = upper;
            cost_lower = cost_upper;
            upper = low + ratio * (high - low);
            cost_upper = cost(upper);
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::super::tests::AIR_PASSENGERS;
    use super::*;

    /// Values of coreforecast 0.0.20.
    #[test]
    fn exponents_are_those_of_coreforecast() {
        assert!((likelihood_exponent(&AIR_PASSENGERS) - 0.148_028).abs() < 1e-5);
        assert!(guerrero_exponent(&AIR_PASSENGERS, 12) < 1e-4);
    }

    #[test]
    fn short_series_and_zeros_are_left_as_they_are() {
        assert_eq!(likelihood_exponent(&[0.0, 1.0, 2.0]), 1.0);
        assert_eq!(guerrero_exponent(&AIR_PASSENGERS[..24], 12), 1.0);
    }
}
