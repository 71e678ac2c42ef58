//! A batch in the consumer's hands.

use std::sync::Arc;

use forebay_model::Result;

use super::schedule::BatchJob;
use super::shared_feed::{FilledBatch, SharedFeed};
use crate::DeliveryDigest;
use crate::slot::{BatchLayout, PartLayout, PartRole, SlotMemory};

/// A batch. Its memory is lent: dropping the batch gives the slot back to the feed.
pub struct FeedBatch {
    shared: Arc<SharedFeed>,
    job: BatchJob,
    slot: Option<Box<dyn SlotMemory>>,
    receipt: DeliveryDigest,
}

impl FeedBatch {
    pub(super) fn new(shared: Arc<SharedFeed>, filled: FilledBatch) -> FeedBatch {
        FeedBatch {
            shared,
            job: filled.job,
            slot: Some(filled.slot),
            receipt: filled.receipt,
        }
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.job.epoch
    }

    /// The step in the epoch, from 0 where the epoch began or the feed was resumed.
    pub fn step(&self) -> u64 {
        self.job.step
    }

    /// The place of the first row in the feed's sequence; the others follow.
    pub fn first_place(&self) -> u64 {
        self.job.places.start
    }

    /// Rows that are not padding; they come first.
    pub fn rows(&self) -> usize {
        (self.job.places.end - self.job.places.start) as usize
    }

    /// Rows of the batch's shape.
    pub fn shape_rows(&self) -> usize {
        self.job.shape_rows
    }

    /// The layout of the parts in [`FeedBatch::slot`].
    pub fn layout(&self) -> &BatchLayout {
        &self.shared.packer.layout
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> usize {
        let parts = &self.layout().parts;
        let row_bytes: usize = parts.iter().map(|part| part.row_bytes).sum();
        row_bytes * self.job.shape_rows
    }

    /// The bytes of a part, row after row; none where the batch does not have it.
    pub fn part(&self, role: PartRole) -> &[u8] {
        match self.layout().part(role) {
            Some(part) => self.bytes_of(part),
            None => &[],
        }
    }

    fn bytes_of(&self, part: &PartLayout) -> &[u8] {
        let Some(slot) = self.slot() else {
            return &[];
        };
        let end = part.offset + part.row_bytes * self.job.shape_rows;
        slot.bytes().get(part.offset..end).unwrap_or(&[])
    }

    /// A part as numbers; none where the batch does not have it or has it in another type.
    pub fn numbers<T: bytemuck::AnyBitPattern>(&self, role: PartRole) -> &[T] {
        bytemuck::try_cast_slice(self.part(role)).unwrap_or(&[])
    }

    /// A part as numbers, to change in the slot; none where the batch does not have it or has it in
    /// another type.
    ///
    /// # Errors
    ///
    /// Fails if the slot's memory cannot be written.
    pub fn numbers_mut<T: bytemuck::Pod>(&mut self, role: PartRole) -> Result<&mut [T]> {
        let Some(part) = self.shared.packer.layout.part(role) else {
            return Ok(&mut []);
        };
        let range = part.offset..part.offset + part.row_bytes * self.job.shape_rows;
        let Some(slot) = &mut self.slot else {
            return Ok(&mut []);
        };
        let bytes = slot.bytes_mut()?.get_mut(range).unwrap_or_default();
        Ok(bytemuck::try_cast_slice_mut(bytes).unwrap_or_default())
    }

    /// The slot's memory, for the caller that supplied the allocator.
    pub fn slot(&self) -> Option<&dyn SlotMemory> {
        self.slot.as_deref()
    }

    /// A hash of the rows and their places, where the feed was asked for receipts.
    pub fn receipt(&self) -> DeliveryDigest {
        self.receipt
    }
}

impl Drop for FeedBatch {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.shared.give_back(slot);
        }
    }
}
