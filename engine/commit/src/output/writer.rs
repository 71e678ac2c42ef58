//! Writes the files of an output.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use forebay_contract::{EncodedBatch, FileWriter, Sink};
use forebay_model::{Fault, RelativePath, Result, encode_folders_for_urls};
use forebay_storage::failpoint::step;
use forebay_storage::{ScratchDir, StorageClient, StorageLocation};
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::Xxh3;

use super::shard::OutputFile;
use crate::output_layout::DATA_SUFFIX;

/// The limit of files of partitions that are open at a time. Beyond it, the file that was not written to for longest is
/// closed.
const OPEN_FILES_MAX: usize = 64;

/// The buffer of a file: little is left to be written at its end, for which other threads wait.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Files that are made durable one by one, whatever their size. A disk takes some milliseconds for each.
const SYNCED_FILES_MAX: usize = 64;

/// Files of at least these bytes are made durable one by one, so that a disk writes while others are encoded.
const SYNCED_BYTES_MIN: u64 = 1 << 20;

/// The prefix of directories in which files grow.
pub const ATTEMPT: &str = ".attempt-";

/// The files of an output while they are written. On local disks they grow in a directory of this attempt, which gets
/// its final name when all files are whole. In buckets each file is uploaded when it is whole.
pub struct OutputWriter<'a> {
    io: &'a StorageClient,
    sink: &'a dyn Sink,
    schema: SchemaRef,
    directory: RelativePath,
    data: StorageLocation,
    /// Suffix of data files after their extension.
    suffix: &'static str,
    attempt: OutputStaging,
    open: BTreeMap<String, OpenOutputFile>,
    counters: BTreeMap<String, usize>,
    clock: u64,
    done: Vec<OutputFile>,
    /// The directory of files whose bytes are made durable together, if there are any.
    unsynced: Option<std::fs::File>,
}

enum OutputStaging {
    Local {
        dir: tempfile::TempDir,
        target: PathBuf,
    },
    Remote(ScratchDir),
}

struct OpenOutputFile {
    writer: Box<dyn FileWriter>,
    sums: Arc<Mutex<FileChecksum>>,
    file: NamedTempFile,
    path: String,
    rows: u64,
    used: u64,
}

#[derive(Default)]
struct FileChecksum {
    bytes: u64,
    digest: Xxh3,
    failed: Option<std::io::Error>,
}

/// Counts and digests the bytes of a file.
struct ChecksummedFile {
    inner: BufWriter<std::fs::File>,
    sums: Arc<Mutex<FileChecksum>>,
}

