//! Forecasts of a hierarchy that add up: those of upper series are the sums of those of their bottom series.
//!
//! Of forecasts y with errors of the covariance W, the least change that makes them add up is `W C' (C W C')^-1 C y`
//! (Wickramasuriya, Athanasopoulos and Hyndman 2019). Each row of C is an upper series less its bottom series. W is
//! held as its diagonal and the errors that it comes from, so memory is that of the errors and of a square of the upper
//! series.

use forebay_model::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Share of the largest variance that is added to all: series of constant errors have none.
const RIDGE: f64 = 1e-10;

/// Method of reconciliation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReconcileMethod {
    /// Forecasts of bottom series stay.
    BottomUp,
    /// Ordinary least squares: errors of all series count alike.
    Ols,
    /// The covariance of the errors of one step, shrunk towards its diagonal (Schäfer and Strimmer 2005).
    #[default]
    MintShrink,
}

/// A hierarchy of series. Upper series come first, then bottom series.
#[derive(Debug, Clone, PartialEq)]
pub struct Hierarchy {
    /// Numbers of the bottom series of each upper series, from 0.
    pub children: Vec<Vec<usize>>,
    /// Number of bottom series.
    pub bottoms: usize,
}

/// Covariance of the errors of all series: `diagonal + errors * errors'`.
struct ErrorCovariance {
    diagonal: Vec<f64>,
    /// Errors of each series, scaled.
    errors: Vec<Vec<f64>>,
}

/// A reconciliation of forecasts of one hierarchy.
pub struct Reconciler<'a> {
    hierarchy: &'a Hierarchy,
    covariance: ErrorCovariance,
    /// The lower triangle of the Cholesky factor of `C W C'`, row by row.
    factor: Vec<Vec<f64>>,
}

impl Hierarchy {
    fn series(&self) -> usize {
        self.children.len() + self.bottoms
    }

    /// Upper series less their bottom series.
    fn differences(&self, values: &[f64]) -> Vec<f64> {
        let bottoms = &values[self.children.len()..];
        let mut differences = Vec::with_capacity(self.children.len());
        for (value, children) in values.iter().zip(&self.children) {
            let sum: f64 = children.iter().map(|child| bottoms[*child]).sum();
            differences.push(value - sum);
        }
        differences
    }

    /// Weights of all series of weighted differences: the transpose of [`Hierarchy::differences`].
    fn transposed(&self, weights: &[f64]) -> Vec<f64> {
        let uppers = self.children.len();
        let mut values = vec![0.0; self.series()];
        for (upper, (weight, children)) in weights.iter().zip(&self.children).enumerate() {
            values[upper] += weight;
            for child in children {
                values[uppers + child] -= weight;
            }
        }
        values
    }
}

impl ErrorCovariance {
    /// The identity.
    fn identity(series: usize) -> ErrorCovariance {
        ErrorCovariance {
            diagonal: vec![1.0; series],
            errors: vec![Vec::new(); series],
        }
    }

    /// The covariance of errors, of which all series have as many, shrunk towards its diagonal.
    fn shrunk(errors: &[Vec<f64>]) -> ErrorCovariance {
        let steps = errors.first().map_or(0, Vec::len) as f64;
        let mut centred = Vec::with_capacity(errors.len());
        let mut diagonal = Vec::with_capacity(errors.len());
        for errors in errors {
            let mean = errors.iter().sum::<f64>() / steps;
            let errors: Vec<f64> = errors.iter().map(|error| error - mean).collect();
            let squares: f64 = errors.iter().map(|error| error * error).sum();
            diagonal.push(squares / (steps - 1.0));
            centred.push(errors);
        }
        let shrinkage = shrinkage(&centred, &diagonal);
        let scale = ((1.0 - shrinkage) / (steps - 1.0)).sqrt();
        for error in centred.iter_mut().flatten() {
            *error *= scale;
        }
        for variance in &mut diagonal {
            *variance *= shrinkage;
        }
        ErrorCovariance {
            diagonal,
            errors: centred,
        }
    }

