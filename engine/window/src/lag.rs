//! Lags, and functions of the row's value and one earlier value.

use arrow::datatypes::DataType;

use crate::WordEncoding;
use crate::batch::{BoundPair, WindowBatch};
use crate::special_words::{NO_BITS, NO_NUMBER, UNDEFINED_DIFFERENCE, defined};

/// Output of a lag function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LagOutput {
    /// The earlier value.
    Copy,
    /// The row's value minus the earlier value.
    Difference,
    /// The row's value divided by the earlier value, minus one.
    Change,
}

/// One output, computed from the last entry between two bounds.
#[derive(Debug, Clone)]
pub(crate) struct LagFunction {
    pub function: usize,
    pub input: usize,
    pub keep: WordEncoding,
    /// True if bits encode unsigned numbers.
    pub unsigned: bool,
    pub span: BoundPair,
    pub made: LagOutput,
}

impl LagFunction {
    pub fn run(&self, batch: &WindowBatch<'_>, outputs: &mut [Vec<u64>]) {
        let output = &mut outputs[self.function];
        match (self.made, self.keep) {
            (LagOutput::Copy, keep) => {
                self.each(batch, output, keep.missing(), |_, earlier| earlier)
            }
            (LagOutput::Difference, WordEncoding::Number) => {
                self.each(batch, output, NO_NUMBER, |current, earlier| {
                    of_numbers(current, earlier, |current, earlier| current - earlier)
                })
            }
            (LagOutput::Difference, WordEncoding::Bits | WordEncoding::Values) => {
                self.each(batch, output, NO_BITS, |current, earlier| {
                    if current == NO_BITS || earlier == NO_BITS {
                        return NO_BITS;
                    }
                    let difference = if self.unsigned {
                        i64::try_from(i128::from(current) - i128::from(earlier)).ok()
                    } else {
                        (current as i64).checked_sub(earlier as i64)
                    };
                    difference_word(difference)
                })
            }
            (LagOutput::Change, _) => self.each(batch, output, NO_NUMBER, |current, earlier| {
                of_numbers(current, earlier, |current, earlier| current / earlier - 1.0)
            }),
        }
    }

    #[inline(always)]
    fn each(
        &self,
        batch: &WindowBatch<'_>,
        output: &mut Vec<u64>,
        missing: u64,
        output_of: impl Fn(u64, u64) -> u64,
    ) {
        let input = &batch.inputs[self.input];
        output.extend(
            batch
                .spans(self.span)
                .enumerate()
                .map(|(row, (start, end))| {
                    if start > end {
                        output_of(input.own(row), input.word(row, end))
                    } else {
                        missing
                    }
                }),
        );
    }
}

/// The word of a difference of integers; `None` if 64 bits do not hold it.
#[inline(always)]
fn difference_word(difference: Option<i64>) -> u64 {
    match difference {
        // The two least integers stand for missing and for undefined values.
        Some(difference) if difference > UNDEFINED_DIFFERENCE as i64 => difference as u64,
        _ => UNDEFINED_DIFFERENCE,
    }
}

/// The word of a function of two numbers; missing if one of them is.
#[inline(always)]
fn of_numbers(current: u64, earlier: u64, function: impl Fn(f64, f64) -> f64) -> u64 {
    let current = f64::from_bits(current);
    let earlier = f64::from_bits(earlier);
    if current.is_nan() || earlier.is_nan() {
        NO_NUMBER
    } else {
        defined(function(current, earlier)).to_bits()
    }
}

/// True if the type's values are unsigned 64-bit numbers.
pub(crate) fn is_unsigned(data_type: &DataType) -> bool {
    *data_type == DataType::UInt64
}
