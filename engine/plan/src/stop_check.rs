//! The end of a run, for kernels that wait for something outside the process.

use std::cell::RefCell;
use std::sync::Arc;

use forebay_model::Result;

/// Fails when the run should stop.
pub type CheckStop = Arc<dyn Fn() -> Result<()> + Send + Sync>;

thread_local! {
    /// The check of the run that the thread computes for.
    static CURRENT: RefCell<Option<CheckStop>> = const { RefCell::new(None) };
}

/// Restores the check of a thread, also after a panic.
struct RestoredCheck(Option<CheckStop>);

impl Drop for RestoredCheck {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Fails when the run that this thread computes for should stop. A kernel that waits calls it again and again.
pub fn check_stop() -> Result<()> {
    let check = CURRENT.with_borrow(Option::clone);
    match check {
        Some(check) => check(),
        None => Ok(()),
    }
}

/// Calls `work` on this thread, for a run that may be stopped.
pub fn with_stop_check<T>(check: Option<&CheckStop>, work: impl FnOnce() -> T) -> T {
    let _restored = RestoredCheck(CURRENT.replace(check.cloned()));
    work()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use forebay_model::{Fault, codes};

    use super::*;

    #[test]
    fn a_check_lasts_as_long_as_its_work() {
        let stopped: CheckStop = Arc::new(|| Err(Fault::new(codes::INTERRUPTED, "stop")));
        assert!(check_stop().is_ok());
        let seen = with_stop_check(Some(&stopped), || {
            let inner = with_stop_check(None, || check_stop().is_ok());
            (inner, check_stop().is_err())
        });
        assert_eq!(seen, (true, true));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            with_stop_check(Some(&stopped), || panic!("it fails"))
        }));
        assert!(panicked.is_err());
        assert!(check_stop().is_ok());
    }
}
