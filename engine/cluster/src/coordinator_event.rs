//! Events that the coordinator's thread handles, and the state that it shares with waiting threads.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forebay_model::{Fault, Result};

use crate::discovery::WorkerSet;
use crate::local_workers::LocalProcesses;
use crate::protocol::WorkerMessage;
use crate::query::QueryWorker;
use crate::scheduler::AttemptId;
use crate::security::ClusterSecurity;
use crate::stage::{RowsSender, StageSpec, StageUpdate, TaskSpec};
use crate::status::StatusWriter;
use crate::worker_client::{WorkerConnection, WorkerLoss};

/// Workers of a cluster, and the timeouts for them.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// `host:port` (a host name may resolve to several addresses), or `@file` with one such entry
    /// per line.
    pub workers: Vec<String>,
    /// Credentials of the cluster.
    pub security: ClusterSecurity,
    /// Time for which a worker may be silent before its tasks go to other workers.
    pub lease: Duration,
    /// Time for which a run waits when no worker is connected.
    pub grace: Duration,
    /// The processes behind the workers, where the run has started them itself: then `workers` has no meaning.
    pub local: Option<LocalProcesses>,
    /// The workers that a launcher has started on other machines: then `workers` has no meaning.
    pub launched: Option<WorkerSet>,
}

impl ClusterOptions {
    /// The fault of a run whose workers have all ended, where the run or a launcher started them and none will follow.
    pub(crate) fn all_ended(&self) -> Option<Fault> {
        let local = self.local.as_ref().and_then(LocalProcesses::all_ended);
        local.or_else(|| self.launched.as_ref().and_then(WorkerSet::end_fault))
    }

    /// True while a launcher waits for the cluster: the grace time begins with its first worker.
    pub(crate) fn waits_for_launcher(&self) -> bool {
        self.launched.as_ref().is_some_and(WorkerSet::is_waiting)
    }
}

/// The current availability of workers, with a condition variable for threads that wait for a worker.
#[derive(Default)]
pub struct AvailabilityCell {
    pub now: Mutex<ClusterAvailability>,
    pub moved: Condvar,
}

#[derive(Default)]
pub struct ClusterAvailability {
    pub slots: usize,
    /// True if all listed workers were contacted once.
    pub asked: bool,
    pub refusal: Option<String>,
}

/// Events that the coordinator's thread handles.
pub enum CoordinatorEvent {
    Submit {
        asks: Arc<StageSpec>,
        tasks: Vec<TaskSpec>,
        to: Sender<StageUpdate>,
        rows: Option<RowsSender>,
    },
    Roster(BTreeSet<String>),
    Connected(String, Result<Box<WorkerConnection>>),
    Heard(AttemptId, Box<WorkerMessage>),
    Over(AttemptId, Result<(), WorkerLoss>),
    /// Requests the workers that may take part in a query.
    QueryWorkers(Sender<Vec<QueryWorker>>),
    /// A query has found that a worker is gone.
    QueryLost {
        worker: QueryWorker,
        why: String,
    },
    Show(StatusWriter),
    Quit,
}
