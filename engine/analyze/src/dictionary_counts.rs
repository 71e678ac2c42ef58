//! Counts of dictionary columns by key: each distinct value is looked up once.

use arrow::array::{Array, ArrayRef, Int32Array, StringArray};
use arrow::datatypes::ArrowNativeType;
use forebay_model::{Result, StringColumn, TextRef};

/// A dictionary longer than this multiple of the batch is counted by row instead of by key.
const VALUES_PER_ROW_MAX: usize = 64;

/// Counts per value of the current dictionary.
#[derive(Debug, Default)]
pub(crate) struct DictionaryCounts {
    values: Option<ArrayRef>,
    counts: Vec<u64>,
    nulls: u64,
}

impl DictionaryCounts {
    /// Accumulates a column. `add` receives strings (`None` for null) with their counts, now or at the next
    /// [`DictionaryCounts::flush`].
    pub(crate) fn push(
        &mut self,
        column: &StringColumn,
        mut add: impl FnMut(Option<&str>, u64) -> Result<()>,
    ) -> Result<()> {
        let (keys, values) = match column {
            StringColumn::Plain(_) => return for_each_text(column.values()?, add),
            StringColumn::Dictionary(keys, values) => (keys, values),
        };
        // Batches of one file share their dictionary: its values are looked up when another one comes.
        if !self.is_current(values) {
            self.flush(&mut add)?;
            if values.len() > VALUES_PER_ROW_MAX * keys.len() {
                let values = column.values()?;
                for key in keys.iter() {
                    let text = key.and_then(|key| values.get(key.as_usize()));
                    add(text, 1)?;
                }
                return Ok(());
            }
            self.counts.resize(values.len(), 0);
            self.values = Some(values.clone());
        }
        self.nulls += count_keys(keys, &mut self.counts);
        Ok(())
    }

    /// True if `values` is the current dictionary, by address: contents are not compared.
    fn is_current(&self, values: &ArrayRef) -> bool {
        let Some(current) = &self.values else {
            return false;
        };
        // Readers may wrap the same buffers in a new array for each batch.
        std::sync::Arc::ptr_eq(current, values)
            || (current.len() == values.len() && current.to_data().ptr_eq(&values.to_data()))
    }

    /// Passes the counts to `add` and drops the dictionary.
    pub(crate) fn flush(
        &mut self,
        mut add: impl FnMut(Option<&str>, u64) -> Result<()>,
    ) -> Result<()> {
        if self.nulls > 0 {
            add(None, std::mem::take(&mut self.nulls))?;
        }
        if let Some(values) = self.values.take()
            && let Some(values) = TextRef::new(&values)
        {
            for (index, &count) in self.counts.iter().enumerate() {
                if count > 0 {
                    add(values.get(index), count)?;
                }
            }
        }
        self.counts.clear();
        Ok(())
    }

    /// Bytes of memory held, including the dictionary.
    pub(crate) fn size_bytes(&self) -> usize {
        let dictionary = match &self.values {
            Some(values) => values.get_array_memory_size(),
            None => 0,
        };
        self.counts.capacity() * 8 + dictionary
    }
}

/// Counts keys; returns the number of nulls.
fn count_keys(keys: &Int32Array, counts: &mut [u64]) -> u64 {
    let mut count = |key: i32, times: u64| {
        if let Some(count) = counts.get_mut(key.as_usize()) {
            *count += times;
        }
    };
    match keys.nulls() {
        Some(nulls) if nulls.null_count() > 0 => {
            // Nulls come in no order: adding a count of zero is faster than a branch.
            let words = nulls.inner().bit_chunks();
            for (keys, valid) in keys.values().chunks(64).zip(words.iter_padded()) {
                for (bit, &key) in keys.iter().enumerate() {
                    count(key, valid >> bit & 1);
                }
            }
            nulls.null_count() as u64
        }
        _ => {
            for &key in keys.values() {
                count(key, 1);
            }
            0
        }
    }
}

/// Passes each string of a plain column to `add`.
fn for_each_text(
    values: TextRef<'_>,
    mut add: impl FnMut(Option<&str>, u64) -> Result<()>,
) -> Result<()> {
    match values {
        TextRef::Utf8(array) => array.iter().try_for_each(|value| add(value, 1)),
        TextRef::Large(array) => array.iter().try_for_each(|value| add(value, 1)),
        TextRef::View(array) => array.iter().try_for_each(|value| add(value, 1)),
    }
}

/// Arrays whose values count as strings: the column itself or, for lists, the elements of the lists that are not
/// null. Also returns the number of null lists.
pub(crate) fn string_elements(column: &ArrayRef) -> Result<(Vec<ArrayRef>, u64)> {
    use arrow::array::AsArray;
    use arrow::datatypes::DataType;
    let (values, offsets): (&ArrayRef, Vec<usize>) = match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets = list.offsets().iter().map(|offset| offset.as_usize());
            (list.values(), offsets.collect())
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let offsets = list.offsets().iter().map(|offset| offset.as_usize());
            (list.values(), offsets.collect())
        }
        DataType::FixedSizeList(_, width) => {
            let list = column.as_fixed_size_list();
            let width = width.as_usize();
            let offsets = (0..=list.len()).map(|row| row * width);
            (list.values(), offsets.collect())
        }
        DataType::Null => {
            let nulls = StringArray::new_null(column.len());
            return Ok((vec![std::sync::Arc::new(nulls)], 0));
        }
        _ => return Ok((vec![column.clone()], 0)),
    };
    // Null lists may have elements that do not count.
    let elements_of = |first: usize, end: usize| {
        let start = offsets[first];
        values.slice(start, offsets[end] - start)
    };
    let Some(nulls) = column.nulls() else {
        return Ok((vec![elements_of(0, column.len())], 0));
    };
    let mut slices = Vec::new();
    for (first, end) in nulls.valid_slices() {
        slices.push(elements_of(first, end));
    }
    Ok((slices, nulls.null_count() as u64))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, FixedSizeListArray};
    use arrow::buffer::NullBuffer;
    use arrow::compute::{cast, concat};
    use arrow::datatypes::{DataType, Field};

    use super::*;

    /// Lists of two texts, of which one is null and has texts below it, in each layout and as a part of a longer column.
    #[test]
    fn elements_of_all_lists_count() {
        let texts = StringArray::from(vec![
            Some("x"),
            Some("y"),
            Some("a"),
            None,
            Some("hidden"),
            Some("hidden"),
            Some("b"),
            Some("a"),
        ]);
        let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let nulls = NullBuffer::from(vec![true, true, false, true]);
        let pairs = FixedSizeListArray::try_new(item.clone(), 2, Arc::new(texts), Some(nulls));
        let pairs: ArrayRef = Arc::new(pairs.unwrap());
        for data_type in [
            DataType::FixedSizeList(item.clone(), 2),
            DataType::List(item.clone()),
            DataType::LargeList(item),
        ] {
            let column = cast(&pairs, &data_type).unwrap().slice(1, 3);
            let (parts, null_lists) = string_elements(&column).unwrap();
            assert_eq!(null_lists, 1, "{data_type}");
            let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
            let elements = concat(&parts).unwrap();
            let elements: Vec<_> = elements.as_string::<i32>().iter().collect();
            assert_eq!(
                elements,
                [Some("a"), None, Some("b"), Some("a")],
                "{data_type}"
            );
        }
    }
}
