//! A step of a training, put into a device's queue.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_feed::{Batch, Role, SlotAllocator};
use forebay_model::{Fault, Result};

use super::accelerator::{Accelerator, Matrix, Product};
use super::arguments::{
    Activate, Arguments, Control, Copy, Embed, Fold, Gather, Judge, Move, MoveTables, Peak, Square, Unrelu,
};
use super::memory::{Buffers, FOLDED, Plan, REPORT_BYTES, THREADS, stride};
use crate::feed::{Delivered, Ring, Stage};
use crate::train::adam::Scales;
use crate::train::config::{Loss, Train};
use crate::train::engine::{Engine, Pace, Told};
use crate::train::matrix::Lies;
use crate::train::place::Precision;
use crate::train::state::State;

/// Steps that may be on their way: as many as the ring has slots, so that the device has the next at hand, and
/// the host waits for the device rather than for batches where the device is the slower.
const LATE: usize = 3;

/// Trains on a device.
pub struct OnDevice<'a, D: Accelerator> {
    // Waits for the device when it goes, before any memory does.
    ring: Option<Ring<'a, D>>,
    learner: Option<Learner<'a, D>>,
    device: &'a D,
    config: &'a Train,
    precision: Precision,
}

impl<'a, D: Accelerator> OnDevice<'a, D> {
    /// An engine; what it needs on the device is made with the first step.
    pub fn new(config: &'a Train, device: &'a D, precision: Precision) -> OnDevice<'a, D> {
        OnDevice { ring: None, learner: None, device, config, precision }
    }
}

impl<D: Accelerator> Engine for OnDevice<'_, D> {
    fn slots(&self) -> Option<Arc<dyn SlotAllocator>> {
        Some(self.device.slots())
    }

    fn step(&mut self, state: &mut State, batch: Batch, pace: Pace) -> Result<()> {
        if self.learner.is_none() {
            self.learner = Some(Learner::new(self.config, self.device, self.precision, state)?);
            self.ring = Some(Ring::new(self.device, batch.layout())?);
        }
        let (Some(learner), Some(ring)) = (&mut self.learner, &mut self.ring) else {
            return Err(Fault::internal("a training without a device"));
        };
        while learner.sent.len() >= LATE {
            learner.read()?;
        }
        learner.pace = pace;
        ring.deliver(batch, learner)
    }

    fn told(&mut self) -> Option<Told> {
        self.learner.as_mut()?.told.pop_front()
    }

    fn settle(&mut self, state: &mut State) -> Result<()> {
        let Some(learner) = &mut self.learner else { return Ok(()) };
        while !learner.sent.is_empty() {
            learner.read()?;
        }
        learner.buffers.get(self.device, state)
    }
}

/// A model on a device.
struct Learner<'a, D: Accelerator> {
    device: &'a D,
    program: D::Program,
    plan: Plan,
    buffers: Buffers<D::Memory>,
    pace: Pace,
    loss: Loss,
    clip_norm: Option<f64>,
    weight_decay: f64,
    /// Steps whose reports are on their way, the oldest first.
    sent: VecDeque<(u64, D::Letter)>,
    unused: Vec<D::Letter>,
    told: VecDeque<Told>,
}

