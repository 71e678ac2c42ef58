//! Growing a tree leaf by leaf: the leaf whose split makes the loss fall most is split next.
//!
//! The rows of leaves are divided, and the histograms of their parts filled, while blocks of bins are read. Each sum is
//! added up in the order of rows, so that neither blocks nor threads change a bit.

use std::ops::Range;
use std::sync::Arc;

use forebay_model::Result;

use super::bin_blocks::{BinBlock, BinBlocks};
use super::bins::FeatureBins;
pub use super::growing_tree::FeatureGain;
use super::growing_tree::{GrowingLeaf, GrowingTree, LeafHistograms};
use super::histogram::{Derivatives, GradientSums, add_to_histogram};
use super::split::{LeafSplit, SplitLimits, best_split};
use super::tree::RegressionTree;
use crate::parallel::for_each_parallel;

/// Values from which the features of a leaf are worth more than one thread.
const VALUES_PER_THREAD_MIN: usize = 1 << 17;

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

/// Grows trees over the same rows; keeps its memory from one to the next.
pub struct TreeGrower<'a> {
    blocks: &'a dyn BinBlocks,
    limits: SplitLimits,
    leaves_max: usize,
    threads: usize,
    /// For each feature, true if it may be split by; `None` if all may.
    pub features: Option<Arc<[bool]>>,
    spare: Vec<LeafHistograms>,
    ordered: Vec<Derivatives>,
    right: Vec<u32>,
}

/// A leaf while its rows are divided and the histograms of its parts are filled.
struct LeafDivision {
    /// Index of the leaf in its tree.
    leaf: usize,
    /// The leaf's rows, of all rows of the tree.
    first: usize,
    rows: usize,
    /// `None` of the leaf of all rows, which is measured as it is.
    split: Option<LeafSplit>,
    /// Rows of the leaf in the blocks so far; those of them that go left, and those that go right.
    taken: usize,
    left: usize,
    right: usize,
    is_left_small: bool,
    /// Of the smaller and of the larger part.
    sums: [GradientSums; 2],
    /// True for a part whose best split is asked for.
    is_searched: [bool; 2],
    /// The block's rows of the smaller part: among those that go right, or else among the rows of the tree.
    small: Range<usize>,
    /// Positions of the derivatives of these rows among the ordered ones.
    ordered: Range<usize>,
}

/// Histograms of one feature for the parts of a leaf.
struct PartHistograms {
    small: Vec<GradientSums>,
    /// Histogram of the leaf, then of the larger part.
    large: Option<Vec<GradientSums>>,
    splits: [Option<LeafSplit>; 2],
}

/// One feature of a block.
struct FeatureBlock<'b> {
    feature: usize,
    bins: &'b FeatureBins,
    block: BinBlock<'b>,
    is_last: bool,
    limits: SplitLimits,
}

impl LeafDivision {
    fn is_measured(&self) -> bool {
        self.is_searched != [false, false]
    }

    /// Divides the leaf's rows in a block. Those that go left follow each other from its first row on, the others in
    /// `right`: rows stay in ascending order, in which they are summed.
    fn divide_block(&mut self, block: BinBlock<'_>, rows: &mut [u32], right: &mut [u32]) {
        let leaf_rows = &mut rows[self.first..self.first + self.rows];
        let block_end = block.first + block.rows;
        let block_rows = leaf_rows[self.taken..].partition_point(|row| (*row as usize) < block_end);
        let begin = self.taken;
        self.taken += block_rows;
        let Some(split) = &self.split else {
            self.small = self.first + begin..self.first + self.taken;
            return;
        };
        let column = &block.columns[split.feature];
        let right_rows = &mut right[self.first..self.first + self.rows];
        let left_begin = self.left;
        let right_begin = self.right;
        for at in begin..self.taken {
            let row = leaf_rows[at];
            if split.goes_left(column.get(row as usize - block.first)) {
                leaf_rows[self.left] = row;
                self.left += 1;
            } else {
                right_rows[self.right] = row;
                self.right += 1;
            }
        }
        self.small = if self.is_left_small {
            self.first + left_begin..self.first + self.left
        } else {
            self.first + right_begin..self.first + self.right
        };
    }

