//! Positions of rows as numbers.

/// A row's position has the span's number above these bits and the row within the span below.
pub const ROW_BITS: u32 = 40;
