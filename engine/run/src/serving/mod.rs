//! An artifact ready to serve: the same operations and findings, over batches or single rows.

mod append_log;
mod apply;
mod column_fit;
mod fitted_column;
mod forecast;
mod joined;
mod late_facts;
mod latest;
mod live;
mod nightly;
mod request_values;
mod series;
mod stream;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use forebay_commit::Artifact;
use forebay_model::{
    Chunk, Fault, Pipeline, Result, RowKeys, TextRules, TimeFormat, check_times_have_texts, codes,
    logical_type, shorten, type_words,
};
use forebay_plan::{
    BaseDataset, BoundPipeline, Carry, ChainWindow, OpChain, OpStream, PlanOp, RowCounts,
    SqlCompiler, StreamIndex, TransformRegistry, unknown_column,
};
use forebay_storage::StorageClient;
use serde_json::{Map, Value};

pub use self::column_fit::ColumnFit;
use self::fitted_column::fit_type;
pub use self::forecast::ForecastRequest;
use self::forecast::ServedForecast;
pub(crate) use self::forecast::unserved_forecasts;
pub use self::live::{AppendReport, StateSummary};
use self::live::{LiveAnswer, LiveChains, LiveState, order_of_time, take_all};
pub use self::stream::UnservedStep;
use self::stream::{RemovingStep, ServedChain, ServedStream, artifact_finding};
pub(crate) use self::stream::{check_serving, unserved_steps};
use crate::fit_types::FORMATS_WITHOUT_TYPES;
use crate::learning_filters::{with_open_learning_filters, without_learning_filters};

/// Applies the findings of an artifact to rows of one source.
///
/// With a serving state (`serving:` in the spec) windows see the rows before: those of the run, and those that were
/// appended since. Threads can share a model; after loading it waits for the disk in [`ServingModel::append`] alone.
pub struct ServingModel {
    chain: OpChain,
    /// Formats of input columns of dates and times.
    formats: BTreeMap<String, TimeFormat>,
    /// The rules by which texts are read, for columns of the source whose types were not found in its files.
    rules: BTreeMap<String, TextRules>,
    input: SchemaRef,
    /// The inputs, each of which may be null.
    nullable_input: SchemaRef,
    output: SchemaRef,
    /// All columns of the source.
    source: SchemaRef,
    /// For each output column, true if it is a source column that no step uses.
    passed: Vec<bool>,
    /// The steps that may remove rows, in order: each has a tap after that of the columns.
    removing: Vec<RemovingStep>,
    /// The state that windows need of the rows before.
    live: Option<LiveState>,
    /// Predicted columns: rows whose windows read a state are answered before theirs are known.
    labels: BTreeSet<String>,
    fits: Vec<ColumnFit>,
    /// The column of the step that `target` transforms.
    target: Option<String>,
    /// Forecasts of the series of the state.
    forecast: Option<ServedForecast>,
}

/// The result of a batch.
struct AppliedBatch {
    rows: RecordBatch,
    /// Rows behind each step that may remove some.
    rows_after: Vec<usize>,
}

/// The columns of a batch that the chain reads, in order of time where windows need it.
struct InputRows {
    batch: RecordBatch,
    /// Row of the batch that was given, for each row; `None` where their order is the same.
    order: Option<UInt32Array>,
}

impl ServingModel {
    /// Makes the columns of `node` (by default: those of the serving state, else of the first sink's rows) from rows of
    /// its source. Steps that need all rows at once cannot be applied to batches.
    pub fn new(
        artifact: &Artifact,
        registry: &TransformRegistry,
        sql: &SqlCompiler,
        node: Option<&str>,
    ) -> Result<ServingModel> {
        ServingModel::load(artifact, registry, sql, node, false)
    }

    /// Like [`ServingModel::new`], and answers forecasts of a model of the step ([`ServingModel::forecast`]): the
    /// artifact's serving state is one of this step.
    pub fn with_forecast(
        artifact: &Artifact,
        registry: &TransformRegistry,
        sql: &SqlCompiler,
        request: &ForecastRequest<'_>,
    ) -> Result<ServingModel> {
        let from = request.from;
        let mut model = ServingModel::load(artifact, registry, sql, Some(from), true)?;
        let live = model.live.as_ref().ok_or_else(|| without_state(from))?;
        let forecast = ServedForecast::new(artifact, registry, sql, live, request)?;
        model.forecast = Some(forecast);
        Ok(model)
    }

