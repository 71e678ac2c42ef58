//! Sums and variances of doubles.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, UInt8Array, UInt64Array};
use arrow::datatypes::{UInt8Type, UInt64Type};
use forebay_model::{GroupFunction, Result, StateDecoder};

use super::accumulator::{
    Accumulator, GroupedRows, counted, doubles, encode_groups, for_each_value, foreign_states,
    state_column,
};
use super::window_sums::WindowSums;
use crate::exact_sum::variance;
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
        let freedom = count
            .checked_sub(u64::from(ddof))
            .filter(|freedom| *freedom > 0)?;
        if self.infinities(group) != 0 {
            return Some(f64::NAN);
        }
        let variance = variance(
            count,
            &self.sums.exact(group),
            &self.squares.as_ref()?.exact(group),
        );
        Some(if ddof == 0 {
            variance
        } else {
            variance * (count as f64 / freedom as f64)
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
        self.squares
            .iter_mut()
            .for_each(|squares| squares.resize(groups));
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let (groups, column) = (rows.groups, rows.value()?);
        let values = doubles(column.array()?)?;
        let values = values.values();
        for_each_value(groups, column.valid.as_ref(), |row, group| {
            let value = values[row];
            self.counts[group] += 1;
            if value.is_infinite() {
                self.set_infinities(
                    group,
                    if value > 0.0 {
                        PLUS_INFINITY
                    } else {
                        MINUS_INFINITY
                    },
                );
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
            self.squares
                .iter()
                .try_for_each(|squares| squares.encode(group, out))
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
        let sums = states
            .first()
            .and_then(|column| column.as_binary_opt::<i32>())
            .ok_or_else(foreign_states)?;
        let infinities = state_column::<UInt8Type>(states, 1)?.values();
        let counts = state_column::<UInt64Type>(states, 2)?.values();
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
        let count = |group: u32| self.counts[group as usize];
        let of = |group: &u32| match function {
            GroupFunction::Var { ddof } => self.variance(*group, ddof),
            GroupFunction::Std { ddof } => self.variance(*group, ddof).map(f64::sqrt),
            _ if count(*group) == 0 => None,
            _ => Some(match self.infinities(*group) {
                0 if function == GroupFunction::Mean => self.sums.divided(*group, count(*group)),
                0 => self.sums.rounded(*group),
                PLUS_INFINITY => f64::INFINITY,
                MINUS_INFINITY => f64::NEG_INFINITY,
                _ => f64::NAN,
            }),
        };
        Ok(match function {
            GroupFunction::Count => counted(order.iter().map(|group| count(*group))),
            _ => Arc::new(order.iter().map(of).collect::<Float64Array>()),
        })
    }

    fn bytes(&self) -> usize {
        let squares = self.squares.as_ref().map_or(0, WindowSums::bytes);
        self.sums.bytes()
            + squares
            + self.counts.capacity() * size_of::<u64>()
            + self.infinities.capacity()
    }
}
