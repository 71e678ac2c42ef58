//! Rows of several batches in another order.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use forebay_model::Result;

/// Rows of several batches in another order.
pub struct OrderedRows {
    schema: SchemaRef,
    columns: Vec<ColumnValues>,
    /// The position of the first row of each batch.
    batch_starts: Vec<u64>,
    /// The positions of the rows, in their new order.
    positions: Vec<u64>,
    /// Rows of an ordered batch at most.
    batch_rows: usize,
    next: usize,
}

/// The values of a column in all batches.
enum ColumnValues {
    /// Values of fixed width, which are found fastest in an array of all batches.
    Joined(ArrayRef),
    Batches(Vec<ArrayRef>),
}

impl OrderedRows {
    /// `positions` number the rows of all batches.
    pub fn new(
        batches: Vec<RecordBatch>,
        positions: Vec<u64>,
        batch_rows: usize,
    ) -> Result<OrderedRows> {
        let schema = batches
            .first()
            .map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
        let mut batch_starts = Vec::with_capacity(batches.len());
        let mut rows = 0;
        let mut arrays: Vec<Vec<ArrayRef>> = vec![Vec::new(); schema.fields().len()];
        for batch in batches {
            batch_starts.push(rows);
            rows += batch.num_rows() as u64;
            for (arrays, array) in arrays.iter_mut().zip(batch.columns()) {
                arrays.push(array.clone());
            }
        }
        let mut columns = Vec::with_capacity(arrays.len());
        // Each column is joined before the next, so that the values of a single one are there twice.
        for arrays in arrays {
            columns.push(ColumnValues::new(arrays)?);
        }
        Ok(OrderedRows {
            schema,
            columns,
            batch_starts,
            positions,
            batch_rows,
            next: 0,
        })
    }

    fn next_batch(&self, positions: &[u64]) -> Result<RecordBatch> {
        let indices = UInt64Array::from(positions.to_vec());
        let in_batches = |values: &ColumnValues| matches!(values, ColumnValues::Batches(_));
        let mut batch_indices = Vec::new();
        if self.columns.iter().any(in_batches) {
            batch_indices.extend(positions.iter().map(|position| self.batch_index(*position)));
        }
        let mut columns = Vec::with_capacity(self.columns.len());
        for values in &self.columns {
            columns.push(match values {
                ColumnValues::Joined(array) => take(array.as_ref(), &indices, None)?,
                ColumnValues::Batches(arrays) => {
                    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
                    interleave(&arrays, &batch_indices)?
                }
            });
        }
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// The batch of a row and the row in it.
    fn batch_index(&self, position: u64) -> (usize, usize) {
        let batch = self
            .batch_starts
            .partition_point(|start| *start <= position)
            .saturating_sub(1);
        (batch, (position - self.batch_starts[batch]) as usize)
    }
}

impl Iterator for OrderedRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let from = self.next;
        self.next = (from + self.batch_rows).min(self.positions.len());
        let positions = self.positions.get(from..self.next)?;
        (!positions.is_empty()).then(|| self.next_batch(positions))
    }
}

impl ColumnValues {
    fn new(arrays: Vec<ArrayRef>) -> Result<ColumnValues> {
        let data_type = arrays.first().map(|array| array.data_type().clone());
        let is_fixed = data_type.is_some_and(|it| it.is_primitive() || it == DataType::Boolean);
        if !is_fixed {
            return Ok(ColumnValues::Batches(arrays));
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        Ok(ColumnValues::Joined(concat(&arrays)?))
    }
}