    fn load(
        artifact: &Artifact,
        registry: &TransformRegistry,
        sql: &SqlCompiler,
        node: Option<&str>,
        forecasts: bool,
    ) -> Result<ServingModel> {
        let name = served_node(artifact, node)?;
        let reference = artifact
            .serving
            .as_ref()
            .filter(|reference| reference.manifest.node == name && reference.manifest.keeps_rows());
        // Rows that are scored pass filters for learning.
        let fitted = artifact.bind(registry, sql)?;
        let labels = &artifact.origin.labels;
        let pipeline = match reference {
            Some(_) => with_open_learning_filters(registry, &artifact.pipeline, &fitted, labels)?,
            None => without_learning_filters(registry, &artifact.pipeline, &fitted, labels)?,
        };
        let served = Artifact {
            pipeline,
            ..artifact.clone()
        };
        let bound = served.bind(registry, sql)?;
        let served = ServedStream::of(&bound, &name)?;
        let answers = served.chain(&|analyzer| artifact_finding(artifact, analyzer))?;
        let live = match reference {
            Some(reference) => {
                served.refuse_unserved()?;
                let chains = LiveChains {
                    artifact,
                    reference,
                    answers: &answers,
                    answer_bound: &bound,
                    fact_bound: &fitted,
                    forecasts,
                };
                Some(LiveState::load(&StorageClient::new()?, chains)?)
            }
            None => {
                refuse_windows(&bound, &answers.chain, &name)?;
                None
            }
        };
        let ServedChain {
            chain,
            base_columns,
            removing,
            ..
        } = answers;
        let base = &bound.base_schemas[served.stream.base];
        let mut input_fields = Vec::with_capacity(base_columns.len());
        for name in &base_columns {
            input_fields.push(base.field_with_name(name)?.clone());
        }
        let input = Arc::new(Schema::new(input_fields));
        let mut output_fields = Vec::new();
        for field in chain.fields(0) {
            output_fields.push(field.clone().with_nullable(true));
        }
        let output = Arc::new(Schema::new(output_fields));
        let mut formats = BTreeMap::new();
        let mut rules = BTreeMap::new();
        if let BaseDataset::Source(source) = &bound.bases[served.stream.base] {
            formats = time_formats(&artifact.pipeline, source, &input);
            rules = text_rules(&artifact.pipeline, source, base);
        }
        let passed = passed_columns(&bound, served.stream, &served.columns());
        let fits = ColumnFit::of_steps(&served, artifact)?;
        Ok(ServingModel {
            chain,
            formats,
            rules,
            nullable_input: Arc::new(nullable(&input)),
            input,
            output,
            source: base.clone(),
            passed,
            removing,
            live,
            labels: artifact.origin.labels.clone(),
            fits,
            target: transformed_target(&bound, &name),
            forecast: None,
        })
    }

    /// The column of the step that `target` transforms: rows and predictions of it are in other units than the source.
    pub fn transformed_target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// The columns of the source that name a series in [`ServingModel::forecast`]; none of a model without forecasts.
    pub fn forecast_keys(&self) -> &[Field] {
        self.forecast.as_ref().map_or(&[], ServedForecast::keys)
    }

    /// Columns that rows of [`ServingModel::forecast`] may have besides the keys: first the time of a row of the future,
    /// then columns whose values are known in advance, of the source and of tables that are joined by time. None where
    /// forecasts depend on no such column.
    pub fn forecast_values(&self) -> Vec<&Field> {
        let forecast = self.forecast.as_ref();
        forecast.map_or_else(Vec::new, ServedForecast::request_fields)
    }

    /// Schema of [`ServingModel::forecast`]; `None` for a model without forecasts.
    pub fn forecast_output(&self) -> Option<&SchemaRef> {
        self.forecast.as_ref().map(ServedForecast::output)
    }

    /// Schema of [`ServingModel::forecast_by_series`]; `None` for a model without forecasts.
    pub fn series_output(&self) -> Option<&SchemaRef> {
        self.forecast.as_ref().map(ServedForecast::lists_output)
    }

    /// The forecasts of the whole horizon for the series that rows name by their keys, with the rows, columns and bits of
    /// the forecast that a run with the same state publishes. Each begins after the last row that the state has of its
    /// series, appended facts included. A series that the state does not have is a fault.
    ///
    /// Rows may give values of the future ([`ServingModel::forecast_values`]): keys, the time of a row of the future, and
    /// what is known of it. These take the place of those that joins find; where a row gives none, the joined ones
    /// count. Times outside the horizon are ignored. A column that the label lists as known and that has no value is a
    /// fault, which names the first time without one.
    pub fn forecast(&self, series: &RecordBatch) -> Result<RecordBatch> {
        let (forecast, live) = self.forecasting()?;
        forecast.rows(live, &self.with_texts_read(series)?)
    }

