//! What [`aggregate`](crate::aggregate) computes of a column: `agg::sum("qty")`.

use super::aggregate::{AggregateExpression, AggregateQuantile};

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
    /// The median of numbers.
    median => Median;
}

/// A quantile of numbers; `q` is the share of values below it, from 0 to 1.
pub fn quantile(column: impl Into<String>, q: f64) -> AggregateExpression {
    AggregateExpression::Quantile(AggregateQuantile { column: column.into(), q })
}
