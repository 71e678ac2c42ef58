//! Page-locked host memory that knows when the device has finished with it.
//!
//! Copies between page-locked memory and the device run after the call that submits them has
//! returned. cudarc can track them, but [`CudaDevice::open`](super::CudaDevice::open) turns its
//! tracking off, because that also inserts waits between the two streams. With tracking off, the
//! event inside [`PinnedHostSlice`] is **never recorded**, and its `as_slice` and `as_mut_slice`
//! return at once. So each buffer here owns an event. The whole protocol:
//!
//! | event | recorded | on stream | waited for by | before | otherwise |
//! |---|---|---|---|---|---|
//! | `PinnedBuffer::copied` of a feed's slot | after each copy to the device | copies | the host thread that fills the slot (`SlotMemory::bytes_mut`) | it writes the next batch | the device reads rows of the next batch |
//! | `PinnedBuffer::copied` of a slot | the same | copies | `Drop` | the memory is freed | the device reads freed memory |
//! | `PinnedBuffer::copied` of a report | after each copy from the device | compute | the host (`Accelerator::wait_readback`) | it reads the report | losses are read before they are computed |
//! | `PinnedBuffer::copied` of a report | the same | compute | the compute stream, by its order | the report is written again | none: one stream keeps its order |
//! | `PinnedBuffer::copied` of a report | the same | compute | `Drop` | the memory is freed | the device writes freed memory |
//! | none (`LentPinnedMemory`) | | by the consumer, on any stream | the host thread that fills the slot | it writes the next batch | the consumer's copy reads rows of the next batch |
//! | `Slot::copied` of the ring | after each copy to the device | copies | the compute stream | it computes with the batch | kernels read the batch before |
//! | `Slot::computed` of the ring | after each step | compute | the copies stream | it overwrites the device's slot | kernels read a batch that is half overwritten |
//! | none (`ComputeDevice::finish`) | | | the host, for both streams | device memory is freed | kernels use freed memory |
//!
//! An event that was never recorded counts as done. A copy whose event cannot be recorded is waited
//! for at once (the stream is synchronised), so that no buffer is ever in use without an event for
//! it.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaEvent, CudaStream, CudaView, DevicePtrMut, DriverError, HostSlice,
    PinnedHostSlice, SyncOnDrop, sys,
};
use forebay_feed::{SlotAllocator, SlotMemory};
use forebay_model::Result;

use super::driver_fault;

/// Slots of a feed in page-locked memory.
pub struct PinnedMemory(pub(super) Arc<CudaContext>);

impl SlotAllocator for PinnedMemory {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        Ok(Box::new(PinnedBuffer::new(&self.0, bytes)?))
    }
}

/// Slots of a feed in page-locked memory whose consumer copies them to the device by itself, and
/// drops them while the copies are queued. Their streams are not known: a slot is written again
/// when all work of the context that was queued until then is done.
pub struct LentPinnedMemory(pub(super) Arc<CudaContext>);

impl SlotAllocator for LentPinnedMemory {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        Ok(Box::new(LentBuffer(
            PinnedBuffer::new(&self.0, bytes)?,
            self.0.clone(),
        )))
    }
}

struct LentBuffer(PinnedBuffer, Arc<CudaContext>);

impl SlotMemory for LentBuffer {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.1
            .synchronize()
            .map_err(driver_fault("finish the consumer's copies"))?;
        self.0.wait_and_write()
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        // The buffer frees the memory next. A device that failed reports it to its next caller.
        let _ = self.1.synchronize();
    }
}

/// Page-locked bytes, and the event of the last copy from or to them.
pub struct PinnedBuffer {
    slice: PinnedHostSlice<u8>,
    start: *mut u8,
    copied: CudaEvent,
}

#[allow(unsafe_code, reason = "a pointer into memory that the buffer owns")]
// SAFETY: the pointer is that of the slice, which may move between threads, and lives as long.
unsafe impl Send for PinnedBuffer {}

