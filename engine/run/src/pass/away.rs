//! Work units of a pass on workers: how the coordinator submits them, and how a worker runs them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use forebay_model::{Fault, Id, Result, codes};
use forebay_plan::{Budget, Carry};
use forebay_storage::{Event, Interrupt, ScratchDir, Watch};
use forebay_threads::Finishers;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Known;
use super::history::Part;
use super::order::{ADVANCE_SHARE, Cut, Done, Line, Seal, Sequence, Start, Task, bytes_min, row_of};
use crate::commit::Store;
use crate::workers::{Common, Crew, Errand, Failure, Job, PartRef, Said, What, Work, strange};

/// With sequential lanes, each range restores the window state that the range before it in its lane wrote. Workers
/// cannot share such ranges freely. So a lane has at most `RANGES_PER_LANE` ranges of at least `LANE_RANGE_BYTES_MIN`
/// stored bytes each.
const RANGES_PER_ROW: u64 = 3;
const ROW_RANGE_BYTES_MIN: u64 = 32 << 20;

/// Runs the work units of a pass on workers.
pub(crate) struct Away<'a> {
    pub crew: &'a Crew,
    pub job: &'a Job,
    pub work: Work,
    /// The share of the spans' stored bytes that is read.
    pub share: f64,
    pub watch: &'a dyn Watch,
    pub interrupt: &'a Interrupt,
}

impl Away<'_> {
    /// What workers need to know for all tasks of the stage.
    pub fn common(&self, known: &Known) -> Common {
        let ways = known.ways.iter().map(|(op, way)| (*op, *way)).collect();
        Common { job: self.job.clone(), work: self.work, ways, exchanges: known.exchanges.clone() }
    }

    /// Runs tasks on workers and reports their progress. Records the window whose row order was wrong, if one failed.
    pub fn have_done(
        &self,
        common: &Common,
        errands: Vec<Errand>,
        known: &Known,
        hear: &mut dyn FnMut(Said) -> Result<()>,
    ) -> Result<(), Failure> {
        let done = self.crew.run(common, errands, self.interrupt, &mut |said| {
            if let Said::Moved { rows, bytes, spilled } = said {
                self.watch.event(Event::Progress { rows, bytes });
                if spilled > 0 {
                    self.watch.event(Event::Spilled { bytes: spilled });
                }
            }
            hear(said)
        });
        done.inspect_err(|failure| {
            if let (Some(op), Ok(mut fallen)) = (failure.fallen, known.fallen.lock()) {
                fallen.get_or_insert((op, failure.fault.code()));
            }
        })
    }
}

/// The cluster that runs a pass.
#[derive(Clone, Copy)]
pub(crate) struct Crewed<'a> {
    pub crew: &'a Crew,
    pub job: &'a Job,
    /// The pass's position in the program.
    pub pass: usize,
    pub interrupt: &'a Interrupt,
}

