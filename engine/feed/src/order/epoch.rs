//! The order of one epoch of one dataset.
//!
//! Blocks are permuted and joined to *units* of about one size. Each unit consists of *runs* of a few
//! rows, and is dealt evenly over as many *ticks* as the window spans: from every `span` consecutive
//! runs, one goes to each tick.
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
//! The runs of a chunk (one tick, or the joined ones) are shuffled, and then its rows, slice by slice.
//! Where the window holds everything, all is one chunk. Without a shuffle a unit is a block, a chunk is
//! a unit, and nothing is shuffled.

use std::ops::Range;

use super::interleave::{GroupPermutation, GroupPermutations};
use super::seed::{SeedPurpose, derive_seed};
use super::shuffle_chunk::{ChunkPart, ShuffleChunk};
use super::{BlockDataset, KeyedPermutation, RUN_ROWS};

/// Units in a window at least, where blocks are small enough: a finer deal costs more than it mixes.
const UNITS_IN_WINDOW: u64 = 128;

/// The order of one epoch of one dataset: the row that each position delivers.
#[derive(Debug, Clone)]
pub struct EpochOrder {
    /// Blocks in the order in which they are read.
    blocks: Vec<u32>,
    /// First block of each unit as a place in `blocks`, and the end.
    unit_blocks: Vec<u32>,
    /// Rows before each unit, and all rows.
    unit_rows: Vec<u64>,
    /// Number of ticks over which a unit is dealt.
    span: u32,
    /// Number of ticks that are joined at the beginning, and at the end.
    joined: u32,
    /// Rows before each chunk, and all rows.
    chunk_rows: Vec<u64>,
    /// The deal of units to ticks, and the seed of chunks; `None` delivers rows as they lie.
    deals: Option<GroupPermutations>,
    seed: Option<u64>,
}

impl EpochOrder {
    /// Rows as the blocks lie, in the given order of blocks.
    pub(super) fn in_order(dataset: &BlockDataset, blocks: Vec<u32>) -> EpochOrder {
        let blocks = EpochOrder::nonempty_blocks(dataset, blocks);
        let unit_blocks = (0..=blocks.len() as u32).collect();
        EpochOrder::new(dataset, blocks, unit_blocks, 1, false, None)
    }

    /// Rows shuffled through a window of `window_rows`.
    pub(super) fn shuffled(
        dataset: &BlockDataset,
        window_rows: u64,
        seed: u64,
        number: u64,
        epoch: u64,
    ) -> EpochOrder {
        let block_count = dataset.blocks() as u64;
        let blocks_seed = derive_seed(seed, SeedPurpose::Blocks, &[number, epoch]);
        let permutation = KeyedPermutation::new(block_count, blocks_seed);
        let permuted = (0..block_count).map(|index| permutation.forward(index) as u32);
        let blocks = EpochOrder::nonempty_blocks(dataset, permuted.collect());
        // Consecutive blocks are joined to units of about one size.
        let unit_rows_min = (window_rows / UNITS_IN_WINDOW).max(1);
        let mut unit_blocks = vec![0];
        let mut rows = 0;
        let mut widest = 1;
        for (index, &block) in blocks.iter().enumerate() {
            rows += dataset.block_rows(block);
            if rows >= unit_rows_min || index + 1 == blocks.len() {
                unit_blocks.push(index as u32 + 1);
                widest = widest.max(rows);
                rows = 0;
            }
        }
        // Half of each unit is held on average, so that a window mixes twice as many units as fit it. The widest unit
        // counts: the window must never be exceeded.
        let units = unit_blocks.len() as u64 - 1;
        let span_max = units.clamp(1, 4 * UNITS_IN_WINDOW);
        let mut span = (2 * window_rows / widest).clamp(1, span_max) as u32;
        let is_whole = dataset.rows() <= window_rows;
        if is_whole {
            span = 1;
        }
        let deal_seed = derive_seed(seed, SeedPurpose::Deal, &[number, epoch]);
        let chunk_seed = derive_seed(seed, SeedPurpose::Chunk, &[number, epoch]);
        let seeds = Some((deal_seed, chunk_seed));
        EpochOrder::new(dataset, blocks, unit_blocks, span, is_whole, seeds)
    }

