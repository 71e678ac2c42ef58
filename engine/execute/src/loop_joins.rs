//! Joins of queries that look at all pairs of rows. They hold the rows of their first side, and a copy of them.
//!
//! Where these do not fit, the engine reads that side again, writes it to disk and holds a part of it at a time. But most
//! of its operators can be read once only. And where several threads share the other side, each of them gives the rows of
//! the first side that meet none of its own share, so that such rows come several times. So a query reads such a side again
//! only where it is planned to: operators below begin anew, and joins that give unmatched rows of the first side read the
//! other side on one thread.
//!
//! Joins that give rows of their other side by all rows of the first one lose such rows where the
//! last batch of the first side does not fit beside those before it: the last share is then empty,
//! and the join ends before it gives them. So such a join is turned around. A `FULL JOIN` gives
//! what a `LEFT JOIN` does, and behind it the rows of the other side that meet none, with nulls:
//! both sides are read once more. A recursive query's last step is there once, and a join of it
//! stays as it is, and is refused where it does not fit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, JoinType, ScalarValue};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, replace_children_if_necessary,
};
use forebay_cluster::{PassThroughExec, RowPassage, batch_bytes, in_portions};
use forebay_model::{Fault, codes};
use futures::{StreamExt, stream};

/// True if an operator looks at all pairs of rows.
pub(crate) fn pairs_all_rows(operator: &dyn ExecutionPlan) -> bool {
    operator.is::<CrossJoinExec>() || operator.is::<NestedLoopJoinExec>()
}

/// A rule of the engine's optimizer that counts what such joins hold, and lets them read it again or refuses that. Its place
/// is behind all others.
#[derive(Debug)]
pub(crate) struct LoopInputs {
    /// Joins read their first side again where it does not fit.
    pub spills: bool,
}

