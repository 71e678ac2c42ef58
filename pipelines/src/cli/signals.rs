//! Signals that cancel a run.
//!
//! The first signal sets a flag. Reads, waits and computations in steps check it and end, and the
//! run reports its outcome. A computation that takes long in one call does not check it: a function
//! of an expression, a product of matrices, a step of a training. Some seconds after the signal the
//! process ends without it. This is safe: each output is published in one step, so that the state
//! is that after a power failure.

use std::io::{Error as IoError, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use forebay_model::{Fault, Result, codes};
use forebay_storage::{CancellationToken, scratch};
use forebay_threads::start_thread;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::{exit, pipe};

use crate::present;

/// Time that a cancelled command has to end by itself: longer than its storage may take to answer,
/// and so short that schedulers, which wait ten seconds before they kill, never have to.
const END_WITHIN: Duration = Duration::from_secs(7);

/// Time for the last message and the removal of temporary files.
const FAREWELL: Duration = Duration::from_secs(1);

/// True if the command's last line is JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// True if a thread waits for signals.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Sets the form of the message when this command is ended by a signal.
pub(crate) fn set_json(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

/// Makes a file beyond the system's size limit an error of the write, and not the end of the process: the signal that
/// comes first would end it without a sentence.
pub(crate) fn keep_running_at_file_size_limit() -> Result<()> {
    let reached = Arc::new(AtomicBool::new(false));
    flag::register(SIGXFSZ, reached)
        .map(|_| ())
        .map_err(|error| Fault::new(codes::STORAGE, "a signal cannot be handled").cause(error))
}

/// The first signal cancels the run, which keeps committed results; the second ends the process. If
/// the run does not end in time, the process ends without it.
pub(crate) fn stop_on_signals(cancellation: &CancellationToken) -> Result<()> {
    for signal in [SIGTERM, SIGINT] {
        // Handlers run in this order: at the first signal the flag is not set yet.
        flag::register_conditional_default(signal, cancellation.flag())
            .and_then(|_| flag::register(signal, cancellation.flag()))
            .map_err(no_signals)?;
    }
    end_after_signals()
}

fn no_signals(error: IoError) -> Fault {
    Fault::disk("signals cannot be waited for", error)
}

/// Starts a thread that ends the process some time after the first signal, unless there is one.
fn end_after_signals() -> Result<()> {
    if IS_WATCHED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let (mut received, sent) = UnixStream::pair().map_err(no_signals)?;
    for signal in [SIGTERM, SIGINT] {
        let sent = sent.try_clone().map_err(no_signals)?;
        pipe::register(signal, sent).map_err(no_signals)?;
    }
    let wait = move || {
        if received.read_exact(&mut [0]).is_ok() {
            end_when_overdue();
        }
    };
    start_thread("forebay-signals", wait).map(drop)
}

/// Ends the process if it has not ended by itself after some seconds. Uncommitted work is lost, as
/// if the process had been killed: the same command continues from the committed state.
pub(crate) fn end_when_overdue() {
    std::thread::sleep(END_WITHIN);
    let (done, is_done) = channel();
    // A thread that computes may hold what this needs: the output, or the disk.
    let farewell = std::thread::Builder::new().spawn(move || {
        report_end();
        scratch::remove_all();
        let _ = done.send(());
    });
    if farewell.is_ok() {
        let _ = is_done.recv_timeout(FAREWELL);
    }
    // No destructor runs: one of them might wait for the computation.
    exit(codes::INTERRUPTED.exit_code().into());
}

fn report_end() {
    let fault = Fault::new(
        codes::INTERRUPTED,
        "the command was asked to stop and ends amid a long computation",
    );
    let fault = fault.hint("what is committed stays; run the same command again to go on");
    if IS_JSON.load(Ordering::Relaxed) {
        super::print_failure(&fault);
    }
    present::fault::report(&fault);
}
