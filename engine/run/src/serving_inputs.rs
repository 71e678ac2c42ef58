//! Columns that new rows may lack: those that only the label needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{Field, Schema};
use forebay_commit::Artifact;
use forebay_execute::SourceInput;
use forebay_model::{Chunk, Dataset, Fault, Pipeline, PipelineSource, Result, Span, codes};
use forebay_plan::{
    BaseDataset, BoundPipeline, FUTURE_PART, GatherBy, NeededColumns, NodeFlow, OpId, OpStream,
    PlanOp, all_columns, base_column, part_column, slice_for_columns,
};
use forebay_storage::{
    ChunkIterator, Event, MetadataCache, RowRuns, ScanRequest, Source, StorageClient,
};
use serde_json::Value;

use crate::session::Session;

/// By source, the columns that new rows may lack, in order.
pub(crate) type OptionalColumns = BTreeMap<String, Vec<OptionalColumn>>;

/// A column that new rows may lack.
#[derive(Debug, Clone)]
pub(crate) struct OptionalColumn {
    field: Field,
    /// Its place among the columns of the fit.
    place: usize,
}

/// Marks a field that stands for a column which the files lack.
const ABSENT: &str = "forebay.absent";

impl Session {
    /// The columns that the sources of an applied pipeline may lack: those that nothing which is written is made of,
    /// but the label. Where no label is known, these are the columns that pass unchanged and unused.
    pub(crate) fn optional_columns(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
    ) -> Result<OptionalColumns> {
        let bound = self.bind(pipeline, &artifact.datasets())?;
        let labels: BTreeSet<&String> = artifact
            .origin
            .labels
            .iter()
            .chain(&self.served.labels)
            .collect();
        let mut required = RequiredColumns::new(&bound);
        for sink in &pipeline.sinks {
            let Some(flow) = bound.flows.get(&sink.from) else {
                continue;
            };
            for stream in flow.streams_of(sink.split.as_deref()).0 {
                let names = flow.schema.fields().iter().map(|field| field.name());
                let features = names.filter(|name| {
                    if labels.is_empty() {
                        !is_passed(&bound, &stream, name)
                    } else {
                        !labels.contains(name)
                    }
                });
                let part = sink.split.as_deref().filter(|part| *part != FUTURE_PART);
                let features = features.cloned().chain(part.map(part_column));
                required.add((stream.clone(), features.collect()));
            }
        }
        let mut optional = OptionalColumns::new();
        for source in &pipeline.sources {
            let Some(schema) = artifact.schemas.get(&source.name) else {
                continue;
            };
            let named = |name: &String| {
                source.time.as_ref() == Some(name)
                    || source.keys.contains(name)
                    || required.is_required(&source.name, name)
            };
            let fields = schema.fields().iter().enumerate();
            let columns: Vec<OptionalColumn> = fields
                .filter(|(_, field)| !named(field.name()))
                .map(|(place, field)| OptionalColumn {
                    field: field.as_ref().clone().with_nullable(true),
                    place,
                })
                .collect();
            if !columns.is_empty() {
                optional.insert(source.name.clone(), columns);
            }
        }
        Ok(optional)
    }

    /// Discovers a source, without the declared columns that it may lack and that are not there.
    pub(crate) fn discover_served(
        &self,
        io: &StorageClient,
        source: &PipelineSource,
        mut reader: Arc<dyn Source>,
        watch: &[String],
        notes: &MetadataCache,
    ) -> Result<(Arc<dyn Source>, Dataset)> {
        let mut config = source.config.clone();
        loop {
            let fault = match reader.discover_with_cache(io, watch, notes) {
                Ok(dataset) => return Ok((reader, dataset)),
                Err(fault) => fault,
            };
            let Some(absent) = self.absent_column(source, &fault) else {
                return Err(fault);
            };
            if !undeclare(&mut config, &absent) {
                return Err(fault);
            }
            reader = self.connectors.source(&source.format, &config)?;
        }
    }

    /// The column that a fault misses, if the source may lack it.
    fn absent_column(&self, source: &PipelineSource, fault: &Fault) -> Option<String> {
        let optional = self.optional_columns.get(&source.name)?;
        let is_missing = [codes::SCHEMA_DRIFT, codes::UNKNOWN_COLUMN].contains(&fault.code());
        let column = fault.site().column.as_ref().filter(|_| is_missing)?;
        let is_optional = optional
            .iter()
            .any(|optional| optional.field.name() == column);
        is_optional.then(|| column.clone())
    }

