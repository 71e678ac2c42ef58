//! Decoding bytes that may be anything.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use arrow::error::ArrowError;
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

thread_local! {
    /// True while this thread decodes: a panic is then reported as a fault only.
    static IS_DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Marks a thread as decoding until it is dropped.
struct DecodingMark {
    before: bool,
}

impl DecodingMark {
    fn set() -> DecodingMark {
        static QUIET_HOOK: Once = Once::new();
        QUIET_HOOK.call_once(|| {
            let hook = take_hook();
            set_hook(Box::new(move |panic| {
                if !IS_DECODING.get() {
                    hook(panic);
                }
            }));
        });
        DecodingMark {
            before: IS_DECODING.replace(true),
        }
    }
}

impl Drop for DecodingMark {
    fn drop(&mut self) {
        IS_DECODING.set(self.before);
    }
}

/// Decodes with care: on some corrupt bytes the libraries below panic instead of returning an
/// error, and a corrupt file must not look like a bug.
pub(crate) fn catch_decode_panic<T, E: FromPanic>(
    decode: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let mark = DecodingMark::set();
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    drop(mark);
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
