//! First and last rows, and their values.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use forebay_model::{GroupFunction, Result};

use super::accumulator::{
    Accumulator, GroupedRows, ValueColumn, encoded_state_column, for_each_value, foreign_states,
    state_column,
};
use super::extremes::{ValueBytes, replace_bytes};
use super::ordered_bits::{from_ordered_bits, has_ordered_bits, to_ordered_bits};

/// The rank of no row.
const NONE: u64 = u64::MAX;

/// The rank of a position, and the position of a rank: the row with the least rank counts.
fn rank(position: u64, last: bool) -> u64 {
    if last { NONE - 1 - position } else { position }
}

/// A rank whose position is `shift` later.
fn shifted(rank: u64, shift: u64, last: bool) -> u64 {
    match (rank, last) {
        (NONE, _) => NONE,
        (rank, true) => rank.saturating_sub(shift),
        (rank, false) => rank.saturating_add(shift),
    }
}

/// The position of the first or last row of each group.
pub(super) struct PlacedRows {
    last: bool,
    ranks: Vec<u64>,
}

impl PlacedRows {
    pub(super) fn new(last: bool) -> Self {
        PlacedRows {
            last,
            ranks: Vec::new(),
        }
    }
}

impl Accumulator for PlacedRows {
    fn resize(&mut self, groups: usize) {
        self.ranks.resize(groups, NONE);
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        for (group, position) in rows.groups.iter().zip(rows.first..) {
            let group_rank = &mut self.ranks[*group as usize];
            *group_rank = rank(position, self.last).min(*group_rank);
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let ranks = order.iter().map(|group| self.ranks[*group as usize]);
        Ok(vec![Arc::new(UInt64Array::from_iter_values(ranks))])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], shift: u64) -> Result<usize> {
        let ranks = state_column::<UInt64Type>(states, 0)?.values();
        for (group, rank) in groups.iter().zip(ranks) {
            let group_rank = &mut self.ranks[*group as usize];
            *group_rank = shifted(*rank, shift, self.last).min(*group_rank);
        }
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        let positions = order
            .iter()
            .map(|group| rank(self.ranks[*group as usize], self.last));
        Ok(Arc::new(UInt64Array::from_iter_values(positions)))
    }

    fn bytes(&self) -> usize {
        self.ranks.capacity() * size_of::<u64>()
    }
}

/// The first or last value of each group, by the position of rows or by their time.
pub(super) struct PlacedValues {
    data_type: DataType,
    last: bool,
    ranks: Vec<u64>,
    /// If rows are ordered by time: numbers whose least counts. Of rows of one time the least rank counts.
    times: Option<Vec<i64>>,
    values: HeldValues,
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

/// Values that may replace those that are held.
enum NewValues<'v> {
    Bits(&'v Int64Array),
    Rows(&'v arrow::row::Rows),
    Bytes(&'v BinaryArray),
}

/// Groups, validity and ranks of new values.
struct NewPlaces<'p, R> {
    groups: &'p [u32],
    valid: Option<&'p NullBuffer>,
    rank: R,
    times: Option<&'p Int64Array>,
}

impl PlacedValues {
    pub(super) fn new(data_type: &DataType, last: bool, by_time: bool) -> Result<Self> {
        let values = if has_ordered_bits(data_type) {
            HeldValues::Bits(Vec::new())
        } else {
            let encoding = ValueBytes::new(data_type)?;
            let null = encoding.null(data_type)?;
            HeldValues::Bytes {
                values: Vec::new(),
                heap_bytes: 0,
                encoding,
                null,
            }
        };
        let times = by_time.then(Vec::new);
        Ok(PlacedValues {
            data_type: data_type.clone(),
            last,
            ranks: Vec::new(),
            times,
            values,
        })
    }

    fn is_seen(&self, group: u32) -> bool {
        self.ranks[group as usize] != NONE
    }

    /// Replaces the values of groups by new ones that come before them.
    fn replace(
        &mut self,
        new_places: NewPlaces<'_, impl Fn(usize) -> u64>,
        new_values: &NewValues<'_>,
    ) -> Result<()> {
        let PlacedValues {
            ranks,
            times,
            values,
            ..
        } = self;
        let NewPlaces {
            groups,
            valid,
            rank,
            times: new_times,
        } = new_places;
        // States of groups by time have times, all others have none.
        let (mut times, new_times) = match (times, new_times) {
            (Some(times), Some(new)) => (Some(times), Some(new)),
            (None, _) => (None, None),
            (Some(_), None) => return Err(foreign_states()),
        };
        // True for a row that replaces the one of its group; notes its rank and time.
        let mut comes_before = |row: usize, group: usize| {
            let rank = rank(row);
            if let (Some(times), Some(new)) = (&mut times, new_times) {
                let time = new.value(row);
                if (time, rank) >= (times[group], ranks[group]) {
                    return false;
                }
                times[group] = time;
            } else if rank >= ranks[group] {
                return false;
            }
            ranks[group] = rank;
            true
        };
        match (values, new_values) {
            (HeldValues::Bits(values), NewValues::Bits(bits)) => {
                for_each_value(groups, valid, |row, group| {
                    if comes_before(row, group) {
                        values[group] = bits.value(row);
                    }
                })
            }
            (
                HeldValues::Bytes {
                    values, heap_bytes, ..
                },
                NewValues::Rows(rows),
            ) => {
                for_each_value(groups, valid, |row, group| {
                    if comes_before(row, group) {
                        replace_bytes(&mut values[group], rows.row(row).data(), heap_bytes);
                    }
                });
            }
            (
                HeldValues::Bytes {
                    values, heap_bytes, ..
                },
                NewValues::Bytes(bytes),
            ) => {
                for_each_value(groups, valid, |row, group| {
                    if comes_before(row, group) {
                        replace_bytes(&mut values[group], bytes.value(row), heap_bytes);
                    }
                });
            }
            _ => return Err(foreign_states()),
        }
        Ok(())
    }

    /// The times of rows as numbers whose least counts.
    fn ordered_times(&self, times: &ValueColumn) -> Result<Int64Array> {
        let times = to_ordered_bits(times.array()?)?;
        if self.last {
            // Inverted bits turn the latest time into the least number.
            Ok(times.unary::<_, Int64Type>(|time| !time))
        } else {
            Ok(times)
        }
    }

    fn columns(&self, order: &[u32], ranks: impl Iterator<Item = u64>) -> Vec<ArrayRef> {
        let values: ArrayRef = match &self.values {
            HeldValues::Bits(values) => {
                let values = order.iter().map(|group| values[*group as usize]);
                Arc::new(Int64Array::from_iter_values(values))
            }
            HeldValues::Bytes { values, .. } => {
                let values = order.iter().map(|group| &values[*group as usize]);
                Arc::new(BinaryArray::from_iter_values(values))
            }
        };
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from_iter_values(ranks))];
        columns.push(values);
        if let Some(times) = &self.times {
            let times = order.iter().map(|group| times[*group as usize]);
            columns.push(Arc::new(Int64Array::from_iter_values(times)));
        }
        columns
    }
}

