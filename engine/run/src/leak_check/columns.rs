//! Which columns keep their values, and which tell rows and their times.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Dataset, Pipeline};
use forebay_plan::{
    BaseDataset, BoundPipeline, NodeFlow, PART_PREFIX, PlanOp, SqlCompiler, TransformRegistry,
    base_column, bind, origins,
};

/// A pipeline whose nodes write the time of their rows, where only their last steps drop it: those
/// are left out, and only the columns that they keep count.
pub(super) struct TimedPipeline {
    pub pipeline: Pipeline,
    pub bound: BoundPipeline,
    /// By node.
    pub only: BTreeMap<String, Vec<String>>,
}

impl TimedPipeline {
    pub fn new(
        pipeline: &Pipeline,
        bound: BoundPipeline,
        registry: &TransformRegistry,
        sql: &SqlCompiler,
        datasets: &BTreeMap<String, Dataset>,
    ) -> TimedPipeline {
        let mut timed = TimedPipeline {
            pipeline: pipeline.clone(),
            bound,
            only: BTreeMap::new(),
        };
        // The plan has been found free of leakage; columns that sinks drop may know the future.
        timed.pipeline.label = None;
        for sink in &pipeline.sinks {
            let Some(flow) = timed.bound.flows.get(&sink.from) else {
                continue;
            };
            let Some(stream) = flow.streams.first() else {
                continue;
            };
            if time_of(pipeline, flow).is_some() {
                continue;
            }
            let mut names: Vec<String> = flow
                .schema
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
            let mut shorter = timed.pipeline.clone();
            for op in stream.ops.iter().rev() {
                let PlanOp::Project(columns) = &timed.bound.ops[*op].op else {
                    break;
                };
                let node = shorter.nodes.iter_mut().find(|node| node.name == sink.from);
                if node.is_none_or(|node| node.steps.pop().is_none()) {
                    break;
                }
                let before = |name: &String| {
                    columns
                        .iter()
                        .find(|(_, to)| to == name)
                        .map(|(from, _)| from.clone())
                };
                names = names.iter().filter_map(before).collect();
                let Ok(bound) = bind(&shorter, registry, sql, datasets) else {
                    break;
                };
                if bound
                    .flows
                    .get(&sink.from)
                    .is_some_and(|flow| time_of(pipeline, flow).is_some())
                {
                    timed.only.insert(sink.from.clone(), names);
                    (timed.pipeline, timed.bound) = (shorter, bound);
                    break;
                }
            }
        }
        timed
    }
}

/// The columns of a source that keep their values: who the rows are, when they are, which part
/// they belong to, and what the spec calls known.
pub(super) fn fixed_columns(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    source: &str,
) -> BTreeSet<String> {
    let declared = pipeline
        .source(source)
        .into_iter()
        .flat_map(|source| source.keys.iter().chain(&source.time));
    let known = pipeline.label.iter().flat_map(|label| &label.known);
    let mut fixed: BTreeSet<String> = declared.chain(known).cloned().collect();
    if let Some(label) = &pipeline.label {
        for (flow, name) in bound
            .flows
            .values()
            .flat_map(|flow| label.known.iter().map(move |name| (flow, name)))
        {
            if flow.schema.field_with_name(name).is_err() {
                continue;
            }
            // What known columns are made of is known, but for the label.
            let made_of = origins(bound, flow, name)
                .into_iter()
                .filter(|origin| origin.source == source && origin.column != label.column);
            fixed.extend(made_of.map(|origin| origin.column));
        }
    }
    let mut trace = |flow: Option<&NodeFlow>, columns: &[&String]| {
        for stream in flow.into_iter().flat_map(|flow| &flow.streams) {
            if matches!(&bound.bases[stream.base], BaseDataset::Source(name) if name == source) {
                fixed.extend(
                    columns
                        .iter()
                        .filter_map(|column| base_column(bound, stream, column)),
                );
            }
        }
    };
    for (id, op) in bound.ops.iter().enumerate() {
        match &op.op {
            PlanOp::Window(window) => {
                let columns: Vec<&String> = window.keys.iter().chain([&window.time]).collect();
                trace(bound.window_inputs.get(&id), &columns);
            }
            PlanOp::Join(join) => {
                let Some(as_of) = join.as_of() else { continue };
                trace(bound.window_inputs.get(&id), &[&as_of.time]);
                let there: Vec<&String> = [&as_of.other_time]
                    .into_iter()
                    .chain(&as_of.known_at)
                    .collect();
                trace(bound.join_inputs.get(&id), &there);
            }
            PlanOp::Map(map)
                if map
                    .writes
                    .iter()
                    .any(|field| field.name().starts_with(PART_PREFIX)) =>
            {
                let columns: Vec<&String> = map.reads.iter().collect();
                bound
                    .flows
                    .values()
                    .for_each(|flow| trace(Some(flow), &columns));
            }
            _ => {}
        }
    }
    fixed
}

/// The column that tells the time of a node's rows.
pub(super) fn time_of(pipeline: &Pipeline, flow: &NodeFlow) -> Option<String> {
    let declared = pipeline
        .sources
        .iter()
        .filter_map(|source| source.time.as_ref());
    let mut known = flow.series.time.iter().chain(declared);
    known
        .find(|time| flow.schema.field_with_name(time).is_ok())
        .cloned()
}

/// The columns that tell a sink's rows apart, as far as they are written as they were read.
pub(super) fn keys_of(pipeline: &Pipeline, bound: &BoundPipeline, flow: &NodeFlow) -> Vec<String> {
    let read = |key: &String| {
        flow.streams
            .iter()
            .all(|stream| base_column(bound, stream, key).is_some())
    };
    let mut keys: Vec<String> = Vec::new();
    for key in pipeline.sources.iter().flat_map(|source| &source.keys) {
        if flow.schema.field_with_name(key).is_ok() && !keys.contains(key) && read(key) {
            keys.push(key.clone());
        }
    }
    keys
}
