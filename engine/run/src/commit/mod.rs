//! Durable writes: data first, then the record that makes them visible.
//!
//! `decide` holds every decision as a pure function; this module observes and acts.

mod decide;
#[cfg(test)]
mod fuzz;
mod partials;
mod store;

pub use decide::{CommitAction, PutOutcome, RecordState, ReuseDecision, decide_commit, decide_reuse};
pub use partials::{SHARES, merge_pairwise, shares_bytes_min};
pub use store::{RetainedIds, StateStore, id_texts, shard_name};
