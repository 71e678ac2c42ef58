//! Served forecasts: rows of the future of some series, made after their last rows in the serving state, and predicted.
//!
//! The chain is that of a published forecast, with the step that predicts, so that a forecast of the same state has the
//! same bits.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, concat_batches, take};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use forebay_commit::Artifact;
use forebay_execute::{JoinedOutputs, RecursiveRows};
use forebay_model::{
    AnalyzerInput, Chunk, Fault, NodeInput, Pipeline, PipelineNode, Result, TextRules, codes,
};
use forebay_plan::{
    BoundPipeline, ChainContext, ColumnTap, FutureRowsOp, NodeFlow, OpChain, OpStream, PlanOp,
    SqlCompiler, TransformRegistry, WindowRowOrder, slice_for_columns, source_column,
};

use super::fitted_column::fit_type;
use super::latest::{ContinuedSeries, SeriesEnds};
use super::live::{AnswerJoins, ChainStates, LiveState};
use super::request_values::{
    FutureScope, MissingRows, NeededColumn, RequestColumn, RequestValues, add_request_columns,
    gives_values,
};
use super::stream::artifact_finding;
use crate::predict::{
    LoadedModel, LoadedModels, PredictTransform, is_constant_of_series, register_predict_step,
};

/// The step that predicts.
const NODE: &str = "forecast";

/// Taps before those of joins and of needed columns: the columns of the forecast, and those of the model's step, which
/// windows share with the state.
const JOIN_TAPS: usize = 2;

/// Most steps of all series of an answer with lists.
const LIST_ITEMS_MAX: usize = 1 << 24;

/// A model of the rows of the future of a step, for a [`ServingModel`](crate::ServingModel).
#[derive(Debug, Clone)]
pub struct ForecastRequest<'a> {
    /// The step that the model was trained on, which has `future_rows`.
    pub from: &'a str,
    /// The model.
    pub model: &'a Arc<LoadedModel>,
    /// The step that predicts with it, with the columns of a forecast.
    pub step: &'a PredictTransform,
}

/// Forecasts of a model for series of a serving state.
pub(super) struct ServedForecast {
    /// The chain of requests that name series alone.
    plain: ForecastChain,
    /// That of requests that give values of the future; `None` where forecasts depend on no such value.
    valued: Option<ValuedChain>,
    future: FutureRowsOp,
    /// The time of rows of the future.
    time: Field,
    /// The columns of the source that name a series, in the order of the keys.
    keys: Vec<Field>,
    /// Columns of a forecast, a row for each step of each series.
    output: SchemaRef,
    /// Columns of an answer with a row for each series: those that differ from step to step are lists.
    lists: SchemaRef,
    /// True for each column of which a list is made.
    is_list: Vec<bool>,
}

/// The operations of a forecast, compiled.
struct ForecastChain {
    chain: OpChain,
    /// Columns of rows of the future that it reads, in order.
    columns: Vec<String>,
    states: ChainStates,
    /// Number of joins by time, each with a tap.
    joins: usize,
    /// The columns that forecasts need in advance, each with a tap behind those of joins.
    needed: Vec<NeededColumn>,
}

/// The operations of a forecast, with values that requests give.
struct ValuedChain {
    chain: ForecastChain,
    columns: Vec<RequestColumn>,
    /// The column of the source with the times of rows.
    time: Field,
}

/// Forecasts of the series of a request.
struct RequestedForecast {
    /// The rows, as a published forecast has them.
    rows: RecordBatch,
    ends: Arc<SeriesEnds>,
    /// The series of each row of the request.
    series: Vec<u32>,
}

/// Receives the outputs of the chain.
struct ForecastTaps<'a> {
    output: &'a SchemaRef,
    joins: AnswerJoins<'a>,
    /// Number of joins.
    join_count: usize,
    /// Rows without a value, for each needed column.
    missing: Vec<MissingRows>,
    batches: Vec<RecordBatch>,
}

