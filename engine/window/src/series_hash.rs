//! Hashes of series keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use forebay_model::{Fault, Result, TextRef};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::encoding;

/// Kinds of values, used as hash seeds.
const INTEGER: u64 = 1;
const FLOAT: u64 = 2;
const BYTES: u64 = 3;

/// Hash of a null.
const NULL: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// Hashes the keys of rows, independent of column layout. Values of a dictionary are hashed once, and again only
/// when another dictionary arrives.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeriesHasher {
    seen: Vec<Option<HashedDictionary>>,
}

/// Hashes of series keys, one for each row, as [`crate::SeriesStates`] takes them. The columns are in the order of the
/// keys.
pub fn series_hashes(keys: &[ArrayRef], rows: usize) -> Result<Vec<u128>> {
    let mut hashes = Vec::with_capacity(rows);
    SeriesHasher::default().hash(keys, rows, &mut hashes)?;
    Ok(hashes)
}

/// A dictionary and the hashes of its values.
#[derive(Debug, Clone)]
struct HashedDictionary {
    values: ArrayRef,
    hashes: Arc<Vec<u128>>,
    /// Number of rows seen with this dictionary.
    rows: usize,
}

impl SeriesHasher {
    /// Appends the hash of each row's keys.
    pub fn hash(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        hashes: &mut Vec<u128>,
    ) -> Result<()> {
        let start = hashes.len();
        hashes.resize(start + rows, 0);
        let hashes = &mut hashes[start..];
        self.seen.resize(columns.len(), None);
        for (position, (column, seen)) in columns.iter().zip(&mut self.seen).enumerate() {
            // Odd factors preserve all bits and distinguish the columns.
            let factor = xxh3_128_with_seed(&[], position as u64) | 1;
            match column.data_type() {
                DataType::Dictionary(..) => add_dictionary(column, factor, seen, hashes)?,
                _ => each_hash(column, |row, hash| {
                    hashes[row] = hashes[row].wrapping_add(hash.wrapping_mul(factor))
                })?,
            }
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        let seen = self.seen.iter().flatten();
        seen.map(|seen| seen.values.get_array_memory_size() + seen.hashes.capacity() * 16)
            .sum()
    }
}

fn add_dictionary(
    column: &ArrayRef,
    factor: u128,
    seen: &mut Option<HashedDictionary>,
    hashes: &mut [u128],
) -> Result<()> {
    let dictionary = column.as_any_dictionary();
    let values = dictionary.values();
    if !seen
        .as_ref()
        .is_some_and(|seen| Arc::ptr_eq(&seen.values, values))
    {
        *seen = Some(HashedDictionary {
            values: values.clone(),
            hashes: Arc::default(),
            rows: 0,
        });
    }
    let Some(seen) = seen else {
        return Err(Fault::internal("a dictionary was not cached"));
    };
    seen.rows += column.len();
    let keys = keys_of(dictionary.keys())?;
    let null = NULL.wrapping_mul(factor);
    // Hashing a large dictionary that few rows use would cost more than hashing the rows.
    if seen.hashes.len() < values.len() && seen.rows < values.len() {
        let used = arrow::compute::take(values, &keys, None)?;
        return each_hash(&used, |row, hash| {
            hashes[row] = hashes[row].wrapping_add(hash.wrapping_mul(factor))
        });
    }
    if seen.hashes.len() < values.len() {
        let mut table = vec![0; values.len()];
        each_hash(values, |at, hash| table[at] = hash.wrapping_mul(factor))?;
        seen.hashes = Arc::new(table);
    }
    let table = &seen.hashes[..];
    if keys.null_count() == 0 {
        for (hash, &key) in hashes.iter_mut().zip(keys.values()) {
            *hash = hash.wrapping_add(table[key as usize]);
        }
        return Ok(());
    }
    for (hash, key) in hashes.iter_mut().zip(&keys) {
        *hash = hash.wrapping_add(key.map_or(null, |key| table[key as usize]));
    }
    Ok(())
}

fn keys_of(keys: &dyn Array) -> Result<Int32Array> {
    match keys.as_primitive_opt::<Int32Type>() {
        Some(keys) => Ok(keys.clone()),
        None => Ok(cast(keys, &DataType::Int32)?
            .as_primitive::<Int32Type>()
            .clone()),
    }
}

/// Passes the hash of each value of a plain column to `take`.
fn each_hash(column: &ArrayRef, mut take: impl FnMut(usize, u128)) -> Result<()> {
    match column.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let Some(text) = TextRef::new(column) else {
                return Err(Fault::internal("strings of an unknown layout"));
            };
            hash_bytes(text.iter().map(|value| value.map(str::as_bytes)), take);
        }
        DataType::Binary => hash_bytes(column.as_binary::<i32>().iter(), take),
        DataType::LargeBinary => hash_bytes(column.as_binary::<i64>().iter(), take),
        DataType::BinaryView => hash_bytes(column.as_binary_view().iter(), take),
        DataType::FixedSizeBinary(_) => hash_bytes(column.as_fixed_size_binary().iter(), take),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let mut values = Vec::new();
            encoding::encode_numbers(column, &mut values)?;
            for (row, value) in values.into_iter().enumerate() {
                // Both zeros are one key.
                let bytes = (f64::from_bits(value) + 0.0).to_bits().to_le_bytes();
                let hash = xxh3_128_with_seed(&bytes, FLOAT);
                take(row, if column.is_null(row) { NULL } else { hash });
            }
        }
        other if encoding::is_integer(other) => {
            let integers = encoding::integers(column)?;
            for (row, value) in integers.as_primitive::<Int64Type>().iter().enumerate() {
                let hash = match value {
                    Some(value) => xxh3_128_with_seed(&value.to_le_bytes(), INTEGER),
                    None => NULL,
                };
                take(row, hash);
            }
        }
        _ => return each_hash(&cast(column, &DataType::Utf8)?, take),
    }
    Ok(())
}

/// Passes the hash of each value to `take`.
fn hash_bytes<'a>(
    values: impl Iterator<Item = Option<&'a [u8]>>,
    mut take: impl FnMut(usize, u128),
) {
    for (row, value) in values.enumerate() {
        let hash = match value {
            Some(value) => xxh3_128_with_seed(value, BYTES),
            None => NULL,
        };
        take(row, hash);
    }
}
