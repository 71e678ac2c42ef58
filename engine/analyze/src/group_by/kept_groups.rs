//! The written form of groups: batches like those of runs, whose ends depend on the groups alone. The bytes of a state
//! therefore do not tell how its rows were divided.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, UInt32Array};
use arrow::compute::{concat, take_arrays};
use forebay_model::{Fault, KeySample, Result, codes};
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
    sample: KeySample,
}

impl<'w, 'o> KeptGroupsWriter<'w, 'o> {
    pub(super) fn new(shares: &'w mut [&'o mut dyn Write]) -> Self {
        let mut writers = Vec::with_capacity(shares.len());
        for out in shares {
            writers.push(ShareWriter {
                out,
                pieces: Vec::new(),
                groups: 0,
                bytes: 0,
            });
        }
        KeptGroupsWriter {
            shares: writers,
            sample: KeySample::default(),
        }
    }

    /// Appends groups; keys ascend.
    pub(super) fn push(&mut self, keys: BinaryArray, states: Vec<ArrayRef>) -> Result<()> {
        let count = self.shares.len() as u64;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.shares.len()];
        if count > 1 {
            for (row, key) in keys.iter().enumerate() {
                let hash = xxh3_64(key.unwrap_or_default());
                self.sample.add(hash);
                rows[(hash % count) as usize].push(row as u32);
            }
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(keys)];
        columns.extend(states);
        if let [only] = self.shares.as_mut_slice() {
            return only.push(&columns);
        }
        for (share, rows) in self.shares.iter_mut().zip(rows) {
            if !rows.is_empty() {
                share.push(&take_arrays(&columns, &UInt32Array::from(rows), None)?)?;
            }
        }
        Ok(())
    }

    /// Ends all shares; returns a sample of the keys, which is empty for a single share.
    pub(super) fn finish(mut self) -> Result<KeySample> {
        for share in &mut self.shares {
            share.flush()?;
            write_groups_end(share.out)?;
        }
        Ok(self.sample)
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
            let encoded = column.as_binary_opt::<i32>();
            for (row, size) in sizes.iter_mut().enumerate() {
                *size += match encoded {
                    Some(encoded) => encoded.value(row).len(),
                    None => FIXED_STATE_BYTES,
                };
            }
        }
        // A batch ends at a number of groups or bytes of the share, wherever the pushed columns end: its bytes depend
        // on the groups alone.
        let mut start = 0;
        for (row, size) in sizes.into_iter().enumerate() {
            self.groups += 1;
            self.bytes += size;
            let is_full = self.groups == GROUPS_MAX || self.bytes >= BYTES_MAX;
            if is_full || row + 1 == rows {
                let slices = columns
                    .iter()
                    .map(|column| column.slice(start, row + 1 - start));
                self.pieces.push(slices.collect());
                start = row + 1;
            }
            if is_full {
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
            [only] => {
                let rows = UInt32Array::from_iter_values(0..self.groups as u32);
                take_arrays(only, &rows, None)?
            }
            pieces => {
                let mut columns = Vec::new();
                for index in 0..pieces[0].len() {
                    let parts = pieces.iter().map(|piece| piece[index].as_ref());
                    let parts: Vec<&dyn Array> = parts.collect();
                    columns.push(concat(&parts)?);
                }
                columns
            }
        };
        self.groups = 0;
        self.bytes = 0;
        let (keys, states) = columns
            .split_first()
            .ok_or_else(|| Fault::internal("groups without keys"))?;
        let keys = keys
            .as_binary_opt::<i32>()
            .ok_or_else(|| Fault::new(codes::CORRUPT, "keys are no bytes"))?;
        write_groups(self.out, keys.clone(), states.to_vec())
    }
}
