//! Filters and rules that rows pass where an artifact is applied.

use std::collections::BTreeSet;

use forebay_commit::Artifact;
use forebay_model::{Fault, Interval, Pipeline, Result, Step, codes};
use forebay_plan::{BoundPipeline, FUTURE_PART, LearningFilter, StepChange, TransformRegistry};

use crate::row_rules::{quarantines, quarantines_by};
use crate::session::Session;

/// The kind of step with rules, of which some remove rows.
const EXPECT: &str = "expect";

impl Session {
    /// A pipeline whose filters for learning, and whose rules about the label, let the rows pass that are written. Rows
    /// that are only history are filtered as in the run.
    pub(crate) fn served_pipeline(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        interval: Option<&Interval>,
    ) -> Result<Pipeline> {
        let writes_future = writes_future_rows(pipeline);
        if self.served.from.is_some() {
            check_start(writes_future, interval)?;
        }
        let mut served = pipeline.clone();
        if writes_future {
            return Ok(served);
        }
        let written_from = match interval {
            Some(interval) => Some(interval.from.as_str()),
            None => self.served.from.as_deref(),
        };
        for node in &mut served.nodes {
            match written_from {
                Some(from) => restrict_to_history(&self.registry, &mut node.steps, from)?,
                None => remove_learning_steps(&self.registry, &mut node.steps)?,
            }
        }
        let rules = self.rules_of_labels(&served, artifact)?;
        open_rules(&self.registry, &mut served, &rules, written_from)?;
        Ok(served)
    }

    /// The names of the rules that would take out rows because of values that only labels need.
    fn rules_of_labels(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
    ) -> Result<BTreeSet<String>> {
        let labels = self.labels_of(artifact);
        let mut steps = pipeline.nodes.iter().flat_map(|node| &node.steps);
        if labels.is_empty() || !steps.any(|step| step.kind == EXPECT) {
            return Ok(BTreeSet::new());
        }
        let bound = self.bind(pipeline, &artifact.datasets())?;
        // No column depends on a rule that takes nothing out.
        let mut opened = pipeline.clone();
        open_rules(&self.registry, &mut opened, &quarantines(&bound), None)?;
        let columns = self.columns_of_labels(&opened, artifact)?;
        Ok(quarantines_by(&bound, &columns))
    }
}

/// True if a sink of the pipeline gets rows of the future.
fn writes_future_rows(pipeline: &Pipeline) -> bool {
    let mut parts = pipeline.sinks.iter().map(|sink| sink.split.as_deref());
    parts.any(|part| part == Some(FUTURE_PART))
}

/// Refuses a time from which on rows are written, where something else decides on the rows.
fn check_start(writes_future: bool, interval: Option<&Interval>) -> Result<()> {
    let message = if writes_future {
        "rows of the future come after all given rows, and none of those is written"
    } else if interval.is_some() {
        "an interval says from when on rows are written"
    } else {
        return Ok(());
    };
    let fault = Fault::new(codes::USAGE, message);
    Err(fault.hint("leave out the time from which on rows are written (`--rows-from`)"))
}

/// A pipeline without the filters that are for learning, and without rules that take out rows because of their label.
pub(crate) fn without_learning_filters(
    registry: &TransformRegistry,
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    labels: &BTreeSet<String>,
) -> Result<Pipeline> {
    let mut served = pipeline.clone();
    for node in &mut served.nodes {
        remove_learning_steps(registry, &mut node.steps)?;
    }
    open_rules(registry, &mut served, &quarantines_by(bound, labels), None)?;
    Ok(served)
}

/// Lets the rows that are scored pass some rules: all rows, or those from a time on.
fn open_rules(
    registry: &TransformRegistry,
    pipeline: &mut Pipeline,
    rules: &BTreeSet<String>,
    from: Option<&str>,
) -> Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    for node in &mut pipeline.nodes {
        for step in &mut node.steps {
            registry.change(step, &StepChange::PassRules { rules, from })?;
        }
    }
    Ok(())
}

/// A pipeline whose filters for learning, and whose rules that take out rows because of their label, let all rows pass.
/// Windows on both sides of a filter stay apart, as in the run.
pub(crate) fn with_open_learning_filters(
    registry: &TransformRegistry,
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    labels: &BTreeSet<String>,
) -> Result<Pipeline> {
    let mut served = pipeline.clone();
    open_rules(registry, &mut served, &quarantines_by(bound, labels), None)?;
    for node in &mut served.nodes {
        for step in &mut node.steps {
            registry.change(step, &StepChange::PassScoredRows { from: None })?;
        }
    }
    Ok(served)
}

/// Restricts the steps that take out rows to learn from to rows before a time.
fn restrict_to_history(
    registry: &TransformRegistry,
    steps: &mut [Step],
    until: &str,
) -> Result<()> {
    for step in steps {
        registry.change(step, &StepChange::PassScoredRows { from: Some(until) })?;
    }
    Ok(())
}

/// Removes the steps that take out rows to learn from. One that also writes columns stays: all rows pass it.
fn remove_learning_steps(registry: &TransformRegistry, steps: &mut Vec<Step>) -> Result<()> {
    let mut passed = Vec::with_capacity(steps.len());
    for mut step in std::mem::take(steps) {
        if registry.facts(&step)?.learning_filter == Some(LearningFilter::RowsOnly) {
            continue;
        }
        registry.change(&mut step, &StepChange::PassScoredRows { from: None })?;
        passed.push(step);
    }
    *steps = passed;
    Ok(())
}
