//! The likelihood of values under a form, with its gradient.

use super::form::{EtsError, EtsForm, EtsTrend};
use super::recursion::{EtsRecursion, EtsStates, EtsStep, Smoothing};
use crate::minimize::SmoothFunction;

/// Bounds of the smoothing parameters of level, trend and season. That of the trend is at most that of the level, that
/// of the season at most what the level leaves.
const SHARE_MIN: f64 = 1e-4;
const SHARE_MAX: f64 = 0.9999;

/// Bounds of the factor of a damped trend.
const PHI_MIN: f64 = 0.8;
const PHI_MAX: f64 = 0.98;

/// Share of the deviation of values below which errors count as none.
const ERROR_MIN: f64 = 1e-8;

/// Minus twice the logarithm of the likelihood, but for a constant, as a function of the smoothing parameters and the
/// states before the first value (Hyndman et al. 2008, section 5.1).
///
/// Variables are the logits of the parameters' positions between their bounds, and states in units of the values'
/// deviation. The gradient comes from going through the recursion backwards, which takes as long as a few evaluations
/// for any number of states. Memory is 32 bytes a step.
pub struct EtsCriterion<'a> {
    values: &'a [f64],
    form: EtsForm,
    season_steps: usize,
    units: StateUnits,
    /// Added to the squares of errors: a form without errors has a likelihood nonetheless.
    floor: f64,
    steps: Vec<EtsStep>,
}

/// Changes of states that matter about as much.
struct StateUnits {
    level: f64,
    trend: f64,
    season: f64,
}

/// Positions of smoothing parameters between their bounds, from 0 to 1.
struct SmoothingShares {
    alpha: f64,
    beta: f64,
    gamma: f64,
    phi: f64,
}

/// Derivatives of the criterion by the states after a step, and by the parameters.
struct Derivatives {
    level: f64,
    trend: f64,
    season: Vec<f64>,
    smoothing: Smoothing,
}

/// Numbers of a point, in their order.
struct PointReader<'a> {
    numbers: std::slice::Iter<'a, f64>,
}

impl PointReader<'_> {
    /// The next number; 0 of a variable that the form does not have.
    fn read(&mut self, is_variable: bool) -> f64 {
        if !is_variable {
            return 0.0;
        }
        self.numbers.next().copied().unwrap_or(0.0)
    }
}

impl<'a> EtsCriterion<'a> {
    /// The criterion of values that are not all equal. `season_steps` is 1 of a form without season.
    pub fn new(values: &'a [f64], form: EtsForm, season_steps: usize) -> EtsCriterion<'a> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let mut squares = 0.0;
        for value in values {
            squares += (value - mean) * (value - mean);
        }
        let deviation = (squares / count).sqrt();
        let error_unit = match form.error {
            EtsError::Additive => deviation,
            EtsError::Multiplicative => deviation / mean,
        };
        EtsCriterion {
            values,
            form,
            season_steps,
            units: StateUnits {
                level: deviation,
                trend: deviation / 10.0,
                season: if form.is_multiplied() {
                    deviation / mean
                } else {
                    deviation
                },
            },
            floor: count * (ERROR_MIN * error_unit).powi(2),
            steps: Vec::with_capacity(values.len()),
        }
    }

    /// The variables of parameters within their bounds and of states.
    pub fn point(&self, smoothing: &Smoothing, states: &EtsStates) -> Vec<f64> {
        let Smoothing {
            alpha,
            beta,
            gamma,
            phi,
        } = *smoothing;
        let mut point = vec![logit((alpha - SHARE_MIN) / (SHARE_MAX - SHARE_MIN))];
        if self.form.has_trend() {
            point.push(logit((beta - SHARE_MIN) / (alpha - SHARE_MIN)));
        }
        if self.form.has_season() {
            point.push(logit((gamma - SHARE_MIN) / (1.0 - alpha - SHARE_MIN)));
        }
        if self.form.trend == EtsTrend::Damped {
            point.push(logit((phi - PHI_MIN) / (PHI_MAX - PHI_MIN)));
        }
        point.push(states.level / self.units.level);
        if self.form.has_trend() {
            point.push(states.trend / self.units.trend);
        }
        if self.form.has_season() {
            point.extend(states.season.iter().map(|index| index / self.units.season));
        }
        point
    }

