//! Forecasts of all steps of the horizon that add up over a hierarchy of series.

use forebay_contract::TrainingContext;
use forebay_model::{Fault, Result, codes};
use forebay_series::forecast::SeriesForecast;
use forebay_series::reconcile::{ReconcileMethod, Reconciler};
use forebay_storage::Event;

use super::fitted::{ERRORS_MAX, FittedSeries};
use super::hierarchy::SeriesHierarchy;
use super::model::SeriesCard;
use super::reconcile_config::ReconcileConfig;

/// Errors of one step that a covariance needs at least.
const ERRORS_MIN: usize = 3;

/// Forecasts of bottom series, step by step.
pub struct ReconciledPaths {
    /// The forecasts after the last value.
    pub last: Vec<Vec<f64>>,
    /// The forecasts after the last value to learn from.
    pub early: Vec<Vec<f64>>,
}

/// Fails where a reconciliation would take more than half of the memory.
pub fn check_reconcile_memory(
    context: &TrainingContext<'_>,
    hierarchy: &SeriesHierarchy,
    steps: usize,
) -> Result<()> {
    let uppers = hierarchy.uppers.len() as u64;
    let series = uppers + hierarchy.hierarchy.bottoms as u64;
    let values: usize = hierarchy
        .uppers
        .iter()
        .map(|upper| upper.values.len())
        .sum();
    // Errors are copied: as far as all series have them, centred, standardised, and less those of bottom series.
    let of_series = 5 * ERRORS_MAX as u64 + 2 * steps as u64;
    let triangle = uppers * uppers / 2;
    let numbers = triangle + series * of_series + values as u64;
    let limit = context.memory_bytes / 2;
    if numbers * 8 <= limit {
        return Ok(());
    }
    let message = format!(
        "the reconciliation of {series} series would hold {} MiB, and may hold {}",
        (numbers * 8).div_ceil(1 << 20),
        limit >> 20
    );
    Err(Fault::new(codes::MEMORY, message)
        .hint("leave levels out of `reconcile.by`, or raise --memory"))
}

/// Reconciles the forecasts of `steps` steps. The models of upper series come first, as the card combines their methods.
pub fn reconciled_paths(
    context: &TrainingContext<'_>,
    config: &ReconcileConfig,
    card: &SeriesCard,
    hierarchy: &SeriesHierarchy,
    fitted: &[FittedSeries],
    steps: usize,
) -> Result<ReconciledPaths> {
    let errors = common_errors(fitted);
    let count = errors.first().map_or(0, Vec::len);
    if config.method == ReconcileMethod::MintShrink && count < ERRORS_MIN {
        let message = format!(
            "`{}`: the series have {count} steps with errors in common, too few for a covariance, \
             so that errors of all series count alike",
            context.sink()
        );
        context.emit(Event::Warning { message });
    }
    let check = || context.check();
    let reconciler = Reconciler::new(&hierarchy.hierarchy, config.method, &errors, &check)?;
    let last: Vec<&[Option<SeriesForecast>]> =
        fitted.iter().map(|fitted| &fitted.forecasts[..]).collect();
    let early: Vec<&[Option<SeriesForecast>]> =
        fitted.iter().map(|fitted| &fitted.early[..]).collect();
    let uppers = hierarchy.uppers.len();
    let reconciler = reconciler.as_ref();
    Ok(ReconciledPaths {
        last: bottom_paths(reconciler, card, uppers, &last, steps, &check)?,
        early: bottom_paths(reconciler, card, uppers, &early, steps, &check)?,
    })
}

/// The last errors of each series, as many as all of them have.
fn common_errors(fitted: &[FittedSeries]) -> Vec<Vec<f64>> {
    let count = fitted.iter().map(|fitted| fitted.errors.len()).min();
    let count = count.unwrap_or(0);
    let mut errors = Vec::with_capacity(fitted.len());
    for series in fitted {
        errors.push(series.errors[series.errors.len() - count..].to_vec());
    }
    errors
}

/// Forecasts of the bottom series, step by step.
fn bottom_paths(
    reconciler: Option<&Reconciler<'_>>,
    card: &SeriesCard,
    uppers: usize,
    forecasts: &[&[Option<SeriesForecast>]],
    steps: usize,
    check: &dyn Fn() -> Result<()>,
) -> Result<Vec<Vec<f64>>> {
    let mut paths = vec![Vec::new(); forecasts.len() - uppers];
    for step in 1..=steps as u64 {
        check()?;
        let mut values: Vec<f64> = forecasts
            .iter()
            .map(|forecasts| card.value(forecasts, step))
            .collect();
        if let Some(reconciler) = reconciler {
            reconciler.reconcile(&mut values);
        }
        for (path, value) in paths.iter_mut().zip(&values[uppers..]) {
            path.push(*value);
        }
    }
    Ok(paths)
}
