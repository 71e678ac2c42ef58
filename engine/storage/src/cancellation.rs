//! Cancellation: a shared flag that signal handlers and deadlines set, and that readers and waits check.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};

/// Time for which storage may still answer after a run was cancelled: a commit in progress
/// completes, and a server that does not answer delays the end of the run no longer than this.
const GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Interval at which a waiting thread checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Cancellation of a run. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CancellationToken {
    stop: Arc<AtomicBool>,
    /// Time at which the cancellation was first seen.
    seen: Arc<OnceLock<Instant>>,
    /// True if the run is cancelled because one before it failed.
    given_up: Arc<AtomicBool>,
    /// Request of the deadline's monitor to this run.
    deadline: Arc<AtomicU8>,
}

/// The run continues in another way.
const DEGRADE_REQUESTED: u8 = 1;

/// The deadline has passed, and that ends the run.
const DEADLINE_PASSED: u8 = 2;

impl CancellationToken {
    /// The flag that signal handlers set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Fails when the run should stop.
    pub fn check(&self) -> Result<()> {
        let hint = "what is committed stays; run the same command again to go on";
        if self.stop.load(Ordering::Relaxed) {
            return Err(Fault::new(codes::INTERRUPTED, "the run was asked to stop").hint(hint));
        }
        if self.given_up.load(Ordering::Relaxed) {
            return Err(
                Fault::new(codes::INTERRUPTED, "an interval before this one failed").hint(hint),
            );
        }
        match self.deadline.load(Ordering::Relaxed) {
            DEGRADE_REQUESTED => Err(Fault::new(
                codes::DEADLINE,
                "the run goes on another way, because of its deadline",
            )
            .hint(hint)),
            DEADLINE_PASSED => {
                let fault = Fault::new(
                    codes::DEADLINE,
                    "the deadline has passed, and `on_deadline` says to fail",
                );
                Err(fault
                    .hint("what is committed stays: run again to go on, with a later deadline"))
            }
            _ => Ok(()),
        }
    }

    /// A token that shares the cancellation, with a deadline of its own.
    pub fn with_own_deadline(&self) -> CancellationToken {
        CancellationToken {
            deadline: Arc::default(),
            ..self.clone()
        }
    }

    /// A token for one of several concurrent runs, which can also be cancelled alone.
    pub fn for_parallel_run(&self) -> CancellationToken {
        CancellationToken {
            given_up: Arc::default(),
            ..self.with_own_deadline()
        }
    }

    /// Stops one of several concurrent runs.
    pub fn abandon(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Stops the current work of the run, so that it continues in another way, or lets it continue.
    pub fn set_degrade_requested(&self, on: bool) {
        self.deadline
            .store(if on { DEGRADE_REQUESTED } else { 0 }, Ordering::Relaxed);
    }

    /// Stops the run for good.
    pub fn set_deadline_passed(&self) {
        self.deadline.store(DEADLINE_PASSED, Ordering::Relaxed);
    }

    /// True if the deadline has passed.
    pub fn is_deadline_passed(&self) -> bool {
        self.deadline.load(Ordering::Relaxed) == DEADLINE_PASSED
    }

    /// Waits until the run should stop.
    pub async fn wait_cancelled(&self) -> Fault {
        loop {
            if let Err(fault) = self.check() {
                return fault;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the run should stop and some seconds more have gone by.
    pub async fn wait_past_grace(&self) -> Fault {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if let Err(fault) = self.check() {
                let seen = *self.seen.get_or_init(Instant::now);
                tokio::time::sleep_until((seen + GRACE_PERIOD).into()).await;
                return fault;
            }
        }
    }
}
