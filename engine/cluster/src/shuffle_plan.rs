//! Distribution of a shuffle's rows over workers.

use std::ops::Range;

use forebay_model::ContentId;
use forebay_plan::{OpId, SharedSort};
use serde::{Deserialize, Serialize};

/// Distribution of the rows of some windows, or of a `dedupe`, over workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShufflePlan {
    pub id: ContentId,
    /// The windows that share the sort; none for a `dedupe`.
    pub windows: Vec<OpId>,
    /// The operation that the rows are divided for.
    pub stand: OpId,
    /// The ends of the runs of spans that one task partitions, for each side.
    pub runs: Vec<Vec<usize>>,
    /// The number of partitions; all rows of a key are in one partition.
    pub parts: usize,
    /// Ends of the groups of spans whose outputs are stored together, in ascending order.
    pub groups: Vec<usize>,
}

impl ShufflePlan {
    pub fn shared_sort(&self) -> SharedSort {
        SharedSort {
            windows: self.windows.clone(),
            stand: self.stand,
        }
    }

    /// The name of a partition's outputs for the spans of a group.
    pub fn output_name(layer: usize, group: usize, part: usize) -> String {
        format!("out-{layer}-{group}-{part}")
    }

    /// The spans of a group.
    pub fn group(&self, group: usize) -> Range<usize> {
        run_range(&self.groups, group)
    }
}

/// A run by its index, given the ends of all runs.
pub fn run_range(ends: &[usize], number: usize) -> Range<usize> {
    let begin = number
        .checked_sub(1)
        .and_then(|previous| ends.get(previous))
        .copied()
        .unwrap_or(0);
    begin..ends.get(number).copied().unwrap_or(begin)
}
