//! Locks between processes, on local disks. The system releases a lock with the process that holds
//! it. The holder of an exclusive lock writes its identity into the file; a waiting process reports
//! the holder.

use std::fs::{File, TryLockError};
use std::io::{Result as IoResult, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};
use forebay_storage::{AttemptOrigin, Event, StorageClient, read_small_file};
use serde::{Deserialize, Serialize};

use crate::lease_holder::LeaseHolder;

/// Time after which a waiting run reports the holder of the lock.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// Interval at which a waiting run tries to get the lock.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A lock that this process has, until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
    /// True for an exclusive lock.
    is_alone: bool,
}

/// The holder of an exclusive lock, as recorded in its file.
#[derive(Serialize, Deserialize)]
struct LockHolder {
    /// Identity for people.
    origin: AttemptOrigin,
    /// Identity for processes on the same machine.
    process: LeaseHolder,
}

impl FileLock {
    /// Takes a shared lock; waits while another process holds it exclusively. `subject` names
    /// the locked object in faults and warnings.
    pub fn shared(io: &StorageClient, path: &Path, subject: &str) -> Result<FileLock> {
        let file = open(path).map_err(|error| lock_failed(subject, error))?;
        wait_for(io, path, subject, || file.try_lock_shared())?;
        Ok(FileLock {
            file,
            is_alone: false,
        })
    }

    /// Takes an exclusive lock; waits while another process holds the lock.
    pub fn alone(io: &StorageClient, path: &Path, subject: &str) -> Result<FileLock> {
        let file = open(path).map_err(|error| lock_failed(subject, error))?;
        wait_for(io, path, subject, || file.try_lock())?;
        Ok(FileLock::signed(file))
    }

