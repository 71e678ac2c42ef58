//! Rows that meet other rows: joins, groups, duplicates.

mod aggregate;
mod as_of_join;
mod brought;
mod collect;
mod dedupe;
mod exact_udaf;
mod join;

pub use aggregate::{Aggregate, AggregateExpression, AggregateQuantile};
pub use as_of_join::{AsOfDirection, AsOfJoin};
pub use collect::{CollectRows, CollectState};
pub use dedupe::{Dedupe, DedupeKeep};
pub use exact_udaf::exact_aggregates;
pub use join::{Join, JoinCardinality, JoinKind, JoinStrategy};
