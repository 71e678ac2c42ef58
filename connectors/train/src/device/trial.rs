//! Trains a small model on the host and on a device, and compares the results.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, FixedSizeListArray, Float32Array, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field as ArrowField};
use forebay_device::{Accelerator, Precision};
use forebay_feed::{
    BatchFeatures, BlockDataset, BlockSource, CategoricalType, DatasetBlock, FeatureField, Feed,
    FeedOptions, FeedStats, NonFinite, RemainderPolicy, SampleOrder,
};
use forebay_model::{ContentId, Result};

use super::learner::DeviceEngine;
use crate::adam::StepSchedule;
use crate::config::{ModelKind, TrainConfig};
use crate::engine::{HostEngine, TrainingEngine};
use crate::network::{EmbeddingTable, ModelParameters, ModelShape};
use crate::random::UniformGenerator;
use crate::state::TrainingState;

/// Ids of the two categorical columns.
const IDS: [usize; 2] = [40, 7];

/// A training on rows that are made up.
#[derive(Debug, Clone)]
pub struct DeviceTrial {
    /// The model, its learning rate, batches and epochs.
    pub train: TrainConfig,
    /// Columns of numbers.
    pub columns: usize,
    /// Rows of a block: all blocks are the same.
    pub block_rows: usize,
    /// Blocks.
    pub blocks: usize,
    /// Threads of the host.
    pub threads: usize,
}

/// Results of both trainings.
#[derive(Debug, Clone)]
pub struct TrialComparison {
    /// The loss of each step on the host.
    pub host: Vec<f64>,
    /// The loss of each step on the device.
    pub device: Vec<f64>,
    /// Statistics of the feed with the host.
    pub host_stats: FeedStats,
    /// Statistics of the feed with the device.
    pub stats: FeedStats,
    /// True if a second training on the device has the same bits.
    pub repeats: bool,
}

impl TrialComparison {
    /// The largest difference between the mean losses of `stretches` stretches of steps, as a share
    /// of the host's.
    pub fn difference(&self, stretches: usize) -> f64 {
        let steps = self.host.len();
        if steps == 0 || self.device.len() != steps {
            return f64::INFINITY;
        }
        let each = steps.div_ceil(stretches.max(1));
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let share = |(host, device): (&[f64], &[f64])| {
            let share = (mean(device) - mean(host)).abs() / mean(host).abs().max(f64::MIN_POSITIVE);
            if share.is_nan() { f64::INFINITY } else { share }
        };
        self.host
            .chunks(each)
            .zip(self.device.chunks(each))
            .map(share)
            .fold(0.0, f64::max)
    }

    /// Maximum difference between the losses of such trainings.
    pub fn tolerance(precision: Precision) -> f64 {
        match precision {
            Precision::F32 => 1e-3,
            Precision::Bf16 => 0.03,
        }
    }
}

impl DeviceTrial {
    /// Trains on both, on the device twice.
    pub fn compare<D: Accelerator>(
        &self,
        device: &D,
        precision: Precision,
    ) -> Result<TrialComparison> {
        let shape = self.shape();
        let host = self.run_engine(&shape, HostEngine::new(&self.train, &shape, self.threads))?;
        let of_device =
            || self.run_engine(&shape, DeviceEngine::new(&self.train, device, precision));
        let first = of_device()?;
        let second = of_device()?;
        let repeats = first.losses == second.losses && first.parameters == second.parameters;
        Ok(TrialComparison {
            host: host.losses,
            device: first.losses,
            host_stats: host.stats,
            stats: first.stats,
            repeats,
        })
    }

    fn shape(&self) -> ModelShape {
        let added = self.train.model != ModelKind::Mlp;
        let width = |wide: usize| if added { 1 } else { wide };
        let table = |column: &str, ids, count: usize, wide| EmbeddingTable {
            column: column.to_owned(),
            ids,
            rows: count + 1,
            width: width(wide),
        };
        ModelShape {
            dense: self.dense(),
            embeddings: vec![table("a", 1, IDS[0], 5), table("b", 2, IDS[1], 3)],
            hidden: self.train.hidden_widths(),
            added,
            outputs: 1,
        }
    }

