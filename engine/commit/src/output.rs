//! Output directories: files first, then the manifest that makes them visible.
//!
//! See `output_layout.rs` for where they lie.
//!
//! On local disks a lock keeps others from publishing while files are removed. Buckets have none. There a manifest
//! also names the directories that are being removed, and no later manifest takes one of them back. Each writing of
//! a shard has a directory of its own, so that rows that are computed again never lie in one of these.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use forebay_model::{ContentId, Fault, IdBuilder, RelativePath, Result, codes};
use forebay_plan::RowCounts;
use forebay_storage::failpoint::step;
use forebay_storage::{
    BackgroundTasks, EncodedBatch, FileWriter, ObjectVersion, ScratchDir, Sink, StorageClient, StorageLocation,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::NamedTempFile;
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use crate::degradation_report::DegradationReport;
use crate::output_layout::{DATA_SUFFIX, visible_location};
use crate::visible_files::{check_replaceable, is_shown, show};

/// Files of partitions that are open at the same time at most; beyond, the one that was not
/// written to for longest is closed.
const OPEN_FILES_MAX: usize = 64;

/// Bytes that go to a file at once: little is left for its end, for which others wait.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// How the names of directories begin in which files grow.
pub const ATTEMPT: &str = ".attempt-";

/// What makes the files of an output visible.
pub const MANIFEST: &str = "_manifest.json";

/// The version of manifests.
const FORMAT: u32 = 3;

/// The oldest version that is read: it names no removed directories.
const FORMAT_MIN: u32 = 2;

/// Where the files of an output lie, each shard's in a directory of its own.
pub const DATA: &str = "_data";

/// Keys per request when objects are listed.
const LISTED_AT_ONCE: usize = 1000;

/// How often others may publish between reading the manifest and replacing it.
const PUBLISHED_MEANWHILE_MAX: usize = 100;

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Relative to the output.
    pub path: RelativePath,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// XXH3 of the bytes, 128 bits, hexadecimal.
    pub digest: String,
}

impl OutputFile {
    /// A file of a directory, seen from the output.
    pub fn in_directory(self, directory: &RelativePath) -> OutputFile {
        OutputFile { path: directory.join(&self.path), ..self }
    }
}

/// Files that were made from consecutive spans, and are kept as long as those stay what they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Names everything that determines its rows.
    pub id: String,
    /// The contents of the spans.
    pub spans: Vec<String>,
    /// Rows that were read.
    pub rows_in: u64,
    /// Rows that filters removed.
    pub rows_filtered: u64,
    /// Rows that expansions added.
    pub rows_expanded: i64,
    /// In row order.
    pub files: Vec<OutputFile>,
}

/// What makes an output visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this file.
    pub format: u32,
    /// The pass that wrote the data.
    pub pass: String,
    /// The directory of all files, relative to the root of the output, or the one above theirs.
    pub data: RelativePath,
    /// Columns: name and type.
    pub columns: Vec<(String, String)>,
    /// Rows of all files.
    pub rows: u64,
    /// In row order.
    pub shards: Vec<Shard>,
    /// Where the output was written interval by interval: those that are there, in order of time.
    /// Each has the next of the shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<IntervalEntry>,
    /// What the run did to be on time, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<DegradationReport>,
    /// Directories of the previous manifest. They are kept because readers may still have them open.
    #[serde(default)]
    pub previous: Vec<RelativePath>,
    /// In a bucket, directories that are being removed. No later manifest names their files. Each stays here until it
    /// is seen to be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<RelativePath>,
    /// How many manifests the output has had, from 1: no two of them are equal.
    #[serde(default)]
    pub publication: u64,
}

/// The rows of an interval of time in an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalEntry {
    /// Its start, as it was given.
    pub from: String,
    /// Its end, as it was given.
    pub to: String,
    /// Its first tick in the column of times.
    pub first: i64,
    /// Its last tick.
    pub last: i64,
    /// The pass that wrote it.
    pub pass: String,
    /// How many shards it has.
    pub shards: usize,
}

