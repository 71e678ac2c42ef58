//! Loading a unit: its blocks are read, and its rows dealt to the ticks that deliver them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use forebay_model::{Fault, Result, codes};

use super::blocks::Blocks;
use super::held::Held;
use super::stats::Times;
use super::work::Work;
use crate::slot::{Columns, Scratch, Steps, TILE_ROWS};
use crate::{Dataset, Epoch};

/// Bytes of records that are dealt at once.
const DEAL_BYTES: usize = 256 << 10;

/// A unit that is to be loaded.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub dataset: u32,
    /// Which epoch of the dataset.
    pub number: u64,
    pub epoch: Arc<Epoch>,
    pub unit: u32,
    /// Ticks before this one have been delivered already.
    pub first_tick: u32,
}

/// Buffers of a loading thread.
#[derive(Debug, Default)]
pub(super) struct Loader {
    scratch: Scratch,
    tile: Vec<u64>,
    ticks: Vec<u32>,
    sorted: Sorted,
}

/// Rows in order of their ticks.
#[derive(Debug, Default)]
struct Sorted {
    /// The first of `rows` of each tick, and the end.
    starts: Vec<u32>,
    rows: Vec<u32>,
}

impl Sorted {
    /// Sorts by counting; rows of a tick stay in order.
    fn sort(&mut self, ticks: &[u32], span: usize) {
        self.starts.clear();
        self.starts.resize(span + 2, 0);
        self.rows.resize(ticks.len(), 0);
        ticks.iter().for_each(|&tick| self.starts[tick as usize + 2] += 1);
        let mut sum = 0;
        self.starts.iter_mut().for_each(|start| {
            sum += *start;
            *start = sum;
        });
        for (row, &tick) in (0..).zip(ticks) {
            let place = &mut self.starts[tick as usize + 1];
            self.rows[*place as usize] = row;
            *place += 1;
        }
    }
}

/// A unit on its way into memory.
struct Dealing<'a> {
    work: &'a Work,
    load: &'a Load,
    /// By tick.
    held: Vec<Held>,
    /// Bytes of each tick's records that are filled.
    filled: Vec<usize>,
    /// Rows of the unit so far.
    rows: u64,
}

impl Loader {
    /// Loads a unit: what it gives to each of its ticks. `None` when the feed is over.
    pub fn load(&mut self, work: &Work, load: &Load, times: &mut Times) -> Result<Option<Vec<Held>>> {
        let source = &work.sources[load.dataset as usize];
        let dataset = &work.sequence.datasets()[load.dataset as usize];
        let mut dealing = Dealing::new(work, load);
        for &block in load.epoch.blocks_of(load.unit) {
            let whole = self.block(&**source, dataset, block, &mut dealing, times);
            if !whole.map_err(|fault| source.locate(block, fault))? {
                return Ok(None);
            }
        }
        times.found += std::mem::take(&mut self.scratch.found);
        Ok(Some(dealing.done()))
    }

