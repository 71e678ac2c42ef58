//! Histograms of derivatives over the bins of a feature.

use super::bin_blocks::BinValues;

/// Sums over the rows of one bin.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GradientSums {
    /// First derivatives.
    pub first: f64,
    /// Second derivatives.
    pub second: f64,
    pub rows: u32,
}

impl GradientSums {
    pub fn plus(self, other: GradientSums) -> GradientSums {
        GradientSums {
            first: self.first + other.first,
            second: self.second + other.second,
            rows: self.rows + other.rows,
        }
    }

    pub fn minus(self, other: GradientSums) -> GradientSums {
        GradientSums {
            first: self.first - other.first,
            second: self.second - other.second,
            rows: self.rows - other.rows,
        }
    }

    /// The value of a leaf with these rows.
    pub fn leaf_value(self, l2: f64) -> f64 {
        let weight = self.second + l2;
        if weight > 0.0 {
            -self.first / weight
        } else {
            0.0
        }
    }

    /// Twice the decrease of the loss if these rows get their best value.
    pub fn score(self, l2: f64) -> f64 {
        let weight = self.second + l2;
        if weight > 0.0 {
            self.first * self.first / weight
        } else {
            0.0
        }
    }
}

/// First and second derivative of a row.
pub type Derivatives = [f32; 2];

/// Adds rows of a block to the sums of their bins, in their order. `values` are those of the block's rows, of which
/// `first_row` is the first; `derivatives` are those of `rows`, element by element.
pub fn add_to_histogram(
    cells: &mut [GradientSums],
    values: &BinValues,
    first_row: usize,
    rows: &[u32],
    derivatives: &[Derivatives],
) {
    fn add<T: Copy + Into<usize>>(
        cells: &mut [GradientSums],
        values: &[T],
        first_row: usize,
        rows: &[u32],
        derivatives: &[Derivatives],
    ) {
        for (row, [first, second]) in rows.iter().zip(derivatives) {
            let cell = &mut cells[values[*row as usize - first_row].into()];
            cell.first += f64::from(*first);
            cell.second += f64::from(*second);
            cell.rows += 1;
        }
    }
    match values {
        BinValues::Narrow(values) => add(cells, values, first_row, rows, derivatives),
        BinValues::Wide(values) => add(cells, values, first_row, rows, derivatives),
    }
}
