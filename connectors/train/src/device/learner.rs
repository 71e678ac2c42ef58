//! A step of a training, put into a device's queue.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_device::{
    Accelerator, DeliveredBatch, DeviceMatrix, DeviceRing, DeviceStage, MatrixProduct, Precision,
};
use forebay_feed::{FeedBatch, PartRole, SlotAllocator};
use forebay_model::{Fault, Result};

use super::arguments::{
    Activate, Control, Copy, Embed, Fold, Gather, Judge, KernelArguments, Move, MoveTables, Peak,
    Square, Unrelu,
};
use super::kernels::TRAINING_KERNELS;
use super::memory::{
    DeviceBuffers, DeviceModelShape, PAIRS_PER_THREAD, REPORT_BYTES, THREADS, row_stride,
};
use crate::adam::{BiasCorrection, StepSchedule};
use crate::config::{LossFunction, TrainConfig};
use crate::engine::{StepResult, TrainingEngine};
use crate::matrix::MatrixLayout;
use crate::state::TrainingState;

/// Maximum number of steps in flight: as many as the ring has slots, so that the next step is
/// queued on the device, and the host waits for the device rather than for batches if the device is
/// slower.
const STEPS_IN_FLIGHT_MAX: usize = 3;

/// Trains on a device.
pub struct DeviceEngine<'a, D: Accelerator> {
    // Waits for the device when it goes, before any memory does.
    ring: Option<DeviceRing<'a, D>>,
    learner: Option<DeviceLearner<'a, D>>,
    device: &'a D,
    config: &'a TrainConfig,
    precision: Precision,
}

impl<'a, D: Accelerator> DeviceEngine<'a, D> {
    /// Creates an engine; it allocates on the device with the first step.
    pub fn new(
        config: &'a TrainConfig,
        device: &'a D,
        precision: Precision,
    ) -> DeviceEngine<'a, D> {
        DeviceEngine {
            ring: None,
            learner: None,
            device,
            config,
            precision,
        }
    }
}

impl<D: Accelerator> TrainingEngine for DeviceEngine<'_, D> {
    fn slot_allocator(&self) -> Option<Arc<dyn SlotAllocator>> {
        Some(self.device.slot_allocator())
    }

    fn step(
        &mut self,
        state: &mut TrainingState,
        batch: FeedBatch,
        pace: StepSchedule,
    ) -> Result<()> {
        if self.learner.is_none() {
            self.learner = Some(DeviceLearner::new(
                self.config,
                self.device,
                self.precision,
                state,
            )?);
            self.ring = Some(DeviceRing::new(self.device, batch.layout())?);
        }
        let missing = || Fault::internal("a training without a device");
        let learner = self.learner.as_mut().ok_or_else(missing)?;
        let ring = self.ring.as_mut().ok_or_else(missing)?;
        while learner.sent.len() >= STEPS_IN_FLIGHT_MAX {
            learner.read_report()?;
        }
        learner.pace = pace;
        ring.deliver(batch, learner)
    }

    fn next_result(&mut self) -> Option<StepResult> {
        self.learner.as_mut()?.told.pop_front()
    }

    fn finish_steps(&mut self, state: &mut TrainingState) -> Result<()> {
        let Some(learner) = &mut self.learner else {
            return Ok(());
        };
        while !learner.sent.is_empty() {
            learner.read_report()?;
        }
        learner.buffers.download_state(self.device, state)
    }
}

/// A model on a device.
struct DeviceLearner<'a, D: Accelerator> {
    device: &'a D,
    program: D::Program,
    plan: DeviceModelShape,
    buffers: DeviceBuffers<D::Memory>,
    pace: StepSchedule,
    loss: LossFunction,
    clip_norm: Option<f64>,
    weight_decay: f64,
    /// Steps whose reports have not arrived, the oldest first.
    sent: VecDeque<(u64, D::Letter)>,
    unused: Vec<D::Letter>,
    told: VecDeque<StepResult>,
}