    /// Parameters and initial states of a point.
    pub fn parameters(&self, point: &[f64]) -> (Smoothing, EtsStates) {
        let (_, smoothing, states) = self.read_point(point);
        (smoothing, states)
    }

    fn read_point(&self, point: &[f64]) -> (SmoothingShares, Smoothing, EtsStates) {
        let is_damped = self.form.trend == EtsTrend::Damped;
        let mut reader = PointReader {
            numbers: point.iter(),
        };
        let shares = SmoothingShares {
            alpha: logistic(reader.read(true)),
            beta: logistic(reader.read(self.form.has_trend())),
            gamma: logistic(reader.read(self.form.has_season())),
            phi: logistic(reader.read(is_damped)),
        };
        let mut smoothing = Smoothing {
            alpha: SHARE_MIN + (SHARE_MAX - SHARE_MIN) * shares.alpha,
            beta: 0.0,
            gamma: 0.0,
            phi: 1.0,
        };
        if self.form.has_trend() {
            smoothing.beta = SHARE_MIN + (smoothing.alpha - SHARE_MIN) * shares.beta;
        }
        if self.form.has_season() {
            smoothing.gamma = SHARE_MIN + (1.0 - smoothing.alpha - SHARE_MIN) * shares.gamma;
        }
        if is_damped {
            smoothing.phi = PHI_MIN + (PHI_MAX - PHI_MIN) * shares.phi;
        }
        let level = reader.read(true) * self.units.level;
        let trend = reader.read(self.form.has_trend()) * self.units.trend;
        let mut season = Vec::with_capacity(self.season_steps);
        for _ in 0..self.season_steps {
            season.push(reader.read(self.form.has_season()) * self.units.season);
        }
        let states = EtsStates {
            level,
            trend,
            season,
        };
        (shares, smoothing, states)
    }

    /// Goes forwards over the values and keeps the steps; returns the sum of squares of errors and the sum of logarithms
    /// of means. `None` where a mean that errors are shares of is not positive.
    fn sum_errors(&mut self, smoothing: Smoothing, states: EtsStates) -> Option<(f64, f64)> {
        let is_relative = self.form.error == EtsError::Multiplicative;
        let is_multiplied = self.form.is_multiplied();
        let mut recursion = EtsRecursion::new(self.form, smoothing, states);
        let mut squares = self.floor;
        let mut logarithms = 0.0;
        self.steps.clear();
        for value in self.values {
            let step = recursion.advance(*value);
            let mut error = value - step.mean;
            if is_relative {
                // A level and an index below zero have a positive product, and mean nothing.
                let least = if is_multiplied {
                    step.mean.min(step.level)
                } else {
                    step.mean
                };
                if least.is_nan() || least <= 0.0 {
                    return None;
                }
                error /= step.mean;
                logarithms += step.mean.ln();
            }
            squares += error * error;
            self.steps.push(step);
        }
        Some((squares, logarithms))
    }