impl Shard {
    /// Where its files are, seen from the output: a worker's attempt has a directory of its own.
    pub fn directory(&self) -> Result<RelativePath> {
        let of = |file: &OutputFile| file.path.parent_of(2);
        self.files.first().and_then(of).map_or_else(|| shard_directory(&self.id), Ok)
    }

    /// What became of the rows that were read for it.
    pub fn counts(&self) -> RowCounts {
        RowCounts { input: self.rows_in, filtered: self.rows_filtered, expanded: self.rows_expanded }
    }

    /// Both together, but for their names.
    pub fn merged_with(mut self, other: Shard) -> Shard {
        self.rows_in += other.rows_in;
        self.rows_filtered += other.rows_filtered;
        self.rows_expanded += other.rows_expanded;
        self.files.extend(other.files);
        self
    }

    /// Whether every file is there with its size.
    pub fn intact(&self, io: &StorageClient, out: &StorageLocation) -> Result<bool> {
        Ok(intact_shards(io, out, [self])? == [true])
    }
}

/// For each shard, whether every file of it is there with its size.
pub fn intact_shards<'s>(
    io: &StorageClient,
    out: &StorageLocation,
    shards: impl IntoIterator<Item = &'s Shard>,
) -> Result<Vec<bool>> {
    let shards: Vec<&Shard> = shards.into_iter().collect();
    let places = shards.iter().flat_map(|shard| &shard.files).map(|file| out.join(&file.path)).collect();
    let mut found = io.sizes(places)?.into_iter();
    let whole = |shard: &&Shard| {
        let there = found.by_ref().take(shard.files.len()).zip(&shard.files);
        there.filter(|(size, file)| *size == Some(file.bytes)).count() == shard.files.len()
    };
    Ok(shards.iter().map(whole).collect())
}

/// Where the files of a shard go, seen from the output.
pub fn shard_directory(name: impl std::fmt::Display) -> Result<RelativePath> {
    RelativePath::new(format!("{DATA}/{name}"))
}

/// A directory for one writing of a shard: no other writing has it, before or after.
pub fn unique_shard_directory(id: ContentId) -> Result<RelativePath> {
    shard_directory(format_args!("{id}.{}", &Uuid::new_v4().simple().to_string()[..8]))
}

impl Manifest {
    /// Names the files of a pass.
    pub fn new(pass: ContentId, schema: &Schema, shards: Vec<Shard>) -> Result<Self> {
        let columns = schema.fields().iter().map(|field| (field.name().clone(), field.data_type().to_string()));
        Manifest::from_columns(pass, columns.collect(), shards)
    }

    fn from_columns(pass: ContentId, columns: Vec<(String, String)>, shards: Vec<Shard>) -> Result<Self> {
        let data = match shards.as_slice() {
            [shard] => shard.directory()?,
            _ => RelativePath::new(DATA)?,
        };
        let files = shards.iter().flat_map(|shard| &shard.files);
        Ok(Manifest {
            format: FORMAT,
            pass: pass.to_string(),
            data,
            columns,
            rows: files.map(|file| file.rows).sum(),
            shards,
            intervals: Vec::new(),
            ladder: None,
            previous: Vec::new(),
            removed: Vec::new(),
            publication: 0,
        })
    }

