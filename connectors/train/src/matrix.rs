//! Products of matrices.

use matrixmultiply::sgemm;

/// Layout of a matrix in its slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixLayout {
    /// Row after row.
    Rows,
    /// Column after column: the transpose of the matrix stored row after row.
    Columns,
}

/// Values of a matrix and how they lie.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    pub values: &'a [f32],
    pub layout: MatrixLayout,
}

impl<'a> Matrix<'a> {
    /// Values that lie row after row.
    pub fn rows(values: &'a [f32]) -> Matrix<'a> {
        Matrix {
            values,
            layout: MatrixLayout::Rows,
        }
    }

    /// Values that lie column after column.
    pub fn columns(values: &'a [f32]) -> Matrix<'a> {
        Matrix {
            values,
            layout: MatrixLayout::Columns,
        }
    }
}

/// The sides of a product of matrices.
#[derive(Debug, Clone, Copy)]
pub struct ProductSize {
    /// Rows of the first matrix and of the product.
    pub m: usize,
    /// Columns of the first matrix, rows of the second.
    pub k: usize,
    /// Columns of the second matrix and of the product.
    pub n: usize,
}

/// `c = a b + beta c`, where `a` is `m x k`, `b` is `k x n`, and `c` is `m x n`, row after row.
pub fn multiply(size: ProductSize, a: Matrix<'_>, b: Matrix<'_>, beta: f32, c: &mut [f32]) {
    let ProductSize { m, k, n } = size;
    let strides = |lies: MatrixLayout, rows: usize, columns: usize| match lies {
        MatrixLayout::Rows => (columns as isize, 1),
        MatrixLayout::Columns => (1, rows as isize),
    };
    let (row_a, column_a) = strides(a.layout, m, k);
    let (row_b, column_b) = strides(b.layout, k, n);
    let a = &a.values[..m * k];
    let b = &b.values[..k * n];
    let c = &mut c[..m * n];
    #[allow(unsafe_code, reason = "the kernel takes pointers")]
    // SAFETY: the slices were just cut to the sizes that the strides reach, and `c` is borrowed alone.
    unsafe {
        let a = a.as_ptr();
        let b = b.as_ptr();
        let c = c.as_mut_ptr();
        sgemm(
            m, k, n, 1.0, a, row_a, column_a, b, row_b, column_b, beta, c, n as isize, 1,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_side_may_be_a_transpose() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let b = [1.0, 0.0, 2.0, 1.0, 0.0, 3.0];
        let a_columns = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        let b_columns = [1.0, 2.0, 0.0, 0.0, 1.0, 3.0];
        for a in [Matrix::rows(&a), Matrix::columns(&a_columns)] {
            for b in [Matrix::rows(&b), Matrix::columns(&b_columns)] {
                let mut c = [1.0; 4];
                multiply(ProductSize { m: 2, k: 3, n: 2 }, a, b, 1.0, &mut c);
                assert_eq!(c, [6.0, 12.0, 15.0, 24.0]);
            }
        }
    }
}
