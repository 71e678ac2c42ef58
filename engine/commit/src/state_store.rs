//! The state directory: states and pass records by id, on disk or in a bucket.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use forebay_model::{AnyAnalyzer, AnyState, ContentId, Fault, Finding, IdBuilder, Result, ScratchSpace, codes};
use forebay_plan::Carry;
use forebay_storage::failpoint::step;
use forebay_storage::{METADATA_CACHE_BYTES_MAX, ScratchDir, StorageClient, StorageLocation};
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};
use zstd::zstd_safe;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, ResetDirective};

use crate::decide::{CommitAction, PutOutcome, RecordState, ReuseDecision, decide_commit, decide_reuse};
use crate::output::remove_directory;

/// The version of everything in a state directory.
const FORMAT: u32 = 1;

/// Names and finds committed things.
#[derive(Clone)]
pub struct StateStore {
    /// The storage client.
    pub io: StorageClient,
    /// The state directory.
    pub root: StorageLocation,
    /// Files that are in place, and not yet on the disk.
    unsynced: Arc<Mutex<Vec<PathBuf>>>,
}

/// From so many files on, one call that flushes the file system takes less time than one for each file.
const SYNCED_TOGETHER_MIN: usize = 16;

/// What the headers of carries say.
const CARRY: &str = "carry";

/// The version of carries; windows have versions of their own inside.
const CARRY_VERSION: u32 = 2;

/// How hard carries and states of parts are packed: they are mostly small numbers, and the next night reads
/// carries instead of the days that windows reach when they are smaller than those.
const PACKED: i32 = 1;

/// What the headers of sources' notes say.
const NOTES: &str = "notes";

/// The version of notes; formats have versions of their own inside.
const NOTES_VERSION: u32 = 2;

/// How hard notes are packed: every night reads and writes those of all files.
const NOTES_PACKED: i32 = 1;

/// What the record of a shard is called: the same rows may lie in several outputs.
pub fn shard_name(out: &str, shard: &str) -> String {
    let mut name = IdBuilder::new("shard record");
    name.text(out).text(shard);
    name.finish().to_string()
}

/// What passes over a history keep for the runs after them.
#[derive(Default)]
pub struct RetainedIds {
    /// States of runs of spans.
    pub partials: BTreeSet<ContentId>,
    /// What windows remember.
    pub carries: BTreeSet<ContentId>,
}

/// What the headers of checkpoints say.
const CHECKPOINT: &str = "checkpoint";

/// The version of checkpoints; trainers have versions of their own inside.
const CHECKPOINT_VERSION: u32 = 1;

/// What are called so among what workers get.
const FINDING: &str = "finding";
const INDEX: &str = "index";

/// What the headers of what workers leave for each other say, and the version of the frame.
const EXCHANGED: &str = "exchanged";
const EXCHANGED_VERSION: u32 = 1;

/// Ids as records hold them.
pub fn id_texts(ids: &BTreeSet<ContentId>) -> Vec<String> {
    ids.iter().map(ContentId::to_string).collect()
}

/// The first line of a state's file.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHeader {
    format: u32,
    id: String,
    analyzer: String,
    version: u32,
}

impl FrameHeader {
    pub fn new(id: ContentId, analyzer: &str, version: u32) -> Self {
        FrameHeader { format: FORMAT, id: id.to_string(), analyzer: analyzer.to_owned(), version }
    }
}

impl StateStore {
    /// A state directory, which need not exist yet.
    pub fn new(io: StorageClient, root: StorageLocation) -> Self {
        StateStore { io, root, unsynced: Arc::default() }
    }

    /// Where it is.
    pub fn root(&self) -> &StorageLocation {
        &self.root
    }

