//! Examples of columns whose values are no single words or numbers.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{
    Analyzer, AnalyzerInput, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    logical_type,
};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::numeric_column::single_column;
use crate::value_examples::{CUT, ValueExamples};

/// Elements of a list that its short form has.
const ELEMENTS_MAX: usize = 5;

/// Bytes of an element in the short form of a list; longer ones are cut.
const ELEMENT_BYTES_MAX: usize = 32;

/// Bytes of a binary value that its short form has.
const BYTES_MAX: usize = 16;

/// Five short forms of a column of lists or of bytes: those with the least hashes.
///
/// The short form of a list has its first elements, as in `[1.5, null, 2.0, 0.0, 1.0, ...]`; that of bytes has the first
/// of them in hexadecimal, as in `00ff1a...`. Values with the same short form are one example. Nulls, and columns of other
/// types, have none. The finding has one row: `examples` (Utf8), a JSON array.
#[derive(Debug, Clone, Copy, Default)]
pub struct ColumnExamples;

/// State of [`ColumnExamples`].
#[derive(Debug, Default)]
pub struct ColumnExamplesState {
    values: ValueExamples,
}

impl ColumnExamplesState {
    fn add(&mut self, text: &str) {
        self.values
            .add(xxh3_64(text.as_bytes()), || text.to_owned());
    }

    fn add_lists(
        &mut self,
        column: &ArrayRef,
        elements: &ArrayRef,
        range: impl Fn(usize) -> [usize; 2],
    ) -> Result<()> {
        let options = FormatOptions::default().with_null("null");
        let formatter = ArrayFormatter::try_new(elements.as_ref(), &options)?;
        let mut text = String::new();
        let mut element = String::new();
        for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
            let [from, to] = range(row);
            text.clear();
            text.push('[');
            for index in from..to.min(from + ELEMENTS_MAX) {
                // Buffers are kept from element to element: only examples are allocated.
                element.clear();
                formatter.value(index).write(&mut element)?;
                if index > from {
                    text.push_str(", ");
                }
                let end = element.floor_char_boundary(ELEMENT_BYTES_MAX);
                text.push_str(&element[..end]);
                if element.len() > ELEMENT_BYTES_MAX {
                    text.push_str(CUT);
                }
            }
            if to - from > ELEMENTS_MAX {
                text.push_str(", ...");
            }
            text.push(']');
            self.add(&text);
        }
        Ok(())
    }

    fn add_bytes(&mut self, column: &BinaryArray) {
        let mut text = String::new();
        for value in column.iter().flatten() {
            text.clear();
            for byte in value.iter().take(BYTES_MAX) {
                // Writing to a text cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
            if value.len() > BYTES_MAX {
                text.push_str(CUT);
            }
            self.add(&text);
        }
    }
}

impl Analyzer for ColumnExamples {
    type State = ColumnExamplesState;

    fn kind(&self) -> &'static str {
        "examples"
    }

    fn config(&self) -> Value {
        json!({})
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<ColumnExamplesState> {
        Ok(ColumnExamplesState::default())
    }

    fn update(&self, state: &mut ColumnExamplesState, input: &AnalyzerInput<'_>) -> Result<()> {
        let column = single_column(input)?;
        // Lists of all layouts become ranges of their elements. Other types have examples elsewhere.
        match logical_type(column.data_type()) {
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                let offsets = list.value_offsets();
                state.add_lists(column, list.values(), |row| {
                    [row, row + 1].map(|row| offsets[row] as usize)
                })
            }
            DataType::LargeList(_) => {
                let list = column.as_list::<i64>();
                let offsets = list.value_offsets();
                state.add_lists(column, list.values(), |row| {
                    [row, row + 1].map(|row| offsets[row] as usize)
                })
            }
            DataType::FixedSizeList(_, size) => {
                let list = column.as_fixed_size_list();
                state.add_lists(column, list.values(), |row| {
                    [row, row + 1].map(|row| row * size as usize)
                })
            }
            DataType::Binary | DataType::FixedSizeBinary(_) => {
                let bytes = cast(column, &DataType::Binary)?;
                state.add_bytes(bytes.as_binary());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn merge(
        &self,
        state: &mut ColumnExamplesState,
        later_state: ColumnExamplesState,
    ) -> Result<()> {
        state.values.merge(later_state.values);
        Ok(())
    }

    fn encode(&self, state: &mut ColumnExamplesState, out: &mut dyn Write) -> Result<()> {
        state.values.encode(&mut StateEncoder(out))
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        _: &Arc<dyn ScratchSpace>,
    ) -> Result<ColumnExamplesState> {
        Ok(ColumnExamplesState {
            values: ValueExamples::decode(&mut StateDecoder(input))?,
        })
    }

    fn finish(&self, state: ColumnExamplesState) -> Result<Finding> {
        let texts: Vec<_> = state.values.texts().collect();
        let examples = json!(texts).to_string();
        let examples: ArrayRef = Arc::new(StringArray::from(vec![examples]));
        Finding::of([("examples", examples)])
    }

    fn size_bytes(&self, state: &ColumnExamplesState) -> usize {
        size_of::<ColumnExamplesState>() + state.values.size_bytes()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        size_of::<ColumnExamplesState>() + ValueExamples::SIZE_MAX
    }
}
