//! Chunks of one dataset between reading and delivery.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::tile_pool::PartRows;
use super::unit_load::UnitLoad;
use crate::{EpochOrder, RowSequence, ShuffleChunk};

/// Blocks that are announced to a source before they are loaded. It requests as many of them as its memory allows.
const ANNOUNCED_BLOCKS_MAX: usize = 128;

/// A chunk whose rows have all been read.
#[derive(Debug)]
pub(super) struct ReadyChunk {
    /// The place of its first row in the dataset's sequence.
    pub start: u64,
    /// The number of the chunk in the epoch.
    number: u32,
    /// Made on first use.
    chunk: OnceLock<ShuffleChunk>,
    /// The rows of each part.
    pub parts: Vec<PartRows>,
    pub epoch: Arc<EpochOrder>,
}

impl ReadyChunk {
    /// Its places in the dataset's sequence.
    pub fn places(&self) -> Range<u64> {
        let first = self.epoch.chunk_start(self.number);
        let end = self.epoch.chunk_start(self.number + 1);
        self.start..self.start + end - first
    }

    /// The order of its rows.
    pub fn chunk(&self) -> &ShuffleChunk {
        self.chunk.get_or_init(|| self.epoch.chunk(self.number))
    }
}

/// A chunk whose units are being loaded.
#[derive(Debug)]
struct PendingChunk {
    /// The epoch of the dataset, and the number of the chunk in it.
    at: (u64, u32),
    epoch: Arc<EpochOrder>,
    /// Units that are not loaded yet.
    waiting: usize,
    parts: Vec<(u32, u32, PartRows)>,
    ready: Option<Arc<ReadyChunk>>,
}

/// The chunks of one dataset that are not delivered yet, in order without gaps.
#[derive(Debug)]
pub(super) struct ChunkStream {
    dataset: u32,
    rows: u64,
    entries: VecDeque<PendingChunk>,
    /// Epoch and chunk of the beginning: earlier chunks are not needed.
    first: (u64, u32),
    /// Epoch and unit that is loaded next.
    next: (u64, u32),
    /// Epoch and unit up to which blocks were announced to the source, and the number of these blocks that are not being
    /// loaded yet.
    announced: (u64, u32),
    announced_blocks: usize,
    /// Rows that are held or being loaded.
    held_rows: u64,
    /// Most rows that are held only to be ahead.
    capacity: u64,
    /// Places from here on are never delivered.
    end: u64,
}

impl ChunkStream {
    /// A stream that delivers from the place `start` up to `end`.
    pub fn new(
        sequence: &RowSequence,
        dataset: u32,
        place_range: Range<u64>,
        capacity: u64,
    ) -> ChunkStream {
        let rows = sequence.datasets()[dataset as usize].rows();
        let number = place_range.start / rows.max(1);
        let position = place_range.start % rows.max(1);
        let mut stream = ChunkStream {
            dataset,
            rows,
            entries: VecDeque::new(),
            first: (number, 0),
            next: (number, 0),
            announced: (number, 0),
            announced_blocks: 0,
            held_rows: 0,
            capacity,
            end: place_range.end,
        };
        if rows > 0 && !place_range.is_empty() {
            let epoch = sequence.epoch(dataset, number);
            let chunk = epoch.chunk_at(position);
            stream.first.1 = chunk;
            stream.next.1 = epoch.units_for(chunk).start;
            stream.open(number, chunk, epoch);
        }
        stream
    }

    fn open(&mut self, number: u64, chunk: u32, epoch: Arc<EpochOrder>) {
        let waiting = epoch.units_for(chunk).len();
        self.entries.push_back(PendingChunk {
            at: (number, chunk),
            epoch,
            waiting,
            parts: Vec::new(),
            ready: None,
        });
    }

    /// Opens the chunks up to one.
    fn open_up_to(&mut self, sequence: &RowSequence, at: (u64, u32)) {
        while let Some(last) = self.entries.back()
            && last.at < at
        {
            let (number, chunk) = last.at;
            if chunk + 1 < last.epoch.chunks() {
                let epoch = last.epoch.clone();
                self.open(number, chunk + 1, epoch);
            } else {
                let epoch = sequence.epoch(self.dataset, number + 1);
                self.open(number + 1, 0, epoch);
            }
        }
    }

    fn entry(&mut self, at: (u64, u32)) -> Option<&mut PendingChunk> {
        let index = self.entries.partition_point(|entry| entry.at < at);
        self.entries.get_mut(index).filter(|entry| entry.at == at)
    }

    fn chunk_at(&self, sequence: &RowSequence, place_number: u64) -> (u64, u32) {
        let number = place_number / self.rows;
        let epoch = sequence.epoch(self.dataset, number);
        (number, epoch.chunk_at(place_number % self.rows))
    }

