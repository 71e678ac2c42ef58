//! Cumulative least-squares slope.

use forebay_model::{Result, StateDecoder, StateEncoder};

use super::moments::{decode_sum, encode_sum};
use super::{ConsumedEntry, OutputRow, StatAccumulator, StatRequest, if_enough};
use crate::WindowStat;
use crate::special_words::defined;
use crate::stats::NeumaierSum;

/// Sums for a slope, of places and values relative to the first ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlopeAccumulator {
    count: u64,
    first_place: i64,
    first_value: f64,
    places: NeumaierSum,
    values: NeumaierSum,
    squares: NeumaierSum,
    both: NeumaierSum,
}

impl StatAccumulator for SlopeAccumulator {
    /// True if positions are times rather than row numbers.
    type Config = bool;
    type Question = WindowStat;

    #[inline]
    fn accumulate(&mut self, by_time: &bool, entry: ConsumedEntry) {
        if entry.is_missing {
            return;
        }
        let position = if *by_time {
            entry.time
        } else {
            entry.number as i64
        };
        let value = f64::from_bits(entry.word);
        if self.count == 0 {
            (self.first_place, self.first_value) = (position, value);
        }
        self.count += 1;
        let x = position.wrapping_sub(self.first_place) as f64;
        let y = value - self.first_value;
        self.places.add(x);
        self.values.add(y);
        self.squares.add(x * x);
        self.both.add(x * y);
    }

    fn output_word(&self, _: &bool, request: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let unit = match request.question {
            WindowStat::Slope { unit: Some(unit) } => unit as f64,
            _ => 1.0,
        };
        let mean = self.places.total() / self.count as f64;
        let squares = self.squares.total() - self.places.total() * mean;
        let covariance = self.both.total() - self.values.total() * mean;
        // Squares of equal places differ from zero by rounding errors only.
        let slope = if squares > 1e-12 * self.squares.total() {
            defined(covariance / squares * unit)
        } else {
            f64::NAN
        };
        if_enough(self.count, request.min_periods, slope)
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.signed(self.first_place)?;
        out.number(self.first_value)?;
        [self.places, self.values, self.squares, self.both]
            .into_iter()
            .try_for_each(|sum| encode_sum(sum, out))
    }

    fn decode(_: &bool, input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(SlopeAccumulator {
            count: input.varint()?,
            first_place: input.signed()?,
            first_value: input.number()?,
            places: decode_sum(input)?,
            values: decode_sum(input)?,
            squares: decode_sum(input)?,
            both: decode_sum(input)?,
        })
    }
}
