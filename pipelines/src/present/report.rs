//! A run as people and schedulers see it: live progress, events, the closing summary.

use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, hide_secrets};
use forebay_run::{
    ContinuedReport, EnsembleReport, ExpectationReport, ForecastReport, FutureReport,
    LeftOutReport, OutputReport, PassReport, ReconcileReport, RunReport,
};
use forebay_storage::timestamp::format_utc;
use forebay_storage::{Event, EventListener, IgnoreEvents, peak_resident_bytes};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::diagnostic::{self, Severity};
use super::event_line::event_line;
use super::plain_progress::PlainProgress;
use super::printable::printable_lines;
use super::progress::{PassProgress, TerminalProgress};
use super::standard_output::{write_stdout, write_text};
use super::sum_text::{sum_text, values_text};
use super::{drift, explain, training, units};
use crate::exit_codes::exit_code;

/// The version of events and summaries; grows when a field changes its meaning or goes away.
const EVENTS_VERSION: u32 = 1;

/// Detail of a run's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Faults alone.
    Quiet,
    /// Progress and a summary.
    Normal,
    /// Sources, results of passes and workers, too.
    Verbose,
}

/// Shows a run, as text or as lines of JSON.
pub(crate) struct RunReporter {
    json: bool,
    verbosity: Verbosity,
    watch: Arc<RunMeter>,
}

/// Counts what a run reads, and passes its events on.
struct RunMeter {
    inner: Box<dyn EventListener>,
    start: Instant,
    rows: AtomicU64,
    bytes: AtomicU64,
}

/// Writes warnings to standard error, for processes that have no progress.
pub(crate) struct WarningLines;

impl EventListener for WarningLines {
    fn on_event(&self, event: Event) {
        if let Event::Warning { message } = event {
            // Nothing can be said to a reader that has gone away.
            let message = printable_lines(&hide_secrets(&message));
            let _ = writeln!(anstream::stderr().lock(), "warning: {message}");
        }
    }
}

impl EventListener for RunMeter {
    fn on_event(&self, event: Event) {
        if let Event::Progress { rows, bytes } = &event {
            self.rows.fetch_add(*rows, Ordering::Relaxed);
            self.bytes.fetch_add(*bytes, Ordering::Relaxed);
        }
        self.inner.on_event(event);
    }
}

/// Costs of a run.
#[derive(Debug, Serialize)]
struct RunCosts {
    duration_seconds: f64,
    rows_read: u64,
    bytes_read: u64,
    rows_per_second: u64,
    bytes_per_second: u64,
    /// Peak memory of this process, without that of workers.
    peak_memory_bytes: Option<u64>,
}

impl RunMeter {
    fn costs(&self) -> RunCosts {
        let seconds = self.start.elapsed().as_secs_f64();
        let rows = self.rows.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let rate = |count: u64| (count as f64 / seconds.max(1e-3)) as u64;
        RunCosts {
            duration_seconds: (seconds * 1e3).round() / 1e3,
            rows_read: rows,
            bytes_read: bytes,
            rows_per_second: rate(rows),
            bytes_per_second: rate(bytes),
            peak_memory_bytes: peak_resident_bytes(),
        }
    }
}

impl RunCosts {
    fn text(&self) -> String {
        let mut parts = vec![units::duration(Duration::from_secs_f64(
            self.duration_seconds,
        ))];
        if self.rows_read > 0 {
            parts.push(format!("{} rows/s", units::short(self.rows_per_second)));
            parts.push(format!("{}/s", units::bytes(self.bytes_per_second)));
        }
        parts.extend(
            self.peak_memory_bytes
                .map(|bytes| format!("peak memory {}", units::bytes(bytes))),
        );
        parts.join(", ")
    }
}

impl RunReporter {
    /// Creates a reporter. With `json`, standard output gets one line per event and the summary as
    /// the last line; else a summary, with progress on standard error: a live line if that is a
    /// terminal, plain lines elsewhere.
    pub fn new(json: bool, verbosity: Verbosity) -> Self {
        let inner: Box<dyn EventListener> = match (json, verbosity) {
            (true, _) => Box::new(JsonWatch::default()),
            (false, Verbosity::Quiet) => Box::new(IgnoreEvents),
            (false, _) if std::io::stderr().is_terminal() => Box::new(LiveWatch::new()),
            (false, verbosity) => Box::new(PlainProgress::new(verbosity == Verbosity::Verbose)),
        };
        let rows = AtomicU64::new(0);
        let bytes = AtomicU64::new(0);
        RunReporter {
            json,
            verbosity,
            watch: Arc::new(RunMeter {
                inner,
                start: Instant::now(),
                rows,
                bytes,
            }),
        }
    }

