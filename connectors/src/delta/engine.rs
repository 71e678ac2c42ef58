//! What the kernel asks of its surroundings, answered by Forebay's storage: retries, credentials and stores are the
//! same as for all other reads.

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
use forebay_model::Result;
use forebay_storage::{ScratchDir, StorageClient};
use forebay_threads::parallel_map;
use url::Url;

use super::checkpoint::CheckpointFiles;
use super::place::TablePlace;

/// Files of the log that are read at the same time.
const FILES_AT_ONCE: usize = 16;

/// Actions that are decoded together at most.
pub(super) const ACTIONS_AT_ONCE: usize = 4096;

/// The engine of one table. It reads the log; given a place for temporary files, it also writes checkpoints.
pub(super) struct TableEngine {
    storage: Arc<LogStorage>,
    json: Arc<LogJson>,
    checkpoints: Arc<CheckpointFiles>,
}

impl TableEngine {
    pub(super) fn new(io: &StorageClient, place: &TablePlace) -> TableEngine {
        TableEngine::with_scratch(io, place, None)
    }

    /// An engine that writes checkpoints.
    pub(super) fn for_checkpoints(
        io: &StorageClient,
        place: &TablePlace,
        scratch: &ScratchDir,
    ) -> TableEngine {
        TableEngine::with_scratch(io, place, Some(scratch.clone()))
    }

    fn with_scratch(
        io: &StorageClient,
        place: &TablePlace,
        scratch: Option<ScratchDir>,
    ) -> TableEngine {
        let storage = LogStorage {
            io: io.clone(),
            place: place.clone(),
        };
        TableEngine {
            json: Arc::new(LogJson {
                storage: storage.clone(),
                writes: scratch.is_some(),
            }),
            checkpoints: Arc::new(CheckpointFiles::new(io.clone(), place.clone(), scratch)),
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

/// The answer to what would write where the log is only read.
pub(super) fn read_only() -> KernelError {
    KernelError::unsupported("the log is opened for reading")
}

/// The files of a table's log.
#[derive(Clone)]
struct LogStorage {
    io: StorageClient,
    place: TablePlace,
}

impl LogStorage {
    fn get(&self, url: &Url) -> KernelResult<Bytes> {
        let found = self
            .place
            .locate(&self.io, url)
            .and_then(|place| self.io.get(&place));
        found
            .map_err(KernelError::generic_err)?
            .ok_or_else(|| KernelError::file_not_found(url))
    }

    fn get_slice(&self, (url, range): &FileSlice) -> KernelResult<Bytes> {
        let Some(range) = range else {
            return self.get(url);
        };
        let read = |place| self.io.get_ranges(&place, std::slice::from_ref(range));
        let found = self
            .place
            .locate(&self.io, url)
            .and_then(read)
            .map_err(KernelError::generic_err)?;
        found
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
        let found = self
            .place
            .locate(&self.io, path)
            .and_then(|place| self.io.head(&place));
        let meta = found
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
    /// Whether the file that names the latest checkpoint may be written.
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
        let read = move |group: Vec<FileMeta>| -> Vec<KernelResult<Box<dyn EngineData>>> {
            // A file that is not there is told apart from one that cannot be read.
            let get =
                |at: usize| -> Result<KernelResult<Bytes>> { Ok(storage.get(&group[at].location)) };
            let texts = match parallel_map(group.len(), group.len(), &get) {
                Ok(texts) => texts,
                Err(fault) => return vec![Err(KernelError::generic_err(fault))],
            };
            let decoded = texts
                .into_iter()
                .zip(&group)
                .map(|(text, file)| decode_actions(text?, file, &schema));
            decoded
                .flat_map(|batches| batches.unwrap_or_else(|error| vec![Err(error)]))
                .collect()
        };
        Ok(Box::new(groups.into_iter().flat_map(read)))
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
        let (bytes, LogStorage { io, place }) = (to_json_bytes(data)?, &self.storage);
        let written = place
            .locate(io, url)
            .and_then(|place| io.put_durable(&place, &bytes));
        written
            .map(|()| bytes.len() as FileSize)
            .map_err(KernelError::generic_err)
    }
}

/// The actions of a commit.
fn decode_actions(
    text: Bytes,
    file: &FileMeta,
    schema: &SchemaRef,
) -> KernelResult<Vec<KernelResult<Box<dyn EngineData>>>> {
    let (stored, order) = (
        Arc::new(json_arrow_schema(schema)?),
        build_json_reorder_indices(schema)?,
    );
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
