//! `forebay backfill`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::{Pipeline, Result};
use forebay_run::{DeadlineSpec, Interval, Session};
use jiff::civil::DateTime;
use jiff::{Span, ToSpan, Unit};
use serde::Serialize;
use serde_json::json;

use super::options::{DeadlineArgs, RunArgs, SpecArgs};
use super::usage;
use super::workers::WorkersArgs;
use crate::observe::{ObserveArgs, RunObservers};
use crate::present::report::RunReporter;
use crate::present::units;

/// Intervals of one backfill at most: more are a mistake in a date.
const INTERVALS_MAX: usize = 100_000;

/// Run a spec for consecutive intervals; those that are there are skipped.
///
/// The first interval goes alone, the others side by side with a share each of threads and memory: they learn
/// and publish in order of time. Where windows remember everything before a row, an interval is
/// written after the one before it.
#[derive(Debug, Args)]
pub(crate) struct BackfillCommand {
    #[command(flatten)]
    spec: SpecArgs,
    /// The start of the first interval: a date or a timestamp.
    #[arg(long, value_name = "TIME")]
    from: DateTime,
    /// The end of the last interval: no interval goes beyond it.
    #[arg(long, value_name = "TIME")]
    to: DateTime,
    /// How long an interval is: hours, days, weeks or months, such as 1d, 12h, 1w or 1mo.
    #[arg(long, value_name = "LENGTH", default_value = "1d", value_parser = parse_interval_length)]
    every: Span,
    /// How many intervals are at work at a time at most; one where there is a deadline, or where there are
    /// workers [default: one for each thread]
    #[arg(long, value_name = "N")]
    beside: Option<usize>,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    deadline: DeadlineArgs,
    #[command(flatten)]
    workers: WorkersArgs,
    #[command(flatten)]
    observe: ObserveArgs,
}

/// What is done about an interval.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IntervalAction {
    /// It is there.
    Skip,
    /// It is there, but as the last one: a run that died may have shown it and not committed its artifact.
    Finish,
    /// It is not there, or looked at again.
    Run,
}

/// What became of an interval.
#[derive(Debug, Serialize)]
struct IntervalOutcome {
    #[serde(flatten)]
    interval: Interval,
    /// Whether it was there already.
    skipped: bool,
    /// Rows written, of all sinks.
    rows: u64,
}

