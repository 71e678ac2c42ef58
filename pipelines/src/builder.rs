//! Pipelines in Rust: the same nouns as in YAML, and the same ids.

use forebay_connectors::{SinkFormat, SourceFormat, TrainerFormat};
use forebay_model::{
    DataSplit, Fault, NodeInput, Pipeline, PipelineDeadline, PipelineFeed, PipelineNode, PipelineSink, PipelineSource,
    PredictionLabel, ReadinessCondition, Result, codes,
};
use forebay_plan::ConfiguredTransform;
use forebay_run::{FeedConfig, PredictConfig};
use forebay_transforms::add_quarantined_step;

/// Builds a [`Pipeline`]. Mistakes are kept until [`PipelineBuilder::build`], which reports all.
///
/// ```
/// use forebay::prelude::*;
///
/// let pipeline = PipelineBuilder::new("demand")
///     .source("demand", ParquetSource::at("data/demand/*.parquet"), |source| source.time("date").keys(["store_id", "item_id"]))
///     .step("features", "demand", |step| {
///         step.fit_on("train")
///             .apply(FilterRows("qty IS NOT NULL".into()))
///             .apply(Standardize { columns: ["price"].into(), ..Default::default() })
///     })
///     .split(DataSplit::Expressions(vec![("train".into(), "date < DATE '2016-04-25'".into())]))
///     .sink("table", "features", ParquetSink::at("out/features"))
///     .build()?;
/// assert_eq!(pipeline.nodes[0].steps.len(), 2);
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug, Default)]
pub struct PipelineBuilder {
    pipeline: Pipeline,
    faults: Vec<Fault>,
}

impl PipelineBuilder {
    /// A pipeline with a name and nothing else.
    pub fn new(name: impl Into<String>) -> Self {
        PipelineBuilder { pipeline: Pipeline { name: name.into(), ..Pipeline::default() }, faults: Vec::new() }
    }

    /// A dataset to read.
    pub fn source<C: SourceFormat>(
        mut self,
        name: impl Into<String>,
        config: C,
        more: impl FnOnce(SourceBuilder) -> SourceBuilder,
    ) -> Self {
        let source = PipelineSource {
            name: name.into(),
            format: C::NAME.to_owned(),
            config: self.json(&config),
            time: None,
            keys: Vec::new(),
            ready: None,
            lookback: None,
            at: None,
        };
        self.pipeline.sources.push(more(SourceBuilder(source)).0);
        self
    }

    /// Steps over a source or another step.
    pub fn step(
        self,
        name: impl Into<String>,
        from: impl Into<String>,
        steps: impl FnOnce(StepsBuilder) -> StepsBuilder,
    ) -> Self {
        self.node(name.into(), NodeInput::From(from.into()), steps)
    }

    /// The rows of several inputs with equal columns, one after the other.
    pub fn union(
        self,
        name: impl Into<String>,
        inputs: impl IntoIterator<Item = impl Into<String>>,
        steps: impl FnOnce(StepsBuilder) -> StepsBuilder,
    ) -> Self {
        self.node(name.into(), NodeInput::Union(inputs.into_iter().map(Into::into).collect()), steps)
    }

    /// The rows of a SQL query over sources and steps.
    pub fn sql(
        self,
        name: impl Into<String>,
        query: impl Into<String>,
        steps: impl FnOnce(StepsBuilder) -> StepsBuilder,
    ) -> Self {
        self.node(name.into(), NodeInput::Sql(query.into()), steps)
    }

    fn node(mut self, name: String, input: NodeInput, steps: impl FnOnce(StepsBuilder) -> StepsBuilder) -> Self {
        let node = PipelineNode::new(name, input, Vec::new());
        let built = steps(StepsBuilder { node, faults: Vec::new() });
        self.pipeline.nodes.push(built.node);
        self.faults.extend(built.faults);
        self
    }

    /// How rows are divided into parts.
    pub fn split(mut self, split: DataSplit) -> Self {
        self.pipeline.split = Some(split);
        self
    }

