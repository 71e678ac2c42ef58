//! The proof that no feature knows the future, as people and schedulers see it.

use std::process::ExitCode;

use forebay_model::Result;
use forebay_run::{CutoffReport, LeakReport};
use serde_json::json;

use super::report::RunReporter;
use super::units;
use crate::cli;

/// Prints what was proved, or what moved; gives the exit code.
pub(crate) fn report_leakage(reporter: &RunReporter, done: Result<LeakReport>) -> Result<ExitCode> {
    let found = match done {
        Ok(found) => found,
        Err(fault) => return reporter.failed(fault, json!({})),
    };
    let body = json!({ "perturbed": found });
    match found.fault() {
        Some(fault) => {
            if !reporter.json() {
                cli::write_text(&text(&found))?;
            }
            reporter.failed(fault, body)
        }
        None if reporter.json() => reporter.done(&body),
        None => {
            cli::write_text(&text(&found))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn text(found: &LeakReport) -> String {
    found.cuts.iter().map(cut_text).collect()
}

fn cut_text(found: &CutoffReport) -> String {
    let mut text = String::new();
    for source in &found.sources {
        let columns = match source.columns.as_slice() {
            [] => "no column can be scrambled".to_owned(),
            columns => format!("scrambled {}", columns.join(", ")),
        };
        text += &format!(
            "{}: {columns} in all rows {}\n",
            source.source, found.future
        );
    }
    for sink in &found.sinks {
        let rows = format!("{} {}", units::rows(sink.rows), found.past);
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
    }
    text
}
