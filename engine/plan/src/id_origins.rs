//! Columns whose integers are ids: the steps that made them, and the steps that compute with them.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Fault, GroupFunction, codes};
use forebay_window::WindowFunction;

use crate::learn_check::step_kind;
use crate::passed_columns::{passed_columns, passed_values};
use crate::{
    BaseDataset, BaseId, BoundOp, BoundPipeline, GatherBy, GatherOp, GroupByOp, MapOp, NodeFlow,
    OpId, OpStream, PlanOp, WrittenNulls,
};

/// Steps whose integers are names, not amounts.
pub const ID_STEPS: [&str; 7] = [
    "vocabulary",
    "ordinal",
    "hash_bucket",
    "cross",
    "bucketize",
    "k_bins",
    "apply_buckets",
];

/// Steps of `ID_STEPS` whose integers have no order.
const UNORDERED_ID_STEPS: [&str; 4] = ["vocabulary", "ordinal", "hash_bucket", "cross"];

/// Steps that compute with the distances of values.
const SCALING_STEPS: [&str; 17] = [
    "standardize",
    "g_and_h",
    "knn_impute",
    "max_abs",
    "min_max",
    "normal_quantiles",
    "normalize",
    "pca",
    "polynomial",
    "power",
    "quantiles",
    "robust_scale",
    "spline",
    "winsorize",
    "bucketize",
    "k_bins",
    "log1p",
];

/// The step that fills nulls.
const FILLING_STEP: &str = "impute";

/// The step that gives columns other types.
const CASTING_STEP: &str = "cast";

/// The step that fills nulls with earlier values of a series.
const REPEATING_STEP: &str = "fill_forward";

/// Steps that scale the ids of other steps, and windows and aggregates that compute with them.
pub fn scaled_ids(bound: &BoundPipeline) -> Vec<Fault> {
    let mut scaled = ScaledIds::default();
    let streams = bound.flows.values().flat_map(|flow| &flow.streams);
    let mut origins = IdOrigins::new(bound);
    for stream in streams {
        origins.of_stream(stream, &mut scaled);
    }
    for id in bound.gather_inputs.keys() {
        origins.report_group_values(*id, &mut scaled);
    }
    scaled.warnings
}

/// Warnings of operations that compute with ids, one for each column of an operation.
#[derive(Default)]
struct ScaledIds {
    seen: BTreeSet<(String, String)>,
    warnings: Vec<Fault>,
}

impl ScaledIds {
    /// Adds an operation, the column that holds the ids, and the step that made them.
    fn add(&mut self, op: &BoundOp, column: &str, made_by: &str) {
        if self.seen.insert((op.label.clone(), column.to_owned())) {
            self.warnings.push(scaled_warning(op, column, made_by));
        }
    }
}

/// Columns of a flow whose integers are ids without an order, each with the step that made them.
pub fn unordered_ids(bound: &BoundPipeline, flow: &NodeFlow) -> BTreeMap<String, String> {
    IdOrigins::new(bound).of_flow(flow)
}

/// Names of columns that hold ids, each with the step that made the ids.
type IdColumns = BTreeMap<String, String>;

/// Finds the steps that made the ids of columns.
struct IdOrigins<'b> {
    bound: &'b BoundPipeline,
    /// The ids of the other side of each join, as far as they have been looked for.
    joined: BTreeMap<OpId, IdColumns>,
    /// The ids of each step or source whose rows are looked up.
    looked_up: BTreeMap<String, IdColumns>,
    /// The ids in the result of each gather.
    gathered: BTreeMap<OpId, IdColumns>,
}

