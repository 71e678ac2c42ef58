//! The theta method: a share of a line, and exponential smoothing of the rest.
//!
//! Models are those of Fiorucci et al. (2016, "Models for optimising the theta method and their relationship to state
//! space models"), in their state space form. The share of the line is 1 - 1/theta: one half in the standard model
//! (Assimakopoulos and Nikolopoulos 2000), estimated in optimized ones. The line goes through all values, or, in dynamic
//! models, through those before each step. A season is taken away before, where the test finds one.
//!
//! Errors depend linearly on the first level and on the share. So least squares give both, and a search has to find the
//! smoothing parameter alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forecast::{SeriesForecast, ThetaCurve};
use super::growing_line::GrowingLine;
use super::season::SeasonIndices;

/// Bounds of the smoothing parameter.
const ALPHA_MIN: f64 = 0.1;
const ALPHA_MAX: f64 = 0.99;

/// Values of the smoothing parameter that are tried before the best one is refined.
const ALPHAS: usize = 90;

/// Steps of the refinement: the parameter is known to 1e-14.
const REFINEMENTS: usize = 60;

/// The golden ratio, less one.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Share of the line in the standard model.
const STANDARD_SHARE: f64 = 0.5;

/// Values whose errors do not count when variants are compared: statsforecast leaves out as many.
const UNCOMPARED: usize = 3;

/// A variant of the theta method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThetaVariant {
    /// Half of a line through all values: theta is 2.
    #[default]
    Standard,
    /// The share of the line that fits best.
    Optimized,
    /// Half of a line through the values before each step, and through forecasts after the last value.
    Dynamic,
    /// The share that fits best of a line through the values before each step.
    DynamicOptimized,
    /// The variant of each series with the least squares of errors, from the fourth value on.
    Auto,
}

/// Variants that are fitted, with their names.
const VARIANTS: [(ThetaVariant, &str); 4] = [
    (ThetaVariant::Standard, "standard"),
    (ThetaVariant::Optimized, "optimized"),
    (ThetaVariant::Dynamic, "dynamic"),
    (ThetaVariant::DynamicOptimized, "dynamic_optimized"),
];

impl ThetaVariant {
    /// True of the default.
    pub fn is_standard(&self) -> bool {
        *self == ThetaVariant::Standard
    }

    /// True if a forecast may be a curve.
    pub fn may_curve(self) -> bool {
        match self {
            ThetaVariant::Standard | ThetaVariant::Optimized => false,
            ThetaVariant::Dynamic | ThetaVariant::DynamicOptimized | ThetaVariant::Auto => true,
        }
    }

    fn is_dynamic(self) -> bool {
        matches!(self, ThetaVariant::Dynamic | ThetaVariant::DynamicOptimized)
    }

    fn is_optimized(self) -> bool {
        matches!(
            self,
            ThetaVariant::Optimized | ThetaVariant::DynamicOptimized
        )
    }
}

/// A theta model of one series.
#[derive(Debug, Clone)]
pub struct ThetaFit {
    season: Option<SeasonIndices>,
    model: ThetaModel,
    /// Name of the variant that was chosen among several.
    pub chosen: Option<&'static str>,
    /// Mean of the squares of errors of one step, without season.
    pub loss: f64,
}

/// A theta model of values without season.
#[derive(Debug, Clone, Copy)]
struct ThetaModel {
    alpha: f64,
    share: f64,
    line: ThetaLine,
    /// The level before the first value.
    initial_level: f64,
    /// Mean of the squares of errors of one step.
    loss: f64,
}

/// The line of a theta model.
#[derive(Debug, Clone, Copy)]
enum ThetaLine {
    /// A line through all values.
    Fixed(Line),
    /// A line through the values before each step.
    Growing,
}

/// The line of least squares through values at 1, 2, 3 and so on.
#[derive(Debug, Clone, Copy)]
struct Line {
    intercept: f64,
    slope: f64,
}

/// Smoothing with one parameter, and the first level and share that fit best.
struct Smoothing {
    initial_level: f64,
    share: f64,
    /// The sum of the squares of errors of one step.
    squares: f64,
}

