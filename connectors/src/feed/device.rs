//! What a device must do for batches to reach it.

use forebay_feed::SlotMemory;
use forebay_model::Result;

/// A device with two queues of work: one for copies, one for computation. What is put into a queue is done
/// in its order and later than the call; events tell one queue how far the other is. An event that was
/// recorded again means the later moment.
pub trait ComputeDevice {
    /// A slot on the device.
    type Memory;
    /// A moment in a queue.
    type Event;

    /// Memory for a batch.
    fn memory(&self, bytes: usize) -> Result<Self::Memory>;

    /// An event that was not recorded yet: who waits for it does not wait.
    fn event(&self) -> Result<Self::Event>;

    /// What is copied from now on waits for the event.
    fn copies_wait(&self, event: &Self::Event) -> Result<()>;

    /// Copies a slot of the feed. The slot's [`SlotMemory::bytes_mut`] waits until that is done, so that
    /// a slot is not overwritten before it is copied.
    fn copy(&self, from: &dyn SlotMemory, to: &mut Self::Memory) -> Result<()>;

    /// The event is the moment at which all copies so far are done.
    fn record_copied(&self, event: &mut Self::Event) -> Result<()>;

    /// What is computed from now on waits for the event.
    fn compute_waits(&self, event: &Self::Event) -> Result<()>;

    /// The event is the moment at which everything so far is computed.
    fn record_computed(&self, event: &mut Self::Event) -> Result<()>;

    /// Waits until both queues are empty.
    fn finish(&self) -> Result<()>;
}
