//! Exact quantiles: all distinct values with their counts, spilled if memory is short.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::Array;
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    codes,
};
use serde_json::{Value, json};

use crate::numeric_column::{NumericColumn, from_ordered_bits, ordered_bits, single_column};
use crate::quantile_request::QuantileRequest;
use crate::spill_runs::{KeyOrder, RunReader, RunWriter, SpillRuns};

/// Exact quantiles of one numeric column, out of core.
///
/// Nulls and NaN are ignored; infinities count; -0.0 equals 0.0; integers above 2^53 are rounded to doubles. The
/// state holds each distinct value once and spills sorted runs. `QuantileRequest` describes the finding.
#[derive(Debug, Clone, PartialEq)]
pub struct ExactQuantiles {
    /// The requested order statistics.
    pub ask: QuantileRequest,
}

/// State of [`ExactQuantiles`].
pub struct ExactQuantilesState {
    scratch: Arc<dyn ScratchSpace>,
    seen: u64,
    /// Ordered bits of values that are not merged yet, unsorted.
    fresh: Vec<u64>,
    /// Distinct ordered bits with their counts, sorted.
    settled: Vec<(u64, u64)>,
    runs: SpillRuns<u64>,
}

impl ExactQuantilesState {
    fn new(scratch: &Arc<dyn ScratchSpace>) -> Self {
        let runs = SpillRuns::new(KeyOrder::Bytes);
        ExactQuantilesState {
            scratch: scratch.clone(),
            seen: 0,
            fresh: Vec::new(),
            settled: Vec::new(),
            runs,
        }
    }

    fn push_values<T: Copy>(
        &mut self,
        values: &[T],
        to_f64: impl Fn(T) -> f64 + Copy,
    ) -> Result<()> {
        // Pending values take a sixteenth of the budget; with their counts they take twice as much.
        let fresh_max = (self.scratch.budget_bytes() / 16 / size_of::<u64>()).max(64);
        for part in values.chunks(fresh_max) {
            if self.fresh.len() + part.len() > fresh_max {
                self.merge_pending()?;
            }
            // Grows by doubling, but never beyond the share of the budget.
            let length = self.fresh.len() + part.len();
            let capacity = length.next_power_of_two().min(fresh_max);
            let additional = capacity.saturating_sub(self.fresh.len());
            self.fresh.reserve_exact(additional);
            let numbers = part
                .iter()
                .map(|&value| to_f64(value))
                .filter(|value| !value.is_nan());
            self.fresh.extend(numbers.map(ordered_bits));
        }
        Ok(())
    }

    /// Merges the pending values into the sorted counts.
    fn merge_pending(&mut self) -> Result<()> {
        self.seen += self.fresh.len() as u64;
        self.fresh.sort_unstable();
        let groups = self
            .fresh
            .chunk_by(|a, b| a == b)
            .map(|group| (group[0], group.len() as u64));
        self.settled = merge_counts(&self.settled, groups);
        self.fresh.clear();
        self.spill_if_large()
    }

    /// Spills if a quarter of the budget is used: the next merge needs more than as much again.
    fn spill_if_large(&mut self) -> Result<()> {
        let bytes = self.settled.capacity() * size_of::<(u64, u64)>();
        if bytes > self.scratch.budget_bytes() / 4 {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        let settled = std::mem::take(&mut self.settled);
        if settled.is_empty() {
            return Ok(());
        }
        self.runs.spill(&*self.scratch, |run| {
            for (bits, count) in &settled {
                run.push(&bits.to_be_bytes(), count)?;
            }
            Ok(())
        })
    }

    /// Visits each distinct value with its count, in order.
    fn for_each(&mut self, mut visit: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        self.merge_pending()?;
        if self.runs.is_empty() {
            for &(bits, count) in &self.settled {
                visit(bits, count)?;
            }
            return Ok(());
        }
        // The sorted counts become one more run, so that a single merge sees each value once.
        self.spill()?;
        self.runs
            .for_each(|key, &count| visit(bits_of(key)?, count))
    }
}

/// Merges two sorted lists, adding the counts of equal values.
fn merge_counts(
    sorted: &[(u64, u64)],
    new: impl Iterator<Item = (u64, u64)> + Clone,
) -> Vec<(u64, u64)> {
    let mut out = Vec::with_capacity(sorted.len() + new.clone().count());
    let mut sorted = sorted.iter().copied().peekable();
    for (bits, mut count) in new {
        while let Some(smaller) = sorted.next_if(|value| value.0 < bits) {
            out.push(smaller);
        }
        if let Some((_, sorted_count)) = sorted.next_if(|value| value.0 == bits) {
            count += sorted_count;
        }
        out.push((bits, count));
    }
    out.extend(sorted);
    out.shrink_to_fit();
    out
}

fn bits_of(key: &[u8]) -> Result<u64> {
    let key = key
        .try_into()
        .map_err(|_| Fault::new(codes::CORRUPT, "a state has a key that is not 8 bytes long"))?;
    Ok(u64::from_be_bytes(key))
}

impl Analyzer for ExactQuantiles {
    type State = ExactQuantilesState;