impl<'a> Crewed<'a> {
    /// An executor for a stage of the pass.
    pub fn away(self, work: Work, watch: &'a dyn Watch) -> Away<'a> {
        Away { crew: self.crew, job: self.job, work, share: 1.0, watch, interrupt: self.interrupt }
    }
}

/// How a worker's task ended.
pub(crate) enum Ended {
    /// Everything is committed. Holds the number of steps that were not of the declared period, up to the last span.
    Done(u64),
    /// The worker is draining, and some units are not done.
    HandedBack,
    /// The coordinator cancelled the task.
    Stopped,
}

/// The control interface of a worker's task.
pub(crate) trait Errands: Sync {
    /// Set once the coordinator has cancelled the task.
    fn stop(&self) -> &AtomicBool;
    /// Whether the worker is draining.
    fn leaves(&self) -> bool;
    /// Reports a committed unit.
    fn part(&self, first: usize, made: Value) -> Result<()>;
}

impl Sequence<'_> {
    /// Like `OrderedScan::run_units`, on workers; `None` if the window state cannot be handed from one worker to
    /// another.
    pub(super) fn on_workers<T: DeserializeOwned>(
        &self,
        line: &Line,
        shape: Id,
        store: &Store,
        todo: &[Part],
        away: &Away<'_>,
    ) -> Result<Option<Done<T>>> {
        let has_windows = self.kept_windows().is_some();
        let slots = away.crew.slots(away.interrupt)?;
        let bytes: u64 = todo.iter().map(|part| line.history.bytes(part.tasks.clone())).sum();
        let per_row = (bytes / slots.max(1) as u64 / bytes_min(ROW_RANGE_BYTES_MIN)).clamp(1, RANGES_PER_ROW);
        let cut = match line.needs_all() {
            true => Cut::Evenly { rows: slots, each: per_row as usize, advance: ADVANCE_SHARE },
            false => Cut::Falling { slots },
        };
        let ranges = self.ranges(todo, line, cut, &self.kept(line, shape, store))?;
        if !has_windows && ranges.iter().any(|range| range.start == Start::Carried) {
            return Ok(None);
        }
        let carry_id = |task: usize| line.history.carry_id(shape, task);
        let end_of = |range: usize| todo[ranges[range].parts.end - 1].tasks.end;
        let row = |range: usize| row_of(range, ranges.len(), slots);
        // A range continues where the range before it in its lane ended.
        let follows = |range: usize| {
            let carried = ranges.get(range).is_some_and(|range| range.start == Start::Carried);
            carried && range > 0 && row(range) == row(range - 1) && end_of(range - 1) == ranges[range].from
        };
        let mut errands: Vec<Errand> = Vec::new();
        // The furthest span at which window state is known, how it is restored, and the task that produces it.
        let mut chain = (0, Start::Fresh, None);
        let mut before = None;
        for (number, range) in ranges.iter().enumerate() {
            let (start, after) = match &range.start {
                Start::Carried if follows(number) => (Start::Kept(carry_id(range.from)), before),
                Start::Carried => {
                    let bytes = line.history.bytes(chain.0..range.from);
                    let what = What::Advance { from: chain.0, start: chain.1, to: range.from };
                    errands.push(Errand {
                        cost: (bytes as f64 * away.share * ADVANCE_SHARE) as u64,
                        after: chain.2,
                        what,
                    });
                    chain = (range.from, Start::Kept(carry_id(range.from)), Some(errands.len() - 1));
                    (chain.1.clone(), chain.2)
                }
                Start::Kept(id) => {
                    chain = (range.from, Start::Kept(*id), None);
                    (range.start.clone(), None)
                }
                start => (start.clone(), None),
            };
            let bytes: u64 = todo[range.parts.clone()].iter().map(|part| line.history.bytes(part.tasks.clone())).sum();
            let ends = range.parts.end == todo.len() && end_of(number) == line.tasks.len();
            let parts = todo[range.parts.clone()].iter();
            let parts = parts.map(|part| PartRef { tasks: part.tasks.clone(), id: part.id }).collect();
            let keeps = has_windows && (ends && range.is_whole || follows(number + 1));
            let cost = (bytes as f64 * away.share) as u64;
            errands.push(Errand { cost, after, what: What::Parts { parts, from: range.from, start, keeps } });
            before = Some(errands.len() - 1);
        }
        let last = errands.len().saturating_sub(1);
        let (mut parts, mut gaps) = (BTreeMap::new(), 0);
        let done = away.have_done(&away.common(self.known), errands, self.known, &mut |said| {
            match said {
                Said::Part { first, made } => {
                    let strange = |error| Fault::internal("a worker's answer cannot be read").cause(error);
                    parts.insert(first, serde_json::from_value(made).map_err(strange)?);
                }
                Said::Done { errand, gaps: found } if errand == last => gaps = found,
                Said::Done { .. } | Said::Moved { .. } => {}
            }
            Ok(())
        });
        done.map_err(|failure| match failure.deadly.and_then(|task| line.tasks.get(task)) {
            Some(task) => self.name_span(failure.fault, *task),
            None => failure.fault,
        })?;
        let is_kept = has_windows && ranges.last().is_none_or(|range| range.is_whole);
        let carry = is_kept.then(|| carry_id(line.tasks.len()));
        Ok(Some(Done { parts, gaps, carry }))
    }

