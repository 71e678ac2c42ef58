//! The machine: storage, executors, memory, states, commits.

mod connector;
mod io;

pub use connector::{Chunks, Connectors, Encoded, FileWriter, Layout, ScanRequest, Sink, Source};
pub use io::{Io, Place, storage_fault};