    fn kind(&self) -> &'static str {
        "exact_quantiles"
    }

    fn config(&self) -> Value {
        json!({ "ask": self.ask.config() })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<ExactQuantilesState> {
        Ok(ExactQuantilesState::new(scratch))
    }

    fn update(&self, state: &mut ExactQuantilesState, input: &AnalyzerInput<'_>) -> Result<()> {
        macro_rules! take {
            ($array:expr, $to_f64:expr) => {{
                let array = $array;
                match array.nulls() {
                    None => state.push_values(array.values(), $to_f64),
                    Some(nulls) => {
                        let mut slices = nulls.valid_slices();
                        slices.try_for_each(|(start, end)| {
                            state.push_values(&array.values()[start..end], $to_f64)
                        })
                    }
                }
            }};
        }
        match NumericColumn::of(single_column(input)?)? {
            NumericColumn::Float64(array) => take!(array, |value| value),
            NumericColumn::Float32(array) => take!(array, f64::from),
            NumericColumn::Int64(array) => take!(array, |value| value as f64),
            NumericColumn::UInt64(array) => take!(array, |value| value as f64),
        }
    }

    fn merge(
        &self,
        state: &mut ExactQuantilesState,
        mut later_state: ExactQuantilesState,
    ) -> Result<()> {
        later_state.merge_pending()?;
        state.merge_pending()?;
        state.seen += later_state.seen;
        state.settled = merge_counts(&state.settled, later_state.settled.iter().copied());
        state.runs.adopt(later_state.runs, &*state.scratch)?;
        state.spill_if_large()
    }

    fn encode(&self, state: &mut ExactQuantilesState, out: &mut dyn Write) -> Result<()> {
        state.merge_pending()?;
        StateEncoder(out).varint(state.seen)?;
        let mut run = RunWriter::new(out);
        state.for_each(|bits, count| run.push(&bits.to_be_bytes(), &count))?;
        run.finish()?;
        Ok(())
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<ExactQuantilesState> {
        let mut state = ExactQuantilesState::new(scratch);
        state.seen = StateDecoder(input).count()?;
        let mut run = RunReader::<_, u64>::new(input, KeyOrder::Bytes);
        while run.advance()? {
            let bits = bits_of(run.key())?;
            if state.settled.last().is_some_and(|last| last.0 >= bits) {
                return Err(Fault::new(
                    codes::CORRUPT,
                    "a state holds values that are not sorted",
                ));
            }
            state.settled.push((bits, run.value));
            state.spill_if_large()?;
        }
        Ok(state)
    }

    fn finish(&self, mut state: ExactQuantilesState) -> Result<Finding> {
        state.merge_pending()?;
        let n = state.seen;
        let ranks = self.ask.ranks(n);
        let mut values = Vec::with_capacity(ranks.len());
        let mut passed = 0;
        state.for_each(|bits, count| {
            passed += count;
            // Several ranks may lie within the rows of one value.
            while ranks.get(values.len()).is_some_and(|&rank| rank < passed) {
                values.push(from_ordered_bits(bits));
            }
            Ok(())
        })?;
        self.ask.finding(n, &ranks, &values)
    }

    fn size_bytes(&self, state: &ExactQuantilesState) -> usize {
        state.fresh.capacity() * size_of::<u64>()
            + state.settled.capacity() * size_of::<(u64, u64)>()
    }
}
