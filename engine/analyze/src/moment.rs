//! What one group of numbers comes to: counts, range and exact sums.

use forebay_model::{Decoder, Encoder, Result};

use crate::exact::{Exact, variance};

/// Counts, range, exact sum and exact sum of squares of a multiset of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) finite: u64,
    pub(crate) nans: u64,
    pub(crate) plus_infinities: u64,
    pub(crate) minus_infinities: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) sum: Exact,
    pub(crate) squares: Exact,
}

impl Default for Moment {
    fn default() -> Self {
        Moment {
            finite: 0,
            nans: 0,
            plus_infinities: 0,
            minus_infinities: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: Exact::default(),
            squares: Exact::default(),
        }
    }
}

/// A finite double as `mantissa * 2^bit`.
pub(crate) fn split(value: f64) -> (i64, i32) {
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i32 & 0x7ff;
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    (if value < 0.0 { -mantissa } else { mantissa }, exponent.max(1) - 1075)
}

impl Moment {
    /// Takes one value in.
    pub(crate) fn push(&mut self, value: f64) {
        if value.is_finite() {
            let (mantissa, bit) = split(value);
            self.finite += 1;
            self.sum.add_signed(bit, i128::from(mantissa));
            let size = u128::from(mantissa.unsigned_abs());
            self.squares.add_unsigned(2 * bit, size * size);
            self.range(value + 0.0, value + 0.0);
        } else {
            self.push_special(value);
        }
    }

    /// Takes a NaN or an infinity in.
    #[cold]
    pub(crate) fn push_special(&mut self, value: f64) {
        if value.is_nan() {
            self.nans += 1;
            return;
        }
        self.plus_infinities += u64::from(value > 0.0);
        self.minus_infinities += u64::from(value < 0.0);
        self.range(value, value);
    }

    /// Widens the range.
    pub(crate) fn range(&mut self, min: f64, max: f64) {
        self.min = self.min.min(min);
        self.max = self.max.max(max);
    }

    /// Adds another group.
    pub(crate) fn merge(&mut self, other: &Moment) {
        self.finite += other.finite;
        self.nans += other.nans;
        self.plus_infinities += other.plus_infinities;
        self.minus_infinities += other.minus_infinities;
        self.range(other.min, other.max);
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    /// Values that are not missing: neither null nor NaN.
    pub(crate) fn count(&self) -> u64 {
        self.finite + self.infinities()
    }

    pub(crate) fn infinities(&self) -> u64 {
        self.plus_infinities + self.minus_infinities
    }

    /// What infinities make of a sum in IEEE arithmetic: `None` when there are none.
    fn infinite(&self) -> Option<f64> {
        match (self.plus_infinities > 0, self.minus_infinities > 0) {
            (false, false) => None,
            (true, false) => Some(f64::INFINITY),
            (false, true) => Some(f64::NEG_INFINITY),
            (true, true) => Some(f64::NAN),
        }
    }

    /// The sum, rounded once; `None` where nothing was seen.
    pub(crate) fn total(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.infinite().unwrap_or_else(|| self.sum.to_f64()))
    }

    /// The mean, rounded once.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.infinite().unwrap_or_else(|| self.sum.divided(self.finite)))
    }

    /// The population variance (ddof 0), rounded once; NaN where an infinity was seen.
    pub(crate) fn variance(&self) -> Option<f64> {
        let finite = || variance(self.finite, &self.sum, &self.squares);
        (self.count() > 0).then(|| self.infinite().map_or_else(finite, |_| f64::NAN))
    }

    pub(crate) fn min(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.min)
    }

    pub(crate) fn max(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.max)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.sum.heap_bytes() + self.squares.heap_bytes()
    }

    pub(crate) fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        for count in [self.finite, self.nans, self.plus_infinities, self.minus_infinities] {
            out.varint(count)?;
        }
        out.f64(self.min)?;
        out.f64(self.max)?;
        self.sum.encode(out)?;
        self.squares.encode(out)
    }

    pub(crate) fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Moment {
            finite: input.varint()?,
            nans: input.varint()?,
            plus_infinities: input.varint()?,
            minus_infinities: input.varint()?,
            min: input.f64()?,
            max: input.f64()?,
            sum: Exact::decode(input)?,
            squares: Exact::decode(input)?,
        })
    }
}
