//! Backtests, for people.

use std::process::ExitCode;

use forebay_model::Result;
use forebay_run::{
    BacktestReport, BacktestedForecast, ForecastScore, ForecasterScores, IntervalCoverage,
    ScoreRule,
};
use serde_json::json;

use super::report::RunReporter;
use super::rows::blocks;
use super::standard_output::write_text;
use super::{output_columns, units};

/// Lines of a table at most; the JSON summary has all.
const LINES_MAX: usize = 60;

/// Prints the scores, in JSON under `name`; returns the exit code. Rules that do not hold are a fault.
pub(crate) fn report(
    reporter: &RunReporter,
    name: &str,
    done: Result<BacktestReport>,
) -> Result<ExitCode> {
    match done {
        Err(fault) => reporter.failed(fault, json!({})),
        Ok(scores) => {
            if !reporter.json() {
                write_text(&text(&scores))?;
            }
            let body = json!({ (name): scores });
            match scores.broken_rules() {
                Some(broken) => reporter.failed(broken, body),
                None if reporter.json() => reporter.done(&body),
                None => Ok(ExitCode::SUCCESS),
            }
        }
    }
}

fn text(report: &BacktestReport) -> String {
    let mut texts = Vec::with_capacity(report.forecasts.len());
    for forecast in &report.forecasts {
        texts.push(forecast_text(report, forecast));
    }
    texts.join("\n")
}

fn forecast_text(report: &BacktestReport, forecast: &BacktestedForecast) -> String {
    let mut text = format!(
        "{}: {} in {}\n",
        forecast.sink,
        report.label,
        units::counted(report.folds.len() as u64, "fold")
    );
    if let Some(summary) = &forecast.summary {
        text += &format!("{summary}\n");
    }
    for interval in &forecast.coverage {
        text += &format!("{}\n", interval.summary);
    }
    for rule in &forecast.rules {
        text += &rule_text(rule);
    }
    text += "\n";
    let forecasters = &forecast.forecasters;
    text += &scores_table(
        "",
        forecasters
            .iter()
            .map(|scores| (scores.forecaster.clone(), scores.overall.clone())),
    );
    text += &quantiles_table(forecasters);
    text += &coverage_table(&forecast.coverage);
    // All forecasters have the rows of the first one.
    let unscaled_rows = forecasters
        .first()
        .map_or(0, |scores| scores.overall.unscaled_rows);
    if unscaled_rows > 0 {
        text += &format!(
            "MASE and RMSSE leave out {} of series that do not change from season to season before \
             the first fold\n",
            units::rows(unscaled_rows)
        );
    }
    for scores in forecasters {
        if scores.missing > 0 {
            text += &format!(
                "{} of {} have no value to compare with\n",
                units::rows(scores.missing),
                scores.forecaster
            );
        }
    }
    let folds = report.folds.iter().map(|fold| fold.known_before.clone());
    text += &wmape_table("known before", folds, forecasters, |scores, line| {
        scores.folds.get(line)
    });
    // All forecasters have the steps and groups of the first one.
    let steps = forecasters.iter().take(1).flat_map(|first| &first.steps);
    let steps = steps.map(|step| step.step.to_string());
    text += &wmape_table("step", steps, forecasters, |scores, line| {
        scores.steps.get(line).map(|step| &step.score)
    });
    if !forecast.by.is_empty() {
        let title = forecast.by.join(", ");
        let groups = forecasters.iter().take(1).flat_map(|first| &first.groups);
        let groups = groups.map(|group| group_name(&group.group));
        text += &wmape_table(&title, groups, forecasters, |scores, line| {
            scores.groups.get(line).map(|group| &group.score)
        });
    }
    text
}

/// `expected skill of 0.2 at least: 0.25, holds`.
fn rule_text(rule: &ScoreRule) -> String {
    let bound = if rule.measure == "skill" {
        "at least"
    } else {
        "at most"
    };
    let state = match rule.holds {
        Some(true) => "holds",
        Some(false) => "does not hold",
        None => "cannot be judged, since no value came",
    };
    format!(
        "expected {} of {} {bound}: {}, {state}\n",
        rule.measure,
        rule.limit,
        number(rule.value)
    )
}

/// Table of all measures, with a line for each name.
fn scores_table(title: &str, lines: impl Iterator<Item = (String, ForecastScore)>) -> String {
    let names = [
        "wMAPE", "MASE", "RMSSE", "sMAPE", "RMSE", "MAE", "bias", "skill", "rows",
    ];
    let head = names.map(str::to_owned);
    let line = |(name, score): (String, ForecastScore)| {
        let measures = [
            score.wmape,
            score.mase,
            score.rmsse,
            score.smape,
            score.rmse,
            score.mae,
            score.bias,
            score.skill,
        ];
        let cells = measures.map(number).into_iter();
        (name, cells.chain([units::grouped(score.rows)]).collect())
    };
    table(title, &head, lines.map(line).collect())
}

