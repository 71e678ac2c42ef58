//! A pass that needs all rows at once: the query engine runs it, with spilling, and its result is kept as an
//! intermediate dataset.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::{DataFusionError, TableReference};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use forebay_cluster::{JoinBatchRows, QueryEnd, QueryRows, with_admitted_inputs};
use forebay_contract::ScanRequest;
use forebay_model::{
    Chunk, ContentId, Dataset, Fault, IdBuilder, Result, RowChange, catch_panic, codes,
    is_unsized_vector, logical_type,
};
use forebay_plan::{
    Carry, ColumnTap, FutureRowsOp, GatherBy, GatherOp, LowerGather, NodeFlow, OpChain, OpId,
    OpStream, PlanOp, RowCounts, WindowBudget, leaf_columns, query_plan, refuse_writing,
};
use forebay_storage::{Event, EventListener, MemoryBudget, ScratchDir, StorageClient};
use forebay_threads::{lock, poisoned_lock, start_scoped, start_thread};
use futures::StreamExt;

use crate::cluster_handle::ClusterHandle;
use crate::flow_table::{FlowRows, FlowTable};
use crate::pass_context::PassContext;
use crate::query_engine::{ENGINE_BATCH_ROWS, engine_fault, query_config, query_runtime};
use crate::query_joins::{JoinChoice, with_chosen_joins};
use crate::read_ahead::{PlannedSpan, ReadAhead};
use crate::row_position::ROW_BITS;
use crate::run_state::{RowOrderFailure, SortedStream, record_order_failure};
use crate::source_input::SourceInput;

/// Batches queued between the reading thread and the engine.
pub const QUEUE_BATCHES: usize = 2;

/// Stored bytes that are assumed of a value in files that do not say how many rows they have.
const UNCOUNTED_VALUE_BYTES: u64 = 4;

#[derive(Clone)]
pub struct MaterializePass<'a> {
    pub context: PassContext<'a>,
    pub watch: Arc<dyn EventListener>,
    pub scratch: &'a ScratchDir,
}

