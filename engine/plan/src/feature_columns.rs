//! The columns of a step that a training, a feed or a table of features hands to a model.

use std::collections::BTreeSet;

use arrow::datatypes::{DataType, Schema};
use forebay_contract::{FeatureFacts, is_pattern};
use forebay_model::Pipeline;

use crate::column_selector::ColumnSelector;
use crate::feature_facts::ReaderFacts;
use crate::id_origins::ID_STEPS;
use crate::learn_check::step_kind;
use crate::{BoundPipeline, PlanOp};

/// Columns that steps made which give ids.
pub fn id_columns(bound: &BoundPipeline) -> BTreeSet<&String> {
    let id_steps = bound
        .ops
        .iter()
        .filter(|op| ID_STEPS.contains(&step_kind(op)));
    let fields = id_steps.flat_map(|op| match &op.op {
        PlanOp::Map(map) => map.writes.as_slice(),
        _ => &[],
    });
    fields.map(|field| field.name()).collect()
}

/// True if a column of this type can hold ids.
pub fn is_ids(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, width) => *width > 0 && item.data_type().is_integer(),
        _ => data_type.is_integer(),
    }
}

/// True if a column of this type holds numbers.
pub fn is_number(data_type: &DataType) -> bool {
    match data_type {
        // What was learned from no rows has no width.
        DataType::FixedSizeList(item, width) => *width > 0 && item.data_type().is_numeric(),
        _ => data_type.is_numeric() || *data_type == DataType::Boolean,
    }
}

/// The columns of `schema` that a training or a feed of these facts takes as features, or to choose a model by.
/// Facts without names of columns stand for all possible features: numbers, ids and vectors that are neither keys nor
/// times of sources.
pub fn taken_columns(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    schema: &Schema,
    facts: &FeatureFacts,
) -> BTreeSet<String> {
    let mut columns: BTreeSet<String> = facts.extra.iter().cloned().collect();
    let mut dense = facts.dense.clone();
    let mut categorical = facts.categorical.clone();
    let mut named: BTreeSet<String> = dense
        .iter()
        .chain(&categorical)
        .flatten()
        .cloned()
        .collect();
    named.extend(columns.iter().cloned());
    named.extend(facts.label.clone());
    named.extend(facts.weight.clone());
    named.extend(pipeline.label.iter().map(|label| label.column.clone()));
    for features in [&mut dense, &mut categorical].into_iter().flatten() {
        *features = without_patterns(features, schema, &named);
    }
    named.extend(dense.iter().chain(&categorical).flatten().cloned());
    let ids = id_columns(bound);
    let free = schema
        .fields()
        .iter()
        .filter(|field| !named.contains(field.name()));
    for field in free {
        let is_id = ids.contains(field.name()) && is_any_number(field.data_type());
        let is_chosen = if is_id {
            categorical.is_none()
        } else {
            dense.is_none()
                && is_any_number(field.data_type())
                && !is_key_or_time(pipeline, field.name())
        };
        if is_chosen {
            columns.insert(field.name().clone());
        }
    }
    columns.extend(dense.into_iter().flatten());
    columns.extend(categorical.into_iter().flatten());
    columns
}

/// The columns that the trainings and the feed take of a step; `None` where neither reads it.
pub(crate) fn taken_of_step(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    schema: &Schema,
    readers: &ReaderFacts,
    from: &str,
) -> Option<BTreeSet<String>> {
    let mut columns = BTreeSet::new();
    let mut is_read = false;
    for training in &pipeline.trainings {
        if training.from != from {
            continue;
        }
        is_read = true;
        if let Some(facts) = readers.trainings.get(&training.name) {
            columns.extend(taken_columns(pipeline, bound, schema, facts));
        }
    }
    if let Some(feed) = &readers.feed
        && feed.from.as_deref() == Some(from)
    {
        is_read = true;
        columns.extend(taken_columns(pipeline, bound, schema, &feed.features));
    }
    is_read.then_some(columns)
}

fn is_key_or_time(pipeline: &Pipeline, name: &str) -> bool {
    let mut declared = pipeline
        .sources
        .iter()
        .flat_map(|source| source.keys.iter().chain(&source.time));
    declared.any(|column| column == name)
}

/// True if a column of this type holds numbers, also where a vector's width is not known yet.
fn is_any_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, _) | DataType::List(item) => item.data_type().is_numeric(),
        other => is_number(other),
    }
}

/// Names of features with the columns of `schema` in place of patterns. A pattern leaves out what other settings name. One
/// that matches nothing stands for nothing: it is refused where features are chosen.
fn without_patterns(features: &[String], schema: &Schema, named: &BTreeSet<String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for feature in features {
        if !is_pattern(feature) || schema.field_with_name(feature).is_ok() {
            names.push(feature.clone());
            continue;
        }
        let (matches, _) = ColumnSelector::from(feature.as_str()).matches(schema);
        let others = matches.iter().map(|field| field.name());
        names.extend(others.filter(|name| !named.contains(*name)).cloned());
    }
    names
}
