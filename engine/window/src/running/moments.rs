//! Cumulative counts, sums and central moments.

use forebay_model::{Decoder, Encoder, Result};

use super::{Accumulator, Asked, Entry, Own, enough};
use crate::Stat;
use crate::stats::{Exacter, of_moments};

/// Count, sum and mean.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    count: u64,
    sum: Exacter,
}

impl Accumulator for Sums {
    type Config = ();
    type Question = Stat;

    #[inline]
    fn take(&mut self, _: &(), entry: Entry) {
        if !entry.is_missing {
            self.count += 1;
            self.sum.add(f64::from_bits(entry.word));
        }
    }

    #[inline]
    fn answer(&self, _: &(), ask: &Asked<Stat>, _: &Own<'_>) -> u64 {
        let value = of_moments(ask.question, self.count as f64, self.sum.total(), [f64::NAN; 3]);
        enough(self.count, ask.min_periods, value)
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        encode_sum(self.sum, out)
    }

    fn decode(_: &(), input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Sums { count: input.varint()?, sum: decode_sum(input)? })
    }
}

/// Variance, from power sums of the deviations from the first value. Since that value is one of them, cancellation
/// is small.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spread {
    count: u64,
    first: f64,
    ones: Exacter,
    squares: Exacter,
}

impl Spread {
    #[inline]
    fn push(&mut self, value: f64) -> f64 {
        if self.count == 0 {
            self.first = value;
        }
        self.count += 1;
        let distance = value - self.first;
        self.ones.add(distance);
        self.squares.add(distance * distance);
        distance
    }

    fn m2(&self) -> f64 {
        // Infinities have no variance.
        if !self.squares.high.is_finite() {
            return f64::NAN;
        }
        let ones = self.ones.total();
        (self.squares.total() - ones * ones / self.count as f64).max(0.0)
    }
}

impl Accumulator for Spread {
    type Config = ();
    type Question = Stat;

    #[inline]
    fn take(&mut self, _: &(), entry: Entry) {
        if !entry.is_missing {
            self.push(f64::from_bits(entry.word));
        }
    }

    fn answer(&self, _: &(), ask: &Asked<Stat>, _: &Own<'_>) -> u64 {
        let value = of_moments(ask.question, self.count as f64, f64::NAN, [self.m2(), f64::NAN, f64::NAN]);
        enough(self.count, ask.min_periods, value)
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.number(self.first)?;
        encode_sum(self.ones, out)?;
        encode_sum(self.squares, out)
    }

    fn decode(_: &(), input: &mut Decoder<'_>) -> Result<Self> {
        let (count, first) = (input.varint()?, input.number()?);
        Ok(Spread { count, first, ones: decode_sum(input)?, squares: decode_sum(input)? })
    }
}

/// Skewness and kurtosis.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    spread: Spread,
    cubes: Exacter,
    fourths: Exacter,
}

impl Shape {
    fn central(&self) -> [f64; 3] {
        if !self.spread.squares.high.is_finite() {
            return [f64::NAN; 3];
        }
        let count = self.spread.count as f64;
        let (ones, squares) = (self.spread.ones.total(), self.spread.squares.total());
        let (cubes, fourths) = (self.cubes.total(), self.fourths.total());
        let mean = ones / count;
        [
            self.spread.m2(),
            cubes - 3.0 * mean * squares + 2.0 * mean * mean * ones,
            fourths - 4.0 * mean * cubes + 6.0 * mean * mean * squares - 3.0 * mean * mean * mean * ones,
        ]
    }
}

impl Accumulator for Shape {
    type Config = ();
    type Question = Stat;

    #[inline]
    fn take(&mut self, _: &(), entry: Entry) {
        if !entry.is_missing {
            let distance = self.spread.push(f64::from_bits(entry.word));
            self.cubes.add(distance * distance * distance);
            self.fourths.add(distance * distance * (distance * distance));
        }
    }

    fn answer(&self, _: &(), ask: &Asked<Stat>, _: &Own<'_>) -> u64 {
        let count = self.spread.count;
        enough(count, ask.min_periods, of_moments(ask.question, count as f64, f64::NAN, self.central()))
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        self.spread.encode(out)?;
        encode_sum(self.cubes, out)?;
        encode_sum(self.fourths, out)
    }

    fn decode(_: &(), input: &mut Decoder<'_>) -> Result<Self> {
        let spread = Spread::decode(&(), input)?;
        Ok(Shape { spread, cubes: decode_sum(input)?, fourths: decode_sum(input)? })
    }
}

pub(super) fn encode_sum(sum: Exacter, out: &mut Encoder<'_>) -> Result<()> {
    out.number(sum.high)?;
    out.number(sum.low)
}

pub(super) fn decode_sum(input: &mut Decoder<'_>) -> Result<Exacter> {
    Ok(Exacter { high: input.number()?, low: input.number()? })
}
