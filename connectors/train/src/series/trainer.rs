//! Fits a model to each series.

use std::collections::BTreeMap;
use std::time::Instant;

use forebay_contract::{
    GroupFallback, GroupTrainingReport, TrainingContext, TrainingOutput, TrainingReport,
};
use forebay_model::{Fault, Result, RowLedger, codes};
use forebay_series::ensemble_weights::ErrorProducts;
use forebay_series::reconcile::ReconcileMethod;
use forebay_storage::{EpochReport, Event};
use forebay_threads::parallel_map;

use super::config::SeriesModelConfig;
use super::ensemble::{EnsembleCard, EnsembleWeights};
use super::fit::FitSettings;
use super::fitted::{FittedSeries, fit_series};
use super::hierarchy::SeriesHierarchy;
use super::history::{SeriesHistories, SeriesValues, check_memory};
use super::model::{
    NamedForecast, SeriesCard, SeriesModelKind, encode_forecasts, tick_in_nanoseconds,
};
use super::progress::SeriesProgress;
use super::reconciled::{ReconciledPaths, check_reconcile_memory, reconciled_paths};
use crate::file::write_series_model;
use crate::only_epoch::report_only_epoch;

/// Bytes of the errors of a step of a fold, but for the numbers themselves.
const FOLD_ERROR_BYTES: u64 = 64;

/// Maximum number of reasons in a report.
const REASONS_MAX: usize = 100;

/// Sums of errors of forecasts on validation rows.
#[derive(Clone, Copy, Default)]
struct ForecastErrors {
    rows: f64,
    squares: f64,
    absolute: f64,
    labels: f64,
}

impl ForecastErrors {
    /// Errors of forecasts that begin after the values that were learned from. Steps without a forecast do not count.
    fn of(forecast: &dyn Fn(u64) -> Option<f64>, series: &SeriesValues) -> ForecastErrors {
        let mut errors = ForecastErrors::default();
        for position in &series.validated {
            let step = (position + 1 - series.learned) as u64;
            let label = series.values[*position];
            let Some(value) = forecast(step) else {
                continue;
            };
            let error = value - label;
            errors.rows += 1.0;
            errors.squares += error * error;
            errors.absolute += error.abs();
            errors.labels += label.abs();
        }
        errors
    }

    fn add(&mut self, other: ForecastErrors) {
        self.rows += other.rows;
        self.squares += other.squares;
        self.absolute += other.absolute;
        self.labels += other.labels;
    }

    /// Metrics by name; none of no rows.
    fn metrics(self) -> BTreeMap<String, f64> {
        let measures = [
            ("rmse", (self.squares / self.rows).sqrt()),
            ("mae", self.absolute / self.rows),
            ("wmape", self.absolute / self.labels),
        ];
        let mut metrics = BTreeMap::new();
        for (name, value) in measures {
            if value.is_finite() {
                metrics.insert(name.to_owned(), value);
            }
        }
        metrics
    }
}

