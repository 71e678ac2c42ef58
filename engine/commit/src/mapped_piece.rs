//! States of series in a file that is mapped: the system keeps those in memory that are asked for.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use bytes::Bytes;
use forebay_model::{Fault, Result};
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::mapped_file::map_file;
use crate::serving_state::SeriesPiece;

/// Bytes of the hash of a series.
const HASH_BYTES: usize = 16;

/// Bytes of the end of a state.
const END_BYTES: usize = 8;

/// Version of the form of shared files, the seed of their hash: a file of another version is written again.
const SHARED_VERSION: u64 = 1;

/// The states of a piece in a mapped file: a temporary one without a name, which goes with this value, or one that the
/// processes of a machine share.
///
/// The file has the hashes in ascending order, then for each state the position behind its last byte, then the states. A
/// shared one ends with the number of series, and the XXH3 hash of all bytes before the hash, seeded with the version.
#[derive(Debug)]
pub struct MappedPiece {
    bytes: Bytes,
    series: usize,
}

impl MappedPiece {
    /// Writes the states of a piece to a file in the directory for temporary files.
    pub fn of(piece: &SeriesPiece) -> Result<MappedPiece> {
        let bytes = write_piece(piece).map_err(|error| {
            let message = "the states of series cannot be put into a temporary file";
            Fault::disk(message, error).hint(
                "set TMPDIR to a directory on a disk with room, or raise --memory, \
                 an eighth of which holds states",
            )
        })?;
        Ok(MappedPiece {
            bytes,
            series: piece.records().count(),
        })
    }

    /// The states of a piece in a shared file: the first process writes it, and all map it. A file that is not whole is
    /// written again.
    pub fn shared(
        path: &Path,
        decode: impl FnOnce() -> Result<SeriesPiece>,
    ) -> Result<MappedPiece> {
        if let Some(mapped) = MappedPiece::open(path) {
            return Ok(mapped);
        }
        let bytes = write_shared(&decode()?, path).map_err(|error| {
            let message = "the states of series cannot be put into a shared file";
            Fault::disk(message, error)
                .file(path.display().to_string())
                .hint("name a directory that this process may write to, on a disk with room")
        })?;
        MappedPiece::of_shared(bytes)
            .ok_or_else(|| Fault::internal("a shared file of states cannot be read back"))
    }

    fn open(path: &Path) -> Option<MappedPiece> {
        let file = File::open(path).ok()?;
        MappedPiece::of_shared(map_file(&file).ok()?)
    }

    /// The states of a shared file; `None` where it is not whole.
    fn of_shared(bytes: Bytes) -> Option<MappedPiece> {
        let (content, hash) = bytes.split_last_chunk::<END_BYTES>()?;
        if xxh3_64_with_seed(content, SHARED_VERSION) != u64::from_le_bytes(*hash) {
            return None;
        }
        let (states, series) = content.split_last_chunk::<END_BYTES>()?;
        let series = usize::try_from(u64::from_le_bytes(*series)).ok()?;
        let heads = series.checked_mul(HASH_BYTES + END_BYTES)?;
        (heads <= states.len()).then_some(MappedPiece { bytes, series })
    }

    /// The state of a series.
    pub fn find(&self, hash: u128) -> Option<&[u8]> {
        let key = hash.to_be_bytes();
        let mut from = 0;
        let mut to = self.series;
        while from < to {
            let middle = from + (to - from) / 2;
            match self.hash(middle).cmp(&key[..]) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return self.state(middle),
            }
        }
        None
    }

    fn hash(&self, row: usize) -> &[u8] {
        &self.bytes[row * HASH_BYTES..][..HASH_BYTES]
    }

    fn state(&self, row: usize) -> Option<&[u8]> {
        let states = self.bytes.get(self.series * (HASH_BYTES + END_BYTES)..)?;
        let start = match row.checked_sub(1) {
            Some(previous) => self.end(previous)?,
            None => 0,
        };
        states.get(start..self.end(row)?)
    }

    /// The position behind a state.
    fn end(&self, row: usize) -> Option<usize> {
        let ends = self.bytes.get(self.series * HASH_BYTES..)?;
        let end = ends.get(row * END_BYTES..)?.first_chunk()?;
        usize::try_from(u64::from_le_bytes(*end)).ok()
    }
}

