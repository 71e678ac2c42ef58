//! The rows of a chunk in their order.
//!
//! A chunk is delivered slice by slice. A slice takes its share of every part (or, where a chunk
//! holds everything, the parts of one tick), and only the rows of a slice are permuted: they fit the
//! second-level cache, so that rows are fetched from memory once and in the order in which they lie.

use super::Permutation;
use super::key::{Purpose, key};

/// Rows of a slice, about: records of clicks (160 bytes) then take 640 KiB.
pub(super) const SLICE_ROWS: u64 = 4096;

/// A part of a chunk: the rows that one unit gives to one tick, in the order of the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The unit.
    pub unit: u32,
    /// The unit's tick, from 0.
    pub tick: u32,
    /// How many rows.
    pub rows: u64,
}

/// The parts of a chunk and the order of its rows.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// First position in the epoch.
    pub start: u64,
    /// In order of unit and tick; of tick and unit where a chunk holds everything.
    pub parts: Vec<Part>,
    slices: Vec<Slice>,
    /// Rows of its slice before each piece of a part.
    starts: Vec<u32>,
    rows: u64,
    /// Slices per row, times 2^64.
    scale: u64,
}

/// Rows that are permuted together.
#[derive(Debug, Clone)]
struct Slice {
    /// Rows of the chunk before it.
    start: u64,
    /// The first part of which it has a piece, and where its pieces are among `starts`.
    part: usize,
    pieces: usize,
    count: usize,
    /// Pieces per row, times 2^64.
    scale: u64,
    /// Which share of each part: the numerator, of as many as there are slices. 0 of 1 is all.
    share: (u64, u64),
    permutation: Option<Permutation>,
}

impl Chunk {
    /// The chunk of these parts. Where `by_tick`, the parts of each tick are a slice.
    pub(super) fn new(start: u64, parts: Vec<Part>, seed: Option<(u64, u64)>, by_tick: bool) -> Chunk {
        let rows = parts.iter().map(|part| part.rows).sum();
        let mut chunk = Chunk { start, parts, slices: Vec::new(), starts: Vec::new(), rows, scale: 0 };
        let Some(seed) = seed else {
            chunk.slice(0..chunk.parts.len(), (0, 1), None);
            return chunk.scaled();
        };
        if by_tick {
            let mut first = 0;
            while first < chunk.parts.len() {
                let tick = chunk.parts[first].tick;
                let count = chunk.parts[first..].iter().take_while(|part| part.tick == tick).count();
                chunk.slice(first..first + count, (0, 1), Some(seed));
                first += count;
            }
        } else {
            let slices = rows.div_ceil(SLICE_ROWS).max(1);
            (0..slices).for_each(|number| chunk.slice(0..chunk.parts.len(), (number, slices), Some(seed)));
        }
        chunk.scaled()
    }

    fn scaled(mut self) -> Chunk {
        self.scale = scale(self.slices.len(), self.rows);
        self
    }

    fn slice(&mut self, parts: std::ops::Range<usize>, share: (u64, u64), seed: Option<(u64, u64)>) {
        let (pieces, count) = (self.starts.len(), parts.len());
        let start = self.slices.last().map_or(0, |last| last.start + self.slice_rows(last));
        let mut rows = 0;
        for part in &self.parts[parts.clone()] {
            // A chunk without a shuffle is one slice of one part, of which nothing is looked up.
            self.starts.push(rows as u32);
            rows += share_of(part.rows, (share.0 + 1, share.1)) - share_of(part.rows, share);
        }
        self.starts.push(rows as u32);
        let scale = scale(count, rows);
        let number = self.slices.len() as u64;
        let permutation = seed.map(|(seed, chunk)| Permutation::new(rows, key(seed, Purpose::Chunk, &[chunk, number])));
        self.slices.push(Slice { start, part: parts.start, pieces, count, scale, share, permutation });
    }

    fn slice_rows(&self, slice: &Slice) -> u64 {
        u64::from(self.starts[slice.pieces + slice.count])
    }

    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The part, and the row of the part, that the `place`-th row of the chunk is.
    #[inline]
    pub fn locate(&self, place: u64) -> (usize, u64) {
        // Slices are about equally long, and so are pieces: guess, and correct the guess.
        let mut number = guess(place, self.scale);
        while self.slices.get(number + 1).is_some_and(|next| next.start <= place) {
            number += 1;
        }
        while self.slices[number].start > place {
            number -= 1;
        }
        let slice = &self.slices[number];
        let Some(permutation) = slice.permutation else { return (slice.part, place) };
        let row = permutation.forward(place - slice.start);
        let starts = &self.starts[slice.pieces..=slice.pieces + slice.count];
        let mut piece = guess(row, slice.scale);
        while u64::from(starts[piece + 1]) <= row {
            piece += 1;
        }
        while u64::from(starts[piece]) > row {
            piece -= 1;
        }
        let part = slice.part + piece;
        (part, share_of(self.parts[part].rows, slice.share) + row - u64::from(starts[piece]))
    }
}

#[inline]
fn share_of(rows: u64, (number, of): (u64, u64)) -> u64 {
    rows * number / of
}

/// How many things there are per row, times 2^64.
fn scale(count: usize, rows: u64) -> u64 {
    let scale = ((count as u128) << 64).saturating_sub(1) / u128::from(rows.max(1));
    scale.min(u64::MAX.into()) as u64
}

/// Which thing a row is about in; never beyond the last.
#[inline]
fn guess(row: u64, scale: u64) -> usize {
    ((u128::from(row) * u128::from(scale)) >> 64) as usize
}
