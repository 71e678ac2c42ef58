//! Row and null counts of one column.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array};
use forebay_model::{Analyzer, Decoder, Encoder, Finding, Input, Result, Scratch};
use serde_json::{Value, json};

use crate::numbers::only_column;

/// Counts the rows and the nulls of one column of any type. NaN is not null.
///
/// The finding has one row: `rows`, `nulls` (UInt64).
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts;

/// State of `ColumnCounts`.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountsState {
    rows: u64,
    nulls: u64,
}

impl Analyzer for Counts {
    type State = CountsState;

    fn kind(&self) -> &'static str {
        "counts"
    }

    fn config(&self) -> Value {
        json!({})
    }

    fn zero(&self, _: &Arc<dyn Scratch>) -> Result<CountsState> {
        Ok(CountsState::default())
    }

    fn update(&self, state: &mut CountsState, input: &Input<'_>) -> Result<()> {
        let column = only_column(input)?;
        state.rows += column.len() as u64;
        state.nulls += column.logical_null_count() as u64;
        Ok(())
    }

    fn merge(&self, state: &mut CountsState, later: CountsState) -> Result<()> {
        state.rows += later.rows;
        state.nulls += later.nulls;
        Ok(())
    }

    fn encode(&self, state: &mut CountsState, out: &mut dyn Write) -> Result<()> {
        let mut out = Encoder(out);
        out.varint(state.rows)?;
        out.varint(state.nulls)
    }

    fn decode(&self, input: &mut dyn Read, _: &Arc<dyn Scratch>) -> Result<CountsState> {
        let mut input = Decoder(input);
        Ok(CountsState { rows: input.varint()?, nulls: input.varint()? })
    }

    fn finish(&self, state: CountsState) -> Result<Finding> {
        let count = |value: u64| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        Finding::of([("rows", count(state.rows)), ("nulls", count(state.nulls))])
    }

    fn size_bytes(&self, _: &CountsState) -> usize {
        size_of::<CountsState>()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        size_of::<CountsState>()
    }
}
