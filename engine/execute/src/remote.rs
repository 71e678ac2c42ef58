//! Work units of a pass on workers: how the coordinator submits them, and how a worker runs them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_cluster::{
    StageFailure, TaskControl, TaskEvent, TaskKind, TaskOutcome, TaskSpec, WindowInit, WorkUnitRef,
    bad_request,
};
use forebay_commit::StateStore;
use forebay_model::{ContentId, Fault, Result, SeriesCounts, codes};
use forebay_plan::{Carry, OpId, WindowBudget};
use forebay_storage::ScratchDir;
use forebay_threads::FlushPool;
use forebay_window::WindowPlan;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::chunk_source::SpanRef;
use crate::cluster_handle::RemoteExecutor;
use crate::ordered_scan::{
    ADVANCE_SHARE, CheckpointHook, OrderedScan, PartitionStrategy, PendingUnits, RangePlan,
    ScanCursor, SpanTimeline, UnitResults, WindowRestore, lane_of_range,
};
use crate::range_bytes::bytes_min;
use crate::span_index::WorkUnit;

/// With sequential lanes, each range restores the window state that the range before it in its lane
/// wrote. Workers cannot share such ranges freely. So a lane has at most `RANGES_PER_ROW` ranges of
/// at least `ROW_RANGE_BYTES_MIN` stored bytes each.
const RANGES_PER_ROW: u64 = 3;
const ROW_RANGE_BYTES_MIN: u64 = 32 << 20;

/// A task of a worker: some units of a pass, or the window state between them.
#[derive(Clone, Copy)]
pub struct WorkerTask<'a> {
    pub line: &'a SpanTimeline,
    /// Id of the operation on the rows of each span.
    pub operation: ContentId,
    /// The id that unit ids are made of.
    pub units_of: ContentId,
    pub store: &'a StateStore,
    pub scratch: &'a ScratchDir,
    pub kind: &'a TaskKind,
    pub control: &'a dyn TaskControl,
    /// Threads that finish units whose rows are computed.
    pub finish_threads: usize,
}

/// Window state that some task leaves, or a checkpoint.
struct RestoredState {
    /// The span before which the state stands
    span: usize,
    init: WindowInit,
    /// The task that produces it, if it is not there yet
    task: Option<usize>,
}

/// Tasks for ranges of work units, in the order of the ranges.
struct RangeTasks<'a> {
    line: &'a SpanTimeline,
    operation: ContentId,
    units: &'a [WorkUnit],
    ranges: &'a [RangePlan],
    slots: usize,
    has_windows: bool,
    /// The share of the spans' stored bytes that is read
    share: f64,
    tasks: Vec<TaskSpec>,
    /// The furthest span at which window state is known
    furthest: RestoredState,
    /// Task of the range before
    previous: Option<usize>,
}

impl RangeTasks<'_> {
    fn plan(mut self) -> Vec<TaskSpec> {
        for number in 0..self.ranges.len() {
            self.add_range(number);
        }
        self.tasks
    }

    /// Adds the task of a range, and a task that restores its window state where nothing else does.
    fn add_range(&mut self, number: usize) {
        let range = &self.ranges[number];
        let (start, predecessor) = match &range.start {
            WindowInit::Carried if self.continues_lane(number) => {
                (self.checkpoint(range.from), self.previous)
            }
            WindowInit::Carried => self.advance_to(range.from),
            WindowInit::Kept(id) => {
                self.furthest = RestoredState {
                    span: range.from,
                    init: WindowInit::Kept(*id),
                    task: None,
                };
                (range.start.clone(), None)
            }
            start => (start.clone(), None),
        };
        let units = &self.units[range.parts.clone()];
        let is_last = range.parts.end == self.units.len();
        let is_at_end = is_last && self.end_of(number) == self.line.tasks.len();
        // A checkpoint is kept for the next run if it is complete, and for the range that continues
        // here.
        let is_wanted = is_at_end && range.is_whole || self.continues_lane(number + 1);
        let mut bytes = 0;
        let mut parts = Vec::with_capacity(units.len());
        for unit in units {
            bytes += self.line.history.bytes(unit.tasks.clone());
            parts.push(WorkUnitRef {
                tasks: unit.tasks.clone(),
                id: unit.id,
            });
        }
        self.previous = Some(self.tasks.len());
        self.tasks.push(TaskSpec {
            cost: (bytes as f64 * self.share) as u64,
            after: predecessor,
            what: TaskKind::Parts {
                parts,
                from: range.from,
                start,
                keeps: self.has_windows && is_wanted,
            },
        });
    }

    /// Adds a task that advances the window state from the furthest known one, since no range of the
    /// lane ends where the next one begins. It reads only the columns that windows keep
    /// (decisions/ranges-and-halos.md). Returns the state with the task that produces it.
    fn advance_to(&mut self, span: usize) -> (WindowInit, Option<usize>) {
        let bytes = self.line.history.bytes(self.furthest.span..span);
        let init = self.checkpoint(span);
        let task = self.tasks.len();
        let reached = RestoredState {
            span,
            init: init.clone(),
            task: Some(task),
        };
        let origin = std::mem::replace(&mut self.furthest, reached);
        self.tasks.push(TaskSpec {
            cost: (bytes as f64 * self.share * ADVANCE_SHARE) as u64,
            after: origin.task,
            what: TaskKind::Advance {
                from: origin.span,
                start: origin.init,
                to: span,
            },
        });
        (init, Some(task))
    }

    fn checkpoint(&self, span: usize) -> WindowInit {
        WindowInit::Kept(self.line.history.carry_id(self.operation, span))
    }

    /// The span behind the last unit of a range.
    fn end_of(&self, number: usize) -> usize {
        let last = self.ranges[number].parts.end - 1;
        self.units[last].tasks.end
    }

    fn lane_of(&self, number: usize) -> usize {
        lane_of_range(number, self.ranges.len(), self.slots)
    }

    /// True if a range begins where the range before it in its lane ended.
    fn continues_lane(&self, number: usize) -> bool {
        let Some(range) = self.ranges.get(number) else {
            return false;
        };
        let Some(previous) = number.checked_sub(1) else {
            return false;
        };
        range.start == WindowInit::Carried
            && self.lane_of(number) == self.lane_of(previous)
            && self.end_of(previous) == range.from
    }
}

