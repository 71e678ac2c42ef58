//! A few rows whose entries are in their series, to be computed function by function.

use crate::edge::Span;

/// Rows that are computed together: as many as their windows fit the caches.
pub(crate) const BATCH_ROWS: usize = 1024;

/// A row among the entries of its series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub time: i64,
    /// Its number in its series.
    pub number: u64,
    /// Ticks from the entry before.
    pub step: i64,
    /// How many steps up to this one were equal.
    pub run: u32,
    pub series: u32,
    /// Entries for missing periods just before it.
    pub fillers: u32,
    /// The row of the input; none for the last of many fillers, which no row follows yet.
    pub source: Option<u32>,
}

/// A column with the entries of the batch.
pub(crate) struct Entries<'a> {
    pub words: &'a [u64],
    /// For each row: where its entry ends.
    pub ends: &'a [usize],
}

impl<'a> Entries<'a> {
    /// The last entries of a row's series, between two distances from the row.
    #[inline]
    pub fn slice(&self, row: usize, from: u32, to: u32) -> &'a [u64] {
        let end = self.ends[row];
        &self.words[end - from.max(to) as usize..end - to as usize]
    }

    /// The last entry before a distance from the row.
    #[inline]
    pub fn word(&self, row: usize, distance: u32) -> u64 {
        self.words[self.ends[row] - 1 - distance as usize]
    }

    /// The row's own word.
    #[inline]
    pub fn own(&self, row: usize) -> u64 {
        self.words[self.ends[row] - 1]
    }
}

/// The rows of a batch, and where the edges lie.
pub(crate) struct Batch<'a> {
    pub rows: &'a [Row],
    pub times: Entries<'a>,
    pub inputs: &'a [Entries<'a>],
    /// For each edge and row: how many entries follow the edge up to the row.
    pub distances: &'a [Vec<u32>],
}

impl Batch<'_> {
    /// The distances of a span's start and end from each row.
    #[inline]
    pub fn spans(&self, span: Span) -> impl Iterator<Item = (u32, u32)> {
        self.distances[span.start].iter().copied().zip(self.distances[span.end].iter().copied())
    }
}