impl ForecastTaps<'_> {
    fn add(&mut self, tap: usize, input: AnalyzerInput<'_>) -> Result<()> {
        if let Some(needed) = tap.checked_sub(JOIN_TAPS + self.join_count) {
            let missing = self.missing.get_mut(needed);
            let missing = missing.ok_or_else(|| Fault::internal("a tap of no column"))?;
            return missing.add(&input);
        }
        if let Some(join) = tap.checked_sub(JOIN_TAPS) {
            return self.joins.look_up(join, input.columns, input.rows);
        }
        if tap > 0 {
            return Ok(());
        }
        let mut columns = Vec::with_capacity(input.columns.len());
        for (column, field) in input.columns.iter().zip(self.output.fields()) {
            columns.push(cast(column, field.data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(input.rows));
        let batch = RecordBatch::try_new_with_options(self.output.clone(), columns, &options)?;
        self.batches.push(batch);
        Ok(())
    }
}

/// Operations of a stream and the columns of its base that they read.
#[derive(Default)]
struct StreamNeeds {
    positions: BTreeSet<usize>,
    columns: BTreeSet<String>,
}

impl StreamNeeds {
    fn add(&mut self, bound: &BoundPipeline, stream: &OpStream, columns: &[String]) {
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let (positions, read) = slice_for_columns(bound, stream, &names);
        self.positions.extend(positions);
        self.columns.extend(read);
    }

    /// Adds the operations of a stream that its history passes for some columns, such as those that a filter for learning
    /// reads: its windows are then those of the history, whose states they continue.
    fn follow_history(
        &mut self,
        bound: &BoundPipeline,
        stream: &OpStream,
        history: &OpStream,
        columns: &[String],
    ) {
        let mut history_needs = StreamNeeds::default();
        history_needs.add(bound, history, columns);
        let mut passed = BTreeSet::new();
        for position in history_needs.positions {
            passed.insert(history.ops[position]);
        }
        for position in 0..stream.ops.len() {
            let op = stream.ops[position];
            if passed.contains(&op) && !self.positions.contains(&position) {
                let upstream = OpStream {
                    base: stream.base,
                    ops: stream.ops.first(position + 1),
                };
                let written = bound.ops[op].op.written_columns();
                let written: Vec<String> = written.into_iter().cloned().collect();
                self.add(bound, &upstream, &written);
            }
        }
    }
}

/// Compiles the operations of forecasts.
struct ForecastCompiler<'a> {
    artifact: &'a Artifact,
    live: &'a LiveState,
    future: &'a FutureRowsOp,
    /// The history of the step's rows.
    history: &'a OpStream,
    /// Columns of the step.
    features: Vec<String>,
    /// Columns of a forecast.
    outputs: Vec<String>,
    /// Columns that forecasts need in advance.
    known_columns: &'a BTreeSet<String>,
}

impl ForecastCompiler<'_> {
    fn scope<'s>(
        &'s self,
        bound: &'s BoundPipeline,
        stream: &'s OpStream,
        step_stream: &OpStream,
    ) -> FutureScope<'s> {
        FutureScope {
            bound,
            stream,
            step_ops: step_stream.ops.len(),
            outputs: &self.outputs,
            future: self.future,
            labels: &self.artifact.origin.labels,
            known_columns: self.known_columns,
        }
    }

    /// The chain of rows of the future. Those of the step pass the first of its operations.
    fn compile(
        &self,
        bound: &BoundPipeline,
        stream: &OpStream,
        step_stream: &OpStream,
    ) -> Result<ForecastChain> {
        let mut needs = StreamNeeds::default();
        needs.add(bound, stream, &self.outputs);
        needs.add(bound, step_stream, &self.features);
        needs.follow_history(bound, step_stream, self.history, &self.features);
        let needed = self.scope(bound, stream, step_stream).needed_columns();
        let mut needed_taps = Vec::with_capacity(needed.len());
        for column in &needed {
            let judged = vec![column.name.clone(), source_column(&self.future.time)];
            let upstream = OpStream {
                base: stream.base,
                ops: stream.ops.first(column.op_index),
            };
            needs.add(bound, &upstream, &judged);
            needed_taps.push(tap(column.op_index, judged));
        }
        let positions: Vec<usize> = needs.positions.into_iter().collect();
        let mut columns = Vec::new();
        for field in bound.base_schemas[stream.base].fields() {
            if needs.columns.contains(field.name()) {
                columns.push(field.name().clone());
            }
        }
        let mut taps = vec![
            tap(stream.ops.len(), self.outputs.clone()),
            tap(step_stream.ops.len(), self.features.clone()),
        ];
        let mut joins = Vec::new();
        for position in &positions {
            let op = stream.ops[*position];
            if let PlanOp::Join(join) = &bound.ops[op].op {
                joins.push(op);
                taps.push(tap(*position, join.columns_here().cloned().collect()));
            }
        }
        taps.extend(needed_taps);
        let context = ChainContext {
            finding: &|analyzer| artifact_finding(self.artifact, analyzer),
            row_order: &|_| WindowRowOrder::Time,
            admit: None,
            check_stop: None,
        };
        let chain = OpChain::new(bound, stream, &positions, &columns, &taps, context)?;
        let states = self.live.states_of(bound, &chain, &joins)?;
        Ok(ForecastChain {
            chain,
            columns,
            states,
            joins: joins.len(),
            needed,
        })
    }
}

