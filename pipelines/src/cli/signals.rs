//! Signals that ask a run to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_model::{Fault, Result, codes};
use forebay_storage::CancellationToken;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// Makes a file beyond the system's size limit an error of the write, and not the end of the process: the signal that
/// comes first would end it without a sentence.
pub(crate) fn keep_running_at_file_size_limit() -> Result<()> {
    let reached = Arc::new(AtomicBool::new(false));
    flag::register(SIGXFSZ, reached)
        .map(|_| ())
        .map_err(|error| Fault::new(codes::STORAGE, "a signal cannot be handled").cause(error))
}

/// The first signal asks the run to stop, and to keep what is committed; the second ends the process.
pub(crate) fn stop_on_signals(interrupt: &CancellationToken) -> Result<()> {
    for signal in [SIGTERM, SIGINT] {
        // Handlers run in this order: at the first signal the flag is not set yet.
        flag::register_conditional_default(signal, interrupt.flag())
            .and_then(|_| flag::register(signal, interrupt.flag()))
            .map_err(|error| {
                Fault::new(codes::STORAGE, "signals cannot be waited for").cause(error)
            })?;
    }
    Ok(())
}