    /// The source with nulls for the columns that it may lack and that its files do not have.
    pub(crate) fn with_absent_columns(
        &self,
        source: &PipelineSource,
        input: SourceInput,
    ) -> SourceInput {
        let optional = self
            .optional_columns
            .get(&source.name)
            .into_iter()
            .flatten();
        let schema = &input.dataset.schema;
        let absent: Vec<&OptionalColumn> = optional
            .filter(|column| schema.field_with_name(column.field.name()).is_err())
            .collect();
        if absent.is_empty() {
            return input;
        }
        let names: Vec<String> = absent
            .iter()
            .map(|column| format!("`{}`", column.field.name()))
            .collect();
        let message = format!(
            "`{}` has no {}, which no feature is made of: what is written has nulls there",
            source.name,
            names.join(", ")
        );
        self.watch.on_event(Event::Warning { message });
        let mut fields: Vec<Field> = schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone())
            .collect();
        for OptionalColumn { field, place } in &absent {
            let marks = [(ABSENT.to_owned(), String::new())];
            let field = field.clone().with_metadata(marks.into());
            fields.insert((*place).min(fields.len()), field);
        }
        let absent = absent.iter().map(|column| column.field.clone()).collect();
        let mut dataset = Arc::unwrap_or_clone(input.dataset);
        dataset.schema = Arc::new(Schema::new(fields));
        SourceInput {
            dataset: Arc::new(dataset),
            source: Arc::new(AbsentColumns {
                inner: input.source,
                absent,
            }),
            in_time_order: input.in_time_order,
        }
    }
}

/// True where a source has nulls for columns that its files lack.
pub(crate) fn has_absent_columns(datasets: &BTreeMap<String, Dataset>) -> bool {
    let mut fields = datasets
        .values()
        .flat_map(|dataset| dataset.schema.fields());
    fields.any(|field| field.metadata().contains_key(ABSENT))
}

/// Removes a column from the declared ones; false where it is not among them.
fn undeclare(config: &mut Value, column: &str) -> bool {
    match config.get_mut("columns") {
        Some(Value::Object(columns)) => {
            let declared = columns.len();
            // The order of the others stays.
            let others = std::mem::take(columns).into_iter();
            *columns = others.filter(|(name, _)| name != column).collect();
            columns.len() < declared
        }
        Some(Value::Array(columns)) => {
            let declared = columns.len();
            columns.retain(|name| name != column);
            columns.len() < declared
        }
        _ => false,
    }
}

/// True where a column is an unchanged column of a source.
fn is_passed(bound: &BoundPipeline, stream: &OpStream, column: &str) -> bool {
    let Some(column) = base_column(bound, stream, column) else {
        return false;
    };
    match &bound.bases[stream.base] {
        BaseDataset::Source(_) => true,
        BaseDataset::Gathered(op) => {
            let inputs = bound.gather_inputs.get(op).into_iter().flatten();
            let mut streams = inputs.flat_map(|(_, flow)| &flow.streams);
            keeps_rows(bound, *op).is_some()
                && streams.all(|stream| is_passed(bound, stream, &column))
        }
    }
}

/// The keys of a gather that keeps one row for each of them.
fn keeps_rows(bound: &BoundPipeline, op: OpId) -> Option<&Vec<String>> {
    match &bound.ops[op].op {
        PlanOp::Gather(gather) => match &gather.lower {
            GatherBy::OnePerKey { keys, .. } => Some(keys),
            _ => None,
        },
        _ => None,
    }
}

/// The columns of sources that some columns are made of.
struct RequiredColumns<'a> {
    bound: &'a BoundPipeline,
    columns: BTreeMap<String, BTreeSet<String>>,
    seen: BTreeSet<(usize, Vec<OpId>, Vec<String>)>,
}

