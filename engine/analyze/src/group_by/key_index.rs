//! The groups of rows: keys packed into words, with a number for each.
//!
//! Numbers, dates, times and booleans enter a key with their bits, all other values with a code. Values of a dictionary
//! get their codes once per dictionary rather than once per row. Keys of more than eight words are compared as bytes, and
//! so are wide keys of many coded values.

use arrow::array::{ArrayRef, BinaryArray};
use arrow::row::RowConverter;
use forebay_model::{Fault, GroupKey, Result, decode_rows};

use super::key_field::{FieldCodes, KeyField, as_type, sort_field};
use super::packed_keys::PackedKeys;
use crate::byte_order::sorted_bytes;
use crate::interner::Interner;

/// Most coded fields of keys that have more than four words. Each of them takes a search of its own, which costs more than
/// to compare whole keys where there are many.
const WIDE_CODED_MAX: usize = 8;

/// Bytes of memory that sorting takes for a group, at most: its number, the beginning of its key and its place.
const SORT_BYTES: usize = size_of::<(u128, u32)>() + size_of::<u32>();

/// Keys by their number. Null is a key of its own.
pub(super) struct KeyIndex {
    fields: Vec<KeyField>,
    table: KeyTable,
    /// True if each key has the values of its rows.
    keeps_values: bool,
    /// Encodes keys as bytes that sort like them, nulls last.
    converter: Option<RowConverter>,
}

enum KeyTable {
    /// Without key columns: one group.
    Nothing,
    One(PackedKeys<1>),
    Two(PackedKeys<2>),
    Four(PackedKeys<4>),
    Six(PackedKeys<6>),
    Eight(PackedKeys<8>),
    Bytes(Interner),
}

/// The values that the codes of key columns stand for, by column.
pub(super) struct KeyDecoder(Vec<Option<ArrayRef>>);

/// The codes that the values of another index have in this one, by coded column.
pub(super) struct AdoptedCodes(Vec<FieldCodes>);

impl KeyIndex {
    pub(super) fn new(keys: &[GroupKey]) -> Result<Self> {
        let (fields, words) = KeyField::layout(keys)?;
        let coded_fields = fields.iter().filter(|field| field.is_coded());
        let is_packed = coded_fields.count() <= WIDE_CODED_MAX;
        let table = match words {
            0 => KeyTable::Nothing,
            1 => KeyTable::One(PackedKeys::default()),
            2 => KeyTable::Two(PackedKeys::default()),
            3 | 4 => KeyTable::Four(PackedKeys::default()),
            5 | 6 if is_packed => KeyTable::Six(PackedKeys::default()),
            7 | 8 if is_packed => KeyTable::Eight(PackedKeys::default()),
            _ => KeyTable::Bytes(Interner::default()),
        };
        let converter = match keys {
            [] => None,
            keys => {
                let fields = keys.iter().map(|key| sort_field(&key.data_type));
                Some(RowConverter::new(fields.collect())?)
            }
        };
        let keeps_values = fields.iter().all(KeyField::keeps_values);
        Ok(KeyIndex {
            fields,
            table,
            keeps_values,
            converter,
        })
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        match &self.table {
            KeyTable::Nothing => 1,
            KeyTable::One(keys) => keys.keys.len(),
            KeyTable::Two(keys) => keys.keys.len(),
            KeyTable::Four(keys) => keys.keys.len(),
            KeyTable::Six(keys) => keys.keys.len(),
            KeyTable::Eight(keys) => keys.keys.len(),
            KeyTable::Bytes(interner) => interner.len(),
        }
    }

