//! Inputs of the query engine's operators whose memory it does not count.
//!
//! A window over a whole partition holds all its rows and a copy of them. An aggregate that collects values in an order
//! holds a record of each, and makes them of a whole batch before it counts any. A constant list stands in each row of a
//! batch. A join repeats the values of a row for each of its pairs, and so does a list that becomes rows. A hash join
//! copies the side that becomes its table. A sort must hold a batch before it can spill, and two of each run when it merges.
//! The inputs of such operators are counted in the memory pool, or come in fewer rows at a time. A query whose joins meet
//! longer values than a batch of pairs may repeat begins again with smaller batches.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, Partitioning, replace_children_if_necessary};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use forebay_model::{
    Fault, codes, column_bytes, has_shared_values, longest_value_bytes, plain_bytes, take_batch,
    text_length,
};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};

use super::pass_through::{PassThroughExec, RowPassage};

/// Copies of its input that a window holds: the batches, and one batch of all of them.
const WINDOW_COPIES: usize = 2;

/// Copies of a side of a hash join that the engine does not count: it makes one batch of all batches.
const TABLE_COPIES: usize = 1;

/// Bytes of the records of a value that is collected in an order, beside its own: the value and those that it is ordered
/// by, each with an allocation and a row of its own, before and behind a merge. Measured with a million texts.
const COLLECTED_ITEM_BYTES: usize = 640;

/// Aggregates that keep all values.
const COLLECTORS: [&str; 2] = ["array_agg", "string_agg"];

/// Constants above this size are not put into thousands of rows at once.
const LARGE_CONSTANT_BYTES: usize = 4 << 10;

/// Bytes that a large constant takes in all rows of a batch.
const CONSTANT_COLUMN_BYTES: usize = 8 << 20;

/// Functions that make lists of any length. Constant arguments make a constant list, which stands in each row.
const LIST_MAKERS: [&str; 4] = ["array_repeat", "array_resize", "generate_series", "range"];

/// Rows for which such lists are made at a time.
const MADE_LISTS_ROWS: usize = 64;

/// One part in this many of the engine's memory, divided by its partitions, is for the pairs of a join's batch.
const PAIRS_SHARE: usize = 4;

/// The pairs of a batch may always take this many bytes: smaller batches cost more than they save.
const PAIRS_BYTES_MIN: usize = 4 << 20;

/// One part in this many of the engine's memory, divided by its partitions, is what a sort gets at a time. It asks for twice
/// as much, and gets an equal part of what all operators that can spill may fill: 40 % of the memory.
const PORTION_SHARE: usize = 128;

/// One part in this many of the engine's memory is for a batch of sorted rows. A merge of runs asks for twice as much for
/// each of them, and gets at least eight such parts.
const SORTED_BATCH_SHARE: usize = 256;

/// Multiple of the bytes of a value that is too long for which room is left, for values behind it.
const LONGER_VALUES: usize = 4;

/// Rows of a batch with which a query can run whose joins or sorts met too long values for larger batches.
///
/// It is an extension of the session of a query that can begin again. Joins of other sessions, such as those on workers,
/// refuse only what cannot fit into all of the engine's memory.
#[derive(Debug, Default)]
pub struct JoinBatchRows {
    paired: LeastRows,
    sorted: LeastRows,
}

impl JoinBatchRows {
    /// The rows for joins; `None` while no value was too long.
    pub fn sufficient(&self) -> Option<usize> {
        self.paired.rows()
    }

    /// The rows for sorts that spill; `None` if usual batches do.
    pub fn sortable(&self) -> Option<usize> {
        self.sorted.rows()
    }
}

/// The least of the numbers of rows that are recorded; 0 while there is none.
#[derive(Debug, Default)]
struct LeastRows(AtomicUsize);

impl LeastRows {
    fn rows(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|rows| *rows > 0)
    }

    fn record(&self, rows: usize) {
        // Partitions record beside each other: the least counts. An error says that it is recorded already.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |least| {
                (least == 0 || rows < least).then_some(rows)
            });
    }
}

