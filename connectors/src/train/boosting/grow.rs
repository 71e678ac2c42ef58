//! Growing a tree leaf by leaf: the leaf whose split makes the loss fall most is split next.

use std::sync::Arc;

use super::bins::FeatureBins;
use super::histogram::{Derivatives, GradientSums, fill_histogram};
use super::matrix::BinnedMatrix;
use super::split::{BinRule, LeafSplit, SplitLimits, best_split};
use super::tree::{RegressionTree, SplitNode, SplitRule};
use crate::train::gradient::for_each_parallel;

/// Values from which the features of a leaf are worth more than one thread.
const VALUES_PER_THREAD_MIN: usize = 1 << 17;

/// A leaf that may be split yet.
struct OpenLeaf {
    /// Its rows among all rows of the tree.
    first: usize,
    rows: usize,
    sums: GradientSums,
    /// What it adds to its second derivatives.
    l2: f64,
    split: Option<LeafSplit>,
    /// Of each feature.
    histograms: Vec<Vec<GradientSums>>,
    /// The node above it, and whether it is on its left.
    parent: Option<(usize, bool)>,
}

/// A tree, and which rows came to each of its leaves.
pub struct GrownTree {
    pub tree: RegressionTree,
    /// All rows, leaf after leaf; in ascending order within each.
    pub rows: Vec<u32>,
    /// How many rows of these each leaf has.
    pub leaf_rows: Vec<usize>,
}

/// Grows trees over the same rows; keeps its memory from one to the next.
pub struct TreeGrower<'a> {
    matrix: &'a BinnedMatrix,
    limits: SplitLimits,
    leaves_max: usize,
    threads: usize,
    /// Whether each feature may be split by; all may where this is not told.
    pub features: Option<Arc<[bool]>>,
    spare: Vec<Vec<Vec<GradientSums>>>,
    ordered: Vec<Derivatives>,
    right: Vec<u32>,
}

/// One feature of the two leaves of a split.
struct FeatureWork {
    small: Vec<GradientSums>,
    /// That of the leaf above, then of the larger leaf.
    large: Option<Vec<GradientSums>>,
    splits: [Option<LeafSplit>; 2],
}

