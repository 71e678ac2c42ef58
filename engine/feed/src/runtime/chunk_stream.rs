//! What is read, held and delivered of one dataset: chunks on their way.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::chunk_load::UnitLoad;
use super::tile_pool::PartRows;
use crate::{EpochOrder, RowSequence, ShuffleChunk};

/// Blocks that a source is told of before they are loaded. It asks for as many of them as its memory allows.
const ANNOUNCED_BLOCKS_MAX: usize = 128;

/// A chunk whose rows are all there.
#[derive(Debug)]
pub(super) struct ReadyChunk {
    /// The place of its first row in the dataset's sequence.
    pub start: u64,
    /// Which chunk of the epoch.
    number: u32,
    /// Made on first use.
    chunk: OnceLock<ShuffleChunk>,
    /// The rows of each part.
    pub held: Vec<PartRows>,
    pub epoch: Arc<EpochOrder>,
}

impl ReadyChunk {
    /// Its places in the dataset's sequence.
    pub fn places(&self) -> Range<u64> {
        self.start
            ..self.start + self.epoch.chunk_start(self.number + 1)
                - self.epoch.chunk_start(self.number)
    }

    /// The order of its rows.
    pub fn chunk(&self) -> &ShuffleChunk {
        self.chunk.get_or_init(|| self.epoch.chunk(self.number))
    }
}

/// A chunk on its way.
#[derive(Debug)]
struct PendingChunk {
    /// Which epoch of the dataset, and which chunk of it.
    at: (u64, u32),
    epoch: Arc<EpochOrder>,
    /// Units that are not loaded yet.
    waiting: usize,
    parts: Vec<(u32, u32, PartRows)>,
    ready: Option<Arc<ReadyChunk>>,
}

/// The chunks of one dataset that are on their way, in order without gaps.
#[derive(Debug)]
pub(super) struct ChunkStream {
    dataset: u32,
    rows: u64,
    entries: VecDeque<PendingChunk>,
    /// Where the stream began: earlier chunks are of no use.
    first: (u64, u32),
    /// Epoch and unit that is loaded next.
    next: (u64, u32),
    /// Epoch and unit up to which the source was told which blocks are read, and how many of these blocks are not being
    /// loaded yet.
    announced: (u64, u32),
    announced_blocks: usize,
    /// Rows that are held or being loaded.
    held_rows: u64,
    /// How many rows may be held only to be ahead.
    capacity: u64,
    /// Places from here on are never asked for.
    end: u64,
}

impl ChunkStream {
    /// A stream that delivers from the place `start` up to `end`.
    pub fn new(
        sequence: &RowSequence,
        dataset: u32,
        places: Range<u64>,
        capacity: u64,
    ) -> ChunkStream {
        let rows = sequence.datasets()[dataset as usize].rows();
        let (number, position) = (places.start / rows.max(1), places.start % rows.max(1));
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
            end: places.end,
        };
        if rows > 0 && !places.is_empty() {
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

    fn chunk_at(&self, sequence: &RowSequence, place: u64) -> (u64, u32) {
        let number = place / self.rows;
        (
            number,
            sequence
                .epoch(self.dataset, number)
                .chunk_at(place % self.rows),
        )
    }

    /// The chunks that hold some places, when all of them are ready. Chunks before are given up:
    /// places are asked for in order.
    pub fn take(
        &mut self,
        sequence: &RowSequence,
        places: Range<u64>,
    ) -> Option<Vec<Arc<ReadyChunk>>> {
        if places.is_empty() {
            return Some(Vec::new());
        }
        let last = self.chunk_at(sequence, places.end - 1);
        self.open_up_to(sequence, last);
        while let Some(entry) = self.entries.front()
            && entry.at.0 * self.rows + entry.epoch.chunk_start(entry.at.1 + 1) <= places.start
        {
            let rows =
                entry.epoch.chunk_start(entry.at.1 + 1) - entry.epoch.chunk_start(entry.at.1);
            self.held_rows = self.held_rows.saturating_sub(rows);
            self.entries.pop_front();
        }
        let asked = self.entries.iter().take_while(|entry| entry.at <= last);
        asked.map(|entry| entry.ready.clone()).collect()
    }

    /// The unit to load next, where one is needed for the places before `wanted`, or where there is
    /// room to be ahead.
    pub fn next_load(&mut self, sequence: &RowSequence, wanted: u64) -> Option<UnitLoad> {
        if self.entries.is_empty() || wanted == 0 {
            return None;
        }
        let mut epoch = sequence.epoch(self.dataset, self.next.0);
        if self.next.1 >= epoch.units() {
            self.next = (self.next.0 + 1, 0);
            epoch = sequence.epoch(self.dataset, self.next.0);
        }
        let (number, unit) = self.next;
        if number * self.rows + epoch.chunk_start(epoch.chunk_of(unit, 0)) >= self.end {
            return None;
        }
        let (wanted_number, wanted_chunk) = self.chunk_at(sequence, wanted - 1);
        let needed = number < wanted_number
            || number == wanted_number && unit < epoch.units_for(wanted_chunk).end;
        let first_tick = if number == self.first.0 {
            epoch.first_tick(self.first.1, unit)
        } else {
            0
        };
        let (span, rows) = (u64::from(epoch.span()), epoch.rows_of(unit));
        let rows = rows - rows / span * u64::from(first_tick);
        if !needed && self.held_rows + rows > self.capacity {
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

    /// The blocks that are loaded after a unit and that the source was not told of.
    pub fn blocks_ahead(&mut self, sequence: &RowSequence, load: &UnitLoad) -> Vec<u32> {
        if (load.number, load.unit) < self.announced {
            self.announced_blocks -= load
                .epoch
                .blocks_of(load.unit)
                .len()
                .min(self.announced_blocks);
        } else {
            self.announced = (load.number, load.unit + 1);
        }
        let (mut blocks, mut epoch) = (Vec::new(), load.epoch.clone());
        if self.announced.0 != load.number {
            epoch = sequence.epoch(self.dataset, self.announced.0);
        }
        while self.announced_blocks < ANNOUNCED_BLOCKS_MAX {
            let (number, unit) = self.announced;
            if unit >= epoch.units() {
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

    /// Takes over what a unit gives to its ticks.
    pub fn loaded(&mut self, load: &UnitLoad, held: Vec<PartRows>) {
        let mut done = None;
        for (tick, held) in (0..).zip(held).skip(load.first_tick as usize) {
            let chunk = load.epoch.chunk_of(load.unit, tick);
            let at = (load.number, chunk);
            let start = load.number * self.rows + load.epoch.chunk_start(chunk);
            let Some(entry) = self.entry(at) else {
                continue;
            };
            if !held.is_empty() {
                entry.parts.push((load.unit, tick, held));
            }
            if done != Some(chunk) {
                // A unit counts once for a chunk of several of its ticks; they come together.
                done = Some(chunk);
                entry.waiting -= 1;
            }
            if entry.waiting == 0
                && (tick + 1 == load.epoch.span()
                    || load.epoch.chunk_of(load.unit, tick + 1) != chunk)
            {
                entry.close(start);
            }
        }
    }
}

impl PendingChunk {
    fn close(&mut self, start: u64) {
        let mut parts = std::mem::take(&mut self.parts);
        parts.sort_by_key(|(unit, tick, _)| (*unit, *tick));
        let held = parts.into_iter().map(|(_, _, held)| held).collect();
        let (number, chunk) = (self.at.1, OnceLock::new());
        self.ready = Some(Arc::new(ReadyChunk {
            start,
            number,
            chunk,
            held,
            epoch: self.epoch.clone(),
        }));
    }
}
