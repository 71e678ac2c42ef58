//! Merges the sorted partitions of a task before they leave it.
//!
//! A connection carries all partitions of a task, and stops when a budget of bytes waits for its reader. A merge reads
//! the partition with the least row: if that one is late while another fills the budget, both ends would wait for
//! ever. With one partition per task, what waits is what is read next. The merge is also divided among the workers.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

use crate::query::admitted_input::with_admitted_inputs;

/// Plans queries with a merge inside of each task below each merge. Comes before the distributed planner.
#[derive(Debug)]
pub struct TaskMergePlanner;

#[async_trait]
impl QueryPlanner for TaskMergePlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = DefaultPhysicalPlanner::default()
            .create_physical_plan(plan, session)
            .await?;
        let merged = with_admitted_inputs(plan)?.transform_up(|node| {
            let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else {
                return Ok(Transformed::no(node));
            };
            if merge.input().output_partitioning().partition_count() == 1 {
                return Ok(Transformed::no(node));
            }
            let of_task = TaskMergeExec(rebuilt(merge, merge.input().clone()));
            Ok(Transformed::yes(
                rebuilt(merge, Arc::new(of_task)) as Arc<dyn ExecutionPlan>
            ))
        })?;
        Ok(merged.data)
    }
}

/// Replaces the merges of tasks in a plan by ordinary merges, after the distributed planner.
pub fn with_usual_merges(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let usual = plan.transform_up(|node| {
        match node
            .downcast_ref::<TaskMergeExec>()
            .map(|merge| merge.0.clone())
        {
            Some(merge) => Ok(Transformed::yes(merge as Arc<dyn ExecutionPlan>)),
            None => Ok(Transformed::no(node)),
        }
    })?;
    Ok(usual.data)
}

fn rebuilt(
    merge: &SortPreservingMergeExec,
    input: Arc<dyn ExecutionPlan>,
) -> Arc<SortPreservingMergeExec> {
    Arc::new(SortPreservingMergeExec::new(merge.expr().clone(), input).with_fetch(merge.fetch()))
}

/// A merge that the distributed planner takes for another operator: it divides plans below usual merges.
#[derive(Debug)]
struct TaskMergeExec(Arc<SortPreservingMergeExec>);

impl DisplayAs for TaskMergeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskMergeExec")
    }
}

impl ExecutionPlan for TaskMergeExec {
    fn name(&self) -> &str {
        "TaskMergeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![self.0.input()]
    }

    fn apply_expressions(
        &self,
        apply: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.0.apply_expressions(apply)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next();
        let input =
            input.ok_or_else(|| DataFusionError::Internal("a merge of nothing".to_owned()))?;
        Ok(Arc::new(TaskMergeExec(rebuilt(&self.0, input))))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }
}
