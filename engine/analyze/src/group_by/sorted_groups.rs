//! The groups of a state in the order of their keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, Int64Array};
use forebay_model::{Fault, Result};

use super::key_index::KeyDecoder;
use super::runs::{MERGED_BYTES_MAX, MERGED_GROUPS_MAX, RunMerge};
use super::{DistinctValues, GroupByState, ResultSource};

/// Reads the groups of a state in the order of their keys, nulls last.
pub struct SortedGroups {
    state: GroupByState,
    from: SortedSource,
    distinct: Vec<PairCounter>,
    /// Whether keys are compared as bytes.
    is_encoded: bool,
}

/// Groups in order.
struct NextGroups {
    keys: GroupKeys,
    results: Vec<ArrayRef>,
}

enum GroupKeys {
    Columns(Vec<ArrayRef>),
    Encoded(BinaryArray),
}

enum SortedSource {
    Memory { decoder: KeyDecoder, order: Vec<u32>, at: usize, groups: usize },
    Runs(RunMerge),
}

/// Counts the pairs of keys and values that begin with given keys.
struct PairCounter {
    pairs: SortedGroups,
    keys: BinaryArray,
    at: usize,
}

impl SortedGroups {
    pub(super) fn new(state: GroupByState) -> Result<Self> {
        let is_encoded = !state.distinct.is_empty();
        SortedGroups::open(state, is_encoded)
    }

    fn open(mut state: GroupByState, is_encoded: bool) -> Result<Self> {
        let distinct = std::mem::take(&mut state.distinct).into_iter();
        let counter = |set: DistinctValues| {
            let keys = BinaryArray::new_null(0);
            Ok(PairCounter { pairs: SortedGroups::open(set.pairs, true)?, keys, at: 0 })
        };
        let distinct = distinct.map(counter).collect::<Result<_>>()?;
        let from = if state.runs.is_empty() {
            let (order, decoder) = (state.index.sorted_order()?, state.index.decoder()?);
            let groups =
                (MERGED_BYTES_MAX / (state.own_bytes() / order.len().max(1)).max(1)).clamp(1, MERGED_GROUPS_MAX);
            SortedSource::Memory { decoder, order, at: 0, groups }
        } else {
            state.spill()?;
            SortedSource::Runs(RunMerge::open(&state.runs)?)
        };
        Ok(SortedGroups { state, from, distinct, is_encoded })
    }

    /// The next groups: the key columns, then the results. `None` at the end.
    pub fn next_columns(&mut self) -> Result<Option<Vec<ArrayRef>>> {
        let Some(groups) = self.next_groups()? else { return Ok(None) };
        let (mut columns, keys) = match groups.keys {
            GroupKeys::Columns(columns) => (columns, None),
            GroupKeys::Encoded(keys) => (self.state.index.decode(&keys)?, Some(keys)),
        };
        let mut results = groups.results.into_iter();
        for source in &self.state.sources {
            match source {
                ResultSource::Accumulator(_) => columns.extend(results.next()),
                ResultSource::Distinct(set) => {
                    let counts = keys.iter().flatten().map(|key| self.distinct[*set].count(key.unwrap_or_default()));
                    columns.push(Arc::new(counts.collect::<Result<Int64Array>>()?));
                }
            }
        }
        Ok(Some(columns))
    }

    /// The next groups, without the numbers of distinct values.
    fn next_groups(&mut self) -> Result<Option<NextGroups>> {
        match &mut self.from {
            SortedSource::Memory { decoder, order, at, groups } => {
                let next = &order[*at..(*at + *groups).min(order.len())];
                *at += next.len();
                if next.is_empty() {
                    return Ok(None);
                }
                let keys = match self.is_encoded {
                    true => GroupKeys::Encoded(self.state.index.encoded(decoder, next)?),
                    false => GroupKeys::Columns(self.state.index.columns(decoder, next)?),
                };
                Ok(Some(NextGroups { keys, results: self.state.results(&self.state.accumulators, next)? }))
            }
            SortedSource::Runs(merge) => {
                let mut merged = self.state.fresh()?;
                let keys = merge.next(&mut merged)?;
                let all: Vec<u32> = (0..keys.len() as u32).collect();
                if all.is_empty() {
                    return Ok(None);
                }
                let results = self.state.results(&merged, &all)?;
                Ok(Some(NextGroups { keys: GroupKeys::Encoded(keys), results }))
            }
        }
    }
}

impl PairCounter {
    /// The number of pairs with these keys; keys ascend.
    fn count(&mut self, keys: &[u8]) -> Result<Option<i64>> {
        let mut count = 0;
        loop {
            if self.at == self.keys.len() {
                let Some(next) = self.pairs.next_groups()? else { return Ok(Some(count)) };
                let GroupKeys::Encoded(keys) = next.keys else { return Err(Fault::internal("pairs without bytes")) };
                (self.keys, self.at) = (keys, 0);
            }
            if !self.keys.value(self.at).starts_with(keys) {
                return Ok(Some(count));
            }
            count += 1;
            self.at += 1;
        }
    }
}
