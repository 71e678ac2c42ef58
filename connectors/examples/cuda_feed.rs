//! What the feed comes to on a GPU:
//! `cargo run --release -p forebay-connectors --features cuda --example cuda_feed [million rows] [batch rows]`.
//!
//! - bandwidth of page-locked slots through the ring, beside a loop of plain copies from one page-locked buffer;
//! - how often, and how long, a stage that computes a checksum waited for batches;
//! - whether every byte arrived: the sum of all checksums on the device, beside that on the host;
//! - rows per second of a training of layers over numbers and embeddings, how long it waited for batches, how far
//!   its losses lie from the processor's, and whether a second training gives the same bits.
//!
//! It has not been run yet: no GPU was at hand. Without one, it says so and ends. Trainings need NVRTC and cuBLAS.
#![allow(clippy::print_stdout)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Float32Array, RecordBatch};
use cudarc::driver::{CudaFunction, CudaSlice};
use forebay_connectors::{
    CHECKSUM_KERNEL, Compared, Cuda, Delivered, Device, HostDevice, Loss, ModelKind, Precision, Stage, Train, Trial,
    check_accelerator, checksum, found_cuda, run_stage,
};
use forebay_feed::{Block, Blocks, Config, Dataset, Features, Feed, Field, HostMemory, Order, SlotAllocator};
use forebay_model::{Fault, Id, Result, codes};

const COLUMNS: usize = 64;
const BLOCK_ROWS: u64 = 65_536;

/// Copies of one buffer for the plain loop.
const COPIES: usize = 200;

/// Stretches of steps whose mean losses are compared: steps alone lie further apart the longer a training goes on.
const STRETCHES: usize = 20;

/// The same block again and again, made beforehand: reading costs nothing.
struct Rows(RecordBatch, u64);

impl Blocks for Rows {
    fn dataset(&self) -> Dataset {
        let block = Block { rows: BLOCK_ROWS, ..Block::default() };
        Dataset::new(Id::of(b"rows"), vec![block; self.1 as usize])
    }

    fn read(
        &self,
        _block: u32,
        _columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        for first in (0..self.0.num_rows()).step_by(8192) {
            if rows(self.0.slice(first, 8192)).is_break() {
                break;
            }
        }
        Ok(Duration::ZERO)
    }
}

fn feed(source: &Arc<dyn Blocks>, batch_rows: u32, allocator: Arc<dyn SlotAllocator>) -> Result<Feed> {
    let features = Features {
        dense: (0..COLUMNS).map(|column| Field::new(format!("x{column}"))).collect(),
        ..Features::default()
    };
    let mut config = Config::new(vec![source.clone()], features, Order::sequential());
    (config.batch_rows, config.allocator) = (batch_rows, allocator);
    Feed::start(config)
}

/// Adds up checksums, on the device.
struct OnDevice {
    kernel: CudaFunction,
    sum: CudaSlice<u64>,
    bytes: usize,
}

impl Stage<Cuda> for OnDevice {
    fn step(&mut self, batch: Delivered<'_, Cuda>) -> Result<()> {
        self.bytes += batch.layout.bytes;
        batch.device.add_checksum(&self.kernel, batch.memory, &mut self.sum)
    }
}

/// The same on the host.
#[derive(Default)]
struct OnHost(u64);

impl Stage<HostDevice> for OnHost {
    fn step(&mut self, batch: Delivered<'_, HostDevice>) -> Result<()> {
        self.0 = self.0.wrapping_add(checksum(batch.memory));
        Ok(())
    }
}

fn driver(error: cudarc::driver::DriverError) -> Fault {
    Fault::new(codes::STORAGE, "the GPU's driver failed").cause(error)
}

