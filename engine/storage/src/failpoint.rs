//! Fail points: a program that was built with debug assertions or the feature `failpoints` can be
//! made to end, or to panic, at one of the moments at which what is stored changes, or rows are
//! read. Other programs have none. `FOREBAY_KILL_AT` counts the moments from 0, `FOREBAY_KILL_ON`
//! is a part of the description of a moment (or of the name of a file whose rows are read).
//! `FOREBAY_KILL_WITH` is `stop` or `term` for another signal than `SIGKILL`, or `panic`.
//! `FOREBAY_KILL_LOG` is a file that gets a line for each moment.

use std::fmt::Display;

/// Marks a moment: an action that is about to happen, or has just happened, and its location.
#[cfg(any(debug_assertions, feature = "failpoints"))]
pub fn step(operation: &str, subject: impl Display) {
    use std::io::Write;
    use std::sync::{LazyLock, Mutex};

    struct KillSchedule {
        at: Option<u64>,
        log: Option<std::fs::File>,
        steps: u64,
    }

    static PLAN: LazyLock<Mutex<KillSchedule>> = LazyLock::new(|| {
        let at = std::env::var("FOREBAY_KILL_AT")
            .ok()
            .and_then(|at| at.parse().ok());
        let log =
            std::env::var_os("FOREBAY_KILL_LOG").and_then(|log| std::fs::File::create(log).ok());
        Mutex::new(KillSchedule { at, log, steps: 0 })
    });
    let Ok(mut plan) = PLAN.lock() else { return };
    if let Some(log) = &mut plan.log {
        let _ = writeln!(log, "{operation} {subject}");
    }
    plan.steps += 1;
    let is_counted = plan.at == Some(plan.steps - 1);
    drop(plan);
    let step_name = format!("{operation} {subject}");
    if is_counted || matches_kill_name(&step_name) {
        raise_kill_signal(&step_name);
    }
}

/// The rows of a span are about to be read.
#[cfg(any(debug_assertions, feature = "failpoints"))]
pub fn reading(span: &str) {
    if matches_kill_name(span) {
        raise_kill_signal(span);
    }
    step("read", "a span");
}

/// True at the first moment whose description contains the value of `FOREBAY_KILL_ON`.
#[cfg(any(debug_assertions, feature = "failpoints"))]
fn matches_kill_name(step_name: &str) -> bool {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static ON: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("FOREBAY_KILL_ON").ok());
    static CAME: AtomicBool = AtomicBool::new(false);
    ON.as_ref().is_some_and(|on| step_name.contains(on)) && !CAME.swap(true, Ordering::Relaxed)
}

#[cfg(any(debug_assertions, feature = "failpoints"))]
#[allow(clippy::panic, clippy::disallowed_methods)] // Tests ask for it.
fn raise_kill_signal(at: &str) {
    use signal_hook::consts::{SIGKILL, SIGSTOP, SIGTERM};
    let signal = match std::env::var("FOREBAY_KILL_WITH").as_deref() {
        Ok("stop") => SIGSTOP,
        Ok("term") => SIGTERM,
        Ok("abort") => std::process::abort(),
        Ok("panic") => panic!("the fail point at `{at}`"),
        _ => SIGKILL,
    };
    let _ = signal_hook::low_level::raise(signal);
}

/// Does nothing: this program has no fail points.
#[cfg(not(any(debug_assertions, feature = "failpoints")))]
pub fn step(_what: &str, _place: impl Display) {}

/// Does nothing: this program has no fail points.
#[cfg(not(any(debug_assertions, feature = "failpoints")))]
pub fn reading(_span: &str) {}

/// A number of bytes that tests set by an environment variable, since they have little data; `None` in other programs.
#[cfg(any(debug_assertions, feature = "failpoints"))]
pub fn test_bytes(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// `None`: tests set nothing in this program.
#[cfg(not(any(debug_assertions, feature = "failpoints")))]
pub fn test_bytes(_variable: &str) -> Option<u64> {
    None
}
