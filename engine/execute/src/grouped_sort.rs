//! Sorts of rows that come in the order of their leading columns, such as those behind a window with the same partitions.
//!
//! Rows whose leading columns are equal are a group. A group is sorted by the other columns and passed on once the next
//! one begins. If a group is too large, its rows and all behind them go to a sort of the engine, which spills. Such sorts get
//! small batches: each must hold one before it can spill.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, make_comparator};
use arrow::compute::{
    LexicographicalComparator, SortColumn, SortOptions, concat_batches, partition,
    take_record_batch,
};
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    replace_children_if_necessary,
};
use forebay_cluster::in_portions;
use futures::{StreamExt, stream};

/// Bytes of a group and of a batch behind it at most.
const GROUP_BYTES_MAX: usize = 16 << 20;

/// One part in this many of the engine's memory, divided by its partitions, is for the copies of a group.
const GROUP_SHARE: usize = 32;

/// Copies of a group's rows: the batches, one batch of all of them, and the rows in order.
const GROUP_COPIES: usize = 3;

/// A rule of the engine's optimizer that sorts groups of rows where their order allows it, and gives other sorts their rows
/// in small batches. Its place is behind those that insert sorts.
#[derive(Debug)]
pub(crate) struct GroupedSorts;

impl PhysicalOptimizerRule for GroupedSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let grouped = plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else {
                return Ok(Transformed::no(node));
            };
            if let Some(grouped) = GroupedSortExec::in_place_of(sort)? {
                return Ok(Transformed::yes(Arc::new(grouped) as Arc<dyn ExecutionPlan>));
            }
            // One that keeps a few rows does not spill.
            if sort.fetch().is_some() {
                return Ok(Transformed::no(node));
            }
            let input = in_portions(sort.input().clone());
            replace_children_if_necessary(node, vec![input]).map(Transformed::yes)
        })?;
        Ok(grouped.data)
    }

    fn name(&self) -> &str {
        "grouped_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The order of rows, as that of groups and that within each group.
#[derive(Debug)]
struct GroupOrder {
    /// The rows come in this order.
    leading: Vec<PhysicalSortExpr>,
    within: Vec<PhysicalSortExpr>,
}

impl GroupOrder {
    fn leading_columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, DataFusionError> {
        let columns = sort_columns(&self.leading, batch)?;
        Ok(columns.into_iter().map(|column| column.values).collect())
    }

    /// The first row of the last group of a batch that has rows.
    fn last_group_start(&self, batch: &RecordBatch) -> Result<usize, DataFusionError> {
        let columns = sort_columns(&self.leading, batch)?;
        let comparator = LexicographicalComparator::try_new(&columns)?;
        let last_row = batch.num_rows() - 1;
        let mut start = last_row;
        while start > 0 && comparator.compare(start - 1, last_row).is_eq() {
            start -= 1;
        }
        Ok(start)
    }
}

/// The columns of keys in the rows of a batch.
fn sort_columns(
    keys: &[PhysicalSortExpr],
    batch: &RecordBatch,
) -> Result<Vec<SortColumn>, DataFusionError> {
    let keys = keys.iter();
    keys.map(|key| key.evaluate_to_sort_column(batch)).collect()
}

/// Sorts groups of rows.
#[derive(Debug)]
struct GroupedSortExec {
    /// The sort that does the same for rows in any order.
    sort: Arc<SortExec>,
    order: Arc<GroupOrder>,
}

impl GroupedSortExec {
    /// The operator that does what a sort does; `None` if the rows come in no order that helps.
    fn in_place_of(sort: &SortExec) -> Result<Option<GroupedSortExec>, DataFusionError> {
        let input = sort.input();
        let is_divided = input.output_partitioning().partition_count() > 1;
        let merges = is_divided && !sort.preserve_partitioning();
        if merges || sort.fetch().is_some() {
            return Ok(None);
        }
        let properties = input.equivalence_properties();
        let (leading, is_sorted) = properties.extract_common_sort_prefix(sort.expr().clone())?;
        if is_sorted || leading.is_empty() {
            return Ok(None);
        }
        let mut within = Vec::new();
        for key in sort.expr().iter() {
            if !leading.contains(key) {
                within.push(key.clone());
            }
        }
        Ok(Some(GroupedSortExec {
            sort: Arc::new(sort.clone()),
            order: Arc::new(GroupOrder { leading, within }),
        }))
    }
}

impl DisplayAs for GroupedSortExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.sort.expr();
        let leading = self.order.leading.len();
        write!(f, "GroupedSortExec: expr=[{order}], leading={leading}")
    }
}

