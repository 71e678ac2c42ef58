//! How two columns of categories hang together.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, UInt64Array};
use arrow::datatypes::DataType;
use forebay_model::{
    Analyzer, AnalyzerInput, Finding, MemoryRequest, Result, ScratchSpace, logical_type,
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
    /// What came last, by codes of the values.
    open: PairCounts,
    /// All else, by the values themselves: what is stored.
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
        first
            .rows
            .iter()
            .zip(&second.rows)
            .for_each(|(a, b)| cells[*a as usize * width + *b as usize] += 1);
        // The last line and the last cell of each line are of rows without a value.
        for (line, first_row) in cells
            .chunks_exact(width)
            .zip(&first.row_of)
            .take(first.values)
        {
            let filled = line
                .iter()
                .zip(&second.row_of)
                .take(second.values)
                .filter(|(count, _)| **count > 0);
            for (count, second_row) in filled {
                self.open.add(
                    codes[0][*first_row as usize],
                    codes[1][*second_row as usize],
                    *count,
                )?;
            }
            self.settle_if_large()?;
        }
        Ok(())
    }

    /// Counts the pairs of a batch row by row.
    fn add_rows(&mut self, codes: &[Vec<u32>; 2]) -> Result<()> {
        for (first, second) in codes[0]
            .chunks(ROWS_BETWEEN_LOOKS)
            .zip(codes[1].chunks(ROWS_BETWEEN_LOOKS))
        {
            for (first, second) in first
                .iter()
                .zip(second)
                .filter(|(a, b)| **a != NO_VALUE && **b != NO_VALUE)
            {
                self.open.add(*first, *second, 1)?;
            }
            self.settle_if_large()?;
        }
        Ok(())
    }

    fn settle_if_large(&mut self) -> Result<()> {
        let (open, budget) = (self.open.size_bytes(), self.settled.budget_bytes());
        match open > budget / OPEN_SHARE || open + self.settled.size_bytes() > budget {
            true if !self.open.is_empty() => self.settle(),
            _ => Ok(()),
        }
    }

    /// Counts everything by the values themselves.
    fn settle(&mut self) -> Result<()> {
        let CategoryAssociationState { open, settled } = self;
        open.drain(|key, rows| {
            let slot = settled.slot(key)?;
            settled.update_slot(slot, |known| *known += rows);
            Ok(())
        })?;
        settled.spill_if_large()
    }

    /// The same, where nothing more is counted by codes.
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
        let local = [0, 1].map(|at| BatchCodes::of(&keys[at], is_null[at].as_ref()));
        let mut codes = |at: usize| {
            let (column, nulls) = (&keys[at], is_null[at].as_ref());
            state
                .open
                .codes(at, column, local[at].as_ref(), nulls, input.rows)
        };
        let codes = [codes(0)?, codes(1)?];
        match &local {
            [Some(first), Some(second)]
                if (first.values + 1) * (second.values + 1) <= CELLS_PER_ROW * input.rows =>
            {
                state.add_cells([first, second], &codes)?;
            }
            _ => state.add_rows(&codes)?,
        }
        // Codes of values go where they take too much, too.
        if state.open.size_bytes() > state.settled.budget_bytes() / OPEN_SHARE {
            state.settle()?;
            state.open = PairCounts::default();
        }
        Ok(())
    }

    fn merge(
        &self,
        state: &mut CategoryAssociationState,
        later: CategoryAssociationState,
    ) -> Result<()> {
        state.settle()?;
        state.open = PairCounts::default();
        state.settled.merge(later.into_settled()?)
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
        let (mut rows, mut firsts, mut key_bytes) = (0u64, Vec::new(), 0);
        let mut last: Option<Vec<u8>> = None;
        pairs.for_each(|key, count| {
            let (first, second) = split_key(key, &self.types[0])?;
            if last.as_deref() != Some(first) {
                if firsts.len().is_multiple_of(VALUES_ADMITTED) {
                    scratch.admit(MemoryRequest {
                        now: VALUES_ADMITTED * size_of::<u64>(),
                        later: 0,
                    })?;
                }
                last = Some(first.to_vec());
                firsts.push(0u64);
            }
            if let Some(first) = firsts.last_mut() {
                *first += count;
            }
            match seconds.get_mut(second) {
                Some(known) => *known += count,
                None => {
                    key_bytes += second.len();
                    if seconds.len().is_multiple_of(VALUES_ADMITTED) {
                        let each = VALUE_BYTES + key_bytes / (seconds.len() + 1);
                        scratch.admit(MemoryRequest {
                            now: VALUES_ADMITTED * each,
                            later: 0,
                        })?;
                    }
                    seconds.insert(second.to_vec(), *count);
                }
            }
            rows += count;
            Ok(())
        })?;
        let (mut at, mut of, mut last) = (0, 0u64, None::<Vec<u8>>);
        let mut sum = 0.0;
        pairs.for_each(|key, count| {
            let (first, second) = split_key(key, &self.types[0])?;
            if last.as_deref() != Some(first) {
                last = Some(first.to_vec());
                of = firsts.get(at).copied().unwrap_or(1);
                at += 1;
            }
            let expected = of as f64 * seconds.get(second).copied().unwrap_or(1) as f64;
            sum += (*count as f64).powi(2) / expected;
            Ok(())
        })?;
        let smaller = firsts.len().min(seconds.len());
        let association = (smaller > 1).then(|| {
            ((sum - 1.0).max(0.0) / (smaller - 1) as f64)
                .sqrt()
                .min(1.0)
        });
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
