//! Expressions that [`aggregate`](crate::aggregate) computes of a column: `agg::sum("qty")`.

use super::aggregate::{
    AggregateByTime, AggregateExpression, AggregateList, AggregateQuantile, AggregateTopK,
    AggregateWeightedMean, AggregateWeightedQuantile, ListOverflow,
};

macro_rules! functions {
    ($($(#[$docs:meta])* $name:ident => $variant:ident;)*) => {
        $(
            $(#[$docs])*
            pub fn $name(column: impl Into<String>) -> AggregateExpression {
                AggregateExpression::$variant(column.into())
            }
        )*
    };
}

functions! {
    /// The sum of numbers.
    sum => Sum;
    /// The mean of numbers.
    mean => Mean;
    /// The number of values that are neither null nor NaN; of rows for `*`.
    count => Count;
    /// The least value.
    min => Min;
    /// The greatest value.
    max => Max;
    /// The standard deviation of numbers.
    std => Std;
    /// The variance of numbers.
    var => Var;
    /// The first value that is neither null nor NaN.
    first => First;
    /// The last value that is neither null nor NaN.
    last => Last;
    /// The number of distinct values.
    n_unique => NUnique;
    /// The number of distinct values, estimated: exact up to about 1,000 values, then with a standard error of 1.63 %.
    approx_n_unique => ApproxNUnique;
    /// The median of numbers.
    median => Median;
}

/// A quantile of numbers; `q` is the share of values below it, from 0 to 1.
pub fn quantile(column: impl Into<String>, q: f64) -> AggregateExpression {
    AggregateExpression::Quantile(AggregateQuantile {
        column: column.into(),
        q,
    })
}

/// The mean of numbers, weighted by another column.
pub fn weighted_mean(column: impl Into<String>, weight: impl Into<String>) -> AggregateExpression {
    AggregateExpression::WeightedMean(AggregateWeightedMean {
        column: column.into(),
        weight: weight.into(),
    })
}

/// A quantile of numbers, weighted by another column; `q` is the share of the weight up to it, from 0 to 1.
pub fn weighted_quantile(
    column: impl Into<String>,
    weight: impl Into<String>,
    q: f64,
) -> AggregateExpression {
    AggregateExpression::WeightedQuantile(AggregateWeightedQuantile {
        column: column.into(),
        weight: weight.into(),
        q,
    })
}

/// The value of the row with the least time.
pub fn first_by(column: impl Into<String>, time: impl Into<String>) -> AggregateExpression {
    AggregateExpression::FirstBy(AggregateByTime {
        column: column.into(),
        time: time.into(),
    })
}

/// The value of the row with the greatest time.
pub fn last_by(column: impl Into<String>, time: impl Into<String>) -> AggregateExpression {
    AggregateExpression::LastBy(AggregateByTime {
        column: column.into(),
        time: time.into(),
    })
}

/// The `k` most frequent values as a list.
pub fn top_k(column: impl Into<String>, k: u32) -> AggregateExpression {
    AggregateExpression::TopK(AggregateTopK {
        column: column.into(),
        k,
    })
}

/// The values as a list; a group with more than `limit` is a fault.
pub fn list(column: impl Into<String>, limit: u32) -> AggregateExpression {
    let beyond = ListOverflow::Error;
    AggregateExpression::List(AggregateList {
        column: column.into(),
        limit,
        beyond,
    })
}

/// The first `limit` values as a list.
pub fn list_truncated(column: impl Into<String>, limit: u32) -> AggregateExpression {
    let beyond = ListOverflow::Truncate;
    AggregateExpression::List(AggregateList {
        column: column.into(),
        limit,
        beyond,
    })
}
