//! Storage: object stores with retries and caches, the traits of connectors, events, cancellation, fail points,
//! and the accounting of memory and temporary files.

mod background;
mod cancellation;
mod connector;
mod events;
pub mod failpoint;
mod io;
mod memory;
mod metadata_cache;
pub mod scratch;
pub mod timestamp;

pub use background::{Later, Soon};
pub use cancellation::Interrupt;
pub use connector::{
    Chunks, Encoded, FileWriter, Layout, Piece, RowRuns, ScanRequest, Sink, Source, Stored, literal_path, plain_path,
    rows_of,
};
pub use events::{Began, EpochReport, Event, Silent, Watch};
pub use io::{Cache, CacheStats, Fetch, Io, Place, Versioned, from_disk, waited};
pub use memory::{Memory, gives_back, machine_bytes, resident_bytes};
pub use metadata_cache::{NOTES_BYTES_MAX, Notes, notes_id};
pub use scratch::ScratchDir;
