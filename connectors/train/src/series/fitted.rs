//! Models of one series by all methods, and their forecasts.

use forebay_model::Result;
use forebay_series::ensemble_weights::ErrorProducts;
use forebay_series::forecast::SeriesForecast;

use super::fit::{FitSettings, SeriesFit};
use super::history::SeriesValues;

/// Errors of one step of a series that are kept, at most.
pub const ERRORS_MAX: usize = 1000;

/// Result of one series.
pub struct FittedSeries {
    /// The forecasts after the last value, one of each method; `None` of a method without a model.
    pub forecasts: Vec<Option<SeriesForecast>>,
    /// The forecasts after the last value to learn from.
    pub early: Vec<Option<SeriesForecast>>,
    /// The models, or the reason why there is none.
    pub model: Result<ModelSummary, String>,
    /// Errors of the methods on folds, where weights are learned.
    pub products: ErrorProducts,
    /// Errors on folds, where they are kept.
    pub fold_errors: Vec<FoldError>,
    /// Mean of the differences of values one season apart, without sign; 0 of a constant series.
    pub unit: f64,
    /// The last errors of one step, the mean of those of all methods; none where they are not kept.
    pub errors: Vec<f64>,
}

/// Errors of a step of a fold, in units of its series.
pub struct FoldError {
    /// The step, from 0.
    pub step: usize,
    /// The error of each method.
    pub errors: Vec<f64>,
}

/// Figures of the models of a series.
pub struct ModelSummary {
    /// Mean of the squares of errors of one step, over all methods.
    pub loss: f64,
    /// Name of its form, where one method fitted several.
    pub form: Option<String>,
}

/// Fits models to the steps to learn from, and goes on to the last value. `check` ends a long search by its fault.
pub fn fit_series(
    settings: &FitSettings,
    series: &SeriesValues,
    check: &dyn Fn() -> Result<()>,
) -> Result<FittedSeries> {
    let learned = &series.values[..series.learned];
    let mut forecasts = Vec::with_capacity(settings.methods.len());
    let mut early = Vec::with_capacity(settings.methods.len());
    let mut loss = 0.0;
    let mut models = 0.0;
    let mut form = None;
    let mut first_reason = None;
    let mut errors = Vec::new();
    for fit in fit_methods(settings, learned, check)? {
        match fit {
            Ok(fit) => {
                forecasts.push(Some(fit.forecast(&series.values)));
                early.push(Some(fit.forecast(learned)));
                if settings.keeps_errors {
                    add_errors(&mut errors, fit.errors(learned));
                }
                loss += fit.loss();
                models += 1.0;
                form = fit.form_name();
            }
            Err(reason) => {
                forecasts.push(None);
                early.push(None);
                first_reason.get_or_insert(reason);
            }
        }
    }
    if models == 0.0 {
        return Ok(last_value(
            settings,
            series,
            first_reason.unwrap_or_default(),
        ));
    }
    for error in &mut errors {
        *error /= models;
    }
    let (products, fold_errors) = compare_on_folds(settings, learned, check)?;
    Ok(FittedSeries {
        products,
        fold_errors,
        unit: error_scale(&series.values, settings.season_steps).unwrap_or(0.0),
        errors,
        forecasts,
        early,
        model: Ok(ModelSummary {
            loss: loss / models,
            form: form.filter(|_| settings.methods.len() == 1),
        }),
    })
}

/// Adds the errors of a method to those of others: the last ones, as far as all methods have some.
fn add_errors(sums: &mut Vec<f64>, mut errors: Vec<f64>) {
    errors.drain(..errors.len().saturating_sub(ERRORS_MAX));
    if sums.is_empty() {
        *sums = errors;
        return;
    }
    let count = sums.len().min(errors.len());
    sums.drain(..sums.len() - count);
    for (sum, error) in sums.iter_mut().zip(&errors[errors.len() - count..]) {
        *sum += error;
    }
}