impl<'a, D: Accelerator> DeviceLearner<'a, D> {
    fn new(
        config: &TrainConfig,
        device: &'a D,
        precision: Precision,
        state: &TrainingState,
    ) -> Result<DeviceLearner<'a, D>> {
        let plan = DeviceModelShape::new(&state.shape, config.rows_per_batch())?;
        let program = device.load_program(&TRAINING_KERNELS, precision)?;
        let buffers = DeviceBuffers::new(device, &plan, precision)?;
        // From here on, the learner waits for the device before its memory goes, also where the rest fails.
        let mut learner = DeviceLearner {
            device,
            program,
            plan,
            buffers,
            pace: StepSchedule { step: 0, rate: 0.0 },
            loss: config.loss_function(),
            clip_norm: config.clip_norm,
            weight_decay: config.weight_decay,
            sent: VecDeque::new(),
            unused: (0..STEPS_IN_FLIGHT_MAX)
                .map(|_| device.allocate_readback(REPORT_BYTES))
                .collect::<Result<_>>()?,
            told: VecDeque::new(),
        };
        learner
            .buffers
            .upload_state(device, &learner.plan, precision, state)?;
        for (layer, copy) in learner.plan.layers.iter().zip(&learner.buffers.copies) {
            learner.launch(&Copy {
                count: layer.weights.len() as u64,
                values: learner
                    .parameter_address(&learner.buffers.layers.values, layer.weights.start),
                copy: device.address(copy),
                width: layer.inputs as u64,
                stride: row_stride(layer.inputs),
            })?;
        }
        Ok(learner)
    }

    fn launch<A: KernelArguments>(&self, arguments: &A) -> Result<()> {
        let words = arguments.words();
        if words.first() == Some(&0) {
            return Ok(());
        }
        #[allow(unsafe_code, reason = "addresses have no types")]
        // SAFETY: the fields are those of the kernel (a test compares them), and the memory of `DeviceBuffers` is as large
        // as the plan says, which all counts come from.
        unsafe {
            self.device.launch(&self.program, A::KERNEL, &words)
        }
    }

    fn multiply(&self, product: &MatrixProduct) -> Result<()> {
        #[allow(unsafe_code, reason = "addresses have no types")]
        // SAFETY: matrices are those of a layer and of the rows of a batch, for which `DeviceBuffers` has room.
        unsafe {
            self.device.multiply(&self.program, product)
        }
    }

    fn address(&self, memory: &D::Memory) -> u64 {
        self.device.address(memory)
    }

    /// Address of numbers of the layers, from `first` on.
    fn parameter_address(&self, memory: &D::Memory, first: usize) -> u64 {
        self.address(memory) + first as u64 * 4
    }

    /// Matrix of the inputs of a layer, or of the derivatives of its outputs.
    fn matrix_at(&self, memory: &D::Memory, width: usize, lies: MatrixLayout) -> DeviceMatrix {
        device_matrix(self.address(memory), row_stride(width), lies)
    }

    fn forward(&self, part: &BatchAddresses) -> Result<()> {
        let plan = &self.plan;
        let buffers = &self.buffers;
        let products = self.address(&buffers.products);
        if let Some(first) = buffers.inputs.first() {
            self.launch(&Gather {
                count: part.rows * plan.width,
                dense: part.dense,
                ids: part.ids,
                tables: self.address(&buffers.tables.values),
                columns: self.address(&buffers.columns),
                values: self.address(first),
                dense_width: plan.dense,
                width: plan.width,
                stride: row_stride(plan.width as usize),
                ids_width: plan.ids,
            })?;
        }
        for (number, layer) in plan.layers.iter().enumerate() {
            if layer.inputs > 0 {
                let input =
                    self.matrix_at(&buffers.inputs[number], layer.inputs, MatrixLayout::Rows);
                let weights =
                    self.matrix_at(&buffers.copies[number], layer.inputs, MatrixLayout::Columns);
                let k = layer.inputs as u64;
                let n = layer.outputs as u64;
                self.multiply(&MatrixProduct {
                    m: part.rows,
                    k,
                    n,
                    a: input,
                    b: weights,
                    c: products,
                    c_stride: n,
                })?;
            }
            let Some(output) = buffers.inputs.get(number + 1) else {
                break;
            };
            self.launch(&Activate {
                count: part.rows * layer.outputs as u64,
                sums: products,
                biases: self.parameter_address(&buffers.layers.values, layer.biases.start),
                values: self.address(output),
                width: layer.outputs as u64,
                stride: row_stride(layer.outputs),
            })?;
        }
        Ok(())
    }

    /// Losses, and slopes by the results.
    fn compute_loss(&self, part: &BatchAddresses) -> Result<()> {
        let plan = &self.plan;
        let buffers = &self.buffers;
        let missing = || Fault::internal("a model without layers");
        let layer = plan.layers.last().ok_or_else(missing)?;
        let slopes = buffers.slopes.last().ok_or_else(missing)?;
        self.launch(&Judge {
            count: part.rows,
            sums: if layer.inputs > 0 {
                self.address(&buffers.products)
            } else {
                0
            },
            bias: self.parameter_address(&buffers.layers.values, layer.biases.start),
            labels: part.labels,
            weights: part.weights,
            mask: part.mask,
            ids: part.ids,
            tables: self.address(&buffers.tables.values),
            columns: self.address(&buffers.columns),
            added: if plan.added { plan.embedded } else { 0 },
            ids_width: plan.ids,
            logistic: u64::from(self.loss == LossFunction::Logistic),
            slopes: self.address(&buffers.of_results),
            values: self.address(slopes),
            stride: row_stride(layer.outputs),
            lost: self.address(&buffers.lost),
            strange: self.address(&buffers.strange),
            peak: self.address(&buffers.peak),
        })
    }

    fn backward(&self, part: &BatchAddresses) -> Result<()> {
        let plan = &self.plan;
        let buffers = &self.buffers;
        let products = self.address(&buffers.products);
        for (number, layer) in plan.layers.iter().enumerate().rev() {
            let inputs = layer.inputs as u64;
            let outputs = layer.outputs as u64;
            let slopes = |lies| self.matrix_at(&buffers.slopes[number], layer.outputs, lies);
            let ones = device_matrix(self.address(&buffers.ones), 1, MatrixLayout::Rows);
            let biases = self.parameter_address(&buffers.gradient, layer.biases.start);
            let of_columns = slopes(MatrixLayout::Columns);
            let k = part.rows;
            self.multiply(&MatrixProduct {
                m: outputs,
                k,
                n: 1,
                a: of_columns,
                b: ones,
                c: biases,
                c_stride: 1,
            })?;
            if inputs == 0 {
                continue;
            }
            let input = self.matrix_at(&buffers.inputs[number], layer.inputs, MatrixLayout::Rows);
            let weights = self.parameter_address(&buffers.gradient, layer.weights.start);
            let n = inputs;
            self.multiply(&MatrixProduct {
                m: outputs,
                k,
                n,
                a: of_columns,
                b: input,
                c: weights,
                c_stride: n,
            })?;
            if number == 0 && (plan.added || plan.embedded == 0) {
                continue;
            }
            let weights = self.matrix_at(&buffers.copies[number], layer.inputs, MatrixLayout::Rows);
            let m = part.rows;
            let k = outputs;
            let of_rows = slopes(MatrixLayout::Rows);
            self.multiply(&MatrixProduct {
                m,
                k,
                n,
                a: of_rows,
                b: weights,
                c: products,
                c_stride: n,
            })?;
            if let Some(input_layer) = number.checked_sub(1) {
                self.launch(&Unrelu {
                    count: part.rows * inputs,
                    sums: products,
                    values: self.address(&buffers.inputs[number]),
                    slopes: self.address(&buffers.slopes[input_layer]),
                    width: inputs,
                    stride: row_stride(layer.inputs),
                })?;
            }
        }
        Ok(())
    }

    /// The gradients of tables.
    fn accumulate_embeddings(&self, part: &BatchAddresses) -> Result<()> {
        let plan = &self.plan;
        let buffers = &self.buffers;
        let entries = part.rows * plan.embedded;
        // Where ids are added to the result, all of a row have the slope of that.
        let (slopes, stride, first, step) = if plan.added {
            (self.address(&buffers.of_results), 1, 0, 0)
        } else {
            (self.address(&buffers.products), plan.width, plan.dense, 1)
        };
        let columns_count = plan.embedded;
        let peak = self.address(&buffers.peak);
        self.launch(&Peak {
            count: entries.min(THREADS),
            entries,
            columns_count,
            slopes,
            stride,
            first,
            step,
            peak,
        })?;
        self.launch(&Embed {
            count: entries,
            columns_count,
            columns: self.address(&buffers.columns),
            ids: part.ids,
            ids_width: plan.ids,
            slopes,
            stride,
            first,
            step,
            sums: self.address(&buffers.sums),
            stamps: self.address(&buffers.stamps),
            training_step: self.pace.step,
            peak,
            room: plan.room,
        })
    }

    /// The sum of some pairs.
    fn reduce_pairs(&self, mut from: u64, mut pairs: u64, scratch: &[D::Memory; 2]) -> Result<u64> {
        for turn in 0.. {
            if pairs == 1 {
                break;
            }
            let count = pairs.div_ceil(PAIRS_PER_THREAD);
            let to = self.address(&scratch[turn % 2]);
            self.launch(&Fold {
                count,
                from,
                to,
                pairs,
                each: PAIRS_PER_THREAD,
            })?;
            (from, pairs) = (to, count);
        }
        Ok(from)
    }

    /// Computes the loss of the step, and the factor of the gradient.
    fn finish_loss(&self, part: &BatchAddresses) -> Result<()> {
        let plan = &self.plan;
        let buffers = &self.buffers;
        let mut squares = 0;
        if self.clip_norm.is_some() {
            let count = THREADS;
            let from = self.address(&buffers.squares);
            self.launch(&Square {
                count,
                gradient: self.address(&buffers.gradient),
                gradient_count: plan.parameters(),
                entries: part.rows * plan.embedded,
                columns_count: plan.embedded,
                columns: self.address(&buffers.columns),
                ids: part.ids,
                ids_width: plan.ids,
                sums: self.address(&buffers.sums),
                stamps: self.address(&buffers.stamps),
                training_step: self.pace.step,
                peak: self.address(&buffers.peak),
                room: plan.room,
                squares: from,
            })?;
            squares = self.reduce_pairs(from, count, &buffers.folds[1])?;
        }
        self.launch(&Control {
            count: 1,
            lost: self.reduce_pairs(self.address(&buffers.lost), part.rows, &buffers.folds[0])?,
            squares,
            norm_max: self.clip_norm.unwrap_or(f64::INFINITY),
            labels: part.labels,
            rows: part.rows,
            strange: self.address(&buffers.strange),
            control: self.address(&buffers.control),
            report: self.address(&buffers.report),
        })
    }

    /// AdamW.
    fn apply_adam(&self, part: &BatchAddresses) -> Result<()> {
        let plan = &self.plan;
        let buffers = &self.buffers;
        let StepSchedule { step, rate } = self.pace;
        let BiasCorrection {
            mean: mean_scale,
            square: square_scale,
        } = BiasCorrection::at_step(step);
        let mean_scale = f64::from(mean_scale);
        let square_scale = f64::from(square_scale);
        let control = self.address(&buffers.control);
        let moved = &buffers.layers;
        for (layer, copy) in plan.layers.iter().zip(&buffers.copies) {
            let decay = 1.0 - rate * self.weight_decay;
            for (range, copy, decay) in [
                (&layer.weights, self.address(copy), decay),
                (&layer.biases, 0, 1.0),
            ] {
                self.launch(&Move {
                    count: range.len() as u64,
                    gradient: self.parameter_address(&buffers.gradient, range.start),
                    values: self.parameter_address(&moved.values, range.start),
                    means: self.parameter_address(&moved.means, range.start),
                    squares: self.parameter_address(&moved.squares, range.start),
                    copy,
                    width: layer.inputs as u64,
                    stride: row_stride(layer.inputs),
                    control,
                    rate,
                    mean_scale,
                    square_scale,
                    kept: decay,
                })?;
            }
        }
        self.launch(&MoveTables {
            count: part.rows * plan.embedded,
            columns_count: plan.embedded,
            columns: self.address(&buffers.columns),
            ids: part.ids,
            ids_width: plan.ids,
            sums: self.address(&buffers.sums),
            stamps: self.address(&buffers.stamps),
            training_step: step,
            peak: self.address(&buffers.peak),
            room: plan.room,
            tables: self.address(&buffers.tables.values),
            means: self.address(&buffers.tables.means),
            squares: self.address(&buffers.tables.squares),
            control,
            rate,
            mean_scale,
            square_scale,
        })
    }

    /// Reads the result of the oldest step in flight.
    fn read_report(&mut self) -> Result<()> {
        let Some((step, mut letter)) = self.sent.pop_front() else {
            return Ok(());
        };
        let mut report = [0.0_f64; REPORT_BYTES / 8];
        self.device
            .wait_readback(&mut letter, bytemuck::cast_slice_mut(&mut report))?;
        self.unused.push(letter);
        let [loss, weight, strange, label] = report;
        let strange = (strange != 0.0).then_some(label as f32);
        self.told.push_back(StepResult {
            step,
            loss,
            weight,
            strange,
        });
        Ok(())
    }
}