impl LoopInputs {
    /// A join whose sides are counted, turned around where it would lose rows.
    fn counted(
        &self,
        node: Arc<dyn ExecutionPlan>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>, DataFusionError> {
        if !pairs_all_rows(node.as_ref()) {
            return Ok(Transformed::no(node));
        }
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
            && let Some(spilling) = self.spilling_join(join)?
        {
            return Ok(Transformed::yes(spilling));
        }
        self.with_counted_sides(node)
    }

    /// The rows of a join that gives rows of its other side by all rows of the first one, from
    /// joins that give rows of their first side instead. `None` for other joins, and where a side
    /// can be read once.
    fn spilling_join(
        &self,
        join: &NestedLoopJoinExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, DataFusionError> {
        let join_type = *join.join_type();
        if !self.spills || !follows_second_side(join_type) || reads_work_table(join.right()) {
            return Ok(None);
        }
        if join_type == JoinType::Full {
            if reads_work_table(join.left()) {
                return Ok(None);
            }
            return self.full_join(join).map(Some);
        }
        // Operators above may rely on the division of the other side's rows.
        let partitioning = join.properties().output_partitioning().clone();
        if matches!(partitioning, Partitioning::Range(_)) {
            return Ok(None);
        }
        let turned = self.with_counted_join(join.swap_inputs()?)?;
        if let Partitioning::Hash(keys, count) = partitioning
            && count > 1
        {
            let divided = RepartitionExec::try_new(turned, Partitioning::Hash(keys, count))?;
            return Ok(Some(Arc::new(divided)));
        }
        Ok(Some(turned))
    }

    /// A join whose sides are counted, also below a projection that puts its columns back into
    /// their order.
    fn with_counted_join(
        &self,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        if pairs_all_rows(plan.as_ref()) {
            return Ok(self.with_counted_sides(plan)?.data);
        }
        let inputs: Vec<_> = plan.children().into_iter().cloned().collect();
        let mut joins = Vec::with_capacity(inputs.len());
        for input in inputs {
            joins.push(self.with_counted_sides(input)?.data);
        }
        replace_children_if_necessary(plan, joins)
    }

    /// The rows of a `LEFT JOIN`, and then the rows of the other side that meet none, with nulls
    /// for the first side.
    fn full_join(
        &self,
        join: &NestedLoopJoinExec,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let projection = join.projection().as_deref().map(<[usize]>::to_vec);
        let pairs = NestedLoopJoinExec::try_new(
            join.left().clone(),
            join.right().clone(),
            join.filter().cloned(),
            &JoinType::Left,
            projection.clone(),
        )?;
        let unmatched = NestedLoopJoinExec::try_new(
            second_reading(join.right())?,
            second_reading(join.left())?,
            join.filter().map(JoinFilter::swap),
            &JoinType::LeftAnti,
            None,
        )?;
        let pairs = self.with_counted_sides(Arc::new(pairs))?.data;
        let unmatched = self.with_counted_sides(Arc::new(unmatched))?.data;
        let indices = projection.unwrap_or_else(|| (0..join.schema().fields().len()).collect());
        let padded = with_nulls_before(unmatched, &join.left().schema(), &indices)?;
        let end = Arc::new(EndOfRows::default());
        let first: Arc<dyn ExecutionPlan> = Arc::new(PassThroughExec {
            input: pairs,
            passage: FirstRows { end: end.clone() },
        });
        let second: Arc<dyn ExecutionPlan> = Arc::new(PassThroughExec {
            input: padded,
            passage: LaterRows { end },
        });
        let all_rows = UnionExec::try_new(vec![first, second])?;
        // Operators above may need all rows in one partition, as those of a join on one thread are.
        Ok(Arc::new(CoalescePartitionsExec::new(all_rows)))
    }

    /// A join whose sides are counted.
    fn with_counted_sides(
        &self,
        node: Arc<dyn ExecutionPlan>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>, DataFusionError> {
        let inputs: Vec<_> = node.children().into_iter().cloned().collect();
        let [first, second] = inputs.as_slice() else {
            return Ok(Transformed::no(node));
        };
        // A join that was turned around holds rows that were divided among threads.
        let mut first = first.clone();
        if first.output_partitioning().partition_count() > 1 {
            first = Arc::new(CoalescePartitionsExec::new(first));
        }
        let copy = Arc::new(CopyMemory::default());
        let join = node.downcast_ref::<NestedLoopJoinExec>();
        let loses_rows = join.is_some_and(|join| follows_second_side(*join.join_type()));
        let can_repeat = self.spills && !loses_rows && !reads_work_table(&first);
        let counted: Arc<dyn ExecutionPlan> = Arc::new(PassThroughExec {
            input: first,
            passage: LoopInput {
                can_repeat,
                is_read: AtomicBool::new(false),
                copy: copy.clone(),
            },
        });
        let mut second = second.clone();
        let is_cross = node.is::<CrossJoinExec>();
        if self.spills && !is_cross {
            let is_divided = second.output_partitioning().partition_count() > 1;
            if is_divided && join.is_some_and(|join| gives_unmatched(*join.join_type())) {
                second = Arc::new(CoalescePartitionsExec::new(second));
            }
        }
        let second: Arc<dyn ExecutionPlan> = Arc::new(PassThroughExec {
            input: second,
            passage: LoopOther { copy },
        });
        if self.spills && is_cross {
            // The engine's join without a condition cannot spill.
            let all_pairs =
                NestedLoopJoinExec::try_new(counted, second, None, &JoinType::Inner, None)?;
            return Ok(Transformed::yes(Arc::new(all_pairs)));
        }
        replace_children_if_necessary(node, vec![counted, second]).map(Transformed::yes)
    }
}

impl PhysicalOptimizerRule for LoopInputs {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let counted = plan.transform_up(|node| self.counted(node))?;
        Ok(counted.data)
    }

    fn name(&self) -> &str {
        "loop_inputs"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// True if a join gives rows of its first side that depend on all rows of the other side.
fn gives_unmatched(join_type: JoinType) -> bool {
    match join_type {
        JoinType::Left
        | JoinType::LeftSemi
        | JoinType::LeftAnti
        | JoinType::LeftMark
        | JoinType::Full => true,
        JoinType::Inner
        | JoinType::Right
        | JoinType::RightSemi
        | JoinType::RightAnti
        | JoinType::RightMark => false,
    }
}

/// True if a join gives rows of its other side that depend on all rows of the first one. The
/// engine's join loses such rows where it spills.
fn follows_second_side(join_type: JoinType) -> bool {
    match join_type {
        JoinType::Right
        | JoinType::RightSemi
        | JoinType::RightAnti
        | JoinType::RightMark
        | JoinType::Full => true,
        JoinType::Inner
        | JoinType::Left
        | JoinType::LeftSemi
        | JoinType::LeftAnti
        | JoinType::LeftMark => false,
    }
}

/// A plan that reads the rows of another one once more.
fn second_reading(
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    // Joins in it hold copies while those of the other plan do.
    let renewed = reset_plan_states(plan.clone())?.transform_up(|node| {
        let inputs: Vec<_> = node.children().into_iter().cloned().collect();
        let [first, second] = inputs.as_slice() else {
            return Ok(Transformed::no(node));
        };
        let Some(loop_input) = first.downcast_ref::<PassThroughExec<LoopInput>>() else {
            return Ok(Transformed::no(node));
        };
        let Some(loop_other) = second.downcast_ref::<PassThroughExec<LoopOther>>() else {
            return Ok(Transformed::no(node));
        };
        let copy = Arc::new(CopyMemory::default());
        let counted = PassThroughExec {
            input: loop_input.input.clone(),
            passage: LoopInput {
                copy: copy.clone(),
                ..loop_input.passage.unread()
            },
        };
        let second = PassThroughExec {
            input: loop_other.input.clone(),
            passage: LoopOther { copy },
        };
        let sides: Vec<Arc<dyn ExecutionPlan>> = vec![Arc::new(counted), Arc::new(second)];
        replace_children_if_necessary(node, sides).map(Transformed::yes)
    })?;
    Ok(renewed.data)
}

/// Those columns of a join of two sides that `indices` name, where rows of the second side meet
/// none of the first one.
fn with_nulls_before(
    second: Arc<dyn ExecutionPlan>,
    first_schema: &Schema,
    indices: &[usize],
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let second_schema = second.schema();
    let mut columns: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::with_capacity(indices.len());
    for index in indices {
        let Some(position) = index.checked_sub(first_schema.fields().len()) else {
            let field = first_schema.field(*index);
            let missing = ScalarValue::try_from(field.data_type())?;
            let value: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(missing));
            columns.push((value, field.name().clone()));
            continue;
        };
        let field = second_schema.field(position);
        let value: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), position));
        columns.push((value, field.name().clone()));
    }
    Ok(Arc::new(ProjectionExec::try_new(columns, second)?))
}

