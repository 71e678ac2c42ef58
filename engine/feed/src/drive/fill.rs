//! Filling a slot with the rows of a step.

use std::sync::Arc;

use forebay_model::{Fault, Result};

use super::held::Held;
use super::schedule::Job;
use super::stream::Ready;
use super::work::Work;
use crate::slot::{Found, Scratch};
use crate::{Receipt, RowId};

/// Records that are fetched together.
const FETCH_ROWS: usize = 64;

const CACHE_LINE: usize = 64;

/// Fills a slot from the chunks of each dataset.
pub(super) fn fill(
    work: &Work,
    job: &Job,
    chunks: &[Vec<Arc<Ready>>],
    slot: &mut [u8],
    scratch: &mut Scratch,
) -> Result<(Receipt, Found)> {
    let mut receipt = Receipt::default();
    if work.straight {
        straight(work, job, chunks, slot, scratch)?;
    } else {
        shuffled(work, job, chunks, slot)?;
        work.packer.count_all(slot, (job.places.end - job.places.start) as usize);
    }
    if work.receipts {
        for_each(work, job, chunks, |place, dataset, ready, part, row| {
            let part = ready.chunk.parts[part];
            let data = &work.sequence.datasets()[dataset as usize];
            let (block, row) = ready.epoch.source(data, part.unit, part.tick, row);
            receipt.add(place, RowId { dataset, row: data.row(block, row) });
            Ok(())
        })?;
    }
    let rows = (job.places.end - job.places.start) as usize;
    if rows < job.shape_rows {
        work.packer.pad(slot, rows);
    }
    Ok((receipt, std::mem::take(&mut scratch.found)))
}

/// Calls `row` with place, dataset, chunk, part and row of each row of a batch.
#[inline]
fn for_each<'a>(
    work: &Work,
    job: &Job,
    chunks: &'a [Vec<Arc<Ready>>],
    mut row: impl FnMut(u64, u32, &'a Ready, usize, u64) -> Result<()>,
) -> Result<()> {
    let mut current: Vec<Option<&'a Ready>> = vec![None; chunks.len()];
    for place in job.places.clone() {
        let (dataset, own) = work.sequence.turn(place);
        let current = &mut current[dataset as usize];
        let ready = match *current {
            Some(ready) if ready.places().contains(&own) => ready,
            _ => {
                let chunks = chunks.get(dataset as usize).map_or(&[][..], Vec::as_slice);
                let found = chunks.iter().find(|ready| ready.places().contains(&own));
                current.insert(found.ok_or_else(|| Fault::internal("a batch is filled before its rows are there"))?)
            }
        };
        let (part, within) = ready.chunk.locate(own - ready.start);
        row(place, dataset, ready, part, within)?;
    }
    Ok(())
}

fn shuffled(work: &Work, job: &Job, chunks: &[Vec<Arc<Ready>>], slot: &mut [u8]) -> Result<()> {
    let bytes = work.packer.layout.record_bytes;
    let mut found: Vec<&[u8]> = Vec::with_capacity(FETCH_ROWS);
    let mut slot_row = 0;
    let mut flush = |found: &mut Vec<&[u8]>| {
        // Records lie all over the window. Reading a byte of each cache line first, in a loop
        // without anything else, lets the processor wait for many lines at once.
        let touched = found.iter().flat_map(|record| record.iter().step_by(CACHE_LINE).chain(record.last()));
        std::hint::black_box(touched.fold(0, |sum: u8, byte| sum ^ byte));
        for record in found.drain(..) {
            work.packer.place(record, slot, slot_row);
            slot_row += 1;
        }
    };
    for_each(work, job, chunks, |_, _, ready, part, row| {
        let Held::Records(records) = &ready.held[part] else {
            return Err(Fault::internal("rows of a shuffle are not packed"));
        };
        let start = row as usize * bytes;
        found.push(&records.buffer[start..start + bytes]);
        if found.len() == FETCH_ROWS {
            flush(&mut found);
        }
        Ok(())
    })?;
    flush(&mut found);
    Ok(())
}

fn straight(work: &Work, job: &Job, chunks: &[Vec<Arc<Ready>>], slot: &mut [u8], scratch: &mut Scratch) -> Result<()> {
    for ready in chunks.iter().flatten() {
        let Some(Held::Columns(held)) = ready.held.first() else { continue };
        for (start, columns) in held {
            // Places that both the batch of the source and the job have.
            let source = ready.start + start;
            let first = job.places.start.max(source);
            let end = job.places.end.min(source + columns.rows as u64);
            if first < end {
                let (from, to) = ((first - source) as usize, (first - job.places.start) as usize);
                work.packer.slot(columns, from, (end - first) as usize, slot, to, scratch)?;
            }
        }
    }
    Ok(())
}
