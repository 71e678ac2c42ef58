//! One row per key: which rows share a key, and what is computed of them.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Date32Type, Int64Type,
};

use crate::{CalendarSpan, ColumnClock, Fault, Result, codes, type_words};

/// A computation per key. Its input columns are the keys, followed by the value columns.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupBy {
    /// The key columns. Without any, all rows are one group, which exists without rows, too.
    pub keys: Vec<GroupKey>,
    /// Logical types of the value columns.
    pub values: Vec<DataType>,
    /// Names of the value columns, for faults. They may be left out.
    pub value_names: Vec<String>,
    /// The computed results, in the order of the result's columns.
    pub results: Vec<GroupResult>,
}

/// A key column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupKey {
    /// The logical type.
    pub data_type: DataType,
    /// Buckets that replace the values.
    pub bucket: Option<TimeBucket>,
}

/// Buckets of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBucket {
    /// Buckets of equal length, in ticks of their column.
    Even {
        /// The length of one, above 0.
        length: i128,
        /// The start of one of them.
        origin: i128,
    },
    /// Buckets of months or days of the column's calendar.
    Calendar {
        /// The length of one.
        span: CalendarSpan,
        /// A day on which buckets of days begin, in days since 1970-01-01.
        first_day: i64,
    },
}

/// A result per key.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupResult {
    /// The computation.
    pub function: GroupFunction,
    /// Place of the value column; of no meaning for functions of rows.
    pub value: usize,
}

/// A computation over the rows of a key. Null and NaN are no values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GroupFunction {
    /// The number of rows.
    CountRows,
    /// The position of the first row.
    FirstRow,
    /// The position of the last row.
    LastRow,
    /// The number of values.
    Count,
    /// The sum: of integers as `Int64`, of decimals as decimals of 38 digits, of others as `Float64`, exact and rounded
    /// once.
    Sum,
    /// The mean, exact and rounded once.
    Mean,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The variance; divides by `n - ddof`.
    Var {
        /// Degrees of freedom that are taken off.
        ddof: u32,
    },
    /// The standard deviation; divides by `n - ddof`.
    Std {
        /// Degrees of freedom that are taken off.
        ddof: u32,
    },
    /// The value of the row with the least position.
    First,
    /// The value of the row with the greatest position.
    Last,
    /// The number of distinct values.
    NUnique,
    /// The number of distinct values, estimated from a sketch of fixed size.
    ApproxNUnique,
    /// The value below which a share of the values lies, exactly: interpolated between the two nearest values.
    Quantile {
        /// The share, in [0, 1].
        q: f64,
    },
    /// The sum of values times weights divided by the sum of the weights, exact and rounded once; null if the weights
    /// sum to 0.
    WeightedMean {
        /// Place of the column of weights among the value columns.
        weight: usize,
    },
    /// The first value with which at least a share of the sum of the weights is passed, exactly: `inverted_cdf` of numpy.
    /// Null if no row has a weight other than 0.
    WeightedQuantile {
        /// The share, in [0, 1].
        q: f64,
        /// Place of the column of weights among the value columns.
        weight: usize,
    },
    /// The exact sum of weights, in the bytes of a state: a part of a weighted quantile.
    WeightSum,
    /// The value at the least time; of rows of one time, that of the first row.
    FirstBy {
        /// Place of the column of times among the value columns.
        time: usize,
    },
    /// The value at the greatest time; of rows of one time, that of the last row.
    LastBy {
        /// Place of the column of times among the value columns.
        time: usize,
    },
    /// The most frequent values as a list: by count descending, then by value.
    TopK {
        /// Their number at most.
        k: u32,
    },
    /// The values as a list, in the order of rows.
    List {
        /// The number of values at most.
        limit: u32,
        /// True if values beyond the limit are left out. Otherwise they are a fault.
        truncate: bool,
    },
}

impl GroupBy {
    /// True if a result depends on the order of rows.
    pub fn is_of_row_order(&self) -> bool {
        self.results
            .iter()
            .any(|result| result.function.is_of_row_order())
    }
}

impl GroupFunction {
    /// True if the function is of rows rather than of a column.
    pub fn is_of_rows(self) -> bool {
        matches!(
            self,
            GroupFunction::CountRows | GroupFunction::FirstRow | GroupFunction::LastRow
        )
    }

    /// True if the result is a number of rows or values, which no group lacks.
    pub fn is_count(self) -> bool {
        use GroupFunction::{ApproxNUnique, Count, CountRows, NUnique};
        matches!(self, CountRows | Count | NUnique | ApproxNUnique)
    }

    /// The place of the second column that the function reads.
    pub fn other_column(self) -> Option<usize> {
        match self {
            GroupFunction::WeightedMean { weight: place }
            | GroupFunction::WeightedQuantile { weight: place, .. }
            | GroupFunction::FirstBy { time: place }
            | GroupFunction::LastBy { time: place } => Some(place),
            _ => None,
        }
    }

