//! A tree while it grows. The leaf whose split makes the loss fall most is split next; the rows of several leaves may be
//! divided in one read, before it is known which of them are split.

use super::bins::FeatureBins;
use super::histogram::GradientSums;
use super::split::{BinRule, LeafSplit};
use super::tree::{RegressionTree, SplitNode, SplitRule};

/// A feature, and the loss that a split by it took away.
pub type FeatureGain = (u32, f32);

/// A histogram for each feature.
pub type LeafHistograms = Vec<Vec<GradientSums>>;

/// A leaf, or a node that was one.
pub struct GrowingLeaf {
    /// Number of its first row among all rows of the tree.
    pub first: usize,
    pub rows: usize,
    pub sums: GradientSums,
    /// Addend to its second derivatives.
    pub l2: f64,
    /// Its best split, if there is one.
    pub split: Option<LeafSplit>,
    /// Empty once its rows are divided.
    pub histograms: LeafHistograms,
    /// Indices of its left and its right part, once its rows are divided.
    parts: Option<[usize; 2]>,
}

impl GrowingLeaf {
    pub fn new(first: usize, rows: usize, sums: GradientSums, l2: f64) -> GrowingLeaf {
        GrowingLeaf {
            first,
            rows,
            sums,
            l2,
            split: None,
            histograms: Vec::new(),
            parts: None,
        }
    }
}

/// A tree while it grows.
pub struct GrowingTree {
    /// Each comes after the one that it is a part of.
    pub leaves: Vec<GrowingLeaf>,
    leaves_max: usize,
    /// Indices of the leaves of the tree. A left part has the position of the leaf that it is a part of, a right part
    /// comes last: of equal gains, the first counts.
    open: Vec<usize>,
    /// Indices of the leaves that are split, in the order of their splits.
    splits: Vec<usize>,
}

impl GrowingTree {
    /// A tree of one leaf.
    pub fn new(root: GrowingLeaf, leaves_max: usize) -> GrowingTree {
        GrowingTree {
            leaves: vec![root],
            leaves_max,
            open: vec![0],
            splits: Vec::new(),
        }
    }

    /// Splits leaves in the order of their gains while their rows are divided. Returns the leaves to divide next; none
    /// once the tree is complete. With `shares_reads`, these are all that may be split, else the one that is split next.
    pub fn split_divided(&mut self, shares_reads: bool) -> Vec<usize> {
        while self.open.len() < self.leaves_max {
            let Some(position) = self.most_gaining(&self.open) else {
                break;
            };
            let leaf = self.open[position];
            let Some(parts) = self.leaves[leaf].parts else {
                return if shares_reads {
                    self.undivided_candidates()
                } else {
                    vec![leaf]
                };
            };
            self.splits.push(leaf);
            replace_by_parts(&mut self.open, position, parts);
        }
        Vec::new()
    }

    /// The undivided leaves that may be split. They are those that would be split if the parts of undivided leaves gained
    /// nothing: parts that gain something only come before others, and leave fewer splits to these. A leaf that is none
    /// of them is never split.
    fn undivided_candidates(&self) -> Vec<usize> {
        let mut open = self.open.clone();
        let mut undivided = Vec::new();
        for _ in open.len()..self.leaves_max {
            let Some(position) = self.most_gaining(&open) else {
                break;
            };
            match self.leaves[open[position]].parts {
                Some(parts) => replace_by_parts(&mut open, position, parts),
                None => undivided.push(open.remove(position)),
            }
        }
        undivided
    }

