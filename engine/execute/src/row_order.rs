//! The order of rows by some columns.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{AnyDictionaryArray, Array, ArrayRef, AsArray, UInt32Array, make_comparator};
use arrow::compute::{SortOptions, cast, sort_to_indices};
use arrow::row::{RowConverter, Rows, SortField};
use forebay_model::Result;

/// Bytes of a row's encoded key that are compared as one number.
const PREFIX_BYTES: usize = 8;

/// The rows in the order of their values in the columns, from small to large with null first. Rows with equal values keep
/// their order.
pub(crate) fn row_order(columns: &[ArrayRef]) -> Result<UInt32Array> {
    let mut keys = Vec::with_capacity(columns.len());
    for column in columns {
        keys.push(sort_key(column)?);
    }
    let fields = keys
        .iter()
        .map(|key| SortField::new(key.data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let encoded = converter.convert_columns(&keys)?;
    let mut order = prefixes(&encoded);
    order.sort_unstable_by(|first, second| compare(&encoded, first, second));
    let rows = order.iter().map(|key| key.row);
    Ok(UInt32Array::from_iter_values(rows))
}

/// A row with the beginning of its encoded key.
struct PrefixedRow {
    prefix: u64,
    row: u32,
}

fn prefixes(encoded: &Rows) -> Vec<PrefixedRow> {
    let mut prefixed = Vec::with_capacity(encoded.num_rows());
    for (row, key) in encoded.iter().enumerate() {
        let key = key.data();
        let mut prefix = [0; PREFIX_BYTES];
        let length = key.len().min(PREFIX_BYTES);
        prefix[..length].copy_from_slice(&key[..length]);
        prefixed.push(PrefixedRow {
            prefix: u64::from_be_bytes(prefix),
            row: row as u32,
        });
    }
    prefixed
}

fn compare(encoded: &Rows, first: &PrefixedRow, second: &PrefixedRow) -> Ordering {
    first
        .prefix
        .cmp(&second.prefix)
        .then_with(|| {
            let first = encoded.row(first.row as usize);
            first.cmp(&encoded.row(second.row as usize))
        })
        .then_with(|| first.row.cmp(&second.row))
}

/// Values with the order of the column's. Those of a dictionary are numbered by it, so that each text is compared once.
fn sort_key(column: &ArrayRef) -> Result<ArrayRef> {
    let Some(keyed) = column.as_any_dictionary_opt() else {
        return Ok(column.clone());
    };
    if keyed.values().len() > column.len() {
        return Ok(cast(column, keyed.values().data_type())?);
    }
    let ranks = dictionary_ranks(keyed)?;
    let nulls = column.logical_nulls();
    let mut row_ranks = Vec::with_capacity(column.len());
    for (row, key) in keyed.normalized_keys().into_iter().enumerate() {
        let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        row_ranks.push(if is_null { None } else { Some(ranks[key]) });
    }
    Ok(Arc::new(UInt32Array::from(row_ranks)))
}

/// The position of each value of a dictionary among its distinct values.
fn dictionary_ranks(keyed: &dyn AnyDictionaryArray) -> Result<Vec<u32>> {
    let values = keyed.values();
    let compare_values = make_comparator(values, values, SortOptions::default())?;
    let order = sort_to_indices(values, None, None)?;
    let mut ranks = vec![0; values.len()];
    let mut rank = 0;
    for pair in order.values().windows(2) {
        let [previous, next] = [pair[0] as usize, pair[1] as usize];
        if compare_values(previous, next) != Ordering::Equal {
            rank += 1;
        }
        ranks[next] = rank;
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Float64Array, Int32Array, StringArray};
    use arrow::compute::{SortColumn, lexsort_to_indices};
    use arrow::datatypes::Int32Type;

    use super::*;

    /// The order as the library's kernel finds it.
    fn expected(columns: &[ArrayRef]) -> Vec<u32> {
        let rows = columns[0].len() as u32;
        let positions: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..rows));
        let sorted = columns.iter().chain([&positions]);
        let sorted = sorted.map(|values| SortColumn {
            values: values.clone(),
            options: None,
        });
        let order = lexsort_to_indices(&sorted.collect::<Vec<_>>(), None).unwrap();
        order.values().to_vec()
    }

    #[test]
    fn rows_are_in_the_order_of_the_kernel() {
        let words = [
            "b",
            "",
            "a",
            "longer than a prefix",
            "longer than a prefiz",
            "é",
        ];
        let word = |row: usize| (row % 7 != 3).then(|| words[row * 5 % words.len()]);
        let texts: StringArray = (0..200).map(word).collect();
        let keyed: DictionaryArray<Int32Type> = (0..200).map(word).collect();
        // The dictionary holds a value twice, one that no row has, and null.
        let values = StringArray::from(vec![Some("b"), Some("a"), None, Some("b"), Some("x")]);
        let keys = Int32Array::from_iter((0..200).map(|row| (row % 11 != 0).then_some(row % 4)));
        let odd = DictionaryArray::<Int32Type>::try_new(keys, Arc::new(values)).unwrap();
        let many = StringArray::from_iter_values((0..300).map(|value| format!("{}", value % 90)));
        let large = DictionaryArray::<Int32Type>::try_new(
            Int32Array::from_iter_values((0..200).map(|row| (row * 7) % 300)),
            Arc::new(many),
        )
        .unwrap();
        let numbers = Float64Array::from_iter((0..200).map(|row| match row % 9 {
            0 => None,
            1 => Some(f64::NAN),
            2 => Some(-0.0),
            3 => Some(0.0),
            other => Some(f64::from(other - 6) * 1e300),
        }));
        let columns: [ArrayRef; 5] = [
            Arc::new(texts),
            Arc::new(keyed),
            Arc::new(odd),
            Arc::new(large),
            Arc::new(numbers),
        ];
        for first in &columns {
            assert_eq!(
                row_order(std::slice::from_ref(first)).unwrap().values(),
                &expected(std::slice::from_ref(first))
            );
            for second in &columns {
                let both = [first.clone(), second.clone()];
                assert_eq!(row_order(&both).unwrap().values(), &expected(&both));
            }
        }
        assert_eq!(row_order(&[columns[0].slice(0, 0)]).unwrap().len(), 0);
    }
}