/// Fits all series, and writes their forecasts as a model.
pub fn run(config: &SeriesModelConfig, context: &TrainingContext<'_>) -> Result<TrainingOutput> {
    let began = Instant::now();
    let histories = SeriesHistories::read(config, context)?;
    let season_steps = config
        .season_steps()
        .map_err(|error| error.into_fault("train"))?;
    let series = &histories.series;
    let reconcile = config.reconcile.as_ref();
    let settings = FitSettings {
        methods: config.methods(),
        variant: config.variant,
        season_steps,
        folds: config
            .fit_folds()
            .map_err(|error| error.into_fault("train"))?,
        keeps_fold_errors: config.intervals.is_some(),
        keeps_errors: reconcile
            .is_some_and(|reconcile| reconcile.method == ReconcileMethod::MintShrink),
    };
    let hierarchy = read_hierarchy(config, context, series)?;
    check_fold_memory(context, &settings, series.len())?;
    if reconcile.is_none() {
        check_model_memory(context.memory_bytes, &settings, series.len())?;
    }
    let uppers = hierarchy
        .as_ref()
        .map_or(&[][..], |hierarchy| &hierarchy.uppers);
    let progress = SeriesProgress::new(context, uppers.len() + series.len());
    let threads = context.threads.max(1);
    let all_fitted = parallel_map(threads, uppers.len() + series.len(), &|number| {
        context.check()?;
        let upper = uppers.get(number);
        let values = upper.unwrap_or_else(|| &series[number - uppers.len()]);
        let fitted = fit_series(&settings, values, &|| context.check())?;
        progress.count(fitted.model.as_ref().ok().map(|model| model.loss));
        Ok(fitted)
    })?;
    let fitted = &all_fitted[uppers.len()..];
    warn_of_filled_steps(context, series);
    let mut card = SeriesCard {
        kind: config.model,
        variant: config.variant,
        ensemble: ensemble_of(config, fitted),
        path_steps: None,
        intervals: None,
        by: config.by.clone(),
        time: config.time.clone(),
        every: config.every.clone(),
        tick: tick_in_nanoseconds(&histories.time_type)?,
        season_steps,
        series: series.len(),
    };
    if let Some(intervals) = &config.intervals {
        let errors = pooled_errors(&card, fitted, horizon_steps(config)?);
        card.intervals = Some(intervals.widths(errors)?);
    }
    let mut paths = None;
    if let (Some(reconcile), Some(hierarchy)) = (reconcile, &hierarchy) {
        let steps = horizon_steps(config)?;
        let reconciled =
            reconciled_paths(context, reconcile, &card, hierarchy, &all_fitted, steps)?;
        card.path_steps = Some(steps);
        paths = Some(reconciled);
    }
    let epoch = epoch_report(&card, series, fitted, paths.as_ref());
    report_only_epoch(context, &epoch, began, 0);
    let mut groups = series_report(series, fitted);
    groups.weights = learned_weights(config, &card);
    let forecasts = named_forecasts(series, fitted, paths);
    let mut parameters = 0;
    for named in &forecasts {
        parameters += named.path.len() as u64;
        for forecast in named.forecasts.iter().flatten() {
            parameters += 2 + forecast.season.len() as u64;
        }
    }
    let learned = TrainingReport {
        start: None,
        rows: context.rows.rows(),
        changes: RowLedger::default(),
        validation_rows: context.validation.map_or(0, |fed| fed.rows()),
        validation_changes: RowLedger::default(),
        parameters,
        epochs: vec![epoch],
        best_epoch: 0,
        batch_rows: 0,
        baseline: None,
        curve: Vec::new(),
        step_models: None,
        groups: Some(groups),
        importance: Vec::new(),
    };
    let files = write_series_model(context, &card, &learned, |words| {
        encode_forecasts(&card, &forecasts, words)
    })?;
    Ok(TrainingOutput {
        files,
        learned,
        rows_learned: histories.rows_learned,
        rows_validated: histories.rows_validated,
    })
}

/// Fails where errors on folds, which intervals come from, would take more than half of the memory.
fn check_fold_memory(
    context: &TrainingContext<'_>,
    settings: &FitSettings,
    series: usize,
) -> Result<()> {
    let Some(folds) = settings.folds.filter(|_| settings.keeps_fold_errors) else {
        return Ok(());
    };
    let errors = series as u64 * folds.count as u64 * folds.steps as u64;
    check_memory(
        context,
        errors * (FOLD_ERROR_BYTES + 8 * settings.methods.len() as u64),
    )
}

/// Fails where the models would take more than half of the memory: each series has room for a season in their file.
fn check_model_memory(memory_bytes: u64, settings: &FitSettings, series: usize) -> Result<()> {
    let of_series = settings.methods.len() as u64 * settings.season_steps as u64;
    // The numbers of the file, and its bytes.
    let bytes = 2 * 8 * of_series * series as u64;
    let limit = memory_bytes / 2;
    if bytes <= limit {
        return Ok(());
    }
    let message = format!(
        "the seasons of {series} series would hold {} MiB, and may hold {}",
        bytes.div_ceil(1 << 20),
        limit >> 20
    );
    Err(Fault::new(codes::MEMORY, message)
        .field("season")
        .hint("give a shorter `season`, or raise --memory"))
}