impl<'a> RequiredColumns<'a> {
    fn new(bound: &'a BoundPipeline) -> RequiredColumns<'a> {
        RequiredColumns {
            bound,
            columns: BTreeMap::new(),
            seen: BTreeSet::new(),
        }
    }

    fn is_required(&self, source: &str, column: &str) -> bool {
        self.columns
            .get(source)
            .is_some_and(|columns| columns.contains(column))
    }

    /// Adds what some columns at the end of a stream are made of, and what selects its rows.
    fn add(&mut self, needed: NeededColumns) {
        let bound = self.bound;
        let mut open = vec![needed];
        while let Some((stream, columns)) = open.pop() {
            if !self
                .seen
                .insert((stream.base, stream.ops.clone(), columns.clone()))
            {
                continue;
            }
            let names: Vec<&str> = columns.iter().map(String::as_str).collect();
            let (positions, base_columns) = slice_for_columns(bound, &stream, &names);
            for position in positions {
                let op = stream.ops[position];
                if let (PlanOp::Join(join), Some(flow)) =
                    (&bound.ops[op].op, bound.join_inputs.get(&op))
                {
                    let there: Vec<String> = join.columns_there().cloned().collect();
                    open.extend(columns_of(flow, &there));
                }
                open.extend(self.read_by_run(op));
            }
            match &bound.bases[stream.base] {
                BaseDataset::Source(source) => {
                    let known = self.columns.entry(source.clone()).or_default();
                    known.extend(base_columns);
                }
                BaseDataset::Gathered(op) => {
                    let inputs = bound.gather_inputs.get(op).into_iter().flatten();
                    for (_, flow) in inputs {
                        open.extend(self.gathered(*op, flow, &base_columns));
                    }
                    open.extend(self.read_by_run(*op));
                }
            }
        }
    }

    /// The columns that analyzers of an operation read in each run.
    fn read_by_run(&self, op: OpId) -> Vec<NeededColumns> {
        let asks = self.bound.ops[op].asks.iter();
        let asks = asks.map(|ask| &self.bound.asks[*ask]);
        let is_gather = matches!(self.bound.ops[op].op, PlanOp::Gather(_));
        asks.filter(|asked| is_gather || asked.ask.of.is_some() || asked.ask.per_run)
            .flat_map(|asked| asked.needed_columns())
            .collect()
    }

    /// The columns of an input that a gather reads for some of its own.
    fn gathered(&self, op: OpId, flow: &NodeFlow, columns: &[String]) -> Vec<NeededColumns> {
        let Some(keys) = keeps_rows(self.bound, op) else {
            return all_columns(flow);
        };
        // Rows that are equal in all columns are equal without one that is null in all of them.
        let is_by_all = keys.len() == flow.schema.fields().len();
        let keys = keys.iter().filter(|_| !is_by_all);
        let columns: Vec<String> = columns.iter().chain(keys).cloned().collect();
        columns_of(flow, &columns)
    }
}

fn columns_of(flow: &NodeFlow, columns: &[String]) -> Vec<NeededColumns> {
    let streams = flow.streams.iter();
    streams
        .map(|stream| (stream.clone(), columns.to_vec()))
        .collect()
}

/// A source that gives nulls for columns that its files lack.
#[derive(Debug)]
struct AbsentColumns {
    inner: Arc<dyn Source>,
    absent: Vec<Field>,
}

impl AbsentColumns {
    fn find(&self, name: &str) -> Option<&Field> {
        self.absent.iter().find(|field| field.name() == name)
    }
}

impl Source for AbsentColumns {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        self.inner.discover(io, watch)
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let there = |name: &&String| self.find(name).is_none();
        let columns = request.columns.iter().filter(there).cloned().collect();
        let fields = request.schema.fields().iter();
        let fields = fields.filter(|field| self.find(field.name()).is_none());
        let schema = Schema::new(fields.cloned().collect::<Vec<_>>());
        let inner = ScanRequest {
            columns,
            schema: Arc::new(schema),
            // A condition may be about a column that is not there.
            pruning: Vec::new(),
            ..request.clone()
        };
        let chunks = self.inner.open(io, span, &inner)?;
        let absent = self.absent.clone();
        let names = request.columns.clone();
        Ok(Box::new(
            chunks.map(move |chunk| filled(chunk?, &names, &absent)),
        ))
    }

    fn split_spans(
        &self,
        io: &StorageClient,
        spans: &[Span],
        runs: Option<RowRuns>,
    ) -> Result<Vec<Span>> {
        self.inner.split_spans(io, spans, runs)
    }
}

/// A chunk with the named columns: nulls for those that are absent.
fn filled(chunk: Chunk, names: &[String], absent: &[Field]) -> Result<Chunk> {
    let rows = chunk.batch.num_rows();
    let mut read = chunk
        .batch
        .columns()
        .iter()
        .zip(chunk.batch.schema_ref().fields());
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for name in names {
        if let Some(field) = absent.iter().find(|field| field.name() == name) {
            fields.push(Arc::new(field.clone()));
            columns.push(new_null_array(field.data_type(), rows));
            continue;
        }
        let (column, field) = read
            .next()
            .ok_or_else(|| Fault::internal("a source left out a column"))?;
        fields.push(field.clone());
        columns.push(column.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::new(Schema::new(fields));
    Ok(Chunk {
        batch: RecordBatch::try_new_with_options(schema, columns, &options)?,
        ..chunk
    })
}
