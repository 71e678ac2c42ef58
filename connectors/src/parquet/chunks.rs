//! A span as chunks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema};
use arrow::error::ArrowError;
use forebay_model::{
    Chunk, ContentId, Fault, FileRange, Result, RowKeys, Span, catch_panic, codes, logical_type,
};
use forebay_storage::{COALESCE_BYTES_DEFAULT, ScanRequest, StorageClient};
use forebay_threads::for_current_span;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelector,
};
use parquet::file::metadata::ParquetMetaData;
use tokio::task::JoinHandle;

use crate::files::blob::{FileHandle, is_remote};
use crate::files::conform::conform;
use crate::files::origin;
use crate::guard::catch_decode_panic;

use super::fetch::{CachedFile, PageSource, RowGroupReads, column_ranges};
use super::file_chunk_reader::FileChunkReader;
use super::footer::{Footer, FooterCache, OpenedFile};
use super::int96::NanosecondReader;
use super::page_index::{page_ranges, read_page_index, wanted_roots};
use super::plan::FileProjection;
use super::prune::RowGroupPruner;
use super::table::KeptRows;

/// Parts of a row group that are closer together in a store are asked for together. Smaller than for whole row groups:
/// the pages between belong to other parts, and requests go out side by side.
const PART_GAP_BYTES: u64 = 128 << 10;

/// Pieces of a span whose reads are begun before the pieces before them are done; and the same as long as memory for
/// reads is free.
const PIECES_AHEAD: usize = 8;
const PIECES_AHEAD_MAX: usize = 64;

/// Chunks of one span.
pub(crate) struct ParquetScan {
    context: Arc<ScanContext>,
    pieces: VecDeque<PieceState>,
    open: Option<Box<ParquetPieceScan>>,
}

/// What the pieces of a span share.
struct ScanContext {
    io: StorageClient,
    footers: Arc<FooterCache>,
    request: ScanRequest,
    pruner: RowGroupPruner,
}

/// A piece that is still to be read.
enum PieceState {
    Listed(FileRange),
    /// Its footer is on its way.
    Opening(JoinHandle<Result<Box<ParquetPieceScan>>>),
    /// Its row groups are on their way.
    Open(Box<ParquetPieceScan>),
    /// None of its rows matter.
    Pruned(FileRange),
}

/// A file of which row groups are being read.
struct ParquetPieceScan {
    blob: FileHandle,
    footers: Arc<FooterCache>,
    footer: Arc<Footer>,
    plan: FileProjection,
    /// The rows that the table still has.
    kept: Option<Arc<KeptRows>>,
    file: Arc<str>,
    /// Names what it holds.
    content: ContentId,
    seed: u64,
    /// Row groups still to read, and the position of their first rows.
    groups: VecDeque<(usize, u64)>,
    /// The rows of the only row group that are read; `None` means all.
    row_range: Option<(u64, u64)>,
    /// Rows of row groups that are not read, as long as no chunk tells of them.
    skipped: u64,
    /// The row groups, when they come from afar.
    reads: Option<RowGroupReads>,
    /// The pages of a part of a row group, on their way.
    part: Option<RowGroupReads>,
    /// Row groups opened so far.
    fetches: usize,
    /// The decoder's schemas by layout: most row groups share one.
    layouts: Vec<ArrowReaderMetadata>,
    group: Option<RowGroupScan>,
}

/// A row group that is being read.
struct RowGroupScan {
    index: usize,
    reader: Option<ParquetRecordBatchReader>,
    /// The times of type INT96 once more.
    nanoseconds: Option<NanosecondReader>,
    next_row: u64,
    rows_left: u64,
    /// The dictionary of each wanted column, so that all chunks of the row group share it.
    dictionaries: HashMap<usize, ArrayRef>,
}

impl ParquetScan {
    /// Begins to read a span, where it lies in a remote store.
    pub(crate) fn start(
        io: StorageClient,
        footers: Arc<FooterCache>,
        span: Span,
        request: ScanRequest,
        pruner: RowGroupPruner,
    ) -> Self {
        let context = Arc::new(ScanContext {
            io,
            footers,
            request,
            pruner,
        });
        let state =
            |piece: FileRange| match piece.rows.is_some() && !context.pruner.keep_piece(&piece) {
                true => PieceState::Pruned(piece),
                false => PieceState::Listed(piece),
            };
        let pieces = span.pieces.into_iter().map(state).collect();
        let mut scan = ParquetScan {
            context,
            pieces,
            open: None,
        };
        scan.read_ahead();
        scan
    }

