//! Evaluation of a compiled expression over the rows of a batch, with a bound on the bytes that it makes of them.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use forebay_model::{Fault, Result, canonical_keys, codes, column_bytes, plain_bytes};

use crate::kernel_memory::{GrowingOutput, admit_output};
use crate::tried_values::{add_tried, count_tried};

/// Most bytes that a function makes of one batch of rows.
pub(crate) const OUTPUT_BYTES_MAX: u128 = 64 << 20;

/// Times of the bytes of large inputs that a function may make of them.
pub(crate) const INPUT_TIMES_MAX: u128 = 4;

/// Bytes of copies of constants and of texts of dictionaries from which on rows are computed in parts: a function may make
/// some copies more.
const PART_BYTES_MAX: u128 = 16 << 20;

/// Constants of at least these bytes count for each row: operators and functions may copy them there.
const LARGE_CONSTANT_BYTES: usize = 4 << 10;

/// Most bytes of the constants of an expression, and of what a function makes of constants. The plan holds some copies of
/// them, and each thread makes one more for a single row.
pub(crate) const CONSTANT_BYTES_MAX: u128 = 8 << 20;

thread_local! {
    /// Bytes that a function may make in the expression that the thread evaluates.
    static LIMIT: Cell<Option<u128>> = const { Cell::new(None) };
}

/// Bytes that a function may make in the expression that the thread evaluates; `None` in a query.
pub(crate) fn growth_limit() -> Option<u128> {
    LIMIT.get()
}

/// An expression with the columns that it reads.
pub(crate) struct BoundedExpression {
    expression: Arc<dyn PhysicalExpr>,
    /// The columns in the types that the expression was compiled for, all of them nullable.
    schema: SchemaRef,
    /// Bytes of its large constants.
    constant_bytes: u128,
}

impl BoundedExpression {
    pub fn new(
        expression: Arc<dyn PhysicalExpr>,
        schema: SchemaRef,
    ) -> Result<BoundedExpression, DataFusionError> {
        let mut constant_bytes = 0;
        expression.apply(|part| {
            if let Some(constant) = part.downcast_ref::<Literal>() {
                constant_bytes += large_constant_bytes(constant.value());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if constant_bytes > CONSTANT_BYTES_MAX {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "its constants have {} MiB, and at most {} MiB are allowed",
                constant_bytes >> 20,
                CONSTANT_BYTES_MAX >> 20
            )));
        }
        Ok(BoundedExpression {
            expression,
            schema,
            constant_bytes,
        })
    }

    /// Computes a column. Where that is too much of all rows at once, halves of them are computed one after the other:
    /// `length(repeat(s, 20000))` has large values for a moment alone.
    pub fn evaluate(&self, inputs: &[ArrayRef], rows: usize) -> Result<ArrayRef, DataFusionError> {
        let input_bytes: usize = inputs.iter().map(|input| column_bytes(input)).sum();
        let limit = OUTPUT_BYTES_MAX.max(INPUT_TIMES_MAX * input_bytes as u128);
        let all_rows = 0..rows;
        let mut open = vec![all_rows];
        let mut parts: Vec<ArrayRef> = Vec::new();
        let mut bytes = 0;
        let mut output = GrowingOutput::default();
        while let Some(range) = open.pop() {
            let end = range.end;
            // A part that is computed again in halves counts nothing.
            let (part, tried) = count_tried(|| self.evaluate_part(inputs, range.clone(), limit));
            match part {
                Ok(values) => {
                    add_tried(tried);
                    let part_bytes = column_bytes(&values);
                    bytes += part_bytes as u128;
                    if !open.is_empty() || !parts.is_empty() {
                        if bytes > limit {
                            return Err(too_much(end, bytes, limit));
                        }
                        output.grow(part_bytes).map_err(no_memory)?;
                    }
                    parts.push(values);
                }
                Err(error) if range.len() > 1 && is_too_much(&error) => {
                    let middle = range.start + range.len() / 2;
                    open.push(middle..end);
                    open.push(range.start..middle);
                }
                Err(error) => return Err(error),
            }
        }
        match parts.as_slice() {
            [whole] => Ok(whole.clone()),
            several => {
                let arrays: Vec<&dyn Array> = several.iter().map(|part| part.as_ref()).collect();
                Ok(concat(&arrays)?)
            }
        }
    }

