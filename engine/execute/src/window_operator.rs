//! Windows over rows that are sorted by series and time.

use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use forebay_model::{DuplicateRows, Fault, Result, SeriesCounts};
use forebay_plan::{GatherOp, WindowOp};
use forebay_threads::lock;
use forebay_window::{InputRows, WindowEngine, WindowFunction, WindowPlan};

use crate::sorted_pass::{BatchFn, SortedOperator};

/// A window over rows sorted by series and time.
pub struct WindowOperator {
    backward: bool,
    plan: Arc<WindowPlan>,
    /// Positions of the keys, the time and the inputs in a batch; the row's position is the last column.
    keys: Vec<usize>,
    time: usize,
    inputs: Vec<usize>,
    /// The outputs and the row's position.
    pub schema: SchemaRef,
    /// Counts of the window between the rows of series.
    pub counts: Arc<Mutex<SeriesCounts>>,
}

impl WindowOperator {
    pub fn new(window: &WindowOp, columns: &[String]) -> Result<Self> {
        let place = |name: &String| {
            let found = columns.iter().position(|column| column == name);
            found.ok_or_else(|| Fault::internal("a window's column is missing"))
        };
        let mut plan = window.plan.as_ref().clone();
        if window.backward {
            plan.time = DataType::Int64;
        }
        let mut fields: Vec<Field> = window
            .writes
            .iter()
            .map(|field| field.clone().with_nullable(true))
            .collect();
        fields.push(Field::new(GatherOp::ROW, DataType::UInt64, false));
        Ok(WindowOperator {
            keys: window.keys.iter().map(place).collect::<Result<_>>()?,
            time: place(&window.time)?,
            inputs: window.reads.iter().map(place).collect::<Result<_>>()?,
            backward: window.backward,
            plan: Arc::new(plan),
            schema: Arc::new(Schema::new(fields)),
            counts: Arc::default(),
        })
    }
}

impl SortedOperator for WindowOperator {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn start(&self) -> BatchFn {
        let mut engine = WindowEngine::new(self.plan.clone());
        let (keys, time, inputs) = (self.keys.clone(), self.time, self.inputs.clone());
        let (plan, schema, counts) = (self.plan.clone(), self.schema.clone(), self.counts.clone());
        let backward = self.backward;
        Box::new(move |batch| {
            let columns = |places: &[usize]| {
                places
                    .iter()
                    .map(|place| batch.column(*place).clone())
                    .collect::<Vec<_>>()
            };
            let (keys, inputs) = (columns(&keys), columns(&inputs));
            let mut time = batch.column(time).clone();
            if backward {
                time = negated(&cast(&time, &DataType::Int64)?);
            }
            let rows = InputRows {
                keys: &keys,
                time: &time,
                inputs: &inputs,
                rows: batch.num_rows(),
            };
            let mut outputs = engine.push(&rows, &vec![true; plan.functions.len()])?;
            engine.keep_last();
            let mut counts = lock(&counts)?;
            counts.gaps = engine.gaps();
            if plan.duplicates.policy == DuplicateRows::Warn {
                counts.duplicates += engine.duplicates();
            }
            drop(counts);
            if backward {
                for (output, function) in outputs.iter_mut().zip(&plan.functions) {
                    if matches!(function.compute, WindowFunction::LastValidTime { .. }) {
                        *output = cast(
                            &negated(&cast(output, &DataType::Int64)?),
                            output.data_type(),
                        )?;
                    }
                }
            }
            outputs.push(batch.column(batch.num_columns() - 1).clone());
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(
                schema.clone(),
                outputs,
                &options,
            )?)
        })
    }
}

fn negated(column: &ArrayRef) -> ArrayRef {
    let negated: Int64Array = column.as_primitive::<Int64Type>().unary(i64::wrapping_neg);
    Arc::new(negated)
}
