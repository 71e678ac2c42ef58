//! Steps that learn from rows or columns that they should not: warnings of `check` and of runs.

use std::collections::BTreeSet;

use forebay_model::{DataSplit, Fault, Pipeline, PipelineNode, codes};

use crate::{BoundAnalyzer, BoundOp, BoundPipeline, PlanOp};

/// The step that describes rows and changes none.
const DESCRIBING_STEP: &str = "profile";

/// The step whose windows are computed from a table of the rows that it is fitted on.
const POOLED_STEP: &str = "pooled";

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

/// Windows over many series that a part of the split limits. They hold no rows of other parts, so
/// those of later rows are empty or end too early, in the validation as in new rows.
pub fn windows_of_one_part(pipeline: &Pipeline, bound: &BoundPipeline) -> Vec<Fault> {
    let mut warnings = Vec::new();
    let Some(split) = &pipeline.split else {
        return warnings;
    };
    // Each part by a hash has rows of all times.
    if matches!(split, DataSplit::Hash { .. }) {
        return warnings;
    }
    let parts = split.parts();
    for node in &pipeline.nodes {
        let Some(fitted) = &node.fit_on else {
            continue;
        };
        let mut others: Vec<String> = Vec::new();
        for part in &parts {
            if *part != fitted.as_str() {
                others.push(format!("`{part}`"));
            }
        }
        let steps = pooled_steps(bound, node);
        if others.is_empty() || steps.is_empty() || !is_divided(bound, node) {
            continue;
        }
        let message = format!(
            "windows of {} hold rows of `{fitted}` alone: those of later rows, as in {}, are empty \
             or end too early",
            steps.join(", "),
            others.join(", ")
        );
        let hint = "move it into a step of its own without `fit_on`: a window ends before its row, \
                    so it tells no later part to an earlier one";
        warnings.push(
            Fault::new(codes::EMPTY, message)
                .hint(hint)
                .step(&node.name)
                .at(node.at.as_ref()),
        );
    }
    warnings
}

/// The steps of a node with windows over the rows that they are fitted on, each once.
fn pooled_steps(bound: &BoundPipeline, node: &PipelineNode) -> Vec<String> {
    let prefix = format!("{}.", node.name);
    let mut steps: Vec<String> = Vec::new();
    for op in &bound.ops {
        let step = format!("`{}`", op.label);
        if step_kind(op) == POOLED_STEP && op.label.starts_with(&prefix) && !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps
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
