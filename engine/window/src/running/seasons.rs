//! Seasonal indices: sums for each slot of each series.

use forebay_model::{Decoder, Encoder, Fault, Result, codes};

use super::{Frontier, Memory};
use crate::batch::Batch;
use crate::slabs::Slabs;
use crate::stats::Exacter;
use crate::words::{NO_BITS, NO_NUMBER};

/// Columns of the slabs: slots, counts and the two parts of sums.
const SLOT: usize = 0;
const COUNT: usize = 1;
const HIGH: usize = 2;
const LOW: usize = 3;
const COLUMNS: usize = 4;

/// Slots for which a series has room at first.
const FIRST_SLOTS: usize = 4;

/// One output.
#[derive(Debug, Clone)]
pub(crate) struct IndexAsk {
    pub function: usize,
    pub min_periods: u64,
    pub strength: f64,
    pub parent: Option<usize>,
}

/// The values of one series.
#[derive(Debug, Clone, Default)]
struct Series {
    count: u64,
    sum: Exacter,
    /// Its slots, in order.
    slab: usize,
    length: u32,
    class: u8,
    /// Where slots were found the last time: for taking entries, and for rows.
    found: [u32; 2],
}

/// Sums for each slot of each series. Only what lies in a slot counts.
#[derive(Debug, Clone)]
pub(crate) struct Seasons {
    pub input: usize,
    pub slot: usize,
    pub frontier: usize,
    pub asks: Vec<IndexAsk>,
    series: Vec<Series>,
    slabs: Slabs,
}

impl Seasons {
    pub fn new(input: usize, slot: usize, frontier: usize) -> Self {
        let slabs = Slabs::new(COLUMNS, FIRST_SLOTS);
        Seasons { input, slot, frontier, asks: Vec::new(), series: Vec::new(), slabs }
    }

    /// Where the slot is, or should be. Slots nearly always come in order, or again.
    #[inline]
    fn find(&mut self, series: usize, slot: i64, hint: usize) -> Result<usize, usize> {
        let series = &mut self.series[series];
        let slots = &self.slabs.words()[series.slab..series.slab + series.length as usize];
        let last = series.found[hint] as usize;
        let next = if last + 1 < slots.len() { last + 1 } else { 0 };
        for guess in [next, last] {
            if slots.get(guess) == Some(&(slot as u64)) {
                series.found[hint] = guess as u32;
                return Ok(guess);
            }
        }
        let found = slots.binary_search_by_key(&slot, |&slot| slot as i64);
        series.found[hint] = found.unwrap_or_else(|at| at) as u32;
        found
    }

    fn take(&mut self, series: usize, slot: i64, value: f64) {
        let at = match self.find(series, slot, 0) {
            Ok(at) => at,
            Err(at) => {
                self.insert(series, slot, at);
                at
            }
        };
        let series = &mut self.series[series];
        let capacity = self.slabs.capacity(series.class);
        let words = &mut self.slabs.words_mut()[series.slab + at..series.slab + COLUMNS * capacity];
        let (high, low) = (f64::from_bits(words[HIGH * capacity]), f64::from_bits(words[LOW * capacity]));
        let mut sum = Exacter { high, low };
        sum.add(value);
        words[COUNT * capacity] += 1;
        (words[HIGH * capacity], words[LOW * capacity]) = (sum.high.to_bits(), sum.low.to_bits());
        series.count += 1;
        series.sum.add(value);
    }

    fn insert(&mut self, series: usize, slot: i64, at: usize) {
        let head = &mut self.series[series];
        let length = head.length as usize;
        if head.length == 0 {
            head.slab = self.slabs.take(head.class);
        } else if length == self.slabs.capacity(head.class) {
            head.slab = self.slabs.resize(head.slab, head.class, 0, length, head.class + 1);
            head.class += 1;
        }
        let capacity = self.slabs.capacity(head.class);
        for (column, word) in [slot as u64, 0, 0, 0].into_iter().enumerate() {
            let start = head.slab + column * capacity;
            let words = &mut self.slabs.words_mut()[start..=start + length];
            words.copy_within(at..length, at + 1);
            words[at] = word;
        }
        head.length += 1;
    }

    /// The count and the sum of a slot.
    #[inline]
    fn slot_sums(&mut self, series: usize, slot: i64) -> (u64, f64) {
        let Ok(at) = self.find(series, slot, 1) else { return (0, 0.0) };
        let (count, sum) = self.sums_at(&self.series[series], at);
        (count, sum.total())
    }

