//! The states of series that a serving program holds: those of the artifact, and those of series that have grown since.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use bytes::Bytes;
use forebay_commit::{MappedPiece, SeriesPiece, ServingReference, StoredWindow};
use forebay_model::{Fault, Result};
use forebay_storage::StorageClient;
use forebay_threads::{lock, parallel_map};
use forebay_window::SeriesStates;

/// Threads that read pieces.
const READ_THREADS: usize = 8;

/// Bytes that a series of appended rows takes besides its state.
const SERIES_BYTES: usize = 64;

/// Memory for decompressed pieces, unless the program sets it.
const PIECE_BYTES_DEFAULT: usize = 1 << 30;

/// Memory for decompressed pieces of all windows. Pieces beyond it lie in temporary files, mapped; with a directory for
/// shared files, all lie there.
pub(crate) struct PieceMemory {
    bytes_max: AtomicUsize,
    bytes: AtomicUsize,
    shared: OnceLock<PathBuf>,
}

impl Default for PieceMemory {
    fn default() -> PieceMemory {
        PieceMemory {
            bytes_max: AtomicUsize::new(PIECE_BYTES_DEFAULT),
            bytes: AtomicUsize::new(0),
            shared: OnceLock::new(),
        }
    }
}

impl PieceMemory {
    /// Sets the limit for pieces that are decompressed from now on.
    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Puts pieces that are decompressed from now on into files of a directory, which processes share.
    pub fn share_in(&self, directory: PathBuf) {
        // The first directory stays: pieces lie there already.
        let _ = self.shared.set(directory);
    }

    /// Takes memory; false where there is not enough.
    fn take(&self, bytes: usize) -> bool {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total > bytes_max {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        total <= bytes_max
    }
}

/// The states of the series of one window.
pub(crate) struct LiveSeries {
    /// The pieces of the artifact; `None` for those without series.
    pieces: Vec<Option<LazyPiece>>,
    memory: Arc<PieceMemory>,
    /// Series with rows that were appended.
    grown: RwLock<GrownStates>,
}

/// States of series with rows that were appended.
#[derive(Default)]
struct GrownStates {
    states: HashMap<u128, Arc<[u8]>>,
    bytes: usize,
}

/// A piece that is decompressed when a series of it is first asked for.
struct LazyPiece {
    /// Hash of the bytes.
    name: String,
    bytes: Bytes,
    decoded: OnceLock<DecodedPiece>,
    /// Held while it is decompressed.
    decoding: Mutex<()>,
}

/// A decompressed piece.
enum DecodedPiece {
    InMemory(Box<SeriesPiece>),
    Mapped(MappedPiece),
}

impl DecodedPiece {
    fn find(&self, series: u128) -> Option<&[u8]> {
        match self {
            DecodedPiece::InMemory(piece) => piece.find(series),
            DecodedPiece::Mapped(piece) => piece.find(series),
        }
    }
}

/// New states of the series of a window.
pub(crate) type GrownSeries = Vec<(u128, Arc<[u8]>)>;

/// Index of the piece of a series among `count` pieces, a power of two.
pub(crate) fn piece_of(hash: u128, count: usize) -> usize {
    match count.trailing_zeros() {
        0 => 0,
        bits => (hash >> (u128::BITS - bits)) as usize,
    }
}

impl LazyPiece {
    fn series(&self, memory: &PieceMemory) -> Result<&DecodedPiece> {
        if let Some(piece) = self.decoded.get() {
            return Ok(piece);
        }
        let _one_thread = lock(&self.decoding)?;
        // Another thread may have done it.
        if let Some(piece) = self.decoded.get() {
            return Ok(piece);
        }
        if let Some(directory) = memory.shared.get() {
            let path = directory.join(format!("{}.states", self.name));
            let mapped = MappedPiece::shared(&path, || SeriesPiece::decode(&self.bytes))?;
            return Ok(self.decoded.get_or_init(|| DecodedPiece::Mapped(mapped)));
        }
        let piece = SeriesPiece::decode(&self.bytes)?;
        let piece = if memory.take(piece.bytes()) {
            DecodedPiece::InMemory(Box::new(piece))
        } else {
            DecodedPiece::Mapped(MappedPiece::of(&piece)?)
        };
        Ok(self.decoded.get_or_init(|| piece))
    }
}

impl LiveSeries {
    /// Reads the pieces of a window.
    pub fn load(
        io: &StorageClient,
        reference: &ServingReference,
        window: &StoredWindow,
        memory: &Arc<PieceMemory>,
    ) -> Result<LiveSeries> {
        let pieces = parallel_map(READ_THREADS, window.pieces.len(), &|index| {
            let Some(file) = &window.pieces[index].file else {
                return Ok(None);
            };
            Ok(Some(LazyPiece {
                name: file.clone(),
                bytes: reference.piece(io, file)?,
                decoded: OnceLock::new(),
                decoding: Mutex::default(),
            }))
        })?;
        Ok(LiveSeries {
            pieces,
            memory: memory.clone(),
            grown: RwLock::default(),
        })
    }

