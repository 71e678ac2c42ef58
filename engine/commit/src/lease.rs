//! Leases of state directories: a run holds one while it works, and collections wait.
//!
//! On a local disk, a lease is a lock on a file, which the system releases with the process that
//! holds it. Runs share it; a collection takes it exclusively. In a bucket, a lease is an object
//! that its holder renews:
//!
//! ```text
//! _lease                          the file of the lock, on local disks
//! leases/<uuid>.run.json          its holder, which renews it every 20 seconds, for 90 seconds
//! leases/<uuid>.gc.json           the same of a collection
//! ```
//!
//! Both sides put their own object first and then list the others': of two at the same time, at
//! least one sees the other. A run waits for a collection; a collection gives way. The age of an
//! object is measured by the store's clock. Holders on the same machine whose process has ended
//! hold nothing.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use forebay_storage::{StorageClient, StorageLocation};
use forebay_threads::start_thread;
use object_store::ObjectMeta;
use uuid::Uuid;

use crate::file_lock::{FileLock, LockWait};
use crate::lease_holder::LeaseHolder;

/// Interval at which a lease in a bucket is renewed.
const RENEWED_EVERY: Duration = Duration::from_secs(20);

/// Time for which a lease in a bucket holds after it was renewed.
const HELD_FOR: Duration = Duration::from_secs(90);

/// Suffixes of the names of leases.
const RUN: &str = ".run.json";
const COLLECTION: &str = ".gc.json";

/// The file of the lock.
const LOCK: &str = "_lease";

/// A state directory that is in use, until this is dropped.
pub struct StateLease(LeaseKind);

enum LeaseKind {
    File { _lock: FileLock },
    Object(Arc<ObjectLease>, Option<JoinHandle<()>>),
}

/// A lease in a bucket.
struct ObjectLease {
    io: StorageClient,
    place: StorageLocation,
    holder: Bytes,
    /// Time of the last renewal, and true once the lease is released.
    state: Mutex<(Instant, bool)>,
    ended: Condvar,
}

impl StateLease {
    /// Takes a lease of a state directory for a run; waits while a collection holds one.
    pub fn of_run(io: &StorageClient, state: &StorageLocation) -> Result<StateLease> {
        let subject = state_directory(state);
        if let Some(path) = lock_path(state)? {
            let lock =
                FileLock::shared(io, &path, &subject).map_err(|fault| fault.file(&state.shown))?;
            return Ok(StateLease(LeaseKind::File { _lock: lock }));
        }
        let lease = StateLease::begin_object_lease(io, state, RUN)?;
        let mut wait = LockWait::new(io, &subject);
        while let Some(holder) = holder_among_others(io, state, COLLECTION)? {
            wait.pause(|| Some(holder.to_string()))
                .map_err(|fault| fault.file(&state.shown))?;
        }
        Ok(lease)
    }

    /// Takes a lease of a state directory for a collection; fails while a run holds one.
    pub fn of_collection(io: &StorageClient, state: &StorageLocation) -> Result<StateLease> {
        let in_use = || {
            let fault = Fault::new(
                codes::IN_USE,
                "a run is at work with this state directory; nothing was removed",
            );
            fault
                .file(&state.shown)
                .hint("run this again when the run has ended")
        };
        if let Some(path) = lock_path(state)? {
            let lock = FileLock::try_alone(&path, &state_directory(state))
                .map_err(|fault| fault.file(&state.shown))?;
            let lock = lock.ok_or_else(in_use)?;
            return Ok(StateLease(LeaseKind::File { _lock: lock }));
        }
        let lease = StateLease::begin_object_lease(io, state, COLLECTION)?;
        match holder_among_others(io, state, RUN)? {
            Some(_) => Err(in_use()),
            None => Ok(lease),
        }
    }

    /// Fails if a lease in a bucket could not be renewed in time: objects that the run relies on
    /// may have been removed.
    pub fn check(&self) -> Result<()> {
        let LeaseKind::Object(object, _) = &self.0 else {
            return Ok(());
        };
        let state = object
            .state
            .lock()
            .map_err(|_| forebay_threads::poisoned_lock())?;
        if state.0.elapsed() < HELD_FOR {
            return Ok(());
        }
        let fault = Fault::new(
            codes::IN_USE,
            "the lease of the state directory was not renewed in time",
        );
        Err(fault
            .file(&object.place.shown)
            .hint("run the same command again: what is committed stays"))
    }

    fn begin_object_lease(
        io: &StorageClient,
        state: &StorageLocation,
        kind: &str,
    ) -> Result<StateLease> {
        let location = state.join(&format!("leases/{}{kind}", Uuid::new_v4().simple()));
        let holder = serde_json::to_vec(&LeaseHolder::here())
            .map_err(|error| Fault::internal("a lease").cause(error))?;
        let begun = Mutex::new((Instant::now(), false));
        let ended = Condvar::new();
        let object = Arc::new(ObjectLease {
            io: io.clone(),
            place: location,
            holder: holder.into(),
            state: begun,
            ended,
        });
        object.io.put(&object.place, object.holder.clone())?;
        let renewed = object.clone();
        // Dropping the lease removes its object, also where the system refuses the thread.
        let mut lease = StateLease(LeaseKind::Object(object, None));
        let renewal = start_thread("forebay-lease", move || renewed.renew())?;
        if let LeaseKind::Object(_, thread) = &mut lease.0 {
            *thread = Some(renewal);
        }
        Ok(lease)
    }
}

