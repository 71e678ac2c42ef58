//! Columns that are known in advance have a value in rows of the future, before anything is published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::nullif;
use arrow::datatypes::Field;
use forebay_analyze::{ColumnCounts, ColumnMoments};
use forebay_contract::{FeatureFacts, MissingKnown};
use forebay_model::{Fault, Finding, IdBuilder, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{
    AnalyzerId, AnalyzerRequest, BoundAnalyzer, BoundOp, BoundPipeline, FUTURE_PART, FutureFlow,
    GatherBy, GatherOp, MapOp, NodeFlow, NullValue, OpStream, PlanOp, future_streams, hidden_nulls,
    live_columns, slice_for_columns, source_column, taken_columns,
};
use forebay_storage::Event;
use serde_json::json;

use super::forecast_training::trainings_of;
use super::missing_values::missing_values;
use super::step::PredictTransform;
use crate::executor::RunExecutor;
use crate::leak_check::time_text;
use crate::session::Session;

/// Hidden column of the times at which a known column has a value.
const KNOWN_TIME: &str = "__known_time";

/// A sink that takes rows of the future.
struct FutureTaker<'a> {
    sink: &'a PipelineSink,
    future: &'a FutureFlow,
    /// The columns at the end of the rows that it takes.
    columns: Vec<String>,
    /// Columns whose missing values its model accepts.
    accepted: BTreeSet<String>,
    /// True if it publishes a forecast that does not accept missing values: they are a fault then.
    refuses_missing: bool,
}

/// A known column of rows of the future, where it was last changed.
struct KnownColumn<'a> {
    taker: &'a FutureTaker<'a>,
    name: String,
    /// Operations of the rows of the future before it is read.
    after: usize,
    /// True if it has the value of the last row of each series.
    is_carried: bool,
}

impl KnownColumn<'_> {
    /// Number of operations of the rows of the future after those before which it is read.
    fn operations_behind(&self) -> usize {
        match self.taker.future.rows.first() {
            Some(stream) => stream.ops.len() - self.after,
            None => 0,
        }
    }
}

/// The time up to which a column is known.
enum KnownUntil {
    /// The last time at which it has a value, as text.
    Time(String),
    /// It has no value at any time.
    Never,
    /// A window computes the column, and the history is not read again to find the time.
    NotComputed,
}

/// The analyzers of a known column.
struct KnownAnalyzers {
    counts: AnalyzerId,
    time: AnalyzerId,
}

