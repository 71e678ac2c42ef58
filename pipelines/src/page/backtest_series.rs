//! Series of a backtest: actual values beside predictions, by time.

use std::collections::BTreeMap;

use forebay_run::{BacktestReport, BacktestedForecast, SampledPoint, SampledSeries};

use super::charts::{Line, LineChart};
use super::forecast::{SIZE, TIMES_MAX, has_dates, series_title, short_time, ticks_per_day};
use super::{Block, SmallChart, drawn};

/// Distance of two times of neighbouring folds, in the least distance of times, from which a line is broken.
const GAP: f64 = 1.5;

/// A point that breaks a line.
const BREAK: (f64, f64) = (f64::NAN, f64::NAN);

/// Charts of the series of a sample.
pub(super) fn series_charts(report: &BacktestReport, forecast: &BacktestedForecast) -> Vec<Block> {
    let mut charts = Vec::new();
    for series in &forecast.series {
        if let Some(svg) = drawn(|| chart(report, forecast, series)) {
            let title = series_title(&series.keys);
            let label = format!("{title}: actual and predicted values by time");
            charts.push(SmallChart { title, label, svg });
        }
    }
    if charts.is_empty() {
        return Vec::new();
    }
    let heading = format!("Series of {}", forecast.sink);
    let explanation = "Each upright line is the first time that a fold predicts.";
    vec![
        Block::heading(heading),
        Block::text(explanation),
        Block::Charts { charts },
    ]
}

fn chart(
    report: &BacktestReport,
    forecast: &BacktestedForecast,
    series: &SampledSeries,
) -> Option<String> {
    let per_day = ticks_per_day(forecast.time.data_type());
    let model = forecast.forecasters.first()?;
    let lines = [
        Line {
            name: format!("actual {}", report.label),
            points: actual_points(&series.points, per_day),
        },
        Line {
            name: model.forecaster.clone(),
            points: predicted_points(&series.points, per_day),
        },
    ];
    let is_dates = has_dates(forecast.time.data_type(), &lines);
    let x_text = |x: f64| {
        let text = forecast.time_text((x * per_day).round() as i64);
        short_time(text, is_dates)
    };
    LineChart {
        x_title: forecast.time.name(),
        y_title: "",
        lines: &lines,
        band: None,
        marks: &fold_begins(&series.points, per_day),
        x_text: &x_text,
        x_labels_max: TIMES_MAX,
        size: SIZE,
    }
    .draw()
}

/// Predictions by time, broken between folds that predict several steps.
fn predicted_points(points: &[SampledPoint], ticks_per_day: f64) -> Vec<(f64, f64)> {
    let is_broken = points.windows(2).any(|pair| pair[0].fold == pair[1].fold);
    let mut line = Vec::with_capacity(points.len());
    let mut fold: Option<usize> = None;
    for point in points {
        if is_broken && fold.is_some_and(|fold| fold != point.fold) {
            line.push(BREAK);
        }
        fold = Some(point.fold);
        if let Some(value) = point.predicted {
            line.push((point.tick as f64 / ticks_per_day, value));
        }
    }
    line
}

/// An actual value, and the first fold that predicts it.
struct ActualValue {
    fold: usize,
    value: f64,
}

/// Actual values by time, broken where times between two folds are missing. A time that several folds predict counts once.
fn actual_points(points: &[SampledPoint], ticks_per_day: f64) -> Vec<(f64, f64)> {
    let mut values: BTreeMap<i64, ActualValue> = BTreeMap::new();
    for point in points {
        if let Some(value) = point.actual {
            values.entry(point.tick).or_insert(ActualValue {
                fold: point.fold,
                value,
            });
        }
    }
    let ticks: Vec<i64> = values.keys().copied().collect();
    let distances = ticks.windows(2).map(|pair| pair[1] - pair[0]);
    let least_distance = distances.min().unwrap_or(0) as f64;
    let mut line = Vec::with_capacity(values.len());
    let mut last: Option<(i64, usize)> = None;
    for (tick, actual) in &values {
        if let Some((last_tick, last_fold)) = last
            && last_fold != actual.fold
            && (tick - last_tick) as f64 > GAP * least_distance
        {
            line.push(BREAK);
        }
        last = Some((*tick, actual.fold));
        line.push((*tick as f64 / ticks_per_day, actual.value));
    }
    line
}

/// The first time of each fold.
fn fold_begins(points: &[SampledPoint], ticks_per_day: f64) -> Vec<f64> {
    let mut begins = Vec::new();
    let mut fold: Option<usize> = None;
    for point in points {
        if fold != Some(point.fold) {
            fold = Some(point.fold);
            begins.push(point.tick as f64 / ticks_per_day);
        }
    }
    begins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(fold: usize, tick: i64, actual: Option<f64>, predicted: f64) -> SampledPoint {
        SampledPoint {
            fold,
            step: 1,
            time: tick.to_string(),
            tick,
            actual,
            predicted: Some(predicted),
        }
    }

    /// The points of a line, with `None` where it is broken.
    fn pieces(line: &[(f64, f64)]) -> Vec<Option<(f64, f64)>> {
        let points = line.iter();
        points
            .map(|point| Some(*point).filter(|(x, _)| x.is_finite()))
            .collect()
    }

    #[test]
    fn folds_are_drawn_apart() {
        // The second fold begins within the first, the third after a gap.
        let points = [
            point(0, 10, Some(1.0), 1.5),
            point(0, 11, Some(2.0), 2.5),
            point(1, 11, Some(2.0), 2.25),
            point(1, 12, Some(3.0), 3.25),
            point(2, 20, Some(4.0), 4.5),
            point(2, 21, None, 5.5),
        ];
        assert_eq!(
            pieces(&predicted_points(&points, 1.0)),
            [
                Some((10.0, 1.5)),
                Some((11.0, 2.5)),
                None,
                Some((11.0, 2.25)),
                Some((12.0, 3.25)),
                None,
                Some((20.0, 4.5)),
                Some((21.0, 5.5)),
            ]
        );
        assert_eq!(
            pieces(&actual_points(&points, 2.0)),
            [
                Some((5.0, 1.0)),
                Some((5.5, 2.0)),
                Some((6.0, 3.0)),
                None,
                Some((10.0, 4.0)),
            ]
        );
        assert_eq!(fold_begins(&points, 1.0), [10.0, 11.0, 20.0]);
    }

    #[test]
    fn folds_of_one_step_make_one_line() {
        let points = [point(0, 10, Some(1.0), 1.5), point(1, 11, Some(2.0), 2.5)];
        let line = predicted_points(&points, 1.0);
        assert_eq!(line, [(10.0, 1.5), (11.0, 2.5)]);
    }
}
