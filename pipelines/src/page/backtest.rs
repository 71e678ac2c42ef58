//! The page of a backtest.

use forebay_run::{BacktestReport, BacktestedForecast, ForecastScore};

use super::charts::{self, Line};
use super::{Block, Cell, Page, drawn};
use crate::present::units;

/// Groups that are shown; the JSON summary has all.
const GROUPS_SHOWN: usize = 200;

/// A page with scores and curves.
pub(crate) fn backtest_page(report: &BacktestReport) -> Page {
    let folds = units::counted(report.folds.len() as u64, "fold");
    let mut page = Page {
        title: format!("Backtest of {}", report.label),
        subtitle: folds,
        ..Page::default()
    };
    let mut scores = Vec::new();
    let mut steps = Vec::new();
    let mut groups = Vec::new();
    for forecast in &report.forecasts {
        scores.push(Block::Heading {
            text: forecast.sink.clone(),
        });
        scores.push(scores_table(forecast));
        scores.extend(quantiles_table(forecast));
        scores.push(folds_table(report, forecast));
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
        groups.extend(groups_table(forecast));
    }
    page.add("scores", "Scores", scores);
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
        .map(|known| score_cells(known.forecaster.clone(), &known.overall));
    Block::table(
        "Scores",
        &["", "#wMAPE", "#RMSE", "#MAE", "#bias", "#rows"],
        rows.collect(),
    )
}

/// Pinball losses and coverage, a line for each quantile and central interval.
fn quantiles_table(forecast: &BacktestedForecast) -> Option<Block> {
    let first = &forecast
        .forecasters
        .first()
        .filter(|known| !known.overall.quantiles.is_empty())?
        .overall;
    let names: Vec<String> = forecast
        .forecasters
        .iter()
        .map(|known| format!("#{}", known.forecaster))
        .collect();
    let head: Vec<&str> = std::iter::once("")
        .chain(names.iter().map(String::as_str))
        .collect();
    let line = |name: String, of: &dyn Fn(&ForecastScore) -> Option<f64>| {
        let cells = forecast
            .forecasters
            .iter()
            .map(|known| number(of(&known.overall)));
        std::iter::once(Cell::text(name))
            .chain(cells)
            .collect::<Vec<_>>()
    };
    let quantiles = first.quantiles.iter().enumerate().map(|(at, known)| {
        line(format!("pinball loss of {}", known.quantile), &|score| {
            score.quantiles.get(at)?.pinball
        })
    });
    let intervals = first.intervals.iter().enumerate().map(|(at, known)| {
        line(format!("coverage of {}", known.level), &|score| {
            score.intervals.get(at)?.coverage
        })
    });
    Some(Block::table(
        "Quantiles and the central intervals between them",
        &head,
        quantiles.chain(intervals).collect(),
    ))
}

fn folds_table(report: &BacktestReport, forecast: &BacktestedForecast) -> Block {
    let mut rows = Vec::new();
    for (number_of_fold, fold) in report.folds.iter().enumerate() {
        for known in &forecast.forecasters {
            let score = known.folds.get(number_of_fold).cloned().unwrap_or_default();
            let name = format!("{}, known before {}", known.forecaster, fold.known_before);
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
    let rows = model.groups.iter().take(GROUPS_SHOWN).map(|group| {
        let name = group
            .group
            .iter()
            .map(|value| value.as_deref().unwrap_or("null"))
            .collect::<Vec<_>>()
            .join(", ");
        score_cells(name, &group.score)
    });
    Some(Block::table(
        "Scores by group",
        &["", "#wMAPE", "#RMSE", "#MAE", "#bias", "#rows"],
        rows.collect(),
    ))
}
