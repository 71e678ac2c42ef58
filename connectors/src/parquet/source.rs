//! Finding files, and opening their spans.

use std::sync::Arc;
use std::time::SystemTime;

use arrow::datatypes::{FieldRef, Fields, Schema};
use forebay_model::{Dataset, Fault, FileRange, Result, Span, codes, nearest_word};
use forebay_storage::{ChunkIterator, MetadataCache, RowRuns, ScanRequest, Source, StorageClient};
use parquet::file::metadata::RowGroupMetaData;

use crate::files::PartitionPolicy;
use crate::files::blob::FileHandle;
use crate::files::cut::{RowGroupSummary, cut_spans};
use crate::files::drift::{FileSchemas, SchemaInterner, logical_fields};
use crate::files::extent::{folder_extents, share_points};
use crate::files::hive;
use crate::files::list::{ListedFile, list_files};
use crate::files::survey::inspect_parallel;

use super::chunks::ParquetScan;
use super::config::ParquetSource;
use super::extent::row_group_extents;
use super::footer::{Footer, FooterCache};
use super::notes::{self, FooterSummary};
use super::page_index::has_page_index;
use super::prune::RowGroupPruner;

const ENDINGS: &[&str] = &[".parquet", ".parq", ".pq"];

/// The configured source.
#[derive(Debug)]
pub(super) struct ParquetReader {
    config: ParquetSource,
    footers: Arc<FooterCache>,
}

/// Forgets extents of columns that come from elsewhere, or in another type.
fn clear_unmatched_extents(facts: &mut FooterSummary, watch: &[String], in_files: &Fields) {
    for (watched, name) in watch.iter().enumerate() {
        let both = facts.fields.find(name).zip(in_files.find(name));
        if !both.is_some_and(|((_, a), (_, b))| share_points(a.data_type(), b.data_type())) {
            facts.groups.iter_mut().for_each(|group| group.extents[watched] = None);
        }
    }
}

/// Whether reading from the middle of a row group skips the pages before. Without an index, pages of repeated values do
/// not tell their rows, and columns in a remote store are fetched whole.
fn can_skip(blob: &FileHandle, footer: &Footer, group: &RowGroupMetaData, columns: &[String]) -> bool {
    let stored = footer.metadata.file_metadata().schema_descr();
    let wanted = |leaf: &usize| columns.iter().any(|name| name == stored.get_column_root(*leaf).name());
    let wanted: Vec<usize> = (0..stored.num_columns()).filter(wanted).collect();
    let is_repeated = |leaf: &usize| stored.column(*leaf).max_rep_level() > 0;
    has_page_index(group, &wanted) || (matches!(blob, FileHandle::Local(_)) && !wanted.iter().any(is_repeated))
}

/// Pieces of a row group of about the same number of rows each.
fn row_runs(group: &FileRange, rows: u64, rows_max: u64) -> impl Iterator<Item = FileRange> {
    let count = rows.div_ceil(rows_max);
    (0..count).map(move |run| {
        let (from, to) = (rows * run / count, rows * (run + 1) / count);
        FileRange {
            row_range: Some((from, to)),
            first_row: group.first_row + from,
            rows: Some(to - from),
            bytes: group.bytes * (to - from) / rows,
            ..group.clone()
        }
    })
}

/// What a file's footer tells.
pub(crate) fn footer_summary(
    footers: &FooterCache,
    io: &StorageClient,
    file: &ListedFile,
    known: &SchemaInterner,
    watch: &[String],
) -> Result<FooterSummary> {
    let table = footers.table();
    let footer = match &table {
        Some(_) => footers.open_logged(io, &file.path, file.stamp.size)?.1,
        None => footers.open_listed(io, file)?.1,
    };
    let metadata = &footer.metadata;
    let roots = metadata.file_metadata().schema_descr();
    let fields = known.one(logical_fields(footer.schema.fields()));
    let mut bytes = vec![0; fields.len()];
    let mut groups = Vec::with_capacity(metadata.num_row_groups());
    let extents = |column: &String| match &table {
        None => row_group_extents(metadata, &footer.schema, column),
        Some(table) => match table.stored_column(&footer.schema, column) {
            Some(stored) => row_group_extents(metadata, &footer.schema, &stored),
            None => vec![None; metadata.num_row_groups()],
        },
    };
    let watched: Vec<_> = watch.iter().map(extents).collect();
    for (at, group) in metadata.row_groups().iter().enumerate() {
        for (leaf, column) in group.columns().iter().enumerate() {
            if let Some((field, _)) = fields.find(roots.get_column_root(leaf).name()) {
                bytes[field] += column.compressed_size().max(0) as u64;
            }
        }
        let extents = watched.iter().map(|groups| groups[at].clone()).collect();
        groups.push(RowGroupSummary {
            rows: group.num_rows() as u64,
            bytes: group.compressed_size().max(0) as u64,
            extents,
        });
    }
    let (listed, opened) = (file.stamp.clone(), footer.stamp.clone());
    Ok(FooterSummary { listed, opened, footer: footer.digest, fields, bytes, groups })
}

