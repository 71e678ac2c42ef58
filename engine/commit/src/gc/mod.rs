//! Contents of a state directory, and their collection: for people and schedulers, never for runs.

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

/// Directories below the root, one for each kind of entries.
const KINDS: [&str; 18] = [
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
    "ensembles",
    "exchanges",
    "rows",
    RUNS,
    KEPT_TABLES,
    HISTORY,
];

/// Records of runs, for people.
pub const HISTORY: &str = "history";

/// Tables that programs gave as sources, by their content.
pub const KEPT_TABLES: &str = "tables";

/// Attempts of runs. Kept so that an attempt that was suspended for long still finds out that another took over.
const RUNS: &str = "runs";

/// Kind of outputs in reports.
const OUTPUT: &str = "outputs";

/// Suffix of directories that hold a state in shares.
const SHARES: &str = ".shares";

/// Directories of spilled and half-written files of running and killed runs.
const TEMPORARY: &str = "temporary";

/// A state directory, seen from outside.
pub struct StateDirectory {
    io: StorageClient,
    store: StateStore,
    /// Finds the files that tables need.
    tables: Option<TableReferences>,
}

/// Usage of one kind of entries.
#[derive(Debug, Clone, Serialize)]
pub struct KindUsage {
    /// `states`, `partials`, `carries`, `shards`, `passes`, `gathered`, `artifacts`, `fits`, `notes`,
    /// `checkpoints`, `costs`, `expected`, `ensembles`, `exchanges`, `rows`, `runs`, `tables`,
    /// `history`, `temporary`.
    pub kind: String,
    /// Number of entries.
    pub entries: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Time at which the oldest was written.
    #[serde(serialize_with = "as_millis")]
    pub oldest: SystemTime,
    /// Time at which the newest was written.
    #[serde(serialize_with = "as_millis")]
    pub newest: SystemTime,
}

fn as_millis<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    serializer.serialize_u64(since.as_millis() as u64)
}

/// Object that is kept or removed as a whole.
pub struct StateEntry {
    kind: &'static str,
    /// The id, or the name of a pipeline.
    name: String,
    place: StorageLocation,
    files: Vec<ListedObject>,
    bytes: u64,
    /// Time at which its newest file was written.
    written: SystemTime,
    /// True for the temporary file of an unfinished write, which no reader opens.
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
    /// Time of writing in seconds since 1970.
    written: u32,
}

impl StateEntry {
    fn new(
        kind: &'static str,
        name: &str,
        location: StorageLocation,
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
            place: location,
            files,
            pack: None,
        }
    }

    /// A state that a pack holds.
    fn packed(pack: &PackFile, location: &StorageLocation, entry: &PackEntry) -> StateEntry {
        let seconds = if entry.written == 0 {
            pack.written
        } else {
            entry.written
        };
        StateEntry {
            kind: pack.kind.directory(),
            name: entry.id.to_string(),
            place: location.clone(),
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
    /// Opens a state directory.
    pub fn new(io: StorageClient, root: StorageLocation) -> StateDirectory {
        StateDirectory {
            store: StateStore::new(io.clone(), root),
            io,
            tables: None,
        }
    }

    /// Collects files of tables, too; `tables` finds those that they need.
    pub fn with_tables(self, tables: TableReferences) -> StateDirectory {
        StateDirectory {
            tables: Some(tables),
            ..self
        }
    }

    /// Usage of all kinds that exist, in a fixed order.
    pub fn holdings(&self) -> Result<Vec<KindUsage>> {
        Ok(usage_by_kind(&self.entries()?))
    }

    fn entries(&self) -> Result<Vec<StateEntry>> {
        let root = self.store.root();
        let mut entries = Vec::new();
        for kind in KINDS {
            let location = root.join(kind);
            let mut by_name: BTreeMap<String, Vec<ListedObject>> = BTreeMap::new();
            for file in list_files(&self.io, &location)? {
                let name = file.path.split('/').next().unwrap_or_default().to_owned();
                by_name.entry(name).or_default().push(file);
            }
            for (name, files) in by_name {
                let entry = StateEntry::new(kind, &name, location.join(&name), files);
                match self.packed_entries(&name, &entry)? {
                    Some(packed) => entries.extend(packed),
                    None => entries.push(entry),
                }
            }
        }
        for directory in scratch::scratch_directories(root) {
            let name = directory.file_name().to_string_lossy().into_owned();
            let location = self.io.resolve(&directory.path().display().to_string())?;
            entries.push(StateEntry::new(
                TEMPORARY,
                &name,
                location.clone(),
                list_files(&self.io, &location)?,
            ));
        }
        Ok(entries)
    }
}

impl StateDirectory {
    /// Entries of a pack; `None` for an incomplete pack.
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
        let pack_entries = self.store.packed_entries(kind, name, entry.bytes)?;
        let packed = |pack_entry: &PackEntry| StateEntry::packed(&pack, &entry.place, pack_entry);
        Ok(pack_entries.map(|pack_entries| pack_entries.iter().map(packed).collect()))
    }
}

/// Number and bytes of entries by kind, in the order of `entries`.
fn usage_by_kind<'e>(entries: impl IntoIterator<Item = &'e StateEntry>) -> Vec<KindUsage> {
    let mut sums: Vec<KindUsage> = Vec::new();
    for entry in entries {
        let kind = entry.kind.to_owned();
        let time = entry.written;
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
