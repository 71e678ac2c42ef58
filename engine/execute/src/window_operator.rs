//! Windows over rows that are sorted by series and time.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use forebay_model::{
    AdmittedMemory, DuplicateRows, Fault, Result, SeriesCounts, shared_value_bytes,
};
use forebay_plan::{AdmitBytes, GatherOp, WindowOp};
use forebay_storage::MemoryBudget;
use forebay_threads::lock;
use forebay_window::{InputRows, WindowEngine, WindowFunction, WindowPlan};

use crate::admission::admission;
use crate::sorted_operator::{BatchFn, OUTPUT_TEXT_BYTES, SortedOperator};

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
    /// Asked for long texts that many rows get.
    admit: Option<AdmitBytes>,
}

impl WindowOperator {
    pub fn new(window: &WindowOp, columns: &[String]) -> Result<Self> {
        let position_of = |name: &String| {
            let position = columns.iter().position(|column| column == name);
            position.ok_or_else(|| Fault::internal("a window's column is missing"))
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
            keys: window.keys.iter().map(position_of).collect::<Result<_>>()?,
            time: position_of(&window.time)?,
            inputs: window
                .reads
                .iter()
                .map(position_of)
                .collect::<Result<_>>()?,
            backward: window.backward,
            plan: Arc::new(plan),
            schema: Arc::new(Schema::new(fields)),
            counts: Arc::default(),
            admit: None,
        })
    }

    /// Bounds the memory of a batch of outputs.
    pub fn within(self, memory: MemoryBudget) -> Self {
        WindowOperator {
            admit: Some(admission(memory)),
            ..self
        }
    }
}

impl SortedOperator for WindowOperator {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn start(&self) -> BatchFn {
        let mut engine = WindowEngine::new(self.plan.clone());
        let keys = self.keys.clone();
        let time = self.time;
        let inputs = self.inputs.clone();
        let plan = self.plan.clone();
        let schema = self.schema.clone();
        let counts = self.counts.clone();
        let backward = self.backward;
        let admit = self.admit.clone();
        Box::new(move |batch, give| {
            let Some(batch) = batch else {
                return Ok(());
            };
            let columns = |indices: &[usize]| {
                indices
                    .iter()
                    .map(|index| batch.column(*index).clone())
                    .collect::<Vec<_>>()
            };
            let keys = columns(&keys);
            let inputs = columns(&inputs);
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
            let mut from = 0;
            while from < batch.num_rows() {
                let part = first_rows(&outputs, from..batch.num_rows());
                from += part.first().map_or(0, |column| column.len());
                give(&plain_rows(part, &schema, admit.as_ref())?)?;
            }
            Ok(())
        })
    }
}

/// The first of some rows, so few that the texts of their dictionaries are small once each row has its own.
fn first_rows(columns: &[ArrayRef], rows: Range<usize>) -> Vec<ArrayRef> {
    let mut count = rows.len();
    loop {
        let mut first = Vec::with_capacity(columns.len());
        for column in columns {
            first.push(column.slice(rows.start, count));
        }
        let text_bytes: usize = first.iter().map(|column| shared_value_bytes(column)).sum();
        if count < 2 || text_bytes <= OUTPUT_TEXT_BYTES {
            return first;
        }
        count /= 2;
    }
}

/// Rows without dictionaries: long texts come in one, and files of sorted rows have none.
fn plain_rows(
    mut columns: Vec<ArrayRef>,
    schema: &SchemaRef,
    admit: Option<&AdmitBytes>,
) -> Result<RecordBatch> {
    let count = columns.first().map_or(0, |column| column.len());
    for (column, field) in columns.iter_mut().zip(schema.fields()) {
        if column.data_type() == field.data_type() {
            continue;
        }
        let _admitted = match admit {
            Some(admit) => admit(shared_value_bytes(column))?,
            None => AdmittedMemory::default(),
        };
        *column = cast(column, field.data_type())?;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        columns,
        &options,
    )?)
}

fn negated(column: &ArrayRef) -> ArrayRef {
    let negated: Int64Array = column.as_primitive::<Int64Type>().unary(i64::wrapping_neg);
    Arc::new(negated)
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, UInt64Array};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn long_texts_are_written_in_few_rows_at_a_time() {
        let text = "x".repeat(1 << 20);
        let texts: DictionaryArray<Int32Type> = vec![text.as_str(); 20].into_iter().collect();
        let positions = UInt64Array::from_iter_values(0..20);
        let columns: [ArrayRef; 2] = [Arc::new(texts), Arc::new(positions)];
        let first = first_rows(&columns, 5..20);
        assert_eq!(first[1].len(), 3);
        let schema = Arc::new(Schema::new(vec![
            Field::new("t", DataType::Utf8, true),
            Field::new("p", DataType::UInt64, false),
        ]));
        let full: AdmitBytes = Arc::new(|bytes| {
            assert_eq!(bytes, 3 << 20);
            Ok(AdmittedMemory::default())
        });
        let batch = plain_rows(first, &schema, Some(&full)).unwrap();
        assert_eq!(batch.column(0).as_string::<i32>().value(2), text);
        assert_eq!(batch.num_rows(), 3);
        assert_eq!(first_rows(&columns[1..], 0..20)[0].len(), 20);
    }
}
