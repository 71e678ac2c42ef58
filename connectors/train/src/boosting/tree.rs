//! Regression trees.

use super::table::RowFeatures;

/// The side of a split that a row goes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SplitRule {
    /// Numbers up to this go left.
    Threshold(f32),
    /// Ids among these of the tree's `categories` go left.
    Categories { first: u32, count: u32 },
}

/// A split. `left` and `right` are nodes after this one, or leaves: `!n` is leaf `n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitNode {
    /// The feature: numbers first, then ids.
    pub feature: u32,
    pub rule: SplitRule,
    /// True if rows without a value go left. For ids, missing and unknown ones always go right.
    pub missing_left: bool,
    pub left: i32,
    pub right: i32,
}

/// A tree; without nodes, it is its first leaf.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegressionTree {
    pub nodes: Vec<SplitNode>,
    pub leaves: Vec<f32>,
    /// Rows of the training in each leaf; empty where they are not known.
    pub leaf_rows: Vec<u32>,
    /// Sorted ids of each rule.
    pub categories: Vec<i32>,
}

impl RegressionTree {
    /// The value for a row.
    pub fn predict(&self, row: RowFeatures<'_>) -> f32 {
        let mut at = if self.nodes.is_empty() { !0 } else { 0 };
        while at >= 0 {
            let node = &self.nodes[at as usize];
            at = if self.goes_left(node, row) {
                node.left
            } else {
                node.right
            };
        }
        self.leaves[!at as usize]
    }

    fn goes_left(&self, node: &SplitNode, row: RowFeatures<'_>) -> bool {
        let feature = node.feature as usize;
        match node.rule {
            SplitRule::Threshold(threshold) => {
                let value = row.dense[feature];
                if value.is_nan() {
                    node.missing_left
                } else {
                    value <= threshold
                }
            }
            SplitRule::Categories { first, count } => {
                let ids = &self.categories[first as usize..(first + count) as usize];
                ids.binary_search(&row.categories[feature - row.dense.len()])
                    .is_ok()
            }
        }
    }
}

/// Trees whose values add up to a result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TreeEnsemble {
    /// Initial value of the sum.
    pub base: f64,
    pub trees: Vec<RegressionTree>,
}

impl TreeEnsemble {
    /// The result for a row.
    pub fn predict(&self, row: RowFeatures<'_>) -> f64 {
        self.trees
            .iter()
            .fold(self.base, |sum, tree| sum + f64::from(tree.predict(row)))
    }
}