impl ExecutionPlan for GroupedSortExec {
    fn name(&self) -> &str {
        "GroupedSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sort.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![self.sort.input()]
    }

    fn apply_expressions(
        &self,
        apply: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        self.sort.apply_expressions(apply)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let input = children.into_iter().next();
        let input =
            input.ok_or_else(|| DataFusionError::Internal("a sort of nothing".to_owned()))?;
        let sort = SortExec::new(self.sort.expr().clone(), input)
            .with_preserve_partitioning(self.sort.preserve_partitioning());
        match GroupedSortExec::in_place_of(&sort)? {
            Some(grouped) => Ok(Arc::new(grouped)),
            None => Ok(Arc::new(sort)),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let consumer = MemoryConsumer::new(format!("GroupedSort[{partition}]"));
        let rows = GroupedRows {
            sort: self.sort.clone(),
            order: self.order.clone(),
            reservation: consumer.register(context.memory_pool()),
            bytes_max: group_bytes_max(&context),
            input: Some(self.sort.input().execute(partition, context.clone())?),
            context,
            open: Vec::new(),
            open_bytes: 0,
            sorted: None,
            spilling: None,
        };
        let batches = stream::try_unfold(rows, GroupedRows::next);
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }
}

/// Bytes that a group may take, with a batch behind it.
fn group_bytes_max(context: &TaskContext) -> usize {
    let pool_bytes = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
    };
    let partitions = context.session_config().target_partitions().max(1);
    let share_bytes = pool_bytes / GROUP_SHARE / partitions;
    GROUP_BYTES_MAX.min(share_bytes / GROUP_COPIES)
}

/// The rows of a partition on their way.
struct GroupedRows {
    sort: Arc<SortExec>,
    order: Arc<GroupOrder>,
    context: Arc<TaskContext>,
    /// Memory for the largest group so far.
    reservation: MemoryReservation,
    bytes_max: usize,
    /// Present until all rows are read.
    input: Option<SendableRecordBatchStream>,
    /// Rows of the last group, which may go on.
    open: Vec<RecordBatch>,
    open_bytes: usize,
    /// Rows of complete groups.
    sorted: Option<SortedRows>,
    /// The rows from a group on that is too large.
    spilling: Option<SendableRecordBatchStream>,
}

impl GroupedRows {
    /// The next rows in order.
    async fn next(mut self) -> Result<Option<(RecordBatch, GroupedRows)>, DataFusionError> {
        loop {
            if let Some(batch) = self.next_sorted()? {
                return Ok(Some((batch, self)));
            }
            if let Some(spilling) = &mut self.spilling {
                let batch = spilling.next().await.transpose()?;
                return Ok(batch.map(|batch| (batch, self)));
            }
            let Some(input) = &mut self.input else {
                return Ok(None);
            };
            let batch = input.next().await.transpose()?;
            match batch {
                Some(batch) if batch.num_rows() > 0 => self.push(batch)?,
                Some(_) => {}
                None => {
                    self.input = None;
                    self.close_group()?;
                }
            }
        }
    }

    fn next_sorted(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let Some(sorted) = &mut self.sorted else {
            return Ok(None);
        };
        let batch = sorted.next()?;
        if batch.is_none() {
            self.sorted = None;
        }
        Ok(batch)
    }

    /// Adds rows. All groups but the last one are complete.
    fn push(&mut self, batch: RecordBatch) -> Result<(), DataFusionError> {
        let batch_bytes = get_record_batch_memory_size(&batch);
        if !self.admit(batch_bytes) {
            return self.sort_spilling(batch);
        }
        let last_start = self.order.last_group_start(&batch)?;
        if last_start > 0 {
            self.open.push(batch.slice(0, last_start));
            self.close_group()?;
            let last_rows = batch.num_rows() - last_start;
            self.open.push(batch.slice(last_start, last_rows));
        } else {
            if !self.continues_group(&batch)? {
                self.close_group()?;
            }
            self.open.push(batch);
        }
        self.open_bytes += batch_bytes;
        Ok(())
    }

