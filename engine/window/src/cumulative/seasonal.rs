//! Seasonal indices: sums per slot and series.

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes};

use super::{CumulativeFrontier, CumulativeState};
use crate::batch::WindowBatch;
use crate::slabs::SlabAllocator;
use crate::special_words::{NO_BITS, NO_NUMBER, UNDEFINED_NUMBER, defined};
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

/// A requested output.
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
            if slots.get(guess).is_some_and(|sums| sums.slot == slot) {
                series.found[hint] = guess as u32;
                return Ok(guess);
            }
        }
        let search = slots.binary_search_by_key(&slot, |sums| sums.slot);
        series.found[hint] = search.unwrap_or_else(|at| at) as u32;
        search
    }

    #[inline]
    fn add_value(&mut self, series: usize, slot: i64, value: f64) {
        let search = self.find(series, slot, 0);
        let at = search.unwrap_or_else(|at| self.insert(series, slot, at));
        let series = &mut self.series[series];
        let sums = &mut self.slabs.items_mut()[series.at + at];
        sums.count += 1;
        sums.sum.add(value);
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
        let sums = &self.slabs.items()[self.series[series].at + at];
        ValueSums {
            count: sums.count,
            sum: sums.sum.total(),
        }
    }
}

/// Number and sum of the values of a slot or a series.
#[derive(Clone, Copy, Default)]
struct ValueSums {
    count: u64,
    sum: f64,
}

/// The index of a slot, shrunk toward the parent.
#[inline]
fn shrunk_index(request: &SeasonalRequest, slot: ValueSums, total: ValueSums, parent: f64) -> f64 {
    let count = slot.count as f64;
    let mean = total.sum / total.count as f64;
    let is_short = slot.count == 0 || slot.count < request.min_periods;
    if request.strength > 0.0 {
        if is_short || mean == 0.0 {
            return parent;
        }
        let index = slot.sum / count / mean;
        return defined((count * index + request.strength * parent) / (count + request.strength));
    }
    if is_short {
        f64::NAN
    } else if mean == 0.0 {
        // No share of nothing.
        f64::from_bits(UNDEFINED_NUMBER)
    } else {
        defined(slot.sum / count / mean)
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
        let requests = std::mem::take(&mut self.asks);
        let is_wanted = requests.iter().any(|request| emit[request.function]);
        let values = &batch.inputs[self.input];
        let slots = &batch.inputs[self.slot];
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
            if !is_wanted {
                continue;
            }
            let slot_word = slots.own(at);
            let slot = if slot_word == NO_BITS {
                ValueSums::default()
            } else {
                self.slot_sums(series, slot_word as i64)
            };
            let total = ValueSums {
                count: self.series[series].count,
                sum: self.series[series].sum.total(),
            };
            for request in requests.iter().filter(|request| emit[request.function]) {
                let parent = request
                    .parent
                    .map_or(NO_NUMBER, |input| batch.inputs[input].own(at));
                let parent = f64::from_bits(parent);
                let parent = if parent.is_nan() { 1.0 } else { parent };
                outputs[request.function]
                    .push(shrunk_index(request, slot, total, parent).to_bits());
            }
        }
        self.asks = requests;
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
        let mut copy = self.series[series].clone();
        if copy.length > 0 {
            let slots = &self.slabs.items()[copy.range()];
            copy.at = only.slabs.allocate(copy.class);
            only.slabs.items_mut()[copy.range()].copy_from_slice(slots);
        }
        only.series.push(copy);
        *self = only;
    }

    fn encode(&self, series: usize, out: &mut StateEncoder<'_>) -> Result<()> {
        let series = &self.series[series];
        out.varint(series.count)?;
        super::moments::encode_sum(series.sum, out)?;
        out.varint(u64::from(series.length))?;
        for sums in &self.slabs.items()[series.range()] {
            out.signed(sums.slot)?;
            out.varint(sums.count)?;
            super::moments::encode_sum(sums.sum, out)?;
        }
        Ok(())
    }

    fn decode(&mut self, input: &mut StateDecoder<'_>) -> Result<()> {
        let count = input.varint()?;
        let sum = super::moments::decode_sum(input)?;
        let slots = input.length(u32::MAX as usize)?;
        let number = self.series.len();
        self.series.push(SeasonalSeries {
            count,
            sum,
            ..SeasonalSeries::default()
        });
        let mut previous = None;
        for at in 0..slots {
            let slot = input.signed()?;
            if previous
                .replace(slot)
                .is_some_and(|previous| previous >= slot)
            {
                return Err(Fault::new(
                    codes::CORRUPT,
                    "a window state has slots out of order",
                ));
            }
            let count = input.varint()?;
            let sum = super::moments::decode_sum(input)?;
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