    fn nonempty_blocks(dataset: &BlockDataset, mut blocks: Vec<u32>) -> Vec<u32> {
        blocks.retain(|block| dataset.block_rows(*block) > 0);
        blocks
    }

    fn new(
        dataset: &BlockDataset,
        blocks: Vec<u32>,
        unit_blocks: Vec<u32>,
        span: u32,
        whole: bool,
        seeds: Option<(u64, u64)>,
    ) -> EpochOrder {
        let mut unit_rows = vec![0];
        let mut rows = 0;
        for unit in unit_blocks.windows(2) {
            for block in &blocks[unit[0] as usize..unit[1] as usize] {
                rows += dataset.block_rows(*block);
            }
            unit_rows.push(rows);
        }
        // The first and the last ticks mix few units: half a span of them is joined at either end.
        let joined = if whole { u32::MAX } else { (span / 2).max(1) };
        let deals = seeds.map(|(seed, _)| GroupPermutations::new(seed, span));
        let seed = seeds.map(|(_, seed)| seed);
        let mut epoch = EpochOrder {
            blocks,
            unit_blocks,
            unit_rows,
            span,
            joined,
            chunk_rows: vec![0],
            deals,
            seed,
        };
        epoch.chunk_rows = epoch.count_chunks();
        epoch
    }

    /// Rows before each chunk, and all rows.
    fn count_chunks(&self) -> Vec<u64> {
        let ticks = self.ticks();
        let span = u64::from(self.span);
        let mut rows = vec![0; ticks as usize];
        for unit in 0..self.units() {
            let unit_rows = self.rows_of(unit);
            let runs = unit_rows.div_ceil(RUN_ROWS);
            let groups = runs / span;
            let tick_rows = &mut rows[unit as usize..][..self.span as usize];
            // Each whole group gives one run to each tick.
            for rows in tick_rows.iter_mut() {
                *rows += groups * RUN_ROWS;
            }
            for run in 0..runs % span {
                tick_rows[self.tick_of(unit, groups, run)] += RUN_ROWS;
            }
            // The last run of all may be short.
            let last = runs - 1;
            let last_tick = self.tick_of(unit, last / span, last % span);
            tick_rows[last_tick] -= runs * RUN_ROWS - unit_rows;
        }
        let mut starts = vec![0];
        let mut sum = 0;
        for chunk in 0..self.chunks_of(ticks) {
            let chunk_ticks = chunk_ticks(chunk, ticks, self.joined);
            sum += rows[chunk_ticks].iter().sum::<u64>();
            starts.push(sum);
        }
        starts
    }

    /// The tick that a run of a group goes to.
    fn tick_of(&self, unit: u32, group: u64, run: u64) -> usize {
        match self.group_permutation(unit, group) {
            Some(deal) => deal.tick(run as u32) as usize,
            None => run as usize,
        }
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.unit_rows[self.units() as usize]
    }

    /// Number of units, which are read in order.
    pub fn units(&self) -> u32 {
        self.unit_blocks.len() as u32 - 1
    }

    /// Ticks over which each unit is dealt: the number of units that a chunk mixes.
    pub fn span(&self) -> u32 {
        self.span
    }

    /// The blocks of a unit, in order.
    pub fn blocks_of(&self, unit: u32) -> &[u32] {
        let start = self.unit_blocks[unit as usize] as usize;
        let end = self.unit_blocks[unit as usize + 1] as usize;
        &self.blocks[start..end]
    }

    /// Rows of a unit.
    pub fn rows_of(&self, unit: u32) -> u64 {
        self.unit_rows[unit as usize + 1] - self.unit_rows[unit as usize]
    }

    fn ticks(&self) -> u32 {
        if self.units() == 0 {
            0
        } else {
            self.units() + self.span - 1
        }
    }

    fn chunks_of(&self, ticks: u32) -> u32 {
        if ticks == 0 {
            return 0;
        }
        // The joined ticks at either end are one chunk each; if they meet, all is one chunk.
        let joined = self.joined.saturating_mul(2);
        (ticks + 2).saturating_sub(joined).max(1)
    }

