//! What fuzz targets share. A target is a parser; its seeds are small inputs that it accepts. Bolero makes
//! mutations of the seeds, and each attempt must end without a panic, in time, and within a bound of memory.
//!
//! ```text
//! tests/corpus/<target>/   seeds that are kept: every input there is tried first, as it is
//! FOREBAY_FUZZ_SECONDS     how long each target is tried (default: 4)
//! BOLERO_RANDOM_SEED       tries the mutation of a failure again; the failure prints it
//! ```
//!
//! The input of the latest attempt lies in `<temporary directory>/forebay-fuzz/<target>`: after an abort it is
//! the input that caused it. To keep a failure, copy that file into the target's corpus.

#![allow(clippy::panic)] // A failed attempt fails its test.

mod edit;
mod memory;
mod target;

#[doc(hidden)]
pub use bolero;
pub use edit::SeedMutation;
pub use memory::CountingAllocator;
pub use target::{FuzzTarget, fuzz_duration};

/// Tries a [`FuzzTarget`] with the inputs of its corpus, and with mutations of them until its time is over.
#[macro_export]
macro_rules! fuzz {
    ($target:expr, $attempt:expr) => {{
        let (target, attempt) = ($target, $attempt);
        target.replay(&attempt);
        let one = ::std::panic::AssertUnwindSafe(|edits: &$crate::SeedMutation| {
            target.try_mutation(edits, &attempt)
        });
        $crate::bolero::check!()
            .with_test_time($crate::fuzz_duration())
            .with_type::<$crate::SeedMutation>()
            .for_each(move |edits| {
                let one = &one;
                (one.0)(edits)
            });
    }};
}