/// The plan with the inputs of operators admitted whose memory is not counted.
pub fn with_admitted_inputs(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let admitted = plan.transform_up(|node| {
        if let Some(swapped) = divided_before_projection(&node)? {
            return Ok(Transformed::yes(swapped));
        }
        let admission = Admission::of_input(node.as_ref());
        let is_table_join = makes_table(node.as_ref());
        if admission.is_none() && !is_table_join {
            return Ok(Transformed::no(node));
        }
        let mut children = Vec::new();
        for (place, input) in node.children().into_iter().enumerate() {
            let mut child = input.clone();
            if let Some(admission) = admission {
                child = admitted_input(&child, admission)?;
            }
            if is_table_join && place == 0 {
                child = Arc::new(AdmittedInputExec {
                    input: child,
                    passage: Admission::Held(TABLE_COPIES),
                });
            }
            children.push(child);
        }
        replace_children_if_necessary(node, children).map(Transformed::yes)
    })?;
    Ok(admitted.data)
}

/// A plan whose rows come in small batches of their own, for an operator that spills.
pub fn in_portions(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(AdmittedInputExec {
        input,
        passage: Admission::Portioned,
    })
}

/// An input of an operator, admitted. The collected partitions of a side of a join are admitted before they are collected:
/// planners of stages look for the collection.
fn admitted_input(
    input: &Arc<dyn ExecutionPlan>,
    admission: Admission,
) -> Result<Arc<dyn ExecutionPlan>> {
    let collection = match admission {
        Admission::Paired => input.downcast_ref::<CoalescePartitionsExec>(),
        _ => None,
    };
    let Some(collection) = collection else {
        return Ok(Arc::new(AdmittedInputExec {
            input: input.clone(),
            passage: admission,
        }));
    };
    let partitions = Arc::new(AdmittedInputExec {
        input: collection.input().clone(),
        passage: admission,
    });
    replace_children_if_necessary(input.clone(), vec![partitions])
}

/// Divides rows among threads before lists are made of them, and not after: the operator that divides them joins small
/// batches again.
fn divided_before_projection(
    node: &Arc<dyn ExecutionPlan>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(division) = node.downcast_ref::<RepartitionExec>() else {
        return Ok(None);
    };
    let Partitioning::RoundRobinBatch(partitions) = division.partitioning() else {
        return Ok(None);
    };
    let projection = division.input();
    if division.preserve_order() || projection.downcast_ref::<ProjectionExec>().is_none() {
        return Ok(None);
    }
    let inputs = projection.children();
    let input = inputs.first();
    let Some(admitted) = input.and_then(|input| input.downcast_ref::<AdmittedInputExec>()) else {
        return Ok(None);
    };
    let partitioning = Partitioning::RoundRobinBatch(*partitions);
    let divided = RepartitionExec::try_new(admitted.input.clone(), partitioning)?;
    let admitted = Arc::new(AdmittedInputExec {
        input: Arc::new(divided),
        passage: admitted.passage,
    });
    replace_children_if_necessary(projection.clone(), vec![admitted]).map(Some)
}

/// The way in which an input is admitted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Admission {
    /// All rows are held: each byte counts so many times until the operator ends.
    Held(usize),
    /// All rows are held, or all items of their lists, with a record of each, until the operator ends.
    Collected,
    /// At most so many rows come at a time.
    Sliced(usize),
    /// A batch of pairs may repeat each row: batches are small enough for the longest one.
    Paired,
    /// The items of lists become rows, and repeat the other columns.
    Unnested,
    /// Batches are small enough for a sort that shares the memory with others, and hold no rows but their own.
    Portioned,
}