    /// Listener of the run.
    pub fn watch(&self) -> Arc<dyn EventListener> {
        self.watch.clone()
    }

    /// True if lines of JSON are requested.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Prints the result of the run; returns the exit code.
    pub fn finish(&self, result: Result<RunReport>) -> Result<ExitCode> {
        match (result, self.json) {
            (Ok(_), false) if self.verbosity == Verbosity::Quiet => Ok(ExitCode::SUCCESS),
            (Ok(report), false) => {
                write_text(&summary(&report, &self.watch.costs()))?;
                Ok(ExitCode::SUCCESS)
            }
            (Ok(report), true) => {
                let body = serde_json::to_value(&report)
                    .map_err(|error| Fault::internal("a summary").cause(error));
                let mut body = body?;
                body["costs"] = json!(self.watch.costs());
                self.done(&body)
            }
            (Err(fault), _) => self.failed(fault, json!({})),
        }
    }

    /// The last line of JSON when all went well.
    pub fn done(&self, body: &impl Serialize) -> Result<ExitCode> {
        write_stdout(&line("summary", "done", body)?)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Reports a fault; in JSON as the last line too, added to `body`.
    pub fn failed(&self, fault: Fault, mut body: Value) -> Result<ExitCode> {
        if !self.json {
            return Err(fault);
        }
        let fault = super::fault::located(fault);
        super::fault::report(&fault);
        body = failure(&fault, body);
        write_stdout(&line("summary", "failed", &body)?)?;
        Ok(ExitCode::from(exit_code(&fault)))
    }
}

/// Summary of a fault, added to `body`.
pub(crate) fn failure(fault: &Fault, mut body: Value) -> Value {
    body["fault"] = diagnostic::one(fault, Severity::Error);
    body["fault"]["others"] = fault
        .others()
        .iter()
        .flat_map(|other| diagnostic::all(other, Severity::Error))
        .collect();
    body
}

/// The last line of JSON.
pub(crate) fn summary_line(status: &str, body: &impl Serialize) -> Result<String> {
    line("summary", status, body)
}

fn line(event: &str, status: &str, body: &impl Serialize) -> Result<String> {
    let body =
        serde_json::to_value(body).map_err(|error| Fault::internal("a summary").cause(error))?;
    let mut line = json!({ "version": EVENTS_VERSION, "event": event, "status": status });
    if let (Value::Object(fields), Value::Object(body)) = (&mut line, body) {
        fields.extend(body);
    }
    Ok(format!("{line}\n"))
}

/// The rows of the future that a step added.
fn future_text(future: &FutureReport) -> String {
    let FutureReport {
        step,
        series,
        steps,
        ended,
        known_until,
    } = future;
    let after_text = known_until
        .as_ref()
        .map_or_else(String::new, |time| format!(" after {time}"));
    format!(
        "{step}: {} of {} series{after_text}{}\n",
        units::counted(*steps, "step"),
        units::grouped(*series),
        left_out(*ended)
    )
}

/// Difference between a vocabulary and that of the run before.
fn continued_text(continued: &ContinuedReport) -> String {
    let ContinuedReport {
        step,
        columns,
        artifact,
        tokens,
        added,
        absent,
    } = continued;
    let origin = match artifact {
        Some(artifact) => format!(
            "{} new, {} no longer seen; goes on from artifact {}",
            units::grouped(*added),
            units::grouped(*absent),
            &artifact[..artifact.len().min(8)]
        ),
        None => "the first run".to_owned(),
    };
    format!(
        "{step} {}: {}, {origin}\n",
        columns.join(", "),
        units::counted(*tokens, "token")
    )
}

fn left_out(ended: u64) -> String {
    if ended == 0 {
        String::new()
    } else {
        format!(", {} that ended before left out", units::grouped(ended))
    }
}

/// Number of rules that hold, and those that do not.
fn expectations_text(expectations: &[ExpectationReport], has_future: bool) -> String {
    if expectations.is_empty() {
        return String::new();
    }
    let of_future = expectations.iter().filter(|rule| rule.of_future).count();
    let judged = if !has_future {
        String::new()
    } else if of_future == 0 {
        ", all about known rows".to_owned()
    } else {
        format!(", {of_future} of them about rows of the future")
    };
    let broken: Vec<&ExpectationReport> = expectations.iter().filter(|rule| !rule.holds).collect();
    let rules = units::counted(expectations.len() as u64, "rule");
    let mut text = format!(
        "expectations: {} of {rules} hold{judged}\n",
        expectations.len() - broken.len()
    );
    for ExpectationReport {
        step,
        rule,
        found: finding,
        ..
    } in broken
    {
        text += &format!("  {step}: `{rule}`: {finding}\n");
    }
    for ExpectationReport {
        step,
        rule,
        quarantined,
        ..
    } in expectations.iter().filter(|rule| rule.quarantined > 0)
    {
        text += &format!(
            "  {step}: `{rule}`: {} quarantined\n",
            units::rows(*quarantined)
        );
    }
    text
}

/// Number of predictions that were moved to a bound, and of quantiles that crossed.
fn moved_text(clipped: u64, crossed: u64) -> String {
    let clipped = if clipped == 0 {
        String::new()
    } else {
        format!(", {} moved to a bound", units::grouped(clipped))
    };
    let crossed = match crossed {
        0 => String::new(),
        rows => format!(", quantiles of {} sorted", units::rows(rows)),
    };
    clipped + &crossed
}

/// The number of rows for which a window found no value.
fn history_text(rows: u64) -> String {
    match rows {
        0 => String::new(),
        rows => format!("  {}: a window found no earlier value\n", units::rows(rows)),
    }
}

fn forecast_text(forecast: &ForecastReport) -> String {
    let ForecastReport {
        sink,
        data,
        rows,
        series,
        steps,
        ended,
        known_until,
        model,
        clipped,
        crossed,
        sum,
        rows_without_history,
        ensemble,
        reconciled,
        ..
    } = forecast;
    let weights = ensemble.as_ref().map_or_else(String::new, weights_text);
    let levels = reconciled
        .as_ref()
        .map_or_else(String::new, reconciled_text);
    let until_text = known_until
        .as_ref()
        .map_or_else(String::new, |time| format!(", data until {time}"));
    let moved = moved_text(*clipped, *crossed);
    format!(
        "{sink}: {} = {} series x {steps}{until_text}{}{moved}\n  model {}\n{weights}{levels}  \
         {data}\n{}",
        units::rows(*rows),
        units::grouped(*series),
        left_out(*ended),
        if model.contains(' ') {
            model
        } else {
            &model[..model.len().min(16)]
        },
        history_text(*rows_without_history) + &values_text(sum),
    )
}

/// A line with the learned weights of an ensemble, and one with errors.
fn weights_text(ensemble: &EnsembleReport) -> String {
    let mut weights = Vec::with_capacity(ensemble.members.len());
    let mut errors = Vec::with_capacity(ensemble.members.len());
    for member in &ensemble.members {
        weights.push(format!("{:.3} of {}", member.weight, member.model));
        errors.push(format!("{:.4} of {}", member.error, member.model));
    }
    let mut text = format!(
        "  weights {}, learned on {} of {} folds\n  scaled error {:.4} of the ensemble, {}\n",
        weights.join(" + "),
        units::rows(ensemble.rows),
        ensemble.folds.len(),
        ensemble.error,
        errors.join(", ")
    );
    for (rows, reason) in [
        (
            ensemble.rows_incomplete,
            "without a value or a forecast of a member",
        ),
        (
            ensemble.rows_unscaled,
            "of series without seasonal differences before the first fold",
        ),
    ] {
        if rows > 0 {
            text += &format!(
                "  {} {reason} do not count for the weights\n",
                units::rows(rows)
            );
        }
    }
    text
}

/// A line about the hierarchy that forecasts add up in.
fn reconciled_text(reconciled: &ReconcileReport) -> String {
    let errors = match reconciled.errors {
        0 => String::new(),
        errors => format!(", errors at {} of folds", units::counted(errors, "time")),
    };
    format!(
        "  adds up by {}: {} of upper levels and {} of the lowest, of {}{errors}\n",
        reconciled.method,
        units::grouped(reconciled.upper_series),
        units::grouped(reconciled.bottom_series),
        reconciled.levels.join(", ")
    )
}

/// Instructions for reading an output whose directory holds more than its rows.
fn reading_text(output: &OutputReport) -> String {
    if output.table {
        return "  a Delta table: read it as one; its directory also holds files of other \
                versions\n"
            .to_owned();
    }
    if output.path.contains("://") {
        format!(
            "  a listing may show files of two results: read the files that `{0}/_manifest.json` \
             names, with \
             `forebay.dataset(\"{0}\")` in Python, or after `forebay export {0} DIR`; a `delta:` \
             sink can be read by any tool\n",
            output.path.trim_end_matches('/')
        )
    } else {
        String::new()
    }
}

/// The closing words for people.
fn summary(report: &RunReport, costs: &RunCosts) -> String {
    let mut text = String::new();
    for (index, pass) in report.passes.iter().enumerate() {
        text += &format!("pass {} ({}): {}\n", index + 1, pass.work, pass_text(pass));
    }
    for LeftOutReport { source, left_out } in &report.left_out {
        if let Some(left_out) = left_out.text() {
            text += &format!("source {source}: {left_out}\n");
        }
    }
    for days in &report.days {
        text += &format!("{}\n", days.text());
    }
    for output in &report.outputs {
        text += &output_text(report, output);
    }
    for model in &report.models {
        text += &training::summary(model);
    }
    for continued in &report.continued {
        text += &continued_text(continued);
    }
    for refit in &report.refits {
        text += &format!("{}\n", explain::refit_text(refit));
    }
    for future in &report.future {
        text += &future_text(future);
    }
    for forecast in &report.forecasts {
        text += &forecast_text(forecast);
    }
    let has_future = !report.future.is_empty() || !report.forecasts.is_empty();
    text += &expectations_text(&report.expectations, has_future);
    text += &drift::rules_text(&report.expectations);
    text += &again_text(report);
    text += &storage_text(report);
    if let Some(path) = &report.artifact_path {
        text += &format!("artifact:\n  {path}\n");
    }
    text += &ladder_text(report);
    if let Some(deadline) = &report.deadline {
        let outcome = if deadline.on_time { "kept" } else { "missed" };
        text += &format!("deadline {}: {outcome}\n", deadline.at);
    }
    let reused = report.passes.iter().filter(|pass| pass.reused).count();
    if reused > 0 && !report.nothing_new {
        let passes = units::counted(report.passes.len() as u64, "pass");
        text += &format!("reused: {reused} of {passes}\n");
    }
    if report.nothing_new {
        text += "nothing new: everything was known already\n";
    }
    text + &format!("took {}\n", costs.text())
}

/// Rows of a pass.
fn pass_text(pass: &PassReport) -> String {
    if pass.reused {
        return "reused".to_owned();
    }
    match pass.work {
        "learn" => learn_text(pass),
        "train" => format!("{} learned from", units::rows(pass.rows_in)),
        "gather" => gather_text(pass),
        _ => written_text(pass),
    }
}

fn learn_text(pass: &PassReport) -> String {
    let mut text = format!("{} read", units::rows(pass.rows_read()));
    if pass.rows_kept > 0 {
        text += &format!(", {} reused", units::grouped(pass.rows_kept));
    }
    if pass.rows_skipped > 0 {
        text += &format!(", {} skipped", units::grouped(pass.rows_skipped));
    }
    let filtered = pass.rows_filtered.saturating_sub(pass.rows_skipped);
    text + &format!(", {} filtered", units::grouped(filtered))
}

fn gather_text(pass: &PassReport) -> String {
    let rows_in = units::rows(pass.rows_in);
    let mut text = format!("{rows_in} in, {} gathered", units::grouped(pass.rows_out));
    if pass.rows_kept > 0 {
        let read = pass.rows_in.saturating_sub(pass.rows_kept);
        let reused = units::grouped(pass.rows_kept);
        text += &format!(", {} read, {reused} reused", units::rows(read));
    }
    text
}

fn written_text(pass: &PassReport) -> String {
    let mut text = format!(
        "{} read = {} written + {} filtered",
        units::rows(pass.rows_in),
        units::grouped(pass.rows_out),
        units::grouped(pass.rows_filtered)
    );
    if pass.rows_expanded != 0 {
        text += &format!(" - {} added", pass.rows_expanded);
    }
    text
}

/// Rows and files of an output, and how to read it.
fn output_text(report: &RunReport, output: &OutputReport) -> String {
    let mut text = String::new();
    if output.rows == 0 {
        let reason = if report.interval.is_some() {
            "the interval is empty"
        } else {
            "the output is empty"
        };
        text += &format!("{}: {reason}\n", output.sink);
    }
    text += &format!(
        "{}: {}, {} in {}{}\n  {}\n",
        output.sink,
        units::rows(output.rows),
        units::bytes(output.bytes),
        units::counted(output.files as u64, "file"),
        moved_text(output.clipped, output.crossed),
        output.path
    );
    if let Some(from) = &report.rows_from {
        text +=
            &format!("  rows from {from} on; earlier rows are history, and count as filtered\n");
    }
    text += &history_text(output.rows_without_history);
    text += &sum_text(&output.sum);
    if output.rows_copied > 0 {
        let rows = units::rows(output.rows_copied);
        text += &format!(
            "  {rows} outside of the interval written again, from files that also held rows of \
             it\n"
        );
    }
    text + &reading_text(output)
}

/// Earlier intervals that were written again.
fn again_text(report: &RunReport) -> String {
    if report.again.is_empty() {
        return String::new();
    }
    let mut intervals = Vec::with_capacity(report.again.len());
    for interval in &report.again {
        intervals.push(format!("{} .. {}", interval.from, interval.to));
    }
    format!("done again: {}\n", intervals.join(", "))
}

/// Use of object stores.
fn storage_text(report: &RunReport) -> String {
    let Some(storage) = &report.storage else {
        return String::new();
    };
    format!(
        "object store: {}, {} read, {} written, {}, {:.1} s waited\n",
        units::counted(storage.requests, "request"),
        units::bytes(storage.bytes_read),
        units::bytes(storage.bytes_written),
        units::counted(storage.retries, "failure"),
        storage.wait_seconds
    )
}

/// Work that was left out for the deadline.
fn ladder_text(report: &RunReport) -> String {
    let Some(ladder) = &report.ladder else {
        return String::new();
    };
    let mut text = format!("to be on time: {}\n", ladder.rungs.join(", "));
    if !ladder.skipped.is_empty() {
        text += &format!("  left out: {}\n", ladder.skipped.join(", "));
    }
    if !ladder.reused.is_empty() {
        let artifact = ladder.artifact.as_deref().unwrap_or_default();
        let reused = ladder.reused.join(", ");
        text += &format!("  not learned, but taken from artifact {artifact}: {reused}\n");
    }
    text
}

/// Events as lines of JSON, each with its time. Progress is summed and printed once a second at most, and at the end of
/// its pass.
#[derive(Default)]
struct JsonWatch {
    progress: Mutex<Option<(Instant, u64, u64)>>,
    /// Since when work is summed, and the work that was done and that is to do.
    worked: Mutex<Option<(Instant, u64, u64)>>,
    /// The number of the pass at work, and of how many.
    pass: Mutex<Option<(usize, usize)>>,
    /// Times of the first and the last report of the run's end, and true if that is in time.
    eta: Mutex<Option<(Instant, Instant, Option<bool>)>>,
}

/// Fraction of the elapsed time, within limits, between two lines with the expected end, unless the
/// answer to whether the run is in time changes.
const ETA_EVERY_SHARE: f64 = 0.01;
const ETA_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

impl EventListener for JsonWatch {
    fn on_event(&self, event: Event) {
        match &event {
            Event::Progress { rows, bytes } => return self.add_progress(*rows, *bytes),
            Event::Worked { done, planned } => return self.add_work(*done, *planned),
            Event::Eta { on_time, .. } if !self.is_eta_due(*on_time) => return,
            Event::PassStarted { number, total, .. } => {
                if let Ok(mut pass) = self.pass.lock() {
                    *pass = Some((*number, *total));
                }
            }
            Event::PassDone { .. } => {
                self.print_progress();
                self.print_work();
            }
            // A run may have many thousands: they are for metrics and traces.
            Event::TaskStarted { .. } | Event::TaskEnded { .. } => return,
            _ => {}
        }
        self.print(&event);
    }
}

impl JsonWatch {
    /// Sums rows and bytes, and prints them once a second.
    fn add_progress(&self, rows: u64, bytes: u64) {
        let Ok(mut progress) = self.progress.lock() else {
            return;
        };
        let (since, all_rows, all_bytes) = progress.get_or_insert_with(|| (Instant::now(), 0, 0));
        *all_rows += rows;
        *all_bytes += bytes;
        let is_due = since.elapsed().as_secs() >= 1;
        drop(progress);
        if is_due {
            self.print_progress();
        }
    }

