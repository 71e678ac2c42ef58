//! Halos: the earlier spans whose rows windows reach.

use std::ops::{Range, RangeInclusive};

use forebay_model::{Extent, Point};

/// The extents of spans, and the distances at which rows affect each other.
#[derive(Debug)]
pub(crate) struct Halos {
    /// The extent of each span in the column that measures distances. No span starts before the end of the span before
    /// it.
    extents: Vec<Extent>,
    /// The distances of all windows together, ascending.
    distances: Vec<RangeInclusive<i64>>,
}

impl Halos {
    pub fn new(extents: Vec<Extent>, distances: Vec<RangeInclusive<i64>>) -> Halos {
        Halos { extents, distances }
    }

    /// The earlier spans that may hold rows at these distances before some spans.
    pub fn at(&self, distances: &RangeInclusive<i64>, tasks: &Range<usize>) -> Range<usize> {
        let ends = (self.extents.get(tasks.start), tasks.end.checked_sub(1).and_then(|last| self.extents.get(last)));
        let (Some(first), Some(last)) = ends else { return tasks.start..tasks.start };
        let (from, to) = (back(&first.min, *distances.end()), back(&last.max, *distances.start()));
        let before = &self.extents[..tasks.start];
        let start = before.partition_point(|extent| extent.max < from);
        start..before.partition_point(|extent| extent.min <= to).max(start)
    }

    /// The earlier spans that affect some spans: ascending ranges that do not touch.
    pub fn of(&self, tasks: &Range<usize>) -> Vec<Range<usize>> {
        let mut halo: Vec<Range<usize>> = Vec::with_capacity(self.distances.len());
        // In descending order of distance, so that ranges come out ascending.
        for range in self.distances.iter().rev().map(|distances| self.at(distances, tasks)) {
            match halo.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None if range.is_empty() => {}
                None => halo.push(range),
            }
        }
        halo
    }

    /// The first span that may affect rows after all spans.
    pub fn of_rest(&self) -> usize {
        let furthest = self.distances.last().map_or(0, |distances| *distances.end());
        let Some(last) = self.extents.last() else { return 0 };
        let from = back(&last.max, furthest);
        self.extents.partition_point(|extent| extent.max < from)
    }
}

/// A point shifted back by a distance.
fn back(point: &Point, distance: i64) -> Point {
    match point {
        Point::Int(point) => Point::Int(point.saturating_sub(distance)),
        text => text.clone(),
    }
}