/// True if a plan reads the rows of a recursive query's last step, which it can do once.
fn reads_work_table(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is::<RecursiveQueryExec>() {
        return false;
    }
    plan.is::<WorkTableExec>() || plan.children().into_iter().any(reads_work_table)
}

/// Memory for the copy of the side of a join that the join holds. The join copies the rows once it has read all of them, and
/// then reads its other side.
#[derive(Debug, Default)]
struct CopyMemory(Mutex<Option<Arc<MemoryReservation>>>);

impl CopyMemory {
    /// Keeps the memory of a copy in place of that of an earlier one, until it is freed.
    fn replace(&self, reservation: Option<Arc<MemoryReservation>>) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *current = reservation;
    }

    fn free(&self) {
        self.replace(None);
    }
}

/// Passage of the side of a join that the join holds. Asks for a copy of it, which the engine does not count.
#[derive(Debug)]
struct LoopInput {
    /// The rows can be read again, which the join does if they do not fit.
    can_repeat: bool,
    is_read: AtomicBool,
    copy: Arc<CopyMemory>,
}

impl RowPassage for LoopInput {
    const NAME: &'static str = "LoopInputExec";

    fn settings_text(&self) -> String {
        format!("can_repeat={}", self.can_repeat)
    }

    fn unread(&self) -> LoopInput {
        LoopInput {
            can_repeat: self.can_repeat,
            is_read: AtomicBool::new(false),
            copy: self.copy.clone(),
        }
    }

    fn open(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        if self.is_read.swap(true, Ordering::Relaxed) {
            self.copy.free();
            if !self.can_repeat {
                let message = "a side of a join of all pairs does not fit into the memory limit";
                let fault = Fault::new(codes::MEMORY, message)
                    .hint("raise --memory, or keep the rows of the other side by a LEFT JOIN");
                return Err(DataFusionError::External(Box::new(fault)));
            }
            // The rows go to disk, without a copy. The join holds a batch of them for each thread at least, and counts each
            // of its columns as large as the batch.
            let input = reset_plan_states(input.clone())?;
            return in_portions(input).execute(partition, context);
        }
        let consumer = MemoryConsumer::new(format!("LoopInput[{partition}]"));
        let reservation = Arc::new(consumer.register(context.memory_pool()));
        self.copy.replace(Some(reservation.clone()));
        let rows = input.execute(partition, context)?;
        let batches = rows.map(move |batch| {
            let batch = batch?;
            reservation.try_grow(batch_bytes(&batch))?;
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            input.schema(),
            batches,
        )))
    }
}