impl<D: Accelerator> DeviceStage<D> for DeviceLearner<'_, D> {
    fn step(&mut self, batch: DeliveredBatch<'_, D>) -> Result<()> {
        let part = BatchAddresses::from_batch(&batch);
        self.forward(&part)?;
        self.compute_loss(&part)?;
        self.backward(&part)?;
        self.accumulate_embeddings(&part)?;
        self.finish_loss(&part)?;
        self.apply_adam(&part)?;
        let mut letter = self
            .unused
            .pop()
            .ok_or_else(|| Fault::internal("no letter to report a step"))?;
        self.device
            .enqueue_readback(&self.buffers.report, &mut letter)?;
        self.sent.push_back((self.pace.step, letter));
        Ok(())
    }
}

impl<D: Accelerator> Drop for DeviceLearner<'_, D> {
    fn drop(&mut self) {
        // The device must finish before its memory is freed. A failed device reports the fault to its next caller.
        let _ = self.device.finish();
    }
}

/// Addresses of the parts of a batch; 0 for those that it does not have.
struct BatchAddresses {
    rows: u64,
    dense: u64,
    ids: u64,
    labels: u64,
    weights: u64,
    mask: u64,
}

/// A matrix with a layout.
fn device_matrix(address: u64, stride: u64, layout: MatrixLayout) -> DeviceMatrix {
    DeviceMatrix {
        address,
        stride,
        transposed: layout == MatrixLayout::Columns,
    }
}

impl BatchAddresses {
    fn from_batch<D: Accelerator>(batch: &DeliveredBatch<'_, D>) -> BatchAddresses {
        let begin = batch.device.address(batch.memory);
        let at = |role| {
            batch
                .layout
                .part(role)
                .map_or(0, |part| begin + part.offset as u64)
        };
        BatchAddresses {
            rows: batch.rows as u64,
            dense: at(PartRole::Dense),
            ids: at(PartRole::Categorical),
            labels: at(PartRole::Label),
            weights: at(PartRole::Weight),
            mask: at(PartRole::Mask),
        }
    }
}