    /// Sees to it that a loss of power takes none of its files: they were on disk before they had their names.
    pub fn sync_names(&self, out: &StorageLocation) -> Result<()> {
        let Some(local) = &out.local else { return Ok(()) };
        match std::fs::File::open(local.join("_data")).and_then(|data| data.sync_all()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Fault::disk("the names of an output's files cannot be kept", error))
            }
            _ => Ok(()),
        }
    }

    /// All files, in row order.
    pub fn files(&self) -> impl Iterator<Item = &OutputFile> {
        self.shards.iter().flat_map(|shard| &shard.files)
    }

    /// Whether every file is there with its size.
    pub fn intact(&self, io: &StorageClient, out: &StorageLocation) -> Result<bool> {
        Ok(intact_shards(io, out, &self.shards)?.into_iter().all(|whole| whole))
    }

    /// The manifest of an output, if there is one.
    pub fn read(io: &StorageClient, out: &StorageLocation) -> Result<Option<Manifest>> {
        Ok(Manifest::read_versioned(io, out)?.0)
    }

    /// The manifest of an output, and the version of the file that should hold it.
    fn read_versioned(io: &StorageClient, out: &StorageLocation) -> Result<(Option<Manifest>, Option<ObjectVersion>)> {
        let place = out.join(MANIFEST);
        let Some(file) = io.get_versioned(&place)? else { return Ok((None, None)) };
        let manifest = Manifest::decode(&file.bytes).map_err(|fault| fault.file(&place.shown))?;
        Ok((Some(manifest), Some(file.version)))
    }

    /// Reads a manifest. One that cannot be read is never taken for an absent one: publishing would replace it.
    fn decode(bytes: &[u8]) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct ManifestVersion {
            format: u32,
        }
        let decoded = serde_json::from_slice::<Manifest>(bytes);
        let format = match &decoded {
            Ok(manifest) => Some(manifest.format),
            Err(_) => serde_json::from_slice::<ManifestVersion>(bytes).ok().map(|version| version.format),
        };
        if let Some(other) = format.filter(|format| !(FORMAT_MIN..=FORMAT).contains(format)) {
            let message = format!("the manifest has format {other}, this program reads {FORMAT_MIN} to {FORMAT}");
            let fault = Fault::new(codes::STATE_VERSION, message);
            return Err(fault.hint("use the version of Forebay that wrote it, or write to another directory"));
        }
        decoded
            .map_err(|error| Fault::new(codes::CORRUPT, "the manifest cannot be read").cause(error))
            .and_then(Manifest::validated)
            .map_err(|fault| fault.hint("restore the file, or move the output away and run again: it is written anew"))
    }

    /// The manifest in the record of a pass.
    pub fn from_record(record: &Value) -> Result<Manifest> {
        serde_json::from_value(record["manifest"].clone())
            .map_err(|error| Fault::new(codes::STATE_VERSION, "the record of a pass cannot be read").cause(error))
            .and_then(Manifest::validated)
    }

    /// Refuses names of anything but directories of data, and files in them: what a manifest names is
    /// read, and removed later.
    fn validated(self) -> Result<Manifest> {
        let is_directory = |path: &RelativePath| {
            let name = path.strip_prefix(DATA).and_then(|name| name.strip_prefix('/'));
            name.is_some_and(|name| !name.contains('/'))
        };
        let is_file = |file: &&OutputFile| file.path.parent_of(2).is_some_and(|of| of.starts_with("_data/"));
        let wrong = self.previous.iter().chain(&self.removed).find(|path| !is_directory(path));
        let wrong = wrong.or(Some(&self.data).filter(|data| ***data != *DATA && !is_directory(data)));
        let wrong = wrong.or_else(|| self.files().find(|file| !is_file(file)).map(|file| &file.path));
        match wrong {
            Some(path) => {
                Err(Fault::new(codes::CORRUPT, format!("the manifest names `{path}`, which is no data of an output")))
            }
            None => Ok(self),
        }
    }

    /// Refuses to mix intervals with an output that was written whole, and the other way round.
    pub fn check_interval_mode(&self, interval: bool) -> Result<()> {
        let (is, hint) = match (interval, self.intervals.is_empty()) {
            (true, true) => ("whole", "run without --interval"),
            (false, false) => ("interval by interval", "run with --interval"),
            _ => return Ok(()),
        };
        let fault = Fault::new(codes::OUTPUT_CLASH, format!("the output was written {is}"));
        Err(fault.hint(format!("{hint}, or write to another directory")))
    }

    /// Refuses what could not be published: an interval that does not fit among those that are there.
    pub fn check_interval(
        &self,
        io: &StorageClient,
        out: &StorageLocation,
        stretch: Option<&IntervalEntry>,
    ) -> Result<()> {
        let Some(stretch) = stretch else { return Ok(()) };
        self.clone().merge_interval(stretch.clone(), Manifest::read(io, out)?, out).map(drop)
    }

    /// An interval among those that are there: it replaces the one of the same name.
    fn merge_interval(
        self,
        stretch: IntervalEntry,
        visible: Option<Manifest>,
        out: &StorageLocation,
    ) -> Result<Manifest> {
        let mut all: Vec<(IntervalEntry, Vec<Shard>)> = Vec::new();
        if let Some(visible) = visible {
            if visible.columns != self.columns {
                let message = "the intervals that are there have other columns";
                let hint = "write to another directory, and backfill it";
                return Err(Fault::new(codes::OUTPUT_CLASH, message).file(&out.shown).hint(hint));
            }
            let mut shards = visible.shards.into_iter();
            for known in visible.intervals {
                let of_it: Vec<Shard> = shards.by_ref().take(known.shards).collect();
                if (known.first, known.last) == (stretch.first, stretch.last) {
                    continue;
                }
                if known.first <= stretch.last && stretch.first <= known.last {
                    let message = format!("the interval overlaps that from {} to {}", known.from, known.to);
                    let hint = "give the same interval again to replace it";
                    return Err(Fault::new(codes::OUTPUT_CLASH, message).file(&out.shown).hint(hint));
                }
                all.push((known, of_it));
            }
        }
        all.push((stretch, self.shards));
        all.sort_by_key(|(stretch, _)| stretch.first);
        let mut id = IdBuilder::new("intervals");
        all.iter().for_each(|(stretch, _)| {
            id.text(&stretch.pass);
        });
        let (intervals, shards): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let whole = Manifest::from_columns(id.finish(), self.columns, shards.into_iter().flatten().collect())?;
        Ok(Manifest { intervals, ladder: self.ladder, ..whole })
    }

    /// Publishes the data in one atomic step: as the whole output, or as one interval among the published ones.
    /// If another run publishes concurrently, the step is repeated on top of its manifest. `may` checks that this
    /// run may still publish. It is called after the visible manifest was read: a run that publishes later makes the
    /// replacement fail. Unused directories are removed by a background task in `later`.
    pub fn publish(
        self,
        io: &StorageClient,
        out: &StorageLocation,
        stretch: Option<&IntervalEntry>,
        (may, later): (&dyn Fn() -> Result<()>, &mut BackgroundTasks),
    ) -> Result<Manifest> {
        let lock = lock_output(out)?;
        for _ in 0..PUBLISHED_MEANWHILE_MAX {
            let (visible, version) = Manifest::read_versioned(io, out)?;
            may()?;
            let whole = match stretch {
                Some(stretch) => self.clone().merge_interval(stretch.clone(), visible.clone(), out)?,
                None => self.clone(),
            };
            let same = |visible: &Manifest| {
                (&visible.pass, &visible.shards, &visible.ladder) == (&whole.pass, &whole.shards, &whole.ladder)
            };
            let shown = visible.as_ref().is_some_and(same);
            if shown {
                whole.show_again(out)?;
                return Ok(whole);
            }
            whole.check_present(io, out, visible.as_ref())?;
            if let Some(gone) = whole.replace(visible, version.as_ref(), io, out)? {
                if !gone.is_empty() {
                    let io = io.clone();
                    later.spawn(move || {
                        // The lock keeps other runs from publishing during the removal.
                        let _lock = lock;
                        gone.iter().try_for_each(|place| remove_directory(&io, place))
                    });
                }
                return Ok(whole);
            }
        }
        let fault = Fault::new(codes::LOST_RACE, "other runs publish to this output all the time").file(&out.shown);
        Err(fault.hint("its rows are kept; run the same command again to show them"))
    }

    /// Fails where files are missing or being removed: another run, a collection with another state directory, or a
    /// person may have removed them since they were found. Files of the visible manifest and the one before it are
    /// kept by all runs; on local disks a lost directory of them is noticed.
    fn check_present(&self, io: &StorageClient, out: &StorageLocation, visible: Option<&Manifest>) -> Result<()> {
        let mut kept: BTreeSet<RelativePath> = BTreeSet::new();
        if let Some(visible) = visible {
            kept.extend(visible.directories()?.into_iter().chain(visible.previous.clone()));
        }
        let is_lost = |directory: &RelativePath| match &out.local {
            Some(local) => !local.join(&**directory).is_dir(),
            None => visible.is_some_and(|visible| visible.removed.contains(directory)),
        };
        let (mut lost, mut unkept) = (None, Vec::new());
        for shard in self.shards.iter().filter(|shard| !shard.files.is_empty()) {
            let directory = shard.directory()?;
            if is_lost(&directory) {
                lost.get_or_insert(directory);
            } else if !kept.contains(&directory) {
                unkept.push((shard, directory));
            }
        }
        if lost.is_none() {
            let whole = intact_shards(io, out, unkept.iter().map(|(shard, _)| *shard))?;
            lost = whole.into_iter().zip(unkept).find(|(whole, _)| !whole).map(|(_, (_, directory))| directory);
        }
        match lost {
            Some(directory) => {
                let fault = Fault::new(codes::LOST_RACE, "data of the output was removed before it was published");
                Err(fault.file(out.join(&directory).shown).hint("run the same command again: it is written anew"))
            }
            None => Ok(()),
        }
    }

    /// Shows readers what the manifest names, if a run ended between the two.
    fn show_again(&self, out: &StorageLocation) -> Result<()> {
        match &out.local {
            Some(local) if !is_shown(local, self.files())? => show(local, self.files()),
            _ => Ok(()),
        }
    }

    /// Replaces what is visible, if it is still that. Gives what the manifest before the previous one named and no
    /// later one does.
    fn replace(
        &self,
        visible: Option<Manifest>,
        version: Option<&ObjectVersion>,
        io: &StorageClient,
        out: &StorageLocation,
    ) -> Result<Option<Vec<StorageLocation>>> {
        self.sync_names(out)?;
        check_replaceable(out, visible.iter().flat_map(Manifest::files))?;
        let previous = visible.as_ref().map_or_else(|| Ok(Vec::new()), Manifest::directories)?;
        let needed: BTreeSet<RelativePath> = self.directories()?.into_iter().chain(previous.clone()).collect();
        let publication = visible.as_ref().map_or(0, |visible| visible.publication) + 1;
        let mut gone = match &visible {
            Some(visible) => visible.unemptied_directories(io, out)?,
            None => Vec::new(),
        };
        gone.extend(visible.map(|old| old.previous).unwrap_or_default());
        gone.retain(|old| !needed.contains(old));
        // The lock of a local output is held until they are removed.
        let removed = if out.local.is_some() { Vec::new() } else { gone.clone() };
        let named = Manifest { format: FORMAT, previous, removed, publication, ..self.clone() };
        // Every night reads and writes all of it: no blanks.
        let bytes = serde_json::to_vec(&named).map_err(|error| Fault::internal("a manifest").cause(error))?;
        let place = out.join(MANIFEST);
        match &out.local {
            Some(local) => {
                io.put_durable(&place, &bytes)?;
                show(local, self.files())?;
            }
            None if !io.put_if(&place, Bytes::from(bytes), version)? => return Ok(None),
            None => {}
        }
        Ok(Some(gone.iter().map(|directory| out.join(directory)).collect()))
    }

    /// Names further directories of a bucket as being removed, in the visible manifest, so that no run takes them back:
    /// on local disks the lock sees to that. Gives false where a run published at the same time, or its manifest needs
    /// one of them.
    pub fn announce_removal(io: &StorageClient, out: &StorageLocation, gone: BTreeSet<RelativePath>) -> Result<bool> {
        if out.local.is_some() || gone.is_empty() {
            return Ok(true);
        }
        let (Some(visible), version) = Manifest::read_versioned(io, out)? else { return Ok(true) };
        let needed = visible.directories()?;
        if needed.iter().chain(&visible.previous).any(|directory| gone.contains(directory)) {
            return Ok(false);
        }
        let mut removed = gone;
        removed.extend(visible.removed.iter().cloned());
        let publication = visible.publication + 1;
        let named = Manifest { format: FORMAT, removed: removed.into_iter().collect(), publication, ..visible };
        let bytes = serde_json::to_vec(&named).map_err(|error| Fault::internal("a manifest").cause(error))?;
        io.put_if(&out.join(MANIFEST), Bytes::from(bytes), version.as_ref())
    }

    /// Of the directories that are being removed, those that still hold files.
    fn unemptied_directories(&self, io: &StorageClient, out: &StorageLocation) -> Result<Vec<RelativePath>> {
        let holds_files = |place: &StorageLocation| Ok::<_, Fault>(!io.list(place)?.is_empty());
        // One listing of all data is cheaper than one per directory where many are removed at once.
        if self.removed.len() * LISTED_AT_ONCE <= self.files().count() + LISTED_AT_ONCE {
            let there = self.removed.iter().map(|directory| Ok((holds_files(&out.join(directory))?, directory)));
            let there = there.filter_map(|found| found.map(|(holds, of)| holds.then(|| of.clone())).transpose());
            return there.collect();
        }
        let data = io.list(&out.join(DATA))?;
        let paths: BTreeSet<String> = data.iter().map(|object| object.location.to_string()).collect();
        let is_there = |directory: &&RelativePath| {
            let prefix = format!("{}/", out.join(directory).path);
            paths.range(prefix.clone()..).next().is_some_and(|path| path.starts_with(&prefix))
        };
        Ok(self.removed.iter().filter(is_there).cloned().collect())
    }

    /// Whether a directory is being removed that it needs, according to the visible manifest of a bucket.
    pub fn is_being_removed(&self, removed: &BTreeSet<RelativePath>) -> Result<bool> {
        Ok(!removed.is_empty() && self.directories()?.iter().any(|directory| removed.contains(directory)))
    }

    /// The directories of an output that are being removed. Local outputs have none while they are not locked.
    pub fn removed_directories(io: &StorageClient, out: &StorageLocation) -> Result<BTreeSet<RelativePath>> {
        match out.local {
            Some(_) => Ok(BTreeSet::new()),
            None => {
                Ok(Manifest::read(io, out)?.map(|visible| visible.removed).unwrap_or_default().into_iter().collect())
            }
        }
    }

    /// The directories that it needs.
    pub fn directories(&self) -> Result<Vec<RelativePath>> {
        self.shards.iter().map(Shard::directory).collect()
    }

    /// Refuses a place where the output could not be shown.
    pub fn check_place(io: &StorageClient, out: &StorageLocation) -> Result<()> {
        let visible = if out.local.is_some() { Manifest::read(io, out)? } else { None };
        check_replaceable(out, visible.iter().flat_map(Manifest::files))
    }

    /// Where people find its files: the visible directory, or in a bucket that of the data.
    pub fn shown_at(&self, out: &StorageLocation) -> String {
        match &out.local {
            Some(_) => visible_location(out).shown,
            None => out.join(&self.data).shown,
        }
    }
}

