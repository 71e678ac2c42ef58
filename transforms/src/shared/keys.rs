//! Rows found by the values of key columns.

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use forebay_model::{Fault, Result, StringColumn, canonical_keys, codes, logical_type};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::TokenIndex;
use super::tokens::gather_ids;

/// Finds the row of a table whose key columns hold the same values.
#[derive(Debug)]
pub(crate) enum KeyIndex {
    /// One text column, and the row of the null key.
    Text(TokenIndex, Option<u32>),
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
        let types: Vec<DataType> = keys
            .iter()
            .map(|key| logical_type(key.data_type()))
            .collect();
        let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
        let rows = converter.convert_columns(&cast_keys(keys, &types)?)?;
        let mut table: HashTable<u32> = HashTable::with_capacity(rows.num_rows());
        for (id, row) in rows.iter().enumerate() {
            let hash = xxh3_64(row.as_ref());
            match table.find(hash, |&known| rows.row(known as usize) == row) {
                Some(&known) => duplicate(known as usize, id)?,
                None => {
                    table.insert_unique(hash, id as u32, |&known| {
                        xxh3_64(rows.row(known as usize).as_ref())
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
            (
                KeyIndex::Rows {
                    converter,
                    types,
                    rows,
                    table,
                },
                keys,
            ) => {
                let wanted = converter.convert_columns(&cast_keys(keys, types)?)?;
                let find = |row: arrow::row::Row<'_>| {
                    table
                        .find(xxh3_64(row.as_ref()), |&known| {
                            rows.row(known as usize) == row
                        })
                        .copied()
                };
                Ok(wanted.iter().map(find).collect())
            }
            _ => Err(Fault::internal("keys do not fit their index")),
        }
    }
}

fn cast_keys(keys: &[ArrayRef], types: &[DataType]) -> Result<Vec<ArrayRef>> {
    if keys.len() != types.len() {
        return Err(Fault::internal("keys do not fit their index"));
    }
    let each = keys
        .iter()
        .zip(types)
        .map(|(key, wanted)| match key.data_type() == wanted {
            true => canonical_keys(key),
            false => canonical_keys(&cast(key, wanted).map_err(|error| {
                Fault::new(
                    codes::COLUMN_TYPE,
                    format!("a key of type {} is not {wanted}", key.data_type()),
                )
                .cause(error)
            })?),
        });
    each.collect()
}
