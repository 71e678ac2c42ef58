//! Execution of work units on threads or workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forebay_model::{ContentId, Result, catch_panic};
use forebay_plan::{Carry, OpId, WindowBudget};
use forebay_threads::{lock, poisoned_lock, run_on_all};
use forebay_window::WindowPlan;
use serde::de::DeserializeOwned;

use super::relay::{CarryRelay, WindowRestore};
use super::{OrderedScan, PendingUnits, RangePlan, ScanCursor, SpanTimeline};
use crate::chunk_source::{RangeReader, RangeReaderFn};
use crate::cluster_handle::RemoteExecutor;
use crate::span_index::WorkUnit;

/// Called with the window state before the result of a unit is committed: after a crash in between, the unit is
/// executed again, and the state is never missing.
pub type CheckpointHook<'s> = &'s (dyn Fn(&Carry) -> Result<()> + Sync);

/// Wraps the loop in which a thread executes ranges.
pub type RangeLoopHook<'f> = &'f (dyn Fn(&dyn Fn() -> Result<()>) -> Result<()> + Sync);

/// Ranges, threads and memory of an execution in this process.
pub struct RangeExecution<'f, 'r> {
    pub ranges: &'f [RangePlan],
    pub threads: usize,
    /// Returns the rows of each range.
    pub reads: RangeReaderFn<'f, 'r>,
    pub around: RangeLoopHook<'f>,
    /// The memory for window state that the ranges share.
    pub budget: WindowBudget,
}

/// The results of work units.
pub struct UnitResults<T> {
    /// Result of each unit, by its first span.
    pub parts: BTreeMap<usize, T>,
    /// The number of steps between rows of a series that differ from the declared period.
    pub gaps: u64,
    /// The id of the window state at the end, if it was kept.
    pub carry: Option<ContentId>,
}

impl<T> Default for UnitResults<T> {
    fn default() -> Self {
        UnitResults {
            parts: BTreeMap::new(),
            gaps: 0,
            carry: None,
        }
    }
}

impl OrderedScan<'_> {
    /// Executes work units on workers, if there are any, or else on threads, each unit with the window state of the
    /// spans before it. The window state at the end is kept.
    pub fn run_units<T: Send + DeserializeOwned>(
        &self,
        pending: &PendingUnits<'_>,
        threads: usize,
        workers: Option<&RemoteExecutor<'_>>,
        work: impl Fn(&WorkUnit, &mut Carry, &AtomicBool, CheckpointHook<'_>) -> Result<Option<T>>
        + Sync,
    ) -> Result<UnitResults<T>> {
        if let Some(workers) = workers
            && let Some(results) = self.run_on_workers(pending, workers)?
        {
            return Ok(results);
        }
        let ranges = self.local_ranges(pending, threads)?;
        let execution = RangeExecution {
            ranges: &ranges,
            threads,
            reads: &|_| Box::new(self),
            around: &|ranges| ranges(),
            budget: WindowBudget::new(self.context.memory.states_bytes()),
        };
        self.run_on_threads(
            pending,
            execution,
            |part: &WorkUnit,
             cursor: ScanCursor<'_>,
             stop: &AtomicBool,
             checkpoint_hook: CheckpointHook<'_>| {
                work(part, cursor.carry, stop, checkpoint_hook)
            },
        )
    }

    /// Like [`OrderedScan::run_units`], on threads of this process.
    pub fn run_on_threads<T: Send, F>(
        &self,
        pending: &PendingUnits<'_>,
        execution: RangeExecution<'_, '_>,
        work: F,
    ) -> Result<UnitResults<T>>
    where
        F: Fn(&WorkUnit, ScanCursor<'_>, &AtomicBool, CheckpointHook<'_>) -> Result<Option<T>>
            + Sync,
    {
        let RangeExecution {
            ranges,
            threads,
            reads,
            around,
            budget,
        } = execution;
        let windows = self.checkpointed_windows();
        let no_windows = BTreeMap::new();
        let restored_windows = windows.as_ref().unwrap_or(&no_windows);
        let stop = AtomicBool::new(false);
        let restore = WindowRestore {
            budget: &budget,
            kept: &|id| {
                let store = pending.store;
                store.get_carry(id, |input| Carry::decode(restored_windows, &budget, input))
            },
            stop: &stop,
        };
        let mut end = None;
        if let Some(windows) = &windows {
            end = self.end_id(pending).map(|id| (windows, id));
        }
        let run = RangeRun {
            scan: self,
            pending,
            ranges,
            next: AtomicUsize::new(0),
            carries: CarryRelay::new(self, &pending.line.tasks, ranges, restore),
            end,
            stop: &stop,
            work,
            results: Mutex::default(),
        };
        let threads = threads.min(ranges.len()).max(1);
        for outcome in run_on_all(threads, &|| around(&|| run.execute_ranges(reads))) {
            outcome?;
        }
        let mut results = run.results.into_inner().map_err(|_| poisoned_lock())?;
        // The state after a halo with gaps is incomplete, and is no checkpoint:
        // decisions/ranges-and-halos.md.
        if let Some((_, id)) = end
            && ranges.last().is_none_or(|range| range.is_whole)
        {
            results.carry = Some(id);
        }
        Ok(results)
    }

    /// The id of the window state at the end of all spans; `None` for future rows, which no rows follow.
    fn end_id(&self, pending: &PendingUnits<'_>) -> Option<ContentId> {
        if self.first_scan > 0 {
            return None;
        }
        let SpanTimeline { tasks, history } = pending.line;
        Some(history.carry_id(pending.operation, tasks.len()))
    }
}

