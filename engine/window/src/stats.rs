//! Statistics computed from counts, sums and central moments.

use crate::WindowStat;

/// A statistic of `count` values with this `sum`; `m2`, `m3` and `m4` are the sums of powers of their deviations
/// from the mean. NaN if undefined.
#[inline(always)]
pub(crate) fn from_moments(stat: WindowStat, count: f64, sum: f64, [m2, m3, m4]: [f64; 3]) -> f64 {
    let variance = |ddof: u8| {
        let rest = count - f64::from(ddof);
        if rest > 0.0 { m2 / rest } else { f64::NAN }
    };
    match stat {
        WindowStat::Count => count,
        WindowStat::Sum => sum,
        WindowStat::Mean => sum / count,
        WindowStat::Var { ddof } => variance(ddof),
        WindowStat::Std { ddof } => variance(ddof).sqrt(),
        WindowStat::Skew if count < 3.0 => f64::NAN,
        WindowStat::Skew if m2 == 0.0 => 0.0,
        WindowStat::Skew => {
            let spread = m2 / count;
            (count * (count - 1.0)).sqrt() / (count - 2.0) * (m3 / count) / (spread * spread.sqrt())
        }
        WindowStat::Kurtosis if count < 4.0 => f64::NAN,
        WindowStat::Kurtosis if m2 == 0.0 => -3.0,
        WindowStat::Kurtosis => {
            let spread = m2 / count;
            let excess = (count + 1.0) * (m4 / count) / (spread * spread) - 3.0 * (count - 1.0);
            (count - 1.0) / ((count - 2.0) * (count - 3.0)) * excess
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
