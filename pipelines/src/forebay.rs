//! Front door of the library: runs pipelines.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_connectors::{FormatRegistry, SinkFormat, SourceFormat, TrainerFormat};
use forebay_model::{Fault, Pipeline, Result};
use forebay_plan::{ConfiguredTransform, ExplainProgram, SqlCompiler, TransformRegistry};
use forebay_run::{
    Artifact, InverseColumns, Preview, PreviewOptions, RowStream, RunReport, ServingModel, Session,
    SessionOptions, StepRows, Task,
};
use forebay_storage::{EventListener, IgnoreEvents};

use crate::backfill::{Backfill, IntervalOutcome};
use crate::observe::MlflowTracker;
use crate::spec;

/// Entry point: the transforms and formats that pipelines can use, and the options of runs.
///
/// ```no_run
/// use forebay::prelude::*;
///
/// let forebay = Forebay::new();
/// let pipeline = forebay.read_spec("demand.yaml", [("as_of", "2016-05-22")])?;
/// let report = forebay.run(&pipeline)?;
/// println!("{} rows", report.outputs[0].rows);
/// # Ok::<(), Fault>(())
/// ```
///
/// Every call works on its own. What several calls should share, such as a deadline or workers, belongs to a
/// [`Session`], which [`Forebay::session`] makes.
#[derive(Clone)]
pub struct Forebay {
    /// Transforms by name.
    pub registry: TransformRegistry,
    /// Sources, sinks and trainers by name.
    pub connectors: FormatRegistry,
    options: SessionOptions,
    listener: Arc<dyn EventListener>,
}

impl Default for Forebay {
    fn default() -> Self {
        Forebay {
            registry: forebay_transforms::registry(),
            connectors: FormatRegistry::built_in(),
            options: SessionOptions::default(),
            listener: Arc::new(IgnoreEvents),
        }
    }
}

impl Forebay {
    /// Creates an instance with all built-in transforms and formats, and default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the options.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let forebay = Forebay::new().with_options(SessionOptions::default().memory_bytes(4 << 30).state("s3://bucket/state"));
    /// # let _ = forebay;
    /// ```
    pub fn with_options(self, options: SessionOptions) -> Self {
        Forebay { options, ..self }
    }

    /// Sets the listener that runs report to.
    pub fn with_listener(self, listener: Arc<dyn EventListener>) -> Self {
        Forebay { listener, ..self }
    }

    /// Registers a transform, which pipelines and specs can then use.
    pub fn with_transform<T: ConfiguredTransform>(mut self) -> Self {
        self.registry.register::<T>();
        self
    }

    /// Registers a source, which pipelines and specs can then read. It replaces one of the same
    /// name. Worker processes need a program that registers it, too.
    ///
    /// `pipelines/examples/own_source.rs` shows one from outside the workspace.
    pub fn with_source<T: SourceFormat>(mut self) -> Self {
        self.connectors.register_source::<T>();
        self
    }

    /// Registers a sink, which pipelines and specs can then write. It replaces a sink or trainer of
    /// the same name.
    ///
    /// `pipelines/examples/own_sink.rs` shows one from outside the workspace.
    pub fn with_sink<T: SinkFormat>(mut self) -> Self {
        self.connectors.register_sink::<T>();
        self
    }

    /// Registers a trainer, which pipelines and specs can then name as a sink. It replaces a sink
    /// or trainer of the same name.
    ///
    /// `pipelines/examples/own_trainer.rs` shows one from outside the workspace.
    pub fn with_trainer<T: TrainerFormat>(mut self) -> Self {
        self.connectors.register_trainer::<T>();
        self
    }

