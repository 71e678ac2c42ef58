//! Environment of the Delta kernel, implemented by Forebay's storage: retries, credentials and
//! stores are those of all other reads.

use std::io::Cursor;
use std::sync::Arc;

use arrow::json::ReaderBuilder;
use bytes::Bytes;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::engine::arrow_expression::ArrowEvaluationHandler;
use delta_kernel::engine::arrow_utils::{
    build_json_reorder_indices, fixup_json_read, json_arrow_schema, parse_json, to_json_bytes,
};
use delta_kernel::schema::SchemaRef;
use delta_kernel::{
    Engine, EngineData, EvaluationHandler, FileDataReadResultIterator, FileMeta, FileSize,
    FileSlice, FilteredEngineData, JsonHandler, KernelError, KernelResult, KernelResultIterator,
    KernelResultIteratorStatic, ParquetHandler, PredicateRef, StorageHandler,
};
use forebay_model::{Fault, Result};
use forebay_storage::{MemoryShortage, ReadReservation, ScratchDir, StorageClient};
use forebay_threads::parallel_map;
use url::Url;

use super::checkpoint::{ACTIONS_AT_ONCE, CheckpointFiles, read_only};
use super::place::TablePlace;

/// Files of the log that are read at the same time.
const FILES_AT_ONCE: usize = 16;

/// Files of the log of at least these bytes together are read once there is memory for them.
const LARGE_LOG_BYTES: u64 = 1 << 20;

/// Times of their bytes that commits take while they are decoded: their text, their actions, and the list of files of
/// the table, with their statistics.
const DECODED_COPIES: u64 = 8;

/// The engine of one table. It reads the log; given a place for temporary files, it also writes checkpoints.
pub(super) struct TableEngine {
    storage: Arc<LogStorage>,
    json: Arc<LogJson>,
    checkpoints: Arc<CheckpointFiles>,
}

impl TableEngine {
    pub(super) fn new(io: &StorageClient, table_place: &TablePlace) -> TableEngine {
        TableEngine::with_scratch(io, table_place, None)
    }

    /// An engine that writes checkpoints.
    pub(super) fn for_checkpoints(
        io: &StorageClient,
        table_place: &TablePlace,
        scratch: &ScratchDir,
    ) -> TableEngine {
        TableEngine::with_scratch(io, table_place, Some(scratch.clone()))
    }

    /// Memory for the descriptions of some decoded files until they have joined the list of the table's files. It must
    /// be given back before more of the log is read, which may wait for memory. `log_bytes` are those of the whole log.
    pub(super) fn reserve_list(
        &self,
        decoded_bytes: u64,
        log_bytes: u64,
    ) -> Result<ReadReservation> {
        let reserved = self.storage.io.read_memory().reserve(decoded_bytes, true);
        reserved.map_err(|shortage| {
            // The memory that is named has to do for all files, not for the next ones alone.
            let expected_bytes = log_bytes.saturating_mul(DECODED_COPIES);
            log_memory_fault(MemoryShortage {
                needed_bytes: shortage.needed_bytes.max(expected_bytes),
                ..shortage
            })
        })
    }

    fn with_scratch(
        io: &StorageClient,
        table_place: &TablePlace,
        scratch: Option<ScratchDir>,
    ) -> TableEngine {
        let storage = LogStorage {
            io: io.clone(),
            place: table_place.clone(),
        };
        TableEngine {
            json: Arc::new(LogJson {
                storage: storage.clone(),
                writes: scratch.is_some(),
            }),
            checkpoints: Arc::new(CheckpointFiles::new(
                io.clone(),
                table_place.clone(),
                scratch,
            )),
            storage: Arc::new(storage),
        }
    }
}

impl Engine for TableEngine {
    fn evaluation_handler(&self) -> Arc<dyn EvaluationHandler> {
        Arc::new(ArrowEvaluationHandler)
    }

    fn storage_handler(&self) -> Arc<dyn StorageHandler> {
        self.storage.clone()
    }

    fn json_handler(&self) -> Arc<dyn JsonHandler> {
        self.json.clone()
    }

    fn parquet_handler(&self) -> Arc<dyn ParquetHandler> {
        self.checkpoints.clone()
    }
}

/// The files of a table's log.
#[derive(Clone)]
struct LogStorage {
    io: StorageClient,
    place: TablePlace,
}

impl LogStorage {
    fn get(&self, url: &Url) -> KernelResult<Bytes> {
        let content = self
            .place
            .locate(&self.io, url)
            .and_then(|location| self.io.get(&location));
        content
            .map_err(KernelError::generic_err)?
            .ok_or_else(|| KernelError::file_not_found(url))
    }

    fn get_slice(&self, (url, range): &FileSlice) -> KernelResult<Bytes> {
        let Some(range) = range else {
            return self.get(url);
        };
        let read = |location| self.io.get_ranges(&location, std::slice::from_ref(range));
        let content = self
            .place
            .locate(&self.io, url)
            .and_then(read)
            .map_err(KernelError::generic_err)?;
        content
            .into_iter()
            .next()
            .ok_or_else(|| KernelError::file_not_found(url))
    }
}

impl StorageHandler for LogStorage {
    fn list_from(&self, path: &Url) -> KernelResult<KernelResultIteratorStatic<FileMeta>> {
        let listed = self
            .place
            .list_after(&self.io, path)
            .map_err(KernelError::generic_err)?;
        Ok(Box::new(listed.into_iter().map(Ok)))
    }

