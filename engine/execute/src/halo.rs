//! Halos: the earlier spans whose rows windows reach.

use std::ops::{Range, RangeInclusive};

use forebay_model::{BoundValue, ColumnExtent};

/// The extents of spans, and the distances at which rows affect each other.
#[derive(Debug)]
pub struct HaloIndex {
    /// The extent of each span in the column that measures distances. No span starts before the end of the span before
    /// it.
    extents: Vec<ColumnExtent>,
    /// The distances of all windows together, ascending.
    distances: Vec<RangeInclusive<i64>>,
}

impl HaloIndex {
    pub fn new(extents: Vec<ColumnExtent>, distances: Vec<RangeInclusive<i64>>) -> HaloIndex {
        HaloIndex { extents, distances }
    }

    /// The earlier spans that may hold rows at these distances before some spans.
    pub fn spans_at(&self, distances: &RangeInclusive<i64>, tasks: &Range<usize>) -> Range<usize> {
        let ends = (
            self.extents.get(tasks.start),
            tasks
                .end
                .checked_sub(1)
                .and_then(|last| self.extents.get(last)),
        );
        let (Some(first), Some(last)) = ends else {
            return tasks.start..tasks.start;
        };
        let from = shift_back(&first.min, *distances.end());
        let to = shift_back(&last.max, *distances.start());
        let earlier_extents = &self.extents[..tasks.start];
        let start = earlier_extents.partition_point(|extent| extent.max < from);
        start
            ..earlier_extents
                .partition_point(|extent| extent.min <= to)
                .max(start)
    }

    /// The earlier spans that affect some spans: ascending ranges that do not touch.
    pub fn halo_of(&self, tasks: &Range<usize>) -> Vec<Range<usize>> {
        let mut halo: Vec<Range<usize>> = Vec::with_capacity(self.distances.len());
        // In descending order of distance, so that ranges come out ascending.
        for range in self
            .distances
            .iter()
            .rev()
            .map(|distances| self.spans_at(distances, tasks))
        {
            match halo.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None if range.is_empty() => {}
                None => halo.push(range),
            }
        }
        halo
    }

    /// The first span that may affect rows after all spans.
    pub fn retention_start(&self) -> usize {
        let furthest = self
            .distances
            .last()
            .map_or(0, |distances| *distances.end());
        let Some(last) = self.extents.last() else {
            return 0;
        };
        let from = shift_back(&last.max, furthest);
        self.extents.partition_point(|extent| extent.max < from)
    }
}

/// A point shifted back by a distance.
fn shift_back(point: &BoundValue, distance: i64) -> BoundValue {
    match point {
        BoundValue::Int(point) => BoundValue::Int(point.saturating_sub(distance)),
        text => text.clone(),
    }
}
