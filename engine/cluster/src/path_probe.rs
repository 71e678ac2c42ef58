//! Probes of shared paths: before the first task of a run, each worker shows that it sees the sources and the
//! directories of the run as the coordinator does.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::PoisonError;
use std::time::Duration;

use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::{CancellationToken, read_small_file};
use tokio::time::timeout;
use uuid::Uuid;

use crate::cluster::{CHECK_EVERY, Cluster, cluster_ended};
use crate::coordinator_event::CoordinatorEvent;
use crate::protocol::{MarkId, ProbeRequest, RunSpec, WorkerMessage, WorkerRequest};
use crate::query::QueryWorker;
use crate::worker_client::WorkerCall;

/// Time that a worker has to list the sources of a run.
const PROBE_WITHIN: Duration = Duration::from_secs(900);

/// Begin of the names of mark files.
const MARK_PREFIX: &str = ".forebay-probe-";

/// Mark files of a probe; dropping this removes them, and directories that were created for them and are empty.
struct Marks {
    files: Vec<PathBuf>,
    created: Vec<PathBuf>,
}

fn mark_file(directory: &Path, mark: &MarkId) -> PathBuf {
    directory.join(format!("{MARK_PREFIX}{}", Uuid::from_bytes(*mark).simple()))
}

impl Marks {
    fn write(directories: &[PathBuf], mark: &MarkId) -> Result<Marks> {
        let mut marks = Marks {
            files: Vec::new(),
            created: Vec::new(),
        };
        for directory in directories {
            if !directory.exists() {
                marks.created.push(directory.clone());
            }
            let file = mark_file(directory, mark);
            let written =
                std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&file, mark));
            written.map_err(|error| {
                let fault = Fault::disk("a shared directory cannot be written", error);
                fault.file(directory.display().to_string())
            })?;
            marks.files.push(file);
        }
        Ok(marks)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
        // A directory that is in use by now is not empty, and stays.
        for directory in &self.created {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl ProbeRequest {
    /// Checks on a worker that it sees the shared directories, and may write to them.
    pub fn check_directories(&self) -> Result<()> {
        for directory in &self.job.shared {
            let hidden = |message: &str| {
                let fault = Fault::new(codes::SEES_OTHER_DATA, message);
                let fault = fault.file(directory.display().to_string());
                fault.hint("mount it at the same path on all machines, or give a bucket")
            };
            let file = mark_file(directory, &self.mark);
            if !read_small_file(&file).is_ok_and(|bytes| bytes == self.mark) {
                return Err(hidden(
                    "the worker does not see a directory of the coordinator",
                ));
            }
            let reply = mark_file(directory, &Uuid::new_v4().into_bytes());
            if let Err(error) = std::fs::write(&reply, []) {
                return Err(hidden("the worker cannot write to a shared directory").cause(error));
            }
            let _ = std::fs::remove_file(&reply);
        }
        Ok(())
    }
}

impl Cluster {
    /// Checks that the workers see the paths of a run, once for each run. Workers on this machine do.
    pub(crate) fn probe_paths(
        &self,
        job: &RunSpec,
        cancellation: &CancellationToken,
    ) -> Result<()> {
        if self.local().is_some() {
            return Ok(());
        }
        let paths = serde_json::to_vec(&(&job.base, &job.shared, &job.sources))
            .map_err(|error| Fault::internal("the paths of a run").cause(error))?;
        let paths = ContentId::of(&paths);
        // Runs of a backfill wait for each other here.
        let mut probed = self.probed().lock().unwrap_or_else(PoisonError::into_inner);
        if probed.contains(&paths) {
            return Ok(());
        }
        self.wait_for_slots(cancellation)?;
        let mark = Uuid::new_v4().into_bytes();
        let _marks = Marks::write(&job.shared, &mark)?;
        let request = ProbeRequest {
            job: job.clone(),
            mark,
        };
        self.probe_workers(request, cancellation)?;
        probed.insert(paths);
        Ok(())
    }

    fn probe_workers(&self, request: ProbeRequest, cancellation: &CancellationToken) -> Result<()> {
        let (to, from) = std::sync::mpsc::channel();
        self.events()
            .send(CoordinatorEvent::QueryWorkers(to))
            .map_err(|_| cluster_ended())?;
        let workers = from.recv().map_err(|_| cluster_ended())?;
        let request = WorkerRequest::Probe(Box::new(request));
        self.runtime()?.block_on(async {
            let lease = self.lease();
            let probes = workers
                .iter()
                .map(|worker| probe_worker(worker, &request, lease));
            let mut probes = pin!(futures::future::join_all(probes));
            loop {
                if let Ok(answers) = timeout(CHECK_EVERY, &mut probes).await {
                    return answers.into_iter().collect();
                }
                cancellation.check()?;
            }
        })
    }
}

/// The fault of a worker that does not see the paths. A worker that is lost meanwhile has none.
async fn probe_worker(
    worker: &QueryWorker,
    request: &WorkerRequest,
    lease: Duration,
) -> Result<()> {
    let call = WorkerCall {
        request: request.clone(),
        lease: PROBE_WITHIN,
        trace: None,
    };
    let mut fault = None;
    let mut hear = |message| {
        if let WorkerMessage::Probed(failure) = message {
            fault = failure;
        }
    };
    // The coordinator's thread notices a lost worker itself.
    tokio::select! {
        _ = worker.link.send_request(call, &mut hear, None) => {}
        () = until_silent(worker, lease) => {}
    }
    match fault {
        None => Ok(()),
        Some(sent) => Err(Fault::from(*sent).worker(&worker.address)),
    }
}

/// Ends once the worker answers no ping within a lease.
async fn until_silent(worker: &QueryWorker, lease: Duration) {
    while worker.link.ping(lease).await.is_ok() {
        tokio::time::sleep(lease).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_go_with_the_directories_that_were_created_for_them() {
        let base = tempfile::tempdir().unwrap();
        let old = base.path().join("old");
        let new = base.path().join("new");
        std::fs::create_dir(&old).unwrap();
        let mark = Uuid::new_v4().into_bytes();
        let marks = Marks::write(&[old.clone(), new.clone()], &mark).unwrap();
        assert!(mark_file(&old, &mark).exists() && mark_file(&new, &mark).exists());
        drop(marks);
        assert!(old.exists() && !new.exists());
        assert_eq!(std::fs::read_dir(&old).unwrap().count(), 0);
    }
}
