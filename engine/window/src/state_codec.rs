//! Encoding of the window state: the same bytes for the same rows, independent of batches and partitions.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, canonical_json, codes};
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::partition_of;
use crate::partition::SeriesPartition;
use crate::value_store::ValueStore;
use crate::{WindowEngine, WindowPlan};

const VERSION: u8 = 3;

/// Most entries of one series in a state.
const ENTRIES_MAX: usize = u32::MAX as usize;

/// Most entries that a series can have had.
const COUNT_MAX: u64 = 1 << 62;

/// Most bytes of one series in a state.
pub(crate) const BYTES_MAX: usize = u32::MAX as usize;

/// Location of a series: its number, or its record in the cold store.
#[derive(Clone, Copy)]
pub(crate) enum SeriesLocation {
    Awake(u32),
    Resting(u32),
}

impl SeriesPartition {
    /// All series, active and evicted.
    fn locations(&self) -> impl Iterator<Item = (u128, SeriesLocation)> {
        let awake = (0..self.table.len() as u32).map(|series| {
            (
                self.table.hash(series as usize),
                SeriesLocation::Awake(series),
            )
        });
        awake.chain(
            self.resting
                .records()
                .map(|(hash, record)| (hash, SeriesLocation::Resting(record))),
        )
    }

    fn hash(&self, location: SeriesLocation) -> u128 {
        match location {
            SeriesLocation::Awake(series) => self.table.hash(series as usize),
            SeriesLocation::Resting(record) => self.resting.hash(record),
        }
    }

    /// All series with the hashes of their keys, in the order of the hashes.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u128, SeriesLocation)> {
        // The upper half of a hash distinguishes nearly all series.
        let mut order: Vec<(u64, SeriesLocation)> = self
            .locations()
            .map(|(hash, location)| ((hash >> 64) as u64, location))
            .collect();
        order.sort_unstable_by(|(half, location), (other_half, other)| {
            half.cmp(other_half)
                .then_with(|| self.hash(*location).cmp(&self.hash(*other)))
        });
        order
            .into_iter()
            .map(|(_, location)| (self.hash(location), location))
    }

    /// Encodes the state of one active series.
    pub(crate) fn encode_series(
        &self,
        series: usize,
        even: &mut Vec<u64>,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        bytes.clear();
        let mut out = StateEncoder(bytes);
        let head = self.history.head(series as u32);
        out.varint(head.count)?;
        out.signed(head.last)?;
        let columns = self.history.needed(series, even, |frontier| {
            self.memories.next_unconsumed(frontier, series)
        });
        for (column, words) in columns.enumerate() {
            out.varint(words.len() as u64)?;
            match column {
                // Consecutive times differ by little.
                0 if self.history.has_times() => {
                    (1..words.len())
                        .try_for_each(|at| out.varint(words[at].wrapping_sub(words[at - 1])))?;
                }
                _ => out.words(words)?,
            }
        }
        for frontier in &self.memories.frontiers {
            out.varint(head.count - frontier.taken[series])?;
        }
        self.memories
            .memories
            .iter()
            .try_for_each(|memory| memory.encode(series, &mut out))
    }

    /// Decodes one series and appends it as an active one. `next` is the number of series decoded after it.
    pub(crate) fn decode_series(
        &mut self,
        mut bytes: &[u8],
        columns: &mut Vec<Vec<u64>>,
        next: usize,
    ) -> Result<()> {
        let mut input = StateDecoder(&mut bytes);
        let count = input.varint()?;
        let last = input.signed()?;
        if count > COUNT_MAX {
            return Err(corrupt("an entry count out of range"));
        }
        columns.resize_with(self.history.columns(), Vec::new);
        for (column, words) in columns.iter_mut().enumerate() {
            let length = input.length(ENTRIES_MAX.min(count as usize))?;
            words.clear();
            if column == 0 && self.history.has_times() {
                decode_times(&mut input, length, last, words)?;
                continue;
            }
            for _ in 0..length {
                words.push(input.word()?);
            }
        }
        self.history
            .restore(count, last, columns.iter().map(Vec::as_slice), next);
        for frontier in &mut self.memories.frontiers {
            let consumed = count.checked_sub(input.varint()?);
            frontier
                .taken
                .push(consumed.ok_or_else(|| corrupt("a frontier beyond its entries"))?);
        }
        let frontiers = &self.memories.frontiers;
        let consumed = |frontier: usize| frontiers[frontier].taken.last().copied().unwrap_or(0);
        if !self.history.has_needed(count, columns, consumed) {
            return Err(corrupt("too few entries"));
        }
        self.memories
            .memories
            .iter_mut()
            .try_for_each(|memory| memory.decode(&mut input))?;
        if bytes.is_empty() {
            Ok(())
        } else {
            Err(corrupt("extra bytes after a series"))
        }
    }
}

