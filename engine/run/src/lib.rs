//! The machine: storage, executors, memory, states, commits.

mod artifact;
mod attempt;
mod beside;
mod cache;
mod cancellable_source;
mod claim;
mod clash;
mod commit;
mod connectors;
mod drive;
mod feed;
mod interval;
mod ladder;
mod lease;
mod lookback;
mod model;
mod output;
mod pace;
mod pass;
mod perturb;
mod ready;
mod report;
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
pub use connectors::Connectors;
pub use feed::{DetailedFeature, Feature, Fed, FedFrom, FeedCache, FeedConfig, FeedOrder, FeedSeries, Mixed};
pub use interval::Interval;
pub use ladder::Ladder;
pub use model::Model;
pub use output::{Manifest, Stretch, Written};
pub use pace::Moment;
pub use perturb::{FutureCuts, Misplaced, Moved, Perturbed, PerturbedCut, PerturbedSink, ScrambledSource};
pub use report::{From, Learning, ModelReport, OnTime, Output, OutputColumn, PassReport, Report};
pub use session::{Options, Session};
pub use training::{Course, Trained, Trainer};
pub use workers::{Crew, CrewOptions, Host, LocalWorkers, Security, Status, TlsFiles, Token, WorkerStatus};
