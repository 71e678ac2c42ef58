//! Worker processes. A coordinator plans a run, divides passes into tasks, and commits. Workers run
//! tasks and store the results under content-addressed names, so that a lost worker costs only its
//! running tasks.
//!
//! ```text
//! coordinator  crew (tasks in, results out) -> driver (attempts) -> schedule (decisions) -> link (one worker)
//!              roster (expected workers), status (for `forebay top`)
//! worker       host (serves) -> room (a stage, opened once) -> tasks
//!                            -> delivery (feeds, opened once) -> rows of blocks
//! between      leaf (a plan's leaf that runs a task), sent by the distributed engine; message; rows; security
//! ```
//! The engine (datafusion-distributed) is known to `leaf`, `link` and `host` alone.

mod crew;
mod delivery;
mod driver;
#[cfg(test)]
mod fuzz;
mod host;
mod leaf;
mod link;
mod local;
mod message;
mod meter;
mod proof;
mod room;
mod roster;
mod rows;
pub(crate) mod schedule;
mod security;
mod status;
mod token;

pub(crate) use crew::{StageContext, StageFailure, StageSpec, TaskEvent, TaskSpec};
pub(crate) use link::ROWS_BYTES_MAX;
pub(crate) use message::{FeedSpec, RunSpec, StageRef, TaskKind, WorkUnitRef, bad_request};
pub(crate) use schedule::{ROUNDS, round_weight};

pub use crew::{Cluster, ClusterOptions};
pub use host::WorkerServer;
pub use local::LocalWorkers;
pub use security::{ClusterSecurity, TlsFiles};
pub use status::{ClusterStatus, WorkerStatus};
pub use token::ClusterToken;
