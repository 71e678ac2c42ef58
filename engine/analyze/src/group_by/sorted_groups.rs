//! The groups of a state in the order of their keys.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use arrow::datatypes::Int64Type;
use forebay_model::{Fault, GroupFunction, Result};

use super::accumulator::{Accumulator, LostResults};

use super::key_index::KeyDecoder;
use super::runs::{MERGED_BYTES_MAX, MERGED_GROUPS_MAX, RunMerge};
use super::value_reader::ValueReader;
use super::{GroupByState, ResultSource};

/// Bytes of a value of a list, about.
const LIST_VALUE_BYTES: usize = 64;

/// Reads the groups of a state in the order of their keys, nulls last.
pub struct SortedGroups {
    state: GroupByState,
    from: SortedSource,
    distinct: Vec<ValueReader>,
    /// Keys are read as bytes that can be compared.
    is_encoded: bool,
    /// For each result, the values that it does not show of the groups so far.
    lost: Vec<LostResults>,
}

/// Groups in order.
pub(super) struct NextGroups {
    pub(super) keys: GroupKeys,
    pub(super) results: Vec<ArrayRef>,
    /// For each value column whose quantiles are asked, the number of values of each group.
    counts: Vec<Option<ArrayRef>>,
}

pub(super) enum GroupKeys {
    Columns(Vec<ArrayRef>),
    Encoded(BinaryArray),
}

enum SortedSource {
    Memory {
        decoder: KeyDecoder,
        order: Vec<u32>,
        at: usize,
        groups: usize,
    },
    Runs(RunMerge),
}

impl SortedGroups {
    pub(super) fn new(state: GroupByState) -> Result<Self> {
        let is_encoded = !state.distinct.is_empty();
        SortedGroups::open(state, is_encoded)
    }

    fn open(mut state: GroupByState, is_encoded: bool) -> Result<Self> {
        let mut distinct: Vec<ValueReader> = Vec::new();
        let mut values_max = 0;
        for set in std::mem::take(&mut state.distinct) {
            let pairs = SortedGroups::open(set.pairs, true)?;
            values_max += set.questions.top_max();
            distinct.push(ValueReader::new(pairs, set.questions));
        }
        // Lists of values make groups large: fewer of them are read at once.
        let list_bytes = values_max * LIST_VALUE_BYTES;
        let groups_max = (MERGED_BYTES_MAX / list_bytes.max(1)).clamp(1, MERGED_GROUPS_MAX);
        let from = if state.runs.is_empty() {
            let order = state.index.sorted_order()?;
            let decoder = state.index.decoder()?;
            let group_bytes = state.group_bytes() / order.len().max(1);
            let groups = (MERGED_BYTES_MAX / group_bytes.max(1)).clamp(1, groups_max);
            SortedSource::Memory {
                decoder,
                order,
                at: 0,
                groups,
            }
        } else {
            state.spill()?;
            SortedSource::Runs(RunMerge::open(&state.runs, groups_max)?)
        };
        let lost = vec![LostResults::default(); state.spec.results.len()];
        Ok(SortedGroups {
            state,
            from,
            distinct,
            is_encoded,
            lost,
        })
    }

    /// For each result, the values that it does not show of the groups so far.
    pub fn lost(&self) -> &[LostResults] {
        &self.lost
    }

    /// The next groups: the key columns, then the results. `None` at the end.
    pub fn next_columns(&mut self) -> Result<Option<Vec<ArrayRef>>> {
        let Some(groups) = self.next_groups()? else {
            return Ok(None);
        };
        let (mut columns, keys) = match groups.keys {
            GroupKeys::Columns(columns) => (columns, None),
            GroupKeys::Encoded(keys) => (self.state.index.decode(&keys)?, Some(keys)),
        };
        // The pairs of each set are in the order of these keys: each reader moves on in step with the groups.
        let mut values = Vec::new();
        for (reader, counts) in self.distinct.iter_mut().zip(&groups.counts) {
            let keys = keys.as_ref().ok_or_else(without_bytes)?;
            let counts = counts
                .as_ref()
                .and_then(|counts| counts.as_primitive_opt::<Int64Type>());
            values.push(reader.read(keys, counts)?);
        }
        let mut results = groups.results.into_iter();
        for (source, result) in self.state.sources.iter().zip(&self.state.spec.results) {
            match source {
                ResultSource::Accumulator(_) => columns.extend(results.next()),
                ResultSource::Distinct(set) => columns.push(values[*set].result(result.function)?),
            }
        }
        Ok(Some(columns))
    }

    /// The next groups, without the results that are computed from distinct values.
    pub(super) fn next_groups(&mut self) -> Result<Option<NextGroups>> {
        match &mut self.from {
            SortedSource::Memory {
                decoder,
                order,
                at,
                groups,
            } => {
                let next = &order[*at..(*at + *groups).min(order.len())];
                *at += next.len();
                if next.is_empty() {
                    return Ok(None);
                }
                let keys = if self.is_encoded {
                    GroupKeys::Encoded(self.state.index.encoded(decoder, next)?)
                } else {
                    GroupKeys::Columns(self.state.index.columns(decoder, next)?)
                };
                let accumulators = &self.state.accumulators;
                let results = self.state.results(accumulators, next)?;
                self.state.add_lost(accumulators, next, &mut self.lost);
                let counts = value_counts(&self.distinct, accumulators, next)?;
                Ok(Some(NextGroups {
                    keys,
                    results,
                    counts,
                }))
            }
            // Each call merges into fresh accumulators, so that memory holds one batch of groups.
            SortedSource::Runs(merge) => {
                let mut merged = self.state.fresh()?;
                let keys = merge.next(&mut merged)?;
                let order: Vec<u32> = (0..keys.len() as u32).collect();
                if order.is_empty() {
                    return Ok(None);
                }
                let results = self.state.results(&merged, &order)?;
                self.state.add_lost(&merged, &order, &mut self.lost);
                let counts = value_counts(&self.distinct, &merged, &order)?;
                Ok(Some(NextGroups {
                    keys: GroupKeys::Encoded(keys),
                    results,
                    counts,
                }))
            }
        }
    }

    /// The columns of encoded keys.
    pub(super) fn decode(&self, keys: &BinaryArray) -> Result<Vec<ArrayRef>> {
        self.state.index.decode(keys)
    }
}

/// The numbers of values of the columns whose quantiles are asked.
fn value_counts(
    readers: &[ValueReader],
    accumulators: &[Box<dyn Accumulator>],
    order: &[u32],
) -> Result<Vec<Option<ArrayRef>>> {
    let mut counts = Vec::with_capacity(readers.len());
    for reader in readers {
        counts.push(match reader.questions.count {
            Some(index) => Some(accumulators[index].results(GroupFunction::Count, order)?),
            None => None,
        });
    }
    Ok(counts)
}

/// The fault for keys that have to be compared and have no bytes.
pub(super) fn without_bytes() -> Fault {
    Fault::internal("pairs of keys and values without bytes")
}