    /// Begins to read the next pieces. What fails here fails again, and is told, when the piece is read.
    fn read_ahead(&mut self) {
        for (at, state) in self.pieces.iter_mut().enumerate().take(PIECES_AHEAD_MAX) {
            if at >= PIECES_AHEAD && !self.context.io.wants_reads() {
                return;
            }
            let PieceState::Listed(piece) = state else {
                continue;
            };
            if !is_remote(&piece.path) {
                return;
            }
            // Where the pages of a part lie, an index tells that may have to be read.
            let known = self
                .context
                .footers
                .known(&self.context.io, piece)
                .filter(|_| piece.row_range.is_none());
            if let Some(known) = known {
                let open = self.context.open_known(piece.clone(), known);
                open.into_iter()
                    .for_each(|open| *state = PieceState::Open(Box::new(open)));
            } else if let Ok(runtime) = self.context.io.runtime_handle() {
                let (context, piece) = (self.context.clone(), piece.clone());
                let open = move || {
                    catch_panic(|| {
                        let mut open = context.open_piece(piece)?;
                        open.begin_part(&context.io);
                        Ok(Box::new(open))
                    })
                };
                *state = PieceState::Opening(runtime.spawn_blocking(for_current_span(open)));
            }
        }
    }

    fn open_next(&mut self) -> Result<Option<Box<ParquetPieceScan>>> {
        let open = match self.pieces.pop_front() {
            None | Some(PieceState::Pruned(_)) => return Ok(None),
            Some(PieceState::Listed(piece)) => Box::new(self.context.open_piece(piece)?),
            Some(PieceState::Open(open)) => open,
            Some(PieceState::Opening(open)) => {
                let failed = |error| Fault::internal("a footer was not read").cause(error);
                self.context.io.block_on(open)?.map_err(failed)??
            }
        };
        self.read_ahead();
        Ok(Some(open))
    }

    fn step(&mut self) -> Result<Option<Chunk>> {
        loop {
            if let Some(piece) = &mut self.open {
                let step = piece.step(&self.context.io, &self.context.request);
                let step = step.map_err(|fault| {
                    piece
                        .blob
                        .explain_fault(&piece.file, &piece.footer.stamp, fault)
                })?;
                if let Some(chunk) = step {
                    return Ok(Some(chunk));
                }
                // One row group came in one request, and that cannot be half of two versions.
                if !matches!(piece.blob, FileHandle::Remote(..)) || piece.fetches > 1 {
                    piece
                        .blob
                        .check_unchanged(&piece.file, &piece.footer.stamp)?;
                }
                self.open = None;
            }
            if let Some(PieceState::Pruned(piece)) = self.pieces.front() {
                let chunk = self.context.pruned_piece_chunk(piece)?;
                self.pieces.pop_front();
                return Ok(Some(chunk));
            }
            self.open = self.open_next()?;
            if self.open.is_none() {
                return Ok(None);
            }
        }
    }
}

impl ScanContext {
    /// A chunk without rows that tells of those of a piece that is not opened.
    fn pruned_piece_chunk(&self, piece: &FileRange) -> Result<Chunk> {
        let columns = origin::resolve_columns(piece, &self.request, |_| false)?;
        let batch = origin::assemble_batch(&columns, 0, |_, field| {
            Ok(new_empty_array(field.data_type()))
        })?;
        let keys = self.request.row_keys.then(|| RowKeys::from_keys([]));
        let (file, first_row) = (piece.path.as_str().into(), piece.first_row);
        Ok(Chunk {
            batch,
            keys,
            file,
            first_row,
            skipped: piece.rows.unwrap_or_default(),
        })
    }

    fn open_piece(&self, piece: FileRange) -> Result<ParquetPieceScan> {
        let opened = self.footers.open_piece(&self.io, &piece)?;
        self.open_known(piece, opened)
    }

