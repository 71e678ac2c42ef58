//! The joins of queries that run in this process: hash joins where one side fits into memory, and sort-merge joins, which
//! spill, elsewhere. Row counts are estimates. A query begins again with joins that spill where a side does not fit that a
//! join holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, JoinType};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, SortMergeJoinExec,
};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{StatisticsArgs, StatisticsContext};
use datafusion::prelude::SessionConfig;
use forebay_storage::MemoryBudget;

use crate::grouped_sort::GroupedSorts;
use crate::loop_joins::{LoopInputs, pairs_all_rows};

/// One part in this many of the engine's memory is for the hash tables of a query, as estimated.
const TABLES_SHARE: usize = 4;

/// One row in this many is assumed to pass a filter.
const FILTERED_SHARE: usize = 5;

/// Bytes that are assumed of a value whose type has no width.
const VALUE_BYTES: usize = 64;

/// Bytes of a row in a hash table, beside its values.
const TABLE_ROW_BYTES: usize = 32;

/// Copies of a row while its table is made: the batches, and one batch of all of them.
const ROW_COPIES: usize = 2;

/// Settings for queries whose joins a [`JoinChoice`] chooses.
pub(crate) fn with_chosen_joins(mut config: SessionConfig) -> SessionConfig {
    let optimizer = &mut config.options_mut().optimizer;
    // The choice begins with hash joins, and its sides stay as it puts them.
    optimizer.prefer_hash_join = true;
    optimizer.join_reordering = false;
    // Tables do not filter what they read by the keys of a join, or by values so far: a side of a join may be read again.
    optimizer.enable_join_dynamic_filter_pushdown = false;
    optimizer.enable_topk_dynamic_filter_pushdown = false;
    optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    config
}

/// A rule of the engine's optimizer that chooses how each join of a query is computed.
#[derive(Debug)]
pub(crate) struct JoinChoice {
    /// Bytes for all hash tables of the query; `None` to make none, and to spill.
    table_bytes: Option<usize>,
    holds_sides: AtomicBool,
}

impl JoinChoice {
    /// Hash joins within a share of the engine's memory.
    pub(crate) fn in_memory(memory: MemoryBudget) -> JoinChoice {
        JoinChoice::within(Some(memory.engine_bytes() / TABLES_SHARE))
    }

    /// Joins that spill alone.
    pub(crate) fn spilling() -> JoinChoice {
        JoinChoice::within(None)
    }

    fn within(table_bytes: Option<usize>) -> JoinChoice {
        JoinChoice {
            table_bytes,
            holds_sides: AtomicBool::new(false),
        }
    }

    /// True if a plan has a join that holds a side, where another choice would spill.
    pub(crate) fn holds_sides(&self) -> bool {
        self.holds_sides.load(Ordering::Relaxed)
    }

    /// The rules of an optimizer that begins with this choice: later rules sort and divide the inputs of joins. Sorts are
    /// replaced and sides are counted once all of them are in the plan.
    pub(crate) fn optimizer_rules(
        self: &Arc<Self>,
    ) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
        let mut rules = PhysicalOptimizer::new().rules;
        rules.insert(0, self.clone());
        rules.push(Arc::new(GroupedSorts));
        rules.push(Arc::new(LoopInputs {
            spills: self.table_bytes.is_none(),
        }));
        rules
    }

    /// The join to compute instead of a hash join. `free_bytes` are left for tables.
    fn chosen_join(
        &self,
        join: &HashJoinExec,
        threads: usize,
        free_bytes: &mut usize,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let left_side = JoinSide::of(join.left());
        let right_side = JoinSide::of(join.right()).filter(|_| join.join_type().supports_swap());
        let is_swapped = match (left_side, right_side) {
            (Some(left_side), Some(right_side)) => right_side.table_bytes < left_side.table_bytes,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let (built, probed) = if is_swapped {
            (right_side, left_side)
        } else {
            (left_side, right_side)
        };
        let built = built.filter(|side| side.table_bytes <= *free_bytes);
        let Some(built) = built.filter(|_| self.table_bytes.is_some()) else {
            return sort_merge_join(join);
        };
        *free_bytes -= built.table_bytes;
        self.holds_sides.store(true, Ordering::Relaxed);
        let mode = partition_mode(built.rows, probed.map(|side| side.rows), threads);
        if is_swapped {
            return join.swap_inputs(mode);
        }
        join.builder().with_partition_mode(mode).build_exec()
    }
}

