//! A feed whose batches are in the memory of a CUDA device; the consumer may hold them for any
//! time.
//!
//! Batches are copied ahead, from page-locked slots of the feed to slots of the device. The consumer gets a
//! [`DeviceBatch`], lets its own streams wait for the copy ([`DeviceBatch::wait_on`]), queues work there, and drops the
//! batch, mostly before that work is done. So the slot goes back with events of those streams, and the next copy to it
//! waits for them. Events in addition to those of [`super::pinned`]:
//!
//! | event | recorded | on stream | waited for by | before | otherwise |
//! |---|---|---|---|---|---|
//! | `DeviceSlot::copied` | after each copy to the device | copies | the consumer's stream (`wait_on`) | it computes with the batch | kernels read the batch before |
//! | `DeviceSlot::released` | when the batch is dropped | each stream of the consumer | the copies stream | it overwrites or frees the slot | kernels read a batch that is half overwritten |
//!
//! Where the consumer's streams are not known when the batch is dropped ([`ConsumerStream::Unknown`], and
//! [`ConsumerStream::PerThread`], as another thread may drop it), all work of the context is waited for instead.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::{CudaEvent, CudaSlice, DevicePtr, DriverError, result, sys};
use forebay_feed::{
    BatchLayout, DeliveryDigest, Feed, FeedBatch, FeedCursor, FeedOptions, FeedStats,
};
use forebay_model::{Fault, Result, codes};

use super::pinned::as_pinned;
use super::{CudaDevice, driver_fault, with_saved_context};
use crate::device::ComputeDevice;

/// Number of batches that a consumer may hold in addition to the present one and the one before it.
const HELD_MAX: usize = 64;

/// A stream that a consumer works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerStream {
    /// The default stream.
    Legacy,
    /// The default stream of the calling thread.
    PerThread,
    /// A stream by its handle.
    Handle(u64),
    /// Stream that the consumer does not name: the copy is waited for before the batch is handed
    /// over.
    Unknown,
}

impl ConsumerStream {
    fn handle(self) -> Option<sys::CUstream> {
        match self {
            ConsumerStream::Legacy => Some(1 as sys::CUstream),
            ConsumerStream::PerThread => Some(2 as sys::CUstream),
            ConsumerStream::Handle(handle) => Some(handle as sys::CUstream),
            ConsumerStream::Unknown => None,
        }
    }
}

/// A feed whose batches lie on a device.
pub struct DeviceFeed {
    feed: Feed,
    slots: Arc<DeviceSlotPool>,
    /// Batches that are copied or being copied.
    ahead: VecDeque<PrefetchedBatch>,
    prefetch: usize,
    /// Position of the feed after the last batch that was handed over.
    cursor: FeedCursor,
    /// Fault to return after the batches ahead.
    fault: Option<Fault>,
    delivered: FeedStats,
    copied_bytes: u64,
}

struct PrefetchedBatch {
    batch: DeviceBatch,
    cursor: FeedCursor,
}

/// Activity of a feed and its copies since the last query.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStats {
    /// Activity of the feed.
    pub feed: FeedStats,
    /// Bytes copied to the device.
    pub copied_bytes: u64,
}

/// Batch on a device. Dropping it returns the slot.
pub struct DeviceBatch {
    slots: Arc<DeviceSlotPool>,
    slot: Option<DeviceSlot>,
    /// Streams that wait for it: those that may compute with it.
    streams: Mutex<Vec<ConsumerStream>>,
    epoch: u64,
    step: u64,
    rows: usize,
    shape_rows: usize,
    bytes: usize,
    receipt: DeliveryDigest,
}

struct DeviceSlot {
    memory: CudaSlice<u8>,
    copied: CudaEvent,
    /// Events after the consumer's reads of the last copy.
    released: Vec<CudaEvent>,
}

/// Slots on a device.
struct DeviceSlotPool {
    cuda: Arc<CudaDevice>,
    layout: BatchLayout,
    /// Slots that are kept when no batch needs them.
    kept: usize,
    state: Mutex<SlotPoolState>,
    process: u32,
}

#[derive(Default)]
struct SlotPoolState {
    free: VecDeque<DeviceSlot>,
    all: usize,
}

