//! Lists of the first values of each group.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder, ListArray, UInt64Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_model::{Fault, GroupFunction, Result, codes};

use super::accumulator::{
    Accumulator, GroupedRows, for_each_value, foreign_function, foreign_states, state_column,
};
use super::extremes::ValueBytes;

/// The first values of each group in the order of rows, as far as a limit.
pub(super) struct Lists {
    data_type: DataType,
    limit: u32,
    encoding: ValueBytes,
    null: Vec<u8>,
    lists: Vec<HeldList>,
    heap_bytes: usize,
}

/// The list of one group.
#[derive(Default, Clone)]
struct HeldList {
    /// The number of the group's values, held or not.
    seen: u64,
    /// The number of values that are held.
    held: u32,
    /// The position of the last of them.
    last: u64,
    /// For each of them: its position, the length of its bytes, its bytes.
    items: Vec<u8>,
}

/// A value of a list.
#[derive(Clone, Copy)]
struct ListItem<'i> {
    position: u64,
    value: &'i [u8],
}

fn push_item(items: &mut Vec<u8>, item: ListItem<'_>) {
    items.extend_from_slice(&item.position.to_le_bytes());
    items.extend_from_slice(&(item.value.len() as u32).to_le_bytes());
    items.extend_from_slice(item.value);
}

/// Reads items that [`push_item`] wrote.
fn read_items(mut bytes: &[u8]) -> impl Iterator<Item = Result<ListItem<'_>>> {
    let next = move || -> Option<Result<ListItem<'_>>> {
        if bytes.is_empty() {
            return None;
        }
        let mut read = || {
            let (position, rest) = bytes.split_first_chunk::<8>()?;
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            bytes = rest;
            Some(ListItem {
                position: u64::from_le_bytes(*position),
                value,
            })
        };
        let item = read().ok_or_else(foreign_states);
        if item.is_err() {
            bytes = &[];
        }
        Some(item)
    };
    std::iter::from_fn(next)
}

impl HeldList {
    /// Adds values in the order of their positions, as far as the limit allows.
    fn extend(&mut self, items: &[ListItem<'_>], limit: u32) -> Result<()> {
        let Some(first) = items.first() else {
            return Ok(());
        };
        if self.held == 0 || first.position > self.last {
            let free = limit.saturating_sub(self.held) as usize;
            self.append(&items[..items.len().min(free)]);
            return Ok(());
        }
        let before = std::mem::take(self);
        let mut all = read_items(&before.items).collect::<Result<Vec<_>>>()?;
        all.extend_from_slice(items);
        all.sort_by_key(|item| item.position);
        all.truncate(limit as usize);
        self.seen = before.seen;
        self.append(&all);
        Ok(())
    }

    fn append(&mut self, items: &[ListItem<'_>]) {
        items
            .iter()
            .for_each(|item| push_item(&mut self.items, *item));
        self.held += items.len() as u32;
        self.last = items.last().map_or(self.last, |item| item.position);
    }
}

impl Lists {
    pub(super) fn new(data_type: &DataType, limit: u32) -> Result<Self> {
        let encoding = ValueBytes::new(data_type)?;
        let null = encoding.null(data_type)?;
        Ok(Lists {
            data_type: data_type.clone(),
            limit,
            encoding,
            null,
            lists: Vec::new(),
            heap_bytes: 0,
        })
    }

    /// Adds values to the list of a group, without counting them.
    fn add(&mut self, group: usize, items: &[ListItem<'_>]) -> Result<()> {
        let list = &mut self.lists[group];
        let before = list.items.capacity();
        list.extend(items, self.limit)?;
        self.heap_bytes = self.heap_bytes + list.items.capacity() - before;
        Ok(())
    }

    fn columns<'l>(
        &'l self,
        order: &[u32],
        mut append: impl FnMut(&mut BinaryBuilder, &'l HeldList) -> Result<()>,
    ) -> Result<Vec<ArrayRef>> {
        let mut items = BinaryBuilder::new();
        order
            .iter()
            .try_for_each(|group| append(&mut items, &self.lists[*group as usize]))?;
        let seen = order.iter().map(|group| self.lists[*group as usize].seen);
        Ok(vec![
            Arc::new(items.finish()),
            Arc::new(UInt64Array::from_iter_values(seen)),
        ])
    }
}

impl Accumulator for Lists {
    fn resize(&mut self, groups: usize) {
        self.lists.resize(groups, HeldList::default());
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let column = rows.value()?;
        let encoded = self.encoding.encode(column.array()?)?;
        let mut added = Ok(());
        for_each_value(rows.groups, column.valid.as_ref(), |row, group| {
            self.lists[group].seen += 1;
            let item = ListItem {
                position: rows.first + row as u64,
                value: encoded.row(row).data(),
            };
            if added.is_ok() {
                added = self.add(group, &[item]);
            }
        });
        added
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        self.columns(order, |items, list| {
            items.append_value(&list.items);
            Ok(())
        })
    }

    fn placeless_states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut bytes = Vec::new();
        self.columns(order, |items, list| {
            bytes.clear();
            for (item, position) in read_items(&list.items).zip(0..) {
                push_item(&mut bytes, ListItem { position, ..item? });
            }
            items.append_value(&bytes);
            Ok(())
        })
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], shift: u64) -> Result<usize> {
        let lists = states
            .first()
            .and_then(|column| column.as_binary_opt::<i32>())
            .ok_or_else(foreign_states)?;
        let seen = state_column::<UInt64Type>(states, 1)?.values();
        let mut items = Vec::new();
        for (row, group) in groups.iter().enumerate() {
            self.lists[*group as usize].seen += seen[row];
            items.clear();
            for item in read_items(lists.value(row)) {
                let item = item?;
                items.push(ListItem {
                    position: item.position.saturating_add(shift),
                    ..item
                });
            }
            self.add(*group as usize, &items)?;
        }
        Ok(2)
    }

    fn results(&self, function: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        let GroupFunction::List { truncate, .. } = function else {
            return Err(foreign_function());
        };
        let lists = || order.iter().map(|group| &self.lists[*group as usize]);
        if let Some(long) = lists()
            .map(|list| list.seen)
            .find(|seen| !truncate && *seen > u64::from(self.limit))
        {
            let message = format!(
                "a list of {long} values is longer than `limit: {}`",
                self.limit
            );
            return Err(Fault::new(codes::BAD_ROW, message)
                .hint("raise `limit`, or keep the first values alone with `beyond: truncate`"));
        }
        let mut items = Vec::new();
        for list in lists() {
            items.extend(read_items(&list.items).collect::<Result<Vec<_>>>()?);
        }
        let values = self
            .encoding
            .decode(items.iter().map(|item| Some(item.value)), &self.null)?;
        list_column(
            lists().map(|list| list.held as usize),
            values,
            &self.data_type,
        )
    }

    fn bytes(&self) -> usize {
        self.lists.capacity() * size_of::<HeldList>() + self.heap_bytes
    }
}

/// A column of lists of some lengths; empty ones are null.
pub(super) fn list_column(
    lengths: impl Iterator<Item = usize> + Clone,
    values: ArrayRef,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let filled: NullBuffer = lengths
        .clone()
        .map(|length| length > 0)
        .collect::<Vec<bool>>()
        .into();
    let field = Arc::new(Field::new_list_field(data_type.clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(
        field,
        offsets,
        values,
        Some(filled),
    )?))
}
