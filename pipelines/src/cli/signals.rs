//! Signals that ask a run to stop.

use forebay_model::{Fault, Result, codes};
use forebay_storage::CancellationToken;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

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
