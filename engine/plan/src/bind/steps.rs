//! Steps: each becomes operations, appended to the flow of its node.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use forebay_model::{
    ContentId, Fault, IdBuilder, NameIndex, Pipeline, PipelineNode, Result, Step, codes,
    without_lasting_notes,
};
use serde_json::json;

use super::assumed::{AssumedColumns, MendedBinding, NamedTable, OWN_TABLE, bind_with_assumptions};
use super::{PipelineBinder, unknown_node};
use crate::bind_faults::{BindResult, BindStop};
use crate::column_selector::unknown_column;
use crate::hidden_columns::is_hidden;
use crate::{
    BindScope, BoundAnalyzer, GatherBy, NodeFlow, PlanOp, SeriesColumns, Transform, future_streams,
};

/// Outcome of binding a step.
#[derive(Default)]
pub(super) struct StepOutcome {
    /// Faults of the step.
    pub faults: Vec<Fault>,
    /// True if its operations are missing, or some of them.
    pub failed: bool,
    /// Other steps that it reads.
    pub read: Vec<String>,
    /// Columns whose types are guesses.
    pub types: BTreeSet<String>,
}

/// Tables that a step reads while it is bound: its own rows, and other steps or sources by name.
struct ReadTables<'a> {
    pipeline: &'a Pipeline,
    /// Flows that are bound already
    flows: &'a BTreeMap<String, NodeFlow>,
    own_schema: &'a SchemaRef,
    read: RefCell<BTreeMap<String, SchemaRef>>,
    /// A table that was asked for before it was bound
    missing: RefCell<Option<String>>,
}

impl ReadTables<'_> {
    fn schema(&self, name: &str, assumed: &AssumedColumns) -> Result<SchemaRef> {
        let Some(flow) = self.flows.get(name) else {
            self.missing.replace(Some(name.to_owned()));
            return Err(unknown_node(name, self.pipeline));
        };
        let mut read = self.read.borrow_mut();
        read.insert(name.to_owned(), flow.schema.clone());
        Ok(assumed.extend(name, &flow.schema))
    }

    fn series(&self, name: &str) -> SeriesColumns {
        let flow = self.flows.get(name);
        flow.map(|flow| flow.series.clone()).unwrap_or_default()
    }

    fn named(&self) -> Vec<NamedTable> {
        let mut tables = vec![NamedTable {
            name: OWN_TABLE.to_owned(),
            schema: self.own_schema.clone(),
        }];
        for (name, schema) in self.read.borrow().iter() {
            tables.push(NamedTable {
                name: name.clone(),
                schema: schema.clone(),
            });
        }
        tables
    }
}

