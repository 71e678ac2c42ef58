//! A pass that needs all rows at once: the query engine runs it, with spilling, and its result is kept as an
//! intermediate dataset.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::DataFusionError;
use datafusion::datasource::provider_as_source;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use forebay_cluster::{QueryEnd, QueryRows};
use forebay_model::{
    ContentId, Dataset, Fault, IdBuilder, Result, RowChange, WireFault, catch_panic, codes,
    find_io_error, is_unsized_vector, logical_type,
};
use forebay_plan::{
    Carry, ChainContext, ColumnTap, FutureRowsOp, GatherBy, GatherOp, NodeFlow, OpChain, OpId,
    PlanOp, RowCounts, WindowBudget, query_plan, refuse_writing,
};
use forebay_storage::{Event, EventListener, MemoryBudget, ScanRequest, ScratchDir, StorageClient};
use forebay_threads::{for_current_span, lock, poisoned_lock};
use futures::StreamExt;

use crate::pass_context::PassContext;
use crate::query_engine::{query_config, query_runtime};
use crate::read_ahead::{PlannedSpan, ReadAhead};
use crate::remote::ClusterHandle;
use crate::run_state::{RowOrderFailure, SortedStream, SourceInput, record_order_failure};

/// A row's position has the span's number above these bits and the row within the span below.
pub const ROW_BITS: u32 = 40;

/// Batches queued between the reading thread and the engine.
pub const QUEUE_BATCHES: usize = 2;

#[derive(Clone)]
pub struct MaterializePass<'a> {
    pub context: PassContext<'a>,
    pub watch: Arc<dyn EventListener>,
    pub scratch: &'a ScratchDir,
}

