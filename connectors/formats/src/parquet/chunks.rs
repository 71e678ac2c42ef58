//! A span as chunks.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_empty_array};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type, Schema};
use arrow::error::ArrowError;
use forebay_contract::ScanRequest;
use forebay_model::{
    Chunk, ContentId, Fault, FileRange, NameIndex, Result, RowKeys, Span, catch_panic, codes,
    logical_type,
};
use forebay_storage::{COALESCE_BYTES_DEFAULT, ReadMemory, ReadReservation, StorageClient};
use forebay_threads::for_current_span;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;
use tokio::task::JoinHandle;

use crate::files::blob::{FileHandle, is_remote};
use crate::files::conform::conform;
use crate::files::nested_types::{find_type, is_shared};
use crate::files::origin;
use crate::files::shared_values::{CopiedRows, LARGE_COPY_BYTES};
use crate::guard::catch_decode_panic;

use super::fetch::{CachedFile, PageSource, RowGroupReads, column_ranges};
use super::file_chunk_reader::FileChunkReader;
use super::footer::{Footer, FooterCache, OpenedFile};
use super::group_decoder::build_reader;
use super::group_reader::{GroupError, GroupPages, GroupReader};
use super::page_gate::{GatedPages, PageGate};
use super::page_index::{page_ranges, read_page_index, wanted_roots};
use super::plan::FileProjection;
use super::prune::RowGroupPruner;
use super::table::KeptRows;

/// Gap in bytes up to which parts of a row group in a store share a request. Smaller than for whole
/// row groups: the pages between belong to other parts, and requests are concurrent.
const PART_GAP_BYTES: u64 = 128 << 10;

/// Pieces of a span whose reads are begun before the pieces before them are done.
const PIECES_AHEAD: usize = 8;

/// Maximum number of such pieces while memory for reads is free.
const PIECES_AHEAD_MAX: usize = 64;

/// Rows that are decoded at once to find a broken column.
const DECODED_ROWS: usize = 8192;

/// Chunks of one span.
pub struct ParquetScan {
    context: Arc<ScanContext>,
    pieces: VecDeque<PieceState>,
    open: Option<Box<ParquetPieceScan>>,
}

/// Context that the pieces of a span share.
struct ScanContext {
    io: StorageClient,
    footers: Arc<FooterCache>,
    request: ScanRequest,
    pruner: RowGroupPruner,
}

/// A piece that is still to be read.
enum PieceState {
    Listed(FileRange),
    /// The footer is being read.
    Opening(JoinHandle<Result<Box<ParquetPieceScan>>>),
    /// The row groups are being read.
    Open(Box<ParquetPieceScan>),
    /// A piece without relevant rows.
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
    /// Id of the content of the piece.
    content: ContentId,
    seed: u64,
    /// Row groups still to read, and the position of their first rows.
    groups: VecDeque<(usize, u64)>,
    /// The rows of the only row group that are read; `None` means all.
    row_range: Option<(u64, u64)>,
    /// Rows of row groups that are not read, until a chunk counts them.
    skipped: u64,
    /// The row groups, when they come from afar.
    reads: Option<RowGroupReads>,
    /// Requested pages of a part of a row group.
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
    reader: Option<GroupReader>,
    /// Admits its large pages.
    gate: Arc<PageGate>,
    next_row: u64,
    rows_left: u64,
    /// Rows that were decoded with those of the last chunk.
    unconverted: Option<RecordBatch>,
    /// The dictionary of each requested column, so that all chunks of the row group share it.
    dictionaries: HashMap<usize, ArrayRef>,
}