    /// Opens a piece of a file and begins to read its row groups.
    fn open_known(&self, piece: FileRange, opened: OpenedFile) -> Result<ParquetPieceScan> {
        let OpenedFile { blob, footer } = opened;
        let table = self.footers.table();
        let kept = self.footers.kept_rows(&self.io, &piece.path)?;
        let plan = FileProjection::new(&footer, &piece, &self.request, table.as_deref())?;
        let (from, to) = piece
            .row_groups
            .unwrap_or((0, footer.metadata.num_row_groups()));
        let mut first_row = piece.first_row;
        let mut groups: Vec<(usize, u64)> = Vec::with_capacity(to - from);
        for (i, group) in footer
            .metadata
            .row_groups()
            .iter()
            .enumerate()
            .take(to)
            .skip(from)
        {
            groups.push((i, first_row));
            first_row += group.num_rows() as u64;
        }
        let rows_of = |(i, first_row): (usize, u64)| {
            let rows = rows_of(&footer, i, piece.row_range);
            kept.as_ref()
                .map_or(rows, |kept| kept.count(first_row, rows))
        };
        let rows =
            |groups: &[(usize, u64)]| -> u64 { groups.iter().map(|group| rows_of(*group)).sum() };
        let all = rows(&groups);
        let names = self.pruner.columns();
        if !names.is_empty() {
            let columns = ScanRequest {
                columns: names,
                ..self.request.clone()
            };
            let indices: Vec<usize> = groups.iter().map(|(i, _)| *i).collect();
            let plan = FileProjection::new(&footer, &piece, &columns, table.as_deref())?;
            let keep = self.pruner.keep_row_groups(&footer, &plan, &indices);
            let mut keep = keep.into_iter();
            groups.retain(|_| keep.next().unwrap_or(true));
        }
        let skipped = all - rows(&groups);
        let reads = match &blob {
            // Of a part of a row group only the pages may be wanted that hold it.
            FileHandle::Remote(_, place, etag)
                if plan.reads && piece.row_range.is_none() && footer.file.is_none() =>
            {
                let content = CachedFile {
                    io: self.io.clone(),
                    id: piece.fingerprint,
                };
                let ranges =
                    |group: usize| column_ranges(footer.metadata.row_group(group), &plan.leaves);
                let ranges = groups.iter().map(|(group, _)| ranges(*group));
                Some(RowGroupReads::start(
                    content,
                    place,
                    etag.as_deref(),
                    ranges,
                    COALESCE_BYTES_DEFAULT,
                ))
            }
            _ => None,
        };
        Ok(ParquetPieceScan {
            blob,
            footers: self.footers.clone(),
            plan,
            kept,
            skipped,
            file: piece.path.into(),
            content: piece.fingerprint,
            seed: RowKeys::file_seed(&piece.relative),
            groups: groups.into(),
            row_range: piece.row_range,
            reads,
            part: None,
            fetches: 0,
            layouts: Vec::new(),
            group: None,
            footer,
        })
    }
}

impl Iterator for ParquetScan {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Result<Chunk>> {
        let result = self.step();
        if result.is_err() {
            self.open = None;
            self.pieces.clear();
        }
        result.transpose()
    }
}

impl ParquetPieceScan {
    fn step(&mut self, io: &StorageClient, request: &ScanRequest) -> Result<Option<Chunk>> {
        loop {
            if let Some(mut group) = self.group.take()
                && let Some(chunk) = self.read_chunk(&mut group, request)?
            {
                self.group = Some(group);
                return Ok(Some(chunk));
            }
            let Some((index, first_row)) = self.groups.pop_front() else {
                return self.skipped_rows_chunk(request);
            };
            self.fetches += 1;
            self.group = Some(self.open_group(io, request, index, first_row)?);
        }
    }

    /// A chunk without rows that tells of those that are not read, where no other chunk has told.
    fn skipped_rows_chunk(&mut self, request: &ScanRequest) -> Result<Option<Chunk>> {
        let skipped = std::mem::take(&mut self.skipped);
        if skipped == 0 {
            return Ok(None);
        }
        let batch = origin::assemble_batch(&self.plan.columns, 0, |_, field| {
            Ok(new_empty_array(field.data_type()))
        })?;
        let keys = request.row_keys.then(|| RowKeys::sequence(self.seed, 0, 0));
        Ok(Some(Chunk {
            batch,
            keys,
            file: self.file.clone(),
            first_row: 0,
            skipped,
        }))
    }