impl<'a> TreeGrower<'a> {
    pub fn new(
        matrix: &'a BinnedMatrix,
        limits: SplitLimits,
        leaves_max: usize,
        threads: usize,
    ) -> TreeGrower<'a> {
        let (spare, ordered, right) = (Vec::new(), Vec::new(), Vec::new());
        TreeGrower {
            matrix,
            limits,
            leaves_max,
            threads,
            features: None,
            spare,
            ordered,
            right,
        }
    }

    /// Grows one tree. Leaves have the values of Newton steps, times `rate`.
    pub fn grow(&mut self, derivatives: &[Derivatives], rate: f64) -> GrownTree {
        let mut rows: Vec<u32> = (0..derivatives.len() as u32).collect();
        let mut tree = RegressionTree::default();
        let sums = derivatives
            .iter()
            .fold(GradientSums::default(), |sums, [first, second]| {
                sums.plus(GradientSums {
                    first: f64::from(*first),
                    second: f64::from(*second),
                    rows: 1,
                })
            });
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
            let gain = |leaf: &OpenLeaf| leaf.split.as_ref().map(|split| split.gain);
            let open = leaves
                .iter()
                .enumerate()
                .filter_map(|(number, leaf)| Some((number, gain(leaf)?)));
            let best = open.reduce(|best, next| if next.1 > best.1 { next } else { best });
            let Some((number, _)) = best else { break };
            self.split_leaf(&mut tree, &mut rows, &mut leaves, number);
            let last = leaves.len() - 1;
            self.measure(&rows, derivatives, &mut leaves, number, Some(last));
        }
        let order = |leaf: &OpenLeaf| leaf.first;
        leaves.sort_by_key(order);
        let mut leaf_rows = Vec::new();
        for (number, leaf) in leaves.into_iter().enumerate() {
            tree.leaves
                .push((leaf.sums.leaf_value(leaf.l2) * rate) as f32);
            leaf_rows.push(leaf.rows);
            if let Some((node, left)) = leaf.parent {
                let side = if left {
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
        let own = &mut rows[leaf.first..leaf.first + leaf.rows];
        self.right.clear();
        let mut kept = 0;
        for at in 0..own.len() {
            let row = own[at];
            if split.goes_left(column.values.get(row as usize)) {
                own[kept] = row;
                kept += 1;
            } else {
                self.right.push(row);
            }
        }
        own[kept..].copy_from_slice(&self.right);
        let node = tree.nodes.len();
        if let Some((parent, left)) = leaf.parent {
            let side = if left {
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
                // Above the last bound is all that has a value.
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
        tree.nodes.push(SplitNode {
            feature,
            rule,
            missing_left: split.missing_left,
            left: 0,
            right: 0,
        });
        let right = OpenLeaf {
            first: leaf.first + kept,
            rows: leaf.rows - kept,
            sums: leaf.sums.minus(split.left),
            l2: split.l2,
            split: None,
            histograms: Vec::new(),
            parent: Some((node, false)),
        };
        (leaf.rows, leaf.sums, leaf.l2, leaf.parent) =
            (kept, split.left, split.l2, Some((node, true)));
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
        let splittable = |leaf: &OpenLeaf| leaf.rows >= 2 * self.limits.leaf_rows_min as usize;
        let worth =
            splittable(&leaves[small]) || large.is_some_and(|large| splittable(&leaves[large]));
        if !worth {
            self.spare.push(parent);
            return;
        }
        let own = &rows[leaves[small].first..leaves[small].first + leaves[small].rows];
        self.ordered.clear();
        self.ordered
            .extend(own.iter().map(|row| derivatives[*row as usize]));
        let mut fresh = self
            .spare
            .pop()
            .filter(|spare| !spare.is_empty())
            .unwrap_or_else(|| {
                self.matrix
                    .columns
                    .iter()
                    .map(|column| vec![GradientSums::default(); column.bins.count()])
                    .collect()
            });
        let mut parent = parent.into_iter();
        let mut work: Vec<FeatureWork> = fresh
            .drain(..)
            .map(|small| FeatureWork {
                small,
                large: large.and_then(|_| parent.next()),
                splits: [None, None],
            })
            .collect();
        let sums = [
            leaves[small].sums,
            large.map_or(GradientSums::default(), |large| leaves[large].sums),
        ];
        let wanted = [
            splittable(&leaves[small]),
            large.is_some_and(|large| splittable(&leaves[large])),
        ];
        let (columns, limits, ordered) = (&self.matrix.columns, self.limits, &self.ordered);
        let is_taken = |feature: usize| {
            self.features
                .as_ref()
                .is_none_or(|features| features[feature])
        };
        let values = own.len() * columns.len();
        let threads = self.threads.min((values / VALUES_PER_THREAD_MIN).max(1));
        for_each_parallel(threads, &mut work, |feature, work| {
            if !is_taken(feature) {
                return;
            }
            let column = &columns[feature];
            fill_histogram(&mut work.small, &column.values, own, ordered);
            let search = |cells: &[GradientSums], total| {
                best_split(feature, &column.bins, cells, total, limits)
            };
            if wanted[0] {
                work.splits[0] = search(&work.small, sums[0]);
            }
            if let Some(large) = &mut work.large {
                large
                    .iter_mut()
                    .zip(&work.small)
                    .for_each(|(all, part)| *all = all.minus(*part));
                if wanted[1] {
                    work.splits[1] = search(large, sums[1]);
                }
            }
        });
        let mut best: [Option<LeafSplit>; 2] = [None, None];
        let (mut of_small, mut of_large) = (Vec::new(), Vec::new());
        for done in work {
            for (best, found) in best.iter_mut().zip(done.splits) {
                if let Some(found) = found
                    && best.as_ref().is_none_or(|best| found.gain > best.gain)
                {
                    *best = Some(found);
                }
            }
            of_small.push(done.small);
            of_large.extend(done.large);
        }
        let [small_split, large_split] = best;
        (leaves[small].split, leaves[small].histograms) = (small_split, of_small);
        if let Some(large) = large {
            (leaves[large].split, leaves[large].histograms) = (large_split, of_large);
        }
    }
}
