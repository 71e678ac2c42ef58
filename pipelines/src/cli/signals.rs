//! Signals that ask a run to stop.
//!
//! The first signal sets a flag. Whatever reads, waits or computes in steps looks at it and ends, and the run says what
//! became of it. A computation that takes long in one call looks at nothing: a function of an expression, a product of
//! matrices, a step of a training. Some seconds after the signal the process ends without it. It may: whatever a run
//! publishes appears in one step, as after a power failure.

use std::io::{Error as IoError, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use forebay_model::{Fault, Result, codes};
use forebay_storage::{CancellationToken, scratch};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::{exit, pipe};

use crate::present;

/// How long a command that was asked to stop may take to end by itself: longer than its storage may take to answer, and
/// so short that schedulers, which wait ten seconds before they kill, never have to.
const END_WITHIN: Duration = Duration::from_secs(7);

/// How long the last words and the removal of temporary files may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// True if the command's last line is JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// True if a thread waits for signals.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Tells how this command says that it was ended.
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

/// The first signal asks the run to stop, and to keep what is committed; the second ends the process. Where the run does
/// not end in time, the process ends without it.
pub(crate) fn stop_on_signals(cancellation: &CancellationToken) -> Result<()> {
    for signal in [SIGTERM, SIGINT] {
        // Handlers run in this order: at the first signal the flag is not set yet.
        flag::register_conditional_default(signal, cancellation.flag())
            .and_then(|_| flag::register(signal, cancellation.flag()))
            .map_err(no_signals)?;
    }
    end_after_signals().map_err(no_signals)
}

fn no_signals(error: IoError) -> Fault {
    Fault::new(codes::STORAGE, "signals cannot be waited for").cause(error)
}

/// Starts a thread that ends the process some time after the first signal, unless there is one.
fn end_after_signals() -> std::io::Result<()> {
    if IS_WATCHED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let (mut received, sent) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        pipe::register(signal, sent.try_clone()?)?;
    }
    let wait = move || {
        if received.read_exact(&mut [0]).is_ok() {
            end_when_overdue();
        }
    };
    let thread = std::thread::Builder::new().name("forebay-signals".to_owned());
    thread.spawn(wait).map(drop)
}

/// Ends the process if it has not ended by itself after some seconds. What it was about to do is lost, as if it had been
/// killed: the same command goes on from what is committed.
pub(crate) fn end_when_overdue() {
    std::thread::sleep(END_WITHIN);
    let (done, is_done) = channel();
    // A thread that computes may hold what this needs: the output, or the disk.
    std::thread::spawn(move || {
        report_end();
        scratch::remove_all();
        let _ = done.send(());
    });
    let _ = is_done.recv_timeout(FAREWELL);
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
