//! Addresses of expected workers: in a list, in a file, behind a name that stands for many, or in a set that a launcher
//! keeps.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_model::{Fault, Result, codes};
use forebay_storage::read_small_text;
use tokio::sync::Notify;

/// Workers of a run that a launcher starts: it replaces the addresses when workers join or leave.
#[derive(Debug, Clone, Default)]
pub struct WorkerSet(Arc<SharedMembers>);

#[derive(Debug, Default)]
struct SharedMembers {
    members: Mutex<LaunchedMembers>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct LaunchedMembers {
    addresses: BTreeSet<String>,
    /// Why no further worker will come.
    end: Option<String>,
}

impl WorkerSet {
    fn members(&self) -> MutexGuard<'_, LaunchedMembers> {
        let members = self.0.members.lock();
        members.unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the addresses of the workers that run now. A worker whose address is missing gets no new tasks.
    pub fn replace(&self, addresses: impl IntoIterator<Item = String>) {
        self.members().addresses = addresses.into_iter().collect();
        self.0.changed.notify_one();
    }

    /// Reports that no worker will come any more: a run without a connected worker fails at once.
    pub fn end(&self, reason: impl Into<String>) {
        self.members().end = Some(reason.into());
    }

    /// Like [`WorkerSet::end`], unless there is a reason already.
    pub fn end_if_open(&self, reason: &str) {
        self.members().end.get_or_insert_with(|| reason.to_owned());
    }

    /// The addresses of the workers that run now.
    pub fn addresses(&self) -> BTreeSet<String> {
        self.members().addresses.clone()
    }

    /// True while the cluster has started no worker: a queue may hold them back for hours.
    pub(crate) fn is_waiting(&self) -> bool {
        let members = self.members();
        members.addresses.is_empty() && members.end.is_none()
    }

    /// The fault of a run for which no worker will come any more.
    pub(crate) fn end_fault(&self) -> Option<Fault> {
        let reason = self.members().end.clone()?;
        let fault = Fault::new(
            codes::NO_WORKERS,
            "no worker runs, and no further one will start",
        );
        let fault = fault.note(reason);
        Some(fault.hint("what is committed stays; the same command continues"))
    }

    /// Waits for the next change.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

/// Source of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AddressSource {
    /// `host:port`; a host name may resolve to several addresses.
    Name(String),
    /// File with one address per line; it may change during a run.
    File(std::path::PathBuf),
}

/// The addresses of workers, as far as one can know them now.
#[derive(Debug, Clone)]
pub struct WorkerDiscovery(Vec<AddressSource>);

impl WorkerDiscovery {
    /// `host:port`, or `@file`, one or more.
    pub fn new(texts: &[String]) -> Result<WorkerDiscovery> {
        let from = |text: &String| match text.strip_prefix('@') {
            Some(file) => Ok(AddressSource::File(file.into())),
            None if is_address(text) => Ok(AddressSource::Name(text.clone())),
            None => {
                let fault = Fault::new(codes::USAGE, format!("`{text}` is no address of a worker"));
                Err(fault.hint("write host:port, or @file for a file with one such a line"))
            }
        };
        texts
            .iter()
            .map(from)
            .collect::<Result<_>>()
            .map(WorkerDiscovery)
    }

    /// The current addresses. A name that is not known yet has none: its workers may come later.
    pub async fn addresses(&self) -> BTreeSet<String> {
        let mut addresses = BTreeSet::new();
        for from in &self.0 {
            match from {
                AddressSource::Name(name) => addresses.extend(resolve(name).await),
                AddressSource::File(file) => {
                    let path = file.clone();
                    let read = tokio::task::spawn_blocking(move || read_small_text(&path));
                    let Ok(Ok(text)) = read.await else {
                        continue;
                    };
                    for line in text.lines().map(str::trim).filter(|line| is_address(line)) {
                        addresses.extend(resolve(line).await);
                    }
                }
            }
        }
        addresses
    }
}

fn is_address(text: &str) -> bool {
    let port = text
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty())
        .map(|(_, port)| port.parse::<u16>());
    matches!(port, Some(Ok(_))) && !text.starts_with('#')
}

/// Resolves a name to addresses. A name with a single address is kept as a name, since certificates
/// are issued to names.
async fn resolve(name: &str) -> Vec<String> {
    let Ok(resolved) = tokio::net::lookup_host(name).await else {
        return Vec::new();
    };
    let resolved: BTreeSet<_> = resolved.collect();
    match resolved.len() {
        1 => vec![name.to_owned()],
        // `localhost` has two addresses and is one machine.
        _ if resolved.iter().all(|address| address.ip().is_loopback()) => vec![name.to_owned()],
        _ => resolved
            .into_iter()
            .map(|address| address.to_string())
            .collect(),
    }
}
