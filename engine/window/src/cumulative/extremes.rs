//! Cumulative extremes, first and last values, zeros and the last nonzero value.

use forebay_model::{Result, StateDecoder, StateEncoder};

use super::{ConsumedEntry, OutputRow, StatAccumulator, StatRequest, if_enough};
use crate::WindowStat;
use crate::special_words::NO_NUMBER;

/// Minimum and maximum.
#[derive(Debug, Clone)]
pub(crate) struct ExtremesAccumulator {
    count: u64,
    least: f64,
    greatest: f64,
}

impl Default for ExtremesAccumulator {
    fn default() -> Self {
        ExtremesAccumulator {
            count: 0,
            least: f64::INFINITY,
            greatest: f64::NEG_INFINITY,
        }
    }
}

impl StatAccumulator for ExtremesAccumulator {
    type Config = ();
    type Question = WindowStat;

    #[inline]
    fn accumulate(&mut self, _: &(), entry: ConsumedEntry) {
        if !entry.is_missing {
            // Normalizes -0.0 to 0.0.
            let value = f64::from_bits(entry.word) + 0.0;
            self.count += 1;
            self.least = if value < self.least {
                value
            } else {
                self.least
            };
            self.greatest = if value > self.greatest {
                value
            } else {
                self.greatest
            };
        }
    }

    #[inline]
    fn output_word(&self, _: &(), request: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let value = if request.question == WindowStat::Min {
            self.least
        } else {
            self.greatest
        };
        if_enough(self.count, request.min_periods.max(1), value)
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.number(self.least)?;
        out.number(self.greatest)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(ExtremesAccumulator {
            count: input.varint()?,
            least: input.number()?,
            greatest: input.number()?,
        })
    }
}

/// First and last value.
#[derive(Debug, Clone, Default)]
pub(crate) struct FirstLastAccumulator {
    count: u64,
    first: u64,
    last: u64,
}

impl StatAccumulator for FirstLastAccumulator {
    type Config = ();
    type Question = WindowStat;

    #[inline]
    fn accumulate(&mut self, _: &(), entry: ConsumedEntry) {
        if !entry.is_missing {
            self.first = if self.count == 0 {
                entry.word
            } else {
                self.first
            };
            self.last = entry.word;
            self.count += 1;
        }
    }

    #[inline]
    fn output_word(
        &self,
        _: &(),
        request: &StatRequest<WindowStat>,
        output: &OutputRow<'_>,
    ) -> u64 {
        match request.question {
            _ if self.count < request.min_periods.max(1) => output.keep.missing(),
            WindowStat::First => self.first,
            _ => self.last,
        }
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.word(self.first)?;
        out.word(self.last)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(FirstLastAccumulator {
            count: input.varint()?,
            first: input.word()?,
            last: input.word()?,
        })
    }
}

/// Share of zeros.
#[derive(Debug, Clone, Default)]
pub(crate) struct ZeroShareAccumulator {
    count: u64,
    zeros: u64,
}

impl StatAccumulator for ZeroShareAccumulator {
    type Config = ();
    type Question = WindowStat;

    #[inline]
    fn accumulate(&mut self, _: &(), entry: ConsumedEntry) {
        self.count += u64::from(!entry.is_missing);
        self.zeros += u64::from(f64::from_bits(entry.word) == 0.0);
    }

    #[inline]
    fn output_word(&self, _: &(), request: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        if_enough(
            self.count,
            request.min_periods.max(1),
            self.zeros as f64 / self.count as f64,
        )
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.varint(self.zeros)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(ZeroShareAccumulator {
            count: input.varint()?,
            zeros: input.varint()?,
        })
    }
}

/// The last nonzero value.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastNonzeroAccumulator {
    count: u64,
    /// Index of its entry plus one; 0 if there is none.
    after: u64,
    time: i64,
}

impl StatAccumulator for LastNonzeroAccumulator {
    type Config = ();
    type Question = WindowStat;

    #[inline]
    fn accumulate(&mut self, _: &(), entry: ConsumedEntry) {
        if !entry.is_missing {
            self.count += 1;
            if f64::from_bits(entry.word) != 0.0 {
                (self.after, self.time) = (entry.number + 1, entry.time);
            }
        }
    }

    #[inline]
    fn output_word(
        &self,
        _: &(),
        request: &StatRequest<WindowStat>,
        output: &OutputRow<'_>,
    ) -> u64 {
        if self.after == 0 {
            return NO_NUMBER;
        }
        let distance = match request.question {
            WindowStat::SinceNonzero { unit: Some(unit) } => {
                output.row.time.wrapping_sub(self.time) as f64 / unit as f64
            }
            _ => (output.row.number + 1 - self.after) as f64,
        };
        if_enough(self.count, request.min_periods, distance)
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.varint(self.after)?;
        out.signed(self.time)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(LastNonzeroAccumulator {
            count: input.varint()?,
            after: input.varint()?,
            time: input.signed()?,
        })
    }
}
