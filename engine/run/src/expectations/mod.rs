//! Judges `expect` rules when all statistics of a run are known and before any output is published.

mod applied_rules;
mod drift;
mod judged;
mod last_run;
mod new_rows;
mod recent_days;
mod report;
mod violating_rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use forebay_model::{Fault, Finding, Interval, Result, TimeCutoff, codes};
use forebay_plan::{
    AnalyzerId, BoundOp, Expectation, ExpectationJudge, ExpectationOutcome, ExpectationPolicy,
    JudgeContext, OpId, ViolatingRow,
};
use forebay_storage::Event;
use jiff::Timestamp;

use self::drift::ComparedRows;
use self::judged::JudgedExpectation;
pub(crate) use self::last_run::LastRunRecord;
use self::last_run::RuleRecord;
use self::new_rows::NewRows;
pub use self::report::ExpectationReport;
use crate::executor::RunExecutor;
use crate::row_rules::expectation_of;

/// Values that a fault names.
const VALUES_SHOWN: usize = 10;

/// Nanoseconds.
const DAY: i128 = 86_400_000_000_000;

/// Results of the expectations of a run.
pub(crate) struct JudgedExpectations {
    pub reports: Vec<ExpectationReport>,
    /// Record that the next run compares with.
    pub record: LastRunRecord,
}

/// Time of a run.
#[derive(Debug, Clone, Copy)]
struct RunTime {
    /// The time of the run, or the end of its known data, in nanoseconds since 1970; 0 where that
    /// is a whole number.
    now: i128,
    /// The last day of its known data, counted from 1970; that of the clock where its end is a
    /// whole number.
    day: i64,
}

/// Inputs of a judgement besides the findings about all rows.
#[derive(Clone, Copy)]
struct RuleContext<'a> {
    time: RunTime,
    /// Result of the rule in the last run.
    last: Option<&'a RuleRecord>,
    new: &'a NewRows,
    /// Findings of rules that the passes of the run do not learn.
    learned: &'a BTreeMap<AnalyzerId, Arc<Finding>>,
}

/// An expectation that fails a run.
struct FailedExpectation<'a> {
    op: &'a BoundOp,
    expectation: &'a Expectation,
    found: String,
}

impl FailedExpectation<'_> {
    /// The analyzer whose input decides which rows violate the rule.
    fn analyzer_of_rows(&self) -> Option<AnalyzerId> {
        matches!(self.expectation.judge, ExpectationJudge::Rows(_))
            .then(|| self.op.asks.first().copied())?
    }

    fn fault(&self, rows: &[ViolatingRow]) -> Fault {
        let fault = fault(
            message(self.op, self.expectation, &self.found),
            self.expectation,
        )
        .at(self.op.at.as_ref());
        let Some(first) = rows.first() else {
            return fault;
        };
        let mut file_texts = Vec::new();
        for rows in rows.chunk_by(|row, next| row.file == next.file) {
            let row_texts: Vec<String> = rows
                .iter()
                .map(|row| format!("row {} ({})", row.row, row.value))
                .collect();
            file_texts.push(format!("{} {}", rows[0].file, row_texts.join(", ")));
        }
        let listed = file_texts.join("; ");
        let in_first_file = rows
            .iter()
            .filter(|row| row.file == first.file)
            .map(|row| row.row);
        let fault = fault.file(first.file.as_str()).rows(in_first_file);
        fault.note(format!("the first rows that violate it: {listed}"))
    }
}

