//! Which rows there are.

mod expect;
mod explode;
mod filter;
mod future_rows;
mod sample;

pub use expect::{
    ExpectRows, ExpectedChange, ExpectedDrift, ExpectedRange, ExpectedRows, ExpectedValue,
    FailurePolicy, OtherRun, RowExpectation, Share, Violations, add_quarantined_step, drift,
    expect, violations,
};
pub use explode::{Explode, explode};
pub use filter::{ConditionalFilter, FilterRows, FilterScope, filter};
pub use future_rows::{FutureRows, FutureStart, future_rows};
pub use sample::{RowSample, sample};
