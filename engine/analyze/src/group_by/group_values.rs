//! Results of groups that are computed from their distinct values.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array};
use forebay_model::{GroupFunction, Result, lerp};

use super::accumulator::foreign_function;

/// Results that are computed from the distinct values of groups, beside their number.
#[derive(Default, Clone)]
pub(super) struct ValueQuestions {
    /// Probabilities of the quantiles.
    pub(super) quantiles: Vec<f64>,
    /// The accumulator that counts the values of a group; without it there are no quantiles.
    pub(super) count: Option<usize>,
    /// Lengths of the lists of the most frequent values.
    pub(super) top: Vec<u32>,
    /// Probabilities of the quantiles of weighted values.
    pub(super) weighted_quantiles: Vec<f64>,
    /// The accumulator that sums the weights of a group; without it values have no weights.
    pub(super) weight: Option<usize>,
}

impl ValueQuestions {
    /// True if a result depends on the number of rows of each value.
    pub(super) fn needs_repeats(&self) -> bool {
        self.count.is_some() || !self.top.is_empty()
    }

    /// True if a result depends on the numbers that values are.
    pub(super) fn needs_numbers(&self) -> bool {
        self.count.is_some() || self.weight.is_some()
    }

    /// Most values of a list.
    pub(super) fn top_max(&self) -> usize {
        self.top.iter().max().map_or(0, |most| *most as usize)
    }
}

/// The results of groups that are computed from their distinct values.
pub(super) struct GroupValues {
    pub(super) distinct: Vec<i64>,
    /// The quantiles that are asked, by group.
    pub(super) quantiles: Vec<(f64, Vec<Option<f64>>)>,
    /// Lists of the most frequent values, by their greatest length.
    pub(super) top: Vec<(u32, ArrayRef)>,
}

/// The most frequent values of one group while they are read.
pub(super) struct TopValues {
    most: usize,
    /// The rows of a value, and the bytes of the keys and the value: most frequent first, then in the order of values.
    pub(super) values: Vec<(i64, Vec<u8>)>,
}

impl TopValues {
    /// A list of at most `most` values.
    pub(super) fn new(most: usize) -> TopValues {
        TopValues {
            most,
            values: Vec::new(),
        }
    }

    /// Adds the next value in order.
    pub(super) fn add(&mut self, occurrences: i64, pair: &[u8]) {
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
pub(super) struct QuantileSearch {
    /// The number of values below the lower neighbour.
    below: u64,
    /// The distance from the lower neighbour to the upper one.
    share: f64,
    lower: f64,
    upper: f64,
}

impl QuantileSearch {
    pub(super) fn new(count: u64, q: f64) -> Self {
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
    pub(super) fn add(&mut self, positions: std::ops::Range<u64>, value: f64) {
        if positions.contains(&self.below) {
            self.lower = value;
            self.upper = value;
        } else if positions.start == self.below + 1 {
            self.upper = value;
        }
    }

    /// The quantile, once all values of the group are read.
    pub(super) fn quantile(&self) -> f64 {
        lerp(self.lower, self.upper, self.share)
    }
}

impl GroupValues {
    /// The column of a function of distinct values.
    pub(super) fn result(&self, function: GroupFunction) -> Result<ArrayRef> {
        Ok(match function {
            GroupFunction::Quantile { q } | GroupFunction::WeightedQuantile { q, .. } => {
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
