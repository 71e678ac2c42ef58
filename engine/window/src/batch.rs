//! Rows whose entries have been appended to their series, evaluated function by function.

/// Rows evaluated together: few enough that their windows fit the caches.
pub(crate) const BATCH_ROWS: usize = 1024;

/// A row and its position in its series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchRow {
    pub time: i64,
    /// Index of its entry in the series, from 0.
    pub number: u64,
    /// Ticks since the previous entry.
    pub step: i64,
    /// Number of consecutive equal steps that end here.
    pub run: u32,
    pub series: u32,
    /// Number of entries for missing periods directly before it.
    pub fillers: u32,
    /// Index of the input row; `None` for the last of many fillers, which has no input row.
    pub source: Option<u32>,
}

impl BatchRow {
    /// Number of entries directly before it that have its time.
    #[inline]
    pub fn ties(&self) -> u32 {
        if self.step == 0 && self.number > 0 {
            self.run
        } else {
            0
        }
    }
}

/// The entries between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BoundPair {
    /// Index of the first bound.
    pub start: usize,
    /// Index of the second bound.
    pub end: usize,
}

/// A column that contains the entries of the batch.
pub(crate) struct EntryColumn<'a> {
    pub words: &'a [u64],
    /// Per row: end of its entry in `words`.
    pub ends: &'a [usize],
}

impl<'a> EntryColumn<'a> {
    /// The entries of a row's series between two distances from the row.
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

    /// The row's own entry.
    #[inline]
    pub fn own(&self, row: usize) -> u64 {
        self.words[self.ends[row] - 1]
    }
}

/// The rows of a batch and the distances of the window bounds.
pub(crate) struct WindowBatch<'a> {
    pub rows: &'a [BatchRow],
    pub times: EntryColumn<'a>,
    pub inputs: &'a [EntryColumn<'a>],
    /// Per bound and row: number of entries after the bound up to and including the row.
    pub distances: &'a [Vec<u32>],
}

impl WindowBatch<'_> {
    /// Distances of both bounds of a pair, per row.
    #[inline]
    pub fn spans(&self, span: BoundPair) -> impl Iterator<Item = (u32, u32)> {
        self.distances[span.start]
            .iter()
            .copied()
            .zip(self.distances[span.end].iter().copied())
    }
}
