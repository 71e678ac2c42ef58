//! Judges what `expect` steps say, when all statistics of a run are known and nothing is published yet.

use arrow::datatypes::{DataType, Field, TimeUnit};
use forebay_model::{Fault, Interval, Result, TimeCutoff, codes};
use forebay_plan::{Expectation, ExpectationOutcome, ExpectationPolicy, PlanOp, ViolatingValue};
use forebay_storage::Event;
use jiff::Timestamp;
use serde::Serialize;

use crate::executor::RunExecutor;

/// Values that a fault names.
const VALUES_SHOWN: usize = 10;

/// What an `expect` step found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpectationReport {
    /// The step.
    pub step: String,
    /// The rule, such as `not_null: qty`.
    pub rule: String,
    /// Whether it holds.
    pub holds: bool,
    /// Rows that were looked at.
    pub rows: u64,
    /// Rows that violate it.
    pub violations: u64,
    /// Those of them that were taken out: rows that violate several rules count for the first one.
    pub quarantined: u64,
    /// The most frequent values that violate it: at most ten.
    pub values: Vec<ViolatingValue>,
    /// What was found, for people; empty where it holds.
    pub found: String,
}

impl RunExecutor<'_> {
    /// Judges all expectations. Fails where one whose policy is to fail does not hold; of others, an event tells.
    pub(crate) fn judge_expectations(&self, interval: Option<&Interval>) -> Result<Vec<ExpectationReport>> {
        let now = self.present(interval)?;
        let (mut reports, mut faults) = (Vec::new(), Vec::new());
        for op in &self.program.bound.ops {
            let PlanOp::Map(map) = &op.op else { continue };
            let Some(expectation) = &map.expectation else { continue };
            let findings = op.asks.iter().map(|ask| self.known.finding(&self.program, *ask));
            let outcome = (expectation.judge)(&findings.collect::<Result<Vec<_>>>()?, now)?;
            let found = found_text(&outcome);
            if !outcome.holds {
                let message = format!("`{}` does not hold in step {}: {found}", expectation.name, op.label);
                match expectation.policy {
                    ExpectationPolicy::Warn => self.session.watch.on_event(Event::Warning { message }),
                    ExpectationPolicy::Fail | ExpectationPolicy::Quarantine => {
                        faults.push(fault(message, expectation).at(op.at.as_ref()))
                    }
                }
            }
            reports.push(ExpectationReport {
                step: op.label.clone(),
                rule: expectation.name.clone(),
                holds: outcome.holds,
                rows: outcome.rows,
                violations: outcome.violations,
                quarantined: match expectation.policy {
                    ExpectationPolicy::Quarantine => outcome.violations,
                    ExpectationPolicy::Fail | ExpectationPolicy::Warn => 0,
                },
                values: outcome.examples,
                found: if outcome.holds { String::new() } else { found },
            });
        }
        Fault::combine(faults).map_or(Ok(reports), Err)
    }

    /// The time of the run, or the end of what it knows, in nanoseconds since 1970.
    fn present(&self, interval: Option<&Interval>) -> Result<i128> {
        let end = interval.map(|interval| TimeCutoff::before(&interval.to)).or_else(|| self.session.as_of.clone());
        let Some(end) = end else { return Ok(Timestamp::now().as_nanosecond()) };
        let time = Field::new("time", DataType::Timestamp(TimeUnit::Nanosecond, None), false);
        // Whole numbers as times have no age.
        Ok(end.last_tick(&time).map_or(0, |last| i128::from(last) + 1))
    }
}

fn fault(message: String, expectation: &Expectation) -> Fault {
    let fault = Fault::new(codes::EXPECTATION, message);
    let is_per_row = ["not_null", "range", "in_set", "sql"].iter().any(|rule| expectation.name.starts_with(rule));
    fault.hint(match (is_per_row, expectation.policy) {
        (_, ExpectationPolicy::Quarantine) => "nothing was published; correct the data, or raise `at_most`",
        (true, _) => {
            "nothing was published; correct the data, allow a share of rows with `at_most`, or write `policy: warn` or \
             `policy: quarantine`"
        }
        (false, _) => "nothing was published; correct the data, or write `policy: warn`",
    })
}

/// `12 of 1,000 rows (1.2 %): "" (10 rows), "x" (2 rows)`.
fn found_text(outcome: &ExpectationOutcome) -> String {
    let ExpectationOutcome { rows, violations, found, examples, .. } = outcome;
    let share = 100.0 * *violations as f64 / (*rows).max(1) as f64;
    let mut text = if found.is_empty() { format!("{violations} of {rows} rows ({share:.3} %)") } else { found.clone() };
    if !examples.is_empty() {
        let values = examples.iter().take(VALUES_SHOWN).map(|value| format!("{} ({} rows)", value.value, value.rows));
        text += &format!(": {}", values.collect::<Vec<_>>().join(", "));
    }
    text
}