impl RunExecutor<'_> {
    /// Refuses forecasts of rows that lack a column which the label lists as known: a plan that ends too early. Forecasts
    /// that accept this, and other sinks of such rows, are warned of.
    pub(crate) fn check_known_columns(&self) -> Result<()> {
        let takers = self.future_takers()?;
        let columns: Vec<KnownColumn<'_>> = takers
            .iter()
            .flat_map(|taker| self.known_columns(taker))
            .collect();
        if columns.is_empty() {
            return Ok(());
        }
        let run = KnownLearning::new(self, &columns)?.learn()?;
        let mut faults = Vec::new();
        for (column, analyzers) in columns.iter().zip(&run.analyzers) {
            let counts = run.finding(analyzers.counts)?;
            let rows = counts.number("rows")?.unwrap_or(0.0) as u64;
            let missing = counts.number("nulls")?.unwrap_or(0.0) as u64;
            if missing == 0 {
                continue;
            }
            if column.is_carried {
                let message = carried_text(column, rows, missing);
                self.session.watch.on_event(Event::Warning { message });
                continue;
            }
            let until = match last_time(column, run.finding(analyzers.time)?.as_ref())? {
                Some(until) => KnownUntil::Time(until),
                None => self.known_in_history(column)?,
            };
            let fault = missing_fault(column, rows, missing, until);
            if column.taker.refuses_missing {
                faults.push(fault);
            } else {
                let message = fault.message().to_owned();
                self.session.watch.on_event(Event::Warning { message });
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    fn future_takers(&self) -> Result<Vec<FutureTaker<'_>>> {
        let mut takers = Vec::new();
        if self.known_names().is_empty() {
            return Ok(takers);
        }
        let bound = &self.program.bound;
        for sink in &self.pipeline.predictions {
            let Some((flow, future)) = future_flow(bound, &sink.from) else {
                continue;
            };
            let config = self.session.predict_config(sink)?;
            let trainings = trainings_of(self.pipeline, &config);
            if trainings.is_empty() {
                continue;
            }
            let mut columns = BTreeSet::new();
            let mut accepted = BTreeSet::new();
            let mut refused = BTreeSet::new();
            for training in trainings {
                let facts = self.session.trainer(training)?.feature_facts();
                let of_model = taken_columns(self.pipeline, bound, &flow.schema, &facts);
                let accepted_by_model = accepted_columns(&facts, &of_model);
                refused.extend(of_model.difference(&accepted_by_model).cloned());
                accepted.extend(accepted_by_model);
                columns.extend(of_model);
            }
            // A column counts as accepted where all models that take it accept it.
            accepted.retain(|column| !refused.contains(column));
            takers.push(FutureTaker {
                sink,
                future,
                accepted,
                columns: columns.into_iter().collect(),
                refuses_missing: config.missing == MissingKnown::Error,
            });
        }
        for sink in &self.pipeline.sinks {
            if sink.split.as_deref() != Some(FUTURE_PART) || self.is_forecast(sink) {
                continue;
            }
            let Some((flow, future)) = future_flow(bound, &sink.from) else {
                continue;
            };
            let names = flow.schema.fields().iter().map(|field| field.name());
            takers.push(FutureTaker {
                sink,
                future,
                columns: names.cloned().collect(),
                accepted: BTreeSet::new(),
                refuses_missing: self.predicts(sink),
            });
        }
        Ok(takers)
    }

    /// The columns that are known in advance: those of the label, or of the applied artifact.
    pub(super) fn known_names(&self) -> Vec<&String> {
        match &self.pipeline.label {
            Some(label) => label.known.iter().collect(),
            None => self.session.served.known.iter().collect(),
        }
    }

    /// True if a sink of the run that makes a forecast writes it: the run before has checked its rows.
    fn is_forecast(&self, sink: &PipelineSink) -> bool {
        let is_planned = self
            .pipeline
            .predictions
            .iter()
            .any(|prediction| prediction.name == sink.name);
        is_planned && self.predicts(sink)
    }

    /// True if a model predicts the rows of a sink.
    fn predicts(&self, sink: &PipelineSink) -> bool {
        let step = self
            .pipeline
            .node(&sink.from)
            .and_then(|node| node.steps.last());
        step.is_some_and(|step| step.kind == PredictTransform::NAME)
    }

    /// The known columns that a taker's columns are computed of.
    fn known_columns<'t>(&self, taker: &'t FutureTaker<'t>) -> Vec<KnownColumn<'t>> {
        let bound = &self.program.bound;
        let names = self.known_names().into_iter();
        let Some(stream) = taker.future.rows.first() else {
            return Vec::new();
        };
        let columns: Vec<&str> = taker.columns.iter().map(String::as_str).collect();
        let mut read = Vec::new();
        for name in names.filter(|name| !taker.accepted.contains(*name)) {
            let Some(written) = last_written(bound, stream, name) else {
                continue;
            };
            // The time is read from the column that keeps it, since steps may change the visible
            // one.
            let time = source_column(&taker.future.time);
            let position =
                last_written(bound, stream, &time).map_or(written, |time| written.max(time));
            if live_columns(bound, stream, position, &columns).contains(name) {
                read.push(KnownColumn {
                    taker,
                    name: name.clone(),
                    after: position,
                    is_carried: written == 0 && is_carried(bound, taker.future, name),
                });
            }
        }
        read
    }

    /// The last time of the history for which a column is known.
    fn known_in_history(&self, column: &KnownColumn<'_>) -> Result<KnownUntil> {
        let bound = &self.program.bound;
        let future = column.taker.future;
        let behind = column.operations_behind();
        let history: Vec<OpStream> = future
            .history
            .iter()
            .map(|stream| shortened(stream, behind))
            .collect();
        let mut streams = history.iter();
        if streams.any(|stream| is_computed_by_windows(bound, stream, column)) {
            return Ok(KnownUntil::NotComputed);
        }
        let mut learning = KnownLearning::empty(self);
        let history = learning.with_known_times(history, column)?;
        let request = AnalyzerRequest::new(ColumnMoments, [KNOWN_TIME]);
        let time = learning.ask(request, history, None);
        let run = learning.learn()?;
        let until = last_time(column, run.finding(time)?.as_ref())?;
        Ok(until.map_or(KnownUntil::Never, KnownUntil::Time))
    }
}

/// A program that learns facts about known columns only.
struct KnownLearning<'a, 'r> {
    run: &'a RunExecutor<'r>,
    bound: BoundPipeline,
    analyzers: Vec<KnownAnalyzers>,
    /// The analyzers that are added to those of the run.
    added: BTreeSet<AnalyzerId>,
}

/// Findings about the known columns.
struct KnownFindings {
    analyzers: Vec<KnownAnalyzers>,
    findings: BTreeMap<AnalyzerId, Arc<Finding>>,
}

impl KnownFindings {
    fn finding(&self, ask: AnalyzerId) -> Result<&Arc<Finding>> {
        let finding = self.findings.get(&ask);
        finding.ok_or_else(|| Fault::internal("a known column that nothing looked at"))
    }
}

impl<'a, 'r> KnownLearning<'a, 'r> {
    fn empty(run: &'a RunExecutor<'r>) -> Self {
        KnownLearning {
            run,
            bound: run.program.bound.clone(),
            analyzers: Vec::new(),
            added: BTreeSet::new(),
        }
    }

    fn add(&mut self, column: &KnownColumn<'_>) -> Result<()> {
        let future = column.taker.future;
        let behind = column.operations_behind();
        let rows = FutureFlow {
            history: shortened_all(&future.history, behind),
            rows: shortened_all(&future.rows, behind),
            ..future.clone()
        };
        let inputs = [column.name.clone(), source_column(&future.time)];
        let (streams, part) = future_streams(&self.bound, &rows, &inputs);
        let streams = self.with_known_times(streams, column)?;
        let request = AnalyzerRequest::new(ColumnCounts, [KNOWN_TIME]);
        let counts = self.ask(request, streams.clone(), part.clone());
        let request = AnalyzerRequest::new(ColumnMoments, [KNOWN_TIME]);
        let time = self.ask(request, streams, part);
        self.analyzers.push(KnownAnalyzers { counts, time });
        Ok(())
    }

    fn ask(
        &mut self,
        ask: AnalyzerRequest,
        streams: Vec<OpStream>,
        part: Option<String>,
    ) -> AnalyzerId {
        let id = self.bound.asks.len();
        self.bound.asks.push(BoundAnalyzer {
            op: 0,
            ask: ask.per_run(),
            streams,
            part,
            carried: None,
            held: None,
        });
        self.added.insert(id);
        id
    }

    /// The streams with the times at which a column has a value.
    fn with_known_times(
        &mut self,
        streams: Vec<OpStream>,
        column: &KnownColumn<'_>,
    ) -> Result<Vec<OpStream>> {
        let future = column.taker.future;
        let time = future.source.field_with_name(&future.time)?;
        let written = Field::new(KNOWN_TIME, time.data_type().clone(), true);
        let kernel = |inputs: &[ArrayRef], _| match inputs {
            [column, time] => Ok(vec![nullif(time, &missing_values(column)?)?]),
            _ => Err(Fault::internal("a known column without its time")),
        };
        let reads = [column.name.clone(), source_column(&future.time)];
        let map = MapOp::new(reads, [written], kernel);
        let mut identity = IdBuilder::new("known time");
        identity.json(&json!([column.name, future.time]));
        let op = self.bound.ops.len();
        self.bound.ops.push(BoundOp {
            label: format!("{}.known", column.taker.sink.from),
            identity: identity.finish(),
            op: PlanOp::Map(map),
            asks: Vec::new(),
            at: column.taker.sink.at.clone(),
        });
        let mut streams = streams;
        for stream in &mut streams {
            stream.ops.push(op);
        }
        Ok(streams)
    }

    fn learn(self) -> Result<KnownFindings> {
        let findings = self.run.learn_over(self.bound, self.added)?;
        Ok(KnownFindings {
            analyzers: self.analyzers,
            findings,
        })
    }

    fn new(run: &'a RunExecutor<'r>, columns: &[KnownColumn<'_>]) -> Result<Self> {
        let mut learning = KnownLearning::empty(run);
        for column in columns {
            learning.add(column)?;
        }
        Ok(learning)
    }
}

/// The columns that forecasts of each step need in advance, for later forecasts by its models: those that the label lists
/// as known, without what a training replaces or a `predict` sink accepts.
pub(crate) fn known_by_step(
    session: &Session,
    pipeline: &Pipeline,
    bound: &BoundPipeline,
) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut needed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let Some(label) = &pipeline.label else {
        return Ok(needed);
    };
    for training in &pipeline.trainings {
        let Some((flow, _)) = future_flow(bound, &training.from) else {
            continue;
        };
        let facts = session.trainer(training)?.feature_facts();
        let columns = taken_columns(pipeline, bound, &flow.schema, &facts);
        let mut accepted = accepted_columns(&facts, &columns);
        for sink in &pipeline.predictions {
            let config = session.predict_config(sink)?;
            let predicts = config.models().contains(&training.name.as_str());
            if predicts && config.missing == MissingKnown::Accept {
                accepted.extend(label.known.iter().cloned());
            }
        }
        let refused = label.known.iter().filter(|name| !accepted.contains(*name));
        let refused: BTreeSet<String> = refused.cloned().collect();
        match needed.get_mut(&training.from) {
            // A column that one of the step's models accepts is not refused.
            Some(of_others) => of_others.retain(|name| refused.contains(name)),
            None => {
                needed.insert(training.from.clone(), refused);
            }
        }
    }
    Ok(needed)
}

fn future_flow<'b>(bound: &'b BoundPipeline, from: &str) -> Option<(&'b NodeFlow, &'b FutureFlow)> {
    let flow = bound.flows.get(from)?;
    Some((flow, flow.future.as_deref()?))
}

