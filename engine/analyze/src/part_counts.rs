//! Rows by the parts of a split that they are in.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt64Array};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
};
use serde_json::{Value, json};

/// Parts that are told apart at most.
const PARTS_MAX: usize = 64;

/// Counts rows by the set of Boolean columns, one per part of a split, that are true. Null is not true.
///
/// The finding has one row per set: `parts` (a bit for each column, the first one lowest) and `count` (UInt64).
#[derive(Debug, Clone, Copy, Default)]
pub struct PartCounts;

/// State of `PartCounts`.
#[derive(Debug, Clone, Default)]
pub struct PartCountsState(BTreeMap<u64, u64>);

impl Analyzer for PartCounts {
    type State = PartCountsState;

    fn kind(&self) -> &'static str {
        "part_counts"
    }

    fn config(&self) -> Value {
        json!({})
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<PartCountsState> {
        Ok(PartCountsState::default())
    }

    fn update(&self, state: &mut PartCountsState, input: &AnalyzerInput<'_>) -> Result<()> {
        let booleans = input
            .columns
            .iter()
            .filter_map(|column| column.as_boolean_opt());
        let columns: Vec<&BooleanArray> = booleans.collect();
        if columns.len() < input.columns.len() || columns.len() > PARTS_MAX {
            return Err(Fault::internal("counts of parts received other columns"));
        }
        for row in 0..input.rows {
            let mut parts = 0;
            for (bit, column) in columns.iter().enumerate() {
                if column.is_valid(row) && column.value(row) {
                    parts |= 1 << bit;
                }
            }
            *state.0.entry(parts).or_default() += 1;
        }
        Ok(())
    }

    fn merge(&self, state: &mut PartCountsState, later_state: PartCountsState) -> Result<()> {
        for (parts, count) in later_state.0 {
            *state.0.entry(parts).or_default() += count;
        }
        Ok(())
    }

    fn encode(&self, state: &mut PartCountsState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        out.varint(state.0.len() as u64)?;
        for (parts, count) in &state.0 {
            out.varint(*parts)?;
            out.varint(*count)?;
        }
        Ok(())
    }

    fn decode(&self, input: &mut dyn Read, _: &Arc<dyn ScratchSpace>) -> Result<PartCountsState> {
        let mut input = StateDecoder(input);
        let sets = input.varint()?;
        let mut counts = BTreeMap::new();
        for _ in 0..sets {
            let parts = input.varint()?;
            counts.insert(parts, input.count()?);
        }
        Ok(PartCountsState(counts))
    }

    fn finish(&self, state: PartCountsState) -> Result<Finding> {
        let parts: UInt64Array = state.0.keys().copied().map(Some).collect();
        let counts: UInt64Array = state.0.values().copied().map(Some).collect();
        Finding::of([
            ("parts", Arc::new(parts) as ArrayRef),
            ("count", Arc::new(counts)),
        ])
    }

    fn size_bytes(&self, state: &PartCountsState) -> usize {
        size_of::<PartCountsState>() + state.0.len() * 2 * size_of::<u64>()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        // Parts rarely overlap in more than a few ways.
        4 << 10
    }
}
