//! Steps: each becomes operations, appended to the flow of its node.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_model::{ContentId, Fault, IdBuilder, PipelineNode, Result, Step, codes};
use serde_json::json;

use super::assumed::{AssumedColumns, MendedBinding, NamedTable, OWN_TABLE, bind_with_assumptions};
use super::{PipelineBinder, unknown_node};
use crate::bind_faults::{BindResult, BindStop};
use crate::column_selector::unknown_column;
use crate::future::is_hidden;
use crate::{BindScope, BoundAnalyzer, GatherBy, NodeFlow, PlanOp, Transform, future_streams};

/// What came of binding a step.
#[derive(Default)]
pub(super) struct StepOutcome {
    /// Its faults.
    pub faults: Vec<Fault>,
    /// Whether its operations are missing, or some of them.
    pub failed: bool,
    /// Other steps that it reads.
    pub read: Vec<String>,
    /// Columns whose types are guesses.
    pub types: BTreeSet<String>,
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
        let before = flow.schema.clone();
        if !assumed.is_empty() {
            flow.schema = assumed.extend(OWN_TABLE, &before);
        }
        let mut guessed: BTreeSet<String> =
            guessed.iter().chain(assumed.names()).cloned().collect();
        let mut written: BTreeSet<String> = BTreeSet::new();
        let mut keeps_columns = true;
        for (part, op) in ops.into_iter().enumerate() {
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
            let place = OpPlace {
                node,
                step,
                identity: identity.finish(),
            };
            let appended = self.append_op(flow, op, &place, &mut clashes);
            guessed.extend(
                clashes
                    .iter()
                    .filter_map(|clash| clash.site().column.clone()),
            );
            outcome.faults.extend(clashes);
            appended?;
            self.add_split_columns(flow);
        }
        if !assumed.is_empty() && keeps_columns {
            flow.schema = without_assumed(&flow.schema, &before, &assumed, &written);
            guessed.retain(|name| flow.schema.field_with_name(name).is_ok());
        }
        outcome.types = guessed;
        Ok(())
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
            let (missing, named) = (
                RefCell::new(None),
                RefCell::new(BTreeMap::<String, SchemaRef>::new()),
            );
            let flows = &self.bound.flows;
            let tables = || {
                let own = NamedTable {
                    name: OWN_TABLE.to_owned(),
                    schema: flow.schema.clone(),
                };
                let others = named
                    .borrow()
                    .clone()
                    .into_iter()
                    .map(|(name, schema)| NamedTable { name, schema });
                std::iter::once(own).chain(others).collect()
            };
            let bind = |assumed: &AssumedColumns| {
                let other = |name: &str| {
                    let Some(flow) = flows.get(name) else {
                        missing.replace(Some(name.to_owned()));
                        return Err(unknown_node(name, self.pipeline));
                    };
                    named
                        .borrow_mut()
                        .insert(name.to_owned(), flow.schema.clone());
                    Ok(assumed.extend(name, &flow.schema))
                };
                let other_series = |name: &str| {
                    let flow = flows.get(name);
                    flow.map(|flow| flow.series.clone()).unwrap_or_default()
                };
                transform.bind(&BindScope {
                    series: &flow.series,
                    schema: &assumed.extend(OWN_TABLE, &flow.schema),
                    future: flow.future.as_deref(),
                    sql: self.sql,
                    other: &other,
                    other_series: &other_series,
                })
            };
            let mended = bind_with_assumptions(tables, bind);
            match (&mended.bound, missing.into_inner()) {
                (None, Some(name)) => self.node(&name)?,
                _ => {
                    *read = named.into_inner().into_keys().collect();
                    return Ok(mended);
                }
            };
        }
    }

    /// Appends an operation to a flow and derives the columns behind it. Columns that exist already are replaced, and
    /// reported as `clashes`.
    fn append_op(
        &mut self,
        flow: &mut NodeFlow,
        op: PlanOp,
        place: &OpPlace<'_>,
        clashes: &mut Vec<Fault>,
    ) -> BindResult<()> {
        let OpPlace {
            node,
            step,
            identity,
        } = place;
        let (identity, at) = (*identity, step.at.as_ref());
        let label = &format!("{}.{}", node.name, step.kind);
        let mut written = |reads: &[String], writes: &[Field]| {
            let (schema, found) = with_written(&flow.schema, reads, writes, label);
            clashes.extend(found);
            schema
        };
        let schema = match &op {
            PlanOp::Map(map) => written(&map.reads, &map.writes),
            PlanOp::Expand(expand) => written(&expand.reads, &expand.writes),
            PlanOp::Window(window) => written(&window.reads, &window.writes),
            PlanOp::Join(join) => written(&[], &join.writes().cloned().collect::<Vec<_>>()),
            PlanOp::Keep(_) => flow.schema.clone(),
            PlanOp::Project(columns) => projected(&flow.schema, columns)?,
            PlanOp::Gather(gather) => gather.schema.clone(),
        };
        if let PlanOp::Gather(gather) = &op
            && let GatherBy::Future(future) = &gather.lower
        {
            let (gather, future) = (gather.clone(), future.clone());
            return Ok(self.start_future(flow, gather, future, label, identity, at)?);
        }
        if let PlanOp::Gather(gather) = op {
            let series = flow.series.still_in(&gather.schema);
            *flow = self.gather(Some(&*flow), gather, label, identity, at)?;
            flow.series = series;
            return Ok(());
        }
        let asks = if let PlanOp::Map(map) = &op {
            map.asks.clone()
        } else {
            Vec::new()
        };
        let before = flow.clone();
        flow.series.follow(&op);
        let windowed = op.is_over_series();
        let joined = match &op {
            PlanOp::Join(join) => Some(self.node(&join.other)?),
            _ => None,
        };
        let id = self.push(flow, op, label.to_owned(), identity, at.cloned());
        let copy = before
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
                        ..before.clone()
                    },
                );
                self.bound
                    .join_inputs
                    .extend(joined.clone().map(|flow| (*copy, flow)));
            }
            self.bound.window_inputs.insert(id, before.clone());
            self.bound.join_inputs.extend(joined.map(|flow| (id, flow)));
        }
        for ask in asks {
            let (streams, part) = match &ask.of {
                Some(other) => (self.node(other)?.streams, None),
                None if ask.of_future => {
                    let future = before
                        .future
                        .as_ref()
                        .ok_or_else(|| Fault::internal("a rule about rows that are not there"))?;
                    future_streams(&self.bound, future, &ask.inputs)
                }
                None if ask.per_run => (
                    before.streams.clone(),
                    self.part_column_of(&before, ask.part.as_deref(), label)?,
                ),
                None => (
                    before.streams.clone(),
                    self.part_column_of(&before, node.fit_on.as_deref(), label)?,
                ),
            };
            self.bound.asks.push(BoundAnalyzer {
                op: id,
                ask,
                streams,
                part,
                carried: None,
                held: None,
            });
            let ask = self.bound.asks.len() - 1;
            self.bound.ops[id].asks.push(ask);
            copy.iter()
                .for_each(|(copy, _)| self.bound.ops[*copy].asks.push(ask));
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

/// The columns behind an operation, and a fault for each that exists already and is not its input.
fn with_written(
    schema: &Schema,
    reads: &[String],
    writes: &[Field],
    label: &str,
) -> (SchemaRef, Vec<Fault>) {
    let mut fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone())
        .collect();
    let mut clashes = Vec::new();
    for field in writes.iter().filter(|field| !is_hidden(field.name())) {
        let Some(known) = fields.iter_mut().find(|known| known.name() == field.name()) else {
            fields.push(field.clone());
            continue;
        };
        if !reads.contains(field.name()) {
            let message = format!(
                "`{label}` writes `{}`, which exists already and is not its input",
                field.name()
            );
            let fault = Fault::new(codes::COLUMN_CLASH, message).column(field.name());
            clashes.push(fault.hint("give the new column another name, or drop the old one first"));
        }
        *known = field.clone();
    }
    (Arc::new(Schema::new(fields)), clashes)
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
        PlanOp::Join(join) => {
            let reads = join.columns_here().chain(join.columns_there()).cloned();
            (
                reads.collect(),
                join.writes().map(|field| field.name().clone()).collect(),
            )
        }
        PlanOp::Project(columns) => {
            let made = columns
                .iter()
                .filter(|(from, _)| guessed.contains(from))
                .map(|(_, to)| to.clone());
            let made: Vec<String> = made.collect();
            guessed.extend(made);
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
    after: &Schema,
    before: &Schema,
    assumed: &AssumedColumns,
    written: &BTreeSet<String>,
) -> SchemaRef {
    let is_assumed =
        |name: &String| !written.contains(name) && assumed.names().any(|assumed| assumed == name);
    let is_there = |name: &String| !is_assumed(name) || before.field_with_name(name).is_ok();
    let fields = after
        .fields()
        .iter()
        .filter(|field| is_there(field.name()))
        .cloned();
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn projected(schema: &Schema, columns: &[(String, String)]) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = Vec::new();
    for (from, to) in columns {
        let field = schema
            .field_with_name(from)
            .map_err(|_| unknown_column(from, schema))?;
        if fields.iter().any(|known| known.name() == to) {
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
