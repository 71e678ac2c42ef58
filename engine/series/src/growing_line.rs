//! A line of least squares through values that come one by one.

/// The line through values at 1, 2, 3 and so on, as far as they have come (Fiorucci et al. 2016, section 4).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrowingLine {
    /// Number of values.
    pub count: f64,
    /// Mean of the values.
    pub mean: f64,
    /// Change with each step.
    pub slope: f64,
}

impl GrowingLine {
    /// The line before the first value.
    pub const EMPTY: GrowingLine = GrowingLine {
        count: 0.0,
        mean: 0.0,
        slope: 0.0,
    };

    /// Adds the next value.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        if self.count > 1.0 {
            let change = 6.0 * (value - self.mean) / self.count;
            self.slope = ((self.count - 2.0) * self.slope + change) / (self.count + 1.0);
        }
        self.mean += (value - self.mean) / self.count;
    }

    /// The value of the line at zero.
    fn intercept(&self) -> f64 {
        self.mean - (self.count + 1.0) / 2.0 * self.slope
    }

    /// Part of the line in the forecast of the next value, where `decay` is what smoothing with `alpha` leaves of the
    /// first level.
    pub fn drift(&self, alpha: f64, decay: f64) -> f64 {
        decay * self.intercept() + (1.0 - decay * (1.0 - alpha)) / alpha * self.slope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_all_values_so_far() {
        let values = [4.0, 1.0, 7.0, 7.5, 3.0, 12.0];
        let mut line = GrowingLine::EMPTY;
        for (position, value) in values.iter().enumerate() {
            line.add(*value);
            let count = position as f64 + 1.0;
            let mean = values[..=position].iter().sum::<f64>() / count;
            assert!((line.mean - mean).abs() < 1e-12);
            let mut products = 0.0;
            let mut squares = 0.0;
            for (time, value) in (1..).zip(&values[..=position]) {
                let distance = f64::from(time) - (count + 1.0) / 2.0;
                products += distance * value;
                squares += distance * distance;
            }
            let slope = if position == 0 {
                0.0
            } else {
                products / squares
            };
            assert!((line.slope - slope).abs() < 1e-12, "{slope}");
        }
    }
}
