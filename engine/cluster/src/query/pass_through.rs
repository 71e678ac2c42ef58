//! Operators that pass on the rows of one input, in its order: they count memory, or change the batches.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// Passage of the rows of one input.
pub trait RowPassage: fmt::Debug + Send + Sync + 'static {
    /// Name of the operator in plans.
    const NAME: &'static str;

    /// Settings that plans show behind the name; empty where there are none.
    fn settings_text(&self) -> String {
        String::new()
    }

    /// A passage with the same settings, through which no rows went yet.
    fn unread(&self) -> Self;

    /// Opens the rows of a partition of the input.
    fn open(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;
}

/// Operator of a passage.
#[derive(Debug)]
pub struct PassThroughExec<P> {
    /// The plan of the rows.
    pub input: Arc<dyn ExecutionPlan>,
    /// Their passage.
    pub passage: P,
}

impl<P: RowPassage> DisplayAs for PassThroughExec<P> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings_text = self.passage.settings_text();
        if settings_text.is_empty() {
            return f.write_str(P::NAME);
        }
        write!(f, "{}: {settings_text}", P::NAME)
    }
}

impl<P: RowPassage> ExecutionPlan for PassThroughExec<P> {
    fn name(&self) -> &str {
        P::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next();
        let input =
            input.ok_or_else(|| DataFusionError::Internal(format!("{} of nothing", P::NAME)))?;
        Ok(Arc::new(PassThroughExec {
            input,
            passage: self.passage.unread(),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.passage.open(&self.input, partition, context)
    }
}
