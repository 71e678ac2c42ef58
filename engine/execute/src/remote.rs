//! Work units of a pass on workers: how the coordinator submits them, and how a worker runs them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use forebay_cluster::{
    Cluster, RunSpec, StageContext, StageFailure, StageRef, TaskControl, TaskEvent, TaskKind,
    TaskOutcome, TaskSpec, WindowInit, WorkUnitRef, bad_request,
};
use forebay_commit::StateStore;
use forebay_model::{ContentId, Fault, Result, SeriesCounts, codes};
use forebay_plan::{Carry, WindowBudget};
use forebay_storage::{CancellationToken, Event, EventListener, ScratchDir};
use forebay_threads::FlushPool;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ordered_scan::{
    ADVANCE_SHARE, CheckpointHook, OrderedScan, PartitionStrategy, PendingUnits, ScanCursor,
    SpanRef, SpanTimeline, UnitResults, WindowRestore, bytes_min, lane_of_range,
};
use crate::run_state::RunState;
use crate::span_index::WorkUnit;

/// With sequential lanes, each range restores the window state that the range before it in its lane wrote. Workers
/// cannot share such ranges freely. So a lane has at most `RANGES_PER_LANE` ranges of at least `LANE_RANGE_BYTES_MIN`
/// stored bytes each.
const RANGES_PER_ROW: u64 = 3;
const ROW_RANGE_BYTES_MIN: u64 = 32 << 20;

/// Runs the work units of a pass on workers.
pub struct RemoteExecutor<'a> {
    pub cluster: &'a Cluster,
    pub run_spec: &'a RunSpec,
    pub work: StageRef,
    /// The share of the spans' stored bytes that is read.
    pub share: f64,
    pub watch: &'a dyn EventListener,
    pub interrupt: &'a CancellationToken,
}

impl RemoteExecutor<'_> {
    /// What workers need to know for all tasks of the stage.
    pub fn stage_context(&self, known: &RunState) -> StageContext {
        let row_orders = known
            .row_orders
            .iter()
            .map(|(op, row_order)| (*op, *row_order))
            .collect();
        StageContext {
            job: self.run_spec.clone(),
            work: self.work,
            row_orders,
            shuffles: known.shuffles.clone(),
        }
    }

    /// Runs tasks on workers and reports their progress. Records the window whose row order was wrong, if one failed.
    pub fn run_tasks(
        &self,
        common: &StageContext,
        tasks: Vec<TaskSpec>,
        known: &RunState,
        hear: &mut dyn FnMut(TaskEvent) -> Result<()>,
    ) -> Result<(), StageFailure> {
        let done = self
            .cluster
            .run_stage_tasks(common, tasks, self.interrupt, &mut |said| {
                if let TaskEvent::Moved {
                    rows,
                    bytes,
                    spilled,
                } = said
                {
                    self.watch.on_event(Event::Progress { rows, bytes });
                    if spilled > 0 {
                        self.watch.on_event(Event::Spilled { bytes: spilled });
                    }
                }
                hear(said)
            });
        done.inspect_err(|failure| {
            if let (Some(op), Ok(mut order_failure)) =
                (failure.order_failure, known.order_failure.lock())
            {
                order_failure.get_or_insert((op, failure.fault.code()));
            }
        })
    }
}

/// A task of a worker: some units of a pass, or the window state between them.
#[derive(Clone, Copy)]
pub struct WorkerTask<'a> {
    pub line: &'a SpanTimeline,
    /// The id of what is done with the rows of each span.
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

/// The cluster that runs a pass.
#[derive(Clone, Copy)]
pub struct ClusterHandle<'a> {
    pub cluster: &'a Cluster,
    pub run_spec: &'a RunSpec,
    /// The pass's position in the program.
    pub pass: usize,
    pub interrupt: &'a CancellationToken,
}

