//! Row and null counts of one column.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array};
use forebay_model::{
    Analyzer, AnalyzerInput, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
};
use serde_json::{Value, json};

use crate::numeric_column::single_column;

/// Counts the rows and the nulls of one column of any type. NaN is not null.
///
/// The finding has one row: `rows`, `nulls` (UInt64).
#[derive(Debug, Clone, Copy, Default)]
pub struct ColumnCounts;

/// State of `ColumnCounts`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ColumnCountsState {
    rows: u64,
    nulls: u64,
}

impl Analyzer for ColumnCounts {
    type State = ColumnCountsState;

    fn kind(&self) -> &'static str {
        "counts"
    }

    fn config(&self) -> Value {
        json!({})
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<ColumnCountsState> {
        Ok(ColumnCountsState::default())
    }

    fn update(&self, state: &mut ColumnCountsState, input: &AnalyzerInput<'_>) -> Result<()> {
        let column = single_column(input)?;
        state.rows += column.len() as u64;
        state.nulls += column.logical_null_count() as u64;
        Ok(())
    }

    fn merge(&self, state: &mut ColumnCountsState, later_state: ColumnCountsState) -> Result<()> {
        state.rows += later_state.rows;
        state.nulls += later_state.nulls;
        Ok(())
    }

    fn encode(&self, state: &mut ColumnCountsState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        out.varint(state.rows)?;
        out.varint(state.nulls)
    }

    fn decode(&self, input: &mut dyn Read, _: &Arc<dyn ScratchSpace>) -> Result<ColumnCountsState> {
        let mut input = StateDecoder(input);
        Ok(ColumnCountsState {
            rows: input.count()?,
            nulls: input.count()?,
        })
    }

    fn finish(&self, state: ColumnCountsState) -> Result<Finding> {
        let count = |value: u64| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        Finding::of([("rows", count(state.rows)), ("nulls", count(state.nulls))])
    }

    fn size_bytes(&self, _: &ColumnCountsState) -> usize {
        size_of::<ColumnCountsState>()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        size_of::<ColumnCountsState>()
    }
}
