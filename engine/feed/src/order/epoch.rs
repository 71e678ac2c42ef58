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

/// The order of one epoch of one dataset: what a position delivers.
#[derive(Debug, Clone)]
pub struct EpochOrder {
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
    /// How units are dealt, and what seeds the chunks; `None` delivers rows as they lie.
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
        let all = KeyedPermutation::new(
            dataset.blocks() as u64,
            derive_seed(seed, SeedPurpose::Blocks, &[number, epoch]),
        );
        let blocks = EpochOrder::nonempty_blocks(
            dataset,
            (0..all.len())
                .map(|place| all.forward(place) as u32)
                .collect(),
        );
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
        let seeds = Some((
            derive_seed(seed, SeedPurpose::Deal, &[number, epoch]),
            derive_seed(seed, SeedPurpose::Chunk, &[number, epoch]),
        ));
        EpochOrder::new(
            dataset,
            blocks,
            unit_blocks,
            if whole { 1 } else { span },
            whole,
            seeds,
        )
    }

    fn nonempty_blocks(dataset: &BlockDataset, blocks: Vec<u32>) -> Vec<u32> {
        blocks
            .into_iter()
            .filter(|&block| dataset.block_rows(block) > 0)
            .collect()
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
            rows += blocks[unit[0] as usize..unit[1] as usize]
                .iter()
                .map(|&block| dataset.block_rows(block))
                .sum::<u64>();
            unit_rows.push(rows);
        }
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

    fn count_chunks(&self) -> Vec<u64> {
        let ticks = self.ticks();
        let mut rows = vec![0; ticks as usize];
        for unit in 0..self.units() {
            let (all, span) = (self.rows_of(unit), u64::from(self.span));
            let (groups, rest) = (all.div_ceil(RUN_ROWS) / span, all.div_ceil(RUN_ROWS) % span);
            let ticks = &mut rows[unit as usize..][..self.span as usize];
            ticks.iter_mut().for_each(|rows| *rows += groups * RUN_ROWS);
            let tick = |group, run: u64| {
                self.group_permutation(unit, group)
                    .map_or(run as u32, |deal| deal.tick(run as u32)) as usize
            };
            (0..rest).for_each(|run| ticks[tick(groups, run)] += RUN_ROWS);
            // The last run of all may be short.
            let last = all.div_ceil(RUN_ROWS) - 1;
            ticks[tick(last / span, last % span)] -= (last + 1) * RUN_ROWS - all;
        }
        let mut starts = vec![0];
        let mut sum = 0;
        for chunk in 0..self.chunks_of(ticks) {
            sum += rows[chunk_ticks(chunk, ticks, self.joined)]
                .iter()
                .sum::<u64>();
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
        &self.blocks
            [self.unit_blocks[unit as usize] as usize..self.unit_blocks[unit as usize + 1] as usize]
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
            0
        } else {
            (ticks + 2)
                .saturating_sub(self.joined.saturating_mul(2))
                .max(1)
        }
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

    /// How many rows a unit gives to one of its ticks.
    pub fn part_rows(&self, unit: u32, tick: u32) -> u64 {
        let (rows, span) = (self.rows_of(unit), u64::from(self.span));
        let runs = rows.div_ceil(RUN_ROWS);
        let (groups, rest) = (runs / span, runs % span);
        let last = groups + u64::from(u64::from(self.run_of(unit, groups, tick)) < rest);
        // The last run of all may be short.
        let short = runs > 0
            && last > 0
            && (last - 1) * span + u64::from(self.run_of(unit, last - 1, tick)) == runs - 1;
        last * RUN_ROWS - if short { runs * RUN_ROWS - rows } else { 0 }
    }

    /// The run of a group that a tick gets.
    fn run_of(&self, unit: u32, group: u64, tick: u32) -> u32 {
        self.group_permutation(unit, group)
            .map_or(tick, |deal| deal.run(tick))
    }

    /// How a group of `span` consecutive runs of a unit is dealt to the unit's ticks.
    #[inline]
    fn group_permutation(&self, unit: u32, group: u64) -> Option<GroupPermutation<'_>> {
        Some(self.deals.as_ref()?.permutation(unit, group))
    }

    /// The ticks of the runs of a unit, one after another.
    pub fn interleave_runs(&self, unit: u32, ticks: &mut Vec<u32>) {
        ticks.clear();
        let (runs, span) = (self.rows_of(unit).div_ceil(RUN_ROWS), u64::from(self.span));
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
        for &block in self.blocks_of(part.unit) {
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
    let end = if start.saturating_add(joined) >= ticks {
        ticks
    } else {
        joined + chunk
    };
    start as usize..end as usize
}