impl<'b> IdOrigins<'b> {
    fn new(bound: &'b BoundPipeline) -> IdOrigins<'b> {
        IdOrigins {
            bound,
            joined: BTreeMap::new(),
            looked_up: BTreeMap::new(),
            gathered: BTreeMap::new(),
        }
    }

    /// The steps that made the ids which a flow ends with, by column.
    fn of_flow(&mut self, flow: &NodeFlow) -> IdColumns {
        self.of_streams(&flow.streams)
    }

    fn of_streams(&mut self, streams: &[OpStream]) -> IdColumns {
        let mut ids = IdColumns::new();
        for stream in streams {
            ids.extend(self.of_stream(stream, &mut ScaledIds::default()));
        }
        ids
    }

    /// The steps that made the ids of a join's other side.
    fn of_other_side(&mut self, join: OpId) -> IdColumns {
        if let Some(ids) = self.joined.get(&join) {
            return ids.clone();
        }
        let bound = self.bound;
        let flow = bound.join_inputs.get(&join);
        let ids = flow.map(|flow| self.of_flow(flow)).unwrap_or_default();
        self.joined.insert(join, ids.clone());
        ids
    }

    /// The step that made the ids of a column of another step, which an operation looks up.
    fn of_lookup(&mut self, op: &BoundOp, column: &str) -> Option<String> {
        let bound = self.bound;
        let mut analyzers = op.asks.iter().map(|analyzer| &bound.asks[*analyzer]);
        let table = analyzers.find(|analyzer| analyzer.ask.of.is_some())?;
        let name = table.ask.of.as_ref()?;
        if let Some(ids) = self.looked_up.get(name) {
            return ids.get(column).cloned();
        }
        let ids = self.of_streams(&table.streams);
        let made_by = ids.get(column).cloned();
        self.looked_up.insert(name.clone(), ids);
        made_by
    }

    /// The steps that made the ids which the rows of a base dataset begin with, by column.
    fn of_base(&mut self, base: BaseId) -> IdColumns {
        let bound = self.bound;
        let BaseDataset::Gathered(id) = &bound.bases[base] else {
            return IdColumns::new();
        };
        if let Some(ids) = self.gathered.get(id) {
            return ids.clone();
        }
        let ids = match &bound.ops[*id].op {
            PlanOp::Gather(gather) => self.of_gather(*id, gather),
            _ => IdColumns::new(),
        };
        self.gathered.insert(*id, ids.clone());
        ids
    }

    /// The steps that made the ids of a gather's result, by column.
    fn of_gather(&mut self, id: OpId, gather: &GatherOp) -> IdColumns {
        let bound = self.bound;
        let mut inputs: Vec<(&str, IdColumns)> = Vec::new();
        for (name, flow) in bound.gather_inputs.get(&id).into_iter().flatten() {
            inputs.push((name.as_str(), self.of_flow(flow)));
        }
        let mut ids = IdColumns::new();
        for (index, field) in gather.schema.fields().iter().enumerate() {
            let made_by = gathered_id(gather, &inputs, index, field.name());
            if let Some(made_by) = made_by {
                ids.insert(field.name().clone(), made_by.clone());
            }
        }
        ids
    }

    /// Reports the ids that an aggregate computes numbers of.
    fn report_group_values(&mut self, id: OpId, scaled_ids: &mut ScaledIds) {
        let bound = self.bound;
        let op = &bound.ops[id];
        let PlanOp::Gather(GatherOp {
            lower: GatherBy::GroupBy(group),
            ..
        }) = &op.op
        else {
            return;
        };
        let Some((_, flow)) = bound
            .gather_inputs
            .get(&id)
            .and_then(|inputs| inputs.first())
        else {
            return;
        };
        let ids = self.of_flow(flow);
        for result in &group.spec.results {
            let column = value_column(group, result.value);
            let column = column.filter(|_| computes_numbers(result.function));
            if let Some((column, made_by)) = column.and_then(|column| ids.get_key_value(column)) {
                scaled_ids.add(op, column, made_by);
            }
        }
    }

    /// The steps that made the ids which a stream ends with, by column.
    fn of_stream(&mut self, stream: &OpStream, scaled_ids: &mut ScaledIds) -> IdColumns {
        let bound = self.bound;
        let mut ids = self.of_base(stream.base);
        for id in &stream.ops {
            let op = &bound.ops[*id];
            match &op.op {
                PlanOp::Map(map) => {
                    if scales_values(op, map) {
                        // The first column that is read is scaled; others are keys.
                        let scaled = op
                            .asks
                            .first()
                            .and_then(|analyzer| bound.asks[*analyzer].ask.inputs.first())
                            .or(map.reads.first());
                        let made_by = scaled.and_then(|column| Some((column, ids.get(column)?)));
                        if let Some((column, made_by)) = made_by {
                            scaled_ids.add(op, column, made_by);
                        }
                    }
                    let made_by = self.of_map(op, map, &ids);
                    for field in &map.writes {
                        ids.remove(field.name());
                        if let Some(made_by) = &made_by {
                            ids.insert(field.name().clone(), made_by.clone());
                        }
                    }
                }
                PlanOp::Window(window) => {
                    for (function, field) in window.plan.functions.iter().zip(&window.writes) {
                        let column = window.reads.get(function.input);
                        let made_by = column.and_then(|column| ids.get(column)).cloned();
                        ids.remove(field.name());
                        let Some((column, made_by)) = column.zip(made_by) else {
                            continue;
                        };
                        if copies_values(&function.compute) {
                            ids.insert(field.name().clone(), made_by);
                        } else if function.compute.computes_numbers() {
                            scaled_ids.add(op, column, &made_by);
                        }
                    }
                }
                PlanOp::Project(columns) => {
                    let renamed = columns
                        .iter()
                        .filter_map(|(from, to)| Some((to.clone(), ids.get(from)?.clone())));
                    ids = renamed.collect();
                }
                PlanOp::Join(join) => {
                    let other_ids = self.of_other_side(*id);
                    for field in join.writes() {
                        ids.remove(field.name());
                    }
                    for (column, field) in &join.columns {
                        if let Some(made_by) = other_ids.get(column) {
                            ids.insert(field.name().clone(), made_by.clone());
                        }
                    }
                }
                _ => {}
            }
        }
        ids
    }

    /// The step that made the ids which a map writes; `None` if it writes other values.
    fn of_map(&mut self, op: &BoundOp, map: &MapOp, ids: &IdColumns) -> Option<String> {
        if UNORDERED_ID_STEPS.contains(&step_kind(op)) {
            return Some(op.label.clone());
        }
        if let Some(met) = &map.met {
            return self.of_lookup(op, met.column.as_ref()?);
        }
        if let WrittenNulls::Computed(nulls) = &map.nulls {
            let mut columns = passed_values(nulls.logical.as_ref()?).into_iter();
            return columns.find_map(|column| ids.get(&column.name)).cloned();
        }
        if passes_values(op, map) {
            return ids.get(map.reads.first()?).cloned();
        }
        None
    }
}

/// The step that made the ids of a column of a gather's result, given the ids of its inputs.
fn gathered_id<'i>(
    gather: &GatherOp,
    inputs: &'i [(&str, IdColumns)],
    index: usize,
    name: &str,
) -> Option<&'i String> {
    let (_, first_ids) = inputs.first()?;
    match &gather.lower {
        GatherBy::OnePerKey { .. } | GatherBy::Future(_) => first_ids.get(name),
        GatherBy::GroupBy(group) => {
            let Some(result) = index.checked_sub(group.spec.keys.len()) else {
                return first_ids.get(name);
            };
            let result = group.spec.results.get(result)?;
            if !takes_values(result.function) {
                return None;
            }
            first_ids.get(value_column(group, result.value)?)
        }
        GatherBy::Join { join, .. } => {
            let mut brought = join.columns.iter();
            match brought.find(|(_, field)| field.name() == name) {
                Some((column, _)) => inputs.get(1)?.1.get(column),
                None => first_ids.get(name),
            }
        }
        GatherBy::Query(_) => {
            let query = gather.query.as_ref()?;
            let columns = passed_columns(&query.plan, index);
            columns.iter().find_map(|passed| {
                let mut tables = inputs.iter();
                let (_, ids) = tables.find(|(table, _)| *table == passed.table)?;
                ids.get(&passed.column)
            })
        }
    }
}

