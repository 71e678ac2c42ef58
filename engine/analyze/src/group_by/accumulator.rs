//! Accumulated states of groups: flat columns, indexed by the group's number.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, Float64Array, Int64Array, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Float64Type, UInt64Type};
use forebay_model::{COUNT_MAX, Fault, GroupFunction, Result, StateEncoder, codes};

use super::key_field::as_type;

/// A value column of a batch.
pub(super) struct ValueColumn {
    /// As it was read: texts may be a dictionary.
    pub(super) read: ArrayRef,
    /// In its logical type, once that is asked.
    plain: OnceCell<ArrayRef>,
    data_type: DataType,
    /// Rows that hold a value: neither null nor NaN.
    pub(super) valid: Option<NullBuffer>,
}

/// The index of a value that no row has.
const UNUSED: u32 = u32::MAX;

/// The values that rows have.
pub(super) struct UsedValues {
    /// In their logical type.
    pub(super) values: ArrayRef,
    /// For each row that holds a value, its index among them.
    pub(super) indices: Vec<u32>,
}

impl ValueColumn {
    pub(super) fn of(column: &ArrayRef, data_type: &DataType) -> Result<Self> {
        let valid = column
            .logical_nulls()
            .filter(|nulls| nulls.null_count() > 0);
        let read = column.clone();
        let data_type = data_type.clone();
        let mut value_column = ValueColumn {
            read,
            plain: OnceCell::new(),
            data_type,
            valid,
        };
        if value_column.data_type.is_floating() {
            let doubles = doubles(value_column.array()?)?;
            let is_number = doubles.values().iter().map(|value| !value.is_nan());
            let numbers: BooleanBuffer = is_number.collect();
            // NaN counts as missing; most columns have none, and their validity stays as it is.
            if numbers.count_set_bits() < numbers.len() {
                let numbers = NullBuffer::new(numbers);
                value_column.valid = NullBuffer::union(value_column.valid.as_ref(), Some(&numbers));
            }
        }
        Ok(value_column)
    }

    /// The column in its logical type.
    pub(super) fn array(&self) -> Result<&ArrayRef> {
        match self.plain.get() {
            Some(plain) => Ok(plain),
            None => {
                let plain = as_type(&self.read, &self.data_type)?;
                Ok(self.plain.get_or_init(|| plain))
            }
        }
    }

    /// The values of a dictionary that rows have, where these can be fewer than rows.
    pub(super) fn used_values(&self) -> Result<Option<UsedValues>> {
        let Some(dictionary) = self.read.as_any_dictionary_opt() else {
            return Ok(None);
        };
        let value_count = dictionary.values().len();
        if value_count == 0 || value_count > self.read.len() {
            return Ok(None);
        }
        let mut index_of = vec![UNUSED; value_count];
        let mut used_keys = Vec::new();
        let mut indices = Vec::with_capacity(self.read.len());
        for (row, key) in dictionary.normalized_keys().into_iter().enumerate() {
            if self.valid.as_ref().is_some_and(|valid| valid.is_null(row)) {
                indices.push(UNUSED);
                continue;
            }
            // Used values are numbered in the order of their first rows.
            let index = &mut index_of[key];
            if *index == UNUSED {
                *index = used_keys.len() as u32;
                used_keys.push(key as u32);
            }
            indices.push(*index);
        }
        let values = take(dictionary.values(), &UInt32Array::from(used_keys), None)?;
        Ok(Some(UsedValues {
            values: as_type(&values, &self.data_type)?,
            indices,
        }))
    }
}

/// The column as doubles; integers above 2^53 are rounded.
pub(super) fn doubles(array: &ArrayRef) -> Result<Float64Array> {
    let column = if *array.data_type() == DataType::Float64 {
        array
    } else {
        &cast(array, &DataType::Float64)?
    };
    Ok(column.as_primitive::<Float64Type>().clone())
}

/// Rows of a batch.
#[derive(Clone, Copy)]
pub(super) struct GroupedRows<'r> {
    /// The group of each row.
    pub(super) groups: &'r [u32],
    pub(super) value: Option<&'r ValueColumn>,
    /// The second column of a function: weights or times.
    pub(super) other: Option<&'r ValueColumn>,
    /// The position of the first row.
    pub(super) first: u64,
}

