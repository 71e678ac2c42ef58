//! Weights of an ensemble by least squares of the errors of its members.

/// Share that squares of errors are enlarged by: equations of members whose errors go together have a solution, too.
const RIDGE: f64 = 1e-9;

/// Products of the errors of members, summed over forecasts.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorProducts {
    members: usize,
    /// The symmetric matrix of sums, row by row.
    sums: Vec<f64>,
    forecasts: u64,
}

impl ErrorProducts {
    /// Products of no forecasts.
    pub fn new(members: usize) -> ErrorProducts {
        ErrorProducts {
            members,
            sums: vec![0.0; members * members],
            forecasts: 0,
        }
    }

    /// Adds the errors of all members for one value.
    pub fn add(&mut self, errors: &[f64]) {
        for (row, first) in errors.iter().enumerate() {
            for (column, second) in errors.iter().enumerate() {
                self.sums[row * self.members + column] += first * second;
            }
        }
        self.forecasts += 1;
    }

    /// Adds other products of the same members.
    pub fn merge(&mut self, other: &ErrorProducts) {
        for (sum, added) in self.sums.iter_mut().zip(&other.sums) {
            *sum += added;
        }
        self.forecasts += other.forecasts;
    }

    /// Number of the values that errors were added for.
    pub fn forecasts(&self) -> u64 {
        self.forecasts
    }

    /// The root of the mean squared error of the weighted mean of members; `None` without forecasts.
    pub fn error_of(&self, weights: &[f64]) -> Option<f64> {
        if self.forecasts == 0 {
            return None;
        }
        let members: Vec<usize> = (0..self.members).collect();
        let squares = self.squares_of(&members, weights);
        // Errors that cancel may leave a sum below zero by rounding.
        Some((squares.max(0.0) / self.forecasts as f64).sqrt())
    }

    /// The root of the mean squared error of one member; `None` without forecasts.
    pub fn error_of_member(&self, member: usize) -> Option<f64> {
        let mut weights = vec![0.0; self.members];
        *weights.get_mut(member)? = 1.0;
        self.error_of(&weights)
    }

    /// The weights from zero on that add up to one and have the least squares of errors; equal ones without forecasts.
    /// There are few members, so all sets of them are tried: of members with weights above zero, the weights solve
    /// linear equations. The time doubles with each member.
    pub fn weights(&self) -> Vec<f64> {
        let mut best = vec![1.0 / self.members as f64; self.members];
        if self.forecasts == 0 {
            return best;
        }
        let mut least = f64::INFINITY;
        for set in 1_u32..1 << self.members {
            let members: Vec<usize> = (0..self.members)
                .filter(|member| set & (1 << member) != 0)
                .collect();
            let Some(shares) = self.shares_of(&members) else {
                continue;
            };
            let squares = self.squares_of(&members, &shares);
            if squares < least {
                least = squares;
                best.fill(0.0);
                for (member, share) in members.iter().zip(&shares) {
                    best[*member] = *share;
                }
            }
        }
        best
    }

    /// Weights of some members that add up to one and have the least squares; `None` where one of them is not above
    /// zero.
    fn shares_of(&self, members: &[usize]) -> Option<Vec<f64>> {
        if members.len() == 1 {
            return Some(vec![1.0]);
        }
        let mut equations = Vec::with_capacity(members.len());
        for (position, row) in members.iter().enumerate() {
            let mut equation: Vec<f64> = members
                .iter()
                .map(|column| self.sums[row * self.members + column])
                .collect();
            equation[position] *= 1.0 + RIDGE;
            equation.push(1.0);
            equations.push(equation);
        }
        let solution = solve(equations)?;
        let total: f64 = solution.iter().sum();
        let shares: Vec<f64> = solution.iter().map(|share| share / total).collect();
        shares.iter().all(|share| *share > 0.0).then_some(shares)
    }

    /// The sum of squares of the errors of weighted members.
    fn squares_of(&self, members: &[usize], shares: &[f64]) -> f64 {
        let mut squares = 0.0;
        for (row, first) in members.iter().zip(shares) {
            for (column, second) in members.iter().zip(shares) {
                squares += first * second * self.sums[row * self.members + column];
            }
        }
        squares
    }
}