    /// Names that specs can use.
    pub fn spec_catalog(&self) -> spec::SpecCatalog<'_> {
        spec::SpecCatalog::new(
            &self.registry,
            self.connectors.sources(),
            self.connectors.sinks(),
            self.connectors.trainers(),
            self.connectors.predictors(),
        )
    }

    /// The pipeline of a spec, with values for its parameters.
    pub fn read_spec(
        &self,
        path: impl AsRef<Path>,
        params: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Result<Pipeline> {
        let path = path.as_ref();
        let params: BTreeMap<String, String> = params
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        spec::parse(
            &spec::read_text(path)?,
            &path.display().to_string(),
            &params,
            &self.spec_catalog(),
        )
    }

    /// A session, for several calls that share a deadline, workers or a cancellation. Its runs
    /// report trainings to MLflow if their sinks request it (`mlflow:`), and all trainings where
    /// `MLFLOW_TRACKING_URI` names a server.
    pub fn session(&self) -> Result<Session> {
        let registry = self.registry.clone();
        let options = self.options.clone();
        let listener = self.listener.clone();
        let session = Session::new(
            registry,
            Arc::new(self.connectors.clone()),
            exact_sql(),
            options,
            listener,
        )?;
        Ok(session.with_training_tracker(Arc::new(MlflowTracker::new())))
    }

    /// Learns everything, commits the artifact, and writes all sinks.
    pub fn run(&self, pipeline: &Pipeline) -> Result<RunReport> {
        self.session()?.run(pipeline)
    }

    /// Like [`Forebay::run`], on a thread of its own; await it in any `async` runtime. Dropping it
    /// cancels the run.
    ///
    /// ```no_run
    /// use forebay::prelude::*;
    ///
    /// async fn nightly(pipeline: Pipeline) -> Result<RunReport> {
    ///     Forebay::new().run_async(pipeline)?.await
    /// }
    /// ```
    pub fn run_async(&self, pipeline: Pipeline) -> Result<Task<RunReport>> {
        self.spawn(move |session| session.run(&pipeline))
    }

    /// Runs a pipeline for consecutive intervals; returns the outcome of each, in order of time.
    pub fn backfill(
        &self,
        pipeline: &Pipeline,
        backfill: &Backfill,
    ) -> Result<Vec<IntervalOutcome>> {
        let session = self.session()?;
        let mut outcomes = Vec::new();
        backfill
            .plan(&session, pipeline)?
            .run(&session, pipeline, &mut |outcome| {
                outcomes.push(outcome);
                Ok(())
            })?;
        Ok(outcomes)
    }

    /// Learns everything and commits the artifact.
    pub fn fit(&self, pipeline: &Pipeline) -> Result<RunReport> {
        self.session()?.fit(pipeline)
    }

    /// Checks everything that a run would refuse before it reads rows, and reports all faults at
    /// once; returns warnings.
    pub fn check(&self, pipeline: &Pipeline) -> Result<Vec<Fault>> {
        self.session()?.check(pipeline)
    }

    /// Plan of a run.
    pub fn explain(&self, pipeline: &Pipeline) -> Result<ExplainProgram> {
        self.session()?.explain(pipeline, None)
    }

    /// Some rows of a step, computed from a sample.
    pub fn preview(&self, pipeline: &Pipeline, options: &PreviewOptions) -> Result<Preview> {
        self.session()?.preview(pipeline, options)
    }

    /// The rows of a step or source, batch by batch; see [`Session::rows`].
    ///
    /// ```no_run
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("demand");
    /// let demand = pipeline.source("demand", ParquetSource::at("data/demand"));
    /// let recent = pipeline.step("recent", &demand).apply(filter("date >= DATE '2016-05-01'"));
    /// for batch in Forebay::new().rows(&pipeline.build()?, &recent)? {
    ///     println!("{} rows", batch?.num_rows());
    /// }
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn rows(&self, pipeline: &Pipeline, step: impl Into<String>) -> Result<StepRows> {
        self.session()?.rows(pipeline, &step.into())
    }

    /// All rows of a step or source, in memory.
    pub fn collect(
        &self,
        pipeline: &Pipeline,
        step: impl Into<String>,
    ) -> Result<Vec<RecordBatch>> {
        self.session()?.collect(pipeline, &step.into())
    }

    /// The rows of a step or source as a `Stream` for `async` programs.
    pub fn stream(&self, pipeline: &Pipeline, step: impl Into<String>) -> Result<RowStream> {
        self.session()?.stream(pipeline, &step.into())
    }

    /// Does work of a session on a thread of its own.
    ///
    /// ```no_run
    /// use forebay::prelude::*;
    ///
    /// async fn learned(pipeline: Pipeline) -> Result<RunReport> {
    ///     Forebay::new().spawn(move |session| session.fit(&pipeline))?.await
    /// }
    /// ```
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session) -> Result<T> + Send + 'static,
    ) -> Result<Task<T>> {
        self.session()?.spawn(work)
    }

    /// The artifact in a directory, such as [`RunReport::artifact_path`].
    pub fn artifact(&self, directory: &str) -> Result<Artifact> {
        let session = self.session()?;
        Artifact::load(session.io(), &session.io().resolve(directory)?)
    }

    /// Loads an artifact to serve rows of `node` (by default the rows that the first sink writes).
    pub fn model(&self, artifact: &Artifact, node: Option<&str>) -> Result<ServingModel> {
        ServingModel::new(artifact, &self.registry, &exact_sql(), node)
    }

    /// The way back from columns of `node` (by default the rows that the first sink writes) to those of the source.
    pub fn inverse(
        &self,
        artifact: &Artifact,
        node: Option<&str>,
        columns: &[String],
    ) -> Result<InverseColumns> {
        InverseColumns::new(artifact, &self.registry, &exact_sql(), node, columns)
    }
}

/// SQL whose sums do not depend on how rows are divided.
pub(crate) fn exact_sql() -> SqlCompiler {
    SqlCompiler::default().with_exact(forebay_transforms::relational::exact_aggregates())
}
