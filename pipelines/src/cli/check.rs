//! `forebay check`.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, FaultCode, Pipeline, Result, codes};
use forebay_run::{CutoffChoice, UnservedStep};
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
    /// Tell which steps keep rows from being served one by one, and why: behind the step of `serving`, else behind the
    /// steps that sinks write. Of steps whose models predict the future alone, tell what keeps forecasts from being
    /// served. Ends with exit 78 where there are such steps.
    #[arg(long, conflicts_with_all = ["perturb_future", "offline", "infer"])]
    serving: bool,
    /// Compute the first rows of each step with a function of Python or a program, in batches of 1, 7 and more rows, and
    /// compare the values: functions are row-wise. Runs the functions.
    #[arg(long, conflicts_with_all = ["perturb_future", "offline", "infer", "serving"])]
    functions: bool,
    /// Rows of each source to compute from, its first ones.
    #[arg(
        long,
        value_name = "N",
        requires = "functions",
        default_value_t = 1_000
    )]
    sample_rows: u64,
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
        if self.serving {
            return self.report_unserved();
        }
        if self.functions {
            return self.check_functions();
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
                    let body = json!({
                        "name": pipeline.name,
                        "offline": self.offline,
                        "diagnostics": diagnostics,
                    });
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

    /// Writes the steps behind which rows cannot be served one by one.
    fn report_unserved(&self) -> Result<ExitCode> {
        let pipeline = self.spec.pipeline()?;
        let reporter = self.options.reporter();
        let session = self.options.silent_session()?;
        let nodes: BTreeSet<&String> = match &pipeline.serving {
            Some(serving) => [&serving.from].into(),
            None => {
                let sinks = pipeline.sinks.iter().chain(&pipeline.trainings);
                sinks.map(|sink| &sink.from).collect()
            }
        };
        let mut text = String::new();
        let mut steps = Vec::new();
        for node in nodes {
            let unserved = session.unserved_steps(&pipeline, node)?;
            if unserved.is_empty() {
                text += &format!("{node}: rows can be served one by one\n");
            }
            for UnservedStep { step, reason } in unserved {
                text += &format!("{node}: `{step}` {reason}\n");
                steps.push(json!({ "served": node, "step": step, "reason": reason }));
            }
        }
        let code = if steps.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(EXIT_SPEC)
        };
        if reporter.json() {
            super::write_stdout(&summary_line("done", &json!({ "unserved": steps }))?)?;
            return Ok(code);
        }
        super::write_text(&text)?;
        Ok(code)
    }

    /// Writes the steps whose functions give the same values in batches of any size.
    fn check_functions(&self) -> Result<ExitCode> {
        let pipeline = self.spec.pipeline()?;
        let reporter = self.options.reporter();
        let session = self.options.silent_session()?;
        let checked = match session.check_functions(&pipeline, self.sample_rows.max(1)) {
            Ok(checked) => checked,
            Err(fault) => return reporter.failed(fault, json!({})),
        };
        if reporter.json() {
            return reporter.done(&json!({ "functions": checked }));
        }
        let mut text = String::new();
        for function in &checked {
            text += &format!(
                "{}: {} have the same values in batches of any size\n",
                function.step,
                units::counted(function.rows as u64, "row")
            );
        }
        if checked.is_empty() {
            text += "no step has a function\n";
        }
        super::write_text(&text)?;
        Ok(ExitCode::SUCCESS)
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
            let mut new_faults = Vec::new();
            match self.options.silent_session()?.check(&pipeline) {
                Ok(found_warnings) => warnings = found_warnings,
                Err(fault) => new_faults = fault.into_each(),
            }
            // Faults of a step that could not be read were reported at their places.
            new_faults.retain(|fault| {
                let at = fault.site().spec.as_ref();
                let is_read = at.is_none_or(|at| !unread.contains(&at.path));
                is_read && !follows_from(fault, &faults)
            });
            faults.extend(new_faults);
        }
        match Fault::combine(faults) {
            Some(fault) => Err(fault),
            None => Ok((pipeline, warnings)),
        }
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

/// True if a fault of the bound pipeline follows from those of the spec: parts that could not be
/// read are missing from it, and cycles and the syntax of queries are checked in both.
fn follows_from(fault: &Fault, faults: &[Fault]) -> bool {
    let among = |code: FaultCode| faults.iter().any(|reported| reported.code() == code);
    (!faults.is_empty() && fault.code() == codes::UNKNOWN_NAME)
        || (fault.code() == codes::CYCLE && among(codes::CYCLE))
        || faults
            .iter()
            .any(|reported| reported.message() == fault.message())
}

/// Problems of a spec, and of the data that it names, are for its author to mend; storage that fails, and a spec that
/// is not there, are not.
fn check_exit_code(fault: &Fault) -> u8 {
    let mut faults = std::iter::once(fault).chain(fault.others());
    let is_for_author = |fault: &Fault| match super::exit_code(fault) {
        EXIT_SPEC => true,
        EXIT_DATA => fault.site().spec.is_some(),
        _ => false,
    };
    if faults.any(is_for_author) {
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
