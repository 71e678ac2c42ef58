//! The first or last row of each key, in bounded memory.

use std::sync::Arc;

use forebay_model::{ContentId, Result, ScratchSpace, StateDecoder, StateEncoder};

use crate::spill_map::SpillMap;
use crate::spill_runs::{KeyOrder, SpillValue};

/// Longer keys are replaced by a digest, padded to one byte more: no shorter key equals it.
const KEY_BYTES_KEPT: usize = 256;

/// Position of one row per key, the first or the last. Keys are compared by their bytes; positions are below
/// `u64::MAX`. Spills sorted runs beyond the scratch budget.
pub struct FirstRows {
    rows: SpillMap<LeastPosition>,
    last: bool,
}

/// The least position of a key.
#[derive(Debug, Clone, Copy)]
struct LeastPosition(u64);

impl Default for LeastPosition {
    fn default() -> Self {
        LeastPosition(u64::MAX)
    }
}

impl SpillValue for LeastPosition {
    fn merge_value(&mut self, other: &Self) {
        self.0 = self.0.min(other.0);
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.u64(self.0)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        input.u64().map(LeastPosition)
    }
}

impl FirstRows {
    /// An empty set; `last` keeps the last row of each key instead of the first.
    pub fn new(scratch: &Arc<dyn ScratchSpace>, last: bool) -> Self {
        FirstRows { rows: SpillMap::new(scratch, KeyOrder::Hash), last }
    }

    /// Adds a row.
    pub fn add(&mut self, key: &[u8], position: u64) -> Result<()> {
        // The complement turns the greatest position into the least.
        let position = LeastPosition(if self.last { !position } else { position });
        if key.len() <= KEY_BYTES_KEPT {
            return self.rows.add(key, &position);
        }
        let mut digest = [0; KEY_BYTES_KEPT + 1];
        digest[..32].copy_from_slice(ContentId::of(key).to_string().as_bytes());
        self.rows.add(&digest, &position)
    }

    /// Merges the rows of another set.
    pub fn merge(&mut self, other: FirstRows) -> Result<()> {
        self.rows.merge(other.rows)
    }

    /// Visits the position of each key's row, in unspecified order.
    pub fn for_each(&mut self, mut visit: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let last = self.last;
        self.rows.for_each(|_, position| visit(if last { !position.0 } else { position.0 }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_model::MemoryScratch;

    use super::*;

    #[test]
    fn one_row_of_each_key_stays_whether_keys_spill_or_not() {
        let key = |row: u64| match row % 3 {
            0 => vec![(row % 700) as u8; 300 + (row % 700) as usize],
            _ => format!("{}", row * row % 5003).into_bytes(),
        };
        for (budget_bytes, last) in [(1 << 20, false), (1 << 20, true), (16 << 10, false), (16 << 10, true)] {
            let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch { budget_bytes });
            let mut parts = [FirstRows::new(&scratch, last), FirstRows::new(&scratch, last)];
            let mut expected = BTreeMap::new();
            for row in 0..20_000 {
                parts[(row / 7 % 2) as usize].add(&key(row), row).unwrap();
                let kept = expected.entry(key(row)).or_insert(row);
                *kept = if last { row } else { *kept };
            }
            let [mut rows, other] = parts;
            rows.merge(other).unwrap();
            let mut found = Vec::new();
            rows.for_each(|row| {
                found.push(row);
                Ok(())
            })
            .unwrap();
            found.sort_unstable();
            let mut expected: Vec<u64> = expected.into_values().collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "{budget_bytes} bytes, last: {last}");
        }
    }
}
