//! Boosted trees as LightGBM's text model, which SHAP, treelite and Triton's FIL read, too.
//!
//! The format is that of `Tree::ToString` and `GBDT::SaveModelToString` of LightGBM 4 (MIT).

use std::fmt::Write;

use forebay_model::{Fault, Result, codes};

use super::ModelOutputs;
use crate::train::boosting::{Objective, RegressionTree, SplitNode, SplitRule};
use crate::train::network::ModelShape;

/// Bits of `decision_type`.
const CATEGORICAL: u8 = 1;
const MISSING_LEFT: u8 = 2;
/// Missing values are NaN, rather than 0.
const MISSING_IS_NAN: u8 = 8;

/// The text of the model of the point forecast.
pub fn lightgbm_text(shape: &ModelShape, outputs: &ModelOutputs<'_>) -> Result<String> {
    let point = outputs.point();
    let features = feature_names(shape)?;
    let mut text = String::from("tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\n");
    text.push_str("label_index=0\n");
    let _ = writeln!(text, "max_feature_idx={}", features.len() - 1);
    let _ = writeln!(text, "objective={}", objective_text(point.objective));
    let _ = writeln!(text, "feature_names={}", features.join(" "));
    let infos = vec!["[-inf:inf]"; features.len()];
    let _ = writeln!(text, "feature_infos={}\n", infos.join(" "));
    // The sum begins with the base: a tree of one leaf holds it.
    let base = format!(
        "num_leaves=1\nnum_cat=0\nleaf_value={:?}\n",
        point.ensemble.base
    );
    let _ = writeln!(text, "Tree=0\n{base}shrinkage=1\n\n");
    for (number, tree) in point.ensemble.trees.iter().enumerate() {
        let _ = writeln!(
            text,
            "Tree={}\n{}shrinkage=1\n\n",
            number + 1,
            tree_text(tree)
        );
    }
    text.push_str("end of trees\n");
    Ok(text)
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
    if sets.boundaries.len() > 1 {
        let _ = writeln!(text, "cat_boundaries={}", joined(sets.boundaries.iter()));
        let _ = writeln!(text, "cat_threshold={}", joined(sets.words.iter()));
    }
    text
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
