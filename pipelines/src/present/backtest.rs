//! Backtests, for people.

use std::process::ExitCode;

use forebay_model::Result;
use forebay_run::{BacktestReport, BacktestedForecast, ForecastScore, ForecasterScores};
use serde_json::json;

use super::report::RunReporter;
use super::units;
use crate::cli;

/// Lines of a table at most; the JSON summary has all.
const LINES_MAX: usize = 60;

/// Prints the scores; gives the exit code.
pub(crate) fn report(reporter: &RunReporter, done: Result<BacktestReport>) -> Result<ExitCode> {
    match done {
        Err(fault) => reporter.failed(fault, json!({})),
        Ok(found) if reporter.json() => reporter.done(&json!({ "backtest": found })),
        Ok(found) => {
            cli::write_text(&text(&found))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn text(found: &BacktestReport) -> String {
    found
        .forecasts
        .iter()
        .map(|forecast| forecast_text(found, forecast))
        .collect()
}

fn forecast_text(found: &BacktestReport, forecast: &BacktestedForecast) -> String {
    let mut text = format!(
        "{}: {} in {}\n\n",
        forecast.sink,
        found.label,
        units::counted(found.folds.len() as u64, "fold")
    );
    let all = &forecast.forecasters;
    text += &scores_table(
        "",
        all.iter()
            .map(|scores| (scores.forecaster.clone(), scores.overall.clone())),
    );
    text += &quantiles_table(all);
    for scores in all.iter().filter(|scores| scores.missing > 0) {
        text += &format!(
            "{} of {} have no value to compare with\n",
            units::rows(scores.missing),
            scores.forecaster
        );
    }
    let folds = found.folds.iter().map(|fold| fold.known_before.clone());
    text += &wmape_table("known before", folds, all, |scores| scores.folds.clone());
    let steps = all
        .first()
        .map(|scores| scores.steps.clone())
        .unwrap_or_default();
    text += &wmape_table(
        "step",
        steps.iter().map(|step| step.step.to_string()),
        all,
        |scores| scores.steps.iter().map(|step| step.score.clone()).collect(),
    );
    if !forecast.by.is_empty() {
        let groups = all
            .first()
            .map(|scores| scores.groups.clone())
            .unwrap_or_default();
        let name = |group: &[Option<String>]| {
            group
                .iter()
                .map(|value| value.as_deref().unwrap_or("null"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        text += &wmape_table(
            &forecast.by.join(", "),
            groups.iter().map(|group| name(&group.group)),
            all,
            |scores| {
                scores
                    .groups
                    .iter()
                    .map(|group| group.score.clone())
                    .collect()
            },
        );
    }
    text
}

/// All measures, a line for each name.
fn scores_table(title: &str, lines: impl Iterator<Item = (String, ForecastScore)>) -> String {
    let head = ["wMAPE", "RMSE", "MAE", "bias", "rows"].map(str::to_owned);
    let line = |(name, score): (String, ForecastScore)| {
        let cells = [score.wmape, score.rmse, score.mae, score.bias]
            .map(number)
            .into_iter();
        (name, cells.chain([units::grouped(score.rows)]).collect())
    };
    table(title, &head, lines.map(line).collect())
}

/// Pinball losses and coverage, a line for each quantile and central interval.
fn quantiles_table(forecasters: &[ForecasterScores]) -> String {
    let Some(first) = forecasters
        .first()
        .filter(|scores| !scores.overall.quantiles.is_empty())
    else {
        return String::new();
    };
    let head: Vec<String> = forecasters
        .iter()
        .map(|scores| scores.forecaster.clone())
        .collect();
    let cells = |of: &dyn Fn(&ForecastScore) -> Option<f64>| {
        forecasters
            .iter()
            .map(|scores| number(of(&scores.overall)))
            .collect::<Vec<_>>()
    };
    let mut lines = Vec::new();
    for (at, quantile) in first.overall.quantiles.iter().enumerate() {
        let name = format!("pinball loss of {}", quantile.quantile);
        lines.push((name, cells(&|score| score.quantiles.get(at)?.pinball)));
    }
    for (at, interval) in first.overall.intervals.iter().enumerate() {
        let name = format!("coverage of {}", interval.level);
        lines.push((name, cells(&|score| score.intervals.get(at)?.coverage)));
    }
    format!("\n{}", table("quantiles", &head, lines))
}

/// The wMAPE of each forecaster, a line for each of `names`.
fn wmape_table(
    title: &str,
    names: impl Iterator<Item = String>,
    forecasters: &[ForecasterScores],
    scores: impl Fn(&ForecasterScores) -> Vec<ForecastScore>,
) -> String {
    let head: Vec<String> = forecasters
        .iter()
        .map(|scores| format!("wMAPE {}", scores.forecaster))
        .collect();
    let columns: Vec<Vec<ForecastScore>> = forecasters.iter().map(scores).collect();
    let line = |(at, name): (usize, String)| {
        let cell =
            |column: &Vec<ForecastScore>| number(column.get(at).and_then(|score| score.wmape));
        (name, columns.iter().map(cell).collect())
    };
    format!(
        "\n{}",
        table(title, &head, names.enumerate().map(line).collect())
    )
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}

fn table(title: &str, head: &[String], lines: Vec<(String, Vec<String>)>) -> String {
    let first = lines
        .iter()
        .map(|(name, _)| name.chars().count())
        .chain([title.len()])
        .max()
        .unwrap_or(0);
    let width = |column: usize| {
        let cells = lines
            .iter()
            .filter_map(|(_, cells)| cells.get(column))
            .map(String::len);
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let row = |name: &str, cells: &[String]| {
        let cells = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("  {cell:>width$}"));
        format!("{name:<first$}{}\n", cells.collect::<String>())
    };
    let mut text = row(title, head);
    lines
        .iter()
        .take(LINES_MAX)
        .for_each(|(name, cells)| text += &row(name, cells));
    if lines.len() > LINES_MAX {
        text += &format!(
            "... and {} more: `--json` tells all\n",
            lines.len() - LINES_MAX
        );
    }
    text
}
