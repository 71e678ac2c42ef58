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
use crate::exact_sum::{corrected_variance, deviation, narrow_quotient, narrow_rounded, variance};
use crate::moment_accumulator::{MomentSums, NearMoments, decompose};

const PLUS_INFINITY: u8 = 1;
const MINUS_INFINITY: u8 = 2;

/// Groups with near sums, of 56 bytes each. Caches hold these, and adding to them takes half the time; where more groups
/// come in any order, smaller sums are the faster ones.
const NEAR_GROUPS_MAX: usize = 1 << 14;

/// The number of the values of each group, their sum, and on demand the sum of their squares.
pub(super) struct FloatSums {
    counts: Vec<u64>,
    /// The infinities of each group; empty if there are none.
    infinities: Vec<u8>,
    sums: WindowSums,
    squares: Option<WindowSums>,
    /// The part of the sums and squares that is in neither of both, for the first groups; empty until values with squares
    /// are added.
    near: Vec<NearMoments>,
}

impl FloatSums {
    pub(super) fn new(has_squares: bool) -> Self {
        let squares = has_squares.then(WindowSums::of_products);
        FloatSums {
            counts: Vec::new(),
            infinities: Vec::new(),
            sums: WindowSums::of_values(),
            squares,
            near: Vec::new(),
        }
    }

    /// Accumulates a value, and its square on demand.
    #[inline]
    fn push(&mut self, group: usize, value: f64) {
        self.counts[group] += 1;
        self.push_far(group, value);
    }

    /// Accumulates a value and its square, in the near sums of its group if there are any.
    #[inline]
    fn push_near(&mut self, group: usize, value: f64) {
        self.counts[group] += 1;
        let Some(near) = self.near.get_mut(group) else {
            return self.push_far(group, value);
        };
        if !near.push(value) {
            return self.push_outside(group, value);
        }
        if near.is_full() {
            self.flush(group);
        }
    }

    /// Adds a value outside of the window of its group's near sums.
    #[cold]
    #[inline(never)]
    fn push_outside(&mut self, group: usize, value: f64) {
        let is_number = value.is_finite() && value != 0.0;
        if is_number && let Some(window) = self.near[group].window.miss(value.to_bits()) {
            self.flush(group);
            self.near[group].window = window;
            self.near[group].push(value);
            return;
        }
        self.push_far(group, value);
    }

