//! The distinct values of groups, read beside the groups in the order of keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int64Array};
use arrow::datatypes::Int64Type;
use forebay_model::{GroupFunction, Result, lerp};

use super::accumulator::doubles;
use super::sorted_groups::{GroupKeys, SortedGroups, without_bytes};

/// Reads pairs of keys and values in order.
pub(super) struct ValueReader {
    pairs: SortedGroups,
    quantiles: Vec<f64>,
    /// The accumulator that tells the number of values of a group; without it there are no quantiles.
    pub(super) count: Option<usize>,
    keys: BinaryArray,
    /// The values of the keys, and how often each occurs, if quantiles are asked.
    values: Option<(Float64Array, Int64Array)>,
    at: usize,
}

/// What is known of the values of groups.
pub(super) struct GroupValues {
    distinct: Vec<i64>,
    /// The quantiles that are asked, by group.
    quantiles: Vec<(f64, Vec<Option<f64>>)>,
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
        QuantileSearch { below, share: place - below as f64, lower: f64::NAN, upper: f64::NAN }
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
    pub(super) fn new(pairs: SortedGroups, quantiles: Option<(Vec<f64>, usize)>) -> Result<Self> {
        let (quantiles, count) = match quantiles {
            Some((quantiles, count)) => (quantiles, Some(count)),
            None => (Vec::new(), None),
        };
        Ok(ValueReader { pairs, quantiles, count, keys: BinaryArray::new_null(0), values: None, at: 0 })
    }

    /// Reads the values of groups; their keys ascend from call to call.
    pub(super) fn read(&mut self, keys: &BinaryArray, counts: Option<&Int64Array>) -> Result<GroupValues> {
        let quantiles = self.quantiles.iter().map(|q| (*q, Vec::with_capacity(keys.len()))).collect();
        let mut groups = GroupValues { distinct: Vec::with_capacity(keys.len()), quantiles };
        for (place, key) in keys.iter().enumerate() {
            let count = counts.map_or(0, |counts| counts.value(place) as u64);
            let mut searches: Vec<QuantileSearch> = match count {
                0 => Vec::new(),
                count => self.quantiles.iter().map(|q| QuantileSearch::new(count, *q)).collect(),
            };
            let (mut distinct, mut seen) = (0, 0);
            while self.is_at(key.unwrap_or_default())? {
                if let Some((values, repeats)) = &self.values {
                    let (value, repeats) = (values.value(self.at), repeats.value(self.at) as u64);
                    searches.iter_mut().for_each(|search| search.see(seen..seen + repeats, value));
                    seen += repeats;
                }
                distinct += 1;
                self.at += 1;
            }
            groups.distinct.push(distinct);
            for (place, (_, found)) in groups.quantiles.iter_mut().enumerate() {
                found.push(searches.get(place).map(|search| lerp(search.lower, search.upper, search.share)));
            }
        }
        Ok(groups)
    }

    /// Whether the next pair has these keys.
    fn is_at(&mut self, keys: &[u8]) -> Result<bool> {
        if self.at == self.keys.len() {
            let Some(next) = self.pairs.next_groups()? else { return Ok(false) };
            let GroupKeys::Encoded(own) = next.keys else { return Err(without_bytes()) };
            self.values = match self.count {
                Some(_) => {
                    let values = self.pairs.decode(&own)?.pop().ok_or_else(without_bytes)?;
                    let repeats = next.results.first().and_then(|column| column.as_primitive_opt::<Int64Type>());
                    Some((doubles(&values)?, repeats.ok_or_else(without_bytes)?.clone()))
                }
                None => None,
            };
            (self.keys, self.at) = (own, 0);
        }
        // No key is the beginning of another one.
        Ok(self.keys.value(self.at).starts_with(keys))
    }
}

impl GroupValues {
    /// The column of a function of distinct values.
    pub(super) fn result(&self, function: GroupFunction) -> ArrayRef {
        match function {
            GroupFunction::Quantile { q: asked } => {
                let found = self.quantiles.iter().find(|(q, _)| *q == asked);
                Arc::new(Float64Array::from_iter(found.into_iter().flat_map(|(_, found)| found.iter().copied())))
            }
            _ => Arc::new(Int64Array::from(self.distinct.clone())),
        }
    }
}
