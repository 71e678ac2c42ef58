//! Association of two columns of categories.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, UInt64Array};
use arrow::datatypes::DataType;
use forebay_model::{
    AdmittedMemory, Analyzer, AnalyzerInput, Finding, MemoryRequest, Result, ScratchSpace,
    logical_type,
};
use hashbrown::HashMap;
use serde_json::{Value, json};

use crate::batch_codes::BatchCodes;
use crate::group_keys::{KeyColumn, split_key};
use crate::numeric_column::two_columns;
use crate::pair_counts::{NO_VALUE, PairCounts};
use crate::spill_map::SpillMap;
use crate::spill_runs::KeyOrder;

/// Rows that are counted before memory is looked at again.
const ROWS_BETWEEN_LOOKS: usize = 512;

/// Counts by code take this share of the budget at most: they grow where they are counted by value.
const OPEN_SHARE: usize = 8;

/// Values of a column for which memory is requested at once.
const VALUES_ADMITTED: usize = 1 << 14;

/// Cells of a table of pairs for each row of a batch at most: a larger table costs more than its rows.
const CELLS_PER_ROW: usize = 2;

/// Bytes of a counted value beyond its key.
const VALUE_BYTES: usize = 48;

/// Cramér's V of two columns of categories: 0 where they are independent, 1 where one follows from the other (Cramér,
/// "Mathematical Methods of Statistics", 1946), without correction for bias.
///
/// Rows where either value is null are ignored. The finding has one row: `count` (UInt64), `first` and `second` (UInt64,
/// the distinct values of each column among these rows), and `cramers_v` (Float64; null where a column has fewer than two
/// values). The state spills; the distinct values of the second column have to fit in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CategoryAssociation {
    /// The types of the two columns; memory layouts do not matter.
    pub types: [DataType; 2],
}

/// State of [`CategoryAssociation`]: the rows of each pair of values.
pub struct CategoryAssociationState {
    /// Counts of the latest rows, by codes of the values.
    open: PairCounts,
    /// Counts of all other rows, by the values themselves, as they are stored.
    settled: SpillMap<u64>,
}

impl CategoryAssociationState {
    fn new(settled: SpillMap<u64>) -> CategoryAssociationState {
        CategoryAssociationState {
            open: PairCounts::default(),
            settled,
        }
    }

    /// Counts the pairs of a batch in a table, and adds each cell once.
    fn add_cells(&mut self, batch: [&BatchCodes; 2], codes: &[Vec<u32>; 2]) -> Result<()> {
        let [first, second] = batch;
        let width = second.values + 1;
        let mut cells = vec![0u64; (first.values + 1) * width];
        for (a, b) in first.rows.iter().zip(&second.rows) {
            cells[*a as usize * width + *b as usize] += 1;
        }
        // The last line and the last cell of each line are of rows without a value.
        let lines = cells.chunks_exact(width).zip(&first.row_of);
        for (line, first_row) in lines.take(first.values) {
            let first_code = codes[0][*first_row as usize];
            let line_cells = line.iter().zip(&second.row_of);
            for (count, second_row) in line_cells.take(second.values) {
                if *count == 0 {
                    continue;
                }
                let second_code = codes[1][*second_row as usize];
                self.open.add(first_code, second_code, *count)?;
            }
            self.settle_if_large()?;
        }
        Ok(())
    }

    /// Counts the pairs of a batch row by row.
    fn add_rows(&mut self, codes: &[Vec<u32>; 2]) -> Result<()> {
        let first_chunks = codes[0].chunks(ROWS_BETWEEN_LOOKS);
        let second_chunks = codes[1].chunks(ROWS_BETWEEN_LOOKS);
        for (first_chunk, second_chunk) in first_chunks.zip(second_chunks) {
            for (first, second) in first_chunk.iter().zip(second_chunk) {
                if *first != NO_VALUE && *second != NO_VALUE {
                    self.open.add(*first, *second, 1)?;
                }
            }
            self.settle_if_large()?;
        }
        Ok(())
    }

    fn settle_if_large(&mut self) -> Result<()> {
        let open = self.open.size_bytes();
        let budget = self.settled.budget_bytes();
        let is_large = open > budget / OPEN_SHARE || open + self.settled.size_bytes() > budget;
        if is_large && !self.open.is_empty() {
            self.settle()?;
        }
        Ok(())
    }

    /// Counts everything by the values themselves.
    fn settle(&mut self) -> Result<()> {
        let CategoryAssociationState { open, settled } = self;
        open.drain(|key, rows| {
            let slot = settled.slot(key)?;
            settled.update_slot(slot, |count| *count += rows);
            Ok(())
        })?;
        settled.spill_if_large()
    }

    /// The counts of all rows, by the values themselves.
    fn into_settled(mut self) -> Result<SpillMap<u64>> {
        self.settle()?;
        Ok(self.settled)
    }
}

impl Analyzer for CategoryAssociation {
    type State = CategoryAssociationState;