/// A model by each method, or the reason why there is none.
fn fit_methods(
    settings: &FitSettings,
    values: &[f64],
    check: &dyn Fn() -> Result<()>,
) -> Result<Vec<Result<SeriesFit, String>>> {
    let mut fits = Vec::with_capacity(settings.methods.len());
    for method in &settings.methods {
        let steps_min = method.steps_min();
        if values.len() < steps_min {
            fits.push(Err(format!(
                "{} steps are fewer than {steps_min}",
                values.len()
            )));
            continue;
        }
        let fit = SeriesFit::new(*method, settings, values, check)?;
        fits.push(fit.ok_or_else(|| "no form of the model has finite errors".to_owned()));
    }
    Ok(fits)
}

/// The forecast of a series without a model: its last value, as the first method.
fn last_value(settings: &FitSettings, series: &SeriesValues, reason: String) -> FittedSeries {
    let learned = &series.values[..series.learned];
    let mut forecasts = vec![None; settings.methods.len()];
    let mut early = forecasts.clone();
    for (forecasts, values) in [(&mut forecasts, &series.values[..]), (&mut early, learned)] {
        let value = values.last().copied().unwrap_or(0.0);
        if let Some(first) = forecasts.first_mut() {
            *first = Some(SeriesForecast::constant(value));
        }
    }
    FittedSeries {
        forecasts,
        early,
        model: Err(reason),
        products: ErrorProducts::new(settings.methods.len()),
        fold_errors: Vec::new(),
        unit: error_scale(&series.values, settings.season_steps).unwrap_or(0.0),
        errors: Vec::new(),
    }
}

/// Errors of the methods on folds: each is an end of the values, forecast from those before it. Folds before which a
/// method has no model do not count.
fn compare_on_folds(
    settings: &FitSettings,
    values: &[f64],
    check: &dyn Fn() -> Result<()>,
) -> Result<(ErrorProducts, Vec<FoldError>)> {
    let mut products = ErrorProducts::new(settings.methods.len());
    let mut fold_errors = Vec::new();
    let Some(folds) = settings.folds else {
        return Ok((products, fold_errors));
    };
    for fold in 1..=folds.count {
        let Some(origin) = values.len().checked_sub(fold * folds.steps) else {
            break;
        };
        let (known_values, next_values) = values.split_at(origin);
        let Some(scale) = error_scale(known_values, settings.season_steps) else {
            continue;
        };
        let mut forecasts = Vec::with_capacity(settings.methods.len());
        for fit in fit_methods(settings, known_values, check)? {
            forecasts.extend(fit.ok().map(|fit| fit.forecast(known_values)));
        }
        if forecasts.len() < settings.methods.len() {
            continue;
        }
        for (step, value) in next_values.iter().take(folds.steps).enumerate() {
            let mut errors = Vec::with_capacity(forecasts.len());
            for forecast in &forecasts {
                errors.push((forecast.value(step as u64 + 1) - value) / scale);
            }
            if !errors.iter().all(|error| error.is_finite()) {
                continue;
            }
            products.add(&errors);
            if settings.keeps_fold_errors {
                fold_errors.push(FoldError { step, errors });
            }
        }
    }
    Ok((products, fold_errors))
}