impl Line {
    fn through(values: &[f64]) -> Line {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let mut weighted = 0.0;
        for (position, value) in values.iter().enumerate() {
            weighted += (position + 1) as f64 * value;
        }
        let slope = 6.0 * (2.0 * weighted / count - (count + 1.0) * mean) / (count * count - 1.0);
        Line {
            intercept: mean - (count + 1.0) * slope / 2.0,
            slope,
        }
    }

    /// The part of the line that the first forecast has.
    fn first_drift(self) -> f64 {
        self.intercept + self.slope
    }

    /// The part of the line that the forecast after one has.
    fn next_drift(self, drift: f64, alpha: f64) -> f64 {
        (1.0 - alpha) * drift + self.slope
    }
}

/// Steps of smoothing along values, with a first level of zero and without the line.
struct ThetaSteps<'a> {
    values: std::slice::Iter<'a, f64>,
    alpha: f64,
    level: f64,
    /// Share of the first level in the level: the derivative of an error by it, but for the sign.
    weight: f64,
    line: ThetaLine,
    growing: GrowingLine,
    drift: f64,
}

/// Terms of the error of one step: it is `error - initial_level * weight - share * drift`.
struct StepTerms {
    error: f64,
    weight: f64,
    drift: f64,
}

impl StepTerms {
    fn error_with(&self, initial_level: f64, share: f64) -> f64 {
        self.error - initial_level * self.weight - share * self.drift
    }
}

impl<'a> ThetaSteps<'a> {
    fn new(values: &'a [f64], line: ThetaLine, alpha: f64) -> ThetaSteps<'a> {
        ThetaSteps {
            values: values.iter(),
            alpha,
            level: 0.0,
            weight: 1.0,
            line,
            growing: GrowingLine::EMPTY,
            drift: match line {
                ThetaLine::Fixed(line) => line.first_drift(),
                ThetaLine::Growing => 0.0,
            },
        }
    }
}

impl Iterator for ThetaSteps<'_> {
    type Item = StepTerms;

    fn next(&mut self) -> Option<StepTerms> {
        let value = *self.values.next()?;
        let terms = StepTerms {
            error: value - self.level,
            weight: self.weight,
            drift: self.drift,
        };
        self.level = self.alpha * value + (1.0 - self.alpha) * self.level;
        self.weight *= 1.0 - self.alpha;
        self.drift = match self.line {
            ThetaLine::Fixed(line) => line.next_drift(self.drift, self.alpha),
            ThetaLine::Growing => {
                self.growing.add(value);
                self.growing.drift(self.alpha, self.weight)
            }
        };
        Some(terms)
    }
}

impl ThetaLine {
    /// First values whose errors do not count: a growing line has nothing to say of the first one.
    fn uncounted(self) -> usize {
        match self {
            ThetaLine::Fixed(_) => 0,
            ThetaLine::Growing => 1,
        }
    }
}

impl ThetaFit {
    /// Fits a model to two values or more.
    pub fn new(values: &[f64], season_steps: usize, variant: ThetaVariant) -> ThetaFit {
        let season = SeasonIndices::find(values, season_steps);
        let values = deseasonalised(values, season.as_ref());
        if variant != ThetaVariant::Auto {
            let model = ThetaModel::new(&values, variant);
            return ThetaFit {
                season,
                model,
                chosen: None,
                loss: model.loss,
            };
        }
        let mut best = ThetaModel::new(&values, ThetaVariant::Standard);
        let mut least = best.compared_squares(&values);
        let mut chosen = VARIANTS[0].1;
        for (variant, name) in &VARIANTS[1..] {
            let model = ThetaModel::new(&values, *variant);
            let squares = model.compared_squares(&values);
            if squares < least {
                best = model;
                least = squares;
                chosen = *name;
            }
        }
        ThetaFit {
            season,
            model: best,
            chosen: Some(chosen),
            loss: best.loss,
        }
    }