    /// Adds a value to the sums that all groups have.
    fn push_far(&mut self, group: usize, value: f64) {
        if value.is_infinite() {
            self.push_infinity(group, value);
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
    }

    /// Makes near sums for the first groups.
    fn resize_near(&mut self) {
        let groups = self.counts.len().min(NEAR_GROUPS_MAX);
        self.near.resize(groups, NearMoments::default());
    }

    /// Moves the near sums of a group to the others.
    #[cold]
    fn flush(&mut self, group: usize) {
        let window = self.near[group].window;
        let near = std::mem::take(&mut self.near[group]);
        self.near[group].window = window;
        let sum = near.sum.value();
        let bit = window.bit();
        self.sums
            .add_words(group, &[sum as u64], (sum >> 64) as i64, bit);
        if let Some(squares) = &mut self.squares {
            let (words, last) = near.squares.words();
            squares.add_words(group, &words, last, 2 * bit);
        }
    }

    #[cold]
    fn push_infinity(&mut self, group: usize, value: f64) {
        let infinity = if value > 0.0 {
            PLUS_INFINITY
        } else {
            MINUS_INFINITY
        };
        self.set_infinities(group, infinity);
    }

    /// The exact sums of the finite values of a group and of their squares.
    fn exact(&self, group: u32) -> MomentSums {
        let squares = self.squares.as_ref();
        let mut sums = MomentSums {
            sum: self.sums.exact(group),
            squares: squares
                .map(|squares| squares.exact(group))
                .unwrap_or_default(),
        };
        if let Some(near) = self.near.get(group as usize) {
            near.add_to(&mut sums);
        }
        sums
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

    /// Degrees of freedom of a group's variance; `None` if it has too few values.
    fn freedom(&self, group: u32, ddof: u32) -> Option<u64> {
        let freedom = self.counts[group as usize].checked_sub(u64::from(ddof));
        freedom.filter(|freedom| *freedom > 0)
    }

    fn variance(&self, group: u32, ddof: u32) -> Option<f64> {
        let freedom = self.freedom(group, ddof)?;
        let count = self.counts[group as usize];
        if self.infinities(group) != 0 {
            return Some(f64::NAN);
        }
        self.squares.as_ref()?;
        let sums = self.exact(group);
        let variance = variance(count, &sums.sum, &sums.squares);
        Some(corrected_variance(variance, count, freedom))
    }

    /// The root of the variance, also where that is beyond doubles.
    fn deviation(&self, group: u32, ddof: u32) -> Option<f64> {
        let freedom = self.freedom(group, ddof)?;
        let count = self.counts[group as usize];
        if self.infinities(group) != 0 {
            return Some(f64::NAN);
        }
        self.squares.as_ref()?;
        let sums = self.exact(group);
        Some(deviation(count, freedom, &sums.sum, &sums.squares))
    }

    /// The sum or the mean of a group; null without a value.
    fn sum_or_mean(&self, group: u32, function: GroupFunction) -> Option<f64> {
        let count = self.counts[group as usize];
        if count == 0 {
            return None;
        }
        Some(match self.infinities(group) {
            0 if function == GroupFunction::Mean => self.finite_mean(group, count),
            0 => self.finite_sum(group),
            PLUS_INFINITY => f64::INFINITY,
            MINUS_INFINITY => f64::NEG_INFINITY,
            _ => f64::NAN,
        })
    }

    /// The near sum of a group, if it has any.
    fn near(&self, group: u32) -> Option<&NearMoments> {
        self.near.get(group as usize).filter(|near| !near.is_zero())
    }

    /// The sum of the finite values of a group, rounded once.
    fn finite_sum(&self, group: u32) -> f64 {
        let Some(near) = self.near(group) else {
            return self.sums.rounded(group);
        };
        if self.sums.is_unused()
            && let Some(sum) = narrow_rounded(near.sum.value(), near.window.bit())
        {
            return sum;
        }
        self.exact(group).sum.to_f64()
    }

    /// The sum of the finite values of a group divided by their number, rounded once.
    fn finite_mean(&self, group: u32, count: u64) -> f64 {
        let Some(near) = self.near(group) else {
            return self.sums.divided(group, count);
        };
        if self.sums.is_unused()
            && let Some(mean) = narrow_quotient(near.sum.value(), count, near.window.bit())
        {
            return mean;
        }
        self.exact(group).sum.divided(count)
    }
}

impl Accumulator for FloatSums {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
        if !self.infinities.is_empty() {
            self.infinities.resize(groups, 0);
        }
        if !self.near.is_empty() {
            self.resize_near();
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
        let valid = column.valid.as_ref();
        if self.squares.is_none() {
            for_each_value(groups, valid, |row, group| self.push(group, values[row]));
            return Ok(());
        }
        self.resize_near();
        for_each_value(groups, valid, |row, group| {
            self.push_near(group, values[row])
        });
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = encode_groups(order, |group, out| {
            let sums = self.exact(group);
            sums.sum.encode(out)?;
            if self.squares.is_some() {
                sums.squares.encode(out)?;
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
            + self.near.capacity() * size_of::<NearMoments>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::moment_accumulator::MomentAccumulator;
    use crate::moment_accumulator::tests::{PARTS, drawn_values};

    proptest! {
        /// States and results are those of windows without near sums, for any values and after a merge of states.
        #[test]
        fn near_sums_change_nothing(values in drawn_values()) {
            let order: Vec<u32> = (0..PARTS as u32).collect();
            let mut near = FloatSums::new(true);
            let mut expected = FloatSums::new(true);
            near.resize(PARTS);
            near.resize_near();
            expected.resize(PARTS);
            let mut moments = vec![MomentAccumulator::default(); PARTS];
            for (value, group, _) in values {
                if !value.is_nan() {
                    moments[group].push(value);
                    near.push_near(group, value);
                    expected.push(group, value);
                }
            }
            let states = near.states(&order).unwrap();
            prop_assert_eq!(&states, &expected.states(&order).unwrap());
            for (group, moment) in order.iter().zip(&moments) {
                let sum = near.sum_or_mean(*group, GroupFunction::Sum);
                prop_assert_eq!(sum.map(f64::to_bits), moment.total().map(f64::to_bits));
                let mean = near.sum_or_mean(*group, GroupFunction::Mean);
                prop_assert_eq!(mean.map(f64::to_bits), moment.mean().map(f64::to_bits));
            }
            near.merge(&order, &states, 0).unwrap();
            expected.merge(&order, &states, 0).unwrap();
            prop_assert_eq!(near.states(&order).unwrap(), expected.states(&order).unwrap());
        }
    }
}
