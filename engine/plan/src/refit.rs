//! Steps that keep the statistics of an earlier fit.

use std::collections::BTreeSet;

use forebay_model::{Fault, Pipeline, Result, codes};
use serde::Serialize;

use crate::upstream::upstream_analyzers;
use crate::{AnalyzerId, BoundPipeline, PlanOp};

/// Findings in use for a step that is not fitted in each run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRefit {
    /// The step.
    pub step: String,
    /// Policy of the step's refits, as the spec has it.
    pub refit: String,
    /// True if this run uses the findings of an earlier one.
    pub held: bool,
    /// The time of the data that it was learned at, where that is known.
    pub since: Option<String>,
    /// Reason for the fit at that time.
    pub reason: String,
    /// Drift of the statistics, where this run has measured it.
    pub drift: Option<f64>,
}

impl BoundPipeline {
    /// The step whose transform requests the analyzer.
    pub fn step_of(&self, analyzer: AnalyzerId) -> &str {
        let label = &self.ops[self.asks[analyzer].op].label;
        label.rsplit_once('.').map_or(label, |(step, _)| step)
    }

    /// True if the finding can be held. Findings that describe the rows of one run, rows of another
    /// dataset, or values by time always follow the data.
    pub fn can_hold(&self, analyzer: AnalyzerId) -> bool {
        let bound_analyzer = &self.asks[analyzer];
        let is_by_time =
            matches!(&self.ops[bound_analyzer.op].op, PlanOp::Map(map) if map.behind.is_some());
        !bound_analyzer.ask.per_run && bound_analyzer.ask.of.is_none() && !is_by_time
    }

    /// The analyzers of a step whose findings can be held still.
    pub fn held_analyzers(&self, step: &str) -> Vec<AnalyzerId> {
        let mut analyzers = Vec::new();
        for analyzer in 0..self.asks.len() {
            if self.step_of(analyzer) == step && self.can_hold(analyzer) {
                analyzers.push(analyzer);
            }
        }
        analyzers
    }

    /// Other steps whose statistics determine those of a step.
    pub fn steps_before(&self, step: &str) -> BTreeSet<&str> {
        let mut columns = Vec::new();
        for analyzer in self.held_analyzers(step) {
            columns.extend(self.asks[analyzer].needed_columns());
        }
        let mut steps = BTreeSet::new();
        for analyzer in upstream_analyzers(self, columns) {
            let upstream_step = self.step_of(analyzer);
            if upstream_step != step && self.can_hold(analyzer) {
                steps.insert(upstream_step);
            }
        }
        steps
    }
}

/// Refuses steps that would keep the statistics of values that change in each run.
pub(crate) fn check_refit(pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
    let mut faults = Vec::new();
    for node in &pipeline.nodes {
        if node.refit.is_none() {
            continue;
        }
        let Some(upstream_step) = changing_step(pipeline, bound, &node.name) else {
            continue;
        };
        let message = format!(
            "`{}` would hold statistics of values that `{upstream_step}` learns anew in each run",
            node.name
        );
        let fault = Fault::new(codes::BAD_VALUE, message)
            .hint(format!("give `{upstream_step}` a `refit`, too"));
        faults.push(fault.step(&node.name).at(node.at.as_ref()));
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}

/// A step without a policy whose statistics determine those of another step.
fn changing_step<'a>(pipeline: &Pipeline, bound: &'a BoundPipeline, step: &str) -> Option<&'a str> {
    for upstream_step in bound.steps_before(step) {
        let node = pipeline.node(upstream_step);
        if node.is_some_and(|node| node.refit.is_none()) {
            return Some(upstream_step);
        }
    }
    None
}
