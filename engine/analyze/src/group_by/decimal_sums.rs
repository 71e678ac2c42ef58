//! Sums of decimals.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type};
use forebay_model::{Fault, GroupFunction, Result, codes};

use super::accumulator::{
    Accumulator, GroupedRows, count_column, counted, for_each_value, foreign_function, state_column,
};

/// The first number of 39 digits.
const DIGITS_END: i128 = 10i128.pow(DECIMAL128_MAX_PRECISION as u32);

/// Sum and number of the values of each group. Sums have 38 digits; one that has more is a fault.
pub(super) struct DecimalSums {
    groups: Vec<DecimalSum>,
    scale: i8,
}

#[derive(Debug, Clone, Copy, Default)]
struct DecimalSum {
    sum: i128,
    count: u64,
}

impl DecimalSums {
    pub(super) fn new(values: &DataType) -> Self {
        let scale = match values {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale) => *scale,
            _ => 0,
        };
        DecimalSums {
            groups: Vec::new(),
            scale,
        }
    }

    fn add(&mut self, group: usize, value: i128, count: u64) -> Result<()> {
        let state = &mut self.groups[group];
        let sum = state.sum.checked_add(value);
        state.sum = sum.filter(has_38_digits).ok_or_else(does_not_fit)?;
        state.count += count;
        Ok(())
    }

    /// The mean, with the half rounded away from 0.
    fn mean(&self, group: DecimalSum, scale: i8) -> Result<Option<i128>> {
        if group.count == 0 {
            return Ok(None);
        }
        let extra_digits = u32::try_from(i16::from(scale) - i16::from(self.scale)).unwrap_or(0);
        let count = i128::from(group.count);
        // Whole and remainder apart: the sum with more digits behind the point may have no room.
        let factor = 10i128.pow(extra_digits);
        let whole = (group.sum / count).checked_mul(factor);
        let remainder = (group.sum % count) * factor;
        let mut fraction = remainder / count;
        if (remainder % count).unsigned_abs() * 2 >= count.unsigned_abs() {
            fraction += remainder.signum();
        }
        let mean = whole.and_then(|whole| whole.checked_add(fraction));
        let mean = mean.filter(has_38_digits).ok_or_else(does_not_fit)?;
        Ok(Some(mean))
    }
}

impl Accumulator for DecimalSums {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, DecimalSum::default());
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let column = rows.value()?;
        let wide = DataType::Decimal128(DECIMAL128_MAX_PRECISION, self.scale);
        let values = cast(column.array()?, &wide)?;
        let values = values.as_primitive::<Decimal128Type>().values();
        let mut outcome = Ok(());
        for_each_value(rows.groups, column.valid.as_ref(), |row, group| {
            if outcome.is_ok() {
                outcome = self.add(group, values[row], 1);
            }
        });
        outcome
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let groups = order.iter().map(|group| self.groups[*group as usize]);
        let sums = Decimal128Array::from_iter_values(groups.clone().map(|group| group.sum));
        let counts = UInt64Array::from_iter_values(groups.map(|group| group.count));
        Ok(vec![Arc::new(sums), Arc::new(counts)])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let sums = state_column::<Decimal128Type>(states, 0)?.values();
        let counts = count_column(states, 1)?;
        for ((group, sum), count) in groups.iter().zip(sums).zip(counts) {
            self.add(*group as usize, *sum, *count)?;
        }
        Ok(2)
    }

    fn results(&self, function: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        let groups = order.iter().map(|group| self.groups[*group as usize]);
        let values = DataType::Decimal128(DECIMAL128_MAX_PRECISION, self.scale);
        let result_type = function.result_type(&values);
        let DataType::Decimal128(precision, scale) = result_type else {
            return match function {
                GroupFunction::Count => Ok(counted(groups.map(|group| group.count))),
                _ => Err(foreign_function()),
            };
        };
        let results: Decimal128Array = match function {
            GroupFunction::Sum => groups
                .map(|group| (group.count > 0).then_some(group.sum))
                .collect(),
            GroupFunction::Mean => groups
                .map(|group| self.mean(group, scale))
                .collect::<Result<_>>()?,
            _ => return Err(foreign_function()),
        };
        let results = results.with_precision_and_scale(precision, scale)?;
        Ok(Arc::new(results))
    }

    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<DecimalSum>()
    }
}

fn has_38_digits(number: &i128) -> bool {
    (-DIGITS_END + 1..DIGITS_END).contains(number)
}

fn does_not_fit() -> Fault {
    Fault::new(codes::BAD_ROW, "a sum of decimals does not fit 38 digits")
        .hint("cast the column to float64 before")
}