/// Results of units that workers have reported.
struct ReportedUnits<T> {
    /// Result of each unit, by its first span
    parts: BTreeMap<usize, T>,
    gaps: u64,
    /// The task at whose end all gaps are counted
    last_task: usize,
}

impl<T: DeserializeOwned> ReportedUnits<T> {
    fn record(&mut self, event: TaskEvent) -> Result<()> {
        match event {
            TaskEvent::Part {
                first,
                made: answer,
            } => {
                let results = serde_json::from_value(answer).map_err(|error| {
                    Fault::internal("a worker's answer cannot be read").cause(error)
                })?;
                self.parts.insert(first, results);
            }
            TaskEvent::Done { task, counts } if task == self.last_task => self.gaps = counts.gaps,
            TaskEvent::Done { .. } | TaskEvent::Moved { .. } => {}
        }
        Ok(())
    }
}

/// Reports the result of a unit to the coordinator.
fn report_unit(control: &dyn TaskControl, first: usize, result: &impl Serialize) -> Result<()> {
    let result = serde_json::to_value(result)
        .map_err(|error| Fault::internal("an answer cannot be written").cause(error))?;
    control.report_unit(first, result)
}

impl OrderedScan<'_> {
    /// Like `OrderedScan::run_units`, on workers; `None` if the window state cannot be handed from one worker to
    /// another.
    pub fn run_on_workers<T: DeserializeOwned>(
        &self,
        pending: &PendingUnits<'_>,
        workers: &RemoteExecutor<'_>,
    ) -> Result<Option<UnitResults<T>>> {
        let PendingUnits {
            line, operation, ..
        } = *pending;
        let has_windows = self.checkpointed_windows().is_some();
        let slots = workers.cluster.wait_for_slots(workers.interrupt)?;
        let ranges = self.remote_ranges(pending, slots)?;
        let hands_over = ranges
            .iter()
            .any(|range| range.start == WindowInit::Carried);
        // Window state that has no checkpoint form cannot be handed to another worker.
        if hands_over && !has_windows {
            return Ok(None);
        }
        let range_tasks = RangeTasks {
            line,
            operation,
            units: pending.units,
            ranges: &ranges,
            slots,
            has_windows,
            share: workers.share,
            tasks: Vec::new(),
            furthest: RestoredState {
                span: 0,
                init: WindowInit::Fresh,
                task: None,
            },
            previous: None,
        };
        let tasks = range_tasks.plan();
        let mut reported = ReportedUnits {
            parts: BTreeMap::new(),
            gaps: 0,
            last_task: tasks.len().saturating_sub(1),
        };
        let run_state = self.context.state;
        let stage_context = workers.stage_context(run_state);
        workers
            .run_tasks(&stage_context, tasks, run_state, &mut |event| {
                reported.record(event)
            })
            .map_err(|failure| self.stage_fault(failure, line))?;
        let is_whole = ranges.last().is_none_or(|range| range.is_whole);
        let mut carry = None;
        if has_windows && is_whole {
            carry = Some(line.history.carry_id(operation, line.tasks.len()));
        }
        Ok(Some(UnitResults {
            parts: reported.parts,
            gaps: reported.gaps,
            carry,
        }))
    }

    /// The ranges of workers with this many task slots.
    fn remote_ranges(&self, pending: &PendingUnits<'_>, slots: usize) -> Result<Vec<RangePlan>> {
        let PendingUnits { line, units, .. } = *pending;
        // If each range needs all rows before it, it restores the state of its predecessor, so
        // workers get lanes. Otherwise tasks become smaller towards the end:
        // decisions/task-scheduling.md.
        let cut = if line.needs_all() {
            let mut bytes = 0;
            for unit in units {
                bytes += line.history.bytes(unit.tasks.clone());
            }
            let lane_bytes = bytes / slots.max(1) as u64;
            let per_row = lane_bytes / bytes_min(ROW_RANGE_BYTES_MIN);
            PartitionStrategy::Evenly {
                rows: slots,
                each: per_row.clamp(1, RANGES_PER_ROW) as usize,
                advance: ADVANCE_SHARE,
            }
        } else {
            PartitionStrategy::Falling { slots }
        };
        self.plan_ranges(units, line, cut, &self.find_checkpoint(pending))
    }

    /// The fault of a stage, with the file that ends every worker.
    fn stage_fault(&self, failure: StageFailure, line: &SpanTimeline) -> Fault {
        let deadly_span = failure.deadly.and_then(|task| line.tasks.get(task));
        match deadly_span {
            Some(task) => self.locate_fault(failure.fault, *task),
            None => failure.fault,
        }
    }

    fn locate_fault(&self, fault: Fault, task: SpanRef) -> Fault {
        match self.context.input(self.scans[task.scan].base) {
            Ok(input) => fault.file(input.dataset.spans[task.span].label()),
            Err(_) => fault,
        }
    }

    /// Runs a task on a worker: `work` computes the rows of a unit, and `finish` finishes it.
    pub fn run_task<T: Serialize, U: Send>(
        &self,
        task: &WorkerTask<'_>,
        work: impl Fn(&WorkUnit, &mut Carry, &AtomicBool, CheckpointHook<'_>) -> Result<Option<U>>,
        finish: &(dyn Fn(U) -> Result<T> + Sync),
    ) -> Result<TaskOutcome> {
        let threads = self.context.threads.max(1);
        let run = TaskRun {
            scan: self,
            task,
            windows: self.checkpointed_windows(),
            budget: WindowBudget::new(self.context.memory.states_bytes() / threads),
        };
        match task.kind {
            TaskKind::Advance { from, start, to } => run.advance(*from, start, *to),
            TaskKind::Parts {
                parts,
                from,
                start,
                keeps,
            } => {
                run.check_units(parts)?;
                let Some(carry) = run.begin(*from, start)? else {
                    return Ok(TaskOutcome::Stopped);
                };
                let report = |(first, unfinished): (usize, U)| {
                    report_unit(task.control, first, &finish(unfinished)?)
                };
                // Flushes and uploads of a unit overlap with the rows of the next one:
                // decisions/night-end.md.
                let finishers = FlushPool::new(task.finish_threads, &report);
                finishers.run_scoped(
                    task.finish_threads,
                    || run.execute_units(parts, *from, carry, *keeps, &work, &finishers),
                    None,
                )
            }
            TaskKind::Merge { .. }
            | TaskKind::MergeRuns { .. }
            | TaskKind::Divide { .. }
            | TaskKind::Compute { .. }
            | TaskKind::Filter { .. }
            | TaskKind::Read { .. }
            | TaskKind::Train { .. } => Err(Fault::internal("a task of another kind")),
        }
    }
}

