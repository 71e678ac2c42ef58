//! A table of the rows of a flow for the query engine, with an estimate of their number.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Statistics};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, StatisticsArgs,
};

/// Rows of a flow that one stream of the engine reads.
pub(crate) trait FlowRows: fmt::Debug + Send + Sync {
    /// Starts to read the columns at some places of the table's schema. `schema` is theirs.
    fn read_columns(&self, columns: &[usize], schema: &SchemaRef) -> SendableRecordBatchStream;
}

/// The table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    pub schema: SchemaRef,
    /// Streams that are read side by side.
    pub partitions: Vec<Arc<dyn FlowRows>>,
    /// The number of rows, about.
    pub rows: usize,
}

#[async_trait]
impl TableProvider for FlowTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let schema = Arc::new(self.schema.project(&columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(self.partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(FlowScanExec {
            schema,
            columns,
            partitions: self.partitions.clone(),
            rows: self.rows,
            properties: Arc::new(properties),
        }))
    }
}

/// Reads columns of the table.
#[derive(Debug)]
struct FlowScanExec {
    schema: SchemaRef,
    /// Places in the schema of the table.
    columns: Vec<usize>,
    partitions: Vec<Arc<dyn FlowRows>>,
    rows: usize,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for FlowScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .schema
            .fields()
            .iter()
            .map(|field| field.name().as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        let rows = self.rows;
        write!(f, "FlowScanExec: columns=[{names}], rows={rows}")
    }
}

impl ExecutionPlan for FlowScanExec {
    fn name(&self) -> &str {
        "FlowScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let rows = self.partitions.get(partition).ok_or_else(|| {
            DataFusionError::Internal(format!("there is no partition {partition}"))
        })?;
        Ok(rows.read_columns(&self.columns, &self.schema))
    }

    /// Steps change the number of rows, so that it is never exact.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>, DataFusionError> {
        let parts = match args.partition() {
            Some(_) => self.partitions.len().max(1),
            None => 1,
        };
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Inexact(self.rows.div_ceil(parts));
        Ok(Arc::new(statistics))
    }
}