    fn open_group(
        &mut self,
        io: &StorageClient,
        request: &ScanRequest,
        index: usize,
        first_row: u64,
    ) -> Result<RowGroupScan> {
        let rows = rows_of(&self.footer, index, self.row_range);
        let mut nanoseconds = None;
        let reader = match self.plan.reads {
            true => {
                let batch_rows = request.batch_rows.min(rows as usize).max(1);
                let range = self.row_range;
                let reader = match self.indexed_part(io, index)? {
                    Some((pages, layout)) => {
                        let metadata = layout.metadata();
                        nanoseconds = NanosecondReader::open(
                            &pages,
                            metadata,
                            |_| true,
                            0,
                            range,
                            batch_rows,
                        )
                        .map_err(|error| self.decode_fault(index, error))?;
                        build_reader(pages, layout, ProjectionMask::all(), 0, range, batch_rows)
                    }
                    None => {
                        let pages = self.page_source(io, index)?;
                        let layout = self.reader_layout(index)?;
                        let is_read = |leaf| self.plan.leaves.contains(&leaf);
                        let metadata = &self.footer.metadata;
                        nanoseconds = NanosecondReader::open(
                            &pages, metadata, is_read, index, range, batch_rows,
                        )
                        .map_err(|error| self.decode_fault(index, error))?;
                        let mask = self.plan.mask.clone();
                        build_reader(pages, layout, mask, index, range, batch_rows)
                    }
                };
                Some(reader.map_err(|error| self.decode_fault(index, error))?)
            }
            false => None,
        };
        Ok(RowGroupScan {
            index,
            reader,
            nanoseconds,
            next_row: first_row,
            rows_left: rows,
            dictionaries: HashMap::new(),
        })
    }

    /// Where the pages of a row group lie; `None` where it has no index.
    fn part_index(&self, index: usize) -> Result<Option<Arc<ParquetMetaData>>> {
        let leaves = &self.plan.leaves;
        let key = (self.content, index, leaves.clone());
        self.footers.page_indexes.find_or_read(key, || {
            let file = FileChunkReader {
                blob: &self.blob,
                path: &self.file,
                size: self.footer.stamp.size,
            };
            read_page_index(&file, &self.footer, index, leaves)
        })
    }

    /// Asks for the pages of a part of a remote row group. What fails here fails again, and is told, when the part is
    /// read.
    fn begin_part(&mut self, io: &StorageClient) {
        let (Some(rows), Some((index, _))) = (self.row_range, self.groups.front().copied()) else {
            return;
        };
        if !self.plan.reads || self.footer.file.is_some() {
            return;
        }
        let (FileHandle::Remote(_, place, etag), Ok(found)) = (&self.blob, self.part_index(index))
        else {
            return;
        };
        let content = CachedFile {
            io: io.clone(),
            id: self.content,
        };
        let begin = |ranges, gap| {
            RowGroupReads::start(
                content,
                place,
                etag.as_deref(),
                std::iter::once(ranges),
                gap,
            )
        };
        match found {
            Some(metadata) => {
                self.part = Some(begin(
                    page_ranges(&metadata, &(rows.0..rows.1)),
                    PART_GAP_BYTES,
                ))
            }
            None => {
                let ranges =
                    column_ranges(self.footer.metadata.row_group(index), &self.plan.leaves);
                self.reads = Some(begin(ranges, COALESCE_BYTES_DEFAULT));
            }
        }
    }

