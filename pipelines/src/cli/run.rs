//! `forebay run`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::{Result, catch_panic};
use forebay_run::{RunReport, RunSample};

use super::options::{DeadlineArgs, IntervalArgs, PublishArgs, RenumberArgs, RunArgs, SpecArgs};
use super::workers::WorkersArgs;
use crate::observe::ObserveArgs;
use crate::page::{PageArgs, RunPage};
use crate::present;
use crate::present::report::RunReporter;

/// Run a spec: learn everything, commit the artifact, and write all sinks.
#[derive(Debug, Args)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    publish: PublishArgs,
    #[command(flatten)]
    renumber: RenumberArgs,
    #[command(flatten)]
    deadline: DeadlineArgs,
    #[command(flatten)]
    workers: WorkersArgs,
    #[command(flatten)]
    observe: ObserveArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Exit with 99 when everything was known already.
    #[arg(long)]
    signal_nothing_new: bool,
    #[command(flatten)]
    interval: IntervalArgs,
    /// Print the plan, with what is reused and estimates of the rest, as `explain` does; run nothing.
    #[arg(long)]
    dry_run: bool,
    /// Run on a share of the series of each source, such as 1% (of the rows, where a source
    /// declares no keys). Outputs, models and states go to a directory next to the state directory
    /// (.forebay-sample); no other file is touched.
    #[arg(
        long,
        value_name = "SHARE",
        conflicts_with_all = ["interval", "limit", "workers", "local_workers", "on"]
    )]
    sample: Option<RunSample>,
    /// Run on the first N rows of each source, like --sample.
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["interval", "workers", "local_workers", "on"]
    )]
    limit: Option<u64>,
}

impl RunCommand {
    pub fn run(self) -> Result<ExitCode> {
        if self.dry_run {
            return self.plan();
        }
        let reporter = self.options.reporter();
        let mut page = RunPage::new(self.page.begin(self.spec.shown())?);
        let report = catch_panic(|| self.report(&reporter, &mut page));
        let report = page.finish(report);
        super::report_run(
            &reporter,
            report,
            self.signal_nothing_new,
            self.deadline.signal_ladder,
        )
    }

    /// Runs, and notifies observers. Workers that join or leave are reported before it returns.
    fn report(&self, reporter: &RunReporter, page: &mut RunPage) -> Result<RunReport> {
        let mut observers = self.observe.observers()?;
        let watch = page.listen(observers.listen(reporter.watch()));
        let session = self.deadline.apply(self.options.session(watch.clone())?)?;
        let pipeline = self
            .spec
            .pipeline()
            .inspect(|pipeline| observers.metrics.name_pipeline(&pipeline.name));
        let session = observers.begin(session, &watch, self.options.run_id.as_deref())?;
        let sample = self.sample.or(self.limit.map(RunSample::Rows));
        let (_workers, session) = match sample {
            None => self.workers.apply(
                session,
                &self.options,
                &watch,
                &self.observe.worker_arguments(),
            )?,
            // A trial is small, and workers read whole sources.
            Some(_) => (None, session),
        };
        let session = session
            .allowing_empty(self.publish.allow_empty)
            .with_page(page.path());
        let interval = self.interval.interval();
        let report = pipeline.and_then(|pipeline| {
            let (session, pipeline) = match sample {
                Some(sample) => session.sampled(&pipeline, sample)?,
                None => (session.clone(), pipeline),
            };
            let session = self.renumber.apply(session, &pipeline)?;
            page.begin(&pipeline, &session);
            observers.run_begins(&pipeline, interval.as_ref());
            let report = match &interval {
                Some(interval) => session.run_interval(&pipeline, interval),
                None => session.run(&pipeline),
            }?;
            page.make(&report, &session)?;
            Ok(report)
        });
        drop(session);
        observers.finish(report)
    }

    fn plan(&self) -> Result<ExitCode> {
        let pipeline = self.spec.pipeline()?;
        let (session, pipeline) = match self.sample.or(self.limit.map(RunSample::Rows)) {
            Some(sample) => self.options.silent_session()?.sampled(&pipeline, sample)?,
            None => (self.options.silent_session()?, pipeline),
        };
        let explain = session.explain(&pipeline, self.interval.interval().as_ref())?;
        let text = if self.options.json {
            present::explain::json(&explain)?
        } else {
            present::fit(&present::explain::text(&explain), present::output_columns())
        };
        super::write_stdout(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
