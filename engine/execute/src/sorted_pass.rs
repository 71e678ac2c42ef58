//! Windows and functions of series over rows in no particular order: the inputs are sorted by series and time, with
//! spilling. The outputs are sorted back to the order of the rows and stored in a file of their own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr, ident};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionContext;
use forebay_model::{Fault, Result, contains_floats};
use forebay_plan::{
    JoinBy, JoinOp, NodeFlow, OpId, OpStream, PlanOp, SharedSort, WindowOp, canonical_key,
};
use forebay_storage::Event;
use forebay_threads::parallel_map;
use futures::StreamExt;

use crate::as_of_join::AsOfOperator;
use crate::batch_iter::{BatchIter, batches_ahead};
use crate::external_sort::{SpillingSorter, merge_runs};
use crate::hash_join::join_schema;
use crate::join_keys::{distinct, typed_join_keys};
use crate::materialize::MaterializePass;
use crate::query_engine::engine_fault;
use crate::restore_order::{RestoreOrder, check_cancel_flag};
use crate::series_operator::series_outputs;
use crate::sort_keys::SortSpec;
use crate::sorted_file::{SortedFile, SortedKind};
use crate::sorted_operator::SortedOperator;
use crate::window_operator::WindowOperator;

/// Computes outputs over sorted rows and sorts them back.
pub struct SortedPass<'a> {
    pub gather: MaterializePass<'a>,
    /// True if the positions of rows are written after their outputs.
    pub keeps_rows: bool,
    /// Set once the pass was cancelled.
    pub stop: &'a AtomicBool,
}

/// Rows to sort: those of windows, or of one side of a join.
pub struct SortInput<'f> {
    /// Index of the input among the sides.
    pub number: usize,
    pub name: &'static str,
    pub flow: &'f NodeFlow,
    pub columns: Vec<String>,
    /// The columns that group rows, with the types in which they are compared.
    pub keys: Vec<(String, DataType)>,
}

