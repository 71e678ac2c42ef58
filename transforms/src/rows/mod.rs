//! Which rows there are.

mod explode;
mod filter;

pub use explode::Explode;
pub use filter::FilterRows;
