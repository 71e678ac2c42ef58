//! Panics of other libraries that become faults: printed beside the fault, they would look like a bug.

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while panics of this thread are not printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps a thread quiet until it is dropped.
struct QuietMark {
    before: bool,
}

impl QuietMark {
    fn set() -> QuietMark {
        static QUIET_HOOK: Once = Once::new();
        QUIET_HOOK.call_once(|| {
            let hook = take_hook();
            set_hook(Box::new(move |panic| {
                if !IS_QUIET.get() {
                    hook(panic);
                }
            }));
        });
        QuietMark {
            before: IS_QUIET.replace(true),
        }
    }
}

impl Drop for QuietMark {
    fn drop(&mut self) {
        IS_QUIET.set(self.before);
    }
}

/// Runs `work`, whose panics on this thread are not printed. It or its caller catches and reports them.
pub fn with_quiet_panics<T>(work: impl FnOnce() -> T) -> T {
    let _mark = QuietMark::set();
    work()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const TEXT: &str = "a panic of the test of quiet panics";

    static PRINTED: AtomicUsize = AtomicUsize::new(0);

    fn panic_printed() -> usize {
        let count = PRINTED.load(Ordering::Relaxed);
        assert!(catch_unwind(|| panic!("{TEXT}")).is_err());
        PRINTED.load(Ordering::Relaxed) - count
    }

    #[test]
    fn panics_are_printed_where_no_work_is_quiet() {
        let usual_hook = take_hook();
        set_hook(Box::new(move |panic| {
            if panic.payload_as_str() == Some(TEXT) {
                PRINTED.fetch_add(1, Ordering::Relaxed);
            } else {
                usual_hook(panic);
            }
        }));
        assert_eq!(panic_printed(), 1);
        with_quiet_panics(|| {
            assert_eq!(panic_printed(), 0);
            assert_eq!(with_quiet_panics(panic_printed), 0);
            assert_eq!(panic_printed(), 0);
            let thread = std::thread::spawn(panic_printed);
            assert_eq!(thread.join().unwrap(), 1);
        });
        assert_eq!(panic_printed(), 1);
        assert!(catch_unwind(|| with_quiet_panics(|| panic!("{TEXT}"))).is_err());
        assert_eq!(panic_printed(), 1);
    }
}