    /// Sums work, and prints it once a second.
    fn add_work(&self, done: u64, planned: u64) {
        let Ok(mut worked) = self.worked.lock() else {
            return;
        };
        let (since, all_done, all_planned) = worked.get_or_insert_with(|| (Instant::now(), 0, 0));
        *all_done += done;
        *all_planned += planned;
        let is_due = since.elapsed().as_secs() >= 1;
        drop(worked);
        if is_due {
            self.print_work();
        }
    }

    /// True if a report of the run's end is to be printed; it counts as printed then.
    fn is_eta_due(&self, on_time: Option<bool>) -> bool {
        let Ok(mut last_eta) = self.eta.lock() else {
            return false;
        };
        let now = Instant::now();
        let Some((first, last, last_on_time)) = *last_eta else {
            *last_eta = Some((now, now, on_time));
            return true;
        };
        let every = (now - first)
            .mul_f64(ETA_EVERY_SHARE)
            .clamp(ETA_EVERY.0, ETA_EVERY.1);
        // The clock is looked at once a second, and never quite on time.
        let is_recent = now - last + every / 10 < every;
        if last_on_time == on_time && is_recent {
            return false;
        }
        *last_eta = Some((first, now, on_time));
        true
    }

    /// Prints the rows and bytes read since the last call.
    fn print_progress(&self) {
        let Ok(mut progress) = self.progress.lock() else {
            return;
        };
        let summed = progress.take();
        drop(progress);
        if let Some((_, rows, bytes)) = summed {
            self.print(&Event::Progress { rows, bytes });
        }
    }

