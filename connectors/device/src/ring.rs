//! The ring: slots on a device that batches go through, and the stage that computes with them.

use forebay_feed::{BatchLayout, Feed, FeedBatch, FeedStats};
use forebay_model::{Fault, Result};

use super::device::ComputeDevice;

/// Slots on the device: one is computed with while the next is copied, and a third lets the copies be ahead.
const SLOTS: usize = 3;

/// Training stage of a library's user: computes with batches in the device's memory.
///
/// ```
/// use forebay_device::{DeliveredBatch, DeviceStage, HostDevice};
/// use forebay_model::Result;
///
/// /// Adds up what it gets.
/// struct Sum(u64);
///
/// impl DeviceStage<HostDevice> for Sum {
///     fn step(&mut self, batch: DeliveredBatch<'_, HostDevice>) -> Result<()> {
///         self.0 += batch.memory.iter().map(|byte| u64::from(*byte)).sum::<u64>();
///         Ok(())
///     }
/// }
/// ```
pub trait DeviceStage<D: ComputeDevice> {
    /// Computes with a batch. Every read of `memory` must be queued for computation on the device
    /// during this call: later reads may find the next batch there. On CUDA that queue is
    /// [`CudaDevice::compute`](super::CudaDevice::compute), and it already waits for the copy.
    fn step(&mut self, batch: DeliveredBatch<'_, D>) -> Result<()>;
}

/// A batch on a device.
pub struct DeliveredBatch<'a, D: ComputeDevice> {
    /// The device.
    pub device: &'a D,
    /// Bytes of the batch, in the layout.
    pub memory: &'a D::Memory,
    /// Layout of the parts.
    pub layout: &'a BatchLayout,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The step in the epoch, from 0 where the epoch began or the feed was resumed.
    pub step: u64,
    /// Rows that are not padding; they come first.
    pub rows: usize,
    /// Rows of the batch's shape.
    pub shape_rows: usize,
}

/// Slots on a device.
pub struct DeviceRing<'d, D: ComputeDevice> {
    device: &'d D,
    layout: BatchLayout,
    slots: Vec<RingSlot<D>>,
    next: usize,
}

struct RingSlot<D: ComputeDevice> {
    memory: D::Memory,
    copied: D::Event,
    computed: D::Event,
}

impl<'d, D: ComputeDevice> DeviceRing<'d, D> {
    /// A ring for batches of this layout.
    pub fn new(device: &'d D, layout: &BatchLayout) -> Result<DeviceRing<'d, D>> {
        let slot = |_| {
            Ok(RingSlot {
                memory: device.memory(layout.bytes)?,
                copied: device.event()?,
                computed: device.event()?,
            })
        };
        Ok(DeviceRing {
            device,
            layout: layout.clone(),
            slots: (0..SLOTS).map(slot).collect::<Result<_>>()?,
            next: 0,
        })
    }

    /// Sends a batch through the next slot, and lets the stage compute with it. Comes back before either is
    /// done; the batch's own slot goes back to the feed, which waits for the copy before it writes there.
    pub fn deliver(&mut self, batch: FeedBatch, stage: &mut impl DeviceStage<D>) -> Result<()> {
        let device = self.device;
        let layout = &self.layout;
        let next = self.next;
        self.next = (next + 1) % self.slots.len();
        let Some(slot) = self.slots.get_mut(next) else {
            return Err(Fault::internal("a ring without slots"));
        };
        let from = batch
            .slot()
            .ok_or_else(|| Fault::internal("a batch without memory"))?;
        // The copy must not overwrite memory that kernels still read ...
        device.copies_wait(&slot.computed)?;
        device.copy(from, &mut slot.memory)?;
        device.record_copied(&mut slot.copied)?;
        // ... and kernels must not read memory before the copy is done.
        device.compute_waits(&slot.copied)?;
        let epoch = batch.epoch();
        let step = batch.step();
        let rows = batch.rows();
        let shape_rows = batch.shape_rows();
        drop(batch);
        stage.step(DeliveredBatch {
            device,
            memory: &slot.memory,
            layout,
            epoch,
            step,
            rows,
            shape_rows,
        })?;
        device.record_computed(&mut slot.computed)
    }
}

impl<D: ComputeDevice> Drop for DeviceRing<'_, D> {
    fn drop(&mut self) {
        // The device must finish before its memory is freed. A failed device reports the fault to its next caller.
        let _ = self.device.finish();
    }
}

/// Runs a stage with all batches of a feed, and waits for the last. Returns the statistics of the
/// feed.
pub fn run_stage<D: ComputeDevice>(
    feed: &mut Feed,
    device: &D,
    stage: &mut impl DeviceStage<D>,
) -> Result<FeedStats> {
    let mut ring = DeviceRing::new(device, feed.layout())?;
    for batch in feed.by_ref() {
        ring.deliver(batch?, stage)?;
    }
    device.finish()?;
    Ok(feed.take_stats())
}
