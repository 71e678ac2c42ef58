//! Rules of `expect` steps, collected from events: those of a run that fails have no report.

use forebay_run::ExpectationReport;
use forebay_storage::Event;

/// The rules that were judged, in their order, each as it was judged last.
#[derive(Debug, Clone, Default)]
pub(crate) struct JudgedRules(Vec<ExpectationReport>);

impl JudgedRules {
    /// Records an event.
    pub fn hear(&mut self, event: &Event) {
        let Event::ExpectationJudged {
            step,
            rule,
            holds,
            rows,
            violations,
            quarantined,
            found: finding,
            drift,
        } = event
        else {
            return;
        };
        let report = ExpectationReport {
            of_future: false,
            step: step.clone(),
            rule: rule.clone(),
            holds: *holds,
            rows: *rows,
            violations: *violations,
            quarantined: *quarantined,
            values: Vec::new(),
            found: finding.clone(),
            drift: drift.clone(),
        };
        match self
            .0
            .iter_mut()
            .find(|judged| (&judged.step, &judged.rule) == (step, rule))
        {
            Some(judged) => *judged = report,
            None => self.0.push(report),
        }
    }

    /// All judged rules.
    pub fn rules(&self) -> &[ExpectationReport] {
        &self.0
    }
}