impl ObjectLease {
    /// Renews the lease until it is released.
    fn renew(&self) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        loop {
            let waited = self
                .ended
                .wait_timeout_while(state, RENEWED_EVERY, |state| !state.1);
            let Ok((now, _)) = waited else { return };
            if now.1 {
                return;
            }
            drop(now);
            // It counts from before the request: the store may have written it at once.
            let asked_at = Instant::now();
            let is_put = self.io.put(&self.place, self.holder.clone()).is_ok();
            let Ok(now) = self.state.lock() else { return };
            state = now;
            if is_put {
                state.0 = asked_at;
            }
        }
    }
}

impl Drop for StateLease {
    fn drop(&mut self) {
        let LeaseKind::Object(object, thread) = &mut self.0 else {
            return;
        };
        if let Ok(mut state) = object.state.lock() {
            state.1 = true;
        }
        object.ended.notify_all();
        let _ = thread.take().map(JoinHandle::join);
        // One that stays ends by itself.
        let _ = object.io.delete(&object.place);
    }
}

fn state_directory(state: &StorageLocation) -> String {
    format!("the state directory `{}`", state.shown)
}

/// The file of the lock, on a local disk.
fn lock_path(state: &StorageLocation) -> Result<Option<PathBuf>> {
    let Some(local) = &state.local else {
        return Ok(None);
    };
    std::fs::create_dir_all(local).map_err(|error| {
        Fault::disk("the state directory cannot be locked", error).file(&state.shown)
    })?;
    Ok(Some(local.join(LOCK)))
}

/// A process that holds a lease of a kind in a bucket.
struct ObjectLeaseHolder {
    /// The process of the holder and its start time, where the lease records them.
    holder: Option<LeaseHolder>,
    /// Time of the last renewal.
    renewed: String,
}

impl fmt::Display for ObjectLeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(LeaseHolder {
                process,
                host: Some(host),
                ..
            }) => write!(f, "process {process} on {host}")?,
            Some(LeaseHolder { process, .. }) => write!(f, "process {process}")?,
            None => f.write_str("another process")?,
        }
        write!(f, ", whose lease was renewed at {}", self.renewed)
    }
}

/// A process that holds a lease of a kind in a bucket; removes expired leases. The caller has just
/// put its own lease, so that the newest of all gives the store's time.
fn holder_among_others(
    io: &StorageClient,
    state: &StorageLocation,
    kind: &str,
) -> Result<Option<ObjectLeaseHolder>> {
    let leases = io.list(&state.join("leases"))?;
    let Some(now) = leases.iter().map(|lease| lease.last_modified).max() else {
        return Ok(None);
    };
    let is_alike = |lease: &&ObjectMeta| {
        lease
            .location
            .filename()
            .is_some_and(|name| name.ends_with(kind))
    };
    let mut held_by = None;
    for lease in leases.iter().filter(is_alike) {
        let location = state.at(&lease.location);
        let Some(bytes) = io.get(&location)? else {
            continue;
        };
        let holder = serde_json::from_slice::<LeaseHolder>(&bytes).ok();
        let has_ended = holder.as_ref().is_some_and(LeaseHolder::has_ended);
        let age = (now - lease.last_modified).to_std().unwrap_or_default();
        if has_ended || age >= HELD_FOR {
            io.delete(&location)?;
        } else {
            let renewed = lease.last_modified.to_rfc3339();
            held_by = Some(ObjectLeaseHolder { holder, renewed });
        }
    }
    Ok(held_by)
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn runs_share_and_collections_are_alone() {
        let folder = tempfile::tempdir().unwrap();
        let io = StorageClient::new()
            .unwrap()
            .with_store("s3://bucket", Arc::new(InMemory::new()))
            .unwrap();
        for state in [folder.path().to_str().unwrap(), "s3://bucket/state"] {
            let state = io.resolve(state).unwrap();
            let refused = || {
                StateLease::of_collection(&io, &state)
                    .err()
                    .map(|fault| fault.code())
            };
            let one = StateLease::of_run(&io, &state).unwrap();
            let other = StateLease::of_run(&io, &state).unwrap();
            assert_eq!(refused(), Some(codes::IN_USE));
            drop(one);
            assert_eq!(refused(), Some(codes::IN_USE));
            other.check().unwrap();
            drop(other);
            drop(StateLease::of_collection(&io, &state).unwrap());
            drop(StateLease::of_run(&io, &state).unwrap());
        }
    }

    #[test]
    fn processes_that_ended_hold_nothing() {
        let io = StorageClient::new()
            .unwrap()
            .with_store("s3://bucket", Arc::new(InMemory::new()))
            .unwrap();
        let state = io.resolve("s3://bucket/state").unwrap();
        let here = LeaseHolder::here();
        let put = |holder: &LeaseHolder| {
            let bytes = Bytes::from(serde_json::to_vec(holder).unwrap());
            io.put(&state.join("leases/x.run.json"), bytes).unwrap();
        };
        for (holder, is_refused) in [
            (here.clone(), true),
            (
                LeaseHolder {
                    began: Some("never".to_owned()),
                    ..here.clone()
                },
                false,
            ),
            (
                LeaseHolder {
                    machine: Some("another".to_owned()),
                    began: Some("never".to_owned()),
                    ..here.clone()
                },
                true,
            ),
            (
                LeaseHolder {
                    machine: None,
                    began: None,
                    ..here
                },
                true,
            ),
        ] {
            put(&holder);
            assert_eq!(
                StateLease::of_collection(&io, &state).is_err(),
                is_refused,
                "{holder:?}"
            );
        }
        io.put(
            &state.join("leases/x.run.json"),
            Bytes::from_static(b"broken"),
        )
        .unwrap();
        assert!(StateLease::of_collection(&io, &state).is_err());
    }
}