    /// The errors of one step of the values of the fit, but for those that do not count.
    pub fn errors(&self, values: &[f64]) -> Vec<f64> {
        let deseasonalised = deseasonalised(values, self.season.as_ref());
        let model = &self.model;
        let steps = ThetaSteps::new(&deseasonalised, model.line, model.alpha);
        let mut errors = Vec::with_capacity(values.len());
        for (position, step) in steps.enumerate().skip(model.line.uncounted()) {
            let error = step.error_with(model.initial_level, model.share);
            let factor = match &self.season {
                Some(season) if season.multiplicative => season.index(position),
                _ => 1.0,
            };
            errors.push(error * factor);
        }
        errors
    }

    /// The forecast after some values, which begin with those of the fit.
    pub fn forecast(&self, values: &[f64]) -> SeriesForecast {
        let deseasonalised = deseasonalised(values, self.season.as_ref());
        let mut forecast = self.model.forecast(&deseasonalised);
        if let Some(indices) = &self.season {
            forecast.multiplicative = indices.multiplicative;
            for step in 0..indices.indices.len() {
                forecast.season.push(indices.index(values.len() + step));
            }
        }
        forecast
    }
}

impl ThetaModel {
    fn new(values: &[f64], variant: ThetaVariant) -> ThetaModel {
        let line = if variant.is_dynamic() {
            ThetaLine::Growing
        } else {
            ThetaLine::Fixed(Line::through(values))
        };
        let share = if variant.is_optimized() {
            None
        } else {
            Some(STANDARD_SHARE)
        };
        let alpha = best_alpha(values, line, share);
        let smoothing = smooth(values, line, share, alpha);
        let counted = values.len() - line.uncounted();
        ThetaModel {
            alpha,
            share: smoothing.share,
            line,
            initial_level: smoothing.initial_level,
            loss: smoothing.squares / counted as f64,
        }
    }

    /// The squares of errors that variants are compared by.
    fn compared_squares(&self, values: &[f64]) -> f64 {
        let steps = ThetaSteps::new(values, self.line, self.alpha);
        squares_of(steps.skip(UNCOMPARED), self.initial_level, self.share)
    }

    fn forecast(&self, values: &[f64]) -> SeriesForecast {
        let mut level = self.initial_level;
        for value in values {
            level = self.alpha * value + (1.0 - self.alpha) * level;
        }
        match self.line {
            ThetaLine::Fixed(line) => {
                let mut drift = line.first_drift();
                for _ in values {
                    drift = line.next_drift(drift, self.alpha);
                }
                let slope = self.share * line.slope;
                SeriesForecast {
                    slope,
                    ..SeriesForecast::constant(level + self.share * drift - slope)
                }
            }
            ThetaLine::Growing => {
                let mut line = GrowingLine::EMPTY;
                for value in values {
                    line.add(*value);
                }
                let curve = ThetaCurve {
                    alpha: self.alpha,
                    share: self.share,
                    line,
                };
                SeriesForecast {
                    curve: Some(curve),
                    ..SeriesForecast::constant(level)
                }
            }
        }
    }
}

fn deseasonalised(values: &[f64], season: Option<&SeasonIndices>) -> Vec<f64> {
    let Some(season) = season else {
        return values.to_vec();
    };
    let mut without = Vec::with_capacity(values.len());
    for (position, value) in values.iter().enumerate() {
        without.push(season.remove(*value, position));
    }
    without
}

/// The smoothing parameter with the least sum of squares: the best of a grid, refined by golden sections.
fn best_alpha(values: &[f64], line: ThetaLine, share: Option<f64>) -> f64 {
    let step = (ALPHA_MAX - ALPHA_MIN) / (ALPHAS - 1) as f64;
    let mut best = ALPHA_MIN;
    let mut least = f64::INFINITY;
    for number in 0..ALPHAS {
        let alpha = ALPHA_MIN + step * number as f64;
        let squares = smooth(values, line, share, alpha).squares;
        if squares < least {
            least = squares;
            best = alpha;
        }
    }
    let mut low = (best - step).max(ALPHA_MIN);
    let mut high = (best + step).min(ALPHA_MAX);
    for _ in 0..REFINEMENTS {
        let lower = high - (high - low) * GOLDEN;
        let upper = low + (high - low) * GOLDEN;
        let of_lower = smooth(values, line, share, lower).squares;
        if of_lower <= smooth(values, line, share, upper).squares {
            high = upper;
        } else {
            low = lower;
        }
    }
    (low + high) / 2.0
}

