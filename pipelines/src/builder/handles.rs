//! Handles of declared items, to set their options and to refer to them.

use forebay_model::{
    DayRules, DuplicateRows, PipelineNode, PipelineSink, PipelineSource, ReadinessCondition,
};
use forebay_plan::ConfiguredTransform;
use forebay_transforms::add_quarantined_step;

use super::{PipelineBuilder, SinkRole};

/// A dataset of a pipeline that is being built.
///
/// ```
/// use forebay::prelude::*;
///
/// let pipeline = PipelineBuilder::new("demand");
/// let demand = pipeline.source("demand", ParquetSource::at("data")).time("date").keys(["store_id"]).lookback("3d");
/// pipeline.sink("copy", &demand, ParquetSink::at("out"));
/// assert_eq!(pipeline.build()?.sources[0].keys, ["store_id"]);
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug, Clone)]
pub struct SourceHandle<'p> {
    pub(super) builder: &'p PipelineBuilder,
    pub(super) index: usize,
    pub(super) name: String,
}

impl SourceHandle<'_> {
    fn update(self, change: impl FnOnce(&mut PipelineSource)) -> Self {
        change(&mut self.builder.draft.borrow_mut().pipeline.sources[self.index]);
        self
    }

    /// The event-time column.
    pub fn time(self, column: impl Into<String>) -> Self {
        let column = column.into();
        self.update(|source| source.time = Some(column))
    }

    /// The event-time column, of texts or whole numbers that are dates or times by a format, such as `%Y%m%d`.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("demand");
    /// let demand = pipeline.source("demand", ParquetSource::at("data")).formatted_time("day", "%Y%m%d");
    /// pipeline.sink("copy", &demand, ParquetSink::at("out"));
    /// assert_eq!(pipeline.build()?.sources[0].config["formats"]["day"], "%Y%m%d");
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn formatted_time(self, column: impl Into<String>, format: impl Into<String>) -> Self {
        let column = column.into();
        self.builder
            .draft
            .borrow_mut()
            .add_format(self.index, &column, format.into());
        self.time(column)
    }

    /// The columns that identify a series.
    pub fn keys(self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        self.update(|source| source.keys = columns)
    }

    /// Treatment of rows that have the same keys and the same time. By default, windows by time
    /// refuse them, and windows by rows warn of them.
    pub fn duplicates(self, duplicates: DuplicateRows) -> Self {
        self.update(|source| source.duplicates = Some(duplicates))
    }

    /// Treatment of days that have not come, have come twice, or have a column without values. Where nothing tells such
    /// days, a run refuses rules by which they are errors, and warns of rules that warn.
    pub fn days(self, days: DayRules) -> Self {
        self.update(|source| source.days = days)
    }

    /// Condition that a run waits for before it reads.
    pub fn ready(self, ready: ReadinessCondition) -> Self {
        self.update(|source| source.ready = Some(ready))
    }

    /// Time before an interval within which files may still change, such as `3d`.
    pub fn lookback(self, lookback: impl Into<String>) -> Self {
        let lookback = lookback.into();
        self.update(|source| source.lookback = Some(lookback))
    }

    /// Name of the source.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Steps of a pipeline that is being built.
///
/// ```
/// use forebay::prelude::*;
///
/// let pipeline = PipelineBuilder::new("sales");
/// let stores = pipeline.source("stores", CsvSource::at("stores.csv"));
/// let sales = pipeline.source("sales", CsvSource::at("sales.csv")).time("day");
/// let located = pipeline.step("located", &sales).apply(join(&stores).on(["store"]));
/// let totals = pipeline.step("totals", &located).apply(aggregate().by(["city"]).compute([("qty", agg::sum("qty"))]));
/// pipeline.sink("out", &totals, CsvSink::at("out/totals"));
/// assert_eq!(pipeline.build()?.nodes.len(), 2);
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug, Clone)]
pub struct StepHandle<'p> {
    pub(super) builder: &'p PipelineBuilder,
    pub(super) index: usize,
    pub(super) name: String,
}

impl<'p> StepHandle<'p> {
    fn update(self, change: impl FnOnce(&mut PipelineNode)) -> Self {
        change(&mut self.builder.draft.borrow_mut().pipeline.nodes[self.index]);
        self
    }

    /// Appends a transform.
    pub fn apply<T: ConfiguredTransform>(self, transform: T) -> Self {
        match transform.step() {
            Ok(step) => {
                self.builder.draft.borrow_mut().transforms.register::<T>();
                self.update(|node| node.steps.push(step))
            }
            Err(fault) => {
                self.builder
                    .draft
                    .borrow_mut()
                    .faults
                    .push(fault.step(&self.name));
                self
            }
        }
    }

    /// The part of the split from which the steps learn.
    pub fn fit_on(self, part: impl Into<String>) -> Self {
        let part = part.into();
        self.update(|node| node.fit_on = Some(part))
    }

