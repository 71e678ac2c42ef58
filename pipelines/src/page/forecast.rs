//! Forecasts of a run: some series beside the end of their history.

use arrow::datatypes::DataType;
use forebay_model::{Fault, tick_nanoseconds};
use forebay_run::{ForecastExamples, SeriesExample};

use super::charts::{Band, BandPoint, Line, LineChart};
use super::{Block, Page, SmallChart, drawn};

/// Width and height of a chart.
const SIZE: (u32, u32) = (400, 270);

/// Labels of the axis of times at most: a date takes much room.
const TIMES_MAX: usize = 3;

/// Characters of the keys of a series that are shown.
const KEYS_SHOWN: usize = 120;

const DAY_NANOSECONDS: f64 = 86_400e9;

/// Spans of days from which labels leave the time of day out.
const DATES_FROM_DAYS: f64 = 8.0;

impl Page {
    /// Tells why series of a forecast are not shown.
    pub(super) fn add_missing_forecast(&mut self, sink: &str, fault: &Fault) {
        let text = format!("Series of {sink} are not drawn: {}.", fault.message());
        self.extend("forecasts", "Forecasts", vec![Block::text(text)]);
    }

    /// Adds series of a forecast.
    pub(super) fn add_forecast(&mut self, sink: &str, examples: &ForecastExamples) {
        let mut blocks = vec![Block::Heading {
            text: format!("Series of {sink} and the end of their history"),
        }];
        if let Some(reason) = &examples.without_history {
            blocks.push(Block::text(format!("The history is not drawn: {reason}.")));
        }
        let charts = examples.series.iter().filter_map(|series| {
            let title = title(series);
            let svg = drawn(|| chart(examples, series))?;
            let (known, predicted) = (series.history.len(), series.forecast.len());
            let label = format!("{title}: {known} known values, then {predicted} predicted ones");
            Some(SmallChart { title, label, svg })
        });
        let charts: Vec<SmallChart> = charts.collect();
        if charts.is_empty() {
            return;
        }
        blocks.push(Block::Charts { charts });
        self.extend("forecasts", "Forecasts", blocks);
    }
}

/// `store_id CA_1, item_id FOODS_1_001`.
fn title(series: &SeriesExample) -> String {
    let keys = series
        .keys
        .iter()
        .map(|key| format!("{} {}", key.name, key.value.as_deref().unwrap_or("null")));
    let title = keys.collect::<Vec<_>>().join(", ");
    match title.char_indices().nth(KEYS_SHOWN) {
        Some((end, _)) => format!("{} ...", &title[..end]),
        None if title.is_empty() => "The series".to_owned(),
        None => title,
    }
}

fn chart(examples: &ForecastExamples, series: &SeriesExample) -> Option<String> {
    // Days, so that labels stand at whole ones.
    let unit = tick_nanoseconds(examples.time.data_type())
        .map_or(1.0, |tick| DAY_NANOSECONDS / tick as f64);
    let place = |tick: i64| tick as f64 / unit;
    let history = Line {
        name: examples.label.clone().unwrap_or_default(),
        points: series
            .history
            .iter()
            .map(|point| (place(point.tick), point.value))
            .collect(),
    };
    let forecast = Line {
        name: examples.prediction.clone(),
        points: series
            .forecast
            .iter()
            .map(|point| (place(point.tick), point.value))
            .collect(),
    };
    // `prediction_q10` as `q10`.
    let quantile = |column: &str| {
        let short = column
            .strip_prefix(&examples.prediction)
            .and_then(|rest| rest.strip_prefix('_'));
        short.unwrap_or(column).to_owned()
    };
    let band = examples.band.as_ref().map(|[low, high]| Band {
        name: format!("{} to {}", quantile(low), quantile(high)),
        points: series
            .forecast
            .iter()
            .filter_map(|point| {
                let [low, high] = point.band?;
                Some(BandPoint {
                    x: place(point.tick),
                    low,
                    high,
                })
            })
            .collect(),
    });
    let lines: Vec<Line> = [history, forecast]
        .into_iter()
        .filter(|line| !line.points.is_empty())
        .collect();
    let places = || lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x);
    let span = places().fold(f64::NEG_INFINITY, f64::max) - places().fold(f64::INFINITY, f64::min);
    let is_dates =
        span >= DATES_FROM_DAYS && matches!(examples.time.data_type(), DataType::Timestamp(..));
    let x_text = |x: f64| {
        let text = examples.time_text((x * unit).round() as i64);
        // `2016-05-22T06:00:00`: the date or, of a few days, the day and the time.
        match text.get(..10).filter(|_| is_dates) {
            Some(date) => date.to_owned(),
            None => text
                .get(5..16)
                .filter(|_| text.contains('T'))
                .map_or(text.clone(), |time| time.replace('T', " ")),
        }
    };
    let (x_title, y_title) = (examples.time.name().as_str(), "");
    LineChart {
        x_title,
        y_title,
        lines: &lines,
        band: band.as_ref(),
        x_text: &x_text,
        x_labels_max: TIMES_MAX,
        size: SIZE,
    }
    .draw()
}
