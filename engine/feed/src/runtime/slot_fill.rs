//! Filling a slot with the rows of a step.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use forebay_model::{Fault, Result};

use super::chunk_stream::ReadyChunk;
use super::schedule::BatchJob;
use super::shared_feed::SharedFeed;
use super::tile_pool::PartRows;
use crate::slot::{NO_ROW, TILE_ROWS, prefetch};
use crate::{DeliveryDigest, RowId, SliceOrder};

/// Number of tiles that are prefetched: those of clicks (2,560 bytes) fit the first-level cache.
const PREFETCH_TILES: usize = 4;

/// Buffers of a filling thread.
#[derive(Debug, Default)]
pub(super) struct FillBuffers {
    order: SliceOrder,
    tile: Vec<u64>,
}

/// Fills a slot from the chunks of each dataset.
pub(super) fn fill_slot(
    work: &SharedFeed,
    job: &BatchJob,
    chunks: &[Vec<Arc<ReadyChunk>>],
    slot: &mut [u8],
    buffers: &mut FillBuffers,
) -> Result<DeliveryDigest> {
    let mut receipt = DeliveryDigest::default();
    let rows = (job.places.end - job.places.start) as usize;
    for (dataset, chunks) in (0..).zip(chunks) {
        let targets = SlotTargets::new(work, job, dataset);
        for ready in chunks {
            if work.straight {
                fill_in_order(work, job, ready, slot, buffers);
            } else if work.series.is_some() {
                fill_sequences(work, dataset, &targets, ready, slot, buffers)?;
            } else {
                fill_shuffled(work, &targets, ready, slot, buffers)?;
            }
            if work.receipts {
                receipt += digest_of(work, job, dataset, &targets, ready, buffers);
            }
        }
    }
    work.packer.fill_mask(slot, rows);
    if rows < job.shape_rows {
        work.packer.pad(slot, rows);
    }
    Ok(receipt)
}

/// Rows of a slot that places of a dataset's sequence go to.
struct SlotTargets {
    /// The places.
    turns: Range<u64>,
    /// The row of each of them; `None` where they follow each other.
    rows: Option<Vec<u32>>,
}

impl SlotTargets {
    fn new(work: &SharedFeed, job: &BatchJob, dataset: u32) -> SlotTargets {
        let turns = work.sequence.turns_of(dataset, job.places.clone());
        if work.sources.len() == 1 {
            return SlotTargets { turns, rows: None };
        }
        let mut rows = vec![NO_ROW; (turns.end - turns.start) as usize];
        for (row, batch_place) in (0..).zip(job.places.clone()) {
            let (turn, dataset_place) = work.sequence.turn(batch_place);
            if turn == dataset {
                rows[(dataset_place - turns.start) as usize] = row;
            }
        }
        SlotTargets {
            turns,
            rows: Some(rows),
        }
    }

    #[inline]
    fn row(&self, place_number: u64) -> u32 {
        if !self.turns.contains(&place_number) {
            return NO_ROW;
        }
        let at = (place_number - self.turns.start) as usize;
        match &self.rows {
            Some(rows) => rows[at],
            None => at as u32,
        }
    }

    /// Positions of a chunk that may go to a row of the slot.
    fn within(&self, ready: &ReadyChunk) -> Range<u64> {
        let chunk_range = ready.places();
        let start = self.turns.start.max(chunk_range.start);
        let end = self.turns.end.min(chunk_range.end);
        start - chunk_range.start..end.max(start) - chunk_range.start
    }
}

