//! Runs a query on the workers, as the coordinator. The query is the unit of recovery: if a worker is lost, it starts
//! again on the workers that remain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedCodec,
    DistributedExec, DistributedExt, DistributedGetterExt, DistributedLeafExec, NetworkBoundaryExt,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse, SessionStateBuilderExt, WorkerChannel,
    WorkerResolver, display_plan_ascii,
};
use datafusion_proto::bytes::physical_plan_to_bytes_with_extension_codec;
use forebay_model::{ContentId, Fault, Result, RetryAdvice, codes};
use forebay_plan::{OpId, query_plan};
use forebay_storage::{CancellationToken, Event, EventListener};
use futures::StreamExt;
use futures::future::join_all;
use tokio::sync::mpsc;
use url::Url;
use uuid::Uuid;

use crate::cluster::{CHECK_EVERY, Cluster, cluster_ended};
use crate::coordinator_event::CoordinatorEvent;
use crate::local_workers::workers_end_fault;
use crate::query::admitted_input::AdmittedInputCodec;
use crate::query::faults::remote_fault;
use crate::query::header::QueryHeader;
use crate::query::span_scan::{SpanScanCodec, SpanScanExec};
use crate::query::task_merge::{TaskMergePlanner, with_usual_merges};
use crate::query::worker::QueryWorker;
use crate::task_exec::TaskExecCodec;

/// Maximum number of attempts of a query that each lose a worker.
const ATTEMPTS_MAX: u32 = 5;

/// Most processes of this machine that a query may end.
const LOCAL_DEATHS_MAX: u32 = 2;

/// Most attempts at a query, where attempts failed with a fault that may be temporary.
const TRIES_MAX: u32 = 3;

/// Partitions of a task at least. With one, the planner would leave out the exchanges between stages.
const PARTITIONS_MIN: usize = 2;

/// Tasks of a stage at least. With one, the planner would run all stages on the coordinator.
const TASKS_MIN: usize = 2;

/// Number of pings of a worker within its lease.
const SIGNS_PER_LEASE: u32 = 5;

/// Bytes that wait for their reader, of each connection between two workers, at most and at least.
const EXCHANGE_BYTES_MAX: usize = 16 << 20;
const EXCHANGE_BYTES_MIN: usize = 1 << 20;

/// Error text of the engine when a stage waits for a plan whose worker is lost or whose sender is
/// gone.
const NO_PLAN: &str = "waiting for the plan to be set";

/// Prefix of the text of a transport status.
const STATUS: &str = "code: '";

/// A query over [`super::SpanTable`]s.
pub struct DistributedQuery<'a> {
    /// The step, for messages.
    pub label: &'a str,
    pub plan: &'a LogicalPlan,
    /// The limits of this process, where the last stage runs.
    pub runtime: Arc<RuntimeEnv>,
    pub config: SessionConfig,
    /// Bytes of memory for rows that come from workers.
    pub exchange_bytes: usize,
    /// The state directory, and where relative paths begin.
    pub state: &'a str,
    pub base: &'a std::path::Path,
    pub watch: &'a dyn EventListener,
    pub interrupt: &'a CancellationToken,
}

/// An id for what workers leave for the coordinator of one query.
pub fn new_query_id() -> ContentId {
    ContentId::of(Uuid::new_v4().as_bytes())
}

/// Takes the rows of a query.
pub trait QueryRows {
    /// Forgets the rows so far: the query begins again.
    fn restart(&mut self) -> Result<()>;
    fn take(&mut self, batch: RecordBatch) -> Result<()>;
}

/// Outcome of a query that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryEnd {
    Done,
    /// The plan has no stage for workers. No rows were returned.
    NotDistributed,
}

/// Reason of a query's failure.
#[derive(Debug)]
pub enum QueryFailure {
    /// `order_failure`: the window whose assumed row order was wrong.
    Fault {
        fault: Fault,
        order_failure: Option<OpId>,
    },
    Engine(DataFusionError),
}

impl From<Fault> for QueryFailure {
    fn from(fault: Fault) -> Self {
        QueryFailure::Fault {
            fault,
            order_failure: None,
        }
    }
}