    /// The pages of a part of a row group, and the metadata of them alone; `None` where the whole row group is read, or
    /// its pages have no index.
    fn indexed_part(
        &mut self,
        io: &StorageClient,
        index: usize,
    ) -> Result<Option<(PageSource, ArrowReaderMetadata)>> {
        let (Some(rows), size) = (self.row_range, self.footer.stamp.size) else {
            return Ok(None);
        };
        let Some(metadata) = self.part_index(index)? else {
            return Ok(None);
        };
        let begun = self.part.take();
        let content = CachedFile {
            io: io.clone(),
            id: self.content,
        };
        let pages = match (&self.blob, &self.footer.file) {
            (FileHandle::Local(file), _) => PageSource::Local(file.clone(), size, Some(content)),
            (FileHandle::Remote(..), Some(file)) => PageSource::of_file(file),
            (FileHandle::Remote(_, place, etag), None) => {
                let ranges = || std::iter::once(page_ranges(&metadata, &(rows.0..rows.1)));
                let begin = || {
                    RowGroupReads::start(content, place, etag.as_deref(), ranges(), PART_GAP_BYTES)
                };
                begun.unwrap_or_else(begin).next_group(size)?
            }
        };
        let whole = self.plan.layout(&self.footer, index);
        let wanted = wanted_roots(&self.footer, &self.plan.leaves);
        let fields = whole
            .fields()
            .iter()
            .enumerate()
            .filter(|(root, _)| wanted.contains(root));
        let fields: Fields = fields.map(|(_, field)| field.clone()).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, whole.metadata().clone()));
        let layout =
            ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new().with_schema(schema))
                .map_err(|error| self.decode_fault(index, error.into()))?;
        Ok(Some((pages, layout)))
    }

    fn page_source(&mut self, io: &StorageClient, index: usize) -> Result<PageSource> {
        let size = self.footer.stamp.size;
        let content = CachedFile {
            io: io.clone(),
            id: self.content,
        };
        match &self.blob {
            FileHandle::Local(file) => {
                let group = self.footer.metadata.row_group(index);
                // What cannot be read is met again, and named, page by page.
                let whole = PageSource::whole(file, size, &content, group, &self.plan.leaves);
                Ok(whole.unwrap_or_else(|| PageSource::Local(file.clone(), size, Some(content))))
            }
            FileHandle::Remote(_, place, etag) => match (&mut self.reads, &self.footer.file) {
                (Some(reads), _) => reads.next_group(size),
                (None, Some(file)) => Ok(PageSource::of_file(file)),
                (None, None) => {
                    let ranges =
                        column_ranges(self.footer.metadata.row_group(index), &self.plan.leaves);
                    let (etag, ranges) = (etag.as_deref(), std::iter::once(ranges));
                    RowGroupReads::start(content, place, etag, ranges, COALESCE_BYTES_DEFAULT)
                        .next_group(size)
                }
            },
        }
    }

    fn reader_layout(&mut self, index: usize) -> Result<ArrowReaderMetadata> {
        let schema = self.plan.layout(&self.footer, index);
        if let Some(known) = self.layouts.iter().find(|known| *known.schema() == schema) {
            return Ok(known.clone());
        }
        let options = ArrowReaderOptions::new().with_schema(schema);
        let layout = ArrowReaderMetadata::try_new(self.footer.metadata.clone(), options)
            .map_err(|error| self.decode_fault(index, error.into()))?;
        self.layouts.push(layout.clone());
        Ok(layout)
    }

    /// The next chunk of a row group.
    fn read_chunk(
        &mut self,
        group: &mut RowGroupScan,
        request: &ScanRequest,
    ) -> Result<Option<Chunk>> {
        let (rows, decoded) = match &mut group.reader {
            None if group.rows_left == 0 => return Ok(None),
            None => (
                group.rows_left.min(request.batch_rows as u64) as usize,
                None,
            ),
            Some(reader) => match catch_decode_panic(|| reader.next().transpose())
                .map_err(|error| self.decode_fault(group.index, error))?
            {
                Some(batch) => (batch.num_rows(), Some(batch)),
                None if group.rows_left == 0 => return Ok(None),
                None => {
                    let message = format!(
                        "the row group has {} rows less than the footer says",
                        group.rows_left
                    );
                    return Err(Fault::new(codes::CORRUPT, message)
                        .file(self.file.as_ref())
                        .row_group(group.index));
                }
            },
        };
        if let (Some(nanoseconds), Some(decoded)) = (&mut group.nanoseconds, &decoded) {
            nanoseconds
                .check(decoded, group.next_row)
                .map_err(|fault| fault.file(self.file.as_ref()).row_group(group.index))?;
        }
        let batch = origin::assemble_batch(&self.plan.columns, rows, |i, field| {
            let stored = decoded
                .as_ref()
                .and_then(|batch| batch.column_by_name(&self.plan.stored_names[i]));
            let stored = stored.ok_or_else(|| {
                Fault::internal(format!(
                    "the decoder left out the column `{}`",
                    field.name()
                ))
            })?;
            self.to_dataset_type(stored, field, i, group)
        })?;
        let first_row = group.next_row;
        group.next_row += rows as u64;
        group.rows_left = group.rows_left.saturating_sub(rows as u64);
        let keys = request
            .row_keys
            .then(|| RowKeys::sequence(self.seed, first_row, rows));
        let (batch, keys) = match self
            .kept
            .as_ref()
            .and_then(|kept| kept.mask(first_row, rows))
        {
            // Rows keep the keys that they have by their places in the file.
            Some(mask) => (
                filter_record_batch(&batch, &mask)?,
                keys.map(|keys| keys.filter(&mask)),
            ),
            None => (batch, keys),
        };
        let skipped = std::mem::take(&mut self.skipped);
        Ok(Some(Chunk {
            batch,
            keys,
            file: self.file.clone(),
            first_row,
            skipped,
        }))
    }

    /// A column in the dataset's type; its dictionary is the one that earlier chunks had.
    fn to_dataset_type(
        &self,
        stored: &ArrayRef,
        field: &Field,
        at: usize,
        group: &mut RowGroupScan,
    ) -> Result<ArrayRef> {
        if logical_type(stored.data_type()) != *field.data_type() {
            return conform(stored, field, &self.file, group.next_row)
                .map_err(|fault| fault.row_group(group.index));
        }
        if !matches!(stored.data_type(), DataType::Dictionary(..)) {
            return Ok(stored.clone());
        }
        let Some(keyed) = stored.as_dictionary_opt::<Int32Type>() else {
            return Ok(stored.clone());
        };
        match group.dictionaries.get(&at) {
            Some(known) if same_buffers(known, keyed.values()) => {
                Ok(Arc::new(keyed.with_values(known.clone())))
            }
            // Rows without any value come with a dictionary without any value.
            Some(known)
                if keyed.null_count() == keyed.len() && known.len() >= keyed.values().len() =>
            {
                Ok(Arc::new(keyed.with_values(known.clone())))
            }
            Some(_) => Ok(stored.clone()),
            None => {
                if keyed.null_count() < keyed.len() {
                    group.dictionaries.insert(at, keyed.values().clone());
                }
                Ok(stored.clone())
            }
        }
    }

    /// A fault for bytes that cannot be decoded. The decoder does not say which column it was,
    /// so each is tried alone.
    fn decode_fault(&self, group: usize, error: ArrowError) -> Fault {
        let fault = Fault::new(codes::CORRUPT, "the row group cannot be decoded")
            .file(self.file.as_ref())
            .row_group(group)
            .hint("write or copy the file anew, or take it out of the source");
        let FileHandle::Local(file) = &self.blob else {
            return fault.cause(error);
        };
        let stored = self.footer.metadata.file_metadata().schema_descr();
        let broken = |leaf: &&usize| {
            let pages = PageSource::Local(file.clone(), self.footer.stamp.size, None);
            let options = ArrowReaderOptions::new();
            catch_decode_panic(|| {
                let layout = ArrowReaderMetadata::try_new(self.footer.metadata.clone(), options)?;
                let mask = ProjectionMask::leaves(stored, [**leaf]);
                build_reader(pages, layout, mask, group, None, 8192)?
                    .try_for_each(|batch| batch.map(drop))
            })
            .is_err()
        };
        match self.plan.leaves.iter().find(broken) {
            Some(leaf) => fault
                .column(stored.get_column_root(*leaf).name())
                .cause(error),
            None => fault.cause(error),
        }
    }
}