    /// Goes backwards over the steps.
    fn differentiate(&self, smoothing: &Smoothing, squares: f64) -> Derivatives {
        let is_relative = self.form.error == EtsError::Multiplicative;
        let is_multiplied = self.form.is_multiplied();
        let Smoothing {
            alpha,
            beta,
            gamma,
            phi,
        } = *smoothing;
        let factor = 2.0 * self.values.len() as f64 / squares;
        let mut by_level = 0.0;
        let mut by_trend = 0.0;
        let mut by_season = vec![0.0; self.season_steps];
        let mut by_smoothing = Smoothing {
            alpha: 0.0,
            beta: 0.0,
            gamma: 0.0,
            phi: 0.0,
        };
        let mut slot = self.values.len() % self.season_steps;
        for (step, value) in self.steps.iter().zip(self.values).rev() {
            slot = slot.checked_sub(1).unwrap_or(self.season_steps - 1);
            let error = value - step.mean;
            let direct = if is_relative {
                (2.0 - factor * error * value / (step.mean * step.mean)) / step.mean
            } else {
                -factor * error
            };
            let by_index = by_season[slot];
            let by_expected_level = if is_multiplied {
                let by_updates = alpha * by_level + beta * by_trend;
                let by_mean = direct - by_updates / step.index - gamma * by_index / step.level;
                by_smoothing.alpha += by_level * error / step.index;
                by_smoothing.beta += by_trend * error / step.index;
                by_smoothing.gamma += by_index * error / step.level;
                by_season[slot] +=
                    by_mean * step.level - by_updates * error / (step.index * step.index);
                by_level + by_mean * step.index
                    - gamma * error * by_index / (step.level * step.level)
            } else {
                let by_mean = direct - alpha * by_level - beta * by_trend - gamma * by_index;
                by_smoothing.alpha += by_level * error;
                by_smoothing.beta += by_trend * error;
                by_smoothing.gamma += by_index * error;
                by_season[slot] += by_mean;
                by_level + by_mean
            };
            by_smoothing.phi += step.trend * (by_trend + by_expected_level);
            by_trend = phi * (by_trend + by_expected_level);
            by_level = by_expected_level;
        }
        Derivatives {
            level: by_level,
            trend: by_trend,
            season: by_season,
            smoothing: by_smoothing,
        }
    }

    /// The gradient by the variables of a point.
    fn write_gradient(
        &self,
        shares: &SmoothingShares,
        alpha: f64,
        derivatives: &Derivatives,
        gradient: &mut Vec<f64>,
    ) {
        let by = &derivatives.smoothing;
        // The bounds of the others depend on the parameter of the level.
        let mut by_alpha = by.alpha;
        if self.form.has_trend() {
            by_alpha += by.beta * shares.beta;
        }
        if self.form.has_season() {
            by_alpha -= by.gamma * shares.gamma;
        }
        gradient.clear();
        gradient.push(by_alpha * (SHARE_MAX - SHARE_MIN) * logistic_slope(shares.alpha));
        if self.form.has_trend() {
            gradient.push(by.beta * (alpha - SHARE_MIN) * logistic_slope(shares.beta));
        }
        if self.form.has_season() {
            gradient.push(by.gamma * (1.0 - alpha - SHARE_MIN) * logistic_slope(shares.gamma));
        }
        if self.form.trend == EtsTrend::Damped {
            gradient.push(by.phi * (PHI_MAX - PHI_MIN) * logistic_slope(shares.phi));
        }
        gradient.push(derivatives.level * self.units.level);
        if self.form.has_trend() {
            gradient.push(derivatives.trend * self.units.trend);
        }
        if self.form.has_season() {
            let by_season = derivatives.season.iter();
            gradient.extend(by_season.map(|derivative| derivative * self.units.season));
        }
    }
}

impl SmoothFunction for EtsCriterion<'_> {
    fn evaluate(&mut self, point: &[f64], gradient: &mut Vec<f64>) -> f64 {
        let (shares, smoothing, states) = self.read_point(point);
        let Some((squares, logarithms)) = self.sum_errors(smoothing, states) else {
            return f64::INFINITY;
        };
        let value = self.values.len() as f64 * squares.ln() + 2.0 * logarithms;
        if value.is_finite() {
            let derivatives = self.differentiate(&smoothing, squares);
            self.write_gradient(&shares, smoothing.alpha, &derivatives, gradient);
        }
        value
    }
}

