//! Sums and variances of doubles.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, UInt8Array, UInt64Array};
use arrow::datatypes::UInt8Type;
use forebay_model::{GroupFunction, Result, StateDecoder};

use super::accumulator::{
    Accumulator, GroupedRows, count_column, counted, doubles, encode_groups, encoded_state_column,
    for_each_value, state_column,
};
use super::window_sums::WindowSums;
use crate::exact_sum::{corrected_variance, deviation, variance};
use crate::moment_accumulator::decompose;

const PLUS_INFINITY: u8 = 1;
const MINUS_INFINITY: u8 = 2;

/// The number of the values of each group, their sum, and on demand the sum of their squares.
pub(super) struct FloatSums {
    counts: Vec<u64>,
    /// The infinities of each group; empty if there are none.
    infinities: Vec<u8>,
    sums: WindowSums,
    squares: Option<WindowSums>,
}

impl FloatSums {
    pub(super) fn new(has_squares: bool) -> Self {
        let squares = has_squares.then(WindowSums::of_products);
        FloatSums {
            counts: Vec::new(),
            infinities: Vec::new(),
            sums: WindowSums::of_values(),
            squares,
        }
    }

    #[cold]
    fn set_infinities(&mut self, group: usize, infinities: u8) {
        if self.infinities.is_empty() {
            self.infinities = vec![0; self.counts.len()];
        }
        self.infinities[group] |= infinities;
    }

    fn infinities(&self, group: u32) -> u8 {
        self.infinities.get(group as usize).copied().unwrap_or(0)
    }

    fn variance(&self, group: u32, ddof: u32) -> Option<f64> {
        let count = self.counts[group as usize];
        if count <= u64::from(ddof) {
            return None;
        }
        let freedom = count - u64::from(ddof);
        if self.infinities(group) != 0 {
            return Some(f64::NAN);
        }
        let sum = self.sums.exact(group);
        let squares = self.squares.as_ref()?.exact(group);
        let variance = variance(count, &sum, &squares);
        Some(corrected_variance(variance, count, freedom))
    }

    /// The root of the variance, also where that is beyond doubles.
    fn deviation(&self, group: u32, ddof: u32) -> Option<f64> {
        let count = self.counts[group as usize];
        if count <= u64::from(ddof) {
            return None;
        }
        if self.infinities(group) != 0 {
            return Some(f64::NAN);
        }
        let sum = self.sums.exact(group);
        let squares = self.squares.as_ref()?.exact(group);
        let freedom = count - u64::from(ddof);
        Some(deviation(count, freedom, &sum, &squares))
    }

    /// The sum or the mean of a group; null without a value.
    fn sum_or_mean(&self, group: u32, function: GroupFunction) -> Option<f64> {
        let count = self.counts[group as usize];
        if count == 0 {
            return None;
        }
        Some(match self.infinities(group) {
            0 if function == GroupFunction::Mean => self.sums.divided(group, count),
            0 => self.sums.rounded(group),
            PLUS_INFINITY => f64::INFINITY,
            MINUS_INFINITY => f64::NEG_INFINITY,
            _ => f64::NAN,
        })
    }
}

impl Accumulator for FloatSums {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
        if !self.infinities.is_empty() {
            self.infinities.resize(groups, 0);
        }
        self.sums.resize(groups);
        if let Some(squares) = &mut self.squares {
            squares.resize(groups);
        }
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let groups = rows.groups;
        let column = rows.value()?;
        let values = doubles(column.array()?)?;
        let values = values.values();
        for_each_value(groups, column.valid.as_ref(), |row, group| {
            let value = values[row];
            self.counts[group] += 1;
            if value.is_infinite() {
                let infinity = if value > 0.0 {
                    PLUS_INFINITY
                } else {
                    MINUS_INFINITY
                };
                self.set_infinities(group, infinity);
            } else if value != 0.0 {
                let (mantissa, power) = decompose(value);
                self.sums.add(group, i128::from(mantissa), power);
                if let Some(squares) = &mut self.squares {
                    // An odd mantissa is shorter: squares of small integers need one half.
                    let zeros = mantissa.trailing_zeros();
                    let odd = i128::from(mantissa >> zeros);
                    squares.add_halves(group, odd * odd, 2 * (power + zeros as i32));
                }
            }
        });
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = encode_groups(order, |group, out| {
            self.sums.encode(group, out)?;
            if let Some(squares) = &self.squares {
                squares.encode(group, out)?;
            }
            Ok(())
        })?;
        let infinities = order.iter().map(|group| self.infinities(*group));
        let counts = order.iter().map(|group| self.counts[*group as usize]);
        Ok(vec![
            sums,
            Arc::new(UInt8Array::from_iter_values(infinities)),
            Arc::new(UInt64Array::from_iter_values(counts)),
        ])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let sums = encoded_state_column(states, 0)?;
        let infinities = state_column::<UInt8Type>(states, 1)?.values();
        let counts = count_column(states, 2)?;
        for (row, group) in groups.iter().enumerate() {
            let group = *group as usize;
            self.counts[group] += counts[row];
            if infinities[row] != 0 {
                self.set_infinities(group, infinities[row]);
            }
            let mut bytes = sums.value(row);
            self.sums
                .add_encoded(group, &mut StateDecoder(&mut bytes))?;
            if let Some(squares) = &mut self.squares {
                squares.add_encoded(group, &mut StateDecoder(&mut bytes))?;
            }
        }
        Ok(3)
    }

    fn results(&self, function: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        if function == GroupFunction::Count {
            let counts = order.iter().map(|group| self.counts[*group as usize]);
            return Ok(counted(counts));
        }
        let mut results = Float64Builder::with_capacity(order.len());
        for group in order {
            results.append_option(match function {
                GroupFunction::Var { ddof } => self.variance(*group, ddof),
                GroupFunction::Std { ddof } => self.deviation(*group, ddof),
                _ => self.sum_or_mean(*group, function),
            });
        }
        Ok(Arc::new(results.finish()))
    }

    fn bytes(&self) -> usize {
        let squares = self.squares.as_ref().map_or(0, WindowSums::bytes);
        self.sums.bytes()
            + squares
            + self.counts.capacity() * size_of::<u64>()
            + self.infinities.capacity()
    }
}
