//! Casts in SQL: of texts by the grammar that files and `cast` steps follow, and of times to coarser units.
//!
//! The query engine reads `t` as true, cuts digits off times, takes a time for its day, makes infinity of `1e400` and
//! rounds decimals. Casts from texts to Booleans, numbers, dates and times are therefore calls of a function of ours.
//! `try_cast` gives null for a text that is no value. Dates and times that are written as constants stay casts, unless
//! the cast drops a part of the text.
//!
//! A cast of a number to a float makes no infinity of one that the type cannot hold. A cast of a whole
//! number to a date counts days since 1970, and refuses days beyond the years 1 to 9999: 20240101 is a date as it is
//! written. A cast of a whole number to a time of day counts ticks since midnight, and refuses those beyond the day.
//!
//! A cast of a time to a coarser unit says that digits are cut. The query engine cuts them toward 1970, so that times
//! before it became later. Here a time becomes the tick in which it lies.
//!
//! A date in milliseconds (Arrow's date64) wraps around in the query engine where microseconds or nanoseconds do not hold
//! it. Here it is refused, and lies in the day that began last.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options, nullif};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ExprSchema, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use forebay_model::{TextRules, logical_type, tick_nanoseconds};

use crate::checked_integers::{checked_integers, checked_signs};
use crate::cut_texts::{CUT_TEXT, cut_problem, is_cut};
use crate::day_counts::{days_of_dates, days_of_numbers, times_of_numbers};
use crate::joined_texts::with_bounds;
use crate::tried_values::add_tried_nulls;

static TEXT_AS: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(TextAsUdf {
        signature: Signature::any(3, Volatility::Immutable),
    })
});

/// The function of checked casts: of a text, a time or a number, the name of a type, and true if texts that are no values are null.
pub(crate) fn text_as_function() -> &'static ScalarUDF {
    &TEXT_AS
}

/// A cast in one of the forms of SQL.
pub(crate) struct WrittenCast<'e> {
    pub inner: &'e Expr,
    pub target: DataType,
    pub is_try: bool,
}

pub(crate) fn written_cast(part: &Expr) -> Option<WrittenCast<'_>> {
    let (inner, target, is_try) = match part {
        Expr::Cast(cast) => (cast.expr.as_ref(), cast.field.data_type().clone(), false),
        Expr::TryCast(cast) => (cast.expr.as_ref(), cast.field.data_type().clone(), true),
        Expr::ScalarFunction(call) => {
            let is_try = match call.func.name() {
                "arrow_cast" => false,
                "arrow_try_cast" => true,
                _ => return None,
            };
            let [inner, Expr::Literal(target, _)] = call.args.as_slice() else {
                return None;
            };
            (
                inner,
                target.try_as_str()??.parse::<DataType>().ok()?,
                is_try,
            )
        }
        _ => return None,
    };
    Some(WrittenCast {
        inner,
        target,
        is_try,
    })
}

/// Replaces casts of texts, of times to coarser units, of dates in milliseconds, of numbers to narrower floats, and of whole
/// numbers to dates and times of day in an expression.
pub(crate) fn strict_casts(
    expression: Expr,
    schema: &dyn ExprSchema,
) -> Result<Transformed<Expr>, DataFusionError> {
    expression.transform_up(|part| {
        let Some(WrittenCast {
            inner,
            target,
            is_try,
        }) = written_cast(&part)
        else {
            return Ok(Transformed::no(part));
        };
        // Columns of an outer query have no type here.
        let Ok(of) = inner.get_type(schema) else {
            return Ok(Transformed::no(part));
        };
        let is_checked = match logical_type(&of) {
            DataType::Utf8 => has_grammar(&target),
            DataType::Timestamp(unit, _) => is_coarser(&target, unit),
            DataType::Date64 => matches!(target, DataType::Date32 | DataType::Timestamp(..)),
            DataType::Float64 => matches!(target, DataType::Float16 | DataType::Float32),
            DataType::Float32 => target == DataType::Float16,
            decimal if decimal.is_decimal() => {
                matches!(target, DataType::Float16 | DataType::Float32)
                    && can_cast_types(&decimal, &target)
            }
            whole if whole.is_integer() => {
                let is_short = target == DataType::Float16 || is_time_of_day(&target);
                target == DataType::Date32 || (is_short && can_cast_types(&whole, &target))
            }
            _ => false,
        };
        if let Some(text) = constant_text(inner)
            && is_cut(text, &target)
        {
            if is_try {
                let null = ScalarValue::try_new_null(&target)?;
                return Ok(Transformed::yes(Expr::Literal(null, None)));
            }
            let problem = cut_problem(text, &target);
            return Err(DataFusionError::Plan(format!("{CUT_TEXT}{problem}")));
        }
        let is_constant = matches!(inner, Expr::Literal(..)) && !of.is_integer();
        if !is_checked || (is_constant && target.is_temporal()) {
            return Ok(Transformed::no(part));
        }
        let arguments = vec![inner.clone(), lit(target.to_string()), lit(is_try)];
        Ok(Transformed::yes(TEXT_AS.call(arguments)))
    })
}

