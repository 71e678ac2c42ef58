//! Approximate quantiles from a sample that is independent of the order of rows.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrowPrimitiveType, PrimitiveArray};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, RowKeys, ScratchSpace, StateDecoder,
    StateEncoder, codes,
};
use serde_json::{Value, json};

use crate::narrow_values::{read_narrow, write_narrow};
use crate::numeric_column::{NumericColumn, from_ordered_bits, ordered_bits, single_column};
use crate::quantile_request::QuantileRequest;
use crate::whole_rows::{SortedRows, WholeRows};

/// Probability that the error of some rank exceeds `epsilon * n`.
const DELTA: f64 = 1e-6;

/// Quantiles of one numeric column with a rank error of at most `epsilon * n`.
///
/// Keeps the `k` rows with the smallest (row key, value): a uniform sample without replacement that is a function
/// of the rows alone. By the inequality of Dvoretzky, Kiefer and Wolfowitz with the constant of Massart (Annals of
/// Probability 18, 1990), `k = ln(2 / delta) / (2 epsilon^2)` keeps every rank within `epsilon * n` with
/// probability `1 - 1e-6`; the result is exact while `n <= k`.
///
/// Nulls and NaN are ignored; infinities count; -0.0 equals 0.0. `QuantileRequest` describes the finding.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledQuantiles {
    /// Largest rank error, as a share of the rows.
    pub epsilon: f64,
    /// The requested order statistics.
    pub ask: QuantileRequest,
}

impl SampledQuantiles {
    /// Number of rows in the sample.
    pub fn sample_rows(&self) -> usize {
        sample_rows(self.epsilon)
    }
}

/// Number of drawn rows that keep every rank within `epsilon * n`.
pub(crate) fn sample_rows(epsilon: f64) -> usize {
    let rows = ((2.0 / DELTA).ln() / (2.0 * epsilon * epsilon)).ceil();
    (rows as usize).clamp(1, 1 << 40)
}

/// State of `SampledQuantiles`: at most twice the sample, 16 bytes a row. Rows take four or eight bytes while all of
/// them are in the sample.
#[derive(Debug)]
pub struct SampledQuantilesState {
    seen: u64,
    /// All rows, while they are no more than the sample holds and most of them are consecutive. Empty in a condensed
    /// state.
    whole: Option<WholeRows>,
    /// Without `whole`: pairs of row key and ordered bits of the value.
    sample: Vec<(u64, u64)>,
    /// The values in place of the sample once no rows follow.
    condensed: Option<CondensedSample>,
    /// Rows with greater keys cannot enter the sample.
    threshold: u64,
    rows_max: usize,
    buffer_max: usize,
}

impl SampledQuantilesState {
    /// The values of the sample in ascending order.
    pub(crate) fn sorted_values(mut self) -> Result<Vec<f64>> {
        self.condense_to_values();
        let condensed = self.condensed.unwrap_or_default();
        if condensed.values.len() as u64 != condensed.rows {
            return Err(corrupt_condensed());
        }
        // Damaged bytes may hold NaN, which statistics do not expect.
        if !condensed.values.is_sorted() {
            return Err(Fault::new(
                codes::CORRUPT,
                "a state holds values in disorder",
            ));
        }
        Ok(condensed.values)
    }

    /// Replaces the sample by its values in ascending order.
    pub(crate) fn condense_to_values(&mut self) {
        if self.condensed.is_some() {
            return;
        }
        let mut bits = self.take_bits();
        bits.sort_unstable();
        self.condensed = Some(CondensedSample {
            rows: bits.len() as u64,
            values: bits.into_iter().map(from_ordered_bits).collect(),
        });
    }

    /// Replaces the sample by the values that quantiles need of it.
    fn condense_to_ranks(&mut self, ask: &QuantileRequest) {
        if self.condensed.is_some() {
            return;
        }
        let mut bits = self.take_bits();
        let rows = bits.len() as u64;
        let selected = select_ranks(&mut bits, &ask.ranks(rows));
        self.condensed = Some(CondensedSample {
            rows,
            values: selected.into_iter().map(from_ordered_bits).collect(),
        });
    }

    /// A fault for a condensed state, which accepts no further rows.
    fn expect_sample(&self) -> Result<()> {
        match &self.condensed {
            Some(_) => Err(Fault::internal("rows for a condensed sample")),
            None => Ok(()),
        }
    }

    /// Takes the ordered bits of the values out of the sample.
    fn take_bits(&mut self) -> Vec<u64> {
        if let Some(whole) = &mut self.whole {
            let values = std::mem::take(whole).values();
            return values.into_iter().map(ordered_bits).collect();
        }
        self.truncate_sample();
        let sample = std::mem::take(&mut self.sample);
        sample.into_iter().map(|(_, bits)| bits).collect()
    }