fn write_piece(piece: &SeriesPiece) -> std::io::Result<Bytes> {
    let file = tempfile::tempfile()?;
    let mut out = BufWriter::new(&file);
    write_states(piece, &mut out)?;
    out.flush()?;
    drop(out);
    map_file(&file)
}

/// Passes bytes on and hashes them.
struct HashedWriter<W> {
    out: W,
    hash: Xxh3,
}

impl<W: Write> Write for HashedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Writes a file that readers see whole or not at all.
fn write_shared(piece: &SeriesPiece, path: &Path) -> std::io::Result<Bytes> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut staged = NamedTempFile::new_in(directory)?;
    write_hashed(piece, staged.as_file_mut())?;
    let file = staged.persist(path).map_err(|error| error.error)?;
    map_file(&file)
}

/// Writes the states of a piece, their number, and the hash of both.
fn write_hashed(piece: &SeriesPiece, file: &mut File) -> std::io::Result<()> {
    let mut hashed = HashedWriter {
        out: BufWriter::new(file),
        hash: Xxh3::with_seed(SHARED_VERSION),
    };
    write_states(piece, &mut hashed)?;
    let series = piece.records().count() as u64;
    hashed.write_all(&series.to_le_bytes())?;
    let digest = hashed.hash.digest();
    hashed.out.write_all(&digest.to_le_bytes())?;
    hashed.out.flush()
}

fn write_states(piece: &SeriesPiece, out: &mut impl Write) -> std::io::Result<()> {
    for (hash, _) in piece.records() {
        out.write_all(&hash.to_be_bytes())?;
    }
    let mut end = 0;
    for (_, state) in piece.records() {
        end += state.len() as u64;
        out.write_all(&end.to_le_bytes())?;
    }
    for (_, state) in piece.records() {
        out.write_all(state)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_piece_has_the_states_of_the_piece() {
        // States of 0 to 999 bytes.
        let records: Vec<(u128, Vec<u8>)> = (0..1000_u128)
            .map(|number| {
                (
                    (number * number) << 100,
                    vec![number as u8; number as usize],
                )
            })
            .collect();
        let pairs = records
            .iter()
            .map(|(hash, state)| (*hash, state.as_slice()));
        let encoded = SeriesPiece::encode(pairs).unwrap();
        let piece = SeriesPiece::decode(&encoded).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("states").join("piece");
        let shared = MappedPiece::shared(&path, || SeriesPiece::decode(&encoded)).unwrap();
        // The next process writes nothing.
        let again = MappedPiece::shared(&path, || panic!("written again")).unwrap();
        for mapped in [MappedPiece::of(&piece).unwrap(), shared, again] {
            for (hash, state) in &records {
                assert_eq!(mapped.find(*hash), Some(state.as_slice()));
                assert_eq!(mapped.find(hash + 1), None);
            }
            assert_eq!(mapped.find(u128::MAX), None);
        }
    }

    #[test]
    fn a_shared_piece_that_is_not_whole_is_written_again() {
        let records = [(1_u128, b"one".as_slice()), (2, b"second".as_slice())];
        let encoded = SeriesPiece::encode(records.into_iter()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("piece");
        MappedPiece::shared(&path, || SeriesPiece::decode(&encoded)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mapped = MappedPiece::shared(&path, || SeriesPiece::decode(&encoded)).unwrap();
            assert_eq!(mapped.find(2), Some(b"second".as_slice()));
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
        // A file of another version has another hash.
        let mut other_version = whole.clone();
        let content = &whole[..whole.len() - END_BYTES];
        let hash = xxh3_64_with_seed(content, SHARED_VERSION + 1);
        other_version[content.len()..].copy_from_slice(&hash.to_le_bytes());
        std::fs::write(&path, &other_version).unwrap();
        MappedPiece::shared(&path, || SeriesPiece::decode(&encoded)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }
}