    /// What is predicted and how long before: sinks with features that know more are refused.
    /// `known` are columns that are planned or forecast, so that they may tell of the row's time.
    pub fn label(
        mut self,
        column: impl Into<String>,
        horizon: impl Into<String>,
        known: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let known = known.into_iter().map(Into::into).collect();
        self.pipeline.label = Some(PredictionLabel { column: column.into(), horizon: horizon.into(), known, at: None });
        self
    }

    /// What mini-batches are made of.
    pub fn feed(mut self, config: FeedConfig) -> Self {
        let config = self.json(&config);
        self.pipeline.feed = Some(PipelineFeed { config, at: None });
        self
    }

    /// When a run should be done, and what it may do to be.
    pub fn deadline(mut self, deadline: PipelineDeadline) -> Self {
        self.pipeline.deadline = Some(deadline);
        self
    }

    /// The sink that was named last may be left out by a run that would be late.
    pub fn optional_sink(mut self) -> Self {
        self.pipeline.sinks.iter_mut().rev().take(1).for_each(|sink| sink.optional = true);
        self
    }

    /// Writes the rows of a step or source.
    pub fn sink<C: SinkFormat>(self, name: impl Into<String>, from: impl Into<String>, config: C) -> Self {
        self.sink_part(name, from, None, config)
    }

    /// Trains a model on the rows of a step or source; the parts of the split that it learns from and is
    /// validated on are `train` and `validation`, unless told otherwise.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let net = TrainConfig { model: ModelKind::Mlp, label: Some("qty".into()), epochs: 2, ..TrainConfig::default() };
    /// let pipeline = PipelineBuilder::new("demand")
    ///     .source("demand", ParquetSource::at("data/demand"), |source| source)
    ///     .train("net", "demand", net)
    ///     .build()?;
    /// assert_eq!(pipeline.trainings[0].name, "net");
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn train<C: TrainerFormat>(self, name: impl Into<String>, from: impl Into<String>, config: C) -> Self {
        self.train_part(name, from, None, config)
    }