/// Mean of the differences of values one season apart, without sign; `None` where it is no unit to measure by.
fn error_scale(values: &[f64], season_steps: usize) -> Option<f64> {
    let distance = if values.len() > season_steps {
        season_steps
    } else {
        1
    };
    let mut sum = 0.0;
    let mut pairs = 0.0;
    for (value, earlier) in values.iter().skip(distance).zip(values) {
        sum += (value - earlier).abs();
        pairs += 1.0;
    }
    let scale = sum / pairs;
    (scale.is_finite() && scale > 0.0).then_some(scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::fit::FitFolds;
    use crate::series::method::SeriesMethod;
    use forebay_series::theta::ThetaVariant;

    fn series(values: Vec<f64>, learned: usize) -> SeriesValues {
        SeriesValues {
            name: Vec::new(),
            rows: values.len() as u64,
            validated: (learned..values.len()).collect(),
            values,
            learned,
            last: 0,
            filled: 0,
        }
    }

    fn settings(methods: &[SeriesMethod]) -> FitSettings {
        FitSettings {
            methods: methods.to_vec(),
            variant: ThetaVariant::Standard,
            season_steps: 1,
            folds: None,
            keeps_fold_errors: false,
            keeps_errors: false,
        }
    }

    fn fit(settings: &FitSettings, series: &SeriesValues) -> FittedSeries {
        fit_series(settings, series, &|| Ok(())).unwrap()
    }

    #[test]
    fn forecasts_begin_at_the_last_value_and_early_ones_at_the_last_learned_one() {
        let values: Vec<f64> = (0..20).map(|step| 5.0 + 2.0 * f64::from(step)).collect();
        for method in [
            SeriesMethod::Theta,
            SeriesMethod::Ets,
            SeriesMethod::SeasonalNaive,
        ] {
            for variant in [ThetaVariant::Standard, ThetaVariant::Dynamic] {
                let settings = FitSettings {
                    variant,
                    ..settings(&[method])
                };
                let fitted = fit(&settings, &series(values.clone(), 15));
                let model = SeriesFit::new(method, &settings, &values[..15], &|| Ok(()));
                let model = model.unwrap().unwrap();
                assert_eq!(fitted.forecasts, [Some(model.forecast(&values))]);
                assert_eq!(fitted.early, [Some(model.forecast(&values[..15]))]);
            }
        }
    }

    #[test]
    fn short_series_stay_at_their_last_value() {
        let short = series(vec![1.0, 2.0, 9.0, 4.0], 3);
        for methods in [&[SeriesMethod::Theta][..], &[SeriesMethod::Ets]] {
            let fitted = fit(&settings(methods), &short);
            assert_eq!(fitted.forecasts, [Some(SeriesForecast::constant(4.0))]);
            assert_eq!(fitted.early, [Some(SeriesForecast::constant(9.0))]);
            assert!(fitted.model.is_err());
        }
        // One method of an ensemble may have a model where another has none.
        let methods = [SeriesMethod::Theta, SeriesMethod::Ets];
        let fitted = fit(&settings(&methods), &series(vec![1.0, 2.0, 9.0, 4.0], 4));
        assert!(fitted.forecasts[0].is_some());
        assert!(fitted.forecasts[1].is_none());
        assert!(fitted.model.is_ok());
    }

    #[test]
    fn series_without_finite_errors_stay_at_their_last_value() {
        let values = vec![1e200, -1e200, 5e200, 0.0, 1.0, 2.0];
        let fitted = fit(&settings(&[SeriesMethod::Ets]), &series(values, 6));
        assert_eq!(fitted.forecasts, [Some(SeriesForecast::constant(2.0))]);
        assert!(fitted.model.is_err());
    }

    #[test]
    fn folds_compare_methods_by_the_values_that_came() {
        let values: Vec<f64> = (0..20).map(|step| 5.0 + 2.0 * f64::from(step)).collect();
        let settings = FitSettings {
            folds: Some(FitFolds { count: 2, steps: 3 }),
            keeps_fold_errors: true,
            ..settings(&[SeriesMethod::Ets, SeriesMethod::SeasonalNaive])
        };
        let fitted = fit(&settings, &series(values, 20));
        // Exponential smoothing goes on along the line. The last value is wrong by one, two and three differences.
        assert!((fitted.unit - 2.0).abs() < 1e-12);
        let naive: Vec<f64> = fitted
            .fold_errors
            .iter()
            .map(|fold| fold.errors[1])
            .collect();
        assert_eq!(naive, [-1.0, -2.0, -3.0, -1.0, -2.0, -3.0]);
        let steps: Vec<usize> = fitted.fold_errors.iter().map(|fold| fold.step).collect();
        assert_eq!(steps, [0, 1, 2, 0, 1, 2]);
        let weights = fitted.products.weights();
        assert!((weights[0] - 1.0).abs() < 1e-6, "{weights:?}");
    }
}