/// The column of a place among the values of groups.
fn value_column(group: &GroupByOp, value: usize) -> Option<&String> {
    group.inputs.get(group.spec.keys.len() + value)
}

/// True for a function of groups whose results are values of its column.
fn takes_values(function: GroupFunction) -> bool {
    matches!(
        function,
        GroupFunction::Min
            | GroupFunction::Max
            | GroupFunction::First
            | GroupFunction::Last
            | GroupFunction::FirstBy { .. }
            | GroupFunction::LastBy { .. }
            | GroupFunction::TopK { .. }
            | GroupFunction::List { .. }
    )
}

/// True for a function of groups that computes numbers of the values. All others count or take
/// values.
fn computes_numbers(function: GroupFunction) -> bool {
    matches!(
        function,
        GroupFunction::Sum
            | GroupFunction::Mean
            | GroupFunction::Var { .. }
            | GroupFunction::Std { .. }
            | GroupFunction::Quantile { .. }
            | GroupFunction::WeightedMean { .. }
    )
}

/// True for an operation whose first column comes out as it is, in another type of numbers, or with
/// values for nulls.
fn passes_values(op: &BoundOp, map: &MapOp) -> bool {
    let mut types = map.writes.iter().map(|field| field.data_type());
    match step_kind(op) {
        CASTING_STEP => types.all(|data_type| data_type.is_numeric()),
        // Means and medians are no ids. Indicators have other nulls.
        FILLING_STEP => {
            matches!(map.nulls, WrittenNulls::Filled)
                && types.all(|data_type| !data_type.is_floating())
        }
        REPEATING_STEP => true,
        _ => false,
    }
}

/// True for an operation that computes with the distances of values. What fills ids by their mean or median writes numbers
/// with fractions.
fn scales_values(op: &BoundOp, map: &MapOp) -> bool {
    let kind = step_kind(op);
    if kind != FILLING_STEP {
        return SCALING_STEPS.contains(&kind);
    }
    let mut writes = map.writes.iter();
    // A constant is no amount of its column.
    !map.asks.is_empty() && writes.any(|field| field.data_type().is_floating())
}

/// True for a function whose results are values of its column.
fn copies_values(function: &WindowFunction) -> bool {
    matches!(
        function,
        WindowFunction::Lag { .. } | WindowFunction::LastValid { .. }
    )
}

fn scaled_warning(op: &BoundOp, column: &str, made_by: &str) -> Fault {
    let message = format!(
        "`{}` computes with `{column}`, which holds ids of `{made_by}`: their order and \
         distances mean nothing",
        op.label
    );
    let hint = "leave the ids as they are for an embedding, or use `one_hot`";
    Fault::new(codes::COLUMN_TYPE, message)
        .column(column)
        .hint(hint)
        .at(op.at.as_ref())
}
