//! The machine: storage, executors, memory, states, commits.

mod artifact;
mod attempt;
mod beside;
mod cache;
mod claim;
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
mod ladder;
mod later;
mod lease;
mod lookback;
mod memory;
mod model;
mod notes;
mod output;
mod pace;
mod pass;
mod perturb;
mod ready;
mod report;
mod scratch;
mod session;
#[cfg(test)]
mod simulation;
mod trained_rows;
mod training;
mod view;
mod workers;

/// Fuzz targets count memory.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: forebay_fuzz::Counting = forebay_fuzz::Counting;

pub use artifact::{Artifact, Files, Learned};
pub use cache::{Broken, Cache, Collected, Holding, Retention, Verified};
pub use claim::Began;
pub use connector::{
    Chunks, Connectors, Encoded, FileWriter, Layout, Piece, ScanRequest, Sink, Source, Stored, literal_path, plain_path,
};
pub use events::{Event, Silent, Watch};
pub use feed::{DetailedFeature, Feature, Fed, FedFrom, FeedCache, FeedConfig, FeedOrder, FeedSeries, Mixed};
pub use interrupt::Interrupt;
pub use interval::Interval;
pub use io::{CacheStats, Fetch, Io, Place, Versioned, from_disk};
pub use ladder::Ladder;
pub use memory::{Memory, gives_back, machine_bytes, resident_bytes};
pub use model::Model;
pub use notes::Notes;
pub use output::{Manifest, Stretch, Written};
pub use pace::Moment;
pub use perturb::{Misplaced, Moved, Perturbed, PerturbedSink, ScrambledSource};
pub use report::{EpochReport, From, Learning, ModelReport, OnTime, Output, OutputColumn, PassReport, Report};
pub use session::{Options, Session};
pub use training::{Course, Trained, Trainer};
pub use workers::{Crew, CrewOptions, Host, LocalWorkers, Security, Status, TlsFiles, Token, WorkerStatus};