impl Accumulator for PlacedValues {
    fn resize(&mut self, groups: usize) {
        self.ranks.resize(groups, NONE);
        if let Some(times) = &mut self.times {
            times.resize(groups, i64::MAX);
        }
        match &mut self.values {
            HeldValues::Bits(values) => values.resize(groups, 0),
            HeldValues::Bytes { values, .. } => values.resize(groups, Vec::new()),
        }
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let column = rows.value()?;
        let last = self.last;
        let first = rows.first;
        let (times, valid) = match self.times {
            Some(_) => {
                let (times, valid) = rows.pair()?;
                (Some(self.ordered_times(times)?), valid)
            }
            None => (None, column.valid.clone()),
        };
        let new_places = NewPlaces {
            groups: rows.groups,
            valid: valid.as_ref(),
            rank: |row: usize| rank(first + row as u64, last),
            times: times.as_ref(),
        };
        // Values of a fixed size are compared and kept as integers, all others as bytes.
        let encoded = match &self.values {
            HeldValues::Bits(_) => {
                let bits = to_ordered_bits(column.array()?)?;
                return self.replace(new_places, &NewValues::Bits(&bits));
            }
            HeldValues::Bytes { encoding, .. } => encoding.encode(column.array()?)?,
        };
        self.replace(new_places, &NewValues::Rows(&encoded))
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(self.columns(order, order.iter().map(|group| self.ranks[*group as usize])))
    }

    fn placeless_states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        // All rows that count have the position 0.
        let first_rank = rank(0, self.last);
        let ranks = order.iter().map(|group| {
            if self.is_seen(*group) {
                first_rank
            } else {
                NONE
            }
        });
        Ok(self.columns(order, ranks))
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], shift: u64) -> Result<usize> {
        let ranks = state_column::<UInt64Type>(states, 0)?.values();
        let last = self.last;
        let by_time = self.times.is_some();
        let times = if by_time {
            Some(state_column::<Int64Type>(states, 2)?)
        } else {
            None
        };
        let new_places = NewPlaces {
            groups,
            valid: None,
            rank: |row: usize| shifted(ranks[row], shift, last),
            times,
        };
        match &self.values {
            HeldValues::Bits(_) => {
                let bits = state_column::<Int64Type>(states, 1)?;
                self.replace(new_places, &NewValues::Bits(bits))?;
            }
            HeldValues::Bytes { .. } => {
                let bytes = encoded_state_column(states, 1)?;
                self.replace(new_places, &NewValues::Bytes(bytes))?;
            }
        }
        Ok(2 + usize::from(by_time))
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        match &self.values {
            HeldValues::Bits(values) => {
                let bits = order
                    .iter()
                    .map(|group| self.is_seen(*group).then(|| values[*group as usize]));
                from_ordered_bits(&bits.collect(), &self.data_type)
            }
            HeldValues::Bytes {
                values,
                encoding,
                null,
                ..
            } => {
                let bytes = order
                    .iter()
                    .map(|group| self.is_seen(*group).then(|| &values[*group as usize][..]));
                encoding.decode(bytes, null)
            }
        }
    }

    fn bytes(&self) -> usize {
        let values = match &self.values {
            HeldValues::Bits(values) => values.capacity() * size_of::<i64>(),
            HeldValues::Bytes {
                values, heap_bytes, ..
            } => values.capacity() * size_of::<Vec<u8>>() + heap_bytes,
        };
        let times = self.times.as_ref().map_or(0, Vec::capacity) * size_of::<i64>();
        values + times + self.ranks.capacity() * size_of::<u64>()
    }
}