    fn name_span(&self, fault: Fault, task: Task) -> Fault {
        match self.known.input(self.program, self.scans[task.scan].base) {
            Ok(input) => fault.file(input.dataset.spans[task.span].label()),
            Err(_) => fault,
        }
    }

    /// Runs a task on a worker. Unit ids are made of `name`. `finishing` threads finish units once their rows are
    /// computed.
    pub(super) fn perform<T: Serialize, U: Send>(
        &self,
        line: &Line,
        (shape, name): (Id, Id),
        (store, scratch): (&Store, &ScratchDir),
        (what, errands): (&What, &dyn Errands),
        work: impl Fn(&Part, &mut Carry, &AtomicBool, Seal<'_>) -> Result<Option<U>>,
        (finishing, finish): (usize, &(dyn Fn(U) -> Result<T> + Sync)),
    ) -> Result<Ended> {
        let windows = self.kept_windows();
        let budget = Budget::new(self.memory.states_bytes() / self.threads.max(1));
        let none = BTreeMap::new();
        let kept =
            |id: Id| store.get_carry(id, |input| Carry::decode(windows.as_ref().unwrap_or(&none), &budget, input));
        let keep = |carry: &Carry, task: usize| match &windows {
            Some(windows) => {
                let id = line.history.carry_id(shape, task);
                store.put_carry(id, scratch, &mut |out| carry.encode(windows, out))
            }
            None => Ok(()),
        };
        let stop = errands.stop();
        let begin = |from: usize, start: &Start| self.begin(&line.tasks, (start, from), &budget, &kept, (&self, stop));
        match what {
            What::Advance { from, start, to } => {
                let Some(mut carry) = begin(*from, start)? else { return Ok(Ended::Stopped) };
                let over = line.tasks.get(*from..*to).ok_or_else(strange)?;
                if !self.advance_over(over, (&mut carry, &self), stop)? {
                    return Ok(Ended::Stopped);
                }
                keep(&carry, *to)?;
                Ok(Ended::Done(carry.gaps()))
            }
            What::Merge { .. } | What::Divide { .. } | What::Compute { .. } | What::Read { .. } => {
                Err(Fault::internal("an errand of another kind"))
            }
            What::Parts { parts, from, start, keeps } => {
                let same = |part: &&PartRef| line.history.id(name, part.tasks.clone()) == part.id;
                let within = |part: &&PartRef| part.tasks.end <= line.tasks.len();
                if parts.iter().filter(within).filter(same).count() != parts.len() {
                    let fault = Fault::new(codes::SEES_OTHER_DATA, "the worker sees other data than the coordinator");
                    return Err(fault.hint("give all of them the same files, at the same paths"));
                }
                let Some(mut carry) = begin(*from, start)? else { return Ok(Ended::Stopped) };
                let unwritten = |error| Fault::internal("an answer cannot be written").cause(error);
                let finish = |(first, unfinished): (usize, U)| {
                    errands.part(first, serde_json::to_value(finish(unfinished)?).map_err(unwritten)?)
                };
                let finishers = Finishers::new(finishing, &finish);
                let mut at = *from;
                let each = || {
                    for (number, PartRef { tasks, id }) in parts.iter().enumerate() {
                        if errands.leaves() {
                            return Ok(Ended::HandedBack);
                        }
                        if self.is_ordered()
                            && !self.advance_over(
                                line.tasks.get(at..tasks.start).ok_or_else(strange)?,
                                (&mut carry, &self),
                                stop,
                            )?
                        {
                            return Ok(Ended::Stopped);
                        }
                        let part = Part::new(tasks.clone(), *id);
                        let ends = *keeps && number + 1 == parts.len();
                        let seal = |carry: &Carry| if ends { keep(carry, part.tasks.end) } else { Ok(()) };
                        let Some(unfinished) = work(&part, &mut carry, stop, &seal)? else {
                            return Ok(Ended::Stopped);
                        };
                        finishers.give((tasks.start, unfinished))?;
                        at = tasks.end;
                    }
                    Ok(Ended::Done(carry.gaps()))
                };
                finishers.beside(finishing, each, None)
            }
        }
    }
}
