//! Which rows there are.

mod explode;
mod filter;
mod future_rows;

pub use explode::Explode;
pub use filter::FilterRows;
pub use future_rows::{FutureRows, FutureStart};
