//! The accumulator of a function, by the function and the type of its column.

use arrow::datatypes::DataType;
use forebay_model::{GroupFunction, GroupResult, Result, has_decimal_sums};

use super::accumulator::{Accumulator, foreign_function};
use super::counts::Counts;
use super::decimal_sums::DecimalSums;
use super::distinct_sketches::DistinctSketches;
use super::extremes::{ByteExtremes, Extremes};
use super::float_sums::FloatSums;
use super::integer_sums::IntegerSums;
use super::lists::Lists;
use super::ordered_bits::has_ordered_bits;
use super::placed::{PlacedRows, PlacedValues};
use super::weight_sums::WeightSums;
use super::weighted_sums::WeightedSums;

/// A kind of accumulator; functions of one column that need the same kind share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccumulatorKind {
    Counts,
    Integers {
        rounded: bool,
    },
    Floats {
        has_squares: bool,
    },
    Weighted,
    Decimals,
    Extremes {
        greatest: bool,
    },
    ByteExtremes {
        greatest: bool,
    },
    PlacedValues {
        last: bool,
        by_time: bool,
    },
    Lists {
        limit: u32,
    },
    PlacedRows {
        last: bool,
    },
    DistinctSketches,
    WeightSums,
    /// The distinct values, kept elsewhere.
    Distinct,
}

impl AccumulatorKind {
    pub(super) fn of(result: &GroupResult, values: &[DataType]) -> Self {
        let data_type = values.get(result.value).unwrap_or(&DataType::Null);
        match result.function {
            GroupFunction::CountRows | GroupFunction::Count => AccumulatorKind::Counts,
            GroupFunction::Sum if data_type.is_integer() => {
                AccumulatorKind::Integers { rounded: false }
            }
            // Integers above 2^53 enter a mean as doubles.
            GroupFunction::Mean if data_type.is_integer() => {
                let rounded = matches!(data_type, DataType::Int64 | DataType::UInt64);
                AccumulatorKind::Integers { rounded }
            }
            GroupFunction::Sum | GroupFunction::Mean if has_decimal_sums(data_type) => {
                AccumulatorKind::Decimals
            }
            GroupFunction::Sum | GroupFunction::Mean => {
                AccumulatorKind::Floats { has_squares: false }
            }
            GroupFunction::Var { .. } | GroupFunction::Std { .. } => {
                AccumulatorKind::Floats { has_squares: true }
            }
            GroupFunction::Min => AccumulatorKind::extremes(data_type, false),
            GroupFunction::Max => AccumulatorKind::extremes(data_type, true),
            GroupFunction::WeightedMean { .. } => AccumulatorKind::Weighted,
            GroupFunction::First => AccumulatorKind::placed_values(false, false),
            GroupFunction::Last => AccumulatorKind::placed_values(true, false),
            GroupFunction::FirstBy { .. } => AccumulatorKind::placed_values(false, true),
            GroupFunction::LastBy { .. } => AccumulatorKind::placed_values(true, true),
            GroupFunction::List { limit, .. } => AccumulatorKind::Lists { limit },
            GroupFunction::FirstRow => AccumulatorKind::PlacedRows { last: false },
            GroupFunction::LastRow => AccumulatorKind::PlacedRows { last: true },
            GroupFunction::ApproxNUnique => AccumulatorKind::DistinctSketches,
            GroupFunction::WeightSum => AccumulatorKind::WeightSums,
            GroupFunction::NUnique
            | GroupFunction::Quantile { .. }
            | GroupFunction::WeightedQuantile { .. }
            | GroupFunction::TopK { .. } => AccumulatorKind::Distinct,
        }
    }

    /// Values that are ordered as their bits are have a narrower state than others.
    fn extremes(data_type: &DataType, greatest: bool) -> Self {
        if has_ordered_bits(data_type) {
            AccumulatorKind::Extremes { greatest }
        } else {
            AccumulatorKind::ByteExtremes { greatest }
        }
    }

    fn placed_values(last: bool, by_time: bool) -> Self {
        AccumulatorKind::PlacedValues { last, by_time }
    }

    /// True if the accumulator counts the values of its column, too.
    pub(super) fn counts_values(self) -> bool {
        matches!(
            self,
            AccumulatorKind::Integers { .. }
                | AccumulatorKind::Decimals
                | AccumulatorKind::Floats { .. }
        )
    }

    pub(super) fn build(self, data_type: &DataType) -> Result<Box<dyn Accumulator>> {
        Ok(match self {
            AccumulatorKind::Counts => Box::new(Counts::default()),
            AccumulatorKind::Integers { rounded } => Box::new(IntegerSums::new(rounded)),
            AccumulatorKind::Decimals => Box::new(DecimalSums::new(data_type)),
            AccumulatorKind::Floats { has_squares } => Box::new(FloatSums::new(has_squares)),
            AccumulatorKind::Extremes { greatest } => Box::new(Extremes::new(data_type, greatest)),
            AccumulatorKind::ByteExtremes { greatest } => {
                Box::new(ByteExtremes::new(data_type, greatest)?)
            }
            AccumulatorKind::Weighted => Box::new(WeightedSums::default()),
            AccumulatorKind::WeightSums => Box::new(WeightSums::default()),
            AccumulatorKind::PlacedValues { last, by_time } => {
                Box::new(PlacedValues::new(data_type, last, by_time)?)
            }
            AccumulatorKind::Lists { limit } => Box::new(Lists::new(data_type, limit)?),
            AccumulatorKind::PlacedRows { last } => Box::new(PlacedRows::new(last)),
            AccumulatorKind::DistinctSketches => Box::new(DistinctSketches::new(data_type)?),
            AccumulatorKind::Distinct => return Err(foreign_function()),
        })
    }
}
