//! The workers of a run, as the coordinator's passes use them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use forebay_model::{Fault, Result, SeriesCounts, codes};
use forebay_plan::{OpId, WindowRowOrder};
use forebay_storage::{CancellationToken, EventListener, StorageClient, StorageLocation};
use serde_json::Value;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::coordinator::Coordinator;
use crate::discovery::WorkerDiscovery;
use crate::protocol::{
    FeedSpec, RowsRequest, RunSpec, StageRef, TaskKind, TaskRequest, TrainRequest, TrainSpec,
    WorkerMessage, WorkerRequest,
};
use crate::query::QueryWorker;
use crate::row_codec::decode_rows;
use crate::scheduler::AttemptId;
use crate::security::ClusterSecurity;
use crate::shuffle_plan::ShufflePlan;
use crate::status::StatusWriter;
use crate::worker_client::{WorkerConnection, WorkerLoss};

/// Interval at which a waiting thread checks whether to stop.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(100);

/// How often the roster is read.
const ROSTER_EVERY: Duration = Duration::from_secs(1);

/// Which workers, and how patient one is with them.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// `host:port` (a host may stand for many), or `@file` with one such a line.
    pub workers: Vec<String>,
    /// What proves that they belong to the cluster.
    pub security: ClusterSecurity,
    /// How long a worker may be silent before its tasks go to other workers.
    pub lease: Duration,
    /// How long a run waits when no worker is there.
    pub grace: Duration,
}

/// Settings that all tasks of a stage share.
#[derive(Debug, Clone)]
pub struct StageContext {
    pub job: RunSpec,
    pub work: StageRef,
    pub row_orders: Vec<(OpId, WindowRowOrder)>,
    pub shuffles: Vec<ShufflePlan>,
}

/// Something for a worker to do.
#[derive(Debug, Clone)]
pub struct TaskSpec {
    /// Bytes, about.
    pub cost: u64,
    /// The task that has to be done before this one.
    pub after: Option<usize>,
    pub what: TaskKind,
}

/// The work that tasks belong to.
#[derive(Debug)]
pub enum StageSpec {
    Pass(Box<StageContext>),
    Feed(Box<FeedSpec>),
    Train(Box<TrainSpec>),
}

impl StageSpec {
    /// What a worker is told of one of them.
    pub fn request(&self, what: TaskKind, beat: Duration) -> Result<WorkerRequest> {
        let beat_ms = beat.as_millis() as u64;
        match (self, what) {
            (StageSpec::Feed(job), TaskKind::Read { dataset, block }) => {
                Ok(WorkerRequest::Rows(Box::new(RowsRequest {
                    job: job.as_ref().clone(),
                    dataset,
                    block,
                    beat_ms,
                })))
            }
            (StageSpec::Feed(_), _) => Err(Fault::internal("the tasks of a feed read rows")),
            (StageSpec::Train(job), TaskKind::Train { part }) => {
                Ok(WorkerRequest::Train(Box::new(TrainRequest {
                    job: job.as_ref().clone(),
                    part,
                    beat_ms,
                })))
            }
            (StageSpec::Train(_), _) => Err(Fault::internal("the tasks of a training train")),
            (StageSpec::Pass(common), what) => {
                let StageContext {
                    job,
                    work,
                    row_orders,
                    shuffles,
                } = common.as_ref().clone();
                Ok(WorkerRequest::Task(Box::new(TaskRequest {
                    job,
                    work,
                    row_orders,
                    shuffles,
                    what,
                    beat_ms,
                })))
            }
        }
    }

    /// The pipeline, and the pass from 1, or 0 of a feed or a training.
    pub fn pipeline_and_pass(&self) -> (String, usize) {
        match self {
            StageSpec::Pass(common) => (common.job.pipeline.name.clone(), common.work.pass() + 1),
            StageSpec::Feed(job) => (job.pipeline.name.clone(), 0),
            StageSpec::Train(job) => (job.pipeline.clone(), 0),
        }
    }
}

