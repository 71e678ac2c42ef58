//! Memory of columns.

use arrow::array::{Array, AsArray, GenericByteArray, Int32Array, StringArray, UInt32Array};
use arrow::datatypes::{ArrowNativeType, ByteArrayType, DataType, Int32Type};

/// Bytes of texts below which they are not counted one by one.
const SMALL_TEXT_BYTES: usize = 1 << 20;

/// Bytes of texts from which on a column has long ones. Most operations leave dictionaries as they are, and a wide table
/// has many of short texts.
const LONG_TEXT_BYTES: usize = 2 << 20;

/// Bytes of a column, without the rest of an array that it is a slice of.
pub fn column_bytes(column: &dyn Array) -> usize {
    column
        .to_data()
        .get_slice_memory_size()
        .unwrap_or_else(|_| column.get_array_memory_size())
}

/// Bytes of a column with the values of its rows in place of a dictionary.
pub fn plain_bytes(column: &dyn Array) -> usize {
    let Some(keyed) = column.as_any_dictionary_opt() else {
        return column_bytes(column);
    };
    let values = keyed.values();
    if values.is_empty() {
        return column_bytes(keyed.keys());
    }
    let Some(texts) = values.as_string_opt::<i32>() else {
        return column_bytes(values) / values.len() * column.len();
    };
    let mut bytes = size_of::<i32>() * column.len();
    for (row, key) in keyed.normalized_keys().into_iter().enumerate() {
        if column.is_valid(row) {
            bytes += texts.value_length(key) as usize;
        }
    }
    bytes
}

/// Bytes of the texts that stand for the rows of a dictionary; 0 for other columns. A column of few long texts may stand
/// for thousands of times its bytes.
pub fn dictionary_text_bytes(column: &dyn Array) -> usize {
    let Some(keyed) = column.as_any_dictionary_opt() else {
        return 0;
    };
    let Some(texts) = keyed.values().as_string_opt::<i32>() else {
        return 0;
    };
    if texts.len() <= column.len() {
        // Few texts: their longest one tells of most columns that the rows are small.
        let lengths = texts.value_offsets().windows(2);
        let longest = lengths.map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let most_bytes = (longest as usize).saturating_mul(column.len());
        if most_bytes < SMALL_TEXT_BYTES {
            return most_bytes;
        }
    }
    match column.as_dictionary_opt::<Int32Type>() {
        Some(keyed) => text_bytes_of_keys(keyed.keys(), texts),
        None => plain_bytes(column),
    }
}

/// Like [`dictionary_text_bytes`], but 0 for dictionaries that stand for few bytes.
pub fn long_text_bytes(column: &dyn Array) -> usize {
    let bytes = dictionary_text_bytes(column);
    if bytes < LONG_TEXT_BYTES { 0 } else { bytes }
}

/// Bytes of the texts of keys, of which each chunk has some thousands: without an allocation.
fn text_bytes_of_keys(keys: &Int32Array, texts: &StringArray) -> usize {
    let offsets = texts.value_offsets();
    let mut bytes = 0;
    for (row, key) in keys.values().iter().enumerate() {
        if keys.is_valid(row) {
            let key = *key as usize;
            bytes += (offsets[key + 1] - offsets[key]) as usize;
        }
    }
    bytes
}

/// Bytes of a copy of some rows of a column. Rows of texts count with their lengths, others with the mean of the column.
pub fn taken_bytes(column: &dyn Array, rows: &UInt32Array) -> usize {
    let value_bytes = match column.data_type() {
        DataType::Utf8 => bytes_of_rows(column.as_string::<i32>(), rows),
        DataType::LargeUtf8 => bytes_of_rows(column.as_string::<i64>(), rows),
        DataType::Binary => bytes_of_rows(column.as_binary::<i32>(), rows),
        DataType::LargeBinary => bytes_of_rows(column.as_binary::<i64>(), rows),
        // Copies share the values.
        DataType::Dictionary(..) | DataType::Utf8View | DataType::BinaryView => {
            return size_of::<u128>() * rows.len();
        }
        _ => {
            let row_bytes = column_bytes(column) / column.len().max(1);
            return row_bytes.saturating_mul(rows.len());
        }
    };
    size_of::<i64>() * rows.len() + value_bytes
}

fn bytes_of_rows<T: ByteArrayType>(values: &GenericByteArray<T>, rows: &UInt32Array) -> usize {
    let mut bytes = 0;
    for row in rows.iter().flatten() {
        bytes += ArrowNativeType::as_usize(values.value_length(row as usize));
    }
    bytes
}

/// True for types whose values [`text_length`] measures.
pub fn has_text_length(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
        DataType::Dictionary(_, values) => has_text_length(values),
        _ => false,
    }
}

