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
        if !self.is_current(values) {
            self.flush(&mut add)?;
            if values.len() > VALUES_PER_ROW_MAX * keys.len() {
                let values = column.values()?;
                return keys
                    .iter()
                    .try_for_each(|key| add(key.and_then(|key| values.get(key.as_usize())), 1));
            }
            self.counts.resize(values.len(), 0);
            self.values = Some(values.clone());
        }
        self.nulls += count_keys(keys, &mut self.counts);
        Ok(())
    }

    /// Whether `values` is the current dictionary.
    fn is_current(&self, values: &ArrayRef) -> bool {
        let same = |held: &ArrayRef| {
            std::sync::Arc::ptr_eq(held, values)
                || (held.len() == values.len() && held.to_data().ptr_eq(&values.to_data()))
        };
        self.values.as_ref().is_some_and(same)
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
            for (value, &count) in self
                .counts
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
            {
                add(values.get(value), count)?;
            }
        }
        self.counts.clear();
        Ok(())
    }

    /// Bytes of memory held, including the dictionary.
    pub(crate) fn size_bytes(&self) -> usize {
        self.counts.capacity() * 8
            + self
                .values
                .as_ref()
                .map_or(0, |values| values.get_array_memory_size())
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
            for (keys, valid) in keys
                .values()
                .chunks(64)
                .zip(nulls.inner().bit_chunks().iter_padded())
            {
                keys.iter()
                    .enumerate()
                    .for_each(|(bit, &key)| count(key, valid >> bit & 1));
            }
            nulls.null_count() as u64
        }
        _ => {
            keys.values().iter().for_each(|&key| count(key, 1));
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
            (
                list.values(),
                list.offsets()
                    .iter()
                    .map(|offset| offset.as_usize())
                    .collect(),
            )
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            (
                list.values(),
                list.offsets()
                    .iter()
                    .map(|offset| offset.as_usize())
                    .collect(),
            )
        }
        DataType::Null => {
            return Ok((
                vec![std::sync::Arc::new(StringArray::new_null(column.len()))],
                0,
            ));
        }
        _ => return Ok((vec![column.clone()], 0)),
    };
    let slice =
        |(start, end): (usize, usize)| values.slice(offsets[start], offsets[end] - offsets[start]);
    Ok(match column.nulls() {
        None => (vec![slice((0, column.len()))], 0),
        Some(nulls) => (
            nulls.valid_slices().map(slice).collect(),
            nulls.null_count() as u64,
        ),
    })
}
