//! `forebay check`.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, FaultCode, Pipeline, Result, codes};
use forebay_run::CutoffChoice;
use serde_json::{Value, json};

use super::options::{RunArgs, SpecArgs};
use crate::infer_expectations;
use crate::present;
use crate::present::diagnostic::{self, Severity};
use crate::present::report::summary_line;
use crate::present::{perturbed, units};
use crate::spec::ParsedSpec;

/// Exit code of a problem in the spec (sysexits' EX_CONFIG).
const EXIT_SPEC: u8 = 78;

/// Exit code of a problem in the data (sysexits' EX_DATAERR).
const EXIT_DATA: u8 = 65;

/// Check a spec and report every problem at once. Reads the schemas of its sources (footers and headers) and binds
/// every step to them; reads no rows.
#[derive(Debug, Args)]
pub(crate) struct CheckCommand {
    #[command(flatten)]
    spec: SpecArgs,
    /// Read no data, not even schemas: columns and their types are not checked.
    #[arg(long, conflicts_with = "perturb_future")]
    offline: bool,
    /// Check on the data that no feature knows the future: run in a temporary directory, as it is
    /// and with all rows after a time scrambled, and compare the rows up to then.
    #[arg(long)]
    perturb_future: bool,
    /// Check at this time only, such as 2016-04-24.
    #[arg(
        long,
        value_name = "TIME",
        requires = "perturb_future",
        conflicts_with = "cuts"
    )]
    at: Option<String>,
    /// Check at this many times, from the end of the part that is fitted on (else the middle of the
    /// data) to the last row; each takes one more run.
    #[arg(
        long,
        value_name = "COUNT",
        requires = "perturb_future",
        default_value = "3"
    )]
    cuts: NonZeroUsize,
    /// Write rules that the rows of this step or source keep today, as an `expect` step: of columns without nulls, ranges,
    /// sets of values, and the number of rows.
    #[arg(long, value_name = "STEP", conflicts_with_all = ["perturb_future", "offline"])]
    infer: Option<String>,
    #[command(flatten, next_help_heading = "Options of --perturb-future")]
    options: RunArgs,
}

impl CheckCommand {
    pub fn run(self) -> Result<ExitCode> {
        if self.perturb_future {
            return self.run_leakage_check();
        }
        if let Some(step) = &self.infer {
            return self.infer_expectations(step);
        }
        let reporter = self.options.reporter();
        match self.check() {
            Ok((pipeline, warnings)) => {
                let warnings: Vec<Fault> =
                    warnings.into_iter().map(present::fault::located).collect();
                present::fault::report_warnings(&warnings);
                if self.options.json {
                    let diagnostics = warnings
                        .iter()
                        .flat_map(|warning| diagnostic::all(warning, Severity::Warning));
                    let diagnostics: Vec<Value> = diagnostics.collect();
                    let body = json!({ "name": pipeline.name, "offline": self.offline, "diagnostics": diagnostics });
                    return reporter.done(&body);
                }
                super::write_text(&summary_text(&pipeline, self.offline, warnings.len()))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(fault) => {
                let code = check_exit_code(&fault);
                let fault = present::fault::located(fault);
                present::fault::report(&fault);
                if self.options.json {
                    let diagnostics = diagnostic::all(&fault, Severity::Error);
                    let body = json!({ "offline": self.offline, "diagnostics": diagnostics });
                    super::write_stdout(&summary_line("failed", &body)?)?;
                }
                Ok(ExitCode::from(code))
            }
        }
    }

    /// Writes the rules that the rows of a step keep.
    fn infer_expectations(&self, step: &str) -> Result<ExitCode> {
        let pipeline = self.spec.pipeline()?;
        let reporter = self.options.reporter();
        let profile = self
            .options
            .session(reporter.watch())?
            .profile(&pipeline, step, None)?;
        let keys = pipeline
            .sources
            .iter()
            .flat_map(|source| source.keys.iter().cloned())
            .collect::<Vec<_>>();
        let rules = infer_expectations::expectations(&profile, &keys);
        if reporter.json() {
            return reporter.done(&json!({ "step": step, "expect": rules }));
        }
        super::write_stdout(&rules)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The pipeline and its warnings, or all its problems.
    fn check(&self) -> Result<(Pipeline, Vec<Fault>)> {
        let ParsedSpec {
            pipeline,
            unread,
            mut faults,
            ..
        } = self.spec.parse_all()?;
        let mut warnings = Vec::new();
        if !self.offline {
            let checked = self.options.silent_session()?.check(&pipeline);
            let found: Vec<Fault> = match checked {
                Ok(found) => {
                    warnings = found;
                    Vec::new()
                }
                Err(fault) => fault.into_each(),
            };
            // What is wrong with a step that could not be read is said at its places.
            let is_read = |fault: &Fault| {
                fault
                    .site()
                    .spec
                    .as_ref()
                    .is_none_or(|at| !unread.contains(&at.path))
            };
            let is_new = |fault: &Fault| is_read(fault) && !follows_from(fault, &faults);
            let new: Vec<Fault> = found.into_iter().filter(is_new).collect();
            faults.extend(new);
        }
        Fault::combine(faults).map_or(Ok((pipeline, warnings)), Err)
    }

    fn run_leakage_check(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let session = self.options.session(reporter.watch())?;
        let cuts = self
            .at
            .clone()
            .map_or(CutoffChoice::Count(self.cuts), CutoffChoice::At);
        let done = self
            .spec
            .pipeline()
            .and_then(|pipeline| session.check_leakage(&pipeline, &cuts));
        perturbed::report_leakage(&reporter, done)
    }
}

/// Whether a fault of the bound pipeline follows from those of the spec: parts that could not be read are missing in
/// it, and cycles and the syntax of queries are checked in both.
fn follows_from(fault: &Fault, faults: &[Fault]) -> bool {
    let among = |code: FaultCode| faults.iter().any(|known| known.code() == code);
    (!faults.is_empty() && fault.code() == codes::UNKNOWN_NAME)
        || (fault.code() == codes::CYCLE && among(codes::CYCLE))
        || faults
            .iter()
            .any(|known| known.message() == fault.message())
}

/// Problems of a spec, and of the data that it names, are for its author to mend; storage that fails, and a spec that
/// is not there, are not.
fn check_exit_code(fault: &Fault) -> u8 {
    let mut all = std::iter::once(fault).chain(fault.others());
    let is_for_author = |fault: &Fault| match super::exit_code(fault) {
        EXIT_SPEC => true,
        EXIT_DATA => fault.site().spec.is_some(),
        _ => false,
    };
    if all.any(is_for_author) {
        EXIT_SPEC
    } else {
        super::exit_code(fault)
    }
}

fn summary_text(pipeline: &Pipeline, offline: bool, warnings: usize) -> String {
    let steps: usize = pipeline.nodes.iter().map(|node| node.steps.len()).sum();
    let sinks = pipeline.sinks.len() + pipeline.trainings.len() + pipeline.predictions.len();
    format!(
        "{}: {}, {}, {}, {}{}\n",
        pipeline.name,
        units::counted(pipeline.sources.len() as u64, "source"),
        units::counted(steps as u64, "step"),
        units::counted(sinks as u64, "sink"),
        if warnings == 0 {
            "no problems".to_owned()
        } else {
            units::counted(warnings as u64, "warning")
        },
        if offline {
            " (columns are not checked without data)"
        } else {
            ""
        }
    )
}
