//! The workers of a run, as the coordinator's passes use them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use forebay_model::{ContentId, Fault, Result};
use forebay_storage::{
    CancellationToken, EventListener, StorageClient, StorageLocation, start_runtime,
};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::coordinator::Coordinator;
use crate::coordinator_event::{AvailabilityCell, ClusterOptions, CoordinatorEvent};
use crate::discovery::{WorkerDiscovery, WorkerSet};
use crate::local_workers::LocalProcesses;
use crate::protocol::TrainSpec;
use crate::row_codec::decode_rows;
use crate::scheduler::AttemptId;
use crate::stage::{
    ROWS_AHEAD, StageContext, StageFailure, StageSpec, StageUpdate, TaskEvent, TaskSpec,
    no_workers_fault,
};
use crate::status::StatusWriter;

/// Interval at which a waiting thread checks whether to stop.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Interval at which the roster is read.
const ROSTER_EVERY: Duration = Duration::from_secs(1);

/// Digests of the paths that all workers of their time were seen to share.
pub(crate) type ProbedPaths = Mutex<BTreeSet<ContentId>>;

/// The workers of a run.
pub struct Cluster {
    to: Sender<CoordinatorEvent>,
    there: Arc<AvailabilityCell>,
    grace: Duration,
    lease: Duration,
    tls_name: Option<String>,
    options: ClusterOptions,
    probed: ProbedPaths,
    driver: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Crew")
    }
}

impl Cluster {
    /// Begins to look for the workers.
    pub fn new(options: ClusterOptions, listener: Arc<dyn EventListener>) -> Result<Cluster> {
        let roster = WorkerDiscovery::new(&options.workers)?;
        let runtime = start_runtime("forebay-cluster", 2)?;
        let (to, from) = channel();
        let availability: Arc<AvailabilityCell> = Arc::default();
        let to_driver = to.clone();
        let members = options.clone();
        runtime.spawn(async move {
            loop {
                let addresses = match (&members.local, &members.launched) {
                    (Some(local), _) => local.addresses().into_iter().collect(),
                    (None, Some(launched)) => launched.addresses(),
                    (None, None) => roster.addresses().await,
                };
                if to_driver.send(CoordinatorEvent::Roster(addresses)).is_err() {
                    return;
                }
                next_look(members.launched.as_ref()).await;
            }
        });
        let grace = options.grace;
        let lease = options.lease;
        let tls_name = options.security.tls_name().map(str::to_owned);
        let cluster_options = options.clone();
        let driver = Coordinator::new(
            options,
            listener,
            availability.clone(),
            to.clone(),
            runtime.handle().clone(),
        );
        let driver = std::thread::Builder::new()
            .name("forebay-cluster".to_owned())
            .spawn(move || driver.run(&from))
            .map_err(Fault::refused_thread)?;
        Ok(Cluster {
            to,
            there: availability,
            grace,
            lease,
            tls_name,
            options: cluster_options,
            probed: ProbedPaths::default(),
            driver: Some(driver),
            runtime: Some(runtime),
        })
    }

    /// Shows in the state directory how it goes.
    pub fn publish_status(&self, io: StorageClient, state: &StorageLocation) -> Result<()> {
        let board = StatusWriter::new(io, state, &Uuid::new_v4().simple().to_string()[..12])?;
        // A coordinator that has ended has no status to show.
        let _ = self.to.send(CoordinatorEvent::Show(board));
        Ok(())
    }

