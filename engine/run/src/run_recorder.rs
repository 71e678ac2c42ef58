//! Writes the record of a run: every few seconds while the run goes on, and at its end.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use forebay_model::{Fault, Result, TraceContext, codes, hide_secrets};
use forebay_storage::{
    AttemptOrigin, Event, EventListener, StorageClient, StorageLocation, peak_resident_bytes,
};
use forebay_threads::start_thread;
use uuid::Uuid;

use crate::run_record::{
    HistoryLimits, LISTED_MAX, RecordedFault, RecordedPass, RecordedRule, RunRecord, RunRecordState,
};

/// Time between two records of a run that goes on. A shorter run is recorded once, at its end.
const EVERY: Duration = Duration::from_secs(2);

/// Passes that are recorded: the latest ones.
const PASSES_MAX: usize = 200;

/// Records a run, and passes its events on.
pub(crate) struct RunRecorder {
    inner: Arc<dyn EventListener>,
    io: StorageClient,
    state: StorageLocation,
    limits: HistoryLimits,
    began: Instant,
    record: Mutex<RunRecord>,
}

/// A run that is recorded until [`RecordedRun::finish`].
pub(crate) struct RecordedRun {
    recorder: Arc<RunRecorder>,
    stop: Sender<()>,
    /// Thread that records the run while it goes on. Where the system refuses it, the run is recorded at its end alone.
    writer: Option<JoinHandle<()>>,
}

impl RecordedRun {
    /// Begins to record a run. The record holds the facts about the run that are known before it.
    pub fn begin(
        io: &StorageClient,
        state: StorageLocation,
        inner: Arc<dyn EventListener>,
        record: RunRecord,
        limits: HistoryLimits,
    ) -> RecordedRun {
        let origin = AttemptOrigin::current_process();
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let random = Uuid::new_v4().simple().to_string();
        let random = random.get(..8).unwrap_or_default();
        let name = format!("{:015}-{random}", now.as_millis());
        let named = RunRecord::new(name);
        let recorder = Arc::new(RunRecorder {
            inner,
            io: io.clone(),
            state,
            limits,
            began: Instant::now(),
            record: Mutex::new(RunRecord {
                format: named.format,
                name: named.name,
                host: origin.host,
                process: origin.process,
                began: now.as_secs(),
                ..record
            }),
        });
        let (stop, stopped) = channel::<()>();
        let live = recorder.clone();
        let writer = start_thread("forebay-record", move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                // The record at the end of the run reports a store that cannot be written.
                let _ = live.write();
            }
        });
        RecordedRun {
            recorder,
            stop,
            writer: writer.ok(),
        }
    }

    /// Listener of the run.
    pub fn listener(&self) -> Arc<dyn EventListener> {
        self.recorder.clone()
    }

    /// Records the end of the run: on success as `fill` describes it, and on failure with the fault. No run fails
    /// because it cannot be recorded.
    pub fn finish<T>(self, ended: &Result<T>, fill: impl FnOnce(&T, &mut RunRecord)) {
        drop(self.stop);
        if let Some(writer) = self.writer {
            let _ = writer.join();
        }
        let recorder = self.recorder;
        {
            let mut record = recorder.lock();
            record.expected_end = None;
            record.waits_for = None;
            record.memory_bytes = peak_resident_bytes();
            match ended {
                Ok(report) => fill(report, &mut record),
                Err(fault) => {
                    record.state = RunRecordState::Failed;
                    record.fault = Some(recorded_fault(fault));
                }
            }
        }
        if let Err(fault) = ended
            && recorder.is_out_of_reach(fault)
        {
            return;
        }
        // A run that failed says so itself, also where its state directory cannot be written.
        let warning = match recorder.write() {
            Err(fault) => format!("the run is not recorded: {}", fault.message()),
            Ok(()) => match recorder.remove_surplus() {
                Ok(()) => return,
                Err(fault) => format!("old records of runs stay: {}", fault.message()),
            },
        };
        if ended.is_ok() {
            recorder.inner.on_event(Event::Warning { message: warning });
        }
    }
}

