//! The best split of the rows of a leaf by one feature.

use super::bins::{CATEGORY_ROWS_MIN, FeatureBins, ONE_HOT_CATEGORIES_MAX};
use super::histogram::GradientSums;

/// Second derivatives of a leaf at least, in sum.
const SECOND_MIN: f64 = 1e-3;

/// Addend to the second derivatives of categories: it moves those of few rows to the middle of
/// their order.
const CATEGORY_SMOOTHING: f64 = 10.0;

/// Addend to the second derivatives of leaves below a split of categories, in addition to `l2`.
const CATEGORY_L2: f64 = 10.0;

/// Categories on the smaller side of a split at most.
const CATEGORY_SIDE_MAX: usize = 32;

/// Rows by which the sides of two candidate splits of categories differ at least.
const CATEGORY_GROUP_ROWS_MIN: u32 = 100;

/// Conditions that a split must satisfy.
#[derive(Debug, Clone, Copy)]
pub struct SplitLimits {
    /// Rows of a leaf at least.
    pub leaf_rows_min: u32,
    /// Added to the second derivatives of a leaf.
    pub l2: f64,
}

/// The rows that go left.
#[derive(Debug, Clone, PartialEq)]
pub enum BinRule {
    /// Bins from 1 to this one, inclusive; bin 0 as `missing_left` says.
    UpTo(u16),
    /// The listed bins, sorted.
    Among(Vec<u16>),
}

/// A split of the rows of a leaf.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafSplit {
    /// Twice the decrease of the loss.
    pub gain: f64,
    pub feature: usize,
    pub rule: BinRule,
    pub missing_left: bool,
    pub left: GradientSums,
    /// Addend of this split's leaves to second derivatives.
    pub l2: f64,
}

impl LeafSplit {
    pub fn goes_left(&self, bin: u16) -> bool {
        match &self.rule {
            BinRule::UpTo(last) => {
                if bin == 0 {
                    self.missing_left
                } else {
                    bin <= *last
                }
            }
            BinRule::Among(bins) => bins.binary_search(&bin).is_ok(),
        }
    }
}

/// The best split by a feature. Of equal ones, it is the first.
pub fn best_split(
    feature: usize,
    bins: &FeatureBins,
    cells: &[GradientSums],
    total: GradientSums,
    limits: SplitLimits,
) -> Option<LeafSplit> {
    let mut search = SplitSearch {
        feature,
        cells,
        total,
        limits,
        best: None,
    };
    match bins {
        FeatureBins::Numbers { .. } => search.by_number(),
        FeatureBins::Categories { ids, .. } if ids.len() <= ONE_HOT_CATEGORIES_MAX => {
            search.one_category()
        }
        FeatureBins::Categories { .. } => search.by_category(),
    }
    search.best
}

struct SplitSearch<'a> {
    feature: usize,
    cells: &'a [GradientSums],
    total: GradientSums,
    limits: SplitLimits,
    best: Option<LeafSplit>,
}

impl SplitSearch<'_> {
    fn by_number(&mut self) {
        let missing = self.cells[0];
        let last = self.cells.len() - 1;
        let l2 = self.limits.l2;
        let mut sum = GradientSums::default();
        for bin in 1..=last {
            if self.cells[bin].rows == 0 && bin < last {
                continue;
            }
            sum = sum.plus(self.cells[bin]);
            if missing.rows == 0 {
                if bin < last {
                    // Rows without a value go where most rows do.
                    let most_left = sum.rows > self.total.rows - sum.rows;
                    self.consider(sum, l2, most_left, || BinRule::UpTo(bin as u16));
                }
                continue;
            }
            self.consider(sum, l2, false, || BinRule::UpTo(bin as u16));
            if bin < last {
                self.consider(sum.plus(missing), l2, true, || BinRule::UpTo(bin as u16));
            }
        }
    }

    fn one_category(&mut self) {
        for bin in 1..self.cells.len() {
            self.consider(self.cells[bin], self.limits.l2, false, || {
                BinRule::Among(vec![bin as u16])
            });
        }
    }

    /// Orders categories by the value of their leaf, and searches splits of that order from both
    /// ends.
    fn by_category(&mut self) {
        let frequent = |bin: &u16| self.cells[*bin as usize].rows as usize >= CATEGORY_ROWS_MIN;
        let mut order: Vec<u16> = (1..self.cells.len() as u16).filter(frequent).collect();
        let rank = |bin: u16| {
            let cell = self.cells[bin as usize];
            cell.first / (cell.second + CATEGORY_SMOOTHING)
        };
        order.sort_by(|a, b| rank(*a).total_cmp(&rank(*b)));
        let side_max = CATEGORY_SIDE_MAX.min(order.len().div_ceil(2));
        let l2 = self.limits.l2 + CATEGORY_L2;
        for from_end in [false, true] {
            let mut sum = GradientSums::default();
            let mut since_last = 0;
            for taken_bins in 1..=side_max {
                let bin = if from_end {
                    order[order.len() - taken_bins]
                } else {
                    order[taken_bins - 1]
                };
                sum = sum.plus(self.cells[bin as usize]);
                since_last += self.cells[bin as usize].rows;
                let right = self.total.rows - sum.rows;
                if right < self.limits.leaf_rows_min.max(CATEGORY_GROUP_ROWS_MIN) {
                    break;
                }
                if since_last < CATEGORY_GROUP_ROWS_MIN {
                    continue;
                }
                since_last = 0;
                let side = if from_end {
                    &order[order.len() - taken_bins..]
                } else {
                    &order[..taken_bins]
                };
                self.consider(sum, l2, false, || {
                    let mut bins = side.to_vec();
                    bins.sort_unstable();
                    BinRule::Among(bins)
                });
            }
        }
    }

    fn consider(
        &mut self,
        left_sums: GradientSums,
        l2: f64,
        missing_left: bool,
        rule: impl FnOnce() -> BinRule,
    ) {
        let right = self.total.minus(left_sums);
        let rows_min = self.limits.leaf_rows_min;
        if left_sums.rows < rows_min
            || right.rows < rows_min
            || left_sums.second < SECOND_MIN
            || right.second < SECOND_MIN
        {
            return;
        }
        let score_before = self.total.score(self.limits.l2);
        let gain = left_sums.score(l2) + right.score(l2) - score_before;
        if gain > score_before * 1e-12 && self.best.as_ref().is_none_or(|best| gain > best.gain) {
            self.best = Some(LeafSplit {
                gain,
                feature: self.feature,
                rule: rule(),
                missing_left,
                left: left_sums,
                l2,
            });
        }
    }
}