fn main() -> Result<()> {
    let number = |place: usize| std::env::args().nth(place).and_then(|text| text.parse::<u64>().ok());
    let blocks = number(1).unwrap_or(8) * 1_000_000 / BLOCK_ROWS;
    let batch_rows = number(2).unwrap_or(16_384) as u32;
    println!("cuda: {}", found_cuda());
    let Some(cuda) = Cuda::open(0)? else {
        println!("no GPU to run on");
        return Ok(());
    };
    let columns = (0..COLUMNS).map(|column| {
        let values = (0..BLOCK_ROWS).map(|row| (row * 31 + column as u64 * 7) as f32);
        (format!("x{column}"), Arc::new(Float32Array::from_iter_values(values)) as ArrayRef)
    });
    let source: Arc<dyn Blocks> = Arc::new(Rows(RecordBatch::try_from_iter(columns)?, blocks));

    let mut host = OnHost::default();
    run_stage(&mut feed(&source, batch_rows, Arc::new(HostMemory))?, &HostDevice, &mut host)?;

    let mut ours = feed(&source, batch_rows, Arc::new(cuda.pinned()))?;
    let sum = cuda.compute().alloc_zeros::<u64>(1).map_err(driver)?;
    let mut stage = OnDevice { kernel: cuda.kernel(CHECKSUM_KERNEL, "checksum")?, sum, bytes: 0 };
    cuda.finish()?;
    let begin = Instant::now();
    let stats = run_stage(&mut ours, &cuda, &mut stage)?;
    let ring = stage.bytes as f64 / begin.elapsed().as_secs_f64() / 1e9;
    let sums = cuda.compute().clone_dtoh(&stage.sum).map_err(driver)?;
    cuda.finish()?;

    let bytes = ours.layout().bytes;
    let from = cuda.pinned().allocate(bytes)?;
    let mut to = cuda.memory(bytes)?;
    let begin = Instant::now();
    (0..COPIES).try_for_each(|_| cuda.copy(from.as_ref(), &mut to))?;
    cuda.finish()?;
    let plain = (COPIES * bytes) as f64 / begin.elapsed().as_secs_f64() / 1e9;

    println!("device: {}", cuda.name()?);
    println!("plain copies {plain:.2} GB/s; through the ring {ring:.2} GB/s ({:.1} %)", ring / plain * 100.0);
    let (wait, wall) = (stats.consumer_wait.as_secs_f64(), stats.wall.as_secs_f64());
    println!(
        "waited {:.2} % of the time, at {} of {} steps; waits for {}",
        wait / wall * 100.0,
        stats.starved_steps,
        stats.steps,
        stats.bottleneck().word()
    );
    match sums.first() == Some(&host.0) {
        true => println!("every byte arrived: checksum {:016x}", host.0),
        false => return Err(Fault::new(codes::CORRUPT, "the device got other bytes than the host")),
    }
    [Precision::F32, Precision::Bf16]
        .into_iter()
        .try_for_each(|precision| training(&cuda, precision, blocks, batch_rows))
}

/// What a training on the device comes to.
fn training(cuda: &Cuda, precision: Precision, blocks: u64, batch_rows: u32) -> Result<()> {
    match check_accelerator(cuda, precision)? {
        None => println!("training in {precision:?}: small models come to what the processor comes to"),
        Some(wrong) => println!("training in {precision:?}: WRONG: {wrong}"),
    }
    let train = Train {
        model: ModelKind::Mlp,
        loss: Some(Loss::Logistic),
        hidden: Some(vec![256, 128]),
        clip_norm: Some(1.0),
        warmup_steps: 20,
        batch_rows,
        ..Train::default()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let trial = Trial { train, columns: COLUMNS, block_rows: BLOCK_ROWS as usize, blocks: blocks as usize, threads };
    let compared = trial.compare(cuda, precision)?;
    let (stats, tolerance) = (compared.stats, Compared::tolerance(precision));
    let (wait, wall) = (stats.consumer_wait.as_secs_f64(), stats.wall.as_secs_f64());
    println!(
        "  {:.0} rows/s; waited {:.2} % of the time, at {} of {} steps; waits for {}",
        stats.rows as f64 / wall,
        wait / wall * 100.0,
        stats.starved_steps,
        stats.steps,
        stats.bottleneck().word()
    );
    println!(
        "  losses of {} steps in {STRETCHES} stretches: at most {:.3} % from the processor's ({:.1} % may be); {}",
        compared.device.len(),
        compared.difference(STRETCHES) * 100.0,
        tolerance * 100.0,
        if compared.repeats { "the same bits again" } else { "OTHER BITS when it is done again" }
    );
    Ok(())
}