impl PipelineBinder<'_> {
    /// Binds one step and appends its operations. `guessed` are columns before it whose types are guesses.
    pub(super) fn append_step(
        &mut self,
        flow: &mut NodeFlow,
        node: &PipelineNode,
        step: &Step,
        guessed: &BTreeSet<String>,
    ) -> StepOutcome {
        let mut outcome = StepOutcome::default();
        if let Err(stop) = self.append_bound_step(flow, node, step, guessed, &mut outcome) {
            outcome.failed = true;
            if let BindStop::Fault(fault) = stop {
                outcome.faults.extend(fault.into_each());
            }
        }
        outcome
    }

    fn append_bound_step(
        &mut self,
        flow: &mut NodeFlow,
        node: &PipelineNode,
        step: &Step,
        guessed: &BTreeSet<String>,
        outcome: &mut StepOutcome,
    ) -> BindResult<()> {
        let transform = self.registry.build(step)?;
        let MendedBinding {
            bound,
            faults,
            assumed,
        } = self.bind_step(transform.as_ref(), flow, &mut outcome.read)?;
        outcome.faults = faults;
        outcome.failed = bound.is_none();
        let Some(ops) = bound else { return Ok(()) };
        let schema_before = flow.schema.clone();
        if !assumed.is_empty() {
            flow.schema = assumed.extend(OWN_TABLE, &schema_before);
        }
        let mut guessed: BTreeSet<String> =
            guessed.iter().chain(assumed.names()).cloned().collect();
        let mut written: BTreeSet<String> = BTreeSet::new();
        let mut keeps_columns = true;
        let mut columns = None;
        self.expect_ops(flow, ops.len());
        for (part, mut op) in ops.into_iter().enumerate() {
            flow.windows.enter(&mut op);
            if !matches!(op, PlanOp::Map(_)) {
                set_written(flow, &mut columns);
            }
            keeps_columns &= !matches!(op, PlanOp::Project(_) | PlanOp::Gather(_));
            if !guessed.is_empty() {
                spread_guesses(&op, &flow.schema, &mut guessed, &mut written);
            }
            let mut identity = IdBuilder::new("bound operation");
            identity
                .text(&step.kind)
                .json(&step.config)
                .json(&json!([part, op.identity()?]));
            let mut clashes = Vec::new();
            let op_place = OpPlace {
                node,
                step,
                identity: identity.finish(),
            };
            let appended = self.append_op(flow, op, &op_place, &mut columns, &mut clashes);
            if appended.is_err() || self.reads_split(flow) {
                set_written(flow, &mut columns);
            }
            guessed.extend(
                clashes
                    .iter()
                    .filter_map(|clash| clash.site().column.clone()),
            );
            outcome.faults.extend(clashes);
            appended?;
            self.add_split_columns(flow);
        }
        set_written(flow, &mut columns);
        if !assumed.is_empty() && keeps_columns {
            flow.schema = without_assumed(&flow.schema, &schema_before, &assumed, &written);
            guessed.retain(|name| flow.schema.field_with_name(name).is_ok());
        }
        outcome.types = guessed;
        Ok(())
    }

    /// Prepares the streams of a flow for `count` operations.
    fn expect_ops(&self, flow: &mut NodeFlow, count: usize) {
        // Rows of the future have a copy of each operation.
        let stride = 1 + usize::from(flow.future.is_some());
        let next = self.bound.ops.len();
        for stream in &mut flow.streams {
            stream.ops.expect((0..count).map(|op| next + op * stride));
        }
    }

    /// Binds the operations of one step. If the transform reads the schema of a node that is not bound yet, binds
    /// that node and repeats.
    fn bind_step(
        &mut self,
        transform: &dyn Transform,
        flow: &NodeFlow,
        read: &mut Vec<String>,
    ) -> BindResult<MendedBinding<Vec<PlanOp>>> {
        loop {
            let tables = ReadTables {
                pipeline: self.pipeline,
                flows: &self.bound.flows,
                own_schema: &flow.schema,
                read: RefCell::default(),
                missing: RefCell::default(),
            };
            let bind = |assumed: &AssumedColumns| {
                transform.bind(&BindScope {
                    series: &flow.series,
                    schema: &assumed.extend(OWN_TABLE, &flow.schema),
                    future: flow.future.as_deref(),
                    target: flow.target.as_ref(),
                    sql: self.sql,
                    other: &|name| tables.schema(name, assumed),
                    other_series: &|name| tables.series(name),
                })
            };
            let mended = bind_with_assumptions(|| tables.named(), bind);
            let ReadTables {
                read: schemas,
                missing,
                ..
            } = tables;
            match (&mended.bound, missing.into_inner()) {
                (None, Some(name)) => self.node(&name)?,
                _ => {
                    *read = schemas.into_inner().into_keys().collect();
                    return Ok(mended);
                }
            };
        }
    }

    /// Appends an operation to a flow and derives the columns behind it. Columns that exist already are replaced, and
    /// reported as `clashes`. Those of a map are added to `columns`, and become the flow's with [`set_written`].
    fn append_op(
        &mut self,
        flow: &mut NodeFlow,
        op: PlanOp,
        op_place: &OpPlace<'_>,
        columns: &mut Option<WrittenColumns>,
        clashes: &mut Vec<Fault>,
    ) -> BindResult<()> {
        let OpPlace {
            node,
            step,
            identity,
        } = op_place;
        let identity = *identity;
        let at = step.at.as_ref();
        let label = &format!("{}.{}", node.name, step.kind);
        let mut written = |reads: &[String], writes: &[Field]| {
            let mut columns = WrittenColumns::of(&flow.schema);
            clashes.extend(columns.write(reads, writes, label));
            columns.schema()
        };
        let schema = match &op {
            PlanOp::Map(map) => {
                let columns = columns.get_or_insert_with(|| WrittenColumns::of(&flow.schema));
                clashes.extend(columns.write(&map.reads, &map.writes, label));
                flow.schema.clone()
            }
            PlanOp::Expand(expand) => written(&expand.reads, &expand.writes),
            PlanOp::Window(window) => written(&window.reads, &window.writes),
            PlanOp::Series(series) => written(&series.reads, &series.writes),
            PlanOp::Join(join) => written(&[], &join.writes().cloned().collect::<Vec<_>>()),
            PlanOp::Keep(_) => flow.schema.clone(),
            PlanOp::Project(columns) => projected(&flow.schema, columns)?,
            PlanOp::Gather(gather) => gather.schema.clone(),
        };
        if let PlanOp::Gather(gather) = &op
            && let GatherBy::Future(future) = &gather.lower
        {
            let gather = gather.clone();
            let future = future.clone();
            return Ok(self.start_future(flow, gather, future, label, identity, at)?);
        }
        if let PlanOp::Gather(gather) = op {
            let series = flow.series.still_in(&gather.schema);
            *flow = self.gather(Some(&*flow), gather, label, identity, at)?;
            flow.series = series;
            return Ok(());
        }
        let analyzers = if let PlanOp::Map(map) = &op {
            map.asks.clone()
        } else {
            Vec::new()
        };
        let flow_before = flow.clone();
        flow.series.follow(&op);
        flow.follow_target(&op)?;
        let windowed = op.is_over_series();
        let joined = match &op {
            PlanOp::Join(join) => Some(self.node(&join.other)?),
            _ => None,
        };
        let id = self.push(flow, op, label.to_owned(), identity, at.cloned());
        let copy = flow_before
            .future
            .as_ref()
            .map(|future| (id + 1, future.streams()));
        if windowed {
            if let Some((copy, streams)) = &copy {
                let streams = streams.clone();
                self.bound.window_inputs.insert(
                    *copy,
                    NodeFlow {
                        streams,
                        future: None,
                        ..flow_before.clone()
                    },
                );
                self.bound
                    .join_inputs
                    .extend(joined.clone().map(|flow| (*copy, flow)));
            }
            self.bound.window_inputs.insert(id, flow_before.clone());
            self.bound.join_inputs.extend(joined.map(|flow| (id, flow)));
        }
        for analyzer in analyzers {
            let (streams, part) = match &analyzer.of {
                Some(other) => (self.node(other)?.streams, None),
                None if analyzer.of_future => {
                    let future = flow_before
                        .future
                        .as_ref()
                        .ok_or_else(|| Fault::internal("a rule about rows that are not there"))?;
                    future_streams(&self.bound, future, &analyzer.inputs)
                }
                None if analyzer.per_run => (
                    flow_before.streams.clone(),
                    self.part_column_of(&flow_before, analyzer.part.as_deref(), label)?,
                ),
                None => (
                    flow_before.streams.clone(),
                    self.part_column_of(&flow_before, node.fit_on.as_deref(), label)?,
                ),
            };
            self.bound.asks.push(BoundAnalyzer {
                op: id,
                ask: analyzer,
                streams,
                part,
                carried: None,
                held: None,
            });
            let analyzer = self.bound.asks.len() - 1;
            self.bound.ops[id].asks.push(analyzer);
            copy.iter()
                .for_each(|(copy, _)| self.bound.ops[*copy].asks.push(analyzer));
        }
        flow.schema = schema;
        Ok(())
    }
}

