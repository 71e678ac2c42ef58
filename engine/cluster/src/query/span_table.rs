//! A table of a query whose rows workers read.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;

use crate::protocol::TableSpec;
use crate::query::span_scan::{SpanScanExec, TableSpans};

/// A table, as the coordinator plans with it.
#[derive(Debug)]
pub struct SpanTable {
    spec: Arc<TableSpec>,
    schema: SchemaRef,
    spans: Arc<TableSpans>,
}

impl SpanTable {
    /// `bytes` are the stored bytes of each span. With `is_ordered`, the rows of a span depend on the spans before it.
    pub fn new(spec: TableSpec, schema: SchemaRef, bytes: Vec<u64>, is_ordered: bool) -> SpanTable {
        SpanTable {
            spec: Arc::new(spec),
            schema,
            spans: Arc::new(TableSpans { bytes, is_ordered }),
        }
    }

    /// Name of the table in the query.
    pub fn name(&self) -> &str {
        &self.spec.name
    }
}

#[async_trait]
impl TableProvider for SpanTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let columns = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let partitions = session.config().target_partitions();
        Ok(Arc::new(SpanScanExec::new(
            self.spec.clone(),
            columns,
            schema,
            self.spans.clone(),
            partitions,
        )))
    }
}