impl Admission {
    fn of_input(operator: &dyn ExecutionPlan) -> Option<Admission> {
        if repeats_rows(operator) {
            return Some(Admission::Paired);
        }
        if let Some(unnest) = operator.downcast_ref::<UnnestExec>() {
            let has_lists = !unnest.list_column_indices().is_empty();
            return has_lists.then_some(Admission::Unnested);
        }
        if operator.downcast_ref::<WindowAggExec>().is_some() {
            return Some(Admission::Held(WINDOW_COPIES));
        }
        if let Some(aggregate) = operator.downcast_ref::<AggregateExec>() {
            return collects_in_order(aggregate).then_some(Admission::Collected);
        }
        if let Some(window) = operator.downcast_ref::<BoundedWindowAggExec>() {
            let is_sliced = window.window_expr().iter().any(collects_rows);
            return is_sliced.then_some(Admission::Sliced(MADE_LISTS_ROWS));
        }
        let projection = operator.downcast_ref::<ProjectionExec>()?;
        let expressions = || projection.expr().iter().map(|projected| &projected.expr);
        let constant_bytes = expressions().map(largest_constant).max()?;
        if constant_bytes > LARGE_CONSTANT_BYTES {
            let rows_max = CONSTANT_COLUMN_BYTES / constant_bytes;
            return Some(Admission::Sliced(rows_max.max(1)));
        }
        expressions()
            .any(makes_lists)
            .then_some(Admission::Sliced(MADE_LISTS_ROWS))
    }
}

/// True if an operator makes a table of the rows of its first input. Those of `NOT IN` are planned for workers, too, where
/// planners of stages look for the collection of the rows.
fn makes_table(operator: &dyn ExecutionPlan) -> bool {
    let join = operator.downcast_ref::<HashJoinExec>();
    join.is_some_and(|join| !join.null_aware)
}

/// True if an operator gives a row for each pair of its inputs' rows.
fn repeats_rows(operator: &dyn ExecutionPlan) -> bool {
    let join_type = if operator.downcast_ref::<CrossJoinExec>().is_some() {
        JoinType::Inner
    } else if let Some(join) = operator.downcast_ref::<SortMergeJoinExec>() {
        join.join_type()
    } else if let Some(join) = operator.downcast_ref::<HashJoinExec>() {
        *join.join_type()
    } else if let Some(join) = operator.downcast_ref::<NestedLoopJoinExec>() {
        *join.join_type()
    } else {
        return false;
    };
    // The others give each row of one side once.
    matches!(
        join_type,
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
    )
}

/// True if an aggregate collects values in an order, and gives its results. One that gives partial results gives them as
/// soon as memory is short.
fn collects_in_order(aggregate: &AggregateExec) -> bool {
    if *aggregate.mode() == AggregateMode::Partial {
        return false;
    }
    aggregate.aggr_expr().iter().any(|function| {
        COLLECTORS.contains(&function.fun().name()) && !function.order_bys().is_empty()
    })
}

/// Rows of a batch, or the items of the lists of a column where they are more.
fn item_count(batch: &RecordBatch) -> usize {
    let mut most = batch.num_rows();
    for column in batch.columns() {
        if let Some(lists) = column.as_list_opt::<i32>() {
            let offsets = lists.value_offsets();
            let begin = offsets.first().copied().unwrap_or(0);
            let end = offsets.last().copied().unwrap_or(0);
            most = most.max((end - begin).unsigned_abs() as usize);
        }
    }
    most
}

/// True if a window gives each row the values of all rows in its frame, as a list or as one text.
fn collects_rows(window: &Arc<dyn WindowExpr>) -> bool {
    let field = window.field();
    field.is_ok_and(|field| field.data_type().is_nested())
        || window.name().starts_with("string_agg(")
}

/// True if an expression makes lists whose length its arguments decide.
fn makes_lists(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let is_maker = expr
        .downcast_ref::<ScalarFunctionExpr>()
        .is_some_and(|function| LIST_MAKERS.contains(&function.name()));
    is_maker || expr.children().into_iter().any(makes_lists)
}

/// Bytes of the largest constant in an expression.
fn largest_constant(expr: &Arc<dyn PhysicalExpr>) -> usize {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return literal.value().size();
    }
    let constants = expr.children().into_iter().map(largest_constant);
    constants.max().unwrap_or(0)
}