impl DeviceFeed {
    /// Starts a feed that copies up to `prefetch` batches ahead, which is at least 1.
    pub fn start(
        cuda: Arc<CudaDevice>,
        config: FeedOptions,
        prefetch: usize,
    ) -> Result<DeviceFeed> {
        let feed = Feed::start(FeedOptions {
            allocator: Arc::new(cuda.pinned()),
            ..config
        })?;
        // The present batch, and the one before it, which most loops drop only when they have got the next.
        let slot_count = prefetch + 2;
        let layout = feed.layout().clone();
        let slots = Arc::new(DeviceSlotPool {
            cuda,
            layout,
            kept: slot_count,
            state: Mutex::default(),
            process: std::process::id(),
        });
        Ok(DeviceFeed {
            cursor: feed.cursor().clone(),
            feed,
            slots,
            ahead: VecDeque::new(),
            prefetch,
            fault: None,
            delivered: FeedStats::default(),
            copied_bytes: 0,
        })
    }

    /// Position of the feed after the last batch that was handed over.
    pub fn cursor(&self) -> &FeedCursor {
        &self.cursor
    }

    /// Number of batches of an epoch that this feed delivers.
    pub fn steps(&self, epoch: u64) -> u64 {
        self.feed.steps(epoch)
    }

    /// Activity of the feed since the last call.
    pub fn take_stats(&mut self) -> DeviceStats {
        let FeedStats {
            steps, rows, bytes, ..
        } = std::mem::take(&mut self.delivered);
        let feed = FeedStats {
            steps,
            rows,
            bytes,
            ..self.feed.take_stats()
        };
        DeviceStats {
            feed,
            copied_bytes: std::mem::take(&mut self.copied_bytes),
        }
    }

    /// The next batch, waiting no longer than this; `Ok(None)` where it is not there yet. `None` and faults are those
    /// of [`Feed::next_within`].
    pub fn next_within(&mut self, patience: Duration) -> Option<Result<Option<DeviceBatch>>> {
        if self.ahead.is_empty() {
            if let Some(fault) = self.fault.take() {
                return Some(Err(fault));
            }
            match self.feed.next_within(patience)? {
                Ok(Some(batch)) => match self.prefetch_batch(batch) {
                    Ok(()) => {}
                    Err(fault) => return Some(Err(fault)),
                },
                Ok(None) => return Some(Ok(None)),
                Err(fault) => return Some(Err(fault)),
            }
        }
        let PrefetchedBatch { batch, cursor } = self.ahead.pop_front()?;
        self.cursor = cursor;
        self.delivered.steps += 1;
        self.delivered.rows += batch.rows as u64;
        self.delivered.bytes += batch.bytes as u64;
        self.copy_ahead();
        Some(Ok(Some(batch)))
    }

    /// Copies filled batches to the device, as far as there are free slots.
    fn copy_ahead(&mut self) {
        while self.fault.is_none()
            && self.ahead.len() < self.prefetch
            && self.slots.has_free()
            && self.feed.is_ready()
            && let Some(Ok(Some(batch))) = self.feed.next_within(Duration::ZERO)
        {
            self.fault = self.prefetch_batch(batch).err();
        }
    }

    fn prefetch_batch(&mut self, batch: FeedBatch) -> Result<()> {
        let cursor = self.feed.cursor().clone();
        let batch = DeviceSlotPool::copy_batch(&self.slots, &batch)?;
        self.copied_bytes += self.slots.layout.bytes as u64;
        self.ahead.push_back(PrefetchedBatch { batch, cursor });
        Ok(())
    }
}

impl DeviceSlotPool {
    fn lock(&self) -> MutexGuard<'_, SlotPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a batch can be copied without more slots than are kept.
    fn has_free(&self) -> bool {
        let state = self.lock();
        !state.free.is_empty() || state.all < self.kept
    }

    /// A slot that no kernel reads any more once the copies stream has reached its present end.
    fn take_slot(&self) -> Result<DeviceSlot> {
        let mut state = self.lock();
        if let Some(mut slot) = state.free.pop_front() {
            drop(state);
            self.await_release(&mut slot)
                .map_err(driver_fault("wait for an event"))?;
            return Ok(slot);
        }
        if state.all >= self.kept + HELD_MAX {
            let message = format!(
                "all {} batches on the GPU are held by the consumer",
                state.all
            );
            return Err(Fault::new(codes::MEMORY, message)
                .hint("drop each batch, or copy (`clone`) what you keep, before the next ones"));
        }
        let slot = DeviceSlot {
            memory: self.cuda.memory(self.layout.bytes)?,
            copied: self.cuda.event()?,
            released: Vec::new(),
        };
        state.all += 1;
        Ok(slot)
    }

    /// Makes the copies stream wait for the consumer.
    fn await_release(&self, slot: &mut DeviceSlot) -> Result<(), DriverError> {
        slot.released
            .drain(..)
            .try_for_each(|event| self.cuda.copies().wait(&event))
    }

