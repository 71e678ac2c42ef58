//! Places that each step delivers.

use std::ops::Range;

use crate::{BatchPlan, FeedCursor, RankSlice, RemainderPolicy};

/// A batch that is to be filled.
#[derive(Debug, Clone)]
pub(super) struct BatchJob {
    /// Counts the feed's batches.
    pub number: u64,
    /// The epoch, and the step in it since the feed began or the epoch did.
    pub epoch: u64,
    pub step: u64,
    /// Places of the sequence.
    pub places: Range<u64>,
    /// Rows of the batch's shape.
    pub shape_rows: usize,
    /// Epoch and position after this step.
    pub next: (u64, u64),
}

/// The steps of one rank over some epochs.
#[derive(Debug, Clone)]
pub(super) struct BatchSchedule {
    rank: u32,
    epoch_rows: u64,
    /// Epoch and position of the feed's beginning.
    epoch: u64,
    position: u64,
    /// The rest of the first epoch, and every other.
    first: BatchPlan,
    other: BatchPlan,
    /// Epochs from here on are not delivered.
    end: u64,
}

impl BatchSchedule {
    /// The steps of `rank` from a cursor up to the epoch `end`; `other` is the plan of a whole epoch.
    pub fn new(cursor: &FeedCursor, other: BatchPlan, rank: u32, end: u64) -> Self {
        let epoch_rows = other.rows;
        let first = BatchPlan {
            rows: epoch_rows - cursor.position,
            ..other
        };
        BatchSchedule {
            rank,
            epoch_rows,
            epoch: cursor.epoch,
            position: cursor.position,
            first,
            other,
            end,
        }
    }

    /// Treatment of rows that do not fill a last step.
    pub fn last(&self) -> RemainderPolicy {
        self.other.last
    }

    /// The steps of an epoch that are delivered.
    pub fn steps(&self, epoch: u64) -> u64 {
        if epoch == self.epoch {
            self.first.steps()
        } else {
            self.other.steps()
        }
    }

    /// One batch, counted from the feed's first.
    pub fn job(&self, number: u64) -> Option<BatchJob> {
        // The first epoch may begin in its middle; all others are alike.
        let (epoch, step, position, plan) = match number.checked_sub(self.first.steps()) {
            None => (self.epoch, number, self.position, &self.first),
            Some(later_number) => {
                let epoch = self.epoch + 1 + later_number.checked_div(self.other.steps())?;
                (epoch, later_number % self.other.steps(), 0, &self.other)
            }
        };
        if epoch >= self.end {
            return None;
        }
        let RankSlice {
            positions,
            shape_rows,
        } = plan.rank_slice(self.rank, step);
        let base = epoch * self.epoch_rows + position;
        let next_position = position + plan.consumed(step + 1);
        let next = if next_position == self.epoch_rows {
            (epoch + 1, 0)
        } else {
            (epoch, next_position)
        };
        Some(BatchJob {
            number,
            epoch,
            step,
            places: base + positions.start..base + positions.end,
            shape_rows: shape_rows as usize,
            next,
        })
    }

    /// All places that any step delivers lie in this range.
    pub fn places(&self) -> Range<u64> {
        let start = self.epoch * self.epoch_rows + self.position;
        if self.epoch >= self.end {
            return start..0;
        }
        // A last step may be filled up with rows of the epoch behind the last one.
        let wrapped = match self.other.last {
            RemainderPolicy::Wrap => u64::from(self.other.batch) * u64::from(self.other.world),
            _ => 0,
        };
        let end = self.end.saturating_mul(self.epoch_rows);
        start..end.saturating_add(wrapped)
    }
}
