//! The serving state of an artifact: what windows need of the rows before, for each series.
//!
//! ```text
//! artifacts/<id>/serving.json                 as of when, of which files, and the names of the pieces
//! artifacts/<id>/serving/<hash>.arrow         states of the series whose keys' hashes lie in a range: Arrow IPC with the
//!                                             columns `series` (hash of the keys) and `state`, compressed with Zstandard;
//!                                             rows of joined tables, and the last rows of all series
//! artifacts/<id>/serving/appended.log         facts that a serving program received since
//! ```
//! A piece is named after its bytes. The next artifact shares the pieces that did not change: as hard links on local
//! disks, and in place where it has the same id.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, AsArray, BinaryArray, BinaryBuilder, FixedSizeBinaryArray, FixedSizeBinaryBuilder,
    RecordBatch,
};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use forebay_model::{ContentId, Fault, LateFacts, Result, codes};
use forebay_storage::{StorageClient, StorageLocation};
use serde::{Deserialize, Serialize};

use crate::artifact_parts::corrupt_fault;
use crate::mapped_file::map_file;

/// The version of serving states.
const FORMAT: u32 = 1;

/// The name of the file that makes a serving state visible.
pub(crate) const SERVING: &str = "serving.json";

/// The folder of the pieces.
const PIECES: &str = "serving";

/// The end of a piece's name.
const PIECE_SUFFIX: &str = ".arrow";

/// The name of the log of appended facts, below the folder of the pieces.
const LOG: &str = "appended.log";

/// Bytes of a hash of keys.
const HASH_BYTES: i32 = 16;

/// Description of a serving state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingManifest {
    format: u32,
    /// The step whose rows are served.
    pub node: String,
    /// The source of its rows.
    pub source: String,
    /// The greatest time of the rows that the state holds; absent without rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// That time in ticks of its column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of_ticks: Option<i64>,
    /// The spans that it was computed from.
    pub spans: SpanPrefix,
    /// Hash of the operations before and in the windows, with what they learned.
    pub operations: String,
    /// The windows, in the order in which rows reach them.
    pub windows: Vec<StoredWindow>,
    /// Tables that rows are joined with, in the order of the joins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<StoredTable>,
    /// The last rows of all series, after which forecasts begin; absent where the step has no rows of the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<StoredLatest>,
    /// Treatment of facts that are appended late.
    #[serde(default, skip_serializing_if = "LateFacts::is_refuse")]
    pub late: LateFacts,
    /// Pieces of the state before: a program may be loading them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
}

/// The first spans of a source, in order of reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanPrefix {
    /// Number of spans.
    pub count: usize,
    /// Hash of their fingerprints.
    pub hash: String,
}

/// The states of the series of windows that share them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredWindow {
    /// The step of the first window.
    pub step: String,
    /// The columns that identify a series.
    pub keys: Vec<String>,
    /// Version of the states of series, in hexadecimal: those of another plan cannot be read.
    pub version: String,
    /// Number of series.
    pub series: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// The pieces: piece `i` of `2^k` holds the series whose hashes begin with the `k` bits of `i`. Those without series
    /// have no file.
    pub pieces: Vec<StoredPiece>,
}

/// A piece of the states of series.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPiece {
    /// Hash of the file's bytes; absent without series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Number of series.
    pub series: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// The rows of another step that rows are joined with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTable {
    /// The join.
    pub step: String,
    /// The other step or source.
    pub other: String,
    /// Number of rows.
    pub rows: u64,
    /// Earliest time of rows that it can be joined with, in ticks; absent for any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<i64>,
    /// The file.
    pub piece: StoredPiece,
}

/// The state of the analyzer that finds the last row of each series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLatest {
    /// Hash of the analyzer and of the operations before it, with what they learned.
    pub operations: String,
    /// The file: a table with the bytes of the state.
    pub piece: StoredPiece,
}

impl ServingManifest {
    /// The description of a new state.
    pub fn new(
        node: String,
        source: String,
        spans: SpanPrefix,
        operations: ContentId,
    ) -> ServingManifest {
        ServingManifest {
            format: FORMAT,
            node,
            source,
            as_of: None,
            as_of_ticks: None,
            spans,
            operations: operations.to_string(),
            windows: Vec::new(),
            tables: Vec::new(),
            latest: None,
            late: LateFacts::default(),
            before: Vec::new(),
        }
    }

