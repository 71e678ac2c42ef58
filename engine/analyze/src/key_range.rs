//! The smallest and the largest key of some rows.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use forebay_model::{
    Analyzer, AnalyzerInput, Finding, Result, ScratchSpace, StateDecoder, StateEncoder, decode_rows,
};
use serde_json::{Value, json};

/// Bytes of an encoded key at most.
const KEY_BYTES_MAX: usize = 1 << 30;

/// The smallest and the largest combination of some columns, in their order. Rows with a null among them do not count.
///
/// The finding has the columns `key1`, `key2`, ... and two rows, the smallest and the largest; none where no row counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// Types of the columns; memory layouts do not matter.
    pub keys: Vec<DataType>,
}

/// State of `KeyRange`: the encoded keys, whose bytes are ordered as the keys are.
#[derive(Debug, Clone, Default)]
pub struct KeyRangeState(Option<(Vec<u8>, Vec<u8>)>);

impl KeyRangeState {
    fn add(&mut self, key: &[u8]) {
        match &mut self.0 {
            None => self.0 = Some((key.to_vec(), key.to_vec())),
            Some((least, most)) => {
                if key < least.as_slice() {
                    *least = key.to_vec();
                }
                if key > most.as_slice() {
                    *most = key.to_vec();
                }
            }
        }
    }
}

impl KeyRange {
    fn converter(&self) -> Result<RowConverter> {
        let fields = self.keys.iter().cloned().map(SortField::new).collect();
        Ok(RowConverter::new(fields)?)
    }
}

impl Analyzer for KeyRange {
    type State = KeyRangeState;

    fn kind(&self) -> &'static str {
        "key_range"
    }

    fn config(&self) -> Value {
        let types: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        json!({ "keys": types })
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<KeyRangeState> {
        Ok(KeyRangeState::default())
    }

    fn update(&self, state: &mut KeyRangeState, input: &AnalyzerInput<'_>) -> Result<()> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.keys.len());
        for (column, data_type) in input.columns.iter().zip(&self.keys) {
            columns.push(cast(column, data_type)?);
        }
        let rows = self.converter()?.convert_columns(&columns)?;
        for row in 0..input.rows {
            if columns.iter().all(|column| column.is_valid(row)) {
                state.add(rows.row(row).as_ref());
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut KeyRangeState, later_state: KeyRangeState) -> Result<()> {
        if let Some((least, most)) = later_state.0 {
            state.add(&least);
            state.add(&most);
        }
        Ok(())
    }

    fn encode(&self, state: &mut KeyRangeState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        match &state.0 {
            None => out.varint(0),
            Some((least, most)) => {
                out.varint(1)?;
                out.bytes(least)?;
                out.bytes(most)
            }
        }
    }

    fn decode(&self, input: &mut dyn Read, _: &Arc<dyn ScratchSpace>) -> Result<KeyRangeState> {
        let mut input = StateDecoder(input);
        if input.varint()? == 0 {
            return Ok(KeyRangeState::default());
        }
        let least = input.bytes(KEY_BYTES_MAX)?;
        Ok(KeyRangeState(Some((least, input.bytes(KEY_BYTES_MAX)?))))
    }

    fn finish(&self, state: KeyRangeState) -> Result<Finding> {
        let converter = self.converter()?;
        let mut ends: Vec<Vec<u8>> = Vec::new();
        if let Some((least, most)) = state.0 {
            ends.push(least);
            ends.push(most);
        }
        let columns = decode_rows(&converter, ends.iter().map(Vec::as_slice))?;
        let names: Vec<String> = (1..=columns.len()).map(|n| format!("key{n}")).collect();
        Finding::of(names.iter().map(String::as_str).zip(columns))
    }

    fn size_bytes(&self, state: &KeyRangeState) -> usize {
        let keys = state.0.as_ref();
        size_of::<KeyRangeState>() + keys.map_or(0, |(least, most)| least.len() + most.len())
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        4 << 10
    }
}
