//! Exponentially weighted means and variances.

use forebay_model::{Decoder, Encoder, Result};

use super::{Accumulator, Asked, Entry, Own, enough};
use crate::{Decay, EwmStat};

/// Parameters of the weights.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fading {
    pub decay: Decay,
    pub adjust: bool,
    pub ignore_na: bool,
}

impl Fading {
    /// Factor by which a weight decays over one more row, `ticks` later.
    #[inline]
    fn factor(&self, ticks: i64) -> f64 {
        match self.decay {
            Decay::Alpha(alpha) => 1.0 - alpha,
            Decay::HalfLife(half_life) => (-(ticks as f64) / half_life).exp2(),
        }
    }
}

/// State of the recursion of pandas' `ewm`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ewm {
    count: u64,
    mean: f64,
    /// The biased variance.
    spread: f64,
    /// Weight of all past values relative to the next value.
    weight: f64,
    /// Sums of weights and of squared weights, for the variance.
    weights: f64,
    squares: f64,
    /// The time of the last entry.
    last: i64,
}

impl Accumulator for Ewm {
    type Config = Fading;
    type Question = EwmStat;

    fn take(&mut self, fading: &Fading, entry: Entry) {
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
            (false, Decay::Alpha(alpha)) => alpha,
            // The weight lost by the past values.
            (false, Decay::HalfLife(_)) => 1.0 - self.weight,
        };
        let (old, before) = (self.weight, self.mean);
        // Equal values leave the mean exactly unchanged.
        if before != value {
            self.mean = (old * before + new * value) / (old + new);
        }
        let (below, above) = (before - self.mean, value - self.mean);
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

    fn answer(&self, _: &Fading, ask: &Asked<EwmStat>, _: &Own<'_>) -> u64 {
        let unbiased = || {
            let whole = self.weights * self.weights;
            let rest = whole - self.squares;
            // A single value has no variance, whatever rounding does to its weight.
            if self.count > 1 && rest > 0.0 { whole / rest * self.spread } else { f64::NAN }
        };
        let value = match ask.question {
            EwmStat::Mean => self.mean,
            EwmStat::Var => unbiased(),
            EwmStat::Std => unbiased().sqrt(),
        };
        enough(self.count, ask.min_periods.max(1), value)
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.signed(self.last)?;
        let doubles = [self.mean, self.spread, self.weight, self.weights, self.squares];
        doubles.into_iter().try_for_each(|value| out.number(value))
    }

    fn decode(_: &Fading, input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Ewm {
            count: input.varint()?,
            last: input.signed()?,
            mean: input.number()?,
            spread: input.number()?,
            weight: input.number()?,
            weights: input.number()?,
            squares: input.number()?,
        })
    }
}
