//! Steps that do not learn anew in each run: which of them hold what an earlier run learned.
//!
//! What is held takes the place of the rows that it was learned from in the ids of all that depends on it, so that rows
//! written with it stand from night to night. Whether a step learns anew depends on the data, the earlier artifact and
//! the spec alone, never on the clock: a repeated run comes to the same.

mod data_time;
mod drift;
mod lineage;
mod measure;
mod policy;

use std::collections::{BTreeMap, BTreeSet};

use forebay_commit::StepFit;
use forebay_execute::SourceInput;
use forebay_model::{ContentId, Fault, Interval, Pipeline, RefitPolicy, Result, codes};
use forebay_plan::{BoundPipeline, StepRefit};

use self::policy::has_passed;
use crate::degradation::PreviousArtifact;
use crate::session::Session;

pub use self::policy::parse_refit;

/// Why a step learns of which no run has learned anything.
const FIRST: &str = "no earlier run had learned it";

/// What a run decides by.
pub(crate) struct RefitContext<'a> {
    pub pipeline: &'a Pipeline,
    pub bound: &'a BoundPipeline,
    pub sources: &'a BTreeMap<String, SourceInput>,
    pub interval: Option<&'a Interval>,
    pub earlier: Option<&'a PreviousArtifact>,
}

/// What is in force of the steps that do not learn anew in each run.
#[derive(Clone, Default)]
pub(crate) struct RefitDecisions {
    /// In the order of the pipeline.
    pub steps: Vec<StepRefit>,
    /// The time of the data of each step, where that is known.
    times: BTreeMap<String, Option<String>>,
    /// The passes that have measured drift.
    measured: Vec<ContentId>,
}

impl RefitDecisions {
    /// Decides that every step in `held` holds what was learned, for a worker.
    pub fn of_worker(held: impl IntoIterator<Item = String>) -> RefitDecisions {
        let step = |step| StepRefit {
            step,
            refit: String::new(),
            held: true,
            since: None,
            reason: String::new(),
            drift: None,
        };
        RefitDecisions {
            steps: held.into_iter().map(step).collect(),
            ..RefitDecisions::default()
        }
    }

    /// Whether a step holds what an earlier run learned.
    pub fn is_held(&self, step: &str) -> bool {
        self.steps
            .iter()
            .any(|known| known.held && known.step == step)
    }

    /// The steps that hold what an earlier run learned.
    pub fn held(&self) -> impl Iterator<Item = &String> {
        self.steps
            .iter()
            .filter(|known| known.held)
            .map(|known| &known.step)
    }

    /// What an artifact says of them.
    pub fn fits(&self) -> Vec<StepFit> {
        let fit = |known: &StepRefit| StepFit {
            step: known.step.clone(),
            since: known.since.clone(),
            reason: known.reason.clone(),
        };
        self.steps.iter().map(fit).collect()
    }

    /// Says of steps whose findings an earlier artifact replaces, in a degraded run, since when those are in force.
    pub fn replace(&mut self, steps: &BTreeSet<&str>, fits: &[StepFit]) {
        for known in self
            .steps
            .iter_mut()
            .filter(|known| steps.contains(known.step.as_str()))
        {
            let fit = fits.iter().find(|fit| fit.step == known.step);
            let (since, reason) = in_force(fit);
            (known.held, known.since, known.reason) = (true, since, reason);
        }
    }

    fn learn_anew(&mut self, step: &str, reason: String) {
        let now = self.times.get(step).cloned().flatten();
        if let Some(known) = self.steps.iter_mut().find(|known| known.step == step) {
            (known.held, known.since, known.reason) = (false, now, reason);
        }
    }

    /// What a step learned of values that are learned anew is learned anew, too.
    fn spread(&mut self, bound: &BoundPipeline) {
        loop {
            let is_new = |step: &&str| {
                self.steps
                    .iter()
                    .any(|known| !known.held && known.step == *step)
            };
            let next = self.held().find_map(|step| {
                let before = bound.steps_before(step).into_iter().find(is_new)?;
                Some((step.clone(), format!("`{before}` was learned anew")))
            });
            let Some((step, reason)) = next else { return };
            self.learn_anew(&step, reason);
        }
    }
}

impl Session {
    /// What is in force, as far as it is known without measuring drift: a step that only drift makes learn anew is held.
    pub(crate) fn decide_refits(&self, context: &RefitContext<'_>) -> Result<RefitDecisions> {
        let RefitContext {
            pipeline,
            bound,
            earlier,
            ..
        } = context;
        let matches = earlier
            .map(|earlier| earlier.matches(pipeline, bound))
            .transpose()?
            .unwrap_or_default();
        let mut decisions = RefitDecisions::default();
        for node in &pipeline.nodes {
            let asks = bound.held_analyzers(&node.name);
            let Some(policy) = node.refit.as_ref().filter(|_| !asks.is_empty()) else {
                continue;
            };
            let now = self.data_time(context, node)?;
            decisions.times.insert(node.name.clone(), now.clone());
            let fit = earlier.and_then(|earlier| {
                earlier
                    .artifact
                    .fits
                    .iter()
                    .find(|fit| fit.step == node.name)
            });
            let is_same = asks
                .iter()
                .all(|ask| matches.get(*ask).is_some_and(Option::is_some));
            let reason = match earlier {
                None => Some(FIRST.to_owned()),
                Some(_) if !is_same => Some("what it learns had changed".to_owned()),
                Some(_) => {
                    let since = fit.and_then(|fit| fit.since.as_deref());
                    reason_to_refit(policy, since, now.as_deref())
                        .map_err(|fault| fault.at(node.at.as_ref()))?
                }
            };
            let held = reason.is_none();
            let (since, reason) = reason.map_or_else(|| in_force(fit), |reason| (now, reason));
            let (step, refit) = (node.name.clone(), policy.to_string());
            decisions.steps.push(StepRefit {
                step,
                refit,
                held,
                since,
                reason,
                drift: None,
            });
        }
        decisions.spread(bound);
        Ok(decisions)
    }
}

/// Since when what an artifact learned of a step is in force, and why.
fn in_force(fit: Option<&StepFit>) -> (Option<String>, String) {
    let unknown = || {
        (
            None,
            "it was learned before the step had a `refit`".to_owned(),
        )
    };
    fit.map_or_else(unknown, |fit| (fit.since.clone(), fit.reason.clone()))
}

/// Why it is time to learn anew; `None` where it is not.
fn reason_to_refit(
    policy: &RefitPolicy,
    since: Option<&str>,
    now: Option<&str>,
) -> Result<Option<String>> {
    let Some(after) = &policy.after else {
        return Ok(None);
    };
    let (Some(since), Some(now)) = (since, now) else {
        return Ok(Some("it was not known when it was learned".to_owned()));
    };
    match has_passed(after, since, now) {
        Some(true) => Ok(Some(format!("{after} had passed since {since}"))),
        Some(false) => Ok(None),
        None => {
            let message =
                format!("`refit: {after}` does not measure the time of the data, {since} to {now}");
            let hint = "write a duration where times are dates or timestamps, and a whole number where they are numbers";
            Err(Fault::new(codes::BAD_VALUE, message).hint(hint))
        }
    }
}
