//! Counts of pairs of values as pairs of small numbers: a row takes one lookup of eight bytes, and each value is encoded
//! once per batch.

use arrow::buffer::NullBuffer;
use forebay_model::Result;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::batch_codes::BatchCodes;
use crate::group_keys::KeyColumn;
use crate::grouped_moments::check_key;
use crate::interner::Interner;

/// The code of rows without a value.
pub(crate) const NO_VALUE: u32 = u32::MAX;

/// Lines of the cache from rows to codes.
const CACHE_LINES: usize = 4096;

/// Counts of pairs, in memory.
#[derive(Debug, Default)]
pub(crate) struct PairCounts {
    values: [ValueCodes; 2],
    /// By the code of the first value, in the upper half, and that of the second.
    counts: HashMap<u64, u64>,
}

/// The encoded values of a column, numbered as they came.
#[derive(Debug, Default)]
struct ValueCodes {
    known: Interner,
    /// The last encoded row.
    key: Vec<u8>,
}

impl ValueCodes {
    /// The code of a row's value, which there must be.
    fn code(&mut self, column: &KeyColumn, row: usize) -> Result<u32> {
        self.key.clear();
        column.write(row, &mut self.key);
        self.known.code(&self.key)
    }

    fn get(&self, code: u32) -> &[u8] {
        self.known.get(code as usize)
    }
}

impl PairCounts {
    /// The codes of the rows of one of the two columns. `local` are those within the batch, where they come without a
    /// search.
    pub fn codes(
        &mut self,
        which: usize,
        column: &KeyColumn,
        local: Option<&BatchCodes>,
        nulls: Option<&NullBuffer>,
        rows: usize,
    ) -> Result<Vec<u32>> {
        let values = &mut self.values[which];
        match local {
            Some(local) => {
                let mut codes = vec![NO_VALUE; local.values + 1];
                let code = |(row, own): (usize, &u32)| {
                    let own = *own as usize;
                    if own < local.values && codes[own] == NO_VALUE {
                        codes[own] = values.code(column, row)?;
                    }
                    Ok(codes[own])
                };
                local.rows.iter().enumerate().map(code).collect()
            }
            None => {
                let mut lines: Vec<Option<(u32, u32)>> = vec![None; CACHE_LINES];
                let code = |row: usize| {
                    if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                        return Ok(NO_VALUE);
                    }
                    let hash = column.hash(row).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let line = &mut lines[(hash >> 52) as usize % CACHE_LINES];
                    match *line {
                        Some((seen, code)) if column.rows_equal(seen as usize, row) => Ok(code),
                        _ => {
                            let code = values.code(column, row)?;
                            *line = Some((row as u32, code));
                            Ok(code)
                        }
                    }
                };
                (0..rows).map(code).collect()
            }
        }
    }

    /// Counts rows of a pair of codes.
    pub fn add(&mut self, first: u32, second: u32, rows: u64) -> Result<()> {
        match self
            .counts
            .entry(u64::from(first) << 32 | u64::from(second))
        {
            Entry::Occupied(mut known) => *known.get_mut() += rows,
            Entry::Vacant(place) => {
                let [firsts, seconds] = &self.values;
                check_key(firsts.get(first).len() + seconds.get(second).len())?;
                place.insert(rows);
            }
        }
        Ok(())
    }

    /// Takes all counts out: calls `each` with the encoded pair and its rows. Codes stay valid.
    pub fn drain(&mut self, mut each: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let mut key = Vec::new();
        for (pair, rows) in std::mem::take(&mut self.counts) {
            key.clear();
            key.extend_from_slice(self.values[0].get((pair >> 32) as u32));
            key.extend_from_slice(self.values[1].get(pair as u32));
            each(&key, rows)?;
        }
        Ok(())
    }

    /// Whether no counts are held. Then codes can be forgotten.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Bytes of memory held, by capacity.
    pub fn size_bytes(&self) -> usize {
        self.counts.allocation_size()
            + self
                .values
                .iter()
                .map(|values| values.known.bytes())
                .sum::<usize>()
    }
}
