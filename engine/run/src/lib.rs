//! The machine: storage, executors, memory, states, commits.

mod artifact;
mod cache;
mod clash;
mod commit;
mod connector;
mod crash;
mod drive;
mod events;
mod feed;
mod interrupt;
mod interval;
mod io;
mod memory;
mod model;
mod notes;
mod output;
mod pass;
mod perturb;
mod report;
mod scratch;
mod session;

pub use artifact::{Artifact, Learned};
pub use cache::{Broken, Cache, Collected, Holding, Retention, Verified};
pub use connector::{Chunks, Connectors, Encoded, FileWriter, Layout, ScanRequest, Sink, Source};
pub use events::{Event, Silent, Watch};
pub use feed::{DetailedFeature, Feature, Fed, FedFrom, FeedConfig, FeedOrder};
pub use interrupt::Interrupt;
pub use interval::Interval;
pub use io::{Fetch, Io, Place, Versioned};
pub use memory::{Memory, machine_bytes, resident_bytes};
pub use model::Model;
pub use notes::Notes;
pub use output::{Manifest, Stretch, Written};
pub use perturb::{Misplaced, Moved, Perturbed, PerturbedSink, ScrambledSource};
pub use report::{Output, PassReport, Report};
pub use session::{Options, Session};
