//! The ring: slots on a device that batches go through, and the stage that computes with them.

use forebay_feed::{Batch, Feed, Layout, Stats};
use forebay_model::{Fault, Result};

use super::device::Device;

/// Slots on the device: one is computed with while the next is copied, and a third lets the copies be ahead.
const SLOTS: usize = 3;

/// A training stage of one's own: computes with batches where the device has them.
///
/// ```
/// use forebay_connectors::{Delivered, HostDevice, Stage};
/// use forebay_model::Result;
///
/// /// Adds up what it gets.
/// struct Sum(u64);
///
/// impl Stage<HostDevice> for Sum {
///     fn step(&mut self, batch: Delivered<'_, HostDevice>) -> Result<()> {
///         self.0 += batch.memory.iter().map(|byte| u64::from(*byte)).sum::<u64>();
///         Ok(())
///     }
/// }
/// ```
pub trait Stage<D: Device> {
    /// Computes with a batch. Whatever reads `memory` goes into the device's queue for computation during
    /// this call: what comes later may find the next batch there. On CUDA that queue is
    /// [`Cuda::compute`](super::Cuda::compute), and it has been told to wait for the copy already.
    fn step(&mut self, batch: Delivered<'_, D>) -> Result<()>;
}

/// A batch on a device.
pub struct Delivered<'a, D: Device> {
    /// The device.
    pub device: &'a D,
    /// Its bytes, as the layout says.
    pub memory: &'a D::Memory,
    /// Where its parts lie.
    pub layout: &'a Layout,
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
pub struct Ring<'d, D: Device> {
    device: &'d D,
    layout: Layout,
    slots: Vec<Slot<D>>,
    next: usize,
}

struct Slot<D: Device> {
    memory: D::Memory,
    copied: D::Event,
    computed: D::Event,
}

impl<'d, D: Device> Ring<'d, D> {
    /// A ring for batches of this layout.
    pub fn new(device: &'d D, layout: &Layout) -> Result<Ring<'d, D>> {
        let slot =
            |_| Ok(Slot { memory: device.memory(layout.bytes)?, copied: device.event()?, computed: device.event()? });
        Ok(Ring { device, layout: layout.clone(), slots: (0..SLOTS).map(slot).collect::<Result<_>>()?, next: 0 })
    }

    /// Sends a batch through the next slot, and lets the stage compute with it. Comes back before either is
    /// done; the batch's own slot goes back to the feed, which waits for the copy before it writes there.
    pub fn deliver(&mut self, batch: Batch, stage: &mut impl Stage<D>) -> Result<()> {
        let (device, layout) = (self.device, &self.layout);
        let next = self.next;
        self.next = (next + 1) % self.slots.len();
        let Some(slot) = self.slots.get_mut(next) else { return Err(Fault::internal("a ring without slots")) };
        let from = batch.slot().ok_or_else(|| Fault::internal("a batch without memory"))?;
        // Nobody overwrites what is still computed with ...
        device.copies_wait(&slot.computed)?;
        device.copy(from, &mut slot.memory)?;
        device.record_copied(&mut slot.copied)?;
        // ... nor computes with what is not there yet.
        device.compute_waits(&slot.copied)?;
        let (epoch, step, rows, shape_rows) = (batch.epoch(), batch.step(), batch.rows(), batch.shape_rows());
        drop(batch);
        stage.step(Delivered { device, memory: &slot.memory, layout, epoch, step, rows, shape_rows })?;
        device.record_computed(&mut slot.computed)
    }
}

impl<D: Device> Drop for Ring<'_, D> {
    fn drop(&mut self) {
        // Memory goes when nobody uses it any more; a device that has failed says so to its next caller.
        let _ = self.device.finish();
    }
}

/// Lets a stage compute with all batches of a feed, and waits for the last. Tells how the feed kept up.
pub fn run_stage<D: Device>(feed: &mut Feed, device: &D, stage: &mut impl Stage<D>) -> Result<Stats> {
    let mut ring = Ring::new(device, feed.layout())?;
    for batch in feed.by_ref() {
        ring.deliver(batch?, stage)?;
    }
    device.finish()?;
    Ok(feed.take_stats())
}
