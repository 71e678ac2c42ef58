//! Seasonal indices: sums per slot and series.

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes};

use super::{CumulativeFrontier, CumulativeState};
use crate::batch::WindowBatch;
use crate::encoding::{NO_BITS, NO_NUMBER};
use crate::slabs::SlabAllocator;
use crate::stats::NeumaierSum;

/// Slots in the first slab of a series.
const FIRST_SLOTS: usize = 4;

/// Sums of one slot.
#[derive(Debug, Clone, Copy, Default)]
struct SlotSums {
    slot: i64,
    count: u64,
    sum: NeumaierSum,
}

/// One output.
#[derive(Debug, Clone)]
pub(crate) struct SeasonalRequest {
    pub function: usize,
    pub min_periods: u64,
    pub strength: f64,
    pub parent: Option<usize>,
}

/// Sums of one series.
#[derive(Debug, Clone, Default)]
struct SeasonalSeries {
    count: u64,
    sum: NeumaierSum,
    /// Slab of its slots, sorted.
    at: usize,
    length: u32,
    class: u8,
    /// Last lookup positions: for consuming entries, and for output rows.
    found: [u32; 2],
}

impl SeasonalSeries {
    fn range(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.length as usize
    }
}

/// Sums per slot and series. Values without a slot are ignored.
#[derive(Debug, Clone)]
pub(crate) struct SeasonalSums {
    pub input: usize,
    pub slot: usize,
    pub frontier: usize,
    pub asks: Vec<SeasonalRequest>,
    series: Vec<SeasonalSeries>,
    slabs: SlabAllocator<SlotSums>,
}

impl SeasonalSums {
    pub fn new(input: usize, slot: usize, frontier: usize) -> Self {
        SeasonalSums {
            input,
            slot,
            frontier,
            asks: Vec::new(),
            series: Vec::new(),
            slabs: SlabAllocator::new(FIRST_SLOTS),
        }
    }

    /// Position of a slot, or where it belongs. Slots mostly arrive in order or repeat.
    #[inline]
    fn find(&mut self, series: usize, slot: i64, hint: usize) -> Result<usize, usize> {
        let series = &mut self.series[series];
        let slots = &self.slabs.items()[series.range()];
        let last = series.found[hint] as usize;
        let next = if last + 1 < slots.len() { last + 1 } else { 0 };
        for guess in [next, last] {
            if slots.get(guess).is_some_and(|found| found.slot == slot) {
                series.found[hint] = guess as u32;
                return Ok(guess);
            }
        }
        let found = slots.binary_search_by_key(&slot, |found| found.slot);
        series.found[hint] = found.unwrap_or_else(|at| at) as u32;
        found
    }

    #[inline]
    fn add_value(&mut self, series: usize, slot: i64, value: f64) {
        let found = self.find(series, slot, 0);
        let at = found.unwrap_or_else(|at| self.insert(series, slot, at));
        let series = &mut self.series[series];
        let found = &mut self.slabs.items_mut()[series.at + at];
        found.count += 1;
        found.sum.add(value);
        series.count += 1;
        series.sum.add(value);
    }

    #[cold]
    fn insert(&mut self, series: usize, slot: i64, at: usize) -> usize {
        let head = &mut self.series[series];
        let length = head.length as usize;
        if length == 0 {
            head.at = self.slabs.allocate(head.class);
        } else if length == self.slabs.capacity(head.class) {
            let wider = self.slabs.copy(head.range(), head.class + 1);
            self.slabs.release(head.at, head.class);
            (head.at, head.class) = (wider, head.class + 1);
        }
        head.length += 1;
        let slots = &mut self.slabs.items_mut()[head.range()];
        slots.copy_within(at..length, at + 1);
        slots[at] = SlotSums {
            slot,
            ..SlotSums::default()
        };
        at
    }

    /// Count and sum of a slot.
    #[inline]
    fn slot_sums(&mut self, series: usize, slot: i64) -> ValueSums {
        let Ok(at) = self.find(series, slot, 1) else {
            return ValueSums::default();
        };
        let found = &self.slabs.items()[self.series[series].at + at];
        ValueSums {
            count: found.count,
            sum: found.sum.total(),
        }
    }
}

/// How many values a slot or a series has, and their sum.
#[derive(Clone, Copy, Default)]
struct ValueSums {
    count: u64,
    sum: f64,
}

