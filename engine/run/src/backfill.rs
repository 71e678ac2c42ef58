//! Runs for intervals that follow each other, side by side: each waits where it needs what the one before
//! it leaves, and publishes after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use forebay_model::{Fault, Interval, MEMORY_BYTES_MIN, Pipeline, Result, catch_panic};
use forebay_storage::{CancellationToken, Event, EventListener};

use crate::report::RunReport;
use crate::session::{Session, SessionOptions};

/// Interval at which a waiting run checks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How far a run has come, as the one after it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BackfillStage {
    /// On its way.
    Begun,
    /// What it learns is committed.
    Learned,
    /// Everything is published.
    Done,
}

/// How far each of the runs has come.
type SharedStages = (Mutex<Vec<BackfillStage>>, Condvar);

/// A run's place among those side by side.
#[derive(Clone)]
pub(crate) struct BackfillTurn {
    stages: Arc<SharedStages>,
    number: usize,
    /// What stops this run alone.
    interrupt: CancellationToken,
    /// How many are at work at a time.
    pub beside: usize,
}

impl BackfillTurn {
    /// Nothing that holds the lock can fail half-way.
    fn stages(&self) -> MutexGuard<'_, Vec<BackfillStage>> {
        self.stages.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the run before has come so far; fails where it never will.
    pub fn wait_for_previous(&self, stage: BackfillStage) -> Result<()> {
        let mut stages = self.stages();
        loop {
            self.interrupt.check()?;
            if self.number == 0 || stages[self.number - 1] >= stage {
                return Ok(());
            }
            stages = self
                .stages
                .1
                .wait_timeout(stages, LOOK_EVERY)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The run has come so far.
    pub fn advance_to(&self, stage: BackfillStage) {
        self.stages()[self.number] = stage;
        self.stages.1.notify_all();
    }
}

/// A run that is on its way. Unless it is done when this ends, in whatever way, the runs after it are given up: they
/// would wait for it.
struct TurnGuard<'t> {
    turns: &'t [BackfillTurn],
    number: usize,
    is_done: bool,
}

impl TurnGuard<'_> {
    fn done(mut self) {
        self.turns[self.number].advance_to(BackfillStage::Done);
        self.is_done = true;
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            cancel_after(self.turns, self.number);
        }
    }
}

fn cancel_after(turns: &[BackfillTurn], number: usize) {
    turns[number + 1..]
        .iter()
        .for_each(|turn| turn.interrupt.abandon());
}

impl Session {
    /// Runs for intervals in order of time; `each` gets what every one came to, in their order. The first
    /// goes alone: it leaves what the others go on from. Of those, `beside` are at work at a time, with a share each
    /// of the threads and of the memory: they learn in order, write side by side where windows do not need what
    /// the interval before remembers, and publish in order. A fault stops those after it, and nothing of theirs
    /// is published.
    pub fn backfill(
        &self,
        pipeline: &Pipeline,
        intervals: &[Interval],
        beside: usize,
        each: &mut dyn FnMut(&Interval, RunReport) -> Result<()>,
    ) -> Result<()> {
        let alone =
            self.backfill_parallelism(pipeline, intervals.len().saturating_sub(1), beside) == 1;
        let mut count = if alone {
            intervals.len()
        } else {
            intervals.len().min(1)
        };
        let mut done = 0;
        while done < count {
            let report = self.run_one_interval(pipeline, &intervals[done])?;
            // Each needs the artifact of the one before.
            if !report.continued.is_empty() || !report.refits.is_empty() {
                count = intervals.len();
            }
            each(&intervals[done], report)?;
            done += 1;
        }
        let rest = &intervals[done..];
        if rest.is_empty() {
            Ok(())
        } else {
            self.backfill_in_parallel(pipeline, rest, beside, each)
        }
    }

