//! Column lineage: for each column of a flow, the source columns that its values depend on, directly or through
//! statistics.

use std::collections::{BTreeMap, BTreeSet};

use forebay_window::WindowFunction;

use crate::{BaseDataset, BoundPipeline, NodeFlow, OpId, OpStream, PlanOp};

/// A column of a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColumnOrigin {
    /// Name of the source.
    pub source: String,
    /// Name of the column.
    pub column: String,
}

/// The source columns that a column of a flow depends on. Columns that only select rows do not count. A column that
/// a query computes under a new name depends on all columns that the query reads.
pub fn origins(bound: &BoundPipeline, flow: &NodeFlow, column: &str) -> BTreeSet<ColumnOrigin> {
    let mut walk = LineageWalk {
        bound,
        seen: BTreeMap::new(),
    };
    walk.flow(flow, column)
}

struct LineageWalk<'a> {
    bound: &'a BoundPipeline,
    /// By base and operations of the stream, and column. An entry is empty while it is being computed.
    seen: BTreeMap<(usize, Vec<OpId>, String), BTreeSet<ColumnOrigin>>,
}

impl LineageWalk<'_> {
    fn flow(&mut self, flow: &NodeFlow, column: &str) -> BTreeSet<ColumnOrigin> {
        flow.streams
            .iter()
            .flat_map(|stream| self.column(stream.base, &stream.ops, column))
            .collect()
    }

    fn all<'n>(
        &mut self,
        base: usize,
        ops: &[OpId],
        names: impl IntoIterator<Item = &'n String>,
    ) -> BTreeSet<ColumnOrigin> {
        names
            .into_iter()
            .flat_map(|name| self.column(base, ops, name))
            .collect()
    }

    /// Lineage of a column after some operations.
    fn column(&mut self, base: usize, ops: &[OpId], name: &str) -> BTreeSet<ColumnOrigin> {
        // Most operations of a wide table do not affect the column.
        let ops = self.bound.through_last_change(ops, name);
        let key = (base, ops.to_vec(), name.to_owned());
        if let Some(found) = self.seen.get(&key) {
            return found.clone();
        }
        self.seen.insert(key.clone(), BTreeSet::new());
        let found = match ops.split_last() {
            None => self.of_base(base, name),
            Some((last, before)) => self.written(base, *last, before, name),
        };
        self.seen.insert(key, found.clone());
        found
    }

    fn of_base(&mut self, base: usize, name: &str) -> BTreeSet<ColumnOrigin> {
        let bound = self.bound;
        let op = match &bound.bases[base] {
            BaseDataset::Source(source) => {
                return BTreeSet::from([ColumnOrigin {
                    source: source.clone(),
                    column: name.to_owned(),
                }]);
            }
            BaseDataset::Gathered(op) => op,
        };
        let inputs = || {
            bound
                .gather_inputs
                .get(op)
                .into_iter()
                .flatten()
                .map(|(_, flow)| flow)
        };
        let with_it = |flow: &&NodeFlow| flow.schema.field_with_name(name).is_ok();
        if let Some(latest) = bound.ops[*op].asks.first().map(|ask| &bound.asks[*ask])
            && latest.ask.inputs.iter().any(|input| input == name)
        {
            let streams = latest.streams.iter();
            return streams
                .flat_map(|stream| self.column(stream.base, &stream.ops, name))
                .collect();
        }
        if inputs().any(|flow| with_it(&flow)) {
            return inputs()
                .filter(with_it)
                .flat_map(|flow| self.flow(flow, name))
                .collect();
        }
        let mut found = BTreeSet::new();
        for flow in inputs() {
            for field in flow.schema.fields() {
                found.extend(self.flow(flow, field.name()));
            }
        }
        found
    }

    fn written(
        &mut self,
        base: usize,
        last: OpId,
        before: &[OpId],
        name: &str,
    ) -> BTreeSet<ColumnOrigin> {
        let bound = self.bound;
        match &bound.ops[last].op {
            PlanOp::Map(map) if map.writes.iter().any(|field| field.name() == name) => {
                let mut found = self.all(base, before, &map.reads);
                for ask in &bound.ops[last].asks {
                    let ask = &bound.asks[*ask];
                    // A join names its outputs after the columns of the other table.
                    let is_named =
                        |input: &&String| ask.ask.of.is_some() && name.contains(input.as_str());
                    let mut inputs: Vec<&String> = ask.ask.inputs.iter().filter(is_named).collect();
                    if inputs.is_empty() {
                        inputs = ask.ask.inputs.iter().collect();
                    }
                    for OpStream { base, ops } in &ask.streams {
                        found.extend(self.all(*base, ops, inputs.iter().copied()));
                    }
                }
                found
            }
            PlanOp::Expand(expand) if expand.writes.iter().any(|field| field.name() == name) => {
                self.all(base, before, &expand.reads)
            }
            PlanOp::Window(window) => {
                match window.writes.iter().position(|field| field.name() == name) {
                    None => self.column(base, before, name),
                    Some(output) => {
                        let function = &window.plan.functions[output];
                        let parent = match function.compute {
                            WindowFunction::SeasonalIndex { parent, .. } => parent,
                            _ => None,
                        };
                        let reads = [Some(function.input), parent].into_iter().flatten();
                        self.all(
                            base,
                            before,
                            reads.filter_map(|read| window.reads.get(read)),
                        )
                    }
                }
            }
            PlanOp::Join(join) => match join.columns.iter().find(|(_, field)| field.name() == name)
            {
                None if join.is_written(name) => self.all(base, before, join.columns_here()),
                None => self.column(base, before, name),
                Some((there, _)) => {
                    let flow = bound.join_inputs.get(&last);
                    flow.map(|flow| self.flow(flow, there)).unwrap_or_default()
                }
            },
            PlanOp::Project(columns) => {
                let from = columns
                    .iter()
                    .find(|(_, to)| to == name)
                    .map_or(name, |(from, _)| from);
                self.column(base, before, from)
            }
            PlanOp::Map(_) | PlanOp::Expand(_) | PlanOp::Keep(_) | PlanOp::Gather(_) => {
                self.column(base, before, name)
            }
        }
    }
}
