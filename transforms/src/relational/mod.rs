//! Rows that meet other rows: joins, groups, duplicates.

mod aggregate;
mod as_of_join;
mod collect;
mod dedupe;
mod exact_udaf;
mod join;

pub use aggregate::{Aggregate, Compute};
pub use as_of_join::{AsOfDirection, AsOfJoin};
pub use collect::{Collect, CollectState};
pub use dedupe::{Dedupe, Keep};
pub use exact_udaf::exact_aggregates;
pub use join::{Cardinality, How, Join};