    /// How many intervals are at work at a time. Deadlines foretell one run; workers are divided among
    /// the tasks of one.
    fn backfill_parallelism(&self, pipeline: &Pipeline, intervals: usize, asked: usize) -> usize {
        let kept_on_time = self.deadline.is_some() || pipeline.deadline.is_some();
        let memory = self.options.memory_bytes / MEMORY_BYTES_MIN;
        let most = asked
            .min(intervals)
            .min(self.options.threads)
            .min(memory as usize)
            .max(1);
        if kept_on_time || self.cluster.is_some() {
            1
        } else {
            most
        }
    }

    /// Waits until the run before, where several are side by side, has come so far.
    pub(crate) fn wait_for_previous_run(&self, stage: BackfillStage) -> Result<()> {
        self.turn
            .as_ref()
            .map_or(Ok(()), |turn| turn.wait_for_previous(stage))
    }

    fn backfill_in_parallel(
        &self,
        pipeline: &Pipeline,
        intervals: &[Interval],
        asked: usize,
        each: &mut dyn FnMut(&Interval, RunReport) -> Result<()>,
    ) -> Result<()> {
        let beside = self.backfill_parallelism(pipeline, intervals.len(), asked);
        self.watch.on_event(Event::Beside {
            intervals: intervals.len(),
            beside,
        });
        let turns: Vec<BackfillTurn> = {
            let stages: Arc<SharedStages> = Arc::new((
                Mutex::new(vec![BackfillStage::Begun; intervals.len()]),
                Condvar::new(),
            ));
            let turn = |number| BackfillTurn {
                stages: stages.clone(),
                number,
                interrupt: self.interrupt.for_parallel_run(),
                beside,
            };
            (0..intervals.len()).map(turn).collect()
        };
        let run = |turn: &BackfillTurn| {
            let session = Session {
                interrupt: turn.interrupt.clone(),
                options: SessionOptions {
                    threads: self.options.threads / beside,
                    ..self.options.clone()
                },
                watch: Arc::new(FilteredWatch(self.watch.clone())),
                turn: Some(turn.clone()),
                ..self.clone()
            };
            session.run_one_interval(pipeline, &intervals[turn.number])
        };
        let next = AtomicUsize::new(0);
        let (tell, told) = mpsc::channel();
        let worker = |tell: mpsc::Sender<(usize, Result<RunReport>)>| {
            while let Some(turn) = turns.get(next.fetch_add(1, Ordering::Relaxed)) {
                if turn.interrupt.check().is_err() {
                    return;
                }
                let running = TurnGuard {
                    turns: &turns,
                    number: turn.number,
                    is_done: false,
                };
                let done = catch_panic(|| run(turn));
                let is_done = done.is_ok();
                // It is told before the one after it can be done: they are told in order.
                if tell.send((turn.number, done)).is_err() || !is_done {
                    return;
                }
                running.done();
            }
        };
        let mut failure: Option<(usize, Fault)> = None;
        let mut done = 0;
        std::thread::scope(|scope| {
            for _ in 0..beside {
                let (tell, worker) = (tell.clone(), &worker);
                scope.spawn(move || worker(tell));
            }
            drop(tell);
            for (number, report) in told {
                done += 1;
                self.watch.on_event(Event::IntervalDone {
                    done,
                    intervals: intervals.len(),
                });
                let Err(fault) = report.and_then(|report| each(&intervals[number], report)) else {
                    continue;
                };
                cancel_after(&turns, number);
                if failure.as_ref().is_none_or(|(first, _)| number < *first) {
                    failure = Some((number, fault));
                }
            }
        });
        match failure {
            Some((_, fault)) => Err(fault),
            None if done < intervals.len() => self.interrupt.check(),
            None => Ok(()),
        }
    }
}

/// Of one of several runs at a time, only what does not belong to its passes is told.
struct FilteredWatch(Arc<dyn EventListener>);

impl EventListener for FilteredWatch {
    fn on_event(&self, event: Event) {
        match event {
            Event::Warning { .. }
            | Event::Waiting { .. }
            | Event::Progress { .. }
            | Event::Spilled { .. } => {
                self.0.on_event(event);
            }
            _ => {}
        }
    }
}
