//! A fitted model of one series, by any method.

use forebay_model::Result;
use forebay_series::ets::EtsFit;
use forebay_series::forecast::SeriesForecast;
use forebay_series::theta::{ThetaFit, ThetaVariant};

use super::method::SeriesMethod;

/// Settings of fits.
#[derive(Debug, Clone)]
pub struct FitSettings {
    /// The methods: several of an ensemble.
    pub methods: Vec<SeriesMethod>,
    /// The variant of the theta method.
    pub variant: ThetaVariant,
    /// Steps of a season; 1 without one.
    pub season_steps: usize,
    /// Folds that weights of an ensemble and widths of intervals are learned on; none where neither is learned.
    pub folds: Option<FitFolds>,
    /// True if errors on folds are kept, for intervals.
    pub keeps_fold_errors: bool,
    /// True if errors of one step are kept, for a reconciliation.
    pub keeps_errors: bool,
}

/// Ends of each series that are forecast from the values before them.
#[derive(Debug, Clone, Copy)]
pub struct FitFolds {
    /// Number of folds.
    pub count: usize,
    /// Steps of a fold: each begins so many steps before the next one.
    pub steps: usize,
}

/// A model of one series.
#[derive(Debug, Clone)]
pub enum SeriesFit {
    /// The theta method.
    Theta(ThetaFit),
    /// Exponential smoothing.
    Ets(EtsFit),
    /// The value of one season before.
    SeasonalNaive(SeasonalNaive),
}

/// The seasonal naive forecast.
#[derive(Debug, Clone)]
pub struct SeasonalNaive {
    season_steps: usize,
    loss: f64,
}

impl SeasonalNaive {
    fn new(values: &[f64], season_steps: usize) -> SeasonalNaive {
        let season_steps = if values.len() > season_steps {
            season_steps
        } else {
            1
        };
        let mut squares = 0.0;
        let mut pairs = 0.0;
        for (value, earlier) in values.iter().skip(season_steps).zip(values) {
            squares += (value - earlier) * (value - earlier);
            pairs += 1.0;
        }
        SeasonalNaive {
            season_steps,
            loss: if pairs > 0.0 { squares / pairs } else { 0.0 },
        }
    }

    fn errors(&self, values: &[f64]) -> Vec<f64> {
        let pairs = values.iter().skip(self.season_steps).zip(values);
        pairs.map(|(value, earlier)| value - earlier).collect()
    }

    fn forecast(&self, values: &[f64]) -> SeriesForecast {
        if self.season_steps == 1 {
            return SeriesForecast::constant(values.last().copied().unwrap_or(0.0));
        }
        SeriesForecast {
            season: values[values.len() - self.season_steps..].to_vec(),
            ..SeriesForecast::constant(0.0)
        }
    }
}

impl SeriesFit {
    /// Fits a model to at least [`SeriesMethod::steps_min`] values; `None` where none has finite errors. `check` ends a
    /// long search by its fault.
    pub fn new(
        method: SeriesMethod,
        settings: &FitSettings,
        values: &[f64],
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<SeriesFit>> {
        let season_steps = settings.season_steps;
        match method {
            SeriesMethod::Theta => {
                let fit = ThetaFit::new(values, season_steps, settings.variant);
                Ok(Some(SeriesFit::Theta(fit)))
            }
            SeriesMethod::Ets => {
                let fit = EtsFit::new(values, season_steps, check)?;
                Ok(fit.map(SeriesFit::Ets))
            }
            SeriesMethod::SeasonalNaive => {
                let fit = SeasonalNaive::new(values, season_steps);
                Ok(Some(SeriesFit::SeasonalNaive(fit)))
            }
        }
    }

    /// The forecast after some values, which begin with those of the fit.
    pub fn forecast(&self, values: &[f64]) -> SeriesForecast {
        match self {
            SeriesFit::Theta(fit) => fit.forecast(values),
            SeriesFit::Ets(fit) => fit.forecast(values),
            SeriesFit::SeasonalNaive(fit) => fit.forecast(values),
        }
    }

    /// The errors of one step of the values of the fit; there may be fewer than values.
    pub fn errors(&self, values: &[f64]) -> Vec<f64> {
        match self {
            SeriesFit::Theta(fit) => fit.errors(values),
            SeriesFit::Ets(fit) => fit.errors(values),
            SeriesFit::SeasonalNaive(fit) => fit.errors(values),
        }
    }

    /// Mean of the squares of errors of one step.
    pub fn loss(&self) -> f64 {
        match self {
            SeriesFit::Theta(fit) => fit.loss,
            SeriesFit::Ets(fit) => fit.loss,
            SeriesFit::SeasonalNaive(fit) => fit.loss,
        }
    }

    /// Name of the form or variant that was selected among several; `None` where there is one.
    pub fn form_name(&self) -> Option<String> {
        match self {
            SeriesFit::Theta(fit) => fit.chosen.map(str::to_owned),
            SeriesFit::Ets(fit) => Some(fit.form_name()),
            SeriesFit::SeasonalNaive(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_naive_forecast_repeats_the_last_season() {
        let values = [1.0, 5.0, 2.0, 7.0, 4.0];
        let fit = SeasonalNaive::new(&values, 2);
        // Differences of 1, 2 and 2 over two steps.
        assert!((fit.loss - 3.0).abs() < 1e-12);
        let forecast = fit.forecast(&values);
        let steps: Vec<f64> = (1..=3).map(|step| forecast.value(step)).collect();
        assert_eq!(steps, [7.0, 4.0, 7.0]);
        assert_eq!(fit.errors(&values), [1.0, 2.0, 2.0]);
        let short = SeasonalNaive::new(&values, 12).forecast(&values);
        assert_eq!(short, SeriesForecast::constant(4.0));
    }

    /// The error of a step is the distance of a value from the forecast after the values before it.
    #[test]
    fn errors_are_those_of_forecasts_of_one_step() {
        let week = [3.0, 5.0, 9.0, 8.0, 7.0, 2.0, 4.0];
        let values: Vec<f64> = (0..40)
            .map(|day| 20.0 + week[day % 7] + ((day * day) % 11) as f64)
            .collect();
        for variant in [ThetaVariant::Standard, ThetaVariant::Dynamic] {
            let settings = FitSettings {
                methods: Vec::new(),
                variant,
                season_steps: 7,
                folds: None,
                keeps_fold_errors: false,
                keeps_errors: true,
            };
            for method in [
                SeriesMethod::Theta,
                SeriesMethod::Ets,
                SeriesMethod::SeasonalNaive,
            ] {
                let fit = SeriesFit::new(method, &settings, &values, &|| Ok(()));
                let fit = fit.unwrap().unwrap();
                let errors = fit.errors(&values);
                let first = values.len() - errors.len();
                for (position, error) in (first..).zip(&errors).skip(10) {
                    let forecast = fit.forecast(&values[..position]).value(1);
                    let expected = values[position] - forecast;
                    assert!((error - expected).abs() < 1e-8, "{error}, not {expected}");
                }
            }
        }
    }
}
