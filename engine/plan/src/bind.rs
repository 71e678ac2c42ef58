//! Name and type resolution: every node becomes streams of operations over base datasets.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_model::{
    ContentId, Dataset, Fault, IdBuilder, NodeInput, Pipeline, PipelineNode, Result, SpecLocation, Step, codes,
    is_unsized_vector, logical_type, nearest_word,
};
use serde_json::json;

use crate::bind_faults::{BindResult, BindStop, ColumnDoubt, field_location, section_location};
use crate::future::is_hidden;
use crate::split::{part_column, split_operation};
use crate::{
    AnalyzerId, AnalyzerRequest, BindScope, CarriedFinding, FutureFlow, GatherBy, GatherOp, OpId, PlanOp,
    SeriesColumns, SqlCompiler, Transform, TransformRegistry,
};

/// Index into `BoundPipeline::bases`.
pub type BaseId = usize;

/// Origin of a stream's rows.
#[derive(Debug, Clone)]
pub enum BaseDataset {
    /// A source of the pipeline, by name.
    Source(String),
    /// The result of a gather, by its operation.
    Gathered(OpId),
}

/// A sequence of operations over one base dataset.
#[derive(Debug, Clone)]
pub struct OpStream {
    /// The base dataset.
    pub base: BaseId,
    /// Indices into `BoundPipeline::ops`.
    pub ops: Vec<OpId>,
}

/// Rows of a node: its streams, one after the other.
#[derive(Debug, Clone)]
pub struct NodeFlow {
    /// Streams in row order.
    pub streams: Vec<OpStream>,
    /// The visible columns.
    pub schema: SchemaRef,
    /// Whether the hidden columns of the split are present.
    pub parts: bool,
    /// Event time and keys, as far as they are known here.
    pub series: SeriesColumns,
    /// Its rows of the future, if a step adds them.
    pub future: Option<Arc<FutureFlow>>,
}

/// A bound operation.
#[derive(Clone)]
pub struct BoundOp {
    /// Display name, `node.kind`.
    pub label: String,
    /// Hash of everything that determines the output, given inputs and findings.
    pub identity: ContentId,
    /// The operation.
    pub op: PlanOp,
    /// Analyzers whose findings it needs: indices into `BoundPipeline::analyzers`.
    pub asks: Vec<AnalyzerId>,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

/// A bound analyzer.
#[derive(Clone)]
pub struct BoundAnalyzer {
    /// The operation that needs the finding.
    pub op: OpId,
    /// The requested analyzer.
    pub ask: AnalyzerRequest,
    /// The rows it reads.
    pub streams: Vec<OpStream>,
    /// Hidden column that restricts the rows to a part of the split.
    pub part: Option<String>,
    /// How the finding depends on an earlier run.
    pub carried: Option<CarriedFinding>,
}

/// The typed pipeline.
#[derive(Clone, Default)]
pub struct BoundPipeline {
    /// Base datasets.
    pub bases: Vec<BaseDataset>,
    /// Columns of each base.
    pub base_schemas: Vec<SchemaRef>,
    /// Operations.
    pub ops: Vec<BoundOp>,
    /// Analyzers.
    pub asks: Vec<BoundAnalyzer>,
    /// Flows of nodes and sources by name.
    pub flows: BTreeMap<String, NodeFlow>,
    /// Inputs of each gather: name and flow.
    pub gather_inputs: BTreeMap<OpId, Vec<(String, NodeFlow)>>,
    /// The input flow of each window and join.
    pub window_inputs: BTreeMap<OpId, NodeFlow>,
    /// The flow of the other side of each join.
    pub join_inputs: BTreeMap<OpId, NodeFlow>,
}

impl BoundPipeline {
    /// Sets the vector widths of a gathered dataset, which are known once it exists.
    pub fn set_gathered_schema(&mut self, op: OpId, gathered: &Schema) {
        for (base, schema) in self.bases.iter().zip(&mut self.base_schemas) {
            if !matches!(base, BaseDataset::Gathered(known) if *known == op) {
                continue;
            }
            let fields = schema.fields().iter().map(|field| match gathered.field_with_name(field.name()) {
                Ok(found) if is_unsized_vector(field.data_type()) => {
                    field.as_ref().clone().with_data_type(logical_type(found.data_type()))
                }
                _ => field.as_ref().clone(),
            });
            *schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        }
    }
}

/// Binds a pipeline to the schemas of its sources. The fault holds all problems; those that only follow from others,
/// and steps that read a source without a dataset, are left out.
pub fn bind(
    pipeline: &Pipeline,
    registry: &TransformRegistry,
    sql: &SqlCompiler,
    datasets: &BTreeMap<String, Dataset>,
) -> Result<BoundPipeline> {
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
        let keys = Some(source.keys.iter().map(meant).collect::<Vec<_>>()).filter(|keys| !keys.is_empty());
        flow.series = SeriesColumns { time: source.time.as_ref().map(meant), keys };
        for name in source.time.iter().chain(&source.keys) {
            if dataset.schema.field_with_name(name).is_err() {
                let fault = crate::column_selector::unknown_column(name, &dataset.schema);
                binder.faults.push(fault.at(source.at.as_ref()));
                binder.doubts.entry(source.name.clone()).or_default().add_column(name);
            }
        }
        binder.bound.flows.insert(source.name.clone(), flow);
    }
    for node in &pipeline.nodes {
        // What fails is reported where it fails.
        let _ = binder.node(&node.name);
    }
    binder.check_split();
    match Fault::combine(std::mem::take(&mut binder.faults)) {
        Some(fault) => Err(fault),
        None => {
            crate::leakage::check_leakage(pipeline, &binder.bound)?;
            Ok(binder.bound)
        }
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
            .map(|field| Field::new(field.name(), logical_type(field.data_type()), field.is_nullable()))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        self.bound.bases.push(base);
        self.bound.base_schemas.push(schema.clone());
        let streams = vec![OpStream { base: self.bound.bases.len() - 1, ops: Vec::new() }];
        let mut flow = NodeFlow { streams, schema, parts: false, series: SeriesColumns::default(), future: None };
        self.add_split_columns(&mut flow);
        flow
    }

