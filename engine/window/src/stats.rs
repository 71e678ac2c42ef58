//! Statistics computed from counts, sums and central moments.

use crate::WindowStat;
use crate::special_words::defined;

/// A statistic of `count` values with this `sum`; `m2`, `m3` and `m4` are the sums of powers of their deviations
/// from the mean, measured in `unit`, a power of two. The NaN of a missing value for too few values, and that of
/// [`defined`] for enough values without a result.
#[inline(always)]
pub(crate) fn from_moments(
    stat: WindowStat,
    count: f64,
    sum: f64,
    [m2, m3, m4]: [f64; 3],
    unit: f64,
) -> f64 {
    let degrees_of_freedom = |ddof: u8| count - f64::from(ddof);
    match stat {
        WindowStat::Count => count,
        WindowStat::Sum => defined(sum),
        WindowStat::Mean if count > 0.0 => defined(sum / count),
        WindowStat::Var { ddof } if degrees_of_freedom(ddof) > 0.0 => {
            defined(m2 / degrees_of_freedom(ddof) * unit * unit)
        }
        WindowStat::Std { ddof } if degrees_of_freedom(ddof) > 0.0 => {
            defined((m2 / degrees_of_freedom(ddof)).sqrt() * unit)
        }
        WindowStat::Skew if count < 3.0 => f64::NAN,
        WindowStat::Skew if m2 == 0.0 => 0.0,
        WindowStat::Skew => {
            let spread = m2 / count;
            let skew = (count * (count - 1.0)).sqrt() / (count - 2.0) * (m3 / count)
                / (spread * spread.sqrt());
            defined(skew)
        }
        WindowStat::Kurtosis if count < 4.0 => f64::NAN,
        WindowStat::Kurtosis if m2 == 0.0 => -3.0,
        WindowStat::Kurtosis => {
            let spread = m2 / count;
            let excess = (count + 1.0) * (m4 / count) / (spread * spread) - 3.0 * (count - 1.0);
            defined((count - 1.0) / ((count - 2.0) * (count - 3.0)) * excess)
        }
        _ => f64::NAN,
    }
}

/// Highest power of deviations that a statistic needs; 0 if it needs neither count nor sum.
pub(crate) fn moment_order(stat: WindowStat) -> u8 {
    match stat {
        WindowStat::Count | WindowStat::Sum | WindowStat::Mean => 1,
        WindowStat::Var { .. } | WindowStat::Std { .. } => 2,
        WindowStat::Skew | WindowStat::Kurtosis => 4,
        _ => 0,
    }
}

/// Powers of two between units of distances. Fourth powers of distances that are measured in their unit are far from
/// both ends of the doubles.
const UNIT_BITS: i32 = 300;

/// The farthest unit in either direction.
const UNIT_STEPS_MAX: i32 = 3;

/// A power of two in which distances are measured before they are squared: 1, unless powers of theirs leave the
/// doubles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DistanceUnit {
    steps: i8,
}

impl DistanceUnit {
    /// The unit of a distance.
    #[inline]
    pub fn of(distance: f64) -> DistanceUnit {
        DistanceUnit::of_exponent(exponent(distance))
    }

    /// The unit of distances of about `2^exponent`.
    #[inline]
    pub fn of_exponent(exponent: i32) -> DistanceUnit {
        let steps = (exponent + UNIT_BITS / 2).div_euclid(UNIT_BITS);
        DistanceUnit {
            steps: steps.clamp(-UNIT_STEPS_MAX, UNIT_STEPS_MAX) as i8,
        }
    }

    /// The unit by its number, as states have it.
    pub fn from_steps(steps: i64) -> Option<DistanceUnit> {
        let steps = i8::try_from(steps).ok()?;
        let is_known = i32::from(steps).abs() <= UNIT_STEPS_MAX;
        is_known.then_some(DistanceUnit { steps })
    }

    /// Number of the unit; 0 is that of 1.
    pub fn steps(self) -> i64 {
        i64::from(self.steps)
    }

    /// The power of two.
    #[inline]
    pub fn value(self) -> f64 {
        power_of_two(self.bits())
    }

    /// The exponent of the power of two.
    #[inline]
    pub fn bits(self) -> i32 {
        UNIT_BITS * i32::from(self.steps)
    }

    /// The distance of a value from another one, in this unit. The difference of two doubles may be none.
    #[inline]
    pub fn distance(self, value: f64, from: f64) -> f64 {
        if self.steps == 0 {
            return value - from;
        }
        let factor = power_of_two(-self.bits());
        value * factor - from * factor
    }

    /// The number by which distances in another unit are multiplied to be in this one.
    pub fn factor_from(self, other: DistanceUnit) -> f64 {
        other.value() / self.value()
    }
}

/// `2^bits`, for exponents of normal doubles.
#[inline]
fn power_of_two(bits: i32) -> f64 {
    f64::from_bits(((1023 + bits) as u64) << 52)
}

/// The exponent of a double; that of a subnormal number is that of the smallest normal one, less 1.
#[inline]
pub(crate) fn exponent(value: f64) -> i32 {
    ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// Compensated sum (Neumaier 1974).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NeumaierSum {
    pub high: f64,
    pub low: f64,
}

impl NeumaierSum {
    #[inline]
    pub fn add(&mut self, value: f64) {
        let sum = self.high + value;
        let rounded = if self.high.abs() >= value.abs() {
            (self.high - sum) + value
        } else {
            (value - sum) + self.high
        };
        self.high = sum;
        self.low += rounded;
    }

    /// Multiplies the sum by a power of two.
    pub fn scale(&mut self, factor: f64) {
        self.high *= factor;
        self.low *= factor;
    }

    /// Multiplies the sum by a power of a factor, which may itself be no double.
    pub fn scale_power(&mut self, factor: f64, power: u32) {
        for _ in 0..power {
            self.scale(factor);
        }
    }

    /// The sum, rounded once; infinities follow IEEE arithmetic.
    #[inline]
    pub fn total(&self) -> f64 {
        if self.high.is_finite() {
            self.high + self.low
        } else {
            self.high
        }
    }
}
