//! The bytes of an engine: the same for the same rows, however they came.

use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{Decoder, Encoder, Fault, Result, codes};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Engine, WindowPlan};

const VERSION: u8 = 1;

/// Most entries of one series in a state.
const ENTRIES_MAX: usize = u32::MAX as usize;

impl Engine {
    /// Writes what it remembers: the same bytes for the same rows, however they came.
    pub fn encode(&self, out: &mut dyn Write) -> Result<()> {
        let mut out = Encoder(out);
        out.raw(&[VERSION])?;
        out.u64(plan_hash(&self.plan))?;
        out.varint(self.gaps)?;
        let mut order: Vec<u32> = (0..self.table.len() as u32).collect();
        order.sort_unstable_by_key(|&series| self.table.hash(series as usize));
        out.varint(order.len() as u64)?;
        let (mut bytes, mut even) = (Vec::new(), Vec::new());
        for series in order {
            bytes.clear();
            self.encode_series(series as usize, &mut even, &mut Encoder(&mut bytes))?;
            out.raw(&bytes)?;
        }
        Ok(())
    }

    fn encode_series(&self, series: usize, even: &mut Vec<u64>, out: &mut Encoder<'_>) -> Result<()> {
        out.raw(&self.table.hash(series).to_le_bytes())?;
        let head = self.history.head(series as u32);
        out.varint(head.count)?;
        out.u64(head.last as u64)?;
        let columns = self.history.needed(series, even, |frontier| self.memories.taken(frontier, series));
        for (column, words) in columns.enumerate() {
            out.varint(words.len() as u64)?;
            match column {
                // Times are near one another.
                0 if self.history.has_times() => {
                    (1..words.len()).try_for_each(|at| out.varint(words[at].wrapping_sub(words[at - 1])))?;
                }
                _ => words.iter().try_for_each(|&word| out.u64(word))?,
            }
        }
        for frontier in &self.memories.frontiers {
            out.varint(head.count - frontier.taken[series])?;
        }
        self.memories.memories.iter().try_for_each(|memory| memory.encode(series, out))
    }

    /// Reads what [`Engine::encode`] wrote.
    pub fn decode(plan: Arc<WindowPlan>, input: &mut dyn Read) -> Result<Self> {
        plan.check()?;
        let mut input = Decoder(input);
        let mut version = [0];
        input.raw(&mut version)?;
        if version != [VERSION] {
            return Err(Fault::new(codes::STATE_VERSION, "a state of windows is of another version"));
        }
        if input.u64()? != plan_hash(&plan) {
            return Err(Fault::new(codes::STATE_VERSION, "a state of windows is of another plan"));
        }
        let mut engine = Engine::new(plan);
        engine.gaps = input.varint()?;
        let series = input.length(u32::MAX as usize)?;
        let mut columns = vec![Vec::new(); engine.plan.inputs.len() + usize::from(engine.history.has_times())];
        for _ in 0..series {
            engine.decode_series(&mut input, &mut columns)?;
        }
        Ok(engine)
    }

    fn decode_series(&mut self, input: &mut Decoder<'_>, columns: &mut [Vec<u64>]) -> Result<()> {
        let mut hash = [0; 16];
        input.raw(&mut hash)?;
        let number = self.table.len();
        if self.table.resolve(u128::from_le_bytes(hash)) as usize != number {
            return Err(corrupt("a series twice"));
        }
        let (count, last) = (input.varint()?, input.u64()?);
        for (column, words) in columns.iter_mut().enumerate() {
            let length = input.length(ENTRIES_MAX.min(count as usize))?;
            words.clear();
            if column > 0 || !self.history.has_times() {
                for _ in 0..length {
                    words.push(input.u64()?);
                }
                continue;
            }
            for _ in 1..length {
                words.push(input.varint()?);
            }
            // Steps back from the last time.
            let mut time = last;
            words.iter_mut().rev().for_each(|word| time = time.wrapping_sub(std::mem::replace(word, time)));
            if length > 0 {
                words.insert(0, time);
            }
            if !words.is_sorted_by_key(|&time| time as i64) {
                return Err(corrupt("times out of order"));
            }
        }
        self.history.restore(count, last as i64, columns.iter().map(Vec::as_slice));
        for frontier in &mut self.memories.frontiers {
            let taken = count.checked_sub(input.varint()?);
            frontier.taken.push(taken.ok_or_else(|| corrupt("entries that are not there"))?);
        }
        self.memories.memories.iter_mut().try_for_each(|memory| memory.decode(input))
    }
}

fn corrupt(what: &str) -> Fault {
    Fault::new(codes::CORRUPT, format!("a state of windows holds {what}"))
}

/// What tells plans apart: states are read by the plan that wrote them only.
fn plan_hash(plan: &WindowPlan) -> u64 {
    xxh3_64(format!("{plan:?}").as_bytes())
}
