//! The order of one epoch of one dataset.
//!
//! Blocks are permuted and joined to *units* of about one size. Each unit is dealt evenly over as
//! many *ticks* as the window spans: from every `span` consecutive rows, one goes to each tick.
//! The ticks of unit `j` begin at tick `j`, so that a tick mixes the rows of `span` units, and one
//! unit is read for one tick delivered: reading is steady, and what is held of a unit shrinks with
//! each tick, to half a unit on average. A window that holds `r` rows thus mixes `2 r` rows.
//!
//! ```text
//! unit 0  | 0 0 0 0
//! unit 1  |   1 1 1 1
//! unit 2  |     2 2 2 2          span 4; the first and last ticks, which mix few units,
//! unit 3  |       3 3 3 3        are joined to one chunk each
//! chunk   | 0 0 1 2 3 4 4
//! ```
//!
//! The rows of a chunk (one tick, or the joined ones) are permuted, slice by slice. Where the window
//! holds everything, all is one chunk, and its slices are the ticks. Without a shuffle a unit is a block,
//! a chunk is a unit, and nothing is permuted.

use std::ops::Range;

use super::chunk::{Chunk, Part, SLICE_ROWS};
use super::deal::{Deal, Deals};
use super::key::{Purpose, key};
use super::{Dataset, Permutation};

/// Units in a window at least, where blocks are small enough: a finer deal costs more than it mixes.
const UNITS_IN_WINDOW: u64 = 128;

/// The order of one epoch of one dataset: what a position delivers.
#[derive(Debug, Clone)]
pub struct Epoch {
    /// Blocks in the order in which they are read.
    blocks: Vec<u32>,
    /// First block of each unit as a place in `blocks`, and the end.
    unit_blocks: Vec<u32>,
    /// Rows before each unit, and all rows.
    unit_rows: Vec<u64>,
    /// Over how many ticks a unit is dealt.
    span: u32,
    /// How many ticks are joined at the beginning, and at the end.
    joined: u32,
    /// Rows before each chunk, and all rows.
    chunk_rows: Vec<u64>,
    /// How units are dealt, and what seeds the chunks' permutations; `None` delivers rows as they lie.
    deals: Option<Deals>,
    seed: Option<u64>,
}

impl Epoch {
    /// Rows as the blocks lie, in the given order of blocks.
    pub(super) fn straight(dataset: &Dataset, blocks: Vec<u32>) -> Epoch {
        let blocks = Epoch::filled(dataset, blocks);
        let unit_blocks = (0..=blocks.len() as u32).collect();
        Epoch::new(dataset, blocks, unit_blocks, 1, false, None)
    }

    /// Rows shuffled through a window of `window_rows`.
    pub(super) fn shuffled(dataset: &Dataset, window_rows: u64, seed: u64, number: u64, epoch: u64) -> Epoch {
        let all = Permutation::new(dataset.blocks() as u64, key(seed, Purpose::Blocks, &[number, epoch]));
        let blocks = Epoch::filled(dataset, (0..all.len()).map(|place| all.forward(place) as u32).collect());
        let target = window_rows / UNITS_IN_WINDOW;
        let (mut unit_blocks, mut rows, mut widest) = (vec![0], 0, 1);
        for (place, &block) in blocks.iter().enumerate() {
            rows += dataset.block_rows(block);
            if rows >= target.max(1) || place + 1 == blocks.len() {
                unit_blocks.push(place as u32 + 1);
                widest = widest.max(std::mem::take(&mut rows));
            }
        }
        let units = unit_blocks.len() as u64 - 1;
        let span = (2 * window_rows / widest).clamp(1, units.clamp(1, 4 * UNITS_IN_WINDOW)) as u32;
        let whole = dataset.rows() <= window_rows;
        let slices = dataset.rows().div_ceil(SLICE_ROWS).clamp(1, 4 * UNITS_IN_WINDOW) as u32;
        let seeds = Some((key(seed, Purpose::Deal, &[number, epoch]), key(seed, Purpose::Chunk, &[number, epoch])));
        Epoch::new(dataset, blocks, unit_blocks, if whole { slices } else { span }, whole, seeds)
    }

