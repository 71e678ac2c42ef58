//! Age of the columns of a query: how far before its row the data of a column ends.
//!
//! Values of one row are as old as the columns that they are computed of. Values over other rows
//! have a known age only if groups, frames or joins bind them to the time of the row. All others
//! may be of any time.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Sort, WindowFunctionParams};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Join, LogicalPlan, Operator, WindowFrameBound,
};
use forebay_window::SeriesLength;

use crate::data_age::{AgeTime, AgeTrace, DataAge, MetTimes, NOW, TimeLink};
use crate::time_shift::{TimeShift, shifted_column};
use crate::{GatherOp, QueryPlan};

/// The tables that a query reads.
pub(crate) trait QueryTables {
    /// A column of a table.
    fn column(&self, table: &str, column: &str) -> AgeTrace;
    /// Reach of the data of a table's rows beyond their times.
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
        let Ok(index) = gather.schema.index_of(name) else {
            return AgeTrace::of(DataAge::After);
        };
        let mut trace = self.column(&self.query.plan, index);
        if let Some(declared) = self.query.data_age.get(name) {
            trace.ends = match declared {
                SeriesLength::Ticks(time) => DataAge::Behind {
                    time: AgeTime::nanoseconds(i128::from(*time)),
                    rows: 0,
                },
                SeriesLength::Calendar(span) => DataAge::Behind {
                    time: AgeTime::of_span(*span, 1),
                    rows: 0,
                },
                SeriesLength::Rows(rows) => DataAge::Behind {
                    time: AgeTime::default(),
                    rows: i64::try_from(*rows).unwrap_or(i64::MAX),
                },
            };
        }
        trace
    }

    /// Reach of the data of a plan's rows beyond their times.
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

    /// Distance before the time of a row at which a plan reads other rows, in nanoseconds, or in
    /// ticks where times are whole numbers. `None` if it may read rows of any time.
    pub fn reach(&self, plan: &LogicalPlan) -> Option<i128> {
        if self.has_dated_subquery(plan) {
            return None;
        }
        let mut inputs = 0;
        for input in plan.inputs() {
            inputs = self.reach(input)?.max(inputs);
        }
        if !self.is_dated(plan) {
            return Some(inputs);
        }
        let looks_back = match plan {
            LogicalPlan::Aggregate(aggregate) => self.group_clock(aggregate)?.shift.spread(),
            LogicalPlan::Window(window) => {
                let mut most = 0;
                for expression in &window.window_expr {
                    most = self.partition_spread(expression, &window.input)?.max(most);
                }
                most
            }
            LogicalPlan::Join(join) => self.match_reach(join)?,
            LogicalPlan::RecursiveQuery(_) | LogicalPlan::Extension(_) => return None,
            _ => 0,
        };
        Some(inputs + looks_back)
    }

    /// Uncertainty of the times of rows that share a partition of a window function.
    fn partition_spread(&self, expression: &Expr, input: &LogicalPlan) -> Option<i128> {
        let inner = expression.clone().unalias();
        let Expr::WindowFunction(call) = &inner else {
            return None;
        };
        let keys = call.params.partition_by.iter();
        let spreads = keys.filter_map(|key| self.expression(key, input).time.shift());
        spreads.map(TimeShift::spread).min()
    }

    /// Distance by which a match lies before the rows of the leading side.
    fn match_reach(&self, join: &Join) -> Option<i128> {
        if !self.is_dated(&join.left) || !self.is_dated(&join.right) {
            return Some(0);
        }
        let met = MetTimes {
            keys: self.met_keys(join),
            extents: (0, 0),
        };
        Some((-met.distance()?.least).max(0))
    }

    /// True if an expression of a node reads a table of rows with times.
    fn has_dated_subquery(&self, plan: &LogicalPlan) -> bool {
        let mut is_dated = false;
        let walk = plan.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Some(subquery) = subquery_of(part) {
                    is_dated |= self.is_dated(subquery);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        });
        is_dated || walk.is_err()
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

    fn column(&self, plan: &LogicalPlan, index: usize) -> AgeTrace {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let field = scan.projected_schema.field(index);
                self.tables.column(scan.table_name.table(), field.name())
            }
            LogicalPlan::Projection(projection) => match projection.expr.get(index) {
                Some(expression) => self.expression(expression, &projection.input),
                None => self.of_any_row(plan),
            },
            LogicalPlan::Filter(filter) => self.column(&filter.input, index),
            LogicalPlan::Sort(sort) => self.column(&sort.input, index),
            LogicalPlan::Limit(limit) => self.column(&limit.input, index),
            LogicalPlan::Repartition(repartition) => self.column(&repartition.input, index),
            LogicalPlan::SubqueryAlias(alias) => self.column(&alias.input, index),
            LogicalPlan::Subquery(subquery) => self.column(&subquery.subquery, index),
            LogicalPlan::Distinct(Distinct::All(input)) => self.column(input, index),
            LogicalPlan::Union(union) => {
                let traces = union.inputs.iter().map(|input| self.column(input, index));
                AgeTrace::of_streams(traces)
            }
            LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => AgeTrace::ahead(),
            LogicalPlan::Aggregate(aggregate) => self.grouped(aggregate, index),
            LogicalPlan::Window(window) => {
                let input_width = window.input.schema().fields().len();
                match index.checked_sub(input_width) {
                    None => self.column(&window.input, index),
                    Some(output) => match window.window_expr.get(output) {
                        Some(expression) => self.windowed(expression, &window.input),
                        None => self.of_any_row(plan),
                    },
                }
            }
            LogicalPlan::Join(join) => self.joined(join, index),
            other => self.of_any_row(other),
        }
    }

    /// Trace of an expression over a row of a plan.
    fn expression(&self, expression: &Expr, input: &LogicalPlan) -> AgeTrace {
        let schema = input.schema();
        if let Some(shifted) = shifted_column(expression, schema) {
            let mut trace = self.named(&shifted.column, input);
            trace.time = trace.time.moved(shifted.shift);
            return trace;
        }
        let mut traces = Vec::new();
        let walk = expression.apply(|part| {
            if let Expr::Column(column) = part {
                traces.push(self.named(column, input));
            }
            if let Some(subquery) = subquery_of(part) {
                traces.push(self.of_any_row(subquery));
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
            Some(index) => self.column(input, index),
            None => self.of_any_row(input),
        }
    }

    fn all(&self, expressions: &[Expr], input: &LogicalPlan) -> AgeTrace {
        let traces = expressions
            .iter()
            .map(|expression| self.expression(expression, input));
        AgeTrace::of_all(traces)
    }

    /// Key column that bounds the times of the rows of a group most closely.
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

    fn grouped(&self, aggregate: &Aggregate, index: usize) -> AgeTrace {
        let input = aggregate.input.as_ref();
        let keys = &aggregate.group_expr;
        if keys.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
            return self.of_any_row(input);
        }
        let clock = self.group_clock(aggregate);
        if let Some(key) = keys.get(index) {
            let mut trace = self.expression(key, input);
            if let Some(clock) = &clock {
                // The time of a group is that of its clock.
                trace.time = if clock.key == index {
                    TimeLink::Moved(TimeShift::NONE)
                } else {
                    trace.time.moved(clock.shift.reversed())
                };
            }
            return trace;
        }
        let Some(computed) = aggregate.aggr_expr.get(index - keys.len()) else {
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

    /// Trace of a window function over the rows before and after a row.
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

    fn joined(&self, join: &Join, index: usize) -> AgeTrace {
        let left_width = join.left.schema().fields().len();
        let is_of_left_alone = join.schema.fields().len()
            < left_width + join.right.schema().fields().len()
            && join.schema.fields().len() == left_width;
        let (side, index) = if index < left_width || is_of_left_alone {
            (&join.left, index)
        } else {
            (&join.right, index - left_width)
        };
        if index >= side.schema().fields().len() {
            return self.of_any_row(side);
        }
        let trace = self.column(side, index);
        let leading = self.leading_side(join);
        if Arc::ptr_eq(leading, side) {
            return trace;
        }
        let met = MetTimes {
            keys: self.met_keys(join),
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

    /// The keys of a join, those of the leading side first.
    fn met_keys(&self, join: &Join) -> Vec<(AgeTrace, AgeTrace)> {
        let leads_left = Arc::ptr_eq(self.leading_side(join), &join.left);
        let mut keys = Vec::new();
        for (left, right) in self.join_keys(join) {
            let left_trace = self.expression(&left, &join.left);
            let right_trace = self.expression(&right, &join.right);
            keys.push(if leads_left {
                (left_trace, right_trace)
            } else {
                (right_trace, left_trace)
            });
        }
        keys
    }

    /// Pairs of expressions of the left and the right side that are equal.
    fn join_keys(&self, join: &Join) -> Vec<(Expr, Expr)> {
        let mut pairs = join.on.clone();
        let conditions = join.filter.iter().flat_map(split_conjunction);
        for condition in conditions {
            let Expr::BinaryExpr(comparison) = condition else {
                continue;
            };
            if comparison.op != Operator::Eq {
                continue;
            }
            let a = comparison.left.as_ref();
            let b = comparison.right.as_ref();
            if is_of(a, join.left.schema()) && is_of(b, join.right.schema()) {
                pairs.push((a.clone(), b.clone()));
            } else if is_of(b, join.left.schema()) && is_of(a, join.right.schema()) {
                pairs.push((b.clone(), a.clone()));
            }
        }
        pairs
    }
}

/// The plan of an expression that is a subquery.
fn subquery_of(expression: &Expr) -> Option<&LogicalPlan> {
    let subquery = match expression {
        Expr::ScalarSubquery(subquery) => subquery,
        Expr::InSubquery(inside) => &inside.subquery,
        Expr::Exists(exists) => &exists.subquery,
        Expr::SetComparison(comparison) => &comparison.subquery,
        _ => return None,
    };
    Some(subquery.subquery.as_ref())
}

/// Key column that bounds the times of the rows of a group.
struct QueryClock {
    /// Index of the time among the keys.
    key: usize,
    /// Shift from the time of a row to the time of its group.
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