    /// The rows of the smaller part in the latest block.
    fn small_rows<'r>(&self, rows: &'r [u32], right: &'r [u32]) -> &'r [u32] {
        let is_in_rows = self.split.is_none() || self.is_left_small;
        let part_rows = if is_in_rows { rows } else { right };
        &part_rows[self.small.clone()]
    }

    /// Finds the best split of each part by a feature, once the histogram of the smaller one is filled.
    fn find_splits(&self, feature: &FeatureBlock<'_>, histograms: &mut PartHistograms) {
        if self.is_searched[0] {
            histograms.splits[0] = self.best_split(feature, &histograms.small, 0);
        }
        let Some(large) = &mut histograms.large else {
            return;
        };
        // Only the smaller part is summed; the larger one is the leaf minus the smaller one
        // (decisions/boosted-trees.md).
        for (cell, small) in large.iter_mut().zip(&histograms.small) {
            *cell = cell.minus(*small);
        }
        if self.is_searched[1] {
            histograms.splits[1] = self.best_split(feature, large, 1);
        }
    }

    fn best_split(
        &self,
        feature: &FeatureBlock<'_>,
        cells: &[GradientSums],
        part: usize,
    ) -> Option<LeafSplit> {
        let FeatureBlock { bins, limits, .. } = *feature;
        best_split(feature.feature, bins, cells, self.sums[part], limits)
    }
}

impl FeatureBlock<'_> {
    /// Adds the block to the histograms of the smaller part of a leaf.
    fn measure(
        &self,
        division: &LeafDivision,
        histograms: &mut PartHistograms,
        rows: &[u32],
        derivatives: &[Derivatives],
    ) {
        if self.block.first == 0 {
            histograms.small.fill(GradientSums::default());
        }
        add_to_histogram(
            &mut histograms.small,
            &self.block.columns[self.feature],
            self.block.first,
            rows,
            derivatives,
        );
        if self.is_last {
            division.find_splits(self, histograms);
        }
    }
}

