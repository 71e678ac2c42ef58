//! The statistics of windows: their words, types and names.

use arrow::datatypes::DataType;
use forebay_model::Result;
use forebay_window::Stat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::bad_value;

/// A statistic of the values in a window. Null and NaN are no values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The mean.
    Mean,
    /// The sum.
    Sum,
    /// The standard deviation, dividing by `n - ddof`.
    Std,
    /// The variance, dividing by `n - ddof`.
    Var,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The median, interpolated between the two values in the middle.
    Median,
    /// The value at rank `q * (n - 1)`, interpolated linearly between neighbours.
    Quantile(f64),
    /// How many values there are, `int64`; never null unless `min_periods` is set.
    Count,
    /// The adjusted Fisher-Pearson skewness; at least three values.
    Skew,
    /// The bias-corrected excess kurtosis; at least four values.
    Kurtosis,
    /// The earliest value, in the column's own type.
    First,
    /// The latest value, in the column's own type.
    Last,
    /// How many different values there are, `int64`.
    NUnique,
    /// The least-squares slope per row, or per unit of time in which the length is written.
    Slope,
    /// The share of zeros.
    ZeroShare,
    /// How long ago the last value was that is not zero: in rows (`int64`), or in units of time
    /// in which the length is written.
    SinceNonzero,
}

/// The type of numbers that are computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FloatType {
    /// Doubles.
    #[default]
    Float64,
    /// Computed in doubles and rounded once.
    Float32,
}

impl FloatType {
    pub(super) fn data_type(self) -> DataType {
        match self {
            FloatType::Float64 => DataType::Float64,
            FloatType::Float32 => DataType::Float32,
        }
    }
}

impl Statistic {
    /// As the windows' plan has it; `unit` is the ticks of one unit of time, absent for rows.
    pub(super) fn of(self, ddof: u8, unit: Option<i64>) -> Result<Stat> {
        Ok(match self {
            Statistic::Mean => Stat::Mean,
            Statistic::Sum => Stat::Sum,
            Statistic::Std => Stat::Std { ddof },
            Statistic::Var => Stat::Var { ddof },
            Statistic::Min => Stat::Min,
            Statistic::Max => Stat::Max,
            Statistic::Median => Stat::Quantile(0.5),
            Statistic::Quantile(q) if (0.0..=1.0).contains(&q) => Stat::Quantile(q),
            Statistic::Quantile(q) => return Err(bad_value(format!("`quantile: {q}` is not between 0 and 1"))),
            Statistic::Count => Stat::Count,
            Statistic::Skew => Stat::Skew,
            Statistic::Kurtosis => Stat::Kurtosis,
            Statistic::First => Stat::First,
            Statistic::Last => Stat::Last,
            Statistic::NUnique => Stat::Unique,
            Statistic::Slope => Stat::Slope { unit },
            Statistic::ZeroShare => Stat::ZeroShare,
            Statistic::SinceNonzero => Stat::SinceNonzero { unit },
        })
    }

    /// Whether it measures a distance, in rows or in time.
    pub(super) fn measures(self) -> bool {
        matches!(self, Statistic::Slope | Statistic::SinceNonzero)
    }

    /// Whether it copies a value.
    pub(super) fn copies(self) -> bool {
        matches!(self, Statistic::First | Statistic::Last)
    }

    /// The type that comes out of a column of type `of`.
    pub(super) fn data_type(self, of: &DataType, float: FloatType, by_rows: bool) -> DataType {
        match self {
            Statistic::First | Statistic::Last => of.clone(),
            Statistic::Count | Statistic::NUnique => DataType::Int64,
            Statistic::SinceNonzero if by_rows => DataType::Int64,
            _ => float.data_type(),
        }
    }

    /// The word in names: `mean`, `q90`.
    pub(super) fn word(self) -> String {
        match self {
            Statistic::Quantile(q) => format!("q{}", (q * 1e10).round() / 1e8),
            other => other.snake().to_owned(),
        }
    }

    /// The word in a spec.
    pub(super) fn snake(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::Sum => "sum",
            Statistic::Std => "std",
            Statistic::Var => "var",
            Statistic::Min => "min",
            Statistic::Max => "max",
            Statistic::Median => "median",
            Statistic::Quantile(_) => "quantile",
            Statistic::Count => "count",
            Statistic::Skew => "skew",
            Statistic::Kurtosis => "kurtosis",
            Statistic::First => "first",
            Statistic::Last => "last",
            Statistic::NUnique => "n_unique",
            Statistic::Slope => "slope",
            Statistic::ZeroShare => "zero_share",
            Statistic::SinceNonzero => "since_nonzero",
        }
    }
}
