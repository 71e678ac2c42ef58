//! Queries on workers: the inputs of a gather as tables that workers read.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use forebay_cluster::{
    ClusterSize, DistributedQuery, QueryEnd, QueryFailure, QueryRows, RunSpec, SpanTable,
    TableSpec, explain_stages, new_query_id,
};
use forebay_commit::StateStore;
use forebay_model::{ContentId, Fault, Result, Span};
use forebay_plan::{GatherBy, GatherOp, OpId, PlanOp, RowCounts};
use forebay_storage::ScratchDir;
use forebay_threads::lock;
use serde::{Deserialize, Serialize};

use crate::cluster_handle::ClusterHandle;
use crate::materialize::{FlowTally, MaterializePass, schema_with_positions};
use crate::query_engine::engine_fault;
use crate::query_engine::{query_config, stage_runtime};

/// One part in this many of the engine's memory is for rows that come from workers.
const EXCHANGE_SHARE: usize = 4;

/// An input of a gather.
#[derive(Clone, Copy)]
struct InputPlace<'a> {
    name: &'a str,
    /// The pass of the gather, by its place in the program.
    pass: usize,
    input: usize,
    /// The exchange for counts of rows.
    counts: ContentId,
}

/// The rows of spans that a worker read to their ends.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerCounts {
    /// The place of their table among the inputs of the gather.
    pub input: usize,
    /// The number of each span, and its rows.
    pub spans: Vec<(usize, RowCounts)>,
}

impl WorkerCounts {
    /// Leaves the counts for the coordinator. `part` names the spans and columns that were read.
    pub fn leave(
        &self,
        store: &StateStore,
        of: ContentId,
        part: &str,
        scratch: &ScratchDir,
    ) -> Result<()> {
        let name = ContentId::of(format!("{} {part}", self.input).as_bytes()).to_string();
        store.put_shared(of, &name, scratch, &mut |out| {
            let failed = |error| Fault::internal("counts of rows").cause(error);
            serde_json::to_writer(out, self).map_err(failed)
        })
    }

    /// Adds the counts that workers left to those of each input, and removes them.
    fn collect(store: &StateStore, of: ContentId, inputs: &[FlowTally]) -> Result<()> {
        for name in store.shared_names(of)? {
            let counts: Option<WorkerCounts> = store.get_shared(of, &name, |input| {
                let broken = |error| Fault::internal("counts of rows").cause(error);
                serde_json::from_reader(input).map_err(broken)
            })?;
            let Some(WorkerCounts { input, spans }) = counts else {
                continue;
            };
            if let Some(tally) = inputs.get(input) {
                tally.add_counts(spans)?;
            }
        }
        store.drop_shared(of)
    }
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
        tallies: &[FlowTally],
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
        let counts = new_query_id();
        let mut inputs = Vec::new();
        for (input, (name, flow)) in bound
            .gather_inputs
            .get(&op)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let spans = self.spans(flow, &flow.column_names())?;
            let rows = self.rows_id(flow)?;
            let spec = self.table_spec(
                workers.run_spec,
                InputPlace {
                    name,
                    pass: workers.pass,
                    input,
                    counts,
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
        let memory = self.context.memory;
        let threads = self.context.threads;
        let query = DistributedQuery {
            label: &bound.ops[op].label,
            plan: &lower(inputs)?,
            runtime: stage_runtime(memory, self.scratch.path())?,
            config: query_config(memory, threads),
            exchange_bytes: memory.engine_bytes() / EXCHANGE_SHARE,
            state: &workers.run_spec.state,
            base: &workers.run_spec.base,
            watch: self.watch.as_ref(),
            interrupt: workers.interrupt,
        };
        let ended = workers.cluster.run_query(&query, rows);
        let collected = WorkerCounts::collect(workers.store, counts, tallies);
        let end = ended.map_err(|failure| self.failed_query(op, failure))?;
        collected.map(|()| end)
    }

    /// The stages of a query on `size` workers, as text; `None` if the coordinator would run it, or
    /// if it cannot be planned before other passes have run.
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
                    counts: ContentId::of(b"explained"),
                },
                ContentId::of(b"explained"),
            );
            let mut bytes = Vec::new();
            for stream in &flow.streams {
                // The spans of a dataset that is gathered before are not known.
                if let Ok(source) = self.context.input(stream.base) {
                    bytes.extend(source.dataset.spans.iter().map(Span::bytes));
                }
            }
            let over_series = |op: &OpId| bound.ops[*op].op.is_over_series();
            let is_ordered = flow
                .streams
                .iter()
                .any(|stream| stream.ops.iter().any(over_series));
            let schema = without_position(&schema_with_positions(flow, &flow.column_names())?)?;
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

    fn table_spec(&self, run: &RunSpec, input_place: InputPlace<'_>, rows: ContentId) -> TableSpec {
        let state = self.context.state;
        TableSpec {
            name: input_place.name.to_owned(),
            job: run.clone(),
            pass: input_place.pass,
            input: input_place.input,
            row_orders: state
                .row_orders
                .iter()
                .map(|(op, row_order)| (*op, *row_order))
                .collect(),
            shuffles: state.shuffles.clone(),
            rows,
            counts: input_place.counts,
        }
    }

    fn failed_query(&self, op: OpId, failure: QueryFailure) -> Fault {
        match failure {
            QueryFailure::Engine(error) => self.query_fault(op, error),
            QueryFailure::Fault {
                fault,
                order_failure,
            } => {
                if let (Some(window), Ok(mut first_failure)) =
                    (order_failure, lock(&self.context.state.order_failure))
                {
                    first_failure.get_or_insert((window, fault.code()));
                }
                self.scratch.locate_fault(fault)
            }
        }
    }
}