/// Pinball losses and coverage, a line for each quantile and central interval.
fn quantiles_table(forecasters: &[ForecasterScores]) -> String {
    let Some(first) = forecasters.first() else {
        return String::new();
    };
    if first.overall.quantiles.is_empty() {
        return String::new();
    }
    let mut lines = Vec::new();
    for (at, quantile) in first.overall.quantiles.iter().enumerate() {
        let name = format!("pinball loss of {}", quantile.quantile);
        let cells = overall_cells(forecasters, |score| score.quantiles.get(at)?.pinball);
        lines.push((name, cells));
    }
    for (at, interval) in first.overall.intervals.iter().enumerate() {
        let name = format!("coverage of {}", interval.level);
        let cells = overall_cells(forecasters, |score| score.intervals.get(at)?.coverage);
        lines.push((name, cells));
        let name = format!("Winkler score of {}", interval.level);
        let cells = overall_cells(forecasters, |score| score.intervals.get(at)?.winkler);
        lines.push((name, cells));
    }
    let cells = overall_cells(forecasters, |score| score.crps);
    lines.push(("scaled CRPS".to_owned(), cells));
    let head: Vec<String> = forecasters
        .iter()
        .map(|scores| scores.forecaster.clone())
        .collect();
    format!("\n{}", table("quantiles", &head, lines))
}

/// Coverage of the model's intervals, a line for each step of the horizon behind one for all steps.
fn coverage_table(coverage: &[IntervalCoverage]) -> String {
    let Some(first) = coverage.first() else {
        return String::new();
    };
    let mut head = Vec::with_capacity(coverage.len() + 1);
    let mut overall = Vec::with_capacity(coverage.len() + 1);
    for interval in coverage {
        head.push(format!("coverage of {}", interval.level));
        overall.push(number(interval.coverage));
    }
    head.push("values".to_owned());
    let values: u64 = first.steps.iter().map(|step| step.rows).sum();
    overall.push(units::grouped(values));
    let mut lines = vec![("all".to_owned(), overall)];
    for (line, step) in first.steps.iter().enumerate() {
        let mut cells = Vec::with_capacity(coverage.len() + 1);
        for interval in coverage {
            let of_step = interval.steps.get(line);
            cells.push(number(of_step.and_then(|step| step.coverage)));
        }
        cells.push(units::grouped(step.rows));
        lines.push((step.step.to_string(), cells));
    }
    format!("\n{}", table("step", &head, lines))
}

/// A measure of each forecaster, over all folds.
fn overall_cells(
    forecasters: &[ForecasterScores],
    measure: impl Fn(&ForecastScore) -> Option<f64>,
) -> Vec<String> {
    forecasters
        .iter()
        .map(|scores| number(measure(&scores.overall)))
        .collect()
}

/// The wMAPE of each forecaster, a line for each of `names`. `score` finds a forecaster's score of a line.
fn wmape_table(
    title: &str,
    names: impl Iterator<Item = String>,
    forecasters: &[ForecasterScores],
    score: impl Fn(&ForecasterScores, usize) -> Option<&ForecastScore>,
) -> String {
    let mut head = Vec::with_capacity(forecasters.len());
    for scores in forecasters {
        head.push(format!("wMAPE {}", scores.forecaster));
    }
    let mut lines = Vec::new();
    for (line, name) in names.enumerate() {
        let mut cells = Vec::with_capacity(forecasters.len());
        for scores in forecasters {
            cells.push(number(score(scores, line).and_then(|score| score.wmape)));
        }
        lines.push((name, cells));
    }
    format!("\n{}", table(title, &head, lines))
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}

fn table(title: &str, head: &[String], lines: Vec<(String, Vec<String>)>) -> String {
    let columns = output_columns().unwrap_or(usize::MAX);
    table_within(columns, title, head, &lines)
}

/// A table of which the columns that do not fit next to each other follow below, behind the names
/// again.
fn table_within(
    columns: usize,
    title: &str,
    head: &[String],
    lines: &[(String, Vec<String>)],
) -> String {
    let mut name_width = title.len();
    let mut widths: Vec<usize> = head.iter().map(String::len).collect();
    for (name, cells) in lines {
        name_width = name_width.max(name.chars().count());
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::new();
    for block in blocks(&widths, columns.saturating_sub(name_width + 2)) {
        if block.start > 0 {
            text += "\n";
        }
        let widths = &widths[block.clone()];
        text += &table_row(title, &head[block.clone()], name_width, widths);
        for (name, cells) in lines.iter().take(LINES_MAX) {
            let cells = cells.get(block.clone()).unwrap_or_default();
            text += &table_row(name, cells, name_width, widths);
        }
    }
    if lines.len() > LINES_MAX {
        text += &format!(
            "... and {} more: `--json` tells all\n",
            lines.len() - LINES_MAX
        );
    }
    text
}

fn table_row(name: &str, cells: &[String], name_width: usize, widths: &[usize]) -> String {
    let mut row = format!("{name:<name_width$}");
    for (cell, width) in cells.iter().zip(widths) {
        row += &format!("  {cell:>width$}");
    }
    row + "\n"
}

fn group_name(values: &[Option<String>]) -> String {
    let mut names = Vec::with_capacity(values.len());
    for value in values {
        names.push(value.as_deref().unwrap_or("null"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::table_within;

    #[test]
    fn columns_that_do_not_fit_follow_below() {
        let head = ["wMAPE", "RMSE", "rows"].map(str::to_owned);
        let cells = ["0.2135", "32.8397", "4,864"].map(str::to_owned);
        let lines = [("trees".to_owned(), cells.to_vec())];
        let wide = "        wMAPE     RMSE   rows\ntrees  0.2135  32.8397  4,864\n";
        assert_eq!(table_within(29, "", &head, &lines), wide);
        let narrow =
            "        wMAPE     RMSE\ntrees  0.2135  32.8397\n\n        rows\ntrees  4,864\n";
        assert_eq!(table_within(28, "", &head, &lines), narrow);
    }
}
