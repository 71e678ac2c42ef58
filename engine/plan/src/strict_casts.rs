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
//! A cast of a number with a fraction to a time takes the tick at or below it.
//!
//! A text with months or years is no interval of days and milliseconds, for which Arrow would take a month as 30 days.
//!
//! A cast of a time to a coarser unit says that digits are cut. The query engine cuts them toward 1970, so that times
//! before it became later. Here a time becomes the tick in which it lies.
//!
//! A date in milliseconds (Arrow's date64) wraps around in the query engine where microseconds or nanoseconds do not hold
//! it. Here it is refused, and lies in the day that began last. A time becomes the midnight of its local day, as in a cast
//! to a date.
//!
//! All of this goes for the values of lists, dictionaries and runs. Casts of structs and maps that would change their parts
//! in these ways are refused: each part can be cast alone.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ExprSchema, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use forebay_model::type_label;

use crate::checked_casts::{cast_values, has_checked_parts, internal, is_checked_cast};
use crate::checked_integers::{checked_integers, checked_signs};
use crate::cut_texts::{CUT_TEXT, cut_problem, is_cut};
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

/// Replaces casts whose values are checked in an expression. Those of structs and maps are errors.
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
        if has_checked_parts(&of, &target) {
            return Err(uncheckable(&of, &target));
        }
        let is_constant = matches!(inner, Expr::Literal(..)) && !of.is_integer();
        let is_time = target.is_temporal() && !matches!(target, DataType::Interval(_));
        if !is_checked_cast(&of, &target) || (is_constant && is_time) {
            return Ok(Transformed::no(part));
        }
        let name = target.to_string();
        if !name.parse::<DataType>().is_ok_and(|named| named == target) {
            return Err(uncheckable(&of, &target));
        }
        let arguments = vec![inner.clone(), lit(name), lit(is_try)];
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

/// The error of a cast whose parts would be read looser than files are.
fn uncheckable(of: &DataType, target: &DataType) -> DataFusionError {
    DataFusionError::Plan(format!(
        "the parts of {} cannot be checked in a cast to {}: cast each part, and put them together \
         with `named_struct`",
        type_label(of),
        type_label(target)
    ))
}

