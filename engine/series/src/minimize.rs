//! Minimum of a smooth function of several variables, from a start.
//!
//! The method is L-BFGS (Nocedal and Wright 2006, section 7.2): directions come from the last changes of point and
//! gradient, so memory grows with the number of variables and not with its square. Steps are found by bisection, until
//! they fulfil the weak Wolfe conditions (Lewis and Overton 2013).

use std::collections::VecDeque;

use forebay_model::Result;

/// Steps of the method at most.
const STEPS_MAX: usize = 500;

/// Changes of point and gradient that a direction comes from.
const CORRECTIONS_MAX: usize = 10;

/// Trials for the length of a step at most.
const TRIALS_MAX: usize = 30;

/// A step that lowers the value by less is small. The search ends after several small steps in a row: a single one says
/// little.
const DECREASE_MIN: f64 = 1e-7;

/// Small steps in a row that end the search.
const SMALL_STEPS_MAX: usize = 3;

/// Share of the slope that a step must lower the value by.
const DECREASE_SHARE: f64 = 1e-4;

/// Share of the slope that must be left at the end of a step, at most.
const SLOPE_SHARE: f64 = 0.9;

/// Cosine of the angle between the changes of point and gradient, at least: others have no curvature to learn from.
const CURVATURE_MIN: f64 = 1e-12;

/// A function and its gradient.
pub trait SmoothFunction {
    /// The value at a point, and the gradient there in place of what the vector holds. Points outside the domain have a
    /// value that is not finite, and any gradient.
    fn evaluate(&mut self, point: &[f64], gradient: &mut Vec<f64>) -> f64;
}

/// A point where no step lowers the value.
#[derive(Debug, Clone)]
pub struct Minimum {
    /// The variables.
    pub point: Vec<f64>,
    /// The value there.
    pub value: f64,
}

/// A point with its value and gradient.
struct EvaluatedPoint {
    point: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

impl EvaluatedPoint {
    fn new(function: &mut dyn SmoothFunction, point: Vec<f64>) -> EvaluatedPoint {
        let mut gradient = Vec::with_capacity(point.len());
        let value = function.evaluate(&point, &mut gradient);
        EvaluatedPoint {
            point,
            value,
            gradient,
        }
    }
}

/// Changes of point and gradient by a step.
struct Correction {
    step: Vec<f64>,
    change: Vec<f64>,
    product: f64,
}

/// The minimum that a descent from `start` ends at; `None` if the start lies outside the domain. `check` ends the search
/// by its fault.
pub fn minimize(
    function: &mut dyn SmoothFunction,
    start: Vec<f64>,
    check: &dyn Fn() -> Result<()>,
) -> Result<Option<Minimum>> {
    let mut current = EvaluatedPoint::new(function, start);
    if !current.value.is_finite() {
        return Ok(None);
    }
    let mut corrections = VecDeque::with_capacity(CORRECTIONS_MAX);
    let mut small_steps = 0;
    for _ in 0..STEPS_MAX {
        check()?;
        let direction = descent_direction(&corrections, &current.gradient);
        let Some(next) = search_line(function, &current, &direction) else {
            if corrections.is_empty() {
                break;
            }
            // Corrections from far away may mislead. The steepest descent does not.
            corrections.clear();
            continue;
        };
        if current.value - next.value < DECREASE_MIN {
            small_steps += 1;
        } else {
            small_steps = 0;
        }
        add_correction(&mut corrections, &current, &next);
        current = next;
        if small_steps == SMALL_STEPS_MAX {
            break;
        }
    }
    Ok(Some(Minimum {
        point: current.point,
        value: current.value,
    }))
}

/// The gradient times the inverse of the second derivatives, as far as corrections tell them, downwards.
fn descent_direction(corrections: &VecDeque<Correction>, gradient: &[f64]) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut factors = Vec::with_capacity(corrections.len());
    for correction in corrections.iter().rev() {
        let factor = dot(&correction.step, &direction) / correction.product;
        add_scaled(&mut direction, -factor, &correction.change);
        factors.push(factor);
    }
    // Without corrections, the first trial has at most the length 1.
    let scale = match corrections.back() {
        Some(newest) => newest.product / dot(&newest.change, &newest.change),
        None => 1.0 / dot(gradient, gradient).sqrt().max(1.0),
    };
    for component in &mut direction {
        *component *= scale;
    }
    for (correction, factor) in corrections.iter().zip(factors.iter().rev()) {
        let change = dot(&correction.change, &direction) / correction.product;
        add_scaled(&mut direction, factor - change, &correction.step);
    }
    direction
}

