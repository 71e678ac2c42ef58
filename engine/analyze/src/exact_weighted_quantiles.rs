//! Exact quantiles of weighted values: all distinct values with the sums of their weights, spilled if memory is short.

use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    codes,
};
use serde_json::{Value, json};

use crate::compact_sum::CompactSum;
use crate::exact_sum::ExactSum;
use crate::moment_accumulator::decompose;
use crate::numeric_column::{from_ordered_bits, ordered_bits};
use crate::quantile_request::QuantileRequest;
use crate::spill_map::SpillMap;
use crate::spill_runs::{KeyOrder, SpillValue};
use crate::weighted_column::WeightedColumn;
use crate::weighted_ranks::{WeightedRanks, weighted_finding};

/// Exact quantiles of one numeric column whose rows have weights, out of core.
///
/// The input columns are the values, followed by the weights. Rows whose value or weight is null or NaN are ignored, and
/// so are weights of 0. Other weights are between 1e-200 and 1e200; any other one is a fault. Infinite values count, -0.0
/// equals 0.0, and integers above 2^53 are rounded to doubles. Sums of weights are exact.
///
/// The finding is that of `QuantileRequest`, of these values: boundary `k` of `q` buckets is the first value with which
/// more than `k / q` of the weight is passed, and the quantile of a probability the first value with which at least that
/// share is passed, as numpy's `inverted_cdf` does. The state holds each distinct value once, with the sum of its weights
/// in some 100 to 200 bytes, and spills sorted runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ExactWeightedQuantiles {
    /// The requested order statistics.
    pub ask: QuantileRequest,
    /// The name of the column of weights, for faults.
    pub weight: String,
}

/// State of [`ExactWeightedQuantiles`]: sums of weights by the ordered bits of their values.
pub struct ExactWeightedQuantilesState(SpillMap<WeightSum>);

/// The sum of the weights of a value.
#[derive(Debug, Clone, Default)]
struct WeightSum(CompactSum);

impl SpillValue for WeightSum {
    fn merge_value(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        self.0.encode(out)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        let sum = CompactSum::decode(input)?;
        if sum.exact().sign().is_le() {
            let message = "a state holds a sum of weights that is not positive";
            return Err(Fault::new(codes::CORRUPT, message));
        }
        Ok(WeightSum(sum))
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

fn value_of(key: &[u8]) -> Result<f64> {
    let key = key
        .try_into()
        .map_err(|_| Fault::new(codes::CORRUPT, "a state has a key that is not 8 bytes long"))?;
    Ok(from_ordered_bits(u64::from_be_bytes(key)))
}

impl Analyzer for ExactWeightedQuantiles {
    type State = ExactWeightedQuantilesState;

    fn kind(&self) -> &'static str {
        "exact_weighted_quantiles"
    }

    fn config(&self) -> Value {
        json!({ "ask": self.ask.config() })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<ExactWeightedQuantilesState> {
        let sums = SpillMap::new(scratch, KeyOrder::Bytes);
        Ok(ExactWeightedQuantilesState(sums))
    }

    fn update(
        &self,
        state: &mut ExactWeightedQuantilesState,
        input: &AnalyzerInput<'_>,
    ) -> Result<()> {
        let column = WeightedColumn::of(input)?;
        column.for_each(&self.weight, |_, value, weight| {
            let slot = state.0.slot(&ordered_bits(value).to_be_bytes())?;
            let (mantissa, bit) = decompose(weight);
            state
                .0
                .update_slot(slot, |sum| sum.0.add(bit, i128::from(mantissa)));
            Ok(())
        })?;
        state.0.spill_if_large()
    }

    fn merge(
        &self,
        state: &mut ExactWeightedQuantilesState,
        later_state: ExactWeightedQuantilesState,
    ) -> Result<()> {
        state.0.merge(later_state.0)
    }

    fn encode(&self, state: &mut ExactWeightedQuantilesState, out: &mut dyn Write) -> Result<()> {
        state.0.encode(out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<ExactWeightedQuantilesState> {
        let sums = SpillMap::decode(input, scratch, KeyOrder::Bytes)?;
        Ok(ExactWeightedQuantilesState(sums))
    }

    fn finish(&self, mut state: ExactWeightedQuantilesState) -> Result<Finding> {
        let mut total = ExactSum::default();
        state.0.for_each(|_, sum| {
            total.merge(&sum.0.exact());
            Ok(())
        })?;
        let mut ranks = WeightedRanks::new(&self.ask, total);
        state.0.for_each(|key, sum| {
            ranks.pass(value_of(key)?, &sum.0.exact());
            Ok(())
        })?;
        weighted_finding(&self.ask, &ranks.into_values())
    }

    fn size_bytes(&self, state: &ExactWeightedQuantilesState) -> usize {
        state.0.size_bytes()
    }
}
