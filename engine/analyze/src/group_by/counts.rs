//! Numbers of rows or values of groups.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use forebay_model::{GroupFunction, Result};

use super::accumulator::{Accumulator, GroupedRows, count_column, counted, for_each_value};

/// Numbers of rows or values.
#[derive(Default)]
pub(super) struct Counts(Vec<u64>);

impl Accumulator for Counts {
    fn resize(&mut self, groups: usize) {
        self.0.resize(groups, 0);
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let valid = rows.value.and_then(|value| value.valid.as_ref());
        for_each_value(rows.groups, valid, |_, group| self.0[group] += 1);
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let counts = order.iter().map(|group| self.0[*group as usize]);
        Ok(vec![Arc::new(UInt64Array::from_iter_values(counts))])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let counts = count_column(states, 0)?;
        for (group, count) in groups.iter().zip(counts) {
            self.0[*group as usize] += count;
        }
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        Ok(counted(order.iter().map(|group| self.0[*group as usize])))
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}