impl From<DataFusionError> for QueryFailure {
    fn from(error: DataFusionError) -> Self {
        match remote_fault(&error) {
            Some((fault, order_failure)) => QueryFailure::Fault {
                fault,
                order_failure,
            },
            None => QueryFailure::Engine(error),
        }
    }
}

impl QueryFailure {
    /// True if another attempt can succeed although all workers are connected.
    fn is_temporary(&self) -> bool {
        match self {
            QueryFailure::Fault {
                fault,
                order_failure,
            } => {
                order_failure.is_none()
                    && fault.code().retry == RetryAdvice::Later
                    && fault.code() != codes::INTERRUPTED
            }
            QueryFailure::Engine(error) => is_transport(error),
        }
    }
}

/// True if the connection between two processes failed, not the query.
fn is_transport(error: &DataFusionError) -> bool {
    match error.find_root() {
        // Of a status that went through a worker, its text is left.
        DataFusionError::External(inner) => {
            inner.is::<tonic::Status>() || inner.to_string().starts_with(STATUS)
        }
        DataFusionError::Execution(text) => text.contains(NO_PLAN),
        _ => false,
    }
}

/// A lost worker and the reason.
struct LostWorker {
    worker: QueryWorker,
    why: String,
}

/// Outcome of an attempt.
enum AttemptEnd {
    Ended(QueryEnd),
    Lost(Vec<LostWorker>),
    Failed(QueryFailure),
}

impl Cluster {
    /// Runs a query on the workers; `rows` gets its rows in order. Waits for workers as tasks do.
    pub fn run_query(
        &self,
        query: &DistributedQuery<'_>,
        rows: &mut dyn QueryRows,
    ) -> Result<QueryEnd, QueryFailure> {
        let mut attempts = 0;
        let mut tries = 0;
        let mut deaths = 0;
        loop {
            self.wait_for_slots(query.interrupt)?;
            let workers = self.living_workers()?;
            if workers.is_empty() {
                continue;
            }
            if attempts > 0 {
                rows.restart()?;
            }
            attempts += 1;
            let why = match self.attempt_query(query, &workers, rows)? {
                AttemptEnd::Ended(end) => return Ok(end),
                AttemptEnd::Lost(lost) => {
                    let ended = self.local_end(&lost);
                    let why = ended.clone().or_else(|| {
                        let lost = lost.first()?;
                        Some(format!("{}: {}", lost.worker.address, lost.why))
                    });
                    self.report_lost(lost)?;
                    deaths += u32::from(ended.is_some());
                    if deaths >= LOCAL_DEATHS_MAX {
                        let message = format!("`{}` ends the workers that run it", query.label);
                        let fault = workers_end_fault(message).note(why.unwrap_or_default());
                        return Err(fault.into());
                    }
                    if attempts >= ATTEMPTS_MAX {
                        return Err(lost_each_time(query.label, &why.unwrap_or_default()).into());
                    }
                    "a worker is lost".to_owned()
                }
                AttemptEnd::Failed(failure) if failure.is_temporary() => {
                    tries += 1;
                    if tries >= TRIES_MAX {
                        return Err(last_failure(query.label, failure));
                    }
                    match &failure {
                        QueryFailure::Fault { fault, .. } => fault.to_string(),
                        QueryFailure::Engine(error) => error.to_string(),
                    }
                }
                AttemptEnd::Failed(failure) => return Err(failure),
            };
            query.watch.on_event(Event::Warning {
                message: format!("`{}` starts again: {why}", query.label),
            });
        }
    }

    /// The workers that answer a ping now.
    fn living_workers(&self) -> Result<Vec<QueryWorker>> {
        let (to, from) = std::sync::mpsc::channel();
        self.events()
            .send(CoordinatorEvent::QueryWorkers(to))
            .map_err(|_| cluster_ended())?;
        let workers = from.recv().map_err(|_| cluster_ended())?;
        let lost = self.runtime()?.block_on(lost_among(&workers, self.lease()));
        let is_lost = |worker: &QueryWorker| {
            lost.iter()
                .any(|lost| lost.worker.address == worker.address)
        };
        let living = workers
            .iter()
            .filter(|worker| !is_lost(worker))
            .cloned()
            .collect();
        self.report_lost(lost)?;
        Ok(living)
    }

