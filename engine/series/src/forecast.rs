//! The forecast of one series: a line or a curve, and a season around it.

use super::growing_line::GrowingLine;

/// Steps of a curve at most. It goes on as a line after that.
const CURVE_STEPS_MAX: u64 = 10_000;

/// Numbers that a forecast of any length is computed from.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesForecast {
    /// The level of the last value.
    pub level: f64,
    /// Change of the level with each step.
    pub slope: f64,
    /// Factor of that change with each step: 1 of a line.
    pub damping: f64,
    /// The curve in place of a line, from `level` on; none of a line.
    pub curve: Option<ThetaCurve>,
    /// Indices of the season from the next step on; none without a season.
    pub season: Vec<f64>,
    /// True if the level is multiplied by the index; else the index is added.
    pub multiplicative: bool,
}

/// Forecasts of a dynamic theta model: the line that it takes its slope from goes through earlier forecasts, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThetaCurve {
    /// The smoothing parameter.
    pub alpha: f64,
    /// Share of the line in a forecast.
    pub share: f64,
    /// The line through all values.
    pub line: GrowingLine,
}

impl ThetaCurve {
    /// The forecast for a step after a level. It takes time in proportion to the step, up to 10,000 steps.
    fn value(&self, level: f64, step: u64) -> f64 {
        let mut level = level;
        let mut line = self.line;
        let mut decay = (1.0 - self.alpha).powf(line.count);
        let mut value = level;
        let mut change = 0.0;
        let steps = step.min(CURVE_STEPS_MAX);
        for _ in 0..steps {
            let next = level + self.share * line.drift(self.alpha, decay);
            change = next - value;
            value = next;
            level = self.alpha * next + (1.0 - self.alpha) * level;
            line.add(next);
            decay *= 1.0 - self.alpha;
        }
        value + change * (step - steps) as f64
    }
}

impl SeriesForecast {
    /// A forecast that stays at a value.
    pub fn constant(value: f64) -> SeriesForecast {
        SeriesForecast {
            level: value,
            slope: 0.0,
            damping: 1.0,
            curve: None,
            season: Vec::new(),
            multiplicative: false,
        }
    }

    /// The forecast for a step, from 1 on.
    pub fn value(&self, step: u64) -> f64 {
        let level = match &self.curve {
            Some(curve) => curve.value(self.level, step),
            None => self.level + self.slope * self.damped_steps(step),
        };
        if self.season.is_empty() {
            return level;
        }
        let position = step.saturating_sub(1) % self.season.len() as u64;
        let index = self.season[position as usize];
        if self.multiplicative {
            level * index
        } else {
            level + index
        }
    }

    /// The sum of the damping to the powers 1 to `step`.
    fn damped_steps(&self, step: u64) -> f64 {
        let steps = step as f64;
        if self.damping == 1.0 {
            return steps;
        }
        self.damping * (1.0 - self.damping.powf(steps)) / (1.0 - self.damping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_values(forecast: &SeriesForecast, expected: [f64; 4]) {
        for (step, expected) in (1..).zip(expected) {
            let value = forecast.value(step);
            assert!(
                (value - expected).abs() < 1e-12,
                "{value}, not {expected}, at step {step}"
            );
        }
    }

    #[test]
    fn a_damped_slope_shrinks_with_each_step() {
        let line = SeriesForecast {
            slope: 2.0,
            ..SeriesForecast::constant(10.0)
        };
        assert_values(&line, [12.0, 14.0, 16.0, 18.0]);
        let damped = SeriesForecast {
            damping: 0.5,
            ..line.clone()
        };
        assert_values(&damped, [11.0, 11.5, 11.75, 11.875]);
        let season = vec![2.0, 0.5];
        let added = SeriesForecast {
            season: season.clone(),
            ..line.clone()
        };
        assert_values(&added, [14.0, 14.5, 18.0, 18.5]);
        let multiplied = SeriesForecast {
            season,
            multiplicative: true,
            ..line
        };
        assert_values(&multiplied, [24.0, 7.0, 32.0, 9.0]);
    }

    #[test]
    fn a_curve_goes_through_its_own_values() {
        // The line through 2 and 4.
        let line = GrowingLine {
            count: 2.0,
            mean: 3.0,
            slope: 2.0,
        };
        let curve = ThetaCurve {
            alpha: 0.5,
            share: 0.5,
            line,
        };
        let forecast = SeriesForecast {
            curve: Some(curve),
            ..SeriesForecast::constant(4.0)
        };
        assert!((forecast.value(1) - 5.75).abs() < 1e-12);
        // The level is 4.875. The line through 2, 4 and 5.75 has the slope 1.875 and the intercept 1/6.
        let drift = 0.125 / 6.0 + (1.0 - 0.0625) / 0.5 * 1.875;
        assert!((forecast.value(2) - 4.875 - drift / 2.0).abs() < 1e-12);
        let last = forecast.value(CURVE_STEPS_MAX);
        let change = last - forecast.value(CURVE_STEPS_MAX - 1);
        let far = forecast.value(CURVE_STEPS_MAX + 5);
        assert!((far - last - 5.0 * change).abs() < 1e-6);
    }
}
