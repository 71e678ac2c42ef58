//! Bins of the errors of a forecast, the same for all folds.

/// Root mean squared errors between zero and the ends of the bins.
const ERRORS_TO_END: f64 = 3.0;

/// Rounding that does not move the ends.
const ROUNDING: f64 = 1e-9;

/// Bins of equal width around zero. The first and the last one have the errors beyond their ends, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ErrorBins {
    /// The end of the last bin; the first begins as far below zero.
    limit: f64,
}

impl ErrorBins {
    /// Number of bins.
    pub const COUNT: usize = 40;

    /// Bins for errors of this size, with ends of two digits; `None` if there are no such bins, as for errors of zero.
    pub fn of(rmse: f64) -> Option<ErrorBins> {
        let size = ERRORS_TO_END * rmse;
        if !size.is_finite() || size <= 0.0 {
            return None;
        }
        let decimals = 1 - size.log10().floor() as i32;
        // Division by a power of ten has a result without a trail of digits.
        let limit = if decimals >= 0 {
            let power = 10f64.powi(decimals);
            (size * power - ROUNDING).ceil() / power
        } else {
            let power = 10f64.powi(-decimals);
            (size / power - ROUNDING).ceil() * power
        };
        (limit.is_finite() && limit > 0.0).then_some(ErrorBins { limit })
    }

    /// The ends of all bins, one more than there are bins.
    pub fn ends(self) -> Vec<f64> {
        let half = (Self::COUNT / 2) as f64;
        let mut ends = Vec::with_capacity(Self::COUNT + 1);
        for number in 0..=Self::COUNT {
            ends.push(self.limit * ((number as f64 - half) / half));
        }
        ends
    }

    /// SQL expression with the number of the bin of an error, a double. An error of zero is in the first bin above zero,
    /// whatever the width.
    pub fn sql(self, error: &str) -> String {
        let low = double_sql(-self.limit);
        let high = double_sql(self.limit);
        let width = double_sql(2.0 * self.limit / Self::COUNT as f64);
        let last = double_sql((Self::COUNT - 1) as f64);
        let first = double_sql(0.0);
        let half = double_sql((Self::COUNT / 2) as f64);
        format!(
            "CASE WHEN {error} < {low} THEN {first} WHEN {error} >= {high} THEN {last} \
             ELSE floor({error} / {width}) + {half} END"
        )
    }

    /// A number of that expression as an index: rounding may put an error close to the first or the last end one bin too
    /// far.
    pub fn number(bin: f64) -> usize {
        (bin.max(0.0) as usize).min(Self::COUNT - 1)
    }
}

/// A number as a double in SQL.
fn double_sql(number: f64) -> String {
    format!("CAST('{number:e}' AS DOUBLE)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_three_errors_away_in_two_digits() {
        for (rmse, limit) in [
            (1.0, 3.0),
            (0.011, 0.033),
            (4.2, 13.0),
            (123.4, 380.0),
            (2.0e6, 6.0e6),
        ] {
            let ends = ErrorBins::of(rmse).unwrap().ends();
            assert_eq!(ends.len(), ErrorBins::COUNT + 1);
            assert_eq!((ends[0], ends[20], ends[40]), (-limit, 0.0, limit));
        }
        for rmse in [0.0, f64::NAN, f64::INFINITY, 1e-320] {
            assert_eq!(ErrorBins::of(rmse), None);
        }
    }

    #[test]
    fn numbers_of_bins_are_indices() {
        for (bin, index) in [(0.0, 0), (-1.0, 0), (39.0, 39), (40.0, 39), (7.0, 7)] {
            assert_eq!(ErrorBins::number(bin), index);
        }
        let sql = ErrorBins::of(1.0).unwrap().sql("e");
        assert_eq!(
            sql,
            "CASE WHEN e < CAST('-3e0' AS DOUBLE) THEN CAST('0e0' AS DOUBLE) WHEN e >= \
             CAST('3e0' AS DOUBLE) THEN CAST('3.9e1' AS DOUBLE) ELSE floor(e / CAST('1.5e-1' AS \
             DOUBLE)) + CAST('2e1' AS DOUBLE) END"
        );
    }
}
