//! Times without a zone beside times with one: they are local to the other's zone.
//!
//! Left to itself, the query engine takes a date beside a time with a zone as midnight in UTC, ignores the offset of a
//! literal, and refuses a local time that the clock skips or repeats. A cast of a time with a zone to one without gives
//! the clock of UTC, while casts to dates and times of day give that of the zone.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::functions::datetime::to_local_time;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Case, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast as cast_expression,
    lit,
};
use forebay_model::{ColumnClock, logical_type, shorten, tick_nanoseconds, type_label};

use crate::between_ticks::compare_with_ticks;
use crate::calendar_moves::move_by_calendar;
use crate::called_casts::cast_of_call;
use crate::date_hours::{interval_nanoseconds, refuse_date_hours, refuse_tick_parts};
use crate::date_numbers::{is_comparison, refuse_date_keys, refuse_date_numbers};
use crate::day_times::align_day_times;
use crate::exact_lengths::measure_intervals;
use crate::formatted_texts::reads_instants;
use crate::time_literals::{literal_text, time_value};
use crate::tried_values::add_tried_nulls;
use crate::zone_clocks::clock_of;

/// Functions whose result is an instant where their first argument is a number or a time with a zone.
const INSTANT_FUNCTIONS: [&str; 7] = [
    "arrow_cast",
    "from_unixtime",
    "to_timestamp",
    "to_timestamp_micros",
    "to_timestamp_millis",
    "to_timestamp_nanos",
    "to_timestamp_seconds",
];

static LOCAL_TIME: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(LocalTimeUdf {
        signature: Signature::variadic_any(Volatility::Immutable),
    })
});

/// The function that places a date or a time without a zone into a zone.
pub(crate) fn local_time_function() -> &'static ScalarUDF {
    &LOCAL_TIME
}

/// Places dates, times and literals without a zone into the zone of the time that they stand beside: as operands of a
/// comparison, arguments of a function, or alternatives. A literal with an offset becomes its instant. A cast of a time
/// with a zone to one without gives its local time. Intervals move times with a zone by its calendar, and are exact
/// beside differences of times. Literals of times that nanoseconds do not hold have a unit that does, as dates that are
/// truncated do, and times of day have the finest unit beside them. A date beside a whole number is refused. So is a
/// move of a date by hours, or of a time by less than its unit.
pub(crate) fn localize_times(expression: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    refuse_date_numbers(&expression, schema)?;
    let placed = expression.transform_up(|part| match part {
        Expr::Case(case) if case.expr.is_some() => localize_case(case, schema),
        other => localize_part(other, schema),
    })?;
    let aligned = align_day_times(placed.data, schema)?;
    let measured = measure_intervals(aligned, schema)?;
    refuse_tick_parts(&measured, schema)?;
    let moved = move_by_calendar(measured, schema)?;
    // Dates beside times with a zone are times by now.
    refuse_date_hours(&moved, schema)?;
    // Constants that are computed have all their parts by now.
    compare_with_ticks(moved, schema)
}

/// [`localize_times`] for a part whose own parts are done.
fn localize_part(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    if let Some(cast) = cast_of_call(&part, schema) {
        let localized = localize_part(cast, schema)?;
        return Ok(Transformed::yes(localized.data));
    }
    if joins_texts(&part) {
        return Ok(Transformed::no(part));
    }
    if let Some(zoned) = zoned_child(&part, schema)? {
        return part.map_children(|child| localize_child(child, &zoned, schema));
    }
    if let Some(local) = local_cast(&part, schema)? {
        return Ok(Transformed::yes(local));
    }
    if let Some(truncated) = truncated_date(&part, schema) {
        return Ok(Transformed::yes(truncated));
    }
    reach_far_times(part, schema)
}

/// True for an expression that makes a text of its parts: a text there is no time.
fn joins_texts(part: &Expr) -> bool {
    match part {
        Expr::BinaryExpr(joined) => joined.op == Operator::StringConcat,
        Expr::ScalarFunction(call) => matches!(call.func.name(), "concat" | "concat_ws"),
        _ => false,
    }
}

/// [`localize_times`] for `CASE value WHEN ...`. The values stand beside each other, and so do the results: neither
/// stands beside the other.
fn localize_case(mut case: Case, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    let Some(compared) = case.expr.take() else {
        return localize_part(Expr::Case(case), schema);
    };
    let mut values = Vec::with_capacity(case.when_then_expr.len());
    for (value, _) in &mut case.when_then_expr {
        // A condition stands in its place meanwhile.
        values.push(std::mem::replace(&mut **value, lit(true)));
    }
    let members = Expr::InList(InList::new(compared, values, false));
    let members = localize_part(members, schema)?;
    let results = localize_part(Expr::Case(case), schema)?;
    let is_changed = members.transformed || results.transformed;
    let Expr::InList(members) = members.data else {
        return Err(DataFusionError::Internal(
            "values of a `CASE` that are none".to_owned(),
        ));
    };
    let Expr::Case(mut case) = results.data else {
        return Err(DataFusionError::Internal(
            "results of a `CASE` that are none".to_owned(),
        ));
    };
    case.expr = Some(members.expr);
    for (branch, value) in case.when_then_expr.iter_mut().zip(members.list) {
        *branch.0 = value;
    }
    let case = Expr::Case(case);
    Ok(if is_changed {
        Transformed::yes(case)
    } else {
        Transformed::no(case)
    })
}