/// A stream without its last operations.
fn shortened(stream: &OpStream, behind: usize) -> OpStream {
    let length = stream.ops.len().saturating_sub(behind);
    OpStream {
        base: stream.base,
        ops: stream.ops.first(length),
    }
}

/// Streams without their last operations.
pub(super) fn shortened_all(streams: &[OpStream], behind: usize) -> Vec<OpStream> {
    streams
        .iter()
        .map(|stream| shortened(stream, behind))
        .collect()
}

/// The columns whose missing numbers a training replaces.
fn accepted_columns(facts: &FeatureFacts, columns: &BTreeSet<String>) -> BTreeSet<String> {
    let mut accepted = BTreeSet::new();
    if !facts.replaces_missing {
        return accepted;
    }
    for name in columns {
        let is_id = facts
            .categorical
            .as_ref()
            .is_some_and(|ids| ids.contains(name));
        if !is_id {
            accepted.insert(name.clone());
        }
    }
    accepted
}

/// Number of operations after which a column of the rows has its last values that are null where it is missing; `None`
/// where it is never visible.
pub(crate) fn last_written(bound: &BoundPipeline, stream: &OpStream, name: &str) -> Option<usize> {
    let schema = &bound.base_schemas[stream.base];
    let mut last = schema.field_with_name(name).is_ok().then_some(0);
    for (position, op) in stream.ops.iter().enumerate() {
        let is_written = match &bound.ops[*op].op {
            PlanOp::Project(columns) => columns.iter().any(|(from, to)| to == name && from != name),
            PlanOp::Map(map) => {
                map.is_written(name) && !encodes_nulls_of(bound, stream, position, name)
            }
            op => op.is_written(name),
        };
        if is_written {
            last = Some(position + 1);
        }
    }
    last
}

