//! Finding the files of a version of a table, and opening their spans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use arrow::datatypes::{FieldRef, Schema};
use forebay_contract::{ChunkIterator, RowRuns, ScanRequest, Source, SourceFormat};
use forebay_formats::{
    FooterCache, FooterNotes, ListedFile, ParquetScan, RowGroupPruner, RowGroupSummary, TableFiles,
    cut_spans, folder_extents, parse_formats, select_columns, share_points, split_pieces,
    with_formats,
};
use forebay_model::{
    Dataset, Fault, LeftOutFiles, NameIndex, Result, SPAN_BYTES_TARGET, Span, codes,
};
use forebay_storage::{MetadataCache, StorageClient};

use super::columns::TableColumns;
use super::config::DeltaSource;
use super::files::{OpenTable, TableFile, column_bytes};
use super::place::TablePlace;
use super::snapshot::{TableSnapshot, VersionChoice, parse_time};

/// The configured source.
#[derive(Debug)]
pub(super) struct DeltaReader {
    config: DeltaSource,
    footers: Arc<FooterCache>,
    /// The files to read, by their paths below the table; `None`: all.
    files: Option<BTreeSet<String>>,
}

impl SourceFormat for DeltaSource {
    fn source(self) -> Arc<dyn Source> {
        let formats = self.formats.clone();
        let on_error = self.on_error.clone();
        with_formats(Arc::new(DeltaReader::new(self)), &formats, on_error)
    }
}

impl DeltaReader {
    pub(super) fn new(config: DeltaSource) -> Self {
        DeltaReader {
            config,
            footers: Arc::default(),
            files: None,
        }
    }

    /// Reads some of the files only.
    pub(super) fn of_files(config: DeltaSource, files: BTreeSet<String>) -> Self {
        DeltaReader {
            files: Some(files),
            ..DeltaReader::new(config)
        }
    }

    fn choice(&self) -> Result<VersionChoice> {
        match (self.config.version, &self.config.timestamp) {
            (Some(version), _) => Ok(VersionChoice::Exactly(version)),
            (None, None) => Ok(VersionChoice::Latest),
            (None, Some(time)) => parse_time(time)
                .map(VersionChoice::AsOf)
                .map_err(|message| Fault::new(codes::BAD_VALUE, message)),
        }
    }
}

/// True if a file's footer must be read for its rows, or to divide it.
fn needs_footer(file: &TableFile) -> bool {
    file.piece.rows.is_none() || file.piece.bytes > SPAN_BYTES_TARGET
}

/// Extents of row groups in the types of the table; those of the log where a row group has none.
fn complete_extents(
    groups: &mut [RowGroupSummary],
    facts: &Schema,
    table: &OpenTable,
    watch: &[String],
    logged: &TableFile,
) {
    for (watched, name) in watch.iter().enumerate() {
        let stored =
            table.stored_names(facts)(name).and_then(|stored| facts.field_with_name(&stored).ok());
        let fits = stored
            .zip(table.columns().data_type(name))
            .is_some_and(|(a, b)| share_points(a.data_type(), b));
        for group in groups.iter_mut() {
            let stored_extent = group.extents[watched].take().filter(|_| fits);
            group.extents[watched] = stored_extent.or_else(|| logged.extents[watched].clone());
        }
    }
}

