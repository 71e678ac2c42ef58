//! Finding files, and opening their spans.

use std::sync::Arc;
use std::time::SystemTime;

use arrow::datatypes::{FieldRef, Fields, Schema};
use forebay_contract::{ChunkIterator, RowRuns, ScanRequest, Source, SourceFormat};
use forebay_model::{Dataset, Fault, FileRange, NameIndex, Result, Span};
use forebay_storage::{MetadataCache, StorageClient};
use forebay_threads::{join_thread, start_scoped};
use parquet::file::metadata::RowGroupMetaData;

use crate::files::PartitionPolicy;
use crate::files::blob::FileHandle;
use crate::files::columns::select_columns;
use crate::files::cut::cut_spans;
use crate::files::drift::FileSchemas;
use crate::files::extent::{folder_extents, share_points};
use crate::files::formatted::with_formats;
use crate::files::hive;
use crate::files::list::{FileListing, FileMarks, ListedFile, list_files};
use crate::files::survey::inspect_parallel;
use crate::files::texts::parse_formats;

use super::chunks::ParquetScan;
use super::config::{Int96Unit, ParquetSource};
use super::footer::{Footer, FooterCache, OpenedFile};
use super::intervals::refuse_whole_intervals;
use super::notes::FooterSummary;
use super::null_counts::{file_content, merged_null_counts};
use super::page_index::has_page_index;
use super::prune::RowGroupPruner;
use super::summaries::FooterNotes;

const MARKS: FileMarks = FileMarks {
    endings: &[".parquet", ".parq", ".pq"],
    magic: b"PAR1",
};

/// The configured source.
#[derive(Debug)]
pub(super) struct ParquetReader {
    config: ParquetSource,
    footers: Arc<FooterCache>,
}

impl SourceFormat for ParquetSource {
    const ENDINGS: &'static [&'static str] = &["parquet"];

    fn source(self) -> Arc<dyn Source> {
        let formats = self.formats.clone();
        let on_error = self.on_error.clone();
        with_formats(Arc::new(ParquetReader::new(self)), &formats, on_error)
    }
}

/// Forgets extents of columns that come from elsewhere, or in another type.
fn clear_unmatched_extents(facts: &mut FooterSummary, watch: &[String], in_files: &Fields) {
    for (watched, name) in watch.iter().enumerate() {
        let pair = facts.fields.find(name).zip(in_files.find(name));
        if pair.is_some_and(|((_, a), (_, b))| share_points(a.data_type(), b.data_type())) {
            continue;
        }
        for group in &mut facts.groups {
            group.extents[watched] = None;
        }
    }
}

/// The fault for a requested column that no file has, with a hint at the columns that all of them
/// have.
fn unknown_column_fault<'f>(
    files: impl Iterator<Item = &'f FooterSummary>,
    partitions: &[FieldRef],
    selected: Option<&[String]>,
) -> Option<Fault> {
    let mut fields: Vec<FieldRef> = partitions.to_vec();
    for field in files.flat_map(|file| &file.fields) {
        if fields.iter().all(|other| other.name() != field.name()) {
            fields.push(field.clone());
        }
    }
    select_columns(fields, selected, "the files have").err()
}

/// True if reading from the middle of a row group skips the pages before. Without an index, pages
/// of repeated values do not record their rows, and columns in a remote store are fetched whole.
fn can_skip(
    blob: &FileHandle,
    footer: &Footer,
    group: &RowGroupMetaData,
    columns: &[String],
) -> bool {
    let stored = footer.metadata.file_metadata().schema_descr();
    let names = NameIndex::new(columns.iter().map(String::as_str));
    let is_read = |leaf: &usize| names.contains(stored.get_column_root(*leaf).name());
    let leaves: Vec<usize> = (0..stored.num_columns()).filter(is_read).collect();
    let is_repeated = |leaf: &usize| stored.column(*leaf).max_rep_level() > 0;
    has_page_index(group, &leaves)
        || (matches!(blob, FileHandle::Local(_)) && !leaves.iter().any(is_repeated))
}

