//! Values of recorded runs, as the pages of a state directory show them.

use std::time::Duration;

use forebay_run::{RecordedPass, RunRecord, RunRecordState};
use forebay_storage::timestamp::format_utc;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Block, Cell};
use crate::present::units;

/// Time without a new record after which a run that goes on has probably been killed. A run writes one every two
/// seconds.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// Letters of names in paths that stay as they are.
const PATH_LETTERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');

/// State of a run at a time, in words.
pub(super) struct StateWords {
    pub text: String,
    pub class: Option<&'static str>,
}

/// The state of a run; `now` is the time in seconds since 1970.
pub(super) fn state_words(record: &RunRecord, now: u64) -> StateWords {
    let (text, class) = match record.state {
        RunRecordState::Running if is_silent(record, now) => {
            let silent = Duration::from_secs(now.saturating_sub(record.seen));
            let text = format!("killed or cut off: silent for {}", units::duration(silent));
            (text, Some("bad"))
        }
        RunRecordState::Running => ("running".to_owned(), None),
        RunRecordState::Complete => ("complete".to_owned(), Some("good")),
        RunRecordState::NothingNew => ("nothing new".to_owned(), Some("good")),
        RunRecordState::Degraded => ("did less, to be on time".to_owned(), Some("bad")),
        RunRecordState::Failed => ("failed".to_owned(), Some("bad")),
    };
    StateWords { text, class }
}

/// True for a run that goes on, as far as its record says.
pub(super) fn is_live(record: &RunRecord, now: u64) -> bool {
    record.state == RunRecordState::Running && !is_silent(record, now)
}

fn is_silent(record: &RunRecord, now: u64) -> bool {
    now.saturating_sub(record.seen) > SILENT_AFTER.as_secs()
}

/// Seconds of a run that goes on, by the clock of the reader, or of one that has ended.
pub(super) fn seconds(record: &RunRecord, now: u64) -> f64 {
    if is_live(record, now) {
        now.saturating_sub(record.began) as f64
    } else {
        record.seconds
    }
}

/// A length of time in seconds, for people.
pub(super) fn duration_text(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| String::new(), units::duration)
}

/// An instant in UTC.
pub(super) fn instant_text(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| String::new(), format_utc)
}

/// Path of the page of a run.
pub(super) fn run_href(record: &RunRecord) -> String {
    format!("/runs/{}", utf8_percent_encode(&record.name, PATH_LETTERS))
}

/// Path of the page that the run itself has written.
pub(super) fn report_href(record: &RunRecord) -> String {
    format!("{}/report", run_href(record))
}

/// A link to the page that the run itself has written, if it has.
fn report_cell(record: &RunRecord) -> Cell {
    if record.page.is_some() {
        Cell::link("page", report_href(record))
    } else {
        Cell::text("")
    }
}

/// Path of the page of a pipeline.
pub(super) fn pipeline_href(pipeline: &str) -> String {
    let name = utf8_percent_encode(pipeline, PATH_LETTERS);
    format!("/pipelines/{name}")
}

/// Path of the pages of the steps of a run's artifact.
pub(super) fn run_steps_href(record: &RunRecord) -> String {
    format!("{}/steps", run_href(record))
}

/// Path of the page with the rows of a step or source; `steps` is the path of the pages of all steps.
pub(super) fn step_href(steps: &str, step: &str) -> String {
    let name = utf8_percent_encode(step, PATH_LETTERS);
    format!("{steps}/{name}")
}

/// The pass that a run is in.
pub(super) fn pass_text(record: &RunRecord) -> String {
    match record.passes.last() {
        Some(pass) => format!("{} of {}: {}", pass.number, record.pass_count, pass.label),
        None => String::new(),
    }
}

/// Share of its bytes that the pass of a run has read, in percent, where it is known.
pub(super) fn pass_percent(pass: &RecordedPass) -> Option<f64> {
    let to_read = pass.bytes_to_read.filter(|bytes| *bytes > 0)?;
    Some((100.0 * pass.bytes as f64 / to_read as f64).min(100.0))
}

/// Outcome of the deadline, and the levels of degradation that were applied.
pub(super) fn deadline_text(record: &RunRecord) -> String {
    let outcome = record.deadline.as_ref().map(|deadline| {
        if deadline.on_time {
            format!("kept {}", deadline.at)
        } else {
            format!("missed {}", deadline.at)
        }
    });
    let levels = Some(record.levels.join(", ")).filter(|levels| !levels.is_empty());
    let parts: Vec<String> = outcome.into_iter().chain(levels).collect();
    parts.join("; ")
}

fn state_cell(record: &RunRecord, now: u64) -> Cell {
    let StateWords { text, class } = state_words(record, now);
    Cell {
        class,
        ..Cell::text(text)
    }
}

/// A count of rules that do not hold; empty if no rule was judged.
fn rules_cell(record: &RunRecord) -> Cell {
    if record.rules == 0 {
        return Cell::number("");
    }
    let failed = record.failed_rules.len();
    let text = format!("{} of {}", record.failed_rules_text(), record.rules);
    Cell::measure(text, failed as f64)
}

/// A table of runs, the latest first.
pub(super) fn runs_table(label: &str, records: &[&RunRecord], now: u64) -> Block {
    let mut rows = Vec::with_capacity(records.len());
    for record in records.iter().rev() {
        let seconds = seconds(record, now);
        let fault = record.fault.as_ref();
        rows.push(vec![
            Cell::link(instant_text(record.began), run_href(record)),
            Cell::link(record.pipeline.clone(), pipeline_href(&record.pipeline)),
            state_cell(record, now),
            report_cell(record),
            Cell::measure(units::grouped(record.rows()), record.rows() as f64),
            Cell::measure(duration_text(seconds), seconds),
            Cell::measure(units::bytes(record.read_bytes), record.read_bytes as f64),
            Cell::text(record.data_until.clone().unwrap_or_default()),
            Cell::text(deadline_text(record)),
            rules_cell(record),
            Cell::long(fault.map_or_else(String::new, |fault| {
                format!("{}: {}", fault.code, fault.message)
            })),
        ]);
    }
    let head = [
        "began",
        "pipeline",
        "state",
        "report",
        "#rows",
        "#took",
        "#read",
        "data until",
        "deadline",
        "#rules failed",
        "fault",
    ];
    Block::stacked_table(label, &head, rows)
}

/// A table of the runs that go on.
pub(super) fn live_table(records: &[&RunRecord], now: u64) -> Block {
    let mut rows = Vec::with_capacity(records.len());
    for record in records.iter().rev() {
        let seconds = seconds(record, now);
        let pass = record.passes.last();
        let percent = pass.and_then(pass_percent);
        let rows_read = pass.map_or(0, |pass| pass.rows);
        rows.push(vec![
            Cell::link(instant_text(record.began), run_href(record)),
            Cell::link(record.pipeline.clone(), pipeline_href(&record.pipeline)),
            Cell::text(pass_text(record)),
            Cell::number(percent.map_or_else(String::new, |percent| format!("{percent:.0} %"))),
            Cell::measure(units::grouped(rows_read), rows_read as f64),
            Cell::measure(duration_text(seconds), seconds),
            Cell::text(record.expected_end.clone().unwrap_or_default()),
            Cell::long(record.waits_for.clone().unwrap_or_default()),
            Cell::text(format!("process {} on {}", record.process, record.host)),
        ]);
    }
    let head = [
        "began",
        "pipeline",
        "pass",
        "#read of the pass",
        "#rows of the pass",
        "#for",
        "expected end",
        "waits for",
        "runs as",
    ];
    Block::stacked_table("Runs that go on", &head, rows)
}