    /// The chunks that hold some places, when all of them are ready. Earlier chunks are dropped:
    /// places are requested in order.
    pub fn take(
        &mut self,
        sequence: &RowSequence,
        place_range: Range<u64>,
    ) -> Option<Vec<Arc<ReadyChunk>>> {
        if place_range.is_empty() {
            return Some(Vec::new());
        }
        let last = self.chunk_at(sequence, place_range.end - 1);
        self.open_up_to(sequence, last);
        while let Some(entry) = self.entries.front() {
            let (number, chunk) = entry.at;
            let end = entry.epoch.chunk_start(chunk + 1);
            if number * self.rows + end > place_range.start {
                break;
            }
            let rows = end - entry.epoch.chunk_start(chunk);
            self.held_rows = self.held_rows.saturating_sub(rows);
            self.entries.pop_front();
        }
        // One chunk that is not ready makes all of them wait.
        let entries = self.entries.iter().take_while(|entry| entry.at <= last);
        entries.map(|entry| entry.ready.clone()).collect()
    }

    /// The unit to load next, where one is needed for the places before `end`, or where there is
    /// room to be ahead.
    pub fn next_load(&mut self, sequence: &RowSequence, end: u64) -> Option<UnitLoad> {
        if self.entries.is_empty() || end == 0 {
            return None;
        }
        let mut epoch = sequence.epoch(self.dataset, self.next.0);
        if self.next.1 >= epoch.units() {
            self.next = (self.next.0 + 1, 0);
            epoch = sequence.epoch(self.dataset, self.next.0);
        }
        let (number, unit) = self.next;
        // No place of the unit's first chunk is delivered: nor are those of later ones.
        if number * self.rows + epoch.chunk_start(epoch.chunk_of(unit, 0)) >= self.end {
            return None;
        }
        let (last_number, last_chunk) = self.chunk_at(sequence, end - 1);
        let is_needed =
            number < last_number || number == last_number && unit < epoch.units_for(last_chunk).end;
        let first_tick = if number == self.first.0 {
            epoch.first_tick(self.first.1, unit)
        } else {
            0
        };
        // Ticks that were delivered before the stream began take no memory.
        let span = u64::from(epoch.span());
        let unit_rows = epoch.rows_of(unit);
        let rows = unit_rows - unit_rows / span * u64::from(first_tick);
        if !is_needed && self.held_rows + rows > self.capacity {
            return None;
        }
        self.held_rows += rows;
        self.next.1 += 1;
        let last = epoch.chunk_of(unit, epoch.span() - 1);
        self.open_up_to(sequence, (number, last));
        Some(UnitLoad {
            dataset: self.dataset,
            number,
            epoch,
            unit,
            first_tick,
        })
    }

    /// The blocks that are loaded after a unit and were not announced to the source.
    pub fn blocks_ahead(&mut self, sequence: &RowSequence, load: &UnitLoad) -> Vec<u32> {
        if (load.number, load.unit) < self.announced {
            // The blocks of this unit are now being loaded.
            let loaded_blocks = load.epoch.blocks_of(load.unit).len();
            self.announced_blocks = self.announced_blocks.saturating_sub(loaded_blocks);
        } else {
            self.announced = (load.number, load.unit + 1);
        }
        let mut blocks = Vec::new();
        let mut epoch = load.epoch.clone();
        if self.announced.0 != load.number {
            epoch = sequence.epoch(self.dataset, self.announced.0);
        }
        while self.announced_blocks < ANNOUNCED_BLOCKS_MAX {
            let (number, unit) = self.announced;
            if unit >= epoch.units() {
                // At most one epoch beyond the one that is being loaded.
                if number > load.number || (number + 1) * self.rows >= self.end {
                    break;
                }
                self.announced = (number + 1, 0);
                epoch = sequence.epoch(self.dataset, number + 1);
                continue;
            }
            if number * self.rows + epoch.chunk_start(epoch.chunk_of(unit, 0)) >= self.end {
                break;
            }
            let next = epoch.blocks_of(unit);
            self.announced_blocks += next.len();
            blocks.extend(next);
            self.announced.1 += 1;
        }
        blocks
    }

    /// Takes over the rows that a unit gives to its ticks.
    pub fn loaded(&mut self, load: &UnitLoad, parts: Vec<PartRows>) {
        let mut counted_chunk = None;
        for (tick, part_rows) in (0..).zip(parts).skip(load.first_tick as usize) {
            let chunk = load.epoch.chunk_of(load.unit, tick);
            let at = (load.number, chunk);
            let start = load.number * self.rows + load.epoch.chunk_start(chunk);
            let Some(entry) = self.entry(at) else {
                continue;
            };
            if !part_rows.is_empty() {
                entry.parts.push((load.unit, tick, part_rows));
            }
            if counted_chunk != Some(chunk) {
                // A unit counts once for a chunk of several of its ticks; they come together.
                counted_chunk = Some(chunk);
                entry.waiting -= 1;
            }
            let is_last_tick =
                tick + 1 == load.epoch.span() || load.epoch.chunk_of(load.unit, tick + 1) != chunk;
            if entry.waiting == 0 && is_last_tick {
                entry.close(start);
            }
        }
    }
}

impl PendingChunk {
    fn close(&mut self, start: u64) {
        let mut parts = std::mem::take(&mut self.parts);
        // Units end in any order: the order of the parts is part of the order of rows.
        parts.sort_by_key(|(unit, tick, _)| (*unit, *tick));
        let parts = parts.into_iter().map(|(_, _, part_rows)| part_rows);
        let number = self.at.1;
        let chunk = OnceLock::new();
        self.ready = Some(Arc::new(ReadyChunk {
            start,
            number,
            chunk,
            parts: parts.collect(),
            epoch: self.epoch.clone(),
        }));
    }
}