/// True for an operation that replaces a column by one whose values do not tell where it was null. Steps that fill nulls
/// give the column the values that it is meant to have.
fn encodes_nulls_of(bound: &BoundPipeline, stream: &OpStream, position: usize, name: &str) -> bool {
    let Some(hidden) = hidden_nulls(bound, stream, position) else {
        return false;
    };
    let mut columns = hidden.columns.into_iter();
    hidden.value == NullValue::Encoded && columns.any(|column| column == name)
}

/// True if windows compute a known column or its time. Others in the stream are left out of a pass that asks for these
/// alone.
fn is_computed_by_windows(
    bound: &BoundPipeline,
    stream: &OpStream,
    column: &KnownColumn<'_>,
) -> bool {
    let time = source_column(&column.taker.future.time);
    let columns = [column.name.as_str(), time.as_str()];
    let (needed_ops, _) = slice_for_columns(bound, stream, &columns);
    needed_ops
        .iter()
        .any(|index| bound.ops[stream.ops[*index]].op.is_over_series())
}

/// The last time at which a column has a value, as text.
fn last_time(column: &KnownColumn<'_>, times: &Finding) -> Result<Option<String>> {
    let Some(last) = times.number("max")? else {
        return Ok(None);
    };
    let future = column.taker.future;
    let field = future.source.field_with_name(&future.time)?;
    time_text(last as i64, field).map(Some)
}