impl Source for DeltaReader {
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
        let table_place = TablePlace::new(io, &self.config.path)?
            .allow_outside(io, &self.config.allow_outside)?;
        let snapshot = TableSnapshot::open(io, &table_place, self.choice()?)?;
        let columns = TableColumns::new(&snapshot)?;
        let fields = select_columns(
            columns.fields.clone(),
            self.config.columns.as_deref(),
            "the table has",
        )?;
        let mut table = OpenTable::new(table_place, columns, snapshot.version());
        let mut files = table.read_files(io, &snapshot, watch, self.files.as_ref())?;
        let table = Arc::new(table);
        self.footers.set_table(table.clone());
        let opened: Vec<usize> = (0..files.len())
            .filter(|at| needs_footer(&files[*at]))
            .collect();
        // At least one file is read for the sizes of columns.
        let sample = (0..files.len())
            .max_by_key(|at| files[*at].piece.bytes)
            .filter(|_| opened.is_empty());
        let opened: Vec<usize> = opened.into_iter().chain(sample).collect();
        let listed: Vec<&ListedFile> = opened.iter().map(|at| &files[*at].listed).collect();
        let facts = FooterNotes::load(notes, now)?.summaries(&self.footers, io, &listed, watch)?;
        let mut in_files = BTreeMap::<String, u64>::new();
        let mut seen = 0;
        let mut groups: BTreeMap<usize, Vec<RowGroupSummary>> = BTreeMap::new();
        for (at, facts) in opened.into_iter().zip(facts) {
            let stored = Schema::new(facts.fields.clone());
            let stored_names = table.stored_names(&stored);
            let index = NameIndex::of_fields(&facts.fields);
            for field in &table.columns().fields {
                let bytes = stored_names(field.name())
                    .and_then(|stored| index.get(&stored))
                    .map_or(0, |at| facts.bytes[at]);
                *in_files.entry(field.name().clone()).or_default() += bytes;
            }
            seen += files[at].piece.bytes;
            if !needs_footer(&files[at]) {
                continue;
            }
            let mut row_groups = facts.groups;
            complete_extents(&mut row_groups, &stored, &table, watch, &files[at]);
            let piece = &mut files[at].piece;
            if piece.rows.is_none() {
                let rows = row_groups.iter().map(|group| group.rows).sum();
                let live_rows = table.kept_rows(io, &piece.path)?;
                piece.rows = Some(live_rows.map_or(rows, |live_rows| live_rows.count(0, rows)));
            }
            groups.insert(at, row_groups);
        }
        let total_bytes = files.iter().map(|file| file.piece.bytes).sum();
        let bytes = column_bytes(
            fields.iter().map(|field| field.name().as_str()),
            &in_files,
            seen,
            total_bytes,
        );
        let null_counts = table.null_counts_of(&fields);
        let partitions: Vec<FieldRef> = table
            .columns()
            .fields
            .iter()
            .filter(|field| table.columns().partitions.contains(field.name()))
            .cloned()
            .collect();
        let pieces = files.into_iter().enumerate().map(|(at, file)| {
            let mut piece = file.piece;
            let rows = file.extents;
            piece.extents = folder_extents(&piece, watch, &partitions);
            // A file that is not cut has one group: all of it.
            let whole = RowGroupSummary {
                rows: piece.rows.unwrap_or(1),
                bytes: piece.bytes,
                extents: rows,
            };
            (piece, groups.remove(&at).unwrap_or_else(|| vec![whole]))
        });
        let spans = with_rows_left(io, &table, cut_spans(pieces)?)?;
        let schema = Arc::new(Schema::new(fields));
        let version = Some(snapshot.version());
        Ok(Dataset {
            schema,
            spans,
            column_bytes: Some(bytes),
            null_counts,
            watched: watch.to_vec(),
            version,
            left_out: LeftOutFiles::default(),
            files: Vec::new(),
        })
    }

    fn paths(&self) -> Vec<String> {
        vec![self.config.path.clone()]
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let formats = parse_formats(&self.config.formats);
        let formats = formats.map_err(|error| error.into_fault("delta"))?;
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

/// Counts the rows that are left of files that were cut, of which rows were deleted.
fn with_rows_left(
    io: &StorageClient,
    table: &OpenTable,
    mut spans: Vec<Span>,
) -> Result<Vec<Span>> {
    let cut = spans
        .iter_mut()
        .flat_map(|span| &mut span.pieces)
        .filter(|piece| piece.row_groups.is_some());
    for piece in cut.filter(|piece| table.has_deleted_rows(&piece.path)) {
        if let (Some(rows), Some(kept)) = (piece.rows, table.kept_rows(io, &piece.path)?) {
            piece.rows = Some(kept.count(piece.first_row, rows));
        }
    }
    Ok(spans)
}
