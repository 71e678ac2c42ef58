//! Lists of the first values of each group.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, ListArray, UInt64Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, GroupFunction, Result, codes};

use super::accumulator::{
    Accumulator, GroupedRows, LostResults, count_column, encoded_state_column, for_each_value,
    foreign_function, foreign_states,
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
    /// The number of the group's values, with those beyond the limit.
    seen: u64,
    /// The number of items.
    item_count: u32,
    /// The position of the last item.
    last: u64,
    /// For each item: its position, the length of its bytes, its bytes.
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
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let Some((item, tail)) = split_item(bytes) else {
            // Bytes that are no item end the list.
            bytes = &[];
            return Some(Err(foreign_states()));
        };
        bytes = tail;
        Some(Ok(item))
    })
}

/// Splits off the first item.
fn split_item(bytes: &[u8]) -> Option<(ListItem<'_>, &[u8])> {
    let (position, bytes) = bytes.split_first_chunk::<8>()?;
    let (length, bytes) = bytes.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let (value, tail) = bytes.split_at_checked(length)?;
    let item = ListItem {
        position: u64::from_le_bytes(*position),
        value,
    };
    Some((item, tail))
}

impl HeldList {
    /// Adds values in the order of their positions, as far as the limit allows.
    fn extend(&mut self, items: &[ListItem<'_>], limit: u32) -> Result<()> {
        let Some(first) = items.first() else {
            return Ok(());
        };
        // The usual case: all new items follow those of the list.
        if self.item_count == 0 || first.position > self.last {
            let free = limit.saturating_sub(self.item_count) as usize;
            self.append(&items[..items.len().min(free)]);
            return Ok(());
        }
        let old_list = std::mem::take(self);
        let mut merged = read_items(&old_list.items).collect::<Result<Vec<_>>>()?;
        merged.extend_from_slice(items);
        merged.sort_by_key(|item| item.position);
        merged.truncate(limit as usize);
        self.seen = old_list.seen;
        self.append(&merged);
        Ok(())
    }

    fn append(&mut self, items: &[ListItem<'_>]) {
        for item in items {
            push_item(&mut self.items, *item);
        }
        self.item_count += items.len() as u32;
        if let Some(last) = items.last() {
            self.last = last.position;
        }
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
        let old_capacity = list.items.capacity();
        list.extend(items, self.limit)?;
        self.heap_bytes = self.heap_bytes + list.items.capacity() - old_capacity;
        Ok(())
    }

    fn columns<'l>(
        &'l self,
        order: &[u32],
        mut append: impl FnMut(&mut BinaryBuilder, &'l HeldList) -> Result<()>,
    ) -> Result<Vec<ArrayRef>> {
        let mut items = BinaryBuilder::new();
        for group in order {
            append(&mut items, &self.lists[*group as usize])?;
        }
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
        let lists = encoded_state_column(states, 0)?;
        let seen = count_column(states, 1)?;
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
        let mut items = Vec::new();
        let mut lengths = Vec::with_capacity(order.len());
        for group in order {
            let list = &self.lists[*group as usize];
            if !truncate && list.seen > u64::from(self.limit) {
                return Err(too_long(list.seen, self.limit));
            }
            for item in read_items(&list.items) {
                items.push(Some(item?.value));
            }
            lengths.push(list.item_count as usize);
        }
        let values = self.encoding.decode(items.into_iter(), &self.null)?;
        list_column(lengths.into_iter(), values, &self.data_type)
    }

    fn lost(&self, order: &[u32]) -> LostResults {
        let lists = order.iter().map(|group| &self.lists[*group as usize]);
        let limit = u64::from(self.limit);
        LostResults {
            beyond_limit: lists.map(|list| list.seen.saturating_sub(limit)).sum(),
            ..LostResults::default()
        }
    }

    fn bytes(&self) -> usize {
        self.lists.capacity() * size_of::<HeldList>() + self.heap_bytes
    }
}

fn too_long(values: u64, limit: u32) -> Fault {
    let message = format!("a list of {values} values is longer than `limit: {limit}`");
    Fault::new(codes::BAD_ROW, message)
        .hint("raise `limit`, or keep the first values alone with `beyond: truncate`")
}

/// A column of lists of some lengths; empty ones are null.
pub(super) fn list_column(
    lengths: impl Iterator<Item = usize> + Clone,
    values: ArrayRef,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let is_filled: Vec<bool> = lengths.clone().map(|length| length > 0).collect();
    let nulls = NullBuffer::from(is_filled);
    let field = Arc::new(Field::new_list_field(data_type.clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let lists = ListArray::try_new(field, offsets, values, Some(nulls))?;
    Ok(Arc::new(lists))
}