/// The errors of the combined forecasts on folds, without sign, by step.
fn pooled_errors(card: &SeriesCard, fitted: &[FittedSeries], steps: usize) -> Vec<Vec<f64>> {
    let mut by_step = vec![Vec::new(); steps];
    for fold_error in fitted.iter().flat_map(|result| &result.fold_errors) {
        let errors: Vec<Option<f64>> = fold_error.errors.iter().copied().map(Some).collect();
        if let Some(pooled) = by_step.get_mut(fold_error.step) {
            pooled.push(card.combined(&errors).abs());
        }
    }
    by_step
}

/// The hierarchy of the series, where their forecasts are to add up.
fn read_hierarchy(
    config: &SeriesModelConfig,
    context: &TrainingContext<'_>,
    series: &[SeriesValues],
) -> Result<Option<SeriesHierarchy>> {
    let Some(reconcile) = &config.reconcile else {
        return Ok(None);
    };
    let hierarchy = SeriesHierarchy::new(reconcile, &config.by, series)?;
    check_reconcile_memory(context, &hierarchy, horizon_steps(config)?)?;
    Ok(Some(hierarchy))
}

fn horizon_steps(config: &SeriesModelConfig) -> Result<usize> {
    config
        .horizon_steps()
        .map_err(|error| error.into_fault("train"))
}

/// The forecasts of each series: those of its models, or its path.
fn named_forecasts(
    series: &[SeriesValues],
    fitted: &[FittedSeries],
    paths: Option<ReconciledPaths>,
) -> Vec<NamedForecast> {
    let is_reconciled = paths.is_some();
    let mut paths = paths.map_or(Vec::new(), |paths| paths.last).into_iter();
    let mut forecasts = Vec::with_capacity(series.len());
    for (values, result) in series.iter().zip(fitted) {
        forecasts.push(NamedForecast {
            name: values.name.clone(),
            last: values.last,
            forecasts: if is_reconciled {
                Vec::new()
            } else {
                result.forecasts.clone()
            },
            path: paths.next().unwrap_or_default(),
            unit: result.unit,
        });
    }
    forecasts
}

/// The combination of the methods of an ensemble; `None` of a model of one method. Learned weights come from the errors
/// of all series.
fn ensemble_of(config: &SeriesModelConfig, fitted: &[FittedSeries]) -> Option<EnsembleCard> {
    if config.model != SeriesModelKind::Ensemble {
        return None;
    }
    let members = config.of.len();
    let weights = match config.weights {
        EnsembleWeights::Mean => Some(vec![1.0 / members as f64; members]),
        EnsembleWeights::Median => None,
        EnsembleWeights::Nnls => {
            let mut products = ErrorProducts::new(members);
            for result in fitted {
                products.merge(&result.products);
            }
            Some(products.weights())
        }
    };
    Some(EnsembleCard {
        of: config.of.clone(),
        weights,
    })
}

/// Learned weights of an ensemble, by method.
fn learned_weights(config: &SeriesModelConfig, card: &SeriesCard) -> BTreeMap<String, f64> {
    let mut weights = BTreeMap::new();
    if config.weights != EnsembleWeights::Nnls {
        return weights;
    }
    let Some(ensemble) = &card.ensemble else {
        return weights;
    };
    for (method, weight) in ensemble.of.iter().zip(ensemble.weights.iter().flatten()) {
        weights.insert(method.name().to_owned(), *weight);
    }
    weights
}

/// Warns of steps without a row, which count with values that no row has.
fn warn_of_filled_steps(context: &TrainingContext<'_>, series: &[SeriesValues]) {
    let mut steps = 0;
    let mut series_with_gaps = 0;
    for values in series.iter().filter(|values| values.filled > 0) {
        steps += values.filled;
        series_with_gaps += 1;
    }
    if steps == 0 {
        return;
    }
    let message = format!(
        "`{}`: {steps} steps of {series_with_gaps} series have no row, and count with values on \
         the line between their neighbours",
        context.sink()
    );
    context.emit(Event::Warning { message });
}