    /// Replaces the states of series.
    pub fn install(&self, grown: GrownSeries) -> Result<()> {
        let mut guard = self.grown.write().map_err(|_| poisoned())?;
        for (series, state) in grown {
            guard.bytes += state.len() + SERIES_BYTES;
            if let Some(replaced) = guard.states.insert(series, state) {
                guard.bytes -= replaced.len() + SERIES_BYTES;
            }
        }
        Ok(())
    }

    /// True for a series with rows, of the run or appended.
    pub fn contains(&self, series: u128) -> Result<bool> {
        let guard = self.grown.read().map_err(|_| poisoned())?;
        let has_grown = guard.states.contains_key(&series);
        drop(guard);
        Ok(has_grown || self.stored(series)?.is_some())
    }

    /// Bytes that these states take, an upper bound of what they add.
    pub fn added_bytes(grown: &GrownSeries) -> usize {
        let states = grown.iter().map(|(_, state)| state.len() + SERIES_BYTES);
        states.sum()
    }

    /// Bytes of grown series.
    pub fn grown_bytes(&self) -> Result<usize> {
        Ok(self.grown.read().map_err(|_| poisoned())?.bytes)
    }

    fn stored(&self, series: u128) -> Result<Option<&[u8]>> {
        if self.pieces.is_empty() {
            return Ok(None);
        }
        let piece = self.pieces[piece_of(series, self.pieces.len())].as_ref();
        let Some(piece) = piece else {
            return Ok(None);
        };
        Ok(piece.series(&self.memory)?.find(series))
    }
}

impl SeriesStates for LiveSeries {
    fn read(&self, series: u128, bytes: &mut Vec<u8>) -> Result<bool> {
        let guard = self.grown.read().map_err(|_| poisoned())?;
        let grown = guard.states.get(&series).cloned();
        drop(guard);
        if let Some(state) = grown {
            bytes.extend_from_slice(&state);
            return Ok(true);
        }
        let Some(state) = self.stored(series)? else {
            return Ok(false);
        };
        bytes.extend_from_slice(state);
        Ok(true)
    }
}

/// The states of series as of the run, without appended facts.
pub(crate) struct RunSeries(pub Arc<LiveSeries>);

impl SeriesStates for RunSeries {
    fn read(&self, series: u128, bytes: &mut Vec<u8>) -> Result<bool> {
        let Some(state) = self.0.stored(series)? else {
            return Ok(false);
        };
        bytes.extend_from_slice(state);
        Ok(true)
    }
}

fn poisoned() -> Fault {
    Fault::internal("a thread failed while it changed the states of series")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_ranges_of_hashes() {
        assert_eq!(piece_of(u128::MAX, 1), 0);
        assert_eq!(piece_of(u128::MAX, 8), 7);
        assert_eq!(piece_of(1 << 125, 8), 1);
        assert_eq!(piece_of((1 << 125) - 1, 8), 0);
    }
}
