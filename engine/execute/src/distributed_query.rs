//! Queries on workers: the inputs of a gather as tables that workers read.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use forebay_cluster::{
    ClusterSize, DistributedQuery, QueryEnd, QueryFailure, QueryRows, RunSpec, SpanTable,
    TableSpec, explain_stages,
};
use forebay_model::{ContentId, Fault, Result, Span};
use forebay_plan::{GatherBy, GatherOp, OpId, PlanOp};
use forebay_threads::lock;

use crate::materialize::{MaterializePass, column_names, engine_fault, schema_with_positions};
use crate::query_engine::{query_config, query_runtime};
use crate::remote::ClusterHandle;

/// One part in this many of the engine's memory is for rows that come from workers.
const EXCHANGE_SHARE: usize = 4;

/// An input of a gather.
#[derive(Clone, Copy)]
struct InputPlace<'a> {
    name: &'a str,
    /// The pass of the gather, by its place in the program.
    pass: usize,
    input: usize,
}

/// The columns of a table: the position of a row is of no use to a query.
fn without_position(schema: &SchemaRef) -> Result<SchemaRef> {
    let columns = schema.fields().len() - 1;
    Ok(Arc::new(schema.project(&(0..columns).collect::<Vec<_>>())?))
}

fn scan(table: SpanTable) -> Result<LogicalPlan> {
    let name = table.name().to_owned();
    let scan = LogicalPlanBuilder::scan(name.as_str(), provider_as_source(Arc::new(table)), None);
    scan.and_then(LogicalPlanBuilder::build)
        .map_err(|error| engine_fault(error, &name))
}

impl MaterializePass<'_> {
    /// Runs the query of a gather on workers.
    pub(crate) fn query_on_workers(
        &self,
        op: OpId,
        workers: ClusterHandle<'_>,
        rows: &mut dyn QueryRows,
    ) -> Result<QueryEnd> {
        let bound = &self.context.program.bound;
        let PlanOp::Gather(GatherOp {
            lower: GatherBy::Query(lower),
            ..
        }) = &bound.ops[op].op
        else {
            return Ok(QueryEnd::NotDistributed);
        };
        let mut inputs = Vec::new();
        for (input, (name, flow)) in bound
            .gather_inputs
            .get(&op)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let spans = self.spans(flow, &column_names(flow))?;
            let rows = self.rows_id(flow)?;
            let spec = self.table_spec(
                workers.run_spec,
                InputPlace {
                    name,
                    pass: workers.pass,
                    input,
                },
                rows,
            );
            inputs.push(scan(SpanTable::new(
                spec,
                without_position(&spans.schema)?,
                spans.bytes(),
                spans.is_ordered(),
            ))?);
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
        workers
            .cluster
            .run_query(&query, rows)
            .map_err(|failure| self.failed_query(op, failure))
    }

    /// The stages of a query on so many workers, as text; `None` if the coordinator would run it, or if it cannot be
    /// planned before other passes have run.
    pub fn explain_query(
        &self,
        op: OpId,
        run: &RunSpec,
        size: ClusterSize,
    ) -> Result<Option<String>> {
        let bound = &self.context.program.bound;
        let PlanOp::Gather(GatherOp {
            lower: GatherBy::Query(lower),
            ..
        }) = &bound.ops[op].op
        else {
            return Ok(None);
        };
        let mut inputs = Vec::new();
        for (input, (name, flow)) in bound
            .gather_inputs
            .get(&op)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let spec = self.table_spec(
                run,
                InputPlace {
                    name,
                    pass: 0,
                    input,
                },
                ContentId::of(b"explained"),
            );
            let mut bytes = Vec::new();
            for stream in &flow.streams {
                // The spans of a dataset that is gathered before are not known.
                if let Ok(known) = self.context.input(stream.base) {
                    bytes.extend(known.dataset.spans.iter().map(Span::bytes));
                }
            }
            let over_series = |op: &OpId| bound.ops[*op].op.is_over_series();
            let is_ordered = flow
                .streams
                .iter()
                .any(|stream| stream.ops.iter().any(over_series));
            let schema = without_position(&schema_with_positions(flow, &column_names(flow))?)?;
            inputs.push(scan(SpanTable::new(spec, schema, bytes, is_ordered))?);
        }
        // Types are not all known yet where vectors are learned.
        let Ok(plan) = lower(inputs) else {
            return Ok(None);
        };
        let config = query_config(self.context.memory, self.context.threads);
        let stages = self
            .context
            .io
            .block_on(explain_stages(&plan, config, size))?;
        stages.map_err(|error| self.query_fault(op, error))
    }

    fn table_spec(&self, run: &RunSpec, place: InputPlace<'_>, rows: ContentId) -> TableSpec {
        let state = self.context.state;
        TableSpec {
            name: place.name.to_owned(),
            job: run.clone(),
            pass: place.pass,
            input: place.input,
            row_orders: state
                .row_orders
                .iter()
                .map(|(op, row_order)| (*op, *row_order))
                .collect(),
            shuffles: state.shuffles.clone(),
            rows,
        }
    }

    fn failed_query(&self, op: OpId, failure: QueryFailure) -> Fault {
        match failure {
            QueryFailure::Engine(error) => self.query_fault(op, error),
            QueryFailure::Fault {
                fault,
                order_failure,
            } => {
                if let (Some(window), Ok(mut known)) =
                    (order_failure, lock(&self.context.state.order_failure))
                {
                    known.get_or_insert((window, fault.code()));
                }
                self.scratch.locate_fault(fault)
            }
        }
    }
}