    /// True if the result depends on the order of rows.
    fn is_of_row_order(self) -> bool {
        use GroupFunction::{First, FirstBy, FirstRow, Last, LastBy, LastRow, List};
        matches!(
            self,
            First | FirstBy { .. } | FirstRow | Last | LastBy { .. } | LastRow | List { .. }
        )
    }

    /// The type of the result for values of a logical type.
    pub fn result_type(self, value: &DataType) -> DataType {
        match self {
            GroupFunction::FirstRow | GroupFunction::LastRow => DataType::UInt64,
            GroupFunction::CountRows | GroupFunction::Count => DataType::Int64,
            GroupFunction::NUnique | GroupFunction::ApproxNUnique => DataType::Int64,
            GroupFunction::Sum if value.is_integer() => DataType::Int64,
            GroupFunction::Sum => match decimal_scale(value) {
                Some(scale) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale),
                None => DataType::Float64,
            },
            GroupFunction::Mean => match decimal_scale(value) {
                Some(scale) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, mean_scale(scale)),
                None => DataType::Float64,
            },
            GroupFunction::Var { .. }
            | GroupFunction::Std { .. }
            | GroupFunction::Quantile { .. } => DataType::Float64,
            GroupFunction::WeightedMean { .. } | GroupFunction::WeightedQuantile { .. } => {
                DataType::Float64
            }
            GroupFunction::WeightSum => DataType::Binary,
            GroupFunction::Min
            | GroupFunction::Max
            | GroupFunction::First
            | GroupFunction::Last => value.clone(),
            GroupFunction::FirstBy { .. } | GroupFunction::LastBy { .. } => value.clone(),
            GroupFunction::TopK { .. } | GroupFunction::List { .. } => {
                DataType::new_list(value.clone(), true)
            }
        }
    }
}

impl TimeBucket {
    /// The start of the bucket of each time, in the column's own type and unit: no other unit holds all times that a
    /// column can.
    pub fn starts(self, times: &ArrayRef) -> Result<ArrayRef> {
        let clock = match self {
            TimeBucket::Even { .. } => None,
            TimeBucket::Calendar { .. } => ColumnClock::of(times.data_type())?,
        };
        let start = |time: i64| {
            let start = self.start(time, clock.as_ref());
            start.ok_or_else(|| far_bucket_fault(time, times.data_type()))
        };
        if let Some(days) = times.as_primitive_opt::<Date32Type>() {
            let start_day = |day: i32| {
                let start_day = start(i64::from(day))?;
                i32::try_from(start_day)
                    .map_err(|_| far_bucket_fault(i64::from(day), times.data_type()))
            };
            return Ok(std::sync::Arc::new(
                days.try_unary::<_, Date32Type, Fault>(start_day)?,
            ));
        }
        let ticks = cast(times, &DataType::Int64)?;
        let starts = ticks
            .as_primitive::<Int64Type>()
            .try_unary::<_, Int64Type, Fault>(start)?;
        Ok(cast(&starts, times.data_type())?)
    }

    /// The start of the bucket of a time; `None` where 64 bits do not hold it.
    fn start(self, time: i64, clock: Option<&ColumnClock>) -> Option<i64> {
        match self {
            TimeBucket::Even { length, origin } => even_start(time, length, origin),
            TimeBucket::Calendar { span, first_day } => {
                clock.and_then(|clock| clock.bucket_start(time, span, first_day))
            }
        }
    }

    /// The most ticks that a bucket lasts, in a column with this many nanoseconds per tick.
    pub fn most_ticks(self, tick: i128) -> i128 {
        match self {
            TimeBucket::Even { length, .. } => length,
            TimeBucket::Calendar { span, .. } => i128::from(span.tick_bounds(tick).1),
        }
    }
}

/// A fault for a time whose bucket does not begin within the times of its column's type.
fn far_bucket_fault(time: i64, data_type: &DataType) -> Fault {
    let message = format!(
        "the bucket of the time {time} lies beyond the times that {} holds",
        type_words(data_type)
    );
    Fault::new(codes::OVERFLOW, message).hint("filter such rows before")
}

/// The start of the bucket of a time.
fn even_start(time: i64, length: i128, origin: i128) -> Option<i64> {
    // 64 bits are enough for all but extreme times and lengths.
    let narrow = i64::try_from(length).ok().zip(i64::try_from(origin).ok());
    let behind =
        narrow.and_then(|(length, origin)| Some(time.checked_sub(origin)?.rem_euclid(length)));
    match behind {
        Some(behind) => time.checked_sub(behind),
        None => {
            let time = i128::from(time);
            i64::try_from(time - (time - origin).rem_euclid(length)).ok()
        }
    }
}

/// Digits behind the point that the mean of decimals has besides those of its values.
const MEAN_DIGITS: i8 = 4;

fn mean_scale(scale: i8) -> i8 {
    scale
        .saturating_add(MEAN_DIGITS)
        .min(DECIMAL128_MAX_SCALE)
        .max(scale)
}

fn decimal_scale(value: &DataType) -> Option<i8> {
    match value {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    }
}

/// True if sums and means of these values are decimals.
pub fn has_decimal_sums(values: &DataType) -> bool {
    decimal_scale(values).is_some()
}