/// Passes the batches of its input on, admitted.
type AdmittedInputExec = PassThroughExec<Admission>;

impl RowPassage for Admission {
    const NAME: &'static str = "AdmittedInputExec";

    fn settings_text(&self) -> String {
        format!("{self:?}")
    }

    fn unread(&self) -> Admission {
        *self
    }

    fn open(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let consumer = MemoryConsumer::new(format!("AdmittedInput[{partition}]"));
        Ok(Box::pin(AdmittedStream {
            reservation: consumer.register(context.memory_pool()),
            pairs: PairLimit::of_task(&context),
            sorts: SortLimit::of_task(&context),
            input: input.execute(partition, context)?,
            admission: *self,
            rest: None,
        }))
    }
}

/// Sends admitted inputs to workers.
#[derive(Debug)]
pub struct AdmittedInputCodec;

impl PhysicalExtensionCodec for AdmittedInputCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let admission: Admission = serde_json::from_slice(bytes)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        match (admission, inputs) {
            (
                Admission::Held(1..=WINDOW_COPIES)
                | Admission::Collected
                | Admission::Sliced(1..)
                | Admission::Paired
                | Admission::Unnested
                | Admission::Portioned,
                [input],
            ) => Ok(Arc::new(AdmittedInputExec {
                input: input.clone(),
                passage: admission,
            })),
            _ => Err(DataFusionError::Internal(
                "an admitted input that no coordinator sends".to_owned(),
            )),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let admitted = node.downcast_ref::<AdmittedInputExec>();
        let admitted = admitted.ok_or_else(|| {
            DataFusionError::Internal(format!("{} is no admitted input", node.name()))
        })?;
        serde_json::to_writer(bytes, &admitted.passage)
            .map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

/// Bytes of the values of a batch, as a copy of it takes them.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    columns.map(|column| column_bytes(column)).sum()
}

/// Bytes of a row at most, with the longest value of each column.
fn longest_row_bytes(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    columns.map(|column| longest_value_bytes(column)).sum()
}

/// Like [`longest_row_bytes`], without lists.
fn longest_bytes_beside_lists(batch: &RecordBatch) -> usize {
    let mut bytes = 0;
    for column in batch.columns() {
        if column.as_list_opt::<i32>().is_none() {
            bytes += longest_value_bytes(column);
        }
    }
    bytes
}

/// Bytes of the texts of a row with a copy for each item of its longest list, of the row in which they are most.
fn most_copied_bytes(batch: &RecordBatch) -> usize {
    let mut most = 0usize;
    for row in 0..batch.num_rows() {
        let mut items = 0usize;
        let mut text_bytes = 0usize;
        for column in batch.columns() {
            match column.as_list_opt::<i32>() {
                Some(lists) => items = items.max(lists.value_length(row) as usize),
                None => text_bytes += text_length(column, row),
            }
        }
        most = most.max(text_bytes.saturating_mul(items));
    }
    most
}

/// Limit of the pairs that a join gives at a time.
struct PairLimit {
    batch_rows: usize,
    /// Bytes that one side may take in a batch of pairs.
    bytes_max: usize,
    /// Present where the query can begin again.
    retry: Option<Arc<JoinBatchRows>>,
}

impl PairLimit {
    fn of_task(context: &TaskContext) -> PairLimit {
        let config = context.session_config();
        let pool_bytes = pool_bytes(context);
        let retry = config.get_extension::<JoinBatchRows>();
        let bytes_max = if retry.is_some() {
            let share = pool_bytes / PAIRS_SHARE / config.target_partitions().max(1);
            share.max(PAIRS_BYTES_MIN)
        } else {
            pool_bytes
        };
        PairLimit {
            batch_rows: config.batch_size().max(1),
            bytes_max,
            retry,
        }
    }