/// The operation of a step, for its label and its id.
struct OpPlace<'a> {
    node: &'a PipelineNode,
    step: &'a Step,
    identity: ContentId,
}

/// Columns behind consecutive operations. A step may have an operation for each of thousands of columns, of which each
/// would copy the schema.
struct WrittenColumns {
    fields: Vec<FieldRef>,
    positions: HashMap<String, usize>,
}

impl WrittenColumns {
    fn of(schema: &Schema) -> WrittenColumns {
        let fields = schema.fields().to_vec();
        let mut positions = HashMap::with_capacity(fields.len());
        for (position, field) in fields.iter().enumerate() {
            positions.entry(field.name().clone()).or_insert(position);
        }
        WrittenColumns { fields, positions }
    }

    /// Writes the outputs of an operation. Returns a fault for each that exists already and is not its input.
    fn write(&mut self, reads: &[String], writes: &[Field], label: &str) -> Vec<Fault> {
        let mut clashes = Vec::new();
        for field in writes.iter().filter(|field| !is_hidden(field.name())) {
            let written = Arc::new(without_lasting_notes(field));
            let Some(position) = self.positions.get(field.name()) else {
                let position = self.fields.len();
                self.positions.insert(field.name().clone(), position);
                self.fields.push(written);
                continue;
            };
            if !reads.contains(field.name()) {
                let message = format!(
                    "`{label}` writes `{}`, which exists already and is not its input",
                    field.name()
                );
                let fault = Fault::new(codes::COLUMN_CLASH, message).column(field.name());
                let hint = "give the new column another name, or drop the old one first";
                clashes.push(fault.hint(hint));
            }
            self.fields[*position] = written;
        }
        clashes
    }

