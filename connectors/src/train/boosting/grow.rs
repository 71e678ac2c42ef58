//! Growing a tree leaf by leaf: the leaf whose split makes the loss fall most is split next.

use std::sync::Arc;

use super::bins::FeatureBins;
use super::histogram::{Derivatives, GradientSums, fill_histogram};
use super::matrix::{BinnedColumn, BinnedMatrix};
use super::split::{BinRule, LeafSplit, SplitLimits, best_split};
use super::tree::{RegressionTree, SplitNode, SplitRule};
use crate::train::parallel::for_each_parallel;

/// Values from which the features of a leaf are worth more than one thread.
const VALUES_PER_THREAD_MIN: usize = 1 << 17;

/// A leaf that may be split yet.
struct OpenLeaf {
    /// Number of its first row among all rows of the tree.
    first: usize,
    rows: usize,
    sums: GradientSums,
    /// Addend to its second derivatives.
    l2: f64,
    split: Option<LeafSplit>,
    /// Histogram of each feature.
    histograms: Vec<Vec<GradientSums>>,
    /// The node above it, and whether it is on its left.
    parent: Option<(usize, bool)>,
}

impl OpenLeaf {
    /// The leaf's rows, of all rows of the tree.
    fn rows_of<'r>(&self, rows: &'r [u32]) -> &'r [u32] {
        &rows[self.first..self.first + self.rows]
    }
}

/// A tree, and the rows of each of its leaves.
pub struct GrownTree {
    pub tree: RegressionTree,
    /// All rows, leaf after leaf; in ascending order within each.
    pub rows: Vec<u32>,
    /// Number of these rows in each leaf.
    pub leaf_rows: Vec<usize>,
    /// The feature of each node, and the loss that its split took away.
    pub gains: Vec<FeatureGain>,
}

/// A feature, and the loss that a split by it took away.
pub type FeatureGain = (u32, f32);

/// Grows trees over the same rows; keeps its memory from one to the next.
pub struct TreeGrower<'a> {
    matrix: &'a BinnedMatrix,
    limits: SplitLimits,
    leaves_max: usize,
    threads: usize,
    /// For each feature, true if it may be split by; `None` if all may.
    pub features: Option<Arc<[bool]>>,
    spare: Vec<Vec<Vec<GradientSums>>>,
    ordered: Vec<Derivatives>,
    right: Vec<u32>,
    /// Gains of the nodes of the tree that grows.
    gains: Vec<FeatureGain>,
}

/// Work on one feature of the two leaves of a split.
struct FeatureWork {
    small: Vec<GradientSums>,
    /// Histogram of the leaf above, then of the larger leaf.
    large: Option<Vec<GradientSums>>,
    splits: [Option<LeafSplit>; 2],
}

/// The two leaves of a split while their histograms are filled, or one leaf alone.
struct LeafPair<'m> {
    columns: &'m [BinnedColumn],
    limits: SplitLimits,
    small_rows: &'m [u32],
    /// Of `small_rows`, element by element.
    small_derivatives: &'m [Derivatives],
    /// Of the smaller and of the larger leaf.
    sums: [GradientSums; 2],
    /// True for a leaf whose best split is asked for.
    is_searched: [bool; 2],
}

impl LeafPair<'_> {
    /// Fills the histograms of a feature, and finds its best split of each leaf.
    fn measure_feature(&self, feature: usize, work: &mut FeatureWork) {
        let column = &self.columns[feature];
        fill_histogram(
            &mut work.small,
            &column.values,
            self.small_rows,
            self.small_derivatives,
        );
        if self.is_searched[0] {
            work.splits[0] = self.best_split(feature, &work.small, 0);
        }
        let Some(large) = &mut work.large else {
            return;
        };
        for (cell, part) in large.iter_mut().zip(&work.small) {
            *cell = cell.minus(*part);
        }
        if self.is_searched[1] {
            work.splits[1] = self.best_split(feature, large, 1);
        }
    }

    fn best_split(&self, feature: usize, cells: &[GradientSums], leaf: usize) -> Option<LeafSplit> {
        let bins = &self.columns[feature].bins;
        best_split(feature, bins, cells, self.sums[leaf], self.limits)
    }
}