    /// Like [`ServingModel::forecast`], with one row for each row of the batch: what differs from step to step, such as
    /// times and predictions, is a list with one item for each step. Steps that a filter takes are nulls at its end.
    pub fn forecast_by_series(&self, series: &RecordBatch) -> Result<RecordBatch> {
        let (forecast, live) = self.forecasting()?;
        forecast.lists(live, &self.with_texts_read(series)?)
    }

    fn forecasting(&self) -> Result<(&ServedForecast, &LiveState)> {
        let parts = self.forecast.as_ref().zip(self.live.as_ref());
        parts.ok_or_else(|| {
            let message = "the model is loaded without forecasts";
            Fault::new(codes::UNSUPPORTED, message)
                .hint("load it with a model of rows of the future: `ServingModel::with_forecast`")
        })
    }

    /// Sets the memory for series with appended facts; 256 MiB unless it is set.
    pub fn with_appended_bytes(mut self, bytes: usize) -> ServingModel {
        if let Some(live) = &mut self.live {
            live.set_grown_bytes_max(bytes);
        }
        self
    }

    /// Sets the memory for the states of the run that are decompressed from now on; 1 GiB unless it is set. Others lie
    /// in temporary files, mapped: the system keeps those in memory that are asked for.
    pub fn with_state_bytes(self, bytes: usize) -> ServingModel {
        if let Some(live) = &self.live {
            live.set_state_bytes_max(bytes);
        }
        self
    }

    /// Puts the states of the run that are decompressed from now on into files of a directory, in place of memory of this
    /// process: the first process that asks for a series writes its piece, and all processes of the machine map it. The
    /// directory is one of this user alone. Files of states that no artifact has any more stay until they are removed.
    pub fn with_shared_states(self, directory: impl Into<PathBuf>) -> ServingModel {
        if let Some(live) = &self.live {
            live.share_states_in(directory.into());
        }
        self
    }

    /// True if answers depend on the rows before.
    pub fn has_state(&self) -> bool {
        self.live.is_some()
    }

    /// A summary of the serving state; `None` for a model that needs none, or has none.
    pub fn state(&self) -> Option<StateSummary> {
        self.live.as_ref().and_then(|live| live.summary().ok())
    }

    /// The columns of the source that [`ServingModel::append`] reads; `None` for a model without a state, and where facts
    /// would change no answer.
    pub fn fact_columns(&self) -> Option<&SchemaRef> {
        self.live.as_ref().and_then(LiveState::fact_columns)
    }

    /// For each row of a batch of the source, true if the serving state holds rows of its series. `None` for a model
    /// without a state, and where the keys of its windows are no columns of the batch.
    pub fn known_series(&self, batch: &RecordBatch) -> Result<Option<Vec<bool>>> {
        match &self.live {
            Some(live) => live.known_series(&self.with_texts_read(batch)?),
            None => Ok(None),
        }
    }

    /// Makes new facts part of the next answers: rows of the source, each later than the newest of its series. They are
    /// on the disk when this returns, and part of the answers of a program that loads the artifact again. Of facts that
    /// are refused, none is taken.
    ///
    /// With `late: replay` in the spec, a fact may be earlier than the newest of its series, if it is later than the
    /// rows of the run: the series then takes all facts since the run in order of time.
    pub fn append(&self, facts: &RecordBatch) -> Result<AppendReport> {
        let live = self.live.as_ref().ok_or_else(|| {
            let message = "the artifact has no serving state, so facts cannot be appended";
            Fault::new(codes::UNSUPPORTED, message)
                .hint("declare `serving: { from: STEP }` in the spec, and run the pipeline")
        })?;
        live.append(&self.with_texts_read(facts)?)
    }

    /// Takes over from another model of the same artifact, whose run stored an earlier or later state: both have one log
    /// of facts. False where their logs differ.
    pub fn take_log_over(&self, other: &ServingModel) -> Result<bool> {
        let Some(live) = &self.live else {
            return Ok(false);
        };
        let Some(other_live) = &other.live else {
            return Ok(false);
        };
        let path = live.log_path()?;
        if path.is_none() || path != other_live.log_path()? {
            return Ok(false);
        }
        other_live.release_log()?;
        live.replay_log()?;
        Ok(true)
    }

    /// The facts that were appended to the serving state, in the order of the appends.
    pub fn appended(&self) -> Result<Vec<RecordBatch>> {
        match &self.live {
            Some(live) => live.appended(),
            None => Ok(Vec::new()),
        }
    }

    /// Appends those facts of another model that are later than the run which stored this model's state, unless they were
    /// appended before. Earlier ones are part of its rows, or came too late for it.
    pub fn append_after_run(&self, appends: &[RecordBatch]) -> Result<AppendReport> {
        match &self.live {
            Some(live) => live.append_after_run(appends),
            None => Ok(AppendReport { rows: 0 }),
        }
    }

