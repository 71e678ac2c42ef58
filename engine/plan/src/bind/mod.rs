//! Name and type resolution: every node becomes streams of operations over base datasets.

mod assumed;
mod inputs;
mod split_columns;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use forebay_model::{
    ContentId, Dataset, Fault, NodeInput, Pipeline, PipelineNode, Result, SpecLocation, codes,
    lasting_notes, logical_type, nearest_word,
};

use crate::bind_faults::{BindResult, BindStop, ColumnDoubt};
use crate::column_selector::unknown_column;
use crate::feature_facts::ReaderFacts;
use crate::leakage::check_leakage;
use crate::refit::check_refit;
use crate::{
    BaseDataset, BoundOp, BoundPipeline, FilterOp, MapOp, NodeFlow, OpId, OpList, OpStream, PlanOp,
    SeriesColumns, SqlCompiler, TransformRegistry, WindowDivision,
};
use steps::StepOutcome;

/// Binds a pipeline to the schemas of its sources. The fault holds all problems; those that only follow from others,
/// and steps that read a source without a dataset, are left out. Rows are judged by the facts of their readers, which no
/// pipeline without a label needs.
pub fn bind(
    pipeline: &Pipeline,
    registry: &TransformRegistry,
    sql: &SqlCompiler,
    datasets: &BTreeMap<String, Dataset>,
    readers: &ReaderFacts,
) -> Result<BoundPipeline> {
    let binding = bind_all(pipeline, registry, sql, datasets, readers);
    let PartialBinding { bound, faults, .. } = binding;
    Fault::combine(faults).map_or(Ok(bound), Err)
}

/// Binds the correct parts of a pipeline, and reports all problems, for the checks of sinks and
/// trainings that read its steps.
pub fn bind_all(
    pipeline: &Pipeline,
    registry: &TransformRegistry,
    sql: &SqlCompiler,
    datasets: &BTreeMap<String, Dataset>,
    readers: &ReaderFacts,
) -> PartialBinding {
    let mut binder = PipelineBinder {
        pipeline,
        registry,
        sql,
        bound: BoundPipeline::default(),
        open: Vec::new(),
        faults: Vec::new(),
        failed: BTreeSet::new(),
        doubts: BTreeMap::new(),
    };
    for source in &pipeline.sources {
        let Some(dataset) = datasets.get(&source.name) else {
            binder.failed.insert(source.name.clone());
            continue;
        };
        let mut flow = binder.base(BaseDataset::Source(source.name.clone()), &dataset.schema);
        let meant = |name: &String| nearest_column(name, &dataset.schema);
        let keys =
            Some(source.keys.iter().map(meant).collect::<Vec<_>>()).filter(|keys| !keys.is_empty());
        flow.series = SeriesColumns {
            time: source.time.as_ref().map(meant),
            keys,
            duplicates: source.duplicates,
        };
        for name in source.time.iter().chain(&source.keys) {
            if dataset.schema.field_with_name(name).is_err() {
                let fault = unknown_column(name, &dataset.schema);
                binder.faults.push(fault.at(source.at.as_ref()));
                binder
                    .doubts
                    .entry(source.name.clone())
                    .or_default()
                    .add_series_column(name);
            }
        }
        binder.bound.flows.insert(source.name.clone(), flow);
    }
    for node in &pipeline.nodes {
        // A fault is reported where it occurs.
        let _ = binder.node(&node.name);
    }
    binder.check_split();
    let PipelineBinder {
        bound,
        mut faults,
        failed,
        doubts,
        ..
    } = binder;
    if faults.is_empty() {
        let checked =
            check_leakage(pipeline, &bound, readers).and_then(|()| check_refit(pipeline, &bound));
        faults.extend(checked.err().into_iter().flat_map(Fault::into_each));
    }
    PartialBinding {
        bound,
        faults,
        failed,
        doubts,
    }
}