    fn state_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("states/{id}"))
    }

    /// Where a pass's record is.
    pub fn pass_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("passes/{id}.json"))
    }

    /// Where the intermediate dataset of a gather is.
    pub fn materialized_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("gathered/{id}"))
    }

    /// Commits a state. Equal ids mean equal bytes, so that the first commit is right. One that is `durable` survives
    /// a loss of power once [`StateStore::sync`] has returned; until then, its digest tells whether it is whole.
    pub fn put_state(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        state: &mut AnyState,
        (scratch, durable): (&ScratchDir, bool),
    ) -> Result<()> {
        let place = self.state_location(id);
        self.put_encoded((&place, id), analyzer, state, scratch, false)?;
        if let Some(path) = place.local.filter(|_| durable) {
            self.unsynced().push(path);
        }
        Ok(())
    }

    /// Waits until all durable states are on the disk: one wait for those of a pass, and not one for each.
    pub fn sync(&self) -> Result<()> {
        let paths = std::mem::take(&mut *self.unsynced());
        let failed = |error| Fault::disk("a state cannot be written", error);
        let open = |path: &Path| File::open(path).map_err(failed);
        #[cfg(target_os = "linux")]
        if let Some(path) = paths.first().filter(|_| paths.len() >= SYNCED_TOGETHER_MIN) {
            return rustix::fs::syncfs(open(path)?).map_err(|error| failed(error.into()));
        }
        paths.iter().try_for_each(|path| open(path)?.sync_all().map_err(failed))
    }

    /// A list is whole, whichever thread failed while it held the lock.
    fn unsynced(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a state to a place.
    pub fn put_encoded(
        &self,
        (place, id): (&StorageLocation, ContentId),
        analyzer: &dyn AnyAnalyzer,
        state: &mut AnyState,
        scratch: &ScratchDir,
        durable: bool,
    ) -> Result<()> {
        let header = FrameHeader::new(id, analyzer.kind(), analyzer.version());
        self.put_framed(place, &header, scratch, durable, &mut |out| analyzer.encode(state, out))
    }

    /// Reads what [`StateStore::put_encoded`] wrote.
    pub fn get_encoded(
        &self,
        (place, id): (&StorageLocation, ContentId),
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Option<AnyState>> {
        let header = FrameHeader::new(id, analyzer.kind(), analyzer.version());
        self.get_framed(place, &header, |input| analyzer.decode(input, scratch))
    }

    /// Reads a state back; `None` when it is absent, of another version, or broken.
    pub fn get_state(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Option<AnyState>> {
        self.get_encoded((&self.state_location(id), id), analyzer, scratch)
    }

    /// Puts what a committed state comes to among the findings; false where it is not there or not whole.
    pub fn load_finding(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
        findings: &mut BTreeMap<ContentId, Arc<Finding>>,
    ) -> Result<bool> {
        let Some(state) = self.get_state(id, analyzer, scratch)? else { return Ok(false) };
        findings.insert(id, Arc::new(analyzer.finish(state)?));
        Ok(true)
    }

    fn carry_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("carries/{id}"))
    }

    /// Commits what windows remember at some point of a history, unless it is there.
    pub fn put_carry(
        &self,
        id: ContentId,
        scratch: &ScratchDir,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        if self.carry_bytes(id)?.is_some() {
            return Ok(());
        }
        let header = FrameHeader::new(id, CARRY, CARRY_VERSION);
        self.put_framed(&self.carry_location(id), &header, scratch, true, &mut |out| write_compressed(out, write))
    }

    /// The bytes of what windows remember at some point, if that is kept.
    pub fn carry_bytes(&self, id: ContentId) -> Result<Option<u64>> {
        Ok(self.io.head(&self.carry_location(id))?.map(|meta| meta.size))
    }

    /// Reads what windows remember; `None` when it is absent, of another version, or broken: then it goes.
    pub fn get_carry(&self, id: ContentId, read: impl FnOnce(&mut dyn Read) -> Result<Carry>) -> Result<Option<Carry>> {
        let place = self.carry_location(id);
        let header = FrameHeader::new(id, CARRY, CARRY_VERSION);
        let found = self.get_framed(&place, &header, |input| read_compressed(input, read))?;
        if found.is_none() && self.io.head(&place)?.is_some() {
            self.io.delete(&place)?;
        }
        Ok(found)
    }

    fn metadata_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("notes/{id}"))
    }

    /// Keeps what a source noted.
    pub fn put_metadata(&self, id: ContentId, notes: &[u8], scratch: &ScratchDir) -> Result<()> {
        let failed = |error| Fault::disk("the notes of a source cannot be written", error);
        let header = FrameHeader::new(id, NOTES, NOTES_VERSION);
        let packed = zstd::encode_all(notes, NOTES_PACKED).map_err(failed)?;
        self.put_framed(&self.metadata_location(id), &header, scratch, false, &mut |out| {
            out.write_all(&packed).map_err(failed)
        })
    }

    /// What a source noted, if it is there and whole.
    pub fn get_metadata(&self, id: ContentId) -> Result<Option<Vec<u8>>> {
        self.get_framed(&self.metadata_location(id), &FrameHeader::new(id, NOTES, NOTES_VERSION), |input| {
            let mut notes = Vec::new();
            let failed = |error| Fault::disk("the notes of a source cannot be read", error);
            let mut unpacked = zstd::Decoder::new(input).map_err(failed)?.take(METADATA_CACHE_BYTES_MAX as u64);
            unpacked.read_to_end(&mut notes).map_err(failed)?;
            Ok(notes)
        })
    }

    fn shared_location(&self, of: ContentId, name: &str) -> StorageLocation {
        self.root.join(&format!("exchanges/{of}/{name}"))
    }

    /// Leaves something for other workers. One that is lost with the machine's power is made again.
    pub fn put_shared(
        &self,
        of: ContentId,
        name: &str,
        scratch: &ScratchDir,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let header = FrameHeader::new(of, EXCHANGED, EXCHANGED_VERSION);
        self.put_framed(&self.shared_location(of, name), &header, scratch, false, write)
    }

    /// Reads what another worker left; `None` when it is absent or broken.
    pub fn get_shared<T>(
        &self,
        of: ContentId,
        name: &str,
        read: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<Option<T>> {
        self.get_framed(&self.shared_location(of, name), &FrameHeader::new(of, EXCHANGED, EXCHANGED_VERSION), read)
    }

    /// Leaves for workers what a committed state comes to, so that they need not find it out each for itself, and
    /// the index to look things up in it.
    pub fn share_finding(
        &self,
        id: ContentId,
        finding: &Finding,
        index: Option<&Buffer>,
        scratch: &ScratchDir,
    ) -> Result<()> {
        let failed = |error| Fault::disk("an index cannot be written", error);
        if let Some(index) = index {
            self.put_shared(id, INDEX, scratch, &mut |out| out.write_all(index).map_err(failed))?;
        }
        self.put_shared(id, FINDING, scratch, &mut |out| {
            let mut writer = StreamWriter::try_new(out, finding.table().schema_ref())?;
            writer.write(finding.table())?;
            Ok(writer.finish()?)
        })
    }

    /// A state that a process of this cluster stored, with its index. With `mapped`, the processes of a machine share
    /// one copy in memory.
    pub fn shared_finding(&self, id: ContentId, mapped: bool) -> Result<Option<Finding>> {
        let Some(finding) = self.shared_table(id, mapped)? else { return Ok(None) };
        Ok(Some(match self.shared_bytes(id, INDEX, mapped)? {
            Some(index) => finding.with_index(index),
            None => finding,
        }))
    }

    /// The same without the index.
    pub fn shared_table(&self, id: ContentId, mapped: bool) -> Result<Option<Finding>> {
        let Some(stream) = self.shared_bytes(id, FINDING, mapped)? else { return Ok(None) };
        // The decoder panics on some bytes that are no Arrow stream.
        let table = catch_unwind(AssertUnwindSafe(|| only_table(stream)));
        Ok(table.ok().flatten().map(Finding::new))
    }

    /// The whole stored file as one buffer; `None` when it is absent or broken.
    fn shared_bytes(&self, of: ContentId, name: &str, mapped: bool) -> Result<Option<Buffer>> {
        let place = self.shared_location(of, name);
        let bytes = match &place.local {
            Some(path) if mapped => map_file(path)?,
            Some(path) => if_exists(std::fs::read(path))?.map(Buffer::from_vec),
            None => self.io.get(&place)?.map(Buffer::from),
        };
        let header = FrameHeader::new(of, EXCHANGED, EXCHANGED_VERSION);
        Ok(bytes.and_then(|bytes| framed_body(&bytes, &header)))
    }

    /// Removes all that workers left for each other under a name.
    pub fn drop_shared(&self, of: ContentId) -> Result<()> {
        remove_directory(&self.io, &self.root.join(&format!("exchanges/{of}")))
    }

    /// Keeps how far a training is. One that is lost with the machine's power is one that is not there.
    pub fn put_checkpoint(&self, id: ContentId, checkpoint: &[u8], scratch: &ScratchDir) -> Result<()> {
        let failed = |error| Fault::disk("a checkpoint cannot be written", error);
        let header = FrameHeader::new(id, CHECKPOINT, CHECKPOINT_VERSION);
        let place = self.checkpoint_location(id);
        self.put_framed(&place, &header, scratch, true, &mut |out| out.write_all(checkpoint).map_err(failed))
    }

    /// How far a training is. What is broken, or of another version, is as if it were not there; one of
    /// another training is a fault.
    pub fn get_checkpoint(&self, id: ContentId) -> Result<Option<Vec<u8>>> {
        let (place, header) = (self.checkpoint_location(id), FrameHeader::new(id, CHECKPOINT, CHECKPOINT_VERSION));
        if let Some((_, Some(found))) = self.open_framed(&place)?
            && found.id != header.id
        {
            let short = found.id.get(..8).unwrap_or(&found.id);
            let message = format!("the checkpoint belongs to training {short}, not to {}", id.short());
            let fault = Fault::new(codes::OTHER_DATA, message).file(&place.shown);
            return Err(fault.hint("remove the file: the training then begins anew"));
        }
        self.get_framed(&place, &header, |input| {
            let mut checkpoint = Vec::new();
            let failed = |error| Fault::disk("a checkpoint cannot be read", error);
            input.read_to_end(&mut checkpoint).map_err(failed)?;
            Ok(checkpoint)
        })
    }

    /// Forgets how far a training was, once its model is published.
    pub fn drop_checkpoint(&self, id: ContentId) -> Result<()> {
        self.io.delete(&self.checkpoint_location(id))
    }

    fn checkpoint_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("checkpoints/{id}"))
    }

    /// The record of a shard of an output, if it is there and can be read.
    pub fn shard_record(&self, out: &str, id: ContentId) -> Result<Option<Value>> {
        let bytes = self.io.get(&self.shard_location(out, id))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Records a shard whose files are whole. Equal ids mean equal rows.
    pub fn put_shard_record(&self, out: &str, id: ContentId, record: &Value) -> Result<()> {
        let bytes = Bytes::from(forebay_model::canonical_json(record));
        self.io.put(&self.shard_location(out, id), bytes)
    }

    /// Records a shard; false if another run has already recorded it.
    pub fn put_shard_record_if_absent(&self, out: &str, id: ContentId, record: &Value) -> Result<bool> {
        let bytes = Bytes::from(forebay_model::canonical_json(record));
        self.io.put_if_absent(&self.shard_location(out, id), bytes)
    }

    fn shard_location(&self, out: &str, id: ContentId) -> StorageLocation {
        self.root.join(&format!("shards/{}.json", shard_name(out, &id.to_string())))
    }

    /// Commits a file of a header, a body and their digest. What is not `durable` may be lost with
    /// the machine's power: its digest tells, and it is made again.
    pub fn put_framed(
        &self,
        place: &StorageLocation,
        header: &FrameHeader,
        scratch: &ScratchDir,
        durable: bool,
        body: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let mut file = scratch.file()?;
        let mut out = ChecksumWriter::begin(file.as_file_mut(), header)?;
        body(&mut out)?;
        out.end()?;
        self.persist_file(place, file, durable)
    }

    /// Reads what [`StateStore::put_framed`] wrote; `None` where it is absent, broken, or of another kind.
    pub fn get_framed<T>(
        &self,
        place: &StorageLocation,
        expected: &FrameHeader,
        body: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<Option<T>> {
        self.get_framed_of(place, std::slice::from_ref(expected), |_, input| body(input))
    }

    /// The same of something of several kinds; the body is told by number which of them it is.
    pub fn get_framed_of<T>(
        &self,
        place: &StorageLocation,
        kinds: &[FrameHeader],
        body: impl FnOnce(usize, &mut dyn Read) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some((mut input, header)) = self.open_framed(place)? else { return Ok(None) };
        let Some(kind) = header.and_then(|header| kinds.iter().position(|kind| *kind == header)) else {
            return Ok(None);
        };
        let Ok(found) = body(kind, &mut input) else { return Ok(None) };
        // Nothing may follow.
        let rest = std::io::copy(&mut input, &mut std::io::sink()).unwrap_or(1);
        Ok((rest == 0 && input.digest_matches()).then_some(found))
    }

    /// What is wrong with a file that [`StateStore::put_framed`] wrote.
    pub fn check_framed(&self, place: &StorageLocation, id: &str) -> Result<Option<&'static str>> {
        let Some((mut input, header)) = self.open_framed(place)? else { return Ok(Some("it is missing")) };
        let Some(header) = header else { return Ok(Some("it has no header")) };
        if header.id != id {
            return Ok(Some("its header is of another id"));
        }
        if header.format != FORMAT {
            return Ok(Some("its header is of another format"));
        }
        let read = std::io::copy(&mut input, &mut std::io::sink()).is_ok();
        Ok((!read || !input.digest_matches()).then_some("its digest is another"))
    }

    /// The body of a file, and its header where that can be read.
    fn open_framed(&self, place: &StorageLocation) -> Result<Option<(ChecksumReader, Option<FrameHeader>)>> {
        let (reader, bytes): (Box<dyn BufRead>, u64) = match &place.local {
            Some(path) => match if_exists(File::open(path))? {
                Some(file) => {
                    let bytes = file.metadata().map(|meta| meta.len()).unwrap_or(0);
                    (Box::new(BufReader::with_capacity(1 << 16, file)), bytes)
                }
                None => return Ok(None),
            },
            None => match self.io.get(place)? {
                Some(bytes) => {
                    let length = bytes.len() as u64;
                    (Box::new(std::io::Cursor::new(bytes)), length)
                }
                None => return Ok(None),
            },
        };
        let mut input = ChecksumReader { inner: reader.take(bytes.saturating_sub(16)), digest: Xxh3::new() };
        let mut line = Vec::new();
        let read = (&mut input.inner).take(HEADER_BYTES_MAX as u64).read_until(b'\n', &mut line);
        input.digest.update(&line);
        let header = read.ok().and_then(|_| serde_json::from_slice::<FrameHeader>(&line).ok());
        Ok(Some((input, header)))
    }

    /// Moves a finished temporary file to its place, in one step, replacing nothing that differs
    /// (ids make contents equal, so that replacing is harmless).
    pub fn persist_file(&self, place: &StorageLocation, file: tempfile::NamedTempFile, durable: bool) -> Result<()> {
        match &place.local {
            Some(path) => {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)
                        .map_err(|error| Fault::disk("a directory cannot be made", error))?;
                }
                if durable {
                    file.as_file().sync_all().map_err(|error| Fault::disk("a file cannot be written", error))?;
                }
                step("name", &place.shown);
                file.persist(path).map_err(|error| Fault::disk("a file cannot be put in place", error.error))?;
                step("have named", &place.shown);
                Ok(())
            }
            None => self.io.upload_file(place, file.path()),
        }
    }

    /// What is known of a pass; `check` tells whether the data that the record names is whole.
    pub fn pass_record(
        &self,
        id: ContentId,
        check: impl Fn(&Value) -> Result<bool>,
    ) -> Result<(ReuseDecision, Option<Value>)> {
        let Some(bytes) = self.io.get(&self.pass_location(id))? else {
            return Ok((decide_reuse(RecordState::Absent), None));
        };
        let record: Option<Value> = serde_json::from_slice(&bytes).ok();
        let readable = record.filter(|record| record["format"] == FORMAT && record["pass"] == id.to_string());
        match readable {
            None => Ok((decide_reuse(RecordState::Foreign), None)),
            Some(record) => Ok((decide_reuse(RecordState::Ours { intact: check(&record)? }), Some(record))),
        }
    }

    /// Records what a pass over a history keeps for the runs after it.
    pub fn put_learn_record(&self, id: ContentId, kept: &RetainedIds) -> Result<()> {
        if kept.partials.is_empty() && kept.carries.is_empty() {
            return Ok(());
        }
        let record = json!({ "partials": id_texts(&kept.partials), "carries": id_texts(&kept.carries) });
        self.io.put(&self.pass_location(id), encode_pass_record(id, &record)?)
    }

    /// Commits a pass's record. `check` tells whether the data that a record names is whole.
    pub fn put_pass_record(
        &self,
        id: ContentId,
        found: ReuseDecision,
        record: &impl Serialize,
        check: impl Fn(&Value) -> Result<bool>,
    ) -> Result<()> {
        let bytes = encode_pass_record(id, record)?;
        let place = self.pass_location(id);
        let outcome = if self.io.put_if_absent(&place, bytes.clone())? {
            PutOutcome::Created
        } else {
            let (standing, _) = self.pass_record(id, check)?;
            PutOutcome::Exists { same: false, intact: standing == ReuseDecision::Reuse }
        };
        match decide_commit(found, outcome) {
            CommitAction::Committed => Ok(()),
            CommitAction::Replace => self.io.put(&place, bytes),
            CommitAction::LostRace => {
                Err(Fault::new(codes::LOST_RACE, "another run committed this pass at the same time")
                    .pass(id.short())
                    .hint("its result stands; run the same command again to use it"))
            }
        }
    }
}