/// Channel for the rows of tasks: the pieces of each attempt, in order.
pub type RowsSender = tokio::sync::mpsc::Sender<(AttemptId, Buffer)>;

/// Where the rows of one attempt go.
pub struct AttemptRows {
    pub attempt: AttemptId,
    pub to: RowsSender,
}

/// Capacity of the channel of rows, in pieces.
pub const ROWS_AHEAD: usize = 2;

/// Events of tasks in progress.
pub enum TaskEvent {
    /// A part is committed; comes once for each.
    Part { first: usize, made: Value },
    /// A task is done.
    Done { task: usize, counts: SeriesCounts },
    /// Work moved on; counts are differences.
    Moved { rows: u64, bytes: u64, spilled: u64 },
}

/// Why the tasks of a stage failed.
pub struct StageFailure {
    pub fault: Fault,
    /// The window whose way was wrong.
    pub order_failure: Option<OpId>,
    /// The first task of a part that ends every worker.
    pub deadly: Option<usize>,
}

impl From<Fault> for StageFailure {
    fn from(fault: Fault) -> Self {
        StageFailure {
            fault,
            order_failure: None,
            deadly: None,
        }
    }
}

/// The workers of a run.
pub struct Cluster {
    to: Sender<CoordinatorEvent>,
    there: Arc<AvailabilityCell>,
    grace: Duration,
    lease: Duration,
    tls_name: Option<String>,
    driver: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Crew")
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
    /// Whether all that should be there were asked once.
    pub asked: bool,
    pub refusal: Option<String>,
}

/// What the driver hears.
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
    /// Who may take part in a query?
    QueryWorkers(Sender<Vec<QueryWorker>>),
    /// A query has found that a worker is gone.
    QueryLost {
        worker: QueryWorker,
        why: String,
    },
    Show(StatusWriter),
    Quit,
}

/// Updates for the caller that waits for tasks.
pub enum StageUpdate {
    Said(TaskEvent),
    Failed(StageFailure),
    AllDone,
}

