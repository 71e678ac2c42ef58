//! AdamW, and the learning rate over the steps.

use super::config::{LearningRateDecay, TrainConfig};
use super::engine::StepSchedule;
use super::gradient::BatchGradient;
use super::network::{ModelParameters, ModelShape};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPSILON: f32 = 1e-8;

/// What AdamW remembers of gradients: their means and those of their squares. Rows of embeddings move
/// only where a batch touches them.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamState {
    /// Means.
    pub means: ModelParameters,
    /// Means of squares.
    pub squares: ModelParameters,
}

/// What means are multiplied with in a step, as they begin at zero.
#[derive(Debug, Clone, Copy)]
pub struct BiasCorrection {
    /// Means of gradients.
    pub mean: f32,
    /// Means of their squares.
    pub square: f32,
}

impl BiasCorrection {
    /// Of a step, which counts from 1.
    pub fn at_step(step: u64) -> BiasCorrection {
        let scale = |kept: f64| (1.0 / (1.0 - kept.powf(step as f64))) as f32;
        BiasCorrection {
            mean: scale(BETA1),
            square: scale(BETA2),
        }
    }
}

/// What one step does to a number.
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
    /// Nothing is remembered yet.
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
        let kept = (1.0 - rate * weight_decay) as f32;
        for layer in shape.layers() {
            parameters.layers[layer.weights]
                .iter_mut()
                .for_each(|weight| *weight *= kept);
        }
        let values = parameters.layers.iter_mut().zip(&gradient.layers);
        let memory = self.means.layers.iter_mut().zip(&mut self.squares.layers);
        values
            .zip(memory)
            .for_each(|((value, gradient), (mean, square))| {
                rule.apply(value, *gradient, mean, square)
            });
        for (number, (touched, embedding)) in
            gradient.tables.iter().zip(&shape.embeddings).enumerate()
        {
            let table = &mut parameters.tables[number];
            let (means, squares) = (
                &mut self.means.tables[number],
                &mut self.squares.tables[number],
            );
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

/// The learning rate of a step, which counts from 1, of so many.
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
