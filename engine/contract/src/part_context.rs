//! Resources of parts of trainings.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_model::{Fault, Result, codes};

/// Resources that a worker grants to a part of a training.
pub struct PartContext<'a> {
    /// Memory for the part.
    pub memory_bytes: u64,
    /// True once the coordinator no longer waits for the part.
    pub stop: &'a AtomicBool,
}

impl PartContext<'_> {
    /// Fails if the part is no longer needed.
    pub fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            Err(Fault::new(
                codes::INTERRUPTED,
                "the coordinator no longer waits for this part",
            ))
        } else {
            Ok(())
        }
    }
}