    /// Queues the copy of a batch; its own slot goes back to the feed, which waits for the copy before it writes.
    fn copy_batch(slots: &Arc<DeviceSlotPool>, batch: &FeedBatch) -> Result<DeviceBatch> {
        let from = batch
            .slot()
            .and_then(as_pinned)
            .ok_or_else(|| Fault::internal("a batch without pinned memory"))?;
        let copies = slots.cuda.copies();
        let mut slot = slots.take_slot()?;
        let copied = from
            .copy_to(copies, &mut slot.memory)
            .and_then(|()| slot.copied.record(copies));
        let sent = DeviceBatch {
            slots: slots.clone(),
            slot: Some(slot),
            streams: Mutex::default(),
            epoch: batch.epoch(),
            step: batch.step(),
            rows: batch.rows(),
            shape_rows: batch.shape_rows(),
            bytes: batch.bytes(),
            receipt: batch.receipt(),
        };
        copied.map(|()| sent).map_err(driver_fault("copy a batch"))
    }

    fn return_slot(&self, mut slot: DeviceSlot) {
        let mut state = self.lock();
        if state.all <= self.kept {
            return state.free.push_back(slot);
        }
        // It was made while the consumer held all.
        state.all -= 1;
        drop(state);
        let _ = self.await_release(&mut slot);
    }
}

impl Drop for DeviceSlotPool {
    fn drop(&mut self) {
        let free = std::mem::take(&mut self.lock().free);
        if self.process != std::process::id() {
            // After a fork the device is the parent's.
            return std::mem::forget(free);
        }
        with_saved_context(|| {
            for mut slot in free {
                // Memory is freed in the order of the copies stream; a device that failed has said so.
                let _ = self.await_release(&mut slot);
            }
        });
    }
}

impl DeviceBatch {
    /// The number of the device.
    pub fn device(&self) -> usize {
        self.slots.cuda.context().ordinal()
    }

    /// Address of its memory on the device.
    pub fn address(&self) -> u64 {
        self.slot
            .as_ref()
            .map_or(0, |slot| slot.memory.device_ptr(self.slots.cuda.copies()).0)
    }

    /// Layout of its parts.
    pub fn layout(&self) -> &BatchLayout {
        &self.slots.layout
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The step in the epoch, from 0 where the epoch began or the feed was resumed.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Rows that are not padding; they come first.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows of the batch's shape.
    pub fn shape_rows(&self) -> usize {
        self.shape_rows
    }

    /// A hash of the rows and their positions, where the feed computes receipts.
    pub fn receipt(&self) -> DeliveryDigest {
        self.receipt
    }

    /// Makes later work of a stream wait until the batch is copied. The batch must not be dropped
    /// before everything is queued that computes with it, and the stream must live longer than the
    /// batch.
    pub fn wait_on(&self, stream: ConsumerStream) -> Result<()> {
        let Some(slot) = &self.slot else {
            return Ok(());
        };
        let waits = || -> Result<(), DriverError> {
            let Some(handle) = stream.handle() else {
                return slot.copied.synchronize();
            };
            self.slots.cuda.context().bind_to_thread()?;
            #[allow(unsafe_code, reason = "a stream of another library")]
            // SAFETY: the event is ours, and the caller says that the stream is one of this device.
            unsafe {
                result::stream::wait_event(
                    handle,
                    slot.copied.cu_event(),
                    sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
                )
            }
        };
        with_saved_context(waits).map_err(driver_fault("let the consumer's stream wait"))?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        Ok(())
    }

    /// Records how far the consumer's streams are.
    fn record_release(&mut self, slot: &mut DeviceSlot) {
        let context = self.slots.cuda.context();
        let streams = std::mem::take(
            self.streams
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let record = |stream: &ConsumerStream| -> Result<CudaEvent, DriverError> {
            let event = context.new_event(None)?;
            let handle = stream
                .handle()
                .filter(|_| *stream != ConsumerStream::PerThread);
            #[allow(unsafe_code, reason = "a stream of another library")]
            match handle {
                // SAFETY: the stream was one of this device, and outlives the batch.
                Some(handle) => unsafe { result::event::record(event.cu_event(), handle)? },
                None => context.synchronize()?,
            }
            Ok(event)
        };
        let recorded: Result<Vec<CudaEvent>, DriverError> = streams.iter().map(record).collect();
        match recorded {
            Ok(events) => slot.released = events,
            // Only the end of all work shows that the consumer has finished.
            Err(_) => drop(context.synchronize()),
        }
    }
}

impl Drop for DeviceBatch {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else {
            return;
        };
        if self.slots.process != std::process::id() {
            return std::mem::forget(slot);
        }
        with_saved_context(|| {
            self.record_release(&mut slot);
            self.slots.return_slot(slot);
        });
    }
}