/// Keeps other processes on this machine from publishing in between, until it is dropped. Buckets
/// have no such thing: there, the manifest is replaced only if it is still what it was.
pub fn lock_output(out: &StorageLocation) -> Result<Option<std::fs::File>> {
    let Some(local) = &out.local else { return Ok(None) };
    let failed = |error| Fault::disk("the output cannot be locked", error).file(&out.shown);
    let file = std::fs::File::options().create(true).append(true).open(local.join("_lock")).map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(Some(file))
}

/// Removes a directory of files.
pub fn remove_directory(io: &StorageClient, place: &StorageLocation) -> Result<()> {
    step("remove", &place.shown);
    match &place.local {
        Some(local) => match std::fs::remove_dir_all(local) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Fault::disk("old data cannot be removed", error))
            }
            _ => Ok(()),
        },
        None => io.list(place)?.iter().try_for_each(|object| io.delete(&place.at(&object.location))),
    }
}

/// The files of one output while they are written. On local disks they grow in a directory of
/// this attempt, which gets its name when all are whole; elsewhere each is uploaded when whole.
pub struct OutputWriter<'a> {
    io: &'a StorageClient,
    sink: &'a dyn Sink,
    schema: SchemaRef,
    metadata: Vec<(String, String)>,
    directory: RelativePath,
    data: StorageLocation,
    attempt: OutputStaging,
    open: BTreeMap<String, OpenOutputFile>,
    counters: BTreeMap<String, usize>,
    clock: u64,
    done: Vec<OutputFile>,
}

