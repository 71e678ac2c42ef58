//! Rows that models are computed from.

/// Rows of a slice, which is computed at once. Batches are cut into slices of this size for any
/// number of threads, and the results of slices are added in their order.
pub const SLICE_ROWS: usize = 1024;

/// Rows as a feed delivers them.
#[derive(Debug, Clone, Copy)]
pub struct ModelInput<'a> {
    pub rows: usize,
    /// Numbers, row after row.
    pub dense: &'a [f32],
    /// Ids, row after row.
    pub ids: &'a [i32],
    /// Labels; empty if no training needs them.
    pub labels: &'a [f32],
    /// Empty where all rows weigh the same.
    pub weights: &'a [f32],
    /// 0 for rows that do not count; empty where all do.
    pub mask: &'a [u8],
}

impl<'a> ModelInput<'a> {
    /// One slice of the rows.
    pub fn slice(&self, number: usize) -> ModelInput<'a> {
        let first = number * SLICE_ROWS;
        let rows = self.rows.saturating_sub(first).min(SLICE_ROWS);
        fn part<T>(values: &[T], of: usize, first: usize, rows: usize) -> &[T] {
            let width = values.len().checked_div(of).unwrap_or(0);
            &values[first * width..(first + rows) * width]
        }
        ModelInput {
            rows,
            dense: part(self.dense, self.rows, first, rows),
            ids: part(self.ids, self.rows, first, rows),
            labels: part(self.labels, self.rows, first, rows),
            weights: part(self.weights, self.rows, first, rows),
            mask: part(self.mask, self.rows, first, rows),
        }
    }

    /// Number of slices.
    pub fn slices(&self) -> usize {
        self.rows.div_ceil(SLICE_ROWS)
    }

    /// Weight of a row.
    pub fn weight(&self, row: usize) -> f32 {
        let counts = self.mask.get(row).is_none_or(|mask| *mask != 0);
        if counts {
            self.weights.get(row).copied().unwrap_or(1.0)
        } else {
            0.0
        }
    }
}
