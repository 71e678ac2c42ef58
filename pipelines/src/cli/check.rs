//! `forebay check`.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Pipeline, Result};
use forebay_run::CutoffChoice;

use super::options::{RunArgs, SpecArgs};
use super::usage;
use crate::present::perturbed;
use crate::present::report::RunReporter;

/// Check a spec without reading any data; reports every problem at once.
#[derive(Debug, Args)]
pub(crate) struct CheckCommand {
    #[command(flatten)]
    spec: SpecArgs,
    /// Check on the data that no feature knows the future: run in a temporary directory, as it is
    /// and with all rows after a time scrambled, and compare the rows up to then.
    #[arg(long)]
    perturb_future: bool,
    /// Check at this time only, such as 2016-04-24.
    #[arg(long, value_name = "TIME", requires = "perturb_future", conflicts_with = "cuts")]
    at: Option<String>,
    /// Check at this many times, from the end of the part that is fitted on (else the middle of the
    /// data) to the last row; each takes one more run.
    #[arg(long, value_name = "COUNT", requires = "perturb_future", default_value = "3")]
    cuts: NonZeroUsize,
    #[command(flatten, next_help_heading = "Options of --perturb-future")]
    options: RunArgs,
}

impl CheckCommand {
    pub fn run(self) -> Result<ExitCode> {
        if self.perturb_future {
            return self.run_leakage_check();
        }
        if self.options.json {
            return Err(usage("`--json` goes with `--perturb-future`"));
        }
        let pipeline = self.spec.pipeline()?;
        super::write_stdout(&summary_text(&pipeline))?;
        Ok(ExitCode::SUCCESS)
    }

    fn run_leakage_check(self) -> Result<ExitCode> {
        let reporter = RunReporter::new(self.options.json);
        let session = self.options.session(reporter.watch())?;
        let cuts = self.at.clone().map_or(CutoffChoice::Count(self.cuts), CutoffChoice::At);
        let done = self.spec.pipeline().and_then(|pipeline| session.check_leakage(&pipeline, &cuts));
        perturbed::report_leakage(&reporter, done)
    }
}

fn summary_text(pipeline: &Pipeline) -> String {
    let steps: usize = pipeline.nodes.iter().map(|node| node.steps.len()).sum();
    format!(
        "{}: {} sources, {} steps, {} sinks, no problems\n",
        pipeline.name,
        pipeline.sources.len(),
        steps,
        pipeline.sinks.len() + pipeline.trainings.len() + pipeline.predictions.len()
    )
}
