//! Times at which the passes of a run began and ended, and the memory of the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_model::TraceContext;
use forebay_storage::{EpochReport, Event, EventListener, resident_bytes};

use super::workers::WorkerLog;
use crate::observe::JudgedRules;

/// Minimum time between two samples of the memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// Maximum number of samples of the memory: beyond it, every second one is dropped.
const SAMPLES_MAX: usize = 1_000;

/// Warnings that are kept.
const WARNINGS_MAX: usize = 100;

/// Epochs of a training that are kept.
const EPOCHS_MAX: usize = 1_000;

/// Records the events of a run and passes them on.
pub(crate) struct Timeline {
    inner: Arc<dyn EventListener>,
    began: Instant,
    seen: Mutex<TimelineRecord>,
}

/// Recorded events. Times are seconds since the run began.
#[derive(Debug, Clone, Default)]
pub(super) struct TimelineRecord {
    pub passes: Vec<PassTime>,
    /// Passes of the program, from the last one that began.
    pub pass_count: usize,
    pub memory: Vec<MemorySample>,
    pub warnings: Vec<String>,
    pub rules: JudgedRules,
    pub workers: WorkerLog,
    /// The folders of sources, by name.
    pub folders: BTreeMap<String, String>,
    /// Epochs of trainings, by sink.
    pub epochs: BTreeMap<String, Vec<EpochReport>>,
    pub total: f64,
}

/// A pass.
#[derive(Debug, Clone)]
pub(super) struct PassTime {
    pub label: String,
    pub from: f64,
    pub to: Option<f64>,
    pub number: usize,
    /// True if an earlier run had done it.
    pub reused: bool,
    pub rows: u64,
    pub bytes: u64,
}

/// Sample of the memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemorySample {
    pub at: f64,
    pub bytes: u64,
}

impl Timeline {
    pub fn new(inner: Arc<dyn EventListener>) -> Timeline {
        Timeline {
            inner,
            began: Instant::now(),
            seen: Mutex::default(),
        }
    }

    /// The events recorded so far.
    pub(super) fn record(&self) -> TimelineRecord {
        let mut seen = self
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        seen.total = self.began.elapsed().as_secs_f64();
        seen.memory
            .extend(resident_bytes().map(|bytes| MemorySample {
                at: seen.total,
                bytes,
            }));
        seen
    }

    fn hear(&self, event: &Event) {
        let now = self.began.elapsed().as_secs_f64();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::PassStarted {
                number,
                total,
                label,
                ..
            } => {
                let label = label.clone();
                let number = *number;
                seen.passes.push(PassTime {
                    label,
                    from: now,
                    to: None,
                    number,
                    reused: false,
                    rows: 0,
                    bytes: 0,
                });
                seen.pass_count = *total;
            }
            Event::PassDone { reused, rows, .. } => {
                if let Some(pass) = seen.passes.last_mut() {
                    (pass.to, pass.reused, pass.rows) = (Some(now), *reused, *rows);
                }
            }
            Event::Progress { rows, bytes } => {
                if let Some(pass) = seen.passes.last_mut() {
                    pass.rows += rows;
                    pass.bytes += bytes;
                }
            }
            Event::Warning { message } if seen.warnings.len() < WARNINGS_MAX => {
                seen.warnings.push(message.clone())
            }
            Event::Discovered {
                source,
                folder: Some(folder),
                ..
            } => {
                seen.folders.insert(source.clone(), folder.clone());
            }
            Event::TrainingEpoch { sink, epoch, .. } => {
                let epochs = seen.epochs.entry(sink.clone()).or_default();
                if epochs.len() < EPOCHS_MAX {
                    epochs.push(epoch.clone());
                }
            }
            event => {
                seen.rules.hear(event);
                seen.workers.hear(event);
            }
        }
        if seen
            .memory
            .last()
            .is_none_or(|last| now - last.at >= SAMPLE_EVERY.as_secs_f64())
            && let Some(bytes) = resident_bytes()
        {
            if seen.memory.len() == SAMPLES_MAX {
                let mut keep = false;
                seen.memory.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
            seen.memory.push(MemorySample { at: now, bytes });
        }
    }
}

impl EventListener for Timeline {
    fn on_event(&self, event: Event) {
        self.hear(&event);
        self.inner.on_event(event);
    }

    fn task_context(&self, task: u64) -> Option<TraceContext> {
        self.inner.task_context(task)
    }
}
