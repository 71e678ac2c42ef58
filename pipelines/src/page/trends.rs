//! Charts of values of a pipeline's runs, night by night.

use forebay_run::{RunRecord, RunRecordState};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::charts::{Line, LineChart};
use super::records::instant_text;
use super::{SmallChart, drawn};

/// Pixels of a chart.
const SIZE: (u32, u32) = (400, 240);

/// Labels of the axis of runs at most: each is a date.
const RUNS_LABELS_MAX: usize = 4;

/// Seconds between the first and the last run from which their axis has dates, and no times of day.
const DATES_FROM_SECONDS: u64 = 3 * 86_400;

const DAY_SECONDS: f64 = 86_400.0;

/// Charts of the runs of one pipeline, oldest first. Runs that go on are left out.
pub(super) fn trend_charts(records: &[&RunRecord]) -> Vec<SmallChart> {
    let is_ended = |record: &&&RunRecord| record.state != RunRecordState::Running;
    let ended: Vec<&RunRecord> = records.iter().filter(is_ended).copied().collect();
    let trends = Trends { records: &ended };
    let mut charts = Vec::new();
    charts.extend(trends.chart("Rows", &trends.line("rows", rows)));
    charts.extend(trends.chart("Seconds", &trends.line("seconds", |run| Some(run.seconds))));
    charts.extend(trends.chart("MB read", &trends.line("MB", read_megabytes)));
    charts.extend(trends.chart("Days behind the data", &trends.line("days", days_behind)));
    if ended.iter().any(|record| record.rules > 0) {
        let line = trends.line("rules", |run| Some(run.failed_rules.len() as f64));
        charts.extend(trends.chart("Rules that do not hold", &line));
    }
    if ended.iter().any(|record| has_deadline(record)) {
        let line = trends.line("levels", |run| Some(run.levels.len() as f64));
        charts.extend(trends.chart("Levels of degradation, to be on time", &line));
    }
    charts.extend(trends.model_charts());
    charts
}

/// Runs of one pipeline.
struct Trends<'a> {
    records: &'a [&'a RunRecord],
}

impl Trends<'_> {
    /// A value of each run that has it.
    fn line(&self, name: &str, value: impl Fn(&RunRecord) -> Option<f64>) -> Vec<Line> {
        let mut points = Vec::new();
        for (number, record) in self.records.iter().enumerate() {
            if let Some(value) = value(record) {
                points.push((number as f64, value));
            }
        }
        vec![Line {
            name: name.to_owned(),
            points,
        }]
    }

    /// Losses of each model beside the best forecast without one.
    fn model_charts(&self) -> Vec<SmallChart> {
        let mut sinks: Vec<&str> = Vec::new();
        for model in self.records.iter().flat_map(|record| &record.models) {
            if !sinks.contains(&model.sink.as_str()) {
                sinks.push(&model.sink);
            }
        }
        let mut charts = Vec::new();
        for sink in sinks {
            let mut lines = self.line("loss", |run| model_of(run, sink)?.loss);
            lines.extend(self.line("without a model", |run| model_of(run, sink)?.baseline));
            charts.extend(self.chart(&format!("Loss of {sink}"), &lines));
        }
        charts
    }

    /// A chart over the runs; `None` if fewer than two runs have the value.
    fn chart(&self, title: &str, lines: &[Line]) -> Option<SmallChart> {
        let x_text = |x: f64| self.run_text(x);
        let svg = drawn(|| {
            LineChart {
                x_title: "",
                y_title: "",
                lines,
                band: None,
                marks: &[],
                x_text: &x_text,
                x_labels_max: RUNS_LABELS_MAX,
                size: SIZE,
            }
            .draw()
        })?;
        Some(SmallChart {
            title: title.to_owned(),
            label: format!("{title}, by run"),
            svg,
        })
    }

    /// Date or time of the run of a number; empty between two runs.
    fn run_text(&self, number: f64) -> String {
        if number.fract() != 0.0 || number < 0.0 {
            return String::new();
        }
        let Some(record) = self.records.get(number as usize) else {
            return String::new();
        };
        let text = instant_text(record.began);
        let part = if self.seconds_between() >= DATES_FROM_SECONDS {
            text.get(5..10)
        } else {
            text.get(11..16)
        };
        part.unwrap_or_default().to_owned()
    }

    fn seconds_between(&self) -> u64 {
        let first = self.records.first().map_or(0, |record| record.began);
        let last = self.records.last().map_or(0, |record| record.began);
        last.saturating_sub(first)
    }
}

fn model_of<'r>(record: &'r RunRecord, sink: &str) -> Option<&'r forebay_run::RecordedModel> {
    record.models.iter().find(|model| model.sink == sink)
}

/// Rows of the outputs of a run that published some.
fn rows(record: &RunRecord) -> Option<f64> {
    Some(record.rows() as f64).filter(|_| !record.outputs.is_empty())
}

fn read_megabytes(record: &RunRecord) -> Option<f64> {
    Some(record.read_bytes as f64 / 1e6)
}

fn has_deadline(record: &RunRecord) -> bool {
    record.deadline.is_some() || !record.levels.is_empty()
}

/// Days from the last time of the data to the begin of the run, where that time is one of a calendar. A time without an
/// offset counts as UTC.
pub(super) fn days_behind(record: &RunRecord) -> Option<f64> {
    let time = instant_of(record.data_until.as_ref()?)?;
    Some((record.began as f64 - time.as_second() as f64) / DAY_SECONDS)
}

fn instant_of(text: &str) -> Option<Timestamp> {
    if let Ok(instant) = text.parse() {
        return Some(instant);
    }
    let time: DateTime = text.parse().ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_behind_the_data_respect_offsets() {
        let cases = [
            ("1970-01-02", Some(1.0)),
            ("1970-01-02T12:00:00", Some(0.5)),
            ("1970-01-02T12:00:00Z", Some(0.5)),
            ("1970-01-02T18:00:00+06:00", Some(0.5)),
            ("17", None),
        ];
        for (until, expected) in cases {
            let record = RunRecord {
                began: 2 * 86_400,
                data_until: Some(until.to_owned()),
                ..RunRecord::default()
            };
            assert_eq!(days_behind(&record), expected, "{until}");
        }
    }
}
