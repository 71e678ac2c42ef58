//! Pipelines in Rust: the same nouns as in YAML, and the same ids.

mod check;
mod expressions;
mod handles;

use std::cell::RefCell;

use forebay_connectors::{
    BuiltInConnectors, SinkFormat, SourceFormat, TrainerFormat, predictors, trainers,
};
use forebay_model::{
    DataSplit, Fault, NodeInput, Pipeline, PipelineDeadline, PipelineFeed, PipelineNode,
    PipelineSink, PipelineSource, PredictionLabel, Result, WireFault, codes,
};
use forebay_run::{ConnectorRegistry, FeedConfig, PredictConfig};
use serde::Serialize;
use serde_json::Value;

use crate::spec::ConnectorFormat;

pub use handles::{LabelHandle, SinkHandle, SourceHandle, StepHandle};

/// Builds a [`Pipeline`]. Its methods declare sources, steps and sinks, and return handles: what follows is told by
/// methods of the handle, and other steps and sinks are given the handle, or the name.
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

/// What has been declared.
#[derive(Debug, Default)]
struct Draft {
    pipeline: Pipeline,
    faults: Vec<Fault>,
}

/// Which sinks a sink is among.
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

    /// The canonical form of a configuration; the fault is kept.
    fn canonical(
        &mut self,
        config: &impl Serialize,
        canonical: impl FnOnce(Value) -> Result<Value>,
    ) -> Value {
        let written = serde_json::to_value(config).map_err(|error| {
            Fault::new(codes::BAD_VALUE, "a configuration cannot be written").cause(error)
        });
        written.and_then(canonical).unwrap_or_else(|fault| {
            self.faults.push(fault);
            Value::Null
        })
    }
}

impl PipelineBuilder {
    /// A pipeline with a name and nothing else.
    pub fn new(name: impl Into<String>) -> Self {
        let pipeline = Pipeline {
            name: name.into(),
            ..Pipeline::default()
        };
        PipelineBuilder {
            draft: RefCell::new(Draft {
                pipeline,
                faults: Vec::new(),
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
        let config = draft.canonical(&format, |config| {
            BuiltInConnectors.canonical_source(C::NAME, config)
        });
        draft.pipeline.sources.push(PipelineSource {
            name: name.clone(),
            format: C::NAME.to_owned(),
            config,
            time: None,
            keys: Vec::new(),
            ready: None,
            duplicates: None,
            lookback: None,
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

    /// How rows are divided into parts.
    pub fn split(&self, split: impl Into<DataSplit>) {
        self.draft.borrow_mut().pipeline.split = Some(split.into());
    }

    /// The column that is predicted, and how long before: sinks with features that know more are refused.
    pub fn label(&self, column: impl Into<String>, horizon: impl Into<String>) -> LabelHandle<'_> {
        let label = PredictionLabel {
            column: column.into(),
            horizon: horizon.into(),
            known: Vec::new(),
            at: None,
        };
        self.draft.borrow_mut().pipeline.label = Some(label);
        LabelHandle { builder: self }
    }

    /// What mini-batches are made of.
    pub fn feed(&self, config: FeedConfig) {
        let mut draft = self.draft.borrow_mut();
        let config = draft.canonical(&config, Ok);
        draft.pipeline.feed = Some(PipelineFeed { config, at: None });
    }

    /// When a run should be done, and what it may do to be.
    pub fn deadline(&self, deadline: PipelineDeadline) {
        self.draft.borrow_mut().pipeline.deadline = Some(deadline);
    }

    /// Writes the rows of a step or source.
    pub fn sink<C: SinkFormat>(
        &self,
        name: impl Into<String>,
        from: impl Into<String>,
        format: C,
    ) -> SinkHandle<'_> {
        let canonical = |config| BuiltInConnectors.canonical(C::NAME, config);
        let config = self.draft.borrow_mut().canonical(&format, canonical);
        self.add_sink(SinkRole::Output, sink_of(name, from, C::NAME, config))
    }

    /// Trains a model on the rows of a step or source. The parts of the split that it learns from and is validated on
    /// are `train` and `validation`, unless told otherwise.
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
        let config = self
            .draft
            .borrow_mut()
            .canonical(&config, |config| canonical_of(trainers(), C::NAME, config));
        self.add_sink(SinkRole::Training, sink_of(name, from, C::NAME, config))
    }

    /// Writes what a model of the pipeline predicts for the rows of the future of a step.
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
        let config = self.draft.borrow_mut().canonical(&config, |config| {
            canonical_of(predictors(), PREDICT, config)
        });
        self.add_sink(SinkRole::Prediction, sink_of(name, from, PREDICT, config))
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

    /// The pipeline, or all that is wrong with it: values, SQL, names, inputs, circles of steps, parts of the split,
    /// and optional steps that others need. Columns and types are checked when the pipeline meets its data, as by
    /// [`Forebay::check`](crate::Forebay::check).
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
            .chain(check::problems(&draft.pipeline))
            .collect();
        Fault::combine(faults).map_or_else(|| Ok(draft.pipeline.clone()), Err)
    }
}

/// The key of forecasts in a spec.
const PREDICT: &str = "predict";

fn sink_of(
    name: impl Into<String>,
    from: impl Into<String>,
    format: &str,
    config: Value,
) -> PipelineSink {
    let (name, from, format) = (name.into(), from.into(), format.to_owned());
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

/// A configuration with all defaults filled in.
fn canonical_of(formats: &[ConnectorFormat], name: &str, config: Value) -> Result<Value> {
    match formats.iter().find(|format| format.name == name) {
        Some(format) => (format.canonical)(config).map_err(|error| error.into_fault(name)),
        None => Ok(config),
    }
}
