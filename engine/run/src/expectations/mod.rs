//! Judges what `expect` steps say, when all statistics of a run are known and nothing is published yet.

mod last_run;
mod violating_rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use forebay_model::{Fault, Finding, Interval, Result, TimeCutoff, codes};
use forebay_plan::{
    AnalyzerId, BoundOp, DriftBaseline, Expectation, ExpectationJudge, ExpectationOutcome, ExpectationPolicy,
    JudgeContext, PlanOp, ViolatingRow, ViolatingValue,
};
use forebay_storage::Event;
use jiff::Timestamp;
use serde::Serialize;

pub(crate) use self::last_run::LastRunRecord;
use self::last_run::RuleRecord;
use crate::executor::RunExecutor;
use crate::profile::{ColumnProfile, DriftOptions, compare_columns};

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

impl ExpectationReport {
    fn event(&self) -> Event {
        let ExpectationReport { step, rule, holds, rows, violations, quarantined, found, .. } = self.clone();
        Event::ExpectationJudged { step, rule, holds, rows, violations, quarantined, found }
    }
}

/// What the expectations of a run found.
pub(crate) struct JudgedExpectations {
    pub reports: Vec<ExpectationReport>,
    /// For the next run to compare with.
    pub record: LastRunRecord,
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
        matches!(self.expectation.judge, ExpectationJudge::Rows(_)).then(|| self.op.asks.first().copied())?
    }

    fn fault(&self, rows: &[ViolatingRow]) -> Fault {
        let fault = fault(message(self.op, self.expectation, &self.found), self.expectation).at(self.op.at.as_ref());
        let Some(first) = rows.first() else { return fault };
        let of_file = |rows: &[ViolatingRow]| {
            let each = rows.iter().map(|row| format!("row {} ({})", row.row, row.value));
            format!("{} {}", rows[0].file, each.collect::<Vec<_>>().join(", "))
        };
        let by_file = rows.chunk_by(|row, next| row.file == next.file).map(of_file);
        let places = by_file.collect::<Vec<_>>().join("; ");
        let in_first_file = rows.iter().filter(|row| row.file == first.file).map(|row| row.row);
        let fault = fault.file(first.file.as_str()).rows(in_first_file);
        fault.note(format!("the first rows that violate it: {places}"))
    }
}

impl RunExecutor<'_> {
    /// Judges all expectations. Fails where one whose policy is to fail does not hold; of others, an event tells.
    pub(crate) fn judge_expectations(&self, interval: Option<&Interval>) -> Result<JudgedExpectations> {
        let (mut reports, mut failed, mut record) = (Vec::new(), Vec::new(), LastRunRecord::default());
        let has_any = self.program.bound.ops.iter().any(|op| expectation_of(op).is_some());
        if !has_any {
            return Ok(JudgedExpectations { reports, record });
        }
        let (now, state) = (self.present(interval)?, self.session.state()?);
        let last = LastRunRecord::load(&self.session.io, &state, &self.pipeline.name)?;
        for op in &self.program.bound.ops {
            let Some(expectation) = expectation_of(op) else { continue };
            let before = last.rule(&op.label, &expectation.name);
            let (outcome, kept) = self.judge(op, expectation, now, before)?;
            record.insert(&op.label, &expectation.name, kept);
            let found = found_text(&outcome);
            if !outcome.holds {
                match expectation.policy {
                    ExpectationPolicy::Warn => {
                        let message = message(op, expectation, &found);
                        self.session.watch.on_event(Event::Warning { message });
                    }
                    ExpectationPolicy::Fail | ExpectationPolicy::Quarantine => {
                        failed.push(FailedExpectation { op, expectation, found: found.clone() })
                    }
                }
            }
            let report = ExpectationReport {
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
            };
            self.session.watch.on_event(report.event());
            reports.push(report);
        }
        let asks: Vec<AnalyzerId> = failed.iter().filter_map(FailedExpectation::analyzer_of_rows).collect();
        let rows = self.first_rows(&asks)?;
        let of = |failed: &FailedExpectation<'_>| failed.analyzer_of_rows().and_then(|ask| rows.get(&ask));
        let faults = failed.iter().map(|failed| failed.fault(of(failed).map_or(&[], Vec::as_slice)));
        Fault::combine(faults.collect()).map_or(Ok(JudgedExpectations { reports, record }), Err)
    }

    /// What an expectation found, and what the next run compares with.
    fn judge(
        &self,
        op: &BoundOp,
        expectation: &Expectation,
        now: i128,
        last: Option<&RuleRecord>,
    ) -> Result<(ExpectationOutcome, RuleRecord)> {
        let finding = |ask: &AnalyzerId| self.state.finding(&self.program, *ask);
        let findings = op.asks.iter().map(finding).collect::<Result<Vec<_>>>()?;
        match &expectation.judge {
            ExpectationJudge::Rows(judge) | ExpectationJudge::Whole(judge) => {
                let context = JudgeContext { now, last_rows: last.map(|last| last.rows) };
                let outcome = judge(&findings, &context)?;
                let kept = RuleRecord { rows: outcome.rows, profile: None };
                Ok((outcome, kept))
            }
            ExpectationJudge::Drift(rule) => {
                let kinds = op.asks.iter().map(|ask| self.program.bound.asks[*ask].ask.analyzer.kind());
                let found: Vec<(&str, &Finding)> = kinds.zip(findings.iter().map(Arc::as_ref)).collect();
                let (own, other) = match rule.against {
                    DriftBaseline::Part => found.split_at(found.len() / 2),
                    DriftBaseline::LastRun => found.split_at(found.len()),
                };
                let profile = |found: &[(&str, &Finding)]| {
                    ColumnProfile::read(&rule.field, &found.iter().copied().collect::<BTreeMap<_, _>>())
                };
                let profiled = profile(own)?;
                let baseline = match rule.against {
                    DriftBaseline::Part => Some(profile(other)?),
                    DriftBaseline::LastRun => last.and_then(|last| last.profile.clone()),
                };
                let options = DriftOptions { js: rule.js, missing: rule.missing };
                let drift = baseline.map(|baseline| compare_columns(&baseline, &profiled, &options));
                let reasons = drift.map(|drift| drift.reasons).unwrap_or_default();
                let outcome = ExpectationOutcome {
                    holds: reasons.is_empty(),
                    rows: profiled.rows,
                    found: reasons.join(", "),
                    ..ExpectationOutcome::default()
                };
                let is_kept = rule.against == DriftBaseline::LastRun;
                Ok((outcome, RuleRecord { rows: profiled.rows, profile: is_kept.then_some(profiled) }))
            }
        }
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

/// What an operation expects of its rows.
fn expectation_of(op: &BoundOp) -> Option<&Expectation> {
    match &op.op {
        PlanOp::Map(map) => map.expectation.as_ref(),
        _ => None,
    }
}

fn message(op: &BoundOp, expectation: &Expectation, found: &str) -> String {
    format!("`{}` does not hold in step {}: {found}", expectation.name, op.label)
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
    let ExpectationOutcome { rows, violations, found, examples, .. } = outcome;
    let share = 100.0 * *violations as f64 / (*rows).max(1) as f64;
    let mut text = if found.is_empty() { format!("{violations} of {rows} rows ({share:.3} %)") } else { found.clone() };
    if !examples.is_empty() {
        let values = examples.iter().take(VALUES_SHOWN).map(|value| format!("{} ({} rows)", value.value, value.rows));
        text += &format!(": {}", values.collect::<Vec<_>>().join(", "));
    }
    text
}
