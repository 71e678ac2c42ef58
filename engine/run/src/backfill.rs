//! Concurrent runs for consecutive intervals: each waits for the results of the run before it that
//! it needs, and publishes after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};

use forebay_model::{Fault, Interval, MEMORY_BYTES_MIN, Pipeline, Result, catch_panic};
use forebay_storage::{Event, EventListener};
use forebay_threads::start_scoped;

use crate::backfill_turn::{BackfillStage, BackfillTurn, SharedStages};
use crate::report::RunReport;
use crate::session::{AttemptState, Session, SessionOptions};

/// A run in progress. If it is dropped before the run is done, the runs after it are cancelled,
/// since they would wait for it.
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
    for turn in &turns[number + 1..] {
        turn.interrupt.abandon();
    }
}

impl Session {
    /// Runs the pipeline for intervals in order of time, and passes the report of each to `each` in
    /// that order. The first runs alone, since the others continue its findings. Of the others, up
    /// to `concurrent_runs_max` are active at a time, each with a share of the threads and of the memory: they
    /// learn in order, write concurrently where windows do not need the state of the interval
    /// before, and publish in order. A fault stops the runs after it, and none of their outputs are
    /// published.
    pub fn backfill(
        &self,
        pipeline: &Pipeline,
        intervals: &[Interval],
        concurrent_runs_max: usize,
        each: &mut dyn FnMut(&Interval, RunReport) -> Result<()>,
    ) -> Result<()> {
        let other_intervals = intervals.len().saturating_sub(1);
        let concurrent_runs =
            self.backfill_parallelism(pipeline, other_intervals, concurrent_runs_max);
        let mut count = if concurrent_runs == 1 {
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
        let other_intervals = &intervals[done..];
        if other_intervals.is_empty() {
            Ok(())
        } else {
            self.backfill_in_parallel(pipeline, other_intervals, concurrent_runs_max, each)
        }
    }

    /// Number of intervals that run at a time. It is 1 with a deadline, which is forecast for one
    /// run, and with workers, which are divided among the tasks of one run.
    fn backfill_parallelism(
        &self,
        pipeline: &Pipeline,
        intervals: usize,
        concurrent_runs_max: usize,
    ) -> usize {
        let has_deadline = self.deadline.is_some() || pipeline.deadline.is_some();
        if has_deadline || self.cluster.is_some() {
            return 1;
        }
        let runs_in_memory = self.options.memory_bytes / MEMORY_BYTES_MIN;
        concurrent_runs_max
            .min(intervals)
            .min(self.options.threads)
            .min(runs_in_memory as usize)
            .max(1)
    }

    /// Waits until the run before has reached a stage, if several run concurrently.
    pub(crate) fn wait_for_previous_run(&self, stage: BackfillStage) -> Result<()> {
        match &self.attempt.backfill_turn {
            Some(turn) => turn.wait_for_previous(stage),
            None => Ok(()),
        }
    }

    fn backfill_in_parallel(
        &self,
        pipeline: &Pipeline,
        intervals: &[Interval],
        concurrent_runs_max: usize,
        each: &mut dyn FnMut(&Interval, RunReport) -> Result<()>,
    ) -> Result<()> {
        let concurrent_runs =
            self.backfill_parallelism(pipeline, intervals.len(), concurrent_runs_max);
        self.watch.on_event(Event::Beside {
            intervals: intervals.len(),
            beside: concurrent_runs,
        });
        let runs = ConcurrentRuns {
            session: self,
            pipeline,
            intervals,
            turns: self.backfill_turns(intervals.len(), concurrent_runs),
            next: AtomicUsize::new(0),
        };
        let mut failure: Option<(usize, Fault)> = None;
        let mut done = 0;
        let (sender, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for number in 0..concurrent_runs {
                let sender = sender.clone();
                let runs = &runs;
                match start_scoped(scope, move || runs.work(&sender)) {
                    Ok(_) => {}
                    Err(fault) if number == 0 => failure = Some((0, fault)),
                    // The threads that could be started run the intervals of the others.
                    Err(_) => break,
                }
            }
            // The results end once the last thread has dropped its sender.
            drop(sender);
            for (number, report) in results {
                done += 1;
                self.watch.on_event(Event::IntervalDone {
                    done,
                    intervals: intervals.len(),
                });
                let Err(fault) = report.and_then(|report| each(&intervals[number], report)) else {
                    continue;
                };
                cancel_after(&runs.turns, number);
                // The fault of the earliest interval is reported.
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

    fn backfill_turns(&self, intervals: usize, concurrent_runs: usize) -> Vec<BackfillTurn> {
        let stages: Arc<SharedStages> = Arc::new((
            Mutex::new(vec![BackfillStage::Begun; intervals]),
            Condvar::new(),
        ));
        let mut turns = Vec::with_capacity(intervals);
        for number in 0..intervals {
            turns.push(BackfillTurn {
                stages: stages.clone(),
                number,
                interrupt: self.interrupt.for_parallel_run(),
                concurrent_runs,
            });
        }
        turns
    }
}

/// The runs of a backfill that several threads carry out: each thread takes the next run that none has begun.
struct ConcurrentRuns<'a> {
    session: &'a Session,
    pipeline: &'a Pipeline,
    intervals: &'a [Interval],
    turns: Vec<BackfillTurn>,
    /// Number of the first run that no thread has begun.
    next: AtomicUsize,
}

impl ConcurrentRuns<'_> {
    /// Carries out runs until none is left or one fails, and sends their results.
    fn work(&self, results: &mpsc::Sender<(usize, Result<RunReport>)>) {
        while let Some(turn) = self.turns.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if turn.interrupt.check().is_err() {
                return;
            }
            let guard = TurnGuard {
                turns: &self.turns,
                number: turn.number,
                is_done: false,
            };
            let report = catch_panic(|| self.run(turn));
            let is_done = report.is_ok();
            // Sent before the next run can finish, so that reports arrive in order.
            if results.send((turn.number, report)).is_err() || !is_done {
                return;
            }
            guard.done();
        }
    }

    fn run(&self, turn: &BackfillTurn) -> Result<RunReport> {
        let session = Session {
            interrupt: turn.interrupt.clone(),
            options: SessionOptions {
                threads: self.session.options.threads / turn.concurrent_runs,
                ..self.session.options.clone()
            },
            watch: Arc::new(FilteredWatch(self.session.watch.clone())),
            attempt: AttemptState {
                backfill_turn: Some(turn.clone()),
                ..AttemptState::default()
            },
            ..self.session.clone()
        };
        session.run_one_interval(self.pipeline, &self.intervals[turn.number])
    }
}

/// Forwards the events of a run that do not belong to single passes, for one of several concurrent
/// runs.
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
