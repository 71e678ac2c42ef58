//! Refits of steps that are not fitted in each run: decides which of them hold the findings of an
//! earlier run.
//!
//! The id of a held finding replaces those of the rows that it was learned from in all ids that
//! depend on it, so that rows written with it are reused from run to run. A refit depends on the
//! data, the earlier artifact and the spec alone, never on the clock: a repeated run has the same
//! result.

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

pub(crate) use self::data_time::base_sources;
pub use self::policy::parse_refit;

/// Reason for the first fit of a step.
const FIRST: &str = "no earlier run had learned it";

/// Inputs of the decisions of a run.
pub(crate) struct RefitContext<'a> {
    pub pipeline: &'a Pipeline,
    pub bound: &'a BoundPipeline,
    pub sources: &'a BTreeMap<String, SourceInput>,
    pub interval: Option<&'a Interval>,
    pub earlier: Option<&'a PreviousArtifact>,
}

/// Decisions about the steps that are not fitted in each run.
#[derive(Clone, Default)]
pub(crate) struct RefitDecisions {
    /// Decisions in the order of the pipeline.
    pub steps: Vec<StepRefit>,
    /// The time of the data of each step, where that is known.
    times: BTreeMap<String, Option<String>>,
    /// The passes that have measured drift.
    measured: Vec<ContentId>,
}

impl RefitDecisions {
    /// The decisions on a worker, where every step in `held_steps` holds its findings.
    pub fn of_worker(held_steps: impl IntoIterator<Item = String>) -> RefitDecisions {
        let mut decisions = RefitDecisions::default();
        for step in held_steps {
            decisions.steps.push(StepRefit {
                step,
                refit: String::new(),
                held: true,
                since: None,
                reason: String::new(),
                drift: None,
            });
        }
        decisions
    }

    /// True if a step holds the findings of an earlier run.
    pub fn is_held(&self, step: &str) -> bool {
        self.steps
            .iter()
            .any(|refit| refit.held && refit.step == step)
    }

    /// The steps that hold findings of an earlier run.
    pub fn held(&self) -> impl Iterator<Item = &String> {
        self.steps
            .iter()
            .filter(|refit| refit.held)
            .map(|refit| &refit.step)
    }

    /// Records of the decisions in an artifact.
    pub fn fits(&self) -> Vec<StepFit> {
        let mut fits = Vec::with_capacity(self.steps.len());
        for refit in &self.steps {
            fits.push(StepFit {
                step: refit.step.clone(),
                since: refit.since.clone(),
                reason: refit.reason.clone(),
            });
        }
        fits
    }

    /// Records since when findings of an earlier artifact are in use, for the steps that use them
    /// in a degraded run.
    pub fn replace(&mut self, steps: &BTreeSet<&str>, fits: &[StepFit]) {
        for refit in &mut self.steps {
            if !steps.contains(refit.step.as_str()) {
                continue;
            }
            let fit = fits.iter().find(|fit| fit.step == refit.step);
            let (since, reason) = in_force(fit);
            refit.held = true;
            refit.since = since;
            refit.reason = reason;
        }
    }

    fn learn_anew(&mut self, step: &str, reason: String) {
        let now = self.times.get(step).cloned().flatten();
        if let Some(refit) = self.steps.iter_mut().find(|refit| refit.step == step) {
            refit.held = false;
            refit.since = now;
            refit.reason = reason;
        }
    }

    /// Refits each step whose inputs depend on a step that is refitted.
    fn spread(&mut self, bound: &BoundPipeline) {
        // A step that is refitted may make another one stale: until none is held on stale inputs.
        while let Some((step, reason)) = self.stale_step(bound) {
            self.learn_anew(&step, reason);
        }
    }

    /// A step that is held although a step before it is refitted, and the reason to refit it.
    fn stale_step(&self, bound: &BoundPipeline) -> Option<(String, String)> {
        for step in self.held() {
            for upstream_step in bound.steps_before(step) {
                if self.is_refitted(upstream_step) {
                    let reason = format!("`{upstream_step}` was learned anew");
                    return Some((step.clone(), reason));
                }
            }
        }
        None
    }

    fn is_refitted(&self, step: &str) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|refit| !refit.held && refit.step == step)
    }
}

impl Session {
    /// Decisions as far as they are known without measuring drift: a step that only drift refits is
    /// held.
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
            let is_held = reason.is_none();
            let (since, reason) = match reason {
                Some(reason) => (now, reason),
                None => in_force(fit),
            };
            decisions.steps.push(StepRefit {
                step: node.name.clone(),
                refit: policy.to_string(),
                held: is_held,
                since,
                reason,
                drift: None,
            });
        }
        decisions.spread(bound);
        Ok(decisions)
    }
}

/// Time since which an artifact's findings of a step are in use, and the reason.
fn in_force(fit: Option<&StepFit>) -> (Option<String>, String) {
    let unknown = || {
        (
            None,
            "it was learned before the step had a `refit`".to_owned(),
        )
    };
    fit.map_or_else(unknown, |fit| (fit.since.clone(), fit.reason.clone()))
}

/// Reason to refit now; `None` where there is none.
pub(crate) fn reason_to_refit(
    policy: &RefitPolicy,
    since: Option<&str>,
    now: Option<&str>,
) -> Result<Option<String>> {
    let Some(length) = &policy.after else {
        return Ok(None);
    };
    let Some((since, now)) = since.zip(now) else {
        return Ok(Some("it was not known when it was learned".to_owned()));
    };
    match has_passed(length, since, now) {
        Some(true) => Ok(Some(format!("{length} had passed since {since}"))),
        Some(false) => Ok(None),
        None => {
            let message = format!(
                "`refit: {length}` does not measure the time of the data, {since} to \
                         {now}"
            );
            let hint = "write a duration where times are dates or timestamps, and a whole number \
                        where they are numbers";
            Err(Fault::new(codes::BAD_VALUE, message).hint(hint))
        }
    }
}