impl MaterializePass<'_> {
    /// Plans a gather over its inputs.
    pub fn open(&self, op: OpId) -> Result<MaterializePlan> {
        let bound = &self.context.program.bound;
        let PlanOp::Gather(gather) = &bound.ops[op].op else {
            return Err(Fault::internal("not a gather"));
        };
        let lower = match &gather.lower {
            GatherBy::Query(lower) => lower,
            GatherBy::Future(_) => {
                return Ok(MaterializePlan::without_query(op, gather.schema.clone()));
            }
            GatherBy::GroupBy(own) => {
                let schema = self
                    .resolve_group_by(self.only_flow(op)?, own, &gather.schema)?
                    .schema;
                return Ok(MaterializePlan::without_query(op, schema));
            }
            GatherBy::Join { join, .. } => {
                return Ok(MaterializePlan::without_query(
                    op,
                    self.joined_schema(op, join)?,
                ));
            }
            GatherBy::OnePerKey { .. } => {
                let schema = self.one_per_key_schema(self.only_flow(op)?)?;
                return Ok(MaterializePlan::without_query(op, schema));
            }
        };
        let mut inputs = Vec::new();
        let mut tallies = Vec::new();
        for (name, flow) in bound.gather_inputs.get(&op).into_iter().flatten() {
            let columns: Vec<String> = flow
                .schema
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
            let spans = self.spans(flow, &columns)?;
            tallies.push(spans.tally());
            inputs.push(self.table_of_spans(name, spans)?);
        }
        let plan = lower(inputs)?;
        refuse_writing(&plan)?;
        // The widths of vectors were not known when the steps were bound.
        let fields = gather
            .schema
            .fields()
            .iter()
            .zip(plan.schema().fields())
            .map(|(declared, planned)| {
                let open = is_unsized_vector(declared.data_type());
                let data_type = if open {
                    logical_type(planned.data_type())
                } else {
                    declared.data_type().clone()
                };
                Field::new(declared.name(), data_type, true)
            });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(MaterializePlan {
            op,
            query: Some(PlannedQuery {
                plan,
                inputs: tallies,
            }),
            schema,
        })
    }

    /// The input of a gather with a single input.
    pub fn only_flow(&self, op: OpId) -> Result<&NodeFlow> {
        match self
            .context
            .program
            .bound
            .gather_inputs
            .get(&op)
            .map(Vec::as_slice)
        {
            Some([(_, flow)]) => Ok(flow),
            _ => Err(Fault::internal("one row of each key of no rows")),
        }
    }

    /// Gives the rows of the future, as made of the last row of each series.
    fn future_rows(
        &self,
        op: OpId,
        future: &FutureRowsOp,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<GatheredCounts> {
        let asks = self.context.program.bound.ops[op].asks.iter();
        let findings = asks
            .map(|ask| self.context.finding(*ask))
            .collect::<Result<Vec<_>>>()?;
        let mut rows = 0;
        for batch in (future.rows)(&findings)? {
            let batch = batch?;
            rows += batch.num_rows() as u64;
            self.context.memory.check()?;
            take(batch)?;
        }
        let made = (RowChange::QueriedAway, RowChange::Future);
        Ok(self.settled(op, RowCounts::default(), rows, made))
    }

    /// The counts of a gather that made `rows` rows of those that it read.
    pub(crate) fn settled(
        &self,
        op: OpId,
        mut counts: RowCounts,
        rows: u64,
        changes: (RowChange, RowChange),
    ) -> GatheredCounts {
        let label = &self.context.program.bound.ops[op].label;
        counts.settle(label, rows, changes);
        GatheredCounts { rows, counts }
    }

    /// Runs the plan and gives its rows in canonical order to `rows`. A query runs on the workers, if there are any.
    pub fn run(
        &self,
        gathering: MaterializePlan,
        workers: Option<ClusterHandle<'_>>,
        rows: &mut dyn QueryRows,
    ) -> Result<GatheredCounts> {
        let MaterializePlan { op, query, schema } = gathering;
        let mut take = |batch: RecordBatch| rows.take(batch);
        let PlannedQuery { plan, inputs } = match (query, &self.context.program.bound.ops[op].op) {
            (Some(query), _) => query,
            (
                None,
                PlanOp::Gather(GatherOp {
                    lower: GatherBy::OnePerKey { keys, last },
                    ..
                }),
            ) => {
                return self.one_per_key(op, keys, *last, &schema, &mut take);
            }
            (
                None,
                PlanOp::Gather(GatherOp {
                    lower: GatherBy::GroupBy(own),
                    ..
                }),
            ) => {
                let groups = self.resolve_group_by(self.only_flow(op)?, own, &schema)?;
                return self.group_by(op, groups, &mut take);
            }
            (
                None,
                PlanOp::Gather(GatherOp {
                    lower: GatherBy::Join { join, unmatched },
                    ..
                }),
            ) => {
                return self.join_pairs(op, join, *unmatched, &schema, &mut take);
            }
            (
                None,
                PlanOp::Gather(GatherOp {
                    lower: GatherBy::Future(future),
                    ..
                }),
            ) => {
                return self.future_rows(op, future, &mut take);
            }
            (None, _) => return Err(Fault::internal("a gather without a plan")),
        };
        let mut rows = ConformedRows {
            schema: &schema,
            memory: self.context.memory,
            rows,
            count: 0,
        };
        if let Some(workers) = workers {
            match self.query_on_workers(op, workers, &mut rows) {
                Ok(QueryEnd::Done) => return self.query_counts(op, &inputs, rows.count),
                Ok(QueryEnd::NotDistributed) => {}
                // Each worker has a share of the rows, but less memory for it than the coordinator may have.
                Err(fault) if fault.code() == codes::MEMORY => {
                    let label = &self.context.program.bound.ops[op].label;
                    let message = format!(
                        "`{label}` does not fit into the memory of workers: the coordinator runs it"
                    );
                    self.watch.on_event(Event::Warning { message });
                    rows.restart()?;
                }
                Err(fault) => return Err(fault),
            }
        }
        let context = self.engine_context()?;
        let place = |error: DataFusionError| self.query_fault(op, error);
        let state = context.state();
        let physical = self
            .context
            .io
            .block_on_computation(query_plan(&state, &plan))?
            .map_err(place)?;
        let mut stream = self
            .context
            .io
            .block_on(async {
                datafusion::physical_plan::execute_stream(physical, state.task_ctx())
            })?
            .map_err(place)?;
        while let Some(batch) = self.context.io.block_on_computation(stream.next())? {
            rows.take(batch.map_err(place)?)?;
        }
        self.query_counts(op, &inputs, rows.count)
    }

    /// The counts of a query that gave `rows` rows.
    fn query_counts(&self, op: OpId, inputs: &[FlowTally], rows: u64) -> Result<GatheredCounts> {
        let mut counts = RowCounts::default();
        let mut added = RowChange::Queried;
        for input in inputs {
            counts.add(&input.row_counts()?);
            if !input.is_known()? {
                added = RowChange::Uncounted;
            }
        }
        let changes = (RowChange::QueriedAway, added);
        Ok(self.settled(op, counts, rows, changes))
    }

    /// The fault for an error of the engine that runs a query.
    pub(crate) fn query_fault(&self, op: OpId, error: DataFusionError) -> Fault {
        self.scratch.locate_fault(engine_fault(
            error,
            &self.context.program.bound.ops[op].label,
        ))
    }

    pub fn engine_context(&self) -> Result<SessionContext> {
        let config = query_config(self.context.memory, self.context.threads);
        let runtime = query_runtime(self.context.memory, self.scratch.path())?;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .build();
        Ok(SessionContext::new_with_state(state))
    }

    /// Columns of a flow as a table of one partition per thread, with the position of each row.
    pub fn input_table(
        &self,
        name: &str,
        flow: &NodeFlow,
        columns: &[String],
    ) -> Result<LogicalPlan> {
        self.table_of_spans(name, self.spans(flow, columns)?)
    }

    fn table_of_spans(&self, name: &str, spans: FlowSpans) -> Result<LogicalPlan> {
        let FlowSpans { schema, tasks, .. } = spans;
        // Window state depends on the rows before: one thread reads all spans in order.
        let threads = if in_order(&tasks) {
            1
        } else {
            self.context.threads.max(1)
        };
        let share = tasks.len().div_ceil(threads).max(1);
        let rows = |tasks: &[NumberedSpan]| {
            let rows = SpanStream {
                schema: schema.clone(),
                tasks: tasks.to_vec(),
                io: self.context.io.clone(),
                watch: self.watch.clone(),
                bytes_max: self.windows_bytes(),
            };
            Arc::new(rows) as Arc<dyn PartitionStream>
        };
        let partitions = match tasks.is_empty() {
            true => vec![rows(&[])],
            false => tasks.chunks(share).map(rows).collect(),
        };
        let fault = |error| engine_fault(error, name);
        one_time_table(
            name,
            StreamingTable::try_new(schema, partitions).map_err(fault)?,
        )
        .map_err(fault)
    }

    /// The spans to read for some columns of a flow.
    pub fn spans(&self, flow: &NodeFlow, columns: &[String]) -> Result<FlowSpans> {
        let wanted: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut tasks = Vec::new();
        let counts = Arc::new(FlowCounts::default());
        for stream in &flow.streams {
            let slice =
                forebay_plan::slice_for_columns(&self.context.program.bound, stream, &wanted);
            let want = ColumnTap {
                after: stream.ops.len(),
                columns: columns.to_vec(),
                part: None,
                marks_unfound: false,
            };
            let compile = |told: ChainContext<'_>| {
                let bound = &self.context.program.bound;
                OpChain::new(
                    bound,
                    stream,
                    &slice.0,
                    &slice.1,
                    std::slice::from_ref(&want),
                    told,
                )
            };
            let chain = self.context.with_chains(compile)?;
            let sorted = self.context.sorted_for(stream, &chain)?;
            let input = self.context.input(stream.base)?.clone();
            let rows_max = self.context.chunk_rows_max([&chain].into_iter());
            // Batches of wide rows wait in a queue.
            let share = self.context.memory.rows_bytes()
                / (self.context.threads.max(1) * (QUEUE_BATCHES + 2));
            let rows_max = rows_max
                .min(share / stored_row_bytes(&input.dataset, &slice.1).max(1))
                .max(1);
            let request = ScanRequest {
                columns: slice.1,
                schema: input.dataset.schema.clone(),
                pruning: Vec::new(),
                batch_rows: rows_max,
                row_keys: false,
            };
            let order_failure = self.context.state.order_failure.clone();
            let part = Arc::new(StreamInput {
                chain,
                input,
                request,
                sorted,
                order_failure,
                counts: counts.clone(),
            });
            let first = tasks.len();
            let spans = 0..part.input.dataset.spans.len();
            tasks.extend(spans.map(|span| NumberedSpan {
                number: first + span,
                input: part.clone(),
                span,
            }));
        }
        let learned = tasks
            .first()
            .map(|task: &NumberedSpan| task.input.chain.fields(0));
        let schema = match learned {
            Some(fields) => with_position(fields.iter().cloned()),
            None => schema_with_positions(flow, columns)?,
        };
        Ok(FlowSpans {
            schema,
            tasks,
            counts,
        })
    }

    /// Reads spans in order; stops when `take` returns false.
    pub fn read(
        &self,
        FlowSpans { schema, tasks, .. }: &FlowSpans,
        which: Range<usize>,
        take: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<()> {
        let carry = Carry::new(&WindowBudget::new(self.windows_bytes()));
        send_batches(
            &tasks[which],
            schema,
            self.context.io,
            self.watch.as_ref(),
            carry,
            take,
        )
    }

    /// Reads spans in order, with strings in the layout in which they come; stops when `take` returns false.
    pub fn scan(
        &self,
        FlowSpans { schema, tasks, .. }: &FlowSpans,
        which: Range<usize>,
        take: &mut dyn FnMut(SpanRows) -> Result<bool>,
    ) -> Result<()> {
        let carry = Carry::new(&WindowBudget::new(self.windows_bytes()));
        scan_spans(
            &tasks[which],
            schema,
            self.context.io,
            self.watch.as_ref(),
            carry,
            take,
        )
    }

    /// Reads all spans in order on a thread of its own. What `convert` makes of them there comes to `take` here.
    pub fn scan_beside<T: Send>(
        &self,
        spans: &FlowSpans,
        convert: &(dyn Fn(SpanRows) -> Result<Option<T>> + Sync),
        take: &mut dyn FnMut(T) -> Result<()>,
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let (sender, converted) = sync_channel(QUEUE_BATCHES);
            let reader = scope.spawn(for_current_span(move || {
                let mut send = |rows: SpanRows| match convert(rows)? {
                    Some(converted) => Ok(sender.send(converted).is_ok()),
                    None => Ok(true),
                };
                catch_panic(|| self.scan(spans, 0..spans.len(), &mut send))
            }));
            for converted in converted {
                take(converted)?;
            }
            reader.join().unwrap_or_else(|_| Err(poisoned_lock()))
        })
    }

    /// A reader of some columns of a flow. Without columns, its batches have rows only.
    pub fn reader(&self, flow: &NodeFlow, columns: &[String]) -> Result<FlowReader> {
        let spans = self.spans(flow, &columns_to_read(flow, columns))?;
        let schema = Arc::new(
            spans
                .schema
                .project(&(0..columns.len()).collect::<Vec<_>>())?,
        );
        let (io, watch) = (self.context.io.clone(), self.watch.clone());
        let order_failure = self.context.state.order_failure.clone();
        Ok(FlowReader {
            spans,
            schema,
            io,
            watch,
            memory: self.context.memory,
            order_failure,
        })
    }

    /// Names all that there is to read of a flow.
    pub fn rows_id(&self, flow: &NodeFlow) -> Result<ContentId> {
        let mut id = IdBuilder::new("rows of a query");
        for stream in &flow.streams {
            id.id(self.context.input(stream.base)?.dataset.fingerprint());
        }
        Ok(id.finish())
    }

    fn windows_bytes(&self) -> usize {
        windows_bytes(self.context.memory)
    }
}