/// A cast of a time with a zone to one without, as a cast of its local time. `None` for other expressions.
fn local_cast(part: &Expr, schema: &DFSchema) -> Result<Option<Expr>, DataFusionError> {
    let (inner, target) = match part {
        Expr::Cast(cast) => (cast.expr.as_ref(), cast.field.data_type()),
        Expr::TryCast(cast) => (cast.expr.as_ref(), cast.field.data_type()),
        _ => return Ok(None),
    };
    let is_zoned = matches!(inner.get_type(schema), Ok(DataType::Timestamp(_, Some(_))));
    if !is_zoned || !matches!(target, DataType::Timestamp(_, None)) {
        return Ok(None);
    }
    let local = part
        .clone()
        .map_children(|time| Ok(Transformed::yes(to_local_time().call(vec![time]))))?;
    Ok(Some(local.data))
}

/// A call of `date_trunc` for a date, as one for the date's midnight in microseconds, which hold the dates of all years.
/// Left to itself, the query engine takes a date as nanoseconds, which end in 2262. `None` for other expressions.
fn truncated_date(part: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(call) = part else {
        return None;
    };
    let [unit, date] = call.args.as_slice() else {
        return None;
    };
    if call.func.name() != "date_trunc" {
        return None;
    }
    if !matches!(
        date.get_type(schema),
        Ok(DataType::Date32 | DataType::Date64)
    ) {
        return None;
    }
    let midnight = cast_expression(
        date.clone(),
        DataType::Timestamp(TimeUnit::Microsecond, None),
    );
    Some(call.func.call(vec![unit.clone(), midnight]))
}

/// [`localize_times`] for all expressions of a query.
pub(crate) fn localize_plan(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let mut has_changes = false;
    let done = plan.transform_up_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = &node {
            refuse_date_keys(join)?;
        }
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let localized = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let expression_before = expression.clone();
            let localized = localize_times(expression, &schema)?;
            let is_changed = localized != expression_before;
            let localized = name.restore(localized);
            Ok(if is_changed {
                Transformed::yes(localized)
            } else {
                Transformed::no(expression_before)
            })
        })?;
        // Nodes above one that has changed may have inputs of other types.
        has_changes |= localized.transformed;
        if has_changes {
            Ok(Transformed::yes(localized.data.recompute_schema()?))
        } else {
            Ok(localized)
        }
    });
    done.map(|done| done.data)
}

