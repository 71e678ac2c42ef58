//! Warnings of ids that a training takes as numbers.

use std::collections::BTreeMap;

use forebay_feed::{FeatureColumn, FeedConfig};
use forebay_model::{Fault, Pipeline, PipelineSink, codes};
use forebay_plan::{BoundPipeline, NodeFlow, unordered_ids};

use crate::feed::features::choose_features;
use crate::session::Session;

/// Columns that a warning names.
const COLUMNS_LISTED_MAX: usize = 8;

impl Session {
    /// Trainings that multiply ids by weights, as if they were amounts.
    pub(crate) fn id_warnings(&self, pipeline: &Pipeline, bound: &BoundPipeline) -> Vec<Fault> {
        let mut warnings = Vec::new();
        for training in &pipeline.trainings {
            let Ok(trainer) = self.trainer(training) else {
                continue;
            };
            let flow = bound.flows.get(&training.from);
            if let Some(flow) = flow.filter(|_| trainer.weighs_numbers()) {
                let dense = dense_columns(pipeline, bound, flow, &trainer.feed());
                warnings.extend(warnings_of_training(bound, flow, training, &dense));
            }
        }
        warnings
    }
}

/// The columns that a training takes as numbers.
fn dense_columns(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    flow: &NodeFlow,
    config: &FeedConfig,
) -> Vec<String> {
    if let Ok(features) = choose_features(pipeline, bound, &flow.schema, config) {
        let fields = features.dense.into_iter();
        return fields.map(|field| field.column).collect();
    }
    // Some widths are known only once something is learned.
    let columns = config.dense.iter().flatten().map(FeatureColumn::column);
    columns.map(str::to_owned).collect()
}

/// One warning for each step whose ids are among the numbers.
fn warnings_of_training(
    bound: &BoundPipeline,
    flow: &NodeFlow,
    training: &PipelineSink,
    dense: &[String],
) -> Vec<Fault> {
    let ids = unordered_ids(bound, flow);
    let mut by_step: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for column in dense {
        if let Some(step) = ids.get(column) {
            by_step.entry(step).or_default().push(column);
        }
    }
    let mut warnings = Vec::new();
    for (step, columns) in by_step {
        let Some(first) = columns.first() else {
            continue;
        };
        let message = format!(
            "`{}` multiplies ids of `{step}` by weights ({}): their order and distances mean \
             nothing",
            training.name,
            listed(&columns)
        );
        let hint = "name them under `categorical`, so that each id has weights of its own, or use \
                    `one_hot`";
        let fault = Fault::new(codes::COLUMN_TYPE, message).column(*first);
        warnings.push(fault.hint(hint).at(training.at.as_ref()));
    }
    warnings
}

/// `a`, `b` and 3 more.
fn listed(columns: &[&str]) -> String {
    let names = columns.iter().take(COLUMNS_LISTED_MAX);
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match columns.len() - names.len() {
        0 => names.join(", "),
        others => format!("{} and {others} more", names.join(", ")),
    }
}