    fn schema(self) -> SchemaRef {
        Arc::new(Schema::new(self.fields))
    }
}

/// Gives a flow the columns that maps have written.
fn set_written(flow: &mut NodeFlow, columns: &mut Option<WrittenColumns>) {
    if let Some(columns) = columns.take() {
        flow.schema = columns.schema();
    }
}

/// Adds to `guessed` the columns that an operation makes of guessed ones, and to `written` those that it makes new.
fn spread_guesses(
    op: &PlanOp,
    schema: &Schema,
    guessed: &mut BTreeSet<String>,
    written: &mut BTreeSet<String>,
) {
    let names = |fields: &[Field]| {
        fields
            .iter()
            .map(|field| field.name().clone())
            .collect::<Vec<_>>()
    };
    let (reads, writes): (Vec<String>, Vec<String>) = match op {
        PlanOp::Map(map) => (map.reads.clone(), names(&map.writes)),
        PlanOp::Expand(expand) => (expand.reads.clone(), names(&expand.writes)),
        PlanOp::Window(window) => (window.columns().cloned().collect(), names(&window.writes)),
        PlanOp::Series(series) => (series.columns().cloned().collect(), names(&series.writes)),
        PlanOp::Join(join) => {
            let reads = join.columns_here().chain(join.columns_there()).cloned();
            (
                reads.collect(),
                join.writes().map(|field| field.name().clone()).collect(),
            )
        }
        PlanOp::Project(columns) => {
            let new_columns = columns
                .iter()
                .filter(|(from, _)| guessed.contains(from))
                .map(|(_, to)| to.clone());
            let new_columns: Vec<String> = new_columns.collect();
            guessed.extend(new_columns);
            return;
        }
        PlanOp::Gather(gather) => {
            let new = gather.schema.fields().iter().map(|field| field.name());
            guessed.extend(
                new.filter(|name| schema.field_with_name(name).is_err())
                    .cloned(),
            );
            return;
        }
        PlanOp::Keep(_) => return,
    };
    if reads.iter().any(|name| guessed.contains(name)) {
        guessed.extend(writes.iter().cloned());
    }
    // A column that is replaced is there afterwards only if it was there before.
    written.extend(writes.into_iter().filter(|name| !reads.contains(name)));
}

/// The columns behind a step, without those that were only assumed for it.
fn without_assumed(
    written_schema: &Schema,
    schema_before: &Schema,
    assumed: &AssumedColumns,
    written: &BTreeSet<String>,
) -> SchemaRef {
    let is_assumed =
        |name: &String| !written.contains(name) && assumed.names().any(|assumed| assumed == name);
    let is_there = |name: &String| !is_assumed(name) || schema_before.field_with_name(name).is_ok();
    let fields = written_schema
        .fields()
        .iter()
        .filter(|field| is_there(field.name()))
        .cloned();
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn projected(schema: &Schema, columns: &[(String, String)]) -> Result<SchemaRef> {
    let index = NameIndex::of_fields(schema.fields());
    let mut fields: Vec<Field> = Vec::new();
    let mut names: HashSet<&str> = HashSet::new();
    for (from, to) in columns {
        let position = index
            .get(from)
            .ok_or_else(|| unknown_column(from, schema))?;
        let field = schema.field(position);
        if !names.insert(to) {
            return Err(Fault::new(
                codes::COLUMN_CLASH,
                format!("two columns would be called `{to}`"),
            )
            .column(to)
            .hint("give one of them another name, or drop it first"));
        }
        fields.push(field.clone().with_name(to));
    }
    Ok(Arc::new(Schema::new(fields)))
}
