//! First and last rows, and their values.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, Int64Array, UInt64Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use forebay_model::{GroupFunction, Result};

use super::accumulator::{Accumulator, ValueColumn, for_each_value, foreign_function, foreign_states, state_column};
use super::extremes::{ValueBytes, replace_bytes};
use super::ordered_bits::{from_ordered_bits, has_ordered_bits, to_ordered_bits};

/// The rank of no row.
const NONE: u64 = u64::MAX;

/// The rank of a position, and the position of a rank: the row with the least rank counts.
fn rank(position: u64, last: bool) -> u64 {
    if last { NONE - 1 - position } else { position }
}

/// The position of the first or last row of each group.
pub(super) struct PlacedRows {
    last: bool,
    ranks: Vec<u64>,
}

impl PlacedRows {
    pub(super) fn new(last: bool) -> Self {
        PlacedRows { last, ranks: Vec::new() }
    }
}

impl Accumulator for PlacedRows {
    fn resize(&mut self, groups: usize) {
        self.ranks.resize(groups, NONE);
    }

    fn update(&mut self, groups: &[u32], _: Option<&ValueColumn>, first: u64) -> Result<()> {
        for (group, position) in groups.iter().zip(first..) {
            let held = &mut self.ranks[*group as usize];
            *held = rank(position, self.last).min(*held);
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let ranks = order.iter().map(|group| self.ranks[*group as usize]);
        Ok(vec![Arc::new(UInt64Array::from_iter_values(ranks))])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<usize> {
        for (group, rank) in groups.iter().zip(state_column::<UInt64Type>(states, 0)?.values()) {
            let held = &mut self.ranks[*group as usize];
            *held = (*rank).min(*held);
        }
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        let positions = order.iter().map(|group| rank(self.ranks[*group as usize], self.last));
        Ok(Arc::new(UInt64Array::from_iter_values(positions)))
    }

    fn bytes(&self) -> usize {
        self.ranks.capacity() * size_of::<u64>()
    }
}

/// The first or last value of each group.
pub(super) struct PlacedValues {
    data_type: DataType,
    last: bool,
    ranks: Vec<u64>,
    held: HeldValues,
}

enum HeldValues {
    /// Integers in disguise.
    Bits(Vec<i64>),
    Bytes {
        values: Vec<Vec<u8>>,
        heap_bytes: usize,
        encoding: ValueBytes,
        null: Vec<u8>,
    },
}

impl PlacedValues {
    pub(super) fn new(data_type: &DataType, last: bool) -> Result<Self> {
        let held = match has_ordered_bits(data_type) {
            true => HeldValues::Bits(Vec::new()),
            false => {
                let encoding = ValueBytes::new(data_type)?;
                let null = encoding.null(data_type)?;
                HeldValues::Bytes { values: Vec::new(), heap_bytes: 0, encoding, null }
            }
        };
        Ok(PlacedValues { data_type: data_type.clone(), last, ranks: Vec::new(), held })
    }

    fn is_seen(&self, group: u32) -> bool {
        self.ranks[group as usize] != NONE
    }
}

/// Takes the values that come before the held ones.
fn replace_later(
    ranks: &mut [u64],
    groups: &[u32],
    valid: Option<&arrow::buffer::NullBuffer>,
    rank: impl Fn(usize) -> u64,
    mut replace: impl FnMut(usize, usize),
) {
    for_each_value(groups, valid, |row, group| {
        let rank = rank(row);
        if rank < ranks[group] {
            ranks[group] = rank;
            replace(row, group);
        }
    });
}

impl Accumulator for PlacedValues {
    fn resize(&mut self, groups: usize) {
        self.ranks.resize(groups, NONE);
        match &mut self.held {
            HeldValues::Bits(values) => values.resize(groups, 0),
            HeldValues::Bytes { values, .. } => values.resize(groups, Vec::new()),
        }
    }

    fn update(&mut self, groups: &[u32], value: Option<&ValueColumn>, first: u64) -> Result<()> {
        let column = value.ok_or_else(foreign_function)?;
        let (ranks, valid, last) = (&mut self.ranks, column.valid.as_ref(), self.last);
        let rank = |row: usize| rank(first + row as u64, last);
        match &mut self.held {
            HeldValues::Bits(values) => {
                let bits = to_ordered_bits(&column.array)?;
                replace_later(ranks, groups, valid, rank, |row, group| values[group] = bits.value(row));
            }
            HeldValues::Bytes { values, heap_bytes, encoding, .. } => {
                let rows = encoding.encode(&column.array)?;
                replace_later(ranks, groups, valid, rank, |row, group| {
                    replace_bytes(&mut values[group], rows.row(row).data(), heap_bytes);
                });
            }
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let ranks = order.iter().map(|group| self.ranks[*group as usize]);
        let values: ArrayRef = match &self.held {
            HeldValues::Bits(values) => {
                Arc::new(Int64Array::from_iter_values(order.iter().map(|group| values[*group as usize])))
            }
            HeldValues::Bytes { values, .. } => {
                Arc::new(BinaryArray::from_iter_values(order.iter().map(|group| &values[*group as usize])))
            }
        };
        Ok(vec![Arc::new(UInt64Array::from_iter_values(ranks)), values])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<usize> {
        let others = state_column::<UInt64Type>(states, 0)?.values();
        let (ranks, rank) = (&mut self.ranks, |row: usize| others[row]);
        match &mut self.held {
            HeldValues::Bits(values) => {
                let bits = state_column::<Int64Type>(states, 1)?;
                replace_later(ranks, groups, None, rank, |row, group| values[group] = bits.value(row));
            }
            HeldValues::Bytes { values, heap_bytes, .. } => {
                let bytes = states.get(1).and_then(|column| column.as_binary_opt::<i32>());
                let bytes = bytes.ok_or_else(foreign_states)?;
                replace_later(ranks, groups, None, rank, |row, group| {
                    replace_bytes(&mut values[group], bytes.value(row), heap_bytes);
                });
            }
        }
        Ok(2)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        match &self.held {
            HeldValues::Bits(values) => {
                let held = order.iter().map(|group| self.is_seen(*group).then(|| values[*group as usize]));
                from_ordered_bits(&held.collect(), &self.data_type)
            }
            HeldValues::Bytes { values, encoding, null, .. } => {
                let held = order.iter().map(|group| self.is_seen(*group).then(|| &values[*group as usize][..]));
                encoding.decode(held, null)
            }
        }
    }

    fn bytes(&self) -> usize {
        let held = match &self.held {
            HeldValues::Bits(values) => values.capacity() * size_of::<i64>(),
            HeldValues::Bytes { values, heap_bytes, .. } => values.capacity() * size_of::<Vec<u8>>() + heap_bytes,
        };
        held + self.ranks.capacity() * size_of::<u64>()
    }
}
