//! A worker: it serves coordinators, and runs their tasks.

mod feed_service;
mod query_service;
mod run_inputs;
mod stage_session;
mod worker_query;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use datafusion_distributed::{Worker, WorkerQueryContext};
use forebay_cluster::{
    AuthLayer, ClusterSecurity, ComputeLayer, ConnectionTable, MessageSink, MeterWatch, PROTOCOL,
    ProbeRequest, RequestHandler, RowsRequest, RunSpec, TaskOutcome, TaskProgress, TaskRequest,
    TaskTally, TrainRequest, WorkerHello, WorkerMessage, WorkerRequest, protocol_version,
    with_heartbeat,
};
use forebay_commit::StateStore;
use forebay_contract::PartContext;
use forebay_model::{ContentId, Fault, Result, SeriesCounts, codes};
use forebay_storage::failpoint::step;
use forebay_storage::{CancellationToken, ScratchDir, start_runtime};
use forebay_threads::{for_current_span, with_span};
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::oneshot;
use tonic::transport::Server;

use crate::session::{Session, SessionOptions};
use crate::training_parts::PartExchange;
use crate::worker_server::feed_service::FeedService;
use crate::worker_server::run_inputs::RunInputs;
use crate::worker_server::stage_session::{
    QueuedTask, StageKey, StageSession, StageThreads, other_files,
};
use crate::worker_server::worker_query::WorkerQueries;

/// Maximum size of a message in bytes: plans and answers are small.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Bytes of the headers of a request at most.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// Maximum numbers of open stage sessions, and of runs whose inputs the worker keeps.
const STAGES_MAX: usize = 16;
const JOBS_MAX: usize = 4;

/// Interval at which a worker checks for a request to leave.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Interval at which a worker pings a silent coordinator, and the time that it waits for the reply.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Time that a leaving worker waits for coordinators to close their connections.
const FAREWELL: Duration = Duration::from_secs(2);

/// A worker process.
pub struct WorkerServer(Arc<WorkerState>);

struct WorkerState {
    session: Session,
    security: ClusterSecurity,
    /// One thread per slot, so that a task with a slot always has a thread.
    task_threads: Arc<ThreadPool>,
    /// Tasks that are running.
    busy: Mutex<usize>,
    tally: Arc<TaskTally>,
    fewer: Condvar,
    leaves: AtomicBool,
    stages: Mutex<BTreeMap<StageKey, StageSession>>,
    feeds: FeedService,
    queries: WorkerQueries,
    inputs: Mutex<Vec<(ContentId, RunInputs)>>,
    /// True if the coordinator is on this machine, and the worker ends with it.
    attached: bool,
}

impl std::fmt::Debug for WorkerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkerServer")
    }
}