impl<'a> ClusterHandle<'a> {
    /// An executor for a stage of the pass.
    pub fn executor(self, work: StageRef, watch: &'a dyn EventListener) -> RemoteExecutor<'a> {
        RemoteExecutor {
            cluster: self.cluster,
            run_spec: self.run_spec,
            work,
            share: 1.0,
            watch,
            interrupt: self.interrupt,
        }
    }
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
            line,
            operation,
            units: todo,
            ..
        } = *pending;
        let has_windows = self.checkpointed_windows().is_some();
        let slots = workers.cluster.wait_for_slots(workers.interrupt)?;
        let bytes: u64 = todo
            .iter()
            .map(|part| line.history.bytes(part.tasks.clone()))
            .sum();
        let per_row =
            (bytes / slots.max(1) as u64 / bytes_min(ROW_RANGE_BYTES_MIN)).clamp(1, RANGES_PER_ROW);
        let cut = match line.needs_all() {
            true => PartitionStrategy::Evenly {
                rows: slots,
                each: per_row as usize,
                advance: ADVANCE_SHARE,
            },
            false => PartitionStrategy::Falling { slots },
        };
        let ranges = self.plan_ranges(todo, line, cut, &self.find_checkpoint(pending))?;
        if !has_windows
            && ranges
                .iter()
                .any(|range| range.start == WindowInit::Carried)
        {
            return Ok(None);
        }
        let carry_id = |task: usize| line.history.carry_id(operation, task);
        let end_of = |range: usize| todo[ranges[range].parts.end - 1].tasks.end;
        let row = |range: usize| lane_of_range(range, ranges.len(), slots);
        // A range continues where the range before it in its lane ended.
        let follows = |range: usize| {
            let carried = ranges
                .get(range)
                .is_some_and(|range| range.start == WindowInit::Carried);
            carried
                && range > 0
                && row(range) == row(range - 1)
                && end_of(range - 1) == ranges[range].from
        };
        let mut tasks: Vec<TaskSpec> = Vec::new();
        // The furthest span at which window state is known, how it is restored, and the task that produces it.
        let mut chain = (0, WindowInit::Fresh, None);
        let mut before = None;
        for (number, range) in ranges.iter().enumerate() {
            let (start, after) = match &range.start {
                WindowInit::Carried if follows(number) => {
                    (WindowInit::Kept(carry_id(range.from)), before)
                }
                WindowInit::Carried => {
                    let bytes = line.history.bytes(chain.0..range.from);
                    let what = TaskKind::Advance {
                        from: chain.0,
                        start: chain.1,
                        to: range.from,
                    };
                    tasks.push(TaskSpec {
                        cost: (bytes as f64 * workers.share * ADVANCE_SHARE) as u64,
                        after: chain.2,
                        what,
                    });
                    chain = (
                        range.from,
                        WindowInit::Kept(carry_id(range.from)),
                        Some(tasks.len() - 1),
                    );
                    (chain.1.clone(), chain.2)
                }
                WindowInit::Kept(id) => {
                    chain = (range.from, WindowInit::Kept(*id), None);
                    (range.start.clone(), None)
                }
                start => (start.clone(), None),
            };
            let bytes: u64 = todo[range.parts.clone()]
                .iter()
                .map(|part| line.history.bytes(part.tasks.clone()))
                .sum();
            let ends = range.parts.end == todo.len() && end_of(number) == line.tasks.len();
            let parts = todo[range.parts.clone()].iter();
            let parts = parts
                .map(|part| WorkUnitRef {
                    tasks: part.tasks.clone(),
                    id: part.id,
                })
                .collect();
            let keeps = has_windows && (ends && range.is_whole || follows(number + 1));
            let cost = (bytes as f64 * workers.share) as u64;
            tasks.push(TaskSpec {
                cost,
                after,
                what: TaskKind::Parts {
                    parts,
                    from: range.from,
                    start,
                    keeps,
                },
            });
            before = Some(tasks.len() - 1);
        }
        let last = tasks.len().saturating_sub(1);
        let (mut parts, mut gaps) = (BTreeMap::new(), 0);
        let done = workers.run_tasks(
            &workers.stage_context(self.context.state),
            tasks,
            self.context.state,
            &mut |said| {
                match said {
                    TaskEvent::Part { first, made } => {
                        let strange = |error| {
                            Fault::internal("a worker's answer cannot be read").cause(error)
                        };
                        parts.insert(first, serde_json::from_value(made).map_err(strange)?);
                    }
                    TaskEvent::Done { task, counts } if task == last => gaps = counts.gaps,
                    TaskEvent::Done { .. } | TaskEvent::Moved { .. } => {}
                }
                Ok(())
            },
        );
        done.map_err(
            |failure| match failure.deadly.and_then(|task| line.tasks.get(task)) {
                Some(task) => self.locate_fault(failure.fault, *task),
                None => failure.fault,
            },
        )?;
        let is_kept = has_windows && ranges.last().is_none_or(|range| range.is_whole);
        let carry = is_kept.then(|| carry_id(line.tasks.len()));
        Ok(Some(UnitResults { parts, gaps, carry }))
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
        let WorkerTask {
            line,
            operation,
            units_of,
            store,
            scratch,
            kind,
            control,
            finish_threads,
        } = *task;
        let windows = self.checkpointed_windows();
        let budget =
            WindowBudget::new(self.context.memory.states_bytes() / self.context.threads.max(1));
        let none = BTreeMap::new();
        let kept = |id: ContentId| {
            store.get_carry(id, |input| {
                Carry::decode(windows.as_ref().unwrap_or(&none), &budget, input)
            })
        };
        let keep = |carry: &Carry, task: usize| match &windows {
            Some(windows) => {
                let id = line.history.carry_id(operation, task);
                store.put_carry(id, scratch, &mut |out| carry.encode(windows, out))
            }
            None => Ok(()),
        };
        let stop = control.cancel_flag();
        let begin = |from: usize, start: &WindowInit| {
            let restore = WindowRestore {
                budget: &budget,
                kept: &kept,
                stop,
            };
            self.init_windows(&line.tasks, start, from, &restore, &self)
        };
        match kind {
            TaskKind::Advance { from, start, to } => {
                let Some(mut carry) = begin(*from, start)? else {
                    return Ok(TaskOutcome::Stopped);
                };
                let over = line.tasks.get(*from..*to).ok_or_else(bad_request)?;
                if !self.advance_over(
                    over,
                    ScanCursor {
                        carry: &mut carry,
                        reads: &self,
                    },
                    stop,
                )? {
                    return Ok(TaskOutcome::Stopped);
                }
                keep(&carry, *to)?;
                Ok(TaskOutcome::Done(gap_counts(&carry)))
            }
            TaskKind::Merge { .. }
            | TaskKind::MergeRuns { .. }
            | TaskKind::Divide { .. }
            | TaskKind::Compute { .. }
            | TaskKind::Read { .. }
            | TaskKind::Train { .. } => Err(Fault::internal("a task of another kind")),
            TaskKind::Parts {
                parts,
                from,
                start,
                keeps,
            } => {
                let same = |part: &&WorkUnitRef| {
                    line.history.result_id(units_of, part.tasks.clone()) == part.id
                };
                let within = |part: &&WorkUnitRef| part.tasks.end <= line.tasks.len();
                if parts.iter().filter(within).filter(same).count() != parts.len() {
                    let fault = Fault::new(
                        codes::SEES_OTHER_DATA,
                        "the worker sees other data than the coordinator",
                    );
                    return Err(fault.hint("give all of them the same files, at the same paths"));
                }
                let Some(mut carry) = begin(*from, start)? else {
                    return Ok(TaskOutcome::Stopped);
                };
                let unwritten = |error| Fault::internal("an answer cannot be written").cause(error);
                let finish = |(first, unfinished): (usize, U)| {
                    control.report_unit(
                        first,
                        serde_json::to_value(finish(unfinished)?).map_err(unwritten)?,
                    )
                };
                let finishers = FlushPool::new(finish_threads, &finish);
                let mut at = *from;
                let each = || {
                    for (number, WorkUnitRef { tasks, id }) in parts.iter().enumerate() {
                        if control.is_draining() {
                            return Ok(TaskOutcome::HandedBack);
                        }
                        if self.is_ordered() {
                            let before = line.tasks.get(at..tasks.start).ok_or_else(bad_request)?;
                            if !self.advance_over(
                                before,
                                ScanCursor {
                                    carry: &mut carry,
                                    reads: &self,
                                },
                                stop,
                            )? {
                                return Ok(TaskOutcome::Stopped);
                            }
                        }
                        let part = WorkUnit::new(tasks.clone(), *id);
                        let ends = *keeps && number + 1 == parts.len();
                        let seal = |carry: &Carry| {
                            if ends {
                                keep(carry, part.tasks.end)
                            } else {
                                Ok(())
                            }
                        };
                        let Some(unfinished) = work(&part, &mut carry, stop, &seal)? else {
                            return Ok(TaskOutcome::Stopped);
                        };
                        finishers.submit((tasks.start, unfinished))?;
                        at = tasks.end;
                    }
                    Ok(TaskOutcome::Done(gap_counts(&carry)))
                };
                finishers.run_scoped(finish_threads, each, None)
            }
        }
    }
}

/// The counts of a task that is done with these windows. Units count their duplicates themselves.
fn gap_counts(carry: &Carry) -> SeriesCounts {
    SeriesCounts {
        gaps: carry.gaps(),
        duplicates: 0,
    }
}
