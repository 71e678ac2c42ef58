//! The correlation of two numeric columns.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, UInt64Array};
use forebay_model::{
    Analyzer, AnalyzerInput, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
};
use serde_json::{Value, json};

use crate::numeric_column::{NumericColumn, two_columns};
use crate::pair_moments::PairMoments;

/// Pearson's correlation of two numeric columns.
///
/// Rows where either value is null or NaN are ignored, as in pandas. The sums are exact; covariance and variances are
/// rounded once. The finding has one row: `count` (UInt64) and `correlation` (Float64; null where there are fewer than
/// two rows, a column is constant, or a value is infinite).
#[derive(Debug, Clone, Copy, Default)]
pub struct ColumnCorrelation;

/// State of [`ColumnCorrelation`]: some hundred bytes, and five sums of at most 600 bytes.
#[derive(Debug, Default)]
pub struct ColumnCorrelationState {
    moments: PairMoments,
}

impl Analyzer for ColumnCorrelation {
    type State = ColumnCorrelationState;

    fn kind(&self) -> &'static str {
        "correlation"
    }

    fn config(&self) -> Value {
        json!({})
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<ColumnCorrelationState> {
        Ok(ColumnCorrelationState::default())
    }

    fn update(&self, state: &mut ColumnCorrelationState, input: &AnalyzerInput<'_>) -> Result<()> {
        let [x, y] = two_columns(input)?;
        let x = NumericColumn::doubles(x)?;
        let y = NumericColumn::doubles(y)?;
        for (a, b) in x.iter().zip(&y) {
            // A pair counts if both values are numbers.
            let a = a.unwrap_or(f64::NAN);
            let b = b.unwrap_or(f64::NAN);
            state.moments.push(a, b);
        }
        Ok(())
    }

    fn merge(
        &self,
        state: &mut ColumnCorrelationState,
        later_state: ColumnCorrelationState,
    ) -> Result<()> {
        state.moments.merge(&later_state.moments);
        Ok(())
    }

    fn encode(&self, state: &mut ColumnCorrelationState, out: &mut dyn Write) -> Result<()> {
        state.moments.encode(&mut StateEncoder(out))
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        _: &Arc<dyn ScratchSpace>,
    ) -> Result<ColumnCorrelationState> {
        let moments = PairMoments::decode(&mut StateDecoder(input))?;
        Ok(ColumnCorrelationState { moments })
    }

    fn finish(&self, state: ColumnCorrelationState) -> Result<Finding> {
        let count = state.moments.count();
        let correlation = state.moments.correlation();
        let correlation = correlation.filter(|correlation| !correlation.is_nan());
        let count: ArrayRef = Arc::new(UInt64Array::from(vec![count]));
        let correlation: ArrayRef = Arc::new(Float64Array::from(vec![correlation]));
        Finding::of([("count", count), ("correlation", correlation)])
    }

    fn size_bytes(&self, state: &ColumnCorrelationState) -> usize {
        size_of::<ColumnCorrelationState>() + state.moments.heap_bytes()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        4 << 10
    }
}