    /// End of the first process of this machine that an attempt lost.
    fn local_end(&self, lost: &[LostWorker]) -> Option<String> {
        let local = self.local()?;
        lost.iter().find_map(|lost| {
            let address = &lost.worker.address;
            let status = local.exit_of(address)?;
            Some(format!("{address}: its process ended with {status}"))
        })
    }

    fn report_lost(&self, lost: Vec<LostWorker>) -> Result<()> {
        lost.into_iter().try_for_each(|LostWorker { worker, why }| {
            self.events()
                .send(CoordinatorEvent::QueryLost { worker, why })
                .map_err(|_| cluster_ended())
        })
    }

    /// The engine's session of an attempt.
    fn session_state(
        &self,
        query: &DistributedQuery<'_>,
        workers: &[QueryWorker],
    ) -> Result<SessionState, QueryFailure> {
        let size = ClusterSize {
            workers: workers.len(),
            slots: workers.iter().map(|worker| worker.slots).max().unwrap_or(1),
        };
        let header = QueryHeader {
            id: Uuid::new_v4().to_string(),
            state: query.state.to_owned(),
            base: query.base.to_owned(),
            tls_name: self.tls_name().map(str::to_owned),
            partitions: size.partitions() * size.tasks().div_ceil(size.workers.max(1)),
        };
        let members = Members(
            workers
                .iter()
                .map(|w| (w.link.url().clone(), w.link.channel().clone()))
                .collect(),
        );
        let urls = Workers(members.0.keys().cloned().collect());
        let buffer_bytes =
            (query.exchange_bytes / size.tasks()).clamp(EXCHANGE_BYTES_MIN, EXCHANGE_BYTES_MAX);
        let builder = planning_session(query.config.clone(), urls, size)?
            .with_runtime_env(query.runtime.clone())
            .with_distributed_channel_resolver(members)
            .with_distributed_metrics_collection(false)?
            .with_distributed_compression(None)?
            .with_distributed_worker_connection_buffer_budget_bytes(buffer_bytes)?
            .with_distributed_passthrough_headers(header.to_headers()?)?;
        Ok(builder.build())
    }

    fn attempt_query(
        &self,
        query: &DistributedQuery<'_>,
        workers: &[QueryWorker],
        rows: &mut dyn QueryRows,
    ) -> Result<AttemptEnd, QueryFailure> {
        let state = self.session_state(query, workers)?;
        let lease = self.lease();
        self.runtime()?.block_on(async {
            let plan = match stages(&state, query.plan).await {
                Ok(plan) if is_distributed(&plan, &state)? => plan,
                Ok(_) => return Ok(AttemptEnd::Ended(QueryEnd::NotDistributed)),
                Err(error) => return Ok(AttemptEnd::Failed(error.into())),
            };
            let mut stream = execute_stream(plan, state.task_ctx())?;
            let ended = take_rows(
                &mut stream,
                &mut SignsOfLife::new(workers, lease),
                query.interrupt,
                rows,
            )
            .await;
            // Ends what the workers still do.
            drop(stream);
            match ended? {
                AttemptEnd::Failed(failure) => {
                    // The end of a worker shows as an error of those that wait for its rows.
                    let lost = lost_among(workers, lease).await;
                    Ok(if lost.is_empty() {
                        AttemptEnd::Failed(failure)
                    } else {
                        AttemptEnd::Lost(lost)
                    })
                }
                ended => Ok(ended),
            }
        })
    }
}