fn fill_shuffled(
    work: &SharedFeed,
    targets: &SlotTargets,
    ready: &ReadyChunk,
    slot: &mut [u8],
    buffers: &mut FillBuffers,
) -> Result<()> {
    let packer = &work.packer;
    let bytes = packer.tile_bytes();
    let mut is_complete = true;
    // Tiles lie all over the window: each is prefetched some time before it is needed.
    let mut prefetched: VecDeque<(&[u8], [u32; TILE_ROWS])> =
        VecDeque::with_capacity(PREFETCH_TILES + 1);
    let positions = targets.within(ready);
    ready.chunk().each(positions, &mut buffers.order, |piece| {
        let mut rows = [NO_ROW; TILE_ROWS];
        let first = ready.start + piece.slice;
        for (row, place) in rows[piece.first..].iter_mut().zip(piece.places) {
            *row = targets.row(first + u64::from(*place));
        }
        // Slices are passed whole: some runs have no row in this batch.
        if rows == [NO_ROW; TILE_ROWS] {
            return;
        }
        let Some(PartRows::Tiles(tiles)) = ready.parts.get(piece.part) else {
            is_complete = false;
            return;
        };
        let start = piece.run as usize * bytes;
        let tile = tiles.tile(start..start + bytes);
        prefetch(tile);
        prefetched.push_back((tile, rows));
        if prefetched.len() > PREFETCH_TILES
            && let Some((tile, rows)) = prefetched.pop_front()
        {
            packer.scatter(tile, &rows, slot);
        }
    });
    for (tile, rows) in &prefetched {
        packer.scatter(tile, rows, slot);
    }
    if is_complete {
        Ok(())
    } else {
        Err(rows_missing())
    }
}

fn rows_missing() -> Fault {
    Fault::internal("a batch is filled before its rows are there")
}

fn fill_sequences(
    work: &SharedFeed,
    dataset: u32,
    targets: &SlotTargets,
    ready: &ReadyChunk,
    slot: &mut [u8],
    buffers: &mut FillBuffers,
) -> Result<()> {
    let data = &work.sequence.datasets()[dataset as usize];
    let chunk = ready.chunk();
    let mut is_complete = true;
    chunk.each(targets.within(ready), &mut buffers.order, |piece| {
        for (row, slice_place) in (piece.first as u64..).zip(piece.places) {
            let to = targets.row(ready.start + piece.slice + u64::from(*slice_place));
            if to == NO_ROW {
                continue;
            }
            let (block, row) = ready
                .epoch
                .source(data, chunk.parts[piece.part], piece.run, row);
            let steps = match ready.parts.get(piece.part) {
                Some(PartRows::Series(blocks, _)) => {
                    blocks.iter().find(|(number, _)| *number == block)
                }
                _ => None,
            };
            match steps {
                Some((_, steps)) => {
                    steps.write_steps(row as usize, &work.packer.layout, slot, to as usize)
                }
                None => is_complete = false,
            }
        }
    });
    if is_complete {
        Ok(())
    } else {
        Err(rows_missing())
    }
}

fn fill_in_order(
    work: &SharedFeed,
    job: &BatchJob,
    ready: &ReadyChunk,
    slot: &mut [u8],
    buffers: &mut FillBuffers,
) {
    let Some(PartRows::Columns(packed)) = ready.parts.first() else {
        return;
    };
    for (start, columns) in packed {
        // Places that both the batch of the source and the job have.
        let source = ready.start + start;
        let first = job.places.start.max(source);
        let end = job.places.end.min(source + columns.rows as u64);
        if first < end {
            let rows = (first - source) as usize..(end - source) as usize;
            let to = first - job.places.start;
            work.packer
                .pack_slot(columns, rows, slot, to as usize, &mut buffers.tile);
        }
    }
}

fn digest_of(
    work: &SharedFeed,
    job: &BatchJob,
    dataset: u32,
    targets: &SlotTargets,
    ready: &ReadyChunk,
    buffers: &mut FillBuffers,
) -> DeliveryDigest {
    let mut receipt = DeliveryDigest::default();
    let data = &work.sequence.datasets()[dataset as usize];
    let chunk = ready.chunk();
    chunk.each(targets.within(ready), &mut buffers.order, |piece| {
        for (row, slice_place) in (piece.first as u64..).zip(piece.places) {
            let target = targets.row(ready.start + piece.slice + u64::from(*slice_place));
            if target == NO_ROW {
                continue;
            }
            let part = chunk.parts[piece.part];
            let (block, row) = ready.epoch.source(data, part, piece.run, row);
            let row_id = RowId {
                dataset,
                row: data.row(block, row),
            };
            receipt.add(job.places.start + u64::from(target), row_id);
        }
    });
    receipt
}
