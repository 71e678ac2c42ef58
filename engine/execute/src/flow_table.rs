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
    /// Starts to read the columns with these indices among those that are read. `schema` is theirs.
    fn read_columns(&self, indices: &[usize], schema: &SchemaRef) -> SendableRecordBatchStream;
}

/// The table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    pub schema: SchemaRef,
    /// The index of each column among those that are read; `None` for columns that no query may ask for.
    pub indices: Vec<Option<usize>>,
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
        let mut indices = Vec::with_capacity(columns.len());
        for (column, field) in columns.iter().zip(schema.fields()) {
            let index = self.indices.get(*column).copied().flatten();
            indices.push(index.ok_or_else(|| {
                DataFusionError::Internal(format!("column `{}` is not read", field.name()))
            })?);
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(self.partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(FlowScanExec {
            schema,
            indices,
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
    /// Indices among the columns that are read.
    indices: Vec<usize>,
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
        Ok(rows.read_columns(&self.indices, &self.schema))
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use datafusion::prelude::SessionContext;
    use forebay_storage::StorageClient;

    use super::*;

    /// Rows whose values are the indices of their columns, and the indices that were requested.
    #[derive(Debug, Default)]
    struct IndexRows(Mutex<Vec<Vec<usize>>>);

    impl FlowRows for IndexRows {
        fn read_columns(&self, indices: &[usize], schema: &SchemaRef) -> SendableRecordBatchStream {
            self.0.lock().unwrap().push(indices.to_vec());
            let columns = indices.iter().map(|index| -> ArrayRef {
                Arc::new(Int64Array::from_iter_values([*index as i64]))
            });
            let batch = RecordBatch::try_new(schema.clone(), columns.collect());
            let batches = futures::stream::iter([batch.map_err(DataFusionError::from)]);
            Box::pin(RecordBatchStreamAdapter::new(schema.clone(), batches))
        }
    }

    /// Selects columns of a table of `a`, `b` and `c`, of which `a` and `c` are read.
    fn select(columns: &[&str]) -> Result<(RecordBatch, Vec<Vec<usize>>), DataFusionError> {
        let rows = Arc::new(IndexRows::default());
        let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true));
        let partition: Arc<dyn FlowRows> = rows.clone();
        let table = FlowTable {
            schema: Arc::new(Schema::new(fields.to_vec())),
            indices: vec![Some(0), None, Some(1)],
            partitions: vec![partition],
            rows: 1,
        };
        let io = StorageClient::new().unwrap();
        let batches = io
            .block_on(async {
                let selected = SessionContext::new().read_table(Arc::new(table))?;
                selected.select_columns(columns)?.collect().await
            })
            .unwrap()?;
        let asked = rows.0.lock().unwrap().clone();
        Ok((batches[0].clone(), asked))
    }

    #[test]
    fn columns_are_read_where_they_are_used() {
        for (columns, indices) in [
            (&["a"][..], vec![0]),
            (&["c"], vec![1]),
            (&["a", "c"], vec![0, 1]),
        ] {
            let (batch, asked) = select(columns).unwrap();
            assert_eq!(asked, [indices], "{columns:?}");
            let schema = batch.schema();
            let names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
            assert_eq!(names, columns);
        }
        let error = select(&["a", "b"]).unwrap_err().to_string();
        assert!(error.contains("column `b` is not read"), "{error}");
    }
}
