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
        (0..self.asks.len())
            .filter(|analyzer| self.step_of(*analyzer) == step && self.can_hold(*analyzer))
            .collect()
    }

    /// Other steps whose statistics determine those of a step.
    pub fn steps_before(&self, step: &str) -> BTreeSet<&str> {
        let analyzers = self.held_analyzers(step).into_iter();
        let columns = analyzers
            .flat_map(|analyzer| self.asks[analyzer].needed_columns())
            .collect();
        let upstream = upstream_analyzers(self, columns)
            .into_iter()
            .filter(|analyzer| self.can_hold(*analyzer));
        upstream
            .map(|upstream_step| self.step_of(upstream_step))
            .filter(|upstream_step| *upstream_step != step)
            .collect()
    }
}

/// Refuses steps that would keep the statistics of values that change in each run.
pub(crate) fn check_refit(pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
    let mut faults = Vec::new();
    for node in pipeline.nodes.iter().filter(|node| node.refit.is_some()) {
        let is_changing =
            |step: &&&str| pipeline.node(step).is_some_and(|node| node.refit.is_none());
        if let Some(upstream_step) = bound.steps_before(&node.name).iter().find(is_changing) {
            let message = format!(
                "`{}` would hold statistics of values that `{upstream_step}` learns anew in each \
                 run",
                node.name
            );
            let fault = Fault::new(codes::BAD_VALUE, message).step(&node.name);
            faults.push(
                fault
                    .hint(format!("give `{upstream_step}` a `refit`, too"))
                    .at(node.at.as_ref()),
            );
        }
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}