impl ForecastChain {
    /// The columns of rows of the future that the chain reads.
    fn read_columns(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let schema = rows.schema_ref();
        let mut positions = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            positions.push(schema.index_of(column)?);
        }
        Ok(rows.project(&positions)?)
    }
}

impl ServedForecast {
    /// The forecasts of a model of the state's step.
    pub fn new(
        artifact: &Artifact,
        registry: &TransformRegistry,
        sql: &SqlCompiler,
        live: &LiveState,
        request: &ForecastRequest<'_>,
    ) -> Result<ServedForecast> {
        let node = request.from;
        let models = LoadedModels::default();
        models.add(request.model);
        let mut registry = registry.clone();
        register_predict_step(&mut registry, &models);
        let (pipeline, predicting) = with_prediction(&artifact.pipeline, node, request.step)?;
        let predicted = Artifact {
            pipeline,
            ..artifact.clone()
        };
        let bound = predicted.bind(&registry, sql)?;
        let continued =
            ContinuedSeries::of(&bound, node).map_err(|reason| unserved_fault(node, reason))?;
        if !live.holds_ends() {
            return Err(without_ends(node));
        }
        let step_flow = flow_of(&bound, node)?;
        let flow = flow_of(&bound, &predicting)?;
        let mut stream = rows_of(flow)?.clone();
        let mut step_stream = rows_of(step_flow)?.clone();
        let no_columns = BTreeSet::new();
        let compiler = ForecastCompiler {
            artifact,
            live,
            future: continued.future,
            history: history_of(step_flow)?,
            features: step_flow.column_names(),
            outputs: flow.column_names(),
            known_columns: artifact.origin.known.get(node).unwrap_or(&no_columns),
        };
        let plain = compiler.compile(&bound, &stream, &step_stream)?;
        let base = &bound.base_schemas[stream.base];
        let time = base.field_with_name(&continued.future.time)?.clone();
        let columns = compiler
            .scope(&bound, &stream, &step_stream)
            .request_columns();
        let valued = match continued.source_field(&continued.future.time) {
            Some(source_time) if !columns.is_empty() => {
                let mut extended = bound.clone();
                let streams = [&mut stream, &mut step_stream];
                add_request_columns(&mut extended, streams, &columns, node);
                Some(ValuedChain {
                    chain: compiler.compile(&extended, &stream, &step_stream)?,
                    columns,
                    time: source_time.clone(),
                })
            }
            _ => None,
        };
        let output = forecast_schema(&plain.chain);
        let mut is_list = Vec::with_capacity(output.fields().len());
        for field in output.fields() {
            let is_key = continued.future.keys.contains(field.name());
            is_list.push(!is_key && !is_constant_of_series(field.name()));
        }
        let steps = i32::try_from(continued.future.steps).map_err(|_| {
            Fault::new(codes::LIMIT, "a horizon has more than 2^31 steps")
                .hint("lower `horizon` of `future_rows`")
        })?;
        Ok(ServedForecast {
            keys: key_columns(&continued)?,
            lists: list_schema(&output, &is_list, steps),
            future: continued.future.clone(),
            is_list,
            plain,
            valued,
            time,
            output,
        })
    }

    /// The columns that name a series.
    pub fn keys(&self) -> &[Field] {
        &self.keys
    }