/// The memory of earlier windows' state.
fn windows_bytes(memory: MemoryBudget) -> usize {
    memory.engine_bytes() / 4
}

/// The columns by which rows are read: one of them counts rows of which no column is wanted.
pub fn columns_to_read(flow: &NodeFlow, columns: &[String]) -> Vec<String> {
    match columns.is_empty() {
        true => flow
            .schema
            .fields()
            .iter()
            .take(1)
            .map(|field| field.name().clone())
            .collect(),
        false => columns.to_vec(),
    }
}

/// The names of a flow's columns.
pub fn column_names(flow: &NodeFlow) -> Vec<String> {
    flow.schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect()
}

/// Stored bytes of some columns of a row, on the average; 0 if not known.
fn stored_row_bytes(dataset: &Dataset, columns: &[String]) -> usize {
    let bytes = dataset
        .bytes_of_columns(columns)
        .unwrap_or_else(|| dataset.bytes());
    dataset
        .rows()
        .and_then(|rows| bytes.checked_div(rows))
        .map_or(0, |bytes| bytes as usize)
}

/// Columns of a flow, followed by the position of each row.
pub fn schema_with_positions(flow: &NodeFlow, columns: &[String]) -> Result<SchemaRef> {
    let fields = columns
        .iter()
        .map(|column| Ok(flow.schema.field_with_name(column)?.clone()));
    Ok(with_position(fields.collect::<Result<Vec<_>>>()?))
}