    /// Asks for a batch of pairs, each of which may have a copy of a row of so many bytes.
    fn admit(&self, row_bytes: usize, reservation: &MemoryReservation) -> Result<()> {
        if row_bytes.saturating_mul(self.batch_rows) <= self.bytes_max {
            return Ok(());
        }
        if self.batch_rows == 1 {
            // There is no smaller batch: one copy is made at a time.
            return ask(row_bytes, reservation);
        }
        if let Some(retry) = &self.retry {
            let longer_bytes = row_bytes.saturating_mul(LONGER_VALUES).max(1);
            let fewer_rows = self.bytes_max / longer_bytes;
            retry
                .paired
                .record(fewer_rows.clamp(1, self.batch_rows - 1));
        }
        let rows = self.batch_rows;
        let message = format!(
            "a row of {row_bytes} bytes may be repeated in each of {rows} rows of an output"
        );
        // A nested loop join would run its inputs a second time if the engine's own memory were exhausted.
        let fault = Fault::new(codes::MEMORY, message).hint("raise --memory");
        Err(DataFusionError::External(Box::new(fault)))
    }

    /// Asks for the copies of a row whose list has more items than a batch has rows: they are made at once.
    fn admit_copies(&self, copies_bytes: usize, reservation: &MemoryReservation) -> Result<()> {
        if copies_bytes <= self.bytes_max {
            return Ok(());
        }
        ask(copies_bytes, reservation)
    }
}

/// All memory of the engine.
fn pool_bytes(context: &TaskContext) -> usize {
    match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
    }
}

/// Limit of the rows that a sort gets at a time, and of those that it gives.
struct SortLimit {
    batch_rows: usize,
    portion_bytes: usize,
    /// Bytes of a batch of sorted rows with which runs can be merged.
    sorted_bytes: usize,
    /// Present where the query can begin again.
    retry: Option<Arc<JoinBatchRows>>,
}

impl SortLimit {
    fn of_task(context: &TaskContext) -> SortLimit {
        let config = context.session_config();
        let pool_bytes = pool_bytes(context);
        SortLimit {
            batch_rows: config.batch_size().max(1),
            portion_bytes: pool_bytes / PORTION_SHARE / config.target_partitions().max(1),
            sorted_bytes: pool_bytes / SORTED_BATCH_SHARE,
            retry: config.get_extension::<JoinBatchRows>(),
        }
    }

    /// The rows of a batch that a sort gets at once; `None` for all of them.
    fn portion_rows(&self, batch: &RecordBatch) -> Option<usize> {
        let rows = batch.num_rows();
        if rows == 0 {
            return None;
        }
        let columns = batch.columns().iter();
        let bytes: usize = columns.map(|column| plain_bytes(column)).sum();
        let row_bytes = bytes.div_ceil(rows).max(1);
        let sorted_rows = self.sorted_bytes / row_bytes;
        let retry = self.retry.as_ref();
        if let Some(retry) = retry.filter(|_| sorted_rows < self.batch_rows) {
            retry.sorted.record(sorted_rows.max(1));
        }
        if get_record_batch_memory_size(batch) <= self.portion_bytes {
            return None;
        }
        let mut columns = batch.columns().iter();
        // A copy of a dictionary's rows would hold all of its values.
        let is_shared = columns.any(|column| has_shared_values(column.data_type()));
        (!is_shared).then_some((self.portion_bytes / row_bytes).clamp(1, rows))
    }
}