impl BackfillCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let mut observers = self.observe.observers()?;
        let watch = observers.listen(reporter.watch());
        let session = self.deadline.apply(self.options.session(watch.clone())?)?;
        observers.begin(&session, &watch, self.options.run_id.as_deref())?;
        let (_workers, session) = self.workers.apply(session, &self.options, &watch)?;
        let mut done = Vec::new();
        let filled = self.run_intervals(&session, &reporter, &observers, &mut done);
        if let Err(fault) = &filled {
            observers.run_ends(Err(fault));
        }
        let filled = observers.close(filled);
        let body = json!({ "nothing_new": done.iter().all(|done| done.skipped), "intervals": done });
        match filled {
            Err(fault) => reporter.failed(fault, body),
            Ok(()) if reporter.json() => reporter.done(&body),
            Ok(()) => Ok(ExitCode::SUCCESS),
        }
    }

    fn run_intervals(
        &self,
        session: &Session,
        reporter: &RunReporter,
        observers: &RunObservers,
        done: &mut Vec<IntervalOutcome>,
    ) -> Result<()> {
        if self.beside == Some(0) {
            return Err(usage("`--beside` must be at least 1"));
        }
        let pipeline = self.spec.pipeline()?;
        // All intervals together have one deadline.
        let by = pipeline.deadline.as_ref().and_then(|deadline| deadline.by.as_deref());
        let session = match (self.deadline.deadline.is_some(), by) {
            (false, Some(by)) => &session.clone().with_deadline(&DeadlineSpec::parse(by)?)?,
            _ => session,
        };
        let all = self.plan_intervals(session, &pipeline)?;
        let wanted = all.iter().filter(|(_, todo)| *todo != IntervalAction::Skip).map(|(interval, _)| interval.clone());
        let wanted: Vec<Interval> = wanted.collect();
        observers.metrics.name_pipeline(&pipeline.name);
        observers.metrics.own().set_intervals(wanted.len());
        let mut say = |interval: Interval, skipped: bool, rows: u64| -> Result<()> {
            let filled = IntervalOutcome { interval, skipped, rows };
            if !reporter.json() {
                super::write_stdout(&line(&filled))?;
            }
            done.push(filled);
            Ok(())
        };
        let mut all = all.into_iter().peekable();
        let beside = self.beside.unwrap_or(usize::MAX);
        let filled = session.backfill(&pipeline, &wanted, beside, &mut |interval, report| {
            // Intervals are told of as they end: several are at work at a time.
            observers.run_begins(&pipeline, Some(interval));
            observers.run_ends(Ok(&report));
            let rows = report.outputs.iter().map(|output| output.rows).sum();
            // Those between that are there already come first.
            for (interval, todo) in all.by_ref() {
                let skipped = todo == IntervalAction::Skip || todo == IntervalAction::Finish && report.nothing_new;
                say(interval, skipped, if skipped { 0 } else { rows })?;
                if todo != IntervalAction::Skip {
                    break;
                }
            }
            Ok(())
        });
        while let Some((interval, _)) = all.next_if(|(_, todo)| *todo == IntervalAction::Skip) {
            say(interval, true, 0)?;
        }
        filled
    }

    /// The intervals, each with what is done about it. One that is there is left alone, unless it lies within
    /// the lookback before the first that is not (or before the end, where all are).
    fn plan_intervals(&self, session: &Session, pipeline: &Pipeline) -> Result<Vec<(Interval, IntervalAction)>> {
        let intervals = self.intervals()?;
        let shown =
            intervals.iter().map(|interval| session.has_interval(pipeline, interval)).collect::<Result<Vec<_>>>()?;
        let new = shown.iter().position(|shown| !shown).unwrap_or(intervals.len());
        let before = intervals.get(new).map(|new| &new.from).or(intervals.last().map(|last| &last.to));
        let again =
            before.map(|before| session.intervals_in_lookback(pipeline, before)).transpose()?.unwrap_or_default();
        let todo = |(number, (interval, shown)): (usize, (Interval, bool))| {
            let todo = match shown && !again.contains(&interval) {
                false => IntervalAction::Run,
                true if number + 1 == new => IntervalAction::Finish,
                true => IntervalAction::Skip,
            };
            (interval, todo)
        };
        Ok(intervals.into_iter().zip(shown).enumerate().map(todo).collect())
    }

    fn intervals(&self) -> Result<Vec<Interval>> {
        let far = |_| usage("the intervals leave the calendar");
        let mut intervals = Vec::new();
        let mut from = self.from;
        // Each is counted from the first: months are of different lengths.
        for number in 1.. {
            let to = self.every.checked_mul(number).and_then(|ahead| self.from.checked_add(ahead)).map_err(far)?;
            if to > self.to {
                break;
            }
            if intervals.len() == INTERVALS_MAX {
                return Err(usage(format!("a backfill has at most {INTERVALS_MAX} intervals")));
            }
            intervals.push(Interval { from: text(from), to: text(to) });
            from = to;
        }
        match intervals.is_empty() {
            true => Err(usage("no interval lies between `--from` and `--to`")),
            false => Ok(intervals),
        }
    }
}

fn line(done: &IntervalOutcome) -> String {
    let IntervalOutcome { interval: Interval { from, to }, skipped, rows } = done;
    let what = if *skipped { "there already".to_owned() } else { units::rows(*rows) };
    format!("{from} .. {to}: {what}\n")
}

/// A date where it says it all.
fn text(time: DateTime) -> String {
    if time == time.date().to_datetime(jiff::civil::Time::midnight()) {
        time.date().to_string()
    } else {
        time.to_string()
    }
}

fn parse_interval_length(text: &str) -> Result<Span, String> {
    let wrong = || format!("`{text}` is no length of an interval; write 1d, 12h, 1w or 1mo");
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: i64 = text[..text.len() - unit.len()].parse().map_err(|_| wrong())?;
    let unit = match unit {
        "h" => Unit::Hour,
        "d" => Unit::Day,
        "w" => Unit::Week,
        "mo" => Unit::Month,
        _ => return Err(wrong()),
    };
    let span = match unit {
        Unit::Hour => 0.hours().try_hours(number),
        Unit::Day => 0.days().try_days(number),
        Unit::Week => 0.weeks().try_weeks(number),
        _ => 0.months().try_months(number),
    };
    span.ok().filter(|span| span.is_positive()).ok_or_else(wrong)
}
