//! Rows found by the values of key columns.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use forebay_model::{Fault, Result, StringColumn, logical_type};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::TokenIndex;
use super::key_values::cast_key;
use super::packed_index::PackedIndex;
use super::tokens::gather_ids;

/// Finds the row of a table whose key columns hold the same values.
#[derive(Debug)]
pub(crate) enum KeyIndex {
    /// One text column, and the row of the null key.
    Text(TokenIndex, Option<u32>),
    /// Columns of texts, integers, dates and times.
    Packed(PackedIndex),
    /// Any columns.
    Rows {
        converter: RowConverter,
        types: Vec<DataType>,
        rows: Rows,
        table: HashTable<u32>,
    },
}

impl KeyIndex {
    /// Indexes a table by its key columns. Where two rows have the same key, `duplicate` gets
    /// both rows and may refuse; else the first one counts.
    pub(crate) fn new(
        keys: &[ArrayRef],
        mut duplicate: impl FnMut(usize, usize) -> Result<()>,
    ) -> Result<Self> {
        if let [key] = keys
            && *key.data_type() == DataType::Utf8
        {
            let tokens = TokenIndex::new(key.clone())?;
            let mut null = None;
            for (row, token) in StringColumn::of(key)?.values()?.iter().enumerate() {
                let first = match token {
                    Some(token) => tokens.find(token),
                    None => Some(*null.get_or_insert(row as u32)),
                };
                if let Some(first) = first.filter(|first| *first as usize != row) {
                    duplicate(first as usize, row)?;
                }
            }
            return Ok(KeyIndex::Text(tokens, null));
        }
        if let Some(packed) = PackedIndex::of(keys, &mut duplicate)? {
            return Ok(KeyIndex::Packed(packed));
        }
        KeyIndex::of_rows(keys, &mut duplicate)
    }

    /// Indexes a table by rows of any columns.
    fn of_rows(
        keys: &[ArrayRef],
        duplicate: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<Self> {
        let types: Vec<DataType> = keys
            .iter()
            .map(|key| logical_type(key.data_type()))
            .collect();
        let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
        let rows = converter.convert_columns(&cast_keys(keys, &types)?)?;
        let mut table: HashTable<u32> = HashTable::with_capacity(rows.num_rows());
        for (id, row) in rows.iter().enumerate() {
            let hash = xxh3_64(row.as_ref());
            match table.find(hash, |&other| rows.row(other as usize) == row) {
                Some(&first) => duplicate(first as usize, id)?,
                None => {
                    table.insert_unique(hash, id as u32, |&other| {
                        xxh3_64(rows.row(other as usize).as_ref())
                    });
                }
            }
        }
        Ok(KeyIndex::Rows {
            converter,
            types,
            rows,
            table,
        })
    }

    /// The row of the table for each row of these columns, or `None`. A null key is a key of its
    /// own.
    pub(crate) fn find(&self, keys: &[ArrayRef]) -> Result<Vec<Option<u32>>> {
        match (self, keys) {
            (KeyIndex::Text(tokens, null), [key]) => {
                let strings = StringColumn::of(key)?;
                let ids = gather_ids::<arrow::datatypes::UInt32Type>(&strings, |text| {
                    Ok(tokens.find(text))
                })?;
                if null.is_none() || key.logical_null_count() == 0 {
                    return Ok(ids.iter().collect());
                }
                let nulls = key.logical_nulls();
                let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                Ok(ids
                    .iter()
                    .enumerate()
                    .map(|(row, id)| if is_null(row) { *null } else { id })
                    .collect())
            }
            (KeyIndex::Packed(index), keys) => index.find(keys),
            (
                KeyIndex::Rows {
                    converter,
                    types,
                    rows,
                    table,
                },
                keys,
            ) => {
                let encoded = converter.convert_columns(&cast_keys(keys, types)?)?;
                let find = |row: arrow::row::Row<'_>| {
                    table
                        .find(xxh3_64(row.as_ref()), |&other| {
                            rows.row(other as usize) == row
                        })
                        .copied()
                };
                Ok(encoded.iter().map(find).collect())
            }
            _ => Err(Fault::internal("keys do not fit their index")),
        }
    }
}

