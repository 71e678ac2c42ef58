//! Worker processes. A coordinator plans a run, divides passes into tasks, and commits. Workers run
//! tasks and store the results under content-addressed names, so that a lost worker costs only its
//! running tasks.
//!
//! ```text
//! coordinator  cluster (tasks in, results out) -> coordinator (attempts) -> scheduler (decisions)
//!              -> worker_client (one worker); discovery (expected workers), status (for `forebay top`)
//!              query (queries of the distributed engine over tables that workers read)
//! between      task_exec (a plan's leaf that runs a task), sent by the distributed engine; protocol; row_codec;
//!              security, authentication
//! ```
//! The server side of a worker is in `engine/run`, since it runs passes. The engine (datafusion-distributed) is known
//! to `task_exec`, `worker_client`, `query` and that server alone.

#![allow(
    missing_docs,
    reason = "the interface of engine crates: what a field or method is called says what it is"
)]

mod authentication;
mod cluster;
mod connections;
mod coordinator;
mod coordinator_event;
mod discovery;
#[cfg(test)]
mod fuzz;
mod heartbeat;
mod local_workers;
mod path_probe;
mod protocol;
mod query;
mod row_codec;
mod run_credentials;
mod scheduler;
mod security;
mod shuffle_plan;
mod stage;
mod status;
mod task_control;
mod task_exec;
mod task_tally;
mod token;
mod worker_client;

/// Fuzz targets count memory.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: forebay_fuzz::CountingAllocator = forebay_fuzz::CountingAllocator;

pub use authentication::AuthLayer;
pub use cluster::Cluster;
pub use connections::ConnectionTable;
pub use coordinator_event::ClusterOptions;
pub use discovery::WorkerSet;
pub use heartbeat::{MeterWatch, TaskMeter, with_heartbeat};
pub use local_workers::{LocalProcesses, LocalWorkers, set_worker_program, worker_program};
pub use protocol::{
    FeedSpec, NumberingSpec, PROTOCOL, ProbeRequest, ReusedFindings, RowsRequest, RunSpec,
    StageRef, StateSource, TableSpec, TaskKind, TaskProgress, TaskRequest, TrainRequest, TrainSpec,
    VocabularyBase, WindowInit, WorkUnitRef, WorkerHello, WorkerMessage, WorkerRequest,
    bad_request, protocol_version,
};
pub use query::{
    AdmittedInputCodec, ClusterSize, ComputeLayer, DistributedQuery, ExchangeChannels,
    JoinBatchRows, PassThroughExec, QueryEnd, QueryFailure, QueryHeader, QueryRows, QueryWorker,
    RowPassage, ScannedSpans, SpanScanCodec, SpanScanner, SpanTable, batch_bytes, explain_stages,
    in_portions, new_query_id, remote_fault, wire_error, with_admitted_inputs,
};
pub use row_codec::{encode_rows, split_batch};
pub use run_credentials::RunCredentials;
pub use scheduler::{
    AttemptId, CostClass, FailureAction, ROUNDS, TaskAssignment, TaskId, TaskScheduler, WorkerId,
    round_weight,
};
pub use security::{ClusterSecurity, TlsFiles};
pub use shuffle_plan::{ShufflePlan, run_range};
pub use stage::{StageContext, StageFailure, StageSpec, TaskEvent, TaskSpec};
pub use status::{ClusterStatus, WorkerStatus};
pub use task_control::{TaskControl, TaskOutcome};
pub use task_exec::{MessageSink, RequestHandler, TaskExecCodec};
pub use task_tally::{EndedTask, TaskCounts, TaskListener, TaskTally};
pub use token::ClusterToken;
pub use worker_client::ROWS_BYTES_MAX;
