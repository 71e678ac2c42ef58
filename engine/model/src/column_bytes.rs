//! Memory of columns.

use arrow::array::{
    AnyDictionaryArray, Array, AsArray, GenericByteArray, GenericListArray, Int32Array,
    OffsetSizeTrait, RunArray, StringArray, UInt32Array,
};
use arrow::datatypes::{
    ArrowNativeType, ByteArrayType, DataType, Int16Type, Int32Type, Int64Type, RunEndIndexType,
};

/// Bytes of texts below which they are not counted one by one.
const SMALL_TEXT_BYTES: usize = 1 << 20;

/// Bytes of shared values from which on a column has long ones. Most operations leave dictionaries as they are, and a wide
/// table has many of short texts.
const LONG_VALUE_BYTES: usize = 2 << 20;

/// Values of at most these bytes are stored in their views.
const VIEW_BYTES_MAX: usize = 12;

/// Bytes of a column, without the rest of an array that it is a slice of.
pub fn column_bytes(column: &dyn Array) -> usize {
    column
        .to_data()
        .get_slice_memory_size()
        .unwrap_or_else(|_| column.get_array_memory_size())
}

/// True for types in which rows share values, at any depth: dictionaries and runs of equal values.
pub fn has_shared_values(data_type: &DataType) -> bool {
    contains_type(data_type, is_shared)
}

fn is_shared(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Dictionary(..) | DataType::RunEndEncoded(..)
    )
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// True if a predicate holds for a type, or for one inside of it.
fn contains_type(data_type: &DataType, predicate: fn(&DataType) -> bool) -> bool {
    if predicate(data_type) {
        return true;
    }
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => contains_type(item.data_type(), predicate),
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| contains_type(field.data_type(), predicate)),
        _ => false,
    }
}

/// Bytes of a column with the values of its rows in place of dictionaries, runs and views, at any depth.
pub fn plain_bytes(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Utf8View | DataType::BinaryView => {
            size_of::<i32>() * column.len() + view_value_bytes(column, 0)
        }
        plain if !has_shared_values(plain) && !contains_type(plain, is_view) => {
            column_bytes(column)
        }
        DataType::Struct(_) => {
            let fields = column.as_struct().columns().iter();
            fields.map(|field| plain_bytes(field)).sum()
        }
        DataType::List(_) => list_bytes(column.as_list::<i32>()),
        DataType::LargeList(_) => list_bytes(column.as_list::<i64>()),
        DataType::FixedSizeList(..) => plain_bytes(column.as_fixed_size_list().values()),
        DataType::Map(..) => {
            let map = column.as_map();
            let first = map.value_offsets().first().map_or(0, |end| *end as usize);
            let last = map.value_offsets().last().map_or(0, |end| *end as usize);
            let entries = map.entries().slice(first, last - first);
            size_of::<i32>() * map.len() + plain_bytes(&entries)
        }
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => run_bytes(column.as_run::<Int16Type>()),
            DataType::Int32 => run_bytes(column.as_run::<Int32Type>()),
            _ => run_bytes(column.as_run::<Int64Type>()),
        },
        _ => match column.as_any_dictionary_opt() {
            Some(keyed) => keyed_bytes(keyed),
            None => column_bytes(column),
        },
    }
}

fn keyed_bytes(column: &dyn AnyDictionaryArray) -> usize {
    let values = column.values();
    if values.is_empty() {
        return column_bytes(column.keys());
    }
    let mut bytes = size_of::<i32>() * column.len();
    if let Some(texts) = values.as_string_opt::<i32>() {
        for (row, key) in column.normalized_keys().into_iter().enumerate() {
            if column.is_valid(row) {
                bytes += texts.value_length(key) as usize;
            }
        }
        return bytes;
    }
    let lengths = value_lengths(values);
    for (row, key) in column.normalized_keys().into_iter().enumerate() {
        if column.is_valid(row) {
            bytes = bytes.saturating_add(lengths[key]);
        }
    }
    bytes
}

fn list_bytes<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> usize {
    let offsets = lists.value_offsets();
    let first = offsets.first().map_or(0, |end| end.as_usize());
    let last = offsets.last().map_or(0, |end| end.as_usize());
    let items = lists.values().slice(first, last - first);
    size_of::<O>() * lists.len() + plain_bytes(&items)
}

fn run_bytes<R: RunEndIndexType>(runs: &RunArray<R>) -> usize {
    let lengths = value_lengths(runs.values());
    let run_ends = runs.run_ends();
    let end = run_ends.offset() + run_ends.len();
    let mut row = run_ends.offset();
    let mut bytes = 0usize;
    for (run_end, length) in run_ends.values().iter().zip(lengths) {
        let next_row = run_end.as_usize().min(end);
        if next_row > row {
            bytes = bytes.saturating_add((next_row - row).saturating_mul(length));
            row = next_row;
        }
    }
    bytes
}

