//! Queries on workers: the inputs of a gather as tables that workers read.

use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use forebay_cluster::{DistributedQuery, QueryEnd, QueryFailure, QueryRows, SpanTable, TableSpec};
use forebay_model::{Fault, Result};
use forebay_plan::{GatherBy, GatherOp, OpId, PlanOp};
use forebay_threads::lock;

use crate::materialize::{MaterializePass, column_names, engine_fault};
use crate::query_engine::{query_config, query_runtime};
use crate::remote::ClusterHandle;

/// One part in this many of the engine's memory is for rows that come from workers.
const EXCHANGE_SHARE: usize = 4;

impl MaterializePass<'_> {
    /// Runs the query of a gather on workers.
    pub(crate) fn query_on_workers(
        &self,
        op: OpId,
        workers: ClusterHandle<'_>,
        rows: &mut dyn QueryRows,
    ) -> Result<QueryEnd> {
        let bound = &self.context.program.bound;
        let PlanOp::Gather(GatherOp { lower: GatherBy::Query(lower), .. }) = &bound.ops[op].op else {
            return Ok(QueryEnd::NotDistributed);
        };
        let state = self.context.state;
        let mut inputs = Vec::new();
        for (input, (name, flow)) in bound.gather_inputs.get(&op).into_iter().flatten().enumerate() {
            let reader = self.spans(flow, &column_names(flow))?;
            let spec = TableSpec {
                name: name.clone(),
                job: workers.run_spec.clone(),
                pass: workers.pass,
                input,
                row_orders: state.row_orders.iter().map(|(op, row_order)| (*op, *row_order)).collect(),
                shuffles: state.shuffles.clone(),
                rows: self.rows_id(flow)?,
            };
            // The position of a row is of no use to a query.
            let columns = reader.schema.fields().len() - 1;
            let schema = Arc::new(reader.schema.project(&(0..columns).collect::<Vec<_>>())?);
            let table = SpanTable::new(spec, schema, reader.bytes(), reader.is_ordered());
            let scan = LogicalPlanBuilder::scan(name.as_str(), provider_as_source(Arc::new(table)), None);
            inputs.push(scan.and_then(LogicalPlanBuilder::build).map_err(|error| engine_fault(error, name))?);
        }
        let (memory, threads) = (self.context.memory, self.context.threads);
        let query = DistributedQuery {
            label: &bound.ops[op].label,
            plan: &lower(inputs)?,
            runtime: query_runtime(memory, self.scratch.path())?,
            config: query_config(memory, threads),
            exchange_bytes: memory.engine_bytes() / EXCHANGE_SHARE,
            state: &workers.run_spec.state,
            base: &workers.run_spec.base,
            watch: self.watch.as_ref(),
            interrupt: workers.interrupt,
        };
        workers.cluster.run_query(&query, rows).map_err(|failure| self.failed_query(op, failure))
    }

    fn failed_query(&self, op: OpId, failure: QueryFailure) -> Fault {
        match failure {
            QueryFailure::Engine(error) => self.query_fault(op, error),
            QueryFailure::Fault { fault, order_failure } => {
                if let (Some(window), Ok(mut known)) = (order_failure, lock(&self.context.state.order_failure)) {
                    known.get_or_insert((window, fault.code()));
                }
                self.scratch.locate_fault(fault)
            }
        }
    }
}
