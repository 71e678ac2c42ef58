//! The recursion of exponential smoothing: states that each value moves (Hyndman et al. 2008, chapter 2).

use super::form::EtsForm;

/// Smoothing parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smoothing {
    /// Share of an error that the level takes.
    pub alpha: f64,
    /// Share of an error that the trend takes; 0 without one.
    pub beta: f64,
    /// Share of an error that the index of the season takes; 0 without one.
    pub gamma: f64,
    /// Factor of the trend with each step; 1 unless it is damped.
    pub phi: f64,
}

/// States between two values.
#[derive(Debug, Clone, PartialEq)]
pub struct EtsStates {
    /// The level.
    pub level: f64,
    /// Change of the level with each step; 0 without a trend.
    pub trend: f64,
    /// Indices by position in the season; a single 0 without one.
    pub season: Vec<f64>,
}

/// States of one step, before its value moves them.
#[derive(Debug, Clone, Copy)]
pub struct EtsStep {
    /// The level and the trend of the step.
    pub level: f64,
    /// The trend of the step before.
    pub trend: f64,
    /// Index of the season.
    pub index: f64,
    /// The expected value.
    pub mean: f64,
}

/// States on their way along the values of a series.
#[derive(Debug, Clone)]
pub struct EtsRecursion {
    smoothing: Smoothing,
    is_multiplied: bool,
    /// The states after the last value.
    pub states: EtsStates,
    /// Position of the next value in the season.
    pub slot: usize,
}

impl EtsRecursion {
    /// A recursion before the first value.
    pub fn new(form: EtsForm, smoothing: Smoothing, states: EtsStates) -> EtsRecursion {
        EtsRecursion {
            smoothing,
            is_multiplied: form.is_multiplied(),
            states,
            slot: 0,
        }
    }

    /// Goes over a value. The kind of error makes no difference: a relative error times its mean is the difference.
    pub fn advance(&mut self, value: f64) -> EtsStep {
        let Smoothing {
            alpha,
            beta,
            gamma,
            phi,
        } = self.smoothing;
        let states = &mut self.states;
        let trend = states.trend;
        let level = states.level + phi * trend;
        let index = states.season[self.slot];
        let mean = if self.is_multiplied {
            level * index
        } else {
            level + index
        };
        let error = value - mean;
        if self.is_multiplied {
            states.level = level + alpha * error / index;
            states.trend = phi * trend + beta * error / index;
            states.season[self.slot] = index + gamma * error / level;
        } else {
            states.level = level + alpha * error;
            states.trend = phi * trend + beta * error;
            states.season[self.slot] = index + gamma * error;
        }
        self.slot += 1;
        if self.slot == states.season.len() {
            self.slot = 0;
        }
        EtsStep {
            level,
            trend,
            index,
            mean,
        }
    }
}
