//! Counts of pairs of values as pairs of small numbers: a row takes one lookup of eight bytes, and each value is encoded
//! once per batch.

use arrow::buffer::NullBuffer;
use forebay_model::Result;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::batch_codes::BatchCodes;
use crate::group_keys::KeyColumn;
use crate::interner::Interner;
use crate::spill_runs::check_key;

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
    interner: Interner,
    /// The last encoded row.
    key: Vec<u8>,
}

impl ValueCodes {
    /// The code of a row's value, which there must be.
    fn code(&mut self, column: &KeyColumn, row: usize) -> Result<u32> {
        self.key.clear();
        column.write(row, &mut self.key);
        self.interner.code(&self.key)
    }

    /// Codes of all rows: each code of the batch is looked up once.
    fn codes_of_batch(&mut self, column: &KeyColumn, batch: &BatchCodes) -> Result<Vec<u32>> {
        let mut code_of = vec![NO_VALUE; batch.values + 1];
        let mut codes = Vec::with_capacity(batch.rows.len());
        for (row, batch_code) in batch.rows.iter().enumerate() {
            let batch_code = *batch_code as usize;
            // The code behind those of values stands for null and stays without one here.
            if batch_code < batch.values && code_of[batch_code] == NO_VALUE {
                code_of[batch_code] = self.code(column, row)?;
            }
            codes.push(code_of[batch_code]);
        }
        Ok(codes)
    }

    /// Codes of all rows, with a cache from values of the batch to codes.
    fn codes_of_rows(
        &mut self,
        column: &KeyColumn,
        nulls: Option<&NullBuffer>,
        rows: usize,
    ) -> Result<Vec<u32>> {
        let mut lines: Vec<Option<(u32, u32)>> = vec![None; CACHE_LINES];
        let mut codes = Vec::with_capacity(rows);
        for row in 0..rows {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                codes.push(NO_VALUE);
                continue;
            }
            // The golden ratio spreads hashes that differ in their low bits alone, such as small integers.
            let hash = column.hash(row).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let line = &mut lines[(hash >> 52) as usize % CACHE_LINES];
            let code = match *line {
                Some((cached_row, code)) if column.rows_equal(cached_row as usize, row) => code,
                _ => {
                    let code = self.code(column, row)?;
                    *line = Some((row as u32, code));
                    code
                }
            };
            codes.push(code);
        }
        Ok(codes)
    }

    fn get(&self, code: u32) -> &[u8] {
        self.interner.get(code as usize)
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
            Some(local) => values.codes_of_batch(column, local),
            None => values.codes_of_rows(column, nulls, rows),
        }
    }

    /// Counts rows of a pair of codes.
    pub fn add(&mut self, first: u32, second: u32, rows: u64) -> Result<()> {
        let pair = u64::from(first) << 32 | u64::from(second);
        match self.counts.entry(pair) {
            Entry::Occupied(mut entry) => *entry.get_mut() += rows,
            Entry::Vacant(entry) => {
                let [firsts, seconds] = &self.values;
                // Checked once per pair, so that no later step meets a key that is too long.
                check_key(firsts.get(first).len() + seconds.get(second).len())?;
                entry.insert(rows);
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

    /// True if no counts are held: codes can then be dropped.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Bytes of memory held, by capacity.
    pub fn size_bytes(&self) -> usize {
        let [firsts, seconds] = &self.values;
        let values = firsts.interner.bytes() + seconds.interner.bytes();
        self.counts.allocation_size() + values
    }
}