    fn filled(dataset: &Dataset, blocks: Vec<u32>) -> Vec<u32> {
        blocks.into_iter().filter(|&block| dataset.block_rows(block) > 0).collect()
    }

    fn new(
        dataset: &Dataset,
        blocks: Vec<u32>,
        unit_blocks: Vec<u32>,
        span: u32,
        whole: bool,
        seeds: Option<(u64, u64)>,
    ) -> Epoch {
        let mut unit_rows = vec![0];
        let mut rows = 0;
        for unit in unit_blocks.windows(2) {
            rows +=
                blocks[unit[0] as usize..unit[1] as usize].iter().map(|&block| dataset.block_rows(block)).sum::<u64>();
            unit_rows.push(rows);
        }
        let joined = if whole { u32::MAX } else { (span / 2).max(1) };
        let deals = seeds.map(|(seed, _)| Deals::new(seed, span));
        let seed = seeds.map(|(_, seed)| seed);
        let mut epoch = Epoch { blocks, unit_blocks, unit_rows, span, joined, chunk_rows: vec![0], deals, seed };
        epoch.chunk_rows = epoch.count_chunks();
        epoch
    }

    fn count_chunks(&self) -> Vec<u64> {
        let ticks = self.ticks();
        let mut rows = vec![0; ticks as usize];
        for unit in 0..self.units() {
            let (groups, rest) = (self.rows_of(unit) / u64::from(self.span), self.rows_of(unit) % u64::from(self.span));
            let first = unit as usize;
            rows[first..first + self.span as usize].iter_mut().for_each(|rows| *rows += groups);
            let deal = self.deal(unit, groups);
            (0..rest as u32).for_each(|row| rows[first + deal.map_or(row, |deal| deal.tick(row)) as usize] += 1);
        }
        let mut starts = vec![0];
        let mut sum = 0;
        for chunk in 0..self.chunks_of(ticks) {
            sum += rows[chunk_ticks(chunk, ticks, self.joined)].iter().sum::<u64>();
            starts.push(sum);
        }
        starts
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.unit_rows[self.units() as usize]
    }

    /// How many units are read, in order.
    pub fn units(&self) -> u32 {
        self.unit_blocks.len() as u32 - 1
    }

    /// Over how many ticks each unit is dealt: how many units a chunk mixes.
    pub fn span(&self) -> u32 {
        self.span
    }

    /// The blocks of a unit, in order.
    pub fn blocks_of(&self, unit: u32) -> &[u32] {
        &self.blocks[self.unit_blocks[unit as usize] as usize..self.unit_blocks[unit as usize + 1] as usize]
    }

    /// Rows of a unit.
    pub fn rows_of(&self, unit: u32) -> u64 {
        self.unit_rows[unit as usize + 1] - self.unit_rows[unit as usize]
    }

    fn ticks(&self) -> u32 {
        if self.units() == 0 { 0 } else { self.units() + self.span - 1 }
    }

    fn chunks_of(&self, ticks: u32) -> u32 {
        if ticks == 0 { 0 } else { (ticks + 2).saturating_sub(self.joined.saturating_mul(2)).max(1) }
    }

    /// How many chunks are delivered, in order.
    pub fn chunks(&self) -> u32 {
        self.chunk_rows.len() as u32 - 1
    }

    /// The chunk of a position.
    pub fn chunk_at(&self, position: u64) -> u32 {
        self.chunk_rows.partition_point(|&start| start <= position) as u32 - 1
    }

    /// The units that must be read before a chunk can be delivered: those that give it rows.
    pub fn units_for(&self, chunk: u32) -> Range<u32> {
        let ticks = chunk_ticks(chunk, self.ticks(), self.joined);
        (ticks.start as u32 + 1).saturating_sub(self.span)..(ticks.end as u32).min(self.units())
    }