/// Cuts spans into their row groups, or finer.
pub(crate) fn split_pieces(
    footers: &FooterCache,
    io: &StorageClient,
    spans: &[Span],
    runs: Option<RowRuns>,
) -> Result<Vec<Span>> {
    let pieces: Vec<&FileRange> = spans.iter().flat_map(|span| &span.pieces).collect();
    let cut = inspect_parallel(&pieces, |piece| row_groups(footers, io, piece, runs))?;
    Ok(cut.into_iter().flatten().map(|piece| Span { pieces: vec![piece] }).collect())
}

/// A piece for each of its row groups, or several. Extents stay those of the whole piece: bounds need not occur.
fn row_groups(
    footers: &FooterCache,
    io: &StorageClient,
    piece: &FileRange,
    runs: Option<RowRuns>,
) -> Result<Vec<FileRange>> {
    let (blob, footer) = footers.open_piece(io, piece)?;
    let kept = footers.table().map(|table| table.kept_rows(io, &piece.path)).transpose()?.flatten();
    let (from, to) = piece.row_groups.unwrap_or((0, footer.metadata.num_row_groups()));
    let mut first_row = piece.first_row;
    let mut pieces = Vec::with_capacity(to - from);
    for (at, group) in footer.metadata.row_groups().iter().enumerate().take(to).skip(from) {
        let (rows, bytes) = (group.num_rows() as u64, group.compressed_size().max(0) as u64);
        let row_groups = Some((at, at + 1));
        let whole = FileRange { row_groups, first_row, rows: Some(rows), bytes, ..piece.clone() };
        let runs = runs.filter(|runs| rows > runs.rows_max);
        match runs.filter(|runs| can_skip(&blob, &footer, group, runs.columns)) {
            Some(runs) => pieces.extend(row_runs(&whole, rows, runs.rows_max.max(1))),
            None => pieces.push(whole),
        }
        first_row += rows;
    }
    // Those that the table still has: readers count on them.
    if let Some(kept) = kept {
        let kept = |piece: &mut FileRange| piece.rows = piece.rows.map(|rows| kept.count(piece.first_row, rows));
        pieces.iter_mut().for_each(kept);
    }
    Ok(pieces)
}

impl ParquetReader {
    pub(super) fn new(config: ParquetSource) -> Self {
        ParquetReader { config, footers: Arc::default() }
    }

    fn piece(&self, file: &ListedFile, facts: &FooterSummary) -> FileRange {
        let partition = match self.config.partitions {
            PartitionPolicy::Auto => hive::partition_values(&file.relative),
            PartitionPolicy::None => Vec::new(),
        };
        FileRange {
            path: file.path.clone(),
            relative: file.relative.clone(),
            row_groups: None,
            row_range: None,
            first_row: 0,
            rows: Some(facts.groups.iter().map(|group| group.rows).sum()),
            bytes: facts.opened.size,
            fingerprint: facts.opened.fingerprint(&file.relative, &partition, Some(facts.footer)),
            partition,
            extents: Vec::new(),
        }
    }

    /// The columns that were asked for.
    fn select(&self, all: Vec<FieldRef>) -> Result<Vec<FieldRef>> {
        let Some(wanted) = &self.config.columns else { return Ok(all) };
        let find = |name: &String| {
            all.iter().find(|field| field.name() == name).cloned().ok_or_else(|| {
                let fault =
                    Fault::new(codes::UNKNOWN_COLUMN, format!("the files have no column `{name}`")).column(name);
                match nearest_word(name, all.iter().map(|field| field.name().as_str())) {
                    Some(near) => fault.hint(format!("did you mean `{near}`?")),
                    None => fault,
                }
            })
        };
        wanted.iter().map(find).collect()
    }
}