impl MaterializePass<'_> {
    /// Plans a gather over its inputs.
    pub fn open(&self, op: OpId) -> Result<MaterializePlan> {
        let gather = self.gather(op)?;
        let schema = match &gather.lower {
            GatherBy::Query(lower) => return self.open_query(op, gather, lower),
            GatherBy::Future(_) => gather.schema.clone(),
            GatherBy::GroupBy(group_by) => {
                let flow = self.only_flow(op)?;
                self.resolve_group_by(flow, group_by, &gather.schema)?
                    .schema
            }
            GatherBy::Join { join, .. } => self.joined_schema(op, join)?,
            GatherBy::OnePerKey { .. } => self.one_per_key_schema(self.only_flow(op)?)?,
        };
        Ok(MaterializePlan {
            op,
            query: None,
            schema,
        })
    }

    pub(crate) fn gather(&self, op: OpId) -> Result<&GatherOp> {
        match &self.context.program.bound.ops[op].op {
            PlanOp::Gather(gather) => Ok(gather),
            _ => Err(Fault::internal("not a gather")),
        }
    }

    /// Plans a query of the query engine.
    fn open_query(
        &self,
        op: OpId,
        gather: &GatherOp,
        lower: &LowerGather,
    ) -> Result<MaterializePlan> {
        let flows = self.context.program.bound.gather_inputs.get(&op);
        let flows = flows.map_or(&[][..], Vec::as_slice);
        let mut leaves = Vec::with_capacity(flows.len());
        let mut whole_flows = Vec::with_capacity(flows.len());
        for (name, flow) in flows {
            let spans = self.spans(flow, &flow.column_names())?;
            leaves.push(unread_table(name, &spans.schema)?);
            whole_flows.push(spans);
        }
        let read_columns =
            leaf_columns(&lower(leaves)?).map_err(|error| self.query_fault(op, error))?;
        let mut inputs = Vec::with_capacity(flows.len());
        let mut tallies = Vec::with_capacity(flows.len());
        for ((name, flow), whole) in flows.iter().zip(whole_flows) {
            let schema = whole.schema.clone();
            let mut columns = flow.column_names();
            let column_count = columns.len();
            columns.retain(|column| {
                let read = read_columns.get(name);
                read.is_some_and(|read| read.contains(column))
            });
            let spans = if columns.len() == column_count {
                whole
            } else {
                self.spans(flow, &columns_to_read(flow, &columns))?
            };
            tallies.push(spans.tally());
            inputs.push(self.table_of_spans(name, schema, spans)?);
        }
        let plan = lower(inputs)?;
        refuse_writing(&plan)?;
        let mut fields = Vec::new();
        for (declared, planned) in gather.schema.fields().iter().zip(plan.schema().fields()) {
            // The widths of vectors were not known when the steps were bound.
            let data_type = if is_unsized_vector(declared.data_type()) {
                logical_type(planned.data_type())
            } else {
                declared.data_type().clone()
            };
            fields.push(Field::new(declared.name(), data_type, true));
        }
        Ok(MaterializePlan {
            op,
            query: Some(PlannedQuery {
                plan,
                inputs: tallies,
            }),
            schema: Arc::new(Schema::new(fields)),
        })
    }

    /// The input of a gather with a single input.
    pub fn only_flow(&self, op: OpId) -> Result<&NodeFlow> {
        let inputs = self.context.program.bound.gather_inputs.get(&op);
        match inputs.map(Vec::as_slice) {
            Some([(_, flow)]) => Ok(flow),
            _ => Err(Fault::internal("one row of each key of no rows")),
        }
    }

    /// Passes on the rows of the future, as made of the last row of each series.
    fn future_rows(
        &self,
        op: OpId,
        future: &FutureRowsOp,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<GatheredCounts> {
        let mut findings = Vec::new();
        for analyzer in &self.context.program.bound.ops[op].asks {
            findings.push(self.context.finding(*analyzer)?);
        }
        let mut rows = 0;
        for batch in (future.rows)(&findings)? {
            let batch = batch?;
            rows += batch.num_rows() as u64;
            self.context.memory.check()?;
            take(batch)?;
        }
        let row_changes = (RowChange::QueriedAway, RowChange::Future);
        Ok(self.settled(op, RowCounts::default(), rows, row_changes))
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

    /// Runs the plan and passes its rows in canonical order to `rows`. A query and a `dedupe` run
    /// on the workers, if there are any that can.
    pub fn run(
        &self,
        gathering: MaterializePlan,
        workers: Option<ClusterHandle<'_>>,
        rows: &mut dyn QueryRows,
    ) -> Result<GatheredCounts> {
        let MaterializePlan { op, query, schema } = gathering;
        self.plan_work(op)?;
        match query {
            Some(query) => self.run_query(op, query, &schema, workers, rows),
            None => self.compute(op, &schema, workers, rows),
        }
    }

    /// Computes the rows of a gather that is no query.
    fn compute(
        &self,
        op: OpId,
        schema: &SchemaRef,
        workers: Option<ClusterHandle<'_>>,
        rows: &mut dyn QueryRows,
    ) -> Result<GatheredCounts> {
        let gather = self.gather(op)?;
        let take = &mut |batch: RecordBatch| {
            let done = batch.num_rows() as u64;
            self.watch.on_event(Event::Worked { done, planned: 0 });
            rows.take(batch)
        };
        match &gather.lower {
            GatherBy::OnePerKey { keys, last } => {
                if let Some(workers) = workers
                    && let Some(counts) = self.one_per_key_on_workers(op, workers, take)?
                {
                    return Ok(counts);
                }
                self.one_per_key(op, keys, *last, schema, take)
            }
            GatherBy::GroupBy(group_by) => {
                let groups = self.resolve_group_by(self.only_flow(op)?, group_by, schema)?;
                self.group_by(op, groups, take)
            }
            GatherBy::Join { join, unmatched } => {
                self.join_pairs(op, join, *unmatched, schema, take)
            }
            GatherBy::Future(future) => self.future_rows(op, future, take),
            GatherBy::Query(_) => Err(Fault::internal("a gather without a plan")),
        }
    }

    /// Runs a query on workers, if there are any that can, or else in this process.
    fn run_query(
        &self,
        op: OpId,
        query: PlannedQuery,
        schema: &SchemaRef,
        workers: Option<ClusterHandle<'_>>,
        rows: &mut dyn QueryRows,
    ) -> Result<GatheredCounts> {
        let PlannedQuery { plan, inputs } = query;
        let mut rows = ConformedRows {
            schema,
            memory: self.context.memory,
            watch: self.watch.as_ref(),
            rows,
            count: 0,
        };
        let is_done = match workers {
            Some(workers) => self.try_workers(op, workers, &inputs, &mut rows)?,
            None => false,
        };
        if !is_done {
            self.query_here(op, &plan, &mut rows)?;
        }
        self.query_counts(op, &inputs, rows.count)
    }

    /// Runs a query on workers; false if this process has to run it.
    fn try_workers(
        &self,
        op: OpId,
        workers: ClusterHandle<'_>,
        inputs: &[FlowTally],
        rows: &mut ConformedRows<'_>,
    ) -> Result<bool> {
        let fault = match self.query_on_workers(op, workers, inputs, rows) {
            Ok(QueryEnd::Done) => return Ok(true),
            Ok(QueryEnd::NotDistributed) => return Ok(false),
            Err(fault) => fault,
        };
        // Each worker has a share of the rows, but less memory for it than the coordinator may have.
        if fault.code() != codes::MEMORY {
            return Err(fault);
        }
        let label = &self.context.program.bound.ops[op].label;
        let message =
            format!("`{label}` does not fit into the memory of workers: the coordinator runs it");
        self.watch.on_event(Event::Warning { message });
        // Rows that workers have sent already would come twice.
        rows.restart()?;
        Ok(false)
    }

    /// Runs a query in this process. Where it repeats long values, it begins again with fewer rows at a time, and where
    /// the sides that its joins hold do not fit, with joins that spill. Where sorts of long rows do not fit, it begins again
    /// with fewer rows at a time, too.
    fn query_here(&self, op: OpId, plan: &LogicalPlan, rows: &mut ConformedRows<'_>) -> Result<()> {
        let memory = self.context.memory;
        let mut batch_rows = ENGINE_BATCH_ROWS;
        let mut joins = Arc::new(JoinChoice::in_memory(memory));
        loop {
            let attempt = QueryAttempt {
                plan,
                batch_rows,
                join_rows: Arc::new(JoinBatchRows::default()),
                joins: joins.clone(),
            };
            let fault = match self.attempt_query(op, &attempt, rows) {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            if fault.code() != codes::MEMORY {
                return Err(fault);
            }
            let label = &self.context.program.bound.ops[op].label;
            let fewer_rows = attempt.join_rows.sufficient();
            let sorted_rows = attempt.join_rows.sortable();
            let message = if let Some(fewer_rows) = fewer_rows.filter(|fewer| *fewer < batch_rows) {
                let message = format!(
                    "`{label}` repeats long values: it begins again, with {fewer_rows} rows at a \
                     time instead of {batch_rows}"
                );
                batch_rows = fewer_rows;
                message
            } else if joins.holds_sides() {
                joins = Arc::new(JoinChoice::spilling());
                format!(
                    "the sides that the joins of `{label}` hold do not fit into memory: it begins \
                     again, with joins that spill"
                )
            } else if let Some(fewer_rows) = sorted_rows.filter(|fewer| *fewer < batch_rows) {
                let fewer_rows = fewer_rows.min(batch_rows / 2).max(1);
                let message = format!(
                    "`{label}` sorts long rows, which do not fit into memory: it begins again, \
                     with {fewer_rows} rows at a time instead of {batch_rows}"
                );
                batch_rows = fewer_rows;
                message
            } else {
                return Err(fault);
            };
            self.watch.on_event(Event::Warning { message });
            rows.restart()?;
        }
    }

    /// Runs a query once.
    fn attempt_query(
        &self,
        op: OpId,
        attempt: &QueryAttempt<'_>,
        rows: &mut ConformedRows<'_>,
    ) -> Result<()> {
        let io = self.context.io;
        let config = query_config(self.context.memory, self.context.threads)
            .with_batch_size(attempt.batch_rows)
            .with_extension(attempt.join_rows.clone());
        let state = SessionStateBuilder::new()
            .with_config(with_chosen_joins(config))
            .with_runtime_env(query_runtime(self.context.memory, self.scratch.path())?)
            .with_default_features()
            .with_physical_optimizer_rules(attempt.joins.optimizer_rules())
            .build();
        let physical = io
            .block_on_computation(query_plan(&state, attempt.plan))?
            .and_then(with_admitted_inputs)
            .map_err(|error| self.query_fault(op, error))?;
        // Streams are started on the runtime that drives them.
        let stream = io.block_on(async {
            datafusion::physical_plan::execute_stream(physical, state.task_ctx())
        })?;
        let mut stream = stream.map_err(|error| self.query_fault(op, error))?;
        while let Some(batch) = io.block_on_computation(stream.next())? {
            rows.take(batch.map_err(|error| self.query_fault(op, error))?)?;
        }
        Ok(())
    }

    /// Reports the rows to read of all inputs, where their numbers are known.
    fn plan_work(&self, op: OpId) -> Result<()> {
        let inputs = self.context.program.bound.gather_inputs.get(&op);
        let mut planned = 0;
        for (_, flow) in inputs.into_iter().flatten() {
            let Some(rows) = self.rows_in(flow)? else {
                return Ok(());
            };
            planned += rows;
        }
        self.watch.on_event(Event::Worked { done: 0, planned });
        Ok(())
    }

    /// The rows of the datasets that a flow reads, where they are known.
    pub(crate) fn rows_in(&self, flow: &NodeFlow) -> Result<Option<u64>> {
        let mut sum = 0;
        for stream in &flow.streams {
            let Some(rows) = self.context.input(stream.base)?.dataset.rows() else {
                return Ok(None);
            };
            sum += rows;
        }
        Ok(Some(sum))
    }

    /// The counts of a query that gave `rows` rows.
    fn query_counts(&self, op: OpId, inputs: &[FlowTally], rows: u64) -> Result<GatheredCounts> {
        let mut counts = RowCounts::default();
        for input in inputs {
            // A part of the rows would look like all of them: no row counts where some are unknown.
            if !input.is_known()? {
                let changes = (RowChange::QueriedAway, RowChange::Uncounted);
                return Ok(self.settled(op, RowCounts::default(), rows, changes));
            }
            counts.add(&input.row_counts()?);
        }
        let changes = (RowChange::QueriedAway, RowChange::Queried);
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
        let spans = self.spans(flow, columns)?;
        self.table_of_spans(name, spans.schema.clone(), spans)
    }

    /// A table of a schema of which some columns are read.
    fn table_of_spans(
        &self,
        name: &str,
        schema: SchemaRef,
        spans: FlowSpans,
    ) -> Result<LogicalPlan> {
        let indices = indices_in(&schema, &spans.schema);
        let FlowSpans {
            schema: read_schema,
            tasks,
            ..
        } = spans;
        let rows = rows_before_steps(&tasks);
        // Window state depends on the rows before: one thread reads all spans in order.
        let threads = if in_order(&tasks) {
            1
        } else {
            self.context.threads.max(1)
        };
        let share = tasks.len().div_ceil(threads).max(1);
        let mut partitions: Vec<Arc<dyn FlowRows>> = Vec::new();
        for tasks in tasks.chunks(share) {
            partitions.push(Arc::new(self.span_stream(&read_schema, tasks)));
        }
        if partitions.is_empty() {
            partitions.push(Arc::new(self.span_stream(&read_schema, &[])));
        }
        let table = FlowTable {
            schema,
            indices,
            partitions,
            rows,
        };
        planned_table(name, Arc::new(table)).map_err(|error| engine_fault(error, name))
    }

    fn span_stream(&self, schema: &SchemaRef, tasks: &[NumberedSpan]) -> SpanStream {
        SpanStream {
            schema: schema.clone(),
            tasks: tasks.to_vec(),
            io: self.context.io.clone(),
            watch: self.watch.clone(),
            bytes_max: self.windows_bytes(),
        }
    }

    /// The spans to read for some columns of a flow.
    pub fn spans(&self, flow: &NodeFlow, columns: &[String]) -> Result<FlowSpans> {
        let mut tasks: Vec<NumberedSpan> = Vec::new();
        let counts = Arc::new(FlowCounts::default());
        for stream in &flow.streams {
            let input = Arc::new(self.stream_input(stream, columns, counts.clone())?);
            let first = tasks.len();
            for span in 0..input.input.dataset.spans.len() {
                tasks.push(NumberedSpan {
                    number: first + span,
                    input: input.clone(),
                    span,
                });
            }
        }
        // Compiled chains know the widths of vectors.
        let schema = match tasks.first() {
            Some(task) => with_position(task.input.chain.fields(0).iter().cloned()),
            None => schema_with_positions(flow, columns)?,
        };
        Ok(FlowSpans {
            schema,
            tasks,
            counts,
        })
    }

    /// Compiles the chain that gives some columns of a stream.
    fn stream_input(
        &self,
        stream: &OpStream,
        columns: &[String],
        counts: Arc<FlowCounts>,
    ) -> Result<StreamInput> {
        let bound = &self.context.program.bound;
        let column_names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let (needed, scan_columns) = forebay_plan::slice_for_columns(bound, stream, &column_names);
        let tap = ColumnTap {
            after: stream.ops.len(),
            columns: columns.to_vec(),
            part: None,
            marks_unfound: false,
        };
        let taps = std::slice::from_ref(&tap);
        let chain = self.context.with_chains(|chain_context| {
            OpChain::new(bound, stream, &needed, &scan_columns, taps, chain_context)
        })?;
        let sorted = self.context.sorted_for(stream, &chain)?;
        let input = self.context.input(stream.base)?.clone();
        let row_bytes = stored_row_bytes(&input.dataset, &scan_columns);
        let request = ScanRequest {
            columns: scan_columns,
            schema: input.dataset.schema.clone(),
            pruning: Vec::new(),
            batch_rows: self.queued_rows_max(&chain, row_bytes),
            row_keys: false,
        };
        Ok(StreamInput {
            chain,
            input,
            request,
            sorted,
            order_failure: self.context.state.order_failure.clone(),
            counts,
        })
    }

    /// Rows to read in one chunk. Batches of wide rows wait in a queue.
    fn queued_rows_max(&self, chain: &OpChain, row_bytes: usize) -> usize {
        let batches = self.context.threads.max(1) * (QUEUE_BATCHES + 2);
        let fitting = self.context.memory.rows_bytes() / batches / row_bytes.max(1);
        let rows_max = self.context.chunk_rows_max([chain].into_iter());
        rows_max.min(fitting).max(1)
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

    /// Reads all spans in order on a thread of its own, which applies `convert`; `take` receives
    /// the results on this thread.
    pub fn scan_beside<T: Send>(
        &self,
        spans: &FlowSpans,
        convert: &(dyn Fn(SpanRows) -> Result<Option<T>> + Sync),
        take: &mut dyn FnMut(T) -> Result<()>,
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let (sender, converted) = sync_channel(QUEUE_BATCHES);
            let reader = start_scoped(scope, move || {
                catch_panic(|| {
                    self.scan(spans, 0..spans.len(), &mut |rows| {
                        let Some(converted) = convert(rows)? else {
                            return Ok(true);
                        };
                        Ok(sender.send(converted).is_ok())
                    })
                })
            })?;
            for converted in converted {
                take(converted)?;
            }
            reader.join().unwrap_or_else(|_| Err(poisoned_lock()))
        })
    }

    /// A reader of some columns of a flow. Without columns, its batches have rows only.
    pub fn reader(&self, flow: &NodeFlow, columns: &[String]) -> Result<FlowReader> {
        let spans = self.spans(flow, &columns_to_read(flow, columns))?;
        let column_indices: Vec<usize> = (0..columns.len()).collect();
        let schema = spans.schema.project(&column_indices)?;
        Ok(FlowReader {
            spans,
            schema: Arc::new(schema),
            io: self.context.io.clone(),
            watch: self.watch.clone(),
            memory: self.context.memory,
            order_failure: self.context.state.order_failure.clone(),
        })
    }

    /// Id of all rows that a flow reads.
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

/// The columns to read: the first one, to count rows, if no column is needed.
pub fn columns_to_read(flow: &NodeFlow, columns: &[String]) -> Vec<String> {
    let mut columns = columns.to_vec();
    if columns.is_empty() {
        let first = flow.schema.fields().first();
        columns.extend(first.map(|field| field.name().clone()));
    }
    columns
}

/// Stored bytes of some columns of a row, on the average; 0 if not known.
fn stored_row_bytes(dataset: &Dataset, columns: &[String]) -> usize {
    let bytes = match dataset.bytes_of_columns(columns) {
        Some(bytes) => bytes,
        None => dataset.bytes(),
    };
    match dataset.rows() {
        Some(rows) if rows > 0 => (bytes / rows) as usize,
        _ => 0,
    }
}

/// Columns of a flow, followed by the position of each row.
pub fn schema_with_positions(flow: &NodeFlow, columns: &[String]) -> Result<SchemaRef> {
    let mut fields = Vec::with_capacity(columns.len());
    for column in columns {
        fields.push(flow.schema.field_with_name(column)?.clone());
    }
    Ok(with_position(fields))
}

fn with_position(fields: impl IntoIterator<Item = Field>) -> SchemaRef {
    let mut positioned = Vec::new();
    for field in fields {
        let data_type = logical_type(field.data_type());
        positioned.push(field.with_data_type(data_type).with_nullable(true));
    }
    positioned.push(Field::new(GatherOp::ROW, DataType::UInt64, false));
    Arc::new(Schema::new(positioned))
}

/// A table that can be read once.
pub fn one_time_table(name: &str, table: StreamingTable) -> Result<LogicalPlan, DataFusionError> {
    planned_table(name, Arc::new(table))
}

fn planned_table(
    name: &str,
    table: Arc<dyn TableProvider>,
) -> Result<LogicalPlan, DataFusionError> {
    LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.build()
}

/// A table without rows, to find out which columns a query reads.
fn unread_table(name: &str, schema: &SchemaRef) -> Result<LogicalPlan> {
    let source = provider_as_source(Arc::new(EmptyTable::new(schema.clone())));
    LogicalPlanBuilder::scan(TableReference::bare(name), source, None)
        .and_then(LogicalPlanBuilder::build)
        .map_err(|error| engine_fault(error, name))
}

/// The index of each column of a schema among those that are read.
fn indices_in(schema: &SchemaRef, read_schema: &SchemaRef) -> Vec<Option<usize>> {
    let mut indices_by_name = HashMap::new();
    for (index, field) in read_schema.fields().iter().enumerate() {
        indices_by_name.insert(field.name().as_str(), index);
    }
    let fields = schema.fields().iter();
    fields
        .map(|field| indices_by_name.get(field.name().as_str()).copied())
        .collect()
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
        Ok(spans
            .all(|(number, rows_of_span)| rows_of_span.is_some() || counted.contains_key(&number)))
    }

    /// Adds the rows of spans that workers read to their ends. Where a span was read several times, the counts of the
    /// reading with the most changes stay: it read the most columns.
    pub(crate) fn add_counts(
        &self,
        spans: impl IntoIterator<Item = (usize, RowCounts)>,
    ) -> Result<()> {
        let mut counted_spans = lock(&self.counts)?;
        for (number, counts) in spans {
            if number >= self.known.len() {
                continue;
            }
            let changes = counts.changes.entries().len();
            match counted_spans.get(&number) {
                Some(counted) if counted.changes.entries().len() >= changes => {}
                _ => {
                    counted_spans.insert(number, counts);
                }
            }
        }
        Ok(())
    }

    /// The rows that the flow gave. Spans that were not read to their ends in this process count with the rows that their
    /// dataset knows: a query stops early, and workers read for themselves.
    pub fn row_counts(&self) -> Result<RowCounts> {
        let counted = lock(&self.counts)?;
        let mut sum = RowCounts::default();
        for (number, rows_of_span) in self.known.iter().enumerate() {
            match counted.get(&number) {
                Some(counts) => sum.add(counts),
                None => sum.input += rows_of_span.unwrap_or_default(),
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

    /// The rows of those of some spans that were read to their ends.
    pub fn counts(&self, which: Range<usize>) -> Result<Vec<(usize, RowCounts)>> {
        let counted = lock(&self.spans.counts)?;
        let spans = counted.range(which);
        Ok(spans
            .map(|(number, counts)| (*number, counts.clone()))
            .collect())
    }

    /// Sends the rows of some spans, in order, until `send` returns false.
    pub fn read(
        &self,
        which: Range<usize>,
        send: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<()> {
        let Some(tasks) = self.spans.tasks.get(which) else {
            return Err(Fault::internal("spans that are not there"));
        };
        let carry = Carry::new(&WindowBudget::new(windows_bytes(self.memory)));
        let mut conversion = Ok(());
        send_batches(
            tasks,
            &self.spans.schema,
            &self.io,
            self.watch.as_ref(),
            carry,
            &mut |batch| match self.without_position(&batch) {
                Ok(batch) => send(batch),
                Err(fault) => {
                    conversion = Err(fault);
                    false
                }
            },
        )?;
        conversion
    }

    /// The columns of the reader, while the process is within its memory.
    fn without_position(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.memory.check()?;
        let count = self.schema.fields().len();
        let columns = batch.columns().iter().take(count).cloned().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(
            self.schema.clone(),
            columns,
            &options,
        )?)
    }
}

impl FlowSpans {
    /// Counts the rows while they are read.
    pub fn tally(&self) -> FlowTally {
        let rows_of_spans = self
            .tasks
            .iter()
            .map(|task| task.input.input.dataset.spans[task.span].rows());
        FlowTally {
            counts: self.counts.clone(),
            known: rows_of_spans.collect(),
        }
    }

    /// The rows of the spans that were read to their ends, with the number of each span.
    pub fn counts(&self) -> Result<Vec<(usize, RowCounts)>> {
        let counted = lock(&self.counts)?;
        let mut counts = Vec::with_capacity(counted.len());
        for (number, rows) in &*counted {
            counts.push((*number, rows.clone()));
        }
        Ok(counts)
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

    /// True if the output of a span depends on the spans before it.
    pub fn is_ordered(&self) -> bool {
        in_order(&self.tasks)
    }
}

fn in_order(tasks: &[NumberedSpan]) -> bool {
    tasks.iter().any(|task| task.input.chain.is_ordered())
}

/// Rows that spans have before their steps, about.
fn rows_before_steps(tasks: &[NumberedSpan]) -> usize {
    let mut sum = 0u64;
    for task in tasks {
        let dataset = &task.input.input.dataset;
        let span = &dataset.spans[task.span];
        let value_count = dataset.schema.fields().len().max(1) as u64;
        let uncounted = span.bytes() / (value_count * UNCOUNTED_VALUE_BYTES);
        sum = sum.saturating_add(span.rows().unwrap_or(uncounted));
    }
    usize::try_from(sum).unwrap_or(usize::MAX)
}

/// A span with its number among all spans of all streams.
#[derive(Clone)]
struct NumberedSpan {
    number: usize,
    input: Arc<StreamInput>,
    /// Index of the span in the dataset of the input.
    span: usize,
}

impl NumberedSpan {
    fn planned(&self) -> PlannedSpan {
        PlannedSpan {
            input: self.input.input.clone(),
            span: self.span,
            request: Arc::new(self.input.request.clone()),
        }
    }
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

/// A query of the query engine.
struct PlannedQuery {
    plan: LogicalPlan,
    /// The rows of its tables.
    inputs: Vec<FlowTally>,
}

/// A query and the way in which it is run.
struct QueryAttempt<'a> {
    plan: &'a LogicalPlan,
    batch_rows: usize,
    /// Gets the rows of a batch that would do for joins and for sorts, where those of this attempt are too many.
    join_rows: Arc<JoinBatchRows>,
    joins: Arc<JoinChoice>,
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

impl FlowRows for SpanStream {
    fn read_columns(&self, indices: &[usize], schema: &SchemaRef) -> SendableRecordBatchStream {
        let indices = indices.to_vec();
        let sent_schema = schema.clone();
        let tasks = self.tasks.clone();
        let flow_schema = self.schema.clone();
        let io = self.io.clone();
        let listener = self.watch.clone();
        let carry = Carry::new(&WindowBudget::new(self.bytes_max));
        batch_stream(schema, move |send| {
            scan_spans(
                &tasks,
                &flow_schema,
                &io,
                listener.as_ref(),
                carry,
                &mut |rows| Ok(send(rows.select(&indices, &sent_schema)?)),
            )
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

/// Like `batch_stream`, for a producer whose errors are those of the query engine.
pub fn fallible_batch_stream(
    schema: &SchemaRef,
    produce: impl FnOnce(&mut dyn FnMut(RecordBatch) -> bool) -> Result<(), DataFusionError>
    + Send
    + 'static,
) -> SendableRecordBatchStream {
    let (sender, receiver) = tokio::sync::mpsc::channel(QUEUE_BATCHES);
    let started = start_thread("forebay-rows", move || {
        let produced = catch_panic(|| {
            Ok(produce(&mut |batch| {
                sender.blocking_send(Ok(batch)).is_ok()
            }))
        });
        // Without this error a failed stream would look complete.
        if let Err(error) = produced.unwrap_or_else(|fault| Err(external_error(fault))) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    let refused = started.err().map(|fault| Err(external_error(fault)));
    let produced = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|batch| (batch, receiver))
    });
    let stream = futures::stream::iter(refused).chain(produced);
    Box::pin(RecordBatchStreamAdapter::new(schema.clone(), stream))
}

fn external_error(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

/// Rows of a span.
pub struct SpanRows {
    /// Columns in the order of the schema, without the position.
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
    listener: &dyn EventListener,
    carry: Carry,
    send: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<()> {
    scan_spans(tasks, schema, io, listener, carry, &mut |rows| {
        Ok(send(rows.with_positions(schema)?))
    })
}

impl SpanRows {
    /// The rows in the types of a schema, with their positions.
    fn with_positions(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let indices: Vec<usize> = (0..=self.columns.len()).collect();
        self.select(&indices, schema)
    }

    /// Some columns, in the types of their schema. The positions have the index after all columns.
    fn select(&self, indices: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(indices.len());
        for (index, field) in indices.iter().zip(schema.fields()) {
            columns.push(match self.columns.get(*index) {
                Some(column) => cast(column, field.data_type())?,
                None => self.positions(),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(
            schema.clone(),
            columns,
            &options,
        )?)
    }

    fn positions(&self) -> ArrayRef {
        let positions = self.first..self.first + self.rows as u64;
        Arc::new(UInt64Array::from_iter_values(positions))
    }
}

/// Reads spans in order; stops when `take` returns false.
fn scan_spans(
    tasks: &[NumberedSpan],
    schema: &SchemaRef,
    io: &StorageClient,
    listener: &dyn EventListener,
    carry: Carry,
    take: &mut dyn FnMut(SpanRows) -> Result<bool>,
) -> Result<()> {
    let mut scan = SpanScan {
        schema,
        io,
        listener,
        carry,
        read_ahead: ReadAhead::new(1),
        take,
    };
    for task in tasks {
        scan.read_ahead.plan([(task.number, task.planned())])?;
    }
    for task in tasks {
        if !scan.read_span(task)? {
            break;
        }
    }
    Ok(())
}

/// Spans that are read in order, and the state of their windows.
struct SpanScan<'a> {
    schema: &'a SchemaRef,
    io: &'a StorageClient,
    listener: &'a dyn EventListener,
    carry: Carry,
    read_ahead: ReadAhead<usize>,
    take: &'a mut dyn FnMut(SpanRows) -> Result<bool>,
}

impl SpanScan<'_> {
    /// Reads a span; false if no more rows are wanted.
    fn read_span(&mut self, task: &NumberedSpan) -> Result<bool> {
        let input = &task.input;
        let span = &input.input.dataset.spans[task.span];
        for sorted in &input.sorted {
            sorted.attach(task.span, &mut self.carry)?;
        }
        let io = self.io;
        let source = &input.input.source;
        let chunks = self
            .read_ahead
            .take(io, task.number, || source.open(io, span, &input.request))?;
        // The span's number above, the row below: ascending in canonical order, however spans are divided among
        // threads.
        let mut row = (task.number as u64) << ROW_BITS;
        let mut counts = RowCounts::default();
        for chunk in chunks {
            let chunk = chunk.map_err(|fault| fault.file(span.label()))?;
            for part in chunk.divided() {
                let rows = self.run_chunk(input, &part, row, &mut counts)?;
                self.listener.on_event(Event::Progress {
                    rows: part.batch.num_rows() as u64,
                    bytes: 0,
                });
                let Some(rows) = rows.filter(|rows| rows.rows > 0) else {
                    continue;
                };
                row += rows.rows as u64;
                if !(self.take)(rows)? {
                    return Ok(false);
                }
            }
        }
        lock(&input.counts)?.insert(task.number, counts);
        Ok(true)
    }

    /// Runs a chunk through its chain. `first` is the position of its first row.
    fn run_chunk(
        &mut self,
        input: &StreamInput,
        chunk: &Chunk,
        first: u64,
        counts: &mut RowCounts,
    ) -> Result<Option<SpanRows>> {
        let schema = self.schema;
        let mut rows = None;
        let streamed = input.chain.run(
            std::slice::from_ref(chunk),
            &mut self.carry,
            &mut |_, output| {
                rows = Some(SpanRows {
                    columns: logical_columns(output.columns, schema)?,
                    rows: output.rows,
                    first,
                });
                Ok(())
            },
        );
        let streamed = streamed
            .map_err(|fault| record_order_failure(&input.order_failure, &self.carry, fault))?;
        counts.add(&streamed);
        Ok(rows)
    }
}

/// Columns of the logical types of a schema. Strings keep the layout in which they come.
fn logical_columns(columns: &[ArrayRef], schema: &SchemaRef) -> Result<Vec<ArrayRef>> {
    let mut logical_columns = Vec::with_capacity(columns.len());
    for (column, field) in columns.iter().zip(schema.fields()) {
        if logical_type(column.data_type()) == *field.data_type() {
            logical_columns.push(column.clone());
        } else {
            logical_columns.push(cast(column, field.data_type())?);
        }
    }
    Ok(logical_columns)
}

/// Casts the rows of a query to the declared columns, and counts them.
struct ConformedRows<'a> {
    schema: &'a SchemaRef,
    memory: MemoryBudget,
    watch: &'a dyn EventListener,
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
        let done = batch.num_rows() as u64;
        self.count += done;
        self.watch.on_event(Event::Worked { done, planned: 0 });
        self.memory.check()?;
        self.rows.take(batch)
    }
}

/// Casts the engine's rows to the declared columns. A value that does not fit is a fault.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        columns.push(cast_with_options(column, field.data_type(), &strict)?);
    }
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}