/// A pipeline of which some steps may have failed.
pub struct PartialBinding {
    /// The bound pipeline. With faults, it is for checks only: columns that were reported are
    /// assumed in it.
    pub bound: BoundPipeline,
    /// All problems of the binding.
    pub faults: Vec<Fault>,
    failed: BTreeSet<String>,
    doubts: BTreeMap<String, ColumnDoubt>,
}

impl PartialBinding {
    /// True if a fault in a reader of a step or source may follow from the faults there.
    pub fn follows(&self, fault: &Fault, node: &str) -> bool {
        if self.failed.contains(node) {
            return true;
        }
        let Some(doubt) = self.doubts.get(node) else {
            return false;
        };
        fault.code() != codes::UNKNOWN_COLUMN || doubt.covers(fault, None)
    }

    /// True if a fault about the columns of all steps may follow from the faults there.
    pub fn follows_from_any(&self, fault: &Fault) -> bool {
        !self.failed.is_empty() || self.doubts.keys().any(|node| self.follows(fault, node))
    }
}

pub(crate) struct PipelineBinder<'a> {
    pub(crate) pipeline: &'a Pipeline,
    registry: &'a TransformRegistry,
    sql: &'a SqlCompiler,
    pub(crate) bound: BoundPipeline,
    /// Nodes being bound, to detect cycles.
    open: Vec<String>,
    faults: Vec<Fault>,
    /// Nodes without a flow, for a reason that is reported, and sources without a dataset.
    failed: BTreeSet<String>,
    /// Nodes of which a step failed, and those that read them.
    doubts: BTreeMap<String, ColumnDoubt>,
}