fn logistic(number: f64) -> f64 {
    1.0 / (1.0 + (-number).exp())
}

/// The derivative of the logistic function where it has a value.
fn logistic_slope(share: f64) -> f64 {
    share * (1.0 - share)
}

fn logit(share: f64) -> f64 {
    (share / (1.0 - share)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ets::initial::initial_states;

    const SMOOTHING: Smoothing = Smoothing {
        alpha: 0.3,
        beta: 0.05,
        gamma: 0.1,
        phi: 0.9,
    };

    /// Weeks on a line, and errors: without them, the criterion ends where its gradient is steepest.
    fn values() -> Vec<f64> {
        let week = [3.0, 5.0, 9.0, 8.0, 7.0, 2.0, 4.0];
        let mut values = Vec::new();
        for day in 0..40 {
            let error = (day * 37 % 11) as f64 / 5.0 - 1.0;
            values.push(20.0 + week[day % 7] + 0.2 * day as f64 + error);
        }
        values
    }

    fn steps_of(form: EtsForm) -> usize {
        if form.has_season() { 7 } else { 1 }
    }

    /// Differences of the criterion around a point are the independent definition of its gradient.
    #[test]
    fn gradients_are_those_of_differences() {
        let values = values();
        for form in EtsForm::candidates(true, true) {
            let mut criterion = EtsCriterion::new(&values, form, steps_of(form));
            let states = initial_states(&values, form, steps_of(form));
            let point = criterion.point(&SMOOTHING, &states);
            let mut gradient = Vec::new();
            criterion.evaluate(&point, &mut gradient);
            assert_eq!(gradient.len(), point.len());
            let mut unused = Vec::new();
            for (variable, start) in point.iter().enumerate() {
                let distance = 1e-6 * start.abs().max(1.0);
                let mut around = point.clone();
                around[variable] = start + distance;
                let upper = criterion.evaluate(&around, &mut unused);
                around[variable] = start - distance;
                let lower = criterion.evaluate(&around, &mut unused);
                let expected = (upper - lower) / (2.0 * distance);
                let error = (gradient[variable] - expected).abs();
                assert!(
                    error < 1e-4 * expected.abs().max(1.0),
                    "{}, variable {variable}: {}, not {expected}",
                    form.name(),
                    gradient[variable]
                );
            }
        }
    }

    #[test]
    fn points_hold_parameters_and_states() {
        let values = values();
        for form in EtsForm::candidates(true, true) {
            let criterion = EtsCriterion::new(&values, form, steps_of(form));
            let states = initial_states(&values, form, steps_of(form));
            let (smoothing, read) = criterion.parameters(&criterion.point(&SMOOTHING, &states));
            assert!((smoothing.alpha - 0.3).abs() < 1e-12);
            assert!((read.level - states.level).abs() < 1e-9 * states.level);
            for (index, expected) in read.season.iter().zip(&states.season) {
                assert!((index - expected).abs() < 1e-9);
            }
        }
    }

    /// The likelihood of a level that stays is that of the normal distribution around it.
    #[test]
    fn the_criterion_of_a_level_is_that_of_its_errors() {
        let values = [1.0, 2.0, 4.0, 3.0];
        let mut criterion = EtsCriterion::new(&values, EtsForm::LEVEL, 1);
        let states = EtsStates {
            level: 2.0,
            trend: 0.0,
            season: vec![0.0],
        };
        let half = Smoothing {
            alpha: 0.5,
            ..SMOOTHING
        };
        let point = criterion.point(&half, &states);
        let value = criterion.evaluate(&point, &mut Vec::new());
        // Errors of -1, 0.5, 2.25 and 0.125: levels are 2, 1.5, 1.75 and 2.875.
        let squares: f64 = 1.0 + 0.25 + 5.0625 + 0.015_625;
        assert!((value - 4.0 * squares.ln()).abs() < 1e-9, "{value}");
    }
}