/// A task that a worker runs.
struct TaskRun<'a> {
    scan: &'a OrderedScan<'a>,
    task: &'a WorkerTask<'a>,
    /// Windows whose state is handed from task to task
    windows: Option<BTreeMap<OpId, Arc<WindowPlan>>>,
    budget: WindowBudget,
}

impl TaskRun<'_> {
    /// Advances window state over some spans, and keeps it for the tasks behind.
    fn advance(&self, from: usize, start: &WindowInit, to: usize) -> Result<TaskOutcome> {
        let Some(mut carry) = self.begin(from, start)? else {
            return Ok(TaskOutcome::Stopped);
        };
        let spans = self.task.line.tasks.get(from..to).ok_or_else(bad_request)?;
        if !self.advance_over(spans, &mut carry)? {
            return Ok(TaskOutcome::Stopped);
        }
        self.keep(&carry, to)?;
        Ok(TaskOutcome::Done(gap_counts(&carry)))
    }

    /// Refuses units of other content. The worker compiled the program itself: equal ids prove that
    /// it reads the same content with the same operations (decisions/workers-fill-the-store.md).
    fn check_units(&self, parts: &[WorkUnitRef]) -> Result<()> {
        let SpanTimeline { tasks, history } = self.task.line;
        let units_of = self.task.units_of;
        let are_same = parts.iter().all(|part| {
            part.tasks.end <= tasks.len()
                && history.result_id(units_of, part.tasks.clone()) == part.id
        });
        if are_same {
            return Ok(());
        }
        let message = "the worker sees other data than the coordinator";
        let fault = Fault::new(codes::SEES_OTHER_DATA, message);
        Err(fault.hint("give all of them the same files, at the same paths"))
    }

    fn execute_units<U: Send>(
        &self,
        parts: &[WorkUnitRef],
        from: usize,
        mut carry: Carry,
        keeps: bool,
        work: &impl Fn(&WorkUnit, &mut Carry, &AtomicBool, CheckpointHook<'_>) -> Result<Option<U>>,
        finishers: &FlushPool<'_, (usize, U)>,
    ) -> Result<TaskOutcome> {
        let stop = self.task.control.cancel_flag();
        let mut at = from;
        for (number, WorkUnitRef { tasks, id }) in parts.iter().enumerate() {
            // A draining worker stops between units. Committed units count, so only the rest goes
            // to others.
            if self.task.control.is_draining() {
                return Ok(TaskOutcome::HandedBack);
            }
            if self.scan.is_ordered() {
                let skipped = self.task.line.tasks.get(at..tasks.start);
                let skipped = skipped.ok_or_else(bad_request)?;
                if !self.advance_over(skipped, &mut carry)? {
                    return Ok(TaskOutcome::Stopped);
                }
            }
            let part = WorkUnit::new(tasks.clone(), *id);
            // The checkpoint is written before the last unit is committed: a crash repeats the unit
            // and never loses the state.
            let is_kept = keeps && number + 1 == parts.len();
            let checkpoint_hook = |carry: &Carry| {
                if is_kept {
                    self.keep(carry, part.tasks.end)
                } else {
                    Ok(())
                }
            };
            let Some(unfinished) = work(&part, &mut carry, stop, &checkpoint_hook)? else {
                return Ok(TaskOutcome::Stopped);
            };
            finishers.submit((tasks.start, unfinished))?;
            at = tasks.end;
        }
        Ok(TaskOutcome::Done(gap_counts(&carry)))
    }

    /// Window state before a span; `None` if the task was stopped.
    fn begin(&self, from: usize, start: &WindowInit) -> Result<Option<Carry>> {
        let restore = WindowRestore {
            budget: &self.budget,
            kept: &|id| self.load_carry(id),
            stop: self.task.control.cancel_flag(),
        };
        let tasks = &self.task.line.tasks;
        self.scan
            .init_windows(tasks, start, from, &restore, &self.scan)
    }

    fn load_carry(&self, id: ContentId) -> Result<Option<Carry>> {
        let no_windows = BTreeMap::new();
        let windows = self.windows.as_ref().unwrap_or(&no_windows);
        self.task
            .store
            .get_carry(id, |input| Carry::decode(windows, &self.budget, input))
    }

    /// Keeps window state that has a checkpoint form.
    fn keep(&self, carry: &Carry, span: usize) -> Result<()> {
        let Some(windows) = &self.windows else {
            return Ok(());
        };
        let WorkerTask { store, scratch, .. } = *self.task;
        let id = self.task.line.history.carry_id(self.task.operation, span);
        store.put_carry(id, scratch, &mut |out| carry.encode(windows, out))
    }

    /// Reads spans for the window state only; false if the task was stopped.
    fn advance_over(&self, spans: &[SpanRef], carry: &mut Carry) -> Result<bool> {
        let cursor = ScanCursor {
            carry,
            reads: &self.scan,
        };
        let stop = self.task.control.cancel_flag();
        self.scan.advance_over(spans, cursor, stop)
    }
}

/// The counts of a task that is done with these windows. Units count their duplicates themselves.
fn gap_counts(carry: &Carry) -> SeriesCounts {
    SeriesCounts {
        gaps: carry.gaps(),
        duplicates: 0,
    }
}