/// Passage of the other side of a join. The join reads it once it has copied its first side, whose memory is freed then.
#[derive(Debug)]
struct LoopOther {
    copy: Arc<CopyMemory>,
}

impl RowPassage for LoopOther {
    const NAME: &'static str = "LoopOtherExec";

    fn unread(&self) -> LoopOther {
        LoopOther {
            copy: self.copy.clone(),
        }
    }

    fn open(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let mut rows = input.execute(partition, context)?;
        let mut copy = Some(self.copy.clone());
        let batches = stream::poll_fn(move |task| {
            if let Some(copy) = copy.take() {
                copy.free();
            }
            rows.poll_next_unpin(task)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            input.schema(),
            batches,
        )))
    }
}

/// End of the rows of a plan, for which another plan waits: one of both holds rows at a time.
#[derive(Debug, Default)]
struct EndOfRows(Mutex<EndState>);

#[derive(Debug, Default)]
struct EndState {
    has_ended: bool,
    waiting: Vec<Waker>,
}

impl EndOfRows {
    fn lock(&self) -> MutexGuard<'_, EndState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for waker in waiting {
            waker.wake();
        }
    }

    fn poll_end(&self, task: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.has_ended {
            return Poll::Ready(());
        }
        let waker = task.waker();
        if !state.waiting.iter().any(|other| other.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
        Poll::Pending
    }
}

/// Rows that are being read. Rows that wait for their end are read once it is dropped.
struct ReadRows {
    // Dropped first, with its memory.
    rows: SendableRecordBatchStream,
    _end: EndGuard,
}

/// Reports the end when it is dropped, by a panic, too.
struct EndGuard(Arc<EndOfRows>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Passage of the rows for whose end others wait.
#[derive(Debug)]
struct FirstRows {
    end: Arc<EndOfRows>,
}

impl RowPassage for FirstRows {
    const NAME: &'static str = "FirstRowsExec";

    fn unread(&self) -> FirstRows {
        FirstRows {
            end: self.end.clone(),
        }
    }

    fn open(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let guard = EndGuard(self.end.clone());
        let mut reading = Some(ReadRows {
            rows: input.execute(partition, context)?,
            _end: guard,
        });
        let batches = stream::poll_fn(move |task| {
            let Some(read) = &mut reading else {
                return Poll::Ready(None);
            };
            let polled = read.rows.poll_next_unpin(task);
            if matches!(polled, Poll::Ready(None)) {
                reading = None;
            }
            polled
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            input.schema(),
            batches,
        )))
    }
}

/// Passage of rows that are read behind others.
#[derive(Debug)]
struct LaterRows {
    end: Arc<EndOfRows>,
}

impl RowPassage for LaterRows {
    const NAME: &'static str = "LaterRowsExec";

    fn unread(&self) -> LaterRows {
        LaterRows {
            end: self.end.clone(),
        }
    }