    /// Gives each row its key.
    fn key_rows(&mut self) {
        let Some(whole) = self.whole.take() else {
            return;
        };
        self.sample.reserve_exact(whole.len());
        whole.for_each(|position, value| {
            let key = RowKeys::of_position(position);
            self.sample.push((key, ordered_bits(value)));
        });
    }

    /// The rows of the sample in the order of their positions.
    fn sorted_rows(&mut self) -> SortedRows {
        if let Some(whole) = &self.whole
            && let Some(sorted) = whole.sorted()
        {
            return sorted;
        }
        self.key_rows();
        self.truncate_sample();
        let mut pairs: Vec<(u64, u64)> = Vec::with_capacity(self.sample.len());
        for (key, bits) in &self.sample {
            pairs.push((RowKeys::position(*key), *bits));
        }
        pairs.sort_unstable();
        let mut sorted = SortedRows::default();
        for (position, bits) in pairs {
            sorted.push(position, from_ordered_bits(bits));
        }
        sorted
    }

    /// Truncates the sample to the rows with the smallest keys.
    fn truncate_sample(&mut self) {
        if self.sample.len() > self.rows_max {
            let (_, last, _) = self.sample.select_nth_unstable(self.rows_max - 1);
            self.threshold = last.0;
            self.sample.truncate(self.rows_max);
        }
    }

    fn push(&mut self, key: u64, bits: u64) {
        if self.sample.len() == self.buffer_max {
            self.truncate_sample();
        }
        if self.sample.len() == self.sample.capacity() {
            // Doubles, but never beyond the buffer that fits the budget.
            let additional = self.sample.len().max(1024);
            let free = self.buffer_max - self.sample.len();
            self.sample.reserve_exact(additional.min(free));
        }
        self.sample.push((key, bits));
    }

    /// Accumulates the valid rows of an array. Few keys are below the threshold, so the keys are tested first and
    /// only the matching values are read.
    fn push_array<T: ArrowPrimitiveType>(
        &mut self,
        keys: &[u64],
        array: &PrimitiveArray<T>,
        to_f64: impl Fn(T::Native) -> f64,
    ) {
        let is_nan = |row: usize| to_f64(array.value(row)).is_nan();
        // Values under nulls may be NaN as well. Most arrays have no NaN at all, which one vectorized pass detects.
        let mut has_nan = false;
        for &value in array.values() {
            has_nan |= to_f64(value).is_nan();
        }
        let mut nans = 0;
        if has_nan {
            let valid_rows = (0..array.len()).filter(|&row| array.is_valid(row));
            nans = valid_rows.filter(|&row| is_nan(row)).count();
        }
        let counted = array.len() - array.null_count() - nans;
        self.seen += counted as u64;
        if let Some(whole) = &mut self.whole
            && whole.len() + counted <= self.rows_max
        {
            if counted == array.len() {
                let positions = keys.iter().map(|&key| RowKeys::position(key));
                let values = array.values().iter().map(|&value| to_f64(value));
                whole.extend(positions, values);
            } else {
                for (row, &key) in keys.iter().enumerate() {
                    if array.is_valid(row) && !is_nan(row) {
                        whole.push(RowKeys::position(key), to_f64(array.value(row)));
                    }
                }
            }
            if whole.is_scattered() {
                self.key_rows();
            }
            return;
        }
        self.key_rows();
        for (row, &key) in keys.iter().enumerate() {
            if key <= self.threshold && array.is_valid(row) && !is_nan(row) {
                self.push(key, ordered_bits(to_f64(array.value(row))));
            }
        }
    }
}

/// The values of a sample that a finding needs.
#[derive(Debug, Default)]
struct CondensedSample {
    /// Rows of the sample.
    rows: u64,
    /// Values at the ranks that the finding needs, in ascending order.
    values: Vec<f64>,
}

fn corrupt_condensed() -> Fault {
    Fault::new(
        codes::CORRUPT,
        "a state holds too many or too few quantiles",
    )
}

/// Ranks up to which selecting their numbers costs less than sorting all numbers.
const SELECTED_RANKS_MAX: usize = 8;

