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
static ALLOCATOR: forebay_fuzz::CountingAllocator = forebay_fuzz::CountingAllocator;

pub use artifact::{Artifact, ArtifactFiles, LearnedFinding};
pub use cache::{CollectionReport, CorruptFile, KindUsage, RetentionPolicy, StateDirectory, VerifyReport};
pub use connectors::ConnectorRegistry;
pub use feed::{
    DetailedFeature, FeatureColumn, FeedCache, FeedConfig, FeedOrder, FeedOrigin, FeedSeries, FeedSource, MixSource,
};
pub use interval::Interval;
pub use ladder::DegradationReport;
pub use model::ServingModel;
pub use output::{IntervalEntry, Manifest, OutputFile};
pub use pace::DeadlineSpec;
pub use perturb::{CutoffChoice, CutoffReport, LeakReport, LeakedColumn, RowMismatch, ScrambledSource, SinkComparison};
pub use report::{
    DeadlineOutcome, ModelReport, OriginColumn, OutputColumn, OutputReport, PassReport, RunReport, TrainingReport,
};
pub use session::{Session, SessionOptions};
pub use training::{Trainer, TrainingContext, TrainingOutput};
pub use workers::{
    Cluster, ClusterOptions, ClusterSecurity, ClusterStatus, ClusterToken, LocalWorkers, TlsFiles, WorkerServer,
    WorkerStatus,
};
