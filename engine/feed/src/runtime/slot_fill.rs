//! Filling a slot with the rows of a step.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use forebay_model::{Fault, Result};

use super::chunk_stream::ReadyChunk;
use super::schedule::BatchJob;
use super::tile_pool::PartRows;
use super::worker::SharedFeed;
use crate::slot::{NO_ROW, TILE_ROWS, prefetch};
use crate::{DeliveryDigest, RowId, SliceOrder};

/// How many tiles are on their way to the processor: those of clicks (2,560 bytes) fit the first-level cache.
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
    scratch: &mut FillBuffers,
) -> Result<DeliveryDigest> {
    let mut receipt = DeliveryDigest::default();
    let rows = (job.places.end - job.places.start) as usize;
    for (dataset, chunks) in (0..).zip(chunks) {
        let targets = SlotTargets::new(work, job, dataset);
        for ready in chunks {
            if work.straight {
                fill_in_order(work, job, ready, slot, scratch);
            } else if work.series.is_some() {
                fill_sequences(work, dataset, &targets, ready, slot, scratch)?;
            } else {
                fill_shuffled(work, &targets, ready, slot, scratch)?;
            }
            if work.receipts {
                receipt += digest_of(work, job, dataset, &targets, ready, scratch);
            }
        }
    }
    work.packer.fill_mask(slot, rows);
    if rows < job.shape_rows {
        work.packer.pad(slot, rows);
    }
    Ok(receipt)
}

/// Which places of a dataset's own sequence go to which rows of a slot.
struct SlotTargets {
    own: Range<u64>,
    /// The row of each of them; `None` where they follow each other.
    rows: Option<Vec<u32>>,
}

impl SlotTargets {
    fn new(work: &SharedFeed, job: &BatchJob, dataset: u32) -> SlotTargets {
        let own = work.sequence.turns_of(dataset, job.places.clone());
        if work.sources.len() == 1 {
            return SlotTargets { own, rows: None };
        }
        let mut rows = vec![NO_ROW; (own.end - own.start) as usize];
        for (row, place) in (0..).zip(job.places.clone()) {
            let (turn, place) = work.sequence.turn(place);
            if turn == dataset {
                rows[(place - own.start) as usize] = row;
            }
        }
        SlotTargets {
            own,
            rows: Some(rows),
        }
    }

    #[inline]
    fn row(&self, place: u64) -> u32 {
        if !self.own.contains(&place) {
            return NO_ROW;
        }
        let at = (place - self.own.start) as usize;
        self.rows.as_ref().map_or(at as u32, |rows| rows[at])
    }

    /// Positions of a chunk that may go somewhere.
    fn within(&self, ready: &ReadyChunk) -> Range<u64> {
        let places = ready.places();
        let (start, end) = (
            self.own.start.max(places.start),
            self.own.end.min(places.end),
        );
        start - places.start..end.max(start) - places.start
    }
}

fn fill_shuffled(
    work: &SharedFeed,
    targets: &SlotTargets,
    ready: &ReadyChunk,
    slot: &mut [u8],
    scratch: &mut FillBuffers,
) -> Result<()> {
    let (packer, bytes) = (&work.packer, work.packer.tile_bytes());
    let mut sound = true;
    // Tiles lie all over the window: each is asked for some time before it is needed.
    let mut asked: VecDeque<(&[u8], [u32; TILE_ROWS])> =
        VecDeque::with_capacity(PREFETCH_TILES + 1);
    ready
        .chunk()
        .each(targets.within(ready), &mut scratch.order, |piece| {
            let mut rows = [NO_ROW; TILE_ROWS];
            let first = ready.start + piece.slice;
            let places = rows[piece.first..].iter_mut().zip(piece.places);
            places.for_each(|(row, place)| *row = targets.row(first + u64::from(*place)));
            if rows == [NO_ROW; TILE_ROWS] {
                return;
            }
            let Some(PartRows::Tiles(tiles)) = ready.held.get(piece.part) else {
                sound = false;
                return;
            };
            let start = piece.run as usize * bytes;
            let tile = tiles.tile(start..start + bytes);
            prefetch(tile);
            asked.push_back((tile, rows));
            if asked.len() > PREFETCH_TILES
                && let Some((tile, rows)) = asked.pop_front()
            {
                packer.scatter(tile, &rows, slot);
            }
        });
    asked
        .iter()
        .for_each(|(tile, rows)| packer.scatter(tile, rows, slot));
    if sound { Ok(()) } else { Err(rows_missing()) }
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
    scratch: &mut FillBuffers,
) -> Result<()> {
    let (data, chunk) = (&work.sequence.datasets()[dataset as usize], ready.chunk());
    let mut sound = true;
    chunk.each(targets.within(ready), &mut scratch.order, |piece| {
        for (row, own) in (piece.first as u64..).zip(piece.places) {
            let to = targets.row(ready.start + piece.slice + u64::from(*own));
            if to == NO_ROW {
                continue;
            }
            let (block, row) = ready
                .epoch
                .source(data, chunk.parts[piece.part], piece.run, row);
            let steps = match ready.held.get(piece.part) {
                Some(PartRows::Series(blocks, _)) => {
                    blocks.iter().find(|(number, _)| *number == block)
                }
                _ => None,
            };
            match steps {
                Some((_, steps)) => {
                    steps.write_steps(row as usize, &work.packer.layout, slot, to as usize)
                }
                None => sound = false,
            }
        }
    });
    if sound { Ok(()) } else { Err(rows_missing()) }
}

fn fill_in_order(
    work: &SharedFeed,
    job: &BatchJob,
    ready: &ReadyChunk,
    slot: &mut [u8],
    scratch: &mut FillBuffers,
) {
    let Some(PartRows::Columns(held)) = ready.held.first() else {
        return;
    };
    for (start, columns) in held {
        // Places that both the batch of the source and the job have.
        let source = ready.start + start;
        let first = job.places.start.max(source);
        let end = job.places.end.min(source + columns.rows as u64);
        if first < end {
            let (rows, to) = (
                (first - source) as usize..(end - source) as usize,
                first - job.places.start,
            );
            work.packer
                .pack_slot(columns, rows, slot, to as usize, &mut scratch.tile);
        }
    }
}

fn digest_of(
    work: &SharedFeed,
    job: &BatchJob,
    dataset: u32,
    targets: &SlotTargets,
    ready: &ReadyChunk,
    scratch: &mut FillBuffers,
) -> DeliveryDigest {
    let mut receipt = DeliveryDigest::default();
    let data = &work.sequence.datasets()[dataset as usize];
    let chunk = ready.chunk();
    chunk.each(targets.within(ready), &mut scratch.order, |piece| {
        for (row, own) in (piece.first as u64..).zip(piece.places) {
            let target = targets.row(ready.start + piece.slice + u64::from(*own));
            if target != NO_ROW {
                let (block, row) =
                    ready
                        .epoch
                        .source(data, chunk.parts[piece.part], piece.run, row);
                receipt.add(
                    job.places.start + u64::from(target),
                    RowId {
                        dataset,
                        row: data.row(block, row),
                    },
                );
            }
        }
    });
    receipt
}