    /// Position of the leaf whose split makes the loss fall most: the first of several. `None` if no leaf can be split.
    fn most_gaining(&self, open: &[usize]) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (position, leaf) in open.iter().enumerate() {
            let Some(split) = &self.leaves[*leaf].split else {
                continue;
            };
            if best.is_none_or(|(_, gain)| split.gain > gain) {
                best = Some((position, split.gain));
            }
        }
        best.map(|(position, _)| position)
    }

    /// Adds the parts of a leaf whose rows are divided.
    pub fn add_parts(&mut self, leaf: usize, parts: [GrowingLeaf; 2]) {
        let first = self.leaves.len();
        self.leaves[leaf].parts = Some([first, first + 1]);
        self.leaves.extend(parts);
    }

    /// Takes the histograms of all leaves but some, for other leaves.
    pub fn take_histograms(&mut self, kept_leaves: &[usize], spare: &mut Vec<LeafHistograms>) {
        let mut is_kept = vec![false; self.leaves.len()];
        for leaf in kept_leaves {
            is_kept[*leaf] = true;
        }
        for (leaf, is_kept) in self.leaves.iter_mut().zip(is_kept) {
            if !is_kept && !leaf.histograms.is_empty() {
                spare.push(std::mem::take(&mut leaf.histograms));
            }
        }
    }

    /// Puts the rows of leaves that were divided, but not split, into ascending order. `buffer` is overwritten.
    pub fn restore_order(&self, rows: &mut [u32], buffer: &mut Vec<u32>) {
        let mut is_split = vec![false; self.leaves.len()];
        for leaf in &self.splits {
            is_split[*leaf] = true;
        }
        // Parts before the leaves that they are parts of.
        for (leaf, is_split) in self.leaves.iter().zip(is_split).rev() {
            if let Some([left_part, _]) = leaf.parts
                && !is_split
            {
                let leaf_rows = &mut rows[leaf.first..leaf.first + leaf.rows];
                merge_ascending(leaf_rows, self.leaves[left_part].rows, buffer);
            }
        }
    }

    /// The tree, the rows of each of its leaves, and the gains of its splits. Leaves have the values of Newton steps,
    /// times `rate`.
    pub fn finish(
        mut self,
        bins: &[FeatureBins],
        rate: f64,
    ) -> (RegressionTree, Vec<usize>, Vec<FeatureGain>) {
        let mut tree = RegressionTree::default();
        let mut leaf_rows = Vec::with_capacity(self.open.len());
        // In the order of their rows, as the rows of the tree lie leaf after leaf.
        self.open.sort_by_key(|leaf| self.leaves[*leaf].first);
        // For each leaf its number as nodes refer to it.
        let mut references = vec![0; self.leaves.len()];
        for (number, leaf) in self.open.iter().enumerate() {
            references[*leaf] = !(number as i32);
            let leaf = &self.leaves[*leaf];
            tree.leaves
                .push((leaf.sums.leaf_value(leaf.l2) * rate) as f32);
            tree.leaf_rows.push(leaf.rows as u32);
            leaf_rows.push(leaf.rows);
        }
        for (number, leaf) in self.splits.iter().enumerate() {
            references[*leaf] = number as i32;
        }
        let mut gains = Vec::with_capacity(self.splits.len());
        for leaf in &self.splits {
            let leaf = &self.leaves[*leaf];
            let Some((split, parts)) = leaf.split.as_ref().zip(leaf.parts) else {
                continue;
            };
            let rule = split_rule(&split.rule, &bins[split.feature], &mut tree.categories);
            gains.push((split.feature as u32, split.gain as f32));
            tree.nodes.push(SplitNode {
                feature: split.feature as u32,
                rule,
                missing_left: split.missing_left,
                left: references[parts[0]],
                right: references[parts[1]],
            });
        }
        (tree, leaf_rows, gains)
    }
}

fn replace_by_parts(open: &mut Vec<usize>, position: usize, parts: [usize; 2]) {
    let [left_part, right_part] = parts;
    open[position] = left_part;
    open.push(right_part);
}

/// A rule in terms of values instead of bins. Appends its ids to the categories of the tree.
fn split_rule(rule: &BinRule, bins: &FeatureBins, categories: &mut Vec<i32>) -> SplitRule {
    match rule {
        BinRule::UpTo(bin) => SplitRule::Threshold(bins.upper_bound(*bin)),
        BinRule::Among(chosen) => {
            let ids = bins.category_ids();
            let first = categories.len();
            categories.extend(chosen.iter().map(|bin| ids[*bin as usize - 1]));
            categories[first..].sort_unstable();
            SplitRule::Categories {
                first: first as u32,
                count: chosen.len() as u32,
            }
        }
    }
}

