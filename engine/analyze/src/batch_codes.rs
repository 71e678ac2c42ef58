//! The values of a column of categories as small numbers, within one batch.

use arrow::array::{Array, Int32Array, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{max, min};
use forebay_model::StringColumn;

use crate::group_keys::KeyColumn;

/// A column whose values are small numbers without a search: keys of a dictionary, or integers of a small range, with no
/// more values than the batch has rows.
pub(crate) enum CodedColumn<'a> {
    Dictionary {
        keys: &'a Int32Array,
        values: usize,
    },
    Integers {
        array: &'a Int64Array,
        least: i64,
        values: usize,
    },
}

impl<'a> CodedColumn<'a> {
    pub(crate) fn of(column: &'a KeyColumn) -> Option<Self> {
        match column {
            KeyColumn::Text(StringColumn::Plain(_)) => None,
            KeyColumn::Text(StringColumn::Dictionary(keys, values)) => {
                if values.len() > keys.len() {
                    return None;
                }
                Some(CodedColumn::Dictionary {
                    keys,
                    values: values.len(),
                })
            }
            KeyColumn::Integers(array) => {
                let least = min(array).unwrap_or(0);
                let greatest = max(array).unwrap_or(0);
                let range = usize::try_from(greatest.checked_sub(least)?).ok()?;
                if range >= array.len() {
                    return None;
                }
                Some(CodedColumn::Integers {
                    array,
                    least,
                    values: range + 1,
                })
            }
        }
    }

    /// The number of codes of values.
    pub(crate) fn values(&self) -> usize {
        match self {
            CodedColumn::Dictionary { values, .. } | CodedColumn::Integers { values, .. } => {
                *values
            }
        }
    }

    /// Rows that are null.
    pub(crate) fn nulls(&self) -> Option<&'a NullBuffer> {
        match *self {
            CodedColumn::Dictionary { keys, .. } => keys.nulls(),
            CodedColumn::Integers { array, .. } => array.nulls(),
        }
    }

    /// The code of each row. Rows without a value have the code `values`.
    pub(crate) fn codes(&self, nulls: Option<&NullBuffer>) -> Vec<u32> {
        match *self {
            CodedColumn::Dictionary { keys, values } => {
                let codes = keys.values().iter().map(|key| *key as u32);
                with_nulls(codes, values, nulls)
            }
            CodedColumn::Integers {
                array,
                least,
                values,
            } => {
                // Wraps, since rows without a value may hold any number.
                let codes = array
                    .values()
                    .iter()
                    .map(|value| value.wrapping_sub(least) as u32);
                with_nulls(codes, values, nulls)
            }
        }
    }
}

fn with_nulls(
    codes: impl Iterator<Item = u32>,
    values: usize,
    nulls: Option<&NullBuffer>,
) -> Vec<u32> {
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => codes.collect(),
        Some(nulls) => codes
            .zip(nulls.iter())
            .map(|(code, valid)| if valid { code } else { values as u32 })
            .collect(),
    }
}

/// Codes of the rows of a batch: equal codes are equal values.
pub(crate) struct BatchCodes {
    /// Of each row. Rows without a value have the code `values`.
    pub rows: Vec<u32>,
    /// The number of codes.
    pub values: usize,
    /// A row of each code that some row has.
    pub row_of: Vec<u32>,
}

impl BatchCodes {
    /// The codes, where they come without a search.
    pub(crate) fn of(column: &KeyColumn, nulls: Option<&NullBuffer>) -> Option<BatchCodes> {
        let column = CodedColumn::of(column)?;
        let rows = column.codes(nulls);
        let values = column.values();
        let mut row_of = vec![0; values + 1];
        for (row, code) in rows.iter().enumerate() {
            row_of[*code as usize] = row as u32;
        }
        Some(BatchCodes {
            rows,
            values,
            row_of,
        })
    }
}