impl WorkerServer {
    /// A worker with the transforms, formats, threads and memory of a session. One that is
    /// `attached` is on the machine of its coordinator and ends with it, so that files that it has
    /// mapped are not removed.
    pub fn new(
        session: Session,
        security: ClusterSecurity,
        attached: bool,
    ) -> Result<WorkerServer> {
        let threads = session.options.threads.max(1);
        let task_threads = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|number| format!("forebay-task-{number}"));
        let task_threads = task_threads.build().map_err(Fault::refused_thread)?;
        Ok(WorkerServer(Arc::new(WorkerState {
            session,
            security,
            task_threads: Arc::new(task_threads),
            busy: Mutex::default(),
            tally: Arc::default(),
            fewer: Condvar::new(),
            leaves: AtomicBool::new(false),
            stages: Mutex::default(),
            feeds: FeedService::default(),
            queries: WorkerQueries::default(),
            inputs: Mutex::default(),
            attached,
        })))
    }

    /// Counts its tasks.
    pub fn tally(&self) -> Arc<TaskTally> {
        self.0.tally.clone()
    }

    /// Serves until `ended` is set and all tasks are done or handed back.
    pub fn serve(&self, listener: TcpListener, ended: &CancellationToken) -> Result<()> {
        let failed = |error: std::io::Error| {
            Fault::new(codes::STORAGE, "the worker cannot listen").cause(error)
        };
        let address = listener.local_addr().map_err(failed)?;
        self.0.security.check(&address)?;
        let runtime = start_runtime("forebay-serve", 2)?;
        let compute = start_runtime("forebay-query", self.0.session.options.threads)?;
        let guard = AuthLayer::new(&self.0.security)?;
        let serves = self.0.clone();
        let build = move |context: WorkerQueryContext| {
            let serves = serves.clone();
            async move { serves.plan_session(context) }
        };
        let worker = Worker::from_session_builder(build).with_version(protocol_version());
        let worker = worker.with_max_message_size(MESSAGE_BYTES_MAX / 2);
        let service = worker.into_worker_server();
        let service = service
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        // A coordinator whose machine is lost closes no connection: a task that sends would wait for it.
        let mut server = Server::builder()
            .layer(guard)
            .layer(ComputeLayer(compute.handle().clone()))
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE));
        if let Some(tls) = self.0.security.server()? {
            server = server.tls_config(tls).map_err(|error| {
                Fault::new(codes::STRANGER, "the certificates cannot be used").cause(error)
            })?;
        }
        let connections = ConnectionTable::new(self.0.security.has_tls());
        listener.set_nonblocking(true).map_err(failed)?;
        let inner = self.0.clone();
        let ended = ended.clone();
        let served = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            let (leave_sender, leave_receiver) = oneshot::channel();
            let until_left = async move {
                while !inner.has_left() {
                    tokio::time::sleep(LOOK_EVERY).await;
                    inner
                        .leaves
                        .fetch_or(ended.check().is_err(), Ordering::Relaxed);
                }
                let _ = leave_sender.send(());
            };
            let farewell = async {
                // Where the server ends first, this future is dropped.
                let _ = leave_receiver.await;
                tokio::time::sleep(FAREWELL).await;
            };
            let incoming = connections.accept(listener);
            let serving = server
                .add_service(service)
                .serve_with_incoming_shutdown(incoming, until_left);
            tokio::select! {
                served = serving => served.map_err(|error| {
                    Fault::new(codes::STORAGE, "serving failed").cause(error)
                }),
                () = farewell => Ok(()),
                () = connections.watch() => Ok(()),
            }
        });
        compute.shutdown_background();
        runtime.shutdown_background();
        self.0.close_stages();
        served
    }
}

impl RequestHandler for WorkerState {
    fn handle(self: Arc<Self>, request: WorkerRequest, out: MessageSink) {
        let out = out.with_tally(self.tally.clone(), request.kind());
        let span = out.span();
        // Neither sending nor working may hold up the runtime.
        let work = move || match request {
            WorkerRequest::Hello => {
                out.send(WorkerMessage::Hello(self.hello()));
            }
            WorkerRequest::Probe(probe) => {
                let failure = self.check_paths(&probe).err();
                let sent = failure.map(|fault| Box::new((&fault).into()));
                out.send(WorkerMessage::Probed(sent));
            }
            WorkerRequest::Task(task) => self.run_task(*task, &out),
            WorkerRequest::Rows(rows) => self.send_rows(*rows, &out),
            WorkerRequest::Train(train) => self.train_part(&train, &out),
        };
        tokio::task::spawn_blocking(move || with_span(span, work));
    }
}

impl WorkerState {
    /// True once the worker is to leave and no task of it runs.
    fn has_left(&self) -> bool {
        let busy_slots = *self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        self.leaves.load(Ordering::Relaxed) && busy_slots == 0
    }

    fn hello(&self) -> WorkerHello {
        WorkerHello {
            protocol: PROTOCOL,
            version: protocol_version(),
            slots: self.session.options.threads.max(1),
            memory_bytes: self.session.options.memory_bytes,
            leaves: self.leaves.load(Ordering::Relaxed),
        }
    }

    /// Checks that this worker sees the directories and the sources of a run as the coordinator does.
    fn check_paths(&self, probe: &ProbeRequest) -> Result<()> {
        probe.check_directories()?;
        let job = &probe.job;
        let text =
            serde_json::to_vec(job).map_err(|error| Fault::internal("a job").cause(error))?;
        let session = self
            .session
            .for_request(&job.state, &job.base, job.batch_rows);
        let inputs = self
            .run_inputs(ContentId::of(&text), &session, job)
            .map_err(hidden_source)?;
        for (name, fingerprint) in &job.sources {
            let input = inputs.get(name);
            if input.is_none_or(|input| input.dataset.fingerprint() != *fingerprint) {
                return Err(other_files(&job.pipeline, name));
            }
        }
        Ok(())
    }

