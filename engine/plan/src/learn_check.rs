//! Steps that learn from rows or columns that they should not: warnings of `check` and of runs.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Fault, Pipeline, PipelineNode, codes};
use forebay_window::WindowFunction;

use crate::{BoundAnalyzer, BoundOp, BoundPipeline, MapOp, NodeFlow, OpId, OpStream, PlanOp};

/// Takes an operation that computes with ids, the column that holds them, and the step that made them.
type ReportScaledFn<'a> = &'a mut dyn FnMut(&BoundOp, &str, &str);

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

/// The step that describes rows and changes none.
const DESCRIBING_STEP: &str = "profile";

/// The name of the transform of an operation.
pub fn step_kind(op: &BoundOp) -> &str {
    op.label.rsplit('.').next().unwrap_or_default()
}

impl BoundPipeline {
    /// True if an analyzer computes a statistic of the rows of its own step that these rows, later runs and servings get
    /// applied.
    pub fn is_statistic(&self, analyzer: &BoundAnalyzer) -> bool {
        analyzer.ask.of.is_none()
            && !analyzer.ask.per_run
            && step_kind(&self.ops[analyzer.op]) != DESCRIBING_STEP
    }
}

/// Nodes that learn from the rows of all parts of a split.
pub fn unfitted_steps(pipeline: &Pipeline, bound: &BoundPipeline) -> Vec<Fault> {
    let Some(split) = &pipeline.split else {
        return Vec::new();
    };
    let parts = split.parts();
    // A statistic of the only part knows no rows of others.
    let [first, _, ..] = parts.as_slice() else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    for node in pipeline
        .nodes
        .iter()
        .filter(|node| node.fit_on.is_none() && is_divided(bound, node))
    {
        let steps = learning_steps(bound, node);
        if steps.is_empty() {
            continue;
        }
        let verb = if steps.len() == 1 { "learns" } else { "learn" };
        let steps: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
        let others: Vec<String> = parts[1..].iter().map(|part| format!("`{part}`")).collect();
        let message = format!(
            "{} {verb} from the rows of all parts of the split, so features know statistics of {}",
            steps.join(", "),
            others.join(", ")
        );
        let hint = format!(
            "set `fit_on: {first}` in `{}`, or in the step that learns",
            node.name
        );
        warnings.push(
            Fault::new(codes::LEAKAGE, message)
                .hint(hint)
                .step(&node.name)
                .at(node.at.as_ref()),
        );
    }
    warnings
}

/// True if the split divides the rows of a node.
fn is_divided(bound: &BoundPipeline, node: &PipelineNode) -> bool {
    bound.flows.get(&node.name).is_some_and(|flow| flow.parts)
}

/// Steps of a node with statistics of all rows; tables by time are not among them, since they use
/// only data from before a row.
fn learning_steps(bound: &BoundPipeline, node: &PipelineNode) -> BTreeSet<String> {
    let prefix = format!("{}.", node.name);
    let mut steps = BTreeSet::new();
    for analyzer in bound
        .asks
        .iter()
        .filter(|analyzer| bound.is_statistic(analyzer))
    {
        let op = &bound.ops[analyzer.op];
        let is_by_time = matches!(&op.op, PlanOp::Map(map) if map.behind.is_some());
        if op.label.starts_with(&prefix) && !is_by_time {
            steps.insert(op.label.clone());
        }
    }
    steps
}

/// Steps that scale the ids of other steps, and windows that compute with them.
pub fn scaled_ids(bound: &BoundPipeline) -> Vec<Fault> {
    let mut seen = BTreeSet::new();
    let mut warnings = Vec::new();
    let streams = bound.flows.values().flat_map(|flow| &flow.streams);
    let mut origins = IdOrigins::new(bound);
    for stream in streams {
        origins.of_stream(stream, &mut |op, column, made_by| {
            if seen.insert((op.label.clone(), column.to_owned())) {
                warnings.push(scaled_warning(op, column, made_by));
            }
        });
    }
    warnings
}

/// Columns of a flow whose integers are ids without an order, each with the step that made them.
pub fn unordered_ids(bound: &BoundPipeline, flow: &NodeFlow) -> BTreeMap<String, String> {
    IdOrigins::new(bound).of_flow(flow)
}

/// Finds the steps that made the ids of columns.
struct IdOrigins<'b> {
    bound: &'b BoundPipeline,
    /// The ids of the other side of each join, as far as they have been looked for.
    joined: BTreeMap<OpId, BTreeMap<String, String>>,
}

impl<'b> IdOrigins<'b> {
    fn new(bound: &'b BoundPipeline) -> IdOrigins<'b> {
        IdOrigins {
            bound,
            joined: BTreeMap::new(),
        }
    }

    /// The steps that made the ids which a flow ends with, by column.
    fn of_flow(&mut self, flow: &NodeFlow) -> BTreeMap<String, String> {
        let mut ids = BTreeMap::new();
        for stream in &flow.streams {
            ids.extend(self.of_stream(stream, &mut |_, _, _| {}));
        }
        ids
    }

    /// The steps that made the ids of a join's other side.
    fn of_other_side(&mut self, join: OpId) -> BTreeMap<String, String> {
        if let Some(ids) = self.joined.get(&join) {
            return ids.clone();
        }
        let bound = self.bound;
        let flow = bound.join_inputs.get(&join);
        let ids = flow.map(|flow| self.of_flow(flow)).unwrap_or_default();
        self.joined.insert(join, ids.clone());
        ids
    }

    /// The steps that made the ids which a stream ends with, by column.
    fn of_stream(
        &mut self,
        stream: &OpStream,
        report_scaled: ReportScaledFn<'_>,
    ) -> BTreeMap<String, String> {
        let bound = self.bound;
        let mut ids: BTreeMap<String, String> = BTreeMap::new();
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
                            report_scaled(op, column, made_by);
                        }
                    }
                    let makes_ids = UNORDERED_ID_STEPS.contains(&step_kind(op));
                    for field in &map.writes {
                        ids.remove(field.name());
                        if makes_ids {
                            ids.insert(field.name().clone(), op.label.clone());
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
                            report_scaled(op, column, &made_by);
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
                PlanOp::Gather(_) => ids.clear(),
                _ => {}
            }
        }
        ids
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
    writes.any(|field| field.data_type().is_floating())
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
