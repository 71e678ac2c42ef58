//! Forebay turns a large history (Parquet, Arrow, CSV, JSON; on local disk or S3) into the batches
//! that a model trains on: in as few passes as possible, in bounded memory, with the same bits
//! however the data is cut.
//!
//! This crate is the door: pipelines from YAML ([`spec`]) or from Rust ([`PipelineBuilder`]),
//! sessions that run them ([`Forebay::session`]), and artifacts applied to rows ([`Model`]).

pub mod allocator;
mod builder;
pub mod cli;
mod predict;
pub mod present;
pub mod spec;

use std::sync::Arc;

pub use builder::{PipelineBuilder, SourceBuilder, StepsBuilder};
pub use forebay_analyze as analyze;
pub use forebay_connectors as connectors;
pub use forebay_feed as feed;
pub use forebay_model as model;
pub use forebay_plan as plan;
pub use forebay_run::{Artifact, FeedConfig, Model, Options, Report, Session};
pub use forebay_storage::{Event, Silent, Watch};
pub use forebay_transforms as transforms;
pub use predict::{Scoring, TrainedModel};

use forebay_connectors::BuiltIn;
use forebay_model::Result;
use forebay_plan::{Registry, Sql};

/// Sessions, storage, and the traits of connectors.
pub mod run {
    pub use forebay_run::*;
    pub use forebay_storage::{
        Began, CacheStats, Chunks, Encoded, EpochReport, Event, Fetch, FileWriter, Interrupt, Io, Layout, Memory,
        Notes, Piece, Place, ScanRequest, Silent, Sink, Source, Stored, Versioned, Watch, from_disk, gives_back,
        literal_path, machine_bytes, plain_path, resident_bytes,
    };
}

/// What most programs need.
pub mod prelude {
    pub use crate::TrainedModel;
    pub use crate::{Artifact, FeedConfig, Forebay, Model, Options, PipelineBuilder, Report, Scoring, Session, Silent};
    pub use forebay_connectors::*;
    pub use forebay_model::{Fault, Pipeline, Result, Split};
    pub use forebay_plan::{Columns, Configured, Transform};
    pub use forebay_transforms::*;
}

/// The transforms and formats that pipelines can use. Add your own to `registry`.
#[derive(Clone)]
pub struct Forebay {
    /// Transforms by name.
    pub registry: Registry,
    /// Formats by name.
    pub connectors: BuiltIn,
}

impl Forebay {
    /// Everything that comes with Forebay.
    pub fn standard() -> Self {
        Forebay { registry: forebay_transforms::registry(), connectors: BuiltIn }
    }

    /// What specs can name.
    pub fn words(&self) -> spec::Words<'_> {
        spec::Words::new(
            &self.registry,
            forebay_connectors::source_formats(),
            forebay_connectors::sink_formats(),
            forebay_connectors::trainers(),
        )
    }

    /// A session that runs pipelines.
    pub fn session(&self, options: Options, watch: Arc<dyn Watch>) -> Result<Session> {
        let mut registry = self.registry.clone();
        registry.register::<predict::Predict>();
        Session::new(registry, Arc::new(self.connectors), sql(), options, watch)
    }

    /// An artifact ready to serve rows of `node` (by default: of what the first sink writes).
    pub fn model(&self, artifact: &Artifact, node: Option<&str>) -> Result<Model> {
        Model::new(artifact, &self.registry, &sql(), node)
    }
}

/// SQL whose sums do not depend on how rows are divided.
fn sql() -> Sql {
    Sql::default().with_exact(forebay_transforms::relational::exact_aggregates())
}
