//! Distributions of the errors of a backtest.

use forebay_run::{BacktestReport, BacktestedForecast, HistogramBin};

use super::backtest_charts::{first_shown, folds_left_out};
use super::charts::histogram;
use super::{Block, SmallChart, drawn};
use crate::present::units;

/// Distributions of the errors of the model, one for each fold over the same bins.
pub(super) fn residual_charts(
    report: &BacktestReport,
    forecast: &BacktestedForecast,
) -> Vec<Block> {
    let Some(residuals) = &forecast.residuals else {
        return Vec::new();
    };
    let folds = report.folds.len();
    let mut charts = Vec::new();
    let fold_counts = report.folds.iter().zip(&residuals.folds);
    for (fold, counts) in fold_counts.skip(first_shown(folds)) {
        let bins = error_bins(&residuals.ends, counts);
        if let Some(svg) = drawn(|| histogram(&bins)) {
            let title = format!("Known before {}", fold.known_before);
            let errors = units::counted(counts.iter().sum(), "error");
            let label = format!("{title}: distribution of {errors}");
            charts.push(SmallChart { title, label, svg });
        }
    }
    if charts.is_empty() {
        return Vec::new();
    }
    let heading = format!("Errors of {} by fold: forecast less value", forecast.sink);
    let explanation = "The bars at both ends have the errors beyond them, too.";
    let mut blocks = vec![Block::heading(heading), Block::text(explanation)];
    blocks.extend(folds_left_out(folds));
    blocks.push(Block::Charts { charts });
    blocks
}

/// Shares of the errors of a fold; none of a fold without errors.
fn error_bins(ends: &[f64], counts: &[u64]) -> Vec<HistogramBin> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return Vec::new();
    }
    let mut bins = Vec::with_capacity(counts.len());
    for (bounds, count) in ends.windows(2).zip(counts) {
        bins.push(HistogramBin {
            lower: bounds[0],
            upper: bounds[1],
            share: *count as f64 / total as f64,
        });
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(lower: f64, upper: f64, share: f64) -> HistogramBin {
        HistogramBin {
            lower,
            upper,
            share,
        }
    }

    #[test]
    fn bins_have_the_shares_of_their_errors() {
        assert_eq!(
            error_bins(&[-2.0, -1.0, 0.0, 2.0], &[1, 0, 3]),
            [
                bin(-2.0, -1.0, 0.25),
                bin(-1.0, 0.0, 0.0),
                bin(0.0, 2.0, 0.75)
            ]
        );
        assert!(error_bins(&[-1.0, 0.0, 1.0], &[0, 0]).is_empty());
    }
}
