//! The machine: storage, executors, memory, states, commits.

mod artifact;
mod clash;
mod commit;
mod connector;
mod events;
mod io;
mod memory;
mod model;
mod output;
mod pass;
mod perturb;
mod scratch;
mod session;

pub use artifact::{Artifact, Learned};
pub use connector::{Chunks, Connectors, Encoded, FileWriter, Layout, ScanRequest, Sink, Source};
pub use events::{Event, Silent, Watch};
pub use io::{Io, Place, storage_fault};
pub use memory::{Memory, machine_bytes, resident_bytes};
pub use model::Model;
pub use output::{Manifest, Written};
pub use perturb::{Misplaced, Moved, Perturbed, PerturbedSink, ScrambledSource};
pub use session::{Options, Output, PassReport, Report, Session};
