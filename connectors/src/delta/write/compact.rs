//! Small files of a table become larger ones: a commit that changes no rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use forebay_model::{BATCH_ROWS_DEFAULT, Dataset, Fault, IdBuilder, Result, Span, encode_path_part, plain_batch};
use forebay_run::{OutputFile, OutputWriter, table_shard_directory};
use forebay_storage::{ScanRequest, ScratchDir, Sink, Source, StorageClient, TableFile};

use crate::delta::config::DeltaSource;
use crate::delta::place::TablePlace;
use crate::delta::snapshot::{LoggedFile, TableSnapshot, VersionChoice};
use crate::delta::source::DeltaReader;

use super::actions;
use super::added_files::added_files;
use super::config::DeltaSink;
use super::conflicts::commit_name;
use super::encoder::DeltaEncoder;
use super::live_files::live_files;
use super::schema::WrittenColumns;
use super::writable::check_writable;

/// Bytes of rows that are held until they are encoded.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// How often other writers may take a version before compaction is left to the next run.
const ATTEMPTS_MAX: usize = 10;

/// Partition values, and the paths of the small files that have them.
type SmallFiles = BTreeMap<Vec<(String, Option<String>)>, BTreeSet<String>>;

/// Rewrites the files of the latest version that are smaller than a limit, those of each partition together. Another
/// program may change the table at the same time: then its files stay as they are.
pub(super) fn compact(io: &StorageClient, config: &DeltaSink, below: u64, scratch: &ScratchDir) -> Result<()> {
    let place = TablePlace::new(io, &config.path)?;
    let Some(table) = TableSnapshot::find(io, &place, VersionChoice::Latest)? else { return Ok(()) };
    let live = live_files(&table)?;
    let small = small_files(&live, below);
    if small.is_empty() {
        return Ok(());
    }
    let source = DeltaReader::new(DeltaSource::at(config.path.as_str()).version(table.version()));
    let dataset = source.discover(io, &[])?;
    let columns = WrittenColumns::new(&dataset.schema, &config.partition_by)?;
    check_writable(&table, &columns, config)?;
    let rewriting = Rewriting { io, source: &source, dataset: &dataset, columns: &columns, scratch };
    let mut written = Vec::new();
    for paths in small.values() {
        written.extend(rewriting.rewrite(config, paths)?);
    }
    let files: Vec<TableFile<'_>> =
        written.iter().map(|file| TableFile { path: &file.path, rows: file.rows, bytes: file.bytes }).collect();
    let added = added_files(io, &place, &columns, &files)?;
    let replaced: BTreeMap<&String, &LoggedFile> =
        small.values().flatten().filter_map(|path| Some((path, live.get(path)?))).collect();
    for _ in 0..ATTEMPTS_MAX {
        let Some(now) = TableSnapshot::find(io, &place, VersionChoice::Latest)? else { return Ok(()) };
        let live = live_files(&now)?;
        let is_same =
            |(path, file): (&&String, &&LoggedFile)| live.get(*path).is_some_and(|now| now.deleted == file.deleted);
        if !replaced.iter().all(is_same) {
            return Ok(());
        }
        let time = actions::now();
        let mut all = vec![actions::optimize_info(time)];
        all.extend(replaced.values().map(|file| actions::remove(file, time, false)));
        all.extend(added.iter().zip(time..).map(|(file, time)| actions::add(file, time, false)));
        let log = place.log().join(&commit_name(now.version() + 1));
        if io.put_durable_if_absent(&log, Bytes::from(actions::commit_text(&all)))? {
            return Ok(());
        }
    }
    Ok(())
}

/// The partitions that have several small files. Files that the log names by URLs belong to other tables, too.
fn small_files(live: &BTreeMap<String, LoggedFile>, below: u64) -> SmallFiles {
    let mut small = SmallFiles::new();
    let is_own = |path: &str| !path.contains(':') && !path.starts_with('/');
    for (path, file) in live.iter().filter(|(path, file)| file.bytes < below && is_own(path)) {
        let partition = file.partition.iter().map(|(column, value)| (column.clone(), value.clone()));
        small.entry(partition.collect()).or_default().insert(path.clone());
    }
    small.retain(|_, paths| paths.len() > 1);
    small
}

/// What rewriting files needs.
struct Rewriting<'a> {
    io: &'a StorageClient,
    source: &'a DeltaReader,
    dataset: &'a Dataset,
    columns: &'a WrittenColumns,
    scratch: &'a ScratchDir,
}

impl Rewriting<'_> {
    /// Writes the rows of some files of one partition to new ones.
    fn rewrite(&self, config: &DeltaSink, paths: &BTreeSet<String>) -> Result<Vec<OutputFile>> {
        let encoder = DeltaEncoder::new(config.clone());
        let pieces = self.dataset.spans.iter().flat_map(|span| &span.pieces);
        let pieces: Vec<_> = pieces.filter(|piece| paths.contains(&piece.relative)).cloned().collect();
        let found: BTreeSet<&String> = pieces.iter().map(|piece| &piece.relative).collect();
        let Some(first) = pieces.first().filter(|_| found.len() == paths.len()) else {
            return Err(Fault::internal("a file of a table that its source does not find"));
        };
        let folders = first
            .partition
            .iter()
            .map(|(column, value)| format!("{}={}", encode_path_part(column), encode_path_part(value)));
        let folder = folders.collect::<Vec<_>>().join("/");
        let mut id = IdBuilder::new("compacted");
        paths.iter().for_each(|path| {
            id.text(path);
        });
        let schema: SchemaRef = Arc::new(self.columns.file_schema());
        let (out, directory) = (TablePlace::new(self.io, &config.path)?.root, table_shard_directory(id.finish())?);
        let content = (schema.clone(), Vec::new());
        let mut files = OutputWriter::begin(self.io, &encoder, content, (&out, directory), self.scratch)?;
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let request =
            ScanRequest { batch_rows: BATCH_ROWS_DEFAULT, ..ScanRequest::of_columns(names, &self.dataset.schema) };
        let pieces_rows: Option<u64> = pieces.iter().map(|piece| piece.rows).sum();
        let (mut waiting, mut rows, mut bytes) = (Vec::new(), 0, 0);
        for piece in pieces {
            for chunk in self.source.open(self.io, &Span { pieces: vec![piece] }, &request)? {
                let batch = plain_batch(&schema, &chunk?.batch)?;
                rows += batch.num_rows();
                bytes += batch.get_array_memory_size();
                waiting.push(batch);
                if rows >= config.group_rows_max || bytes >= GROUP_BYTES_MAX {
                    files.append(&folder, encoder.encode(&schema, &std::mem::take(&mut waiting))?, false)?;
                    (rows, bytes) = (0, 0);
                }
            }
        }
        if !waiting.is_empty() {
            files.append(&folder, encoder.encode(&schema, &waiting)?, false)?;
        }
        let written = files.finish(false)?;
        let (expected, rows) = (pieces_rows, written.iter().map(|file| file.rows).sum::<u64>());
        match expected.is_none_or(|expected| expected == rows) {
            true => Ok(written),
            false => Err(Fault::internal(format!("{expected:?} rows became {rows}"))),
        }
    }
}
