//! Checks of functions of SQL before and behind their calls.

use arrow::array::ArrayRef;
use datafusion::common::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

/// Checks of the calls of a function.
pub(crate) trait FunctionGuard: Send + Sync {
    /// Fails if the function must not see these arguments.
    fn before(&self, _name: &str, _arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        Ok(())
    }

    /// The result of a call that the function does not compute; `None` where it does.
    fn computed(
        &self,
        _name: &str,
        _arguments: &ScalarFunctionArgs,
    ) -> Result<Option<ColumnarValue>, DataFusionError> {
        Ok(None)
    }

    /// The arguments that the function sees in the place of these.
    fn prepared(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ScalarFunctionArgs, DataFusionError> {
        Ok(arguments)
    }

    /// Fails if the result is wrong. `columns` are the arguments.
    fn behind(
        &self,
        _name: &str,
        _columns: &[ArrayRef],
        _result: &ArrayRef,
    ) -> Result<(), DataFusionError> {
        Ok(())
    }

    /// The result in the place of that which the function gives for these arguments.
    fn corrected(
        &self,
        _columns: &[ArrayRef],
        result: ColumnarValue,
    ) -> Result<ColumnarValue, DataFusionError> {
        Ok(result)
    }

    /// True if the result is checked or corrected, so that the arguments are kept until then.
    fn checks_result(&self) -> bool {
        false
    }
}

/// The columns of the arguments. A constant is a column of one row.
pub(crate) fn argument_columns(
    arguments: &ScalarFunctionArgs,
) -> Result<Vec<ArrayRef>, DataFusionError> {
    let mut columns = Vec::with_capacity(arguments.args.len());
    for argument in &arguments.args {
        columns.push(column_of(argument)?);
    }
    Ok(columns)
}

/// The column of an argument or a result.
pub(crate) fn column_of(value: &ColumnarValue) -> Result<ArrayRef, DataFusionError> {
    match value {
        ColumnarValue::Array(column) => Ok(column.clone()),
        ColumnarValue::Scalar(constant) => constant.to_array(),
    }
}