    fn evaluate_part(
        &self,
        inputs: &[ArrayRef],
        range: Range<usize>,
        limit: u128,
    ) -> Result<ArrayRef, DataFusionError> {
        let rows = range.len();
        let mut part = Vec::with_capacity(inputs.len());
        // Dictionaries and constants may stand for thousands of times their bytes.
        let mut copied_bytes = rows as u128 * self.constant_bytes;
        for input in inputs {
            let input = input.slice(range.start, rows);
            if input.as_any_dictionary_opt().is_some() {
                copied_bytes += plain_bytes(&input) as u128;
            }
            part.push(input);
        }
        if rows > 1 && copied_bytes > PART_BYTES_MAX {
            return Err(too_much(rows, copied_bytes, PART_BYTES_MAX));
        }
        let mut columns = Vec::with_capacity(part.len());
        for (column, field) in part.iter().zip(self.schema.fields()) {
            let plain = to_type(column, field.data_type()).and_then(|plain| canonical_keys(&plain));
            columns.push(plain.map_err(|fault| DataFusionError::External(Box::new(fault)))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let limit_before = LIMIT.replace(Some(limit));
        let value = self.expression.evaluate(&batch);
        LIMIT.set(limit_before);
        let value = value?;
        if let ColumnarValue::Scalar(constant) = &value {
            let bytes = (rows * constant.size()) as u128;
            if rows > 1 && bytes > limit {
                return Err(too_much(rows, bytes, limit));
            }
        }
        value.into_array(rows)
    }
}

/// Bytes of a constant that counts for each row; 0 for a small one.
fn large_constant_bytes(constant: &ScalarValue) -> u128 {
    let bytes = constant.size();
    if bytes < LARGE_CONSTANT_BYTES {
        return 0;
    }
    bytes as u128
}

/// Refuses a query of which one operator has constants that are too large for the rows of a batch, which may each get a
/// copy.
pub(crate) fn refuse_large_constants(
    plan: &LogicalPlan,
    batch_rows: usize,
) -> Result<(), DataFusionError> {
    let row_bytes = OUTPUT_BYTES_MAX / batch_rows.max(1) as u128;
    // Small constants do not count at all.
    let limit = row_bytes.max(LARGE_CONSTANT_BYTES as u128);
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Values(_) = node {
            // These are rows themselves.
            return Ok(TreeNodeRecursion::Continue);
        }
        let mut bytes = 0;
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::Literal(constant, _) = part {
                    bytes += large_constant_bytes(constant);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if bytes <= limit {
            return Ok(TreeNodeRecursion::Continue);
        }
        let message = format!(
            "the constants of an operator of the query have {} KiB, and each of the {batch_rows} \
             rows of a batch may get a copy: at most {} KiB are allowed",
            bytes >> 10,
            limit >> 10
        );
        let fault = Fault::new(codes::MEMORY, message)
            .hint("make the text shorter, or read it from a source of one row");
        Err(DataFusionError::External(Box::new(fault)))
    })?;
    Ok(())
}

fn too_much(rows: usize, bytes: u128, limit: u128) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!(
        "{rows} rows make {} MiB, and at most {} MiB are allowed",
        bytes >> 20,
        limit >> 20
    ))
}

/// Fails if the run that the thread computes for has no memory for so many bytes: fewer rows may fit.
pub(crate) fn check_memory(bytes: u128) -> Result<(), DataFusionError> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    admit_output(bytes).map_err(no_memory)
}

fn no_memory(fault: Fault) -> DataFusionError {
    DataFusionError::ResourcesExhausted(fault.message().to_owned())
}

fn is_too_much(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Casts a column; free if it has the type already.
pub(crate) fn to_type(column: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    if column.data_type() == target {
        Ok(column.clone())
    } else {
        Ok(cast(column, target)?)
    }
}