impl<'r> GroupedRows<'r> {
    pub(super) fn value(&self) -> Result<&'r ValueColumn> {
        self.value.ok_or_else(foreign_function)
    }

    /// The second column, and the rows that hold a value in both.
    pub(super) fn pair(&self) -> Result<(&'r ValueColumn, Option<NullBuffer>)> {
        let other = self.other.ok_or_else(foreign_function)?;
        let valid = NullBuffer::union(self.value()?.valid.as_ref(), other.valid.as_ref());
        Ok((other, valid))
    }
}

/// Calls `take` with each row that holds a value, and its group.
pub(super) fn for_each_value(
    groups: &[u32],
    valid: Option<&NullBuffer>,
    mut take: impl FnMut(usize, usize),
) {
    match valid {
        None => {
            for (row, group) in groups.iter().enumerate() {
                take(row, *group as usize);
            }
        }
        Some(valid) => {
            for (row, group) in groups.iter().enumerate() {
                if valid.is_valid(row) {
                    take(row, *group as usize);
                }
            }
        }
    }
}

/// Mergeable states of all groups.
pub(super) trait Accumulator: Send {
    /// Makes room for new groups.
    fn resize(&mut self, groups: usize);

    /// Accumulates rows.
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()>;

    /// The states of groups as columns.
    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>>;

    /// The states of groups without the positions of rows, which depend on rows outside the groups. The values of a
    /// group keep their order.
    fn placeless_states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        self.states(order)
    }

    /// Merges states into groups; returns the number of columns read. `shift` is added to the positions of their rows.
    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], shift: u64) -> Result<usize>;

    /// The results of a function for groups.
    fn results(&self, function: GroupFunction, order: &[u32]) -> Result<ArrayRef>;

    /// The values that the results of groups do not show.
    fn lost(&self, _: &[u32]) -> LostResults {
        LostResults::default()
    }

    /// Bytes of memory.
    fn bytes(&self) -> usize;
}

/// Values that results of groups do not show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostResults {
    /// Values beyond the limit of a list, which it leaves out.
    pub beyond_limit: u64,
    /// Results of groups with values that are null, since they are not defined: means by weights that sum to 0.
    pub undefined: u64,
}

impl LostResults {
    /// Adds those of other groups.
    pub(super) fn add(&mut self, other: LostResults) {
        self.beyond_limit += other.beyond_limit;
        self.undefined += other.undefined;
    }
}

/// The fault for a function that an accumulator does not know.
pub(super) fn foreign_function() -> Fault {
    Fault::internal("a group was asked what it does not know")
}

/// The encoded sums of groups, in this order.
pub(super) fn encode_groups(
    order: &[u32],
    mut encode: impl FnMut(u32, &mut StateEncoder<'_>) -> Result<()>,
) -> Result<ArrayRef> {
    let mut sums = BinaryBuilder::new();
    let mut bytes = Vec::new();
    for group in order {
        bytes.clear();
        encode(*group, &mut StateEncoder(&mut bytes))?;
        sums.append_value(&bytes);
    }
    Ok(Arc::new(sums.finish()))
}

/// The fault for states that are no states of an accumulator.
pub(super) fn foreign_states() -> Fault {
    Fault::new(codes::CORRUPT, "states of groups cannot be read")
}

/// A column of states in its type.
pub(super) fn state_column<T: arrow::datatypes::ArrowPrimitiveType>(
    states: &[ArrayRef],
    at: usize,
) -> Result<&arrow::array::PrimitiveArray<T>> {
    let column = states.get(at).ok_or_else(foreign_states)?;
    column.as_primitive_opt::<T>().ok_or_else(foreign_states)
}

/// A column of numbers of rows or values. One above [`COUNT_MAX`] is damage, so that sums of counts do not overflow.
pub(super) fn count_column(states: &[ArrayRef], at: usize) -> Result<&[u64]> {
    let counts = state_column::<UInt64Type>(states, at)?.values();
    let largest = counts.iter().max().copied().unwrap_or(0);
    if largest > COUNT_MAX {
        let message = format!("a state holds a count of {largest}, more than {COUNT_MAX}");
        return Err(Fault::new(codes::CORRUPT, message));
    }
    Ok(counts)
}

/// A column of encoded states.
pub(super) fn encoded_state_column(states: &[ArrayRef], at: usize) -> Result<&BinaryArray> {
    let column = states.get(at).ok_or_else(foreign_states)?;
    column.as_binary_opt::<i32>().ok_or_else(foreign_states)
}

/// Counts as a column of results.
pub(super) fn counted(counts: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(
        counts.map(|count| count as i64),
    ))
}