    /// True if there is memory for a batch beside the last group.
    fn admit(&self, batch_bytes: usize) -> bool {
        let bytes = self.open_bytes + batch_bytes;
        if bytes > self.bytes_max {
            return false;
        }
        let missing_bytes = (GROUP_COPIES * bytes).saturating_sub(self.reservation.size());
        missing_bytes == 0 || self.reservation.try_grow(missing_bytes).is_ok()
    }

    /// True if the first row of a batch is of the last group.
    fn continues_group(&self, batch: &RecordBatch) -> Result<bool, DataFusionError> {
        let Some(open) = self.open.last() else {
            return Ok(true);
        };
        let open_row = open.slice(open.num_rows() - 1, 1);
        let open_values = self.order.leading_columns(&open_row)?;
        let next_values = self.order.leading_columns(&batch.slice(0, 1))?;
        for (open_value, next_value) in open_values.iter().zip(&next_values) {
            let compare = make_comparator(open_value, next_value, SortOptions::default())?;
            if compare(0, 0).is_ne() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sorts the rows so far.
    fn close_group(&mut self) -> Result<(), DataFusionError> {
        let batches = std::mem::take(&mut self.open);
        self.open_bytes = 0;
        if batches.is_empty() {
            return Ok(());
        }
        let rows = concat_batches(&self.sort.schema(), &batches)?;
        let batch_rows = self.context.session_config().batch_size();
        self.sorted = Some(SortedRows::new(rows, &self.order, batch_rows)?);
        Ok(())
    }

    /// Sorts the last group, a batch and all rows behind it with the engine. Rows of earlier groups are passed on already.
    fn sort_spilling(&mut self, batch: RecordBatch) -> Result<(), DataFusionError> {
        self.open.push(batch);
        let batches = std::mem::take(&mut self.open);
        self.open_bytes = 0;
        self.reservation.free();
        let unread = stream::iter(self.input.take()).flatten();
        let rows_in_order = stream::iter(batches.into_iter().map(Ok)).chain(unread);
        let schema = self.sort.input().schema();
        let remaining: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(schema.clone(), rows_in_order));
        let rows = RemainingRows {
            schema: schema.clone(),
            rows: Mutex::new(Some(remaining)),
        };
        let table = StreamingTableExec::try_new(
            schema,
            vec![Arc::new(rows)],
            None,
            Vec::<LexOrdering>::new(),
            false,
            None,
        )?;
        let sort = SortExec::new(self.sort.expr().clone(), in_portions(Arc::new(table)));
        self.spilling = Some(sort.execute(0, self.context.clone())?);
        Ok(())
    }
}

/// Rows of complete groups, and their order.
struct SortedRows {
    rows: RecordBatch,
    positions: UInt32Array,
    /// Positions that are passed on.
    passed: usize,
    batch_rows: usize,
}

impl SortedRows {
    /// Sorts each group of some rows, which come out in batches of at most `batch_rows` rows.
    fn new(
        rows: RecordBatch,
        order: &GroupOrder,
        batch_rows: usize,
    ) -> Result<SortedRows, DataFusionError> {
        let columns = sort_columns(&order.within, &rows)?;
        let comparator = LexicographicalComparator::try_new(&columns)?;
        // The rows of a group are far fewer than numbers of 32 bits.
        let mut positions: Vec<u32> = (0..rows.num_rows() as u32).collect();
        for group in partition(&order.leading_columns(&rows)?)?.ranges() {
            positions[group].sort_by(|a, b| comparator.compare(*a as usize, *b as usize));
        }
        // Batches of about one size: a batch and a few rows more would become a tiny batch.
        let batches = rows.num_rows().div_ceil(batch_rows.max(1)).max(1);
        Ok(SortedRows {
            batch_rows: rows.num_rows().div_ceil(batches),
            rows,
            positions: UInt32Array::from(positions),
            passed: 0,
        })
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let count = self.batch_rows.min(self.positions.len() - self.passed);
        if count == 0 {
            return Ok(None);
        }
        let positions = self.positions.slice(self.passed, count);
        self.passed += count;
        Ok(Some(take_record_batch(&self.rows, &positions)?))
    }
}

/// Rows that one operator reads once.
struct RemainingRows {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for RemainingRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemainingRows")
    }
}