impl Write for ChecksummedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        step("write", "a file of rows");
        let written = self.inner.write(bytes)?;
        if let Ok(mut sums) = self.sums.lock() {
            sums.bytes += written as u64;
            sums.digest.update(&bytes[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl Drop for ChecksummedFile {
    fn drop(&mut self) {
        // The writer above may drop us without a flush; its failure must not get lost.
        if let (Err(error), Ok(mut sums)) = (self.inner.flush(), self.sums.lock()) {
            sums.failed = Some(error);
        }
    }
}

impl<'a> OutputWriter<'a> {
    /// Begins an attempt to write a directory of an output.
    pub fn begin(
        io: &'a StorageClient,
        sink: &'a dyn Sink,
        schema: SchemaRef,
        out: &StorageLocation,
        directory: RelativePath,
        scratch: &ScratchDir,
    ) -> Result<Self> {
        let data = out.join(&directory);
        let attempt = match &data.local {
            None => OutputStaging::Remote(scratch.clone()),
            Some(target) => {
                let parent = target
                    .parent()
                    .ok_or_else(|| Fault::internal("a data directory without a parent"))?;
                let dir = std::fs::create_dir_all(parent)
                    .and_then(|()| attempt_dir(parent))
                    .map_err(|error| {
                        Fault::disk("the output directory cannot be made", error).file(&data.shown)
                    })?;
                OutputStaging::Local {
                    dir,
                    target: target.clone(),
                }
            }
        };
        Ok(OutputWriter {
            io,
            sink,
            schema,
            directory,
            data,
            suffix: if out.local.is_some() && sink.table().is_none() {
                DATA_SUFFIX
            } else {
                ""
            },
            attempt,
            open: BTreeMap::new(),
            counters: BTreeMap::new(),
            clock: 0,
            done: Vec::new(),
            unsynced: None,
        })
    }

    fn close_all(&mut self) -> Result<()> {
        self.open
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .iter()
            .try_for_each(|partition| self.close(partition))
    }

    /// Appends encoded rows to a partition's file; starts and ends files as the layout requires.
    pub fn append(&mut self, partition: &str, part: EncodedBatch, ends_file: bool) -> Result<()> {
        self.clock += 1;
        if !self.open.contains_key(partition) {
            if self.open.len() >= OPEN_FILES_MAX {
                let oldest = self
                    .open
                    .iter()
                    .min_by_key(|(_, file)| file.used)
                    .map(|(name, _)| name.clone());
                if let Some(oldest) = oldest {
                    self.close(&oldest)?;
                }
            }
            let file = self.start(partition)?;
            self.open.insert(partition.to_owned(), file);
        }
        let Some(file) = self.open.get_mut(partition) else {
            return Ok(());
        };
        file.rows += part.rows;
        file.used = self.clock;
        let shown_path = || self.data.join(&file.path).shown;
        file.writer
            .append(part)
            .map_err(|fault| fault.file(shown_path()))?;
        if ends_file || file.writer.bytes() >= self.sink.layout().file_bytes_target {
            self.close(partition)?;
        }
        Ok(())
    }

    fn start(&mut self, partition: &str) -> Result<OpenOutputFile> {
        let counter = self.counters.entry(partition.to_owned()).or_default();
        let name = format!("part-{counter:05}.{}{}", self.sink.extension(), self.suffix);
        *counter += 1;
        let path = match partition {
            "" => name,
            folders if self.sink.table().is_some() => {
                format!("{}/{name}", encode_folders_for_urls(folders))
            }
            folders => format!("{folders}/{name}"),
        };
        let failed = |error| Fault::disk("an output file cannot be made", error);
        let file = match &self.attempt {
            OutputStaging::Local { dir, .. } => readable_file(dir.path()).map_err(failed)?,
            OutputStaging::Remote(scratch) => scratch.file()?,
        };
        let sums: Arc<Mutex<FileChecksum>> = Arc::default();
        let inner = BufWriter::with_capacity(WRITTEN_AT_ONCE, file.reopen().map_err(failed)?);
        let out = Box::new(ChecksummedFile {
            inner,
            sums: sums.clone(),
        });
        let writer = self.sink.open_writer(&self.schema, out)?;
        Ok(OpenOutputFile {
            writer,
            sums,
            file,
            path,
            rows: 0,
            used: self.clock,
        })
    }

    fn close(&mut self, partition: &str) -> Result<()> {
        let Some(open) = self.open.remove(partition) else {
            return Ok(());
        };
        let OpenOutputFile {
            writer,
            sums,
            file,
            path,
            rows,
            ..
        } = open;
        let location = self.data.join(&path).shown;
        writer.finish().map_err(|fault| fault.file(&location))?;
        let sums = Arc::try_unwrap(sums)
            .ok()
            .and_then(|sums| sums.into_inner().ok())
            .ok_or_else(|| Fault::internal("a file is still written to after its end"))?;
        let failed = |error| Fault::disk("an output file cannot be written", error).file(&location);
        if let Some(error) = sums.failed {
            return Err(failed(error));
        }
        match &self.attempt {
            OutputStaging::Local { dir, .. } => {
                let is_one_of_many =
                    self.done.len() >= SYNCED_FILES_MAX && sums.bytes < SYNCED_BYTES_MIN;
                if is_one_of_many && cfg!(target_os = "linux") {
                    // Opened before the bytes are written, it reports a failure to write them.
                    if self.unsynced.is_none() {
                        self.unsynced = Some(std::fs::File::open(dir.path()).map_err(failed)?);
                    }
                } else {
                    file.as_file().sync_data().map_err(failed)?;
                }
                let target = dir.path().join(&path);
                if let Some(parent) = target.parent() {
                    std::fs::create_dir_all(parent).map_err(failed)?;
                }
                step("name", "a file of rows");
                file.persist(&target).map_err(|error| failed(error.error))?;
            }
            OutputStaging::Remote(_) => {
                self.io.upload_file(&self.data.join(&path), file.path())?;
            }
        }
        let path = RelativePath::new(path)?;
        self.done.push(OutputFile {
            path,
            rows,
            bytes: sums.bytes,
            digest: format!("{:032x}", sums.digest.digest128()),
        });
        Ok(())
    }

    /// Ends all files and gives the data directory its final name. The returned paths are relative to the output. With
    /// `keep_columns`, an output without rows gets one empty file, which holds the columns.
    pub fn finish(mut self, keep_columns: bool) -> Result<Vec<OutputFile>> {
        let is_empty = self.done.is_empty() && self.open.is_empty();
        if keep_columns && is_empty && self.sink.layout().partition_by.is_empty() {
            let file = self.start("")?;
            self.open.insert(String::new(), file);
        }
        self.close_all()?;
        if let Some(directory) = self.unsynced.take() {
            sync_file_system(&directory).map_err(|error| {
                Fault::disk("the output's files cannot be written", error).file(&self.data.shown)
            })?;
        }
        self.done.sort_by(|a, b| a.path.cmp(&b.path));
        let done = self
            .done
            .iter()
            .map(|file| file.clone().in_directory(&self.directory))
            .collect();
        if let OutputStaging::Local { dir, target } = self.attempt {
            let failed = |error| Fault::disk("the output directory cannot be put in place", error);
            // Equal names mean equal rows: files that another attempt finished stay, for their readers.
            let whole = |file: &OutputFile| {
                std::fs::metadata(target.join(&*file.path))
                    .is_ok_and(|meta| meta.len() == file.bytes)
            };
            if target.exists() && self.done.iter().all(whole) {
                return Ok(done);
            }
            step("name", &self.data.shown);
            if target.exists() {
                std::fs::remove_dir_all(&target).map_err(failed)?;
            }
            let attempt = dir.keep();
            std::fs::rename(&attempt, &target).map_err(failed)?;
            step("have named", &self.data.shown);
        }
        Ok(done)
    }
}

/// Makes all files of the file system of a directory durable, names included.
#[cfg(target_os = "linux")]
fn sync_file_system(directory: &std::fs::File) -> std::io::Result<()> {
    Ok(rustix::fs::syncfs(directory)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(directory: &std::fs::File) -> std::io::Result<()> {
    directory.sync_all()
}

/// Temporary files are private by default; outputs are for others to read.
#[cfg(unix)]
pub fn attempt_dir(parent: &Path) -> std::io::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new()
        .prefix(ATTEMPT)
        .permissions(mode)
        .tempdir_in(parent)
}

#[cfg(unix)]
fn readable_file(dir: &std::path::Path) -> std::io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(dir)
}

#[cfg(not(unix))]
pub fn attempt_dir(parent: &Path) -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(ATTEMPT).tempdir_in(parent)
}

#[cfg(not(unix))]
fn readable_file(dir: &std::path::Path) -> std::io::Result<NamedTempFile> {
    NamedTempFile::new_in(dir)
}
