//! The distinct values of groups, read beside the groups in the order of keys.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, Float64Array, Int64Array,
};
use arrow::datatypes::Int64Type;
use forebay_model::{GroupFunction, Result, lerp};

use super::accumulator::{doubles, foreign_function};
use super::lists::list_column;
use super::sorted_groups::{GroupKeys, SortedGroups, without_bytes};

/// Reads pairs of keys and values in order.
pub(super) struct ValueReader {
    pairs: SortedGroups,
    pub(super) questions: ValueQuestions,
    keys: BinaryArray,
    /// The values of the keys, if quantiles are asked.
    numbers: Option<Float64Array>,
    /// The number of rows of each value, if a result needs it.
    occurrences: Option<Int64Array>,
    at: usize,
}

/// Results that are computed from the distinct values of groups, beside their number.
#[derive(Default, Clone)]
pub(super) struct ValueQuestions {
    /// Probabilities of the quantiles.
    pub(super) quantiles: Vec<f64>,
    /// The accumulator that counts the values of a group; without it there are no quantiles.
    pub(super) count: Option<usize>,
    /// Lengths of the lists of the most frequent values.
    pub(super) top: Vec<u32>,
}

impl ValueQuestions {
    /// True if a result depends on the number of rows of each value.
    pub(super) fn needs_repeats(&self) -> bool {
        self.count.is_some() || !self.top.is_empty()
    }

    /// Most values of a list.
    pub(super) fn top_max(&self) -> usize {
        self.top.iter().max().map_or(0, |most| *most as usize)
    }
}

/// The results of groups that are computed from their distinct values.
pub(super) struct GroupValues {
    distinct: Vec<i64>,
    /// The quantiles that are asked, by group.
    quantiles: Vec<(f64, Vec<Option<f64>>)>,
    /// Lists of the most frequent values, by their greatest length.
    top: Vec<(u32, ArrayRef)>,
}

/// The most frequent values of one group while they are read.
struct TopValues {
    most: usize,
    /// The rows of a value, and the bytes of the keys and the value: most frequent first, then in the order of values.
    values: Vec<(i64, Vec<u8>)>,
}

impl TopValues {
    /// Adds the next value in order.
    fn add(&mut self, occurrences: i64, pair: &[u8]) {
        // Behind all values that are as frequent: those come first in the order of values.
        let position = self
            .values
            .partition_point(|(other, _)| *other >= occurrences);
        if position < self.most {
            self.values.truncate(self.most - 1);
            self.values.insert(position, (occurrences, pair.to_vec()));
        }
    }
}

/// A quantile of one group while its values are read.
struct QuantileSearch {
    /// The number of values below the lower neighbour.
    below: u64,
    /// The distance from the lower neighbour to the upper one.
    share: f64,
    lower: f64,
    upper: f64,
}

impl QuantileSearch {
    fn new(count: u64, q: f64) -> Self {
        let position = (count - 1) as f64 * q;
        let below = (position.floor() as u64).min(count - 1);
        QuantileSearch {
            below,
            share: position - below as f64,
            lower: f64::NAN,
            upper: f64::NAN,
        }
    }

    /// Adds a value that has some positions among the sorted values.
    fn add(&mut self, positions: std::ops::Range<u64>, value: f64) {
        if positions.contains(&self.below) {
            self.lower = value;
            self.upper = value;
        } else if positions.start == self.below + 1 {
            self.upper = value;
        }
    }
}

impl ValueReader {
    pub(super) fn new(pairs: SortedGroups, questions: ValueQuestions) -> Self {
        ValueReader {
            pairs,
            questions,
            keys: BinaryArray::new_null(0),
            numbers: None,
            occurrences: None,
            at: 0,
        }
    }

    /// Reads the values of groups; their keys ascend from call to call.
    pub(super) fn read(
        &mut self,
        keys: &BinaryArray,
        counts: Option<&Int64Array>,
    ) -> Result<GroupValues> {
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
            let mut frequent = TopValues {
                most,
                values: Vec::new(),
            };
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
                results.push(search.map(|search| lerp(search.lower, search.upper, search.share)));
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
            if self.questions.count.is_some() {
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

impl GroupValues {
    /// The column of a function of distinct values.
    pub(super) fn result(&self, function: GroupFunction) -> Result<ArrayRef> {
        Ok(match function {
            GroupFunction::Quantile { q } => {
                let mut quantiles = self.quantiles.iter();
                match quantiles.find(|(probability, _)| *probability == q) {
                    Some((_, results)) => Arc::new(Float64Array::from(results.clone())),
                    None => Arc::new(Float64Array::new_null(0)),
                }
            }
            GroupFunction::TopK { k } => {
                let mut lists = self.top.iter();
                let list = lists.find(|(most, _)| *most == k);
                let (_, list) = list.ok_or_else(foreign_function)?;
                list.clone()
            }
            _ => Arc::new(Int64Array::from(self.distinct.clone())),
        })
    }
}
