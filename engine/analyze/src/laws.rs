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
    let mut court = LawChecker {
        analyzer,
        columns: whole.columns().to_vec(),
        keys: keys.as_slice().to_vec(),
        scratch: Arc::new(MemoryScratch::default()),
        random: LawRng(seed),
    };
    let rows = whole.num_rows();
    let state = court.state(&[(0, rows)])?;
    let bytes = court.encode(state)?;
    court.batch_sizes(&bytes)?;
    court.identity(&bytes)?;
    court.grouping(&bytes)?;
    court.stable_bytes(&bytes)?;
    court.condensing()?;
    court.spilling(&bytes)?;
    court.sharing(&bytes)?;
    court.damaged_bytes(&bytes)?;
    court.bounded_memory(&bytes)
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
        analyzer.update(
            &mut state,
            &AnalyzerInput {
                columns: batch.columns(),
                rows: batch.num_rows(),
                keys,
            },
        )?;
    }
    analyzer.finish(state)
}

impl LawChecker<'_> {
    fn rows(&self) -> usize {
        self.keys.len()
    }

    fn update(&self, state: &mut AnyState, start: usize, end: usize) -> Result<(), Fault> {
        let columns: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|column| column.slice(start, end - start))
            .collect();
        let keys = self
            .analyzer
            .needs_row_keys()
            .then(|| &self.keys[start..end]);
        self.analyzer.update(
            state,
            &AnalyzerInput {
                columns: &columns,
                rows: end - start,
                keys,
            },
        )
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

    fn merge(&self, mut state: AnyState, later: AnyState) -> LawResult<AnyState> {
        self.analyzer.merge(&mut state, later).map_err(fault_text)?;
        Ok(state)
    }

    fn batch_sizes(&self, bytes: &[u8]) -> LawResult<()> {
        for size in [1, 7, 1000] {
            let ranges: Vec<_> = (0..self.rows())
                .step_by(size)
                .map(|at| (at, (at + size).min(self.rows())))
                .collect();
            let state = self.state(&ranges)?;
            self.expect_bytes(bytes, state, &format!("batches of {size} rows"))?;
        }
        let half = self.rows() / 2;
        let state = self.state(&[(0, 0), (0, half), (half, half), (half, self.rows())])?;
        self.expect_bytes(bytes, state, "empty batches")
    }

    fn identity(&self, bytes: &[u8]) -> LawResult<()> {
        let (whole, zero) = (self.state(&[(0, self.rows())])?, self.state(&[])?);
        self.expect_bytes(bytes, self.merge(whole, zero)?, "a zero on the right")?;
        let (whole, zero) = (self.state(&[(0, self.rows())])?, self.state(&[])?);
        self.expect_bytes(bytes, self.merge(zero, whole)?, "a zero on the left")
    }

    fn grouping(&mut self, bytes: &[u8]) -> LawResult<()> {
        for round in 0..6 {
            let mut cuts: Vec<usize> = (0..round + 1)
                .map(|_| self.random.below(self.rows() + 1))
                .collect();
            cuts.extend([0, self.rows()]);
            cuts.sort_unstable();
            let spans: Vec<_> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let mut states = spans
                .iter()
                .map(|&span| self.state(&[span]))
                .collect::<LawResult<Vec<_>>>()?;
            while states.len() > 1 {
                let at = self.random.below(states.len() - 1);
                let later = states.remove(at + 1);
                let earlier = states.remove(at);
                states.insert(at, self.merge(earlier, later)?);
            }
            let Some(state) = states.pop() else { continue };
            self.expect_bytes(
                bytes,
                state,
                &format!("spans {spans:?}, merged in another grouping"),
            )?;
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

    fn stable_bytes(&mut self, bytes: &[u8]) -> LawResult<()> {
        let decode = |bytes: &[u8]| {
            let mut rest = bytes;
            let state = self
                .analyzer
                .decode(&mut rest, &self.scratch)
                .map_err(fault_text)?;
            if rest.is_empty() {
                Ok(state)
            } else {
                Err(format!("decode left {} bytes", rest.len()))
            }
        };
        self.expect_bytes(bytes, decode(bytes)?, "decode, then encode")?;
        let at = self.rows() / 3;
        let mut early = self.state(&[(0, at)])?;
        self.analyzer
            .encode(&mut early, &mut Vec::new())
            .map_err(fault_text)?;
        let mut resumed = decode(&self.encode(early)?)?;
        self.update(&mut resumed, at, self.rows())
            .map_err(fault_text)?;
        self.expect_bytes(bytes, resumed, "an update after decode")?;
        let (whole, again) = (self.state(&[(0, self.rows())])?, decode(bytes)?);
        let (whole, again) = (
            self.analyzer.finish(whole).map_err(fault_text)?,
            self.analyzer.finish(again).map_err(fault_text)?,
        );
        if whole.table() == again.table() {
            Ok(())
        } else {
            Err("finish differs after decode".into())
        }
    }

    /// A condensed state gives the same finding, also after encoding and decoding.
    fn condensing(&self) -> LawResult<()> {
        let whole = self
            .analyzer
            .finish(self.state(&[(0, self.rows())])?)
            .map_err(fault_text)?;
        let condensed = || {
            let mut state = self.state(&[(0, self.rows())])?;
            self.analyzer.condense(&mut state).map_err(fault_text)?;
            Ok::<_, String>(state)
        };
        let bytes = self.encode(condensed()?)?;
        let read = self
            .analyzer
            .decode(&mut bytes.as_slice(), &self.scratch)
            .map_err(fault_text)?;
        for state in [condensed()?, read] {
            if self.analyzer.finish(state).map_err(fault_text)?.table() != whole.table() {
                return Err("finish differs after condense".into());
            }
        }
        Ok(())
    }

    /// Spilled states are merged and updated like others.
    fn spilling(&mut self, bytes: &[u8]) -> LawResult<()> {
        let half = self.rows() / 2;
        let spilled = |from, to| {
            let mut state = self.state(&[(from, to)])?;
            self.analyzer.spill(&mut state).map_err(fault_text)?;
            Ok::<_, String>(state)
        };
        let merged = self.merge(spilled(0, half)?, spilled(half, self.rows())?)?;
        self.expect_bytes(bytes, merged, "states, spilled and merged")?;
        let mut updated = spilled(0, half)?;
        self.update(&mut updated, half, self.rows())
            .map_err(fault_text)?;
        self.expect_bytes(bytes, updated, "an update after spilling")
    }

    /// Shares of two spans, merged share by share and then with each other, equal the merged state.
    fn sharing(&mut self, bytes: &[u8]) -> LawResult<()> {
        let half = self.rows() / 2;
        let (mut early, mut late) = (
            self.state(&[(0, half)])?,
            self.state(&[(half, self.rows())])?,
        );
        if self.analyzer.divisible_bytes(&early).is_none() {
            return Ok(());
        }
        let divide = |state: &mut AnyState| {
            let mut bytes = vec![Vec::new(); 3];
            let mut shares: Vec<&mut dyn Write> = bytes
                .iter_mut()
                .map(|share| share as &mut dyn Write)
                .collect();
            self.analyzer
                .encode_shares(state, &mut shares)
                .map_err(fault_text)?;
            Ok::<_, String>(bytes)
        };
        let mut all = None;
        for (early, late) in divide(&mut early)?.iter().zip(&divide(&mut late)?).rev() {
            let decode = |mut bytes: &[u8]| {
                self.analyzer
                    .decode(&mut bytes, &self.scratch)
                    .map_err(fault_text)
            };
            let large = |mut bytes: &[u8]| {
                self.analyzer
                    .decode_large(&mut bytes, &self.scratch)
                    .map_err(fault_text)
            };
            self.expect_bytes(early, large(early)?, "a share, read as a large state")?;
            // Of either kind.
            let early = if all.is_none() {
                decode(early)?
            } else {
                large(early)?
            };
            let share = self.merge(early, large(late)?)?;
            all = Some(match all {
                Some(all) => self.merge(all, share)?,
                None => share,
            });
        }
        self.expect_bytes(bytes, all.ok_or("no shares")?, "shares, merged")
    }

    /// Decoding damaged bytes may fail or give a wrong state, but must not panic.
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
                drop(self.analyzer.decode(&mut bent.as_slice(), &self.scratch));
            }
        }
        Ok(())
    }

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
        let (early, late) = (
            self.state(&[(0, half)])?,
            self.state(&[(half, self.rows())])?,
        );
        self.expect_bytes(bytes, self.merge(early, late)?, "a merge on a small budget")
    }

    fn expect_bytes(&self, bytes: &[u8], state: AnyState, law: &str) -> LawResult<()> {
        let other = self.encode(state)?;
        if other == bytes {
            return Ok(());
        }
        let at = other
            .iter()
            .zip(bytes)
            .position(|(a, b)| a != b)
            .unwrap_or(other.len().min(bytes.len()));
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
