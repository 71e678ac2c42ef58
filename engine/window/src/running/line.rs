//! Cumulative least-squares slope.

use forebay_model::{Decoder, Encoder, Result};

use super::moments::{decode_sum, encode_sum};
use super::{Accumulator, Asked, Entry, Own, enough};
use crate::Stat;
use crate::stats::Exacter;

/// Sums for a slope, of places and values relative to the first ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    count: u64,
    first_place: i64,
    first_value: f64,
    places: Exacter,
    values: Exacter,
    squares: Exacter,
    both: Exacter,
}

impl Accumulator for Line {
    /// Whether places are times rather than row numbers.
    type Config = bool;
    type Question = Stat;

    #[inline]
    fn take(&mut self, by_time: &bool, entry: Entry) {
        if entry.is_missing {
            return;
        }
        let place = if *by_time { entry.time } else { entry.number as i64 };
        let value = f64::from_bits(entry.word);
        if self.count == 0 {
            (self.first_place, self.first_value) = (place, value);
        }
        self.count += 1;
        let (x, y) = (place.wrapping_sub(self.first_place) as f64, value - self.first_value);
        self.places.add(x);
        self.values.add(y);
        self.squares.add(x * x);
        self.both.add(x * y);
    }

    fn answer(&self, _: &bool, ask: &Asked<Stat>, _: &Own<'_>) -> u64 {
        let unit = match ask.question {
            Stat::Slope { unit: Some(unit) } => unit as f64,
            _ => 1.0,
        };
        let mean = self.places.total() / self.count as f64;
        let squares = self.squares.total() - self.places.total() * mean;
        let both = self.both.total() - self.values.total() * mean;
        // Squares of equal places differ from zero by rounding errors only.
        let slope = if squares > 1e-12 * self.squares.total() { both / squares * unit } else { f64::NAN };
        enough(self.count, ask.min_periods, slope)
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.signed(self.first_place)?;
        out.number(self.first_value)?;
        [self.places, self.values, self.squares, self.both].into_iter().try_for_each(|sum| encode_sum(sum, out))
    }

    fn decode(_: &bool, input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Line {
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
