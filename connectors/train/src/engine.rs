//! Executors of the steps of a training: the host, or a device.

use std::sync::Arc;

use forebay_feed::{FeedBatch, SlotAllocator};
use forebay_model::Result;

use super::adam::StepSchedule;
use super::config::TrainConfig;
use super::gradient::BatchGradient;
use super::network::ModelShape;
use super::rows::model_input;
use super::state::TrainingState;

/// Computes steps, at once or a little later.
pub trait TrainingEngine {
    /// Allocator of slots, if the engine needs its own.
    fn slot_allocator(&self) -> Option<Arc<dyn SlotAllocator>>;

    /// Learns from a batch. The result may be reported later, and need not be in the state before
    /// [`TrainingEngine::finish_steps`].
    fn step(
        &mut self,
        state: &mut TrainingState,
        batch: FeedBatch,
        pace: StepSchedule,
    ) -> Result<()>;

    /// Result of the next step, in the order of steps; `None` if it is not available yet.
    fn next_result(&mut self) -> Option<StepResult>;

    /// Waits until all steps are done, and writes their results into the state.
    fn finish_steps(&mut self, state: &mut TrainingState) -> Result<()>;
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepResult {
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
pub struct HostEngine<'a> {
    config: &'a TrainConfig,
    gradient: BatchGradient,
    told: Option<StepResult>,
}

impl<'a> HostEngine<'a> {
    pub fn new(config: &'a TrainConfig, shape: &ModelShape, threads: usize) -> HostEngine<'a> {
        HostEngine {
            config,
            gradient: BatchGradient::new(shape, config.rows_per_batch() as usize, threads),
            told: None,
        }
    }
}

impl TrainingEngine for HostEngine<'_> {
    fn slot_allocator(&self) -> Option<Arc<dyn SlotAllocator>> {
        None
    }

    fn step(
        &mut self,
        state: &mut TrainingState,
        batch: FeedBatch,
        schedule: StepSchedule,
    ) -> Result<()> {
        let step = schedule.step;
        let config = self.config;
        let gradient = &mut self.gradient;
        gradient.compute_batch(
            &state.shape,
            &state.parameters,
            &model_input(&batch),
            config.loss_function(),
        );
        let loss = gradient.loss;
        let weight = gradient.weight;
        let strange = gradient.strange;
        self.told = Some(StepResult {
            step,
            loss,
            weight,
            strange,
        });
        // Rows that do not count teach nothing.
        if weight > 0.0 {
            if let Some(norm) = config.clip_norm {
                gradient.clip(norm);
            }
            state.adam.step(
                &state.shape,
                &mut state.parameters,
                gradient,
                schedule,
                config.weight_decay,
            );
        }
        Ok(())
    }

    fn next_result(&mut self) -> Option<StepResult> {
        self.told.take()
    }

    fn finish_steps(&mut self, _state: &mut TrainingState) -> Result<()> {
        Ok(())
    }
}
