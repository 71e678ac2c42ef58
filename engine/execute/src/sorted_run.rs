//! Runs of sorted passes: the operations that share a sort, computed over the rows of their inputs.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::{SortExpr, ident};
use forebay_model::{Fault, Result, SeriesCounts};
use forebay_plan::{AsOf, GatherOp, JoinBy, JoinOp, MatchDirection, PlanOp, SeriesOp, SharedSort};
use forebay_storage::Event;
use forebay_threads::lock;

use crate::as_of_join::{AsOfOperator, as_of_order};
use crate::batch_iter::batches_ahead;
use crate::hash_join::{HashJoin, RowsPerMatch, join_schema};
use crate::materialize::schema_with_positions;
use crate::pass_context::stop_check_of;
use crate::series_counts::warn_of_counts;
use crate::series_operator::{SeriesInput, SeriesOperator, SeriesResources};
use crate::sorted_file::SortedFile;
use crate::sorted_pass::{InputTableFn, SortInput, SortedPass};
use crate::window_operator::WindowOperator;

impl SortedPass<'_> {
    /// The outputs of each operation that shares the sort.
    pub fn run(&self, shared_sort: &SharedSort) -> Result<Vec<SortedFile>> {
        self.plan_work(shared_sort)?;
        if let Some(merged) = self.merge_by_time(shared_sort)? {
            return self
                .output_columns(shared_sort)?
                .into_iter()
                .map(|columns| merged.select_columns(columns))
                .collect();
        }
        let rows =
            |side: &SortInput<'_>| self.gather.input_table(side.name, side.flow, &side.columns);
        let (sorted, counts) = self.sort(shared_sort, &rows)?;
        warn_of_counts(self.gather.watch.as_ref(), counts);
        self.output_columns(shared_sort)?
            .into_iter()
            .map(|columns| sorted.select_columns(columns))
            .collect()
    }

    /// Reports the work that is to do, where the numbers of rows are known: rows are read, sorted or looked up, and put
    /// back in order.
    fn plan_work(&self, shared_sort: &SharedSort) -> Result<()> {
        let mut sides = Vec::new();
        for side in self.sort_inputs(shared_sort)? {
            let Some(rows) = self.gather.rows_in(side.flow)? else {
                return Ok(());
            };
            sides.push(rows);
        }
        let first = sides.first().copied().unwrap_or_default();
        let total_rows: u64 = sides.iter().sum();
        let bound = &self.gather.context.program.bound;
        let planned = match &bound.ops[shared_sort.stand].op {
            PlanOp::Join(JoinOp {
                by: JoinBy::Equality(_),
                ..
            }) => total_rows + 2 * first,
            PlanOp::Join(JoinOp {
                by: JoinBy::Time(as_of),
                ..
            }) => {
                let directions = if as_of.direction == MatchDirection::Nearest {
                    2
                } else {
                    1
                };
                directions * (2 * total_rows + first)
            }
            _ => 2 * total_rows + first,
        };
        let event = Event::Worked { done: 0, planned };
        self.gather.watch.on_event(event);
        Ok(())
    }

    /// Sorts the rows of `tables` and computes over them; also returns what windows counted.
    pub fn sort(
        &self,
        shared_sort: &SharedSort,
        tables: InputTableFn<'_>,
    ) -> Result<(SortedFile, SeriesCounts)> {
        let op = shared_sort.stand;
        let sides = self.sort_inputs(shared_sort)?;
        let sorted = match (
            &self.gather.context.program.bound.ops[op].op,
            sides.as_slice(),
        ) {
            (PlanOp::Join(join), [own_side, other_side]) => match &join.by {
                JoinBy::Equality(_) => {
                    self.join_by_hash(shared_sort, join, [own_side, other_side], tables)?
                }
                JoinBy::Time(as_of) => {
                    self.join_by_time(shared_sort, (join, as_of), [own_side, other_side], tables)?
                }
            },
            (PlanOp::Series(series), [rows]) => {
                self.sort_series(shared_sort, series, rows, tables)?
            }
            (_, [rows]) => return self.sort_windows(shared_sort, rows, tables),
            _ => return Err(Fault::internal("an input that is not sorted")),
        };
        Ok((sorted, SeriesCounts::default()))
    }

    /// The outputs of a join by equal keys.
    fn join_by_hash(
        &self,
        shared_sort: &SharedSort,
        join: &JoinOp,
        [own_side, other_side]: [&SortInput<'_>; 2],
        tables: InputTableFn<'_>,
    ) -> Result<SortedFile> {
        let hash_join = HashJoin {
            pass: self,
            op: shared_sort.stand,
            join,
            keys: &own_side.keys,
            other_keys: &other_side.keys,
            rows: RowsPerMatch::One,
        };
        let back = self.restore_order(
            shared_sort.stand,
            self.gather.engine_context()?,
            join_schema(join),
            self.flow(shared_sort)?,
        )?;
        let outputs = hash_join.run(&tables(own_side)?, &tables(other_side)?)?;
        let outputs = batches_ahead(outputs, self.gather.context.threads);
        back.write_all(outputs, self.keeps_rows, self.stop)
    }

    /// The outputs of a join by time, over both sides in one order.
    fn join_by_time(
        &self,
        shared_sort: &SharedSort,
        (join, as_of): (&JoinOp, &AsOf),
        [own_side, other_side]: [&SortInput<'_>; 2],
        tables: InputTableFn<'_>,
    ) -> Result<SortedFile> {
        let op = shared_sort.stand;
        let flow = self.flow(shared_sort)?;
        let one_way = |backward| {
            let (rows, by) = as_of_order(
                join,
                as_of,
                backward,
                tables(own_side)?,
                tables(other_side)?,
                &own_side.keys,
            )
            .map_err(|error| self.engine_fault_at(error, op))?;
            let memory = self.gather.context.memory;
            let operator = Arc::new(AsOfOperator::new(join, as_of).within(memory));
            self.sort_and_compute(op, rows, by, operator, flow)
        };
        match as_of.direction {
            MatchDirection::Backward => one_way(true),
            MatchDirection::Forward => one_way(false),
            MatchDirection::Nearest => Ok(one_way(true)?.with_other_direction(one_way(false)?)),
        }
    }

    /// The outputs of a function of whole series.
    fn sort_series(
        &self,
        shared_sort: &SharedSort,
        series: &SeriesOp,
        rows: &SortInput<'_>,
        tables: InputTableFn<'_>,
    ) -> Result<SortedFile> {
        let op = shared_sort.stand;
        let gather = &self.gather;
        let schema = schema_with_positions(rows.flow, &rows.columns)?;
        let input = SeriesInput {
            schema: &schema,
            keys: &rows.keys,
        };
        let resources = SeriesResources {
            memory: gather.context.memory,
            threads: gather.context.threads,
            check_stop: stop_check_of(gather.context.io),
        };
        let bound_op = &gather.context.program.bound.ops[op];
        let over = SeriesOperator::new(bound_op, series, &input, resources)?;
        let mut by = order_of_keys(&rows.keys);
        if let Some(time) = &series.time {
            by.push(ident(time.as_str()).sort(true, true));
        }
        by.push(ident(GatherOp::ROW).sort(true, true));
        let table = self.keyed_table(op, tables(rows)?, &rows.keys)?;
        self.sort_and_compute(op, table, by, Arc::new(over), self.flow(shared_sort)?)
    }

    /// The outputs of windows, and the rows that they counted.
    fn sort_windows(
        &self,
        shared_sort: &SharedSort,
        rows: &SortInput<'_>,
        tables: InputTableFn<'_>,
    ) -> Result<(SortedFile, SeriesCounts)> {
        let op = shared_sort.stand;
        let (window, _) = self.merged_window(shared_sort)?;
        let mut by = order_of_keys(&rows.keys);
        by.push(ident(window.time.as_str()).sort(!window.backward, true));
        by.push(ident(GatherOp::ROW).sort(!window.backward, true));
        let over = WindowOperator::new(&window, &rows.columns)?;
        let over = Arc::new(over.within(self.gather.context.memory));
        let table = self.keyed_table(op, tables(rows)?, &rows.keys)?;
        let flow = self.flow(shared_sort)?;
        let sorted = self.sort_and_compute(op, table, by, over.clone(), flow)?;
        let counts = *lock(&over.counts)?;
        Ok((sorted, counts))
    }
}

/// The order by keys, nulls first.
fn order_of_keys(keys: &[(String, DataType)]) -> Vec<SortExpr> {
    let order = |(name, _): &(String, DataType)| ident(name.as_str()).sort(true, true);
    keys.iter().map(order).collect()
}