/// Smoothing with a parameter; the share is that of least squares where none is given.
fn smooth(values: &[f64], line: ThetaLine, share: Option<f64>, alpha: f64) -> Smoothing {
    let steps = ThetaSteps::new(values, line, alpha).skip(line.uncounted());
    match share {
        Some(share) => smooth_with_share(steps, share),
        None => {
            let (initial_level, share) = best_level_and_share(steps);
            // Sums of products would lose the digits of small errors.
            let steps = ThetaSteps::new(values, line, alpha).skip(line.uncounted());
            Smoothing {
                initial_level,
                share,
                squares: squares_of(steps, initial_level, share),
            }
        }
    }
}

fn smooth_with_share(steps: impl Iterator<Item = StepTerms>, share: f64) -> Smoothing {
    let mut squares = 0.0;
    let mut products = 0.0;
    let mut weights = 0.0;
    for step in steps {
        let error = step.error - share * step.drift;
        squares += error * error;
        products += error * step.weight;
        weights += step.weight * step.weight;
    }
    let initial_level = products / weights;
    Smoothing {
        initial_level,
        share,
        squares: (squares - products * initial_level).max(0.0),
    }
}

/// The first level and the share, from 0 to 1, of least squares.
fn best_level_and_share(steps: impl Iterator<Item = StepTerms>) -> (f64, f64) {
    let mut weights = 0.0;
    let mut drifts = 0.0;
    let mut mixed = 0.0;
    let mut by_weight = 0.0;
    let mut by_drift = 0.0;
    for step in steps {
        weights += step.weight * step.weight;
        drifts += step.drift * step.drift;
        mixed += step.weight * step.drift;
        by_weight += step.weight * step.error;
        by_drift += step.drift * step.error;
    }
    let determinant = weights * drifts - mixed * mixed;
    let share = if determinant > 0.0 {
        ((weights * by_drift - mixed * by_weight) / determinant).clamp(0.0, 1.0)
    } else {
        STANDARD_SHARE
    };
    ((by_weight - share * mixed) / weights, share)
}

