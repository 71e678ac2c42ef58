//! Execution of work units on threads or workers.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forebay_cluster::WindowInit;
use forebay_commit::StateStore;
use forebay_model::{ContentId, Result, catch_panic};
use forebay_plan::{Carry, WindowBudget};
use forebay_storage::ScratchDir;
use forebay_threads::{HandOff, lock, poisoned_lock, run_on_all};
use serde::de::DeserializeOwned;

use super::relay::{CarryRelay, WindowRestore};
use super::{OrderedScan, RangePlan, ScanCursor, SpanTimeline};
use crate::chunk_source::{RangeReader, RangeReaderFn};
use crate::remote::RemoteExecutor;
use crate::span_index::WorkUnit;

/// Called with the window state before the result of a unit is committed: after a crash in between, the unit is
/// executed again, and the state is never missing.
pub type CheckpointHook<'s> = &'s (dyn Fn(&Carry) -> Result<()> + Sync);

/// Wraps the loop in which a thread executes ranges.
pub type RangeLoopHook<'f> = &'f (dyn Fn(&dyn Fn() -> Result<()>) -> Result<()> + Sync);

/// The work units of a pass that are to be executed, and where their window states are kept.
#[derive(Clone, Copy)]
pub struct PendingUnits<'a> {
    pub line: &'a SpanTimeline,
    /// The id of what is done with the rows of each span.
    pub operation: ContentId,
    pub store: &'a StateStore,
    pub scratch: &'a ScratchDir,
    pub units: &'a [WorkUnit],
}

/// How threads of this process execute ranges.
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
    /// By the first span of each unit.
    pub parts: BTreeMap<usize, T>,
    /// The number of steps between rows of a series that differ from the declared period.
    pub gaps: u64,
    /// The id of the window state at the end, if it was kept.
    pub carry: Option<ContentId>,
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
            && let Some(done) = self.run_on_workers(pending, workers)?
        {
            return Ok(done);
        }
        let ranges = self.local_ranges(pending, threads)?;
        let reads = |_| Box::new(self) as Box<dyn RangeReader>;
        let work =
            |part: &WorkUnit,
             cursor: ScanCursor<'_>,
             stop: &AtomicBool,
             seal: CheckpointHook<'_>| { work(part, cursor.carry, stop, seal) };
        let budget = WindowBudget::new(self.context.memory.states_bytes());
        let execution = RangeExecution {
            ranges: &ranges,
            threads,
            reads: &reads,
            around: &|ranges| ranges(),
            budget,
        };
        self.run_on_threads(pending, execution, work)
    }

    /// Like [`OrderedScan::run_units`], on threads of this process.
    pub fn run_on_threads<'r, T: Send>(
        &self,
        pending: &PendingUnits<'_>,
        RangeExecution {
            ranges,
            threads,
            reads,
            around,
            budget,
        }: RangeExecution<'_, 'r>,
        work: impl Fn(&WorkUnit, ScanCursor<'_>, &AtomicBool, CheckpointHook<'_>) -> Result<Option<T>>
        + Sync,
    ) -> Result<UnitResults<T>> {
        let PendingUnits {
            line,
            operation,
            store,
            scratch,
            units: todo,
        } = *pending;
        let SpanTimeline { tasks, history, .. } = line;
        let windows = self.checkpointed_windows();
        let stop = AtomicBool::new(false);
        let threads = threads.min(ranges.len()).max(1);
        let none = BTreeMap::new();
        let carried = ranges
            .iter()
            .filter(|range| range.start == WindowInit::Carried);
        let kept = |id| {
            let windows = windows.as_ref().unwrap_or(&none);
            store.get_carry(id, |input| Carry::decode(windows, &budget, input))
        };
        let carries = CarryRelay {
            sequence: self,
            tasks,
            ranges,
            restore: WindowRestore {
                budget: &budget,
                kept: &kept,
                stop: &stop,
            },
            found: HandOff::new(carried.map(|range| range.from)),
        };
        let next = AtomicUsize::new(0);
        let found: Mutex<(BTreeMap<usize, T>, u64)> = Mutex::default();
        // No rows follow future rows.
        let end = windows.as_ref().filter(|_| self.first_scan == 0);
        let end = end.map(|windows| (windows, history.carry_id(operation, tasks.len())));
        let range = |number: usize, range: &RangePlan| {
            let reads = &*reads(number);
            let Some(mut carry) = carries.carry_at(number, reads)? else {
                return Ok(false);
            };
            let mut at = range.from;
            for part in &todo[range.parts.clone()] {
                let before = &tasks[at..part.tasks.start];
                if !self.advance_over(
                    before,
                    ScanCursor {
                        carry: &mut carry,
                        reads,
                    },
                    &stop,
                )? {
                    return Ok(false);
                }
                let seal = |carry: &Carry| match end {
                    Some((windows, id)) if part.tasks.end == tasks.len() && range.is_whole => {
                        store.put_carry(id, scratch, &mut |out| carry.encode(windows, out))
                    }
                    _ => Ok(()),
                };
                let Some(done) = work(
                    part,
                    ScanCursor {
                        carry: &mut carry,
                        reads,
                    },
                    &stop,
                    &seal,
                )?
                else {
                    return Ok(false);
                };
                lock(&found)?.0.insert(part.tasks.start, done);
                at = part.tasks.end;
            }
            if range.parts.end == todo.len()
                && todo
                    .last()
                    .is_some_and(|part| part.tasks.end == tasks.len())
            {
                lock(&found)?.1 = carry.gaps();
            }
            Ok(true)
        };
        let each = || {
            while !stop.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(next) = ranges.get(number) else {
                    break;
                };
                let done = catch_panic(|| range(number, next));
                if !matches!(done, Ok(true)) {
                    stop.store(true, Ordering::Relaxed);
                    carries.found.stop();
                }
                done?;
            }
            Ok(())
        };
        let done = run_on_all(threads, &|| around(&each));
        done.into_iter().collect::<Result<()>>()?;
        let (parts, gaps) = found.into_inner().map_err(|_| poisoned_lock())?;
        let end = end.filter(|_| ranges.last().is_none_or(|range| range.is_whole));
        Ok(UnitResults {
            parts,
            gaps,
            carry: end.map(|(_, id)| id),
        })
    }
}