impl RunRecorder {
    fn lock(&self) -> MutexGuard<'_, RunRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if nothing should be written where a run failed: its store may not answer, and to try once more would double
    /// the time in which the run fails; or its bucket is missing, and some stores make one with the first object.
    fn is_out_of_reach(&self, fault: &Fault) -> bool {
        if self.state.local.is_some() {
            return false;
        }
        fault.code() == codes::STORAGE || self.io.require_bucket(&self.state).is_err()
    }

    /// Removes the records of old runs.
    fn remove_surplus(&self) -> Result<()> {
        let record = self.lock().clone();
        record.remove_surplus(&self.io, &self.state, self.limits)
    }

    fn write(&self) -> Result<()> {
        let mut record = self.lock().clone();
        let seconds = self.began.elapsed().as_secs_f64();
        record.seconds = seconds;
        record.seen = record.began + seconds as u64;
        // Faults hide secrets themselves.
        for warning in &mut record.warnings {
            *warning = hide_secrets(warning).into_owned();
        }
        record.write(&self.io, &self.state)
    }

    fn record_event(&self, event: &Event) {
        let now = self.began.elapsed().as_secs_f64();
        let mut record = self.lock();
        match event {
            Event::PassStarted {
                number,
                total,
                label,
                bytes,
                ..
            } => {
                record.waits_for = None;
                record.pass_count = *total;
                if record.passes.len() == PASSES_MAX {
                    record.passes.remove(0);
                    record.passes_left_out += 1;
                }
                record.passes.push(RecordedPass {
                    label: label.clone(),
                    number: *number,
                    from: now,
                    bytes_to_read: *bytes,
                    ..RecordedPass::default()
                });
            }
            Event::PassDone {
                number,
                reused,
                rows,
                ..
            } => {
                if let Some(pass) = record.passes.last_mut()
                    && pass.number == *number
                {
                    pass.to = Some(now);
                    pass.reused = *reused;
                    pass.rows = *rows;
                }
            }
            Event::Progress { rows, bytes } => {
                record.read_bytes += bytes;
                if let Some(pass) = record.passes.last_mut() {
                    pass.rows += rows;
                    pass.bytes += bytes;
                }
            }
            Event::PassReads { bytes, of } => {
                if let Some(pass) = record.passes.last_mut() {
                    let inputs = pass.bytes_to_read.unwrap_or_default();
                    // Results of earlier runs stand for the other bytes that were looked up.
                    pass.bytes_to_read = Some(inputs.saturating_sub(*of) + bytes);
                }
            }
            Event::Spilled { bytes } => record.spilled_bytes += bytes,
            Event::Eta { end, .. } => record.expected_end = Some(end.clone()),
            Event::Waiting {
                source,
                wanted: condition,
                ..
            } => {
                record.waits_for = Some(format!("{source}: {condition}"));
            }
            Event::ExpectationJudged {
                step,
                rule,
                holds,
                rows,
                violations,
                found: finding,
                ..
            } => {
                record.rules += 1;
                let failed = RecordedRule {
                    step: step.clone(),
                    rule: rule.clone(),
                    rows: *rows,
                    violations: *violations,
                    finding: finding.clone(),
                };
                let is_new = !holds && !record.failed_rules.contains(&failed);
                if is_new && record.failed_rules.len() < LISTED_MAX {
                    record.failed_rules.push(failed);
                }
            }
            Event::Warning { message } if record.warnings.len() < LISTED_MAX => {
                record.warnings.push(message.clone());
            }
            _ => {}
        }
    }
}

impl EventListener for RunRecorder {
    fn on_event(&self, event: Event) {
        self.record_event(&event);
        self.inner.on_event(event);
    }

    fn task_context(&self, task: u64) -> Option<TraceContext> {
        self.inner.task_context(task)
    }
}

