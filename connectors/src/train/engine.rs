//! What computes the steps of a training: the host, or a device.

use std::sync::Arc;

use forebay_feed::{Batch, SlotAllocator};
use forebay_model::Result;

use super::adam::learning_rate;
use super::config::Train;
use super::gradient::Gradient;
use super::network::Shape;
use super::rows::rows_of;
use super::state::State;

/// Computes steps, at once or a little later.
pub trait Engine {
    /// Where slots come from, where that matters to the engine.
    fn slots(&self) -> Option<Arc<dyn SlotAllocator>>;

    /// Learns from a batch. What is learned may be told later, and need not be in the state before
    /// [`Engine::settle`].
    fn step(&mut self, state: &mut State, batch: Batch, pace: Pace) -> Result<()>;

    /// What the next step came to, in the order of steps; `None` where that is not told yet.
    fn told(&mut self) -> Option<Told>;

    /// Waits until all steps are done, and brings into the state what they have learned.
    fn settle(&mut self, state: &mut State) -> Result<()>;
}

/// Where a step stands among all.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Counts from 1.
    pub step: u64,
    /// The learning rate.
    pub rate: f64,
}

impl Pace {
    /// Of a step among so many.
    pub fn of(config: &Train, step: u64, steps: u64) -> Pace {
        Pace { step, rate: learning_rate(config, step, steps) }
    }
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Told {
    /// Counts from 1.
    pub step: u64,
    /// The mean loss, before the step.
    pub loss: f64,
    /// The sum of the rows' weights.
    pub weight: f64,
    /// A label that no probability can be.
    pub strange: Option<f32>,
}

/// The host, which does everything at once.
pub struct Host<'a> {
    config: &'a Train,
    gradient: Gradient,
    told: Option<Told>,
}

impl<'a> Host<'a> {
    pub fn new(config: &'a Train, shape: &Shape, threads: usize) -> Host<'a> {
        Host { config, gradient: Gradient::new(shape, config.batch_rows as usize, threads), told: None }
    }
}

impl Engine for Host<'_> {
    fn slots(&self) -> Option<Arc<dyn SlotAllocator>> {
        None
    }

    fn step(&mut self, state: &mut State, batch: Batch, Pace { step, rate }: Pace) -> Result<()> {
        let (config, gradient) = (self.config, &mut self.gradient);
        gradient.of(&state.shape, &state.parameters, &rows_of(&batch), config.loss());
        let (loss, weight, strange) = (gradient.loss, gradient.weight, gradient.strange);
        self.told = Some(Told { step, loss, weight, strange });
        // Rows that do not count teach nothing.
        if weight > 0.0 {
            if let Some(norm) = config.clip_norm {
                gradient.clip(norm);
            }
            state.adam.step(&state.shape, &mut state.parameters, gradient, (step, rate, config.weight_decay));
        }
        Ok(())
    }

    fn told(&mut self) -> Option<Told> {
        self.told.take()
    }

    fn settle(&mut self, _state: &mut State) -> Result<()> {
        Ok(())
    }
}
