//! Rows of several inputs: unions, gathers and queries.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{Field, Schema};
use forebay_model::{
    ContentId, Fault, IdBuilder, PipelineNode, Result, SpecLocation, UNION_STREAMS_MAX, codes,
    common_zoned_type, type_words,
};

use super::PipelineBinder;
use super::assumed::{MendedBinding, NamedTable, bind_with_assumptions};
use crate::bind_faults::{BindResult, BindStop, ColumnDoubt, field_location};
use crate::column_selector::unknown_column;
use crate::label_horizon::LabelHorizon;
use crate::{
    BaseDataset, BoundOp, FutureFlow, GatherBy, GatherOp, MapOp, MovedTime, NodeFlow, PlanOp,
    TimeShift,
};

impl PipelineBinder<'_> {
    pub(super) fn union(
        &mut self,
        names: &[String],
        doubt: &mut ColumnDoubt,
    ) -> BindResult<NodeFlow> {
        let mut flows: Vec<NodeFlow> = Vec::new();
        let mut streams = 0;
        for name in names {
            let mut flow = self.node(name)?;
            streams += flow.streams.len();
            if streams > UNION_STREAMS_MAX {
                return Err(large_union(streams).into());
            }
            if let Some(first) = flows.first() {
                flow = self.with_zone_names(flow, first)?;
            }
            flows.push(flow);
        }
        names
            .iter()
            .filter_map(|name| self.doubts.get(name))
            .for_each(|other| doubt.merge(other));
        let future = FutureFlow::union(&flows)?;
        let mut flows = flows.into_iter();
        let Some(mut union) = flows.next() else {
            return Err(Fault::new(codes::BAD_VALUE, "a union needs at least one input").into());
        };
        for (flow, name) in flows.zip(&names[1..]) {
            let shape = |schema: &Schema| {
                schema
                    .fields()
                    .iter()
                    .map(|f| (f.name().clone(), f.data_type().clone()))
                    .collect::<Vec<_>>()
            };
            if shape(&flow.schema) != shape(&union.schema) {
                if !doubt.is_empty() {
                    return Err(BindStop::Reported);
                }
                let message = format!("`{}` and `{name}` have different columns", names[0]);
                let fault = Fault::new(codes::COLUMN_TYPE, message).fragment(name, 0);
                return Err(fault.hint(union_hint(&union.schema, &flow.schema)).into());
            }
            union.streams.extend(flow.streams);
            if union.target != flow.target {
                let message = format!(
                    "`{}` and `{name}` transform their targets differently",
                    names[0]
                );
                let fault = Fault::new(codes::UNSUPPORTED, message).fragment(name, 0);
                return Err(fault.hint("move `target` behind the union").into());
            }
            union.parts &= flow.parts;
            union.series = union.series.of_both(&flow.series);
            union.windows.unite(flow.windows);
        }
        if names.len() > 1 {
            // Windows behind the union see the rows of all inputs, and those before it the rows of one.
            union.windows.end();
        }
        union.future = future.map(Arc::new);
        Ok(union)
    }

    /// The flow of an input of a union whose zones have the names that they have in the first input: `UTC` and `+00:00`
    /// are one, as `US/Eastern` and `America/New_York` are.
    fn with_zone_names(&mut self, mut flow: NodeFlow, first: &NodeFlow) -> Result<NodeFlow> {
        for field in first.schema.fields() {
            let target = field.data_type();
            let Ok(own_field) = flow.schema.field_with_name(field.name()) else {
                continue;
            };
            let own_type = own_field.data_type();
            if own_type == target || common_zoned_type(own_type, target).is_none() {
                continue;
            }
            let name = field.name().clone();
            let renamed = own_field.clone().with_data_type(target.clone());
            let mut identity = IdBuilder::new("zone name");
            identity.text(&name);
            identity.text(&target.to_string());
            let op = renamed_zone(&name, renamed.clone());
            flow.follow_target(&op)?;
            let fields = flow.schema.fields().iter().map(|other| {
                if *other.name() == name {
                    renamed.clone()
                } else {
                    other.as_ref().clone()
                }
            });
            let fields: Vec<Field> = fields.collect();
            flow.schema = Arc::new(Schema::new(fields));
            self.push(&mut flow, op, "union".to_owned(), identity.finish(), None);
        }
        Ok(flow)
    }

    pub(super) fn gather(
        &mut self,
        flow_of_step: Option<&NodeFlow>,
        gather: GatherOp,
        label: &str,
        identity: ContentId,
        at: Option<&SpecLocation>,
    ) -> BindResult<NodeFlow> {
        let mut inputs = Vec::new();
        if let (Some(flow), false) = (flow_of_step, gather.alone) {
            let mut flow = flow.clone();
            if let GatherBy::GroupBy(op) = &gather.lower {
                let read = flow
                    .schema
                    .project(&op.read_columns(&flow.schema))
                    .map_err(Fault::from)?;
                flow.schema = Arc::new(read);
            }
            inputs.push(("this".to_owned(), flow));
        }
        for name in &gather.others {
            let mut flow = self.node(name)?;
            if let GatherBy::Join { join, .. } = &gather.lower {
                let read = |name: &String| join.columns_there().any(|column| column == name);
                let fields = flow
                    .schema
                    .fields()
                    .iter()
                    .filter(|field| read(field.name()));
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

    pub(super) fn query(
        &mut self,
        node: &PipelineNode,
        query: &str,
        doubt: &mut ColumnDoubt,
    ) -> BindResult<NodeFlow> {
        let at = field_location(node.at.as_ref(), "sql");
        let locate = |fault: Fault| fault.at(at.as_ref());
        let mut tables = BTreeMap::new();
        for table in self.sql.tables(query).map_err(locate)? {
            let flow = self.node(&table).map_err(|stop| match stop {
                BindStop::Fault(fault) => locate(fault.fragment(&table, 0)).into(),
                BindStop::Reported => stop,
            })?;
            self.doubts
                .get(&table)
                .into_iter()
                .for_each(|other| doubt.merge(other));
            tables.insert(table, flow.schema);
        }
        let named = || {
            let tables = tables.iter();
            tables
                .map(|(name, schema)| NamedTable {
                    name: name.clone(),
                    schema: schema.clone(),
                })
                .collect()
        };
        let MendedBinding { bound, faults, .. } = bind_with_assumptions(named, |assumed| {
            let tables = tables
                .iter()
                .map(|(name, schema)| (name.clone(), assumed.extend(name, schema)));
            self.sql.query(query, &tables.collect())
        });
        let wrong = !faults.is_empty();
        self.faults.extend(
            faults
                .into_iter()
                .filter(|fault| !doubt.covers(fault, None))
                .map(locate),
        );
        let gather = with_data_age(bound.ok_or(BindStop::Reported)?, node)?;
        if wrong {
            doubt.add_types(
                gather
                    .schema
                    .fields()
                    .iter()
                    .map(|field| field.name().clone()),
            );
        }
        let mut identity = IdBuilder::new("query 2");
        identity.text(query);
        self.gather(
            None,
            gather,
            &format!("{}.sql", node.name),
            identity.finish(),
            node.at.as_ref(),
        )
    }
}

/// Gives the zone of a column of times another name.
fn renamed_zone(name: &str, renamed: Field) -> PlanOp {
    let target = renamed.data_type().clone();
    let map = MapOp::new([name], [renamed], move |inputs, _| {
        let renamed = inputs.iter().map(|times| Ok(cast(times, &target)?));
        renamed.collect()
    });
    PlanOp::Map(map.moving(Some(MovedTime {
        from: name.to_owned(),
        shift: TimeShift::NONE,
    })))
}

/// The gather of a query whose step declares how old the data of columns is.
fn with_data_age(mut gather: GatherOp, node: &PipelineNode) -> Result<GatherOp> {
    let Some(query) = &mut gather.query else {
        return Ok(gather);
    };
    let query = Arc::make_mut(query);
    for (column, length) in &node.data_age {
        if gather.schema.field_with_name(column).is_err() {
            return Err(unknown_column(column, &gather.schema));
        }
        let age = LabelHorizon::parse(length)?.length()?;
        query.data_age.insert(column.clone(), age);
    }
    Ok(gather)
}

fn large_union(streams: usize) -> Fault {
    let message = format!(
        "the union reads {streams} inputs once the inputs of unions stand in their place; at \
         most {UNION_STREAMS_MAX} are allowed"
    );
    Fault::new(codes::LIMIT, message).hint(
        "a union that reads a union twice doubles it: write its rows to a sink, and read them \
         from there",
    )
}

/// The first column in which two inputs of a union differ.
fn union_hint(first: &Schema, other: &Schema) -> String {
    let missing = first
        .fields()
        .iter()
        .find(|field| other.field_with_name(field.name()).is_err());
    let extra = other
        .fields()
        .iter()
        .find(|field| first.field_with_name(field.name()).is_err());
    let typed = first.fields().iter().find_map(|field| {
        let other_field = other.field_with_name(field.name()).ok()?;
        (other_field.data_type() != field.data_type()).then(|| (field, other_field.data_type()))
    });
    match (missing, extra, typed) {
        (Some(field), _, _) => format!(
            "`{}` is in the first one only: `select` the same columns",
            field.name()
        ),
        (_, Some(field), _) => format!(
            "`{}` is in the second one only: `select` the same columns",
            field.name()
        ),
        (_, _, Some((field, other))) => {
            let name = field.name();
            let data_type = type_words(field.data_type());
            let other = type_words(other);
            format!(
                "`{name}` is {data_type} in the first one and {other} in the second: `cast` one \
                 of them"
            )
        }
        _ => "`select` the columns in the same order".to_owned(),
    }
}
