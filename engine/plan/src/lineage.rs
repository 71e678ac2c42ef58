//! Column lineage: for each column of a flow, the source columns that its values depend on, directly or through
//! statistics.

use std::collections::{BTreeMap, BTreeSet};

use forebay_window::WindowFunction;

use crate::slice::{ColumnKey, StreamIndexes, column_key};
use crate::{
    AnalyzerRequest, BaseDataset, BoundPipeline, JoinOp, MapOp, NodeFlow, OpId, OpStream, PlanOp,
    WindowOp,
};

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
        self.of_streams(&flow.streams, column)
    }

    /// The source columns that hold a label: the only one that it is made from, or those of its name.
    pub fn label_origins(&mut self, label: &str) -> BTreeSet<ColumnOrigin> {
        let bound = self.bound;
        let mut holding = BTreeSet::new();
        for flow in bound.flows.values() {
            if flow.schema.field_with_name(label).is_err() {
                continue;
            }
            let origins = self.origins(flow, label);
            let is_only = origins.len() == 1;
            for origin in origins {
                if is_only || origin.column == label {
                    holding.insert(origin);
                }
            }
        }
        holding
    }

    fn of_streams(&mut self, streams: &[OpStream], column: &str) -> BTreeSet<ColumnOrigin> {
        let mut origins = BTreeSet::new();
        for stream in streams {
            origins.extend(self.column(stream, column));
        }
        origins
    }

    fn all<'n>(
        &mut self,
        stream: &OpStream,
        names: impl IntoIterator<Item = &'n String>,
    ) -> BTreeSet<ColumnOrigin> {
        let mut origins = BTreeSet::new();
        for name in names {
            origins.extend(self.column(stream, name));
        }
        origins
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
        if let Some(analyzer) = bound.ops[*op].asks.first() {
            let latest = &bound.asks[*analyzer];
            if latest.ask.inputs.iter().any(|input| input == name) {
                return self.of_streams(&latest.streams, name);
            }
        }
        let inputs = bound.gather_inputs.get(op).map_or(&[][..], Vec::as_slice);
        let mut origins = BTreeSet::new();
        let mut is_passed = false;
        for (_, flow) in inputs {
            if flow.schema.field_with_name(name).is_ok() {
                origins.extend(self.origins(flow, name));
                is_passed = true;
            }
        }
        if is_passed {
            return origins;
        }
        for (_, flow) in inputs {
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
            PlanOp::Map(map) if map.is_written(name) => self.of_map(input_stream, last, map, name),
            PlanOp::Expand(expand) if expand.is_written(name) => {
                self.all(input_stream, &expand.reads)
            }
            PlanOp::Window(window) => self.of_window(input_stream, window, name),
            PlanOp::Series(series) if series.is_written(name) => {
                self.all(input_stream, &series.reads)
            }
            PlanOp::Join(join) => self.of_join(input_stream, last, join, name),
            PlanOp::Project(columns) => {
                let from = columns
                    .iter()
                    .find(|(_, to)| to == name)
                    .map_or(name, |(from, _)| from);
                self.column(input_stream, from)
            }
            PlanOp::Map(_)
            | PlanOp::Expand(_)
            | PlanOp::Series(_)
            | PlanOp::Keep(_)
            | PlanOp::Gather(_) => self.column(input_stream, name),
        }
    }

    /// Lineage of a column that a map writes: what the map reads, and the inputs of its statistics.
    fn of_map(
        &mut self,
        input_stream: &OpStream,
        op: OpId,
        map: &MapOp,
        name: &str,
    ) -> BTreeSet<ColumnOrigin> {
        let bound = self.bound;
        let mut origins = self.all(input_stream, &map.reads);
        for analyzer in &bound.ops[op].asks {
            let bound_analyzer = &bound.asks[*analyzer];
            let inputs = inputs_for(&bound_analyzer.ask, name);
            for stream in &bound_analyzer.streams {
                origins.extend(self.all(stream, inputs.iter().copied()));
            }
        }
        origins
    }

    fn of_window(
        &mut self,
        input_stream: &OpStream,
        window: &WindowOp,
        name: &str,
    ) -> BTreeSet<ColumnOrigin> {
        let mut fields = window.writes.iter();
        let Some(output) = fields.position(|field| field.name() == name) else {
            return self.column(input_stream, name);
        };
        let function = &window.plan.functions[output];
        let mut inputs = vec![function.input];
        if let WindowFunction::SeasonalIndex {
            parent: Some(parent),
            ..
        } = function.compute
        {
            inputs.push(parent);
        }
        let reads = inputs
            .into_iter()
            .filter_map(|input| window.reads.get(input));
        self.all(input_stream, reads)
    }

    fn of_join(
        &mut self,
        input_stream: &OpStream,
        op: OpId,
        join: &JoinOp,
        name: &str,
    ) -> BTreeSet<ColumnOrigin> {
        let bound = self.bound;
        for (other_column, field) in &join.columns {
            if field.name() == name {
                return match bound.join_inputs.get(&op) {
                    Some(flow) => self.origins(flow, other_column),
                    None => BTreeSet::new(),
                };
            }
        }
        if join.is_written(name) {
            self.all(input_stream, join.columns_here())
        } else {
            self.column(input_stream, name)
        }
    }
}

/// The inputs of an analyzer that a column depends on. A join names its outputs after the columns of
/// the other table: only the inputs that the name contains count, if there are any.
fn inputs_for<'r>(request: &'r AnalyzerRequest, name: &str) -> Vec<&'r String> {
    let mut named = Vec::new();
    for input in &request.inputs {
        if request.of.is_some() && name.contains(input.as_str()) {
            named.push(input);
        }
    }
    if named.is_empty() {
        named.extend(&request.inputs);
    }
    named
}
