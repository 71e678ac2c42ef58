//! Dates and times.

mod date_parts;

pub use date_parts::{DateParts, Part};