    /// Columns that rows of requests may have besides the keys: the time of a row of the future, and values of it.
    pub fn request_fields(&self) -> Vec<&Field> {
        let Some(valued) = &self.valued else {
            return Vec::new();
        };
        let values = valued.columns.iter().map(|column| &column.field);
        std::iter::once(&valued.time).chain(values).collect()
    }

    /// Columns of a forecast.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// Columns of an answer with a row for each series.
    pub fn lists_output(&self) -> &SchemaRef {
        &self.lists
    }

    /// The forecasts of the series that rows name, in the order of a published forecast: by time, then by series.
    pub fn rows(&self, live: &LiveState, series: &RecordBatch) -> Result<RecordBatch> {
        Ok(self.requested(live, series)?.rows)
    }

    /// The forecasts of the series that rows name, one row for each of them, in their order.
    pub fn lists(&self, live: &LiveState, series: &RecordBatch) -> Result<RecordBatch> {
        let steps = self.future.steps as usize;
        let items = series.num_rows().saturating_mul(steps);
        if items > LIST_ITEMS_MAX {
            let message = format!(
                "the forecasts of {} series have {items} steps, and {LIST_ITEMS_MAX} are the most",
                series.num_rows()
            );
            return Err(Fault::new(codes::LIMIT, message).hint("ask for fewer series at once"));
        }
        let requested = self.requested(live, series)?;
        let rows_of_series = self.rows_of_series(&requested)?;
        let mut firsts = Vec::with_capacity(requested.series.len());
        let mut items: Vec<Option<u32>> = Vec::with_capacity(items);
        for (row, of_series) in requested.series.iter().enumerate() {
            let rows = rows_of_series
                .get(of_series)
                .ok_or_else(|| ended_fault(self.series_text(series, row)).rows([row as u64]))?;
            if rows.len() > steps {
                let message = "a step behind `future_rows` adds rows, and a forecast has one \
                               for each step";
                return Err(Fault::new(codes::UNSUPPORTED, message)
                    .hint("move that step before `future_rows`"));
            }
            firsts.extend(rows.first().copied());
            items.extend(rows.iter().map(|row| Some(*row)));
            // Filters may have taken steps of this series.
            items.resize((row + 1) * steps, None);
        }
        let firsts = UInt32Array::from(firsts);
        let items = UInt32Array::from(items);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.lists.fields().len());
        for (column, field) in requested.rows.columns().iter().zip(self.lists.fields()) {
            let is_list = self.is_list.get(columns.len()).copied().unwrap_or_default();
            columns.push(match field.data_type() {
                DataType::FixedSizeList(item, length) if is_list => {
                    let values = take(column, &items, None)?;
                    Arc::new(FixedSizeListArray::try_new(
                        item.clone(),
                        *length,
                        values,
                        None,
                    )?)
                }
                _ => take(column, &firsts, None)?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(series.num_rows()));
        Ok(RecordBatch::try_new_with_options(
            self.lists.clone(),
            columns,
            &options,
        )?)
    }

    /// The rows of each series in a forecast, in order of time.
    fn rows_of_series(&self, requested: &RequestedForecast) -> Result<HashMap<u32, Vec<u32>>> {
        let mut rows_of_series: HashMap<u32, Vec<u32>> = HashMap::new();
        let series = self.series_of_future(&requested.ends, &requested.rows)?;
        for (row, series) in (0..).zip(series) {
            if let Some(series) = series {
                rows_of_series.entry(series).or_default().push(row);
            }
        }
        Ok(rows_of_series)
    }

    /// The series of rows of the future.
    fn series_of_future(&self, ends: &SeriesEnds, rows: &RecordBatch) -> Result<Vec<Option<u32>>> {
        let mut keys = Vec::with_capacity(self.future.keys.len());
        for key in &self.future.keys {
            keys.extend(rows.column_by_name(key).cloned());
        }
        ends.rows_of(&keys, rows.num_rows())
    }

    fn requested(&self, live: &LiveState, request: &RecordBatch) -> Result<RequestedForecast> {
        let valued = match &self.valued {
            Some(valued) if gives_values(&valued.columns, &valued.time, request)? => Some(valued),
            _ => None,
        };
        let forecast = valued.map_or(&self.plain, |valued| &valued.chain);
        // Held until the rows are computed: facts that are appended meanwhile change nothing.
        let mut answer = live.answer_by(&forecast.states)?;
        let ends = live
            .series_ends()?
            .ok_or_else(|| Fault::internal("a forecast without the last rows of series"))?;
        let series = self.series_of(&ends, request)?;
        let mut values = None;
        if let Some(valued) = valued {
            let ValuedChain { columns, time, .. } = valued;
            values = Some(RequestValues::of(columns, time, &series, request)?);
        }
        let mut distinct = series.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let (carry, joins) = answer.parts();
        let mut taps = ForecastTaps {
            output: &self.output,
            joins,
            join_count: forecast.joins,
            missing: vec![MissingRows::default(); forecast.needed.len()],
            batches: Vec::new(),
        };
        let chain = &forecast.chain;
        let mut recursive = RecursiveRows::new(chain, &forecast.columns, JoinedOutputs::LookedUp)?;
        for batch in (self.future.rows_of_series)(&ends.finding, &distinct)? {
            let mut batch = batch?;
            let times = batch.column_by_name(&self.future.time).cloned();
            let times =
                times.ok_or_else(|| Fault::internal("rows of the future without their time"))?;
            live.refuse_pooled_behind_facts(&times)?;
            if let Some(values) = &values {
                let of_rows = self.series_of_future(&ends, &batch)?;
                batch = values.add_to(&batch, &of_rows, &times)?;
            }
            let rows = forecast.read_columns(&batch)?;
            let chunks = [Chunk::of_source(rows, chain.source())];
            match &mut recursive {
                Some(recursive) => {
                    recursive.push(&chunks, carry, &mut |tap, input| taps.add(tap, input))?
                }
                None => chain.run(&chunks, carry, &mut |tap, input| taps.add(tap, input))?,
            };
        }
        if let Some(recursive) = &mut recursive {
            recursive.finish(carry, &mut |tap, input| taps.add(tap, input))?;
        }
        for (column, missing) in forecast.needed.iter().zip(&taps.missing) {
            missing.check(column, &self.time)?;
        }
        Ok(RequestedForecast {
            rows: concat_batches(&self.output, &taps.batches)?,
            ends,
            series,
        })
    }

    /// The series that each row names, by its row among all series.
    fn series_of(&self, ends: &SeriesEnds, rows: &RecordBatch) -> Result<Vec<u32>> {
        let mut keys = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let column = rows.column_by_name(key.name()).ok_or_else(|| {
                let message = format!(
                    "the request has no column `{}`, which is a key of the series",
                    key.name()
                );
                Fault::new(codes::UNKNOWN_COLUMN, message)
                    .column(key.name())
                    .hint("name each series by all of its keys")
            })?;
            keys.push(fit_type(column, key, None, TextRules::inferred())?);
        }
        let mut series = Vec::with_capacity(rows.num_rows());
        for (row, of_row) in ends
            .rows_of(&keys, rows.num_rows())?
            .into_iter()
            .enumerate()
        {
            let of_row = of_row.ok_or_else(|| {
                let message = format!(
                    "the serving state has no rows of {}, so that its forecast has no begin",
                    self.series_text(rows, row)
                );
                Fault::new(codes::NO_HISTORY, message)
                    .rows([row as u64])
                    .hint("append its first rows (`POST /rows`), or run the pipeline with them")
            })?;
            series.push(of_row);
        }
        Ok(series)
    }

