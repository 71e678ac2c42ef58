//! Steps that hold still what they learned.

use std::collections::BTreeSet;

use forebay_model::{Fault, Pipeline, Result, codes};
use serde::Serialize;

use crate::upstream::upstream_analyzers;
use crate::{AnalyzerId, BoundPipeline, PlanOp};

/// What is in force of a step that does not learn anew in each run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRefit {
    /// The step.
    pub step: String,
    /// When it learns anew, as the spec says it.
    pub refit: String,
    /// Whether this run uses what an earlier one learned.
    pub held: bool,
    /// The time of the data that it was learned at, where that is known.
    pub since: Option<String>,
    /// Why it was learned then.
    pub reason: String,
    /// How far the statistics have drifted, where this run has measured it.
    pub drift: Option<f64>,
}

impl BoundPipeline {
    /// The step whose transform asks.
    pub fn step_of(&self, ask: AnalyzerId) -> &str {
        let label = &self.ops[self.asks[ask].op].label;
        label.rsplit_once('.').map_or(label, |(step, _)| step)
    }

    /// Whether the finding can be held still. Those that describe the rows of one run, rows of another dataset, or
    /// values by time always follow the data.
    pub fn can_hold(&self, ask: AnalyzerId) -> bool {
        let question = &self.asks[ask];
        let is_by_time =
            matches!(&self.ops[question.op].op, PlanOp::Map(map) if map.behind.is_some());
        !question.ask.per_run && question.ask.of.is_none() && !is_by_time
    }

    /// The analyzers of a step whose findings can be held still.
    pub fn held_analyzers(&self, step: &str) -> Vec<AnalyzerId> {
        (0..self.asks.len())
            .filter(|ask| self.step_of(*ask) == step && self.can_hold(*ask))
            .collect()
    }

    /// The other steps whose statistics decide what a step learns.
    pub fn steps_before(&self, step: &str) -> BTreeSet<&str> {
        let asks = self.held_analyzers(step).into_iter();
        let columns = asks
            .flat_map(|ask| self.asks[ask].needed_columns())
            .collect();
        let before = upstream_analyzers(self, columns)
            .into_iter()
            .filter(|ask| self.can_hold(*ask));
        before
            .map(|ask| self.step_of(ask))
            .filter(|before| *before != step)
            .collect()
    }
}

/// Refuses steps that would hold still what they learned of values that change in each run.
pub(crate) fn check_refit(pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
    let mut faults = Vec::new();
    for node in pipeline.nodes.iter().filter(|node| node.refit.is_some()) {
        let is_changing = |step: &&&str| {
            pipeline
                .node(step)
                .is_some_and(|before| before.refit.is_none())
        };
        if let Some(before) = bound.steps_before(&node.name).iter().find(is_changing) {
            let message = format!(
                "`{}` would hold statistics of values that `{before}` learns anew in each run",
                node.name
            );
            let fault = Fault::new(codes::BAD_VALUE, message).step(&node.name);
            faults.push(
                fault
                    .hint(format!("give `{before}` a `refit`, too"))
                    .at(node.at.as_ref()),
            );
        }
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}