    fn times(&self, values: &[f64]) -> Vec<f64> {
        let steps = self.errors.first().map_or(0, Vec::len);
        let mut sums = vec![0.0; steps];
        for (errors, value) in self.errors.iter().zip(values) {
            for (sum, error) in sums.iter_mut().zip(errors) {
                *sum += error * value;
            }
        }
        let mut products = Vec::with_capacity(values.len());
        for ((variance, errors), value) in self.diagonal.iter().zip(&self.errors).zip(values) {
            products.push(variance * value + dot(errors, &sums));
        }
        products
    }
}

/// Share of the diagonal that has the least expected error: the variances of correlations by their squares.
fn shrinkage(centred: &[Vec<f64>], variances: &[f64]) -> f64 {
    let steps = centred.first().map_or(0, Vec::len);
    let count = steps as f64;
    // Standardised errors by step. Series without a variance have no correlations.
    let mut by_step = vec![Vec::new(); steps];
    for (errors, variance) in centred.iter().zip(variances) {
        if *variance <= 0.0 {
            continue;
        }
        for (standardised, error) in by_step.iter_mut().zip(errors) {
            standardised.push(error / variance.sqrt());
        }
    }
    let series = by_step.first().map_or(0, Vec::len) as f64;
    let mut squares = 0.0;
    let mut products = 0.0;
    for (position, first) in by_step.iter().enumerate() {
        let norm = dot(first, first);
        let fourth: f64 = first.iter().map(|error| error.powi(4)).sum();
        products += norm * norm - fourth;
        squares += norm * norm;
        for second in &by_step[..position] {
            squares += 2.0 * dot(first, second).powi(2);
        }
    }
    // Sums over all pairs of different series.
    let correlations = squares / (count - 1.0).powi(2) - series;
    if correlations <= 0.0 {
        return 1.0;
    }
    let deviations = products - (count - 1.0).powi(2) / count * correlations;
    (count / (count - 1.0).powi(3) * deviations / correlations).clamp(0.0, 1.0)
}

impl<'a> Reconciler<'a> {
    /// A reconciliation by the errors of one step: those of upper series, then those of bottom series, as many of each.
    /// Errors that determine no covariance count alike. `None` of forecasts that stay. Time grows with the cube of the
    /// upper series; `check` ends it by its fault.
    pub fn new(
        hierarchy: &'a Hierarchy,
        method: ReconcileMethod,
        errors: &[Vec<f64>],
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<Reconciler<'a>>> {
        let is_shrunk = match method {
            ReconcileMethod::BottomUp => return Ok(None),
            ReconcileMethod::Ols => false,
            ReconcileMethod::MintShrink => true,
        };
        let steps = errors.first().map_or(0, Vec::len);
        if is_shrunk && steps > 2 {
            let covariance = ErrorCovariance::shrunk(errors);
            if let Some(factor) = factor_of(hierarchy, &covariance, check)? {
                return Ok(Some(Reconciler {
                    hierarchy,
                    covariance,
                    factor,
                }));
            }
        }
        let covariance = ErrorCovariance::identity(hierarchy.series());
        let factor = factor_of(hierarchy, &covariance, check)?;
        Ok(factor.map(|factor| Reconciler {
            hierarchy,
            covariance,
            factor,
        }))
    }

    /// Makes forecasts add up: those of upper series, then those of bottom series.
    pub fn reconcile(&self, forecasts: &mut [f64]) {
        let mut weights = self.hierarchy.differences(forecasts);
        solve(&self.factor, &mut weights);
        let changes = self.covariance.times(&self.hierarchy.transposed(&weights));
        for (forecast, change) in forecasts.iter_mut().zip(changes) {
            *forecast -= change;
        }
    }
}

