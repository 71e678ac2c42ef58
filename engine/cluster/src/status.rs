//! Status of a run with workers, for observers: a file in the state directory that is written every
//! second and removed at the end of the run.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use forebay_model::{Fault, Result};
use forebay_storage::{StorageClient, StorageLocation};
use serde::{Deserialize, Serialize};

use crate::protocol::TaskProgress;

/// Interval at which the file is written.
const EVERY: Duration = Duration::from_secs(1);

/// Runs whose file is older have probably ended.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// Files of this age were left by runs that were killed.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// A run, as its coordinator sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The pipeline.
    pub pipeline: String,
    /// The pass, from 1; 0 for a feed.
    pub pass: usize,
    /// Time of writing, in seconds since 1970.
    pub at: u64,
    /// Tasks that no worker has begun.
    pub queued: usize,
    /// Tasks that are running.
    pub running: usize,
    /// Status of workers by address.
    pub workers: BTreeMap<String, WorkerStatus>,
}

/// A worker, as a coordinator sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// True if it is connected now.
    pub there: bool,
    /// Number of tasks that it can run at a time.
    pub slots: usize,
    /// Number of running tasks.
    pub busy: usize,
    /// Spans, or runs of them, that it has committed.
    pub parts: u64,
    /// Rows that it has read.
    pub rows: u64,
    /// Stored bytes that it has read.
    pub bytes: u64,
    /// Bytes that it has spilled.
    pub spilled_bytes: u64,
    /// CPU seconds that it has spent.
    pub cpu_seconds: f64,
    /// Failed attempts of the worker.
    pub retries: u64,
}

impl WorkerStatus {
    pub fn add_progress(&mut self, by: TaskProgress) {
        self.rows += by.rows;
        self.bytes += by.bytes;
        self.spilled_bytes += by.spilled_bytes;
        self.cpu_seconds += by.cpu_seconds;
    }
}

fn status_folder(state: &StorageLocation) -> StorageLocation {
    state.join("running")
}

impl ClusterStatus {
    /// Status of all runs with workers that use a state directory.
    pub fn all(io: &StorageClient, state: &StorageLocation) -> Result<Vec<ClusterStatus>> {
        let mut statuses = Vec::new();
        let folder = status_folder(state);
        for object in io.list(&folder)? {
            // It may have ended meanwhile.
            let Some(bytes) = io.get(&folder.at(&object.location))? else {
                continue;
            };
            statuses.extend(serde_json::from_slice::<ClusterStatus>(&bytes).ok());
        }
        Ok(statuses)
    }

    /// Time since it was written.
    pub fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.at))
    }

    /// True if the run has probably ended: its status has not been written for ten seconds.
    pub fn is_silent(&self) -> bool {
        self.age() > SILENT_AFTER
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Writes the file, on a thread of its own: storage may take its time.
pub struct StatusWriter {
    to: Option<SyncSender<ClusterStatus>>,
    writer: Option<JoinHandle<()>>,
    next: Instant,
}

impl StatusWriter {
    pub fn new(io: StorageClient, state: &StorageLocation, name: &str) -> Result<StatusWriter> {
        let (to, statuses) = sync_channel(1);
        let folder = status_folder(state);
        let location = status_folder(state).join(&format!("{name}.json"));
        let writer = std::thread::Builder::new()
            .name("forebay-status".to_owned())
            .spawn(move || write_statuses(&io, &folder, &location, &statuses))
            .map_err(Fault::refused_thread)?;
        Ok(StatusWriter {
            to: Some(to),
            writer: Some(writer),
            next: Instant::now(),
        })
    }

    /// Shows a status, if it is time to; one that comes while the last is written is left out.
    pub fn write_if_due(&mut self, status: impl FnOnce() -> ClusterStatus) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        let Some(to) = &self.to else { return };
        match to.try_send(ClusterStatus {
            at: now(),
            ..status()
        }) {
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => self.to = None,
        }
    }
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.to = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Writes statuses until the channel closes or a write fails. The run goes on in either case.
fn write_statuses(
    io: &StorageClient,
    folder: &StorageLocation,
    location: &StorageLocation,
    statuses: &Receiver<ClusterStatus>,
) {
    for object in io.list(folder).unwrap_or_default() {
        let age = now().saturating_sub(object.last_modified.timestamp().max(0) as u64);
        if age > ABANDONED_AFTER.as_secs() {
            let _ = io.delete(&folder.at(&object.location));
        }
    }
    for status in statuses {
        let Ok(bytes) = serde_json::to_vec(&status) else {
            continue;
        };
        if io.put(location, bytes.into()).is_err() {
            return;
        }
    }
    let _ = io.delete(location);
}
