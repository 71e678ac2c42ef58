//! The distinct values of groups, read beside the groups in the order of keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int64Array};
use arrow::datatypes::Int64Type;
use forebay_model::{GroupFunction, Result, lerp};

use super::accumulator::{doubles, foreign_function};
use super::lists::list_column;
use super::sorted_groups::{GroupKeys, SortedGroups, without_bytes};

/// Reads pairs of keys and values in order.
pub(super) struct ValueReader {
    pairs: SortedGroups,
    pub(super) asked: ValueQuestions,
    keys: BinaryArray,
    /// The values of the keys, if quantiles are asked.
    numbers: Option<Float64Array>,
    /// How often each of them occurs, if that is asked.
    repeats: Option<Int64Array>,
    at: usize,
}

/// What is asked of the values of groups, beside their number.
#[derive(Default, Clone)]
pub(super) struct ValueQuestions {
    /// Which shares of the values have to be found.
    pub(super) quantiles: Vec<f64>,
    /// The accumulator that tells the number of values of a group; without it there are no quantiles.
    pub(super) count: Option<usize>,
    /// How many of the most frequent values are asked.
    pub(super) top: Vec<u32>,
}

impl ValueQuestions {
    /// Whether it matters how often a value occurs.
    pub(super) fn needs_repeats(&self) -> bool {
        self.count.is_some() || !self.top.is_empty()
    }

    /// Most values of a list.
    pub(super) fn top_max(&self) -> usize {
        self.top.iter().max().map_or(0, |most| *most as usize)
    }
}

/// What is known of the values of groups.
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
    /// How often a value occurs, and the bytes of the keys and the value: most frequent first, then in the order of
    /// values.
    held: Vec<(i64, Vec<u8>)>,
}

impl TopValues {
    /// Sees the next value in order.
    fn see(&mut self, repeats: i64, pair: &[u8]) {
        let place = self.held.partition_point(|(held, _)| *held >= repeats);
        if place < self.most {
            self.held.truncate(self.most - 1);
            self.held.insert(place, (repeats, pair.to_vec()));
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
        let place = (count - 1) as f64 * q;
        let below = (place.floor() as u64).min(count - 1);
        QuantileSearch {
            below,
            share: place - below as f64,
            lower: f64::NAN,
            upper: f64::NAN,
        }
    }

    /// Sees a value that stands at some places of the sorted values.
    fn see(&mut self, places: std::ops::Range<u64>, value: f64) {
        if places.contains(&self.below) {
            (self.lower, self.upper) = (value, value);
        } else if places.start == self.below + 1 {
            self.upper = value;
        }
    }
}

impl ValueReader {
    pub(super) fn new(pairs: SortedGroups, asked: ValueQuestions) -> Self {
        ValueReader {
            pairs,
            asked,
            keys: BinaryArray::new_null(0),
            numbers: None,
            repeats: None,
            at: 0,
        }
    }

    /// Reads the values of groups; their keys ascend from call to call.
    pub(super) fn read(
        &mut self,
        keys: &BinaryArray,
        counts: Option<&Int64Array>,
    ) -> Result<GroupValues> {
        let mut quantiles: Vec<_> = self
            .asked
            .quantiles
            .iter()
            .map(|q| (*q, Vec::with_capacity(keys.len())))
            .collect();
        let mut distinct = Vec::with_capacity(keys.len());
        let mut top = Vec::new();
        let most = self.asked.top_max();
        for (place, key) in keys.iter().enumerate() {
            let count = counts.map_or(0, |counts| counts.value(place) as u64);
            let mut searches: Vec<QuantileSearch> = match count {
                0 => Vec::new(),
                count => self
                    .asked
                    .quantiles
                    .iter()
                    .map(|q| QuantileSearch::new(count, *q))
                    .collect(),
            };
            let mut frequent = TopValues {
                most,
                held: Vec::new(),
            };
            let (mut kinds, mut seen) = (0, 0);
            while self.is_at(key.unwrap_or_default())? {
                if let Some(repeats) = self.repeats.as_ref().map(|repeats| repeats.value(self.at)) {
                    if let Some(numbers) = &self.numbers {
                        let value = numbers.value(self.at);
                        searches
                            .iter_mut()
                            .for_each(|search| search.see(seen..seen + repeats as u64, value));
                    }
                    if most > 0 {
                        frequent.see(repeats, self.keys.value(self.at));
                    }
                    seen += repeats as u64;
                }
                kinds += 1;
                self.at += 1;
            }
            distinct.push(kinds);
            for (place, (_, found)) in quantiles.iter_mut().enumerate() {
                found.push(
                    searches
                        .get(place)
                        .map(|search| lerp(search.lower, search.upper, search.share)),
                );
            }
            top.push(frequent);
        }
        let lists = self
            .asked
            .top
            .iter()
            .map(|most| Ok((*most, self.top_lists(&top, *most as usize)?)));
        Ok(GroupValues {
            distinct,
            quantiles,
            top: lists.collect::<Result<_>>()?,
        })
    }

    /// Lists of at most so many of the most frequent values.
    fn top_lists(&self, groups: &[TopValues], most: usize) -> Result<ArrayRef> {
        let lengths = groups.iter().map(|group| group.held.len().min(most));
        let pairs: BinaryArray = groups
            .iter()
            .flat_map(|group| group.held.iter().take(most))
            .map(|(_, pair)| Some(pair))
            .collect();
        let values = self.pairs.decode(&pairs)?.pop().ok_or_else(without_bytes)?;
        let data_type = values.data_type().clone();
        list_column(lengths, values, &data_type)
    }

    /// Whether the next pair has these keys.
    fn is_at(&mut self, keys: &[u8]) -> Result<bool> {
        if self.at == self.keys.len() {
            let Some(next) = self.pairs.next_groups()? else {
                return Ok(false);
            };
            let GroupKeys::Encoded(own) = next.keys else {
                return Err(without_bytes());
            };
            if self.asked.needs_repeats() {
                let repeats = next
                    .results
                    .first()
                    .and_then(|column| column.as_primitive_opt::<Int64Type>());
                self.repeats = Some(repeats.ok_or_else(without_bytes)?.clone());
            }
            if self.asked.count.is_some() {
                let values = self.pairs.decode(&own)?.pop().ok_or_else(without_bytes)?;
                self.numbers = Some(doubles(&values)?);
            }
            (self.keys, self.at) = (own, 0);
        }
        // No key is the beginning of another one.
        Ok(self.keys.value(self.at).starts_with(keys))
    }
}

impl GroupValues {
    /// The column of a function of distinct values.
    pub(super) fn result(&self, function: GroupFunction) -> Result<ArrayRef> {
        Ok(match function {
            GroupFunction::Quantile { q: asked } => {
                let found = self.quantiles.iter().find(|(q, _)| *q == asked);
                Arc::new(Float64Array::from_iter(
                    found
                        .into_iter()
                        .flat_map(|(_, found)| found.iter().copied()),
                ))
            }
            GroupFunction::TopK { k } => {
                let found = self.top.iter().find(|(most, _)| *most == k);
                found.ok_or_else(foreign_function)?.1.clone()
            }
            _ => Arc::new(Int64Array::from(self.distinct.clone())),
        })
    }
}
