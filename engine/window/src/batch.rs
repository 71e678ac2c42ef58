//! A few rows whose entries are in their series, to be computed function by function.

use crate::edge::Span;

/// Rows that are computed together: as many as their windows fit the caches.
pub(crate) const BATCH_ROWS: usize = 1024;

/// A row and where its entry lies. Whatever moves an entry waits until the row is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Where the slab of its series starts.
    pub slab: usize,
    /// The number, in its series, of the first entry in the slab.
    pub first: u64,
    /// Ticks from the entry before.
    pub step: i64,
    /// How many steps up to this one were equal.
    pub run: u32,
    /// Words in a column of the slab.
    pub capacity: u32,
    /// Where its entry lies in each column.
    pub place: u32,
    /// Its series.
    pub series: u32,
}

impl Row {
    /// Its number in its series.
    pub fn number(&self) -> u64 {
        self.first + u64::from(self.place)
    }
}

/// The rows of a batch, the entries of all series, and where the edges lie.
pub(crate) struct Batch<'a> {
    pub words: &'a [u64],
    pub rows: &'a [Row],
    /// For each edge and row: where it lies in the row's slab.
    pub places: &'a [Vec<u32>],
}

impl<'a> Batch<'a> {
    /// The times of a series up to the row.
    #[inline]
    pub fn times(&self, row: &Row) -> &'a [u64] {
        &self.words[row.slab..=row.slab + row.place as usize]
    }

    /// An input of a series up to the row.
    #[inline]
    pub fn input(&self, row: &Row, input: usize) -> &'a [u64] {
        let start = row.slab + (input + 1) * row.capacity as usize;
        &self.words[start..=start + row.place as usize]
    }

    /// Each row with where a span starts and ends for it.
    #[inline]
    pub fn spans(&self, span: Span) -> impl Iterator<Item = (&'a Row, usize, usize)> {
        let (starts, ends) = (&self.places[span.start], &self.places[span.end]);
        let places = starts.iter().zip(ends);
        self.rows.iter().zip(places).map(|(row, (&start, &end))| (row, start.min(end) as usize, end as usize))
    }
}
