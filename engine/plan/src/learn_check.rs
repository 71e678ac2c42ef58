//! Steps that learn from rows or columns that they should not: warnings of `check` and of runs.

use std::collections::BTreeSet;

use forebay_model::{Fault, Pipeline, PipelineNode, codes};

use crate::{BoundAnalyzer, BoundOp, BoundPipeline, PlanOp};

/// The step that describes rows and changes none.
const DESCRIBING_STEP: &str = "profile";

/// The name of the transform of an operation.
pub fn step_kind(op: &BoundOp) -> &str {
    op.label.rsplit('.').next().unwrap_or_default()
}

impl BoundPipeline {
    /// True if an analyzer computes a statistic of the rows of its own step that these rows, later runs and servings get
    /// applied.
    pub fn is_statistic(&self, analyzer: &BoundAnalyzer) -> bool {
        analyzer.ask.of.is_none()
            && !analyzer.ask.per_run
            && step_kind(&self.ops[analyzer.op]) != DESCRIBING_STEP
    }
}

/// Nodes that learn from the rows of all parts of a split.
pub fn unfitted_steps(pipeline: &Pipeline, bound: &BoundPipeline) -> Vec<Fault> {
    let Some(split) = &pipeline.split else {
        return Vec::new();
    };
    let parts = split.parts();
    // A statistic of the only part knows no rows of others.
    let [first, _, ..] = parts.as_slice() else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    for node in pipeline
        .nodes
        .iter()
        .filter(|node| node.fit_on.is_none() && is_divided(bound, node))
    {
        let steps = learning_steps(bound, node);
        if steps.is_empty() {
            continue;
        }
        let verb = if steps.len() == 1 { "learns" } else { "learn" };
        let steps: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
        let others: Vec<String> = parts[1..].iter().map(|part| format!("`{part}`")).collect();
        let message = format!(
            "{} {verb} from the rows of all parts of the split, so features know statistics of {}",
            steps.join(", "),
            others.join(", ")
        );
        let hint = format!(
            "set `fit_on: {first}` in `{}`, or in the step that learns",
            node.name
        );
        warnings.push(
            Fault::new(codes::LEAKAGE, message)
                .hint(hint)
                .step(&node.name)
                .at(node.at.as_ref()),
        );
    }
    warnings
}

/// True if the split divides the rows of a node.
fn is_divided(bound: &BoundPipeline, node: &PipelineNode) -> bool {
    bound.flows.get(&node.name).is_some_and(|flow| flow.parts)
}

/// Steps of a node with statistics of all rows; tables by time are not among them, since they use
/// only data from before a row.
fn learning_steps(bound: &BoundPipeline, node: &PipelineNode) -> BTreeSet<String> {
    let prefix = format!("{}.", node.name);
    let mut steps = BTreeSet::new();
    for analyzer in bound
        .asks
        .iter()
        .filter(|analyzer| bound.is_statistic(analyzer))
    {
        let op = &bound.ops[analyzer.op];
        let is_by_time = matches!(&op.op, PlanOp::Map(map) if map.behind.is_some());
        if op.label.starts_with(&prefix) && !is_by_time {
            steps.insert(op.label.clone());
        }
    }
    steps
}
