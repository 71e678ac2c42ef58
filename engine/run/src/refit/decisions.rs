//! Decisions about steps that are not fitted in each run.

use std::collections::{BTreeMap, BTreeSet};

use forebay_commit::StepFit;
use forebay_model::ContentId;
use forebay_plan::{BoundPipeline, StepRefit};

/// Decisions about the steps that are not fitted in each run.
#[derive(Clone, Default)]
pub(crate) struct RefitDecisions {
    /// Decisions in the order of the pipeline.
    pub steps: Vec<StepRefit>,
    /// The time of the data of each step, where that is known.
    pub(super) times: BTreeMap<String, Option<String>>,
    /// The passes that have measured drift.
    pub(super) measured: Vec<ContentId>,
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

    pub(super) fn learn_anew(&mut self, step: &str, reason: String) {
        let now = self.times.get(step).cloned().flatten();
        if let Some(refit) = self.steps.iter_mut().find(|refit| refit.step == step) {
            refit.held = false;
            refit.since = now;
            refit.reason = reason;
        }
    }

    /// Refits each step whose inputs depend on a step that is refitted.
    pub(super) fn spread(&mut self, bound: &BoundPipeline) {
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

/// Time since which an artifact's findings of a step are in use, and the reason.
pub(super) fn in_force(fit: Option<&StepFit>) -> (Option<String>, String) {
    let unknown = || {
        (
            None,
            "it was learned before the step had a `refit`".to_owned(),
        )
    };
    fit.map_or_else(unknown, |fit| (fit.since.clone(), fit.reason.clone()))
}
