//! Boosted trees as a graph of ONNX: one `TreeEnsemble` of `ai.onnx.ml` 5, in double precision.

use forebay_contract::ModelClasses;
use forebay_model::Result;

use super::classes::add_classes;
use super::graph::{
    GraphBuilder, Value, bytes, doubles, int_attribute, ints_attribute, tensor_attribute,
};
use super::inputs::FeatureInputs;
use super::protobuf::TensorType;
use super::steps::StepColumns;
use super::target::TargetInverse;
use crate::boosting::{
    IntervalScale, ModelOutput, Objective, RegressionTree, SplitRule, TreeEnsemble,
};
use crate::network::ModelShape;

/// Values of `nodes_modes`.
const LESS_OR_EQUAL: u8 = 0;
const MEMBER: u8 = 6;

/// Adds the trees and one output for the point forecast and for each quantile.
pub fn add_trees(
    graph: &mut GraphBuilder,
    shape: &ModelShape,
    outputs: &[ModelOutput<'_>],
    columns: &mut StepColumns,
    target: &TargetInverse,
) -> Result<()> {
    let inputs = FeatureInputs::add(graph, shape, columns)?;
    let features = as_doubles(graph, inputs);
    let ensembles: Vec<&TreeEnsemble> = outputs.iter().map(|output| output.ensemble).collect();
    let results = add_sums(graph, &ensembles, &features);

    let mut quantiles = Vec::new();
    let mut point = None;
    for (number, output) in outputs.iter().enumerate() {
        let result = graph.column(&results, number);
        let meant = match &point {
            Some(point) if output.around_point => {
                let exact_point = graph.cast(point, TensorType::Double);
                let distance = match output.scale {
                    Some(scale) => scaled(graph, &features, scale, &result),
                    None => result,
                };
                graph.node("Add", &[&exact_point, &distance])
            }
            _ => add_objective(graph, output.objective, &result),
        };
        let prediction = graph.cast(&meant, TensorType::Float);
        match output.quantile {
            None => {
                target.output(graph, super::PREDICTION, &prediction);
                point = Some(prediction);
            }
            Some(quantile) => quantiles.push((quantile, prediction)),
        }
    }
    add_quantiles(graph, &quantiles, target);
    Ok(())
}

/// Adds the trees of each class, and the outputs of classes.
pub fn add_class_trees(
    graph: &mut GraphBuilder,
    shape: &ModelShape,
    ensembles: &[&TreeEnsemble],
    classes: &ModelClasses,
    columns: &mut StepColumns,
) -> Result<()> {
    let inputs = FeatureInputs::add(graph, shape, columns)?;
    let features = as_doubles(graph, inputs);
    let scores = add_sums(graph, ensembles, &features);
    add_classes(graph, &scores, classes, None);
    Ok(())
}

/// A distance times the scale of each row.
fn scaled(
    graph: &mut GraphBuilder,
    features: &Value,
    scale: IntervalScale,
    distance: &Value,
) -> Value {
    let column = graph.column(features, scale.number);
    let zero = graph.double(0.0);
    let infinity = graph.double(f64::INFINITY);
    let default = graph.double(scale.default);
    // Both comparisons are false for NaN.
    let is_positive = graph.node("Greater", &[&column, &zero]);
    let is_finite = graph.node("Less", &[&column, &infinity]);
    let is_scale = graph.node("And", &[&is_positive, &is_finite]);
    let factors = graph.node("Where", &[&is_scale, &column, &default]);
    graph.node("Mul", &[distance, &factors])
}

/// All features in one matrix, ids behind numbers, as trees number them.
fn as_doubles(graph: &mut GraphBuilder, inputs: FeatureInputs) -> Value {
    let mut matrices = Vec::new();
    for matrix in inputs.dense.iter().chain(&inputs.ids) {
        matrices.push(graph.cast(matrix, TensorType::Double));
    }
    match matrices.as_slice() {
        [single] => single.clone(),
        _ => graph.side_by_side(&matrices),
    }
}

/// The prediction that a sum of trees means.
fn add_objective(graph: &mut GraphBuilder, objective: Objective, result: &Value) -> Value {
    match objective {
        Objective::Poisson | Objective::Tweedie(_) => graph.node("Exp", &[result]),
        Objective::Logistic => graph.node("Sigmoid", &[result]),
        Objective::SquaredError | Objective::AbsoluteError | Objective::Quantile(_) => {
            result.clone()
        }
    }
}

/// Quantiles of a row that cross are sorted, as in published forecasts.
fn add_quantiles(graph: &mut GraphBuilder, quantiles: &[(f64, Value)], target: &TargetInverse) {
    if quantiles.is_empty() {
        return;
    }
    let mut columns = Vec::new();
    for (_, prediction) in quantiles {
        columns.push(graph.as_column(prediction));
    }
    let matrix = graph.side_by_side(&columns);
    let count = graph.constant(super::graph::int64s(&[1], &[quantiles.len() as i64]));
    let ascending = vec![int_attribute("largest", 0), int_attribute("axis", 1)];
    let (sorted, _) = graph.node_with_pair("TopK", &[&matrix, &count], ascending);
    for (number, (quantile, _)) in quantiles.iter().enumerate() {
        let column = graph.column(&sorted, number);
        let name = forebay_contract::quantile_column(super::PREDICTION, *quantile);
        target.output(graph, &name, &column);
    }
}

/// Arrays of a `TreeEnsemble`: one entry per node, per leaf, or per tree.
#[derive(Default)]
struct EnsembleArrays {
    roots: Vec<i64>,
    features: Vec<i64>,
    modes: Vec<u8>,
    splits: Vec<f64>,
    missing_is_true: Vec<i64>,
    true_nodes: Vec<i64>,
    true_is_leaf: Vec<i64>,
    false_nodes: Vec<i64>,
    false_is_leaf: Vec<i64>,
    /// Sets of the nodes with the mode `MEMBER`, in their order, each closed by NaN
    members: Vec<f64>,
    leaf_targets: Vec<i64>,
    leaf_weights: Vec<f64>,
}

impl EnsembleArrays {
    fn add_tree(&mut self, tree: &RegressionTree, target: usize) {
        let first_node = self.features.len() as i64;
        let first_leaf = self.leaf_weights.len() as i64;
        self.roots.push(first_node);
        for weight in &tree.leaves {
            self.leaf_targets.push(target as i64);
            self.leaf_weights.push(f64::from(*weight));
        }
        if tree.nodes.is_empty() {
            self.add_single_leaf(first_leaf);
            return;
        }
        for node in &tree.nodes {
            self.features.push(i64::from(node.feature));
            match node.rule {
                SplitRule::Threshold(threshold) => {
                    self.modes.push(LESS_OR_EQUAL);
                    self.splits.push(f64::from(threshold));
                    self.missing_is_true.push(i64::from(node.missing_left));
                }
                SplitRule::Categories { first, count } => {
                    self.modes.push(MEMBER);
                    self.splits.push(0.0);
                    self.missing_is_true.push(0);
                    let set = first as usize..(first + count) as usize;
                    let ids = tree.categories[set].iter();
                    self.members.extend(ids.map(|id| f64::from(*id)));
                    self.members.push(f64::NAN);
                }
            }
            let (left_branch, left_is_leaf) = branch(node.left, first_node, first_leaf);
            self.true_nodes.push(left_branch);
            self.true_is_leaf.push(left_is_leaf);
            let (right, right_is_leaf) = branch(node.right, first_node, first_leaf);
            self.false_nodes.push(right);
            self.false_is_leaf.push(right_is_leaf);
        }
    }

    /// A tree needs a node: one whose branches both lead to the leaf.
    fn add_single_leaf(&mut self, leaf: i64) {
        self.features.push(0);
        self.modes.push(LESS_OR_EQUAL);
        self.splits.push(0.0);
        self.missing_is_true.push(0);
        self.true_nodes.push(leaf);
        self.true_is_leaf.push(1);
        self.false_nodes.push(leaf);
        self.false_is_leaf.push(1);
    }
}

/// Index of a child among all nodes or among all leaves, and 1 for a leaf.
fn branch(child: i32, first_node: i64, first_leaf: i64) -> (i64, i64) {
    if child >= 0 {
        (first_node + i64::from(child), 0)
    } else {
        (first_leaf + i64::from(!child), 1)
    }
}

/// Sums of leaves and bases: a matrix with a column for each ensemble.
fn add_sums(graph: &mut GraphBuilder, ensembles: &[&TreeEnsemble], features: &Value) -> Value {
    let sums = add_leaves(graph, ensembles, features);
    let bases: Vec<f64> = ensembles.iter().map(|ensemble| ensemble.base).collect();
    let bases = graph.constant(doubles(&[1, bases.len()], &bases));
    graph.node("Add", &[&sums, &bases])
}

/// Sums of leaves: a matrix with a column for each ensemble.
fn add_leaves(graph: &mut GraphBuilder, ensembles: &[&TreeEnsemble], features: &Value) -> Value {
    let mut arrays = EnsembleArrays::default();
    for (target, ensemble) in ensembles.iter().enumerate() {
        for tree in &ensemble.trees {
            arrays.add_tree(tree, target);
        }
        if ensemble.trees.is_empty() {
            // Each target needs a leaf.
            let nothing = RegressionTree {
                leaves: vec![0.0],
                ..RegressionTree::default()
            };
            arrays.add_tree(&nothing, target);
        }
    }
    let node_count = arrays.modes.len();
    let leaf_count = arrays.leaf_weights.len();
    let mut attributes = vec![
        int_attribute("aggregate_function", 1),
        int_attribute("n_targets", ensembles.len() as i64),
        int_attribute("post_transform", 0),
        ints_attribute("tree_roots", arrays.roots),
        ints_attribute("nodes_featureids", arrays.features),
        tensor_attribute("nodes_modes", bytes(&[node_count], &arrays.modes)),
        tensor_attribute("nodes_splits", doubles(&[node_count], &arrays.splits)),
        ints_attribute("nodes_missing_value_tracks_true", arrays.missing_is_true),
        ints_attribute("nodes_truenodeids", arrays.true_nodes),
        ints_attribute("nodes_trueleafs", arrays.true_is_leaf),
        ints_attribute("nodes_falsenodeids", arrays.false_nodes),
        ints_attribute("nodes_falseleafs", arrays.false_is_leaf),
        ints_attribute("leaf_targetids", arrays.leaf_targets),
        tensor_attribute("leaf_weights", doubles(&[leaf_count], &arrays.leaf_weights)),
    ];
    if !arrays.members.is_empty() {
        let members = doubles(&[arrays.members.len()], &arrays.members);
        attributes.push(tensor_attribute("membership_values", members));
    }
    graph.ml_node("TreeEnsemble", &[features], attributes)
}
