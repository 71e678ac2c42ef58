//! Decoding bytes that may be anything.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::error::ArrowError;
use forebay_threads::with_quiet_panics;
use parquet::errors::ParquetError;

/// Errors that a panic can become.
pub(crate) trait FromPanic {
    /// The error for a panic with this text.
    fn from_panic(text: String) -> Self;
}

impl FromPanic for ArrowError {
    fn from_panic(text: String) -> Self {
        ArrowError::ParseError(text)
    }
}

impl FromPanic for ParquetError {
    fn from_panic(text: String) -> Self {
        ParquetError::General(text)
    }
}

/// Decodes with care: on some corrupt bytes the libraries below panic instead of returning an
/// error, and a corrupt file must not look like a bug.
pub(crate) fn catch_decode_panic<T, E: FromPanic>(
    decode: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let decoded = with_quiet_panics(|| catch_unwind(AssertUnwindSafe(decode)));
    decoded.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(E::from_panic(format!(
            "decoding failed: {}",
            text.unwrap_or("no reason known")
        )))
    })
}