    /// Adds the hidden columns of the split once all columns that it reads are present.
    fn add_split_columns(&mut self, flow: &mut NodeFlow) {
        let Some(split) = &self.pipeline.split else { return };
        if flow.parts {
            return;
        }
        match split_operation(split, &flow.schema, self.sql) {
            Ok(map) => {
                let mut identity = IdBuilder::new("split");
                identity.json(&split.config());
                self.push(flow, PlanOp::Map(map), "split".into(), identity.finish(), None);
                flow.parts = true;
            }
            Err(fault) if fault.code() == codes::UNKNOWN_COLUMN => {}
            Err(fault) => self.report_split(fault),
        }
    }

    /// Adds a fault of the split, once.
    fn report_split(&mut self, fault: Fault) {
        if !self.faults.iter().any(|known| known.message() == fault.message()) {
            let source = self.pipeline.sources.first().and_then(|source| source.at.as_ref());
            self.faults.push(fault.at(section_location(source, "split").as_ref()));
        }
    }

    /// Reports a split whose columns no step has.
    fn check_split(&mut self) {
        let Some(split) = &self.pipeline.split else { return };
        let flows = &self.bound.flows;
        if flows.values().any(|flow| flow.parts) || !self.failed.is_empty() || !self.doubts.is_empty() {
            return;
        }
        let sources = self.pipeline.sources.iter().filter_map(|source| flows.get(&source.name));
        let faults = sources.filter_map(|flow| split_operation(split, &flow.schema, self.sql).err());
        if let Some(fault) = faults.min_by_key(|fault| fault.hint_text().is_none_or(|hint| !hint.starts_with("did"))) {
            self.report_split(fault);
        }
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
        // Rows of the future go through a copy: its windows have more inputs.
        let copy = flow.future.is_some().then(|| op.clone());
        self.bound.ops.push(BoundOp { label: label.clone(), identity, op, asks: Vec::new(), at: at.clone() });
        flow.streams.iter_mut().for_each(|stream| stream.ops.push(id));
        if let (Some(op), Some(future)) = (copy, &mut flow.future) {
            self.bound.ops.push(BoundOp { label, identity, op, asks: Vec::new(), at });
            Arc::make_mut(future).push(id + 1);
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
            let circle = self.open[from..].iter().chain([&node.name]).cloned().collect::<Vec<_>>().join(" -> ");
            let message = match from + 1 == self.open.len() {
                true => format!("`{name}` reads itself"),
                false => format!("steps depend on each other: {circle}"),
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
                    self.faults.extend(fault.into_each().into_iter().map(|fault| fault.at(node.at.as_ref())));
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
            let label = format!("{}.{}", node.name, step.kind);
            let mut read = Vec::new();
            let bound = self.append_step(&mut flow, node, step, &label, &mut read);
            read.iter().filter_map(|name| self.doubts.get(name)).for_each(|other| doubt.merge(other));
            let Err(stop) = bound else { continue };
            if let BindStop::Fault(fault) = stop {
                let place = |fault: Fault| fault.at(step.at.as_ref()).step(&label);
                let new = fault.into_each().into_iter().filter(|fault| !doubt.covers(fault)).map(place);
                self.faults.extend(new);
            }
            doubt.add_step(step);
        }
        if !doubt.is_empty() {
            self.doubts.insert(node.name.clone(), doubt);
        }
        Ok(flow)
    }

    /// Binds one step and appends its operations. `read` gets the names of other steps that it reads.
    fn append_step(
        &mut self,
        flow: &mut NodeFlow,
        node: &PipelineNode,
        step: &Step,
        label: &str,
        read: &mut Vec<String>,
    ) -> BindResult<()> {
        let transform = self.registry.build(step)?;
        let ops = self.bind_step(transform.as_ref(), flow, read)?;
        for (part, op) in ops.into_iter().enumerate() {
            let mut identity = IdBuilder::new("bound operation");
            identity.text(&step.kind).json(&step.config).json(&json!([part, op.identity()?]));
            self.append_op(flow, op, label, identity.finish(), step.at.as_ref(), node)?;
            self.add_split_columns(flow);
        }
        Ok(())
    }

    /// Binds the operations of one step. If the transform reads the schema of a node that is not bound yet, binds
    /// that node and repeats.
    fn bind_step(
        &mut self,
        transform: &dyn Transform,
        flow: &NodeFlow,
        read: &mut Vec<String>,
    ) -> BindResult<Vec<PlanOp>> {
        loop {
            let (missing, named) = (RefCell::new(None), RefCell::new(Vec::new()));
            let flows = &self.bound.flows;
            let other = |name: &str| {
                named.borrow_mut().push(name.to_owned());
                flows.get(name).map(|flow| flow.schema.clone()).ok_or_else(|| {
                    missing.replace(Some(name.to_owned()));
                    unknown_node(name, self.pipeline)
                })
            };
            let ops = transform.bind(&BindScope {
                series: &flow.series,
                schema: &flow.schema,
                future: flow.future.as_deref(),
                sql: self.sql,
                other: &other,
            });
            match (ops, missing.into_inner()) {
                (Err(_), Some(name)) => self.node(&name)?,
                (ops, _) => {
                    *read = named.into_inner();
                    return Ok(ops?);
                }
            };
        }
    }

    /// Appends an operation to a flow and derives the columns after it.
    fn append_op(
        &mut self,
        flow: &mut NodeFlow,
        op: PlanOp,
        label: &str,
        identity: ContentId,
        at: Option<&SpecLocation>,
        node: &PipelineNode,
    ) -> BindResult<()> {
        let schema = match &op {
            PlanOp::Map(map) => with_written(&flow.schema, &map.reads, &map.writes, label)?,
            PlanOp::Expand(expand) => with_written(&flow.schema, &expand.reads, &expand.writes, label)?,
            PlanOp::Window(window) => with_written(&flow.schema, &window.reads, &window.writes, label)?,
            PlanOp::Join(join) => {
                let writes: Vec<Field> = join.writes().cloned().collect();
                with_written(&flow.schema, &[], &writes, label)?
            }
            PlanOp::Keep(_) => flow.schema.clone(),
            PlanOp::Project(columns) => projected(&flow.schema, columns)?,
            PlanOp::Gather(gather) => gather.schema.clone(),
        };
        if let PlanOp::Gather(gather) = &op
            && let GatherBy::Future(future) = &gather.lower
        {
            let (gather, future) = (gather.clone(), future.clone());
            return Ok(self.start_future(flow, (gather, future), label, identity, at)?);
        }
        if let PlanOp::Gather(gather) = op {
            let series = flow.series.still_in(&gather.schema);
            *flow = self.gather(Some(&*flow), gather, label, identity, at)?;
            flow.series = series;
            return Ok(());
        }
        let asks = if let PlanOp::Map(map) = &op { map.asks.clone() } else { Vec::new() };
        let before = flow.clone();
        flow.series.follow(&op);
        let windowed = op.is_over_series();
        let joined = match &op {
            PlanOp::Join(join) => Some(self.node(&join.other)?),
            _ => None,
        };
        let id = self.push(flow, op, label.to_owned(), identity, at.cloned());
        let copy = before.future.as_ref().map(|future| (id + 1, future.streams()));
        if windowed {
            if let Some((copy, streams)) = &copy {
                let streams = streams.clone();
                self.bound.window_inputs.insert(*copy, NodeFlow { streams, future: None, ..before.clone() });
                self.bound.join_inputs.extend(joined.clone().map(|flow| (*copy, flow)));
            }
            self.bound.window_inputs.insert(id, before.clone());
            self.bound.join_inputs.extend(joined.map(|flow| (id, flow)));
        }
        for ask in asks {
            let (streams, part) = match &ask.of {
                Some(other) => (self.node(other)?.streams, None),
                // What describes the rows of one run describes all of them.
                None if ask.per_run => (before.streams.clone(), None),
                None => (before.streams.clone(), self.part_column_of(&before, node.fit_on.as_deref(), label)?),
            };
            self.bound.asks.push(BoundAnalyzer { op: id, ask, streams, part, carried: None });
            let ask = self.bound.asks.len() - 1;
            self.bound.ops[id].asks.push(ask);
            copy.iter().for_each(|(copy, _)| self.bound.ops[*copy].asks.push(ask));
        }
        flow.schema = schema;
        Ok(())
    }

    /// The hidden column of the part that `label` learns from.
    fn part_column_of(&mut self, flow: &NodeFlow, part: Option<&str>, label: &str) -> BindResult<Option<String>> {
        let (Some(part), Some(split)) = (part, &self.pipeline.split) else {
            return match part {
                None => Ok(None),
                Some(part) => Err(Fault::new(codes::UNKNOWN_NAME, format!("the split has no part `{part}`")).into()),
            };
        };
        if !split.parts().contains(&part) {
            let fault = Fault::new(codes::UNKNOWN_NAME, format!("the split has no part `{part}`"));
            return Err(fault.hint(format!("its parts are: {}", split.parts().join(", "))).into());
        }
        if flow.parts {
            return Ok(Some(part_column(part)));
        }
        if let Err(fault) = split_operation(split, &flow.schema, self.sql) {
            self.report_split(fault.note(format!("`{label}` learns from the part `{part}`")));
        }
        Err(BindStop::Reported)
    }

    fn union(&mut self, names: &[String], doubt: &mut ColumnDoubt) -> BindResult<NodeFlow> {
        let flows = names.iter().map(|name| self.node(name)).collect::<BindResult<Vec<_>>>()?;
        names.iter().filter_map(|name| self.doubts.get(name)).for_each(|other| doubt.merge(other));
        let future = FutureFlow::union(&flows)?;
        let mut flows = flows.into_iter();
        let Some(mut all) = flows.next() else {
            return Err(Fault::new(codes::BAD_VALUE, "a union needs at least one input").into());
        };
        for (flow, name) in flows.zip(&names[1..]) {
            let shape = |schema: &Schema| {
                schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect::<Vec<_>>()
            };
            if shape(&flow.schema) != shape(&all.schema) {
                if !doubt.is_empty() {
                    return Err(BindStop::Reported);
                }
                let message = format!("`{}` and `{name}` have different columns", names[0]);
                let fault = Fault::new(codes::COLUMN_TYPE, message).fragment(name, 0);
                return Err(fault.hint(union_hint(&all.schema, &flow.schema)).into());
            }
            all.streams.extend(flow.streams);
            all.parts &= flow.parts;
            if all.series != flow.series {
                all.series = SeriesColumns::default();
            }
        }
        all.future = future.map(Arc::new);
        Ok(all)
    }

    fn gather(
        &mut self,
        own: Option<&NodeFlow>,
        gather: GatherOp,
        label: &str,
        identity: ContentId,
        at: Option<&SpecLocation>,
    ) -> BindResult<NodeFlow> {
        let mut inputs = Vec::new();
        if let (Some(flow), false) = (own, gather.alone) {
            let mut flow = flow.clone();
            if let GatherBy::GroupBy(op) = &gather.lower {
                let read = flow.schema.project(&op.read_columns(&flow.schema)).map_err(Fault::from)?;
                flow.schema = Arc::new(read);
            }
            inputs.push(("this".to_owned(), flow));
        }
        for name in &gather.others {
            let mut flow = self.node(name)?;
            if let GatherBy::Join { join, .. } = &gather.lower {
                let read = |name: &String| join.columns_there().any(|column| column == name);
                let fields = flow.schema.fields().iter().filter(|field| read(field.name()));
                flow.schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
            }
            inputs.push((name.clone(), flow));
        }
        let schema = gather.schema.clone();
        let id = self.bound.ops.len();
        self.bound.ops.push(BoundOp {
            label: label.to_owned(),
            identity,
            op: PlanOp::Gather(gather),
            asks: Vec::new(),
            at: at.cloned(),
        });
        self.bound.gather_inputs.insert(id, inputs);
        Ok(self.base(BaseDataset::Gathered(id), &schema))
    }

    fn query(&mut self, node: &PipelineNode, query: &str, doubt: &mut ColumnDoubt) -> BindResult<NodeFlow> {
        let at = field_location(node.at.as_ref(), "sql");
        let place = |fault: Fault| fault.at(at.as_ref());
        let mut tables = BTreeMap::new();
        for table in self.sql.tables(query).map_err(place)? {
            let flow = self.node(&table).map_err(|stop| match stop {
                BindStop::Fault(fault) => place(fault.fragment(&table, 0)).into(),
                BindStop::Reported => stop,
            })?;
            self.doubts.get(&table).into_iter().for_each(|other| doubt.merge(other));
            tables.insert(table, flow.schema);
        }
        let gather = self.sql.query(query, &tables).map_err(|fault| match doubt.covers(&fault) {
            true => BindStop::Reported,
            false => place(fault).into(),
        })?;
        let mut identity = IdBuilder::new("query");
        identity.text(query);
        self.gather(None, gather, &format!("{}.sql", node.name), identity.finish(), node.at.as_ref())
    }
}

/// The column of this name, else the one that it was meant for: what reads it is then checked as it would be.
fn nearest_column(name: &String, schema: &Schema) -> String {
    let mut names = schema.fields().iter().map(|field| field.name());
    if names.any(|known| known == name) {
        return name.clone();
    }
    let names = schema.fields().iter().map(|field| field.name().as_str());
    nearest_word(name, names).unwrap_or(name).to_owned()
}

/// The first column in which two inputs of a union differ.
fn union_hint(first: &Schema, other: &Schema) -> String {
    let missing = first.fields().iter().find(|field| other.field_with_name(field.name()).is_err());
    let extra = other.fields().iter().find(|field| first.field_with_name(field.name()).is_err());
    let typed = first.fields().iter().find_map(|field| {
        let there = other.field_with_name(field.name()).ok()?;
        (there.data_type() != field.data_type()).then(|| (field, there.data_type()))
    });
    match (missing, extra, typed) {
        (Some(field), _, _) => format!("`{}` is in the first one only: `select` the same columns", field.name()),
        (_, Some(field), _) => format!("`{}` is in the second one only: `select` the same columns", field.name()),
        (_, _, Some((field, other))) => {
            let (name, data_type) = (field.name(), field.data_type());
            format!("`{name}` is {data_type} in the first one and {other} in the second: `cast` one of them")
        }
        _ => "`select` the columns in the same order".to_owned(),
    }
}

/// A fault for an unknown step or source, with the nearest known name as hint.
fn unknown_node(name: &str, pipeline: &Pipeline) -> Fault {
    let names = pipeline.nodes.iter().map(|node| &node.name);
    let names = names.chain(pipeline.sources.iter().map(|source| &source.name));
    let fault = Fault::new(codes::UNKNOWN_NAME, format!("there is no step or source `{name}`"));
    match nearest_word(name, names.map(String::as_str)) {
        Some(near) => fault.hint(format!("did you mean `{near}`?")),
        None => fault,
    }
}

fn with_written(schema: &Schema, reads: &[String], writes: &[Field], label: &str) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    for field in writes {
        if is_hidden(field.name()) {
            continue;
        }
        match fields.iter().position(|known| known.name() == field.name()) {
            Some(place) if reads.contains(field.name()) => fields[place] = field.clone(),
            Some(_) => {
                let message = format!("`{label}` writes `{}`, which exists already and is not its input", field.name());
                return Err(Fault::new(codes::COLUMN_CLASH, message)
                    .column(field.name())
                    .hint("give the new column another name, or drop the old one first"));
            }
            None => fields.push(field.clone()),
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

fn projected(schema: &Schema, columns: &[(String, String)]) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = Vec::new();
    for (from, to) in columns {
        let field = schema.field_with_name(from).map_err(|_| crate::column_selector::unknown_column(from, schema))?;
        if fields.iter().any(|known| known.name() == to) {
            return Err(Fault::new(codes::COLUMN_CLASH, format!("two columns would be called `{to}`"))
                .column(to)
                .hint("give one of them another name, or drop it first"));
        }
        fields.push(field.clone().with_name(to));
    }
    Ok(Arc::new(Schema::new(fields)))
}
