//! Forebay turns a large history (Parquet, Arrow, CSV, JSON; on local disk or S3) into the batches
//! that a model trains on: in as few passes as possible, in bounded memory, with the same bits
//! however the data is cut.
//!
//! This crate is the door: pipelines from YAML ([`spec`]) or from Rust ([`PipelineBuilder`]),
//! sessions that run them ([`Forebay::session`]), and artifacts applied to rows ([`ServingModel`]).

pub mod allocator;
mod builder;
pub mod cli;
mod infer_expectations;
mod metrics;
mod page;
mod predict;
pub mod present;
mod propose;
mod replace_file;
pub mod settings;
pub mod spec;
pub mod step_test;
mod visible;

use std::sync::Arc;

pub use builder::{PipelineBuilder, SourceBuilder, StepsBuilder};
pub use forebay_analyze as analyze;
pub use forebay_connectors as connectors;
pub use forebay_feed as feed;
pub use forebay_model as model;
pub use forebay_plan as plan;
pub use forebay_run::{Artifact, FeedConfig, RunReport, ServingModel, Session, SessionOptions};
pub use forebay_storage::{Event, EventListener, IgnoreEvents};
pub use forebay_transforms as transforms;
pub use predict::{ScoringRequest, TrainedModel};
pub use visible::{VisibleDataset, VisibleFile};

use forebay_connectors::BuiltInConnectors;
use forebay_model::Result;
use forebay_plan::{SqlCompiler, TransformRegistry};
use forebay_run::PredictTransform;

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
        SessionOptions,
    };
    pub use forebay_connectors::*;
    pub use forebay_model::{DataSplit, Fault, Pipeline, Result};
    pub use forebay_plan::{ColumnSelector, ConfiguredTransform, Transform};
    pub use forebay_run::{ForecastFormat, PredictConfig};
    pub use forebay_transforms::*;
}

/// The transforms and formats that pipelines can use. Add your own to `registry`.
#[derive(Clone)]
pub struct Forebay {
    /// Transforms by name.
    pub registry: TransformRegistry,
    /// Formats by name.
    pub connectors: BuiltInConnectors,
}

impl Forebay {
    /// Everything that comes with Forebay.
    pub fn standard() -> Self {
        Forebay { registry: forebay_transforms::registry(), connectors: BuiltInConnectors }
    }

    /// What specs can name.
    pub fn spec_catalog(&self) -> spec::SpecCatalog<'_> {
        spec::SpecCatalog::new(
            &self.registry,
            forebay_connectors::source_formats(),
            forebay_connectors::sink_formats(),
            forebay_connectors::trainers(),
            forebay_connectors::predictors(),
        )
    }

    /// A session that runs pipelines.
    pub fn session(&self, options: SessionOptions, watch: Arc<dyn EventListener>) -> Result<Session> {
        let mut registry = self.registry.clone();
        registry.register::<PredictTransform>();
        Session::new(registry, Arc::new(self.connectors), exact_sql(), options, watch)
    }

    /// An artifact ready to serve rows of `node` (by default: of what the first sink writes).
    pub fn model(&self, artifact: &Artifact, node: Option<&str>) -> Result<ServingModel> {
        ServingModel::new(artifact, &self.registry, &exact_sql(), node)
    }
}

/// SQL whose sums do not depend on how rows are divided.
fn exact_sql() -> SqlCompiler {
    SqlCompiler::default().with_exact(forebay_transforms::relational::exact_aggregates())
}