/// How many rows of a row group are read.
fn rows_of(footer: &Footer, group: usize, row_range: Option<(u64, u64)>) -> u64 {
    row_range.map_or(
        footer.metadata.row_group(group).num_rows() as u64,
        |(from, to)| to - from,
    )
}

pub(super) fn build_reader(
    pages: PageSource,
    layout: ArrowReaderMetadata,
    mask: ProjectionMask,
    group: usize,
    row_range: Option<(u64, u64)>,
    batch_rows: usize,
) -> Result<ParquetRecordBatchReader, ArrowError> {
    catch_decode_panic(|| {
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(pages, layout)
            .with_projection(mask)
            .with_row_groups(vec![group])
            .with_batch_size(batch_rows);
        if let Some((from, to)) = row_range {
            let skipped = RowSelector::skip(from as usize);
            builder = builder.with_row_selection(
                vec![skipped, RowSelector::select((to - from) as usize)].into(),
            );
        }
        Ok(builder.build()?)
    })
}

/// Whether two arrays of strings are the same memory.
fn same_buffers(a: &ArrayRef, b: &ArrayRef) -> bool {
    match (a.as_string_opt::<i32>(), b.as_string_opt::<i32>()) {
        (Some(a), Some(b)) => {
            a.len() == b.len()
                && a.values().as_ptr() == b.values().as_ptr()
                && a.offsets().inner().as_ptr() == b.offsets().inner().as_ptr()
        }
        _ => false,
    }
}
