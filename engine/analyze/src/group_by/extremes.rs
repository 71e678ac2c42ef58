//! Least and greatest values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, Float64Array, Int64Array, Int64Builder};
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::row::{RowConverter, SortField};
use forebay_model::{GroupFunction, Result, TextRef, decode_rows};

use super::accumulator::{
    Accumulator, GroupedRows, doubles, encoded_state_column, for_each_value, foreign_function,
    state_column,
};
use super::key_field::as_type;
use super::ordered_bits::{from_ordered_bits, to_ordered_bits};

/// The extreme of each group, of values that are integers in disguise.
pub(super) struct Extremes {
    data_type: DataType,
    greatest: bool,
    values: Vec<i64>,
    is_seen: Vec<bool>,
}

impl Extremes {
    pub(super) fn new(data_type: &DataType, greatest: bool) -> Self {
        Extremes {
            data_type: data_type.clone(),
            greatest,
            values: Vec::new(),
            is_seen: Vec::new(),
        }
    }

    fn add(&mut self, group: usize, value: i64) {
        let extreme = &mut self.values[group];
        *extreme = if self.greatest {
            value.max(*extreme)
        } else {
            value.min(*extreme)
        };
        self.is_seen[group] = true;
    }

    /// The extremes of groups; null where a group has no value.
    fn extremes(&self, order: &[u32]) -> Int64Array {
        let mut extremes = Int64Builder::with_capacity(order.len());
        for group in order {
            let group = *group as usize;
            extremes.append_option(self.is_seen[group].then_some(self.values[group]));
        }
        extremes.finish()
    }
}

impl Accumulator for Extremes {
    fn resize(&mut self, groups: usize) {
        let initial = if self.greatest { i64::MIN } else { i64::MAX };
        self.values.resize(groups, initial);
        self.is_seen.resize(groups, false);
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let groups = rows.groups;
        let column = rows.value()?;
        let bits = if self.data_type.is_floating() {
            // Both zeros are 0.0.
            let doubles = doubles(column.array()?)?;
            let canonical: Float64Array = doubles.unary::<_, Float64Type>(|value| value + 0.0);
            to_ordered_bits(&(Arc::new(canonical) as ArrayRef))?
        } else {
            to_ordered_bits(column.array()?)?
        };
        // A single group takes the extreme of the whole column, which Arrow computes with vector instructions.
        if self.values.len() == 1 {
            let values = Int64Array::new(bits.values().clone(), column.valid.clone());
            let extreme = if self.greatest {
                max(&values)
            } else {
                min(&values)
            };
            if let Some(extreme) = extreme {
                self.add(0, extreme);
            }
            return Ok(());
        }
        let bits = bits.values();
        for_each_value(groups, column.valid.as_ref(), |row, group| {
            self.add(group, bits[row])
        });
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(self.extremes(order))])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let states = state_column::<Int64Type>(states, 0)?;
        for_each_value(groups, states.nulls(), |row, group| {
            self.add(group, states.value(row))
        });
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        from_ordered_bits(&self.extremes(order), &self.data_type)
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<i64>() + self.is_seen.capacity()
    }
}

/// Values as bytes that sort like them.
pub(super) struct ValueBytes(RowConverter);

impl ValueBytes {
    pub(super) fn new(data_type: &DataType) -> Result<Self> {
        let field = SortField::new(data_type.clone());
        Ok(ValueBytes(RowConverter::new(vec![field])?))
    }

    pub(super) fn encode(&self, column: &ArrayRef) -> Result<arrow::row::Rows> {
        Ok(self.0.convert_columns(std::slice::from_ref(column))?)
    }