    fn dense(&self) -> Vec<FeatureField> {
        (0..self.columns)
            .map(|column| FeatureField::new(format!("x{column}")))
            .collect()
    }

    fn feed(&self, slots: Option<Arc<dyn forebay_feed::SlotAllocator>>) -> Result<Feed> {
        let features = BatchFeatures {
            dense: self.dense(),
            categorical: vec![
                FeatureField::new("a"),
                FeatureField {
                    width: 2,
                    ..FeatureField::new("b")
                },
            ],
            categorical_type: CategoricalType::I32,
            label: Some(FeatureField::new("y")),
            weight: (self.train.model == ModelKind::Mlp).then(|| FeatureField::new("w")),
            non_finite: NonFinite::Skip,
            ..BatchFeatures::default()
        };
        let rows = SyntheticBlocks {
            rows: self.rows()?,
            blocks: self.blocks,
        };
        let mut config =
            FeedOptions::new(vec![Arc::new(rows)], features, SampleOrder::sequential());
        (config.batch_rows, config.last) = (self.train.rows_per_batch(), RemainderPolicy::Short);
        (config.epochs, config.threads) = (u64::from(self.train.epoch_count()), self.threads);
        config.allocator = slots.unwrap_or(config.allocator);
        Feed::start(config)
    }

    /// A label that depends on everything else, but not in one line; some rows do not count.
    fn rows(&self) -> Result<RecordBatch> {
        let mut uniform = UniformGenerator::new(self.train.seed ^ 0x7261_6c6c);
        let mut numbers: Vec<Vec<f32>> = Vec::with_capacity(self.columns);
        for _ in 0..self.columns {
            let values = (0..self.block_rows).map(|_| uniform.next_value());
            numbers.push(values.collect());
        }
        let a = random_ids(&mut uniform, self.block_rows, IDS[0]);
        let b = random_ids(&mut uniform, self.block_rows * 2, IDS[1]);
        let mut weights = Vec::with_capacity(self.block_rows);
        let mut labels = Vec::with_capacity(self.block_rows);
        for row in 0..self.block_rows {
            weights.push(0.5 + (row % 4) as f32 / 2.0);
            let mut odds = 0.3;
            for values in &numbers {
                odds = values[row] - odds * values[row];
            }
            odds = odds + (a[row] % 3) as f32 - 1.0;
            odds += if b[2 * row] > b[2 * row + 1] {
                0.7
            } else {
                -0.4
            };
            labels.push(if odds > 0.0 { 1.0 } else { 0.0 });
        }
        // Rows with a number that is missing do not count.
        if let Some(first) = numbers.first_mut() {
            for value in first.iter_mut().skip(3).step_by(17) {
                *value = f32::NAN;
            }
        }
        let item = Arc::new(ArrowField::new("item", DataType::Int32, true));
        let pairs = FixedSizeListArray::try_new(item, 2, Arc::new(Int32Array::from(b)), None)?;
        let mut columns: Vec<(String, ArrayRef)> = vec![
            ("a".to_owned(), Arc::new(Int32Array::from(a))),
            ("b".to_owned(), Arc::new(pairs)),
            ("y".to_owned(), Arc::new(Float32Array::from(labels))),
            ("w".to_owned(), Arc::new(Float32Array::from(weights))),
        ];
        for (column, values) in numbers.into_iter().enumerate() {
            let values = Arc::new(Float32Array::from(values));
            columns.push((format!("x{column}"), values));
        }
        Ok(RecordBatch::try_from_iter(columns)?)
    }

