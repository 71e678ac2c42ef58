//! Which of the spans before some hold rows that decide what comes out of them.

use std::ops::{Range, RangeInclusive};

use forebay_model::{Extent, Point};

/// Where the rows of tasks lie, and at which distances rows decide each other.
#[derive(Debug)]
pub(crate) struct Halos {
    /// Of each task, in the column by which distances are told. No task begins before the one before it ended.
    extents: Vec<Extent>,
    /// Of all windows together, in ascending order.
    distances: Vec<RangeInclusive<i64>>,
}

impl Halos {
    pub fn new(extents: Vec<Extent>, distances: Vec<RangeInclusive<i64>>) -> Halos {
        Halos { extents, distances }
    }

    /// The tasks before some whose rows may lie at such distances before theirs.
    pub fn at(&self, distances: &RangeInclusive<i64>, tasks: &Range<usize>) -> Range<usize> {
        let ends = (self.extents.get(tasks.start), tasks.end.checked_sub(1).and_then(|last| self.extents.get(last)));
        let (Some(first), Some(last)) = ends else { return tasks.start..tasks.start };
        let (from, to) = (back(&first.min, *distances.end()), back(&last.max, *distances.start()));
        let before = &self.extents[..tasks.start];
        let start = before.partition_point(|extent| extent.max < from);
        start..before.partition_point(|extent| extent.min <= to).max(start)
    }

    /// The tasks before some that decide what comes out of them: ascending ranges that do not touch.
    pub fn of(&self, tasks: &Range<usize>) -> Vec<Range<usize>> {
        let mut halo: Vec<Range<usize>> = Vec::with_capacity(self.distances.len());
        // The furthest come first.
        for range in self.distances.iter().rev().map(|distances| self.at(distances, tasks)) {
            match halo.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None if range.is_empty() => {}
                None => halo.push(range),
            }
        }
        halo
    }

    /// The first task that may decide what comes out of rows after all tasks.
    pub fn of_rest(&self) -> usize {
        let furthest = self.distances.last().map_or(0, |distances| *distances.end());
        let Some(last) = self.extents.last() else { return 0 };
        let from = back(&last.max, furthest);
        self.extents.partition_point(|extent| extent.max < from)
    }
}

/// What lies so far before a point.
fn back(point: &Point, distance: i64) -> Point {
    match point {
        Point::Int(point) => Point::Int(point.saturating_sub(distance)),
        text => text.clone(),
    }
}
