//! Sudden ends, for tests: a program that was built with debug assertions can be told to kill itself
//! at one of the moments at which what is stored changes. `FOREBAY_KILL_AT` counts them from 0, and
//! `FOREBAY_KILL_LOG` is a file that gets a line for each.

use std::fmt::Display;

/// Such a moment: what is about to be done, or was just done, and where.
#[cfg(debug_assertions)]
pub(crate) fn step(what: &str, place: impl Display) {
    use std::io::Write;
    use std::sync::{LazyLock, Mutex};

    struct Plan {
        at: Option<u64>,
        log: Option<std::fs::File>,
        steps: u64,
    }

    static PLAN: LazyLock<Mutex<Plan>> = LazyLock::new(|| {
        let at = std::env::var("FOREBAY_KILL_AT").ok().and_then(|at| at.parse().ok());
        let log = std::env::var_os("FOREBAY_KILL_LOG").and_then(|log| std::fs::File::create(log).ok());
        Mutex::new(Plan { at, log, steps: 0 })
    });
    let Ok(mut plan) = PLAN.lock() else { return };
    if let Some(log) = &mut plan.log {
        let _ = writeln!(log, "{what} {place}");
    }
    if plan.at == Some(plan.steps) {
        let _ = signal_hook::low_level::raise(signal_hook::consts::SIGKILL);
    }
    plan.steps += 1;
}

#[cfg(not(debug_assertions))]
pub(crate) fn step(_what: &str, _place: impl Display) {}