impl Cluster {
    /// Begins to look for the workers.
    pub fn new(options: ClusterOptions, watch: Arc<dyn EventListener>) -> Result<Cluster> {
        let roster = WorkerDiscovery::new(&options.workers)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forebay-cluster")
            .enable_all()
            .build()
            .map_err(|error| {
                Fault::new(codes::STORAGE, "the network threads cannot be started").cause(error)
            })?;
        let (to, from) = channel();
        let there: Arc<AvailabilityCell> = Arc::default();
        let to_driver = to.clone();
        runtime.spawn(async move {
            while to_driver
                .send(CoordinatorEvent::Roster(roster.addresses().await))
                .is_ok()
            {
                tokio::time::sleep(ROSTER_EVERY).await;
            }
        });
        let (grace, lease) = (options.grace, options.lease);
        let tls_name = options.security.tls_name().map(str::to_owned);
        let driver = Coordinator::new(
            options,
            watch,
            there.clone(),
            to.clone(),
            runtime.handle().clone(),
        );
        let driver = std::thread::Builder::new()
            .name("forebay-cluster".to_owned())
            .spawn(move || driver.run(&from))
            .map_err(|error| {
                Fault::new(codes::STORAGE, "a thread cannot be started").cause(error)
            })?;
        Ok(Cluster {
            to,
            there,
            grace,
            lease,
            tls_name,
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

    /// How many tasks the workers can do at a time; waits until one is there.
    pub fn wait_for_slots(&self, interrupt: &CancellationToken) -> Result<usize> {
        let begin = Instant::now();
        let mut now = self
            .there
            .now
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if now.slots > 0 && now.asked {
                return Ok(now.slots);
            }
            interrupt.check()?;
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

    /// Runs tasks on the workers; `hear` gets their events.
    pub fn run_stage_tasks(
        &self,
        common: &StageContext,
        tasks: Vec<TaskSpec>,
        interrupt: &CancellationToken,
        hear: &mut dyn FnMut(TaskEvent) -> Result<()>,
    ) -> Result<(), StageFailure> {
        self.run_tasks(
            StageSpec::Pass(Box::new(common.clone())),
            tasks,
            interrupt,
            hear,
        )
    }

    /// Trains parts of a training on the workers; `hear` gets the events of the tasks.
    pub fn train_parts(
        &self,
        job: TrainSpec,
        tasks: Vec<TaskSpec>,
        interrupt: &CancellationToken,
        hear: &mut dyn FnMut(TaskEvent) -> Result<()>,
    ) -> Result<()> {
        let done = self.run_tasks(StageSpec::Train(Box::new(job)), tasks, interrupt, hear);
        done.map_err(|failure| failure.fault)
    }

    /// What sends events to the coordinator's thread.
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

    /// How long a worker may be silent.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    fn run_tasks(
        &self,
        asks: StageSpec,
        tasks: Vec<TaskSpec>,
        interrupt: &CancellationToken,
        hear: &mut dyn FnMut(TaskEvent) -> Result<()>,
    ) -> Result<(), StageFailure> {
        if tasks.is_empty() {
            return Ok(());
        }
        let gone = || StageFailure::from(cluster_ended());
        let (to, answers) = channel();
        let asks = Arc::new(asks);
        self.to
            .send(CoordinatorEvent::Submit {
                asks,
                tasks,
                to,
                rows: None,
            })
            .map_err(|_| gone())?;
        // An early return drops `answers`, and that ends the tasks.
        loop {
            interrupt.check()?;
            match answers.recv_timeout(CHECK_EVERY) {
                Ok(StageUpdate::Said(said)) => hear(said)?,
                Ok(StageUpdate::Failed(failure)) => return Err(failure),
                Ok(StageUpdate::AllDone) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }

    /// Has workers read the rows of a task, and passes them on in order, each once, also when several attempts read
    /// them. Returns the time spent waiting for rows.
    pub fn read_rows(
        &self,
        asks: &Arc<StageSpec>,
        task: TaskSpec,
        interrupt: &CancellationToken,
        give: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let runtime = self.runtime()?;
        let (to, answers) = channel();
        let (rows, mut pieces) = tokio::sync::mpsc::channel(ROWS_AHEAD);
        let tasks = vec![task];
        let submit = CoordinatorEvent::Submit {
            asks: asks.clone(),
            tasks,
            to,
            rows: Some(rows),
        };
        self.to.send(submit).map_err(|_| cluster_ended())?;
        // A repeated attempt begins with the first row; the rows are the same.
        let (mut given, mut seen) = (0_usize, BTreeMap::<AttemptId, usize>::new());
        let mut waited = Duration::ZERO;
        loop {
            interrupt.check()?;
            let begin = Instant::now();
            let piece =
                runtime.block_on(async { tokio::time::timeout(CHECK_EVERY, pieces.recv()).await });
            waited += begin.elapsed();
            let Ok(piece) = piece else { continue };
            // All have let go of it: all is said.
            let Some((attempt, bytes)) = piece else { break };
            let batch = decode_rows(bytes)?;
            let seen = seen.entry(attempt).or_default();
            let known = given.saturating_sub(*seen).min(batch.num_rows());
            *seen += batch.num_rows();
            given = given.max(*seen);
            if known < batch.num_rows()
                && give(batch.slice(known, batch.num_rows() - known)).is_break()
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

/// The fault when no worker is there.
pub fn no_workers_fault(grace: Duration, refusal: Option<&str>) -> Fault {
    let fault = Fault::new(
        codes::NO_WORKERS,
        format!("no worker was there for {} s", grace.as_secs_f64()),
    );
    let fault = fault
        .hint("what is committed stays; start workers, and run the same command again to go on");
    match refusal {
        Some(refusal) => fault.note(refusal),
        None => fault,
    }
}
