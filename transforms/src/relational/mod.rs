//! Rows that meet other rows: joins, groups, duplicates.

mod aggregate;
mod collect;
mod dedupe;
mod exact_udaf;
mod join;

pub use aggregate::{Aggregate, Compute};
pub use collect::{Collect, CollectState};
pub use dedupe::{Dedupe, Keep};
pub use exact_udaf::exact_aggregates;
pub use join::{Cardinality, How, Join};
