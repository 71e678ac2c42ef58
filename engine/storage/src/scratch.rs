//! Temporary files of states and passes: unlinked when dropped, found and removed after a kill.

use std::collections::BTreeSet;
use std::fs::{DirEntry, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_model::{
    AdmittedMemory, ContentId, Fault, MemoryRequest, Result, ScratchSpace, SpillFile, SpillWriter,
    codes,
};
use tempfile::{NamedTempFile, TempPath};

use crate::events::{Event, EventListener};
use crate::failpoint::step;
use crate::io::StorageLocation;
use crate::memory::MemoryBudget;

/// The directories of temporary files that this process has, for [`remove_all`].
static DIRECTORIES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A directory that is removed when dropped, and by [`remove_all`].
struct ListedDirectory(tempfile::TempDir);

impl ListedDirectory {
    fn new(directory: tempfile::TempDir) -> ListedDirectory {
        let path = directory.path().to_owned();
        lock_directories().insert(path);
        ListedDirectory(directory)
    }
}

impl Drop for ListedDirectory {
    fn drop(&mut self) {
        lock_directories().remove(self.0.path());
    }
}

fn lock_directories() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all temporary files of this process, as far as the disk allows. For a process that is about to end while
/// threads still compute: what they write then fails.
pub fn remove_all() {
    for directory in lock_directories().iter() {
        // Files that remain are removed by a later run.
        let _ = std::fs::remove_dir_all(directory);
    }
}

/// A directory for this run's temporary files.
#[derive(Clone)]
pub struct ScratchDir {
    dir: Arc<ListedDirectory>,
    watch: Arc<dyn EventListener>,
    spilled: Arc<AtomicU64>,
    /// Memory that answers of this run will take when they are used.
    owed: Arc<Mutex<u64>>,
}

impl ScratchDir {
    /// Makes the directory where runs with this state directory have theirs, or in the system's
    /// directory for temporary files.
    pub fn new(state: Option<&StorageLocation>, listener: Arc<dyn EventListener>) -> Result<Self> {
        let (parent, prefix) = state.map_or_else(
            || (std::env::temp_dir(), "forebay-".to_owned()),
            parent_and_prefix,
        );
        let created = std::fs::create_dir_all(&parent)
            .and_then(|()| tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent));
        let dir = created.map_err(|error| {
            Fault::disk("a directory for temporary files cannot be made", error)
                .file(parent.display().to_string())
        })?;
        Ok(ScratchDir {
            dir: Arc::new(ListedDirectory::new(dir)),
            watch: listener,
            spilled: Arc::default(),
            owed: Arc::default(),
        })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        self.dir.0.path()
    }

    /// A new temporary file.
    pub fn file(&self) -> Result<NamedTempFile> {
        step("make", "a temporary file");
        NamedTempFile::new_in(self.path())
            .map_err(|error| self.fault("a temporary file cannot be made", error))
    }

    /// A fault of the disk, with the directory of the temporary files.
    pub fn fault(&self, message: &str, error: std::io::Error) -> Fault {
        self.locate_fault(Fault::disk(message, error))
    }

    /// Adds the directory to a fault if the directory's disk is full.
    pub fn locate_fault(&self, fault: Fault) -> Fault {
        if fault.code() == codes::DISK_FULL {
            fault.file(self.path().display().to_string())
        } else {
            fault
        }
    }

    /// Counts bytes that were written because memory was short.
    pub fn count_spilled(&self, bytes: u64) {
        self.spilled.fetch_add(bytes, Ordering::Relaxed);
        self.watch.on_event(Event::Spilled { bytes });
    }

    /// A scratch with its own share of memory.
    pub fn scratch_with_budget(
        &self,
        memory: MemoryBudget,
        budget_bytes: usize,
    ) -> Arc<dyn ScratchSpace> {
        Arc::new(DiskScratch {
            dir: self.clone(),
            memory,
            budget_bytes,
        })
    }

    /// Bytes spilled so far.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled.load(Ordering::Relaxed)
    }
}

struct DiskScratch {
    dir: ScratchDir,
    memory: MemoryBudget,
    budget_bytes: usize,
}

impl ScratchSpace for DiskScratch {
    fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    fn create(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(DiskSpillWriter {
            file: BufWriter::with_capacity(1 << 16, self.dir.file()?),
            bytes: 0,
            dir: self.dir.clone(),
        }))
    }

    fn admit(&self, request: MemoryRequest) -> Result<AdmittedMemory> {
        // Held until the answer counts: another request must not find this memory free.
        let mut owed = self.dir.owed.lock().unwrap_or_else(PoisonError::into_inner);
        let reservation = self.memory.admit(request, *owed)?;
        *owed = owed.saturating_add(request.later as u64);
        Ok(AdmittedMemory::reserved_by(reservation))
    }
}

struct DiskSpillWriter {
    file: BufWriter<NamedTempFile>,
    bytes: u64,
    dir: ScratchDir,
}

impl Write for DiskSpillWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl SpillWriter for DiskSpillWriter {
    fn finish(self: Box<Self>) -> Result<Arc<dyn SpillFile>> {
        let dir = &self.dir;
        let file = self
            .file
            .into_inner()
            .map_err(|error| dir.fault("memory cannot be spilled", error.into_error()))?;
        dir.count_spilled(self.bytes);
        // The directory must outlive its files.
        Ok(Arc::new(DiskSpillFile {
            path: file.into_temp_path(),
            bytes: self.bytes,
            _dir: self.dir,
        }))
    }
}

struct DiskSpillFile {
    path: TempPath,
    bytes: u64,
    _dir: ScratchDir,
}

impl SpillFile for DiskSpillFile {
    fn read(&self) -> Result<Box<dyn Read + Send>> {
        let file = File::open(&self.path)
            .map_err(|error| Fault::disk("a spilled file cannot be read", error))?;
        Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Parent directory of temporary directories of runs with a state directory, and the prefix of
/// their names: the state directory itself or, if it lies in a bucket, the system's directory for
/// temporary files.
fn parent_and_prefix(state: &StorageLocation) -> (PathBuf, String) {
    match &state.local {
        Some(local) => (local.clone(), "tmp-".to_owned()),
        None => (
            std::env::temp_dir(),
            format!("forebay-{}-", ContentId::of(state.shown.as_bytes()).short()),
        ),
    }
}

/// The temporary directories of all runs with a state directory, on this machine.
pub fn scratch_directories(state: &StorageLocation) -> impl Iterator<Item = DirEntry> {
    let (parent, prefix) = parent_and_prefix(state);
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter(move |entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}

/// Removes temporary directories that killed runs left, unless their owner lives.
pub fn remove_stale(state: &StorageLocation, keep: &Path, older_than: std::time::Duration) {
    for entry in scratch_directories(state) {
        let path = entry.path();
        let age = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .ok()
            .and_then(|time| time.elapsed().ok());
        if path != keep && age.is_some_and(|age| age > older_than) {
            // What cannot be removed now is removed by a later run.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}
