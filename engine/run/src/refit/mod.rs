//! Refits of steps that are not fitted in each run: decides which of them hold the findings of an
//! earlier run.
//!
//! The id of a held finding replaces those of the rows that it was learned from in all ids that
//! depend on it, so that rows written with it are reused from run to run. A refit depends on the
//! data, the earlier artifact and the spec alone, never on the clock: a repeated run has the same
//! result.

mod data_time;
mod decisions;
mod drift;
mod lineage;
mod measure;
mod policy;

use std::collections::BTreeMap;

use forebay_execute::SourceInput;
use forebay_model::{Fault, Interval, Pipeline, RefitPolicy, Result, codes};
use forebay_plan::{BoundPipeline, StepRefit};

use self::decisions::in_force;
use self::policy::has_passed;
use crate::previous_artifact::PreviousArtifact;
use crate::session::Session;

pub(crate) use self::data_time::base_sources;
pub(crate) use self::decisions::RefitDecisions;

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