impl PipelineBinder<'_> {
    fn base(&mut self, base: BaseDataset, schema: &Schema) -> NodeFlow {
        let fields: Vec<Field> = schema
            .fields()
            .iter()
            .map(|field| {
                Field::new(
                    field.name(),
                    logical_type(field.data_type()),
                    field.is_nullable(),
                )
                .with_metadata(lasting_notes(field))
            })
            .collect();
        let schema = Arc::new(Schema::new(fields));
        self.bound.bases.push(base);
        self.bound.base_schemas.push(schema.clone());
        let streams = vec![OpStream {
            base: self.bound.bases.len() - 1,
            ops: OpList::default(),
        }];
        let mut flow = NodeFlow {
            streams,
            schema,
            parts: false,
            series: SeriesColumns::default(),
            future: None,
            target: None,
            windows: WindowDivision::default(),
        };
        self.add_split_columns(&mut flow);
        flow
    }

    fn push(
        &mut self,
        flow: &mut NodeFlow,
        op: PlanOp,
        label: String,
        identity: ContentId,
        at: Option<SpecLocation>,
    ) -> OpId {
        let id = self.bound.ops.len();
        // Future rows go through a copy of the operation: its windows have more inputs.
        let copy = flow.future.is_some().then(|| without_judgement(op.clone()));
        self.bound.ops.push(BoundOp {
            label: label.clone(),
            identity,
            op,
            asks: Vec::new(),
            at: at.clone(),
        });
        flow.streams
            .iter_mut()
            .for_each(|stream| stream.ops.push(id));
        if let (Some(op), Some(future)) = (copy, &mut flow.future) {
            self.bound.ops.push(BoundOp {
                label,
                identity,
                op,
                asks: Vec::new(),
                at,
            });
            let is_learning = matches!(
                &self.bound.ops[id + 1].op,
                PlanOp::Keep(FilterOp { learning: true, .. })
            );
            let future = Arc::make_mut(future);
            if is_learning {
                future.push_to_history(id + 1);
                flow.windows.end();
            } else {
                future.push(id + 1);
            }
        }
        id
    }

    /// The flow of a node or source.
    fn node(&mut self, name: &str) -> BindResult<NodeFlow> {
        if let Some(flow) = self.bound.flows.get(name) {
            return Ok(flow.clone());
        }
        if self.failed.contains(name) {
            return Err(BindStop::Reported);
        }
        let Some(node) = self.pipeline.node(name) else {
            return Err(unknown_node(name, self.pipeline).into());
        };
        if let Some(from) = self.open.iter().position(|open| open == name) {
            let circle = self.open[from..]
                .iter()
                .chain([&node.name])
                .cloned()
                .collect::<Vec<_>>()
                .join(" -> ");
            let message = if from + 1 == self.open.len() {
                format!("`{name}` reads itself")
            } else {
                format!("steps depend on each other: {circle}")
            };
            return Err(Fault::new(codes::CYCLE, message)
                .hint("let one of them read a source")
                .at(node.at.as_ref())
                .into());
        }
        self.open.push(name.to_owned());
        let flow = self.bind_node(node);
        self.open.pop();
        match flow {
            Ok(flow) => {
                self.bound.flows.insert(name.to_owned(), flow.clone());
                Ok(flow)
            }
            Err(stop) => {
                if let BindStop::Fault(fault) = stop {
                    self.faults.extend(
                        fault
                            .into_each()
                            .into_iter()
                            .map(|fault| fault.at(node.at.as_ref())),
                    );
                }
                self.failed.insert(name.to_owned());
                Err(BindStop::Reported)
            }
        }
    }

    fn bind_node(&mut self, node: &PipelineNode) -> BindResult<NodeFlow> {
        let mut doubt = ColumnDoubt::default();
        let mut flow = match &node.input {
            NodeInput::From(name) => {
                let flow = self.node(name)?;
                doubt = self.doubts.get(name).cloned().unwrap_or_default();
                flow
            }
            NodeInput::Union(names) => self.union(names, &mut doubt)?,
            NodeInput::Sql(query) => self.query(node, query, &mut doubt)?,
        };
        for step in &node.steps {
            // Its own steps may be read while it is bound, by the split.
            self.doubts.insert(node.name.clone(), doubt.clone());
            let label = format!("{}.{}", node.name, step.kind);
            let StepOutcome {
                faults,
                failed,
                read,
                types,
            } = self.append_step(&mut flow, node, step, doubt.types());
            read.iter()
                .filter_map(|name| self.doubts.get(name))
                .for_each(|other| doubt.merge(other));
            let follows = |fault: &Fault| doubt.covers(fault, Some(&step.config));
            let new: Vec<Fault> = faults.into_iter().filter(|fault| !follows(fault)).collect();
            if failed {
                doubt.add_step(step, &new);
            }
            let locate = |fault: Fault| fault.at_field(step.at.as_ref()).step(&label);
            self.faults.extend(new.into_iter().map(locate));
            doubt.add_types(
                types
                    .into_iter()
                    .filter(|name| flow.schema.field_with_name(name).is_ok()),
            );
        }
        if doubt.is_empty() {
            self.doubts.remove(&node.name)
        } else {
            self.doubts.insert(node.name.clone(), doubt)
        };
        Ok(flow)
    }
}

/// Operation without its expectations, which are judged once.
fn without_judgement(op: PlanOp) -> PlanOp {
    match op {
        PlanOp::Map(map) => PlanOp::Map(MapOp {
            expectation: None,
            ..map
        }),
        other => other,
    }
}

/// The column of this name, or else the nearest one, so that the steps that read it are still checked.
fn nearest_column(name: &String, schema: &Schema) -> String {
    let mut names = schema.fields().iter().map(|field| field.name());
    if names.any(|name_in_schema| name_in_schema == name) {
        return name.clone();
    }
    let names = schema.fields().iter().map(|field| field.name().as_str());
    nearest_word(name, names).unwrap_or(name).to_owned()
}

/// A fault for an unknown step or source, with the nearest known name as hint.
fn unknown_node(name: &str, pipeline: &Pipeline) -> Fault {
    let names = pipeline.nodes.iter().map(|node| &node.name);
    let names = names.chain(pipeline.sources.iter().map(|source| &source.name));
    let fault = Fault::new(
        codes::UNKNOWN_NAME,
        format!("there is no step or source `{name}`"),
    );
    fault.suggest(name, names.map(String::as_str), "")
}
