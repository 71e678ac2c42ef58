//! Loading a unit: its blocks are read, and its runs dealt to the ticks that deliver them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use forebay_model::{Fault, Result, catch_panic, codes};

use super::block_source::BlockSource;
use super::stats::WorkerTimes;
use super::tile_pool::PartRows;
use super::worker::SharedFeed;
use crate::slot::{NonFiniteCounts, PackedColumns, SeriesSteps, TILE_ROWS, store_fence};
use crate::{BlockDataset, EpochOrder};

/// A unit that is to be loaded.
#[derive(Debug, Clone)]
pub(super) struct UnitLoad {
    pub dataset: u32,
    /// Which epoch of the dataset.
    pub number: u64,
    pub epoch: Arc<EpochOrder>,
    pub unit: u32,
    /// Ticks before this one have been delivered already.
    pub first_tick: u32,
}

/// A unit on its way into memory.
struct UnitLoader<'a> {
    work: &'a SharedFeed,
    load: &'a UnitLoad,
    /// By tick.
    held: Vec<PartRows>,
    /// The tick of each run.
    ticks: Vec<u32>,
    /// The blocks of sequences.
    series: Vec<(u32, SeriesSteps)>,
    /// Rows of the unit so far.
    rows: u64,
}

/// Loads a unit: what it gives to each of its ticks. `None` when the feed is over.
pub(super) fn load_unit(
    work: &SharedFeed,
    load: &UnitLoad,
    times: &mut WorkerTimes,
) -> Result<Option<Vec<PartRows>>> {
    let source = &work.sources[load.dataset as usize];
    let dataset = &work.sequence.datasets()[load.dataset as usize];
    let mut dealing = UnitLoader::new(work, load);
    for &block in load.epoch.blocks_of(load.unit) {
        let whole = catch_panic(|| dealing.block(&**source, dataset, block, times));
        if !whole.map_err(|fault| source.locate_fault(block, fault))? {
            return Ok(None);
        }
    }
    Ok(Some(dealing.finish()))
}

impl<'a> UnitLoader<'a> {
    fn new(work: &'a SharedFeed, load: &'a UnitLoad) -> UnitLoader<'a> {
        let mut ticks = Vec::new();
        let held = if work.straight {
            vec![PartRows::Columns(Vec::new())]
        } else if work.series.is_some() {
            Vec::new()
        } else {
            load.epoch.interleave_runs(load.unit, &mut ticks);
            let tiles = |tick| match tick < load.first_tick {
                true => 0,
                false => load
                    .epoch
                    .part_rows(load.unit, tick)
                    .div_ceil(TILE_ROWS as u64) as usize,
            };
            let bytes = work.packer.tile_bytes();
            (0..load.epoch.span())
                .map(|tick| PartRows::Tiles(work.pool.take(tiles(tick) * bytes)))
                .collect()
        };
        UnitLoader {
            work,
            load,
            held,
            ticks,
            series: Vec::new(),
            rows: 0,
        }
    }

    fn finish(self) -> Vec<PartRows> {
        if self.work.series.is_none() {
            return self.held;
        }
        let (load, series) = (self.load, Arc::new(self.series));
        let rows = |tick| {
            if tick < load.first_tick {
                0
            } else {
                load.epoch.part_rows(load.unit, tick)
            }
        };
        (0..load.epoch.span())
            .map(|tick| PartRows::Series(series.clone(), rows(tick)))
            .collect()
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
        let (mut seen, mut failed, mut packing) = (0, None, Duration::ZERO);
        let (mut batches, mut found) = (Vec::new(), NonFiniteCounts::default());
        let start = Instant::now();
        let waited = source.read(block, &work.columns, &mut |batch| {
            let begin = Instant::now();
            let halo = meta.halo.saturating_sub(seen).min(batch.num_rows() as u64) as usize;
            let row = seen + halo as u64;
            seen += batch.num_rows() as u64;
            let packed = if seen > meta.halo + meta.rows {
                Err(block_changed(meta.halo + meta.rows, "more"))
            } else if work.series.is_some() {
                batches.push(batch);
                Ok(())
            } else {
                self.batch(&batch.slice(halo, batch.num_rows() - halo), row, &mut found)
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
            found += steps.found;
            if steps.rows() != meta.rows {
                return Err(block_changed(meta.rows, &steps.rows().to_string()));
            }
            self.series.push((block, steps));
        } else if seen != meta.halo + meta.rows {
            return Err(block_changed(meta.halo + meta.rows, &seen.to_string()));
        }
        packing += begin.elapsed();
        times.found += found;
        times.packing += packing;
        times.disk += waited;
        times.decoding += start.elapsed().saturating_sub(packing + waited);
        times.stored += meta.bytes;
        Ok(true)
    }

    fn batch(
        &mut self,
        batch: &RecordBatch,
        first_row: u64,
        found: &mut NonFiniteCounts,
    ) -> Result<()> {
        let packer = &self.work.packer;
        let columns = PackedColumns::new(&packer.features, &packer.layout, batch, first_row)?;
        *found += columns.found;
        let rows = columns.rows;
        if self.work.straight {
            if let Some(PartRows::Columns(held)) = self.held.first_mut() {
                held.push((self.rows, columns));
            }
            self.rows += rows as u64;
            return Ok(());
        }
        let (columns, mut from) = (packer.part_columns(&columns), 0);
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
        let (run, at) = (
            (self.rows / TILE_ROWS as u64) as usize,
            (self.rows % TILE_ROWS as u64) as usize,
        );
        let tick = self.ticks[run];
        let Some(PartRows::Tiles(tiles)) = self
            .held
            .get_mut(tick as usize)
            .filter(|_| tick >= self.load.first_tick)
        else {
            return (None, at);
        };
        // Each tick gets one run of a group.
        let (number, bytes) = (
            run / self.load.epoch.span() as usize,
            self.work.packer.tile_bytes(),
        );
        (
            Some(tiles.tile_mut(number * bytes..(number + 1) * bytes)),
            at,
        )
    }
}

fn block_changed(rows: u64, found: &str) -> Fault {
    Fault::new(
        codes::CHANGED,
        format!("a block of {rows} rows gave {found}"),
    )
    .hint("the data changed after the feed was planned; start again")
}
