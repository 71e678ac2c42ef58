//! Rows that meet other rows: joins, groups, duplicates.

pub mod agg;
mod aggregate;
mod as_of_join;
mod brought;
mod collect;
mod dedupe;
mod exact_udaf;
mod integer_sum;
mod join;

pub use aggregate::{
    Aggregate, AggregateByTime, AggregateExpression, AggregateList, AggregateQuantile,
    AggregateTopK, AggregateWeightedMean, AggregateWeightedQuantile, ListOverflow, aggregate,
};
pub use as_of_join::{AsOfDirection, AsOfJoin, as_of_join};
pub use collect::{CollectRows, CollectState};
pub use dedupe::{Dedupe, DedupeKeep, dedupe};
pub use exact_udaf::exact_aggregates;
pub use join::{Join, JoinCardinality, JoinKind, JoinStrategy, join};
