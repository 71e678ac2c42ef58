//! A batch in the consumer's hands.

use std::sync::Arc;

use super::schedule::BatchJob;
use super::worker::{FilledBatch, SharedFeed};
use crate::DeliveryDigest;
use crate::slot::{BatchLayout, PartLayout, PartRole, SlotMemory};

/// A batch. Its memory is lent: dropping the batch gives the slot back to the feed.
pub struct FeedBatch {
    work: Arc<SharedFeed>,
    job: BatchJob,
    slot: Option<Box<dyn SlotMemory>>,
    receipt: DeliveryDigest,
}

impl FeedBatch {
    pub(super) fn new(work: Arc<SharedFeed>, filled: FilledBatch) -> FeedBatch {
        FeedBatch {
            work,
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

    /// Where the parts lie in [`FeedBatch::slot`].
    pub fn layout(&self) -> &BatchLayout {
        &self.work.packer.layout
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> usize {
        self.layout()
            .parts
            .iter()
            .map(|part| part.row_bytes * self.job.shape_rows)
            .sum()
    }

    /// The bytes of a part, row after row; none where the batch does not have it.
    pub fn part(&self, role: PartRole) -> &[u8] {
        self.layout()
            .part(role)
            .map_or(&[], |part| self.bytes_of(part))
    }

    fn bytes_of(&self, part: &PartLayout) -> &[u8] {
        let slot = self.slot().map_or(&[][..], |slot| slot.bytes());
        slot.get(part.offset..part.offset + part.row_bytes * self.job.shape_rows)
            .unwrap_or(&[])
    }

    /// A part as numbers; none where the batch does not have it or has it in another type.
    pub fn numbers<T: bytemuck::AnyBitPattern>(&self, role: PartRole) -> &[T] {
        bytemuck::try_cast_slice(self.part(role)).unwrap_or(&[])
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
            self.work.give_back(slot);
        }
    }
}