    /// The keys of the series that a row names, for people.
    fn series_text(&self, rows: &RecordBatch, row: usize) -> String {
        let mut texts = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let column = rows.column_by_name(key.name());
            let column = column.filter(|column| !column.is_null(row));
            let text = column.and_then(|column| array_value_to_string(column, row).ok());
            texts.push(format!(
                "`{}` {}",
                key.name(),
                text.as_deref().unwrap_or("null")
            ));
        }
        if texts.is_empty() {
            return "any series".to_owned();
        }
        format!("the series of {}", texts.join(", "))
    }
}

/// The columns of a forecast, each of which may be null.
fn forecast_schema(chain: &OpChain) -> SchemaRef {
    let mut fields = Vec::new();
    for field in chain.fields(0) {
        fields.push(field.clone().with_nullable(true));
    }
    Arc::new(Schema::new(fields))
}

fn tap(op_index: usize, columns: Vec<String>) -> ColumnTap {
    ColumnTap {
        after: op_index,
        columns,
        part: None,
        marks_unfound: false,
    }
}

/// A pipeline with a step that predicts, and the step's name.
fn with_prediction(
    pipeline: &Pipeline,
    from: &str,
    step: &PredictTransform,
) -> Result<(Pipeline, String)> {
    let mut extended = pipeline.clone();
    let mut name = NODE.to_owned();
    while extended.node(&name).is_some() || extended.source(&name).is_some() {
        name.push('_');
    }
    let input = NodeInput::From(from.to_owned());
    let node = PipelineNode::new(&name, input, vec![step.step()?]);
    extended.nodes.push(node);
    Ok((extended, name))
}