    /// True if answers depend on it: it holds rows for windows, joins by time and forecasts, or the time up to which steps
    /// over all series have learned.
    pub fn keeps_rows(&self) -> bool {
        !self.windows.is_empty()
            || !self.tables.is_empty()
            || self.latest.is_some()
            || self.as_of_ticks.is_some()
    }

    /// True if the windows of both hold the same of each row, so that either state serves the artifact of the other.
    pub fn continues(&self, other: &ServingManifest) -> bool {
        self.node == other.node
            && self.operations == other.operations
            && self.windows.len() == other.windows.len()
            && self.tables.len() == other.tables.len()
            && self.continues_latest(other)
    }

    /// True if forecasts that begin after the last rows of the other state can begin after those of this one.
    fn continues_latest(&self, other: &ServingManifest) -> bool {
        let Some(other_latest) = &other.latest else {
            return true;
        };
        let latest = self.latest.as_ref();
        latest.is_some_and(|latest| latest.operations == other_latest.operations)
    }

    /// All pieces that have a file.
    pub fn files(&self) -> BTreeSet<String> {
        let windows = self.windows.iter().flat_map(|window| &window.pieces);
        let tables = self.tables.iter().map(|table| &table.piece);
        let latest = self.latest.iter().map(|latest| &latest.piece);
        windows
            .chain(tables)
            .chain(latest)
            .filter_map(|piece| piece.file.clone())
            .collect()
    }

    /// Stored bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        let windows: u64 = self.windows.iter().map(|window| window.bytes).sum();
        let tables: u64 = self.tables.iter().map(|table| table.piece.bytes).sum();
        let latest = self.latest.as_ref().map_or(0, |latest| latest.piece.bytes);
        windows + tables + latest
    }

    /// The greatest number of series of a window.
    pub fn series(&self) -> u64 {
        self.windows
            .iter()
            .map(|window| window.series)
            .max()
            .unwrap_or_default()
    }

    /// Hash of the description, which differs between the states of an artifact.
    pub fn digest(&self) -> Result<String> {
        let (_, bytes) = self.to_file()?;
        Ok(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)))
    }

    /// The content of the file that makes the state visible.
    pub fn to_file(&self) -> Result<(String, Bytes)> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| Fault::internal("a serving state has no JSON").cause(error))?;
        text.push(b'\n');
        Ok((SERVING.to_owned(), Bytes::from(text)))
    }
}

/// A serving state in the directory of an artifact.
#[derive(Clone)]
pub struct ServingReference {
    /// Its description.
    pub manifest: Arc<ServingManifest>,
    /// The directory of the artifact.
    pub directory: StorageLocation,
}

impl fmt::Debug for ServingReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingReference")
            .field("manifest", &self.manifest)
            .field("directory", &self.directory.shown)
            .finish()
    }
}

impl ServingReference {
    /// The serving state of an artifact's directory; `None` where it has none.
    pub fn read(
        io: &StorageClient,
        directory: &StorageLocation,
    ) -> Result<Option<ServingReference>> {
        let file = directory.join(SERVING);
        let Some(bytes) = io.get(&file)? else {
            return Ok(None);
        };
        let manifest: ServingManifest = serde_json::from_slice(&bytes).map_err(|error| {
            corrupt_fault("the serving state cannot be read")
                .file(&file.shown)
                .cause(error)
        })?;
        if manifest.format != FORMAT {
            let message = format!(
                "the serving state has format {}, this program reads {FORMAT}",
                manifest.format
            );
            return Err(Fault::new(codes::STATE_VERSION, message)
                .file(&file.shown)
                .hint("run the pipeline again with this program"));
        }
        Ok(Some(ServingReference {
            manifest: Arc::new(manifest),
            directory: directory.clone(),
        }))
    }