impl RunExecutor<'_> {
    /// Judges all expectations. Fails if an expectation whose policy is to fail does not hold;
    /// sends an event for others that do not hold.
    pub(crate) fn judge_expectations(
        &self,
        interval: Option<&Interval>,
    ) -> Result<JudgedExpectations> {
        let mut reports = Vec::new();
        let mut failed = Vec::new();
        let mut record = LastRunRecord::default();
        let rules = self.judged_rules();
        if rules.is_empty() {
            return Ok(JudgedExpectations { reports, record });
        }
        let learned = self.learn_applied_rules(&rules)?;
        let time = self.run_time(interval);
        let state = self.session.state()?;
        let last = LastRunRecord::load(&self.session.io, &state, &self.pipeline.name)?;
        let new = if learned.is_empty() {
            self.learn_new_rows(&last.known, time.day)?
        } else {
            NewRows::default()
        };
        for rule in rules {
            let op = &self.program.bound.ops[rule];
            let Some(expectation) = expectation_of(op) else {
                continue;
            };
            let context = RuleContext {
                time,
                last: last.rule(&op.label, &expectation.name),
                new: &new,
                learned: &learned,
            };
            let JudgedExpectation {
                outcome,
                drift,
                record: rule_record,
            } = self.judge(op, expectation, context)?;
            record.insert(&op.label, &expectation.name, rule_record);
            let finding_text = found_text(&outcome);
            if !outcome.holds {
                match expectation.policy {
                    ExpectationPolicy::Warn => {
                        let message = message(op, expectation, &finding_text);
                        self.session.watch.on_event(Event::Warning { message });
                    }
                    ExpectationPolicy::Fail | ExpectationPolicy::Quarantine => {
                        failed.push(FailedExpectation {
                            op,
                            expectation,
                            found: finding_text.clone(),
                        })
                    }
                }
            }
            let report = ExpectationReport {
                step: op.label.clone(),
                rule: expectation.name.clone(),
                of_future: expectation.of_future,
                holds: outcome.holds,
                rows: outcome.rows,
                violations: outcome.violations,
                quarantined: match expectation.policy {
                    ExpectationPolicy::Quarantine => outcome.violations,
                    ExpectationPolicy::Fail | ExpectationPolicy::Warn => 0,
                },
                values: outcome.examples,
                found: if outcome.holds {
                    String::new()
                } else {
                    finding_text
                },
                drift,
            };
            self.session.watch.on_event(report.event());
            reports.push(report);
        }
        record.known = new.known;
        let asks: Vec<AnalyzerId> = failed
            .iter()
            .filter_map(FailedExpectation::analyzer_of_rows)
            .collect();
        let rows = self.first_rows(&asks)?;
        let mut faults = Vec::new();
        for expectation in &failed {
            let analyzer = expectation.analyzer_of_rows();
            let violating_rows = analyzer.and_then(|ask| rows.get(&ask));
            faults.push(expectation.fault(violating_rows.map_or(&[], Vec::as_slice)));
        }
        match Fault::combine(faults) {
            Some(fault) => Err(fault),
            None => Ok(JudgedExpectations { reports, record }),
        }
    }

    /// Findings of rules over the rows that an artifact is applied to: no pass of it needs them.
    fn learn_applied_rules(&self, rules: &[OpId]) -> Result<BTreeMap<AnalyzerId, Arc<Finding>>> {
        if !self.session.attempt.served_inputs.is_application {
            return Ok(BTreeMap::new());
        }
        let bound = self.program.bound.clone();
        let asks = rules.iter().flat_map(|rule| bound.ops[*rule].asks.clone());
        let asks = asks.collect();
        self.learn_over(bound, asks)
    }

    fn judge(
        &self,
        op: &BoundOp,
        expectation: &Expectation,
        context: RuleContext<'_>,
    ) -> Result<JudgedExpectation> {
        let RuleContext {
            time,
            last,
            new,
            learned,
        } = context;
        let mut findings = Vec::new();
        for ask in &op.asks {
            findings.push(match learned.get(ask) {
                Some(finding) => finding.clone(),
                None => self.state.finding(&self.program, *ask)?,
            });
        }
        match &expectation.judge {
            ExpectationJudge::Rows(judge) | ExpectationJudge::Whole(judge) => {
                let context = JudgeContext {
                    now: time.now,
                    last_rows: last.map(|last| last.rows),
                };
                let outcome = judge(&findings, &context)?;
                let record = RuleRecord {
                    rows: outcome.rows,
                    ..RuleRecord::default()
                };
                Ok(JudgedExpectation {
                    outcome,
                    drift: None,
                    record,
                })
            }
            ExpectationJudge::Drift(rule) => {
                let kinds = || {
                    op.asks
                        .iter()
                        .map(|ask| self.program.bound.asks[*ask].ask.analyzer.kind())
                };
                let all_rows = kinds()
                    .zip(findings.iter().map(|finding| finding.as_ref()))
                    .collect();
                let new = new.findings(&op.asks);
                let new = new.as_ref().map(|new| {
                    kinds()
                        .zip(new.iter().map(|finding| finding.as_ref()))
                        .collect()
                });
                let compared = ComparedRows { all: all_rows, new };
                drift::judge(rule, &compared, time.day, last)
            }
        }
    }

    fn run_time(&self, interval: Option<&Interval>) -> RunTime {
        let clock = Timestamp::now().as_nanosecond();
        let end = interval
            .map(|interval| TimeCutoff::before(&interval.to))
            .or_else(|| self.session.as_of.clone());
        let Some(end) = end else {
            return RunTime {
                now: clock,
                day: clock.div_euclid(DAY) as i64,
            };
        };
        let time = Field::new(
            "time",
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            false,
        );
        // Whole numbers as times have no age.
        let last = end.last_tick(&time).ok().map(i128::from);
        RunTime {
            now: last.map_or(0, |last| last + 1),
            day: last.unwrap_or(clock).div_euclid(DAY) as i64,
        }
    }
}

fn message(op: &BoundOp, expectation: &Expectation, finding_text: &str) -> String {
    format!(
        "`{}` does not hold in step {}: {finding_text}",
        expectation.name, op.label
    )
}

fn fault(message: String, expectation: &Expectation) -> Fault {
    let fault = Fault::new(codes::EXPECTATION, message);
    let is_per_row = matches!(expectation.judge, ExpectationJudge::Rows(_));
    fault.hint(match (is_per_row, expectation.policy) {
        (_, ExpectationPolicy::Quarantine) => {
            "nothing was published; correct the data, or raise \
                                               `at_most`"
        }
        (true, _) => {
            "nothing was published; correct the data, allow a share of rows with `at_most`, or \
             write `policy: warn` or \
             `policy: quarantine`"
        }
        (false, _) => "nothing was published; correct the data, or write `policy: warn`",
    })
}

/// `12 of 1,000 rows (1.2 %): "" (10 rows), "x" (2 rows)`.
fn found_text(outcome: &ExpectationOutcome) -> String {
    let ExpectationOutcome {
        rows,
        violations,
        found,
        examples,
        ..
    } = outcome;
    let share = 100.0 * *violations as f64 / (*rows).max(1) as f64;
    let mut text = if found.is_empty() {
        format!("{violations} of {rows} rows ({share:.3} %)")
    } else {
        found.clone()
    };
    if !examples.is_empty() {
        let values = examples
            .iter()
            .take(VALUES_SHOWN)
            .map(|value| format!("{} ({} rows)", value.value, value.rows));
        text += &format!(": {}", values.collect::<Vec<_>>().join(", "));
    }
    text
}