/// Replaces casts that are checked, operators on integers, and calls without a bound, in the expressions of a node
/// whose types are coerced.
pub(crate) fn checked_node(node: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    // Its numbers have to be constants.
    if matches!(node, LogicalPlan::Limit(_)) {
        return Ok(node);
    }
    let mut schema = DFSchema::empty();
    for input in node.inputs() {
        schema.merge(input.schema());
    }
    let names = NamePreserver::new(&node);
    let replaced = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let replaced = strict_casts(expression, &schema)?
            .transform_data(|expression| with_bounds(expression, &schema))?
            .transform_data(|expression| checked_signs(expression, &schema))?
            .transform_data(|expression| checked_integers(expression, &schema))?;
        Ok(if replaced.transformed {
            Transformed::yes(name.restore(replaced.data))
        } else {
            replaced
        })
    })?;
    if replaced.transformed {
        replaced.data.recompute_schema()
    } else {
        Ok(replaced.data)
    }
}

/// The text of a constant.
fn constant_text(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

fn is_time_of_day(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Time32(_) | DataType::Time64(_))
}

/// True for times in a unit above another one.
fn is_coarser(data_type: &DataType, than: TimeUnit) -> bool {
    matches!(data_type, DataType::Timestamp(unit, _) if *unit < than)
}

