//! Checkpoints of a log, which are Parquet files.

use std::fs::File;
use std::sync::Arc;

use arrow::array::RecordBatch;
use delta_kernel::engine::arrow_conversion::TryFromArrow as _;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::engine::arrow_utils::{
    RowIndexBuilder, fixup_parquet_read, ordering_needs_row_indexes, parquet_read_plan,
};
use delta_kernel::engine::reader_options;
use delta_kernel::schema::{SchemaRef, StructType};
use delta_kernel::{
    EngineData, FileDataReadResultIterator, FileMeta, FileSize, KernelError, KernelResult,
    KernelResultIteratorStatic, ParquetFooter, ParquetHandler, PredicateRef,
};
use forebay_formats::{FileBatches, FooterCache, file_exists};
use forebay_model::{Result, codes};
use forebay_storage::{ScratchDir, StorageClient};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use url::Url;

use super::place::{TablePlace, full_path};

/// Maximum number of actions that are decoded together.
pub(super) const ACTIONS_AT_ONCE: usize = 4096;

/// Rows of a row group of a checkpoint: each is an action, with the statistics of a file.
const GROUP_ACTIONS: usize = 20_000;

/// Reads and writes the Parquet files that the kernel requests.
pub(super) struct CheckpointFiles {
    io: StorageClient,
    place: TablePlace,
    footers: Arc<FooterCache>,
    /// Directory for checkpoints in progress; `None` where none are written.
    scratch: Option<ScratchDir>,
}

impl CheckpointFiles {
    pub(super) fn new(
        io: StorageClient,
        table_place: TablePlace,
        scratch: Option<ScratchDir>,
    ) -> CheckpointFiles {
        CheckpointFiles {
            io,
            place: table_place,
            footers: Arc::default(),
            scratch,
        }
    }

    fn path(&self, file: &FileMeta) -> Result<String> {
        self.place.locate(&self.io, &file.location).map(full_path)
    }
}

/// Error for writes where the log is only read.
pub(super) fn read_only() -> KernelError {
    KernelError::unsupported("the log is opened for reading")
}

/// Opens a file of the log. One that is listed and not there is missing in the log: a run that is tried again does not
/// find it either.
fn open_listed(
    io: &StorageClient,
    footers: &FooterCache,
    path: &str,
    file: &FileMeta,
) -> KernelResult<FileBatches> {
    FileBatches::open(io, footers, path, file.size).map_err(|fault| {
        let is_gone = fault.code() == codes::CHANGED && matches!(file_exists(io, path), Ok(false));
        if is_gone {
            KernelError::file_not_found(path)
        } else {
            KernelError::generic_err(fault)
        }
    })
}

/// The actions of one file.
fn read_actions(
    io: &StorageClient,
    footers: &FooterCache,
    path: &str,
    file: &FileMeta,
    schema: &SchemaRef,
) -> KernelResult<KernelResultIteratorStatic<Box<dyn EngineData>>> {
    let batches = open_listed(io, footers, path, file)?;
    let metadata = ArrowReaderMetadata::try_new(batches.metadata(), reader_options())?;
    let (order, mask) = parquet_read_plan(schema, &metadata)?;
    let mut rows = if ordering_needs_row_indexes(&order) {
        Some(RowIndexBuilder::new(metadata.metadata().row_groups()).build()?)
    } else {
        None
    };
    let schema = schema.clone();
    let location = file.location.to_string();
    let read = batches
        .rows(metadata, mask, ACTIONS_AT_ONCE)
        .map(move |batch| {
            let batch = batch.map_err(KernelError::generic_err)?;
            let actions: ArrowEngineData =
                fixup_parquet_read(batch, &order, rows.as_mut(), Some(&location), Some(&schema))?;
            Ok(Box::new(actions) as Box<dyn EngineData>)
        });
    Ok(Box::new(read))
}

/// Writes actions to a file.
fn write_actions(
    file: File,
    data: KernelResultIteratorStatic<Box<dyn EngineData>>,
) -> KernelResult<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ACTIONS))
        .build();
    let mut file = Some(file);
    let mut open = None::<ArrowWriter<File>>;
    for actions in data {
        let actions: RecordBatch = ArrowEngineData::try_from_engine_data(actions?)?.into();
        if let Some(file) = file.take() {
            open = Some(ArrowWriter::try_new(
                file,
                actions.schema(),
                Some(properties.clone()),
            )?);
        }
        if let Some(writer) = &mut open {
            writer.write(&actions)?;
        }
    }
    let writer = open.ok_or_else(|| KernelError::generic("a table without a protocol"))?;
    writer.close()?;
    Ok(())
}

impl ParquetHandler for CheckpointFiles {
    fn read_parquet_files(
        &self,
        files: &[FileMeta],
        schema: SchemaRef,
        _: Option<PredicateRef>,
    ) -> KernelResult<FileDataReadResultIterator> {
        let paths = files
            .iter()
            .map(|file| Ok((self.path(file)?, file.clone())))
            .collect::<Result<Vec<_>>>();
        let io = self.io.clone();
        let footers = self.footers.clone();
        let read = move |(path, file): (String, FileMeta)| {
            let actions = read_actions(&io, &footers, &path, &file, &schema);
            actions.unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
        };
        Ok(Box::new(
            paths
                .map_err(KernelError::generic_err)?
                .into_iter()
                .flat_map(read),
        ))
    }

    fn write_parquet_file(
        &self,
        url: Url,
        data: KernelResultIteratorStatic<Box<dyn EngineData>>,
    ) -> KernelResult<FileSize> {
        let Some(scratch) = &self.scratch else {
            return Err(read_only());
        };
        let file = scratch.file().map_err(KernelError::generic_err)?;
        write_actions(file.reopen()?, data)?;
        let bytes = file.as_file().metadata()?.len();
        let location = self
            .place
            .locate(&self.io, &url)
            .map_err(KernelError::generic_err)?;
        self.io
            .upload_durable(&location, file.path())
            .map_err(KernelError::generic_err)?;
        Ok(bytes)
    }

    fn read_parquet_footer(&self, file: &FileMeta) -> KernelResult<ParquetFooter> {
        let path = self.path(file).map_err(KernelError::generic_err)?;
        let metadata = open_listed(&self.io, &self.footers, &path, file)?.metadata();
        let metadata = ArrowReaderMetadata::try_new(metadata, reader_options())?;
        Ok(ParquetFooter {
            schema: Arc::new(StructType::try_from_arrow(metadata.schema().as_ref())?),
        })
    }
}
