//! Sums, differences and products of integers in queries: a result that does not fit is a fault.
//!
//! Left to itself, the query engine wraps around: 30,000 times 30,000 in 16 bits is -5,888. Expressions of steps are
//! checked where they are compiled. In a query, such operators are calls of functions of ours.
//!
//! It wraps the least integer when its sign changes, too, drops bits that a shift moves out of an integer, and shifts
//! by 64 as by 0. Everywhere, a negation is a difference from 0, and shifts are calls of functions of ours.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Datum, Decimal128Array};
use arrow::compute::cast;
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::{DataType, Decimal128Type, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, ExprSchema, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

/// An operator on two integers of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntegerOperator {
    Plus,
    Minus,
    Times,
    ShiftLeft,
    ShiftRight,
}

impl IntegerOperator {
    fn of(operator: Operator) -> Option<IntegerOperator> {
        match operator {
            Operator::Plus => Some(IntegerOperator::Plus),
            Operator::Minus => Some(IntegerOperator::Minus),
            Operator::Multiply => Some(IntegerOperator::Times),
            _ => None,
        }
    }

    fn function(self) -> &'static ScalarUDF {
        match self {
            IntegerOperator::Plus => &CHECKED_PLUS,
            IntegerOperator::Minus => &CHECKED_MINUS,
            IntegerOperator::Times => &CHECKED_TIMES,
            IntegerOperator::ShiftLeft => &CHECKED_SHIFT_LEFT,
            IntegerOperator::ShiftRight => &CHECKED_SHIFT_RIGHT,
        }
    }

    fn compute(self, first: &dyn Datum, second: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        match self {
            IntegerOperator::Plus => add(first, second),
            IntegerOperator::Minus => sub(first, second),
            IntegerOperator::Times => mul(first, second),
            IntegerOperator::ShiftLeft | IntegerOperator::ShiftRight => self.shift(first, second),
        }
    }

    /// Integers with their bits moved by counts. A count that is negative, or not below the width of the type, is an
    /// overflow, and so is a number that the type does not hold.
    fn shift(self, first: &dyn Datum, second: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        let (numbers, is_one_number) = first.get();
        let (counts, is_one_count) = second.get();
        let data_type = numbers.data_type().clone();
        let rows = if is_one_number {
            counts.len()
        } else {
            numbers.len()
        };
        // It holds all integers, and those of 64 bits after a move by 63.
        let wide_type = DataType::Decimal128(38, 0);
        let numbers = cast(numbers, &wide_type)?;
        let numbers = numbers.as_primitive::<Decimal128Type>();
        let counts = cast(counts, &wide_type)?;
        let counts = counts.as_primitive::<Decimal128Type>();
        let width = integer_width(&data_type);
        let (least, greatest) = integer_range(&data_type);
        let mut moved = Vec::with_capacity(rows);
        for row in 0..rows {
            let number_row = if is_one_number { 0 } else { row };
            let count_row = if is_one_count { 0 } else { row };
            if numbers.is_null(number_row) || counts.is_null(count_row) {
                moved.push(None);
                continue;
            }
            let number = numbers.value(number_row);
            let count = counts.value(count_row);
            let is_within = (0..width).contains(&count);
            let is_right = self == IntegerOperator::ShiftRight;
            let result = match (is_within, is_right) {
                (false, _) => None,
                (true, true) => Some(number >> count),
                (true, false) => Some(number << count),
            };
            let Some(result) = result.filter(|result| (least..=greatest).contains(result)) else {
                let sign = if is_right { ">>" } else { "<<" };
                return Err(ArrowError::ArithmeticOverflow(format!(
                    "Overflow happened on: {number} {sign} {count}"
                )));
            };
            moved.push(Some(result));
        }
        let moved = Decimal128Array::from(moved).with_precision_and_scale(38, 0)?;
        cast(&moved, &data_type)
    }
}

/// Bits of a type of integers.
fn integer_width(data_type: &DataType) -> i128 {
    match data_type {
        DataType::Int8 | DataType::UInt8 => 8,
        DataType::Int16 | DataType::UInt16 => 16,
        DataType::Int32 | DataType::UInt32 => 32,
        _ => 64,
    }
}

/// The least and the greatest number of a type of integers.
fn integer_range(data_type: &DataType) -> (i128, i128) {
    let width = integer_width(data_type);
    if data_type.is_unsigned_integer() {
        (0, (1_i128 << width) - 1)
    } else {
        let half = 1_i128 << (width - 1);
        (-half, half - 1)
    }
}

fn checked_function(operator: IntegerOperator) -> ScalarUDF {
    ScalarUDF::new_from_impl(CheckedIntegerUdf {
        operator,
        signature: Signature::any(2, Volatility::Immutable),
    })
}

static CHECKED_PLUS: LazyLock<ScalarUDF> =
    LazyLock::new(|| checked_function(IntegerOperator::Plus));