/// Bytes of the texts or binary values that a copy of rows of several columns of one type has, as
/// [`interleave`](arrow::compute::interleave) makes it: `picks` are the column and the row of each. 0 for other types.
pub fn picked_text_bytes(columns: &[&dyn Array], picks: &[(usize, usize)]) -> usize {
    let data_type = columns.first().map(|column| column.data_type());
    if !data_type.is_some_and(has_text_length) {
        return 0;
    }
    let mut bytes = 0;
    for (column, row) in picks {
        bytes += text_length(columns[*column], *row);
    }
    bytes
}

/// Bytes of a text or of a binary value, also of a dictionary with keys of 32 bits; 0 in columns of other types.
pub fn text_length(column: &dyn Array, row: usize) -> usize {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value_length(row) as usize,
        DataType::LargeUtf8 => column.as_string::<i64>().value_length(row) as usize,
        DataType::Binary => column.as_binary::<i32>().value_length(row) as usize,
        DataType::LargeBinary => column.as_binary::<i64>().value_length(row) as usize,
        DataType::Dictionary(..) => {
            let keyed = column.as_dictionary_opt::<Int32Type>();
            let text = keyed.and_then(|keyed| Some((keyed.values(), keyed.key(row)?)));
            text.map_or(0, |(values, key)| text_length(values, key))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, DictionaryArray, Int64Array};
    use arrow::compute::cast;

    use super::*;

    #[test]
    fn plain_bytes_are_those_of_the_rows() {
        let texts = [Some("abc"), None, Some("abc"), Some("de")];
        let keyed: DictionaryArray<Int32Type> = texts.into_iter().collect();
        let plain = cast(&keyed, &DataType::Utf8).unwrap();
        assert_eq!(plain_bytes(&keyed), 4 * 4 + 8);
        assert!(plain_bytes(&plain).abs_diff(plain_bytes(&keyed)) <= 8);
        assert_eq!(plain_bytes(&keyed.slice(0, 1)), 4 + 3);
        let nulls: DictionaryArray<Int32Type> = [None::<&str>, None].into_iter().collect();
        // Two keys, and a byte of validity.
        assert_eq!(plain_bytes(&nulls), 8 + 1);
        let texts: ArrayRef = std::sync::Arc::new(StringArray::from(vec!["abc"]));
        assert_eq!(plain_bytes(&texts), column_bytes(&texts));
    }

    #[test]
    fn texts_of_dictionaries_count_for_each_row() {
        let text = "x".repeat(10_000);
        let keyed: DictionaryArray<Int32Type> = vec![text.as_str(); 1_000].into_iter().collect();
        let bytes = dictionary_text_bytes(&keyed);
        assert!(bytes >= 10_000_000, "{bytes}");
        assert_eq!(long_text_bytes(&keyed), bytes);
        // A slice counts its rows alone, also where it has fewer rows than there are texts.
        let texts: Vec<String> = (0..100).map(|row| format!("{row:05000}")).collect();
        let keyed: DictionaryArray<Int32Type> = texts.iter().map(String::as_str).collect();
        let bytes = dictionary_text_bytes(&keyed.slice(0, 10));
        assert!((50_000..60_000).contains(&bytes), "{bytes}");
        assert_eq!(long_text_bytes(&keyed.slice(0, 10)), 0);
        let plain = StringArray::from(vec!["x"]);
        assert_eq!(dictionary_text_bytes(&plain), 0);
    }

    #[test]
    fn copies_of_rows_count_their_texts() {
        let texts = StringArray::from(vec![Some("x".repeat(1_000)), None, Some("y".to_owned())]);
        let rows = UInt32Array::from(vec![0, 0, 2, 1]);
        assert_eq!(taken_bytes(&texts, &rows), 4 * 8 + 2_001);
        let numbers = Int64Array::from(vec![1, 2, 3]);
        assert_eq!(taken_bytes(&numbers, &rows), 4 * 8);
    }

    #[test]
    fn picks_count_the_texts_of_their_rows() {
        let plain = StringArray::from(vec![Some("abc"), None]);
        let other = StringArray::from(vec!["x"]);
        let picks = [(0, 0), (0, 1), (1, 0), (0, 0)];
        assert_eq!(picked_text_bytes(&[&plain, &other], &picks), 7);
        let keyed: DictionaryArray<Int32Type> = vec!["abc", "abc"].into_iter().collect();
        assert_eq!(picked_text_bytes(&[&keyed], &[(0, 1), (0, 0)]), 6);
        let numbers = Int64Array::from(vec![1]);
        assert_eq!(picked_text_bytes(&[&numbers], &[(0, 0)]), 0);
        assert_eq!(picked_text_bytes(&[], &[]), 0);
    }
}
