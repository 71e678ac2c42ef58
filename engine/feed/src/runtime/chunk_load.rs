//! Loading a unit: its blocks are read, and its runs dealt to the ticks that deliver them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use forebay_model::{Fault, Result, catch_panic, codes};

use super::block_source::BlockSource;
use super::shared_feed::SharedFeed;
use super::stats::{LoadCounts, WorkerTimes};
use super::tile_pool::PartRows;
use super::unit_load::UnitLoad;
use crate::BlockDataset;
use crate::slot::{PackedColumns, SeriesSteps, TILE_ROWS, store_fence};

/// A unit that is being loaded.
struct UnitLoader<'a> {
    work: &'a SharedFeed,
    load: &'a UnitLoad,
    /// The rows of each tick.
    parts: Vec<PartRows>,
    /// The tick of each run.
    ticks: Vec<u32>,
    /// The blocks of sequences.
    series: Vec<(u32, SeriesSteps)>,
    /// Rows of the unit so far.
    rows: u64,
    /// Changed values of its rows.
    counts: LoadCounts,
}

/// Loads a unit: the rows of each of its ticks. `None` when the feed is over.
pub(super) fn load_unit(
    work: &SharedFeed,
    load: &UnitLoad,
    times: &mut WorkerTimes,
) -> Result<Option<Vec<PartRows>>> {
    let source = &work.sources[load.dataset as usize];
    let dataset = &work.sequence.datasets()[load.dataset as usize];
    let mut loader = UnitLoader::new(work, load);
    for &block in load.epoch.blocks_of(load.unit) {
        let loaded = catch_panic(|| loader.block(&**source, dataset, block, times));
        let is_whole = loaded.map_err(|fault| source.locate_fault(block, fault))?;
        if !is_whole {
            return Ok(None);
        }
    }
    times.found += loader.counts.values;
    work.add_counts(load.number, &loader.counts);
    Ok(Some(loader.finish()))
}

impl<'a> UnitLoader<'a> {
    fn new(work: &'a SharedFeed, load: &'a UnitLoad) -> UnitLoader<'a> {
        let mut ticks = Vec::new();
        let mut parts = Vec::new();
        if work.straight {
            parts.push(PartRows::Columns(Vec::new()));
        } else if work.series.is_none() {
            load.epoch.interleave_runs(load.unit, &mut ticks);
            // The buffers have their final size: rows are written into them from all over the unit.
            for tick in 0..load.epoch.span() {
                let tiles = load.part_rows(tick).div_ceil(TILE_ROWS as u64) as usize;
                let bytes = tiles * work.packer.tile_bytes();
                parts.push(PartRows::Tiles(work.pool.take(bytes)));
            }
        }
        UnitLoader {
            work,
            load,
            parts,
            ticks,
            series: Vec::new(),
            rows: 0,
            counts: LoadCounts::default(),
        }
    }

    fn finish(self) -> Vec<PartRows> {
        if self.work.series.is_none() {
            return self.parts;
        }
        // All ticks share the blocks of the unit.
        let series = Arc::new(self.series);
        let mut parts = Vec::new();
        for tick in 0..self.load.epoch.span() {
            parts.push(PartRows::Series(series.clone(), self.load.part_rows(tick)));
        }
        parts
    }

    /// Reads one block; false when the feed is over.
    fn block(
        &mut self,
        source: &dyn BlockSource,
        dataset: &BlockDataset,
        block: u32,
        times: &mut WorkerTimes,
    ) -> Result<bool> {
        let work = self.work;
        let meta = dataset.block(block);
        let mut seen = 0;
        let mut failed = None;
        let mut packing = Duration::ZERO;
        let mut batches = Vec::new();
        let start = Instant::now();
        let waited = source.read(block, &work.columns, &mut |batch| {
            let begin = Instant::now();
            let batch_rows = batch.num_rows();
            // The first rows of a block may be a halo, which only sequences need.
            let halo = meta.halo.saturating_sub(seen).min(batch_rows as u64) as usize;
            let first_row = seen + halo as u64;
            seen += batch_rows as u64;
            let packed = if seen > meta.halo + meta.rows {
                Err(block_changed(meta.halo + meta.rows, "more"))
            } else if work.series.is_some() {
                batches.push(batch);
                Ok(())
            } else {
                let delivered = batch.slice(halo, batch_rows - halo);
                self.batch(&delivered, first_row)
            };
            failed = packed.err();
            packing += begin.elapsed();
            if failed.is_some() || work.is_over() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        if work.is_over() {
            return Ok(false);
        }
        let begin = Instant::now();
        if let Some(series) = &work.series {
            let steps = series.pack_block(&batches, meta.halo)?;
            self.counts.values += steps.found;
            self.counts.add_filled(&steps.filled);
            if steps.rows() != meta.rows {
                return Err(block_changed(meta.rows, &steps.rows().to_string()));
            }
            self.series.push((block, steps));
        } else if seen != meta.halo + meta.rows {
            return Err(block_changed(meta.halo + meta.rows, &seen.to_string()));
        }
        packing += begin.elapsed();
        times.packing += packing;
        times.disk += waited;
        // Reading calls back into packing: the remaining time is decoding.
        times.decoding += start.elapsed().saturating_sub(packing + waited);
        times.stored += meta.bytes;
        Ok(true)
    }

    fn batch(&mut self, batch: &RecordBatch, first_row: u64) -> Result<()> {
        let packer = &self.work.packer;
        let columns = PackedColumns::new(&packer.features, &packer.layout, batch, first_row)?;
        self.counts.values += columns.found;
        self.counts.add_filled(&columns.filled);
        let rows = columns.rows;
        if self.work.straight {
            if let Some(PartRows::Columns(packed_columns)) = self.parts.first_mut() {
                packed_columns.push((self.rows, columns));
            }
            self.rows += rows as u64;
            return Ok(());
        }
        let columns = packer.part_columns(&columns);
        // Rows are stored a run at a time: the rows of one tile.
        let mut from = 0;
        while from < rows {
            let (tile, at) = self.tile();
            let count = (TILE_ROWS - at).min(rows - from);
            if let Some(tile) = tile {
                packer.store(&columns, from..from + count, tile, at, true);
            }
            self.rows += count as u64;
            from += count;
        }
        store_fence();
        Ok(())
    }

    /// The tile that the next row goes to, and its row there.
    #[inline]
    fn tile(&mut self) -> (Option<&mut [u8]>, usize) {
        let run = (self.rows / TILE_ROWS as u64) as usize;
        let at = (self.rows % TILE_ROWS as u64) as usize;
        let tick = self.ticks[run];
        if tick < self.load.first_tick {
            return (None, at);
        }
        let Some(PartRows::Tiles(tiles)) = self.parts.get_mut(tick as usize) else {
            return (None, at);
        };
        // Each tick gets one run of a group.
        let number = run / self.load.epoch.span() as usize;
        let bytes = self.work.packer.tile_bytes();
        let tile = tiles.tile_mut(number * bytes..(number + 1) * bytes);
        (Some(tile), at)
    }
}

fn block_changed(rows: u64, read_rows: &str) -> Fault {
    let message = format!("a block of {rows} rows gave {read_rows}");
    Fault::new(codes::CHANGED, message)
        .hint("the data changed after the feed was planned; start again")
}
