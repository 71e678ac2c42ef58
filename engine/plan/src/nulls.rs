//! Nulls: which columns of a step can be null, and by which source or operation.
//!
//! Columns are traced back to the origins of their values. A column of a source counts as one with
//! nulls only where the metadata of the files count some, so that a column found without nulls
//! depends on correct metadata.

use std::collections::BTreeMap;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Case, InList};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator};
use forebay_model::{Dataset, GroupFunction};
use forebay_window::{ClosedEnds, EwmStat, SeriesFrame, SeriesLength, WindowFunction, WindowStat};

use crate::{
    BaseDataset, BoundPipeline, GatherBy, GatherOp, JoinBy, JoinOp, MapOp, NodeFlow, OpId,
    OpStream, PlanOp, WindowOp, WrittenNulls,
};

/// The first reason that is found for nulls in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NullOrigin {
    /// The step, as `node.kind`, or the source.
    pub from: String,
    /// The reason as a clause, such as `239 rows of source `demand` have no `price``.
    pub reason: String,
}

/// The origin of nulls in a column of a flow; `None` where none is known.
pub fn null_origin(
    bound: &BoundPipeline,
    datasets: &BTreeMap<String, Dataset>,
    flow: &NodeFlow,
    column: &str,
) -> Option<NullOrigin> {
    NullWalk { bound, datasets }.of_flow(flow, column)
}

struct NullWalk<'a> {
    bound: &'a BoundPipeline,
    datasets: &'a BTreeMap<String, Dataset>,
}