    fn read_files(&self, files: Vec<FileSlice>) -> KernelResult<KernelResultIteratorStatic<Bytes>> {
        let storage = self.clone();
        Ok(Box::new(
            files
                .into_iter()
                .map(move |slice| storage.get_slice(&slice)),
        ))
    }

    fn copy_atomic(&self, _: &Url, _: &Url) -> KernelResult<()> {
        Err(read_only())
    }

    fn put(&self, _: &Url, _: Bytes, _: bool) -> KernelResult<()> {
        Err(read_only())
    }

    fn head(&self, path: &Url) -> KernelResult<FileMeta> {
        let status = self
            .place
            .locate(&self.io, path)
            .and_then(|location| self.io.head(&location));
        let meta = status
            .map_err(KernelError::generic_err)?
            .ok_or_else(|| KernelError::file_not_found(path))?;
        Ok(FileMeta::new(
            path.clone(),
            meta.last_modified.timestamp_millis(),
            meta.size,
        ))
    }

    fn delete(&self, _: &Url) -> KernelResult<()> {
        Err(read_only())
    }
}

/// The commits of a log.
struct LogJson {
    storage: LogStorage,
    /// True if the file that names the latest checkpoint may be written.
    writes: bool,
}

impl JsonHandler for LogJson {
    fn parse_json(
        &self,
        texts: Box<dyn EngineData>,
        schema: SchemaRef,
    ) -> KernelResult<Box<dyn EngineData>> {
        parse_json(texts, schema)
    }

    fn read_json_files(
        &self,
        files: &[FileMeta],
        schema: SchemaRef,
        _: Option<PredicateRef>,
    ) -> KernelResult<FileDataReadResultIterator> {
        let storage = self.storage.clone();
        let groups: Vec<Vec<FileMeta>> = files
            .chunks(FILES_AT_ONCE)
            .map(<[FileMeta]>::to_vec)
            .collect();
        let batches = groups
            .into_iter()
            .flat_map(move |group| read_actions_of(&storage, &group, &schema));
        Ok(Box::new(batches))
    }

    fn write_json_file(
        &self,
        url: &Url,
        data: KernelResultIterator<'_, FilteredEngineData>,
        overwrite: bool,
    ) -> KernelResult<FileSize> {
        // Commits are written apart: only what may be replaced is written here.
        if !self.writes || !overwrite {
            return Err(read_only());
        }
        let bytes = to_json_bytes(data)?;
        let LogStorage {
            io,
            place: table_place,
        } = &self.storage;
        let written = table_place
            .locate(io, url)
            .and_then(|location| io.put_durable(&location, &bytes));
        written
            .map(|()| bytes.len() as FileSize)
            .map_err(KernelError::generic_err)
    }
}

/// Reads commits of a log side by side, and decodes their actions in order. An error takes the place of the actions of
/// its commit.
fn read_actions_of(
    storage: &LogStorage,
    commits: &[FileMeta],
    schema: &SchemaRef,
) -> Vec<KernelResult<Box<dyn EngineData>>> {
    let _reservation = match reserve_for(&storage.io, commits) {
        Ok(reservation) => reservation,
        Err(fault) => return vec![Err(KernelError::generic_err(fault))],
    };
    // The inner result distinguishes a missing file from an unreadable one.
    let read =
        |at: usize| -> Result<KernelResult<Bytes>> { Ok(storage.get(&commits[at].location)) };
    let texts = match parallel_map(commits.len(), commits.len(), &read) {
        Ok(texts) => texts,
        Err(fault) => return vec![Err(KernelError::generic_err(fault))],
    };
    let mut batches = Vec::new();
    for (text, file) in texts.into_iter().zip(commits) {
        match text.and_then(|text| decode_actions(text, file, schema)) {
            Ok(decoded) => batches.extend(decoded),
            Err(error) => batches.push(Err(error)),
        }
    }
    batches
}

/// Memory for commits of a log that are decoded together; `None` where they are small.
fn reserve_for(io: &StorageClient, commits: &[FileMeta]) -> Result<Option<ReadReservation>> {
    let sizes = commits.iter().map(|commit| commit.size);
    let bytes = sizes.fold(0, u64::saturating_add);
    if bytes < LARGE_LOG_BYTES {
        return Ok(None);
    }
    let reserved = io
        .read_memory()
        .reserve(bytes.saturating_mul(DECODED_COPIES), true);
    let largest = commits.iter().max_by_key(|commit| commit.size);
    reserved.map(Some).map_err(|shortage| {
        let fault = log_memory_fault(shortage);
        match largest {
            Some(commit) => fault.file(commit.location.as_str()),
            None => fault,
        }
    })
}

fn log_memory_fault(shortage: MemoryShortage) -> Fault {
    let hint = format!(
        "write a checkpoint of the table, compact its files, or give {}",
        shortage.sufficient_option()
    );
    shortage.fault("reading the table's log").hint(hint)
}

/// The actions of a commit.
fn decode_actions(
    text: Bytes,
    file: &FileMeta,
    schema: &SchemaRef,
) -> KernelResult<Vec<KernelResult<Box<dyn EngineData>>>> {
    let stored = Arc::new(json_arrow_schema(schema)?);
    let order = build_json_reorder_indices(schema)?;
    let builder = ReaderBuilder::new(stored)
        .with_batch_size(ACTIONS_AT_ONCE)
        .with_coerce_primitive(true);
    let mut batches = Vec::new();
    for batch in builder.build(Cursor::new(text))? {
        let actions: ArrowEngineData = fixup_json_read(batch?, &order, file.location.as_str())?;
        batches.push(Ok(Box::new(actions) as Box<dyn EngineData>));
    }
    Ok(batches)
}