/// The solution of linear equations, each with its right side at the end, by elimination; `None` of dependent ones.
fn solve(mut equations: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = equations.len();
    for column in 0..count {
        let pivot = (column..count).max_by(|first, second| {
            let first = equations[*first][column].abs();
            first.total_cmp(&equations[*second][column].abs())
        })?;
        equations.swap(column, pivot);
        let leading = equations[column].clone();
        if leading[column] == 0.0 {
            return None;
        }
        for (row, equation) in equations.iter_mut().enumerate() {
            if row == column {
                continue;
            }
            let factor = equation[column] / leading[column];
            for (number, leading) in equation.iter_mut().zip(&leading) {
                *number -= factor * leading;
            }
        }
    }
    let mut solution = Vec::with_capacity(count);
    for (position, equation) in equations.iter().enumerate() {
        solution.push(equation[count] / equation[position]);
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_weights(errors: &[[f64; 3]], expected: [f64; 3]) {
        let mut products = ErrorProducts::new(3);
        for errors in errors {
            products.add(errors);
        }
        for (weight, expected) in products.weights().iter().zip(expected) {
            assert!((weight - expected).abs() < 1e-6, "{weight}, not {expected}");
        }
    }

    #[test]
    fn weights_have_the_least_squares() {
        // Errors that do not go together count in inverse proportion to their squares: 1/1, 1/4 and 1/16.
        let apart = [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 4.0]];
        assert_weights(&apart, [16.0 / 21.0, 4.0 / 21.0, 1.0 / 21.0]);
        // Of errors of one and minus two, two thirds and one third leave none.
        let opposite = [[1.0, -2.0, 9.0], [1.0, -2.0, 12.0]];
        assert_weights(&opposite, [2.0 / 3.0, 1.0 / 3.0, 0.0]);
        // A second member that is wrong in the same direction has no weight.
        assert_weights(&[[1.0, 2.0, 3.0], [1.0, 2.0, 3.5]], [1.0, 0.0, 0.0]);
        assert_weights(&[[0.0, 2.0, 3.0]], [1.0, 0.0, 0.0]);
        assert_weights(&[], [1.0 / 3.0; 3]);
    }

    /// Errors of four members for 24 values. The last one has errors of its own, or twice those of the first one, and a
    /// bias of 2.
    fn four_members(repeats: bool) -> ErrorProducts {
        let mut products = ErrorProducts::new(4);
        for number in 0..24 {
            let first = f64::from((5 * number + 1) % 7 - 3) * 0.5;
            let separate = f64::from((4 * number + 3) % 11 - 5);
            let last = if repeats { 2.0 * first } else { separate };
            products.add(&[
                first,
                f64::from((3 * number + 2) % 5 - 2) * 0.75 + 0.25,
                f64::from((2 * number + 5) % 9 - 4) * 0.5 - 0.5,
                last + 2.0,
            ]);
        }
        products
    }

    #[track_caller]
    fn assert_close(values: &[f64], expected: &[f64]) {
        assert_eq!(values.len(), expected.len());
        for (value, expected) in values.iter().zip(expected) {
            assert!(
                (value - expected).abs() < 1e-7,
                "{values:?}, not {expected}"
            );
        }
    }

    /// Values of `scipy.optimize.nnls` of scipy 1.17.1, with an equation of 1e6 times the sum of the weights.
    #[test]
    fn weights_are_those_of_scipy() {
        let separate = [
            0.410290040120,
            0.366089253976,
            0.171060847728,
            0.052559858176,
        ];
        let repeated = [0.394742134937, 0.418228649655, 0.187029215408, 0.0];
        for (repeats, expected, error) in [
            (false, separate, 0.660700271990),
            (true, repeated, 0.688659677423),
        ] {
            let products = four_members(repeats);
            let weights = products.weights();
            assert_close(&weights, &expected);
            assert_close(&[products.error_of(&weights).unwrap()], &[error]);
        }
    }

    #[test]
    fn errors_of_members_are_roots_of_means() {
        let products = four_members(false);
        let errors = [0, 1, 2, 3].map(|member| products.error_of_member(member).unwrap());
        let expected = [
            1.010362971082,
            1.053268721647,
            1.361677886531,
            3.674234614175,
        ];
        assert_close(&errors, &expected);
        assert_eq!(products.forecasts(), 24);
        assert_eq!(products.error_of_member(4), None);
        assert_eq!(ErrorProducts::new(2).error_of(&[0.5, 0.5]), None);
    }

    /// No weights on a grid of the triangle are better.
    #[test]
    fn no_other_weights_are_better() {
        let mut products = ErrorProducts::new(3);
        for forecast in 0..50 {
            let step = f64::from(forecast);
            let noise = (step * 1.7).sin();
            products.add(&[noise + 0.2, (step * 0.9).cos() - 0.1, 2.0 * noise - 0.5]);
        }
        let members = [0, 1, 2];
        let best = products.squares_of(&members, &products.weights());
        for first in 0..=20 {
            for second in 0..=20 - first {
                let first = f64::from(first) / 20.0;
                let second = f64::from(second) / 20.0;
                let shares = [first, second, 1.0 - first - second];
                assert!(products.squares_of(&members, &shares) >= best - 1e-9);
            }
        }
    }

    #[test]
    fn products_of_series_add_up() {
        let mut first = ErrorProducts::new(2);
        first.add(&[1.0, -3.0]);
        let mut second = ErrorProducts::new(2);
        second.add(&[0.5, 2.0]);
        let mut sum = ErrorProducts::new(2);
        sum.merge(&first);
        sum.merge(&second);
        first.add(&[0.5, 2.0]);
        assert_eq!(sum, first);
    }
}
