//! The rows of a chunk in their order.
//!
//! A chunk consists of runs: a few rows that follow each other in their unit. Its runs are shuffled,
//! and cut into slices where positions of the epoch are multiples of [`SLICE_ROWS`]; then the rows of
//! each slice are shuffled. So a run is fetched from memory at once, and its rows go to places that
//! all fit the second-level cache.

use std::ops::Range;

use super::RUN_ROWS;
use super::seed::{SeedPurpose, derive_seed, shuffle};

/// Rows of a slice: rows of clicks (160 bytes) then take 640 KiB. Batches of a multiple of that many
/// rows consist of whole slices.
pub(super) const SLICE_ROWS: u64 = 4096;

/// A part of a chunk: the runs that one unit gives to one tick, in the order of the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPart {
    /// The unit.
    pub unit: u32,
    /// The unit's tick, from 0.
    pub tick: u32,
    /// Number of rows. All runs but the last have the same number.
    pub rows: u64,
}

impl ChunkPart {
    /// Number of runs.
    pub fn runs(&self) -> u64 {
        self.rows.div_ceil(RUN_ROWS)
    }
}

/// The parts of a chunk and the order of its rows.
#[derive(Debug, Clone)]
pub struct ShuffleChunk {
    /// First position in the epoch.
    pub start: u64,
    /// In order of unit and tick.
    pub parts: Vec<ChunkPart>,
    /// The shuffle of the rows; `None` delivers a single part as it lies.
    shuffled: Option<RunShuffle>,
    rows: u64,
}

#[derive(Debug, Clone)]
struct RunShuffle {
    seed: u64,
    /// Part and number in it of each run, in the order of the chunk.
    runs: Vec<(u32, u32)>,
    /// Rows before each run, and all.
    starts: Vec<u64>,
}

/// Rows of a run, and their positions.
#[derive(Debug, Clone, Copy)]
pub struct PlacedRun<'a> {
    /// The part, by its place among the chunk's.
    pub part: usize,
    /// The run, counted in its part.
    pub run: u64,
    /// The first row of the run that lies in the slice.
    pub first: usize,
    /// The first position of the slice, counted from the chunk's.
    pub slice: u64,
    /// The position in the slice of each of the rows.
    pub places: &'a [u32],
}

/// The order of the slice that was used last.
#[derive(Debug, Default)]
pub struct SliceOrder {
    key: Option<u64>,
    places: Vec<u32>,
}

impl SliceOrder {
    fn set_shuffled(&mut self, rows: usize, key: u64) {
        if self.key == Some(key) && self.places.len() == rows {
            return;
        }
        self.places.clear();
        self.places.extend(0..rows as u32);
        shuffle(&mut self.places, key);
        self.key = Some(key);
    }

    fn set_in_order(&mut self, rows: usize) {
        self.key = None;
        self.places.clear();
        self.places.extend(0..rows as u32);
    }
}

impl ShuffleChunk {
    /// The chunk of these parts; a seed shuffles it.
    pub(super) fn new(start: u64, parts: Vec<ChunkPart>, seed: Option<u64>) -> ShuffleChunk {
        let rows = parts.iter().map(|part| part.rows).sum();
        let shuffled = seed.map(|seed| {
            let chunk_seed = derive_seed(seed, SeedPurpose::Chunk, &[start]);
            RunShuffle::new(&parts, chunk_seed)
        });
        ShuffleChunk {
            start,
            parts,
            shuffled,
            rows,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Passes the runs of all slices that have some of these positions, which count from the chunk's
    /// first, to `visit`. Slices are passed whole.
    pub fn each(
        &self,
        positions: Range<u64>,
        order: &mut SliceOrder,
        mut visit: impl FnMut(PlacedRun),
    ) {
        let mut position = positions.start;
        let end = positions.end.min(self.rows);
        while position < end {
            let slice = self.slice_of(position);
            self.pieces(&slice, order, &mut visit);
            position = slice.end;
        }
    }

    /// The slice of a position, clipped to the chunk.
    fn slice_of(&self, position: u64) -> Range<u64> {
        let at = self.start + position;
        let start = at / SLICE_ROWS * SLICE_ROWS;
        let end = (at / SLICE_ROWS + 1) * SLICE_ROWS;
        start.saturating_sub(self.start)..(end - self.start).min(self.rows)
    }

    fn pieces(
        &self,
        slice: &Range<u64>,
        order: &mut SliceOrder,
        visit: &mut impl FnMut(PlacedRun),
    ) {
        let rows = (slice.end - slice.start) as usize;
        // The run that holds the first row of the slice.
        let mut number = match &self.shuffled {
            Some(shuffled) => {
                let slice_seed = derive_seed(shuffled.seed, SeedPurpose::Chunk, &[slice.start]);
                order.set_shuffled(rows, slice_seed);
                let starts = &shuffled.starts;
                starts.partition_point(|start| *start <= slice.start) - 1
            }
            None => {
                order.set_in_order(rows);
                (slice.start / RUN_ROWS) as usize
            }
        };
        let mut row = slice.start;
        while row < slice.end {
            let (part, run, start, end) = self.run(number);
            // A run may begin before the slice and end behind it.
            let end = end.min(slice.end);
            let first_place = (row - slice.start) as usize;
            let end_place = (end - slice.start) as usize;
            visit(PlacedRun {
                part,
                run,
                first: (row - start) as usize,
                slice: slice.start,
                places: &order.places[first_place..end_place],
            });
            row = end;
            number += 1;
        }
    }

    /// Part, number in it, first row and end of a run.
    fn run(&self, number: usize) -> (usize, u64, u64, u64) {
        match &self.shuffled {
            Some(RunShuffle { runs, starts, .. }) => {
                let (part, run) = runs[number];
                let start = starts[number];
                let end = starts[number + 1];
                (part as usize, run.into(), start, end)
            }
            None => {
                let start = number as u64 * RUN_ROWS;
                let end = (start + RUN_ROWS).min(self.rows);
                (0, number as u64, start, end)
            }
        }
    }
}

impl RunShuffle {
    fn new(parts: &[ChunkPart], seed: u64) -> RunShuffle {
        let run_count = parts.iter().map(|part| part.runs() as usize).sum();
        let mut runs = Vec::with_capacity(run_count);
        for (number, part) in parts.iter().enumerate() {
            for run in 0..part.runs() as u32 {
                runs.push((number as u32, run));
            }
        }
        shuffle(&mut runs, seed);
        let mut starts = Vec::with_capacity(runs.len() + 1);
        let mut rows = 0;
        starts.push(rows);
        for (part, run) in &runs {
            // The last run of a part may be short.
            let rows_before = u64::from(*run) * RUN_ROWS;
            rows += RUN_ROWS.min(parts[*part as usize].rows - rows_before);
            starts.push(rows);
        }
        RunShuffle { seed, runs, starts }
    }
}
