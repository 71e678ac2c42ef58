//! Judges what `expect` steps say, when all statistics of a run are known and nothing is published yet.

mod drift;
mod last_run;
mod new_rows;
mod recent_days;
mod violating_rows;

use arrow::datatypes::{DataType, Field, TimeUnit};
use forebay_model::{Fault, Interval, Result, TimeCutoff, codes};
use forebay_plan::{
    AnalyzerId, BoundOp, Expectation, ExpectationJudge, ExpectationOutcome, ExpectationPolicy,
    JudgeContext, PlanOp, ViolatingRow, ViolatingValue,
};
use forebay_storage::{DriftMeasures, Event};
use jiff::Timestamp;
use serde::Serialize;

use self::drift::ComparedRows;
pub(crate) use self::last_run::LastRunRecord;
use self::last_run::RuleRecord;
use self::new_rows::NewRows;
use crate::executor::RunExecutor;

/// Values that a fault names.
const VALUES_SHOWN: usize = 10;

/// Nanoseconds.
const DAY: i128 = 86_400_000_000_000;

/// What an `expect` step found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExpectationReport {
    /// The step.
    pub step: String,
    /// The rule, such as `not_null: qty`.
    pub rule: String,
    /// True if it judges the rows of the future, not the known ones.
    pub of_future: bool,
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
    /// The measures of a rule about a distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<Box<DriftMeasures>>,
}

impl ExpectationReport {
    fn event(&self) -> Event {
        let ExpectationReport {
            step,
            rule,
            holds,
            rows,
            violations,
            quarantined,
            found,
            drift,
            ..
        } = self.clone();
        Event::ExpectationJudged {
            step,
            rule,
            holds,
            rows,
            violations,
            quarantined,
            found,
            drift,
        }
    }
}

/// What the expectations of a run found.
pub(crate) struct JudgedExpectations {
    pub reports: Vec<ExpectationReport>,
    /// For the next run to compare with.
    pub record: LastRunRecord,
}

/// What one expectation found.
struct JudgedExpectation {
    outcome: ExpectationOutcome,
    drift: Option<Box<DriftMeasures>>,
    /// For the next run to compare with.
    kept: RuleRecord,
}

/// When a run is.
#[derive(Debug, Clone, Copy)]
struct RunTime {
    /// The time of the run, or the end of what it knows, in nanoseconds since 1970; 0 where that is a whole number.
    now: i128,
    /// The last day that it knows, counted from 1970; that of the clock where its end is a whole number.
    day: i64,
}

/// What a rule is judged by, besides the findings about all rows.
#[derive(Clone, Copy)]
struct RuleContext<'a> {
    time: RunTime,
    /// What it found in the last run.
    last: Option<&'a RuleRecord>,
    new: &'a NewRows,
}

/// An expectation that fails a run.
struct FailedExpectation<'a> {
    op: &'a BoundOp,
    expectation: &'a Expectation,
    found: String,
}

impl FailedExpectation<'_> {
    /// The analyzer whose input tells which rows violate it.
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
        let of_file = |rows: &[ViolatingRow]| {
            let each = rows
                .iter()
                .map(|row| format!("row {} ({})", row.row, row.value));
            format!("{} {}", rows[0].file, each.collect::<Vec<_>>().join(", "))
        };
        let by_file = rows
            .chunk_by(|row, next| row.file == next.file)
            .map(of_file);
        let places = by_file.collect::<Vec<_>>().join("; ");
        let in_first_file = rows
            .iter()
            .filter(|row| row.file == first.file)
            .map(|row| row.row);
        let fault = fault.file(first.file.as_str()).rows(in_first_file);
        fault.note(format!("the first rows that violate it: {places}"))
    }
}

