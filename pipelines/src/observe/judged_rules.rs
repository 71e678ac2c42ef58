//! Rules of `expect` steps that events tell of: those of a run that fails have no report.

use forebay_run::ExpectationReport;
use forebay_storage::Event;

/// The rules that were judged, in their order, each as it was judged last.
#[derive(Debug, Clone, Default)]
pub(crate) struct JudgedRules(Vec<ExpectationReport>);

impl JudgedRules {
    /// Takes in an event.
    pub fn hear(&mut self, event: &Event) {
        let Event::ExpectationJudged {
            step,
            rule,
            holds,
            rows,
            violations,
            quarantined,
            found,
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
            found: found.clone(),
            drift: drift.clone(),
        };
        match self
            .0
            .iter_mut()
            .find(|known| (&known.step, &known.rule) == (step, rule))
        {
            Some(known) => *known = report,
            None => self.0.push(report),
        }
    }

    /// All of them.
    pub fn rules(&self) -> &[ExpectationReport] {
        &self.0
    }
}