    /// Writes the group of each row to `into`; `columns` are those of the keys.
    pub(super) fn find_groups(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        into: &mut Vec<u32>,
    ) -> Result<()> {
        into.clear();
        let fields = &mut self.fields;
        let mut prepared = Vec::with_capacity(columns.len());
        for (column, field) in columns.iter().zip(fields.iter()) {
            let column = field.prepared(column)?;
            self.keeps_values &= !column.is_changed;
            prepared.push(column.values);
        }
        let columns = prepared;
        // Each number of words has its own table, so that comparing keys compiles to a few instructions.
        match &mut self.table {
            KeyTable::Nothing => into.resize(rows, 0),
            KeyTable::One(keys) => keys.find(fields, &columns, rows, into)?,
            KeyTable::Two(keys) => keys.find(fields, &columns, rows, into)?,
            KeyTable::Four(keys) => keys.find(fields, &columns, rows, into)?,
            KeyTable::Six(keys) => keys.find(fields, &columns, rows, into)?,
            KeyTable::Eight(keys) => keys.find(fields, &columns, rows, into)?,
            KeyTable::Bytes(interner) => {
                let mut typed = Vec::with_capacity(columns.len());
                for (column, field) in columns.iter().zip(fields) {
                    typed.push(as_type(column, &field.data_type)?);
                }
                let encoded = converter(&self.converter)?.convert_columns(&typed)?;
                interner.push_codes(rows, |row| encoded.row(row).data(), into)?;
            }
        }
        Ok(())
    }

    /// Keeps the coded values of another index, and returns their codes here. Both indexes are of the same keys.
    pub(super) fn adopt_codes(&mut self, other: &KeyIndex) -> Result<AdoptedCodes> {
        let mut codes = Vec::new();
        for (field, other_field) in self.fields.iter_mut().zip(&other.fields) {
            codes.extend(field.adopt_codes(other_field)?);
        }
        Ok(AdoptedCodes(codes))
    }

    /// Writes the groups that some groups of another index have here to `into`. Their keys are compared as they are, without
    /// a column of values.
    pub(super) fn find_groups_of(
        &mut self,
        other: &KeyIndex,
        AdoptedCodes(codes): &AdoptedCodes,
        order: &[u32],
        into: &mut Vec<u32>,
    ) -> Result<()> {
        use KeyTable as T;
        self.keeps_values &= other.keeps_values;
        into.clear();
        match (&mut self.table, &other.table) {
            (T::Nothing, T::Nothing) => into.resize(order.len(), 0),
            (T::One(keys), T::One(others)) => keys.find_groups_of(others, codes, order, into)?,
            (T::Two(keys), T::Two(others)) => keys.find_groups_of(others, codes, order, into)?,
            (T::Four(keys), T::Four(others)) => keys.find_groups_of(others, codes, order, into)?,
            (T::Six(keys), T::Six(others)) => keys.find_groups_of(others, codes, order, into)?,
            (T::Eight(keys), T::Eight(others)) => {
                keys.find_groups_of(others, codes, order, into)?
            }
            (T::Bytes(interner), T::Bytes(others)) => interner.push_codes(
                order.len(),
                |number| others.get(order[number] as usize),
                into,
            )?,
            _ => return Err(Fault::internal("groups of other keys")),
        }
        Ok(())
    }

    /// The groups in the order of their keys, nulls last.
    pub(super) fn sorted_order(&self) -> Vec<u32> {
        match &self.table {
            KeyTable::Nothing => vec![0],
            KeyTable::One(keys) => keys.sorted_order(&self.fields),
            KeyTable::Two(keys) => keys.sorted_order(&self.fields),
            KeyTable::Four(keys) => keys.sorted_order(&self.fields),
            KeyTable::Six(keys) => keys.sorted_order(&self.fields),
            KeyTable::Eight(keys) => keys.sorted_order(&self.fields),
            KeyTable::Bytes(interner) => sorted_bytes(interner.len(), |group| interner.get(group)),
        }
    }

