//! The laws of analyzers, as a check that tests run on any data.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use forebay_model::{
    AnalyzerInput, AnyAnalyzer, AnyState, Fault, Finding, MemoryScratch, RowKeys, ScratchSpace,
    codes,
};

/// Small enough that a few thousand distinct keys spill many times.
const BUDGET_BYTES_SMALL: usize = 64 << 10;

/// Memory allowed beyond the budget: fixed tables, and one entry that has to be kept.
const BYTES_BEYOND_BUDGET: usize = 64 << 10;

type LawResult<T> = Result<T, String>;

struct LawChecker<'a> {
    analyzer: &'a dyn AnyAnalyzer,
    columns: Vec<ArrayRef>,
    keys: Vec<u64>,
    scratch: Arc<dyn ScratchSpace>,
    random: LawRng,
}

/// Checks all laws on these rows; the error names the violated law. `seed` determines cuts, groupings and shuffles.
/// Row keys derive from the rows' positions.
pub fn check_laws(analyzer: &dyn AnyAnalyzer, batches: &[RecordBatch], seed: u64) -> LawResult<()> {
    let Some(first) = batches.first() else {
        return Ok(());
    };
    let whole = concat_batches(&first.schema(), batches).map_err(|error| error.to_string())?;
    let keys = RowKeys::sequence(seed, 0, whole.num_rows());
    let mut checker = LawChecker {
        analyzer,
        columns: whole.columns().to_vec(),
        keys: keys.as_slice().to_vec(),
        scratch: Arc::new(MemoryScratch::default()),
        random: LawRng(seed),
    };
    // All laws compare with the bytes of one state that saw all rows in one batch.
    let rows = whole.num_rows();
    let state = checker.state(&[(0, rows)])?;
    let bytes = checker.encode(state)?;
    checker.batch_sizes(&bytes)?;
    checker.identity(&bytes)?;
    checker.grouping(&bytes)?;
    checker.stable_bytes(&bytes)?;
    checker.condensing()?;
    checker.spilling(&bytes)?;
    checker.sharing(&bytes)?;
    checker.large_states(&bytes)?;
    checker.damaged_bytes(&bytes)?;
    checker.bounded_memory(&bytes)
}

/// Computes the finding of an analyzer over these rows.
pub fn compute_finding(
    analyzer: &dyn AnyAnalyzer,
    batches: &[RecordBatch],
    budget_bytes: usize,
) -> forebay_model::Result<Finding> {
    let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch { budget_bytes });
    let mut state = analyzer.zero(&scratch)?;
    let mut row = 0;
    for batch in batches {
        let keys = RowKeys::sequence(0, row, batch.num_rows());
        row += batch.num_rows() as u64;
        let keys = analyzer.needs_row_keys().then_some(keys.as_slice());
        let input = AnalyzerInput {
            columns: batch.columns(),
            rows: batch.num_rows(),
            keys,
        };
        analyzer.update(&mut state, &input)?;
    }
    analyzer.finish(state)
}

