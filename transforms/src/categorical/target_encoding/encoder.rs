//! The kernel of `target_encoding`.

use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array};
use forebay_model::{Fault, Finding, Result, ticks};

use super::label_table::{LabelTable, VisibleLabels};
use super::smoothing::TargetSmoothing;
use super::statistic::TargetStatistic;
use crate::time::{PooledTable, StepBack};

/// Encodes rows by their category, and by their fold or time.
pub(super) struct LabelEncoder {
    statistic: TargetStatistic,
    smoothing: TargetSmoothing,
    back: Option<StepBack>,
    groups: PooledTable,
    categories: LabelTable,
    all_labels: LabelTable,
}

impl LabelEncoder {
    /// Sums of `whole` labels are rounded to what they are. `back` is the way from a row's time to that of its labels;
    /// without one, positions are folds.
    pub fn new(
        finding: &Finding,
        whole: bool,
        statistic: TargetStatistic,
        smoothing: TargetSmoothing,
        back: Option<StepBack>,
    ) -> Result<LabelEncoder> {
        let visible = match back {
            Some(_) => VisibleLabels::UpToTime,
            None => VisibleLabels::OtherFolds,
        };
        // The category, then the fold or time.
        let mut groups = PooledTable::new(finding, 1, 1, whole)?;
        let mut cells = std::mem::take(&mut groups.cells);
        let categories = LabelTable::new(&cells, groups.ranges(), visible);
        cells.sort_by_key(|cell| cell.time);
        let all_labels = LabelTable::new(&cells, std::iter::once(0..cells.len()), visible);
        Ok(LabelEncoder {
            statistic,
            smoothing,
            back,
            groups,
            categories,
            all_labels,
        })
    }

    /// The encodings, and marks of the categories that have no labels at all.
    pub fn encode(&self, inputs: &[ArrayRef], rows: usize) -> Result<(Float64Array, BooleanArray)> {
        let [category, position] = inputs else {
            return Err(Fault::internal(
                "an encoding received the wrong number of columns",
            ));
        };
        let groups = self
            .groups
            .find_groups(std::slice::from_ref(category), rows)?;
        let positions = ticks(position)?;
        let mut encoded = Float64Array::builder(rows);
        for (row, group) in groups.iter().enumerate() {
            if positions.is_null(row) {
                encoded.append_null();
                continue;
            }
            let position = positions.value(row);
            let position = self.back.map_or(position, |back| back.before(position));
            let of_category = self.categories.visible_to(*group, position);
            let of_all = self.all_labels.visible_to(Some(0), position);
            let number = self
                .statistic
                .of_labels(self.smoothing, of_category, of_all);
            encoded.append_option(number);
        }
        let marks: Vec<bool> = groups.iter().map(Option::is_none).collect();
        Ok((encoded.finish(), BooleanArray::from(marks)))
    }
}