/// A copy of a batch, without other rows of the arrays that it is a slice of.
fn copied(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = UInt32Array::from_iter_values(0..batch.num_rows() as u32);
    let copy =
        take_batch(batch, &rows).map_err(|fault| DataFusionError::External(Box::new(fault)))?;
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(copy.num_columns());
    for column in copy.columns() {
        columns.push(match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => column.clone(),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(copy.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        copy.schema(),
        columns,
        &options,
    )?)
}

/// Asks for memory that is free again once the next operator passes on what it makes.
fn ask(bytes: usize, reservation: &MemoryReservation) -> Result<()> {
    reservation.try_grow(bytes)?;
    reservation.shrink(bytes);
    Ok(())
}

/// The batches of an admitted input. An operator keeps its input until it ends, and so does the reservation.
struct AdmittedStream {
    input: SendableRecordBatchStream,
    admission: Admission,
    reservation: MemoryReservation,
    pairs: PairLimit,
    sorts: SortLimit,
    rest: Option<RecordBatch>,
}

impl AdmittedStream {
    /// Admits a batch, and returns the rows of it that are passed on.
    fn admit(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        match self.admission {
            Admission::Held(copies) => {
                let bytes = batch_bytes(&batch).saturating_mul(copies);
                self.reservation.try_grow(bytes)?;
                Ok(batch)
            }
            Admission::Collected => {
                let records = item_count(&batch).saturating_mul(COLLECTED_ITEM_BYTES);
                let bytes = batch_bytes(&batch).saturating_add(records);
                self.reservation.try_grow(bytes)?;
                Ok(batch)
            }
            Admission::Sliced(rows_max) => Ok(self.first_rows(batch, rows_max)),
            Admission::Portioned => match self.sorts.portion_rows(&batch) {
                Some(rows) => copied(&self.first_rows(batch, rows)),
                None => Ok(batch),
            },
            Admission::Paired => {
                // A join of all pairs makes those of a row and a whole batch at once.
                let batch = self.first_rows(batch, self.pairs.batch_rows);
                self.pairs
                    .admit(longest_row_bytes(&batch), &self.reservation)?;
                Ok(batch)
            }
            Admission::Unnested => {
                let row_bytes = longest_bytes_beside_lists(&batch);
                self.pairs.admit(row_bytes, &self.reservation)?;
                self.pairs
                    .admit_copies(most_copied_bytes(&batch), &self.reservation)?;
                Ok(batch)
            }
        }
    }

    /// The first rows of a batch, at most `rows_max`. The others come next.
    fn first_rows(&mut self, batch: RecordBatch, rows_max: usize) -> RecordBatch {
        if batch.num_rows() <= rows_max {
            return batch;
        }
        self.rest = Some(batch.slice(rows_max, batch.num_rows() - rows_max));
        batch.slice(0, rows_max)
    }
}

impl Stream for AdmittedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(remainder) = self.rest.take() {
            return Poll::Ready(Some(self.admit(remainder)));
        }
        let next = self.input.poll_next_unpin(context);
        next.map(|next| next.map(|batch| batch.and_then(|batch| self.admit(batch))))
    }
}