/// The one table of a stream.
fn only_table(mut stream: Buffer) -> Option<RecordBatch> {
    let mut decoder = StreamDecoder::new();
    let table = decoder.decode(&mut stream).ok()??;
    let is_last = matches!(decoder.decode(&mut stream), Ok(None)) && decoder.finish().is_ok();
    is_last.then_some(table)
}

/// A pass's record as it is kept.
fn encode_pass_record(id: ContentId, record: &impl Serialize) -> Result<Bytes> {
    #[derive(Serialize)]
    struct PassRecord<'r, R> {
        format: u32,
        pass: ContentId,
        #[serde(flatten)]
        record: &'r R,
    }
    let record = PassRecord { format: FORMAT, pass: id, record };
    Ok(serde_json::to_vec(&record).map_err(|error| Fault::internal("a pass's record").cause(error))?.into())
}

thread_local! {
    /// What packs and unpacks: states are small and come by the hundred, and to make one takes longer than to use it.
    static PACKER: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Writes something packed.
pub fn write_compressed(out: &mut dyn Write, write: &mut dyn FnMut(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |code| write_failed(std::io::Error::other(zstd_safe::get_error_name(code)));
    let mut packer = PACKER.take().unwrap_or_else(CCtx::create);
    packer.reset(ResetDirective::SessionAndParameters).map_err(failed)?;
    packer.set_parameter(CParameter::CompressionLevel(PACKED)).map_err(failed)?;
    {
        // Numbers come one by one.
        let mut packed = BufWriter::with_capacity(1 << 16, zstd::Encoder::with_context(out, &mut packer));
        write(&mut packed)?;
        packed.into_inner().map_err(|error| write_failed(error.into_error()))?.finish().map_err(write_failed)?;
    }
    PACKER.set(Some(packer));
    Ok(())
}

/// Reads what [`packed`] wrote: all of it.
pub fn read_compressed<T>(input: &mut dyn Read, read: impl FnOnce(&mut dyn Read) -> Result<T>) -> Result<T> {
    let failed = |error| Fault::disk("a state cannot be read", error);
    let broken = |code| failed(std::io::Error::other(zstd_safe::get_error_name(code)));
    let mut unpacker = UNPACKER.take().unwrap_or_else(DCtx::create);
    unpacker.reset(ResetDirective::SessionAndParameters).map_err(broken)?;
    let (found, rest) = {
        let unpacked = zstd::Decoder::with_context(BufReader::with_capacity(1 << 16, input), &mut unpacker);
        let mut unpacked = BufReader::with_capacity(1 << 16, unpacked);
        (read(&mut unpacked)?, std::io::copy(&mut unpacked, &mut std::io::sink()).map_err(failed)?)
    };
    UNPACKER.set(Some(unpacker));
    match rest {
        0 => Ok(found),
        _ => Err(Fault::new(codes::CORRUPT, "more is kept of a state than there should be")),
    }
}

/// Headers are padded to a multiple of so many bytes: the numbers of a mapped file are aligned for use in place.
const ALIGNED: usize = 64;

/// Bytes of a header at most.
const HEADER_BYTES_MAX: usize = 4096;

/// The body of a file that is at hand, where it is whole and its header is this one.
fn framed_body(bytes: &Buffer, expected: &FrameHeader) -> Option<Buffer> {
    let (whole, digest) = bytes.split_last_chunk::<16>()?;
    let line = whole.iter().take(HEADER_BYTES_MAX).position(|byte| *byte == b'\n')?;
    let header = serde_json::from_slice::<FrameHeader>(&whole[..line]).ok()?;
    let is_whole = header == *expected && xxh3_128(whole).to_le_bytes() == *digest;
    is_whole.then(|| bytes.slice_with_length(line + 1, whole.len() - line - 1))
}

/// A file in the state directory, mapped: all processes of the machine that need it share its memory.
fn map_file(path: &Path) -> Result<Option<Buffer>> {
    let Some(file) = if_exists(File::open(path))? else { return Ok(None) };
    // SAFETY: files get their names in the state directory once they are complete, and no process writes them
    // after that. The contents of a removed file stay until the last process unmaps it.
    #[allow(unsafe_code)]
    let mapped = unsafe { Mmap::map(&file) }.map_err(|error| Fault::disk("a file cannot be mapped", error))?;
    Ok(Some(Buffer::from(Bytes::from_owner(mapped))))
}

/// What is read of a file, if it is there.
fn if_exists<T>(read: std::io::Result<T>) -> Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::disk("a state cannot be read", error)),
    }
}

