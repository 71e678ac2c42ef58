//! Memory for what kernels make of a batch: a kernel whose output can be far larger than its input asks first.

use std::cell::RefCell;
use std::sync::Arc;

use forebay_model::{Fault, Result, codes};

/// Fails if the process would exceed its memory with so many bytes more.
pub type AdmitBytes = Arc<dyn Fn(usize) -> Result<()> + Send + Sync>;

/// Outputs below these bytes are made without a question: batches have some megabytes.
pub const ADMITTED_BYTES_MIN: usize = 16 << 20;

/// Most bytes of an output where the memory of the process has no limit, such as in a server of features.
const UNLIMITED_BYTES_MAX: usize = 1 << 30;

thread_local! {
    /// The limit of the run that the thread computes for.
    static CURRENT: RefCell<Option<AdmitBytes>> = const { RefCell::new(None) };
}

/// Restores the limit of a thread, also after a panic.
struct RestoredLimit(Option<AdmitBytes>);

impl Drop for RestoredLimit {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Fails with FB0301 if a kernel must not make so many bytes of the batch that this thread computes.
pub fn admit_output(bytes: usize) -> Result<()> {
    if bytes < ADMITTED_BYTES_MIN {
        return Ok(());
    }
    let admit = CURRENT.with_borrow(Option::clone);
    match admit {
        Some(admit) => admit(bytes),
        None if bytes <= UNLIMITED_BYTES_MAX => Ok(()),
        None => {
            let message = format!(
                "a batch becomes {} MiB, and at most {} MiB are allowed",
                bytes >> 20,
                UNLIMITED_BYTES_MAX >> 20
            );
            Err(Fault::new(codes::MEMORY, message)
                .hint("make the texts or lists shorter, or give fewer rows at a time"))
        }
    }
}

/// The bytes of an output that grows row by row.
#[derive(Debug)]
pub struct GrowingOutput {
    bytes: usize,
    /// Bytes for which there is memory.
    admitted: usize,
}

impl Default for GrowingOutput {
    fn default() -> Self {
        GrowingOutput {
            bytes: 0,
            admitted: ADMITTED_BYTES_MIN,
        }
    }
}

impl GrowingOutput {
    /// Adds the bytes of a row before they are made; fails with FB0301 if there is no memory for them.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= self.admitted {
            return Ok(());
        }
        // A buffer that is full is copied to one of twice its size.
        let needed_bytes = self.bytes.saturating_mul(2);
        admit_output(needed_bytes)?;
        self.admitted = needed_bytes;
        Ok(())
    }
}

/// Calls `work` on this thread, for a run of limited memory.
pub(crate) fn with_admission<T>(admit: Option<&AdmitBytes>, work: impl FnOnce() -> T) -> T {
    let _restored = RestoredLimit(CURRENT.replace(admit.cloned()));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_outputs_ask_the_run_that_the_thread_computes_for() {
        let full: AdmitBytes = Arc::new(|_| Err(Fault::new(codes::MEMORY, "the memory is full")));
        with_admission(Some(&full), || {
            assert!(admit_output(ADMITTED_BYTES_MIN - 1).is_ok());
            assert!(admit_output(ADMITTED_BYTES_MIN).is_err());
            // A run inside has a limit of its own.
            with_admission(None, || assert!(admit_output(ADMITTED_BYTES_MIN).is_ok()));
            assert!(admit_output(ADMITTED_BYTES_MIN).is_err());
        });
        assert!(admit_output(UNLIMITED_BYTES_MAX).is_ok());
        let fault = admit_output(UNLIMITED_BYTES_MAX + 1).err();
        assert_eq!(fault.map(|fault| fault.code()), Some(codes::MEMORY));
    }

    #[test]
    fn a_growing_output_asks_before_it_is_too_large() {
        let mut output = GrowingOutput::default();
        for _ in 0..16 {
            output.grow(1 << 20).unwrap();
        }
        let grown = (0..1_000).find(|_| output.grow(1 << 20).is_err());
        // Twice the bytes of the output are at most the limit.
        assert!(grown.is_some_and(|rows| rows < 600), "{grown:?}");
        assert!(GrowingOutput::default().grow(usize::MAX).is_err());
    }
}