fn cast_keys(keys: &[ArrayRef], types: &[DataType]) -> Result<Vec<ArrayRef>> {
    if keys.len() != types.len() {
        return Err(Fault::internal("keys do not fit their index"));
    }
    let mut columns = Vec::with_capacity(keys.len());
    for (key, data_type) in keys.iter().zip(types) {
        columns.push(cast_key(key, data_type)?);
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Date32Array, DictionaryArray, Float64Array, Int32Array, Int64Array, StringArray,
    };
    use arrow::compute::cast;
    use arrow::datatypes::Int32Type;

    use super::*;

    /// Numbers of a linear congruential generator.
    struct Draws(u64);

    impl Draws {
        fn below(&mut self, count: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % count
        }

        /// A number below `count`, or null.
        fn value(&mut self, count: u64) -> Option<u64> {
            let value = self.below(count + 1);
            (value < count).then_some(value)
        }
    }

    /// Keys of a store, an item and a day.
    fn key_columns(draws: &mut Draws, rows: usize, is_dictionary: bool) -> Vec<ArrayRef> {
        let mut stores = Vec::new();
        let mut items = Vec::new();
        let mut days = Vec::new();
        for _ in 0..rows {
            stores.push(draws.value(4).map(|store| format!("store {store}")));
            items.push(draws.value(5).map(|item| item as i64 - 2));
            days.push(draws.value(3).map(|day| day as i32));
        }
        let stores = stores.iter().map(Option::as_deref);
        let stores: ArrayRef = if is_dictionary {
            Arc::new(stores.collect::<DictionaryArray<Int32Type>>())
        } else {
            Arc::new(stores.collect::<StringArray>())
        };
        let items: ArrayRef = Arc::new(Int64Array::from(items));
        let days: ArrayRef = Arc::new(Date32Array::from(days));
        vec![stores, items, days]
    }

    #[test]
    fn packed_keys_find_the_rows_that_keys_of_bytes_find() {
        for seed in 0..40 {
            let mut draws = Draws(seed);
            let rows = draws.below(60) as usize;
            let table = key_columns(&mut draws, rows, false);
            let mut repeats = Vec::new();
            let index = KeyIndex::new(&table, |first, row| {
                repeats.push((first, row));
                Ok(())
            });
            let index = index.unwrap();
            assert!(matches!(index, KeyIndex::Packed(_)));
            let mut repeats_of_bytes = Vec::new();
            let by_bytes = KeyIndex::of_rows(&table, &mut |first, row| {
                repeats_of_bytes.push((first, row));
                Ok(())
            });
            let by_bytes = by_bytes.unwrap();
            assert_eq!(repeats, repeats_of_bytes, "seed {seed}");
            // The table itself is in the order that needs no search.
            assert_eq!(index.find(&table).unwrap(), by_bytes.find(&table).unwrap());
            for is_dictionary in [false, true] {
                let mut inputs = key_columns(&mut draws, 100, is_dictionary);
                assert_eq!(
                    index.find(&inputs).unwrap(),
                    by_bytes.find(&inputs).unwrap(),
                    "seed {seed}"
                );
                // A column of another width is compared by its values.
                inputs[1] = cast(&inputs[1], &DataType::Int32).unwrap();
                assert_eq!(
                    index.find(&inputs).unwrap(),
                    by_bytes.find(&inputs).unwrap(),
                    "seed {seed}"
                );
            }
            assert!(index.find(&table[..2]).is_err());
        }
    }

    #[test]
    fn keys_of_other_types_are_compared_as_bytes() {
        let prices: ArrayRef = Arc::new(Float64Array::from(vec![0.5, -0.0]));
        let items: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let index = KeyIndex::new(&[prices, items.clone()], |_, _| Ok(())).unwrap();
        assert!(matches!(index, KeyIndex::Rows { .. }));
        let prices: ArrayRef = Arc::new(Float64Array::from(vec![0.0, 0.5]));
        assert_eq!(index.find(&[prices, items]).unwrap(), [None, None]);
    }
}