/// The text of a constant.
fn constant_text(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextAsUdf {
    signature: Signature,
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
        let values = cast_values(&column, &target, is_try)?;
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
        ArrayRef, AsArray, Date64Array, Float64Array, Int64Array, StringArray,
        TimestampMicrosecondArray, TimestampNanosecondArray,
    };
    use arrow::datatypes::Float32Type;
    use forebay_model::{Result as FaultResult, codes};

    use super::*;
    use crate::column_results::{ticks_of, values_over};

    /// The values of an expression over a column of times without nulls, as whole numbers.
    fn value_of(expression: &str, times: ArrayRef) -> Vec<i64> {
        let values = values_over(expression, "t", &times).unwrap();
        ticks_of(&values).into_iter().flatten().collect()
    }

    /// The values of an expression over a whole number `n` and a null.
    fn values_of_number(expression: &str, number: i64) -> FaultResult<Vec<Option<i64>>> {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(number), None]));
        Ok(ticks_of(&values_over(expression, "n", &column)?))
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
        for expression in [
            "arrow_cast(t, 'Timestamp(Nanosecond, None)')",
            "t < TIMESTAMP '2024-01-01'",
        ] {
            assert!(values_over(expression, "t", &dates).is_err());
            let near = dates.slice(0, 3);
            assert!(values_over(expression, "t", &near).is_ok());
        }
        let tried = "arrow_try_cast(t, 'Timestamp(Nanosecond, None)') IS NULL";
        let beyond = values_over(tried, "t", &dates).unwrap();
        assert_eq!(beyond.as_boolean().true_count(), 1);
    }

    #[test]
    fn whole_numbers_are_days_of_the_calendar() {
        for number in [-719_162, 0, 19_723, 2_932_896] {
            let days = values_of_number("CAST(n AS DATE)", number).unwrap();
            assert_eq!(days, [Some(number), None]);
            let milliseconds = number * 86_400_000;
            let dates = values_of_number("arrow_cast(n, 'Date64')", milliseconds).unwrap();
            assert_eq!(dates, [Some(milliseconds), None]);
            let counted = "arrow_cast(arrow_cast(n, 'Int32'), 'Date64')";
            let dates = values_of_number(counted, number).unwrap();
            assert_eq!(dates, [Some(milliseconds), None]);
        }
        for number in [20_240_101, i64::MIN, -719_163] {
            for target in ["Date32", "Date64"] {
                let expression = format!("arrow_cast(n, '{target}')");
                let fault = values_of_number(&expression, number).unwrap_err();
                assert_eq!(fault.code(), codes::BAD_ROW, "{number} as {target}");
                let tried = format!("arrow_try_cast(n, '{target}')");
                let tried = values_of_number(&tried, number).unwrap();
                assert_eq!(tried, [None, None], "{number} as {target}");
            }
        }
    }

    #[test]
    fn whole_numbers_are_times_of_the_day() {
        for (data_type, day) in [
            ("Time64(Nanosecond)", 86_400_000_000_000),
            ("Time64(Microsecond)", 86_400_000_000),
        ] {
            let expression = format!("arrow_cast(n, '{data_type}')");
            for number in [0, day - 1] {
                let times = values_of_number(&expression, number).unwrap();
                assert_eq!(times, [Some(number), None]);
            }
            for number in [-1, day, i64::MAX] {
                assert!(values_of_number(&expression, number).is_err(), "{number}");
                let tried = format!("arrow_try_cast(n, '{data_type}')");
                let tried = values_of_number(&tried, number).unwrap();
                assert_eq!(tried, [None, None], "{number}");
            }
        }
    }

    /// The day of a time is that of its own clock.
    #[test]
    fn times_become_the_midnights_of_their_days() {
        let hour = 3_600_000_000;
        let micros = [-1, 0, 23 * hour, 24 * hour - 1];
        let plain = TimestampMicrosecondArray::from(micros.to_vec());
        let zoned = plain.clone().with_timezone("Europe/Berlin");
        let day = 86_400_000;
        for (times, expected) in [
            (Arc::new(plain) as ArrayRef, [-day, 0, 0, 0]),
            (Arc::new(zoned) as ArrayRef, [0, 0, day, day]),
        ] {
            for expression in ["arrow_cast(t, 'Date64')", "arrow_try_cast(t, 'Date64')"] {
                assert_eq!(value_of(expression, times.clone()), expected);
            }
        }
    }

    #[test]
    fn fractions_become_the_tick_below_them() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![-1.5, -0.5, 0.5, 1.0]));
        let expected = [-2, -1, 0, 1];
        for number in ["t", "arrow_cast(t, 'Float32')", "CAST(t AS DECIMAL(10, 2))"] {
            let expression = format!("arrow_cast({number}, 'Timestamp(s)')");
            assert_eq!(value_of(&expression, floats.clone()), expected, "{number}");
        }
        let beyond: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, 1e300, -0.5]));
        assert!(values_over("arrow_cast(t, 'Timestamp(s)')", "t", &beyond).is_err());
        let tried = values_over("arrow_try_cast(t, 'Timestamp(s)')", "t", &beyond).unwrap();
        assert_eq!(ticks_of(&tried), [None, None, Some(-1)]);
    }

    /// Texts, types of `arrow_cast`, and true where the text is a value of the type.
    const TEXTS: [(&str, &str, bool); 28] = [
        ("1.5", "Float16", true),
        ("-inf", "Float16", true),
        ("1e400", "Float16", false),
        ("70000", "Float16", false),
        (" 1.5", "Float16", false),
        ("2024-02-29", "Date64", true),
        ("2024-02-29T12:30:59.123", "Date64", true),
        ("2024-02-29T12:30:59.1234", "Date64", false),
        ("2024-02-29T23:59:60", "Date64", false),
        ("2024-2-9", "Date64", false),
        ("true", "List(Boolean)", true),
        ("t", "List(Boolean)", false),
        ("7.5", "Dictionary(Int32, Float64)", true),
        ("1e400", "Dictionary(Int32, Float64)", false),
        ("7", "Dictionary(Int8, Int64)", true),
        ("7.0", "Dictionary(Int8, Int64)", false),
        ("1.5", "List(Decimal128(10, 1))", true),
        ("1.55", "List(Decimal128(10, 1))", false),
        ("7", "FixedSizeList(1 x Int64)", true),
        ("1_000", "LargeList(Int64)", false),
        ("1 day 12 hours", "Interval(DayTime)", true),
        ("1.5 days", "Interval(DayTime)", true),
        ("2 weeks 5m", "Interval(DayTime)", true),
        ("1 month", "Interval(DayTime)", false),
        ("3 days 2Mons", "Interval(DayTime)", false),
        ("0.5 years", "List(Interval(DayTime))", false),
        ("7 days", "List(Interval(DayTime))", true),
        ("1 month", "Interval(MonthDayNano)", true),
    ];

    #[test]
    fn texts_are_read_by_one_grammar_at_any_depth() {
        for (text, target, is_value) in TEXTS {
            let column: ArrayRef = Arc::new(StringArray::from(vec![Some(text), None]));
            let strict = format!("arrow_cast(t, '{target}')");
            match values_over(&strict, "t", &column) {
                Ok(_) => assert!(is_value, "{text} as {target}"),
                Err(fault) => {
                    assert!(!is_value, "{text} as {target}: {fault:?}");
                    assert_eq!(fault.code(), codes::BAD_ROW, "{text} as {target}");
                }
            }
            let tried = format!("arrow_try_cast(t, '{target}')");
            assert!(
                values_over(&tried, "t", &column).is_ok(),
                "{text} as {target}"
            );
        }
    }

    #[test]
    fn constant_months_are_no_intervals_of_days() {
        let column: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        for (text, is_value) in [("1 day", true), ("1 month", false), ("1 year", false)] {
            let strict = format!("arrow_cast('{text}', 'Interval(DayTime)')");
            let values = values_over(&strict, "t", &column);
            assert_eq!(values.is_ok(), is_value, "{text}");
        }
    }

    #[test]
    fn values_of_lists_are_checked() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("true"), Some("t"), None]));
        let list = "make_array(t, 'false')";
        let readable = texts.slice(0, 1);
        for target in [
            "List(Boolean)",
            "LargeList(Boolean)",
            "FixedSizeList(2 x Boolean)",
        ] {
            let strict = format!("arrow_cast({list}, '{target}')");
            assert!(values_over(&strict, "t", &readable).is_ok(), "{target}");
            let fault = values_over(&strict, "t", &texts).unwrap_err();
            assert_eq!(fault.code(), codes::BAD_ROW, "{target}");
        }
        let tried = "arrow_try_cast(make_array(t, 'false'), 'List(Boolean)')[1] IS NULL";
        let tried = values_over(tried, "t", &texts).unwrap();
        assert_eq!(tried.as_boolean().true_count(), 2);
        let longer = "FixedSizeList(3 x Boolean)";
        let strict = format!("arrow_cast({list}, '{longer}')");
        assert!(values_over(&strict, "t", &readable).is_err());
        let tried = format!("arrow_try_cast({list}, '{longer}') IS NULL");
        let tried = values_over(&tried, "t", &readable).unwrap();
        assert_eq!(tried.as_boolean().true_count(), 1);
        let nanoseconds: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![-1, 1]));
        let coarse = "arrow_cast(make_array(t), 'List(Timestamp(s))')[1]";
        assert_eq!(value_of(coarse, nanoseconds), [-1, 0]);
    }

    /// Parts of structs are read by no function of ours.
    #[test]
    fn casts_of_structs_with_loose_parts_are_refused() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["t"]));
        let loose = "arrow_cast(named_struct('a', t), 'Struct(\"a\": Boolean)')";
        let fault = values_over(loose, "t", &texts).unwrap_err();
        assert_eq!(fault.code(), codes::EXPRESSION);
        assert!(fault.message().contains("named_struct"), "{fault:?}");
        let plain = "arrow_cast(named_struct('a', t), 'Struct(\"a\": LargeUtf8)')";
        assert!(values_over(plain, "t", &texts).is_ok());
    }

    /// The reference states these rules.
    #[test]
    fn fractions_are_cut_by_whole_types_and_rounded_by_decimals() {
        let numbers = [-1.9, -0.5, 0.0, 0.5, 1.9, 2.0];
        let floats: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
        let cut = [-1, 0, 0, 0, 1, 2];
        let rounded = [-2, -1, 0, 1, 2, 2];
        for (expression, expected) in [
            ("CAST(t AS INT)", cut),
            ("TRY_CAST(t AS BIGINT)", cut),
            ("CAST(CAST(t AS DECIMAL(10, 1)) AS INT)", cut),
            ("CAST(CAST(t AS DECIMAL(10, 0)) AS INT)", rounded),
            ("CAST(round(t) AS INT)", rounded),
        ] {
            assert_eq!(
                value_of(expression, floats.clone()),
                expected,
                "{expression}"
            );
        }
        let flags = values_over("CAST(t AS BOOLEAN)", "t", &floats).unwrap();
        let flags: Vec<Option<bool>> = flags.as_boolean().iter().collect();
        assert_eq!(flags, numbers.map(|number| Some(number != 0.0)));
        let strange: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN]));
        let flag = values_over("CAST(t AS BOOLEAN)", "t", &strange).unwrap();
        assert!(flag.as_boolean().value(0));
        assert!(values_over("CAST(t AS INT)", "t", &strange).is_err());
    }

    /// Ticks since 1970 are numbers, too.
    #[test]
    fn half_floats_hold_what_is_cast() {
        for (number, is_within) in [(1, true), (70_000, false)] {
            for ticks in [
                "n",
                "arrow_cast(n, 'Timestamp(s)')",
                "arrow_cast(n, 'Duration(s)')",
            ] {
                let expression = format!("arrow_cast({ticks}, 'Float16')");
                let values = values_of_number(&expression, number);
                assert_eq!(values.is_ok(), is_within, "{expression} of {number}");
            }
        }
    }

    #[test]
    fn narrower_floats_hold_what_is_cast() {
        let values_of = |expression: &str, floats: Vec<Option<f64>>| -> FaultResult<_> {
            let column: ArrayRef = Arc::new(Float64Array::from(floats));
            let values = values_over(expression, "x", &column)?;
            let values = values.as_primitive::<Float32Type>().clone();
            Ok(values.iter().collect::<Vec<_>>())
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