/// The Cholesky factor of `C W C'`; `None` where that is not positive.
fn factor_of(
    hierarchy: &Hierarchy,
    covariance: &ErrorCovariance,
    check: &dyn Fn() -> Result<()>,
) -> Result<Option<Vec<Vec<f64>>>> {
    let uppers = hierarchy.children.len();
    let mut matrix = Vec::with_capacity(uppers);
    for upper in 0..uppers {
        matrix.push(vec![0.0; upper + 1]);
    }
    // Upper series of each bottom series, in ascending order.
    let mut parents = vec![Vec::new(); hierarchy.bottoms];
    for (upper, children) in hierarchy.children.iter().enumerate() {
        matrix[upper][upper] += covariance.diagonal[upper];
        for child in children {
            parents[*child].push(upper);
        }
    }
    for (bottom, parents) in parents.iter().enumerate() {
        let variance = covariance.diagonal[uppers + bottom];
        for (position, first) in parents.iter().enumerate() {
            for second in &parents[..=position] {
                matrix[*first][*second] += variance;
            }
        }
    }
    let steps = covariance.errors.first().map_or(0, Vec::len);
    let mut differences = vec![Vec::new(); uppers];
    for step in 0..steps {
        let errors: Vec<f64> = covariance
            .errors
            .iter()
            .map(|errors| errors[step])
            .collect();
        for (of_upper, difference) in differences.iter_mut().zip(hierarchy.differences(&errors)) {
            of_upper.push(difference);
        }
    }
    for (row, first) in matrix.iter_mut().zip(&differences) {
        check()?;
        for (number, second) in row.iter_mut().zip(&differences) {
            *number += dot(first, second);
        }
    }
    factorise(matrix, check)
}

/// The Cholesky factor of a symmetric matrix, of which the lower triangle is given.
fn factorise(
    mut matrix: Vec<Vec<f64>>,
    check: &dyn Fn() -> Result<()>,
) -> Result<Option<Vec<Vec<f64>>>> {
    let largest = matrix
        .iter()
        .filter_map(|row| row.last())
        .fold(0.0_f64, |largest, variance| largest.max(*variance));
    for position in 0..matrix.len() {
        check()?;
        let (above, below) = matrix.split_at_mut(position);
        let row = &mut below[0];
        for (column, other) in above.iter().enumerate() {
            let sum = dot(&row[..column], &other[..column]);
            row[column] = (row[column] - sum) / other[column];
        }
        let sum = dot(&row[..position], &row[..position]);
        let square = row[position] + RIDGE * largest - sum;
        if square.is_nan() || square <= 0.0 {
            return Ok(None);
        }
        row[position] = square.sqrt();
    }
    Ok(Some(matrix))
}

/// Solves equations by their Cholesky factor.
fn solve(factor: &[Vec<f64>], values: &mut [f64]) {
    for (position, row) in factor.iter().enumerate() {
        let sum = dot(&row[..position], &values[..position]);
        values[position] = (values[position] - sum) / row[position];
    }
    for (position, row) in factor.iter().enumerate().rev() {
        let value = values[position] / row[position];
        values[position] = value;
        for (earlier, number) in values[..position].iter_mut().zip(row) {
            *earlier -= number * value;
        }
    }
}

fn dot(first: &[f64], second: &[f64]) -> f64 {
    let pairs = first.iter().zip(second);
    pairs.map(|(first, second)| first * second).sum()
}

#[cfg(test)]
mod tests {
    use forebay_model::{Fault, codes};

    use super::*;

    /// A total, two groups, and four bottom series.
    fn hierarchy() -> Hierarchy {
        Hierarchy {
            children: vec![vec![0, 1, 2, 3], vec![0, 1], vec![2, 3]],
            bottoms: 4,
        }
    }

    const FORECASTS: [f64; 7] = [100.0, 45.0, 60.0, 20.0, 22.0, 31.0, 27.0];

    fn errors() -> Vec<Vec<f64>> {
        [
            [2.0, 1.0, 3.0, -1.0, -5.0, 3.0],
            [3.0, -2.0, 2.0, 1.0, -4.0, 3.0],
            [-2.0, 3.0, 1.0, -1.0, -1.0, 0.0],
            [1.0, -2.0, 3.0, 0.0, -1.0, 2.0],
            [2.0, -1.0, 0.0, 1.0, -3.0, 2.0],
            [-1.0, 1.0, 2.0, -2.0, 0.0, 1.0],
            [0.0, 3.0, -1.0, 1.0, -2.0, -2.0],
        ]
        .map(|errors| errors.to_vec())
        .to_vec()
    }