/// Bytes of each value of a column, as [`plain_bytes`].
fn value_lengths(values: &dyn Array) -> Vec<usize> {
    let mut lengths = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        lengths.push(value_bytes(values, row));
    }
    lengths
}

fn value_bytes(values: &dyn Array, row: usize) -> usize {
    if values.is_null(row) {
        return 0;
    }
    let data_type = values.data_type();
    if let Some(width) = data_type.primitive_width() {
        return width;
    }
    match data_type {
        DataType::Boolean => 1,
        DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap_or(0),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            text_length(values, row)
        }
        DataType::Utf8View => values.as_string_view().value(row).len(),
        DataType::BinaryView => values.as_binary_view().value(row).len(),
        DataType::List(_) => list_value_bytes(values.as_list::<i32>(), row),
        DataType::LargeList(_) => list_value_bytes(values.as_list::<i64>(), row),
        DataType::FixedSizeList(..) => plain_bytes(&values.as_fixed_size_list().value(row)),
        DataType::Map(..) => plain_bytes(&values.as_map().value(row)),
        DataType::Struct(_) => {
            let fields = values.as_struct().columns().iter();
            fields.map(|field| value_bytes(field, row)).sum()
        }
        _ => plain_bytes(&values.slice(row, 1)),
    }
}

fn list_value_bytes<O: OffsetSizeTrait>(lists: &GenericListArray<O>, row: usize) -> usize {
    match lists.values().data_type().primitive_width() {
        Some(width) => lists.value_length(row).as_usize().saturating_mul(width),
        None => plain_bytes(&lists.value(row)),
    }
}

/// Bytes of the longest value of a column: those of its copy in another row.
pub fn longest_value_bytes(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Utf8 => longest_text(column.as_string::<i32>()),
        DataType::LargeUtf8 => longest_text(column.as_string::<i64>()),
        DataType::Binary => longest_text(column.as_binary::<i32>()),
        DataType::LargeBinary => longest_text(column.as_binary::<i64>()),
        data_type => match data_type.primitive_width() {
            Some(width) => width,
            None => longest_value(column),
        },
    }
}

fn longest_text<T: ByteArrayType>(texts: &GenericByteArray<T>) -> usize {
    let mut longest = 0usize;
    for ends in texts.value_offsets().windows(2) {
        longest = longest.max(ends[1].as_usize() - ends[0].as_usize());
    }
    longest
}

fn longest_value(values: &dyn Array) -> usize {
    let mut longest = 0usize;
    for row in 0..values.len() {
        longest = longest.max(value_bytes(values, row));
    }
    longest
}

/// Bytes of the values of a column of views that have more than so many bytes.
fn view_value_bytes(column: &dyn Array, bytes_min: usize) -> usize {
    let views = match column.data_type() {
        DataType::Utf8View => column.as_string_view().views(),
        _ => column.as_binary_view().views(),
    };
    let mut bytes = 0;
    for (row, view) in views.iter().enumerate() {
        // The length comes first.
        let length = *view as u32 as usize;
        if length > bytes_min && column.is_valid(row) {
            bytes += length;
        }
    }
    bytes
}

/// Bytes of the values of views, where several rows share them; else 0.
fn shared_view_bytes(column: &dyn Array) -> usize {
    let buffers = match column.data_type() {
        DataType::Utf8View => column.as_string_view().data_buffers(),
        _ => column.as_binary_view().data_buffers(),
    };
    let buffer_bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    if buffer_bytes == 0 {
        return 0;
    }
    let bytes = view_value_bytes(column, VIEW_BYTES_MAX);
    if bytes > buffer_bytes { bytes } else { 0 }
}

/// Bytes of the values that stand for the rows of a dictionary, of runs, or of views that share values; 0 for other
/// columns. A column of few long values may stand for thousands of times its bytes.
pub fn shared_value_bytes(column: &dyn Array) -> usize {
    let data_type = column.data_type();
    if matches!(data_type, DataType::Utf8View | DataType::BinaryView) {
        return shared_view_bytes(column);
    }
    if !has_shared_values(data_type) {
        return 0;
    }
    let Some(keyed) = column.as_any_dictionary_opt() else {
        return plain_bytes(column);
    };
    let Some(texts) = keyed.values().as_string_opt::<i32>() else {
        return plain_bytes(column);
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

/// Like [`shared_value_bytes`], but 0 for columns that stand for few bytes.
pub fn long_value_bytes(column: &dyn Array) -> usize {
    let bytes = shared_value_bytes(column);
    if bytes < LONG_VALUE_BYTES { 0 } else { bytes }
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

/// Bytes of a copy of some rows of a column. Rows of texts and lists count with their lengths, others with the mean of the
/// column.
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
        nested if has_text_length(nested) => {
            let mut bytes = 0usize;
            for row in rows.iter().flatten() {
                bytes = bytes.saturating_add(text_length(column, row as usize));
            }
            bytes
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
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) => true,
        DataType::Dictionary(_, values) => has_text_length(values),
        DataType::FixedSizeList(item, _) => has_text_length(item.data_type()),
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| has_text_length(field.data_type())),
        _ => false,
    }
}