    /// Writes what a model of the pipeline predicts for the rows of the future of a step.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let steps = FutureRows::new("7d".parse()?, "1d".parse()?).carry(["category"]);
    /// let net = TrainConfig { label: Some("qty".into()), ..TrainConfig::default() };
    /// let pipeline = PipelineBuilder::new("demand")
    ///     .source("demand", ParquetSource::at("data/demand"), |source| source.time("date").keys(["item_id"]))
    ///     .step("features", "demand", |step| step.apply(steps))
    ///     .label("qty", "7d", ["category"])
    ///     .train("net", "features", net)
    ///     .predict("forecast", "features", PredictConfig { min: Some(0.0), ..PredictConfig::new("net", "out/forecast") })
    ///     .build()?;
    /// assert_eq!(pipeline.predictions[0].name, "forecast");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn predict(mut self, name: impl Into<String>, from: impl Into<String>, config: PredictConfig) -> Self {
        let config = self.json(&config);
        let (format, split) = ("predict".to_owned(), None);
        let (name, from) = (name.into(), from.into());
        self.pipeline.predictions.push(PipelineSink { name, from, format, config, split, optional: false, at: None });
        self
    }

    /// Trains a model on the rows of one part of the split.
    pub fn train_part<C: TrainerFormat>(
        mut self,
        name: impl Into<String>,
        from: impl Into<String>,
        part: Option<&str>,
        config: C,
    ) -> Self {
        let config = self.json(&config);
        let (split, format) = (part.map(str::to_owned), C::NAME.to_owned());
        let (name, from) = (name.into(), from.into());
        self.pipeline.trainings.push(PipelineSink { name, from, format, config, split, optional: false, at: None });
        self
    }

    /// Writes the rows that an `expect` of a step takes out, with the rule and the value. The step is named before.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let priced = RowExpectation {
    ///     not_null: vec!["price".into()],
    ///     policy: FailurePolicy::Quarantine,
    ///     ..RowExpectation::default()
    /// };
    /// let pipeline = PipelineBuilder::new("demand")
    ///     .source("demand", ParquetSource::at("data/demand"), |source| source)
    ///     .step("clean", "demand", |step| step.apply(ExpectRows(vec![priced])))
    ///     .sink_quarantined("unpriced", "clean", ParquetSink::at("out/unpriced"))
    ///     .build()?;
    /// assert_eq!(pipeline.sinks[0].from, "clean.quarantined");
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn sink_quarantined<C: SinkFormat>(
        mut self,
        name: impl Into<String>,
        step: impl Into<String>,
        config: C,
    ) -> Self {
        match add_quarantined_step(&mut self.pipeline, &step.into(), None) {
            Ok(from) => self.sink(name, from, config),
            Err(fault) => {
                self.faults.push(fault);
                self
            }
        }
    }

    /// Writes the rows of one part of the split.
    pub fn sink_part<C: SinkFormat>(
        mut self,
        name: impl Into<String>,
        from: impl Into<String>,
        part: Option<&str>,
        config: C,
    ) -> Self {
        let config = self.json(&config);
        let split = part.map(str::to_owned);
        let format = C::NAME.to_owned();
        let (name, from) = (name.into(), from.into());
        self.pipeline.sinks.push(PipelineSink { name, from, format, config, split, optional: false, at: None });
        self
    }

    fn json(&mut self, config: &impl serde::Serialize) -> serde_json::Value {
        serde_json::to_value(config).unwrap_or_else(|error| {
            self.faults.push(Fault::new(codes::BAD_VALUE, "a configuration cannot be written").cause(error));
            serde_json::Value::Null
        })
    }

    /// The pipeline, or all that is wrong with it. Columns and types are checked when it meets data.
    pub fn build(mut self) -> Result<Pipeline> {
        let sources = self.pipeline.sources.iter().map(|source| &source.name);
        let mut names: Vec<&String> = sources.chain(self.pipeline.nodes.iter().map(|node| &node.name)).collect();
        names.sort_unstable();
        let twice = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()).collect::<Vec<_>>();
        for name in twice {
            self.faults.push(Fault::new(codes::DUPLICATE, format!("two steps or sources are called `{name}`")));
        }
        Fault::combine(self.faults).map_or(Ok(self.pipeline), Err)
    }
}

/// More about a source.
#[derive(Debug)]
pub struct SourceBuilder(PipelineSource);

impl SourceBuilder {
    /// The event-time column.
    pub fn time(mut self, column: impl Into<String>) -> Self {
        self.0.time = Some(column.into());
        self
    }

    /// What a run waits for before it reads.
    pub fn ready(mut self, ready: ReadinessCondition) -> Self {
        self.0.ready = Some(ready);
        self
    }

    /// How long before an interval files may still change, such as `3d`.
    pub fn lookback(mut self, lookback: impl Into<String>) -> Self {
        self.0.lookback = Some(lookback.into());
        self
    }

    /// The columns that tell series apart.
    pub fn keys(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.keys = columns.into_iter().map(Into::into).collect();
        self
    }
}

/// The steps of a node.
#[derive(Debug)]
pub struct StepsBuilder {
    node: PipelineNode,
    faults: Vec<Fault>,
}

impl StepsBuilder {
    /// The part of the split from which the steps learn.
    pub fn fit_on(mut self, part: impl Into<String>) -> Self {
        self.node.fit_on = Some(part.into());
        self
    }

    /// When the steps learn anew, as in a spec: `weekly`, `7d`, `drift above 0.1`, `never`.
    pub fn refit(mut self, when: &str) -> Self {
        match forebay_run::parse_refit(when) {
            Ok(refit) => self.node.refit = refit,
            Err(fault) => self.faults.push(fault),
        }
        self
    }

    /// A run that would be late may leave these steps out.
    pub fn optional(mut self) -> Self {
        self.node.optional = true;
        self
    }

    /// One more step.
    pub fn apply<T: ConfiguredTransform>(mut self, transform: T) -> Self {
        match transform.step() {
            Ok(step) => self.node.steps.push(step),
            Err(fault) => self.faults.push(fault),
        }
        self
    }
}
