//! The groups of a state in the order of their keys, with their distinct values beside them.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, Float64Array, Int64Array,
};
use arrow::datatypes::Int64Type;
use forebay_model::{Fault, GroupFunction, Result, StateDecoder};

use super::accumulator::{Accumulator, LostResults, doubles};
use super::group_values::{GroupValues, QuantileSearch, TopValues, ValueQuestions};
use super::key_index::KeyDecoder;
use super::lists::list_column;
use super::runs::{MERGED_BYTES_MAX, MERGED_GROUPS_MAX, RunMerge};
use super::{GroupByState, ResultSource};
use crate::exact_sum::ExactSum;
use crate::quantile_request::QuantileRequest;
use crate::weighted_ranks::{WeightedRanks, quantile_among, sorted_shares};

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
struct NextGroups {
    keys: GroupKeys,
    results: Vec<ArrayRef>,
    /// For each set of values whose quantiles are asked, the number of values of each group, or the sum of their weights.
    totals: Vec<Option<ArrayRef>>,
}

enum GroupKeys {
    Columns(Vec<ArrayRef>),
    Encoded(BinaryArray),
}

/// Reads pairs of keys and values in order.
struct ValueReader {
    pairs: SortedGroups,
    questions: ValueQuestions,
    keys: BinaryArray,
    /// The values of the keys, if quantiles are asked.
    numbers: Option<Float64Array>,
    /// The number of rows of each value, if a result needs it.
    occurrences: Option<Int64Array>,
    /// The sum of the weights of each value, if it has weights.
    weights: Option<BinaryArray>,
    at: usize,
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
            let order = state.index.sorted_order();
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
        for (reader, totals) in self.distinct.iter_mut().zip(&groups.totals) {
            let keys = keys.as_ref().ok_or_else(without_bytes)?;
            values.push(reader.read_groups(keys, totals.as_ref())?);
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
    fn next_groups(&mut self) -> Result<Option<NextGroups>> {
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
                let totals = group_totals(&self.distinct, accumulators, next)?;
                Ok(Some(NextGroups {
                    keys,
                    results,
                    totals,
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
                let totals = group_totals(&self.distinct, &merged, &order)?;
                Ok(Some(NextGroups {
                    keys: GroupKeys::Encoded(keys),
                    results,
                    totals,
                }))
            }
        }
    }

    /// The columns of encoded keys.
    fn decode(&self, keys: &BinaryArray) -> Result<Vec<ArrayRef>> {
        self.state.index.decode(keys)
    }
}

impl ValueReader {
    fn new(pairs: SortedGroups, questions: ValueQuestions) -> Self {
        ValueReader {
            pairs,
            questions,
            keys: BinaryArray::new_null(0),
            numbers: None,
            occurrences: None,
            weights: None,
            at: 0,
        }
    }

    /// Reads the values of groups; their keys ascend from call to call. `totals` are the numbers of the values of the groups,
    /// or the sums of their weights.
    fn read_groups(
        &mut self,
        keys: &BinaryArray,
        totals: Option<&ArrayRef>,
    ) -> Result<GroupValues> {
        if self.questions.weight.is_some() {
            let weights = totals.and_then(|totals| totals.as_binary_opt::<i32>());
            return self.read_weighted(keys, weights.ok_or_else(without_bytes)?);
        }
        let counts = totals.and_then(|totals| totals.as_primitive_opt::<Int64Type>());
        self.read(keys, counts)
    }

    /// Reads the values of groups, each with the number of its rows.
    fn read(&mut self, keys: &BinaryArray, counts: Option<&Int64Array>) -> Result<GroupValues> {
        let mut quantiles: Vec<(f64, Vec<Option<f64>>)> = Vec::new();
        for q in &self.questions.quantiles {
            quantiles.push((*q, Vec::with_capacity(keys.len())));
        }
        let mut distinct = Vec::with_capacity(keys.len());
        let mut top = Vec::new();
        let most = self.questions.top_max();
        for (row, key) in keys.iter().enumerate() {
            let count = counts.map_or(0, |counts| counts.value(row) as u64);
            let mut searches: Vec<QuantileSearch> = Vec::new();
            // Without a value there is nothing to search.
            if count > 0 {
                for q in &self.questions.quantiles {
                    searches.push(QuantileSearch::new(count, *q));
                }
            }
            let mut frequent = TopValues::new(most);
            let mut distinct_count = 0;
            let mut position = 0;
            while self.is_at(key.unwrap_or_default())? {
                if let Some(occurrences) = &self.occurrences {
                    let occurrences = occurrences.value(self.at);
                    // Values come sorted: this one has the next positions.
                    let positions = position..position + occurrences as u64;
                    if let Some(numbers) = &self.numbers {
                        let value = numbers.value(self.at);
                        for search in &mut searches {
                            search.add(positions.clone(), value);
                        }
                    }
                    if most > 0 {
                        frequent.add(occurrences, self.keys.value(self.at));
                    }
                    position = positions.end;
                }
                distinct_count += 1;
                self.at += 1;
            }
            distinct.push(distinct_count);
            for (index, (_, results)) in quantiles.iter_mut().enumerate() {
                let search = searches.get(index);
                results.push(search.map(QuantileSearch::quantile));
            }
            top.push(frequent);
        }
        let mut lists = Vec::with_capacity(self.questions.top.len());
        for most in &self.questions.top {
            lists.push((*most, self.top_lists(&top, *most as usize)?));
        }
        Ok(GroupValues {
            distinct,
            quantiles,
            top: lists,
        })
    }

    /// Reads the values of groups, each with the sum of its weights; `totals` are the sums of the weights of the groups.
    fn read_weighted(&mut self, keys: &BinaryArray, totals: &BinaryArray) -> Result<GroupValues> {
        let probabilities = self.questions.weighted_quantiles.clone();
        let mut quantiles: Vec<(f64, Vec<Option<f64>>)> = Vec::new();
        for q in &probabilities {
            quantiles.push((*q, Vec::with_capacity(keys.len())));
        }
        let request = QuantileRequest::Probabilities(probabilities);
        let shares = sorted_shares(&request);
        for (row, key) in keys.iter().enumerate() {
            let mut ranks = WeightedRanks::new(&request, weight_sum(totals, row)?);
            while self.is_at(key.unwrap_or_default())? {
                if let Some(weights) = &self.weights
                    && let Some(numbers) = &self.numbers
                {
                    let weight = weight_sum(weights, self.at)?;
                    // A value whose weights are 0 has no share of the weight.
                    if weight.sign().is_gt() {
                        ranks.pass(numbers.value(self.at), &weight);
                    }
                }
                self.at += 1;
            }
            let values = ranks.into_values();
            for (q, results) in &mut quantiles {
                results.push(quantile_among(&shares, &values, *q));
            }
        }
        Ok(GroupValues {
            distinct: Vec::new(),
            quantiles,
            top: Vec::new(),
        })
    }

    /// Lists of at most so many of the most frequent values.
    fn top_lists(&self, groups: &[TopValues], most: usize) -> Result<ArrayRef> {
        let lengths = groups.iter().map(|group| group.values.len().min(most));
        let mut pairs = BinaryBuilder::new();
        for group in groups {
            for (_, pair) in group.values.iter().take(most) {
                pairs.append_value(pair);
            }
        }
        let pairs = pairs.finish();
        let values = self.pairs.decode(&pairs)?.pop().ok_or_else(without_bytes)?;
        let data_type = values.data_type().clone();
        list_column(lengths, values, &data_type)
    }

    /// True if the next pair has these keys.
    fn is_at(&mut self, keys: &[u8]) -> Result<bool> {
        if self.at == self.keys.len() {
            let Some(next) = self.pairs.next_groups()? else {
                return Ok(false);
            };
            let GroupKeys::Encoded(pairs) = next.keys else {
                return Err(without_bytes());
            };
            if self.questions.needs_repeats() {
                let occurrences = next
                    .results
                    .first()
                    .and_then(|column| column.as_primitive_opt::<Int64Type>());
                self.occurrences = Some(occurrences.ok_or_else(without_bytes)?.clone());
            }
            if self.questions.weight.is_some() {
                let weights = next.results.first();
                let weights = weights.and_then(|column| column.as_binary_opt::<i32>());
                self.weights = Some(weights.ok_or_else(without_bytes)?.clone());
            }
            if self.questions.needs_numbers() {
                let values = self.pairs.decode(&pairs)?.pop().ok_or_else(without_bytes)?;
                self.numbers = Some(doubles(&values)?);
            }
            self.keys = pairs;
            self.at = 0;
        }
        // No key is the beginning of another one, so that the bytes of the value behind it do not matter.
        Ok(self.keys.value(self.at).starts_with(keys))
    }
}

/// An encoded sum of weights.
fn weight_sum(sums: &BinaryArray, row: usize) -> Result<ExactSum> {
    let mut bytes = sums.value(row);
    ExactSum::decode(&mut StateDecoder(&mut bytes))
}

/// The numbers of values of the sets whose quantiles are asked, or the sums of their weights.
fn group_totals(
    readers: &[ValueReader],
    accumulators: &[Box<dyn Accumulator>],
    order: &[u32],
) -> Result<Vec<Option<ArrayRef>>> {
    let mut totals = Vec::with_capacity(readers.len());
    for reader in readers {
        let questions = &reader.questions;
        totals.push(match questions.count.or(questions.weight) {
            Some(index) if questions.weight.is_some() => {
                Some(accumulators[index].results(GroupFunction::WeightSum, order)?)
            }
            Some(index) => Some(accumulators[index].results(GroupFunction::Count, order)?),
            None => None,
        });
    }
    Ok(totals)
}

/// The fault for keys that have to be compared and have no bytes.
fn without_bytes() -> Fault {
    Fault::internal("pairs of keys and values without bytes")
}