    fn run_engine(
        &self,
        shape: &ModelShape,
        mut engine: impl TrainingEngine,
    ) -> Result<TrialOutcome> {
        let mut feed = self.feed(engine.slot_allocator())?;
        let rows = (self.block_rows * self.blocks) as u64;
        let steps = rows.div_ceil(u64::from(self.train.rows_per_batch()))
            * u64::from(self.train.epoch_count());
        let mut state = TrainingState::initial(shape.clone(), self.train.seed);
        let mut losses = Vec::new();
        let mut step = 0;
        for batch in feed.by_ref() {
            step += 1;
            engine.step(
                &mut state,
                batch?,
                StepSchedule::at_step(&self.train, step, steps),
            )?;
            losses.extend(std::iter::from_fn(|| engine.next_result()).map(|result| result.loss));
        }
        engine.finish_steps(&mut state)?;
        losses.extend(std::iter::from_fn(|| engine.next_result()).map(|result| result.loss));
        Ok(TrialOutcome {
            losses,
            parameters: state.parameters,
            stats: feed.take_stats(),
        })
    }
}

struct TrialOutcome {
    losses: Vec<f64>,
    parameters: ModelParameters,
    stats: FeedStats,
}

/// A source whose blocks all have the same rows.
struct SyntheticBlocks {
    rows: RecordBatch,
    blocks: usize,
}

impl BlockSource for SyntheticBlocks {
    fn dataset(&self) -> BlockDataset {
        let block = DatasetBlock {
            rows: self.rows.num_rows() as u64,
            ..DatasetBlock::default()
        };
        BlockDataset::new(ContentId::of(b"made up"), vec![block; self.blocks])
    }

    fn read(
        &self,
        _block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let selected = columns
            .iter()
            .map(|column| self.rows.schema_ref().index_of(column));
        let projected = self
            .rows
            .project(&selected.collect::<Result<Vec<_>, _>>()?)?;
        for first in (0..projected.num_rows()).step_by(8192) {
            if rows(projected.slice(first, (projected.num_rows() - first).min(8192))).is_break() {
                break;
            }
        }
        Ok(Duration::ZERO)
    }
}

/// Small trainings with everything in them that a device computes.
fn trials() -> [DeviceTrial; 2] {
    let trial = |train| DeviceTrial {
        train,
        columns: 5,
        block_rows: 300,
        blocks: 1,
        threads: 1,
    };
    let common = TrainConfig {
        batch_rows: Some(64),
        epochs: Some(4),
        seed: 11,
        learning_rate: Some(0.05),
        ..TrainConfig::default()
    };
    let layers = TrainConfig {
        model: ModelKind::Mlp,
        hidden: Some(vec![12, 6]),
        clip_norm: Some(0.5),
        warmup_steps: 2,
        ..common.clone()
    };
    [
        trial(layers),
        trial(TrainConfig {
            model: ModelKind::Logistic,
            ..common
        }),
    ]
}

/// Checks that a device computes like the host; returns a description of the difference, if there
/// is one.
pub fn check_device<D: Accelerator>(device: &D, precision: Precision) -> Result<Option<String>> {
    for trial in trials() {
        let compared = trial.compare(device, precision)?;
        let steps = compared.host.len();
        let difference = compared.difference(steps);
        let tolerance = TrialComparison::tolerance(precision);
        if difference > tolerance {
            return Ok(Some(format!(
                "its losses lie {:.2} % from those of the processor, where {:.2} % may be",
                difference * 100.0,
                tolerance * 100.0
            )));
        }
        if !compared.repeats {
            return Ok(Some(
                "the same training gives other bits when it is done again".to_owned(),
            ));
        }
    }
    Ok(None)
}

/// Ids below `end`, of which few are frequent; -1 is a missing one.
fn random_ids(uniform: &mut UniformGenerator, count: usize, end: usize) -> Vec<i32> {
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        let number: f32 = uniform.next_value();
        // Squared, small ids are more frequent.
        let id = (number * number * (end + 1) as f32) as i32 - 1;
        ids.push(id.min(end as i32 - 1));
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_learn() {
        for trial in trials() {
            let shape = trial.shape();
            let losses = trial
                .run_engine(&shape, HostEngine::new(&trial.train, &shape, 1))
                .unwrap()
                .losses;
            assert_eq!(losses.len(), 20);
            // Several times what a device may differ by.
            assert!(losses[19] < 0.85 * losses[0], "{losses:?}");
        }
    }
}
