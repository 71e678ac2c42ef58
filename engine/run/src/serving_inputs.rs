//! Columns that new rows may lack: those that only the label needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{Field, Schema};
use forebay_commit::Artifact;
use forebay_contract::{ChunkIterator, ScanRequest, Source, SourceWrapper};
use forebay_execute::SourceInput;
use forebay_model::{Chunk, Dataset, Fault, Pipeline, PipelineSource, Result, Span, codes};
use forebay_plan::{
    BaseDataset, BoundPipeline, FUTURE_PART, GatherBy, NeededColumns, NodeFlow, OpId, OpStream,
    PlanOp, all_columns, base_column, part_column, slice_for_columns,
};
use forebay_storage::{Event, MetadataCache, StorageClient};

use crate::served_columns::{OptionalColumn, OptionalColumns, ServedInputs};
use crate::session::Session;

/// Marks a field that stands for a column which the files lack.
const ABSENT: &str = "forebay.absent";

/// Marks a field that the files hold as another type.
const RETYPED: &str = "forebay.retyped";

/// A field that the files hold as another type.
pub(crate) fn retyped_field(field: &Field) -> Field {
    marked_field(field, RETYPED)
}

fn marked_field(field: &Field, mark: &str) -> Field {
    let marks = [(mark.to_owned(), String::new())];
    field.clone().with_metadata(marks.into())
}

/// True for a field that stands for a column which the files lack.
pub(crate) fn is_absent(field: &Field) -> bool {
    field.metadata().contains_key(ABSENT)
}

impl Session {
    /// The columns that the sources of an applied pipeline had in the fit, and those that they may
    /// lack.
    pub(crate) fn served_inputs(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
    ) -> Result<ServedInputs> {
        Ok(ServedInputs {
            optional: self.optional_columns(pipeline, artifact)?,
            schemas: artifact.schemas.clone(),
            labels: self.labels_of(artifact),
            is_application: true,
        })
    }

    /// The columns that the sources of an applied pipeline may lack: columns on which only the
    /// label and the split depend. If no label is known, the columns that pass unchanged and unused.
    fn optional_columns(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
    ) -> Result<OptionalColumns> {
        let bound = self.bind(pipeline, &artifact.datasets())?;
        let labels = self.labels_of(artifact);
        // Columns that outputs are made of; those that they are computed of, where passing on is no use; and those that
        // labels and parts of the split are computed of.
        let mut required = RequiredColumns::new(&bound);
        let mut computed = RequiredColumns::new(&bound);
        let mut of_labels = RequiredColumns::new(&bound);
        for sink in &pipeline.sinks {
            let Some(flow) = bound.flows.get(&sink.from) else {
                continue;
            };
            let parts = pipeline
                .split
                .iter()
                .filter(|_| flow.parts && !labels.is_empty());
            let parts = parts.flat_map(|split| split.parts()).map(part_column);
            let parts: Vec<String> = parts.collect();
            for stream in flow.streams_of(sink.split.as_deref()).0 {
                let mut columns = Vec::new();
                let mut computed_columns = Vec::new();
                let mut label_columns = parts.clone();
                for field in flow.schema.fields() {
                    let name = field.name();
                    let is_passed = is_passed(&bound, &stream, name);
                    if labels.contains(name) {
                        label_columns.push(name.clone());
                        continue;
                    }
                    if !is_passed {
                        computed_columns.push(name.clone());
                    }
                    if !is_passed || !labels.is_empty() {
                        columns.push(name.clone());
                    }
                }
                let part = sink.split.as_deref().filter(|part| *part != FUTURE_PART);
                let part = part.map(part_column);
                columns.extend(part.clone());
                computed_columns.extend(part);
                required.add((stream.clone(), columns));
                computed.add((stream.clone(), computed_columns));
                of_labels.add((stream.clone(), label_columns));
            }
        }
        let mut optional = OptionalColumns::new();
        for source in &pipeline.sources {
            let Some(schema) = artifact.schemas.get(&source.name) else {
                continue;
            };
            let mut columns = Vec::new();
            for (index, field) in schema.fields().iter().enumerate() {
                let name = field.name();
                let is_named = source.time.as_ref() == Some(name) || source.keys.contains(name);
                let is_for_labels = of_labels.is_required(&source.name, name)
                    && !computed.is_required(&source.name, name);
                if !is_named && (is_for_labels || !required.is_required(&source.name, name)) {
                    columns.push(OptionalColumn {
                        field: field.as_ref().clone().with_nullable(true),
                        index,
                    });
                }
            }
            if !columns.is_empty() {
                optional.insert(source.name.clone(), columns);
            }
        }
        Ok(optional)
    }

    /// Labels, and the columns of sources on which only labels depend.
    pub(crate) fn columns_of_labels(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
    ) -> Result<BTreeSet<String>> {
        let bound = self.bind(pipeline, &artifact.datasets())?;
        let labels = self.labels_of(artifact);
        let mut of_labels = RequiredColumns::new(&bound);
        let mut of_others = RequiredColumns::new(&bound);
        // A model's rows need not have the label in what is written of them.
        for flow in bound.flows.values() {
            let fields = flow.schema.fields().iter();
            let names = fields
                .map(|field| field.name())
                .filter(|name| labels.contains(*name));
            let label_columns: Vec<String> = names.cloned().collect();
            for stream in &flow.streams {
                of_labels.add((stream.clone(), label_columns.clone()));
            }
        }
        for sink in &pipeline.sinks {
            let Some(flow) = bound.flows.get(&sink.from) else {
                continue;
            };
            for stream in flow.streams_of(sink.split.as_deref()).0 {
                let mut other_columns = Vec::new();
                for field in flow.schema.fields() {
                    let name = field.name();
                    if !labels.contains(name) && !is_passed(&bound, &stream, name) {
                        other_columns.push(name.clone());
                    }
                }
                of_others.add((stream, other_columns));
            }
        }
        let mut columns = labels;
        for (source, names) in &of_labels.columns {
            let only_labels = names.iter();
            let only_labels = only_labels.filter(|name| !of_others.is_required(source, name));
            columns.extend(only_labels.cloned());
        }
        Ok(columns)
    }

