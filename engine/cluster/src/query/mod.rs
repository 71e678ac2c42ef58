//! Queries of the distributed engine. Its planner divides a query into stages, its exchanges carry rows from worker to
//! worker, and its workers run the stages. The leaves are tables that a worker reads span by span, with the operations
//! of a step, as any pass reads them.
//!
//! ```text
//! coordinator  run (attempts of a query) -> span_table (tables in its plan) -> the engine's planner
//! worker       span_scan (leaf) -> SpanScanner (reads spans); exchange (channels to other workers); compute (threads)
//! between      faults (faults as errors of the engine), header (headers of a query for each worker), admitted_input
//!              (operators whose memory the engine does not count; also for queries of one process), pass_through
//!              (operators of one input whose rows stay as they are)
//! ```

mod admitted_input;
mod compute;
mod exchange;
mod faults;
mod header;
mod pass_through;
mod run;
pub(crate) mod span_scan;
mod span_table;
mod task_merge;
mod worker;

pub use admitted_input::{
    AdmittedInputCodec, JoinBatchRows, batch_bytes, in_portions, with_admitted_inputs,
};
pub use compute::ComputeLayer;
pub use exchange::ExchangeChannels;
pub use faults::{remote_fault, wire_error};
pub use header::QueryHeader;
pub use pass_through::{PassThroughExec, RowPassage};
pub use run::{
    ClusterSize, DistributedQuery, QueryEnd, QueryFailure, QueryRows, explain_stages, new_query_id,
};
pub use span_scan::{ScannedSpans, SpanScanCodec, SpanScanner};
pub use span_table::SpanTable;
pub use worker::QueryWorker;
