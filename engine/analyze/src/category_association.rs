//! How two columns of categories hang together.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, UInt64Array};
use arrow::datatypes::DataType;
use forebay_model::{Analyzer, AnalyzerInput, Finding, MemoryRequest, Result, ScratchSpace, logical_type};
use hashbrown::HashMap;
use serde_json::{Value, json};

use crate::batch_codes::BatchCodes;
use crate::group_keys::{KeyColumn, split_key};
use crate::grouped_moments::{SlotCache, check_key};
use crate::numeric_column::two_columns;
use crate::spill_map::SpillMap;
use crate::spill_runs::KeyOrder;

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

/// Counts the pairs of a batch in a table, and adds each cell once.
fn count_cells(
    state: &mut CategoryAssociationState,
    keys: &[KeyColumn; 2],
    first: &BatchCodes,
    second: &BatchCodes,
) -> Result<()> {
    let width = second.values + 1;
    let mut cells = vec![0u64; (first.values + 1) * width];
    first.rows.iter().zip(&second.rows).for_each(|(a, b)| cells[*a as usize * width + *b as usize] += 1);
    let mut key = Vec::new();
    // The last line and the last cell of each line are of rows without a value.
    for (line, first_row) in cells.chunks_exact(width).zip(&first.row_of).take(first.values) {
        let filled = line.iter().zip(&second.row_of).take(second.values).filter(|(count, _)| **count > 0);
        for (count, second_row) in filled {
            key.clear();
            keys[0].write(*first_row as usize, &mut key);
            keys[1].write(*second_row as usize, &mut key);
            check_key(&key)?;
            let slot = state.0.slot(&key)?;
            state.0.update_slot(slot, |known| *known += count);
        }
    }
    Ok(())
}

/// State of [`CategoryAssociation`]: the rows of each pair of values.
pub struct CategoryAssociationState(SpillMap<u64>);

impl Analyzer for CategoryAssociation {
    type State = CategoryAssociationState;

    fn kind(&self) -> &'static str {
        "association"
    }

    fn config(&self) -> Value {
        json!({ "types": self.types.each_ref().map(|kind| logical_type(kind).to_string()) })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<CategoryAssociationState> {
        Ok(CategoryAssociationState(SpillMap::new(scratch, KeyOrder::Bytes)))
    }

    fn update(&self, state: &mut CategoryAssociationState, input: &AnalyzerInput<'_>) -> Result<()> {
        let columns = two_columns(input)?;
        let keys = [
            KeyColumn::of(columns[0], &logical_type(&self.types[0]))?,
            KeyColumn::of(columns[1], &logical_type(&self.types[1]))?,
        ];
        let is_null = columns.map(|column| column.logical_nulls());
        let coded = [0, 1].map(|at| BatchCodes::of(&keys[at], is_null[at].as_ref()));
        if let [Some(first), Some(second)] = coded
            && (first.values + 1) * (second.values + 1) <= CELLS_PER_ROW * input.rows
        {
            count_cells(state, &keys, &first, &second)?;
            return state.0.spill_if_large();
        }
        let (mut cache, mut key) = (SlotCache::default(), Vec::new());
        for row in 0..input.rows {
            if is_null.iter().flatten().any(|nulls| nulls.is_null(row)) {
                continue;
            }
            let slot = cache.slot(&keys, row, &mut state.0, &mut key)?;
            state.0.update_slot(slot, |count| *count += 1);
        }
        state.0.spill_if_large()
    }

    fn merge(&self, state: &mut CategoryAssociationState, later: CategoryAssociationState) -> Result<()> {
        state.0.merge(later.0)
    }

    fn encode(&self, state: &mut CategoryAssociationState, out: &mut dyn Write) -> Result<()> {
        state.0.encode(out)
    }

    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn ScratchSpace>) -> Result<CategoryAssociationState> {
        Ok(CategoryAssociationState(SpillMap::decode(input, scratch, KeyOrder::Bytes)?))
    }

    fn finish(&self, mut state: CategoryAssociationState) -> Result<Finding> {
        let scratch = state.0.scratch();
        // Pairs come sorted: those of one first value follow each other.
        let mut seconds: HashMap<Vec<u8>, u64> = HashMap::new();
        let (mut rows, mut firsts, mut key_bytes) = (0u64, Vec::new(), 0);
        let mut last: Option<Vec<u8>> = None;
        state.0.for_each(|key, count| {
            let (first, second) = split_key(key, &self.types[0])?;
            if last.as_deref() != Some(first) {
                if firsts.len().is_multiple_of(VALUES_ADMITTED) {
                    scratch.admit(MemoryRequest { now: VALUES_ADMITTED * size_of::<u64>(), later: 0 })?;
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
                        scratch.admit(MemoryRequest { now: VALUES_ADMITTED * each, later: 0 })?;
                    }
                    seconds.insert(second.to_vec(), *count);
                }
            }
            rows += count;
            Ok(())
        })?;
        let (mut at, mut of, mut last) = (0, 0u64, None::<Vec<u8>>);
        let mut sum = 0.0;
        state.0.for_each(|key, count| {
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
        let association = (smaller > 1).then(|| ((sum - 1.0).max(0.0) / (smaller - 1) as f64).sqrt().min(1.0));
        let count = |value: u64| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        Finding::of([
            ("count", count(rows)),
            ("first", count(firsts.len() as u64)),
            ("second", count(seconds.len() as u64)),
            ("cramers_v", Arc::new(Float64Array::from(vec![association]))),
        ])
    }

    fn size_bytes(&self, state: &CategoryAssociationState) -> usize {
        state.0.size_bytes()
    }
}