impl<'a> TreeGrower<'a> {
    pub fn new(
        blocks: &'a dyn BinBlocks,
        limits: SplitLimits,
        leaves_max: usize,
        threads: usize,
    ) -> TreeGrower<'a> {
        TreeGrower {
            blocks,
            limits,
            leaves_max,
            threads,
            features: None,
            spare: Vec::new(),
            ordered: Vec::new(),
            right: Vec::new(),
        }
    }

    /// Grows one tree. Leaves have the values of Newton steps, times `rate`.
    pub fn grow(&mut self, derivatives: &[Derivatives], rate: f64) -> Result<GrownTree> {
        let mut rows: Vec<u32> = (0..derivatives.len() as u32).collect();
        let mut sums = GradientSums::default();
        for [first, second] in derivatives {
            sums = sums.plus(GradientSums {
                first: f64::from(*first),
                second: f64::from(*second),
                rows: 1,
            });
        }
        let root = GrowingLeaf::new(0, rows.len(), sums, self.limits.l2);
        let mut tree = GrowingTree::new(root, self.leaves_max);
        self.right.resize(rows.len(), 0);
        if self.is_splittable(rows.len()) {
            let divisions = vec![self.division_of_all(&tree)];
            self.divide(&mut tree, &mut rows, derivatives, divisions)?;
        }
        let shares_reads = self.blocks.shares_reads();
        loop {
            let leaves = tree.split_divided(shares_reads);
            if leaves.is_empty() {
                break;
            }
            if shares_reads {
                // No other leaf is divided any more: there are no more histograms than leaves of a tree.
                tree.take_histograms(&leaves, &mut self.spare);
            }
            let mut divisions = Vec::with_capacity(leaves.len());
            for leaf in leaves {
                divisions.extend(self.division(&mut tree, leaf));
            }
            self.divide(&mut tree, &mut rows, derivatives, divisions)?;
        }
        tree.restore_order(&mut rows, &mut self.right);
        tree.take_histograms(&[], &mut self.spare);
        let (tree, leaf_rows, gains) = tree.finish(self.blocks.bins(), rate);
        Ok(GrownTree {
            tree,
            rows,
            leaf_rows,
            gains,
        })
    }

    /// The leaf of all rows, which is measured.
    fn division_of_all(&self, tree: &GrowingTree) -> LeafDivision {
        let root = &tree.leaves[0];
        LeafDivision {
            leaf: 0,
            first: root.first,
            rows: root.rows,
            split: None,
            taken: 0,
            left: 0,
            right: 0,
            is_left_small: true,
            sums: [root.sums, GradientSums::default()],
            is_searched: [true, false],
            small: 0..0,
            ordered: 0..0,
        }
    }

    /// A leaf that is divided by its best split.
    fn division(&self, tree: &mut GrowingTree, leaf_index: usize) -> Option<LeafDivision> {
        let leaf = &mut tree.leaves[leaf_index];
        let split = leaf.split.take()?;
        let left_sums = split.left;
        let right_sums = leaf.sums.minus(left_sums);
        let left_rows = left_sums.rows as usize;
        let right_rows = leaf.rows - left_rows;
        let is_left_small = left_rows <= right_rows;
        let left_searched = self.is_splittable(left_rows);
        let right_searched = self.is_splittable(right_rows);
        let mut sums = [left_sums, right_sums];
        let mut is_searched = [left_searched, right_searched];
        if !is_left_small {
            sums.reverse();
            is_searched.reverse();
        }
        Some(LeafDivision {
            leaf: leaf_index,
            first: leaf.first,
            rows: leaf.rows,
            split: Some(split),
            taken: 0,
            left: 0,
            right: 0,
            is_left_small,
            sums,
            is_searched,
            small: 0..0,
            ordered: 0..0,
        })
    }

    /// Divides the rows of leaves in one read, and finds the best splits of their parts. Features are independent of each
    /// other, and each is summed in the order of rows: threads change no bit.
    fn divide(
        &mut self,
        tree: &mut GrowingTree,
        rows: &mut [u32],
        derivatives: &[Derivatives],
        mut divisions: Vec<LeafDivision>,
    ) -> Result<()> {
        let mut histograms = self.part_histograms(tree, &divisions);
        let blocks = self.blocks;
        blocks.read(&mut |block| {
            self.divide_block(block, rows, derivatives, &mut divisions, &mut histograms);
            Ok(())
        })?;
        let leaves = divisions.len();
        for (number, division) in divisions.into_iter().enumerate() {
            let of_leaf = histograms.iter_mut().skip(number).step_by(leaves);
            self.add_parts(tree, rows, division, of_leaf);
        }
        Ok(())
    }

    /// Histograms to fill, feature after feature, and within each leaf after leaf.
    fn part_histograms(
        &mut self,
        tree: &mut GrowingTree,
        divisions: &[LeafDivision],
    ) -> Vec<PartHistograms> {
        let mut sets = Vec::with_capacity(divisions.len());
        for division in divisions {
            let of_leaf = std::mem::take(&mut tree.leaves[division.leaf].histograms);
            if division.is_measured() {
                sets.push((self.spare_histograms().into_iter(), of_leaf.into_iter()));
            } else {
                self.spare.push(of_leaf);
                sets.push((Vec::new().into_iter(), Vec::new().into_iter()));
            }
        }
        let features = self.blocks.bins().len();
        let mut histograms = Vec::with_capacity(features * divisions.len());
        for _ in 0..features {
            for (small, large) in &mut sets {
                histograms.push(PartHistograms {
                    small: small.next().unwrap_or_default(),
                    large: large.next(),
                    splits: [None, None],
                });
            }
        }
        histograms
    }

    /// Divides the rows of leaves in a block, and adds it to the histograms.
    fn divide_block(
        &mut self,
        block: BinBlock<'_>,
        rows: &mut [u32],
        derivatives: &[Derivatives],
        divisions: &mut [LeafDivision],
        histograms: &mut [PartHistograms],
    ) {
        self.ordered.clear();
        for division in divisions.iter_mut() {
            division.divide_block(block, rows, &mut self.right);
            if !division.is_measured() {
                continue;
            }
            let begin = self.ordered.len();
            let small_rows = division.small_rows(rows, &self.right).iter();
            self.ordered
                .extend(small_rows.map(|row| derivatives[*row as usize]));
            division.ordered = begin..self.ordered.len();
        }
        let divisions = &*divisions;
        let rows = &*rows;
        let right = &self.right;
        let ordered = &self.ordered;
        let bins = self.blocks.bins();
        let limits = self.limits;
        let is_last = block.first + block.rows == self.blocks.rows();
        let features = self.features.as_deref();
        let values = ordered.len() * bins.len();
        let threads = self.threads.min((values / VALUES_PER_THREAD_MIN).max(1));
        let mut by_feature: Vec<&mut [PartHistograms]> =
            histograms.chunks_mut(divisions.len()).collect();
        for_each_parallel(threads, &mut by_feature, |feature, of_leaves| {
            if features.is_some_and(|features| !features[feature]) {
                return;
            }
            let feature_block = FeatureBlock {
                feature,
                bins: &bins[feature],
                block,
                is_last,
                limits,
            };
            for (division, of_leaf) in divisions.iter().zip(of_leaves.iter_mut()) {
                if division.is_measured() {
                    let small_rows = division.small_rows(rows, right);
                    let small_derivatives = &ordered[division.ordered.clone()];
                    feature_block.measure(division, of_leaf, small_rows, small_derivatives);
                }
            }
        });
    }

    /// Adds the parts of a divided leaf to the tree. `histograms` are those of its parts, feature after feature.
    fn add_parts<'h>(
        &mut self,
        tree: &mut GrowingTree,
        rows: &mut [u32],
        division: LeafDivision,
        histograms: impl Iterator<Item = &'h mut PartHistograms>,
    ) {
        let mut best: [Option<LeafSplit>; 2] = [None, None];
        let mut small_histograms = Vec::new();
        let mut large_histograms = Vec::new();
        // In the order of features: ties do not depend on threads.
        for of_feature in histograms {
            for (best, split) in best.iter_mut().zip(&mut of_feature.splits) {
                keep_better(best, split.take());
            }
            if division.is_measured() {
                small_histograms.push(std::mem::take(&mut of_feature.small));
                large_histograms.extend(of_feature.large.take());
            }
        }
        let [small_split, large_split] = best;
        let leaf = &mut tree.leaves[division.leaf];
        let Some(split) = division.split else {
            leaf.split = small_split;
            leaf.histograms = small_histograms;
            return;
        };
        let right_first = division.first + division.left;
        let right_end = division.first + division.right;
        rows[right_first..right_first + division.right]
            .copy_from_slice(&self.right[division.first..right_end]);
        let right_sums = leaf.sums.minus(split.left);
        let left_part = GrowingLeaf::new(division.first, division.left, split.left, split.l2);
        let right_part = GrowingLeaf::new(right_first, division.right, right_sums, split.l2);
        // The nodes of the tree are made of the splits.
        leaf.split = Some(split);
        let mut parts = [left_part, right_part];
        let small = usize::from(!division.is_left_small);
        parts[small].split = small_split;
        parts[small].histograms = small_histograms;
        parts[1 - small].split = large_split;
        parts[1 - small].histograms = large_histograms;
        tree.add_parts(division.leaf, parts);
    }

    /// True for a leaf with enough rows for both sides of a split.
    fn is_splittable(&self, rows: usize) -> bool {
        rows >= 2 * self.limits.leaf_rows_min as usize
    }

    /// A histogram for each feature; their values are those of an earlier leaf.
    fn spare_histograms(&mut self) -> LeafHistograms {
        // A leaf that was never measured leaves an empty list.
        if let Some(spare) = self.spare.pop()
            && !spare.is_empty()
        {
            return spare;
        }
        let bins = self.blocks.bins().iter();
        bins.map(|bins| vec![GradientSums::default(); bins.count()])
            .collect()
    }
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