impl RunExecutor<'_> {
    /// Judges all expectations. Fails where one whose policy is to fail does not hold; of others, an event tells.
    pub(crate) fn judge_expectations(
        &self,
        interval: Option<&Interval>,
    ) -> Result<JudgedExpectations> {
        let (mut reports, mut failed, mut record) =
            (Vec::new(), Vec::new(), LastRunRecord::default());
        let has_any = self
            .program
            .bound
            .ops
            .iter()
            .any(|op| expectation_of(op).is_some());
        if !has_any {
            return Ok(JudgedExpectations { reports, record });
        }
        let (time, state) = (self.run_time(interval), self.session.state()?);
        let last = LastRunRecord::load(&self.session.io, &state, &self.pipeline.name)?;
        let new = self.learn_new_rows(&last.known, time.day)?;
        for op in &self.program.bound.ops {
            let Some(expectation) = expectation_of(op) else {
                continue;
            };
            let before = last.rule(&op.label, &expectation.name);
            let context = RuleContext {
                time,
                last: before,
                new: &new,
            };
            let JudgedExpectation {
                outcome,
                drift,
                kept,
            } = self.judge(op, expectation, context)?;
            record.insert(&op.label, &expectation.name, kept);
            let found = found_text(&outcome);
            if !outcome.holds {
                match expectation.policy {
                    ExpectationPolicy::Warn => {
                        let message = message(op, expectation, &found);
                        self.session.watch.on_event(Event::Warning { message });
                    }
                    ExpectationPolicy::Fail | ExpectationPolicy::Quarantine => {
                        failed.push(FailedExpectation {
                            op,
                            expectation,
                            found: found.clone(),
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
                found: if outcome.holds { String::new() } else { found },
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
        let of = |failed: &FailedExpectation<'_>| {
            failed.analyzer_of_rows().and_then(|ask| rows.get(&ask))
        };
        let faults = failed
            .iter()
            .map(|failed| failed.fault(of(failed).map_or(&[], Vec::as_slice)));
        Fault::combine(faults.collect()).map_or(Ok(JudgedExpectations { reports, record }), Err)
    }

    fn judge(
        &self,
        op: &BoundOp,
        expectation: &Expectation,
        context: RuleContext<'_>,
    ) -> Result<JudgedExpectation> {
        let RuleContext { time, last, new } = context;
        let finding = |ask: &AnalyzerId| self.state.finding(&self.program, *ask);
        let findings = op.asks.iter().map(finding).collect::<Result<Vec<_>>>()?;
        match &expectation.judge {
            ExpectationJudge::Rows(judge) | ExpectationJudge::Whole(judge) => {
                let context = JudgeContext {
                    now: time.now,
                    last_rows: last.map(|last| last.rows),
                };
                let outcome = judge(&findings, &context)?;
                let kept = RuleRecord {
                    rows: outcome.rows,
                    ..RuleRecord::default()
                };
                Ok(JudgedExpectation {
                    outcome,
                    drift: None,
                    kept,
                })
            }
            ExpectationJudge::Drift(rule) => {
                let kinds = || {
                    op.asks
                        .iter()
                        .map(|ask| self.program.bound.asks[*ask].ask.analyzer.kind())
                };
                let all = kinds()
                    .zip(findings.iter().map(|finding| finding.as_ref()))
                    .collect();
                let new = new.findings(&op.asks);
                let new = new.as_ref().map(|new| {
                    kinds()
                        .zip(new.iter().map(|finding| finding.as_ref()))
                        .collect()
                });
                drift::judge(rule, &ComparedRows { all, new }, time.day, last)
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

/// What an operation expects of its rows.
fn expectation_of(op: &BoundOp) -> Option<&Expectation> {
    match &op.op {
        PlanOp::Map(map) => map.expectation.as_ref(),
        _ => None,
    }
}

fn message(op: &BoundOp, expectation: &Expectation, found: &str) -> String {
    format!(
        "`{}` does not hold in step {}: {found}",
        expectation.name, op.label
    )
}

fn fault(message: String, expectation: &Expectation) -> Fault {
    let fault = Fault::new(codes::EXPECTATION, message);
    let is_per_row = matches!(expectation.judge, ExpectationJudge::Rows(_));
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