impl PhysicalOptimizerRule for JoinChoice {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let threads = config.execution.target_partitions;
        let mut free_bytes = self.table_bytes.unwrap_or(0);
        let chosen = plan.transform_up(|node| {
            if pairs_all_rows(node.as_ref()) && self.table_bytes.is_some() {
                self.holds_sides.store(true, Ordering::Relaxed);
            }
            let Some(join) = node.downcast_ref::<HashJoinExec>() else {
                return Ok(Transformed::no(node));
            };
            // `NOT IN` over nulls has no other join.
            if join.null_aware || join.contains_projection() {
                return Ok(Transformed::no(node));
            }
            self.chosen_join(join, threads, &mut free_bytes)
                .map(Transformed::yes)
        })?;
        Ok(chosen.data)
    }

    fn name(&self) -> &str {
        "join_choice"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Estimates of a side of a join.
#[derive(Debug, Clone, Copy)]
struct JoinSide {
    rows: usize,
    /// Bytes of a hash table of the rows, while it is made.
    table_bytes: usize,
}

impl JoinSide {
    /// The estimates; `None` where the rows are not known.
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<JoinSide> {
        let rows = estimated_rows(plan)?;
        let copies_bytes = ROW_COPIES * row_bytes(&plan.schema());
        Some(JoinSide {
            rows,
            table_bytes: rows.saturating_mul(copies_bytes + TABLE_ROW_BYTES),
        })
    }
}

/// One table for all threads, which one thread fills, or a table per thread, where both sides are divided by their keys.
/// Dividing a row costs about as much as looking it up, or as putting it into a table.
fn partition_mode(built: usize, probed: Option<usize>, threads: usize) -> PartitionMode {
    let probed = probed.unwrap_or(built);
    let dividing_gain = built.saturating_mul(threads);
    if dividing_gain <= built.saturating_mul(2).saturating_add(probed) {
        PartitionMode::CollectLeft
    } else {
        PartitionMode::Partitioned
    }
}

fn sort_merge_join(join: &HashJoinExec) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let on = join.on().to_vec();
    let orders = vec![SortOptions::default(); on.len()];
    let merged = SortMergeJoinExec::try_new(
        join.left().clone(),
        join.right().clone(),
        on,
        join.filter().cloned(),
        *join.join_type(),
        orders,
        join.null_equality(),
    )?;
    Ok(Arc::new(merged))
}

/// Rows that an operator gives, about; `None` if it cannot be said.
fn estimated_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return joined_rows(*join.join_type(), join.left(), join.right());
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        return joined_rows(join.join_type(), join.left(), join.right());
    }
    let inputs = plan.children();
    let rows = match inputs.as_slice() {
        [] => leaf_rows(plan),
        [input] => passed_rows(plan, estimated_rows(input)),
        inputs => combined_rows(plan, inputs),
    };
    match (rows, plan.fetch()) {
        (Some(rows), Some(rows_max)) => Some(rows.min(rows_max)),
        (rows, rows_max) => rows.or(rows_max),
    }
}

/// Rows of a leaf, as its statistics have them.
fn leaf_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    statistics.ok()?.num_rows.get_value().copied()
}

/// Rows that an operator gives for those of its only input.
fn passed_rows(plan: &Arc<dyn ExecutionPlan>, rows: Option<usize>) -> Option<usize> {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    if aggregate.is_some_and(|aggregate| aggregate.group_expr().is_true_no_grouping()) {
        return Some(1);
    }
    if plan.is::<FilterExec>() {
        return rows.map(|rows| rows.div_ceil(FILTERED_SHARE));
    }
    match plan.cardinality_effect() {
        CardinalityEffect::Equal | CardinalityEffect::LowerEqual => rows,
        CardinalityEffect::Unknown | CardinalityEffect::GreaterEqual => None,
    }
}

/// Rows of an operator over several inputs.
fn combined_rows(
    plan: &Arc<dyn ExecutionPlan>,
    inputs: &[&Arc<dyn ExecutionPlan>],
) -> Option<usize> {
    let is_union = plan.is::<UnionExec>();
    if !is_union && !plan.is::<CrossJoinExec>() && !plan.is::<NestedLoopJoinExec>() {
        return None;
    }
    let mut combined = usize::from(!is_union);
    for input in inputs {
        let rows = estimated_rows(input)?;
        combined = if is_union {
            combined.saturating_add(rows)
        } else {
            combined.saturating_mul(rows)
        };
    }
    Some(combined)
}