impl<'a> TreeGrower<'a> {
    pub fn new(
        matrix: &'a BinnedMatrix,
        limits: SplitLimits,
        leaves_max: usize,
        threads: usize,
    ) -> TreeGrower<'a> {
        let spare = Vec::new();
        let ordered = Vec::new();
        let right = Vec::new();
        let gains = Vec::new();
        TreeGrower {
            matrix,
            limits,
            leaves_max,
            threads,
            features: None,
            spare,
            ordered,
            right,
            gains,
        }
    }

    /// Grows one tree. Leaves have the values of Newton steps, times `rate`.
    pub fn grow(&mut self, derivatives: &[Derivatives], rate: f64) -> GrownTree {
        let mut rows: Vec<u32> = (0..derivatives.len() as u32).collect();
        let mut tree = RegressionTree::default();
        let mut sums = GradientSums::default();
        for [first, second] in derivatives {
            sums = sums.plus(GradientSums {
                first: f64::from(*first),
                second: f64::from(*second),
                rows: 1,
            });
        }
        let root = OpenLeaf {
            first: 0,
            rows: rows.len(),
            sums,
            l2: self.limits.l2,
            split: None,
            histograms: Vec::new(),
            parent: None,
        };
        let mut leaves = vec![root];
        self.measure(&rows, derivatives, &mut leaves, 0, None);
        while leaves.len() < self.leaves_max {
            let Some(number) = most_gaining_leaf(&leaves) else {
                break;
            };
            self.split_leaf(&mut tree, &mut rows, &mut leaves, number);
            let last = leaves.len() - 1;
            self.measure(&rows, derivatives, &mut leaves, number, Some(last));
        }
        // In the order of their rows, as the rows of the tree lie leaf after leaf.
        leaves.sort_by_key(|leaf| leaf.first);
        let mut leaf_rows = Vec::new();
        for (number, leaf) in leaves.into_iter().enumerate() {
            let value = leaf.sums.leaf_value(leaf.l2) * rate;
            tree.leaves.push(value as f32);
            tree.leaf_rows.push(leaf.rows as u32);
            leaf_rows.push(leaf.rows);
            if let Some((node, is_left)) = leaf.parent {
                let side = if is_left {
                    &mut tree.nodes[node].left
                } else {
                    &mut tree.nodes[node].right
                };
                *side = !(number as i32);
            }
            self.spare.push(leaf.histograms);
        }
        GrownTree {
            tree,
            rows,
            leaf_rows,
            gains: std::mem::take(&mut self.gains),
        }
    }

    /// Divides a leaf: its left part takes its place, the right one comes last.
    fn split_leaf(
        &mut self,
        tree: &mut RegressionTree,
        rows: &mut [u32],
        leaves: &mut Vec<OpenLeaf>,
        number: usize,
    ) {
        let leaf = &mut leaves[number];
        let Some(split) = leaf.split.take() else {
            return;
        };
        let column = &self.matrix.columns[split.feature];
        let leaf_rows = &mut rows[leaf.first..leaf.first + leaf.rows];
        self.right.clear();
        // A stable partition: rows of a leaf stay in ascending order, in which they are summed.
        let mut left_rows = 0;
        for at in 0..leaf_rows.len() {
            let row = leaf_rows[at];
            if split.goes_left(column.values.get(row as usize)) {
                leaf_rows[left_rows] = row;
                left_rows += 1;
            } else {
                self.right.push(row);
            }
        }
        leaf_rows[left_rows..].copy_from_slice(&self.right);
        let node = tree.nodes.len();
        if let Some((parent, is_left)) = leaf.parent {
            let side = if is_left {
                &mut tree.nodes[parent].left
            } else {
                &mut tree.nodes[parent].right
            };
            *side = node as i32;
        }
        let rule = match (&split.rule, &column.bins) {
            (BinRule::Among(bins), FeatureBins::Categories { ids, .. }) => {
                let first = tree.categories.len();
                tree.categories
                    .extend(bins.iter().map(|bin| ids[*bin as usize - 1]));
                tree.categories[first..].sort_unstable();
                SplitRule::Categories {
                    first: first as u32,
                    count: bins.len() as u32,
                }
            }
            (BinRule::UpTo(bin), FeatureBins::Numbers { bounds }) => {
                // The last bin has no upper bound.
                SplitRule::Threshold(
                    bounds
                        .get(*bin as usize - 1)
                        .copied()
                        .unwrap_or(f32::INFINITY),
                )
            }
            _ => return,
        };
        let feature = split.feature as u32;
        self.gains.push((feature, split.gain as f32));
        tree.nodes.push(SplitNode {
            feature,
            rule,
            missing_left: split.missing_left,
            left: 0,
            right: 0,
        });
        let right = OpenLeaf {
            first: leaf.first + left_rows,
            rows: leaf.rows - left_rows,
            sums: leaf.sums.minus(split.left),
            l2: split.l2,
            split: None,
            histograms: Vec::new(),
            parent: Some((node, false)),
        };
        (leaf.rows, leaf.sums, leaf.l2, leaf.parent) =
            (left_rows, split.left, split.l2, Some((node, true)));
        leaves.push(right);
    }

    /// Finds the best splits of a leaf, or of two whose histograms add up to those that the first one has. Features
    /// are independent of each other, and each is summed in the order of rows: threads change no bit.
    fn measure(
        &mut self,
        rows: &[u32],
        derivatives: &[Derivatives],
        leaves: &mut [OpenLeaf],
        first: usize,
        second: Option<usize>,
    ) {
        let (small, large) = match second {
            Some(second) if leaves[second].rows < leaves[first].rows => (second, Some(first)),
            Some(second) => (first, Some(second)),
            None => (first, None),
        };
        let parent = std::mem::take(&mut leaves[first].histograms);
        let is_searched = [
            self.is_splittable(&leaves[small]),
            large.is_some_and(|large| self.is_splittable(&leaves[large])),
        ];
        if is_searched == [false, false] {
            self.spare.push(parent);
            return;
        }
        // Only the smaller leaf is summed; the larger one is its parent minus the smaller one
        // (decisions/boosted-trees.md).
        let mut parent_histograms = parent.into_iter();
        let mut work = Vec::new();
        for histogram in self.spare_histograms() {
            work.push(FeatureWork {
                small: histogram,
                large: large.and_then(|_| parent_histograms.next()),
                splits: [None, None],
            });
        }
        let small_rows = leaves[small].rows_of(rows);
        self.ordered.clear();
        self.ordered
            .extend(small_rows.iter().map(|row| derivatives[*row as usize]));
        let pair = LeafPair {
            columns: &self.matrix.columns,
            limits: self.limits,
            small_rows,
            small_derivatives: &self.ordered,
            sums: [
                leaves[small].sums,
                large.map_or(GradientSums::default(), |large| leaves[large].sums),
            ],
            is_searched,
        };
        let features = self.features.as_deref();
        let values = small_rows.len() * work.len();
        let threads = self.threads.min((values / VALUES_PER_THREAD_MIN).max(1));
        for_each_parallel(threads, &mut work, |feature, work| {
            if features.is_none_or(|features| features[feature]) {
                pair.measure_feature(feature, work);
            }
        });
        let mut best: [Option<LeafSplit>; 2] = [None, None];
        let mut small_histograms = Vec::new();
        let mut large_histograms = Vec::new();
        // In the order of features: ties do not depend on threads.
        for done in work {
            for (best, split) in best.iter_mut().zip(done.splits) {
                keep_better(best, split);
            }
            small_histograms.push(done.small);
            large_histograms.extend(done.large);
        }
        let [small_split, large_split] = best;
        leaves[small].split = small_split;
        leaves[small].histograms = small_histograms;
        if let Some(large) = large {
            leaves[large].split = large_split;
            leaves[large].histograms = large_histograms;
        }
    }

    /// True for a leaf that both sides of a split can be made of.
    fn is_splittable(&self, leaf: &OpenLeaf) -> bool {
        leaf.rows >= 2 * self.limits.leaf_rows_min as usize
    }

    /// A histogram for each feature; their values are those of an earlier leaf.
    fn spare_histograms(&mut self) -> Vec<Vec<GradientSums>> {
        // A leaf that was never measured leaves an empty list.
        if let Some(spare) = self.spare.pop()
            && !spare.is_empty()
        {
            return spare;
        }
        let columns = self.matrix.columns.iter();
        columns
            .map(|column| vec![GradientSums::default(); column.bins.count()])
            .collect()
    }
}

/// The leaf whose split makes the loss fall most: the first of several. `None` if no leaf can be split.
fn most_gaining_leaf(leaves: &[OpenLeaf]) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (number, leaf) in leaves.iter().enumerate() {
        let Some(split) = &leaf.split else {
            continue;
        };
        if best.is_none_or(|(_, gain)| split.gain > gain) {
            best = Some((number, split.gain));
        }
    }
    best.map(|(number, _)| number)
}

/// Replaces a split by one that gains more.
fn keep_better(best: &mut Option<LeafSplit>, split: Option<LeafSplit>) {
    let Some(split) = split else {
        return;
    };
    if best.as_ref().is_none_or(|best| split.gain > best.gain) {
        *best = Some(split);
    }
}
