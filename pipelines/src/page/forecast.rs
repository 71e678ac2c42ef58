//! Forecasts of a run: some series with the end of their history.

use arrow::datatypes::DataType;
use forebay_model::{Fault, tick_nanoseconds};
use forebay_run::{ForecastExamples, SeriesExample, SeriesKey};

use super::charts::{Band, BandPoint, Line, LineChart};
use super::{Block, Page, SmallChart, drawn};

/// Width and height of a chart.
pub(super) const SIZE: (u32, u32) = (400, 270);

/// Labels of the axis of times at most: a date takes much room.
pub(super) const TIMES_MAX: usize = 3;

/// Characters of the keys of a series that are shown.
const KEYS_SHOWN: usize = 120;

const DAY_NANOSECONDS: f64 = 86_400e9;

/// Spans of days from which labels leave the time of day out.
const DATES_FROM_DAYS: f64 = 8.0;

impl Page {
    /// Explains why series of a forecast are not shown.
    pub(super) fn add_missing_forecast(&mut self, sink: &str, fault: &Fault) {
        let text = format!("Series of {sink} are not drawn: {}.", fault.message());
        self.extend("forecasts", "Forecasts", vec![Block::text(text)]);
    }

    /// Adds series of a forecast.
    pub(super) fn add_forecast(&mut self, sink: &str, examples: &ForecastExamples) {
        let heading = format!("Series of {sink} and the end of their history");
        let mut blocks = vec![Block::heading(heading)];
        if let Some(reason) = &examples.without_history {
            blocks.push(Block::text(format!("The history is not drawn: {reason}.")));
        }
        let charts = examples.series.iter().filter_map(|series| {
            let title = series_title(&series.keys);
            let svg = drawn(|| chart(examples, series))?;
            let known_values = series.history.len();
            let predicted = series.forecast.len();
            let label =
                format!("{title}: {known_values} known values, then {predicted} predicted ones");
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
pub(super) fn series_title(keys: &[SeriesKey]) -> String {
    let keys = keys
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
    let ticks_per_day = ticks_per_day(examples.time.data_type());
    let x_of = |tick: i64| tick as f64 / ticks_per_day;
    let history = series.history.iter();
    let history = history.map(|point| (x_of(point.tick), point.value));
    let forecast = series.forecast.iter();
    let forecast = forecast.map(|point| (x_of(point.tick), point.value));
    let mut lines = vec![
        Line {
            name: examples.label.clone().unwrap_or_default(),
            points: history.collect(),
        },
        Line {
            name: examples.prediction.clone(),
            points: forecast.collect(),
        },
    ];
    lines.retain(|line| !line.points.is_empty());
    let band = examples.band.as_ref().map(|[low, high]| Band {
        name: format!(
            "{} to {}",
            quantile_name(examples, low),
            quantile_name(examples, high)
        ),
        points: band_points(series, &x_of),
    });
    let is_dates = has_dates(examples.time.data_type(), &lines);
    let x_text = |x: f64| {
        let text = examples.time_text((x * ticks_per_day).round() as i64);
        short_time(text, is_dates)
    };
    LineChart {
        x_title: examples.time.name(),
        y_title: "",
        lines: &lines,
        band: band.as_ref(),
        marks: &[],
        x_text: &x_text,
        x_labels_max: TIMES_MAX,
        size: SIZE,
    }
    .draw()
}

/// Ticks of a column of times in a unit of the axis: days, so that labels stand at whole ones.
pub(super) fn ticks_per_day(data_type: &DataType) -> f64 {
    match tick_nanoseconds(data_type) {
        Some(tick) => DAY_NANOSECONDS / tick as f64,
        None => 1.0,
    }
}

/// True if labels of timestamps leave the time of day out.
pub(super) fn has_dates(data_type: &DataType, lines: &[Line]) -> bool {
    matches!(data_type, DataType::Timestamp(..)) && span_of(lines) >= DATES_FROM_DAYS
}

/// Name of a quantile: `q10` of `prediction_q10`.
fn quantile_name<'c>(examples: &ForecastExamples, column: &'c str) -> &'c str {
    let suffix = column.strip_prefix(&examples.prediction);
    let name = suffix.and_then(|suffix| suffix.strip_prefix('_'));
    name.unwrap_or(column)
}

fn band_points(series: &SeriesExample, x_of: &dyn Fn(i64) -> f64) -> Vec<BandPoint> {
    let mut points = Vec::new();
    for point in &series.forecast {
        if let Some([low, high]) = point.band {
            let x = x_of(point.tick);
            points.push(BandPoint { x, low, high });
        }
    }
    points
}

/// Distance between the first and the last point; negative if there is none.
fn span_of(lines: &[Line]) -> f64 {
    let mut first = f64::INFINITY;
    let mut last = f64::NEG_INFINITY;
    for (x, _) in lines.iter().flat_map(|line| &line.points) {
        first = first.min(*x);
        last = last.max(*x);
    }
    last - first
}

/// Of `2016-05-22T06:00:00`, the date or, of a few days, the day and the time.
pub(super) fn short_time(text: String, is_dates: bool) -> String {
    if is_dates && let Some(date) = text.get(..10) {
        return date.to_owned();
    }
    match text.get(5..16) {
        Some(time) if text.contains('T') => time.replace('T', " "),
        _ => text,
    }
}
