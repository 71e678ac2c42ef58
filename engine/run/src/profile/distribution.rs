//! The distribution of a numeric column, from its quantiles.

/// Quantiles at equal distances of probability, from the least value to the greatest.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuantileTable<'a>(pub &'a [f64]);

impl QuantileTable<'_> {
    /// The share of values below `x`, interpolated between quantiles.
    pub fn share_below(&self, x: f64) -> f64 {
        self.share(self.0.partition_point(|quantile| *quantile < x), x)
    }

    /// The share of values at or below `x`, interpolated between quantiles.
    pub fn share_up_to(&self, x: f64) -> f64 {
        self.share(self.0.partition_point(|quantile| *quantile <= x), x)
    }

    /// Share of values up to `x`, which is between the quantiles `place - 1` and `place`.
    fn share(&self, position: usize, x: f64) -> f64 {
        let parts = (self.0.len().max(2) - 1) as f64;
        if position == 0 {
            return 0.0;
        }
        let below = self.0[position - 1];
        let Some(&above) = self.0.get(position) else {
            return 1.0;
        };
        let width = above - below;
        let part = if width > 0.0 && width.is_finite() {
            ((x - below) / width).clamp(0.0, 1.0)
        } else {
            0.0
        };
        ((position - 1) as f64 + part) / parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_jump_where_values_repeat() {
        // Half of the values are 0, the others lie between 0 and 10.
        let table = QuantileTable(&[0.0, 0.0, 0.0, 5.0, 10.0]);
        assert_eq!((table.share_below(0.0), table.share_up_to(0.0)), (0.0, 0.5));
        assert_eq!(
            (table.share_below(2.5), table.share_up_to(2.5)),
            (0.625, 0.625)
        );
        assert_eq!(
            (
                table.share_below(10.0),
                table.share_up_to(10.0),
                table.share_below(11.0)
            ),
            (1.0, 1.0, 1.0)
        );
        assert_eq!(table.share_up_to(-1.0), 0.0);
        let one = QuantileTable(&[3.0, 3.0]);
        assert_eq!((one.share_below(3.0), one.share_up_to(3.0)), (0.0, 1.0));
    }
}
