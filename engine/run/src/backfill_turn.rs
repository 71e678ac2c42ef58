//! Positions of runs among concurrent runs for consecutive intervals.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_model::Result;
use forebay_storage::CancellationToken;

/// Interval at which a waiting run checks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Progress of one run of a backfill, as the run after it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BackfillStage {
    /// The run has begun.
    Begun,
    /// The findings of the run are committed.
    Learned,
    /// Everything is published.
    Done,
}

/// Stages of all runs of a backfill.
pub(crate) type SharedStages = (Mutex<Vec<BackfillStage>>, Condvar);

/// Position of a run among concurrent ones.
#[derive(Clone)]
pub(crate) struct BackfillTurn {
    pub stages: Arc<SharedStages>,
    pub number: usize,
    /// Stops this run alone.
    pub interrupt: CancellationToken,
    /// Number of runs that are active at a time.
    pub concurrent_runs: usize,
}

impl BackfillTurn {
    /// Locks the stages. A poisoned lock is ignored: no holder of the lock can fail half-way.
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
