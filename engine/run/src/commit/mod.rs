//! Durable writes: data first, then the record that makes them visible.
//!
//! `decide` holds every decision as a pure function; this module observes and acts.

mod decide;
mod store;

pub use decide::{After, Before, Outcome, Record, after, before};
pub use store::{Kept, Store, texts};