/// The mean loss of all models, and the errors of forecasts on validation rows.
fn epoch_report(
    card: &SeriesCard,
    series: &[SeriesValues],
    fitted: &[FittedSeries],
    paths: Option<&ReconciledPaths>,
) -> EpochReport {
    let mut loss = 0.0;
    let mut models = 0.0;
    let mut errors = ForecastErrors::default();
    for (number, (values, result)) in series.iter().zip(fitted).enumerate() {
        if let Ok(model) = &result.model {
            loss += model.loss;
            models += 1.0;
        }
        let path = paths.map(|paths| &paths.early[number]);
        let of_series = match path {
            Some(path) => ForecastErrors::of(&|step| path.get(step as usize - 1).copied(), values),
            None => ForecastErrors::of(&|step| Some(card.value(&result.early, step)), values),
        };
        errors.add(of_series);
    }
    EpochReport {
        epoch: 0,
        step: 0,
        loss: if models > 0.0 { loss / models } else { 0.0 },
        learning_rate: 0.0,
        rounds: None,
        validation: errors.metrics(),
    }
}

/// Numbers of series with and without a model.
fn series_report(series: &[SeriesValues], fitted: &[FittedSeries]) -> GroupTrainingReport {
    let mut report = GroupTrainingReport {
        groups: series.len() as u64,
        ..GroupTrainingReport::default()
    };
    for (values, result) in series.iter().zip(fitted) {
        let reason = match &result.model {
            Ok(model) => {
                report.trained += 1;
                if let Some(form) = &model.form {
                    *report.forms.entry(form.clone()).or_default() += 1;
                }
                continue;
            }
            Err(reason) => reason,
        };
        report.fallbacks += 1;
        if report.fallback_reasons.len() < REASONS_MAX {
            report.fallback_reasons.push(GroupFallback {
                group: values.name.clone(),
                rows: values.rows,
                reason: reason.clone(),
                predicted_by: "its last value".to_owned(),
            });
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use forebay_series::theta::ThetaVariant;

    use super::*;
    use crate::series::intervals::SeriesIntervals;
    use crate::series::method::SeriesMethod;

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

    fn fit_all(config: &SeriesModelConfig, all: &[SeriesValues]) -> Vec<FittedSeries> {
        let settings = FitSettings {
            methods: config.methods(),
            variant: config.variant,
            season_steps: 1,
            folds: config.fit_folds().unwrap(),
            keeps_fold_errors: config.intervals.is_some(),
            keeps_errors: false,
        };
        let fitted = all
            .iter()
            .map(|series| fit_series(&settings, series, &|| Ok(())));
        fitted.collect::<Result<_>>().unwrap()
    }

    fn config(model: SeriesModelKind) -> SeriesModelConfig {
        SeriesModelConfig {
            model,
            time: "date".to_owned(),
            every: "1d".to_owned(),
            ..SeriesModelConfig::default()
        }
    }

    fn card(config: &SeriesModelConfig, fitted: &[FittedSeries]) -> SeriesCard {
        SeriesCard {
            kind: config.model,
            variant: config.variant,
            ensemble: ensemble_of(config, fitted),
            path_steps: None,
            intervals: None,
            by: Vec::new(),
            time: "date".to_owned(),
            every: "1d".to_owned(),
            tick: None,
            season_steps: 1,
            series: fitted.len(),
        }
    }

    #[test]
    fn errors_are_those_of_forecasts_after_the_last_learned_value() {
        let all = [series(vec![1.0, 2.0, 9.0, 4.0], 3)];
        let theta = config(SeriesModelKind::Theta);
        let fitted = fit_all(&theta, &all);
        let card = card(&theta, &fitted);
        let early = &fitted[0].early;
        let errors = ForecastErrors::of(&|step| Some(card.value(early, step)), &all[0]);
        assert!((errors.absolute - 5.0).abs() < 1e-12);
        assert!((errors.rows - 1.0).abs() < 1e-12);
    }

    #[test]
    fn long_seasons_of_many_series_need_memory() {
        let settings = FitSettings {
            methods: vec![SeriesMethod::Theta, SeriesMethod::Ets],
            variant: ThetaVariant::Standard,
            season_steps: 8192,
            folds: None,
            keeps_fold_errors: false,
            keeps_errors: false,
        };
        // 256 KiB for each series.
        assert!(check_model_memory(1 << 30, &settings, 2048).is_ok());
        let fault = check_model_memory(1 << 30, &settings, 2049).unwrap_err();
        assert_eq!(fault.code(), codes::MEMORY);
        assert_eq!(fault.site().field.as_deref(), Some("season"));
    }

    #[test]
    fn forms_are_counted() {
        let rising = [10, 12, 14, 13, 17, 18, 21, 20, 24, 26, 27, 30].map(f64::from);
        let all = [
            series(rising.to_vec(), 12),
            series(vec![1.0; 3], 3),
            series(vec![2.0; 9], 9),
        ];
        let fitted = fit_all(&config(SeriesModelKind::Ets), &all);
        let report = series_report(&all, &fitted);
        assert_eq!(report.trained, 2);
        assert_eq!(report.fallbacks, 1);
        assert_eq!(
            report.fallback_reasons[0].reason,
            "3 steps are fewer than 5"
        );
        let forms = BTreeMap::from([("A,A,N".to_owned(), 1), ("A,N,N".to_owned(), 1)]);
        assert_eq!(report.forms, forms);
    }

    #[test]
    fn weights_are_learned_from_all_series() {
        let line: Vec<f64> = (0..20).map(|step| 5.0 + 2.0 * f64::from(step)).collect();
        let all = [series(line, 20), series(vec![3.0; 3], 3)];
        let mut ensemble = SeriesModelConfig {
            of: vec![SeriesMethod::SeasonalNaive, SeriesMethod::Ets],
            weights: EnsembleWeights::Nnls,
            horizon: Some("2d".to_owned()),
            ..config(SeriesModelKind::Ensemble)
        };
        let fitted = fit_all(&ensemble, &all);
        let learned = card(&ensemble, &fitted);
        let weights = learned_weights(&ensemble, &learned);
        assert!((weights["ets"] - 1.0).abs() < 1e-6, "{weights:?}");
        assert!((learned.value(&fitted[0].forecasts, 1) - 45.0).abs() < 1e-3);
        // A series that is too short for a method has the forecast of the other.
        assert!((learned.value(&fitted[1].forecasts, 1) - 3.0).abs() < 1e-12);
        ensemble.weights = EnsembleWeights::Mean;
        ensemble.horizon = None;
        let mean = card(&ensemble, &fitted);
        assert!((mean.value(&fitted[0].forecasts, 1) - 44.0).abs() < 1e-3);
        assert!(learned_weights(&ensemble, &mean).is_empty());
    }

    #[test]
    fn widths_come_from_the_errors_of_all_series() {
        let line: Vec<f64> = (0..20).map(|step| 5.0 + 2.0 * f64::from(step)).collect();
        let steep: Vec<f64> = line.iter().map(|value| value * 100.0).collect();
        let all = [series(line, 20), series(steep, 20)];
        let ensemble = SeriesModelConfig {
            of: vec![SeriesMethod::SeasonalNaive, SeriesMethod::Ets],
            horizon: Some("2d".to_owned()),
            folds: Some(2),
            intervals: Some(SeriesIntervals { levels: vec![80.0] }),
            ..config(SeriesModelKind::Ensemble)
        };
        let fitted = fit_all(&ensemble, &all);
        let card = card(&ensemble, &fitted);
        // The naive forecast is wrong by one and two differences, its mean with the other by half of that.
        let errors = pooled_errors(&card, &fitted, 2);
        for (errors, expected) in errors.iter().zip([0.5, 1.0]) {
            assert_eq!(errors.len(), 4);
            for error in errors {
                assert!((error - expected).abs() < 1e-6, "{error}, not {expected}");
            }
        }
        assert!((fitted[1].unit - 200.0).abs() < 1e-9);
    }
}