    /// Reads one block; false when the feed is over.
    fn block(
        &mut self,
        source: &dyn Blocks,
        dataset: &Dataset,
        block: u32,
        dealing: &mut Dealing,
        times: &mut Times,
    ) -> Result<bool> {
        let work = dealing.work;
        let meta = dataset.block(block);
        let (mut seen, mut failed, mut packing) = (0, None, Duration::ZERO);
        let mut batches = Vec::new();
        let start = Instant::now();
        let waited = source.read(block, &work.columns, &mut |batch| {
            let begin = Instant::now();
            let halo = meta.halo.saturating_sub(seen).min(batch.num_rows() as u64) as usize;
            let row = seen + halo as u64;
            seen += batch.num_rows() as u64;
            let packed = if seen > meta.halo + meta.rows {
                Err(changed(meta.halo + meta.rows, "more"))
            } else if work.series.is_some() {
                batches.push(batch);
                Ok(())
            } else {
                self.batch(&batch.slice(halo, batch.num_rows() - halo), row, dealing)
            };
            failed = packed.err();
            packing += begin.elapsed();
            if failed.is_some() || work.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        if work.is_over() {
            return Ok(false);
        }
        if seen != meta.halo + meta.rows {
            return Err(changed(meta.halo + meta.rows, &seen.to_string()));
        }
        let begin = Instant::now();
        if let Some(series) = &work.series {
            let steps = series.steps(&batches, &mut self.scratch)?;
            self.sequences(&steps, meta.halo as usize, dealing);
        }
        packing += begin.elapsed();
        times.packing += packing;
        times.disk += waited;
        times.decoding += start.elapsed().saturating_sub(packing + waited);
        times.stored += meta.bytes;
        Ok(true)
    }

    fn batch(&mut self, batch: &RecordBatch, first_row: u64, dealing: &mut Dealing) -> Result<()> {
        let packer = &dealing.work.packer;
        let columns = Columns::new(&packer.features, batch, first_row)?;
        let rows = columns.rows;
        if dealing.work.straight {
            dealing.keep(columns);
            return Ok(());
        }
        dealing.load.epoch.deal_rows(dealing.load.unit, dealing.rows..dealing.rows + rows as u64, &mut self.ticks);
        let bytes = packer.layout.record_bytes;
        // As many rows as fit the second-level cache, so that each tick gets several at once.
        let deal = (DEAL_BYTES / bytes).next_multiple_of(TILE_ROWS);
        for first in (0..rows).step_by(deal) {
            let count = deal.min(rows - first);
            // Every byte of a record that is read has been written before.
            self.tile.resize(self.tile.len().max(count * bytes / size_of::<u64>()), 0);
            let records: &mut [u8] = bytemuck::cast_slice_mut(&mut self.tile);
            for (tile, records) in records[..count * bytes].chunks_mut(TILE_ROWS * bytes).enumerate() {
                packer.tile(&columns, first + tile * TILE_ROWS, records, &mut self.scratch)?;
            }
            self.sorted.sort(&self.ticks[first..first + count], dealing.held.len());
            dealing.deal(&records[..count * bytes], &self.sorted);
        }
        dealing.rows += rows as u64;
        Ok(())
    }

    fn sequences(&mut self, steps: &Steps, halo: usize, dealing: &mut Dealing) {
        let Some(series) = &dealing.work.series else { return };
        let layout = &dealing.work.packer.layout;
        let rows = steps.rows() - halo;
        dealing.load.epoch.deal_rows(dealing.load.unit, dealing.rows..dealing.rows + rows as u64, &mut self.ticks);
        self.tile.clear();
        self.tile.resize(layout.record_bytes / size_of::<u64>(), 0);
        for (row, &tick) in self.ticks.iter().enumerate() {
            let record: &mut [u8] = bytemuck::cast_slice_mut(&mut self.tile);
            series.record(steps, halo + row, layout, record);
            dealing.push(tick, record);
        }
        dealing.rows += rows as u64;
    }
}

impl<'a> Dealing<'a> {
    fn new(work: &'a Work, load: &'a Load) -> Dealing<'a> {
        let held = if work.straight {
            vec![Held::Columns(Vec::new())]
        } else {
            // Every tick gets a row of each `span` rows, and perhaps one of the rest.
            let span = load.epoch.span();
            let rows = (load.epoch.rows_of(load.unit) / u64::from(span)) as usize + 1;
            let bytes = rows * work.packer.layout.record_bytes;
            (0..span)
                .map(|tick| Held::Records(work.pool.take(if tick < load.first_tick { 0 } else { bytes })))
                .collect()
        };
        Dealing { work, load, filled: vec![0; held.len()], held, rows: 0 }
    }

    #[inline]
    fn push(&mut self, tick: u32, record: &[u8]) {
        let at = &mut self.filled[tick as usize];
        if tick >= self.load.first_tick
            && let Some(Held::Records(records)) = self.held.get_mut(tick as usize)
        {
            records.buffer[*at..*at + record.len()].copy_from_slice(record);
            *at += record.len();
        }
    }

    /// Gives records to their ticks, tick by tick: several rows are written one after another.
    fn deal(&mut self, records: &[u8], sorted: &Sorted) {
        let bytes = self.work.packer.layout.record_bytes;
        let ticks = self.held.iter_mut().zip(&mut self.filled).zip(sorted.starts.windows(2));
        for ((held, filled), range) in ticks.skip(self.load.first_tick as usize) {
            let Held::Records(held) = held else { continue };
            let rows = &sorted.rows[range[0] as usize..range[1] as usize];
            let room = held.buffer[*filled..].chunks_exact_mut(bytes);
            rows.iter().zip(room).for_each(|(row, to)| to.copy_from_slice(&records[*row as usize * bytes..][..bytes]));
            *filled += rows.len() * bytes;
        }
    }

    /// What each tick got.
    fn done(mut self) -> Vec<Held> {
        for (held, filled) in self.held.iter_mut().zip(&self.filled) {
            if let Held::Records(records) = held {
                records.buffer.truncate(*filled);
            }
        }
        self.held
    }

    fn keep(&mut self, columns: Columns) {
        let rows = columns.rows as u64;
        if let Some(Held::Columns(held)) = self.held.first_mut() {
            held.push((self.rows, columns));
        }
        self.rows += rows;
    }
}

fn changed(rows: u64, found: &str) -> Fault {
    Fault::new(codes::CHANGED, format!("a block of {rows} rows gave {found}"))
        .hint("the data changed after the feed was planned; start again")
}
