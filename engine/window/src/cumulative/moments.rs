//! Cumulative counts, sums and central moments.

use forebay_model::{Result, StateDecoder, StateEncoder};

use super::{ConsumedEntry, OutputRow, StatAccumulator, StatRequest, if_enough};
use crate::WindowStat;
use crate::state_codec::corrupt;
use crate::stats::{DistanceUnit, NeumaierSum, from_moments};

/// The highest bit of a count in a state: the unit of distances follows.
const HAS_UNIT: u64 = 1 << 63;

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
    fn output_word(&self, _: &(), request: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let value = from_moments(
            request.question,
            self.count as f64,
            self.sum.total(),
            [f64::NAN; 3],
            1.0,
        );
        if_enough(self.count, request.min_periods, value)
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
/// is small. Deviations are measured in the unit of the largest one.
#[derive(Debug, Clone, Default)]
pub(crate) struct VarianceAccumulator {
    count: u64,
    first: f64,
    unit: DistanceUnit,
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
        if distance != 0.0 {
            let unit = DistanceUnit::of(distance);
            // The first distance sets the unit; later ones make it larger.
            if unit > self.unit || (unit < self.unit && self.squares.high == 0.0) {
                self.measure_in(unit);
            }
        }
        let distance = self.unit.distance(value, self.first);
        self.ones.add(distance);
        self.squares.add(distance * distance);
        distance
    }

    #[cold]
    fn measure_in(&mut self, unit: DistanceUnit) {
        let factor = unit.factor_from(self.unit);
        self.ones.scale(factor);
        self.squares.scale_power(factor, 2);
        self.unit = unit;
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

    fn output_word(&self, _: &(), request: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let value = from_moments(
            request.question,
            self.count as f64,
            f64::NAN,
            [self.m2(), f64::NAN, f64::NAN],
            self.unit.value(),
        );
        if_enough(self.count, request.min_periods, value)
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        encode_count(self.count, self.unit, out)?;
        out.number(self.first)?;
        encode_sum(self.ones, out)?;
        encode_sum(self.squares, out)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        let (count, unit) = decode_count(input)?;
        let first = input.number()?;
        Ok(VarianceAccumulator {
            count,
            first,
            unit,
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
        let ones = self.spread.ones.total();
        let squares = self.spread.squares.total();
        let cubes = self.cubes.total();
        let fourths = self.fourths.total();
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
            let unit = self.spread.unit;
            let distance = self.spread.push(f64::from_bits(entry.word));
            if self.spread.unit != unit {
                let factor = self.spread.unit.factor_from(unit);
                self.cubes.scale_power(factor, 3);
                self.fourths.scale_power(factor, 4);
            }
            self.cubes.add(distance * distance * distance);
            self.fourths
                .add(distance * distance * (distance * distance));
        }
    }

    fn output_word(&self, _: &(), request: &StatRequest<WindowStat>, _: &OutputRow<'_>) -> u64 {
        let count = self.spread.count;
        if_enough(
            count,
            request.min_periods,
            from_moments(
                request.question,
                count as f64,
                f64::NAN,
                self.central(),
                self.spread.unit.value(),
            ),
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

/// Writes a count and the unit of distances; the unit 1 takes no bytes.
pub(super) fn encode_count(
    count: u64,
    unit: DistanceUnit,
    out: &mut StateEncoder<'_>,
) -> Result<()> {
    if unit == DistanceUnit::default() {
        return out.varint(count);
    }
    out.varint(count | HAS_UNIT)?;
    out.signed(unit.steps())
}

/// Reads what [`encode_count`] wrote.
pub(super) fn decode_count(input: &mut StateDecoder<'_>) -> Result<(u64, DistanceUnit)> {
    let count = input.varint()?;
    if count & HAS_UNIT == 0 {
        return Ok((count, DistanceUnit::default()));
    }
    let unit = DistanceUnit::from_steps(input.signed()?)
        .ok_or_else(|| corrupt("an unknown unit of distances"))?;
    Ok((count & !HAS_UNIT, unit))
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