fn with_position(fields: impl IntoIterator<Item = Field>) -> SchemaRef {
    let fields = fields.into_iter().map(|field| {
        let data_type = logical_type(field.data_type());
        field.with_data_type(data_type).with_nullable(true)
    });
    Arc::new(Schema::new(
        fields
            .chain([Field::new(GatherOp::ROW, DataType::UInt64, false)])
            .collect::<Vec<_>>(),
    ))
}

/// A table that can be read once.
pub fn one_time_table(name: &str, table: StreamingTable) -> Result<LogicalPlan, DataFusionError> {
    LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(table)), None)?.build()
}

/// The spans to read of a flow.
pub struct FlowSpans {
    pub schema: SchemaRef,
    tasks: Vec<NumberedSpan>,
    counts: Arc<FlowCounts>,
}

/// Row counts of the spans of a flow that were read to their ends, by the number of the span. A span that is read several
/// times counts once.
type FlowCounts = Mutex<BTreeMap<usize, RowCounts>>;

/// The rows of a flow, counted while it is read.
pub struct FlowTally {
    counts: Arc<FlowCounts>,
    /// The rows of each span, where its dataset knows them.
    known: Vec<Option<u64>>,
}

impl FlowTally {
    /// True if the rows of each span were counted, or if its dataset knows them.
    fn is_known(&self) -> Result<bool> {
        let counted = lock(&self.counts)?;
        let mut spans = self.known.iter().enumerate();
        Ok(spans.all(|(number, known)| known.is_some() || counted.contains_key(&number)))
    }

