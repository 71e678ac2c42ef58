//! Labels among the features of a training: its own as a group, that of the pipeline, those of other
//! trainings.

use std::collections::BTreeMap;

use forebay_contract::Trainer;
use forebay_feed::FeatureField;
use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};
use forebay_plan::BoundPipeline;

use crate::feed::features::choose_features;
use crate::session::Session;
use crate::training_checks::label_column;

/// A list of features of a training.
struct FeatureList {
    /// The setting that names them.
    setting: &'static str,
    /// True if the training does not name them.
    is_default: bool,
    columns: Vec<String>,
}

impl Session {
    /// Refuses a training that learns from a label: groups by its own, takes that of the pipeline, or
    /// takes that of another training without naming it.
    pub(crate) fn refuse_labels_as_features(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        training: &PipelineSink,
    ) -> Result<()> {
        let trainer = self.trainer(training)?;
        let feed = trainer.feed();
        let own_label = label_column(pipeline, &feed)?;
        let mut of_others: BTreeMap<String, String> = self
            .predicted_labels(pipeline, &training.from)
            .into_iter()
            .filter(|(label, _)| *label != own_label)
            .collect();
        let declared = pipeline.label.as_ref().map(|label| label.column.as_str());
        if let Some(declared) = declared {
            of_others.remove(declared);
        }
        let mut faults = Vec::new();
        for list in feature_lists(pipeline, bound, training, trainer.as_ref()) {
            for column in &list.columns {
                let is_own_group = list.setting == "by" && *column == own_label;
                let is_declared = declared == Some(column.as_str()) && *column != own_label;
                let other = of_others.get(column).filter(|_| list.is_default);
                if is_own_group || is_declared {
                    faults.push(declared_fault(column, &list));
                } else if let Some(other) = other {
                    faults.push(default_fault(column, other, &list));
                }
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }
}

/// The features of a training, and the columns that choose a model.
fn feature_lists(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    training: &PipelineSink,
    trainer: &dyn Trainer,
) -> Vec<FeatureList> {
    let feed = trainer.feed();
    let mut lists = vec![FeatureList {
        setting: "by",
        is_default: false,
        columns: trainer.group_columns(),
    }];
    let Some(flow) = bound.flows.get(&training.from) else {
        return lists;
    };
    // Other faults of the features are reported already.
    let without_feed = Pipeline {
        feed: None,
        ..pipeline.clone()
    };
    let Ok(features) = choose_features(&without_feed, bound, &flow.schema, &feed) else {
        return lists;
    };
    lists.push(FeatureList {
        setting: "dense",
        is_default: feed.dense.is_none(),
        columns: columns_of(&features.dense),
    });
    lists.push(FeatureList {
        setting: "categorical",
        is_default: feed.categorical.is_none(),
        columns: columns_of(&features.categorical),
    });
    lists
}

fn columns_of(fields: &[FeatureField]) -> Vec<String> {
    fields.iter().map(|field| field.column.clone()).collect()
}

/// The fault of a label that a training cannot have among its features at all.
fn declared_fault(column: &str, list: &FeatureList) -> Fault {
    let setting = list.setting;
    let message = if list.is_default {
        format!("`{column}` is the label, and `{setting}` has it among the features by default")
    } else {
        format!("`{column}` is the label, and `{setting}` lists it among the features")
    };
    let hint = if list.is_default {
        format!("list the columns of `{setting}`; a `lag` of the label may stay")
    } else {
        format!("take it out of `{setting}`; a `lag` of it may stay")
    };
    Fault::new(codes::LEAKAGE, message)
        .column(column)
        .field(setting)
        .hint(hint)
}

/// The fault of the label of another training among features that are not listed.
fn default_fault(column: &str, other: &str, list: &FeatureList) -> Fault {
    let setting = list.setting;
    let message = format!(
        "`{column}` is the label of `{other}`, and `{setting}` has it among the features by default"
    );
    let hint = format!(
        "list the columns of `{setting}`: without `{column}`, or with it if it is known when this \
         label is predicted"
    );
    Fault::new(codes::LEAKAGE, message)
        .column(column)
        .hint(hint)
}
