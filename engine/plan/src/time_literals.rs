//! Literals of times in expressions.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;

/// The text of a literal of a time: `TIMESTAMP '...'`, `DATE '...'` or a text alone.
pub(crate) fn literal_text(expression: &Expr) -> Option<&str> {
    let literal = match expression {
        Expr::Cast(cast) => {
            let target = cast.field.data_type();
            let is_time = matches!(target, DataType::Date32 | DataType::Timestamp(_, None));
            is_time.then_some(cast.expr.as_ref())?
        }
        other => other,
    };
    match literal {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// A time of a number of ticks as a value.
pub(crate) fn time_value(unit: TimeUnit, ticks: i64, zone: Option<Arc<str>>) -> ScalarValue {
    match unit {
        TimeUnit::Second => ScalarValue::TimestampSecond(Some(ticks), zone),
        TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(Some(ticks), zone),
        TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(Some(ticks), zone),
        TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(Some(ticks), zone),
    }
}
