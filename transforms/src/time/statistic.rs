//! The statistics of windows: their words, types and names.

use arrow::datatypes::DataType;
use forebay_model::Result;
use forebay_window::WindowStat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::bad_value;

/// A statistic of the values in a window. Null and NaN are no values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeriesStatistic {
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
    pub(crate) fn data_type(self) -> DataType {
        match self {
            FloatType::Float64 => DataType::Float64,
            FloatType::Float32 => DataType::Float32,
        }
    }
}

impl SeriesStatistic {
    /// As the windows' plan has it; `unit` is the ticks of one unit of time, absent for rows.
    pub(super) fn of(self, ddof: u8, unit: Option<i64>) -> Result<WindowStat> {
        Ok(match self {
            SeriesStatistic::Mean => WindowStat::Mean,
            SeriesStatistic::Sum => WindowStat::Sum,
            SeriesStatistic::Std => WindowStat::Std { ddof },
            SeriesStatistic::Var => WindowStat::Var { ddof },
            SeriesStatistic::Min => WindowStat::Min,
            SeriesStatistic::Max => WindowStat::Max,
            SeriesStatistic::Median => WindowStat::Quantile(0.5),
            SeriesStatistic::Quantile(q) if (0.0..=1.0).contains(&q) => WindowStat::Quantile(q),
            SeriesStatistic::Quantile(q) => {
                return Err(bad_value(format!("`quantile: {q}` is not between 0 and 1")));
            }
            SeriesStatistic::Count => WindowStat::Count,
            SeriesStatistic::Skew => WindowStat::Skew,
            SeriesStatistic::Kurtosis => WindowStat::Kurtosis,
            SeriesStatistic::First => WindowStat::First,
            SeriesStatistic::Last => WindowStat::Last,
            SeriesStatistic::NUnique => WindowStat::Unique,
            SeriesStatistic::Slope => WindowStat::Slope { unit },
            SeriesStatistic::ZeroShare => WindowStat::ZeroShare,
            SeriesStatistic::SinceNonzero => WindowStat::SinceNonzero { unit },
        })
    }

    /// True for a distance, in rows or in time.
    pub(super) fn measures(self) -> bool {
        matches!(self, SeriesStatistic::Slope | SeriesStatistic::SinceNonzero)
    }

    /// True for a copy of a value.
    pub(super) fn copies(self) -> bool {
        matches!(self, SeriesStatistic::First | SeriesStatistic::Last)
    }

    /// True if it needs no numbers.
    pub(super) fn takes_any_type(self) -> bool {
        matches!(
            self,
            SeriesStatistic::First
                | SeriesStatistic::Last
                | SeriesStatistic::Count
                | SeriesStatistic::NUnique
        )
    }

    /// The type that comes out of a column of type `of`.
    pub(super) fn data_type(self, of: &DataType, float: FloatType, by_rows: bool) -> DataType {
        match self {
            SeriesStatistic::First | SeriesStatistic::Last => of.clone(),
            SeriesStatistic::Count | SeriesStatistic::NUnique => DataType::Int64,
            SeriesStatistic::SinceNonzero if by_rows => DataType::Int64,
            _ => float.data_type(),
        }
    }

    /// The word in names: `mean`, `q90`.
    pub(super) fn word(self) -> String {
        match self {
            SeriesStatistic::Quantile(q) => format!("q{}", (q * 1e10).round() / 1e8),
            other => other.snake().to_owned(),
        }
    }

    /// The word in a spec.
    pub(super) fn snake(self) -> &'static str {
        match self {
            SeriesStatistic::Mean => "mean",
            SeriesStatistic::Sum => "sum",
            SeriesStatistic::Std => "std",
            SeriesStatistic::Var => "var",
            SeriesStatistic::Min => "min",
            SeriesStatistic::Max => "max",
            SeriesStatistic::Median => "median",
            SeriesStatistic::Quantile(_) => "quantile",
            SeriesStatistic::Count => "count",
            SeriesStatistic::Skew => "skew",
            SeriesStatistic::Kurtosis => "kurtosis",
            SeriesStatistic::First => "first",
            SeriesStatistic::Last => "last",
            SeriesStatistic::NUnique => "n_unique",
            SeriesStatistic::Slope => "slope",
            SeriesStatistic::ZeroShare => "zero_share",
            SeriesStatistic::SinceNonzero => "since_nonzero",
        }
    }
}