impl NullWalk<'_> {
    fn of_flow(&self, flow: &NodeFlow, column: &str) -> Option<NullOrigin> {
        flow.streams
            .iter()
            .find_map(|stream| self.of_column(stream, stream.ops.len(), column))
    }

    /// Nulls of a column after the first `op_count` operations of a stream.
    fn of_column(&self, stream: &OpStream, op_count: usize, column: &str) -> Option<NullOrigin> {
        let mut name = column.to_owned();
        for position in (0..op_count).rev() {
            let id = stream.ops[position];
            let op = &self.bound.ops[id];
            match &op.op {
                PlanOp::Keep(keep) => {
                    let is_tested = keep
                        .condition
                        .as_ref()
                        .is_some_and(|condition| holds_for_values_only(condition, &name));
                    if is_tested || keep.valued.contains(&name) {
                        return None;
                    }
                }
                PlanOp::Project(columns) => {
                    let renamed = columns.iter().find(|(_, to)| *to == name);
                    if let Some((from, _)) = renamed {
                        name = from.clone();
                    }
                }
                PlanOp::Map(map) => {
                    let written = map.writes.iter().find(|field| *field.name() == name);
                    if let Some(field) = written {
                        return if field.is_nullable() {
                            self.of_map(stream, position, id, map)
                        } else {
                            None
                        };
                    }
                }
                PlanOp::Expand(expand) => {
                    let written = expand.writes.iter().find(|field| *field.name() == name);
                    if let Some(field) = written {
                        return if field.is_nullable() {
                            self.of_first(stream, position, &expand.reads)
                        } else {
                            None
                        };
                    }
                }
                PlanOp::Window(window) => {
                    let output = window.writes.iter().position(|field| *field.name() == name);
                    if let Some(output) = output {
                        return self.of_window(stream, position, id, window, output);
                    }
                }
                PlanOp::Series(series) => {
                    let written = series.writes.iter().find(|field| *field.name() == name);
                    if let Some(field) = written {
                        let reason = "returns null for some rows";
                        return field.is_nullable().then(|| self.made(id, reason));
                    }
                }
                PlanOp::Join(join) if join.is_written(&name) => {
                    return self.of_join(id, join, &name);
                }
                PlanOp::Join(_) | PlanOp::Gather(_) => {}
            }
        }
        self.of_base(stream, &name)
    }

    /// Origin of the nulls of the first column that has some.
    fn of_first(&self, stream: &OpStream, op_count: usize, names: &[String]) -> Option<NullOrigin> {
        names
            .iter()
            .find_map(|name| self.of_column(stream, op_count, name))
    }

    fn of_map(
        &self,
        stream: &OpStream,
        position: usize,
        id: OpId,
        map: &MapOp,
    ) -> Option<NullOrigin> {
        match &map.nulls {
            WrittenNulls::Filled => None,
            WrittenNulls::Made(reason) | WrittenNulls::MadeOfOthers(reason) => {
                Some(self.made(id, reason))
            }
            WrittenNulls::Of(column) => self.of_column(stream, position, column),
            WrittenNulls::Computed(nulls) => {
                let Some(expression) = &nulls.logical else {
                    if nulls.tried.are_in_column {
                        return Some(self.made(id, FAILED_TRY));
                    }
                    return self.of_reads(stream, position, id, map);
                };
                let column = |name: &str| self.of_column(stream, position, name);
                nulls_of(expression, &mut Vec::new(), &column).map(|nulls| match nulls {
                    ExpressionNulls::Column(origin) => origin,
                    ExpressionNulls::Made(reason) => self.made(id, reason),
                })
            }
            WrittenNulls::Read => self.of_reads(stream, position, id, map),
        }
    }

    /// Nulls of the columns that an operation reads or looks up.
    fn of_reads(
        &self,
        stream: &OpStream,
        position: usize,
        id: OpId,
        map: &MapOp,
    ) -> Option<NullOrigin> {
        self.of_first(stream, position, &map.reads)
            .or_else(|| self.of_lookup(id))
    }

    /// Nulls of the column that an operation looks up in another step or source.
    fn of_lookup(&self, id: OpId) -> Option<NullOrigin> {
        let analyzers = self.bound.ops[id].asks.iter();
        let first = analyzers
            .map(|analyzer| &self.bound.asks[*analyzer])
            .find(|analyzer| analyzer.ask.of.is_some())?;
        let column = first.ask.inputs.first()?;
        first
            .streams
            .iter()
            .find_map(|stream| self.of_column(stream, stream.ops.len(), column))
    }

    fn of_window(
        &self,
        stream: &OpStream,
        position: usize,
        id: OpId,
        window: &WindowOp,
        output: usize,
    ) -> Option<NullOrigin> {
        let function = window.plan.functions.get(output)?;
        match nulls_of_window(&function.compute) {
            WindowNulls::Made(reason) => Some(self.made(id, reason)),
            WindowNulls::None => None,
            WindowNulls::Read => {
                let column = window.reads.get(function.input)?;
                self.of_column(stream, position, column)
            }
        }
    }

    fn of_join(&self, id: OpId, join: &JoinOp, name: &str) -> Option<NullOrigin> {
        let reason = match &join.by {
            JoinBy::Time(_) => "finds no row at or near the time of some rows",
            JoinBy::Equality(_) => "finds no row with the key of some rows",
        };
        if join.keeps_unmatched {
            return Some(self.made(id, reason));
        }
        let (other_column, _) = join
            .columns
            .iter()
            .find(|(_, field)| field.name() == name)?;
        self.of_flow(self.bound.join_inputs.get(&id)?, other_column)
    }

    fn of_base(&self, stream: &OpStream, name: &str) -> Option<NullOrigin> {
        let schema = self.bound.base_schemas.get(stream.base)?;
        let field = schema.field_with_name(name).ok()?;
        if !field.is_nullable() {
            return None;
        }
        match &self.bound.bases[stream.base] {
            BaseDataset::Gathered(id) => match &self.bound.ops[*id].op {
                PlanOp::Gather(gather) => self.of_gather(*id, gather, name),
                _ => None,
            },
            BaseDataset::Source(source) => {
                let nulls = self.datasets.get(source)?.null_count(name)?;
                let rows = match nulls {
                    0 => return None,
                    1 => "1 row".to_owned(),
                    count => format!("{count} rows"),
                };
                let verb = if nulls == 1 { "has" } else { "have" };
                Some(NullOrigin {
                    from: source.clone(),
                    reason: format!("{rows} of source `{source}` {verb} no `{name}`"),
                })
            }
        }
    }

    fn of_gather(&self, id: OpId, gather: &GatherOp, name: &str) -> Option<NullOrigin> {
        let inputs = self.bound.gather_inputs.get(&id)?;
        let of_inputs = |name: &str| {
            let having = inputs
                .iter()
                .filter(|(_, flow)| flow.schema.field_with_name(name).is_ok());
            let mut flows = having.map(|(_, flow)| flow);
            flows.find_map(|flow| self.of_flow(flow, name))
        };
        match &gather.lower {
            GatherBy::OnePerKey { .. } | GatherBy::Query(_) | GatherBy::Future(_) => {
                of_inputs(name)
            }
            GatherBy::GroupBy(group) => {
                let index = gather.schema.index_of(name).ok()?;
                let keys = group.spec.keys.len();
                let Some(result) = index.checked_sub(keys) else {
                    return of_inputs(name);
                };
                let result = group.spec.results.get(result)?;
                match result.function {
                    function if function.is_count() => None,
                    GroupFunction::Var { ddof: 1.. } | GroupFunction::Std { ddof: 1.. } => {
                        Some(self.made(id, "has groups with too few values"))
                    }
                    GroupFunction::WeightedQuantile { .. } => {
                        Some(self.made(id, "has groups without a weight"))
                    }
                    _ => of_inputs(group.inputs.get(keys + result.value)?),
                }
            }
            GatherBy::Join { join, unmatched } => {
                let brought = join.columns.iter().find(|(_, field)| field.name() == name);
                match brought {
                    Some(_) if *unmatched => {
                        Some(self.made(id, "finds no row with the key of some rows"))
                    }
                    Some((other_column, _)) => {
                        let (_, flow) = inputs.get(1)?;
                        self.of_flow(flow, other_column)
                    }
                    None => {
                        let (_, flow) = inputs.first()?;
                        self.of_flow(flow, name)
                    }
                }
            }
        }
    }

    fn made(&self, id: OpId, reason: &str) -> NullOrigin {
        let label = self.bound.ops[id].label.clone();
        NullOrigin {
            reason: format!("`{label}` {reason}"),
            from: label,
        }
    }
}