impl Source for ParquetReader {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        self.discover_with_cache(io, watch, &MetadataCache::default())
    }

    fn discover_with_cache(&self, io: &StorageClient, watch: &[String], notes: &MetadataCache) -> Result<Dataset> {
        let now = SystemTime::now();
        let (files, noted) = std::thread::scope(|scope| {
            let noted = scope.spawn(|| Ok(notes::decode(notes.load()?.as_deref())));
            (list_files(io, &self.config.paths(), ENDINGS), noted.join())
        });
        let (files, known) = (files?, SchemaInterner::default());
        self.footers.keep_versions(&files);
        let mut noted = noted.unwrap_or_else(|_| Err(Fault::internal("a thread that read notes has failed")))?;
        // From notes, where the file is still what it was.
        let facts = files.iter().map(|file| {
            let facts = noted.remove(&file.path).filter(|facts| facts.listed == file.stamp)?;
            Some(FooterSummary { fields: known.one(facts.fields.clone()), ..facts })
        });
        let facts: Vec<Option<FooterSummary>> = facts.collect();
        // Threads are for those that have to be opened.
        let new = files.iter().zip(&facts).filter(|(_, facts)| facts.is_none()).map(|(file, _)| file);
        let new: Vec<&ListedFile> = new.collect();
        let is_known = new.is_empty() && noted.is_empty();
        let mut new =
            inspect_parallel(&new, |file| footer_summary(&self.footers, io, file, &known, watch))?.into_iter();
        let looked_at = || Fault::internal("a file was not looked at");
        let facts = facts.into_iter().map(|facts| facts.or_else(|| new.next()).ok_or_else(looked_at));
        let facts = facts.collect::<Result<Vec<FooterSummary>>>()?;
        if !is_known {
            notes.store(notes::encode(files.iter().map(|file| file.path.as_str()).zip(&facts), now)?);
        }
        let mut schemas = FileSchemas::default();
        for (file, facts) in files.iter().zip(&facts) {
            schemas.add(&file.path, facts.fields.clone());
        }
        let wanted = self.config.columns.as_ref();
        schemas
            .refuse_duplicate_columns(|name| wanted.is_none_or(|wanted| wanted.iter().any(|wanted| wanted == name)))?;
        let merged = schemas.merge(&self.config.schema)?;
        let pieces = files.iter().zip(&facts).map(|(file, facts)| self.piece(file, facts));
        let mut found: Vec<(FileRange, FooterSummary)> = pieces.collect::<Vec<_>>().into_iter().zip(facts).collect();
        let places: Vec<_> = found.iter().map(|(piece, _)| (piece.path.as_str(), piece.partition.as_slice())).collect();
        let partitions = hive::partition_fields(&places)?;
        // A folder's value stands for all rows of its files: it replaces a column of that name.
        let in_files: Fields =
            merged.iter().filter(|field| !partitions.iter().any(|of| of.name() == field.name())).cloned().collect();
        let fields = self.select(in_files.iter().chain(&partitions).cloned().collect())?;
        let bytes_of = |field: &FieldRef| match partitions.iter().any(|of| of.name() == field.name()) {
            true => 0,
            false => {
                found.iter().filter_map(|(_, file)| file.fields.find(field.name()).map(|(at, _)| file.bytes[at])).sum()
            }
        };
        let column_bytes = Some(fields.iter().map(bytes_of).collect());
        for (piece, facts) in &mut found {
            piece.extents = folder_extents(piece, watch, &partitions);
            clear_unmatched_extents(facts, watch, &in_files);
        }
        let spans = cut_spans(found.into_iter().map(|(piece, facts)| (piece, facts.groups)))?;
        Ok(Dataset {
            schema: Arc::new(Schema::new(fields)),
            spans,
            column_bytes,
            watched: watch.to_vec(),
            version: None,
        })
    }

    fn open(&self, io: &StorageClient, span: &Span, request: &ScanRequest) -> Result<ChunkIterator> {
        let pruner = RowGroupPruner::new(&request.pruning, &request.schema);
        Ok(Box::new(ParquetScan::start(io.clone(), self.footers.clone(), span.clone(), request.clone(), pruner)))
    }

    fn split_spans(&self, io: &StorageClient, spans: &[Span], runs: Option<RowRuns>) -> Result<Vec<Span>> {
        split_pieces(&self.footers, io, spans, runs)
    }
}
