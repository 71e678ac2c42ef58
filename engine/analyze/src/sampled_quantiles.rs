//! Approximate quantiles from a sample that is independent of the order of rows.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrowPrimitiveType, PrimitiveArray};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    codes,
};
use serde_json::{Value, json};

use crate::numeric_column::{NumericColumn, from_ordered_bits, ordered_bits, single_column};
use crate::quantile_request::QuantileRequest;

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
        let rows = ((2.0 / DELTA).ln() / (2.0 * self.epsilon * self.epsilon)).ceil();
        (rows as usize).clamp(1, 1 << 40)
    }
}

/// State of `SampledQuantiles`: at most twice the sample, 16 bytes a row.
#[derive(Debug)]
pub struct SampledQuantilesState {
    seen: u64,
    /// Pairs of row key and ordered bits of the value.
    sample: Vec<(u64, u64)>,
    /// Rows with greater keys cannot enter the sample.
    threshold: u64,
    rows_max: usize,
    buffer_max: usize,
}

impl SampledQuantilesState {
    /// The values of the sample in ascending order.
    pub(crate) fn sorted_values(mut self) -> Vec<f64> {
        self.truncate_sample();
        let mut bits: Vec<u64> = self.sample.into_iter().map(|(_, bits)| bits).collect();
        bits.sort_unstable();
        bits.into_iter().map(from_ordered_bits).collect()
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
        self.seen += (array.len() - array.null_count() - nans) as u64;
        for (row, &key) in keys.iter().enumerate() {
            if key <= self.threshold && array.is_valid(row) && !is_nan(row) {
                self.push(key, ordered_bits(to_f64(array.value(row))));
            }
        }
    }
}

/// Pairs per write and read, and bytes per pair.
const PAIRS_PER_WRITE: usize = 256;
const PAIR_BYTES: usize = 16;

impl Analyzer for SampledQuantiles {
    type State = SampledQuantilesState;

    fn kind(&self) -> &'static str {
        "quantiles"
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
            sample: Vec::new(),
            threshold: u64::MAX,
            rows_max,
            buffer_max,
        })
    }

    fn update(&self, state: &mut SampledQuantilesState, input: &AnalyzerInput<'_>) -> Result<()> {
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
        state.seen += later_state.seen;
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
        state.truncate_sample();
        state.sample.sort_unstable();
        let mut out = StateEncoder(out);
        out.varint(state.seen)?;
        out.varint(state.sample.len() as u64)?;
        let mut bytes = Vec::with_capacity(PAIRS_PER_WRITE * PAIR_BYTES);
        for pairs in state.sample.chunks(PAIRS_PER_WRITE) {
            bytes.clear();
            for (key, bits) in pairs {
                bytes.extend_from_slice(&key.to_le_bytes());
                bytes.extend_from_slice(&bits.to_le_bytes());
            }
            out.raw(&bytes)?;
        }
        Ok(())
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<SampledQuantilesState> {
        let mut state = Analyzer::zero(self, scratch)?;
        let mut input = StateDecoder(input);
        state.seen = input.count()?;
        let mut remaining = input.length(state.rows_max)?;
        let mut bytes = [0; PAIRS_PER_WRITE * PAIR_BYTES];
        while remaining > 0 {
            let pairs = remaining.min(PAIRS_PER_WRITE);
            let bytes = &mut bytes[..pairs * PAIR_BYTES];
            input.raw(bytes)?;
            let (numbers, _) = bytes.as_chunks::<8>();
            for pair in numbers.chunks_exact(2) {
                state.push(u64::from_le_bytes(pair[0]), u64::from_le_bytes(pair[1]));
            }
            remaining -= pairs;
        }
        Ok(state)
    }

    fn finish(&self, mut state: SampledQuantilesState) -> Result<Finding> {
        state.truncate_sample();
        let mut bits: Vec<u64> = state.sample.into_iter().map(|(_, bits)| bits).collect();
        bits.sort_unstable();
        let n = bits.len() as u64;
        let ranks = self.ask.ranks(n);
        let values: Vec<f64> = ranks
            .iter()
            .map(|&rank| from_ordered_bits(bits[rank as usize]))
            .collect();
        self.ask.finding(n, &ranks, &values)
    }

    fn size_bytes(&self, state: &SampledQuantilesState) -> usize {
        size_of::<SampledQuantilesState>() + state.sample.capacity() * size_of::<(u64, u64)>()
    }

    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        (2 * self.sample_rows() * size_of::<(u64, u64)>()).min(budget_bytes)
    }
}