    /// Number of tasks that the workers can run at a time; waits until a worker is connected.
    pub fn wait_for_slots(&self, cancellation: &CancellationToken) -> Result<usize> {
        let mut begin = Instant::now();
        let mut now = self
            .there
            .now
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if now.slots > 0 && now.asked {
                return Ok(now.slots);
            }
            cancellation.check()?;
            if now.slots == 0
                && let Some(fault) = self.options.all_ended()
            {
                return Err(fault);
            }
            if self.options.waits_for_launcher() {
                begin = Instant::now();
            }
            if begin.elapsed() >= self.grace {
                return if now.slots > 0 {
                    Ok(now.slots)
                } else {
                    Err(no_workers_fault(self.grace, now.refusal.as_deref()))
                };
            }
            now = self
                .there
                .moved
                .wait_timeout(now, CHECK_EVERY)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Runs tasks on the workers, and passes their events to `hear`.
    pub fn run_stage_tasks(
        &self,
        common: &StageContext,
        tasks: Vec<TaskSpec>,
        cancellation: &CancellationToken,
        hear: &mut dyn FnMut(TaskEvent) -> Result<()>,
    ) -> Result<(), StageFailure> {
        self.probe_paths(&common.job, cancellation)?;
        self.run_tasks(
            StageSpec::Pass(Box::new(common.clone())),
            tasks,
            cancellation,
            hear,
        )
    }

    /// Trains parts of a training on the workers, and passes the events of the tasks to `hear`.
    pub fn train_parts(
        &self,
        spec: TrainSpec,
        tasks: Vec<TaskSpec>,
        cancellation: &CancellationToken,
        hear: &mut dyn FnMut(TaskEvent) -> Result<()>,
    ) -> Result<()> {
        let done = self.run_tasks(StageSpec::Train(Box::new(spec)), tasks, cancellation, hear);
        done.map_err(|failure| failure.fault)
    }

    /// Sender of events to the coordinator's thread.
    pub(crate) fn events(&self) -> &Sender<CoordinatorEvent> {
        &self.to
    }

    /// The runtime of the network threads.
    pub(crate) fn runtime(&self) -> Result<&Runtime> {
        self.runtime.as_ref().ok_or_else(cluster_ended)
    }

    /// The name in workers' certificates, where it is not the host's.
    pub(crate) fn tls_name(&self) -> Option<&str> {
        self.tls_name.as_deref()
    }

    /// The processes of the workers, where the run has started them itself.
    pub(crate) fn local(&self) -> Option<&LocalProcesses> {
        self.options.local.as_ref()
    }

    /// The paths that the workers have shown to see.
    pub(crate) fn probed(&self) -> &ProbedPaths {
        &self.probed
    }

    /// Longest silence of a worker.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    fn run_tasks(
        &self,
        stage: StageSpec,
        tasks: Vec<TaskSpec>,
        cancellation: &CancellationToken,
        hear: &mut dyn FnMut(TaskEvent) -> Result<()>,
    ) -> Result<(), StageFailure> {
        if tasks.is_empty() {
            return Ok(());
        }
        let end_failure = || StageFailure::from(cluster_ended());
        let (to, answers) = channel();
        let stage = Arc::new(stage);
        self.to
            .send(CoordinatorEvent::Submit {
                asks: stage,
                tasks,
                to,
                rows: None,
            })
            .map_err(|_| end_failure())?;
        // An early return drops `answers`, and that ends the tasks.
        loop {
            cancellation.check()?;
            match answers.recv_timeout(CHECK_EVERY) {
                Ok(StageUpdate::Said(event)) => hear(event)?,
                Ok(StageUpdate::Failed(failure)) => return Err(failure),
                Ok(StageUpdate::AllDone) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(end_failure()),
            }
        }
    }

    /// Has workers read the rows of a task, and passes them on in order, each once, also when several attempts read
    /// them. Returns the time spent waiting for rows.
    pub fn read_rows(
        &self,
        stage: &Arc<StageSpec>,
        task: TaskSpec,
        cancellation: &CancellationToken,
        give: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let runtime = self.runtime()?;
        let (to, answers) = channel();
        let (rows, mut pieces) = tokio::sync::mpsc::channel(ROWS_AHEAD);
        let tasks = vec![task];
        let submit = CoordinatorEvent::Submit {
            asks: stage.clone(),
            tasks,
            to,
            rows: Some(rows),
        };
        self.to.send(submit).map_err(|_| cluster_ended())?;
        // A repeated attempt begins with the first row; the rows are the same.
        let mut rows_given = 0_usize;
        let mut seen = BTreeMap::<AttemptId, usize>::new();
        let mut waited = Duration::ZERO;
        loop {
            cancellation.check()?;
            let begin = Instant::now();
            let piece =
                runtime.block_on(async { tokio::time::timeout(CHECK_EVERY, pieces.recv()).await });
            waited += begin.elapsed();
            let Ok(piece) = piece else { continue };
            // All have let go of it: all is said.
            let Some((attempt, bytes)) = piece else { break };
            let batch = decode_rows(bytes)?;
            let seen = seen.entry(attempt).or_default();
            let repeated_rows = rows_given.saturating_sub(*seen).min(batch.num_rows());
            *seen += batch.num_rows();
            rows_given = rows_given.max(*seen);
            if repeated_rows < batch.num_rows()
                && give(batch.slice(repeated_rows, batch.num_rows() - repeated_rows)).is_break()
            {
                return Ok(waited);
            }
        }
        for answer in answers.try_iter() {
            match answer {
                StageUpdate::AllDone => return Ok(waited),
                StageUpdate::Failed(failure) => return Err(failure.fault),
                StageUpdate::Said(_) => {}
            }
        }
        Err(cluster_ended())
    }
}

/// Waits until the roster is due: after an interval, or when a launcher reports a change.
async fn next_look(launched: Option<&WorkerSet>) {
    let interval = tokio::time::sleep(ROSTER_EVERY);
    match launched {
        None => interval.await,
        Some(launched) => tokio::select! {
            () = interval => {}
            () = launched.changed() => {}
        },
    }
}

pub(crate) fn cluster_ended() -> Fault {
    Fault::internal("the coordinator's thread has ended")
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.to.send(CoordinatorEvent::Quit);
        if let Some(driver) = self.driver.take() {
            let _ = driver.join();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