    /// Allows the steps to learn from no rows, which is a fault otherwise.
    pub fn allow_empty(self) -> Self {
        self.update(|node| node.allow_empty = true)
    }

    /// Policy of the steps' refits, as in a spec: `weekly`, `7d`, `drift above 0.1`, `never`.
    pub fn refit(self, when: &str) -> Self {
        match forebay_contract::parse_refit(when) {
            Ok(refit) => self.update(|node| node.refit = refit),
            Err(fault) => {
                self.builder
                    .draft
                    .borrow_mut()
                    .faults
                    .push(fault.step(&self.name));
                self
            }
        }
    }

    /// Time before its row at which the data of a column of the query ends, such as `7d`: for a
    /// column that the query computes over other rows, whose age the check of leaks cannot prove.
    pub fn data_age(self, column: impl Into<String>, length: impl Into<String>) -> Self {
        let column = column.into();
        let length = length.into();
        self.update(|node| {
            node.data_age.insert(column, length);
        })
    }

    /// A run that would be late may leave these steps out.
    pub fn optional(self) -> Self {
        self.update(|node| node.optional = true)
    }

    /// The rows that an `expect` of the steps takes out, with the rule and the value. Call it after that `expect`.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let pipeline = PipelineBuilder::new("demand");
    /// let demand = pipeline.source("demand", ParquetSource::at("data/demand"));
    /// let priced = RowExpectation::not_null(["price"]).policy(FailurePolicy::Quarantine);
    /// let clean = pipeline.step("clean", &demand).apply(expect([priced]));
    /// pipeline.sink("unpriced", &clean.quarantined(), ParquetSink::at("out/unpriced"));
    /// assert_eq!(pipeline.build()?.sinks[0].from, "clean.quarantined");
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn quarantined(&self) -> StepHandle<'p> {
        let draft = &mut *self.builder.draft.borrow_mut();
        match add_quarantined_step(&mut draft.pipeline, &self.name, None) {
            Ok(name) => {
                let index = draft
                    .pipeline
                    .nodes
                    .iter()
                    .position(|node| node.name == name)
                    .unwrap_or(self.index);
                StepHandle {
                    builder: self.builder,
                    index,
                    name,
                }
            }
            Err(fault) => {
                draft.faults.push(fault);
                self.clone()
            }
        }
    }

    /// Name of the step.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A sink of a pipeline that is being built: an output, a training or a forecast.
///
/// ```
/// use forebay::prelude::*;
///
/// let pipeline = PipelineBuilder::new("demand");
/// let demand = pipeline.source("demand", ParquetSource::at("data/demand"));
/// pipeline.split([("train", "qty > 0")]);
/// pipeline.sink("table", &demand, ParquetSink::at("out/table"));
/// pipeline.sink("learned", &demand, ParquetSink::at("out/learned")).split("train").optional();
/// assert_eq!(pipeline.build()?.sinks[1].split.as_deref(), Some("train"));
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug, Clone)]
pub struct SinkHandle<'p> {
    pub(super) builder: &'p PipelineBuilder,
    pub(super) role: SinkRole,
    pub(super) index: usize,
    pub(super) name: String,
}

impl SinkHandle<'_> {
    fn update(self, change: impl FnOnce(&mut PipelineSink)) -> Self {
        change(&mut self.builder.draft.borrow_mut().sinks(self.role)[self.index]);
        self
    }

    /// Restricts the rows to one part of the split.
    pub fn split(self, part: impl Into<String>) -> Self {
        let part = part.into();
        self.update(|sink| sink.split = Some(part))
    }

    /// A run that would be late may leave it out.
    pub fn optional(self) -> Self {
        self.update(|sink| sink.optional = true)
    }

    /// Name of the sink.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The label of a pipeline that is being built.
///
/// ```
/// use forebay::prelude::*;
///
/// let pipeline = PipelineBuilder::new("demand");
/// let demand = pipeline.source("demand", ParquetSource::at("data/demand")).time("date");
/// pipeline.label("qty", "7d").known(["planned_price"]);
/// pipeline.sink("table", &demand, ParquetSink::at("out/table"));
/// assert_eq!(pipeline.build()?.label.unwrap().known, ["planned_price"]);
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug)]
pub struct LabelHandle<'p> {
    pub(super) builder: &'p PipelineBuilder,
}

impl LabelHandle<'_> {
    /// Columns that are planned or forecast, so that they may depend on the time of the row.
    pub fn known(self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        if let Some(label) = &mut self.builder.draft.borrow_mut().pipeline.label {
            label.known = columns;
        }
        self
    }
}

macro_rules! named {
    ($($handle:ident),*) => {
        $(
            impl From<&$handle<'_>> for String {
                fn from(handle: &$handle<'_>) -> String {
                    handle.name.clone()
                }
            }
        )*
    };
}

named!(SourceHandle, StepHandle, SinkHandle);
