//! Cumulative statistics that keep all values: quantiles and distinct counts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes, lerp};
use hashbrown::HashSet;

use super::{ConsumedEntry, OutputRow, StatAccumulator, StatRequest, if_enough};
use crate::WindowStat;
use crate::special_words::{NO_NUMBER, defined};

/// Bits that sort like the doubles; -0.0 equals 0.0.
fn ordered_bits(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    bits ^ ((((bits as i64) >> 63) as u64) | 1 << 63)
}

fn from_ordered_bits(bits: u64) -> f64 {
    f64::from_bits(bits ^ ((((!bits as i64) >> 63) as u64) | 1 << 63))
}

/// The values of a series in two heaps, divided at a quantile.
#[derive(Debug, Clone, Default)]
pub(crate) struct QuantileHeaps {
    low: BinaryHeap<u64>,
    high: BinaryHeap<Reverse<u64>>,
}

/// Rank of a quantile among `count` values, from 0: the neighbour below, and the weight of the next one.
fn rank(q: f64, count: usize) -> (usize, f64) {
    let rank = q * (count - 1) as f64;
    let below = (rank.floor() as usize).min(count - 1);
    (below, rank - below as f64)
}

impl QuantileHeaps {
    /// Adds a value.
    pub fn push(&mut self, q: f64, value: f64) {
        let bits = ordered_bits(value);
        match self.low.peek() {
            Some(&top) if bits > top => self.high.push(Reverse(bits)),
            _ => self.low.push(bits),
        }
        let (below, _) = rank(q, self.low.len() + self.high.len());
        while self.low.len() > below + 1 {
            self.high.extend(self.low.pop().map(Reverse));
        }
        while self.low.len() < below + 1 {
            self.low.extend(self.high.pop().map(|Reverse(bits)| bits));
        }
    }

    /// The quantile of all values; `None` without any.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let lower = *self.low.peek()?;
        let upper = self.high.peek().map_or(lower, |Reverse(bits)| *bits);
        let share = rank(q, self.len()).1;
        Some(lerp(
            from_ordered_bits(lower),
            from_ordered_bits(upper),
            share,
        ))
    }

    fn len(&self) -> usize {
        self.low.len() + self.high.len()
    }
}

impl StatAccumulator for QuantileHeaps {
    /// The quantile's probability.
    type Config = f64;
    type Question = WindowStat;

    fn accumulate(&mut self, q: &f64, entry: ConsumedEntry) {
        if !entry.is_missing {
            self.push(*q, f64::from_bits(entry.word));
        }
    }

    fn output_word(&self, q: &f64, request: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let Some(value) = self.quantile(*q) else {
            return NO_NUMBER;
        };
        if_enough(self.len() as u64, request.min_periods, defined(value))
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        let mut bits: Vec<u64> = self.low.iter().copied().collect();
        bits.extend(self.high.iter().map(|Reverse(bits)| *bits));
        encode_sorted(bits, out)
    }

    fn decode(q: &f64, input: &mut StateDecoder<'_>) -> Result<Self> {
        let mut low = decode_sorted(input)?;
        if low.is_empty() {
            return Ok(QuantileHeaps::default());
        }
        let high = low.split_off(rank(*q, low.len()).0 + 1);
        Ok(QuantileHeaps {
            low: low.into(),
            high: high.into_iter().map(Reverse).collect(),
        })
    }

    fn heap_bytes(&self) -> usize {
        (self.low.capacity() + self.high.capacity()) * 8
    }
}

/// The distinct values of a series.
#[derive(Debug, Clone, Default)]
pub(crate) struct DistinctValues {
    count: u64,
    values: HashSet<u64>,
}

impl StatAccumulator for DistinctValues {
    /// True if words are numbers rather than bits.
    type Config = bool;
    type Question = WindowStat;

    fn accumulate(&mut self, numbers: &bool, entry: ConsumedEntry) {
        if entry.is_missing {
            return;
        }
        self.count += 1;
        // Normalizes -0.0 to 0.0.
        let word = if *numbers {
            (f64::from_bits(entry.word) + 0.0).to_bits()
        } else {
            entry.word
        };
        self.values.insert(word);
    }

    fn output_word(&self, _: &bool, request: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        if_enough(self.count, request.min_periods, self.values.len() as f64)
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        encode_sorted(self.values.iter().copied().collect(), out)
    }

    fn decode(_: &bool, input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(DistinctValues {
            count: input.varint()?,
            values: decode_sorted(input)?.into_iter().collect(),
        })
    }

    fn heap_bytes(&self) -> usize {
        self.values.allocation_size()
    }
}

fn encode_sorted(mut bits: Vec<u64>, out: &mut StateEncoder<'_>) -> Result<()> {
    bits.sort_unstable();
    out.varint(bits.len() as u64)?;
    bits.into_iter().try_for_each(|bits| out.word(bits))
}

fn decode_sorted(input: &mut StateDecoder<'_>) -> Result<Vec<u64>> {
    let length = input.varint()?;
    let mut bits = Vec::new();
    for _ in 0..length {
        let next = input.word()?;
        if bits.last().is_some_and(|&last| next < last) {
            return Err(Fault::new(
                codes::CORRUPT,
                "a window state has values out of order",
            ));
        }
        bits.push(next);
    }
    Ok(bits)
}