fn squares_of(steps: impl Iterator<Item = StepTerms>, initial_level: f64, share: f64) -> f64 {
    let mut squares = 0.0;
    for step in steps {
        let error = step.error_with(initial_level, share);
        squares += error * error;
    }
    squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NILE, PASSENGERS, assert_forecasts, reals};

    /// Months of the passengers up to 1959.
    const MONTHS: usize = 132;

    /// Fails unless the first forecasts lie within a share of those of statsforecast 2.1.1
    /// (`auto_theta(y, m, model="STM")`), whose search ends at a parameter that is near the best one.
    #[track_caller]
    fn assert_near(values: &[f64], season_steps: usize, share: f64, expected: &[f64]) {
        let fit = ThetaFit::new(values, season_steps, ThetaVariant::Standard);
        assert_forecasts(&fit.forecast(values), share, expected);
    }

    #[test]
    fn forecasts_are_those_of_statsforecast() {
        let months = reals(&PASSENGERS[..MONTHS]);
        assert_near(&months, 12, 1e-5, &[411.3703, 402.2747, 462.8828]);
        let rising = reals(&[10, 12, 14, 13, 17, 18, 21, 20, 24, 26, 27, 30]);
        assert_near(&rising, 1, 2e-3, &[30.4097, 31.2943, 32.1789]);
        assert_near(&reals(&NILE), 1, 4e-3, &[1023.879, 1020.0644, 1016.2497]);
        let week = [3.0, 5.0, 9.0, 8.0, 7.0, -2.0, -4.0];
        let mut days = Vec::new();
        for day in 0..42 {
            days.push(week[day % 7] + 0.3 * day as f64);
        }
        let expected = [15.4485, 17.5985, 21.7485, 20.8985, 20.0485, 11.1985, 9.3485];
        assert_near(&days, 7, 1e-5, &expected);
    }

    /// `AutoTheta(12)` of statsforecast 2.1.1 chooses the optimized model, and ends its search near the best theta, 43.
    #[test]
    fn the_best_variant_is_that_of_statsforecast() {
        let months = reals(&PASSENGERS[..MONTHS]);
        let fit = ThetaFit::new(&months, 12, ThetaVariant::Auto);
        assert_eq!(fit.chosen, Some("optimized"));
        let forecast = fit.forecast(&months);
        assert_forecasts(&forecast, 2e-4, &[412.7119, 404.6405, 466.8109]);
        // Least squares, by an independent program in Python.
        assert_forecasts(&forecast, 1e-6, &[412.7415, 404.6923, 466.8966]);
        let theta = 1.0 / (1.0 - fit.model.share);
        assert!((theta - 43.05).abs() < 0.01, "{theta}");
        let optimized = ThetaFit::new(&months, 12, ThetaVariant::Optimized);
        assert_eq!(optimized.forecast(&months), forecast);
    }

    /// Forecasts of an independent program in Python.
    #[test]
    fn lines_of_dynamic_models_grow() {
        let months = reals(&PASSENGERS[..MONTHS]);
        let dynamic = ThetaFit::new(&months, 12, ThetaVariant::Dynamic);
        let expected = [411.3657, 402.2737, 462.8886];
        assert_forecasts(&dynamic.forecast(&months), 1e-6, &expected);
        let optimized = ThetaFit::new(&months, 12, ThetaVariant::DynamicOptimized);
        let expected = [412.6555, 404.5743, 466.7287];
        assert_forecasts(&optimized.forecast(&months), 1e-6, &expected);
        let nile = reals(&NILE);
        let dynamic = ThetaFit::new(&nile, 1, ThetaVariant::Dynamic);
        let expected = [1019.5146, 1017.2343, 1015.0259, 1012.8825];
        assert_forecasts(&dynamic.forecast(&nile), 1e-6, &expected);
        // The best share is none: the line falls, and the last values do not.
        let optimized = ThetaFit::new(&nile, 1, ThetaVariant::DynamicOptimized);
        assert_forecasts(&optimized.forecast(&nile), 1e-6, &[1049.9554; 4]);
    }

    #[test]
    fn an_optimized_model_goes_on_along_a_line() {
        let values: Vec<f64> = (0..20).map(|step| 5.0 + 2.0 * f64::from(step)).collect();
        let fit = ThetaFit::new(&values, 1, ThetaVariant::Optimized);
        assert_forecasts(&fit.forecast(&values), 1e-6, &[45.0, 47.0, 49.0]);
        // The standard model takes half of the slope.
        let fit = ThetaFit::new(&values, 1, ThetaVariant::Standard);
        let forecast = fit.forecast(&values);
        assert!((forecast.value(9) - forecast.value(8) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_other_parameter_has_smaller_errors() {
        let values = reals(&NILE);
        let fixed = ThetaLine::Fixed(Line::through(&values));
        for (line, share) in [
            (fixed, Some(0.5)),
            (fixed, None),
            (ThetaLine::Growing, None),
        ] {
            let best = best_alpha(&values, line, share);
            let best = smooth(&values, line, share, best).squares;
            for number in 0..1000 {
                let alpha = ALPHA_MIN + (ALPHA_MAX - ALPHA_MIN) * f64::from(number) / 999.0;
                let squares = smooth(&values, line, share, alpha).squares;
                assert!(squares >= best * (1.0 - 1e-9));
            }
        }
    }

    #[test]
    fn a_constant_series_stays_constant() {
        let values = [7.0; 30];
        for variant in [ThetaVariant::Standard, ThetaVariant::Auto] {
            let forecast = ThetaFit::new(&values, 7, variant).forecast(&values);
            for step in 1..20 {
                assert!((forecast.value(step) - 7.0).abs() < 1e-9);
            }
        }
    }
}
