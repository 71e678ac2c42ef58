//! Exponentially weighted means and variances.

use forebay_model::{Result, StateDecoder, StateEncoder};

use super::moments::{decode_count, encode_count};
use super::{ConsumedEntry, OutputRow, StatAccumulator, StatRequest, if_enough};
use crate::special_words::{NO_NUMBER, defined};
use crate::stats::{DistanceUnit, exponent};
use crate::{EwmDecay, EwmStat};

/// Parameters of the weights.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EwmWeights {
    pub decay: EwmDecay,
    pub adjust: bool,
    pub ignore_na: bool,
}

impl EwmWeights {
    /// Factor by which a weight decays over one more row, `ticks` later.
    #[inline]
    fn factor(&self, ticks: i64) -> f64 {
        match self.decay {
            EwmDecay::Alpha(alpha) => 1.0 - alpha,
            EwmDecay::HalfLife(half_life) => (-(ticks as f64) / half_life).exp2(),
        }
    }
}

/// State of the recursion of pandas' `ewm`.
#[derive(Debug, Clone, Default)]
pub(crate) struct EwmAccumulator {
    count: u64,
    mean: f64,
    /// The biased variance, measured in `unit`.
    spread: f64,
    /// The unit of deviations: that of the largest one, or of the spread.
    unit: DistanceUnit,
    /// Weight of all past values relative to the next value.
    weight: f64,
    /// Sums of weights and of squared weights, for the variance.
    weights: f64,
    squares: f64,
    /// The time of the last entry.
    last: i64,
}

impl EwmAccumulator {
    /// Measures the spread in the unit of the largest of itself and two deviations.
    #[inline]
    fn measure(&mut self, deviations: [f64; 2]) {
        let mut largest = i32::MIN;
        if self.spread != 0.0 {
            largest = self.unit.bits() + exponent(self.spread).div_euclid(2);
        }
        for deviation in deviations {
            if deviation != 0.0 {
                largest = largest.max(exponent(deviation));
            }
        }
        if largest == i32::MIN {
            return;
        }
        let unit = DistanceUnit::of_exponent(largest);
        if unit == self.unit {
            return;
        }
        if self.spread != 0.0 {
            // One factor after the other: their product may be no double.
            let factor = unit.factor_from(self.unit);
            self.spread *= factor;
            self.spread *= factor;
        }
        self.unit = unit;
    }
}

impl StatAccumulator for EwmAccumulator {
    type Config = EwmWeights;
    type Question = EwmStat;

    fn accumulate(&mut self, fading: &EwmWeights, entry: ConsumedEntry) {
        let ticks = entry.time.saturating_sub(self.last);
        self.last = entry.time;
        let value = f64::from_bits(entry.word);
        if self.count == 0 {
            if !entry.is_missing {
                (self.count, self.mean) = (1, value);
                (self.weight, self.weights, self.squares) = (1.0, 1.0, 1.0);
            }
            return;
        }
        if entry.is_missing && fading.ignore_na {
            return;
        }
        let factor = fading.factor(ticks);
        self.weight *= factor;
        self.weights *= factor;
        self.squares *= factor * factor;
        if entry.is_missing {
            return;
        }
        self.count += 1;
        let new = match (fading.adjust, fading.decay) {
            (true, _) => 1.0,
            (false, EwmDecay::Alpha(alpha)) => alpha,
            // The weight lost by the past values.
            (false, EwmDecay::HalfLife(_)) => 1.0 - self.weight,
        };
        let old = self.weight;
        let earlier_mean = self.mean;
        // Equal values leave the mean exactly unchanged.
        if earlier_mean != value {
            self.mean = (old * earlier_mean + new * value) / (old + new);
        }
        self.measure([earlier_mean - self.mean, value - self.mean]);
        let below = self.unit.distance(earlier_mean, self.mean);
        let above = self.unit.distance(value, self.mean);
        self.spread = (old * (self.spread + below * below) + new * (above * above)) / (old + new);
        self.weights += new;
        self.squares += new * new;
        self.weight += new;
        if !fading.adjust {
            self.weights /= self.weight;
            self.squares /= self.weight * self.weight;
            self.weight = 1.0;
        }
    }

    fn output_word(
        &self,
        _: &EwmWeights,
        request: &StatRequest<EwmStat>,
        _: &OutputRow<'_>,
    ) -> u64 {
        let whole = self.weights * self.weights;
        let weight_remainder = whole - self.squares;
        // A single value has no variance, even if rounding gives its weight a remainder.
        let has_variance = self.count > 1 && weight_remainder > 0.0;
        let unbiased = whole / weight_remainder * self.spread;
        let value = match request.question {
            EwmStat::Mean => self.mean,
            EwmStat::Var | EwmStat::Std if !has_variance => return NO_NUMBER,
            EwmStat::Var => unbiased * self.unit.value() * self.unit.value(),
            EwmStat::Std => unbiased.sqrt() * self.unit.value(),
        };
        if_enough(self.count, request.min_periods.max(1), defined(value))
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        encode_count(self.count, self.unit, out)?;
        out.signed(self.last)?;
        let doubles = [
            self.mean,
            self.spread,
            self.weight,
            self.weights,
            self.squares,
        ];
        doubles.into_iter().try_for_each(|value| out.number(value))
    }

    fn decode(_: &EwmWeights, input: &mut StateDecoder<'_>) -> Result<Self> {
        let (count, unit) = decode_count(input)?;
        Ok(EwmAccumulator {
            count,
            last: input.signed()?,
            mean: input.number()?,
            spread: input.number()?,
            unit,
            weight: input.number()?,
            weights: input.number()?,
            squares: input.number()?,
        })
    }
}