impl<'a, D: Accelerator> Learner<'a, D> {
    fn new(config: &Train, device: &'a D, precision: Precision, state: &State) -> Result<Learner<'a, D>> {
        let plan = Plan::new(&state.shape, config.batch_rows)?;
        let program = device.program(precision)?;
        let buffers = Buffers::new(device, &plan, precision)?;
        // From here on, the learner waits for the device before its memory goes, also where the rest fails.
        let mut learner = Learner {
            device,
            program,
            plan,
            buffers,
            pace: Pace { step: 0, rate: 0.0 },
            loss: config.loss(),
            clip_norm: config.clip_norm,
            weight_decay: config.weight_decay,
            sent: VecDeque::new(),
            unused: (0..LATE).map(|_| device.letter(REPORT_BYTES)).collect::<Result<_>>()?,
            told: VecDeque::new(),
        };
        learner.buffers.put(device, &learner.plan, precision, state)?;
        for (layer, copy) in learner.plan.layers.iter().zip(&learner.buffers.copies) {
            learner.launch(&Copy {
                count: layer.weights.len() as u64,
                values: learner.layers(&learner.buffers.layers.values, layer.weights.start),
                copy: device.address(copy),
                width: layer.inputs as u64,
                stride: stride(layer.inputs),
            })?;
        }
        Ok(learner)
    }

    fn launch<A: Arguments>(&self, arguments: &A) -> Result<()> {
        let words = arguments.words();
        if words.first() == Some(&0) {
            return Ok(());
        }
        #[allow(unsafe_code, reason = "addresses have no types")]
        // SAFETY: the fields are those of the kernel (a test compares them), and the memory of `Buffers` is as large
        // as the plan says, which all counts come from.
        unsafe {
            self.device.launch(&self.program, A::KERNEL, &words)
        }
    }

    fn multiply(&self, (m, k, n): (u64, u64, u64), a: Matrix, b: Matrix, c: u64) -> Result<()> {
        #[allow(unsafe_code, reason = "addresses have no types")]
        // SAFETY: matrices are those of a layer and of the rows of a batch, for which `Buffers` has room.
        unsafe {
            self.device.multiply(&self.program, &Product { m, k, n, a, b, c, c_stride: n })
        }
    }

    fn at(&self, memory: &D::Memory) -> u64 {
        self.device.address(memory)
    }

    /// Some numbers of the layers.
    fn layers(&self, memory: &D::Memory, first: usize) -> u64 {
        self.at(memory) + first as u64 * 4
    }

    /// Where batches lie that go into a layer, or slopes that come out of it.
    fn lies(&self, memory: &D::Memory, width: usize, lies: Lies) -> Matrix {
        Matrix::new(self.at(memory), stride(width), lies)
    }

    fn forward(&self, part: &Parts) -> Result<()> {
        let (plan, buffers) = (&self.plan, &self.buffers);
        let products = self.at(&buffers.products);
        if let Some(first) = buffers.inputs.first() {
            self.launch(&Gather {
                count: part.rows * plan.width,
                dense: part.dense,
                ids: part.ids,
                tables: self.at(&buffers.tables.values),
                columns: self.at(&buffers.columns),
                values: self.at(first),
                dense_width: plan.dense,
                width: plan.width,
                stride: stride(plan.width as usize),
                ids_width: plan.ids,
            })?;
        }
        for (number, layer) in plan.layers.iter().enumerate() {
            if layer.inputs > 0 {
                let input = self.lies(&buffers.inputs[number], layer.inputs, Lies::Rows);
                let weights = self.lies(&buffers.copies[number], layer.inputs, Lies::Columns);
                self.multiply((part.rows, layer.inputs as u64, layer.outputs as u64), input, weights, products)?;
            }
            let Some(output) = buffers.inputs.get(number + 1) else { break };
            self.launch(&Activate {
                count: part.rows * layer.outputs as u64,
                sums: products,
                biases: self.layers(&buffers.layers.values, layer.biases.start),
                values: self.at(output),
                width: layer.outputs as u64,
                stride: stride(layer.outputs),
            })?;
        }
        Ok(())
    }

    /// Losses, and slopes by the results.
    fn judge(&self, part: &Parts) -> Result<()> {
        let (plan, buffers) = (&self.plan, &self.buffers);
        let (Some(layer), Some(slopes)) = (plan.layers.last(), buffers.slopes.last()) else {
            return Err(Fault::internal("a model without layers"));
        };
        self.launch(&Judge {
            count: part.rows,
            sums: if layer.inputs > 0 { self.at(&buffers.products) } else { 0 },
            bias: self.layers(&buffers.layers.values, layer.biases.start),
            labels: part.labels,
            weights: part.weights,
            mask: part.mask,
            ids: part.ids,
            tables: self.at(&buffers.tables.values),
            columns: self.at(&buffers.columns),
            added: if plan.added { plan.embedded } else { 0 },
            ids_width: plan.ids,
            logistic: u64::from(self.loss == Loss::Logistic),
            slopes: self.at(&buffers.of_results),
            values: self.at(slopes),
            stride: stride(layer.outputs),
            lost: self.at(&buffers.lost),
            strange: self.at(&buffers.strange),
            peak: self.at(&buffers.peak),
        })
    }

    fn backward(&self, part: &Parts) -> Result<()> {
        let (plan, buffers) = (&self.plan, &self.buffers);
        let products = self.at(&buffers.products);
        for (number, layer) in plan.layers.iter().enumerate().rev() {
            let (inputs, outputs) = (layer.inputs as u64, layer.outputs as u64);
            let slopes = |lies| self.lies(&buffers.slopes[number], layer.outputs, lies);
            let ones = Matrix::new(self.at(&buffers.ones), 1, Lies::Rows);
            let biases = self.layers(&buffers.gradient, layer.biases.start);
            self.multiply((outputs, part.rows, 1), slopes(Lies::Columns), ones, biases)?;
            if inputs == 0 {
                continue;
            }
            let input = self.lies(&buffers.inputs[number], layer.inputs, Lies::Rows);
            let weights = self.layers(&buffers.gradient, layer.weights.start);
            self.multiply((outputs, part.rows, inputs), slopes(Lies::Columns), input, weights)?;
            if number == 0 && (plan.added || plan.embedded == 0) {
                continue;
            }
            let weights = self.lies(&buffers.copies[number], layer.inputs, Lies::Rows);
            self.multiply((part.rows, outputs, inputs), slopes(Lies::Rows), weights, products)?;
            if let Some(before) = number.checked_sub(1) {
                self.launch(&Unrelu {
                    count: part.rows * inputs,
                    sums: products,
                    values: self.at(&buffers.inputs[number]),
                    slopes: self.at(&buffers.slopes[before]),
                    width: inputs,
                    stride: stride(layer.inputs),
                })?;
            }
        }
        Ok(())
    }

    /// The gradients of tables.
    fn embed(&self, part: &Parts) -> Result<()> {
        let (plan, buffers) = (&self.plan, &self.buffers);
        let entries = part.rows * plan.embedded;
        // Where ids are added to the result, all of a row have the slope of that.
        let (slopes, stride, first, step) = match plan.added {
            true => (self.at(&buffers.of_results), 1, 0, 0),
            false => (self.at(&buffers.products), plan.width, plan.dense, 1),
        };
        let (columns_count, peak) = (plan.embedded, self.at(&buffers.peak));
        self.launch(&Peak { count: entries.min(THREADS), entries, columns_count, slopes, stride, first, step, peak })?;
        self.launch(&Embed {
            count: entries,
            columns_count,
            columns: self.at(&buffers.columns),
            ids: part.ids,
            ids_width: plan.ids,
            slopes,
            stride,
            first,
            step,
            sums: self.at(&buffers.sums),
            stamps: self.at(&buffers.stamps),
            training_step: self.pace.step,
            peak,
            room: plan.room,
        })
    }

    /// The sum of some pairs.
    fn fold(&self, mut from: u64, mut pairs: u64, scratch: &[D::Memory; 2]) -> Result<u64> {
        for turn in 0.. {
            if pairs == 1 {
                break;
            }
            let (count, to) = (pairs.div_ceil(FOLDED), self.at(&scratch[turn % 2]));
            self.launch(&Fold { count, from, to, pairs, each: FOLDED })?;
            (from, pairs) = (to, count);
        }
        Ok(from)
    }

    /// What the step came to, and by how much the gradient moves anything.
    fn control(&self, part: &Parts) -> Result<()> {
        let (plan, buffers) = (&self.plan, &self.buffers);
        let mut squares = 0;
        if self.clip_norm.is_some() {
            let (count, from) = (THREADS, self.at(&buffers.squares));
            self.launch(&Square {
                count,
                gradient: self.at(&buffers.gradient),
                gradient_count: plan.parameters(),
                entries: part.rows * plan.embedded,
                columns_count: plan.embedded,
                columns: self.at(&buffers.columns),
                ids: part.ids,
                ids_width: plan.ids,
                sums: self.at(&buffers.sums),
                stamps: self.at(&buffers.stamps),
                training_step: self.pace.step,
                peak: self.at(&buffers.peak),
                room: plan.room,
                squares: from,
            })?;
            squares = self.fold(from, count, &buffers.folds[1])?;
        }
        self.launch(&Control {
            count: 1,
            lost: self.fold(self.at(&buffers.lost), part.rows, &buffers.folds[0])?,
            squares,
            norm_max: self.clip_norm.unwrap_or(f64::INFINITY),
            labels: part.labels,
            rows: part.rows,
            strange: self.at(&buffers.strange),
            control: self.at(&buffers.control),
            report: self.at(&buffers.report),
        })
    }

    /// AdamW.
    fn move_all(&self, part: &Parts) -> Result<()> {
        let (plan, buffers, Pace { step, rate }) = (&self.plan, &self.buffers, self.pace);
        let Scales { mean: mean_scale, square: square_scale } = Scales::of(step);
        let (mean_scale, square_scale) = (f64::from(mean_scale), f64::from(square_scale));
        let (control, moved) = (self.at(&buffers.control), &buffers.layers);
        for (layer, copy) in plan.layers.iter().zip(&buffers.copies) {
            let kept = 1.0 - rate * self.weight_decay;
            for (range, copy, kept) in [(&layer.weights, self.at(copy), kept), (&layer.biases, 0, 1.0)] {
                self.launch(&Move {
                    count: range.len() as u64,
                    gradient: self.layers(&buffers.gradient, range.start),
                    values: self.layers(&moved.values, range.start),
                    means: self.layers(&moved.means, range.start),
                    squares: self.layers(&moved.squares, range.start),
                    copy,
                    width: layer.inputs as u64,
                    stride: stride(layer.inputs),
                    control,
                    rate,
                    mean_scale,
                    square_scale,
                    kept,
                })?;
            }
        }
        self.launch(&MoveTables {
            count: part.rows * plan.embedded,
            columns_count: plan.embedded,
            columns: self.at(&buffers.columns),
            ids: part.ids,
            ids_width: plan.ids,
            sums: self.at(&buffers.sums),
            stamps: self.at(&buffers.stamps),
            training_step: step,
            peak: self.at(&buffers.peak),
            room: plan.room,
            tables: self.at(&buffers.tables.values),
            means: self.at(&buffers.tables.means),
            squares: self.at(&buffers.tables.squares),
            control,
            rate,
            mean_scale,
            square_scale,
        })
    }

    /// Reads what the oldest step on its way came to.
    fn read(&mut self) -> Result<()> {
        let Some((step, mut letter)) = self.sent.pop_front() else { return Ok(()) };
        let mut report = [0.0_f64; REPORT_BYTES / 8];
        self.device.open(&mut letter, bytemuck::cast_slice_mut(&mut report))?;
        self.unused.push(letter);
        let [loss, weight, strange, label] = report;
        let strange = (strange != 0.0).then_some(label as f32);
        self.told.push_back(Told { step, loss, weight, strange });
        Ok(())
    }
}

impl<D: Accelerator> Stage<D> for Learner<'_, D> {
    fn step(&mut self, batch: Delivered<'_, D>) -> Result<()> {
        let part = Parts::of(&batch);
        self.forward(&part)?;
        self.judge(&part)?;
        self.backward(&part)?;
        self.embed(&part)?;
        self.control(&part)?;
        self.move_all(&part)?;
        let mut letter = self.unused.pop().ok_or_else(|| Fault::internal("no letter to report a step"))?;
        self.device.send(&self.buffers.report, &mut letter)?;
        self.sent.push_back((self.pace.step, letter));
        Ok(())
    }
}

impl<D: Accelerator> Drop for Learner<'_, D> {
    fn drop(&mut self) {
        // Memory goes when nobody uses it any more; a device that has failed says so to its next caller.
        let _ = self.device.finish();
    }
}

/// Where the parts of a batch lie; 0 for those that it does not have.
struct Parts {
    rows: u64,
    dense: u64,
    ids: u64,
    labels: u64,
    weights: u64,
    mask: u64,
}

impl Parts {
    fn of<D: Accelerator>(batch: &Delivered<'_, D>) -> Parts {
        let begin = batch.device.address(batch.memory);
        let at = |role| batch.layout.part(role).map_or(0, |part| begin + part.offset as u64);
        Parts {
            rows: batch.rows as u64,
            dense: at(Role::Dense),
            ids: at(Role::Categorical),
            labels: at(Role::Label),
            weights: at(Role::Weight),
            mask: at(Role::Mask),
        }
    }
}