    /// A batch whose texts, and columns with a format, have the types of the source.
    fn with_texts_read(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = batch.schema();
        let mut fields: Vec<FieldRef> = schema.fields().to_vec();
        let mut columns = batch.columns().to_vec();
        for (index, field) in schema.fields().iter().enumerate() {
            let format = self.formats.get(field.name());
            let is_text = logical_type(field.data_type()) == DataType::Utf8;
            let Ok(read_field) = self.source.field_with_name(field.name()) else {
                continue;
            };
            if format.is_none() && !is_text {
                continue;
            }
            columns[index] = self.fit_type(&columns[index], read_field, format)?;
            let read_type = columns[index].data_type().clone();
            fields[index] = Arc::new(fields[index].as_ref().clone().with_data_type(read_type));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }

    /// The columns that batches must have, with logical types; others are ignored. Those of
    /// [`ServingModel::optional_inputs`] may be absent.
    pub fn input(&self) -> &SchemaRef {
        &self.input
    }

    /// Statistics of the fit of columns of numbers, as far as the steps have learned them of the source's columns.
    pub fn column_fits(&self) -> &[ColumnFit] {
        &self.fits
    }

    /// Schema of the result.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// All columns of the source that batches come from.
    pub fn source(&self) -> &SchemaRef {
        &self.source
    }

    /// True if a step may remove rows or add some: then results are not aligned with batches.
    pub fn changes_rows(&self) -> bool {
        !self.removing.is_empty()
    }

    /// The inputs that no step uses, such as a label: a batch without one gives a result without it.
    pub fn optional_inputs(&self) -> Vec<&str> {
        let outputs = self.output.fields().iter().zip(&self.passed);
        outputs
            .filter(|(_, passed)| **passed)
            .map(|(field, _)| field.name().as_str())
            .collect()
    }

    /// Schema of the result of a batch with these columns.
    pub fn output_of(&self, columns: &Schema) -> Result<SchemaRef> {
        Ok(Arc::new(self.output.project(&self.outputs_of(columns))?))
    }

    fn outputs_of(&self, columns: &Schema) -> Vec<usize> {
        let mut outputs = Vec::with_capacity(self.passed.len());
        for (index, field) in self.output.fields().iter().enumerate() {
            // A column that passes is in the result where it is in the batch.
            if !self.passed[index] || columns.column_with_name(field.name()).is_some() {
                outputs.push(index);
            }
        }
        outputs
    }

    /// Applies to a batch. Rows that the pipeline filters are missing in the result.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        Ok(self.apply_steps(batch)?.rows)
    }

    fn apply_steps(&self, batch: &RecordBatch) -> Result<AppliedBatch> {
        self.begin_run()?.apply_steps(batch, &[])
    }

