//! Which rows there are.

mod expect;
mod explode;
mod filter;
mod future_rows;

pub use expect::{
    ExpectRows, ExpectedChange, ExpectedDrift, ExpectedRows, ExpectedValue, FailurePolicy, OtherRun, RowExpectation,
    Share, Violations, add_quarantined_step,
};
pub use explode::Explode;
pub use filter::FilterRows;
pub use future_rows::{FutureRows, FutureStart};
