//! The written form of groups: batches like those of runs, whose ends depend on the groups alone. The bytes of a state
//! therefore do not tell how its rows were divided.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, UInt32Array};
use arrow::compute::{concat, take_arrays};
use forebay_model::{Fault, Result, codes};
use xxhash_rust::xxh3::xxh3_64;

use super::runs::{write_groups, write_groups_end};

/// Groups and bytes of a batch at most, but for the last group.
const GROUPS_MAX: usize = 4096;
const BYTES_MAX: usize = 128 << 10;

/// Bytes of a state of fixed size, about.
const FIXED_STATE_BYTES: usize = 8;

/// Writes groups, each to the share of its key.
pub(super) struct KeptGroupsWriter<'w, 'o> {
    shares: Vec<ShareWriter<'w, 'o>>,
}

impl<'w, 'o> KeptGroupsWriter<'w, 'o> {
    pub(super) fn new(shares: &'w mut [&'o mut dyn Write]) -> Self {
        let share = |out| ShareWriter {
            out,
            pieces: Vec::new(),
            groups: 0,
            bytes: 0,
        };
        KeptGroupsWriter {
            shares: shares.iter_mut().map(share).collect(),
        }
    }

    /// Appends groups; keys ascend.
    pub(super) fn push(&mut self, keys: BinaryArray, states: Vec<ArrayRef>) -> Result<()> {
        let count = self.shares.len() as u64;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.shares.len()];
        if count > 1 {
            for (row, key) in keys.iter().enumerate() {
                rows[(xxh3_64(key.unwrap_or_default()) % count) as usize].push(row as u32);
            }
        }
        let columns: Vec<ArrayRef> = std::iter::once(Arc::new(keys) as ArrayRef)
            .chain(states)
            .collect();
        if let [only] = self.shares.as_mut_slice() {
            return only.push(&columns);
        }
        for (share, rows) in self
            .shares
            .iter_mut()
            .zip(rows)
            .filter(|(_, rows)| !rows.is_empty())
        {
            share.push(&take_arrays(&columns, &UInt32Array::from(rows), None)?)?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.shares.iter_mut().try_for_each(|share| {
            share.flush()?;
            write_groups_end(share.out)
        })
    }
}

struct ShareWriter<'w, 'o> {
    out: &'w mut &'o mut dyn Write,
    /// The groups of the next batch: columns of keys and states.
    pieces: Vec<Vec<ArrayRef>>,
    groups: usize,
    bytes: usize,
}

impl ShareWriter<'_, '_> {
    fn push(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |keys| keys.len());
        let mut sizes = vec![0; rows];
        for column in columns {
            match column.as_binary_opt::<i32>() {
                Some(column) => sizes
                    .iter_mut()
                    .enumerate()
                    .for_each(|(row, size)| *size += column.value(row).len()),
                None => sizes.iter_mut().for_each(|size| *size += FIXED_STATE_BYTES),
            }
        }
        let mut start = 0;
        for (row, size) in sizes.into_iter().enumerate() {
            (self.groups, self.bytes) = (self.groups + 1, self.bytes + size);
            if self.groups == GROUPS_MAX || self.bytes >= BYTES_MAX || row + 1 == rows {
                self.pieces.push(
                    columns
                        .iter()
                        .map(|column| column.slice(start, row + 1 - start))
                        .collect(),
                );
                start = row + 1;
            }
            if self.groups == GROUPS_MAX || self.bytes >= BYTES_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the groups of a batch.
    fn flush(&mut self) -> Result<()> {
        let pieces = std::mem::take(&mut self.pieces);
        let columns = match pieces.as_slice() {
            [] => return Ok(()),
            // A slice may hold bits of its neighbours.
            [only] => take_arrays(
                only,
                &UInt32Array::from_iter_values(0..self.groups as u32),
                None,
            )?,
            pieces => {
                let column = |place: usize| {
                    let parts: Vec<&dyn Array> =
                        pieces.iter().map(|piece| piece[place].as_ref()).collect();
                    Ok(concat(&parts)?)
                };
                (0..pieces[0].len())
                    .map(column)
                    .collect::<Result<Vec<_>>>()?
            }
        };
        (self.groups, self.bytes) = (0, 0);
        let (keys, states) = columns
            .split_first()
            .ok_or_else(|| Fault::internal("groups without keys"))?;
        let keys = keys
            .as_binary_opt::<i32>()
            .ok_or_else(|| Fault::new(codes::CORRUPT, "keys are no bytes"))?;
        write_groups(self.out, keys.clone(), states.to_vec())
    }
}
