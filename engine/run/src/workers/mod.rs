//! Worker processes. A coordinator plans a run, divides passes into errands, and commits; workers do
//! errands and keep what they made under its own name, so that whoever is lost costs only what it was
//! doing.
//!
//! ```text
//! coordinator  crew (errands in, results out) -> driver (attempts) -> schedule (decisions) -> link (one worker)
//!              roster (who should be there), status (for those who look on)
//! worker       host (serves) -> room (a part of a pass, opened once) -> errands
//!                            -> delivery (feeds, opened once) -> rows of blocks
//! between      leaf (a plan's leaf that does an errand), sent by the distributed engine; message; rows; security
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

pub(crate) use crew::{Asks, Common, Errand, Failure, Said};
pub(crate) use link::ROWS_BYTES_MAX;
pub(crate) use message::{FeedJob, Job, PartRef, What, Work, strange};
pub(crate) use schedule::{ROUNDS, round_weight};

pub use crew::{Crew, CrewOptions};
pub use host::Host;
pub use local::LocalWorkers;
pub use security::{Security, TlsFiles};
pub use status::{Status, WorkerStatus};
pub use token::Token;
