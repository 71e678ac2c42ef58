//! `forebay backfill`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::{Interval, Result};
use forebay_run::Session;
use jiff::Span;
use jiff::civil::DateTime;
use serde_json::json;

use super::options::{DeadlineArgs, RenumberArgs, RunArgs, SpecArgs};
use super::workers::WorkersArgs;
use crate::backfill::{Backfill, IntervalOutcome, parse_interval_length};
use crate::observe::{ObserveArgs, RunObservers};
use crate::present::report::RunReporter;
use crate::present::sum_text::sum_text;
use crate::present::units;

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
    /// The end of the last interval: no interval goes beyond it. A rest that is shorter than an interval is named, and
    /// not run.
    #[arg(long, value_name = "TIME")]
    to: DateTime,
    /// Length of an interval: hours, days, weeks or months, such as 1d, 12h, 1w or 1mo.
    #[arg(long, value_name = "LENGTH", default_value = "1d", value_parser = parse_interval_length)]
    every: Span,
    /// Maximum number of intervals that run at a time; one with a deadline or with workers
    /// [default: one for each thread]
    #[arg(long, value_name = "N")]
    beside: Option<usize>,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    renumber: RenumberArgs,
    #[command(flatten)]
    deadline: DeadlineArgs,
    #[command(flatten)]
    workers: WorkersArgs,
    #[command(flatten)]
    observe: ObserveArgs,
}

impl BackfillCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let mut observers = self.observe.observers()?;
        let watch = observers.listen(reporter.watch());
        let session = self.deadline.apply(self.options.session(watch.clone())?)?;
        let session = observers.begin(session, &watch, self.options.run_id.as_deref())?;
        let (_workers, session) = self.workers.apply(
            session,
            &self.options,
            &watch,
            &self.observe.worker_arguments(),
        )?;
        let mut done = Vec::new();
        let filled = self.run_intervals(&session, &reporter, &observers, &mut done);
        if let Err(fault) = &filled {
            observers.run_ends(Err(fault));
        }
        let filled = observers.close(filled);
        let mut body =
            json!({ "nothing_new": done.iter().all(|done| done.skipped), "intervals": done });
        let remainder = self.backfill().remainder();
        if let Some(remainder) = &remainder {
            body["remainder"] = json!(remainder);
        }
        match filled {
            Err(fault) => reporter.failed(fault, body),
            Ok(()) if reporter.json() => reporter.done(&body),
            Ok(()) => {
                if let Some(Interval { from, to }) = remainder {
                    super::write_stdout(&format!("{from} .. {to}: no whole interval\n"))?;
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn backfill(&self) -> Backfill {
        Backfill {
            from: self.from,
            to: self.to,
            every: self.every,
            beside: self.beside,
        }
    }

    fn run_intervals(
        &self,
        session: &Session,
        reporter: &RunReporter,
        observers: &RunObservers,
        done: &mut Vec<IntervalOutcome>,
    ) -> Result<()> {
        let pipeline = self.spec.pipeline()?;
        observers.metrics.name_pipeline(&pipeline.name);
        let session = self.renumber.apply(session.clone(), &pipeline)?;
        let plan = self.backfill().plan(&session, &pipeline)?;
        observers.metrics.own().set_intervals(plan.runs());
        plan.run(&session, &pipeline, &mut |outcome| {
            if let Some(report) = &outcome.report {
                // Intervals are reported as they end: several run at a time.
                observers.run_begins(&pipeline, Some(&outcome.interval));
                observers.run_ends(Ok(report));
            }
            if !reporter.json() {
                super::write_stdout(&line(&outcome))?;
            }
            done.push(outcome);
            Ok(())
        })
    }
}

fn line(done: &IntervalOutcome) -> String {
    let IntervalOutcome {
        interval: Interval { from, to },
        skipped,
        rows,
        report,
    } = done;
    let outcome = if *skipped {
        "there already".to_owned()
    } else {
        units::rows(*rows)
    };
    let mut text = format!("{from} .. {to}: {outcome}\n");
    for output in report.iter().flat_map(|report| &report.outputs) {
        let sum = sum_text(&output.sum);
        if !sum.is_empty() {
            text += &format!("  {}:\n{sum}", output.sink);
        }
    }
    text
}
