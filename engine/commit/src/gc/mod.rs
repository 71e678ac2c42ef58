//! What a state directory holds, and what of it may go: for people and schedulers, never for runs.

mod collect;
mod list;
mod roots;
mod tables;
mod verify;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use forebay_model::{ContentId, Result};
use forebay_storage::{StorageClient, StorageLocation, scratch};
use serde::Serialize;

pub(crate) use self::list::list_files;
use self::list::{ListedObject, is_staged};
use crate::fit_history::FITS;
use crate::state_store::{PACK_SUFFIX, PackEntry, PackedKind, StateStore};

pub use collect::{CollectionReport, RetentionPolicy};
pub use tables::TableReferences;
pub use verify::{CorruptFile, VerifyReport};

/// Below each of these lie things of one kind.
const KINDS: [&str; 15] = [
    "states",
    "partials",
    "carries",
    "shards",
    "passes",
    "gathered",
    "artifacts",
    FITS,
    "notes",
    "checkpoints",
    "costs",
    "expected",
    "exchanges",
    "rows",
    RUNS,
];

/// Attempts of runs. Kept so that an attempt that was suspended for long still finds out that another took over.
const RUNS: &str = "runs";

/// How directories end that hold a state in shares.
const SHARES: &str = ".shares";

/// Directories of spilled and half-written files of running and killed runs.
const TEMPORARY: &str = "temporary";

/// A state directory, seen from outside.
pub struct StateDirectory {
    io: StorageClient,
    store: StateStore,
    /// What tells the files that tables need.
    tables: Option<TableReferences>,
}

/// Things of one kind together.
#[derive(Debug, Clone, Serialize)]
pub struct KindUsage {
    /// `states`, `partials`, `carries`, `shards`, `passes`, `gathered`, `artifacts`, `fits`, `notes`,
    /// `checkpoints`, `costs`, `expected`, `exchanges`, `rows`, `runs`, `temporary`.
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
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    serializer.serialize_u64(since.as_millis() as u64)
}

/// Something that is kept or removed as a whole.
pub struct StateEntry {
    kind: &'static str,
    /// The id, or the name of a pipeline.
    name: String,
    place: StorageLocation,
    files: Vec<ListedObject>,
    bytes: u64,
    /// When its newest file was written.
    written: SystemTime,
    /// Left by a write that never ended; no reader looks at it.
    staged: bool,
    /// The pack that holds it, where it has no file of its own.
    pack: Option<PackFile>,
}

/// A pack, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PackFile {
    kind: PackedKind,
    name: String,
    bytes: u64,
    /// In seconds since 1970.
    written: u32,
}

impl StateEntry {
    fn new(
        kind: &'static str,
        name: &str,
        place: StorageLocation,
        files: Vec<ListedObject>,
    ) -> StateEntry {
        StateEntry {
            kind,
            bytes: files.iter().map(|file| file.bytes).sum(),
            written: files
                .iter()
                .map(|file| file.written)
                .max()
                .unwrap_or(SystemTime::UNIX_EPOCH),
            staged: is_staged(name),
            name: name
                .strip_suffix(".json")
                .or(name.strip_suffix(SHARES))
                .unwrap_or(name)
                .to_owned(),
            place,
            files,
            pack: None,
        }
    }

    /// A state that a pack holds.
    fn packed(pack: &PackFile, place: &StorageLocation, entry: &PackEntry) -> StateEntry {
        let seconds = if entry.written == 0 {
            pack.written
        } else {
            entry.written
        };
        StateEntry {
            kind: pack.kind.directory(),
            name: entry.id.to_string(),
            place: place.clone(),
            files: Vec::new(),
            bytes: u64::from(entry.bytes),
            written: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into()),
            staged: false,
            pack: Some(pack.clone()),
        }
    }

    fn id(&self) -> Option<ContentId> {
        ContentId::parse(&self.name)
    }
}

impl StateDirectory {
    /// What lies in a state directory.
    pub fn new(io: StorageClient, root: StorageLocation) -> StateDirectory {
        StateDirectory {
            store: StateStore::new(io.clone(), root),
            io,
            tables: None,
        }
    }

    /// Collects files of tables, too; `tables` tells those that they need.
    pub fn with_tables(self, tables: TableReferences) -> StateDirectory {
        StateDirectory {
            tables: Some(tables),
            ..self
        }
    }

    /// All kinds that are there, in a fixed order.
    pub fn holdings(&self) -> Result<Vec<KindUsage>> {
        Ok(usage_by_kind(&self.entries()?))
    }

    fn entries(&self) -> Result<Vec<StateEntry>> {
        let root = self.store.root();
        let mut entries = Vec::new();
        for kind in KINDS {
            let place = root.join(kind);
            let mut by_name: BTreeMap<String, Vec<ListedObject>> = BTreeMap::new();
            for file in list_files(&self.io, &place)? {
                let name = file.path.split('/').next().unwrap_or_default().to_owned();
                by_name.entry(name).or_default().push(file);
            }
            for (name, files) in by_name {
                let entry = StateEntry::new(kind, &name, place.join(&name), files);
                match self.packed_entries(&name, &entry)? {
                    Some(packed) => entries.extend(packed),
                    None => entries.push(entry),
                }
            }
        }
        for directory in scratch::scratch_directories(root) {
            let name = directory.file_name().to_string_lossy().into_owned();
            let place = self.io.resolve(&directory.path().display().to_string())?;
            entries.push(StateEntry::new(
                TEMPORARY,
                &name,
                place.clone(),
                list_files(&self.io, &place)?,
            ));
        }
        Ok(entries)
    }
}

impl StateDirectory {
    /// What a pack holds; `None` for what is no whole pack.
    fn packed_entries(&self, name: &str, entry: &StateEntry) -> Result<Option<Vec<StateEntry>>> {
        let kinds = [PackedKind::State, PackedKind::Partial];
        let Some(kind) = kinds
            .into_iter()
            .find(|kind| kind.directory() == entry.kind)
        else {
            return Ok(None);
        };
        if !name.ends_with(PACK_SUFFIX) {
            return Ok(None);
        }
        let written = entry
            .written
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs() as u32;
        let pack = PackFile {
            kind,
            name: name.to_owned(),
            bytes: entry.bytes,
            written,
        };
        let held = self.store.packed_entries(kind, name, entry.bytes)?;
        let packed = |held: &PackEntry| StateEntry::packed(&pack, &entry.place, held);
        Ok(held.map(|held| held.iter().map(packed).collect()))
    }
}

/// Entries by kind, in the order in which the kinds come.
fn usage_by_kind<'e>(entries: impl IntoIterator<Item = &'e StateEntry>) -> Vec<KindUsage> {
    let mut sums: Vec<KindUsage> = Vec::new();
    for entry in entries {
        let (kind, time) = (entry.kind.to_owned(), entry.written);
        match sums.iter_mut().find(|sum| sum.kind == kind) {
            None => sums.push(KindUsage {
                kind,
                entries: 1,
                bytes: entry.bytes,
                oldest: time,
                newest: time,
            }),
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
