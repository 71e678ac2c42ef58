//! The state directory: states and pass records by id, on disk or in a bucket. Each kind of object
//! has a module here; all of them use the frames and locations of this one.

mod carries;
mod checkpoints;
mod exchanges;
mod frame;
mod pack_file;
mod pack_index;
mod packs;
mod partial_states;
mod pass_records;
mod shard_records;
mod source_notes;
mod states;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_model::{ContentId, Fault, Result};
use forebay_storage::failpoint::step;
use forebay_storage::{ScratchDir, StorageClient, StorageLocation};
use tempfile::NamedTempFile;

use self::frame::{FrameHeader, FrameReader, write_frame};
use self::pack_index::StatePacks;

pub use self::pack_file::{PACK_SUFFIX, PackEntry};
pub use self::pack_index::PackedKind;
pub use self::packs::RewrittenPack;
pub use self::partial_states::{
    MERGES_MIN, SHARES, SHARES_AT_ONCE, merge_pairwise, shares_bytes_min, sources_per_merge,
};
pub use self::pass_records::{RetainedIds, id_texts};
pub use self::shard_records::shard_name;

/// Store of committed objects by id.
#[derive(Clone)]
pub struct StateStore {
    /// The storage client.
    pub io: StorageClient,
    /// The state directory.
    pub root: StorageLocation,
    /// Files that are in place, and not yet on the disk.
    unsynced: Arc<Mutex<Vec<PathBuf>>>,
    packs: Arc<StatePacks>,
}

impl StateStore {
    /// A state directory, which need not exist yet.
    pub fn new(io: StorageClient, root: StorageLocation) -> Self {
        StateStore {
            io,
            root,
            unsynced: Arc::default(),
            packs: Arc::default(),
        }
    }

    /// Root of the store.
    pub fn root(&self) -> &StorageLocation {
        &self.root
    }

    /// Location of the intermediate dataset of a gather.
    pub fn materialized_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("gathered/{id}"))
    }

    /// Commits all states that were put, and waits until the durable ones are on the disk.
    pub fn sync(&self) -> Result<()> {
        self.flush()?;
        let failed = |error| Fault::disk("a state cannot be written", error);
        let paths = std::mem::take(&mut *self.unsynced());
        paths.iter().try_for_each(|path| {
            File::open(path)
                .and_then(|file| file.sync_all())
                .map_err(failed)
        })
    }

    /// Locks the list. A poisoned lock is ignored: a list is whole even if a thread failed while it
    /// held the lock.
    fn unsynced(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a frame as a file. A frame that is not `durable` may be lost in a power failure: its
    /// digest shows that, and it is computed again.
    fn put_framed(
        &self,
        location: &StorageLocation,
        header: &FrameHeader,
        scratch: &ScratchDir,
        durable: bool,
        body: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let mut file = scratch.file()?;
        write_frame(file.as_file_mut(), header, body)?;
        self.persist_file(location, file, durable)
    }

    /// Reads an object that [`StateStore::put_framed`] wrote; `None` if it is absent, broken, or of
    /// another kind.
    fn get_framed<T>(
        &self,
        location: &StorageLocation,
        expected: &FrameHeader,
        body: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<Option<T>> {
        self.get_framed_of(location, std::slice::from_ref(expected), |_, input| {
            body(input)
        })
    }

    /// Reads a frame of one of several kinds; `body` receives the index of the kind.
    fn get_framed_of<T>(
        &self,
        location: &StorageLocation,
        kinds: &[FrameHeader],
        body: impl FnOnce(usize, &mut FrameReader) -> Result<T>,
    ) -> Result<Option<T>> {
        Ok(self
            .open_framed(location)?
            .and_then(|input| input.read(kinds, body)))
    }

    /// Checks a file that `StateStore::put_framed` wrote, and returns its defect, if any.
    pub fn check_framed(
        &self,
        location: &StorageLocation,
        id: &str,
    ) -> Result<Option<&'static str>> {
        let Some(input) = self.open_framed(location)? else {
            return Ok(Some("it is missing"));
        };
        Ok(input.check(id))
    }

    fn open_framed(&self, location: &StorageLocation) -> Result<Option<FrameReader>> {
        Ok(match &location.local {
            Some(path) => if_exists(File::open(path))?.map(FrameReader::of_file),
            None => self.io.get(location)?.map(FrameReader::of_bytes),
        })
    }

    /// Moves a finished temporary file to its place, in one step, replacing nothing that differs
    /// (ids make contents equal, so that replacing is harmless).
    fn persist_file(
        &self,
        location: &StorageLocation,
        file: NamedTempFile,
        durable: bool,
    ) -> Result<()> {
        match &location.local {
            Some(path) => {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)
                        .map_err(|error| Fault::disk("a directory cannot be made", error))?;
                }
                if durable {
                    file.as_file()
                        .sync_all()
                        .map_err(|error| Fault::disk("a file cannot be written", error))?;
                }
                step("name", &location.shown);
                file.persist(path)
                    .map_err(|error| Fault::disk("a file cannot be put in place", error.error))?;
                step("have named", &location.shown);
                Ok(())
            }
            None => self.io.upload_file(location, file.path()),
        }
    }
}

/// Result of a read; `None` if the file does not exist.
fn if_exists<T>(read: std::io::Result<T>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::disk("a state cannot be read", error)),
    }
}
