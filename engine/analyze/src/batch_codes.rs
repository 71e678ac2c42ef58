//! The values of a column of categories as small numbers, within one batch.

use arrow::array::Array;
use arrow::buffer::NullBuffer;
use arrow::compute::{max, min};
use forebay_model::StringColumn;

use crate::group_keys::KeyColumn;

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
    /// The codes, where they come without a search: from dictionaries and from integers of a small range, with fewer
    /// codes than the batch has rows.
    pub(crate) fn of(column: &KeyColumn, nulls: Option<&NullBuffer>) -> Option<BatchCodes> {
        match column {
            KeyColumn::Text(StringColumn::Plain(_)) => None,
            KeyColumn::Text(StringColumn::Dictionary(keys, values)) => {
                let codes = keys.values().iter().map(|key| *key as u32);
                (values.len() <= keys.len())
                    .then(|| BatchCodes::collect(codes, values.len(), nulls))
            }
            KeyColumn::Integers(array) => {
                let (least, greatest) = (min(array).unwrap_or(0), max(array).unwrap_or(0));
                let range = greatest
                    .checked_sub(least)
                    .and_then(|range| usize::try_from(range).ok())?;
                // Rows without a value may hold any number.
                let codes = array
                    .values()
                    .iter()
                    .map(|value| value.wrapping_sub(least) as u32);
                (range < array.len()).then(|| BatchCodes::collect(codes, range + 1, nulls))
            }
        }
    }

    fn collect(
        codes: impl Iterator<Item = u32>,
        values: usize,
        nulls: Option<&NullBuffer>,
    ) -> BatchCodes {
        let rows: Vec<u32> = match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => codes.collect(),
            Some(nulls) => codes
                .zip(nulls.iter())
                .map(|(code, valid)| if valid { code } else { values as u32 })
                .collect(),
        };
        let mut row_of = vec![0; values + 1];
        rows.iter()
            .zip(0..)
            .for_each(|(code, row)| row_of[*code as usize] = row);
        BatchCodes {
            rows,
            values,
            row_of,
        }
    }
}
