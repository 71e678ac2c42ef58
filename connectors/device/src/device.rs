//! Requirements for a device that receives batches.

use forebay_feed::SlotMemory;
use forebay_model::Result;

/// A device with two queues of work: one for copies, one for computation. Work in a queue is done
/// in order and asynchronously; events synchronise one queue with the other. An event that was
/// recorded again stands for the later moment.
pub trait ComputeDevice {
    /// A slot on the device.
    type Memory;
    /// A moment in a queue.
    type Event;

    /// Memory for a batch.
    fn memory(&self, bytes: usize) -> Result<Self::Memory>;

    /// A new event, which counts as done until it is recorded.
    fn event(&self) -> Result<Self::Event>;

    /// Makes later copies wait for the event.
    fn copies_wait(&self, event: &Self::Event) -> Result<()>;

    /// Copies a slot of the feed. The slot's [`SlotMemory::bytes_mut`] waits until that is done, so that
    /// a slot is not overwritten before it is copied.
    fn copy(&self, from: &dyn SlotMemory, to: &mut Self::Memory) -> Result<()>;

    /// The event is the moment at which all copies so far are done.
    fn record_copied(&self, event: &mut Self::Event) -> Result<()>;

    /// Makes later computations wait for the event.
    fn compute_waits(&self, event: &Self::Event) -> Result<()>;

    /// The event is the moment at which everything so far is computed.
    fn record_computed(&self, event: &mut Self::Event) -> Result<()>;

    /// Waits until both queues are empty.
    fn finish(&self) -> Result<()>;
}
