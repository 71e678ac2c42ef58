//! Output directories: files first, then the manifest that makes them visible.
//!
//! ```text
//! out/features/_data/<pass id>/part-00000.parquet   immutable, whole before it has this name
//! out/features/_manifest.json                       names the files; replaced in one step
//! out/features/current -> _data/<pass id>           on local disks, for tools that read directories
//! ```

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use forebay_model::{Fault, Result};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::Xxh3;

use crate::scratch::ScratchDir;
use crate::{Encoded, FileWriter, Io, Place, Sink};

/// Files of partitions that are open at the same time at most; beyond, the one that was not
/// written to for longest is closed.
const OPEN_FILES_MAX: usize = 64;

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Relative to the data directory.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// XXH3 of the bytes, 128 bits, hexadecimal.
    pub digest: String,
}

/// What makes an output visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this file.
    pub format: u32,
    /// The pass that wrote the data.
    pub pass: String,
    /// The data directory, relative to the output.
    pub data: String,
    /// Columns: name and type.
    pub columns: Vec<(String, String)>,
    /// Rows of all files.
    pub rows: u64,
    /// In row order.
    pub files: Vec<Written>,
}

impl Manifest {
    /// Whether every file is there with its size.
    pub fn intact(&self, io: &Io, out: &Place) -> Result<bool> {
        for file in &self.files {
            let there = io.head(&out.join(&self.data).join(&file.path))?;
            if there.is_none_or(|meta| meta.size != file.bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The manifest of an output, if there is one.
    pub fn read(io: &Io, out: &Place) -> Result<Option<Manifest>> {
        let bytes = io.get(&out.join("_manifest.json"))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Makes the data visible in one step, then removes what no manifest names any more, except
    /// for the previous data: somebody may be reading it.
    pub fn publish(&self, io: &Io, out: &Place) -> Result<()> {
        let previous = Manifest::read(io, out)?;
        let bytes = serde_json::to_vec_pretty(self).map_err(|error| Fault::internal("a manifest").cause(error))?;
        io.put(&out.join("_manifest.json"), Bytes::from(bytes))?;
        if let Some(local) = &out.local {
            point(&local.join("current"), &self.data)?;
        }
        let keep: Vec<&str> =
            [Some(self.data.as_str()), previous.as_ref().map(|p| p.data.as_str())].into_iter().flatten().collect();
        let root = out.join("_data");
        for object in io.list(&root)? {
            let below = object.location.prefix_match(&root.path).and_then(|mut parts| parts.next());
            let Some(below) = below else { continue };
            if !keep.contains(&format!("_data/{}", below.as_ref()).as_str()) {
                io.delete(&root.at(&object.location))?;
            }
        }
        if let Some(local) = &root.local {
            // Directories that are empty now; those that are not stay.
            for entry in std::fs::read_dir(local).into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
        Ok(())
    }
}

/// Points a symbolic link at something else in one step.
#[cfg(unix)]
fn point(link: &std::path::Path, target: &str) -> Result<()> {
    let failed = |error| Fault::disk("the link `current` cannot be made", error);
    let new = link.with_extension("new");
    let _ = std::fs::remove_file(&new);
    std::os::unix::fs::symlink(target, &new).map_err(failed)?;
    std::fs::rename(&new, link).map_err(failed)
}

#[cfg(not(unix))]
fn point(_link: &std::path::Path, _target: &str) -> Result<()> {
    Ok(())
}

/// The files of one output while they are written. On local disks they grow in a directory of
/// this attempt, which gets its name when all are whole; elsewhere each is uploaded when whole.
pub(crate) struct Files<'a> {
    io: &'a Io,
    sink: &'a dyn Sink,
    schema: SchemaRef,
    metadata: Vec<(String, String)>,
    data: Place,
    attempt: Attempt,
    open: BTreeMap<String, OpenFile>,
    counters: BTreeMap<String, usize>,
    /// Comes before the numbers of files, so that parts are in order.
    prefix: String,
    clock: u64,
    done: Vec<Written>,
}

enum Attempt {
    Local {
        dir: tempfile::TempDir,
        target: PathBuf,
    },
    /// A part of a local attempt: its directory.
    Part(PathBuf),
    Remote(ScratchDir),
}

struct OpenFile {
    writer: Box<dyn FileWriter>,
    sums: Arc<Mutex<Sums>>,
    file: NamedTempFile,
    path: String,
    rows: u64,
    used: u64,
}

#[derive(Default)]
struct Sums {
    bytes: u64,
    digest: Xxh3,
    failed: Option<std::io::Error>,
}

/// Counts and digests what goes to the file.
struct Summing {
    inner: BufWriter<std::fs::File>,
    sums: Arc<Mutex<Sums>>,
}

impl Write for Summing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
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

impl Drop for Summing {
    fn drop(&mut self) {
        // The writer above may drop us without a flush; its failure must not get lost.
        if let (Err(error), Ok(mut sums)) = (self.inner.flush(), self.sums.lock()) {
            sums.failed = Some(error);
        }
    }
}

impl<'a> Files<'a> {
    /// Begins an attempt at the data directory `data` of an output.
    pub fn begin(
        io: &'a Io,
        sink: &'a dyn Sink,
        schema: SchemaRef,
        metadata: Vec<(String, String)>,
        data: Place,
        scratch: &ScratchDir,
    ) -> Result<Self> {
        let attempt = match &data.local {
            None => Attempt::Remote(scratch.clone()),
            Some(target) => {
                let parent = target.parent().ok_or_else(|| Fault::internal("a data directory without a parent"))?;
                let dir = std::fs::create_dir_all(parent)
                    .and_then(|()| attempt_dir(parent))
                    .map_err(|error| Fault::disk("the output directory cannot be made", error).file(&data.shown))?;
                Attempt::Local { dir, target: target.clone() }
            }
        };
        Ok(Files {
            io,
            sink,
            schema,
            metadata,
            data,
            attempt,
            open: BTreeMap::new(),
            counters: BTreeMap::new(),
            prefix: String::new(),
            clock: 0,
            done: Vec::new(),
        })
    }

    /// Files of the same attempt that another thread writes. All rows of part `number` come
    /// before those of the next.
    pub fn part(&self, number: usize) -> Files<'a> {
        let attempt = match &self.attempt {
            Attempt::Local { dir, .. } => Attempt::Part(dir.path().to_owned()),
            Attempt::Part(dir) => Attempt::Part(dir.clone()),
            Attempt::Remote(scratch) => Attempt::Remote(scratch.clone()),
        };
        Files {
            io: self.io,
            sink: self.sink,
            schema: self.schema.clone(),
            metadata: self.metadata.clone(),
            data: self.data.clone(),
            attempt,
            open: BTreeMap::new(),
            counters: BTreeMap::new(),
            prefix: format!("{number:03}-"),
            clock: 0,
            done: Vec::new(),
        }
    }

    /// Takes over what a part wrote.
    pub fn join(&mut self, mut part: Files<'a>) -> Result<()> {
        part.close_all()?;
        self.done.append(&mut part.done);
        Ok(())
    }

    fn close_all(&mut self) -> Result<()> {
        self.open.keys().cloned().collect::<Vec<_>>().iter().try_for_each(|partition| self.close(partition))
    }

    /// Adds encoded rows to a partition's file; starts and ends files as the layout asks.
    pub fn append(&mut self, partition: &str, part: Encoded, ends_file: bool) -> Result<()> {
        self.clock += 1;
        if !self.open.contains_key(partition) {
            if self.open.len() >= OPEN_FILES_MAX {
                let oldest = self.open.iter().min_by_key(|(_, file)| file.used).map(|(name, _)| name.clone());
                if let Some(oldest) = oldest {
                    self.close(&oldest)?;
                }
            }
            let file = self.start(partition)?;
            self.open.insert(partition.to_owned(), file);
        }
        let Some(file) = self.open.get_mut(partition) else { return Ok(()) };
        file.rows += part.rows;
        file.used = self.clock;
        let place = || self.data.join(&file.path).shown;
        file.writer.append(part).map_err(|fault| fault.file(place()))?;
        if ends_file || file.writer.bytes() >= self.sink.layout().file_bytes_target {
            self.close(partition)?;
        }
        Ok(())
    }

    fn start(&mut self, partition: &str) -> Result<OpenFile> {
        let counter = self.counters.entry(partition.to_owned()).or_default();
        let name = format!("part-{}{counter:05}.{}", self.prefix, self.sink.extension());
        *counter += 1;
        let path = if partition.is_empty() { name } else { format!("{partition}/{name}") };
        let failed = |error| Fault::disk("an output file cannot be made", error);
        let file = match &self.attempt {
            Attempt::Local { dir, .. } => readable_file(dir.path()).map_err(failed)?,
            Attempt::Part(dir) => readable_file(dir).map_err(failed)?,
            Attempt::Remote(scratch) => scratch.file()?,
        };
        let sums: Arc<Mutex<Sums>> = Arc::default();
        let inner = BufWriter::with_capacity(1 << 20, file.reopen().map_err(failed)?);
        let out = Box::new(Summing { inner, sums: sums.clone() });
        let writer = self.sink.begin(&self.schema, &self.metadata, out)?;
        Ok(OpenFile { writer, sums, file, path, rows: 0, used: self.clock })
    }

    fn close(&mut self, partition: &str) -> Result<()> {
        let Some(open) = self.open.remove(partition) else { return Ok(()) };
        let OpenFile { writer, sums, file, path, rows, .. } = open;
        let place = self.data.join(&path).shown;
        writer.finish().map_err(|fault| fault.file(&place))?;
        let sums = Arc::try_unwrap(sums)
            .ok()
            .and_then(|sums| sums.into_inner().ok())
            .ok_or_else(|| Fault::internal("a file is still written to after its end"))?;
        let failed = |error| Fault::disk("an output file cannot be written", error).file(&place);
        if let Some(error) = sums.failed {
            return Err(failed(error));
        }
        file.as_file().sync_data().map_err(failed)?;
        let dir = match &self.attempt {
            Attempt::Local { dir, .. } => Some(dir.path()),
            Attempt::Part(dir) => Some(dir.as_path()),
            Attempt::Remote(_) => None,
        };
        match dir {
            Some(dir) => {
                let target = dir.join(&path);
                if let Some(parent) = target.parent() {
                    std::fs::create_dir_all(parent).map_err(failed)?;
                }
                file.persist(&target).map_err(|error| failed(error.error))?;
            }
            None => self.io.put_from(&self.data.join(&path), file.path())?,
        }
        self.done.push(Written { path, rows, bytes: sums.bytes, digest: format!("{:032x}", sums.digest.digest128()) });
        Ok(())
    }

    /// Ends all files and gives the data directory its name.
    pub fn finish(mut self) -> Result<Vec<Written>> {
        if self.done.is_empty() && self.open.is_empty() && self.sink.layout().partition_by.is_empty() {
            // No rows at all: one empty file keeps the columns.
            let file = self.start("")?;
            self.open.insert(String::new(), file);
        }
        self.close_all()?;
        if let Attempt::Local { dir, target } = self.attempt {
            let failed = |error| Fault::disk("the output directory cannot be put in place", error);
            if target.exists() {
                std::fs::remove_dir_all(&target).map_err(failed)?;
            }
            let attempt = dir.keep();
            let parent = target.parent().map(PathBuf::from).unwrap_or_default();
            std::fs::rename(&attempt, &target).map_err(failed)?;
            std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        }
        self.done.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(self.done)
    }
}

/// Temporary files are private by default; outputs are for others to read.
#[cfg(unix)]
fn attempt_dir(parent: &std::path::Path) -> std::io::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix(".attempt-").permissions(mode).tempdir_in(parent)
}

#[cfg(unix)]
fn readable_file(dir: &std::path::Path) -> std::io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o644)).tempfile_in(dir)
}

#[cfg(not(unix))]
fn attempt_dir(parent: &std::path::Path) -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(".attempt-").tempdir_in(parent)
}

#[cfg(not(unix))]
fn readable_file(dir: &std::path::Path) -> std::io::Result<NamedTempFile> {
    NamedTempFile::new_in(dir)
}
