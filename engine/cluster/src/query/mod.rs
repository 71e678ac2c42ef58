//! Queries of the distributed engine. Its planner divides a query into stages, its exchanges carry rows from worker to
//! worker, and its workers run the stages. The leaves are tables that a worker reads span by span, with the operations
//! of a step, as any pass reads them.
//!
//! ```text
//! coordinator  run (attempts of a query) -> span_table (tables in its plan) -> the engine's planner
//! worker       span_scan (leaf) -> SpanScanner (reads spans); exchange (channels to other workers); compute (threads)
//! between      faults (faults as errors of the engine), header (what a query tells each worker)
//! ```

mod compute;
mod exchange;
mod faults;
mod header;
mod run;
pub(crate) mod span_scan;
mod span_table;
mod task_merge;

pub use compute::ComputeLayer;
pub use exchange::ExchangeChannels;
pub use faults::{remote_fault, wire_error};
pub use header::QueryHeader;
pub use run::{
    ClusterSize, DistributedQuery, QueryEnd, QueryFailure, QueryRows, QueryWorker, explain_stages,
};
pub use span_scan::{ScannedSpans, SpanScanCodec, SpanScanner};
pub use span_table::SpanTable;
