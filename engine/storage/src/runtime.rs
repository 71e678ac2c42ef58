//! Runtimes of asynchronous work, where the system may refuse their threads.

use std::sync::Mutex;
use std::time::Duration;

use forebay_model::{Fault, Result, catch_panic, codes};
use forebay_threads::{start_scoped, with_quiet_panics};
use tokio::runtime::{Builder, Runtime};

/// Time for which an idle thread for blocking calls is kept: a system that refuses threads later cannot refuse this one.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// Starts a runtime with `threads` threads, at least one, and one thread for calls that block. A thread that the system
/// refuses is a fault.
pub fn start_runtime(name: &'static str, threads: usize) -> Result<Runtime> {
    let threads = threads.max(1);
    // The builder of the runtime would panic, and leave threads that it has started. It may do so yet: threads of the trial
    // may still count, and other processes start theirs.
    try_threads(threads + 1)?;
    with_quiet_panics(|| catch_panic(|| build_runtime(name, threads)))
}

fn build_runtime(name: &'static str, threads: usize) -> Result<Runtime> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .thread_keep_alive(BLOCKING_THREAD_IDLE)
        .enable_all()
        .build()
        .map_err(|error| {
            let message = format!("the threads `{name}` cannot be started");
            Fault::new(codes::STORAGE, message).cause(error)
        })?;
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

/// Starts so many threads at the same time, and ends them.
fn try_threads(threads: usize) -> Result<()> {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        // Each thread waits at the gate, so that all of them run at the same time.
        let closed = gate.lock();
        for _ in 0..threads {
            start_scoped(scope, || drop(gate.lock()))?;
        }
        drop(closed);
        Ok(())
    })
}
