//! Numbers of a column with the weights of their rows.

use std::ops::RangeInclusive;

use arrow::array::Float64Array;
use forebay_model::{AnalyzerInput, Fault, Result, codes};

use crate::exact_sum::ExactSum;
use crate::moment_accumulator::decompose;
use crate::numeric_column::{NumericColumn, two_columns};

/// Weights besides 0. Quotients and sums of numbers in this range stay far from the ends of the doubles.
const WEIGHTS: RangeInclusive<f64> = 1e-200..=1e200;

/// True for a number that a state can hold as a weight.
pub(crate) fn is_weight(number: f64) -> bool {
    WEIGHTS.contains(&number)
}

/// A weight as an exact sum.
pub(crate) fn exact_weight(weight: f64) -> ExactSum {
    let (mantissa, bit) = decompose(weight);
    let mut sum = ExactSum::default();
    sum.add_signed(bit, i128::from(mantissa));
    sum
}

/// The two columns of an analyzer of weighted numbers: the numbers, then the weights.
pub(crate) struct WeightedColumn {
    values: Float64Array,
    weights: Float64Array,
}

impl WeightedColumn {
    pub(crate) fn of(input: &AnalyzerInput<'_>) -> Result<Self> {
        let [values, weights] = two_columns(input)?;
        Ok(WeightedColumn {
            values: NumericColumn::doubles(values)?,
            weights: NumericColumn::doubles(weights)?,
        })
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Passes each row that counts to `take`: the row, its number and its weight. Rows where one of the two is null or
    /// NaN do not count, and neither do weights of 0. A negative, infinite or extreme weight is a fault that names `column`.
    pub(crate) fn for_each(
        &self,
        column: &str,
        mut take: impl FnMut(usize, f64, f64) -> Result<()>,
    ) -> Result<()> {
        for (row, (value, weight)) in self.values.iter().zip(&self.weights).enumerate() {
            let Some((value, weight)) = value.zip(weight) else {
                continue;
            };
            if value.is_nan() || weight.is_nan() || weight == 0.0 {
                continue;
            }
            if !is_weight(weight) {
                return Err(weight_fault(weight).column(column).input_rows([row as u64]));
            }
            take(row, value, weight)?;
        }
        Ok(())
    }
}

/// The fault for a number that is no weight.
pub(crate) fn weight_fault(weight: f64) -> Fault {
    let message = format!(
        "the weight {weight:?} is neither 0 nor between {:?} and {:?}",
        WEIGHTS.start(),
        WEIGHTS.end()
    );
    Fault::new(codes::BAD_ROW, message)
        .hint("`filter` such rows before this step, or `clip` the weights")
}