    /// Runs a task as soon as a slot is free: each slot has its share of the memory.
    fn run_task(self: &Arc<Self>, request: TaskRequest, out: &MessageSink) {
        let Some(seat) = SlotGuard::take(self, out) else {
            return;
        };
        if self.leaves.load(Ordering::Relaxed) {
            return out.send_outcome(Ok(TaskOutcome::HandedBack), TaskProgress::default(), || {
                None
            });
        }
        if let Err(fault) = request.check() {
            return out.send_outcome(Err(fault), TaskProgress::default(), || None);
        }
        let TaskRequest {
            job: run_spec,
            work,
            row_orders,
            shuffles,
            what,
            beat_ms,
        } = request;
        let (order, ended) = QueuedTask::new(
            work,
            what,
            out.clone(),
            self.draining_flag(),
            Duration::from_millis(beat_ms.max(1)),
        );
        match self.submit_task(
            run_spec,
            |run_id| StageKey {
                job: run_id,
                work: work.stage(),
                row_orders,
                shuffles,
            },
            order,
        ) {
            Ok(()) => {
                // Nothing is sent; the other end goes when the order is done.
                let _ = ended.recv();
            }
            Err(fault) => out.send_outcome(Err(fault), TaskProgress::default(), || None),
        }
        drop(seat);
    }

    /// Sends the rows of a block of a feed.
    fn send_rows(self: &Arc<Self>, request: RowsRequest, out: &MessageSink) {
        let Some(_seat) = SlotGuard::take(self, out) else {
            return;
        };
        if let Err(fault) = request.check() {
            return out.send_outcome(Err(fault), TaskProgress::default(), || None);
        }
        let RowsRequest {
            job,
            dataset,
            block,
            beat_ms,
        } = request;
        let beat = Duration::from_millis(beat_ms.max(1));
        let meter = Arc::default();
        let session = self
            .session
            .for_request(&job.state, &job.base, job.batch_rows);
        let leaves = || self.leaves.load(Ordering::Relaxed);
        let deliver = || {
            if leaves() {
                Ok(TaskOutcome::HandedBack)
            } else {
                self.feeds
                    .send_block(&session, &job, dataset, block, out, &leaves)
            }
        };
        let ended = self.task_threads.install(for_current_span(|| {
            with_heartbeat(out, beat, &meter, deliver)
        }));
        out.send_outcome(ended, meter.progress(), || None);
    }

    /// Trains a part of a training and keeps its models.
    fn train_part(self: &Arc<Self>, request: &TrainRequest, out: &MessageSink) {
        let Some(_seat) = SlotGuard::take(self, out) else {
            return;
        };
        let TrainRequest { job, part, beat_ms } = request;
        let beat = Duration::from_millis((*beat_ms).max(1));
        let meter = Arc::default();
        let session =
            self.session
                .for_request(&job.state, &job.base, self.session.options.batch_rows);
        let train = || {
            if self.leaves.load(Ordering::Relaxed) {
                return Ok(TaskOutcome::HandedBack);
            }
            step("take", "a task");
            let store = StateStore::new(session.io.clone(), session.state()?);
            let exchange = PartExchange {
                store: &store,
                training: job.id,
            };
            let rows = exchange.rows(*part)?.ok_or_else(|| {
                let fault = Fault::new(
                    codes::SEES_OTHER_DATA,
                    "the worker does not see the rows of a training",
                );
                fault.hint("give all of them the same state directory, at the same path")
            })?;
            let slots = self.session.options.threads.max(1) as u64;
            let memory_bytes = self.session.options.memory_bytes / slots;
            let context = PartContext {
                memory_bytes,
                stop: out.cancel_flag(),
            };
            let models = session
                .connectors
                .trainer(&job.format, &job.config)?
                .train_part(&rows, &context)?;
            let scratch = ScratchDir::new(Some(store.root()), session.watch.clone())?;
            exchange.put_models(*part, &models, &scratch)?;
            Ok(TaskOutcome::Done(SeriesCounts::default()))
        };
        let ended = self.task_threads.install(for_current_span(|| {
            with_heartbeat(out, beat, &meter, train)
        }));
        out.send_outcome(ended, meter.progress(), || None);
    }