    /// Prints the work that was done since the last time.
    fn print_work(&self) {
        let Ok(mut worked) = self.worked.lock() else {
            return;
        };
        let summed = worked.take();
        drop(worked);
        if let Some((_, done, planned)) = summed {
            self.print(&Event::Worked { done, planned });
        }
    }

    fn print(&self, event: &Event) {
        let Ok(mut body) = serde_json::to_value(event) else {
            return;
        };
        body["version"] = EVENTS_VERSION.into();
        body["time"] = format_utc(Timestamp::now()).into();
        if let (Event::Progress { .. } | Event::Worked { .. }, Some((number, total))) =
            (event, self.pass.lock().ok().and_then(|pass| *pass))
        {
            body["number"] = number.into();
            body["total"] = total.into();
        }
        let _ = write_stdout(&format!("{body}\n"));
    }
}

/// Events as one live line per pass.
struct LiveWatch {
    progress: TerminalProgress,
    pass: Mutex<Option<PassProgress>>,
}

impl LiveWatch {
    fn new() -> Self {
        LiveWatch {
            progress: TerminalProgress::new(true),
            pass: Mutex::new(None),
        }
    }

    /// Shows an event in the line of its pass, or in a line of its own.
    fn show(&self, pass: Option<&PassProgress>, event: &Event) {
        match (event, pass) {
            (Event::Progress { rows, bytes }, Some(pass)) => pass.advance(*rows, *bytes),
            (Event::Spilled { bytes }, Some(pass)) => pass.add_spilled_bytes(*bytes),
            (Event::PassReads { bytes, of }, Some(pass)) => pass.add_planned_bytes(*bytes, *of),
            (Event::Eta { seconds_left, .. }, Some(pass)) => {
                pass.set_time_left(Duration::from_secs_f64(*seconds_left));
            }
            (
                Event::TrainingStep {
                    sink,
                    epoch,
                    step,
                    steps,
                    loss,
                    unit,
                    ..
                },
                Some(pass),
            ) => {
                pass.set_message(training::step(sink, *epoch, (*step, *steps, *unit), *loss));
            }
            _ => {
                if let Some(line) = event_line(event) {
                    self.progress.line(pass, &line);
                }
            }
        }
    }
}

impl EventListener for LiveWatch {
    fn on_event(&self, event: Event) {
        let Ok(mut pass) = self.pass.lock() else {
            return;
        };
        match event {
            Event::PassStarted {
                number,
                total,
                label,
                bytes,
                ..
            } => {
                *pass = Some(self.progress.pass(number, total, &label, bytes));
            }
            Event::PassDone { .. } => {
                if let Some(done) = pass.take() {
                    done.finish();
                }
            }
            Event::Beside {
                intervals,
                beside: at_once,
            } => {
                *pass = Some(self.progress.interval_progress(intervals, at_once));
            }
            Event::IntervalDone { done, intervals } => {
                if let Some(line) = pass.as_ref() {
                    line.set_message(format!("{done} of {intervals} published"));
                }
                if done == intervals
                    && let Some(line) = pass.take()
                {
                    line.finish();
                }
            }
            event => self.show(pass.as_ref(), &event),
        }
    }
}