/// Hands on the rows of an attempt until it ends, a worker is silent, or the run is interrupted.
async fn take_rows(
    stream: &mut SendableRecordBatchStream,
    signs: &mut SignsOfLife,
    cancellation: &CancellationToken,
    rows: &mut dyn QueryRows,
) -> Result<AttemptEnd, QueryFailure> {
    loop {
        tokio::select! {
            biased;
            Some(lost) = signs.lost.recv() => return Ok(AttemptEnd::Lost(vec![lost])),
            batch = stream.next() => match batch {
                Some(Ok(batch)) => rows.take(batch)?,
                Some(Err(error)) => return Ok(AttemptEnd::Failed(error.into())),
                None => return Ok(AttemptEnd::Ended(QueryEnd::Done)),
            },
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        cancellation.check()?;
    }
}

/// Pings the workers of an attempt while it runs: a worker that hangs breaks no connection.
struct SignsOfLife {
    lost: mpsc::UnboundedReceiver<LostWorker>,
    asking: Vec<tokio::task::JoinHandle<()>>,
}

impl SignsOfLife {
    /// Starts to ping. Must be called inside of the runtime.
    fn new(workers: &[QueryWorker], lease: Duration) -> SignsOfLife {
        let (to, lost) = mpsc::unbounded_channel();
        let send_request = |worker: &QueryWorker| {
            let worker = worker.clone();
            let to = to.clone();
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(lease / SIGNS_PER_LEASE).await;
                    if let Err(why) = worker.link.ping(lease).await {
                        // An attempt that has ended does not care.
                        let _ = to.send(LostWorker { worker, why });
                        return;
                    }
                }
            })
        };
        SignsOfLife {
            asking: workers.iter().map(send_request).collect(),
            lost,
        }
    }
}

