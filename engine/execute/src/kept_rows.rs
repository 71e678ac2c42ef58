//! The rows of a dataset that stay, with a bit for each row.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{cast, filter};
use arrow::datatypes::SchemaRef;
use forebay_model::{Fault, MemoryRequest, Result};
use forebay_storage::MemoryBudget;

use crate::materialize::SpanRows;
use crate::row_position::ROW_BITS;

/// Masks the row of a position, without the span's number.
const ROW_MASK: u64 = (1 << ROW_BITS) - 1;

/// Rows that stay.
#[derive(Default)]
pub struct KeptRows {
    /// Bitmaps of rows by the number of their span.
    bitmaps: BTreeMap<u64, Vec<u64>>,
}

impl KeptRows {
    /// Adds rows by their positions. Memory is reserved before bitmaps grow.
    pub fn add(&mut self, positions: &[u64], memory: MemoryBudget) -> Result<()> {
        let mut words_max: BTreeMap<u64, usize> = BTreeMap::new();
        for position in positions {
            let words = words_max.entry(position >> ROW_BITS).or_default();
            *words = (*words).max((position & ROW_MASK) as usize / 64 + 1);
        }
        for (span, words) in words_max {
            let bits = self.bitmaps.entry(span).or_default();
            if words > bits.len() {
                let words_allocated = words.max(2 * bits.len());
                let _admitted = memory.admit(
                    MemoryRequest {
                        now: words_allocated * size_of::<u64>(),
                        later: 0,
                    },
                    0,
                )?;
                bits.resize(words_allocated, 0);
            }
        }
        for position in positions {
            let bits = self.bitmaps.get_mut(&(position >> ROW_BITS));
            let word = bits.and_then(|words| words.get_mut((position & ROW_MASK) as usize / 64));
            *word.ok_or_else(|| Fault::internal("a row that was not read"))? |=
                1 << (position % 64);
        }
        Ok(())
    }

    /// Those of some rows that stay, in the types of a schema; `None` if there are none.
    pub fn filter(&self, read: SpanRows, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let Some(words) = self.bitmaps.get(&(read.first >> ROW_BITS)) else {
            return Ok(None);
        };
        let first = (read.first & ROW_MASK) as usize;
        let is_staying = |row: usize| {
            words
                .get(row / 64)
                .is_some_and(|word| word >> (row % 64) & 1 == 1)
        };
        let mask = BooleanBuffer::collect_bool(read.rows, |row| is_staying(first + row));
        let mask = BooleanArray::new(mask, None);
        if mask.true_count() == 0 {
            return Ok(None);
        }
        if mask.true_count() == read.rows {
            return batch_of(&read.columns, schema).map(Some);
        }
        let mut columns = Vec::with_capacity(read.columns.len());
        for column in &read.columns {
            columns.push(filter(column, &mask)?);
        }
        batch_of(&columns, schema).map(Some)
    }
}

/// Columns in the types of a schema.
pub fn batch_of(columns: &[ArrayRef], schema: &SchemaRef) -> Result<RecordBatch> {
    let mut typed = Vec::with_capacity(columns.len());
    for (column, field) in columns.iter().zip(schema.fields()) {
        typed.push(cast(column, field.data_type())?);
    }
    Ok(RecordBatch::try_new(schema.clone(), typed)?)
}
