//! Forebay turns a large history (Parquet, Arrow, CSV, JSON; on local disk or S3) into the batches
//! that a model trains on: in as few passes as possible, in bounded memory, with the same bits
//! however the data is cut.
//!
//! This crate is the door: pipelines from YAML ([`spec`]) or from Rust ([`PipelineBuilder`]), what runs them
//! ([`Forebay`]), and artifacts applied to rows ([`ServingModel`]).

pub mod allocator;
mod builder;
pub mod cli;
mod cycles;
mod forebay;
mod infer_expectations;
mod metrics;
mod page;
mod predict;
pub mod present;
mod propose;
mod replace_file;
pub mod settings;
pub mod spec;
mod split_problems;
pub mod step_test;
mod visible;

pub use builder::{LabelHandle, PipelineBuilder, SinkHandle, SourceHandle, StepHandle};
pub use forebay::Forebay;
pub use forebay_analyze as analyze;
pub use forebay_connectors as connectors;
pub use forebay_feed as feed;
pub use forebay_model as model;
pub use forebay_plan as plan;
pub use forebay_run::{Artifact, FeedConfig, RunReport, ServingModel, Session, SessionOptions};
pub use forebay_setters::Setters;
pub use forebay_storage::{Event, EventListener, IgnoreEvents};
pub use forebay_transforms as transforms;
pub use predict::{ScoringRequest, TrainedModel};
pub use visible::{VisibleDataset, VisibleFile};

/// Sessions, storage, and the traits of connectors.
pub mod run {
    pub use forebay_run::*;
    pub use forebay_storage::{
        AttemptOrigin, CacheStats, CancellationToken, ChunkIterator, EncodedBatch, EncodedPiece, EpochReport, Event,
        EventListener, FileLayout, FileWriter, IgnoreEvents, MemoryBudget, MetadataCache, RangeFetch, ScanRequest,
        Sink, Source, StorageClient, StorageLocation, VersionedObject, literal_path, machine_bytes, plain_path,
        resident_bytes, set_release_hook, time_disk_wait,
    };
}

/// What most programs need.
pub mod prelude {
    pub use crate::TrainedModel;
    pub use crate::{
        Artifact, FeedConfig, Forebay, IgnoreEvents, PipelineBuilder, RunReport, ScoringRequest, ServingModel, Session,
        SessionOptions, Setters,
    };
    pub use forebay_connectors::*;
    pub use forebay_model::{DataSplit, Fault, Pipeline, Result};
    pub use forebay_plan::{ColumnSelector, ConfiguredTransform, Transform};
    pub use forebay_run::{ForecastFormat, PredictConfig, PreviewOptions};
    pub use forebay_transforms::*;
}