    /// The rows that the flow gave. Spans that were not read to their ends in this process count with the rows that their
    /// dataset knows: a query stops early, and workers read for themselves.
    pub fn row_counts(&self) -> Result<RowCounts> {
        let counted = lock(&self.counts)?;
        let mut sum = RowCounts::default();
        for (number, known) in self.known.iter().enumerate() {
            match counted.get(&number) {
                Some(counts) => sum.add(counts),
                None => sum.input += known.unwrap_or_default(),
            }
        }
        Ok(sum)
    }
}

/// The rows that a gather made, and the counts of those that it read.
pub struct GatheredCounts {
    /// Rows made.
    pub rows: u64,
    /// Rows read, and the changes from these to those made.
    pub counts: RowCounts,
}

/// The rows of a flow, ready to be read by any thread.
pub struct FlowReader {
    spans: FlowSpans,
    /// The columns without the position.
    schema: SchemaRef,
    io: StorageClient,
    watch: Arc<dyn EventListener>,
    memory: MemoryBudget,
    order_failure: RowOrderFailure,
}

impl FlowReader {
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The window that stopped the reading because its assumed row order was wrong.
    pub fn order_failure(&self) -> Option<OpId> {
        self.order_failure.lock().ok()?.take().map(|(op, _)| op)
    }

