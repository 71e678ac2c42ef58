//! The correlation of two numeric columns.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, UInt64Array};
use forebay_model::{
    Analyzer, AnalyzerInput, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
};
use serde_json::{Value, json};

use crate::exact_sum::{ExactSum, covariance};
use crate::moment_accumulator::{MomentAccumulator, decompose};
use crate::numeric_column::{NumericColumn, two_columns};

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
    moments: [MomentAccumulator; 2],
    products: ExactSum,
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
        let (x, y) = (NumericColumn::doubles(x)?, NumericColumn::doubles(y)?);
        for (a, b) in x.iter().zip(&y) {
            let (Some(a), Some(b)) = (a.filter(|a| !a.is_nan()), b.filter(|b| !b.is_nan())) else {
                continue;
            };
            state.moments[0].push(a);
            state.moments[1].push(b);
            if a.is_finite() && b.is_finite() {
                let ((a, a_bit), (b, b_bit)) = (decompose(a), decompose(b));
                state
                    .products
                    .add_signed(a_bit + b_bit, i128::from(a) * i128::from(b));
            }
        }
        Ok(())
    }

    fn merge(
        &self,
        state: &mut ColumnCorrelationState,
        later: ColumnCorrelationState,
    ) -> Result<()> {
        state
            .moments
            .iter_mut()
            .zip(&later.moments)
            .for_each(|(moment, later)| moment.merge(later));
        state.products.merge(&later.products);
        Ok(())
    }

    fn encode(&self, state: &mut ColumnCorrelationState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        state
            .moments
            .iter()
            .try_for_each(|moment| moment.encode(&mut out))?;
        state.products.encode(&mut out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        _: &Arc<dyn ScratchSpace>,
    ) -> Result<ColumnCorrelationState> {
        let mut input = StateDecoder(input);
        let moments = [
            MomentAccumulator::decode(&mut input)?,
            MomentAccumulator::decode(&mut input)?,
        ];
        Ok(ColumnCorrelationState {
            moments,
            products: ExactSum::decode(&mut input)?,
        })
    }

    fn finish(&self, mut state: ColumnCorrelationState) -> Result<Finding> {
        let count = state.moments[0].count();
        let [x, y] = &mut state.moments;
        let is_finite = x.infinities() + y.infinities() == 0;
        let variances = [x, y].map(|moment| {
            moment
                .variance(0)
                .filter(|variance| *variance > 0.0 && is_finite)
        });
        let correlation = match variances {
            [Some(x_variance), Some(y_variance)] if count > 1 => {
                let covariance = covariance(
                    count,
                    [state.moments[0].sum(), state.moments[1].sum()],
                    &state.products,
                );
                // One root each: the product of two variances may leave the doubles.
                Some((covariance / x_variance.sqrt() / y_variance.sqrt()).clamp(-1.0, 1.0))
            }
            _ => None,
        };
        let correlation: ArrayRef = Arc::new(Float64Array::from(vec![
            correlation.filter(|value| value.is_finite()),
        ]));
        Finding::of([
            (
                "count",
                Arc::new(UInt64Array::from(vec![count])) as ArrayRef,
            ),
            ("correlation", correlation),
        ])
    }

    fn size_bytes(&self, state: &ColumnCorrelationState) -> usize {
        let heap: usize = state
            .moments
            .iter()
            .map(MomentAccumulator::heap_bytes)
            .sum();
        size_of::<ColumnCorrelationState>() + heap + state.products.heap_bytes()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        4 << 10
    }
}
