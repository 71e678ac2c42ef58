//! Labels of categories: how many, their mean and their variance.

use std::ops::Range;

use crate::time::PooledCell;

/// Moments of labels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct LabelMoments {
    pub count: f64,
    pub sum: f64,
    /// Sum of the squared distances from the mean.
    pub squares: f64,
}

impl LabelMoments {
    fn of_cell(cell: &PooledCell) -> LabelMoments {
        LabelMoments {
            count: cell.count as f64,
            sum: cell.sum,
            squares: cell.var * cell.count as f64,
        }
    }

    /// The mean; `None` without labels.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// Both together (Chan, Golub and LeVeque, 1979).
    fn merged(self, other: LabelMoments) -> LabelMoments {
        if self.count == 0.0 {
            return other;
        }
        if other.count == 0.0 {
            return self;
        }
        let count = self.count + other.count;
        let apart = other.sum / other.count - self.sum / self.count;
        let between = apart * apart * self.count * other.count / count;
        LabelMoments {
            count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares + between,
        }
    }
}

/// The labels that a row may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VisibleLabels {
    /// Those of other folds than the row's.
    OtherFolds,
    /// Those at or before a time.
    UpToTime,
}

/// Moments of groups of labels by fold or time.
pub(super) struct LabelTable {
    visible: VisibleLabels,
    /// The beginning of each group in `positions` and `moments`, and the end of the last.
    starts: Vec<usize>,
    /// Folds or times of a group, ascending and distinct.
    positions: Vec<i64>,
    /// For folds, the moments of the position; for times, those of all positions up to it.
    moments: Vec<LabelMoments>,
}

impl LabelTable {
    /// The table of groups of cells, each in the order of their positions.
    pub fn new(
        cells: &[PooledCell],
        groups: impl Iterator<Item = Range<usize>>,
        visible: VisibleLabels,
    ) -> LabelTable {
        let mut table = LabelTable {
            visible,
            starts: vec![0],
            positions: Vec::new(),
            moments: Vec::new(),
        };
        for group in groups {
            table.push_group(&cells[group]);
        }
        table
    }

    fn push_group(&mut self, cells: &[PooledCell]) {
        let mut running = LabelMoments::default();
        for same_position in cells.chunk_by(|cell, next| cell.time == next.time) {
            let mut moments = LabelMoments::default();
            for cell in same_position {
                moments = moments.merged(LabelMoments::of_cell(cell));
            }
            running = running.merged(moments);
            self.positions.push(same_position[0].time);
            self.moments.push(match self.visible {
                VisibleLabels::OtherFolds => moments,
                VisibleLabels::UpToTime => running,
            });
        }
        self.starts.push(self.positions.len());
    }

    /// Moments of the labels of a group that a row of a fold may see, or all labels up to a time.
    pub fn visible_to(&self, group: Option<u32>, position: i64) -> LabelMoments {
        let Some(group) = group.map(|group| group as usize) else {
            return LabelMoments::default();
        };
        let Some([start, end]) = self.starts.get(group..group + 2) else {
            return LabelMoments::default();
        };
        let positions = &self.positions[*start..*end];
        let moments = &self.moments[*start..*end];
        match self.visible {
            VisibleLabels::UpToTime => {
                let seen = positions.partition_point(|earlier| *earlier <= position);
                let last = seen.checked_sub(1).and_then(|last| moments.get(last));
                last.copied().unwrap_or_default()
            }
            VisibleLabels::OtherFolds => {
                let mut others = LabelMoments::default();
                for (fold, moments) in positions.iter().zip(moments) {
                    if *fold != position {
                        others = others.merged(*moments);
                    }
                }
                others
            }
        }
    }
}
