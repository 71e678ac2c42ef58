//! The proof that no feature knows the future, as people and schedulers see it.

use std::process::ExitCode;

use forebay_model::Result;
use forebay_run::{CutoffReport, LeakReport};
use serde_json::json;

use super::report::RunReporter;
use super::standard_output::write_text;
use super::units;

/// Prints that no feature depends on the future, or those that changed; returns the exit code.
pub(crate) fn report_leakage(reporter: &RunReporter, done: Result<LeakReport>) -> Result<ExitCode> {
    let report = match done {
        Ok(report) => report,
        Err(fault) => return reporter.failed(fault, json!({})),
    };
    let body = json!({ "perturbed": report });
    match report.fault() {
        Some(fault) => {
            if !reporter.json() {
                write_text(&text(&report))?;
            }
            reporter.failed(fault, body)
        }
        None if reporter.json() => reporter.done(&body),
        None => {
            write_text(&text(&report))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn text(report: &LeakReport) -> String {
    report.cuts.iter().map(cut_text).collect()
}

fn cut_text(cutoff: &CutoffReport) -> String {
    let mut text = String::new();
    for source in &cutoff.sources {
        let columns = match source.columns.as_slice() {
            [] => "no column can be scrambled".to_owned(),
            columns => format!("scrambled {}", columns.join(", ")),
        };
        text += &format!(
            "{}: {columns} in all rows {}\n",
            source.source, cutoff.future
        );
    }
    for sink in &cutoff.sinks {
        let rows = format!("{} {}", units::rows(sink.rows), cutoff.past);
        let columns = units::counted(sink.columns as u64, "column");
        let fate = match (
            sink.rows,
            sink.moved.len() + usize::from(sink.misplaced.is_some()),
        ) {
            (0, 0) => "nothing to compare".to_owned(),
            (_, 0) => format!("the same bits in {columns}"),
            _ => format!("{} of {columns} moved", sink.moved.len()),
        };
        let ahead = match sink.rows_ahead {
            0 => String::new(),
            rows => format!(", {} within the horizon after it", units::rows(rows)),
        };
        text += &format!("{}: {rows}{ahead}, {fate}\n", sink.sink);
        if sink.rows_ahead_left_out > 0 {
            text += &format!(
                "{}: {} within the horizon not compared: they are in one of the runs alone, or \
                 share their keys and time with others\n",
                sink.sink,
                units::rows(sink.rows_ahead_left_out)
            );
        }
        if sink.rows_ahead_cut {
            text += &format!(
                "{}: not all rows within the horizon were compared, since they are too many\n",
                sink.sink
            );
        }
    }
    text
}
