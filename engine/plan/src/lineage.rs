//! Column lineage: for each column of a flow, the source columns that its values depend on, directly or through
//! statistics.

use std::collections::{BTreeMap, BTreeSet};

use forebay_window::WindowFunction;

use crate::slice::{ColumnKey, StreamIndexes, column_key};
use crate::{BaseDataset, BoundPipeline, NodeFlow, OpId, OpStream, PlanOp};

/// A column of a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColumnOrigin {
    /// Name of the source.
    pub source: String,
    /// Name of the column.
    pub column: String,
}

/// The source columns that columns of flows depend on. Columns that only select rows do not count. A column that a query
/// computes under a new name depends on all columns that the query reads.
pub struct ColumnLineage<'a> {
    bound: &'a BoundPipeline,
    indexes: StreamIndexes<'a>,
    seen: BTreeMap<ColumnKey, BTreeSet<ColumnOrigin>>,
}

impl<'a> ColumnLineage<'a> {
    /// The lineage of a pipeline.
    pub fn new(bound: &'a BoundPipeline) -> ColumnLineage<'a> {
        ColumnLineage {
            bound,
            indexes: StreamIndexes::default(),
            seen: BTreeMap::new(),
        }
    }

    /// The source columns that a column of a flow depends on.
    pub fn origins(&mut self, flow: &NodeFlow, column: &str) -> BTreeSet<ColumnOrigin> {
        let streams = flow.streams.iter();
        streams
            .flat_map(|stream| self.column(stream, column))
            .collect()
    }

    fn all<'n>(
        &mut self,
        stream: &OpStream,
        names: impl IntoIterator<Item = &'n String>,
    ) -> BTreeSet<ColumnOrigin> {
        let names = names.into_iter();
        names.flat_map(|name| self.column(stream, name)).collect()
    }

    /// Lineage of a column at the end of a stream.
    fn column(&mut self, stream: &OpStream, name: &str) -> BTreeSet<ColumnOrigin> {
        // Most operations of a wide table do not affect the column.
        let index = self.indexes.of(self.bound, stream);
        let op_count = index.changes(stream.ops.len(), name);
        let key = column_key(stream, op_count, name);
        if let Some(cached) = self.seen.get(&key) {
            return cached.clone();
        }
        // The entry is empty while it is being computed.
        self.seen.insert(key.clone(), BTreeSet::new());
        let origins = match op_count.checked_sub(1) {
            None => self.of_base(stream.base, name),
            Some(last) => self.written(&stream.first(last), stream.ops[last], name),
        };
        self.seen.insert(key, origins.clone());
        origins
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
        if let Some(latest) = bound.ops[*op]
            .asks
            .first()
            .map(|analyzer| &bound.asks[*analyzer])
            && latest.ask.inputs.iter().any(|input| input == name)
        {
            let streams = latest.streams.iter();
            return streams
                .flat_map(|stream| self.column(stream, name))
                .collect();
        }
        if inputs().any(|flow| with_it(&flow)) {
            return inputs()
                .filter(with_it)
                .flat_map(|flow| self.origins(flow, name))
                .collect();
        }
        let mut origins = BTreeSet::new();
        for flow in inputs() {
            for field in flow.schema.fields() {
                origins.extend(self.origins(flow, field.name()));
            }
        }
        origins
    }

    fn written(
        &mut self,
        input_stream: &OpStream,
        last: OpId,
        name: &str,
    ) -> BTreeSet<ColumnOrigin> {
        let bound = self.bound;
        match &bound.ops[last].op {
            PlanOp::Map(map) if map.is_written(name) => {
                let mut origins = self.all(input_stream, &map.reads);
                for analyzer in &bound.ops[last].asks {
                    let bound_analyzer = &bound.asks[*analyzer];
                    // A join names its outputs after the columns of the other table.
                    let is_named = |input: &&String| {
                        bound_analyzer.ask.of.is_some() && name.contains(input.as_str())
                    };
                    let mut inputs: Vec<&String> =
                        bound_analyzer.ask.inputs.iter().filter(is_named).collect();
                    if inputs.is_empty() {
                        inputs = bound_analyzer.ask.inputs.iter().collect();
                    }
                    for stream in &bound_analyzer.streams {
                        origins.extend(self.all(stream, inputs.iter().copied()));
                    }
                }
                origins
            }
            PlanOp::Expand(expand) if expand.is_written(name) => {
                self.all(input_stream, &expand.reads)
            }
            PlanOp::Window(window) => {
                match window.writes.iter().position(|field| field.name() == name) {
                    None => self.column(input_stream, name),
                    Some(output) => {
                        let function = &window.plan.functions[output];
                        let parent = match function.compute {
                            WindowFunction::SeasonalIndex { parent, .. } => parent,
                            _ => None,
                        };
                        let reads = [Some(function.input), parent].into_iter().flatten();
                        self.all(
                            input_stream,
                            reads.filter_map(|read| window.reads.get(read)),
                        )
                    }
                }
            }
            PlanOp::Join(join) => match join.columns.iter().find(|(_, field)| field.name() == name)
            {
                None if join.is_written(name) => self.all(input_stream, join.columns_here()),
                None => self.column(input_stream, name),
                Some((other_column, _)) => {
                    let flow = bound.join_inputs.get(&last);
                    flow.map(|flow| self.origins(flow, other_column))
                        .unwrap_or_default()
                }
            },
            PlanOp::Project(columns) => {
                let from = columns
                    .iter()
                    .find(|(_, to)| to == name)
                    .map_or(name, |(from, _)| from);
                self.column(input_stream, from)
            }
            PlanOp::Map(_) | PlanOp::Expand(_) | PlanOp::Keep(_) | PlanOp::Gather(_) => {
                self.column(input_stream, name)
            }
        }
    }
}