/// True if rows of the future have the values of a column that the last row of their series has.
fn is_carried(bound: &BoundPipeline, future: &FutureFlow, name: &str) -> bool {
    let mut makers = future.made_by.iter().map(|op| &bound.ops[*op].op);
    makers.any(|op| match op {
        PlanOp::Gather(GatherOp {
            lower: GatherBy::Future(rows),
            ..
        }) => rows.latest.inputs.iter().any(|input| input == name),
        _ => false,
    })
}

/// A carried column without a value is not known in the history either.
fn carried_text(column: &KnownColumn<'_>, rows: u64, missing: u64) -> String {
    format!(
        "`{}` is null or NaN in the last row of some series, and so in {missing} of {rows} rows of \
         the future in sink `{}`",
        column.name, column.taker.sink.name
    )
}

fn missing_fault(column: &KnownColumn<'_>, rows: u64, missing: u64, until: KnownUntil) -> Fault {
    let KnownColumn { taker, name, .. } = column;
    let until = match until {
        KnownUntil::Time(until) => format!(": the last time for which it is known is {until}"),
        KnownUntil::Never => ": it is known at no time".to_owned(),
        KnownUntil::NotComputed => String::new(),
    };
    let message = format!(
        "`{name}` is known in advance, and has no value in {missing} of {rows} rows of the future \
         in sink `{}`{until}",
        taker.sink.name
    );
    let hint = "let the plan that it comes from reach as far as `future_rows`, fill it with \
                `impute`, or accept it: \
                `missing: accept` under `predict`";
    Fault::new(codes::BAD_ROW, message)
        .column(name)
        .hint(hint)
        .note("nothing was published")
        .at(taker.sink.at.as_ref())
}
