//! Pipelines in Rust: the same nouns as in YAML, and the same ids.

mod check;
mod expressions;
mod handles;

use std::cell::RefCell;

use forebay_connectors::{
    ConnectorConfig, ConnectorFormat, SinkFormat, SourceFormat, TrainerFormat,
};
use forebay_contract::PredictConfig;
use forebay_model::{
    DataSplit, Fault, LateFacts, NodeInput, Pipeline, PipelineDeadline, PipelineFeed, PipelineNode,
    PipelineServing, PipelineSink, PipelineSource, PredictionLabel, Result, WireFault, codes,
};
use forebay_plan::TransformRegistry;
use forebay_run::FeedConfig;
use serde::Serialize;
use serde_json::Value;

pub use handles::{LabelHandle, SinkHandle, SourceHandle, StepHandle};

/// Builds a [`Pipeline`]. Its methods declare sources, steps and sinks, and return handles: methods
/// of a handle set options, and other steps and sinks take the handle, or the name, as input.
///
/// Mistakes are kept until [`PipelineBuilder::build`], which reports all of them.
///
/// ```
/// use forebay::prelude::*;
///
/// let pipeline = PipelineBuilder::new("demand");
/// let demand = pipeline.source("demand", ParquetSource::at("data/demand")).time("date").keys(["store_id", "item_id"]);
/// let features = pipeline
///     .step("features", &demand)
///     .fit_on("train")
///     .apply(filter("qty IS NOT NULL"))
///     .apply(lag(["qty"]).by(["7d", "28d"]))
///     .apply(standardize(["price"]));
/// pipeline.split([("train", "date < DATE '2016-04-25'")]);
/// pipeline.sink("table", &features, ParquetSink::at("out/features"));
/// let pipeline = pipeline.build()?;
/// assert_eq!(pipeline.nodes[0].steps.len(), 3);
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug, Default)]
pub struct PipelineBuilder {
    draft: RefCell<Draft>,
}

/// Pipeline declared so far, with its faults.
#[derive(Debug, Default)]
struct Draft {
    pipeline: Pipeline,
    /// Format of each source of the pipeline.
    source_formats: Vec<ConnectorFormat>,
    /// Transforms of the pipeline's steps.
    transforms: TransformRegistry,
    faults: Vec<Fault>,
}

/// List of the pipeline that a sink belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkRole {
    Output,
    Training,
    Prediction,
}

impl Draft {
    fn sinks(&mut self, role: SinkRole) -> &mut Vec<PipelineSink> {
        match role {
            SinkRole::Output => &mut self.pipeline.sinks,
            SinkRole::Training => &mut self.pipeline.trainings,
            SinkRole::Prediction => &mut self.pipeline.predictions,
        }
    }

    /// Canonical form of a configuration; the fault is kept.
    fn canonical<C: ConnectorConfig>(&mut self, config: &C) -> Value {
        let format = ConnectorFormat::of::<C>();
        let canonical = serialized(config).and_then(|config| format.fill_defaults(config));
        self.value_or_fault(canonical)
    }

    fn value_or_fault(&mut self, value: Result<Value>) -> Value {
        value.unwrap_or_else(|fault| {
            self.faults.push(fault);
            Value::Null
        })
    }
}

impl Draft {
    /// Adds the format of a column to the configuration of a source.
    fn add_format(&mut self, index: usize, column: &str, format: String) {
        let mut config = self.pipeline.sources[index].config.clone();
        if let Value::Object(fields) = &mut config {
            let formats = fields
                .entry("formats")
                .or_insert_with(|| Value::Object(serde_json::Map::new()));
            formats[column] = format.into();
        }
        match self.source_formats[index].fill_defaults(config) {
            Ok(config) => self.pipeline.sources[index].config = config,
            Err(fault) => self.faults.push(fault),
        }
    }
}

impl PipelineBuilder {
    /// Creates an empty pipeline with a name.
    pub fn new(name: impl Into<String>) -> Self {
        let pipeline = Pipeline {
            name: name.into(),
            ..Pipeline::default()
        };
        PipelineBuilder {
            draft: RefCell::new(Draft {
                pipeline,
                ..Draft::default()
            }),
        }
    }

