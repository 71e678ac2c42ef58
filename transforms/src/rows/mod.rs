//! Which rows there are.

mod filter;

pub use filter::Filter;
