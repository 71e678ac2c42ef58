//! Zeros and signs of numbers, lengths of texts and lists.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::DataType;
use forebay_model::{
    Analyzer, AnalyzerInput, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    StringColumn, logical_type,
};
use serde_json::{Value, json};

use crate::dictionary_counts::DictionaryCounts;
use crate::numeric_column::{NumericColumn, single_column, valid_slices};

/// Counts zeros and negative numbers of a numeric column, or measures the lengths of a column of texts (in Unicode
/// characters) or lists (in elements).
///
/// Nulls are ignored; NaN is neither zero nor negative; -0.0 is zero. Columns of other types count nothing. The finding
/// has one row: `zeros`, `negatives`, `lengths` (how many texts or lists), `length_min`, `length_max`, `length_sum`
/// (UInt64; the least and the greatest are null where there is no length).
#[derive(Debug, Clone, Copy, Default)]
pub struct ValueShape;

/// State of [`ValueShape`].
#[derive(Debug, Default)]
pub struct ValueShapeState {
    counts: ShapeCounts,
    dictionary: DictionaryCounts,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct ShapeCounts {
    zeros: u64,
    negatives: u64,
    lengths: u64,
    length_min: u64,
    length_max: u64,
    length_sum: u64,
}

impl Default for ShapeCounts {
    fn default() -> Self {
        ShapeCounts {
            zeros: 0,
            negatives: 0,
            lengths: 0,
            length_min: u64::MAX,
            length_max: 0,
            length_sum: 0,
        }
    }
}

impl ShapeCounts {
    fn add_length(&mut self, length: u64, times: u64) {
        self.lengths += times;
        self.length_sum += length * times;
        self.length_min = self.length_min.min(length);
        self.length_max = self.length_max.max(length);
    }

    fn add_text(&mut self, text: Option<&str>, times: u64) {
        if let Some(text) = text {
            self.add_length(text.chars().count() as u64, times);
        }
    }

    fn add_numbers<T: Copy + PartialOrd + Default>(&mut self, values: &[T]) {
        let zero = T::default();
        self.zeros += values.iter().filter(|value| **value == zero).count() as u64;
        self.negatives += values.iter().filter(|value| **value < zero).count() as u64;
    }

    /// Adds lengths of lists; those of null lists are `None`.
    fn add_lengths(&mut self, lengths: impl Iterator<Item = Option<usize>>) {
        for length in lengths.flatten() {
            self.add_length(length as u64, 1);
        }
    }

    fn merge(&mut self, other: &ShapeCounts) {
        self.zeros += other.zeros;
        self.negatives += other.negatives;
        self.lengths += other.lengths;
        self.length_sum += other.length_sum;
        self.length_min = self.length_min.min(other.length_min);
        self.length_max = self.length_max.max(other.length_max);
    }
}

impl ValueShapeState {
    fn flush(&mut self) -> Result<()> {
        let ValueShapeState { counts, dictionary } = self;
        dictionary.flush(|text, times| {
            counts.add_text(text, times);
            Ok(())
        })
    }
}

impl Analyzer for ValueShape {
    type State = ValueShapeState;

    fn kind(&self) -> &'static str {
        "shape"
    }

    fn config(&self) -> Value {
        json!({})
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<ValueShapeState> {
        Ok(ValueShapeState::default())
    }

    fn update(&self, state: &mut ValueShapeState, input: &AnalyzerInput<'_>) -> Result<()> {
        let column = single_column(input)?;
        let ValueShapeState { counts, dictionary } = state;
        match logical_type(column.data_type()) {
            DataType::Utf8 => dictionary.push(&StringColumn::of(column)?, |text, times| {
                counts.add_text(text, times);
                Ok(())
            })?,
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                let length = |row| list.is_valid(row).then(|| list.value_length(row) as usize);
                counts.add_lengths((0..list.len()).map(length));
            }
            DataType::LargeList(_) => {
                let list = column.as_list::<i64>();
                let length = |row| list.is_valid(row).then(|| list.value_length(row) as usize);
                counts.add_lengths((0..list.len()).map(length));
            }
            // All lists have one length: they are counted at once.
            DataType::FixedSizeList(_, size) => {
                let lists = column.len() - column.null_count();
                if lists > 0 {
                    counts.add_length(size as u64, lists as u64);
                }
            }
            // Decimals become doubles, which keep zeros and signs.
            other if other.is_numeric() => match NumericColumn::of(column)? {
                NumericColumn::Float64(array) => {
                    valid_slices(&array, |values| counts.add_numbers(values))
                }
                NumericColumn::Float32(array) => {
                    valid_slices(&array, |values| counts.add_numbers(values))
                }
                NumericColumn::Int64(array) => {
                    valid_slices(&array, |values| counts.add_numbers(values))
                }
                NumericColumn::UInt64(array) => {
                    valid_slices(&array, |values| counts.add_numbers(values))
                }
            },
            _ => {}
        }
        Ok(())
    }

    fn merge(&self, state: &mut ValueShapeState, mut later_state: ValueShapeState) -> Result<()> {
        later_state.flush()?;
        state.flush()?;
        state.counts.merge(&later_state.counts);
        Ok(())
    }

    fn encode(&self, state: &mut ValueShapeState, out: &mut dyn Write) -> Result<()> {
        state.flush()?;
        let mut out = StateEncoder(out);
        let counts = state.counts;
        out.varint(counts.zeros)?;
        out.varint(counts.negatives)?;
        out.varint(counts.lengths)?;
        out.varint(counts.length_min)?;
        out.varint(counts.length_max)?;
        out.varint(counts.length_sum)
    }

    fn decode(&self, input: &mut dyn Read, _: &Arc<dyn ScratchSpace>) -> Result<ValueShapeState> {
        let mut input = StateDecoder(input);
        let counts = ShapeCounts {
            zeros: input.count()?,
            negatives: input.count()?,
            lengths: input.count()?,
            length_min: input.varint()?,
            length_max: input.varint()?,
            length_sum: input.count()?,
        };
        Ok(ValueShapeState {
            counts,
            dictionary: DictionaryCounts::default(),
        })
    }

    fn finish(&self, mut state: ValueShapeState) -> Result<Finding> {
        state.flush()?;
        let counts = state.counts;
        let mut length_min = None;
        let mut length_max = None;
        if counts.lengths > 0 {
            length_min = Some(counts.length_min);
            length_max = Some(counts.length_max);
        }
        let column = |value: Option<u64>| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        Finding::of([
            ("zeros", column(Some(counts.zeros))),
            ("negatives", column(Some(counts.negatives))),
            ("lengths", column(Some(counts.lengths))),
            ("length_min", column(length_min)),
            ("length_max", column(length_max)),
            ("length_sum", column(Some(counts.length_sum))),
        ])
    }

    fn size_bytes(&self, state: &ValueShapeState) -> usize {
        size_of::<ValueShapeState>() + state.dictionary.size_bytes()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        // The dictionary of a batch.
        size_of::<ValueShapeState>() + (1 << 20)
    }
}