/// Nulls of a window function.
enum WindowNulls {
    None,
    /// In rows whose input is null.
    Read,
    /// In other rows too, for this reason.
    Made(&'static str),
}

fn nulls_of_window(function: &WindowFunction) -> WindowNulls {
    let too_few = WindowNulls::Made("has too few values at the start of each series");
    match function {
        WindowFunction::Lag { .. }
        | WindowFunction::Diff { .. }
        | WindowFunction::PctChange { .. } => {
            WindowNulls::Made("looks back beyond the start of each series")
        }
        WindowFunction::Window {
            frame,
            stat,
            min_periods,
        } => match stat {
            WindowStat::Count | WindowStat::Unique if *min_periods == 0 => WindowNulls::None,
            WindowStat::Count
            | WindowStat::Sum
            | WindowStat::Mean
            | WindowStat::Min
            | WindowStat::Max
            | WindowStat::Quantile(_)
            | WindowStat::First
            | WindowStat::Last
            | WindowStat::Unique
            | WindowStat::ZeroShare
                if *min_periods <= 1 && holds_its_row(frame) =>
            {
                WindowNulls::Read
            }
            _ => too_few,
        },
        WindowFunction::Ewm {
            stat: EwmStat::Mean,
            gap,
            min_periods: 0 | 1,
            ..
        } if is_nothing(*gap) => WindowNulls::Read,
        WindowFunction::Ewm { .. } => too_few,
        WindowFunction::SeasonalIndex { strength, .. } if *strength > 0.0 => WindowNulls::None,
        WindowFunction::SeasonalIndex { .. } => too_few,
        WindowFunction::LastValid { .. } | WindowFunction::LastValidTime { .. } => {
            WindowNulls::Read
        }
    }
}

/// True if a frame holds the row that it is computed for.
fn holds_its_row(frame: &SeriesFrame) -> bool {
    match frame {
        SeriesFrame::Rolling { gap, closed, .. } => {
            is_nothing(*gap) && matches!(closed, ClosedEnds::Right | ClosedEnds::Both)
        }
        SeriesFrame::Expanding { gap } | SeriesFrame::Seasonal { gap, .. } => is_nothing(*gap),
    }
}

fn is_nothing(length: SeriesLength) -> bool {
    matches!(length, SeriesLength::Rows(0) | SeriesLength::Ticks(0))
}

/// Nulls of an expression.
enum ExpressionNulls {
    /// In rows with a null in a column that it reads.
    Column(NullOrigin),
    /// In other rows, for this reason.
    Made(&'static str),
}

/// The reason of nulls of a cast.
const FAILED_TRY: &str = "gives null where `try_cast` does not succeed";

/// Functions that are null only where all arguments are.
pub(crate) const FIRST_VALUES: &[&str] = &["coalesce", "nvl", "ifnull", "greatest", "least"];

/// Functions that take null for an empty text.
pub(crate) const NULL_AS_EMPTY: &[&str] = &["concat", "concat_ws"];

/// True for a test such as `IS NULL` or `IS TRUE`, which has a value for nulls, too.
pub(crate) fn is_null_test(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
    )
}

/// Nulls of an expression, where `column` returns those of a column. Columns in `valued` have none.
fn nulls_of(
    expression: &Expr,
    valued: &mut Vec<String>,
    column: &dyn Fn(&str) -> Option<NullOrigin>,
) -> Option<ExpressionNulls> {
    match expression {
        Expr::Column(read) => {
            if valued.contains(&read.name) {
                return None;
            }
            column(&read.name).map(ExpressionNulls::Column)
        }
        Expr::Literal(value, _) if value.is_null() => Some(ExpressionNulls::Made("gives null")),
        test if is_null_test(test) => None,
        Expr::TryCast(_) => Some(ExpressionNulls::Made(FAILED_TRY)),
        Expr::Case(case) => nulls_of_case(case, valued, column),
        Expr::ScalarFunction(call) if FIRST_VALUES.contains(&call.name()) => {
            let mut nulls = None;
            for argument in &call.args {
                nulls = Some(nulls_of(argument, valued, column)?);
            }
            nulls
        }
        Expr::ScalarFunction(call) if NULL_AS_EMPTY.contains(&call.name()) => None,
        Expr::ScalarFunction(call) if call.name() == "nullif" => Some(ExpressionNulls::Made(
            "gives null where the arguments of `nullif` are equal",
        )),
        other => {
            let mut nulls = None;
            // The closure gives no error.
            let _ = other.apply_children(|child| {
                nulls = nulls.take().or_else(|| nulls_of(child, valued, column));
                Ok(TreeNodeRecursion::Continue)
            });
            nulls
        }
    }
}

fn nulls_of_case(
    case: &Case,
    valued: &mut Vec<String>,
    column: &dyn Fn(&str) -> Option<NullOrigin>,
) -> Option<ExpressionNulls> {
    let Some(otherwise) = &case.else_expr else {
        return Some(ExpressionNulls::Made("gives null where no `WHEN` holds"));
    };
    let outside = valued.len();
    for (when, result) in &case.when_then_expr {
        let before_branch = valued.len();
        if case.expr.is_none() {
            valued.extend(columns_with_values(when));
        }
        let nulls = nulls_of(result, valued, column);
        valued.truncate(before_branch);
        if nulls.is_some() {
            valued.truncate(outside);
            return nulls;
        }
        if case.expr.is_none() {
            valued.extend(columns_with_values_unless(when));
        }
    }
    let nulls = nulls_of(otherwise, valued, column);
    valued.truncate(outside);
    nulls
}

/// The columns that have a value in every row for which a condition is true.
fn columns_with_values(condition: &Expr) -> Vec<String> {
    condition
        .column_refs()
        .into_iter()
        .map(|column| column.name.clone())
        .filter(|name| holds_for_values_only(condition, name))
        .collect()
}

/// The columns that have a value in every row for which a condition is not true, of those that are easily found.
fn columns_with_values_unless(condition: &Expr) -> Vec<String> {
    match condition {
        Expr::IsNull(tested) => match tested.as_ref() {
            Expr::Column(column) => vec![column.name.clone()],
            _ => Vec::new(),
        },
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => {
            let mut columns = columns_with_values_unless(left);
            columns.extend(columns_with_values_unless(right));
            columns
        }
        _ => Vec::new(),
    }
}

/// True if a condition is true only for rows that have a value of a column.
fn holds_for_values_only(condition: &Expr, column: &str) -> bool {
    match condition {
        Expr::IsNotNull(tested)
        | Expr::IsTrue(tested)
        | Expr::IsFalse(tested)
        | Expr::IsNotUnknown(tested) => is_null_with(tested, column),
        Expr::Not(inner) => match inner.as_ref() {
            Expr::IsNull(tested) => is_null_with(tested, column),
            other => is_null_with(other, column),
        },
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => {
                holds_for_values_only(left, column) || holds_for_values_only(right, column)
            }
            Operator::Or => {
                holds_for_values_only(left, column) && holds_for_values_only(right, column)
            }
            _ => is_null_with(condition, column),
        },
        other => is_null_with(other, column),
    }
}

/// True if an expression is null wherever a column is, as far as its form shows.
fn is_null_with(expression: &Expr, column: &str) -> bool {
    match expression {
        Expr::Column(read) => read.name == column,
        Expr::Cast(cast) => is_null_with(&cast.expr, column),
        Expr::Not(inner) | Expr::Negative(inner) => is_null_with(inner, column),
        Expr::Alias(alias) => is_null_with(&alias.expr, column),
        Expr::Between(Between { expr, .. }) | Expr::InList(InList { expr, .. }) => {
            is_null_with(expr, column)
        }
        Expr::Like(Like { expr, .. }) => is_null_with(expr, column),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And
            | Operator::Or
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom => false,
            _ => is_null_with(left, column) || is_null_with(right, column),
        },
        _ => false,
    }
}