/// Returns the rows of a side as a table.
pub type InputTableFn<'t> = &'t dyn Fn(&SortInput<'_>) -> Result<LogicalPlan>;

/// Several windows as one, with the output columns of each.
type MergedWindow = (WindowOp, Vec<Range<usize>>);

impl SortedPass<'_> {
    /// The flow whose row order the outputs have.
    pub fn flow(&self, shared_sort: &SharedSort) -> Result<&NodeFlow> {
        let missing = || Fault::internal("an operation without its rows");
        self.gather
            .context
            .program
            .bound
            .window_inputs
            .get(&shared_sort.stand)
            .ok_or_else(missing)
    }

    /// The sides to sort.
    pub fn sort_inputs(&self, shared_sort: &SharedSort) -> Result<Vec<SortInput<'_>>> {
        let bound = &self.gather.context.program.bound;
        let flow = self.flow(shared_sort)?;
        let typed = |name: &String| {
            Ok((
                name.clone(),
                flow.schema.field_with_name(name)?.data_type().clone(),
            ))
        };
        if let PlanOp::Join(join) = &bound.ops[shared_sort.stand].op {
            let other = bound.join_inputs.get(&shared_sort.stand);
            let other = other.ok_or_else(|| Fault::internal("a join without its other side"))?;
            let (own_keys, other_keys) = typed_join_keys(join, &flow.schema, &other.schema)?;
            return Ok(vec![
                SortInput {
                    number: 0,
                    name: "here",
                    flow,
                    columns: distinct(join.columns_here()),
                    keys: own_keys,
                },
                SortInput {
                    number: 1,
                    name: "there",
                    flow: other,
                    columns: distinct(join.columns_there()),
                    keys: other_keys,
                },
            ]);
        }
        if let PlanOp::Series(series) = &bound.ops[shared_sort.stand].op {
            let keys = series.keys.iter().map(typed).collect::<Result<_>>()?;
            return Ok(vec![SortInput {
                number: 0,
                name: "rows",
                flow,
                columns: distinct(series.columns()),
                keys,
            }]);
        }
        let (window, _) = self.merged_window(shared_sort)?;
        let keys = window.keys.iter().map(typed).collect::<Result<_>>()?;
        Ok(vec![SortInput {
            number: 0,
            name: "rows",
            flow,
            columns: distinct(window.columns()),
            keys,
        }])
    }

    /// The output columns of each operation among those of all.
    pub fn output_columns(&self, shared_sort: &SharedSort) -> Result<Vec<Range<usize>>> {
        match &self.gather.context.program.bound.ops[shared_sort.stand].op {
            PlanOp::Join(join) => {
                let outputs = join_outputs(join).fields().len() - 1;
                Ok(std::iter::once(0..outputs).collect())
            }
            PlanOp::Series(series) => Ok(std::iter::once(0..series.writes.len()).collect()),
            _ => Ok(self.merged_window(shared_sort)?.1),
        }
    }

    /// Schema of all outputs, followed by the row's position.
    pub fn schema(&self, shared_sort: &SharedSort) -> Result<SchemaRef> {
        match &self.gather.context.program.bound.ops[shared_sort.stand].op {
            PlanOp::Join(join) => Ok(join_outputs(join)),
            PlanOp::Series(series) => Ok(series_outputs(series)),
            _ => {
                let (window, _) = self.merged_window(shared_sort)?;
                Ok(WindowOperator::new(&window, &distinct(window.columns()))?.schema)
            }
        }
    }

    /// The windows as one operation, with the output columns of each.
    pub(crate) fn merged_window(&self, shared_sort: &SharedSort) -> Result<MergedWindow> {
        let mut merged: Option<WindowOp> = None;
        let mut parts = Vec::new();
        for op in &shared_sort.windows {
            let PlanOp::Window(window) = &self.gather.context.program.bound.ops[*op].op else {
                return Err(Fault::internal("not an operation over series"));
            };
            let merged_window = match merged {
                None => window.clone(),
                Some(merged) => merged.with(window),
            };
            parts
                .push(merged_window.writes.len() - window.writes.len()..merged_window.writes.len());
            merged = Some(merged_window);
        }
        Ok((
            merged.ok_or_else(|| Fault::internal("no operation over series"))?,
            parts,
        ))
    }

    /// Fails if the pass was cancelled.
    pub fn check_cancelled(&self) -> Result<()> {
        check_cancel_flag(self.stop)
    }

    pub fn engine_fault_at(&self, error: DataFusionError, op: OpId) -> Fault {
        self.gather.scratch.locate_fault(engine_fault(
            error,
            &self.gather.context.program.bound.ops[op].label,
        ))
    }

    /// A table with one form of each key. Rows are sorted by columns alone.
    pub(crate) fn keyed_table(
        &self,
        op: OpId,
        table: LogicalPlan,
        keys: &[(String, DataType)],
    ) -> Result<LogicalPlan> {
        if !keys.iter().any(|(_, data_type)| contains_floats(data_type)) {
            return Ok(table);
        }
        let mut columns = Vec::new();
        for field in table.schema().fields() {
            let name = field.name().as_str();
            let key = keys.iter().find(|(key, _)| key == name);
            columns.push(match key {
                Some((_, data_type)) => canonical_key(ident(name), data_type).alias(name),
                None => ident(name),
            });
        }
        let projected = LogicalPlanBuilder::from(table)
            .project(columns)
            .and_then(LogicalPlanBuilder::build);
        projected.map_err(|error| self.engine_fault_at(error, op))
    }

    /// Sorts rows, computes over them, and sorts the outputs back to the order of the flow's rows.
    pub(crate) fn sort_and_compute(
        &self,
        op: OpId,
        rows: LogicalPlan,
        by: Vec<SortExpr>,
        over: Arc<dyn SortedOperator>,
        flow: &NodeFlow,
    ) -> Result<SortedFile> {
        let gather = &self.gather;
        let schema = over.schema().clone();
        let back = self.restore_order(op, gather.engine_context()?, schema.clone(), flow)?;
        // Two sorts at a time: rows are merged while outputs are sorted.
        let budget_bytes = gather.context.memory.engine_bytes() / 2;
        let by_row = SortSpec::new(
            schema.clone(),
            &[(schema.fields().len() - 1, SortOptions::default())],
        );
        let threads = gather.context.threads;
        let mut outputs =
            SpillingSorter::new(&by_row, gather.scratch, budget_bytes)?.with_threads(threads);
        let mut run = over.start();
        let rows = self.sorted_rows(op, rows, by, budget_bytes)?;
        for batch in batches_ahead(rows, threads) {
            let batch = batch?;
            run(Some(&batch), &mut |computed| outputs.push(computed))?;
            gather.watch.on_event(Event::Worked {
                done: batch.num_rows() as u64,
                planned: 0,
            });
            gather.context.memory.check()?;
            self.check_cancelled()?;
        }
        run(None, &mut |computed| outputs.push(computed))?;
        // The memory of the operator is free before the outputs are merged.
        drop(run);
        let outputs = merge_runs(&by_row, outputs.finish()?, gather.scratch, budget_bytes)?;
        let outputs = batches_ahead(outputs, threads);
        back.write_all(outputs, self.keeps_rows, self.stop)
    }

    /// Rows in order. Each stream of the plan is sorted by a thread.
    fn sorted_rows(
        &self,
        op: OpId,
        rows: LogicalPlan,
        by: Vec<SortExpr>,
        budget_bytes: usize,
    ) -> Result<BatchIter> {
        let gather = &self.gather;
        let plan = self.open_plan(op, &rows)?;
        let order = sort_spec(plan.schema().clone(), &by)?;
        let streams = plan.streams();
        let share = budget_bytes / streams.max(1);
        let sort = |number: usize| {
            let mut sorter = SpillingSorter::new(&order, gather.scratch, share)?.one_of(streams);
            self.read_stream(&plan, number, &mut |batch| sorter.push(batch))?;
            sorter.finish()
        };
        let runs = parallel_map(gather.context.threads.max(1), streams, &sort)?;
        merge_runs(
            &order,
            runs.into_iter().flatten().collect(),
            gather.scratch,
            budget_bytes,
        )
    }

    /// Plans how rows are read.
    pub fn open_plan(&self, op: OpId, rows: &LogicalPlan) -> Result<OpenedPlan> {
        let mut state = self.gather.engine_context()?.state();
        // Only a few streams are read at a time: repartitioning would make their rows wait for streams that are read
        // later.
        state
            .config_mut()
            .options_mut()
            .optimizer
            .enable_round_robin_repartition = false;
        let physical = self
            .gather
            .context
            .io
            .block_on(state.create_physical_plan(rows))?;
        let physical = physical.map_err(|error| self.engine_fault_at(error, op))?;
        Ok(OpenedPlan {
            op,
            schema: physical.schema(),
            physical,
            context: state.task_ctx(),
            failed: AtomicBool::new(false),
        })
    }

    /// Passes the rows of a stream to `take`, unless another stream of the plan failed.
    pub fn read_stream(
        &self,
        plan: &OpenedPlan,
        number: usize,
        take: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut read = || -> Result<()> {
            for batch in self.stream_batches(plan, number)? {
                take(&batch?)?;
                self.gather.context.memory.check()?;
                self.check_cancelled()?;
                if plan.failed.load(Ordering::Relaxed) {
                    break;
                }
            }
            Ok(())
        };
        read().inspect_err(|_| plan.failed.store(true, Ordering::Relaxed))
    }

    /// The rows of a stream. An open stream holds row groups.
    pub fn stream_batches(&self, plan: &OpenedPlan, number: usize) -> Result<BatchIter> {
        let io = self.gather.context.io.clone();
        let label = self.gather.context.program.bound.ops[plan.op].label.clone();
        let scratch = self.gather.scratch.clone();
        let locate =
            move |error: DataFusionError| scratch.locate_fault(engine_fault(error, &label));
        let stream = io.block_on(async { plan.physical.execute(number, plan.context.clone()) })?;
        let mut stream = stream.map_err(&locate)?;
        Ok(Box::new(std::iter::from_fn(move || {
            match io.block_on_computation(stream.next()) {
                Ok(batch) => batch.map(|batch| batch.map_err(&locate)),
                Err(fault) => Some(Err(fault)),
            }
        })))
    }

    /// Restores the order of a flow's rows.
    pub fn restore_order(
        &self,
        op: OpId,
        context: SessionContext,
        schema: SchemaRef,
        flow: &NodeFlow,
    ) -> Result<RestoreOrder> {
        let gather = &self.gather;
        let spans = |stream: &OpStream| Ok(gather.context.input(stream.base)?.dataset.spans.len());
        Ok(RestoreOrder {
            io: gather.context.io.clone(),
            scratch: gather.scratch.clone(),
            memory: gather.context.memory,
            watch: gather.watch.clone(),
            label: gather.context.program.bound.ops[op].label.clone(),
            kind: match &gather.context.program.bound.ops[op].op {
                PlanOp::Join(join) if join.as_of().is_some() => SortedKind::AsOf,
                _ => SortedKind::Plain,
            },
            spans: flow.streams.iter().map(spans).collect::<Result<_>>()?,
            context,
            schema,
        })
    }
}

/// A plan whose streams are read.
pub struct OpenedPlan {
    op: OpId,
    physical: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    context: Arc<TaskContext>,
    /// Set once a stream failed.
    failed: AtomicBool,
}

impl OpenedPlan {
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.physical.output_partitioning().partition_count()
    }
}

/// The outputs of a join, followed by the row's position.
fn join_outputs(join: &JoinOp) -> SchemaRef {
    match &join.by {
        JoinBy::Time(as_of) => AsOfOperator::new(join, as_of).schema().clone(),
        JoinBy::Equality(_) => join_schema(join),
    }
}

/// The order of some columns of a schema.
fn sort_spec(schema: SchemaRef, by: &[SortExpr]) -> Result<SortSpec> {
    let column = |sort: &SortExpr| match &sort.expr {
        Expr::Column(column) => {
            let options = SortOptions {
                descending: !sort.asc,
                nulls_first: sort.nulls_first,
            };
            Ok((schema.index_of(&column.name)?, options))
        }
        _ => Err(Fault::internal("rows are sorted by columns")),
    };
    let columns = by.iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(SortSpec::new(schema, &columns))
}