impl Drop for SignsOfLife {
    fn drop(&mut self) {
        self.asking.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// The workers that do not answer a ping.
async fn lost_among(workers: &[QueryWorker], lease: Duration) -> Vec<LostWorker> {
    let send_request = |worker: &QueryWorker| {
        let worker = worker.clone();
        async move {
            worker
                .link
                .ping(lease)
                .await
                .err()
                .map(|why| LostWorker { worker, why })
        }
    };
    join_all(workers.iter().map(send_request))
        .await
        .into_iter()
        .flatten()
        .collect()
}

/// The workers for which a query is planned.
#[derive(Debug, Clone, Copy)]
pub struct ClusterSize {
    pub workers: usize,
    /// Threads of the largest of them.
    pub slots: usize,
}

impl ClusterSize {
    /// Maximum number of tasks of a stage.
    fn tasks(self) -> usize {
        self.workers.max(TASKS_MIN)
    }

    /// Partitions of a task.
    fn partitions(self) -> usize {
        self.slots.max(PARTITIONS_MIN)
    }
}

/// A session that plans queries for workers.
fn planning_session(
    config: SessionConfig,
    workers: Workers,
    size: ClusterSize,
) -> Result<SessionStateBuilder, DataFusionError> {
    SessionStateBuilder::new()
        .with_config(config.with_target_partitions(size.partitions()))
        .with_default_features()
        .with_query_planner(Arc::new(TaskMergePlanner))
        .with_distributed_worker_resolver(workers)
        .with_distributed_planner()
        // The same codecs in the same order as on workers.
        .with_distributed_user_codec(TaskExecCodec::default())
        .with_distributed_user_codec(SpanScanCodec(None))
        .with_distributed_user_codec(AdmittedInputCodec)
        .with_distributed_desired_task_count_handler(desired_tasks)
        .with_distributed_scale_up_leaf_node_handler(leaves_of_tasks)
        .with_distributed_max_tasks_per_stage(size.tasks())
}

/// The physical plan of a query, divided into stages.
async fn stages(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    with_usual_merges(query_plan(state, plan).await?)
}

/// The stages of a query as text; `None` if it would run on the coordinator.
pub async fn explain_stages(
    plan: &LogicalPlan,
    config: SessionConfig,
    size: ClusterSize,
) -> Result<Option<String>, DataFusionError> {
    let urls =
        (1..=size.workers).filter_map(|worker| Url::parse(&format!("http://worker-{worker}")).ok());
    let state = planning_session(config, Workers(urls.collect()), size)?.build();
    let plan = stages(&state, plan).await?;
    Ok(is_distributed(&plan, &state)?.then(|| display_plan_ascii(plan.as_ref(), false)))
}

/// The URLs of workers.
#[derive(Debug, Clone)]
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

/// The workers of an attempt, by the URLs that plans have.
#[derive(Clone)]
struct Members(BTreeMap<Url, BoxCloneSyncChannel>);

#[async_trait]
impl ChannelResolver for Members {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let channel = self.0.get(url).cloned();
        let strange = || DataFusionError::Internal(format!("{url} is no worker of the query"));
        channel.map(create_worker_client).ok_or_else(strange)
    }
}

fn desired_tasks(
    event: DesiredTaskCountEvent<'_>,
) -> Option<Result<DesiredTaskCountEventResponse, DataFusionError>> {
    let leaf = event.plan.downcast_ref::<SpanScanExec>()?;
    let spans = leaf
        .known()
        .map_or(0, |table_spans| table_spans.bytes.len());
    let tasks = |urls: Vec<Url>| urls.len().min(spans).max(TASKS_MIN);
    let resolver = event.session_config.get_distributed_worker_resolver();
    Some(
        resolver
            .and_then(|resolver| resolver.get_urls())
            .map(|urls| DesiredTaskCountEventResponse::desired(tasks(urls))),
    )
}

fn leaves_of_tasks(
    event: ScaleUpLeafNodeEvent<'_>,
) -> Option<Result<ScaleUpLeafNodeEventResponse, DataFusionError>> {
    let leaf = event.plan.downcast_ref::<SpanScanExec>()?;
    let leaves = leaf.of_tasks(event.task_count).and_then(|leaves| {
        let leaves = leaves
            .into_iter()
            .map(|leaf| Arc::new(leaf) as Arc<dyn ExecutionPlan>);
        DistributedLeafExec::try_new(event.plan.clone(), leaves)
    });
    Some(leaves.map(|leaves| ScaleUpLeafNodeEventResponse::new(Arc::new(leaves))))
}

/// True if workers can run the plan: it has stages for them, they read all tables, and every
/// operator can be sent.
fn is_distributed(
    plan: &Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<bool, DataFusionError> {
    if !plan.is::<DistributedExec>() {
        return Ok(false);
    }
    let Some(last_stage) = plan.children().first().copied() else {
        return Ok(false);
    };
    if reads_tables(last_stage) {
        return Ok(false);
    }
    // A leaf is sent as that of its task.
    let of_one_task = last_stage.clone().transform_up(|node| {
        let leaf = node
            .downcast_ref::<DistributedLeafExec>()
            .and_then(|leaf| leaf.variants().first().cloned());
        Ok(leaf.map_or_else(|| Transformed::no(node), Transformed::yes))
    })?;
    let codec = DistributedCodec::new_combined_with_user(state.config());
    Ok(physical_plan_to_bytes_with_extension_codec(of_one_task.data, &codec).is_ok())
}

/// True if a stage reads tables itself.
fn reads_tables(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is_network_boundary() {
        return false;
    }
    let is_table = plan.is::<SpanScanExec>() || plan.is::<DistributedLeafExec>();
    is_table || plan.children().into_iter().any(reads_tables)
}

/// The fault of a query that lost a worker in every attempt.
fn lost_each_time(label: &str, why: &str) -> Fault {
    let message = format!("`{label}` lost a worker in each of {ATTEMPTS_MAX} attempts");
    let hint = "look at the workers' own messages; they may need more memory. What is committed \
                stays: run the same command again to go on";
    Fault::new(codes::NO_WORKERS, message)
        .hint(hint)
        .note(why.to_owned())
}

/// The failure of the last attempt, where the way between processes failed in each of them.
fn last_failure(label: &str, failure: QueryFailure) -> QueryFailure {
    match failure {
        QueryFailure::Engine(error) if is_transport(&error) => {
            let message = format!("workers that run `{label}` do not reach each other");
            let hint =
                "each worker must reach every other one at the address that the coordinator knows";
            Fault::new(codes::NO_WORKERS, message)
                .cause(error)
                .hint(hint)
                .into()
        }
        failure => failure,
    }
}