    /// Takes an exclusive lock, unless another process holds the lock.
    pub fn try_alone(path: &Path, subject: &str) -> Result<Option<FileLock>> {
        let file = open(path).map_err(|error| lock_failed(subject, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(FileLock::signed(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(lock_failed(subject, error)),
        }
    }

    /// A lock that this process has alone, with its name in the file.
    fn signed(file: File) -> FileLock {
        let holder = LockHolder {
            origin: AttemptOrigin::current_process(),
            process: LeaseHolder::here(),
        };
        // A lock without a name is a lock all the same.
        let _ = file.set_len(0);
        let _ = serde_json::to_writer(&file, &holder);
        let _ = (&file).flush();
        FileLock {
            file,
            is_alone: true,
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if self.is_alone {
            let _ = self.file.set_len(0);
        }
    }
}

fn open(path: &Path) -> IoResult<File> {
    File::options().create(true).append(true).open(path)
}

fn lock_failed(subject: &str, error: std::io::Error) -> Fault {
    Fault::disk(format!("{subject} cannot be locked"), error)
}

fn wait_for(
    io: &StorageClient,
    path: &Path,
    subject: &str,
    try_lock: impl Fn() -> Result<(), TryLockError>,
) -> Result<()> {
    let mut wait = LockWait::new(io, subject);
    loop {
        match try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(lock_failed(subject, error)),
            Err(TryLockError::WouldBlock) => wait.pause(|| holder_of(path))?,
        }
    }
}

/// The process that has a lock alone. Where it is not known, any name that the file has is of a process before it.
fn holder_of(path: &Path) -> Option<String> {
    let text = read_small_file(path).ok()?;
    let holder: LockHolder = serde_json::from_slice(&text).ok()?;
    if holder.process.has_ended() {
        None
    } else {
        Some(holder.origin.to_string())
    }
}

/// A wait for another process. It reports the holder, and ends when the run is cancelled, or after
/// `FOREBAY_LOCK_SECONDS`.
pub(crate) struct LockWait<'a> {
    io: &'a StorageClient,
    what: &'a str,
    begun: Instant,
    is_told: bool,
}

impl<'a> LockWait<'a> {
    /// Begins a wait for the object that `subject` names.
    pub fn new(io: &'a StorageClient, subject: &'a str) -> LockWait<'a> {
        LockWait {
            io,
            what: subject,
            begun: Instant::now(),
            is_told: false,
        }
    }

    /// Pauses for a moment. `holder` returns the process that holds the lock, where that is known.
    pub fn pause(&mut self, holder: impl Fn() -> Option<String>) -> Result<()> {
        self.io.run_cancellation().check()?;
        let subject = self.what;
        let holder = || holder().unwrap_or_else(|| "another process".to_owned());
        let waited = self.begun.elapsed();
        let wait_max = self.io.lock_wait_max();
        if waited >= wait_max {
            let seconds = wait_max.as_secs_f64();
            let message = format!("{subject} is in use by {}", holder());
            return Err(Fault::new(codes::IN_USE, message).hint(format!(
                "run this again when that process has ended; FOREBAY_LOCK_SECONDS ({seconds}) \
                 tells how long to wait"
            )));
        }
        if waited >= TELL_AFTER && !self.is_told {
            self.is_told = true;
            self.io.emit(Event::Warning {
                message: format!("{subject} is in use by {}: waiting for it", holder()),
            });
        }
        std::thread::sleep(LOOK_EVERY.min(wait_max - waited));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex};

    use forebay_storage::{CancellationToken, EventListener};

    use super::*;

    /// Stops a run as soon as it warns.
    #[derive(Default)]
    struct StopAtWarning {
        cancellation: CancellationToken,
        warnings: Mutex<Vec<String>>,
    }

    impl EventListener for StopAtWarning {
        fn on_event(&self, event: Event) {
            if let Event::Warning { message } = event {
                self.warnings.lock().unwrap().push(message);
                self.cancellation.flag().store(true, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn a_wait_names_the_holder_and_ends_at_a_signal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("_lock");
        let listener = Arc::new(StopAtWarning::default());
        let io = StorageClient::new().unwrap();
        let io = io.for_run(listener.cancellation.clone(), listener.clone());
        let here = AttemptOrigin::current_process();
        let name = format!("process {} on {}, begun at ", here.process, here.host);

        let lock = FileLock::alone(&io, &path, "the output").unwrap();
        assert!(FileLock::try_alone(&path, "the output").unwrap().is_none());
        let mut wait = LockWait {
            begun: Instant::now().checked_sub(TELL_AFTER).unwrap(),
            ..LockWait::new(&io, "the output")
        };
        wait.pause(|| holder_of(&path)).unwrap();
        let stopped = FileLock::shared(&io, &path, "the output").unwrap_err();
        assert_eq!(stopped.code(), codes::INTERRUPTED);
        let warnings = listener.warnings.lock().unwrap().join("\n");
        assert!(
            warnings.starts_with(&format!("the output is in use by {name}")),
            "{warnings}"
        );
        // A lock that is free has no name.
        drop(lock);
        assert_eq!(holder_of(&path), None);
        drop(FileLock::alone(&io, &path, "the output").unwrap());
        drop(FileLock::shared(&io, &path, "the output").unwrap());
    }

    #[test]
    fn a_wait_that_lasts_too_long_is_a_fault_with_the_holder() {
        let io = StorageClient::new().unwrap();
        let begun = Instant::now().checked_sub(io.lock_wait_max()).unwrap();
        let mut wait = LockWait {
            begun,
            ..LockWait::new(&io, "the output")
        };
        let fault = wait
            .pause(|| Some("process 7 on night".to_owned()))
            .unwrap_err();
        assert_eq!(
            (fault.code(), codes::IN_USE.exit_code()),
            (codes::IN_USE, 75)
        );
        assert_eq!(
            fault.message(),
            "the output is in use by process 7 on night"
        );
        assert!(fault.hint_text().unwrap().contains("FOREBAY_LOCK_SECONDS"));
    }
}