/// Execution of ranges by the threads of this process.
struct RangeRun<'a, T, F> {
    scan: &'a OrderedScan<'a>,
    pending: &'a PendingUnits<'a>,
    ranges: &'a [RangePlan],
    /// The next range that no thread executes yet
    next: AtomicUsize,
    carries: CarryRelay<'a>,
    /// Windows whose state at the end of all spans is kept, and the id of that state
    end: Option<(&'a BTreeMap<OpId, Arc<WindowPlan>>, ContentId)>,
    stop: &'a AtomicBool,
    work: F,
    results: Mutex<UnitResults<T>>,
}

impl<T, F> RangeRun<'_, T, F>
where
    T: Send,
    F: Fn(&WorkUnit, ScanCursor<'_>, &AtomicBool, CheckpointHook<'_>) -> Result<Option<T>> + Sync,
{
    /// Executes ranges in order until none is left. The first fault stops all threads.
    fn execute_ranges(&self, reads: RangeReaderFn<'_, '_>) -> Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            // Ranges are taken in order, as the window state that they share advances.
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(range) = self.ranges.get(number) else {
                break;
            };
            let is_whole = catch_panic(|| {
                let reader = reads(number);
                let Some(carry) = self.carries.carry_at(number, &*reader)? else {
                    return Ok(false);
                };
                self.execute(range, carry, &*reader)
            });
            // Wakes threads that wait for the window state: it may never come.
            if !matches!(is_whole, Ok(true)) {
                self.stop.store(true, Ordering::Relaxed);
                self.carries.found.stop();
            }
            is_whole?;
        }
        Ok(())
    }

    /// Executes the units of a range, from the window state before it; false if the pass was stopped.
    fn execute(
        &self,
        range: &RangePlan,
        mut carry: Carry,
        reads: &dyn RangeReader,
    ) -> Result<bool> {
        let tasks = &self.pending.line.tasks;
        let mut at = range.from;
        for part in &self.pending.units[range.parts.clone()] {
            // Rows between units are read for the window state only.
            let skipped = &tasks[at..part.tasks.start];
            let cursor = ScanCursor {
                carry: &mut carry,
                reads,
            };
            if !self.scan.advance_over(skipped, cursor, self.stop)? {
                return Ok(false);
            }
            let is_last = part.tasks.end == tasks.len() && range.is_whole;
            let checkpoint_hook = |carry: &Carry| match self.end {
                Some((windows, id)) if is_last => self.put_carry(id, windows, carry),
                _ => Ok(()),
            };
            let cursor = ScanCursor {
                carry: &mut carry,
                reads,
            };
            let Some(done) = (self.work)(part, cursor, self.stop, &checkpoint_hook)? else {
                return Ok(false);
            };
            lock(&self.results)?.parts.insert(part.tasks.start, done);
            at = part.tasks.end;
        }
        // Gaps are counted over all rows up to the end, so only the state at the end has the whole
        // count.
        let units = self.pending.units;
        let last_end = units.last().map(|part| part.tasks.end);
        if range.parts.end == units.len() && last_end == Some(tasks.len()) {
            lock(&self.results)?.gaps = carry.gaps();
        }
        Ok(true)
    }

    fn put_carry(
        &self,
        id: ContentId,
        windows: &BTreeMap<OpId, Arc<WindowPlan>>,
        carry: &Carry,
    ) -> Result<()> {
        let PendingUnits { store, scratch, .. } = *self.pending;
        store.put_carry(id, scratch, &mut |out| carry.encode(windows, out))
    }
}