    /// The bytes of a piece, checked: those of a local file are mapped.
    pub fn piece(&self, io: &StorageClient, file: &str) -> Result<Bytes> {
        let location = piece_location(&self.directory, file)?;
        let mapped = location.local.as_deref().and_then(map_piece);
        let bytes = match mapped {
            Some(bytes) => Some(bytes),
            None => io.get(&location)?,
        };
        let bytes = bytes.ok_or_else(|| {
            Fault::new(codes::NOT_FOUND, "a piece of the serving state is missing")
                .file(&location.shown)
                .hint("copy the whole directory of the artifact, or run the pipeline again")
        })?;
        if ContentId::of(&bytes).to_string() != file {
            return Err(
                corrupt_fault("a piece of the serving state was changed").file(&location.shown)
            );
        }
        Ok(bytes)
    }

    /// The log of appended facts.
    pub fn log(&self) -> StorageLocation {
        self.directory.join(PIECES).join(LOG)
    }
}

/// A piece on a local disk: a file that is complete, and not written again. `None` where it cannot be mapped: it is read
/// then, and what is wrong with it is found.
fn map_piece(path: &Path) -> Option<Bytes> {
    let file = File::open(path).ok()?;
    map_file(&file).ok()
}

/// The location of a piece: its name is a hash, never a path.
fn piece_location(directory: &StorageLocation, file: &str) -> Result<StorageLocation> {
    if ContentId::parse(file).is_none() {
        return Err(corrupt_fault(
            "the serving state names a file that is no piece",
        ));
    }
    Ok(directory
        .join(PIECES)
        .join(&format!("{file}{PIECE_SUFFIX}")))
}

/// Writer of the pieces of a state into the directory of its artifact.
pub struct PieceWriter<'a> {
    io: &'a StorageClient,
    directory: StorageLocation,
    /// The state before, whose pieces are shared.
    earlier: Option<&'a ServingReference>,
}

impl<'a> PieceWriter<'a> {
    /// A writer into the directory of an artifact.
    pub fn new(
        io: &'a StorageClient,
        directory: StorageLocation,
        earlier: Option<&'a ServingReference>,
    ) -> PieceWriter<'a> {
        PieceWriter {
            io,
            directory,
            earlier,
        }
    }

    /// Writes a piece, unless it is there.
    pub fn write(&self, bytes: Vec<u8>, rows: u64) -> Result<StoredPiece> {
        let file = ContentId::of(&bytes).to_string();
        let stored = StoredPiece {
            bytes: bytes.len() as u64,
            series: rows,
            file: Some(file.clone()),
        };
        let location = piece_location(&self.directory, &file)?;
        if self.io.head(&location)?.is_none() {
            self.io.put_durable(&location, &bytes)?;
        }
        Ok(stored)
    }

    /// Reads a piece of the state before.
    pub fn read(&self, earlier: &ServingReference, file: &str) -> Result<Bytes> {
        earlier.piece(self.io, file)
    }

    /// Takes over a piece of the state before.
    pub fn share(&self, piece: &StoredPiece) -> Result<StoredPiece> {
        let Some(earlier) = self.earlier else {
            return Ok(piece.clone());
        };
        let Some(file) = &piece.file else {
            return Ok(piece.clone());
        };
        let from = piece_location(&earlier.directory, file)?;
        let to = piece_location(&self.directory, file)?;
        if self.io.head(&to)?.is_some() {
            return Ok(piece.clone());
        }
        if let (Some(from), Some(to)) = (&from.local, &to.local) {
            let folder = to.parent().map_or(Ok(()), std::fs::create_dir_all);
            if folder.and_then(|()| std::fs::hard_link(from, to)).is_ok() {
                return Ok(piece.clone());
            }
        }
        // Other disks, and stores without links: the bytes are copied.
        let bytes = earlier.piece(self.io, file)?;
        self.io.put_durable(&to, &bytes)?;
        Ok(piece.clone())
    }

    /// Removes pieces that neither the state nor the one before names.
    pub fn remove_unnamed(&self, manifest: &ServingManifest) -> Result<()> {
        let mut named = manifest.files();
        named.extend(manifest.before.iter().cloned());
        for object in self.io.list(&self.directory.join(PIECES))? {
            let Some(name) = object.location.filename() else {
                continue;
            };
            let Some(file) = name.strip_suffix(PIECE_SUFFIX) else {
                continue;
            };
            if ContentId::parse(file).is_some() && !named.contains(file) {
                self.io.delete(&piece_location(&self.directory, file)?)?;
            }
        }
        Ok(())
    }
}

