//! Weighted means.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, UInt8Array};
use arrow::datatypes::UInt8Type;
use forebay_model::{GroupFunction, Result, StateDecoder};

use super::accumulator::{
    Accumulator, GroupedRows, LostResults, doubles, encode_groups, encoded_state_column,
    for_each_value, state_column,
};
use super::window_sums::WindowSums;

const PLUS_INFINITY: u8 = 1;
const MINUS_INFINITY: u8 = 2;
/// The result is no number: a weight is infinite, or an infinite value has the weight 0.
const UNDEFINED: u8 = 4;
/// The group has a value with a weight. States of earlier versions do not tell.
const SEEN: u8 = 8;

/// The sums of the weights of each group, and of values times weights.
pub(super) struct WeightedSums {
    products: WindowSums,
    weights: WindowSums,
    /// Infinite and undefined results of each group.
    flags: Vec<u8>,
}

impl Default for WeightedSums {
    fn default() -> Self {
        WeightedSums {
            products: WindowSums::of_products(),
            weights: WindowSums::of_values(),
            flags: Vec::new(),
        }
    }
}

impl WeightedSums {
    fn add(&mut self, group: usize, value: f64, weight: f64) {
        self.flags[group] |= SEEN;
        if weight.is_infinite() {
            self.flags[group] |= UNDEFINED;
            return;
        }
        if value.is_infinite() {
            self.flags[group] |= match value * weight {
                product if product > 0.0 => PLUS_INFINITY,
                product if product < 0.0 => MINUS_INFINITY,
                _ => UNDEFINED,
            };
        } else if value != 0.0 && weight != 0.0 {
            self.products.add_product(group, value, weight);
        }
        self.weights.add_value(group, weight);
    }

    fn mean(&self, group: u32) -> Option<f64> {
        let mean = self.products.ratio(group, &self.weights);
        let weight = || self.weights.rounded(group);
        match self.flags[group as usize] & !SEEN {
            0 => mean,
            PLUS_INFINITY => mean.map(|_| f64::INFINITY * weight()),
            MINUS_INFINITY => mean.map(|_| f64::NEG_INFINITY * weight()),
            _ => Some(f64::NAN),
        }
    }
}

impl Accumulator for WeightedSums {
    fn resize(&mut self, groups: usize) {
        self.products.resize(groups);
        self.weights.resize(groups);
        self.flags.resize(groups, 0);
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let (weight, valid) = rows.pair()?;
        let values = doubles(rows.value()?.array()?)?;
        let weights = doubles(weight.array()?)?;
        for_each_value(rows.groups, valid.as_ref(), |row, group| {
            self.add(group, values.value(row), weights.value(row));
        });
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = encode_groups(order, |group, out| {
            self.products.encode(group, out)?;
            self.weights.encode(group, out)
        })?;
        let flags = order.iter().map(|group| self.flags[*group as usize]);
        Ok(vec![sums, Arc::new(UInt8Array::from_iter_values(flags))])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let sums = encoded_state_column(states, 0)?;
        let flags = state_column::<UInt8Type>(states, 1)?.values();
        for (row, group) in groups.iter().enumerate() {
            let group = *group as usize;
            let mut bytes = sums.value(row);
            self.products
                .add_encoded(group, &mut StateDecoder(&mut bytes))?;
            self.weights
                .add_encoded(group, &mut StateDecoder(&mut bytes))?;
            self.flags[group] |= flags[row];
        }
        Ok(2)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        let means: Float64Array = order.iter().map(|group| self.mean(*group)).collect();
        Ok(Arc::new(means))
    }

    fn lost(&self, order: &[u32]) -> LostResults {
        let mut lost = LostResults::default();
        for group in order {
            let is_seen = self.flags[*group as usize] & SEEN != 0;
            lost.undefined += u64::from(is_seen && self.mean(*group).is_none());
        }
        lost
    }

    fn bytes(&self) -> usize {
        self.products.bytes() + self.weights.bytes() + self.flags.capacity()
    }
}