static CHECKED_MINUS: LazyLock<ScalarUDF> =
    LazyLock::new(|| checked_function(IntegerOperator::Minus));
static CHECKED_TIMES: LazyLock<ScalarUDF> =
    LazyLock::new(|| checked_function(IntegerOperator::Times));
static CHECKED_SHIFT_LEFT: LazyLock<ScalarUDF> =
    LazyLock::new(|| checked_function(IntegerOperator::ShiftLeft));
static CHECKED_SHIFT_RIGHT: LazyLock<ScalarUDF> =
    LazyLock::new(|| checked_function(IntegerOperator::ShiftRight));

/// The functions that compute with integers and fail where a result does not fit.
pub(crate) fn checked_integer_functions() -> [&'static ScalarUDF; 5] {
    [
        &CHECKED_PLUS,
        &CHECKED_MINUS,
        &CHECKED_TIMES,
        &CHECKED_SHIFT_LEFT,
        &CHECKED_SHIFT_RIGHT,
    ]
}

/// Replaces negations of integers by differences from 0, and shifts of integers by checked ones, in an expression whose
/// types are coerced.
pub(crate) fn checked_signs(
    expression: Expr,
    schema: &dyn ExprSchema,
) -> Result<Transformed<Expr>, DataFusionError> {
    expression.transform_up(|part| {
        if let Expr::Negative(positive) = &part {
            // Columns of an outer query have no type here.
            let Ok(of) = positive.get_type(schema) else {
                return Ok(Transformed::no(part));
            };
            if !of.is_signed_integer() {
                return Ok(Transformed::no(part));
            }
            let zero = Expr::Literal(ScalarValue::new_zero(&of)?, None);
            let difference = BinaryExpr::new(Box::new(zero), Operator::Minus, positive.clone());
            return Ok(Transformed::yes(Expr::BinaryExpr(difference)));
        }
        let Expr::BinaryExpr(binary) = &part else {
            return Ok(Transformed::no(part));
        };
        let operator = match binary.op {
            Operator::BitwiseShiftLeft => IntegerOperator::ShiftLeft,
            Operator::BitwiseShiftRight => IntegerOperator::ShiftRight,
            _ => return Ok(Transformed::no(part)),
        };
        if !has_equal_integers(binary, schema) {
            return Ok(Transformed::no(part));
        }
        let operands = vec![binary.left.as_ref().clone(), binary.right.as_ref().clone()];
        Ok(Transformed::yes(operator.function().call(operands)))
    })
}

/// True if both operands are integers of one type.
fn has_equal_integers(binary: &BinaryExpr, schema: &dyn ExprSchema) -> bool {
    // Columns of an outer query have no type here.
    let Ok(left_type) = binary.left.get_type(schema) else {
        return false;
    };
    let right_type = binary.right.get_type(schema);
    left_type.is_integer() && right_type.ok().as_ref() == Some(&left_type)
}

/// Replaces sums, differences and products of integers in an expression whose types are coerced.
pub(crate) fn checked_integers(
    expression: Expr,
    schema: &dyn ExprSchema,
) -> Result<Transformed<Expr>, DataFusionError> {
    expression.transform_up(|part| {
        let Expr::BinaryExpr(binary) = &part else {
            return Ok(Transformed::no(part));
        };
        let Some(operator) = IntegerOperator::of(binary.op) else {
            return Ok(Transformed::no(part));
        };
        if !has_equal_integers(binary, schema) {
            return Ok(Transformed::no(part));
        }
        let operands = vec![binary.left.as_ref().clone(), binary.right.as_ref().clone()];
        Ok(Transformed::yes(operator.function().call(operands)))
    })
}

/// `checked_plus(a, b)` and its like, of two integers of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedIntegerUdf {
    operator: IntegerOperator,
    signature: Signature,
}

/// Name of nested calls, as `checked_plus(checked_plus(a,b),c)`. It walks down the first operands, where `a + b + c` is
/// nested.
fn chain_name(outermost: &str, arguments: &[Expr]) -> String {
    let mut name = format!("{outermost}(");
    let mut endings = Vec::new();
    let mut arguments = arguments;
    while let Some((first, others)) = arguments.split_first() {
        let others: String = others
            .iter()
            .map(|other| format!(",{}", other.schema_name()))
            .collect();
        endings.push(others);
        let first = without_casts(first);
        match checked_call(first) {
            Some(call) => {
                name.push_str(call.name());
                name.push('(');
                arguments = &call.args;
            }
            None => {
                name.push_str(&first.schema_name().to_string());
                break;
            }
        }
    }
    for ending in endings.iter().rev() {
        name.push_str(ending);
        name.push(')');
    }
    name
}

/// The expression below its casts, which names leave out.
fn without_casts(expression: &Expr) -> &Expr {
    let mut inner = expression;
    while let Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) = inner {
        inner = expr;
    }
    inner
}

