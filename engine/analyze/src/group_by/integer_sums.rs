//! Sums of integers.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, Float64Array, Int64Array,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use forebay_model::{Fault, GroupFunction, Result, codes};

use super::accumulator::{
    Accumulator, GroupedRows, count_column, counted, for_each_value, foreign_function, state_column,
};
use crate::exact_sum::narrow_quotient;

/// The magnitude up to which doubles hold all integers.
const EXACT_MAX: u64 = 1 << 53;

/// Sum and number of the values of each group. Sums have 64 bits until one does not fit.
pub(super) struct IntegerSums {
    sums: Sums,
    /// Rounds values to doubles first.
    rounded: bool,
}

enum Sums {
    Narrow(Vec<GroupSum<i64>>),
    Wide(Vec<GroupSum<i128>>),
}

#[derive(Debug, Clone, Copy, Default)]
struct GroupSum<T> {
    sum: T,
    count: u64,
}

impl Sums {
    fn widen(&mut self) {
        if let Sums::Narrow(sums) = self {
            let wide = sums.iter().map(|group| GroupSum {
                sum: i128::from(group.sum),
                count: group.count,
            });
            *self = Sums::Wide(wide.collect());
        }
    }

    fn get(&self, group: u32) -> GroupSum<i128> {
        match self {
            Sums::Narrow(sums) => {
                let GroupSum { sum, count } = sums[group as usize];
                GroupSum {
                    sum: i128::from(sum),
                    count,
                }
            }
            Sums::Wide(sums) => sums[group as usize],
        }
    }

    /// Adds to the sum of a group; the count stays.
    fn add(&mut self, group: usize, value: i128) {
        if let Sums::Narrow(sums) = self {
            if let Ok(value) = i64::try_from(value)
                && let Some(sum) = sums[group].sum.checked_add(value)
            {
                sums[group].sum = sum;
                return;
            }
            // The sums of all groups get 128 bits once one does not fit.
            self.widen();
        }
        if let Sums::Wide(sums) = self {
            sums[group].sum += value;
        }
    }

    fn count(&mut self, group: usize, count: u64) {
        match self {
            Sums::Narrow(sums) => sums[group].count += count,
            Sums::Wide(sums) => sums[group].count += count,
        }
    }
}

impl IntegerSums {
    pub(super) fn new(rounded: bool) -> Self {
        IntegerSums {
            sums: Sums::Narrow(Vec::new()),
            rounded,
        }
    }

    fn push<T: ArrowPrimitiveType>(
        &mut self,
        groups: &[u32],
        column: &ArrayRef,
        valid: Option<&NullBuffer>,
    ) where
        T::Native: Into<i128>,
    {
        let values = column.as_primitive::<T>().values();
        for_each_value(groups, valid, |row, group| {
            let mut value: i128 = values[row].into();
            if self.rounded && value.unsigned_abs() > u128::from(EXACT_MAX) {
                value = value as f64 as i128;
            }
            self.sums.add(group, value);
            self.sums.count(group, 1);
        });
    }

    /// Adds values of 64 bits to sums of 64 bits, as long as they fit: the common case.
    fn push_narrow<T: ArrowPrimitiveType>(
        &mut self,
        groups: &[u32],
        column: &ArrayRef,
        valid: Option<&NullBuffer>,
    ) where
        T::Native: Into<i64> + Into<i128>,
    {
        let values = column.as_primitive::<T>().values();
        // Sums of the batch can outgrow 64 bits only if the sums before or the values are large.
        let Sums::Narrow(sums) = &mut self.sums else {
            return self.push::<T>(groups, column, valid);
        };
        let added = add_narrow(sums, groups, valid, |row| values[row].into());
        if added < groups.len() {
            let remaining = groups.len() - added;
            let valid = valid.map(|valid| valid.slice(added, remaining));
            let column = column.slice(added, remaining);
            self.push::<T>(&groups[added..], &column, valid.as_ref());
        }
    }
}