    /// Sends the rows of some spans, in order, until `send` returns false.
    pub fn read(
        &self,
        which: Range<usize>,
        send: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<()> {
        let tasks = self
            .spans
            .tasks
            .get(which)
            .ok_or_else(|| Fault::internal("spans that are not there"))?;
        let carry = Carry::new(&WindowBudget::new(windows_bytes(self.memory)));
        let mut checked = Ok(());
        send_batches(
            tasks,
            &self.spans.schema,
            &self.io,
            self.watch.as_ref(),
            carry,
            &mut |batch| {
                checked = self.memory.check();
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch
                    .columns()
                    .iter()
                    .take(self.schema.fields().len())
                    .cloned()
                    .collect();
                match RecordBatch::try_new_with_options(self.schema.clone(), columns, &options) {
                    Ok(batch) if checked.is_ok() => send(batch),
                    Ok(_) => false,
                    Err(error) => {
                        checked = Err(error.into());
                        false
                    }
                }
            },
        )?;
        checked
    }
}

impl FlowSpans {
    /// Counts the rows while they are read.
    pub fn tally(&self) -> FlowTally {
        let known = self
            .tasks
            .iter()
            .map(|task| task.input.input.dataset.spans[task.span].rows());
        FlowTally {
            counts: self.counts.clone(),
            known: known.collect(),
        }
    }

    /// The number of spans.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Stored bytes of each span.
    pub fn bytes(&self) -> Vec<u64> {
        self.tasks
            .iter()
            .map(|task| task.input.input.dataset.spans[task.span].bytes())
            .collect()
    }

    /// Whether the output of a span depends on the spans before it.
    pub fn is_ordered(&self) -> bool {
        in_order(&self.tasks)
    }
}

fn in_order(tasks: &[NumberedSpan]) -> bool {
    tasks.iter().any(|task| task.input.chain.is_ordered())
}

/// A span with its number among all spans of all streams.
#[derive(Clone)]
struct NumberedSpan {
    number: usize,
    input: Arc<StreamInput>,
    /// Its place in the dataset of the input.
    span: usize,
}

struct StreamInput {
    chain: OpChain,
    input: SourceInput,
    request: ScanRequest,
    sorted: Vec<SortedStream>,
    order_failure: RowOrderFailure,
    counts: Arc<FlowCounts>,
}

/// A planned gather.
pub struct MaterializePlan {
    op: OpId,
    /// The query; `None` if this crate computes the rows.
    query: Option<PlannedQuery>,
    /// The columns of the result, with the actual widths of vectors.
    pub schema: SchemaRef,
}

impl MaterializePlan {
    fn without_query(op: OpId, schema: SchemaRef) -> MaterializePlan {
        MaterializePlan {
            op,
            query: None,
            schema,
        }
    }
}

/// A query of the query engine.
struct PlannedQuery {
    plan: LogicalPlan,
    /// The rows of its tables.
    inputs: Vec<FlowTally>,
}

/// Consecutive spans as a stream.
struct SpanStream {
    schema: SchemaRef,
    tasks: Vec<NumberedSpan>,
    io: StorageClient,
    watch: Arc<dyn EventListener>,
    /// The memory of window state in bytes.
    bytes_max: usize,
}

impl fmt::Debug for SpanStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({} spans)", self.tasks.len())
    }
}

