//! In which order rows are taken.

use crate::table::SeriesTable;

/// So many rows of each series on average make it worth to bring them together; series count that are
/// numbered from the least to the greatest that has rows.
const ROWS_PER_SERIES: usize = 2;

/// The series of the rows of a push, and an order in which the rows of a series follow one another
/// where they lie apart: what is remembered of a series comes to the caches once for all of them.
#[derive(Debug, Default)]
pub(crate) struct Arranged {
    series: Vec<u32>,
    /// The rows, series by series; empty where they are taken as they come.
    order: Vec<u32>,
    starts: Vec<u32>,
}

impl Arranged {
    /// Finds the series of rows, some or all, by the hashes of their keys. `together` says whether those of a series
    /// gain by following one another.
    pub fn find(&mut self, hashes: &[u128], own: Option<&[u32]>, table: &mut SeriesTable, together: bool) {
        self.series.clear();
        match own {
            None => self.series.extend(hashes.iter().map(|&hash| table.resolve(hash))),
            Some(own) => self.series.extend(own.iter().map(|&row| table.resolve(hashes[row as usize]))),
        }
        self.order.clear();
        if !together {
            return;
        }
        let (Some(&first), Some(&last)) = (self.series.iter().min(), self.series.iter().max()) else { return };
        let series = (last - first) as usize + 1;
        if series * ROWS_PER_SERIES <= self.series.len() && !self.series.is_sorted() {
            self.arrange(first, series);
        }
    }

    /// Sorts the rows by the numbers of their series, which are so many from the first on, by counting;
    /// those of a series keep their order.
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

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// The series of the rows as they come.
    pub fn series(&self) -> &[u32] {
        &self.series
    }

    /// Which of the rows is taken at a place, and its series.
    #[inline]
    pub fn row(&self, place: usize) -> (usize, u32) {
        let row = self.order.get(place).map_or(place, |&row| row as usize);
        (row, self.series[row])
    }
}
