//! Cumulative counts, sums and central moments.

use forebay_model::{Result, StateDecoder, StateEncoder};

use super::{ConsumedEntry, OutputRow, StatAccumulator, StatRequest, if_enough};
use crate::WindowStat;
use crate::stats::{NeumaierSum, from_moments};

/// Count, sum and mean.
#[derive(Debug, Clone, Default)]
pub(crate) struct SumAccumulator {
    count: u64,
    sum: NeumaierSum,
}

impl StatAccumulator for SumAccumulator {
    type Config = ();
    type Question = WindowStat;

    #[inline]
    fn accumulate(&mut self, _: &(), entry: ConsumedEntry) {
        if !entry.is_missing {
            self.count += 1;
            self.sum.add(f64::from_bits(entry.word));
        }
    }

    #[inline]
    fn output_word(&self, _: &(), ask: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let value = from_moments(
            ask.question,
            self.count as f64,
            self.sum.total(),
            [f64::NAN; 3],
        );
        if_enough(self.count, ask.min_periods, value)
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        encode_sum(self.sum, out)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(SumAccumulator {
            count: input.varint()?,
            sum: decode_sum(input)?,
        })
    }
}

/// Variance, from power sums of the deviations from the first value. Since that value is one of them, cancellation
/// is small.
#[derive(Debug, Clone, Default)]
pub(crate) struct VarianceAccumulator {
    count: u64,
    first: f64,
    ones: NeumaierSum,
    squares: NeumaierSum,
}

impl VarianceAccumulator {
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

impl StatAccumulator for VarianceAccumulator {
    type Config = ();
    type Question = WindowStat;

    #[inline]
    fn accumulate(&mut self, _: &(), entry: ConsumedEntry) {
        if !entry.is_missing {
            self.push(f64::from_bits(entry.word));
        }
    }

    fn output_word(&self, _: &(), ask: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let value = from_moments(
            ask.question,
            self.count as f64,
            f64::NAN,
            [self.m2(), f64::NAN, f64::NAN],
        );
        if_enough(self.count, ask.min_periods, value)
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.number(self.first)?;
        encode_sum(self.ones, out)?;
        encode_sum(self.squares, out)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        let (count, first) = (input.varint()?, input.number()?);
        Ok(VarianceAccumulator {
            count,
            first,
            ones: decode_sum(input)?,
            squares: decode_sum(input)?,
        })
    }
}

/// Skewness and kurtosis.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShapeAccumulator {
    spread: VarianceAccumulator,
    cubes: NeumaierSum,
    fourths: NeumaierSum,
}

impl ShapeAccumulator {
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
            fourths - 4.0 * mean * cubes + 6.0 * mean * mean * squares
                - 3.0 * mean * mean * mean * ones,
        ]
    }
}

impl StatAccumulator for ShapeAccumulator {
    type Config = ();
    type Question = WindowStat;

    #[inline]
    fn accumulate(&mut self, _: &(), entry: ConsumedEntry) {
        if !entry.is_missing {
            let distance = self.spread.push(f64::from_bits(entry.word));
            self.cubes.add(distance * distance * distance);
            self.fourths
                .add(distance * distance * (distance * distance));
        }
    }

    fn output_word(&self, _: &(), ask: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let count = self.spread.count;
        if_enough(
            count,
            ask.min_periods,
            from_moments(ask.question, count as f64, f64::NAN, self.central()),
        )
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        self.spread.encode(out)?;
        encode_sum(self.cubes, out)?;
        encode_sum(self.fourths, out)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        let spread = VarianceAccumulator::decode(&(), input)?;
        Ok(ShapeAccumulator {
            spread,
            cubes: decode_sum(input)?,
            fourths: decode_sum(input)?,
        })
    }
}

pub(super) fn encode_sum(sum: NeumaierSum, out: &mut StateEncoder<'_>) -> Result<()> {
    out.number(sum.high)?;
    out.number(sum.low)
}

pub(super) fn decode_sum(input: &mut StateDecoder<'_>) -> Result<NeumaierSum> {
    Ok(NeumaierSum {
        high: input.number()?,
        low: input.number()?,
    })
}
