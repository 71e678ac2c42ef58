//! What a state directory holds, and what of it may go: for people and schedulers, never for runs.

mod collect;
mod roots;
mod verify;
mod walk;

use std::collections::BTreeMap;
use std::time::SystemTime;

use forebay_model::{Id, Result};
use forebay_storage::{Io, Place, scratch};
use serde::Serialize;

use crate::cache::walk::{Found, is_staged, walk};
use crate::commit::Store;
pub use collect::{Collected, Retention};
pub use verify::{Broken, Verified};

/// Below each of these lie things of one kind.
const KINDS: [&str; 13] = [
    "states",
    "partials",
    "carries",
    "shards",
    "passes",
    "gathered",
    "artifacts",
    "notes",
    "checkpoints",
    "costs",
    "exchanges",
    "rows",
    RUNS,
];

/// Who attempted runs: whoever was stopped for long still has to find out that another attempt took over.
const RUNS: &str = "runs";

/// How directories end that hold a state in shares.
const SHARES: &str = ".shares";

/// Directories of spilled and half-written files of running and killed runs.
const TEMPORARY: &str = "temporary";

/// A state directory, seen from outside.
pub struct Cache {
    io: Io,
    store: Store,
}

/// Things of one kind together.
#[derive(Debug, Clone, Serialize)]
pub struct Holding {
    /// `states`, `partials`, `carries`, `shards`, `passes`, `gathered`, `artifacts`, `notes`,
    /// `checkpoints`, `costs`, `exchanges`, `rows`, `runs`, `temporary`.
    pub kind: String,
    /// How many.
    pub entries: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// When the oldest was written.
    #[serde(serialize_with = "as_millis")]
    pub oldest: SystemTime,
    /// When the newest was written.
    #[serde(serialize_with = "as_millis")]
    pub newest: SystemTime,
}

fn as_millis<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    serializer.serialize_u64(since.as_millis() as u64)
}

/// Something that is kept or removed as a whole.
struct Entry {
    kind: &'static str,
    /// The id, or the name of a pipeline.
    name: String,
    place: Place,
    files: Vec<Found>,
    bytes: u64,
    /// When its newest file was written.
    written: SystemTime,
    /// Left by a write that never ended; no reader looks at it.
    staged: bool,
}

impl Entry {
    fn new(kind: &'static str, name: &str, place: Place, files: Vec<Found>) -> Entry {
        Entry {
            kind,
            bytes: files.iter().map(|file| file.bytes).sum(),
            written: files.iter().map(|file| file.written).max().unwrap_or(SystemTime::UNIX_EPOCH),
            staged: is_staged(name),
            name: name.strip_suffix(".json").or(name.strip_suffix(SHARES)).unwrap_or(name).to_owned(),
            place,
            files,
        }
    }

    fn id(&self) -> Option<Id> {
        Id::parse(&self.name)
    }
}

impl Cache {
    /// What lies in a state directory.
    pub fn new(io: Io, root: Place) -> Cache {
        Cache { store: Store::new(io.clone(), root), io }
    }

    /// All kinds that are there, in a fixed order.
    pub fn holdings(&self) -> Result<Vec<Holding>> {
        Ok(sums(&self.entries()?))
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let root = self.store.root();
        let mut entries = Vec::new();
        for kind in KINDS {
            let place = root.join(kind);
            let mut by_name: BTreeMap<String, Vec<Found>> = BTreeMap::new();
            for file in walk(&self.io, &place)? {
                let name = file.path.split('/').next().unwrap_or_default().to_owned();
                by_name.entry(name).or_default().push(file);
            }
            let entry = |(name, files): (String, Vec<Found>)| Entry::new(kind, &name, place.join(&name), files);
            entries.extend(by_name.into_iter().map(entry));
        }
        for directory in scratch::directories(root) {
            let name = directory.file_name().to_string_lossy().into_owned();
            let place = self.io.place(&directory.path().display().to_string())?;
            entries.push(Entry::new(TEMPORARY, &name, place.clone(), walk(&self.io, &place)?));
        }
        Ok(entries)
    }
}

/// Entries by kind, in the order in which the kinds come.
fn sums<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Vec<Holding> {
    let mut sums: Vec<Holding> = Vec::new();
    for entry in entries {
        let (kind, time) = (entry.kind.to_owned(), entry.written);
        match sums.iter_mut().find(|sum| sum.kind == kind) {
            None => sums.push(Holding { kind, entries: 1, bytes: entry.bytes, oldest: time, newest: time }),
            Some(sum) => {
                sum.entries += 1;
                sum.bytes += entry.bytes;
                sum.oldest = sum.oldest.min(time);
                sum.newest = sum.newest.max(time);
            }
        }
    }
    sums
}
