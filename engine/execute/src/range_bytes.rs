//! The least stored bytes of a range, which tests may lower.

use forebay_storage::failpoint::test_bytes;

/// Minimum stored bytes of a range: starting a smaller one costs more than it saves.
const RANGE_BYTES_MIN: u64 = 4 << 20;

/// `RANGE_BYTES_MIN`, unless a test sets another value.
pub fn range_bytes_min() -> u64 {
    bytes_min(RANGE_BYTES_MIN)
}

/// A minimum number of bytes, unless a test sets another value: tests have little data.
pub fn bytes_min(usual: u64) -> u64 {
    test_bytes("FOREBAY_RANGE_BYTES").unwrap_or(usual).max(1)
}