    /// The column of such bytes; `None` becomes null.
    pub(super) fn decode<'b>(
        &self,
        bytes: impl Iterator<Item = Option<&'b [u8]>>,
        null: &[u8],
    ) -> Result<ArrayRef> {
        let columns = decode_rows(&self.0, bytes.map(|bytes| bytes.unwrap_or(null)))?;
        columns.into_iter().next().ok_or_else(foreign_function)
    }

    /// The bytes of null.
    pub(super) fn null(&self, data_type: &DataType) -> Result<Vec<u8>> {
        let rows = self.encode(&arrow::array::new_null_array(data_type, 1))?;
        Ok(rows.row(0).data().to_vec())
    }
}

/// The extreme of each group, of all other values.
pub(super) struct ByteExtremes {
    bytes: ValueBytes,
    null: Vec<u8>,
    greatest: bool,
    values: Vec<Option<Vec<u8>>>,
    heap_bytes: usize,
}

impl ByteExtremes {
    pub(super) fn new(data_type: &DataType, greatest: bool) -> Result<Self> {
        let bytes = ValueBytes::new(data_type)?;
        let null = bytes.null(data_type)?;
        Ok(ByteExtremes {
            bytes,
            null,
            greatest,
            values: Vec::new(),
            heap_bytes: 0,
        })
    }

    fn add(&mut self, group: usize, value: &[u8]) {
        let extreme = &mut self.values[group];
        let is_better = match extreme.as_deref() {
            None => true,
            Some(extreme) if self.greatest => value > extreme,
            Some(extreme) => value < extreme,
        };
        if is_better {
            replace_bytes(extreme.get_or_insert_default(), value, &mut self.heap_bytes);
        }
    }

    /// The row of the extreme of some texts.
    fn extreme_row(&self, texts: TextRef<'_>) -> Option<usize> {
        let rows = texts
            .iter()
            .enumerate()
            .filter_map(|(row, text)| Some((text?, row)));
        let (_, row) = if self.greatest {
            rows.max()?
        } else {
            rows.min()?
        };
        Some(row)
    }

    fn extremes(&self, order: &[u32]) -> impl Iterator<Item = Option<&[u8]>> {
        order
            .iter()
            .map(|group| self.values[*group as usize].as_deref())
    }
}

/// Replaces bytes in place and keeps their sizes.
pub(super) fn replace_bytes(bytes: &mut Vec<u8>, value: &[u8], heap_bytes: &mut usize) {
    let old_capacity = bytes.capacity();
    bytes.clear();
    bytes.extend_from_slice(value);
    *heap_bytes = *heap_bytes + bytes.capacity() - old_capacity;
}

impl Accumulator for ByteExtremes {
    fn resize(&mut self, groups: usize) {
        self.values.resize(groups, None);
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let groups = rows.groups;
        let column = rows.value()?;
        let used = column.used_values()?;
        if self.values.len() == 1 {
            // Texts are compared as they are: the extreme alone is encoded.
            let values = match &used {
                Some(used) => &used.values,
                None => &column.read,
            };
            if let Some(texts) = TextRef::new(values) {
                if let Some(row) = self.extreme_row(texts) {
                    let text = as_type(&values.slice(row, 1), &DataType::Utf8)?;
                    let encoded = self.bytes.encode(&text)?;
                    self.add(0, encoded.row(0).data());
                }
                return Ok(());
            }
        }
        let values = match &used {
            Some(used) => &used.values,
            None => column.array()?,
        };
        let encoded = self.bytes.encode(values)?;
        for_each_value(groups, column.valid.as_ref(), |row, group| {
            let index = match &used {
                Some(used) => used.indices[row] as usize,
                None => row,
            };
            self.add(group, encoded.row(index).data());
        });
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let extremes: BinaryArray = self.extremes(order).collect();
        Ok(vec![Arc::new(extremes)])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let states = encoded_state_column(states, 0)?;
        for_each_value(groups, states.nulls(), |row, group| {
            self.add(group, states.value(row))
        });
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        self.bytes.decode(self.extremes(order), &self.null)
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<Option<Vec<u8>>>() + self.heap_bytes
    }
}
