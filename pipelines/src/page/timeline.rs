//! When the passes of a run began and ended, and how much memory the process had.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_storage::{Event, EventListener, TraceContext, resident_bytes};

/// Least distance of two looks at the memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// Looks at the memory at most: beyond, every second one is forgotten.
const SAMPLES_MAX: usize = 1_000;

/// Listens to a run and passes on what it hears.
pub(crate) struct Timeline {
    inner: Arc<dyn EventListener>,
    began: Instant,
    seen: Mutex<TimelineRecord>,
}

/// What was heard. Times are seconds since the run began.
#[derive(Debug, Clone, Default)]
pub(super) struct TimelineRecord {
    pub passes: Vec<PassTime>,
    pub memory: Vec<MemorySample>,
    pub total: f64,
}

/// A pass.
#[derive(Debug, Clone)]
pub(super) struct PassTime {
    pub label: String,
    pub from: f64,
    pub to: Option<f64>,
    pub bytes: u64,
}

/// A look at the memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemorySample {
    pub at: f64,
    pub bytes: u64,
}

impl Timeline {
    pub fn new(inner: Arc<dyn EventListener>) -> Timeline {
        Timeline { inner, began: Instant::now(), seen: Mutex::default() }
    }

    /// What was heard until now.
    pub(super) fn record(&self) -> TimelineRecord {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        TimelineRecord { total: self.began.elapsed().as_secs_f64(), ..seen }
    }

    fn hear(&self, event: &Event) {
        let now = self.began.elapsed().as_secs_f64();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::PassStarted { label, .. } => {
                seen.passes.push(PassTime { label: label.clone(), from: now, to: None, bytes: 0 });
            }
            Event::PassDone { .. } => {
                if let Some(pass) = seen.passes.last_mut() {
                    pass.to = Some(now);
                }
            }
            Event::Progress { bytes, .. } => {
                if let Some(pass) = seen.passes.last_mut() {
                    pass.bytes += bytes;
                }
            }
            _ => {}
        }
        if seen.memory.last().is_none_or(|last| now - last.at >= SAMPLE_EVERY.as_secs_f64())
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