    /// Begins a run over batches that follow each other in time: windows see the rows of those before.
    pub(crate) fn begin_run(&self) -> Result<ServedRun<'_>> {
        let live = self.live.as_ref().map(LiveState::answer).transpose()?;
        Ok(ServedRun {
            model: self,
            live,
            counts: RowCounts::default(),
        })
    }

    /// The columns of a batch that the chain reads.
    fn input_rows(&self, batch: &RecordBatch) -> Result<InputRows> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.input.fields().len());
        let batch_fields = batch.schema_ref().fields();
        // Batches mostly have the columns in this order.
        let mut next = 0;
        for field in self.input.fields() {
            let name = field.name();
            let column = match batch_fields.get(next) {
                Some(batch_field) if batch_field.name() == name => {
                    next += 1;
                    Some(batch.column(next - 1))
                }
                _ => batch.column_by_name(name),
            };
            columns.push(match column {
                Some(column) => self.fit_type(column, field, self.formats.get(name))?,
                // No output is computed from it, and it is left out of the result.
                None if self.may_be_absent(name) => {
                    new_null_array(field.data_type(), batch.num_rows())
                }
                None => {
                    let message = format!("the batch has no column `{name}`");
                    return Err(Fault::new(codes::UNKNOWN_COLUMN, message));
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = self.schema_of(&columns);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let times = self.live.as_ref().map(|live| live.time());
        let times = times.and_then(|time| batch.column_by_name(time));
        if let (Some(live), Some(times)) = (&self.live, times) {
            live.refuse_beyond_pooled(times)?;
        }
        let order = times.map(order_of_time).transpose()?.flatten();
        let batch = match &order {
            Some(order) => take_all(&batch, order)?,
            None => batch,
        };
        Ok(InputRows { batch, order })
    }

    /// True for an input that a batch may lack: no step uses it, or it is a label, and windows read a state.
    fn may_be_absent(&self, input: &str) -> bool {
        let is_label = self.live.is_some() && self.labels.contains(input);
        let output = self.output.column_with_name(input);
        is_label || output.is_some_and(|(index, _)| self.passed[index])
    }

    /// Schema of columns of the inputs, which may have another form of their types.
    fn schema_of(&self, columns: &[ArrayRef]) -> SchemaRef {
        let inputs = self.nullable_input.fields().iter();
        let mut pairs = inputs.clone().zip(columns);
        if pairs.all(|(field, column)| field.data_type() == column.data_type()) {
            return self.nullable_input.clone();
        }
        let fields = inputs
            .zip(columns)
            .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Applies to a batch; a batch of which a step removes or repeats rows is refused. The fault names the step.
    pub fn apply_aligned(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let AppliedBatch { rows, rows_after } = self.apply_steps(batch)?;
        if rows.num_rows() == batch.num_rows() {
            return Ok(rows);
        }
        Err(self.unaligned_fault(batch.num_rows(), &rows_after))
    }

    /// The fault for rows that a step removes, or adds.
    fn unaligned_fault(&self, row_count: usize, rows_after: &[usize]) -> Fault {
        let mut input_rows = row_count;
        for (step, output_rows) in self.removing.iter().zip(rows_after) {
            if *output_rows >= input_rows {
                input_rows = *output_rows;
                continue;
            }
            let removed = if row_count == 1 {
                "the row".to_owned()
            } else {
                format!("{} of {input_rows} rows", input_rows - output_rows)
            };
            let message = match &step.condition {
                Some(condition) => {
                    format!(
                        "the filter `{condition}` of `{}` takes {removed}",
                        step.label
                    )
                }
                None => format!("`{}` takes {removed}", step.label),
            };
            return Fault::new(codes::FILTERED, message).step(&step.label).hint(
                "score no such rows, or say that the filter is for learning: \
                 `filter: { sql: ..., when: learning }`",
            );
        }
        Fault::new(
            codes::UNSUPPORTED,
            "a step of the pipeline adds rows, and each row needs one answer",
        )
    }

    /// Refuses values of another kind than their column, which the decoder would take: numbers and truth values for
    /// texts and, where types were found in the source's files, texts for numbers.
    fn refuse_values_of_other_kinds(&self, row: &Map<String, Value>) -> Result<()> {
        for field in self.input.fields() {
            let Some(value) = row.get(field.name()) else {
                continue;
            };
            let takes_texts = self.takes_texts_for_numbers(field.name());
            let Some(other) = value_of_other_kind(value, field.data_type(), takes_texts) else {
                continue;
            };
            let message = format!(
                "`{}` is {}, and the row has {}",
                field.name(),
                type_words(field.data_type()),
                shorten(&other.to_string())
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
        }
        Ok(())
    }

    /// True if a text in JSON may stand for a number of this input: the source declares its type.
    pub fn takes_texts_for_numbers(&self, input: &str) -> bool {
        let is_time = self.formats.contains_key(input);
        is_time || !self.rules_of(input).is_inferred
    }

    fn rules_of(&self, input: &str) -> TextRules {
        let rules = self.rules.get(input).copied();
        rules.unwrap_or(TextRules::inferred())
    }

    fn fit_type(
        &self,
        column: &ArrayRef,
        field: &Field,
        format: Option<&TimeFormat>,
    ) -> Result<ArrayRef> {
        fit_type(column, field, format, self.rules_of(field.name()))
    }

    /// A row whose numbers in columns with a format are the texts that the format reads.
    fn with_texts_of_times<'r>(&self, row: &'r Map<String, Value>) -> Cow<'r, Map<String, Value>> {
        let mut row = Cow::Borrowed(row);
        for (column, format) in &self.formats {
            let text = match row.get(column) {
                Some(Value::Number(number)) => format.text_of_number(&number.to_string()),
                _ => continue,
            };
            row.to_mut().insert(column.clone(), Value::String(text));
        }
        row
    }

    /// Applies to one row given as JSON; absent and null fields are null. A field that the source does not have is a
    /// fault, and so is a row that a step of the pipeline removes ([`codes::FILTERED`]): the fault names the filter. Dates
    /// and times of a column with a format are written in it, as in the files of the source.
    pub fn apply_row(&self, row: &Map<String, Value>) -> Result<Map<String, Value>> {
        if let Some(unknown) = row.keys().find(|name| self.source.index_of(name).is_err()) {
            return Err(unknown_column(unknown, &self.source));
        }
        self.refuse_values_of_other_kinds(row)?;
        let row = self.with_texts_of_times(row);
        let mut decoder = arrow::json::ReaderBuilder::new(Arc::new(row_schema(&self.input)))
            .with_coerce_primitive(true)
            .build_decoder()?;
        decoder.serialize(&[row.as_ref()])?;
        let batch = match decoder.flush()? {
            Some(batch) => batch,
            None => {
                let nulls = self
                    .input
                    .fields()
                    .iter()
                    .map(|field| new_null_array(field.data_type(), 1));
                RecordBatch::try_new(self.nullable_input.clone(), nulls.collect())?
            }
        };
        let AppliedBatch { rows, rows_after } = self.apply_steps(&batch)?;
        if rows.num_rows() == 0 {
            return Err(self.unaligned_fault(1, &rows_after));
        }
        let row = rows.slice(0, 1);
        check_times_have_texts(&row)?;
        let mut text = Vec::new();
        let mut writer = arrow::json::WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, arrow::json::writer::LineDelimited>(&mut text);
        writer.write(&row)?;
        writer.finish()?;
        serde_json::from_slice(&text)
            .map_err(|error| Fault::internal("a row cannot be read back").cause(error))
    }
}

fn transformed_target(bound: &BoundPipeline, node: &str) -> Option<String> {
    let target = bound.flows.get(node)?.target.as_ref()?;
    Some(target.column.clone())
}

/// The fault of forecasts without the state of the rows before.
fn without_state(node: &str) -> Fault {
    let message = format!(
        "forecasts begin after the last rows of series, and there is no serving state of `{node}`"
    );
    Fault::new(codes::UNSUPPORTED, message)
        .step(node)
        .hint(format!(
            "declare `serving: {{ from: {node} }}` in the spec, and run it"
        ))
}

/// The step that is served: the named one, that of the serving state, or that of the first sink.
pub(crate) fn served_node(artifact: &Artifact, node: Option<&str>) -> Result<String> {
    if let Some(node) = node {
        return Ok(node.to_owned());
    }
    if let Some(reference) = &artifact.serving {
        return Ok(reference.manifest.node.clone());
    }
    let pipeline = &artifact.pipeline;
    let sink = pipeline.sinks.first().map(|sink| sink.from.as_str());
    let last = pipeline.nodes.last().map(|node| node.name.as_str());
    sink.or(last)
        .map(str::to_owned)
        .ok_or_else(|| Fault::new(codes::UNKNOWN_NAME, "the artifact has no step to apply"))
}

/// Refuses windows and joins: there is no state for them.
fn refuse_windows(bound: &BoundPipeline, chain: &OpChain, node: &str) -> Result<()> {
    let Some(ChainWindow { op, .. }) = chain.windows().first() else {
        return Ok(());
    };
    let label = &bound.ops[*op].label;
    let needs = match &bound.ops[*op].op {
        PlanOp::Join(join) => format!("the rows of `{}`", join.other),
        PlanOp::Series(_) => "whole series".to_owned(),
        _ => "the rows before".to_owned(),
    };
    let message = format!("`{label}` needs {needs}, so `{node}` cannot be applied to a batch");
    Err(Fault::new(codes::UNSUPPORTED, message).hint(
        "declare `serving: { from: STEP }` in the spec and run it, so that the artifact holds \
         what windows need; or use `forebay apply` on a dataset with its history",
    ))
}

/// Rows in the order of the given batch. `origins` has the row of the batch that each row is computed from; rows that a
/// step added have none there, and follow the row before them.
fn in_given_order(rows: &RecordBatch, origins: &[u64], batch_rows: usize) -> Result<RecordBatch> {
    let mut last = 0;
    let mut order: Vec<(u64, u32)> = Vec::with_capacity(origins.len());
    for (row, origin) in (0..).zip(origins) {
        if *origin < batch_rows as u64 {
            last = *origin;
        }
        order.push((last, row));
    }
    order.sort_unstable();
    take_all(rows, &order.into_iter().map(|(_, row)| row).collect())
}

/// Consecutive rows of a batch that come from a file, for faults.
pub(crate) struct FileRows {
    /// The file.
    pub file: Arc<str>,
    /// Position in the file of the first row.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
}

/// Names the file of the first row of a fault, and the positions of its rows there. Where no row is known, the file is
/// that of all rows, if it is only one.
fn locate_in_files(fault: Fault, files: &[FileRows]) -> Fault {
    let row = fault.site().rows.first().copied();
    let mut first = 0;
    for part in files {
        let range = first..first + part.rows;
        let holds_row = match row {
            Some(row) => range.contains(&row),
            None => files.len() == 1,
        };
        if holds_row {
            let fault = fault.map_rows(|row| {
                let offset = row.checked_sub(range.start)?;
                (offset < part.rows).then_some(part.first_row + offset)
            });
            return fault.replace_file(&*part.file);
        }
        first = range.end;
    }
    fault
}

/// Batches that follow each other in time.
pub(crate) struct ServedRun<'m> {
    model: &'m ServingModel,
    live: Option<LiveAnswer<'m>>,
    counts: RowCounts,
}

impl ServedRun<'_> {
    /// Counts of the rows of all batches so far.
    pub fn counts(&self) -> &RowCounts {
        &self.counts
    }

    /// Applies to the next batch, whose rows come from these files.
    pub fn apply(&mut self, batch: &RecordBatch, files: &[FileRows]) -> Result<RecordBatch> {
        Ok(self.apply_steps(batch, files)?.rows)
    }

    /// Rows without files come with a request.
    fn apply_steps(&mut self, batch: &RecordBatch, files: &[FileRows]) -> Result<AppliedBatch> {
        let model = self.model;
        let input_rows = model.input_rows(batch);
        let InputRows { batch: rows, order } =
            input_rows.map_err(|fault| locate_in_files(fault, files))?;
        let mut chunk = Chunk::of_source(rows, model.chain.source());
        let only_file = match files {
            [only] if order.is_none() => Some(only),
            _ => None,
        };
        if let Some(only) = only_file {
            chunk.file = only.file.clone();
            chunk.first_row = only.first_row;
        }
        if let Some(order) = &order {
            // The keys of rows are their positions in the given batch.
            chunk.keys = Some(RowKeys::from_keys(
                order.values().iter().map(|row| u64::from(*row)),
            ));
        }
        let mut result = None;
        let mut without_history = 0;
        let mut rows_after = vec![0; model.removing.len()];
        let mut stateless = Carry::default();
        let (carry, joins) = match &mut self.live {
            Some(live) => {
                let (carry, joins) = live.parts();
                (carry, Some(joins))
            }
            None => (&mut stateless, None),
        };
        let run = model.chain.run(&[chunk], carry, &mut |tap, input| {
            if let Some(step) = tap.checked_sub(1) {
                match rows_after.get_mut(step) {
                    Some(rows) => *rows = input.rows,
                    None => {
                        let join = step - model.removing.len();
                        let joins =
                            joins.ok_or_else(|| Fault::internal("a join without a state"))?;
                        joins.look_up(join, input.columns, input.rows)?;
                    }
                }
                return Ok(());
            }
            // Marks of rows without history follow the columns.
            if let Some(marks) = input.columns.get(model.output.fields().len()) {
                without_history = marks.as_boolean().true_count() as u64;
            }
            let mut columns = Vec::with_capacity(input.columns.len());
            for (column, field) in input.columns.iter().zip(model.output.fields()) {
                columns.push(arrow::compute::cast(column, field.data_type())?);
            }
            let options = RecordBatchOptions::new().with_row_count(Some(input.rows));
            let applied =
                RecordBatch::try_new_with_options(model.output.clone(), columns, &options)?;
            result = Some(match input.keys.filter(|_| order.is_some()) {
                Some(origins) => in_given_order(&applied, origins, batch.num_rows())?,
                None => applied,
            });
            Ok(())
        });
        let counts = run.map_err(|fault| {
            if only_file.is_some() {
                return fault;
            }
            let fault = match &order {
                Some(order) => fault.map_rows(|row| {
                    let row = usize::try_from(row).ok()?;
                    order.values().get(row).map(|row| u64::from(*row))
                }),
                None => fault,
            };
            locate_in_files(fault, files)
        })?;
        self.counts.add(&counts);
        self.counts.without_history += without_history;
        let result = result.ok_or_else(|| Fault::internal("a model gave no result"))?;
        Ok(AppliedBatch {
            rows: result.project(&model.outputs_of(batch.schema_ref()))?,
            rows_after,
        })
    }
}

