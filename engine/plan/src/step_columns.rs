//! How far ahead each column is known: a model for one step of the horizon takes more columns than a model for all of it.

use std::collections::BTreeMap;

use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};

use crate::BoundPipeline;
use crate::label_horizon::LabelHorizon;
use crate::leakage::ColumnAges;

/// The columns of a step with rows of the future, by how many steps ahead they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepColumns {
    /// Steps of the horizon.
    pub steps: u64,
    /// The last step for which each column is known; 0 where it is not even for the first.
    pub known: BTreeMap<String, u64>,
}

/// Whether a training has a model for each step of the horizon. The plan knows nothing else of what trainers are told.
pub fn predicts_per_step(training: &PipelineSink) -> bool {
    training.config["strategy"] == "per_step"
}

/// How many steps ahead the columns of a step are known.
pub fn step_columns(pipeline: &Pipeline, bound: &BoundPipeline, from: &str) -> Result<StepColumns> {
    let flow = bound.flows.get(from);
    let future = flow.and_then(|flow| Some((flow, flow.future.as_deref()?)));
    let Some((flow, future)) = future else {
        let message = format!("`strategy: per_step` predicts rows of the future, and `{from}` has none");
        let fault = Fault::new(codes::MISSING_FIELD, message);
        return Err(fault.hint("add `future_rows` to its steps, before the windows"));
    };
    let Some(label) = &pipeline.label else {
        let message =
            "`strategy: per_step` needs to know which columns are known ahead, and the pipeline has no `label`";
        let hint = "declare it: `label: { column: <target>, horizon: 28d, known: [...] }`";
        return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
    };
    let horizon = LabelHorizon::parse(&label.horizon).map_err(|fault| fault.at(label.at.as_ref()))?;
    let ages = ColumnAges::new(pipeline, bound, label);
    let known = flow.schema.fields().iter().map(|field| {
        let ahead = horizon.steps_ahead(ages.of(flow, field.name()), future);
        (field.name().clone(), ahead)
    });
    Ok(StepColumns { steps: future.steps, known: known.collect() })
}