    fn open(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let schema = input.schema();
        let input = input.clone();
        let end = self.end.clone();
        let mut opened: Option<SendableRecordBatchStream> = None;
        let batches = stream::poll_fn(move |task| {
            if opened.is_none() {
                ready!(end.poll_end(task));
                match input.execute(partition, context.clone()) {
                    Ok(rows) => opened = Some(rows),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
            }
            match &mut opened {
                Some(rows) => rows.poll_next_unpin(task),
                None => Poll::Ready(None),
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
    use datafusion::datasource::MemTable;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use forebay_cluster::remote_fault;
    use forebay_storage::{MemoryBudget, StorageClient};
    use futures::TryStreamExt;

    use super::*;
    use crate::query_engine::engine_fault;
    use crate::query_memory::QueryMemoryPool;

    const BATCH_ROWS: i64 = 200;

    /// Rows with keys of 100 values, some of which are null, and texts of 400 bytes.
    fn batch(rows: Range<i64>) -> RecordBatch {
        let keys = rows
            .clone()
            .map(|row| Some(row % 100).filter(|key| *key != 7));
        let texts = rows.clone().map(|row| format!("{row:0>400}"));
        let keys: ArrayRef = Arc::new(Int64Array::from_iter(keys));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let columns = [("k", keys, true), ("v", values, true), ("x", texts, true)];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    fn table(rows: i64) -> Arc<MemTable> {
        let firsts = (0..rows).step_by(BATCH_ROWS as usize);
        let batches: Vec<RecordBatch> = firsts
            .map(|first| batch(first..(first + BATCH_ROWS).min(rows)))
            .collect();
        Arc::new(MemTable::try_new(batches[0].schema(), vec![batches]).unwrap())
    }

    /// The tables `large` and `small` for queries. Without `spills`, joins are as the engine plans them.
    fn context(spills: Option<bool>, threads: usize, pool: QueryMemoryPool) -> SessionContext {
        let mut config = SessionConfig::new()
            .with_target_partitions(threads)
            .with_batch_size(BATCH_ROWS as usize);
        config.options_mut().optimizer.join_reordering = false;
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool));
        let mut rules = PhysicalOptimizer::new().rules;
        if let Some(spills) = spills {
            rules.push(Arc::new(LoopInputs { spills }));
        }
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime.build_arc().unwrap())
            .with_default_features()
            .with_physical_optimizer_rules(rules)
            .build();
        let context = SessionContext::new_with_state(state);
        let small = table(2 * BATCH_ROWS);
        context.register_table("large", table(4_000)).unwrap();
        context.register_table("small", small).unwrap();
        context
    }

    /// The plan of a query, and its rows.
    fn collected(
        query: &str,
        context: &SessionContext,
    ) -> (String, Result<RecordBatch, DataFusionError>) {
        let io = StorageClient::new().unwrap();
        io.block_on(async {
            let planned = context.sql(query).await.unwrap();
            let plan = planned.create_physical_plan().await.unwrap();
            let plan_text = displayable(plan.as_ref()).indent(false).to_string();
            let batches = collect(plan.clone(), context.task_ctx()).await;
            let rows = batches.map(|batches| concat_batches(&plan.schema(), &batches).unwrap());
            (plan_text, rows)
        })
        .unwrap()
    }

    /// The plan of a query, and its rows or its fault. Half of the memory is the engine's.
    fn run(
        query: &str,
        spills: Option<bool>,
        threads: usize,
        pool_bytes: u64,
    ) -> (String, Result<RecordBatch, Fault>) {
        let pool = QueryMemoryPool::new(MemoryBudget::new(2 * pool_bytes));
        let (plan_text, rows) = collected(query, &context(spills, threads, pool));
        (
            plan_text,
            rows.map_err(|error| engine_fault(error, "query")),
        )
    }

    const LARGE_POOL: u64 = 1 << 30;

    /// Too little memory for the large table and its copy; of each thread, which holds batches of its own.
    const SMALL_POOL: u64 = 1 << 20;

    /// Rows that meet no row of the other side count once, whatever share of it a thread reads.
    #[test]
    fn joins_of_all_pairs_give_the_same_rows_in_memory_and_spilling() {
        let pair_columns = "count(*), sum(a.v), max(a.x), count(b.v), sum(b.v), max(b.x)";
        let large_columns = "count(*), sum(a.v), max(a.x)";
        let small_columns = "count(*), sum(b.v), max(b.x)";
        let mut refused = 0;
        let mut repartitioned = 0;
        for (join, columns, is_large_first) in [
            ("JOIN", pair_columns, true),
            ("LEFT JOIN", pair_columns, true),
            ("RIGHT JOIN", pair_columns, true),
            ("RIGHT JOIN", pair_columns, false),
            ("FULL JOIN", pair_columns, true),
            ("FULL JOIN", pair_columns, false),
            ("LEFT SEMI JOIN", large_columns, true),
            ("LEFT ANTI JOIN", large_columns, true),
            ("RIGHT SEMI JOIN", small_columns, true),
            ("RIGHT SEMI JOIN", large_columns, false),
            ("RIGHT ANTI JOIN", small_columns, true),
            ("RIGHT ANTI JOIN", large_columns, false),
            ("CROSS JOIN", pair_columns, true),
        ] {
            let (rows, condition) = match join {
                "CROSS JOIN" => ("v < 5", ""),
                _ => ("v >= 300", "ON a.k + 370 < b.v AND b.k < 80"),
            };
            let large = "(SELECT * FROM large WHERE v >= 0) a";
            let small = format!("(SELECT * FROM small WHERE {rows}) b");
            let sides = if is_large_first {
                format!("{large} {join} {small}")
            } else {
                format!("{small} {join} {large}")
            };
            let query = format!("SELECT {columns} FROM {sides} {condition}");
            let (_, expected) = run(&query, None, 1, LARGE_POOL);
            let expected = expected.unwrap();
            for threads in [1, 2, 3] {
                let (plan_text, rows) = run(&query, Some(false), threads, LARGE_POOL);
                assert!(plan_text.contains("LoopInputExec"), "{query}: {plan_text}");
                assert_eq!(rows.unwrap(), expected, "{query}, {threads}");
                let (plan_text, rows) = run(&query, Some(true), threads, LARGE_POOL);
                assert_eq!(rows.unwrap(), expected, "{query}, {threads}: {plan_text}");
                let small_pool = SMALL_POOL * threads as u64;
                let (_, rows) = run(&query, Some(false), threads, small_pool);
                match rows {
                    Ok(rows) => assert_eq!(rows, expected, "{query}, {threads}"),
                    Err(fault) => {
                        assert_eq!(fault.code(), codes::MEMORY, "{query}");
                        refused += 1;
                    }
                }
                let (plan_text, rows) = run(&query, Some(true), threads, small_pool);
                repartitioned += usize::from(plan_text.contains("RepartitionExec"));
                assert_eq!(rows.unwrap(), expected, "{query}, {threads}: {plan_text}");
            }
        }
        assert!(refused > 0, "all joins fit");
        assert!(repartitioned > 0, "no plan divides its inputs again");
    }

    /// The rows in the order of their values.
    fn sorted(rows: &RecordBatch) -> RecordBatch {
        let columns: Vec<SortColumn> = rows
            .columns()
            .iter()
            .map(|values| SortColumn {
                values: values.clone(),
                options: None,
            })
            .collect();
        let order = lexsort_to_indices(&columns, None).unwrap();
        take_record_batch(rows, &order).unwrap()
    }

    /// All rows come out, with nulls where a side has none.
    #[test]
    fn rows_of_outer_joins_of_all_pairs_are_those_in_memory() {
        for (join, is_large_first) in [
            ("RIGHT JOIN", true),
            ("RIGHT JOIN", false),
            ("FULL JOIN", true),
            ("FULL JOIN", false),
        ] {
            let large = "(SELECT k, v, x FROM large WHERE v < 3000) a";
            let small = "(SELECT k, v, x FROM small WHERE v >= 300) b";
            let sides = if is_large_first {
                format!("{large} {join} {small}")
            } else {
                format!("{small} {join} {large}")
            };
            let query = format!(
                "SELECT b.v AS w, a.k, a.v, length(a.x) AS n, length(b.x) AS m FROM {sides} \
                 ON a.k + 370 < b.v AND b.k < 80 AND a.v < 600"
            );
            let (_, expected) = run(&query, None, 1, LARGE_POOL);
            let expected = sorted(&expected.unwrap());
            assert!(expected.num_rows() > 0, "{query}");
            for threads in [1, 3] {
                let small_pool = SMALL_POOL * threads as u64;
                let (plan_text, rows) = run(&query, Some(true), threads, small_pool);
                let rows = sorted(&rows.unwrap());
                assert_eq!(rows, expected, "{query}, {threads}: {plan_text}");
            }
        }
    }

    /// A join that is turned around keeps the division of rows on which the join above it relies.
    #[test]
    fn joins_above_a_join_of_all_pairs_meet_the_same_rows() {
        let query = "SELECT count(*), sum(c.v), count(a.v) FROM (SELECT b.k, a.v FROM \
                     (SELECT * FROM small WHERE v < 50) a RIGHT JOIN \
                     (SELECT k, count(*) AS n FROM large GROUP BY k) b ON a.v < b.n) a \
                     JOIN small c ON a.k = c.k";
        let (_, expected) = run(query, None, 1, LARGE_POOL);
        let expected = expected.unwrap();
        for threads in [1, 2, 3] {
            let (plan_text, rows) = run(query, Some(true), threads, LARGE_POOL);
            assert_eq!(rows.unwrap(), expected, "{threads}: {plan_text}");
        }
    }

    /// The copy of a side that is read once more counts its copies apart.
    #[test]
    fn full_joins_within_each_other_give_the_same_rows() {
        let query = "SELECT count(*), sum(a.v), sum(b.v), sum(c.v) FROM \
                     (SELECT * FROM large WHERE v < 900) a FULL JOIN \
                     (SELECT * FROM small WHERE v >= 380) b ON a.k + 370 < b.v FULL JOIN \
                     (SELECT * FROM small WHERE v < 3) c ON a.v + c.v > 890";
        let (_, expected) = run(query, None, 1, LARGE_POOL);
        let expected = expected.unwrap();
        for threads in [1, 2] {
            for pool_bytes in [LARGE_POOL, 2 * SMALL_POOL * threads as u64] {
                let (plan_text, rows) = run(query, Some(true), threads, pool_bytes);
                assert!(plan_text.contains("LaterRowsExec"), "{plan_text}");
                assert_eq!(rows.unwrap(), expected, "{threads}: {plan_text}");
            }
        }
    }

    /// The rows of a step are there once.
    #[test]
    fn steps_of_recursive_queries_that_do_not_fit_are_refused() {
        let query = |rows: usize| {
            format!(
                "WITH RECURSIVE steps AS (SELECT v AS n, x FROM large WHERE v < {rows} UNION ALL \
                 SELECT s.n + 10000 AS n, s.x FROM steps s JOIN small b ON s.n > b.v - 1 \
                 WHERE s.n < 10000 AND b.v = 0) SELECT count(*), max(x) FROM steps"
            )
        };
        for threads in [1, 2] {
            for spills in [false, true] {
                let (plan_text, rows) = run(&query(100), Some(spills), threads, LARGE_POOL);
                assert!(plan_text.contains("LoopInputExec"), "{plan_text}");
                assert_eq!(rows.unwrap().num_rows(), 1, "{plan_text}");
                let (_, rows) = run(&query(1_500), Some(spills), threads, SMALL_POOL);
                let fault = rows.unwrap_err();
                assert_eq!(fault.code(), codes::MEMORY);
                assert_eq!(fault.site().step.as_deref(), Some("query"), "{fault}");
            }
        }
    }

    /// The join copies the rows after it has read them, and before it reads the other side.
    #[test]
    fn a_copy_is_counted_until_the_other_side_is_read() {
        let pool = QueryMemoryPool::new(MemoryBudget::new(2 * LARGE_POOL));
        let session = context(None, 1, pool);
        let io = StorageClient::new().unwrap();
        io.block_on(async {
            let planned = session.sql("SELECT * FROM small").await.unwrap();
            let input = planned.create_physical_plan().await.unwrap();
            let copy = Arc::new(CopyMemory::default());
            let first = PassThroughExec {
                input: input.clone(),
                passage: LoopInput {
                    can_repeat: false,
                    is_read: AtomicBool::new(false),
                    copy: copy.clone(),
                },
            };
            let other = PassThroughExec {
                input,
                passage: LoopOther { copy },
            };
            let task = session.task_ctx();
            let mut other_rows = other.execute(0, task.clone()).unwrap();
            let rows = first.execute(0, task.clone()).unwrap();
            let batches: Vec<RecordBatch> = rows.try_collect().await.unwrap();
            let mut copy_bytes = 0;
            for batch in &batches {
                copy_bytes += batch_bytes(batch);
            }
            assert!(copy_bytes > 0);
            assert_eq!(task.memory_pool().reserved(), copy_bytes);
            other_rows.next().await.unwrap().unwrap();
            assert_eq!(task.memory_pool().reserved(), 0);
        })
        .unwrap();
    }

    /// Workers cannot read again what others send them.
    #[test]
    fn joins_of_all_pairs_that_are_divided_among_processes_are_refused() {
        let query = "SELECT count(*), max(a.x) FROM (SELECT * FROM large WHERE v >= 0) a \
                     LEFT JOIN small b ON a.k + 370 < b.v";
        for threads in [1, 2] {
            let pool = QueryMemoryPool::of_stages(MemoryBudget::new(2 * LARGE_POOL));
            let (_, rows) = collected(query, &context(None, threads, pool));
            assert_eq!(rows.unwrap().num_rows(), 1);
            let pool = QueryMemoryPool::of_stages(MemoryBudget::new(2 * SMALL_POOL));
            let (_, rows) = collected(query, &context(None, threads, pool));
            let (fault, _) = remote_fault(&rows.unwrap_err()).unwrap();
            assert_eq!(fault.code(), codes::MEMORY);
        }
    }
}
