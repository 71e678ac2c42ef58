//! Steps: each becomes operations, appended to the flow of its node.

use std::cell::RefCell;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_model::{ContentId, Fault, IdBuilder, PipelineNode, Result, SpecLocation, Step, codes};
use serde_json::json;

use super::{PipelineBinder, unknown_node};
use crate::bind_faults::BindResult;
use crate::column_selector::unknown_column;
use crate::future::is_hidden;
use crate::{BindScope, BoundAnalyzer, GatherBy, NodeFlow, PlanOp, Transform};

impl PipelineBinder<'_> {
    /// Binds one step and appends its operations. `read` gets the names of other steps that it reads.
    pub(super) fn append_step(
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

    /// Appends an operation to a flow and derives the columns behind it.
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
            return Ok(self.start_future(flow, gather, future, label, identity, at)?);
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
                None if ask.per_run => {
                    (before.streams.clone(), self.part_column_of(&before, ask.part.as_deref(), label)?)
                }
                None => (before.streams.clone(), self.part_column_of(&before, node.fit_on.as_deref(), label)?),
            };
            self.bound.asks.push(BoundAnalyzer { op: id, ask, streams, part, carried: None, held: None });
            let ask = self.bound.asks.len() - 1;
            self.bound.ops[id].asks.push(ask);
            copy.iter().for_each(|(copy, _)| self.bound.ops[*copy].asks.push(ask));
        }
        flow.schema = schema;
        Ok(())
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
        let field = schema.field_with_name(from).map_err(|_| unknown_column(from, schema))?;
        if fields.iter().any(|known| known.name() == to) {
            return Err(Fault::new(codes::COLUMN_CLASH, format!("two columns would be called `{to}`"))
                .column(to)
                .hint("give one of them another name, or drop it first"));
        }
        fields.push(field.clone().with_name(to));
    }
    Ok(Arc::new(Schema::new(fields)))
}