#[allow(unsafe_code, reason = "a pointer into memory that the buffer owns")]
// SAFETY: through a shared buffer the memory is only read, by threads and by copies to the device.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Zeroed memory of `bytes` bytes, aligned to a page.
    pub fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<PinnedBuffer> {
        let fault = driver_fault("lock memory");
        let copied = context
            .new_event(Some(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC))
            .map_err(&fault)?;
        #[allow(unsafe_code, reason = "the memory is not set")]
        // SAFETY: all of it is written below, before anything reads it.
        let slice =
            unsafe { context.alloc_pinned_with_flags::<u8>(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let mut slice = slice.map_err(&fault)?;
        let start = slice.as_mut_ptr().map_err(&fault)?;
        let mut buffer = PinnedBuffer {
            slice,
            start,
            copied,
        };
        buffer.wait_and_write()?.fill(0);
        Ok(buffer)
    }

    /// Copies all bytes to the device, later; `to` is at least as long.
    pub fn copy_to<M: DevicePtrMut<u8>>(
        &self,
        stream: &Arc<CudaStream>,
        to: &mut M,
    ) -> Result<(), DriverError> {
        stream.memcpy_htod(self, to)?;
        self.record(stream)
    }

    /// Copies bytes of the device here, later; `from` is at most as long.
    pub fn copy_from(
        &mut self,
        stream: &Arc<CudaStream>,
        from: &CudaView<'_, u8>,
    ) -> Result<(), DriverError> {
        stream.memcpy_dtoh(from, self)?;
        self.record(stream)
    }

    /// Waits for the last copy, and returns the copied bytes.
    pub fn wait_and_read(&self) -> Result<&[u8], DriverError> {
        self.copied.synchronize()?;
        Ok(self.bytes())
    }

    fn wait_and_write(&mut self) -> Result<&mut [u8]> {
        self.copied
            .synchronize()
            .map_err(driver_fault("finish a copy"))?;
        #[allow(unsafe_code, reason = "memory of the driver")]
        // SAFETY: the slice has this length, no copy uses its memory any more, and the buffer is
        // borrowed exclusively.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start, self.slice.len()) })
    }

    fn record(&self, stream: &Arc<CudaStream>) -> Result<(), DriverError> {
        self.copied
            .record(stream)
            .or_else(|error| stream.synchronize().and(Err(error)))
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // The slice frees the memory next. A device that failed reports it to its next caller.
        let _ = self.copied.synchronize();
    }
}

impl SlotMemory for PinnedBuffer {
    fn bytes(&self) -> &[u8] {
        #[allow(unsafe_code, reason = "memory of the driver")]
        // SAFETY: the slice has this length. Slots are only copied from, which reads as well;
        // reports are read through `wait_and_read` alone.
        unsafe {
            std::slice::from_raw_parts(self.start, self.slice.len())
        }
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.wait_and_write()
    }
}

#[allow(unsafe_code, reason = "cudarc asks for the memory of a copy")]
impl HostSlice<u8> for PinnedBuffer {
    fn len(&self) -> usize {
        self.slice.len()
    }

    // SAFETY: `copy_to` and `copy_from` record the event right after the copy was queued.
    unsafe fn stream_synced_slice<'a>(
        &'a self,
        _stream: &'a CudaStream,
    ) -> (&'a [u8], SyncOnDrop<'a>) {
        (self.bytes(), SyncOnDrop::Record(None))
    }

    // SAFETY: as above; copies from the device follow each other on one stream.
    unsafe fn stream_synced_mut_slice<'a>(
        &'a mut self,
        _stream: &'a CudaStream,
    ) -> (&'a mut [u8], SyncOnDrop<'a>) {
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start, self.slice.len()) };
        (bytes, SyncOnDrop::Record(None))
    }
}

/// The slot as page-locked memory, where it is.
pub fn as_pinned(slot: &dyn SlotMemory) -> Option<&PinnedBuffer> {
    let any: &dyn Any = slot;
    any.downcast_ref()
}
