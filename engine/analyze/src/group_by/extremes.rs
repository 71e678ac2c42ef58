//! Least and greatest values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int64Array};
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::row::{RowConverter, SortField};
use forebay_model::{GroupFunction, Result, TextRef};

use super::accumulator::{
    Accumulator, GroupedRows, doubles, for_each_value, foreign_function, foreign_states,
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
        let held = &mut self.values[group];
        *held = if self.greatest {
            value.max(*held)
        } else {
            value.min(*held)
        };
        self.is_seen[group] = true;
    }

    fn held(&self, order: &[u32]) -> Int64Array {
        let held =
            |group: &u32| self.is_seen[*group as usize].then(|| self.values[*group as usize]);
        order.iter().map(held).collect()
    }
}

impl Accumulator for Extremes {
    fn resize(&mut self, groups: usize) {
        self.values
            .resize(groups, if self.greatest { i64::MIN } else { i64::MAX });
        self.is_seen.resize(groups, false);
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let (groups, column) = (rows.groups, rows.value()?);
        let bits = match self.data_type.is_floating() {
            // Both zeros are 0.0.
            true => {
                let canonical: Float64Array =
                    doubles(column.array()?)?.unary::<_, Float64Type>(|value| value + 0.0);
                to_ordered_bits(&(Arc::new(canonical) as ArrayRef))?
            }
            false => to_ordered_bits(column.array()?)?,
        };
        if self.values.len() == 1 {
            let values = Int64Array::new(bits.values().clone(), column.valid.clone());
            let found = if self.greatest {
                max(&values)
            } else {
                min(&values)
            };
            found.into_iter().for_each(|value| self.add(0, value));
            return Ok(());
        }
        let bits = bits.values();
        for_each_value(groups, column.valid.as_ref(), |row, group| {
            self.add(group, bits[row])
        });
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(self.held(order))])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let states = state_column::<Int64Type>(states, 0)?;
        for_each_value(groups, states.nulls(), |row, group| {
            self.add(group, states.value(row))
        });
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        from_ordered_bits(&self.held(order), &self.data_type)
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<i64>() + self.is_seen.capacity()
    }
}

/// Values as bytes that sort like them.
pub(super) struct ValueBytes(RowConverter);

impl ValueBytes {
    pub(super) fn new(data_type: &DataType) -> Result<Self> {
        Ok(ValueBytes(RowConverter::new(vec![SortField::new(
            data_type.clone(),
        )])?))
    }

    pub(super) fn encode(&self, column: &ArrayRef) -> Result<arrow::row::Rows> {
        Ok(self.0.convert_columns(std::slice::from_ref(column))?)
    }

    /// The column of such bytes; what is missing is null.
    pub(super) fn decode<'b>(
        &self,
        bytes: impl Iterator<Item = Option<&'b [u8]>>,
        null: &[u8],
    ) -> Result<ArrayRef> {
        let parser = self.0.parser();
        let columns = self
            .0
            .convert_rows(bytes.map(|bytes| parser.parse(bytes.unwrap_or(null))))?;
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
        let held = &mut self.values[group];
        let is_better = held.as_deref().is_none_or(|held| {
            if self.greatest {
                value > held
            } else {
                value < held
            }
        });
        if is_better {
            replace_bytes(held.get_or_insert_default(), value, &mut self.heap_bytes);
        }
    }

    /// The row of the extreme of some texts.
    fn extreme_row(&self, texts: TextRef<'_>) -> Option<usize> {
        let rows = texts
            .iter()
            .enumerate()
            .filter_map(|(row, text)| Some((text?, row)));
        let found = if self.greatest {
            rows.max()
        } else {
            rows.min()
        };
        found.map(|(_, row)| row)
    }

    fn held(&self, order: &[u32]) -> impl Iterator<Item = Option<&[u8]>> {
        order
            .iter()
            .map(|group| self.values[*group as usize].as_deref())
    }
}

/// Replaces bytes in place and keeps their sizes.
pub(super) fn replace_bytes(held: &mut Vec<u8>, value: &[u8], heap_bytes: &mut usize) {
    let before = held.capacity();
    held.clear();
    held.extend_from_slice(value);
    *heap_bytes = *heap_bytes + held.capacity() - before;
}

impl Accumulator for ByteExtremes {
    fn resize(&mut self, groups: usize) {
        self.values.resize(groups, None);
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let (groups, column) = (rows.groups, rows.value()?);
        let used = column.used_values()?;
        if self.values.len() == 1 {
            // Texts are compared as they are: the extreme alone is encoded.
            let values = used.as_ref().map_or(&column.read, |used| &used.values);
            if let Some(texts) = TextRef::new(values) {
                if let Some(row) = self.extreme_row(texts) {
                    let encoded = self
                        .bytes
                        .encode(&as_type(&values.slice(row, 1), &DataType::Utf8)?)?;
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
            let place = used.as_ref().map_or(row, |used| used.places[row] as usize);
            self.add(group, encoded.row(place).data());
        });
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(self.held(order).collect::<BinaryArray>())])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let states = states
            .first()
            .and_then(|column| column.as_binary_opt::<i32>())
            .ok_or_else(foreign_states)?;
        for_each_value(groups, states.nulls(), |row, group| {
            self.add(group, states.value(row))
        });
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        self.bytes.decode(self.held(order), &self.null)
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<Option<Vec<u8>>>() + self.heap_bytes
    }
}
