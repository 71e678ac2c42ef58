//! Measurements of a device for `benches/gpu`: rates of copies, and batches that arrive whole.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Float32Array, RecordBatch};
use cudarc::driver::{CudaFunction, CudaSlice, DevicePtr, result};
use forebay_feed::{
    BatchFeatures, BlockDataset, BlockSource, DatasetBlock, FeatureField, Feed, FeedBatch,
    FeedOptions, FeedStats, HostMemory, SampleOrder, SlotAllocator, SlotMemory,
};
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_threads::{join_thread, start_scoped};

use super::pinned::PinnedBuffer;
use super::{CHECKSUM_KERNEL, CudaDevice, checksum, driver_fault};
use crate::{ComputeDevice, DeliveredBatch, DeviceStage, run_stage};

/// Numbers of a row of the batches that are checked.
const COLUMNS: usize = 64;

/// Rows of a block of theirs.
const BLOCK_ROWS: u32 = 65_536;

/// Rows that their shuffle mixes.
const WINDOW_ROWS: u64 = 1 << 20;

/// Buffers of the host that copies go round, and of the device: as many as a feed and its ring have.
const HOST_BUFFERS: usize = 4;
const DEVICE_BUFFERS: usize = 3;

/// Bytes per second from page-locked memory to the device, the best of several rounds.
#[derive(Debug, Clone, Copy)]
pub struct CopyRates {
    /// Copies that follow each other on a stream, without other work between them.
    pub plain: f64,
    /// Copies with the events of a feed's slots and of the ring.
    pub ring: f64,
}

/// Copies to measure.
#[derive(Debug, Clone, Copy)]
pub struct CopyBenchmark {
    /// Bytes of each.
    pub bytes: usize,
    /// Copies of a round.
    pub count: usize,
    /// Rounds of either kind, by turns.
    pub rounds: usize,
}

impl CopyBenchmark {
    /// Measures both kinds on a device.
    pub fn measure(&self, cuda: &CudaDevice) -> Result<CopyRates> {
        let buffer = |_| PinnedBuffer::new(cuda.context(), self.bytes);
        let mut from = (0..HOST_BUFFERS).map(buffer).collect::<Result<Vec<_>>>()?;
        let mut to = (0..DEVICE_BUFFERS)
            .map(|_| cuda.memory(self.bytes))
            .collect::<Result<Vec<_>>>()?;
        // The first round of each warms up.
        self.time_plain_copies(cuda, &from, &to)?;
        self.time_ring_copies(cuda, &mut from, &mut to)?;
        let mut best = CopyRates {
            plain: 0.0,
            ring: 0.0,
        };
        for _ in 0..self.rounds {
            best.plain = best
                .plain
                .max(self.bytes_per_second(self.time_plain_copies(cuda, &from, &to)?));
            best.ring = best
                .ring
                .max(self.bytes_per_second(self.time_ring_copies(cuda, &mut from, &mut to)?));
        }
        Ok(best)
    }

    fn bytes_per_second(&self, took: Duration) -> f64 {
        (self.bytes * self.count) as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The driver's call in a loop. One stream keeps the order of copies into the same buffer.
    fn time_plain_copies(
        &self,
        cuda: &CudaDevice,
        from: &[PinnedBuffer],
        to: &[CudaSlice<u8>],
    ) -> Result<Duration> {
        let stream = cuda.copies();
        cuda.context()
            .bind_to_thread()
            .map_err(driver_fault("copy"))?;
        let begin = Instant::now();
        for (from, to) in from.iter().cycle().zip(to.iter().cycle()).take(self.count) {
            let (address, _) = to.device_ptr(stream);
            #[allow(unsafe_code, reason = "the driver's call")]
            // SAFETY: both buffers have this number of bytes, and outlive the copy, which is waited
            // for below.
            unsafe { result::memcpy_htod_async(address, from.bytes(), stream.cu_stream()) }
                .map_err(driver_fault("copy"))?;
        }
        cuda.finish()?;
        Ok(begin.elapsed())
    }

    /// Time of the ring's operations on each batch, without filling it and without computing.
    fn time_ring_copies(
        &self,
        cuda: &CudaDevice,
        from: &mut [PinnedBuffer],
        to: &mut [CudaSlice<u8>],
    ) -> Result<Duration> {
        let events = || -> Result<Vec<_>> { to.iter().map(|_| cuda.event()).collect() };
        let mut copied = events()?;
        let mut computed = events()?;
        let begin = Instant::now();
        for copy in 0..self.count {
            let host = copy % HOST_BUFFERS;
            let slot = copy % DEVICE_BUFFERS;
            from[host].bytes_mut()?;
            cuda.copies_wait(&computed[slot])?;
            cuda.copy(&from[host], &mut to[slot])?;
            cuda.record_copied(&mut copied[slot])?;
            cuda.compute_waits(&copied[slot])?;
            cuda.record_computed(&mut computed[slot])?;
        }
        cuda.finish()?;
        Ok(begin.elapsed())
    }
}

/// Batches whose checksums are computed on the device and on the host.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryCheck {
    /// Number of batches.
    pub batches: u32,
    /// Rows of each: of 64 numbers in single precision.
    pub batch_rows: u32,
    /// Threads of the host.
    pub threads: usize,
}

/// Result of a delivery check.
#[derive(Debug)]
pub struct DeliveryReport {
    /// Batches whose checksum on the device is another than on the host.
    pub wrong: usize,
    /// Statistics of the feed, without any pause of the consumer.
    pub stats: FeedStats,
}