/// Bytes of the texts, binary values or lists that a copy of rows of several columns of one type has, as
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

/// Number of picks, at least one, whose values take at most so many bytes together. `columns` are the sources of each
/// column, as in [`picked_text_bytes`].
pub fn picks_within(
    columns: &[[&dyn Array; 3]],
    picks: &[(usize, usize)],
    bytes_max: usize,
) -> usize {
    let mut texts = columns.to_vec();
    texts.retain(|sources| has_text_length(sources[0].data_type()));
    if texts.is_empty() {
        return picks.len();
    }
    let mut bytes = 0usize;
    for (number, (source, row)) in picks.iter().enumerate() {
        for sources in &texts {
            bytes = bytes.saturating_add(text_length(sources[*source], *row));
        }
        if bytes > bytes_max {
            return number.max(1);
        }
    }
    picks.len()
}

/// Bytes of a text, of a binary value or of a list, also of a dictionary with keys of 32 bits, and of those in a struct; 0
/// in columns of other types.
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
        nested if has_text_length(nested) => value_bytes(column, row),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, BinaryViewArray, DictionaryArray, Int64Array, ListArray,
        StringViewArray, StructArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::compute::cast;
    use arrow::datatypes::{Field, UInt8Type};

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
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["abc"]));
        assert_eq!(plain_bytes(&texts), column_bytes(&texts));
    }

    #[test]
    fn texts_of_dictionaries_count_for_each_row() {
        let text = "x".repeat(10_000);
        let keyed: DictionaryArray<Int32Type> = vec![text.as_str(); 1_000].into_iter().collect();
        let bytes = shared_value_bytes(&keyed);
        assert!(bytes >= 10_000_000, "{bytes}");
        assert_eq!(long_value_bytes(&keyed), bytes);
        // A slice counts its rows alone, also where it has fewer rows than there are texts.
        let texts: Vec<String> = (0..100).map(|row| format!("{row:05000}")).collect();
        let keyed: DictionaryArray<Int32Type> = texts.iter().map(String::as_str).collect();
        let bytes = shared_value_bytes(&keyed.slice(0, 10));
        assert!((50_000..60_000).contains(&bytes), "{bytes}");
        assert_eq!(long_value_bytes(&keyed.slice(0, 10)), 0);
        let plain = StringArray::from(vec!["x"]);
        assert_eq!(shared_value_bytes(&plain), 0);
    }

    fn keyed(values: ArrayRef, keys: Vec<u8>) -> ArrayRef {
        Arc::new(DictionaryArray::<UInt8Type>::new(keys.into(), values))
    }

    fn counted(column: &ArrayRef) -> usize {
        shared_value_bytes(column) / 1_000_000
    }

    #[test]
    fn values_of_all_types_count_for_each_row() {
        let long = vec![0u8; 1_000_000];
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&long[..], b"x"]));
        let rows = vec![0, 0, 0, 1];
        let binary = keyed(bytes.clone(), rows.clone());
        assert_eq!(counted(&binary), 3);
        assert_eq!(counted(&binary.slice(2, 2)), 1);
        assert_eq!(long_value_bytes(&binary.slice(2, 2)), 0);
        for data_type in [DataType::LargeBinary, DataType::BinaryView] {
            let values = cast(&bytes, &data_type).unwrap();
            assert_eq!(counted(&keyed(values, rows.clone())), 3, "{data_type}");
        }
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 125_001]));
        let offsets = OffsetBuffer::from_lengths([125_000, 1]);
        let item = Arc::new(Field::new_list_field(DataType::Int64, true));
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, numbers, None));
        assert_eq!(counted(&keyed(lists, rows.clone())), 3);
        // Also inside of structs and lists.
        let field = Arc::new(Field::new("f", binary.data_type().clone(), true));
        let object: ArrayRef = Arc::new(StructArray::from(vec![(field, binary.clone())]));
        assert_eq!(counted(&object), 3);
        assert_eq!(counted(&object.slice(1, 3)), 2);
        let item = Arc::new(Field::new_list_field(binary.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([1, 3]);
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, binary, None));
        assert_eq!(counted(&lists), 3);
        assert_eq!(counted(&lists.slice(1, 1)), 2);
        let few: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        assert_eq!(counted(&keyed(few, rows)), 0);
    }

    #[test]
    fn runs_and_views_count_for_each_row() {
        let long = "x".repeat(1_000_000);
        let ends = Int32Array::from(vec![3, 5]);
        let texts = StringArray::from(vec![long.as_str(), "y"]);
        let runs: ArrayRef = Arc::new(RunArray::<Int32Type>::try_new(&ends, &texts).unwrap());
        assert_eq!(plain_bytes(&runs), 3_000_002);
        assert_eq!(plain_bytes(&runs.slice(1, 3)), 2_000_001);
        // Three rows have the bytes of one.
        let bytes = BinaryViewArray::from_iter_values([long.as_bytes()]);
        let view = bytes.views()[0];
        let views = vec![view; 3].into();
        let shared = BinaryViewArray::new(views, bytes.data_buffers().to_vec(), None);
        assert_eq!(long_value_bytes(&shared), 3_000_000);
        assert_eq!(long_value_bytes(&bytes), 0);
    }

    #[test]
    fn views_inside_of_lists_and_structs_count_for_each_row() {
        let long = "x".repeat(1_000);
        let texts = StringViewArray::from_iter_values([&long, &long, &long, &long]);
        let texts: ArrayRef = Arc::new(texts);
        let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let offsets = OffsetBuffer::new(vec![0, 1, 1, 4].into());
        let lists = ListArray::new(item, offsets, texts.clone(), None);
        let texts_of = |rows: usize| 4 * rows + 1_000 * rows;
        assert_eq!(plain_bytes(&lists), 4 * 3 + texts_of(4));
        assert_eq!(plain_bytes(&lists.slice(0, 2)), 4 * 2 + texts_of(1));
        let field = Arc::new(Field::new("text", DataType::Utf8View, true));
        let rows = StructArray::from(vec![(field, texts)]);
        assert_eq!(plain_bytes(&rows), texts_of(4));
        assert_eq!(plain_bytes(&rows.slice(1, 2)), texts_of(2));
    }

    #[test]
    fn the_longest_value_is_one_of_the_rows() {
        let texts = StringArray::from(vec![Some("abcd"), None, Some("x")]);
        assert_eq!(longest_value_bytes(&texts), 4);
        assert_eq!(longest_value_bytes(&texts.slice(1, 2)), 1);
        assert_eq!(longest_value_bytes(&texts.slice(1, 0)), 0);
        let views = StringViewArray::from(vec![Some("a text beyond a view"), None]);
        assert_eq!(longest_value_bytes(&views), 20);
        let numbers = Int64Array::from(vec![None, Some(1)]);
        assert_eq!(longest_value_bytes(&numbers), 8);
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![Some(1), Some(2), Some(3)]),
        ]);
        assert_eq!(longest_value_bytes(&lists), 3 * 4);
        assert_eq!(longest_value_bytes(&lists.slice(0, 2)), 2 * 4);
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

    #[test]
    fn picks_count_the_items_of_their_lists() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 101]));
        let item = Arc::new(Field::new_list_field(DataType::Int64, true));
        let offsets = OffsetBuffer::from_lengths([100, 1]);
        let lists = ListArray::new(item, offsets, numbers, None);
        assert_eq!(
            picked_text_bytes(&[&lists], &[(0, 0), (0, 0), (0, 1)]),
            1_608
        );
        let rows = UInt32Array::from(vec![0, 0, 0]);
        assert_eq!(taken_bytes(&lists, &rows), 3 * 8 + 2_400);
        let field = Arc::new(Field::new("l", lists.data_type().clone(), true));
        let object = StructArray::from(vec![(field, Arc::new(lists) as ArrayRef)]);
        assert_eq!(text_length(&object, 0), 800);
    }

    #[test]
    fn picks_are_divided_by_their_bytes() {
        let texts = StringArray::from(vec!["x".repeat(100), "y".to_owned()]);
        let none = StringArray::from(vec![None::<&str>]);
        let columns: [[&dyn Array; 3]; 1] = [[&none, &none, &texts]];
        let picks = [(2, 0), (2, 0), (0, 0), (2, 1), (2, 0)];
        assert_eq!(picks_within(&columns, &picks, 250), 4);
        assert_eq!(picks_within(&columns, &picks, 99), 1);
        assert_eq!(picks_within(&columns, &picks[2..4], 99), 2);
        let number = Int64Array::from(vec![1]);
        let numbers: [[&dyn Array; 3]; 1] = [[&number, &number, &number]];
        assert_eq!(picks_within(&numbers, &[(0, 0), (1, 0)], 0), 2);
    }
}
