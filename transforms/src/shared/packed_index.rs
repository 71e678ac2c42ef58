//! Rows of a table found by several keys, each a number: texts of a dictionary are looked up once a dictionary.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt32Type};
use forebay_model::{Fault, Result, StringColumn, logical_type};
use hashbrown::{HashMap, HashSet, HashTable};

use super::TokenIndex;
use super::key_values::cast_key;
use super::tokens::gather_ids;

/// The number of a key with a value that the table does not hold. No key has it.
const NO_KEY: u64 = u64::MAX;

/// A table indexed by key columns of texts, integers, dates and times.
#[derive(Debug)]
pub(crate) struct PackedIndex {
    columns: Vec<PackedColumn>,
    /// More than the values of any column: as many as the table has rows, and one more for null.
    codes: u64,
    /// The key of each row of the table. Rows that repeat a key have none.
    keys: Vec<u64>,
    /// The rows by their keys.
    table: HashTable<u32>,
}

/// The code of each value of a key column, numbered as they come.
#[derive(Debug)]
enum PackedColumn {
    Text(TokenIndex),
    Integers(DataType, HashMap<i64, u32>),
}

impl PackedColumn {
    /// `None` for types that are neither text nor integers, and of which `i64` does not hold all values.
    fn of(column: &ArrayRef) -> Result<Option<PackedColumn>> {
        use DataType as T;
        match column.data_type() {
            T::Utf8 => Ok(Some(PackedColumn::Text(distinct_texts(column)?))),
            T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::UInt8
            | T::UInt16
            | T::UInt32
            | T::Date32
            | T::Timestamp(..) => {
                let mut codes = HashMap::new();
                for value in integers(column)?.iter().flatten() {
                    let code = codes.len() as u32;
                    codes.entry(value).or_insert(code);
                }
                Ok(Some(PackedColumn::Integers(
                    column.data_type().clone(),
                    codes,
                )))
            }
            _ => Ok(None),
        }
    }

    /// The code of each value; `None` for null and for values that the table does not hold.
    fn codes(&self, column: &ArrayRef) -> Result<Vec<Option<u32>>> {
        match self {
            PackedColumn::Text(tokens) => {
                let column = if logical_type(column.data_type()) == DataType::Utf8 {
                    column.clone()
                } else {
                    cast_key(column, &DataType::Utf8)?
                };
                let ids = gather_ids::<UInt32Type>(&StringColumn::of(&column)?, |text| {
                    Ok(tokens.find(text))
                })?;
                Ok(ids.iter().collect())
            }
            PackedColumn::Integers(data_type, codes) => {
                let values = integers(&cast_key(column, data_type)?)?;
                let code = |value: Option<i64>| codes.get(&value?).copied();
                Ok(values.iter().map(code).collect())
            }
        }
    }
}

/// Texts are often few and repeat: only distinct ones are indexed.
fn distinct_texts(column: &ArrayRef) -> Result<TokenIndex> {
    let mut texts = StringBuilder::new();
    let mut seen = HashSet::new();
    for text in column.as_string::<i32>().iter().flatten() {
        if seen.insert(text) {
            texts.append_value(text);
        }
    }
    TokenIndex::new(Arc::new(texts.finish()))
}

fn integers(column: &ArrayRef) -> Result<Int64Array> {
    let column = match column.data_type() {
        // Arrow casts dates to `Int32` only.
        DataType::Date32 => &cast(column, &DataType::Int32)?,
        _ => column,
    };
    let integers = cast(column, &DataType::Int64)?;
    Ok(integers.as_primitive::<Int64Type>().clone())
}

fn hash_key(key: u64) -> u64 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

impl PackedIndex {
    /// Indexes a table by its key columns, of which the first row counts; `duplicate` gets both rows of a key that
    /// repeats. `None` where keys of these types or of so many rows do not fit a number.
    pub(crate) fn of(
        keys: &[ArrayRef],
        duplicate: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<Option<PackedIndex>> {
        let Some(first) = keys.first() else {
            return Ok(None);
        };
        let codes = first.len() as u64 + 1;
        let is_small = codes < u64::from(u32::MAX);
        if !is_small || codes.checked_pow(keys.len() as u32).is_none() {
            return Ok(None);
        }
        let mut columns = Vec::with_capacity(keys.len());
        for key in keys {
            match PackedColumn::of(key)? {
                Some(column) => columns.push(column),
                None => return Ok(None),
            }
        }
        let mut index = PackedIndex {
            columns,
            codes,
            keys: Vec::new(),
            table: HashTable::with_capacity(first.len()),
        };
        index.keys = index.packed(keys)?;
        for row in 0..index.keys.len() {
            let key = index.keys[row];
            let Some(first) = index.row_of(key) else {
                let keys = &index.keys;
                let rehash = |row: &u32| hash_key(keys[*row as usize]);
                index.table.insert_unique(hash_key(key), row as u32, rehash);
                continue;
            };
            duplicate(first as usize, row)?;
            index.keys[row] = NO_KEY;
        }
        Ok(Some(index))
    }

    /// The key of each row of these columns as a number.
    fn packed(&self, columns: &[ArrayRef]) -> Result<Vec<u64>> {
        if columns.len() != self.columns.len() {
            return Err(Fault::internal("keys do not fit their index"));
        }
        let rows = columns.first().map_or(0, |column| column.len());
        let mut packed = vec![0; rows];
        for (column, values) in self.columns.iter().zip(columns) {
            let nulls = values.logical_nulls();
            let codes = column.codes(values)?;
            for (row, (key, code)) in packed.iter_mut().zip(codes).enumerate() {
                let code = match code {
                    Some(code) => u64::from(code),
                    None if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) => {
                        self.codes - 1
                    }
                    None => {
                        *key = NO_KEY;
                        continue;
                    }
                };
                if *key != NO_KEY {
                    *key = *key * self.codes + code;
                }
            }
        }
        Ok(packed)
    }

    fn row_of(&self, key: u64) -> Option<u32> {
        let is_same = |row: &u32| self.keys[*row as usize] == key;
        self.table.find(hash_key(key), is_same).copied()
    }

    /// The row of the table for each row of these columns, or `None`. A null key is a key of its own.
    pub(crate) fn find(&self, columns: &[ArrayRef]) -> Result<Vec<Option<u32>>> {
        let packed = self.packed(columns)?;
        let mut rows = Vec::with_capacity(packed.len());
        let mut next = 0u32;
        for key in packed {
            if key == NO_KEY {
                rows.push(None);
                continue;
            }
            // Tables and rows are often in the order of their keys: the row behind the preceding one needs no search.
            let row = if self.keys.get(next as usize) == Some(&key) {
                Some(next)
            } else {
                self.row_of(key)
            };
            if let Some(row) = row {
                next = row + 1;
            }
            rows.push(row);
        }
        Ok(rows)
    }
}
