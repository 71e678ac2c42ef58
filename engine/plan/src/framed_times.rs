//! Frames of windows that reach over days or longer lengths of a zone whose clock changes.
//!
//! The query engine moves the time of each row by the length of the frame. Where that leads to a local time that the
//! clock skips, or has twice, it takes a frame without that bound and says nothing. Here such rows are faults.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, Scalar};
use arrow::compute::cast;
use arrow::compute::kernels::numeric::add;
use arrow::datatypes::{DataType, FieldRef, Int64Type, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, WindowFrameBound, WindowFrameUnits,
};
use forebay_model::{ColumnClock, Fault, codes};

use crate::zone_clocks::{clock_of, has_calendar, moved_tick};

const FRAMED_TIME_NAME: &str = "framed_time";

static FRAMED_TIME: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(FramedTimeUdf {
        signature: Signature::variadic_any(Volatility::Immutable),
    })
});

/// The function that returns a time whose frames are clear.
pub(crate) fn framed_time_function() -> &'static ScalarUDF {
    &FRAMED_TIME
}

/// A window whose order is checked, if its frame reaches over days or longer lengths of a zone whose clock changes.
pub(crate) fn framed_window(call: &WindowFunction, schema: &DFSchema) -> Option<Expr> {
    let frame = &call.params.window_frame;
    let [order] = call.params.order_by.as_slice() else {
        return None;
    };
    let data_type = order.expr.get_type(schema).ok()?;
    if frame.units != WindowFrameUnits::Range || !has_calendar(&data_type) {
        return None;
    }
    let mut arguments = vec![order.expr.clone()];
    for bound in [&frame.start_bound, &frame.end_bound] {
        if let Some(length) = calendar_length(bound, order.asc) {
            let length = ScalarValue::IntervalMonthDayNano(Some(length));
            arguments.push(Expr::Literal(length, None));
        }
    }
    if arguments.len() == 1 {
        return None;
    }
    let mut framed = call.clone();
    framed.params.order_by[0].expr = FRAMED_TIME.call(arguments);
    Some(Expr::from(framed))
}

/// The interval from a row to a bound of its frame, where it has days or months.
fn calendar_length(bound: &WindowFrameBound, ascends: bool) -> Option<IntervalMonthDayNano> {
    let value = match bound {
        WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) => value,
        WindowFrameBound::CurrentRow => return None,
    };
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let Ok(ScalarValue::IntervalMonthDayNano(Some(length))) = value.cast_to(&interval) else {
        return None;
    };
    if length.months == 0 && length.days == 0 {
        return None;
    }
    let precedes = matches!(bound, WindowFrameBound::Preceding(_));
    if precedes != ascends {
        return Some(length);
    }
    Some(IntervalMonthDayNano::new(
        length.months.checked_neg()?,
        length.days.checked_neg()?,
        length.nanoseconds.checked_neg()?,
    ))
}

/// `framed_time(time, interval, ...)`: the time. Fails where the query engine does not find the time an interval later.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FramedTimeUdf {
    signature: Signature,
}

impl ScalarUDFImpl for FramedTimeUdf {
    fn name(&self) -> &str {
        FRAMED_TIME_NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        arguments.first().cloned().ok_or_else(no_time)
    }

    fn return_field_from_args(
        &self,
        arguments: ReturnFieldArgs,
    ) -> Result<FieldRef, DataFusionError> {
        let time = arguments.arg_fields.first().ok_or_else(no_time)?;
        Ok(Arc::new(time.as_ref().clone().with_name(FRAMED_TIME_NAME)))
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let [time, lengths @ ..] = arguments.args.as_slice() else {
            return Err(no_time());
        };
        let times = time.to_array(arguments.number_rows.max(1))?;
        for length in lengths {
            let ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(length))) = length
            else {
                return Err(DataFusionError::Internal(
                    "a frame whose length is no constant".to_owned(),
                ));
            };
            check_frames(&times, *length)?;
        }
        Ok(time.clone())
    }
}

fn no_time() -> DataFusionError {
    DataFusionError::Internal("a frame without a time".to_owned())
}

/// Fails for the first time from which the query engine does not reach the time an interval later.
fn check_frames(times: &ArrayRef, length: IntervalMonthDayNano) -> Result<(), DataFusionError> {
    let clock = clock_of(times.data_type())?;
    let ticks = cast(times, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let length_array = IntervalMonthDayNanoArray::from_value(length, 1);
    let moved = add(times, &Scalar::new(&length_array)).ok();
    let moved = match moved {
        Some(moved) => Some(cast(&moved, &DataType::Int64)?),
        None => None,
    };
    for row in 0..ticks.len() {
        if ticks.is_null(row) {
            continue;
        }
        // Beyond the times of its type, a frame has no bound.
        let Some(expected) = moved_tick(&clock, ticks.value(row), length) else {
            continue;
        };
        let reached = match &moved {
            Some(moved) => Some(moved.as_primitive::<Int64Type>().value(row)),
            None => reached_tick(times, row, &length_array),
        };
        if reached != Some(expected) {
            return Err(unclear_frame(&clock, ticks.value(row), times.data_type()));
        }
    }
    Ok(())
}

/// The tick that the query engine reaches from a row; `None` where it finds none.
fn reached_tick(times: &ArrayRef, row: usize, length: &IntervalMonthDayNanoArray) -> Option<i64> {
    let moved = add(&times.slice(row, 1), &Scalar::new(length)).ok()?;
    let moved = cast(&moved, &DataType::Int64).ok()?;
    Some(moved.as_primitive::<Int64Type>().value(0))
}

fn unclear_frame(clock: &ColumnClock, time: i64, data_type: &DataType) -> DataFusionError {
    let DataType::Timestamp(_, Some(zone)) = data_type else {
        return no_time();
    };
    let row = match clock.local(time) {
        Some(local) => local.format("%Y-%m-%d %H:%M:%S%.f").to_string(),
        None => time.to_string(),
    };
    let message = format!(
        "the frame of the row at {row} begins or ends at a local time that the clock of {zone} \
         skips or has twice"
    );
    let fault = Fault::new(codes::EXPRESSION, message).hint(
        "give the length of the frame in hours, or use `rolling`, whose days are of the calendar",
    );
    DataFusionError::External(Box::new(fault))
}