/// Adds values up to the first whose sum does not fit; returns the rows that are added.
fn add_narrow(
    sums: &mut [GroupSum<i64>],
    groups: &[u32],
    valid: Option<&NullBuffer>,
    value: impl Fn(usize) -> i64,
) -> usize {
    for (row, group) in groups.iter().enumerate() {
        if valid.is_none_or(|valid| valid.is_valid(row)) {
            let state = &mut sums[*group as usize];
            let Some(sum) = state.sum.checked_add(value(row)) else {
                return row;
            };
            *state = GroupSum {
                sum,
                count: state.count + 1,
            };
        }
    }
    groups.len()
}

impl Accumulator for IntegerSums {
    fn resize(&mut self, groups: usize) {
        match &mut self.sums {
            Sums::Narrow(sums) => sums.resize(groups, GroupSum::default()),
            Sums::Wide(sums) => sums.resize(groups, GroupSum::default()),
        }
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let groups = rows.groups;
        let column = rows.value()?.array()?;
        let valid = rows.value()?.valid.as_ref();
        match column.data_type() {
            DataType::Int8 => self.push_narrow::<Int8Type>(groups, column, valid),
            DataType::Int16 => self.push_narrow::<Int16Type>(groups, column, valid),
            DataType::Int32 => self.push_narrow::<Int32Type>(groups, column, valid),
            DataType::Int64 if !self.rounded => {
                self.push_narrow::<Int64Type>(groups, column, valid)
            }
            DataType::Int64 => self.push::<Int64Type>(groups, column, valid),
            DataType::UInt8 => self.push_narrow::<UInt8Type>(groups, column, valid),
            DataType::UInt16 => self.push_narrow::<UInt16Type>(groups, column, valid),
            DataType::UInt32 => self.push_narrow::<UInt32Type>(groups, column, valid),
            DataType::UInt64 => self.push::<UInt64Type>(groups, column, valid),
            _ => return Err(foreign_function()),
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums: Decimal128Array = order
            .iter()
            .map(|group| Some(self.sums.get(*group).sum))
            .collect();
        let counts = order.iter().map(|group| self.sums.get(*group).count);
        Ok(vec![
            Arc::new(sums),
            Arc::new(UInt64Array::from_iter_values(counts)),
        ])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let sums = state_column::<Decimal128Type>(states, 0)?.values();
        let counts = count_column(states, 1)?;
        for ((group, sum), count) in groups.iter().zip(sums).zip(counts) {
            self.sums.add(*group as usize, *sum);
            self.sums.count(*group as usize, *count);
        }
        Ok(2)
    }

    fn results(&self, function: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        let groups = order.iter().map(|group| self.sums.get(*group));
        match function {
            GroupFunction::Count => Ok(counted(groups.map(|group| group.count))),
            GroupFunction::Sum => {
                let sums: Int64Array = groups.map(narrow_sum).collect::<Result<_>>()?;
                Ok(Arc::new(sums))
            }
            GroupFunction::Mean => {
                let means: Float64Array = groups.map(mean).collect();
                Ok(Arc::new(means))
            }
            _ => Err(foreign_function()),
        }
    }

    fn bytes(&self) -> usize {
        match &self.sums {
            Sums::Narrow(sums) => sums.capacity() * size_of::<GroupSum<i64>>(),
            Sums::Wide(sums) => sums.capacity() * size_of::<GroupSum<i128>>(),
        }
    }
}

/// The sum of a group in 64 bits; null without a value.
fn narrow_sum(group: GroupSum<i128>) -> Result<Option<i64>> {
    if group.count == 0 {
        return Ok(None);
    }
    match i64::try_from(group.sum) {
        Ok(sum) => Ok(Some(sum)),
        Err(_) => Err(does_not_fit(group.sum)),
    }
}

/// The mean of a group, rounded once; null without a value.
fn mean(group: GroupSum<i128>) -> Option<f64> {
    if group.count == 0 {
        return None;
    }
    narrow_quotient(group.sum, group.count, 0)
}

fn does_not_fit(sum: i128) -> Fault {
    Fault::new(
        codes::BAD_ROW,
        format!("a sum of {sum} does not fit 64 bits"),
    )
    .hint("cast the column to float64 before")
}