    /// Submits a task to its stage session, which is opened if there is none.
    fn submit_task(
        self: &Arc<Self>,
        run_spec: RunSpec,
        key: impl FnOnce(ContentId) -> StageKey,
        order: QueuedTask,
    ) -> Result<()> {
        let text =
            serde_json::to_vec(&run_spec).map_err(|error| Fault::internal("a job").cause(error))?;
        let key = key(ContentId::of(&text));
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        stages.retain(|_, stage| stage.is_open());
        let closed = || {
            Fault::new(
                codes::INTERRUPTED,
                "a worker's stage closed while a task was submitted",
            )
        };
        if let Some(stage) = stages.get(&key) {
            return stage.submit(order).then_some(()).ok_or_else(closed);
        }
        // A pass of a job comes after all passes before it.
        stages.retain(|other, _| other.job != key.job || other.work.pass() >= key.work.pass());
        if stages.len() >= STAGES_MAX {
            stages.pop_first();
        }
        let session =
            self.session
                .for_request(&run_spec.state, &run_spec.base, run_spec.batch_rows);
        let inner = self.clone();
        let id = key.job;
        let inputs =
            move |session: &Session, run_spec: &RunSpec| inner.run_inputs(id, session, run_spec);
        let threads = StageThreads {
            pool: self.task_threads.clone(),
            maps_states: self.attached,
        };
        let stage = StageSession::open(session, run_spec, &key, threads, inputs)?;
        let entered = stage.submit(order);
        stages.insert(key, stage);
        entered.then_some(()).ok_or_else(closed)
    }

    fn close_stages(&self) {
        let stages =
            std::mem::take(&mut *self.stages.lock().unwrap_or_else(PoisonError::into_inner));
        stages.into_values().for_each(StageSession::close);
    }

    /// Inputs of a run, discovered once.
    fn run_inputs(
        &self,
        id: ContentId,
        session: &Session,
        run_spec: &RunSpec,
    ) -> Result<RunInputs> {
        let mut inputs_by_run = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, inputs)) = inputs_by_run
            .iter()
            .find(|(inputs_by_run, _)| *inputs_by_run == id)
        {
            return Ok(inputs.clone());
        }
        let inputs: RunInputs = Arc::new(session.discover_inputs(
            &session.io,
            &run_spec.pipeline,
            None,
            run_spec.interval.as_ref(),
        )?);
        inputs_by_run.truncate(JOBS_MAX - 1);
        inputs_by_run.insert(0, (id, inputs.clone()));
        Ok(inputs)
    }

    fn draining_flag(self: &Arc<Self>) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let inner = self.clone();
        Arc::new(move || inner.leaves.load(Ordering::Relaxed))
    }
}

impl Session {
    /// The session for a request: the coordinator's state directory and base path, the worker's threads and
    /// memory.
    fn for_request(&self, state: &str, base: &Path, batch_rows: usize) -> Session {
        let options = SessionOptions {
            state: state.to_owned(),
            batch_rows,
            ..self.options.clone()
        };
        Session {
            io: self.io.with_base(base),
            options,
            watch: Arc::new(MeterWatch),
            ..self.clone()
        }
    }
}

/// The fault of a worker that cannot list a source which the coordinator has listed.
fn hidden_source(fault: Fault) -> Fault {
    let hidden = Fault::new(
        codes::SEES_OTHER_DATA,
        "the worker does not see a source of the coordinator",
    );
    let hidden = hidden.note(fault.to_string());
    let hidden = hidden.hint("mount it at the same path on all machines, or give a bucket");
    match &fault.site().file {
        Some(file) => hidden.file(file.clone()),
        None => hidden,
    }
}

/// A slot of the worker, held by a running task.
struct SlotGuard(Arc<WorkerState>);

impl SlotGuard {
    /// Waits for a slot; `None` where the coordinator has cancelled the task or is gone.
    fn take(inner: &Arc<WorkerState>, out: &MessageSink) -> Option<SlotGuard> {
        let slots = inner.session.options.threads.max(1);
        let mut busy = inner.busy.lock().unwrap_or_else(PoisonError::into_inner);
        while *busy >= slots {
            if out.cancel_flag().load(Ordering::Relaxed)
                || !out.send(WorkerMessage::Beat(TaskProgress::default()))
            {
                return None;
            }
            busy = inner
                .fewer
                .wait_timeout(busy, LOOK_EVERY)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *busy += 1;
        inner.tally.set_running(*busy);
        Some(SlotGuard(inner.clone()))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let mut busy = self.0.busy.lock().unwrap_or_else(PoisonError::into_inner);
        *busy -= 1;
        self.0.tally.set_running(*busy);
        drop(busy);
        self.0.fewer.notify_all();
    }
}