impl LawChecker<'_> {
    fn rows(&self) -> usize {
        self.keys.len()
    }

    fn update(&self, state: &mut AnyState, start: usize, end: usize) -> Result<(), Fault> {
        let slices = self
            .columns
            .iter()
            .map(|column| column.slice(start, end - start));
        let columns: Vec<ArrayRef> = slices.collect();
        let mut keys = None;
        if self.analyzer.needs_row_keys() {
            keys = Some(&self.keys[start..end]);
        }
        let input = AnalyzerInput {
            columns: &columns,
            rows: end - start,
            keys,
        };
        self.analyzer.update(state, &input)
    }

    fn state(&self, ranges: &[(usize, usize)]) -> LawResult<AnyState> {
        let mut state = self.analyzer.zero(&self.scratch).map_err(fault_text)?;
        for &(start, end) in ranges {
            self.update(&mut state, start, end).map_err(fault_text)?;
        }
        Ok(state)
    }

    fn encode(&self, mut state: AnyState) -> LawResult<Vec<u8>> {
        let mut bytes = Vec::new();
        self.analyzer
            .encode(&mut state, &mut bytes)
            .map_err(fault_text)?;
        Ok(bytes)
    }

    fn decode(&self, mut bytes: &[u8]) -> LawResult<AnyState> {
        self.analyzer
            .decode(&mut bytes, &self.scratch)
            .map_err(fault_text)
    }

    fn decode_large(&self, mut bytes: &[u8]) -> LawResult<AnyState> {
        self.analyzer
            .decode_large(&mut bytes, &self.scratch)
            .map_err(fault_text)
    }

    fn merge(&self, mut state: AnyState, later: AnyState) -> LawResult<AnyState> {
        self.analyzer.merge(&mut state, later).map_err(fault_text)?;
        Ok(state)
    }

    fn finish(&self, state: AnyState) -> LawResult<Finding> {
        self.analyzer.finish(state).map_err(fault_text)
    }

    /// The size of batches does not matter.
    fn batch_sizes(&self, bytes: &[u8]) -> LawResult<()> {
        for size in [1, 7, 1000] {
            let mut ranges = Vec::new();
            for start in (0..self.rows()).step_by(size) {
                let end = (start + size).min(self.rows());
                ranges.push((start, end));
            }
            let state = self.state(&ranges)?;
            self.expect_bytes(bytes, state, &format!("batches of {size} rows"))?;
        }
        let half = self.rows() / 2;
        let state = self.state(&[(0, 0), (0, half), (half, half), (half, self.rows())])?;
        self.expect_bytes(bytes, state, "empty batches")
    }

    /// Merging with a state of no rows changes nothing.
    fn identity(&self, bytes: &[u8]) -> LawResult<()> {
        let whole = self.state(&[(0, self.rows())])?;
        let zero = self.state(&[])?;
        self.expect_bytes(bytes, self.merge(whole, zero)?, "a zero on the right")?;
        let whole = self.state(&[(0, self.rows())])?;
        let zero = self.state(&[])?;
        self.expect_bytes(bytes, self.merge(zero, whole)?, "a zero on the left")
    }

    /// Merging is associative, and commutative where the analyzer says so.
    fn grouping(&mut self, bytes: &[u8]) -> LawResult<()> {
        for round in 0..6 {
            let mut cuts = vec![0, self.rows()];
            for _ in 0..round + 1 {
                let cut = self.random.below(self.rows() + 1);
                cuts.push(cut);
            }
            cuts.sort_unstable();
            let spans: Vec<_> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let mut states = Vec::with_capacity(spans.len());
            for span in &spans {
                states.push(self.state(&[*span])?);
            }
            // Neighbours are merged in random order, which groups the spans at random.
            while states.len() > 1 {
                let first = self.random.below(states.len() - 1);
                let later_state = states.remove(first + 1);
                let earlier_state = states.remove(first);
                states.insert(first, self.merge(earlier_state, later_state)?);
            }
            let Some(state) = states.pop() else { continue };
            let law = format!("spans {spans:?}, merged in another grouping");
            self.expect_bytes(bytes, state, &law)?;
            if self.analyzer.order_free() {
                self.merging_in_any_order(bytes, spans)?;
            }
        }
        Ok(())
    }

    fn merging_in_any_order(
        &mut self,
        bytes: &[u8],
        mut spans: Vec<(usize, usize)>,
    ) -> LawResult<()> {
        for last in (1..spans.len()).rev() {
            spans.swap(last, self.random.below(last + 1));
        }
        let mut state = self.state(&[])?;
        for &span in &spans {
            state = self.merge(state, self.state(&[span])?)?;
        }
        self.expect_bytes(bytes, state, "spans merged in another order")?;
        self.expect_bytes(bytes, self.state(&spans)?, "spans read in another order")
    }

    /// Decodes a state; bytes that are not read are an error.
    fn decode_all(&self, mut bytes: &[u8]) -> LawResult<AnyState> {
        let state = self
            .analyzer
            .decode(&mut bytes, &self.scratch)
            .map_err(fault_text)?;
        if bytes.is_empty() {
            Ok(state)
        } else {
            Err(format!("decode left {} bytes", bytes.len()))
        }
    }

    /// Encoding and decoding change neither later updates nor the finding.
    fn stable_bytes(&mut self, bytes: &[u8]) -> LawResult<()> {
        self.expect_bytes(bytes, self.decode_all(bytes)?, "decode, then encode")?;
        let third = self.rows() / 3;
        let mut early = self.state(&[(0, third)])?;
        self.analyzer
            .encode(&mut early, &mut Vec::new())
            .map_err(fault_text)?;
        let mut resumed = self.decode_all(&self.encode(early)?)?;
        self.update(&mut resumed, third, self.rows())
            .map_err(fault_text)?;
        self.expect_bytes(bytes, resumed, "an update after decode")?;
        let whole = self.finish(self.state(&[(0, self.rows())])?)?;
        let decoded = self.finish(self.decode_all(bytes)?)?;
        if whole.table() == decoded.table() {
            Ok(())
        } else {
            Err("finish differs after decode".into())
        }
    }

    /// A condensed state gives the same finding, also after encoding and decoding.
    fn condensing(&self) -> LawResult<()> {
        let whole = self.finish(self.state(&[(0, self.rows())])?)?;
        let bytes = self.encode(self.condensed()?)?;
        let decoded = self.decode(&bytes)?;
        for state in [self.condensed()?, decoded] {
            if self.finish(state)?.table() != whole.table() {
                return Err("finish differs after condense".into());
            }
        }
        Ok(())
    }

    /// The condensed state of all rows.
    fn condensed(&self) -> LawResult<AnyState> {
        let mut state = self.state(&[(0, self.rows())])?;
        self.analyzer.condense(&mut state).map_err(fault_text)?;
        Ok(state)
    }

    /// The spilled state of a range of rows.
    fn spilled(&self, from: usize, to: usize) -> LawResult<AnyState> {
        let mut state = self.state(&[(from, to)])?;
        self.analyzer.spill(&mut state).map_err(fault_text)?;
        Ok(state)
    }

    /// Spilled states are merged and updated like others.
    fn spilling(&mut self, bytes: &[u8]) -> LawResult<()> {
        let half = self.rows() / 2;
        let merged = self.merge(self.spilled(0, half)?, self.spilled(half, self.rows())?)?;
        self.expect_bytes(bytes, merged, "states, spilled and merged")?;
        let mut updated = self.spilled(0, half)?;
        self.update(&mut updated, half, self.rows())
            .map_err(fault_text)?;
        self.expect_bytes(bytes, updated, "an update after spilling")
    }

    /// Shares of two spans, merged share by share and then with each other, equal the merged state.
    fn sharing(&mut self, bytes: &[u8]) -> LawResult<()> {
        let half = self.rows() / 2;
        let mut early = self.state(&[(0, half)])?;
        let mut late = self.state(&[(half, self.rows())])?;
        if self.analyzer.divisible_bytes(&early).is_none() {
            return Ok(());
        }
        let early_shares = self.divide(&mut early)?;
        let late_shares = self.divide(&mut late)?;
        let mut merged: Option<AnyState> = None;
        for (early, late) in early_shares.iter().zip(&late_shares).rev() {
            let large = self.decode_large(early)?;
            self.expect_bytes(early, large, "a share, read as a large state")?;
            // The first share is read as a small state, the others as large ones: both kinds merge.
            let early = if merged.is_none() {
                self.decode(early)?
            } else {
                self.decode_large(early)?
            };
            let share = self.merge(early, self.decode_large(late)?)?;
            merged = Some(match merged {
                Some(merged) => self.merge(merged, share)?,
                None => share,
            });
        }
        self.expect_bytes(bytes, merged.ok_or("no shares")?, "shares, merged")
    }

    /// States that are read as large ones merge like those that are read into tables, and like a
    /// mixture of both, for any division of the rows.
    fn large_states(&mut self, bytes: &[u8]) -> LawResult<()> {
        let mut cuts = vec![0, self.rows()];
        for _ in 0..4 {
            let cut = self.random.below(self.rows() + 1);
            cuts.push(cut);
        }
        cuts.sort_unstable();
        let mut tables = self.state(&[])?;
        let mut streams = self.state(&[])?;
        let mut mixture = self.state(&[])?;
        for (number, pair) in cuts.windows(2).enumerate() {
            let part = self.encode(self.state(&[(pair[0], pair[1])])?)?;
            tables = self.merge(tables, self.decode(&part)?)?;
            streams = self.merge(streams, self.decode_large(&part)?)?;
            let state = if number % 2 == 0 {
                self.decode_large(&part)?
            } else {
                self.decode(&part)?
            };
            mixture = self.merge(mixture, state)?;
        }
        self.expect_bytes(bytes, tables, "states, read into tables and merged")?;
        self.expect_bytes(bytes, streams, "states, read as large ones and merged")?;
        self.expect_bytes(bytes, mixture, "states, read in both ways and merged")
    }

    /// The bytes of three shares of a state.
    fn divide(&self, state: &mut AnyState) -> LawResult<Vec<Vec<u8>>> {
        let mut bytes = vec![Vec::new(); 3];
        let mut shares: Vec<&mut dyn Write> = Vec::new();
        for share in &mut bytes {
            shares.push(share);
        }
        self.analyzer
            .encode_shares(state, &mut shares)
            .map_err(fault_text)?;
        Ok(bytes)
    }

    /// Decoding damaged bytes may fail or give a wrong state, but must not panic; nor may the wrong state later.
    fn damaged_bytes(&mut self, bytes: &[u8]) -> LawResult<()> {
        for _ in 0..8 {
            let cut = self.random.below(bytes.len().max(1));
            for read in [<dyn AnyAnalyzer>::decode, <dyn AnyAnalyzer>::decode_large] {
                if !bytes.is_empty()
                    && read(self.analyzer, &mut &bytes[..cut], &self.scratch).is_ok()
                {
                    return Err(format!("decode accepts {cut} of {} bytes", bytes.len()));
                }
            }
            let mut bent = bytes.to_vec();
            if let Some(byte) = bent.get_mut(cut) {
                *byte ^= 1 << self.random.below(8);
                drop(self.use_damaged(&bent));
            }
        }
        Ok(())
    }

    /// Merges damaged bytes with themselves, and writes and finishes the sum.
    fn use_damaged(&self, bytes: &[u8]) -> Result<Finding, Fault> {
        let mut state = self.analyzer.decode(&mut &*bytes, &self.scratch)?;
        let same = self.analyzer.decode(&mut &*bytes, &self.scratch)?;
        self.analyzer.merge(&mut state, same)?;
        let mut sum = Vec::new();
        self.analyzer.encode(&mut state, &mut sum)?;
        self.analyzer.finish(state)
    }

    /// A state stays within its budget, and spilling changes no byte.
    fn bounded_memory(&mut self, bytes: &[u8]) -> LawResult<()> {
        self.scratch = Arc::new(MemoryScratch {
            budget_bytes: BUDGET_BYTES_SMALL,
        });
        let mut state = match self.analyzer.zero(&self.scratch) {
            // Refusing a budget that is too small at once keeps the law.
            Err(fault) if fault.code() == codes::MEMORY => return Ok(()),
            other => other.map_err(fault_text)?,
        };
        for start in (0..self.rows()).step_by(100) {
            self.update(&mut state, start, (start + 100).min(self.rows()))
                .map_err(fault_text)?;
            let size = self.analyzer.size_bytes(&state);
            if size > BUDGET_BYTES_SMALL + BYTES_BEYOND_BUDGET {
                return Err(format!(
                    "a state of {size} bytes on a budget of {BUDGET_BYTES_SMALL}"
                ));
            }
        }
        self.expect_bytes(bytes, state, "a small budget")?;
        let half = self.rows() / 2;
        let early = self.state(&[(0, half)])?;
        let late = self.state(&[(half, self.rows())])?;
        self.expect_bytes(bytes, self.merge(early, late)?, "a merge on a small budget")
    }

    fn expect_bytes(&self, bytes: &[u8], state: AnyState, law: &str) -> LawResult<()> {
        let other = self.encode(state)?;
        if other == bytes {
            return Ok(());
        }
        let mut pairs = other.iter().zip(bytes);
        let differing = pairs.position(|(a, b)| a != b);
        // Without one, the shorter bytes begin the longer ones.
        let at = differing.unwrap_or(other.len().min(bytes.len()));
        Err(format!(
            "{}: {law}: other bytes ({} instead of {}) from byte {at} on",
            self.analyzer.kind(),
            other.len(),
            bytes.len()
        ))
    }
}

fn fault_text(fault: Fault) -> String {
    fault.to_string()
}

/// SplitMix64.
struct LawRng(u64);

impl LawRng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % n.max(1) as u64) as usize
    }
}