    fn reconciler<'a>(
        hierarchy: &'a Hierarchy,
        method: ReconcileMethod,
        errors: &[Vec<f64>],
    ) -> Option<Reconciler<'a>> {
        Reconciler::new(hierarchy, method, errors, &|| Ok(())).unwrap()
    }

    #[track_caller]
    fn assert_reconciled(method: ReconcileMethod, errors: &[Vec<f64>], expected: [f64; 7]) {
        let hierarchy = hierarchy();
        let reconciler = reconciler(&hierarchy, method, errors).unwrap();
        let mut forecasts = FORECASTS;
        reconciler.reconcile(&mut forecasts);
        for (forecast, expected) in forecasts.iter().zip(expected) {
            assert!(
                (forecast - expected).abs() < 1e-6,
                "{forecast}, not {expected}"
            );
        }
        for difference in hierarchy.differences(&forecasts) {
            assert!(difference.abs() < 1e-6, "{difference}");
        }
    }

    const LEAST_SQUARES: [f64; 7] = [
        101.428_571_43,
        43.047_619_05,
        58.380_952_38,
        20.523_809_52,
        22.523_809_52,
        31.190_476_19,
        27.190_476_19,
    ];

    /// Forecasts of hierarchicalforecast 1.5.3.
    #[test]
    fn forecasts_are_those_of_hierarchicalforecast() {
        assert_reconciled(ReconcileMethod::Ols, &errors(), LEAST_SQUARES);
        let shrunk = [
            101.838_826_89,
            42.882_882_90,
            58.955_943_98,
            20.414_327_98,
            22.468_554_92,
            31.351_662_42,
            27.604_281_56,
        ];
        assert_reconciled(ReconcileMethod::MintShrink, &errors(), shrunk);
    }

    #[test]
    fn errors_that_determine_nothing_count_alike() {
        assert_reconciled(
            ReconcileMethod::MintShrink,
            &vec![vec![1.0, 2.0]; 7],
            LEAST_SQUARES,
        );
        assert_reconciled(
            ReconcileMethod::MintShrink,
            &vec![vec![1.0; 9]; 7],
            LEAST_SQUARES,
        );
    }

    #[test]
    fn a_check_ends_the_reconciliation() {
        let hierarchy = hierarchy();
        let stopped = Reconciler::new(&hierarchy, ReconcileMethod::Ols, &errors(), &|| {
            Err(Fault::new(codes::BAD_VALUE, "stopped"))
        });
        assert!(stopped.is_err());
    }

    #[test]
    fn forecasts_that_add_up_stay() {
        let hierarchy = hierarchy();
        let mut forecasts = [100.0, 42.0, 58.0, 20.0, 22.0, 31.0, 27.0];
        for method in [ReconcileMethod::Ols, ReconcileMethod::MintShrink] {
            let reconciler = reconciler(&hierarchy, method, &errors()).unwrap();
            reconciler.reconcile(&mut forecasts);
            assert!((forecasts[3] - 20.0).abs() < 1e-9);
        }
        let bottom_up = reconciler(&hierarchy, ReconcileMethod::BottomUp, &errors());
        assert!(bottom_up.is_none());
    }

    #[test]
    fn the_shrinkage_is_that_of_schaefer_and_strimmer() {
        let mut variances = Vec::new();
        let mut centred = Vec::new();
        for errors in errors() {
            let mean = errors.iter().sum::<f64>() / 6.0;
            let errors: Vec<f64> = errors.iter().map(|error| error - mean).collect();
            variances.push(dot(&errors, &errors) / 5.0);
            centred.push(errors);
        }
        let share = shrinkage(&centred, &variances);
        assert!((share - 0.632_384).abs() < 1e-6, "{share}");
    }
}