impl RecordBatchStream for AdmittedStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use forebay_storage::StorageClient;

    use super::*;

    /// The admitted plan of a query and the rows that it gives, or its error.
    fn run(query: &str, pool_bytes: usize, threads: usize) -> (String, Result<usize>) {
        let pool = Arc::new(GreedyMemoryPool::new(pool_bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
        let config = SessionConfig::new().with_target_partitions(threads);
        let context = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
        let io = StorageClient::new().unwrap();
        io.block_on(async {
            let plan = context.sql(query).await.unwrap();
            let plan = plan.create_physical_plan().await.unwrap();
            let plan = with_admitted_inputs(plan).unwrap();
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            let batches = collect(plan, context.task_ctx()).await;
            let rows = batches.map(|batches| batches.iter().map(RecordBatch::num_rows).sum());
            (shown, rows)
        })
        .unwrap()
    }

    #[test]
    fn windows_over_all_rows_are_counted_before_they_are_computed() {
        let query = "SELECT sum(value) OVER () FROM generate_series(1, 100000)";
        let (plan, rows) = run(query, 64 << 20, 1);
        assert!(plan.contains("AdmittedInputExec: Held(2)"), "{plan}");
        assert_eq!(rows.unwrap(), 100_000);
        let (_, rows) = run(query, 1 << 20, 1);
        let error = rows.unwrap_err().find_root().to_string();
        assert!(error.contains("AdmittedInput[0]"), "{error}");
    }

    /// The results of groups hold all values, with records of them.
    #[test]
    fn lists_in_an_order_are_counted_before_they_are_merged() {
        let values = "FROM generate_series(1, 100000)";
        for threads in [1, 2] {
            let query = format!("SELECT array_agg(value ORDER BY value DESC) {values}");
            let (plan, rows) = run(&query, 256 << 20, threads);
            assert!(plan.contains("AdmittedInputExec: Collected"), "{plan}");
            assert_eq!(rows.unwrap(), 1);
            let query = format!("SELECT array_agg(value), max(value) {values}");
            let (plan, rows) = run(&query, 256 << 20, threads);
            assert!(!plan.contains("AdmittedInputExec"), "{plan}");
            assert_eq!(rows.unwrap(), 1);
        }
        let query = format!("SELECT array_agg(value ORDER BY value DESC) {values}");
        let (_, rows) = run(&query, 24 << 20, 2);
        assert!(rows.is_err());
    }

    /// Each row gets the values of the rows before it.
    #[test]
    fn windows_that_collect_rows_get_few_at_a_time() {
        let query = "SELECT array_agg(value) OVER \
                     (ORDER BY value ROWS BETWEEN 100 PRECEDING AND CURRENT ROW) \
                     FROM generate_series(1, 1000)";
        let (plan, rows) = run(query, 64 << 20, 1);
        assert!(plan.contains("AdmittedInputExec: Sliced(64)"), "{plan}");
        assert_eq!(rows.unwrap(), 1_000);
        let query = "SELECT sum(value) OVER (ORDER BY value) FROM generate_series(1, 1000)";
        let (plan, _) = run(query, 64 << 20, 1);
        assert!(!plan.contains("AdmittedInputExec"), "{plan}");
    }

    /// The rows of a join in batches of some rows, or its error, and the rows of a batch that would do.
    fn run_join(query: &str, threads: usize, batch_rows: usize) -> (Result<usize>, Option<usize>) {
        let pool = Arc::new(GreedyMemoryPool::new(JOIN_POOL_BYTES));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
        let join_rows = Arc::new(JoinBatchRows::default());
        let mut config = SessionConfig::new()
            .with_target_partitions(threads)
            .with_batch_size(batch_rows)
            .with_extension(join_rows.clone());
        config.options_mut().optimizer.prefer_hash_join = false;
        let context = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
        let io = StorageClient::new().unwrap();
        let batches = io.block_on(async {
            let plan = context.sql(query).await.unwrap();
            let plan = plan.create_physical_plan().await.unwrap();
            let plan = with_admitted_inputs(plan).unwrap();
            collect(plan, context.task_ctx()).await
        });
        let rows = batches
            .unwrap()
            .map(|batches| batches.iter().map(RecordBatch::num_rows).sum());
        (rows, join_rows.sufficient())
    }

    const JOIN_POOL_BYTES: usize = 256 << 20;

    #[test]
    fn joins_of_long_values_run_with_small_batches() {
        const LENGTH: usize = 20_000;
        for threads in [1, 2] {
            for (join, pairs) in [
                ("JOIN series b ON a.k = b.value % 2", 400),
                ("LEFT JOIN series b ON a.k = b.value % 2", 400),
                ("CROSS JOIN series b", 800),
                ("JOIN series b ON a.k < b.value", 798),
            ] {
                let query = |length: usize| {
                    format!(
                        "WITH series AS (SELECT value FROM generate_series(1, 200)), \
                         texts AS (SELECT repeat('x', {length}) || CAST(value AS VARCHAR) AS t, \
                         value % 2 AS k FROM series WHERE value < 5) \
                         SELECT a.t, b.value FROM texts a {join}"
                    )
                };
                let (rows, sufficient) = run_join(&query(10), threads, 8192);
                assert_eq!((rows.unwrap(), sufficient), (pairs, None), "{join}");
                let (rows, sufficient) = run_join(&query(LENGTH), threads, 8192);
                let error = rows.unwrap_err().find_root().to_string();
                assert!(error.contains("bytes may be repeated"), "{join}: {error}");
                let sufficient = sufficient.unwrap();
                let pairs_bytes = JOIN_POOL_BYTES / PAIRS_SHARE / threads;
                assert!(sufficient * LENGTH <= pairs_bytes, "{join}: {sufficient}");
                let (rows, sufficient) = run_join(&query(LENGTH), threads, sufficient);
                assert_eq!((rows.unwrap(), sufficient), (pairs, None), "{join}");
                let (rows, _) = run_join(&query(LENGTH), threads, 1);
                assert_eq!(rows.unwrap(), pairs, "{join}");
            }
        }
    }

    #[test]
    fn lists_beside_long_values_become_rows_with_small_batches() {
        let query = |length: usize, divisor: usize| {
            format!(
                "WITH lists AS (SELECT value % {divisor} AS k, array_agg(value) AS l \
                 FROM generate_series(1, 200) GROUP BY value % {divisor}), \
                 texts AS (SELECT repeat('x', {length}) || CAST(k AS VARCHAR) AS t, l FROM lists) \
                 SELECT t, unnest(l) AS v FROM texts"
            )
        };
        for threads in [1, 2] {
            let (rows, sufficient) = run_join(&query(10, 4), threads, 8192);
            assert_eq!((rows.unwrap(), sufficient), (200, None));
            let (rows, sufficient) = run_join(&query(20_000, 4), threads, 8192);
            assert!(rows.is_err());
            let (rows, sufficient) = run_join(&query(20_000, 4), threads, sufficient.unwrap());
            assert_eq!((rows.unwrap(), sufficient), (200, None));
        }
        // Copies beside a list of 200 items: 400 MB.
        let (rows, _) = run_join(&query(2_000_000, 1), 1, 1);
        assert!(rows.is_err());
    }

    /// Rows of one side come at most once.
    #[test]
    fn joins_that_repeat_no_row_have_usual_inputs() {
        let query = "SELECT value FROM generate_series(1, 4) \
                     WHERE value IN (SELECT value FROM generate_series(1, 3))";
        for threads in [1, 2] {
            let (plan, rows) = run(query, 64 << 20, threads);
            assert!(plan.contains("Semi"), "{plan}");
            assert!(!plan.contains("Paired"), "{plan}");
            assert_eq!(rows.unwrap(), 3);
        }
    }

    /// The engine counts the rows of a table, but not their copy.
    #[test]
    fn tables_of_joins_are_counted_with_their_copy() {
        let query = "SELECT a.t FROM (SELECT value, repeat('x', 200) || CAST(value AS VARCHAR) \
                     AS t FROM generate_series(1, 50000)) a \
                     JOIN generate_series(1, 50000) b ON a.value = b.value";
        let (plan, rows) = run(query, 64 << 20, 1);
        assert!(plan.contains("AdmittedInputExec: Held(1)"), "{plan}");
        assert_eq!(rows.unwrap(), 50_000);
        // The rows have 10 MB, and their copy as many.
        let (_, rows) = run(query, 12 << 20, 1);
        let error = rows.unwrap_err().find_root().to_string();
        assert!(error.contains("Resources exhausted"), "{error}");
    }

    #[test]
    fn large_constants_stand_in_few_rows_at_a_time() {
        let query = "SELECT value, unnest(range(0, 5000)) FROM generate_series(1, 300)";
        for threads in [1, 2] {
            let (plan, rows) = run(query, 64 << 20, threads);
            assert!(plan.contains("AdmittedInputExec: Sliced("), "{plan}");
            let joins = plan
                .lines()
                .map(str::trim)
                .collect::<Vec<_>>()
                .windows(2)
                .any(|pair| {
                    pair[0].starts_with("RepartitionExec") && pair[1].starts_with("ProjectionExec")
                });
            assert!(!joins, "{plan}");
            assert_eq!(rows.unwrap(), 300 * 5_000);
        }
    }
}
