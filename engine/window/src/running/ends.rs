//! Cumulative extremes, first and last values, zeros and the last nonzero value.

use forebay_model::{Decoder, Encoder, Result};

use super::{Accumulator, Asked, Entry, Own, enough};
use crate::Stat;
use crate::words::NO_NUMBER;

/// Minimum and maximum.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    count: u64,
    least: f64,
    greatest: f64,
}

impl Default for Range {
    fn default() -> Self {
        Range { count: 0, least: f64::INFINITY, greatest: f64::NEG_INFINITY }
    }
}

impl Accumulator for Range {
    type Config = ();
    type Question = Stat;

    #[inline]
    fn take(&mut self, _: &(), entry: Entry) {
        if !entry.is_missing {
            // Normalizes -0.0 to 0.0.
            let value = f64::from_bits(entry.word) + 0.0;
            self.count += 1;
            self.least = if value < self.least { value } else { self.least };
            self.greatest = if value > self.greatest { value } else { self.greatest };
        }
    }

    #[inline]
    fn answer(&self, _: &(), ask: &Asked<Stat>, _: &Own<'_>) -> u64 {
        let value = if ask.question == Stat::Min { self.least } else { self.greatest };
        enough(self.count, ask.min_periods.max(1), value)
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.number(self.least)?;
        out.number(self.greatest)
    }

    fn decode(_: &(), input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Range { count: input.varint()?, least: input.number()?, greatest: input.number()? })
    }
}

/// First and last value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    count: u64,
    first: u64,
    last: u64,
}

impl Accumulator for Ends {
    type Config = ();
    type Question = Stat;

    #[inline]
    fn take(&mut self, _: &(), entry: Entry) {
        if !entry.is_missing {
            self.first = if self.count == 0 { entry.word } else { self.first };
            self.last = entry.word;
            self.count += 1;
        }
    }

    #[inline]
    fn answer(&self, _: &(), ask: &Asked<Stat>, own: &Own<'_>) -> u64 {
        match ask.question {
            _ if self.count < ask.min_periods.max(1) => own.keep.missing(),
            Stat::First => self.first,
            _ => self.last,
        }
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.word(self.first)?;
        out.word(self.last)
    }

    fn decode(_: &(), input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Ends { count: input.varint()?, first: input.word()?, last: input.word()? })
    }
}

/// Share of zeros.
#[derive(Debug, Clone, Default)]
pub(crate) struct Zeros {
    count: u64,
    zeros: u64,
}

impl Accumulator for Zeros {
    type Config = ();
    type Question = Stat;

    #[inline]
    fn take(&mut self, _: &(), entry: Entry) {
        self.count += u64::from(!entry.is_missing);
        self.zeros += u64::from(f64::from_bits(entry.word) == 0.0);
    }

    #[inline]
    fn answer(&self, _: &(), ask: &Asked<Stat>, _: &Own<'_>) -> u64 {
        enough(self.count, ask.min_periods.max(1), self.zeros as f64 / self.count as f64)
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.varint(self.zeros)
    }

    fn decode(_: &(), input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Zeros { count: input.varint()?, zeros: input.varint()? })
    }
}

/// The last nonzero value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Since {
    count: u64,
    /// Index of its entry plus one; 0 if there is none.
    after: u64,
    time: i64,
}

impl Accumulator for Since {
    type Config = ();
    type Question = Stat;

    #[inline]
    fn take(&mut self, _: &(), entry: Entry) {
        if !entry.is_missing {
            self.count += 1;
            if f64::from_bits(entry.word) != 0.0 {
                (self.after, self.time) = (entry.number + 1, entry.time);
            }
        }
    }

    #[inline]
    fn answer(&self, _: &(), ask: &Asked<Stat>, own: &Own<'_>) -> u64 {
        if self.after == 0 {
            return NO_NUMBER;
        }
        let distance = match ask.question {
            Stat::SinceNonzero { unit: Some(unit) } => own.row.time.wrapping_sub(self.time) as f64 / unit as f64,
            _ => (own.row.number + 1 - self.after) as f64,
        };
        enough(self.count, ask.min_periods, distance)
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.varint(self.after)?;
        out.signed(self.time)
    }

    fn decode(_: &(), input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Since { count: input.varint()?, after: input.varint()?, time: input.signed()? })
    }
}