    /// The decoder of the groups that there are now.
    pub(super) fn decoder(&self) -> Result<KeyDecoder> {
        let mut coded_values = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            coded_values.push(field.coded_values()?);
        }
        Ok(KeyDecoder(coded_values))
    }

    /// The key columns of some groups.
    pub(super) fn columns(&self, decoder: &KeyDecoder, order: &[u32]) -> Result<Vec<ArrayRef>> {
        match &self.table {
            KeyTable::Nothing => Ok(Vec::new()),
            KeyTable::One(keys) => keys.columns(&self.fields, &decoder.0, order),
            KeyTable::Two(keys) => keys.columns(&self.fields, &decoder.0, order),
            KeyTable::Four(keys) => keys.columns(&self.fields, &decoder.0, order),
            KeyTable::Six(keys) => keys.columns(&self.fields, &decoder.0, order),
            KeyTable::Eight(keys) => keys.columns(&self.fields, &decoder.0, order),
            KeyTable::Bytes(_) => self.decode(&self.encoded(decoder, order)?),
        }
    }

    /// The keys of some groups as bytes that sort like the keys.
    pub(super) fn encoded(&self, decoder: &KeyDecoder, order: &[u32]) -> Result<BinaryArray> {
        match &self.table {
            KeyTable::Nothing => Ok(order.iter().map(|_| Some(b"")).collect()),
            KeyTable::Bytes(interner) => {
                let keys = order.iter().map(|group| interner.get(*group as usize));
                Ok(keys.map(Some).collect())
            }
            _ => {
                let columns = self.columns(decoder, order)?;
                let rows = converter(&self.converter)?.convert_columns(&columns)?;
                Ok(rows.try_into_binary()?)
            }
        }
    }

    /// The key columns of encoded keys.
    pub(super) fn decode(&self, keys: &BinaryArray) -> Result<Vec<ArrayRef>> {
        let Some(converter) = &self.converter else {
            return Ok(Vec::new());
        };
        decode_rows(converter, keys.iter().map(Option::unwrap_or_default))
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let table = match &self.table {
            KeyTable::Nothing => 0,
            KeyTable::One(keys) => keys.bytes(),
            KeyTable::Two(keys) => keys.bytes(),
            KeyTable::Four(keys) => keys.bytes(),
            KeyTable::Six(keys) => keys.bytes(),
            KeyTable::Eight(keys) => keys.bytes(),
            KeyTable::Bytes(interner) => interner.bytes(),
        };
        table + self.fields.iter().map(KeyField::bytes).sum::<usize>()
    }

    /// Bytes of [`KeyIndex::bytes`] that stay where they are while others are added: they grow without a copy.
    pub(super) fn segment_bytes(&self) -> usize {
        let table = match &self.table {
            KeyTable::Nothing => 0,
            KeyTable::One(keys) => keys.segment_bytes(),
            KeyTable::Two(keys) => keys.segment_bytes(),
            KeyTable::Four(keys) => keys.segment_bytes(),
            KeyTable::Six(keys) => keys.segment_bytes(),
            KeyTable::Eight(keys) => keys.segment_bytes(),
            KeyTable::Bytes(interner) => interner.segment_bytes(),
        };
        let fields = self.fields.iter().map(KeyField::segment_bytes);
        table + fields.sum::<usize>()
    }

    /// Bytes of memory that reading the groups in their order takes at most.
    pub(super) fn sort_bytes(&self) -> usize {
        // A decoder has a copy of the coded values.
        let coded_values = self.fields.iter().map(KeyField::segment_bytes);
        self.len() * SORT_BYTES + coded_values.sum::<usize>()
    }

    /// True if the keys can be read as the values of their rows, bit by bit.
    pub(super) fn holds_rows(&self) -> bool {
        self.keeps_values && self.fields.iter().all(KeyField::fits_array)
    }

    /// Forgets all keys and frees their memory.
    pub(super) fn clear(&mut self) {
        self.fields.iter_mut().for_each(KeyField::clear);
        match &mut self.table {
            KeyTable::Nothing => {}
            KeyTable::One(keys) => *keys = PackedKeys::default(),
            KeyTable::Two(keys) => *keys = PackedKeys::default(),
            KeyTable::Four(keys) => *keys = PackedKeys::default(),
            KeyTable::Six(keys) => *keys = PackedKeys::default(),
            KeyTable::Eight(keys) => *keys = PackedKeys::default(),
            KeyTable::Bytes(interner) => interner.clear(),
        }
    }
}

fn converter(converter: &Option<RowConverter>) -> Result<&RowConverter> {
    converter
        .as_ref()
        .ok_or_else(|| Fault::internal("keys without an encoding"))
}
