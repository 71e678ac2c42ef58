//! Filling a slot with the rows of a step.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use forebay_model::{Fault, Result};

use super::held::Held;
use super::schedule::Job;
use super::stream::Ready;
use super::work::Work;
use crate::slot::{NOWHERE, TILE_ROWS, fetch};
use crate::{Receipt, RowId, SliceOrder};

/// How many tiles are on their way to the processor: those of clicks (2,560 bytes) fit the first-level cache.
const FETCH_TILES: usize = 4;

/// Buffers of a filling thread.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    order: SliceOrder,
    tile: Vec<u64>,
}

/// Fills a slot from the chunks of each dataset.
pub(super) fn fill(
    work: &Work,
    job: &Job,
    chunks: &[Vec<Arc<Ready>>],
    slot: &mut [u8],
    scratch: &mut Scratch,
) -> Result<Receipt> {
    let mut receipt = Receipt::default();
    let rows = (job.places.end - job.places.start) as usize;
    for (dataset, chunks) in (0..).zip(chunks) {
        let targets = Targets::new(work, job, dataset);
        for ready in chunks {
            if work.straight {
                straight(work, job, ready, slot, scratch);
            } else if work.series.is_some() {
                sequences(work, dataset, &targets, ready, slot, scratch)?;
            } else {
                shuffled(work, &targets, ready, slot, scratch)?;
            }
            if work.receipts {
                receipt += receipt_of(work, job, dataset, &targets, ready, scratch);
            }
        }
    }
    work.packer.count_all(slot, rows);
    if rows < job.shape_rows {
        work.packer.pad(slot, rows);
    }
    Ok(receipt)
}

/// Which places of a dataset's own sequence go to which rows of a slot.
struct Targets {
    own: Range<u64>,
    /// The row of each of them; `None` where they follow each other.
    rows: Option<Vec<u32>>,
}

impl Targets {
    fn new(work: &Work, job: &Job, dataset: u32) -> Targets {
        let own = work.sequence.turns_of(dataset, job.places.clone());
        if work.sources.len() == 1 {
            return Targets { own, rows: None };
        }
        let mut rows = vec![NOWHERE; (own.end - own.start) as usize];
        for (row, place) in (0..).zip(job.places.clone()) {
            let (turn, place) = work.sequence.turn(place);
            if turn == dataset {
                rows[(place - own.start) as usize] = row;
            }
        }
        Targets { own, rows: Some(rows) }
    }

    #[inline]
    fn row(&self, place: u64) -> u32 {
        if !self.own.contains(&place) {
            return NOWHERE;
        }
        let at = (place - self.own.start) as usize;
        self.rows.as_ref().map_or(at as u32, |rows| rows[at])
    }

    /// Positions of a chunk that may go somewhere.
    fn within(&self, ready: &Ready) -> Range<u64> {
        let places = ready.places();
        let (start, end) = (self.own.start.max(places.start), self.own.end.min(places.end));
        start - places.start..end.max(start) - places.start
    }
}

fn shuffled(work: &Work, targets: &Targets, ready: &Ready, slot: &mut [u8], scratch: &mut Scratch) -> Result<()> {
    let (packer, bytes) = (&work.packer, work.packer.tile_bytes());
    let mut sound = true;
    // Tiles lie all over the window: each is asked for some time before it is needed.
    let mut asked: VecDeque<(&[u8], [u32; TILE_ROWS])> = VecDeque::with_capacity(FETCH_TILES + 1);
    ready.chunk().each(targets.within(ready), &mut scratch.order, |piece| {
        let mut rows = [NOWHERE; TILE_ROWS];
        let first = ready.start + piece.slice;
        let places = rows[piece.first..].iter_mut().zip(piece.places);
        places.for_each(|(row, place)| *row = targets.row(first + u64::from(*place)));
        if rows == [NOWHERE; TILE_ROWS] {
            return;
        }
        let Some(Held::Tiles(tiles)) = ready.held.get(piece.part) else {
            sound = false;
            return;
        };
        let start = piece.run as usize * bytes;
        let tile = tiles.tile(start..start + bytes);
        fetch(tile);
        asked.push_back((tile, rows));
        if asked.len() > FETCH_TILES
            && let Some((tile, rows)) = asked.pop_front()
        {
            packer.scatter(tile, &rows, slot);
        }
    });
    asked.iter().for_each(|(tile, rows)| packer.scatter(tile, rows, slot));
    if sound { Ok(()) } else { Err(too_early()) }
}

fn too_early() -> Fault {
    Fault::internal("a batch is filled before its rows are there")
}

fn sequences(
    work: &Work,
    dataset: u32,
    targets: &Targets,
    ready: &Ready,
    slot: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let (data, chunk) = (&work.sequence.datasets()[dataset as usize], ready.chunk());
    let mut sound = true;
    chunk.each(targets.within(ready), &mut scratch.order, |piece| {
        for (row, own) in (piece.first as u64..).zip(piece.places) {
            let to = targets.row(ready.start + piece.slice + u64::from(*own));
            if to == NOWHERE {
                continue;
            }
            let (block, row) = ready.epoch.source(data, chunk.parts[piece.part], piece.run, row);
            let steps = match ready.held.get(piece.part) {
                Some(Held::Series(blocks, _)) => blocks.iter().find(|(number, _)| *number == block),
                _ => None,
            };
            match steps {
                Some((_, steps)) => steps.place(row as usize, &work.packer.layout, slot, to as usize),
                None => sound = false,
            }
        }
    });
    if sound { Ok(()) } else { Err(too_early()) }
}

fn straight(work: &Work, job: &Job, ready: &Ready, slot: &mut [u8], scratch: &mut Scratch) {
    let Some(Held::Columns(held)) = ready.held.first() else { return };
    for (start, columns) in held {
        // Places that both the batch of the source and the job have.
        let source = ready.start + start;
        let first = job.places.start.max(source);
        let end = job.places.end.min(source + columns.rows as u64);
        if first < end {
            let (rows, to) = ((first - source) as usize..(end - source) as usize, first - job.places.start);
            work.packer.slot(columns, rows, slot, to as usize, &mut scratch.tile);
        }
    }
}

fn receipt_of(
    work: &Work,
    job: &Job,
    dataset: u32,
    targets: &Targets,
    ready: &Ready,
    scratch: &mut Scratch,
) -> Receipt {
    let mut receipt = Receipt::default();
    let data = &work.sequence.datasets()[dataset as usize];
    let chunk = ready.chunk();
    chunk.each(targets.within(ready), &mut scratch.order, |piece| {
        for (row, own) in (piece.first as u64..).zip(piece.places) {
            let target = targets.row(ready.start + piece.slice + u64::from(*own));
            if target != NOWHERE {
                let (block, row) = ready.epoch.source(data, chunk.parts[piece.part], piece.run, row);
                receipt.add(job.places.start + u64::from(target), RowId { dataset, row: data.row(block, row) });
            }
        }
    });
    receipt
}
