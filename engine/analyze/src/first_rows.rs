//! The first rows that have a value, with their positions in files.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, RowKeys, ScratchSpace, StateDecoder,
    StateEncoder,
};
use serde_json::{Value, json};

use crate::numeric_column::single_column;

/// Most bytes of a value.
const VALUE_BYTES_MAX: usize = 4 << 10;

/// The first rows of some files whose value in a column of texts is not null.
///
/// Rows that the operations before it derived from others (`explode`) have no place in a file and are ignored. The
/// finding has at most `most` rows in the order of files and rows: `file` (UInt64, the index in `files`), `row`
/// (UInt64, counted from 0) and `value` (Utf8).
#[derive(Debug, Clone)]
pub struct FirstRows {
    /// Rows to keep at most.
    pub most: usize,
    /// The files in their order.
    pub files: Arc<FileRowKeys>,
}

/// Finds the file and the row of a row key.
#[derive(Debug, Clone, Default)]
pub struct FileRowKeys {
    /// The rows and the index of each file, by the seed of its row keys.
    by_seed: BTreeMap<u64, FileRows>,
}

#[derive(Debug, Clone, Copy)]
struct FileRows {
    index: u64,
    rows: u64,
}

/// A row of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowPlace {
    file: u64,
    row: u64,
}

impl FileRowKeys {
    /// The seeds of the row keys of files (see [`RowKeys::file_seed`]), each with the number of rows of the file at most.
    pub fn new(files: impl IntoIterator<Item = (u64, u64)>) -> FileRowKeys {
        let files = files.into_iter().zip(0..);
        let mut by_seed = BTreeMap::new();
        for ((seed, rows), index) in files {
            by_seed.insert(seed, FileRows { index, rows });
        }
        FileRowKeys { by_seed }
    }

    fn row_place(&self, key: u64) -> Option<RowPlace> {
        let position = RowKeys::position(key);
        // Positions wrap around after the greatest number: those before all seeds belong to the last file.
        let mut up_to_position = self.by_seed.range(..=position);
        let (seed, file) = up_to_position
            .next_back()
            .or_else(|| self.by_seed.last_key_value())?;
        let row = position.wrapping_sub(*seed);
        (row < file.rows).then_some(RowPlace {
            file: file.index,
            row,
        })
    }
}

/// State of [`FirstRows`].
#[derive(Debug, Default)]
pub struct FirstRowsState(BTreeMap<RowPlace, String>);

impl FirstRowsState {
    fn keep_first(&mut self, most: usize) {
        while self.0.len() > most {
            self.0.pop_last();
        }
    }

    fn is_among_first(&self, row_place: &RowPlace, most: usize) -> bool {
        if self.0.len() < most {
            return true;
        }
        let last = self.0.last_key_value();
        last.is_some_and(|(last_place, _)| row_place < last_place)
    }
}

impl Analyzer for FirstRows {
    type State = FirstRowsState;

    fn kind(&self) -> &'static str {
        "first_rows"
    }

    fn config(&self) -> Value {
        json!({ "most": self.most })
    }

    fn needs_row_keys(&self) -> bool {
        true
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<FirstRowsState> {
        Ok(FirstRowsState::default())
    }

    fn update(&self, state: &mut FirstRowsState, input: &AnalyzerInput<'_>) -> Result<()> {
        let column = single_column(input)?;
        let keys = input
            .keys
            .ok_or_else(|| Fault::internal("first rows without row keys"))?;
        if column.null_count() == column.len() {
            return Ok(());
        }
        let texts = cast(column, &DataType::Utf8)?;
        for (text, key) in texts.as_string::<i32>().iter().zip(keys) {
            let Some(text) = text else { continue };
            let Some(row_place) = self.files.row_place(*key) else {
                continue;
            };
            if !state.is_among_first(&row_place, self.most) {
                continue;
            }
            let end = text.floor_char_boundary(VALUE_BYTES_MAX);
            state.0.insert(row_place, text[..end].to_owned());
            state.keep_first(self.most);
        }
        Ok(())
    }

    fn merge(&self, state: &mut FirstRowsState, later_state: FirstRowsState) -> Result<()> {
        state.0.extend(later_state.0);
        state.keep_first(self.most);
        Ok(())
    }

    fn encode(&self, state: &mut FirstRowsState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        out.varint(state.0.len() as u64)?;
        for (row_place, value) in &state.0 {
            out.varint(row_place.file)?;
            out.varint(row_place.row)?;
            out.bytes(value.as_bytes())?;
        }
        Ok(())
    }

    fn decode(&self, input: &mut dyn Read, _: &Arc<dyn ScratchSpace>) -> Result<FirstRowsState> {
        let mut input = StateDecoder(input);
        let mut rows = BTreeMap::new();
        for _ in 0..input.length(self.most)? {
            let row_place = RowPlace {
                file: input.varint()?,
                row: input.varint()?,
            };
            let value = input.bytes(VALUE_BYTES_MAX)?;
            let value = String::from_utf8_lossy(&value).into_owned();
            rows.insert(row_place, value);
        }
        Ok(FirstRowsState(rows))
    }

    fn finish(&self, state: FirstRowsState) -> Result<Finding> {
        let row_places = state.0.keys();
        let files =
            UInt64Array::from_iter_values(row_places.clone().map(|row_place| row_place.file));
        let rows = UInt64Array::from_iter_values(row_places.map(|row_place| row_place.row));
        let values = StringArray::from_iter_values(state.0.values());
        Finding::of([
            ("file", Arc::new(files) as ArrayRef),
            ("row", Arc::new(rows) as ArrayRef),
            ("value", Arc::new(values) as ArrayRef),
        ])
    }

    fn size_bytes(&self, state: &FirstRowsState) -> usize {
        let values = state.0.values().map(|value| value.len() + 64);
        size_of::<FirstRowsState>() + values.sum::<usize>()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        size_of::<FirstRowsState>() + self.most * (VALUE_BYTES_MAX + 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_keys_lead_back_to_files_and_rows() {
        let paths = ["a.parquet", "b/c.parquet", "d.csv"];
        let files = FileRowKeys::new(paths.iter().map(|path| (RowKeys::file_seed(path), 1000)));
        for (index, path) in paths.iter().enumerate() {
            let keys = RowKeys::sequence(RowKeys::file_seed(path), 990, 12);
            let row_places: Vec<_> = keys
                .as_slice()
                .iter()
                .map(|key| files.row_place(*key))
                .collect();
            let expected = (990..1000).map(|row| {
                Some(RowPlace {
                    file: index as u64,
                    row,
                })
            });
            assert_eq!(
                row_places,
                expected.chain([None, None]).collect::<Vec<_>>(),
                "{path}"
            );
        }
        let derived = RowKeys::sequence(RowKeys::file_seed("a.parquet"), 0, 1).expand([(0, 1)]);
        assert_eq!(files.row_place(derived.as_slice()[0]), None);
    }

    #[test]
    fn positions_wrap_around() {
        let seed = u64::MAX - 1;
        let files = FileRowKeys::new([(seed, 4)]);
        let keys = RowKeys::sequence(seed, 0, 4);
        let rows: Vec<_> = keys
            .as_slice()
            .iter()
            .flat_map(|key| files.row_place(*key))
            .map(|row_place| row_place.row)
            .collect();
        assert_eq!(rows, [0, 1, 2, 3]);
    }
}