impl PartitionStream for RemainingRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = rows.take() {
            return rows;
        }
        let message = "remaining rows are read twice".to_owned();
        let failure = stream::iter([Err::<RecordBatch, _>(DataFusionError::Internal(message))]);
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), failure))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use arrow::array::{AsArray, Int64Array, StringArray};
    use datafusion::datasource::MemTable;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool};
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use forebay_cluster::JoinBatchRows;
    use forebay_storage::StorageClient;

    use super::*;

    const ROWS: i64 = 20_000;
    const BATCH_ROWS: i64 = 500;

    /// Memory for all rows of the table at once.
    const LARGE_POOL: usize = 1 << 30;

    /// Too little memory for the largest group at once.
    const SMALL_POOL: usize = 24 << 20;

    #[derive(Debug, Clone, Copy)]
    struct Setup {
        threads: usize,
        batch_rows: usize,
        pool_bytes: usize,
    }

    impl Setup {
        fn context(
            self,
            rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
        ) -> SessionContext {
            let config = SessionConfig::new()
                .with_target_partitions(self.threads)
                .with_batch_size(self.batch_rows)
                .with_sort_spill_reservation_bytes(64 << 10);
            let pool = Arc::new(GreedyMemoryPool::new(self.pool_bytes));
            let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
            let state = SessionStateBuilder::new()
                .with_config(config)
                .with_runtime_env(runtime.build_arc().unwrap())
                .with_default_features()
                .with_physical_optimizer_rules(rules)
                .build();
            let context = SessionContext::new_with_state(state);
            let batches = table();
            let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
            context.register_table("t", Arc::new(table)).unwrap();
            context
        }
    }

    /// Batches of rows of a group of half of them, of small groups, and of nulls, in no order.
    fn table() -> Vec<RecordBatch> {
        let firsts = (0..ROWS).step_by(BATCH_ROWS as usize);
        firsts
            .map(|first| batch(first..first + BATCH_ROWS))
            .collect()
    }

    fn batch(rows: Range<i64>) -> RecordBatch {
        let numbers = rows.map(|row| row * 7919 % ROWS);
        let groups = numbers.clone().map(|number| {
            if number % 2 == 0 {
                Some(50)
            } else {
                Some(number % 101).filter(|group| *group > 2)
            }
        });
        let values = numbers.clone().map(|number| number % 97);
        let texts = numbers.map(|number| format!("{:0>60}", number * 31 % 501));
        let groups: ArrayRef = Arc::new(Int64Array::from_iter(groups));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let columns = [("g", groups, true), ("v", values, true), ("x", texts, true)];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    /// The rows of a query, and its plan.
    fn run(query: &str, context: &SessionContext) -> (RecordBatch, String) {
        let io = StorageClient::new().unwrap();
        io.block_on(async {
            let planned = context.sql(query).await.unwrap();
            let plan = planned.create_physical_plan().await.unwrap();
            let plan_text = displayable(plan.as_ref()).indent(false).to_string();
            let batches = collect(plan.clone(), context.task_ctx()).await.unwrap();
            (concat_batches(&plan.schema(), &batches).unwrap(), plan_text)
        })
        .unwrap()
    }

    #[test]
    fn groups_are_sorted_as_all_rows_at_once_are() {
        for query in [
            "SELECT g, v, x, row_number() OVER (PARTITION BY g ORDER BY v, x) AS a, \
             rank() OVER (PARTITION BY g ORDER BY x) AS b FROM t ORDER BY 1, 2, 3, 4, 5",
            "SELECT x, g, v, lag(v) OVER (PARTITION BY x, g ORDER BY v) AS a FROM t \
             ORDER BY x, g, a DESC NULLS FIRST, v",
            "SELECT v, g, count(*) OVER (PARTITION BY v) AS a FROM t ORDER BY v, g DESC, a",
        ] {
            let sorted_whole = Setup {
                threads: 1,
                batch_rows: 8192,
                pool_bytes: LARGE_POOL,
            };
            let usual_rules = PhysicalOptimizer::new().rules;
            let (expected, plan_text) = run(query, &sorted_whole.context(usual_rules));
            assert!(
                !plan_text.contains("GroupedSortExec"),
                "{query}: {plan_text}"
            );
            for threads in [1, 2] {
                for batch_rows in [500, 8192] {
                    for pool_bytes in [LARGE_POOL, SMALL_POOL] {
                        let setup = Setup {
                            threads,
                            batch_rows,
                            pool_bytes,
                        };
                        let mut rules = PhysicalOptimizer::new().rules;
                        rules.push(Arc::new(GroupedSorts));
                        let (rows, plan_text) = run(query, &setup.context(rules));
                        assert!(
                            plan_text.contains("GroupedSortExec"),
                            "{query}: {plan_text}"
                        );
                        assert_eq!(rows.num_rows() as i64, ROWS, "{query}: {setup:?}");
                        assert_eq!(rows.columns(), expected.columns(), "{query}: {setup:?}");
                    }
                }
            }
        }
    }

    /// Bytes of a group at most.
    fn bytes_max(threads: usize, pool_bytes: usize) -> usize {
        let setup = Setup {
            threads,
            batch_rows: 8192,
            pool_bytes,
        };
        let context = setup.context(PhysicalOptimizer::new().rules);
        group_bytes_max(&context.task_ctx())
    }

    #[test]
    fn a_group_takes_a_share_of_the_memory() {
        assert_eq!(bytes_max(1, usize::MAX), GROUP_BYTES_MAX);
        assert_eq!(bytes_max(1, 192 << 20), 2 << 20);
        assert_eq!(bytes_max(2, 192 << 20), 1 << 20);
        // The largest group of the table is half of it.
        let batches = table();
        let table_bytes: usize = batches.iter().map(get_record_batch_memory_size).sum();
        assert!(bytes_max(1, SMALL_POOL) < table_bytes / 2);
        assert!(bytes_max(2, LARGE_POOL) > 2 * table_bytes);
    }

    #[test]
    fn sorts_of_rows_in_no_order_stay() {
        let setup = Setup {
            threads: 2,
            batch_rows: 8192,
            pool_bytes: LARGE_POOL,
        };
        for query in [
            "SELECT g, v FROM t ORDER BY g, v",
            "SELECT v, g, lag(v) OVER (PARTITION BY g ORDER BY v) AS a FROM t ORDER BY v, g, a",
        ] {
            let mut rules = PhysicalOptimizer::new().rules;
            rules.push(Arc::new(GroupedSorts));
            let (_, plan_text) = run(query, &setup.context(rules));
            assert!(
                !plan_text.contains("GroupedSortExec"),
                "{query}: {plan_text}"
            );
        }
    }

    /// Rows of 300 bytes, in one batch, sorted in batches of some rows, and the rows of a batch that would do.
    fn run_sort(
        threads: usize,
        batch_rows: usize,
    ) -> (Result<usize, DataFusionError>, Option<usize>) {
        let pool = Arc::new(FairSpillPool::new(SORT_POOL_BYTES));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
        let join_rows = Arc::new(JoinBatchRows::default());
        let config = SessionConfig::new()
            .with_target_partitions(threads)
            .with_batch_size(batch_rows)
            .with_sort_spill_reservation_bytes(64 << 10)
            .with_extension(join_rows.clone());
        let mut rules = PhysicalOptimizer::new().rules;
        rules.push(Arc::new(GroupedSorts));
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime.build_arc().unwrap())
            .with_default_features()
            .with_physical_optimizer_rules(rules)
            .build();
        let context = SessionContext::new_with_state(state);
        let numbers = (0..TEXT_ROWS).map(|row| row * 7919 % TEXT_ROWS);
        let texts = numbers.map(|number| format!("{number:0300}"));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let batch = RecordBatch::try_from_iter([("x", texts)]).unwrap();
        context.register_batch("texts", batch).unwrap();
        let io = StorageClient::new().unwrap();
        let batches = io.block_on(async {
            let planned = context.sql("SELECT x FROM texts ORDER BY x").await.unwrap();
            let plan = planned.create_physical_plan().await.unwrap();
            collect(plan, context.task_ctx()).await
        });
        let mut next = 0;
        let rows = batches.unwrap().map(|batches| {
            for batch in &batches {
                for text in batch.column(0).as_string::<i32>() {
                    assert_eq!(text.unwrap(), format!("{next:0300}"));
                    next += 1;
                }
            }
            next
        });
        (rows, join_rows.sortable())
    }

    const SORT_POOL_BYTES: usize = 4 << 20;

    const TEXT_ROWS: usize = 40_000;

    /// A batch has three times the memory of the engine.
    #[test]
    fn sorts_of_long_rows_get_few_of_them_at_a_time() {
        for threads in [1, 2] {
            let (_, sortable) = run_sort(threads, 8192);
            let sortable = sortable.unwrap();
            assert!(sortable * 300 <= SORT_POOL_BYTES / 256);
            let (rows, _) = run_sort(threads, sortable);
            assert_eq!(rows.unwrap(), TEXT_ROWS, "{threads}: {sortable}");
        }
    }
}