/// Pieces of a row group of about the same number of rows each.
fn row_runs(group: &FileRange, rows: u64, rows_max: u64) -> impl Iterator<Item = FileRange> {
    let count = rows.div_ceil(rows_max);
    (0..count).map(move |run| {
        let from = rows * run / count;
        let to = rows * (run + 1) / count;
        FileRange {
            row_range: Some((from, to)),
            first_row: group.first_row + from,
            rows: Some(to - from),
            bytes: group.bytes * (to - from) / rows,
            ..group.clone()
        }
    })
}

/// Cuts spans into their row groups, or finer.
pub fn split_pieces(
    footers: &FooterCache,
    io: &StorageClient,
    spans: &[Span],
    runs: Option<RowRuns>,
) -> Result<Vec<Span>> {
    let pieces: Vec<&FileRange> = spans.iter().flat_map(|span| &span.pieces).collect();
    let cut = inspect_parallel(&pieces, |piece| row_groups(footers, io, piece, runs))?;
    Ok(cut
        .into_iter()
        .flatten()
        .map(|piece| Span {
            pieces: vec![piece],
        })
        .collect())
}

/// One or several pieces for each row group of a piece. Extents stay those of the whole piece:
/// bounds need not occur.
fn row_groups(
    footers: &FooterCache,
    io: &StorageClient,
    piece: &FileRange,
    runs: Option<RowRuns>,
) -> Result<Vec<FileRange>> {
    let OpenedFile { blob, footer } = footers.open_piece(io, piece)?;
    let kept_rows = footers.kept_rows(io, &piece.path)?;
    let (from, to) = piece
        .row_groups
        .unwrap_or((0, footer.metadata.num_row_groups()));
    let mut first_row = piece.first_row;
    let mut pieces = Vec::with_capacity(to - from);
    for at in from..to {
        let group = footer.metadata.row_group(at);
        let rows = group.num_rows() as u64;
        let whole = FileRange {
            row_groups: Some((at, at + 1)),
            first_row,
            rows: Some(rows),
            bytes: group.compressed_size().max(0) as u64,
            ..piece.clone()
        };
        // A run is worth a piece if its reader need not decode the pages before it.
        match runs {
            Some(runs) if rows > runs.rows_max && can_skip(&blob, &footer, group, runs.columns) => {
                pieces.extend(row_runs(&whole, rows, runs.rows_max.max(1)));
            }
            _ => pieces.push(whole),
        }
        first_row += rows;
    }
    // Readers count on the rows that the table still has.
    if let Some(kept_rows) = kept_rows {
        for piece in &mut pieces {
            let stored = piece.rows;
            piece.rows = stored.map(|rows| kept_rows.count(piece.first_row, rows));
        }
    }
    Ok(pieces)
}

impl ParquetReader {
    pub(super) fn new(config: ParquetSource) -> Self {
        let footers = FooterCache::default();
        if config.int96 == Int96Unit::Nanoseconds {
            footers.read_nanoseconds();
        }
        ParquetReader {
            config,
            footers: Arc::new(footers),
        }
    }

    /// The columns of a file that are read: others may differ.
    fn read_fields(&self, fields: &Fields) -> Fields {
        let Some(selected) = &self.config.columns else {
            return fields.clone();
        };
        let is_read = |field: &&FieldRef| selected.contains(field.name());
        fields.iter().filter(is_read).cloned().collect()
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
            byte_range: None,
            first_row: 0,
            rows: Some(facts.groups.iter().map(|group| group.rows).sum()),
            bytes: facts.opened.size,
            fingerprint: facts
                .opened
                .fingerprint(&file.relative, &partition, Some(facts.footer)),
            partition,
            extents: Vec::new(),
        }
    }
}