/// The index of a slot, shrunk toward the parent.
#[inline]
fn shrunk_index(ask: &SeasonalRequest, slot: ValueSums, all: ValueSums, parent: f64) -> f64 {
    let count = slot.count as f64;
    let mean = all.sum / all.count as f64;
    if slot.count == 0 || slot.count < ask.min_periods || mean == 0.0 {
        return if ask.strength > 0.0 { parent } else { f64::NAN };
    }
    let own = slot.sum / count / mean;
    if ask.strength > 0.0 {
        (count * own + ask.strength * parent) / (count + ask.strength)
    } else {
        own
    }
}

impl CumulativeState for SeasonalSums {
    fn run(
        &mut self,
        batch: &WindowBatch<'_>,
        frontiers: &[CumulativeFrontier],
        series: usize,
        emit: &[bool],
        outputs: &mut [Vec<u64>],
    ) {
        self.grow(series);
        let asks = std::mem::take(&mut self.asks);
        let wanted = asks.iter().any(|ask| emit[ask.function]);
        let (values, slots) = (&batch.inputs[self.input], &batch.inputs[self.slot]);
        for (at, (row, &(start, end))) in batch
            .rows
            .iter()
            .zip(&frontiers[self.frontier].spans)
            .enumerate()
        {
            let series = row.series as usize;
            for (&word, &slot) in values
                .slice(at, start, end)
                .iter()
                .zip(slots.slice(at, start, end))
            {
                let value = f64::from_bits(word);
                if !value.is_nan() && slot != NO_BITS {
                    self.add_value(series, slot as i64, value);
                }
            }
            if !wanted {
                continue;
            }
            let own = slots.own(at);
            let slot = if own == NO_BITS {
                ValueSums::default()
            } else {
                self.slot_sums(series, own as i64)
            };
            let all = ValueSums {
                count: self.series[series].count,
                sum: self.series[series].sum.total(),
            };
            for ask in asks.iter().filter(|ask| emit[ask.function]) {
                let parent = ask
                    .parent
                    .map_or(NO_NUMBER, |input| batch.inputs[input].own(at));
                let parent = f64::from_bits(parent);
                let parent = if parent.is_nan() { 1.0 } else { parent };
                outputs[ask.function].push(shrunk_index(ask, slot, all, parent).to_bits());
            }
        }
        self.asks = asks;
    }

    fn grow(&mut self, series: usize) {
        self.series.resize_with(series, SeasonalSeries::default);
    }

    fn remove(&mut self, series: usize) {
        let SeasonalSeries {
            at, length, class, ..
        } = self.series.swap_remove(series);
        if length > 0 {
            self.slabs.release(at, class);
        }
    }

    fn keep_only(&mut self, series: usize) {
        let mut only = SeasonalSums::new(self.input, self.slot, self.frontier);
        only.asks = std::mem::take(&mut self.asks);
        let mut kept = self.series[series].clone();
        if kept.length > 0 {
            let slots = &self.slabs.items()[kept.range()];
            kept.at = only.slabs.allocate(kept.class);
            only.slabs.items_mut()[kept.range()].copy_from_slice(slots);
        }
        only.series.push(kept);
        *self = only;
    }

    fn encode(&self, series: usize, out: &mut StateEncoder<'_>) -> Result<()> {
        let series = &self.series[series];
        out.varint(series.count)?;
        super::moments::encode_sum(series.sum, out)?;
        out.varint(u64::from(series.length))?;
        for found in &self.slabs.items()[series.range()] {
            out.signed(found.slot)?;
            out.varint(found.count)?;
            super::moments::encode_sum(found.sum, out)?;
        }
        Ok(())
    }

    fn decode(&mut self, input: &mut StateDecoder<'_>) -> Result<()> {
        let (count, sum) = (input.varint()?, super::moments::decode_sum(input)?);
        let slots = input.length(u32::MAX as usize)?;
        let number = self.series.len();
        self.series.push(SeasonalSeries {
            count,
            sum,
            ..SeasonalSeries::default()
        });
        let mut before = None;
        for at in 0..slots {
            let slot = input.signed()?;
            if before.replace(slot).is_some_and(|before| before >= slot) {
                return Err(Fault::new(
                    codes::CORRUPT,
                    "a window state has slots out of order",
                ));
            }
            let (count, sum) = (input.varint()?, super::moments::decode_sum(input)?);
            self.insert(number, slot, at);
            self.slabs.items_mut()[self.series[number].at + at] = SlotSums { slot, count, sum };
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.series.capacity() * size_of::<SeasonalSeries>() + self.slabs.bytes()
    }

    fn boxed(&self) -> Box<dyn CumulativeState> {
        Box::new(self.clone())
    }
}