fn flow_of<'b>(bound: &'b BoundPipeline, node: &str) -> Result<&'b NodeFlow> {
    let flow = bound.flows.get(node);
    flow.ok_or_else(|| Fault::internal(format!("a forecast of the step `{node}`, which is none")))
}

/// The rows of the future of a flow, which has those of one `future_rows`.
fn rows_of(flow: &NodeFlow) -> Result<&OpStream> {
    let future = flow.future.as_deref();
    match future.map(|future| future.rows.as_slice()) {
        Some([stream]) => Ok(stream),
        _ => Err(Fault::internal("a forecast of several streams")),
    }
}

/// The history of the rows of the future of a flow.
fn history_of(flow: &NodeFlow) -> Result<&OpStream> {
    let future = flow.future.as_deref();
    match future.map(|future| future.history.as_slice()) {
        Some([stream]) => Ok(stream),
        _ => Err(Fault::internal("a forecast of several histories")),
    }
}

/// The columns of the source that are the keys of the series.
fn key_columns(continued: &ContinuedSeries<'_>) -> Result<Vec<Field>> {
    let mut fields = Vec::with_capacity(continued.future.keys.len());
    for key in &continued.future.keys {
        let field = continued.source_field(key).ok_or_else(|| {
            let message = format!(
                "the key `{key}` of the series is computed, and a request names series by columns \
                 of the source"
            );
            Fault::new(codes::UNSUPPORTED, message)
                .column(key)
                .hint("compute it behind `future_rows`, or use `forebay predict` on the dataset")
        })?;
        fields.push(field.clone());
    }
    Ok(fields)
}

/// The columns of answers with a row for each series.
fn list_schema(output: &Schema, is_list: &[bool], steps: i32) -> SchemaRef {
    let mut fields: Vec<FieldRef> = Vec::with_capacity(is_list.len());
    for (field, is_list) in output.fields().iter().zip(is_list) {
        if !is_list {
            fields.push(field.clone());
            continue;
        }
        let item = Arc::new(Field::new("item", field.data_type().clone(), true));
        let list = DataType::FixedSizeList(item, steps);
        fields.push(Arc::new(Field::new(field.name(), list, true)));
    }
    Arc::new(Schema::new(fields))
}

/// The reason for which forecasts of the series of a step cannot be served, phrased to follow the name of the step.
pub(crate) fn unserved_forecasts(bound: &BoundPipeline, node: &str) -> Option<String> {
    let reason = match ContinuedSeries::of(bound, node) {
        Err(reason) => reason.to_owned(),
        Ok(continued) => format!(
            "computes the key `{}` of its series, which requests name by columns of the source",
            continued.computed_key()?
        ),
    };
    Some(format!("{reason}, so forecasts cannot be served"))
}

fn unserved_fault(node: &str, reason: &str) -> Fault {
    let message = format!("`{node}` {reason}, so forecasts cannot be served");
    Fault::new(codes::UNSUPPORTED, message)
        .step(node)
        .hint("use `forebay predict` on the dataset, or read the published forecast")
}

/// The fault of a state without the last rows of series.
fn without_ends(node: &str) -> Fault {
    let message = format!("the serving state of `{node}` has no last rows of its series");
    Fault::new(codes::STATE_VERSION, message)
        .step(node)
        .hint("run the pipeline again with this program")
}

fn ended_fault(series: String) -> Fault {
    let message = format!("{series} has no rows of the future");
    Fault::new(codes::NO_HISTORY, message).hint(
        "its last row lies further back than `active_within` of `future_rows`, or a filter takes \
         its rows",
    )
}