impl PartitionStream for SpanStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (tasks, schema, io, watch) = (
            self.tasks.clone(),
            self.schema.clone(),
            self.io.clone(),
            self.watch.clone(),
        );
        let carry = Carry::new(&WindowBudget::new(self.bytes_max));
        batch_stream(&self.schema, move |send| {
            send_batches(&tasks, &schema, &io, watch.as_ref(), carry, send)
        })
    }
}

/// A stream of the batches that `produce` sends until the receiver is dropped. It runs on a thread of its own, because
/// reading blocks and computes.
pub fn batch_stream(
    schema: &SchemaRef,
    produce: impl FnOnce(&mut dyn FnMut(RecordBatch) -> bool) -> Result<()> + Send + 'static,
) -> SendableRecordBatchStream {
    fallible_batch_stream(schema, move |send| produce(send).map_err(external_error))
}

/// Like `batch_stream`, of a producer that makes the engine's errors itself.
pub fn fallible_batch_stream(
    schema: &SchemaRef,
    produce: impl FnOnce(&mut dyn FnMut(RecordBatch) -> bool) -> Result<(), DataFusionError>
    + Send
    + 'static,
) -> SendableRecordBatchStream {
    let (sender, receiver) = tokio::sync::mpsc::channel(QUEUE_BATCHES);
    std::thread::spawn(for_current_span(move || {
        let produced = catch_panic(|| {
            Ok(produce(&mut |batch| {
                sender.blocking_send(Ok(batch)).is_ok()
            }))
        });
        // Without this error a failed stream would look complete.
        if let Err(error) = produced.unwrap_or_else(|fault| Err(external_error(fault))) {
            let _ = sender.blocking_send(Err(error));
        }
    }));
    let stream = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|batch| (batch, receiver))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema.clone(), stream))
}

fn external_error(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

/// Rows of a span.
pub struct SpanRows {
    /// In the order of the schema, without the position.
    pub columns: Vec<ArrayRef>,
    pub rows: usize,
    /// The position of the first row; the others follow.
    pub first: u64,
}

/// Sends batches of the schema's types, with positions, until `send` returns false.
fn send_batches(
    tasks: &[NumberedSpan],
    schema: &SchemaRef,
    io: &StorageClient,
    watch: &dyn EventListener,
    carry: Carry,
    send: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<()> {
    scan_spans(
        tasks,
        schema,
        io,
        watch,
        carry,
        &mut |SpanRows {
                  columns,
                  rows,
                  first,
              }| {
            let columns = columns
                .iter()
                .zip(schema.fields())
                .map(|(column, field)| cast(column, field.data_type()));
            let mut columns = columns.collect::<Result<Vec<_>, _>>()?;
            columns.push(Arc::new(UInt64Array::from_iter_values(
                first..first + rows as u64,
            )));
            Ok(send(RecordBatch::try_new(schema.clone(), columns)?))
        },
    )
}

fn scan_spans(
    tasks: &[NumberedSpan],
    schema: &SchemaRef,
    io: &StorageClient,
    watch: &dyn EventListener,
    mut carry: Carry,
    take: &mut dyn FnMut(SpanRows) -> Result<bool>,
) -> Result<()> {
    let ahead = ReadAhead::new(1);
    for NumberedSpan {
        number,
        input: part,
        span,
    } in tasks
    {
        let (input, request) = (part.input.clone(), Arc::new(part.request.clone()));
        ahead.plan([(
            *number,
            PlannedSpan {
                input,
                span: *span,
                request,
            },
        )])?;
    }
    for NumberedSpan {
        number,
        input: part,
        span: place,
    } in tasks
    {
        let span = &part.input.dataset.spans[*place];
        // The span's number above, the row below: ascending in canonical order, however spans are divided among
        // threads.
        let mut row = (*number as u64) << ROW_BITS;
        part.sorted
            .iter()
            .try_for_each(|sorted| sorted.attach(*place, &mut carry))?;
        let open = || part.input.source.open(io, span, &part.request);
        let mut counts = RowCounts::default();
        for chunk in ahead.take(io, *number, open)? {
            let chunk = chunk.map_err(|fault| fault.file(span.label()))?;
            let mut read = None;
            let streamed =
                part.chain
                    .run(std::slice::from_ref(&chunk), &mut carry, &mut |_, input| {
                        let columns = input.columns.iter().zip(schema.fields());
                        let columns =
                            columns.map(|(column, field)| match logical_type(column.data_type()) {
                                own if own == *field.data_type() => Ok(column.clone()),
                                _ => cast(column, field.data_type()),
                            });
                        let columns = columns.collect::<Result<Vec<_>, _>>()?;
                        read = Some(SpanRows {
                            columns,
                            rows: input.rows,
                            first: row,
                        });
                        row += input.rows as u64;
                        Ok(())
                    });
            let streamed = streamed
                .map_err(|fault| record_order_failure(&part.order_failure, &carry, fault))?;
            counts.add(&streamed);
            watch.on_event(Event::Progress {
                rows: chunk.batch.num_rows() as u64,
                bytes: 0,
            });
            if let Some(read) = read.filter(|read| read.rows > 0)
                && !take(read)?
            {
                return Ok(());
            }
        }
        lock(&part.counts)?.insert(*number, counts);
    }
    Ok(())
}

/// Casts the rows of a query to the declared columns, and counts them.
struct ConformedRows<'a> {
    schema: &'a SchemaRef,
    memory: MemoryBudget,
    rows: &'a mut dyn QueryRows,
    count: u64,
}

impl QueryRows for ConformedRows<'_> {
    fn restart(&mut self) -> Result<()> {
        self.count = 0;
        self.rows.restart()
    }

    fn take(&mut self, batch: RecordBatch) -> Result<()> {
        let batch = conform(&batch, self.schema)?;
        self.count += batch.num_rows() as u64;
        self.memory.check()?;
        self.rows.take(batch)
    }
}

