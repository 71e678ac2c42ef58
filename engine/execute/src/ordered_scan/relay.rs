//! Window state at the starts of ranges, handed from range to range.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use forebay_cluster::WindowInit;
use forebay_model::{ContentId, Fault, Result};
use forebay_plan::{Carry, WindowBudget};
use forebay_threads::HandOff;

use super::{OrderedScan, RangePlan, ScanCursor};
use crate::chunk_source::RangeReader;
use crate::chunk_source::SpanRef;

/// Loads a checkpoint of window state by its id; `None` if it is corrupt or gone.
pub type LoadCarryFn<'a> = &'a (dyn Fn(ContentId) -> Result<Option<Carry>> + Sync);

/// Inputs of restoring window state: the checkpoints, the memory that it may take, and the flag
/// that stops the pass.
pub struct WindowRestore<'a> {
    pub budget: &'a WindowBudget,
    pub kept: LoadCarryFn<'a>,
    pub stop: &'a AtomicBool,
}

/// Hands the window state at the start of a range from the thread that reads the rows before it to the thread that
/// executes the range.
pub struct CarryRelay<'a> {
    sequence: &'a OrderedScan<'a>,
    tasks: &'a [SpanRef],
    ranges: &'a [RangePlan],
    restore: WindowRestore<'a>,
    pub found: HandOff<Carry>,
}

impl<'a> CarryRelay<'a> {
    /// Ranges that continue others get copies of one window state, which the threads advance from start to start:
    /// decisions/ranges-and-halos.md.
    pub fn new(
        sequence: &'a OrderedScan<'a>,
        tasks: &'a [SpanRef],
        ranges: &'a [RangePlan],
        restore: WindowRestore<'a>,
    ) -> CarryRelay<'a> {
        let mut starts = Vec::new();
        for range in ranges {
            if range.start == WindowInit::Carried {
                starts.push(range.from);
            }
        }
        CarryRelay {
            sequence,
            tasks,
            ranges,
            restore,
            found: HandOff::new(starts),
        }
    }

    /// The window state at the start of a range; `None` if the pass was stopped.
    pub fn carry_at(&self, range: usize, reads: &dyn RangeReader) -> Result<Option<Carry>> {
        let RangePlan { start, from, .. } = &self.ranges[range];
        if *start != WindowInit::Carried {
            return self
                .sequence
                .init_windows(self.tasks, start, *from, &self.restore, reads);
        }
        self.found.state_at(
            *from,
            || self.first_carry(),
            |carry, from, to| self.advance(carry, from..to, reads),
            Carry::fork,
        )
    }

    /// Advances window state over the rows of some spans; `None` if the pass was stopped.
    fn advance(
        &self,
        mut carry: Carry,
        spans: Range<usize>,
        reads: &dyn RangeReader,
    ) -> Result<Option<Carry>> {
        let cursor = ScanCursor {
            carry: &mut carry,
            reads,
        };
        let is_whole = self
            .sequence
            .advance_over(&self.tasks[spans], cursor, self.restore.stop)?;
        Ok(is_whole.then_some(carry))
    }

    /// The window state from which the first handed-over state is computed: the nearest checkpoint, or none.
    fn first_carry(&self) -> Result<(usize, Carry)> {
        let first = self
            .ranges
            .iter()
            .position(|range| range.start == WindowInit::Carried)
            .unwrap_or(0);
        for range in self.ranges[..first].iter().rev() {
            let WindowInit::Kept(id) = &range.start else {
                continue;
            };
            if let Some(carry) = (self.restore.kept)(*id)? {
                return Ok((range.from, carry));
            }
        }
        Ok((0, Carry::new(self.restore.budget)))
    }
}

impl OrderedScan<'_> {
    /// The window state before the span `from`, computed without other ranges; `None` if the pass was stopped.
    pub fn init_windows(
        &self,
        tasks: &[SpanRef],
        start: &WindowInit,
        from: usize,
        restore: &WindowRestore<'_>,
        reads: &dyn RangeReader,
    ) -> Result<Option<Carry>> {
        let mut carry = Carry::new(restore.budget);
        let whole_past = 0..from;
        let past = match start {
            WindowInit::Fresh => return Ok(Some(carry)),
            WindowInit::Halo(halo) => halo.as_slice(),
            WindowInit::Kept(id) => match (restore.kept)(*id)? {
                Some(carry) => return Ok(Some(carry)),
                // The checkpoint is corrupt: compute the state from the rows.
                None => std::slice::from_ref(&whole_past),
            },
            WindowInit::Carried => {
                return Err(Fault::internal(
                    "a range that continues another range was started alone",
                ));
            }
        };
        for range in past {
            let cursor = ScanCursor {
                carry: &mut carry,
                reads,
            };
            if !self.advance_over(&tasks[range.clone()], cursor, restore.stop)? {
                return Ok(None);
            }
        }
        Ok(Some(carry))
    }
}