/// Merges rows of which the first `left_rows` are in ascending order, and the others, too.
fn merge_ascending(rows: &mut [u32], left_rows: usize, buffer: &mut Vec<u32>) {
    buffer.clear();
    buffer.extend_from_slice(&rows[..left_rows]);
    let mut right = left_rows;
    let mut merged = 0;
    for left_row in buffer.iter() {
        while right < rows.len() && rows[right] < *left_row {
            rows[merged] = rows[right];
            right += 1;
            merged += 1;
        }
        rows[merged] = *left_row;
        merged += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gains of the nodes of a complete tree, in the order of levels; equal ones among them.
    fn gain(node: usize) -> f64 {
        ((node * 7919 + 13) % 31) as f64
    }

    fn leaf(node: usize, first: usize, rows: usize) -> GrowingLeaf {
        let mut leaf = GrowingLeaf::new(first, rows, GradientSums::default(), 1.0);
        if rows > 1 {
            leaf.split = Some(LeafSplit {
                gain: gain(node),
                feature: node,
                rule: BinRule::UpTo(1),
                missing_left: false,
                left: GradientSums::default(),
                l2: 1.0,
            });
        }
        leaf
    }

    /// A grown tree over 256 rows, the number of its reads, and the most leaves with histograms.
    fn grown(leaves_max: usize, shares_reads: bool) -> (RegressionTree, Vec<u32>, usize, usize) {
        let mut tree = GrowingTree::new(leaf(1, 0, 256), leaves_max);
        let mut rows: Vec<u32> = (0..256).collect();
        let mut nodes = vec![1];
        let mut histograms_max = 0;
        let mut reads = 0;
        loop {
            let divided = tree.split_divided(shares_reads);
            if divided.is_empty() {
                break;
            }
            reads += 1;
            histograms_max = histograms_max.max(2 * divided.len());
            for index in divided {
                let GrowingLeaf {
                    first, rows: count, ..
                } = tree.leaves[index];
                let node = nodes[index];
                let leaf_rows = &mut rows[first..first + count];
                // Every second row goes left.
                let lefts: Vec<u32> = leaf_rows.iter().step_by(2).copied().collect();
                let rights: Vec<u32> = leaf_rows.iter().skip(1).step_by(2).copied().collect();
                leaf_rows.copy_from_slice(&[&lefts[..], &rights[..]].concat());
                let left_leaf = leaf(2 * node, first, lefts.len());
                let right_leaf = leaf(2 * node + 1, first + lefts.len(), rights.len());
                tree.add_parts(index, [left_leaf, right_leaf]);
                nodes.extend([2 * node, 2 * node + 1]);
            }
        }
        tree.restore_order(&mut rows, &mut Vec::new());
        let bounds = vec![0.5, 1.5];
        let bins = vec![FeatureBins::Numbers { bounds }; 512];
        let (tree, _, _) = tree.finish(&bins, 0.1);
        (tree, rows, reads, histograms_max)
    }

    #[test]
    fn trees_are_the_same_where_leaves_share_reads() {
        for leaves_max in [1, 2, 3, 5, 8, 13, 31, 64, 200, 256, 1000] {
            let (tree, rows, reads, _) = grown(leaves_max, false);
            assert_eq!(reads, tree.nodes.len());
            let (shared_tree, shared_rows, shared_reads, histograms_max) = grown(leaves_max, true);
            assert_eq!(shared_tree, tree, "{leaves_max} leaves");
            assert_eq!(shared_rows, rows, "{leaves_max} leaves");
            // One read a level: 256 rows are halved 8 times.
            assert!(shared_reads <= 8, "{shared_reads} reads");
            assert!(histograms_max <= leaves_max);
        }
    }

    #[test]
    fn rows_of_undivided_leaves_are_ascending() {
        let (tree, rows, _, _) = grown(31, true);
        let mut first = 0;
        for count in tree.leaf_rows {
            let end = first + count as usize;
            assert!(rows[first..end].is_sorted());
            first = end;
        }
        assert_eq!(first, 256);
    }
}
