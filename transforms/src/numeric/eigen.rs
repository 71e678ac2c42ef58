//! Eigenvectors of symmetric matrices.

/// An eigenvalue with its vector of length 1, whose entry with the greatest absolute value is positive.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EigenPair {
    pub value: f64,
    pub vector: Vec<f64>,
}

/// Most rounds of rotations. They converge quadratically: ten are many.
const ROUNDS_MAX: usize = 64;

/// All eigenvalues of a symmetric matrix with their vectors, in descending order; of equal ones in the order of columns.
///
/// Cyclic Jacobi rotations (Golub and Van Loan, "Matrix Computations", 8.5), in a fixed order and of basic arithmetic
/// alone: the same matrix gives the same bits everywhere. Time grows with the cube of the columns.
pub(super) fn eigen_pairs(mut matrix: Vec<Vec<f64>>) -> Vec<EigenPair> {
    let width = matrix.len();
    // The rows of this one become the vectors.
    let mut vectors = vec![vec![0.0; width]; width];
    for (index, vector) in vectors.iter_mut().enumerate() {
        vector[index] = 1.0;
    }
    for _ in 0..ROUNDS_MAX {
        let mut is_diagonal = true;
        for first in 0..width {
            for second in first + 1..width {
                if let Some(rotation) = Rotation::of(&matrix, first, second) {
                    rotation.apply(&mut matrix, &mut vectors);
                    is_diagonal = false;
                }
            }
        }
        if is_diagonal {
            break;
        }
    }
    let mut pairs = Vec::with_capacity(width);
    for (index, vector) in vectors.into_iter().enumerate() {
        pairs.push(EigenPair {
            value: matrix[index][index],
            vector: with_positive_peak(vector),
        });
    }
    pairs.sort_by(|a, b| b.value.total_cmp(&a.value));
    pairs
}

/// The vector or its opposite. Of entries with equal absolute values the first one decides.
fn with_positive_peak(vector: Vec<f64>) -> Vec<f64> {
    let mut peak = 0.0_f64;
    for entry in &vector {
        if entry.abs() > peak.abs() {
            peak = *entry;
        }
    }
    if peak < 0.0 {
        return vector.into_iter().map(|entry| -entry).collect();
    }
    vector
}

/// A rotation in the plane of two columns.
struct Rotation {
    first: usize,
    second: usize,
    cosine: f64,
    sine: f64,
}

impl Rotation {
    /// The rotation that makes an entry beside the diagonal 0; `None` where it is negligible.
    fn of(matrix: &[Vec<f64>], first: usize, second: usize) -> Option<Rotation> {
        let entry = matrix[first][second];
        let upper = matrix[first][first];
        let lower = matrix[second][second];
        let is_negligible = |diagonal: f64| diagonal.abs() + entry.abs() == diagonal.abs();
        if entry == 0.0 || (is_negligible(upper) && is_negligible(lower)) {
            return None;
        }
        // The cotangent of twice the angle; beyond doubles its square gives a tangent of 0.
        let theta = (lower - upper) / (2.0 * entry);
        let tangent = 1.0 / (theta.abs() + (theta * theta + 1.0).sqrt());
        let tangent = if theta < 0.0 { -tangent } else { tangent };
        let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
        Some(Rotation {
            first,
            second,
            cosine,
            sine: tangent * cosine,
        })
    }

    /// Rotates columns and rows of the matrix, and the vectors.
    fn apply(&self, matrix: &mut [Vec<f64>], vectors: &mut [Vec<f64>]) {
        for row in matrix.iter_mut() {
            let [a, b] = self.rotated(row[self.first], row[self.second]);
            row[self.first] = a;
            row[self.second] = b;
        }
        self.apply_to_rows(matrix);
        self.apply_to_rows(vectors);
        // Rounding leaves next to nothing here.
        matrix[self.first][self.second] = 0.0;
        matrix[self.second][self.first] = 0.0;
    }

    fn apply_to_rows(&self, rows: &mut [Vec<f64>]) {
        // The first of the two is the upper one.
        let (upper, lower) = rows.split_at_mut(self.second);
        for (first, second) in upper[self.first].iter_mut().zip(&mut lower[0]) {
            let [a, b] = self.rotated(*first, *second);
            *first = a;
            *second = b;
        }
    }

    fn rotated(&self, a: f64, b: f64) -> [f64; 2] {
        [
            self.cosine * a - self.sine * b,
            self.sine * a + self.cosine * b,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_solve_their_equation() {
        let matrices = [
            vec![vec![2.0]],
            vec![vec![5.6, 3.6], vec![3.6, 2.4]],
            vec![vec![1.0, 0.0], vec![0.0, 3.0]],
            vec![
                vec![4.0, 1.0, -2.0],
                vec![1.0, 3.0, 0.5],
                vec![-2.0, 0.5, 2.0],
            ],
            // Of rank 1.
            vec![
                vec![1.0, 2.0, 3.0],
                vec![2.0, 4.0, 6.0],
                vec![3.0, 6.0, 9.0],
            ],
            vec![vec![0.0; 2]; 2],
        ];
        for matrix in matrices {
            let pairs = eigen_pairs(matrix.clone());
            assert!(pairs.is_sorted_by(|a, b| a.value >= b.value), "{pairs:?}");
            for pair in &pairs {
                let length: f64 = pair.vector.iter().map(|entry| entry * entry).sum();
                assert!((length - 1.0).abs() < 1e-14, "{pair:?}");
                for (row, entry) in matrix.iter().zip(&pair.vector) {
                    let product: f64 = row.iter().zip(&pair.vector).map(|(a, b)| a * b).sum();
                    let error = (product - pair.value * entry).abs();
                    assert!(error < 1e-13, "{pair:?}: {error}");
                }
            }
        }
    }
}