/// The call of a function of this module.
fn checked_call(expression: &Expr) -> Option<&ScalarFunction> {
    let Expr::ScalarFunction(call) = expression else {
        return None;
    };
    let is_checked = call
        .func
        .inner()
        .downcast_ref::<CheckedIntegerUdf>()
        .is_some();
    is_checked.then_some(call)
}

fn no_operands() -> DataFusionError {
    DataFusionError::Internal("an operator without two operands".to_owned())
}

impl ScalarUDFImpl for CheckedIntegerUdf {
    fn name(&self) -> &str {
        match self.operator {
            IntegerOperator::Plus => "checked_plus",
            IntegerOperator::Minus => "checked_minus",
            IntegerOperator::Times => "checked_times",
            IntegerOperator::ShiftLeft => "checked_shift_left",
            IntegerOperator::ShiftRight => "checked_shift_right",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    // The default copies the names of all levels below at each level, so that the time to type a chain of operators
    // grew with the fourth power of its length.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String, DataFusionError> {
        Ok(chain_name(self.name(), arguments))
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        arguments.first().cloned().ok_or_else(no_operands)
    }

    fn return_field_from_args(
        &self,
        arguments: ReturnFieldArgs,
    ) -> Result<FieldRef, DataFusionError> {
        let operand = arguments.arg_fields.first().ok_or_else(no_operands)?;
        let mut operands = arguments.arg_fields.iter();
        let is_nullable = operands.any(|operand| operand.is_nullable());
        let result = operand.as_ref().clone().with_nullable(is_nullable);
        Ok(Arc::new(result.with_name(self.name())))
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let [first, second] = arguments.args.as_slice() else {
            return Err(no_operands());
        };
        let operator = self.operator;
        apply(first, second, |first, second| {
            operator.compute(first, second)
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{Field, Int64Type, Schema};
    use datafusion::common::Column;
    use forebay_model::codes;

    use super::*;
    use crate::SqlCompiler;

    #[test]
    fn chains_have_the_names_of_nested_calls() {
        let column = Expr::Column(Column::from_name("n"));
        let cast = Expr::Cast(Cast::new(Box::new(column.clone()), DataType::Int64));
        let inner = CHECKED_PLUS.call(vec![cast, column.clone()]);
        let outer = CHECKED_SHIFT_LEFT.call(vec![inner.clone(), column.clone()]);
        let second = CHECKED_MINUS.call(vec![column, outer]);
        assert_eq!(
            second.schema_name().to_string(),
            "checked_minus(n,checked_shift_left(checked_plus(n,n),n))"
        );
        let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
        let chain = format!("n{}", " << 0".repeat(100));
        let compiled = SqlCompiler::default().expression(&chain, &schema).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(-3), None]));
        let values = (compiled.kernel)(&[Arc::clone(&numbers)], 2).unwrap();
        assert_eq!(&values[0], &numbers);
    }

    /// Planning takes the third power of their length: minutes for lists that are joined 450 times.
    #[test]
    fn long_chains_of_operators_that_become_calls_are_refused() {
        let list = DataType::new_list(DataType::Int64, true);
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
            Field::new("l", list, true),
        ]);
        let sql = SqlCompiler::default();
        for (first, next) in [
            ("n", " << 1"),
            ("n", " >> n"),
            ("s", " || s"),
            ("l", " || l"),
        ] {
            let chain = |operators: usize| format!("{first}{}", next.repeat(operators));
            let fault = sql.expression(&chain(101), &schema).err().unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{next}");
            assert!(fault.message().contains("chains 101"), "{fault}");
            sql.parses(&chain(100)).unwrap();
        }
        // Chains of others become no calls.
        let sum = format!("n{}", " + n".repeat(200));
        sql.expression(&sum, &schema).unwrap();
    }

    #[test]
    fn signs_and_shifts_do_not_wrap_around() {
        let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
        for (expression, number, expected) in [
            ("-n", 5, Some(-5)),
            ("-n", i64::MIN, None),
            ("abs(-n)", -7, Some(7)),
            ("1 << n", 62, Some(1 << 62)),
            ("1 << n", 63, None),
            ("1 << n", 64, None),
            ("n << 1", i64::MIN / 2, Some(i64::MIN)),
            ("n << 1", i64::MAX, None),
            ("n << 3", -1, Some(-8)),
            ("-16 >> n", 2, Some(-4)),
            ("16 >> n", 64, None),
            ("16 >> n", -1, None),
        ] {
            let compiled = SqlCompiler::default()
                .expression(expression, &schema)
                .unwrap();
            let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(number), None]));
            let result = (compiled.kernel)(&[column], 2);
            match expected {
                Some(expected) => {
                    let values = result.unwrap();
                    let values = values[0].as_primitive::<Int64Type>();
                    let values: Vec<_> = values.iter().collect();
                    assert_eq!(values, [Some(expected), None], "{expression} of {number}");
                }
                None => {
                    let fault = result.unwrap_err();
                    assert_eq!(fault.code(), codes::OVERFLOW, "{expression} of {number}");
                }
            }
        }
    }
}