/// Times in a coarser unit: for each the tick in which it lies.
fn in_coarser_unit(times: &ArrayRef, target: &DataType) -> Result<ArrayRef, DataFusionError> {
    let DataType::Timestamp(_, zone) = times.data_type() else {
        return Err(internal("a cast of other values than times"));
    };
    let DataType::Timestamp(unit, _) = target else {
        return Err(internal("a cast of times to another type"));
    };
    let ratio = tick_nanoseconds(target)
        .zip(tick_nanoseconds(times.data_type()))
        .and_then(|(coarse, fine)| i64::try_from(coarse / fine).ok())
        .ok_or_else(|| internal("a cast of times without a unit"))?;
    let ticks = cast(times, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let coarse: Int64Array = ticks.unary(|tick| tick.div_euclid(ratio));
    let coarse = cast(&coarse, &DataType::Timestamp(*unit, zone.clone()))?;
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    Ok(cast_with_options(&coarse, target, &strict)?)
}

/// Dates in milliseconds as days, or as times. With `is_try`, dates that the type does not hold are null.
fn as_days_or_times(
    dates: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    if *target == DataType::Date32 {
        return days_of_dates(dates, is_try);
    }
    let checked = CastOptions {
        safe: is_try,
        ..CastOptions::default()
    };
    let ticks = cast(dates, &DataType::Int64)?;
    let times = cast(&ticks, &DataType::Timestamp(TimeUnit::Millisecond, None))?;
    if is_coarser(target, TimeUnit::Millisecond) {
        return in_coarser_unit(&times, target);
    }
    Ok(cast_with_options(&times, target, &checked)?)
}

/// Numbers as floats of a narrower type. Infinity stays infinity, and no other value becomes it; with `is_try`, such values
/// are null.
fn in_narrower_float(
    numbers: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let narrow = cast(numbers, target)?;
    let wide = cast(numbers, &DataType::Float64)?;
    let wide = wide.as_primitive::<Float64Type>();
    let back = cast(&narrow, &DataType::Float64)?;
    let back = back.as_primitive::<Float64Type>();
    let is_beyond = |row: usize| {
        wide.is_valid(row) && wide.value(row).is_finite() && back.value(row).is_infinite()
    };
    let Some(row) = (0..wide.len()).find(|row| is_beyond(*row)) else {
        return Ok(narrow);
    };
    if !is_try {
        return Err(DataFusionError::Execution(format!(
            "{:e} is beyond the range of {target}",
            wide.value(row)
        )));
    }
    let beyond: BooleanArray = (0..wide.len()).map(|row| Some(is_beyond(row))).collect();
    Ok(nullif(&narrow, &beyond)?)
}

/// True if the grammar of texts has values of a type.
fn has_grammar(of: &DataType) -> bool {
    of.is_integer()
        || matches!(
            of,
            DataType::Float32
                | DataType::Float64
                | DataType::Boolean
                | DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
                | DataType::Decimal256(..)
        )
}

/// The values of texts. With `is_try`, texts that are none are null.
fn values_of_texts(
    column: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let rules = TextRules::declared();
    if is_try {
        return Ok(rules.read(texts, target).values);
    }
    rules
        .read_all(texts, target)
        .map_err(|row| DataFusionError::Execution(rules.problem(texts.value(row), target)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextAsUdf {
    signature: Signature,
}

pub(crate) fn internal(message: &str) -> DataFusionError {
    DataFusionError::Internal(message.to_owned())
}

pub(crate) fn type_of_name(name: Option<&ScalarValue>) -> Result<DataType, DataFusionError> {
    let Some(ScalarValue::Utf8(Some(name))) = name else {
        return Err(internal("a cast of texts without a type"));
    };
    name.parse()
        .map_err(|_| internal("a cast of texts to an unknown type"))
}

impl ScalarUDFImpl for TextAsUdf {
    fn name(&self) -> &str {
        "text_as"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType, DataFusionError> {
        Err(internal("the type of a cast depends on its arguments"))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        let constant = |at: usize| args.scalar_arguments.get(at).copied().flatten();
        let target = type_of_name(constant(1))?;
        let is_try = constant(2) == Some(&ScalarValue::Boolean(Some(true)));
        let is_nullable = args
            .arg_fields
            .first()
            .is_none_or(|text| text.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            target,
            is_try || is_nullable,
        )))
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let [
            text,
            ColumnarValue::Scalar(name),
            ColumnarValue::Scalar(is_try),
        ] = arguments.args.as_slice()
        else {
            return Err(internal("a cast of texts with other arguments"));
        };
        let target = type_of_name(Some(name))?;
        let is_try = *is_try == ScalarValue::Boolean(Some(true));
        let is_scalar = matches!(text, ColumnarValue::Scalar(_));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let column = text.to_array(rows)?;
        let values = match column.data_type() {
            DataType::Timestamp(..) => in_coarser_unit(&column, &target)?,
            DataType::Date64 => as_days_or_times(&column, &target, is_try)?,
            number if number.is_numeric() && target.is_floating() => {
                in_narrower_float(&column, &target, is_try)?
            }
            whole if whole.is_integer() && is_time_of_day(&target) => {
                times_of_numbers(&column, &target, is_try)?
            }
            whole if whole.is_integer() => days_of_numbers(&column, is_try)?,
            _ => values_of_texts(&column, &target, is_try)?,
        };
        if is_scalar {
            let value = ScalarValue::try_from_array(&values, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        if is_try {
            add_tried_nulls(&column, &values);
        }
        Ok(ColumnarValue::Array(values))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date64Array, Float64Array, TimestampMicrosecondArray, TimestampNanosecondArray,
    };
    use arrow::datatypes::{Float32Type, Schema};
    use forebay_model::Fault;

    use super::*;
    use crate::SqlCompiler;

    fn value_of(expression: &str, times: ArrayRef) -> Vec<i64> {
        let field = Field::new("t", times.data_type().clone(), true);
        let compiled = SqlCompiler::default()
            .expression(expression, &Schema::new(vec![field]))
            .unwrap();
        let rows = times.len();
        let values = (compiled.kernel)(&[times], rows).unwrap();
        let values = cast(&values[0], &DataType::Int64).unwrap();
        values.as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn times_become_the_coarser_tick_in_which_they_lie() {
        let nanoseconds = [-1_500_000, -1, 0, 1, 1_999_999];
        let fine: ArrayRef = Arc::new(TimestampNanosecondArray::from(nanoseconds.to_vec()));
        let expected = [-2, -1, 0, 0, 1];
        for expression in ["CAST(t AS TIMESTAMP(3))", "TRY_CAST(t AS TIMESTAMP(3))"] {
            assert_eq!(value_of(expression, fine.clone()), expected, "{expression}");
        }
        let seconds = value_of("arrow_cast(t, 'Timestamp(s)')", fine);
        assert_eq!(seconds, [-1, -1, 0, 0, 0]);
        let first = TimestampMicrosecondArray::from(vec![i64::MIN, -1, i64::MAX]);
        let zoned: ArrayRef = Arc::new(first.with_timezone("Europe/Berlin"));
        let milliseconds = value_of("arrow_cast(t, 'Timestamp(ms, \"Europe/Berlin\")')", zoned);
        let expected = [i64::MIN.div_euclid(1_000), -1, i64::MAX / 1_000];
        assert_eq!(milliseconds, expected);
    }

    /// Midnight of the last day of 9999 among them, and times of day, which Arrow allows.
    #[test]
    fn dates_in_milliseconds_are_held_or_refused() {
        let milliseconds = [-1, 0, 86_399_999, 253_402_214_400_000];
        let dates: ArrayRef = Arc::new(Date64Array::from(milliseconds.to_vec()));
        let days = value_of("CAST(t AS DATE)", dates.clone());
        assert_eq!(days, [-1, 0, 0, 2_932_896]);
        let seconds = value_of("arrow_cast(t, 'Timestamp(Second, None)')", dates.clone());
        assert_eq!(seconds, [-1, 0, 86_399, 253_402_214_400]);
        let micros = "arrow_cast(t, 'Timestamp(Microsecond, None)')";
        let micros = value_of(micros, dates.clone());
        assert_eq!(micros, milliseconds.map(|tick| tick * 1_000));
        let field = Field::new("t", DataType::Date64, true);
        for expression in [
            "arrow_cast(t, 'Timestamp(Nanosecond, None)')",
            "t < TIMESTAMP '2024-01-01'",
        ] {
            let compiled = SqlCompiler::default()
                .expression(expression, &Schema::new(vec![field.clone()]))
                .unwrap();
            assert!((compiled.kernel)(std::slice::from_ref(&dates), 4).is_err());
            let near = dates.slice(0, 3);
            assert!((compiled.kernel)(std::slice::from_ref(&near), 3).is_ok());
        }
        let tried = "arrow_try_cast(t, 'Timestamp(Nanosecond, None)') IS NULL";
        let compiled = SqlCompiler::default()
            .condition(tried, &Schema::new(vec![field]))
            .unwrap();
        let beyond = (compiled.kernel)(&[dates], 4).unwrap();
        assert_eq!(beyond[0].as_boolean().true_count(), 1);
    }

    #[test]
    fn whole_numbers_are_days_of_the_calendar() {
        let values_of = |expression: &str, number: i64| {
            let field = Field::new("n", DataType::Int64, true);
            let compiled = SqlCompiler::default()
                .expression(expression, &Schema::new(vec![field]))
                .unwrap();
            let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(number), None]));
            let values = (compiled.kernel)(&[column], 2)?;
            Ok::<_, Fault>(cast(
                &cast(&values[0], &DataType::Int32)?,
                &DataType::Int64,
            )?)
        };
        for number in [-719_162, 0, 19_723, 2_932_896] {
            let days = values_of("CAST(n AS DATE)", number).unwrap();
            let days: Vec<_> = days.as_primitive::<Int64Type>().iter().collect();
            assert_eq!(days, [Some(number), None]);
        }
        for number in [20_240_101, i64::MIN, -719_163] {
            assert!(values_of("CAST(n AS DATE)", number).is_err(), "{number}");
            let tried = values_of("TRY_CAST(n AS DATE)", number).unwrap();
            assert_eq!(tried.null_count(), 2, "{number}");
        }
    }

    #[test]
    fn whole_numbers_are_times_of_the_day() {
        let values_of = |expression: &str, number: i64| {
            let field = Field::new("n", DataType::Int64, true);
            let compiled = SqlCompiler::default()
                .expression(expression, &Schema::new(vec![field]))
                .unwrap();
            let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(number), None]));
            let values = (compiled.kernel)(&[column], 2)?;
            Ok::<_, Fault>(cast(&values[0], &DataType::Int64)?)
        };
        for (data_type, day) in [
            ("Time64(Nanosecond)", 86_400_000_000_000),
            ("Time64(Microsecond)", 86_400_000_000),
        ] {
            let expression = format!("arrow_cast(n, '{data_type}')");
            for number in [0, day - 1] {
                let times = values_of(&expression, number).unwrap();
                let times: Vec<_> = times.as_primitive::<Int64Type>().iter().collect();
                assert_eq!(times, [Some(number), None]);
            }
            for number in [-1, day, i64::MAX] {
                assert!(values_of(&expression, number).is_err(), "{number}");
                let tried = format!("arrow_try_cast(n, '{data_type}')");
                let tried = values_of(&tried, number).unwrap();
                assert_eq!(tried.null_count(), 2, "{number}");
            }
        }
    }

    #[test]
    fn narrower_floats_hold_what_is_cast() {
        let values_of = |expression: &str, floats: Vec<Option<f64>>| {
            let field = Field::new("x", DataType::Float64, true);
            let compiled = SqlCompiler::default()
                .expression(expression, &Schema::new(vec![field]))
                .unwrap();
            let rows = floats.len();
            let column: ArrayRef = Arc::new(Float64Array::from(floats));
            let values = (compiled.kernel)(&[column], rows)?;
            let values = values[0].as_primitive::<Float32Type>().clone();
            Ok::<_, Fault>(values.iter().collect::<Vec<_>>())
        };
        let near = vec![Some(0.5), None, Some(f64::INFINITY), Some(1e-300)];
        let expected = vec![Some(0.5), None, Some(f32::INFINITY), Some(0.0)];
        for expression in ["CAST(x AS REAL)", "x::real", "TRY_CAST(x AS REAL)"] {
            assert_eq!(values_of(expression, near.clone()).unwrap(), expected);
        }
        let far = vec![Some(-1e300), Some(1.0)];
        // Decimals and whole numbers are beyond narrow floats, too.
        for (expression, near, beyond) in [
            (
                "CAST(arrow_cast(x, 'Decimal256(60, 0)') AS REAL)",
                2.0,
                1e50,
            ),
            (
                "CAST(arrow_cast(CAST(x AS DECIMAL(20, 1)), 'Float16') AS REAL)",
                2.5,
                70_000.5,
            ),
            (
                "CAST(arrow_cast(CAST(x AS INT), 'Float16') AS REAL)",
                2.0,
                70_000.0,
            ),
        ] {
            let narrow = values_of(expression, vec![Some(near)]).unwrap();
            assert_eq!(narrow, [Some(near as f32)], "{expression}");
            let fault = values_of(expression, vec![Some(beyond)]).unwrap_err();
            let text = format!("{fault:?}");
            assert!(text.contains("beyond the range"), "{text}");
        }
        assert!(values_of("CAST(x AS REAL)", far.clone()).is_err());
        let tried = values_of("TRY_CAST(x AS REAL)", far).unwrap();
        assert_eq!(tried, [None, Some(1.0)]);
    }
}
