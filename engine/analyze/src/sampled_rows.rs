//! A sample of rows with several numbers each.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    codes,
};
use serde_json::{Value, json};

use crate::numeric_column::{NumericColumn, from_ordered_bits, ordered_bits};

/// A uniform sample of rows without replacement, of several numeric columns.
///
/// Keeps the rows with the smallest (row key, values): a function of the rows alone, and all rows while there are no
/// more than `rows_max`. Null, NaN and infinities are missing values; rows without any value do not count. -0.0 equals
/// 0.0.
///
/// The finding has a column for each input, `value_0`, `value_1`, ... (Float64, missing values null), and a row for each
/// row of the sample, in the order of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledRows {
    /// Number of columns.
    pub columns: usize,
    /// Most rows of the sample.
    pub rows_max: usize,
}

/// State of [`SampledRows`]: at most twice the sample, 8 bytes for each number and each row key.
#[derive(Debug)]
pub struct SampledRowsState {
    /// The key of each row, followed by the ordered bits of its values.
    words: Vec<u64>,
    /// Rows with greater keys cannot enter the sample.
    threshold: u64,
}

/// Stands for a missing value; no number has these ordered bits. They sort behind those of all numbers.
const MISSING: u64 = u64::MAX;

impl SampledRows {
    /// Words of a row: its key and its values.
    fn row_words(&self) -> usize {
        self.columns + 1
    }

    /// Most bytes of a state while it is truncated: its rows, references to them, and the rows that stay.
    fn bytes_max(&self) -> usize {
        let row_bytes = 3 * self.row_words() * size_of::<u64>() + 2 * size_of::<&[u64]>();
        self.rows_max.saturating_mul(row_bytes)
    }

    fn sorted_rows<'s>(&self, state: &'s SampledRowsState) -> Vec<&'s [u64]> {
        let mut rows: Vec<&[u64]> = state.words.chunks_exact(self.row_words()).collect();
        rows.sort_unstable();
        rows.truncate(self.rows_max);
        rows
    }

    /// Sorts the rows, and truncates them to the sample.
    fn truncate(&self, state: &mut SampledRowsState) {
        let is_cut = state.words.len() > self.rows_max * self.row_words();
        let rows = self.sorted_rows(state);
        let mut threshold = state.threshold;
        if is_cut && let Some([key, ..]) = rows.last() {
            threshold = *key;
        }
        let words = rows.concat();
        state.words = words;
        state.threshold = threshold;
    }

    /// Adds a row whose key is not above the threshold.
    fn push(&self, state: &mut SampledRowsState, row: &[u64]) {
        let buffer_words = 2 * self.rows_max * self.row_words();
        if state.words.len() + row.len() > buffer_words {
            self.truncate(state);
        }
        if state.words.len() + row.len() > state.words.capacity() {
            // Doubles, but never beyond the buffer.
            let additional = state.words.len().max(row.len());
            let free = buffer_words - state.words.len();
            state.words.reserve_exact(additional.min(free));
        }
        state.words.extend_from_slice(row);
    }
}

/// The ordered bits of a value, or [`MISSING`].
fn value_bits(column: &Float64Array, row: usize) -> u64 {
    // Values under nulls are any.
    if column.is_valid(row) && column.value(row).is_finite() {
        ordered_bits(column.value(row))
    } else {
        MISSING
    }
}

impl Analyzer for SampledRows {
    type State = SampledRowsState;

    fn kind(&self) -> &'static str {
        "sampled_rows"
    }

    fn config(&self) -> Value {
        json!({ "columns": self.columns, "rows_max": self.rows_max })
    }

    fn needs_row_keys(&self) -> bool {
        true
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<SampledRowsState> {
        let budget_bytes = scratch.budget_bytes();
        if self.bytes_max() > budget_bytes {
            let message = format!(
                "a sample of {} rows and {} columns takes {} bytes, more than {budget_bytes} bytes \
                 of memory",
                self.rows_max,
                self.columns,
                self.bytes_max()
            );
            let fault = Fault::new(codes::MEMORY, message);
            return Err(fault.hint("take a smaller sample or fewer columns"));
        }
        Ok(SampledRowsState {
            words: Vec::new(),
            threshold: u64::MAX,
        })
    }

    fn update(&self, state: &mut SampledRowsState, input: &AnalyzerInput<'_>) -> Result<()> {
        if input.columns.len() != self.columns {
            return Err(Fault::internal("a sample of rows received other columns"));
        }
        let keys = input.keys.filter(|keys| keys.len() == input.rows);
        let keys = keys.ok_or_else(|| Fault::internal("a sample received no key per row"))?;
        let mut columns = Vec::with_capacity(self.columns);
        for column in input.columns {
            columns.push(NumericColumn::doubles(column)?);
        }
        let mut words = Vec::with_capacity(self.row_words());
        for (row, key) in keys.iter().enumerate() {
            if *key > state.threshold {
                continue;
            }
            words.clear();
            words.push(*key);
            words.extend(columns.iter().map(|column| value_bits(column, row)));
            if words[1..].iter().any(|bits| *bits != MISSING) {
                self.push(state, &words);
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut SampledRowsState, later_state: SampledRowsState) -> Result<()> {
        // The smallest rows of both samples are the smallest of all rows.
        for row in later_state.words.chunks_exact(self.row_words()) {
            if row[0] <= state.threshold {
                self.push(state, row);
            }
        }
        Ok(())
    }

    fn encode(&self, state: &mut SampledRowsState, out: &mut dyn Write) -> Result<()> {
        self.truncate(state);
        let mut out = StateEncoder(out);
        let rows = state.words.len() / self.row_words();
        out.varint(rows as u64)?;
        for word in &state.words {
            out.u64(*word)?;
        }
        Ok(())
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<SampledRowsState> {
        let mut state = self.zero(scratch)?;
        let mut input = StateDecoder(input);
        let rows = input.length(self.rows_max)?;
        for _ in 0..rows * self.row_words() {
            state.words.push(input.u64()?);
        }
        Ok(state)
    }

    fn finish(&self, state: SampledRowsState) -> Result<Finding> {
        let mut rows = self.sorted_rows(&state);
        // Keys tell of places in files: where all rows are in the sample, the finding does not depend on them.
        rows.sort_unstable_by_key(|row| &row[1..]);
        let mut columns: Vec<(String, ArrayRef)> = Vec::with_capacity(self.columns);
        for index in 0..self.columns {
            let words = rows.iter().map(|row| row[index + 1]);
            let values: Float64Array = words
                .map(|bits| (bits != MISSING).then(|| from_ordered_bits(bits)))
                .collect();
            columns.push((format!("value_{index}"), Arc::new(values)));
        }
        let named = columns
            .iter()
            .map(|(name, column)| (name.as_str(), column.clone()));
        Finding::of(named)
    }

    fn size_bytes(&self, state: &SampledRowsState) -> usize {
        size_of::<SampledRowsState>() + state.words.capacity() * size_of::<u64>()
    }

    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        self.bytes_max().min(budget_bytes)
    }
}