fn recorded_fault(fault: &Fault) -> RecordedFault {
    RecordedFault {
        code: fault.code().name.to_owned(),
        message: fault.message().to_owned(),
        hint: fault.hint_text().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use forebay_storage::IgnoreEvents;

    use super::*;

    fn pass_started(number: usize, label: &str) -> Event {
        Event::PassStarted {
            number,
            total: 2,
            label: label.to_owned(),
            id: String::new(),
            bytes: Some(100),
        }
    }

    #[test]
    fn the_latest_passes_are_recorded_and_no_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap();
        let state = io.resolve(&directory.path().display().to_string()).unwrap();
        let begun = RunRecord::default();
        let recorded = RecordedRun::begin(
            &io,
            state.clone(),
            Arc::new(IgnoreEvents),
            begun,
            HistoryLimits::from_env().unwrap(),
        );
        let listener = recorded.listener();
        for number in 1..=PASSES_MAX + 2 {
            listener.on_event(pass_started(number, "learn"));
            listener.on_event(Event::Progress { rows: 7, bytes: 50 });
        }
        listener.on_event(Event::Warning {
            message: "no answer of http://me:pw@host/a".to_owned(),
        });
        recorded.finish(&Ok(()), |_, _| {});

        let names = RunRecord::names(&io, &state).unwrap();
        let record = RunRecord::read(&io, &state, &names[0]).unwrap().unwrap();
        assert_eq!(
            (record.passes.len(), record.passes_left_out),
            (PASSES_MAX, 2)
        );
        assert_eq!(record.passes[0].number, 3);
        assert!(record.passes.iter().all(|pass| pass.rows == 7));
        assert_eq!(record.warnings, ["no answer of http://***@host/a"]);
    }

    #[test]
    fn a_run_that_fails_is_recorded_as_far_as_it_came() {
        let directory = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap();
        let state = io.resolve(&directory.path().display().to_string()).unwrap();
        let begun = RunRecord {
            pipeline: "shop".to_owned(),
            ..RunRecord::default()
        };
        let recorded = RecordedRun::begin(
            &io,
            state.clone(),
            Arc::new(IgnoreEvents),
            begun,
            HistoryLimits::from_env().unwrap(),
        );
        let listener = recorded.listener();
        listener.on_event(pass_started(1, "learn 1"));
        listener.on_event(Event::PassReads { bytes: 10, of: 60 });
        listener.on_event(Event::Progress { rows: 7, bytes: 50 });
        listener.on_event(Event::PassDone {
            number: 1,
            reused: false,
            rows: 7,
            filtered: 0,
        });
        listener.on_event(pass_started(2, "write table"));
        for holds in [true, false, false] {
            listener.on_event(Event::ExpectationJudged {
                step: "checked".to_owned(),
                rule: "not_null: qty".to_owned(),
                holds,
                rows: 7,
                violations: 2,
                quarantined: 0,
                found: "2 nulls".to_owned(),
                drift: None,
            });
        }
        let fault = Fault::new(codes::BAD_VALUE, "a rule does not hold").hint("look at qty");
        let ended: Result<()> = Err(fault);
        recorded.finish(&ended, |_, _| {});

        let names = RunRecord::names(&io, &state).unwrap();
        assert_eq!(names.len(), 1);
        let record = RunRecord::read(&io, &state, &names[0]).unwrap().unwrap();
        assert_eq!(
            (record.pipeline.as_str(), record.state, record.pass_count),
            ("shop", RunRecordState::Failed, 2)
        );
        let passes = record.passes.iter();
        let passes: Vec<_> = passes
            .map(|pass| {
                (
                    pass.label.as_str(),
                    pass.to.is_some(),
                    pass.rows,
                    pass.bytes_to_read,
                )
            })
            .collect();
        assert_eq!(
            passes,
            [
                ("learn 1", true, 7, Some(50)),
                ("write table", false, 0, Some(100))
            ]
        );
        assert_eq!((record.rules, record.failed_rules.len()), (3, 1));
        let fault = record.fault.unwrap();
        assert_eq!(fault.message, "a rule does not hold");
        assert_eq!(fault.hint.as_deref(), Some("look at qty"));
    }
}
