//! Sums of weights, of which weighted quantiles are made.

use arrow::array::ArrayRef;
use forebay_model::{GroupFunction, Result, StateDecoder};

use super::accumulator::{
    Accumulator, GroupedRows, doubles, encode_groups, encoded_state_column, for_each_value,
};
use super::window_sums::WindowSums;
use crate::weighted_column::{is_weight, weight_fault};

/// The exact sum of the weights of each group. With a second column, that one holds the weights, and rows without a value
/// in the first one do not count.
pub(super) struct WeightSums(WindowSums);

impl Default for WeightSums {
    fn default() -> Self {
        WeightSums(WindowSums::of_values())
    }
}

impl WeightSums {
    fn encoded(&self, order: &[u32]) -> Result<ArrayRef> {
        encode_groups(order, |group, out| self.0.encode(group, out))
    }
}

impl Accumulator for WeightSums {
    fn resize(&mut self, groups: usize) {
        self.0.resize(groups);
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let (weights, valid) = if rows.other.is_some() {
            rows.pair()?
        } else {
            let weights = rows.value()?;
            (weights, weights.valid.clone())
        };
        let weights = doubles(weights.array()?)?;
        let mut bad_row = None;
        for_each_value(rows.groups, valid.as_ref(), |row, group| {
            let weight = weights.value(row);
            if is_weight(weight) {
                self.0.add_value(group, weight);
            } else if weight != 0.0 {
                bad_row.get_or_insert(row);
            }
        });
        match bad_row {
            Some(row) => Err(weight_fault(weights.value(row)).input_rows([row as u64])),
            None => Ok(()),
        }
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.encoded(order)?])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let sums = encoded_state_column(states, 0)?;
        for (row, group) in groups.iter().enumerate() {
            let mut bytes = sums.value(row);
            self.0
                .add_encoded(*group as usize, &mut StateDecoder(&mut bytes))?;
        }
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        self.encoded(order)
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
