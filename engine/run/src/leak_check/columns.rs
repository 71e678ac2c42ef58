//! Chooses the columns that keep their values, and those that identify rows and their times.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Dataset, Pipeline};
use forebay_plan::{
    BaseDataset, BoundPipeline, ColumnLineage, MapOp, NodeFlow, PART_PREFIX, PlanOp, ReaderFacts,
    SqlCompiler, TransformRegistry, base_column, bind,
};

/// A pipeline whose nodes write the time of their rows, where only their last steps drop it: those
/// are left out, and only the columns that they keep count.
pub(super) struct TimedPipeline {
    pub pipeline: Pipeline,
    pub bound: BoundPipeline,
    /// Columns by node.
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
        // Without a label, no reader is judged.
        let readers = ReaderFacts::default();
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
            let mut names = flow.column_names();
            let mut shorter = timed.pipeline.clone();
            for op in stream.ops.iter().rev() {
                let PlanOp::Project(columns) = &timed.bound.ops[*op].op else {
                    break;
                };
                let node = shorter.nodes.iter_mut().find(|node| node.name == sink.from);
                if node.is_none_or(|node| node.steps.pop().is_none()) {
                    break;
                }
                let name_before = |name: &String| {
                    columns
                        .iter()
                        .find(|(_, to)| to == name)
                        .map(|(from, _)| from.clone())
                };
                names = names.iter().filter_map(name_before).collect();
                let Ok(bound) = bind(&shorter, registry, sql, datasets, &readers) else {
                    break;
                };
                if bound
                    .flows
                    .get(&sink.from)
                    .is_some_and(|flow| time_of(pipeline, flow).is_some())
                {
                    timed.only.insert(sink.from.clone(), names);
                    timed.pipeline = shorter;
                    timed.bound = bound;
                    break;
                }
            }
        }
        timed
    }
}

/// The columns of a source that keep their values: keys, times, parts of the split, and the columns
/// that the spec declares as known, but for those that hold the label.
pub(super) fn fixed_columns(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    source: &str,
) -> BTreeSet<String> {
    let declared = pipeline
        .source(source)
        .into_iter()
        .flat_map(|source| source.keys.iter().chain(&source.time));
    let mut fixed: BTreeSet<String> = declared.cloned().collect();
    if let Some(label) = &pipeline.label {
        let mut lineage = ColumnLineage::new(bound);
        let label_origins = lineage.label_origins(&label.column);
        let mut of_label = BTreeSet::new();
        for origin in &label_origins {
            if origin.source == source {
                of_label.insert(&origin.column);
            }
        }
        let known_columns = label.known.iter().filter(|name| !of_label.contains(name));
        fixed.extend(known_columns.cloned());
        for flow in bound.flows.values() {
            for name in &label.known {
                if flow.schema.field_with_name(name).is_err() {
                    continue;
                }
                // The columns that a known column is computed from are known, too, but for the label.
                for origin in lineage.origins(flow, name) {
                    if origin.source == source && !label_origins.contains(&origin) {
                        fixed.insert(origin.column);
                    }
                }
            }
        }
    }
    let mut trace = |flow: Option<&NodeFlow>, columns: &[&String]| {
        if let Some(flow) = flow {
            fixed.extend(columns_of_source(bound, flow, source, columns));
        }
    };
    for (id, op) in bound.ops.iter().enumerate() {
        match &op.op {
            PlanOp::Window(window) => {
                let columns: Vec<&String> = window.keys.iter().chain([&window.time]).collect();
                trace(bound.window_inputs.get(&id), &columns);
            }
            PlanOp::Series(series) => {
                let columns: Vec<&String> = series.keys.iter().chain(&series.time).collect();
                trace(bound.window_inputs.get(&id), &columns);
            }
            PlanOp::Join(join) => {
                let Some(as_of) = join.as_of() else { continue };
                trace(bound.window_inputs.get(&id), &[&as_of.time]);
                let other_times: Vec<&String> = [&as_of.other_time]
                    .into_iter()
                    .chain(&as_of.known_at)
                    .collect();
                trace(bound.join_inputs.get(&id), &other_times);
            }
            PlanOp::Map(map) if writes_part(map) => {
                let columns: Vec<&String> = map.reads.iter().collect();
                for flow in bound.flows.values() {
                    trace(Some(flow), &columns);
                }
            }
            _ => {}
        }
    }
    fixed
}

/// The columns of a source that columns of a flow are, unchanged.
fn columns_of_source(
    bound: &BoundPipeline,
    flow: &NodeFlow,
    source: &str,
    columns: &[&String],
) -> Vec<String> {
    let mut source_columns = Vec::new();
    for stream in &flow.streams {
        let is_of_source = match &bound.bases[stream.base] {
            BaseDataset::Source(name) => name == source,
            BaseDataset::Gathered(_) => false,
        };
        if !is_of_source {
            continue;
        }
        for column in columns {
            source_columns.extend(base_column(bound, stream, column));
        }
    }
    source_columns
}

/// True for the operation that decides the parts of the split.
fn writes_part(map: &MapOp) -> bool {
    let mut fields = map.writes.iter();
    fields.any(|field| field.name().starts_with(PART_PREFIX))
}

/// The time column of a node's rows.
pub(super) fn time_of(pipeline: &Pipeline, flow: &NodeFlow) -> Option<String> {
    let declared = pipeline
        .sources
        .iter()
        .filter_map(|source| source.time.as_ref());
    let mut time_columns = flow.series.time.iter().chain(declared);
    time_columns
        .find(|time| flow.schema.field_with_name(time).is_ok())
        .cloned()
}

/// The columns that identify a sink's rows, as far as they are written unchanged.
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