    /// A dataset to read.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("trips");
    /// let trips = pipeline.source("trips", CsvSource::at("trips/*.csv.gz")).time("pickup");
    /// pipeline.sink("copy", &trips, ParquetSink::at("out/trips"));
    /// assert_eq!(pipeline.build()?.sources[0].format, "csv");
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn source<C: SourceFormat>(&self, name: impl Into<String>, format: C) -> SourceHandle<'_> {
        let name = name.into();
        let mut draft = self.draft.borrow_mut();
        let config = draft.canonical(&format);
        draft.source_formats.push(ConnectorFormat::of::<C>());
        draft.pipeline.sources.push(PipelineSource {
            name: name.clone(),
            format: C::NAME.to_owned(),
            config,
            time: None,
            keys: Vec::new(),
            ready: None,
            duplicates: None,
            lookback: None,
            days: Default::default(),
            at: None,
        });
        SourceHandle {
            builder: self,
            index: draft.pipeline.sources.len() - 1,
            name,
        }
    }

    /// Steps over the rows of a source or of another step.
    pub fn step(&self, name: impl Into<String>, from: impl Into<String>) -> StepHandle<'_> {
        self.node(name.into(), NodeInput::From(from.into()))
    }

    /// Steps over the rows of several inputs with equal columns, one after the other.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("shops");
    /// let (north, south) = (ParquetSource::at("data/north"), ParquetSource::at("data/south"));
    /// let (north, south) = (pipeline.source("north", north), pipeline.source("south", south));
    /// let all = pipeline.union("all", [&north, &south]).apply(standardize(["price"]));
    /// pipeline.sink("table", &all, ParquetSink::at("out/all"));
    /// # pipeline.build()?;
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn union(
        &self,
        name: impl Into<String>,
        inputs: impl IntoIterator<Item = impl Into<String>>,
    ) -> StepHandle<'_> {
        self.node(
            name.into(),
            NodeInput::Union(inputs.into_iter().map(Into::into).collect()),
        )
    }

    /// Steps over the rows of a SQL query, which names sources and steps.
    pub fn sql(&self, name: impl Into<String>, query: impl Into<String>) -> StepHandle<'_> {
        self.node(name.into(), NodeInput::Sql(query.into()))
    }

    fn node(&self, name: String, input: NodeInput) -> StepHandle<'_> {
        let nodes = &mut self.draft.borrow_mut().pipeline.nodes;
        nodes.push(PipelineNode::new(&name, input, Vec::new()));
        StepHandle {
            builder: self,
            index: nodes.len() - 1,
            name,
        }
    }

    /// Sets the division of rows into parts.
    pub fn split(&self, split: impl Into<DataSplit>) {
        self.draft.borrow_mut().pipeline.split = Some(split.into());
    }

    /// The column that is predicted, and how long before: sinks with features that know more are refused.
    pub fn label(&self, column: impl Into<String>, horizon: impl Into<String>) -> LabelHandle<'_> {
        let label = PredictionLabel {
            column: column.into(),
            horizon: Some(horizon.into()),
            known: Vec::new(),
            at: None,
        };
        self.draft.borrow_mut().pipeline.label = Some(label);
        LabelHandle { builder: self }
    }

    /// Sets the contents of mini-batches.
    pub fn feed(&self, config: FeedConfig) {
        let mut draft = self.draft.borrow_mut();
        let config = draft.value_or_fault(serialized(&config));
        draft.pipeline.feed = Some(PipelineFeed { config, at: None });
    }

    /// Sets the time at which a run should end, and the permitted degradations.
    pub fn deadline(&self, deadline: PipelineDeadline) {
        self.draft.borrow_mut().pipeline.deadline = Some(deadline);
    }

    /// Keeps what windows of a step need of the rows before, so that its rows can be served one by one.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("demand");
    /// let demand = pipeline.source("demand", ParquetSource::at("data/demand")).time("date").keys(["item_id"]);
    /// let features = pipeline.step("features", &demand).apply(lag(["qty"]).by(["7d"]));
    /// pipeline.serve(&features);
    /// assert_eq!(pipeline.build()?.serving.unwrap().from, "features");
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn serve(&self, from: impl Into<String>) {
        self.serve_with(from, LateFacts::Refuse);
    }

    /// Keeps what windows of a step need of the rows before, and says what becomes of facts that are appended late.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("demand");
    /// let demand = pipeline.source("demand", ParquetSource::at("data/demand")).time("date").keys(["item_id"]);
    /// let features = pipeline.step("features", &demand).apply(lag(["qty"]).by(["7d"]));
    /// pipeline.serve_with(&features, LateFacts::Replay);
    /// assert_eq!(pipeline.build()?.serving.unwrap().late, LateFacts::Replay);
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn serve_with(&self, from: impl Into<String>, late: LateFacts) {
        let serving = PipelineServing {
            from: from.into(),
            late,
            at: None,
        };
        self.draft.borrow_mut().pipeline.serving = Some(serving);
    }

    /// Writes the rows of a step or source.
    pub fn sink<C: SinkFormat>(
        &self,
        name: impl Into<String>,
        from: impl Into<String>,
        format: C,
    ) -> SinkHandle<'_> {
        let config = self.draft.borrow_mut().canonical(&format);
        self.add_sink(SinkRole::Output, sink_of(name, from, C::NAME, config))
    }

    /// Trains a model on the rows of a step or source. The parts of the split that it learns from
    /// and is validated on are `train` and `validation` by default.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("demand");
    /// let demand = pipeline.source("demand", ParquetSource::at("data/demand"));
    /// pipeline.train("net", &demand, TrainConfig::new(ModelKind::Mlp).label("qty").epochs(2));
    /// assert_eq!(pipeline.build()?.trainings[0].name, "net");
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn train<C: TrainerFormat>(
        &self,
        name: impl Into<String>,
        from: impl Into<String>,
        config: C,
    ) -> SinkHandle<'_> {
        let config = self.draft.borrow_mut().canonical(&config);
        self.add_sink(SinkRole::Training, sink_of(name, from, C::NAME, config))
    }

    /// Writes the predictions of a model of the pipeline for the rows of the future of a step.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("demand");
    /// let demand = pipeline.source("demand", ParquetSource::at("data/demand")).time("date").keys(["item_id"]);
    /// let features = pipeline.step("features", &demand).apply(future_rows("7d", "1d").carry(["category"]));
    /// pipeline.label("qty", "7d").known(["category"]);
    /// let net = pipeline.train("net", &features, TrainConfig::new(ModelKind::Linear).label("qty"));
    /// pipeline.predict("forecast", &features, PredictConfig::new(&net, "out/forecast").min(0.0));
    /// assert_eq!(pipeline.build()?.predictions[0].name, "forecast");
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn predict(
        &self,
        name: impl Into<String>,
        from: impl Into<String>,
        config: PredictConfig,
    ) -> SinkHandle<'_> {
        let config = self.draft.borrow_mut().canonical(&config);
        let format = PredictConfig::NAME;
        self.add_sink(SinkRole::Prediction, sink_of(name, from, format, config))
    }

    fn add_sink(&self, role: SinkRole, sink: PipelineSink) -> SinkHandle<'_> {
        let name = sink.name.clone();
        let mut draft = self.draft.borrow_mut();
        let sinks = draft.sinks(role);
        sinks.push(sink);
        SinkHandle {
            builder: self,
            role,
            index: sinks.len() - 1,
            name,
        }
    }

    /// The pipeline, or all that is wrong with it: values, SQL, names, inputs, circles of steps,
    /// parts of the split, and optional steps that others need. Columns and types are checked when
    /// the pipeline is bound to its data, as by [`Forebay::check`](crate::Forebay::check).
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("demand");
    /// pipeline.source("demand", ParquetSource::at("data/demand"));
    /// pipeline.step("features", "demands").apply(lag(["qty"]).by(["7 days"])).apply(filter("qty >"));
    /// let faults = pipeline.build().unwrap_err().into_each();
    /// let hints: Vec<Option<&str>> = faults.iter().map(Fault::hint_text).collect();
    /// assert_eq!(hints[..2], [Some("write `7d`"), Some("did you mean `demand`?")]);
    /// assert!(faults[2].message().contains("qty >"));
    /// ```
    pub fn build(&self) -> Result<Pipeline> {
        let draft = self.draft.borrow();
        // Handles may be used after this, and so may the builder.
        let copy = |fault: &Fault| Fault::from(WireFault::from(fault));
        let faults = draft
            .faults
            .iter()
            .map(copy)
            .chain(check::problems(&draft.pipeline, &draft.transforms))
            .collect();
        Fault::combine(faults).map_or_else(|| Ok(draft.pipeline.clone()), Err)
    }
}

fn serialized(config: &impl Serialize) -> Result<Value> {
    serde_json::to_value(config).map_err(|error| {
        Fault::new(codes::BAD_VALUE, "a configuration cannot be written").cause(error)
    })
}

fn sink_of(
    name: impl Into<String>,
    from: impl Into<String>,
    format: &str,
    config: Value,
) -> PipelineSink {
    let name = name.into();
    let from = from.into();
    let format = format.to_owned();
    PipelineSink {
        name,
        from,
        format,
        config,
        split: None,
        optional: false,
        at: None,
    }
}
