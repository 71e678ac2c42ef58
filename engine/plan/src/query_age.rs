//! The age of what a query computes: how far before its row the data of a column ends.
//!
//! Values of one row are as old as the columns that they are computed of. Of values over other rows, those are proved
//! that groups, frames or joins bind to the time of the row. All others may be of any time.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Sort, WindowFunctionParams};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, Join, LogicalPlan, Operator, WindowFrameBound,
};
use forebay_window::SeriesLength;

use crate::column_age::{AgeTrace, DataAge, MetTimes, NOW, TimeLink};
use crate::time_shift::{TimeShift, shifted_column};
use crate::{GatherOp, QueryPlan};

/// The tables that a query reads.
pub(crate) trait QueryTables {
    /// A column of a table.
    fn column(&self, table: &str, column: &str) -> AgeTrace;
    /// How far the data of a table's rows reaches beyond their times.
    fn extent(&self, table: &str) -> i128;
    /// True if a table's rows have a time.
    fn is_dated(&self, table: &str) -> bool;
}

/// The ages of a query's columns.
pub(crate) struct QueryAge<'q> {
    query: &'q QueryPlan,
    tables: Box<dyn QueryTables + 'q>,
}

impl<'q> QueryAge<'q> {
    pub fn new(query: &'q QueryPlan, tables: impl QueryTables + 'q) -> QueryAge<'q> {
        QueryAge {
            query,
            tables: Box::new(tables),
        }
    }

    /// A column of the result.
    pub fn output(&self, name: &str, gather: &GatherOp) -> AgeTrace {
        let Ok(place) = gather.schema.index_of(name) else {
            return AgeTrace::of(DataAge::After);
        };
        let mut trace = self.column(&self.query.plan, place);
        if let Some(declared) = self.query.data_age.get(name) {
            trace.ends = match declared {
                SeriesLength::Ticks(time) => DataAge::Behind {
                    time: i128::from(*time),
                    rows: 0,
                },
                SeriesLength::Rows(rows) => DataAge::Behind {
                    time: 0,
                    rows: i64::try_from(*rows).unwrap_or(i64::MAX),
                },
            };
        }
        trace
    }

    /// How far the data of a plan's rows reaches beyond their times.
    pub fn extent(&self, plan: &LogicalPlan) -> i128 {
        match plan {
            LogicalPlan::TableScan(scan) => self.tables.extent(scan.table_name.table()),
            LogicalPlan::Aggregate(aggregate) => {
                let clock = self.group_clock(aggregate);
                self.extent(&aggregate.input) - clock.map_or(0, |clock| clock.shift.least)
            }
            LogicalPlan::Join(join) => self.extent(self.leading_side(join)),
            other => {
                let extents = other.inputs().into_iter().map(|input| self.extent(input));
                extents.max().unwrap_or(0)
            }
        }
    }

    /// True if rows of a plan come from rows with a time.
    fn is_dated(&self, plan: &LogicalPlan) -> bool {
        let mut is_dated = false;
        let walk = plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                is_dated |= self.tables.is_dated(scan.table_name.table());
            }
            Ok(TreeNodeRecursion::Continue)
        });
        is_dated || walk.is_err()
    }

    /// Data of rows of any time of a plan.
    fn of_any_row(&self, plan: &LogicalPlan) -> AgeTrace {
        let any = AgeTrace {
            dated: self.is_dated(plan),
            ..AgeTrace::of(NOW)
        };
        any.of_any_time()
    }

    fn column(&self, plan: &LogicalPlan, place: usize) -> AgeTrace {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let field = scan.projected_schema.field(place);
                self.tables.column(scan.table_name.table(), field.name())
            }
            LogicalPlan::Projection(projection) => match projection.expr.get(place) {
                Some(expression) => self.expression(expression, &projection.input),
                None => self.of_any_row(plan),
            },
            LogicalPlan::Filter(filter) => self.column(&filter.input, place),
            LogicalPlan::Sort(sort) => self.column(&sort.input, place),
            LogicalPlan::Limit(limit) => self.column(&limit.input, place),
            LogicalPlan::Repartition(repartition) => self.column(&repartition.input, place),
            LogicalPlan::SubqueryAlias(alias) => self.column(&alias.input, place),
            LogicalPlan::Subquery(subquery) => self.column(&subquery.subquery, place),
            LogicalPlan::Distinct(Distinct::All(input)) => self.column(input, place),
            LogicalPlan::Union(union) => {
                let traces = union.inputs.iter().map(|input| self.column(input, place));
                AgeTrace::of_streams(traces)
            }
            LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => AgeTrace::ahead(),
            LogicalPlan::Aggregate(aggregate) => self.grouped(aggregate, place),
            LogicalPlan::Window(window) => {
                let before = window.input.schema().fields().len();
                match place.checked_sub(before) {
                    None => self.column(&window.input, place),
                    Some(output) => match window.window_expr.get(output) {
                        Some(expression) => self.windowed(expression, &window.input),
                        None => self.of_any_row(plan),
                    },
                }
            }
            LogicalPlan::Join(join) => self.joined(join, place),
            other => self.of_any_row(other),
        }
    }

    /// What an expression computes of a row of a plan.
    fn expression(&self, expression: &Expr, input: &LogicalPlan) -> AgeTrace {
        let schema = input.schema();
        if let Some(shifted) = shifted_column(expression, schema) {
            let mut trace = self.named(&shifted.column, input);
            trace.time = trace.time.moved(shifted.shift);
            return trace;
        }
        let mut traces = Vec::new();
        let walk = expression.apply(|part| {
            let subquery = match part {
                Expr::Column(column) => {
                    traces.push(self.named(column, input));
                    None
                }
                Expr::ScalarSubquery(subquery) => Some(subquery),
                Expr::InSubquery(inside) => Some(&inside.subquery),
                Expr::Exists(exists) => Some(&exists.subquery),
                Expr::SetComparison(comparison) => Some(&comparison.subquery),
                _ => None,
            };
            if let Some(subquery) = subquery {
                traces.push(self.of_any_row(&subquery.subquery));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        if walk.is_err() {
            return self.of_any_row(input);
        }
        AgeTrace::of_all(traces)
    }

    fn named(&self, column: &Column, input: &LogicalPlan) -> AgeTrace {
        match input.schema().maybe_index_of_column(column) {
            Some(place) => self.column(input, place),
            None => self.of_any_row(input),
        }
    }

    fn all(&self, expressions: &[Expr], input: &LogicalPlan) -> AgeTrace {
        let traces = expressions
            .iter()
            .map(|expression| self.expression(expression, input));
        AgeTrace::of_all(traces)
    }

    /// The key of groups that says most of the time of their rows.
    fn group_clock(&self, aggregate: &Aggregate) -> Option<QueryClock> {
        let mut best: Option<QueryClock> = None;
        for (key, expression) in aggregate.group_expr.iter().enumerate() {
            let link = self.expression(expression, &aggregate.input).time;
            let Some(shift) = link.shift() else {
                continue;
            };
            if best
                .as_ref()
                .is_none_or(|best| best.shift.least < shift.least)
            {
                best = Some(QueryClock { key, shift });
            }
        }
        best
    }

    fn grouped(&self, aggregate: &Aggregate, place: usize) -> AgeTrace {
        let input = aggregate.input.as_ref();
        let keys = &aggregate.group_expr;
        if keys.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
            return self.of_any_row(input);
        }
        let clock = self.group_clock(aggregate);
        if let Some(key) = keys.get(place) {
            let mut trace = self.expression(key, input);
            if let Some(clock) = &clock {
                // The time of a group is that of its clock.
                trace.time = if clock.key == place {
                    TimeLink::Moved(TimeShift::NONE)
                } else {
                    trace.time.moved(clock.shift.reversed())
                };
            }
            return trace;
        }
        let Some(computed) = aggregate.aggr_expr.get(place - keys.len()) else {
            return self.of_any_row(input);
        };
        let mut trace = self.expression(computed, input);
        trace.dated |= self.is_dated(input);
        if clock.is_none() {
            return trace.of_any_time();
        }
        trace.ends = trace.ends.of_group();
        trace.time = TimeLink::None;
        trace
    }

    /// What a window function computes of the rows before and behind a row.
    fn windowed(&self, expression: &Expr, input: &LogicalPlan) -> AgeTrace {
        let inner = expression.clone().unalias();
        let Expr::WindowFunction(call) = &inner else {
            return self.of_any_row(input);
        };
        let WindowFunctionParams {
            args,
            partition_by,
            order_by,
            window_frame,
            filter,
            ..
        } = &call.params;
        let filters: Vec<Expr> = filter
            .iter()
            .map(|filter| filter.as_ref().clone())
            .collect();
        let keys = self.all(partition_by, input);
        let values = self.all(args, input).younger(self.all(&filters, input));
        let orders: Vec<Expr> = order_by.iter().map(|order| order.expr.clone()).collect();
        let order = self.all(&orders, input);
        let mut trace = values.younger(keys).younger(order);
        trace.dated |= self.is_dated(input);
        let is_of_past = match call.fun.name() {
            "lead" | "ntile" | "percent_rank" | "cume_dist" => false,
            "lag" => args.get(1).is_none_or(is_not_negative),
            "row_number" | "rank" | "dense_rank" => true,
            _ => ends_at_row(&window_frame.end_bound),
        };
        let by_partition = partition_by
            .iter()
            .filter_map(|key| self.expression(key, input).time.shift());
        let by_order = order_by
            .first()
            .filter(|_| is_of_past)
            .and_then(|order| self.ascending_time(order, input));
        let spread = by_partition.chain(by_order).map(TimeShift::spread).min();
        let Some(spread) = spread else {
            return trace.of_any_time();
        };
        trace.ends = trace.ends.of_group().moved(spread);
        trace.time = TimeLink::None;
        trace
    }

    fn ascending_time(&self, order: &Sort, input: &LogicalPlan) -> Option<TimeShift> {
        order
            .asc
            .then(|| self.expression(&order.expr, input).time.shift())?
    }

    /// The side of a join whose times its rows have.
    fn leading_side<'p>(&self, join: &'p Join) -> &'p Arc<LogicalPlan> {
        if self.is_dated(&join.left) || !self.is_dated(&join.right) {
            &join.left
        } else {
            &join.right
        }
    }

    fn joined(&self, join: &Join, place: usize) -> AgeTrace {
        let left_width = join.left.schema().fields().len();
        let is_of_left_alone = join.schema.fields().len()
            < left_width + join.right.schema().fields().len()
            && join.schema.fields().len() == left_width;
        let (side, place) = if place < left_width || is_of_left_alone {
            (&join.left, place)
        } else {
            (&join.right, place - left_width)
        };
        if place >= side.schema().fields().len() {
            return self.of_any_row(side);
        }
        let trace = self.column(side, place);
        let leading = self.leading_side(join);
        if Arc::ptr_eq(leading, side) {
            return trace;
        }
        let keys = self.join_keys(join).into_iter().map(|(a, b)| {
            if Arc::ptr_eq(leading, &join.left) {
                (
                    self.expression(&a, &join.left),
                    self.expression(&b, &join.right),
                )
            } else {
                (
                    self.expression(&b, &join.right),
                    self.expression(&a, &join.left),
                )
            }
        });
        let met = MetTimes {
            keys: keys.collect(),
            extents: (self.extent(leading), self.extent(side)),
        };
        let link = trace.time;
        let mut brought = met.age(trace);
        brought.time = match (link, met.distance()) {
            (TimeLink::None, _) => TimeLink::None,
            (TimeLink::Moved(shift), Some(distance)) => TimeLink::Moved(shift.then(distance)),
            _ => TimeLink::Unproved,
        };
        brought
    }

    /// Pairs of expressions of the left and the right side that are equal.
    fn join_keys(&self, join: &Join) -> Vec<(Expr, Expr)> {
        let mut pairs = join.on.clone();
        let conditions = join.filter.iter().flat_map(split_conjunction);
        for condition in conditions {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
                continue;
            };
            if *op != Operator::Eq {
                continue;
            }
            let (a, b) = (left.as_ref(), right.as_ref());
            if is_of(a, join.left.schema()) && is_of(b, join.right.schema()) {
                pairs.push((a.clone(), b.clone()));
            } else if is_of(b, join.left.schema()) && is_of(a, join.right.schema()) {
                pairs.push((b.clone(), a.clone()));
            }
        }
        pairs
    }
}

/// The key of groups that says when their rows are.
struct QueryClock {
    /// Its place among the keys.
    key: usize,
    /// From the time of a row to the time of its group.
    shift: TimeShift,
}

/// True if all columns of an expression are of this schema.
fn is_of(expression: &Expr, schema: &DFSchema) -> bool {
    let columns = expression.column_refs();
    !columns.is_empty()
        && columns
            .iter()
            .all(|column| schema.maybe_index_of_column(column).is_some())
}

/// True if a frame ends with its row at the latest.
fn ends_at_row(end: &WindowFrameBound) -> bool {
    match end {
        WindowFrameBound::Preceding(_) | WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Following(length) => is_zero(length),
    }
}

fn is_zero(length: &ScalarValue) -> bool {
    let number = length.cast_to(&DataType::Int64);
    matches!(number, Ok(ScalarValue::Int64(Some(0))))
}

/// True if an offset is a number of rows that is not negative.
fn is_not_negative(offset: &Expr) -> bool {
    let Expr::Literal(value, _) = offset else {
        return false;
    };
    let number = value.cast_to(&DataType::Int64);
    matches!(number, Ok(ScalarValue::Int64(Some(count))) if count >= 0)
}