impl Source for ParquetReader {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        self.discover_with_cache(io, watch, &MetadataCache::default())
    }

    fn discover_with_cache(
        &self,
        io: &StorageClient,
        watch: &[String],
        notes: &MetadataCache,
    ) -> Result<Dataset> {
        let now = SystemTime::now();
        let (listing, noted) = std::thread::scope(|scope| -> Result<_> {
            let noted = start_scoped(scope, || FooterNotes::load(notes, now))?;
            let listing = list_files(io, &self.config.all_paths(), &MARKS);
            Ok((listing?, join_thread(noted)?))
        })?;
        let FileListing { files, left_out } = listing;
        self.footers.keep_versions(&files);
        let facts = noted.summaries(&self.footers, io, &files.iter().collect::<Vec<_>>(), watch)?;
        let mut schemas = FileSchemas::default();
        for (file, facts) in files.iter().zip(&facts) {
            schemas.add(&file.path, self.read_fields(&facts.fields));
        }
        schemas.refuse_duplicate_columns(|_| true)?;
        let merged = schemas.merge(&self.config.schema)?;
        let pieces = files
            .iter()
            .zip(&facts)
            .map(|(file, facts)| self.piece(file, facts));
        let mut summarised_pieces: Vec<(FileRange, FooterSummary)> =
            pieces.collect::<Vec<_>>().into_iter().zip(facts).collect();
        let folders: Vec<_> = summarised_pieces
            .iter()
            .map(|(piece, _)| (piece.path.as_str(), piece.partition.as_slice()))
            .collect();
        let partitions = hive::partition_fields(&folders)?;
        let replaced = hive::replaced_columns(&merged, &partitions);
        let in_files: Fields = merged
            .iter()
            .filter(|field| !partitions.iter().any(|of| of.name() == field.name()))
            .cloned()
            .collect();
        let columns = in_files.iter().chain(&partitions).cloned().collect();
        let selection = self.config.columns.as_deref();
        let fields = select_columns(columns, selection, "the files have").map_err(|fault| {
            let facts = summarised_pieces.iter().map(|(_, facts)| facts);
            unknown_column_fault(facts, &partitions, selection).unwrap_or(fault)
        })?;
        let first_file = files.first().map_or("", |file| file.path.as_str());
        refuse_whole_intervals(&fields, first_file)?;
        let mut column_bytes: Vec<u64> = vec![0; fields.len()];
        for (_, file) in &summarised_pieces {
            let index = NameIndex::of_fields(&file.fields);
            for (bytes, field) in column_bytes.iter_mut().zip(&fields) {
                if let Some(at) = index.get(field.name()) {
                    *bytes += file.bytes[at];
                }
            }
        }
        for (bytes, field) in column_bytes.iter_mut().zip(&fields) {
            if partitions.iter().any(|of| of.name() == field.name()) {
                *bytes = 0;
            }
        }
        let column_bytes = Some(column_bytes);
        let schema = Arc::new(Schema::new(fields));
        let mut null_counts =
            merged_null_counts(summarised_pieces.iter().map(|(_, facts)| facts), &schema);
        for partition in &partitions {
            // The names of folders give these values.
            if let Ok(place) = schema.index_of(partition.name()) {
                null_counts[place] = None;
            }
        }
        let contents = summarised_pieces
            .iter()
            .map(|(piece, facts)| file_content(piece, facts, &schema, &partitions))
            .collect();
        for (piece, facts) in &mut summarised_pieces {
            piece.extents = folder_extents(piece, watch, &partitions);
            clear_unmatched_extents(facts, watch, &in_files);
        }
        let spans = cut_spans(
            summarised_pieces
                .into_iter()
                .map(|(piece, facts)| (piece, facts.groups)),
        )?;
        Ok(Dataset {
            schema,
            spans,
            column_bytes,
            null_counts,
            watched: watch.to_vec(),
            version: None,
            left_out: left_out.with_columns(replaced),
            files: contents,
        })
    }

    fn paths(&self) -> Vec<String> {
        let paths = self.config.all_paths().into_iter();
        paths.map(str::to_owned).collect()
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let formats = parse_formats(&self.config.formats);
        let formats = formats.map_err(|error| error.into_fault("parquet"))?;
        let pruner = RowGroupPruner::new(&request.pruning, &request.schema, formats);
        Ok(Box::new(ParquetScan::start(
            io.clone(),
            self.footers.clone(),
            span.clone(),
            request.clone(),
            pruner,
        )))
    }

    fn split_spans(
        &self,
        io: &StorageClient,
        spans: &[Span],
        runs: Option<RowRuns>,
    ) -> Result<Vec<Span>> {
        split_pieces(&self.footers, io, spans, runs)
    }
}