/// Gives literals that nanoseconds do not hold the unit of the times without a zone that they stand beside, and dates
/// that are compared with such times. Left to itself, the query engine takes all of them as nanoseconds, which end in
/// 2262.
fn reach_far_times(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    // A cast has one part, and says itself what becomes of it.
    if matches!(part, Expr::Cast(_) | Expr::TryCast(_) | Expr::Alias(_)) {
        return Ok(Transformed::no(part));
    }
    let compares = match &part {
        Expr::BinaryExpr(binary) => is_comparison(binary.op),
        Expr::Between(_) | Expr::InList(_) => true,
        _ => false,
    };
    let mut coarse = coarse_child(&part, schema)?;
    let mut has_far = false;
    let mut has_literal = false;
    let mut has_days = false;
    part.apply_children(|child| {
        match literal_without_zone(child, coarse.as_ref()) {
            Some(literal) => {
                has_literal = true;
                has_far |= literal.is_far;
            }
            None => has_days |= literal_text(child).is_none() && is_day(child, schema),
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // Days reach farther than nanoseconds do.
    has_far |= compares && has_literal && has_days;
    if has_far && coarse.is_none() {
        coarse = Some(DataType::Timestamp(TimeUnit::Microsecond, None));
    }
    part.map_children(|child| {
        if literal_text(&child).is_some() {
            // Beside a far one, others have the unit, too.
            let literal = literal_without_zone(&child, coarse.as_ref()).filter(|_| has_far);
            return Ok(match literal {
                Some(literal) => Transformed::yes(Expr::Literal(literal.value, None)),
                None => Transformed::no(child),
            });
        }
        match &coarse {
            Some(coarse) if compares && is_day(&child, schema) => {
                Ok(Transformed::yes(cast_expression(child, coarse.clone())))
            }
            _ => Ok(Transformed::no(child)),
        }
    })
}

fn is_day(expression: &Expr, schema: &DFSchema) -> bool {
    matches!(expression.get_type(schema), Ok(DataType::Date32))
}

/// The type of a time without a zone in a unit above nanoseconds, among the parts of an expression.
fn coarse_child(part: &Expr, schema: &DFSchema) -> Result<Option<DataType>, DataFusionError> {
    let mut coarse = None;
    part.apply_children(|child| {
        let Ok(data_type) = child.get_type(schema) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        if matches!(&data_type, DataType::Timestamp(unit, None) if *unit != TimeUnit::Nanosecond) {
            coarse = Some(data_type);
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(coarse)
}

/// A literal of a time without a zone.
struct LocalLiteral {
    value: ScalarValue,
    /// True if nanoseconds do not hold it.
    is_far: bool,
}

/// A literal in the unit of a time without a zone that it stands beside. Without one, `TIMESTAMP '...'` has
/// microseconds.
fn literal_without_zone(literal: &Expr, coarse: Option<&DataType>) -> Option<LocalLiteral> {
    let text = literal_text(literal)?;
    let microseconds = DataType::Timestamp(TimeUnit::Microsecond, None);
    let data_type = match (coarse, literal) {
        (Some(coarse), _) => coarse,
        (None, Expr::Cast(cast)) if cast.field.data_type() != &DataType::Date32 => &microseconds,
        _ => return None,
    };
    let DataType::Timestamp(unit, None) = data_type else {
        return None;
    };
    let clock = ColumnClock::of(data_type).ok().flatten()?;
    let nanoseconds = clock.read(text)?;
    if ColumnClock::has_offset(text) || nanoseconds % clock.tick() != 0 {
        return None;
    }
    let ticks = i64::try_from(nanoseconds / clock.tick()).ok()?;
    Some(LocalLiteral {
        value: time_value(*unit, ticks, None),
        is_far: i64::try_from(nanoseconds).is_err(),
    })
}

/// The type of a time with a zone among the parts of an expression.
fn zoned_child(part: &Expr, schema: &DFSchema) -> Result<Option<DataType>, DataFusionError> {
    // A cast has one part, and says itself what becomes of it.
    if matches!(part, Expr::Cast(_) | Expr::TryCast(_) | Expr::Alias(_)) {
        return Ok(None);
    }
    let mut zoned = None;
    part.apply_children(|child| {
        if let Ok(data_type @ DataType::Timestamp(_, Some(_))) = child.get_type(schema) {
            zoned = Some(data_type);
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(zoned)
}

/// Converts a part of an expression that is compared with a time with a zone.
fn localize_child(
    child: Expr,
    zoned: &DataType,
    schema: &DFSchema,
) -> Result<Transformed<Expr>, DataFusionError> {
    // Intervals move a literal in civil time before it becomes an instant.
    if let Some(text) = literal_text(&child) {
        return Ok(match literal_instant(text, zoned) {
            Some(instant) => Transformed::yes(instant),
            None => Transformed::no(child),
        });
    }
    let DataType::Timestamp(unit, Some(zone)) = zoned else {
        return Ok(Transformed::no(child));
    };
    let Ok(data_type) = child.get_type(schema) else {
        return Ok(Transformed::no(child));
    };
    let unit = match data_type {
        DataType::Date32 | DataType::Date64 => *unit,
        DataType::Timestamp(own_unit, None) => own_unit.max(*unit),
        _ => return Ok(Transformed::no(child)),
    };
    if let Some((time, length)) = exactly_moved(&child) {
        // Hours are exact: they move the instant.
        let placed = localize_child(time.clone(), zoned, schema)?.data;
        let placed = in_unit_of_move(placed, length);
        let moved = child.clone().map_children(|part| {
            Ok(if part == *length {
                Transformed::no(part)
            } else {
                Transformed::yes(placed.clone())
            })
        })?;
        return Ok(moved);
    }
    let child = with_instants(child, zoned, schema)?;
    if let Ok(DataType::Timestamp(_, Some(_))) = child.get_type(schema) {
        return Ok(Transformed::yes(child));
    }
    let placed = LOCAL_TIME.call(vec![child, lit(zone.to_string()), lit(unit_word(unit))]);
    Ok(Transformed::yes(placed))
}

/// The time and the length of a time that is moved by hours or less.
fn exactly_moved(expression: &Expr) -> Option<(&Expr, &Expr)> {
    let Expr::BinaryExpr(moved) = expression else {
        return None;
    };
    if !matches!(moved.op, Operator::Plus | Operator::Minus) {
        return None;
    }
    let is_exact = |part: &Expr| match part {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(length)), _) => {
            length.months == 0 && length.days == 0
        }
        _ => false,
    };
    if is_exact(&moved.right) {
        return Some((&moved.left, &moved.right));
    }
    is_exact(&moved.left).then_some((&moved.right, &moved.left))
}

/// A literal that is moved by less than its unit, in nanoseconds. Other expressions stay as they are.
fn in_unit_of_move(time: Expr, length: &Expr) -> Expr {
    let Expr::Literal(value, _) = &time else {
        return time;
    };
    let data_type = value.data_type();
    let DataType::Timestamp(_, zone) = &data_type else {
        return time;
    };
    let Some(tick) = tick_nanoseconds(&data_type) else {
        return time;
    };
    if interval_nanoseconds(length).is_none_or(|nanoseconds| nanoseconds % tick == 0) {
        return time;
    }
    let Ok(ScalarValue::Int64(Some(ticks))) = value.cast_to(&DataType::Int64) else {
        return time;
    };
    match i64::try_from(i128::from(ticks) * tick) {
        Ok(nanoseconds) => {
            let moved = time_value(TimeUnit::Nanosecond, nanoseconds, zone.clone());
            Expr::Literal(moved, None)
        }
        Err(_) => time,
    }
}

/// Literals with an offset inside of an expression of literals become instants: from above, so that a cast goes with the
/// text that it casts. So do times that are made of a number, or of a time with a zone. Of the texts of a column, those
/// with an offset are instants, and others are local.
fn with_instants(
    expression: Expr,
    zoned: &DataType,
    schema: &DFSchema,
) -> Result<Expr, DataFusionError> {
    let literals = expression.transform_down(|part| {
        let instant = literal_text(&part)
            .filter(|text| ColumnClock::has_offset(text) || read_named_zone(text).is_some())
            .and_then(|text| literal_instant(text, zoned));
        Ok(match instant {
            Some(instant) => Transformed::yes(instant),
            None => Transformed::no(part),
        })
    })?;
    let done = literals.data.transform_down(|part| {
        let placed = match text_in_zone(&part, zoned, schema) {
            Some(placed) => Some(placed),
            None => instant_in_zone(&part, zoned, schema),
        };
        Ok(match placed {
            Some(instant) => Transformed::new(instant, true, TreeNodeRecursion::Jump),
            None => Transformed::no(part),
        })
    });
    done.map(|done| done.data)
}

/// A time without a zone that is an instant all the same, in a zone: it is made of a number, which counts from 1970 in
/// UTC, of a time with a zone, or of a text by a format with an offset.
fn instant_in_zone(expression: &Expr, zoned: &DataType, schema: &DFSchema) -> Option<Expr> {
    let source = match expression {
        Expr::Cast(cast) => cast.expr.as_ref(),
        Expr::TryCast(cast) => cast.expr.as_ref(),
        Expr::ScalarFunction(call) if INSTANT_FUNCTIONS.contains(&call.func.name()) => {
            call.args.first()?
        }
        _ => return None,
    };
    let DataType::Timestamp(_, Some(zone)) = zoned else {
        return None;
    };
    let DataType::Timestamp(unit, None) = expression.get_type(schema).ok()? else {
        return None;
    };
    let source_type = source.get_type(schema).ok()?;
    let is_zoned = matches!(source_type, DataType::Timestamp(_, Some(_)));
    if !source_type.is_numeric() && !is_zoned && !has_instant_formats(expression) {
        return None;
    }
    let in_utc = DataType::Timestamp(unit, Some("UTC".into()));
    let in_zone = DataType::Timestamp(unit, Some(Arc::clone(zone)));
    Some(cast_expression(
        cast_expression(expression.clone(), in_utc),
        in_zone,
    ))
}

/// True for a call with formats that all read an offset, so that its times are instants in UTC.
fn has_instant_formats(expression: &Expr) -> bool {
    let Expr::ScalarFunction(call) = expression else {
        return false;
    };
    let [_, formats @ ..] = call.args.as_slice() else {
        return false;
    };
    !formats.is_empty()
        && formats.iter().all(|format| match format {
            Expr::Literal(value, _) => value.try_as_str().flatten().is_some_and(reads_instants),
            _ => false,
        })
}

/// A time without a zone that is made of texts, which are no constant, as the times of these texts in a zone.
fn text_in_zone(expression: &Expr, zoned: &DataType, schema: &DFSchema) -> Option<Expr> {
    let (source, is_try) = match expression {
        Expr::Cast(cast) => (cast.expr.as_ref(), false),
        Expr::TryCast(cast) => (cast.expr.as_ref(), true),
        Expr::ScalarFunction(call) if call.func.name().starts_with("to_timestamp") => {
            let [source] = call.args.as_slice() else {
                return None;
            };
            (source, false)
        }
        _ => return None,
    };
    let DataType::Timestamp(_, Some(zone)) = zoned else {
        return None;
    };
    let DataType::Timestamp(unit, None) = expression.get_type(schema).ok()? else {
        return None;
    };
    let is_text = logical_type(&source.get_type(schema).ok()?) == DataType::Utf8;
    if !is_text || matches!(source, Expr::Literal(..)) {
        return None;
    }
    Some(LOCAL_TIME.call(vec![
        source.clone(),
        lit(zone.to_string()),
        lit(unit_word(unit)),
        lit(is_try),
    ]))
}

/// Nanoseconds since 1970 of a text that ends with the name of a zone: `2024-05-02 00:00:00 Europe/Berlin`.
fn read_named_zone(text: &str) -> Option<i128> {
    let (local, zone) = text.trim().rsplit_once(' ')?;
    let data_type = DataType::Timestamp(TimeUnit::Nanosecond, Some(zone.into()));
    let clock = ColumnClock::of(&data_type).ok().flatten()?;
    if ColumnClock::has_offset(local) {
        return None;
    }
    clock.read(local)
}

/// The instant of a text in the zone of a column, in the column's unit where it has it exactly.
fn literal_instant(text: &str, zoned: &DataType) -> Option<Expr> {
    let clock = ColumnClock::of(zoned).ok().flatten()?;
    let nanoseconds = clock.read(text).or_else(|| read_named_zone(text))?;
    let DataType::Timestamp(unit, Some(zone)) = zoned else {
        return None;
    };
    let tick = clock.tick();
    let (unit, tick) = if nanoseconds % tick == 0 {
        (*unit, tick)
    } else {
        (TimeUnit::Nanosecond, 1)
    };
    let ticks = i64::try_from(nanoseconds / tick).ok()?;
    let value = time_value(unit, ticks, Some(Arc::clone(zone)));
    Some(Expr::Literal(value, None))
}

fn unit_word(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn unit_of_word(word: &str) -> TimeUnit {
    match word {
        "s" => TimeUnit::Second,
        "ms" => TimeUnit::Millisecond,
        "us" => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    }
}

/// `local_time(time, zone, unit)`: the instant of a local time, or that of a text. `local_time(text, zone, unit, true)` is
/// null where a text is no time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LocalTimeUdf {
    signature: Signature,
}

impl ScalarUDFImpl for LocalTimeUdf {
    fn name(&self) -> &str {
        "local_time"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType, DataFusionError> {
        Err(DataFusionError::Internal(
            "the type of a local time depends on its zone".to_owned(),
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        let texts = args
            .scalar_arguments
            .iter()
            .skip(1)
            .filter_map(|value| value.and_then(|value| value.try_as_str().flatten()));
        let data_type = zoned_type(&texts.collect::<Vec<_>>())?;
        Ok(Arc::new(Field::new("local_time", data_type, true)))
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let DataType::Timestamp(_, Some(_)) = arguments.return_field.data_type() else {
            return Err(DataFusionError::Internal(
                "a local time without a zone".to_owned(),
            ));
        };
        let target = arguments.return_field.data_type();
        let is_scalar = matches!(arguments.args.first(), Some(ColumnarValue::Scalar(_)));
        let is_try = matches!(
            arguments.args.get(3),
            Some(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
        );
        let column = match arguments.args.into_iter().next() {
            Some(ColumnarValue::Array(column)) => column,
            Some(ColumnarValue::Scalar(value)) => value.to_array()?,
            None => {
                return Err(DataFusionError::Internal(
                    "a local time without a time".to_owned(),
                ));
            }
        };
        let placed = if logical_type(column.data_type()) == DataType::Utf8 {
            placed_texts(&column, target, is_try)?
        } else {
            placed(&column, target)?
        };
        if is_try && !is_scalar {
            add_tried_nulls(&column, &placed);
        }
        Ok(if is_scalar {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&placed, 0)?)
        } else {
            ColumnarValue::Array(placed)
        })
    }
}

fn zoned_type(texts: &[&str]) -> Result<DataType, DataFusionError> {
    let [zone, unit] = texts else {
        return Err(DataFusionError::Internal(
            "the zone of a local time is no constant".to_owned(),
        ));
    };
    Ok(DataType::Timestamp(
        unit_of_word(unit),
        Some(Arc::from(*zone)),
    ))
}

/// The instants of texts: of those with an offset as they say, of others as local times. With `is_try`, texts that are no
/// times are null.
fn placed_texts(
    column: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let clock = clock_of(target)?;
    let texts = cast(column, &DataType::Utf8)?;
    let mut ticks = Vec::with_capacity(texts.len());
    for text in texts.as_string::<i32>().iter() {
        let Some(text) = text else {
            ticks.push(None);
            continue;
        };
        let nanoseconds = clock.read(text).or_else(|| read_named_zone(text));
        let tick = nanoseconds
            .filter(|nanoseconds| nanoseconds % clock.tick() == 0)
            .and_then(|nanoseconds| i64::try_from(nanoseconds / clock.tick()).ok());
        if tick.is_none() && !is_try {
            return Err(DataFusionError::Execution(format!(
                "`{}` is no time of {}",
                shorten(text),
                type_label(target)
            )));
        }
        ticks.push(tick);
    }
    Ok(cast(&Int64Array::from(ticks), target)?)
}

/// The instants of local times. Of a local time that there is twice, that is the first one, also where the column has the
/// second one.
pub(crate) fn placed(column: &ArrayRef, target: &DataType) -> Result<ArrayRef, DataFusionError> {
    let clock = clock_of(target)?;
    let local = clock_of(column.data_type())?;
    let beyond = |time: i64| {
        DataFusionError::Execution(format!(
            "Overflow: the local time {time} lies beyond the times of {target}"
        ))
    };
    let ticks = match column.data_type() {
        DataType::Date32 => cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(column, &DataType::Int64)?,
    };
    let ticks = ticks.as_primitive::<Int64Type>();
    debug_assert!(tick_nanoseconds(target).is_some());
    let placed: Int64Array = ticks.try_unary(|time| {
        let civil = local.local(time);
        civil
            .and_then(|civil| clock.instant(civil))
            .ok_or_else(|| beyond(time))
    })?;
    Ok(cast(&placed, target)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, StringArray, TimestampMicrosecondArray};
    use arrow::datatypes::Schema;
    use forebay_model::codes;

    use super::*;
    use crate::SqlCompiler;

    /// Rows of a condition over hours of local days around a change of the clock.
    fn rows(zone: &str, first: i64, condition: &str) -> Vec<usize> {
        let hours = (0..72).map(|hour| (first + hour * 3_600) * 1_000_000);
        let times = TimestampMicrosecondArray::from_iter_values(hours).with_timezone(zone);
        let days = Date32Array::from(vec![19_813; 72]);
        let schema = Schema::new(vec![
            Field::new("t", times.data_type().clone(), true),
            Field::new("day", DataType::Date32, true),
        ]);
        let columns: [ArrayRef; 2] = [Arc::new(times), Arc::new(days)];
        let compiled = SqlCompiler::default()
            .condition(condition, &schema)
            .unwrap();
        let inputs: Vec<ArrayRef> = compiled
            .reads
            .iter()
            .map(|name| columns[schema.index_of(name).unwrap()].clone())
            .collect();
        let kept = (compiled.kernel)(&inputs, 72).unwrap();
        let kept = kept[0].as_boolean().clone();
        (0..72).filter(|row| kept.value(*row)).collect()
    }

    #[test]
    fn texts_with_an_offset_are_instants_beside_a_zone() {
        let midnight = TimestampMicrosecondArray::from(vec![1_711_753_200_000_000; 5]);
        let times: ArrayRef = Arc::new(midnight.with_timezone("Europe/Berlin"));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("2024-03-30T00:00:00"),
            Some("2024-03-29T23:00:00Z"),
            Some("2024-03-30T00:00:00Z"),
            Some("2024-03-30T01:00:00+02:00"),
            None,
        ]));
        let schema = Schema::new(vec![
            Field::new("t", times.data_type().clone(), true),
            Field::new("text", DataType::Utf8, true),
        ]);
        for condition in [
            "t = to_timestamp(text)",
            "CAST(text AS TIMESTAMP) = t",
            "TRY_CAST(text AS TIMESTAMP) = t",
            "t + INTERVAL '1 day' = to_timestamp(text) + INTERVAL '1 day'",
        ] {
            let compiled = SqlCompiler::default()
                .condition(condition, &schema)
                .unwrap();
            let inputs: Vec<ArrayRef> = compiled
                .reads
                .iter()
                .map(|name| match name.as_str() {
                    "t" => times.clone(),
                    _ => texts.clone(),
                })
                .collect();
            let equal = (compiled.kernel)(&inputs, 5).unwrap();
            let equal: Vec<_> = equal[0].as_boolean().iter().collect();
            let expected = [Some(true), Some(true), Some(false), Some(true), None];
            assert_eq!(equal, expected, "{condition}");
        }
        let strict = SqlCompiler::default()
            .condition("t = CAST(text AS TIMESTAMP)", &schema)
            .unwrap();
        let no_times: ArrayRef = Arc::new(StringArray::from(vec!["tomorrow"; 5]));
        let inputs: Vec<ArrayRef> = strict
            .reads
            .iter()
            .map(|name| match name.as_str() {
                "t" => times.clone(),
                _ => no_times.clone(),
            })
            .collect();
        let fault = (strict.kernel)(&inputs, 5).unwrap_err();
        assert_eq!(fault.code(), codes::BAD_ROW);
    }

    #[test]
    fn texts_in_formats_with_an_offset_are_instants_beside_a_zone() {
        let midnight = TimestampMicrosecondArray::from(vec![1_711_753_200_000_000; 3]);
        let times: ArrayRef = Arc::new(midnight.with_timezone("Europe/Berlin"));
        let schema = Schema::new(vec![
            Field::new("t", times.data_type().clone(), true),
            Field::new("text", DataType::Utf8, true),
        ]);
        for (format, texts) in [
            (
                "%d.%m.%Y %H:%M %z",
                [
                    "30.03.2024 01:00 +0200",
                    "29.03.2024 23:00 +0000",
                    "30.03.2024 00:00 +0000",
                ],
            ),
            (
                "%d.%m.%Y %H:%M",
                ["30.03.2024 00:00", "30.03.2024 00:00", "29.03.2024 23:00"],
            ),
        ] {
            let condition = format!("t = to_timestamp(text, '{format}')");
            let compiled = SqlCompiler::default()
                .condition(&condition, &schema)
                .unwrap();
            assert_eq!(compiled.reads, ["t", "text"]);
            let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
            let equal = (compiled.kernel)(&[times.clone(), texts], 3).unwrap();
            let equal: Vec<_> = equal[0].as_boolean().iter().collect();
            assert_eq!(equal, [Some(true), Some(true), Some(false)], "{condition}");
        }
    }

    /// Rows of a condition over times of the years 1, 2024 and 9999 without a zone, and their days.
    fn far_rows(unit: TimeUnit, condition: &str) -> Vec<usize> {
        let days = Date32Array::from(vec![-719_162, 19_723, 2_932_896]);
        let days: ArrayRef = Arc::new(days);
        let times = cast(&days, &DataType::Timestamp(unit, None)).unwrap();
        let schema = Schema::new(vec![
            Field::new("t", times.data_type().clone(), true),
            Field::new("day", DataType::Date32, true),
        ]);
        let columns = [times, days];
        let compiled = SqlCompiler::default()
            .condition(condition, &schema)
            .unwrap();
        let inputs: Vec<ArrayRef> = compiled
            .reads
            .iter()
            .map(|name| columns[schema.index_of(name).unwrap()].clone())
            .collect();
        let selected = (compiled.kernel)(&inputs, 3).unwrap();
        let selected = selected[0].as_boolean().clone();
        (0..3).filter(|row| selected.value(*row)).collect()
    }

    #[test]
    fn times_without_a_zone_are_compared_in_all_years() {
        for unit in [TimeUnit::Millisecond, TimeUnit::Microsecond] {
            for (condition, expected) in [
                ("t = TIMESTAMP '9999-12-31T00:00:00'", vec![2]),
                ("t < DATE '9999-12-31'", vec![0, 1]),
                ("t < '9999-12-31'", vec![0, 1]),
                ("t > DATE '0001-01-01'", vec![1, 2]),
                (
                    "t BETWEEN DATE '2000-01-01' AND DATE '9999-12-31'",
                    vec![1, 2],
                ),
                (
                    "t IN (DATE '2024-01-01', TIMESTAMP '9999-12-31')",
                    vec![1, 2],
                ),
                ("t = day", vec![0, 1, 2]),
                ("day IS NOT DISTINCT FROM t", vec![0, 1, 2]),
                ("t < day + INTERVAL '1 day'", vec![0, 1, 2]),
                ("t < DATE '9999-12-31' - INTERVAL '1 day'", vec![0, 1]),
                ("t < TIMESTAMP '9999-12-31' - INTERVAL '1 day'", vec![0, 1]),
                ("day < TIMESTAMP '9999-12-31'", vec![0, 1]),
                ("day < TIMESTAMP '2024-01-01 12:00:00'", vec![0, 1]),
                ("TIMESTAMP '2024-01-01 12:00:00' < day", vec![2]),
                ("day IN (TIMESTAMP '2024-01-01')", vec![1]),
                (
                    "day BETWEEN DATE '2000-01-01' AND TIMESTAMP '2024-06-01 00:00:00'",
                    vec![1],
                ),
                ("coalesce(t, TIMESTAMP '9999-12-31') = t", vec![0, 1, 2]),
                (
                    "CASE WHEN day IS NULL THEN t ELSE DATE '9999-12-31' END = t",
                    vec![2],
                ),
                (
                    "t > TIMESTAMP '2023-01-01' AND t < DATE '2025-01-01'",
                    vec![1],
                ),
            ] {
                assert_eq!(far_rows(unit, condition), expected, "{unit:?} {condition}");
            }
        }
    }

    #[test]
    fn literals_are_local_to_what_they_stand_beside() {
        // 2024-03-30 00:00 in Berlin, two days before the clock goes forward at 02:00 of the 31st.
        let berlin = 1_711_753_200;
        let day = |first: usize, hours: usize| (first..first + hours).collect::<Vec<_>>();
        // Local days have 24, 23 and 24 hours.
        for (condition, expected) in [
            (
                "t >= DATE '2024-03-31' AND t < DATE '2024-04-01'",
                day(24, 23),
            ),
            (
                "t >= TIMESTAMP '2024-03-31 00:00:00' AND t < TIMESTAMP '2024-04-01'",
                day(24, 23),
            ),
            (
                "t >= '2024-03-31' AND t < '2024-04-01T00:00:00'",
                day(24, 23),
            ),
            ("CAST(t AS DATE) = DATE '2024-03-31'", day(24, 23)),
            ("date_trunc('day', t) = DATE '2024-03-31'", day(24, 23)),
            ("date_trunc('month', t) = DATE '2024-04-01'", day(47, 25)),
            (
                "t >= DATE '2024-04-01' - INTERVAL '1 day' AND t < day + INTERVAL '1 day'",
                day(24, 23),
            ),
            (
                "t >= TIMESTAMP '2024-04-01' - INTERVAL '1 day' AND t < DATE '2024-04-01'",
                day(24, 23),
            ),
            // 24 hours before the midnight after a day of 23 hours.
            (
                "t < TIMESTAMP '2024-04-01' - INTERVAL '24 hours'",
                day(0, 23),
            ),
            (
                "t BETWEEN DATE '2024-03-31' AND TIMESTAMP '2024-03-31 01:00'",
                day(24, 2),
            ),
            (
                "t IN (DATE '2024-03-31', TIMESTAMP '2024-04-01T00:00:00+02:00')",
                vec![24, 47],
            ),
            ("t < TIMESTAMP '2024-03-30T00:00:00Z'", day(0, 1)),
            (
                "t < TIMESTAMP '2024-03-30T00:00:00+01:00' + INTERVAL '1 day'",
                day(0, 24),
            ),
            ("t < '2024-03-30T01:00:00+02:00'", day(0, 0)),
            // Instants by other ways: the name of a zone, and numbers.
            (
                "t < TIMESTAMP '2024-03-30 00:00:00 Europe/London'",
                day(0, 1),
            ),
            ("t < '2024-03-31 00:00:00 Europe/Berlin'", day(0, 24)),
            (
                "t < TIMESTAMP '2024-03-30 00:00:00 Europe/London' + INTERVAL '1 day'",
                day(0, 25),
            ),
            ("t < to_timestamp('2024-03-30T00:00:00Z')", day(0, 1)),
            ("t < to_timestamp('2024-03-31 00:00:00')", day(0, 24)),
            ("t < to_timestamp(1711839600)", day(0, 24)),
            ("t < from_unixtime(1711839600)", day(0, 24)),
            (
                "t < to_timestamp_millis(1711839600000) AND t > from_unixtime(1711753200)",
                day(1, 23),
            ),
            (
                "t < to_timestamp(1711753200) + INTERVAL '1 day'",
                day(0, 24),
            ),
            (
                "t < arrow_cast(1711839600000000, 'Timestamp(Microsecond, None)')",
                day(0, 24),
            ),
            ("t = CAST(t AS TIMESTAMP)", day(0, 72)),
            // Values stand beside values, and results beside results.
            (
                "CASE t WHEN DATE '2024-03-31' THEN true ELSE false END",
                vec![24],
            ),
            (
                "CASE CAST(day AS VARCHAR) || '!' WHEN '2024-03-31' THEN NULL ELSE t END = t",
                day(0, 72),
            ),
            (
                "CASE day WHEN DATE '2024-03-31' THEN t ELSE DATE '2024-03-31' END = t",
                day(0, 72),
            ),
            // A text that is joined to others is no time.
            ("t || ' 2024-03-31' LIKE '% 2024-03-31'", day(0, 72)),
            // Constants that are computed have digits that the column does not hold.
            (
                "t < TIMESTAMP '2024-03-31 00:00:00' - INTERVAL '1 nanosecond'",
                day(0, 24),
            ),
            (
                "t = TIMESTAMP '2024-03-31 00:00:00' + INTERVAL '1 nanosecond'",
                vec![],
            ),
            // A cast to a time without a zone gives the local clock, as those to days and times of day.
            (
                "CAST(t AS TIMESTAMP) = CAST(CAST(t AS DATE) AS TIMESTAMP)",
                vec![0, 24, 47, 71],
            ),
            (
                "TRY_CAST(t AS TIMESTAMP) >= TIMESTAMP '2024-03-31 00:00:00' \
                 AND CAST(t AS TIMESTAMP) < TIMESTAMP '2024-04-01 00:00:00'",
                day(24, 23),
            ),
            (
                "CAST(t AT TIME ZONE 'UTC' AS TIMESTAMP) < TIMESTAMP '2024-03-30 00:00:00'",
                day(0, 1),
            ),
            ("coalesce(NULL, t) < DATE '2024-03-31'", day(0, 24)),
            // The local time 02:30 does not exist: it is 03:30.
            ("t < TIMESTAMP '2024-03-31 02:30:00'", day(0, 27)),
        ] {
            let kept = rows("Europe/Berlin", berlin, condition);
            assert_eq!(kept, expected, "{condition}");
        }
        // 2018-11-03 00:00 in São Paulo: the next day has no midnight.
        let kept = rows("America/Sao_Paulo", 1_541_214_000, "t < DATE '2018-11-04'");
        assert_eq!(kept, day(0, 24));
        // 2024-11-02 00:00 in Havana: the next day has its first hour twice, and is one day.
        for condition in [
            "date_trunc('day', t) = DATE '2024-11-03'",
            "date_trunc('day', t) = TIMESTAMP '2024-11-03 00:00:00'",
            "CAST(t AS DATE) = DATE '2024-11-03'",
        ] {
            let kept = rows("America/Havana", 1_730_520_000, condition);
            assert_eq!(kept, day(24, 25), "{condition}");
        }
        let hours = "date_trunc('hour', t) = t";
        let kept = rows("America/Havana", 1_730_520_000, hours);
        assert_eq!(kept, day(0, 72));
        // 2024-04-06 00:00 on Lord Howe Island: the next day has half an hour more.
        let kept = rows(
            "Australia/Lord_Howe",
            1_712_322_000,
            "t < DATE '2024-04-08'",
        );
        assert_eq!(kept, day(0, 49));
    }
}