enum OutputStaging {
    Local { dir: tempfile::TempDir, target: PathBuf },
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

/// Counts and digests what goes to the file.
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
    /// Begins an attempt at a directory of an output.
    pub fn begin(
        io: &'a StorageClient,
        sink: &'a dyn Sink,
        (schema, metadata): (SchemaRef, Vec<(String, String)>),
        (out, directory): (&StorageLocation, RelativePath),
        scratch: &ScratchDir,
    ) -> Result<Self> {
        let data = out.join(&directory);
        let attempt = match &data.local {
            None => OutputStaging::Remote(scratch.clone()),
            Some(target) => {
                let parent = target.parent().ok_or_else(|| Fault::internal("a data directory without a parent"))?;
                let dir = std::fs::create_dir_all(parent)
                    .and_then(|()| attempt_dir(parent))
                    .map_err(|error| Fault::disk("the output directory cannot be made", error).file(&data.shown))?;
                OutputStaging::Local { dir, target: target.clone() }
            }
        };
        Ok(OutputWriter {
            io,
            sink,
            schema,
            metadata,
            directory,
            data,
            attempt,
            open: BTreeMap::new(),
            counters: BTreeMap::new(),
            clock: 0,
            done: Vec::new(),
        })
    }

    fn close_all(&mut self) -> Result<()> {
        self.open.keys().cloned().collect::<Vec<_>>().iter().try_for_each(|partition| self.close(partition))
    }

