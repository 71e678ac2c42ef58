//! Memory for what kernels make of a batch: a kernel whose output can be far larger than its input asks first.

use std::cell::RefCell;
use std::sync::Arc;

use forebay_model::{AdmittedMemory, Fault, Result, codes};

/// Reserves so many bytes until the answer is dropped, and fails if the process would exceed its memory with them.
pub type AdmitBytes = Arc<dyn Fn(usize) -> Result<AdmittedMemory> + Send + Sync>;

/// Outputs below these bytes are made without a question: batches have some megabytes.
pub const ADMITTED_BYTES_MIN: usize = 16 << 20;

/// Most bytes of an output where the memory of the process has no limit, such as in a server of features.
const UNLIMITED_BYTES_MAX: usize = 1 << 30;

thread_local! {
    /// The limit of the run that the thread computes for.
    static CURRENT: RefCell<Option<AdmitBytes>> = const { RefCell::new(None) };

    /// Memory of the output that the thread makes.
    static ADMITTED: RefCell<Option<AdmittedMemory>> = const { RefCell::new(None) };
}

/// Restores the limit of a thread and what it has admitted, also after a panic.
struct RestoredLimit {
    limit: Option<AdmitBytes>,
    admitted: Option<AdmittedMemory>,
}

impl Drop for RestoredLimit {
    fn drop(&mut self) {
        CURRENT.set(self.limit.take());
        ADMITTED.set(self.admitted.take());
    }
}

/// Reserves the bytes that a kernel makes of the batch that this thread computes: until the kernel asks again or has
/// ended. Fails with FB0301 if there is no memory for them.
pub fn admit_output(bytes: usize) -> Result<()> {
    if bytes < ADMITTED_BYTES_MIN {
        return Ok(());
    }
    let admit = CURRENT.with_borrow(Option::clone);
    match admit {
        Some(admit) => {
            // What was admitted before is made by now.
            settle_output();
            ADMITTED.set(Some(admit(bytes)?));
            Ok(())
        }
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

/// Ends what was reserved for a kernel: its output is resident, or the kernel waits for other threads.
pub fn settle_output() {
    ADMITTED.set(None);
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
    let _restored = RestoredLimit {
        limit: CURRENT.replace(admit.cloned()),
        admitted: ADMITTED.replace(None),
    };
    work()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// Counts the reservations that are open.
    struct Open(Arc<AtomicUsize>);

    impl Drop for Open {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_admitted_is_reserved_until_the_kernel_has_made_it() {
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        let limit: AdmitBytes = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(AdmittedMemory::reserved_by(Open(counted.clone())))
        });
        let count = || open.load(Ordering::Relaxed);
        with_admission(Some(&limit), || {
            admit_output(ADMITTED_BYTES_MIN).unwrap();
            admit_output(ADMITTED_BYTES_MIN).unwrap();
            assert_eq!(count(), 1);
            with_admission(Some(&limit), || {
                admit_output(ADMITTED_BYTES_MIN).unwrap();
                assert_eq!(count(), 2);
            });
            assert_eq!(count(), 1);
            settle_output();
            assert_eq!(count(), 0);
            admit_output(ADMITTED_BYTES_MIN).unwrap();
        });
        assert_eq!(count(), 0);
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