/// For each of these columns of a stream, true if it is a column of the source that no operation
/// uses.
fn passed_columns(bound: &BoundPipeline, stream: &OpStream, columns: &[String]) -> Vec<bool> {
    // The operations of no column in particular: filters.
    let index = StreamIndex::new(bound, stream);
    let op_count = stream.ops.len();
    let (common, filtered_by) = index.slice_for_columns(op_count, &[]);
    let slices: Vec<_> = columns
        .iter()
        .map(|column| index.slice_for_columns(op_count, &[column.as_str()]))
        .collect();
    let mut used: HashSet<&String> = HashSet::new();
    for (column, (_, needed)) in columns.iter().zip(&slices) {
        used.extend(needed.iter().filter(|name| *name != column));
    }
    let mut passed = Vec::with_capacity(columns.len());
    for (column, (ops, needed)) in columns.iter().zip(&slices) {
        let is_unchanged =
            *ops == common && needed.contains(column) && !filtered_by.contains(column);
        passed.push(is_unchanged && !used.contains(column));
    }
    passed
}

/// The columns of one row in their decoded form: numbers and times as texts, which are then parsed
/// like those of files.
fn row_schema(schema: &Schema) -> Schema {
    let mut fields = Vec::new();
    for field in schema.fields() {
        let data_type = field.data_type();
        let is_text = data_type.is_integer()
            || matches!(data_type, DataType::Float32 | DataType::Float64)
            || matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
        let data_type = if is_text { &DataType::Utf8 } else { data_type };
        fields.push(Field::new(field.name(), data_type.clone(), true));
    }
    Schema::new(fields)
}

