//! Progress and heartbeats of tasks.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use forebay_model::{Fault, Result, catch_panic};
use forebay_storage::{Event, EventListener};

use crate::protocol::{TaskProgress, WorkerMessage};
use crate::task_exec::MessageSink;

/// The progress of a task so far.
#[derive(Default)]
pub struct TaskMeter {
    rows: AtomicU64,
    bytes: AtomicU64,
    spilled_bytes: AtomicU64,
    cpu_micros: AtomicU64,
}

thread_local! {
    /// The meter of the task that this thread runs, and the thread's CPU time before the task.
    static METER: RefCell<Option<(Arc<TaskMeter>, u64)>> = const { RefCell::new(None) };
}

/// Passes the events of a task's thread to its meter.
pub struct MeterWatch;

impl EventListener for MeterWatch {
    fn on_event(&self, event: Event) {
        METER.with_borrow(|meter| {
            let Some((meter, cpu_at_start)) = meter else {
                return;
            };
            match event {
                Event::Progress { rows, bytes } => {
                    meter.rows.fetch_add(rows, Ordering::Relaxed);
                    meter.bytes.fetch_add(bytes, Ordering::Relaxed);
                    meter.record_cpu_time(*cpu_at_start);
                }
                Event::Spilled { bytes } => {
                    meter.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                _ => {}
            }
        });
    }
}

/// CPU time of this thread in microseconds; 0 where the system does not report it.
fn thread_cpu_micros() -> u64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = spent.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    nanos.unwrap_or(0) / 1000
}

impl TaskMeter {
    /// Records the CPU time of this thread since the task began, where it had used `cpu_at_start`.
    fn record_cpu_time(&self, cpu_at_start: u64) {
        self.cpu_micros.store(
            thread_cpu_micros().saturating_sub(cpu_at_start),
            Ordering::Relaxed,
        );
    }

    /// Progress so far.
    pub fn progress(&self) -> TaskProgress {
        TaskProgress {
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            spilled_bytes: self.spilled_bytes.load(Ordering::Relaxed),
            cpu_seconds: self.cpu_micros.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }
}

/// Runs a task, and sends heartbeats meanwhile. A panic becomes a fault, which the coordinator receives, and
/// ends the heartbeats.
pub fn with_heartbeat<T>(
    out: &MessageSink,
    beat: Duration,
    meter: &Arc<TaskMeter>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let over = Mutex::new(false);
    let moved = Condvar::new();
    std::thread::scope(|scope| {
        let beats = std::thread::Builder::new().spawn_scoped(scope, || {
            let mut done = over.lock().unwrap_or_else(PoisonError::into_inner);
            while !*done {
                done = moved
                    .wait_timeout(done, beat)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
                if !*done && !out.send(WorkerMessage::Beat(meter.progress())) {
                    return;
                }
            }
        });
        beats.map_err(Fault::refused_thread)?;
        let cpu_at_start = thread_cpu_micros();
        METER.with_borrow_mut(|slot| *slot = Some((meter.clone(), cpu_at_start)));
        let done = catch_panic(work);
        METER.with_borrow_mut(|slot| *slot = None);
        meter.record_cpu_time(cpu_at_start);
        *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        moved.notify_all();
        done
    })
}
