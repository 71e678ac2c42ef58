//! Grouping of the rows of a push by series.

use crate::series_table::SeriesTable;

/// Average rows per series from which grouping pays. The number of series is that of the range between the least
/// and the greatest series number in the push.
const ROWS_PER_SERIES: usize = 2;

/// The series of each row of a push. If rows of a series are scattered, also an order that groups them: the state
/// of a series is then loaded into the caches once for all of them.
#[derive(Debug, Default)]
pub(crate) struct SeriesGrouping {
    series: Vec<u32>,
    /// Row indices grouped by series; empty if rows are processed in input order.
    order: Vec<u32>,
    starts: Vec<u32>,
}

impl SeriesGrouping {
    /// Resolves the series of all rows, or of those in `row_numbers`, by the hashes of their
    /// keys. Rows are grouped only with `are_grouped`.
    pub fn find(
        &mut self,
        hashes: &[u128],
        row_numbers: Option<&[u32]>,
        table: &mut SeriesTable,
        are_grouped: bool,
    ) {
        self.series.clear();
        match row_numbers {
            None => self
                .series
                .extend(hashes.iter().map(|&hash| table.resolve(hash))),
            Some(row_numbers) => self.series.extend(
                row_numbers
                    .iter()
                    .map(|&row| table.resolve(hashes[row as usize])),
            ),
        }
        self.order.clear();
        if !are_grouped {
            return;
        }
        let Some(&first) = self.series.iter().min() else {
            return;
        };
        let Some(&last) = self.series.iter().max() else {
            return;
        };
        let series = (last - first) as usize + 1;
        if series * ROWS_PER_SERIES <= self.series.len() && !self.series.is_sorted() {
            self.arrange(first, series);
        }
    }

    /// Stable counting sort of the rows by series number; the numbers span `series` values from `first` on.
    fn arrange(&mut self, first: u32, series: usize) {
        self.starts.clear();
        self.starts.resize(series, 0);
        for &series in &self.series {
            self.starts[(series - first) as usize] += 1;
        }
        let mut rows = 0;
        for start in &mut self.starts {
            rows += std::mem::replace(start, rows);
        }
        self.order.resize(self.series.len(), 0);
        for (row, &series) in self.series.iter().enumerate() {
            let start = &mut self.starts[(series - first) as usize];
            self.order[*start as usize] = row as u32;
            *start += 1;
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Series of the rows in input order.
    pub fn series(&self) -> &[u32] {
        &self.series
    }

    /// The row at a place of the processing order, and its series.
    #[inline]
    pub fn row(&self, index: usize) -> (usize, u32) {
        let row = self.order.get(index).map_or(index, |&row| row as usize);
        (row, self.series[row])
    }
}