/// Formats of the columns of a source that are dates and times written in one.
fn time_formats(
    pipeline: &Pipeline,
    source: &str,
    columns: &Schema,
) -> BTreeMap<String, TimeFormat> {
    let mut formats = BTreeMap::new();
    let Some(source) = pipeline.source(source) else {
        return formats;
    };
    for field in columns.fields() {
        if let Some(format) = source.time_format(field.name()) {
            formats.insert(field.name().clone(), format);
        }
    }
    formats
}

/// The rules by which texts of served rows are read: those by which the files of the source are. Where these hold
/// types, a time without an offset is local to the zone of its column.
fn text_rules(pipeline: &Pipeline, source: &str, columns: &Schema) -> BTreeMap<String, TextRules> {
    let mut rules = BTreeMap::new();
    let Some(source) = pipeline.source(source) else {
        return rules;
    };
    let has_types = !FORMATS_WITHOUT_TYPES.contains(&source.format.as_str());
    for field in columns.fields() {
        let is_zoned = matches!(field.data_type(), DataType::Timestamp(_, Some(_)));
        let is_declared = source.declares_type(field.name());
        if (has_types && is_zoned) || (!has_types && is_declared) {
            rules.insert(field.name().clone(), TextRules::declared());
        }
    }
    rules
}