/// Rows of an equality join, if each row of its larger side meets one row.
fn joined_rows(
    join_type: JoinType,
    left_plan: &Arc<dyn ExecutionPlan>,
    right_plan: &Arc<dyn ExecutionPlan>,
) -> Option<usize> {
    match join_type {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => estimated_rows(left_plan),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            estimated_rows(right_plan)
        }
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            Some(estimated_rows(left_plan)?.max(estimated_rows(right_plan)?))
        }
    }
}

/// Bytes of a row, about.
fn row_bytes(schema: &Schema) -> usize {
    let fields = schema.fields().iter();
    fields.map(|field| value_bytes(field.data_type())).sum()
}

fn value_bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::Null | DataType::Boolean => 1,
        DataType::FixedSizeBinary(length) => usize::try_from(*length).unwrap_or(0),
        DataType::FixedSizeList(item, length) => {
            let items = usize::try_from(*length).unwrap_or(0);
            items.saturating_mul(value_bytes(item.data_type()))
        }
        DataType::Struct(fields) => {
            let fields = fields.iter();
            fields.map(|field| value_bytes(field.data_type())).sum()
        }
        other => other.primitive_width().unwrap_or(VALUE_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow::compute::concat_batches;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::SessionContext;
    use forebay_storage::StorageClient;

    use super::*;

    /// Keys from `first`, some of which come twice or are null, and a text.
    fn table(first: i64, rows: i64) -> RecordBatch {
        let keys = (0..rows).map(|row| Some(first + row - row % 4 / 3).filter(|key| key % 7 != 0));
        let texts = (0..rows).map(|row| format!("t{}", row % 5));
        let keys: ArrayRef = Arc::new(Int64Array::from_iter(keys));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        RecordBatch::try_from_iter([("k", keys), ("t", texts)]).unwrap()
    }

    struct Ran {
        plan: Arc<dyn ExecutionPlan>,
        shown: String,
        rows: RecordBatch,
    }

    /// Runs a query over `thousand` rows, a `hundred` and `ten`.
    fn run(query: &str, choice: &Arc<JoinChoice>, threads: usize) -> Ran {
        let config = SessionConfig::new().with_target_partitions(threads);
        let state = SessionStateBuilder::new()
            .with_config(with_chosen_joins(config))
            .with_default_features()
            .with_physical_optimizer_rules(choice.optimizer_rules())
            .build();
        let context = SessionContext::new_with_state(state);
        for (name, first, rows) in [
            ("thousand", 0, 1_000),
            ("hundred", 50, 100),
            ("ten", 95, 10),
        ] {
            context.register_batch(name, table(first, rows)).unwrap();
        }
        let io = StorageClient::new().unwrap();
        io.block_on(async {
            let planned = context.sql(query).await.unwrap();
            let plan = planned.create_physical_plan().await.unwrap();
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            let batches = collect(plan.clone(), context.task_ctx()).await.unwrap();
            let rows = concat_batches(&plan.schema(), &batches).unwrap();
            Ran { plan, shown, rows }
        })
        .unwrap()
    }

    /// Rows of the sides that become hash tables, from the last join to the first.
    fn built_rows(plan: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
        let mut built = Vec::new();
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            built.extend(estimated_rows(join.left()));
        }
        for input in plan.children() {
            built.extend(built_rows(input));
        }
        built
    }

    const LARGE: Option<usize> = Some(1 << 20);

    #[test]
    fn joins_of_all_kinds_give_the_same_rows_in_memory_and_spilling() {
        for (join, columns) in [
            ("JOIN ten b ON a.k = b.k", "a.k, a.t, b.t"),
            ("LEFT JOIN ten b ON a.k = b.k", "a.k, a.t, b.t"),
            ("RIGHT JOIN ten b ON a.k = b.k", "a.k, a.t, b.t"),
            ("FULL JOIN ten b ON a.k = b.k", "a.k, a.t, b.t"),
            ("JOIN ten b ON a.k = b.k AND a.t < b.t", "a.k, a.t, b.t"),
            ("LEFT SEMI JOIN ten b ON a.k = b.k", "a.k, a.t"),
            ("LEFT ANTI JOIN ten b ON a.k = b.k", "a.k, a.t"),
        ] {
            let order = (1..=columns.split(", ").count()).map(|at| at.to_string());
            let order = order.collect::<Vec<_>>().join(", ");
            let query = format!("SELECT {columns} FROM hundred a {join} ORDER BY {order}");
            for threads in [1, 2] {
                let choice = Arc::new(JoinChoice::within(LARGE));
                let in_memory = run(&query, &choice, threads);
                assert!(choice.holds_sides(), "{query}");
                let shown = in_memory.shown;
                assert!(shown.contains("HashJoinExec"), "{query}: {shown}");
                assert!(!shown.contains("SortMergeJoin"), "{query}: {shown}");
                assert_eq!(built_rows(&in_memory.plan), [10], "{query}: {shown}");
                let choice = Arc::new(JoinChoice::spilling());
                let spilling = run(&query, &choice, threads);
                assert!(!choice.holds_sides(), "{query}");
                let shown = spilling.shown;
                assert!(shown.contains("SortMergeJoin"), "{query}: {shown}");
                assert!(!shown.contains("HashJoinExec"), "{query}: {shown}");
                assert!(in_memory.rows.num_rows() > 0, "{query}");
                assert_eq!(in_memory.rows.columns(), spilling.rows.columns(), "{query}");
            }
        }
    }

    /// The tables of a query share its bytes: joins nearest to the inputs are chosen first.
    #[test]
    fn joins_whose_tables_do_not_fit_are_merged() {
        let query = "SELECT a.k FROM thousand a JOIN hundred b ON a.k = b.k \
                     JOIN ten c ON b.k = c.k ORDER BY 1";
        let row_bytes = ROW_COPIES * 8 + TABLE_ROW_BYTES;
        let mut rows = Vec::new();
        for (table_bytes, hash_joins) in [
            (LARGE, 2),
            (Some(100 * row_bytes), 1),
            (Some(99 * row_bytes), 1),
            (Some(0), 0),
            (None, 0),
        ] {
            let ran = run(query, &Arc::new(JoinChoice::within(table_bytes)), 2);
            let shown = ran.shown;
            let lines = shown.matches("HashJoinExec").count();
            assert_eq!(lines, hash_joins, "{table_bytes:?}: {shown}");
            let merges = shown.matches("SortMergeJoin").count();
            assert_eq!(merges, 2 - hash_joins, "{table_bytes:?}: {shown}");
            rows.push(ran.rows);
        }
        assert!(rows.iter().all(|ran| ran.columns() == rows[0].columns()));
    }

    #[test]
    fn the_smaller_side_becomes_the_table() {
        for (query, expected) in [
            (
                "SELECT a.k FROM thousand a JOIN hundred b ON a.k = b.k",
                vec![100],
            ),
            (
                "SELECT a.k FROM hundred a JOIN thousand b ON a.k = b.k",
                vec![100],
            ),
            (
                "SELECT a.k FROM thousand a JOIN hundred b ON a.k = b.k WHERE a.t = 't1'",
                vec![100],
            ),
            (
                "SELECT k FROM thousand WHERE k IN (SELECT k FROM hundred)",
                vec![100],
            ),
            (
                "SELECT a.k FROM (SELECT k FROM thousand LIMIT 7) a JOIN ten b ON a.k = b.k",
                vec![7],
            ),
        ] {
            let ran = run(query, &Arc::new(JoinChoice::within(LARGE)), 2);
            assert_eq!(built_rows(&ran.plan), expected, "{query}: {}", ran.shown);
        }
    }

    #[test]
    fn windows_with_the_same_partitions_share_a_sort() {
        let query = "SELECT t, k, row_number() OVER (PARTITION BY t ORDER BY k) AS a, \
                     rank() OVER (PARTITION BY t ORDER BY k DESC) AS b FROM thousand \
                     ORDER BY 1, 2, 3, 4";
        for threads in [1, 2] {
            let ran = run(query, &Arc::new(JoinChoice::spilling()), threads);
            let plan_text = ran.shown;
            let whole_sorts = plan_text.matches(" SortExec:").count();
            assert_eq!(whole_sorts, 1, "{threads}: {plan_text}");
            let grouped_sorts = plan_text.matches("GroupedSortExec:").count();
            assert_eq!(grouped_sorts, 2, "{threads}: {plan_text}");
            assert_eq!(ran.rows.num_rows(), 1_000, "{threads}");
        }
    }

    #[test]
    fn large_tables_are_divided_among_many_threads() {
        for (built, probed, threads, expected) in [
            (10, Some(1_000), 64, PartitionMode::CollectLeft),
            (1_000, Some(1_000), 2, PartitionMode::CollectLeft),
            (1_000, Some(6_000), 8, PartitionMode::CollectLeft),
            (1_000, Some(6_000), 9, PartitionMode::Partitioned),
            (1_000, None, 4, PartitionMode::Partitioned),
        ] {
            let mode = partition_mode(built, probed, threads);
            assert_eq!(mode, expected, "{built} {probed:?} {threads}");
        }
    }
}