/// Decodes the times of a series, of which the last is known.
fn decode_times(
    input: &mut StateDecoder<'_>,
    length: usize,
    last: i64,
    words: &mut Vec<u64>,
) -> Result<()> {
    for _ in 1..length {
        words.push(input.varint()?);
    }
    // Steps are subtracted backward from the last time.
    let mut time = last as u64;
    for word in words.iter_mut().rev() {
        let step = std::mem::replace(word, time);
        time = time.wrapping_sub(step);
    }
    if length > 0 {
        words.insert(0, time);
    }
    if words.is_sorted_by_key(|&time| time as i64) {
        Ok(())
    } else {
        Err(corrupt("times out of order"))
    }
}

impl WindowEngine {
    /// Encodes the state: the same bytes for the same rows, however they were pushed.
    pub fn encode(&self, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        out.raw(&[VERSION])?;
        out.u64(window_plan_hash(&self.plan)?)?;
        out.varint(self.gaps())?;
        out.varint(self.series() as u64)?;
        let mut bytes = Vec::new();
        let mut even = Vec::new();
        let mut marks = HashSet::new();
        // Partitions are ranges of hashes: all series of one sort before those of the next.
        for part in &self.parts {
            for (hash, location) in part.in_order() {
                out.raw(&hash.to_le_bytes())?;
                let series: &[u8] = match location {
                    SeriesLocation::Resting(place) => part.resting.bytes_at(place),
                    SeriesLocation::Awake(series) => {
                        part.encode_series(series as usize, &mut even, &mut bytes)?;
                        &bytes
                    }
                };
                self.values.mark(series, &mut marks);
                out.bytes(series)?;
            }
        }
        if self.plan.stores_values() {
            self.values.encode(marks, &mut out)?;
        }
        Ok(())
    }

    /// Decodes bytes written by `WindowEngine::encode` into `parts` partitions. All series stay in the cold store
    /// until their next rows arrive.
    pub fn decode(plan: Arc<WindowPlan>, parts: usize, input: &mut dyn Read) -> Result<Self> {
        plan.check()?;
        let mut input = StateDecoder(input);
        let mut version = [0];
        input.raw(&mut version)?;
        if version != [VERSION] {
            return Err(Fault::new(
                codes::STATE_VERSION,
                "a window state has another version",
            ));
        }
        if input.u64()? != window_plan_hash(&plan)? {
            return Err(Fault::new(
                codes::STATE_VERSION,
                "a window state belongs to another plan",
            ));
        }
        let mut engine = WindowEngine::in_parts(plan, parts);
        let parts = engine.parts.len();
        engine.parts[0].gaps = input.varint()?;
        let series = input.length(u32::MAX as usize)?;
        let mut bytes = Vec::new();
        for _ in 0..series {
            let mut hash = [0; 16];
            input.raw(&mut hash)?;
            input.bytes_into(&mut bytes, BYTES_MAX)?;
            let hash = u128::from_le_bytes(hash);
            if !engine.parts[partition_of(hash, parts)]
                .resting
                .insert(hash, &bytes)
            {
                return Err(corrupt("a duplicate series, or too many series"));
            }
        }
        if engine.plan.stores_values() {
            engine.values = ValueStore::decode(&mut input)?;
        }
        Ok(engine)
    }
}

pub(crate) fn corrupt(problem: &str) -> Fault {
    Fault::new(codes::CORRUPT, format!("a window state has {problem}"))
}

impl WindowPlan {
    /// Version of the states of single series: those of another plan or of another version cannot be read.
    pub fn state_version(&self) -> Result<u64> {
        Ok(window_plan_hash(self)?.wrapping_add(u64::from(VERSION)))
    }
}

/// Hash of the plan: only the plan that wrote a state can read it.
fn window_plan_hash(plan: &WindowPlan) -> Result<u64> {
    Ok(xxh3_64(canonical_json(&plan.to_json()?).as_bytes()))
}