/// The first value in JSON, also in lists and objects, that is of another kind than its type.
fn value_of_other_kind<'v>(
    value: &'v Value,
    of: &DataType,
    takes_texts_for_numbers: bool,
) -> Option<&'v Value> {
    match (logical_type(of), value) {
        (DataType::Utf8, Value::Number(_) | Value::Bool(_)) => Some(value),
        (of, Value::String(_)) if of.is_integer() || of.is_floating() => {
            (!takes_texts_for_numbers).then_some(value)
        }
        (of, Value::Bool(_)) if of.is_numeric() => Some(value),
        (DataType::Boolean, Value::Number(_) | Value::String(_)) => Some(value),
        (DataType::Struct(fields), Value::Object(object)) => fields.iter().find_map(|field| {
            let inside = object.get(field.name())?;
            value_of_other_kind(inside, field.data_type(), takes_texts_for_numbers)
        }),
        (
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
            Value::Array(items),
        ) => items.iter().find_map(|inside| {
            value_of_other_kind(inside, item.data_type(), takes_texts_for_numbers)
        }),
        _ => None,
    }
}

fn nullable(schema: &Schema) -> Schema {
    let mut fields = Vec::new();
    for field in schema.fields() {
        fields.push(field.as_ref().clone().with_nullable(true));
    }
    Schema::new(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_batch_are_located_in_their_files() {
        let part = |file: &str, first_row, rows| FileRows {
            file: Arc::from(file),
            first_row,
            rows,
        };
        let files = [part("a.csv", 100, 10), part("b.csv", 0, 5)];
        let located = |rows: &[u64], files: &[FileRows]| {
            let fault = Fault::new(codes::BAD_ROW, "a value").file("source s");
            let fault = locate_in_files(fault.rows(rows.iter().copied()), files);
            let site = fault.site();
            (site.file.clone().unwrap(), site.rows.clone())
        };
        assert_eq!(located(&[3], &files), ("a.csv".to_owned(), vec![103]));
        assert_eq!(located(&[14], &files), ("b.csv".to_owned(), vec![4]));
        // Rows of other files than the first are dropped.
        assert_eq!(located(&[9, 10], &files), ("a.csv".to_owned(), vec![109]));
        assert_eq!(located(&[], &files), ("source s".to_owned(), vec![]));
        assert_eq!(located(&[], &files[..1]), ("a.csv".to_owned(), vec![]));
        assert_eq!(located(&[2], &[]), ("source s".to_owned(), vec![2]));
    }
}
