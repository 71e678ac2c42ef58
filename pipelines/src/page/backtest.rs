//! The page of a backtest.

use forebay_run::{BacktestReport, BacktestedForecast, ForecastScore};

use super::backtest_charts::{bias_bars, bias_chart, group_name, total_charts};
use super::backtest_residuals::residual_charts;
use super::backtest_series::series_charts;
use super::charts::{self, Line};
use super::{Block, Cell, Page, drawn};
use crate::present::units;

/// Groups that are shown; the JSON summary has all.
const GROUPS_SHOWN: usize = 200;

/// A page with scores and curves of a backtest.
pub(crate) fn backtest_page(report: &BacktestReport) -> Page {
    let folds = units::counted(report.folds.len() as u64, "fold");
    scores_page(report, format!("Backtest of {}", report.label), folds)
}

/// A page with scores and curves of a published forecast.
pub(crate) fn score_page(report: &BacktestReport) -> Page {
    let begins = report.folds.iter().map(|fold| &fold.known_before);
    let begins: Vec<&str> = begins.map(String::as_str).collect();
    let subtitle = format!("forecast from {} on", begins.join(", "));
    scores_page(report, format!("Score of {}", report.label), subtitle)
}

fn scores_page(report: &BacktestReport, title: String, subtitle: String) -> Page {
    let mut page = Page {
        title,
        subtitle,
        ..Page::default()
    };
    let mut scores = Vec::new();
    let mut totals = Vec::new();
    let mut residuals = Vec::new();
    let mut steps = Vec::new();
    let mut groups = Vec::new();
    for forecast in &report.forecasts {
        scores.push(Block::heading(forecast.sink.clone()));
        for interval in &forecast.coverage {
            scores.push(Block::text(format!("{}.", interval.summary)));
        }
        scores.push(scores_table(forecast));
        scores.extend(quantiles_table(forecast));
        scores.push(folds_table(report, forecast));
        totals.extend(total_charts(report, forecast));
        totals.extend(series_charts(report, forecast));
        residuals.extend(residual_charts(report, forecast));
        let curve = forecast.forecasters.iter().map(|forecaster| Line {
            name: forecaster.forecaster.clone(),
            points: forecaster
                .steps
                .iter()
                .filter_map(|step| Some((step.step as f64, step.score.wmape?)))
                .collect(),
        });
        let curve: Vec<Line> = curve.collect();
        if let Some(svg) = drawn(|| charts::lines("step of the horizon", "wMAPE", &curve)) {
            let label = format!("wMAPE of {} by step of the horizon", forecast.sink);
            steps.push(Block::Chart {
                label,
                class: "chart",
                svg,
            });
        }
        steps.extend(bias_chart(forecast));
        steps.extend(coverage_table(forecast));
        groups.extend(bias_bars(forecast));
        groups.extend(groups_table(forecast));
    }
    page.add("scores", "Scores", scores);
    page.add("actual", "Actual and predicted", totals);
    page.add("residuals", "Errors", residuals);
    page.add("steps", "By step of the horizon", steps);
    page.add("groups", "By group", groups);
    page
}

fn number(value: Option<f64>) -> Cell {
    Cell::number(value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}")))
}

fn score_cells(name: String, score: &ForecastScore) -> Vec<Cell> {
    let measures = [score.wmape, score.rmse, score.mae, score.bias].map(number);
    [Cell::text(name)]
        .into_iter()
        .chain(measures)
        .chain([Cell::number(units::grouped(score.rows))])
        .collect()
}

fn scores_table(forecast: &BacktestedForecast) -> Block {
    let rows = forecast
        .forecasters
        .iter()
        .map(|scores| score_cells(scores.forecaster.clone(), &scores.overall));
    Block::table(
        "Scores",
        &["", "#wMAPE", "#RMSE", "#MAE", "#bias", "#rows"],
        rows.collect(),
    )
}

/// Pinball losses and coverage, a line for each quantile and central interval.
fn quantiles_table(forecast: &BacktestedForecast) -> Option<Block> {
    let overall = &forecast.forecasters.first()?.overall;
    if overall.quantiles.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    for (at, quantile) in overall.quantiles.iter().enumerate() {
        let name = format!("pinball loss of {}", quantile.quantile);
        lines.push(measure_line(forecast, name, |score| {
            score.quantiles.get(at)?.pinball
        }));
    }
    for (at, interval) in overall.intervals.iter().enumerate() {
        let name = format!("coverage of {}", interval.level);
        lines.push(measure_line(forecast, name, |score| {
            score.intervals.get(at)?.coverage
        }));
    }
    let mut names = vec![String::new()];
    for scores in &forecast.forecasters {
        names.push(format!("#{}", scores.forecaster));
    }
    let head: Vec<&str> = names.iter().map(String::as_str).collect();
    Some(Block::table(
        "Quantiles and the central intervals between them",
        &head,
        lines,
    ))
}

/// Coverage of the model's intervals, a line for each step of the horizon.
fn coverage_table(forecast: &BacktestedForecast) -> Option<Block> {
    let first = forecast.coverage.first()?;
    let mut names = vec!["#step".to_owned()];
    for interval in &forecast.coverage {
        names.push(format!("#coverage of {}", interval.level));
    }
    names.push("#values".to_owned());
    let mut lines = Vec::with_capacity(first.steps.len());
    for (line, step) in first.steps.iter().enumerate() {
        let mut cells = vec![Cell::measure(step.step.to_string(), step.step as f64)];
        for interval in &forecast.coverage {
            let of_step = interval.steps.get(line);
            cells.push(number(of_step.and_then(|step| step.coverage)));
        }
        cells.push(Cell::number(units::grouped(step.rows)));
        lines.push(cells);
    }
    let head: Vec<&str> = names.iter().map(String::as_str).collect();
    let label = format!("Coverage of {} by step of the horizon", forecast.sink);
    Some(Block::table(&label, &head, lines))
}

/// A measure of each forecaster behind its name.
fn measure_line(
    forecast: &BacktestedForecast,
    name: String,
    measure: impl Fn(&ForecastScore) -> Option<f64>,
) -> Vec<Cell> {
    let mut cells = vec![Cell::text(name)];
    for scores in &forecast.forecasters {
        cells.push(number(measure(&scores.overall)));
    }
    cells
}

fn folds_table(report: &BacktestReport, forecast: &BacktestedForecast) -> Block {
    let mut rows = Vec::new();
    for (number_of_fold, fold) in report.folds.iter().enumerate() {
        for scores in &forecast.forecasters {
            let score = scores
                .folds
                .get(number_of_fold)
                .cloned()
                .unwrap_or_default();
            let name = format!("{}, known before {}", scores.forecaster, fold.known_before);
            rows.push(score_cells(name, &score));
        }
    }
    Block::table(
        "Scores by fold",
        &["", "#wMAPE", "#RMSE", "#MAE", "#bias", "#rows"],
        rows,
    )
}

fn groups_table(forecast: &BacktestedForecast) -> Option<Block> {
    let model = forecast
        .forecasters
        .first()
        .filter(|model| !model.groups.is_empty())?;
    let rows = model
        .groups
        .iter()
        .take(GROUPS_SHOWN)
        .map(|group| score_cells(group_name(&group.group), &group.score));
    Some(Block::table(
        "Scores by group",
        &["", "#wMAPE", "#RMSE", "#MAE", "#bias", "#rows"],
        rows.collect(),
    ))
}