/// A file of a header, a body and their digest, while it is written.
pub struct ChecksumWriter<W> {
    inner: W,
    digest: Xxh3,
}

impl<W: Write> ChecksumWriter<BufWriter<W>> {
    pub fn begin(file: W, header: &FrameHeader) -> Result<Self> {
        let header = serde_json::to_string(header).map_err(|error| Fault::internal("a header").cause(error))?;
        let mut out = ChecksumWriter { inner: BufWriter::with_capacity(1 << 16, file), digest: Xxh3::new() };
        // With the end of the line.
        let width = (header.len() + 1).next_multiple_of(ALIGNED) - 1;
        writeln!(out, "{header:width$}").map_err(write_failed)?;
        Ok(out)
    }

    pub fn end(mut self) -> Result<()> {
        let digest = self.digest.digest128().to_le_bytes();
        self.inner.write_all(&digest).and_then(|()| self.inner.flush()).map_err(write_failed)
    }
}

fn write_failed(error: std::io::Error) -> Fault {
    Fault::disk("a state cannot be written", error)
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// A file of a header, a body and their digest, while it is read.
struct ChecksumReader {
    inner: std::io::Take<Box<dyn BufRead>>,
    digest: Xxh3,
}

impl ChecksumReader {
    /// Whether the digest is that of what was read.
    fn digest_matches(self) -> bool {
        let mut digest = [0; 16];
        self.inner.into_inner().read_exact(&mut digest).is_ok() && self.digest.digest128().to_le_bytes() == digest
    }
}

impl Read for ChecksumReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.digest.update(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;
    use forebay_storage::IgnoreEvents;

    #[test]
    fn shared_findings_round_trip() {
        let (io, folder) = (StorageClient::new().unwrap(), tempfile::tempdir().unwrap());
        let store = StateStore::new(io.clone(), io.resolve(folder.path().to_str().unwrap()).unwrap());
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        for rows in [0, 1, 3] {
            let tokens = Arc::new(StringArray::from_iter_values(["b", "a", "c"].into_iter().take(rows)));
            let counts = Arc::new(Int64Array::from_iter_values((0..rows as i64).rev()));
            let columns: [(&str, ArrayRef); 2] = [("token", tokens), ("count", counts)];
            let left = Finding::new(RecordBatch::try_from_iter(columns).unwrap());
            let id = ContentId::of(&[rows as u8]);
            assert!(store.shared_finding(id, true).unwrap().is_none());
            for index in [None, Some(Buffer::from_vec(vec![1u64, 2, 3]))] {
                store.share_finding(id, &left, index.as_ref(), &scratch).unwrap();
                for mapped in [false, true] {
                    let found = store.shared_finding(id, mapped).unwrap().unwrap();
                    assert_eq!(found, left, "{rows} rows");
                    assert_eq!(found.index(), index.as_ref());
                }
            }
            // Nothing that is broken is used.
            let path = folder.path().join(format!("exchanges/{id}/{FINDING}"));
            let whole = std::fs::read(&path).unwrap();
            assert_eq!(whole.iter().position(|byte| *byte == b'\n'), Some(2 * ALIGNED - 1));
            for at in [3, whole.len() / 2, whole.len() - 1] {
                let mut broken = whole.clone();
                broken[at] ^= 1;
                std::fs::write(&path, broken).unwrap();
                assert!(store.shared_finding(id, true).unwrap().is_none(), "byte {at}");
            }
            std::fs::write(&path, []).unwrap();
            assert!(store.shared_finding(id, true).unwrap().is_none());
        }
    }
}