/// Casts the engine's rows to the declared columns.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| cast(column, field.data_type()));
    Ok(RecordBatch::try_new(
        schema.clone(),
        columns.collect::<Result<Vec<_>, _>>()?,
    )?)
}

/// The fault for an error of the engine; faults of this workspace are unwrapped.
pub fn engine_fault(error: DataFusionError, label: &str) -> Fault {
    fn ours(error: DataFusionError) -> Result<Fault, DataFusionError> {
        match error {
            DataFusionError::External(inner) => inner
                .downcast::<Fault>()
                .map(|fault| *fault)
                .map_err(DataFusionError::External),
            DataFusionError::Context(text, inner) => {
                ours(*inner).map_err(|inner| DataFusionError::Context(text, Box::new(inner)))
            }
            other => Err(other),
        }
    }
    let error = match ours(error) {
        Ok(fault) => return fault,
        Err(error) => error,
    };
    // Several partitions may share the error of the one that failed; none owns it.
    let mut chain = std::iter::successors(
        Some(&error as &(dyn std::error::Error + 'static)),
        |error| error.source(),
    );
    if let Some(fault) = chain.find_map(|error| error.downcast_ref::<Fault>()) {
        return WireFault::from(fault).into();
    }
    if let Some(disk) = find_io_error(&error) {
        let disk = std::io::Error::new(disk.kind(), disk.to_string());
        return Fault::disk(format!("`{label}` cannot spill"), disk).step(label);
    }
    let (code, message, hint) = match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => (
            codes::MEMORY,
            "does not fit into the memory limit even with spilling",
            "raise --memory",
        ),
        DataFusionError::ArrowError(..) => {
            (codes::BAD_ROW, "cannot be computed", "look at the cause")
        }
        _ => (
            codes::EXPRESSION,
            "cannot be run by the query engine",
            "look at the cause",
        ),
    };
    Fault::new(code, format!("`{label}` {message}"))
        .step(label)
        .cause(error)
        .hint(hint)
}