    /// The chunk that gets the rows which a unit gives to its `tick`-th tick.
    pub fn chunk_of(&self, unit: u32, tick: u32) -> u32 {
        let tick = unit + tick;
        (tick + 1).saturating_sub(self.joined).min(self.chunks() - 1)
    }

    /// The first of a unit's ticks that a chunk, or one after it, gets rows from.
    pub fn first_tick(&self, chunk: u32, unit: u32) -> u32 {
        (chunk_ticks(chunk, self.ticks(), self.joined).start as u32).saturating_sub(unit)
    }

    /// First position of a chunk; of the one after the last, the end.
    pub fn chunk_start(&self, chunk: u32) -> u64 {
        self.chunk_rows[chunk as usize]
    }

    /// The parts and the order of a chunk.
    pub fn chunk(&self, chunk: u32) -> Chunk {
        let ticks = chunk_ticks(chunk, self.ticks(), self.joined);
        let mut parts = Vec::new();
        for unit in self.units_for(chunk) {
            let first = (ticks.start as u32).saturating_sub(unit);
            for tick in first..(ticks.end as u32 - unit).min(self.span) {
                let part = Part { unit, tick, rows: self.part_rows(unit, tick) };
                if part.rows > 0 {
                    parts.push(part);
                }
            }
        }
        parts.sort_unstable_by_key(|part| self.place(part.unit, part.tick));
        let seed = self.seed.map(|seed| (seed, chunk.into()));
        Chunk::new(self.chunk_rows[chunk as usize], parts, seed, self.joined == u32::MAX)
    }

    /// Orders the parts of a chunk.
    pub fn place(&self, unit: u32, tick: u32) -> (u32, u32) {
        if self.joined == u32::MAX { (tick, unit) } else { (unit, tick) }
    }

    fn part_rows(&self, unit: u32, tick: u32) -> u64 {
        let (groups, rest) = (self.rows_of(unit) / u64::from(self.span), self.rows_of(unit) % u64::from(self.span));
        let deal = self.deal(unit, groups);
        groups + u64::from(u64::from(deal.map_or(tick, |deal| deal.row(tick))) < rest)
    }

    /// How a group of `span` consecutive rows of a unit is dealt to the unit's ticks.
    #[inline]
    fn deal(&self, unit: u32, group: u64) -> Option<Deal<'_>> {
        Some(self.deals.as_ref()?.deal(unit, group))
    }

    /// The ticks of consecutive rows of a unit.
    pub fn deal_rows(&self, unit: u32, rows: Range<u64>, ticks: &mut Vec<u32>) {
        ticks.clear();
        let span = u64::from(self.span);
        let deals = match &self.deals {
            Some(deals) if span > 1 => deals,
            _ => return ticks.resize((rows.end - rows.start) as usize, 0),
        };
        let mut row = rows.start;
        while row < rows.end {
            let (group, first) = (row / span, row % span);
            let end = span.min(first + rows.end - row);
            ticks.extend(deals.deal(unit, group).ticks(first as usize..end as usize));
            row += end - first;
        }
    }

    /// The block and the row in it that are the `row`-th of a unit's part.
    pub fn source(&self, dataset: &Dataset, unit: u32, tick: u32, row: u64) -> (u32, u64) {
        let within = self.deal(unit, row).map_or(tick, |deal| deal.row(tick));
        let mut row = row * u64::from(self.span) + u64::from(within);
        for &block in self.blocks_of(unit) {
            match row.checked_sub(dataset.block_rows(block)) {
                Some(rest) => row = rest,
                None => return (block, row),
            }
        }
        (0, 0)
    }
}

/// The ticks of a chunk.
fn chunk_ticks(chunk: u32, ticks: u32, joined: u32) -> Range<usize> {
    let start = if chunk == 0 { 0 } else { joined + chunk - 1 };
    let end = if start.saturating_add(joined) >= ticks { ticks } else { joined + chunk };
    start as usize..end as usize
}