impl DeliveryCheck {
    /// Sends shuffled batches through the ring as fast as they come, and compares the checksum of each.
    pub fn check_batches(&self, cuda: &CudaDevice) -> Result<DeliveryReport> {
        let rows = distinct_block()?;
        let sums = cuda
            .compute()
            .alloc_zeros::<u64>(self.batches as usize)
            .map_err(driver_fault("allocate checksums"))?;
        cuda.finish()?;
        let mut stage = ChecksumStage {
            kernel: cuda.kernel(CHECKSUM_KERNEL, "checksum")?,
            sums,
        };
        let stats = run_stage(
            &mut self.feed(&rows, Arc::new(cuda.pinned()))?,
            cuda,
            &mut stage,
        )?;
        let device = cuda
            .compute()
            .clone_dtoh(&stage.sums)
            .map_err(driver_fault("copy checksums back"))?;
        cuda.finish()?;
        let host = self.host_checksums(&rows)?;
        if host.len() != self.batches as usize || stats.steps != u64::from(self.batches) {
            return Err(Fault::internal(
                "a feed gave another number of batches than it should",
            ));
        }
        let wrong = device
            .iter()
            .zip(&host)
            .filter(|(device, host)| device != host)
            .count();
        Ok(DeliveryReport { wrong, stats })
    }

    fn feed(&self, rows: &RecordBatch, allocator: Arc<dyn SlotAllocator>) -> Result<Feed> {
        let rows_total = u64::from(self.batches) * u64::from(self.batch_rows);
        let source = Arc::new(RepeatedBlock {
            block: rows.clone(),
            rows: rows_total,
        });
        let dense = (0..COLUMNS)
            .map(|column| FeatureField::new(format!("x{column}")))
            .collect();
        let features = BatchFeatures {
            dense,
            ..BatchFeatures::default()
        };
        let mut config = FeedOptions::new(
            vec![source],
            features,
            SampleOrder::shuffled(1, WINDOW_ROWS),
        );
        (config.batch_rows, config.threads, config.allocator) =
            (self.batch_rows, self.threads, allocator);
        // Threads of the host hold a batch each while they compute.
        config.slots_max = config.slots_max.max(2 * self.threads);
        Feed::start(config)
    }

    /// The checksums of the same batches; threads take one at a time.
    fn host_checksums(&self, rows: &RecordBatch) -> Result<Vec<u64>> {
        let feed = Mutex::new(self.feed(rows, Arc::new(HostMemory))?);
        let sums = Mutex::new(vec![0; self.batches as usize]);
        let take = || -> Option<Result<FeedBatch>> {
            feed.lock().unwrap_or_else(PoisonError::into_inner).next()
        };
        let work = || -> Result<()> {
            while let Some(batch) = take() {
                let batch = batch?;
                let slot = batch
                    .slot()
                    .ok_or_else(|| Fault::internal("a batch without memory"))?;
                let sum = checksum(slot.bytes());
                if let Some(at) = sums
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_mut(batch.step() as usize)
                {
                    *at = sum;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let started = (0..self.threads).map(|_| start_scoped(scope, work));
            let threads = started.collect::<Result<Vec<_>>>()?;
            threads.into_iter().try_for_each(join_thread)
        })?;
        Ok(sums.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A block of numbers, each of which occurs once.
fn distinct_block() -> Result<RecordBatch> {
    let columns = (0..COLUMNS).map(|column| {
        let values = (0..BLOCK_ROWS).map(|row| (row * COLUMNS as u32 + column as u32) as f32);
        (
            format!("x{column}"),
            Arc::new(Float32Array::from_iter_values(values)) as ArrayRef,
        )
    });
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// A source that repeats one block, in memory: reading costs nothing. The last one ends with the
/// rows.
struct RepeatedBlock {
    block: RecordBatch,
    rows: u64,
}

impl RepeatedBlock {
    fn rows_of(&self, block: u64) -> u64 {
        (self.rows - block * u64::from(BLOCK_ROWS)).min(u64::from(BLOCK_ROWS))
    }
}

impl BlockSource for RepeatedBlock {
    fn dataset(&self) -> BlockDataset {
        let blocks = 0..self.rows.div_ceil(u64::from(BLOCK_ROWS));
        let blocks = blocks.map(|block| DatasetBlock {
            rows: self.rows_of(block),
            ..DatasetBlock::default()
        });
        BlockDataset::new(ContentId::of(b"repeated"), blocks.collect::<Vec<_>>())
    }

    fn read(
        &self,
        block: u32,
        _columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let count = self.rows_of(u64::from(block)) as usize;
        let mut slices = (0..count)
            .step_by(8192)
            .map(|first| self.block.slice(first, (count - first).min(8192)));
        let _ = slices.try_for_each(rows);
        Ok(Duration::ZERO)
    }
}

/// Computes the checksum of each batch on the device.
struct ChecksumStage {
    kernel: CudaFunction,
    sums: CudaSlice<u64>,
}

impl DeviceStage<CudaDevice> for ChecksumStage {
    fn step(&mut self, batch: DeliveredBatch<'_, CudaDevice>) -> Result<()> {
        let step = batch.step as usize;
        let too_many = || Fault::new(codes::LIMIT, "more batches came than were asked for");
        let mut sum = self
            .sums
            .try_slice_mut(step..step + 1)
            .ok_or_else(too_many)?;
        batch
            .device
            .add_checksum(&self.kernel, batch.memory, &mut sum)
    }
}