    /// Number of chunks, which are delivered in order.
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
        (tick + 1)
            .saturating_sub(self.joined)
            .min(self.chunks() - 1)
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
    pub fn chunk(&self, chunk: u32) -> ShuffleChunk {
        let ticks = chunk_ticks(chunk, self.ticks(), self.joined);
        let mut parts = Vec::new();
        for unit in self.units_for(chunk) {
            let first = (ticks.start as u32).saturating_sub(unit);
            for tick in first..(ticks.end as u32 - unit).min(self.span) {
                let part = ChunkPart {
                    unit,
                    tick,
                    rows: self.part_rows(unit, tick),
                };
                if part.rows > 0 {
                    parts.push(part);
                }
            }
        }
        ShuffleChunk::new(self.chunk_rows[chunk as usize], parts, self.seed)
    }

    /// Rows that a unit gives to one of its ticks.
    pub fn part_rows(&self, unit: u32, tick: u32) -> u64 {
        let rows = self.rows_of(unit);
        let span = u64::from(self.span);
        let runs = rows.div_ceil(RUN_ROWS);
        let groups = runs / span;
        let extra_runs = runs % span;
        // One run of each whole group, and one more if the tick gets one of the last group's runs.
        let mut run_count = groups;
        if u64::from(self.run_of(unit, groups, tick)) < extra_runs {
            run_count += 1;
        }
        if run_count == 0 {
            return 0;
        }
        // The last run of all may be short.
        let last_group = run_count - 1;
        let last_run = last_group * span + u64::from(self.run_of(unit, last_group, tick));
        if last_run + 1 == runs {
            run_count * RUN_ROWS - (runs * RUN_ROWS - rows)
        } else {
            run_count * RUN_ROWS
        }
    }

    /// The run of a group that a tick gets.
    fn run_of(&self, unit: u32, group: u64, tick: u32) -> u32 {
        match self.group_permutation(unit, group) {
            Some(deal) => deal.run(tick),
            None => tick,
        }
    }

    /// The deal of a group of `span` consecutive runs of a unit to the unit's ticks.
    #[inline]
    fn group_permutation(&self, unit: u32, group: u64) -> Option<GroupPermutation<'_>> {
        Some(self.deals.as_ref()?.permutation(unit, group))
    }

    /// The ticks of the runs of a unit, one after another.
    pub fn interleave_runs(&self, unit: u32, ticks: &mut Vec<u32>) {
        ticks.clear();
        let runs = self.rows_of(unit).div_ceil(RUN_ROWS);
        let span = u64::from(self.span);
        let deals = match &self.deals {
            Some(deals) if span > 1 => deals,
            _ => return ticks.resize(runs as usize, 0),
        };
        for group in 0..runs.div_ceil(span) {
            let end = span.min(runs - group * span);
            ticks.extend(deals.permutation(unit, group).ticks(0..end as usize));
        }
    }

    /// The block and the row in it of a row of a unit's part: the `row`-th of the part's `run`-th run.
    pub fn source(
        &self,
        dataset: &BlockDataset,
        part: ChunkPart,
        run: u64,
        row: u64,
    ) -> (u32, u64) {
        let within = u64::from(self.run_of(part.unit, run, part.tick));
        let mut row = (run * u64::from(self.span) + within) * RUN_ROWS + row;
        // The row's number in the unit, from which the blocks before its own are subtracted.
        for &block in self.blocks_of(part.unit) {
            match row.checked_sub(dataset.block_rows(block)) {
                Some(remaining) => row = remaining,
                None => return (block, row),
            }
        }
        (0, 0)
    }
}

/// The ticks of a chunk.
fn chunk_ticks(chunk: u32, ticks: u32, joined: u32) -> Range<usize> {
    let start = if chunk == 0 { 0 } else { joined + chunk - 1 };
    let end = if start.saturating_add(joined) >= ticks {
        ticks
    } else {
        joined + chunk
    };
    start as usize..end as usize
}