    fn sums_at(&self, series: &Series, at: usize) -> (u64, Exacter) {
        let capacity = self.slabs.capacity(series.class);
        let words = &self.slabs.words()[series.slab + at..series.slab + COLUMNS * capacity];
        let (high, low) = (f64::from_bits(words[HIGH * capacity]), f64::from_bits(words[LOW * capacity]));
        (words[COUNT * capacity], Exacter { high, low })
    }
}

/// The index of a slot, drawn toward the parent.
#[inline]
fn index(ask: &IndexAsk, slot: (u64, f64), all: (u64, f64), parent: f64) -> f64 {
    let count = slot.0 as f64;
    let mean = all.1 / all.0 as f64;
    if slot.0 == 0 || slot.0 < ask.min_periods || mean == 0.0 {
        return if ask.strength > 0.0 { parent } else { f64::NAN };
    }
    let own = slot.1 / count / mean;
    if ask.strength > 0.0 { (count * own + ask.strength * parent) / (count + ask.strength) } else { own }
}

impl Memory for Seasons {
    fn run(
        &mut self,
        batch: &Batch<'_>,
        frontiers: &[Frontier],
        series: usize,
        emit: &[bool],
        outputs: &mut [Vec<u64>],
    ) {
        self.series.resize_with(series, Series::default);
        let asks = std::mem::take(&mut self.asks);
        let wanted = asks.iter().any(|ask| emit[ask.function]);
        for (row, &(start, end)) in batch.rows.iter().zip(&frontiers[self.frontier].spans) {
            let (values, slots) = (batch.input(row, self.input), batch.input(row, self.slot));
            let series = row.series as usize;
            for place in start as usize..end as usize {
                let value = f64::from_bits(values[place]);
                if !value.is_nan() && slots[place] != NO_BITS {
                    self.take(series, slots[place] as i64, value);
                }
            }
            if !wanted {
                continue;
            }
            let own = slots[row.place as usize];
            let slot = if own == NO_BITS { (0, 0.0) } else { self.slot_sums(series, own as i64) };
            let all = (self.series[series].count, self.series[series].sum.total());
            for ask in asks.iter().filter(|ask| emit[ask.function]) {
                let parent = ask.parent.map_or(NO_NUMBER, |input| batch.input(row, input)[row.place as usize]);
                let parent = f64::from_bits(parent);
                let parent = if parent.is_nan() { 1.0 } else { parent };
                outputs[ask.function].push(index(ask, slot, all, parent).to_bits());
            }
        }
        self.asks = asks;
    }

    fn keep_only(&mut self, series: usize) {
        let mut only = Seasons::new(self.input, self.slot, self.frontier);
        only.asks = std::mem::take(&mut self.asks);
        let mut kept = self.series[series].clone();
        if kept.length > 0 {
            let size = COLUMNS * self.slabs.capacity(kept.class);
            let words = &self.slabs.words()[kept.slab..kept.slab + size];
            kept.slab = only.slabs.take(kept.class);
            only.slabs.words_mut()[kept.slab..kept.slab + size].copy_from_slice(words);
        }
        only.series.push(kept);
        *self = only;
    }

    fn encode(&self, series: usize, out: &mut Encoder<'_>) -> Result<()> {
        let series = &self.series[series];
        out.varint(series.count)?;
        super::moments::encode_sum(series.sum, out)?;
        out.varint(u64::from(series.length))?;
        for at in 0..series.length as usize {
            let (count, sum) = self.sums_at(series, at);
            out.u64(self.slabs.words()[series.slab + SLOT + at])?;
            out.varint(count)?;
            super::moments::encode_sum(sum, out)?;
        }
        Ok(())
    }

    fn decode(&mut self, input: &mut Decoder<'_>) -> Result<()> {
        let (count, sum) = (input.varint()?, super::moments::decode_sum(input)?);
        let slots = input.length(u32::MAX as usize)?;
        let number = self.series.len();
        self.series.push(Series { count, sum, ..Series::default() });
        for at in 0..slots {
            let slot = input.u64()?;
            let before = &self.series[number];
            if at > 0 && self.slabs.words()[before.slab + at - 1] as i64 >= slot as i64 {
                return Err(Fault::new(codes::CORRUPT, "a state of windows holds slots out of order"));
            }
            let (count, sum) = (input.varint()?, super::moments::decode_sum(input)?);
            self.insert(number, slot as i64, at);
            let series = &self.series[number];
            let capacity = self.slabs.capacity(series.class);
            let words = &mut self.slabs.words_mut()[series.slab + at..];
            words[COUNT * capacity] = count;
            (words[HIGH * capacity], words[LOW * capacity]) = (sum.high.to_bits(), sum.low.to_bits());
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.series.capacity() * size_of::<Series>() + self.slabs.bytes()
    }

    fn boxed(&self) -> Box<dyn Memory> {
        Box::new(self.clone())
    }
}
