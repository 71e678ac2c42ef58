//! Index of the packs of a state directory: the place of each state.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use forebay_model::ContentId;
use forebay_storage::{ScratchDir, StorageLocation};
use tempfile::{NamedTempFile, TempPath};

use super::pack_file::PackEntry;

/// Kinds of states in packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackedKind {
    /// States of all rows.
    State,
    /// States of parts of a history.
    Partial,
}

impl PackedKind {
    /// The directory of this kind.
    pub fn directory(self) -> &'static str {
        match self {
            PackedKind::State => "states",
            PackedKind::Partial => "partials",
        }
    }
}

/// The packs of a state directory.
#[derive(Default)]
pub struct StatePacks {
    pub states: Mutex<PackIndex>,
    pub partials: Mutex<PackIndex>,
    /// Stored bytes that were read for states that no pack holds yet.
    pub read_uncommitted: AtomicU64,
    /// Directory with copies of remote packs.
    pub copies: Mutex<Option<ScratchDir>>,
}

/// Index of the states of one kind.
#[derive(Default)]
pub struct PackIndex {
    pub is_loaded: bool,
    pub files: Vec<Arc<PackFile>>,
    pub entries: HashMap<ContentId, PackedPlace>,
    /// Further places of states that several packs hold.
    pub others: Vec<(ContentId, PackedPlace)>,
    /// Large states in a remote store; on local disks, the file system is asked.
    pub large: HashSet<ContentId>,
    pub spool: Option<PackSpool>,
}

/// Pack of a state, with its entry there.
#[derive(Clone)]
pub struct PackedPlace {
    pub file: Arc<PackFile>,
    pub entry: PackEntry,
}

/// A pack in the state directory.
pub struct PackFile {
    pub name: String,
    pub place: StorageLocation,
    pub bytes: u64,
    /// A copy of a remote pack.
    pub copy: Mutex<Option<PackCopy>>,
    /// True if a broken state was found in it.
    pub is_broken: AtomicBool,
}

/// Local copy of a remote pack.
pub struct PackCopy {
    pub path: TempPath,
    /// The directory has to outlive its files.
    pub _dir: ScratchDir,
}

/// States that no pack holds yet.
pub struct PackSpool {
    pub file: NamedTempFile,
    pub scratch: ScratchDir,
    pub entries: BTreeMap<ContentId, PackEntry>,
    pub bytes: u64,
    pub durable: bool,
}

impl StatePacks {
    /// Index of a kind.
    pub fn of(&self, kind: PackedKind) -> &Mutex<PackIndex> {
        match kind {
            PackedKind::State => &self.states,
            PackedKind::Partial => &self.partials,
        }
    }
}

impl PackIndex {
    /// Adds a pack with the states in it.
    pub fn insert(&mut self, file: &Arc<PackFile>, entries: Vec<PackEntry>) {
        for entry in entries {
            let packed = PackedPlace {
                file: file.clone(),
                entry,
            };
            if let Some(other) = self.entries.insert(entry.id, packed) {
                self.others.push((entry.id, other));
            }
        }
        self.files.push(file.clone());
    }

    /// Forgets packs.
    pub fn remove(&mut self, is_gone: impl Fn(&PackFile) -> bool) {
        self.files.retain(|file| !is_gone(file));
        self.others.retain(|(_, other)| !is_gone(&other.file));
        self.entries.retain(|_, packed| !is_gone(&packed.file));
        for (id, other) in std::mem::take(&mut self.others) {
            match self.entries.entry(id) {
                Entry::Occupied(_) => self.others.push((id, other)),
                Entry::Vacant(entry) => {
                    entry.insert(other);
                }
            }
        }
    }

    /// Forgets where a state lies, in favour of another place.
    pub fn forget(&mut self, id: ContentId) {
        match self.others.iter().position(|(other, _)| *other == id) {
            Some(at) => drop(self.entries.insert(id, self.others.swap_remove(at).1)),
            None => drop(self.entries.remove(&id)),
        }
    }
}
