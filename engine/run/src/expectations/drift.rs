//! Judges `expect` rules about distributions.

use std::collections::BTreeMap;

use forebay_model::{Finding, Result};
use forebay_plan::{DriftBaseline, DriftRule, ExpectationOutcome};
use forebay_storage::DriftMeasures;

use super::judged::JudgedExpectation;
use super::last_run::RuleRecord;
use super::recent_days::RecentDays;
use crate::profile::{ColumnProfile, DriftOptions, compare_columns, merge_columns};

/// The findings about a column, by the kinds of their analyzers.
pub(super) struct ComparedRows<'a> {
    pub all: Vec<(&'a str, &'a Finding)>,
    /// Findings about the rows that no run of an earlier day had read, where these are known: empty
    /// if there is no new file.
    pub new: Option<Vec<(&'a str, &'a Finding)>>,
}

/// Compares a column with the baseline of the rule.
pub(super) fn judge(
    rule: &DriftRule,
    rows: &ComparedRows<'_>,
    day: i64,
    last: Option<&RuleRecord>,
) -> Result<JudgedExpectation> {
    let profile = |findings: &[(&str, &Finding)]| {
        let by_kind: BTreeMap<&str, &Finding> = findings.iter().copied().collect();
        ColumnProfile::read(&rule.field, &by_kind)
    };
    // The findings of the rule's rows come first, then those of the part that it compares with.
    let (rule_findings, part_findings) = match rule.against {
        DriftBaseline::Part(_) => rows.all.split_at(rows.all.len() / 2),
        DriftBaseline::LastRun | DriftBaseline::TrailingWeek => rows.all.split_at(rows.all.len()),
    };
    let mut profiled = profile(rule_findings)?;
    let mut all_rows = None;
    if rule.against == DriftBaseline::TrailingWeek {
        let new = rows.new.as_deref().map(profile).transpose()?;
        let id = profiled.id()?.to_string();
        // Where the rule's own filter chooses rows of files that are known already, the new rows are not all it sees.
        let is_same = last.is_some_and(|last| last.all_rows.as_ref() == Some(&id));
        all_rows = Some(id);
        if let Some(new) = new.filter(|new| new.rows > 0 || is_same) {
            profiled = new;
        }
    }
    let mut record = RuleRecord {
        rows: profiled.rows,
        all_rows,
        ..RuleRecord::default()
    };
    let (baseline, runs) = match rule.against {
        DriftBaseline::Part(_) => (Some(profile(part_findings)?), None),
        DriftBaseline::LastRun => {
            let last_profile = last.and_then(|last| last.profile.clone());
            record.profile = Some(profiled.clone());
            let runs = u64::from(last_profile.is_some());
            (last_profile, Some(runs))
        }
        DriftBaseline::TrailingWeek => {
            let no_days = RecentDays::default();
            let days = last.map_or(&no_days, |last| &last.days);
            let week = days.week_before(day);
            // A day without rows says nothing of distributions.
            record.days = if profiled.rows > 0 {
                days.with(day, &profiled)
            } else {
                days.clone()
            };
            (merge_columns(&week), Some(week.len() as u64))
        }
    };
    let (measures, reasons) = measure(rule, baseline.as_ref(), &profiled);
    let outcome = ExpectationOutcome {
        holds: reasons.is_empty(),
        rows: profiled.rows,
        found: reasons.join(", "),
        ..ExpectationOutcome::default()
    };
    let drift = Some(Box::new(DriftMeasures {
        baseline_runs: runs,
        ..measures
    }));
    Ok(JudgedExpectation {
        outcome,
        drift,
        record,
    })
}

/// The measures and why they are too great, if they are.
fn measure(
    rule: &DriftRule,
    baseline: Option<&ColumnProfile>,
    profiled: &ColumnProfile,
) -> (DriftMeasures, Vec<String>) {
    let measures = DriftMeasures {
        column: rule.field.name().clone(),
        against: rule.against.to_string(),
        ..DriftMeasures::default()
    };
    let Some(baseline) = baseline else {
        return (measures, Vec::new());
    };
    let drift = compare_columns(
        baseline,
        profiled,
        &DriftOptions {
            js: rule.js,
            missing: rule.missing,
        },
    );
    let measures = DriftMeasures {
        baseline_rows: Some(baseline.rows),
        js: drift.js,
        js_limit: drift.js_of_chance.map(|chance| chance.max(rule.js)),
        missing: drift.missing,
        missing_limit: drift
            .missing_of_chance
            .map(|chance| chance.max(rule.missing)),
        l_infinity: drift.l_infinity,
        ks: drift.ks,
        psi: drift.psi,
        new_values: drift.new_values,
        ..measures
    };
    (measures, drift.reasons)
}
