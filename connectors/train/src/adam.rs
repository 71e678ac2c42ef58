//! AdamW, and the learning rate over the steps.

use super::config::{LearningRateDecay, TrainConfig};
use super::gradient::BatchGradient;
use super::network::{ModelParameters, ModelShape};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPSILON: f32 = 1e-8;

/// Number and learning rate of a step.
#[derive(Debug, Clone, Copy)]
pub struct StepSchedule {
    /// Counts from 1.
    pub step: u64,
    /// The learning rate.
    pub rate: f64,
}

impl StepSchedule {
    /// Schedule of step `step` of `steps`.
    pub fn at_step(config: &TrainConfig, step: u64, steps: u64) -> StepSchedule {
        StepSchedule {
            step,
            rate: learning_rate(config, step, steps),
        }
    }
}

/// State of AdamW: the means of gradients and of their squares. Rows of embeddings change only
/// where a batch touches them.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamState {
    /// Means.
    pub means: ModelParameters,
    /// Means of squares.
    pub squares: ModelParameters,
}

/// Factors for the means in a step, which begin at zero.
#[derive(Debug, Clone, Copy)]
pub struct BiasCorrection {
    /// Means of gradients.
    pub mean: f32,
    /// Means of their squares.
    pub square: f32,
}

impl BiasCorrection {
    /// Correction for a step, which counts from 1.
    pub fn at_step(step: u64) -> BiasCorrection {
        let scale = |decay: f64| (1.0 / (1.0 - decay.powf(step as f64))) as f32;
        BiasCorrection {
            mean: scale(BETA1),
            square: scale(BETA2),
        }
    }
}

/// Update of a number in one step.
#[derive(Clone, Copy)]
struct AdamUpdate {
    rate: f32,
    scales: BiasCorrection,
}

impl AdamUpdate {
    fn apply(self, value: &mut f32, gradient: f32, mean: &mut f32, square: &mut f32) {
        *mean += (gradient - *mean) * (1.0 - BETA1) as f32;
        *square += (gradient * gradient - *square) * (1.0 - BETA2) as f32;
        *value -= self.rate * (*mean * self.scales.mean)
            / ((*square * self.scales.square).sqrt() + EPSILON);
    }
}

impl AdamState {
    /// State before the first step.
    pub fn new(shape: &ModelShape) -> AdamState {
        AdamState {
            means: ModelParameters::zeros(shape),
            squares: ModelParameters::zeros(shape),
        }
    }

    /// Moves the parameters: the step counts from 1.
    pub fn step(
        &mut self,
        shape: &ModelShape,
        parameters: &mut ModelParameters,
        gradient: &BatchGradient,
        schedule: StepSchedule,
        weight_decay: f64,
    ) {
        let StepSchedule { step, rate } = schedule;
        let rule = AdamUpdate {
            rate: rate as f32,
            scales: BiasCorrection::at_step(step),
        };
        let decay = (1.0 - rate * weight_decay) as f32;
        for layer in shape.layers() {
            for weight in parameters.layers[layer.weights].iter_mut() {
                *weight *= decay;
            }
        }
        let values = parameters.layers.iter_mut().zip(&gradient.layers);
        let memory = self.means.layers.iter_mut().zip(&mut self.squares.layers);
        for ((value, gradient), (mean, square)) in values.zip(memory) {
            rule.apply(value, *gradient, mean, square)
        }
        for (number, (touched, embedding)) in
            gradient.tables.iter().zip(&shape.embeddings).enumerate()
        {
            let table = &mut parameters.tables[number];
            let means = &mut self.means.tables[number];
            let squares = &mut self.squares.tables[number];
            for (row, gradient) in touched
                .rows
                .iter()
                .zip(touched.gradient.chunks_exact(embedding.width))
            {
                let start = *row as usize * embedding.width;
                for (at, gradient) in (start..).zip(gradient) {
                    rule.apply(&mut table[at], *gradient, &mut means[at], &mut squares[at]);
                }
            }
        }
    }
}

/// The learning rate of step `step` of `steps`, which count from 1.
pub fn learning_rate(config: &TrainConfig, step: u64, steps: u64) -> f64 {
    let warmup = config.warmup_steps;
    if step <= warmup {
        return config.rate() * step as f64 / warmup as f64;
    }
    match config.decay {
        LearningRateDecay::Constant => config.rate(),
        LearningRateDecay::Cosine => {
            let done = (step - 1 - warmup) as f64 / (steps.saturating_sub(warmup)).max(1) as f64;
            config.rate() * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
        }
    }
}