/// The numbers at ranks, which ascend. Reorders the numbers.
pub(crate) fn select_ranks(numbers: &mut [u64], ranks: &[u64]) -> Vec<u64> {
    if ranks.len() > SELECTED_RANKS_MAX {
        numbers.sort_unstable();
        return ranks.iter().map(|&rank| numbers[rank as usize]).collect();
    }
    let mut selected = Vec::with_capacity(ranks.len());
    let mut unselected = numbers;
    let mut first_rank = 0;
    for &rank in ranks {
        let index = (rank - first_rank) as usize;
        let (_, number, greater) = unselected.select_nth_unstable(index);
        selected.push(*number);
        unselected = greater;
        first_rank = rank + 1;
    }
    selected
}

/// The version of the bytes of samples.
pub(crate) const SAMPLE_VERSION: u32 = 2;

/// Kinds of states: the first byte after the number of rows.
const SAMPLE: u8 = 0;
const CONDENSED: u8 = 1;

impl Analyzer for SampledQuantiles {
    type State = SampledQuantilesState;

    fn kind(&self) -> &'static str {
        "quantiles"
    }

    fn version(&self) -> u32 {
        SAMPLE_VERSION
    }

    fn config(&self) -> Value {
        json!({ "epsilon": self.epsilon, "ask": self.ask.config() })
    }

    fn needs_row_keys(&self) -> bool {
        true
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<SampledQuantilesState> {
        let rows_max = self.sample_rows();
        let fits = scratch.budget_bytes() / size_of::<(u64, u64)>();
        if self.epsilon.is_nan() || self.epsilon <= 0.0 {
            return Err(Fault::new(
                codes::BAD_VALUE,
                format!("epsilon {} is not positive", self.epsilon),
            ));
        }
        // A quarter more than the sample makes truncation cheap enough.
        if rows_max + rows_max / 4 > fits {
            let message = format!(
                "quantiles with epsilon {} need a sample of {rows_max} rows, \
                 more than {} bytes of memory hold",
                self.epsilon,
                scratch.budget_bytes()
            );
            let fault = Fault::new(codes::MEMORY, message);
            return Err(fault.hint("raise epsilon, or use exact quantiles"));
        }
        let buffer_max = (2 * rows_max).min(fits);
        Ok(SampledQuantilesState {
            seen: 0,
            whole: Some(WholeRows::default()),
            sample: Vec::new(),
            condensed: None,
            threshold: u64::MAX,
            rows_max,
            buffer_max,
        })
    }

    fn update(&self, state: &mut SampledQuantilesState, input: &AnalyzerInput<'_>) -> Result<()> {
        state.expect_sample()?;
        let column = single_column(input)?;
        let keys = input.keys.filter(|keys| keys.len() == column.len());
        let keys = keys.ok_or_else(|| Fault::internal("quantiles received no key per row"))?;
        match NumericColumn::of(column)? {
            NumericColumn::Float64(array) => state.push_array(keys, &array, |value| value),
            NumericColumn::Float32(array) => state.push_array(keys, &array, f64::from),
            NumericColumn::Int64(array) => state.push_array(keys, &array, |value| value as f64),
            NumericColumn::UInt64(array) => state.push_array(keys, &array, |value| value as f64),
        }
        Ok(())
    }

    fn merge(
        &self,
        state: &mut SampledQuantilesState,
        mut later_state: SampledQuantilesState,
    ) -> Result<()> {
        state.expect_sample()?;
        later_state.expect_sample()?;
        state.seen += later_state.seen;
        if let Some(whole) = &mut state.whole
            && let Some(later_whole) = &later_state.whole
            && whole.len() + later_whole.len() <= state.rows_max
        {
            whole.append(later_whole);
            if whole.is_scattered() {
                state.key_rows();
            }
            return Ok(());
        }
        state.key_rows();
        later_state.key_rows();
        later_state.truncate_sample();
        // The smallest keys of both samples are the smallest keys of all rows.
        for (key, bits) in later_state.sample {
            if key <= state.threshold {
                state.push(key, bits);
            }
        }
        Ok(())
    }

    fn encode(&self, state: &mut SampledQuantilesState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        out.varint(state.seen)?;
        if let Some(condensed) = &state.condensed {
            out.raw(&[CONDENSED])?;
            out.varint(condensed.rows)?;
            return write_narrow(&mut out, &condensed.values);
        }
        out.raw(&[SAMPLE])?;
        state.sorted_rows().write(&mut out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<SampledQuantilesState> {
        let mut state = Analyzer::zero(self, scratch)?;
        let mut input = StateDecoder(input);
        state.seen = input.count()?;
        let mut kind = [0];
        input.raw(&mut kind)?;
        match kind {
            [SAMPLE] => {
                state.whole = Some(WholeRows::read(&mut input, state.rows_max)?);
                if state.whole.as_ref().is_some_and(WholeRows::is_scattered) {
                    state.key_rows();
                }
                Ok(state)
            }
            [CONDENSED] => {
                let rows = input.length(state.rows_max)?;
                let values = read_narrow(&mut input, rows)?;
                state.condensed = Some(CondensedSample {
                    rows: rows as u64,
                    values,
                });
                Ok(state)
            }
            _ => {
                let message = "a state holds a sample of an unknown kind";
                Err(Fault::new(codes::CORRUPT, message))
            }
        }
    }

    fn condense(&self, state: &mut SampledQuantilesState) -> Result<()> {
        state.condense_to_ranks(&self.ask);
        Ok(())
    }

    fn finish(&self, mut state: SampledQuantilesState) -> Result<Finding> {
        state.condense_to_ranks(&self.ask);
        let condensed = state.condensed.unwrap_or_default();
        let ranks = self.ask.ranks(condensed.rows);
        if condensed.values.len() != ranks.len() {
            return Err(corrupt_condensed());
        }
        self.ask.finding(condensed.rows, &ranks, &condensed.values)
    }

    fn size_bytes(&self, state: &SampledQuantilesState) -> usize {
        let whole_bytes = state.whole.as_ref().map_or(0, WholeRows::size_bytes);
        let condensed = state.condensed.as_ref();
        let values = condensed.map_or(0, |condensed| condensed.values.capacity());
        size_of::<SampledQuantilesState>()
            + whole_bytes
            + state.sample.capacity() * size_of::<(u64, u64)>()
            + values * size_of::<f64>()
    }

    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        (2 * self.sample_rows() * size_of::<(u64, u64)>()).min(budget_bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Only tests are here.

    use arrow::array::{ArrayRef, Float32Array, Float64Array, Int64Array};
    use forebay_model::{AnyAnalyzer, AnyState, MemoryScratch, RowKeys};

    use super::*;

    const ROWS: usize = 5000;

    fn scratch() -> Arc<dyn ScratchSpace> {
        Arc::new(MemoryScratch {
            budget_bytes: 64 << 20,
        })
    }

    /// The state of a column, whose sample is larger than the column.
    fn state_of(analyzer: &dyn AnyAnalyzer, column: &ArrayRef, keys: &RowKeys) -> AnyState {
        let mut state = analyzer.zero(&scratch()).unwrap();
        let input = AnalyzerInput {
            columns: std::slice::from_ref(column),
            rows: column.len(),
            keys: Some(keys.as_slice()),
        };
        analyzer.update(&mut state, &input).unwrap();
        state
    }

    fn encoded(analyzer: &dyn AnyAnalyzer, state: &mut AnyState) -> Vec<u8> {
        let mut bytes = Vec::new();
        analyzer.encode(state, &mut bytes).unwrap();
        bytes
    }

    fn quantiles(ask: QuantileRequest) -> SampledQuantiles {
        SampledQuantiles { epsilon: 0.02, ask }
    }

    #[test]
    fn condensed_states_hold_quantiles_alone() {
        let numbers = (0..ROWS).map(|row| (row * 7919 % ROWS) as f64 / 10.0);
        let column: ArrayRef = Arc::new(Float64Array::from_iter_values(numbers));
        let keys = RowKeys::sequence(7, 0, ROWS);
        let cases = [
            (QuantileRequest::Buckets(100), 99),
            (QuantileRequest::Buckets(2), 1),
            (QuantileRequest::Probabilities(vec![0.5]), 2),
            (QuantileRequest::Probabilities(vec![0.0, 0.25, 1.0]), 5),
        ];
        for (ask, values) in cases {
            let analyzer = quantiles(ask);
            let analyzer: &dyn AnyAnalyzer = &analyzer;
            let finding = analyzer.finish(state_of(analyzer, &column, &keys)).unwrap();
            let mut state = state_of(analyzer, &column, &keys);
            analyzer.condense(&mut state).unwrap();
            let bytes = encoded(analyzer, &mut state);
            assert!(bytes.len() <= 16 + values * 8, "{} bytes", bytes.len());
            let decoded = analyzer.decode(&mut &bytes[..], &scratch()).unwrap();
            assert_eq!(analyzer.finish(decoded).unwrap().table(), finding.table());
            let second = state_of(analyzer, &column, &keys);
            assert!(analyzer.merge(&mut state, second).is_err());
        }
    }

    #[test]
    fn states_are_no_larger_than_their_values() {
        let numbers = || (0..ROWS).map(|row| row * 7919 % ROWS);
        let tenths = || numbers().map(|number| number as f64 / 10.0);
        let columns: [(ArrayRef, usize); 4] = [
            (
                Arc::new(Float32Array::from_iter_values(
                    tenths().map(|value| value as f32),
                )),
                4,
            ),
            (Arc::new(Float64Array::from_iter_values(tenths())), 8),
            (
                Arc::new(Int64Array::from_iter_values(
                    numbers().map(|number| number as i64),
                )),
                2,
            ),
            (
                Arc::new(Int64Array::from_iter_values(
                    numbers().map(|number| number as i64 % 90),
                )),
                1,
            ),
        ];
        let analyzer = quantiles(QuantileRequest::Buckets(4));
        for (column, value_bytes) in columns {
            let keys = RowKeys::sequence(7, 0, ROWS);
            let mut state = state_of(&analyzer, &column, &keys);
            let bytes = encoded(&analyzer, &mut state).len();
            assert!(bytes <= ROWS * value_bytes + 32, "{bytes} bytes");
            // In memory, values take four or eight bytes each, and vectors grow in steps.
            let memory_bytes = AnyAnalyzer::size_bytes(&analyzer, &state);
            assert!(
                memory_bytes <= 2 * ROWS * value_bytes.max(4) + 1024,
                "{memory_bytes} bytes"
            );
        }
    }

    #[test]
    fn states_of_rows_have_the_same_bytes_however_keys_are_divided() {
        let values: Vec<f64> = (0..ROWS)
            .map(|row| (row * 7919 % 1000) as f64 / 7.0)
            .collect();
        let sequence = RowKeys::sequence(u64::MAX - 700, 0, ROWS);
        let mut scattered: Vec<u64> = Vec::new();
        let mut repeated: Vec<u64> = Vec::new();
        for &key in sequence.as_slice() {
            scattered.push(RowKeys::of_position(key));
            repeated.push(RowKeys::of_position(RowKeys::position(key) & !1));
        }
        let all_keys = [sequence.as_slice().to_vec(), scattered, repeated];
        // The sample is larger and smaller than the rows.
        for epsilon in [0.02, 0.1] {
            let ask = QuantileRequest::Buckets(4);
            let analyzer = SampledQuantiles { epsilon, ask };
            for keys in &all_keys {
                let part = |rows: std::ops::Range<usize>| {
                    let values = values[rows.clone()].iter().copied();
                    let column: ArrayRef = Arc::new(Float64Array::from_iter_values(values));
                    let keys = RowKeys::from_keys(keys[rows].iter().copied());
                    state_of(&analyzer, &column, &keys)
                };
                let expected = encoded(&analyzer, &mut part(0..ROWS));
                for middle in [1, 700, 2500] {
                    let mut early = part(0..middle);
                    AnyAnalyzer::merge(&analyzer, &mut early, part(middle..ROWS)).unwrap();
                    assert!(encoded(&analyzer, &mut early) == expected);
                    let mut late = part(middle..ROWS);
                    AnyAnalyzer::merge(&analyzer, &mut late, part(0..middle)).unwrap();
                    assert!(encoded(&analyzer, &mut late) == expected);
                }
                let decoded = AnyAnalyzer::decode(&analyzer, &mut &expected[..], &scratch());
                assert!(encoded(&analyzer, &mut decoded.unwrap()) == expected);
            }
        }
    }

    #[test]
    fn condensed_states_of_other_quantiles_are_corrupt() {
        let column: ArrayRef = Arc::new(Float64Array::from_iter_values((0..9).map(f64::from)));
        let keys = RowKeys::sequence(7, 0, 9);
        let quartiles = quantiles(QuantileRequest::Buckets(4));
        let halves = quantiles(QuantileRequest::Buckets(2));
        let mut state = state_of(&quartiles, &column, &keys);
        AnyAnalyzer::condense(&quartiles, &mut state).unwrap();
        let bytes = encoded(&quartiles, &mut state);
        let decoded = AnyAnalyzer::decode(&halves, &mut &bytes[..], &scratch()).unwrap();
        let fault = AnyAnalyzer::finish(&halves, decoded).unwrap_err();
        assert_eq!(fault.code(), codes::CORRUPT);
    }

    #[test]
    fn selected_numbers_are_those_of_the_sorted_ones() {
        let numbers: Vec<u64> = (0..1000).map(|number| number * 7919 % 1000 / 3).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        let all_ranks: Vec<u64> = (0..1000).collect();
        for ranks in [&all_ranks[..], &[0, 1, 2, 999], &[499, 500], &[0], &[]] {
            let expected: Vec<u64> = ranks.iter().map(|&rank| sorted[rank as usize]).collect();
            assert_eq!(select_ranks(&mut numbers.clone(), ranks), expected);
        }
    }
}