    /// Adds encoded rows to a partition's file; starts and ends files as the layout asks.
    pub fn append(&mut self, partition: &str, part: EncodedBatch, ends_file: bool) -> Result<()> {
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

    fn start(&mut self, partition: &str) -> Result<OpenOutputFile> {
        let counter = self.counters.entry(partition.to_owned()).or_default();
        let suffix = if self.data.local.is_some() { DATA_SUFFIX } else { "" };
        let name = format!("part-{counter:05}.{}{suffix}", self.sink.extension());
        *counter += 1;
        let path = if partition.is_empty() { name } else { format!("{partition}/{name}") };
        let failed = |error| Fault::disk("an output file cannot be made", error);
        let file = match &self.attempt {
            OutputStaging::Local { dir, .. } => readable_file(dir.path()).map_err(failed)?,
            OutputStaging::Remote(scratch) => scratch.file()?,
        };
        let sums: Arc<Mutex<FileChecksum>> = Arc::default();
        let inner = BufWriter::with_capacity(WRITTEN_AT_ONCE, file.reopen().map_err(failed)?);
        let out = Box::new(ChecksummedFile { inner, sums: sums.clone() });
        let writer = self.sink.open_writer(&self.schema, &self.metadata, out)?;
        Ok(OpenOutputFile { writer, sums, file, path, rows: 0, used: self.clock })
    }

    fn close(&mut self, partition: &str) -> Result<()> {
        let Some(open) = self.open.remove(partition) else { return Ok(()) };
        let OpenOutputFile { writer, sums, file, path, rows, .. } = open;
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
            OutputStaging::Local { dir, .. } => Some(dir.path()),
            OutputStaging::Remote(_) => None,
        };
        match dir {
            Some(dir) => {
                let target = dir.join(&path);
                if let Some(parent) = target.parent() {
                    std::fs::create_dir_all(parent).map_err(failed)?;
                }
                step("name", "a file of rows");
                file.persist(&target).map_err(|error| failed(error.error))?;
            }
            None => self.io.upload_file(&self.data.join(&path), file.path())?,
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

    /// Ends all files and gives the data directory its name. Paths are relative to the output. With
    /// `keep_columns`, no rows at all give one empty file, which tells of the columns.
    pub fn finish(mut self, keep_columns: bool) -> Result<Vec<OutputFile>> {
        let none = self.done.is_empty() && self.open.is_empty();
        if keep_columns && none && self.sink.layout().partition_by.is_empty() {
            let file = self.start("")?;
            self.open.insert(String::new(), file);
        }
        self.close_all()?;
        self.done.sort_by(|a, b| a.path.cmp(&b.path));
        let done = self.done.iter().map(|file| file.clone().in_directory(&self.directory)).collect();
        if let OutputStaging::Local { dir, target } = self.attempt {
            let failed = |error| Fault::disk("the output directory cannot be put in place", error);
            // Equal names mean equal rows: files that another attempt finished stay, for their readers.
            let whole = |file: &OutputFile| {
                std::fs::metadata(target.join(&*file.path)).is_ok_and(|meta| meta.len() == file.bytes)
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

/// Temporary files are private by default; outputs are for others to read.
#[cfg(unix)]
pub fn attempt_dir(parent: &Path) -> std::io::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix(ATTEMPT).permissions(mode).tempdir_in(parent)
}

#[cfg(unix)]
fn readable_file(dir: &std::path::Path) -> std::io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o644)).tempfile_in(dir)
}

#[cfg(not(unix))]
pub fn attempt_dir(parent: &Path) -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(ATTEMPT).tempdir_in(parent)
}

#[cfg(not(unix))]
fn readable_file(dir: &std::path::Path) -> std::io::Result<NamedTempFile> {
    NamedTempFile::new_in(dir)
}

/// Whether the data that a pass's record names is whole.
pub fn record_is_intact(io: &StorageClient, out: &StorageLocation, record: &Value) -> Result<bool> {
    // A record that this program cannot read names nothing: the pass is done again.
    let Ok(manifest) = Manifest::from_record(record) else { return Ok(false) };
    Ok(!manifest.is_being_removed(&Manifest::removed_directories(io, out)?)? && manifest.intact(io, out)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A shard of one file, which is there.
    fn shard(out: &Path, name: &str) -> Shard {
        let path = format!("_data/{name}/part-00000.parquet");
        std::fs::create_dir_all(out.join("_data").join(name)).unwrap();
        std::fs::write(out.join(&path), name).unwrap();
        let file = json!({ "path": path, "rows": 1, "bytes": name.len(), "digest": "0".repeat(32) });
        serde_json::from_value(json!({
            "id": name, "spans": [], "rows_in": 1, "rows_filtered": 0, "rows_expanded": 0, "files": [file]
        }))
        .unwrap()
    }

    #[test]
    fn removed_files_are_not_published_again() {
        let (io, folder) = (StorageClient::new().unwrap(), tempfile::tempdir().unwrap());
        let out = io.resolve(folder.path().to_str().unwrap()).unwrap();
        let publish = |name: &str, shard: &Shard| {
            let manifest =
                Manifest::new(ContentId::of(name.as_bytes()), &Schema::empty(), vec![shard.clone()]).unwrap();
            let mut later = BackgroundTasks::default();
            manifest.publish(&io, &out, None, (&|| Ok(()), &mut later)).and_then(|_| later.join_all())
        };
        let shards = ["a", "b", "c"].map(|name| shard(folder.path(), name));
        shards.iter().for_each(|shard| publish("once", shard).unwrap());
        assert!(!folder.path().join("_data/a").exists(), "two manifests later");
        let fault = publish("again", &shards[0]).unwrap_err();
        assert_eq!(fault.code(), codes::LOST_RACE);
        let visible = Manifest::read(&io, &out).unwrap().unwrap();
        assert!(visible.intact(&io, &out).unwrap());
        // The manifest before keeps its files.
        publish("again", &shards[1]).unwrap();
    }
}