    pub(crate) fn labels_of(&self, artifact: &Artifact) -> BTreeSet<String> {
        let labels = artifact.origin.labels.iter();
        labels.chain(&self.served.labels).cloned().collect()
    }

    /// Discovers a source, without the declared columns that it may lack and that are not there.
    /// Files without types are read with those of the fit.
    pub(crate) fn discover_served(
        &self,
        io: &StorageClient,
        source: &PipelineSource,
        mut reader: Arc<dyn Source>,
        watched: &[String],
        metadata_cache: &MetadataCache,
    ) -> Result<(Arc<dyn Source>, Dataset)> {
        let mut declared = source.clone();
        loop {
            let fault = match reader.discover_with_cache(io, watched, metadata_cache) {
                Ok(dataset) => {
                    return self.with_declared_types(io, declared, reader, dataset, watched);
                }
                Err(fault) => fault,
            };
            let Some(absent) = self.absent_column(source, &fault) else {
                return Err(fault);
            };
            if !declared.undeclare(&absent) {
                return Err(fault);
            }
            reader = self.connectors.source(&declared.format, &declared.config)?;
        }
    }

    /// Discovers a source again with the types of the fit, where its files hold no types and the
    /// first rows look like others.
    fn with_declared_types(
        &self,
        io: &StorageClient,
        mut source: PipelineSource,
        reader: Arc<dyn Source>,
        dataset: Dataset,
        watched: &[String],
    ) -> Result<(Arc<dyn Source>, Dataset)> {
        let Some(types) = self.types_to_declare(&source, &dataset.schema) else {
            return Ok((reader, dataset));
        };
        let differing = self.fields_of_fit(&source, &dataset.schema);
        // A value that an inferred type does not hold is refused here, too: `00742` is no integer.
        source.declare_found_types(types);
        let typed = self.connectors.source(&source.format, &source.config)?;
        // Columns that folders hold cannot be declared: such sources are converted as they are read.
        let Ok(mut dataset) = typed.discover(io, watched) else {
            return Ok((reader, dataset));
        };
        let mut fields = Vec::new();
        for field in dataset.schema.fields() {
            if differing
                .iter()
                .any(|differing| differing.name() == field.name())
            {
                fields.push(Arc::new(retyped_field(field)));
            } else {
                fields.push(field.clone());
            }
        }
        dataset.schema = Arc::new(Schema::new(fields));
        Ok((typed, dataset))
    }

    /// The column that a fault misses, if the source may lack it.
    fn absent_column(&self, source: &PipelineSource, fault: &Fault) -> Option<String> {
        let optional = self.attempt.served_inputs.optional.get(&source.name)?;
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
            .attempt
            .served_inputs
            .optional
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
        for OptionalColumn { field, index } in &absent {
            fields.insert((*index).min(fields.len()), marked_field(field, ABSENT));
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

/// True where a source has other columns than its files: nulls for those that they lack, or types of the fit.
pub(crate) fn has_served_columns(datasets: &BTreeMap<String, Dataset>) -> bool {
    let mut fields = datasets
        .values()
        .flat_map(|dataset| dataset.schema.fields());
    fields.any(|field| is_absent(field) || field.metadata().contains_key(RETYPED))
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

/// The columns of sources that some columns depend on.
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

    /// Adds the columns that some columns at the end of a stream depend on, and those that select
    /// its rows.
    fn add(&mut self, needed: NeededColumns) {
        let bound = self.bound;
        let mut open = vec![needed];
        while let Some((stream, columns)) = open.pop() {
            if !self
                .seen
                .insert((stream.base, stream.ops.to_vec(), columns.clone()))
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
                    let other_columns: Vec<String> = join.columns_there().cloned().collect();
                    open.extend(columns_of(flow, &other_columns));
                }
                open.extend(self.read_by_run(op));
            }
            match &bound.bases[stream.base] {
                BaseDataset::Source(source) => {
                    let columns = self.columns.entry(source.clone()).or_default();
                    columns.extend(base_columns);
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
        asks.filter(|analyzer| is_gather || analyzer.ask.of.is_some() || analyzer.ask.per_run)
            .flat_map(|analyzer| analyzer.needed_columns())
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

/// A source that returns nulls for columns that its files lack.
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

impl SourceWrapper for AbsentColumns {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn open_span(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let is_read = |name: &&String| self.find(name).is_none();
        let columns = request.columns.iter().filter(is_read).cloned().collect();
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
}

/// A chunk with the named columns: nulls for those that are absent.
fn filled(chunk: Chunk, names: &[String], absent: &[Field]) -> Result<Chunk> {
    let rows = chunk.batch.num_rows();
    let mut read = chunk
        .batch
        .columns()
        .iter()
        .zip(chunk.batch.schema_ref().fields());
    let mut fields = Vec::new();
    let mut columns = Vec::new();
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