    fn kind(&self) -> &'static str {
        "association"
    }

    fn config(&self) -> Value {
        json!({ "types": self.types.each_ref().map(|kind| logical_type(kind).to_string()) })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<CategoryAssociationState> {
        Ok(CategoryAssociationState::new(SpillMap::new(
            scratch,
            KeyOrder::Bytes,
        )))
    }

    fn update(
        &self,
        state: &mut CategoryAssociationState,
        input: &AnalyzerInput<'_>,
    ) -> Result<()> {
        let columns = two_columns(input)?;
        let keys = [
            KeyColumn::of(columns[0], &logical_type(&self.types[0]))?,
            KeyColumn::of(columns[1], &logical_type(&self.types[1]))?,
        ];
        let is_null = columns.map(|column| column.logical_nulls());
        let batch_codes = [0, 1].map(|side| BatchCodes::of(&keys[side], is_null[side].as_ref()));
        let mut codes = [Vec::new(), Vec::new()];
        for side in [0, 1] {
            codes[side] = state.open.codes(
                side,
                &keys[side],
                batch_codes[side].as_ref(),
                is_null[side].as_ref(),
                input.rows,
            )?;
        }
        match &batch_codes {
            [Some(first), Some(second)]
                if (first.values + 1) * (second.values + 1) <= CELLS_PER_ROW * input.rows =>
            {
                state.add_cells([first, second], &codes)?;
            }
            _ => state.add_rows(&codes)?,
        }
        // Codes outlive the counts: they are dropped, too, where they take a large share of the budget.
        if state.open.size_bytes() > state.settled.budget_bytes() / OPEN_SHARE {
            state.settle()?;
            state.open = PairCounts::default();
        }
        Ok(())
    }

    fn merge(
        &self,
        state: &mut CategoryAssociationState,
        later_state: CategoryAssociationState,
    ) -> Result<()> {
        state.settle()?;
        state.open = PairCounts::default();
        state.settled.merge(later_state.into_settled()?)
    }

    fn encode(&self, state: &mut CategoryAssociationState, out: &mut dyn Write) -> Result<()> {
        state.settle()?;
        state.settled.encode(out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<CategoryAssociationState> {
        Ok(CategoryAssociationState::new(SpillMap::decode(
            input,
            scratch,
            KeyOrder::Bytes,
        )?))
    }

    fn finish(&self, state: CategoryAssociationState) -> Result<Finding> {
        let mut pairs = state.into_settled()?;
        let scratch = pairs.scratch();
        // Pairs come sorted: those of one first value follow each other.
        let mut seconds: HashMap<Vec<u8>, u64> = HashMap::new();
        let mut rows = 0u64;
        let mut firsts = Vec::new();
        let mut firsts_admitted = AdmittedMemory::default();
        let mut seconds_admitted = AdmittedMemory::default();
        let mut key_bytes = 0;
        let mut last: Option<Vec<u8>> = None;
        pairs.for_each(|key, count| {
            let (first, second) = split_key(key, &self.types[0])?;
            if last.as_deref() != Some(first) {
                if firsts.len().is_multiple_of(VALUES_ADMITTED) {
                    let request = MemoryRequest {
                        now: VALUES_ADMITTED * size_of::<u64>(),
                        later: 0,
                    };
                    firsts_admitted.renew(|| scratch.admit(request))?;
                }
                last = Some(first.to_vec());
                firsts.push(0u64);
            }
            if let Some(first) = firsts.last_mut() {
                *first += count;
            }
            match seconds.get_mut(second) {
                Some(second_rows) => *second_rows += count,
                None => {
                    key_bytes += second.len();
                    if seconds.len().is_multiple_of(VALUES_ADMITTED) {
                        let each = VALUE_BYTES + key_bytes / (seconds.len() + 1);
                        let request = MemoryRequest {
                            now: VALUES_ADMITTED * each,
                            later: 0,
                        };
                        seconds_admitted.renew(|| scratch.admit(request))?;
                    }
                    seconds.insert(second.to_vec(), *count);
                }
            }
            rows += count;
            Ok(())
        })?;
        // Chi squared divided by the rows is the sum of `n_ij^2 / (n_i * n_j)`, less one. A second walk over the
        // sorted pairs has the totals of both values.
        let mut next_first = 0;
        let mut first_rows = 0u64;
        let mut last = None::<Vec<u8>>;
        let mut sum = 0.0;
        pairs.for_each(|key, count| {
            let (first, second) = split_key(key, &self.types[0])?;
            if last.as_deref() != Some(first) {
                last = Some(first.to_vec());
                first_rows = firsts.get(next_first).copied().unwrap_or(1);
                next_first += 1;
            }
            let second_rows = seconds.get(second).copied().unwrap_or(1);
            let expected = first_rows as f64 * second_rows as f64;
            sum += (*count as f64).powi(2) / expected;
            Ok(())
        })?;
        let smaller = firsts.len().min(seconds.len());
        let mut association = None;
        if smaller > 1 {
            let chi_squared = (sum - 1.0).max(0.0);
            let ratio = chi_squared / (smaller - 1) as f64;
            association = Some(ratio.sqrt().min(1.0));
        }
        let count = |value: u64| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        Finding::of([
            ("count", count(rows)),
            ("first", count(firsts.len() as u64)),
            ("second", count(seconds.len() as u64)),
            ("cramers_v", Arc::new(Float64Array::from(vec![association]))),
        ])
    }

    fn size_bytes(&self, state: &CategoryAssociationState) -> usize {
        state.open.size_bytes() + state.settled.size_bytes()
    }
}