/// A lower point in a direction; `None` without one.
fn search_line(
    function: &mut dyn SmoothFunction,
    current: &EvaluatedPoint,
    direction: &[f64],
) -> Option<EvaluatedPoint> {
    let slope = dot(direction, &current.gradient);
    if !slope.is_finite() || slope >= 0.0 {
        return None;
    }
    let mut length = 1.0;
    let mut shortest = 0.0;
    let mut longest = f64::INFINITY;
    let mut lowest = None;
    for _ in 0..TRIALS_MAX {
        let mut point = current.point.clone();
        add_scaled(&mut point, length, direction);
        let trial = EvaluatedPoint::new(function, point);
        let limit = current.value + DECREASE_SHARE * length * slope;
        if !trial.value.is_finite() || trial.value > limit {
            longest = length;
        } else if dot(direction, &trial.gradient) < SLOPE_SHARE * slope {
            shortest = length;
            lowest = Some(trial);
        } else {
            return Some(trial);
        }
        length = if longest.is_finite() {
            (shortest + longest) / 2.0
        } else {
            2.0 * shortest
        };
    }
    lowest
}

fn add_correction(
    corrections: &mut VecDeque<Correction>,
    current: &EvaluatedPoint,
    next: &EvaluatedPoint,
) {
    let step = difference(&next.point, &current.point);
    let change = difference(&next.gradient, &current.gradient);
    let product = dot(&step, &change);
    let lengths = (dot(&step, &step) * dot(&change, &change)).sqrt();
    if !product.is_finite() || product <= CURVATURE_MIN * lengths {
        return;
    }
    if corrections.len() == CORRECTIONS_MAX {
        corrections.pop_front();
    }
    corrections.push_back(Correction {
        step,
        change,
        product,
    });
}

fn dot(first: &[f64], second: &[f64]) -> f64 {
    let pairs = first.iter().zip(second);
    pairs.map(|(first, second)| first * second).sum()
}

fn difference(first: &[f64], second: &[f64]) -> Vec<f64> {
    let pairs = first.iter().zip(second);
    pairs.map(|(first, second)| first - second).collect()
}

fn add_scaled(values: &mut [f64], factor: f64, others: &[f64]) {
    for (value, other) in values.iter_mut().zip(others) {
        *value += factor * other;
    }
}

#[cfg(test)]
mod tests {
    use forebay_model::{Fault, codes};

    use super::*;

    /// The valley of Rosenbrock (1960), whose minimum is 0 at (1, 1).
    struct Valley;

    impl SmoothFunction for Valley {
        fn evaluate(&mut self, point: &[f64], gradient: &mut Vec<f64>) -> f64 {
            let x = point[0];
            let y = point[1];
            let height = y - x * x;
            gradient.clear();
            gradient.extend([-400.0 * x * height - 2.0 * (1.0 - x), 200.0 * height]);
            100.0 * height * height + (1.0 - x) * (1.0 - x)
        }
    }

    /// `x - ln x`, whose domain is the numbers above zero.
    struct Positive;

    impl SmoothFunction for Positive {
        fn evaluate(&mut self, point: &[f64], gradient: &mut Vec<f64>) -> f64 {
            gradient.clear();
            gradient.push(1.0 - 1.0 / point[0]);
            if point[0] > 0.0 {
                point[0] - point[0].ln()
            } else {
                f64::INFINITY
            }
        }
    }

    #[test]
    fn a_bent_valley_is_followed_to_its_end() {
        for start in [[-1.2, 1.0], [3.0, -4.0], [0.0, 0.0]] {
            let minimum = minimize(&mut Valley, start.to_vec(), &|| Ok(()));
            let minimum = minimum.unwrap().unwrap();
            assert!(minimum.value < 1e-9, "{minimum:?}");
            assert!((minimum.point[0] - 1.0).abs() < 1e-3, "{minimum:?}");
        }
    }

    #[test]
    fn a_search_stays_in_the_domain() {
        let minimum = minimize(&mut Positive, vec![30.0], &|| Ok(()));
        let minimum = minimum.unwrap().unwrap();
        assert!((minimum.point[0] - 1.0).abs() < 1e-3, "{minimum:?}");
        let outside = minimize(&mut Positive, vec![-1.0], &|| Ok(())).unwrap();
        assert!(outside.is_none());
    }

    #[test]
    fn a_check_ends_the_search() {
        let stopped = minimize(&mut Valley, vec![3.0, 3.0], &|| {
            Err(Fault::new(codes::BAD_VALUE, "stopped"))
        });
        assert!(stopped.is_err());
    }
}