impl ParquetScan {
    /// Begins to read a span, where it lies in a remote store.
    pub fn start(
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
        let state = |piece: FileRange| {
            if piece.rows.is_some() && !context.pruner.keep_piece(&piece) {
                PieceState::Pruned(piece)
            } else {
                PieceState::Listed(piece)
            }
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

    /// Begins to read the next pieces. A failure occurs again when the piece is read, and is
    /// reported then.
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
            let opened = self.context.footers.known(&self.context.io, piece);
            // The positions of the pages of a part are in an index that may have to be read.
            if let Some(opened) = opened
                && piece.row_range.is_none()
            {
                if let Ok(scan) = self.context.open_known(piece.clone(), opened) {
                    *state = PieceState::Open(Box::new(scan));
                }
                continue;
            }
            let Ok(runtime) = self.context.io.runtime_handle() else {
                continue;
            };
            let context = self.context.clone();
            let piece = piece.clone();
            let open = move || catch_panic(|| context.open_and_begin(piece));
            *state = PieceState::Opening(runtime.spawn_blocking(for_current_span(open)));
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
    /// A chunk without rows that counts the rows of a piece that is not opened.
    fn pruned_piece_chunk(&self, piece: &FileRange) -> Result<Chunk> {
        let columns = origin::resolve_columns(piece, &self.request, |_| false)?;
        let batch = origin::assemble_batch(&columns, 0, |_, field| {
            Ok(new_empty_array(field.data_type()))
        })?;
        let keys = self.request.row_keys.then(|| RowKeys::from_keys([]));
        let file = piece.path.as_str().into();
        let first_row = piece.first_row;
        Ok(Chunk {
            batch,
            keys,
            file,
            first_row,
            skipped: piece.rows.unwrap_or_default(),
            unfit: Vec::new(),
        })
    }

    fn open_piece(&self, piece: FileRange) -> Result<ParquetPieceScan> {
        let opened = self.footers.open_piece(&self.io, &piece)?;
        self.open_known(piece, opened)
    }

    /// Opens a piece, and begins to read its row groups or the pages of its part of one.
    fn open_and_begin(&self, piece: FileRange) -> Result<Box<ParquetPieceScan>> {
        let mut scan = self.open_piece(piece)?;
        scan.begin_part(&self.io);
        Ok(Box::new(scan))
    }

    /// Opens a piece of a file and begins to read its row groups.
    fn open_known(&self, piece: FileRange, opened: OpenedFile) -> Result<ParquetPieceScan> {
        let OpenedFile { blob, footer } = opened;
        let table = self.footers.table();
        let kept_rows = self.footers.kept_rows(&self.io, &piece.path)?;
        let plan = FileProjection::new(&footer, &piece, &self.request, table.as_deref())?;
        let mut groups = groups_of(&footer, &piece);
        let all_rows = count_rows(&footer, &piece, kept_rows.as_deref(), &groups);
        self.prune_groups(&footer, &piece, &mut groups)?;
        let read_rows = count_rows(&footer, &piece, kept_rows.as_deref(), &groups);
        let reads = self.begin_reads(&blob, &footer, &piece, &plan, &groups);
        Ok(ParquetPieceScan {
            blob,
            footers: self.footers.clone(),
            plan,
            kept: kept_rows,
            skipped: all_rows - read_rows,
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

    /// Removes those row groups that have no row which meets the conditions of the scan.
    fn prune_groups(
        &self,
        footer: &Footer,
        piece: &FileRange,
        groups: &mut Vec<(usize, u64)>,
    ) -> Result<()> {
        let names = self.pruner.columns();
        if names.is_empty() {
            return Ok(());
        }
        let request = ScanRequest {
            columns: names,
            ..self.request.clone()
        };
        let table = self.footers.table();
        let plan = FileProjection::new(footer, piece, &request, table.as_deref())?;
        let indices: Vec<usize> = groups.iter().map(|(index, _)| *index).collect();
        let keep = self.pruner.keep_row_groups(footer, &plan, &indices);
        let mut keep = keep.into_iter();
        groups.retain(|_| keep.next().unwrap_or(true));
        Ok(())
    }

    /// Begins to read whole row groups of a remote file. For a part of one, only the pages that hold it may be needed.
    fn begin_reads(
        &self,
        blob: &FileHandle,
        footer: &Footer,
        piece: &FileRange,
        plan: &FileProjection,
        groups: &[(usize, u64)],
    ) -> Option<RowGroupReads> {
        let FileHandle::Remote(_, location, etag) = blob else {
            return None;
        };
        if !plan.reads || piece.row_range.is_some() || footer.file.is_some() {
            return None;
        }
        let content = CachedFile {
            io: self.io.clone(),
            id: piece.fingerprint,
        };
        let metadata = &footer.metadata;
        let ranges = groups
            .iter()
            .map(|(group, _)| column_ranges(metadata.row_group(*group), &plan.leaves));
        Some(RowGroupReads::start(
            content,
            location,
            etag.as_deref(),
            ranges,
            COALESCE_BYTES_DEFAULT,
        ))
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

    /// A chunk without rows that counts the rows that are not read, if no other chunk has counted
    /// them.
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
            unfit: Vec::new(),
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
        let group = self.footer.metadata.row_group(index);
        let gate = PageGate::new(io.read_memory().clone(), group);
        let mut reader = None;
        if self.plan.reads {
            let pages = self.group_pages(io, index, &gate)?;
            let opened = GroupReader::open(pages, request.batch_rows);
            reader = Some(opened.map_err(|error| self.group_fault(index, &gate, error))?);
        }
        Ok(RowGroupScan {
            index,
            reader,
            gate,
            next_row: first_row,
            rows_left: rows,
            unconverted: None,
            dictionaries: HashMap::new(),
        })
    }

    /// The pages of a row group, or of the part of it that is read.
    fn group_pages(
        &mut self,
        io: &StorageClient,
        index: usize,
        gate: &Arc<PageGate>,
    ) -> Result<GroupPages> {
        let group_rows = self.footer.metadata.row_group(index).num_rows() as u64;
        let rows = self.row_range.unwrap_or((0, group_rows));
        let is_part = self.row_range.is_some();
        let gated = |pages, is_indexed| GatedPages::new(pages, gate.clone(), is_indexed);
        if let Some((pages, layout)) = self.indexed_part(io, index)? {
            // The layout has the wanted columns of one row group and nothing else.
            return Ok(GroupPages {
                pages: gated(pages, true),
                leaves: (0..self.plan.leaves.len()).collect(),
                layout,
                group: 0,
                rows,
                is_part,
            });
        }
        Ok(GroupPages {
            pages: gated(self.page_source(io, index)?, false),
            layout: self.reader_layout(index)?,
            leaves: self.plan.leaves.clone(),
            group: index,
            rows,
            is_part,
        })
    }

    /// The fault for a row group that is not decoded.
    fn group_fault(&self, group: usize, gate: &PageGate, error: GroupError) -> Fault {
        let placed = |fault: Fault| fault.file(self.file.as_ref()).row_group(group);
        if let Some(refusal) = gate.take_refusal() {
            let fault = placed(refusal.fault());
            return match self.column_at(group, refusal.offset) {
                Some(column) => fault.column(column),
                None => fault,
            };
        }
        match error {
            GroupError::Decode(error) => self.decode_fault(group, Some(gate.memory()), error),
            GroupError::Fault(fault) => placed(fault),
            GroupError::Shortage(shortage, column) => {
                let hint = format!(
                    "write the file in smaller row groups, read fewer columns, or give {}",
                    shortage.sufficient_option()
                );
                let fault = placed(shortage.fault("decoding some rows").hint(hint));
                match column {
                    Some(column) => fault.column(column),
                    None => fault,
                }
            }
        }
    }

    /// The column that has a byte of the file.
    fn column_at(&self, group: usize, offset: u64) -> Option<&str> {
        let stored = self.footer.metadata.file_metadata().schema_descr();
        let group = self.footer.metadata.row_group(group);
        let has_byte = |leaf: &&usize| {
            let (start, length) = group.column(**leaf).byte_range();
            (start..start + length).contains(&offset)
        };
        let leaf = self.plan.leaves.iter().find(has_byte)?;
        Some(stored.get_column_root(*leaf).name())
    }

    /// Places of the pages of a row group; `None` where it has no index.
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

    /// Submits reads of the pages of a part of a remote row group. A failure occurs again when the
    /// part is read, and is reported then.
    fn begin_part(&mut self, io: &StorageClient) {
        let Some((first, end)) = self.row_range else {
            return;
        };
        let Some((index, _)) = self.groups.front().copied() else {
            return;
        };
        if !self.plan.reads || self.footer.file.is_some() {
            return;
        }
        let FileHandle::Remote(_, location, etag) = &self.blob else {
            return;
        };
        let Ok(part) = self.part_index(index) else {
            return;
        };
        let content = CachedFile {
            io: io.clone(),
            id: self.content,
        };
        let begin = |ranges, gap| {
            RowGroupReads::start(
                content,
                location,
                etag.as_deref(),
                std::iter::once(ranges),
                gap,
            )
        };
        match part {
            Some(metadata) => {
                self.part = Some(begin(page_ranges(&metadata, &(first..end)), PART_GAP_BYTES))
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
        let Some((first, end)) = self.row_range else {
            return Ok(None);
        };
        let Some(metadata) = self.part_index(index)? else {
            return Ok(None);
        };
        let size = self.footer.stamp.size;
        let begun = self.part.take();
        let content = CachedFile {
            io: io.clone(),
            id: self.content,
        };
        let pages = match (&self.blob, &self.footer.file) {
            (FileHandle::Local(file), _) => PageSource::Local(file.clone(), size, Some(content)),
            (FileHandle::Memory(bytes), _) => PageSource::of_file(bytes),
            (FileHandle::Remote(..), Some(file)) => PageSource::of_file(file),
            (FileHandle::Remote(_, location, etag), None) => {
                let mut reads = match begun {
                    Some(reads) => reads,
                    None => RowGroupReads::start(
                        content,
                        location,
                        etag.as_deref(),
                        std::iter::once(page_ranges(&metadata, &(first..end))),
                        PART_GAP_BYTES,
                    ),
                };
                reads.next_group(size)?
            }
        };
        // The metadata of the part has no columns but those that are read.
        let whole = self.plan.layout(&self.footer, index);
        let roots = wanted_roots(&self.footer, &self.plan.leaves);
        let mut fields: Vec<FieldRef> = Vec::with_capacity(roots.len());
        for (root, field) in whole.fields().iter().enumerate() {
            if roots.contains(&root) {
                fields.push(field.clone());
            }
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, whole.metadata().clone()));
        let options = ArrowReaderOptions::new().with_schema(schema);
        let layout = ArrowReaderMetadata::try_new(metadata, options)
            .map_err(|error| self.decode_fault(index, None, error.into()))?;
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
            FileHandle::Memory(bytes) => Ok(PageSource::of_file(bytes)),
            FileHandle::Remote(_, location, etag) => match (&mut self.reads, &self.footer.file) {
                (Some(reads), _) => reads.next_group(size),
                (None, Some(file)) => Ok(PageSource::of_file(file)),
                (None, None) => {
                    let ranges =
                        column_ranges(self.footer.metadata.row_group(index), &self.plan.leaves);
                    let etag = etag.as_deref();
                    let ranges = std::iter::once(ranges);
                    RowGroupReads::start(content, location, etag, ranges, COALESCE_BYTES_DEFAULT)
                        .next_group(size)
                }
            },
        }
    }

    fn reader_layout(&mut self, index: usize) -> Result<ArrowReaderMetadata> {
        let schema = self.plan.layout(&self.footer, index);
        if let Some(layout) = self
            .layouts
            .iter()
            .find(|layout| *layout.schema() == schema)
        {
            return Ok(layout.clone());
        }
        let options = ArrowReaderOptions::new().with_schema(schema);
        let layout = ArrowReaderMetadata::try_new(self.footer.metadata.clone(), options)
            .map_err(|error| self.decode_fault(index, None, error.into()))?;
        self.layouts.push(layout.clone());
        Ok(layout)
    }

    /// The next chunk of a row group.
    fn read_chunk(
        &mut self,
        group: &mut RowGroupScan,
        request: &ScanRequest,
    ) -> Result<Option<Chunk>> {
        let unconverted = group.unconverted.take();
        let (rows, decoded) = match &mut group.reader {
            _ if unconverted.is_some() => (0, unconverted),
            None if group.rows_left == 0 => return Ok(None),
            None => (
                group.rows_left.min(request.batch_rows as u64) as usize,
                None,
            ),
            Some(reader) => match reader
                .next(group.next_row)
                .map_err(|error| self.group_fault(group.index, &group.gate, error))?
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
        group.gate.settle();
        let (rows, decoded, _reservation) = match decoded {
            None => (rows, None, None),
            Some(decoded) => {
                let (head, reservation) = self.first_rows(decoded, group)?;
                (head.num_rows(), Some(head), reservation)
            }
        };
        let schema = decoded.as_ref().map(|batch| batch.schema());
        let index = schema
            .as_ref()
            .map(|schema| NameIndex::of_fields(schema.fields()));
        let batch = origin::assemble_batch(&self.plan.columns, rows, |i, field| {
            let position = index
                .as_ref()
                .and_then(|index| index.get(&self.plan.stored_names[i]));
            let stored = decoded
                .as_ref()
                .zip(position)
                .map(|(batch, position)| batch.column(position));
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
            .and_then(|kept_rows| kept_rows.mask(first_row, rows))
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
            unfit: Vec::new(),
        }))
    }

    /// The first of some decoded rows, and memory for their values: few rows where a value of a dictionary is copied to
    /// each.
    fn first_rows(
        &self,
        decoded: RecordBatch,
        group: &mut RowGroupScan,
    ) -> Result<(RecordBatch, Option<ReadReservation>)> {
        let mut shared = Vec::new();
        for (position, column) in decoded.columns().iter().enumerate() {
            let data_type = column.data_type();
            if *data_type == DataType::BinaryView || shares_items(data_type) {
                shared.push(position);
            }
        }
        if shared.is_empty() {
            return Ok((decoded, None));
        }
        let memory = group.gate.memory().clone();
        let copied = CopiedRows::first_of(&decoded, &shared, memory.chunk_bytes());
        if copied.rows < decoded.num_rows() {
            let remaining = decoded.num_rows() - copied.rows;
            group.unconverted = Some(decoded.slice(copied.rows, remaining));
        }
        let reservation = if copied.bytes >= LARGE_COPY_BYTES {
            let reserved = memory.reserve(copied.bytes, true);
            Some(reserved.map_err(|shortage| {
                self.group_fault(
                    group.index,
                    &group.gate,
                    GroupError::Shortage(shortage, None),
                )
            })?)
        } else {
            None
        };
        Ok((decoded.slice(0, copied.rows), reservation))
    }

    /// A column in the dataset's type; its dictionary is the one that earlier chunks had.
    fn to_dataset_type(
        &self,
        stored: &ArrayRef,
        field: &Field,
        at: usize,
        group: &mut RowGroupScan,
    ) -> Result<ArrayRef> {
        if let Some(table) = self
            .footers
            .table()
            .filter(|_| field.data_type().is_nested())
        {
            let named = table.with_table_names(field.name(), stored)?;
            return conform(&named, field, &self.file, group.next_row)
                .map_err(|fault| fault.row_group(group.index));
        }
        if logical_type(stored.data_type()) != *field.data_type()
            || shares_items(stored.data_type())
        {
            return conform(stored, field, &self.file, group.next_row)
                .map_err(|fault| fault.row_group(group.index));
        }
        if *stored.data_type() == DataType::BinaryView {
            return Ok(cast(stored, &DataType::Binary)?);
        }
        if !matches!(stored.data_type(), DataType::Dictionary(..)) {
            return Ok(stored.clone());
        }
        let Some(keyed) = stored.as_dictionary_opt::<Int32Type>() else {
            return Ok(stored.clone());
        };
        match group.dictionaries.get(&at) {
            Some(dictionary) if same_buffers(dictionary, keyed.values()) => {
                Ok(Arc::new(keyed.with_values(dictionary.clone())))
            }
            // Rows without any value come with a dictionary without any value.
            Some(dictionary)
                if keyed.null_count() == keyed.len()
                    && dictionary.len() >= keyed.values().len() =>
            {
                Ok(Arc::new(keyed.with_values(dictionary.clone())))
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

    /// A fault for bytes that cannot be decoded. The decoder does not report the column, so that
    /// each is decoded alone.
    fn decode_fault(
        &self,
        group: usize,
        memory: Option<&Arc<ReadMemory>>,
        error: ArrowError,
    ) -> Fault {
        let mut fault = Fault::new(codes::CORRUPT, "the row group cannot be decoded")
            .file(self.file.as_ref())
            .row_group(group)
            .hint("write or copy the file anew, or take it out of the source");
        let stored = self.footer.metadata.file_metadata().schema_descr();
        if let (FileHandle::Local(file), Some(memory)) = (&self.blob, memory) {
            let mut leaves = self.plan.leaves.iter();
            if let Some(leaf) = leaves.find(|leaf| self.is_broken(file, memory, group, **leaf)) {
                fault = fault.column(stored.get_column_root(*leaf).name());
            }
        }
        fault.cause(error)
    }

    /// True if a column of a row group cannot be decoded.
    fn is_broken(
        &self,
        file: &Arc<File>,
        memory: &Arc<ReadMemory>,
        group: usize,
        leaf: usize,
    ) -> bool {
        let metadata = &self.footer.metadata;
        let pages = GatedPages::new(
            PageSource::Local(file.clone(), self.footer.stamp.size, None),
            PageGate::new(memory.clone(), metadata.row_group(group)),
            false,
        );
        let decoded: Result<(), ArrowError> = catch_decode_panic(|| {
            let schema = self.plan.layout(&self.footer, group);
            let options = ArrowReaderOptions::new().with_schema(schema);
            let layout = ArrowReaderMetadata::try_new(metadata.clone(), options)?;
            let stored = metadata.file_metadata().schema_descr();
            let mask = ProjectionMask::leaves(stored, [leaf]);
            for batch in build_reader(pages, layout, mask, group, None, DECODED_ROWS)? {
                batch?;
            }
            Ok(())
        });
        decoded.is_err()
    }
}

/// The row groups of a piece, each with the number of its first row in the file.
fn groups_of(footer: &Footer, piece: &FileRange) -> Vec<(usize, u64)> {
    let (from, to) = piece
        .row_groups
        .unwrap_or((0, footer.metadata.num_row_groups()));
    let mut groups = Vec::with_capacity(to - from);
    let mut first_row = piece.first_row;
    for index in from..to {
        groups.push((index, first_row));
        first_row += footer.metadata.row_group(index).num_rows() as u64;
    }
    groups
}

/// Rows of a piece in some of its row groups, without those that its table has deleted.
fn count_rows(
    footer: &Footer,
    piece: &FileRange,
    kept_rows: Option<&KeptRows>,
    groups: &[(usize, u64)],
) -> u64 {
    let mut sum = 0;
    for (index, first_row) in groups {
        let stored = rows_of(footer, *index, piece.row_range);
        sum += match kept_rows {
            Some(kept_rows) => kept_rows.count(*first_row, stored),
            None => stored,
        };
    }
    sum
}

/// Rows of a row group, or of the part that is read of it.
fn rows_of(footer: &Footer, group: usize, row_range: Option<(u64, u64)>) -> u64 {
    match row_range {
        Some((from, to)) => to - from,
        None => footer.metadata.row_group(group).num_rows() as u64,
    }
}

/// True for lists, maps and structs whose texts or bytes are shared, and copied into the dataset's type.
fn shares_items(data_type: &DataType) -> bool {
    data_type.is_nested() && find_type(data_type, is_shared).is_some()
}

/// True if two arrays of strings share their memory.
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
