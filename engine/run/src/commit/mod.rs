//! Durable writes: data first, then the record that makes them visible.
//!
//! `decide` holds every decision as a pure function; this module observes and acts.

mod decide;
#[cfg(test)]
mod fuzz;
mod partials;
mod store;

pub use decide::{After, Before, Outcome, Record, after, before};
pub use partials::{SHARES, divided_bytes_min, merged_in_pairs};
pub use store::{Kept, Store, shard_name, texts};
