//! Boosted trees as LightGBM's text model, which SHAP, treelite and Triton's FIL read, too.
//!
//! The format is that of `Tree::ToString` and `GBDT::SaveModelToString` of LightGBM 4 (MIT).

use std::fmt::Write;

use forebay_model::{Fault, Result, codes};

use crate::boosting::{ModelOutput, Objective, RegressionTree, SplitNode, SplitRule, TreeEnsemble};
use crate::network::ModelShape;

/// Bits of `decision_type`.
const CATEGORICAL: u8 = 1;
const MISSING_LEFT: u8 = 2;
/// Missing values are NaN, rather than 0.
const MISSING_IS_NAN: u8 = 8;

/// Trees of a model in LightGBM's format.
pub struct LightGbmTrees<'a> {
    /// Name of the objective, with its settings.
    objective: String,
    /// Trees of each class; one ensemble of a model of numbers.
    ensembles: Vec<&'a TreeEnsemble>,
}

impl<'a> LightGbmTrees<'a> {
    /// The trees of the point forecast, which is the first output.
    pub fn of_point(outputs: &[ModelOutput<'a>]) -> Result<LightGbmTrees<'a>> {
        let Some(point) = outputs.first() else {
            return Err(Fault::internal("boosted trees without an output"));
        };
        Ok(LightGbmTrees {
            objective: objective_text(point.objective),
            ensembles: vec![point.ensemble],
        })
    }

    /// The trees of each class.
    pub fn of_classes(ensembles: Vec<&'a TreeEnsemble>) -> LightGbmTrees<'a> {
        LightGbmTrees {
            objective: format!("multiclass num_class:{}", ensembles.len()),
            ensembles,
        }
    }

    /// Trees in their order: those of a round together, one of each class. Sums begin with a tree of one leaf.
    fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for ensemble in &self.ensembles {
            texts.push(leaf_text(ensemble.base));
        }
        let rounds = self.ensembles.iter().map(|ensemble| ensemble.trees.len());
        for round in 0..rounds.max().unwrap_or(0) {
            for ensemble in &self.ensembles {
                let tree = ensemble.trees.get(round);
                texts.push(tree.map_or_else(|| leaf_text(0.0), tree_text));
            }
        }
        texts
    }
}

/// The text of a model.
pub fn lightgbm_text(shape: &ModelShape, trees: &LightGbmTrees<'_>) -> Result<String> {
    let classes = trees.ensembles.len();
    let features = feature_names(shape)?;
    let mut text = String::from("tree\nversion=v4\n");
    let _ = writeln!(text, "num_class={classes}");
    let _ = writeln!(text, "num_tree_per_iteration={classes}");
    text.push_str("label_index=0\n");
    let _ = writeln!(text, "max_feature_idx={}", features.len() - 1);
    let _ = writeln!(text, "objective={}", trees.objective);
    let _ = writeln!(text, "feature_names={}", features.join(" "));
    let infos = vec!["[-inf:inf]"; features.len()];
    let _ = writeln!(text, "feature_infos={}\n", infos.join(" "));
    for (number, tree) in trees.texts().iter().enumerate() {
        let _ = writeln!(text, "Tree={number}\n{tree}shrinkage=1\n\n");
    }
    text.push_str("end of trees\n");
    Ok(text)
}

/// A tree of one leaf.
fn leaf_text(value: f64) -> String {
    format!("num_leaves=1\nnum_cat=0\nleaf_value={value:?}\n")
}

fn objective_text(objective: Objective) -> String {
    match objective {
        Objective::SquaredError => "regression".to_owned(),
        Objective::AbsoluteError => "regression_l1".to_owned(),
        Objective::Poisson => "poisson".to_owned(),
        Objective::Tweedie(power) => format!("tweedie tweedie_variance_power:{power}"),
        Objective::Quantile(quantile) => format!("quantile alpha:{quantile}"),
        Objective::Logistic => "binary sigmoid:1".to_owned(),
    }
}

/// One name per number and per id of a row. The format separates names by spaces.
fn feature_names(shape: &ModelShape) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let dense = shape.dense.iter();
    let mut columns: Vec<(&str, usize)> = dense
        .map(|field| (field.column.as_str(), field.width as usize))
        .collect();
    for embedding in &shape.embeddings {
        columns.push((&embedding.column, embedding.ids));
    }
    for (column, width) in columns {
        if column.contains(char::is_whitespace) {
            let message = format!("LightGBM's text format has no names with spaces: `{column}`");
            let fault = Fault::new(codes::UNSUPPORTED, message).column(column);
            return Err(fault.hint("`rename` the column, or export to ONNX"));
        }
        for number in 0..width {
            names.push(if width == 1 {
                column.to_owned()
            } else {
                format!("{column}_{number}")
            });
        }
    }
    Ok(names)
}

fn tree_text(tree: &RegressionTree) -> String {
    let leaves = joined(
        tree.leaves
            .iter()
            .map(|leaf| format!("{:?}", f64::from(*leaf))),
    );
    if tree.nodes.is_empty() {
        return format!("num_leaves=1\nnum_cat=0\nleaf_value={leaves}\n");
    }
    let sets = CategorySets::of(tree);
    let nodes = &tree.nodes;
    let mut text = String::new();
    let _ = writeln!(text, "num_leaves={}", tree.leaves.len());
    let _ = writeln!(text, "num_cat={}", sets.boundaries.len() - 1);
    let _ = writeln!(
        text,
        "split_feature={}",
        joined(nodes.iter().map(|node| node.feature))
    );
    let _ = writeln!(text, "split_gain={}", joined(nodes.iter().map(|_| 0)));
    let _ = writeln!(text, "threshold={}", joined(sets.thresholds.iter()));
    let _ = writeln!(
        text,
        "decision_type={}",
        joined(nodes.iter().map(decision_type))
    );
    let _ = writeln!(
        text,
        "left_child={}",
        joined(nodes.iter().map(|node| node.left))
    );
    let _ = writeln!(
        text,
        "right_child={}",
        joined(nodes.iter().map(|node| node.right))
    );
    let _ = writeln!(text, "leaf_value={leaves}");
    if let Some(rows) = TrainedRows::of(tree) {
        let _ = writeln!(text, "leaf_count={}", joined(tree.leaf_rows.iter()));
        let _ = writeln!(text, "internal_value={}", joined(rows.values.iter()));
        let _ = writeln!(text, "internal_count={}", joined(rows.counts.iter()));
    }
    if sets.boundaries.len() > 1 {
        let _ = writeln!(text, "cat_boundaries={}", joined(sets.boundaries.iter()));
        let _ = writeln!(text, "cat_threshold={}", joined(sets.words.iter()));
    }
    text
}

/// Rows of the training below each node, and the mean of their values: contributions of features are made of them.
struct TrainedRows {
    counts: Vec<u64>,
    values: Vec<f64>,
}

impl TrainedRows {
    /// `None` where the rows of leaves are not known.
    fn of(tree: &RegressionTree) -> Option<TrainedRows> {
        if tree.leaf_rows.len() != tree.leaves.len() {
            return None;
        }
        let mut rows = TrainedRows {
            counts: vec![0; tree.nodes.len()],
            values: vec![0.0; tree.nodes.len()],
        };
        // The sides of a node are leaves, or nodes after it.
        for (number, node) in tree.nodes.iter().enumerate().rev() {
            let mut count = 0;
            let mut sum = 0.0;
            for side in [node.left, node.right] {
                let leaf = !side as usize;
                let (side_count, value) = match usize::try_from(side) {
                    Ok(side) => (rows.counts[side], rows.values[side]),
                    Err(_) => (
                        u64::from(tree.leaf_rows[leaf]),
                        f64::from(tree.leaves[leaf]),
                    ),
                };
                count += side_count;
                sum += side_count as f64 * value;
            }
            rows.counts[number] = count;
            rows.values[number] = sum / count as f64;
        }
        Some(rows)
    }
}

fn decision_type(node: &SplitNode) -> u8 {
    match node.rule {
        SplitRule::Threshold(_) if node.missing_left => MISSING_IS_NAN | MISSING_LEFT,
        SplitRule::Threshold(_) => MISSING_IS_NAN,
        SplitRule::Categories { .. } => CATEGORICAL,
    }
}

/// Sets of ids as bits: the threshold of such a node is the number of its set.
struct CategorySets {
    /// Thresholds of all nodes
    thresholds: Vec<String>,
    /// First word of each set, and the end of the last one
    boundaries: Vec<usize>,
    words: Vec<u32>,
}

impl CategorySets {
    fn of(tree: &RegressionTree) -> CategorySets {
        let mut sets = CategorySets {
            thresholds: Vec::new(),
            boundaries: vec![0],
            words: Vec::new(),
        };
        for node in &tree.nodes {
            match node.rule {
                SplitRule::Threshold(threshold) => {
                    sets.thresholds.push(format!("{:?}", f64::from(threshold)));
                }
                SplitRule::Categories { first, count } => {
                    let number = sets.boundaries.len() - 1;
                    sets.thresholds.push(number.to_string());
                    let ids = &tree.categories[first as usize..(first + count) as usize];
                    sets.add(ids);
                }
            }
        }
        sets
    }

    fn add(&mut self, ids: &[i32]) {
        let first_word = self.words.len();
        for id in ids {
            // Ids of a set are none of missing values, which are negative.
            let id = *id as usize;
            let word = first_word + id / 32;
            if self.words.len() <= word {
                self.words.resize(word + 1, 0);
            }
            self.words[word] |= 1 << (id % 32);
        }
        self.boundaries.push(self.words.len());
    }
}

fn joined<T: ToString>(values: impl Iterator<Item = T>) -> String {
    let texts: Vec<String> = values.map(|value| value.to_string()).collect();
    texts.join(" ")
}
