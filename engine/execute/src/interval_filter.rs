//! The rows of a sink that lie in an interval.

use std::ops::Range;

use arrow::array::{BooleanArray, RecordBatch};
use forebay_model::{BoundValue, ColumnExtent, Dataset, Fault, Result, ticks};
use forebay_plan::span_extents;

/// The rows of a sink that lie in an interval.
#[derive(Debug, Clone)]
pub struct IntervalFilter {
    /// The sink's column that holds the time.
    pub column: String,
    /// The column of the source that it is, if it is one.
    pub base: Option<String>,
    pub first: i64,
    pub last: i64,
}

impl IntervalFilter {
    /// Consecutive spans that hold all rows of the interval.
    pub fn overlapping_spans(&self, dataset: &Dataset) -> Range<usize> {
        let whole_dataset = 0..dataset.spans.len();
        let Some(extents) = self
            .base
            .as_ref()
            .and_then(|base| span_extents(dataset, base))
        else {
            return whole_dataset;
        };
        let meets = |extent: &ColumnExtent| {
            extent.max >= BoundValue::Int(self.first) && extent.min <= BoundValue::Int(self.last)
        };
        match (
            extents.iter().position(meets),
            extents.iter().rposition(meets),
        ) {
            (Some(from), Some(to)) => from..to + 1,
            _ => whole_dataset.end..whole_dataset.end,
        }
    }

    /// Marks the rows of a batch that lie in the interval.
    pub fn inside(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let column = batch
            .column_by_name(&self.column)
            .ok_or_else(|| Fault::internal("the time of a sink is gone"))?;
        let inside = |tick: Option<i64>| {
            Some(tick.is_some_and(|tick| (self.first..=self.last).contains(&tick)))
        };
        Ok(ticks(column)?.iter().map(inside).collect())
    }
}
