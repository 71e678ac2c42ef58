//! `forebay test`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Result, codes};
use serde_json::json;

use super::options::{RunArgs, SpecArgs};
use crate::present::step_test;
use crate::spec::ParsedSpec;
use crate::step_test::{StepTest, TestOutcome};

/// Exit code of tests that failed (sysexits' EX_DATAERR).
const EXIT_FAILED: u8 = 65;

/// Run the tests of a spec: its steps on the rows that `tests:` gives, in a temporary directory. Reads no source.
#[derive(Debug, Args)]
pub(crate) struct TestCommand {
    #[command(flatten)]
    spec: SpecArgs,
    /// The tests to run [default: all]
    #[arg(value_name = "TEST")]
    names: Vec<String>,
    #[command(flatten)]
    options: RunArgs,
}

impl TestCommand {
    pub fn run(self) -> Result<ExitCode> {
        let ParsedSpec {
            pipeline,
            tests,
            faults,
            ..
        } = self.spec.parse_all()?;
        Fault::combine(faults).map_or(Ok(()), Err)?;
        let tests = self.chosen(&tests)?;
        let session = self.options.silent_session()?;
        let mut failed = 0;
        let mut reports = Vec::new();
        for test in &tests {
            let outcome = test.run(&session, &pipeline)?;
            let passed = outcome.differences.is_empty();
            failed += usize::from(!passed);
            let TestOutcome { differences, .. } = &outcome;
            reports.push(json!({ "name": test.name, "step": test.step, "passed": passed, "differences": differences }));
            if !self.options.json {
                super::write_text(&step_test::text(test, &outcome)?)?;
            }
        }
        if self.options.json {
            let line = json!({ "tests": reports, "failed": failed });
            self.options.reporter().done(&line)?;
        } else {
            super::write_text(&step_test::summary(tests.len(), failed))?;
        }
        Ok(if failed > 0 {
            ExitCode::from(EXIT_FAILED)
        } else {
            ExitCode::SUCCESS
        })
    }

    fn chosen<'t>(&self, tests: &'t [StepTest]) -> Result<Vec<&'t StepTest>> {
        if tests.is_empty() {
            let fault = Fault::new(codes::EMPTY, "the spec has no tests").file(self.spec.shown());
            return Err(fault.hint(
                "write some under `tests:`, such as `tests: { name: { step, given, expect } }`",
            ));
        }
        if self.names.is_empty() {
            return Ok(tests.iter().collect());
        }
        let mut chosen = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let Some(test) = tests.iter().find(|test| test.name == *name) else {
                let fault = Fault::new(codes::UNKNOWN_NAME, format!("there is no test `{name}`"));
                let names = tests.iter().map(|test| test.name.as_str());
                return Err(fault.suggest(name, names, "the tests are"));
            };
            chosen.push(test);
        }
        Ok(chosen)
    }
}