/// The states of the series of one piece, in the order of their hashes.
#[derive(Debug)]
pub struct SeriesPiece {
    series: FixedSizeBinaryArray,
    states: BinaryArray,
}

impl SeriesPiece {
    /// Reads a piece.
    pub fn decode(bytes: &[u8]) -> Result<SeriesPiece> {
        let broken = || corrupt_fault("a piece of the serving state cannot be read");
        let batch = read_table(bytes)?;
        let series = batch.column_by_name("series").ok_or_else(broken)?;
        let states = batch.column_by_name("state").ok_or_else(broken)?;
        let series = series.as_fixed_size_binary_opt().ok_or_else(broken)?;
        let states = states.as_binary_opt::<i32>().ok_or_else(broken)?;
        if series.value_length() != HASH_BYTES {
            return Err(broken());
        }
        Ok(SeriesPiece {
            series: series.clone(),
            states: states.clone(),
        })
    }

    /// Encodes the states of series, which are in the order of their hashes.
    pub fn encode<'s>(records: impl Iterator<Item = (u128, &'s [u8])>) -> Result<Vec<u8>> {
        let mut series = FixedSizeBinaryBuilder::new(HASH_BYTES);
        let mut states = BinaryBuilder::new();
        for (hash, state) in records {
            series.append_value(hash.to_be_bytes())?;
            states.append_value(state);
        }
        let schema = Schema::new(vec![
            Field::new("series", DataType::FixedSizeBinary(HASH_BYTES), false),
            Field::new("state", DataType::Binary, false),
        ]);
        let batch = RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(series.finish()), Arc::new(states.finish())],
        )?;
        write_table(&batch)
    }

    /// The state of a series.
    pub fn find(&self, hash: u128) -> Option<&[u8]> {
        let key = hash.to_be_bytes();
        let mut from = 0;
        let mut to = self.series.len();
        while from < to {
            let middle = from + (to - from) / 2;
            match self.series.value(middle).cmp(&key[..]) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
                std::cmp::Ordering::Equal => return Some(self.states.value(middle)),
            }
        }
        None
    }

    /// The hashes and states, in the order of the hashes.
    pub fn records(&self) -> impl Iterator<Item = (u128, &[u8])> {
        (0..self.series.len()).map(|row| {
            let mut hash = [0; HASH_BYTES as usize];
            hash.copy_from_slice(self.series.value(row));
            (u128::from_be_bytes(hash), self.states.value(row))
        })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.series.get_array_memory_size() + self.states.get_array_memory_size()
    }
}

/// Encodes rows as a piece.
pub fn write_table(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?;
    let mut writer = StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options)?;
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

/// Decodes the rows of a piece.
pub fn read_table(bytes: &[u8]) -> Result<RecordBatch> {
    let broken = || corrupt_fault("a piece of the serving state cannot be read");
    let mut reader = StreamReader::try_new(bytes, None).map_err(|error| broken().cause(error))?;
    let batch = reader.next().ok_or_else(broken)?;
    batch.map_err(|error| broken().cause(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_found_by_hash() {
        let records: Vec<(u128, Vec<u8>)> = (0..1000_u128)
            .map(|number| ((number * number) << 90, number.to_string().into_bytes()))
            .collect();
        let pairs = records
            .iter()
            .map(|(hash, state)| (*hash, state.as_slice()));
        let piece = SeriesPiece::decode(&SeriesPiece::encode(pairs).unwrap()).unwrap();
        for (hash, state) in &records {
            assert_eq!(piece.find(*hash), Some(state.as_slice()));
            assert_eq!(piece.find(hash + 1), None);
        }
        assert_eq!(piece.records().count(), records.len());
    }

    #[test]
    fn pieces_that_were_cut_are_refused() {
        let bytes = SeriesPiece::encode([(1_u128, &b"state"[..])].into_iter()).unwrap();
        for length in 0..bytes.len() - 8 {
            assert!(SeriesPiece::decode(&bytes[..length]).is_err());
        }
    }
}
